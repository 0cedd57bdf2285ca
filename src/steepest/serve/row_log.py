"""The write-ahead log of learned rows: a row is on the disk before anyone is answered that it was learned.

A file begins with MAGIC, then one line of JSON: the identity of the model that the rows were learned into, and how many
rows came before. Then frames, one for each group of requests that share an fsync: length u32, CRC-32 u32 of what
follows, first row u64, requests u32, then each request as length u32 and JSON. All numbers are little-endian.
Invariants: `append` returns only after the fsync; a file holds whole frames and at most one torn frame, the last, which
nobody was answered for; a write that fails is cut off again, so the next one starts behind good frames.
Left out: compression; several writers (the directory is locked).
"""

from __future__ import annotations

import contextlib
import os
import struct
import zlib
from collections.abc import Iterator, Sequence
from typing import Any, Self

import orjson

from steepest.errors import DataError

MAGIC = b"steepest rows 1\n"
FRAME = struct.Struct("<IIQI")  # length of the requests, checksum, first row, requests
COVERED = struct.Struct("<QI")  # what the checksum covers before the requests
LENGTH = struct.Struct("<I")


class RowLog:
    """One open log file, positioned behind its last good frame."""

    def __init__(self, descriptor: int, identity: str, n_bytes: int) -> None:
        self._file, self.identity = descriptor, identity
        self.n_bytes = n_bytes  # of the header and good frames
        self._is_torn = False  # there is more behind these, which could not be cut off

    @classmethod
    def create(cls, path: str, identity: str, first: int) -> Self:
        """A new log for rows after `first`; it has its name only once its header is on the disk."""
        head = MAGIC + orjson.dumps({"model": identity, "first": first}) + b"\n"
        part = f"{path}.part"
        with contextlib.suppress(FileNotFoundError):
            os.unlink(part)
        descriptor = os.open(part, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            write_all(descriptor, head)
            os.fsync(descriptor)
            os.replace(part, path)
            sync_directory(os.path.dirname(path))
        except BaseException:
            os.close(descriptor)
            with contextlib.suppress(OSError):
                os.unlink(part)
            raise
        return cls(descriptor, identity, len(head))

    @classmethod
    def open(cls, path: str) -> tuple[Self, list[tuple[int, Any]], int]:
        """(the log, its requests as (row before them, value), bytes of a torn last frame that were cut off)."""
        with open(path, "rb") as file:
            data = file.read()
        identity, start = _read_header(path, data)
        requests: list[tuple[int, Any]] = []
        end = start
        for row, values, stop in _frames(path, data, start):
            for value in values:
                requests.append((row, value))
                row += len(value["rows"])
            end = stop
        torn = len(data) - end
        descriptor = os.open(path, os.O_RDWR)
        if torn:
            os.ftruncate(descriptor, end)
            os.fsync(descriptor)
        os.lseek(descriptor, end, os.SEEK_SET)
        return cls(descriptor, identity, end), requests, torn

    def append(self, row: int, requests: Sequence[bytes]) -> None:
        """One frame of requests, of which the first begins behind `row`; on the disk when this returns.

        Raises OSError if the system refuses; the log is then as it was before.
        """
        body = b"".join(LENGTH.pack(len(request)) + request for request in requests)
        covered = COVERED.pack(row, len(requests))
        frame = FRAME.pack(len(body), zlib.crc32(body, zlib.crc32(covered)), row, len(requests)) + body
        if self._is_torn:
            self._cut()
        try:
            write_all(self._file, frame)
            _sync(self._file)
        except OSError:
            # What was written, or half written, is not acknowledged: the next frame must not come behind it.
            self._is_torn = True
            self._cut()
            raise
        self.n_bytes += len(frame)

    def _cut(self) -> None:
        os.ftruncate(self._file, self.n_bytes)
        os.lseek(self._file, self.n_bytes, os.SEEK_SET)
        self._is_torn = False

    def close(self) -> None:
        """Gives the file back; everything in it is on the disk already."""
        os.close(self._file)


def _read_header(path: str, data: bytes) -> tuple[str, int]:
    """(identity of the model, where the frames begin)."""
    stop = data.find(b"\n", len(MAGIC)) + 1
    try:
        if not data.startswith(MAGIC) or not stop:
            raise ValueError
        header = orjson.loads(data[len(MAGIC) : stop])
        int(header["first"])
        return str(header["model"]), stop
    except (ValueError, KeyError, TypeError):
        raise DataError(f"{path} is not a log of learned rows; choose another --log directory") from None


def _frames(path: str, data: bytes, at: int) -> Iterator[tuple[int, list[Any], int]]:
    """(row before it, requests, where it ends) of each whole frame; stops at a torn one at the end."""
    while at < len(data):
        values, stop, row = _frame(data, at)
        if values is None:
            if stop < len(data):  # a whole frame that is damaged, with more behind it: no crash leaves that
                raise DataError(
                    f"{path} is damaged at byte {at}, before its last record; restore the file from a copy, or move "
                    "the --log directory away to start again from the model"
                )
            return
        yield row, values, stop
        at = stop


def _frame(data: bytes, at: int) -> tuple[list[Any] | None, int, int]:
    """(requests or None, where the frame ends as far as it is known, row before it)."""
    if at + FRAME.size > len(data):
        return None, len(data), 0
    length, checksum, row, n_requests = FRAME.unpack_from(data, at)
    start, stop = at + FRAME.size, at + FRAME.size + length
    if stop > len(data):
        return None, len(data), 0
    body = data[start:stop]
    if zlib.crc32(body, zlib.crc32(COVERED.pack(row, n_requests))) != checksum:
        # Zeros to the end are blocks that the file system had reserved and not yet written.
        return None, len(data) if not any(data[at:]) else stop, 0
    values, place = [], 0
    for _ in range(n_requests):
        (size,) = LENGTH.unpack_from(body, place)
        place += LENGTH.size
        values.append(orjson.loads(body[place : place + size]))
        place += size
    return values, stop, row


def write_all(descriptor: int, data: bytes) -> None:
    """Writes all bytes, however few the system takes at a time."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def _sync(descriptor: int) -> None:
    """Waits until data and length are on the disk."""
    if hasattr(os, "fdatasync"):
        os.fdatasync(descriptor)
    else:
        os.fsync(descriptor)


def sync_directory(directory: str) -> None:
    """Makes new names survive a power cut, where the system can."""
    with contextlib.suppress(OSError):
        descriptor = os.open(directory or ".", os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
