"""Rows of a weight table for the features that were seen, and no others.

A table over hashed features is mostly empty: weights that no row ever touches still cost memory, copies, misses of the
cache and room in files. Here a feature gets the next free row, its slot, when it first appears in a block of rows that
is learned from, so the rows in use are one behind the other. What is learned does not depend on where a row is.

The slot of a feature is found in a table of all features, whose untouched memory costs nothing; beyond MOST_DIRECT
features in a sorted list of those seen. A block of rows that is visited again and again is numbered once.
Invariant: weights and scores have the bits that whole tables give. Only sums over a whole table, the norms in the
objective of a history, are added in another order and may differ in their last digit.
"""

from __future__ import annotations

import weakref
from dataclasses import replace

import numpy as np

from steepest import kernels
from steepest.data.chunk import Array, Chunk
from steepest.data.store.row_store import TemporaryColumns, room_for_entries

MOST_DIRECT = 1 << 27
ENTRIES_AT_ONCE = 1 << 20  # of a large block


class Slots:
    """Maps features to rows of a table, numbered in the order in which features were first seen."""

    def __init__(self, n_features: int, owners: Array | None = None) -> None:
        self.n_features = n_features
        self._owners = np.zeros(0, np.int32) if owners is None else np.array(owners, np.int32)
        self.n = len(self._owners)
        self._table: Array | None = None  # the slot of each feature plus one, or 0
        self._sorted: tuple[Array, Array] | None = None  # features seen in ascending order, and their slots
        self._block: weakref.ref[Array] | None = None  # indices that were numbered last
        self._numbered = np.zeros(0, np.int32)  # their slots
        self._stored: TemporaryColumns | None = None  # where these are if they are many
        self._room = room_for_entries()
        self._make_table()

    def _make_table(self) -> None:
        if self.n_features > MOST_DIRECT:
            self._table = None
            return
        self._table = np.zeros(self.n_features, np.int32)
        self._table[self.owners] = np.arange(1, self.n + 1, dtype=np.int32)

    @property
    def owners(self) -> Array:
        """The feature of each slot."""
        return self._owners[: self.n]

    @property
    def table(self) -> Array | None:
        """The slot of each feature plus one, or 0; None if there are too many features for such an array."""
        return self._table

    def grow(self, n_features: int) -> None:
        """Makes room for more features."""
        if n_features > self.n_features:
            self.n_features = n_features
            self._make_table()

    # ------------------------------------------------------------------------------------------------------ learning

    def take_in(self, rows: Chunk) -> Chunk:
        """The rows with slots as indices; new features get slots, invalid indices stay invalid."""
        if self._block is None or self._block() is not rows.indices:
            self._numbered = self._number_block(rows.indices)
            self._block = weakref.ref(rows.indices)
        elif self._stored is not None:
            self._stored.release()
        return replace(rows, indices=self._numbered, n_features=self.n)

    def _number_block(self, indices: Array) -> Array:
        """The slots of all entries of a block, in memory or, if they are too many, in a temporary file."""
        self._stored = None
        if len(indices) <= self._room:
            return self.number(indices)
        self._stored = TemporaryColumns()
        for start in range(0, len(indices), ENTRIES_AT_ONCE):
            self._stored.append("indices", self.number(indices[start : start + ENTRIES_AT_ONCE]), "int32")
        return self._stored.finish()["indices"]

    def forget_block(self) -> None:
        """Frees the memory of the block that was numbered last."""
        self._block, self._numbered, self._stored = None, np.zeros(0, np.int32), None

    def number(self, indices: Array) -> Array:
        """The slot of each index, -1 for invalid ones; new features get the next slots."""
        most = min(self.n_features, self.n + len(indices))
        if most > len(self._owners):
            owners = np.empty(most, np.int32)  # what is not touched costs nothing
            owners[: self.n] = self.owners
            self._owners = owners
        if self._table is not None:
            numbered, self.n = kernels.number_features(indices, self._table, self._owners, self.n)
            return numbered
        features, first, places = np.unique(indices, return_index=True, return_inverse=True)
        slots = self.of(features)
        new = np.flatnonzero((slots < 0) & (features >= 0) & (features < self.n_features))
        new = new[np.argsort(first[new], kind="stable")]
        slots[new] = np.arange(self.n, self.n + len(new), dtype=np.int32)
        self._owners[self.n : self.n + len(new)] = features[new]
        self.n += len(new)
        self._sorted = None
        return np.ascontiguousarray(slots[places.reshape(-1)])

    # ------------------------------------------------------------------------------------------------------- scoring

    def find(self, rows: Chunk, *, keep: bool = False) -> Chunk:
        """The visited rows with slots as indices and without targets; features without a slot are left out.

        With `keep` they stay, with the value 0, so that the sums of a row keep their order of additions. Ends before a
        row with a bad index.
        """
        if self._table is not None:
            return Chunk(*kernels.place_features(rows.as_rows(), self._table, keep), self.n)
        packed = rows.packed()
        bad = np.flatnonzero((packed.indices < 0) | (packed.indices >= self.n_features))
        if len(bad):
            packed = packed.span(0, int(np.searchsorted(packed.indptr, bad[0], side="right")) - 1).packed()
        slots = self.of(packed.indices)
        values = np.where((slots >= 0) | ~np.isfinite(packed.values), packed.values, np.float32(0))
        return Chunk(packed.indptr, np.maximum(slots, np.int32(0)), values, self.n)

    def of(self, features: Array) -> Array:
        """The slots of some features, -1 for those without one."""
        if self._table is not None:
            return self._table[features] - np.int32(1)
        if self._sorted is None:
            order = np.argsort(self.owners, kind="stable").astype(np.int32)
            self._sorted = self.owners[order], order
        known, slots = self._sorted
        if not len(known):
            return np.full(len(features), -1, np.int32)
        at = np.minimum(np.searchsorted(known, features), len(known) - 1)
        return np.where(known[at] == features, slots[at], np.int32(-1))

    def spread(self, table: Array, n_features: int) -> Array:
        """Converts a table with one row per slot to one with a row for every feature."""
        wide = np.zeros((n_features, *table.shape[1:]), table.dtype)
        wide[self.owners] = table[: self.n]
        return wide
