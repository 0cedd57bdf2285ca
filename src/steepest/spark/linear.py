"""Linear models on shards: parameter mixing by the engine's own steps, and batch solvers by sums over the shards.

The driver holds the common learner; executors run `learn_shard` of engine/mixing.py on their rows and send back their
weights, of large tables only those that moved. Messages and mixtures are then made here as they are for shards in this
process, so the bits are the same.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from steepest.data.chunk import Array, Chunk, DataError
from steepest.data.parameters import ParameterError, at_least, choice, whole
from steepest.data.source import SHUFFLES, ArraySource, Order, Source
from steepest.engine.batch import TOLERANCES, BatchPlan, minimise
from steepest.engine.checkpoint import Checkpoints
from steepest.engine.history import History
from steepest.engine.loop import train
from steepest.engine.mixing import (
    SHARD_SEED,
    Common,
    Message,
    Pass,
    Told,
    learn_shard,
    mix_rounds,
    needs_evidence,
    part_of_epoch,
    prepare,
    send,
)
from steepest.engine.shares import gather_evidence
from steepest.engine.stopping import Plan
from steepest.learners.base import Progress
from steepest.learners.batch import KINKED, SOLVERS, SolverOptions
from steepest.learners.calibration import CALIBRATION_ROWS
from steepest.learners.linear import LinearLearner
from steepest.learners.linear_settings import LinearSettings
from steepest.learners.linear_state import WIDE
from steepest.learners.objective import BatchData, Objective
from steepest.linear_model import DEFAULT_TOL
from steepest.spark.blocks import Shard
from steepest.spark.journal import Journal
from steepest.spark.rows import WHOLE, Columns, from_bytes, to_bytes
from steepest.spark.shards import Shards, Survey

PROGRESS = "progress"  # rows, weight and loss of a shard's round
EVENTS = "events"


def as_text(value: Any) -> Array:
    """Plain values as an array of bytes."""
    return np.frombuffer(json.dumps(value).encode(), np.uint8)


def from_text(array: Array) -> Any:
    """What `as_text` wrote."""
    return json.loads(array.tobytes())


# --------------------------------------------------------------------------------------------------- in the executors


def own_order(shard: Shard, order: Order) -> Source:
    """The shard's rows in the order of its own, as `shard_sources` gives it."""
    source = shard.source
    source.order = Order(order.shuffle, order.seed + shard.number * SHARD_SEED)
    return source


@dataclass(frozen=True, slots=True)
class LearnState:
    """What every shard gets for a round."""

    settings: LinearSettings
    state: Mapping[str, Array]
    order: Order
    passes: Sequence[Pass]


def learn(shard: Shard, given: LearnState) -> dict[str, Array]:
    """One round: the shard's state afterwards, of wide tables what moved."""
    base = LinearLearner.from_state(given.settings, given.state)
    source = own_order(shard, given.order)
    own, progress = learn_shard(base, (part_of_epoch(source, *which) for which in given.passes))
    answer = {PROGRESS: np.array([progress.rows, progress.weight, progress.loss_sum]), EVENTS: as_text(progress.events)}
    for name, array in own.state.items():
        if name in WIDE:
            answer |= moved(name, array, base.arrays[name])
        elif name != "labels":
            answer[name] = array
    return answer


def moved(name: str, array: Array, base: Array) -> dict[str, Array]:
    """A table as it is, or the entries that differ from the base and where they are, if that is shorter."""
    bits = np.dtype(f"u{array.itemsize}")
    flat = np.ascontiguousarray(array).ravel()
    places = np.flatnonzero(flat.view(bits) != np.ascontiguousarray(base).ravel().view(bits))
    if len(places) * (8 + array.itemsize) >= array.nbytes:
        return {name: array}
    return {f"{name} at": places, f"{name} is": flat[places]}


def restored(name: str, answer: Mapping[str, Array], base: Array) -> Array:
    """The table that `moved` described."""
    if name in answer:
        return answer[name]
    table = np.array(base)
    table.ravel()[answer[f"{name} at"]] = answer[f"{name} is"]
    return table


def first_look(shard: Shard, given: tuple[int, Order, bool]) -> dict[str, Array]:
    """How much of each feature is in the rows, if asked for; and from shard 0 the first rows that it will learn."""
    n_features, order, evidence = given
    answer: dict[str, Array] = {"here": np.zeros(1)}
    if evidence:
        answer |= moved("evidence", gather_evidence([shard.chunk], n_features), np.zeros(n_features))
    if shard.number == 0:
        first = next(iter(own_order(shard, order).epoch(0)))
        sample = first.span(0, min(first.n_rows, CALIBRATION_ROWS)).packed()
        if sample.y is not None and sample.y.dtype.kind == "U":
            words, codes = np.unique(sample.y, return_inverse=True)
            answer["words"] = as_text(words.tolist())
            sample = sample.with_targets(codes.astype(np.float64), sample.weight)
        answer["sample"] = np.frombuffer(to_bytes(sample), np.uint8)
    return answer


def learn_alone(shard: Shard, given: tuple[LearnState, Plan]) -> dict[str, Array]:
    """All epochs over a single shard: exactly what one machine does."""
    state, plan = given
    learner = LinearLearner.from_state(state.settings, state.state)
    source = shard.source.shuffle(state.order.shuffle, state.order.seed)
    learner, history = train(learner, source, plan)
    answer = {name: array for name, array in learner.state.items() if name != "labels"}
    return {**answer, "history": as_text(history.as_dict())}


@dataclass(frozen=True, slots=True)
class BatchState:
    """What every shard gets for a pass of a batch solver."""

    settings: LinearSettings
    n_features: int
    labels: Sequence[Any]
    w: Array | None  # None asks for the squares of the values
    smoothing: float = 0.0
    columns: Array | None = None  # the features that w is about; None: all


_objectives: dict[tuple[str, bool], Objective] = {}  # of the shards of this run that this process has seen


def add_gradient(shard: Shard, given: BatchState) -> dict[str, Array]:
    """A shard's part of a pass: sums of losses and gradients, or of squares."""
    name = shard.path, given.columns is None
    objective = _objectives.get(name)
    if objective is None:
        run = os.path.dirname(shard.path)
        for other in [other for other in _objectives if os.path.dirname(other[0]) != run or other[0] == shard.path]:
            del _objectives[other]
        rows = shard.chunk if given.columns is None else only_columns(shard.chunk, given.n_features, given.columns)
        width = given.n_features if given.columns is None else len(given.columns)
        data = BatchData(ArraySource(rows), LinearLearner(given.settings, width, given.labels))
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
class SparkTeam:
    """The shards of a DataFrame as a team for `mix_rounds`."""

    shards: Shards
    order: Order
    wants_evidence: bool
    _evidence: list[Array] | None = None

    def prepare(self, learner: LinearLearner) -> None:
        """One job: step sizes are tried here, on the first rows of shard 0."""
        answers = self.shards.run(first_look, (learner.n_features, self.order, self.wants_evidence))
        sample = from_bytes(answers[0]["sample"].tobytes())
        if "words" in answers[0]:
            assert sample.y is not None
            words = np.array(from_text(answers[0]["words"]))
            sample = sample.with_targets(words[sample.y.astype(np.int64)], sample.weight)
        if self.wants_evidence:
            self._take_evidence(answers, learner.n_features)
        prepare(learner, [sample], None)

    def evidence(self, n_features: int) -> list[Array]:
        """Found by `prepare`, unless a resumed run needs none."""
        if self._evidence is None:
            self._take_evidence(self.shards.run(first_look, (n_features, self.order, True)), n_features)
        assert self._evidence is not None
        return self._evidence

    def _take_evidence(self, answers: Sequence[Mapping[str, Array]], n_features: int) -> None:
        nothing = np.zeros(n_features)
        self._evidence = [restored("evidence", answer, nothing) for answer in answers]

    def learn(self, common: Common, passes: Sequence[Pass], how: str, keep_voters: bool) -> Told:
        """One job; tables are put together again one shard after the other, when their turn comes."""
        base = common.learner
        given = LearnState(base.settings, base.state, self.order, list(passes))
        answers = self.shards.run(learn, given)
        down = len(answers) * sum(array.nbytes for name, array in given.state.items() if name != "labels")
        up = sum(array.nbytes for answer in answers for array in answer.values())

        def messages() -> Iterator[Message]:
            for answer in answers:
                yield send(base, own(answer, base), progress_of(answer), how, {})[0]

        rows = [int(answer["counters"][4]) - base.rows_learned for answer in answers]
        voters = [own(answer, base) for answer in answers] if keep_voters else []
        return Told(
            rows=rows,
            messages=messages(),
            residuals=common.residuals,
            voters=voters,
            n_bytes=(down, up),
        )


def own(answer: Mapping[str, Array], base: LinearLearner) -> LinearLearner:
    """A shard's learner, from what it sent."""
    state = {name: array for name, array in answer.items() if " " not in name and name not in (PROGRESS, EVENTS)}
    for name in WIDE:
        if name in base.arrays:
            state[name] = restored(name, answer, base.arrays[name])
    return LinearLearner.from_state(base.settings, {**state, "labels": np.array(base.book.labels)})


def progress_of(answer: Mapping[str, Array]) -> Progress:
    """What a shard's round did."""
    rows, weight, loss_sum = answer[PROGRESS].tolist()
    return Progress(int(rows), weight, loss_sum, from_text(answer[EVENTS]))


def train_alone(shards: Shards, learner: LinearLearner, order: Order, plan: Plan) -> tuple[LinearLearner, History]:
    """One shard, one job: the learner and its history."""
    given = LearnState(learner.settings, learner.state, order, [])
    answer = shards.run(learn_alone, (given, plan))[0]
    history = History.from_dict(from_text(answer["history"]))
    up = sum(array.nbytes for array in answer.values())
    for number, record in enumerate(history):
        last = number == len(history) - 1
        record |= {"shards": 1, "bytes_down": 0 if number else _size(given.state), "bytes_up": up if last else 0}
    state = {name: array for name, array in answer.items() if name != "history"}
    labels = np.array(learner.book.labels)
    return LinearLearner.from_state(learner.settings, {**state, "labels": labels}), history


def _size(state: Mapping[str, Array]) -> int:
    return sum(array.nbytes for array in state.values() if array.dtype.kind != "O")


class FarData:
    """What the survey tells a batch solver of rows that are elsewhere."""

    in_memory = False

    def __init__(self, survey: Survey, learner: LinearLearner) -> None:
        self.learner = learner
        self.n_rows, self.n_entries, self.least_weight = survey.n_rows, survey.n_entries, survey.least_weight

    def passes(self) -> Iterator[tuple[int, Chunk]]:
        """Rows that are elsewhere cannot be visited here."""
        raise DataError("this solver needs the rows themselves; on Spark use solver='lbfgs' or 'gd'")


class FarObjective(Objective):
    """The objective over all shards: every pass is a job that adds up their parts in a fixed tree.

    It is one of the features that some row has: of a table of hashed ones often a small part, and the rest stays zero.
    """

    def __init__(self, shards: Shards, learner: LinearLearner) -> None:
        self.shards = shards
        self.targets = np.zeros(1)
        self.columns = np.zeros(0, np.int64)
        super().__init__(FarData(shards.survey, learner), 1)  # type: ignore[arg-type]
        self.shape = self._squares.shape[1:]
        self.n_lanes, self._sums = 1, self._squares

    def _weigh(self) -> float:
        answer = self._ask(None)
        squares = answer["sums"]
        self.columns = np.flatnonzero(squares[:-1].any(axis=1))
        self._squares = squares[np.append(self.columns, len(squares) - 1)][None]
        self.targets = answer["targets"]
        total = float(answer["weight_sum"][0])
        if not total > 0:
            raise DataError("the weights of all rows are zero; nothing can be learned from them")
        return total

    def _ask(self, w: Array | None) -> dict[str, Array]:
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
        """One job."""
        self.passes += 1
        answer = self._ask(w)
        self._sums = np.array(answer["sums"][None])
        totals = answer["totals"]
        return totals if np.isfinite(totals[0]) else None

    def add_squares(self) -> None:
        """Known since the rows were weighed."""
        self._sums = self._squares.copy()

    def add_targets(self) -> Array:
        """Known, too."""
        return self.targets


# ---------------------------------------------------------------------------------------------------------- memory


def refuse_small_driver(settings: LinearSettings, n_features: int, n_outputs: int, n_shards: int, mix: str) -> None:
    """Better now than in the middle of a round."""
    tables = 1 + (settings.average != "no") + (settings.rule not in ("sgd", "asgd", "truncated"))
    table = n_features * n_outputs * np.dtype(settings.dtype).itemsize * tables
    shards = 1 if n_shards == 1 else n_shards
    needed = table * (4 + shards) + (16 * n_features * n_shards if mix == "evidence" and n_shards > 1 else 0)
    free = free_memory()
    if needed > free:
        fewer = max(10, int(math.log2(max(1, n_features) * free / needed)))
        raise DataError(
            f"the driver has {free / 2**30:.1f} GB of free memory, but {n_features:,} features in {n_shards} shards "
            f"take about {needed / 2**30:.1f} GB there: hash to n_bits={fewer}, use mix='uniform' or fewer shards, or "
            "run the driver on a larger machine"
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


def balanced(settings: LinearSettings, labels: Mapping[Any, float]) -> LinearSettings:
    """Class weights of "balanced", from the sums of the rows' weights."""
    if settings.class_weight != "balanced":
        return settings
    total = sum(labels.values())
    weights = {label: total / (len(labels) * max(weight, 1e-300)) for label, weight in labels.items()}
    return replace(settings, class_weight=weights)


# -------------------------------------------------------------------------------------------------------------- fitting

METHODS = ("ipm", "mix", "vote", "batch")
FAR_SOLVERS = ("lbfgs", "gd")


def fit_linear(
    estimator: Any, shards: Shards, method: str, rounds: int | None, columns: Columns, journal: Journal | None = None
) -> None:
    """Fits a linear classifier or regressor on shards."""
    survey = shards.survey
    labels = _labels(survey, columns) if estimator._task == "classify" else None
    source = FarSource(survey, labels)
    if method == "batch":
        shards.journal = journal
        _fit_batch(estimator, shards, source, rounds)
    else:
        _fit_by_mixing(estimator, shards, source, method, rounds, journal)
    estimator.history_.events[:0] = shards.events


def _labels(survey: Survey, columns: Columns) -> Array:
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


class FarSource(Source):
    """What an estimator asks of the rows, which are elsewhere."""

    def __init__(self, survey: Survey, labels: Array | None) -> None:
        self.n_rows, self.n_features, self.labels = survey.n_rows, survey.n_features, labels

    def read(self, order: Order, epoch: int) -> Iterator[Chunk]:
        """Not here."""
        raise DataError("the rows are on the executors")

    def _copy(self) -> FarSource:
        return self


def _fit_by_mixing(
    estimator: Any, shards: Shards, source: FarSource, method: str, rounds: int | None, journal: Journal | None
) -> None:
    params = {**estimator.get_params(deep=False), "parallel": "mixing", "n_shards": shards.n}
    if method in ("mix", "vote"):
        params["rounds"] = 1
    elif rounds is not None:
        params["rounds"] = rounds
    params["vote"] = (estimator.vote or True) if method == "vote" and estimator._task == "classify" else False
    wish = type(estimator)(**params)
    _refuse_wishes(wish, method)
    settings = balanced(wish._settings(source.n_rows), shards.survey.labels)
    epochs = whole("epochs", wish.epochs, 1)
    mixing = wish._mix_plan(epochs)
    learner = estimator._new_learner(settings, source)
    refuse_small_driver(settings, learner.n_features, learner.n_outputs, shards.n, mixing.mix)
    order = Order(choice("shuffle", wish.shuffle, SHUFFLES), estimator._seed())
    plan = Plan(
        epochs=epochs,
        tol=None if wish.tol is None else at_least("tol", wish.tol, 0.0),
        patience=whole("patience", wish.patience, 1),
        lower_step_on_stall=wish.schedule == "adaptive",
    )
    voters: list[LinearLearner] = []
    if shards.n == 1:
        learner, history = train_alone(shards, learner, order, plan)
    else:
        team = SparkTeam(shards, order, needs_evidence(learner, mixing))
        monitor = estimator._monitor()
        watching: dict[str, Any] = {
            "monitor": monitor,
            "checkpoints": None if mixing.one_shot else mixtures(journal, learner, shards.n),
        }
        learner, history, voters = mix_rounds(learner, team, plan, mixing, keep_voters=method == "vote", **watching)
    estimator._check_learned(learner)
    estimator._choice = None
    estimator._adopt(learner, history, source)
    estimator._voters = voters
    estimator._keep_names()


def mixtures(journal: Journal | None, learner: LinearLearner, n_shards: int) -> Checkpoints | None:
    """Keeps the mixture of every round, in the folder of the journal."""
    if journal is None:
        return None

    def restore(state: Mapping[str, Array]) -> Common:
        return Common.restored(LinearLearner.from_state(learner.settings, state), state, n_shards)

    return Checkpoints(journal.folder, restore, journal.fingerprint, resume=journal.resume, seconds=0.0)


def _refuse_wishes(wish: Any, method: str) -> None:
    """What one machine can do and a cluster cannot."""
    if wish.solver in SOLVERS:
        raise ParameterError(f"solver={wish.solver!r} works on all rows at once; give method='batch', or solver='sgd'")
    if wish.early_stopping:
        raise ParameterError("early_stopping holds out rows on one machine only; on Spark choose epochs, or give tol")
    if wish.memory_budget is not None:
        raise ParameterError("memory_budget looks at the rows on one machine; on Spark give n_bits to the hasher")
    if wish.send in ("topk", "float16"):
        raise ParameterError(
            f"send={wish.send!r} leaves a rest in the shard, which a lost executor would forget; give 'full' or 'delta'"
        )
    if method == "vote" and wish._task != "classify":
        raise ParameterError("method='vote' is for classifiers; numbers are averaged by method='ipm' or 'mix'")


def _fit_batch(estimator: Any, shards: Shards, source: FarSource, rounds: int | None) -> None:
    solver = "lbfgs" if estimator.solver in ("auto", "sgd") else estimator.solver
    if solver == "lbfgs" and estimator.loss in KINKED:
        solver = "gd"
    wish = type(estimator)(**{**estimator.get_params(deep=False), "solver": solver, "parallel": "serial"})
    settings = balanced(wish._settings(source.n_rows), shards.survey.labels)
    if solver not in FAR_SOLVERS:
        raise ParameterError(f"solver={solver!r} cannot work on shards; method='batch' takes solver='lbfgs' or 'gd'")
    if wish.early_stopping:
        raise ParameterError("early_stopping holds out rows on one machine only; on Spark choose max_iter, or give tol")
    learner = estimator._new_learner(settings, source)
    refuse_small_driver(settings, 6 * learner.n_features, learner.n_outputs, 1, "uniform")
    learner.decide_loss()
    learner.rows_learned = shards.survey.n_rows
    estimator._check_learned(learner)
    objective = FarObjective(shards, learner)
    tol = DEFAULT_TOL if wish.tol is None else at_least("tol", wish.tol, 0.0)
    plan = BatchPlan(
        max_iter=whole("max_iter", wish.max_iter, 1) if rounds is None else whole("rounds", rounds, 1),
        tol=tol,
        tol_on=choice("tol_on", wish.tol_on, TOLERANCES),
        patience=whole("patience", wish.patience, 1),
    )
    method = SOLVERS[solver](objective, SolverOptions(str(wish.schedule), settings.eta0, tol, estimator._seed()))
    w, history = minimise(method, objective, plan, monitor=estimator._monitor())
    size = shards.n * w.nbytes
    for record in history:
        record |= {"shards": shards.n, "bytes_down": record["passes"] * size, "bytes_up": record["passes"] * size}
    w = objective.of_all_features(w)
    learner.take_weights(w[:-1], w[-1])
    estimator._choice = None
    estimator._adopt(learner, history, source)
    estimator._voters = []
