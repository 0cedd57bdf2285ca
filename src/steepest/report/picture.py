"""Charts into a file, PNG, SVG or PDF by its ending, drawn by matplotlib where that is installed."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from steepest.errors import DataError, ParameterError
from steepest.report.chart import Chart, style

GREY = "#7f7f7f"  # of lines to compare with
ENDINGS = (".png", ".svg", ".pdf")


def check_picture(path: str | os.PathLike[str]) -> None:
    """Refuses, before the work and not after it, what cannot be written: the ending, the directory and matplotlib."""
    if Path(path).suffix.lower() not in ENDINGS:
        raise ParameterError(f"{path} has no extension of a picture format; use one of {', '.join(ENDINGS)}")
    if not Path(path).absolute().parent.is_dir():
        raise DataError(f"the directory {Path(path).absolute().parent} for {path} does not exist; make it first")
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise ParameterError(
            f"the picture {path} needs matplotlib, which is not installed; pip install matplotlib, or ask for HTML"
        ) from None


def save_picture(charts: Sequence[Chart], path: str | os.PathLike[str], *, one_legend: bool = True) -> None:
    """Draws the charts side by side, with one legend for all or one for each."""
    check_picture(path)
    figure = draw(charts, one_legend=one_legend)
    try:
        figure.savefig(path, metadata={"Software": None} if str(path).lower().endswith(".png") else None)
    except OSError as error:
        raise DataError(f"{path} cannot be written ({error.strerror})") from None


def draw(charts: Sequence[Chart], *, one_legend: bool = True) -> Any:
    """A figure of matplotlib's with the charts side by side; whole numbers, as epochs are, get whole ticks."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    figure = Figure(figsize=(4.4 * len(charts), 3.6), dpi=140, layout="constrained")
    names: dict[str, int] = {}
    for chart in charts if one_legend else ():
        for line in chart.lines:
            names.setdefault(line.name, len(names))
    handles: dict[str, Any] = {}
    for chart, axes in zip(charts, figure.subplots(1, len(charts), squeeze=False)[0], strict=True):
        for number, line in enumerate(chart.lines):
            colour, dashes, marker = style(names.get(line.name, number))
            points = chart.points(line)
            dash: Any = (0, dashes) if dashes else "-"
            if line.reference:
                colour, dash, marker = GREY, "--", ""
            (handles[line.name],) = axes.plot(
                [x for x, _ in points],
                [y for _, y in points],
                color=colour,
                linestyle=dash,
                marker=marker if len(points) < 40 else None,
                markersize=4,
                linewidth=1.6,
                label=line.name,
            )
        axes.set(xlabel=chart.x_label, ylabel=chart.y_label)
        axes.set_title(chart.title, fontsize=11)
        axes.set_xscale("log" if chart.log_x else "linear")
        axes.set_yscale("log" if chart.log_y else "linear")
        if not chart.log_x and all(float(x).is_integer() for line in chart.lines for x in line.x):
            axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.grid(alpha=0.3)
        if not one_legend and len(chart.lines) > 1:
            axes.legend(fontsize=8, frameon=False)
    if len(names) > 1:
        columns = min(len(names), 3 * len(charts))
        figure.legend(list(handles.values()), list(handles), loc="outside lower center", ncols=columns, frameon=False)
    return figure
