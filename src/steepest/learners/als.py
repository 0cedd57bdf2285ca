"""Alternating solvers: with one side fixed, each row of the other is a small problem of its own.

explicit  least squares over the known entries: (sum w x x' + ridge) p = sum w r x, the bias as one more unknown
implicit  every cell counts (Hu, Koren and Volinsky 2008): sum over all cells of c (1[known] - p q)^2 + ridge |p|^2 with
          c = 1 + confidence * value for known cells, 1 elsewhere; ridge = alpha (20 known confidence + cells of the
          row) ("mixed"), alpha (known confidence + cells) as in Rendle et al. 2021 ("count"), or alpha alone ("none")
kl        every cell counts: sum of v log(v / s) - v + s, by steps that never raise it (Lee and Seung 2001)

Rows are solved exactly (Cholesky) up to EXACT unknowns and by CG_STEPS conjugate gradients from the last solution
beyond; under `nonnegative` by coordinate descent. Nothing depends on how many threads there are.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from steepest import kernels
from steepest.data.chunk import Array, Chunk, DataError
from steepest.learners.base import Progress
from steepest.learners.factor_settings import FactorSettings
from steepest.learners.factors import BIAS, BIAS_PRIOR, FactorLearner, csr_of, padded_rank
from steepest.learners.kl_start import group_rows, lean_on_groups

EXACT = 24  # unknowns; measured, conjugate gradients are faster beyond for implicit feedback
EXACT_KNOWN = 40  # the same where only known entries count, which are few a row
CG_STEPS = 3
KNOWN_WEIGHT = 20.0  # of known cells' confidence in the ridge; held-out lists of four sets like 10 to 40 best
KL_STEPS = 2  # multiplicative steps a row before the sides change


@dataclass(frozen=True, slots=True)
class Side:
    """The known entries of each row of one side."""

    indptr: Array
    indices: Array
    values: Array
    weights: Array | None

    @property
    def rows(self) -> Array:
        """The row of each entry."""
        return np.repeat(np.arange(len(self.indptr) - 1), np.diff(self.indptr))

    def only(self, rows: Array) -> Side:
        """Just these rows, in this order."""
        lengths = np.diff(self.indptr)[rows]
        indptr = np.zeros(len(rows) + 1, np.int64)
        np.cumsum(lengths, out=indptr[1:])
        at = np.arange(indptr[-1]) + np.repeat(self.indptr[rows] - indptr[:-1], lengths)
        weights = None if self.weights is None else self.weights[at]
        return Side(indptr, self.indices[at], self.values[at], weights)


def make_side(rows: Array, columns: Array, values: Array, weights: Array | None, n_rows: int, merge: bool) -> Side:
    """Entries by row; with `merge` the values of entries that stand twice are added up."""
    indptr, indices, order = csr_of(rows, columns, n_rows)
    values = np.ascontiguousarray(values[order], np.float32)
    weights = None if weights is None else np.ascontiguousarray(weights[order], np.float32)
    if merge and len(indices):
        owners = rows[order]
        first = np.concatenate([[True], (owners[1:] != owners[:-1]) | (indices[1:] != indices[:-1])])
        if not first.all():
            starts = np.flatnonzero(first)
            values = np.add.reduceat(values.astype(np.float64), starts).astype(np.float32)
            indices, owners = indices[first], owners[first]
            np.cumsum(np.bincount(owners, minlength=n_rows), out=indptr[1:])
    return Side(indptr, np.ascontiguousarray(indices), values, weights)


class AlternatingRun:
    """Iterations over both sides; one is an epoch."""

    def __init__(
        self, learner: FactorLearner, users: Array, items: Array, values: Array, weights: Array | None, n_threads: int
    ) -> None:
        self.learner = learner
        self.n_threads = n_threads
        self.loss = learner.settings.loss
        whole = self.loss in ("implicit", "kl")
        if whole and weights is not None:
            values, weights = values * weights, None
        if self.loss == "implicit":
            values = values * np.float32(learner.settings.confidence)
        self.by_user = make_side(users, items, values, weights, len(learner.users), whole)
        self.by_item = make_side(items, users, values, weights, len(learner.items), whole)
        self.n_entries = len(self.by_user.indices)
        cells = float(len(learner.users)) * len(learner.items)
        total = self.n_entries if weights is None else float(weights.sum(dtype=np.float64))
        self.weight = cells if whole else float(total)
        learner.set_shrinkage()

    step_size = 1.0

    def epoch(self, epoch: int) -> Progress:
        """Users, then items. The loss is the one after the iteration."""
        if self.loss == "kl":
            self.kl_side("users")
            loss = self.kl_side("items", with_loss=True)
        else:
            self.solve("users")
            self.solve("items")
            loss = self.current_loss()
        if not math.isfinite(loss):
            raise DataError("the alternating solver overflowed; scale the values or raise alpha")
        return Progress(self.n_entries, self.weight, loss)

    def start(self) -> None:
        """Chooses where factors of counts begin; other losses begin well enough from the learner's noise."""
        if self.loss != "kl":
            return
        learner, side = self.learner, self.by_user
        rows = Chunk(side.indptr, side.indices, side.values, len(learner.items))
        groups = group_rows(rows, learner.rank, learner.settings.seed, self.n_threads)
        lean_on_groups(rows, groups, learner.users[:, : learner.rank], learner.items[:, : learner.rank])

    def settle(self) -> None:
        """The learner's tables are always up to date."""

    def resume(self, learner: FactorLearner) -> None:
        """Goes on from a learner of before."""
        self.learner = learner

    def penalty(self) -> float:
        """What the penalties add to the sum of losses."""
        if self.loss == "kl":
            return 0.0
        if self.loss == "squared":
            return self.learner.penalty()
        tables = (self.learner.users, self.by_user), (self.learner.items, self.by_item)
        padded = self.learner.padded
        squares = [np.einsum("ij,ij->i", t[:, :padded], t[:, :padded]).astype(np.float64) for t, _ in tables]
        sizes = len(self.learner.items), len(self.learner.users)
        return 0.5 * sum(
            float(np.dot(square, self.ridge(side, size)))
            for square, (_, side), size in zip(squares, tables, sizes, strict=True)
        )

    def ridge(self, side: Side, n_other: int) -> Array:
        """The ridge of each row of a side."""
        settings = self.learner.settings
        if self.loss == "squared":
            return np.asarray(settings.alpha * self.learner.ridges(np.diff(side.indptr)), np.float32)
        known = np.add.reduceat(np.append(side.values, 0), side.indptr[:-1]) * (np.diff(side.indptr) > 0)
        return np.asarray(implicit_ridge(settings, known, n_other), np.float32)

    def solve(self, which: str, rows: Array | None = None) -> None:
        """Solves all rows of a side ("users" or "items"), or those given."""
        learner = self.learner
        mine, other = (learner.users, learner.items) if which == "users" else (learner.items, learner.users)
        side = self.by_user if which == "users" else self.by_item
        ridge = self.ridge(side, len(other))
        if rows is not None:
            side, ridge = side.only(rows), ridge[rows]
        solve_rows(learner, mine, other, side, ridge, rows, self.n_threads)

    def kl_side(self, which: str, with_loss: bool = False) -> float:
        """Multiplicative steps for all rows of a side; the loss after them, if wanted."""
        learner = self.learner
        mine, other = (learner.users, learner.items) if which == "users" else (learner.items, learner.users)
        side = self.by_user if which == "users" else self.by_item
        padded = self.learner.padded
        fixed, solved = np.ascontiguousarray(other[:, :padded]), np.ascontiguousarray(mine[:, :padded])
        sums = fixed.sum(axis=0, dtype=np.float64)
        floor = (sums + self.learner.settings.l1).astype(np.float32)
        floor[self.learner.rank :] = 0
        steps = KL_STEPS
        bad, loss = kernels.factor_kl(
            side.indptr, side.indices, side.values, fixed, floor, steps, with_loss, solved, self.n_threads
        )
        if bad != len(mine):
            raise DataError("the multiplicative steps overflowed; scale the values down")
        mine[:, :padded] = solved
        penalty = self.learner.settings.l1 * (sums.sum() + solved.sum(dtype=np.float64))
        return loss + float(sums @ solved.sum(axis=0, dtype=np.float64)) + float(penalty)

    def current_loss(self) -> float:
        """The sum of losses, of all cells for implicit feedback."""
        side, learner = self.by_user, self.learner
        scores = np.empty(len(side.indices), np.float32)
        rows = side.rows.astype(np.int32)
        kernels.factor_pairs(rows, side.indices, learner.users, learner.items, 0.0, scores, self.n_threads)
        s, v = scores.astype(np.float64), side.values.astype(np.float64)
        if self.loss != "implicit":
            w = 1.0 if side.weights is None else side.weights.astype(np.float64)
            return float(0.5 * (w * (s - v) ** 2).sum())
        padded = learner.padded
        squares = [_gram(np.ascontiguousarray(t[:, :padded]), self.n_threads) for t in (learner.users, learner.items)]
        everywhere = float((squares[0].astype(np.float64) * squares[1]).sum())
        return 0.5 * (everywhere + float(((1 + v) * (1 - s) ** 2 - s**2).sum()))


def implicit_ridge(settings: FactorSettings, known: Array, n_cells: int) -> Array:
    """The ridges of rows whose known cells have this confidence together."""
    if settings.weighting == "none":
        return np.full(np.shape(known), settings.alpha)
    weight = KNOWN_WEIGHT if settings.weighting == "mixed" else 1.0
    return np.asarray(settings.alpha * (weight * known + n_cells))


def solve_rows(
    learner: FactorLearner, mine: Array, other: Array, side: Side, ridge: Array, rows: Array | None, n_threads: int
) -> None:
    """Least squares for each row of `mine` (or for those named), the other side fixed."""
    settings, padded = learner.settings, learner.padded
    implicit = settings.loss == "implicit"
    unknowns = settings.rank + (1 if settings.biases else 0)
    width = padded_rank(unknowns)
    fixed = np.zeros((len(other), width), np.float32)
    fixed[:, : settings.rank] = other[:, : settings.rank]
    values = side.values
    if settings.biases:
        fixed[:, settings.rank] = 1
        values = values - other[:, padded + BIAS][side.indices]
    places = slice(None) if rows is None else rows
    solved = np.zeros((len(ridge), width), np.float32)
    solved[:, : settings.rank] = mine[places][:, : settings.rank]
    if settings.biases:
        solved[:, settings.rank] = mine[places, padded + BIAS]
    exact = unknowns <= (EXACT if implicit else EXACT_KNOWN)
    lone = np.diff(side.indptr) == 0
    bias_prior = BIAS_PRIOR if settings.weighting != "count" else float(np.diff(side.indptr).mean())
    bad = kernels.factor_als(
        side.indptr,
        side.indices,
        np.ascontiguousarray(values, np.float32),
        side.weights,
        fixed,
        _gram(fixed, n_threads) if implicit else None,
        np.ascontiguousarray(np.maximum(ridge, 1e-6), np.float32),
        unknowns,
        0 if exact else CG_STEPS,
        settings.rank if settings.biases else -1,
        max(settings.alpha * bias_prior, 1e-6),
        implicit,
        settings.nonnegative,
        solved,
        n_threads,
    )
    if bad != len(ridge):
        raise DataError(f"the equations of row {bad} have no solution; raise alpha, or check the values for extremes")
    solved[lone] = 0
    mine[places, : settings.rank] = solved[:, : settings.rank]
    if settings.biases:
        mine[places, padded + BIAS] = solved[:, settings.rank]


def contributions(
    learner: FactorLearner, user: int, item: int, seen: Array, values: Array, weights: Array | None
) -> Array:
    """q_i' A⁻¹ (w r q_j) of each seen item j, in the ratings' units."""
    s, padded = learner.settings, learner.padded
    q = learner.items[:, : s.rank].astype(np.float64)
    features = q[seen]
    query = q[item]
    implicit = s.loss == "implicit"
    if implicit:
        extra = s.confidence * values.astype(np.float64) * (1 if weights is None else weights)
        least = implicit_ridge(s, extra.sum(), len(q)) * np.eye(s.rank)
        matrix = q.T @ q + (features * extra[:, None]).T @ features + least
        return np.asarray((features @ np.linalg.solve(matrix, query)) * (1 + extra))
    w = np.ones(len(seen)) if weights is None else weights.astype(np.float64)
    ridge = s.alpha * float(learner.ridges(np.array([len(seen)]))[0]) if s.weighting != "none" else s.alpha * float(
        learner.ridges(learner.user_counts)[0]
    )  # fmt: skip
    matrix = (features * w[:, None]).T @ features + ridge * np.eye(s.rank)
    biases = learner.items[seen, padded + BIAS].astype(np.float64) + float(learner.users[user, padded + BIAS])
    targets = learner.normalised(values).astype(np.float64) - (biases if s.biases else 0.0)
    return np.asarray((features @ np.linalg.solve(matrix, query)) * w * targets * learner.scale)


def _gram(factors: Array, n_threads: int) -> Array:
    gram = np.empty((factors.shape[1], factors.shape[1]), np.float32)
    kernels.factor_gram(factors, gram, n_threads)
    return gram
