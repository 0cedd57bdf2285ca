"""Linear models on shards: parameter mixing by the engine's own steps, and batch solvers by sums over the shards.

The driver holds the common learner; executors run `learn_shard` of engine/mixing.py on their rows and send back their
weights, of large tables only those that moved. Deltas and mixtures are then made here as they are for shards in this
process, so the bits are the same.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from steepest.data.chunk import Array, Chunk
from steepest.data.source import SHUFFLES, ArraySource, Order, Source
from steepest.engine.checkpoint import Checkpoints
from steepest.engine.history import History
from steepest.engine.iterations import TOLERANCES, Iterations
from steepest.engine.loop import Epochs, train
from steepest.engine.mixing import (
    MixedState,
    Pass,
    Rounds,
    ShardReplies,
    learn_shard,
    part_of_epoch,
    shard_order,
)
from steepest.engine.stopping import Plan
from steepest.errors import DataError, ParameterError
from steepest.learners.base import Progress
from steepest.learners.batch.batch_data import BatchData
from steepest.learners.batch.objective import Objective
from steepest.learners.batch.solvers import BATCH_SOLVERS, KINKED, SolverOptions
from steepest.learners.linear.linear import LinearLearner
from steepest.learners.linear.linear_mixing import gather_evidence
from steepest.learners.linear.linear_settings import LinearSettings
from steepest.learners.schedules import FIRST_ROWS
from steepest.learners.targets import balanced_weights
from steepest.models.linear import DEFAULT_TOL
from steepest.models.options import Mixing
from steepest.parameters import choice, whole
from steepest.spark.blocks import Shard
from steepest.spark.checkpoints import RoundCheckpoints
from steepest.spark.frames import FitOptions, Input
from steepest.spark.inputs import shards_of
from steepest.spark.messages import Answer, as_text, chunk_arrays, chunk_of, from_bytes, from_text, size_of, to_bytes
from steepest.spark.rows import WHOLE, Columns
from steepest.spark.shards import FarSource, Shards, Survey

METHODS = ("ipm", "mix", "vote", "batch")
FAR_SOLVERS = ("lbfgs", "gd")
PROGRESS = "progress"  # rows, weight and loss of a shard's round, and rows with those that were left out
EVENTS = "events"


# --------------------------------------------------------------------------------------------------- in the executors


def in_own_order(shard: Shard, rows: Chunk, order: Order) -> Source:
    """The shard's rows in an order of its own, as shards in one process have it."""
    source = ArraySource(rows)
    source.order = shard_order(order, shard.number)
    return source


@dataclass(frozen=True, slots=True)
class LearnState:
    """What every shard receives for a round."""

    settings: LinearSettings
    packed: Answer  # the common state, of tables with few entries only those; see `packed`
    labels: Array
    order: Order
    passes: Sequence[Pass]

    @property
    def state(self) -> Mapping[str, Array]:
        """The common state."""
        return {**unpacked(self.packed), "labels": self.labels}


def learn(shard: Shard, given: LearnState) -> Answer:
    """Learns one round on a shard; returns the new state, with only the changed entries of large arrays."""
    state = given.state
    base = LinearLearner.from_state(given.settings, state)
    source = in_own_order(shard, shard.chunk, given.order)
    own, progress = learn_shard(base, (part_of_epoch(source, *which) for which in given.passes))
    numbers = [progress.rows, progress.weight, progress.loss_sum, own.rows_learned - base.rows_learned]
    answer = {PROGRESS: np.array(numbers), EVENTS: as_text(progress.events)}
    for name, array in own.state.items():
        if name != "labels":
            answer |= moved(name, array, state[name])
    return answer


def moved(name: str, array: Array, base: Array) -> Answer:
    """An array as it is, or the entries that differ from the base and where they are, if that is shorter."""
    if array.shape != base.shape:
        return {name: array}
    bits = np.dtype(f"u{array.itemsize}")
    flat = np.ascontiguousarray(array).ravel()
    places = np.flatnonzero(flat.view(bits) != np.ascontiguousarray(base).ravel().view(bits))
    if len(places) * (8 + array.itemsize) >= array.nbytes:
        return {name: array}
    return {f"{name} at": places, f"{name} is": flat[places]}


def restored(name: str, answer: Mapping[str, Array], base: Array) -> Array:
    """The array that `moved` described."""
    if name in answer:
        return answer[name]
    table = np.array(base)
    table.ravel()[answer[f"{name} at"]] = answer[f"{name} is"]
    return table


SHAPE = " shape"


def packed(state: Mapping[str, Array]) -> Answer:
    """A state to be sent: of tables that are mostly zeros the other entries, which is exact and complete by itself.

    A task may run anywhere, so it cannot be sent the difference from what an earlier one had.
    """
    message: Answer = {}
    for name, array in without_labels(state).items():
        parts = moved(name, array, np.zeros_like(array))
        message |= parts if name in parts else {**parts, name + SHAPE: np.array(array.shape)}
    return message


def unpacked(message: Mapping[str, Array]) -> Answer:
    """The state that `packed` made."""
    state = {name: array for name, array in message.items() if not name.endswith((" at", " is", SHAPE))}
    for key in (key for key in message if key.endswith(SHAPE)):
        name = key.removesuffix(SHAPE)
        table = np.zeros(message[key], message[f"{name} is"].dtype)
        state[name] = restored(name, message, table)
    return state


def survey_shard(shard: Shard, given: tuple[int, Order, bool]) -> Answer:
    """Evidence per feature if requested; shard 0 also sends the first rows that it will learn."""
    n_features, order, evidence = given
    answer: Answer = {"here": np.zeros(1)}
    if evidence:
        answer |= moved("evidence", gather_evidence([shard.chunk], n_features), np.zeros(n_features))
    if shard.number == 0:
        first = next(iter(in_own_order(shard, chunk_of(shard.arrays), order).epoch(0)))
        sample = first.span(0, min(first.n_rows, FIRST_ROWS)).packed()
        answer["sample"] = np.frombuffer(to_bytes(chunk_arrays(sample)), np.uint8)
    return answer


def learn_alone(shard: Shard, given: tuple[LearnState, Plan]) -> Answer:
    """Runs all epochs over a single shard: exactly what one machine does."""
    state, plan = given
    learner = LinearLearner.from_state(state.settings, state.state)
    source = ArraySource(shard.chunk).shuffle(state.order.shuffle, state.order.seed)
    learner, history = train(Epochs(learner, source), plan)
    return {**without_labels(learner.state), "history": as_text(history.as_dict())}


@dataclass(frozen=True, slots=True)
class BatchState:
    """What every shard receives for a pass of a batch solver."""

    settings: LinearSettings
    n_features: int
    labels: Sequence[Any]
    w: Array | None  # None asks for the squares of the values
    smoothing: float = 0.0
    columns: Array | None = None  # the features that w is about; None: all


_objectives: dict[tuple[str, bool], Objective] = {}  # of the shards of this run that this process has seen


def add_gradient(shard: Shard, given: BatchState) -> Answer:
    """A shard's part of a pass: sums of losses and gradients, or of squares."""
    name = shard.path, given.columns is None
    objective = _objectives.get(name)
    if objective is None:
        run = os.path.dirname(shard.path)
        for other in [other for other in _objectives if os.path.dirname(other[0]) != run or other[0] == shard.path]:
            del _objectives[other]
        rows = shard.chunk if given.columns is None else only_columns(shard.chunk, given.n_features, given.columns)
        width = given.n_features if given.columns is None else len(given.columns)
        # Every shard must see the same columns, whichever its own rows use.
        data = BatchData(ArraySource(rows), LinearLearner(given.settings, width, given.labels), compact=False)
        objective = _objectives[name] = Objective(data, most_lanes=1)
    if given.w is None:
        objective.add_squares()
        weights = {"weight_sum": np.array([objective.weight_sum]), "targets": objective.add_targets()}
        if given.settings.task != "regress":
            weights["targets"] = np.zeros(1)
        return {"sums": objective.summed(), **weights}
    objective.smoothing = given.smoothing
    totals = objective.add_gradients(given.w)
    if totals is None:
        return {"sums": np.zeros(objective.shape), "totals": np.full(3, math.inf)}
    return {"sums": objective.summed(), "totals": totals}


def only_columns(rows: Chunk, n_features: int, columns: Array) -> Chunk:
    """The rows with features counted among these columns, which are all that they have."""
    places = np.zeros(n_features, np.int32)
    places[columns] = np.arange(len(columns))
    return replace(rows, indices=places[rows.indices], n_features=len(columns))


# -------------------------------------------------------------------------------------------------------- in the driver


@dataclass(slots=True)
class FarShards:
    """The shards of a DataFrame as those of a mixture."""

    shards: Shards
    order: Order
    needs_evidence: bool
    _evidence: list[Array] | None = None

    def prepare(self, learner: Any) -> None:
        """Prepares the learner with one job; step sizes are tried on the driver, on the first rows of shard 0."""
        answers = self._survey(learner, self.needs_evidence)
        learner.prepare([chunk_of(from_bytes(answers[0]["sample"].tobytes()), self.shards.labels)])

    def evidence(self, learner: Any) -> list[Array]:
        """The evidence that `prepare` gathered."""
        if self._evidence is None:
            self._survey(learner, True)
        assert self._evidence is not None
        return self._evidence

    def _survey(self, learner: Any, evidence: bool) -> list[Answer]:
        answers = self.shards.run(survey_shard, (learner.n_features, self.order, evidence))
        if evidence:
            nothing = np.zeros(learner.n_features)
            self._evidence = [restored("evidence", answer, nothing) for answer in answers]
        return answers

    def learn(self, common: MixedState, passes: Sequence[Pass], how: str, keep_voters: bool) -> ShardReplies:
        """Learns a round with one job; the shards' tables are rebuilt one after the other as they are read."""
        base = common.learner
        state = base.state
        given = LearnState(base.settings, packed(state), state["labels"], self.order, list(passes))
        answers = self.shards.run(learn, given)
        progress = Progress()
        for answer in answers:
            rows, weight, loss_sum, _ = answer[PROGRESS].tolist()
            progress.add(Progress(int(rows), weight, loss_sum, from_text(answer[EVENTS])))
        own = (own_learner(answer, base.settings, state) for answer in answers)
        voters = list(own) if keep_voters else []
        return ShardReplies(
            rows=[int(answer[PROGRESS][-1]) for answer in answers],
            deltas=(learner.delta(base, how, {})[0] for learner in voters or own),
            progress=progress,
            residuals=common.residuals,
            voters=voters,
            n_bytes=(len(answers) * size_of([given.packed]), size_of(answers)),
        )


def own_learner(answer: Mapping[str, Array], settings: LinearSettings, base: Mapping[str, Array]) -> LinearLearner:
    """A shard's learner, from what it sent and the state that it began with."""
    state = {name: restored(name, answer, array) for name, array in without_labels(base).items()}
    return LinearLearner.from_state(settings, {**state, "labels": base["labels"]})


def train_alone(shards: Shards, learner: LinearLearner, order: Order, plan: Plan) -> tuple[LinearLearner, History]:
    """Trains on a single shard in one job; returns the learner and its history."""
    state = learner.state
    given = LearnState(learner.settings, packed(state), state["labels"], order, [])
    answer = shards.run(learn_alone, (given, plan))[0]
    up = size_of([answer])
    history = History.from_dict(from_text(answer.pop("history")))
    for record in history:
        record |= {"shards": 1, "bytes_down": 0, "bytes_up": 0}
    history[0]["bytes_down"] = size_of([given.packed])
    history[-1]["bytes_up"] = up
    return LinearLearner.from_state(learner.settings, {**answer, "labels": state["labels"]}), history


def without_labels(state: Mapping[str, Array]) -> Answer:
    """The arrays of numbers of a state; the driver knows the labels."""
    return {name: array for name, array in state.items() if name != "labels"}


class FarData:
    """Stands in for the rows of a batch solver, which are on the executors."""

    in_memory = False

    def __init__(self, survey: Survey, learner: LinearLearner) -> None:
        self.learner, self.n_features = learner, learner.n_features
        self.n_rows, self.n_entries, self.least_weight = survey.n_rows, survey.n_entries, survey.least_weight

    def passes(self) -> Iterator[tuple[int, Chunk]]:
        """Raises: the rows are on the executors."""
        raise DataError("this solver needs the rows themselves; on Spark use solver='lbfgs' or 'gd'")


class FarObjective(Objective):
    """The objective over all shards: every pass is a job that adds up their parts in a fixed tree.

    It is one of the features that some row has: of a table of hashed ones often a small part, and the rest stays zero.
    """

    def __init__(self, shards: Shards, learner: LinearLearner) -> None:
        self.shards = shards
        self.targets = np.zeros(1)
        self.columns = np.zeros(0, np.int64)
        self.squares = np.zeros((1, 1, 1))
        super().__init__(FarData(shards.survey, learner), 1)  # type: ignore[arg-type]
        self.shape = self.squares.shape[1:]

    def weigh(self) -> float:
        """Sums the weights with one job, which also gathers the sums of squares and targets."""
        answer = self._ask(None)
        squares = answer["sums"]
        self.columns = np.flatnonzero(squares[:-1].any(axis=1))
        self.squares = squares[np.append(self.columns, len(squares) - 1)][None]
        self.targets = answer["targets"]
        return float(answer["weight_sum"][0])

    def _ask(self, w: Array | None) -> Answer:
        learner = self.learner
        columns = None if w is None or len(self.columns) == self.n_features else self.columns
        given = BatchState(learner.settings, learner.n_features, learner.book.labels, w, self.smoothing, columns)
        return self.shards.run(add_gradient, given, add=True)[0]

    def of_all_features(self, w: Array) -> Array:
        """The weights, with zeros for features that no row has."""
        out = np.zeros((self.n_features + 1, *w.shape[1:]))
        out[np.append(self.columns, self.n_features)] = w
        return out

    def add_gradients(self, w: Array, *, curvature: bool = False) -> Array | None:
        """Adds gradients with one job."""
        self.passes += 1
        answer = self._ask(w)
        self.sums = np.array(answer["sums"][None])
        totals = answer["totals"]
        return totals if np.isfinite(totals[0]) else None

    def add_squares(self) -> None:
        """Adds the squares that `weigh` has gathered."""
        self.sums = self.squares.copy()

    def add_targets(self) -> Array:
        """Adds the sums of targets that `weigh` has gathered."""
        return self.targets


# ---------------------------------------------------------------------------------------------------------- memory


def refuse_small_driver(settings: LinearSettings, n_features: int, n_outputs: int, n_shards: int, mix: str) -> None:
    """Raises before training if a round would not fit in the driver's memory."""
    tables = 1 + (settings.average != "no") + (settings.solver not in ("sgd", "asgd", "truncated"))
    table = n_features * n_outputs * np.dtype(settings.dtype).itemsize * tables
    shards = 1 if n_shards == 1 else n_shards
    needed = table * (4 + shards) + (16 * n_features * n_shards if mix == "evidence" and n_shards > 1 else 0)
    free = free_memory()
    if needed > free:
        fewer = max(10, int(math.log2(max(1, n_features) * free / needed)))
        raise DataError(
            f"the driver has {free / 2**30:.1f} GB of free memory, but {n_features:,} features in {n_shards} shards "
            f"take about {needed / 2**30:.1f} GB there: hash to n_bits={fewer}, give Mixing(weights='uniform') or "
            "fewer shards, or run the driver on a larger machine"
        )


def free_memory() -> float:
    """Bytes that this machine, or the container this process is in, can still give."""
    free = math.inf
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            lines = dict(line.split(":", 1) for line in file)
        free = int(lines["MemAvailable"].split()[0]) * 1024
        with open("/sys/fs/cgroup/memory.max", encoding="ascii") as file:
            limit = file.read().strip()
        with open("/sys/fs/cgroup/memory.current", encoding="ascii") as file:
            free = free if limit == "max" else min(free, int(limit) - int(file.read()))
    except (OSError, KeyError, ValueError):
        if math.isinf(free) and hasattr(os, "sysconf"):
            free = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return free


# -------------------------------------------------------------------------------------------------------------- fitting


def fit_linear(estimator: Any, given: Input, options: FitOptions) -> None:
    """Fits a linear classifier or regressor on shards."""
    method = choice("method", options.method or "ipm", METHODS)
    with shards_of(estimator, given, options) as (shards, columns):
        labels = class_labels(shards.survey, columns) if estimator.task == "classify" else None
        source = FarSource(shards.survey, labels)
        fit = _minimise if method == "batch" else _mix
        fit(estimator, shards, source, replace(options, method=method))
        estimator.history_.events[:0] = shards.events


def class_labels(survey: Survey, columns: Columns) -> Array:
    """The classes, in the type of their column."""
    labels = np.array(sorted(survey.labels))
    kind = columns.label_type
    if kind == "boolean":
        return labels.astype(bool)
    whole = kind in WHOLE or (columns.kind == "libsvm" and bool((labels % 1 == 0).all()))
    if labels.dtype.kind == "f" and (labels % 1 != 0).any():
        raise DataError(
            f"the label column {columns.label!r} holds fractions, such as {labels[labels % 1 != 0][0]:g}; a classifier "
            "needs classes, a regressor takes numbers"
        )
    return labels.astype(np.int64) if whole else labels


def with_params(estimator: Any, **params: Any) -> Any:
    """An estimator with the same parameters, except for these."""
    return type(estimator)(**{**estimator.get_params(deep=False), **params})


def settings_of(estimator: Any, survey: Survey) -> LinearSettings:
    """The settings for these rows, with class weights of "balanced" from the sums of their weights."""
    settings: LinearSettings = estimator.settings_for(survey.n_rows)
    if settings.class_weight != "balanced":
        return settings
    return replace(settings, class_weight=balanced_weights(survey.labels))


def _mix(estimator: Any, shards: Shards, source: FarSource, options: FitOptions) -> None:
    mixer = with_params(estimator, parallel=_mixing(estimator, shards.n, options))
    _refuse_mixing(mixer, options.method)
    settings, plan = settings_of(mixer, shards.survey), mixer.plan_epochs()
    mixing = mixer.mixing_plan(plan.epochs)
    learner = estimator.new_learner(settings, source)
    refuse_small_driver(settings, learner.n_features, learner.n_outputs, shards.n, mixing.mix)
    order = Order(choice("shuffle", estimator.shuffle, SHUFFLES), estimator.seed())
    voters: Sequence[LinearLearner] = ()
    if shards.n == 1:
        learner, history = train_alone(shards, learner, order, plan)
    else:
        far = FarShards(shards, order, mixing.needs_evidence(learner))
        executor = Rounds(learner, far, mixing, keep_voters=options.method == "vote")
        checkpoints = None
        if options.checkpoints is not None and not mixing.one_shot:
            checkpoints = mixtures(options.checkpoints, learner, shards.n)
        learner, history = train(executor, plan, monitor=estimator.monitor(), checkpoints=checkpoints)
        voters = executor.voters
    estimator.adopt(learner, history, source)
    estimator.voters_ = voters
    estimator.keep_names()


def _mixing(estimator: Any, n_shards: int, options: FitOptions) -> Mixing:
    """The estimator's own mixing, with what the call says."""
    given = estimator.parallel.get_params(deep=False) if isinstance(estimator.parallel, Mixing) else {}
    once, vote = options.method in ("mix", "vote"), options.method == "vote" and estimator.task == "classify"
    rounds = 1 if once else given.get("rounds") if options.rounds is None else options.rounds
    return Mixing(**{**given, "n_shards": n_shards, "rounds": rounds, "vote": vote and (given.get("vote") or True)})


def mixtures(rounds: RoundCheckpoints, learner: LinearLearner, n_shards: int) -> Checkpoints:
    """Saves the mixture of every round, in the directory of the rounds."""

    def restore(state: Mapping[str, Array]) -> MixedState:
        return MixedState.restored(LinearLearner.from_state(learner.settings, state), state, n_shards)

    return Checkpoints(rounds.directory, restore, rounds.fingerprint, resume=rounds.resume, every="0s")


def _refuse_mixing(estimator: Any, method: str | None) -> None:
    """Raises for options that one machine supports and a cluster does not."""
    solver, send = (estimator.flat_params()[name] for name in ("solver", "send"))
    if solver in BATCH_SOLVERS:
        raise ParameterError(f"solver={solver!r} works on all rows at once; give method='batch', or solver='sgd'")
    if estimator.early_stopping:
        raise ParameterError("early_stopping holds out rows on one machine only; on Spark choose epochs, or give tol")
    if estimator.memory_budget is not None:
        raise ParameterError("memory_budget surveys the rows on one machine; on Spark give n_bits to the hasher")
    if send in ("topk", "float16"):
        raise ParameterError(
            f"send={send!r} leaves a rest in the shard, which a lost executor would forget; give 'full' or 'delta'"
        )
    if method == "vote" and estimator.task != "classify":
        raise ParameterError("method='vote' is for classifiers; numbers are averaged by method='ipm' or 'mix'")


def _minimise(estimator: Any, shards: Shards, source: FarSource, options: FitOptions) -> None:
    params = estimator.flat_params()
    solver = "lbfgs" if params["solver"] in ("auto", "sgd") else params["solver"]
    if solver == "lbfgs" and params["loss"] in KINKED:
        solver = "gd"
    minimiser = with_params(estimator, solver=solver, parallel="serial")
    settings = settings_of(minimiser, shards.survey)
    if solver not in FAR_SOLVERS:
        raise ParameterError(f"solver={solver!r} cannot work on shards; method='batch' takes solver='lbfgs' or 'gd'")
    if estimator.early_stopping:
        raise ParameterError("early_stopping holds out rows on one machine only; on Spark choose max_iter, or give tol")
    shards.checkpoints = options.checkpoints
    learner = estimator.new_learner(settings, source)
    refuse_small_driver(settings, 6 * learner.n_features, learner.n_outputs, 1, "uniform")
    learner.targets.decide_loss()
    learner.rows_learned = shards.survey.n_rows
    objective, plan = FarObjective(shards, learner), minimiser.plan_epochs()
    tol, tol_on = DEFAULT_TOL if plan.tol is None else plan.tol, choice("tol_on", params["tol_on"], TOLERANCES)
    rounds = whole("max_iter", estimator.max_iter, 1) if options.rounds is None else whole("rounds", options.rounds, 1)
    how = SolverOptions(str(params["schedule"]), settings.eta0, tol, estimator.seed())
    executor = Iterations(BATCH_SOLVERS[solver](objective, how), objective, tol=tol, tol_on=tol_on)
    found, history = train(executor, replace(plan, epochs=rounds, tol=None), monitor=estimator.monitor())
    for record in history:
        size = record["passes"] * shards.n * found.w.nbytes
        record |= {"shards": shards.n, "bytes_down": size, "bytes_up": size}
    w = objective.of_all_features(found.w)
    learner.take_weights(w[:-1], w[-1])
    estimator.adopt(learner, history, source)
    estimator.voters_ = ()
