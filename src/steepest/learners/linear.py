"""Linear models by stochastic gradients: score = w·x + b, minimising mean loss + alpha R(w).

The state is a handful of arrays: the weight table `v` (or two accumulators a feature for the adaptive rules), the
clocks of lazy shrinkage, the running average, the bias, and one clock of scalars. A step hands rows to a kernel.

Invariant: the state after a sequence of rows depends on that sequence only, never on how it was cut into chunks. For
that, rows wait (`pending`) until there are enough to settle what "auto" stands for, or to fill a mini-batch; what is
shown of the model (`weights`, `scores`) always includes them. Classes and features may appear at any time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from steepest import kernels
from steepest.data.chunk import Array, Chunk, DataError, concatenate
from steepest.learners.base import Progress, State
from steepest.learners.calibration import CALIBRATION_ROWS, calibrate
from steepest.learners.linear_settings import ADAPTIVE, LinearSettings
from steepest.learners.linear_state import CLOCK, ONE_VS_REST, SOFTMAX, WIDE, Snapshot, kernel_tables
from steepest.learners.linear_targets import TargetCoder
from steepest.learners.packed import PACKED_ELEMENTS, Packed
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
MOST_ROLLBACKS = 60
# Raw rows: recipe, columns, rows with each feature, rows in all, threads that hash.
ScoreTask = tuple[kernels.HashRecipe, list[Any], Array | None, float, int]


class LinearLearner(TargetCoder):
    """State and step of a linear model."""

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
        return self._table_scores(chunk, *self._score_table(), n_threads)

    def scores_of_raw(self, task: ScoreTask, n_threads: int = 1) -> Array | None:
        """The same bits from raw rows, as `Hasher.score_task` gives them; None if `scores` has to look at them."""
        weights, scale, bias, slots = self._score_table()
        number, bits = None if slots is None else slots.number, self.settings.table_bits
        return kernels.score_rows(*task, weights, scale, bias, number, n_threads, bits, self.n_features)

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
        own.arrays = own._copied(own.arrays)
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

    # ------------------------------------------------------------------------------------------- what was learned

    def learn_pending(self) -> Progress:
        """Learns the rows that wait, as if no others were to come."""
        progress = Progress()
        if self.pending is not None:
            rows, self.pending = self.pending, None
            self._shown = self._norms = None
            self.settle(rows)
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

    # ---------------------------------------------------------------------------------------------------- the step

    def _ready(self, n_rows: int) -> bool:
        return n_rows >= self._rows_needed()

    def _rows_needed(self) -> int:
        return CALIBRATION_ROWS if self.unsettled else self.unit

    def _learn_ready(self, rows: Chunk, progress: Progress) -> None:
        """Rows that need not wait: "auto" is settled first if that is due; an incomplete mini-batch waits again."""
        if self.unsettled:
            self.settle(rows.span(0, CALIBRATION_ROWS).packed())
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
        for name, table in zip(WIDE, kernel_tables(arrays), strict=True):
            if table is None:
                kept.pop(name, None)
            elif name not in kept or kept[name].shape[1:] != table.shape:
                self._refuse_huge_table(table.size * n)
                kept[name] = np.empty((n, *table.shape), table.dtype)
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
        weights, average = kernel_tables(arrays)
        return KERNELS[self.settings.rule](
            rows.indptr,
            rows.indices,
            rows.values,
            rows.y,
            rows.weight,
            rows.order,
            weights,
            arrays.get("shrunk"),
            average,
            arrays["bias"],
            arrays["bias_square"],
            arrays["bias_average"],
            arrays["clock"],
            choices,
            n_threads,
            **({"n_replicas": 0 if self.settings.hogwild else 1} | replicas),
        )

    # ------------------------------------------------------------------------------------------------ trouble

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
            self.arrays = self._copied(self._good.unpacked())
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
        if not self._is_finite(arrays["v"]):
            self._roll_back(Progress())
            return
        good = self._good
        if good is not None and good.n_outputs == self.n_outputs and self.rows_learned < 2 * good.rows_learned:
            return
        kept: dict[str, Array | Packed] = {} if good is None else good.arrays
        for name, array in arrays.items():
            old = kept.get(name)
            if name in WIDE and array.size >= PACKED_ELEMENTS:
                kept[name] = (old if isinstance(old, Packed) else Packed()).take(array, self.n_threads)
            elif isinstance(old, np.ndarray) and old.shape == array.shape:
                np.copyto(old, array)  # into memory that is there already
            else:
                kept[name] = array.copy()
        self._good = Snapshot(kept, self.n_outputs, self.rows_learned)

    def _is_finite(self, table: Array) -> bool:
        """Whether all numbers of a table are. Norms that were just computed tell, unless weights are quotients."""
        told = self._norms if self.pending is None and self.settings.rule not in ADAPTIVE else None
        return (told is not None and math.isfinite(told[0])) or _all_finite(table)

    # ------------------------------------------------------------------------------------------------ calibration

    @property
    def unsettled(self) -> bool:
        """Whether the first rows have yet to show what "auto" stands for."""
        return self.eta0 is None or self.loss_is_open

    def settle(self, rows: Chunk) -> None:
        """Decides by the first rows what is open: the loss, then the step size."""
        if self.loss_is_open:
            self._announce_labels(rows)
            self.decide_loss()
        if self.eta0 is None:
            calibrate(self, rows)

    def trial(self, settings: LinearSettings, n_features: int) -> LinearLearner:
        """A learner with these settings that knows nothing but this one's classes and bias."""
        trial = LinearLearner(settings, 0)
        trial.loss, trial.loss_is_open = self.loss, False
        trial.n_features, trial.n_outputs = n_features, self.n_outputs
        trial.several_targets, trial.bias_scale = self.several_targets, self.bias_scale
        trial.may_have_slots, trial.n_threads = False, self.n_threads
        trial.arrays = trial._new_arrays(n_features)
        trial.arrays["bias"][...] = self.arrays["bias"]
        trial.arrays["bias_average"][...] = self.arrays["bias"]
        return trial

    def learn_once(self, coded: Chunk) -> float:
        """One pass over coded rows: their mean loss before each was learned, infinite if something went wrong."""
        n_threads = 1 if self.settings.hogwild else self.n_threads  # a trial is to say the same every time
        _, status, loss_sum, weight = self._kernel_call(coded, self.arrays, self._choices(), n_threads)
        return loss_sum / max(weight, 1e-300) if status == 0 else math.inf

    # ---------------------------------------------------------------------------------------------------- measures

    def mean_loss(self, coded: Chunk) -> float:
        """Mean loss of rows whose targets are coded already."""
        losses, weight = self.losses(coded)
        return float((losses * weight).sum() / max(weight.sum(), 1e-300))

    def losses(self, coded: Chunk, scores: Array | None = None) -> tuple[Array, Array]:
        """(loss of each row visited, its weight), targets coded already; scores that are known need not be found."""
        assert coded.y is not None
        z, y = self.scores(coded) if scores is None else scores, coded.visited(coded.y)
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

    def _shows_itself(self) -> bool:
        s = self.settings
        return self.pending is None and s.l1 == 0 and s.average == "no" and s.rule not in ADAPTIVE

    def _score_table(self) -> tuple[Array, float, Array, Slots | None]:
        """(weights, their scale, bias, slots)"""
        if self._shows_itself():
            return self._used_arrays()["v"], self._clock("scale"), self.arrays["bias"], self.slots
        weights, bias, slots = self._shown_weights()
        return weights, 1.0, bias, slots

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
            out,
            n_threads,
            self.settings.table_bits,
            known_features,
        )
        for row in (done, finite):
            if row < n_rows:
                self._refuse_bad_row(given, row)
        return out


def _all_finite(table: Array) -> bool:
    """The sum tells in most cases, without an array of truth values."""
    with np.errstate(over="ignore", invalid="ignore"):
        return bool(np.isfinite(table.sum()) or np.isfinite(table).all())
