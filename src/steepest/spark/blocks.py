"""The executors' side of shards: rows are packed into blocks, dealt, stored in local files, and visited there.

Each class is what one `mapInArrow` does with a partition; shards.py puts them in order.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from steepest.data.chunk import Array, Chunk, DataError, concatenate
from steepest.data.source import BLOCK_ROWS, ArraySource
from steepest.spark.rows import BadRowError, Columns, from_bytes, to_bytes

BLOCK_ENTRIES = 1 << 20  # about eight megabytes
MOST_BLOCK_ROWS = 1 << 16
MOST_LABELS = 1 << 16
FAN = 8  # partial sums that are added at once, in a tree
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
                yield one_row(PACKED, part=part, start=start, error=self._complaint(error, batch, part, lines))
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
                return one_row(PACKED, part=part, start=start, error=error)
            if y.dtype.kind == "U":
                chunk = chunk.with_targets(codes.reshape(-1).astype(np.float64), chunk.weight)
        return one_row(
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
                    yield one_row(DEALT, shard=shard, start=start, block=to_bytes(chunk.visit(rows)))

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
                yield one_row(ANCHOR, shard=shard, path=files.close(), rows=files.n_rows)


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
            yield one_row(ANCHOR, shard=shard, path=written.close(), rows=written.n_rows)


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
            yield one_row(ANSWER, shard=number, name="missing", dtype="", shape="[]", data=b"")
            return
        try:
            answer = self.work(shard, self.shipped.value)
        except DataError as error:  # the same rows would fail each time: no use in trying again
            yield one_row(ANSWER, shard=number, name="error", dtype=str(error), shape="[]", data=b"")
            return
        for name, array in answer.items():
            yield answer_of(number, name, array)
        yield one_row(ANSWER, shard=number, name="done", dtype="", shape="[]", data=b"")


@dataclass(frozen=True, slots=True)
class Add:
    """Answers of some shards to their sums, in the order of the shards."""

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Arrow batches of a partition to those of the answer."""
        found: dict[int, dict[str, Array]] = {}
        for batch in batches:
            for line in batch.to_pylist():
                if line["name"] in ("missing", "error"):
                    yield one_row(ANSWER, **line)
                elif line["name"] != "done":
                    found.setdefault(line["shard"], {})[line["name"]] = array_of(line)
        if found:
            numbers = sorted(found)
            for name, array in add_up([found[number] for number in numbers]).items():
                yield answer_of(numbers[0], name, array)
            yield from (one_row(ANSWER, shard=n, name="done", dtype="", shape="[]", data=b"") for n in numbers)


def add_up(parts: Sequence[Mapping[str, Array]]) -> dict[str, Array]:
    """Arrays of the same name added in order."""
    total = {name: array.copy() for name, array in parts[0].items()}
    for part in parts[1:]:
        for name, array in part.items():
            total[name] += array
    return total


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


def answer_of(shard: int, name: str, array: Array) -> Any:
    """An array of a shard's answer as an Arrow batch."""
    data = np.ascontiguousarray(array)
    return one_row(
        ANSWER, shard=shard, name=name, dtype=str(data.dtype), shape=json.dumps(data.shape), data=data.tobytes()
    )


def array_of(line: Mapping[str, Any]) -> Array:
    """The array that `answer_of` wrote into a line."""
    shape = json.loads(line["shape"])
    return np.frombuffer(line["data"], line["dtype"]).reshape(shape) if line["data"] else np.empty(shape, line["dtype"])


def one_row(schema: str, **values: Any) -> Any:
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
