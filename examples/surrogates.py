"""Surrogate losses: the number of mistakes has no gradient, so a convex loss above it is minimised instead.

On noisy rows every surrogate finds a line with about as few mistakes as the best line has; squared loss is pulled
away by rows that are right by far.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import steepest as st
from examples.figure import new_figure, save

LOSSES = ("hinge", "squared_hinge", "log", "exponential", "modified_huber", "squared")


def rows(n: int = 600) -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, 2))
    X[: n // 6] += [6, 5]  # right by far, to one side
    y = np.where(X @ [1.0, 1.0] + 0.6 * rng.standard_normal(n) > 0, 1, -1)
    return X.astype(np.float32), y


def main(folder: Any = None) -> dict[str, float]:
    X, y = rows()
    found = {}
    for loss in LOSSES:
        model = st.LinearClassifier(loss, alpha=1e-3, solver="lbfgs" if loss != "hinge" else "dual_cd", max_iter=2000)
        found[loss] = 1 - model.fit(X, y).score(X, y)
        print(f"{loss:<16}{found[loss]:.3f} of the rows are wrong")
    drawn = new_figure(2)
    if drawn is not None:
        figure, (left, right) = drawn
        margin = np.linspace(-2, 2.5, 181)
        for number, name in enumerate(("zero_one", *LOSSES)):
            style = ("-", "--", "-.", ":")[number % 4]
            left.plot(margin, st.losses[name].value(margin, 1.0), style, label=name)
        left.set(ylim=(-0.1, 4), xlabel="margin, y × score", ylabel="loss", title="Bounds of the 0/1 loss")
        left.legend(fontsize=7)
        right.barh(list(found), [100 * value for value in found.values()], color="#0072b2")
        right.set(xlabel="training rows that are wrong, %", title="Errors at the minimum of each loss")
        figure.tight_layout()
        save(figure, "surrogates.svg", folder)
    return found


if __name__ == "__main__":
    main()
