"""k-means on shards: Lloyd's algorithm, one job an iteration, in which every shard labels its rows and adds them up.

The rows to begin with are drawn by their numbers, as one process draws them; with solver "minibatch" they are improved
on a sample first, as its learner does. Each shard answers the sums of its rows by cluster; they are added in the order
of shards, so that centres agree with those of one process to rounding (one shard: to the bit). Labels and bounds of
rows (Hamerly 2010) lie beside the shard's files; where they are lost, rows are measured anew, to the same labels.
"""

from __future__ import annotations

import math
import os
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from steepest.cluster import EPOCHS, SOLVERS
from steepest.data.chunk import Array, Chunk, DataError, concatenate
from steepest.data.parameters import at_least, choice, whole
from steepest.data.source import BLOCK_ROWS
from steepest.engine.history import History
from steepest.engine.loop import Monitor
from steepest.learners.centres import Centres, new_table
from steepest.learners.kmeans import START_EPOCHS, START_TOL, KMeansLearner, KMeansSettings, cluster_rows
from steepest.learners.kmeans_start import choose_rows, compact, weights_of
from steepest.learners.lloyd import Clustering, Lloyd, squared_lengths
from steepest.spark.blocks import Shard, deal_runs
from steepest.spark.linear import FarSource, as_text, from_text
from steepest.spark.rows import from_bytes, to_bytes
from steepest.spark.shards import Shards

METHODS = ("lloyd", "batch")
SAMPLE_SHARE = 100  # rows a cluster in the sample that improves a start
SPARE = 64  # rows more than asked for, since some stand alone

# --------------------------------------------------------------------------------------------------- in the executors


def cluster_alone(shard: Shard, given: tuple[KMeansSettings, Array | None, int, float, int]) -> dict[str, Array]:
    """All of Lloyd's algorithm over a single shard: exactly what one machine does."""
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
        "told": as_text([found.records, found.converged, found.inertia]),
    }


@dataclass(frozen=True, slots=True)
class Wanted:
    """Numbers of rows, of all rows."""

    numbers: Array
    n_rows: int
    n_shards: int


def fetch(shard: Shard, wanted: Wanted) -> dict[str, Array]:
    """Those of the rows wanted that are here, in their order."""
    run = max(1, min(BLOCK_ROWS, wanted.n_rows // wanted.n_shards))
    numbers = wanted.numbers[deal_runs(wanted.numbers, shard.chunk, wanted.n_rows, wanted.n_shards) == shard.number]
    places = numbers // (run * wanted.n_shards) * run + numbers % run
    return {"numbers": numbers, "rows": np.frombuffer(to_bytes(shard.chunk.visit(places)), np.uint8)}


@dataclass(frozen=True, slots=True)
class Iteration:
    """What every shard gets for an iteration."""

    table: Array
    k: int
    drift: Array  # how far each centre moved since the last iteration
    run: str
    number: int


def add_rows(shard: Shard, given: Iteration) -> dict[str, Array]:
    """Labels the rows and adds them up by cluster."""
    rows = replace(shard.chunk, n_features=len(given.table))
    lloyd = _seated(shard, rows, Centres.of(given.table.copy(), given.k))
    bounds = Bounds(Path(shard.path) / f"bounds-{given.run}", rows.n_rows)
    if bounds.restore(lloyd, given.number - 1):
        lloyd.drift = given.drift
    lloyd._label()
    bounds.keep(lloyd, given.number)
    lloyd._move(np.full(rows.n_rows, -1, np.int32))
    used = lloyd.mass > 0
    sums = lloyd.centres.table[:, : given.k].astype(np.float64) * np.where(used, lloyd.mass, 0.0)
    sizes = np.bincount(lloyd.labels, lloyd.weight > 0, minlength=given.k)
    totals = np.array([lloyd.spread, lloyd.weight.sum(), float(lloyd.measured)])
    return {"sums": sums, "mass": lloyd.mass, "sizes": sizes, "totals": totals}


def _seated(shard: Shard, rows: Chunk, centres: Centres) -> Lloyd:
    """A run of Lloyd's algorithm on the shard's rows, whose lengths are measured once."""
    path = Path(shard.path) / "lengths"
    if not path.exists():
        _write(path, squared_lengths(rows))
    return _Seated(rows, centres, np.fromfile(path))


class _Seated(Lloyd):
    """Lloyd's algorithm with lengths of rows that are known."""

    def __init__(self, rows: Chunk, start: Centres, lengths: Array) -> None:
        n, k = rows.n_rows, start.k
        self.rows, self.centres, self.n_threads, self.use_bounds = rows, start, 1, True
        self.weight, self.row_norm = weights_of(rows), lengths
        self.spread = float(self.weight @ lengths)
        self.labels = np.full(n, -1, np.int32)
        self.upper, self.lower = np.zeros(n), np.zeros(n)
        self.drift, self.mass = np.zeros(k), np.zeros(k)
        self.square = start.norm[:k].astype(np.float64)
        self.measured = 0


@dataclass(frozen=True, slots=True)
class Bounds:
    """Labels and bounds of a shard's rows after an iteration, in a file: a number, then the arrays."""

    path: Path
    n: int

    def keep(self, lloyd: Lloyd, number: int) -> None:
        """Writes them."""
        _write(self.path, np.array([number]), lloyd.upper, lloyd.lower, lloyd.labels)

    def restore(self, lloyd: Lloyd, number: int) -> bool:
        """Reads them, if they are those of that iteration."""
        try:
            data = self.path.read_bytes()
        except FileNotFoundError:
            return False
        if len(data) != 8 + 20 * self.n or np.frombuffer(data, np.int64, 1)[0] != number:
            return False
        lloyd.upper = np.frombuffer(data, np.float64, self.n, 8).copy()
        lloyd.lower = np.frombuffer(data, np.float64, self.n, 8 + 8 * self.n).copy()
        lloyd.labels = np.frombuffer(data, np.int32, self.n, 8 + 16 * self.n).copy()
        return True


def _write(path: Path, *arrays: Array) -> None:
    """Whole or not at all, since a second attempt may read it."""
    unfinished = path.with_name(f"{path.name}-{os.getpid()}")
    with open(unfinished, "wb") as file:
        for array in arrays:
            file.write(np.ascontiguousarray(array).data)
    os.replace(unfinished, path)


def measure(shard: Shard, given: tuple[Array, int]) -> dict[str, Array]:
    """The shard's part of the inertia."""
    rows = replace(shard.chunk, n_features=len(given[0]))
    _, squares = Centres.of(given[0], given[1]).nearest(rows)
    return {"inertia": np.array([weights_of(rows) @ squares])}


def farthest(shard: Shard, given: tuple[Array, int, int]) -> dict[str, Array]:
    """The rows that lie farthest from their centres."""
    table, k, n = given
    rows = replace(shard.chunk, n_features=len(table))
    labels, squares = Centres.of(table, k).nearest(rows)
    squares[weights_of(rows) == 0] = 0.0
    picks = np.argsort(-squares, kind="stable")[: n + SPARE]
    found = np.frombuffer(to_bytes(rows.visit(picks)), np.uint8)
    return {"labels": labels[picks], "squares": squares[picks], "rows": found}


# -------------------------------------------------------------------------------------------------------- in the driver


def fit_kmeans(estimator: Any, shards: Shards, method: str, rounds: int | None) -> None:
    """Fits KMeans on shards."""
    choice("method", method, METHODS)
    solver = choice("solver", estimator.solver, SOLVERS)
    epochs = EPOCHS[solver] if estimator.epochs == "auto" else whole("epochs", estimator.epochs, 1)
    epochs = epochs if rounds is None else whole("rounds", rounds, 1)
    tol = 0.0 if estimator.tol is None else at_least("tol", estimator.tol, 0.0)
    settings, survey = estimator._settings(), shards.survey
    if survey.n_rows < settings.k:
        raise DataError(
            f"n_samples={survey.n_rows} should be >= n_clusters={settings.k}: give more rows or ask for fewer clusters"
        )
    given = estimator._given(survey.n_features)
    tell = (estimator._monitor() or Monitor()).epoch_done
    columns = np.arange(survey.n_features)
    if shards.n == 1 and solver == "lloyd":
        found, columns = _alone(shards, settings, given, epochs, tol)
    else:
        starts = [Centres.from_array(given)] if given is not None else _starts(shards, settings, solver == "minibatch")
        runs = [FarLloyd(shards, start, number).run(epochs, tol, tell) for number, start in enumerate(starts)]
        found = min(runs, key=lambda run: run.inertia)
    learner = KMeansLearner.from_clustering(settings, found, columns, survey.n_features)
    learner.rows_learned = survey.n_rows
    history = History([dict(record) for record in found.records], events=list(shards.events))
    if not found.converged:
        history.events.append(f"not converged after {len(found.records)} epochs; give more or a larger tol")
    vars(estimator).pop("labels_", None)
    estimator._adopt(learner, history, FarSource(survey, None))
    estimator.inertia_ = found.inertia


def _alone(
    shards: Shards, settings: KMeansSettings, given: Array | None, epochs: int, tol: float
) -> tuple[Clustering, Array]:
    answer = shards.run(cluster_alone, (settings, given, epochs, tol, shards.survey.n_features))[0]
    records, converged, inertia = from_text(answer["told"])
    nothing = np.zeros(0, np.int32)
    centres = Centres.of(answer["table"], settings.k)
    return Clustering(centres, nothing, nothing, inertia, answer["mass"], records, converged, 0), answer["columns"]


def _starts(shards: Shards, settings: KMeansSettings, improve: bool) -> list[Centres]:
    """Centres to begin with: rows drawn as `start_rows` draws them, clustered among themselves if asked for."""
    n_rows, k = shards.survey.n_rows, settings.k
    size = max(settings.init_size, SAMPLE_SHARE * k if improve else 0)
    generators = [np.random.default_rng([settings.seed & 0xFFFFFFFFFFFFFFFF, n]) for n in range(settings.n_starts)]
    whole_data = n_rows <= size
    draws = [np.arange(n_rows) if whole_data else np.sort(g.choice(n_rows, size, replace=False)) for g in generators]
    wanted = np.unique(np.concatenate(draws))
    sample = _fetched(shards, wanted)
    starts = []
    for generator, drawn in zip(generators, draws, strict=True):
        small, columns = compact(sample.visit(np.searchsorted(wanted, drawn)).packed())
        found = Centres.from_rows(small, choose_rows(settings.start, small, k, generator))
        if improve:
            found = Lloyd(small, found).run(START_EPOCHS, START_TOL).centres
        table = new_table(shards.survey.n_features, k)
        table[columns] = found.table[: len(columns)]
        starts.append(Centres.of(table, k))
    return starts


def _fetched(shards: Shards, numbers: Array) -> Chunk:
    """These rows of all, in their order."""
    survey = shards.survey
    answers = shards.run(fetch, Wanted(numbers, survey.n_rows, shards.n))
    order = np.argsort(np.concatenate([answer["numbers"] for answer in answers]), kind="stable")
    rows = concatenate([from_bytes(answer["rows"].tobytes()) for answer in answers]).visit(order).packed()
    return replace(rows, n_features=survey.n_features)


class FarLloyd:
    """One run over shards; the driver holds the centres."""

    def __init__(self, shards: Shards, start: Centres, number: int) -> None:
        self.shards, self.k, self.name = shards, start.k, f"{shards.name}-{number}"
        self.table = start.table
        self.drift, self.mass = np.zeros(start.k), np.zeros(start.k)

    def run(self, epochs: int, tol: float, tell: Any) -> Clustering:
        """As `Lloyd.run`: until nothing moves, the mean loss improves by at most its share `tol`, or epochs end."""
        records: list[dict[str, object]] = []
        before, converged = math.inf, False
        while len(records) < epochs and not converged:
            started = time.perf_counter()
            given = Iteration(self.table, self.k, self.drift * (1 + 1e-6), self.name, len(records))
            answer = self.shards.run(add_rows, given, add=True)[0]
            self._move(answer)
            if records and not self.drift.any():
                converged = True
                break
            squares = np.einsum("jc,jc->c", self.table[:, : self.k], self.table[:, : self.k], dtype=np.float64)
            spread, weight, measured = answer["totals"].tolist()
            loss = max(0.0, spread - float(self.mass @ squares)) / weight
            records.append(self._record(len(records) + 1, loss, time.perf_counter() - started, int(measured), answer))
            tell(records[-1])
            converged = before - loss <= tol * before and tol > 0 and math.isfinite(before)
            before = loss
        inertia = float(self.shards.run(measure, (self.table, self.k), add=True)[0]["inertia"][0])
        nothing = np.zeros(0, np.int32)
        centres = Centres.of(self.table, self.k)
        return Clustering(centres, nothing, nothing, inertia, self.mass, records, converged, 0)

    def _move(self, answer: dict[str, Array]) -> None:
        sums, mass, sizes = answer["sums"], answer["mass"].copy(), answer["sizes"]
        if (sizes == 0).any():
            self._fill_empty_clusters(sums, mass, sizes)
        new = self.table.copy()
        used = mass > 0
        new[:, : self.k][:, used] = sums[:, used] / mass[used]
        step = new[:, : self.k].astype(np.float64) - self.table[:, : self.k]
        self.drift = np.sqrt(np.einsum("jc,jc->c", step, step))
        self.table, self.mass = new, mass

    def _fill_empty_clusters(self, sums: Array, mass: Array, sizes: Array) -> None:
        """As `Lloyd` does it: an empty cluster takes over the row farthest from its centre, of those not alone."""
        empty = np.flatnonzero(sizes == 0)
        answers = self.shards.run(farthest, (self.table, self.k, len(empty)))
        labels, squares = (np.concatenate([answer[name] for answer in answers]) for name in ("labels", "squares"))
        rows = concatenate([from_bytes(answer["rows"].tobytes()) for answer in answers])
        weight = weights_of(rows)
        order = iter(np.argsort(-squares, kind="stable").tolist())
        for c in empty.tolist():
            for i in order:
                if squares[i] <= 0:
                    return
                if sizes[labels[i]] > 1:
                    _hand_over(sums, mass, sizes, rows.span(i, i + 1).packed(), float(weight[i]), int(labels[i]), c)
                    break

    def _record(self, epoch: int, loss: float, seconds: float, measured: int, answer: dict[str, Array]) -> Any:
        n_rows, n = self.shards.survey.n_rows, self.shards.n
        return {
            "epoch": epoch,
            "rows": n_rows,
            "loss": loss,
            "objective": loss,
            "eta": 1.0,
            "nonzeros": int(np.count_nonzero(self.table)),
            "measured": measured,
            "seconds": seconds,
            "rows_per_second": n_rows / seconds if seconds > 0 else math.nan,
            "shards": n,
            "bytes_down": n * self.table.nbytes,
            "bytes_up": n * sum(array.nbytes for array in answer.values()),
        }


def _hand_over(sums: Array, mass: Array, sizes: Array, row: Chunk, weight: float, old: int, new: int) -> None:
    """One row leaves a cluster for an empty one."""
    values = row.values.astype(np.float64) * weight
    np.add.at(sums[:, old], row.indices, -values)
    sums[:, new] = 0.0
    np.add.at(sums[:, new], row.indices, values)
    mass[old] -= weight
    mass[new] = weight
    sizes[old] -= 1
    sizes[new] = 1
