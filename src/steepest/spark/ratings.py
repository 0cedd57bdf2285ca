"""Ratings of a DataFrame, dealt to shards by user or by item: rows of (user, item, rating), ids of any type.

Every partition codes its ids by first sight; the driver joins the books in the order of partitions, so that codes are
those of one process, and gathers the ratings (16 bytes each), since a model knows what its users have seen. Executors
then deal the ratings by owner and keep what `finish` makes of them in files.
"""

from __future__ import annotations

import json
import os
import pickle
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from steepest.data.chunk import Array, DataError
from steepest.data.entries import Entries
from steepest.data.ids import IdBook, as_ids
from steepest.spark.blocks import ANCHOR, DEALT, folder_of, one_row
from steepest.spark.frames import canonical, collect, function_of, is_connect, ship
from steepest.spark.rows import NUMBERS, _numbers, _refuse_nulls, _shown, as_some_weights
from steepest.spark.shards import Shards, Survey

BLOCK_RATINGS = 1 << 19  # about eight megabytes
PACKED = "part int, start long, rows long, error string, users binary, items binary, block binary"

# (number of the shard, its entries in their order) -> what is kept of them
Finish = Callable[[int, Entries], Mapping[str, Array]]


@dataclass(frozen=True, slots=True)
class RatingColumns:
    """Which columns hold what."""

    user: str
    item: str
    rating: str | None
    weight: str | None

    @property
    def names(self) -> list[str]:
        """All columns that are read."""
        return list(dict.fromkeys(n for n in (self.user, self.item, self.rating, self.weight) if n is not None))


def rating_columns(types: Mapping[str, str], features: Any, label: str | None, weight: str | None) -> RatingColumns:
    """The columns of ratings; by default they are called user, item and rating."""
    names = ["user", "item"] if features is None else [features] if isinstance(features, str) else list(features)
    if len(names) != 2:
        raise DataError(f"features={features!r}: ratings have two columns, as in features=['user', 'item']")
    if label is None and "rating" in types and "rating" not in names:
        label = "rating"
    for role, name in (("features", names[0]), ("features", names[1]), ("label", label), ("weight", weight)):
        if name is not None and name not in types:
            raise DataError(f"{role}={name!r} is no column; the DataFrame has {', '.join(map(repr, types))}")
    for name in (label, weight):
        if name is not None and types[name] not in NUMBERS and not types[name].startswith("decimal"):
            raise DataError(f"the column {name!r} is of type {types[name]}; ratings and weights are numbers")
    return RatingColumns(names[0], names[1], label, weight)


# --------------------------------------------------------------------------------------------------- in the executors


@dataclass(frozen=True, slots=True)
class PackRatings:
    """Rows of a partition to blocks of codes, and at its end the ids they stand for."""

    columns: RatingColumns
    place: str | None

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Arrow batches of a partition to those of the answer."""
        from pyspark import TaskContext

        context = TaskContext.get()
        part = context.partitionId() if context is not None else 0
        books = IdBook(), IdBook()
        waiting: list[Entries] = []
        start = seen = 0
        for batch in batches:
            if not batch.num_rows:
                continue
            try:
                waiting.append(self._read(batch, *books))
            except (DataError, TypeError, ValueError, OverflowError) as error:
                yield one_row(PACKED, part=part, start=start, error=self._complaint(error, batch, part, seen))
                return
            seen += batch.num_rows
            if seen - start >= BLOCK_RATINGS:
                yield one_row(PACKED, part=part, start=start, rows=seen - start, block=to_block(waiting))
                start, waiting = seen, []
        if waiting:
            yield one_row(PACKED, part=part, start=start, rows=seen - start, block=to_block(waiting))
        if seen:
            users, items = (pickle.dumps(book.ids) for book in books)
            yield one_row(PACKED, part=part, start=seen, rows=0, users=users, items=items)

    def _read(self, batch: Any, users: IdBook, items: IdBook) -> Entries:
        names = self.columns
        rows, columns = (
            coded(batch.column(names.user), names.user, users),
            coded(batch.column(names.item), names.item, items),
        )
        values = np.ones(batch.num_rows)
        weights = None
        if names.rating is not None:
            _refuse_nulls(batch.column(names.rating), names.rating)
            values = _numbers(batch.column(names.rating))
            if not np.isfinite(values).all():
                raise DataError(f"the column {names.rating!r} holds {values[~np.isfinite(values)][0]}; drop such rows")
        if names.weight is not None:
            _refuse_nulls(batch.column(names.weight), names.weight)
            weights = as_some_weights(_numbers(batch.column(names.weight))).astype(np.float32)
        return Entries(rows, columns, values, weights)

    def _complaint(self, error: Exception, batch: Any, part: int, before: int) -> str:
        row, fault = 0, str(error)
        for row in range(batch.num_rows):
            try:
                self._read(batch.slice(row, 1), IdBook(), IdBook())
            except (DataError, TypeError, ValueError, OverflowError) as first:
                fault = str(first)
                break
        file = "" if self.place is None else f"{batch.column(self.place)[row].as_py()}, "
        return (
            f"{file}row {before + row} of partition {part} ({_shown(batch.select(self.columns.names), row)}): {fault}"
        )


def coded(column: Any, name: str, book: IdBook) -> Array:
    """Codes of ids; each different one is looked up once."""
    _refuse_nulls(column, name)
    distinct = column.dictionary_encode()
    own = book.codes(as_ids(plain_ids(distinct.dictionary), name), learn=True)
    return np.asarray(own[distinct.indices.to_numpy(zero_copy_only=False)])


def plain_ids(values: Any) -> Any:
    """An Arrow column of ids as numbers, or as a list."""
    import pyarrow as pa

    whole = pa.types.is_integer(values.type) or pa.types.is_floating(values.type)
    return values.to_numpy(zero_copy_only=False) if whole else values.to_pylist()


def to_block(parts: Sequence[Entries]) -> bytes:
    """Entries as one string of bytes."""
    entries = Entries.joined(*parts)
    arrays = [np.array([len(entries.users), entries.weights is not None]), entries.users, entries.items, entries.values]
    arrays += [] if entries.weights is None else [entries.weights]
    return b"".join(np.ascontiguousarray(array).tobytes() for array in arrays)


def from_block(data: Any) -> Entries:
    """The entries that `to_block` wrote, as views."""
    n, weighted = np.frombuffer(data, np.int64, 2).tolist()
    users, items = np.frombuffer(data, np.int32, n, 16), np.frombuffer(data, np.int32, n, 16 + 4 * n)
    values = np.frombuffer(np.frombuffer(data, np.uint8, 8 * n, 16 + 8 * n).tobytes(), np.float64)
    weights = np.frombuffer(data, np.float32, n, 16 + 16 * n) if weighted else None
    return Entries(users, items, values, weights)


@dataclass(frozen=True, slots=True)
class CutRatings:
    """Blocks to the parts that each shard gets of them, in codes of all."""

    shipped: (
        Any  # {partition: (codes of its users, codes of its items)}, first row of each partition, owner of each code
    )
    side: int  # 0: shards own users; 1: items
    n_shards: int

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Arrow batches of a partition to those of the answer."""
        codes, firsts, owners = self.shipped.value
        for batch in batches:
            for line in batch.to_pylist():
                if not line["rows"]:
                    continue
                entries, start = from_block(line["block"]), firsts[line["part"]] + line["start"]
                users, items = codes[line["part"]]
                entries = Entries(users[entries.users], items[entries.items], entries.values, entries.weights)
                owner = owners[(entries.users, entries.items)[self.side]]
                order = np.argsort(owner, kind="stable")
                ends = np.searchsorted(owner[order], np.arange(self.n_shards + 1))
                for shard in range(self.n_shards):
                    own = order[ends[shard] : ends[shard + 1]]
                    if len(own) or not start:  # each shard gets a part, if an empty one
                        yield one_row(DEALT, shard=shard, start=start, block=to_block([entries.only(own)]))


@dataclass(frozen=True, slots=True)
class StoreRatings:
    """Parts of a shard, which come in order, to the files of what is kept; the answer is the line of the anchor."""

    run: str
    finish: Any  # a shipped Finish

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Arrow batches of a partition to those of the answer."""
        parts: dict[int, list[Entries]] = {}
        for batch in batches:
            for line in batch.to_pylist():
                parts.setdefault(line["shard"], []).append(from_block(line["block"]))
        for shard in sorted(parts):
            entries = Entries.joined(*parts.pop(shard))
            path = write_arrays(folder_of(self.run), shard, self.finish.value(shard, entries))
            yield one_row(ANCHOR, shard=shard, path=path, rows=len(entries.users))


def write_arrays(folder: Path, shard: int, arrays: Mapping[str, Array]) -> str:
    """A folder with a file for each array; it gets its name when all are there."""
    folder.mkdir(parents=True, exist_ok=True)
    now, final = Path(tempfile.mkdtemp(prefix=f"shard-{shard}-", dir=folder)), folder / f"shard-{shard}"
    for name, array in arrays.items():
        np.save(now / name, array)
    (now / "about.json").write_text(json.dumps(sorted(arrays)))
    try:
        os.rename(now, final)
    except OSError:  # another attempt was here first, with the same ratings
        shutil.rmtree(now, ignore_errors=True)
    return str(final)


@dataclass(frozen=True, slots=True)
class RatingShard:
    """What is kept of the ratings of one shard, mapped from files."""

    number: int
    arrays: Mapping[str, Array]


def open_ratings(number: int, path: str, labels: Any) -> RatingShard:
    """Maps the files of a shard; FileNotFoundError if they are not on this machine."""
    folder = Path(path)
    names = json.loads((folder / "about.json").read_text())
    return RatingShard(number, {name: np.load(folder / f"{name}.npy", mmap_mode="r") for name in names})


# -------------------------------------------------------------------------------------------------------- in the driver


@dataclass(slots=True)
class Ratings:
    """All ratings, packed on the executors and gathered here."""

    session: Any
    packed: Any
    users: IdBook
    items: IdBook
    entries: Entries
    codes: dict[int, tuple[Array, Array]]
    firsts: dict[int, int]
    why: str
    shipped: list[Any] = field(default_factory=list)

    def deal(self, side: int, owners: Array, n_shards: int, finish: Finish, *, barrier: bool = False) -> RatingShards:
        """The ratings in shards; `owners` names the shard of each user (side 0) or item (side 1)."""
        given = ship(self.session, (self.codes, self.firsts, owners)), ship(self.session, finish)
        self.shipped += given
        survey = Survey(len(self.entries.users), len(self.entries.users), 0, {}, 0.0, 0.0, 0.0, self.firsts)
        shards = RatingShards(self.session, self.packed, survey, n_shards, None, open=open_ratings, barrier=barrier)
        shards.side, shards.given = side, given
        shards.make()
        return shards

    def close(self) -> None:
        """Forgets what was sent."""
        self.packed.unpersist()
        for shipped in self.shipped if not is_connect(self.session) else []:
            shipped.destroy()


@dataclass(slots=True)
class RatingShards(Shards):
    """Shards of ratings."""

    side: int = 0
    given: tuple[Any, Any] = (None, None)

    def _cut(self) -> Any:
        return CutRatings(self.given[0], self.side, self.n)

    def _store(self) -> Callable[[Iterator[Any]], Iterator[Any]]:
        return StoreRatings(self.name, self.given[1])


def pack_ratings(frame: Any, columns: RatingColumns, n_parts: int, order_by: Any, place: str | None) -> Ratings:
    """Packs and gathers all ratings."""
    from pyspark import StorageLevel

    session = frame.sparkSession
    ordered, why = canonical(frame, columns.names, n_parts, order_by)
    read = [*columns.names, *([] if place is None else [place])]
    packed = ordered.select(*read).mapInArrow(function_of(PackRatings(columns, place)), PACKED)
    packed = packed.persist(StorageLevel.DISK_ONLY)
    try:
        # Rows come in large batches in the first job; blocks, which are large, come few at once in the second.
        heads = collect(session, packed.drop("block"), blobs=False).to_pylist()
        return _joined(session, packed, heads, collect(session, packed.select("part", "start", "block")), why)
    except BaseException:
        packed.unpersist()
        raise


def _joined(session: Any, packed: Any, lines: list[dict[str, Any]], table: Any, why: str) -> Ratings:
    """What all partitions told, in codes of all."""
    lines.sort(key=lambda line: (line["part"], line["start"]))
    for line in lines:
        if line["error"] is not None:
            raise DataError(line["error"])
    blocks: dict[tuple[int, int], Any] = {}
    for batch in table.to_batches():
        part, start, block = batch.columns
        for row in range(batch.num_rows):
            if block[row].is_valid:
                blocks[part[row].as_py(), start[row].as_py()] = block[row].as_buffer()
    users, items = IdBook(), IdBook()
    codes = {
        line["part"]: (users.codes(pickle.loads(line["users"]), learn=True),
                       items.codes(pickle.loads(line["items"]), learn=True))
        for line in lines if not line["rows"]
    }  # fmt: skip
    firsts: dict[int, int] = {}
    parts, n = [], 0
    for line in lines:
        firsts.setdefault(line["part"], n)
        if line["rows"]:
            own, (user_codes, item_codes) = from_block(blocks[line["part"], line["start"]]), codes[line["part"]]
            parts.append(Entries(user_codes[own.users], item_codes[own.items], own.values, own.weights))
            n += line["rows"]
    if not n:
        raise DataError("the DataFrame holds no ratings; nothing can be learned from it")
    return Ratings(session, packed, users, items, Entries.joined(*parts), codes, firsts, why)
