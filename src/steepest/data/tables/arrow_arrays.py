"""Arrow's columns as NumPy arrays, read from their buffers.

Arrow's own ways import pandas where it is installed, or a module that wraps each of its compute functions in Python: a
fifth of a second and a twentieth, which is long beside a file of some megabytes. Left out: nested types and views.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import Any

import numpy as np

from steepest.data.chunk import Array
from steepest.errors import DataError
from steepest.kernels import number_texts

_WIDTHS = {"string": np.int32, "binary": np.int32, "large_string": np.int64, "large_binary": np.int64}
_NUMBERS = {f"{sign}int{bits}": np.dtype(f"{sign}int{bits}") for sign in ("", "u") for bits in (8, 16, 32, 64)}
_NUMBERS |= {"halffloat": np.dtype(np.float16), "float": np.dtype(np.float32), "double": np.dtype(np.float64)}

Buffers = tuple[Array, Array, Array | None]  # bytes, where each text starts and the last one ends, which are there


def arrow(part: str = "") -> ModuleType:
    """Pyarrow, or a part of it."""
    try:
        return import_module(f"pyarrow.{part}" if part else "pyarrow")
    except ImportError:
        raise DataError("reading tables needs one more module, pyarrow; pip install pyarrow") from None


def plain_memory() -> Any:
    """Memory of the system for Arrow: its own allocator takes large pages for each size, some 40 MB more in all."""
    return arrow().system_memory_pool()


def is_number(kind: str) -> bool:
    """Whether a type is one of numbers or truth values that `numbers` reads."""
    return kind == "bool" or kind in _NUMBERS


def numbers(column: Any) -> Array | None:
    """A column of numbers or truth values, float64 with NaN if some are missing; None if it is of another type."""
    kind = str(column.type)
    if not is_number(kind):
        return None
    parts = [_chunk_numbers(chunk, _NUMBERS.get(kind)) for chunk in _chunks(column)]
    return parts[0] if len(parts) == 1 else np.concatenate([np.empty(0, parts[0].dtype if parts else float), *parts])


def doubles(column: Any) -> Array:
    """A column of numbers of any kind as float64, with NaN for those that are missing."""
    found = numbers(column)
    if found is None:
        found = numbers(column.cast(arrow().float64(), safe=False))
    assert found is not None
    return np.ascontiguousarray(found, np.float64)


def texts(column: Any) -> Buffers | None:
    """A column of texts, in one piece; None if it is of another type."""
    width = _WIDTHS.get(str(column.type))
    if width is None:
        return None
    parts = [_chunk_texts(chunk, np.dtype(width)) for chunk in _chunks(column) if len(chunk)]
    if not parts:
        return np.zeros(0, np.uint8), np.zeros(1, np.int64), None
    return parts[0] if len(parts) == 1 else _joined(parts)


def coded(column: Any) -> tuple[list[str], Array] | None:
    """The different texts of a column in the order in which they come, and the number of each row's; -1 for none."""
    found = texts(column)
    if found is None:
        return None
    data, bounds, _ = found
    codes, firsts = number_texts(found)
    return [data[bounds[row] : bounds[row + 1]].tobytes().decode() for row in firsts.tolist()], codes


def missing(column: Any) -> Array:
    """Which rows have no value."""
    parts = [~_valid(chunk) if chunk.null_count else np.zeros(len(chunk), bool) for chunk in _chunks(column)]
    return np.concatenate([np.empty(0, bool), *parts])


def _chunks(column: Any) -> list[Any]:
    return list(column.chunks) if hasattr(column, "chunks") else [column]


def _bits(buffer: Any, chunk: Any) -> Array:
    last = chunk.offset + len(chunk)
    return np.unpackbits(np.frombuffer(buffer, np.uint8), count=last, bitorder="little")[chunk.offset :].view(bool)


def _valid(chunk: Any) -> Array:
    return _bits(chunk.buffers()[0], chunk)


def _chunk_numbers(chunk: Any, dtype: np.dtype[Any] | None) -> Array:
    if not len(chunk):
        return np.empty(0, dtype or bool)
    data = chunk.buffers()[1]
    found = _bits(data, chunk) if dtype is None else np.frombuffer(data, dtype)[chunk.offset :][: len(chunk)]
    return np.where(_valid(chunk), found, np.nan).astype(np.float64) if chunk.null_count else found


def _chunk_texts(chunk: Any, width: np.dtype[Any]) -> Buffers:
    _, offsets, data = chunk.buffers()
    bounds = np.frombuffer(offsets, width)[chunk.offset : chunk.offset + len(chunk) + 1]
    bytes_ = np.frombuffer(data, np.uint8) if data and data.size else np.zeros(0, np.uint8)
    return bytes_, bounds, _valid(chunk).view(np.uint8) if chunk.null_count else None


def _joined(parts: list[Buffers]) -> Buffers:
    """One behind the other; places are 64 bits wide, since together they may hold more than 2 GiB."""
    data = np.concatenate([data[bounds[0] : bounds[-1]] for data, bounds, _ in parts])
    bounds, end = [np.zeros(1, np.int64)], 0
    for _, own, _ in parts:
        bounds.append(own[1:].astype(np.int64) + (end - int(own[0])))
        end = int(bounds[-1][-1])
    valid = [np.ones(len(own) - 1, np.uint8) if flags is None else flags for _, own, flags in parts]
    whole = all(flags is None for _, _, flags in parts)
    return data, np.concatenate(bounds), None if whole else np.concatenate(valid)
