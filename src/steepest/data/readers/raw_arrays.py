"""Raw rows that are in memory already: texts, dicts, a DataFrame or an Arrow table, as a source to be hashed.

Batches are slices, numbered by their first row, so that splits and samples work as they do on files.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from steepest.data.chunk import Array
from steepest.data.raw import SAMPLE_PARTS, SAMPLE_ROWS, RawBatch, RawSource, rows_of, spread
from steepest.data.source import Order, as_targets, as_weights
from steepest.errors import DataError

BATCH_ROWS = 1 << 12


class RawArrays(RawSource):
    """Columns or texts with targets beside them."""

    def __init__(self, X: Any, y: Any = None, sample_weight: Any = None) -> None:
        self.X = X
        self.n_rows = n_rows = _length(X)
        self.y: Array | None = None if y is None else as_targets(y)
        if self.y is not None and len(self.y) != n_rows:
            raise DataError(f"X has {n_rows} rows but y has {len(self.y)}; give one target per row")
        self.weight = None if sample_weight is None else as_weights(sample_weight, n_rows)

    def describe(self) -> str:
        """A short description of the rows for messages."""
        return "X"

    def sample_batches(self) -> list[RawBatch]:
        """Yields runs of rows from all over the table."""
        n_rows = self.n_rows or 0
        most = max(SAMPLE_ROWS // SAMPLE_PARTS, 1)
        starts = [0] if n_rows <= SAMPLE_ROWS else [place * most for place in spread(n_rows // most, SAMPLE_PARTS)]
        length = n_rows if n_rows <= SAMPLE_ROWS else most
        return [replace(self._batch(start, min(start + length, n_rows)), weight=None, place=()) for start in starts]

    def batches(self, order: Order, epoch: int) -> Generator[RawBatch, None, None]:
        """Yields slices of the rows; a dict of columns is one batch."""
        assert self.n_rows is not None
        length = self.n_rows if isinstance(self.X, Mapping) else BATCH_ROWS
        starts = np.arange(0, self.n_rows, max(length, 1))
        if order.shuffle != "never":
            starts = order.generator(epoch).permutation(starts)
        for start in starts.tolist():
            yield self._batch(start, min(start + length, self.n_rows))

    def _batch(self, start: int, stop: int) -> RawBatch:
        y, weight = (None if part is None else part[start:stop] for part in (self.y, self.weight))
        return RawBatch(rows_of(self.X, start, stop), stop - start, y, weight, start, place=(start,))


def _length(X: Any) -> int:
    if isinstance(X, Mapping):
        return len(next(iter(X.values()), ()))
    n_rows = getattr(X, "num_rows", None)
    return len(X) if n_rows is None else int(n_rows)
