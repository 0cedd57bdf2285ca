"""Checks of parameters: each returns the value it accepts, or raises one sentence that names it and the way out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from steepest.errors import ParameterError

SMALLEST_STEP, LARGEST_STEP = 1e-30, 1e30


def choice(name: str, value: Any, choices: Sequence[str]) -> str:
    """One of a few words."""
    if isinstance(value, str) and value in choices:
        return value
    raise ParameterError(f"{name}={value!r} is unknown; choose one of {', '.join(choices)}")


def number(name: str, value: Any) -> float:
    """Any number but NaN."""
    try:
        result = float(value)
    except (TypeError, ValueError):
        raise ParameterError(f"{name}={value!r} is not a number") from None
    if math.isnan(result):
        raise ParameterError(f"{name}={value!r} is not a number")
    return result


def at_least(name: str, value: Any, least: float) -> float:
    """A finite number from `least` on."""
    result = number(name, value)
    if result < least or math.isinf(result):
        raise ParameterError(f"{name}={value!r} must be at least {least:g}")
    return result


def more_than(name: str, value: Any, bound: float) -> float:
    """A finite number above `bound`."""
    result = number(name, value)
    if not result > bound or math.isinf(result):
        raise ParameterError(f"{name}={value!r} must be more than {bound:g}")
    return result


def inside(name: str, value: Any, least: float, most: float) -> float:
    """A number in the open range."""
    result = number(name, value)
    if not least < result < most:
        raise ParameterError(f"{name}={value!r} must lie between {least:g} and {most:g}")
    return result


def whole(name: str, value: Any, least: int) -> int:
    """A whole number from `least` on."""
    result = at_least(name, value, least)
    if result != int(result):
        raise ParameterError(f"{name}={value!r} must be a whole number")
    return int(result)


def step_size(name: str, value: Any) -> float:
    """A first step size: beyond these bounds products with it would vanish or overflow."""
    result = more_than(name, value, 0.0)
    if not SMALLEST_STEP <= result <= LARGEST_STEP:
        raise ParameterError(f"{name}={value!r} must lie between {SMALLEST_STEP:g} and {LARGEST_STEP:g}")
    return result
