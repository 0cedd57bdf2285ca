"""The strata of a matrix: d x d blocks of its known entries, and the order in which they may be learned.

Users and items are put in random order and cut into d stripes with about as many entries each; block (a, b) holds the
entries of user stripe a and item stripe b. Blocks of one diagonal (a, (a + s) mod d) share no row and no column: they
are one stratum, a sub-epoch, and may be learned at once, by threads or by machines: results are bit-identical. An
epoch is d sub-epochs in random order (Gemulla et al. 2011: distributed SGD). Within a block entries are shuffled once.
Invariant: the result depends on d and the seed, never on who runs what.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from steepest import kernels
from steepest.data.chunk import Array
from steepest.data.entries import Entries
from steepest.errors import DataError

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
    stripes = -(-(n_users + n_items) * row_bytes // BLOCK_BYTES)
    return int(min(max(stripes, FEWEST), MOST, n_users, n_items))


def plan_strata(entries: Entries, n_users: int, n_items: int, d: int, seed: int) -> Strata:
    """Stripes for these entries, and no entries in the blocks yet."""
    rng = np.random.default_rng([seed, 0])
    user_places, user_bounds = _stripes(np.bincount(entries.users, minlength=n_users), d, rng)
    item_places, item_bounds = _stripes(np.bincount(entries.items, minlength=n_items), d, rng)
    nothing = np.zeros(0, np.int32), np.zeros(0, np.int32), np.zeros(0, np.float32)
    offsets = np.zeros(d * d + 1, np.int64)
    return Strata(user_places, item_places, user_bounds, item_bounds, *nothing, None, offsets, seed)


def make_strata(entries: Entries, n_users: int, n_items: int, d: int, seed: int) -> Strata:
    """Sorts entries (codes, and targets in the units of learning) into d x d blocks."""
    if len(entries.users) and (entries.users.max() >= n_users or entries.items.max() >= n_items):
        raise DataError(f"an entry names a row that is not there; there are {n_users} users and {n_items} items")
    return fill_strata(plan_strata(entries, n_users, n_items, d, seed), entries)


def fill_strata(plan: Strata, entries: Entries, before: int = 0) -> Strata:
    """The entries in the blocks of a plan; `before` counts entries of earlier stripes that are elsewhere."""
    given = entries.users, entries.items, entries.values, entries.weights
    stripes = (plan.user_places, plan.user_bounds), (plan.item_places, plan.item_bounds)
    users, items, values, weights, offsets = kernels.factor_pack(*given, *stripes, plan.seed, before)
    return replace(plan, users=users, items=items, values=values, weights=weights, offsets=offsets)


def one_block(entries: Entries, n_users: int, n_items: int) -> Strata:
    """All rows and entries in one block, in the order given."""
    return Strata(
        user_places=np.arange(n_users, dtype=np.int32),
        item_places=np.arange(n_items, dtype=np.int32),
        user_bounds=np.array([0, n_users]),
        item_bounds=np.array([0, n_items]),
        users=entries.users,
        items=entries.items,
        values=entries.values,
        weights=entries.weights,
        offsets=np.array([0, len(entries.users)]),
        seed=0,
    )


def _stripes(counts: Array, d: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """(row of each code, first row of each stripe and the end): random order, equal numbers of entries."""
    order = rng.permutation(len(counts))
    places = np.empty(len(counts), np.int32)
    places[order] = np.arange(len(counts), dtype=np.int32)
    filled = np.cumsum(counts[order] + 1e-9)
    bounds = np.searchsorted(filled, filled[-1] * np.arange(1, d) / d) if len(counts) else np.zeros(d - 1, np.int64)
    return places, np.concatenate([[0], bounds, [len(counts)]]).astype(np.int64)
