"""CRC-32 of large files: by ISA-L where it is installed, which is limited by memory alone, else by zlib."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from functools import cache
from typing import Any


def crc32(data: Any, value: int = 0) -> int:
    """The checksum of some more bytes behind those whose checksum is `value`; the same number from both libraries."""
    return int(_fastest()(data, value))


@cache  # a search for a module that is missing takes as long as the checksum of a megabyte
def _fastest() -> Callable[..., int]:
    try:
        from isal.isal_zlib import crc32 as fast
    except ImportError:
        return zlib.crc32
    found: Callable[..., int] = fast
    return found
