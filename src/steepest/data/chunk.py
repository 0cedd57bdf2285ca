"""A block of sparse rows in CSR form, with targets and weights: the only shape in which data reaches a learner.

Invariants: indptr int64, indices
int32, values float32, y and weight float64 (y may hold strings until a label book has coded them), all contiguous.
`order`, if given, names the rows to visit and their sequence; the arrays themselves are then never copied.
`group`, if given, names the query each row belongs to, for ranking; `time` is when each row was, in seconds, NaN where
nobody knows.
Rows have stable numbers, which splits use, so that a row keeps its side of a split whatever the chunk size or the
epoch: they count on from `first_id`, or `ids` says which they are, and `first_id` counts the rows cut off in front.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self, TypeVar

import numpy as np
import numpy.typing as npt

from steepest import kernels
from steepest.errors import DataError

Array = npt.NDArray[Any]
ENTRIES_PER_COPY = 256  # from which on copying runs of rows costs less than fetching entry by entry


@dataclass(frozen=True, slots=True)
class RowIds:
    """Stable numbers of rows from several places: runs of consecutive numbers, each from a row and its number on.

    The runs are those of the block's rows, or of `places`, if the block's rows are somewhere else.
    """

    rows: Array
    ids: Array
    places: Array | None = None

    def of(self, rows: Array) -> Array:
        """The numbers of some rows of the block."""
        places = rows if self.places is None else self.places[rows]
        run = np.searchsorted(self.rows, places, side="right") - 1
        return np.asarray(places - self.rows[run] + self.ids[run])


@dataclass(frozen=True, slots=True)
class Chunk:
    """A block of rows in CSR format, to learn from or to score.

    Row i has the features indices[indptr[i]:indptr[i+1]], with the values at the same positions. y and weight, if there
    are any, have one element per row.

    Examples
    --------
    >>> import steepest as st
    >>> chunk = next(iter(st.from_arrays([[0.0, 2.0], [1.0, 3.0]], [0, 1])))
    >>> chunk.n_rows, chunk.n_features, chunk.indptr.tolist(), chunk.indices.tolist(), chunk.values.tolist()
    (2, 2, [0, 1, 3], [1, 0, 1], [2.0, 1.0, 3.0])
    """

    indptr: Array
    indices: Array
    values: Array
    n_features: int
    y: Array | None = None
    weight: Array | None = None
    order: Array | None = None
    first_id: int = 0
    group: Array | None = None
    ids: RowIds | None = None
    time: Array | None = None
    row_fields: ClassVar[tuple[str, ...]] = ("y", "weight", "group", "time")  # arrays with one element per row

    @property
    def n_rows(self) -> int:
        """The number of rows visited."""
        return len(self.indptr) - 1 if self.order is None else len(self.order)

    @property
    def row_numbers(self) -> Array:
        """The visited rows' positions in the block."""
        return np.arange(self.n_rows) if self.order is None else self.order

    @property
    def row_ids(self) -> Array:
        """The visited rows' stable numbers."""
        rows = self.row_numbers + self.first_id
        return rows if self.ids is None else self.ids.of(rows)

    def as_rows(self) -> kernels.Rows:
        """The rows as the kernels take them: with weights, without targets."""
        return kernels.Rows(self.indptr, self.indices, self.values, None, self.weight, self.order)

    def per_row(self, rows: Any) -> dict[str, Any]:
        """The elements of some of the block's rows, by the names of all fields that have one for each row."""
        fields = ((name, getattr(self, name)) for name in self.row_fields)
        return {name: None if field is None else field[rows] for name, field in fields}

    def visit(self, order: Array) -> Self:
        """A view of the same arrays with another visiting order (positions in the block)."""
        return replace(self, order=np.ascontiguousarray(order, np.int64))

    def span(self, start: int, stop: int) -> Self:
        """Visits start..stop of this chunk, as a view."""
        if start == 0 and stop >= self.n_rows:
            return self
        if self.order is not None:
            return replace(self, order=self.order[start:stop])
        rows = self.per_row(slice(start, stop))
        return replace(self, indptr=self.indptr[start : stop + 1], first_id=self.first_id + start, **rows)

    def visited(self, per_row: Array) -> Array:
        """An array with one element per row of the block, in visiting order."""
        return per_row if self.order is None else per_row[self.order]

    def packed(self) -> Self:
        """A copy that holds just the visited rows, in visiting order, and nothing else."""
        rows = self.row_numbers
        starts, ends = self.indptr[rows], self.indptr[rows + 1]
        indptr = np.zeros(len(rows) + 1, np.int64)
        np.cumsum(ends - starts, out=indptr[1:])
        indices, values = _copied((self.indices, self.values), starts, ends)
        return replace(self, indptr=indptr, indices=indices, values=values, order=None, **self.per_row(rows))


AnyChunk = TypeVar("AnyChunk", bound=Chunk)


def _copied(arrays: Sequence[Array], starts: Array, ends: Array) -> list[Array]:
    """Copies the entries of rows one after the other, for each array; runs of rows are copied at once."""
    lengths = ends - starts
    breaks = np.flatnonzero(starts[1:] != ends[:-1])
    if len(starts) and (len(breaks) + 1) * ENTRIES_PER_COPY <= lengths.sum():
        firsts = starts[np.concatenate([[0], breaks + 1])].tolist()
        lasts = ends[np.concatenate([breaks, [len(ends) - 1]])].tolist()
        runs = [slice(a, b) for a, b in zip(firsts, lasts, strict=True)]
        return [np.concatenate([array[run] for run in runs]) for array in arrays]
    entries = places_between(starts, ends)[1]
    return [array[entries] for array in arrays]


def places_between(starts: Array, ends: Array) -> tuple[Array, Array]:
    """(row pointers of these spans put one behind the other, the places in them)."""
    indptr = np.zeros(len(starts) + 1, np.int64)
    np.cumsum(ends - starts, out=indptr[1:])
    return indptr, np.arange(indptr[-1]) + np.repeat(starts - indptr[:-1], ends - starts)


def compact(rows: Chunk) -> tuple[Chunk, Array]:
    """(the rows with the columns in use numbered in ascending order, these columns).

    What learns from the same rows many times then needs tables as long as the columns in use, and none of all columns.
    """
    used = np.zeros(rows.n_features, bool)
    entries = rows.indices[rows.indptr[0] : rows.indptr[-1]]
    if len(entries) and (entries.min() < 0 or entries.max() >= rows.n_features):
        raise DataError(f"X has a column index outside 0..{rows.n_features - 1}; check how the matrix was built")
    used[entries] = True
    columns = np.flatnonzero(used)
    if len(columns) == rows.n_features:
        return rows, columns
    numbers = np.zeros(rows.n_features, np.int32)  # what is not touched costs nothing
    numbers[columns] = np.arange(len(columns), dtype=np.int32)
    return replace(rows, indices=numbers[rows.indices], n_features=max(1, len(columns))), columns


def concatenate(chunks: Sequence[AnyChunk]) -> AnyChunk:
    """One chunk with the visited rows of all, in order; what some rows lack is left out, but a weight is then one."""
    parts = [chunk.packed() for chunk in chunks]
    if len(parts) == 1:
        return parts[0]
    if any(part.weight is not None for part in parts):
        parts = [replace(p, weight=np.ones(p.n_rows)) if p.weight is None else p for p in parts]
    offsets = np.cumsum([0] + [int(p.indptr[-1]) for p in parts])
    joined = {
        "indptr": [parts[0].indptr, *(p.indptr[1:] + n for p, n in zip(parts[1:], offsets[1:-1], strict=True))],
        **{name: [getattr(part, name) for part in parts] for name in ("indices", "values", *parts[0].row_fields)},
    }
    arrays: dict[str, Any] = {
        name: None if any(a is None for a in own) else np.concatenate(own) for name, own in joined.items()
    }
    return replace(parts[0], n_features=max(p.n_features for p in parts), first_id=0, ids=None, **arrays)
