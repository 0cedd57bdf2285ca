"""Matrix factorization beside LIBMF, cornac, implicit and Surprise: one interleaved table, ratios in one run.

    python -m benchmarks.factors [--ratings 1000000 --jobs sgd32 sgd100 rmse als64 top64] [--rounds 3]
    python -m benchmarks.factors --tune [steepest libmf cornac surprise]   errors on a tenth of the training part
    python -m benchmarks.factors --movielens --jobs rmse-movielens         (or --tune) on MovieLens-100k

Data has MovieLens-1M's (or, with --ratings 10000000, 10M's) shape and planted factors: mean + biases + rank-8 product
+ noise, rounded to 1..5, who-rated-what by Zipf's law. Nine tenths train. Peers that are not installed are left out.
Every runner is timed inside this process; the order turns around every round, and medians are shown.
"""

from __future__ import annotations

import argparse
import gzip
import os
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks import DATA

SHAPES = {1_000_000: (6_040, 3_706), 10_000_000: (69_878, 10_677)}
Result = dict[str, float]
Data = tuple[np.ndarray, np.ndarray, np.ndarray]


def planted(n: int, seed: int = 0) -> tuple[Data, Data]:
    """(training, test) triples of codes and ratings."""
    rng = np.random.default_rng(seed)
    n_users, n_items = SHAPES.get(n, (max(n // 40, 20), max(n // 60, 20)))
    by_user, by_item = (np.arange(n_users) + 200.0) ** -0.9, (np.arange(n_items) + 100.0) ** -1.1
    users = rng.choice(n_users, 2 * n, p=by_user / by_user.sum())
    items = rng.choice(n_items, 2 * n, p=by_item / by_item.sum())
    keys = rng.permutation(np.unique(users.astype(np.int64) * n_items + items))[:n]
    users, items = rng.permutation(n_users)[keys // n_items], rng.permutation(n_items)[keys % n_items]
    p, q = rng.standard_normal((n_users, 8)) * 0.4, rng.standard_normal((n_items, 8)) * 0.4
    mean = 3.58 + 0.38 * rng.standard_normal(n_users)[users] + 0.5 * rng.standard_normal(n_items)[items]
    mean += np.einsum("ij,ij->i", p[users], q[items])
    ratings = np.clip(np.rint(mean + 0.78 * rng.standard_normal(len(keys))), 1, 5).astype(np.float32)
    cut = int(0.9 * len(keys))
    triples = users.astype(np.int32), items.astype(np.int32), ratings
    return tuple(part[:cut] for part in triples), tuple(part[cut:] for part in triples)  # type: ignore[return-value]


def movielens(seed: int = 0) -> tuple[Data, Data]:
    """(training, test) of MovieLens-100k, a tenth held out by chance; looked for where STEEPEST_DATA says."""
    with gzip.open(DATA / "movielens-100k" / "u.data.gz") as lines:
        triples = np.loadtxt(lines, np.int32, usecols=(0, 1, 2))
    triples = triples[np.random.default_rng(seed).permutation(len(triples))]
    cut = int(0.9 * len(triples))
    columns = [np.ascontiguousarray(triples[:, side]) for side in (0, 1)] + [triples[:, 2].astype(np.float32)]
    return tuple(part[:cut] for part in columns), tuple(part[cut:] for part in columns)  # type: ignore[return-value]


def rmse(predicted: np.ndarray, ratings: np.ndarray) -> float:
    return float(np.sqrt(np.mean((np.clip(predicted, 1, 5) - ratings) ** 2)))


def products(p: np.ndarray, q: np.ndarray, users: np.ndarray, items: np.ndarray) -> np.ndarray:
    return np.einsum("ij,ij->i", p[users], q[items])


def seconds_of(action: Callable[[], object]) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def per_epoch(fit: Callable[[int], float], few: int, many: int) -> float:
    """Seconds of an epoch, without what is done once: the difference of two runs."""
    return max(fit(many) - fit(few), 1e-9) / (many - few)


def ours(train: Data, test: Data, rank: int, jobs: int, epochs: int | None = None) -> Result:
    import steepest as st

    X, y = np.column_stack(train[:2]), train[2]
    model = st.MatrixFactorization(rank, random_state=0, n_jobs=jobs, epochs=epochs or 6)
    seconds = seconds_of(lambda: model.fit(X, y))
    epoch = statistics.median(model.history_.column("seconds")[1:])
    predicted = model.predict(np.column_stack(test[:2]))
    return {"seconds": seconds, "updates": len(y) / epoch / 1e6, "rmse": rmse(predicted, test[2])}


def libmf(
    train: Data, test: Data, rank: int, jobs: int, epochs: int | None = None, eta: float = 0.1, penalty: float = 0.05
) -> Result:
    from libmf import mf

    data = np.ascontiguousarray(np.column_stack(train).astype(np.float64))
    found: dict[str, object] = {}

    def fit(n: int) -> float:
        model = mf.MF(fun=0, k=rank, nr_threads=jobs, nr_bins=25, nr_iters=n, lambda_p1=0.0,
                      lambda_q1=0.0, lambda_p2=penalty, lambda_q2=penalty, eta=eta, do_nmf=False,
                      quiet=True, copy_data=False)  # fmt: skip
        seconds = seconds_of(lambda: model.fit(data))
        found["model"] = model
        return seconds

    epoch = per_epoch(fit, 2, 6) if epochs is None else 1.0
    seconds = fit(epochs or 6)
    model = found["model"]
    p, q = model.p_factors(), model.q_factors()  # type: ignore[attr-defined]
    known = (test[0] < len(p)) & (test[1] < len(q))
    predicted = np.full(len(test[2]), train[2].mean(), np.float64)
    predicted[known] = np.nan_to_num(products(p, q, test[0][known], test[1][known]), nan=float(train[2].mean()))
    return {"seconds": seconds, "updates": len(train[2]) / epoch / 1e6, "rmse": rmse(predicted, test[2])}


def cornac(
    train: Data, test: Data, rank: int, jobs: int, epochs: int | None = None, eta: float = 0.01, penalty: float = 0.05
) -> Result:
    from collections import OrderedDict

    import cornac as peer

    n_users, n_items = (int(max(a.max(), b.max())) + 1 for a, b in zip(train[:2], test[:2], strict=True))
    names = [OrderedDict((k, k) for k in range(n)) for n in (n_users, n_items)]
    triples = train[0].astype(np.int64), train[1].astype(np.int64), train[2]
    data = peer.data.Dataset(n_users, n_items, *names, triples, seed=0)
    found: dict[str, object] = {}

    def fit(n: int) -> float:
        model = peer.models.MF(k=rank, max_iter=n, learning_rate=eta, lambda_reg=penalty, use_bias=True, seed=0,
                               num_threads=jobs, early_stop=False, verbose=False)  # fmt: skip
        seconds = seconds_of(lambda: model.fit(data))
        found["model"] = model
        return seconds

    epoch = per_epoch(fit, 2, 6) if epochs is None else 1.0
    seconds = fit(epochs or 6)
    m = found["model"]
    predicted = products(m.u_factors, m.i_factors, *test[:2])  # type: ignore[attr-defined]
    predicted = predicted + m.global_mean + m.u_biases[test[0]] + m.i_biases[test[1]]  # type: ignore[attr-defined]
    return {"seconds": seconds, "updates": len(train[2]) / epoch / 1e6, "rmse": rmse(predicted, test[2])}


def surprise(
    train: Data, test: Data, rank: int, jobs: int, epochs: int | None = None, eta: float = 0.01, penalty: float = 0.06
) -> Result:
    from collections import defaultdict

    from surprise import SVD
    from surprise.trainset import Trainset

    n_users, n_items = (int(max(a.max(), b.max())) + 1 for a, b in zip(train[:2], test[:2], strict=True))
    by_user, by_item = defaultdict(list), defaultdict(list)
    for u, i, r in zip(*(part.tolist() for part in train), strict=True):
        by_user[u].append((i, r))
        by_item[i].append((u, r))
    same = {k: k for k in range(max(n_users, n_items))}
    data = Trainset(by_user, by_item, n_users, n_items, len(train[2]), (1, 5), same, same)
    model = SVD(n_factors=rank, n_epochs=epochs or 2, random_state=0, lr_all=eta, reg_all=penalty)
    seconds = seconds_of(lambda: model.fit(data))
    predicted = products(model.pu, model.qi, *test[:2]) + data.global_mean + model.bu[test[0]] + model.bi[test[1]]
    updates = len(train[2]) * (epochs or 2) / seconds / 1e6
    return {"seconds": seconds, "updates": updates, "rmse": rmse(predicted, test[2])}


def hogwild(train: Data, test: Data, rank: int, jobs: int, epochs: int | None = None) -> Result:
    """The same kernel without a schedule: threads take parts of the shuffled entries, whoever else writes the rows."""
    from concurrent.futures import ThreadPoolExecutor

    from steepest import MatrixFactorization, kernels
    from steepest.data.entries import Entries
    from steepest.learners.factors.factor_settings import resolve_settings
    from steepest.learners.factors.factors import FactorLearner

    users, items, values = train
    learner = FactorLearner(resolve_settings(MatrixFactorization(rank).get_params(), 0))
    sizes = (int(max(a.max(), b.max())) + 1 for a, b in zip(train[:2], test[:2], strict=True))
    learner.prepare(Entries(users, items, values.astype(np.float64), None), *sizes)
    learner.set_shrinkage()
    parts = np.array_split(np.random.default_rng(0).permutation(len(users)), jobs)
    scaled = learner.normalised(values)
    entries = [tuple(np.ascontiguousarray(a[part]) for a in (users, items, scaled)) for part in parts]
    bounds = [np.array([0, len(table)]) for table in (learner.users, learner.items)]

    def learn(part: tuple[np.ndarray, ...]) -> int:
        blocks = kernels.FactorBlocks(*part, None, np.array([0, len(part[0])]), *bounds)
        tables, choices = (learner.users, learner.items), learner.choices(block_steps=True)
        return kernels.factor_learn(blocks, np.zeros(1, np.int32), *tables, choices, np.zeros(1), 1)

    with ThreadPoolExecutor(jobs) as pool:
        seconds = [seconds_of(lambda: list(pool.map(learn, entries))) for _ in range(epochs or 6)]
    predicted = learner.scores(test[0], test[1])
    epoch = statistics.median(seconds[1:])
    return {"seconds": sum(seconds), "updates": len(users) / epoch / 1e6, "rmse": rmse(predicted, test[2])}


def ours_als(train: Data, test: Data, rank: int, jobs: int, epochs: int | None = None) -> Result:
    import steepest as st

    model = st.MatrixFactorization(rank, loss="implicit", random_state=0, n_jobs=jobs, epochs=4)
    model.fit(np.column_stack(train[:2]), np.ones(len(train[2])))
    return {"seconds": statistics.median(model.history_.column("seconds")[1:])}


def implicit_als(train: Data, test: Data, rank: int, jobs: int, epochs: int | None = None) -> Result:
    import implicit
    import scipy.sparse as sp

    matrix = sp.csr_matrix((np.ones(len(train[2]), np.float32), (train[0], train[1])))

    def fit(n: int) -> float:
        model = implicit.als.AlternatingLeastSquares(factors=rank, iterations=n, num_threads=jobs, random_state=0)
        return seconds_of(lambda: model.fit(matrix, show_progress=False))

    return {"seconds": per_epoch(fit, 1, 5)}


def ours_top(train: Data, test: Data, rank: int, jobs: int, epochs: int | None = None) -> Result:
    import steepest as st

    model = st.MatrixFactorization(rank, random_state=0, n_jobs=jobs, epochs=1)
    model.fit(np.column_stack(train[:2]), train[2])
    model.recommend([0], 10)
    users = model.user_ids_
    return {"seconds": seconds_of(lambda: model.recommend(users, 10))}


def implicit_top(train: Data, test: Data, rank: int, jobs: int, epochs: int | None = None) -> Result:
    import implicit
    import scipy.sparse as sp

    matrix = sp.csr_matrix((np.ones(len(train[2]), np.float32), (train[0], train[1])))
    model = implicit.als.AlternatingLeastSquares(factors=rank, iterations=1, num_threads=jobs, random_state=0)
    model.fit(matrix, show_progress=False)
    users = np.arange(matrix.shape[0])
    return {"seconds": seconds_of(lambda: model.recommend(users, matrix, N=10))}


SGD = {"steepest": ours, "libmf": libmf, "cornac": cornac}
Choices = dict[str, float]
# Tried on a tenth of the training part by --tune: settings of the step, of the penalty, and numbers of epochs.
TRIED: dict[str, tuple[tuple[float, ...], tuple[float, ...], tuple[int, ...]]] = {
    "steepest": ((), (), (2, 3, 4, 5, 6, 8, 10, 15, 20)),
    "libmf": ((0.03, 0.1, 0.2), (0.03, 0.05, 0.1), (3, 6, 10, 20)),
    "cornac": ((0.01, 0.02, 0.04), (0.02, 0.05, 0.1), (5, 10, 20, 40)),
    "surprise": ((0.005, 0.01), (0.02, 0.06), (10, 20)),
}
# The peers' bests of those (Surprise: its own defaults), and as many of our epochs as come below the best peer's error.
TUNED: dict[str, dict[str, Any]] = {
    "steepest": {"epochs": 10},
    "libmf": {"epochs": 10, "eta": 0.1, "penalty": 0.05},
    "cornac": {"epochs": 40, "eta": 0.01, "penalty": 0.05},
    "surprise": {"epochs": 20, "eta": 0.005, "penalty": 0.02},
}
ON_MOVIELENS = {**TUNED, "libmf": {"epochs": 20, "eta": 0.1, "penalty": 0.1}}  # the others' bests are the same there
JOBS: dict[str, tuple[dict[str, Callable[..., Result]], int, int, dict[str, dict[str, Any]]]] = {
    "sgd32": (SGD, 32, 1, {}),
    "sgd100": (SGD, 100, 1, {}),
    "sgd32x2": (SGD, 32, 2, {}),
    "sgd100x2": (SGD, 100, 2, {}),
    "hogwild32": ({"steepest": ours, "hogwild": hogwild}, 32, 2, {}),
    "hogwild100": ({"steepest": ours, "hogwild": hogwild}, 100, 2, {}),
    "rmse": ({**SGD, "surprise": surprise}, 32, 1, TUNED),
    "rmse-movielens": ({**SGD, "surprise": surprise}, 32, 1, ON_MOVIELENS),
    "als64": ({"steepest": ours_als, "implicit": implicit_als}, 64, 2, {}),
    "als128": ({"steepest": ours_als, "implicit": implicit_als}, 128, 2, {}),
    "top64": ({"steepest": ours_top, "implicit": implicit_top}, 64, 2, {}),
}


def measure(job: str, data: tuple[Data, Data], rounds: int) -> list[tuple[str, Result]]:
    """The median of each runner's rounds."""
    runners, rank, threads, choices = JOBS[job]
    results: dict[str, list[Result]] = {name: [] for name in runners}
    for turn in range(rounds):
        for name in list(runners)[:: 1 if turn % 2 == 0 else -1]:
            try:
                results[name].append(runners[name](*data, rank, threads, **choices.get(name, {})))
            except ImportError:
                continue
    return [
        (name, {key: statistics.median(r[key] for r in found) for key in found[0]})
        for name, found in results.items()
        if found
    ]


def tune(name: str, train: Data) -> None:
    """Prints each tried setting with its seconds and its error on the last tenth of the training part."""
    runner, (etas, penalties, epochs) = JOBS["rmse"][0][name], TRIED[name]
    cut = int(0.9 * len(train[2]))
    parts = tuple(part[:cut] for part in train), tuple(part[cut:] for part in train)
    pairs: list[Choices] = [{"eta": eta, "penalty": penalty} for eta in etas for penalty in penalties] or [{}]
    for pair in pairs:
        for n in epochs:
            r = runner(*parts, 32, 1, epochs=n, **pair)
            print(f"{name:<10}{n:>4} epochs {pair} {r['seconds']:8.3f} s  {r['rmse']:.4f}", flush=True)


def show(job: str, rows: list[tuple[str, Result]]) -> str:
    """One table; ratios above one mean that we are better."""
    rated = job.startswith(("sgd", "hogwild"))
    lines = [f"{job:<15}{'seconds':>10}{'Mupd/s':>10}{'rmse':>9}{'ratio':>8}"]
    first = rows[0][1]
    for name, r in rows:
        ratio = first["updates"] / r["updates"] if rated else r["seconds"] / first["seconds"]
        updates = f"{r['updates']:.1f}" if rated else "-"
        error = f"{r['rmse']:.4f}" if "rmse" in r else "-"
        lines.append(f"{name:<15}{r['seconds']:>10.3f}{updates:>10}{error:>9}{ratio:>8.2f}")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--ratings", type=int, default=1_000_000)
    parser.add_argument("--movielens", action="store_true", help="MovieLens-100k instead of generated ratings")
    parser.add_argument("--jobs", nargs="*", default=[j for j in JOBS if j != "rmse-movielens"], choices=list(JOBS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tune", nargs="*", choices=list(TRIED), help="try settings instead")
    options = parser.parse_args()
    if os.environ.get("OPENBLAS_NUM_THREADS") != "1":  # read when NumPy is loaded, so start again with it
        os.environ.update({f"{name}_NUM_THREADS": "1" for name in ("OMP", "OPENBLAS", "MKL")})
        os.execv(sys.executable, [sys.executable, "-m", "benchmarks.factors", *sys.argv[1:]])
    data = movielens() if options.movielens else planted(options.ratings)
    if options.tune is not None:
        for name in options.tune or TRIED:
            tune(name, data[0])
        return
    for job in options.jobs:
        print(show(job, measure(job, data, options.rounds)), flush=True)


if __name__ == "__main__":
    main()
