"""Centres of clusters as the kernels take them: a table feature by feature, a scale and a squared length for each.

Centre c is scale[c] · table[:, c]; columns are padded to whole vectors. Searches take chunks as they are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from steepest import kernels
from steepest.data.chunk import Array, Chunk
from steepest.errors import DataError
from steepest.learners.targets import refuse_bad_row

LARGEST_TABLE_BYTES = 1 << 34


def new_table(n_features: int, k: int) -> Array:
    """Zeros for k centres; refuses what no memory holds."""
    stride = -(-k // kernels.kmeans_lanes) * kernels.kmeans_lanes
    if n_features * stride * 4 > LARGEST_TABLE_BYTES:
        raise DataError(
            f"{k} centres of {n_features:,} features take {n_features * stride * 4 / 2**30:.0f} GB; "
            "hash to fewer bits or ask for fewer clusters"
        )
    return np.zeros((n_features, stride), np.float32)


@dataclass(slots=True)
class Centres:
    """K centres that rows can be compared with."""

    table: Array
    scale: Array
    norm: Array
    k: int

    @classmethod
    def of(cls, table: Array, k: int, scale: Array | None = None, squares: Array | None = None) -> Centres:
        """Centres scale[c] · table[:, c]; `squares` are the squared lengths of the table's columns, if known."""
        stride = table.shape[1]
        if squares is None:
            squares = np.einsum("jc,jc->c", table[:, :k], table[:, :k], dtype=np.float64)
        whole_scale, norm = np.ones(stride, np.float32), np.zeros(stride, np.float32)
        if scale is not None:
            whole_scale[:k] = np.minimum(scale, np.finfo(np.float32).max)  # of centres that weigh next to nothing
        # A centre so long that float32 cannot hold its square is then nearest to no row, and the search says so.
        with np.errstate(over="ignore"):
            norm[:k] = squares if scale is None else squares * scale**2
        return cls(table, whole_scale, norm, k)

    @classmethod
    def from_array(cls, rows: Array) -> Centres:
        """Centres given as a (k, d) array."""
        table = new_table(rows.shape[1], len(rows))
        table[:, : len(rows)] = rows.T
        return cls.of(table, len(rows))

    @classmethod
    def from_rows(cls, rows: Chunk, picks: Array) -> Centres:
        """Centres made of some rows of a packed chunk."""
        table = new_table(rows.n_features, len(picks))
        for c, i in enumerate(picks.tolist()):
            entries = slice(rows.indptr[i], rows.indptr[i + 1])
            np.add.at(table[:, c], rows.indices[entries], rows.values[entries])
        return cls.of(table, len(picks))

    def as_array(self) -> Array:
        """The centres, shape (k, d)."""
        return np.ascontiguousarray(self.table[:, : self.k].T * self.scale[: self.k, None])

    def native(self) -> kernels.KMeansCentres:
        """The centres as the kernels take them."""
        return kernels.KMeansCentres(self.table, self.scale, self.norm, self.k)

    def nearest(self, rows: Chunk, n_threads: int = 1) -> tuple[Array, Array]:
        """(number of the nearest centre, squared distance to it) of each row visited."""
        labels, squares = np.full(rows.n_rows, -1, np.int32), np.zeros(rows.n_rows)
        self.label(rows, labels, squares, None, n_threads)
        return labels, squares

    def label(
        self, rows: Chunk, labels: Array, squares: Array | None, bounds: Any = None, n_threads: int = 1
    ) -> tuple[int, int]:
        """Sets the numbers of the nearest centres, and the squared distances to them; (rows measured, new labels)."""
        rows_native, centres = rows.as_rows(), self.native()
        done, measured, changed = kernels.kmeans_nearest(rows_native, centres, labels, squares, bounds, n_threads)
        if done < rows.n_rows:
            refuse_row(rows, done, len(self.table))
        return measured, changed

    def squares(self, rows: Chunk, n_threads: int = 1) -> Array:
        """Squared distances, shape (rows, k)."""
        out = np.zeros((rows.n_rows, self.k))
        done = kernels.kmeans_distances(rows.as_rows(), self.native(), out, n_threads)
        if done == rows.n_rows and not np.isfinite(out).all():
            done = int(np.flatnonzero(~np.isfinite(out).all(axis=1))[0])
        if done < rows.n_rows:
            refuse_row(rows, done, len(self.table))
        return out


def refuse_row(rows: Chunk, visit: int, n_features: int) -> None:
    """Raises with the reason why a row has no nearest centre."""
    refuse_bad_row(rows, visit, n_features)
    name = f"row {int(rows.row_ids[visit])}"
    raise DataError(f"{name} is too far from every centre for float32; scale the features to about one")
