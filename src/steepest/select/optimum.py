"""The least value of an objective, with a proof of how near it is: where the gaps of a race are measured from.

A reference run goes on to a gap of 1e-9 of the objective. Its certificate is a point of the dual problem, whose value
is a lower bound of the objective everywhere: that of `dual_cd` itself, or

    D(g) = - sum of omega_i l*(g_i) - R*(- sum of omega_i g_i x_i),    omega_i the share of row i, sum of omega g = 0

at g_i = l'(s_i), where l*(g) = g s - l(s) by Fenchel and Young. A bias is free, so the sum must be zero: gradients of
the larger sign are shrunk by a factor c, and l*(c g) <= c l*(g), since the least loss is zero. For the 1-norm all are
shrunk until R* is finite. R*(z) = z^2 / (2 alpha) for l2, 0 inside |z| <= alpha for l1, and the two joined for the
elastic net. The bound holds for losses with kinks, too, but is loose there.
Left out: several outputs, class weights, losses of counts, norms with other p: `bound` is NaN.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from steepest import kernels
from steepest.data.chunk import Chunk
from steepest.data.source import ArraySource
from steepest.engine.loop import mean_loss
from steepest.errors import DataError, NotConverged, ParameterError
from steepest.learners.linear.linear import LinearLearner
from steepest.learners.losses import LOSSES

CERTIFIED = 1e-9  # of the objective: what a reference run must reach
REFERENCES = ("newton_cg", "cd", "closed_form", "lbfgs", "saga", "gd")  # after dual_cd
MOST_STEPS = 2000


@dataclass(frozen=True, slots=True)
class Optimum:
    """The lowest objective of the reference runs, a lower bound for any weights (NaN: unknown), and its solver."""

    objective: float
    bound: float
    solver: str

    @property
    def gap(self) -> float:
        """How far the objective may be above the minimum, as a share of it."""
        return max(0.0, self.objective - self.bound) / max(abs(self.objective), 1e-300)

    def __str__(self) -> str:
        proof = "not certified" if math.isnan(self.bound) else f"certified within {self.gap:.1e} of it by a dual point"
        return f"the optimum is {self.objective:.9g}, found by {self.solver}, {proof}"


def find_optimum(make: Callable[[str], Any], rows: ArraySource, refused: Callable[[str], str | None]) -> Optimum | None:
    """The best of the reference runs, until one is certified; None where no solver over the whole data can run.

    `make` gives an estimator with this solver, `refused` says why a solver cannot minimise the objective.
    """
    best: Optimum | None = None
    for found in _runs(make, rows, refused):
        if best is None or _worth(found) < _worth(best):
            best = found
        if best.gap <= CERTIFIED:
            break
    return best


def _worth(found: Optimum) -> tuple[float, float]:
    return found.gap if not math.isnan(found.bound) else math.inf, found.objective


def _runs(make: Callable[[str], Any], rows: ArraySource, refused: Callable[[str], str | None]) -> Iterator[Optimum]:
    for solver in ("dual_cd", *REFERENCES):
        if refused(solver) is not None:
            continue
        model = make(solver).set_params(max_iter=MOST_STEPS)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", NotConverged)  # the certificate says how far it came
                model.fit_stream(rows)
        except (ParameterError, DataError):  # too large for this solver, or it overflows: another may do
            continue
        learner = model.learner_
        objective = mean_loss(learner, rows) + learner.penalty()
        dual_gap = getattr(model, "dual_gap_", None)
        bound = lower_bound(learner, rows.block) if dual_gap is None else objective - dual_gap
        yield Optimum(objective, bound, solver)


def lower_bound(learner: LinearLearner, rows: Chunk) -> float:
    """A lower bound of the objective for any weights, from the loss gradients at these; NaN if there is none."""
    settings, loss = learner.settings, LOSSES[learner.loss.name]
    scores = learner.scores(rows)
    if scores.shape[1] != 1 or settings.p or settings.class_weight or settings.l2 + settings.l1 <= 0:
        return math.nan
    if rows.y is None or rows.y.ndim != 1 or loss.kind == "count":  # a loss of counts may be below zero
        return math.nan
    y = rows.y if settings.task == "regress" else np.where(rows.y == np.asarray(learner.book.labels)[1], 1.0, -1.0)
    s, y = scores[:, 0].astype(np.float64), np.asarray(y, np.float64)
    parameter = (settings.loss_parameter,) if loss.parameter else ()
    share = np.full(len(s), 1.0 / len(s)) if rows.weight is None else rows.weight / rows.weight.sum()
    g = np.asarray(loss.gradient(s, y, *parameter))
    conjugate = g * s - np.asarray(loss.value(s, y, *parameter))
    if settings.fit_intercept:
        up, down = float((share * np.maximum(g, 0)).sum()), float((share * np.maximum(-g, 0)).sum())
        least = min(up, down)
        shrink = np.where(g > 0, least / max(up, 1e-300), least / max(down, 1e-300))
        g, conjugate = g * shrink, conjugate * shrink
    pulls = np.zeros(rows.n_features)
    kernels.add_rows(rows.as_rows(), share * g, pulls)
    if settings.l2 > 0:
        beyond = np.maximum(np.abs(pulls) - settings.l1, 0)
        return float(-(share * conjugate).sum() - (beyond**2).sum() / (2 * settings.l2))
    shrink_all = min(1.0, settings.l1 / max(float(np.abs(pulls).max(initial=0.0)), 1e-300))
    return float(-(share * shrink_all * conjugate).sum())
