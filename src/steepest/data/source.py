"""Sources yield chunks of rows, epoch after epoch: they know where rows are and in which order, nothing of learning.

Sources are lazy and cheap to copy. `shuffle`, `holdout`, `shards`, `limit` and `cache` return new sources; reading
starts with the first chunk asked for. One epoch is `source.epoch(e)`; the order of rows is a pure function of (seed,
e), so a run that was interrupted can be taken up again in the middle.
"""

from __future__ import annotations

import copy
import os
import re
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from steepest import kernels
from steepest.data.chunk import Array, Chunk
from steepest.data.files.blocks import TextFile, describe
from steepest.data.matrices import checked_csr
from steepest.data.skipped import Skipped
from steepest.errors import DataError, NotANumberError
from steepest.parameters import choice, inside, shown, whole

SHUFFLES = ("never", "once", "blocks", "rows")
# Rows that stay together under shuffle="blocks": at most so many, long enough to read at speed, and never so many that
# there are fewer than so many runs, because a few long runs mix badly.
BLOCK_ROWS = 128
LEAST_RUNS = 1024
# Rows handed over at once from memory: large enough that calls cost nothing, small enough for a live progress bar.
CHUNK_ROWS = 1 << 18
MOST_FEATURES = (1 << 31) - 1
ROWS, BLOCKS, FILES = range(3)  # what a random order is drawn for


class Runs(NamedTuple):
    """A visiting order in short: first the rows of the two edges, then runs of `length` rows from each of `starts`."""

    starts: Array
    length: int
    edges: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Order:
    """The order in which rows are visited: as they are, shuffled once, or in every epoch by blocks or by rows."""

    shuffle: str = "never"
    seed: int = 0
    only_read: bool = False  # nobody learns while rows are read, so no encoder waits for what was learned

    def generator(self, epoch: int, *path: int) -> np.random.Generator:
        """A random generator for one epoch and one place in the data, always seeded the same way."""
        moment = 0 if self.shuffle == "once" else epoch
        return np.random.default_rng([self.seed & 0xFFFFFFFFFFFFFFFF, moment, *path])

    def permute(self, n_rows: int, epoch: int, *path: int) -> Array | None:
        """The visiting order of n rows; None for their own order."""
        runs = self.runs(n_rows, epoch, *path)
        if runs is None or runs.length == 1:
            return None if runs is None else runs.starts
        n_edge = sum(stop - start for start, stop in runs.edges)
        rows = np.empty(n_rows, np.int64)
        rows[:n_edge] = np.concatenate([np.arange(start, stop) for start, stop in runs.edges])
        blocks = rows[n_edge:].reshape(len(runs.starts), runs.length)
        np.add.outer(runs.starts, np.arange(runs.length), out=blocks)
        return rows

    def runs(self, n_rows: int, epoch: int, *path: int) -> Runs | None:
        """The order that `permute` gives, as runs, which take less memory."""
        if self.shuffle == "never" or n_rows < 2:
            return None
        generator = self.generator(epoch, *path)
        length = min(BLOCK_ROWS, n_rows // LEAST_RUNS)
        if self.shuffle in ("rows", "once") or length <= 1:
            return Runs(generator.permutation(n_rows), 1)
        # Runs start at a new offset in every epoch, so that neighbours do not stay neighbours; the rows before the
        # first and behind the last whole run are visited first, where they weigh least.
        offset = int(generator.integers(0, length))
        n_runs = (n_rows - offset) // length
        starts = offset + length * generator.permutation(n_runs)
        return Runs(starts, length, ((0, offset), (offset + n_runs * length, n_rows)))


class Source(ABC):
    """A stream of chunks that can be iterated in every epoch. Subclasses implement `read` and `_copy`.

    Attributes
    ----------
    n_rows, n_features : int or None
        Numbers of rows and features, if they are known without reading.
    labels : array or None
        The distinct targets, if they are known without reading.
    recipe : dict
        Format and options. A model stores them, so that new data is read in the same way.
    signature : str
        Text that describes everything else that changes the rows; a cache with another signature is not used.
    skipped : Skipped
        Bad lines skipped so far with on_bad_line="skip": their number `n` and three `examples`.

    Examples
    --------
    >>> import numpy as np, steepest as st
    >>> source = st.from_arrays(np.eye(100), np.arange(100) % 2)
    >>> most, rest = source.shuffle("rows", seed=0).holdout(0.2, seed=1)
    >>> sum(chunk.n_rows for chunk in most) + sum(chunk.n_rows for chunk in rest)
    100
    >>> [chunk.n_rows for chunk in source.limit(7)]
    [7]
    """

    n_rows: int | None = None
    n_features: int | None = None
    labels: Array | None = None
    order: Order = Order()
    signature: str = ""
    renewed: bool = False  # whether every epoch has rows of its own, so that storing those of one would lose the others
    parent: Source | None = None  # the source that this one is derived from
    files: Sequence[TextFile] = ()
    skipped: Skipped = Skipped()
    encoder: Any = None  # what makes features of raw rows
    holds_rows: bool = False  # whether all rows are stored, so that nothing below is read again

    @property
    def lineage(self) -> Iterator[Source]:
        """This source, the one it is derived from, and so on down to the root."""
        source: Source | None = self
        while source is not None:
            yield source
            source = source.parent

    @property
    def root(self) -> Source:
        """The source under all limits, splits, stores and other derived ones."""
        *_, root = self.lineage
        return root

    @property
    def read_once(self) -> str | None:
        """The name of a pipe among the files, which can be read only once; None if there is none."""
        return next((file.name for file in self.root.files if file.once), None)

    def describe(self) -> str:
        """A short description of where the rows come from, for messages."""
        return describe(self.root.files)

    @property
    def label_names(self) -> list[str] | None:
        """The names of the columns of a multi-label target, if they are known."""
        return None

    @property
    def recipe(self) -> dict[str, Any]:
        """Plain values that describe how rows are read."""
        return {}

    def fingerprint(self) -> dict[str, Any]:
        """Plain values that identify the same rows later; `files` holds [path, size, time] of each."""
        raise DataError("these rows do not come from files, so they cannot be cached; cache the files' source instead")

    @abstractmethod
    def read(self, order: Order, epoch: int) -> Iterator[Chunk]:
        """Yields all chunks of one epoch in the order given."""

    def copy(self) -> Self:
        """A copy of this source that shares what was read or stored."""
        return copy.copy(self)

    def refuse_rows(self, row_ids: Sequence[int], faults: Sequence[str], remedy: str) -> None:
        """Raises for rows, by their stable numbers, that cannot be used, or counts them as skipped lines."""
        raise DataError(f"row {row_ids[0]}: {faults[0]}; {remedy}")

    def start_over(self) -> None:
        """Resets what encoders and recorders learned while rows were read."""
        return

    def rebased(self, change: Callable[[Source], Source]) -> Source:
        """The same limits and splits over another source; `change` is applied to the source below them."""
        return change(self)

    def epoch(self, epoch: int = 0) -> Iterator[Chunk]:
        """Yields all chunks of one epoch in this source's own order."""
        return self.read(self.order, epoch)

    def in_file_order(self, *, only_read: bool = False) -> Generator[Chunk, None, None]:
        """Yields all chunks in the order of the data; close the generator to stop reading early."""
        yield from self.read(Order(only_read=only_read), 0)

    def __iter__(self) -> Iterator[Chunk]:
        return self.epoch(0)

    def shuffle(self, how: str = "blocks", seed: int = 0) -> Self:
        """Returns the same rows in another order: "never", "once", or a new one in each epoch by "blocks" or "rows"."""
        source = self.copy()
        source.order = Order(choice("shuffle", how, SHUFFLES), seed)
        return source

    def limit(self, n_rows: int) -> Source:
        """The first n rows."""
        return Limited(self, whole("limit", n_rows, 0))

    def sample(self, n_rows: int, seed: int = 0) -> Source:
        """Returns n rows from all over the data, always the same ones, which are also in every larger sample."""
        return Limited(self, whole("sample", n_rows, 1), sample_seed=seed)

    def select(self, keep: Callable[[Array], Array], rule: str) -> Source:
        """The rows whose stable numbers pass a test; `rule` describes the test in words."""
        return Selected(self, lambda chunk: keep(chunk.row_ids), rule, by_id=True)

    def cache(self, path: str | os.PathLike[str]) -> Source:
        """Returns the same rows, parsed once and stored in a file that every epoch then reads at the speed of memory.

        The file is built at the first use, and rebuilt whenever the data or the reading options have changed.
        """
        from steepest.data.store.cache import CachedSource

        return CachedSource(self, path)

    def holdout(self, fraction: float, seed: int = 0) -> tuple[Source, Source]:
        """Returns two sources: most rows, and this fraction; the part of a row depends on its position and the seed."""
        fraction = inside("holdout", fraction, 0.0, 1.0)
        mark = np.uint64(int(fraction * 2**64))
        return (
            self.select(lambda ids: mix(ids, seed) >= mark, f"all but holdout {fraction!r} by {seed}"),
            self.select(lambda ids: mix(ids, seed) < mark, f"holdout {fraction!r} by {seed}"),
        )

    def shards(self, n: int) -> list[Source]:
        """Returns n sources that together contain each row exactly once."""
        n = whole("shards", n, 1)

        def part(shard: int) -> Source:
            return Selected(self, lambda chunk: chunk.row_ids // BLOCK_ROWS % n == shard, f"shard {shard} of {n}")

        return [part(shard) for shard in range(n)]


def check_source(source: Any) -> None:
    """Refuses what is not a source, such as a path or an array."""
    if not isinstance(source, Source):
        raise DataError(f"{shown(source)} is not a source; give st.scan(path), or st.from_arrays(X, y) for arrays")


def mix(ids: Array, seed: int) -> Array:
    """Hashes stable numbers of rows to uniform 64-bit numbers (the finaliser of splitmix64)."""
    z = ids.astype(np.uint64) + np.uint64((seed * 0x9E3779B97F4A7C15 + 0x9E3779B97F4A7C15) & 0xFFFFFFFFFFFFFFFF)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(z ^ (z >> np.uint64(31)))


class Derived(Source):
    """A source that reads from another one."""

    parent: Source
    is_part: ClassVar[bool] = False  # whether it is no more than some rows of its parent

    def __init__(self, parent: Source) -> None:
        self.parent = parent
        self.labels = parent.labels
        self.order = parent.order
        self.signature = parent.signature

    @property
    def n_features(self) -> int | None:  # type: ignore[override]
        """The parent's number, read only when it is needed, since a cache must be built for it."""
        return self.parent.n_features

    @property
    def recipe(self) -> dict[str, Any]:
        """The parent's recipe."""
        return self.parent.recipe

    @property
    def skipped(self) -> Skipped:  # type: ignore[override]
        """The parent's skipped lines."""
        return self.parent.skipped

    @property
    def label_names(self) -> list[str] | None:
        """The parent's label names."""
        return self.parent.label_names

    def rebased(self, change: Callable[[Source], Source]) -> Source:
        """The same limit or split of another source."""
        if not self.is_part:
            return change(self)
        source = self.copy()
        source.parent = self.parent.rebased(change)
        source.signature = source.parent.signature
        return source

    def refuse_rows(self, row_ids: Sequence[int], faults: Sequence[str], remedy: str) -> None:
        """Passes the rows on to the parent."""
        self.parent.refuse_rows(row_ids, faults, remedy)

    def start_over(self) -> None:
        """Resets the parent."""
        self.parent.start_over()


class Lenient(Derived):
    """The same rows, of which those that cannot be used are collected in `faults` instead of raised."""

    is_part = True

    def __init__(self, parent: Source) -> None:
        super().__init__(parent)
        self.faults: list[str] = []

    def read(self, order: Order, epoch: int) -> Iterator[Chunk]:
        """The parent's chunks."""
        return self.parent.read(order, epoch)

    def refuse_rows(self, row_ids: Sequence[int], faults: Sequence[str], remedy: str) -> None:
        """Collects what is wrong with each row."""
        self.faults += faults


class Limited(Derived):
    """The first n rows of another source in file order, or in one random order: files are not read to their end.

    With `sample_seed` they are a sample from all over the data; a larger one holds all rows of a smaller one.
    """

    is_part = True

    def __init__(self, parent: Source, most: int, sample_seed: int | None = None) -> None:
        super().__init__(parent)
        self.most = most
        self.sample_seed = sample_seed
        self.n_rows = None if parent.n_rows is None else min(most, parent.n_rows)

    def fingerprint(self) -> dict[str, Any]:
        """The parent's fingerprint with the number of rows and how they were chosen."""
        which = {"limit": self.most} if self.sample_seed is None else {"sample": self.most, "seed": self.sample_seed}
        return {**which, "of": self.parent.fingerprint()}

    def read(self, order: Order, epoch: int) -> Iterator[Chunk]:
        """Yields the chosen rows chunk by chunk; each chunk is then shuffled."""
        left = self.most
        whole = Order() if self.sample_seed is None else Order("rows", self.sample_seed)
        for number, chunk in enumerate(self.parent.read(whole, 0)):
            if left <= 0:
                return
            taken = chunk.span(0, min(left, chunk.n_rows))
            left -= taken.n_rows
            permuted = order.permute(taken.n_rows, epoch, number)
            yield taken if permuted is None else taken.visit(taken.row_numbers[permuted])


class Selected(Derived):
    """The rows of another source that pass a test: `keep` gives a mask of the visited rows, `rule` describes it.

    With `by_id`, the test looks at nothing but stable row numbers.
    """

    is_part = True

    def __init__(self, parent: Source, keep: Callable[[Chunk], Array], rule: str, *, by_id: bool = False) -> None:
        super().__init__(parent)
        self.by_id = by_id
        self.keep = keep
        self.rule = rule

    def fingerprint(self) -> dict[str, Any]:
        """The parent's fingerprint with the rule of selection."""
        return {"rule": self.rule, "of": self.parent.fingerprint()}

    def read(self, order: Order, epoch: int) -> Iterator[Chunk]:
        """Yields the parent's chunks with the rows that pass."""
        for chunk in self.parent.read(order, epoch):
            rows = chunk.row_numbers[self.keep(chunk)]
            if len(rows):
                yield chunk.visit(rows)


class ArraySource(Source):
    """Rows in memory, used without a copy."""

    holds_rows = True

    def __init__(self, block: Chunk, rows: Array | None = None, chunk_rows: int = CHUNK_ROWS) -> None:
        self.block = block
        self.rows = rows
        self.chunk_rows = chunk_rows
        self.n_rows = block.n_rows if rows is None else len(rows)
        self.n_features = block.n_features

    def read(self, order: Order, epoch: int) -> Iterator[Chunk]:
        """Yields views of the arrays, `chunk_rows` visits at a time."""
        assert self.n_rows is not None
        visits = order.permute(self.n_rows, epoch)
        if self.rows is not None:
            visits = self.rows if visits is None else self.rows[visits]
        whole = self.block if visits is None else self.block.visit(visits)
        for start in range(0, self.n_rows, self.chunk_rows):
            yield whole.span(start, min(start + self.chunk_rows, self.n_rows))

    def cache(self, path: str | os.PathLike[str]) -> Source:
        """Returns this source, since its rows are in memory already."""
        return self

    def fingerprint(self) -> dict[str, Any]:
        """The shape, and a checksum of the rows' lengths and numeric targets."""
        block, rows = self.block, self.row_numbers
        targets = b"" if block.y is None or block.y.dtype.kind not in "biuf" else block.y.tobytes()
        checksum = zlib.crc32(targets, zlib.crc32(rows.tobytes(), zlib.crc32(block.indptr.tobytes())))
        return {"rows": self.n_rows, "features": self.n_features, "checksum": checksum}

    def pick(self, rows: Array) -> ArraySource:
        """The rows of these numbers."""
        source = self.copy()
        source.rows, source.n_rows = rows, len(rows)
        return source

    @property
    def row_numbers(self) -> Array:
        """The numbers of the rows in the block."""
        return np.arange(self.block.n_rows) if self.rows is None else self.rows

    def count_entries(self) -> int:
        """The number of entries of all rows."""
        numbers, indptr = self.row_numbers, self.block.indptr
        return int((indptr[numbers + 1] - indptr[numbers]).sum())

    def limit(self, n_rows: int) -> Source:
        """The first n rows."""
        return self.pick(self.row_numbers[: whole("limit", n_rows, 0)])

    def sample(self, n_rows: int, seed: int = 0) -> Source:
        """N rows from all over the data; a larger sample holds all rows of a smaller one."""
        rows = self.row_numbers
        drawn = np.argsort(mix(rows, seed), kind="stable")[: whole("sample", n_rows, 1)]
        return self.pick(rows[np.sort(drawn)])

    def select(self, keep: Callable[[Array], Array], rule: str) -> Source:
        """The rows whose numbers pass a test."""
        rows = self.row_numbers
        return self.pick(rows[keep(rows)])

    def holdout(self, fraction: float, seed: int = 0) -> tuple[Source, Source]:
        """Two sources: most rows, and the given fraction of them, both never empty if there are two rows."""
        fraction = inside("holdout", fraction, 0.0, 1.0)
        rows = self.row_numbers
        held = np.zeros(len(rows), bool)
        n_held = min(max(1, round(fraction * len(rows))), max(len(rows) - 1, 0))
        held[np.argsort(mix(rows, seed), kind="stable")[:n_held]] = True
        return self.pick(rows[~held]), self.pick(rows[held])


def from_arrays(
    X: Any, y: Any = None, sample_weight: Any = None, *, chunk_rows: int = CHUNK_ROWS, columns: bool = True
) -> ArraySource:
    """Makes a source of arrays in memory; a float32 CSR matrix is used without a copy.

    Parameters
    ----------
    X : CSR or other scipy sparse matrix, array, DataFrame or nested list, shape (n, d)
    y : array of n targets, or (n, k) for several outputs; numbers or strings
    sample_weight : array of n weights, none negative
    columns : bool
        Check column indices here; rows that go straight into a kernel are checked there.

    Examples
    --------
    >>> import steepest as st
    >>> source = st.from_arrays([[1.0, 0.0], [0.0, 2.0]], [0, 1])
    >>> source.n_rows, source.n_features
    (2, 2)
    """
    indptr, indices, values, n_features = csr_arrays(X, columns=columns)
    n_rows = len(indptr) - 1
    targets = None if y is None else as_targets(y)
    if targets is not None and len(targets) != n_rows:
        raise DataError(f"X has {n_rows} rows but y has {len(targets)}; give one target per row")
    weight = None if sample_weight is None else as_weights(sample_weight, n_rows)
    return ArraySource(Chunk(indptr, indices, values, n_features, targets, weight), chunk_rows=chunk_rows)


def target_array(y: Any) -> Array:
    """Targets as they are, in an array with at least one column."""
    if isinstance(y, Iterator):
        y = list(y)
    elif hasattr(y, "collect_schema") and hasattr(y, "collect"):  # a lazy frame of polars
        y = y.collect()
    try:
        targets = np.asarray(y)
    except ValueError:
        raise DataError(
            "y holds rows of different lengths; give one target per row, or a 0/1 column per label"
        ) from None
    if targets.ndim > 1 and 0 in targets.shape[1:]:
        raise DataError(f"y has the shape {targets.shape}, without a target; give one target per row")
    return targets


def as_targets(y: Any) -> Array:
    """Targets as float64, or as an array of strings or objects where they are not numbers."""
    targets = target_array(y)
    if targets.ndim == 2 and targets.shape[1] == 1:
        targets = targets.ravel()
    if targets.ndim == 0:
        raise DataError(f"y={shown(targets.item())} is a single value; give one target per row, such as table['label']")
    if targets.ndim not in (1, 2):
        raise DataError(f"y has {targets.ndim} dimensions; give one target per row, or one row of targets")
    if targets.dtype.kind in "biuf":
        whole_numbers = targets.dtype.kind != "f"
        targets = targets.astype(np.float64)
        if not whole_numbers and not np.isfinite(targets).all():
            row = int(np.flatnonzero(~np.isfinite(targets).reshape(len(targets), -1).all(axis=1))[0])
            raise DataError(f"y contains NaN or infinity, first in row {row}; drop or fill such rows")
        return np.ascontiguousarray(targets)
    if targets.dtype.kind == "c":
        raise DataError("Complex data not supported: y holds complex numbers; give real numbers or strings")
    return targets.copy() if targets is y else targets  # coded targets are known by the array they were made from


LARGEST_WEIGHT = 1e30  # of all rows; it, or one over it, times a gradient is still a number


def as_weights(sample_weight: Any, n_rows: int) -> Array:
    """Row weights as float64, checked."""
    try:
        given = np.asarray(sample_weight)
        if given.dtype.kind == "c":
            raise TypeError("complex numbers")
        weight = np.ascontiguousarray(given, np.float64)
    except (TypeError, ValueError, OverflowError):
        raise DataError(
            f"sample_weight={shown(sample_weight)} is not a list of numbers; give one weight per row"
        ) from None
    if weight.ndim == 0:
        weight = np.full(n_rows, float(weight))
    if weight.shape != (n_rows,):
        raise DataError(f"sample_weight has shape {weight.shape} but X has {n_rows} rows; give one weight per row")
    bad = ~(weight >= 0) | ~np.isfinite(weight)
    if bad.any():
        row = int(np.flatnonzero(bad)[0])
        raise DataError(f"sample_weight of row {row} is {weight[row]}; weights must be finite and not negative")
    if n_rows and not weight.any():
        raise DataError("sample_weight is zero in every row; nothing can be learned from that")
    if n_rows and not 1 / LARGEST_WEIGHT <= (largest := float(weight.max())) <= LARGEST_WEIGHT:
        raise DataError(f"the largest sample_weight is {largest:g}, in row {weight.argmax()}; divide all by their mean")
    return weight


def csr_arrays(X: Any, *, columns: bool = True) -> tuple[Array, Array, Array, int]:
    """(indptr, indices, values, n_features) of a matrix of any kind; `columns`: check the column indices here."""
    if hasattr(X, "tocsr") or (hasattr(X, "indptr") and hasattr(X, "indices")):
        return _from_csr(checked_csr(X, columns=columns))
    return _from_dense(X)


def _from_csr(matrix: Any) -> tuple[Array, Array, Array, int]:
    n_features = int(matrix.shape[1])
    if n_features > MOST_FEATURES:
        raise DataError(f"X has {n_features} columns; at most {MOST_FEATURES} are supported, hash them to fewer")
    if matrix.data.dtype == np.float32:
        values = np.ascontiguousarray(matrix.data)
    else:
        with np.errstate(over="ignore"):  # a value beyond float32 is infinite, and its row refused by its number
            values = np.ascontiguousarray(matrix.data, np.float32)
    indptr, indices = np.ascontiguousarray(matrix.indptr, np.int64), np.ascontiguousarray(matrix.indices, np.int32)
    return indptr, indices, values, n_features


def _from_dense(X: Any) -> tuple[Array, Array, Array, int]:
    matrix = np.asarray(X)
    if matrix.dtype.kind == "c":
        raise DataError("Complex data not supported: X holds complex numbers; give real ones")
    if matrix.dtype.kind not in "biuf":
        try:
            matrix = matrix.astype(np.float64)
        except (TypeError, ValueError) as error:
            said = re.sub(r"np\.str_\((.*)\)", r"\1", str(error))
            message = f"X holds a value that is not a number ({said}); encode it, or hash it with hasher=st.Hasher()"
            raise (NotANumberError if isinstance(error, TypeError) else DataError)(message) from None
    if matrix.ndim != 2:
        raise DataError(
            f"Expected 2D array, got {matrix.ndim}D array instead: X has shape {matrix.shape}. "
            "Reshape your data, one row per example (X.reshape(-1, 1) for one feature, X.reshape(1, -1) for one row)"
        )
    dtype = np.float64 if matrix.dtype == np.float64 else np.float32
    rows = kernels.sparse_rows(np.ascontiguousarray(matrix, dtype))
    if isinstance(rows, int):
        with np.errstate(over="ignore"):
            values = matrix[rows].astype(np.float32)
        column = int(np.flatnonzero(~np.isfinite(values))[0])
        found, name, way_out = "infinity", str(column), "drop the row or fill the value"
        if np.isnan(values[column]):
            found = "NaN"
            if (names := getattr(X, "columns", None)) is not None:  # of a table of numbers
                name = repr(names[column])
                way_out = "drop the row, fill the value, or give hasher=st.Hasher(), which takes missing values"
        raise DataError(f"Input X contains {found}: row {rows}, column {name}; {way_out}")
    return (*rows, int(matrix.shape[1]))
