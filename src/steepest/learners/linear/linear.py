"""Linear models by stochastic gradients: score = w·x + b, minimising mean loss + alpha R(w).

The state is a handful of arrays: the weight table `v` (or some accumulators per feature for the adaptive solvers), the
clocks of lazy shrinkage, the running average, the bias, and one clock of scalars. A step passes rows to a kernel.
A table has a row for every feature and a column for every output, with room for more; or, with many features, a row
for every feature that was seen (see slots.py); or all outputs share one table of fixed size.

Invariant: the state after a sequence of rows depends on that sequence only, never on how it was cut into chunks. To
this end, rows wait until there are enough to resolve "auto" parameters, or to fill a mini-batch; `weights` and `scores`
always include them. Classes and features may appear at any time.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Self

import numpy as np

from steepest import kernels
from steepest.data.chunk import Array, Chunk, concatenate
from steepest.errors import DataError
from steepest.learners.base import Delta, Progress, Residual, State
from steepest.learners.linear.first_step import find_first_step
from steepest.learners.linear.linear_mixing import (
    Share,
    change_since,
    gains,
    gather_evidence,
    mean_gain,
    send_back,
    shares_by_rows,
    take_in,
)
from steepest.learners.linear.linear_settings import ACCUMULATORS, AVERAGES, CLOCK, FORGETFUL, WIDE, LinearSettings
from steepest.learners.linear.sizes import Sizes
from steepest.learners.linear.slots import Slots
from steepest.learners.losses import Loss
from steepest.learners.penalties import Penalty
from steepest.learners.resumable import all_finite, overflow
from steepest.learners.schedules import FIRST_ROWS, growth, rows_in_effect, schedule_code, scheduled_step
from steepest.learners.snapshot import FIRST_SNAPSHOT_ROWS, LastGoodState
from steepest.learners.state_check import StateCheck
from steepest.learners.targets import Outcome, TargetLearner, Targets, only_known, refuse_bad_row, refuse_bad_rows
from steepest.learners.waiting import WaitingRows, finished

NATIVE_SOLVERS = {"adagrad": 1, "ftrl": 2, "coin": 3}  # 0, sgd, is what asgd and truncated are made of
WEIGHTS_PER_SNAPSHOT_ROW = 16  # with many weights the first copy of a good state waits until the rows outweigh it
LARGEST_TABLE_BYTES = 1 << 33
# A table has rows for the features seen only from so many features on (a weight and its average: 2 MB, about what the
# nearest caches hold), and with three outputs or more from so many weights on.
SLOTTED_FEATURES = 1 << 18
SLOTTED_WEIGHTS = 1 << 22
# Room that such a table starts with. Memory is taken where it is first touched, so it costs nothing.
ROOM_BYTES = 1 << 28
LARGEST_SHOWN_BYTES = 1 << 31  # of an array with the weights of all features
FEW = 16  # a table is written when this many times the non-zeros scored without one reach its length
BLOCK = 1 << 16  # weights that are added up at once
LEAST_POT = 10.0  # of coin betting: limits the first bets, as in linear_kernels.cpp
BY_FEATURE = (*WIDE, "shrunk")  # with a row per feature, or per slot
# Settings of the problem, which another solver goes on with.
KEPT_ON_GOING_ON = ("loss", "loss_parameter", "multi_class", "class_weight", "alpha", "l1", "l2", "dtype")
N_AGES = 2  # the latest time in half-lives, and the weights of all rows then
BIASES = ("bias", "bias_square", "bias_average", "bias_start")
# Raw rows: recipe, columns, rows with each feature, rows in all, threads that hash.
ScoreTask = tuple[kernels.HashRecipe, list[Any], Array | None, float, int]


class LinearLearner(TargetLearner):
    """State and step of a linear model trained by stochastic gradients."""

    state_arrays = ()  # they are those of `arrays`
    state_numbers = ("n_features", "eta0", "bias_scale", "rows_learned", "good.rollbacks", "sizes_open")

    def __init__(self, settings: LinearSettings, n_features: int = 0, labels: Sequence[Any] = ()) -> None:
        s = settings
        self.settings: LinearSettings = s
        self.shared = s.table_bits > 0  # all outputs share one table, where no column can be negated later
        loss = "softmax" if s.multi_class == "softmax" else s.loss
        self.targets = Targets(s.task, loss, s.loss_parameter, s.class_weight, labels, column_per_class=self.shared)
        self.n_features = n_features
        self.eta0 = s.eta0
        self.bias_scale = 0.0 if s.fit_intercept else -1.0
        self.rows_learned = 0
        self.n_threads = 1  # that learn; the state does not depend on it, except under hogwild
        self.waiting = WaitingRows()
        self.good = _no_good_state(n_features)
        self.sizes: Sizes | None = None  # under the weights of dense rows
        self.sizes_open = s.standardise and not self.shared  # whether the first rows have yet to show them
        self.slots: Slots | None = None  # rows of the tables, where features do not have one each
        self.may_have_slots = True
        self.arrays = self._new_arrays(n_features)
        if self._wants_slots():
            self.slots = Slots(n_features)
        self._replicas: dict[str, Any] = {}
        self._shown: tuple[Array, Array, Slots | None] | None = None
        self._few_entries = 0  # non-zeros scored since the weights last changed, without a table of them
        self._learned: tuple[Array, Array] | None = None
        self._norms: tuple[float, float, int] | None = None  # of the table, until the next row

    @property
    def has_bare_rows(self) -> bool:
        """Whether some multi-label row had no label."""
        return self.targets.has_bare_rows

    @property
    def loss(self) -> Loss:
        """The loss of one output."""
        return self.targets.loss

    # ------------------------------------------------------------------------------------------------ the contract

    def restored(self) -> None:
        """Sets when the first good state is kept, which depends on the number of features."""
        self.good = _no_good_state(self.n_features, self.good.rollbacks)

    @property
    def state(self) -> dict[str, Array]:
        """All arrays that were learned or are needed to continue."""
        state = self.used_arrays()
        if self.slots is not None:
            state["owners"] = self.slots.owners.copy()
        if self.sizes is not None:
            state |= self.sizes.state()
        if not self.shared:  # room for more outputs is not a part of what was learned
            state |= {name: array[..., : self.n_outputs] for name, array in state.items() if name in WIDE}
        return state | super().state

    def compact_state(self) -> dict[str, Array]:
        """The state for a file: features in ascending order, without those that hold no information.

        These are the features whose numbers are all zero, and under a 1-norm those whose pending shrinkage makes them
        zero, whenever it is applied. Learning continues with the same bits.
        """
        state = self.state
        if self.slots is None:
            return state
        used = np.zeros(self.slots.n, bool)
        for name in WIDE:
            if name in state:
                used |= state[name].any(axis=tuple(range(1, state[name].ndim)))
        if self.settings.shrinks_lazily and self.waiting.rows is None:
            used &= self._shown_weights()[0].any(axis=1)
        kept = np.flatnonzero(used)
        kept = kept[np.argsort(state["owners"][kept])]
        return state | {name: state[name][kept] for name in (*BY_FEATURE, "owners") if name in state}

    @classmethod
    def check_state(cls, s: LinearSettings, state: State) -> None:
        """Raises ValueError unless a learner with these settings could have had this state."""
        # Files from before there were sizes have one number less.
        names = cls.state_numbers[: max(5, len(state["counters"]))]
        check = StateCheck.of(state, names, unknown=("eta0",) if s.eta0 is None else ())
        shared = s.table_bits > 0
        if s.truncate_below <= 0 or (s.truncate_below < math.inf and (s.solver != "truncated" or s.l2)):
            raise ValueError(f"truncate_below is {s.truncate_below}")
        if s.forgets and (
            not s.half_life >= (0 if s.in_time else 1) or s.solver not in FORGETFUL or s.n_replicas > 1 or s.hogwild
        ):
            raise ValueError(f"half_life is {s.half_life}")
        if s.in_time:
            check.arrays({"ages": f"f8 {N_AGES}"})
            if not (0 < s.half_life < math.inf and state["ages"][1] >= 0):
                raise ValueError("the ages of rows are not valid")
        k = check.targets(s.task, column_per_class=shared)
        shape = f"rows {ACCUMULATORS[s.solver]} {k}" if s.is_adaptive else f"rows {k}"
        if shared:
            entries = (1 << s.table_bits) + kernels.class_window - 1
            shape = f"2 {entries}" if s.is_adaptive else f"{entries}"
        tables = WIDE if s.average != "no" else WIDE[:1]
        forms = dict.fromkeys(BIASES, f"f8 {k}") | {"clock": f"f8 {len(CLOCK)}"}
        check.arrays(forms | dict.fromkeys(tables, f"{np.dtype(s.dtype).str[1:]} {shape}"))
        n_rows = len(state["v"])
        if s.shrinks_lazily:
            check.arrays({"shrunk": f"f8 {n_rows}"})
        if "owners" in state and (shared or len(check.owners()) != n_rows):
            raise ValueError("the rows of weights do not belong to features")
        if "owners" not in state and not shared and n_rows < check.n_features:
            raise ValueError(f"{n_rows} rows of weights for {check.n_features} features")
        check.sizes()
        check.waiting(check.n_features)

    @classmethod
    def from_state(cls, settings: LinearSettings, state: State) -> Self:
        """Builds a learner from its settings and state."""
        learner = cls(settings, 0, state["labels"].tolist())
        learner.restore(state)
        learner.arrays = learner._copied({name: state[name] for name in learner.arrays})
        learner.sizes = Sizes.from_state(state)
        if "owners" in state:
            learner.slots = Slots(learner.n_features, np.asarray(state["owners"]))
        return learner

    def clone(self) -> Self:
        """An independent copy."""
        copy = type(self).from_state(self.settings, self.state)
        copy.n_threads, copy.may_have_slots = self.n_threads, self.may_have_slots
        return copy

    def step(self, chunk: Chunk) -> Progress:
        """Learns the rows of a chunk, in order; rows that must wait for others are kept."""
        progress = Progress()
        if self.settings.in_time:
            refuse_missing_times(chunk)
        self._forget_shown()
        for rows in self.waiting.ready(chunk, self._rows_needed, self._announce_targets):
            if self.is_open:
                self.resolve(rows.span(0, FIRST_ROWS).packed())
            whole = rows.n_rows - rows.n_rows % self.unit
            self._learn(rows.span(0, whole), progress)
            if whole < rows.n_rows:
                self.waiting.put_back(rows.span(whole, rows.n_rows), self._announce_targets)
        return progress

    def finish(self) -> Progress:
        """Learns the waiting rows, as if no others were to come."""
        progress = Progress()
        if (rows := self.waiting.take()) is not None:
            self._forget_shown()
            self.resolve(rows)
            self._learn(rows, progress)
        return progress

    def forget_rows(self) -> None:
        """Frees the memory of the renumbered rows that were kept for the next epoch."""
        if self.slots is not None:
            self.slots.forget_block()

    def scores(self, chunk: Chunk, n_threads: int = 1) -> Array:
        """Raw scores, shape (rows, outputs); raises for a bad index or a value that is not finite."""
        given, n_rows = chunk, chunk.n_rows
        if (few := self._few_weights(chunk)) is not None:
            chunk, table = few
            scale, bias, slots = 1.0, self._shown_bias(), None
        else:
            table, scale, bias, slots = self._score_table()
        out = np.empty((n_rows, self.n_outputs))
        if not table.size:
            out[...] = bias
            return out
        known_features = self.n_features if self.shared else len(table)
        if slots is not None:
            slots.grow(chunk.n_features)
            chunk = slots.find(chunk, keep=self.n_outputs == 1)
            if chunk.n_rows < n_rows:
                self.refuse_bad_row(given, chunk.n_rows)
        else:  # a feature never seen in training has no weight
            given = chunk = only_known(chunk, known_features)
        weights, bits = (table, scale, np.ascontiguousarray(bias)), self.settings.table_bits
        done, finite = kernels.linear_scores(chunk.as_rows(), *weights, out, n_threads, bits, known_features)
        for row in (done, finite):
            if row < n_rows:
                self.refuse_bad_row(given, row)
        return out

    def scores_of_raw(self, task: ScoreTask, n_threads: int = 1) -> Array | None:
        """Scores of raw rows, hashed and scored in one call; None where `scores` must be used instead."""
        if self._may_write_few():
            return None
        weights, scale, bias, slots = self._score_table()
        table, bits = None if slots is None else slots.table, self.settings.table_bits
        if slots is not None and table is None:
            return None
        return kernels.score_rows(*task, weights, scale, bias, table, n_threads, bits, self.n_features)

    def losses(self, coded: Chunk, scores: Array | None = None) -> tuple[Array, Array]:
        """(loss, weight) of each row visited, with targets coded; computes the scores unless they are given."""
        z = self.scores(coded) if scores is None else scores
        if not self.targets.is_softmax or coded.y is None:
            return super().losses(coded, z)
        top, y = z.max(axis=1), coded.visited(coded.y).astype(np.int64)  # added up as the kernels do
        log_sum = top + np.log(np.exp(z - top[:, None]).sum(axis=1))
        weight = np.ones(len(z)) if coded.weight is None else coded.visited(coded.weight)
        return log_sum - z[np.arange(len(z)), y], weight

    @property
    def step_size(self) -> float:
        """The step size of the next row."""
        settings, eta0 = self.settings, self.eta0 or 0.0
        if settings.is_adaptive:
            return eta0
        return scheduled_step(settings.schedule, self._in_effect, eta0, settings.alpha, settings.power)

    @property
    def first_step(self) -> float | None:
        """The first step size, given or calibrated; None for solver="coin", which has none."""
        return None if self.settings.solver == "coin" else self.eta0

    def lower_step(self, factor: float) -> None:
        """Divides the step size; called when the loss stalls under schedule="adaptive"."""
        if self.eta0 is not None:
            self.eta0 /= factor

    def keep_good_state(self) -> None:
        """Copies the state, to return to if learning diverges; rolls back if it has overflowed already."""
        arrays = self.used_arrays()
        # Norms that were just computed show whether all weights are finite, unless weights are quotients.
        norms = self._norms if self.waiting.rows is None and not self.settings.is_adaptive else None
        if not ((norms is not None and math.isfinite(norms[0])) or all_finite(arrays["v"])):
            self.roll_back(Progress())
        elif not self.good.is_recent(self.rows_learned, self.n_outputs):
            self.good.keep(arrays, self.rows_learned, self.n_outputs, packed=WIDE, n_threads=self.n_threads)

    def refuse_overflow(self) -> None:
        """Raises if a weight is not finite: some solvers compute weights as quotients of the finite state."""
        super().refuse_overflow()
        if not math.isfinite(self._table_norms()[0]):
            raise overflow("the weights are", self.settings.dtype)

    def roll_back(self, progress: Progress) -> None:
        """Returns to the last good state with half the step size, because scores overflowed."""
        self.eta0 = self.good.halve_step(self.eta0 or 0.0, self.rows_learned, progress)
        if self.good.exists and (self.good.n_outputs == self.n_outputs or self.shared):
            self.arrays = self._copied(self.good.restored())
            self._grow_features(self.n_features)
            self._make_room()
            self._grow_biases()
        else:
            start = self.arrays["bias_start"]
            self.arrays = self._new_arrays(len(self.arrays["v"]))
            for name in ("bias", "bias_start", "bias_average"):
                self.arrays[name][...] = start
        self._forget_shown()

    # --------------------------------------------------------------------------------------- weights from elsewhere

    def take_weights(self, weights: Array, bias: Array, slots: Slots | None = None) -> None:
        """Replaces the weights by those of a batch solver; with `slots`, rows of the table are slots."""
        self.slots, self.may_have_slots = slots, False
        self.arrays = self._new_arrays(len(weights))
        with np.errstate(over="ignore"):  # refused when the learner is adopted
            self.arrays["v"][...] = weights.reshape(self.arrays["v"].shape)
        self.arrays["bias"][...] = bias
        self._forget_shown()

    def renumber(self, features: Array, n_features: int) -> None:
        """Turns a model of the columns in use into one of all columns: feature j is now number `features[j]`."""
        own, table, bias = self.used_weights()
        self.n_features = n_features
        self.take_weights(table, bias, Slots(n_features, features if own is None else features[own]))

    def continued(self, settings: LinearSettings) -> Self:
        """A copy that continues from these weights with other settings of the same solver."""
        own = finished(self).clone()
        own.apply_penalty()
        own.settings = settings
        own.targets.class_weight = settings.class_weight
        own.arrays = own._copied(own.arrays)
        own._forget_shown()
        return own

    def going_on(self, settings: LinearSettings) -> Self:
        """A stochastic learner that continues from these weights, with the step size reached after their rows."""
        s, own = self.settings, type(self)(settings, self.n_features, self.book.labels)
        own.settings = replace(
            settings,
            schedule=schedule_code("invsqrt", s.alpha),
            standardise=False,
            **{name: getattr(s, name) for name in KEPT_ON_GOING_ON},
        )
        own.targets, own.sizes, own.sizes_open = self.targets, self.sizes, False
        own.rows_learned, own.n_threads = self.rows_learned, self.n_threads
        own.take_weights(self.arrays["v"], self.arrays["bias"], self.slots)
        own.arrays["bias_start"][...] = own.arrays["bias_average"][...] = own.arrays["bias"]
        own.arrays["clock"][CLOCK.index("t")] = self.rows_learned
        return own

    def weigh_classes(self, class_weight: Any) -> None:
        """Sets other class weights for the rows to come."""
        self.settings = replace(self.settings, class_weight=class_weight)
        self.targets.class_weight = class_weight

    # --------------------------------------------------------------------------------- what must be known before

    def announce(self, rows: Chunk) -> None:
        """Makes room for the features, outputs and classes of rows before they are learned."""
        self._grow_features(rows.n_features)
        self._announce_targets(rows)

    def _announce_targets(self, rows: Chunk) -> None:
        self.targets.announce(rows)
        self._match_outputs()

    def code(self, rows: Chunk) -> Chunk:
        """Codes targets for kernels; the result ends before a unit with a new class, unless it is the first unit."""
        coded = self.targets.code_rows(rows, self.unit)
        self._match_outputs()
        return coded

    def code_sample(self, rows: Chunk) -> Chunk:
        """Codes rows on which step sizes are tried; they do not count as learned."""
        self.announce(rows)
        counts = self.targets.counts.copy()
        coded = self.code(rows)
        self.targets.counts = counts
        refuse_bad_rows(coded, self.n_features, check_values=False)
        return coded

    @property
    def is_open(self) -> bool:
        """Whether something set to "auto" must still be resolved from the first rows."""
        return self.eta0 is None or self.targets.loss_is_open or self.sizes_open

    def resolve(self, rows: Chunk) -> None:
        """Resolves the loss, the feature scales and the first step size from the first rows."""
        if self.targets.loss_is_open:
            self._announce_targets(rows)
            self.targets.decide_loss()
        self.measure_sizes([rows])
        if self.eta0 is None:
            find_first_step(self, self.sized(rows))

    def measure_sizes(self, chunks: Iterable[Chunk]) -> None:
        """Measures the scales of the features on these rows, unless they are known."""
        if self.sizes_open:
            self.sizes = Sizes.of(chunks, centred=self.settings.fit_intercept)
            self.sizes_open = False

    def sized(self, rows: Chunk) -> Chunk:
        """The rows divided by the scales of their features."""
        return rows if self.sizes is None else self.sizes.applied(rows)

    def trial(self, settings: LinearSettings, n_features: int) -> LinearLearner:
        """An untrained learner with this one's classes and bias, to try other settings."""
        trial = LinearLearner(settings, 0)
        trial.targets, trial.n_features = self.targets, n_features
        trial.bias_scale, trial.may_have_slots, trial.n_threads = self.bias_scale, False, self.n_threads
        trial.arrays = trial._new_arrays(n_features)
        trial.arrays["bias"][...] = self.arrays["bias"]
        trial.arrays["bias_average"][...] = self.arrays["bias"]
        return trial

    def learn_once(self, coded: Chunk) -> float:
        """Mean progressive loss of one pass over coded rows; infinity if scores overflow."""
        n_threads = 1 if self.settings.hogwild else self.n_threads  # a trial is to give the same result every time
        _, status, loss_sum, weight = self._run_kernel(coded, self.arrays, kernels.LinearParallel(n_threads))
        return loss_sum / max(weight, 1e-300) if status == 0 else math.inf

    # ---------------------------------------------------------------------------------------------------- the step

    @property
    def unit(self) -> int:
        """The number of rows that are learned together: a mini-batch, or a round of all replicas."""
        s = self.settings
        return s.batch_size if s.n_replicas == 1 else s.n_replicas * self._rows_per_replica

    @property
    def _rows_per_replica(self) -> int:
        batch = self.settings.batch_size
        return math.ceil(self.settings.sync_every / batch) * batch

    def _rows_needed(self) -> int:
        return FIRST_ROWS if self.is_open else self.unit

    def _learn(self, rows: Chunk, progress: Progress) -> None:
        """Learns rows now; tables grow where a new class or feature appears."""
        rows = self.sized(rows)
        self._grow_features(rows.n_features)
        start = 0
        while start < rows.n_rows:
            unit, edge = self.unit, self.good.edge
            if self.rows_learned >= edge:
                edge = self.good.next_rows(self.rows_learned)
            until_snapshot = max(1, (edge - self.rows_learned) // unit) * unit
            coded = self.code(rows.span(start, min(rows.n_rows, start + until_snapshot)))
            self._learn_coded(coded, progress)
            start += coded.n_rows
            if self.rows_learned >= edge:
                self.keep_good_state()

    def _learn_coded(self, coded: Chunk, progress: Progress) -> None:
        if self.slots is None and self._wants_slots():
            self._open_slots()
        start = 0
        while self.settings.n_replicas > 1 and coded.n_rows - start >= self.unit:
            done, status = self._count(self._learn_by_replicas(coded.span(start, coded.n_rows)), progress)
            start += done
            if status != 0:  # a round with a bad row or an overflow is learned serially, which handles both
                self._learn_by(self._learn_alone, coded.span(start, start + self.unit), progress)
                start += self.unit
        self._learn_by(self._learn_alone, coded.span(start, coded.n_rows) if start else coded, progress)

    def _learn_alone(self, coded: Chunk) -> Outcome:
        if self.slots is not None:
            coded = self.slots.take_in(coded)
            self._make_room()
        parallel = kernels.LinearParallel(self.n_threads, 0 if self.settings.hogwild else 1)
        return self._run_kernel(coded, self.used_arrays(), parallel)

    def _learn_by_replicas(self, rows: Chunk) -> Outcome:
        """Learns whole rounds by replicas; their tables are reused until other code changes the weights."""
        arrays, replicas, n = self.arrays, self._replicas, self.settings.n_replicas
        for name, table in zip(WIDE, kernel_tables(arrays), strict=True):
            if table is None:
                replicas.pop(name, None)
            elif name not in replicas or replicas[name].shape[1:] != table.shape:
                self._refuse_huge_table(table.size * n)
                replicas[name] = np.empty((n, *table.shape), table.dtype)
                replicas["synced"] = None
        synced = replicas.get("synced")
        parallel = kernels.LinearParallel(
            self.n_threads,
            n,
            rows_each=self._rows_per_replica,
            # A weight that more replicas than sqrt(n) have moved takes what that many of them would have added: those
            # that are in every row would overshoot, and rare ones need the whole sum.
            gain=math.inf if self.settings.is_adaptive else math.sqrt(n),
            v=replicas["v"],
            average=replicas.get("average"),
            synced=synced is not None and synced[0] is arrays["v"] and bool((synced[1] == arrays["clock"]).all()),
        )
        result = self._run_kernel(rows, arrays, parallel)
        replicas["synced"] = (arrays["v"], arrays["clock"].copy()) if result[1] == 0 else None
        return result

    def _run_kernel(self, rows: Chunk, arrays: Mapping[str, Array], parallel: kernels.LinearParallel) -> Outcome:
        time = rows.time / self.settings.half_life if self.settings.in_time and rows.time is not None else None
        coded = kernels.Rows(rows.indptr, rows.indices, rows.values, rows.y, rows.weight, rows.order, time)
        return kernels.linear_learn(coded, self._native_state(arrays), self._choices(), parallel)

    def _native_state(self, arrays: Mapping[str, Array]) -> kernels.LinearState:
        v, average = kernel_tables(arrays)
        return kernels.LinearState(
            v,
            arrays["bias"],
            arrays["bias_square"],
            arrays["bias_average"],
            arrays["clock"],
            arrays.get("shrunk"),
            average,
            self.settings.table_bits,
            self.n_features,
            arrays.get("ages"),
        )

    def _choices(self) -> kernels.LinearChoices:
        s = self.settings
        return kernels.LinearChoices(
            solver=NATIVE_SOLVERS.get(s.solver, 0),
            loss=self.loss.code,
            loss_parameter=s.loss_parameter,
            target_kind=self.targets.kind,
            schedule=s.schedule,
            eta0=self.eta0 or 0.0,
            power=s.power,
            alpha=s.alpha,
            l1=s.l1,
            l2=s.l2,
            truncate_below=s.truncate_below,
            truncate_every=s.truncate_every,
            average=AVERAGES[s.average],
            batch_size=s.batch_size,
            bias_scale=self.bias_scale,
            half_life=1.0 if s.in_time else s.half_life,  # times are given in half-lives
        )

    def apply_penalty(self) -> None:
        """Applies all pending shrinkage and multiplies the scale into the weights."""
        if not self.settings.is_adaptive:
            kernels.linear_apply_penalty(self._native_state(self.used_arrays()), self._choices())

    def refuse_bad_row(self, rows: Chunk, visit: int) -> None:
        """Raises if the row has a bad index or value; returns if the weights are the cause."""
        whole = self.shared or self.slots is not None
        refuse_bad_row(rows, visit, self.n_features if whole else len(self.arrays["v"]))

    # -------------------------------------------------------------------------------------------- learning in shards

    @property
    def knows_targets(self) -> bool:
        """Whether classes or outputs are known before any row is read."""
        return len(self.book) > 0 or self.settings.task == "regress"

    def prepare(self, sample: Iterable[Chunk], all_rows: Iterable[Chunk] = ()) -> None:
        """Fixes classes, width, loss and first step size before shards start."""
        self.keep_whole_tables()
        for chunk in all_rows:
            self.announce(chunk)
        if self.is_open:
            first: list[Chunk] = []
            n_rows = 0
            for chunk in sample:
                first.append(chunk.span(0, min(chunk.n_rows, FIRST_ROWS - n_rows)))
                n_rows += first[-1].n_rows
                if n_rows >= FIRST_ROWS:
                    break
            if first:
                self.resolve(concatenate(first))
        self.apply_penalty()

    def fork(self) -> Self:
        """A copy of this common state that learns one shard."""
        own = self.clone()
        own.n_threads, own.may_have_slots = 1, False
        return own

    def send_back(self, sent: State | None, how: str) -> tuple[Self, State, int]:
        """The state that shards start from, as sent to them; see `linear_mixing.send_back`."""
        tables, n_bytes = send_back(self.arrays, sent, self.settings.average, how)
        if how == "full":
            return self, {}, n_bytes
        there = {**tables, "clock": self.arrays["clock"].copy()}
        if how == "delta":
            return self, there, n_bytes
        base = self.clone()
        base.arrays |= base._copied(tables)
        return base, there, n_bytes

    def uses_evidence(self, *, one_shot: bool) -> bool:
        """Whether `shares` needs to know how much each shard's rows say about each feature."""
        return not self.shared and (one_shot or not self.settings.is_adaptive)

    def evidence(self, chunks: Iterable[Chunk]) -> Array:
        """How much a shard's rows say about each feature."""
        return gather_evidence(map(self.sized, chunks), self.n_features)

    def shares(
        self, rows: Sequence[int], evidence: Sequence[Array] | None = None, epochs: float | None = None
    ) -> tuple[list[Share], float]:
        """(weight of each shard in a mixture, pace); `epochs` since the last mixture, None if there is only one."""
        if evidence is None or epochs is None:
            return shares_by_rows(rows, evidence), 1.0
        n = len(rows)
        pull = sum(evidence, np.zeros_like(evidence[0])) * (epochs / n)
        curvature = pull * (self.loss.curvature or 1.0) + self.settings.l2 * (sum(rows) / n)
        gain = gains(self.step_size * curvature, n)
        return [share * gain for share in shares_by_rows(rows)], mean_gain(gain, pull)

    def delta(self, base: Self, how: str, residual: Residual) -> tuple[Delta, Residual]:
        """(changes since the common state `base`, residual that is left to send the next time)."""
        self.apply_penalty()
        delta, left = change_since(base.arrays, self.arrays, self.settings.average, how, residual)
        delta.rows = self.rows_learned - base.rows_learned
        return delta, left

    def merge(self, deltas: Iterable[Delta], shares: Sequence[Share], pace: float = 1.0) -> None:
        """Adds the weighted changes of all shards to this common state, in their order."""
        self.rows_learned += take_in(self.arrays, deltas, shares, pace, self.settings.average)
        self._forget_shown()
        self.apply_penalty()

    # ----------------------------------------------------------------------------------------------------- weights

    def weights(self) -> tuple[Array, Array]:
        """(weights, bias) as used for prediction: averaged if so chosen, with the waiting rows learned.

        The weights have the shape (features, outputs), or are the table that all share; see `output_weights`.
        """
        table, bias, slots = self._shown_weights()
        if slots is not None:
            self.refuse_huge_array()
            table = slots.spread(table, self.n_features)
        return table, bias

    def used_weights(self) -> tuple[Array | None, Array, Array]:
        """(features in use in ascending order, their weights, bias); None for the features if all have a row."""
        table, bias, slots = self._shown_weights()
        if slots is None:
            return None, table, bias
        order = np.argsort(slots.owners)
        return slots.owners[order], table[order], bias

    def refuse_huge_array(self) -> None:
        """Raises if an array with the weights of all features would be too large to show."""
        size = self.n_features * self.n_outputs * np.dtype(self.settings.dtype).itemsize
        if self.slots is not None and size > LARGEST_SHOWN_BYTES:
            raise DataError(
                f"an array with the weights of all {self.n_features:,} features would take {size / 2**30:.1f} GB, and "
                f"{self.slots.n:,} features are in use; call sparsify(), and coef_ is a sparse matrix"
            )

    def _forget_shown(self) -> None:
        self._shown = self._learned = self._norms = None
        self._few_entries = 0

    def _shown_weights(self) -> tuple[Array, Array, Slots | None]:
        """(weights, bias, slots) as used for prediction; with slots, the table has one row per slot."""
        if self._shown is None:
            shown = finished(self)
            self._learned = shown._plain_weights()
            plain = self._learned if shown.sizes is None else shown.sizes.folded(*self._learned)
            self._shown = (*plain, shown.slots)
        return self._shown

    def _may_write_few(self) -> bool:
        """Whether weights for prediction must be computed, and may be for the features of a few rows only."""
        s = self.settings
        if self._shown is not None or self.shared or self.waiting.rows is not None or self.sizes is not None:
            return False
        if s.solver == "coin":
            return False
        return (s.is_adaptive or self._is_averaged()) and self._few_entries * FEW < len(self.arrays["v"])

    def _few_weights(self, chunk: Chunk) -> tuple[Chunk, Array] | None:
        """(rows with features renumbered, weights of these features), if that is faster than a whole table.

        A model that learns and predicts in turn would else write out its whole table after every row.
        """
        if not self._may_write_few() or self.slots is not None or chunk.n_features > len(self.arrays["v"]):
            return None
        rows = chunk.packed()
        self._few_entries += len(rows.indices)
        features, places = np.unique(rows.indices, return_inverse=True)
        if not len(features) or features[0] < 0 or features[-1] >= len(self.arrays["v"]):
            return None
        table = self._weights_of(features)
        return replace(rows, indices=places.astype(np.int32), n_features=len(features)), table

    def _weights_of(self, rows: Any) -> Array:
        """The weights of some rows of the tables as used for prediction: bets, quotients of sums, or means."""
        s, k, used = self.settings, self.n_outputs, self.used_arrays()
        if s.solver == "coin":
            return bets(used["v"][rows, :, :k].astype(np.float64), 1.0 if self.eta0 is None else self.eta0)
        if s.is_adaptive:
            z, square = used["v"][:, rows] if self.shared else np.moveaxis(used["v"][rows, :, :k], 1, 0)
            return self._adaptive_weights(z, square)
        v, average = kernel_tables(used)
        part, sums = np.ascontiguousarray(v[rows]), None if average is None else np.ascontiguousarray(average[rows])
        mean = np.empty(len(part) if self.shared else (len(part), part.shape[-1]), part.dtype)
        kernels.mean_weights(part, sums, self.clock("average_scale"), self.clock("average_weight"), mean)
        return mean if self.shared else np.ascontiguousarray(mean[:, :k])

    def _shown_bias(self) -> Array:
        return self.arrays["bias_average"] if self._is_averaged() else self.arrays["bias"]

    def _adaptive_weights(self, z: Array, square: Array) -> Array:
        """w = -soft(z, t l1) / ((1 + sqrt(sum of squares)) / eta0 + t l2)."""
        s, eta0 = self.settings, 1.0 if self.eta0 is None else self.eta0
        t, soft, squares = self._in_effect, z.astype(np.float64), square.astype(np.float64)
        if s.forgets:
            soft, squares = soft / self._growth, squares / self._growth
        soft = np.sign(soft) * np.maximum(np.abs(soft) - t * s.l1, 0)
        return (-soft / ((1 + np.sqrt(squares)) / eta0 + t * s.l2)).astype(z.dtype)

    @property
    def _growth(self) -> float:
        """The factor by which sums under a half-life are stored too large."""
        if self.settings.in_time:
            return growth(float(self.arrays["ages"][0]), 1.0)
        return growth(self.clock("t"), self.settings.half_life)

    @property
    def _in_effect(self) -> float:
        """The weights of all rows learned, by their ages."""
        if self.settings.in_time:
            return float(self.arrays["ages"][1])
        return rows_in_effect(self.clock("t"), self.settings.half_life)

    def _learned_weights(self) -> Array:
        """The weights in the scaled units of the features, to which the penalty applies."""
        self._shown_weights()
        assert self._learned is not None
        return self._learned[0]

    def _score_table(self) -> tuple[Array, float, Array, Slots | None]:
        """(weights, their scale, bias, slots) for the scoring kernel."""
        s = self.settings
        if self.waiting.rows is None and self.sizes is None and s.l1 == 0 and s.average == "no" and not s.is_adaptive:
            return self.used_arrays()["v"], self.clock("scale"), self.arrays["bias"], self.slots
        weights, bias, slots = self._shown_weights()
        return weights, 1.0, bias, slots

    def output_weights(self, output: int, features: Array | None = None) -> Array:
        """The weights of these features (or of all) for one output."""
        table, _, slots = self._shown_weights()
        if slots is not None and features is not None:
            at = slots.of(features)
            return np.where(at >= 0, table[at, output], table.dtype.type(0)) if slots.n else np.zeros(len(at))
        if slots is not None:
            self.refuse_huge_array()
            return slots.spread(table[:, output], self.n_features)
        if not self.shared:
            return table[:, output] if features is None else table[features, output]
        places = np.arange(self.n_features) if features is None else np.asarray(features, np.int64)
        return kernels.class_weights(table, np.ascontiguousarray(places), output, self.settings.table_bits)

    def weight_matrix(self) -> Array:
        """The weights as a matrix with one row per output."""
        table, _, slots = self._shown_weights()
        if not self.shared and slots is None:
            return np.ascontiguousarray(table.T)
        self.refuse_huge_array()
        self._refuse_huge_table(self.n_features * self.n_outputs)
        matrix = np.empty((self.n_outputs, self.n_features), self.settings.dtype)
        for output in range(self.n_outputs):
            matrix[output] = self.output_weights(output)
        return matrix

    def total_weights(self) -> Array:
        """The sum of |weight| over all outputs, for each feature."""
        total = np.zeros(self.n_features)
        for output in range(self.n_outputs):
            total += np.abs(self.output_weights(output))
        return total

    def _plain_weights(self) -> tuple[Array, Array]:
        s, v, bias = self.settings, self._live(self.arrays["v"]), self.arrays["bias"]
        if s.is_adaptive or self._is_averaged():
            w = np.empty(v.shape[-1:] if self.shared else (len(v), v.shape[-1]), v.dtype)
            for block in self._blocks(len(w)):
                w[block] = self._weights_of(block)
            return w, self._shown_bias()
        if s.l1 == 0:  # nothing is owed: one multiplication is all, and large tables are copied once
            return v * v.dtype.type(self.clock("scale")), bias
        copy = self.clone()
        copy.apply_penalty()
        return copy._live(copy.arrays["v"]), bias

    def _is_averaged(self) -> bool:
        s = self.settings
        return s.average != "no" and not s.is_adaptive and self.clock("average_weight") > 0

    def _blocks(self, n: int) -> Iterator[slice]:
        """Row ranges of a table that fit in the cache, so that no large float64 copy is needed."""
        rows = self._rows_per_block()
        return (slice(first, min(n, first + rows)) for first in range(0, n, rows))

    def _rows_per_block(self) -> int:
        return BLOCK if self.shared else max(1, BLOCK // self.n_outputs)

    def heaviness(self, columns: Array) -> Array:
        """The absolute weight of some features, the largest over outputs, up to a common factor."""
        heavy = np.zeros(len(columns))
        if self.shared:
            known = np.flatnonzero(columns < self.n_features)
            for output in range(self.n_outputs if len(known) else 0):
                heavy[known] = np.maximum(heavy[known], np.abs(self.output_weights(output, columns[known])))
            return heavy
        if self.slots is None:
            rows = np.where(columns < len(self.arrays["v"]), columns, -1)
        else:
            rows = np.where(columns < self.n_features, self.slots.of(np.minimum(columns, self.n_features - 1)), -1)
        known = np.flatnonzero(rows >= 0)
        v = np.abs(self.arrays["v"][rows[known]])
        if self.settings.is_adaptive:
            v = v[:, 0] / (1 + np.sqrt(v[:, 1] / self._growth))
        heavy[known] = v.max(axis=1, initial=0)
        return heavy

    def count_nonzero(self) -> int:
        """The number of weights that are not zero."""
        return self._table_norms()[2]

    def penalty(self) -> float:
        """alpha R(w) at the current weights."""
        s = self.settings
        if s.norm:
            return s.alpha * Penalty(s.norm).value(self._learned_weights())
        if s.p:
            return s.alpha / s.p * float((np.abs(self._learned_weights().astype(np.float64)) ** s.p).sum())
        absolute, square, _ = self._table_norms()
        return s.l1 * absolute + 0.5 * s.l2 * square

    def _table_norms(self) -> tuple[float, float, int]:
        """(sum |w|, sum w², number of non-zeros), computed without writing out w = P v where possible."""
        if self._norms is None:
            scale, averaged = 1.0, self._is_averaged()
            lazy = self.settings.l1 > 0 and not averaged
            if self.waiting.rows is not None or self.settings.is_adaptive or lazy:
                absolute, square, nonzeros = kernels.table_norms(np.ascontiguousarray(self._learned_weights()))
            elif averaged:
                absolute, square, nonzeros = self._average_norms()
            else:
                scale = self.clock("scale")
                absolute, square, nonzeros = kernels.table_norms(self.used_arrays()["v"])
            self._norms = scale * absolute, scale**2 * square, nonzeros
        return self._norms

    def _average_norms(self) -> tuple[float, float, int]:
        """The norms of the averaged weights, computed without writing them out."""
        v, average = kernel_tables(self.used_arrays())
        if self.shared:
            v, average = v.reshape(-1, 1), None if average is None else average.reshape(-1, 1)
        n_rows, k = len(self._live(self.arrays["v"])), 1 if self.shared else self.n_outputs
        s, c = self.clock("average_scale"), self.clock("average_weight")
        average = None if average is None else average[:n_rows]
        return kernels.mean_norms(v[:n_rows], average, k, s, c, self._rows_per_block(), self.n_threads)

    # ------------------------------------------------------------------------------------------------------ tables

    def clock(self, name: str) -> float:
        """One of the scalars that change with every row, by name."""
        return float(self.arrays["clock"][CLOCK.index(name)])

    def used_arrays(self) -> dict[str, Array]:
        """The arrays, where tables are cut to the rows in use."""
        if self.slots is None:
            return dict(self.arrays)
        return {name: array[: self.slots.n] if name in BY_FEATURE else array for name, array in self.arrays.items()}

    def _live(self, table: Array) -> Array:
        """The part of a table in use, without its spare rows and columns."""
        if self.shared:
            return table
        return table[: self.n_features if self.slots is None else self.slots.n, ..., : self.n_outputs]

    def _new_arrays(self, n_features: int, width: int | None = None) -> dict[str, Array]:
        s, k = self.settings, self.n_outputs
        width = k if width is None else width
        shape: tuple[int, ...] = (n_features, width)
        if s.is_adaptive:
            shape = (n_features, ACCUMULATORS[s.solver], width)
        if self._wants_slots():
            used = 0 if self.slots is None else self.slots.n
            room = ROOM_BYTES // (math.prod(shape[1:]) * np.dtype(s.dtype).itemsize)
            shape = (min(n_features, max(used, room)), *shape[1:])
        if self.shared:
            entries = (1 << s.table_bits) + kernels.class_window - 1
            shape = (2, entries) if s.is_adaptive else (entries,)
        self._refuse_huge_table(math.prod(shape))
        arrays = {
            **self._new_tables(shape),
            **{name: np.zeros(k) for name in BIASES},
            "clock": np.zeros(len(CLOCK)),
        }
        arrays["clock"][CLOCK.index("scale")] = 1.0
        return arrays | ({"ages": np.zeros(N_AGES)} if s.in_time else {})

    def _new_tables(self, shape: tuple[int, ...]) -> dict[str, Array]:
        """Empty tables with one row per feature; a weight and its average share a cache line."""
        s = self.settings
        tables = {"shrunk": np.zeros(shape[0])} if s.shrinks_lazily else {}
        if s.average == "no":
            return tables | {"v": np.zeros(shape, s.dtype)}
        if self.shared or shape[1] > 1:
            return tables | {name: np.zeros(shape, s.dtype) for name in WIDE}
        pair = np.zeros((shape[0], 2, shape[1]), s.dtype)
        return tables | {"v": pair[:, 0], "average": pair[:, 1]}

    def _copied(self, arrays: Mapping[str, Array]) -> dict[str, Array]:
        """Copies of arrays, with tables in this learner's memory layout."""
        copies = {name: np.array(array) for name, array in arrays.items() if name not in BY_FEATURE}
        for name, table in self._new_tables(arrays["v"].shape).items():
            table[...] = arrays[name]
            copies[name] = table
        return copies

    def _move_tables(self, n_rows: int, old_rows: Any, new_rows: Any) -> None:
        """Replaces the tables by larger ones, moving old rows to new places."""
        for name, table in self._new_tables((n_rows, *self.arrays["v"].shape[1:])).items():
            table[new_rows] = self.arrays[name][old_rows]
            self.arrays[name] = table

    def _refuse_huge_table(self, n_entries: int) -> None:
        size = n_entries * np.dtype(self.settings.dtype).itemsize
        if size > LARGEST_TABLE_BYTES:
            numbers = len(self.book) > 2 and all(isinstance(label, float) for label in self.book.labels)
            regress = "; if the labels are numbers to predict, train a regressor (--task regress)" if numbers else ""
            raise DataError(
                f"the weights would take {size / 2**30:.1f} GB for {self.n_features:,} features and "
                f"{self.n_outputs} outputs; check the label and the largest feature index, or use fewer bits{regress}"
            )

    def _grow_features(self, n_features: int) -> None:
        """Makes room for more features; tables double in size, so that growing streams copy them rarely."""
        known = self.n_features
        self.n_features = max(known, n_features)
        if self.slots is not None:
            self.slots.grow(self.n_features)
            return
        room = len(self.arrays["v"])
        if self.shared or self.n_features <= room or self._wants_slots():
            return
        size = self.n_features if known == 0 else max(self.n_features, 2 * room)
        self._refuse_huge_table(size * self.n_outputs)
        self._move_tables(size, slice(None), slice(room))

    def _match_outputs(self) -> None:
        """Makes room for the outputs that targets need."""
        if self.n_outputs == len(self.arrays["bias"]):
            return
        if self.several_targets:  # nothing was learned before that shows
            self.arrays = self._new_arrays(len(self.arrays["v"]))
            if self._wants_slots():
                self._open_slots()
        elif not self.shared:
            self._grow_outputs()
        self._grow_biases()

    def _grow_outputs(self) -> None:
        """Makes room for more outputs, with some spare, so that not every new class copies the table."""
        n, before = self.n_outputs, len(self.arrays["bias"])
        fresh = self.clock("steps") == 0
        if self.slots is None and self._wants_slots():
            self._open_slots()
        old = self.arrays
        if n > old["v"].shape[-1]:
            self.arrays = self._new_arrays(len(old["v"]), n if fresh else 8 * math.ceil((n + n // 8) / 8))
            for name in self.arrays.keys() - {*BIASES}:
                used = slice(None if self.slots is None or name not in BY_FEATURE else self.slots.n)
                if name not in WIDE:
                    self.arrays[name][used] = old[name][used]
                elif not fresh:
                    self.arrays[name][used, ..., :before] = old[name][used, ..., :before]
            self.arrays |= {name: old[name] for name in BIASES}
        self._grow_biases()
        if before > 1:
            return
        for name in (*BIASES, *(() if fresh else WIDE)):
            if name in self.arrays:  # one column was "second class against first": negated, it is the first one's
                first = self.arrays[name][..., 0].copy()
                self.arrays[name][..., 0], self.arrays[name][..., 1] = -first, first
        squares = [self.arrays["bias_square"]]
        if self.settings.is_adaptive and not fresh:
            squares.append(self.arrays["v"][:, 1:])
        for square in squares:
            np.abs(square, out=square)

    def _grow_biases(self) -> None:
        """Adds zero biases for new outputs."""
        for name in BIASES:
            missing = self.n_outputs - len(self.arrays[name])
            self.arrays[name] = np.pad(self.arrays[name], (0, missing))

    # ------------------------------------------------------------------------------------------------------- slots

    def _wants_slots(self) -> bool:
        """Whether most of the table is likely to stay empty, so that only features in use should get a row."""
        s = self.settings
        alone = self.may_have_slots and not self.shared and s.n_replicas == 1 and not s.hogwild
        many = self.n_outputs > 2 and self.n_features * self.n_outputs >= SLOTTED_WEIGHTS
        return alone and (many or self.n_features >= SLOTTED_FEATURES)

    def _open_slots(self) -> None:
        """Switches to tables with rows for the features in use only; learned rows are moved together."""
        wide = [self.arrays[name] for name in WIDE if name in self.arrays]
        seen = np.zeros(len(wide[0]), bool)
        if self.clock("steps") > 0:
            for table in wide:
                seen |= table.reshape(len(table), -1).any(axis=1)
        owners = np.flatnonzero(seen).astype(np.int32)
        self.slots = Slots(self.n_features, owners)
        self.good.forget()
        if len(owners):
            self._move_tables(len(wide[0]), owners, slice(len(owners)))

    def keep_whole_tables(self) -> None:
        """Switches to tables with a row for every feature, which can be added up across learners."""
        self.may_have_slots = False
        if self.slots is not None:
            self._refuse_huge_table(self.n_features * math.prod(self.arrays["v"].shape[1:]))
            self._move_tables(self.n_features, slice(self.slots.n), self.slots.owners)
            self.slots, self._shown = None, None
            self.good.forget()
        self._grow_features(self.n_features)

    def _make_room(self) -> None:
        """Makes sure that every slot has a row."""
        if self.slots is None or self.slots.n <= len(self.arrays["v"]):
            return
        v = self.arrays["v"]
        size = min(self.n_features, max(self.slots.n, 2 * len(v), ROOM_BYTES // max(1, v[:1].nbytes)))
        self._refuse_huge_table(size * math.prod(v.shape[1:]))
        self._move_tables(size, slice(None), slice(len(v)))


def _no_good_state(n_features: int, rollbacks: int = 0) -> LastGoodState:
    """An empty rollback state; when the first copy is made depends on the table size, never on chunks."""
    first_rows = FIRST_SNAPSHOT_ROWS
    while first_rows * WEIGHTS_PER_SNAPSHOT_ROW < n_features:
        first_rows *= 2
    return LastGoodState(first_rows, rollbacks=rollbacks)


def kernel_tables(arrays: Mapping[str, Array]) -> tuple[Array, Array | None]:
    """(weights, averages) as the kernels take them; tables that share memory are passed as one."""
    v, average = arrays["v"], arrays.get("average")
    if average is None or v.base is None or v.base is not average.base:
        return v, average
    return v.base[: len(v)], None


def refuse_missing_times(rows: Chunk) -> None:
    """Raises unless every row has a time."""
    if rows.time is None:
        raise DataError(
            "these rows have no times, but the half-life is in time; give rows with the column that st.Forgetting "
            "names as time="
        )
    missing = np.flatnonzero(~np.isfinite(rows.visited(rows.time)))
    if len(missing):
        raise DataError(
            f"row {int(rows.row_ids[missing[0]]) + 1} has no time that can be read, but the half-life is in time; "
            "correct the row, or leave it out"
        )


def bets(coins: Array, eta0: float) -> Array:
    """The weights of solver="coin", from the four numbers of each weight along axis 1."""
    total, size, largest, reward = np.moveaxis(coins, 1, 0)
    pot = largest * np.maximum(size + largest, LEAST_POT * largest)
    return np.asarray(np.where(largest > 0, total * (largest * eta0 + reward) / np.where(pot > 0, pot, 1.0), 0.0))
