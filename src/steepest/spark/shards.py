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
import io
import json
import os
import re
import shutil
import tempfile
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from steepest.data.chunk import Array, Chunk, DataError, concatenate
from steepest.data.source import BLOCK_ROWS, ArraySource
from steepest.spark.errors import in_plain_words
from steepest.spark.gang import Gang, LostError, MissingError, wait_for_slots
from steepest.spark.rows import BadRowError, Columns, from_bytes, to_bytes

BLOCK_ENTRIES = 1 << 20  # about eight megabytes
MOST_BLOCK_ROWS = 1 << 16
MOST_LABELS = 1 << 16
BLOBS_AT_ONCE = 8  # that Spark hands over in one Arrow batch, which holds at most two gigabytes
FAN = 8  # partial sums that are added at once, in a tree
ATTEMPTS = 3
ARRAYS = ("indptr", "indices", "values", "y", "weight")
DTYPES = {"indptr": "int64", "indices": "int32", "values": "float32", "y": "float64", "weight": "float64"}

PACKED = (
    "part int, start long, rows long, entries long, n_features long, labels string, weights string, "
    "weight_sum double, least_weight double, target_sum double, error string, block binary, path string"
)
DEALT = "shard int, start long, block binary"
ANCHOR = "shard int, path string, rows long"
ANSWER = "shard int, name string, dtype string, shape string, data binary"

Work = Callable[[Any, Any], Mapping[str, Array]]  # (what the shard was opened as, the state) -> the answer
Deal = Callable[[Array, Chunk, int, int], Array]  # (row numbers, their rows, all rows, shards) -> shard of each


def deal_runs(rows: Array, chunk: Chunk, n_rows: int, n_shards: int) -> Array:
    """Runs of neighbouring rows by turns: as `engine.mixing.shard_sources` deals rows in memory."""
    run = max(1, min(BLOCK_ROWS, n_rows // n_shards))
    return rows // run % n_shards


# --------------------------------------------------------------------------------------------------- in the executors


@dataclass(frozen=True, slots=True)
class Shard:
    """The rows of one shard, mapped from local files; `y` holds the labels themselves."""

    number: int
    path: str
    chunk: Chunk

    @property
    def source(self) -> ArraySource:
        """The rows as a source."""
        return ArraySource(self.chunk)


@dataclass(frozen=True, slots=True)
class Pack:
    """Rows of a partition to blocks."""

    columns: Columns
    classify: bool
    place: str | None = None  # the column that tells the file
    run: str | None = None  # blocks go to files of this run, if all executors see them

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Arrow batches of a partition to those of the answer."""
        from pyspark import TaskContext

        context = TaskContext.get()
        part = context.partitionId() if context is not None else 0
        waiting: list[Chunk] = []
        start = seen = lines = 0  # rows before this block, rows so far, and lines they were read from
        for batch in batches:
            if not batch.num_rows:
                continue
            try:
                waiting.append(self.columns.read(batch.select(self.columns.names)))
            except BadRowError as error:
                yield _batch(PACKED, part=part, start=start, error=self._complaint(error, batch, part, lines))
                return
            lines += batch.num_rows
            seen += waiting[-1].n_rows
            if sum(len(c.indices) for c in waiting) > BLOCK_ENTRIES or seen - start > MOST_BLOCK_ROWS:
                yield self._block(part, start, waiting)
                start, waiting = seen, []
        if waiting:
            yield self._block(part, start, waiting)

    def _complaint(self, error: BadRowError, batch: Any, part: int, before: int) -> str:
        file = "" if self.place is None else f"{batch.column(self.place)[error.row].as_py()}, "
        return f"{file}row {before + error.row} of partition {part} ({error.shown}): {error.fault}"

    def _block(self, part: int, start: int, chunks: list[Chunk]) -> Any:
        chunk = concatenate(chunks)
        y, weight = chunk.y, np.ones(chunk.n_rows) if chunk.weight is None else chunk.weight
        labels: list[Any] = []
        sums: list[float] = []
        if y is not None and (self.classify or y.dtype.kind == "U"):
            values, codes = np.unique(y, return_inverse=True)
            labels, sums = values.tolist(), np.bincount(codes.reshape(-1), weight).tolist()
            if len(labels) > MOST_LABELS:
                error = (
                    f"the label column has more than {MOST_LABELS:,} different values; is it a number to regress on?"
                )
                return _batch(PACKED, part=part, start=start, error=error)
            if y.dtype.kind == "U":
                chunk = chunk.with_targets(codes.reshape(-1).astype(np.float64), chunk.weight)
        return _batch(
            PACKED,
            part=part,
            start=start,
            rows=chunk.n_rows,
            entries=len(chunk.indices),
            n_features=chunk.n_features,
            labels=json.dumps(labels),
            weights=json.dumps(sums),
            weight_sum=float(weight.sum()),
            least_weight=float(weight[weight > 0].min(initial=np.inf)),
            target_sum=0.0 if y is None or y.dtype.kind == "U" else float((weight * y).sum()),
            block=to_bytes(chunk) if self.run is None else None,
            path=None if self.run is None else write_block(folder_of(self.run), chunk),
        )


@dataclass(frozen=True, slots=True)
class Cut:
    """Blocks to the parts that each shard gets of them."""

    firsts: Mapping[int, int]  # number of the first row of each partition
    n_rows: int
    n_shards: int
    labels: Sequence[Any] | None  # of all rows, if they are words
    deal: Deal

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Arrow batches of a partition to those of the answer."""
        for batch in batches:
            for line in batch.to_pylist():
                start, chunk, owner = self.dealt(line, line["block"])
                for shard in np.unique(owner).tolist():
                    rows = np.flatnonzero(owner == shard)
                    yield _batch(DEALT, shard=shard, start=start, block=to_bytes(chunk.visit(rows)))

    def dealt(self, line: Mapping[str, Any], block: Any) -> tuple[int, Chunk, Array]:
        """(number of the first row, the block's rows in labels of all, the shard of each)."""
        chunk = from_bytes(block)
        if self.labels is not None and chunk.y is not None:
            own = np.searchsorted(np.asarray(self.labels), np.asarray(json.loads(line["labels"])))
            chunk = chunk.with_targets(own[chunk.y.astype(np.int64)].astype(np.float64), chunk.weight)
        start = self.firsts[line["part"]] + line["start"]
        return start, chunk, self.deal(start + np.arange(chunk.n_rows), chunk, self.n_rows, self.n_shards)


@dataclass(frozen=True, slots=True)
class Gather:
    """Shards named by number, each with its rows of all blocks, from files that are on this disk."""

    cut: Cut
    blocks: Sequence[Mapping[str, Any]]  # in the order of their rows
    run: str

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Arrow batches of a partition to those of the answer."""
        for batch in batches:
            for shard in batch.column(0).to_pylist():
                files = _Files(folder_of(self.run), shard)
                for line in self.blocks:
                    _, chunk, owner = self.cut.dealt(line, np.memmap(line["path"], np.uint8, "r"))
                    files.put(chunk.visit(np.flatnonzero(owner == shard)).packed())
                yield _batch(ANCHOR, shard=shard, path=files.close(), rows=files.n_rows)


def write_block(folder: Path, chunk: Chunk) -> str:
    """The path of a new file with these rows."""
    folder.mkdir(parents=True, exist_ok=True)
    number, path = tempfile.mkstemp(prefix="block-", dir=folder)
    with open(number, "wb") as file:
        file.write(to_bytes(chunk))
    return path


@dataclass(frozen=True, slots=True)
class Store:
    """Parts of a shard, which come in order, to its files; the answer is the line of the anchor."""

    run: str

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Arrow batches of a partition to those of the answer."""
        files: dict[int, _Files] = {}
        for batch in batches:
            for line in batch.to_pylist():
                shard = line["shard"]
                if shard not in files:
                    files[shard] = _Files(folder_of(self.run), shard)
                files[shard].put(from_bytes(line["block"]))
        for shard, written in sorted(files.items()):
            yield _batch(ANCHOR, shard=shard, path=written.close(), rows=written.n_rows)


class _Files:
    """The arrays of one shard, appended part by part; they get their name when they are complete."""

    def __init__(self, folder: Path, shard: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.final = folder / f"shard-{shard}"
        self.now = Path(tempfile.mkdtemp(prefix=f"shard-{shard}-", dir=folder))
        self.files = {name: open(self.now / name, "wb") for name in ARRAYS}  # noqa: SIM115, closed below
        self.n_rows = self.n_entries = self.n_features = 0
        self.has: set[str] = {"indptr", "indices", "values"}
        self.files["indptr"].write(np.zeros(1, np.int64).tobytes())

    def put(self, chunk: Chunk) -> None:
        parts = {"indptr": chunk.indptr[1:] + self.n_entries, "indices": chunk.indices, "values": chunk.values}
        parts |= {name: part for name, part in (("y", chunk.y), ("weight", chunk.weight)) if part is not None}
        for name, part in parts.items():
            self.files[name].write(np.ascontiguousarray(part).data)
        self.has |= parts.keys()
        self.n_rows += chunk.n_rows
        self.n_entries += len(chunk.indices)
        self.n_features = max(self.n_features, chunk.n_features)

    def close(self) -> str:
        for file in self.files.values():
            file.close()
        about = {"n_features": self.n_features, "arrays": sorted(self.has)}
        (self.now / "about.json").write_text(json.dumps(about))
        try:
            os.rename(self.now, self.final)
        except OSError:  # another attempt was here first, with the same rows
            shutil.rmtree(self.now, ignore_errors=True)
        return str(self.final)


def folder_of(run: str) -> Path:
    """A folder on this executor's own disk; Spark's, if it names one, which is removed with the application."""
    places = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")
    return Path(places[0] if places[0] and os.path.isdir(places[0]) else tempfile.gettempdir()) / f"steepest-{run}"


def open_shard(number: int, path: str, labels: Sequence[Any] | None) -> Shard:
    """Maps the files of a shard; FileNotFoundError if they are not on this machine."""
    folder = Path(path)
    about = json.loads((folder / "about.json").read_text())
    arrays: dict[str, Array] = {}
    for name in about["arrays"]:
        size = (folder / name).stat().st_size
        arrays[name] = np.memmap(folder / name, DTYPES[name], "r") if size else np.empty(0, DTYPES[name])
    y = arrays.get("y")
    if labels is not None and y is not None:
        y = np.asarray(labels)[y.astype(np.int64)]
    chunk = Chunk(
        np.asarray(arrays["indptr"]),
        np.asarray(arrays["indices"]),
        np.asarray(arrays["values"]),
        about["n_features"],
        None if y is None else np.asarray(y),
        None if "weight" not in arrays else np.asarray(arrays["weight"]),
    )
    return Shard(number, path, chunk)


@dataclass(frozen=True, slots=True)
class Visit:
    """A round in one executor: opens the shards of its lines and answers what the work makes of them."""

    work: Work
    shipped: Any  # has the state as its `value`: a broadcast, or `Carried`
    labels: Sequence[Any] | None
    open: Callable[[int, str, Sequence[Any] | None], Any] = open_shard

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Arrow batches of a partition to those of the answer."""
        for batch in batches:
            for line in batch.to_pylist():
                yield from self._visit(line["shard"], line["path"])

    def _visit(self, number: int, path: str) -> Iterator[Any]:
        try:
            shard = self.open(number, path, self.labels)
        except FileNotFoundError:
            yield _batch(ANSWER, shard=number, name="missing", dtype="", shape="[]", data=b"")
            return
        try:
            answer = self.work(shard, self.shipped.value)
        except DataError as error:  # the same rows would fail each time: no use in trying again
            yield _batch(ANSWER, shard=number, name="error", dtype=str(error), shape="[]", data=b"")
            return
        for name, array in answer.items():
            yield _answer(number, name, array)
        yield _batch(ANSWER, shard=number, name="done", dtype="", shape="[]", data=b"")


@dataclass(frozen=True, slots=True)
class Add:
    """Answers of some shards to their sums, in the order of the shards."""

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Arrow batches of a partition to those of the answer."""
        found: dict[int, dict[str, Array]] = {}
        for batch in batches:
            for line in batch.to_pylist():
                if line["name"] in ("missing", "error"):
                    yield _batch(ANSWER, **line)
                elif line["name"] != "done":
                    found.setdefault(line["shard"], {})[line["name"]] = _array(line)
        if found:
            numbers = sorted(found)
            for name, array in add_up([found[number] for number in numbers]).items():
                yield _answer(numbers[0], name, array)
            yield from (_batch(ANSWER, shard=n, name="done", dtype="", shape="[]", data=b"") for n in numbers)


def add_up(parts: Sequence[Mapping[str, Array]]) -> dict[str, Array]:
    """Arrays of the same name added in order."""
    total = {name: array.copy() for name, array in parts[0].items()}
    for part in parts[1:]:
        for name, array in part.items():
            total[name] += array
    return total


@dataclass(frozen=True, slots=True)
class Carried:
    """A state that travels with the function, where there is no broadcast."""

    value: Any


@dataclass(frozen=True, slots=True)
class Remove:
    """Takes the files of a run away."""

    run: str

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Arrow batches of a partition to those of the answer."""
        for batch in batches:
            for line in batch.to_pylist():
                shutil.rmtree(Path(line["path"]).parent, ignore_errors=True)
        return iter(())


def _answer(shard: int, name: str, array: Array) -> Any:
    data = np.ascontiguousarray(array)
    return _batch(
        ANSWER, shard=shard, name=name, dtype=str(data.dtype), shape=json.dumps(data.shape), data=data.tobytes()
    )


def _array(line: Mapping[str, Any]) -> Array:
    shape = json.loads(line["shape"])
    return np.frombuffer(line["data"], line["dtype"]).reshape(shape) if line["data"] else np.empty(shape, line["dtype"])


def _batch(schema: str, **values: Any) -> Any:
    """One row as an Arrow batch; columns that are not named are null."""
    import pyarrow as pa

    types = {
        "int": pa.int32(),
        "long": pa.int64(),
        "double": pa.float64(),
        "string": pa.string(),
        "binary": pa.binary(),
    }
    fields = [tuple(column.split()) for column in schema.split(", ")]
    columns = [pa.array([values.get(name)], types[kind]) for name, kind in fields]
    return pa.RecordBatch.from_arrays(columns, names=[name for name, _ in fields])


# -------------------------------------------------------------------------------------------------------- in the driver


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

    def make(self) -> None:
        """Deals the rows and writes the files; the next job does it."""
        self.anchor = self._placed().mapInArrow(_function(self._store()), ANCHOR).persist()

    def _store(self) -> Callable[[Iterator[Any]], Iterator[Any]]:
        return Store(self.name)

    def _cut(self) -> Cut:
        return Cut(self.survey.firsts, self.survey.n_rows, self.n, self.words, self.deal)

    def _placed(self) -> Any:
        """Parts of shards, in order, each where its shard will be."""
        dealt = self.packed.mapInArrow(_function(self._cut()), DEALT)
        self._choose_tasks()
        return by_number(dealt, self.tasks, f"cast(shard % {self.tasks} as int)").sortWithinPartitions("start")

    def _choose_tasks(self) -> None:
        """One a shard, but no more than can run at once if all must."""
        self.tasks = min(self.n, wait_for_slots(self.session, max(1, self.tasks))) if self.barrier else self.n

    def run(self, work: Work, state: Any = None, *, add: bool = False) -> list[dict[str, Array]]:
        """What the work answers for each shard, in their order; with `add`, one answer: the sum over all shards."""
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
            visits = self.anchor.mapInArrow(_function(Visit(work, shipped, self.words, self.open)), ANSWER)
            if add and self.n > FAN:
                groups = by_number(visits, -(-self.n // FAN), f"cast(shard div {FAN} as int)")
                visits = groups.mapInArrow(_function(Add()), ANSWER)
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
                    found.setdefault(line["shard"], {})[line["name"]] = _array(line)
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
        collect(self.session, self.anchor.mapInArrow(_function(Remove(self.name)), ANCHOR))


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
        self.anchor = numbers.mapInArrow(_function(Gather(self._cut(), self.blocks, self.name)), ANCHOR).persist()

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
    packed = ordered.select(*read).mapInArrow(_function(pack), PACKED)
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


def on_one_machine(session: Any) -> bool:
    """Whether driver and executors are one process, so that all see the same files."""
    return not is_connect(session) and re.match(r"local(\[|$)", session.sparkContext.master) is not None


def canonical(
    frame: Any, names: Sequence[str], n_shards: int, order_by: str | Sequence[str] | None = None
) -> tuple[Any, str]:
    """(the DataFrame in canonical order, why that); see the module's docstring."""
    from pyspark.sql import functions

    content = functions.xxhash64(*names)
    if order_by is not None:
        keys = [order_by] if isinstance(order_by, str) else list(order_by)
        for key in keys:
            if key not in frame.columns:
                raise DataError(f"order_by={key!r} is no column; the DataFrame has {', '.join(frame.columns)}")
        return frame.orderBy(*keys, content), f"rows in the order of {', '.join(keys)}"
    if not _has_exchange(frame):
        return frame, "rows in the order of the DataFrame"
    ordered = frame.repartition(n_shards, content).sortWithinPartitions(content)
    return ordered, "rows in the order of their content: the DataFrame's own is another one each time; see order_by"


def _has_exchange(frame: Any) -> bool:
    """Whether rows are shuffled on their way, after which they come in no certain order."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        frame.explain()
    return "Exchange" in out.getvalue()


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


def ship(session: Any, state: Any) -> Any:
    """The state as a broadcast, or, over Spark Connect, in the function itself."""
    if is_connect(session):
        return Carried(state)
    return session.sparkContext.broadcast(state)


def is_connect(session: Any) -> bool:
    """Whether there is no JVM at hand."""
    return "connect" in type(session).__module__


def by_number(frame: Any, n: int, expression: str) -> Any:
    """Partition k gets the rows with number k; before Spark 4.1 some partitions may get several numbers."""
    from pyspark.sql import functions

    if hasattr(frame, "repartitionById"):
        return frame.repartitionById(n, functions.expr(expression))
    return frame.repartition(n, functions.expr(expression))


def collect(session: Any, frame: Any, *, blobs: bool = True) -> Any:
    """The rows as an Arrow table; errors in the words of this package."""
    key = "spark.sql.execution.arrow.maxRecordsPerBatch"
    before = session.conf.get(key, None)
    try:
        if blobs:
            session.conf.set(key, str(BLOBS_AT_ONCE))
        return frame.toArrow()
    except Exception as error:
        raise in_plain_words(error) from None
    finally:
        if blobs:
            session.conf.unset(key) if before is None else session.conf.set(key, before)


def _function(call: Callable[[Iterator[Any]], Iterable[Any]]) -> Callable[[Iterator[Any]], Iterable[Any]]:
    """A plain function, as pyspark wants it."""

    def work(batches: Iterator[Any]) -> Iterable[Any]:
        return call(batches)

    return work
