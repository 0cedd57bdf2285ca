"""Forged model files: the header and the arrays of real models with one or two things changed, and a valid checksum.

Each must be refused by a ModelFileError within a second and 200 MB, or give a model whose predictions are finite or
refused in a sentence. `python tests/forged.py [N [SEED]]` tries N of them (10,000 unless given) and prints what does
not hold.
"""

from __future__ import annotations

import copy
import random
import resource
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.exceptions import NotFittedError

import steepest as st
from promises.estimators import CASES, said
from steepest import model_file

MODELS = (
    "linear/sgd-two", "linear/asgd-four", "linear/ftrl-l1-four", "linear/coin-two", "linear/hashed-four",
    "linear/sgd-l1-two", "linear/lbfgs", "linear/numbers", "ranker/blocks", "network/adam-four", "network/numbers",
    "fm/log-four", "fm/fields-two", "fm/numbers",
    "radial/closed-form-RBFClassifier", "radial/fixed-RBFRegressor", "radial/backprop-RBFRegressor",
    "k-means/minibatch-topics", "k-means/lloyd-blobs", "text/softmax", "text/hs", "text/replicas-softmax",
    "factors/sgd", "factors/als", "factors/float16",
)  # fmt: skip
VALUES: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2, 7, 2**31 - 1, 2**31, 2**53, 2**63, -(2**63), 10**30, 0.0, -0.5, 0.5, 1e-300, 1e300,
    "", "x", "sgd", "hinge", "/etc/passwd", "../../x", "\x00", "float16", [], [1, 2, 3], [None], {}, {"a": 1},
)  # fmt: skip
NUMBERS = (0.0, -1.0, 1.0, 0.5, np.nan, np.inf, -np.inf, 1e308, -1e308, 2.0**31, 2.0**53, 1e-320)
SECONDS, BYTES = 1.0, 200 << 20


def originals(directory: Path) -> dict[str, tuple[dict[str, Any], dict[str, np.ndarray], Any, tuple[Any, ...]]]:
    """By case: header, arrays, rows to predict, rows to learn from."""
    found = {}
    for name in MODELS:
        case = CASES[name]
        data = case.data.head(150)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            case.make(**({"epochs": 1} if case.takes("epochs") else {})).fit(*data.all).save(directory / "m")
        header, arrays = model_file.read(directory / "m")
        found[name] = header, {k: np.array(v) for k, v in arrays.items()}, data.X[:5], data.part(0, 20)
    model, (rows, y) = hashed_table(np.random.default_rng(0))
    model.save(directory / "m")
    header, arrays = model_file.read(directory / "m")
    found["hashed table"] = header, {k: np.array(v) for k, v in arrays.items()}, rows[:5], (rows[:20], y[:20])
    return found


def hashed_table(rng: np.random.Generator) -> tuple[Any, tuple[Any, ...]]:
    """A model over raw columns of every kind, with names, knots, a cross and counts of rows; and its rows."""
    n = 300
    numbers = rng.normal(size=n).round(3)
    columns = {
        "price": numbers,
        "town": rng.choice(["Rome", "Oslo", "Bonn"], n).astype(object),
        "seen": np.array([f"20{i % 20:02}-0{1 + i % 9}-11" for i in range(n)], object),
        "tags": np.array([["a", "b"][: 1 + i % 2] for i in range(n)], object),
        "says": np.array([f"free cash {i % 40} now and {i % 7} then for all of us" for i in range(n)], object),
    }
    rows = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    y = (numbers**2 > 0.5).astype(int)
    hasher = st.Hasher(n_bits=12, names=500, weighting="tfidf", cross=[("town", "price")], knots=True)
    return st.LinearClassifier(hasher=hasher, epochs=1, random_state=0).fit(rows, y), (rows, y)


def places(value: Any, way: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Ways to all values inside a header."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield (*way, key)
        yield from places(item, (*way, key))


def change_header(header: dict[str, Any], rng: random.Random) -> str:
    left_out = ("kind", "history", "recipe")  # what decides that it is a model, and what is only shown
    ways = [way for way in places(header) if way[0] not in left_out]
    columns = [way for way in ways if way[0] == "hasher"]
    way = rng.choice(columns if columns and rng.random() < 0.5 else ways)
    spot: Any = header
    for key in way[:-1]:
        spot = spot[key]
    what = rng.choice(("set", "set", "set", "delete", "twice"))
    if what == "delete":
        del spot[way[-1]]
        return f"no {way}"
    if what == "twice" and isinstance(spot[way[-1]], list):
        spot[way[-1]] = spot[way[-1]] * 2
        return f"{way} twice"
    spot[way[-1]] = value = rng.choice(VALUES)
    return f"{way} = {value!r}"


def change_arrays(arrays: dict[str, np.ndarray], rng: random.Random) -> str:
    name = rng.choice(sorted(arrays))
    array = arrays[name]
    what = rng.choice(("element", "element", "element", "all", "shorter", "longer", "type", "shape", "delete", "swap"))
    flat = array.reshape(-1)
    if what in ("element", "all") and array.size:
        value = rng.choice(NUMBERS)
        spot = slice(None) if what == "all" else rng.randrange(array.size)
        with np.errstate(all="ignore"):
            flat[spot] = np.array(value).astype(array.dtype)
        return f"{name}[{spot}] = {value}"
    if what == "delete":
        del arrays[name]
    elif what == "shorter":
        arrays[name] = array[: rng.randrange(len(array))] if array.ndim and len(array) else array
    elif what == "longer":
        arrays[name] = np.concatenate([array, array]) if array.ndim else array
    elif what == "type":
        with np.errstate(all="ignore"):
            arrays[name] = array.astype(rng.choice(("f4", "f8", "i4", "i8", "u1", "?", "f2")))
    elif what == "shape":
        arrays[name] = flat.reshape(rng.choice(((-1,), (-1, 1), (1, -1), (1, 1, -1))))
    elif what == "swap":
        other = rng.choice(sorted(arrays))
        arrays[name], arrays[other] = arrays[other], arrays[name]
    return f"{name} {what}"


def forge(header: dict[str, Any], arrays: dict[str, np.ndarray], rng: random.Random) -> tuple[Any, Any, str]:
    """A changed copy, and what was changed."""
    header, arrays = copy.deepcopy(header), {name: array.copy() for name, array in arrays.items()}
    said_of = []
    for _ in range(rng.choice((1, 1, 1, 2))):
        said_of.append(change_header(header, rng) if rng.random() < 0.5 else change_arrays(arrays, rng))
    return header, arrays, "; ".join(said_of)


def write(path: Path, header: dict[str, Any], arrays: dict[str, np.ndarray], rng: random.Random) -> str:
    """Writes a file; one in eight says that its sparse arrays are of other sizes. What was changed."""
    if rng.random() > 0.125:
        model_file.write(path, header, arrays)
        return ""
    padded = {**arrays, "padding": np.zeros(4096)} if rng.random() < 0.5 else arrays
    tensors, sparse = model_file._pack(padded)
    for name in sparse:
        size = rng.choice((0, 1, 1 << 10, 1 << 20, 1 << 24, 1 << 27, 1 << 31, 1 << 40))
        sparse[name] = [size] * rng.choice((1, 1, 2))
    head, names = model_file._layout(tensors, model_file._describe(header, sparse, tensors))
    path.write_bytes(head + b"".join(tensors[name].tobytes() for name in names))
    return f"; sparse {sparse}"


def check(path: Path, rows: Any, more: tuple[Any, ...]) -> str:
    """Loads, predicts and learns: "refused" or "used"; raises AssertionError for what must not be."""
    before, started = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    try:
        model = st.load(path)
    except st.ModelFileError as refusal:
        assert "\n" not in str(refusal), refusal  # noqa: PT017
        result = "refused"
    else:
        result = "used"
        for method in (lambda: said(model, rows), lambda: getattr(model, "partial_fit", lambda *_: 0)(*more)):
            try:
                method()
            except (st.DataError, st.ParameterError, NotFittedError):  # a model that had too few rows looks like that
                result = "refused later"
    seconds = time.process_time() - started
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) << 10
    assert seconds < SECONDS, f"{seconds:.1f} s"
    assert grown < BYTES, f"{grown >> 20} MB"
    return result


def run(n: int, directory: Path, seed: int = 0) -> tuple[dict[str, int], list[str]]:
    """Tries n forged files; how each ended, and what does not hold."""
    models, rng = originals(directory), random.Random(seed)
    counts: dict[str, int] = {}
    faults = []
    for number in range(n):
        if number and number % 1000 == 0:
            print(f"{number:,} files: {counts}, {len(faults)} that do not hold", flush=True)
        name = tuple(models)[number % len(models)]
        header, arrays, rows, more = models[name]
        header, arrays, what = forge(header, arrays, rng)
        path = directory / "forged"
        try:
            what += write(path, header, arrays, rng)
        except (st.ModelFileError, model_file._RefusedError):
            continue  # even the writer refuses it
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                result = check(path, rows, more)
            counts[result] = counts.get(result, 0) + 1
        except Exception as error:
            faults.append(f"{name}: {what}: {type(error).__name__}: {str(error)[:150]}")
            print(faults[-1], flush=True)
    return counts, faults


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        numbers = [int(argument) for argument in sys.argv[1:]]
        ended, wrong = run(numbers[0] if numbers else 10_000, Path(folder), *numbers[1:])
    print(f"{sum(ended.values()) + len(wrong):,} forged files: {ended}, {len(wrong)} that do not hold")
    sys.exit(1 if wrong else 0)
