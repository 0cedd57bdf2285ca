"""A table that is mostly zero in less memory: a bit for every element, and the elements with any bit set.

Memory that a copy touches for the first time costs more than the packing.
"""

from __future__ import annotations

import numpy as np

from steepest import kernels
from steepest.data.chunk import Array

PACKED_ELEMENTS = 1 << 20  # from which on a table is worth packing


class Packed:
    """The bits of a table at one moment."""

    def __init__(self) -> None:
        self._shape: tuple[int, ...] = (0,)
        self._dtype = np.dtype(np.float32)
        self._mask = np.empty(0, np.uint8)
        self._room = np.empty(0, np.uint32)
        self._n_values = 0

    def take(self, table: Array, n_threads: int = 1) -> Packed:
        """Keeps what a table holds now, in the memory that is there already if it fits; returns itself."""
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

    def unpacked(self) -> Array:
        """The table."""
        table = np.empty(self._shape, self._dtype)
        kernels.spread_nonzeros(self._mask, self._values, _bits(table))
        return table


def _bits(table: Array) -> Array:
    return table.reshape(-1).view(f"u{table.itemsize}")
