"""Rows of a table in 8-bit numbers: E_j ≈ scale_j codes_j, with a half-precision scale for each row.

The largest number of a row becomes ±127, so that no number is off by more than 1/254 of it. Of a table that must
shrink, those rows stay that can move a score most: by the largest spread of W E_j over the outputs.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from steepest.data.chunk import Array

LARGEST = 127
MOST_OUTPUTS = 256  # looked at to weigh rows


def pack_rows(table: Array) -> dict[str, Array]:
    """Codes and scales."""
    largest = np.abs(table).max(axis=1, initial=0.0)
    scales = np.minimum(largest / LARGEST, np.finfo(np.float16).max).astype(np.float16)
    safe = np.where(scales > 0, scales.astype(np.float32), 1.0)[:, None]
    codes = np.clip(np.rint(table / safe), -LARGEST, LARGEST).astype(np.int8)
    codes[scales == 0] = 0
    return {"codes": codes, "scales": scales}


def unpack_rows(arrays: Mapping[str, Array]) -> Array:
    """The rows, about as they were."""
    codes, scales = arrays["codes"], arrays["scales"]
    if codes.dtype != np.int8 or codes.ndim != 2 or scales.shape != (len(codes),):
        raise ValueError("codes and scales of the rows do not fit each other")
    return np.asarray(codes.astype(np.float32) * scales.astype(np.float32)[:, None])


def bytes_of_rows(n: int, dim: int) -> int:
    """What n rows take in a file: codes, a scale and the number of the feature."""
    return n * (dim + 2 + 4)


def rows_by_weight(table: Array, head: Array, n: int) -> Array:
    """Places of the n rows that move scores most, ascending."""
    if n >= len(table):
        return np.arange(len(table))
    some = head[np.argsort(-np.linalg.norm(head, axis=1), kind="stable")[:MOST_OUTPUTS]]
    weight = np.zeros(len(table), np.float32)
    for start in range(0, len(table), 1 << 16):
        scores = table[start : start + (1 << 16)] @ some.T
        weight[start : start + (1 << 16)] = scores.max(axis=1) - scores.min(axis=1)
    return np.sort(np.argsort(-weight, kind="stable")[:n])
