"""New rows of a factor model from their entries, the other side fixed: least squares where the loss allows it.

Other losses take short passes of their own solver, after each of which the fixed side is put back.
"""

from __future__ import annotations

import numpy as np

from steepest.data.chunk import Array
from steepest.learners.als import AlternatingRun, solve_rows
from steepest.learners.factors import FactorLearner, with_settings

EPOCHS = 30


def fold_rows(
    learner: FactorLearner,
    users: Array,
    items: Array,
    values: Array,
    weights: Array | None,
    side: str,
    n_threads: int,
) -> None:
    """Solves the rows of `side` that these entries (codes and normalised targets) name."""
    rows = np.unique(users if side == "users" else items)
    entries = users, items, values, weights
    loss = learner.settings.loss
    if loss in ("squared", "implicit"):
        run = AlternatingRun(with_settings(learner, solver="als"), *entries, n_threads)
        mine, other = _sides(learner, side)
        by = run.by_user if side == "users" else run.by_item
        solve_rows(learner, mine, other, by.only(rows), run.ridge(by, len(other))[rows], rows, n_threads)
        return
    _, fixed = _sides(learner, side)
    kept = fixed.copy()
    counts = learner.user_counts, learner.item_counts
    for _ in range(EPOCHS):
        if loss == "kl":
            _fold_by_kl(learner, entries, rows, side, n_threads)
        else:
            learner.step(*entries)
            learner.user_counts, learner.item_counts = counts
        fixed[:] = kept


def _fold_by_kl(
    learner: FactorLearner, entries: tuple[Array, Array, Array, Array | None], rows: Array, side: str, n_threads: int
) -> None:
    run = AlternatingRun(with_settings(learner), *entries, n_threads)
    run.kl_side(side)
    _sides(learner, side)[0][rows] = _sides(run.learner, side)[0][rows]


def _sides(learner: FactorLearner, side: str) -> tuple[Array, Array]:
    """(the side's table, the other one)."""
    return (learner.users, learner.items) if side == "users" else (learner.items, learner.users)
