"""L-BFGS: quasi-Newton directions from the last m steps, with a line search; OWL-QN where there is a 1-norm.

direction = -H g by the two-loop recursion over pairs (s, y) of changes in w and gradient (Nocedal and Wright, 2006,
algorithm 7.4), started from the inverse second moments of the features, so that the units of features do not matter.
OWL-QN (Andrew and Gao, 2007) uses the pseudo-gradient of F + l1 |w|, keeps each step in one orthant and so makes exact
zeros. Memory: 2 m copies of w.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from steepest.data.chunk import Array
from steepest.learners.batch import Step
from steepest.learners.batch_search import ROUNDING, Point, search
from steepest.learners.objective import Objective

PAIRS = 10
LEAST_CURVATURE = 1e-12
MOST_HALVINGS = 50


class Lbfgs:
    """State and step of L-BFGS and OWL-QN."""

    def __init__(self, objective: Objective, start: Array | None = None) -> None:
        self.objective = objective
        self.w = objective.start() if start is None else start.copy()
        self.scale = objective.scale()
        self.changes: list[tuple[Array, Array]] = []
        self.value, self.gradient = objective.evaluate(self.w)
        self.first_norm = self.norm()  # of the cold start in any case, so that tol means the same
        if start is None and objective.warm is not None:
            self._start_from(objective.warm)

    def _start_from(self, w: Array) -> None:
        """Starts there instead, if the objective is lower there."""
        value, gradient = self.objective.evaluate(w)
        if value + self.objective.one_norm(w) < self.value + self.objective.one_norm(self.w):
            self.w, self.value, self.gradient = w.copy(), value, gradient

    def norm(self) -> float:
        """Length of the (pseudo-)gradient, each coordinate in its own scale."""
        g = self._pseudo_gradient()
        return math.sqrt(float(np.vdot(g, g / self.scale)))

    def step(self) -> Step:
        """One direction and a search along it."""
        g = self._pseudo_gradient()
        direction = self._direction(g)
        if not np.vdot(direction, g) < 0:
            self.changes.clear()
            direction = -g / self.scale
        point = self._orthant_search(g, direction) if self.objective.l1 else self._search(g, direction)
        if point is None and self.changes:  # the memory may be stale: once more from the steepest descent
            self.changes.clear()
            direction = -g / self.scale
            point = self._orthant_search(g, direction) if self.objective.l1 else self._search(g, direction)
        if point is None:
            return self._report(0.0, 0.0, "no step lowers the objective any more")
        moved = relative_change(point.w, self.w)
        self._remember(point.w - self.w, point.gradient - self.gradient)
        self.w, self.value, self.gradient = point.w, point.value, point.gradient
        return self._report(point.t, moved, None)

    def _report(self, eta: float, moved: float, done: str | None) -> Step:
        objective = self.value + self.objective.one_norm(self.w)
        norm = self.norm()
        return Step(objective, norm / self.first_norm if self.first_norm > 0 else 0.0, eta, moved, done)

    def _direction(self, g: Array) -> Array:
        q = g.copy()
        shares = []
        for s, y in reversed(self.changes):
            share = float(np.vdot(s, q)) / float(np.vdot(s, y))
            q -= share * y
            shares.append(share)
        q /= self.scale
        if self.changes:
            s, y = self.changes[-1]
            q *= float(np.vdot(s, y)) / float(np.vdot(y, y / self.scale))
        for (s, y), share in zip(self.changes, reversed(shares), strict=True):
            q += (share - float(np.vdot(y, q)) / float(np.vdot(s, y))) * s
        if self.objective.l1:  # only where it agrees with steepest descent
            weights, pseudo = q[:-1], g[:-1]
            weights[weights * pseudo <= 0] = 0.0
        return -q

    def _remember(self, s: Array, y: Array) -> None:
        if float(np.vdot(s, y)) > LEAST_CURVATURE * float(np.vdot(y, y / self.scale)):
            self.changes = [*self.changes[1 - PAIRS :], (s, y)]

    def _search(self, g: Array, direction: Array) -> Point | None:
        def trial(t: float) -> Point:
            w = self.w + t * direction
            value, gradient = self.objective.evaluate(w)
            return Point(t, value, float(np.vdot(gradient, direction)), w, gradient)

        here = Point(0.0, self.value, float(np.vdot(g, direction)), self.w, g)
        return search(trial, here, 1.0)

    # ------------------------------------------------------------------------------------------------ the 1-norm

    def _pseudo_gradient(self) -> Array:
        l1 = self.objective.l1
        if not l1:
            return self.gradient
        out = self.gradient.copy()
        g, w = out[:-1], self.w[:-1]
        at_zero = np.copysign(np.maximum(np.abs(g) - l1, 0.0), g)
        out[:-1] = np.where(w != 0, g + l1 * np.sign(w), at_zero)
        return out

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
    def state(self) -> Mapping[str, Array]:
        """The weights, the pairs and where it started."""
        s, y = [a for a, _ in self.changes], [b for _, b in self.changes]
        empty = np.zeros((0, *self.w.shape))
        return {
            "w": self.w,
            "s": np.array(s) if s else empty,
            "y": np.array(y) if y else empty,
            "first": np.array([self.first_norm]),
        }

    def restore(self, state: Mapping[str, Array]) -> None:
        """Goes on from there; value and gradient are found again."""
        self.w = np.array(state["w"])
        self.changes = [(np.array(s), np.array(y)) for s, y in zip(state["s"], state["y"], strict=True)]
        self.first_norm = float(state["first"][0])
        self.value, self.gradient = self.objective.evaluate(self.w)


def relative_change(new: Array, old: Array) -> float:
    """|new - old| / |new|."""
    size = float(np.linalg.norm(new))
    return float(np.linalg.norm(new - old)) / size if size > 0 else 0.0
