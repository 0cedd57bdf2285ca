"""All rows of a source as one block, for the solvers that visit them at random: dual_cd, saga and cd.

They keep a number for every row anyway, so rows that are read from files are put together in memory, if they fit.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import numpy as np

from steepest import kernels
from steepest.data.chunk import Array, Chunk, DataError, concatenate
from steepest.data.source import ArraySource
from steepest.learners.linear_state import TARGETS
from steepest.learners.objective import BatchData, Objective

BYTES_PER_ENTRY, BYTES_PER_ROW = 8, 64
Problem = TypeVar("Problem")
Answer = TypeVar("Answer")


def all_rows(data: BatchData) -> Chunk:
    """One block with coded targets, checked; rows that are one block already are not copied."""
    rows = _joined(data)
    bad = kernels.dual_gather(rows.indptr, rows.indices, rows.values, np.zeros(rows.n_rows), np.zeros(rows.n_features))
    if bad < rows.n_rows:
        data.learner._refuse_bad_row(rows, bad)
    finite = np.isfinite(row_squares(rows))
    if not finite.all():
        row = int(np.flatnonzero(~finite)[0])
        data.learner._refuse_bad_row(rows, row)
        raise DataError(f"row {row} is so long that its square overflows; scale the features to about one")
    return rows


def row_squares(rows: Chunk) -> Array:
    """|x|^2 of every row."""
    squares = np.empty(rows.n_rows)
    kernels.row_squares(rows.indptr, rows.indices, rows.values, squares)
    return squares


def _joined(data: BatchData) -> Chunk:
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


def for_each(run: Callable[[Problem], Answer], problems: Sequence[Problem], n_threads: int) -> list[Answer]:
    """The answers of all problems, in order; outputs do not share anything, so threads change no bit."""
    if min(n_threads, len(problems)) <= 1:
        return [run(problem) for problem in problems]
    with ThreadPoolExecutor(min(n_threads, len(problems))) as pool:
        return list(pool.map(run, problems))
