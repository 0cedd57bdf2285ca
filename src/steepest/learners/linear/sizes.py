"""Sizes of features: a centre and a scale under the weights, so that columns of any size are learned alike.

The learner moves u on rows z = (x - centre) / scale, and shows w = u / scale and b - Σ w centre, so that w·x + b is the
score that u gives z: a column times a constant gives the same predictions. Only rows of which a quarter or more of the
cells are filled have sizes: the values of sparse rows (words, categories) carry a weight of their own, such as tf-idf,
and centring would fill them in.

Invariant: sizes are found once, from rows that do not depend on chunks, and never change.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from steepest.data.chunk import Array, Chunk
from steepest.learners.base import State

DENSE_SHARE = 0.25  # of filled cells, from which on rows count as dense
MOST_COLUMNS = 1 << 14  # more are hardly a table of numbers, and would be filled in


@dataclass(frozen=True, slots=True)
class Sizes:
    """The centre and the scale of every feature."""

    centre: Array
    scale: Array

    @classmethod
    def of(cls, chunks: Iterable[Chunk], *, centred: bool) -> Sizes | None:
        """Measures mean and standard deviation (or 0 and root mean square) on these rows; None if they are sparse."""
        n_rows = n_entries = 0
        total = square = np.zeros(0)
        for chunk in chunks:
            rows = chunk.packed()
            n_rows, n_entries = n_rows + rows.n_rows, n_entries + len(rows.indices)
            if rows.n_features > MOST_COLUMNS or n_entries < DENSE_SHARE * n_rows * rows.n_features:
                return None
            if rows.n_features > len(total):
                total, square = (np.pad(sums, (0, rows.n_features - len(sums))) for sums in (total, square))
            values = rows.values.astype(np.float64)
            total = total + np.bincount(rows.indices, values, len(total))
            square = square + np.bincount(rows.indices, values * values, len(square))
        if n_rows == 0:
            return None
        mean, power = total / n_rows, square / n_rows
        centre = mean if centred else np.zeros_like(mean)
        with np.errstate(invalid="ignore", over="ignore"):
            spread = np.sqrt(np.maximum(power - centre * centre, 0))
            usable = np.isfinite(spread) & (spread > 1e-6 * np.sqrt(power))  # else constant, up to rounding
        return cls(np.where(np.isfinite(centre), centre, 0.0), np.where(usable, spread, 1.0))

    @classmethod
    def from_state(cls, state: State) -> Sizes | None:
        """Builds the sizes from the arrays that `state` gave; None if there are none."""
        return cls(np.array(state["centre"]), np.array(state["size"])) if "size" in state else None

    def state(self) -> dict[str, Array]:
        """The sizes as arrays of a learner's state."""
        return {"centre": self.centre, "size": self.scale}

    def applied(self, rows: Chunk) -> Chunk:
        """The visited rows, centred and scaled, with every cell filled."""
        packed = rows.packed()
        n, d = packed.n_rows, packed.n_features
        centre, scale = self._padded(d)
        cells = np.zeros((n, d))
        cells[np.repeat(np.arange(n), np.diff(packed.indptr)), packed.indices] = packed.values
        with np.errstate(over="ignore", invalid="ignore"):
            values = ((cells - centre) / scale).astype(np.float32)
        indices = np.tile(np.arange(d, dtype=np.int32), n)
        return replace(packed, indptr=np.arange(n + 1, dtype=np.int64) * d, indices=indices, values=values.ravel())

    def folded(self, weights: Array, bias: Array) -> tuple[Array, Array]:
        """(weights, biases) converted to the original units of the data; one row per feature."""
        centre, scale = self._padded(len(weights))
        w = weights.astype(np.float64) / scale[:, None]
        return w.astype(weights.dtype), np.asarray(bias - centre @ w)

    def _padded(self, n_features: int) -> tuple[Array, Array]:
        """Centre and scale with entries for features that came later: 0 and 1."""
        more = n_features - len(self.centre)
        if more <= 0:
            return self.centre[:n_features], self.scale[:n_features]
        return np.pad(self.centre, (0, more)), np.pad(self.scale, (0, more), constant_values=1.0)
