"""RBF bumps in one dimension: a curve as a sum of bells, and what the width of the bells does to it."""

from __future__ import annotations

from typing import Any

import numpy as np

import steepest as st
from examples.figure import new_figure, save


def noisy_wave(n: int, seed: int, noise: float = 0.2) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    x = np.sort(rng.uniform(-3, 3, n))[:, None]
    return x, np.sin(2 * x[:, 0]) + noise * rng.standard_normal(n)


def main(folder: Any = None) -> None:
    x, y = noisy_wave(60, 0)
    new, truth = noisy_wave(1000, 1, noise=0.0)
    models = {
        "8 bumps by k-means": st.RBFRegressor(8, random_state=0),
        "every row, gamma by leave-one-out": st.RBFRegressor(init="all", alpha=1e-3),
        "every row, gamma = 1000": st.RBFRegressor(init="all", gamma=1000.0, alpha=1e-8),
    }
    print(f"{'':<36}{'gamma':>8}{'training':>10}{'test':>8}")
    for name, model in models.items():
        model.fit(x, y)
        parts = [float(np.sqrt(np.mean((model.predict(a) - b) ** 2))) for a, b in ((x, y), (new, truth))]
        print(f"{name:<36}{model.gamma_[0]:>8.2f}{parts[0]:>10.3f}{parts[1]:>8.3f}")
    drawn = new_figure(3, sharey=True)
    if drawn is None:
        return
    figure, columns = drawn
    line = np.linspace(-3.2, 3.2, 400)[:, None]
    for axes, (name, model) in zip(columns, models.items(), strict=True):
        axes.plot(x, y, ".", color="gray")
        if len(model.centers_) < 20:
            for centre, gamma, vote in zip(model.centers_, model.gamma_, model.votes_, strict=True):
                axes.plot(line, vote * np.exp(-gamma * (line - centre) ** 2), color="tab:blue", alpha=0.4)
        axes.plot(line, model.predict(line), color="black")
        axes.set(title=name, xlabel="x", ylim=(-2.5, 2.5))
    columns[0].set_ylabel("y")
    save(figure, "bumps.svg", folder)


if __name__ == "__main__":
    main()
