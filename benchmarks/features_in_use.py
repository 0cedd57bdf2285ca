"""What hashed features cost whose table is as long as the features in use: ratios from interleaved runs.

    python -m benchmarks.features_in_use [--rows 6000] [--rounds 3]

Texts of words drawn by Zipf's law, half of the rarer ones lean to a class. `epochs`: later epochs of the default
classifier with whole tables against tables of the features in use. `lbfgs` and `closed_form`: fits on 2^22 buckets
against 2^17, and against arrays with the same columns numbered from 0. `files`: bytes of the models. Times are the
least of the rounds; on a loaded machine only their ratios say something.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import steepest as st
from steepest import kernels
from steepest.learners.linear import linear

WORDS, PER_TEXT = 60_000, 120


def texts(n: int) -> tuple[list[str], np.ndarray]:
    """Texts and their labels."""
    rng = np.random.default_rng(0)
    shares = 1.0 / np.arange(1, WORDS + 1)
    labels = rng.integers(0, 2, n)
    words = rng.choice(WORDS, (n, PER_TEXT), p=shares / shares.sum())
    leaning = (words > 100) & (rng.random(words.shape) < 0.2)
    words = np.where(leaning, words // 2 * 2 + labels[:, None], words)
    return [" ".join(f"w{word}" for word in row) for row in words.tolist()], labels


def least(rounds: int, runs: dict[str, Callable[[], float]]) -> dict[str, float]:
    """The least seconds of each run, all in turn."""
    found = [{name: run() for name, run in runs.items()} for _ in range(rounds)]
    return {name: min(seconds[name] for seconds in found) for name in runs}


def later_epochs(given: tuple[list[str], np.ndarray], whole: bool) -> float:
    """Seconds per epoch after the first."""
    before = linear.SLOTTED_FEATURES
    linear.SLOTTED_FEATURES = 1 << 31 if whole else before
    try:
        model = st.LinearClassifier(hasher=st.Hasher(ngrams=(1, 2)), random_state=0, epochs=5).fit(*given)
    finally:
        linear.SLOTTED_FEATURES = before
    return float(np.median([record["seconds"] for record in model.history_.records[1:]]))


def seconds_of(model: Any, X: Any, y: Any) -> float:
    """Of one fit."""
    started = time.perf_counter()
    model.fit(X, y)
    return time.perf_counter() - started


def exact(solver: str, given: tuple[list[str], np.ndarray], rounds: int) -> dict[str, float]:
    """Fits by a solver over the whole data; the hashing itself is left out."""
    y = given[1].astype(float) if solver == "closed_form" else given[1]
    kind = st.LinearRegressor if solver == "closed_form" else st.LinearClassifier
    runs = {}
    for name, bits in (("2^22 buckets", 22), ("2^17 buckets", 17)):
        X = st.Hasher(n_bits=bits).fit_transform(given[0])
        runs[name] = lambda X=X: seconds_of(kind(solver=solver, alpha=1e-4), X, y)
    indices, n_columns = kernels.number_columns(X.indices.astype(np.int32))
    own = type(X)((X.data, indices, X.indptr), shape=(X.shape[0], n_columns))
    return least(rounds, runs | {"array": lambda: seconds_of(kind(solver=solver, alpha=1e-4), own, y)})


def bytes_of(model: Any) -> int:
    """Of a model file."""
    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, "model")
        model.save(path)
        return os.path.getsize(path)


def show(title: str, found: dict[str, float]) -> None:
    """Seconds, and ratios to the last."""
    last = list(found.values())[-1]
    print(title + ": " + ", ".join(f"{name} {t:.3f} s (x {t / last:.2f})" for name, t in found.items()))


def main() -> None:
    """All of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=6000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    given = texts(options.rows)
    runs = {"whole tables": lambda: later_epochs(given, True), "features in use": lambda: later_epochs(given, False)}
    show("epochs", least(options.rounds, runs))
    show("lbfgs", exact("lbfgs", given, options.rounds))
    few = given[0][:1000], given[1][:1000]
    show("closed_form, 1,000 rows", exact("closed_form", few, options.rounds))
    for penalty, alpha in (("l2", 1e-4), ("l1", 1e-4)):
        model = st.LinearClassifier(hasher=st.Hasher(), penalty=penalty, alpha=alpha, solver="lbfgs").fit(*given)
        print(f"files, lbfgs {penalty}: {model.n_nonzero_:,} non-zeros, {bytes_of(model):,} bytes")


if __name__ == "__main__":
    main()
