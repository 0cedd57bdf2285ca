"""L-BFGS: quasi-Newton directions from the last m steps, with a line search; OWL-QN where there is a 1-norm.

direction = -H g by the two loops (`quasi_newton`), started from the inverse second moments of the features, so that the
units of features do not matter.
OWL-QN (Andrew and Gao, 2007) uses the pseudo-gradient of F + l1 |w|, keeps each step in one orthant and so makes exact
zeros. Memory: 2 m copies of w.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from steepest.data.chunk import Array
from steepest.learners.batch.objective import Objective
from steepest.learners.batch.quasi_newton import Pairs, times_inverse_hessian
from steepest.learners.batch.search import ROUNDING, Descent, Point, relative_change, search_along
from steepest.learners.batch.solvers import Step, share_of

PAIRS = 10
LEAST_CURVATURE = 1e-12
MOST_HALVINGS = 50


class Lbfgs(Descent):
    """State and step of L-BFGS and OWL-QN."""

    def __init__(self, objective: Objective, start: Array | None = None) -> None:
        super().__init__(objective, start)
        self.changes: Pairs = []

    def step(self) -> Step:
        """One direction and a search along it."""
        g = self.objective.least_subgradient(self.w, self.gradient)
        direction = self._direction(g)
        if not np.vdot(direction, g) < 0:
            self.changes.clear()
            direction = -g / self.scale
        point = self._search(g, direction)
        if point is None and self.changes:  # the memory may be stale: once more from the steepest descent
            self.changes.clear()
            point = self._search(g, -g / self.scale)
        if point is None:
            return self._report(0.0, 0.0, "no step lowers the objective any more")
        moved = relative_change(point.w, self.w)
        self._remember(point.w - self.w, point.gradient - self.gradient)
        self.w, self.value, self.gradient = point.w, point.value, point.gradient
        return self._report(point.t, moved, None)

    def _report(self, eta: float, moved: float, done: str | None) -> Step:
        objective = self.value + self.objective.one_norm(self.w)
        return Step(objective, share_of(self.norm(), self.first_norm), eta, moved, done)

    def _search(self, g: Array, direction: Array) -> Point | None:
        if self.objective.l1:
            return self._orthant_search(g, direction)
        here = Point(0.0, self.value, float(np.vdot(g, direction)), self.w, g)
        return search_along(self.objective, here, direction)

    def _direction(self, g: Array) -> Array:
        q = times_inverse_hessian(g, self.changes, self.scale)
        if self.objective.l1:  # only where it agrees with steepest descent
            weights, pseudo = q[:-1], g[:-1]
            weights[weights * pseudo <= 0] = 0.0
        return -q

    def _remember(self, s: Array, y: Array) -> None:
        if float(np.vdot(s, y)) > LEAST_CURVATURE * float(np.vdot(y, y / self.scale)):
            self.changes = [*self.changes[1 - PAIRS :], (s, y)]

    # ------------------------------------------------------------------------------------------------ the 1-norm

    def _orthant_search(self, g: Array, direction: Array) -> Point | None:
        """Halves the step until F + l1 |w| falls; weights that would change sign stop at zero."""
        orthant = np.where(self.w != 0, np.sign(self.w), -np.sign(g))[:-1]
        here = self.value + self.objective.one_norm(self.w)
        t = 1.0
        for _ in range(MOST_HALVINGS):
            w = self.w + t * direction
            w[:-1][w[:-1] * orthant <= 0] = 0.0
            value, gradient = self.objective.evaluate(w)
            gain = float(np.vdot(g, w - self.w))
            if value + self.objective.one_norm(w) <= here + 1e-4 * gain and gain < 0:
                return Point(t, value, 0.0, w, gradient)
            if abs(gain) <= ROUNDING * abs(here):
                return None
            t *= 0.5 if self.changes else 0.25
        return None

    # --------------------------------------------------------------------------------------------------- going on

    @property
    def state(self) -> dict[str, Array]:
        """The weights, the starting point, and the stored pairs."""
        return super().state | {"pairs": np.array(self.changes).reshape(-1, 2, *self.w.shape)}

    def restore(self, state: Mapping[str, Array]) -> None:
        """Restores the solver from a state."""
        super().restore(state)
        self.changes = [(s, y) for s, y in np.array(state["pairs"])]
