"""Subgradients and the support vector machine: the hinge has a corner, and a falling step passes over it.

The step 1 / (alpha t) needs no derivative at the corner; the objective comes near that of the exact dual solver. A
constant step stays at a distance from it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import steepest as st
from examples.figure import new_figure, save

EPOCHS = (1, 2, 5, 10, 20, 50)
ALPHA = 1e-2


def main(folder: Any = None) -> dict[str, list[float]]:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((500, 5)).astype(np.float32)
    y = np.where(X @ rng.standard_normal(5) + 0.8 * rng.standard_normal(500) > 0, 1, -1)
    options: dict[str, Any] = dict(alpha=ALPHA, fit_intercept=False, dtype="float64", random_state=0)
    least = st.LinearClassifier("hinge", solver="dual_cd", tol=1e-8, max_iter=5000, **options).fit(X, y).objective(X, y)
    found: dict[str, list[float]] = {}
    for name, schedule in (("1 / (alpha t)", "optimal"), ("constant", "constant")):
        sgd: dict[str, Any] = dict(solver="sgd", average=False, schedule=schedule)
        if schedule == "constant":
            sgd["eta0"] = 0.1
        models = [st.LinearClassifier("hinge", epochs=epochs, **sgd, **options).fit(X, y) for epochs in EPOCHS]
        found[name] = [model.objective(X, y) - least for model in models]
        print(f"{name:<16}gap after {EPOCHS[0]} epoch {found[name][0]:.1e}, after {EPOCHS[-1]} {found[name][-1]:.1e}")
    drawn = new_figure()
    if drawn is not None:
        figure, axes = drawn
        for name, gaps in found.items():
            axes.loglog(EPOCHS, gaps, marker="o", label=name)
        axes.set(xlabel="epochs", ylabel="objective above the minimum", title="Subgradient steps on the hinge loss")
        axes.set_xticks(EPOCHS, [str(epochs) for epochs in EPOCHS])
        axes.legend()
        save(figure, "subgradients.svg", folder)
    return found


if __name__ == "__main__":
    main()
