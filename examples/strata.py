"""Strata: blocks of a rating matrix that share no row and no column are learned at the same time, with the same bits.

Two threads on such blocks never touch one factor, so that the result does not depend on the number of threads.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import steepest as st
from examples.figure import new_figure, save

BLOCKS = 4


def strata(blocks: int) -> list[list[tuple[int, int]]]:
    """Rounds of blocks (i, i + shift): in each round every row and every column of blocks occurs once."""
    return [[(i, (i + shift) % blocks) for i in range(blocks)] for shift in range(blocks)]


def main(folder: Any = None) -> tuple[bool, float]:
    rng = np.random.default_rng(0)
    P, Q = rng.standard_normal((60, 3)), rng.standard_normal((40, 3))
    pairs = np.array([(u, i) for u in range(60) for i in range(40) if rng.random() < 0.4])
    ratings = np.sum(P[pairs[:, 0]] * Q[pairs[:, 1]], axis=1) + 0.1 * rng.standard_normal(len(pairs))
    models = [
        st.MatrixFactorization(3, alpha=0.01, epochs=20, n_jobs=jobs, random_state=0).fit(pairs, ratings)
        for jobs in (1, 2)
    ]
    first, second = (model.predict(pairs) for model in models)
    same = bool((first == second).all())
    rmse = float(np.sqrt(np.mean((first - ratings) ** 2)))
    print(f"one and two threads give the same bits: {same}; rmse {rmse:.3f}, ratings deviate by {ratings.std():.3f}")
    drawn = new_figure(BLOCKS)
    if drawn is not None:
        figure, panels = drawn
        for number, (axes, stratum) in enumerate(zip(panels, strata(BLOCKS), strict=True)):
            grid = np.zeros((BLOCKS, BLOCKS))
            for thread, (i, j) in enumerate(stratum):
                grid[i, j] = thread + 1
                axes.text(j, i, str(thread + 1), ha="center", va="center")
            axes.imshow(grid > 0, cmap="Blues", vmin=0, vmax=2)
            axes.set(xticks=[], yticks=[], xlabel="items, in blocks", title=f"stratum {number + 1}")
        panels[0].set_ylabel("users, in blocks")
        figure.set_size_inches(8, 2.4)
        figure.tight_layout()
        save(figure, "strata.svg", folder)
    return same, rmse


if __name__ == "__main__":
    main()
