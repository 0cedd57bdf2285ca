"""A source yields chunks, again and again: it knows where rows come from and in which order, never what for.

Sources are lazy and cheap to copy. `shuffle`, `holdout`, `shards`, `limit` and `cache` return new sources; reading
starts with the first chunk asked for. One epoch is `source.epoch(e)`; the order of rows is a pure function of (seed,
e), so a run that was interrupted can be taken up again in the middle.
"""

from __future__ import annotations

import os
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np

from steepest import kernels
from steepest.data.chunk import Array, Chunk, DataError
from steepest.data.parameters import choice, inside, whole

SHUFFLES = ("never", "once", "blocks", "rows")
# Rows that stay together under shuffle="blocks": at most so many, long enough to read at speed, and never so many that
# there are fewer than so many runs, because a few long runs mix badly.
BLOCK_ROWS = 128
LEAST_RUNS = 1024
# Rows handed over at once from memory: large enough that calls cost nothing, small enough for a live progress bar.
CHUNK_ROWS = 1 << 18


class Runs(NamedTuple):
    """A visiting order in short: first the rows of the two edges, then runs of `length` rows from each of `starts`."""

    starts: Array
    length: int
    edges: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Order:
    """In which order rows are visited: never shuffled, shuffled once, or in every epoch by blocks or by rows."""

    shuffle: str = "never"
    seed: int = 0
    unheard: bool = False  # nobody learns while rows are read, so no encoder need wait to hear what was learned

    def generator(self, epoch: int, *path: int) -> np.random.Generator:
        """Randomness for one epoch and one place in the data, the same whenever it is asked for."""
        moment = 0 if self.shuffle == "once" else epoch
        return np.random.default_rng([self.seed & 0xFFFFFFFFFFFFFFFF, moment, *path])

    def permute(self, n_rows: int, epoch: int, *path: int) -> Array | None:
        """Visiting order of n rows, or None for as they come."""
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
        """The same order as `permute` gives, in the least room."""
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
    """A re-iterable stream of chunks. Subclasses give `read`; everything else is built on it.

    Attributes
    ----------
    n_rows, n_features : int or None
        How many there are, if that is known without reading.
    labels : array or None
        The distinct targets, if they are known without reading.
    recipe : dict
        How the source was read (format and options); a model keeps it, so that new data is read alike.
    signature : str
        Whatever else shapes the rows, in any words; a cache made under another signature is not used.
    """

    n_rows: int | None = None
    n_features: int | None = None
    labels: Array | None = None
    order: Order = Order()
    signature: str = ""
    renewed: bool = False  # whether every epoch has rows of its own, so that keeping those of one would lose the others

    @property
    def recipe(self) -> dict[str, Any]:
        """Plain values that describe how rows are read."""
        return {}

    def fingerprint(self) -> dict[str, Any]:
        """Plain values by which the same rows are known again, now or later; `files` are [path, size, time] each."""
        raise DataError("these rows do not come from files, so they cannot be cached; cache the files' source instead")

    @abstractmethod
    def read(self, order: Order, epoch: int) -> Iterator[Chunk]:
        """All chunks of one epoch in the order given."""

    @abstractmethod
    def _copy(self) -> Self: ...

    def refuse_rows(self, row_ids: Sequence[int], faults: Sequence[str], remedy: str) -> None:
        """Raises for rows, by their stable numbers, that cannot be used; a source that skips bad lines counts them."""
        raise DataError(f"row {row_ids[0]}: {faults[0]}; {remedy}")

    def start_over(self) -> None:
        """Forgets what was learned about the rows while they were read, as if nothing had been."""
        return

    def epoch(self, epoch: int = 0) -> Iterator[Chunk]:
        """All chunks of one epoch in this source's own order."""
        return self.read(self.order, epoch)

    def __iter__(self) -> Iterator[Chunk]:
        return self.epoch(0)

    def shuffle(self, how: str = "blocks", seed: int = 0) -> Self:
        """The same rows in another order: "never", "once", or each epoch anew by "blocks" or "rows"."""
        source = self._copy()
        source.order = Order(choice("shuffle", how, SHUFFLES), seed)
        return source

    def limit(self, n_rows: int) -> Source:
        """The first n rows."""
        return Limited(self, whole("limit", n_rows, 0))

    def sample(self, n_rows: int, seed: int = 0) -> Source:
        """N rows from all over the data, always the same ones; a larger sample holds all rows of a smaller one."""
        return Sampled(self, whole("sample", n_rows, 1), seed)

    def select(self, keep: Callable[[Array], Array], rule: str) -> Source:
        """The rows whose stable numbers pass a test; `rule` says in words which test it is."""
        return Selected(self, keep, rule)

    def cache(self, path: str | os.PathLike[str]) -> Source:
        """The same rows, parsed once and kept in a file, from which every epoch is then read at the speed of memory.

        The file is built at the first use, and anew whenever the data or the way it is read have changed.
        """
        from steepest.data.cache import CachedSource

        return CachedSource(self, path)

    def holdout(self, fraction: float, seed: int = 0) -> tuple[Source, Source]:
        """Two sources: most rows, and the given fraction of them; a row's side depends on its place and seed only."""
        fraction = inside("holdout", fraction, 0.0, 1.0)
        mark = np.uint64(int(fraction * 2**64))
        return (
            Selected(self, lambda ids: mix(ids, seed) >= mark, f"all but holdout {fraction!r} by {seed}"),
            Selected(self, lambda ids: mix(ids, seed) < mark, f"holdout {fraction!r} by {seed}"),
        )

    def shards(self, n: int) -> list[Source]:
        """N sources that together hold each row exactly once."""
        n = whole("shards", n, 1)

        def part(shard: int) -> Source:
            return Selected(self, lambda ids: ids // BLOCK_ROWS % n == shard, f"shard {shard} of {n}")

        return [part(shard) for shard in range(n)]


def mix(ids: Array, seed: int) -> Array:
    """Stable numbers of rows to uniform 64-bit numbers (the finaliser of splitmix64)."""
    z = ids.astype(np.uint64) + np.uint64((seed * 0x9E3779B97F4A7C15 + 0x9E3779B97F4A7C15) & 0xFFFFFFFFFFFFFFFF)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(z ^ (z >> np.uint64(31)))


class Derived(Source):
    """A source read through another one."""

    def __init__(self, parent: Source) -> None:
        self.parent = parent
        self.labels = parent.labels
        self.order = parent.order
        self.signature = parent.signature

    @property
    def n_features(self) -> int | None:  # type: ignore[override]
        """The parent's, asked when it is needed: a cache must be built for it."""
        return self.parent.n_features

    @property
    def recipe(self) -> dict[str, Any]:
        """The parent's."""
        return self.parent.recipe

    def refuse_rows(self, row_ids: Sequence[int], faults: Sequence[str], remedy: str) -> None:
        """As the parent does."""
        self.parent.refuse_rows(row_ids, faults, remedy)

    def start_over(self) -> None:
        """As the parent does."""
        self.parent.start_over()


class Limited(Derived):
    """The first n rows of another source, in the order in which it is read."""

    def __init__(self, parent: Source, most: int) -> None:
        super().__init__(parent)
        self.most = most
        self.n_rows = None if parent.n_rows is None else min(most, parent.n_rows)

    def _copy(self) -> Limited:
        return Limited(self.parent, self.most)

    def fingerprint(self) -> dict[str, Any]:
        """The parent's, and how many rows of it."""
        return {"limit": self.most, "of": self.parent.fingerprint()}

    def read(self, order: Order, epoch: int) -> Iterator[Chunk]:
        """Rows are limited as they stand, and each chunk of them is then shuffled."""
        left = self.most
        for number, chunk in enumerate(self._whole()):
            if left <= 0:
                return
            kept = chunk.span(0, min(left, chunk.n_rows))
            left -= kept.n_rows
            permuted = order.permute(kept.n_rows, epoch, number)
            yield kept if permuted is None else kept.visit(kept.row_numbers[permuted])

    def _whole(self) -> Iterator[Chunk]:
        return self.parent.read(Order(), 0)


class Sampled(Limited):
    """N rows of another source that is read in one random order: a prefix of it, so files are not read to their end."""

    def __init__(self, parent: Source, most: int, seed: int) -> None:
        super().__init__(parent, most)
        self.seed = seed

    def _copy(self) -> Sampled:
        return Sampled(self.parent, self.most, self.seed)

    def fingerprint(self) -> dict[str, Any]:
        """The parent's, how many rows of it and which."""
        return {"sample": self.most, "seed": self.seed, "of": self.parent.fingerprint()}

    def _whole(self) -> Iterator[Chunk]:
        return self.parent.read(Order("rows", self.seed), 0)


class Selected(Derived):
    """The rows of another source whose stable numbers pass a test, which `rule` describes."""

    def __init__(self, parent: Source, keep: Callable[[Array], Array], rule: str) -> None:
        super().__init__(parent)
        self.keep = keep
        self.rule = rule

    def _copy(self) -> Selected:
        return Selected(self.parent, self.keep, self.rule)

    def fingerprint(self) -> dict[str, Any]:
        """The parent's, and which rows of it."""
        return {"rule": self.rule, "of": self.parent.fingerprint()}

    def read(self, order: Order, epoch: int) -> Iterator[Chunk]:
        """The parent's chunks, thinned."""
        for chunk in self.parent.read(order, epoch):
            rows = chunk.row_numbers[self.keep(chunk.row_ids)]
            if len(rows):
                yield chunk.visit(rows)


class ArraySource(Source):
    """Rows that are already in memory, used as they are."""

    def __init__(self, block: Chunk, rows: Array | None = None, chunk_rows: int = CHUNK_ROWS) -> None:
        self.block = block
        self.rows = rows
        self.chunk_rows = chunk_rows
        self.n_rows = block.n_rows if rows is None else len(rows)
        self.n_features = block.n_features

    def _copy(self) -> ArraySource:
        source = ArraySource(self.block, self.rows, self.chunk_rows)
        source.labels = self.labels
        return source

    def read(self, order: Order, epoch: int) -> Iterator[Chunk]:
        """Views of the arrays, `chunk_rows` visits at a time."""
        assert self.n_rows is not None
        visits = order.permute(self.n_rows, epoch)
        if self.rows is not None:
            visits = self.rows if visits is None else self.rows[visits]
        whole = self.block if visits is None else self.block.visit(visits)
        for start in range(0, self.n_rows, self.chunk_rows):
            yield whole.span(start, min(start + self.chunk_rows, self.n_rows))

    def cache(self, path: str | os.PathLike[str]) -> Source:
        """This source: its rows are in memory already."""
        return self

    def fingerprint(self) -> dict[str, Any]:
        """The shape, and a checksum of the rows' lengths and numeric targets."""
        block, rows = self.block, self._row_numbers()
        targets = b"" if block.y is None or block.y.dtype.kind not in "biuf" else block.y.tobytes()
        checksum = zlib.crc32(targets, zlib.crc32(rows.tobytes(), zlib.crc32(block.indptr.tobytes())))
        return {"rows": self.n_rows, "features": self.n_features, "checksum": checksum}

    def _pick(self, rows: Array) -> ArraySource:
        source = ArraySource(self.block, rows, self.chunk_rows)
        source.labels, source.order = self.labels, self.order
        return source

    def _row_numbers(self) -> Array:
        return np.arange(self.block.n_rows) if self.rows is None else self.rows

    def limit(self, n_rows: int) -> Source:
        """The first n rows."""
        return self._pick(self._row_numbers()[: whole("limit", n_rows, 0)])

    def sample(self, n_rows: int, seed: int = 0) -> Source:
        """N rows from all over the data; a larger sample holds all rows of a smaller one."""
        rows = self._row_numbers()
        drawn = np.argsort(mix(rows, seed), kind="stable")[: whole("sample", n_rows, 1)]
        return self._pick(rows[np.sort(drawn)])

    def select(self, keep: Callable[[Array], Array], rule: str) -> Source:
        """The rows whose numbers pass a test."""
        rows = self._row_numbers()
        return self._pick(rows[keep(rows)])

    def holdout(self, fraction: float, seed: int = 0) -> tuple[Source, Source]:
        """Two sources: most rows, and the given fraction of them, both never empty if there are two rows."""
        fraction = inside("holdout", fraction, 0.0, 1.0)
        rows = self._row_numbers()
        held = np.zeros(len(rows), bool)
        n_held = min(max(1, round(fraction * len(rows))), max(len(rows) - 1, 0))
        held[np.argsort(mix(rows, seed), kind="stable")[:n_held]] = True
        return self._pick(rows[~held]), self._pick(rows[held])


def from_arrays(X: Any, y: Any = None, sample_weight: Any = None, *, chunk_rows: int = CHUNK_ROWS) -> ArraySource:
    """A source over arrays in memory; a float32 CSR matrix is used without a copy.

    Parameters
    ----------
    X : CSR or other scipy sparse matrix, array, DataFrame or nested list, shape (n, d)
    y : array of n targets, or (n, k) for several outputs; numbers or strings
    sample_weight : array of n weights, none negative

    Examples
    --------
    >>> import steepest as st
    >>> source = st.from_arrays([[1.0, 0.0], [0.0, 2.0]], [0, 1])
    >>> source.n_rows, source.n_features
    (2, 2)
    """
    indptr, indices, values, n_features = csr_arrays(X)
    n_rows = len(indptr) - 1
    targets = None if y is None else as_targets(y)
    if targets is not None and len(targets) != n_rows:
        raise DataError(f"X has {n_rows} rows but y has {len(targets)}; give one target a row")
    weight = None if sample_weight is None else as_weights(sample_weight, n_rows)
    return ArraySource(Chunk(indptr, indices, values, n_features, targets, weight), chunk_rows=chunk_rows)


class NotANumberError(DataError, TypeError):
    """An object stands where a number should; scikit-learn's callers expect a TypeError of that."""


def as_targets(y: Any) -> Array:
    """Targets as float64, or as an array of strings or objects where they are not numbers."""
    targets = np.asarray(y)
    if targets.ndim == 2 and targets.shape[1] == 1:
        targets = targets.ravel()
    if targets.ndim not in (1, 2):
        raise DataError(f"y has {targets.ndim} dimensions; give one target a row, or one row of targets")
    if targets.dtype.kind in "biuf":
        targets = targets.astype(np.float64)
        if not np.isfinite(targets).all():
            row = int(np.flatnonzero(~np.isfinite(targets).reshape(len(targets), -1).all(axis=1))[0])
            raise DataError(f"y contains NaN or infinity, first in row {row}; drop or fill such rows")
        return np.ascontiguousarray(targets)
    if targets.dtype.kind == "c":
        raise DataError("Complex data not supported: y holds complex numbers; give real numbers or strings")
    return targets


def as_weights(sample_weight: Any, n_rows: int) -> Array:
    """Row weights as float64, checked."""
    weight = np.ascontiguousarray(sample_weight, np.float64)
    if weight.ndim == 0:
        weight = np.full(n_rows, float(weight))
    if weight.shape != (n_rows,):
        raise DataError(f"sample_weight has shape {weight.shape} but X has {n_rows} rows; give one weight a row")
    bad = ~(weight >= 0) | ~np.isfinite(weight)
    if bad.any():
        row = int(np.flatnonzero(bad)[0])
        raise DataError(f"sample_weight of row {row} is {weight[row]}; weights must be finite and not negative")
    if n_rows and not weight.any():
        raise DataError("sample_weight is zero in every row; nothing can be learned from that")
    return weight


def csr_arrays(X: Any) -> tuple[Array, Array, Array, int]:
    """(indptr, indices, values, n_features) of anything that looks like a matrix."""
    if hasattr(X, "tocsr"):
        matrix = X if getattr(X, "format", "") == "csr" else X.tocsr()
        return _from_csr(matrix)
    if hasattr(X, "indptr") and hasattr(X, "indices"):
        return _from_csr(X)
    return _from_dense(X)


def _from_csr(matrix: Any) -> tuple[Array, Array, Array, int]:
    n_features = int(matrix.shape[1])
    if n_features > np.iinfo(np.int32).max:
        raise DataError(
            f"X has {n_features} columns; at most {np.iinfo(np.int32).max} are supported, hash them to fewer"
        )
    if matrix.data.dtype.kind not in "biuf":
        if matrix.data.dtype.kind == "c":
            raise DataError("Complex data not supported: X holds complex numbers; give real ones")
        raise DataError(f"X holds values of type {matrix.data.dtype}; give numbers")
    indices = np.asarray(matrix.indices)
    if indices.dtype != np.int32 and len(indices) and (indices.min() < 0 or indices.max() >= n_features):
        raise DataError(f"X has a column index outside 0..{n_features - 1}; check how the matrix was built")
    return (
        np.ascontiguousarray(matrix.indptr, np.int64),
        np.ascontiguousarray(indices, np.int32),
        np.ascontiguousarray(matrix.data, np.float32),
        n_features,
    )


def _from_dense(X: Any) -> tuple[Array, Array, Array, int]:
    matrix = np.asarray(X)
    if matrix.dtype.kind == "c":
        raise DataError("Complex data not supported: X holds complex numbers; give real ones")
    if matrix.dtype.kind not in "biuf":
        try:
            matrix = matrix.astype(np.float64)
        except (TypeError, ValueError) as error:
            message = f"X holds a value that is not a number ({error}); encode or hash it first"
            raise (NotANumberError if isinstance(error, TypeError) else DataError)(message) from None
    if matrix.ndim != 2:
        raise DataError(
            f"Expected 2D array, got {matrix.ndim}D array instead: X has shape {matrix.shape}. "
            "Reshape your data, one row an example (X.reshape(-1, 1) for one feature, X.reshape(1, -1) for one row)"
        )
    wanted = np.float64 if matrix.dtype == np.float64 else np.float32
    rows = kernels.sparse_rows(np.ascontiguousarray(matrix, wanted))
    if isinstance(rows, int):
        with np.errstate(over="ignore"):
            values = matrix[rows].astype(np.float32)
        column = int(np.flatnonzero(~np.isfinite(values))[0])
        raise DataError(
            f"Input X contains {'NaN' if np.isnan(values[column]) else 'infinity'}: row {rows}, column {column}; "
            "drop the row or fill the value"
        )
    return (*rows, int(matrix.shape[1]))
