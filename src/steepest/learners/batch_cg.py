"""Conjugate gradients: linear for the squared loss, whose gradient is a linear system; non-linear for other smooth losses.

Linear (Hestenes and Stiefel, 1952): solves H w = c without ever forming H, one pass over the rows an iteration; outputs
run side by side, each with steps of its own. Non-linear: directions by Polak and Ribiere, never below 0, with a strong
Wolfe search (Nocedal and Wright, 2006, section 5.2). Both divide by the second moments of the features, so that units
do not matter.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from steepest.data.chunk import Array
from steepest.learners.batch import Step
from steepest.learners.batch_lbfgs import preconditioner, relative_change
from steepest.learners.batch_search import Point, search
from steepest.learners.objective import Objective

REFRESH = 50  # iterations after which the residual is computed anew, against rounding


class LinearCG:
    """State and step of linear conjugate gradients."""

    def __init__(self, objective: Objective) -> None:
        self.objective = objective
        self.scale = preconditioner(objective)
        self.w = objective.start()
        self.iterations = 0
        self.value, self.residual = self._evaluate()
        self.direction = np.zeros(objective.shape)
        self.square = self._square(self.residual)
        self.last_square = np.zeros(objective.n_outputs)
        self.first = float(self.square.sum())

    def _evaluate(self) -> tuple[float, Array]:
        value, gradient = self.objective.evaluate(self.w, curvature=True)
        return value, -gradient

    def _square(self, r: Array) -> Array:
        return np.asarray((r * r / self.scale).sum(axis=0))

    def step(self) -> Step:
        """One product with the Hessian."""
        before = self.w
        share = np.divide(self.square, self.last_square, out=np.zeros_like(self.square), where=self.last_square > 0)
        self.direction = self.residual / self.scale + share * self.direction
        product = self.objective.product(self.direction)
        bend = (self.direction * product).sum(axis=0)
        eta = np.divide(self.square, bend, out=np.zeros_like(bend), where=bend > 0)
        self.w = self.w + eta * self.direction
        # F falls by half of what the gradient promises: exact for a quadratic
        self.value -= 0.5 * float((eta * self.square).sum())
        self.last_square, self.iterations = self.square, self.iterations + 1
        if self.iterations % REFRESH:
            self.residual = self.residual - eta * product
        else:
            self.value, self.residual = self._evaluate()
        self.square = self._square(self.residual)
        left = math.sqrt(float(self.square.sum()) / self.first) if self.first > 0 else 0.0
        done = None if eta.any() else "the gradient is zero"
        return Step(self.value, left, float(eta.max()), relative_change(self.w, before), done)

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


class NonlinearCG:
    """State and step of non-linear conjugate gradients."""

    def __init__(self, objective: Objective) -> None:
        self.objective = objective
        self.scale = preconditioner(objective)
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
        return search(
            trial, Point(0.0, self.value, slope, self.w, self.gradient), self.eta, flatten=0.1, strong=True
        )

    @property
    def state(self) -> Mapping[str, Array]:
        """Weights, direction, and the numbers beside them."""
        return {"w": self.w, "direction": self.direction, "numbers": np.array([self.eta, self.first])}

    def restore(self, state: Mapping[str, Array]) -> None:
        """Goes on from there; value and gradient are found again."""
        self.w, self.direction = np.array(state["w"]), np.array(state["direction"])
        self.eta, self.first = (float(number) for number in state["numbers"])
        self.value, self.gradient = self.objective.evaluate(self.w)
