"""Calibration of steps: the step that is tried out on the first rows is near the best of a grid.

`eta0="auto"` tries steps on a sample and takes the one with the least progressive loss (Bottou's advice); no scale of
the data has to be known. The rows are multiplied by 1, 10 and 100 here.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

import steepest as st
from examples.figure import new_figure, save

SCALES = (1.0, 10.0, 100.0)
GRID = 10.0 ** np.arange(-5, 3)


def main(folder: Any = None) -> dict[float, tuple[float, float]]:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((3000, 10)).astype(np.float32)
    y = np.where(X @ rng.standard_normal(10) + rng.standard_normal(3000) > 0, 1, -1)
    options: dict[str, Any] = dict(
        solver="sgd", alpha=1e-6, average=False, schedule="invsqrt", epochs=1, random_state=0
    )
    found, curves, chosen = {}, {}, {}
    for scale in SCALES:
        losses = []
        for eta0 in GRID:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # steps that are too long are among them
                losses.append(
                    st.LinearClassifier("log", eta0=float(eta0), **options).fit(scale * X, y).history_[-1]["loss"]
                )
        auto = st.LinearClassifier("log", **options).fit(scale * X, y).history_[-1]
        curves[scale], chosen[scale] = losses, (auto["eta0"], auto["loss"])
        found[scale] = (auto["loss"], float(np.nanmin(losses)))
        print(f"rows times {scale:<5g} calibrated {found[scale][0]:.4f}, best of the grid {found[scale][1]:.4f}")
    drawn = new_figure()
    if drawn is not None:
        figure, axes = drawn
        for (scale, losses), mark in zip(curves.items(), "osD", strict=True):
            (line,) = axes.semilogx(GRID, losses, "-", label=f"rows times {scale:g}")
            axes.plot(*chosen[scale], mark, color=line.get_color(), ms=9)
        axes.set(ylim=(0.15, 0.8), xlabel="first step, eta0", ylabel="progressive loss of one epoch")
        axes.set_title("Grids (lines) and calibrated steps (marks)")
        axes.legend(loc="center left", bbox_to_anchor=(1, 0.5))
        save(figure, "steps.svg", folder)
    return found


if __name__ == "__main__":
    main()
