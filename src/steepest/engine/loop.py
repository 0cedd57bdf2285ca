"""The training loop: hands chunks to a learner's step, watches the losses, and decides when to stop.

It never hears of hinge or logistic: a learner is something that has the methods of `Learner`.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import Any

from steepest.data.source import Source
from steepest.engine.checkpoint import Checkpoints, Place
from steepest.engine.history import History, Record
from steepest.engine.stopping import Plan, Watch
from steepest.learners.base import Learner, Progress


class Monitor:
    """Is told what happens; this one keeps silent."""

    def chunk_done(self, epoch: int, so_far: Progress, seconds: float, n_rows: int | None) -> None:
        """After every chunk."""

    def epoch_done(self, record: Record) -> None:
        """After every epoch."""

    def event(self, text: str) -> None:
        """Something worth telling happened."""

    def choice(self, text: str) -> None:
        """What "auto" chose: worth telling to whoever watches."""


def train(
    learner: Learner,
    source: Source,
    plan: Plan,
    *,
    validation: Source | None = None,
    monitor: Monitor | None = None,
    checkpoints: Checkpoints | None = None,
) -> tuple[Any, History]:
    """Trains for the planned epochs; returns the learner to keep (the best under early stopping) and the history."""
    run = _Run(learner, source, history=History(), monitor=monitor or Monitor(), checkpoints=checkpoints, watch=Watch())
    place = Place()
    if checkpoints is not None and (found := checkpoints.resume()) is not None:
        run.learner, run.history, place, run.watch = found
        run.monitor.event(f"resumed in epoch {place.epoch + 1}, after {place.rows:,} of its rows")
    for epoch in range(place.epoch, plan.epochs):
        record = run.epoch(epoch, place)
        place = Place()
        watched = record["loss"]
        if validation is not None:
            watched = record["holdout_loss"] = mean_loss(run.learner, validation)
        record["objective"] = watched + run.learner.penalty()
        run.history.records.append(record)
        run.monitor.epoch_done(record)
        run.watch.see(watched if plan.early_stopping else record["objective"], run.learner, plan)
        if run.watch.stalled and plan.lower_step_on_stall:
            run.learner.lower_step(2.0)
        if plan.may_stop and run.watch.stalled >= plan.patience:
            run.tell(f"stopped after epoch {epoch + 1}: no improvement in {plan.patience} epochs")
            break
    if checkpoints is not None:
        checkpoints.clear()
    return (run.learner if run.watch.kept is None else run.watch.kept), run.history


@dataclass(slots=True)
class _Run:
    """One training run: who learns from what, and who is told."""

    learner: Any
    source: Source
    history: History
    monitor: Monitor
    checkpoints: Checkpoints | None
    watch: Watch

    def tell(self, event: str) -> None:
        self.history.events.append(event)
        self.monitor.event(event)

    def epoch(self, epoch: int, place: Place) -> Record:
        """All chunks of an epoch but those that a resumed run has seen; what became of it."""
        started, total = time.perf_counter(), place.progress
        if epoch > 0 and not place.chunks:
            self.learner.keep_good_state()
        for number, chunk in enumerate(self.source.epoch(epoch)):
            if number < place.chunks:
                continue
            self._take(self.learner.step(chunk), total)
            self.monitor.chunk_done(epoch, total, time.perf_counter() - started, self.source.n_rows)
            if self.checkpoints is not None:
                here = Place(epoch, number + 1, total.rows, total)
                self.checkpoints.maybe_save(self.learner, self.history, here, self.watch)
        if epoch == 0:
            self._take(self.learner.learn_pending(), total)
        seconds = time.perf_counter() - started
        return {
            "epoch": epoch + 1,
            "rows": total.rows,
            "loss": total.mean_loss,
            "eta": self.learner.step_size,
            "nonzeros": self.learner.count_nonzero(),
            "seconds": seconds,
            "rows_per_second": total.rows / seconds if seconds > 0 else math.nan,
        }

    def _take(self, progress: Progress, total: Progress) -> None:
        for event in progress.events:
            self.tell(event)
        progress.events.clear()
        total.add(progress)


def mean_loss(learner: Learner, source: Source) -> float:
    """Weighted mean loss over a source, without learning from it."""
    loss = weight = 0.0
    for chunk in source:
        losses, weights = learner.losses(learner.code_for_scoring(chunk))
        loss += float((losses * weights).sum())
        weight += float(weights.sum())
    return loss / weight if weight > 0 else math.nan
