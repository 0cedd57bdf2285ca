"""Gradient descent and its step: below 2 / L it converges, above it diverges, and 1 / L is a good choice.

L is the largest eigenvalue of the Hessian; for the loss (score - y)^2 / 2 it is that of X'X / n.
The rate of convergence is 1 - mu / L with mu the smallest one.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

import steepest as st
from examples.figure import new_figure, save

SHARES = (0.1, 1.0, 1.9, 2.05)  # of 1 / L
ITERATIONS = 40


def main(folder: Any = None) -> dict[float, list[float]]:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((200, 3)) * [1.0, 0.7, 0.4]
    y = X @ [1.0, -2.0, 3.0] + 0.1 * rng.standard_normal(200)
    largest = np.linalg.eigvalsh(X.T @ X / len(y))[-1] * st.losses["squared"].curvature
    options: dict[str, Any] = dict(alpha=0.0, penalty="none", fit_intercept=False, dtype="float64")
    least = st.LinearRegressor(solver="closed_form", **options).fit(X, y).objective(X, y)
    found = {}
    for share in SHARES:
        gaps = []
        for iterations in range(1, ITERATIONS + 1, 3):
            step: dict[str, Any] = dict(schedule="constant", eta0=share / largest, average=False, max_iter=iterations)
            model = st.LinearRegressor(solver="gd", tol=1e-14, **step, **options)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # that it has not converged is what is shown
                gaps.append(model.fit(X, y).objective(X, y) - least)
        found[share] = gaps
        print(f"step {share:.2f} / L: gap {gaps[0]:.2e} after 1 iteration, {gaps[-1]:.2e} after {ITERATIONS}")
    drawn = new_figure()
    if drawn is not None:
        figure, axes = drawn
        for share, gaps in found.items():
            axes.semilogy(
                range(1, ITERATIONS + 1, 3), np.maximum(gaps, 1e-16), marker="o", ms=3, label=f"{share:g} / L"
            )
        axes.set(xlabel="iteration", ylabel="objective above the minimum", title="Gradient descent with four steps")
        axes.legend()
        save(figure, "descent.svg", folder)
    return found


if __name__ == "__main__":
    main()
