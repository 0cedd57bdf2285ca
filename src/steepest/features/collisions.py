"""Collisions under hashing: how many features share a bucket, how much weight is there, and what it does to products.

n features thrown at m buckets leave m exp(-n/m) of them empty, so the share of used buckets gives n, and 1 - exp(-n/m)
of the features are expected to share theirs. On data all this is counted: rows are hashed to 30 bits, whose lower ones
are the bucket for any smaller number, so features are distinguished as long as they differ in 30 bits (of a million
features one in a thousand does not). The hash kernel is <phi(x), phi(y)> = <x, y> + collision term. With random signs
the term has mean 0; without, ((sum x)(sum y) - <x, y>) / m. Its variance is S / m either way (up to 1 / m²), with
S = |x|² |y|² + <x, y>² - 2 sum x_i² y_i² (Weinberger et al., ICML 2009).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from steepest.data.chunk import Array, Chunk
from steepest.errors import DataError
from steepest.features.names import NameBook

# Accuracy stays flat until about two features in five share their bucket with another.
TOLERABLE_SHARING = 0.4
ALL_ROWS_NAMED = 256  # so many rows are read for names in full
PROBE_BITS = 30
SHOWN_BITS = range(10, 25, 2)
KERNEL_ROWS = 256  # a sample, whose pairs show the error of the hash kernel


@dataclass(frozen=True, slots=True)
class BitsReport:
    """How much hashing to one number of bits merges features and distorts inner products of the data's rows."""

    n_bits: int
    sharing: float  # features that share their bucket, as counted
    expected_sharing: float
    mean_error: float  # of the hash kernel, over pairs of different rows
    rms_error: float
    expected_rms: float


@dataclass(frozen=True, slots=True)
class CollisionReport:
    """How full the buckets are. Shares are between 0 and 1; those that need weights are None without them."""

    n_bits: int
    occupancy: float  # buckets with a feature
    n_distinct: float  # features, counted or from m (1 - exp(-n / m)) = occupied buckets
    sharing: float  # features that share their bucket with another
    suggested_bits: int
    named_weight: float | None  # of all |weight|: in buckets with a known name
    shared_weight: float | None  # of all |weight|: in buckets of several features
    counted: bool = False  # on data; else estimated from the occupancy
    by_bits: tuple[BitsReport, ...] = ()

    def __str__(self) -> str:
        about = "" if self.counted else "about "
        lines = [
            f"{1 << self.n_bits:,} buckets (n_bits={self.n_bits}), {self.occupancy:.1%} of them used",
            f"{about}{self.n_distinct:,.0f} distinct features, {about}{self.sharing:.1%} of them share a bucket",
            "counted on the data given" if self.counted else "estimated from the buckets in use",
            f"suggested: n_bits={self.suggested_bits}",
        ]
        if self.named_weight is not None:
            lines.append(f"{self.named_weight:.1%} of the weight is named")
        if self.shared_weight is not None:
            lines.append(f"{about}{self.shared_weight:.1%} of the weight is in shared buckets")
        if self.by_bits:
            lines.append("hash kernel: <phi(x), phi(y)> - <x, y> over pairs of rows, by the number of bits")
            lines.append("bits  features sharing  expected  mean error  rms error  expected")
            lines += [
                f"{row.n_bits:4}  {row.sharing:16.2%}  {row.expected_sharing:8.2%}  {row.mean_error:+10.1e}"
                f"  {row.rms_error:9.1e}  {row.expected_rms:8.1e}"
                for row in self.by_bits
            ]
        return "\n".join(lines)


def report_collisions(n_bits: int, weights: Any, book: NameBook | None) -> CollisionReport:
    """Estimates collisions from a model's weights, the known names and the buckets in use; any may be None."""
    n_buckets = 1 << n_bits
    importance = None if weights is None else _total_weight(weights, n_buckets)
    occupancy, n_seen = (0.0, 0) if book is None else book.occupancy(n_bits)
    if occupancy == 0:
        n_seen = n_buckets  # only weights and names can show it
    # A sample of the buckets may have missed the few that are used.
    known = 0 if book is None else book.n_names
    weighty = 0 if importance is None else int(np.count_nonzero(importance))
    occupancy = max(occupancy, known / n_buckets, weighty / n_buckets)
    # When every bucket is used, only a lower bound of the features is known: as if half a bucket were free.
    load = -math.log1p(-min(occupancy, 1 - 0.5 / n_seen))
    sharing = -math.expm1(-load)
    named = shared = None
    if importance is not None:
        shared = _expected_shared_weight(load)
    if importance is not None and book is not None:
        buckets = book.buckets()
        total = max(float(importance.sum()), np.finfo(float).tiny)
        several = np.array([len(names) > 1 for names in book.names_of(buckets)], bool)
        named = float(importance[buckets].sum()) / total
        # Of many rows the book knows few names, so what it does not see is no sign of anything.
        seen = float(importance[buckets][several].sum()) / total
        shared = seen if book.n_rows <= ALL_ROWS_NAMED else max(seen, shared or 0.0)
    distinct = n_buckets * load
    return CollisionReport(n_bits, occupancy, distinct, sharing, _enough_bits(distinct), named, shared)


def count_collisions(
    n_bits: int, signed: bool, rows: Iterable[Chunk], weights: Any = None, book: NameBook | None = None
) -> CollisionReport:
    """Counts collisions on data, by hashing the same rows to PROBE_BITS bits."""
    features, sample = _read(rows)
    if not len(features):
        raise DataError("the data has no features to count collisions of; give the rows that the model learned from")
    crowd = np.bincount(features & (1 << n_bits) - 1, minlength=1 << n_bits)
    named = shared = None
    if weights is not None:
        importance = _total_weight(weights, 1 << n_bits)
        total = max(float(importance.sum()), np.finfo(float).tiny)
        shared = float(importance[crowd > 1].sum()) / total
        named = None if book is None else float(importance[book.buckets()].sum()) / total
    bits = sorted({*SHOWN_BITS, n_bits})
    return CollisionReport(
        n_bits,
        float(np.count_nonzero(crowd)) / (1 << n_bits),
        float(len(features)),
        _sharing(features, n_bits),
        _enough_bits(len(features)),
        named,
        shared,
        True,
        tuple(_with_bits(n, signed, features, sample) for n in bits),
    )


def _read(rows: Iterable[Chunk]) -> tuple[Array, list[tuple[Array, Array]]]:
    """(all features, ascending; a sample of rows as (features, values), each row as likely as any other)."""
    random = np.random.default_rng(0)
    features = np.zeros(0, np.int64)
    fresh: list[Array] = []
    sample: list[tuple[Array, Array]] = []
    n_rows = n_fresh = 0
    for chunk in rows:
        for row in chunk.row_numbers.tolist():
            n_rows += 1
            place = len(sample) if len(sample) < KERNEL_ROWS else int(random.integers(n_rows))
            if place < KERNEL_ROWS:
                part = slice(chunk.indptr[row], chunk.indptr[row + 1])
                sample[place : place + 1] = [(chunk.indices[part].astype(np.int64), chunk.values[part].copy())]
        packed = chunk if chunk.order is None else chunk.packed()
        fresh.append(np.unique(packed.indices[packed.indptr[0] : packed.indptr[-1]]).astype(np.int64))
        n_fresh += len(fresh[-1])
        if n_fresh > max(len(features), 1 << 20):
            features, fresh, n_fresh = np.unique(np.concatenate([features, *fresh])), [], 0
    return np.unique(np.concatenate([features, *fresh])), sample


def _sharing(features: Array, n_bits: int) -> float:
    _, times = np.unique(features & (1 << n_bits) - 1, return_counts=True)
    return float(times[times > 1].sum()) / len(features)


def _with_bits(n_bits: int, signed: bool, features: Array, sample: list[tuple[Array, Array]]) -> BitsReport:
    m = 1 << n_bits
    exact = _products(sample, PROBE_BITS)
    squares = _products([(index, x.astype(np.float64) ** 2) for index, x in sample], PROBE_BITS)
    pairs = np.triu_indices(len(sample), 1)
    error = (_products(sample, n_bits) - exact)[pairs]
    lengths = np.diag(exact)
    spread = (np.outer(lengths, lengths) + exact**2 - 2 * squares)[pairs]
    sums = np.array([x.sum(dtype=np.float64) for _, x in sample])
    bias = np.zeros(len(error)) if signed else ((np.outer(sums, sums) - exact) / m)[pairs]
    expected = float(np.sqrt((spread / m * (1 - (not signed) / m) + bias**2).mean())) if len(error) else 0.0
    mean, rms = (float(error.mean()), float(np.sqrt((error**2).mean()))) if len(error) else (0.0, 0.0)
    return BitsReport(n_bits, _sharing(features, n_bits), -math.expm1(-(len(features) - 1) / m), mean, rms, expected)


def _products(sample: list[tuple[Array, Array]], n_bits: int) -> Array:
    """Inner products of all pairs of rows in buckets of so many bits."""
    from scipy.sparse import csr_matrix

    starts = np.cumsum([0, *(len(index) for index, _ in sample)])
    buckets = np.concatenate([index for index, _ in sample]) & (1 << n_bits) - 1
    columns = np.unique(buckets, return_inverse=True)[1]
    values = np.concatenate([x for _, x in sample]).astype(np.float64)
    rows = csr_matrix((values, columns, starts), shape=(len(sample), int(columns.max(initial=0)) + 1))
    return np.asarray((rows @ rows.T).toarray())


def _expected_shared_weight(load: float) -> float:
    """The share of |weight| in buckets of several features, if the weights of k features add up to one of size √k."""
    k = np.arange(1, 40 + int(4 * load))
    logs = k * math.log(max(load, 1e-300)) - np.cumsum(np.log(k))
    sizes = np.exp(logs - logs.max()) * np.sqrt(k)
    return float(sizes[1:].sum() / sizes.sum())


def _enough_bits(n_distinct: float) -> int:
    bits = math.ceil(math.log2(max(n_distinct, 1) / -math.log1p(-TOLERABLE_SHARING)))
    return min(max(bits, 10), 30)


def _total_weight(weights: Any, n_buckets: int) -> Array:
    """|weight| of each bucket, over all classes."""
    weights = np.asarray(weights)
    axes = [axis for axis, size in enumerate(weights.shape) if size == n_buckets]
    if not axes:
        raise DataError(
            f"weights of shape {weights.shape} have no axis of length {n_buckets}; give a model of this hasher"
        )
    others = tuple(axis for axis in range(weights.ndim) if axis != axes[0])
    return np.asarray(np.abs(weights).sum(axis=others, dtype=np.float64))
