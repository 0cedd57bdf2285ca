"""Losses with kinks by the method of multipliers: exact minima of hinge, quantile and epsilon-insensitive losses.

Each row's loss l(z) is replaced by its Moreau envelope at z + mu u, with one multiplier u per row. The smooth problem
is minimised by L-BFGS or Newton's method; then u becomes the gradient of the envelope, and mu shrinks (Rockafellar,
1976; for learning, Li, Sun and Toh, 2018). The minimum is reached for mu > 0, without the ill conditioning of pure
smoothing. A 1-norm is treated the same way, with one multiplier per weight; the weights shown are the sparse ones next
to the smooth problem's. The multipliers u are a point of the dual, so its value bounds the minimum from below, however
roughly the smooth problem was solved; the distance of both is what `gradient` of a step reports.
Memory: one number per row and output, also for rows that stream.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from steepest.data.chunk import Array
from steepest.learners.batch.objective import Objective
from steepest.learners.batch.search import relative_change
from steepest.learners.batch.solvers import Step
from steepest.learners.penalties import soft_threshold
from steepest.learners.resumable import Resumable

SHRINK = 0.25  # mu after every round
LEAST_SMOOTHING = 1e-5  # of the first mu
MOST_INNER = 1000
FIRST_LEFT = 1e-2  # of the gradient, by the first round; then falls with the gap
PATIENCE = 10  # rounds that do not lower the gap, before rounding is held to be all that is left
NO_LOSS = 1e-9  # of the first objective: below, the gap is a share of this


@dataclass(frozen=True, slots=True)
class SmoothOneNorm:
    """The Moreau envelope of l1 |w| at w + width multiplier: without kinks, and least where l1 |w| is in the end."""

    l1: float
    width: Array  # one per weight: the curvature is 1 / width where the weight is held at zero
    multiplier: Array

    def nearest(self, weights: Array) -> Array:
        """The sparse weights that are nearest to these."""
        return soft_threshold(weights + self.width * self.multiplier, self.width * self.l1)

    def gradient(self, weights: Array) -> Array:
        """The gradient, between -l1 and l1; it is also the next multiplier."""
        return np.asarray(np.clip(self.multiplier + weights / self.width, -self.l1, self.l1))

    def curvature(self, weights: Array) -> Array:
        """The second derivative: 1 / width where the nearest weight is zero."""
        return np.where(self.nearest(weights) == 0, 1.0 / self.width, 0.0)

    def value(self, weights: Array) -> float:
        """l1 |s| + |w + width multiplier - s|^2 / (2 width), with s the nearest sparse weights."""
        g = self.gradient(weights)
        return self.l1 * float(np.abs(self.nearest(weights)).sum()) + 0.5 * float(np.vdot(self.width * g, g))


class Multipliers(Resumable):
    """State and step of the method of multipliers; one step is one round."""

    state_arrays = ("w", "smooth_w", "pulls")
    state_numbers = ("mu", "left", "first_norm", "first_value", "bound", "least_gap", "stalled")
    measure = "the gap's share of the objective"

    def __init__(self, objective: Objective, inner: Any) -> None:
        self.objective, self.inner = objective, inner
        self.w = self.smooth_w = objective.start()
        self.multipliers = [np.zeros((chunk.n_rows, objective.n_outputs)) for _, chunk in objective.data.passes()]
        self.pulls = np.zeros_like(self.w[:-1])  # the multipliers of the 1-norm
        self.first_mu = self.mu = self._spread()
        self.unit = self.first_mu * objective.inverse_spread()[:-1]  # of weights
        self.left = FIRST_LEFT
        self.first_norm = self.first_value = 0.0
        self.bound = -math.inf  # no w has a smaller objective
        self.least_gap, self.stalled = math.inf, 0

    def _spread(self) -> float:
        """The unit of scores: 1 for margins, the spread of the targets otherwise."""
        o = self.objective
        if o.settings.task != "regress":
            return 1.0
        o.evaluate(self.w)
        unit = o.plain_loss + (o.settings.loss_parameter if o.settings.loss == "epsilon_insensitive" else 0.0)
        return max(unit, 1e-12)

    def step(self) -> Step:
        """Minimises the smooth problem, then moves the multipliers."""
        o, l1, before = self.objective, self.objective.l1, self.w
        o.smoothing, o.shifts = self.mu, [self.mu * u for u in self.multipliers]
        one_norm = SmoothOneNorm(l1, np.full_like(self.pulls, self.mu / l1), self.pulls) if l1 else None
        o.l1, o.smooth_one_norm = 0.0, one_norm
        reached = self._minimise()
        _, gradient = o.evaluate(self.smooth_w)
        gradient[:-1] -= o.penalty_gradient(self.smooth_w[:-1])
        loss_dual = o.plain_loss - o.gap
        self.multipliers = o.row_gradients(self.smooth_w)
        self.w = self.smooth_w.copy()
        if one_norm is not None:
            self.pulls = one_norm.gradient(self.smooth_w[:-1])
            self.w[:-1] = one_norm.nearest(self.smooth_w[:-1])
        o.smoothing, o.shifts, o.l1, o.smooth_one_norm = 0.0, None, l1, None
        value = o.evaluate(self.w)[0] + o.one_norm(self.w)
        self.first_value = self.first_value or value
        self.bound = max(self.bound, self._bound(gradient, loss_dual))
        gap = max(0.0, value - self.bound) / max(value, NO_LOSS * self.first_value, 1e-300)
        self.stalled = 0 if gap < self.least_gap else self.stalled + 1
        self.least_gap = min(gap, self.least_gap)
        done = f"the gap stays at {gap:.1e} of the objective" if self.stalled >= PATIENCE else None
        step = Step(value, gap, self.mu, relative_change(self.w, before), done)
        if reached:
            self.mu = max(self.mu * SHRINK, LEAST_SMOOTHING * self.first_mu)
        self.left = max(1e-9, min(self.left, 0.1) * 0.3)
        return step

    def _minimise(self) -> bool:
        """The smooth problem; whether it was solved as well as asked."""
        solver = self.inner(self.objective, start=self.smooth_w)
        self.first_norm = self.first_norm or solver.first_norm
        solver.first_norm = max(solver.first_norm, self.first_norm)  # later rounds start near the end
        for _ in range(MOST_INNER):
            inner = solver.step()
            if inner.gradient <= self.left or inner.done is not None:
                break
        self.smooth_w = solver.w
        return bool(inner.gradient <= self.left)

    def _bound(self, gradient: Array, loss_dual: float) -> float:
        """The value of the dual at the multipliers, whose mean over the rows, times x, is `gradient`.

        The dual of these losses doubles with the multipliers, so these may shrink until the 1-norm holds all weights.
        What has no penalty must have no gradient; what is left of it counts as if the weight was wrong by its own size
        and what moves scores by one unit.
        """
        o, w = self.objective, self.smooth_w
        g, bias = gradient[:-1], float(np.abs(gradient[-1]) @ (np.abs(w[-1]) + self.first_mu))
        if o.kinked is not None:
            steepest = o.kinked.dual_norm(g)
            return min(1.0, o.alpha / max(steepest, 1e-300) * (1.0 - 1e-15)) * (
                loss_dual - float(np.vdot(w[:-1], g)) - bias
            )
        if not (o.l1 or o.l2 or o.p):
            return loss_dual - float(np.abs(g * (np.abs(w[:-1]) + self.unit)).sum()) - bias
        steepest = float(np.abs(g).max(initial=0.0))
        share = 1.0 if o.l2 or o.p or steepest <= o.l1 else o.l1 / steepest * (1.0 - 1e-15)
        bound = share * (loss_dual - float(np.vdot(w[:-1], g))) - o.conjugate_penalty(share * g)
        return bound - share * bias if math.isfinite(bound) else -math.inf

    @property
    def state(self) -> dict[str, Array]:
        """The weights and all multipliers, mu and the inner tolerance."""
        return super().state | {"multipliers": np.concatenate(self.multipliers)}

    def restore(self, state: Mapping[str, Array]) -> None:
        """Restores the solver from a state."""
        super().restore(state)
        edges = np.cumsum([len(u) for u in self.multipliers])[:-1]
        self.multipliers = [np.ascontiguousarray(part) for part in np.split(np.array(state["multipliers"]), edges)]
