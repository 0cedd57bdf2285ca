"""What every learner is: a state of plain arrays and a step that changes it.

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
    """(arrays of strings as lists, arrays of numbers): files hold numbers as arrays and words in their header."""
    words = {name: array.tolist() for name, array in state.items() if array.dtype.kind in "OUS"}
    return words, {name: array for name, array in state.items() if name not in words}


def join_words(words: Mapping[str, list[Any]], arrays: State) -> dict[str, Array]:
    """The state that `split_words` took apart."""
    return {**arrays, **{name: np.array(values) for name, values in words.items()}}


@dataclass(slots=True)
class Progress:
    """What one step did: rows learned, the sum of their losses before learning, and events to report.

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
        """Takes in another step."""
        self.rows += other.rows
        self.weight += other.weight
        self.loss_sum += other.loss_sum
        self.events += other.events

    @property
    def mean_loss(self) -> float:
        """Progressive loss: each row was scored before it was learned."""
        return self.loss_sum / self.weight if self.weight > 0 else float("nan")


@dataclass(slots=True)
class Delta:
    """What a shard's learner has changed since the common state, as it would be sent."""

    changes: dict[str, Array] = field(default_factory=dict)  # of large arrays
    values: dict[str, Array] = field(default_factory=dict)  # small arrays, as they are now
    rows: int = 0  # learned since
    n_bytes: int = 0  # of a message that holds it


class Learner(Protocol):
    """The contract between executors and the mathematics.

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
        """Everything that was learned or is needed to go on."""

    @classmethod
    def from_state(cls, settings: Any, state: State) -> Self:
        """The learner that had this state."""

    def clone(self) -> Self:
        """An independent copy."""

    def step(self, chunk: Chunk) -> Progress:
        """Learns the rows of a chunk, in order; some may wait until there are more."""

    def finish(self) -> Progress:
        """Learns the rows that wait, as if no others were to come."""

    def scores(self, chunk: Chunk) -> Array:
        """Raw scores, one row of outputs for each row visited."""

    def code_for_scoring(self, rows: Chunk) -> Chunk:
        """Rows with their targets as `losses` takes them."""

    def losses(self, coded: Chunk) -> tuple[Array, Array]:
        """(loss, weight) of each row visited, whose targets `code_for_scoring` has coded."""

    def weights(self) -> tuple[Array, Array]:
        """(weights, bias) as they would predict."""

    def count_nonzero(self) -> int:
        """Weights that are not zero."""

    def penalty(self) -> float:
        """What the penalty adds to the mean loss."""

    @property
    def step_size(self) -> float:
        """The step that the next row will take."""

    def lower_step(self, factor: float) -> None:
        """Divides the step size."""

    def keep_good_state(self) -> None:
        """Keeps the state to return to if learning diverges."""


class MixableLearner(Learner, Protocol):
    """A learner whose copies can learn shards of the rows apart from each other, and then be mixed."""

    @property
    def knows_targets(self) -> bool:
        """Whether classes or outputs are known before any row is read."""

    def prepare(self, sample: Iterable[Chunk], all_rows: Iterable[Chunk] = ()) -> None:
        """Agrees on classes, width, loss and first step size before shards start.

        `sample` are chunks of one shard, on whose first rows step sizes are tried; `all_rows` show classes and width.
        """

    def fork(self) -> Self:
        """A shard's own learner, which starts from this common state."""

    def send_back(self, sent: State | None, how: str) -> tuple[Self, State, int]:
        """(the learner that shards start from, its arrays, bytes) when this common state is sent to a shard.

        `sent` are the arrays of the last time, None at first; `how` as in `delta`, with what is left out sent later.
        """

    def delta(self, base: Self, how: str, residual: Residual) -> tuple[Delta, Residual]:
        """What has changed since the common state `base`, and what of it is left to send the next time.

        `how`: "full" vectors, the "delta" of the entries that moved, its "topk" tenth by size, or "float16"; what the
        last two leave out comes back as the residual, which the next change takes in (error feedback).
        """

    def uses_evidence(self, *, one_shot: bool) -> bool:
        """Whether mixtures ask how much each shard's rows say about each feature."""

    def evidence(self, chunks: Iterable[Chunk]) -> Array:
        """How much a shard's rows say about each feature."""

    def shares(
        self, rows: Sequence[int], evidence: Sequence[Array] | None = None, epochs: float | None = None
    ) -> tuple[list[Array | float], float]:
        """(what each shard counts in a mixture, pace): by rows, and by evidence if given.

        `epochs` that the shards have learned since the last mixture; None if they are mixed only once.
        """

    def merge(self, deltas: Iterable[Delta], shares: Sequence[Array | float], pace: float = 1.0) -> None:
        """The common state takes in the changes of all shards, in their order; its clock goes on by their mean times
        the pace."""
