"""Names under hashing: which features live in a bucket, in fixed memory; and how crowded the buckets are.

n features thrown at m buckets leave m exp(-n / m) of them empty, so the share of used buckets gives n, the occupancy
shows how many features share their bucket, and the names seen show how much of a model's weight that concerns. The
book itself is native, see `native/text/names.h` for how it chooses what to keep.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from steepest import kernels
from steepest.data.chunk import Array
from steepest.errors import DataError
from steepest.features.hasher_check import check_names

# Accuracy stays flat until about two features in five share their bucket with another.
TOLERABLE_SHARING = 0.4
NAMES_IN_A_ROW = 1 << 14  # more than a long document has


def hash_name(name: str, key: int) -> int:
    """The hash of a word, a category or a namespace."""
    return int(kernels.hash_texts([name], key)[0])


def mix(a: int, b: int) -> int:
    """The hash of an ordered pair of hashes: n-grams, crosses, copies."""
    return int(kernels.mix_hashes(np.array([a], np.uint64), np.array([b], np.uint64))[0])


class NameBook:
    """Names of the buckets, in memory that is fixed when the book is made: room for 4 `size` buckets, two names each.

    Frequent features stay by themselves. After `prune`, the `size` known buckets with the heaviest weights stay, too,
    whatever comes. Only a sample of rows is read: all of the first 256, in the end one in 64.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.table = kernels.NameTable(size)

    @property
    def n_names(self) -> int:
        """Buckets with a name."""
        return len(self.table.buckets())

    @property
    def n_bytes(self) -> int:
        """Memory in use, now and ever after."""
        return self.table.n_bytes

    @property
    def n_rows(self) -> int:
        """Rows that went by."""
        return self.table.n_rows

    def names_of(self, buckets: Any) -> list[list[str]]:
        """For each bucket the names seen in it, the most frequent first; empty if none was kept."""
        return self.table.names_of(np.ascontiguousarray(buckets, np.int64).ravel())

    def buckets(self) -> Array:
        """The buckets with a name."""
        return self.table.buckets()

    def prune(self, weights: Any) -> None:
        """Makes sure of the `size` heaviest buckets; `weights` has one axis over all buckets, others over classes."""
        buckets = self.buckets()
        weights = np.asarray(weights)
        axis = int(np.argmax(weights.shape))
        heavy = np.abs(np.take(weights, buckets, axis=axis)).astype(np.float64)
        others = tuple(k for k in range(heavy.ndim) if k != axis)
        self.table.prune(np.ascontiguousarray(heavy.max(axis=others) if others else heavy))

    def keep_heaviest(self, heaviness: Callable[[Array], Array]) -> None:
        """Does the same from a function that gives the weight of buckets; nothing if no weight was learned yet."""
        heavy = heaviness(self.buckets())
        if heavy.any():
            self.table.prune(np.ascontiguousarray(heavy, np.float64))

    def occupancy(self, n_bits: int) -> tuple[float, int]:
        """(share of buckets that were touched, buckets in the sample that shows it)."""
        n_seen = min(1 << n_bits, kernels.sampled_buckets)
        touched = np.unpackbits(self.table.touched().view(np.uint8))
        return float(touched.sum()) / n_seen, n_seen

    def state(self) -> dict[str, Array]:
        """The whole book as plain arrays."""
        numbers, texts, seen_once, touched, rows = self.table.state()
        return {
            "numbers": numbers,
            "texts": texts,
            "seen_once": seen_once,
            "touched": touched,
            "rows": np.array([rows], np.int64),
        }

    @classmethod
    def from_state(cls, size: int, state: Mapping[str, Array]) -> NameBook:
        """The book that `state` described."""
        try:
            check_names(size, state)
            book = cls(size)
            book.table.restore(
                np.ascontiguousarray(state["numbers"], np.uint32),
                np.ascontiguousarray(state["texts"], np.uint8),
                np.ascontiguousarray(state["seen_once"], np.uint64),
                np.ascontiguousarray(state["touched"], np.uint64),
                int(state["rows"][0]),
            )
        except (KeyError, IndexError, TypeError, ValueError) as error:
            why = str(error).partition("\n")[0]
            raise DataError(f"the names of the hashed features cannot be read ({why}); the file is damaged") from None
        return book

    def __getstate__(self) -> dict[str, Any]:
        return {"size": self.size} | self.state()

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.size = state["size"]
        self.table = self.from_state(self.size, state).table


@dataclass(frozen=True, slots=True)
class CollisionReport:
    """How crowded the buckets are. Shares are between 0 and 1; what needs weights is None without them."""

    n_bits: int
    occupancy: float  # buckets with a feature
    n_distinct: float  # features, from m (1 - exp(-n / m)) = occupied buckets
    sharing: float  # features that share their bucket with another
    suggested_bits: int
    named_weight: float | None  # of all |weight|: in buckets with a known name
    shared_weight: float | None  # of the named |weight|: in buckets with more than one known name

    def __str__(self) -> str:
        lines = [
            f"{1 << self.n_bits:,} buckets (n_bits={self.n_bits}), {self.occupancy:.1%} of them used",
            f"about {self.n_distinct:,.0f} distinct features, {self.sharing:.1%} of them share a bucket",
            f"suggested: n_bits={self.suggested_bits}",
        ]
        if self.named_weight is not None and self.shared_weight is not None:
            lines.append(f"{self.named_weight:.1%} of the weight is named")
            lines.append(f"{self.shared_weight:.1%} of the named weight lies in shared buckets")
        return "\n".join(lines)


def report_collisions(n_bits: int, weights: Any, book: NameBook | None) -> CollisionReport:
    """From the weights of a model, the names known, and the buckets that they saw touched; None for what is missing."""
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
    n_distinct = n_buckets * load
    bits = math.ceil(math.log2(max(n_distinct, 1) / -math.log1p(-TOLERABLE_SHARING)))
    named = shared = None
    if importance is not None and book is not None:
        buckets = book.buckets()
        several = np.array([len(names) > 1 for names in book.names_of(buckets)], bool)
        mass = float(importance[buckets].sum())
        named = mass / max(float(importance.sum()), np.finfo(float).tiny)
        shared = float(importance[buckets][several].sum()) / max(mass, np.finfo(float).tiny)
    return CollisionReport(n_bits, occupancy, n_distinct, -math.expm1(-load), min(max(bits, 10), 30), named, shared)


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
