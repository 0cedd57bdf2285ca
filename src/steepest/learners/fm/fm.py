"""Factorization machines by AdaGrad: score = b + w·x + sum over pairs <v_i[f_j], v_j[f_i]> x_i x_j.

Without fields every feature has one vector v_i (Rendle, "Factorization machines", 2010); with fields one for each field
of the other feature (Juan, Zhuang, Chin and Lin, "Field-aware factorization machines for CTR prediction", 2016). With
several outputs each is a machine of its own. The table has a row for every feature seen (see Slots) and room for the
fields seen: `fm_table.h` says what a row holds. Factors start at small random numbers that depend on the seed, the
feature, the field and the output, never on when a feature appears.

The first rows wait until a thousand of them have shown how large rows and targets are: values are divided by the root
mean square length of a row (or of each row by its own, `normalise`), columns of dense rows are standardised, and
numbers are learned as (y - shift) / scale. L2 acts on the features of a row when it is learned.
Two classes share one output. When a third appears, the first one's output is the negative of what was learned: w and b
change their signs, and the pairs get a sign of their own, since no v makes -<v, v>.

Invariant: the state after a sequence of rows depends on that sequence only, never on how it was cut into chunks.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from steepest import kernels
from steepest.data.chunk import Array, Chunk
from steepest.errors import DataError
from steepest.learners.base import Progress, State
from steepest.learners.fm.factor_table import MOST_FIELDS, FactorTable, stride
from steepest.learners.linear.sizes import Sizes
from steepest.learners.linear.slots import Slots
from steepest.learners.losses import LOSSES
from steepest.learners.resumable import all_finite
from steepest.learners.schedules import FIRST_ROWS
from steepest.learners.settings import PlainSettings
from steepest.learners.snapshot import LastGoodState
from steepest.learners.state_check import StateCheck
from steepest.learners.targets import Outcome, TargetLearner, Targets, refuse_bad_row, refuse_bad_rows
from steepest.learners.waiting import WaitingRows

START_SQUARE = 0.1  # what sums of squared gradients begin with
MOST_FIELD_BITS = 31


@dataclass(frozen=True, slots=True)
class FMSettings(PlainSettings):
    """The choices that make a factorization machine: plain values that are in the model file."""

    task: str = "classify"  # or "regress"
    loss: str = "log"
    loss_parameter: float = 0.0
    rank: int = 8  # factors per feature, or per feature and field
    fields: bool = False  # field-aware
    field_bits: int = 0  # the field of a feature is its number without the last bits, unless fields are given
    eta0: float = 0.1
    l2: float = 0.0
    normalise: bool = False  # each row to length 1
    seed: int = 0
    class_weight: Any = None


class FMLearner(TargetLearner):
    """State and step of a factorization machine."""

    state_arrays = ("bias", "signs", "shift", "scale")
    state_numbers = ("n_features", "eta0", "rows_learned", "good.rollbacks", "unit")

    def __init__(
        self,
        settings: FMSettings,
        n_features: int = 0,
        labels: Sequence[Any] = (),
        given_fields: Array | None = None,
    ) -> None:
        s = settings
        self.settings: FMSettings = s
        self.targets = Targets(s.task, s.loss, s.loss_parameter, s.class_weight, labels)
        self.n_features = n_features
        self.given_fields = given_fields  # the field of each feature, where the user says so
        self.eta0: float = s.eta0
        self.rows_learned = 0
        self.unit = 0.0  # what values are multiplied by; 0 until the first rows have shown it
        self.n_threads = 1  # that score; learning is serial
        self.waiting = WaitingRows()
        self.good = LastGoodState()
        self.sizes: Sizes | None = None  # of the columns of dense rows
        self.slots = Slots(n_features)
        k = self.n_outputs
        self.bias = np.zeros((2, k))  # and sums of squared gradients
        self.signs, self.shift, self.scale = np.ones(k), np.zeros(k), np.ones(k)
        self.table = FactorTable(s.rank, s.seed, k, np.zeros(0 if s.fields else 1, np.int64))

    # ------------------------------------------------------------------------------------------------ the contract

    @property
    def state(self) -> dict[str, Array]:
        """All arrays that were learned or are needed to continue; features in ascending order."""
        order = np.argsort(self.slots.owners)
        owners, table = self.slots.owners[order], self.table.used[order]
        state = {"table": table, "owners": owners, "field_ids": self.table.field_ids}
        if self.sizes is not None:
            state |= self.sizes.state()
        if self.given_fields is not None:
            state["given_fields"] = self.given_fields
        return state | super().state

    @classmethod
    def check_state(cls, s: FMSettings, state: State) -> None:
        """Raises ValueError unless a learner with these settings could have had this state."""
        check = StateCheck.of(state, cls.state_numbers)
        if s.loss not in LOSSES or s.field_bits > MOST_FIELD_BITS or s.l2 < 0:
            raise ValueError(f"the settings {s.loss!r}, {s.field_bits}, {s.l2} are not those of a machine"[:200])
        k = check.targets(s.task)
        forms = {
            "bias": "f8 2 known",
            "field_ids": "i8 fields",
            **dict.fromkeys(("signs", "shift", "scale"), "f8 known"),
        }
        sizes = check.arrays(forms)
        if not 0 < sizes["known"] <= k:  # a new class may wait
            raise ValueError(f"the machine has {sizes['known']} outputs of {k}")
        if (np.abs(state["signs"]) != 1).any() or (state["scale"] <= 0).any() or (state["bias"][1] < 0).any():
            raise ValueError("a sign, a scale or a sum of squares is out of range")
        ids, owners = state["field_ids"], check.owners()
        if len(np.unique(ids)) != len(ids) or len(ids) > MOST_FIELDS or (not s.fields and ids.tolist() != [0]):
            raise ValueError("field_ids are not different numbers, or a machine without fields has some")
        check.arrays({"table": f"f4 rows known {stride(len(ids), s.rank)}"}, rows=len(owners), **sizes)
        if (state["table"][:, :, 1 : 2 + len(ids)] < 0).any():
            raise ValueError("a sum of squares is negative")
        given = state.get("given_fields")
        if given is not None:
            check.arrays({"given_fields": "i8 features"})
            if not s.fields or owners.max(initial=-1) >= len(given):
                raise ValueError("given_fields do not belong to the features")
        if len(owners) and not np.isin(own_fields(s, given, owners), ids).all():
            raise ValueError("the field of a feature is missing")
        check.sizes()
        check.waiting(check.n_features)

    @classmethod
    def from_state(cls, settings: FMSettings, state: State) -> FMLearner:
        """Builds a learner from its settings and state."""
        given = np.array(state["given_fields"]) if "given_fields" in state else None
        learner = cls(settings, 0, state["labels"].tolist(), given)
        learner.restore(state)
        learner.sizes = Sizes.from_state(state)
        owners = np.array(state["owners"])
        learner.slots = Slots(learner.n_features, owners)
        own = own_fields(settings, given, owners)
        learner.table = FactorTable.restored(settings.rank, settings.seed, state["table"], state["field_ids"], own)
        return learner

    def __reduce__(self) -> Any:
        return FMLearner.from_state, (self.settings, self.state)

    def step(self, chunk: Chunk) -> Progress:
        """Learns the rows of a chunk, in order; the first ones wait until there are a thousand."""
        progress = Progress()
        self._finished = None
        for rows in self.waiting.ready(chunk, self._rows_needed, self._announce):
            if not self.unit:
                self._learn(rows.span(0, FIRST_ROWS), progress)
                rows = rows.span(FIRST_ROWS, rows.n_rows)
            self._learn(rows, progress)
        return progress

    def scores(self, chunk: Chunk, n_threads: int = 1) -> Array:
        """Raw scores, shape (rows, outputs), in the units of targets; features never learned count for nothing."""
        if (shown := self.finished()) is not self:
            return shown.scores(chunk, n_threads)
        self._match_outputs()
        rows = self._sized(chunk)
        self.grow_features(rows.n_features)
        placed = self.slots.find(rows)
        out = np.empty((chunk.n_rows, self.n_outputs))
        if not self.table.n:
            out[...] = self.shift + self.scale * self.bias[0]
            return out
        done = placed.n_rows
        if done == chunk.n_rows:
            done = kernels.fm_scores(placed.as_rows(), self._arrays(), self._choices(), out, n_threads)
        if done < chunk.n_rows:
            refuse_bad_row(chunk, done)
        for visit in np.flatnonzero(~np.isfinite(out).all(axis=1)).tolist():  # beyond float32
            refuse_bad_row(chunk, visit)
            bias, linear, pairs = self.parts_of(rows.span(visit, visit + 1).packed())
            out[visit] = bias + linear.sum(axis=0) + pairs.sum(axis=(0, 1))
        return out

    # ------------------------------------------------------------------------------------------- what was learned

    def weights(self) -> tuple[Array, Array]:
        """(linear weights of the features in use, shape (features, outputs); biases), in the machine's units."""
        shown = self.finished()
        return shown.table.used[:, :, 0], shown.bias[0]

    def used_weights(self) -> tuple[Array, Array, Array]:
        """(features in use in ascending order, their linear weights by output, biases), in units of rows and targets.

        With `normalise` the weights are those of a row of length 1.
        """
        shown = self.finished()
        order = np.argsort(shown.slots.owners)
        owners = shown.slots.owners[order]
        weights = shown.table.used[order, :, 0] * (
            shown.scale * (1.0 if self.settings.normalise else (shown.unit or 1.0))
        )
        return owners, weights, shown.shift + shown.scale * shown.bias[0]

    def parts_of(self, row: Chunk) -> tuple[Array, Array, Array]:
        """What one row's score is made of, by output: (bias, linear[i] of each entry, pairs[i, j] of two, i < j)."""
        shown = self.finished()
        most = np.finfo(np.float32).max  # a row in the units of its columns may be beyond it
        x = np.clip(row.values.astype(np.float64), -most, most)
        length = math.sqrt(float(x @ x))
        x = x * ((1 / length if length else 1.0) if self.settings.normalise else (shown.unit or 1.0))
        shown.grow_features(row.n_features)
        slots = shown.slots.of(row.indices)
        known = np.flatnonzero(slots >= 0)
        w, _, v = shown.table.parts(shown.table.used[slots[known]])
        facing = v[:, :, shown.table.field[slots[known]]].transpose(0, 2, 1, 3).astype(np.float64)  # v_i for j's field
        found = np.einsum("ijkc,jikc->ijk", facing, facing) * np.outer(x[known], x[known])[:, :, None]
        linear, pairs = np.zeros((len(x), len(self.signs))), np.zeros((len(x), len(x), len(self.signs)))
        linear[known] = w[..., 0] * x[known, None] * shown.scale
        pairs[np.ix_(known, known)] = np.where(np.tri(len(known), k=-1)[:, :, None] > 0, 0, found) * shown.signs
        pairs[np.arange(len(x)), np.arange(len(x))] = 0
        return shown.shift + shown.scale * shown.bias[0], linear, pairs * shown.scale

    def sized(self, rows: Chunk) -> Chunk:
        """The rows in the units of their columns, where rows are dense."""
        shown = self.finished()
        return self._sized(rows) if shown is self else shown.sized(rows)

    def heaviness(self, columns: Array) -> Array:
        """How heavy some features are: the largest weight of an output, or length of its factors."""
        heavy = np.zeros(len(columns))
        inside = np.flatnonzero(columns < self.n_features)
        slots = self.slots.of(columns[inside])
        known = slots >= 0
        w, _, v = self.table.parts(self.table.used[slots[known]])
        longest = np.sqrt(np.square(v).sum(axis=3).max(axis=2, initial=0))
        heavy[inside[known]] = np.maximum(np.abs(w[..., 0]), longest).max(axis=1, initial=0)
        return heavy

    def count_nonzero(self) -> int:
        """Weights and factors that are not zero."""
        w, _, v = self.table.parts(self.table.used)
        return int(np.count_nonzero(w[..., 0]) + np.count_nonzero(v))

    def penalty(self) -> float:
        """Returns 0: L2 acts on the features of each row when it is learned, so it is no term of the mean loss."""
        return 0.0

    @property
    def step_size(self) -> float:
        """The step size before AdaGrad divides it."""
        return self.eta0

    def keep_good_state(self) -> None:
        """Copies the state, to return to if learning diverges; rolls back if it has overflowed already."""
        if not all_finite(self.table.used):
            self.roll_back(Progress())
        elif not self.good.is_recent(self.rows_learned, len(self.signs)):
            self.good.keep({"table": self.table.used, "bias": self.bias}, self.rows_learned, len(self.signs))

    def roll_back(self, progress: Progress) -> None:
        """Returns to the last good state with half the step size, because scores overflowed."""
        self.eta0 = self.good.halve_step(self.eta0, self.rows_learned, progress)
        kept, table = self.good.restored(), self.table
        same = self.good.exists and kept["table"].shape[1:] == table.numbers.shape[1:]  # no output or field since
        self.bias = kept["bias"] if same else self._first_bias()
        table.refill(kept["table"] if same else table.numbers[:0], self.slots.owners)
        self._finished = None

    # ---------------------------------------------------------------------------------------------------- the step

    def _rows_needed(self) -> int:
        return 1 if self.unit else FIRST_ROWS

    def _announce(self, rows: Chunk) -> None:
        self.targets.announce(rows)
        self.grow_features(rows.n_features)

    def grow_features(self, n_features: int) -> None:
        """Makes room for more features."""
        self.n_features = max(self.n_features, n_features)
        self.slots.grow(self.n_features)

    def _learn(self, rows: Chunk, progress: Progress) -> None:
        self.grow_features(rows.n_features)
        if not self.unit and rows.n_rows:
            self._survey(rows)
        rows, start = self._sized(rows), 0
        while start < rows.n_rows:
            edge = self.good.next_rows(self.rows_learned)
            part = rows.span(start, min(rows.n_rows, start + edge - self.rows_learned))
            coded = self.targets.code_rows(part).packed()
            self._match_outputs()
            self._learn_by(self._run_kernel, coded, progress)
            start += coded.n_rows
            if self.rows_learned >= edge:
                self.keep_good_state()

    def _survey(self, rows: Chunk) -> None:
        """Measures the scales of columns, rows and targets on the first rows."""
        refuse_bad_rows(rows)
        self._announce(rows)
        self._match_outputs()
        if self.settings.task != "classify":
            self.targets.measure_spread(self.targets.code(rows))
            if self.targets.loss.kind == "real":
                self.shift, self.scale = self.targets.shift.copy(), self.targets.scale.copy()
            self.bias = self._first_bias()
        self.sizes = Sizes.of([rows], centred=True)
        values = self._sized(rows).packed().values.astype(np.float64)
        square = float(values @ values) / rows.n_rows
        self.unit = 1 / math.sqrt(square) if square > 0 else 1.0

    def _first_bias(self) -> Array:
        """The bias to start from: the logarithm of the mean for counts, else zero."""
        bias = np.zeros((2, len(self.signs)))
        if self.targets.loss.kind == "count" and len(self.targets.shift) == len(self.signs):
            bias[0] = self.targets.shift
        return bias

    def _sized(self, rows: Chunk) -> Chunk:
        if self.sizes is None:
            return rows
        refuse_bad_rows(rows, check_values=False)
        return self.sizes.applied(rows)

    def _match_outputs(self) -> None:
        """Makes room for the outputs that targets need."""
        before, n = len(self.signs), self.n_outputs
        if before == n:
            return
        negated = before == 1 and not self.several_targets
        self.bias, self.signs = np.pad(self.bias, ((0, 0), (0, n - before))), np.ones(n)
        self.shift, self.scale = np.zeros(n), np.ones(n)
        if negated:  # one output was "second class against first": negated, it is the first one's
            self.bias[:, 1] = self.bias[:, 0]
            self.bias[0, 0] *= -1
            self.signs[0] = -1
        self.table.match_outputs(n, self.slots.owners, negated=negated)
        self.good.forget()

    def _run_kernel(self, coded: Chunk) -> Outcome:
        part, owners = self.slots.take_in(coded), self.slots.owners
        if self.slots.n > self.table.n:
            self.table.take_in(owners, own_fields(self.settings, self.given_fields, owners))
        rows = kernels.Rows(part.indptr, part.indices, part.values, part.y, part.weight)
        return kernels.fm_learn(rows, self._arrays(), self._choices())

    def _choices(self) -> kernels.FmChoices:
        s = self.settings
        return kernels.FmChoices(
            loss=self.targets.loss.code,
            target_kind=self.targets.kind,
            eta=self.eta0,
            l2=s.l2,
            start_square=START_SQUARE,
            unit=0.0 if s.normalise else (self.unit or 1.0),
        )

    def _arrays(self) -> kernels.FmArrays:
        loss = self.targets.loss
        unit = self.scale**2 if loss.name in ("squared", "huber") else self.scale
        number = self.settings.loss_parameter / (self.scale if loss.parameter == "epsilon" else np.ones_like(unit))
        gain = 1 / np.clip(number, 1e-9, 1.0) if loss.name == "huber" else np.ones_like(unit)  # its gradients end there
        return self.table.arrays(self.bias, np.stack([self.signs, self.shift, self.scale, unit, number, gain]))


def own_fields(s: FMSettings, given: Array | None, features: Array) -> Array:
    """The fields of features, by their own numbers."""
    if not s.fields:
        return np.zeros(len(features), np.int64)
    if given is None:
        return features.astype(np.int64) >> s.field_bits
    if len(features) and int(features.max()) >= len(given):
        raise DataError(
            f"the rows have the feature {int(features.max())}, but fields= has {len(given)} numbers; "
            "give one per feature"
        )
    return given[features]
