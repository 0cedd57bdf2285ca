"""Numbers in fewer bits: rows as 32-bit, 16-bit or 8-bit numbers, fewer rows, and counts on a coarse scale.

An 8-bit weight of a linear model is sign(c) (|c| / 127)^2 times the largest of its output: most weights are small, and
even steps would round them to zero. The 64 largest weights are stored exactly beside, under the code -128: they would
be off by most, and the others have finer steps without them. An 8-bit row of embeddings or factors has even steps and a
scale of its own, as in model files. Invariant: `restored` is exactly what the exported program computes from the codes.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from steepest.data.chunk import Array
from steepest.errors import ParameterError
from steepest.export.describe import Scores
from steepest.learners.embedding.quantized import pack_rows, rows_by_weight, unpack_rows

PRECISIONS = ("float32", "float16", "int8")
LEVELS = 256  # of counts, where they are rounded
LARGEST = 127
EXACT, EXACT_CODE = 64, -128  # weights of a linear model that are stored as they are, and the code that says so


@dataclass(frozen=True, slots=True)
class Packed:
    """Rows as they are stored, and what they become again."""

    precision: str
    codes: Array  # float32, uint16 (bits of half precision) or int8
    scales: Array  # float32: one per output of a linear model, one per row of another; none without int8
    restored: Array  # float32
    exact: Array = field(default_factory=lambda: np.zeros(0, np.int64))  # places in `codes`, flat, that hold -128

    @property
    def n_bytes(self) -> int:
        """Returns the bytes of the stored numbers."""
        return int(self.codes.nbytes + self.scales.nbytes + 8 * len(self.exact))


def levels() -> Array:
    """Returns what the 8-bit code c of a linear model stands for, at c + 127: sign(c) (|c| / 127)^2."""
    c = np.arange(-LARGEST, LARGEST + 1, dtype=np.float32)
    return np.asarray(np.sign(c) * (c / LARGEST) ** 2, np.float32)


def pack_weights(rows: Array, precision: str) -> Packed:
    """Stores weights of a linear model, one column per output."""
    if precision != "int8":
        return pack_floats(rows, precision)
    rows = np.asarray(rows, np.float32)
    exact = np.sort(np.argsort(-np.abs(rows).ravel(), kind="stable")[:EXACT])
    others = rows.copy()
    others.ravel()[exact] = 0.0
    scales = np.abs(others).max(axis=0, initial=0.0).astype(np.float32)
    share = np.abs(others) / np.where(scales > 0, scales, 1)
    codes = (np.sign(others) * np.rint(np.sqrt(share) * LARGEST)).astype(np.int8)
    restored = np.asarray(levels()[codes.astype(np.int64) + LARGEST] * scales, np.float32)
    codes.ravel()[exact] = EXACT_CODE
    restored.ravel()[exact] = rows.ravel()[exact]
    return Packed(precision, codes, scales, restored, exact)


def pack_table(rows: Array, precision: str) -> Packed:
    """Stores rows of embeddings or factors."""
    if precision != "int8":
        return pack_floats(rows, precision)
    parts = pack_rows(rows)
    return Packed(precision, parts["codes"], parts["scales"].astype(np.float32), unpack_rows(parts))


def pack_floats(rows: Array, precision: str) -> Packed:
    """Stores the rows as 32-bit or 16-bit numbers."""
    none = np.zeros(0, np.float32)
    if precision == "float32":
        rows = np.asarray(rows, np.float32)
        return Packed(precision, rows, none, rows)
    if precision != "float16":
        raise ParameterError(f"precision={precision!r} is unknown; choose one of {', '.join(PRECISIONS)}")
    half = np.clip(rows, -65504, 65504).astype(np.float16)
    return Packed(precision, half.view(np.uint16), none, half.astype(np.float32))


def reduce_scores(model: Scores, precision: str, keep: int | None = None) -> tuple[Scores, Packed]:
    """Returns (the model that the export computes, its packed rows) with at most `keep` features."""
    if keep is not None:
        model = _pruned(model, keep)
    if precision == "int8" and model.counts is not None:
        model = replace(model, counts=round_counts(model.counts))
    pack = pack_weights if model.head is None else pack_table
    packed = pack(model.rows, precision)
    return replace(model, rows=packed.restored), packed


def _pruned(model: Scores, keep: int) -> Scores:
    """Returns the model with the features that move scores most; the others count as if seen as often as usual."""
    if keep >= len(model.features):
        return model
    if model.head is not None:
        chosen = rows_by_weight(model.rows, model.head, keep)
        return replace(model, features=model.features[chosen], rows=model.rows[chosen])
    worth = np.abs(model.rows).max(axis=1)
    chosen = np.sort(np.argsort(-worth, kind="stable")[:keep])
    if model.counts is None or model.hashing is None:
        return replace(model, features=model.features[chosen], rows=model.rows[chosen])
    left = np.delete(model.counts, chosen).astype(np.float64)
    # A feature of a new row is one of these in proportion to its count, so its usual rarity is weighted by that.
    usual = float(np.exp(np.average(np.log1p(left), weights=np.maximum(left, 1e-9)))) - 1 if len(left) else 0.0
    return replace(
        model,
        features=model.features[chosen],
        rows=model.rows[chosen],
        counts=model.counts[chosen],
        default_count=round(usual),
    )


def round_counts(counts: Array) -> Array:
    """Rounds counts to at most 256 steps that grow with them, so that the rarity is off by little everywhere."""
    known = np.unique(counts)
    if len(known) <= LEVELS:
        return counts
    # From 32 on, steps in proportion to the count; the small ones, where rarity differs most, stay as they are.
    wide = np.geomspace(32, float(known[-1]), LEVELS - 32)
    scale = np.unique(np.concatenate([np.arange(32), np.rint(wide)])).astype(np.int64)
    middle = np.sqrt((scale[:-1] + 1.0) * (scale[1:] + 1.0)) - 1
    return np.asarray(scale[np.searchsorted(middle, counts)], counts.dtype)
