"""Linear models by stochastic gradients: score = w·x + b, minimising mean loss + alpha R(w).

The state is a handful of arrays: the weight table `v` (or two accumulators a feature for the adaptive rules), the
clocks of lazy shrinkage, the running average, the bias, and one clock of scalars. A step hands rows to a kernel.

Invariant: the state after a sequence of rows depends on that sequence only, never on how it was cut into chunks. For
that, rows wait (`pending`) until there are enough to calibrate the step size or to fill a mini-batch; what is shown of
the model (`weights`, `scores`) always includes them. Classes and features may appear at any time.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from steepest import kernels
from steepest.data.chunk import Array, Chunk, DataError, concatenate
from steepest.learners.base import Progress, State
from steepest.learners.calibration import CALIBRATION_ROWS, calibrate
from steepest.learners.labels import LabelBook
from steepest.learners.linear_settings import ACCUMULATORS, ADAPTIVE, AVERAGES, LinearSettings
from steepest.learners.losses import LOSSES, Loss
from steepest.learners.schedules import step_size_by_code
from steepest.learners.slots import Slots

KERNELS = {
    "sgd": kernels.linear_sgd,
    "asgd": kernels.linear_sgd,
    "truncated": kernels.linear_sgd,
    "adagrad": kernels.linear_adagrad,
    "ftrl": kernels.linear_ftrl,
    "coin": kernels.linear_coin,
}
TARGETS, ONE_VS_REST, SOFTMAX = 0, 1, 2
# The last good state is kept after 2^16 rows, 2^17, ...: copies cost little, and at most half the work can be lost.
# With many weights the first copy waits until the rows outweigh it.
FIRST_SNAPSHOT_ROWS = 1 << 16
WEIGHTS_A_SNAPSHOT_ROW = 16
LARGEST_TABLE_BYTES = 1 << 33
# Weights from which on a table of three outputs or more has rows for the features seen only: 16 MB of float32.
SLOTTED_WEIGHTS = 1 << 22
# Room that such a table starts with. Memory is taken where it is first touched, so it costs nothing.
ROOM_BYTES = 1 << 30
MOST_ROLLBACKS = 60
BLOCK = 1 << 16  # weights that are added up at once
LEAST_POT = 10.0  # of coin betting: how small the first bets are, as in linear_kernels.cpp
WIDE = ("v", "average")  # a column an output
BY_FEATURE = (*WIDE, "shrunk")  # a row a feature, or a slot
BIASES = ("bias", "bias_square", "bias_average", "bias_start")
CLOCK = ("t", "steps", "scale", "shrink", "shrink_debt", "average_scale", "average_weight")


@dataclass(slots=True)
class _Snapshot:
    arrays: dict[str, Array]
    n_outputs: int


class LinearLearner:
    """State and step of a linear model."""

    def __init__(self, settings: LinearSettings, n_features: int = 0, labels: Sequence[Any] = ()) -> None:
        self.settings = settings
        self.loss: Loss = LOSSES[settings.loss]
        self.book = LabelBook(labels)
        self.n_features = n_features
        self.shared = settings.table_bits > 0  # all outputs share one table of fixed size
        self.n_outputs = self._count_outputs()
        self.several_targets = False  # y has a column per output: multi-label or multi-output
        self.eta0 = settings.eta0
        self.bias_scale = -1.0 if not settings.fit_intercept else 0.0
        self.rows_learned = 0
        self.rollbacks = 0
        self.class_counts = np.zeros(max(2, len(self.book)))
        self.pending: Chunk | None = None
        self.slots: Slots | None = None  # rows of the tables, where features do not have one each
        self.may_have_slots = True
        self.arrays = self._new_arrays(n_features)
        self.n_threads = 1  # that learn; the state does not depend on it, except under hogwild
        self._replicas: dict[str, Any] = {}
        self._good: _Snapshot | None = None
        self._first_snapshot = _first_snapshot(n_features)
        self._shown: tuple[Array, Array, Slots | None] | None = None
        self._norms: tuple[float, float, int] | None = None  # of the table, until the next row
        self._coded: tuple[Any, Any, Array, Array | None] | None = None

    def _count_outputs(self) -> int:
        """Two classes share one column, unless all share a table: there a column cannot be negated later."""
        n = len(self.book)
        return max(2, n) if self.shared else (1 if n == 2 else max(1, n))

    # ------------------------------------------------------------------------------------------------ the contract

    def step(self, chunk: Chunk) -> Progress:
        """Learns the rows of a chunk, in order; rows that must wait are kept and learned later."""
        progress = Progress()
        self._shown = self._norms = None
        if self.pending is None and self._ready(chunk.n_rows):
            self._learn_ready(chunk, progress)
            return progress
        while chunk.n_rows:
            waiting = 0 if self.pending is None else self.pending.n_rows
            taken = min(chunk.n_rows, self._rows_needed() - waiting)
            part = chunk.span(0, taken)
            self._announce_labels(part)
            self.pending = part.packed() if self.pending is None else concatenate([self.pending, part])
            chunk = chunk.span(taken, chunk.n_rows)
            if self.pending.n_rows >= self._rows_needed():
                rows, self.pending = self.pending, None
                self._learn_ready(rows, progress)
                if self.pending is None and self._ready(chunk.n_rows):
                    self._learn_ready(chunk, progress)
                    return progress
        return progress

    def scores(self, chunk: Chunk, n_threads: int = 1) -> Array:
        """Raw scores, shape (rows, outputs); a row with a bad index or a value that is no number is refused."""
        if self._shows_itself():
            table, scale, slots = self._used_arrays()["v"], self._clock("scale"), self.slots
            return self._table_scores(chunk, table, scale, self.arrays["bias"], slots, n_threads)
        weights, bias, slots = self._shown_weights()
        return self._table_scores(chunk, weights, 1.0, bias, slots, n_threads)

    def take_weights(self, weights: Array, bias: Array) -> None:
        """Weights found elsewhere, by a batch solver, become this learner's."""
        self.slots, self.may_have_slots = None, False
        self.arrays = self._new_arrays(self.n_features)
        self.arrays["v"][...] = weights.reshape(self.arrays["v"].shape)
        self.arrays["bias"][...] = bias
        self._shown = self._norms = None

    def continued(self, settings: LinearSettings) -> LinearLearner:
        """A learner with these weights that goes on under other settings of the same rule."""
        own = self._finished().clone()
        own._settle()
        own.settings, own._shown = settings, None
        return own

    def merge(self, states: Sequence[State]) -> LinearLearner:
        """The mean of several learners' weights, each counted by the rows it has seen."""
        parts = [LinearLearner.from_state(self.settings, state)._finished() for state in states]
        for part in parts:
            part.keep_whole_tables()
        seen = np.array([part._clock("t") for part in parts])
        shares = seen / seen.sum() if seen.sum() > 0 else np.full(len(parts), 1 / len(parts))
        merged = parts[0].clone()
        means = [part.weights() for part in parts]
        for part in parts:
            part._settle()
        for name, array in merged.arrays.items():
            array[...] = sum(share * part.arrays[name] for share, part in zip(shares, parts, strict=True))
        if "average" in merged.arrays:  # the mean of the averages, written as (S v - u) / C
            s, c = merged._clock("average_scale"), merged._clock("average_weight")
            mean = sum(share * weights for share, (weights, _) in zip(shares, means, strict=True))
            merged._live(merged.arrays["average"])[...] = s * merged._live(merged.arrays["v"]) - c * mean
        merged.arrays["clock"][CLOCK.index("t")] = seen.sum()
        merged.rows_learned = sum(part.rows_learned for part in parts)
        merged.class_counts = sum((part.class_counts for part in parts), np.zeros_like(merged.class_counts))
        return merged

    def _settle(self) -> None:
        """Pays all shrinkage owed and folds the scale into the weights."""
        if self.settings.rule not in ADAPTIVE:
            arrays = self._used_arrays()
            kernels.linear_settle(
                arrays["v"],
                arrays.get("shrunk"),
                arrays["clock"],
                1 if self.shared else arrays["v"].shape[-1],
                self._choices(),
                arrays.get("average"),
            )

    @property
    def state(self) -> dict[str, Array]:
        """Everything that was learned or is needed to go on, as arrays."""
        state = self._used_arrays()
        if self.slots is not None:
            state["owners"] = self.slots.owners.copy()
        if not self.shared:  # room for more outputs is no part of what was learned
            state |= {name: array[..., : self.n_outputs] for name, array in state.items() if name in WIDE}
        state["counters"] = np.array(
            [
                self.n_features,
                self.n_outputs,
                math.nan if self.eta0 is None else self.eta0,
                self.bias_scale,
                self.rows_learned,
                self.rollbacks,
                float(self.several_targets),
            ]
        )
        state["class_counts"] = self.class_counts
        state["labels"] = np.array(self.book.labels)
        if self.pending is not None:
            rows = self.pending
            state["pending_indptr"], state["pending_indices"] = rows.indptr, rows.indices
            state["pending_values"] = rows.values
            if rows.y is not None:
                state["pending_y"] = rows.y
            if rows.weight is not None:
                state["pending_weight"] = rows.weight
        return state

    @classmethod
    def from_state(cls, settings: LinearSettings, state: State) -> LinearLearner:
        """The learner that had this state."""
        learner = cls(settings, 0, state["labels"].tolist())
        counters = state["counters"]
        learner.n_features, learner.n_outputs = int(counters[0]), int(counters[1])
        learner._first_snapshot = _first_snapshot(learner.n_features)
        learner.eta0 = None if math.isnan(counters[2]) else float(counters[2])
        learner.bias_scale = float(counters[3])
        learner.rows_learned, learner.rollbacks = int(counters[4]), int(counters[5])
        learner.several_targets = bool(counters[6])
        learner.class_counts = np.array(state["class_counts"])
        learner.arrays = {name: np.array(state[name]) for name in learner.arrays}
        if "owners" in state:
            learner.slots = Slots(learner.n_features, np.asarray(state["owners"]))
        if "pending_indptr" in state:
            learner.pending = Chunk(
                np.array(state["pending_indptr"]),
                np.array(state["pending_indices"]),
                np.array(state["pending_values"]),
                learner.n_features,
                np.array(state["pending_y"]) if "pending_y" in state else None,
                np.array(state["pending_weight"]) if "pending_weight" in state else None,
            )
        return learner

    def clone(self) -> LinearLearner:
        """An independent copy."""
        copy = LinearLearner.from_state(self.settings, self.state)
        copy.n_threads, copy.may_have_slots = self.n_threads, self.may_have_slots
        return copy

    # ------------------------------------------------------------------------------------------- what was learned

    def weights(self) -> tuple[Array, Array]:
        """(weights, bias): settled, averaged if so chosen, pending rows included.

        The weights have the shape (features, outputs), or are the table that all share; see `output_weights`.
        """
        table, bias, slots = self._shown_weights()
        return (table if slots is None else slots.spread(table, self.n_features)), bias

    def _shown_weights(self) -> tuple[Array, Array, Slots | None]:
        """The same, with rows by slot where there are slots; rows that wait may have brought some of them."""
        if self._shown is None:
            finished = self._finished()
            self._shown = (*finished._plain_weights(), finished.slots)
        return self._shown

    def output_weights(self, output: int, features: Array | None = None) -> Array:
        """The weights of these features (or of all) for one output."""
        table, _, slots = self._shown_weights()
        if slots is not None:
            column = slots.spread(table[:, output], self.n_features)
            return column if features is None else column[features]
        if not self.shared:
            return table[:, output] if features is None else table[features, output]
        wanted = np.arange(self.n_features) if features is None else np.asarray(features, np.int64)
        return kernels.class_weights(table, np.ascontiguousarray(wanted), output, self.settings.table_bits)

    def weight_matrix(self) -> Array:
        """The weights, one row an output."""
        table, _, slots = self._shown_weights()
        if not self.shared and slots is None:
            return np.ascontiguousarray(table.T)
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

    def _live(self, table: Array) -> Array:
        """The part of a table that is in use: it has room for more features, unless all share it."""
        if self.shared:
            return table
        return table[: self.n_features if self.slots is None else self.slots.n, ..., : self.n_outputs]

    def _plain_weights(self) -> tuple[Array, Array]:
        v = self._live(self.arrays["v"])
        if self.settings.rule == "coin":
            w = np.empty((len(v), v.shape[-1]), v.dtype)
            for block in self._blocks(len(w)):
                w[block] = bets(v[block].astype(np.float64), 1.0 if self.eta0 is None else self.eta0)
            return w, self.arrays["bias"]
        if self.settings.rule in ADAPTIVE:
            z, square = (v[0], v[1]) if self.shared else (v[:, 0], v[:, 1])
            w = np.empty(z.shape, v.dtype)
            t, eta0 = self._clock("t"), 1.0 if self.eta0 is None else self.eta0
            for block in self._blocks(len(w)):
                soft = z[block].astype(np.float64)
                soft = np.sign(soft) * np.maximum(np.abs(soft) - t * self.settings.l1, 0)
                w[block] = -soft / ((1 + np.sqrt(square[block].astype(np.float64))) / eta0 + t * self.settings.l2)
            return w, self.arrays["bias"]
        if self.settings.average != "no" and self._clock("average_weight") > 0:
            mean = np.empty(v.shape, v.dtype)
            for block, part in self._average_parts():
                mean[block] = part
            return mean, self.arrays["bias_average"]
        if self.settings.l1 == 0:  # nothing is owed: one multiplication is all, and large tables are copied once
            return v * v.dtype.type(self._clock("scale")), self.arrays["bias"]
        settled = self.clone()
        settled._settle()
        return settled._live(settled.arrays["v"]), self.arrays["bias"]

    def _average_parts(self) -> Iterator[tuple[slice, Array]]:
        """The average of the weights, some rows of the table at a time."""
        s, c = self._clock("average_scale"), self._clock("average_weight")
        v, u = self._live(self.arrays["v"]), self._live(self.arrays["average"])
        for block in self._blocks(len(v)):
            yield block, ((s * v[block].astype(np.float64) - u[block]) / c).astype(v.dtype)

    def _blocks(self, n: int) -> Iterator[slice]:
        """Parts of a table that fit in the cache: a large one needs no copy in float64."""
        rows = BLOCK if self.shared else max(1, BLOCK // self.n_outputs)
        return (slice(first, min(n, first + rows)) for first in range(0, n, rows))

    def heaviness(self, columns: Array) -> Array:
        """How heavy the weights of some columns are, the heaviest of all outputs each, up to a common factor."""
        heavy = np.zeros(len(columns))
        if self.shared:
            known = np.flatnonzero(columns < self.n_features)
            for output in range(self.n_outputs if len(known) else 0):
                heavy[known] = np.maximum(heavy[known], np.abs(self.output_weights(output, columns[known])))
            return heavy
        if self.slots is not None:
            rows = np.where(columns < self.n_features, self.slots.of(np.minimum(columns, self.n_features - 1)), -1)
            known = np.flatnonzero(rows >= 0)
            v = np.abs(self.arrays["v"][rows[known]])
        else:
            known = np.flatnonzero(columns < len(self.arrays["v"]))
            v = np.abs(self.arrays["v"][columns[known]])
        if self.settings.rule in ADAPTIVE:
            v = v[:, 0] / (1 + np.sqrt(v[:, 1]))
        heavy[known] = v.max(axis=1, initial=0)
        return heavy

    def _finished(self) -> LinearLearner:
        """This learner if nothing waits, else a copy that has learned the waiting rows."""
        if self.pending is None:
            return self
        copy = self.clone()
        copy.learn_pending()
        return copy

    def learn_pending(self) -> Progress:
        """Learns the rows that wait, as if no others were to come."""
        progress = Progress()
        if self.pending is not None:
            rows, self.pending = self.pending, None
            self._shown = self._norms = None
            if self.eta0 is None:
                calibrate(self, rows)
            self._process(rows, progress)
        return progress

    @property
    def step_size(self) -> float:
        """The step that the next row will take."""
        settings, eta0 = self.settings, self.eta0 or 0.0
        if settings.rule in ADAPTIVE:
            return eta0
        return step_size_by_code(settings.schedule, self._clock("t"), eta0, settings.alpha, settings.power)

    def lower_step(self, factor: float) -> None:
        """Divides the step size (the adaptive schedule does so when the loss stalls)."""
        if self.eta0 is not None:
            self.eta0 /= factor

    def count_nonzero(self) -> int:
        """Weights that are not zero."""
        return self._table_norms()[2]

    def penalty(self) -> float:
        """alpha R(w) at the current weights."""
        s = self.settings
        if s.p:
            return s.alpha / s.p * float((np.abs(self.weights()[0].astype(np.float64)) ** s.p).sum())
        absolute, square, _ = self._table_norms()
        return s.l1 * absolute + 0.5 * s.l2 * square

    def _table_norms(self) -> tuple[float, float, int]:
        """(sum |w|, sum w^2, how many are not zero). Where w is P v and nothing else, it need not be written out."""
        if self._norms is None:
            adaptive, l1 = self.settings.rule in ADAPTIVE, self.settings.l1
            averaged = self.settings.average != "no" and self._clock("average_weight") > 0 and not adaptive
            scale = self._clock("scale") if not (adaptive or l1 or averaged) else 1.0
            if self.pending is not None or adaptive or (l1 and not averaged):
                scale, parts = 1.0, iter([np.ascontiguousarray(self._shown_weights()[0])])
            elif averaged:
                parts = (part for _, part in self._average_parts())
            else:
                parts = iter([self._used_arrays()["v"]])
            sums = [kernels.table_norms(part) for part in parts]
            absolute, square, nonzeros = (sum(column) for column in zip(*sums, strict=True)) if sums else (0.0, 0.0, 0)
            self._norms = scale * absolute, scale**2 * square, int(nonzeros)
        return self._norms

    # ---------------------------------------------------------------------------------------------------- the step

    def _ready(self, n_rows: int) -> bool:
        return n_rows >= self._rows_needed()

    def _rows_needed(self) -> int:
        return CALIBRATION_ROWS if self.eta0 is None else self.unit

    @property
    def unit(self) -> int:
        """Rows that are learned together: a mini-batch, or a round of all replicas."""
        s = self.settings
        return s.batch_size if s.n_replicas == 1 else s.n_replicas * self._rows_each()

    def _rows_each(self) -> int:
        batch = self.settings.batch_size
        return math.ceil(self.settings.sync_every / batch) * batch

    def _learn_ready(self, rows: Chunk, progress: Progress) -> None:
        """Rows that need not wait: calibrate first if that is due; an incomplete mini-batch waits again."""
        if self.eta0 is None:
            calibrate(self, rows.span(0, CALIBRATION_ROWS).packed())
        whole = rows.n_rows - rows.n_rows % self.unit
        self._process(rows.span(0, whole), progress)
        if whole < rows.n_rows:
            self.pending = rows.span(whole, rows.n_rows).packed()

    def _process(self, rows: Chunk, progress: Progress) -> None:
        """Learns rows now, growing the tables where a new class or feature appears."""
        self._grow_features(rows.n_features)
        start = 0
        while start < rows.n_rows:
            unit, edge = self.unit, self._snapshot_edge()
            until_snapshot = max(1, (edge - self.rows_learned) // unit) * unit
            coded, n_coded = self._code(rows.span(start, min(rows.n_rows, start + until_snapshot)))
            self._run_kernel(coded, progress)
            start += n_coded
            if self.rows_learned >= edge:
                self.keep_good_state()

    def _run_kernel(self, coded: Chunk, progress: Progress) -> None:
        if self.slots is None and self._wants_slots():
            self._open_slots()
        start = 0
        while self.settings.n_replicas > 1 and coded.n_rows - start >= self.unit:
            done, status, loss_sum, weight = self._learn_apart(coded.span(start, coded.n_rows))
            progress.add(Progress(done, weight, loss_sum))
            self.rows_learned += done
            start += done
            if status != 0:  # a round with a row in trouble is learned by one, which knows what to do
                self._run_alone(coded.span(start, start + self.unit), progress)
                start += self.unit
        self._run_alone(coded.span(start, coded.n_rows) if start else coded, progress)

    def _run_alone(self, coded: Chunk, progress: Progress) -> None:
        start = 0
        while start < coded.n_rows:
            part = coded.span(start, coded.n_rows) if start else coded
            placed = part if self.slots is None else self._placed(part)
            arrays = self._used_arrays()
            done, status, loss_sum, weight = self._kernel_call(placed, arrays, self._choices(), self.n_threads)
            progress.add(Progress(done, weight, loss_sum))
            self.rows_learned += done
            start += done
            if status == 0 and done == part.n_rows:
                return
            self._refuse_bad_row(part, done)
            self._roll_back(progress)
            start += 1  # the row on which it happened is left out, so that a stream goes on
            self.rows_learned += 1

    def _learn_apart(self, rows: Chunk) -> tuple[int, int, float, float]:
        """Whole rounds by the replicas. Their tables stay from call to call as long as nobody else has learned."""
        arrays, kept, n = self.arrays, self._replicas, self.settings.n_replicas
        for name in WIDE:
            if name in arrays and (name not in kept or kept[name].shape[1:] != arrays[name].shape):
                self._refuse_huge_table(arrays[name].size * n)
                kept[name] = np.empty((n, *arrays[name].shape), arrays[name].dtype)
                kept["synced"] = None
        synced = kept.get("synced")
        result = self._kernel_call(
            rows,
            arrays,
            self._choices(),
            self.n_threads,
            n_replicas=n,
            rows_each=self._rows_each(),
            # A weight that more replicas than sqrt(n) have moved takes what that many of them would have added: those
            # that are in every row would overshoot, and rare ones need the whole sum.
            gain=math.inf if self.settings.rule in ADAPTIVE else math.sqrt(n),
            replica_v=kept["v"],
            replica_average=kept.get("average"),
            synced=synced is not None and synced[0] is arrays["v"] and bool((synced[1] == arrays["clock"]).all()),
        )
        kept["synced"] = (arrays["v"], arrays["clock"].copy()) if result[1] == 0 else None
        return result

    def _kernel_call(
        self, rows: Chunk, arrays: dict[str, Array], choices: Any, n_threads: int = 1, **replicas: Any
    ) -> tuple[int, int, float, float]:
        assert rows.y is not None
        if not (replicas or self.settings.hogwild):
            n_threads = 1
        return KERNELS[self.settings.rule](
            rows.indptr,
            rows.indices,
            rows.values,
            rows.y,
            rows.weight,
            rows.order,
            arrays["v"],
            arrays.get("shrunk"),
            arrays.get("average"),
            arrays["bias"],
            arrays["bias_square"],
            arrays["bias_average"],
            arrays["clock"],
            choices,
            n_threads,
            **replicas,
        )

    def _choices(self, eta0: float | None = None) -> Any:
        s = self.settings
        return kernels.Choices(
            loss=self.loss.code,
            loss_parameter=s.loss_parameter,
            target_kind=self._target_kind(),
            schedule=s.schedule,
            eta0=eta0 if eta0 is not None else (self.eta0 or 0.0),
            power=s.power,
            decay=s.alpha,
            l1=s.l1,
            l2=s.l2,
            threshold=s.threshold,
            shrink_period=s.shrink_period,
            average=AVERAGES[s.average],
            batch_size=s.batch_size,
            bias_scale=self.bias_scale,
            table_bits=s.table_bits,
            n_columns=self.n_features,
        )

    def _target_kind(self) -> int:
        if self.settings.task == "regress" or self.several_targets or self.n_outputs == 1:
            return TARGETS
        return SOFTMAX if self.settings.multi_class == "softmax" else ONE_VS_REST

    # ------------------------------------------------------------------------------------------------ trouble

    def _refuse_bad_row(self, rows: Chunk, visit: int) -> None:
        """Raises if the row itself is at fault, and returns if the weights are."""
        row = int(rows.row_numbers[visit])
        span = slice(int(rows.indptr[row]), int(rows.indptr[row + 1]))
        indices, values = rows.indices[span], rows.values[span]
        name = f"row {row + rows.first_id}"
        wrong = (indices < 0) | (indices >= min(self._most_columns(), rows.n_features))
        if wrong.any():
            raise DataError(
                f"{name} has the column index {int(indices[wrong][0])}, but columns run from 0 "
                f"to {rows.n_features - 1}; check how the matrix was built"
            )
        wrong = ~np.isfinite(values)
        if wrong.any():
            kind = "NaN" if np.isnan(values[wrong][0]) else "infinity"
            raise DataError(
                f"Input X contains {kind}: {name}, column {int(indices[wrong][0])}; drop the row or fill the value"
            )

    def _most_columns(self) -> int:
        return self.n_features if self.shared or self.slots is not None else len(self.arrays["v"])

    def _refuse_bad_indices(self, rows: Chunk) -> None:
        """Raises if any column index is out of range (packed rows; the kernels check the others one by one)."""
        wrong = np.flatnonzero((rows.indices < 0) | (rows.indices >= self.n_features))
        if len(wrong):
            self._refuse_bad_row(rows, int(np.searchsorted(rows.indptr, wrong[0], side="right")) - 1)

    def _roll_back(self, progress: Progress) -> None:
        """Scores ran out of range: back to the last good state with half the step."""
        self.rollbacks += 1
        before = self.eta0 or 0.0
        if self.rollbacks > MOST_ROLLBACKS:
            raise DataError(
                f"learning diverges even with the step size {before:.3g}; scale the features to about one, "
                "or choose a loss that grows more slowly"
            )
        if self._good is None or (self._good.n_outputs != self.n_outputs and not self.shared):
            start = self.arrays["bias_start"]
            self.arrays = self._new_arrays(len(self.arrays["v"]))
            for name in ("bias", "bias_start", "bias_average"):
                self.arrays[name][...] = start
        else:
            self.arrays = {name: array.copy() for name, array in self._good.arrays.items()}
            self._grow_features(self.n_features)
            self._make_room()
            self._grow_biases()
        self.eta0 = before / 2
        self._shown = self._norms = None
        progress.events.append(
            f"scores overflowed after {self.rows_learned:,} rows: went back to the last good state and "
            f"halved the step size from {before:.3g} to {self.eta0:.3g}"
        )

    def _snapshot_edge(self) -> int:
        edge = self._first_snapshot
        while edge <= self.rows_learned:
            edge *= 2
        return edge

    def keep_good_state(self) -> None:
        """Remembers the state to return to if learning diverges; an overflowed one is not worth it."""
        arrays = self._used_arrays()
        if not _all_finite(arrays["v"]):
            self._roll_back(Progress())
            return
        kept = {} if self._good is None else self._good.arrays
        for name, array in arrays.items():
            if name in kept and kept[name].shape == array.shape:
                np.copyto(kept[name], array)  # into memory that is there already
            else:
                kept[name] = array.copy()
        self._good = _Snapshot(kept, self.n_outputs)

    # ------------------------------------------------------------------------------------- classes and weights

    def _code(self, rows: Chunk) -> tuple[Chunk, int]:
        """Rows with targets as the kernels want them, and how many rows that covers before a new class appears."""
        if rows.y is None:
            raise DataError("the data has no targets to learn from; give y or read a file with labels")
        if self._coded is not None and self._coded[0] is rows.y and self._coded[1] is rows.weight:
            return rows.with_targets(self._coded[2], self._coded[3]), rows.n_rows
        if self.settings.task == "regress" or rows.y.ndim == 2:
            return self._code_targets(rows), rows.n_rows
        codes = self.book.codes(rows.y)
        if codes.min(initial=0) < 0 and len(unknown := np.flatnonzero(rows.visited(codes) < 0)):
            unit = self.unit
            first = int(unknown[0]) - int(unknown[0]) % unit
            if first > 0:
                return self._code(rows.span(0, first).packed())[0], first
            self._add_classes(dict.fromkeys(rows.visited(rows.y)[unknown[unknown < unit]].tolist()))
            return self._code(rows)
        weight = self._class_weights(rows, codes)
        np.maximum(codes, 0, out=codes)  # rows of the block that are not visited
        y = 2.0 * codes - 1.0 if self.n_outputs == 1 else codes
        if rows.order is not None and self.settings.class_weight != "balanced":
            self._coded = (rows.y, rows.weight, y, weight)
        return rows.with_targets(y, weight), rows.n_rows

    def _code_targets(self, rows: Chunk) -> Chunk:
        assert rows.y is not None
        if rows.y.dtype.kind not in "biuf":
            raise DataError(
                f"the target {rows.y.ravel()[:1].tolist()[0]!r} is not a number; a regression needs numbers"
            )
        y = rows.y.astype(np.float64, copy=False)
        if self.loss.kind == "count" and len(y) and y.min() < 0:
            raise DataError(f"the target {y.min():g} is negative; loss={self.loss.name!r} needs counts")
        if y.ndim == 2 and not self.several_targets:
            self._open_targets(y.shape[1])
        if (y.shape[1] if y.ndim == 2 else 1) != self.n_outputs:
            raise DataError(f"y has {y.shape[1:]} columns where {self.n_outputs} were learned; keep their number")
        if self.settings.task == "classify":
            y = np.where(y > 0, 1.0, -1.0)
        coded = rows.with_targets(np.ascontiguousarray(y), rows.weight)
        if rows.order is not None:
            self._coded = (rows.y, rows.weight, coded.y if coded.y is not None else y, rows.weight)
        return coded

    def _open_targets(self, n_outputs: int) -> None:
        if self.rows_learned:
            raise DataError("y changed from one column to several; keep its shape")
        self.several_targets = True
        self.n_outputs = n_outputs
        self.arrays = self._new_arrays(len(self.arrays["v"]))
        if self._wants_slots():
            self._open_slots()

    def _add_classes(self, labels: Iterable[Any]) -> None:
        """Classes never seen before: two classes share one column, more have one each."""
        for label in labels:
            self.book.add(label)
        n = len(self.book)
        self.class_counts = np.pad(self.class_counts, (0, max(0, n - len(self.class_counts))))
        self._coded = None
        if self.shared:
            self.n_outputs = self._count_outputs()
            self._grow_biases()
        elif n > 2:
            self._grow_outputs(n)

    def _grow_outputs(self, n: int) -> None:
        """Makes room for n outputs, and for some more, so that a table is not copied for every new class."""
        before, self.n_outputs = self.n_outputs, n
        if self.slots is None and self._wants_slots():
            self._open_slots()
        old, room = self.arrays, self.arrays["v"].shape[-1]
        if n > room:
            fresh = self._clock("steps") == 0
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
        for name in (
            *BIASES,
            *(() if self._clock("steps") == 0 else WIDE),
        ):  # one column said "second class against first": negated, it speaks for the first
            if name in self.arrays:
                first = self.arrays[name][..., 0].copy()
                self.arrays[name][..., 0], self.arrays[name][..., 1] = -first, first
        squares = [self.arrays["bias_square"]]
        if self.settings.rule in ADAPTIVE and self._clock("steps") > 0:
            squares.append(self.arrays["v"][:, 1:])
        for square in squares:
            np.abs(square, out=square)

    def _grow_biases(self) -> None:
        """New classes start with a bias of zero."""
        for name in BIASES:
            missing = self.n_outputs - len(self.arrays[name])
            self.arrays[name] = np.pad(self.arrays[name], (0, missing))

    def _class_weights(self, rows: Chunk, codes: Array) -> Array | None:
        wish = self.settings.class_weight
        if wish is None:
            return rows.weight
        if wish == "balanced":
            factors = self._running_balance(rows, codes)
        else:
            table = np.array([float(wish.get(label, 1.0)) for label in self.book.labels])
            factors = table[codes.astype(np.int64)]
        return factors if rows.weight is None else factors * rows.weight

    def _running_balance(self, rows: Chunk, codes: Array) -> Array:
        """n / (classes * count of the row's class), counted up to and including the row."""
        visits = rows.row_numbers
        visited = codes[visits].astype(np.int64)
        seen = np.empty(len(visits))
        for k in range(len(self.book)):
            mine = visited == k
            seen[mine] = self.class_counts[k] + np.arange(1, int(mine.sum()) + 1)
        total = self.class_counts.sum() + np.arange(1, len(visits) + 1)
        self.class_counts += np.bincount(visited, minlength=len(self.class_counts))
        factors = np.ones(len(codes))
        factors[visits] = total / (max(2, len(self.book)) * seen)
        return factors

    # ------------------------------------------------------------------------------------------------- the tables

    def _new_arrays(self, n_features: int, width: int | None = None) -> dict[str, Array]:
        s, k = self.settings, self.n_outputs
        width = k if width is None else width
        shape: tuple[int, ...] = (
            (n_features, ACCUMULATORS[s.rule], width) if s.rule in ADAPTIVE else (n_features, width)
        )
        if self._wants_slots():
            used = 0 if self.slots is None else self.slots.n
            room = ROOM_BYTES // (math.prod(shape[1:]) * np.dtype(s.dtype).itemsize)
            n_features = min(n_features, max(used, room))
            shape = (n_features, *shape[1:])
        if self.shared:
            entries = (1 << s.table_bits) + kernels.class_window - 1
            shape = (2, entries) if s.rule in ADAPTIVE else (entries,)
        self._refuse_huge_table(math.prod(shape))
        arrays = {
            "v": np.zeros(shape, s.dtype),
            **{name: np.zeros(k) for name in BIASES},
            "clock": np.zeros(len(CLOCK)),
        }
        if s.l1 > 0 and s.rule not in ADAPTIVE:
            arrays["shrunk"] = np.zeros(n_features)
        if s.average != "no":
            arrays["average"] = np.zeros(shape, s.dtype)
        arrays["clock"][CLOCK.index("scale")] = 1.0
        return arrays

    def _refuse_huge_table(self, n_entries: int) -> None:
        size = n_entries * np.dtype(self.settings.dtype).itemsize
        if size > LARGEST_TABLE_BYTES:
            raise DataError(
                f"the weights would take {size / 2**30:.1f} GB for {self.n_features:,} features and "
                f"{self.n_outputs} outputs; check the largest feature index, or hash the features to fewer"
            )

    def _grow_features(self, n_features: int) -> None:
        """Makes room for more features; the table doubles, so that a growing stream is copied a few times only."""
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
        for name in ("v", "shrunk", "average"):
            if name in self.arrays:
                old = self.arrays[name]
                grown = np.zeros((size, *old.shape[1:]), old.dtype)
                grown[: len(old)] = old
                self.arrays[name] = grown

    # ------------------------------------------------------------------------------------------------------ slots

    def _wants_slots(self) -> bool:
        """Whether most of the table is likely to stay empty; learners that share or compare tables keep them whole."""
        s = self.settings
        alone = self.may_have_slots and not self.shared and s.n_replicas == 1 and not s.hogwild
        return alone and self.n_outputs > 2 and self.n_features * self.n_outputs >= SLOTTED_WEIGHTS

    def _open_slots(self) -> None:
        """From now on rows stand for slots; those that were learned move together."""
        wide = [self.arrays[name] for name in WIDE if name in self.arrays]
        seen = np.zeros(len(wide[0]), bool)
        if self._clock("steps") > 0:
            for table in wide:
                seen |= table.reshape(len(table), -1).any(axis=1)
        owners = np.flatnonzero(seen).astype(np.int32)
        self.slots = Slots(self.n_features, owners)
        self._good = None
        for name in BY_FEATURE:
            if name in self.arrays and len(owners):
                old = self.arrays[name]
                self.arrays[name] = np.zeros_like(old)
                self.arrays[name][: len(owners)] = old[owners]

    def keep_whole_tables(self) -> None:
        """A row for every feature from now on, for those that add up the tables of several learners."""
        self.may_have_slots = False
        self._drop_slots()
        self._grow_features(self.n_features)

    def _drop_slots(self) -> None:
        """A row a feature again."""
        if self.slots is None:
            return
        for name in BY_FEATURE:
            if name in self.arrays:
                self.arrays[name] = self.slots.spread(self.arrays[name], self.n_features)
        self.slots, self._good, self._shown = None, None, None

    def _placed(self, rows: Chunk) -> Chunk:
        """Rows with slots for indices, and room in the tables for new ones."""
        assert self.slots is not None
        placed = self.slots.take_in(rows)
        self._make_room()
        return placed

    def _make_room(self) -> None:
        """All slots have a row."""
        if self.slots is None or self.slots.n <= len(self.arrays["v"]):
            return
        for name in BY_FEATURE:
            if name in self.arrays:
                old = self.arrays[name]
                size = min(self.n_features, max(self.slots.n, 2 * len(old), ROOM_BYTES // max(1, old[:1].nbytes)))
                self._refuse_huge_table(size * math.prod(old.shape[1:]))
                self.arrays[name] = np.zeros((size, *old.shape[1:]), old.dtype)
                self.arrays[name][: len(old)] = old

    def _used_arrays(self) -> dict[str, Array]:
        """The arrays, tables without the rows that no feature has yet."""
        if self.slots is None:
            return dict(self.arrays)
        return {name: array[: self.slots.n] if name in BY_FEATURE else array for name, array in self.arrays.items()}

    # ------------------------------------------------------------------------------------------------ calibration

    def code_sample(self, rows: Chunk) -> Chunk:
        """Rows to try step sizes on, coded as they will be learned; they are still to be learned."""
        self._grow_features(rows.n_features)
        self._announce_labels(rows)
        counts = self.class_counts.copy()
        coded, _ = self._code(rows)
        self.class_counts = counts
        self._coded = None
        self._refuse_bad_indices(coded)
        return coded

    def trial(self, settings: LinearSettings, n_features: int) -> LinearLearner:
        """A learner with these settings that knows nothing but this one's classes and bias."""
        trial = LinearLearner(settings, 0)
        trial.n_features, trial.n_outputs = n_features, self.n_outputs
        trial.several_targets, trial.bias_scale = self.several_targets, self.bias_scale
        trial.may_have_slots = False
        trial.arrays = trial._new_arrays(n_features)
        trial.arrays["bias"][...] = self.arrays["bias"]
        trial.arrays["bias_average"][...] = self.arrays["bias"]
        return trial

    def learn_once(self, coded: Chunk) -> float:
        """One pass over coded rows: their mean loss before each was learned, infinite if something went wrong."""
        _, status, loss_sum, weight = self._kernel_call(coded, self.arrays, self._choices())
        return loss_sum / max(weight, 1e-300) if status == 0 else math.inf

    def _announce_labels(self, rows: Chunk) -> None:
        """Rows that wait show their classes at once, in the order in which they would be learned."""
        if rows.y is not None and rows.y.ndim == 2 and not self.several_targets:
            self._open_targets(rows.y.shape[1])
        if self.settings.task == "classify" and rows.y is not None and rows.y.ndim == 1:
            known = set(self.book.labels)
            labels = dict.fromkeys(rows.visited(rows.y).tolist())
            self._add_classes([label for label in labels if label not in known])

    # ---------------------------------------------------------------------------------------------------- measures

    def mean_loss(self, coded: Chunk) -> float:
        """Mean loss of rows whose targets are coded already."""
        losses, weight = self.losses(coded)
        return float((losses * weight).sum() / max(weight.sum(), 1e-300))

    def losses(self, coded: Chunk) -> tuple[Array, Array]:
        """(loss of each row visited, its weight), targets coded already."""
        assert coded.y is not None
        z, y = self.scores(coded), coded.visited(coded.y)
        weight = np.ones(len(z)) if coded.weight is None else coded.visited(coded.weight)
        kind = self._target_kind()
        if kind == SOFTMAX:
            top = z.max(axis=1)
            log_sum = top + np.log(np.exp(z - top[:, None]).sum(axis=1))
            return log_sum - z[np.arange(len(z)), y.astype(np.int64)], weight
        if kind == ONE_VS_REST:
            y = np.where(np.arange(self.n_outputs) == y[:, None], 1.0, -1.0)
        values = self.loss.value(z, y.reshape(z.shape), self.settings.loss_parameter)
        return np.asarray(values).sum(axis=1), weight

    def code_for_scoring(self, rows: Chunk) -> Chunk:
        """Rows with coded targets, for measuring only: unknown classes are refused, class weights not applied."""
        if self.settings.task == "regress" or (rows.y is not None and rows.y.ndim == 2):
            self._coded = None
            return self._code_targets(rows)
        assert rows.y is not None
        codes = self.book.codes(rows.y)
        if (rows.visited(codes) < 0).any():
            label = rows.visited(rows.y)[np.flatnonzero(rows.visited(codes) < 0)[0]].item()
            raise DataError(f"the label {label!r} was never seen in training; the classes are {self.book.labels[:10]}")
        return rows.with_targets(2.0 * codes - 1.0 if self.n_outputs == 1 else codes, rows.weight)

    def _shows_itself(self) -> bool:
        s = self.settings
        return self.pending is None and s.l1 == 0 and s.average == "no" and s.rule not in ADAPTIVE

    def _table_scores(
        self, chunk: Chunk, table: Array, scale: float, bias: Array, slots: Slots | None, n_threads: int
    ) -> Array:
        given, n_rows = chunk, chunk.n_rows
        out = np.empty((n_rows, self.n_outputs))
        if not table.size:
            out[...] = bias
            return out
        known_features = self.n_features if self.shared else len(table)
        if slots is not None:
            slots.grow(chunk.n_features)
            chunk = slots.find(chunk)
        elif chunk.n_features > known_features:  # a feature never seen in training has no weight
            chunk = chunk.packed()  # the block may be far larger than what is visited of it
            known = chunk.indices < known_features
            indices, values = np.where(known, chunk.indices, 0), np.where(known, chunk.values, 0)
            given = chunk = replace(chunk, indices=indices.astype(np.int32), values=values.astype(np.float32))
        done, finite = kernels.linear_scores(
            chunk.indptr,
            chunk.indices,
            chunk.values,
            chunk.order,
            table,
            scale,
            np.ascontiguousarray(bias),
            out[: chunk.n_rows],
            n_threads,
            self.settings.table_bits,
            known_features,
        )
        for row in (done, finite):
            if row < n_rows:
                self._refuse_bad_row(given, row)
        return out

    def _clock(self, name: str) -> float:
        return float(self.arrays["clock"][CLOCK.index(name)])


def bets(coins: Array, eta0: float) -> Array:
    """The weights of solver="coin", from the four numbers of each, in the second axis from the left."""
    total, size, largest, reward = np.moveaxis(coins, 1, 0)
    pot = largest * np.maximum(size + largest, LEAST_POT * largest)
    return np.asarray(np.where(largest > 0, total * (largest * eta0 + reward) / np.where(pot > 0, pot, 1.0), 0.0))


def _first_snapshot(n_features: int) -> int:
    """The row after which the state is kept first. It depends on what is known before any row, not on chunks."""
    edge = FIRST_SNAPSHOT_ROWS
    while edge * WEIGHTS_A_SNAPSHOT_ROW < n_features:
        edge *= 2
    return edge


def _all_finite(table: Array) -> bool:
    """The sum tells in most cases, without an array of truth values."""
    with np.errstate(over="ignore", invalid="ignore"):
        return bool(np.isfinite(table.sum()) or np.isfinite(table).all())
