"""Columns of a Spark DataFrame to chunks, batch by batch, in the executors.

What may hold the features: a pair of array columns (whole numbers, and values beside them), an MLlib vector, an array
of numbers, several columns of numbers, text and categorical columns for a hasher, or lines of libsvm. pyspark is not
needed here: batches are Arrow's, and kinds of columns are inferred from Spark's names of their types.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from steepest.data.chunk import Array, Chunk
from steepest.data.readers.libsvm import read_lines
from steepest.data.source import as_weights, from_arrays
from steepest.errors import DataError
from steepest.features.hasher import Hasher

NUMBERS = ("tinyint", "smallint", "int", "bigint", "float", "double", "boolean")
WHOLE = ("tinyint", "smallint", "int", "bigint", "boolean")
PLAIN = (*NUMBERS, "string")
LINE = "value"  # the column of spark.read.text
SHOWN = 200  # characters of a bad row in a message


@dataclass(frozen=True, slots=True)
class Columns:
    """Which columns hold what; `kind` is "sparse", "vector", "dense", "numbers", "hashed" or "libsvm"."""

    kind: str
    features: tuple[str, ...]
    label: str | None = None
    label_type: str = "double"
    weight: str | None = None
    n_features: int | None = None
    hasher: Hasher | None = None
    zero_based: bool = False

    @property
    def names(self) -> list[str]:
        """All columns that are read."""
        beside = (name for name in (self.label, self.weight) if name is not None)
        return list(dict.fromkeys((*self.features, *beside)))

    @property
    def text_labels(self) -> bool:
        """Whether labels are words."""
        return self.kind != "libsvm" and self.label_type == "string"

    def read(self, batch: Any) -> Chunk:
        """The rows of an Arrow batch; a bad one is refused by what is in it."""
        chunk: Chunk = read_rows(self._read, batch)
        return chunk

    def _read(self, batch: Any) -> Chunk:
        chunk = READERS[self.kind](self, batch)
        if self.kind == "libsvm":
            return chunk
        y = None
        if self.label is not None and self.label_type == "string":
            y = np.asarray(without_nulls(batch, self.label).to_pylist(), dtype=str)
        elif self.label is not None:
            y = numbers_of(batch, self.label)
        return replace(chunk, y=y, weight=None if self.weight is None else weights_of(batch, self.weight))


class BadRowError(DataError):
    """A row that cannot be read: its place in the batch, what is wrong, and the row as far as it can be shown."""

    def __init__(self, row: int, fault: str, batch: Any) -> None:
        super().__init__(fault)
        values = {name: batch.column(name)[row].as_py() for name in batch.schema.names}
        text = ", ".join(f"{name}={value!r}" for name, value in values.items())
        self.row, self.fault = row, fault
        self.shown = text if len(text) <= SHOWN else text[:SHOWN] + "..."


BAD = (DataError, TypeError, ValueError, OverflowError)  # what a reader raises


def read_rows(read: Callable[[Any], Any], batch: Any) -> Any:
    """What a reader makes of a batch; a row that it cannot read is found and shown."""
    try:
        return read(batch)
    except BAD as error:
        for row in range(batch.num_rows if batch.num_rows > 1 else 0):
            try:
                read(batch.slice(row, 1))
            except BAD as first:
                raise BadRowError(row, str(first), batch) from None
        raise BadRowError(0, str(error), batch) from None


def columns_of(
    types: Mapping[str, str],
    features: str | Sequence[str] | None,
    label: str | None,
    weight: str | None,
    *,
    hashes: bool,
    n_features: int | None = None,
) -> Columns:
    """How to read a DataFrame with these columns and types (as `DataFrame.dtypes` names them)."""
    if features is None:
        features = [name for name in types if name not in (label, weight)]
    names = (features,) if isinstance(features, str) else tuple(features)
    check_columns(types, [*(("features", name) for name in names), ("label", label), ("weight", weight)])
    if not names:
        raise DataError("features=[] names no column; give at least one")
    label_type = "double" if label is None else types[label]
    if label_type != "string" and not is_number(label_type):
        raise DataError(f"the label column {label!r} is of type {label_type}; give numbers or strings")
    kind = _kind(names, [types[name] for name in names], hashes)
    return Columns(kind, names, label, label_type, weight, n_features)


def _kind(names: tuple[str, ...], types: list[str], hashes: bool) -> str:
    inner = [re.fullmatch(r"array<(\w+)>", kind) for kind in types]
    if len(types) == 2 and all(match and match[1] in NUMBERS for match in inner):
        if inner[0] is not None and inner[0][1] not in WHOLE:
            raise DataError(
                f"features={list(names)!r}: the first of two array columns holds the places, which are whole numbers, "
                f"but {names[0]!r} is {types[0]}; swap them, or cast it to array<int>"
            )
        return "sparse"
    if len(types) == 1 and types[0] in ("vector", "udt") and not hashes:
        return "vector"
    if len(types) == 1 and inner[0] is not None and inner[0][1] in NUMBERS and not hashes:
        return "dense"
    if all(map(is_number, types)) and not hashes:
        return "numbers"
    for name, kind in zip(names, types, strict=True):
        if kind != "string" and not is_number(kind):
            raise DataError(
                f"features={list(names)!r}: the column {name!r} is of type {kind}; give one vector or array column, "
                "two array columns (places and values), or columns of numbers and strings"
            )
    return "hashed"


def is_number(kind: str) -> bool:
    """Whether a column of this type holds numbers."""
    return kind in NUMBERS or kind.startswith("decimal")


def check_columns(types: Mapping[str, str], roles: Iterable[tuple[str, str | None]]) -> None:
    """Refuses a (role, name) whose column is not there."""
    for role, name in roles:
        if name is not None and name not in types:
            raise DataError(f"{role}={name!r} is not a column; the DataFrame has {', '.join(map(repr, types))}")


# ------------------------------------------------------------------------------------------------------- readers


def _sparse(columns: Columns, batch: Any) -> Chunk:
    places, values = (without_nulls(batch, name) for name in columns.features)
    indptr, indices = _lists(places)
    other, entries = _lists(values)
    if not np.array_equal(indptr, other):
        row = int(np.flatnonzero(np.diff(indptr) != np.diff(other))[0])
        raise DataError(
            f"{columns.features[0]!r} has {np.diff(indptr)[row]} places, but {columns.features[1]!r} has "
            f"{np.diff(other)[row]} values; give as many of both"
        )
    return _chunk(columns, indptr, indices, entries)


def _vector(columns: Columns, batch: Any) -> Chunk:
    """MLlib vectors come as struct<type, size, indices, values>; type 0 is sparse, 1 dense."""
    column = without_nulls(batch, columns.features[0])
    kind, size, places, values = (column.field(k) for k in range(4))
    is_sparse = np.asarray(kind.to_numpy(zero_copy_only=False)) == 0
    indptr, entries = _lists(values)
    lengths = np.diff(indptr)
    sizes = np.where(is_sparse, size.fill_null(0).to_numpy(zero_copy_only=False), lengths)
    if is_sparse.all():
        _, indices = _lists(places)
    else:
        indices = _counted(lengths)
        if is_sparse.any():
            indices[np.repeat(is_sparse, lengths)] = _lists(places)[1]
        if not entries.all():  # zeros of dense vectors are not entries
            kept = (entries != 0) | np.repeat(is_sparse, lengths)
            indptr = np.concatenate([[0], np.cumsum(kept)])[indptr]
            indices, entries = indices[kept], entries[kept]
    widest = max(columns.n_features or 0, int(sizes.max(initial=0)))
    return _chunk(replace(columns, n_features=widest), indptr, indices, entries)


def _counted(lengths: Array) -> Array:
    """0, 1, ... for each row anew."""
    if len(lengths) and (lengths == lengths[0]).all():
        return np.tile(np.arange(lengths[0], dtype=np.int32), len(lengths))
    return np.asarray(np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths))


def _dense(columns: Columns, batch: Any) -> Chunk:
    indptr, values = _lists(without_nulls(batch, columns.features[0]))
    widths = np.diff(indptr)
    width = columns.n_features or int(widths.max(initial=0))
    if (widths != width).any():
        raise DataError(
            f"{columns.features[0]!r} holds {int(widths[widths != width][0])} numbers where other rows hold {width}"
        )
    return from_arrays(values.reshape(-1, width)).block


def _numeric(columns: Columns, batch: Any) -> Chunk:
    return from_arrays(np.column_stack([_numbers(batch, name) for name in columns.features])).block


def _hashed(columns: Columns, batch: Any) -> Chunk:
    assert columns.hasher is not None
    return columns.hasher.to_chunk(batch.select(list(columns.features)))


def _libsvm(columns: Columns, batch: Any) -> Chunk:
    text = "\n".join(line or "" for line in batch.column(LINE).to_pylist()).encode()
    return read_lines(text, columns.zero_based, columns.n_features)


READERS = {
    "sparse": _sparse,
    "vector": _vector,
    "dense": _dense,
    "numbers": _numeric,
    "hashed": _hashed,
    "libsvm": _libsvm,
}


def _chunk(columns: Columns, indptr: Array, indices: Array, values: Array) -> Chunk:
    if len(indices) and (indices.min() < 0 or indices.max() > 2**31 - 2):
        raise DataError(f"the place {int(indices.min() if indices.min() < 0 else indices.max())} is not in 0..2^31-2")
    width = columns.n_features or int(indices.max(initial=-1)) + 1
    if len(indices) and indices.max() >= width:
        raise DataError(f"the place {int(indices.max())} lies beyond n_features={width}; give a larger n_features")
    with np.errstate(over="ignore"):
        entries = np.ascontiguousarray(values, np.float32)
    if not np.isfinite(entries).all():
        raise DataError(f"the value {values[~np.isfinite(entries)][0]} is not a finite float32 number; drop or fill it")
    return Chunk(np.ascontiguousarray(indptr, np.int64), np.ascontiguousarray(indices, np.int32), entries, width)


def _lists(column: Any) -> tuple[Array, Array]:
    """(row starts, all entries) of a column of lists."""
    import pyarrow.compute as compute

    lengths = np.asarray(compute.fill_null(compute.list_value_length(column), 0))
    indptr = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=indptr[1:])
    entries = compute.list_flatten(column)
    if entries.null_count:
        raise DataError("an array holds a null; drop or fill it")
    return indptr, entries.to_numpy(zero_copy_only=False)


def without_nulls(batch: Any, name: str) -> Any:
    """A column of a batch, in which a null is refused."""
    column = batch.column(name)
    if column.null_count:
        raise DataError(f"the column {name!r} is null; drop such rows, as in df.dropna(subset=[{name!r}]), or fill it")
    return column


def numbers_of(batch: Any, name: str) -> Array:
    """A column of finite numbers."""
    numbers = _numbers(batch, name)
    if not np.isfinite(numbers).all():
        raise DataError(f"the column {name!r} holds {numbers[~np.isfinite(numbers)][0]}; drop or fill such rows")
    return numbers


def weights_of(batch: Any, name: str) -> Array:
    """Weights of a part of the rows, in which all may be zero."""
    weight = _numbers(batch, name)
    return weight if len(weight) and not weight.any() else as_weights(weight, len(weight))


def _numbers(batch: Any, name: str) -> Array:
    import pyarrow as pa

    return np.asarray(without_nulls(batch, name).cast(pa.float64()).to_numpy(zero_copy_only=False), np.float64)
