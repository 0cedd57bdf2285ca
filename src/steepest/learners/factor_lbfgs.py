"""Batch learning of a factor model by L-BFGS (Liu and Nocedal 1989), for small problems and as a yardstick.

The same objective as SGD's, with all factors and biases as one long vector, in float64. Smooth losses only. Memory is
a dozen copies of the parameters and one row of factors an entry.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import numpy as np

from steepest import kernels
from steepest.data.chunk import Array, DataError
from steepest.learners.base import Progress
from steepest.learners.factor_settings import LOSSES
from steepest.learners.factors import BIAS, BIAS_PRIOR, FactorLearner
from steepest.learners.losses import get_loss

PAIRS = 8
INNER = 5  # iterations that make an epoch
TOLERANCE = 1e-9  # an iteration that gains less than this share is the last


class BatchRun:
    """Epochs of a few L-BFGS iterations each."""

    def __init__(
        self, learner: FactorLearner, users: Array, items: Array, values: Array, weights: Array | None
    ) -> None:
        self.learner = learner
        self.entries = users.astype(np.int64), items.astype(np.int64)
        self.values = values.astype(np.float64)
        self.weights = np.ones(len(values)) if weights is None else weights.astype(np.float64)
        self.n_entries, self.weight = len(users), float(self.weights.sum())
        self._sorted = [_by_owner(rows) for rows in self.entries]
        self._converged = False
        learner.set_shrinkage()
        self.x = self._flat()
        self._value, self._slope = self.objective(self.x)
        self._pairs: deque[tuple[Array, Array]] = deque(maxlen=PAIRS)

    step_size = 1.0

    def resume(self, learner: FactorLearner) -> None:
        """Not possible: the pairs of the past are gone."""
        raise DataError("solver='lbfgs' cannot go on from a checkpoint")

    def _flat(self) -> Array:
        rank, padded = self.learner.rank, self.learner.padded
        tables = self.learner.users, self.learner.items
        parts = [t[:, :rank].ravel() for t in tables] + [t[:, padded + BIAS] for t in tables]
        return np.concatenate(parts).astype(np.float64)

    def _parts(self, x: Array) -> tuple[Array, Array, Array, Array]:
        n, m, rank = len(self.learner.users), len(self.learner.items), self.learner.rank
        p, q, b, c = np.split(x, np.cumsum([n * rank, m * rank, n]))
        return p.reshape(n, rank), q.reshape(m, rank), b, c

    def objective(self, x: Array) -> tuple[float, Array]:
        """(sum of losses plus penalties, its gradient)."""
        s, (u, i) = self.learner.settings, self.entries
        p, q, b, c = self._parts(x)
        scores = self.learner.offset + b[u] + c[i] + np.einsum("ij,ij->i", p[u], q[i])
        code = get_loss(LOSSES[s.loss] or "squared").code
        losses, g = kernels.loss_value_slope(code, 0.0, scores, self.values)
        g = g * self.weights
        gradients = [_summed(g, q[i], self._sorted[0], len(p)), _summed(g, p[u], self._sorted[1], len(q))]
        value = float((losses * self.weights).sum())
        counts = self.learner.user_counts, self.learner.item_counts
        for number, (factors, n) in enumerate(zip((p, q), counts, strict=True)):
            ridge = s.alpha * self.learner.ridges(n)[:, None]
            value += 0.5 * float((ridge * factors**2).sum())
            gradients[number] += ridge * factors
        for bias, n, rows in ((b, counts[0], u), (c, counts[1], i)):
            prior = s.alpha * (n if s.weighting == "count" else np.full(len(n), BIAS_PRIOR))
            slope = np.bincount(rows, g, len(bias)) + prior * bias if s.biases else np.zeros(len(bias))
            value += 0.5 * float((prior * bias**2).sum())
            gradients.append(slope)
        return value, np.concatenate([part.ravel() for part in gradients])

    def epoch(self, epoch: int) -> Progress:
        """A few iterations; the loss is the one after them."""
        for _ in range(INNER):
            if self._converged:
                break
            before = self._value
            self.x, self._value, self._slope = lbfgs_step(self.objective, self.x, self._value, self._slope, self._pairs)
            self._converged = before - self._value <= TOLERANCE * abs(before)
        self.settle()
        return Progress(self.n_entries, self.weight, self._value - self.penalty())

    def penalty(self) -> float:
        """What the penalties add to the sum of losses."""
        return self.learner.penalty()

    def settle(self) -> None:
        """Writes the vector back into the tables."""
        p, q, b, c = self._parts(self.x)
        rank, padded = self.learner.rank, self.learner.padded
        for table, factors, bias in ((self.learner.users, p, b), (self.learner.items, q, c)):
            table[:, :rank] = factors
            table[:, padded + BIAS] = bias


def lbfgs_step(
    objective: Callable[[Array], tuple[float, Array]],
    x: Array,
    value: float,
    slope: Array,
    pairs: deque[tuple[Array, Array]],
) -> tuple[Array, float, Array]:
    """One iteration with a backtracking line search; where no step helps, x stays."""
    direction = -_times_inverse(slope, pairs)
    descent = float(direction @ slope)
    if descent >= 0:
        pairs.clear()
        direction, descent = -slope, -float(slope @ slope)
    step = 1.0 if pairs else min(1.0, 1.0 / max(float(np.abs(slope).sum()), 1e-300))
    for _ in range(40):
        candidate = x + step * direction
        new_value, new_slope = objective(candidate)
        if new_value <= value + 1e-4 * step * descent:
            move, change = candidate - x, new_slope - slope
            if float(move @ change) > 1e-12 * float(change @ change):
                pairs.append((move, change))
            return candidate, new_value, new_slope
        step *= 0.5
    return x, value, slope


def _times_inverse(slope: Array, pairs: deque[tuple[Array, Array]]) -> Array:
    """The two loops: an approximate inverse Hessian times the slope."""
    r, shares = slope.copy(), []
    for move, change in reversed(pairs):
        share = float(move @ r) / float(move @ change)
        r -= share * change
        shares.append(share)
    if pairs:
        move, change = pairs[-1]
        r *= float(move @ change) / float(change @ change)
    for (move, change), share in zip(pairs, reversed(shares), strict=True):
        r += (share - float(change @ r) / float(move @ change)) * move
    return r


def _by_owner(owners: Array) -> tuple[Array, Array, Array]:
    """(order that sorts entries by owner, first place of each owner there, the owners)."""
    order = np.argsort(owners, kind="stable")
    starts = np.flatnonzero(np.diff(owners[order], prepend=-1))
    return order, starts, owners[order][starts]


def _summed(g: Array, rows: Array, by_owner: tuple[Array, Array, Array], n: int) -> Array:
    """g times rows, added up by owner."""
    order, starts, owners = by_owner
    total = np.zeros((n, rows.shape[1]))
    total[owners] = np.add.reduceat((g[:, None] * rows)[order], starts)
    return total
