"""Rows kept after the first reading, so that later epochs cost no parsing and mix all rows with each other.

A few of them stay in memory. The entries of more go to an unnamed temporary file, which is mapped, and which vanishes
with the process; only row starts, targets and weights stay in memory. Data that is too large for that, or for the disk,
is dropped again, and every epoch then reads as if nothing had been tried, encoders included. Memory: at most IN_MEMORY
entries, or an eighth of what the process is allowed, and KEPT_ROWS rows, whatever the size of the data.
"""

from __future__ import annotations

import mmap
import tempfile
from collections.abc import Generator, Iterator
from contextlib import closing
from typing import Any

import numpy as np

from steepest.data.cache import CachedSource
from steepest.data.chunk import Array, Chunk
from steepest.data.source import ArraySource, Derived, Order, Source

# Eight bytes each: 96 MB, so that all of a stream fits the 250 MB that were promised.
IN_MEMORY = 12 << 20
# Of the memory that the process may have: its rows must leave room for the reader, the learner and the libraries.
SHARE_OF_ALLOWED = 0.125
CGROUP_LIMIT = "/sys/fs/cgroup/memory.max"
# What reading in vain may cost at most: a second or so.
KEPT_ENTRIES = 64 << 20
KEPT_ROWS = 1 << 20
# Entries of a chunk, about. Its runs lie all over the file, and touching one brings in its surroundings.
CHUNK_ENTRIES = 1 << 17


def keep_rows(source: Source) -> Source:
    """The same rows, parsed once if they fit; sources that are as fast as memory already are returned as they are."""
    at_hand = source.renewed or isinstance(source, ArraySource | CachedSource | Kept)
    return source if at_hand else Kept(source)


class Kept(Derived):
    """The rows of another source, which are parsed once if they fit."""

    def __init__(self, parent: Source) -> None:
        super().__init__(parent)
        self.n_rows = parent.n_rows
        self._shelf: _Shelf | None = None
        self._tried = False

    @property
    def holds_rows(self) -> bool:
        """Whether the rows were found to fit."""
        return self._shelf is not None

    def _copy(self) -> Kept:
        return Kept(self.parent)

    def fingerprint(self) -> dict[str, Any]:
        """The parent's: these are its rows."""
        return self.parent.fingerprint()

    def read(self, order: Order, epoch: int) -> Iterator[Chunk]:
        """The rows kept if they fit, else the parent's."""
        if not self._tried:
            self._shelf = self._load()
            self._tried = True
            if self._shelf is None:
                self.parent.start_over()
        return self.parent.read(order, epoch) if self._shelf is None else self._shelf.read(order, epoch)

    def _load(self) -> _Shelf | None:
        shelf = _Shelf()
        try:
            with closing(_chunks(self.parent)) as chunks:
                for chunk in chunks:
                    shelf.put(chunk if chunk.order is None else chunk.packed())
                    if shelf.n_entries > KEPT_ENTRIES or shelf.n_rows > KEPT_ROWS:
                        return None
        except OSError:  # no room on the disk, or no place for temporary files
            return None
        if not shelf.n_rows:
            return None
        shelf.close()
        self.n_rows = shelf.n_rows
        return shelf


def _chunks(source: Source) -> Generator[Chunk, None, None]:
    """All rows in the order of the files; whoever stops reads no more of them."""
    yield from source.read(Order(unheard=True), 0)


class _Shelf:
    """Chunks side by side: entries in memory or in files, the rest in memory."""

    def __init__(self) -> None:
        self.n_rows = self.n_entries = 0
        # Memory is taken where it is first touched: the room that is not needed costs nothing.
        self._room = min(IN_MEMORY, int(SHARE_OF_ALLOWED * allowed_bytes()) // 8)
        self._entries: list[Array] = [np.empty(self._room, dtype) for dtype in (np.int32, np.float32)]
        self._files: list[Any] = []
        self._maps: list[mmap.mmap] = []
        self._parts: list[Chunk] = []  # without their entries
        self._source: ArraySource | None = None

    def put(self, chunk: Chunk) -> None:
        """Takes in the rows of a chunk."""
        first, last = int(chunk.indptr[0]), int(chunk.indptr[-1])
        start, stop = self.n_entries, self.n_entries + last - first
        if not self._files and stop > self._room:
            self._move_to_files()
        for kept, entries in zip(self._files or self._entries, (chunk.indices, chunk.values), strict=True):
            if self._files:
                _write_fully(kept, entries[first:last])
            else:
                kept[start:stop] = entries[first:last]
        indptr = chunk.indptr - first + start
        self._parts.append(Chunk(indptr, *_NO_ENTRIES, chunk.n_features, chunk.y, chunk.weight, group=chunk.group))
        self.n_rows += chunk.n_rows
        self.n_entries = stop

    def _move_to_files(self) -> None:
        for entries in self._entries:
            self._files.append(tempfile.TemporaryFile(buffering=0))  # noqa: SIM115, for as long as rows are read
            _write_fully(self._files[-1], entries[: self.n_entries])
        self._entries = []

    def close(self) -> None:
        """No more rows come: maps the files."""
        parts = self._parts
        indices, values = self._mapped() if self._files else (kept[: self.n_entries] for kept in self._entries)
        rows = Chunk(
            np.concatenate([parts[0].indptr[:1], *(part.indptr[1:] for part in parts)]),
            indices,
            values,
            max(part.n_features for part in parts),
            _joined([part.y for part in parts]),
            _weights(parts),
            group=_joined([part.group for part in parts]),
        )
        at_once = max(1, CHUNK_ENTRIES * self.n_rows // max(1, self.n_entries))
        self._source = ArraySource(rows, chunk_rows=at_once)
        self._parts = []

    def read(self, order: Order, epoch: int) -> Iterator[Chunk]:
        """Some thousands of rows at a time; what was visited in a file need not stay in memory."""
        assert self._source is not None
        for chunk in self._source.read(order, epoch):
            yield chunk
            for mapped in self._maps:
                mapped.madvise(mmap.MADV_DONTNEED)

    def _mapped(self) -> list[Array]:
        n_bytes = 4 * self.n_entries
        self._maps = [mmap.mmap(file.fileno(), n_bytes, access=mmap.ACCESS_READ) for file in self._files]
        return [np.frombuffer(mapped, dtype) for mapped, dtype in zip(self._maps, (np.int32, np.float32), strict=True)]


def allowed_bytes() -> int:
    """What limits of the process or of its container leave; reserved memory counts for them, touched or not."""
    found = [1 << 62]
    try:
        import resource

        limits = (resource.getrlimit(kind)[0] for kind in (resource.RLIMIT_DATA, resource.RLIMIT_AS))
        found += [limit for limit in limits if limit != resource.RLIM_INFINITY]
    except ImportError:  # not on Windows
        pass
    try:
        with open(CGROUP_LIMIT) as file:
            text = file.read().strip()
        found += [int(text)] if text.isdigit() else []
    except OSError:
        pass
    return min(found)


_NO_ENTRIES = (np.empty(0, np.int32), np.empty(0, np.float32))


def _write_fully(file: Any, entries: Array) -> None:
    left = np.ascontiguousarray(entries).view(np.uint8).data
    while len(left):
        left = left[file.write(left) :]


def _joined(arrays: list[Array | None]) -> Array | None:
    known = [array for array in arrays if array is not None]
    return np.concatenate(known) if known else None


def _weights(parts: list[Chunk]) -> Array | None:
    if all(part.weight is None for part in parts):
        return None
    return np.concatenate([np.ones(part.n_rows) if part.weight is None else part.weight for part in parts])
