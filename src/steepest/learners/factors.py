"""The factor model: score(u, i) = mean + scale (b_u + b_i + p_u q_i), and online learning of it.

Learning happens in units of the ratings' spread (`scale`), so that defaults fit stars and percents alike. Minimised is

    sum over known entries of w loss + 1/2 sum over rows of ridge |p|^2 + l1 ridge/alpha |p|_1 + 1/2 bias_ridge b^2

with ridge = alpha (n + 100) ("mixed"), alpha n ("count") or alpha times the mean n ("none") for a row with n entries.
A table row is the factors, padded to eights, then a tail: bias, two sums of squared slopes, the ridges a visit, and
what a block keeps while it is learned (`factor_sgd`).
Rows start from numbers that depend on the seed and their code only, so that new users may come at any time.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from steepest import kernels
from steepest.data.chunk import Array, DataError
from steepest.learners.base import Progress
from steepest.learners.factor_settings import CENTRED, LOSSES, FactorSettings
from steepest.learners.losses import get_loss

TAIL = 8
BIAS, SQUARES, BIAS_SQUARES, SHRINK, BIAS_SHRINK = range(5)
ROW_PRIOR = 100.0  # "mixed": a row is shrunk as if it had so many entries more; measured on four data sets
BIAS_PRIOR = 45.0  # the ridge of a bias over alpha
INIT_SCALE = 0.01  # held-out errors on three sets fall from 0.1 to here: what starts large must be unlearned
L1_INIT_SCALE = 0.3  # a 1-norm makes zero a minimum of its own, which smaller factors would fall into
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
        self.best_loss = math.inf  # of all epochs, for the bold driver
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
        ends = _finite(self.low), _finite(self.high)
        return {"mean": self.mean, "scale": self.scale, "range": list(ends), "started": self.started, "eta": self.eta,
                "level": self.level, "best_loss": _finite(self.best_loss)}  # fmt: skip

    def restore_numbers(self, numbers: dict[str, Any]) -> None:
        """Takes back what `numbers` gave."""
        self.mean, self.scale, self.eta = numbers["mean"], numbers["scale"], numbers["eta"]
        low, high = numbers["range"]
        self.low, self.high = -math.inf if low is None else low, math.inf if high is None else high
        self.started, self.level = numbers["started"], numbers["level"]
        best = numbers.get("best_loss")
        self.best_loss = math.inf if best is None else best

    @property
    def state(self) -> dict[str, Array]:
        """All that is learned, as arrays."""
        numbers = [self.mean, self.scale, self.low, self.high, self.started, self.eta, self.level, self.best_loss]
        return {
            "users": self.users,
            "items": self.items,
            "user_counts": self.user_counts,
            "item_counts": self.item_counts,
            "numbers": np.array(numbers, np.float64),
        }

    @classmethod
    def from_state(cls, settings: FactorSettings, state: Mapping[str, Array]) -> FactorLearner:
        """The learner that had this state."""
        learner = cls(settings)
        learner.users, learner.items = np.array(state["users"]), np.array(state["items"])
        learner.user_counts, learner.item_counts = np.array(state["user_counts"]), np.array(state["item_counts"])
        numbers = state["numbers"].tolist()
        learner.mean, learner.scale, learner.low, learner.high = numbers[:4]
        learner.started = bool(numbers[4])
        learner.eta, learner.level, learner.best_loss = numbers[5:]
        return learner

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
        scale = L1_INIT_SCALE if self.settings.l1 else INIT_SCALE
        kernels.factor_init(grown, known, self.rank, seed, scale)
        if self.level:  # spread by a quarter of the level, and never below zero
            factors = grown[known:, : self.rank]
            factors[:] = self.level * (1 + np.clip(factors / scale, -3, 3) / 4)
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
        return Progress(len(users), total_weight(weights, len(users)), float(loss[0]), events)

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
        indptr, indices = rows_of(users, items, len(self.users))
        bounds = np.array([0, len(self.items)], np.int64)
        seed = self.settings.seed + int(self.user_counts.sum())
        return kernels.factor_bpr(
            users, items, values, weights, offsets, order, bounds, indptr, indices, seed, *tables, choices, loss, 1
        )


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


def rows_of(users: Array, items: Array, n_users: int) -> tuple[Array, Array]:
    """(indptr, items) of each user, sorted."""
    indptr, indices, _ = csr_of(users, items, n_users)
    return indptr, indices


def _spread(values: Array, weights: Array | None) -> float:
    if not len(values):
        return 1.0
    mean = np.average(values, weights=weights)
    spread = math.sqrt(float(np.average((values - mean) ** 2, weights=weights)))
    return spread if spread > 1e-9 * max(abs(float(mean)), 1e-300) else max(abs(float(mean)), 1.0)


def total_weight(weights: Array | None, n: int) -> float:
    """Of n entries; without weights each weighs one."""
    return float(n) if weights is None else float(weights.sum(dtype=np.float64))


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
