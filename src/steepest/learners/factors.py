"""The factor model: score(u, i) = mean + scale (b_u + b_i + p_u q_i), and stochastic gradients for it.

Learning happens in units of the ratings' spread (`scale`), so that defaults fit stars and percents alike. Minimised is

    sum over known entries of w loss + 1/2 sum over rows of ridge |p|^2 + l1 ridge/alpha |p|_1 + 1/2 bias_ridge b^2

with ridge = alpha (n + 100) ("mixed"), alpha n ("count") or alpha times the mean n ("none") for a row with n entries.
A table row is the factors, padded to eights, then a tail: bias, two sums of squared slopes, the ridges a visit, and what
a block keeps while it is learned. In blocks a row's step is that of the block's beginning; online that of each visit.
Rows start from numbers that depend on the seed and their code only, so that new users may come at any time.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from steepest import kernels
from steepest.data.chunk import Array, DataError
from steepest.learners.base import Progress
from steepest.learners.factor_settings import CENTRED, LOSSES, FactorSettings
from steepest.learners.losses import get_loss
from steepest.learners.strata import choose_d, make_strata

TAIL = 8
BIAS, SQUARES, BIAS_SQUARES, SHRINK, BIAS_SHRINK = range(5)
ROW_PRIOR = 100.0  # "mixed": a row is shrunk as if it had so many entries more; measured on four data sets
BIAS_PRIOR = 45.0  # the ridge of a bias over alpha
INIT_SCALE = 0.01  # held-out errors on three sets fall from 0.1 to here: what starts large must be unlearned
WAIT = 1000  # entries from which mean and spread are taken before an online pass starts
OVERFLOW = 2


def padded_rank(rank: int) -> int:
    """Factors of a row with their padding."""
    return -(-rank // 8) * 8


def new_table(n_rows: int, rank: int) -> Array:
    """Rows of zeros whose first lies at the start of a cache line; sums of squared slopes start at one."""
    length = padded_rank(rank) + TAIL
    room = np.zeros(n_rows * length + 16, np.float32)
    start = (-room.ctypes.data // 4) % 16
    table = room[start : start + n_rows * length].reshape(n_rows, length)
    table[:, [length - TAIL + SQUARES, length - TAIL + BIAS_SQUARES]] = 1
    return table


def arranged(table: Array, order: Array) -> Array:
    """The rows of a table in another order, as a table of its own."""
    room = new_table(len(order), table.shape[1] - TAIL)
    np.take(table, order, axis=0, out=room)
    return room


class FactorLearner:
    """Tables of users and items, by their codes."""

    def __init__(self, settings: FactorSettings) -> None:
        self.settings = settings
        self.users = new_table(0, settings.rank)
        self.items = new_table(0, settings.rank)
        self.user_counts = np.zeros(0, np.int64)
        self.item_counts = np.zeros(0, np.int64)
        self.mean = 0.0
        self.scale = 1.0
        self.low, self.high = -math.inf, math.inf
        self.started = False
        self.eta = settings.eta
        self.level = 0.0  # around which factors start, where no mean does the work

    @property
    def rank(self) -> int:
        """Factors of a row."""
        return self.settings.rank

    @property
    def padded(self) -> int:
        """Factors with their padding."""
        return padded_rank(self.rank)

    @property
    def numbers(self) -> dict[str, Any]:
        """All that is learned besides arrays."""
        ends = [value if math.isfinite(value) else None for value in (self.low, self.high)]
        return {"mean": self.mean, "scale": self.scale, "range": ends, "started": self.started, "eta": self.eta,
                "level": self.level}  # fmt: skip

    def restore_numbers(self, numbers: dict[str, Any]) -> None:
        """Takes back what `numbers` gave."""
        self.mean, self.scale, self.eta = numbers["mean"], numbers["scale"], numbers["eta"]
        low, high = numbers["range"]
        self.low, self.high = -math.inf if low is None else low, math.inf if high is None else high
        self.started, self.level = numbers["started"], numbers["level"]

    def clone(self) -> FactorLearner:
        """An independent copy."""
        twin = FactorLearner(self.settings)
        twin.restore_numbers(self.numbers)
        twin.users, twin.items = np.array(self.users), np.array(self.items)
        twin.user_counts, twin.item_counts = self.user_counts.copy(), self.item_counts.copy()
        return twin

    # ------------------------------------------------------------------------------------------------- starting

    def start(self, values: Array, weights: Array | None) -> None:
        """Mean and spread of the targets, which stay as they are from now on."""
        self.started = True
        if len(values):
            self.low, self.high = float(values.min()), float(values.max())
        loss, biases = self.settings.loss, self.settings.biases
        if loss in CENTRED:
            self.scale = _spread(values, weights)
            middle = float(np.average(values, weights=weights)) if loss == "squared" else float(np.median(values))
            self.mean = middle if biases else 0.0
        elif loss == "logistic":
            share = float(np.average(values > 0, weights=weights))
            self.mean = math.log(max(share, 1e-6) / max(1 - share, 1e-6)) if biases else 0.0
        if (loss in CENTRED and not biases) or self.settings.nonnegative:
            wanted = abs(float(np.average(values, weights=weights))) / self.scale
            self.level = math.sqrt(max(wanted, 1e-3) / self.rank)

    def normalised(self, values: Array) -> Array:
        """Targets in the units of learning."""
        if self.settings.loss in CENTRED:
            return np.ascontiguousarray((values - self.mean) / self.scale, np.float32)
        return np.ascontiguousarray(values, np.float32)

    @property
    def offset(self) -> float:
        """What the kernels add to every score: the mean, where targets were not centred by it."""
        return 0.0 if self.settings.loss in CENTRED else self.mean

    def grow(self, n_users: int, n_items: int) -> None:
        """Makes room for more users and items; their rows are new."""
        self.users = self._grown(self.users, n_users, 2 * self.settings.seed + 1)
        self.items = self._grown(self.items, n_items, 2 * self.settings.seed + 2)
        self.user_counts = np.pad(self.user_counts, (0, len(self.users) - len(self.user_counts)))
        self.item_counts = np.pad(self.item_counts, (0, len(self.items) - len(self.item_counts)))

    def _grown(self, table: Array, n_rows: int, seed: int) -> Array:
        known = len(table)
        if n_rows <= known:
            return table if table.flags.writeable else np.array(table)
        grown = new_table(n_rows, self.rank)
        grown[:known] = table
        kernels.factor_init(grown, known, self.rank, seed, INIT_SCALE)
        if self.level:  # spread by a quarter of the level, and never below zero
            factors = grown[known:, : self.rank]
            factors[:] = self.level * (1 + np.clip(factors / INIT_SCALE, -3, 3) / 4)
        # A row that an online pass meets is shrunk, until a fit counts its entries, as if it had a hundred.
        grown[known:, self.padded + SHRINK] = 2 if self.settings.weighting == "mixed" else 1
        grown[known:, self.padded + BIAS_SHRINK] = 1 / BIAS_PRIOR
        return grown

    def count(self, users: Array, items: Array) -> None:
        """Takes in how many entries each row has."""
        self.user_counts = self.user_counts + np.bincount(users, minlength=len(self.users))
        self.item_counts = self.item_counts + np.bincount(items, minlength=len(self.items))

    def set_shrinkage(self) -> None:
        """Spreads each row's ridge over its visits."""
        for table, counts in ((self.users, self.user_counts), (self.items, self.item_counts)):
            visits = np.maximum(counts, 1)
            table[:, self.padded + SHRINK] = self.ridges(counts) / visits if self.settings.alpha else 0
            table[:, self.padded + BIAS_SHRINK] = (
                visits if self.settings.weighting == "count" else BIAS_PRIOR
            ) / visits

    def ridges(self, counts: Array) -> Array:
        """Ridge over alpha of rows with these numbers of entries."""
        if self.settings.weighting == "mixed":
            return np.asarray(counts + ROW_PRIOR)
        if self.settings.weighting == "count":
            return np.asarray(counts, np.float64)
        return np.full(len(counts), max(float(counts.mean()), 1.0) if len(counts) else 1.0)

    def choices(self, eta: float) -> kernels.FactorChoices:
        """The kernels' view of the settings."""
        s = self.settings
        name = LOSSES[s.loss] or "squared"
        return kernels.FactorChoices(
            loss=get_loss(name).code,
            mean=self.offset,
            eta=eta,
            l2=s.alpha,
            l2_bias=s.alpha,
            l1=s.l1,
            rank=s.rank,
            adaptive=s.adaptive,
            biases=s.biases,
            nonnegative=s.nonnegative,
        )

    # -------------------------------------------------------------------------------------------------- scoring

    def scores(self, users: Array, items: Array, n_threads: int = 1) -> Array:
        """Raw scores of pairs of codes, in the targets' own units."""
        out = np.empty(len(users), np.float32)
        users, items = (np.ascontiguousarray(codes, np.int32) for codes in (users, items))
        bad = kernels.factor_pairs(users, items, self.users, self.items, self.offset, out, n_threads)
        if bad != len(users):
            raise DataError(
                f"pair {bad} names a row that is not there; codes end at {len(self.users)}, {len(self.items)}"
            )
        return self.in_units(out)

    def in_units(self, scores: Array) -> Array:
        """Scores of the kernels in the targets' own units."""
        if self.settings.loss in CENTRED:
            return np.asarray(scores * np.float64(self.scale) + self.mean)
        return scores.astype(np.float64)

    def losses(self, scores: Array, values: Array) -> Array:
        """The loss of each entry, in the units of learning."""
        name = LOSSES[self.settings.loss] or "squared"
        if self.settings.loss in CENTRED:
            scores, values = (scores - self.mean) / self.scale, (values - self.mean) / self.scale
        if self.settings.loss == "bpr":
            values = np.ones(len(values))
        return kernels.loss_value_slope(
            get_loss(name).code, 0.0, np.ascontiguousarray(scores, np.float64), np.ascontiguousarray(values, np.float64)
        )[0]

    def penalty(self) -> float:
        """What the penalties add to the sum of losses."""
        total = 0.0
        s, padded = self.settings, self.padded
        for table, counts in ((self.users, self.user_counts), (self.items, self.item_counts)):
            ridges = self.ridges(counts)
            factors = table[:, :padded]
            total += 0.5 * s.alpha * float(np.dot(np.einsum("ij,ij->i", factors, factors).astype(np.float64), ridges))
            if s.l1:
                total += s.l1 * float(np.dot(np.abs(factors).sum(axis=1, dtype=np.float64), ridges))
            if s.biases:
                prior = counts if s.weighting == "count" else BIAS_PRIOR
                total += 0.5 * s.alpha * float((table[:, padded + BIAS].astype(np.float64) ** 2 * prior).sum())
        return total

    # --------------------------------------------------------------------------------------------- online learning

    def step(self, users: Array, items: Array, values: Array, weights: Array | None) -> Progress:
        """One visit of each entry (codes and normalised targets), in the order given."""
        if not len(users):
            return Progress()
        self.grow(int(users.max()) + 1, int(items.max()) + 1)
        self.count(users, items)
        offsets, schedule = np.array([0, len(users)], np.int64), np.zeros(1, np.int32)
        loss, events = np.zeros(1), []
        kept = self.users.copy(), self.items.copy()
        while self._visit(users, items, values, weights, offsets, schedule, loss) == OVERFLOW:
            self.users[:], self.items[:] = kept
            self.eta /= 2
            events.append(f"learning overflowed: went back to the last good state, step now {self.eta:.3g}")
        return Progress(len(users), _total(weights, len(users)), float(loss[0]), events)

    def _visit(
        self,
        users: Array,
        items: Array,
        values: Array,
        weights: Array | None,
        offsets: Array,
        order: Array,
        loss: Array,
    ) -> int:
        tables = self.users, self.items
        choices = self.choices(self.eta)
        if self.settings.loss != "bpr":
            return kernels.factor_sgd(users, items, values, weights, offsets, order, *tables, choices, loss, 1)
        indptr, indices = _rows_of(users, items, len(self.users))
        bounds = np.array([0, len(self.items)], np.int64)
        seed = self.settings.seed + int(self.user_counts.sum())
        return kernels.factor_bpr(
            users, items, values, weights, offsets, order, bounds, indptr, indices, seed, *tables, choices, loss, 1
        )


class SgdRun:
    """Epochs of stochastic gradients over all entries, held as strata; `settle` writes back what was learned."""

    def __init__(
        self,
        learner: FactorLearner,
        users: Array,
        items: Array,
        values: Array,
        weights: Array | None,
        n_blocks: int | None,
        n_threads: int,
    ) -> None:
        self.learner = learner
        self.n_threads = n_threads
        self.n_entries = len(users)
        self.weight = _total(weights, len(users))
        learner.set_shrinkage()
        row_bytes = learner.users.shape[1] * 4
        d = n_blocks or choose_d(len(learner.users), len(learner.items), row_bytes, len(users))
        d = min(d, len(learner.users), len(learner.items))
        seed = learner.settings.seed
        self.strata = make_strata(users, items, values, weights, len(learner.users), len(learner.items), d, seed)
        self._user_order, self._item_order = _inverse(self.strata.user_places), _inverse(self.strata.item_places)
        self.users = arranged(learner.users, self._user_order)
        self.items = arranged(learner.items, self._item_order)
        self._best_loss = math.inf
        if learner.settings.loss == "bpr":
            self._liked = _rows_of(self.strata.users, self.strata.items, len(self.users))

    @property
    def step_size(self) -> float:
        """The step before rows scale it."""
        return self.learner.eta

    def epoch(self, epoch: int) -> Progress:
        """All blocks once; learning that overflows starts again from the last good state with half the step."""
        events: list[str] = []
        kept = self.users.copy(), self.items.copy()
        schedule = self.strata.schedule(epoch)
        while True:
            losses = np.zeros(len(schedule))
            status = self._learn(schedule, losses, epoch)
            if status != OVERFLOW:
                break
            self.users[:], self.items[:] = kept
            self.learner.eta /= 2
            events.append(f"epoch {epoch + 1} overflowed: went back to its start, step now {self.learner.eta:.3g}")
            if self.learner.eta < 1e-12:
                raise DataError("learning overflows with every step; scale the ratings or lower alpha")
        # Losses are added in the order of blocks, so that the sum does not depend on the schedule either.
        by_block = np.zeros(len(losses))
        by_block[schedule] = losses
        total = float(by_block.sum())
        if not self.learner.settings.adaptive:
            self._drive(total, kept, events)
        return Progress(self.n_entries, self.weight, total, events)

    def _drive(self, loss: float, kept: tuple[Array, Array], events: list[str]) -> None:
        """The bold driver: 5 % faster while the loss falls; back and half as fast when it rises."""
        if loss <= self._best_loss:
            self._best_loss = loss
            self.learner.eta *= 1.05
            return
        self.users[:], self.items[:] = kept
        self.learner.eta *= 0.5
        events.append(f"the loss rose: went back, step now {self.learner.eta:.3g}")

    def _learn(self, schedule: Array, losses: Array, epoch: int) -> int:
        s, tables = self.strata, (self.users, self.items)
        choices = self.learner.choices(self.learner.eta)
        entries = s.users, s.items, s.values, s.weights, s.offsets, schedule
        if self.learner.settings.loss != "bpr" and self.learner.settings.proximal:
            return kernels.factor_sgd(*entries, *tables, choices, losses, self.n_threads)
        if self.learner.settings.loss != "bpr":
            bounds = s.user_bounds, s.item_bounds
            return kernels.factor_sgd_blocks(*entries, *bounds, *tables, choices, losses, self.n_threads)
        seed = (self.learner.settings.seed * 1_000_003 + epoch) & 0xFFFFFFFFFFFF
        return kernels.factor_bpr(*entries, s.item_bounds, *self._liked, seed, *tables, choices, losses, self.n_threads)

    def penalty(self) -> float:
        """What the penalties add to the sum of losses."""
        self.settle()
        return self.learner.penalty()

    def settle(self) -> None:
        """Puts the rows back in the learner's order."""
        self.learner.users[:] = self.users[self.strata.user_places]
        self.learner.items[:] = self.items[self.strata.item_places]


def with_settings(learner: FactorLearner, **changes: Any) -> FactorLearner:
    """The same learner under other settings."""
    twin = learner.clone()
    twin.settings = replace(learner.settings, **changes)
    return twin


def csr_of(rows: Array, columns: Array, n_rows: int) -> tuple[Array, Array, Array]:
    """(indptr, columns, where each came from), sorted by row and column."""
    order = np.lexsort((columns, rows))
    indptr = np.zeros(n_rows + 1, np.int64)
    np.cumsum(np.bincount(rows, minlength=n_rows), out=indptr[1:])
    return indptr, np.ascontiguousarray(columns[order], np.int32), order


def _rows_of(users: Array, items: Array, n_users: int) -> tuple[Array, Array]:
    indptr, indices, _ = csr_of(users, items, n_users)
    return indptr, indices


def _inverse(places: Array) -> Array:
    order = np.empty(len(places), np.int64)
    order[places] = np.arange(len(places))
    return order


def _spread(values: Array, weights: Array | None) -> float:
    if not len(values):
        return 1.0
    mean = np.average(values, weights=weights)
    spread = math.sqrt(float(np.average((values - mean) ** 2, weights=weights)))
    return spread if spread > 1e-9 * max(abs(float(mean)), 1e-300) else max(abs(float(mean)), 1.0)


def _total(weights: Array | None, n: int) -> float:
    return float(n) if weights is None else float(weights.sum(dtype=np.float64))
