"""The contract of learners: a state of plain arrays and a step that changes it.

The glossary of the mathematics, used in every learner and kernel: `i` row, `j` feature, `w` weight, `v` scaled weight
(w = P v), `score` the raw margin before any link, `y` target (-1 or +1 in binary losses), `g` = +d loss / d score,
`eta` step size, `t` rows seen so far, counted by their weight.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, Self

import numpy as np

from steepest.data.chunk import Array, Chunk

State = Mapping[str, Array]
Residual = dict[str, Array]  # by the name of an array, what was not sent yet


def split_words(state: State) -> tuple[dict[str, list[Any]], dict[str, Array]]:
    """(lists of strings, arrays of numbers): model files hold numbers as arrays and strings in the header."""
    words = {name: array.tolist() for name, array in state.items() if array.dtype.kind in "OUS"}
    return words, {name: array for name, array in state.items() if name not in words}


def join_words(words: Mapping[str, list[Any]], arrays: State) -> dict[str, Array]:
    """The opposite of `split_words`: the state from the two parts."""
    return {**arrays, **{name: np.array(values) for name, values in words.items()}}


@dataclass(slots=True)
class Progress:
    """The result of one or more steps: the rows learned, the sum of their losses before learning, and events to report.

    Examples
    --------
    >>> import steepest as st
    >>> total = st.Progress()
    >>> total.add(st.Progress(rows=2, weight=2.0, loss_sum=1.5))
    >>> total.rows, total.mean_loss
    (2, 0.75)
    """

    rows: int = 0
    weight: float = 0.0
    loss_sum: float = 0.0
    events: list[str] = field(default_factory=list)

    def add(self, other: Progress) -> None:
        """Adds the progress of another step."""
        self.rows += other.rows
        self.weight += other.weight
        self.loss_sum += other.loss_sum
        self.events += other.events

    @property
    def mean_loss(self) -> float:
        """The progressive loss: each row was scored before it was learned."""
        return self.loss_sum / self.weight if self.weight > 0 else float("nan")


@dataclass(slots=True)
class Delta:
    """The changes of a shard's learner since the common state, in the form in which they are sent."""

    changes: dict[str, Array] = field(default_factory=dict)  # of large arrays
    values: dict[str, Array] = field(default_factory=dict)  # small arrays, as they are now
    rows: int = 0  # learned since
    n_bytes: int = 0  # of a message that holds it


class Learner(Protocol):
    """The interface of learners, through which executors train them.

    Examples
    --------
    >>> import steepest as st
    >>> X, y = [[0.0], [1.0], [2.0], [3.0]], [0, 0, 1, 1]
    >>> model = st.LinearClassifier(solver="stochastic", random_state=0).fit(X, y)
    >>> learner = model.learner_.clone()
    >>> progress = [learner.step(chunk) for chunk in st.from_arrays([[4.0]], [1])]
    >>> progress[0].rows, sorted(learner.state)[:2]
    (1, ['average', 'bias'])
    """

    @property
    def state(self) -> State:
        """All arrays that were learned or are needed to continue learning."""

    @classmethod
    def from_state(cls, settings: Any, state: State) -> Self:
        """Builds a learner from its settings and state."""

    def clone(self) -> Self:
        """An independent copy."""

    def step(self, chunk: Chunk) -> Progress:
        """Learns the rows of a chunk, in order; some rows may be stored until there are more."""

    def finish(self) -> Progress:
        """Learns the rows that are still stored; called after the last chunk."""

    def scores(self, chunk: Chunk) -> Array:
        """Raw scores, one row per row visited and one column per output."""

    def code_for_scoring(self, rows: Chunk) -> Chunk:
        """The chunk with its targets coded for `losses`."""

    def losses(self, coded: Chunk) -> tuple[Array, Array]:
        """(loss, weight) of each row visited; targets must come from `code_for_scoring`."""

    def weights(self) -> tuple[Array, Array]:
        """(weights, bias) as used for prediction."""

    def count_nonzero(self) -> int:
        """The number of weights that are not zero."""

    def penalty(self) -> float:
        """The penalty that is added to the mean loss."""

    @property
    def step_size(self) -> float:
        """The step size of the next row."""

    def lower_step(self, factor: float) -> None:
        """Divides the step size by `factor`."""

    def keep_good_state(self) -> None:
        """Copies the state, so that training can roll back to it if it diverges."""


class MixableLearner(Learner, Protocol):
    """A learner whose copies can learn shards of the rows separately and then be merged."""

    @property
    def knows_targets(self) -> bool:
        """Whether classes or outputs are known before any row is read."""

    def prepare(self, sample: Iterable[Chunk], all_rows: Iterable[Chunk] = ()) -> None:
        """Fixes classes, width, loss and first step size before shards start.

        `sample` are chunks of one shard, on whose first rows step sizes are tried; `all_rows` show classes and width.
        """

    def fork(self) -> Self:
        """A copy of this common state that learns one shard."""

    def send_back(self, sent: State | None, how: str) -> tuple[Self, State, int]:
        """(the learner that shards start from, its arrays, size in bytes) when this common state is sent to a shard.

        `sent`: the arrays as shards have them from the last time, or None; `how` compresses the changes as in `delta`.
        """

    def delta(self, base: Self, how: str, residual: Residual) -> tuple[Delta, Residual]:
        """(changes since the common state `base`, residual that is left to send the next time).

        `how`: "full" vectors, the "delta" of the entries that moved, its "topk" tenth by size, or "float16"; what the
        last two leave out is the residual, which is added to the next change (error feedback).
        """

    def uses_evidence(self, *, one_shot: bool) -> bool:
        """Whether `shares` needs to know how much each shard's rows say about each feature."""

    def evidence(self, chunks: Iterable[Chunk]) -> Array:
        """How much a shard's rows say about each feature, for `shares`."""

    def shares(
        self, rows: Sequence[int], evidence: Sequence[Array] | None = None, epochs: float | None = None
    ) -> tuple[list[Array | float], float]:
        """(weight of each shard in a mixture, pace): by rows, and by evidence if given.

        `epochs`: how many the shards have learned since the last mixture; None if they are mixed only once.
        """

    def merge(self, deltas: Iterable[Delta], shares: Sequence[Array | float], pace: float = 1.0) -> None:
        """Adds the weighted changes of all shards to this common state, in their order; its clock advances by their
        mean times the pace."""
