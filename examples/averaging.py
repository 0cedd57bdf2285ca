"""Averages weighted by the step: the gap that is measured, beside the bound that is proved.

After T rows drawn from P, the mean of the iterates weighted by their steps has an expected loss above the least one of
at most (R^2 + L^2 sum eta_t^2) / (2 sum eta_t), where R is the distance of the start from the optimum and L the longest
gradient (Zinkevich, 2003; the lectures' theorem on SGD). P is 20,000 rows here, the steps are eta0 / sqrt(t).
"""

from __future__ import annotations

from typing import Any

import numpy as np

import steepest as st
from examples.figure import new_figure, save

LENGTHS = (100, 300, 1000, 3000, 10_000)
SEEDS = 5


def population(n: int = 20_000, d: int = 10) -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, d)).astype(np.float32)
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    return X, np.where(X @ rng.standard_normal(d) + 0.5 * rng.standard_normal(n) > 0, 1, -1)


def bound(distance: float, longest: float, steps: Any) -> float:
    return float((distance**2 + longest**2 * np.sum(steps**2)) / (2 * np.sum(steps)))


def main(folder: Any = None) -> list[tuple[float, float, float]]:
    X, y = population()
    options: dict[str, Any] = dict(alpha=0.0, penalty="none", fit_intercept=False, dtype="float64")
    best = st.LinearClassifier("log", solver="newton_cg", tol=1e-10, **options).fit(X, y)
    least, distance = best.objective(X, y), float(np.linalg.norm(best.coef_))
    longest = float(np.linalg.norm(X, axis=1).max())  # the gradient of the log loss by w is at most |x|
    eta0 = distance / longest
    found = []
    print(f"{'rows':>8}{'average':>10}{'last':>10}{'bound':>10}")
    for length in LENGTHS:
        gaps = {"eta": 0.0, "no": 0.0}
        for seed in range(SEEDS):
            rows = np.random.default_rng(seed).integers(0, len(y), length)
            for average in gaps:
                descent: dict[str, Any] = dict(solver="sgd", schedule="invsqrt", eta0=eta0, epochs=1, shuffle="never")
                model = st.LinearClassifier("log", average=average, **descent, **options).fit(X[rows], y[rows])
                gaps[average] += (model.objective(X, y) - least) / SEEDS
        steps = eta0 / np.sqrt(1.0 + np.arange(length))  # of schedule="invsqrt"
        found.append((gaps["eta"], gaps["no"], bound(distance, longest, steps)))
        print(f"{length:>8}{found[-1][0]:>10.4f}{found[-1][1]:>10.4f}{found[-1][2]:>10.4f}")
    drawn = new_figure()
    if drawn is not None:
        figure, axes = drawn
        for name, values in zip(("average by eta", "last iterate", "bound"), zip(*found, strict=True), strict=True):
            axes.loglog(LENGTHS, values, marker="o", label=name)
        axes.set(xlabel="rows", ylabel="expected loss above the minimum", title="Weighted averages of SGD")
        axes.legend()
        save(figure, "averaging.svg", folder)
    return found


if __name__ == "__main__":
    main()
