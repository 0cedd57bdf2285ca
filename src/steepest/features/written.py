"""Numbers and dates as people write them, one at a time. Needs nothing but Python: exports carry this file with them.

Numbers: 1,234.50, $120, 97%, 150,000km, (12) for -12. Dates: 2024-03-01, 2024/3/1, 03/01/2024, 1.3.2024, each with or
without a time (14:05, 14:05:10.5, 2:05 pm, with a T or a space before it and a zone behind it, which is ignored); 1 Mar
2024, March 1st, 2024, Fri 01-Mar-24 and Mar-2024, its first day; 20240301; and seconds or milliseconds since 1970. A
field of four digits is the year. Dots mean day before month. Left out: names of months in other languages.
"""

from __future__ import annotations

import math
import re
from datetime import date
from numbers import Real
from typing import Any

YMD, MDY, DMY, COMPACT, EPOCH, EPOCH_MS = "ymd", "mdy", "dmy", "compact", "epoch", "epoch_ms"
DAY_SECONDS = 86_400
MOST_DIGITS = 1e12  # a number beyond is no date
NUMBER = re.compile(
    r"\s*(?P<open>\()?\s*(?P<sign>[-+\u2212])?\s*(?P<currency>[$\u20ac\u00a3\u00a5\u20b9]|[A-Z]{3}(?=\s))?\s*(?P<inner>[-+])?"
    r"(?P<number>(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d*)?(?:[eE][-+]?\d+)?|\.\d+(?:[eE][-+]?\d+)?)"
    r"\s*(?P<unit>%|[$\u20ac\u00a3\u00a5\u20b9]|[A-Za-z\u00b0\u00b5][A-Za-z\u00b2\u00b3/\u00b0]{0,9})?\s*\)?\s*"
)
DATE = re.compile(
    r"\s*(\d{1,4})([-/.])(\d{1,2})\2(\d{1,4})"
    r"(?:[T ]\s*(\d{1,2}):(\d{2})(?::(\d{2})(?:[.,]\d+)?)?\s*([AaPp]\.?[Mm]\.?)?\s*(?:Z|UTC|[+-]\d{2}:?\d{2})?)?\s*"
)
MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
NAMED_DATE = re.compile(
    r"(?i)\s*(?:(?:mon|tue|wed|thu|fri|sat|sun)[a-z]*\.?,?\s+)?(?:(\d{1,2})(?:st|nd|rd|th)?[-/\s]+)?"
    rf"({'|'.join(MONTHS)})(?:uary|ruary|ch|il|e|y|ust|t|tember|ober|ember)?\.?"
    r"(?(1)|(?:[-/\s]+(\d{1,2})(?:st|nd|rd|th)?(?=[-/,\s]))?)[-/,\s]+(\d{4}|\d\d)(?!\d)"
)
DAY_IN_DIGITS = re.compile(r"\s*(\d{4})(\d{2})(\d{2})(?:\.0)?\s*")


def read_number(text: str) -> tuple[float, str]:
    """(number, its currency and unit) of one value; (NaN, "") if it is not a number."""
    found = NUMBER.fullmatch(text)
    if found is None:
        return math.nan, ""
    number = float(found["number"].replace(",", ""))
    negative = (found["sign"] or found["inner"] or "+") in "-\u2212" or bool(found["open"])
    return -number if negative else number, (found["currency"] or "") + (found["unit"] or "")


def seconds_of(value: Any, order: str) -> float:
    """Seconds since 1970 of a date, or of a number under the orders "epoch", "epoch_ms" and "compact"; NaN if none."""
    if order in (EPOCH, EPOCH_MS):
        try:
            return float(value) / (1000 if order == EPOCH_MS else 1)
        except (TypeError, ValueError):
            return math.nan
    is_number = isinstance(value, Real)
    if is_number:
        value = str(int(value)) if abs(value) < MOST_DIGITS else ""  # NaN, too, has no digits
    text = value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
    if order == COMPACT:
        found = DAY_IN_DIGITS.fullmatch(text)
        return _seconds(*map(int, found.groups())) if found else math.nan
    found = DATE.fullmatch(_numbered(text))
    if found is None:
        return math.nan
    first, separator, second, third, hour, minute, second_of_minute, half = found.groups()
    if len(first) == 4:
        year, month, day = first, second, third
    elif len(third) not in (2, 4):
        return math.nan
    elif separator == "." or order == DMY:
        day, month, year = first, second, third
    else:
        month, day, year = first, second, third
    clock = int(hour or 0) % 12 + 12 * (half[0] in "Pp") if half else int(hour or 0)
    full = int(year) + (0 if len(year) > 2 else 2000 if int(year) < 70 else 1900)
    return _seconds(full, int(month), int(day), clock, int(minute or 0), int(second_of_minute or 0))


def _numbered(text: str) -> str:
    """A date with the name of its month in numbers: day.month.year; a month of a year is its first day."""
    found = NAMED_DATE.match(text)
    if found is None:
        return text
    before, month, after, year = found.groups()
    day = before or after or ("1" if len(year) == 4 else "")
    return f"{day}.{MONTHS.index(month.lower()) + 1}.{year}{text[found.end() :]}"


def _seconds(year: int, month: int, day: int, hour: int = 0, minute: int = 0, second: int = 0) -> float:
    try:
        days = date(year, month, day).toordinal() - date(1970, 1, 1).toordinal()
    except ValueError:
        return math.nan
    fits = hour <= 23 and minute <= 59 and second <= 60
    return float(days * DAY_SECONDS + hour * 3600 + minute * 60 + second) if fits else math.nan
