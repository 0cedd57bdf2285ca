"""`make fuzz SECONDS=60`: every target for so long, each with its own seeds; `python -m fuzz SECONDS [TARGET ...]`."""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from fuzz import bindings, readers
from fuzz.mutation import drive


def main() -> int:
    seconds, names = float(sys.argv[1]), sys.argv[2:]
    total, faults = 0, 0
    for target in [*readers.targets(), bindings.TARGET]:
        if names and target.name not in names:
            continue
        with tempfile.TemporaryDirectory() as folder:
            done, findings = drive(target, time.time_ns() % (1 << 40), seconds, Path(folder))
            call = Path(folder) / "call"
            last = call.read_text() if call.exists() else ""
        done *= bindings.CALLS_EACH if target is bindings.TARGET else 1
        total, faults = total + done, faults + len(findings)
        print(f"{target.name}: {done:,} executions, {len(findings)} findings {last if findings else ''}", flush=True)
        for what, data in findings:
            print(f"--- {data!r}\n{what}", flush=True)
    print(f"{total:,} executions, {faults} findings")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
