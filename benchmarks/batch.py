"""Batch solvers beside LIBLINEAR and scikit-learn's Ridge: seconds until the objective is close to its minimum.

    python -m benchmarks.batch [--rows 50000] [--alpha 2e-5] [--jobs log squared_hinge ridge]

All minimise the same F(w) = mean loss + alpha/2 |w|^2 without a bias on the RCV1-shaped rows. Ours run once with a
tight tolerance, and the history tells when each gap was reached, preparation included. The others run again and again
with tighter tolerances, and the first run that reaches the gap counts; their conversion of the data is left out. Every
runner uses one thread but those named x2. The ratio is seconds over those of the best peer: below one, ours is faster.
"""

from __future__ import annotations

import argparse
import math
import os
import time
from collections.abc import Callable
from typing import NamedTuple

for name in ("OMP", "OPENBLAS", "MKL"):
    os.environ.setdefault(f"{name}_NUM_THREADS", "1")

import numpy as np  # noqa: E402

from benchmarks.generate import load_rcv1  # noqa: E402

GAPS = (1e-3, 1e-6)
MOST_SECONDS = 12.0  # of one runner


class Run(NamedTuple):
    """(seconds, objective) as they fell."""

    name: str
    ours: bool
    points: list[tuple[float, float]]

    def seconds(self, best: float, gap: float) -> float:
        reached = [seconds for seconds, value in self.points if value <= best * (1 + gap)]
        return min(reached, default=math.inf)


def our_run(job: str, solver: str, X, y, alpha: float, n_jobs: int) -> Run:
    import steepest as st

    options = {"solver": solver, "alpha": alpha, "fit_intercept": False, "tol": 1e-8, "n_jobs": n_jobs}
    model = st.LinearRegressor("squared", **options) if job == "ridge" else st.LinearClassifier(job, **options)
    start = time.perf_counter()
    model.fit(X, y)
    total = time.perf_counter() - start
    spent = np.cumsum(model.history_.column("seconds"))
    before = total - spent[-1]
    points = [(before + s, value) for s, value in zip(spent, model.history_.column("objective"), strict=True)]
    return Run(solver if n_jobs == 1 else f"{solver} x{n_jobs}", True, points)


def repeated(name: str, train: Callable[[float], np.ndarray], value: Callable[[np.ndarray], float]) -> Run:
    """A peer at tighter and tighter tolerances."""
    points = []
    started = time.perf_counter()
    for tolerance in 10.0 ** -np.arange(1, 10):
        start = time.perf_counter()
        w = train(tolerance)
        points.append((time.perf_counter() - start, value(w)))
        if time.perf_counter() - started > MOST_SECONDS:
            break
    return Run(name, False, points)


def liblinear_runs(job: str, X, y, alpha: float, value: Callable[[np.ndarray], float]) -> list[Run]:
    from liblinear.liblinear import parameter, problem
    from liblinear.liblinearutil import train

    data = problem(y.astype(float), X.astype(np.float64))
    kinds = {"log": (0, 7), "squared_hinge": (2, 1), "hinge": (3,)}[job]
    first = 1 if y[0] > 0 else -1  # LIBLINEAR's weights speak for the label of the first row

    def runner(kind: int) -> Run:
        def fit(tolerance: float) -> np.ndarray:
            model = train(data, parameter(f"-s {kind} -c {1 / (len(y) * alpha)} -e {tolerance} -q"))
            return first * np.array(model.get_decfun()[0])

        return repeated(f"LIBLINEAR -s {kind}", fit, value)

    return [runner(kind) for kind in kinds]


def ridge_runs(X, y, alpha: float, value: Callable[[np.ndarray], float]) -> list[Run]:
    from sklearn.linear_model import Ridge

    wide = X.astype(np.float64)

    def runner(solver: str) -> Run:
        def fit(tolerance: float) -> np.ndarray:
            ridge = Ridge(alpha * len(y), fit_intercept=False, solver=solver, tol=tolerance, max_iter=1000)
            return ridge.fit(wide, y.astype(float)).coef_.ravel()

        return repeated(f"Ridge({solver})", fit, value)

    return [runner(solver) for solver in ("sparse_cg", "lsqr", "sag")]


def objective(job: str, X, y, alpha: float) -> Callable[[np.ndarray], float]:
    from steepest.learners.losses import LOSSES

    loss = LOSSES["squared" if job == "ridge" else job]
    return lambda w: float(loss.value(X @ w, y.astype(float)).mean()) + 0.5 * alpha * float(w @ w)


def measure(job: str, X, y, alpha: float) -> list[Run]:
    value = objective(job, X, y, alpha)
    solvers = ("cg", "lbfgs") if job == "ridge" else ("newton_cg", "lbfgs") + (("cg",) if job != "hinge" else ())
    runs = [our_run(job, solver, X, y, alpha, jobs) for solver in solvers for jobs in (1, 2)]
    return runs + (ridge_runs(X, y, alpha, value) if job == "ridge" else liblinear_runs(job, X, y, alpha, value))


def show(job: str, runs: list[Run]) -> None:
    best = min(value for run in runs for _, value in run.points)
    print(f"\n{job}: minimum {best:.10g}")
    print(f"{'':24}" + "".join(f"{f'to {gap:g}':>12} {'ratio':>6}" for gap in GAPS))
    for run in runs:
        cells = ""
        for gap in GAPS:
            peer = min((other.seconds(best, gap) for other in runs if not other.ours), default=math.nan)
            seconds = run.seconds(best, gap)
            cells += f"{seconds:11.3f}s {seconds / peer:6.2f}" if math.isfinite(seconds) else f"{'-':>12} {'-':>6}"
        print(f"{run.name:24}{cells}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=50_000)
    parser.add_argument("--alpha", type=float, default=None, help="1 / rows if not given: C = 1")
    parser.add_argument("--jobs", nargs="+", default=["log", "squared_hinge", "ridge"])
    arguments = parser.parse_args()
    X, y = load_rcv1(arguments.rows)
    alpha = 1.0 / arguments.rows if arguments.alpha is None else arguments.alpha
    print(f"{X.shape[0]:,} x {X.shape[1]:,}, {X.nnz:,} non-zeros, alpha = {alpha:g}")
    for job in arguments.jobs:
        show(job, measure(job, X, y, alpha))


if __name__ == "__main__":
    main()
