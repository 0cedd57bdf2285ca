"""The executors' side of shards: rows are packed into blocks, shared out, stored in local files, and visited there.

A function that takes `batches` is what one `mapInArrow` does with those of a partition; shards.py puts them in order.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import IO, Any, Protocol

import numpy as np

from steepest.data.chunk import Array, Chunk, concatenate
from steepest.engine.mixing import shards_of_rows
from steepest.errors import DataError
from steepest.spark.messages import (
    ANSWER,
    ERROR,
    MISSING,
    add_up,
    answer_rows,
    chunk_arrays,
    chunk_of,
    from_bytes,
    lines_of,
    one_row,
    partition_number,
    read_answers,
    to_bytes,
)
from steepest.spark.rows import BadRowError, Columns

BLOCK_ENTRIES = 1 << 20  # about eight megabytes
MOST_BLOCK_ROWS = 1 << 16
MOST_LABELS = 1 << 16

PACKED = "part int, start long, rows long, about string, error string, ids binary, block binary, path string"
SHARED = "shard int, start long, block binary"
ANCHOR = "shard int, path string"

Work = Callable[[Any, Any], Mapping[str, Array]]  # (the shard, the state) -> the answer
Finish = Callable[[int, Mapping[str, Array]], Mapping[str, Array]]  # (number of the shard, its rows) -> what is stored


# ------------------------------------------------------------------------------------------------------------- packing


class Reader(Protocol):
    """Turns the batches of one partition into blocks."""

    def read(self, batch: Any) -> tuple[Any, int]:
        """(the rows of a batch, how many there are)."""

    def is_full(self, parts: Sequence[Any]) -> bool:
        """Whether these are enough for a block."""

    def block(self, parts: Sequence[Any]) -> dict[str, Any]:
        """The block and a summary of it, as values of the columns `PACKED`."""

    def rest(self) -> dict[str, Any]:
        """Like `block`, for a last line without rows; None if there is nothing left to report."""


def pack(
    new_reader: Callable[[], Reader], names: Sequence[str], place: str | None, batches: Iterator[Any]
) -> Iterator[Any]:
    """Rows of a partition, which are in the columns `names`, to blocks; the column `place` names their file."""
    part, reader = partition_number(), new_reader()
    waiting: list[Any] = []
    start = seen = lines = 0  # rows before this block, rows so far, and lines they were read from
    for batch in batches:
        if not batch.num_rows:
            continue
        try:
            rows, n_rows = reader.read(batch.select(names))
        except BadRowError as error:
            file = "" if place is None else f"{batch.column(place)[error.row].as_py()}, "
            complaint = f"{file}row {lines + error.row} of partition {part} ({error.shown}): {error.fault}"
            yield one_row(PACKED, part=part, start=start, error=complaint)
            return
        waiting.append(rows)
        lines += batch.num_rows
        seen += n_rows
        if reader.is_full(waiting):
            yield one_row(PACKED, part=part, start=start, rows=seen - start, **reader.block(waiting))
            start, waiting = seen, []
    if waiting:
        yield one_row(PACKED, part=part, start=start, rows=seen - start, **reader.block(waiting))
    if seen and (rest := reader.rest()):
        yield one_row(PACKED, part=part, start=seen, rows=0, **rest)


@dataclass(frozen=True, slots=True)
class RowReader:
    """Rows of features, with targets and weights."""

    columns: Columns
    classify: bool
    run: str | None = None  # blocks go to files of this run, if all executors see them

    def read(self, batch: Any) -> tuple[Chunk, int]:
        """The rows of a batch as a chunk."""
        chunk = self.columns.read(batch)
        return chunk, chunk.n_rows

    def is_full(self, parts: Sequence[Chunk]) -> bool:
        """Whether the block has enough entries or rows."""
        n_entries, n_rows = sum(len(part.indices) for part in parts), sum(part.n_rows for part in parts)
        return n_entries > BLOCK_ENTRIES or n_rows > MOST_BLOCK_ROWS

    def block(self, parts: Sequence[Chunk]) -> dict[str, Any]:
        """The rows, with words as indices of the block's labels, and sums over them."""
        chunk = concatenate(parts)
        y, weight = chunk.y, np.ones(chunk.n_rows) if chunk.weight is None else chunk.weight
        labels: list[Any] = []
        sums: list[float] = []
        if y is not None and (self.classify or y.dtype.kind == "U"):
            values, codes = np.unique(y, return_inverse=True)
            labels, sums = values.tolist(), np.bincount(codes.reshape(-1), weight).tolist()
            if len(labels) > MOST_LABELS:
                error = f"the label column has more than {MOST_LABELS:,} distinct values; is it a number to regress on?"
                return {"error": error}
            if y.dtype.kind == "U":
                chunk = replace(chunk, y=codes.reshape(-1).astype(np.float64))
        about = {
            "entries": len(chunk.indices),
            "n_features": chunk.n_features,
            "labels": labels,
            "label_weights": sums,
            "least_weight": float(weight[weight > 0].min(initial=np.inf)),
        }
        data = to_bytes(chunk_arrays(chunk))
        if self.run is None:
            return {"about": json.dumps(about), "block": data}
        directory_of(self.run).mkdir(parents=True, exist_ok=True)
        number, path = tempfile.mkstemp(prefix="block-", dir=directory_of(self.run))
        with open(number, "wb") as file:
            file.write(data)
        return {"about": json.dumps(about), "path": path}

    def rest(self) -> dict[str, Any]:
        """None: everything was reported with the blocks."""
        return {}


def directory_of(run: str) -> Path:
    """A directory on this executor's own disk; Spark's, if it names one, which is removed with the application."""
    places = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")
    return Path(places[0] if places[0] and os.path.isdir(places[0]) else tempfile.gettempdir()) / f"steepest-{run}"


# --------------------------------------------------------------------------------------------------------- sharing out


class Shares(Protocol):
    """Which rows of a block belong to which shard."""

    @property
    def n_shards(self) -> int:
        """The number of shards."""

    def owners(self, line: Mapping[str, Any], block: Any) -> tuple[int, Any, Array]:
        """(number of the first row, the rows, the shard of each)."""

    def take(self, rows: Any, numbers: Array) -> Mapping[str, Array]:
        """A copy of some of the rows."""


@dataclass(frozen=True, slots=True)
class RowShares:
    """Runs of neighbouring rows by turns, as one process shares out rows in memory."""

    firsts: Mapping[int, int]  # number of the first row of each partition
    n_rows: int
    n_shards: int
    labels: Sequence[Any] | None  # of all rows, if they are words

    def owners(self, line: Mapping[str, Any], block: Any) -> tuple[int, Chunk, Array]:
        """Sets the rows' label indices to those of all blocks together; returns the shard of each row."""
        chunk = chunk_of(from_bytes(block))
        if self.labels is not None and chunk.y is not None:
            own = np.searchsorted(np.asarray(self.labels), np.asarray(json.loads(line["about"])["labels"]))
            chunk = replace(chunk, y=own[chunk.y.astype(np.int64)].astype(np.float64))
        start = self.firsts[line["part"]] + line["start"]
        return start, chunk, shards_of_rows(start + np.arange(chunk.n_rows), self.n_rows, self.n_shards)

    def take(self, rows: Chunk, numbers: Array) -> Mapping[str, Array]:
        """A copy of some rows."""
        return chunk_arrays(rows.visit(numbers))


def share_out(shares: Shares, batches: Iterator[Any]) -> Iterator[Any]:
    """Blocks to the parts that each shard gets of them."""
    for line in lines_of(batches):
        if not line["rows"]:
            continue
        start, rows, owner = shares.owners(line, line["block"])
        # With the first row of all, each shard gets a part, if an empty one.
        for shard in range(shares.n_shards) if start == 0 else np.unique(owner).tolist():
            part = shares.take(rows, np.flatnonzero(owner == shard))
            yield one_row(SHARED, shard=shard, start=start, block=to_bytes(part))


def gather(shares: Shares, blocks: Sequence[Mapping[str, Any]], run: str, batches: Iterator[Any]) -> Iterator[Any]:
    """Shards by their numbers, each with its rows of all blocks, which are in files on this disk and in order."""
    for batch in batches:
        for shard in batch.column(0).to_pylist():
            files = ShardFiles(directory_of(run), shard)
            for line in blocks:
                _, rows, owner = shares.owners(line, np.memmap(line["path"], np.uint8, "r"))
                files.append_rows(shares.take(rows, np.flatnonzero(owner == shard)))
            yield files.close()


def store(run: str, finish: Any, batches: Iterator[Any]) -> Iterator[Any]:
    """Parts of shards, which come in order, to their files; the result is the lines of the anchor.

    `finish` has as its `value` a `Finish` for all parts of a shard, one after the other; None: rows are stored as they
    are.
    """
    files: dict[int, ShardFiles] = {}
    parts: dict[int, list[dict[str, Array]]] = {}
    for line in lines_of(batches):
        shard, part = line["shard"], from_bytes(line["block"])
        if shard not in files:
            files[shard] = ShardFiles(directory_of(run), shard)
        if finish is None:
            files[shard].append_rows(part)
        else:
            parts.setdefault(shard, []).append(part)
    for shard in sorted(files):
        if finish is not None:
            own = parts.pop(shard)
            joined = {name: np.concatenate([part[name] for part in own]) for name in own[0]}
            files[shard].append(finish.value(shard, joined))
        yield files[shard].close()


class ShardFiles:
    """The arrays of one shard, appended part by part; their directory gets its name when they are complete."""

    def __init__(self, directory: Path, shard: int) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.shard, self.final = shard, directory / f"shard-{shard}"
        self.now = Path(tempfile.mkdtemp(prefix=f"shard-{shard}-", dir=directory))
        self.files: dict[str, IO[bytes]] = {}
        self.dtypes: dict[str, str] = {}
        self.n_entries, self.n_features = 0, -1

    def append(self, arrays: Mapping[str, Array]) -> None:
        """Writes arrays behind those of the same names."""
        for name, array in arrays.items():
            if name not in self.files:
                self.files[name] = open(self.now / name, "wb")  # noqa: SIM115, closed below
                self.dtypes[name] = str(array.dtype)
            self.files[name].write(np.ascontiguousarray(array).data)

    def append_rows(self, arrays: Mapping[str, Array]) -> None:
        """Writes the arrays of a chunk behind those of others."""
        parts = {name: array for name, array in arrays.items() if name != "n_features"}
        ends = parts["indptr"] + self.n_entries
        self.append({**parts, "indptr": ends[1:] if "indptr" in self.files else ends})
        self.n_entries += len(parts["indices"])
        self.n_features = max(self.n_features, int(arrays["n_features"][0]))

    def close(self) -> Any:
        """Completes the files; returns the line that tells where they are."""
        if self.n_features >= 0:
            self.append({"n_features": np.array([self.n_features])})
        for file in self.files.values():
            file.close()
        (self.now / "about.json").write_text(json.dumps(self.dtypes))
        try:
            os.rename(self.now, self.final)
        except OSError:  # another attempt was here first, with the same rows
            shutil.rmtree(self.now, ignore_errors=True)
        return one_row(ANCHOR, shard=self.shard, path=str(self.final))


# ------------------------------------------------------------------------------------------------------------ visiting


@dataclass(frozen=True)
class Shard:
    """The arrays of one shard, mapped from local files."""

    number: int
    path: str
    arrays: Mapping[str, Array]
    labels: Sequence[Any] | None = None  # that targets are the numbers of

    @classmethod
    def opened(cls, number: int, path: str, labels: Sequence[Any] | None) -> Shard:
        """Maps the files of a shard; FileNotFoundError if they are not on this machine."""
        directory = Path(path)
        arrays: dict[str, Array] = {}
        for name, dtype in json.loads((directory / "about.json").read_text()).items():
            file = directory / name
            arrays[name] = np.asarray(np.memmap(file, dtype, "r")) if file.stat().st_size else np.empty(0, dtype)
        return cls(number, path, arrays, labels)

    @cached_property
    def chunk(self) -> Chunk:
        """The rows; `y` holds the labels themselves."""
        return chunk_of(self.arrays, self.labels)


def visit(work: Work, shipped: Any, labels: Sequence[Any] | None, batches: Iterator[Any]) -> Iterator[Any]:
    """A round in one executor: opens the shards of its lines and answers what the work makes of them.

    `shipped` has the state as its `value`: a broadcast, or `Carried`.
    """
    for line in lines_of(batches):
        number = line["shard"]
        try:
            answer = work(Shard.opened(number, line["path"], labels), shipped.value)
        except FileNotFoundError:
            yield one_row(ANSWER, shard=number, name=MISSING)
        except DataError as error:  # the same rows would fail each time: no use in trying again
            yield one_row(ANSWER, shard=number, name=ERROR, dtype=str(error))
        else:
            yield from answer_rows(number, answer)


def add_answers(batches: Iterator[Any]) -> Iterator[Any]:
    """Answers of some shards to their sums, in the order of the shards."""
    lines = list(lines_of(batches))
    bad = [line for line in lines if line["name"] in (MISSING, ERROR)]
    if bad or not lines:
        yield from (one_row(ANSWER, **line) for line in bad)
        return
    answers = read_answers(lines)
    first, *others = answers
    yield from answer_rows(first, add_up(list(answers.values())))
    for number in others:
        yield from answer_rows(number, {})


def remove_files(batches: Iterator[Any]) -> Iterator[Any]:
    """Removes the directories of a run."""
    for line in lines_of(batches):
        shutil.rmtree(Path(line["path"]).parent, ignore_errors=True)
    return iter(())
