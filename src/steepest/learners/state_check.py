"""Is the state in a file one that its learner could have written? Asked before anything is built from it.

A checksum finds damage, not intent: a file may be forged with a valid one. So every learner says in `check_state` what
its arrays look like: names, types, shapes, ranges, and that all numbers are finite. Sizes are compared with the arrays
that the file holds, so that no number in it can ask for memory. What is wrong is a ValueError of one sentence; `load`
puts the name of the file in front of it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from steepest.data.chunk import Array
from steepest.learners.base import State
from steepest.learners.losses import LOSSES
from steepest.learners.resumable import COUNTERS, UNKNOWN, all_finite
from steepest.learners.waiting import MARK

MOST_FEATURES = (1 << 31) - 1
MOST_ROWS = 1 << 53  # whole numbers that a float64 can count
# Counters that are whole numbers, and their largest values; all others are numbers from 0 on.
WHOLE = {"n_features": MOST_FEATURES, "rows_learned": MOST_ROWS, "rollbacks": 1 << 10, "root": MOST_FEATURES}
WHOLE |= dict.fromkeys(("rows_since_check", "epoch_rows"), MOST_ROWS)
WHOLE |= dict.fromkeys(("sizes_open", "dense", "started", "holds_sums", "several_targets"), 1)
LEAST = {"bias_scale": -1.0, "mean": -1e300, "level": -1e300, "scale": 1e-300}
UNBOUNDED = ("low", "high", "best_loss")  # may be infinite
LOSS_CODES = {loss.code for loss in LOSSES.values()}


class StateCheck:
    """Checks the arrays of a state that was read from a file; `numbers` are its counters by name."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.numbers: dict[str, float] = {}

    @classmethod
    def of(cls, state: State, names: Sequence[str], array: str = COUNTERS, unknown: Sequence[str] = ()) -> StateCheck:
        """A check of a state whose numbers are finite and whose counters, the numbers in `array`, are in their ranges.

        Those in `unknown` may be unknown yet.
        """
        check = cls(state)
        for name, values in state.items():
            if values.dtype.kind in "fc" and name != array and not all_finite(values):
                raise ValueError(f"{name} holds numbers that are not finite")
        check.arrays({array: f"f8 {len(names)}"})
        own_names = (name.rpartition(".")[2] for name in names)
        check.numbers = dict(zip(own_names, state[array].tolist(), strict=True))
        for name, number in check.numbers.items():
            if name in WHOLE:
                check.whole(name, number, 0, WHOLE[name])
                continue
            least, most = (-math.inf, math.inf) if name in UNBOUNDED else (LEAST.get(name, 0.0), 1e300)
            if not least <= number <= most and not (name in unknown and number == UNKNOWN):
                raise ValueError(f"{name} is {number}")
        return check

    @property
    def n_features(self) -> int:
        """The counter `n_features`."""
        return int(self.numbers["n_features"])

    def arrays(self, forms: Mapping[str, str], **sizes: int) -> dict[str, int]:
        """Checks arrays against their forms, such as {"table": "f4 rows 8"}; returns the sizes that the forms name.

        A form is the beginning of a type, or several of them ("i|u"), and the size of each axis: a number, or a name
        that stands for the same size in all forms.
        """
        for name, form in forms.items():
            if name not in self.state:
                raise ValueError(f"{name} is missing")
            array, (kind, *sides) = np.asarray(self.state[name]), form.split()
            fits = len(sides) == array.ndim and all(
                size == (int(side) if side.isdigit() else sizes.setdefault(side, size))
                for side, size in zip(sides, array.shape, strict=True)
            )
            if not fits:
                raise ValueError(f"{name} has the shape {array.shape}, not {', '.join(sides)}")
            if not array.dtype.str[1:].startswith(tuple(kind.split("|"))):
                raise ValueError(f"{name} is of type {array.dtype}")
        return sizes

    def whole(self, what: str, number: float, least: int, most: int) -> int:
        """Checks that a number is whole and within a range."""
        if not (math.isfinite(number) and number == int(number) and least <= number <= most):
            raise ValueError(f"{what} is {number}")
        return int(number)

    def labels(self) -> int:
        """Checks the labels; returns their number."""
        n_labels = self.arrays({"labels": "b|i|u|f|U|S|O n"})["n"]
        values = self.state["labels"].tolist()
        if not all(isinstance(label, str | bytes | int | float | bool) for label in values):
            raise ValueError("a label is neither a text nor a number")
        if len(set(values)) != n_labels:
            raise ValueError("a label is there twice")
        return n_labels

    def targets(self, task: str, *, column_per_class: bool = False) -> int:
        """Checks the arrays of `Targets.state`; returns the number of outputs."""
        self.arrays({"targets": "f8 5", "class_counts": "f n"})
        n_labels, counts = self.labels(), self.state["class_counts"]
        n_outputs, *flags, loss = self.state["targets"].tolist()
        for flag in flags:
            self.whole("a flag of the targets", flag, 0, 1)
        if loss not in (UNKNOWN, *LOSS_CODES):
            raise ValueError(f"the loss has the number {loss}")
        k = self.whole("the number of outputs", n_outputs, 1, MOST_FEATURES)
        by_labels = max(2, n_labels) if column_per_class else n_labels if n_labels > 2 else 1
        if not flags[0] and k != (by_labels if task == "classify" else 1):
            raise ValueError(f"{k} outputs for {n_labels} labels")
        if task == "classify" and not flags[0] and self.numbers.get("rows_learned") and not n_labels:
            raise ValueError("a classifier that has learned rows has no labels")
        if len(counts) < n_labels or (counts < 0).any():
            raise ValueError("class_counts do not belong to the labels")
        return k

    def owners(self) -> Array:
        """Checks the features that own the rows of a table: each at most once."""
        self.arrays({"owners": "i4 rows"})
        owners = self.state["owners"]
        self.codes(owners, self.n_features, "owners")
        if len(np.unique(owners)) != len(owners):
            raise ValueError("a feature has two rows")
        return owners

    def sizes(self) -> None:
        """Checks the arrays of `Sizes.state`, if there are any."""
        if "size" in self.state:
            self.arrays({"centre": "f8 columns", "size": "f8 columns"}, columns=len(self.state["size"]))
            if not (self.state["size"] > 0).all():
                raise ValueError("the sizes of features are not positive numbers")

    def waiting(self, n_features: int) -> None:
        """Checks the waiting rows, a sparse block with targets and weights, if there are any."""
        if not any(name.startswith(MARK) for name in self.state):
            return
        forms = {"indptr": "i starts", "indices": "i entries", "values": "f entries"}
        sizes = self.arrays({MARK + name: form for name, form in forms.items()})
        n_rows = sizes["starts"] - 1
        self.pointers(self.state[f"{MARK}indptr"], sizes["entries"], f"{MARK}indptr")
        indices = self.state[f"{MARK}indices"]
        self.codes(indices, n_features or MOST_FEATURES, f"{MARK}indices")  # 0: not known before they are learned
        if f"{MARK}y" in self.state and len(np.asarray(self.state[f"{MARK}y"])) != n_rows:
            raise ValueError(f"{MARK}y has another length")
        if f"{MARK}weight" in self.state:
            self.arrays({f"{MARK}weight": "f rows"}, rows=n_rows)
            if (self.state[f"{MARK}weight"] < 0).any():
                raise ValueError(f"{MARK}weight is negative")
        if f"{MARK}time" in self.state:
            self.arrays({f"{MARK}time": "f8 rows"}, rows=n_rows)

    def pointers(self, indptr: Array, n_entries: int, name: str) -> None:
        """Checks row pointers, which run from 0 upwards to the number of entries."""
        if not len(indptr) or indptr[0] != 0 or indptr[-1] != n_entries or (np.diff(indptr) < 0).any():
            raise ValueError(f"{name} does not lead through the entries")

    def codes(self, codes: Array, n: int, name: str) -> None:
        """Checks indices, which must be below n."""
        if len(codes) and not (int(codes.min()) >= 0 and int(codes.max()) < n):
            raise ValueError(f"{name} holds a number that is not between 0 and {n - 1}")
