"""What learners of linear models, networks and radial bases share: targets of any kind, and rows that wait."""

from __future__ import annotations

from abc import abstractmethod

from steepest.data.chunk import Array, Chunk
from steepest.learners.base import State
from steepest.learners.labels import LabelBook
from steepest.learners.resumable import Resumable
from steepest.learners.targets import Targets
from steepest.learners.waiting import WaitingRows


class TargetLearner(Resumable):
    """A learner whose outputs are those of its `targets`."""

    targets: Targets
    waiting: WaitingRows
    n_features: int

    @property
    def state(self) -> dict[str, Array]:
        """Everything that was learned or is needed to go on, as arrays."""
        return super().state | self.targets.state() | self.waiting.state()

    def restore(self, state: State) -> None:
        """Goes on from there."""
        super().restore(state)
        self.targets.restore(state)
        self.waiting = WaitingRows.from_state(state, self.n_features)

    @property
    def book(self) -> LabelBook:
        """The classes."""
        return self.targets.book

    @property
    def several_targets(self) -> bool:
        """Whether y has a column per output."""
        return self.targets.several

    @property
    def n_outputs(self) -> int:
        """Columns of the scores."""
        return self.targets.n_outputs

    @abstractmethod
    def scores(self, chunk: Chunk, n_threads: int = 1) -> Array:
        """Raw scores, shape (rows, outputs); each row's bits are its own, so results are bit-identical for threads."""

    def losses(self, coded: Chunk, scores: Array | None = None) -> tuple[Array, Array]:
        """(loss of each row visited, its weight), targets coded already; scores that are known need not be found."""
        return self.targets.row_losses(self.scores(coded) if scores is None else scores, coded)

    def code_for_scoring(self, rows: Chunk) -> Chunk:
        """Rows with coded targets, for measuring only: unknown classes are refused, class weights not applied."""
        return self.targets.code_for_scoring(rows)
