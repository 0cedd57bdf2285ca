"""Truncated gradient: shrinking small weights now and then, and not at every step, is what makes zeros.

Only 10 of 200 features matter. A penalty applied at every step shrinks by less than the noise of that step, so hardly
any weight is zero at the end; saved up for many steps, the same penalty is larger than the noise (Langford, Li and
Zhang, 2009).
"""

from __future__ import annotations

from typing import Any

import numpy as np

import steepest as st
from examples.figure import new_figure, save

EVERY = (1, 10, 100, 1000)
ALPHA = 0.04


def main(folder: Any = None) -> list[tuple[int, float]]:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((3000, 200)).astype(np.float32)
    w = np.zeros(200)
    w[:10] = rng.choice([-1.0, 1.0], 10)
    y = np.where(X @ w + rng.standard_normal(3000) > 0, 1, -1)
    options: dict[str, Any] = dict(penalty="l1", alpha=ALPHA, schedule="constant", eta0=0.005, average=False, epochs=5)
    found = []
    for every in EVERY:
        model = st.LinearClassifier("log", solver=st.Truncated(every=every), random_state=0, **options)
        model.fit(X[:2000], y[:2000])
        found.append((int(np.count_nonzero(model.coef_)), model.score(X[2000:], y[2000:])))
        print(f"every {every:>4} rows: {found[-1][0]:>4} of 200 weights are not zero, {found[-1][1]:.3f} right")
    drawn = new_figure()
    if drawn is not None:
        figure, axes = drawn
        axes.semilogx(EVERY, [count for count, _ in found], "o-")
        for every, (count, right) in zip(EVERY, found, strict=True):
            axes.annotate(f"{right:.1%} right", (every, count), (5, 5), textcoords="offset points", fontsize=7)
        axes.axhline(10, color="grey", linewidth=0.8, linestyle=":")
        axes.set(xlim=(0.7, 9000), ylim=(0, 220), xlabel="rows between truncations", ylabel="weights that are not zero")
        axes.set_title("Truncated gradient; 10 of 200 features matter")
        axes.set_xticks(EVERY, [f"{every:,}" for every in EVERY])
        save(figure, "truncation.svg", folder)
    return found


if __name__ == "__main__":
    main()
