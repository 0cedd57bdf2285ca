"""The strata of a matrix: d x d blocks of its known entries, and the order in which they may be learned.

Users and items are put in random order and cut into d stripes with about as many entries each; block (a, b) holds the
entries of user stripe a and item stripe b. Blocks of one diagonal (a, (a + s) mod d) share no row and no column: they
are one stratum, a sub-epoch, and may be learned at once, by threads or by machines, without changing a bit. An epoch is
d sub-epochs in random order (Gemulla et al. 2011: distributed SGD). Within a block entries are shuffled once.
Invariant: the result depends on d and the seed, never on who runs what.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from steepest import kernels
from steepest.data.chunk import Array, DataError

# Factors of two stripes that stay in the second-level cache; measured best between 1 and 2 MB.
BLOCK_BYTES = 3 << 19
FEWEST, MOST = 4, 64
SMALL = 20_000  # fewer entries than this are one block


class Block(NamedTuple):
    """Stripe of users, stripe of items, and where its entries lie."""

    users: int
    items: int
    entries: slice


@dataclass(frozen=True)
class Strata:
    """Entries sorted by block. Rows have new numbers here: `user_places[code]` is a user's row."""

    user_places: Array
    item_places: Array
    user_bounds: Array
    item_bounds: Array
    users: Array
    items: Array
    values: Array
    weights: Array | None
    offsets: Array
    seed: int

    @property
    def d(self) -> int:
        """Stripes of each side."""
        return len(self.user_bounds) - 1

    def block(self, users: int, items: int) -> Block:
        """One block by its stripes."""
        number = users * self.d + items
        return Block(users, items, slice(int(self.offsets[number]), int(self.offsets[number + 1])))

    def sub_epochs(self, epoch: int) -> Iterator[list[Block]]:
        """The strata of an epoch in their order; the blocks of each are interchangeable."""
        rng = np.random.default_rng([self.seed, 1, epoch])
        for shift in rng.permutation(self.d).tolist():
            yield [self.block(a, (a + shift) % self.d) for a in rng.permutation(self.d).tolist()]

    def schedule(self, epoch: int) -> Array:
        """Numbers of the blocks of an epoch in one order that keeps that of the strata."""
        blocks = [block.users * self.d + block.items for stratum in self.sub_epochs(epoch) for block in stratum]
        return np.array(blocks, np.int32)


def choose_d(n_users: int, n_items: int, row_bytes: int, n_entries: int) -> int:
    """How many stripes: as few as leave both stripes of a block in the cache. Never a matter of threads."""
    if n_entries < SMALL:
        return 1
    wanted = -(-(n_users + n_items) * row_bytes // BLOCK_BYTES)
    return int(min(max(wanted, FEWEST), MOST, n_users, n_items))


def make_strata(
    users: Array, items: Array, values: Array, weights: Array | None, n_users: int, n_items: int, d: int, seed: int
) -> Strata:
    """Sorts entries (codes, values) into d x d blocks."""
    rng = np.random.default_rng([seed, 0])
    if len(users) and (users.max() >= n_users or items.max() >= n_items):
        raise DataError(f"an entry names a row that is not there; there are {n_users} users and {n_items} items")
    user_places, user_bounds = _stripes(np.bincount(users, minlength=n_users), d, rng)
    item_places, item_bounds = _stripes(np.bincount(items, minlength=n_items), d, rng)
    n = len(users)
    out = np.empty(n, np.int32), np.empty(n, np.int32), np.empty(n, np.float32)
    out_weights = None if weights is None else np.empty(n, np.float32)
    offsets = np.empty(d * d + 1, np.int64)
    kernels.factor_pack(
        users, items, values, weights, user_places, item_places, user_bounds, item_bounds, seed, *out, out_weights,
        offsets,
    )  # fmt: skip
    return Strata(user_places, item_places, user_bounds, item_bounds, *out, out_weights, offsets, seed)


def _stripes(counts: Array, d: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """(row of each code, first row of each stripe and the end): random order, equal numbers of entries."""
    order = rng.permutation(len(counts))
    places = np.empty(len(counts), np.int32)
    places[order] = np.arange(len(counts), dtype=np.int32)
    filled = np.cumsum(counts[order] + 1e-9)
    bounds = np.searchsorted(filled, filled[-1] * np.arange(1, d) / d) if len(counts) else np.zeros(d - 1, np.int64)
    return places, np.concatenate([[0], bounds, [len(counts)]]).astype(np.int64)
