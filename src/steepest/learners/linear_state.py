"""The arrays of a linear learner: what they hold, how they grow with features and classes, and how they are saved.

A table has a row for every feature and a column for every output, with room for more; or, with many features and
outputs, a row for every feature that was seen (see slots); or all outputs share one table of fixed size.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from steepest import kernels
from steepest.data.chunk import Array, Chunk, DataError
from steepest.learners.base import State, pending_rows, pending_state
from steepest.learners.labels import LabelBook
from steepest.learners.linear_settings import ACCUMULATORS, ADAPTIVE, AVERAGES, LinearSettings
from steepest.learners.losses import LOSSES, Loss, loss_for
from steepest.learners.packed import Packed
from steepest.learners.slots import Slots

TARGETS, ONE_VS_REST, SOFTMAX = 0, 1, 2
# The last good state is kept after 2^16 rows, 2^17, ..., and at the ends of epochs unless it has half the rows: copies
# cost little, and at most half the work can be lost.
# With many weights the first copy waits until the rows outweigh it.
FIRST_SNAPSHOT_ROWS = 1 << 16
WEIGHTS_A_SNAPSHOT_ROW = 16
LARGEST_TABLE_BYTES = 1 << 33
# Weights from which on a table of three outputs or more has rows for the features seen only: 16 MB of float32.
SLOTTED_WEIGHTS = 1 << 22
# Room that such a table starts with. Memory is taken where it is first touched, so it costs nothing.
ROOM_BYTES = 1 << 30
WIDE = ("v", "average")  # a column an output
BY_FEATURE = (*WIDE, "shrunk")  # a row a feature, or a slot
BIASES = ("bias", "bias_square", "bias_average", "bias_start")
CLOCK = ("t", "steps", "scale", "shrink", "shrink_debt", "average_scale", "average_weight")


@dataclass(slots=True)
class Snapshot:
    """A state to return to; large tables are packed."""

    arrays: dict[str, Array | Packed]
    n_outputs: int
    rows_learned: int

    def unpacked(self) -> dict[str, Array]:
        """The arrays, of which those that were not packed are the snapshot's own."""
        return {name: kept.unpacked() if isinstance(kept, Packed) else kept for name, kept in self.arrays.items()}


class LinearState:
    """All that a linear learner has learned or needs to go on."""

    def __init__(self, settings: LinearSettings, n_features: int = 0, labels: Sequence[Any] = ()) -> None:
        self.settings = settings
        self.loss: Loss = LOSSES[loss_for(settings.loss, 1)]
        self.loss_is_open = settings.loss == "auto"  # until the first rows show how many outputs there are
        self.book = LabelBook(labels)
        self.n_features = n_features
        self.shared = settings.table_bits > 0  # all outputs share one table of fixed size
        self.n_outputs = self._count_outputs()
        self.several_targets = False  # y has a column per output: multi-label or multi-output
        self.has_bare_rows = False  # multi-label rows without any label
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
        self._good: Snapshot | None = None
        self._first_snapshot = _first_snapshot(n_features)
        self._shown: tuple[Array, Array, Slots | None] | None = None
        self._norms: tuple[float, float, int] | None = None  # of the table, until the next row
        self._coded: tuple[Any, Any, Array, Array | None] | None = None

    def _count_outputs(self) -> int:
        """Two classes share one column, unless all share a table: there a column cannot be negated later."""
        n = len(self.book)
        return max(2, n) if self.shared else (1 if n == 2 else max(1, n))

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
                float(self.has_bare_rows),
                math.nan if self.loss_is_open else self.loss.code,
            ]
        )
        state["class_counts"] = self.class_counts
        state["labels"] = np.array(self.book.labels)
        return state | pending_state(self.pending)

    @classmethod
    def from_state(cls, settings: LinearSettings, state: State) -> Self:
        """The learner that had this state."""
        learner = cls(settings, 0, state["labels"].tolist())
        counters = state["counters"]
        learner.n_features, learner.n_outputs = int(counters[0]), int(counters[1])
        learner._first_snapshot = _first_snapshot(learner.n_features)
        learner.eta0 = None if math.isnan(counters[2]) else float(counters[2])
        learner.bias_scale = float(counters[3])
        learner.rows_learned, learner.rollbacks = int(counters[4]), int(counters[5])
        learner.several_targets = bool(counters[6])
        learner.has_bare_rows = bool(counters[7]) if len(counters) > 7 else True  # older files do not say
        if learner.loss_is_open and not math.isnan(counters[8]):
            learner._take_loss(int(counters[8]))
        learner.class_counts = np.array(state["class_counts"])
        learner.arrays = learner._copied({name: state[name] for name in learner.arrays})
        if "owners" in state:
            learner.slots = Slots(learner.n_features, np.asarray(state["owners"]))
        learner.pending = pending_rows(state, learner.n_features)
        return learner

    def decide_loss(self) -> None:
        """What loss="auto" stands for, by the classes or targets known so far."""
        if self.loss_is_open:
            n_problems = self.n_outputs if self.several_targets or len(self.book) > 2 else 1
            self._take_loss(LOSSES[loss_for("auto", n_problems)].code)

    def _take_loss(self, code: int) -> None:
        self.loss = next(loss for loss in LOSSES.values() if loss.code == code)
        self.loss_is_open = False

    def clone(self) -> Self:
        """An independent copy."""
        copy = type(self).from_state(self.settings, self.state)
        copy.n_threads, copy.may_have_slots = self.n_threads, self.may_have_slots
        return copy

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

    @property
    def unit(self) -> int:
        """Rows that are learned together: a mini-batch, or a round of all replicas."""
        s = self.settings
        return s.batch_size if s.n_replicas == 1 else s.n_replicas * self._rows_each()

    def _rows_each(self) -> int:
        batch = self.settings.batch_size
        return math.ceil(self.settings.sync_every / batch) * batch

    def _clock(self, name: str) -> float:
        return float(self.arrays["clock"][CLOCK.index(name)])

    def _live(self, table: Array) -> Array:
        """The part of a table that is in use: it has room for more features, unless all share it."""
        if self.shared:
            return table
        return table[: self.n_features if self.slots is None else self.slots.n, ..., : self.n_outputs]

    def _used_arrays(self) -> dict[str, Array]:
        """The arrays, tables without the rows that no feature has yet."""
        if self.slots is None:
            return dict(self.arrays)
        return {name: array[: self.slots.n] if name in BY_FEATURE else array for name, array in self.arrays.items()}

    def _most_columns(self) -> int:
        return self.n_features if self.shared or self.slots is not None else len(self.arrays["v"])

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
            **self._new_tables(shape),
            **{name: np.zeros(k) for name in BIASES},
            "clock": np.zeros(len(CLOCK)),
        }
        arrays["clock"][CLOCK.index("scale")] = 1.0
        return arrays

    def _new_tables(self, shape: tuple[int, ...]) -> dict[str, Array]:
        """Empty tables with a row a feature. A single weight and its average are neighbours, and share a cache line."""
        s = self.settings
        tables = {"shrunk": np.zeros(shape[0])} if s.l1 > 0 and s.rule not in ADAPTIVE else {}
        if s.average == "no":
            return tables | {"v": np.zeros(shape, s.dtype)}
        if self.shared or shape[1] > 1:
            return tables | {name: np.zeros(shape, s.dtype) for name in WIDE}
        pair = np.zeros((shape[0], 2, shape[1]), s.dtype)
        return tables | {"v": pair[:, 0], "average": pair[:, 1]}

    def _copied(self, arrays: Mapping[str, Array]) -> dict[str, Array]:
        """Copies of arrays, tables as they are laid out here."""
        copies = {name: np.array(array) for name, array in arrays.items() if name not in BY_FEATURE}
        for name, table in self._new_tables(arrays["v"].shape).items():
            table[...] = arrays[name]
            copies[name] = table
        return copies

    def _move_tables(self, n_rows: int, old_rows: Any, new_rows: Any) -> None:
        """Tables of n_rows, where some rows stand in new places and the others are empty."""
        for name, table in self._new_tables((n_rows, *self.arrays["v"].shape[1:])).items():
            table[new_rows] = self.arrays[name][old_rows]
            self.arrays[name] = table

    def _refuse_huge_table(self, n_entries: int) -> None:
        size = n_entries * np.dtype(self.settings.dtype).itemsize
        if size > LARGEST_TABLE_BYTES:
            numbers = len(self.book) > 2 and all(isinstance(label, float) for label in self.book.labels)
            regress = "; if the labels are numbers to be told, learn a regression (--task regress)" if numbers else ""
            raise DataError(
                f"the weights would take {size / 2**30:.1f} GB for {self.n_features:,} features and "
                f"{self.n_outputs} outputs; check the largest feature index, or hash the features to fewer{regress}"
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
        self._move_tables(size, slice(None), slice(room))

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
        if len(owners):
            self._move_tables(len(wide[0]), owners, slice(len(owners)))

    def keep_whole_tables(self) -> None:
        """A row for every feature from now on, for those that add up the tables of several learners."""
        self.may_have_slots = False
        self._drop_slots()
        self._grow_features(self.n_features)

    def _drop_slots(self) -> None:
        """A row a feature again."""
        if self.slots is None:
            return
        self._move_tables(self.n_features, slice(self.slots.n), self.slots.owners)
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
        v = self.arrays["v"]
        size = min(self.n_features, max(self.slots.n, 2 * len(v), ROOM_BYTES // max(1, v[:1].nbytes)))
        self._refuse_huge_table(size * math.prod(v.shape[1:]))
        self._move_tables(size, slice(None), slice(len(v)))


def _first_snapshot(n_features: int) -> int:
    """The row after which the state is kept first. It depends on what is known before any row, not on chunks."""
    edge = FIRST_SNAPSHOT_ROWS
    while edge * WEIGHTS_A_SNAPSHOT_ROW < n_features:
        edge *= 2
    return edge


def kernel_tables(arrays: Mapping[str, Array]) -> tuple[Array, Array | None]:
    """(weights, their averages) as the kernels take them: neighbours come as one table."""
    v, average = arrays["v"], arrays.get("average")
    if average is None or v.base is None or v.base is not average.base:
        return v, average
    return v.base[: len(v)], None
