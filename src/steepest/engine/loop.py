"""The training loop: hands chunks to a learner's step, watches the losses, and decides when to stop.

It never hears of hinge or logistic: a learner is something with `step`, `learn_pending` and a few measures.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from steepest.data.chunk import Array, Chunk
from steepest.data.source import Source
from steepest.engine.checkpoint import Checkpoints, Place
from steepest.engine.history import History, Record
from steepest.learners.base import Progress


class Trainable(Protocol):
    """What the loop needs of a learner."""

    def step(self, chunk: Chunk) -> Progress: ...
    def learn_pending(self) -> Progress: ...
    def keep_good_state(self) -> None: ...
    def lower_step(self, factor: float) -> None: ...
    def penalty(self) -> float: ...
    def weights(self) -> tuple[Array, Array]: ...
    def code_for_scoring(self, rows: Chunk) -> Chunk: ...
    def losses(self, coded: Chunk) -> tuple[Array, Array]: ...
    def clone(self) -> Any: ...
    @property
    def step_size(self) -> float: ...
    @property
    def state(self) -> dict[str, Array]: ...


class Monitor:
    """Is told what happens; this one keeps silent."""

    def chunk_done(self, epoch: int, so_far: Progress, seconds: float, n_rows: int | None) -> None:
        """After every chunk."""

    def epoch_done(self, record: Record) -> None:
        """After every epoch."""

    def event(self, text: str) -> None:
        """Something worth telling happened."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How long to train, and when to stop earlier."""

    epochs: int = 5
    tol: float | None = None
    patience: int = 2
    early_stopping: bool = False
    lower_step_on_stall: bool = False


def train(
    learner: Trainable,
    source: Source,
    plan: Plan,
    *,
    validation: Source | None = None,
    monitor: Monitor | None = None,
    checkpoints: Checkpoints | None = None,
) -> tuple[Any, History]:
    """Trains for the planned epochs; returns the learner to keep (the best one under early stopping) and the history."""
    monitor = monitor or Monitor()
    history, place = History(), Place()
    if checkpoints is not None and (found := checkpoints.resume()) is not None:
        learner, history, place = found
        monitor.event(f"resumed after {place.rows:,} rows, in epoch {place.epoch + 1}")
    best: tuple[float, Any] = (math.inf, None)
    stalled = 0
    for epoch in range(place.epoch, plan.epochs):
        skip, place.chunks = place.chunks, 0
        record = _run_epoch(learner, source, epoch, skip, history, monitor, checkpoints, place)
        if validation is not None:
            record["holdout_loss"] = mean_loss(learner, validation)
        record["objective"] = record.get("holdout_loss", record["loss"]) + learner.penalty()
        history.records.append(record)
        monitor.epoch_done(record)
        watched = record.get("holdout_loss", record["loss"])
        improved = watched < best[0] - (plan.tol or 0.0) * abs(best[0] if math.isfinite(best[0]) else 0.0)
        stalled = 0 if improved else stalled + 1
        if watched < best[0]:
            best = (watched, learner.clone() if plan.early_stopping else None)
        if stalled and plan.lower_step_on_stall:
            learner.lower_step(2.0)
        if (plan.early_stopping or plan.tol is not None) and stalled >= plan.patience:
            history.events.append(f"stopped after epoch {epoch + 1}: no improvement in {plan.patience} epochs")
            monitor.event(history.events[-1])
            break
    if checkpoints is not None:
        checkpoints.clear()
    return (best[1] if best[1] is not None else learner), history


def _run_epoch(
    learner: Trainable,
    source: Source,
    epoch: int,
    skip: int,
    history: History,
    monitor: Monitor,
    checkpoints: Checkpoints | None,
    place: Place,
) -> Record:
    started = time.perf_counter()
    total = Progress() if not skip else place.progress
    if epoch > 0 and not skip:
        learner.keep_good_state()

    def take(progress: Progress) -> None:
        for event in progress.events:
            history.events.append(event)
            monitor.event(event)
        total.add(progress)

    for number, chunk in enumerate(source.epoch(epoch)):
        if number < skip:
            continue
        take(learner.step(chunk))
        monitor.chunk_done(epoch, total, time.perf_counter() - started, source.n_rows)
        if checkpoints is not None:
            checkpoints.maybe_save(learner, history, Place(epoch, number + 1, total.rows, total))
    if epoch == 0:
        take(learner.learn_pending())
    seconds = time.perf_counter() - started
    return {
        "epoch": epoch + 1,
        "rows": total.rows,
        "loss": total.mean_loss,
        "eta": learner.step_size,
        "nonzeros": int(np.count_nonzero(learner.weights()[0])),
        "seconds": seconds,
        "rows_per_second": total.rows / seconds if seconds > 0 else math.nan,
    }


def mean_loss(learner: Trainable, source: Source) -> float:
    """Weighted mean loss over a source, without learning from it."""
    loss = weight = 0.0
    for chunk in source:
        losses, weights = learner.losses(learner.code_for_scoring(chunk))
        loss += float((losses * weights).sum())
        weight += float(weights.sum())
    return loss / weight if weight > 0 else math.nan


Callback = Callable[[Record], None]
