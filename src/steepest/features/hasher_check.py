"""Is the state of a hasher in a file one that a hasher could have written? Asked before anything is built from it.

As `learners.state_check` for learners: types, ranges, and sizes against the arrays that the file holds. What is wrong
is a ValueError of one sentence.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import fields
from itertools import pairwise
from typing import Any

import numpy as np

from steepest.data.chunk import Array
from steepest.features import dates
from steepest.features.columns import CONSTANT, DATE, ID, IGNORED, USED, Column

MOST_COLUMNS = 1 << 20
MOST_KNOTS = 1 << 10
MOST_ROWS = 1 << 53
LARGEST = 1e300
TYPES: dict[str, Any] = {"str": str, "int": int, "float": (int, float), "bool": bool, "tuple[float, ...]": tuple}


def check_columns(columns: Sequence[Column], n_inputs: Any, crosses: Any) -> None:
    """Raises unless columns have known kinds, valid values and unique names, and crosses name existing columns."""
    if not 0 < len(columns) <= MOST_COLUMNS:
        raise ValueError(f"{len(columns)} columns")
    for column in columns:
        _check_column(column)
    names = {column.name for column in columns}
    if len(names) != len(columns):
        raise ValueError("two columns have the same name")
    _whole("the number of columns read", n_inputs, 1, MOST_COLUMNS)
    used = {column.name for column in columns if column.used}
    for pair in crosses:
        if not all(isinstance(name, str) and name in used for name in pair) or len(pair) != 2:
            raise ValueError(f"{pair!r} are not two columns that give features"[:200])


def _check_column(column: Column) -> None:
    for field in fields(column):
        value = getattr(column, field.name)
        of_type = isinstance(value, TYPES[str(field.type)])
        if not of_type or (isinstance(value, bool) and field.type != "bool"):
            raise ValueError(f"{field.name} of a column is {value!r}"[:200])
    if column.kind not in (*USED, DATE, CONSTANT, ID, IGNORED):
        raise ValueError(f"a column is of the kind {column.kind!r}"[:200])
    if column.part and column.part not in dates.PARTS:
        raise ValueError(f"a column is the part {column.part!r} of a date"[:200])
    numbers = (column.centre, column.scale, column.missing, *column.knots, *column.candidates)
    if not all(type(number) in (int, float) and abs(number) <= LARGEST for number in numbers):
        raise ValueError(f"column {column.name!r} has numbers that are not finite"[:200])
    if not column.scale > 0 or not math.isfinite(1 / column.scale):
        raise ValueError(f"column {column.name!r} has the scale {column.scale}"[:200])
    for knots in (column.knots, column.candidates):
        if len(knots) > MOST_KNOTS or any(b <= a for a, b in pairwise(knots)):
            raise ValueError(f"column {column.name!r} has knots that do not ascend"[:200])


def check_counts(counts: Any, n_documents: Any, n_buckets: int) -> None:
    """Raises unless there is one row count per bucket, at most the number of rows."""
    if not isinstance(counts, np.ndarray) or counts.shape != (n_buckets,) or counts.dtype.kind not in "iu":
        raise ValueError("document_counts do not belong to the features")
    _whole("the number of rows counted", n_documents, 0, MOST_ROWS)
    if len(counts) and not 0 <= int(counts.min()) <= int(counts.max()) <= n_documents:
        raise ValueError("document_counts are larger than the number of rows")


def check_buckets(buckets: Array, n_features: int) -> None:
    """Raises unless all names belong to existing features."""
    if len(buckets) and int(buckets.max()) >= n_features:
        raise ValueError(f"a name belongs to feature {int(buckets.max())} of {n_features}")


def check_misfits(misfits: Any) -> None:
    """Raises unless misfits are counted by column name."""
    if not isinstance(misfits, Mapping):
        raise ValueError("misfits are not an object")
    for name, n in misfits.items():
        _whole(f"the number of misfits in {name!r}"[:100], n, 0, MOST_ROWS)


# A book of names has room for newcomers, so that it is larger than what a file holds of it.
BOOK_ALLOWANCE, BOOK_GROWTH, BYTES_PER_NAME = 128 << 20, 1024, 540


def check_names(size: int, state: Mapping[str, Array]) -> None:
    """Raises if the room for names is larger than the names in the file explain."""
    stored = sum(np.asarray(state[part]).nbytes for part in ("numbers", "texts") if part in state)
    if size * BYTES_PER_NAME > BOOK_ALLOWANCE + BOOK_GROWTH * stored:
        raise ValueError(f"room for {size} names, and {stored} bytes of them")


def _whole(what: str, number: Any, least: int, most: int) -> None:
    if type(number) is not int or not least <= number <= most:
        raise ValueError(f"{what} is {number!r}"[:200])
