"""What every learner is: a state of plain arrays and a step that changes it.

The glossary of the mathematics, used in every learner and kernel: `i` row, `j` feature, `w` weight, `v` scaled weight
(w = P v), `score` the raw margin before any link, `y` target (-1 or +1 in binary losses), `g` = +d loss / d score,
`eta` step size, `t` rows seen so far, counted by their weight.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, Self

import numpy as np

from steepest.data.chunk import Array, Chunk

State = Mapping[str, Array]
PENDING = "pending_"  # marks the arrays of rows that wait


def split_words(state: State) -> tuple[dict[str, list[Any]], dict[str, Array]]:
    """(arrays of strings as lists, arrays of numbers): files hold numbers as arrays and words in their header."""
    words = {name: array.tolist() for name, array in state.items() if array.dtype.kind in "OUS"}
    return words, {name: array for name, array in state.items() if name not in words}


def join_words(words: Mapping[str, list[Any]], arrays: State) -> dict[str, Array]:
    """The state that `split_words` took apart."""
    return {**arrays, **{name: np.array(values) for name, values in words.items()}}


def pending_state(rows: Chunk | None) -> dict[str, Array]:
    """Rows that wait to be learned, as arrays of a state."""
    if rows is None:
        return {}
    parts = {"indptr": rows.indptr, "indices": rows.indices, "values": rows.values, "y": rows.y, "weight": rows.weight}
    return {PENDING + name: array for name, array in parts.items() if array is not None}


def pending_rows(state: State, n_features: int) -> Chunk | None:
    """The rows that `pending_state` wrote."""
    found = {name.removeprefix(PENDING): np.array(a) for name, a in state.items() if name.startswith(PENDING)}
    if not found:
        return None
    y, weight = found.get("y"), found.get("weight")
    return Chunk(found["indptr"], found["indices"], found["values"], n_features, y, weight)


def weights_as_pairs(class_weight: Any) -> Any:
    """The weights of classes for a file, whose keys must be words; "balanced" and None as they are."""
    return [[label, w] for label, w in class_weight.items()] if isinstance(class_weight, dict) else class_weight


def weights_from_pairs(plain: Any) -> Any:
    """What `weights_as_pairs` wrote."""
    return dict(plain) if isinstance(plain, list) else plain


@dataclass(slots=True)
class Progress:
    """What one step did: rows learned, the sum of their losses before learning, and anything worth telling."""

    rows: int = 0
    weight: float = 0.0
    loss_sum: float = 0.0
    events: list[str] = field(default_factory=list)

    def add(self, other: Progress) -> None:
        """Takes in another step."""
        self.rows += other.rows
        self.weight += other.weight
        self.loss_sum += other.loss_sum
        self.events += other.events

    @property
    def mean_loss(self) -> float:
        """Progressive loss: each row was scored before it was learned."""
        return self.loss_sum / self.weight if self.weight > 0 else float("nan")


class Learner(Protocol):
    """The contract between executors and the mathematics."""

    @property
    def state(self) -> State:
        """Everything that was learned or is needed to go on."""

    @property
    def step_size(self) -> float:
        """The step that the next row will take."""

    def step(self, chunk: Chunk) -> Progress:
        """Learns the rows of a chunk, in order; some may wait until there are more."""

    def learn_pending(self) -> Progress:
        """Learns the rows that wait, as if no others were to come."""

    def scores(self, chunk: Chunk) -> Array:
        """Raw scores, one row of outputs for each row visited."""

    def losses(self, coded: Chunk) -> tuple[Array, Array]:
        """(loss, weight) of each row visited, whose targets `code_for_scoring` has coded."""

    def code_for_scoring(self, rows: Chunk) -> Chunk:
        """Rows with their targets as `losses` wants them."""

    def weights(self) -> tuple[Array, Array]:
        """(weights, bias) as they would predict."""

    def count_nonzero(self) -> int:
        """Weights that are not zero."""

    def penalty(self) -> float:
        """What the penalty adds to the mean loss."""

    def keep_good_state(self) -> None:
        """Remembers the state to return to if learning diverges."""

    def lower_step(self, factor: float) -> None:
        """Divides the step size."""

    def merge(self, states: Sequence[State]) -> Self:
        """A learner whose state combines those of several that learned other rows."""

    def clone(self) -> Self:
        """An independent copy."""
