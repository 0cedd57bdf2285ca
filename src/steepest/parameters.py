"""Checks of parameters: each returns the value it accepts, or raises one sentence that names it and the way out."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from typing import Any

from steepest.errors import ParameterError

SMALLEST_STEP, LARGEST_STEP = 1e-30, 1e30
LARGEST_WHOLE = 1 << 53  # beyond which float64 has no exact whole numbers
MOST_THREADS = 1024  # beyond which a number of threads is a mistake, or forged
_SHOWN = 60  # letters of a value in a message
# Units of time, in seconds; each may be written with an "s" behind it.
_UNITS = {
    **dict.fromkeys(("s", "sec", "second"), 1.0),
    **dict.fromkeys(("m", "min", "minute"), 60.0),
    **dict.fromkeys(("h", "hour"), 3600.0),
    **dict.fromkeys(("d", "day"), 86400.0),
    **dict.fromkeys(("w", "week"), 604800.0),
}
# Names that other packages have for some of our choices.
ALSO_CALLED = {
    **dict.fromkeys(("logistic", "log_loss", "logloss", "cross_entropy", "sigmoid"), "log"),
    **dict.fromkeys(("squared_error", "squared_loss", "mse", "l2_loss"), "squared"),
    **dict.fromkeys(("svm", "linear_svm"), "hinge"),
}


def shown(value: Any) -> str:
    """A value from data for a message: one that was read from a damaged file may be as long as the file."""
    text = " ".join(repr(value).split())
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "..."


def choice(name: str, value: Any, choices: Sequence[str]) -> str:
    """One of a few words."""
    if isinstance(value, str) and value in choices:
        return value
    raise unknown(name, value, choices)


def unknown(name: str, value: Any, choices: Iterable[str]) -> ParameterError:
    """The error for a word that is not among the choices; a near one is proposed."""
    listed = list(choices)
    return ParameterError(
        f"{name}={value!r} is unknown; {did_you_mean(value, listed)}choose one of {', '.join(listed)}"
    )


def did_you_mean(word: Any, known: Iterable[Any], least: float = 0.6) -> str:
    """ "did you mean 'x'? " with the known word nearest to this one, in whatever case, or nothing if none is near."""
    from difflib import get_close_matches

    given = str(word)[:100].lower()
    by_lower = {str(other).lower(): str(other) for other in known if len(str(other)) <= 200}
    near = [other for other in (ALSO_CALLED.get(given),) if other in by_lower]
    near = near or get_close_matches(given, by_lower, n=1, cutoff=least)
    near = near or [other for other in by_lower if len(given) > 2 and (other.startswith(given) or given in other)][:1]
    return f"did you mean {by_lower[near[0]]!r}? " if near and by_lower[near[0]] != str(word) else ""


def number(name: str, value: Any) -> float:
    """Any number but NaN."""
    try:
        result = math.nan if isinstance(value, str | bytes) else float(value)
    except (TypeError, ValueError, OverflowError):
        result = math.nan
    if math.isnan(result):
        raise ParameterError(f"{name}={shown(value)} is not a number")
    return result


def seconds(name: str, value: str) -> float:
    """A length of time with its unit, such as "7 days" or "90s", in seconds."""
    found = re.fullmatch(r"\s*(\d+\.?\d*|\.\d+)\s*([a-z]+)\s*", value.lower())
    unit = "" if found is None else found[2]
    factor = _UNITS.get(unit) or _UNITS.get(unit.removesuffix("s"))
    if found is None or factor is None or not float(found[1]) > 0:
        raise ParameterError(
            f"{name}={shown(value)} is not a length of time; write a number and its unit: s, min, h, days or weeks"
        )
    return float(found[1]) * factor


def integer(name: str, value: Any) -> int:
    """A whole number of either sign."""
    result = number(name, value)
    if not abs(result) <= LARGEST_WHOLE:
        raise ParameterError(f"{name}={value!r} is too large; give at most {LARGEST_WHOLE:,}")
    if result != int(result):
        raise ParameterError(f"{name}={value!r} must be a whole number")
    return int(result)


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
    at_least(name, value, least)
    return integer(name, value)


def float_type(value: Any) -> str:
    """The parameter `dtype` as "float32" or "float64"; NumPy's types are accepted, too."""
    import numpy as np

    try:
        name = str(value if value is None else np.dtype(value))
    except (TypeError, ValueError):
        name = str(value)
    return choice("dtype", name, ("float32", "float64"))


def step_size(name: str, value: Any) -> float:
    """A first step size: beyond these bounds products with it would vanish or overflow."""
    result = more_than(name, value, 0.0)
    if not SMALLEST_STEP <= result <= LARGEST_STEP:
        raise ParameterError(f"{name}={value!r} must lie between {SMALLEST_STEP:g} and {LARGEST_STEP:g}")
    return result
