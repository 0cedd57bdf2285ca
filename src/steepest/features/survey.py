"""Kinds of columns, decided on a sample of rows.

Rules, in this order. Truth values and yes/no: category. Numbers: dates if the name says so and they look like it; ids
and codes by their name (category if values repeat, id if they do not); ids if no two of many rows agree where chance
would bring them together; else number. Strings: numbers as people write them, dates, lists of values between the same
separator, texts (a space on average, or long values with some punctuation), ids (almost all different), else category,
whose parts count too where `_`, `-` or `/` join them. A column with one value, or none, is constant. Small samples
(below FEW_ROWS) leave nothing out. The user's word goes before all rules.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import date
from typing import Any

import numpy as np

from steepest.data.chunk import Array
from steepest.data.tables.columns import (
    BETWEEN_VALUES,
    CATEGORY,
    LIST,
    MISSING_MARKS,
    NUMBER,
    TEXT,
    TEXT_SPACES,
    is_boolean,
    joined_lists,
    plain_numbers,
    python_values,
)
from steepest.features import dates, written_numbers
from steepest.features.columns import CONSTANT, DATE, ID, MARKED, Column

FEW_ROWS = 50  # with fewer, nothing shows that a column is constant or an id
FEW_VALUES = 32  # a number with at most so many has a knot for each
MOST_KNOTS = 16
ALMOST_ALL = 0.95
LONG = 24  # characters, on average, of values that are texts even without spaces
LONGEST_EXAMPLE = 32
OUTER = 0.001  # share of values on either side that do not count for centre and scale
LIST_SEPARATORS = "|;,"
JOINERS = "_-/ "
# A column with so many expected coincidences and none is numbered, not measured.
EXPECTED_COINCIDENCES = 10
_SAYS_CODE = re.compile(
    r"(?<![a-z])(id|ids|uid|uuid|guid|zip|zipcode|postcode|postal|code|key|phone|fips|index)(?![a-z])"
)


def survey_column(name: str, column: Any, *, crossed: bool = False, kind: str = "") -> list[Column]:
    """The column, and the parts that it is split into; `kind` is what the user named, or "" to decide."""
    numbers = None if is_boolean(column) else plain_numbers(column)
    if numbers is not None and kind in ("", NUMBER, DATE):
        found = _of_numbers(name, numbers, crossed, kind)
    else:
        found = _of_values(name, column, kind)
    return [replace(part, named=True) for part in found] if kind else found


def knots_of(numbers: Array) -> tuple[float, ...]:
    """Knots for finite numbers: their values if these are few and short; else frequent ones and rounded quantiles."""
    values = np.unique(numbers)
    if len(values) < 2:
        return ()
    if len(values) <= FEW_VALUES and all(float(f"{value:.3g}") == value or value == int(value) for value in values):
        return tuple(values.tolist())
    values, counts = np.unique(numbers, return_counts=True)
    heavy = values[counts > len(numbers) / MOST_KNOTS]  # such as zero: a knot each, and the others share the others
    others = numbers[~np.isin(numbers, heavy)]
    if not len(others):
        return tuple(heavy.tolist())
    shares = np.linspace(0, 1, MOST_KNOTS)
    shares[[0, -1]] = OUTER, 1 - OUTER
    knots = np.unique(np.quantile(others, shares))
    gap = float(np.median(np.diff(knots))) if len(knots) > 1 else float(np.ptp(values))
    digits = 1 - math.floor(math.log10(gap)) if 0 < gap < math.inf else 6
    rounded = np.unique([*heavy, *(round(float(knot), digits) for knot in knots)])
    return tuple(rounded[np.isfinite(rounded)].tolist())


def _says_code(name: str) -> bool:
    spaced = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name).replace("_", " ").lower()
    return bool(_SAYS_CODE.search(spaced)) or spaced.endswith(("zipcode", "postcode"))


def _of_numbers(name: str, numbers: Array, crossed: bool, kind: str = "", **more: Any) -> list[Column]:
    there = numbers[np.isfinite(numbers)]
    distinct = len(np.unique(there))
    n_rows = len(numbers)
    whole = bool((there == np.trunc(there)).all())
    base = Column(
        name,
        NUMBER,
        distinct,
        1 - len(there) / n_rows if n_rows else 0.0,
        f"{there[0]:.12g}" if len(there) else "",
        **more,
    )
    if not kind:
        if whole and crossed:  # whole numbers that the user crosses are ids
            return [replace(base, kind=CATEGORY)]
        if distinct <= 1 and n_rows >= FEW_ROWS:
            return [_left_out(base, CONSTANT)]
        unique = distinct >= ALMOST_ALL * max(len(there), 1) and n_rows >= FEW_ROWS
        order = dates.order_of_numbers(there, name)
        if order:
            return _of_dates(base, numbers.tolist(), order)
        if whole and _says_code(name) and (unique or distinct > 2):
            return [_left_out(base, ID) if unique else replace(base, kind=CATEGORY)]
        if whole and distinct == len(there) >= FEW_ROWS and _is_numbered(there):
            return [_left_out(base, ID)]
    elif kind == DATE:
        order = dates.order_of_numbers(there, name + " date") or dates.EPOCH
        return _of_dates(base, numbers.tolist(), order)
    return [_number_column(base, there)]


def _number_column(base: Column, there: Array) -> Column:
    if not len(there):
        return base
    low, high = np.quantile(there, [OUTER, 1 - OUTER])
    inner = np.clip(there, low, high)
    scale = float(inner.std()) or float(there.std())
    centre = float(inner.mean())
    if not (math.isfinite(scale) and math.isfinite(centre)) or scale < 1e-30:
        centre, scale = (0.0, float(np.abs(there).max()) or 1.0) if len(there) > 1 else (0.0, 1.0)
    return replace(base, centre=centre, scale=scale, candidates=knots_of(there))


def _is_numbered(there: Array) -> bool:
    """Whether whole numbers that are all different would meet often if they were measured in their range."""
    return len(there) ** 2 / (2 * (float(there.max() - there.min()) + 1)) >= EXPECTED_COINCIDENCES


def _left_out(column: Column, kind: str) -> Column:
    value = f"only {column.example!r}" if column.example else "no value at all"
    reason = f"has {value} in the sample" if kind == CONSTANT else "is different in almost every row"
    return replace(column, kind=kind, reason=reason)


def _of_dates(base: Column, values: Sequence[Any], order: str) -> list[Column]:
    """The date, and a column of numbers for each of its parts that varies."""
    seconds = dates.parse(values, order)
    found = [replace(base, kind=DATE, format=order)]
    for part in dates.PARTS:
        numbers = dates.part_of(seconds, part)
        there = numbers[~np.isnan(numbers)]
        distinct = len(np.unique(there))
        if distinct > 1 or (part == "days" and len(values) < FEW_ROWS):
            missing = 1 - len(there) / max(len(numbers), 1)
            derived = Column(f"{base.name}.{part}", NUMBER, distinct, missing, f"{there[0]:.6g}" if len(there) else "")
            derived = replace(derived, source=base.name, part=part, format=order)
            found.append(_number_column(derived, there))
    if len(found) == 1:
        return [_left_out(base, CONSTANT)]
    return found


def _of_values(name: str, column: Any, kind: str) -> list[Column]:
    values = python_values(column)
    if any(isinstance(value, list | tuple | set | np.ndarray) for value in values):
        return [_list_column(name, joined_lists(values), BETWEEN_VALUES)]
    typed = not all(isinstance(value, str) for value in values if value is not None)
    if typed and not kind and all(isinstance(value, date) for value in values if value is not None):
        kind = DATE  # a type of its own in Arrow and pandas
    if typed:
        values = [_as_text(value) for value in values]
    there = [value for value in values if value is not None and value.strip().lower() not in MISSING_MARKS]
    known = [
        value for value in values if value is not None and value.strip().lower() not in MISSING_MARKS - {"unknown"}
    ]
    counts = Counter(known)
    example = " ".join(known[0].split()) if known else ""
    example = example if len(example) <= LONGEST_EXAMPLE else example[: LONGEST_EXAMPLE - 3] + "..."
    base = Column(name, CATEGORY, len(counts), 1 - len(known) / len(values) if values else 0.0, example)
    if kind in (TEXT, CATEGORY):
        return [replace(base, kind=kind)]
    if kind == LIST:
        return [_list_column(name, values, _separator(known) or LIST_SEPARATORS)]
    if kind == DATE:
        return _of_dates(base, values, dates.order_of(there[:1000], name + " date") or dates.YMD)
    if kind == NUMBER:
        numbers, _ = written_numbers.parse(values)
        return [replace(part, format=MARKED) for part in _of_numbers(name, numbers, False, NUMBER)]
    if len(counts) <= 1 and len(values) >= FEW_ROWS:
        return [_left_out(base, CONSTANT)]
    return [base] if typed or not there else _of_strings(base, values, there, counts)


def _of_strings(base: Column, values: list[Any], there: list[str], counts: Counter[str]) -> list[Column]:
    marked = _marked_numbers(base, values, there)
    if marked:
        return marked
    order = dates.order_of(there[:200], base.name)
    if order and dates.order_of(there, base.name):
        return _of_dates(base, values, dates.order_of(there, base.name))
    if separator := _separator(there):
        return [_list_column(base.name, values, separator)]
    some = there[:1000]
    spaces = sum(value.count(" ") for value in some) / len(some)
    length = sum(map(len, some)) / len(some)
    share = len(counts) / len(there)
    wordy = sum(any(letter in "/_-.,:;?!" or letter == " " for letter in value) for value in some) >= len(some) / 2
    ideographs = sum("\u3040" <= letter <= "\u9fff" for value in some for letter in value) / len(some)
    if spaces >= TEXT_SPACES or (share > 0.5 and ((length >= LONG and wordy) or ideographs >= 6)):
        return [replace(base, kind=TEXT)]
    if share >= ALMOST_ALL and len(values) >= FEW_ROWS:
        return [_left_out(base, ID)]
    return [replace(base, format=_joiners(counts))]


def _marked_numbers(base: Column, values: list[Any], there: list[str]) -> list[Column]:
    """A column of numbers, if almost all values are such and their spelling does not say that they are codes."""
    if sum(written_numbers.read(value)[0] == written_numbers.read(value)[0] for value in there[:100]) < min(
        ALMOST_ALL * len(there[:100]), 90
    ):
        return []
    found = [written_numbers.read(value) for value in there]
    good = [(number, unit) for number, unit in found if number == number]
    units = {unit.lower() for _, unit in good if unit}
    codes = any(len(value) > 1 and value[0] == "0" and value.isdigit() for value in there)
    # Plain whole numbers that were written as strings in a format that knows numbers are codes.
    plain = len(there) == len(values) and all(value.isdigit() for value in there)
    if len(good) < ALMOST_ALL * len(there) or len(units) > 1 or codes or plain:
        return []
    if units and not all(u in "%$\u20ac\u00a3\u00a5\u20b9" for u in units) and len(units) == 1:
        with_unit = sum(bool(unit) for _, unit in good)
        if with_unit < ALMOST_ALL * len(good):
            return []
    numbers, odd = written_numbers.parse(values)
    note = f"read as numbers, such as {base.example!r}"
    if odd:
        note += f"; {odd:,} of {len(values):,} sampled values are not numbers and count as missing"
    columns = _of_numbers(base.name, numbers, False)
    return [replace(c, format=MARKED, note=note, example=base.example) if c.kind == NUMBER else c for c in columns]


def _separator(there: Sequence[str | None]) -> str:
    """The separator of lists: in a third of the values, between short parts that come again and again."""
    texts = [value for value in there if value]
    for separator in LIST_SEPARATORS:
        with_it = sum(separator in value for value in texts)
        if with_it < max(len(texts) / 3, 2):
            continue
        parts = [part.strip() for value in texts for part in value.split(separator) if part.strip()]
        short = sum(map(len, parts)) <= 24 * len(parts)
        if separator == "," and any(" " in value for value in texts):
            continue
        if short and len(set(parts)) <= len(parts) / 2:
            return separator
    return ""


def _list_column(name: str, values: Sequence[Any], separators: str) -> Column:
    cut = re.compile("[" + re.escape(separators + BETWEEN_VALUES) + "]")
    there = [value for value in values if value is not None]
    parts = {part.strip() for value in there for part in cut.split(value)} - {""}
    example = ", ".join(part.strip() for part in cut.split(there[0])) if there else ""
    example = example if len(example) <= LONGEST_EXAMPLE else example[: LONGEST_EXAMPLE - 3] + "..."
    missing = 1 - len(there) / max(len(values), 1)
    return Column(name, LIST, len(parts), missing, example, format=separators)


def _joiners(counts: Counter[str]) -> str:
    """What joins the words of categories, where these are many and their words come again in others."""
    if len(counts) <= FEW_VALUES:
        return ""
    cut = re.compile("[" + re.escape(JOINERS) + "]")
    parts = [[part for part in cut.split(value) if part] for value in counts]
    several = sum(len(words) > 1 for words in parts)
    words = [word for words in parts for word in words]
    return JOINERS if several >= len(parts) / 3 and len(set(words)) <= 0.75 * len(words) else ""


def _as_text(value: Any) -> str | None:
    if value is None:
        return None
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
