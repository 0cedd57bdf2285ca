"""The file of stored rows: named arrays, one after the other, and a JSON header that says what they are.

Layout, little-endian: an opening of 64 bytes (magic, place and length of the header, CRC-32 of the header, CRC-32 of
the opening so far, zeros), the arrays, each from a multiple of 64 bytes on, the header, and a closing mark.
The header holds the format's version, what the writer was given, and type, shape, place and CRC-32 of every array.
Invariant: what is damaged is never given out.
The opening, the header and all sizes are checked each time, the arrays once per process: that reads them all.
Left out: compression, other byte orders, appending.
"""

from __future__ import annotations

import contextlib
import json
import math
import mmap
import os
import shutil
import stat
import struct
import tempfile
import zlib
from collections.abc import Iterator
from typing import IO, Any

import numpy as np

from steepest import atomic
from steepest.data.chunk import Array
from steepest.data.files.blocks import map_ahead
from steepest.data.files.checksum import crc32
from steepest.data.files.remote import open_bytes
from steepest.errors import DataError

FORMAT_VERSION = 3

MAGIC, _CLOSING = b"steepC\r\n", b"\r\nCpeets"
_OPENING = struct.Struct("<8sQQI")
_ALIGNMENT = 64  # a cache line; the opening takes as much
_PIECE_BYTES = 1 << 20
_TYPES = ("<f4", "<f8", "<i4", "<i8", "|u1", "<u4", "<u8")
_verified: set[tuple[int, ...]] = set()  # files whose arrays this process has checked or written


class UnusableError(Exception):
    """A cache file that must be built again; the message is the end of a sentence that begins with its name."""


# -------------------------------------------------------------------------------------------------------- reading


def read(path: str) -> tuple[dict[str, Any], dict[str, Array]]:
    """The header and the mapped arrays; FileNotFoundError if there is no file, UnusableError if it is damaged."""
    try:
        with open_bytes(path) as file:
            return _read(file, path)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise DataError(
            f"the cache {path} cannot be read ({error.strerror}); check its permissions or choose another name"
        ) from error


def is_row_file(path: str) -> bool:
    """Whether a file begins like one of stored rows."""
    try:
        with open(path, "rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except OSError:
        return False


def _read(file: IO[bytes], path: str) -> tuple[dict[str, Any], dict[str, Array]]:
    status = os.fstat(file.fileno())
    if not stat.S_ISREG(status.st_mode):
        raise DataError(f"{path} is not a file; choose another name for the cache")
    if status.st_size < len(MAGIC) and MAGIC.startswith(file.read(len(MAGIC))):
        raise UnusableError("was cut short")
    content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    if content[: len(MAGIC)] != MAGIC and content[-len(_CLOSING) :] != _CLOSING:
        # Somebody's data or model, perhaps: it is not ours to overwrite.
        raise DataError(f"{path} exists and is not a cache; choose another name for the cache, or remove that file")
    try:
        header = _header(content)
        arrays = {name: _view(content, entry) for name, entry in header["arrays"].items()}
        identity = _identity(status)
        if identity not in _verified:
            _check_arrays(file, header["arrays"], arrays)
            _verified.add(identity)
    except (KeyError, TypeError, ValueError, AttributeError, struct.error, RecursionError) as error:
        raise UnusableError(f"is damaged ({type(error).__name__})") from None
    return header, arrays


def _identity(status: os.stat_result) -> tuple[int, ...]:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def _header(content: mmap.mmap) -> dict[str, Any]:
    if len(content) < _ALIGNMENT:
        raise UnusableError("was cut short")
    magic, place, n_bytes, crc = _OPENING.unpack_from(content)
    (opening_crc,) = struct.unpack_from("<I", content, _OPENING.size)
    if magic != MAGIC or zlib.crc32(content[: _OPENING.size]) != opening_crc:
        raise UnusableError("is damaged (its first bytes)")
    if place + n_bytes + len(_CLOSING) != len(content) or content[-len(_CLOSING) :] != _CLOSING:
        raise UnusableError("was cut short or has grown")
    text = content[place : place + n_bytes]
    if zlib.crc32(text) != crc:
        raise UnusableError("is damaged (its header)")
    header = json.loads(text)
    if header["format_version"] != FORMAT_VERSION:
        raise UnusableError("was written by another version of steepest")
    return dict(header)


def _view(content: mmap.mmap, entry: dict[str, Any]) -> Array:
    if entry["dtype"] not in _TYPES or entry["place"] % _ALIGNMENT:
        raise ValueError
    shape = [int(n) for n in entry["shape"]]
    dtype = np.dtype(entry["dtype"])
    if min(shape) == 0:
        return np.empty(shape, dtype)
    return np.frombuffer(content, dtype, math.prod(shape), entry["place"]).reshape(shape)


def _check_arrays(file: IO[bytes], entries: dict[str, Any], arrays: dict[str, Array]) -> None:
    """Checks the arrays' checksums, with a thread each for indices and values, which are nearly all of the file."""

    def fits(name: str) -> bool:
        return bool(_crc_of_file(file, int(entries[name]["place"]), arrays[name].nbytes) == entries[name]["crc32"])

    found = map_ahead(fits, iter(entries), threads=2 if hasattr(os, "pread") else 1)
    for name, fit in zip(entries, found, strict=True):
        if not fit:
            raise UnusableError(f"is damaged (the checksum of {name} does not fit)")


def _crc_of_file(file: IO[bytes], place: int, n_bytes: int) -> int:
    """The checksum of a file, which is read, not mapped: its pages need not stay in the address space."""
    crc, end = 0, place + n_bytes
    while place < end and (piece := _read_at(file, place, min(end - place, _PIECE_BYTES))):
        crc = crc32(piece, crc)
        place += len(piece)
    return crc


def _read_at(file: IO[bytes], place: int, n_bytes: int) -> bytes:
    if hasattr(os, "pread"):  # threads do not share a position
        return os.pread(file.fileno(), n_bytes, place)
    file.seek(place)
    return file.read(n_bytes)


# -------------------------------------------------------------------------------------------------------- writing


@contextlib.contextmanager
def writing(path: str) -> Iterator[Writer]:
    """A context with a writer; the file appears under its name once it is complete, and not at all after an error."""
    with atomic.writing(path, "the cache ") as file:
        writer = Writer(file)
        try:
            yield writer
        finally:
            writer.close()


class Writer:
    """Writes arrays that grow in parallel: the first one to the file itself, the others to unnamed temporary files."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._columns: dict[str, _Column] = {}

    def append(self, name: str, array: Array, dtype: str) -> None:
        """Appends elements, or rows, to an array."""
        column = self._columns.get(name)
        if column is None:
            column = self._columns[name] = self._new_column(dtype, array.shape[1:])
        column.append(array)

    def _new_column(self, dtype: str, row_shape: tuple[int, ...]) -> _Column:
        if self._columns:
            return _Column(tempfile.TemporaryFile(dir=os.path.dirname(self._file.name)), dtype, row_shape)
        self._file.write(bytes(_ALIGNMENT))  # the opening's place; zeros are not a valid opening
        return _Column(self._file, dtype, row_shape)

    def finish(self, header: dict[str, Any]) -> None:
        """Copies the temporary parts into the file and writes the header."""
        entries = {name: self._place(column) for name, column in self._columns.items()}
        whole = {**header, "format_version": FORMAT_VERSION, "arrays": entries}
        text = json.dumps(whole, sort_keys=True, separators=(",", ":")).encode()
        place = self._align()
        self._file.write(text + _CLOSING)
        opening = _OPENING.pack(MAGIC, place, len(text), zlib.crc32(text))
        self._file.seek(0)
        self._file.write(opening + struct.pack("<I", zlib.crc32(opening)))
        self._file.flush()
        _verified.add(_identity(os.fstat(self._file.fileno())))

    def _place(self, column: _Column) -> dict[str, Any]:
        place = _ALIGNMENT
        if column.file is not self._file:
            place = self._align()
            column.file.seek(0)
            shutil.copyfileobj(column.file, self._file, _PIECE_BYTES)
            column.file.close()  # its room on the disk is free again
        return {"dtype": column.dtype, "shape": [column.n, *column.row_shape], "place": place, "crc32": column.crc}

    def _align(self) -> int:
        place = self._file.tell()
        padding = -place % _ALIGNMENT
        self._file.write(bytes(padding))
        return place + padding

    def close(self) -> None:
        """Removes the temporary files."""
        for column in self._columns.values():
            if column.file is not self._file:
                with contextlib.suppress(OSError):  # what a full disk did not take is still in a buffer
                    column.file.close()


class _Column:
    """An array that is being written."""

    def __init__(self, file: IO[bytes], dtype: str, row_shape: tuple[int, ...]) -> None:
        self.file = file
        self.dtype = dtype
        self.row_shape = row_shape
        self.n = 0
        self.crc = 0

    def append(self, array: Array) -> None:
        if array.shape[1:] != self.row_shape:
            raise DataError(f"targets have {array.shape[1:]} columns after {self.row_shape}; keep their number")
        data = np.ascontiguousarray(array, self.dtype).reshape(-1).view(np.uint8)
        self.file.write(data.data)
        self.crc = crc32(data.data, self.crc)
        self.n += len(array)
