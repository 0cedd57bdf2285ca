"""The loop of the batch solvers: calls step, keeps the history, and decides when to stop.

One record an iteration, with the same names as those of an epoch, and `gradient`: how far from the minimum, as a share
of where the solver started. Stops when the watched quantity falls to `tol`, when a solver has nothing left to do, when
a validation loss stops improving, when the classes prove separable without a penalty, or after `max_iter` iterations.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from steepest import model_file
from steepest.data.chunk import Array, DataError
from steepest.engine.checkpoint import BEST, FILE_NAME
from steepest.engine.history import History, Record
from steepest.engine.loop import Monitor
from steepest.learners.batch import Solver, Step
from steepest.learners.objective import Objective

TOLERANCES = ("auto", "gradient", "objective", "parameters")
PATIENCE_ON_TOL = 2  # small steps in a row before the objective or the parameters count as settled


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """When to stop."""

    max_iter: int = 1000
    tol: float = 1e-6
    tol_on: str = "auto"
    early_stopping: bool = False
    patience: int = 2


class BatchCheckpoints:
    """The solver's state and the history in one file, at most every `seconds`."""

    def __init__(
        self, folder: str | Path, fingerprint: dict[str, Any], *, resume: bool = False, seconds: float = 60.0
    ) -> None:
        self.path = Path(folder) / FILE_NAME
        self.fingerprint = json.loads(json.dumps(fingerprint))
        self.wanted = resume
        self.seconds = seconds
        self._last = time.monotonic()
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise DataError(f"the checkpoint folder {folder} cannot be made ({error.strerror})") from None

    def maybe_save(self, solver: Solver, history: History, best: Array | None) -> None:
        """Saves if the last time is long enough ago; `best` are the weights that early stopping would return to."""
        if time.monotonic() - self._last >= self.seconds:
            header = {"kind": "batch checkpoint", "fingerprint": self.fingerprint, "history": history.as_dict()}
            arrays = dict(solver.state) if best is None else {**solver.state, BEST: best}
            model_file.write(self.path, header, arrays)
            self._last = time.monotonic()

    def resume(self, solver: Solver) -> tuple[History, Array | None] | None:
        """Puts the solver where the last checkpoint was; None to start anew."""
        if not self.wanted or not self.path.exists():
            return None
        header, arrays = model_file.read(self.path)
        if header.get("kind") != "batch checkpoint" or header.get("fingerprint") != self.fingerprint:
            raise DataError(
                f"{self.path} belongs to a run with other data or parameters; "
                "remove it, give another --checkpoint folder, or resume with the same command"
            )
        solver.restore(arrays)
        return History.from_dict(header["history"]), arrays.get(BEST)

    def clear(self) -> None:
        """The run is complete: nothing is left to resume."""
        if self.path.exists():
            os.unlink(self.path)


def minimise(
    solver: Solver,
    objective: Objective,
    plan: BatchPlan,
    *,
    validate: Callable[[Array], float] | None = None,
    monitor: Monitor | None = None,
    checkpoints: BatchCheckpoints | None = None,
) -> tuple[Array, History]:
    """Steps until there is reason to stop; returns the weights to keep and the history."""
    run = _Run(solver, objective, plan, History(), monitor or Monitor())
    if checkpoints is not None and (found := checkpoints.resume(solver)) is not None:
        run.history, best = found
        run.recall(run.history, best)
        run.monitor.event(f"resumed after iteration {len(run.history)}")
    reason = None
    while reason is None and len(run.history) < plan.max_iter:
        started = time.perf_counter()
        step = solver.step()
        record = run.record(step, time.perf_counter() - started)
        held_out = None if validate is None else validate(solver.w)
        if held_out is not None:
            record["holdout_loss"] = held_out
        run.history.records.append(record)
        run.monitor.epoch_done(record)
        reason = run.reason_to_stop(step, held_out)
        if checkpoints is not None:
            checkpoints.maybe_save(solver, run.history, run.best)
    run.tell(reason or f"stopped after max_iter={plan.max_iter} iterations, before tol={plan.tol:g} was reached")
    if checkpoints is not None:
        checkpoints.clear()
    return (solver.w if run.best is None else run.best), run.history


@dataclass(slots=True)
class _Run:
    solver: Solver
    objective: Objective
    plan: BatchPlan
    history: History
    monitor: Monitor
    last: float = math.inf
    small: int = 0
    stalled: int = 0
    best_loss: float = math.inf
    best: Array | None = None

    def tell(self, event: str) -> None:
        self.history.events.append(event)
        self.monitor.event(event)

    def recall(self, history: History, best: Array | None) -> None:
        """What the stopping rules remember, from the records."""
        for record in history:
            self._settled(record["objective"], record["moved"])
            if self.plan.early_stopping and "holdout_loss" in record:
                self._overfits(record["holdout_loss"])
        self.best = None if best is None else np.array(best)

    def record(self, step: Step, seconds: float) -> Record:
        """One iteration in the words of an epoch."""
        weights = self.solver.w[:-1]
        objective = self.objective
        passes = objective.passes
        objective.passes = 0
        penalty = objective.smooth_penalty(self.solver.w) + objective.one_norm(self.solver.w)
        return {
            "epoch": len(self.history) + 1,
            "rows": objective.data.n_rows,
            "loss": step.objective - penalty,
            "objective": step.objective,
            "gradient": step.gradient,
            "eta": step.eta,
            "moved": step.moved,
            "passes": passes,
            "nonzeros": int(np.count_nonzero(weights)),
            "seconds": seconds,
            "rows_per_second": passes * objective.data.n_rows / seconds if seconds > 0 else math.nan,
        }

    def reason_to_stop(self, step: Step, held_out: float | None) -> str | None:
        n = len(self.history)
        if step.done is not None:
            return f"stopped after iteration {n}: {step.done}"
        settled = self._settled(step.objective, step.moved)
        if self.plan.tol_on in ("auto", "gradient") and step.gradient <= self.plan.tol:
            return f"converged in {n} iterations: {step.measure} is down to {step.gradient:.1e}"
        if settled:
            what = "objective" if self.plan.tol_on == "objective" else "parameters"
            return f"converged in {n} iterations: the {what} changed by less than tol={self.plan.tol:g}"
        if self._separates(step):
            return (
                f"stopped after iteration {n}: all rows are classified correctly, so without a penalty the weights "
                "would grow for ever; give alpha > 0"
            )
        if self.plan.early_stopping and held_out is not None:
            return self._overfits(held_out)
        return None

    def _settled(self, objective: float, moved: float) -> bool:
        change = abs(self.last - objective) / max(abs(objective), 1e-300) if math.isfinite(self.last) else math.inf
        watched = {"objective": change, "parameters": moved}.get(self.plan.tol_on, math.inf)
        self.small = self.small + 1 if watched <= self.plan.tol else 0
        self.last = objective
        return self.small >= PATIENCE_ON_TOL

    def _separates(self, step: Step) -> bool:
        """Every row's loss is below its value at margin 0: then there is no minimum, only ever larger weights."""
        o = self.objective
        at_zero = {"log": math.log(2.0), "exponential": 1.0}.get(o.learner.loss.name)
        if at_zero is None or o.l1 or o.l2 or o.p:
            return False
        return step.objective * o.weight_sum < at_zero * o.data.least_weight

    def _overfits(self, held_out: float) -> str | None:
        if held_out < self.best_loss:
            self.best_loss, self.best, self.stalled = held_out, self.solver.w.copy(), 0
            return None
        self.stalled += 1
        if self.stalled < self.plan.patience:
            return None
        return f"stopped early: no improvement on held-out rows in {self.plan.patience} iterations"
