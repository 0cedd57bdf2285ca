"""Rows in groups (queries) as pairs: what a ranker learns from.

A group is a run of neighbouring rows with the same `group`. A pair is the difference of two rows of a group, the one
with the higher target first, as a row with the target +1: whoever separates pairs from zero puts rows in order.
Each group gives all its pairs, or a random sample of them, drawn from (seed, epoch, name of the group) only.
Pairs are mixed inside blocks of whole groups, and groups in memory with each other, unless shuffle is "never".
Invariant: pairs do not depend on chunks. Memory: a block and the longest group, whatever the number of rows.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np

from steepest.data.chunk import Array, Chunk, concatenate
from steepest.data.source import ArraySource, Derived, Order, Selected, Source, mix
from steepest.errors import DataError
from steepest.parameters import inside

BLOCK_ROWS = 1 << 12  # rows whose pairs are mixed with each other, at least


class Pairs(Derived):
    """The pairs of another source's groups; at most `per_row` pairs for each row of a group, None for all."""

    def __init__(self, parent: Source, per_row: int | None = 10, seed: int = 0) -> None:
        super().__init__(parent)
        self.labels = None
        self.per_row = per_row
        self.seed = seed
        self.renewed = per_row is not None

    def fingerprint(self) -> dict[str, Any]:
        """The parent's fingerprint, and how pairs are drawn."""
        return {"pairs": self.per_row, "seed": self.seed, "of": self.parent.fingerprint()}

    def holdout(self, fraction: float, seed: int = 0) -> tuple[Source, Source]:
        """Two sources of pairs, from different groups."""
        most, held = holdout_groups(self.parent, fraction, seed)
        return Pairs(most, self.per_row, self.seed), Pairs(held, self.per_row, self.seed)

    def read(self, order: Order, epoch: int) -> Iterator[Chunk]:
        """Yields blocks of pairs."""
        mixed = order.shuffle != "never"
        groups = _mixed_groups(self.parent, order, epoch) if mixed else groups_of(self.parent)
        for number, block in enumerate(_blocks(groups)):
            rows = concatenate(block)
            high, low = self._choose(block, epoch)
            if mixed:
                visits = order.generator(epoch, 1, number).permutation(len(high))
                high, low = high[visits], low[visits]
            if len(high):
                yield differences(rows, high, low)

    def _choose(self, block: list[Chunk], epoch: int) -> tuple[Array, Array]:
        """The better and the worse row of every pair, numbered inside the block."""
        start, high, low = 0, [], []
        for group in block:
            assert group.y is not None
            assert group.group is not None
            generator = np.random.default_rng([self.seed, epoch, group_key(group.group[0])])
            better, worse = pairs_of(group.y, self.per_row, generator)
            high.append(better + start)
            low.append(worse + start)
            start += group.n_rows
        return np.concatenate(high), np.concatenate(low)


def pairs_of(y: Array, per_row: int | None, generator: np.random.Generator) -> tuple[Array, Array]:
    """(better, worse) row numbers of pairs with different targets: all, or a sample of at most per_row * n without
    repetition, each pair as likely as any other."""
    order = np.argsort(y, kind="stable")
    below = np.searchsorted(y[order], y[order], side="left")  # rows with a lower target than this one
    ends = np.cumsum(below)
    total = int(ends[-1]) if len(ends) else 0
    if per_row is None or total <= per_row * len(y):
        numbers = np.arange(total)
    else:
        numbers = np.sort(generator.choice(total, per_row * len(y), replace=False, shuffle=False))
    better = np.searchsorted(ends, numbers, side="right")
    worse = numbers - (ends[better] - below[better])
    return order[better], order[worse]


def differences(rows: Chunk, high: Array, low: Array) -> Chunk:
    """Rows high - low with the target +1; entries of the same column are put together."""
    both = np.stack([high, low], axis=1).ravel()
    parts = rows.visit(both).packed()
    lengths = np.diff(parts.indptr)
    sign = np.repeat(np.tile(np.array([1, -1], np.float32), len(high)), lengths)
    owner = np.repeat(np.arange(len(high)), lengths[0::2] + lengths[1::2])
    key = owner * np.int64(max(1, rows.n_features)) + parts.indices
    order = np.argsort(key, kind="stable")
    key = key[order]
    first = np.flatnonzero(np.concatenate([[True], key[1:] != key[:-1]])) if len(key) else np.empty(0, np.int64)
    values = np.add.reduceat((parts.values * sign)[order], first) if len(first) else np.empty(0, np.float32)
    first, values = first[values != 0], values[values != 0]
    indptr = np.concatenate([[0], np.cumsum(np.bincount(owner[order][first], minlength=len(high)))])
    indices = parts.indices[order][first]
    return Chunk(indptr.astype(np.int64), indices, values.astype(np.float32), rows.n_features, np.ones(len(high)))


def groups_of(source: Source) -> Iterator[Chunk]:
    """The groups of a source in its own order, each as a chunk of its rows, however the source is cut."""
    waiting: list[Chunk] = []
    for chunk in source.in_file_order():
        names_of_groups(chunk)
        packed = chunk.packed() if chunk.order is not None else chunk
        assert packed.group is not None
        edges = [0, *(np.flatnonzero(packed.group[1:] != packed.group[:-1]) + 1).tolist(), packed.n_rows]
        for start, stop in pairwise(edges):
            part = packed.span(start, stop)
            if waiting and part.n_rows and waiting[-1].group[0] != part.group[0]:  # type: ignore[index]
                yield concatenate(waiting)
                waiting = []
            if part.n_rows:
                waiting.append(part)
    if waiting:
        yield concatenate(waiting)


def names_of_groups(chunk: Chunk) -> Array:
    """The groups of the block's rows; rows without any cannot be ranked."""
    if chunk.group is None:
        raise DataError("rows to rank need groups; give groups to fit, or a libsvm file with qid:N after each label")
    return chunk.group


def _mixed_groups(source: Source, order: Order, epoch: int) -> Iterator[Chunk]:
    """Groups in memory in random order; those of files as they come."""
    if not isinstance(source, ArraySource):
        yield from groups_of(source)
        return
    groups = list(groups_of(source))
    for number in order.generator(epoch, 0).permutation(len(groups)):
        yield groups[number]


def _blocks(groups: Iterator[Chunk]) -> Iterator[list[Chunk]]:
    block: list[Chunk] = []
    n_rows = 0
    for group in groups:
        block.append(group)
        n_rows += group.n_rows
        if n_rows >= BLOCK_ROWS:
            yield block
            block, n_rows = [], 0
    if block:
        yield block


def group_key(name: Any) -> int:
    """A number for the name of a group, the same in every run and on every machine."""
    if isinstance(name, int | np.integer) and name >= 0:
        return int(name)
    return zlib.crc32(str(name).encode())


def holdout_groups(source: Source, fraction: float, seed: int = 0) -> tuple[Source, Source]:
    """Two sources: most groups, and about the given fraction of them; a group's side depends on its name and seed."""
    mark = np.uint64(int(inside("holdout", fraction, 0.0, 1.0) * 2**64))

    def held(chunk: Chunk) -> Array:
        names, codes = np.unique(chunk.visited(names_of_groups(chunk)), return_inverse=True)
        keys = np.array([group_key(name) for name in names.tolist()], np.uint64)
        return np.asarray((mix(keys, seed) < mark)[codes])

    return (
        Selected(source, lambda chunk: ~held(chunk), f"all but {fraction!r} of the groups by {seed}"),
        Selected(source, held, f"{fraction!r} of the groups by {seed}"),
    )


def sample_groups(source: Source, fraction: float, seed: int = 0) -> Source:
    """About this share of the groups, whole; a larger sample holds all groups of a smaller one."""
    return source if fraction >= 1 else holdout_groups(source, fraction, seed)[1]
