"""Mini-batch k-means: stochastic gradients on Σ w |x - c(x)|², with a step of one over the weight a centre has seen.

With those steps a centre is the mean of all rows it ever got, so the state keeps sums and counts: c = sum / count, and
a sparse row changes its own non-zeros only (Bottou and Bengio 1995; Sculley 2010). The first `init_size` rows wait,
are clustered by Lloyd's algorithm from a k-means++ start, and count as seen; after that, rows are labelled a mini-batch
at a time. Each later epoch begins by dividing sums and counts, so that early, worse labels are forgotten.
Invariant: the state after a sequence of rows depends on that sequence only, never on how it was cut into chunks.
A centre that gets no row for long takes the place of the row in the batch that lies farthest from its own centre.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from steepest import kernels
from steepest.data.chunk import Array, Chunk, compact
from steepest.errors import DataError
from steepest.learners.base import Progress, State
from steepest.learners.kmeans.centres import Centres, new_table, refuse_row
from steepest.learners.kmeans.kmeans_start import choose_rows, weights_of
from steepest.learners.kmeans.lloyd import Clustering, Lloyd
from steepest.learners.resumable import Resumable
from steepest.learners.settings import PlainSettings
from steepest.learners.state_check import StateCheck
from steepest.learners.targets import refuse_bad_rows
from steepest.learners.waiting import WaitingRows, finished

# Share of what was seen before that counts on in the next epoch.
MEMORY = 0.05
# Iterations of Lloyd's algorithm on the rows that waited.
START_EPOCHS = 20
START_TOL = 1e-3
# A centre without a row among this many for each cluster is moved.
PATIENT_ROWS = 100


@dataclass(frozen=True, slots=True)
class KMeansSettings(PlainSettings):
    """The choices that make a k-means learner; plain values that are in the model file."""

    k: int = 8
    start: str = "k-means++"  # or "given"
    n_starts: int = 1
    init_size: int = 3072
    batch_size: int = 1024
    seed: int = 0


class KMeansLearner(Resumable):
    """State and step of mini-batch k-means."""

    state_arrays = ("count", "square", "recent")
    state_numbers = ("n_features", "rows_learned", "rows_since_check", "epoch_rows", "started", "holds_sums")

    def __init__(self, settings: KMeansSettings, n_features: int = 0, given: Array | None = None) -> None:
        k = settings.k
        self.settings = settings
        self.n_threads = 1
        self.n_features = n_features
        self.rows_learned = 0
        self.rows_since_check = 0
        self.epoch_rows = 0  # of the first epoch, once it is over
        self.started = False
        self.holds_sums = False  # else the table holds the centres themselves
        self._shown: Centres | None = None
        self.waiting = WaitingRows()
        self.table = new_table(0, k)
        self.count, self.square, self.recent = np.zeros(k), np.zeros(k), np.zeros(k)
        if given is not None:
            self._begin(given.T)

    # ------------------------------------------------------------------------------------------------ the contract

    def step(self, chunk: Chunk) -> Progress:
        """Learns the rows of a chunk, in order; rows that do not fill a batch wait for others."""
        progress = Progress()
        self._shown = None
        self.n_features = max(self.n_features, chunk.n_features)
        for rows in self.waiting.ready(chunk, self._rows_needed, refuse_bad_rows):
            while rows.n_rows >= (taken := self._rows_needed()):
                self._learn(rows.span(0, taken), progress)
                rows = rows.span(taken, rows.n_rows)
            self.waiting.put_back(rows, refuse_bad_rows)
        return progress

    def finish(self) -> Progress:
        """Learns the waiting rows, as if no others were to come."""
        self._shown = None
        return self.waiting.finish(self._learn)

    def scores(self, chunk: Chunk, n_threads: int = 1) -> Array:
        """Minus the squared distances, shape (rows, k): the largest score names the cluster."""
        return -self.shown().squares(chunk, n_threads)

    def losses(self, coded: Chunk) -> tuple[Array, Array]:
        """(squared distance to the nearest centre, weight) of each row visited."""
        return self.shown().nearest(coded, self.n_threads)[1], weights_of(coded)

    def code_for_scoring(self, rows: Chunk) -> Chunk:
        """Returns the rows unchanged: clusters have no targets."""
        return rows

    def weights(self) -> tuple[Array, Array]:
        """(centres of shape (k, features), the weight each has seen)."""
        return self.shown().as_array()[:, : self.n_features], self.finished().count

    def count_nonzero(self) -> int:
        """Coordinates of centres that are not zero."""
        return int(np.count_nonzero(self.weights()[0]))

    def penalty(self) -> float:
        """Returns 0: clusters have no penalty."""
        return 0.0

    @property
    def step_size(self) -> float:
        """One over the mean weight that a centre has seen."""
        return 1.0 / max(1.0, float(self.count.mean()))

    def lower_step(self, factor: float) -> None:
        """Does nothing: the steps of k-means fall with the counts."""

    def keep_good_state(self) -> None:
        """Starts an epoch: older rows count less from now on. k-means cannot diverge, so nothing is copied."""
        self.epoch_rows = self.epoch_rows or self.rows_learned
        self._to_sums()
        self.table *= np.float32(MEMORY)
        self.count *= MEMORY
        self.square *= MEMORY**2
        self._shown = None

    def merge(self, states: Sequence[State]) -> KMeansLearner:
        """Sums added up; each centre of a later state goes to the nearest one of those before it."""
        parts = [KMeansLearner.from_state(self.settings, state).finished() for state in states]
        merged = parts[0].clone()
        for part in parts[1:]:
            merged.grow(part.n_features)
            centres = _as_chunk(part.centres().as_array(), merged.n_features, part.count)
            labels, _ = merged.centres().nearest(centres)
            merged.add_rows(centres, labels)
            merged.rows_learned += part.rows_learned
        return merged

    @property
    def state(self) -> dict[str, Array]:
        """All arrays that were learned or are needed to continue."""
        return super().state | {"table": self.table[: self.n_features]} | self.waiting.state()

    @classmethod
    def check_state(cls, settings: KMeansSettings, state: State) -> None:
        """Raises ValueError unless a learner with these settings could have had this state."""
        check = StateCheck.of(state, cls.state_numbers)
        n, k = check.n_features, settings.k
        rows, width = check.arrays({"table": "f4 rows width"}).values()
        if rows * width and (rows < n or width < k):
            raise ValueError(f"table has the shape {rows}, {width} for {n} features and {k} centres")
        check.arrays(dict.fromkeys(cls.state_arrays, f"f {k if rows * width else 'centres'}"))
        check.waiting(n)

    @classmethod
    def from_state(cls, settings: KMeansSettings, state: State) -> KMeansLearner:
        """Builds a learner from its settings and state."""
        learner = cls(settings)
        learner.restore(state)
        learner.table = np.array(state["table"])
        learner.waiting = WaitingRows.from_state(state, learner.n_features)
        return learner

    @classmethod
    def from_clustering(cls, settings: KMeansSettings, found: Clustering, columns: Array, n_features: int) -> Any:
        """The learner that goes on from what Lloyd's algorithm found, on columns that were numbered anew."""
        learner = cls(settings, n_features)
        learner.grow(n_features)
        learner._adopt(found, columns)
        learner.rows_learned = len(found.labels)
        return learner

    def clone(self) -> KMeansLearner:
        """An independent copy."""
        copy = KMeansLearner.from_state(self.settings, self.state)
        copy.n_threads = self.n_threads
        return copy

    # ------------------------------------------------------------------------------------------- what was learned

    def centres(self) -> Centres:
        """The current centres, without the waiting rows."""
        return Centres.of(self.table, self.settings.k, self._scale(), self.square)

    def shown(self) -> Centres:
        """The centres used for prediction, with the waiting rows learned."""
        if self._shown is None:
            self._shown = self.finished().centres()
        return self._shown

    def finished(self) -> KMeansLearner:
        """This learner if no rows wait, else a copy that has learned them."""
        return finished(self)

    @property
    def can_show(self) -> bool:
        """Whether there are centres, or enough rows to make some."""
        return self.started or self.waiting.n_rows >= self.settings.k

    def _scale(self) -> Array:
        return 1.0 / np.where(self.holds_sums & (self.count > 0), self.count, 1.0)

    def _to_sums(self) -> None:
        if not self.holds_sums:
            self.table[:, : self.settings.k] *= np.where(self.count > 0, self.count, 1.0).astype(np.float32)
            self.holds_sums = True
            self._measure_squares()

    # ---------------------------------------------------------------------------------------------------- the step

    def _rows_needed(self) -> int:
        if not self.started:
            return self.settings.init_size
        most = self.epoch_rows or self.settings.batch_size  # less data than a batch: all of it is one
        return min(self.settings.batch_size, most)

    def _learn(self, rows: Chunk, progress: Progress) -> None:
        self.grow(self.n_features)
        if not self.started:
            refuse_bad_rows(rows)
            self._start(rows.packed(), progress)
        else:
            self._learn_batch(rows, progress)
        self.rows_learned += rows.n_rows

    def _learn_batch(self, rows: Chunk, progress: Progress) -> None:
        labels, squares = self.centres().nearest(rows, self.n_threads)
        weight = weights_of(rows)
        self.add_rows(rows, labels)
        self.recent += np.bincount(labels, weight, minlength=self.settings.k)
        self.rows_since_check += rows.n_rows
        progress.add(Progress(rows.n_rows, float(weight.sum()), float(weight @ squares)))
        if self.rows_since_check >= PATIENT_ROWS * self.settings.k:
            self._move_idle_centres(rows, squares * (weight > 0), progress)

    def add_rows(self, rows: Chunk, labels: Array) -> None:
        """Adds rows to the sums of their clusters."""
        self._to_sums()
        done = kernels.kmeans_add(rows.as_rows(), labels, self.table, self.count, self.square, self.n_threads)
        if done < rows.n_rows:
            refuse_row(rows, done, len(self.table))

    def _move_idle_centres(self, rows: Chunk, squares: Array, progress: Progress) -> None:
        idle = np.flatnonzero(self.recent == 0)
        farthest = np.argsort(-squares, kind="stable")[: len(idle)]
        for c, visit in zip(idle.tolist(), farthest.tolist(), strict=False):
            if squares[visit] > 0:
                self.count[c] = 0.0  # the next row that is added clears what was there
                self.add_rows(rows.span(visit, visit + 1), np.array([c], np.int32))
                progress.events.append(
                    f"cluster {c} had no rows among {self.rows_since_check:,} and was moved to one far from its centre"
                )
        self.recent[:] = 0.0
        self.rows_since_check = 0

    # ------------------------------------------------------------------------------------------------------- the start

    def _start(self, rows: Chunk, progress: Progress) -> None:
        """The best of some starts on the rows that waited, each improved by Lloyd's algorithm."""
        small, columns = compact(rows)
        found = cluster_rows(small, self.settings, START_EPOCHS, START_TOL, self.n_threads)
        self._adopt(found, columns)
        weight = weights_of(rows)
        progress.add(Progress(rows.n_rows, float(weight.sum()), found.inertia))

    def _adopt(self, found: Clustering, columns: Array) -> None:
        """Takes centres and the weight of their rows; `columns` are the features they are about."""
        k = self.settings.k
        self.table[:] = 0.0
        self.table[columns, :k] = found.centres.table[: len(columns), :k]
        self.count = found.mass.copy()
        self.holds_sums, self.started = False, True
        self._measure_squares()

    def _begin(self, start: Array) -> None:
        """Centres given as columns; no row is seen yet."""
        self.n_features = len(start)
        self.grow(self.n_features)
        self.table[: self.n_features, : self.settings.k] = start
        self._measure_squares()
        self.started = True

    def _measure_squares(self) -> None:
        k = self.settings.k
        self.square = np.einsum("jc,jc->c", self.table[:, :k], self.table[:, :k], dtype=np.float64)

    def grow(self, n_features: int) -> None:
        """Room for features that appear for the first time, half as many more than needed when it must be made."""
        have = len(self.table)
        if n_features > have:
            room = n_features if have == 0 else max(n_features, have + have // 2)
            table = new_table(room, self.settings.k)
            table[:have] = self.table
            self.table = table


def cluster_rows(
    rows: Chunk, settings: KMeansSettings, epochs: int, tol: float, n_threads: int = 1, **more: Any
) -> Clustering:
    """The best of `n_starts` runs of Lloyd's algorithm on packed rows, by inertia; the first of equals."""
    if rows.n_rows < settings.k:
        raise DataError(
            f"n_samples={rows.n_rows} should be >= n_clusters={settings.k}: give more rows or ask for fewer clusters"
        )
    best: Clustering | None = None
    for number in range(settings.n_starts):
        generator = np.random.default_rng([settings.seed & 0xFFFFFFFFFFFFFFFF, number])
        start = Centres.from_rows(rows, start_rows(rows, settings, generator, n_threads))
        found = Lloyd(rows, start, n_threads=n_threads).run(epochs, tol, **more)
        if best is None or found.inertia < best.inertia:
            best = found
    assert best is not None
    return best


def start_rows(rows: Chunk, settings: KMeansSettings, generator: np.random.Generator, n_threads: int) -> Array:
    """Rows to begin with, chosen among `init_size` that are drawn by chance if there are more."""
    if rows.n_rows <= settings.init_size:
        return choose_rows(settings.start, rows, settings.k, generator, n_threads)
    drawn = np.sort(generator.choice(rows.n_rows, settings.init_size, replace=False))
    return np.asarray(drawn[choose_rows(settings.start, rows.visit(drawn).packed(), settings.k, generator, n_threads)])


def _as_chunk(rows: Array, n_features: int, weight: Array) -> Chunk:
    """Dense rows as a chunk."""
    kept = rows != 0
    indptr = np.zeros(len(rows) + 1, np.int64)
    np.cumsum(kept.sum(axis=1), out=indptr[1:])
    return Chunk(indptr, np.nonzero(kept)[1].astype(np.int32), rows[kept].astype(np.float32), n_features, weight=weight)
