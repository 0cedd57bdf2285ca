"""Where the examples' pictures go; without matplotlib an example still prints its numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from steepest.report.chart import COLOURS

IMAGES = Path(__file__).parents[1] / "docs" / "img"


def new_figure(columns: int = 1, **options: Any) -> tuple[Any, Any] | None:
    """(figure, axes), or None where matplotlib is not installed."""
    try:
        import matplotlib as mpl
    except ImportError:
        print("matplotlib is not installed: no picture")
        return None
    mpl.use("Agg")
    mpl.rcParams.update({"axes.prop_cycle": mpl.cycler(color=COLOURS)})  # distinct for colour-blind readers too
    mpl.rcParams.update({"svg.hashsalt": "steepest", "svg.fonttype": "none", "font.size": 9, "legend.frameon": False})
    import matplotlib.pyplot as plt

    return plt.subplots(1, columns, figsize=(4.2 * columns, 3.2), **options)


def save(figure: Any, name: str, folder: Path | None = None) -> None:
    """Writes the picture without its date, so that the same numbers make the same bytes."""
    path = (folder or IMAGES) / name
    figure.savefig(path, metadata={"Date": None, "Creator": None}, bbox_inches="tight")
    print(f"drawn: {name}")
