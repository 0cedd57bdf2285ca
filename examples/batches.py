"""Batch sizes: gradients of a batch are taken at the same weights and added, which calms the path until it overshoots.

All runs read the same rows for one epoch with the same step per row. A batch of some rows averages their noise; a batch
of very many makes a move that is too long for weights that nobody looked at in between.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import steepest as st
from examples.figure import new_figure, save

SIZES = (1, 4, 16, 64, 256, 1024)


def main(folder: Any = None) -> list[float]:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((8000, 20)).astype(np.float32)
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    y = np.where(X @ rng.standard_normal(20) + 0.3 * rng.standard_normal(8000) > 0, 1, -1)
    options: dict[str, Any] = dict(alpha=1e-4, random_state=0)
    least = st.LinearClassifier("log", solver="newton_cg", tol=1e-10, **options).fit(X, y).objective(X, y)
    found = []
    for size in SIZES:
        descent: dict[str, Any] = dict(solver="sgd", average=False, schedule="invsqrt", eta0=2.0, epochs=1)
        model = st.LinearClassifier("log", batch_size=size, **descent, **options).fit(X, y)
        found.append(model.objective(X, y) - least)
        print(f"batches of {size:>5}: {found[-1]:.4f} above the minimum")
    drawn = new_figure()
    if drawn is not None:
        figure, axes = drawn
        axes.loglog(SIZES, found, "o-")
        axes.set(xlabel="rows per batch", ylabel="objective above the minimum", title="One epoch over 8,000 rows")
        axes.set_xticks(SIZES, [str(size) for size in SIZES])
        axes.minorticks_off()
        save(figure, "batches.svg", folder)
    return found


if __name__ == "__main__":
    main()
