"""k-means on shards: Lloyd's algorithm, one job per iteration, in which every shard labels its rows and adds them up.

The rows to begin with are drawn by their numbers, as one process draws them; with solver "minibatch" they are improved
on a sample first, as its learner does. Each shard answers the sums of its rows by cluster; they are added in the order
of shards, so that centres agree with those of one process to rounding (one shard: to the bit). Labels and bounds of
rows (Hamerly 2010) are stored beside the shard's files; where they are lost, rows are measured anew, to the same
labels.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from steepest import atomic
from steepest.data.chunk import Array, Chunk, compact, concatenate
from steepest.engine.mixing import run_length, shards_of_rows
from steepest.errors import DataError
from steepest.learners.kmeans.centres import Centres, new_table
from steepest.learners.kmeans.kmeans_start import choose_rows, weights_of
from steepest.learners.kmeans.lloyd import Clustering, Lloyd, Record, rows_for_empty_clusters, squared_lengths
from steepest.learners.kmeans.minibatch import START_EPOCHS, START_TOL, KMeansLearner, KMeansSettings, cluster_rows
from steepest.models.kmeans import SOLVERS
from steepest.parameters import choice, whole
from steepest.spark.blocks import Shard
from steepest.spark.frames import FitOptions, Input
from steepest.spark.inputs import shards_of
from steepest.spark.messages import Answer, as_text, chunk_arrays, chunk_of, from_bytes, from_text, size_of, to_bytes
from steepest.spark.shards import FarSource, Shards

METHODS = ("lloyd", "batch")
SAMPLE_SHARE = 100  # rows per cluster in the sample that improves a start
BOUNDS = ("upper", "lower", "labels")  # of rows, stored from iteration to iteration
SPARE = 64  # rows more than asked for, since some are alone in their cluster

# --------------------------------------------------------------------------------------------------- in the executors


def cluster_alone(shard: Shard, given: tuple[KMeansSettings, Array | None, int, float, int]) -> Answer:
    """Runs Lloyd's algorithm over a single shard: exactly what one machine does."""
    settings, start, epochs, tol, n_features = given
    rows = replace(shard.chunk, n_features=n_features)
    columns = np.arange(n_features)
    if start is not None:
        found = Lloyd(rows, Centres.from_array(start)).run(epochs, tol)
    else:
        small, columns = compact(rows)
        found = cluster_rows(small, settings, epochs, tol)
    return {
        "columns": columns,
        "table": found.centres.table,
        "mass": found.mass,
        "found": as_text([found.records, found.converged, found.inertia]),
    }


def fetch(shard: Shard, given: tuple[Array, int, int]) -> Answer:
    """Those of the given rows, by their numbers among all, that are in this shard, in their order."""
    numbers, n_rows, n_shards = given
    run = run_length(n_rows, n_shards)
    numbers = numbers[shards_of_rows(numbers, n_rows, n_shards) == shard.number]
    places = numbers // (run * n_shards) * run + numbers % run
    return {"numbers": numbers, "rows": _as_bytes(shard.chunk.visit(places))}


def _as_bytes(rows: Chunk) -> Array:
    return np.frombuffer(to_bytes(chunk_arrays(rows)), np.uint8)


def _joined(answers: list[Answer]) -> Chunk:
    """The rows of all answers."""
    return concatenate([chunk_of(from_bytes(answer["rows"].tobytes())) for answer in answers])


@dataclass(frozen=True, slots=True)
class Iteration:
    """What every shard receives for an iteration."""

    table: Array
    k: int
    drift: Array  # how far each centre moved since the last iteration
    run: str
    number: int


def add_rows(shard: Shard, given: Iteration) -> Answer:
    """Labels the rows and adds them up by cluster."""
    rows = replace(shard.chunk, n_features=len(given.table))
    lloyd = Lloyd(rows, Centres.of(given.table.copy(), given.k), squares=_squares(shard, rows))
    path = Path(shard.path) / f"bounds-{given.run}"
    if path.exists():
        bounds = from_bytes(path.read_bytes())
        if bounds["number"][0] == given.number - 1:
            lloyd.upper, lloyd.lower, lloyd.labels = (bounds[name].copy() for name in BOUNDS)
            lloyd.drift = given.drift
    lloyd.label()
    _write(path, {"number": np.array([given.number]), **{name: getattr(lloyd, name) for name in BOUNDS}})
    lloyd.move(np.full(rows.n_rows, -1, np.int32))
    used = lloyd.mass > 0
    sums = lloyd.centres.table[:, : given.k].astype(np.float64) * np.where(used, lloyd.mass, 0.0)
    sizes = np.bincount(lloyd.labels, lloyd.weight > 0, minlength=given.k)
    totals = np.array([lloyd.spread, lloyd.total, float(lloyd.measured)])
    return {"sums": sums, "mass": lloyd.mass, "sizes": sizes, "totals": totals}


def _squares(shard: Shard, rows: Chunk) -> Array:
    """|x|² of the shard's rows, which are measured once."""
    path = Path(shard.path) / "squares"
    if not path.exists():
        _write(path, {"squares": squared_lengths(rows)})
    return from_bytes(path.read_bytes())["squares"]


def _write(path: Path, arrays: Answer) -> None:
    """Whole or not at all, since a second attempt may read it."""
    with atomic.writing(path, durable=False) as file:
        file.write(to_bytes(arrays))


def measure(shard: Shard, given: tuple[Array, int]) -> Answer:
    """The shard's part of the inertia."""
    rows = replace(shard.chunk, n_features=len(given[0]))
    _, squares = Centres.of(given[0], given[1]).nearest(rows)
    return {"inertia": np.array([weights_of(rows) @ squares])}


def farthest(shard: Shard, given: tuple[Array, int, int]) -> Answer:
    """The rows that are farthest from their centres."""
    table, k, n = given
    rows = replace(shard.chunk, n_features=len(table))
    labels, squares = Centres.of(table, k).nearest(rows)
    squares[weights_of(rows) == 0] = 0.0
    picks = np.argsort(-squares, kind="stable")[: n + SPARE]
    return {"labels": labels[picks], "squares": squares[picks], "rows": _as_bytes(rows.visit(picks))}


# -------------------------------------------------------------------------------------------------------- in the driver


def fit_kmeans(estimator: Any, given: Input, options: FitOptions) -> None:
    """Fits KMeans on shards."""
    choice("method", options.method or "lloyd", METHODS)
    solver, settings = choice("solver", estimator.solver, SOLVERS), estimator.settings_for()
    plan = estimator.plan_epochs()
    epochs, tol = plan.epochs if options.rounds is None else whole("rounds", options.rounds, 1), plan.tol or 0.0
    with shards_of(estimator, given, options) as (shards, _):
        shards.checkpoints = options.checkpoints
        survey = shards.survey
        if survey.n_rows < settings.k:
            raise DataError(
                f"n_samples={survey.n_rows} should be >= n_clusters={settings.k}: give more rows or ask for fewer "
                "clusters"
            )
        start, columns = estimator.given_centres(survey.n_features), np.arange(survey.n_features)
        if shards.n == 1 and solver == "lloyd":
            found, columns = _alone(shards, settings, start, epochs, tol)
        else:
            starts = [Centres.from_array(start)] if start is not None else _starts(shards, settings, solver)
            report = estimator.monitor().epoch_done
            runs = [FarLloyd(shards, start, number).run(epochs, tol, report) for number, start in enumerate(starts)]
            found = min(runs, key=lambda run: run.inertia)
        learner = KMeansLearner.from_clustering(settings, found, columns, survey.n_features)
        learner.rows_learned = survey.n_rows
        vars(estimator).pop("labels_", None)
        estimator.adopt_clustering(learner, found, FarSource(survey))
        estimator.history_.events[:0] = shards.events


def _alone(
    shards: Shards, settings: KMeansSettings, start: Array | None, epochs: int, tol: float
) -> tuple[Clustering, Array]:
    answer = shards.run(cluster_alone, (settings, start, epochs, tol, shards.survey.n_features))[0]
    records, converged, inertia = from_text(answer["found"])
    nothing = np.zeros(0, np.int32)
    centres = Centres.of(answer["table"], settings.k)
    return Clustering(centres, nothing, nothing, inertia, answer["mass"], records, converged, 0), answer["columns"]


def _starts(shards: Shards, settings: KMeansSettings, solver: str) -> list[Centres]:
    """Centres to begin with: rows drawn as `start_rows` draws them, which "minibatch" clusters among themselves."""
    n_rows, k = shards.survey.n_rows, settings.k
    size = max(settings.init_size, SAMPLE_SHARE * k if solver == "minibatch" else 0)
    generators = [np.random.default_rng([settings.seed & 0xFFFFFFFFFFFFFFFF, n]) for n in range(settings.n_starts)]
    whole_data = n_rows <= size
    draws = [np.arange(n_rows) if whole_data else np.sort(g.choice(n_rows, size, replace=False)) for g in generators]
    numbers = np.unique(np.concatenate(draws))
    sample = _fetched(shards, numbers)
    starts = []
    for generator, drawn in zip(generators, draws, strict=True):
        small, columns = compact(sample.visit(np.searchsorted(numbers, drawn)).packed())
        found = Centres.from_rows(small, choose_rows(settings.start, small, k, generator))
        if solver == "minibatch":
            found = Lloyd(small, found).run(START_EPOCHS, START_TOL).centres
        table = new_table(shards.survey.n_features, k)
        table[columns] = found.table[: len(columns)]
        starts.append(Centres.of(table, k))
    return starts


def _fetched(shards: Shards, numbers: Array) -> Chunk:
    """These rows of all, in their order."""
    survey = shards.survey
    answers = shards.run(fetch, (numbers, survey.n_rows, shards.n))
    order = np.argsort(np.concatenate([answer["numbers"] for answer in answers]), kind="stable")
    return replace(_joined(answers).visit(order).packed(), n_features=survey.n_features)


class FarLloyd(Lloyd):
    """Lloyd's algorithm over shards; the driver holds the centres."""

    def __init__(self, shards: Shards, start: Centres, number: int) -> None:
        self.shards, self.name, self.number = shards, f"{shards.name}-{number}", 0
        self.centres, self.n_rows = start, shards.survey.n_rows
        self.drift, self.mass, self.square = np.zeros(start.k), np.zeros(start.k), np.zeros(start.k)
        self.spread = self.total = 0.0
        self.measured = self.bytes_up = 0

    def iterate(self) -> bool:
        """Runs one iteration: one job, and another one if a cluster is empty."""
        table, k = self.centres.table, self.centres.k
        given = Iteration(table, k, self.drift * (1 + 1e-6), self.name, self.number)
        answer = self.shards.run(add_rows, given, add=True)[0]
        self.number, self.bytes_up = self.number + 1, self.shards.n * size_of([answer])
        self.spread, self.total, measured = answer["totals"].tolist()
        self.measured += int(measured)
        sums, self.mass, sizes = answer["sums"], answer["mass"].copy(), answer["sizes"]
        if not sizes.all():
            sums = sums.copy()  # answers from a checkpoint are read-only
            self._fill_from_farthest(sums, sizes)
        new, used = table.copy(), self.mass > 0
        new[:, :k][:, used] = sums[:, used] / self.mass[used]
        step = new[:, :k].astype(np.float64) - table[:, :k]
        self.drift = np.sqrt(np.einsum("jc,jc->c", step, step))
        self.square = np.einsum("jc,jc->c", new[:, :k], new[:, :k], dtype=np.float64)
        self.centres = Centres.of(new, k)
        return bool(self.drift.any())

    def _fill_from_farthest(self, sums: Array, sizes: Array) -> None:
        """Moves empty clusters to the rows farthest from their centres, as in one process."""
        answers = self.shards.run(farthest, (self.centres.table, self.centres.k, int((sizes == 0).sum())))
        labels, squares = (np.concatenate([answer[name] for answer in answers]) for name in ("labels", "squares"))
        rows = _joined(answers)
        weights = weights_of(rows)
        for i, new in rows_for_empty_clusters(squares, labels, sizes):
            row, weight, old = rows.span(i, i + 1).packed(), float(weights[i]), int(labels[i])
            values = row.values.astype(np.float64) * weight
            np.add.at(sums[:, old], row.indices, -values)
            sums[:, new] = 0.0
            np.add.at(sums[:, new], row.indices, values)
            self.mass[old] -= weight
            self.mass[new] = weight

    def assign(self) -> tuple[Array, Array, float]:
        """Computes the inertia; labels stay with the rows."""
        nothing = np.zeros(0, np.int32)
        answer = self.shards.run(measure, (self.centres.table, self.centres.k), add=True)[0]
        return nothing, nothing, float(answer["inertia"][0])

    def record(self, epoch: int, loss: float, seconds: float, measured: int) -> Record:
        """The record of an iteration, with the bytes sent in both directions."""
        n = self.shards.n
        sent = {"shards": n, "bytes_down": n * self.centres.table.nbytes, "bytes_up": self.bytes_up}
        return {**super().record(epoch, loss, seconds, measured), **sent}
