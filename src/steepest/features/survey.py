"""Kinds of columns, decided on a sample of rows.

Rules, in this order. Truth values and yes/no: category. Numbers: dates if the name says so and they look like it; ids
and codes by their name (category if values repeat, id if they do not); ids if no two of many rows agree where chance
would bring them together; else number. Strings: numbers as people write them, dates, lists of values between the same
separator, texts (a space on average, or long values with some punctuation), ids (almost all different), else category,
whose parts count too where `_`, `-` or `/` join them. A column with one value in all rows, or with
none at all, is constant. Small samples (below FEW_ROWS) leave nothing out. The user's word goes before all rules.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
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
    TRUTH_VALUES,
    arrow_codes,
    category_text,
    is_boolean,
    joined_lists,
    plain_numbers,
    python_values,
)
from steepest.features import dates, written_numbers
from steepest.features.columns import CONSTANT, DATE, ID, IGNORED, MARKED, Column
from steepest.features.written import EPOCH, YMD, read_number

FEW_ROWS = 50  # with fewer, nothing shows that a column is constant or an id
FEW_VALUES = 32  # a number with at most so many has a knot for each
MOST_KNOTS = 16
MANY, ALMOST_ALL = 0.25, 0.95
LONG = 24  # characters, on average, of values that are texts even without spaces
SHORT = 6  # ideographs of such
FEW_SPACES = 3.0  # on average: few different values with fewer are categories, such as "Private room"
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


def time_column(name: str, column: Any) -> Column:
    """The column with the times of the rows, which gives no features."""
    numbers = plain_numbers(column)
    if numbers is not None:
        order = dates.order_of_numbers(numbers[np.isfinite(numbers)], f"{name} date")
    else:
        written = (str(value) for value in python_values(column) if value is not None)
        order = dates.order_of([text for text in written if text.strip().lower() not in MISSING_MARKS], f"{name} date")
    return Column(name, IGNORED, format=order or EPOCH, reason="holds the times of rows")


def knots_of(numbers: Array) -> tuple[float, ...]:
    """Knots for finite numbers: their values if these are few, or else those at quantiles.

    All are values that occur, so that a column times a constant has the same hats.
    """
    ordered = np.sort(numbers)
    firsts = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1])) if len(ordered) else np.zeros(0, int)
    values = ordered[firsts]
    if len(values) < 2:
        return ()
    if len(values) <= FEW_VALUES:
        return tuple(values.tolist())
    counts = np.diff(np.append(firsts, len(ordered)))
    often = counts > len(ordered) / MOST_KNOTS  # such as zero: a knot each, and the others share the rest
    rest = ordered[~np.repeat(often, counts)]
    shares = np.linspace(0, 1, MOST_KNOTS)
    shares[[0, -1]] = OUTER, 1 - OUTER
    places = np.rint(shares * (len(rest) - 1)).astype(np.int64)
    return tuple(sorted({*values[often].tolist(), *rest[places].tolist()}))


def quantiles(ordered: Array, shares: Any) -> Array:
    """Quantiles of sorted numbers, as NumPy's by default, which takes ten times as long for short arrays."""
    return np.asarray(np.interp(np.asarray(shares) * (len(ordered) - 1), np.arange(len(ordered)), ordered))


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
        if _is_constant(base, n_rows):
            return [_left_out(base, CONSTANT)]
        unique = distinct >= ALMOST_ALL * max(len(there), 1) and n_rows >= FEW_ROWS
        order = dates.order_of_numbers(there, name)
        if order:
            return _of_dates(base, numbers.tolist(), order)
        if whole and _says_code(name) and (unique or distinct > 2):
            return [_left_out(base, ID) if unique else replace(base, kind=CATEGORY)]
        if whole and distinct == len(there) >= FEW_ROWS and _is_numbered(there) and not dates.says_time(name):
            return [_left_out(base, ID)]
    elif kind == DATE:
        order = dates.order_of_numbers(there, name + " date") or EPOCH
        return _of_dates(base, numbers.tolist(), order)
    return [_number_column(base, there)]


def _number_column(base: Column, there: Array) -> Column:
    if not len(there):
        return base
    low, high = quantiles(np.sort(there), [OUTER, 1 - OUTER])
    inner = np.minimum(np.maximum(there, low), high)
    scale = float(inner.std()) or float(there.std())
    centre = float(inner.mean())
    if not (math.isfinite(scale) and math.isfinite(centre)) or scale < 1e-30:
        centre, scale = (0.0, float(np.abs(there).max()) or 1.0) if len(there) > 1 else (0.0, 1.0)
    return replace(base, centre=centre, scale=scale, candidates=knots_of(there))


def _is_numbered(there: Array) -> bool:
    """Whether whole numbers that are all different would meet often if they were measured in their range."""
    return len(there) ** 2 / (2 * (float(there.max() - there.min()) + 1)) >= EXPECTED_COINCIDENCES


def _is_constant(column: Column, n_rows: int) -> bool:
    """Whether all rows have one value, or none has any; one value here and none there (belted, none) says something."""
    return n_rows >= FEW_ROWS and (column.distinct == 0 or (column.distinct == 1 and column.missing == 0))


def _left_out(column: Column, kind: str) -> Column:
    value = f"only {column.example!r}" if column.example else "no value at all"
    reason = f"has {value} in the sample" if kind == CONSTANT else "differs in almost every row"
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
    texts, codes = coded(column)
    if texts is None:
        return [_list_column(name, codes, BETWEEN_VALUES)]
    times = np.bincount(codes[codes >= 0], minlength=len(texts)).tolist() if len(texts) else []
    counts = dict(zip(texts, times, strict=True))
    known = {text: n for text, n in counts.items() if text.strip().lower() not in MISSING_MARKS - {"unknown"}}
    there = {text: n for text, n in known.items() if text.strip().lower() != "unknown"}
    n_rows, n_known = len(codes), sum(known.values())
    base = Column(name, CATEGORY, len(known), 1 - n_known / n_rows if n_rows else 0.0, _shown(next(iter(known), "")))

    boolean = bool(there) and all(text in TRUTH_VALUES for text in there)

    def rows() -> list[str | None]:
        return [texts[code] if code >= 0 else None for code in codes.tolist()]

    if kind in (TEXT, CATEGORY):
        return [replace(base, kind=kind, boolean=boolean and kind == CATEGORY)]
    if kind == LIST:
        return [_list_column(name, rows(), _separator(known) or LIST_SEPARATORS)]
    if kind == DATE:
        return _of_dates(base, rows(), dates.order_of(list(there)[:1000], name + " date") or YMD)
    if kind == NUMBER:
        numbers, _ = written_numbers.parse(rows())
        return [replace(part, format=MARKED) for part in _of_numbers(name, numbers, False, NUMBER)]
    if _is_constant(base, n_rows):
        return [_left_out(base, CONSTANT)]
    if boolean:
        return [replace(base, boolean=True)]
    if _is_typed(column):
        if all(isinstance(value, date) for value in python_values(column) if value is not None) and known:
            return _of_dates(base, rows(), YMD)
        return [base]
    if not there:
        return [base]
    marked = _marked_numbers(base, rows, there, n_rows)
    if marked:
        return marked
    if dates.order_of(list(there)[:200], name) and (order := dates.order_of(list(there), name)):
        return _of_dates(base, rows(), order)
    if separator := _separator(there):
        return [_list_column(name, rows(), separator)]
    found = _of_words(base, there, n_rows)
    return [found if found.kind == TEXT else replace(found, note=_note_on_numbers(there))]


def _note_on_numbers(there: Mapping[str, int]) -> str:
    """A note if many values are numbers but too many are not, as in a column that changes in the middle of a file."""
    some = list(there)[:: len(there) // 1000 + 1]
    plain = sum(there[value] for value in some if value.lstrip("-").replace(".", "", 1).isdigit())
    share = plain / max(sum(there[value] for value in some), 1)
    mixed = len(there) > FEW_VALUES and MANY <= share < ALMOST_ALL
    return f"{share:.0%} of the values are numbers, the others are not: all count as categories" if mixed else ""


def coded(column: Any) -> tuple[list[str] | None, Any]:
    """(different values as texts, number of each row's; -1 for none), or (None, joined lists) of a column of lists."""
    if hasattr(column, "type"):
        kind = str(column.type)
        if kind.startswith("dictionary"):
            column = column.cast(column.type.value_type)
        if kind in ("string", "large_string") and (found := arrow_codes(column)) is not None:
            return found
    values = python_values(column)
    if any(isinstance(value, list | tuple | set | np.ndarray) for value in values):
        return None, joined_lists(values)
    numbers: dict[str, int] = {}
    codes = [-1 if value is None else numbers.setdefault(_as_text(value), len(numbers)) for value in values]
    return list(numbers), np.array(codes, np.int64)


def _is_typed(column: Any) -> bool:
    """Whether values have types of their own, and are thus not to be read as if someone had written them."""
    if hasattr(column, "type"):
        kind = str(column.type)
        return "string" not in kind and "binary" not in kind
    return not all(isinstance(value, str | bytes) for value in python_values(column) if value is not None)


def _of_words(base: Column, there: Mapping[str, int], n_rows: int) -> Column:
    """Text, id or category."""
    some = list(there)[:1000]
    times = sum(there[value] for value in some)
    spaces = sum(value.count(" ") * there[value] for value in some) / times
    length = sum(len(value) * there[value] for value in some) / times
    total = sum(there.values())
    share = len(there) / total
    few = len(there) <= FEW_VALUES and n_rows >= FEW_ROWS and spaces < FEW_SPACES
    if spaces >= TEXT_SPACES and not few:
        return replace(base, kind=TEXT)
    wordy = sum(any(letter in "/_-.,:;?! " for letter in value) for value in some) >= len(some) / 2
    ideographs = sum("\u3040" <= letter <= "\u9fff" for value in some for letter in value) / len(some)
    if share > 0.5 and ((length >= LONG and wordy) or ideographs >= SHORT):
        return replace(base, kind=TEXT)
    if share >= ALMOST_ALL and n_rows >= FEW_ROWS:
        return _left_out(base, ID)
    return replace(base, format=_joiners(there))


def _marked_numbers(
    base: Column, rows: Callable[[], list[str | None]], there: Mapping[str, int], n_rows: int
) -> list[Column]:
    """A column of numbers, if almost all values are such and their spelling does not say that they are codes."""
    some = list(there)[:50]
    if sum(math.isnan(read_number(value)[0]) for value in some) > (1 - ALMOST_ALL) * len(some) + 2:
        return []
    found = {value: read_number(value) for value in there}
    good = {value: unit for value, (number, unit) in found.items() if number == number}
    n_there, n_good = sum(there.values()), sum(there[value] for value in good)
    units = Counter[str]()
    for value, unit in good.items():
        units[unit.lower()] += there[value]
    codes = any(len(value) > 1 and value[0] == "0" and value.isdigit() for value in there)
    # Whole numbers that were written as strings in a format that knows numbers are codes.
    plain = n_there == n_rows and all(value.isdigit() for value in there)
    mixed = len(units) > 1 and max(units.values()) < ALMOST_ALL * n_good  # 10k, 3M: not 10 and 3
    if not n_good or n_good < ALMOST_ALL * n_there or codes or plain or mixed:
        return []
    numbers, odd = written_numbers.parse(rows())
    note = f"read as numbers, such as {base.example!r}"
    if odd:
        note += f"; {odd:,} of {n_rows:,} sampled values are not numbers and count as missing"
    columns = _of_numbers(base.name, numbers, False, NUMBER if any(units) else "")  # what has a unit is not an id
    return [replace(c, format=MARKED, note=note, example=base.example) if c.kind == NUMBER else c for c in columns]


def _separator(there: Mapping[str, int]) -> str:
    """The separator of lists: in a third of the values, between short parts that come again and again."""
    texts = list(there)[:2000]
    for separator in LIST_SEPARATORS:
        with_it = sum(separator in value for value in texts)
        if with_it < max(len(texts) / 3, 2) or (separator == "," and any(" " in value for value in texts)):
            continue
        lists = [(there[value], [part.strip() for part in value.split(separator) if part.strip()]) for value in texts]
        parts = [part for _, found in lists for part in found]
        times = sum(n * len(found) for n, found in lists)  # rows count here: few lists may come often
        short = sum(map(len, parts)) <= LONG * len(parts)
        if short and len(set(parts)) < len(parts) and len(set(parts)) <= times / 2:
            return separator
    return ""


def _list_column(name: str, values: Sequence[Any], separators: str) -> Column:
    cut = re.compile("[" + re.escape(separators + BETWEEN_VALUES) + "]")
    there = [value for value in values if value is not None]
    lists = [[part.strip() for part in cut.split(value) if part.strip()] for value in set(there)]
    example = ", ".join(part.strip() for part in cut.split(there[0])) if there else ""
    missing = 1 - len(there) / max(len(values), 1)
    distinct = len({part for parts in lists for part in parts})
    return Column(name, LIST, distinct, missing, _shown(example), format=separators)


def _joiners(there: Mapping[str, int]) -> str:
    """What joins the words of categories, where these are many and their words come again in others."""
    if len(there) <= FEW_VALUES:
        return ""
    cut = re.compile("[" + re.escape(JOINERS) + "]")
    parts = [[part for part in cut.split(value) if part] for value in there]
    several = sum(len(words) > 1 for words in parts)
    words = [word for words in parts for word in words]
    return JOINERS if several >= len(parts) / 3 and len(set(words)) <= 0.75 * len(words) else ""


def _shown(value: str) -> str:
    example = " ".join(value[: 4 * LONGEST_EXAMPLE].split())
    return example if len(example) <= LONGEST_EXAMPLE else example[: LONGEST_EXAMPLE - 3] + "..."


def _as_text(value: Any) -> str:
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return value if isinstance(value, str) else str(category_text(value))
