"""Pictures of losses, norms, training, paths, races, calibration and collisions; `steepest.plot`.

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
from typing import TYPE_CHECKING, Any

import numpy as np

from steepest.engine.history import History
from steepest.errors import ParameterError
from steepest.features.hasher import Hasher
from steepest.learners.losses import LOSSES, Loss
from steepest.learners.losses import losses as all_losses
from steepest.learners.penalties import norm_contour
from steepest.parameters import choice, shown
from steepest.report.chart import COLOURS, Chart, Line
from steepest.report.picture import draw

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["calibration", "collisions", "history", "losses", "norms", "path", "race"]

LINES: tuple[Any, ...] = ("-", "--", "-.", ":", (0, (5, 1)), (0, (1, 1)), (0, (3, 1, 1, 1)), (0, (7, 2)))
POINTS = 145  # of a curve: 24 per unit of score, so that the corners at whole numbers are among them
TARGETS = {"binary": 1.0, "real": 0.0, "count": 2.0}
SHOWN_PARAMETERS = {"epsilon": 0.5, "quantile": 0.8}
OF_CLASSES = ("zero_one", *(name for name, loss in LOSSES.items() if loss.kind == "binary"), "squared")
OF_NUMBERS = tuple(name for name, loss in LOSSES.items() if loss.kind != "binary")


def losses(names: Sequence[str] | None = None, *, scaled: bool = False) -> Figure:
    """Losses of one row over its score: those of classes at y = +1 on the left, those of numbers at y = 0 on the right.

    Parameters
    ----------
    names : sequence of str, optional
        Draws these in one panel, as losses of a class; None draws all of them.
    scaled : bool
        Multiplies each loss of classes by the number that makes it an upper bound of the 0/1 loss: 1 / log 2 for
        "log", 2 for "squared". The perceptron's loss bounds nothing and is left out.

    Examples
    --------
    >>> import steepest as st
    >>> figure = st.plot.losses(["zero_one", "hinge", "log", "squared"], scaled=True)
    >>> [line.get_label() for line in figure.axes[0].get_lines()]
    ['zero_one', 'hinge', 'log', 'squared']
    """
    given = (names,) if isinstance(names, str) else names
    panels = [OF_CLASSES, OF_NUMBERS] if given is None else [[choice("loss", n, tuple(all_losses)) for n in given]]
    figure = _figure(len(panels))
    for place, (axes, names) in enumerate(zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True)):
        of_classes = place == 0
        axes.set_prop_cycle(color=COLOURS)
        found = [all_losses[name] for name in names]
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


def norms(p: Sequence[float] = (0.5, 1.0, 1.5, 2.0, 4.0, math.inf)) -> Figure:
    """The weights (w₁, w₂) with ‖w‖_p = 1, for each p: a star below 1, a diamond, a circle at 2, a square at infinity.

    Below 1 the set inside is not convex, which is why no solver takes such a p; it is drawn to be seen.

    Parameters
    ----------
    p : sequence of float
        Exponents above 0; infinity is the max norm.

    Examples
    --------
    >>> import steepest as st
    >>> [line.get_label() for line in st.plot.norms([0.5, 1, 2]).axes[0].get_lines()[:3]]
    ['p = 0.5 (not convex)', 'p = 1', 'p = 2']
    """
    figure = _figure(1)
    axes = figure.subplots()
    axes.set_prop_cycle(color=COLOURS)
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


def history(model: Any, names: Sequence[str] = ("loss", "holdout_loss", "objective")) -> Figure:
    """Quantities of the training history over the epochs; of batch solvers over their iterations.

    Parameters
    ----------
    model : fitted estimator or History
        Whose records are drawn.
    names : sequence of str
        Which quantities; those that the history lacks are left out.

    Examples
    --------
    >>> import steepest as st
    >>> model = st.LinearRegressor(epochs=3, random_state=0).fit([[0.0], [1.0], [2.0], [3.0]], [1.0, 3.0, 5.0, 7.0])
    >>> st.plot.history(model).axes[0].get_xlabel()
    'epoch'
    """
    found = getattr(model, "history_", model)
    if not isinstance(found, History):
        raise ParameterError(f"{shown(model)} has no history; give a fitted model, or its history_")
    records = list(found)
    lines = []
    for name in names:
        points = [(n, r[name]) for n, r in enumerate(records, 1) if isinstance(r.get(name), int | float)]
        if points:
            lines.append(Line(name, [n for n, _ in points], [value for _, value in points]))
    if not lines:
        raise ParameterError(f"the history has none of {', '.join(names)}; its records have {', '.join(records[0])}")
    return _drawn([Chart("Training", "epoch", lines[0].name, lines, log_x=False, log_y=False)])


def path(result: Any) -> Figure:
    """Draws the largest weights, the losses and the non-zeros of a regularisation path against alpha.

    Parameters
    ----------
    result : Path
        What `regularization_path` returns.

    Examples
    --------
    >>> import numpy as np, steepest as st
    >>> X = np.random.default_rng(0).standard_normal((60, 4))
    >>> found = st.regularization_path(st.LinearRegressor(penalty="l1"), X, X[:, 0], n_alphas=4)
    >>> [axes.get_xlabel() for axes in st.plot.path(found).axes]
    ['alpha', 'alpha', 'alpha']
    """
    return _drawn(result.charts(), one_legend=False)


def race(result: Any) -> Figure:
    """Gap from the optimum and test error of each solver against seconds of training.

    Parameters
    ----------
    result : Race
        What `st.race` returns.

    Examples
    --------
    >>> import numpy as np, steepest as st
    >>> X = np.random.default_rng(0).standard_normal((80, 4))
    >>> y = X[:, 0] + X[:, 1] ** 2 > 1
    >>> found = st.race(st.LinearClassifier("log", alpha=0.1), X, y, solvers=["lbfgs"])
    >>> st.plot.race(found).axes[0].get_xlabel()
    'seconds of training'
    """
    return _drawn(result.charts())


def calibration(y: Any, probability: Any, *, bins: int = 10) -> Figure:
    """Reliability: the share of rows that are positive against their mean probability, in bins of equally many rows.

    Parameters
    ----------
    y : array of 0 and 1, or of bool
        Whether each row is positive.
    probability : array
        Its predicted probability: a column of `predict_proba`.
    bins : int
        How many points are drawn.

    Examples
    --------
    >>> import steepest as st
    >>> figure = st.plot.calibration([0, 0, 1, 1], [0.1, 0.4, 0.6, 0.9], bins=2)
    >>> figure.axes[0].get_lines()[0].get_xydata().tolist()
    [[0.25, 0.0], [0.75, 1.0]]
    """
    y, probability = np.asarray(y, dtype=float), np.asarray(probability, dtype=float)
    if y.shape != probability.shape or y.ndim != 1 or not len(y):
        raise ParameterError(f"y has shape {y.shape} and probability {probability.shape}; give one of each per row")
    if not np.isin(y, (0, 1)).all():
        raise ParameterError("y must be 0 or 1; for class c give y == c and the column of c in predict_proba")
    parts = np.array_split(np.argsort(probability, kind="stable"), min(bins, len(y)))
    seen = Line("rows", [float(probability[part].mean()) for part in parts], [float(y[part].mean()) for part in parts])
    lines = [seen, Line("perfect", [0.0, 1.0], [0.0, 1.0], reference=True)]
    title = f"Reliability, {len(parts)} bins"
    return _drawn([Chart(title, "mean probability", "share of positive rows", lines, log_x=False, log_y=False)])


def collisions(texts: Sequence[Any], *, bits: Sequence[int] = (10, 11, 12, 13, 14, 15, 16), **options: Any) -> Figure:
    """How far hashing into 2^bits buckets moves inner products of rows, with random signs and without.

    With signs the error has mean zero and falls as 2^(-bits/2); without them every collision adds to the product.

    Parameters
    ----------
    texts : sequence
        Rows as the hasher takes them; all pairs of the first 200 are compared.
    bits : sequence of int
        Sizes of the table, as powers of two.
    **options
        Further parameters of `Hasher`, such as `ngrams`.

    Examples
    --------
    >>> import steepest as st
    >>> figure = st.plot.collisions(["win cash now", "lunch at noon", "cash at noon"], bits=(10, 12))
    >>> [line.get_label() for line in figure.axes[0].get_lines()]
    ['random signs', 'no signs']
    """
    exact = _products(texts, {**options, "n_bits": 30, "signed": True})
    pairs = np.triu_indices(len(exact), 1)
    lines = []
    for signed, name in ((True, "random signs"), (False, "no signs")):
        found = [_products(texts, {**options, "n_bits": size, "signed": signed}) for size in bits]
        errors = [float(np.sqrt(np.mean((product - exact)[pairs] ** 2))) for product in found]
        lines.append(Line(name, [float(size) for size in bits], errors))
    return _drawn(
        [Chart("Collisions", "bits of the table", "error of x·z, root mean square", lines, log_x=False, log_y=False)]
    )


def _products(texts: Sequence[Any], options: dict[str, Any]) -> Any:
    rows = Hasher(**options).transform(list(texts)[:200])
    used, columns = np.unique(rows.indices, return_inverse=True)  # a table of 2^30 columns is not to be transposed
    table = np.zeros((rows.shape[0], len(used)))
    np.add.at(table, (np.repeat(np.arange(rows.shape[0]), np.diff(rows.indptr)), columns), rows.data)
    return table @ table.T


def _drawn(charts: Sequence[Chart], *, one_legend: bool = True) -> Figure:
    _figure(1)
    figure: Figure = draw(charts, one_legend=one_legend)
    return figure


def _figure(columns: int) -> Figure:
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ParameterError(
            "steepest.plot needs matplotlib, which is not installed; pip install 'steepest[plots]'"
        ) from None
    return Figure(figsize=(4.6 * columns, 3.6), layout="constrained")


def _curve(loss: Loss, target: float) -> tuple[Any, Any]:
    score = np.linspace(*loss.plot_range, POINTS)
    return score, loss.value(score, target, SHOWN_PARAMETERS.get(loss.parameter or "", 0.0))


def _label(loss: Loss) -> str:
    shown = "" if loss.parameter is None else f" ({SHOWN_PARAMETERS[loss.parameter]:g})"
    return loss.name + shown + (f", y = {TARGETS['count']:g}" if loss.kind == "count" else "")
