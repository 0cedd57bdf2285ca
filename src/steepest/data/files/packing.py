"""Packed text: gzip, bzip2 and zstd, read by their first bytes and written by the endings of names."""

from __future__ import annotations

import bz2
import gzip
import re
import zlib
from collections.abc import Iterator
from contextlib import nullcontext
from typing import IO, Any

# Taken from a stream at once.
_PIECE_BYTES = 1 << 18
# Packed bytes taken at once.
_PACKED_BYTES = 1 << 16

_FIRST_BYTES = {
    "gz": re.compile(rb"\x1f\x8b\x08"),
    "bz2": re.compile(rb"BZh[1-9](1AY&SY|\x17rE8P\x90)"),
    "zst": re.compile(rb"\x28\xb5\x2f\xfd"),
}
LONGEST_MARK = 10  # that `packing_of` needs
COMPRESSED = (".gz", ".zst", ".bz2")  # endings of names; files are read by their first bytes, and written by these


def packing_of(start: bytes) -> str:
    """The compression of a file that starts with these bytes; "" if there is none."""
    return next((packing for packing, magic in _FIRST_BYTES.items() if magic.match(start)), "")


def unpacked(raw: Any, packing: str) -> Iterator[bytes]:
    """The bytes that a stream holds, in pieces of any size; raises OSError, EOFError or zlib.error if it is damaged."""
    if packing == "zst":
        return _unpack_zstd(raw)
    if packing == "":
        return iter(lambda: raw.read(_PIECE_BYTES), b"")
    if packing == "gz" and (isal := _isal()) is not None:
        return _unpack_isal(raw, isal)
    file: Any = gzip.GzipFile(fileobj=raw) if packing == "gz" else bz2.BZ2File(raw)
    return iter(lambda: file.read1(_PIECE_BYTES), b"")  # all that there is, up to where a file is cut short


def _isal() -> Any:
    """A library that unpacks gzip in a third of the time, if it is there."""
    try:
        from isal import igzip_lib
    except ImportError:
        return None
    return igzip_lib


def _unpack_isal(raw: Any, isal: Any) -> Iterator[bytes]:
    packed = raw.read(_PACKED_BYTES)
    while packed:
        unpacker = isal.IgzipDecompressor(flag=isal.DECOMP_GZIP)
        while not unpacker.eof:
            try:
                piece = unpacker.decompress(packed, _PIECE_BYTES)
            except isal.IsalError as error:
                raise zlib.error(str(error)) from None
            if piece:
                yield piece
            packed = b""
            if unpacker.needs_input and not unpacker.eof:
                packed = raw.read(_PACKED_BYTES)
                if not packed:
                    raise EOFError
        packed = unpacker.unused_data or raw.read(_PACKED_BYTES)  # another part may follow
        while packed and not (packed := packed.lstrip(b"\0")):  # or zeros, which fill up a tape
            packed = raw.read(_PACKED_BYTES)
        if packed and not packed.startswith(b"\x1f\x8b"[: len(packed)]):
            raise gzip.BadGzipFile("other bytes follow the end of what gzip has packed")


def _unpack_zstd(raw: Any) -> Iterator[bytes]:
    """Decompresses zstd with Arrow, which is a dependency: one frame after the other, in bounded pieces."""
    import pyarrow as pa

    with pa.CompressedInputStream(pa.PythonFile(_Unclosed(raw), mode="r"), "zstd") as file:
        try:
            while piece := file.read(_PACKED_BYTES):  # small, since the piece at which a file is cut short is lost
                yield piece
        except OSError as error:
            if "Truncated" in str(error):
                raise EOFError from None
            raise


class _Unclosed:
    """A stream for Arrow, which closes what it was given; the stream belongs to the caller."""

    closed = False

    def __init__(self, raw: Any) -> None:
        self._raw = raw

    def read(self, size: int) -> bytes:
        data: bytes = self._raw.read(size)
        return data

    def write(self, data: Any) -> int:
        written: int = self._raw.write(data)
        return written

    def flush(self) -> None:
        self._raw.flush()

    def close(self) -> None:
        self.closed = True


def packed(raw: IO[bytes], path: str) -> Any:
    """A context in which what is written goes to the stream, packed as the ending of the name says."""
    if path.endswith(".gz"):
        return gzip.GzipFile("", "wb", 6, raw, mtime=0)  # the same bytes whenever it is written
    if path.endswith(".bz2"):
        return bz2.BZ2File(raw, "wb")
    if path.endswith(".zst"):
        import pyarrow as pa

        return pa.CompressedOutputStream(pa.PythonFile(_Unclosed(raw), mode="w"), "zstd")
    return nullcontext(raw)
