"""Rows of a DataFrame, dealt to shards that stay on the executors: packed once, mapped into memory, visited in rounds.

1. `pack`: every partition turns its rows into blocks of bytes and says what is in them.
2. `deal`: row i of all, in the canonical order, goes to the shard that the deal names; blocks are cut and shuffled.
3. `store`: the executor that gets a shard writes its arrays to local disk. What Spark keeps is one line a shard, the
   anchor: where the files are. If an executor is lost, Spark makes its lines anew from their lineage, and so the files.
4. `Shards.run`: one job; where a shard lies, a function gets its rows and a state, and answers with named arrays. In
   barrier mode one job lasts for all runs (gang.py).

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
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from steepest.data.chunk import Array, DataError
from steepest.spark.blocks import (
    ANCHOR,
    ANSWER,
    DEALT,
    FAN,
    PACKED,
    Add,
    Cut,
    Deal,
    Gather,
    Pack,
    Remove,
    Store,
    Visit,
    Work,
    add_up,
    array_of,
    deal_runs,
    open_shard,
)
from steepest.spark.errors import in_plain_words
from steepest.spark.frames import (
    Carried,
    by_number,
    canonical,
    collect,
    function_of,
    on_one_machine,
    ship,
    without_nulls_inside,
)
from steepest.spark.gang import Gang, LostError, MissingError, wait_for_slots
from steepest.spark.journal import Journal
from steepest.spark.rows import Columns

ATTEMPTS = 3


@dataclass(frozen=True, slots=True)
class Survey:
    """What packing told of all rows."""

    n_rows: int
    n_entries: int
    n_features: int
    labels: dict[Any, float]  # the sum of the weights of each label's rows
    weight_sum: float
    least_weight: float
    target_sum: float
    firsts: dict[int, int]  # the number of each partition's first row

    @property
    def shape(self) -> list[Any]:
        """By which the same rows are known again."""
        return [self.n_rows, self.n_entries, self.n_features, sorted(self.labels)]


@dataclass(slots=True)
class Shards:
    """The shards of a DataFrame: made by `pack_rows`, visited by `run`, removed by `close`."""

    session: Any
    packed: Any
    survey: Survey
    n: int
    words: list[str] | None  # the labels, if they are words
    deal: Deal = deal_runs
    anchor: Any = None
    events: list[str] = field(default_factory=list)
    name: str = field(default_factory=lambda: uuid.uuid4().hex[:12])
    open: Callable[[int, str, Sequence[Any] | None], Any] = open_shard
    barrier: bool = False
    tasks: int = 0  # of a round, each with one shard or, in barrier mode, several
    gang: Gang | None = None
    journal: Journal | None = None

    def make(self) -> None:
        """Deals the rows and writes the files; the next job does it."""
        self.anchor = self._placed().mapInArrow(function_of(self._store()), ANCHOR).persist()

    def _store(self) -> Callable[[Iterator[Any]], Iterator[Any]]:
        return Store(self.name)

    def _cut(self) -> Cut:
        return Cut(self.survey.firsts, self.survey.n_rows, self.n, self.words, self.deal)

    def _placed(self) -> Any:
        """Parts of shards, in order, each where its shard will be."""
        dealt = self.packed.mapInArrow(function_of(self._cut()), DEALT)
        self._choose_tasks()
        return by_number(dealt, self.tasks, f"cast(shard % {self.tasks} as int)").sortWithinPartitions("start")

    def _choose_tasks(self) -> None:
        """One a shard, but no more than can run at once if all must."""
        self.tasks = min(self.n, wait_for_slots(self.session, max(1, self.tasks))) if self.barrier else self.n

    def run(self, work: Work, state: Any = None, *, add: bool = False) -> list[dict[str, Array]]:
        """What the work answers for each shard, in their order; with `add`, one answer: the sum over all shards."""
        if self.journal is None:
            return self._run(work, state, add)
        name = getattr(work, "__name__", type(work).__name__)
        answers = self.journal.recall(name)
        if answers is None:
            answers = self._run(work, state, add)
            self.journal.keep(name, answers)
        return answers

    def _run(self, work: Work, state: Any, add: bool) -> list[dict[str, Array]]:
        reason: Exception | None = None
        for _ in range(ATTEMPTS):
            try:
                answers = self._by_gang(work, state, add) if self.barrier else self._by_job(work, state, add)
                return [add_up(answers)] if add else answers
            except MissingError as error:
                reason = error
                self._make_anew("the shards were written again, since an executor could not see its files")
            except LostError as error:
                reason = error
                self._replace_gang()
        if isinstance(reason, LostError):
            told = "" if reason.args[0] is None else f" ({in_plain_words(reason.args[0])})"
            raise DataError(
                f"barrier=True: tasks were lost {ATTEMPTS} times in one round{told}; the executors' logs say why, and "
                "without barrier Spark tries lost tasks again by itself"
            )
        raise DataError(
            f"the files of some shards were not where they had been written, {ATTEMPTS} times; executors come and go "
            "too fast, or their local disks are full: raise spark.locality.wait, or give executors more disk"
        )

    def _by_job(self, work: Work, state: Any, add: bool) -> list[dict[str, Array]]:
        """Answers of the shards, or, with `add`, sums over groups of them."""
        shipped = ship(self.session, state)
        try:
            visits = self.anchor.mapInArrow(function_of(Visit(work, shipped, self.words, self.open)), ANSWER)
            if add and self.n > FAN:
                groups = by_number(visits, -(-self.n // FAN), f"cast(shard div {FAN} as int)")
                visits = groups.mapInArrow(function_of(Add()), ANSWER)
            return self._gather(collect(self.session, visits))
        finally:
            if not isinstance(shipped, Carried):
                shipped.destroy()

    def _by_gang(self, work: Work, state: Any, add: bool) -> list[dict[str, Array]]:
        """The same, to the bit, without a job."""
        if self.gang is None:
            self.gang = Gang(self.session, self.anchor, self.tasks, self.words, self.open)
        answers = self.gang.run(work, state)
        if add and self.n > FAN:
            return [add_up(answers[first : first + FAN]) for first in range(0, self.n, FAN)]
        return answers

    def _gather(self, table: Any) -> list[dict[str, Array]]:
        found: dict[int, dict[str, Array]] = {}
        done: set[int] = set()
        for batch in table.to_batches():
            for line in batch.to_pylist():
                if line["name"] == "error":
                    raise DataError(line["dtype"])
                if line["name"] == "missing":
                    raise MissingError
                if line["name"] == "done":
                    done.add(line["shard"])
                else:
                    found.setdefault(line["shard"], {})[line["name"]] = array_of(line)
        if len(done) < self.n:
            raise MissingError
        return [found[number] for number in sorted(found)]

    def _make_anew(self, why: str) -> None:
        """A task ran where its shard's files are not: all are written again, from the packed blocks."""
        self._hang_up()
        self.events.append(why)
        self.anchor.unpersist()
        self.name = uuid.uuid4().hex[:12]
        self.make()

    def _replace_gang(self) -> None:
        """Tasks were lost; those that replace them begin where the driver is."""
        self._hang_up()
        self.events.append("a task of the barrier stage was lost; a new stage went on from the last round")
        if wait_for_slots(self.session, self.tasks) < self.tasks:
            self._make_anew("the shards were written again for fewer tasks, since executors were lost")

    def _hang_up(self) -> None:
        if self.gang is not None:
            self.gang.close()
            self.gang = None

    def close(self) -> None:
        """Removes the files, as far as executors are still there."""
        with contextlib.suppress(Exception):
            self._hang_up()
        with contextlib.suppress(Exception):
            self._remove()
        for frame in (self.anchor, self.packed):
            with contextlib.suppress(Exception):
                frame.unpersist()

    def _remove(self) -> None:
        collect(self.session, self.anchor.mapInArrow(function_of(Remove(self.name)), ANCHOR))


@dataclass(slots=True)
class NearShards(Shards):
    """Shards where driver and executors are one machine: rows pass from file to file, not through Spark."""

    blocks: list[dict[str, Any]] = field(default_factory=list)
    folders: set[Path] = field(default_factory=set)

    def make(self) -> None:
        """Says how each shard gathers its rows; the next job does it."""
        if not all(os.path.exists(line["path"]) for line in self.blocks):
            self.blocks = blocks_of(collect(self.session, self.packed, blobs=False))
        self.folders |= {Path(line["path"]).parent for line in self.blocks}
        self.folders |= {folder.with_name(f"steepest-{self.name}") for folder in self.folders}
        self._choose_tasks()
        numbers = self.session.range(0, self.n, 1, self.tasks)
        self.anchor = numbers.mapInArrow(function_of(Gather(self._cut(), self.blocks, self.name)), ANCHOR).persist()

    def _remove(self) -> None:
        for folder in self.folders:
            shutil.rmtree(folder, ignore_errors=True)


def pack_rows(
    frame: Any,
    columns: Columns,
    n_shards: int,
    *,
    classify: bool,
    order_by: str | Sequence[str] | None = None,
    place: str | None = None,
    deal: Deal = deal_runs,
    barrier: bool = False,
) -> Shards:
    """Packs all rows, in one job, and makes ready to deal them to shards."""
    from pyspark import StorageLevel

    session = frame.sparkSession
    ordered, why = canonical(frame, columns.names, n_shards, order_by)
    read = [*columns.names, *([] if place is None else [place])]
    near, name = on_one_machine(session), uuid.uuid4().hex[:12]
    pack = Pack(columns, classify, place, name if near else None)
    rows = ordered.select(*read)
    if columns.kind == "vector":
        rows = without_nulls_inside(rows, columns.features[0])
    packed = rows.mapInArrow(function_of(pack), PACKED)
    if not near:
        packed = packed.persist(StorageLevel.DISK_ONLY)
    try:
        blocks = blocks_of(collect(session, packed.drop("block"), blobs=False))
        survey = look(blocks)
        if survey.n_rows == 0:
            raise DataError("the DataFrame holds no rows; nothing can be learned from it")
        if survey.n_rows < n_shards:
            raise DataError(
                f"n_shards={n_shards} is more than the {survey.n_rows} rows; give at most as many shards as rows"
            )
    except BaseException:
        packed.unpersist()
        raise
    words = sorted(survey.labels) if columns.text_labels else None
    given = session, packed, survey, n_shards, words, deal
    shards: Shards
    if near:
        shards = NearShards(*given, events=[why], barrier=barrier, name=name, blocks=blocks)
    else:
        shards = Shards(*given, events=[why], barrier=barrier, name=name)
    shards.make()
    return shards


def blocks_of(table: Any) -> list[dict[str, Any]]:
    """What partitions told of their blocks, in the order of rows; or the first error."""
    lines = sorted(table.to_pylist(), key=lambda line: (line["part"], line["start"]))
    for line in lines:
        if line["error"] is not None:
            raise DataError(line["error"])
    return lines


def look(lines: Sequence[Mapping[str, Any]]) -> Survey:
    """What all blocks told together."""
    firsts: dict[int, int] = {}
    labels: dict[Any, float] = {}
    n_rows = 0
    for line in lines:
        firsts.setdefault(line["part"], n_rows)
        n_rows += line["rows"]
        for label, weight in zip(json.loads(line["labels"]), json.loads(line["weights"]), strict=True):
            labels[label] = labels.get(label, 0.0) + weight
    return Survey(
        n_rows=n_rows,
        n_entries=sum(line["entries"] for line in lines),
        n_features=max((line["n_features"] for line in lines), default=0),
        labels=labels,
        weight_sum=sum(line["weight_sum"] for line in lines),
        least_weight=min((line["least_weight"] for line in lines), default=np.inf),
        target_sum=sum(line["target_sum"] for line in lines),
        firsts=firsts,
    )
