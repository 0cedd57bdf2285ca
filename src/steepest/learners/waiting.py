"""Rows that wait until there are enough of them: for a first step size, or to fill a mini-batch or a round.

Thanks to them a learner's state does not depend on how a stream was cut into chunks. Waiting rows are a part of that
state. A learner passes every chunk through `ready` and puts back what it could not use:

    for rows in self.waiting.ready(chunk, self.rows_needed, self.announce):
        whole = rows.n_rows - rows.n_rows % batch_size
        learn(rows.span(0, whole))
        self.waiting.put_back(rows.span(whole, rows.n_rows), self.announce)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol, Self, TypeVar

import numpy as np

from steepest.data.chunk import Array, Chunk, concatenate
from steepest.learners.base import Progress, State

MARK = "pending_"  # of the arrays in a state
Announce = Callable[[Chunk], None]


class WaitingRows:
    """Rows that were read but not learned yet, because a learner needs more of them at once."""

    def __init__(self, rows: Chunk | None = None) -> None:
        self.rows = rows

    @property
    def n_rows(self) -> int:
        """The number of waiting rows."""
        return 0 if self.rows is None else self.rows.n_rows

    def ready(self, chunk: Chunk, needed: Callable[[], int], announce: Announce | None = None) -> Iterator[Chunk]:
        """Yields rows to learn, in order, at least `needed()` at a time; the rest of the chunk waits.

        `announce` is called with rows before they wait. Between two results rows may be put back, and `needed` may
        change.
        """
        while chunk.n_rows:
            if self.rows is None and chunk.n_rows >= needed():
                yield chunk
                return
            taken = min(chunk.n_rows, needed() - self.n_rows)
            self.put_back(chunk.span(0, taken), announce)
            chunk = chunk.span(taken, chunk.n_rows)
            if self.n_rows >= needed() and (rows := self.take()) is not None:
                yield rows

    def put_back(self, rows: Chunk, announce: Announce | None = None) -> None:
        """Adds rows behind those that wait already."""
        if rows.n_rows:
            if announce is not None:
                announce(rows)
            self.rows = rows.packed() if self.rows is None else concatenate([self.rows, rows])

    def take(self) -> Chunk | None:
        """Removes and returns all waiting rows."""
        rows, self.rows = self.rows, None
        return rows

    def finish(self, learn: Callable[[Chunk, Progress], None]) -> Progress:
        """Learns all waiting rows, as if no others were to come."""
        progress = Progress()
        if (rows := self.take()) is not None:
            learn(rows, progress)
        return progress

    def state(self) -> dict[str, Array]:
        """The waiting rows as arrays of a state."""
        if self.rows is None:
            return {}
        names = ("indptr", "indices", "values", "y", "weight", "time")
        arrays = {name: getattr(self.rows, name) for name in names}
        return {MARK + name: array for name, array in arrays.items() if array is not None}

    @classmethod
    def from_state(cls, state: State, n_features: int) -> Self:
        """Builds the waiting rows from the arrays that `state` gave."""
        found = {name.removeprefix(MARK): np.array(array) for name, array in state.items() if name.startswith(MARK)}
        if not found:
            return cls()
        arrays = found["indptr"], found["indices"], found["values"]
        return cls(Chunk(*arrays, n_features, found.get("y"), found.get("weight"), time=found.get("time")))


class _Waits(Protocol):
    waiting: WaitingRows

    def clone(self) -> Self: ...

    def finish(self) -> Progress: ...


Waits = TypeVar("Waits", bound=_Waits)


def finished(learner: Waits) -> Waits:
    """The learner itself if no rows wait, else a copy that has learned them."""
    if learner.waiting.rows is None:
        return learner
    copy = learner.clone()
    copy.finish()
    return copy
