"""Rows stored after the first reading, so that later epochs cost no parsing and mix all rows with each other.

A few of them stay in memory. The entries of more go to unnamed temporary files, which are mapped, and which vanish
with the process; only row starts, targets and weights stay in memory. Data that is too large for that, or for the disk,
is dropped again, and every epoch then reads as if nothing had been tried, encoders included. Memory: at most IN_MEMORY
entries, or an eighth of what the process is allowed, and MOST_ROWS rows, whatever the size of the data.
"""

from __future__ import annotations

import mmap
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np

from steepest.data.chunk import Array, Chunk
from steepest.data.source import ArraySource, Derived, Order, Source
from steepest.data.store.rows import Recorder, StoredRows

# Eight bytes each: 96 MB, so that all of a stream fits the 250 MB that were promised.
IN_MEMORY = 12 << 20
# Of the memory that the process may have: its rows must leave room for the reader, the learner and the libraries.
SHARE_OF_ALLOWED = 0.125
CGROUP_LIMIT = "/sys/fs/cgroup/memory.max"
# What reading in vain may cost at most: a second or so.
MOST_ENTRIES = 64 << 20
MOST_ROWS = 1 << 20
# Entries of a chunk, about. Its runs lie all over the file, and touching one brings in its surroundings.
CHUNK_ENTRIES = 1 << 17
NO_INDICES, NO_VALUES = np.zeros(0, np.int32), np.zeros(0, np.float32)


def store_rows(source: Source) -> Source:
    """The source with its rows parsed once, if they fit; sources as fast as memory are returned unchanged."""
    as_they_are = source.renewed or source.holds_rows or isinstance(source, StoredSource)
    return source if as_they_are else StoredSource(source)


def load_rows(source: Source, most_entries: int) -> Source:
    """Like `store_rows`; also reads a cache file into memory if it has no more entries than this."""
    n_entries = getattr(source, "n_entries", None)
    return StoredSource(source) if n_entries is not None and n_entries <= most_entries else store_rows(source)


class StoredSource(Derived):
    """The rows of another source, parsed once if they fit; made by `store_rows`."""

    def __init__(self, parent: Source) -> None:
        super().__init__(parent)
        self.n_rows = parent.n_rows
        self._columns: TemporaryColumns | None = None
        self._rows: ArraySource | None = None
        self._tried = False

    def fingerprint(self) -> dict[str, Any]:
        """The parent's fingerprint: the rows are the same."""
        return self.parent.fingerprint()

    def read(self, order: Order, epoch: int) -> Iterator[Chunk]:
        """Yields the stored rows if they fit, else the parent's chunks."""
        rows = self.rows()
        return self.parent.read(order, epoch) if rows is None else self._read(rows, order, epoch)

    def rows(self) -> ArraySource | None:
        """The stored rows, read at the first call; None if they do not fit."""
        if not self._tried:
            self._rows = self._load()
            self._tried = True
            self.holds_rows = self._rows is not None
            if not self.holds_rows:
                self.parent.start_over()
        return self._rows

    def _read(self, rows: ArraySource, order: Order, epoch: int) -> Iterator[Chunk]:
        """Yields the stored rows in chunks; pages of a file are released after their visit."""
        for chunk in rows.read(order, epoch):
            yield chunk
            if self._columns is not None:
                self._columns.release()

    def _load(self) -> ArraySource | None:
        columns = TemporaryColumns()
        recorder = Recorder(columns)
        try:
            with closing(self.parent.in_file_order(only_read=True)) as chunks:
                for chunk in chunks:
                    recorder.add(chunk)
                    if recorder.n_entries > MOST_ENTRIES or recorder.n_rows > MOST_ROWS:
                        return None
        except OSError:  # no room on the disk, or no place for temporary files
            return None
        if not recorder.n_rows:
            return None
        self.n_rows = recorder.n_rows
        self._columns = columns
        rows = StoredRows.of(columns.finish(), recorder.n_features)
        return ArraySource(rows.block, chunk_rows=max(1, CHUNK_ENTRIES * rows.n_rows // max(1, rows.n_entries)))


class TemporaryColumns:
    """Columns in memory; entries that are too many for it are moved to temporary files."""

    def __init__(self, room: int | None = None) -> None:
        # Memory is taken where it is first touched: the room that is not needed costs nothing.
        room = room_for_entries() if room is None else room
        self._entries = {"indices": _Entries(np.int32, room), "values": _Entries(np.float32, room)}
        self._parts: dict[str, list[Array]] = {}

    def append(self, name: str, array: Array, dtype: str) -> None:
        """Appends elements to a column."""
        if name in self._entries:
            self._entries[name].append(array)
        else:
            self._parts.setdefault(name, []).append(array)

    def finish(self) -> dict[str, Array]:
        """The columns as arrays; nothing can be appended afterwards."""
        joined = {name: np.concatenate(parts) for name, parts in self._parts.items()}
        self._parts.clear()
        return joined | {name: entries.finish() for name, entries in self._entries.items()}

    def release(self) -> None:
        """Lets the system reclaim the memory of mapped entries."""
        for entries in self._entries.values():
            if entries.mapped is not None:
                entries.mapped.madvise(mmap.MADV_DONTNEED)


class StoredChunks:
    """Chunks that are read again and again as they are: their entries in memory, or else in temporary files."""

    def __init__(self, chunks: Iterable[Chunk], room: int) -> None:
        self._columns = TemporaryColumns(room)
        self._chunks: list[Chunk] = []
        ends = [0]
        for chunk in chunks:
            rows = chunk if chunk.order is None else chunk.packed()
            first, last = int(rows.indptr[0]), int(rows.indptr[-1])
            self._columns.append("indices", rows.indices[first:last], "<i4")
            self._columns.append("values", rows.values[first:last], "<f4")
            ends.append(ends[-1] + last - first)
            self._chunks.append(replace(rows, indptr=rows.indptr - first, indices=NO_INDICES, values=NO_VALUES))
        entries = self._columns.finish()
        for number, (start, end) in enumerate(pairwise(ends)):
            indices, values = entries["indices"][start:end], entries["values"][start:end]
            self._chunks[number] = replace(self._chunks[number], indices=indices, values=values)

    def __len__(self) -> int:
        return len(self._chunks)

    def __iter__(self) -> Iterator[Chunk]:
        """Yields the chunks; pages of a file are released after their visit."""
        for chunk in self._chunks:
            yield chunk
            self._columns.release()


class _Entries:
    """An array that grows in memory, and moves to a temporary file when it is full."""

    def __init__(self, dtype: Any, room: int) -> None:
        self.mapped: mmap.mmap | None = None
        self._memory = np.empty(room, dtype)
        self._file: Any = None
        self._n = 0

    def append(self, part: Array) -> None:
        stop = self._n + len(part)
        if self._file is None and stop > len(self._memory):
            self._file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115, for as long as rows are read
            _write_fully(self._file, self._memory[: self._n])
            self._memory = self._memory[:0].copy()
        if self._file is None:
            self._memory[self._n : stop] = part
        else:
            _write_fully(self._file, part.astype(self._memory.dtype, copy=False))
        self._n = stop

    def finish(self) -> Array:
        if self._file is None:
            return self._memory[: self._n]
        self.mapped = mmap.mmap(self._file.fileno(), self._n * self._memory.itemsize, access=mmap.ACCESS_READ)
        return np.frombuffer(self.mapped, self._memory.dtype)


def _write_fully(file: Any, entries: Array) -> None:
    left = np.ascontiguousarray(entries).view(np.uint8).data
    while len(left):
        left = left[file.write(left) :]


def room_for_entries() -> int:
    """How many entries may stay in memory."""
    return min(IN_MEMORY, int(SHARE_OF_ALLOWED * allowed_bytes()) // 8)


def allowed_bytes() -> int:
    """The memory that limits of the process or its container leave; reserved memory counts as used."""
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
