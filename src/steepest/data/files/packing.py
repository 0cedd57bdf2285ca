"""Packed text: gzip, bzip2 and zstd, read by their first bytes and written by the endings of names."""

from __future__ import annotations

import bz2
import gzip
import re
import zlib
from collections.abc import Iterator
from contextlib import nullcontext
from typing import IO, Any

from steepest.errors import DataError

# Taken from a stream at once.
_PIECE_BYTES = 1 << 18
# Packed bytes taken at once.
_PACKED_BYTES = 1 << 16
# zstd unpacks what it is given in one go; repeated bytes may grow thirty-thousandfold.
_ZSTD_PIECE_BYTES = 1 << 12

_FIRST_BYTES = {
    "gz": re.compile(rb"\x1f\x8b\x08"),
    "bz2": re.compile(rb"BZh[1-9](1AY&SY|\x17rE8P\x90)"),
    "zst": re.compile(rb"\x28\xb5\x2f\xfd"),
}
LONGEST_MARK = 10  # that `packing_of` needs
COMPRESSED = (".gz", ".zst", ".bz2")  # endings of names; files are read by their first bytes, and written by these


def packing_of(start: bytes) -> str:
    """How a file is packed that starts so; "" if it is not."""
    return next((packing for packing, magic in _FIRST_BYTES.items() if magic.match(start)), "")


def unpacked(raw: Any, packing: str, name: str) -> Iterator[bytes]:
    """The bytes that a stream holds, in pieces of any size; raises OSError, EOFError or zlib.error if it is damaged."""
    if packing == "zst":
        return _unpack_zstd(raw, name)
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


def _unpack_zstd(raw: Any, name: str) -> Iterator[bytes]:
    zstandard = _zstandard(name)
    unpacker = None
    packed = b""
    while packed := packed or raw.read(_ZSTD_PIECE_BYTES):
        unpacker = unpacker or zstandard.ZstdDecompressor().decompressobj()
        try:
            piece = unpacker.decompress(packed)
        except zstandard.ZstdError as error:
            raise OSError(str(error)) from None
        packed = b""
        if unpacker.eof:  # another frame may follow
            packed, unpacker = unpacker.unused_data, None
        if piece:
            yield piece
    if unpacker is not None:
        raise EOFError


def packed(raw: IO[bytes], path: str) -> Any:
    """A context in which what is written goes to the stream, packed as the ending of the name says."""
    if path.endswith(".gz"):
        return gzip.GzipFile("", "wb", 6, raw, mtime=0)  # the same bytes whenever it is written
    if path.endswith(".bz2"):
        return bz2.BZ2File(raw, "wb")
    if path.endswith(".zst"):
        return _zstandard(path).ZstdCompressor().stream_writer(raw, closefd=False)
    return nullcontext(raw)


def _zstandard(name: str) -> Any:
    try:
        import zstandard
    except ImportError:
        raise DataError(
            f"{name} is packed by zstd, which needs one more module; pip install steepest[zst], or pack it by gzip"
        ) from None
    return zstandard
