"""Known entries of a matrix, by codes: what ratings, pairs and matrices become before a factor model learns them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from steepest.data.chunk import Array, Chunk
from steepest.data.ids import IdBook
from steepest.data.matrices import checked_coo
from steepest.data.readers.ratings import RatingsChunk, RatingsInMemory, from_frame, ratings_chunk
from steepest.data.source import Source
from steepest.errors import DataError


@dataclass(slots=True, eq=False)
class Entries:
    """Known entries of a matrix by the codes of their row and column, in the order of the data."""

    users: Array
    items: Array
    values: Array
    weights: Array | None

    @classmethod
    def none(cls) -> Entries:
        """An empty set of entries."""
        return cls(np.zeros(0, np.int32), np.zeros(0, np.int32), np.zeros(0), None)

    @classmethod
    def joined(cls, *parts: Entries) -> Entries:
        """All entries, one part after the other."""
        parts = tuple(part for part in parts if len(part.users)) or (cls.none(),)
        if len(parts) == 1:
            return parts[0]
        weighted = any(part.weights is not None for part in parts)
        weights = [np.ones(len(p.users), np.float32) if p.weights is None else p.weights for p in parts]
        return cls(
            np.concatenate([part.users for part in parts]),
            np.concatenate([part.items for part in parts]),
            np.concatenate([part.values for part in parts]),
            np.concatenate(weights) if weighted else None,
        )

    def only(self, chosen: Array) -> Entries:
        """The entries that a mask selects."""
        weights = None if self.weights is None else self.weights[chosen]
        return Entries(self.users[chosen], self.items[chosen], self.values[chosen], weights)

    @classmethod
    def from_arrays(cls, arrays: dict[str, Array]) -> Entries:
        """The entries that `as_arrays` took apart."""
        return cls(arrays["users"], arrays["items"], arrays["values"], arrays.get("weights"))

    def as_arrays(self) -> dict[str, Array]:
        """The parts that there are."""
        parts = {"users": self.users, "items": self.items, "values": self.values, "weights": self.weights}
        return {name: array for name, array in parts.items() if array is not None}


def gather(source: Source, users: IdBook, items: IdBook) -> Entries:
    """Reads all ratings of a source and codes their ids; the books learn new ids.

    A rating of weight 0 is not there. The rows and columns of a matrix keep their places, empty ones too.
    """
    parts = []
    if isinstance(source.root, RatingsInMemory) and source.root.shape is not None:
        for book, n in zip((users, items), source.root.shape, strict=True):
            book.codes(np.arange(n), learn=True)
    for part in source:
        chunk = ratings_of(part)
        if chunk.weight is not None:
            chunk = chunk.visit(chunk.row_numbers[chunk.visited(chunk.weight) > 0])
        chunk = chunk.packed()
        values = np.ones(chunk.n_rows) if chunk.y is None else np.asarray(chunk.y, np.float64)
        weights = None if chunk.weight is None else np.ascontiguousarray(chunk.weight, np.float32)
        rows, columns = users.codes(chunk.users, learn=True), items.codes(chunk.items, learn=True)
        parts.append(Entries(rows, columns, values, weights))
    return Entries.joined(*parts)


def ratings_of(chunk: Chunk) -> RatingsChunk:
    """A chunk of any source as ratings: the known cells of a matrix are ratings by row and column."""
    if isinstance(chunk, RatingsChunk):
        return chunk
    if chunk.n_features:  # a matrix: its rows and columns are the ids
        packed = chunk.packed()
        users = np.repeat(chunk.row_ids, np.diff(packed.indptr))
        return ratings_chunk(users, packed.indices, packed.values)
    raise DataError("the source holds no ratings; open the file with scan_ratings, or --format ratings")


def has_pairs(frame: Any, y: Any) -> bool:
    """Whether a DataFrame's columns are ids, not cells of a matrix."""
    names = {"".join(c for c in str(name).lower() if c.isalpha()) for name in frame.columns}
    return bool(names & {"user", "userid", "uid"}) or (y is not None and len(frame.columns) == 2)


def two_columns(X: Any) -> tuple[Any, Any]:
    """(users, items) of anything with two columns."""
    if hasattr(X, "iloc"):
        if X.shape[1] < 2:
            raise DataError(f"X has {X.shape[1]} column; give two, user and item")
        chunk = from_frame(X, dict.fromkeys(("user", "item", "rating", "weight", "time")), with_labels=False).chunk
        return chunk.users, chunk.items
    if isinstance(X, np.ndarray):
        if X.ndim != 2 or X.shape[1] != 2:
            raise DataError(f"X has shape {X.shape}; give two columns, user and item, or a matrix without y")
        return X[:, 0], X[:, 1]
    if not isinstance(X, Iterable) or hasattr(X, "tocsr"):
        raise DataError(f"X is a {type(X).__name__}; give pairs of user and item, or a matrix without y")
    pairs = list(X)
    for row, pair in enumerate(pairs):
        if isinstance(pair, str | bytes) or not hasattr(pair, "__len__") or len(pair) != 2:
            raise DataError(f"row {row} of X is {pair!r}; give pairs of user and item")
    users, items = np.empty(len(pairs), object), np.empty(len(pairs), object)
    users[:], items[:] = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    return users, items


def from_matrix(X: Any) -> RatingsInMemory:
    """The known cells of a matrix as ratings whose ids are the numbers of rows and columns."""
    if hasattr(X, "tocoo"):
        coo = checked_coo(X)
        return _cells(np.asarray(coo.row, np.int64), np.asarray(coo.col, np.int64), coo.data, coo.shape)
    matrix = np.asarray(X)
    if matrix.dtype.kind not in "biuf":
        try:
            matrix = matrix.astype(np.float64)
        except (TypeError, ValueError) as error:
            raise DataError(
                f"X holds a value that is not a number ({error}); give pairs with ratings y instead"
            ) from None
    if matrix.ndim != 2:
        raise DataError(f"X has {matrix.ndim} dimensions; give a matrix, or pairs with ratings y")
    rows, columns = np.nonzero(~np.isnan(matrix))
    return _cells(rows, columns, matrix[rows, columns], matrix.shape)


def _cells(rows: Array, columns: Array, values: Any, shape: tuple[int, ...]) -> RatingsInMemory:
    return RatingsInMemory(ratings_chunk(rows, columns, values), shape=(int(shape[0]), int(shape[1])))
