"""Sources of raw rows: texts or table columns that an encoder, such as a hasher, turns into features while reading.

A format implements `batches`; `with_encoder` sets how a batch becomes a chunk. Batches are encoded in order by one
thread, ahead of the learner, because an encoder may learn (names, counts) from them; chosen batches wait until all rows
before them were learned. Rows are then permuted inside their chunk. Memory: a few batches, whatever the size of the
data. Rows are encoded again in every epoch: store them with `cache` where that costs more than learning does.
Models read through a `RowEncoder`, whose hasher learns from each batch once.
"""

from __future__ import annotations

import math
import threading
import warnings
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any, Self

import numpy as np

from steepest.data.chunk import Array, Chunk, RowIds
from steepest.data.files.blocks import map_ahead
from steepest.data.source import ROWS, Limited, Order, Selected, Source
from steepest.data.store.cache import CachedSource, CacheFile
from steepest.errors import ColumnWarning, DataError

# Chunks that may wait for the learner.
QUEUE_CHUNKS = 2
# A survey stops collecting labels beyond so many: these are numbers, not classes.
MOST_LABELS = 1 << 20
# What kinds of columns are decided on.
SAMPLE_ROWS = 20_000
SAMPLE_PARTS = 12


@dataclass(frozen=True, slots=True)
class RawBatch:
    """Rows before encoding.

    Attributes
    ----------
    columns : Arrow table or batch, or a list of texts
        Whatever `Hasher.to_chunk` takes.
    y : array or None
        Float64 numbers, strings, or one 0/1 column for each of several labels.
    first_id : int
        The stable number of the first row.
    ids : RowIds or None
        The stable numbers of all rows, if they do not just count on from the first.
    place : tuple of int
        Where the batch is in the data: what its random order is drawn for.
    """

    columns: Any
    n_rows: int
    y: Array | None = None
    weight: Array | None = None
    first_id: int = 0
    ids: RowIds | None = None
    place: tuple[int, ...] = ()


Encoder = Callable[[RawBatch], Chunk]


class RowEncoder:
    """Encodes raw batches by a hasher; with `learn`, the hasher learns from each batch once."""

    def __init__(self, hasher: Any, learn: bool, counted: bool = False) -> None:
        self.hasher = hasher
        self.learn = learn
        self.counted = counted  # the hasher has counted the rows in a pass before
        self.heaviness: Callable[[Array], Array] | None = None  # of a learner's weights, by bucket
        self._seen: set[int] = set()
        self._n_batches = 0
        self._unnamed: Array | None = None  # heavy buckets without a name
        self._start = hasher.state() if learn else None

    def start_over(self) -> None:
        """Resets the hasher and forgets which batches were seen."""
        if self._start is not None and self._seen:
            self.hasher.restore(*self._start)
            self._seen.clear()
            self._n_batches, self._unnamed = 0, None

    def waits(self, batch: RawBatch) -> bool:
        """Whether a batch must not be encoded before all earlier ones were learned: new batches 2, 4, 8, ..."""
        if not self.learn or self.heaviness is None or not self.hasher.n_names or batch.first_id in self._seen:
            return False
        self._n_batches += 1
        return self._n_batches > 1 and self._n_batches & (self._n_batches - 1) == 0

    def catch_up(self) -> None:
        """Keeps the names of the features that now have the heaviest weights; called at batches that waited."""
        if self.heaviness is not None and hasattr(self.hasher, "names_"):
            self.hasher.names_.keep_heaviest(self.heaviness)
            if hasattr(self.hasher, "document_counts_"):  # which show the buckets in use
                used = self.hasher.counted_features
                self._unnamed = self.hasher.names_.unnamed(used, self.heaviness(used))

    def __call__(self, batch: RawBatch) -> Chunk:
        """Hashes the batch."""
        blocks = (batch.first_id,) if batch.ids is None else tuple(batch.ids.ids.tolist())
        new = self.learn and not self._seen.issuperset(blocks)
        self._seen.update(blocks)
        chunk: Chunk = self.hasher.to_chunk(batch.columns, learn=new, counted=self.counted)
        if new and self._unnamed is not None and len(self._unnamed):
            self.hasher.find_names(batch.columns, chunk, self._unnamed)
            self._unnamed = np.setdiff1d(self._unnamed, chunk.indices)
        return chunk

    def state(self) -> tuple[dict[str, Any], dict[str, Array]]:
        """The hasher with all that it has learned, for a cache of its rows."""
        header, arrays = self.hasher.state()
        return header, arrays

    def restore(self, header: Mapping[str, Any], arrays: Mapping[str, Array]) -> None:
        """Restores what the hasher has learned from rows that a cache holds."""
        if self.learn:
            self.hasher.restore(header, arrays)

    def go_on_from(self, header: Mapping[str, Any], arrays: Mapping[str, Array]) -> None:
        """Restores the hasher after its first epoch, so that it learns nothing more from these rows."""
        self.restore(header, arrays)
        self.learn, self._start = False, None


class RawSource(Source):
    """Raw rows, read through an encoder. A format gives `batches` and `recipe`."""

    sampled: list[RawBatch] | None = None  # that were read for one sample, and wait for the next

    @abstractmethod
    def batches(self, order: Order, epoch: int) -> Generator[RawBatch, None, None]:
        """Yields all rows of one epoch; batches in the order given, rows inside a batch as they are."""

    def first_batch(self) -> RawBatch | None:
        """Some of the first rows in file order; None if there are none."""
        with closing(self.batches(Order(), 0)) as batches:
            return next(batches, None)

    def sample_batches(self) -> list[RawBatch]:
        """Some rows from all over the data; a format that can only be read from the front gives its first ones."""
        first = self.first_batch()
        return [] if first is None else [first]

    def with_encoder(self, encode: Encoder) -> Self:
        """The same source with an encoder; the encoder need not set targets, weights and row numbers."""
        source = self.copy()
        source.encoder = encode
        return source

    def start_over(self) -> None:
        """Resets the encoder, also for batches that were encoded ahead and never used."""
        encoder: Any = self.encoder
        if hasattr(encoder, "start_over"):
            encoder.start_over()

    def read(self, order: Order, epoch: int) -> Iterator[Chunk]:
        """Yields one chunk per batch."""
        encoder = self.encoder
        if encoder is None:
            raise DataError(
                f"{self.describe()} holds raw columns: give the estimator a hasher, "
                "e.g. LinearClassifier(hasher=Hasher())"
            )
        return self._read(encoder, order, epoch)

    def _read(self, encoder: Encoder, order: Order, epoch: int) -> Iterator[Chunk]:
        batches = self.batches(order, epoch)
        gate = _Gate(None if order.only_read else encoder, lambda batch: _encoded(encoder, batch, order, epoch))
        chunks = map_ahead(gate.make, batches, ahead=QUEUE_CHUNKS)
        try:
            for made in chunks:
                yield gate.make_now(made) if isinstance(made, RawBatch) else made
            if epoch == 0:
                _warn_of_misfits(self)
        finally:
            gate.open()
            chunks.close()
            with suppress(ValueError):  # a thread that waits for a silent pipe is still inside
                batches.close()


class _Gate:
    """Makes chosen batches wait for the learner: they are encoded in the consumer's thread when their turn comes.

    The consumer takes it when it has learned all rows before, so the answer depends on the data alone. Until then the
    thread that encodes ahead waits with the batches behind.
    """

    def __init__(self, encoder: Any, make: Callable[[RawBatch], Chunk]) -> None:
        self._encoder = encoder
        self._make = make
        self._passable = threading.Event()
        self._passable.set()

    def make(self, batch: RawBatch) -> Chunk | RawBatch:
        """The chunk of a batch, or the batch itself if it must wait."""
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
        """Releases all threads that wait."""
        self._passable.set()


def _encoded(encoder: Encoder, batch: RawBatch, order: Order, epoch: int) -> Chunk:
    """Encodes a batch and puts its rows, with targets and stable numbers, in visiting order."""
    chunk = encoder(batch)
    if len(chunk.indptr) - 1 != batch.n_rows:
        raise DataError(f"the encoder made {len(chunk.indptr) - 1} rows of {batch.n_rows}; it must keep each row")
    first_id = batch.first_id if batch.ids is None else 0
    chunk = replace(chunk, y=batch.y, weight=batch.weight, first_id=first_id, ids=batch.ids)
    rows = order.permute(batch.n_rows, epoch, ROWS, *batch.place)
    return chunk if rows is None else chunk.visit(rows)


def is_raw(source: Source) -> bool:
    """Whether the rows of the source still need an encoder; looks below limits, splits and caches."""
    return isinstance(source.root, RawSource) and source.root.encoder is None


def first_columns(source: Source) -> Any:
    """The columns of the first rows in file order, or None where rows come by only once."""
    root = source.root
    if not isinstance(root, RawSource) or root.read_once:
        return None
    batch = root.first_batch()
    return None if batch is None else batch.columns


def sample_columns(source: Source, *, keep: bool = False) -> tuple[Any, Array | None] | None:
    """(columns, targets) of rows from all over the data, or of the first ones where rows come by only once.

    At most SAMPLE_ROWS rows in SAMPLE_PARTS runs of neighbours, without those that the source holds out; the same for
    the same data. None if nothing can be read ahead of learning. `keep`: they are not read again for the next sample.
    """
    root = source.root
    if not isinstance(root, RawSource) or root.read_once:
        return None
    found = root.sampled or root.sample_batches()
    root.sampled = found if keep else None
    batches = [_selected(source, batch) for batch in found]
    batches = [batch for batch in batches if batch.n_rows] or batches
    if not batches:
        return None
    lengths = np.sort([batch.n_rows for batch in batches])
    room = SAMPLE_ROWS - np.concatenate([[0], np.cumsum(lengths)[:-1]])  # what shorter batches leave
    most = max(int(np.max(room // np.arange(len(lengths), 0, -1))), 1)
    parts = [(rows_of(batch.columns, 0, most), None if batch.y is None else batch.y[:most]) for batch in batches]
    y = None if any(y is None for _, y in parts) else np.concatenate([y for _, y in parts if y is not None])
    return joined_rows([columns for columns, _ in parts]), y


def _selected(source: Source, batch: RawBatch) -> RawBatch:
    """The rows of a batch that a source without its encoder would give."""
    keep = np.ones(batch.n_rows, bool)
    none = np.zeros(0, np.int32)
    stub = Chunk(np.zeros(batch.n_rows + 1, np.int64), none, none, 0, y=batch.y, first_id=batch.first_id, ids=batch.ids)
    for part in source.lineage:
        if isinstance(part, Selected) and part.by_id:
            keep &= part.keep(stub)
    if keep.all():
        return batch
    rows = np.flatnonzero(keep)
    y = None if batch.y is None else batch.y[rows]
    return replace(batch, columns=taken_rows(batch.columns, rows), n_rows=len(rows), y=y, weight=None)


def misfits_of(source: Source) -> dict[str, int]:
    """How many values of each column count as missing because their type differs from that of the first rows."""
    total: Counter[str] = Counter()
    for misfits in list(getattr(source.root, "misfits", {}).values()):
        total.update(misfits)
    return dict(total)


def _warn_of_misfits(source: RawSource) -> None:
    for name, n in misfits_of(source).items():
        values = "value does" if n == 1 else "values do"
        warnings.warn(
            f"{source.describe()}: {n:,} {values} not fit the type of column {name!r} and count as missing: correct "
            "them, or set the type of the column",
            ColumnWarning,
            stacklevel=2,
        )


def rows_of(columns: Any, start: int, stop: int) -> Any:
    """A contiguous part of a batch's columns."""
    if isinstance(columns, Mapping):
        return {name: column[start:stop] for name, column in columns.items()}
    if hasattr(columns, "iloc"):
        return columns.iloc[start:stop]
    return columns.slice(start, stop - start) if hasattr(columns, "slice") else columns[start:stop]


def taken_rows(columns: Any, rows: Array) -> Any:
    """Rows of raw columns by their numbers: of a DataFrame, an Arrow table or array, columns by name, or a list."""
    if isinstance(columns, Mapping):
        return {name: taken_rows(column, rows) for name, column in columns.items()}
    if hasattr(columns, "iloc"):
        return columns.iloc[rows]
    if isinstance(columns, np.ndarray):
        return columns[rows]
    if hasattr(columns, "take"):
        return columns.take(rows)
    return [columns[row] for row in rows.tolist()]


def joined_rows(parts: list[Any]) -> Any:
    """The rows of several batches, or the values of a column in several, as one."""
    first = parts[0]
    if len(parts) == 1:
        return first
    if isinstance(first, list):
        return [row for part in parts for row in part]
    if isinstance(first, np.ndarray):
        return np.concatenate(parts)
    if isinstance(first, Mapping):
        return {name: joined_rows([part[name] for part in parts]) for name in first}
    if hasattr(first, "iloc"):
        return import_module("pandas").concat(parts)
    pyarrow = import_module("pyarrow")
    if isinstance(first, pyarrow.ChunkedArray | pyarrow.Array):
        return pyarrow.chunked_array(
            [chunk for part in parts for chunk in getattr(part, "chunks", [part])], type=first.type
        )
    tables = [pyarrow.Table.from_batches([part]) if isinstance(part, pyarrow.RecordBatch) else part for part in parts]
    return pyarrow.concat_tables(tables, promote_options="permissive")


def spread(n: int, most: int) -> list[int]:
    """Up to `most` of the numbers 0, ..., n - 1, the first and the last among them, evenly spread."""
    return sorted(set(np.linspace(0, n - 1, min(n, most)).round().astype(int).tolist())) if n else []


def cache_of(source: Source) -> str | None:
    """The file that the rows of a source are stored in, if they are."""
    return next((part.path for part in source.lineage if isinstance(part, CachedSource)), None)


def rereading_encoder(source: Source | None) -> Any:
    """The encoder if rows are encoded again in later epochs; None if encoded rows are stored."""
    if source is None or any(part.holds_rows for part in source.lineage):
        return None
    encoder = source.root.encoder
    return encoder if hasattr(encoder, "go_on_from") else None


def stored_encoder(source: Source) -> tuple[dict[str, Any], dict[str, Array]] | None:
    """The encoder's state in a cache file that is read by itself."""
    return source.root.encoder_state if isinstance(source.root, CacheFile) else None


@dataclass(frozen=True, slots=True)
class Survey:
    """The result of one pass before learning: numbers of rows and outputs, and columns or a number of features."""

    n_rows: int
    labels: frozenset[Any]
    n_targets: int  # columns of y; 0 if it has one value per row
    n_features: int
    columns: Any = None  # of the first rows, if they are raw
    first_rows: int = 0


def survey(source: Source) -> Survey:
    """Reads all rows once, raw ones without encoding them."""
    root = source.root
    if root.read_once:
        raise DataError(
            f"{root.read_once} can be read only once, but a memory budget needs a pass over the data before learning; "
            "save it in a file, or choose n_bits yourself"
        )
    n_rows = n_targets = n_features = 0
    labels: set[Any] = set()
    first: RawBatch | None = None
    with closing(
        root.batches(Order(), 0) if isinstance(root, RawSource) and is_raw(root) else root.in_file_order()
    ) as parts:
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


def raw_batches(source: Source) -> Generator[RawBatch, None, None]:
    """The rows of a raw source, or of the first ones of it, in file order and not encoded."""
    most = math.inf
    while isinstance(source, Limited):
        most, source = min(most, source.most), source.parent
    if not isinstance(source, RawSource):
        raise DataError("only whole files, or their first rows, can be copied unchanged")
    with closing(source.batches(Order(), 0)) as batches:
        for batch in batches:
            n_rows = int(min(most, batch.n_rows))
            if n_rows == 0:
                return
            most -= n_rows
            y, weight = (None if part is None else part[:n_rows] for part in (batch.y, batch.weight))
            yield replace(batch, columns=batch.columns[:n_rows], n_rows=n_rows, y=y, weight=weight)


def without_cache(source: Source) -> Source:
    """The same source without the cache in its chain."""
    return source.rebased(lambda base: without_cache(base.parent) if isinstance(base, CachedSource) else base)


def encoded(source: Source, encode: Encoder, signature: str = "") -> Source:
    """The source with an encoder put in at the bottom; a cache is valid for one `signature` of an encoder."""

    def put_in(base: Source) -> Source:
        if isinstance(base, CachedSource):
            return base.over(encoded(base.parent, encode, signature))
        if not isinstance(base, RawSource):
            raise DataError("these rows are encoded already; only raw texts and tables take a hasher")
        result = base.with_encoder(encode)
        result.signature = signature
        return result

    return source.rebased(put_in)


def columns_of(source: Source) -> Generator[Any, None, None]:
    """The raw columns of the rows that a source gives, part by part: of its limits and splits, the rows that pass."""
    batches = _Batches()
    for chunk in encoded(without_cache(source), batches).read(Order(), 0):
        entries = chunk.indptr[chunk.row_numbers]
        if len(entries):
            columns, n_rows = batches.waiting[int(chunk.values[entries[0]])]
            rows = chunk.indices[entries]
            yield columns if len(rows) == n_rows else taken_rows(columns, rows.astype(np.int64))
            batches.forget_before(int(chunk.values[entries[0]]))


class _Batches:
    """An encoder that marks each row with its batch and position: entry k of batch b is (k, b)."""

    def __init__(self) -> None:
        self.waiting: dict[int, tuple[Any, int]] = {}
        self._n = 0

    def __call__(self, batch: RawBatch) -> Chunk:
        """Keeps the batch until its rows are used, and returns marked rows."""
        number, n = self._n, batch.n_rows
        self.waiting[number] = batch.columns, n
        self._n += 1
        return Chunk(np.arange(n + 1), np.arange(n, dtype=np.int32), np.full(n, number, np.float32), max(n, 1))

    def forget_before(self, number: int) -> None:
        """Drops the batches before this one, since batches are used in order."""
        for old in [known for known in list(self.waiting) if known < number]:
            del self.waiting[old]
