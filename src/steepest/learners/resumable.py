"""Saving and restoring learners and batch solvers, which name the arrays and numbers that make up their state."""

from __future__ import annotations

from collections.abc import Iterable
from operator import attrgetter
from typing import ClassVar

import numpy as np

from steepest.data.chunk import Array
from steepest.errors import DataError
from steepest.learners.base import State

COUNTERS = "counters"  # the name under which a state holds all numbers
UNKNOWN = -1e308  # in a state, for None: what only more rows will show


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
            value = None if number == UNKNOWN else number
            setattr(holder, last, kind(number) if kind in (bool, int) and number.is_integer() else value)

    def restored(self) -> None:
        """Hook: recomputes what follows from the restored state."""

    def refuse_overflow(self) -> None:
        """Raises if a number that was learned is not finite."""
        refuse_overflow(self.state)


def refuse_overflow(arrays: State) -> None:
    """Raises if an array holds a number that is not finite; counters of a run that goes on may be infinite."""
    for name, array in arrays.items():
        if array.dtype.kind == "f" and name != COUNTERS and not all_finite(array):
            raise overflow(f"numbers of {name!r} are", array.dtype)


def overflow(what: str, dtype: object) -> DataError:
    """The error for numbers that are no longer finite."""
    return DataError(
        f"learning overflowed: {what} beyond {dtype}; scale the features, targets and sample weights to about one, "
        "or choose a smaller eta0"
    )


def all_finite(table: Array) -> bool:
    """Whether all numbers are finite; their sum shows it in most cases without a mask array."""
    with np.errstate(over="ignore", invalid="ignore"):
        return bool(np.isfinite(table.sum()) or np.isfinite(table).all())
