"""Sources of raw rows: texts or table columns that an encoder, such as a hasher, turns into features while reading.

A format gives `batches`; `with_encoder` says how a batch becomes a chunk. Batches are encoded in order by one thread,
ahead of the learner, because an encoder may learn (names, counts) from what it sees; now and then it waits to hear from
the learner. Rows are then permuted inside
their chunk. Memory: a few batches, whatever the size of the data. Encoding starts anew in every epoch: keep the rows
with `cache` where that costs more than learning does.
"""

from __future__ import annotations

import copy
import math
import os
import threading
from abc import abstractmethod
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from steepest.data.ahead import map_ahead
from steepest.data.cache import CachedSource, CacheFile
from steepest.data.chunk import Array, Chunk, DataError
from steepest.data.files import Block
from steepest.data.kept import Kept
from steepest.data.lines import PARSING_THREADS, QUEUE_CHUNKS, ROWS, BadLine, BadLines, BlockSource, Group, GroupChunk
from steepest.data.source import Limited, Order, Selected, Source

# A survey stops telling labels apart beyond: these are numbers, not classes.
MOST_LABELS = 1 << 20


@dataclass(frozen=True, slots=True)
class RawBatch:
    """Some rows before encoding.

    Attributes
    ----------
    columns : Arrow table or batch, or a list of texts
        Whatever `Hasher.to_chunk` takes.
    y : array or None
        Float64 numbers, strings, or one 0/1 column for each of several labels.
    first_id : int
        The stable number of the first row; of each block's first row where the batch holds several (`block_rows` are
        their first rows, `block_ids` those rows' numbers).
    place : tuple of int
        Where the batch stands in the data: what its random order is drawn for.
    """

    columns: Any
    n_rows: int
    y: Array | None = None
    weight: Array | None = None
    first_id: int = 0
    block_rows: Array | None = None
    block_ids: Array | None = None
    place: tuple[int, ...] = ()


Encoder = Callable[[RawBatch], Chunk]


class RawSource(Source):
    """Raw rows, read through an encoder. A format gives `batches` and `recipe`."""

    encoder: Encoder | None = None

    @abstractmethod
    def batches(self, order: Order, epoch: int) -> Generator[RawBatch, None, None]:
        """All rows of one epoch; batches come in the order given, rows inside a batch as they stand."""

    def first_batch(self) -> RawBatch | None:
        """Some of the first rows in file order; None if there are none."""
        with closing(self.batches(Order(), 0)) as batches:
            return next(batches, None)

    @abstractmethod
    def describe(self) -> str:
        """Where the rows come from, in short."""

    def _copy(self) -> Self:
        return copy.copy(self)

    def with_encoder(self, encode: Encoder) -> Self:
        """The same rows, encoded; targets, weights and row numbers need not be set by the encoder."""
        source = self._copy()
        source.encoder = encode
        return source

    def start_over(self) -> None:
        """The encoder forgets what it has seen, also of batches that were encoded ahead and never came out."""
        encoder: Any = self.encoder
        if hasattr(encoder, "start_over"):
            encoder.start_over()

    def read(self, order: Order, epoch: int) -> Iterator[Chunk]:
        """One chunk for each batch."""
        encoder = self.encoder
        if encoder is None:
            raise DataError(
                f"{self.describe()} holds raw columns: give the estimator a hasher, "
                "e.g. LinearClassifier(hasher=Hasher())"
            )
        return self._read(encoder, order, epoch)

    def _read(self, encoder: Encoder, order: Order, epoch: int) -> Iterator[Chunk]:
        batches = self.batches(order, epoch)
        gate = _Gate(None if order.unheard else encoder, lambda batch: _encoded(encoder, batch, order, epoch))
        chunks = map_ahead(gate.make, batches, ahead=QUEUE_CHUNKS)
        try:
            for made in chunks:
                yield gate.make_now(made) if isinstance(made, RawBatch) else made
        finally:
            gate.open()
            chunks.close()
            with suppress(ValueError):  # a thread that waits for a silent pipe is still inside
                batches.close()


class _Gate:
    """Lets an encoder hear from the learner at fixed places: the batch there is encoded in the consumer's own thread.

    The consumer asks for it when it has learned all rows before, so what is heard depends on the data alone. Until
    then the thread that encodes ahead waits with the batches behind.
    """

    def __init__(self, encoder: Any, make: Callable[[RawBatch], Chunk]) -> None:
        self._encoder = encoder
        self._make = make
        self._passable = threading.Event()
        self._passable.set()

    def make(self, batch: RawBatch) -> Chunk | RawBatch:
        """The chunk, or the batch itself if it must wait."""
        self._passable.wait()
        if not hasattr(self._encoder, "waits") or not self._encoder.waits(batch):
            return self._make(batch)
        self._passable.clear()
        return batch

    def make_now(self, batch: RawBatch) -> Chunk:
        """The chunk of a batch that waited."""
        self._encoder.catch_up()
        chunk = self._make(batch)
        self._passable.set()
        return chunk

    def open(self) -> None:
        """Nobody needs to wait any more."""
        self._passable.set()


def _encoded(encoder: Encoder, batch: RawBatch, order: Order, epoch: int) -> Chunk:
    """A batch as a chunk in visiting order, whose rows know their targets and stable numbers."""
    chunk = encoder(batch)
    if len(chunk.indptr) - 1 != batch.n_rows:
        raise DataError(f"the encoder made {len(chunk.indptr) - 1} rows of {batch.n_rows}; it must keep each row")
    if batch.block_rows is None or batch.block_ids is None:
        chunk = replace(chunk, y=batch.y, weight=batch.weight, first_id=batch.first_id)
    else:
        chunk = GroupChunk(
            chunk.indptr,
            chunk.indices,
            chunk.values,
            chunk.n_features,
            batch.y,
            batch.weight,
            block_rows=batch.block_rows,
            block_ids=batch.block_ids,
        )
    rows = order.permute(batch.n_rows, epoch, ROWS, *batch.place)
    return chunk if rows is None else chunk.visit(rows)


def is_raw(source: Source) -> bool:
    """Whether the source, or the one below its limits, splits and caches, still needs an encoder."""
    while isinstance(source, Limited | Selected | CachedSource):
        source = source.parent
    return isinstance(source, RawSource) and source.encoder is None


def first_columns(source: Source) -> Any:
    """The columns of the first rows in file order, or None where rows come by only once."""
    while isinstance(source, Limited | Selected | CachedSource):
        source = source.parent
    if not isinstance(source, RawSource) or any(file.once for file in getattr(source, "files", ())):
        return None
    batch = source.first_batch()
    return None if batch is None else batch.columns


def cache_of(source: Source) -> str | None:
    """The file that the rows of a source are kept in, if they are."""
    while isinstance(source, Limited | Selected):
        source = source.parent
    return source.path if isinstance(source, CachedSource) else None


def root_of(source: Source) -> Source:
    """The source below limits, splits and caches."""
    while isinstance(source, Limited | Selected | CachedSource | Kept):
        source = source.parent
    return source


def encoder_of(source: Source) -> Any:
    """The encoder at the bottom of a source, if there is one."""
    source = root_of(source)
    return source.encoder if isinstance(source, RawSource) else None


def rereading_encoder(source: Source | None) -> Any:
    """The encoder that goes on working in later epochs; None if the rows it made are kept or cached."""
    while isinstance(source, Limited | Selected | Kept):
        if isinstance(source, Kept) and source.holds_rows:
            return None
        source = source.parent
    return source.encoder if isinstance(source, RawSource) and hasattr(source.encoder, "go_on_from") else None


def stored_encoder(source: Source) -> tuple[dict[str, Any], dict[str, Array]] | None:
    """The encoder's state in a cache file that is read by itself."""
    while isinstance(source, Limited | Selected):
        source = source.parent
    return source.encoder_state if isinstance(source, CacheFile) else None


@dataclass(frozen=True, slots=True)
class Survey:
    """What one pass over the data tells before learning: rows, outputs, and columns or a number of features."""

    n_rows: int
    labels: frozenset[Any]
    n_targets: int  # columns of y; 0 if it has one value a row
    n_features: int
    columns: Any = None  # of the first rows, if they are raw
    first_rows: int = 0


def survey(source: Source) -> Survey:
    """Reads all rows once, raw ones without encoding them."""
    root = source
    while isinstance(root, Limited | Selected | CachedSource):
        root = root.parent
    once = [file.name for file in getattr(root, "files", ()) if file.once]
    if once:
        raise DataError(
            f"{once[0]} can be read only once, but a memory budget needs a look at the data before learning; "
            "save it in a file, or choose n_bits yourself"
        )
    n_rows = n_targets = n_features = 0
    labels: set[Any] = set()
    first: RawBatch | None = None
    with closing(root.batches(Order(), 0) if is_raw(source) and isinstance(root, RawSource) else _all(root)) as parts:
        for part in parts:
            if isinstance(part, RawBatch):
                first = first or part
            else:
                n_features = max(n_features, part.n_features)
            n_rows += part.n_rows
            if part.y is not None and part.y.ndim == 2:
                n_targets = part.y.shape[1]
            elif part.y is not None:
                labels.update(np.unique(part.y).tolist() if len(labels) < MOST_LABELS else ())
    head = (None, 0) if first is None else (first.columns, first.n_rows)
    return Survey(n_rows, frozenset(labels), n_targets, n_features, *head)


def _all(source: Source) -> Generator[Chunk, None, None]:
    yield from source.read(Order(), 0)


def raw_batches(source: Source) -> Generator[RawBatch, None, None]:
    """The rows of a raw source, or of the first ones of it, in file order and not encoded."""
    most = math.inf
    while isinstance(source, Limited):
        most, source = min(most, source.most), source.parent
    if not isinstance(source, RawSource):
        raise DataError("only whole files, or their first rows, can be taken as they are")
    with closing(source.batches(Order(), 0)) as batches:
        for batch in batches:
            n_rows = int(min(most, batch.n_rows))
            if n_rows == 0:
                return
            most -= n_rows
            y, weight = (None if part is None else part[:n_rows] for part in (batch.y, batch.weight))
            yield replace(batch, columns=batch.columns[:n_rows], n_rows=n_rows, y=y, weight=weight)


def encoded(source: Source, encode: Encoder, signature: str = "") -> Source:
    """The source with an encoder put in at the bottom; `signature` tells a cache which encoder it was."""
    if isinstance(source, RawSource):
        result: Source = source.with_encoder(encode)
    elif isinstance(source, CachedSource):
        result = source.over(encoded(source.parent, encode, signature))
    elif isinstance(source, Limited | Selected):
        result = copy.copy(source)
        result.parent = encoded(source.parent, encode, signature)
    else:
        raise DataError("these rows are encoded already; only raw texts and tables take a hasher")
    if not isinstance(source, CachedSource):
        result.signature = signature
    return result


@dataclass(frozen=True, slots=True)
class RawRows:
    """What a format made of some blocks: all good rows, and for each block how many are its own and which are bad."""

    columns: Any
    rows: Sequence[int]
    y: Array | None = None
    weight: Array | None = None
    bad: Sequence[BadLine] = ()
    n_bad: Sequence[int] = ()


class RawLines(RawSource, BlockSource):
    """Raw rows from files of lines. A format gives `split` and `recipe`."""

    @abstractmethod
    def split(self, blocks: list[Block]) -> RawRows:
        """The rows of some blocks of whole lines. Runs in several threads at once."""

    def n_rows_of(self, block: Block) -> int:
        """How many good rows a block has."""
        return sum(self.split([block]).rows)

    def describe(self) -> str:
        """The files' names."""
        from steepest.data.files import describe

        return describe(self.files)

    def batches(self, order: Order, epoch: int) -> Generator[RawBatch, None, None]:
        """One batch for each group of blocks."""
        self.prepare()
        any_row = False
        batches = map_ahead(
            self._split_group,
            self._groups(order, epoch),
            threads=min(PARSING_THREADS, os.cpu_count() or 1),
            ahead=QUEUE_CHUNKS,
        )
        with closing(batches):
            for batch, bad in batches:
                for block_bad in bad:
                    self.skipped.add(*block_bad)
                if batch.n_rows:
                    any_row = True
                    yield batch
        if not any_row and not self._parts:
            raise self._no_rows()

    def first_batch(self) -> RawBatch | None:
        """The rows of the first block that has any; no other block is read for them."""
        self.prepare()
        for file in self.files:
            for block in self._blocks([file], Order(), 0):
                batch, _ = self._split_group(Group([block], (file.position, 0)))
                if batch.n_rows:
                    return batch
        return None

    def _split_group(self, group: Group) -> tuple[RawBatch, list[BadLines]]:
        blocks = group.blocks
        raw = self.split(blocks)
        bad = self._bad_lines(blocks, raw.n_bad, raw.bad) if len(raw.bad) else []
        batch = RawBatch(
            raw.columns,
            sum(raw.rows),
            raw.y,
            raw.weight,
            blocks[0].first_id,
            np.cumsum([0, *raw.rows[:-1]]),
            np.array([block.first_id for block in blocks]),
            group.place,
        )
        return batch, bad
