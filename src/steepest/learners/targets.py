"""Targets of any kind in the form in which a loss takes them: classes, several labels, one number or several.

One output stands for two classes (-1, +1), one output each for more of them; columns of y have one output each. Classes
may appear at any time. The losses of a row are added up over its outputs; the soft maximum is one loss over all.
Real targets are learned in units of their own spread: score = shift + scale output, and slopes are those of the loss of
the output against (y - shift) / scale.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from steepest import kernels
from steepest.data.chunk import Array, Chunk, DataError
from steepest.learners.labels import LabelBook
from steepest.learners.losses import LOSSES


class Targets:
    """What the outputs stand for, and the loss of scores against targets."""

    def __init__(self, task: str, loss: str, parameter: float, class_weight: Any, labels: Sequence[Any] = ()) -> None:
        self.task = task
        self.softmax = loss == "softmax"
        self.loss = LOSSES["log" if self.softmax else loss]
        self.parameter = parameter
        self.class_weight = class_weight
        self.book = LabelBook(labels)
        self.several = False  # y has a column an output: multi-label or multi-output
        self.n_outputs = len(labels) if len(labels) > 2 else 1
        self.counts = np.zeros(max(2, len(labels)))
        self.shift = np.zeros(self.n_outputs)
        self.scale = np.ones(self.n_outputs)

    def announce(self, rows: Chunk) -> None:
        """Takes in the shape of y and the classes in it, in the order in which they would be learned."""
        if rows.y is None:
            raise DataError("the data has no targets to learn from; give y or read a file with labels")
        if rows.y.ndim == 2:
            self._announce_columns(rows.y.shape[1])
        elif self.several:
            raise DataError("y changed from several columns to one; keep its shape")
        elif self.task == "classify":
            self._announce_classes(rows)

    def _announce_columns(self, n_columns: int) -> None:
        if not self.several and len(self.book):
            raise DataError("y changed from one column to several; keep its shape")
        if self.several and n_columns != self.n_outputs:
            raise DataError(f"y has {n_columns} columns where {self.n_outputs} were learned; keep their number")
        self.several, self.n_outputs = True, n_columns

    def _announce_classes(self, rows: Chunk) -> None:
        assert rows.y is not None
        y = rows.visited(rows.y)
        unknown = y[self.book.codes(y) < 0]
        for label in dict.fromkeys(unknown.tolist()):
            self.book.add(label)
        n = len(self.book)
        self.n_outputs = n if n > 2 else 1
        self.counts = np.append(self.counts, np.zeros(max(0, n - len(self.counts))))

    @property
    def has_codes(self) -> bool:
        """Whether coded targets are the numbers of classes, and not a row of targets an output."""
        return self.task == "classify" and self.n_outputs > 1 and not self.several

    def code(self, rows: Chunk, *, grow: bool = False) -> Array:
        """Targets of the rows visited: class codes, or a row of targets an output; `grow` takes in new classes."""
        if rows.y is None:
            raise DataError("the data has no targets to learn from; give y or read a file with labels")
        y = rows.visited(rows.y)
        if self.task == "classify" and y.ndim == 1 and not self.several:
            codes = self.book.codes(y)
            if grow and codes.min(initial=0) < 0:
                self.announce(rows)
                codes = self.book.codes(y)
            if codes.min(initial=0) < 0:
                label = y[int(codes.argmin())]
                known = ", ".join(map(repr, self.book.labels[:10]))
                raise DataError(f"the label {label!r} was never seen in training; the classes are {known}")
            return codes if self.n_outputs > 1 else 2.0 * codes[:, None] - 1.0
        if y.dtype.kind not in "biuf":
            raise DataError(f"the target {y.ravel()[0]!r} is not a number; a regression needs numbers")
        y = y.astype(np.float64, copy=False).reshape(len(y), -1)
        if y.shape[1] != self.n_outputs:
            raise DataError(f"y has {y.shape[1]} columns where {self.n_outputs} were learned; keep their number")
        if self.loss.kind == "count" and len(y) and y.min() < 0:
            raise DataError(f"the target {y.min():g} is negative; loss={self.loss.name!r} needs counts")
        return np.where(y > 0, 1.0, -1.0) if self.task == "classify" else y

    def code_known(self, rows: Chunk) -> Array | None:
        """The same for many batches at once, or None if a class among them is new: it must wait its turn."""
        if self.task == "classify" and rows.y is not None and rows.y.ndim == 1 and not self.several:
            codes = self.book.codes(rows.visited(rows.y))
            if codes.min(initial=0) < 0:
                return None
            return codes.astype(np.int64) if self.n_outputs > 1 else 2.0 * codes[:, None] - 1.0
        return self.code(rows)

    def weigh(self, rows: Chunk, coded: Array) -> Array | None:
        """Weights of the rows visited, classes weighed as was wished; "balanced" counts the classes seen so far."""
        weight = None if rows.weight is None else rows.visited(rows.weight)
        if self.class_weight is None or self.task != "classify" or self.several:
            return weight
        codes = (coded if coded.ndim == 1 else (coded[:, 0] + 1) / 2).astype(np.int64)
        if self.class_weight == "balanced":
            self.counts += np.bincount(codes, minlength=len(self.counts))
            table = self.counts.sum() / (max(2, len(self.book)) * np.maximum(self.counts, 1))
        else:
            table = np.array([float(self.class_weight.get(label, 1.0)) for label in self.book.labels])
        factors: Array = table[codes]
        return factors if weight is None else factors * weight

    @property
    def is_softmax(self) -> bool:
        """Whether the scores belong to one soft maximum."""
        return self.softmax and self.n_outputs > 1 and not self.several

    @property
    def slope_parameter(self) -> Any:
        """The parameter of the loss in the units of learning."""
        is_width = self.loss.kind == "real" and self.loss.parameter == "epsilon"
        return self.parameter / self.scale if is_width else self.parameter

    def look(self, coded: Array) -> None:
        """Sets shift and scale from some targets."""
        self.shift, self.scale = np.zeros(self.n_outputs), np.ones(self.n_outputs)
        if self.task == "classify":
            return
        if self.loss.kind == "count":
            self.shift = np.log(np.maximum(coded.mean(axis=0), 1e-3))
            return
        self.shift = coded.mean(axis=0) if self.loss.name == "squared" else np.median(coded, axis=0)
        spread = coded.std(axis=0)
        self.scale = np.where(spread > 0, spread, 1.0)

    def scores(self, output: Array) -> Array:
        """Outputs of a network as scores, in float64."""
        if self.task == "classify":
            return output.astype(np.float64)
        return np.asarray(self.shift + self.scale * output)

    def losses(self, scores: Array, coded: Array) -> Array:
        """Loss of each row."""
        if self.is_softmax:
            return self._softmax(scores, coded)[0]
        values = self.loss.value(scores, self._signs(coded), self.parameter)
        return np.asarray(np.asarray(values).sum(axis=1))

    def slopes(self, output: Array, coded: Array) -> Array:
        """d loss / d output, one row of outputs each, in the units of learning."""
        if self.is_softmax:
            return self._softmax(output.astype(np.float64), coded)[1]
        if self.loss.kind == "real":
            return np.asarray(self.loss.slope(output, (coded - self.shift) / self.scale, self.slope_parameter))
        return np.asarray(self.loss.slope(self.scores(output), self._signs(coded), self.parameter))

    def losses_and_slopes(self, output: Array, coded: Array, weight: Array | None) -> tuple[Array, Array]:
        """(loss of each row, slopes of the mean weighted loss by the outputs, of their type)."""
        n = len(output)
        if self.is_softmax:
            factor = np.full(n, 1.0 / n) if weight is None else weight / n
            losses, slopes = np.empty(n), np.empty_like(output)
            kernels.network_softmax(output, coded.astype(np.int64, copy=False), factor, losses, slopes)
            return losses, slopes
        slopes = self.slopes(output, coded) / n
        if weight is not None:
            slopes *= weight[:, None]
        return self.losses(self.scores(output), coded), slopes.astype(output.dtype)

    def _softmax(self, scores: Array, coded: Array) -> tuple[Array, Array]:
        places = (np.arange(len(scores)), coded.astype(np.int64))
        shifted = scores - scores.max(axis=1, keepdims=True)
        e = np.exp(shifted)
        total = e.sum(axis=1, keepdims=True)
        losses = np.log(total[:, 0]) - shifted[places]
        e /= total
        e[places] -= 1.0
        return losses, e

    def learned_losses(self, output: Array, coded: Array) -> Array:
        """Loss of each row in the units of learning: what `slopes` are the slopes of."""
        if self.loss.kind != "real":
            return self.losses(self.scores(output), coded)
        values = self.loss.value(output, (coded - self.shift) / self.scale, self.slope_parameter)
        return np.asarray(np.asarray(values).sum(axis=1))

    def _signs(self, coded: Array) -> Array:
        """Class codes as one against the rest."""
        return coded if coded.ndim == 2 else np.where(np.arange(self.n_outputs) == coded[:, None], 1.0, -1.0)
