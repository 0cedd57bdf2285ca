"""Saving and restoring learners and batch solvers, which name the arrays and numbers that make up their state."""

from __future__ import annotations

import math
from collections.abc import Iterable
from operator import attrgetter
from typing import ClassVar

import numpy as np

from steepest.data.chunk import Array
from steepest.learners.base import State

COUNTERS = "counters"  # the name under which a state holds all numbers
UNKNOWN = -1e308  # in a state, for None: what only more rows will show; NaN in files of older versions


def is_unknown(number: float) -> bool:
    """Whether a number of a state is the mark of an unknown value."""
    return number == UNKNOWN or math.isnan(number)


class Resumable:
    """A base of classes whose state consists of the attributes they name; a restored object continues bit for bit."""

    state_arrays: ClassVar[tuple[str, ...]] = ("w",)
    state_numbers: ClassVar[tuple[str, ...]] = ()  # also of parts, such as "good.rollbacks"

    @property
    def numbers(self) -> tuple[float, ...]:
        """The scalars of the state, by name."""
        numbers = (attrgetter(name)(self) for name in self.state_numbers)
        return tuple(UNKNOWN if number is None else float(number) for number in numbers)

    @property
    def state(self) -> dict[str, Array]:
        """All arrays that are needed to continue."""
        arrays = {name: getattr(self, name) for name in self.state_arrays}
        return arrays | {COUNTERS: np.array(self.numbers)}

    def restore(self, state: State) -> None:
        """Restores the attributes from a state."""
        for name in self.state_arrays:
            setattr(self, name, np.array(state[name]))
        self.restore_numbers(state[COUNTERS].tolist())
        self.restored()

    def restore_numbers(self, numbers: Iterable[float]) -> None:
        """Restores the scalars that `numbers` gave."""
        for name, number in zip(self.state_numbers, numbers, strict=False):  # old files may lack the last ones
            owner, _, last = name.rpartition(".")
            holder = attrgetter(owner)(self) if owner else self
            kind = type(getattr(holder, last))
            value = None if is_unknown(number) else number
            setattr(holder, last, kind(number) if kind in (bool, int) and number.is_integer() else value)

    def restored(self) -> None:
        """Hook: recomputes what follows from the restored state."""
