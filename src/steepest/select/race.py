"""Races: several solvers minimise the same objective on the same rows; who is how near to the optimum after how long?

Every point is a run of its own, from the start: one epoch, then two, four, ... (iterations for batch solvers, parts of
an epoch before the first). The clock runs during `fit` alone; objective and test error are measured afterwards, all in
one way. Rows are held in memory, because other libraries need them there. The gap is (objective - best) / best, where
best is the optimum that a reference run found and certified (`optimum`), or the least objective of anyone, if that is
lower still. A run takes no longer than one with more effort: its seconds are the least of its own and of all behind it,
so that lines never run back in time. Times are those of this machine at this moment.
"""

from __future__ import annotations

import math
import os
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from steepest.data.chunk import concatenate
from steepest.data.folds import refuse_reading_once
from steepest.data.source import ArraySource, Source
from steepest.engine.history import History
from steepest.engine.loop import mean_loss
from steepest.errors import DataError, NotConverged, ParameterError
from steepest.learners.batch.solvers import BATCH_SOLVERS, refusal
from steepest.learners.linear.linear import LinearLearner
from steepest.learners.losses import loss_for
from steepest.models.linear import LinearModel
from steepest.parameters import inside, more_than
from steepest.report.chart import Chart, Line
from steepest.report.choosing import save_race
from steepest.report.picture import save_picture
from steepest.select.cross_validate import as_source, copy_of
from steepest.select.optimum import Optimum, find_optimum
from steepest.select.peers import DOUBLING, Peer, Problem, peers_for

STOCHASTIC = ("sgd", "asgd", "adagrad", "ftrl", "truncated")
USUAL = ("sgd", "asgd", "dual_cd", "saga", "cd", "lbfgs", "newton_cg", "cg", "gd", "closed_form")
PARTS = (1 / 16, 1 / 4)  # of an epoch
GAPS = (0.1, 0.01, 0.001)
FLOOR = 1e-7  # gaps below it are rounding
TOL = 1e-12
REFERENCE_TOL = 2e-10  # a part of what is certified, for rounding
WORST = 2.0  # times the least test error: worse ones are not drawn
WARM_UP_ROWS = 256


@dataclass(frozen=True, slots=True)
class Point:
    """One measured run: its seconds, objective and test error."""

    effort: float
    seconds: float
    objective: float
    test_loss: float
    test_error: float  # share of rows that are wrong, or rmse


@dataclass(slots=True)
class Racer:
    """One solver and its runs."""

    name: str
    unit: str
    points: list[Point] = field(default_factory=list)

    def seconds_to(self, objective: float) -> float | None:
        """Seconds of the quickest run that reached this objective."""
        return min((point.seconds for point in self.points if point.objective <= objective), default=None)


@dataclass(slots=True)
class Race:
    """The result: runs of every solver.

    Attributes
    ----------
    racers : list of Racer
    best : float
        The least objective of all, the reference run included.
    optimum : Optimum or None
        What the reference run found, and how near to the optimum that is for certain.
    error_name : "error" or "rmse"
    title : what was minimised, on which rows
    """

    racers: list[Racer]
    best: float
    error_name: str
    title: str
    optimum: Optimum | None = None

    def gap(self, point: Point) -> float:
        """How far an objective is above the optimum, as a share of it."""
        return (point.objective - self.best) / max(abs(self.best), 1e-300)

    def seconds_to(self, name: str, gap: float) -> float | None:
        """Seconds in which a solver comes within this gap, or None."""
        racer = next((racer for racer in self.racers if racer.name == name), None)
        if racer is None:
            raise ParameterError(
                f"{name!r} took no part in this race; there were {', '.join(r.name for r in self.racers)}"
            )
        return racer.seconds_to(self.best + gap * abs(self.best))

    @property
    def header(self) -> tuple[str, ...]:
        """Titles of the table's columns."""
        return (
            "solver",
            *(f"to {100 * gap:g} %" for gap in GAPS),
            "objective",
            "gap",
            "test loss",
            f"test {self.error_name}",
        )

    def rows(self) -> list[tuple[str, ...]]:
        """The table, quickest to 1 % first."""
        by = (*GAPS[1:], GAPS[0])
        found = sorted(self.racers, key=lambda racer: [self.seconds_to(racer.name, gap) or math.inf for gap in by])
        return [self._row(racer) for racer in found]

    def _row(self, racer: Racer) -> tuple[str, ...]:
        times = [self.seconds_to(racer.name, gap) for gap in GAPS]
        last = min(racer.points, key=lambda point: point.objective)
        return (
            racer.name,
            *("-" if seconds is None else f"{seconds:.3f} s" for seconds in times),
            f"{last.objective:.6g}",
            f"{max(self.gap(last), 0.0):.1e}",
            f"{last.test_loss:.5g}",
            f"{last.test_error:.5g}",
        )

    def __str__(self) -> str:
        lines = [self.title]
        for cells in (self.header, *self.rows()):
            lines.append(f"{cells[0]:<25}" + "".join(f"{cell:>13}" for cell in cells[1:]))
        return "\n".join(lines + self.remarks())

    def remarks(self) -> list[str]:
        """Sentences that say how certain the optimum is."""
        return [] if self.optimum is None else [str(self.optimum)]

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        racers = [
            {"solver": r.name, "unit": r.unit, "points": [{**asdict(p), "gap": self.gap(p)} for p in r.points]}
            for r in self.racers
        ]
        found = self.optimum
        proof = None if found is None else {**asdict(found), "gap": found.gap}
        if proof is not None:
            proof = {name: None if value != value else value for name, value in proof.items()}
        return {"title": self.title, "best": self.best, "optimum": proof, "racers": racers}

    def charts(self) -> list[Chart]:
        """Gap and test error against seconds."""
        seconds = {r.name: [p.seconds for p in r.points] for r in self.racers}
        gaps = [Line(r.name, seconds[r.name], [self.gap(p) for p in r.points]) for r in self.racers]
        errors = [Line(r.name, seconds[r.name], [p.test_error for p in r.points]) for r in self.racers]
        least = min((error for line in errors for error in line.y if math.isfinite(error)), default=1.0)
        name = "share of wrong test rows" if self.error_name == "error" else "test rmse"
        return [
            Chart("Gap from the optimum", "seconds of training", "(objective - optimum) / optimum", gaps, floor=FLOOR),
            Chart(
                "Test error" if self.error_name == "error" else "Test RMSE",
                "seconds of training",
                name,
                errors,
                log_y=False,
                ceiling=WORST * least if least > 0 else math.inf,
            ),
        ]

    def plot(self, path: str | os.PathLike[str]) -> None:
        """Both charts as a picture (PNG, SVG or PDF); needs matplotlib."""
        save_picture(self.charts(), path)

    def html(self, path: str | os.PathLike[str]) -> None:
        """Table and charts as one page that needs no other file."""
        save_race(path, self.title, self.remarks(), self.header, self.rows(), self.charts(), {})


def race(
    estimator: Any,
    source_or_X: Any,
    y: Any = None,
    *,
    solvers: Sequence[str] | None = None,
    test: float | Source = 0.2,
    seconds: float = 10.0,
    random_state: int = 0,
    on_point: Callable[[str, Point], None] | None = None,
) -> Race:
    """Compares solvers: each minimises the estimator's objective on the same rows, and is timed.

    Parameters
    ----------
    estimator : LinearClassifier or LinearRegressor
        Estimator that sets the loss, the penalty, alpha and everything else except the solver.
    source_or_X, y : Source, or arrays as for `fit`
    solvers : names, optional
        Of steepest ("sgd", "lbfgs", ...), scikit-learn ("sklearn:lbfgs"), LIBLINEAR ("liblinear:0") and LIBSVM
        ("libsvm"). By default all that can minimise the objective and are installed.
    test : float or Source
        Share of the rows to measure the test error on, or other rows for it.
    seconds : float
        Time limit of each solver, for all its runs. A run that starts in time is finished.
    random_state : int
    on_point : function, optional
        Called with the solver's name after every run.

    Returns
    -------
    Race

    Examples
    --------
    >>> import steepest as st
    >>> X, y = [[float(i % 2), float(i % 3)] for i in range(300)], [i % 2 for i in range(300)]
    >>> result = st.race(st.LinearClassifier(alpha=1e-2), X, y, solvers=["sgd", "lbfgs"], seconds=1)
    >>> [racer.name for racer in result.racers], result.seconds_to("lbfgs", 1e-3) is not None
    (['sgd', 'lbfgs'], True)
    """
    if not isinstance(estimator, LinearModel):
        raise ParameterError(f"race supports LinearClassifier and LinearRegressor, not {type(estimator).__name__}")
    limit = more_than("seconds", seconds, 0.0)
    course = _Course(estimator, as_source(estimator, source_or_X, y), test, int(random_state))
    racers = []
    for name in course.enter(solvers):
        racer = Racer(name, course.unit(name))
        for point in course.runs(name, limit):
            racer.points.append(point)
            (on_point or (lambda name, point: None))(name, point)
        racer.points = forward_in_time(racer.points)
        racers.append(racer)
    optimum = find_optimum(course.reference, course.train, course.refusal)
    best = min(point.objective for racer in racers for point in racer.points)
    best = best if optimum is None else min(best, optimum.objective)
    error_name = "error" if estimator.kind == "classifier" else "rmse"
    return Race(racers, best, error_name, course.title(), optimum)


def forward_in_time(points: Sequence[Point]) -> list[Point]:
    """The points with seconds made monotone: each gets the least time of its own run and all longer ones."""
    least = np.minimum.accumulate([point.seconds for point in reversed(points)])[::-1]
    return [replace(point, seconds=float(seconds)) for point, seconds in zip(points, least, strict=True)]


class _Course:
    """The rows and the objective; runs solvers on it and measures what they bring home."""

    def __init__(self, estimator: Any, source: Source, test: float | Source, seed: int) -> None:
        self.estimator, self.seed = copy_of(estimator, seed, early_stopping=False), seed
        self.train, held_out = split_rows(self.estimator, source, test, seed)
        assert held_out is not None
        self.test = held_out
        self.problem = self._problem()
        self.peers = peers_for(self.problem)

    def _problem(self) -> Problem:
        judge = copy_of(self.estimator, solver="sgd", average=False)
        settings = judge.settings_for(self.train.n_rows)
        if settings.loss == "auto":  # all solvers are to minimise the same
            loss = loss_for("auto", len(self._labels()) - 1)
            self.estimator, settings = copy_of(self.estimator, loss=loss), replace(settings, loss=loss)
        self.judge_settings = settings
        penalty = str(self.estimator.flat_params()["penalty"]).lower()
        rows, bias = self.train.block, settings.fit_intercept
        return Problem(settings.loss, penalty, settings.alpha, bias, self.seed, rows)

    def title(self) -> str:
        p = self.problem
        bias = "" if p.fit_intercept else ", no intercept"
        return (
            f"{p.loss} loss, {p.penalty} penalty with alpha {p.alpha:g}{bias}: {p.rows.n_rows:,} rows to learn from, "
            f"{self.test.n_rows:,} to test on, {p.rows.n_features:,} features, {len(p.rows.indices):,} non-zeros"
        )

    def enter(self, requested: Sequence[str] | None) -> list[str]:
        """The solvers that run: all that can; one requested by name that cannot run is an error."""
        if requested is None:
            return [*(name for name in USUAL if self.refusal(name) is None), *self.peers]
        names = [name.strip() for name in ([requested] if isinstance(requested, str) else requested)]
        if not names:
            raise ParameterError("solvers is empty; name some, or leave it out for all")
        known = (*STOCHASTIC, *BATCH_SOLVERS, *self.peers)
        for name in names:
            if name not in known:
                raise ParameterError(
                    f"solver {name!r} is unknown, not installed or has another objective; "
                    f"choose from {', '.join(known)}"
                )
            if (reason := self.refusal(name)) is not None:
                raise ParameterError(reason)
        return list(dict.fromkeys(names))

    def reference(self, name: str) -> Any:
        """The estimator of a run to the end."""
        return self._model(name, 1).set_params(tol=REFERENCE_TOL)

    def refusal(self, name: str) -> str | None:
        """Why a solver cannot minimise the objective, or None if it can."""
        p = self.problem
        if name in BATCH_SOLVERS:
            return refusal(name, p.loss, p.penalty, float(self.estimator.flat_params()["p"]))
        try:
            if name in STOCHASTIC:
                self._model(name, 1).settings_for(p.rows.n_rows)
        except ParameterError as error:
            return str(error)
        return None

    def unit(self, name: str) -> str:
        if name in self.peers:
            return self.peers[name].unit
        return "iterations" if name in BATCH_SOLVERS else "epochs"

    def runs(self, name: str, limit: float) -> Iterator[Point]:
        """Runs with more and more effort, while there is time for the next."""
        self._warm_up(name)
        run = self._foreign(self.peers[name], self.problem) if name in self.peers else self._own(name, self.train)
        spent = 0.0
        for effort, seconds, learner, finished in run:
            spent += seconds
            yield self._measure(effort, seconds, learner)
            if finished or spent + 2 * seconds > limit:
                return

    def _model(self, name: str, effort: float) -> Any:
        if name in BATCH_SOLVERS:
            return copy_of(self.estimator, solver=name, max_iter=int(effort), tol=TOL, dtype="float64", average="auto")
        average = self.estimator.average if name in ("sgd", "asgd") else "auto"
        return copy_of(self.estimator, solver=name, epochs=max(1, int(effort)), tol=None, average=average)

    def _warm_up(self, name: str) -> None:
        """Runs on a few rows without counting the time, so that imports and first allocations do not distort it."""
        few = hold_rows(self.train.sample(WARM_UP_ROWS, self.seed))
        few.labels = self.train.labels
        problem = replace(self.problem, rows=few.block)
        with suppress(ValueError):  # few rows may hold one class only
            next(self._foreign(self.peers[name], problem) if name in self.peers else self._own(name, few))

    def _own(self, name: str, train: ArraySource) -> Iterator[tuple[float, float, LinearLearner, bool]]:
        assert train.n_rows is not None
        batch = name in BATCH_SOLVERS
        for effort in DOUBLING if batch else (*PARTS, *DOUBLING):
            rows = train
            if effort < 1:
                rows = hold_rows(train.sample(max(1, int(effort * train.n_rows)), self.seed))
                rows.labels = train.labels
            model = self._model(name, effort)
            started = time.perf_counter()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", NotConverged)  # short efforts fall short by intention
                model.fit_stream(rows)
            seconds = time.perf_counter() - started
            yield effort, seconds, model.learner_, name == "closed_form" or (batch and model.n_iter_ < effort)

    def _foreign(self, peer: Peer, problem: Problem) -> Iterator[tuple[float, float, LinearLearner, bool]]:
        fit = peer.prepare(problem)
        for effort in peer.efforts:
            started = time.perf_counter()
            weights, bias, finished = fit(effort)
            seconds = time.perf_counter() - started
            learner = LinearLearner(self.judge_settings, self.problem.rows.n_features, self._labels())
            learner.take_weights(np.asarray(weights), np.asarray(bias))
            yield effort, seconds, learner, finished

    def _labels(self) -> list[Any]:
        return [] if self.train.labels is None else list(self.train.labels.tolist())

    def _measure(self, effort: float, seconds: float, learner: LinearLearner) -> Point:
        shown = copy_of(self.estimator, solver="sgd", average=False)
        shown.adopt(learner, History(), self.train)
        found = shown.evaluate_stream(self.test)
        error = 1.0 - found["accuracy"] if "accuracy" in found else found["rmse"]
        return Point(effort, seconds, mean_loss(learner, self.train) + learner.penalty(), found["loss"], error)


def split_rows(
    estimator: Any, source: Source, test: float | Source | None, seed: int
) -> tuple[ArraySource, ArraySource | None]:
    """Rows to learn from and rows to measure on, hashed if they are raw, and held in memory."""
    refuse_reading_once(source)
    hashed = copy_of(estimator)
    train = hold_rows(hashed.hashed(source, learn=True))
    held_out = None
    if isinstance(test, Source):
        held_out = hold_rows(hashed.hashed(test, learn=False))
    elif test is not None:
        parts = train.holdout(inside("test", test, 0.0, 1.0), seed)
        train, held_out = hold_rows(parts[0]), hold_rows(parts[1])
    targets = train.block.y
    if estimator.kind == "classifier" and targets is not None and targets.ndim == 1:
        train.labels = np.unique(targets)
    return train, held_out


def hold_rows(source: Source) -> ArraySource:
    """All rows as one block, in the order in which they are given."""
    chunks = list(source.in_file_order())
    if not chunks or not sum(chunk.n_rows for chunk in chunks):
        raise DataError("the data holds no rows; nothing can be learned from it")
    if chunks[0].y is None:
        raise DataError("the data holds no labels; name their column")
    return ArraySource(concatenate(chunks))
