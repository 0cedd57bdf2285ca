"""Losses with kinks by the method of multipliers: exact minima of hinge, quantile and epsilon-insensitive losses.

Each row's loss l(z) is replaced by its Moreau envelope at z + mu u, with u a multiplier a row. The smooth problem is
minimised by L-BFGS or Newton's method; then u becomes the slope of the envelope, and mu shrinks (Rockafellar, 1976; for
learning, Li, Sun and Toh, 2018). The minimum is reached for mu > 0, without the ill conditioning of pure smoothing.
The gap of Fenchel and Young between w and u, in the kernel's totals, bounds the distance to the minimum; it is what
`gradient` of a step tells. Memory: one number a row and output, also for rows that stream.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from steepest.data.chunk import Array
from steepest.learners.batch import Step
from steepest.learners.batch_lbfgs import relative_change
from steepest.learners.objective import Objective

SHRINK = 0.25  # mu after every round
LEAST_SMOOTHING = 1e-7  # of the first mu
MOST_INNER = 300
FIRST_LEFT = 1e-2  # of the gradient, by the first round; then falls with the gap


class Multipliers:
    """State and step of the method of multipliers; one step is one round."""

    def __init__(self, objective: Objective, inner: Any, tol: float) -> None:
        self.objective, self.inner, self.tol = objective, inner, tol
        self.w = objective.start()
        self.multipliers = [np.zeros((chunk.n_rows, objective.n_outputs)) for _, chunk in objective.data.passes()]
        self.first_mu = self.mu = self._spread()
        self.left = FIRST_LEFT
        self.first_norm = 0.0

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
        o = self.objective
        before = self.w
        o.smoothing, o.shifts = self.mu, [self.mu * u for u in self.multipliers]
        solver = self.inner(o, start=self.w)
        self.first_norm = self.first_norm or solver.first_norm
        solver.first_norm = max(solver.first_norm, self.first_norm)  # later rounds start near the end
        for _ in range(MOST_INNER):
            inner = solver.step()
            if inner.gradient <= self.left or inner.done is not None:
                break
        self.w = solver.w
        o.evaluate(self.w)
        value = o.plain_loss + o.smooth_penalty(self.w) + o.one_norm(self.w)
        gap = o.gap / max(abs(value), 1e-300)
        self.multipliers = o.slopes(self.w)
        step = Step(value, gap, self.mu, relative_change(self.w, before), measure="the gap's share of the objective")
        self.mu = max(self.mu * SHRINK, LEAST_SMOOTHING * self.first_mu)
        self.left = max(1e-9, min(self.left, 0.1) * 0.3)
        o.smoothing, o.shifts = 0.0, None
        return step

    @property
    def state(self) -> Mapping[str, Array]:
        """The weights, the multipliers, mu and the inner tolerance."""
        return {
            "w": self.w,
            "multipliers": np.concatenate(self.multipliers),
            "numbers": np.array([self.mu, self.left, self.first_norm]),
        }

    def restore(self, state: Mapping[str, Array]) -> None:
        """Goes on from there."""
        self.w = np.array(state["w"])
        edges = np.cumsum([len(u) for u in self.multipliers])[:-1]
        self.multipliers = [np.ascontiguousarray(part) for part in np.split(np.array(state["multipliers"]), edges)]
        self.mu, self.left, self.first_norm = (float(number) for number in state["numbers"])
