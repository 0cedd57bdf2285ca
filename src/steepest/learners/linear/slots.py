"""Rows of a weight table for the features that were seen, and no others.

A table of many outputs over hashed features is mostly empty: two million weights a class that no row ever touches still
cost memory, copies and room in files. Here a feature gets the next free row, its slot, when it is first learned from,
so the rows in use are one behind the other. What is learned does not depend on where a row is.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from steepest import kernels
from steepest.data.chunk import Array, Chunk


class Slots:
    """Which row belongs to which feature, in the order in which features were first seen."""

    def __init__(self, n_features: int, owners: Array | None = None) -> None:
        self._number = np.zeros(n_features, np.int32)  # the slot plus one: memory that is never touched costs nothing
        self._owners = np.zeros(n_features, np.int32)
        self.n = 0 if owners is None else len(owners)
        if owners is not None:
            self._owners[: self.n] = owners
            self._number[owners] = np.arange(1, self.n + 1)

    @property
    def owners(self) -> Array:
        """The feature of each slot."""
        return self._owners[: self.n]

    @property
    def number(self) -> Array:
        """The slot of each feature plus one, or 0."""
        return self._number

    def grow(self, n_features: int) -> None:
        """Makes room for more features."""
        if n_features > len(self._number):
            more = (0, n_features - len(self._number))
            self._number, self._owners = np.pad(self._number, more), np.pad(self._owners, more)

    def take_in(self, rows: Chunk) -> Chunk:
        """The rows visited, with slots for indices; new features get one. Ends before a row with a bad index."""
        placed = self._placed(rows, self._owners)
        visits = rows.row_numbers[: placed.n_rows]
        y = None if rows.y is None else rows.y[visits]
        return replace(placed, y=y, weight=None if rows.weight is None else rows.weight[visits], first_id=rows.first_id)

    def find(self, rows: Chunk) -> Chunk:
        """The rows visited, with slots for indices, without the features that have none; and without targets."""
        return self._placed(rows, None)

    def _placed(self, rows: Chunk, owners: Array | None) -> Chunk:
        indptr, indices, values, self.n = kernels.place_features(rows.as_rows(), self._number, owners, self.n)
        return Chunk(indptr, indices, values, self.n)

    def of(self, features: Array) -> Array:
        """The slots of some features, -1 for those that have none."""
        return self._number[features] - np.int32(1)

    def spread(self, table: Array, n_features: int) -> Array:
        """A table with a row for every feature, from one with a row for every slot."""
        wide = np.zeros((n_features, *table.shape[1:]), table.dtype)
        wide[self.owners] = table[: self.n]
        return wide
