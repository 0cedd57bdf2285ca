"""The executor of batch solvers: each round is one iteration of a solver over all rows.

There is one record per iteration, with the names of an epoch's record and `gradient`, the length of the gradient as a
share of its first length; `gd` adds `gradient_norm`, the length itself. Training stops when the chosen quantity falls
to `tol`, when a solver is done, when the classes prove separable without a penalty, or after `max_iter` iterations.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from steepest.data.chunk import Array
from steepest.data.source import Source
from steepest.engine.checkpoint import Place
from steepest.engine.history import History, Record
from steepest.engine.loop import Executor, Log, Save
from steepest.engine.stopping import Plan
from steepest.errors import NotConverged

TOLERANCES = ("auto", "gradient", "objective", "parameters")
MEASURE = "the gradient's share of its first length"  # what `gradient` is, unless the solver says otherwise
PATIENCE_ON_TOL = 2  # small steps in a row before the objective or the parameters count as unchanging


@dataclass(slots=True)
class Weights:
    """The weights of a batch solver, with a last row for the bias, and the solver's state."""

    w: Array
    state: Mapping[str, Array]

    @classmethod
    def restored(cls, state: Mapping[str, Array]) -> Weights:
        """The weights of a checkpoint; the solver restores itself from the same state."""
        return cls(np.array(state["w"]) if "w" in state else np.zeros(0), state)

    def clone(self) -> Weights:
        """A copy of the weights without the solver's state, for early stopping to return to."""
        w = self.w.copy()
        return Weights(w, {"w": w})


class Iterations(Executor):
    """Runs a batch solver: each round is one of its iterations over all rows."""

    unit = "iteration"

    def __init__(
        self,
        solver: Any,  # a Solver and its Objective; see learners/batch/solvers.py
        objective: Any,
        *,
        tol: float = 1e-6,
        tol_on: str = "auto",
        measure: Callable[[Array, Source], float] | None = None,
        all_steps: bool = False,
    ) -> None:
        self.solver, self.objective = solver, objective
        self.all_steps = all_steps  # whether there is no tolerance: as many steps as planned
        self.tol, self.tol_on = tol, tol_on
        self.place = Place()
        self.max_iter = 0
        self._measure = measure
        self._step: Any = None
        self._last, self._small = math.inf, 0
        self._gradient: float | None = None  # of the last iteration
        self._measure_name = getattr(solver, "measure", MEASURE)

    @property
    def learner(self) -> Weights:
        """The solver's weights and state, for checkpoints and early stopping."""
        return Weights(self.solver.w, self.solver.state)

    def resume(self, learner: Weights, place: Place, history: History) -> str:
        """Restores the solver; the stopping rule is replayed from the records."""
        self.solver.restore(learner.state)
        self.place = place
        for record in history:
            self._unchanging(record["objective"], record["moved"])
            self._gradient = record["gradient"]
        return f"resumed after iteration {place.epoch}"

    def finished(self, plan: Plan) -> bool:
        """Whether `max_iter` iterations are done."""
        self.max_iter = plan.epochs
        return self.place.epoch >= plan.epochs

    def fell_short(self) -> str | None:
        """Warns that the tolerance was not reached, and returns the sentence for the history."""
        if self.all_steps:
            return None
        reached = "" if self._gradient is None else f" ({self._measure_name} is {self._gradient:.1e})"
        sentence = (
            f"stopped after max_iter={self.max_iter} iterations, before tol={self.tol:g} was reached{reached}; "
            "give a larger max_iter or tol, or scale the columns to about one"
        )
        warnings.warn(sentence, NotConverged, stacklevel=2)
        return sentence

    def run_round(self, log: Log, save: Save) -> Record:
        """Runs one iteration; the record has the same names as that of an epoch."""
        started = time.perf_counter()
        step = self._step = self.solver.step()
        self._gradient = step.gradient
        seconds = time.perf_counter() - started
        self.place = Place(self.place.epoch + 1)
        objective, w = self.objective, self.solver.w
        passes, objective.passes = objective.passes, 0
        shown = {} if math.isnan(step.norm) else {"gradient_norm": step.norm}
        return {
            "epoch": self.place.epoch,
            "rows": objective.data.n_rows,
            "loss": step.objective - self.penalty(),
            "objective": step.objective,
            "gradient": step.gradient,
            **shown,
            "eta": step.eta,
            "moved": step.moved,
            "passes": passes,
            "nonzeros": int(np.count_nonzero(w[:-1])),
            "seconds": seconds,
            "rows_per_second": passes * objective.data.n_rows / seconds if seconds > 0 else math.nan,
        }

    def measure(self, validation: Source) -> float:
        """The mean loss on held-out rows, by the function given to the constructor."""
        assert self._measure is not None
        return self._measure(self.solver.w, validation)

    def penalty(self) -> float:
        """The penalty of the current weights."""
        w = self.solver.w
        return float(self.objective.smooth_penalty(w) + self.objective.one_norm(w))

    def stop(self) -> str | None:
        """The reason to stop: the tolerance is reached, the solver is done, or the weights grow without bound."""
        step, n = self._step, self.place.epoch
        if step.done is not None:
            return f"stopped after iteration {n}: {step.done}"
        if self.all_steps:
            return None
        unchanging = self._unchanging(step.objective, step.moved)
        if self.tol_on in ("auto", "gradient") and step.gradient <= self.tol:
            self.converged = True
            return f"converged in {n} iterations: {self._measure_name} is down to {step.gradient:.1e}"
        if unchanging:
            self.converged = True
            what = "objective" if self.tol_on == "objective" else "parameters"
            return f"converged in {n} iterations: the {what} changed by less than tol={self.tol:g}"
        if self._separates(step.objective):
            return (
                f"stopped after iteration {n}: all rows are classified correctly, so without a penalty the weights "
                "would grow for ever; give alpha > 0"
            )
        return None

    def _unchanging(self, objective: float, moved: float) -> bool:
        change = abs(self._last - objective) / max(abs(objective), 1e-300) if math.isfinite(self._last) else math.inf
        watched = {"objective": change, "parameters": moved}.get(self.tol_on, math.inf)
        self._small = self._small + 1 if watched <= self.tol else 0
        self._last = objective
        return self._small >= PATIENCE_ON_TOL

    def _separates(self, objective: float) -> bool:
        """Whether all rows are classified correctly without a penalty, so that weights would grow without end."""
        o = self.objective
        at_zero = {"log": math.log(2.0), "exponential": 1.0}.get(o.learner.loss.name)
        if at_zero is None or o.l1 or o.l2 or o.p or o.kinked is not None:
            return False
        return bool(objective * o.weight_sum < at_zero * o.data.least_weight)
