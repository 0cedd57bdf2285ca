"""Back-propagation: the chain rule from the loss back to every weight, checked against differences of the loss.

One hidden layer, h = tanh(x V), score = h w: the gradient by w is g h, by V it is x (g w (1 - h^2))'. Differences
(f(v + e) - f(v - e)) / 2e agree to rounding; their error is least where e is neither too large nor too small.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from examples.figure import new_figure, save
from steepest import losses

STEPS = 10.0 ** np.arange(-12, 0)


def loss_of(V: Any, w: Any, X: Any, y: Any) -> float:
    return float(np.mean(losses["log"].value(np.tanh(X @ V) @ w, y)))


def gradient(V: Any, w: Any, X: Any, y: Any) -> tuple[Any, Any]:
    """By V and by w."""
    h = np.tanh(X @ V)
    g = losses["log"].gradient(h @ w, y) / len(y)  # of the mean loss by each score
    return X.T @ (np.outer(g, w) * (1 - h**2)), h.T @ g


def main(folder: Any = None) -> list[float]:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((50, 4))
    y = np.where(X[:, 0] * X[:, 1] > 0, 1.0, -1.0)
    V, w = rng.standard_normal((4, 3)), rng.standard_normal(3)
    by_V, _ = gradient(V, w, X, y)
    found = []
    for step in STEPS:
        differences = np.zeros_like(V)
        for place in np.ndindex(*V.shape):
            up, down = V.copy(), V.copy()
            up[place] += step
            down[place] -= step
            differences[place] = (loss_of(up, w, X, y) - loss_of(down, w, X, y)) / (2 * step)
        found.append(float(np.abs(differences - by_V).max()))
    print(f"largest difference {min(found):.1e}, at a step of {STEPS[int(np.argmin(found))]:.0e}")
    drawn = new_figure()
    if drawn is not None:
        figure, axes = drawn
        axes.loglog(STEPS, found, "o-")
        axes.set(xlabel="step e of the differences", ylabel="largest error", title="Back-propagation checked")
        save(figure, "backprop.svg", folder)
    return found


if __name__ == "__main__":
    main()
