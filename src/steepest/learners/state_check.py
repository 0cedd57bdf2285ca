"""Is the state in a file one that its learner could have written? Asked before anything is built from it.

A checksum finds damage, not intent: a file may be forged with a valid one. So every learner says in `check_state` what
its arrays look like: names, types, shapes, ranges, and that all numbers are finite. Sizes are compared with the arrays
that the file holds, so that no number in it can ask for memory. What is wrong is a ValueError of one sentence; `load`
puts the name of the file in front of it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from steepest.data.chunk import Array
from steepest.learners.base import State
from steepest.learners.losses import LOSSES
from steepest.learners.resumable import COUNTERS
from steepest.learners.snapshot import MAY_BE_UNKNOWN, all_finite, is_unknown
from steepest.learners.waiting import MARK

MOST_FEATURES = (1 << 31) - 1
MOST_ROWS = 1 << 53  # whole numbers that a float64 can count
MOST_ROLLBACKS = 1 << 10
LOSS_CODES = {loss.code for loss in LOSSES.values()}


class StateCheck:
    """The arrays of a state, asked one after the other."""

    def __init__(self, state: State) -> None:
        self.state = state

    def refuse_overflow(self, but: Sequence[str] = MAY_BE_UNKNOWN) -> None:
        """All numbers are finite, but for arrays in which NaN means "not known yet"."""
        for name, array in self.state.items():
            if array.dtype.kind in "fc" and name not in but and not all_finite(array):
                raise ValueError(f"{name} holds numbers that are not finite")

    def array(self, name: str, kinds: str, shape: Sequence[int | None]) -> Array:
        """The array of this name: of one of these kinds of type, and of this shape, None for any size."""
        if name not in self.state:
            raise ValueError(f"{name} is missing")
        array = np.asarray(self.state[name])
        fits = len(shape) == array.ndim and all(
            want is None or want == size for want, size in zip(shape, array.shape, strict=True)
        )
        if not fits:
            raise ValueError(f"{name} has the shape {array.shape}, not {tuple(shape)}")
        if array.dtype.kind not in kinds:
            raise ValueError(f"{name} is of type {array.dtype}")
        return array

    def doubles(self, name: str, shape: Sequence[int | None]) -> Array:
        """The array of this name, of float64."""
        array = self.array(name, "f", shape)
        if array.dtype != np.float64:
            raise ValueError(f"{name} is of type {array.dtype}")
        return array

    def numbers(self, name: str, n: int) -> list[float]:
        """The numbers of a short array of float64."""
        found: list[float] = self.doubles(name, [n]).tolist()
        return found

    def features(self, number: float) -> int:
        """A number of features."""
        return self.whole("the number of features", number, 0, MOST_FEATURES)

    def rows(self, number: float) -> int:
        """A number of rows learned."""
        return self.whole("the number of rows learned", number, 0, MOST_ROWS)

    def rollbacks(self, number: float) -> int:
        """How often learning was rolled back."""
        return self.whole("the number of rollbacks", number, 0, MOST_ROLLBACKS)

    def flag(self, what: str, number: float) -> bool:
        """Yes or no."""
        return bool(self.whole(what, number, 0, 1))

    def whole(self, what: str, number: float, least: int, most: int) -> int:
        """A whole number within a range."""
        if not (math.isfinite(number) and number == int(number) and least <= number <= most):
            raise ValueError(f"{what} is {number}")
        return int(number)

    def inside(self, what: str, number: float, least: float, most: float = 1e300) -> float:
        """A number within a range."""
        if not least <= number <= most:
            raise ValueError(f"{what} is {number}")
        return float(number)

    def step_size(self, number: float) -> None:
        """A step size, or unknown before one was found."""
        if not is_unknown(number):
            self.inside("the step size", number, 0.0)

    def labels(self) -> int:
        """The labels; how many there are."""
        labels = self.array("labels", "biufUSO", [None])
        values = labels.tolist()
        if labels.dtype.kind == "O" and not all(isinstance(label, str | int | float | bool) for label in values):
            raise ValueError("a label is neither a text nor a number")
        if len(set(values)) != len(values):
            raise ValueError("a label is there twice")
        return len(labels)

    def targets(self, task: str, rows: float, *, column_per_class: bool = False) -> int:
        """What `Targets.state` wrote after so many rows; the number of outputs."""
        n_outputs, several, bare, started, loss = self.numbers("targets", 5)
        n_labels = self.labels()
        for what, number in (("several", several), ("bare", bare), ("started", started)):
            self.flag(what, number)
        if not is_unknown(loss) and loss not in LOSS_CODES:
            raise ValueError(f"the loss has the number {loss}")
        k = self.whole("the number of outputs", n_outputs, 1, MOST_FEATURES)
        by_labels = max(2, n_labels) if column_per_class else n_labels if n_labels > 2 else 1
        if not several and k != (by_labels if task == "classify" else 1):
            raise ValueError(f"{k} outputs for {n_labels} labels")
        if task == "classify" and not several and rows and not n_labels:
            raise ValueError("a classifier that has learned rows has no labels")
        counts = self.array("class_counts", "f", [None])
        if len(counts) < n_labels or (counts < 0).any():
            raise ValueError("class_counts do not belong to the labels")
        return k

    def waiting(self, n_features: int) -> None:
        """Rows that wait: a sparse block with targets and weights, if there are any."""
        if not any(name.startswith(MARK) for name in self.state):
            return
        indptr = self.array(f"{MARK}indptr", "i", [None])
        indices = self.array(f"{MARK}indices", "i", [None])
        self.array(f"{MARK}values", "f", [len(indices)])
        n_rows = len(indptr) - 1
        self.pointers(indptr, len(indices), f"{MARK}indptr")
        self.codes(indices, n_features or MOST_FEATURES, f"{MARK}indices")  # 0: not known before they are learned
        if f"{MARK}y" in self.state and len(np.asarray(self.state[f"{MARK}y"])) != n_rows:
            raise ValueError(f"{MARK}y has another length")
        if f"{MARK}weight" in self.state and (self.array(f"{MARK}weight", "f", [n_rows]) < 0).any():
            raise ValueError(f"{MARK}weight is negative")

    def pointers(self, indptr: Array, n_entries: int, name: str) -> None:
        """Where rows begin: from 0 upwards to the number of entries."""
        if not len(indptr) or indptr[0] != 0 or indptr[-1] != n_entries or (np.diff(indptr) < 0).any():
            raise ValueError(f"{name} does not lead through the entries")

    def codes(self, codes: Array, n: int, name: str) -> None:
        """Numbers of things, of which there are n."""
        if len(codes) and not (int(codes.min()) >= 0 and int(codes.max()) < n):
            raise ValueError(f"{name} holds a number that is not between 0 and {n - 1}")


def check_counters(state: State, n: int) -> tuple[StateCheck, list[float]]:
    """A check of all that is finite in a state, and its n counters."""
    check = StateCheck(state)
    check.refuse_overflow()
    return check, check.numbers(COUNTERS, n)
