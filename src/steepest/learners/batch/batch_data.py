"""The rows that a batch solver learns from: read in passes, or put together in memory.

Solvers that read all rows in every pass need constant memory beyond what the source needs. Those that visit rows at
random (dual_cd, saga and cd) keep a number per row anyway, so rows from files are put together in memory, if they fit.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator

import numpy as np

from steepest import kernels
from steepest.data.chunk import Array, Chunk, concatenate
from steepest.data.source import ArraySource, Order, Source
from steepest.errors import DataError
from steepest.learners.linear.linear import LinearLearner
from steepest.learners.targets import balanced_weights

BYTES_PER_ENTRY, BYTES_PER_ROW = 8, 64


class BatchData:
    """The rows of a source with coded targets, pass after pass, and what one survey of all of them shows."""

    def __init__(self, source: Source, learner: LinearLearner) -> None:
        self.source = source
        self.learner = learner
        self.n_rows = self.n_entries = self.n_pairs = 0
        self.least_weight = math.inf
        self._survey()
        self.stored = [self._coded(chunk) for chunk in self._read()] if isinstance(source, ArraySource) else None

    def _read(self) -> Iterator[Chunk]:
        yield from self.source.read(Order(), 0)

    def _survey(self) -> None:
        """Classes, features and counts; the learner gets to know them all before it codes a target."""
        learner, balanced = self.learner, self.learner.settings.class_weight == "balanced"
        counts: dict[object, float] = {}
        for chunk in self._read():
            self.n_rows += chunk.n_rows
            rows = chunk.row_numbers
            lengths = chunk.indptr[rows + 1] - chunk.indptr[rows]
            self.n_entries += int(lengths.sum())
            self.n_pairs += (int(lengths @ lengths) + int(lengths.sum())) // 2
            learner.announce(chunk)
            if balanced and chunk.y is not None and chunk.y.ndim == 1:
                _count(counts, chunk)
        if balanced and counts:
            learner.weigh_classes(balanced_weights(counts))
        learner.targets.decide_loss()

    def _coded(self, chunk: Chunk) -> Chunk:
        return self.learner.code(chunk)

    def passes(self) -> Iterator[tuple[int, Chunk]]:
        """(number of the first row, chunk) with coded targets."""
        start = 0
        for chunk in self.stored if self.stored is not None else map(self._coded, self._read()):
            yield start, chunk
            start += chunk.n_rows

    @property
    def in_memory(self) -> bool:
        """Whether the rows stay in memory, so that numbers stored for each of them cost little."""
        return self.stored is not None

    def weigh(self) -> float:
        """The sum of the rows' weights, class weights included; finds the least of them, too."""
        total = 0.0
        for _, chunk in self.passes():
            if chunk.weight is None:
                total, least = total + chunk.n_rows, 1.0
            else:
                weight = chunk.visited(chunk.weight)
                total, least = add_in_order(total, weight), float(weight[weight > 0].min(initial=math.inf))
            self.least_weight = min(self.least_weight, least)
        return total

    def all_rows(self) -> Chunk:
        """One block with coded targets, checked; rows that are one block already are not copied."""
        rows, learner = self._joined(), self.learner
        bad = kernels.add_rows(rows.as_rows(), np.zeros(rows.n_rows), np.zeros(rows.n_features))
        if bad < rows.n_rows:
            learner.refuse_bad_row(rows, bad)
        finite = np.isfinite(row_squares(rows))
        if not finite.all():
            row = int(np.flatnonzero(~finite)[0])
            learner.refuse_bad_row(rows, row)
            raise DataError(f"row {row} is so long that its square overflows; scale the features to about one")
        return rows

    def _joined(self) -> Chunk:
        source = self.source
        if isinstance(source, ArraySource) and source.rows is None and source.block.order is None:
            return self._coded(source.block)
        # Twice: while they are put together, the parts are there as well.
        needed = 2 * (BYTES_PER_ENTRY * self.n_entries + BYTES_PER_ROW * self.n_rows)
        if needed > memory_bytes():
            raise DataError(
                f"solver={self.learner.settings.solver!r} keeps all rows in memory, and these {self.n_rows:,} would "
                f"take {needed / 2**30:.1f} GB; use solver='lbfgs', 'newton_cg' or 'asgd', which read them in passes"
            )
        return concatenate([chunk for _, chunk in self.passes()])


def _count(counts: dict[object, float], chunk: Chunk) -> None:
    assert chunk.y is not None
    y = chunk.visited(chunk.y)
    weight = np.ones(len(y)) if chunk.weight is None else chunk.visited(chunk.weight)
    for label in np.unique(y):
        counts[label.item()] = add_in_order(counts.get(label.item(), 0.0), weight[y == label])


def add_in_order(total: float, numbers: Array) -> float:
    """One number after the other, so that chunks do not matter."""
    return float(np.cumsum(np.concatenate([[total], numbers]))[-1])


def row_squares(rows: Chunk) -> Array:
    """|x|^2 of every row."""
    return kernels.row_squares(rows.as_rows())


def memory_bytes() -> int:
    """What the machine has, or a modest guess."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return 4 << 30
