"""Columns of a Spark DataFrame to chunks, batch by batch, in the executors; and chunks to bytes and back.

What may hold the features: a pair of array columns (whole numbers, and values beside them), an MLlib vector, an array
of numbers, several columns of numbers, text and categorical columns for a hasher, or lines of libsvm. pyspark is not
needed here: batches are Arrow's, and kinds of columns are told by Spark's names of their types.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from steepest.data.chunk import Array, Chunk, DataError
from steepest.data.libsvm import LibsvmSource, _IndexBase
from steepest.data.source import as_weights, from_arrays
from steepest.hashing import Hasher

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
        try:
            return self._read(batch)
        except (DataError, TypeError, ValueError, OverflowError) as error:
            for row in range(batch.num_rows if batch.num_rows > 1 else 0):
                try:
                    self._read(batch.slice(row, 1))
                except (DataError, TypeError, ValueError, OverflowError) as first:
                    raise BadRowError(row, str(first), _shown(batch, row)) from None
            raise BadRowError(0, str(error), _shown(batch, 0)) from None

    def _read(self, batch: Any) -> Chunk:
        chunk = READERS[self.kind](self, batch)
        if self.kind == "libsvm":
            return chunk
        y = None if self.label is None else self._labels(batch.column(self.label))
        weight = None
        if self.weight is not None:
            _refuse_nulls(batch.column(self.weight), self.weight)
            weight = as_some_weights(_numbers(batch.column(self.weight)))
        return replace(chunk, y=y, weight=weight)

    def _labels(self, column: Any) -> Array:
        assert self.label is not None
        _refuse_nulls(column, self.label)
        if self.label_type == "string":
            return np.asarray(column.to_pylist(), dtype=str)
        y = _numbers(column)
        if not np.isfinite(y).all():
            raise DataError(f"the label column {self.label!r} holds {y[~np.isfinite(y)][0]}; drop or fill such rows")
        return y


class BadRowError(DataError):
    """A row that cannot be read: its place in the batch, what is wrong, and the row as far as it can be shown."""

    def __init__(self, row: int, fault: str, shown: str) -> None:
        super().__init__(fault)
        self.row, self.fault, self.shown = row, fault, shown


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
    for role, wanted in [("features", names), ("label", (label,)), ("weight", (weight,))]:
        for name in wanted:
            if name is not None and name not in types:
                raise DataError(f"{role}={name!r} is no column; the DataFrame has {', '.join(map(repr, types))}")
    if not names:
        raise DataError("features=[] names no column; give at least one")
    label_type = "double" if label is None else types[label]
    if label_type not in (*NUMBERS, "string") and not label_type.startswith("decimal"):
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
    plain = all(kind in NUMBERS or kind.startswith("decimal") for kind in types)
    if plain and not hashes:
        return "numbers"
    bad = [
        (name, kind)
        for name, kind in zip(names, types, strict=True)
        if kind not in (*NUMBERS, "string") and not kind.startswith("decimal")
    ]
    if bad:
        raise DataError(
            f"features={list(names)!r}: the column {bad[0][0]!r} is of type {bad[0][1]}; give one vector or array "
            "column, two array columns (places and values), or columns of numbers and strings"
        )
    return "hashed"


# ------------------------------------------------------------------------------------------------------- readers


def _sparse(columns: Columns, batch: Any) -> Chunk:
    places, values = (batch.column(name) for name in columns.features)
    _refuse_nulls(places, columns.features[0])
    _refuse_nulls(values, columns.features[1])
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
    column = batch.column(columns.features[0])
    _refuse_nulls(column, columns.features[0])
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
        if not entries.all():  # zeros of dense vectors are no entries
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
    column = batch.column(columns.features[0])
    _refuse_nulls(column, columns.features[0])
    indptr, values = _lists(column)
    widths = np.diff(indptr)
    width = columns.n_features or int(widths.max(initial=0))
    if (widths != width).any():
        raise DataError(
            f"{columns.features[0]!r} holds {int(widths[widths != width][0])} numbers where other rows hold {width}"
        )
    return from_arrays(values.reshape(-1, width)).block


def _numeric(columns: Columns, batch: Any) -> Chunk:
    for name in columns.features:
        _refuse_nulls(batch.column(name), name)
    matrix = np.column_stack([_numbers(batch.column(name)) for name in columns.features])
    return from_arrays(matrix).block


def _hashed(columns: Columns, batch: Any) -> Chunk:
    assert columns.hasher is not None
    return columns.hasher.to_chunk(raw_columns(batch, columns.features))


def _libsvm(columns: Columns, batch: Any) -> Chunk:
    text = "\n".join(line or "" for line in batch.column(LINE).to_pylist()).encode()
    source = LibsvmSource([], _IndexBase(columns.zero_based), columns.n_features, "skip", True)
    parsed = source.parse([text])
    if parsed.bad:
        raise DataError(parsed.bad[0].fault)
    return parsed.chunk


READERS = {
    "sparse": _sparse,
    "vector": _vector,
    "dense": _dense,
    "numbers": _numeric,
    "hashed": _hashed,
    "libsvm": _libsvm,
}


def raw_columns(batch: Any, names: Sequence[str]) -> Any:
    """The columns for a hasher; one alone is a list of texts if it holds strings."""
    return batch.select(list(names))


def _chunk(columns: Columns, indptr: Array, indices: Array, values: Array) -> Chunk:
    if len(indices) and (indices.min() < 0 or indices.max() > 2**31 - 2):
        raise DataError(f"the place {int(indices.min() if indices.min() < 0 else indices.max())} is not in 0..2^31-2")
    width = columns.n_features or int(indices.max(initial=-1)) + 1
    if len(indices) and indices.max() >= width:
        raise DataError(f"the place {int(indices.max())} lies beyond n_features={width}; give a larger n_features")
    with np.errstate(over="ignore"):
        entries = np.ascontiguousarray(values, np.float32)
    if not np.isfinite(entries).all():
        raise DataError(f"the value {values[~np.isfinite(entries)][0]} is no finite float32 number; drop or fill it")
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


def _numbers(column: Any) -> Array:
    import pyarrow as pa

    return np.asarray(column.cast(pa.float64()).to_numpy(zero_copy_only=False), np.float64)


def as_some_weights(weight: Array) -> Array:
    """Weights of a part of the rows, in which all may be zero."""
    return weight if len(weight) and not weight.any() else as_weights(weight, len(weight))


def _refuse_nulls(column: Any, name: str) -> None:
    if column.null_count:
        raise DataError(f"the column {name!r} is null; drop such rows, as in df.dropna(subset=[{name!r}]), or fill it")


def _shown(batch: Any, row: int) -> str:
    values = {name: batch.column(name)[row].as_py() for name in batch.schema.names}
    text = ", ".join(f"{name}={value!r}" for name, value in values.items())
    return text if len(text) <= SHOWN else text[:SHOWN] + "..."


# ------------------------------------------------------------------------------------------------- chunks as bytes


def to_bytes(chunk: Chunk) -> bytes:
    """Packed rows with numeric targets as one string of bytes."""
    whole = chunk.order is None and chunk.indptr[0] == 0 and chunk.indptr[-1] == len(chunk.indices)
    packed = chunk if whole else chunk.packed()
    has = (packed.y is not None, packed.weight is not None)
    head = np.array([packed.n_rows, len(packed.indices), packed.n_features, *has], np.int64)
    parts = [head, packed.indptr, packed.indices, packed.values]
    parts += [np.asarray(part, np.float64) for part in (packed.y, packed.weight) if part is not None]
    return b"".join([np.ascontiguousarray(part).data.cast("B") for part in parts if part.size])


def from_bytes(data: Any) -> Chunk:
    """The rows that `to_bytes` wrote, as views."""
    n_rows, n_entries, n_features, has_y, has_weight = (int(n) for n in np.frombuffer(data, np.int64, 5))
    at = 40

    def take(dtype: type, n: int) -> Array:
        nonlocal at
        part: Array = np.frombuffer(data, dtype, n, at)
        at += part.nbytes
        return part

    indptr, indices, values = take(np.int64, n_rows + 1), take(np.int32, n_entries), take(np.float32, n_entries)
    y = take(np.float64, n_rows) if has_y else None
    weight = take(np.float64, n_rows) if has_weight else None
    return Chunk(indptr, indices, values, n_features, y, weight)
