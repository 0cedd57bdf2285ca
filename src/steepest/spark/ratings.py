"""Ratings of a DataFrame, shared out to shards by user or by item: rows of (user, item, rating), ids of any type.

Every partition codes its ids by first sight; the driver joins the books in the order of partitions, so that codes are
those of one process, and gathers the ratings (16 bytes each), since a model knows what its users have seen. Executors
then share out the ratings by owner and store what `Finish` makes of them in files.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from steepest.data.chunk import Array
from steepest.data.entries import Entries
from steepest.data.ids import IdBook, as_ids
from steepest.errors import DataError
from steepest.spark.blocks import Finish
from steepest.spark.frames import FitOptions, Input, collect, ship
from steepest.spark.messages import from_bytes, to_bytes
from steepest.spark.rows import check_columns, is_number, numbers_of, read_rows, weights_of, without_nulls
from steepest.spark.shards import Shards, blocks_of, first_rows, packed_blocks

BLOCK_RATINGS = 1 << 19  # about eight megabytes


@dataclass(frozen=True, slots=True)
class RatingColumns:
    """Which columns hold what."""

    user: str
    item: str
    rating: str | None = None
    weight: str | None = None

    @property
    def names(self) -> list[str]:
        """All columns that are read."""
        return list(dict.fromkeys(n for n in (self.user, self.item, self.rating, self.weight) if n is not None))


def rating_columns(
    types: Mapping[str, str], features: Any, label: str | None = None, weight: str | None = None
) -> RatingColumns:
    """The columns of ratings; by default they are called user, item and rating."""
    names = ["user", "item"] if features is None else [features] if isinstance(features, str) else list(features)
    if len(names) != 2:
        raise DataError(f"features={features!r}: ratings have two columns, as in features=['user', 'item']")
    if label is None and "rating" in types and "rating" not in names:
        label = "rating"
    check_columns(types, [("features", names[0]), ("features", names[1]), ("label", label), ("weight", weight)])
    for name in (label, weight):
        if name is not None and not is_number(types[name]):
            raise DataError(f"the column {name!r} is of type {types[name]}; ratings and weights are numbers")
    return RatingColumns(names[0], names[1], label, weight)


def recipe_of(columns: RatingColumns) -> dict[str, Any]:
    """How a file of such ratings is read on one machine; columns with the usual names are found without."""
    named = {role: getattr(columns, role) for role in ("user", "item", "rating", "weight")}
    return {"format": "ratings", **{role: name for role, name in named.items() if name not in (None, role)}}


def ids_of(values: Any, name: str) -> Array:
    """An Arrow column of ids."""
    import pyarrow as pa

    numbers = pa.types.is_integer(values.type) or pa.types.is_floating(values.type)
    return as_ids(values.to_numpy(zero_copy_only=False) if numbers else values.to_pylist(), name)


# --------------------------------------------------------------------------------------------------- in the executors


class RatingReader:
    """Ratings of a partition, by codes of its own."""

    def __init__(self, columns: RatingColumns) -> None:
        self.columns = columns
        self.books = IdBook(), IdBook()

    def read(self, batch: Any) -> tuple[Entries, int]:
        """The ratings of a batch."""
        return read_rows(self._read, batch), batch.num_rows

    def _read(self, batch: Any) -> Entries:
        names = self.columns
        if names.weight is not None and not (present := weights_of(batch, names.weight) > 0).all():
            batch = batch.filter(present)  # a rating of weight 0 is not there
        users, items = (self._codes(batch, *side) for side in zip((names.user, names.item), self.books, strict=True))
        values = np.ones(batch.num_rows) if names.rating is None else numbers_of(batch, names.rating)
        weights = None if names.weight is None else weights_of(batch, names.weight).astype(np.float32)
        return Entries(users, items, values, weights)

    def _codes(self, batch: Any, name: str, book: IdBook) -> Array:
        """Each distinct id is looked up once."""
        distinct = without_nulls(batch, name).dictionary_encode()
        own = book.codes(ids_of(distinct.dictionary, name), learn=True)
        return np.asarray(own[distinct.indices.to_numpy(zero_copy_only=False)])

    def is_full(self, parts: Sequence[Entries]) -> bool:
        """Whether the block has enough ratings."""
        return sum(len(part.users) for part in parts) >= BLOCK_RATINGS

    def block(self, parts: Sequence[Entries]) -> dict[str, Any]:
        """The ratings."""
        return {"block": to_bytes(Entries.joined(*parts).as_arrays())}

    def rest(self) -> dict[str, Any]:
        """The ids that the codes stand for."""
        return {"ids": pickle.dumps([book.ids for book in self.books])}


@dataclass(frozen=True, slots=True)
class RatingShares:
    """Ratings by the owners of their users or items."""

    # ({partition: (codes of its users, codes of its items)}, first row of each partition, owner of each code)
    shipped: Any
    side: str  # whose owners: "users" or "items"
    n_shards: int

    def owners(self, line: Mapping[str, Any], block: Any) -> tuple[int, Entries, Array]:
        """The ratings in codes of all."""
        codes, firsts, owners = self.shipped.value
        entries = recoded(block, codes[line["part"]])
        return firsts[line["part"]] + line["start"], entries, owners[getattr(entries, self.side)]

    def take(self, rows: Entries, numbers: Array) -> Mapping[str, Array]:
        """A copy of some ratings."""
        return rows.only(numbers).as_arrays()


def recoded(block: Any, codes: tuple[Array, Array]) -> Entries:
    """The ratings of a block in codes of all."""
    own = Entries.from_arrays(from_bytes(block))
    return Entries(codes[0][own.users], codes[1][own.items], own.values, own.weights)


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

    def share_out(self, side: str, owners: Array, n_shards: int, finish: Finish, *, barrier: bool = False) -> Shards:
        """The ratings in shards; `owners` names the shard of each user or item."""
        given, finishing = (ship(self.session, value) for value in ((self.codes, self.firsts, owners), finish))
        self.shipped += [given, finishing]
        shares = RatingShares(given, side, n_shards)
        shards = Shards(self.session, self.packed, n_shards, shares, finishing, barrier=barrier)
        shards.make()
        return shards

    def close(self) -> None:
        """Forgets what was sent."""
        self.packed.unpersist()
        for shipped in self.shipped:
            shipped.destroy()


def pack_ratings(given: Input, columns: RatingColumns, n_shards: int, options: FitOptions) -> Ratings:
    """Packs and gathers all ratings."""
    session, reader = given.frame.sparkSession, partial(RatingReader, columns)
    packed, why = packed_blocks(given, reader, columns.names, n_shards, options)
    try:
        # Rows come in large batches in the first job; blocks, which are large, come few at once in the second.
        lines = blocks_of(session, packed)
        blocks = collect(session, packed.select("part", "start", "block"))
        return _joined(session, packed, lines, blocks, why)
    except BaseException:
        packed.unpersist()
        raise


def _joined(session: Any, packed: Any, lines: list[dict[str, Any]], table: Any, why: str) -> Ratings:
    """The ratings of all partitions, in codes of all."""
    blocks: dict[tuple[int, int], Any] = {}
    for batch in table.to_batches():
        part, start, block = batch.columns
        for row in range(batch.num_rows):
            if block[row].is_valid:
                blocks[part[row].as_py(), start[row].as_py()] = block[row].as_buffer()
    if not blocks:
        raise DataError("the DataFrame holds no ratings; nothing can be learned from it")
    users, items = IdBook(), IdBook()
    codes: dict[int, tuple[Array, Array]] = {}
    for line in lines:
        if line["ids"] is not None:
            own_users, own_items = pickle.loads(line["ids"])
            codes[line["part"]] = users.codes(own_users, learn=True), items.codes(own_items, learn=True)
    parts = [recoded(blocks[line["part"], line["start"]], codes[line["part"]]) for line in lines if line["rows"]]
    return Ratings(session, packed, users, items, Entries.joined(*parts), codes, first_rows(lines), why)
