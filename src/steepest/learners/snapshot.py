"""The last good state of a learner, to which it rolls back with half the step if scores run out of range.

It is kept after 2^16 rows, 2^17, ..., and at the ends of epochs unless it has half the rows: copies cost little, and at
most half the work can be lost. Copies go into memory that is there already, since fresh pages cost more than copying;
large tables, which are mostly zero, are packed: a bit for every element, and the elements with any bit set.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Self

import numpy as np

from steepest import kernels
from steepest.data.chunk import Array
from steepest.errors import DataError
from steepest.learners.base import Progress

FIRST_SNAPSHOT_ROWS = 1 << 16
MOST_ROLLBACKS = 60
PACKED_ELEMENTS = 1 << 20  # from which on a table is worth packing


class LastGoodState:
    """Copies of a learner's arrays to return to after divergence, and the number of such rollbacks."""

    def __init__(
        self, first_rows: int = FIRST_SNAPSHOT_ROWS, most_rollbacks: int = MOST_ROLLBACKS, rollbacks: int = 0
    ) -> None:
        self.first_rows = first_rows
        self.most_rollbacks = most_rollbacks
        self.arrays: dict[str, Array | Packed] = {}
        self.n_outputs = 0
        self.rows = 0  # learned by then
        self.edge = first_rows  # rows after which a state should be kept next
        self.rollbacks = rollbacks

    @property
    def exists(self) -> bool:
        """Whether a state was kept."""
        return bool(self.arrays)

    def next_rows(self, rows_learned: int) -> int:
        """The number of learned rows at which the next state should be kept."""
        self.edge = self.first_rows
        while self.edge <= rows_learned:
            self.edge *= 2
        return self.edge

    def is_recent(self, rows_learned: int, n_outputs: int = 1) -> bool:
        """Whether the kept state covers at least half of these rows."""
        return self.exists and self.n_outputs == n_outputs and rows_learned < 2 * self.rows

    def keep(
        self,
        arrays: Mapping[str, Array],
        rows_learned: int,
        n_outputs: int = 1,
        *,
        packed: Collection[str] = (),
        owned: Collection[str] = (),
        n_threads: int = 1,
    ) -> None:
        """Copies arrays, but for those in `owned`, which nobody else has; those in `packed` are packed if large."""
        for name in self.arrays.keys() - arrays.keys():
            del self.arrays[name]
        for name, array in arrays.items():
            old = self.arrays.get(name)
            if name in packed and array.size >= PACKED_ELEMENTS:
                self.arrays[name] = (old if isinstance(old, Packed) else Packed()).take(array, n_threads)
            elif name in owned:
                self.arrays[name] = array
            elif isinstance(old, np.ndarray) and old.shape == array.shape and old.dtype == array.dtype:
                np.copyto(old, array)
            else:
                self.arrays[name] = array.copy()
        self.n_outputs, self.rows = n_outputs, rows_learned

    def forget(self) -> None:
        """Drops the kept state."""
        self.arrays, self.rows = {}, 0

    def restored(self) -> dict[str, Array]:
        """Copies of the kept arrays."""
        return {name: kept.table() if isinstance(kept, Packed) else kept.copy() for name, kept in self.arrays.items()}

    def halve_step(self, eta0: float, rows_learned: int, progress: Progress) -> float:
        """Half the step size for use after a rollback, which is counted and reported."""
        self.rollbacks += 1
        if self.rollbacks > self.most_rollbacks:
            raise DataError(
                f"learning diverges even with the step size {eta0:.3g}; scale the features to about one, "
                "or choose a loss that grows more slowly"
            )
        progress.events.append(
            f"scores overflowed after {rows_learned:,} rows: returned to the last good state and "
            f"halved the step size from {eta0:.3g} to {eta0 / 2:.3g}"
        )
        return eta0 / 2


class Packed:
    """A compressed copy of a table that is mostly zero."""

    def __init__(self) -> None:
        self._shape: tuple[int, ...] = (0,)
        self._dtype = np.dtype(np.float32)
        self._mask = np.empty(0, np.uint8)
        self._room = np.empty(0, np.uint32)
        self._n_values = 0

    def take(self, table: Array, n_threads: int = 1) -> Self:
        """Copies a table, reusing the memory of the last copy if it fits; returns itself."""
        bits = _bits(table)
        n_bytes = -(-bits.size // 8)
        if len(self._mask) != n_bytes:
            self._mask = np.empty(n_bytes, np.uint8)
        self._shape, self._dtype = table.shape, table.dtype
        self._n_values = kernels.mark_nonzeros(bits, self._mask, n_threads)
        if self._room.dtype != bits.dtype or len(self._room) < self._n_values:
            self._room = np.empty(min(bits.size, 2 * self._n_values), bits.dtype)  # what is not touched costs nothing
        kernels.pick_nonzeros(bits, self._mask, self._values, n_threads)
        return self

    @property
    def _values(self) -> Array:
        return self._room[: self._n_values]

    def table(self) -> Array:
        """The table, decompressed."""
        table = np.empty(self._shape, self._dtype)
        kernels.spread_nonzeros(self._mask, self._values, _bits(table))
        return table


def _bits(table: Array) -> Array:
    return table.reshape(-1).view(f"u{table.itemsize}")
