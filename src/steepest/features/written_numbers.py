"""Numbers as people write them: 1,234.50, $120, 97%, 150,000km, (12) for -12; anything else is missing.

All numbers of a column must have the same unit, since "10k" and "3M" are not 10 and 3: a survey refuses others.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import numpy as np

from steepest.data.chunk import Array
from steepest.data.tables.columns import MISSING_MARKS

FORM = re.compile(
    r"\s*(?P<open>\()?\s*(?P<sign>[-+\u2212])?\s*(?P<currency>[$\u20ac\u00a3\u00a5\u20b9]|[A-Z]{3}(?=\s))?\s*(?P<inner>[-+])?"
    r"(?P<number>(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d*)?(?:[eE][-+]?\d+)?|\.\d+(?:[eE][-+]?\d+)?)"
    r"\s*(?P<unit>%|[$\u20ac\u00a3\u00a5\u20b9]|[A-Za-z\u00b0\u00b5][A-Za-z\u00b2\u00b3/\u00b0]{0,9})?\s*\)?\s*"
)


def read(text: str) -> tuple[float, str]:
    """(number, its currency and unit) of one value; (NaN, "") if it is not a number."""
    found = FORM.fullmatch(text)
    if found is None:
        return float("nan"), ""
    number = float(found["number"].replace(",", ""))
    negative = (found["sign"] or found["inner"] or "+") in "-\u2212" or bool(found["open"])
    return -number if negative else number, (found["currency"] or "") + (found["unit"] or "")


def parse(values: Iterable[Any]) -> tuple[Array, int]:
    """(numbers, how many values are neither a number nor a mark of a missing one)."""
    known: dict[Any, float] = {None: float("nan")}
    odd: dict[Any, bool] = {}
    found, n_odd = [], 0
    for value in values:
        value = str(value) if isinstance(value, list | dict) else value  # which are no numbers
        number = known.get(value)
        if number is None:
            number = known[value] = _number(value)
            odd[value] = number != number and str(value).strip().lower() not in MISSING_MARKS
        n_odd += odd.get(value, False)
        found.append(number)
    numbers = np.array(found, np.float64)
    return np.where(np.isfinite(numbers), numbers, np.nan), n_odd


def _number(value: Any) -> float:
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace")
    if isinstance(value, str):
        return read(value)[0]
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return float("nan")
