"""The cells of a sparse matrix for stochastic steps where zeros count: all known ones, and a sample of the others.

The sum over all cells of (v - s)^2 is that over the known cells plus that over N zeros. An epoch visits every known
cell and Z zeros, drawn anew from (seed, epoch), each with weight N / Z: the expected gradient is that of all cells.
Where there are no more than Z zeros all of them are visited, with weight 1. Entries that name the same cell are added
up, and weights multiply values, so that an entry of weight 2 is two copies of it.
"""

from __future__ import annotations

import numpy as np

from steepest.data.chunk import Array
from steepest.data.entries import Entries

ZEROS_PER_KNOWN = 4
STREAM = 3  # of the random numbers, beside those of stripes and schedules


class SampledZeros:
    """Known cells, and zeros drawn for each epoch."""

    def __init__(self, entries: Entries, n_users: int, n_items: int, seed: int) -> None:
        self.n_users, self.n_items, self.seed = n_users, n_items, seed
        values = entries.values.astype(np.float64)
        if entries.weights is not None:
            values = values * entries.weights
        cells, first, codes = np.unique(
            entries.users.astype(np.int64) * n_items + entries.items, return_index=True, return_inverse=True
        )
        order = np.argsort(first, kind="stable")  # known cells in the order of the data
        self._known = cells
        self._cells = cells[order]
        self._values = np.bincount(codes, values, minlength=len(cells))[order].astype(np.float32)
        self.n_zeros = n_users * n_items - len(cells)
        self.n_drawn = min(self.n_zeros, ZEROS_PER_KNOWN * len(cells))

    def epoch(self, epoch: int) -> Entries:
        """The entries of an epoch, weighted."""
        zeros = self._zeros(epoch)
        cells = np.concatenate([self._cells, zeros])
        users, items = np.divmod(cells, self.n_items)
        values = np.concatenate([self._values, np.zeros(len(zeros), np.float32)])
        weights = np.ones(len(cells), np.float32)
        weights[len(self._cells) :] = self.n_zeros / max(len(zeros), 1)
        return Entries(users.astype(np.int32), items.astype(np.int32), values, weights)

    def visits(self) -> tuple[Array, Array]:
        """How often an epoch visits each user and each item, on average."""
        users, items = np.divmod(self._known, self.n_items)
        share = self.n_drawn / max(self.n_zeros, 1)
        known = np.bincount(users, minlength=self.n_users), np.bincount(items, minlength=self.n_items)
        return known[0] + share * (self.n_items - known[0]), known[1] + share * (self.n_users - known[1])

    def _zeros(self, epoch: int) -> Array:
        n_cells = self.n_users * self.n_items
        if self.n_drawn == self.n_zeros:
            return np.setdiff1d(np.arange(n_cells), self._known, assume_unique=True)
        rng, found = np.random.default_rng([self.seed, STREAM, epoch]), np.zeros(0, np.int64)
        while len(found) < self.n_drawn:
            drawn = rng.integers(0, n_cells, self.n_drawn)
            at = np.minimum(np.searchsorted(self._known, drawn), len(self._known) - 1)
            found = np.concatenate([found, drawn[self._known[at] != drawn]])
        return found[: self.n_drawn]
