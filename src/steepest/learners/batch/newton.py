"""Newton's method with conjugate gradients: H d = -g is solved roughly, by products with H only, then searched along.

Each product is one pass over the rows; where features are few and rows short, the Hessian is formed in one pass, and
products with it are as good as free. The inner solution stops when its residual is a share of the gradient that
falls with it (Dembo and Steihaug, 1983), so that convergence ends superlinear. It is preconditioned by the diagonal of
H, or, if data is sparse, by the objective's scale, which costs no pass and was measured to be better; after a few
products by the Hessian of the heaviest features (preconditioner.py). Where a loss is flat, H is lifted a little, so
that d stays finite. A direction depends on w only, so that a run can be resumed.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import numpy as np

from steepest.data.chunk import Array
from steepest.learners.batch.objective import dot
from steepest.learners.batch.preconditioner import HeavyHessian
from steepest.learners.batch.search import Descent, Point, relative_change, search_along
from steepest.learners.batch.solvers import Step, share_of

MOST_INNER = 250
# Early directions are rough: this many products with the diagonal as preconditioner, before a better one is made.
EARLY, FEW_INNER = 0.1, 8
LARGEST_SHARE = 0.3  # of the gradient that the inner solution may leave
FORMED_SHARE = 0.01  # of that share, where products cost no pass
LIFT = 1e-10  # times the diagonal, added to H where there is no penalty


class NewtonCG(Descent):
    """State and step of the truncated Newton method."""

    curvature = True

    def step(self) -> Step:
        """One Newton direction and a search along it."""
        norm = self.norm()
        if norm == 0:
            return Step(self.value, 0.0, 0.0, 0.0, "the gradient is zero")
        left = norm / self.first_norm if self.first_norm > 0 else 1.0
        direction = self._direction(min(LARGEST_SHARE, math.sqrt(left)), FEW_INNER if left > EARLY else 0)
        point = self._search(direction)
        if point is None:
            point = self._search(-self.gradient / self.scale)
        if point is None:
            return Step(self.value, left, 0.0, 0.0, "no step lowers the objective any more")
        moved = relative_change(point.w, self.w)
        self.w, self.value, self.gradient = point.w, point.value, point.gradient
        return Step(self.value, share_of(self.norm(), self.first_norm), point.t, moved)

    def _direction(self, share: float, few: int) -> Array:
        objective = self.objective
        product: Callable[[Array], Array] = objective.product
        diagonal = self.scale
        if objective.forms_hessian:
            share *= FORMED_SHARE
            product, diagonal = _formed(objective.hessian())
        elif not objective.sparse:
            diagonal = objective.diagonal()
        lift = LIFT * diagonal
        precondition: Callable[[Array], Array] = functools.partial(_divided, by=diagonal)
        d = np.zeros(self.objective.shape)
        r = -self.gradient
        z = precondition(r)
        p = z.copy()
        rz = dot(r, z)
        stop = share * share * rz
        for inner in range(MOST_INNER):
            if inner == few and (better := self._preconditioner()) is not None:
                precondition = better
                p = z = precondition(r)
                rz, stop = dot(r, z), share * share * dot(self.gradient, precondition(self.gradient))
            bent = product(p) + lift * p
            bend = dot(p, bent)
            if not bend > 0:
                break
            eta = rz / bend
            d += eta * p
            r -= eta * bent
            z = precondition(r)
            new = dot(r, z)
            if new <= stop:
                break
            p = z + (new / rz) * p
            rz = new
        return d if d.any() else -self.gradient / diagonal

    def _preconditioner(self) -> Callable[[Array], Array] | None:
        """The inverse of the Hessian of the heaviest features; None where it cannot be had, or all of it is formed."""
        objective = self.objective
        data = objective.data
        if not data.in_memory or objective.forms_hessian or objective.p or objective.smooth_one_norm is not None:
            return None
        data.heavy = data.heavy or HeavyHessian(data, objective.n_outputs)
        factored: Callable[[Array], Array] | None = data.heavy.preconditioner(objective)
        return factored

    def _search(self, direction: Array) -> Point | None:
        derivative = dot(self.gradient, direction)
        if not derivative < 0:
            return None
        here = Point(0.0, self.value, derivative, self.w, self.gradient)
        point = search_along(self.objective, here, direction, curvature=True)
        at = self.objective.curvature_at
        if point is not None and (at is None or not np.array_equal(at, point.w)):  # the last trial was another point
            self.objective.evaluate(point.w, curvature=True)
        return point


def _divided(r: Array, by: Array) -> Array:
    return r / by


def _formed(hessian: Array) -> tuple[Callable[[Array], Array], Array]:
    """Products with one matrix per output, and the diagonal; one where a weight has no influence."""
    diagonal = np.ascontiguousarray(np.diagonal(hessian, axis1=1, axis2=2).T)

    def product(v: Array) -> Array:
        return np.ascontiguousarray((hessian @ v.T[:, :, None])[:, :, 0].T)

    return product, np.where(diagonal > 0, diagonal, 1.0)
