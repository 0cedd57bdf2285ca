"""Matrix factorization on shards: strata by stages (`dsgd`), and alternating least squares (`als`).

dsgd  Shard a holds the ratings of user stripe a, cut by item stripe. A job learns one stratum: shard a visits its block
      (a, b), so no two shards touch the same row. Schedule, blocks and steps are those of learners/strata.py and
      learners/factors.py: `MatrixFactorization(n_blocks=S)` in one process gives the same bits.
als   One job solves all users, on shards by user, another all items, on shards by item; each row is solved as in one
      process, so the bits do not even depend on the number of shards.

The driver holds the factors between jobs: they travel as broadcasts and answers, and a lost executor loses nothing.
Reference: Gemulla, Nijkamp, Haas, Sismanis (2011), Large-scale matrix factorization with distributed SGD.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from steepest import kernels
from steepest.data.chunk import Array
from steepest.data.entries import Entries
from steepest.data.parameters import ParameterError, choice, whole
from steepest.engine.factor_loop import train_factors
from steepest.engine.stopping import Plan
from steepest.learners.als import AlternatingRun, Side, _gram, make_side, solve_rows
from steepest.learners.factor_settings import KNOWN_SHARE, WHOLE, FactorSettings, resolve_settings
from steepest.learners.factor_sgd import SgdRun, arranged, inverse
from steepest.learners.factors import OVERFLOW, FactorLearner, total_weight
from steepest.learners.strata import FEWEST, Strata, _stripes
from steepest.spark.frames import is_connect
from steepest.spark.journal import Journal
from steepest.spark.ratings import Ratings, RatingShard, RatingShards, pack_ratings, rating_columns

METHODS = ("dsgd", "als")


class Wish(NamedTuple):
    """What `fit_spark` was asked for."""

    features: Any
    label: str | None
    weight: str | None
    order_by: Any
    n_shards: int | None
    method: str | None
    rounds: int | None
    barrier: bool = False
    journal: Journal | None = None


def restored(settings: FactorSettings, numbers: dict[str, Any]) -> FactorLearner:
    """A learner without rows."""
    learner = FactorLearner(settings)
    learner.restore_numbers(numbers)
    return learner


def targets(settings: FactorSettings, values: Array) -> Array:
    """Ratings as the loss wants them."""
    return np.where(values > 0, 1.0, -1.0) if settings.loss in ("logistic", "hinge") else values


# ------------------------------------------------------------------------------------------ in the executors: dsgd


@dataclass(frozen=True, slots=True)
class Stripes:
    """The learner, and the first row of each stripe of users and items."""

    settings: FactorSettings
    numbers: dict[str, Any]
    user_bounds: Array
    item_bounds: Array


@dataclass(frozen=True, slots=True)
class Arrange(Stripes):
    """Ratings of a user stripe to its blocks; rows are numbered from the first of their stripe."""

    user_places: Array
    item_places: Array
    before: Array  # ratings of the stripes before each

    def __call__(self, number: int, entries: Entries) -> dict[str, Array]:
        """Arrays to keep."""
        n, d = len(entries.users), len(self.user_bounds) - 1
        values = restored(self.settings, self.numbers).normalised(targets(self.settings, entries.values))
        users, items, out = np.empty(n, np.int32), np.empty(n, np.int32), np.empty(n, np.float32)
        weights = None if entries.weights is None else np.empty(n, np.float32)
        offsets = np.empty(d * d + 1, np.int64)
        kernels.factor_pack(
            entries.users, entries.items, values, entries.weights, self.user_places, self.item_places,
            self.user_bounds, self.item_bounds, self.settings.seed, users, items, out, weights, offsets,
            before=int(self.before[number]),
        )  # fmt: skip
        offsets = offsets[number * d : number * d + d + 1]
        users -= np.int32(self.user_bounds[number])
        items -= np.repeat(self.item_bounds[:-1], np.diff(offsets)).astype(np.int32)
        kept: dict[str, Array] = {"users": users, "items": items, "values": out, "offsets": offsets}
        return kept if weights is None else {**kept, "weights": weights}


@dataclass(frozen=True, slots=True)
class Stratum(Stripes):
    """What every shard gets for a stratum."""

    users: Array
    items: Array
    item_stripes: list[int]  # of each user stripe
    epoch: int


def learn_block(shard: RatingShard, given: Stratum) -> dict[str, Array]:
    """The shard's block of the stratum: both stripes afterwards."""
    a, b = shard.number, given.item_stripes[shard.number]
    cut = slice(int(shard.arrays["offsets"][b]), int(shard.arrays["offsets"][b + 1]))
    run = BlockRun(restored(given.settings, given.numbers), shard.arrays, cut)
    run.users = _own(given.users[given.user_bounds[a] : given.user_bounds[a + 1]])
    run.items = _own(given.items[given.item_bounds[b] : given.item_bounds[b + 1]])
    run.set_bounds()
    losses = np.zeros(1)
    status = run._learn(np.zeros(1, np.int32), losses, given.epoch)
    return {"users": run.users, "items": run.items, "told": np.array([status, losses[0]])}


def _own(rows: Array) -> Array:
    return arranged(rows, np.arange(len(rows)))


class BlockRun(SgdRun):
    """Learns one block by the step of all."""

    def __init__(self, learner: FactorLearner, arrays: Any, cut: slice) -> None:
        self.learner, self.n_threads = learner, 1
        self._entries = [np.ascontiguousarray(arrays[name][cut]) for name in ("users", "items", "values")]
        self._weights = np.ascontiguousarray(arrays["weights"][cut]) if "weights" in arrays else None

    def set_bounds(self) -> None:
        """One block of all rows."""
        n_users, n_items, n = len(self.users), len(self.items), len(self._entries[0])
        self.strata = Strata(
            user_places=np.arange(n_users, dtype=np.int32),
            item_places=np.arange(n_items, dtype=np.int32),
            user_bounds=np.array([0, n_users]),
            item_bounds=np.array([0, n_items]),
            users=self._entries[0],
            items=self._entries[1],
            values=self._entries[2],
            weights=self._weights,
            offsets=np.array([0, n]),
            seed=self.learner.settings.seed,
        )


# ------------------------------------------------------------------------------------------- in the executors: als


@dataclass(frozen=True, slots=True)
class ToSide:
    """Ratings of some rows to one side of the alternating solver; rows are numbered from the first of the shard."""

    settings: FactorSettings
    numbers: dict[str, Any]
    side: int  # 0: users
    bounds: Array

    def __call__(self, number: int, entries: Entries) -> dict[str, Array]:
        """Arrays to keep."""
        learner = restored(self.settings, self.numbers)
        values, weights = learner.normalised(entries.values), entries.weights
        if self.settings.loss == "implicit":
            values = values if weights is None else values * weights
            values, weights = values * np.float32(self.settings.confidence), None
        mine, other = (entries.users, entries.items) if self.side == 0 else (entries.items, entries.users)
        first, end = self.bounds[number : number + 2].tolist()
        side = make_side(mine - np.int32(first), other, values, weights, end - first, self.settings.loss == "implicit")
        kept = {"indptr": side.indptr, "indices": side.indices, "values": side.values}
        return kept if side.weights is None else {**kept, "weights": side.weights}


@dataclass(frozen=True, slots=True)
class HalfStep:
    """What every shard gets to solve its rows."""

    settings: FactorSettings
    numbers: dict[str, Any]
    mine: Array
    other: Array
    ridge: Array | None
    bounds: Array
    with_loss: bool


def solve_shard(shard: RatingShard, given: HalfStep) -> dict[str, Array]:
    """The rows of the shard, solved; and their part of the loss, if asked for."""
    learner = restored(given.settings, given.numbers)
    parts = {name: np.ascontiguousarray(array) for name, array in shard.arrays.items()}
    side = Side(parts["indptr"], parts["indices"], parts["values"], parts.get("weights"))
    cut = slice(*given.bounds[shard.number : shard.number + 2].tolist())
    mine = _own(given.mine[cut])
    ridge = HalfRun(learner).ridge(side, len(given.other)) if given.ridge is None else given.ridge[cut]
    other = _own(given.other)
    solve_rows(learner, mine, other, side, ridge, None, 1)
    answer = {"rows": mine, "ridge": ridge}
    if given.with_loss:
        answer["loss"] = np.array([known_loss(given.settings.loss, mine, other, side)])
    return answer


class HalfRun(AlternatingRun):
    """The ridges of a part of the rows."""

    def __init__(self, learner: FactorLearner) -> None:
        self.learner, self.loss = learner, learner.settings.loss


def known_loss(loss: str, mine: Array, other: Array, side: Side) -> float:
    """The losses of known entries; implicit: what they add to those of all cells, twice."""
    scores = np.empty(len(side.indices), np.float32)
    kernels.factor_pairs(side.rows.astype(np.int32), side.indices, mine, other, 0.0, scores, 1)
    s, v = scores.astype(np.float64), side.values.astype(np.float64)
    if loss == "implicit":
        return float(((1 + v) * (1 - s) ** 2 - s**2).sum())
    w = 1.0 if side.weights is None else side.weights.astype(np.float64)
    return float(0.5 * (w * (s - v) ** 2).sum())


# -------------------------------------------------------------------------------------------------------- in the driver


class FarSgdRun(SgdRun):
    """Epochs of stochastic gradients, each stratum one job."""

    def __init__(self, learner: FactorLearner, ratings: Ratings, d: int, barrier: bool = False) -> None:
        entries = ratings.entries
        self.learner, self.n_threads = learner, 1
        self.n_entries, self.weight = len(entries.users), total_weight(entries.weights, len(entries.users))
        learner.set_shrinkage()
        seed = learner.settings.seed
        rng = np.random.default_rng([seed, 0])
        user_places, user_bounds = _stripes(np.bincount(entries.users, minlength=len(learner.users)), d, rng)
        item_places, item_bounds = _stripes(np.bincount(entries.items, minlength=len(learner.items)), d, rng)
        nothing = np.zeros(0, np.int32), np.zeros(0, np.int32), np.zeros(0, np.float32)
        offsets = np.zeros(d * d + 1, np.int64)
        self.strata = Strata(user_places, item_places, user_bounds, item_bounds, *nothing, None, offsets, seed)
        self._user_order, self._item_order = inverse(user_places), inverse(item_places)
        self.users = arranged(learner.users, self._user_order)
        self.items = arranged(learner.items, self._item_order)
        self._best_loss = math.inf
        owners = (np.searchsorted(user_bounds[1:-1], user_places, side="right")).astype(np.int32)
        sizes = np.bincount(owners[entries.users], minlength=d)
        before = np.concatenate([[0], np.cumsum(sizes)[:-1]])
        stripes = user_bounds, item_bounds, user_places, item_places
        arrange = Arrange(learner.settings, learner.numbers, *stripes, before)
        self.shards = ratings.deal(0, owners, d, arrange, barrier=barrier)
        self.bytes_down = self.bytes_up = 0

    def keep_in(self, journal: Journal) -> None:
        """Every stratum is a round to keep."""
        self.shards.journal = journal

    def _learn(self, schedule: Array, losses: Array, epoch: int) -> int:
        strata, d = self.strata, self.strata.d
        for at, stratum in enumerate(strata.sub_epochs(epoch)):
            stripes = {block.users: block.items for block in stratum}
            given = Stratum(
                self.learner.settings, self.learner.numbers, strata.user_bounds, strata.item_bounds, self.users,
                self.items, [stripes[a] for a in range(d)], epoch,
            )  # fmt: skip
            answers = self.shards.run(learn_block, given)
            self.bytes_down += d * (self.users.nbytes + self.items.nbytes)
            self.bytes_up += sum(array.nbytes for answer in answers for array in answer.values())
            if any(answer["told"][0] == OVERFLOW for answer in answers):
                return OVERFLOW
            for place, block in enumerate(stratum):
                answer = answers[block.users]
                self.users[strata.user_bounds[block.users] : strata.user_bounds[block.users + 1]] = answer["users"]
                self.items[strata.item_bounds[block.items] : strata.item_bounds[block.items + 1]] = answer["items"]
                losses[at * d + place] = answer["told"][1]
        return 0

    def close(self) -> None:
        """Removes the shards' files."""
        self.shards.close()


class FarAlternatingRun(AlternatingRun):
    """Iterations over both sides, each half one job."""

    def __init__(self, learner: FactorLearner, ratings: Ratings, n_shards: int) -> None:
        entries, settings = ratings.entries, learner.settings
        self.learner, self.n_threads, self.loss = learner, 1, settings.loss
        self.n_entries = len(entries.users)
        cells = float(len(learner.users)) * len(learner.items)
        self.weight = cells if self.loss == "implicit" else total_weight(entries.weights, self.n_entries)
        learner.set_shrinkage()
        self.known = 0.0
        self.bytes_down = self.bytes_up = 0
        self.sides: dict[str, tuple[RatingShards, Array]] = {}
        self.ridges: dict[str, Array | None] = {"users": None, "items": None}
        for number, (which, counts) in enumerate((("users", learner.user_counts), ("items", learner.item_counts))):
            bounds = even_bounds(counts, n_shards)
            owners = np.repeat(np.arange(n_shards, dtype=np.int32), np.diff(bounds))
            finish = ToSide(settings, learner.numbers, number, bounds)
            self.sides[which] = ratings.deal(number, owners, n_shards, finish), bounds
            if self.loss == "squared":
                self.ridges[which] = np.asarray(settings.alpha * learner.ridges(counts), np.float32)

    def keep_in(self, journal: Journal) -> None:
        """Every half is a round to keep."""
        for shards, _ in self.sides.values():
            shards.journal = journal

    def solve(self, which: str, rows: Array | None = None) -> None:
        """One job."""
        learner = self.learner
        mine, other = (learner.users, learner.items) if which == "users" else (learner.items, learner.users)
        shards, bounds = self.sides[which]
        ridge = self.ridges[which] if self.loss == "squared" else None
        given = HalfStep(learner.settings, learner.numbers, mine, other, ridge, bounds, which == "items")
        answers = shards.run(solve_shard, given)
        mine[:] = np.concatenate([answer["rows"] for answer in answers])
        self.ridges[which] = np.concatenate([answer["ridge"] for answer in answers])
        if which == "items":
            self.known = sum(float(answer["loss"][0]) for answer in answers)
        self.bytes_down += shards.n * (mine.nbytes + other.nbytes)
        self.bytes_up += sum(array.nbytes for answer in answers for array in answer.values())

    def current_loss(self) -> float:
        """The sum of losses, of which the shards told their parts."""
        if self.loss != "implicit":
            return self.known
        tables = self.learner.users, self.learner.items
        users, items = (_gram(np.ascontiguousarray(t[:, : self.learner.padded]), 1).astype(np.float64) for t in tables)
        return 0.5 * (float((users * items).sum()) + self.known)

    def penalty(self) -> float:
        """What the penalties add to the sum of losses."""
        if self.loss == "squared":
            return self.learner.penalty()
        total = 0.0
        for table, ridge in ((self.learner.users, self.ridges["users"]), (self.learner.items, self.ridges["items"])):
            assert ridge is not None
            factors = table[:, : self.learner.padded]
            total += 0.5 * float(np.dot(np.einsum("ij,ij->i", factors, factors).astype(np.float64), ridge))
        return total

    def close(self) -> None:
        """Removes the shards' files."""
        for shards, _ in self.sides.values():
            shards.close()


def even_bounds(counts: Array, n_shards: int) -> Array:
    """First row of each shard and the end: neighbours, with about as many entries each."""
    filled = np.cumsum(counts + 1e-9)
    inner = np.searchsorted(filled, filled[-1] * np.arange(1, n_shards) / n_shards)
    return np.concatenate([[0], inner, [len(counts)]]).astype(np.int64)


# -------------------------------------------------------------------------------------------------------------- fitting


def fit_factors(estimator: Any, frame: Any, wish: Wish, place: str | None) -> None:
    """Fits MatrixFactorization on a DataFrame of ratings."""
    default = "als" if estimator.solver == "als" or estimator.loss in WHOLE else "dsgd"
    method = choice("method", default if wish.method is None else wish.method, METHODS)
    if wish.barrier and method == "als":
        raise ParameterError("barrier=True holds one set of shards, and method='als' needs two; leave barrier out")
    settings = _settings(estimator, method)
    columns = rating_columns(dict(frame.dtypes), wish.features, wish.label, wish.weight)
    n = _n_shards(estimator, frame.sparkSession, wish.n_shards, method)
    epochs = whole("epochs", estimator.epochs, 1) if wish.rounds is None else whole("rounds", wish.rounds, 1)
    ratings = pack_ratings(frame, columns, n, wish.order_by, place)
    run: FarSgdRun | FarAlternatingRun | None = None
    try:
        n = _fitting(n, ratings)
        entries, users, items = ratings.entries, ratings.users, ratings.items
        estimator._check_targets(entries.values)
        if not settings.confidence:
            cells = float(len(users)) * len(items)
            settings = replace(settings, confidence=KNOWN_SHARE * cells / max(float(entries.values.sum()), 1e-300))
        learner = FactorLearner(settings)
        learner.start(targets(settings, entries.values), entries.weights)
        learner.grow(len(users), len(items))
        learner.count(entries.users, entries.items)
        if method == "dsgd":
            run = FarSgdRun(learner, ratings, n, wish.barrier)
        else:
            run = FarAlternatingRun(learner, ratings, n)
        if wish.journal is not None:
            wish.journal.fingerprint["rows"] = [len(entries.users), len(users), len(items)]
            run.keep_in(wish.journal)
        learner, history = train_factors(run, Plan(epochs=epochs), None, estimator._monitor())
        for record in history:
            record |= {
                "shards": n,
                "bytes_down": run.bytes_down // len(history),
                "bytes_up": run.bytes_up // len(history),
            }
        history.events.insert(0, ratings.why)
    finally:
        if run is not None:
            run.close()
        ratings.close()
    if method == "dsgd":
        estimator.n_blocks_ = n
    estimator._adopt(learner, users, items, entries, history)
    estimator.recipe_, estimator.n_iter_ = {}, len(history)
    estimator.spark_features_ = (columns.user, columns.item)


def _settings(estimator: Any, method: str) -> FactorSettings:
    """The estimator's settings under this method, or what a cluster cannot do."""
    params = estimator.get_params(deep=False)
    loss = params["loss"]
    if estimator.early_stopping:
        raise ParameterError("early_stopping holds out ratings on one machine only; on Spark choose epochs")
    if method == "dsgd" and loss in ("implicit", "kl"):
        raise ParameterError(f"loss={loss!r} counts every cell, so it cannot be learned by strata; give method='als'")
    if loss in ("bpr", "kl"):
        raise ParameterError(f"loss={loss!r} is not learned on Spark; fit it on one machine, or choose loss='implicit'")
    settings = resolve_settings({**params, "solver": "als" if method == "als" else "sgd"}, estimator._seed())
    if method == "als" and settings.biases and settings.weighting == "count":
        raise ParameterError("weighting='count' with biases needs all rows at once; on Spark give weighting='mixed'")
    return settings


def _n_shards(estimator: Any, session: Any, wish: int | None, method: str) -> int:
    """Shards wanted: of dsgd a parameter of the result, of als as many as there are cores."""
    if wish is not None:
        return whole("n_shards", wish, 1)
    if method == "dsgd":
        return FEWEST if estimator.n_blocks == "auto" else whole("n_blocks", estimator.n_blocks, 1)
    return FEWEST if is_connect(session) else max(1, int(session.sparkContext.defaultParallelism))


def _fitting(n: int, ratings: Ratings) -> int:
    """No more shards than there are users and items, as one process cuts stripes."""
    return min(n, len(ratings.users), len(ratings.items))
