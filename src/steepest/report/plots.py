"""Pictures of losses and norms, drawn from the functions that the solvers use; `steepest.plot`.

Each function returns a matplotlib figure, which a notebook shows by itself and `figure.savefig` writes. matplotlib is
imported when a picture is drawn, never before, and comes with the extra `plots`.

Examples
--------
>>> import steepest as st
>>> st.plot.norms([1, 2]).axes[0].get_title()
'‖w‖ = 1'
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from steepest.errors import ParameterError
from steepest.learners.losses import LOSSES, Loss
from steepest.learners.losses import losses as all_losses
from steepest.learners.penalties import norm_contour

__all__ = ["losses", "norms"]

LINES: tuple[Any, ...] = ("-", "--", "-.", ":", (0, (5, 1)), (0, (1, 1)), (0, (3, 1, 1, 1)), (0, (7, 2)))
POINTS = 145  # of a curve: 24 per unit of score, so that the corners at whole numbers are among them
TARGETS = {"binary": 1.0, "real": 0.0, "count": 2.0}
SHOWN_PARAMETERS = {"epsilon": 0.5, "quantile": 0.8}
OF_CLASSES = ("zero_one", *(name for name, loss in LOSSES.items() if loss.kind == "binary"), "squared")
OF_NUMBERS = tuple(name for name, loss in LOSSES.items() if loss.kind != "binary")


def losses(names: Sequence[str] | None = None, *, scaled: bool = False) -> Any:
    """Losses of one row over its score: those of classes at y = +1 on the left, those of numbers at y = 0 on the right.

    Parameters
    ----------
    names : sequence of str, optional
        Draws these in one panel, as losses of a class; None draws all of them.
    scaled : bool
        Multiplies each loss of classes by the number that makes it an upper bound of the 0/1 loss: 1 / log 2 for
        "log", 2 for "squared". The perceptron's loss bounds nothing and is left out.

    Returns
    -------
    matplotlib.figure.Figure

    Examples
    --------
    >>> import steepest as st
    >>> figure = st.plot.losses(["zero_one", "hinge", "log", "squared"], scaled=True)
    >>> [line.get_label() for line in figure.axes[0].get_lines()]
    ['zero_one', 'hinge', 'log', 'squared']
    """
    panels = [OF_CLASSES, OF_NUMBERS] if names is None else [tuple(names)]
    figure = _figure(len(panels))
    for place, (axes, shown) in enumerate(zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True)):
        of_classes = place == 0
        found = [all_losses[name] for name in shown]
        if scaled and of_classes:
            found = [loss for loss in found if loss.bounds_zero_one is not None]
        for number, loss in enumerate(found):
            score, value = _curve(loss, 1.0 if of_classes else TARGETS[loss.kind])
            factor = (loss.bounds_zero_one or 1.0) if scaled and of_classes else 1.0
            axes.plot(score, factor * value, linestyle=LINES[number % len(LINES)], label=_label(loss))
        axes.set(ylim=(-0.1, 8 if of_classes else 5), xlabel="score", ylabel="loss")
        axes.set_title("classes, y = +1" if of_classes else "numbers, y = 0")
        axes.grid(alpha=0.3)
        axes.legend(fontsize=8, frameon=False, loc="upper right" if of_classes else "upper center")
    return figure


def norms(p: Sequence[float] = (0.5, 1.0, 1.5, 2.0, 4.0, math.inf)) -> Any:
    """The weights (w₁, w₂) with ‖w‖_p = 1, for each p: a star below 1, a diamond, a circle at 2, a square at infinity.

    Below 1 the set inside is not convex, which is why no solver takes such a p; it is drawn to be seen.

    Parameters
    ----------
    p : sequence of float
        Exponents above 0; infinity is the max norm.

    Returns
    -------
    matplotlib.figure.Figure

    Examples
    --------
    >>> import steepest as st
    >>> [line.get_label() for line in st.plot.norms([0.5, 1, 2]).axes[0].get_lines()[:3]]
    ['p = 0.5 (not convex)', 'p = 1', 'p = 2']
    """
    figure = _figure(1)
    axes = figure.subplots()
    for number, exponent in enumerate(p):
        points = norm_contour(exponent, n=400)
        closed = np.concatenate([points, points[:1]])
        name = f"p = {'∞' if math.isinf(exponent) else f'{exponent:g}'}{' (not convex)' if exponent < 1 else ''}"
        axes.plot(closed[:, 0], closed[:, 1], linestyle=LINES[number % len(LINES)], label=name)
    axes.axhline(0, color="grey", linewidth=0.5)
    axes.axvline(0, color="grey", linewidth=0.5)
    axes.set(aspect="equal", xlim=(-1.2, 1.2), ylim=(-1.2, 1.2), xlabel="w₁", ylabel="w₂", title="‖w‖ = 1")
    axes.legend(fontsize=8, frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
    return figure


def _figure(columns: int) -> Any:
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ParameterError(
            "steepest.plot draws by matplotlib, which is not installed; pip install 'steepest[plots]'"
        ) from None
    return Figure(figsize=(4.6 * columns, 3.6), layout="constrained")


def _curve(loss: Loss, target: float) -> tuple[Any, Any]:
    score = np.linspace(*loss.plot_range, POINTS)
    return score, loss.value(score, target, SHOWN_PARAMETERS.get(loss.parameter or "", 0.0))


def _label(loss: Loss) -> str:
    shown = "" if loss.parameter is None else f" ({SHOWN_PARAMETERS[loss.parameter]:g})"
    return loss.name + shown + (f", y = {TARGETS['count']:g}" if loss.kind == "count" else "")
