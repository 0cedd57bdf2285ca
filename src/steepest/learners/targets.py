"""Targets of any kind in the form in which kernels and losses take them: classes, several labels, numbers.

Two classes share one output (-1, +1), more have one output each; columns of y have one output each. Classes may appear
at any time. The losses of a row are added up over its outputs; the soft maximum is one loss over all.
Class weights multiply the weights of rows: "balanced" is n / (classes * weight of the class), counted over the rows
seen so far where not all are known beforehand.
Networks learn numbers in units of their own spread: score = shift + scale output, and gradients are those of the loss
of the output against (y - shift) / scale.

Two forms of coded targets: `code_rows` gives one for each row of the block, in which kernels look up the rows that they
visit; `code` gives those of the visited rows only, a row of targets per output or the numbers of classes.
`TargetLearner` is what the learners with such targets share.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Self

import numpy as np

from steepest import kernels
from steepest.data.chunk import Array, Chunk
from steepest.errors import DataError, ParameterError
from steepest.learners.base import Progress, State
from steepest.learners.losses import LOSSES, loss_for
from steepest.learners.resumable import UNKNOWN, Resumable
from steepest.learners.snapshot import LastGoodState
from steepest.learners.waiting import WaitingRows, finished
from steepest.parameters import at_least, shown


def distinct(y: Array) -> Array:
    """The distinct values of y, sorted; two classes, the usual case, are found without sorting."""
    two = _at_most_two(y) if y.ndim == 1 else None
    return np.unique(y if two is None else two)


def by_appearance(y: Array) -> list[Any]:
    """The distinct values of y in the order of their first rows; two classes are found without a set of all."""
    two = _at_most_two(y)
    return list(dict.fromkeys((y if two is None else two).tolist()))


def _at_most_two(y: Array) -> Array | None:
    """The first value of y and the first other one, if there are no more; else None."""
    if not len(y) or y.dtype.kind not in "biuf":
        return None
    other = y != y[0]
    second = y[int(other.argmax())]
    return np.array([y[0], second], dtype=y.dtype) if (~other | (y == second)).all() else None


class LabelBook:
    """The labels by their codes 0, 1, 2, ..., which are given in the order of first appearance."""

    def __init__(self, labels: Iterable[Any] = ()) -> None:
        self.labels: list[Any] = []
        self._sorted: tuple[Array, Array] | None = None
        self._codes: dict[Any, int] = {}
        for label in labels:
            self.add(label)

    def __len__(self) -> int:
        return len(self.labels)

    def __contains__(self, label: Any) -> bool:
        return label in self._codes

    def add(self, label: Any) -> None:
        """Gives a label the next code."""
        plain = label.item() if isinstance(label, np.generic) else label
        self._codes[plain] = len(self.labels)
        self.labels.append(plain)
        self._sorted = None

    def codes(self, y: Array) -> Array:
        """The code of every target as float64; -1 for unknown labels."""
        if len(self.labels) == 2 and y.dtype.kind in "biuf" and not isinstance(self.labels[0], str):
            second = y == self.labels[1]
            known = second | (y == self.labels[0])
            return second.astype(np.float64) if known.all() else np.where(known, second, -1.0)
        codes = np.full(len(y), -1.0)
        if len(self.labels) <= 4 and y.dtype.kind in "biuf":
            for code, label in enumerate(self.labels):
                if not isinstance(label, str):
                    codes[y == label] = code
            return codes
        if len(y) <= 256:  # a mini-batch: sorting it would cost more
            return np.array([self._codes.get(value, -1) for value in y.tolist()], dtype=np.float64)
        values, inverse = np.unique(y, return_inverse=True)
        table = np.array([self._codes.get(value, -1) for value in values.tolist()], dtype=np.float64)
        return np.asarray(table[inverse.reshape(-1)])

    def sorted_labels(self) -> tuple[Array, Array]:
        """(labels in sorted order, their codes)."""
        if self._sorted is None:
            whole = all(isinstance(label, float) and label.is_integer() for label in self.labels)
            labels = np.array([int(label) for label in self.labels] if whole else self.labels)
            order = np.argsort(labels, kind="stable")
            self._sorted = labels[order], order
        return self._sorted[0].copy(), self._sorted[1]


Outcome = tuple[int, int, float, float]  # of a kernel: rows learned, status of the next one, sums of losses and weights

# How kernels read y: a number per output, the number of a class (one against the rest), or of one soft maximum.
TARGETS, ONE_VS_REST, SOFTMAX = 0, 1, 2
LARGEST_TARGET = 1e100


class Targets:
    """Codes targets for kernels and computes losses and gradients of scores against them."""

    def __init__(
        self,
        task: str,
        loss: str,
        parameter: float = 0.0,
        class_weight: Any = None,
        labels: Sequence[Any] = (),
        *,
        column_per_class: bool = False,
    ) -> None:
        self.task = task
        self.softmax = loss == "softmax"
        self.loss = LOSSES["log" if self.softmax else loss_for(loss, 1)]
        self.loss_is_open = loss == "auto"  # until the first rows show how many outputs there are
        self.parameter = parameter
        self.class_weight = class_weight
        self.column_per_class = column_per_class  # also for two classes
        self.book = LabelBook(labels)
        self.several = False  # y has a column per output: multi-label or multi-output
        self.has_bare_rows = False  # multi-label rows without any label
        self.started = False  # some rows have shown the shape of y
        self.n_outputs = self._count_outputs()
        self.counts = np.zeros(max(2, len(labels)))  # rows of each class so far, under "balanced"
        self.shift = np.zeros(self.n_outputs)
        self.scale = np.ones(self.n_outputs)
        self._block: tuple[Any, Any, Array, Array | None] | None = None  # the last block: y, weight, and both coded

    def _count_outputs(self) -> int:
        n = len(self.book)
        return max(2, n) if self.column_per_class else n if n > 2 else 1

    @property
    def kind(self) -> int:
        """How kernels read the coded targets: TARGETS, ONE_VS_REST or SOFTMAX."""
        if self.task != "classify" or self.several or self.n_outputs == 1:
            return TARGETS
        return SOFTMAX if self.softmax else ONE_VS_REST

    @property
    def has_codes(self) -> bool:
        """Whether targets are coded as class indices, not as one target per output."""
        return self.kind != TARGETS

    @property
    def is_softmax(self) -> bool:
        """Whether the outputs are coupled by a softmax."""
        return self.kind == SOFTMAX

    def state(self) -> dict[str, Array]:
        """The arrays of a state: everything that was learned from rows."""
        loss = UNKNOWN if self.loss_is_open else self.loss.code
        shape = [self.n_outputs, self.several, self.has_bare_rows, self.started, loss]
        return {
            "targets": np.array(shape, np.float64),
            "class_counts": self.counts,
            "labels": np.array(self.book.labels),
        }

    def restore(self, state: State) -> None:
        """Restores what `state` gave, except for the labels, which the constructor got."""
        n_outputs, several, bare, started, loss = state["targets"].tolist()
        self.n_outputs, self.several = int(n_outputs), bool(several)
        self.has_bare_rows, self.started = bool(bare), bool(started)
        self.counts = np.array(state["class_counts"])
        if loss != UNKNOWN:
            self._take_loss(int(loss))

    def decide_loss(self) -> None:
        """Resolves loss="auto" from the classes or targets known so far."""
        if self.loss_is_open:
            n_problems = self.n_outputs if self.several or len(self.book) > 2 else 1
            self._take_loss(LOSSES[loss_for("auto", n_problems)].code)

    def _take_loss(self, code: int) -> None:
        self.loss = next(loss for loss in LOSSES.values() if loss.code == code)
        self.loss_is_open = False

    # ------------------------------------------------------------------------------------------- what rows show

    def announce(self, rows: Chunk) -> None:
        """Learns the shape of y and new classes from rows before they are learned, or wait; refuses bad targets."""
        y = _targets_of(rows)
        self._take_shape(y)
        if self.task == "classify" and y.ndim == 1:
            self._add_classes(label for label in by_appearance(rows.visited(y)) if label not in self.book)
        else:
            self._numbers(y)

    def _take_shape(self, y: Array) -> None:
        if y.ndim == 1 and self.several:
            raise DataError("y changed from several columns to one; keep its shape")
        if y.ndim == 2:
            if self.started and not self.several:
                raise DataError("y changed from one column to several; keep its shape")
            if self.several and y.shape[1] != self.n_outputs:
                raise DataError(f"y has {y.shape[1]} columns, in training it had {self.n_outputs}; keep their number")
            self.several, self.n_outputs = True, y.shape[1]
            if self.task == "classify" and not self.has_bare_rows:
                self.has_bare_rows = not (y > 0).any(axis=1).all()
        self.started = True

    def _add_classes(self, labels: Iterable[Any]) -> None:
        for label in labels:
            self.book.add(label)
        self.n_outputs = self._count_outputs()
        self.counts = np.pad(self.counts, (0, max(0, len(self.book) - len(self.counts))))
        self._block = None

    def measure_spread(self, coded: Array) -> None:
        """Sets shift and scale from a sample of coded targets."""
        self.shift, self.scale = np.zeros(self.n_outputs), np.ones(self.n_outputs)
        if self.task != "classify":
            self.shift = self.middle(coded)
        if self.loss.kind == "real":
            spread = coded.std(axis=0)
            self.scale = np.where(spread > 0, spread, 1.0)

    def middle(self, coded: Array) -> Array:
        """The constant score that numbers vary around: their mean, its logarithm for counts, or their median."""
        if self.loss.kind == "count":
            return np.asarray(np.log(np.maximum(coded.mean(axis=0), 1e-3)))
        return np.asarray(coded.mean(axis=0) if self.loss.name == "squared" else np.median(coded, axis=0))

    # ------------------------------------------------------------------------------------------- coded for kernels

    def code_rows(self, rows: Chunk, unit: int = 1) -> Chunk:
        """Codes the targets and weights of a block's rows for kernels; new classes are added in row order.

        If a unit of rows that are learned together has a new class, the result ends before that unit, unless it is the
        first one.
        """
        y = _targets_of(rows)
        if self._block is not None and self._block[0] is y and self._block[1] is rows.weight:
            return replace(rows, y=self._block[2], weight=self._block[3])
        self._take_shape(y)
        if self.task == "classify" and y.ndim == 1:
            codes = self.book.codes(y)
            if codes.min(initial=0) < 0 and len(unknown := np.flatnonzero(rows.visited(codes) < 0)):
                if unknown[0] >= unit:
                    return self.code_rows(rows.span(0, int(unknown[0]) // unit * unit).packed(), unit)
                self._add_classes(dict.fromkeys(rows.visited(y)[unknown[unknown < unit]].tolist()))
                return self.code_rows(rows, unit)
            weight = self._weigh_in_turn(rows, codes)
            np.maximum(codes, 0, out=codes)  # rows of the block that are not visited
            coded = 2.0 * codes - 1.0 if self.n_outputs == 1 else codes
        else:
            coded, weight = np.ascontiguousarray(self._numbers(y)), rows.weight
        if rows.order is not None and self.class_weight != "balanced":  # many chunks may visit the same block
            self._block = (y, rows.weight, coded, weight)
        return replace(rows, y=coded, weight=weight)

    def code_for_scoring(self, rows: Chunk) -> Chunk:
        """Rows with coded targets, for measuring only: unknown classes weigh 0, class weights are not applied."""
        y, weight = rows.visited(_targets_of(rows)), rows.weight
        coded = self._coded(y)
        if coded is None:
            codes = self.book.codes(y)
            weight = np.ones(len(rows.indptr) - 1) if weight is None else weight.copy()
            weight[rows.row_numbers[codes < 0]] = 0.0
            codes = np.maximum(codes, 0.0)
            coded = 2.0 * codes - 1.0 if self.n_outputs == 1 else codes
        if rows.order is not None:
            block = np.zeros((len(rows.indptr) - 1, *coded.shape[1:]))
            block[rows.order] = coded
            coded = block
        return replace(rows, y=coded, weight=weight)

    def _numbers(self, y: Array) -> Array:
        if y.dtype.kind not in "biuf":
            raise DataError(
                f"the target {y.ravel()[:1].tolist()[0]!r} is not a number; a regression needs numbers, "
                "so choose another label, or classify"
            )
        y = y.astype(np.float64, copy=False)
        n_columns = y.shape[1] if y.ndim == 2 else 1
        if n_columns != self.n_outputs:
            raise DataError(f"y has {n_columns} columns, in training it had {self.n_outputs}; keep their number")
        if self.loss.kind == "count" and len(y) and y.min() < 0:
            raise DataError(f"the target {y.min():g} is negative; loss={self.loss.name!r} needs counts")
        if self.task == "classify":
            return np.where(y > 0, 1.0, -1.0)
        refuse_huge_targets(y)
        return y

    def _weigh_in_turn(self, rows: Chunk, codes: Array) -> Array | None:
        """Weights of the block's rows; "balanced" counts classes up to and including each row."""
        if self.class_weight is None:
            return rows.weight
        if self.class_weight != "balanced":
            factors = self._given_weights()[codes.astype(np.int64)]
        else:
            visits = rows.row_numbers
            visited = codes[visits].astype(np.int64)
            seen = np.empty(len(visits))
            for k in range(len(self.book)):
                mine = visited == k
                seen[mine] = self.counts[k] + np.arange(1, int(mine.sum()) + 1)
            total = self.counts.sum() + np.arange(1, len(visits) + 1)
            self.counts += np.bincount(visited, minlength=len(self.counts))
            factors = np.ones(len(codes))
            factors[visits] = total / (max(2, len(self.book)) * seen)
        return factors if rows.weight is None else factors * rows.weight

    def _given_weights(self) -> Array:
        return np.array([float(self.class_weight.get(label, 1.0)) for label in self.book.labels])

    # ------------------------------------------------------------------------------------------- of visited rows

    def code(self, rows: Chunk, *, grow: bool = False) -> Array:
        """Codes the targets of visited rows: class indices, or one target per output; `grow` adds new classes."""
        if grow:
            self.announce(rows)
        return self._by_output(self._known(rows))

    def code_known(self, rows: Chunk) -> Array | None:
        """Like `code`, for many batches at once; None if a class among them is new."""
        coded = self._coded(rows.visited(_targets_of(rows)))
        return None if coded is None else self._by_output(coded)

    def _by_output(self, coded: Array) -> Array:
        return coded if self.has_codes else coded.reshape(len(coded), -1)

    def _known(self, rows: Chunk) -> Array:
        y = rows.visited(_targets_of(rows))
        coded = self._coded(y)
        if coded is None:
            label = y[self.book.codes(y) < 0][:1].tolist()[0]
            classes = ", ".join(shown(known) for known in self.book.labels[:10])
            raise DataError(f"the label {shown(label)} was never seen in training; the classes are {classes}")
        return coded

    def _coded(self, y: Array) -> Array | None:
        """Class codes (-1 and +1 for one output) or numbers; None if there is an unknown class."""
        if self.task != "classify" or y.ndim == 2 or self.several:
            return np.ascontiguousarray(self._numbers(y))
        codes = self.book.codes(y)
        if codes.min(initial=0) < 0:
            return None
        return 2.0 * codes - 1.0 if self.n_outputs == 1 else codes

    def weigh(self, rows: Chunk, coded: Array) -> Array | None:
        """Weights of the visited rows of a batch; "balanced" counts classes up to and including the batch."""
        weight = None if rows.weight is None else rows.visited(rows.weight)
        if self.class_weight is None or self.task != "classify" or self.several:
            return weight
        codes = (coded if coded.ndim == 1 else (coded[:, 0] + 1) / 2).astype(np.int64)
        if self.class_weight == "balanced":
            self.counts += np.bincount(codes, minlength=len(self.counts))
            table = self.counts.sum() / (max(2, len(self.book)) * np.maximum(self.counts, 1))
        else:
            table = self._given_weights()
        factors: Array = table[codes]
        return factors if weight is None else factors * weight

    # --------------------------------------------------------------------------------------- losses and gradients

    def row_losses(self, scores: Array, coded: Chunk) -> tuple[Array, Array]:
        """(loss of each row visited, its weight), for rows that `code_for_scoring` or `code_rows` has coded."""
        assert coded.y is not None
        weight = np.ones(len(scores)) if coded.weight is None else coded.visited(coded.weight)
        return self.losses(scores, coded.visited(coded.y)), weight

    def losses(self, scores: Array, coded: Array) -> Array:
        """The loss of each row."""
        if self.is_softmax:
            shifted = scores - scores.max(axis=1, keepdims=True)
            log_sum = np.log(np.exp(shifted).sum(axis=1))
            return np.asarray(log_sum - shifted[np.arange(len(scores)), coded.astype(np.int64)])
        values = self.loss.value(scores, self._signs(coded).reshape(scores.shape), self.parameter)
        return np.asarray(np.asarray(values).sum(axis=1))

    def _signs(self, coded: Array) -> Array:
        """Class indices as -1 and +1 per output."""
        return np.where(np.arange(self.n_outputs) == coded[:, None], 1.0, -1.0) if self.has_codes else coded

    def scores(self, output: Array) -> Array:
        """Outputs of a network as scores, in float64."""
        if self.task == "classify":
            return output.astype(np.float64)
        return np.asarray(self.shift + self.scale * output)

    @property
    def parameter_of_outputs(self) -> Any:
        """The parameter of the loss in the units of the outputs."""
        is_width = self.loss.kind == "real" and self.loss.parameter == "epsilon"
        return self.parameter / self.scale if is_width else self.parameter

    def gradients(self, output: Array, coded: Array) -> Array:
        """d loss / d output, a row of outputs for each row, in the units of outputs."""
        if self.is_softmax:
            e = np.exp(output.astype(np.float64) - output.max(axis=1, keepdims=True))
            e /= e.sum(axis=1, keepdims=True)
            e[np.arange(len(e)), coded.astype(np.int64)] -= 1.0
            return np.asarray(e)
        if self.loss.kind == "real":
            return np.asarray(self.loss.gradient(output, (coded - self.shift) / self.scale, self.parameter_of_outputs))
        return np.asarray(self.loss.gradient(self.scores(output), self._signs(coded), self.parameter))

    def losses_and_gradients(self, output: Array, coded: Array, weight: Array | None) -> tuple[Array, Array]:
        """(loss of each row, gradients of the mean weighted loss by the outputs, of their type)."""
        n = len(output)
        if self.is_softmax:
            factor = np.full(n, 1.0 / n) if weight is None else weight / n
            losses, gradients = np.empty(n), np.empty_like(output)
            kernels.network_softmax(output, coded.astype(np.int64, copy=False), factor, losses, gradients)
            return losses, gradients
        gradients = self.gradients(output, coded) / n
        if weight is not None:
            gradients *= weight[:, None]
        return self.losses(self.scores(output), coded), gradients.astype(output.dtype)


def _targets_of(rows: Chunk) -> Array:
    if rows.y is None:
        raise DataError("the data has no targets to learn from; give y or read a file with labels")
    return rows.y


# ------------------------------------------------------------------------------------------------------ class weights


def checked_class_weight(weight: Any) -> Any:
    """The parameter `class_weight`, checked: None, "balanced", or a dict of weights by label."""
    if weight is None or (isinstance(weight, str) and weight == "balanced"):
        return weight
    if not isinstance(weight, dict):
        raise ParameterError(f"class_weight={weight!r} is unknown; give None, 'balanced' or a dictionary")
    return {label: at_least(f"class_weight[{label!r}]", value, 0.0) for label, value in weight.items()}


def balanced_weights(sums: Mapping[Any, float]) -> dict[Any, float]:
    """Weights for "balanced" where all rows are known: n / (classes * weight of the class's rows)."""
    total = sum(sums.values())
    return {label: total / (len(sums) * max(weight, 1e-300)) for label, weight in sums.items()}


def weights_as_pairs(class_weight: Any) -> Any:
    """Class weights for a file as [label, weight] pairs, since JSON keys are strings."""
    return [[label, w] for label, w in class_weight.items()] if isinstance(class_weight, dict) else class_weight


def weights_from_pairs(plain: Any) -> Any:
    """Class weights from what `weights_as_pairs` gave."""
    return dict(plain) if isinstance(plain, list) else plain


# ----------------------------------------------------------------------------------------------------------- bad rows


def refuse_huge_targets(y: Array) -> None:
    """Raises if squares of the targets, or their sums, would overflow."""
    if len(y) and (largest := float(np.abs(y).max())) > LARGEST_TARGET:
        raise DataError(f"the target {largest:g} is too large; scale the targets to at most {LARGEST_TARGET:g}")


def refuse_bad_row(rows: Chunk, visit: int, n_columns: int | None = None) -> None:
    """Raises if the row has a bad index or value; returns if the weights are the cause. `n_columns`: of the table."""
    row = int(rows.row_numbers[visit])
    span = slice(int(rows.indptr[row]), int(rows.indptr[row + 1]))
    indices, values = rows.indices[span], rows.values[span]
    name = f"row {row + rows.first_id}"
    most = rows.n_features if n_columns is None else min(n_columns, rows.n_features)
    wrong = (indices < 0) | (indices >= most)
    if wrong.any():
        raise DataError(
            f"{name} has the column index {int(indices[wrong][0])}, but columns run from 0 "
            f"to {rows.n_features - 1}; the matrix is damaged, build it again"
        )
    wrong = ~np.isfinite(values)
    if wrong.any():
        kind = "NaN" if np.isnan(values[wrong][0]) else "infinity"
        raise DataError(
            f"Input X contains {kind}: {name}, column {int(indices[wrong][0])}; drop the row or fill the value"
        )


def refuse_bad_rows(rows: Chunk, n_columns: int | None = None, *, check_values: bool = True) -> None:
    """Raises if any visited row has a column index out of range or a value that is not a number."""
    packed = rows.packed()
    most = rows.n_features if n_columns is None else min(n_columns, rows.n_features)
    wrong = (packed.indices < 0) | (packed.indices >= most)
    if check_values:
        wrong |= ~np.isfinite(packed.values)
    if wrong.any():
        entry = int(np.flatnonzero(wrong)[0])
        refuse_bad_row(rows, int(np.searchsorted(packed.indptr, entry, side="right")) - 1, n_columns)


def only_known(rows: Chunk, n_features: int) -> Chunk:
    """The rows with the values of features that training has not seen set to 0."""
    if rows.n_features <= n_features:
        return rows
    rows = rows.packed()  # the block may be far larger than what is visited of it
    known = rows.indices < n_features
    indices, values = np.where(known, rows.indices, 0), np.where(known, rows.values, 0)
    return replace(rows, indices=indices.astype(np.int32), values=values.astype(np.float32))


class TargetLearner(Resumable):
    """The base of learners with targets: waiting rows, rollback, and losses by `targets`."""

    settings: Any
    targets: Targets
    waiting: WaitingRows
    good: LastGoodState
    n_features: int
    rows_learned: int
    n_threads: int = 1
    eta0: Any  # the first step size
    _finished: Any = None  # this learner with the rows that wait, until there are others

    @property
    def state(self) -> dict[str, Array]:
        """All arrays that were learned or are needed to continue."""
        return super().state | self.targets.state() | self.waiting.state()

    def restore(self, state: State) -> None:
        """Restores the learner from a state."""
        super().restore(state)
        self.targets.restore(state)
        self.waiting = WaitingRows.from_state(state, self.n_features)

    @classmethod
    def check_state(cls, settings: Any, state: State) -> None:
        """Raises ValueError unless a learner with these settings could have had this state."""

    @classmethod
    @abstractmethod
    def from_state(cls, settings: Any, state: State) -> Self:
        """Builds a learner from its settings and state."""

    def clone(self) -> Self:
        """An independent copy."""
        copy = self.from_state(self.settings, self.state)
        copy.n_threads = self.n_threads
        return copy

    def finish(self) -> Progress:
        """Learns the waiting rows, as if no others were to come."""
        self._finished = None
        return self.waiting.finish(self._learn)

    @abstractmethod
    def _learn(self, rows: Chunk, progress: Progress) -> None: ...

    def _learn_by(self, kernel: Callable[[Chunk], Outcome], coded: Chunk, progress: Progress) -> None:
        """Learns coded rows by a kernel; a row on which scores overflow is skipped after a rollback."""
        start = 0
        while start < coded.n_rows:
            part = coded.span(start, coded.n_rows) if start else coded
            done, status = self._count(kernel(part), progress)
            start += done
            if status == 0 and done == part.n_rows:
                return
            self.refuse_bad_row(part, done)
            self.roll_back(progress)
            start += 1
            self.rows_learned += 1

    def _count(self, outcome: Outcome, progress: Progress) -> tuple[int, int]:
        done, status, loss_sum, weight = outcome
        progress.add(Progress(done, weight, loss_sum))
        self.rows_learned += done
        return done, status

    def refuse_bad_row(self, rows: Chunk, visit: int) -> None:
        """Raises if the row has a bad index or value; returns if the weights are the cause."""
        refuse_bad_row(rows, visit, self.n_features)

    def roll_back(self, progress: Progress) -> None:
        """Returns to the last good state with half the step size, because scores overflowed."""

    def finished(self) -> Self:
        """This learner if no rows wait, else a copy that has learned them."""
        if self._finished is None:
            self._finished = finished(self)
        known: Self = self._finished
        return known

    def lower_step(self, factor: float) -> None:
        """Divides the step size."""
        self.eta0 /= factor

    @property
    def book(self) -> LabelBook:
        """The labels and their codes."""
        return self.targets.book

    @property
    def several_targets(self) -> bool:
        """Whether y has one column per output."""
        return self.targets.several

    @property
    def n_outputs(self) -> int:
        """The number of outputs, one column of scores each."""
        return self.targets.n_outputs

    @abstractmethod
    def scores(self, chunk: Chunk, n_threads: int = 1) -> Array:
        """Raw scores, shape (rows, outputs); each row is summed on its own, so any number of threads agrees."""

    def losses(self, coded: Chunk, scores: Array | None = None) -> tuple[Array, Array]:
        """(loss, weight) of each row visited, with targets coded; computes the scores unless they are given."""
        return self.targets.row_losses(self.scores(coded) if scores is None else scores, coded)

    def code_for_scoring(self, rows: Chunk) -> Chunk:
        """Rows with coded targets, for measuring only: unknown classes weigh 0, class weights are not applied."""
        return self.targets.code_for_scoring(rows)
