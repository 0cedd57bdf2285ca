"""Names under hashing: which features live in a bucket, in fixed memory.

The book itself is native, see `native/text/names.h` for how it chooses what to keep.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from steepest import kernels
from steepest.data.chunk import Array
from steepest.errors import DataError
from steepest.features.hasher_check import check_names

NAMES = 10_000  # that models and hashers keep unless they are asked for others
MOST_ADDED = 1000
NAMES_IN_A_ROW = 1 << 14  # more than a long document has


def hash_name(name: str, key: int) -> int:
    """The hash of a word, a category or a namespace."""
    return int(kernels.hash_texts([name], key)[0])


def mix(a: int, b: int) -> int:
    """The hash of an ordered pair of hashes: n-grams, crosses, copies."""
    return int(kernels.mix_hashes(np.array([a], np.uint64), np.array([b], np.uint64))[0])


class NameBook:
    """Names of the buckets, in memory that is fixed when the book is made: room for 4 `size` buckets, two names each.

    Frequent features stay by themselves. After `keep_heaviest`, the `size` known buckets with the heaviest weights
    stay, too, whatever comes. Only a sample of rows is read: all of the first 256, in the end one in 64. So a rare
    feature may have no name; `add` takes names that were looked up afterwards, of at most MOST_ADDED heavy buckets.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.table = kernels.NameTable(size)
        self.added: dict[int, str] = {}

    def add(self, names: Mapping[int, str]) -> None:
        """Adds names that were looked up for heavy buckets; when the room is used up, the newest stay."""
        self.added = dict(list((self.added | dict(names)).items())[-MOST_ADDED:])

    def unnamed(self, buckets: Array, heavy: Array) -> Array:
        """The heaviest buckets without a name, at most MOST_ADDED."""
        few = np.arange(len(heavy))
        if len(heavy) > MOST_ADDED:  # no weight below this one can be among them
            few = np.flatnonzero(heavy >= np.partition(heavy, len(heavy) - MOST_ADDED)[len(heavy) - MOST_ADDED])
        order = few[np.argsort(-heavy[few], kind="stable")[:MOST_ADDED]]
        chosen = buckets[order[heavy[order] > 0]]
        return chosen[[not names for names in self.names_of(chosen)]] if len(chosen) else chosen

    @property
    def n_names(self) -> int:
        """Buckets with a name."""
        return len(self.buckets())

    @property
    def n_bytes(self) -> int:
        """The memory of the book, which is fixed."""
        return self.table.n_bytes

    @property
    def n_rows(self) -> int:
        """The number of rows read."""
        return self.table.n_rows

    def names_of(self, buckets: Any) -> list[list[str]]:
        """For each bucket the names seen in it, the most frequent first; empty if none was kept."""
        wanted = np.ascontiguousarray(buckets, np.int64).ravel()
        found = self.table.names_of(wanted)
        if not self.added:
            return found
        more = ([self.added[b]] if b in self.added else [] for b in wanted.tolist())
        return [names or other for names, other in zip(found, more, strict=True)]

    def buckets(self) -> Array:
        """The buckets with a name."""
        known = self.table.buckets()
        return (
            np.concatenate([known, np.setdiff1d(np.array(list(self.added), np.int64), known)]) if self.added else known
        )

    def keep_heaviest(self, heaviness: Callable[[Array], Array]) -> None:
        """Keeps the names of the `size` buckets of the largest weights; does nothing while all weights are 0."""
        heavy = heaviness(self.table.buckets())
        if heavy.any():
            self.table.prune(np.ascontiguousarray(heavy, np.float64))

    def occupancy(self, n_bits: int) -> tuple[float, int]:
        """(share of buckets that were touched, buckets in the sample that shows it)."""
        n_seen = min(1 << n_bits, kernels.sampled_buckets)
        touched = np.unpackbits(self.table.touched().view(np.uint8))
        return float(touched.sum()) / n_seen, n_seen

    def state(self) -> dict[str, Array]:
        """The whole book as arrays."""
        numbers, texts, seen_once, touched, rows = self.table.state()
        text = json.dumps(list(self.added.items())).encode()
        added = {"added": np.frombuffer(text, np.uint8)} if self.added else {}
        return added | {
            "numbers": numbers,
            "texts": texts,
            "seen_once": seen_once,
            "touched": touched,
            "rows": np.array([rows], np.int64),
        }

    @classmethod
    def from_state(cls, size: int, state: Mapping[str, Array]) -> NameBook:
        """Builds the book from the arrays that `state` gave."""
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
            added = json.loads(np.asarray(state["added"], np.uint8).tobytes()) if "added" in state else []
            book.add({int(bucket): str(name) for bucket, name in added})
            if any(not 0 <= bucket < 1 << 30 for bucket in book.added):
                raise ValueError("a bucket is not one")
        except (KeyError, IndexError, TypeError, ValueError, OverflowError, RecursionError) as error:
            why = str(error).partition("\n")[0]
            raise DataError(f"the names of the hashed features cannot be read ({why}); the file is damaged") from None
        return book

    def __getstate__(self) -> dict[str, Any]:
        return {"size": self.size} | self.state()

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.size = state["size"]
        book = self.from_state(self.size, state)
        self.table, self.added = book.table, book.added
