"""Lloyd's algorithm: each row goes to its nearest centre, each centre to the mean of its rows, until nothing moves.

Minimises Σ w |x - c(x)|². Rows whose bounds show that their label stays are not measured (Hamerly 2010), and only
centres whose rows have changed are computed; both change no bit of the result. Each centre is the sum of its rows in
their order, so neither does the number of threads. A cluster that loses all rows takes over the row that lies farthest
from its centre (of rows that do not stand alone); if no row lies off its centre, the cluster stays empty where it is.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from steepest import kernels
from steepest.data.chunk import Array, Chunk
from steepest.learners.centres import Centres, refuse_row
from steepest.learners.kmeans_start import weights_of

Record = dict[str, object]


@dataclass(slots=True)
class Clustering:
    """What a run found; `mass` is the weight of each cluster, `measured` the rows measured over all iterations."""

    centres: Centres
    labels: Array
    squares: Array
    inertia: float
    mass: Array
    records: list[Record]
    converged: bool
    measured: int


class Lloyd:
    """One run over rows in memory (a packed chunk)."""

    def __init__(self, rows: Chunk, start: Centres, *, n_threads: int = 1, use_bounds: bool = True) -> None:
        self.rows, self.centres, self.n_threads, self.use_bounds = rows, start, n_threads, use_bounds
        k, n = start.k, rows.n_rows
        self.weight = weights_of(rows)
        self.row_norm = squared_lengths(rows)
        self.spread = float(self.weight @ self.row_norm)
        self.labels = np.full(n, -1, np.int32)
        self.upper, self.lower = np.zeros(n), np.zeros(n)
        self.drift, self.mass = np.zeros(k), np.zeros(k)
        self.square = start.norm[:k].astype(np.float64)
        self.measured = 0

    def run(self, epochs: int, tol: float, tell: Callable[[Record], None] = lambda record: None) -> Clustering:
        """Iterates until no label changes, the mean loss improves by at most its share `tol`, or `epochs` are done."""
        records: list[Record] = []
        before, converged = math.inf, False
        total = float(self.weight.sum())
        while len(records) < epochs and not converged:
            started, old, measured = time.perf_counter(), self.labels.copy(), self.measured
            if not self._label() and records:
                converged = True
                break
            self._fill_empty_clusters()
            self._move(old)
            loss = max(0.0, self.spread - float(self.mass @ self.square)) / total
            seconds = time.perf_counter() - started
            records.append(self._record(len(records) + 1, loss, seconds, self.measured - measured))
            tell(records[-1])
            converged = before - loss <= tol * before and tol > 0 and math.isfinite(before)
            before = loss
        labels, squares = self.centres.nearest(self.rows, self.n_threads)
        inertia = float(self.weight @ squares)
        return Clustering(self.centres, labels, squares, inertia, self.mass, records, converged, self.measured)

    def _record(self, epoch: int, loss: float, seconds: float, measured: int) -> Record:
        return {
            "epoch": epoch,
            "rows": self.rows.n_rows,
            "loss": loss,
            "objective": loss,
            "eta": 1.0,
            "nonzeros": int(np.count_nonzero(self.centres.table)),
            "measured": measured,
            "seconds": seconds,
            "rows_per_second": self.rows.n_rows / seconds if seconds > 0 else math.nan,
        }

    def _label(self) -> int:
        """Labels every row; how many labels are new."""
        rows, centres = self.rows, self.centres
        if not self.use_bounds:
            self.labels.fill(-1) if not self.measured else None
            done, measured, changed = kernels.kmeans_nearest(
                rows.indptr,
                rows.indices,
                rows.values,
                None,
                centres.table,
                centres.scale,
                centres.norm,
                centres.k,
                self.labels,
                None,
                self.n_threads,
            )
        else:
            done, measured, changed = kernels.kmeans_nearest_bounded(
                rows.indptr,
                rows.indices,
                rows.values,
                centres.table,
                centres.scale,
                centres.norm,
                self.drift * (1 + 1e-9),
                self.labels,
                self.upper,
                self.lower,
                self.row_norm,
                self.n_threads,
            )
        if done < rows.n_rows:
            refuse_row(rows, done, len(centres.table))
        self.measured += measured
        return changed

    def _fill_empty_clusters(self) -> None:
        sizes = np.bincount(self.labels, self.weight > 0, minlength=self.centres.k)
        empty = np.flatnonzero(sizes == 0)
        if not len(empty):
            return
        _, squares = self.centres.nearest(self.rows, self.n_threads)
        squares[self.weight == 0] = 0.0
        farthest = iter(np.argsort(-squares, kind="stable"))
        for c in empty.tolist():
            for i in farthest:
                if squares[i] <= 0:
                    return
                if sizes[self.labels[i]] > 1:
                    sizes[self.labels[i]] -= 1
                    self.labels[i] = c
                    self.lower[i] = -math.inf  # its bounds speak of the old centre
                    break

    def _move(self, old: Array) -> None:
        """Moves the centres whose rows have changed."""
        rows, k = self.rows, self.centres.k
        moved = old != self.labels
        touched = np.zeros(k, bool)
        touched[self.labels[moved]] = True
        touched[old[moved & (old >= 0)]] = True
        small = self.labels.astype(np.uint16) if k <= 1 << 16 else self.labels  # 16 bits are sorted by radix
        members = np.argsort(small, kind="stable")
        starts = np.zeros(k + 1, np.int64)
        np.cumsum(np.bincount(self.labels, minlength=k), out=starts[1:])
        self.drift = np.zeros(k)
        kernels.kmeans_means(
            rows.indptr,
            rows.indices,
            rows.values,
            rows.weight,
            members,
            starts,
            np.flatnonzero(touched),
            self.centres.table,
            self.mass,
            self.square,
            self.drift,
            self.n_threads,
        )
        self.centres.norm[:k] = self.square


def squared_lengths(rows: Chunk) -> Array:
    """|x|² of each row of a packed chunk."""
    lengths = np.diff(rows.indptr)
    sums = np.zeros(rows.n_rows)
    full = np.flatnonzero(lengths)
    if len(full):
        values = rows.values[rows.indptr[0] : rows.indptr[-1]].astype(np.float64)
        sums[full] = np.add.reduceat(values * values, rows.indptr[full] - rows.indptr[0])
    return sums
