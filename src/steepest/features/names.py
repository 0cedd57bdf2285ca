"""Names under hashing: which features live in a bucket, in fixed memory.

The book itself is native, see `native/text/names.h` for how it chooses what to keep.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from steepest import kernels
from steepest.data.chunk import Array
from steepest.errors import DataError

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
        book = cls(size)
        try:
            book.table.restore(
                np.ascontiguousarray(state["numbers"], np.uint32),
                np.ascontiguousarray(state["texts"], np.uint8),
                np.ascontiguousarray(state["seen_once"], np.uint64),
                np.ascontiguousarray(state["touched"], np.uint64),
                int(state["rows"][0]),
            )
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise DataError(f"the names of the hashed features cannot be read ({error}); the file is damaged") from None
        return book

    def __getstate__(self) -> dict[str, Any]:
        return {"size": self.size} | self.state()

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.size = state["size"]
        self.table = self.from_state(self.size, state).table
