"""What factor models are worth, beside implicit and scikit-learn: ranked lists, KL, and row solvers of large ranks.

    python -m benchmarks.factor_quality ml-1m gowalla       NDCG@10 and Recall@20 of implicit ALS, 64 factors, test part
    python -m benchmarks.factor_quality tune ml-1m ours     the settings for it, tried on a tenth of the training part
    python -m benchmarks.factor_quality kl                  generalised KL of 20 newsgroups' TF-IDF, seconds
    python -m benchmarks.factor_quality ranks               conjugate gradients against Cholesky, implicit ALS

Both sides' lists are ranked by the same code, with what was seen in training left out. The data is looked for where
STEEPEST_DATA says.
"""

from __future__ import annotations

import gzip
import json
import os
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp

from benchmarks import DATA

FOLDERS = {"ml-1m": "ml-1m-implicit", "gowalla": "gowalla"}
RANK, ITERATIONS, THREADS = 64, 15, 2
# Per set: (confidence, penalty) tried, coordinate by coordinate, from the middle on; the bests stand in TUNED.
TRIED = {
    "ours": ((0.25, 0.5, 1.0, 2.0, 4.0), (0.001, 0.002, 0.003, 0.006, 0.01)),  # confidence in units of the default one
    "implicit": ((1.0, 2.0, 5.0, 20.0, 80.0, 160.0), (0.01, 1.0, 10.0, 40.0, 150.0)),
}
TUNED: dict[tuple[str, str], tuple[float, float]] = {
    ("ml-1m", "ours"): (1.0, 0.002),
    ("gowalla", "ours"): (1.0, 0.002),
    ("ml-1m", "implicit"): (2.0, 40.0),
    ("gowalla", "implicit"): (80.0, 1.0),
}
Factors = tuple[np.ndarray, np.ndarray]


def load_lists(name: str) -> tuple[sp.csr_matrix, sp.csr_matrix]:
    """(training, test) as matrices of ones."""
    parts = []
    for part in ("train", "test"):
        lines = gzip.decompress((DATA / FOLDERS[name] / f"{part}.txt.gz").read_bytes()).splitlines()
        numbers = [np.array(line.split(), np.int64) for line in lines]
        users = np.concatenate([np.full(len(row) - 1, row[0]) for row in numbers])
        parts.append((users, np.concatenate([row[1:] for row in numbers])))
    shape = tuple(max(int(part[side].max()) for part in parts) + 1 for side in (0, 1))
    return tuple(sp.csr_matrix((np.ones(len(u), np.float32), (u, i)), shape=shape) for u, i in parts)  # type: ignore


def without_a_tenth(known: sp.csr_matrix) -> tuple[sp.csr_matrix, sp.csr_matrix]:
    """A tenth of the entries, by chance, as what is to be found."""
    entries, held = known.tocoo(), np.random.default_rng(0).random(known.nnz) < 0.1
    kept, out = (
        sp.csr_matrix((entries.data[m], (entries.row[m], entries.col[m])), shape=known.shape) for m in (~held, held)
    )
    return kept, out


def ours(known: sp.csr_matrix, confidence: float, alpha: float) -> Factors:
    import steepest as st
    from steepest.learners.factors.factor_settings import KNOWN_SHARE

    entries = known.tocoo()
    usual = KNOWN_SHARE * len(np.unique(entries.row)) * len(np.unique(entries.col)) / known.nnz
    model = st.MatrixFactorization(RANK, loss="implicit", confidence=confidence * usual, alpha=alpha, epochs=ITERATIONS,
                                   n_jobs=THREADS, random_state=0)  # fmt: skip
    model.fit(np.column_stack([entries.row, entries.col]), entries.data)
    users, items = (np.zeros((n, RANK), np.float32) for n in known.shape)
    users[model.user_ids_], items[model.item_ids_] = model.user_factors_, model.item_factors_
    return users, items


def implicit(known: sp.csr_matrix, confidence: float, penalty: float) -> Factors:
    from implicit.als import AlternatingLeastSquares

    model = AlternatingLeastSquares(factors=RANK, iterations=ITERATIONS, regularization=penalty, alpha=confidence,
                                    num_threads=THREADS, random_state=0)  # fmt: skip
    model.fit(known, show_progress=False)
    return model.user_factors, model.item_factors


SIDES: dict[str, Callable[..., Factors]] = {"ours": ours, "implicit": implicit}


def measure(factors: Factors, known: sp.csr_matrix, wanted: sp.csr_matrix) -> tuple[float, float]:
    """(NDCG@10, Recall@20), means over users who have something to be found."""
    from steepest.models.recommend import best_rows

    users = np.flatnonzero(np.diff(wanted.indptr))
    seen, truth = known[users], wanted[users].tocsr()
    p, q = (np.ascontiguousarray(table, np.float32) for table in factors)
    excluded = seen.indptr.astype(np.int64), seen.indices.astype(np.int32)
    best, _ = best_rows(np.ascontiguousarray(p[users]), q, np.zeros(len(q), np.float32), 20, excluded, THREADS)
    sizes = np.diff(truth.indptr)
    keys = np.repeat(np.arange(len(users)), sizes) * np.int64(len(q)) + truth.indices
    hits = np.isin(np.arange(len(users))[:, None] * np.int64(len(q)) + best, keys)
    worth = 1 / np.log2(np.arange(10) + 2)
    ideal = np.cumsum(worth)[np.minimum(sizes, 10) - 1]
    return float(((hits[:, :10] @ worth) / ideal).mean()), float((hits.sum(1) / sizes).mean())


def tune(name: str, side: str) -> None:
    """Coordinate descent on the grid by NDCG@10, twice around."""
    known, wanted = without_a_tenth(load_lists(name)[0])
    grids, tried = TRIED[side], {}
    at = [len(grid) // 2 for grid in grids]

    def worth(place: list[int]) -> float:
        setting = grids[0][place[0]], grids[1][place[1]]
        if setting not in tried:
            ndcg, recall = measure(SIDES[side](known, *setting), known, wanted)
            print(f"{name} {side} {setting} NDCG@10 {ndcg:.4f} Recall@20 {recall:.4f}", flush=True)
            tried[setting] = ndcg
        return tried[setting]

    for _ in range(2):
        for axis in (1, 0):
            values = [worth([*at[:axis], place, *at[axis + 1 :]]) for place in range(len(grids[axis]))]
            at[axis] = int(np.argmax(values))
    print("best", (grids[0][at[0]], grids[1][at[1]]))


def lists(name: str) -> None:
    known, wanted = load_lists(name)
    for label, side in (("steepest", "ours"), ("implicit", "implicit")):
        setting = TUNED[name, side]
        start = time.perf_counter()
        factors = SIDES[side](known, *setting)
        seconds = time.perf_counter() - start
        ndcg, recall = measure(factors, known, wanted)
        print(
            f"{name:<8} {label:<20}{setting!s:<16} {seconds:6.2f} s  NDCG@10 {ndcg:.4f}  Recall@20 {recall:.4f}",
            flush=True,
        )


def news() -> sp.csr_matrix:
    from sklearn.feature_extraction.text import TfidfVectorizer

    packed = (DATA / "20newsgroups" / "20news-bydate-train.jsonl.gz").read_bytes()
    texts = [json.loads(line)["text"] for line in gzip.decompress(packed).splitlines()]
    return sp.csr_matrix(TfidfVectorizer(min_df=3, stop_words="english", dtype=np.float32).fit_transform(texts))


def divergence(V: sp.csr_matrix, W: np.ndarray, H: np.ndarray) -> float:
    """Σ v log(v / s) - v + s over all cells, in double precision."""
    entries, W, H = V.tocoo(), W.astype(np.float64), H.astype(np.float64)
    s = np.concatenate([
        np.einsum("ij,ij->i", W[entries.row[a : a + 100_000]], H[entries.col[a : a + 100_000]])
        for a in range(0, entries.nnz, 100_000)
    ])  # fmt: skip
    v = entries.data.astype(np.float64)
    return float((v * np.log(v / np.maximum(s, 1e-30)) - v).sum() + W.sum(0) @ H.sum(0))


def kl(rank: int = 20) -> None:
    from sklearn.decomposition import NMF

    import steepest as st

    V = news()
    print(f"{V.shape[0]:,} x {V.shape[1]:,}, {V.nnz:,} entries, {rank} factors")
    for n in (50, 100):
        start = time.perf_counter()
        model = NMF(rank, beta_loss="kullback-leibler", solver="mu", init="nndsvda", max_iter=n, tol=0, random_state=0)
        W = model.fit_transform(V)
        seconds = time.perf_counter() - start
        print(
            f"scikit-learn {n:>4} iterations {seconds:7.2f} s  {divergence(V, W, model.components_.T):.1f}", flush=True
        )
    for n in (20, 50, 100):
        start = time.perf_counter()
        model = st.MatrixFactorization(rank, loss="kl", epochs=n, random_state=0).fit(V)
        seconds = time.perf_counter() - start
        W, H = np.zeros((V.shape[0], rank)), np.zeros((V.shape[1], rank))
        W[model.user_ids_], H[model.item_ids_] = model.user_factors_, model.item_factors_
        losses = np.array(model.history_.column("loss"))
        rises = int((np.diff(losses) > 0).sum())
        print(f"steepest     {n:>4} iterations {seconds:7.2f} s  {divergence(V, W, H):.1f}  rises: {rises}", flush=True)


def ranks() -> None:
    """Seconds and objective by iteration on ml-1m-implicit; Cholesky is what small ranks use."""
    import steepest as st
    from steepest.learners.factors import als

    entries = load_lists("ml-1m")[0].tocoo()
    X, usual = np.column_stack([entries.row, entries.col]), (als.EXACT, als.CG_STEPS)
    for rank in (64, 128, 256):
        for label, exact, steps in (
            ("Cholesky", 10**9, 3),
            ("CG, 2 steps", 0, 2),
            ("CG, 3 steps", 0, 3),
            ("CG, 5 steps", 0, 5),
        ):
            als.EXACT, als.CG_STEPS = exact, steps
            model = st.MatrixFactorization(rank, loss="implicit", epochs=8, n_jobs=THREADS, random_state=0)
            model.fit(X, entries.data)
            seconds = float(np.median(model.history_.column("seconds")))
            objectives = model.history_.column("objective")
            shown = " ".join(f"{objectives[n - 1]:.6f}" for n in (2, 4, 8))
            print(f"{rank:>4} {label:<12}{seconds:8.3f} s an iteration, objective after 2, 4, 8: {shown}", flush=True)
    als.EXACT, als.CG_STEPS = usual


def main(arguments: list[str]) -> None:
    if os.environ.get("OPENBLAS_NUM_THREADS") != "1":  # read when NumPy is loaded, so start again with it
        os.environ.update({f"{name}_NUM_THREADS": "1" for name in ("OPENBLAS", "MKL")})
        os.execv(sys.executable, [sys.executable, "-m", "benchmarks.factor_quality", *arguments])
    warnings.simplefilter("ignore")
    if arguments and arguments[0] == "tune":
        tune(arguments[1], arguments[2])
        return
    jobs: dict[str, Callable[[], Any]] = {"kl": kl, "ranks": ranks, **{n: lambda n=n: lists(n) for n in FOLDERS}}
    for name in arguments or jobs:
        jobs[name]()


if __name__ == "__main__":
    main(sys.argv[1:])
