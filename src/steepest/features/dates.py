"""Dates and times as people write them, and their parts as numbers.

Read: 2024-03-01, 2024/3/1, 03/01/2024, 1.3.2024, each with or without a time (14:05, 14:05:10.5, 2:05 pm, with a T or a
space before it and a zone behind it, which is ignored); 1 Mar 2024, March 1st, 2024, Fri 01-Mar-24 and Mar-2024, its
first day; 20240301; and seconds or milliseconds since 1970. A field of four digits is the year. Dots mean day before
month; for slashes and dashes the survey decides by values above 12, and takes the month first where nothing shows.
Left out: names of months in other languages.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import date
from typing import Any

import numpy as np

from steepest.data.chunk import Array

YMD, MDY, DMY, COMPACT, EPOCH, EPOCH_MS = "ymd", "mdy", "dmy", "compact", "epoch", "epoch_ms"
PARTS = ("days", "year", "month", "day", "weekday", "hour")
DAY_SECONDS = 86_400
FORM = re.compile(
    r"\s*(\d{1,4})([-/.])(\d{1,2})\2(\d{1,4})"
    r"(?:[T ]\s*(\d{1,2}):(\d{2})(?::(\d{2})(?:[.,]\d+)?)?\s*([AaPp]\.?[Mm]\.?)?\s*(?:Z|UTC|[+-]\d{2}:?\d{2})?)?\s*"
)
MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
NAMED_FORM = re.compile(
    r"(?i)\s*(?:(?:mon|tue|wed|thu|fri|sat|sun)[a-z]*\.?,?\s+)?(?:(\d{1,2})(?:st|nd|rd|th)?[-/\s]+)?"
    rf"({'|'.join(MONTHS)})(?:uary|ruary|ch|il|e|y|ust|t|tember|ober|ember)?\.?"
    r"(?(1)|(?:[-/\s]+(\d{1,2})(?:st|nd|rd|th)?(?=[-/,\s]))?)[-/,\s]+(\d{4}|\d\d)(?!\d)"
)
COMPACT_FORM = re.compile(r"\s*(\d{4})(\d{2})(\d{2})(?:\.0)?\s*")
_EPOCH_DAY = date(1970, 1, 1).toordinal()
_SAYS_TIME = re.compile(r"(?<![a-z])(date|time|timestamp|epoch|datetime|created|updated|day|dt|ts)(?![a-z])")
# Seconds since 1970 of the years 1980 to 2100, for numbers that are called a time.
_LEAST_EPOCH, _MOST_EPOCH = 315_532_800, 4_102_444_800


def says_time(name: str) -> bool:
    """Whether the name of a column says that it holds a date or a time."""
    spaced = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower().replace("_", " ")
    return bool(_SAYS_TIME.search(spaced)) or spaced.endswith(("date", "time"))


def seconds_of(text: str, order: str) -> float:
    """Seconds since 1970 of one written date; NaN if it is none."""
    if order == COMPACT:
        found = COMPACT_FORM.fullmatch(text)
        return _seconds(*map(int, found.groups())) if found else float("nan")
    found = FORM.fullmatch(_numbered(text))
    if found is None:
        return float("nan")
    first, separator, second, third, hour, minute, second_of_minute, half = found.groups()
    if len(first) == 4:
        year, month, day = first, second, third
    elif len(third) < 4 and len(third) != 2:
        return float("nan")
    elif separator == "." or order == DMY:
        day, month, year = first, second, third
    else:
        month, day, year = first, second, third
    clock = int(hour or 0)
    if half:
        clock = clock % 12 + 12 * (half[0] in "Pp")
    return _seconds(_full_year(year), int(month), int(day), clock, int(minute or 0), int(second_of_minute or 0))


def _numbered(text: str) -> str:
    """A date with the name of its month in numbers: day.month.year; a month of a year is its first day."""
    found = NAMED_FORM.match(text)
    if found is None:
        return text
    before, month, after, year = found.groups()
    day = before or after or ("1" if len(year) == 4 else "")
    return f"{day}.{MONTHS.index(month.lower()) + 1}.{year}{text[found.end() :]}"


def _full_year(year: str) -> int:
    number = int(year)
    return number if len(year) > 2 else number + (2000 if number < 70 else 1900)


def _seconds(year: int, month: int, day: int, hour: int = 0, minute: int = 0, second: int = 0) -> float:
    try:
        days = date(year, month, day).toordinal() - _EPOCH_DAY
    except ValueError:
        return float("nan")
    if hour > 23 or minute > 59 or second > 60:
        return float("nan")
    return float(days * DAY_SECONDS + hour * 3600 + minute * 60 + second)


def parse(values: Iterable[Any], order: str) -> Array:
    """Seconds since 1970 of written dates, or of numbers under the orders "epoch", "epoch_ms" and "compact"."""
    known: dict[Any, float] = {None: float("nan")}
    found = []
    for value in values:
        seconds = known.get(value)
        if seconds is None:
            seconds = known[value] = _any_seconds(value, order)
        found.append(seconds)
    return np.array(found, np.float64)


def _any_seconds(value: Any, order: str) -> float:
    if order in (EPOCH, EPOCH_MS):
        try:
            return float(value) / (1000 if order == EPOCH_MS else 1)
        except (TypeError, ValueError):
            return float("nan")
    if isinstance(value, float) and value != value:
        return float("nan")
    if isinstance(value, float | int | np.number):
        value = str(int(value))
    return seconds_of(value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value), order)


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
