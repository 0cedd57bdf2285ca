"""Line search: a step t along a direction d that lowers F enough and flattens it (Wolfe's conditions).

With F(t) short for F(w + t d) and F'(t) for its derivative by t, an acceptable step has
F(t) <= F(0) + c1 t F'(0) and F'(t) >= c2 F'(0); with `strong` also F'(t) <= -c2 F'(0). A bracket is widened until it
holds such a step, then narrowed by cubic interpolation (Nocedal and Wright, "Numerical optimization", 2006, section
3.5). Near the minimum, where differences of F are lost in rounding, F' alone decides (Hager and Zhang, 2005).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from steepest.data.chunk import Array
from steepest.learners.batch.objective import Objective, dot
from steepest.learners.resumable import Resumable

SUFFICIENT = 1e-4  # c1
ROUNDING = 1e-13
MOST_TRIALS = 40


@dataclass(slots=True)
class Point:
    """A step and what F is there."""

    t: float
    value: float
    derivative: float  # by t
    w: Array
    gradient: Array


class Descent(Resumable):
    """The base of solvers that search along directions: their position and the first length of the gradient."""

    state_numbers = ("first_norm",)
    curvature: ClassVar[bool] = False  # whether evaluations prepare products with the Hessian

    def __init__(self, objective: Objective, start: Array | None = None) -> None:
        self.objective, self.scale = objective, objective.scale()
        self.first_norm = 0.0
        if objective.warm is not None and start is None:  # progress is counted from the cold start all the same
            self.w = objective.cold_start()
            self.value, self.gradient = objective.evaluate(self.w)
            self.first_norm = self.norm()
        self.w = objective.start() if start is None else start.copy()
        self.restored()
        self.first_norm = max(self.first_norm, self.norm())

    def norm(self) -> float:
        """Length of the (least sub-)gradient, each coordinate in its own scale."""
        return scaled_norm(self.objective.least_subgradient(self.w, self.gradient), self.scale)

    def restored(self) -> None:
        """Recomputes value and gradient."""
        self.value, self.gradient = self.objective.evaluate(self.w, curvature=self.curvature)


def search_along(
    objective: Objective,
    here: Point,
    direction: Array,
    t: float = 1.0,
    *,
    curvature: bool = False,
    flatten: float = 0.9,
    strong: bool = False,
) -> Point | None:
    """The point of an acceptable step along a direction, with t as the first guess.

    None if there is no descent left that rounding lets one see.
    """
    low, high = here, None
    best = None
    for _ in range(MOST_TRIALS):
        w = here.w + t * direction
        value, gradient = objective.evaluate(w, curvature=curvature)
        point = Point(t, value, dot(gradient, direction), w, gradient)
        if math.isfinite(point.value) and point.value < here.value and (best is None or point.value < best.value):
            best = point
        if not _descends(point, here):
            high = point
        elif point.derivative < flatten * here.derivative:
            low = point
        elif strong and point.derivative > -flatten * here.derivative:
            high = point
        else:
            return point
        if high is not None and abs(high.t - low.t) <= 1e-14 * max(1.0, high.t):
            break
        t = _next(low, high)
    return best


def _descends(point: Point, here: Point) -> bool:
    if not math.isfinite(point.value):
        return False
    if point.value <= here.value + SUFFICIENT * point.t * here.derivative:
        return True
    close = point.value <= here.value + ROUNDING * abs(here.value)
    return close and point.derivative <= -(1 - 2 * SUFFICIENT) * here.derivative


def _next(low: Point, high: Point | None) -> float:
    if high is None:
        return low.t * 4.0 if low.t > 0 else 1.0
    width = high.t - low.t
    if not math.isfinite(high.value):
        return low.t + 0.1 * width
    t = _cubic_minimum(low, high)
    return min(max(t, low.t + 0.05 * width), high.t - 0.05 * width)


def _cubic_minimum(a: Point, b: Point) -> float:
    """The minimum of the cubic through the values and derivatives at both ends."""
    d1 = a.derivative + b.derivative - 3.0 * (a.value - b.value) / (a.t - b.t)
    square = d1 * d1 - a.derivative * b.derivative
    if not square >= 0:
        return 0.5 * (a.t + b.t)
    d2 = math.copysign(math.sqrt(square), b.t - a.t)
    divisor = b.derivative - a.derivative + 2.0 * d2
    t = b.t - (b.t - a.t) * (b.derivative + d2 - d1) / divisor if divisor else math.nan
    return t if math.isfinite(t) else 0.5 * (a.t + b.t)


def relative_change(new: Array, old: Array) -> float:
    """|new - old| / |new|."""
    size, change = math.sqrt(dot(new, new)), new - old
    return math.sqrt(dot(change, change)) / size if size > 0 else 0.0


def scaled_norm(gradient: Array, scale: Array) -> float:
    """The length of a gradient, each coordinate in its own scale."""
    return math.sqrt(dot(gradient, gradient / scale))
