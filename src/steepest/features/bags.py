"""Bags of words: dicts from words to counts, {"free": 2, "cash": 1}, one per row or in a column of a table.

A bag is a text whose words were counted before: each word, as it is, gives the feature that it gives in a text, worth
its count, and the row is weighed and scaled as texts are; a word that is not in the dict gives nothing. So it differs
from a row of a table, where a missing value is a feature. A list of dicts is one or the other. The rule: these are bags
if all values are numbers and the keys are many (MANY_WORDS) of which a row has few (less than FILLED on average); rows
of a table have almost the same keys throughout.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from steepest.data.chunk import Array
from steepest.data.raw import spread
from steepest.data.tables.columns import Table, is_missing, python_values
from steepest.errors import DataError

MANY_WORDS = 32
FILLED = 0.25
SAMPLED = 2000


def is_bag_column(values: Any) -> bool:
    """Whether the first value of a column is a dict."""
    return type(values) is list and isinstance(next((v for v in values if v is not None), None), Mapping)


def looks_like_bags(rows: Sequence[Mapping[Any, Any]]) -> bool:
    """Whether dicts, one per row, are bags of words and not rows of a table, by a sample of them."""
    some = [row for place in spread(len(rows), SAMPLED) if isinstance(row := rows[place], Mapping)]
    n_values = sum(map(len, some))
    keys = {key for row in some for key in row}
    if len(keys) < MANY_WORDS or n_values >= FILLED * len(keys) * len(some):
        return False
    return all(isinstance(v, int | float | np.number) and v == v for row in some for v in row.values())


def rows_as_bags(table: Table) -> list[dict[str, Any]]:
    """The rows of a table as bags: what is not missing."""
    columns = {name: python_values(column) for name, column in table.columns.items()}
    return [{name: c[row] for name, c in columns.items() if c[row] is not None} for row in range(table.n_rows)]


def encode_bags(rows: Sequence[Any], name: str) -> tuple[list[str], Array, Array]:
    """(words of all rows, their counts, where each row starts), as the kernel takes them."""
    words: list[str] = []
    counts: list[float] = []
    starts = [0]
    for number, row in enumerate(rows):
        place = f"row {number}" + (f" of column {name!r}" if name else "")
        if not is_missing(row):
            if not isinstance(row, Mapping):
                raise DataError(f"{place} is {row!r:.60}, not a dict of words and counts, as all rows before are")
            there = {word: count for word, count in row.items() if not is_missing(count)}
            words += map(str, there)
            counts += [_count(count, word, place) for word, count in there.items()]
        starts.append(len(words))
    return words, np.array(counts, np.float64), np.array(starts, np.int64)


def _count(value: Any, word: Any, place: str) -> float:
    number = float(value) if isinstance(value, int | float | np.number | np.bool_) else math.nan
    if abs(number) < 1e38:
        return number
    raise DataError(
        f"{place} has {value!r:.60} as the count of {word!r:.60}; give finite numbers, or bags=False for tables"
    )
