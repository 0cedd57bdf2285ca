"""Raw batches of a source become chunks by a hasher that learns from each batch once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from steepest.data.chunk import Array, Chunk

if TYPE_CHECKING:
    from steepest.data.raw import RawBatch
    from steepest.features.hasher import Hasher


class RowEncoder:
    """Raw batches to chunks by a hasher; with `learn`, it learns from each batch once, however often it comes by."""

    def __init__(self, hasher: Hasher, learn: bool) -> None:
        self.hasher = hasher
        self.learn = learn
        self.heaviness: Callable[[Array], Array] | None = None  # of a learner's weights, by bucket
        self._seen: set[int] = set()
        self._n_batches = 0
        self._wanted: Array | None = None  # heavy buckets without a name
        self._start = hasher.state() if learn else None

    def start_over(self) -> None:
        """Forgets all batches."""
        if self._start is not None and self._seen:
            self.hasher.restore(*self._start)
            self._seen.clear()
            self._n_batches, self._wanted = 0, None

    def waits(self, batch: RawBatch) -> bool:
        """Whether the batch is to be encoded only when all before it were learned: batch 2, 4, 8, ... of new ones."""
        if not self.learn or self.heaviness is None or not self.hasher.names or batch.first_id in self._seen:
            return False
        self._n_batches += 1
        return self._n_batches > 1 and self._n_batches & (self._n_batches - 1) == 0

    def catch_up(self) -> None:
        """Makes sure of the names that the learner gives weight to; called in the place of a batch that waited."""
        if self.heaviness is not None and hasattr(self.hasher, "names_"):
            self.hasher.names_.keep_heaviest(self.heaviness)
            if hasattr(self.hasher, "document_counts_"):  # which show the buckets in use
                used = np.flatnonzero(self.hasher.document_counts_)
                self._wanted = self.hasher.names_.unnamed(used, self.heaviness(used))

    def __call__(self, batch: RawBatch) -> Chunk:
        """The batch, hashed."""
        blocks = (batch.first_id,) if batch.ids is None else tuple(batch.ids.ids.tolist())
        new = self.learn and not self._seen.issuperset(blocks)
        self._seen.update(blocks)
        chunk = self.hasher.to_chunk(batch.columns, learn=new)
        if new and self._wanted is not None and len(self._wanted):
            self.hasher.find_names(batch.columns, chunk, self._wanted)
            self._wanted = np.setdiff1d(self._wanted, chunk.indices)
        return chunk

    def state(self) -> tuple[dict[str, Any], dict[str, Array]]:
        """The hasher with all that it has learned, for a cache of its rows."""
        return self.hasher.state()

    def restore(self, header: Mapping[str, Any], arrays: Mapping[str, Array]) -> None:
        """What the hasher would learn from rows that a cache holds already."""
        if self.learn:
            self.hasher.restore(header, arrays)

    def go_on_from(self, header: Mapping[str, Any], arrays: Mapping[str, Array]) -> None:
        """All rows were seen in an epoch before: nothing is learned from them again."""
        self.restore(header, arrays)
        self.learn, self._start = False, None
