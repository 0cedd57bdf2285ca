"""Line search: a step t along a direction that lowers F enough and flattens its slope (Wolfe's conditions).

F(t) <= F(0) + c1 t F'(0) and F'(t) >= c2 F'(0); with `strong` also F'(t) <= -c2 F'(0). A bracket is widened until it
holds such a step, then narrowed by cubic interpolation (Nocedal and Wright, "Numerical optimization", 2006, section
3.5). Near the minimum, where differences of F are lost in rounding, the slope alone decides (Hager and Zhang, 2005).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from steepest.data.chunk import Array

SUFFICIENT = 1e-4  # c1
ROUNDING = 1e-13
MOST_TRIALS = 40


@dataclass(slots=True)
class Point:
    """A step and what F is there."""

    t: float
    value: float
    slope: float
    w: Array
    gradient: Array


def search(
    trial: Callable[[float], Point], here: Point, t: float, *, flatten: float = 0.9, strong: bool = False
) -> Point | None:
    """The point of an acceptable step, or None if there is no descent left that rounding lets one see."""
    low, high = here, None
    best = None
    for _ in range(MOST_TRIALS):
        point = trial(t)
        if math.isfinite(point.value) and point.value < here.value and (best is None or point.value < best.value):
            best = point
        if not _descends(point, here):
            high = point
        elif point.slope < flatten * here.slope:
            low = point
        elif strong and point.slope > -flatten * here.slope:
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
    if point.value <= here.value + SUFFICIENT * point.t * here.slope:
        return True
    close = point.value <= here.value + ROUNDING * abs(here.value)
    return close and point.slope <= -(1 - 2 * SUFFICIENT) * here.slope


def _next(low: Point, high: Point | None) -> float:
    if high is None:
        return low.t * 4.0 if low.t > 0 else 1.0
    width = high.t - low.t
    if not math.isfinite(high.value):
        return low.t + 0.1 * width
    t = _cubic_minimum(low, high)
    return min(max(t, low.t + 0.05 * width), high.t - 0.05 * width)


def _cubic_minimum(a: Point, b: Point) -> float:
    """Where the cubic through both values and slopes is least."""
    d1 = a.slope + b.slope - 3.0 * (a.value - b.value) / (a.t - b.t)
    square = d1 * d1 - a.slope * b.slope
    if not square >= 0:
        return 0.5 * (a.t + b.t)
    d2 = math.copysign(math.sqrt(square), b.t - a.t)
    divisor = b.slope - a.slope + 2.0 * d2
    t = b.t - (b.t - a.t) * (b.slope + d2 - d1) / divisor if divisor else math.nan
    return t if math.isfinite(t) else 0.5 * (a.t + b.t)
