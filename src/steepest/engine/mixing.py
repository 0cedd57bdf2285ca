"""Parameter mixing: shards learn separately, and their models are averaged once or after every round.

A round is three pure steps on learner states, so that any driver, threads here or a cluster elsewhere, gives the same
bits: every shard learns its rows from the common state (`learn_shard`), sends its changes (`MixableLearner.delta`), and
the mean of the changes is added to the common state, always in the order of the shards (`merge`). With one round this
is one-shot mixing, with more of them iterative parameter mixing (McDonald, Hall & Mann 2010). Under mix="evidence"
one-shot mixing weights a shard per feature by how much of it is in its rows, and iterative mixing multiplies the mean
change of a feature so that it moves as far as all shards one after the other would have moved it (`shares`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

import numpy as np

from steepest.data.chunk import Array, Chunk
from steepest.data.files.blocks import map_ahead
from steepest.data.source import BLOCK_ROWS, ArraySource, Order, Source
from steepest.engine.checkpoint import Place
from steepest.engine.history import History, Record
from steepest.engine.loop import Executor, Log, Save, epoch_record
from steepest.engine.stopping import Plan
from steepest.errors import DataError
from steepest.learners.base import Delta, MixableLearner, Progress, Residual

MIXES = ("evidence", "uniform")
SENDS = ("full", "delta", "topk", "float16")
PARTS = 1 << 12  # of an epoch, where rounds are as long as they take
FIRST_LENGTH = PARTS // 64
LEAST_ROWS = 8  # that a shard learns in a round, about, however short it should be
SHARD_SEED = 0x9E3779B1  # shard s shuffles by the seed + s times this; shard 0 as a single learner would
L = TypeVar("L", bound=MixableLearner)
Work = TypeVar("Work")
Pass = tuple[int, int, int, int]  # (epoch, first part of it, the one behind the last, parts)


@dataclass(frozen=True, slots=True)
class MixingPlan:
    """The number of shards, how often they are mixed, and what they send."""

    n_shards: int
    rounds: int
    mix: str = "evidence"
    send: str = "full"
    n_threads: int = 1
    seconds: float | None = None  # that a round should take; its length then follows from how fast the last one was

    @property
    def one_shot(self) -> bool:
        """Whether shards are mixed only once, at the end."""
        return self.rounds == 1 and self.seconds is None

    def needs_evidence(self, learner: MixableLearner) -> bool:
        """Whether shards are weighted per feature by how much of it is in their rows."""
        return self.mix == "evidence" and self.n_shards > 1 and learner.uses_evidence(one_shot=self.one_shot)


# ------------------------------------------------------------------------------------------------------- rows of shards


def shard_sources(source: Source, n: int) -> list[Source]:
    """Splits a source into n shards of short runs of rows; their order depends on the seed and the number only."""
    if n == 1:
        return [source]
    if source.n_rows is not None and source.n_rows < n:
        raise DataError(f"n_shards={n} is more than the {source.n_rows} rows; give at most as many shards as rows")
    parts = _runs(source, n) if isinstance(source, ArraySource) else source.shards(n)
    for shard, part in enumerate(parts):
        part.order = shard_order(source.order, shard)
    return parts


def shard_order(order: Order, shard: int) -> Order:
    """The order in which a shard visits its rows."""
    return Order(order.shuffle, order.seed + shard * SHARD_SEED)


def run_length(n_rows: int, n_shards: int) -> int:
    """How many consecutive rows go to one shard at a time: few enough that all shards get some."""
    return max(1, min(BLOCK_ROWS, n_rows // n_shards))


def shards_of_rows(rows: Array, n_rows: int, n_shards: int) -> Array:
    """The shard of each row, by its number among all rows: runs are assigned in turn."""
    return np.asarray(rows // run_length(n_rows, n_shards) % n_shards)


def _runs(source: ArraySource, n: int) -> list[Source]:
    """Splits rows in memory into shards."""
    numbers = source.row_numbers
    owner = shards_of_rows(np.arange(len(numbers)), len(numbers), n)
    return [source.pick(numbers[owner == shard]) for shard in range(n)]


def part_of_epoch(source: Source, epoch: int, start: int, stop: int, parts: int) -> Iterator[Chunk]:
    """The rows of parts start to stop - 1 of an epoch that is cut into `parts` equal ones."""
    if stop - start == parts:
        yield from source.epoch(epoch)
        return
    n_rows = source.n_rows if source.n_rows is not None else sum(chunk.n_rows for chunk in source.epoch(epoch))
    first, last, at = n_rows * start // parts, n_rows * stop // parts, 0
    for chunk in source.epoch(epoch):
        start, stop = max(first - at, 0), min(last - at, chunk.n_rows)
        if start < stop:
            yield chunk.span(start, stop)
        at += chunk.n_rows
        if at >= last:
            return


def learn_shard(common: L, epochs: Iterable[Iterable[Chunk]]) -> tuple[L, Progress]:
    """Copies the common learner, learns these passes over a shard's rows, and returns (learner, progress)."""
    own, progress = common.fork(), Progress()
    for chunks in epochs:
        for chunk in chunks:
            progress.add(own.step(chunk))
    progress.add(own.finish())
    return own, progress


@dataclass(slots=True)
class RoundSchedule:
    """Which rows each round takes: a fixed part of the epochs, or as many as fit the given seconds."""

    epochs: int
    mixing: MixingPlan
    number: int = 0  # rounds that are done
    at: int = 0  # by seconds: parts of all epochs that are done
    _length: int = FIRST_LENGTH

    def passes(self) -> list[Pass]:
        """The passes of the next round as (epoch, start, stop, parts); none after the last round."""
        rounds = self.mixing.rounds
        if self.mixing.seconds is not None:
            epoch, start = divmod(self.at, PARTS)
            return [(epoch, start, min(PARTS, start + self._length), PARTS)] if epoch < self.epochs else []
        if self.number >= rounds:
            return []
        parts = rounds // self.epochs  # rounds in an epoch
        if parts > 1:
            epoch, part = divmod(self.number, parts)
            return [(epoch, part, part + 1, parts)]
        epochs = range(self.number * self.epochs // rounds, (self.number + 1) * self.epochs // rounds)
        return [(epoch, 0, 1, 1) for epoch in epochs]

    def advance(self, seconds: float, rows: int) -> None:
        """Counts a finished round; with rounds by seconds, sets the length of the next one from its speed."""
        if self.mixing.seconds is not None:
            _, start, stop, _ = self.passes()[0]
            self.at += stop - start
            aim = (stop - start) * self.mixing.seconds / max(seconds, 1e-9)
            least = (stop - start) * LEAST_ROWS * self.mixing.n_shards / max(1, rows)
            self._length = int(min(max(1.0, least, aim), 4.0 * (stop - start), PARTS))
        self.number += 1


# ---------------------------------------------------------------------------------------------------------- the shards


@dataclass(slots=True)
class MixedState:
    """The common learner and the residuals of the shards: all that a checkpoint of mixing holds."""

    learner: Any  # a MixableLearner
    residuals: list[Residual]
    voters: list[Any] = field(default_factory=list)  # the shards' own last learners, if they vote
    sent: Mapping[str, Array] | None = None  # arrays that shards have of the common learner; None: nothing yet
    base: Any = None  # the learner that shards start from in this round
    n_bytes: int = 0  # of sending it to one of them

    @property
    def state(self) -> Mapping[str, Array]:
        """The learner's arrays, the residuals by shard, and what shards already have of the learner."""
        waiting = {f"waits {s} {name}": a for s, r in enumerate(self.residuals) for name, a in r.items()}
        exact = self.base is None or self.base is self.learner
        there = {} if exact else {f"sent {name}": array for name, array in (self.sent or {}).items()}
        return {**self.learner.state, **waiting, **there}

    def send(self, how: str) -> None:
        """Prepares what shards start from in the next round, and the size of that message."""
        self.base, sent, self.n_bytes = self.learner.send_back(self.sent, how)
        self.sent = sent or None

    @classmethod
    def restored(cls, learner: MixableLearner, state: Mapping[str, Array], n_shards: int) -> MixedState:
        """Builds the state from the arrays of a checkpoint."""
        residuals: list[Residual] = [{} for _ in range(n_shards)]
        for name, array in state.items():
            if name.startswith("waits "):
                _, shard, table = name.split(" ", 2)
                residuals[int(shard)][table] = np.array(array)
        sent = {name.removeprefix("sent "): np.array(a) for name, a in state.items() if name.startswith("sent ")}
        return cls(learner, residuals, sent=sent or None)

    def clone(self) -> MixedState:
        """A copy with an independent learner."""
        return MixedState(self.learner.clone(), self.residuals, sent=self.sent)

    def lower_step(self, factor: float) -> None:
        """Does nothing: mixtures keep the step of schedule="adaptive" from round to round."""


@dataclass(slots=True)
class ShardReplies:
    """What all shards send after a round, in their order; deltas may be made one by one when they are read."""

    rows: list[int]
    deltas: Iterable[Delta]
    progress: Progress  # of all shards
    residuals: list[Residual]
    voters: list[Any]
    n_bytes: tuple[int, int]  # to and from the shards


class Shards(Protocol):
    """The shards of a run, in this process or on other machines, and how they learn."""

    def prepare(self, learner: MixableLearner) -> None:
        """Fixes what all shards must agree on; see `MixableLearner.prepare`."""

    def evidence(self, learner: MixableLearner) -> list[Array]:
        """How much the rows of each shard say about each feature; see `MixableLearner.evidence`."""

    def learn(self, common: MixedState, passes: Sequence[Pass], how: str, keep_voters: bool) -> ShardReplies:
        """Lets every shard learn these passes over its rows, starting from the common state."""


@dataclass(slots=True)
class LocalShards:
    """Shards in this process, learned by a pool of threads."""

    shards: Sequence[Source]
    unknown: Source | None  # all rows, if classes or width are to be found out first
    n_threads: int = 1

    @classmethod
    def of(cls, learner: MixableLearner, source: Source, mixing: MixingPlan) -> LocalShards:
        """Splits a source into shards by the plan."""
        known = isinstance(source, ArraySource) and learner.knows_targets
        return cls(shard_sources(source, mixing.n_shards), None if known else source, mixing.n_threads)

    def prepare(self, learner: MixableLearner) -> None:
        """Fixes classes, width and step size from the rows; see `MixableLearner.prepare`."""
        learner.prepare(self.shards[0].epoch(0), () if self.unknown is None else self.unknown.epoch(0))

    def evidence(self, learner: MixableLearner) -> list[Array]:
        """How much the rows of each shard say about each feature, computed in threads."""
        return self._in_threads(lambda shard: learner.evidence(self.shards[shard].in_file_order()))

    def _in_threads(self, work: Callable[[int], Work]) -> list[Work]:
        # Rows that are read and hashed on the way come one shard after the other: a hasher learns names as it goes.
        n_threads = self.n_threads if all(isinstance(shard, ArraySource) for shard in self.shards) else 1
        return list(map_ahead(work, iter(range(len(self.shards))), threads=n_threads, patience=None))

    def learn(self, common: MixedState, passes: Sequence[Pass], how: str, keep_voters: bool) -> ShardReplies:
        """Lets every shard learn these passes in threads, starting from the common state."""
        base = common.base

        def work(shard: int) -> tuple[Delta, Residual, Progress, MixableLearner | None]:
            own, progress = learn_shard(base, (part_of_epoch(self.shards[shard], *which) for which in passes))
            return (*own.delta(base, how, common.residuals[shard]), progress, own if keep_voters else None)

        results = self._in_threads(work)
        deltas = [delta for delta, _, _, _ in results]
        total = Progress()
        for _, _, progress, _ in results:
            total.add(progress)
        return ShardReplies(
            rows=[delta.rows for delta in deltas],
            deltas=deltas,
            progress=total,
            residuals=[left for _, left, _, _ in results],
            voters=[own for _, _, _, own in results if own is not None],
            n_bytes=(common.n_bytes * len(deltas), sum(delta.n_bytes for delta in deltas)),
        )


# ----------------------------------------------------------------------------------------------------------- the rounds


class Rounds(Executor):
    """Runs rounds of mixing: in each, all shards learn separately, and their changes are merged."""

    unit = "round"
    learner: MixedState

    def __init__(
        self, learner: MixableLearner, shards: Shards, mixing: MixingPlan, *, keep_voters: bool = False
    ) -> None:
        self.learner = MixedState(learner, [{} for _ in range(mixing.n_shards)])
        self.shards, self.mixing, self.keep_voters = shards, mixing, keep_voters
        self.place = Place()
        self._schedule: RoundSchedule | None = None
        self._evidence: list[Array] | None = None
        self._resumed = False

    @property
    def voters(self) -> list[Any]:
        """The learners of the shards after the last round, if they vote."""
        return self.learner.voters

    def resume(self, learner: MixedState, place: Place, history: History) -> str:
        """Continues after the last complete round."""
        self.learner, self.place, self._resumed = learner, place, True
        return f"resumed after round {place.epoch}"

    def finished(self, plan: Plan) -> bool:
        """Whether all rounds are done; prepares the shards before the first one."""
        if self._schedule is None:
            common = self.learner.learner
            if not self._resumed:
                self.shards.prepare(common)
            if self.mixing.needs_evidence(common):
                self._evidence = self.shards.evidence(common)
            self._schedule = RoundSchedule(plan.epochs, self.mixing, self.place.epoch, self.place.chunks)
        return not self._schedule.passes()

    def run_round(self, log: Log, save: Save) -> Record:
        """Runs one round: sends the common state, lets all shards learn, and merges their changes."""
        assert self._schedule is not None
        passes, started, schedule = self._schedule.passes(), time.perf_counter(), self._schedule
        common, mixing = self.learner.learner, self.mixing
        common.keep_good_state()
        self.learner.send(mixing.send)
        replies = self.shards.learn(self.learner, passes, mixing.send, self.keep_voters)
        self.learner.residuals, self.learner.voters = replies.residuals, replies.voters
        epochs = None if mixing.one_shot else sum((stop - start) / parts for _, start, stop, parts in passes)
        shares, pace = common.shares(replies.rows, self._evidence, epochs)
        common.merge(replies.deltas, shares, pace)
        total = Progress()
        log.take(replies.progress, total)
        seconds = time.perf_counter() - started
        schedule.advance(seconds, total.rows)
        self.place = Place(schedule.number, schedule.at)
        return {
            **epoch_record(passes[-1][0], total, common.step_size, common.count_nonzero(), seconds),
            "round": schedule.number,
            "rows_apart": max(replies.rows),
            "shards": len(replies.rows),
            "bytes_down": replies.n_bytes[0],
            "bytes_up": replies.n_bytes[1],
        }

    def result(self, learner: MixedState) -> Any:
        """The merged learner."""
        return learner.learner


def vote_scores(
    voters: Sequence[Callable[[Chunk], Array]], chunk: Chunk, link: Callable[[Array], Array] | None
) -> Array:
    """Combines the scores of all shards' models: each has one vote per row; with a link, their probabilities are
    averaged instead and returned as log-odds."""
    total: Array | None = None
    for voter in voters:
        scores = voter(chunk)
        if link is not None:
            part = link(scores)
        elif scores.shape[1] == 1:
            part = np.where(scores > 0, 1.0, -1.0)
        else:
            part = (scores.argmax(axis=1)[:, None] == np.arange(scores.shape[1])).astype(np.float64)
        total = part if total is None else total + part
    assert total is not None
    mean = total / len(voters)
    if link is None:
        return np.asarray(mean)
    safe = np.clip(mean, 1e-15, 1 - 1e-15)
    return np.asarray(np.log(safe) - np.log1p(-safe))
