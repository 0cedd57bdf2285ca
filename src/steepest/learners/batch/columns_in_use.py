"""The columns with an entry in some row: what of a table of 2^22 hashed features data really uses."""

from __future__ import annotations

import numpy as np

from steepest.data.chunk import Array, Chunk
from steepest.learners.targets import refuse_bad_rows

MOST_MARKS = 1 << 27  # columns of which each has a mark; of more, the numbers of those in use are collected


class ColumnsInUse:
    """The set of columns that rows have shown, in memory that grows with the columns or with the set."""

    def __init__(self) -> None:
        self._marks: Array | None = np.zeros(0, bool)
        self._numbers = np.zeros(0, np.int32)
        self._all = False

    def add(self, chunk: Chunk) -> None:
        """The columns of the rows visited; a row with a column that cannot be is refused."""
        self._grow(chunk.n_features)
        if self._all:
            return
        if chunk.order is not None:
            chunk = chunk.packed()
        indices = chunk.indices[chunk.indptr[0] : chunk.indptr[-1]]
        if len(indices) and not 0 <= int(indices.min()) <= int(indices.max()) < chunk.n_features:
            refuse_bad_rows(chunk, check_values=False)
        if self._marks is None:
            self._numbers = np.union1d(self._numbers, indices)
        else:
            self._marks[indices] = True
            self._all = bool(self._marks.all())

    def _grow(self, n_columns: int) -> None:
        if self._marks is None or n_columns <= len(self._marks):
            return
        self._all = False
        if n_columns > MOST_MARKS:
            self._numbers, self._marks = np.flatnonzero(self._marks).astype(np.int32), None
        else:
            self._marks = np.concatenate([self._marks, np.zeros(n_columns - len(self._marks), bool)])

    @property
    def n(self) -> int:
        """How many there are."""
        return len(self._numbers) if self._marks is None else int(np.count_nonzero(self._marks))

    def columns(self) -> Array:
        """Their numbers, in ascending order."""
        numbers = self._numbers if self._marks is None else np.flatnonzero(self._marks)
        return np.asarray(numbers, np.int32)
