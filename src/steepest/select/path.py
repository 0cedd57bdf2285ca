"""Regularisation paths: the same problem for smaller and smaller alpha, each solved from the solution before.

With the 1-norm, alpha_max = max_j |(1/n) sum_i x_ij loss'(b, y_i)| is the least alpha at which every weight is zero (b:
the best bias alone); the path goes down from there. Rows are held in memory. Held-out loss against non-zeros shows how
small a model may be. Reference: Friedman, Hastie and Tibshirani, "Regularization paths for generalized linear models
via coordinate descent", 2010.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from steepest.data.chunk import Array
from steepest.data.source import ArraySource, Source
from steepest.engine.loop import mean_loss
from steepest.errors import ParameterError
from steepest.learners.batch.batch_data import BatchData
from steepest.learners.batch.objective import Objective
from steepest.learners.batch.solvers import KINKED, refusal
from steepest.learners.linear.linear import LinearLearner
from steepest.learners.linear.linear_settings import ADAPTIVE
from steepest.learners.losses import loss_for
from steepest.models.linear import LinearModel
from steepest.parameters import choice, inside, more_than, whole
from steepest.report.chart import Chart, Line
from steepest.report.picture import save_picture
from steepest.select.cross_validate import as_source, copy_of
from steepest.select.race import split_rows

WARM = ("cd", "lbfgs", "saga", "newton_cg", "cg", "gd", "ftrl", "adagrad", "sgd", "truncated")
ROUNDING = 1e-6  # of weights in float32
SHOWN = 10  # coefficients in the picture


@dataclass(frozen=True, slots=True)
class Place:
    """One alpha of the path: the model there and its measurements."""

    alpha: float
    nonzeros: int
    train_loss: float
    objective: float
    held_out_loss: float
    iterations: int
    seconds: float
    at: Array  # places of the non-zero weights in the flat table, features by outputs
    weights: Array
    bias: Array


@dataclass(slots=True)
class Path:
    """A regularisation path, from large to small alpha.

    Attributes
    ----------
    places : list of Place
    solver : str
    shape : (features, outputs)
    """

    places: list[Place]
    solver: str
    shape: tuple[int, int]

    def column(self, name: str) -> Array:
        """One quantity along the path: alpha, nonzeros, train_loss, objective, held_out_loss, iterations, seconds."""
        return np.array([getattr(place, name) for place in self.places])

    @property
    def alphas(self) -> Array:
        """The grid, falling."""
        return self.column("alpha")

    def coef(self, number: int) -> Array:
        """The weights at one place, one row per output."""
        place = self.places[number]
        table = np.zeros(self.shape[0] * self.shape[1])
        table[place.at] = place.weights
        return np.ascontiguousarray(table.reshape(self.shape).T)

    @property
    def best(self) -> Place:
        """The place with the least loss on held-out rows, the larger alpha if two are equal."""
        return min(self.places, key=lambda place: (place.held_out_loss, -place.alpha))

    def __str__(self) -> str:
        lines = [f"{'alpha':>12}{'non-zeros':>12}{'train loss':>12}{'held out':>12}{'iterations':>12}{'seconds':>10}"]
        for p in self.places:
            numbers = f"{p.alpha:>12.4g}{p.nonzeros:>12,}{p.train_loss:>12.5f}{p.held_out_loss:>12.5f}"
            lines.append(f"{numbers}{p.iterations:>12}{p.seconds:>10.3f}{' *' if p is self.best else ''}")
        return "\n".join(lines)

    def charts(self) -> list[Chart]:
        """The heaviest coefficients, the losses and the non-zeros against alpha."""
        alphas = self.alphas.tolist()
        heaviest = np.zeros(self.shape[0] * self.shape[1])
        for place in self.places:
            heaviest[place.at] = np.maximum(heaviest[place.at], np.abs(place.weights))
        shown = np.argsort(-heaviest, kind="stable")[:SHOWN]
        tables = [self.coef(number).T.ravel()[shown] for number in range(len(self.places))]
        weights = [Line(self._name(int(j)), alphas, [float(t[k]) for t in tables]) for k, j in enumerate(shown)]
        losses = [Line("train", alphas, self.column("train_loss").tolist())]
        if np.isfinite(self.column("held_out_loss")).all():
            losses.append(Line("held out", alphas, self.column("held_out_loss").tolist()))
        counts = [Line("non-zeros", alphas, self.column("nonzeros").tolist())]
        return [
            Chart(f"The {len(shown)} heaviest weights", "alpha", "weight", weights, log_y=False),
            Chart("Loss", "alpha", "mean loss", losses, log_y=False),
            Chart("Weights that are not zero", "alpha", "non-zeros", counts),
        ]

    def _name(self, place: int) -> str:
        feature, output = divmod(place, self.shape[1])
        return f"feature {feature}" + (f" for output {output}" if self.shape[1] > 1 else "")

    def plot(self, file: str | os.PathLike[str]) -> None:
        """The charts as a picture (PNG, SVG or PDF); needs matplotlib."""
        save_picture(self.charts(), file, one_legend=False)


def regularization_path(
    estimator: Any,
    source_or_X: Any,
    y: Any = None,
    *,
    alphas: Sequence[float] | None = None,
    n_alphas: int = 20,
    ratio: float = 1e-3,
    solver: str = "auto",
    test: float | Source | None = 0.2,
    random_state: int = 0,
) -> Path:
    """Fits a linear model for a decreasing grid of alphas, each starting from the previous solution.

    Parameters
    ----------
    estimator : LinearClassifier or LinearRegressor
        Estimator that sets the loss, the penalty and everything else except alpha.
    source_or_X, y : Source, or arrays as for `fit`
    alphas : numbers, optional
        The grid. By default `n_alphas` from the one at which all weights are zero, or under "l2" as many times the same
        size, down to `ratio` of it, evenly on the logarithmic scale.
    solver : {"auto", "cd", "lbfgs", "saga", "newton_cg", "cg", "gd", "ftrl", "adagrad", "sgd", "truncated"}
        "auto" uses that of the estimator or, if that is "auto", too, "cd" for sparse models and "lbfgs" for others.
    test : float, Source or None
        Share of the rows to hold out, other rows to measure on, or None.
    random_state : int

    Returns
    -------
    Path

    Examples
    --------
    >>> import steepest as st
    >>> X, y = [[float(i % 2), float(i % 3), 1.0] for i in range(60)], [i % 2 for i in range(60)]
    >>> found = st.regularization_path(st.LinearClassifier(penalty="l1"), X, y, n_alphas=5)
    >>> found.places[0].nonzeros, found.places[-1].nonzeros > 0
    (0, True)
    """
    if not isinstance(estimator, LinearModel):
        raise ParameterError(
            f"regularization_path supports LinearClassifier and LinearRegressor, not {type(estimator).__name__}"
        )
    base = copy_of(estimator, random_state, early_stopping=False, C=None)
    base.solver = _solver(base, solver)
    train, held_out = split_rows(base, as_source(base, source_or_X, y), test, int(random_state))
    grid = _default_grid(base, train, n_alphas, ratio) if alphas is None else _checked(alphas)
    places, warm = [], None
    for alpha in grid:
        place, warm = _fit(base, alpha, train, held_out, warm)
        places.append(place)
    assert warm is not None
    return Path(places, base.solver, (warm.n_features, warm.n_outputs))


def _solver(base: Any, requested: str) -> str:
    choice("solver", requested, ("auto", *WARM))
    name = base.solver if requested == "auto" else requested
    params = base.flat_params()
    sparse = params["penalty"] in ("l1", "elasticnet")
    if name in ("auto", "stochastic"):
        one_by_one = params.get("multi_class", "ovr") in ("auto", "ovr")
        name = "cd" if sparse and params["loss"] not in KINKED and one_by_one else "lbfgs"
    if name not in WARM:
        raise ParameterError(f"solver={name!r} cannot start from weights found before; choose one of {', '.join(WARM)}")
    if (reason := refusal(name, loss_for(params["loss"], 1), str(params["penalty"]), float(params["p"]))) is not None:
        raise ParameterError(reason)
    return str(name)


def _checked(alphas: Sequence[float]) -> list[float]:
    grid = [more_than("alphas", alpha, 0.0) for alpha in np.ravel(np.asarray(alphas, dtype=object)).tolist()]
    if not grid:
        raise ParameterError("alphas is empty; give at least one")
    return sorted(grid, reverse=True)


def _default_grid(base: Any, train: ArraySource, n_alphas: int, ratio: float) -> list[float]:
    n, least = whole("n_alphas", n_alphas, 1), inside("ratio", ratio, 0.0, 1.0)
    top = largest_alpha(base, train)
    return [float(top * least**share) for share in (np.linspace(0, 1, n) if n > 1 else [0.0])]


def largest_alpha(base: Any, train: ArraySource) -> float:
    """The least alpha at which the 1-norm leaves no weight; for other penalties the same size of gradient."""
    alone = copy_of(base, solver="lbfgs", penalty="l1", alpha=1e10, tol=1e-10)  # the bias alone
    alone.fit_stream(train)
    learner = alone.new_learner(alone.settings_for(train.n_rows), train)
    data = BatchData(train, learner)
    _, gradient = Objective(data).evaluate(data.table_of(alone.learner_))
    top = float(np.abs(gradient[:-1]).max(initial=0.0))
    params = base.flat_params()
    if params["penalty"] == "elasticnet":
        top /= max(float(params["l1_ratio"]), 1e-3)
    return top * (1 + ROUNDING) if top > 0 else 1.0


def _fit(
    base: Any, alpha: float, train: ArraySource, held_out: Source | None, warm: LinearLearner | None
) -> tuple[Place, LinearLearner]:
    model = copy_of(base, alpha=alpha)
    model.continue_from(None if base.solver in ADAPTIVE else warm)  # their sums of gradients belong to the old alpha
    started = time.perf_counter()
    model.fit_stream(train)
    seconds = time.perf_counter() - started
    learner = model.learner_
    weights, bias = learner.weights()
    at = np.flatnonzero(weights)
    loss = mean_loss(learner, train)
    place = Place(
        alpha,
        len(at),
        loss,
        loss + learner.penalty(),
        math.nan if held_out is None else mean_loss(learner, held_out),
        model.n_iter_,
        seconds,
        at,
        weights.ravel()[at],
        np.array(bias),
    )
    return place, learner
