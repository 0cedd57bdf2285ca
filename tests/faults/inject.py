"""Runs under the shim: the n-th write, fsync, read, thread start or large allocation fails, for n = 1, 2, 3, ...

Reads and writes also take half of the bytes only, which must change nothing. Each operation is repeated with the next
call failing until it passes untouched, in one process. It may end in an error of one sentence, never in another one;
and the model file is then complete, the old one or the new one.
Called by test_faults.py with the library as argument; prints one line per operation and kind.
"""

from __future__ import annotations

import contextlib
import ctypes
import io
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

import numpy as np

import steepest as st
from steepest import cli

KINDS = {"write": 1, "fsync": 2, "read": 3, "thread": 4, "malloc": 5, "short write": 6, "short read": 7}
FEW = (st.DataError, st.ParameterError, MemoryError, OSError)


def main(library: str, most: int) -> int:
    """Exit status 1 if an operation failed in another way, or spoiled a file."""
    shim = ctypes.CDLL(library)
    shim.fault_arm.argtypes = (ctypes.c_int, ctypes.c_long)
    place = Path(tempfile.mkdtemp())
    rng = np.random.default_rng(0)
    lines = (f"{i % 2} {1 + i % 2}:1 {rng.integers(3, 2000)}:1\n" for i in range(3000))
    data, model = place / "rows.svm", place / "m"
    data.write_text("".join(lines))
    trained = st.LinearClassifier(random_state=0).fit_stream(st.scan(data))
    trained.save(model)

    def train(**options: object) -> None:
        fresh = st.LinearClassifier(random_state=0, epochs=2, n_jobs=2)
        fresh.fit_stream(st.scan(data), **options)

    def checkpoint() -> None:
        train(checkpoint=place / "c", checkpoint_every="1000-rows")

    def cache() -> None:
        for path in place.glob("rows.cache*"):
            path.unlink()
        for _ in st.scan(data).cache(place / "rows.cache"):
            pass

    def convert() -> None:
        with contextlib.redirect_stderr(io.StringIO()) as said, contextlib.redirect_stdout(io.StringIO()):
            status = cli.main(["convert", str(data), str(place / "rows.vw.gz"), "--quiet"])
        if status:
            assert (status in (1, 2), said.getvalue().count("\n")) == (True, 1), said.getvalue()
            raise OSError(said.getvalue())

    def serve() -> None:
        from steepest.serve.loading import load_model
        from steepest.serve.row_log import RowLog

        loaded, path = load_model(str(model)), place / "rows.log"
        path.unlink(missing_ok=True)
        log = RowLog.create(str(path), loaded.identity, 0)
        try:
            log.append(0, [b'{"rows":["a"],"labels":[1]}'])
        finally:
            log.close()
        log, requests, torn = RowLog.open(str(path))
        log.close()
        assert (len(requests), torn) == (1, 0)

    operations = {
        "train": train,
        "save": lambda: trained.save(model),
        "load": lambda: st.load(model),
        "checkpoint": checkpoint,
        "cache": cache,
        "convert": convert,
        **({"serve": serve} if find_spec("orjson") else {}),
    }
    faults = 0
    for name, operation in operations.items():
        operation()
        for kind, code in KINDS.items():
            ends = {"ended well": 0, "sentence": 0}
            for n in range(1, most + 1):
                shim.fault_arm(code, n)
                try:
                    operation()
                    end = "ended well"
                except FEW as error:
                    end = "sentence" if not kind.startswith("short") else f"not finished: {error}"
                except BaseException as error:
                    end = f"{type(error).__name__}: {error}"
                happened = shim.fault_disarm()
                if end not in ends:
                    faults += 1
                    print(f"FAULT {name}, {kind} {n}: {end}", flush=True)
                else:
                    ends[end] += 1
                if end == "ended well" and not happened:
                    break
                st.load(model)
                if left := list(place.rglob("*.part")):
                    faults += 1
                    print(f"FAULT {name}, {kind} {n}: left {left}", flush=True)
            print(f"{name}, {kind}: {n} calls, {ends}", flush=True)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2])))
