"""Matrix factorization on shards: strata by stages (`dsgd`), and alternating least squares (`als`).

dsgd  Shard a holds the ratings of user stripe a, cut by item stripe. A job learns one stratum: shard a visits its block
      (a, b), so no two shards touch the same row. Schedule, blocks and steps are those of learners/factors/strata.py
      and factors.py: `MatrixFactorization(n_blocks=S)` in one process gives the same bits.
als   One job solves all users, on shards by user, another all items, on shards by item; each row is solved as in one
      process, so the bits do not even depend on the number of shards.

The driver holds the factors between jobs: they travel as broadcasts and answers, and a lost executor loses nothing.
Reference: Gemulla, Nijkamp, Haas, Sismanis (2011), Large-scale matrix factorization with distributed SGD.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from steepest.data.chunk import Array
from steepest.data.entries import Entries
from steepest.engine.loop import EntryEpochs, train
from steepest.engine.stopping import Plan
from steepest.errors import ParameterError
from steepest.learners.factors.als import (
    BY_GRAM,
    SIDES,
    AlternatingRun,
    Side,
    known_loss,
    make_side,
    ridge_of,
    solve_rows,
    square_of_all_cells,
    tables_of,
)
from steepest.learners.factors.factor_run import FactorRun
from steepest.learners.factors.factor_settings import WHOLE, FactorSettings, auto_confidence, resolve_settings
from steepest.learners.factors.factor_sgd import SgdRun, arranged
from steepest.learners.factors.factors import OVERFLOW, FactorLearner
from steepest.learners.factors.strata import FEWEST, Strata, fill_strata, one_block, plan_strata
from steepest.parameters import choice, whole
from steepest.spark.blocks import Shard
from steepest.spark.frames import FitOptions, Input, is_connect
from steepest.spark.messages import Answer, size_of
from steepest.spark.ratings import Ratings, pack_ratings, rating_columns, recipe_of
from steepest.spark.shards import Shards

METHODS = ("dsgd", "als")


def without_rows(learner: FactorLearner) -> FactorLearner:
    """A copy of the learner without its tables, for executors."""
    bare = FactorLearner(learner.settings)
    bare.restore_numbers(learner.numbers)
    return bare


def _own(rows: Array) -> Array:
    return arranged(rows, np.arange(len(rows)))


# ------------------------------------------------------------------------------------------ in the executors: dsgd


def arrange(learner: FactorLearner, plan: Strata, before: Array, number: int, ratings: Mapping[str, Array]) -> Answer:
    """Ratings of a user stripe to its blocks, whose rows are numbered from the first of their stripe.

    `before` counts the ratings of the stripes before each.
    """
    d, coded = plan.d, learner.code(Entries.from_arrays(dict(ratings)))
    filled = fill_strata(plan, coded, before=int(before[number]))
    offsets = filled.offsets[number * d : number * d + d + 1]
    users = filled.users - np.int32(plan.user_bounds[number])
    items = filled.items - np.repeat(plan.item_bounds[:-1], np.diff(offsets)).astype(np.int32)
    return {**Entries(users, items, filled.values, filled.weights).as_arrays(), "offsets": offsets}


@dataclass(frozen=True, slots=True)
class Stratum:
    """What every shard receives for a stratum: the learner, the first row of each stripe, and the tables."""

    learner: FactorLearner
    user_bounds: Array
    item_bounds: Array
    users: Array
    items: Array
    item_stripes: list[int]  # of each user stripe


def learn_block(shard: Shard, given: Stratum) -> Answer:
    """The shard's block of the stratum: both stripes afterwards."""
    a, b = shard.number, given.item_stripes[shard.number]
    cut = slice(int(shard.arrays["offsets"][b]), int(shard.arrays["offsets"][b + 1]))
    parts = {name: np.ascontiguousarray(shard.arrays[name][cut]) for name in shard.arrays if name != "offsets"}
    users = _own(given.users[given.user_bounds[a] : given.user_bounds[a + 1]])
    items = _own(given.items[given.item_bounds[b] : given.item_bounds[b + 1]])
    block, losses = one_block(Entries.from_arrays(parts), len(users), len(items)), np.zeros(1)
    status = given.learner.visit(block, (users, items), np.zeros(1, np.int32), losses)
    return {"users": users, "items": items, "status": np.array([status, losses[0]])}


# ------------------------------------------------------------------------------------------- in the executors: als


def to_side(learner: FactorLearner, which: str, bounds: Array, number: int, ratings: Mapping[str, Array]) -> Answer:
    """Ratings of some rows to one side of the alternating solver; rows are numbered from the first of the shard."""
    coded = learner.code(Entries.from_arrays(dict(ratings)))
    first, end = bounds[number : number + 2].tolist()
    setattr(coded, which, getattr(coded, which) - np.int32(first))
    side = make_side(learner.settings, coded, which, end - first)
    arrays = {"indptr": side.indptr, "indices": side.indices, "values": side.values}
    return arrays if side.weights is None else {**arrays, "weights": side.weights}


@dataclass(frozen=True, slots=True)
class HalfStep:
    """What every shard receives to solve its rows."""

    learner: FactorLearner
    mine: Array
    other: Array
    ridge: Array | None
    bounds: Array
    with_loss: bool


def solve_shard(shard: Shard, given: HalfStep) -> Answer:
    """The rows of the shard, solved; and their part of the loss, if asked for."""
    learner = given.learner
    parts = {name: np.ascontiguousarray(array) for name, array in shard.arrays.items()}
    side = Side(parts["indptr"], parts["indices"], parts["values"], parts.get("weights"))
    cut = slice(*given.bounds[shard.number : shard.number + 2].tolist())
    mine, other = _own(given.mine[cut]), _own(given.other)
    ridge = ridge_of(learner, side, len(given.other)) if given.ridge is None else given.ridge[cut]
    solve_rows(learner, mine, other, side, ridge, None, 1)
    answer = {"rows": mine, "ridge": ridge}
    if given.with_loss:
        answer["loss"] = np.array([known_loss(learner.settings.loss, mine, other, side)])
    return answer


# -------------------------------------------------------------------------------------------------------- in the driver


class FarSgdRun(SgdRun):
    """Epochs of stochastic gradients, each stratum one job."""

    def __init__(self, learner: FactorLearner, ratings: Ratings, d: int, barrier: bool = False) -> None:
        super().__init__(learner, ratings.entries, 1, d)
        places, bounds = self.strata.user_places, self.strata.user_bounds
        owners = np.searchsorted(bounds[1:-1], places, side="right").astype(np.int32)
        sizes = np.bincount(owners[ratings.entries.users], minlength=d)
        before = np.concatenate([[0], np.cumsum(sizes)[:-1]])
        finish = partial(arrange, without_rows(learner), self.strata, before)
        self.shards = [ratings.share_out("users", owners, d, finish, barrier=barrier)]
        self.bytes_down = self.bytes_up = 0

    def make_strata(self, entries: Entries, d: int) -> Strata:
        """Plans the stripes; the entries are in the shards."""
        learner = self.learner
        return plan_strata(entries, len(learner.users), len(learner.items), d, learner.settings.seed)

    def learn_blocks(self, schedule: Array, losses: Array, epoch: int) -> int:
        """Learns the blocks with one job per stratum."""
        strata, d, bare = self.strata, self.strata.d, without_rows(self.learner)
        user_bounds, item_bounds = strata.user_bounds, strata.item_bounds
        for at, stratum in enumerate(strata.sub_epochs(epoch)):
            stripes = {block.users: block.items for block in stratum}
            item_stripes = [stripes[a] for a in range(d)]
            given = Stratum(bare, user_bounds, item_bounds, self.users, self.items, item_stripes)
            answers = self.shards[0].run(learn_block, given)
            self.bytes_down += d * (self.users.nbytes + self.items.nbytes)
            self.bytes_up += size_of(answers)
            if any(answer["status"][0] == OVERFLOW for answer in answers):
                return OVERFLOW
            for place, block in enumerate(stratum):
                answer = answers[block.users]
                self.users[user_bounds[block.users] : user_bounds[block.users + 1]] = answer["users"]
                self.items[item_bounds[block.items] : item_bounds[block.items + 1]] = answer["items"]
                losses[at * d + place] = answer["status"][1]
        return 0


class FarAlternatingRun(AlternatingRun):
    """Iterations over both sides, each half one job."""

    def __init__(self, learner: FactorLearner, ratings: Ratings, n_shards: int) -> None:
        FactorRun.__init__(self, learner, ratings.entries)  # the sides are with the shards
        settings = learner.settings
        self.loss = settings.loss
        if self.loss in BY_GRAM:
            self.weight = float(len(learner.users)) * len(learner.items)
        self.known = 0.0
        self.bytes_down = self.bytes_up = 0
        self.shards: list[Shards] = []
        self.bounds: list[Array] = []
        self.ridges: dict[str, Array | None] = {"users": None, "items": None}
        for which, counts in zip(SIDES, (learner.user_counts, learner.item_counts), strict=True):
            bounds = even_bounds(counts, n_shards)
            owners = np.repeat(np.arange(n_shards, dtype=np.int32), np.diff(bounds))
            finish = partial(to_side, without_rows(learner), which, bounds)
            self.shards.append(ratings.share_out(which, owners, n_shards, finish))
            self.bounds.append(bounds)
            if self.loss == "squared":
                self.ridges[which] = np.asarray(settings.alpha * learner.ridges(counts), np.float32)

    def solve(self, which: str, rows: Array | None = None) -> None:
        """Solves all rows of a side with one job."""
        learner, number = self.learner, SIDES.index(which)
        mine, other = tables_of(learner, which)
        ridge = self.ridges[which] if self.loss == "squared" else None
        given = HalfStep(without_rows(learner), mine, other, ridge, self.bounds[number], which == "items")
        answers = self.shards[number].run(solve_shard, given)
        mine[:] = np.concatenate([answer["rows"] for answer in answers])
        self.ridges[which] = np.concatenate([answer["ridge"] for answer in answers])
        if which == "items":
            self.known = sum(float(answer["loss"][0]) for answer in answers)
        self.bytes_down += len(answers) * (mine.nbytes + other.nbytes)
        self.bytes_up += size_of(answers)

    def current_loss(self) -> float:
        """The sum of losses, whose parts the shards have sent."""
        if self.loss not in BY_GRAM:
            return self.known
        return 0.5 * (square_of_all_cells(self.learner) + self.known)

    def ridge(self, which: str, n_other: int) -> Array:
        """The ridge of each row of a side, from the counts that the shards have sent."""
        ridge = self.ridges[which]
        assert ridge is not None
        return ridge


def even_bounds(counts: Array, n_shards: int) -> Array:
    """First row of each shard and the end: neighbours, with about as many entries each."""
    filled = np.cumsum(counts + 1e-9)
    inner = np.searchsorted(filled, filled[-1] * np.arange(1, n_shards) / n_shards)
    return np.concatenate([[0], inner, [len(counts)]]).astype(np.int64)


# -------------------------------------------------------------------------------------------------------------- fitting


def fit_factors(estimator: Any, given: Input, options: FitOptions) -> None:
    """Fits MatrixFactorization on a DataFrame of ratings."""
    if given.lines:
        raise ParameterError("lines of libsvm hold no ratings; give a DataFrame, or Parquet files")
    default = "als" if estimator.solver == "als" or estimator.loss in WHOLE else "dsgd"
    method = choice("method", default if options.method is None else options.method, METHODS)
    if options.barrier and method == "als":
        raise ParameterError("barrier=True holds one set of shards, and method='als' needs two; leave barrier out")
    settings = _settings(estimator, method)
    columns = rating_columns(dict(given.frame.dtypes), options.features, options.label, options.weight)
    n = _n_shards(estimator, given.frame.sparkSession, options.n_shards, method)
    epochs = whole("epochs", estimator.epochs, 1) if options.rounds is None else whole("rounds", options.rounds, 1)
    ratings = pack_ratings(given, columns, n, options)
    entries, users, items = ratings.entries, ratings.users, ratings.items
    n = min(n, len(users), len(items))  # as one process cuts stripes
    run: FarSgdRun | FarAlternatingRun | None = None
    try:
        estimator.check_targets(entries.values)
        if not settings.confidence:
            settings = replace(settings, confidence=auto_confidence(entries, len(users), len(items)))
        learner = FactorLearner(settings)
        learner.prepare(entries, len(users), len(items))
        by_strata = method == "dsgd"
        run = FarSgdRun(learner, ratings, n, options.barrier) if by_strata else FarAlternatingRun(learner, ratings, n)
        if options.checkpoints is not None:
            options.checkpoints.fingerprint["rows"] = [len(entries.users), len(users), len(items)]
            for shards in run.shards:
                shards.checkpoints = options.checkpoints
        learner, history = train(EntryEpochs(run), Plan(epochs=epochs), monitor=estimator.monitor())
        down, up = run.bytes_down // len(history), run.bytes_up // len(history)
        for record in history:
            record |= {"shards": n, "bytes_down": down, "bytes_up": up}
        history.events.insert(0, ratings.why)
    finally:
        for shards in [] if run is None else run.shards:
            shards.close()
        ratings.close()
    if by_strata:
        estimator.n_blocks_ = n
    estimator.adopt_factors(learner, users, items, entries, history)
    estimator.recipe_, estimator.n_iter_ = recipe_of(columns), len(history)
    estimator.spark_features_ = (columns.user, columns.item)


def _settings(estimator: Any, method: str) -> FactorSettings:
    """The estimator's settings under this method, or what a cluster cannot do."""
    params = estimator.get_params(deep=False)
    loss = params["loss"]
    if estimator.early_stopping:
        raise ParameterError("early_stopping holds out ratings on one machine only; on Spark choose epochs")
    if method == "dsgd" and loss in WHOLE:
        raise ParameterError(f"loss={loss!r} counts every cell, so it cannot be learned by strata; give method='als'")
    if loss in ("bpr", "kl"):
        raise ParameterError(f"loss={loss!r} is not learned on Spark; fit it on one machine, or choose loss='implicit'")
    if params["parallel"] == "hogwild":
        raise ParameterError("parallel='hogwild' needs threads that share memory; on Spark leave it out")
    settings = resolve_settings({**params, "solver": "als" if method == "als" else "sgd"}, estimator.seed())
    if method == "als" and settings.biases and settings.weighting == "count":
        raise ParameterError("weighting='count' with biases needs all rows at once; on Spark give weighting='mixed'")
    return settings


def _n_shards(estimator: Any, session: Any, n_shards: int | None, method: str) -> int:
    """The number of shards: part of the result for dsgd, the number of cores for als."""
    if n_shards is not None:
        return whole("n_shards", n_shards, 1)
    if method == "dsgd":
        return FEWEST if estimator.n_blocks == "auto" else whole("n_blocks", estimator.n_blocks, 1)
    return FEWEST if is_connect(session) else max(1, int(session.sparkContext.defaultParallelism))
