"""Draws img/losses.svg, img/norms.svg and img/penalties.svg from the very functions that the package uses.

Run it from anywhere, with matplotlib installed: python docs/plots.py
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np

import steepest as st
from steepest.learners.penalties import Penalty

IMAGES = Path(__file__).parent / "img"
# The same bytes whenever nothing has changed: no date, no random names; letters stay letters.
mpl.rcParams.update({"svg.hashsalt": "steepest", "svg.fonttype": "none", "font.size": 9, "legend.frameon": False})
LINES = ("-", "--", "-.", ":", (0, (5, 1)), (0, (1, 1)))


def save(figure: Any, name: str) -> None:
    """Writes the figure without its date."""
    figure.savefig(IMAGES / name, metadata={"Date": None, "Creator": None}, bbox_inches="tight")


def draw_penalties() -> None:
    """The weights (w_1, w_2) at which each penalty is 1."""
    figure, axes = plt.subplots(figsize=(4.2, 4.2))
    shown = {
        "l2": Penalty("l2"),
        "l1": Penalty("l1"),
        "elasticnet, l1_ratio 0.15": Penalty("elasticnet"),
        "elasticnet, l1_ratio 0.5": Penalty("elasticnet", l1_ratio=0.5),
    }
    for (name, penalty), style in zip(shown.items(), LINES, strict=False):
        points = penalty.contour(1.0, 120)
        points = np.concatenate([points, points[:1]])
        axes.plot(points[:, 0], points[:, 1], linestyle=style, label=name)
    axes.axhline(0, color="grey", linewidth=0.5)
    axes.axvline(0, color="grey", linewidth=0.5)
    axes.set(aspect="equal", xlim=(-1.8, 1.8), ylim=(-1.8, 1.8), xlabel="w₁", ylabel="w₂", title="R(w) = 1")
    axes.legend(fontsize=8, loc="center left", bbox_to_anchor=(1, 0.5))
    save(figure, "penalties.svg")


if __name__ == "__main__":
    IMAGES.mkdir(exist_ok=True)
    save(st.plot.losses(), "losses.svg")
    save(st.plot.norms(), "norms.svg")
    draw_penalties()
