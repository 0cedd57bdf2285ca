"""How much of what the shards have learned a mixture takes: the mean of their changes, times a gain a feature.

A shard pulls a weight towards where its rows want it, and comes by 1 - exp(-u) of the way in a round, where u is its
step size times the curvature that its rows have in this weight. All S shards one after the other would have come by
1 - exp(-S u), so the mean of their changes lacks a factor (1 - exp(-S u)) / (1 - exp(-u)): S for a feature so rare that
no shard has finished with it, one for a feature that every shard knows. A factor a feature moves no fixed point: where
the mean of the changes is zero, so is the mixture's change.

Curvature is shared with the other features of a row. If they have nothing in common it is the sum of x_j^2; if all n of
them pull together it is n times that, for entries of like size. Rows are between the two: the root of n is taken.

By the same factor the clock goes on: where nothing is gained on the mean it has the noise of S rows a step, and steps
need to fall by the rows of one shard only; where all is summed up, by those of all.

The adaptive rules keep sums of squares that lower their steps by themselves, and one clock for the penalty of all
features: they take the plain mean, which was measured to be better.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np

from steepest.data.chunk import Array, Chunk
from steepest.learners.linear import LinearLearner

PIECE_ROWS = 1 << 10  # looked at together, so that they stay in the cache; sums are the same for any number
LEAST_PULL = 1e-12


def gather_evidence(chunks: Iterable[Chunk], n_features: int) -> Array:
    """By how much a shard's rows pull at each feature's weight, for a step size and a curvature of one.

    Rows are added one after the other, so that it does not matter how they are cut into chunks.
    """
    pull = np.zeros(n_features)
    for chunk in chunks:
        pull = np.pad(pull, (0, max(0, chunk.n_features - len(pull))))
        for start in range(0, chunk.n_rows, PIECE_ROWS):
            rows = chunk.span(start, min(chunk.n_rows, start + PIECE_ROWS)).packed()
            lengths = np.diff(rows.indptr)
            of_row = np.sqrt(lengths) if rows.weight is None else np.sqrt(lengths) * rows.weight
            parts = rows.values.astype(np.float64)
            parts *= parts
            parts *= np.repeat(of_row, lengths)
            np.add.at(pull, rows.indices.astype(np.intp), parts)
    return pull[:n_features]


def shares_of(rows: Sequence[int], evidence: Sequence[Array] | None = None) -> list[Array | float]:
    """What each shard counts in a mean: by its rows, or for each feature by its evidence, if anyone has some."""
    total = max(1, sum(rows))
    uniform = [n / total for n in rows]
    if evidence is None:
        return list(uniform)
    seen = sum(evidence, np.zeros_like(evidence[0]))
    safe = np.where(seen > 0, seen, 1.0)
    return [np.where(seen > 0, own / safe, part) for own, part in zip(evidence, uniform, strict=True)]


def gains(learner: LinearLearner, pull: Array, rows: float, n_shards: int) -> Array:
    """How many times the mean change each feature moves after a round, from 1 to the number of shards.

    `pull` is the evidence of a shard's `rows` in the round, `learner` the common state at its start.
    """
    u = learner.step_size * (pull * (learner.loss.curvature or 1.0) + learner.settings.l2 * rows)
    u = np.maximum(u, LEAST_PULL)
    return np.asarray(np.expm1(-n_shards * u) / np.expm1(-u))


def mean_gain(gain: Array, pull: Array) -> float:
    """The gain of the weights by which rows pull."""
    total = float(pull.sum())
    return float((gain * pull).sum()) / total if total > 0 and math.isfinite(total) else 1.0
