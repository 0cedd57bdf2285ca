"""Gradient descent: proximal and accelerated for smooth losses; subgradients with given steps for the others.

GradientDescent, the textbook's: w <- w - eta_k g from w = 0, for as many steps as asked, and the last w is the answer
(average=False with a given step or schedule). A step that is too long is not shortened: the objective grows in the
history, a warning says so, and the last weights within `LARGEST` are kept.

ProximalGradient: w <- prox(u - eta g(u)) from an extrapolated point u (Beck and Teboulle, 2009), with backtracking on
eta and a restart when the objective rises (O'Donoghue and Candes, 2015). The error falls like 1/k^2, and linearly
under strong convexity. It takes every penalty, since the prox of each is known, also in the metric of the steps, which
are divided by the mean of x^2.
Subgradient: w <- w - eta_k g with a schedule; the answer is the average of the iterates that weighs late ones more,
whose error falls like 1/k under an l2 penalty and like 1/sqrt(k) otherwise (Lacoste-Julien et al., 2012). Under a norm
of all weights, proximal steps behind the method of multipliers take its place.
"""

from __future__ import annotations

import math
from functools import partial

import numpy as np

from steepest.data.chunk import Array
from steepest.errors import ParameterError
from steepest.learners.batch.kinks import Multipliers
from steepest.learners.batch.objective import Objective
from steepest.learners.batch.search import relative_change, scaled_norm
from steepest.learners.batch.solvers import KINKED, Solver, SolverOptions, Step, share_of
from steepest.learners.penalties import Penalty, soft_threshold
from steepest.learners.resumable import Resumable

GROW = 1.25  # the step may grow again by this factor each iteration
MOST_HALVINGS = 60
LARGEST = 1e30  # of a weight: beyond, float32 would soon show infinity


def make_gd(objective: Objective, options: SolverOptions) -> Solver:
    """Plain steps if requested, subgradients where the loss has kinks or a schedule is given, else proximal steps."""
    kinked = objective.settings.loss in KINKED
    if not options.average and (kinked or options.schedule != "auto" or options.eta0 is not None):
        return GradientDescent(objective, options)
    if kinked and objective.kinked is not None and options.schedule == "auto":
        return Multipliers(objective, partial(ProximalGradient, options=options))
    return (Subgradient if kinked or options.schedule != "auto" else ProximalGradient)(objective, options)


def _named_schedule(objective: Objective, options: SolverOptions) -> str:
    """The schedule of the steps; "auto" is constant for a given step, else by what holds the weights back."""
    if options.schedule == "adaptive":
        raise ParameterError("solver='gd' has no schedule='adaptive'; give 'auto', 'constant' or 'invsqrt'")
    if options.schedule != "auto":
        return options.schedule
    if not options.average and options.eta0 is not None:
        return "constant"
    return "strong" if objective.l2 else "invsqrt"


def _step_length(schedule: str, eta0: float | None, l2: float, k: int) -> float:
    """The step after k steps."""
    eta0 = 1.0 if eta0 is None else eta0
    if schedule == "strong":
        # 2 / (l2 (k + 1)), but no longer than a step that is safe at the start
        return min(2.0 / (l2 * (k + 1)), 1e3 * eta0)
    if schedule == "invsqrt":
        return eta0 / math.sqrt(1.0 + k)
    if schedule == "constant":
        return eta0
    return eta0 / (1.0 + eta0 * max(l2, 1e-12) * k)


def _add_kinks(objective: Objective, w: Array, g: Array) -> None:
    """Adds a subgradient of the penalties that the objective's gradient leaves out."""
    if objective.kinked is not None:
        g[:-1] += objective.alpha * objective.kinked.gradient(w[:-1])
    elif objective.l1:
        g[:-1] += objective.l1 * np.sign(w[:-1])


class GradientDescent(Resumable):
    """State and step of gradient descent as the textbooks have it (Daume, 2012, algorithms 22 and 23).

    The objective is the mean loss plus alpha R(w); a textbook that adds losses up takes steps n times as short.
    """

    state_arrays = ("w",)
    state_numbers = ("k", "first", "first_value")
    takes_all_steps = True  # unless a tolerance is given
    complaint: str | None = None  # what the user should be warned of

    def __init__(self, objective: Objective, options: SolverOptions) -> None:
        self.objective = objective
        self.schedule, self.eta0 = _named_schedule(objective, options), options.eta0
        self.w = np.zeros(objective.shape) if objective.warm is None else objective.start()
        self.k = 0
        self.value, self.gradient = self._evaluate(self.w)
        self.first, self.first_value = float(np.linalg.norm(self.gradient)), self.value

    def _evaluate(self, w: Array) -> tuple[float, Array]:
        value, g = self.objective.evaluate(w)
        _add_kinks(self.objective, w, g)
        return value + self.objective.one_norm(w), g

    def step(self) -> Step:
        """One step down the gradient; objective and gradient are those of where it leads."""
        eta, before = _step_length(self.schedule, self.eta0, self.objective.l2, self.k), self.w
        self.k += 1
        new = before - eta * self.gradient
        value, gradient = self._evaluate(new)
        if not math.isfinite(value) or float(np.abs(new).max()) > LARGEST:
            self.complaint = (
                f"gradient descent diverged: after {self.k} steps numbers overflow, because the step {eta:g} is too "
                "long; the last finite weights were kept, lower eta0"
            )
            return self._report(eta, 0.0, self.complaint)
        self.w, self.value, self.gradient = new, value, gradient
        self.complaint = None
        if value > self.first_value:
            self.complaint = (
                f"gradient descent diverges: the objective rose from {self.first_value:.6g} to {value:.6g} in {self.k} "
                f"steps, because the step {eta:g} is too long; lower eta0"
            )
        return self._report(eta, relative_change(new, before), None)

    def _report(self, eta: float, moved: float, done: str | None) -> Step:
        norm = float(np.linalg.norm(self.gradient))
        return Step(self.value, share_of(norm, self.first), eta, moved, done, norm=norm)

    def restored(self) -> None:
        """Recomputes value and gradient."""
        self.value, self.gradient = self._evaluate(self.w)


class ProximalGradient(Resumable):
    """State and step of accelerated proximal gradient descent."""

    state_arrays = ("w", "ahead")
    state_numbers = ("momentum", "eta", "value", "first_norm")

    def __init__(self, objective: Objective, options: SolverOptions, start: Array | None = None) -> None:
        self.objective = objective
        self.scale = objective.scale()
        if 1 < objective.p < 2:  # too steep at zero for a gradient
            objective.kinked, objective.p = Penalty("lp", p=objective.p), 0.0
        self.w = objective.start() if start is None else start.copy()
        self.ahead, self.momentum, self.eta = self.w.copy(), 1.0, options.eta0 or 1.0
        self.value = objective.evaluate(self.w)[0] + objective.one_norm(self.w)
        self.first_norm = 0.0  # the length of the first step over its size, by which progress is measured
        if start is not None:  # inside another method, which compares what is left with this
            self._descend(self.w)

    def _prox(self, w: Array, eta: float) -> Array:
        steps = eta / self.scale[:-1]
        if self.objective.kinked is not None:
            w[:-1] = self.objective.kinked.prox(w[:-1], self.objective.alpha * steps)
        elif self.objective.l1:
            w[:-1] = soft_threshold(w[:-1], self.objective.l1 * steps)
        return w

    def step(self) -> Step:
        """One backtracked step from the extrapolated point; again from the last one if the objective rose."""
        new, total = self._descend(self.ahead)
        if total > self.value and self.momentum > 1:
            self.momentum = 1.0
            new, total = self._descend(self.w)
        if total >= self.value and np.array_equal(new, self.w):
            return Step(self.value, 0.0, self.eta, 0.0, "no step lowers the objective any more")
        moved = relative_change(new, self.w)
        momentum = 0.5 * (1.0 + math.sqrt(1.0 + 4.0 * self.momentum**2))
        self.ahead = new + ((self.momentum - 1.0) / momentum) * (new - self.w)
        self.w, self.value, self.momentum = new, total, momentum
        self.eta *= GROW
        return Step(self.value, share_of(self.mapping, self.first_norm), self.eta / GROW, moved, norm=self.norm)

    def _descend(self, u: Array) -> tuple[Array, float]:
        smooth, gradient = self.objective.evaluate(u)
        new, total = u, math.inf
        for _ in range(MOST_HALVINGS):
            new = self._prox(u - self.eta * gradient / self.scale, self.eta)
            change = new - u
            length = float(np.vdot(change, self.scale * change))
            value, _ = self.objective.evaluate(new)
            total = value + self.objective.one_norm(new)
            model = smooth + float(np.vdot(gradient, change)) + length / (2.0 * self.eta)
            if value <= model + 1e-13 * abs(smooth):
                break
            self.eta *= 0.5
        self.mapping = math.sqrt(length) / self.eta
        self.norm = float(np.linalg.norm(self.scale * change)) / self.eta  # of the gradient, if nothing has kinks
        self.first_norm = self.first_norm or self.mapping
        return new, total


class Subgradient(Resumable):
    """State and step of subgradient descent; `w` is the weighted average of the iterates."""

    state_arrays = ("w", "current")
    state_numbers = ("k", "first")
    complaint: str | None = None  # what the user should be warned of

    def __init__(self, objective: Objective, options: SolverOptions) -> None:
        self.objective = objective
        self.scale = np.ones(objective.shape) if objective.l2 else objective.scale()
        self.current = objective.start()
        self.w = self.current.copy()
        self.k = 0
        self.schedule = _named_schedule(objective, options)
        self.eta0 = options.eta0
        self.first = 0.0

    def step(self) -> Step:
        """One subgradient, one step of the schedule."""
        value, g = self.objective.evaluate(self.current)
        _add_kinks(self.objective, self.current, g)
        eta = _step_length(self.schedule, self.eta0, self.objective.l2, self.k)
        before = self.w
        self.current = self.current - eta * g / self.scale
        self.k += 1
        share = 2.0 / (self.k + 1.0)
        self.w = (1.0 - share) * self.w + share * self.current
        norm = scaled_norm(g, self.scale)
        self.first = self.first or norm
        if not math.isfinite(value):
            self.current, self.w = self.objective.start(), before
            self.complaint = "the steps are too long and scores overflowed; lower eta0"
            return Step(value, 1.0, eta, 0.0, self.complaint)
        total = self.objective.evaluate(self.w)[0] + self.objective.one_norm(self.w)
        length = float(np.linalg.norm(g))
        return Step(total, share_of(norm, self.first), eta, relative_change(self.w, before), norm=length)
