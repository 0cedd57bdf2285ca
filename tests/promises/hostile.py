"""Hostile rows: every estimator and solver of the table of promises in units, sizes and shapes nobody would choose.

Whatever comes in, a fit either refuses it in one sentence or gives a model of which every number is finite: shown, said
of rows, and saved. `python tests/promises/hostile.py [CASE ...]` runs the whole table (about 6,000
pairs) and prints what does not hold; `test_hostile.py` runs a sample of it.
"""

from __future__ import annotations

import argparse
import itertools
import random
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

import steepest as st
from promises.estimators import CASES, Case, Data, said, shown, times
from steepest import model_file

SCALES = (1e-300, 1e-45, 1e-40, 1e-30, 1e-18, 1e-12, 1e12, 1e18, 1e20, 1e30, 1e38, 1e45, 1e300)
ROWS = 120


def _values(factor: float) -> Callable[[Data], Data | None]:
    def change(data: Data) -> Data | None:
        if data.kind != "rows":
            return None
        with np.errstate(over="ignore"):
            return replace(data, X=_wide(data.X, factor))

    return change


def _wide(X: Any, factor: float) -> Any:
    """In float64, so that what is beyond float32 reaches the package as it is."""
    return X.astype(np.float64).multiply(factor).tocsr() if sp.issparse(X) else X.astype(np.float64) * factor


def _targets(factor: float) -> Callable[[Data], Data | None]:
    def change(data: Data) -> Data | None:
        numbers = data.y is not None and data.kind != "texts" and np.asarray(data.y).dtype.kind == "f"
        return replace(data, y=data.y * factor) if numbers else None

    return change


def _weights(factor: float) -> Callable[[Data], Data | None]:
    def change(data: Data) -> Data | None:
        if data.kind != "rows" or data.groups is not None:
            return None
        return replace(data, weight=np.full(data.n_rows, factor))

    return change


def _uneven(data: Data) -> Data | None:
    """One row that weighs as much as all others together, and some that weigh nothing."""
    if data.kind != "rows" or data.groups is not None:
        return None
    weight = np.ones(data.n_rows)
    weight[::3], weight[5] = 0.0, 1e12
    return replace(data, weight=weight)


def _one_long_row(data: Data) -> Data | None:
    if data.kind != "rows":
        return None
    factors = np.ones(data.n_rows)
    factors[7] = 1e25
    return replace(data, X=times(data.X, factors[:, None]))


def _mixed_columns(data: Data) -> Data | None:
    if data.kind != "rows":
        return None
    return replace(data, X=times(data.X, 10.0 ** np.random.default_rng(0).uniform(-30, 30, data.X.shape[1])))


def _constant(data: Data) -> Data | None:
    return replace(data, X=times(data.X, 0.0)) if data.kind == "rows" else None


def _duplicates(data: Data) -> Data | None:
    if data.groups is not None:
        return None
    rows = np.zeros(data.n_rows, np.int64)
    rows[1::2] = 1
    if data.kind == "texts":
        return replace(data, X=[data.X[row] for row in rows], y=[data.y[row] for row in rows])
    names = [name for name in ("X", "y", "weight") if getattr(data, name) is not None]
    return replace(data, **{name: getattr(data, name)[rows] for name in names})


def _one_row(data: Data) -> Data | None:
    return data.head(1)


def _empty_rows(data: Data) -> Data | None:
    if data.kind == "pairs":
        return None
    if data.kind == "texts":
        return replace(data, X=["" for _ in data.X])
    keep = (np.arange(data.n_rows) % 2).astype(np.float64)
    X = times(data.X, keep[:, None])
    if sp.issparse(X):
        X.eliminate_zeros()
    return replace(data, X=X)


def _one_class(data: Data) -> Data | None:
    if data.y is None or data.kind == "pairs":
        return None
    return replace(data, y=[data.y[0]] * data.n_rows if data.kind == "texts" else np.full_like(data.y, data.y[0]))


def _not_numbers(value: float) -> Callable[[Data], Data | None]:
    def change(data: Data) -> Data | None:
        if data.kind != "rows":
            return None
        X = data.X.astype(np.float64).copy()
        (X.data if sp.issparse(X) else X.reshape(-1))[3] = value
        return replace(data, X=X)

    return change


ROW_CHANGES: dict[str, Callable[[Data], Data | None]] = {
    **{f"values x {scale:g}": _values(scale) for scale in SCALES},
    **{f"targets x {scale:g}": _targets(scale) for scale in SCALES},
    **{f"weights {scale:g}": _weights(scale) for scale in (0.0, 1e-300, 1e-40, 1e12, 1e38, 1e100, 1e300)},
    "uneven weights": _uneven,
    "one long row": _one_long_row,
    "columns of mixed sizes": _mixed_columns,
    "all values zero": _constant,
    "two rows only, repeated": _duplicates,
    "one row": _one_row,
    "empty rows": _empty_rows,
    "one class": _one_class,
    "a value is infinite": _not_numbers(np.inf),
    "a value is not a number": _not_numbers(np.nan),
}
PARAMETER_CHANGES: dict[str, dict[str, Any]] = {
    **{f"alpha={alpha:g}": {"alpha": alpha} for alpha in (1e-300, 1e-40, 1e12, 1e38, 1e300)},
    **{f"eta0={eta0:g}": {"eta0": eta0} for eta0 in (1e-300, 1e-30, 1e6, 1e20, 1e38, 1e300)},
}


def table() -> Iterator[tuple[str, str]]:
    """All pairs of a case and a change that apply to each other."""
    for name, case in CASES.items():
        for change in ROW_CHANGES:
            if ROW_CHANGES[change](case.data.head(8)) is not None:
                yield name, change
        for change, params in PARAMETER_CHANGES.items():
            if all(case.takes(parameter) for parameter in params):
                yield name, change


def spread(pairs: list[tuple[str, str]], each: int) -> list[tuple[str, str]]:
    """At most so many cases of every change, other ones for each."""
    by_change: dict[str, list[tuple[str, str]]] = {}
    for pair in pairs:
        by_change.setdefault(pair[1], []).append(pair)
    rng = random.Random(0)
    return [pair for found in by_change.values() for pair in rng.sample(found, min(each, len(found)))]


def check(name: str, change: str, directory: Path) -> str:
    """Fits one case on hostile rows: "" for a finite model, or the sentence that refused it; raises AssertionError."""
    case, options = CASES[name], PARAMETER_CHANGES.get(change, {})
    few = case.data.head(ROWS)
    data = ROW_CHANGES[change](few) if change in ROW_CHANGES else few
    assert data is not None
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)  # what NumPy would print is neither a result nor a sentence
        warnings.simplefilter("ignore", UserWarning)
        try:
            model = _fit(case, data, options)
        except (st.DataError, st.ParameterError) as refusal:
            return str(refusal)
        _assert_finite(model, few, directory)
    return ""


def _fit(case: Case, data: Data, options: dict[str, Any]) -> Any:
    short = {name: 2 for name in ("epochs", "max_iter") if case.takes(name)}
    model = case.make(**short, **options)
    if data.weight is None:
        return model.fit(*data.all)
    parts = [column for column in (data.X, data.y) if column is not None]
    return model.fit(*parts, sample_weight=data.weight)


def _assert_finite(model: Any, probe: Data, directory: Path) -> None:
    for name, array in {**shown(model), **said(model, probe.X[:20])}.items():
        assert array.dtype.kind not in "fc" or np.isfinite(array).all(), f"{name} is not finite"
    path = directory / "hostile.steepest"
    model.save(path)
    _, arrays = model_file.read(path)
    for name, array in arrays.items():
        assert array.dtype.kind != "f" or np.isfinite(array).all(), f"{name} in the file is not finite"
    st.load(path)


def main() -> int:
    """The whole table, or the cases named; exit status 1 if something does not hold."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("cases", nargs="*")
    parser.add_argument("--every", type=int, default=1, help="only every n-th pair")
    options = parser.parse_args()
    started, counts, faults = time.perf_counter(), {"finite": 0, "refused": 0}, []
    pairs = [pair for pair in table() if not options.cases or pair[0] in options.cases]
    with tempfile.TemporaryDirectory() as directory:
        for number, (name, change) in enumerate(itertools.islice(pairs, 0, None, options.every)):
            if number and number % 500 == 0:
                print(f"{number:,} cases: {counts}, {len(faults)} that do not hold", flush=True)
            try:
                refused = check(name, change, Path(directory))
                counts["refused" if refused else "finite"] += 1
            except Exception as error:
                faults.append((name, change))
                print(f"{name} | {change} | {type(error).__name__}: {str(error)[:150]}", flush=True)
    tried = sum(counts.values()) + len(faults)
    print(f"{tried:,} cases: {counts['finite']:,} finite, {counts['refused']:,} refused in a sentence, ", end="")
    print(f"{len(faults)} that do not hold; {time.perf_counter() - started:.0f} s")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
