"""The factor model: score(u, i) = mean + scale (b_u + b_i + p_u q_i), and online learning of it.

Learning happens in units of the ratings' spread (`scale`), so that defaults fit stars and percents alike. Minimised is

    sum over known entries of w loss + 1/2 sum over rows of ridge |p|^2 + l1 ridge/alpha |p|_1 + 1/2 bias_ridge b^2

with ridge = alpha (n + 100) ("mixed"), alpha n ("count") or alpha times the mean n ("none") for a row with n entries,
counted by their weights; where zeros count ("full"), the sum is over all cells, and n is the number of a row's cells.
A table row is the factors, padded to eights, then a tail: bias, two sums of squared gradients, the ridges per visit,
and what a block stores while it is learned (`factor_sgd`).
Rows start from numbers that depend on the seed and their code only, so that new users may come at any time.
"""

from __future__ import annotations

import math
import sys

import numpy as np

from steepest import kernels
from steepest.data.chunk import Array
from steepest.data.entries import Entries
from steepest.errors import DataError
from steepest.learners.base import Progress, State
from steepest.learners.factors.factor_settings import CENTRED, LOSSES, SCALED, FactorSettings
from steepest.learners.factors.strata import Strata, one_block
from steepest.learners.resumable import Resumable
from steepest.learners.state_check import StateCheck

TAIL = 8
BIAS, SQUARES, BIAS_SQUARES, SHRINK, BIAS_SHRINK = range(5)
ROW_PRIOR = 100.0  # "mixed": a row is shrunk as if it had so many entries more; measured on four data sets
BIAS_PRIOR = 45.0  # the ridge of a bias over alpha
INIT_SCALE = 0.01  # held-out errors on three sets fall from 0.1 to here: what starts large must be unlearned
L1_INIT_SCALE = 0.3  # a 1-norm makes zero a minimum of its own, which smaller factors would fall into
FULL_SQUARES = 10.0  # first sums of squares over cells per known cell, where zeros count; measured, 1 overflows
WAIT = 1000  # entries from which mean and spread are taken before an online pass starts
FARTHEST = 1e12  # spreads between a target and the mean: sums of its squared gradients must stay within float32
SMALLEST_STEP = 1e-12  # an epoch or a call that overflows with this step cannot be learned
OVERFLOW = 2
WAITING = "waiting."  # marks the arrays of entries that wait


def padded_rank(rank: int) -> int:
    """Factors of a row with their padding."""
    return -(-rank // 8) * 8


def new_table(n_rows: int, rank: int) -> Array:
    """Rows of zeros whose first lies at the start of a cache line; sums of squared gradients start at one."""
    length = padded_rank(rank) + TAIL
    room = np.zeros(n_rows * length + 16, np.float32)
    start = (-room.ctypes.data // 4) % 16
    table = room[start : start + n_rows * length].reshape(n_rows, length)
    table[:, [length - TAIL + SQUARES, length - TAIL + BIAS_SQUARES]] = 1
    return table


class FactorLearner(Resumable):
    """State and step of a factor model: tables of users and items by code."""

    state_arrays = ("users", "items", "user_counts", "item_counts")
    state_numbers = ("mean", "scale", "low", "high", "started", "eta", "level", "best_loss")

    def __init__(self, settings: FactorSettings) -> None:
        self.settings = settings
        self.users = new_table(0, settings.rank)
        self.items = new_table(0, settings.rank)
        self.user_counts = np.zeros(0, np.int64)
        self.item_counts = np.zeros(0, np.int64)
        self.mean = 0.0
        self.scale = 1.0
        self.low, self.high = -sys.float_info.max, sys.float_info.max
        self.started = False
        self.eta = settings.eta
        self.best_loss = sys.float_info.max  # of all epochs, for the bold driver
        self.level = 0.0  # around which factors start, where no mean does the work
        self.waiting: Entries | None = None  # until there are enough to start an online pass

    @property
    def rank(self) -> int:
        """Factors of a row."""
        return self.settings.rank

    @property
    def padded(self) -> int:
        """Factors with their padding."""
        return padded_rank(self.rank)

    @property
    def state(self) -> dict[str, Array]:
        """All learned arrays."""
        waiting = {} if self.waiting is None else self.waiting.as_arrays()
        return super().state | {WAITING + name: array for name, array in waiting.items()}

    @classmethod
    def from_state(cls, settings: FactorSettings, state: State) -> FactorLearner:
        """Builds a learner from its settings and state."""
        learner = cls(settings)
        learner.restore(state)
        waiting = {name.removeprefix(WAITING): np.array(a) for name, a in state.items() if name.startswith(WAITING)}
        learner.waiting = Entries.from_arrays(waiting) if waiting else None
        return learner

    @classmethod
    def check_file(cls, settings: FactorSettings, arrays: State) -> None:
        """Raises ValueError unless a model with these settings could have written these arrays of a file."""
        if settings.loss not in LOSSES:
            raise ValueError(f"the loss is {settings.loss!r}"[:200])
        check = StateCheck.of(arrays, cls.state_numbers, "numbers")
        low, high = check.numbers["low"], check.numbers["high"]
        if not low <= high:
            raise ValueError(f"ratings lie between {low} and {high}")
        sizes = check.arrays({"user_counts": "i|u|f users", "item_counts": "i|u|f items"})
        for side in ("users", "items"):
            forms = {"numbers": "i n", "bytes": "u n", "ends": "i|u n"}
            forms |= dict.fromkeys(("table", "factors", "tail"), f"f {side} width")
            for part, form in forms.items():
                if f"{side}.{part}" in arrays:
                    check.arrays({f"{side}.{part}": form}, **sizes)

    @classmethod
    def check_seen(cls, arrays: State, n_users: int, n_items: int) -> None:
        """Raises ValueError unless the entries in a file are of so many users and items."""
        check = StateCheck(arrays)
        n_seen = check.arrays({"seen.indptr": "i rows", "seen.items": "i seen"})["seen"]
        if len(arrays["seen.indptr"]) > n_users + 1:
            raise ValueError("seen.indptr has more rows than there are users")
        check.pointers(arrays["seen.indptr"], n_seen, "seen.indptr")
        check.codes(arrays["seen.items"], n_items, "seen.items")
        check.arrays({name: f"f {n_seen}" for name in ("seen.values", "seen.weights") if name in arrays})
        if "waiting.users" in arrays:
            check.arrays({"waiting.users": "i n", "waiting.items": "i n", "waiting.values": "f n"})
            check.codes(arrays["waiting.users"], n_users, "waiting.users")
            check.codes(arrays["waiting.items"], n_items, "waiting.items")

    def clone(self) -> FactorLearner:
        """An independent copy."""
        return self.from_state(self.settings, self.state)

    # ------------------------------------------------------------------------------------------------- starting

    def prepare(self, entries: Entries, n_users: int, n_items: int) -> Entries:
        """Counts the entries and fixes mean and spread; returns them with targets in the units of learning."""
        self._start(entries, float(n_users) * n_items)
        self.grow(n_users, n_items)
        self.count(entries)
        if self.settings.loss == "full":  # known cells are large in units of all cells' spread: so are first gradients
            squares = FULL_SQUARES * float(n_users) * n_items / max(len(_cell_values(entries)), 1)
            self.users[:, self.padded + SQUARES] = self.items[:, self.padded + SQUARES] = squares
        else:  # rows without an entry keep their places, and say nothing
            self.users[self.user_counts == 0, : self.padded] = 0
            self.items[self.item_counts == 0, : self.padded] = 0
        return self.code(entries)

    def _start(self, entries: Entries, n_cells: float = 0.0) -> None:
        """Fixes mean and spread of the targets for good; with loss="full" over `n_cells` cells."""
        self.started = True
        values, weights = self.targets(entries.values), entries.weights
        if len(values):
            self.low, self.high = float(values.min()), float(values.max())
        loss, biases = self.settings.loss, self.settings.biases
        if loss == "full":
            self.low, self.high = min(self.low, 0.0), max(self.high, 0.0)
            cells, n_cells = _cell_values(entries), max(n_cells, 1.0)
            self.scale = math.sqrt(float(np.square(cells).sum()) / n_cells) or 1.0
            if self.settings.solver == "sgd":  # small factors would leave zero too slowly
                product = abs(float(cells.sum())) / n_cells / self.scale
                self.level = math.sqrt(max(product, 1e-3) / self.rank)
        elif loss in CENTRED:
            self.scale = _spread(values, weights)
            middle = float(np.average(values, weights=weights)) if loss == "squared" else _median(values, weights)
            self.mean = middle if biases else 0.0
        elif loss == "logistic":
            share = float(np.average(values > 0, weights=weights))
            self.mean = math.log(max(share, 1e-6) / max(1 - share, 1e-6)) if biases else 0.0
        if (loss in CENTRED and not biases) or self.settings.nonnegative:
            product = abs(float(np.average(values, weights=weights))) / self.scale
            self.level = math.sqrt(max(product, 1e-3) / self.rank)

    def targets(self, values: Array) -> Array:
        """Ratings as the loss takes them: two kinds of entries as -1 and 1."""
        return np.where(values > 0, 1.0, -1.0) if self.settings.loss in ("logistic", "hinge") else values

    def normalised(self, values: Array) -> Array:
        """Targets in the units of learning."""
        values = self.targets(values)
        if self.settings.loss in SCALED:
            values = (values - self.mean) / self.scale
        return np.ascontiguousarray(values, np.float32)

    def code(self, entries: Entries) -> Entries:
        """Entries with targets in the units of learning."""
        return Entries(entries.users, entries.items, self.normalised(entries.values), entries.weights)

    @property
    def offset(self) -> float:
        """What the kernels add to every score: the mean, where targets were not centred by it."""
        return 0.0 if self.settings.loss in SCALED else self.mean

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
        # A row that an online pass visits is shrunk, until a fit counts its entries, as if it had a hundred.
        grown[known:, self.padded + SHRINK] = 2 if self.settings.weighting == "mixed" else 1
        grown[known:, self.padded + BIAS_SHRINK] = 1 / BIAS_PRIOR
        return grown

    def count(self, entries: Entries) -> None:
        """Adds to the number of entries of each row, by their weights: one of weight 2 counts as two."""
        self.user_counts = self.user_counts + np.bincount(entries.users, entries.weights, len(self.users))
        self.item_counts = self.item_counts + np.bincount(entries.items, entries.weights, len(self.items))

    def set_shrinkage(self, user_visits: Array | None = None, item_visits: Array | None = None) -> None:
        """Spreads each row's ridge over its visits: as many as it has entries, unless others are given."""
        counts = self.ridge_counts()
        given = user_visits, item_visits
        for table, n, visited in zip((self.users, self.items), counts, given, strict=True):
            visits = np.maximum(n if visited is None else visited, 1)
            table[:, self.padded + SHRINK] = self.ridges(n) / visits if self.settings.alpha else 0
            table[:, self.padded + BIAS_SHRINK] = (
                np.maximum(n, 1) if self.settings.weighting == "count" else BIAS_PRIOR
            ) / visits

    def ridge_counts(self) -> tuple[Array, Array]:
        """The numbers of entries that shrink each user and item: their own, or all cells where zeros count."""
        if self.settings.loss != "full":
            return self.user_counts, self.item_counts
        n_users, n_items = len(self.users), len(self.items)
        return np.full(n_users, n_items), np.full(n_items, n_users)

    def ridges(self, counts: Array) -> Array:
        """Ridge over alpha of rows with these numbers of entries."""
        if self.settings.weighting == "mixed":
            return np.asarray(counts + ROW_PRIOR)
        if self.settings.weighting == "count":
            return np.asarray(counts, np.float64)
        return np.full(len(counts), max(float(counts.mean()), 1.0) if len(counts) else 1.0)

    def choices(self, block_steps: bool = False) -> kernels.FactorChoices:
        """The kernels' view of the settings and of the step; `block_steps`: scaled once per block."""
        s = self.settings
        return kernels.FactorChoices(
            loss=s.loss_code,
            mean=self.offset,
            eta=self.eta,
            l2=s.alpha,
            l2_bias=s.alpha,
            l1=s.l1,
            rank=s.rank,
            adaptive=s.adaptive,
            block_steps=block_steps,
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
        if self.settings.loss in SCALED:
            return np.asarray(scores * np.float64(self.scale) + self.mean)
        return scores.astype(np.float64)

    def losses(self, scores: Array, values: Array) -> Array:
        """The loss of each entry, in the units of learning, from scores and ratings in their own."""
        values = self.targets(values)
        if self.settings.loss in SCALED:
            scores, values = (scores - self.mean) / self.scale, (values - self.mean) / self.scale
        if self.settings.loss == "bpr":
            values = np.ones(len(values))
        scores, values = (np.ascontiguousarray(array, np.float64) for array in (scores, values))
        return kernels.loss_value_gradient(self.settings.loss_code, 0.0, scores, values)[0]

    def count_nonzero(self) -> int:
        """The number of factors of both sides; none is exactly zero as a rule, so all are counted."""
        return (len(self.users) + len(self.items)) * self.rank

    def penalty(self) -> float:
        """The penalties that are added to the sum of losses."""
        total = 0.0
        s, padded = self.settings, self.padded
        for table, counts in zip((self.users, self.items), self.ridge_counts(), strict=True):
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

    def step(self, entries: Entries) -> Progress:
        """Visits each entry once, in the order given; the first ones wait, since mean and spread come from them."""
        if self.waiting is not None:
            entries = Entries.joined(self.waiting, entries)
        if not self.started and len(entries.users) < WAIT:
            self.waiting = entries
            return Progress()
        if not self.started:
            self._start(entries.only(np.arange(WAIT)))
        values = self.targets(entries.values)
        self._check_distance(values)
        self.waiting = None
        self.low, self.high = min(self.low, float(values.min())), max(self.high, float(values.max()))
        return self.learn(self.code(entries))

    def _check_distance(self, values: Array) -> None:
        """Refuses a target so far from those that fixed mean and spread that no step size could learn it."""
        reach = FARTHEST * self.scale
        far = ~(np.abs(values - self.mean) <= reach)
        if self.settings.loss in SCALED and far.any():
            raise DataError(
                f"the value {values[far][0]:g} is more than {reach:g} from {self.mean:g}, the mean of what was learned "
                "first; check the value, or fit the model again"
            )

    def finish(self) -> Progress:
        """Learns the waiting entries, as if no others were to come."""
        if self.waiting is None:
            return Progress()
        entries, self.waiting = self.waiting, None
        self._start(entries)
        return self.learn(self.code(entries))

    def learn(self, coded: Entries) -> Progress:
        """One visit of each coded entry; learning that overflows starts again with half the step."""
        if not len(coded.users):
            return Progress()
        self.grow(int(coded.users.max()) + 1, int(coded.items.max()) + 1)
        known = self.eta, self.user_counts, self.item_counts
        self.count(coded)
        strata, liked = one_block(coded, len(self.users), len(self.items)), None
        if self.settings.loss == "bpr":
            liked = csr_of(coded.users, coded.items, len(self.users))[:2]
        seed = self.settings.seed + int(self.user_counts.sum())
        tables, before = (self.users, self.items), (self.users.copy(), self.items.copy())
        order, loss, events = np.zeros(1, np.int32), np.zeros(1), []
        while self.visit(strata, tables, order, loss, seed, liked, online=True) == OVERFLOW:
            self.users[:], self.items[:] = before
            self.eta /= 2
            events.append(f"learning overflowed: rolled back to the last good state, step size now {self.eta:.3g}")
            if self.eta < SMALLEST_STEP:
                self.eta, self.user_counts, self.item_counts = known
                raise DataError("learning these entries overflows with every step; scale them, or fit the model again")
        return Progress(len(coded.users), total_weight(coded.weights, len(coded.users)), float(loss[0]), events)

    def visit(
        self,
        strata: Strata,
        tables: tuple[Array, Array],
        schedule: Array,
        losses: Array,
        seed: int = 0,
        liked: tuple[Array, Array] | None = None,
        n_threads: int = 1,
        *,
        pieces: int = 0,
        online: bool = False,
    ) -> int:
        """Visits blocks in the order of the schedule, and sets the loss of each; OVERFLOW if a score did so.

        `liked` holds the items of each user, for bpr; `online` scales steps at every entry, not once per block. With
        `pieces`, the schedule is one of pieces of the only block, of so many entries each, whose threads share the
        tables without locks.
        """
        choices = self.choices(block_steps=liked is None and not (online or pieces or self.settings.proximal))
        lists = None if liked is None else (*liked, seed)
        s = strata
        cells = s.users, s.items, s.values, s.weights
        blocks = kernels.FactorBlocks(*cells, s.offsets, s.user_bounds, s.item_bounds)
        return kernels.factor_learn(blocks, schedule, *tables, choices, losses, n_threads, lists, pieces)


def csr_of(rows: Array, columns: Array, n_rows: int) -> tuple[Array, Array, Array]:
    """(indptr, columns, where each came from), sorted by row and column."""
    order = np.lexsort((columns, rows))
    indptr = np.zeros(n_rows + 1, np.int64)
    np.cumsum(np.bincount(rows, minlength=n_rows), out=indptr[1:])
    return indptr, np.ascontiguousarray(columns[order], np.int32), order


def _cell_values(entries: Entries) -> Array:
    """The value of each cell: weights multiply, and the values of entries that occur twice are added up."""
    values = entries.values if entries.weights is None else entries.values * entries.weights
    cells = entries.users.astype(np.int64) << 32 | entries.items
    _, codes = np.unique(cells, return_inverse=True)
    return np.bincount(codes, values) if len(values) else np.zeros(0)


def _median(values: Array, weights: Array | None) -> float:
    """The middle value, where an entry of weight 2 counts as two."""
    if weights is None:
        return float(np.median(values))
    order = np.argsort(values, kind="stable")
    filled = np.cumsum(weights[order], dtype=np.float64)
    low, high = np.searchsorted(filled, filled[-1] / 2, "left"), np.searchsorted(filled, filled[-1] / 2, "right")
    return float(values[order[low]] + values[order[min(int(high), len(order) - 1)]]) / 2


def _spread(values: Array, weights: Array | None) -> float:
    if not len(values):
        return 1.0
    mean = np.average(values, weights=weights)
    spread = math.sqrt(float(np.average((values - mean) ** 2, weights=weights)))
    return spread if spread > 1e-9 * max(abs(float(mean)), 1e-300) else max(abs(float(mean)), 1.0)


def total_weight(weights: Array | None, n: int) -> float:
    """The total weight of n entries; without weights each counts one."""
    return float(n) if weights is None else float(weights.sum(dtype=np.float64))
