"""Zero against random first weights: from zero all units of a layer stay alike, and random starts differ.

Test error over the epochs on two moons, and of the start that `restarts=10` keeps, chosen on held-out rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import steepest as st
from examples.figure import new_figure, save

EPOCHS = 40


def moons(n: int, seed: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    angle, y = rng.uniform(0, np.pi, n), np.arange(n) % 2
    X = np.column_stack([np.cos(angle) + y, np.where(y == 1, 0.4 - np.sin(angle), np.sin(angle))])
    return X + 0.15 * rng.standard_normal((n, 2)), y


def curve(init: str, seed: int) -> list[float]:
    """Test error after every epoch."""
    X, y = moons(300, 0)
    new, truth = moons(2000, 1)
    model, errors = st.NetworkClassifier(st.Layers((6,), init=init), eta0=0.02, batch_size=16, random_state=seed), []
    for _ in range(EPOCHS):
        model.partial_fit(X, y)
        errors.append(1 - model.score(new, truth))
    return errors


def main(folder: Any = None) -> None:
    zero, random = curve("zero", 0), [curve("glorot", seed) for seed in range(10)]
    X, y = moons(300, 0)
    new, truth = moons(2000, 1)
    options: dict[str, Any] = dict(eta0=0.02, batch_size=16, epochs=EPOCHS, schedule="constant")
    kept = st.NetworkClassifier((6,), restarts=10, random_state=0, **options).fit(X, y)
    last = sorted(errors[-1] for errors in random)
    print(f"test error after {EPOCHS} epochs: zero {zero[-1]:.3f}, random {last[0]:.3f} to {last[-1]:.3f}")
    print(f"restarts=10 keeps one with {1 - kept.score(new, truth):.3f}: {kept.history_.events[-1]}")
    drawn = new_figure()
    if drawn is None:
        return
    figure, axes = drawn
    for errors in random:
        axes.plot(range(1, EPOCHS + 1), errors, color="tab:blue", alpha=0.5)
    axes.plot([], [], color="tab:blue", label="ten random starts")
    axes.plot(range(1, EPOCHS + 1), zero, color="black", label="zero")
    axes.set(xlabel="epoch", ylabel="test error", title="First weights")
    axes.legend()
    save(figure, "initialisation.svg", folder)


if __name__ == "__main__":
    main()
