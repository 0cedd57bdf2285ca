"""CRC-32 of large files: by ISA-L where it is installed, which is limited by memory alone, else by zlib."""

from __future__ import annotations

import zlib
from typing import Any


def crc32(data: Any, value: int = 0) -> int:
    """The checksum of some more bytes behind those whose checksum is `value`; the same number from both libraries."""
    try:
        from isal.isal_zlib import crc32 as fast
    except ImportError:
        fast = zlib.crc32
    return int(fast(data, value))
