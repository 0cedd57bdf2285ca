"""State and restore of learners and batch solvers: some of their arrays and numbers, by their names."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

import numpy as np

from steepest.data.chunk import Array
from steepest.learners.base import State

COUNTERS = "counters"  # the name under which a state holds all numbers


class Resumable:
    """Something that goes on to the same bits from the attributes that it names."""

    state_arrays: ClassVar[tuple[str, ...]] = ("w",)
    state_numbers: ClassVar[tuple[str, ...]] = ()

    @property
    def numbers(self) -> tuple[float, ...]:
        """What is needed to go on besides arrays."""
        return tuple(float(getattr(self, name)) for name in self.state_numbers)

    @property
    def state(self) -> dict[str, Array]:
        """All that is needed to go on."""
        arrays = {name: getattr(self, name) for name in self.state_arrays}
        return arrays | {COUNTERS: np.array(self.numbers)}

    def restore(self, state: State) -> None:
        """Goes on from there."""
        for name in self.state_arrays:
            setattr(self, name, np.array(state[name]))
        self.restore_numbers(state[COUNTERS].tolist())
        self.restored()

    def restore_numbers(self, numbers: Iterable[float]) -> None:
        """Takes back what `numbers` gave."""
        for name, number in zip(self.state_numbers, numbers, strict=True):
            kind = type(getattr(self, name))
            setattr(self, name, kind(number) if kind in (bool, int) and number.is_integer() else number)

    def restored(self) -> None:
        """Finds again what follows from the state, where that is something."""
