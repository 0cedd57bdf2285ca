"""Alternating solvers: with one side fixed, each row of the other is a small problem of its own.

explicit  least squares over the known entries: (sum w x x' + ridge) p = sum w r x, the bias as one more unknown
implicit  every cell counts (Hu, Koren and Volinsky 2008): sum over all cells of c (1[known] - p q)^2 + ridge |p|^2 with
          c = 1 + confidence * value for known cells, 1 elsewhere; ridge = alpha (20 known confidence + cells of the
          row) ("mixed"), alpha (known confidence + cells) as in Rendle et al. 2021 ("count"), or alpha alone ("none")
full      every cell counts alike (zeros are values): half the sum over all cells of (v - p q)^2; by the Gram trick
          (Q'Q + ridge) p = sum over known v q, one matrix for all rows; ridge as for explicit entries, of all cells
kl        every cell counts: sum of v log(v / s) - v + s, by steps that never raise it (Lee and Seung 2001)

Rows are solved exactly (Cholesky) up to EXACT unknowns and by CG_STEPS conjugate gradients from the last solution
beyond; under `nonnegative` by coordinate descent. Nothing depends on how many threads there are.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from steepest import kernels
from steepest.data.chunk import Array, Chunk, places_between
from steepest.data.entries import Entries
from steepest.errors import DataError
from steepest.learners.base import Progress
from steepest.learners.factors.factor_run import FactorRun
from steepest.learners.factors.factor_settings import WHOLE, FactorSettings
from steepest.learners.factors.factors import BIAS, BIAS_PRIOR, FactorLearner, csr_of, padded_rank
from steepest.learners.factors.kl_start import group_rows, lean_on_groups

SIDES = ("users", "items")
BY_GRAM = ("implicit", "full")  # squares over all cells, which the other side's Gram matrix adds up
EXACT = 24  # unknowns; measured, conjugate gradients are faster beyond for implicit feedback
EXACT_KNOWN = 40  # the same where only known entries count, which are few per row
CG_STEPS = 3
KNOWN_WEIGHT = 20.0  # of known cells' confidence in the ridge; held-out lists of four sets are best at 10 to 40
FOLD_EPOCHS = 30  # short passes that fold in rows of other losses
KL_STEPS = 2  # multiplicative steps per row before the sides change


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

    @property
    def counts(self) -> Array:
        """How many entries each row has, by their weights."""
        return np.diff(self.indptr) if self.weights is None else np.bincount(self.rows, self.weights, len(self))

    def __len__(self) -> int:
        return len(self.indptr) - 1

    def only(self, rows: Array) -> Side:
        """The side reduced to these rows, in this order."""
        indptr, at = places_between(self.indptr[rows], self.indptr[rows + 1])
        weights = None if self.weights is None else self.weights[at]
        return Side(indptr, self.indices[at], self.values[at], weights)


def make_side(settings: FactorSettings, coded: Entries, which: str, n_rows: int) -> Side:
    """Coded entries by row of the side `which`.

    Where every cell counts, weights multiply values, and the values of entries that occur twice are added up.
    """
    rows, columns = (coded.users, coded.items) if which == "users" else (coded.items, coded.users)
    values, weights = coded.values, coded.weights
    if settings.loss in WHOLE and weights is not None:
        values, weights = values * weights, None
    if settings.loss == "implicit":
        values = values * np.float32(settings.confidence)
    indptr, indices, order = csr_of(rows, columns, n_rows)
    values = np.ascontiguousarray(values[order], np.float32)
    weights = None if weights is None else np.ascontiguousarray(weights[order], np.float32)
    if settings.loss in WHOLE and len(indices):
        owners = rows[order]
        first = np.concatenate([[True], (owners[1:] != owners[:-1]) | (indices[1:] != indices[:-1])])
        if not first.all():
            starts = np.flatnonzero(first)
            values = np.add.reduceat(values.astype(np.float64), starts).astype(np.float32)
            indices, owners = indices[first], owners[first]
            np.cumsum(np.bincount(owners, minlength=n_rows), out=indptr[1:])
    return Side(indptr, np.ascontiguousarray(indices), values, weights)


def tables_of(learner: FactorLearner, which: str) -> tuple[Array, Array]:
    """(the table of the side `which`, the other one)."""
    return (learner.users, learner.items) if which == "users" else (learner.items, learner.users)


class AlternatingRun(FactorRun):
    """Alternating least squares: an epoch solves all users, then all items."""

    def __init__(self, learner: FactorLearner, entries: Entries, n_threads: int = 1) -> None:
        super().__init__(learner, entries, n_threads)
        self.loss = learner.settings.loss
        self.sides = {
            which: make_side(learner.settings, entries, which, len(tables_of(learner, which)[0])) for which in SIDES
        }
        self.n_entries = len(self.sides["users"].indices)
        if self.loss in WHOLE:
            self.weight = float(len(learner.users)) * len(learner.items)

    def epoch(self, epoch: int) -> Progress:
        """Solves all users, then all items; the loss is the one afterwards."""
        if self.loss == "kl":
            kl_rows(self.learner, "users", self.sides["users"], n_threads=self.n_threads)
            loss = kl_rows(self.learner, "items", self.sides["items"], n_threads=self.n_threads, with_loss=True)
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
        learner, side = self.learner, self.sides["users"]
        rows = Chunk(side.indptr, side.indices, side.values, len(learner.items))
        groups = group_rows(rows, learner.rank, learner.settings.seed, self.n_threads)
        lean_on_groups(rows, groups, learner.users[:, : learner.rank], learner.items[:, : learner.rank])

    def penalty(self) -> float:
        """The penalties that are added to the sum of losses."""
        if self.loss == "kl":
            return 0.0
        if self.loss == "squared":
            return self.learner.penalty()
        total = 0.0
        for which in SIDES:
            table, other = tables_of(self.learner, which)
            factors = table[:, : self.learner.padded]
            squares = np.einsum("ij,ij->i", factors, factors).astype(np.float64)
            total += float(np.dot(squares, self.ridge(which, len(other))))
        return 0.5 * total

    def ridge(self, which: str, n_other: int) -> Array:
        """The ridge of each row of a side."""
        return ridge_of(self.learner, self.sides[which], n_other)

    def solve(self, which: str, rows: Array | None = None) -> None:
        """Solves all rows of a side ("users" or "items"), or those given."""
        mine, other = tables_of(self.learner, which)
        side, ridge = self.sides[which], self.ridge(which, len(other))
        if rows is not None:
            side, ridge = side.only(rows), ridge[rows]
        solve_rows(self.learner, mine, other, side, ridge, rows, self.n_threads)

    def current_loss(self) -> float:
        """The sum of losses, of all cells where they count."""
        learner = self.learner
        known = known_loss(self.loss, learner.users, learner.items, self.sides["users"], self.n_threads)
        return known if self.loss not in BY_GRAM else 0.5 * (square_of_all_cells(learner, self.n_threads) + known)


def known_loss(loss: str, users: Array, items: Array, side: Side, n_threads: int = 1) -> float:
    """The losses of known entries; implicit and full: twice what they add to the squares of all cells."""
    scores = np.empty(len(side.indices), np.float32)
    kernels.factor_pairs(side.rows.astype(np.int32), side.indices, users, items, 0.0, scores, n_threads)
    s, v = scores.astype(np.float64), side.values.astype(np.float64)
    if loss == "implicit":
        return float(((1 + v) * (1 - s) ** 2 - s**2).sum())
    if loss == "full":
        return float(((s - v) ** 2 - s**2).sum())
    w = 1.0 if side.weights is None else side.weights.astype(np.float64)
    return float(0.5 * (w * (s - v) ** 2).sum())


def square_of_all_cells(learner: FactorLearner, n_threads: int = 1) -> float:
    """The sum of (p q)^2 over all cells."""
    tables = (np.ascontiguousarray(table[:, : learner.padded]) for table in (learner.users, learner.items))
    users, items = (_gram(table, n_threads) for table in tables)
    return float((users.astype(np.float64) * items).sum())


def ridge_of(learner: FactorLearner, side: Side, n_other: int) -> Array:
    """The ridge of each row of a side, the other of which has `n_other` rows."""
    settings, counts = learner.settings, side.counts
    if settings.loss == "squared":
        return np.asarray(settings.alpha * learner.ridges(counts), np.float32)
    if settings.loss == "full":
        return np.asarray(settings.alpha * learner.ridges(np.full(len(side), n_other)), np.float32)
    known = np.add.reduceat(np.append(side.values, 0), side.indptr[:-1]) * (counts > 0)
    return np.asarray(implicit_ridge(settings, known, n_other), np.float32)


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
    by_gram = settings.loss in BY_GRAM
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
    exact = settings.loss == "full" or unknowns <= (EXACT if by_gram else EXACT_KNOWN)
    lone = np.diff(side.indptr) == 0
    bias_prior = BIAS_PRIOR if settings.weighting != "count" else float(side.counts.mean())
    targets = np.ascontiguousarray(values, np.float32)
    choices = kernels.AlsChoices(
        rank=unknowns,
        cg_steps=0 if exact else CG_STEPS,
        bias_at=settings.rank if settings.biases else -1,
        bias_ridge=max(settings.alpha * bias_prior, 1e-6),
        nonnegative=settings.nonnegative,
        zeros=settings.loss == "full",
    )
    bad = kernels.factor_als(
        kernels.FactorSide(side.indptr, side.indices, targets, side.weights, fixed, solved),
        np.ascontiguousarray(np.maximum(ridge, 1e-6), np.float32),
        _gram(fixed, n_threads) if by_gram else None,
        choices,
        n_threads,
    )
    if bad != len(ridge):
        raise DataError(f"the equations of row {bad} have no solution; raise alpha, or check the values for extremes")
    solved[lone] = 0
    mine[places, : settings.rank] = solved[:, : settings.rank]
    if settings.biases:
        mine[places, padded + BIAS] = solved[:, settings.rank]


def kl_rows(
    learner: FactorLearner,
    which: str,
    side: Side,
    rows: Array | None = None,
    *,
    n_threads: int = 1,
    with_loss: bool = False,
) -> float:
    """Multiplicative steps for each row of a side (or for those named); the loss after them, if asked for."""
    mine, other = tables_of(learner, which)
    padded, places = learner.padded, slice(None) if rows is None else rows
    fixed, solved = np.ascontiguousarray(other[:, :padded]), np.ascontiguousarray(mine[places, :padded])
    sums = fixed.sum(axis=0, dtype=np.float64)
    floor = (sums + learner.settings.l1).astype(np.float32)
    floor[learner.rank :] = 0
    task = kernels.FactorSide(side.indptr, side.indices, side.values, None, fixed, solved)
    bad, loss = kernels.factor_kl(task, floor, KL_STEPS, with_loss, n_threads)
    if bad != len(solved):
        raise DataError("the multiplicative steps overflowed; scale the values down")
    mine[places, :padded] = solved
    penalty = learner.settings.l1 * (sums.sum() + solved.sum(dtype=np.float64))
    return loss + float(sums @ solved.sum(axis=0, dtype=np.float64)) + float(penalty)


def fold_rows(learner: FactorLearner, coded: Entries, which: str, n_threads: int) -> None:
    """Solves the rows of the side `which` that these coded entries name, the other side fixed.

    Losses without such a solution take short passes of their own solver, and the other side is put back after each.
    """
    mine, other = tables_of(learner, which)
    rows = np.unique(coded.users if which == "users" else coded.items)
    side = make_side(learner.settings, coded, which, len(mine))
    loss = learner.settings.loss
    if loss in ("squared", *BY_GRAM):
        ridge = ridge_of(learner, side, len(other))
        solve_rows(learner, mine, other, side.only(rows), ridge[rows], rows, n_threads)
        return
    fixed = other.copy()
    counts = learner.user_counts, learner.item_counts
    for _ in range(FOLD_EPOCHS):
        if loss == "kl":
            kl_rows(learner, which, side.only(rows), rows, n_threads=n_threads)
        else:
            learner.learn(coded)
            learner.user_counts, learner.item_counts = counts
            other[:] = fixed


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
    if s.loss == "full":
        matrix = q.T @ q + s.alpha * float(learner.ridges(learner.ridge_counts()[0])[0]) * np.eye(s.rank)
        return np.asarray((features @ np.linalg.solve(matrix, query)) * w * values)
    ridge = s.alpha * float(learner.ridges(np.array([w.sum()]))[0]) if s.weighting != "none" else s.alpha * float(
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
