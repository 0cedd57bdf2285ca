"""The training loop of factor models: epochs over entries that are held in memory, watched like any other training.

A run is anything with `epoch`, `penalty`, `settle` and `step_size`; the loop never hears of its mathematics.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any, Protocol

from steepest.engine.checkpoint import Checkpoints, Place
from steepest.engine.history import History
from steepest.engine.loop import Monitor
from steepest.engine.stopping import Plan, Watch
from steepest.learners.base import Progress


class FactorRun(Protocol):
    """Epochs over a fixed set of entries."""

    n_entries: int
    weight: float
    learner: Any

    @property
    def step_size(self) -> float:
        """The step of the next epoch."""

    def epoch(self, epoch: int) -> Progress:
        """Learns from all entries once."""

    def penalty(self) -> float:
        """What the penalties add to the sum of losses."""

    def settle(self) -> None:
        """Writes what was learned into the learner."""

    def resume(self, learner: Any) -> None:
        """Goes on from a learner of before."""


def train_factors(
    run: FactorRun,
    plan: Plan,
    measure: Callable[[Any], float] | None = None,
    monitor: Monitor | None = None,
    checkpoints: Checkpoints | None = None,
) -> tuple[Any, History]:
    """Trains for the planned epochs; `measure` gives the loss of a learner on held-out entries.

    Returns the learner to keep (the best under early stopping) and the history.
    """
    monitor, history, place, watch = monitor or Monitor(), History(), Place(), Watch()
    if checkpoints is not None and (found := checkpoints.resume()) is not None:
        learner, history, place, watch = found
        run.resume(learner)
        monitor.event(f"resumed after {place.epoch} epochs")
    for epoch in range(place.epoch, plan.epochs):
        started = time.perf_counter()
        progress = run.epoch(epoch)
        seconds = time.perf_counter() - started
        for event in progress.events:
            history.events.append(event)
            monitor.event(event)
        share = max(run.weight, 1e-300)
        record = {
            "epoch": epoch + 1,
            "rows": progress.rows,
            "loss": progress.mean_loss,
            "eta": run.step_size,
            "nonzeros": (len(run.learner.users) + len(run.learner.items)) * run.learner.rank,
            "seconds": seconds,
            "rows_per_second": progress.rows / seconds if seconds > 0 else math.nan,
        }
        watched = progress.mean_loss
        record["objective"] = watched + run.penalty() / share
        if measure is not None:
            run.settle()
            watched = record["holdout_loss"] = measure(run.learner)
        history.records.append(record)
        monitor.chunk_done(epoch, progress, seconds, run.n_entries)
        monitor.epoch_done(record)
        watch.see(watched if measure is not None else record["objective"], run.learner, plan)
        if plan.may_stop and watch.stalled >= plan.patience:
            text = f"stopped after epoch {epoch + 1}: no improvement in {plan.patience} epochs"
            history.events.append(text)
            monitor.event(text)
            break
        if checkpoints is not None:
            run.settle()
            checkpoints.maybe_save(run.learner, history, Place(epoch + 1), watch)
    if checkpoints is not None:
        checkpoints.clear()
    run.settle()
    return (run.learner if watch.kept is None else watch.kept), history
