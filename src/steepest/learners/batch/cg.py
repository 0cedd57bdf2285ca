"""Conjugate gradients: linear for the squared loss, whose gradient is linear; non-linear for other smooth losses.

Linear (Hestenes and Stiefel, 1952): solves H w = c without ever forming H, one pass over the rows per iteration;
outputs run side by side, each with steps of its own. Non-linear: directions by Polak and Ribiere, never below 0, with a
strong Wolfe search (Nocedal and Wright, 2006, section 5.2). Both divide by the second moments of the features, of
sparse data by a power of them, so that units matter less or not at all.
"""

from __future__ import annotations

import math

import numpy as np

from steepest.data.chunk import Array
from steepest.learners.batch.objective import Objective
from steepest.learners.batch.search import Point, relative_change, scaled_norm, search_along
from steepest.learners.batch.solvers import Solver, SolverOptions, Step, share_of
from steepest.learners.resumable import Resumable

# Of the features' second moments, if data is sparse. Iterations to 1e-3 and 1e-6 by powers 1/2, 3/4 and 1: generated
# ridge with a million columns 10 18, 5 10, 4 8; RCV1's shape 6 11, 6 11, 6 13; news20 11 21, 10 21, 11 27.
SCALE_POWER = 0.75
REFRESH = 50  # iterations after which the residual is computed anew, against rounding


def make_cg(objective: Objective, options: SolverOptions) -> Solver:
    """Linear where the objective is a quadratic, non-linear otherwise."""
    quadratic = objective.settings.loss == "squared" and not objective.p
    return LinearCG(objective) if quadratic else NonlinearCG(objective)


class LinearCG(Resumable):
    """State and step of linear conjugate gradients."""

    state_arrays = ("w", "residual", "direction", "square", "last_square")
    state_numbers = ("value", "first", "iterations")

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

    def restored(self) -> None:
        """Recomputes the scaled residual; the curvature of the squared loss is constant, so no pass is needed."""
        np.divide(self.residual, self.scale, out=self._scaled)


def _dots(a: Array, b: Array) -> Array:
    """The product of each output's column with its own."""
    if a.shape[1] == 1:
        return np.atleast_1d(np.einsum("i,i", a[:, 0], b[:, 0]))
    return np.asarray(np.einsum("ij,ij->j", a, b))


class NonlinearCG(Resumable):
    """State and step of non-linear conjugate gradients."""

    state_arrays = ("w", "direction")
    state_numbers = ("eta", "first")

    def __init__(self, objective: Objective) -> None:
        self.objective = objective
        self.scale = objective.scale()
        self.w = objective.start()
        self.value, self.gradient = objective.evaluate(self.w)
        self.direction = -self.gradient / self.scale
        self.eta = 1.0
        self.first = scaled_norm(self.gradient, self.scale)

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
        derivative = float(np.vdot(old, self.direction))
        self.w, self.value, self.gradient = point.w, point.value, point.gradient
        steepest = self.gradient / self.scale
        share = float(np.vdot(steepest, self.gradient - old)) / float(np.vdot(old, old / self.scale))
        self.direction = -steepest + max(0.0, share) * self.direction
        new_derivative = float(np.vdot(self.gradient, self.direction))
        if not new_derivative < 0:
            self.direction = -steepest
            new_derivative = float(np.vdot(self.gradient, self.direction))
        # the first guess promises the same gain as the last step
        self.eta = point.t * min(10.0, derivative / new_derivative) if new_derivative < 0 else 1.0
        return Step(self.value, self._left(), point.t, moved)

    def _left(self) -> float:
        return share_of(scaled_norm(self.gradient, self.scale), self.first)

    def _search(self) -> Point | None:
        derivative = float(np.vdot(self.gradient, self.direction))
        if not derivative < 0:
            return None
        here = Point(0.0, self.value, derivative, self.w, self.gradient)
        return search_along(self.objective, here, self.direction, self.eta, flatten=0.1, strong=True)

    def restored(self) -> None:
        """Recomputes value and gradient."""
        self.value, self.gradient = self.objective.evaluate(self.w)
