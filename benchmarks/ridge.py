"""Ridge regression on wide sparse rows beside scikit-learn's Ridge: seconds and memory to a relative gap.

    python -m benchmarks.ridge [--rows 100000] [--features 100000 1000000] [--per-row 30]

Rows with features drawn by popularity 1 / (j + 10), Gaussian values, unit length; targets from planted weights plus
noise. All minimise 1/2 mean (w.x - y)^2 + alpha/2 |w|^2 with alpha = 1 / rows and without a bias, on one thread. Each
runner has a process of its own, runs with falling tolerances, and the first run that is near enough counts, the least
of three. `added` is what the first fit added to the resident memory at its peak, in MB; the rows are not in it.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import math
import os
import subprocess
import sys
import time

for name in ("OMP", "OPENBLAS", "MKL"):
    os.environ.setdefault(f"{name}_NUM_THREADS", "1")

import numpy as np  # noqa: E402
import scipy.sparse as sp  # noqa: E402

GAPS = (1e-3, 1e-6)
TOLERANCES = tuple(10.0**-k for k in range(1, 9))
MOST_SECONDS = 12.0  # of one runner
RUNNERS = ("steepest cg", "steepest auto", "sparse_cg", "sparse_cg float32", "lsqr", "sag")


def generate(n: int, d: int, per_row: int) -> tuple[sp.csr_matrix, np.ndarray]:
    rng = np.random.default_rng(0)
    edges = np.cumsum(1.0 / (np.arange(d) + 10.0))
    columns = np.searchsorted(edges, rng.random((n, per_row)) * edges[-1]).clip(max=d - 1)
    values = rng.standard_normal((n, per_row))
    rows = np.repeat(np.arange(n), per_row)
    X = sp.csr_matrix((values.ravel(), (rows, columns.ravel())), shape=(n, d))
    X = sp.csr_matrix(sp.diags(1 / np.sqrt(np.asarray(X.multiply(X).sum(axis=1)).ravel())) @ X).astype(np.float32)
    X.sort_indices()
    return X, X @ rng.standard_normal(d) + 0.3 * rng.standard_normal(n)


def status(field: str) -> float:
    with open("/proc/self/status") as file:
        return int(file.read().split(f"{field}:")[1].split()[0]) / 1024


def fit(runner: str, X: sp.csr_matrix, y: np.ndarray, tol: float) -> np.ndarray:
    alpha = 1.0 / len(y)
    if runner.startswith("steepest"):
        import steepest as st

        solver = runner.split()[1]
        model = st.LinearRegressor(solver=solver, alpha=alpha, fit_intercept=False, tol=tol, dtype="float64")
    else:
        from sklearn.linear_model import Ridge

        model = Ridge(1.0, solver=runner.split()[0], tol=tol, fit_intercept=False, max_iter=1000, random_state=0)
    return np.asarray(model.fit(X, y).coef_).ravel()


def child(runner: str, n: int, d: int, per_row: int) -> None:
    """(seconds, objective) at each tolerance, and the memory of the first fit, as JSON."""
    X, y = generate(n, d, per_row)
    exact = X.astype(np.float64)
    fed = X if runner.startswith("steepest") or "float32" in runner else exact
    targets = y.astype(np.float32) if "float32" in runner else y
    fit(runner, fed[:1000], targets[:1000], 0.1)  # imports
    ctypes.CDLL(None).malloc_trim(0)  # what was freed before must not hide what a fit takes
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")  # forgets the peak
    before = status("VmRSS")
    points, added, started = [], math.nan, time.perf_counter()
    tolerances = [t for t in TOLERANCES if runner != "steepest auto" or t < 1e-4]
    for tol in tolerances:
        start = time.perf_counter()
        w = fit(runner, fed, targets, tol).astype(np.float64)
        seconds = time.perf_counter() - start
        added = status("VmHWM") - before if math.isnan(added) else added
        value = 0.5 * float(np.mean((exact @ w - y) ** 2)) + 0.5 / n * float(w @ w)
        if seconds < 2:
            for _ in range(2):
                start = time.perf_counter()
                fit(runner, fed, targets, tol)
                seconds = min(seconds, time.perf_counter() - start)
        points.append((seconds, value))
        if time.perf_counter() - started > MOST_SECONDS:
            break
    print(json.dumps({"points": points, "added": added}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--features", type=int, nargs="+", default=[100_000, 1_000_000])
    parser.add_argument("--per-row", type=int, default=30)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        child(arguments.child, arguments.rows, arguments.features[0], arguments.per_row)
        return
    for d in arguments.features:
        sizes = ["--rows", str(arguments.rows), "--features", str(d), "--per-row", str(arguments.per_row)]
        command = [sys.executable, "-W", "ignore", "-m", "benchmarks.ridge", *sizes, "--child"]
        found = {
            runner: json.loads(subprocess.run([*command, runner], capture_output=True, text=True, check=True).stdout)
            for runner in RUNNERS
        }
        show(arguments.rows, d, found)


def show(n: int, d: int, found: dict[str, dict]) -> None:
    least = min(value for run in found.values() for _, value in run["points"])
    seconds = {
        (runner, gap): min((s for s, v in run["points"] if v <= least * (1 + gap)), default=math.inf)
        for runner, run in found.items()
        for gap in GAPS
    }
    print(f"{n:,} x {d:,}, minimum {least:.9g}")
    for runner, run in found.items():
        cells = ""
        for gap in GAPS:
            peer = min(s for (name, g), s in seconds.items() if g == gap and not name.startswith("steepest"))
            own = seconds[runner, gap]
            reached = f"{own:7.3f} s ({own / peer:5.2f} of the best peer)" if own < math.inf else "never"
            cells += f"   to {gap:g}: {reached}"
        print(f"{runner:18}{cells}   added {run['added']:.0f} MB", flush=True)


if __name__ == "__main__":
    main()
