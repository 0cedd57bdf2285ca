"""XOR by two hidden units: each cuts the plane once, and the output takes the strip between the cuts."""

from __future__ import annotations

from typing import Any

import numpy as np

import steepest as st
from examples.figure import new_figure, save

X = np.array([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
Y = np.array([0, 1, 1, 0])


def fit(seed: int = 0) -> st.NetworkClassifier:
    options: dict[str, Any] = dict(epochs=400, eta0=0.05, restarts=st.Restarts(4, fraction=0), alpha=0.0)
    return st.NetworkClassifier(hidden=(2,), random_state=seed, **options).fit(X, Y)


def main(folder: Any = None) -> None:
    model = fit()
    weights = model.weights_
    print(model.graph_.describe())
    for unit in range(2):
        a, b = weights["x>h1"][:, unit]
        print(f"unit {unit + 1}: tanh({a:+.2f} x1 {b:+.2f} x2 {weights['bias h1'][unit]:+.2f})")
    print(f"accuracy {model.score(X, Y):.2f}, P(1) = {model.predict_proba(X)[:, 1].round(3).tolist()}")
    drawn = new_figure()
    if drawn is None:
        return
    figure, axes = drawn
    grid = np.linspace(-0.5, 1.5, 101)
    points = np.array([[a, b] for b in grid for a in grid])
    shade = model.predict_proba(points)[:, 1].reshape(101, 101)
    axes.contourf(grid, grid, shade, levels=10, cmap="RdBu", alpha=0.6)
    axes.scatter(*X.T, c=Y, cmap="RdBu", edgecolor="black", s=80)
    axes.set(xlabel="x1", ylabel="x2", title="P(1) of a network with two hidden units")
    axes.set(xticks=[-0.5, 0, 0.5, 1, 1.5], yticks=[-0.5, 0, 0.5, 1, 1.5])
    save(figure, "xor.svg", folder)


if __name__ == "__main__":
    main()
