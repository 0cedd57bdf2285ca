"""The rows that a batch solver learns from: read in passes, or put together in memory, on the columns in use.

Solvers that read all rows in every pass need constant memory beyond what the source needs: coded rows are kept for the
next pass as a row store keeps rows, in memory or in a temporary file, and coded anew if they are too many. Those that
visit rows at random (dual_cd, saga and cd) keep a number per row anyway, so rows from files are put together in memory,
if they fit.

A column is in use if some row has an entry there. If half of the columns or more are not (hashed features rarely use
more than a few of their 2^22), those in use are numbered in ascending order and the solver sees these numbers only: its
tables are as long as the columns in use. The weights of all other columns are zero, as they would be anyway.
Values may be multiplied by a root for each column: the penalty of a weight is then alpha over the square of the root,
and learners hold the weights of the values as they are.
Invariant: which columns are in use depends on the rows only, neither on their order nor on chunks.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from steepest import kernels
from steepest.data.chunk import Array, Chunk, concatenate
from steepest.data.source import ArraySource, Source
from steepest.data.store import row_store
from steepest.data.store.row_store import StoredChunks, room_for_entries
from steepest.errors import DataError
from steepest.learners.linear.linear import LinearLearner
from steepest.learners.linear.slots import Slots
from steepest.learners.targets import balanced_weights, refuse_bad_rows

BYTES_PER_ENTRY, BYTES_PER_ROW = 8, 64


class BatchData:
    """The rows of a source with coded targets, pass after pass, and what one survey of all of them shows."""

    def __init__(
        self,
        source: Source,
        learner: LinearLearner,
        *,
        compact: bool = True,
        roots: Callable[[Array], Array] | None = None,
    ) -> None:
        self.source = source
        self.learner = learner
        self.n_rows = self.n_entries = self.n_pairs = 0
        self.least_weight = math.inf
        self.columns: Slots | None = None  # the columns in use, if the solver sees only those
        self.n_features = 0  # columns that the solver sees
        self.heavy: Any = None  # a preconditioner.HeavyHessian, once a solver has made it
        self._survey(compact=compact)
        self.roots: Array | None = None if roots is None else roots(self.seen).astype(np.float32)
        self.stored = self._store()

    def _store(self) -> list[Chunk] | StoredChunks | None:
        """The coded rows for all passes: of arrays in memory, else as a row store has them; None if they do not fit."""
        coded = map(self._coded, self.source.in_file_order())
        if isinstance(self.source, ArraySource):
            return list(coded)
        renewed = any(source.renewed for source in self.source.lineage)
        if renewed or self.n_entries > row_store.MOST_ENTRIES or self.n_rows > row_store.MOST_ROWS:
            return None
        try:
            return StoredChunks(coded, room_for_entries() // 2)  # the other half is for the rows as they are
        except OSError:  # no room on the disk, or no place for temporary files
            return None

    def _survey(self, *, compact: bool) -> None:
        """Classes, columns and counts; the learner gets to know them all before it codes a target."""
        learner, balanced = self.learner, self.learner.settings.class_weight == "balanced"
        counts: dict[object, float] = {}
        in_use = Slots(0)
        for chunk in self.source.in_file_order():
            self.n_rows += chunk.n_rows
            rows = chunk.row_numbers
            lengths = chunk.indptr[rows + 1] - chunk.indptr[rows]
            self.n_entries += int(lengths.sum())
            self.n_pairs += (int(lengths @ lengths) + int(lengths.sum())) // 2
            learner.announce(chunk)
            if compact:
                _add_columns(in_use, chunk)
            if balanced and chunk.y is not None and chunk.y.ndim == 1:
                _count(counts, chunk)
        if balanced and counts:
            learner.weigh_classes(balanced_weights(counts))
        learner.targets.decide_loss()
        self.n_features = learner.n_features
        if 0 < 2 * in_use.n <= learner.n_features:
            self.columns = Slots(learner.n_features, np.sort(in_use.owners))
            self.n_features = self.columns.n

    def _coded(self, chunk: Chunk) -> Chunk:
        chunk = self.learner.sized(chunk)
        if self.columns is not None:
            placed, visits = self.columns.find(chunk), chunk.row_numbers
            y = None if chunk.y is None else chunk.y[visits]
            weight = None if chunk.weight is None else chunk.weight[visits]
            chunk = replace(placed, y=y, weight=weight, first_id=chunk.first_id)
        if self.roots is not None:
            chunk = replace(chunk, values=chunk.values * self.roots[chunk.indices])
        return self.learner.code(chunk)

    @property
    def seen(self) -> Array:
        """The columns that the solver sees."""
        return np.arange(self.n_features) if self.columns is None else self.columns.owners

    def refuse_bad_row(self, coded: Chunk, visit: int) -> None:
        """Raises if a row of a pass is at fault itself, and names the column by its own number."""
        if self.columns is not None:
            owners, n = self.columns.owners, self.learner.n_features
            coded = replace(coded, indices=owners[coded.indices].astype(np.int32), n_features=n)
        self.learner.refuse_bad_row(coded, visit)

    def table_of(self, learner: LinearLearner) -> Array:
        """The weights of a learner as solvers hold them: of the columns they see, and a last row for the bias.

        The learner may have met the same classes in another order.
        """
        columns = [learner.output_weights(output, self.seen) for output in range(learner.n_outputs)]
        table = np.vstack([np.column_stack(columns), learner.used_weights()[2]]).astype(np.float64)
        labels, known = self.learner.book.labels, learner.book.labels
        if labels != known and learner.n_outputs == 1:  # the score of the second class
            table = -table
        elif labels != known:
            table = table[:, [known.index(label) for label in labels]]
        if self.roots is not None:
            table[:-1] /= self.roots[:, None]
        return table

    def take_weights(self, table: Array) -> None:
        """Weights as solvers hold them become the learner's."""
        weights = table[:-1] if self.roots is None else table[:-1] * self.roots[:, None]
        self.learner.take_weights(weights, table[-1], self.columns)

    def passes(self) -> Iterator[tuple[int, Chunk]]:
        """(number of the first row, chunk) with coded targets."""
        start = 0
        for chunk in self.stored if self.stored is not None else map(self._coded, self.source.in_file_order()):
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
        rows = self._joined()
        bad = kernels.add_rows(rows.as_rows(), np.zeros(rows.n_rows), np.zeros(rows.n_features))
        if bad < rows.n_rows:
            self.refuse_bad_row(rows, bad)
        finite = np.isfinite(kernels.row_squares(rows.as_rows()))
        if not finite.all():
            row = int(np.flatnonzero(~finite)[0])
            self.refuse_bad_row(rows, row)
            raise DataError(f"row {row} is so long that its square overflows; scale the features to about one")
        return rows

    def _joined(self) -> Chunk:
        source = self.source
        if self.stored is not None and len(self.stored) == 1 and (only := next(iter(self.stored))).order is None:
            return only
        in_place = isinstance(source, ArraySource) and source.rows is None and source.block.order is None
        if isinstance(source, ArraySource) and in_place and self.columns is None:
            return self._coded(source.block)
        # Twice: while they are put together, the parts are there as well.
        needed = 2 * (BYTES_PER_ENTRY * self.n_entries + BYTES_PER_ROW * self.n_rows)
        if needed > memory_bytes():
            raise DataError(
                f"solver={self.learner.settings.solver!r} keeps all rows in memory, and these {self.n_rows:,} would "
                f"take {needed / 2**30:.1f} GB; use solver='lbfgs', 'newton_cg' or 'asgd', which read them in passes"
            )
        return concatenate([chunk for _, chunk in self.passes()])


def _add_columns(in_use: Slots, chunk: Chunk) -> None:
    """The columns of the rows visited; a row with a column that cannot be is refused."""
    in_use.grow(chunk.n_features)
    if in_use.n < in_use.n_features:
        rows = chunk if chunk.order is None else chunk.packed()
        if in_use.number(rows.indices[rows.indptr[0] : rows.indptr[-1]]).min(initial=0) < 0:
            refuse_bad_rows(chunk, check_values=False)


def _count(counts: dict[object, float], chunk: Chunk) -> None:
    assert chunk.y is not None
    y = chunk.visited(chunk.y)
    weight = np.ones(len(y)) if chunk.weight is None else chunk.visited(chunk.weight)
    for label in np.unique(y):
        counts[label.item()] = add_in_order(counts.get(label.item(), 0.0), weight[y == label])


def add_in_order(total: float, numbers: Array) -> float:
    """One number after the other, so that chunks do not matter."""
    return float(np.cumsum(np.concatenate([[total], numbers]))[-1])


def memory_bytes() -> int:
    """What the machine has, or a modest guess."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return 4 << 30
