"""All rows of a source as one block, for the solvers that visit them at random: dual_cd, saga and cd.

They keep a number for every row anyway, so rows that are read from files are put together in memory, if they fit.
"""

from __future__ import annotations

import os

import numpy as np

from steepest.data.chunk import Array, Chunk, DataError, concatenate
from steepest.data.source import ArraySource
from steepest.learners.linear import TARGETS
from steepest.learners.objective import BatchData, Objective

BYTES_PER_ENTRY, BYTES_PER_ROW = 8, 64


def all_rows(data: BatchData) -> Chunk:
    """One block with coded targets; rows that are one block already are not copied."""
    source = data.source
    if isinstance(source, ArraySource) and source.rows is None and source.block.order is None:
        return data._coded(source.block)
    # Twice: while they are put together, the parts are there as well.
    needed = 2 * (BYTES_PER_ENTRY * data.n_entries + BYTES_PER_ROW * data.n_rows)
    if needed > memory_bytes():
        raise DataError(
            f"solver={data.learner.settings.rule!r} keeps all rows in memory, and these {data.n_rows:,} would take "
            f"{needed / 2**30:.1f} GB; use solver='lbfgs', 'newton_cg' or 'asgd', which read them in passes"
        )
    return concatenate([chunk for _, chunk in data.passes()])


def memory_bytes() -> int:
    """What the machine has, or a modest guess."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return 4 << 30


def targets_of(objective: Objective, rows: Chunk, output: int) -> Array:
    """The targets of one output: +1 and -1 for a class against the rest, or a column of y."""
    assert rows.y is not None
    if objective.target_kind == TARGETS:
        return np.ascontiguousarray(rows.y.reshape(rows.n_rows, -1)[:, output], np.float64)
    return np.where(rows.y == output, 1.0, -1.0)
