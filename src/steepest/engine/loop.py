"""The one training loop: an executor runs rounds, and each is measured, recorded and saved, until a rule says stop.

An executor decides who calls `step`, when, and how states merge; a round is an epoch over chunks (`Epochs`, here), a
round of shards (mixing.py), or an iteration of a solver over all rows (iterations.py). The loop knows nothing of losses
or kernels: a learner is something that has the methods of `Learner`.
"""

from __future__ import annotations

import math
import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from steepest.data.source import Source
from steepest.engine.checkpoint import Checkpoints, Place
from steepest.engine.history import History, Record
from steepest.engine.stopping import Plan, Watch
from steepest.errors import DataError, NotConverged
from steepest.learners.base import Learner, Progress

CLEAR_RISE = 0.01  # of the least loss on held-out rows, beyond which a rise is reported


class Monitor:
    """Callbacks of training: override some of them in a subclass, and pass an instance as `monitor=` to `fit`.

    Examples
    --------
    >>> import steepest as st
    >>> class Losses(st.Monitor):
    ...     def epoch_done(self, record):
    ...         print("epoch", record["epoch"])
    >>> rows = st.from_arrays([[0.0], [1.0], [2.0], [3.0]], [0, 0, 1, 1])
    >>> model = st.LinearClassifier(epochs=2, random_state=0).fit_stream(rows, monitor=Losses())
    epoch 1
    epoch 2
    """

    stopping = False  # set it, and training ends after the current chunk

    def begins(self, unit: str, rounds: int) -> None:
        """Called before the first round, with the name of a round ("epoch") and their planned number."""

    def chunk_done(self, epoch: int, so_far: Progress, seconds: float, n_rows: int | None) -> None:
        """Called after every chunk, with the progress of the epoch so far."""

    def epoch_done(self, record: Record) -> None:
        """Called after every epoch, round or iteration, with its record."""

    def event(self, text: str) -> None:
        """Called when something worth reporting happened, such as a rollback."""

    def choice(self, text: str) -> None:
        """Called with what "auto" chose, and with other events that need no attention."""

    def wants_stop(self) -> bool:
        """Called after every chunk and round: return True to end training with what was learned so far."""
        return self.stopping


class Log:
    """Writes events to the history of a run and passes them to its monitor."""

    def __init__(self, monitor: Monitor | None) -> None:
        self.history = History()
        self.monitor = monitor or Monitor()

    def event(self, text: str) -> None:
        """Adds an event to the history and reports it to the monitor."""
        self.history.events.append(text)
        self.monitor.event(text)

    def note(self, text: str) -> None:
        """Adds an event to the history; the monitor gets it as a choice, which most monitors do not show."""
        self.history.events.append(text)
        self.monitor.choice(text)

    def take(self, progress: Progress, total: Progress) -> None:
        """Adds the progress of a step to the total of the round, and reports its events."""
        for event in progress.events:
            self.event(event)
        progress.events.clear()
        total.add(progress)


Save = Callable[[Place], None]


class Executor(ABC):
    """Runs training round by round: calls the learner's steps and merges states."""

    unit: str  # what a round is called
    learner: Any  # what is learned so far: it has a `state`, and a `clone` for early stopping
    place: Place  # where the next round starts
    converged = False  # whether it has a reason of its own to stop that went as planned

    @abstractmethod
    def resume(self, learner: Any, place: Place, history: History) -> str:
        """Continues from a checkpoint; returns a sentence that says from where."""

    @abstractmethod
    def finished(self, plan: Plan) -> bool:
        """Whether all planned rounds are done."""

    @abstractmethod
    def run_round(self, log: Log, save: Save) -> Record:
        """Runs one round; returns its record without `objective` and `holdout_loss`."""

    def measure(self, validation: Any) -> float:
        """The mean loss on held-out rows."""
        return mean_loss(self.result(self.learner), validation)

    def penalty(self) -> float:
        """The penalty that is added to the mean loss."""
        return float(self.result(self.learner).penalty())

    def stop(self) -> str | None:
        """The executor's own reason to stop after this round, or None."""
        return None

    def fell_short(self) -> str | None:
        """The event to report if all planned rounds are done without any reason to stop, or None."""
        return None

    def result(self, learner: Any) -> Any:
        """The learner that a fit keeps, made from this executor's `learner`."""
        return learner


def train(
    executor: Executor,
    plan: Plan,
    *,
    validation: Source | None = None,
    monitor: Monitor | None = None,
    checkpoints: Checkpoints | None = None,
) -> tuple[Any, History]:
    """Runs rounds until the plan or the executor stops; returns the learner to keep (the best one under early stopping
    or `plan.keep_best`, else the last) and the history."""
    log, watch = Log(monitor), Watch()
    log.monitor.begins(executor.unit, plan.epochs)
    if checkpoints is not None and (found := checkpoints.resume()) is not None:
        learner, log.history, place, watch = found
        log.monitor.event(executor.resume(learner, place, log.history))

    def save(place: Place) -> None:
        if log.monitor.wants_stop():
            raise _StoppedError(place)
        why = checkpoints and checkpoints.maybe_save(lambda: executor.learner, log.history, place, watch)
        if why:
            log.monitor.event(f"{why}; training continues")

    try:
        _run_rounds(executor, plan, validation, log, watch, save)
    except _StoppedError as stopped:
        if checkpoints is not None and (why := checkpoints.save(executor.learner, log.history, stopped.place, watch)):
            log.monitor.event(why)
        if hasattr(executor.learner, "finish"):  # rows that wait are a part of what was learned
            log.take(executor.learner.finish(), Progress())
        log.event(f"stopped as requested after {len(log.history)} {executor.unit}s and {stopped.place.rows:,} rows")
    else:
        if checkpoints is not None:
            checkpoints.clear()
    best = executor.learner if watch.best_learner is None else watch.best_learner
    return executor.result(best), log.history


class _StoppedError(Exception):
    """Raised between two chunks or rounds when the monitor asks for the end of training."""

    def __init__(self, place: Place) -> None:
        self.place = place


def _run_rounds(executor: Executor, plan: Plan, validation: Source | None, log: Log, watch: Watch, save: Save) -> None:
    """Runs rounds, measures and records each, and stops by the plan or the executor's own reason."""
    while not executor.finished(plan):
        record = executor.run_round(log, save)
        if validation is not None:
            record["holdout_loss"] = executor.measure(validation)
            if math.isnan(record["holdout_loss"]) and not log.history:
                raise DataError("no row that is held out can be measured; hold out a larger share, such as 0.1")
        watched: float = record["loss"] if validation is None else record["holdout_loss"]
        if "objective" not in record:
            record["objective"] = watched + executor.penalty()
        log.history.records.append(record)
        log.monitor.epoch_done(record)
        watch.see(watched if plan.early_stopping else record["objective"], watched, executor.learner, plan)
        if watch.stalled and plan.lower_step_on_stall:
            executor.learner.lower_step(2.0)
        if (reason := executor.stop() or _stalled(watch, plan, executor.unit, len(log.history))) is not None:
            (log.note if executor.converged else log.event)(reason)
            break
        save(executor.place)
    else:
        if (shortfall := executor.fell_short()) is not None:
            log.event(shortfall)
    if plan.keep_best and (rise := _rise(log.history, executor.unit)) is not None:
        log.event(rise)
        warnings.warn(rise, NotConverged, stacklevel=2)


def _rise(history: History, unit: str) -> str | None:
    """The event to report if the loss on held-out rows was clearly lower before the end, or None."""
    losses = history.column("holdout_loss")
    least, last = min(losses, default=math.nan), losses[-1] if losses else math.nan
    if not last > least + CLEAR_RISE * abs(least):
        return None
    best = losses.index(least) + 1
    return (
        f"the loss on held-out rows rose from {least:.5g} after {unit} {best} to {last:.5g} after {len(losses)}; "
        f'the model of {unit} {best} is kept (keep="last", or --keep last in the shell, keeps that of the last one)'
    )


def _stalled(watch: Watch, plan: Plan, unit: str, number: int) -> str | None:
    if not plan.may_stop or watch.stalled < plan.patience:
        return None
    return f"stopped after {unit} {number}: no improvement in {plan.patience} {unit}s"


class Epochs(Executor):
    """Runs epochs: one learner takes the chunks of a source in order."""

    unit = "epoch"

    def __init__(self, learner: Learner, source: Source) -> None:
        self.learner = learner
        self.source = source
        self.place = Place()

    def resume(self, learner: Any, place: Place, history: History) -> str:
        """Continues in an unfinished epoch; chunks that were learned before are skipped."""
        self.learner, self.place = learner, place
        return f"resumed in epoch {place.epoch + 1}, after {place.rows:,} of its rows"

    def finished(self, plan: Plan) -> bool:
        """Whether the planned number of epochs is done."""
        return self.place.epoch >= plan.epochs

    def run_round(self, log: Log, save: Save) -> Record:
        """Learns one epoch, without the chunks that a resumed run has learned before."""
        started, epoch, skip, total = time.perf_counter(), self.place.epoch, self.place.chunks, self.place.progress
        if epoch > 0 and not skip:
            self.learner.keep_good_state()
        for number, chunk in enumerate(self.source.epoch(epoch)):
            if number < skip:
                continue
            log.take(self.learner.step(chunk), total)
            log.monitor.chunk_done(epoch, total, time.perf_counter() - started, self.source.n_rows)
            save(Place(epoch, number + 1, total.rows, total))
        if epoch == 0:
            log.take(self.learner.finish(), total)
        self.place = Place(epoch + 1)
        learner, seconds = self.learner, time.perf_counter() - started
        record = epoch_record(epoch, total, learner.step_size, learner.count_nonzero(), seconds)
        if (first_step := getattr(learner, "first_step", None)) is not None:
            record["eta0"] = first_step
        return record


class EntryEpochs(Epochs):
    """Runs epochs of a factor model over all entries of a matrix, in blocks or in parallel."""

    def __init__(self, entries: Any, measure: Callable[[Any], float] | None = None) -> None:
        self.entries = entries  # a FactorRun; see learners/factors/factor_run.py
        self._measure = measure
        self.place = Place()

    @property
    def learner(self) -> Any:
        """The factor model with the current factors written back."""
        self.entries.write_back()
        return self.entries.learner

    def resume(self, learner: Any, place: Place, history: History) -> str:
        """Continues after the last complete epoch."""
        self.entries.resume(learner)
        self.place = place
        return f"resumed after {place.epoch} epochs"

    def run_round(self, log: Log, save: Save) -> Record:
        """Learns all entries once."""
        started, epoch, total = time.perf_counter(), self.place.epoch, Progress()
        log.take(self.entries.epoch(epoch), total)
        seconds = time.perf_counter() - started
        log.monitor.chunk_done(epoch, total, seconds, self.entries.n_entries)
        self.place = Place(epoch + 1)
        entries = self.entries
        record = epoch_record(epoch, total, entries.step_size, entries.learner.count_nonzero(), seconds)
        record["objective"] = total.mean_loss + entries.penalty() / max(entries.weight, 1e-300)
        return record

    def measure(self, validation: Any) -> float:
        """The mean loss on held-out entries, by the function given to the constructor."""
        assert self._measure is not None
        return self._measure(self.learner)


def epoch_record(epoch: int, progress: Progress, eta: float, nonzeros: int, seconds: float) -> Record:
    """The record of an epoch for the history."""
    return {
        "epoch": epoch + 1,
        "rows": progress.rows,
        "loss": progress.mean_loss,
        "eta": eta,
        "nonzeros": nonzeros,
        "seconds": seconds,
        "rows_per_second": progress.rows / seconds if seconds > 0 else math.nan,
    }


def mean_loss(learner: Learner, source: Source) -> float:
    """The weighted mean loss over a source, without learning from it."""
    loss = weight = 0.0
    for chunk in source:
        losses, weights = learner.losses(learner.code_for_scoring(chunk))
        loss += float((losses * weights).sum())
        weight += float(weights.sum())
    return loss / weight if weight > 0 else math.nan
