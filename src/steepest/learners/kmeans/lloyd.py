"""Lloyd's algorithm: each row goes to its nearest centre, each centre to the mean of its rows, until nothing moves.

Minimises Σ w |x - c(x)|². Rows whose bounds show that their label stays are not measured (Hamerly 2010), and only
centres whose rows have changed are computed; results are bit-identical with and without both. Each centre is the sum of
its rows in their order, so results do not depend on the number of threads either. A cluster that loses all rows takes
over the row that lies farthest from its centre (of rows that are not alone); if no row lies off its centre, the cluster
stays empty where it is.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from steepest import kernels
from steepest.data.chunk import Array, Chunk
from steepest.learners.kmeans.centres import Centres
from steepest.learners.kmeans.kmeans_start import weights_of

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
    """One run of Lloyd's algorithm over rows in memory (a packed chunk)."""

    def __init__(
        self,
        rows: Chunk,
        start: Centres,
        *,
        n_threads: int = 1,
        use_bounds: bool = True,
        squares: Array | None = None,  # |x|² of each row, if known
    ) -> None:
        self.rows, self.centres, self.n_threads, self.use_bounds = rows, start, n_threads, use_bounds
        k, n = start.k, rows.n_rows
        self.n_rows, self.weight = n, weights_of(rows)
        self.row_norm = squared_lengths(rows) if squares is None else squares
        self.spread, self.total = float(self.weight @ self.row_norm), float(self.weight.sum())
        self.labels = np.full(n, -1, np.int32)
        self.upper, self.lower = np.zeros(n), np.zeros(n)
        self.drift, self.mass = np.zeros(k), np.zeros(k)
        self.square = start.norm[:k].astype(np.float64)
        self.measured = 0

    def run(self, epochs: int, tol: float, report: Callable[[Record], None] = lambda record: None) -> Clustering:
        """Iterates until no label changes, the mean loss improves by at most its share `tol`, or `epochs` are done."""
        records: list[Record] = []
        before, converged = math.inf, False
        while len(records) < epochs and not converged:
            started, measured = time.perf_counter(), self.measured
            if not self.iterate() and records:
                converged = True
                break
            loss = max(0.0, self.spread - float(self.mass @ self.square)) / self.total
            seconds = time.perf_counter() - started
            records.append(self.record(len(records) + 1, loss, seconds, self.measured - measured))
            report(records[-1])
            converged = before - loss <= tol * before and tol > 0 and math.isfinite(before)
            before = loss
        labels, squares, inertia = self.assign()
        return Clustering(self.centres, labels, squares, inertia, self.mass, records, converged, self.measured)

    def iterate(self) -> bool:
        """Labels all rows and moves the centres; returns whether anything has changed."""
        old = self.labels.copy()
        changed = self.label() > 0
        if changed:
            self._fill_empty_clusters()
            self.move(old)
        return changed

    def assign(self) -> tuple[Array, Array, float]:
        """(label, squared distance) of each row, and the inertia."""
        labels, squares = self.centres.nearest(self.rows, self.n_threads)
        return labels, squares, float(self.weight @ squares)

    def record(self, epoch: int, loss: float, seconds: float, measured: int) -> Record:
        """The record of an iteration for the history."""
        return {
            "epoch": epoch,
            "rows": self.n_rows,
            "loss": loss,
            "objective": loss,
            "eta": 1.0,
            "nonzeros": int(np.count_nonzero(self.centres.table)),
            "measured": measured,
            "seconds": seconds,
            "rows_per_second": self.n_rows / seconds if seconds > 0 else math.nan,
        }

    def label(self) -> int:
        """Labels every row; returns how many labels have changed."""
        rows, centres = self.rows, self.centres
        bounds = (self.upper, self.lower, self.row_norm, self.drift * (1 + 1e-9)) if self.use_bounds else None
        measured, changed = centres.label(rows, self.labels, None, bounds, self.n_threads)
        self.measured += measured
        return changed

    def _fill_empty_clusters(self) -> None:
        sizes = np.bincount(self.labels, self.weight > 0, minlength=self.centres.k)
        if sizes.all():
            return
        _, squares = self.centres.nearest(self.rows, self.n_threads)
        squares[self.weight == 0] = 0.0
        for i, c in rows_for_empty_clusters(squares, self.labels, sizes):
            self.labels[i] = c
            self.lower[i] = -math.inf  # its bounds are about the old centre

    def move(self, old: Array) -> None:
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
            rows.visit(members).as_rows(),
            starts,
            np.flatnonzero(touched),
            self.centres.table,
            self.mass,
            self.square,
            self.drift,
            self.n_threads,
        )
        self.centres.norm[:k] = self.square


def rows_for_empty_clusters(squares: Array, labels: Array, sizes: Array) -> Iterator[tuple[int, int]]:
    """(row, cluster): each empty cluster gets the row farthest from its centre, of those that are not alone there."""
    sizes, farthest = sizes.copy(), iter(np.argsort(-squares, kind="stable").tolist())
    for c in np.flatnonzero(sizes == 0).tolist():
        for i in farthest:
            if squares[i] <= 0:
                return
            if sizes[labels[i]] > 1:
                sizes[labels[i]] -= 1
                yield i, c
                break


def squared_lengths(rows: Chunk) -> Array:
    """|x|² of each row of a packed chunk."""
    lengths = np.diff(rows.indptr)
    sums = np.zeros(rows.n_rows)
    full = np.flatnonzero(lengths)
    if len(full):
        values = rows.values[rows.indptr[0] : rows.indptr[-1]].astype(np.float64)
        sums[full] = np.add.reduceat(values * values, rows.indptr[full] - rows.indptr[0])
    return sums
