"""Columns of numbers as people write them (see written.py); anything else is missing.

All numbers of a column must have the same unit, since "10k" and "3M" are not 10 and 3: a survey refuses others.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from steepest.data.chunk import Array
from steepest.data.tables.columns import MISSING_MARKS
from steepest.features.written import read_number


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
        return read_number(value)[0]
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return float("nan")
