"""Conjugate gradients: linear for the squared loss, whose gradient is linear; non-linear for other smooth losses.

Linear (Hestenes and Stiefel, 1952): solves H w = c without ever forming H, one pass over the rows an iteration; outputs
run side by side, each with steps of its own. Non-linear: directions by Polak and Ribiere, never below 0, with a strong
Wolfe search (Nocedal and Wright, 2006, section 5.2). Both divide by the second moments of the features, of sparse data
by a power of them, so that units matter less or not at all.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from steepest.data.chunk import Array
from steepest.learners.batch import Step
from steepest.learners.batch_lbfgs import relative_change
from steepest.learners.batch_search import Point, search
from steepest.learners.objective import Objective

# Of the features' second moments, if data is sparse. Iterations to 1e-3 and 1e-6 by powers 1/2, 3/4 and 1: generated
# ridge with a million columns 10 18, 5 10, 4 8; RCV1's shape 6 11, 6 11, 6 13; news20 11 21, 10 21, 11 27.
SCALE_POWER = 0.75
REFRESH = 50  # iterations after which the residual is computed anew, against rounding


class LinearCG:
    """State and step of linear conjugate gradients."""

    def __init__(self, objective: Objective) -> None:
        self.objective = objective
        self.scale = objective.scale(SCALE_POWER)
        self.w = objective.start()
        self.iterations = 0
        self.value, self.residual = self._evaluate()
        self.direction = np.zeros(objective.shape)
        self._scaled = np.empty(objective.shape)  # the residual over the scale
        self.square = self._square()
        self.last_square = np.zeros(objective.n_outputs)
        self.first = float(self.square.sum())

    def _evaluate(self) -> tuple[float, Array]:
        value, gradient = self.objective.evaluate(self.w, curvature=True)
        return value, np.negative(gradient, out=gradient)

    def _square(self) -> Array:
        np.divide(self.residual, self.scale, out=self._scaled)
        return _dots(self.residual, self._scaled)

    def step(self) -> Step:
        """One product with the Hessian. In place: fresh arrays of a million numbers cost more than the numbers."""
        share = np.divide(self.square, self.last_square, out=np.zeros_like(self.square), where=self.last_square > 0)
        self.direction *= share
        self.direction += self._scaled
        product = self.objective.product(self.direction)
        bend = _dots(self.direction, product)
        eta = np.divide(self.square, bend, out=np.zeros_like(bend), where=bend > 0)
        move = np.multiply(eta, self.direction, out=self._scaled)
        moved = math.sqrt(float(_dots(move, move).sum()))
        self.w += move
        # F falls by half of what the gradient promises: exact for a quadratic
        self.value -= 0.5 * float((eta * self.square).sum())
        self.last_square, self.iterations = self.square, self.iterations + 1
        if self.iterations % REFRESH:
            product *= eta
            self.residual -= product
        else:
            self.value, self.residual = self._evaluate()
        self.square = self._square()
        left = math.sqrt(float(self.square.sum()) / self.first) if self.first > 0 else 0.0
        done = None if eta.any() else "the gradient is zero"
        size = math.sqrt(float(_dots(self.w, self.w).sum()))
        return Step(self.value, left, float(eta.max()), moved / size if size > 0 else 0.0, done)

    @property
    def state(self) -> Mapping[str, Array]:
        """The three vectors and the numbers beside them."""
        numbers = np.array([self.value, self.first, float(self.iterations)])
        squares = np.array([self.square, self.last_square])
        return {
            "w": self.w,
            "residual": self.residual,
            "direction": self.direction,
            "squares": squares,
            "numbers": numbers,
        }

    def restore(self, state: Mapping[str, Array]) -> None:
        """Goes on from there; the curvature of the squared loss is the same everywhere."""
        self.w, self.residual, self.direction = (np.array(state[name]) for name in ("w", "residual", "direction"))
        self.square, self.last_square = np.array(state["squares"])
        self.value, self.first = float(state["numbers"][0]), float(state["numbers"][1])
        self.iterations = int(state["numbers"][2])
        np.divide(self.residual, self.scale, out=self._scaled)


def _dots(a: Array, b: Array) -> Array:
    """The product of each output's column with its own."""
    if a.shape[1] == 1:
        return np.atleast_1d(np.einsum("i,i", a[:, 0], b[:, 0]))
    return np.asarray(np.einsum("ij,ij->j", a, b))


class NonlinearCG:
    """State and step of non-linear conjugate gradients."""

    def __init__(self, objective: Objective) -> None:
        self.objective = objective
        self.scale = objective.scale()
        self.w = objective.start()
        self.value, self.gradient = objective.evaluate(self.w)
        self.direction = -self.gradient / self.scale
        self.eta = 1.0
        self.first = self._norm()

    def _norm(self) -> float:
        return math.sqrt(float(np.vdot(self.gradient, self.gradient / self.scale)))

    def step(self) -> Step:
        """A search along the direction, and the next direction."""
        point = self._search()
        if point is None:
            self.direction = -self.gradient / self.scale
            self.eta = 1.0
            point = self._search()
        if point is None:
            return Step(self.value, self._left(), 0.0, 0.0, "no step lowers the objective any more")
        moved = relative_change(point.w, self.w)
        old = self.gradient
        slope = float(np.vdot(old, self.direction))
        self.w, self.value, self.gradient = point.w, point.value, point.gradient
        steepest = self.gradient / self.scale
        share = float(np.vdot(steepest, self.gradient - old)) / float(np.vdot(old, old / self.scale))
        self.direction = -steepest + max(0.0, share) * self.direction
        new_slope = float(np.vdot(self.gradient, self.direction))
        if not new_slope < 0:
            self.direction = -steepest
            new_slope = float(np.vdot(self.gradient, self.direction))
        # the first guess promises the same gain as the last step
        self.eta = point.t * min(10.0, slope / new_slope) if new_slope < 0 else 1.0
        return Step(self.value, self._left(), point.t, moved)

    def _left(self) -> float:
        return self._norm() / self.first if self.first > 0 else 0.0

    def _search(self) -> Point | None:
        def trial(t: float) -> Point:
            w = self.w + t * self.direction
            value, gradient = self.objective.evaluate(w)
            return Point(t, value, float(np.vdot(gradient, self.direction)), w, gradient)

        slope = float(np.vdot(self.gradient, self.direction))
        if not slope < 0:
            return None
        return search(trial, Point(0.0, self.value, slope, self.w, self.gradient), self.eta, flatten=0.1, strong=True)

    @property
    def state(self) -> Mapping[str, Array]:
        """Weights, direction, and the numbers beside them."""
        return {"w": self.w, "direction": self.direction, "numbers": np.array([self.eta, self.first])}

    def restore(self, state: Mapping[str, Array]) -> None:
        """Goes on from there; value and gradient are found again."""
        self.w, self.direction = np.array(state["w"]), np.array(state["direction"])
        self.eta, self.first = (float(number) for number in state["numbers"])
        self.value, self.gradient = self.objective.evaluate(self.w)
