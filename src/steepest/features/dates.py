"""Columns of dates and times: how their values are written (see written.py), and their parts as numbers.

For slashes and dashes the survey decides by values above 12, and takes the month first where nothing shows.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import numpy as np

from steepest.data.chunk import Array
from steepest.features.written import COMPACT, DAY_SECONDS, DMY, EPOCH, EPOCH_MS, MDY, YMD, seconds_of

PARTS = ("days", "year", "month", "day", "weekday", "hour")
_SAYS_TIME = re.compile(r"(?<![a-z])(date|time|timestamp|epoch|datetime|created|updated|day|dt|ts)(?![a-z])")
# Seconds since 1970 of the years 1980 to 2100, for numbers that are called a time.
_LEAST_EPOCH, _MOST_EPOCH = 315_532_800, 4_102_444_800


def says_time(name: str) -> bool:
    """Whether the name of a column says that it holds a date or a time."""
    spaced = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower().replace("_", " ")
    return bool(_SAYS_TIME.search(spaced)) or spaced.endswith(("date", "time"))


def parse(values: Iterable[Any], order: str) -> Array:
    """Seconds since 1970 of written dates, or of numbers under the orders "epoch", "epoch_ms" and "compact"."""
    known: dict[Any, float] = {None: float("nan")}
    found = []
    for value in values:
        seconds = known.get(value)
        if seconds is None:
            seconds = known[value] = seconds_of(value, order)
        found.append(seconds)
    return np.array(found, np.float64)


def order_of(values: list[str], name: str) -> str:
    """The order of fields (such as "dmy") that fits almost all of the written values; "" if they are no dates."""
    for order in (MDY, DMY, *([COMPACT] if says_time(name) else [])):
        seconds = parse(values, order)
        if len(seconds) and np.mean(~np.isnan(seconds)) >= 0.95:
            year_first = all(re.match(r"\s*\d{4}.*\S", value) for value in values)
            return YMD if order == MDY and year_first else order
    return ""


def order_of_numbers(numbers: Array, name: str) -> str:
    """Like `order_of`, for numbers, which are dates only if the column's name suggests it."""
    if not says_time(name) or not len(numbers) or (numbers != np.trunc(numbers)).any():
        return ""
    if ((numbers >= _LEAST_EPOCH) & (numbers < _MOST_EPOCH)).all():
        return EPOCH
    if ((numbers >= 1000.0 * _LEAST_EPOCH) & (numbers < 1000.0 * _MOST_EPOCH)).all():
        return EPOCH_MS
    if ((numbers >= 1900_01_01) & (numbers <= 2100_12_31)).all():
        return COMPACT if not np.isnan(parse(numbers.tolist(), COMPACT)).any() else ""
    return ""


def part_of(seconds: Array, part: str) -> Array:
    """One part of each time as a number, NaN where there is none; days count from 1970-01-01, weekdays from Monday."""
    there = ~np.isnan(seconds)
    whole = np.where(there, seconds, 0)
    days = np.floor(whole / DAY_SECONDS)
    dates = days.astype(np.int64).astype("datetime64[D]")
    months = dates.astype("datetime64[M]")
    if part == "days":
        found: Any = whole / DAY_SECONDS
    elif part == "year":
        found = dates.astype("datetime64[Y]").astype(np.int64) + 1970
    elif part == "month":
        found = months.astype(np.int64) % 12 + 1
    elif part == "day":
        found = (dates - months.astype("datetime64[D]")).astype(np.int64) + 1
    elif part == "weekday":
        found = (days + 3) % 7
    else:
        found = np.floor(whole % DAY_SECONDS / 3600)
    return np.where(there, np.asarray(found, np.float64), np.nan)
