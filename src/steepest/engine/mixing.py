"""Parameter mixing: shards learn apart, and their models are averaged once or after every round.

A round is three pure steps on learner states, so that any driver, threads here or a cluster elsewhere, gives the same
bits: every shard learns its rows from the common state (`learn_shard`), says what has changed (`send`), and the common
state takes in the mean of the changes, always in the order of the shards (`mix`). With one round this is one-shot
mixing, with more iterative parameter mixing (McDonald, Hall & Mann 2010). Under mix="evidence" one-shot mixing lets a
shard speak for a feature by how much of it is in its rows, and iterative mixing takes as many times the mean change of
a feature as all shards one after the other would have moved it (shares.py).

What is sent: "full" vectors, the "delta" of the entries that moved, its "topk" tenth by size, or "float16"; what the
last two leave out waits in the shard and is added to its next change (error feedback).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import numpy as np

from steepest.data.chunk import Array, Chunk, DataError, concatenate
from steepest.data.source import BLOCK_ROWS, ArraySource, Order, Source
from steepest.engine.checkpoint import Checkpoints, Place
from steepest.engine.history import History, Record
from steepest.engine.loop import Monitor, mean_loss
from steepest.engine.shares import gains, gather_evidence, mean_gain, shares_of
from steepest.engine.stopping import Plan, Watch
from steepest.learners.base import Progress
from steepest.learners.calibration import CALIBRATION_ROWS
from steepest.learners.linear import LinearLearner
from steepest.learners.linear_settings import ADAPTIVE
from steepest.learners.linear_state import CLOCK, WIDE

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

MIXES = ("evidence", "uniform")
SENDS = ("full", "delta", "topk", "float16")
PARTS = 1 << 12  # of an epoch, where rounds are as long as they take
FIRST_LENGTH = PARTS // 64
LEAST_ROWS = 8  # that a shard learns in a round, about, however short it should be
TOP_SHARE = 0.1  # of the entries that moved, sent by "topk"
SHARD_SEED = 0x9E3779B1  # shard s shuffles by the seed + s times this; shard 0 as a single learner would
Residual = dict[str, Array]  # by the name of a table, what was not sent yet


@dataclass(frozen=True, slots=True)
class MixPlan:
    """How many shards, how often they are mixed, and what they send."""

    n_shards: int
    rounds: int
    mix: str = "evidence"
    send: str = "full"
    n_threads: int = 1
    seconds: float | None = None  # that a round should take; its length then follows from how fast the last one was

    @property
    def one_shot(self) -> bool:
        """Whether shards are mixed at the end only."""
        return self.rounds == 1 and self.seconds is None


@dataclass(slots=True)
class Message:
    """What a shard sends after its round: changes of the tables, its small arrays, and how long that would be."""

    tables: dict[str, Array]
    small: dict[str, Array]
    rows: int
    n_bytes: int
    progress: Progress
    rows_learned: int


def shard_sources(source: Source, n: int) -> list[Source]:
    """N sources of runs of neighbouring rows; a shard's order depends on the seed and its number only."""
    if n == 1:
        return [source]
    if source.n_rows is not None and source.n_rows < n:
        raise DataError(f"n_shards={n} is more than the {source.n_rows} rows; give at most as many shards as rows")
    if isinstance(source, ArraySource):
        assert source.n_rows is not None
        run = max(1, min(BLOCK_ROWS, source.n_rows // n))
        owner = np.arange(source.n_rows) // run % n
        rows = source._row_numbers()
        parts: list[Source] = [source._pick(rows[owner == shard]) for shard in range(n)]
    else:
        parts = source.shards(n)
    for shard, part in enumerate(parts):
        part.order = Order(source.order.shuffle, source.order.seed + shard * SHARD_SEED)
    return parts


def part_of_epoch(source: Source, epoch: int, start: int, stop: int, parts: int) -> Iterator[Chunk]:
    """The rows of parts start to stop - 1 of an epoch that is cut into equal ones."""
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


def prepare(learner: LinearLearner, chunks: Iterable[Chunk], all_rows: Iterable[Chunk] | None) -> None:
    """Settles before the first round what all shards must agree on: classes, width, the loss, and the first step size.

    `chunks` are those of shard 0, on whose first rows step sizes are tried; `all_rows` is read if classes or width are
    not known yet.
    """
    for chunk in all_rows or ():
        learner._grow_features(chunk.n_features)
        learner._announce_labels(chunk)
    if learner.unsettled:
        sample: list[Chunk] = []
        for chunk in chunks:
            sample.append(chunk.span(0, min(chunk.n_rows, CALIBRATION_ROWS - sum(c.n_rows for c in sample))))
            if sum(c.n_rows for c in sample) >= CALIBRATION_ROWS:
                break
        if sample:
            learner.settle(concatenate(sample))


def learn_shard(common: LinearLearner, epochs: Iterable[Iterable[Chunk]]) -> tuple[LinearLearner, Progress]:
    """A shard's own learner after these passes over its rows, from the common state."""
    own, progress = common.clone(), Progress()
    own.n_threads, own.may_have_slots = 1, False
    for chunks in epochs:
        for chunk in chunks:
            progress.add(own.step(chunk))
    progress.add(own.learn_pending())
    own._settle()
    return own, progress


def send(
    common: LinearLearner, own: LinearLearner, progress: Progress, how: str, residual: Residual
) -> tuple[Message, Residual]:
    """What the shard sends, and what of its change is left for the next time.

    Sums of iterates are told in the unit of the common state, which the shard may have left behind; those that wait are
    kept without a unit, since the next round may have another one.
    """
    tables, left, n_bytes = {}, {}, 0
    unit = _unit(common)
    stretch = _unit(own) / unit
    for name in WIDE:
        if name not in own.arrays:
            continue
        base, is_sum = common.arrays[name], name == "average"
        change = own.arrays[name][: len(base)].astype(np.float64) * (stretch if is_sum else 1.0) - base
        # What is not sent shall leave the average as it is, so that its sum must grow with all the others.
        expected = base * _growth(common, own, stretch) if is_sum and how == "topk" else 0.0
        change -= expected
        if name in residual:
            change += residual[name] / (unit if is_sum else 1.0)
        sent, size = _compress(change, how, own.arrays[name].itemsize)
        if how in ("topk", "float16"):
            left[name] = (change - sent) * (unit if is_sum else 1.0)
        tables[name] = sent + expected
        n_bytes += size
    small = {name: array for name, array in own.arrays.items() if name not in WIDE and name != "shrunk"}
    small["clock"] = _stretched(small["clock"], stretch)
    n_bytes += sum(array.nbytes for array in small.values())
    rows = own.rows_learned - common.rows_learned
    return Message(tables, small, rows, n_bytes, progress, own.rows_learned), left


def _compress(change: Array, how: str, itemsize: int) -> tuple[Array, int]:
    """(what arrives of a change, its bytes): a sparse entry needs four bytes more, for its place."""
    if how == "full":
        return change, change.size * itemsize
    if how == "float16":
        largest = float(np.abs(change).max(initial=0.0)) or 1.0  # travels along; the others are parts of it
        return (change / largest).astype(np.float16).astype(np.float64) * largest, change.size * 2 + 8
    moved = np.flatnonzero(change)
    if how == "delta":
        return change, len(moved) * (itemsize + 4)
    flat, k = change.ravel(), max(1, math.ceil(TOP_SHARE * len(moved)))
    order = np.lexsort((moved, -np.abs(flat[moved])))[:k]
    sent = np.zeros(change.shape)
    sent.ravel()[moved[order]] = flat[moved[order]]
    return sent, k * (itemsize + 4)


def needs_evidence(learner: LinearLearner, mixing: MixPlan) -> bool:
    """Whether mixtures ask how much of each feature is in the shards' rows."""
    wanted = mixing.mix == "evidence" and mixing.n_shards > 1 and not learner.shared
    return wanted and (mixing.one_shot or learner.settings.rule not in ADAPTIVE)


def mix(
    common: LinearLearner, messages: Iterable[Message], shares: Sequence[Array | float], pace: float = 1.0
) -> Progress:
    """The common state takes in the shards' changes, each by its share (a number, or one a feature); in their order.

    The clock goes on by the shards' mean times the pace.
    """
    t_before = float(common.arrays["clock"][0])
    tables: dict[str, Array] = {}
    small: dict[str, Array] = {}
    progress, rows, weights, t_after = Progress(), 0, 0.0, t_before
    for message, share in zip(messages, shares, strict=True):
        for name, change in message.tables.items():
            part = change * _by_entry(share, change)
            tables[name] = part if name not in tables else tables[name] + part
        weight = float(message.rows)
        for name, array in message.small.items():
            small[name] = weight * array if name not in small else small[name] + weight * array
        weights, rows = weights + weight, rows + message.rows
        t_after += float(message.small["clock"][0]) - t_before
        progress.add(message.progress)
    if not weights:  # nobody has seen a row
        return progress
    if "average" in tables:
        weight = float(small["clock"][-1] / weights - common.arrays["clock"][-1])
        tables["average"] = tables["average"] + _average_of_larger_steps(common, shares, weight)
    unit = _unit(common)
    for name, total in small.items():
        common.arrays[name] = total / weights
    common.arrays["clock"][0] = t_before + (t_after - t_before) / len(shares) * pace
    stretch = unit / _unit(common)
    common.arrays["clock"] = _stretched(common.arrays["clock"], stretch)
    for name, change in tables.items():
        table = common.arrays[name]
        if name == "average":  # in float64 until its unit is right: in the old one it may be too large for float32
            table[...] = (table + change) * stretch
        else:
            table[...] += change.astype(table.dtype)
    if "shrunk" in common.arrays:
        common.arrays["shrunk"][...] = 0
    common.rows_learned += rows
    common._shown = common._norms = None
    return progress


def _unit(learner: LinearLearner) -> float:
    """What sums of iterates are counted in: late ones weigh so much that the unit grows with time (see schedules.h)."""
    t = float(learner.arrays["clock"][0])
    return 2.0 ** (math.frexp(1.0 + t)[1] // 10 * 40) if learner.settings.average == "poly" else 1.0


def _growth(common: LinearLearner, own: LinearLearner, stretch: float) -> float:
    """By what share the weight of all iterates has grown in the shard's round."""
    before, after = (float(learner.arrays["clock"][CLOCK.index("average_weight")]) for learner in (common, own))
    return after * stretch / before - 1.0 if before > 0 else 0.0


def _stretched(clock: Array, stretch: float) -> Array:
    """The clock with its sums in another unit."""
    out = clock.copy()
    out[[CLOCK.index(name) for name in ("average_scale", "average_weight")]] *= stretch
    return out


def _by_entry(share: Array | float, change: Array) -> Array:
    """A share a feature, brought to the shape of a table, which may have room for more features."""
    if np.ndim(share) == 0:
        return np.asarray(share)
    padded = np.pad(np.asarray(share), (0, len(change) - len(np.asarray(share))))
    return padded.reshape(-1, *([1] * (change.ndim - 1)))


def _average_of_larger_steps(common: LinearLearner, shares: Sequence[Array | float], weight: float) -> Array:
    """What the sum of iterates lacks where the shares add up to more than one: iterates beyond those that were seen."""
    v = common.arrays["v"].astype(np.float64)
    total = sum((_by_entry(share, v) for share in shares), np.zeros(1))
    return np.asarray((total - 1.0) * weight * v)


@dataclass(slots=True)
class Common:
    """The common learner and what waits in the shards: all that a checkpoint holds."""

    learner: LinearLearner
    residuals: list[Residual]
    voters: list[LinearLearner] = field(default_factory=list)

    @property
    def state(self) -> Mapping[str, Array]:
        """The learner's arrays, and those that wait, by shard."""
        waiting = {f"waits {s} {name}": a for s, r in enumerate(self.residuals) for name, a in r.items()}
        return {**self.learner.state, **waiting}

    @classmethod
    def restored(cls, learner: LinearLearner, state: Mapping[str, Array], n_shards: int) -> Common:
        """What `state` described."""
        residuals: list[Residual] = [{} for _ in range(n_shards)]
        for name, array in state.items():
            if name.startswith("waits "):
                _, shard, table = name.split(" ", 2)
                residuals[int(shard)][table] = np.array(array)
        return cls(learner, residuals)

    def clone(self) -> Common:
        """An independent copy of the learner."""
        return Common(self.learner.clone(), self.residuals)


Pass = tuple[int, int, int, int]  # (epoch, first part of it, the one behind the last, parts)


@dataclass(slots=True)
class Agenda:
    """Which rows come in each round: a fixed part of the epochs, or as many as shall take so many seconds."""

    epochs: int
    mixing: MixPlan
    number: int = 0  # rounds that are done
    at: int = 0  # by seconds: parts of all epochs that are done
    _length: int = FIRST_LENGTH

    def passes(self) -> list[Pass]:
        """Those of the next round; none at the end."""
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

    def move_on(self, seconds: float, rows: int) -> None:
        """The round is done, and took so long for so many rows."""
        if self.mixing.seconds is not None:
            _, start, stop, _ = self.passes()[0]
            self.at += stop - start
            wanted = (stop - start) * self.mixing.seconds / max(seconds, 1e-9)
            least = (stop - start) * LEAST_ROWS * self.mixing.n_shards / max(1, rows)
            self._length = int(min(max(1.0, least, wanted), 4.0 * (stop - start), PARTS))
        self.number += 1


@dataclass(slots=True)
class Told:
    """What the shards have to say after a round, in their order; a message may be made when its turn comes."""

    rows: list[int]
    messages: Iterable[Message]
    residuals: list[Residual]
    voters: list[LinearLearner]
    n_bytes: tuple[int, int]  # to and from the shards


class Team(Protocol):
    """Who holds the shards, here or on other machines, and lets them learn."""

    def prepare(self, learner: LinearLearner) -> None:
        """Settles what all shards must agree on; see the function `prepare`."""

    def evidence(self, n_features: int) -> list[Array]:
        """What `gather_evidence` says of each shard."""

    def learn(self, common: Common, passes: Sequence[Pass], how: str, keep_voters: bool) -> Told:
        """Every shard learns these passes over its rows from the common state."""


@dataclass(slots=True)
class LocalTeam:
    """Shards in this process, as many at work at once as there are threads."""

    shards: Sequence[Source]
    unknown: Source | None  # all rows, if classes or width are to be found out first
    n_threads: int = 1

    def prepare(self, learner: LinearLearner) -> None:
        """From the rows themselves."""
        prepare(learner, self.shards[0].epoch(0), None if self.unknown is None else self.unknown.epoch(0))

    def evidence(self, n_features: int) -> list[Array]:
        """In threads."""
        with self._pool() as pool:
            return list(pool.map(lambda shard: gather_evidence(shard.read(Order(), 0), n_features), self.shards))

    def _pool(self) -> ThreadPoolExecutor:
        from concurrent.futures import ThreadPoolExecutor  # a slow import, which most fits do without

        # Rows that are read and hashed on the way come one shard after the other: a hasher learns names as it goes.
        return ThreadPoolExecutor(self.n_threads if all(isinstance(shard, ArraySource) for shard in self.shards) else 1)

    def learn(self, common: Common, passes: Sequence[Pass], how: str, keep_voters: bool) -> Told:
        """In threads."""
        base = common.learner

        def work(shard: int) -> tuple[Message, Residual, LinearLearner | None]:
            own, progress = learn_shard(base, (part_of_epoch(self.shards[shard], *which) for which in passes))
            return (*send(base, own, progress, how, common.residuals[shard]), own if keep_voters else None)

        with self._pool() as pool:
            results = list(pool.map(work, range(len(self.shards))))
        messages = [message for message, _, _ in results]
        down = len(self.shards) * sum(base.arrays[name].nbytes for name in WIDE if name in base.arrays)
        return Told(
            rows=[message.rows for message in messages],
            messages=messages,
            residuals=[left for _, left, _ in results],
            voters=[own for _, _, own in results if own is not None],
            n_bytes=(down, sum(message.n_bytes for message in messages)),
        )


def local_team(learner: LinearLearner, source: Source, mixing: MixPlan) -> LocalTeam:
    """The shards of a source in this process."""
    known = isinstance(source, ArraySource) and (len(learner.book) > 0 or learner.settings.task == "regress")
    return LocalTeam(shard_sources(source, mixing.n_shards), None if known else source, mixing.n_threads)


def mix_rounds(
    learner: LinearLearner,
    team: Team,
    plan: Plan,
    mixing: MixPlan,
    *,
    keep_voters: bool = False,
    validation: Source | None = None,
    monitor: Monitor | None = None,
    checkpoints: Checkpoints | None = None,
) -> tuple[LinearLearner, History, list[LinearLearner]]:
    """Trains by rounds of a team, wherever its shards are.

    Returns the mixed learner, the history, and the shards' own last learners if they vote.
    """
    monitor = monitor or Monitor()
    learner.keep_whole_tables()
    n_shards = mixing.n_shards
    common, history, watch, place = Common(learner, [{} for _ in range(n_shards)]), History(), Watch(), Place()
    if checkpoints is not None and (found := checkpoints.resume()) is not None:
        common, history, place, watch = found
        monitor.event(f"resumed after round {place.epoch}")
    else:
        team.prepare(learner)
    evidence = team.evidence(common.learner.n_features) if needs_evidence(learner, mixing) else None
    agenda = Agenda(plan.epochs, mixing, place.epoch, place.chunks)
    while passes := agenda.passes():
        started = time.perf_counter()
        common.learner.keep_good_state()
        progress, told = _round(common, team, passes, mixing, evidence, keep_voters)
        agenda.move_on(time.perf_counter() - started, progress.rows)
        record = _record(common.learner, agenda.number, passes, progress, told, started)
        watched = record["loss"]
        if validation is not None:
            watched = record["holdout_loss"] = mean_loss(common.learner, validation)
        record["objective"] = watched + common.learner.penalty()
        history.records.append(record)
        history.events += progress.events
        monitor.epoch_done(record)
        watch.see(watched, common, plan)
        if checkpoints is not None:
            checkpoints.maybe_save(common, history, Place(agenda.number, agenda.at), watch)
        if plan.may_stop and watch.stalled >= plan.patience:
            history.events.append(f"stopped after round {agenda.number}: no improvement in {plan.patience} rounds")
            monitor.event(history.events[-1])
            break
    if checkpoints is not None:
        checkpoints.clear()
    best = common if watch.kept is None else watch.kept
    return best.learner, history, common.voters


def _round(
    common: Common,
    team: Team,
    passes: Sequence[Pass],
    mixing: MixPlan,
    evidence: Sequence[Array] | None,
    keep_voters: bool,
) -> tuple[Progress, Told]:
    """All shards learn and are mixed; (what became of it, what they told)."""
    base = common.learner
    base._settle()
    told = team.learn(common, passes, mixing.send, keep_voters)
    common.residuals, common.voters = told.residuals, told.voters
    if evidence is None or mixing.one_shot:
        return mix(base, told.messages, shares_of(told.rows, evidence)), told
    n = len(told.rows)
    of_epochs = sum((stop - start) / parts for _, start, stop, parts in passes)
    pull = sum(evidence, np.zeros_like(evidence[0])) * (of_epochs / n)
    gain = gains(base, pull, sum(told.rows) / n, n)
    return mix(base, told.messages, [share * gain for share in shares_of(told.rows)], mean_gain(gain, pull)), told


def _record(
    learner: LinearLearner, number: int, passes: Sequence[Pass], progress: Progress, told: Told, started: float
) -> Record:
    seconds = time.perf_counter() - started
    return {
        "epoch": passes[-1][0] + 1,
        "round": number,
        "rows": progress.rows,
        "rows_apart": max(told.rows),
        "loss": progress.mean_loss,
        "eta": learner.step_size,
        "nonzeros": learner.count_nonzero(),
        "seconds": seconds,
        "rows_per_second": progress.rows / seconds if seconds > 0 else math.nan,
        "shards": len(told.rows),
        "bytes_down": told.n_bytes[0],
        "bytes_up": told.n_bytes[1],
    }


def vote_scores(
    voters: Sequence[Callable[[Chunk], Array]], chunk: Chunk, link: Callable[[Array], Array] | None
) -> Array:
    """Scores of all shards' models together: each has one vote (for a class, or between two); with a link, the
    probabilities that it gives are averaged instead, and shown as log-odds."""
    total: Array | None = None
    for scores in _each(voters, chunk):
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


def _each(voters: Sequence[Callable[[Chunk], Array]], chunk: Chunk) -> Iterator[Array]:
    for voter in voters:
        yield voter(chunk)
