"""Batch learning of a factor model by L-BFGS (Liu and Nocedal 1989), for small problems and as a yardstick.

The same objective as SGD's, with all factors and biases as one long vector, in float64. Smooth losses only. Memory is
a dozen copies of the parameters and one row of factors per entry.
"""

from __future__ import annotations

import numpy as np

from steepest import kernels
from steepest.data.chunk import Array
from steepest.data.entries import Entries
from steepest.errors import DataError
from steepest.learners.base import Progress
from steepest.learners.batch.quasi_newton import Pairs, times_inverse_hessian
from steepest.learners.factors.factor_run import FactorRun
from steepest.learners.factors.factors import BIAS, BIAS_PRIOR, FactorLearner

PAIRS = 8
INNER = 5  # iterations that make an epoch
TOLERANCE = 1e-9  # an iteration that gains less than this share is the last
MOST_HALVINGS = 40


class LbfgsRun(FactorRun):
    """Epochs of a few L-BFGS iterations each."""

    def __init__(self, learner: FactorLearner, entries: Entries, n_threads: int = 1) -> None:
        super().__init__(learner, entries, n_threads)
        self.entries = entries.users.astype(np.int64), entries.items.astype(np.int64)
        self.values = entries.values.astype(np.float64)
        self.weights = np.ones(self.n_entries) if entries.weights is None else entries.weights.astype(np.float64)
        self._sorted = [_by_owner(rows) for rows in self.entries]
        self._converged = False
        self.x = self._flat()
        self._value, self._gradient = self.objective(self.x)
        self._pairs: Pairs = []

    def resume(self, learner: FactorLearner) -> None:
        """Raises: a checkpoint does not hold the pairs of past steps that L-BFGS needs."""
        raise DataError("solver='lbfgs' cannot continue from a checkpoint")

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
        losses, g = kernels.loss_value_gradient(s.loss_code, 0.0, scores, self.values)
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
            value += 0.5 * float((prior * bias**2).sum())
            gradients.append(np.bincount(rows, g, len(bias)) + prior * bias if s.biases else np.zeros(len(bias)))
        return value, np.concatenate([part.ravel() for part in gradients])

    def epoch(self, epoch: int) -> Progress:
        """A few iterations; the loss is the one after them."""
        for _ in range(INNER):
            if self._converged:
                break
            before = self._value
            self._iterate()
            self._converged = before - self._value <= TOLERANCE * abs(before)
        return Progress(self.n_entries, self.weight, self._value - self.penalty())

    def _iterate(self) -> None:
        """One direction with a backtracking line search; where no step helps, x stays."""
        g, pairs = self._gradient, self._pairs
        direction = -times_inverse_hessian(g, pairs)
        descent = float(direction @ g)
        if descent >= 0:
            pairs.clear()
            direction, descent = -g, -float(g @ g)
        step = 1.0 if pairs else min(1.0, 1.0 / max(float(np.abs(g).sum()), 1e-300))
        for _ in range(MOST_HALVINGS):
            x = self.x + step * direction
            value, gradient = self.objective(x)
            if value <= self._value + 1e-4 * step * descent:
                move, change = x - self.x, gradient - g
                if float(move @ change) > 1e-12 * float(change @ change):
                    self._pairs = [*pairs[1 - PAIRS :], (move, change)]
                self.x, self._value, self._gradient = x, value, gradient
                return
            step *= 0.5

    def write_back(self) -> None:
        """Writes the vector back into the tables."""
        p, q, b, c = self._parts(self.x)
        rank, padded = self.learner.rank, self.learner.padded
        for table, factors, bias in ((self.learner.users, p, b), (self.learner.items, q, c)):
            table[:, :rank] = factors
            table[:, padded + BIAS] = bias


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
