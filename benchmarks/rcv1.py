"""The table of the lectures on RCV1: a standard SVM, a fast SVM and SGD, by seconds, objective and test error.

    python -m benchmarks.rcv1 [--data DIR] [--rows N] [--standard-rows N] [--json]

All minimise mean hinge loss + 1e-4/2 |w|^2 with a free bias: LIBSVM stands for the standard solver, `dual_cd` for the
fast one, and `sgd` is plain SGD for a few epochs. The gap is measured from the optimum that `dual_cd` certifies at
1e-9. The standard solver needs hours for all rows, so it gets `--standard-rows` of them (0: all), and its objective is
still that over all rows. The second table is the lecture's other figure: SGD on all rows beside conjugate gradients on
samples of growing size, by seconds and mean test loss (log loss, the same alpha).

DIR holds RCV1 in one of these forms, found by their names, packed or not:
  lyrl2004_vectors_test_pt0.dat ... pt3.dat (781,265 rows to learn from), lyrl2004_vectors_train.dat (23,149 to test on)
      and rcv1-v2.topics.qrels (labels: CCAT against all others), as David Lewis published them
  one file with "train" and one with "test" in its name, as libsvm or Vowpal Wabbit lines with labels of two kinds
Without DIR rows of that shape are generated (see generate.py): 5 % of their labels are wrong, so that neither objective
nor error can be the lecture's.
"""

from __future__ import annotations

import argparse
import gzip
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

import steepest as st
from benchmarks import TEST_ROWS
from benchmarks.generate import ROWS, load_rcv1
from steepest.data.chunk import concatenate

ALPHA = 1e-4
TOPIC = "CCAT"
EPOCHS = 5
STANDARD_ROWS = 4000
LECTURE = {"standard SVM": (23_642.0, 0.2275, 0.0602), "fast SVM": (66.0, 0.2278, 0.0603), "SGD": (1.4, 0.2275, 0.0602)}
SAMPLES = (1000, 3000, 10_000, 30_000, 100_000, 300_000)
CG_STEPS = 50
FORMS = (".dat", ".svm", ".libsvm", ".txt", ".vw", ".binary")


class Rows(NamedTuple):
    """Rows to learn from and to test on, labels -1 and 1, and where they are from."""

    X: sp.csr_matrix
    y: np.ndarray
    test_rows: sp.csr_matrix
    test_y: np.ndarray
    origin: str


class Result(NamedTuple):
    """One solver's run."""

    name: str
    rows: int
    seconds: float
    objective: float
    gap: float
    test_error: float


# ---------------------------------------------------------------------------------------- the data


def load(directory: Path | None, n_rows: int) -> Rows:
    """The files of a directory, or generated rows; at most `n_rows` of them to learn from (0: all)."""
    if directory is None:
        n_rows = n_rows or ROWS
        parts = load_rcv1(n_rows), load_rcv1(TEST_ROWS, "test")
        return Rows(*parts[0], *parts[1], f"{n_rows:,} generated rows of RCV1's shape")
    if not directory.is_dir():
        raise SystemExit(f"{directory} is not a directory; name the one with the files of RCV1, or leave --data out")
    found = _lyrl(directory) or _pair(directory)
    X, y = found[0]
    if n_rows and n_rows < X.shape[0]:
        chosen = np.sort(np.random.default_rng(0).choice(X.shape[0], n_rows, replace=False))
        X, y = X[chosen], y[chosen]
    return Rows(X, y, *found[1], f"{X.shape[0]:,} rows of {directory.name}")


def _lyrl(directory: Path) -> tuple[tuple[sp.csr_matrix, np.ndarray], tuple[sp.csr_matrix, np.ndarray]] | None:
    """The files of Lewis et al.: what they call test is learned from, as in the lecture."""
    learn, test = (
        sorted(directory.glob("lyrl2004_vectors_test_pt*.dat*")),
        [*directory.glob("lyrl2004_vectors_train.dat*")],
    )
    labels = [*directory.glob("rcv1-v2.topics.qrels*")]
    if not (learn and test and labels):
        return None
    positive = topic_rows(labels[0])
    parts = [_read([str(path) for path in paths]) for paths in (learn, test[:1])]
    width = max(X.shape[1] for X, _ in parts)
    learned, tested = ((_widened(X, width), np.where(np.isin(ids, positive), 1, -1)) for X, ids in parts)
    return learned, tested


def topic_rows(path: Path) -> np.ndarray:
    """Numbers of the documents that have the topic, from lines "topic document 1"."""
    with (gzip.open if path.suffix == ".gz" else open)(path, "rt", encoding="ascii") as file:
        return np.array([int(words[1]) for line in file if (words := line.split())[0] == TOPIC])


def _pair(directory: Path) -> tuple[tuple[sp.csr_matrix, np.ndarray], tuple[sp.csr_matrix, np.ndarray]]:
    files = [path for path in sorted(directory.iterdir()) if any(form in path.name for form in FORMS)]
    found = {part: [path for path in files if part in path.name] for part in ("train", "test")}
    if any(len(paths) != 1 for paths in found.values()):
        raise SystemExit(f"{directory} holds neither the lyrl2004 files nor one train and one test file; see --help")
    parts = [_read([str(paths[0])]) for paths in found.values()]
    width, positive = max(X.shape[1] for X, _ in parts), np.unique(parts[0][1])[-1]
    learned, tested = ((_widened(X, width), np.where(y == positive, 1, -1)) for X, y in parts)
    return learned, tested


def _read(paths: Sequence[str]) -> tuple[sp.csr_matrix, np.ndarray]:
    source = st.scan(list(paths), **({} if ".vw" in paths[0] else {"format": "libsvm"}))
    block = concatenate(list(source))
    shape = block.n_rows, max(block.n_features, int(block.indices.max(initial=0)) + 1)
    return sp.csr_matrix((block.values, block.indices, block.indptr), shape=shape), np.asarray(block.y)


def _widened(X: sp.csr_matrix, width: int) -> sp.csr_matrix:
    return sp.csr_matrix((X.data, X.indices, X.indptr), shape=(X.shape[0], width))


# ---------------------------------------------------------------------------------------- the first table


def objective(rows: Rows, w: np.ndarray, bias: float) -> float:
    """Mean hinge loss over all rows and the penalty, in float64."""
    margins = rows.y * (rows.X.astype(np.float64) @ w + bias)
    return float(np.maximum(0, 1 - margins).mean() + 0.5 * ALPHA * w @ w)


def table(rows: Rows, standard_rows: int) -> list[Result]:
    """The three solvers of the lecture."""
    n = rows.X.shape[0]
    exact = st.LinearClassifier("hinge", solver="dual_cd", alpha=ALPHA, tol=1e-9, dtype="float64", max_iter=1000)
    exact.fit(rows.X, rows.y)
    optimum = objective(rows, exact.coef_[0].astype(np.float64), float(exact.intercept_[0]))
    sample = np.arange(n) if not standard_rows or standard_rows >= n else np.random.default_rng(0).choice(
        n, standard_rows, replace=False
    )  # fmt: skip
    runs: list[tuple[str, Any, np.ndarray]] = [
        ("standard SVM", _svc(len(sample)), sample),
        (
            "fast SVM",
            st.LinearClassifier("hinge", solver="dual_cd", alpha=ALPHA, tol=1e-3, random_state=0),
            np.arange(n),
        ),
        ("SGD", st.LinearClassifier("hinge", solver="sgd", alpha=ALPHA, epochs=EPOCHS, random_state=0), np.arange(n)),
    ]
    found = []
    for name, model, chosen in runs:
        X, y = (rows.X, rows.y) if len(chosen) == n else (rows.X[chosen], rows.y[chosen])
        started = time.perf_counter()
        model.fit(X, y)
        seconds = time.perf_counter() - started
        w = model.coef_.toarray()[0] if sp.issparse(model.coef_) else np.asarray(model.coef_[0])
        value = objective(rows, w.astype(np.float64), float(model.intercept_[0]))
        error = float((np.asarray(model.predict(rows.test_rows)) != rows.test_y).mean())
        found.append(Result(name, len(chosen), seconds, value, (value - optimum) / optimum, error))
    return found


def _svc(n_rows: int) -> Any:
    from sklearn.svm import SVC

    return SVC(kernel="linear", C=1.0 / (ALPHA * n_rows), tol=1e-3, cache_size=500)


# ---------------------------------------------------------------------------------------- the second table


def curves(rows: Rows) -> list[dict[str, Any]]:
    """Seconds and mean test loss of SGD on all rows, epoch by epoch, and of CG on samples of growing size."""
    n, found = rows.X.shape[0], []
    for epochs in (1, 2, 4, 8):
        model = st.LinearClassifier("log", solver="sgd", alpha=ALPHA, epochs=epochs, random_state=0)
        found.append({"solver": "sgd", "rows": n, "effort": epochs, **_timed(model, rows.X, rows.y, rows)})
    order = np.random.default_rng(1).permutation(n)
    for size in (*(size for size in SAMPLES if size < n), n):
        chosen = np.sort(order[:size])
        model = st.LinearClassifier("log", solver="cg", alpha=ALPHA, max_iter=CG_STEPS, tol=1e-6)
        found.append({"solver": "cg", "rows": size, **_timed(model, rows.X[chosen], rows.y[chosen], rows)})
    return found


def _timed(model: Any, X: sp.csr_matrix, y: np.ndarray, rows: Rows) -> dict[str, Any]:
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", st.NotConverged)
        started = time.perf_counter()
        model.fit(X, y)
        seconds = time.perf_counter() - started
    margins = rows.test_y * np.asarray(model.decision_function(rows.test_rows), np.float64)
    measured = {"test_loss": float(np.logaddexp(0, -margins).mean()), "test_error": float((margins <= 0).mean())}
    return {"effort": int(model.n_iter_), "seconds": seconds, **measured}


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, metavar="DIR", help="where the files of RCV1 are")
    parser.add_argument("--rows", type=int, default=0, help="to learn from; default: all")
    parser.add_argument("--standard-rows", type=int, default=STANDARD_ROWS, help="for the standard solver; 0: all")
    parser.add_argument("--json", action="store_true", help="one JSON object")
    options = parser.parse_args(arguments)
    rows = load(options.data, options.rows)
    first, second = table(rows, options.standard_rows), curves(rows)
    if options.json:
        print(json.dumps({"data": rows.origin, "table": [r._asdict() for r in first], "curves": second}))
        return
    print(f"{rows.origin}, {rows.test_rows.shape[0]:,} to test on, alpha {ALPHA:g}\n")
    print(
        f"{'hinge loss':<14}{'rows':>10}{'seconds':>10}{'objective':>11}{'gap':>10}{'error':>8}   lecture: s, f, error"
    )
    for r in first:
        s, f, e = LECTURE[r.name]
        print(
            f"{r.name:<14}{r.rows:>10,}{r.seconds:>10.2f}{r.objective:>11.4f}{r.gap:>10.1e}{r.test_error:>8.2%}"
            f"   {s:>10,.1f}{f:>8.4f}{e:>7.2%}"
        )
    print(f"\n{'log loss':<14}{'rows':>10}{'effort':>8}{'seconds':>10}{'test loss':>11}{'error':>8}")
    for c in second:
        print(
            f"{c['solver']:<14}{c['rows']:>10,}{c['effort']:>8}{c['seconds']:>10.2f}{c['test_loss']:>11.4f}"
            f"{c['test_error']:>8.2%}"
        )


if __name__ == "__main__":
    main()
