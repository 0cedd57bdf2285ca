"""Rows of a DataFrame, shared out to shards that stay on the executors: packed once, mapped into memory, visited in
rounds.

1. `pack`: every partition turns its rows into blocks of bytes and reports what is in them.
2. `share_out`: row i of all, in the canonical order, goes to its shard; blocks are cut and shuffled.
3. `store`: the executor that gets a shard writes its arrays to local disk. What Spark stores is one line per shard, the
   anchor: where the files are. If an executor is lost, Spark makes its lines anew from their lineage, and so the files.
4. `Shards.run`: one job; where a shard is, a function gets its rows and a state, and answers with named arrays. In
   barrier mode one job lasts for all runs (barrier.py).

Canonical order: that of the DataFrame (by partition, then by place in it, as `collect` shows it) where its plan has no
exchange, so that it is the same each time; that of `order_by` if given; else by a hash of the content: partition
pmod(hash(h), n_shards), then h, with h = xxhash64 of all columns that are read. Rows that tie are alike, or their order
is left to chance. Everything is made of `mapInArrow`, so it runs over Spark Connect, too.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from steepest.data.chunk import Array, Chunk
from steepest.data.source import Order, Source
from steepest.errors import DataError
from steepest.spark.barrier import BarrierPool, WorkerLostError, wait_for_slots
from steepest.spark.blocks import (
    ANCHOR,
    PACKED,
    SHARED,
    RowReader,
    RowShares,
    Shares,
    Work,
    add_answers,
    gather,
    pack,
    remove_files,
    share_out,
    store,
    visit,
)
from steepest.spark.checkpoints import RoundCheckpoints
from steepest.spark.frames import (
    FitOptions,
    Input,
    by_number,
    canonical,
    collect,
    mapped,
    on_one_machine,
    ship,
    with_plain_vectors,
)
from steepest.spark.messages import ANSWER, Answer, FilesMissingError, add_up, lines_of, read_answers
from steepest.spark.rows import Columns
from steepest.spark.sessions import in_plain_words

ATTEMPTS = 3
FAN = 8  # partial sums that are added at once, in a tree


@dataclass(frozen=True, slots=True)
class Survey:
    """What packing found in all rows."""

    n_rows: int = 0
    n_entries: int = 0
    n_features: int = 0
    labels: Mapping[Any, float] = field(default_factory=dict)  # the sum of the weights of each label's rows
    least_weight: float = 0.0

    @property
    def shape(self) -> list[Any]:
        """The values by which a resumed fit recognises the same rows."""
        return [self.n_rows, self.n_entries, self.n_features, sorted(self.labels)]


class FarSource(Source):
    """Stands in for the source of an estimator; its rows are on the executors."""

    def __init__(self, survey: Survey, labels: Array | None = None) -> None:
        self.n_rows, self.n_features, self.labels = survey.n_rows, survey.n_features, labels

    def read(self, order: Order, epoch: int) -> Iterator[Chunk]:
        """Raises: the rows are on the executors."""
        raise DataError("the rows are on the executors")


@dataclass(slots=True)
class Shards:
    """The shards of a DataFrame: made by `make`, visited by `run`, removed by `close`."""

    session: Any
    packed: Any
    n: int
    shares: Shares
    finish: Any = None  # see `store`
    survey: Survey = Survey()
    labels: list[str] | None = None  # if they are words
    events: list[str] = field(default_factory=list)
    name: str = field(default_factory=lambda: uuid.uuid4().hex[:12])
    anchor: Any = None
    barrier: bool = False
    tasks: int = 0  # of a round, each with one shard or, in barrier mode, several
    pool: BarrierPool | None = None
    checkpoints: RoundCheckpoints | None = None

    def make(self) -> None:
        """Shares out the rows and writes the files; the next job does it."""
        parts = mapped(self.packed, partial(share_out, self.shares), SHARED)
        self._choose_tasks()
        placed = by_number(parts, self.tasks, f"cast(shard % {self.tasks} as int)").sortWithinPartitions("start")
        self.anchor = mapped(placed, partial(store, self.name, self.finish), ANCHOR).persist()

    def _choose_tasks(self) -> None:
        """The number of tasks: one per shard, but no more than can run at once if all must."""
        self.tasks = min(self.n, wait_for_slots(self.session, max(1, self.tasks))) if self.barrier else self.n

    def run(self, work: Work, state: Any = None, *, add: bool = False) -> list[Answer]:
        """Runs work on each shard; returns the answers in their order, or with `add` the sum over all shards."""
        if self.checkpoints is None:
            return self.run_anew(work, state, add)
        name = getattr(work, "__name__", type(work).__name__)
        answers = self.checkpoints.next_answers(name)
        if answers is None:
            answers = self.run_anew(work, state, add)
            self.checkpoints.save(name, answers)
        return answers

    def run_anew(self, work: Work, state: Any, add: bool) -> list[Answer]:
        """Like `run`, but ignores checkpoints."""
        reason: Exception | None = None
        for _ in range(ATTEMPTS):
            try:
                answers = self._by_pool(work, state, add) if self.barrier else self._by_job(work, state, add)
                return [add_up(answers)] if add else answers
            except FilesMissingError as error:
                reason = error
                self._make_anew("the shards were written again, since an executor could not see its files")
            except WorkerLostError as error:
                reason = error
                self._replace_pool()
        if isinstance(reason, WorkerLostError):
            why = "" if reason.args[0] is None else f" ({in_plain_words(reason.args[0])})"
            raise DataError(
                f"barrier=True: tasks were lost {ATTEMPTS} times in one round{why}; the executors' logs say why, and "
                "without barrier Spark tries lost tasks again by itself"
            )
        raise DataError(
            f"the files of some shards were not where they had been written, {ATTEMPTS} times; executors come and go "
            "too fast, or their local disks are full: raise spark.locality.wait, or give executors more disk"
        )

    def _by_job(self, work: Work, state: Any, add: bool) -> list[Answer]:
        """Answers of the shards, or, with `add`, sums over groups of them."""
        shipped = ship(self.session, state)
        try:
            visits = mapped(self.anchor, partial(visit, work, shipped, self.labels), ANSWER)
            if add and self.n > FAN:
                groups = by_number(visits, -(-self.n // FAN), f"cast(shard div {FAN} as int)")
                visits = mapped(groups, add_answers, ANSWER)
            answers = read_answers(lines_of(collect(self.session, visits).to_batches()))
        finally:
            shipped.destroy()
        if len(answers) < self.n:
            raise FilesMissingError
        return [answer for answer in answers.values() if answer]

    def _by_pool(self, work: Work, state: Any, add: bool) -> list[Answer]:
        """Like `run`, with the same bits, through the barrier pool instead of a job."""
        if self.pool is None:
            self.pool = BarrierPool(self.session, self.anchor, self.tasks, self.labels)
        answers = self.pool.run(work, state)
        if add and self.n > FAN:
            return [add_up(answers[first : first + FAN]) for first in range(0, self.n, FAN)]
        return answers

    def _make_anew(self, why: str) -> None:
        """A task ran where its shard's files are not: all are written again, from the packed blocks."""
        self.end_stage()
        self.events.append(why)
        self.anchor.unpersist()
        self.name = uuid.uuid4().hex[:12]
        self.make()

    def _replace_pool(self) -> None:
        """Tasks were lost; those that replace them begin where the driver is."""
        self.end_stage()
        self.events.append("a task of the barrier stage was lost; a new stage went on from the last round")
        if wait_for_slots(self.session, self.tasks) < self.tasks:
            self._make_anew("the shards were written again for fewer tasks, since executors were lost")

    def end_stage(self) -> None:
        """Ends the job of barrier mode; the next run starts another one."""
        if self.pool is not None:
            self.pool.close()
            self.pool = None

    def close(self) -> None:
        """Removes the files, as far as executors are still there."""
        with contextlib.suppress(Exception):
            self.end_stage()
        with contextlib.suppress(Exception):
            self._remove()
        for frame in (self.anchor, self.packed):
            with contextlib.suppress(Exception):
                frame.unpersist()

    def _remove(self) -> None:
        collect(self.session, mapped(self.anchor, remove_files, ANCHOR))


@dataclass(slots=True)
class NearShards(Shards):
    """Shards where driver and executors are one machine: rows pass from file to file, not through Spark."""

    blocks: list[dict[str, Any]] = field(default_factory=list)
    directories: set[Path] = field(default_factory=set)

    def make(self) -> None:
        """Says how each shard gathers its rows; the next job does it."""
        if not all(os.path.exists(line["path"]) for line in self.blocks):
            self.blocks = blocks_of(self.session, self.packed)
        self.directories |= {Path(line["path"]).parent for line in self.blocks}
        self.directories |= {directory.with_name(f"steepest-{self.name}") for directory in self.directories}
        self._choose_tasks()
        numbers = self.session.range(0, self.n, 1, self.tasks)
        self.anchor = mapped(numbers, partial(gather, self.shares, self.blocks, self.name), ANCHOR).persist()

    def _remove(self) -> None:
        for directory in self.directories:
            shutil.rmtree(directory, ignore_errors=True)


def pack_rows(given: Input, columns: Columns, n_shards: int, options: FitOptions, *, classify: bool) -> Shards:
    """Packs all rows, in one job, and makes ready to share them out."""
    session, name = given.frame.sparkSession, uuid.uuid4().hex[:12]
    near = on_one_machine(session)
    reader = partial(RowReader, columns, classify, name if near else None)
    packed, why = packed_blocks(given, reader, columns.names, n_shards, options, persist=not near)
    try:
        blocks = blocks_of(session, packed)
        survey = survey_of(blocks)
        if survey.n_rows == 0:
            raise DataError("the DataFrame holds no rows; nothing can be learned from it")
        if survey.n_rows < n_shards:
            raise DataError(
                f"n_shards={n_shards} is more than the {survey.n_rows} rows; give at most as many shards as rows"
            )
    except BaseException:
        packed.unpersist()
        raise
    labels = sorted(survey.labels) if columns.text_labels else None
    shares = RowShares(first_rows(blocks), survey.n_rows, n_shards, labels)
    kind = partial(NearShards, blocks=blocks) if near else Shards
    shards: Shards = kind(session, packed, n_shards, shares, survey=survey, labels=labels, events=[why], name=name)
    shards.barrier = options.barrier
    shards.make()
    return shards


def packed_blocks(
    given: Input, reader: Any, names: Sequence[str], n_shards: int, options: FitOptions, *, persist: bool = True
) -> tuple[Any, str]:
    """(the frame of packed blocks, in which order the rows are)."""
    from pyspark import StorageLevel

    ordered, why = canonical(given.frame, names, n_shards, options.order_by)
    rows = with_plain_vectors(ordered.select(*names, *([] if given.place is None else [given.place])))
    packed = mapped(rows, partial(pack, reader, names, given.place), PACKED)
    return packed.persist(StorageLevel.DISK_ONLY) if persist else packed, why


def blocks_of(session: Any, packed: Any) -> list[dict[str, Any]]:
    """What partitions report of their blocks, in the order of rows; or the first error."""
    table = collect(session, packed.drop("block"), blobs=False)
    lines = sorted(table.to_pylist(), key=lambda line: (line["part"], line["start"]))
    for line in lines:
        if line["error"] is not None:
            raise DataError(line["error"])
    return lines


def first_rows(lines: Sequence[Mapping[str, Any]]) -> dict[int, int]:
    """The number of each partition's first row."""
    firsts: dict[int, int] = {}
    n_rows = 0
    for line in lines:
        firsts.setdefault(line["part"], n_rows)
        n_rows += line["rows"]
    return firsts


def survey_of(lines: Sequence[Mapping[str, Any]]) -> Survey:
    """What all blocks hold together."""
    about = [json.loads(line["about"]) for line in lines]
    labels: dict[Any, float] = {}
    for block in about:
        for label, weight in zip(block["labels"], block["label_weights"], strict=True):
            labels[label] = labels.get(label, 0.0) + weight
    return Survey(
        n_rows=sum(line["rows"] for line in lines),
        n_entries=sum(block["entries"] for block in about),
        n_features=max((block["n_features"] for block in about), default=0),
        labels=labels,
        least_weight=min((block["least_weight"] for block in about), default=float("inf")),
    )
