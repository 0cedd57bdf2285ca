"""Names of hashed features: which were seen in a bucket, which bucket a name goes to, and who shares it.

Names are written as features are: "word", "column=value", "word#column=value" for a cross, character n-grams in quotes.
"""

from __future__ import annotations

from abc import abstractmethod
from functools import reduce
from typing import Any

import numpy as np

from steepest import kernels
from steepest.data.chunk import Array, Chunk, DataError
from steepest.data.columns import CATEGORY, NUMBER, TEXT, Table
from steepest.estimator import Estimator
from steepest.names import CollisionReport, NameBook, report_collisions, total_weight

# As in the kernel: what tells the character n-gram "abc" from the word, and copies from each other.
CHARACTER_MARK = 0x3C3E
COPY_STEP = 0x9E3779B97F4A7C15
NAMES_IN_A_ROW = 1 << 14  # more than a long document has


class FeatureNames(Estimator):
    """The part of a hasher that knows names."""

    n_bits: int
    copies: int
    signed: bool
    seed: int
    names: int
    lowercase: bool
    char_ngrams: tuple[int, int] | None
    cross: Any
    names_: NameBook

    @property
    @abstractmethod
    def n_features(self) -> int:
        """Columns of the rows."""

    @abstractmethod
    def _check(self) -> None:
        """Refuses parameters that cannot work."""

    @abstractmethod
    def _read(self, X: Any) -> Table:
        """Raw rows as columns."""

    @abstractmethod
    def _hash(
        self, table: Table, *, learn: bool, count: bool | None = None, weigh: bool = True
    ) -> tuple[Array, Array, Array]:
        """A table as (indptr, indices, values)."""

    @abstractmethod
    def _prefix(self, name: str) -> str:
        """What stands before the words of a column."""

    def names_of(self, buckets: Any) -> list[list[str]]:
        """For each bucket the names seen in it, the most frequent first; empty if none was kept."""
        self._need_names()
        return self.names_.names_of(buckets)

    def prune_names(self, weights: Any) -> None:
        """Keeps the names of the heaviest weights from now on; a trainer calls it now and then."""
        if hasattr(self, "names_"):
            self.names_.prune(weights)

    def bucket(self, name: str, copy: int = 0) -> int:
        """The column of the feature with this name, written as `names_of` writes it."""
        return self._feature_hash(name, copy) >> 32 & self.n_features - 1

    def sign(self, name: str, copy: int = 0) -> int:
        """+1 or -1: with which sign the feature of this name is added to its column."""
        return -1 if self.signed and self._feature_hash(name, copy) >> 63 else 1

    def sign_in(self, bucket: int, name: str) -> int:
        """The sign of the copy that is in this bucket. A name that was cut short is taken for positive."""
        for copy in range(self.copies):
            try:
                if self.bucket(name, copy) == bucket:
                    return self.sign(name, copy)
            except DataError:
                break
        return 1

    def read_row(self, x: Any) -> tuple[Chunk, list[list[str]], list[list[str]]]:
        """One row: hashed, the names that are in it for each bucket, and those known from training for each."""
        reader = type(self)(**{**self.get_params(deep=False), "names": NAMES_IN_A_ROW})
        for name in ("columns_", "n_features_in_", "document_counts_", "n_documents_"):
            if hasattr(self, name):
                setattr(reader, name, getattr(self, name))
        table = reader._read([x])
        indptr, indices, values = reader._hash(table, learn=True, count=False)
        row = Chunk(indptr, indices, values, self.n_features)
        known = self.names_of(indices) if hasattr(self, "names_") else [[] for _ in indices]
        return row, reader.names_of(indices), known

    def _feature_hash(self, name: str, copy: int) -> int:
        self._check()
        columns = dict(getattr(self, "columns_", (("", TEXT),)))
        # What is written as words could be anything, so other readings come later, and the last one holds.
        readings = [self._hash_of(name, column, kind) for column, kind in columns.items() if kind == TEXT]
        readings += [self._hash_of(name, column, kind) for column, kind in columns.items() if kind != TEXT]
        for a, b in self.cross:
            for place in (place for place, letter in enumerate(name) if letter == "#"):
                left = self._hash_of(name[:place], a, columns.get(a))
                right = self._hash_of(name[place + 1 :], b, columns.get(b))
                readings.append(None if left is None or right is None else _mix(left, right))
        feature = next((reading for reading in reversed(readings) if reading is not None), None)
        if feature is None:
            raise DataError(
                f"{name!r} is no name of a feature; write 'word', 'column=value', or 'word#column=value' for a cross"
            )
        if copy:
            feature = _mix(feature, copy * COPY_STEP & 0xFFFFFFFFFFFFFFFF)
        return feature

    def _hash_of(self, name: str, column: str, kind: str | None) -> int | None:
        """The hash of a feature of one column, or None if the name is not one of that column."""
        seed = self.seed & 0xFFFFFFFFFFFFFFFF
        label = f"{column}=" if column else ""
        is_category = kind == CATEGORY and name.startswith(label)
        if is_category or name == f"{label}<missing>" or (kind == NUMBER and name == column):
            return _hash_name(name, kernels.hash_key("", seed))
        prefix = self._prefix(column)
        if kind != TEXT or not name.startswith(prefix):
            return None
        key, rest = kernels.hash_key(column, seed), name.removeprefix(prefix)
        if self.char_ngrams and len(rest) > 2 and rest[0] == rest[-1] == "'":
            return _hash_name(rest[1:-1], key ^ CHARACTER_MARK)
        words = [_hash_name(word, key) for word in kernels.split_words(rest, self.lowercase, 1)]
        return reduce(_mix, words) if words else None

    def collision_report(self, weights: Any = None) -> CollisionReport:
        """How full the buckets are, and how much of a model's weight lies in buckets that several features share.

        Parameters
        ----------
        weights : array with one axis of length 2**n_bits, optional
            The weights of a model, `coef_` for example.
        """
        importance = None if weights is None else total_weight(weights, self.n_features)
        if hasattr(self, "names_") and self.names_.n_rows:
            occupancy, n_seen = self.names_.occupancy(self.n_bits)
        elif importance is not None:
            occupancy, n_seen = float(np.count_nonzero(importance)) / self.n_features, self.n_features
        else:
            raise DataError(
                "a collision report needs weights, or a hasher with names that has read data; give one of them"
            )
        return report_collisions(self.n_bits, occupancy, n_seen, importance, getattr(self, "names_", None))

    def _need_names(self) -> None:
        if not self.names:
            raise DataError("names=0 keeps no names; make the hasher with names=10000, say, before training")
        if not hasattr(self, "names_"):
            raise self._not_fitted("names are kept by fit, partial_fit or a training run")


def _hash_name(name: str, key: int) -> int:
    return int(kernels.hash_texts([name], key)[0])


def _mix(a: int, b: int) -> int:
    return int(kernels.mix_hashes(np.array([a], np.uint64), np.array([b], np.uint64))[0])
