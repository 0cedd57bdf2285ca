"""Gradient descent: proximal and accelerated for smooth losses; subgradients with given steps for the others.

ProximalGradient: w <- prox(u - eta g(u)) from an extrapolated point u (Beck and Teboulle, 2009), with backtracking on
eta and a restart when the objective rises (O'Donoghue and Candes, 2015). The error falls like 1/k^2, and linearly
under strong convexity. It takes every penalty, since the prox of each is known; steps are divided by the mean of x^2.
Subgradient: w <- w - eta_k g with a schedule; the answer is the average of the iterates that weighs late ones more,
whose error falls like 1/k under an l2 penalty and like 1/sqrt(k) otherwise (Lacoste-Julien et al., 2012).
"""

from __future__ import annotations

import math

import numpy as np

from steepest.data.chunk import Array
from steepest.errors import ParameterError
from steepest.learners.batch.objective import Objective
from steepest.learners.batch.search import relative_change, scaled_norm
from steepest.learners.batch.solvers import KINKED, Solver, SolverOptions, Step, share_of
from steepest.learners.penalties import Penalty, soft_threshold
from steepest.learners.resumable import Resumable

GROW = 1.25  # the step may grow again by this factor each iteration
MOST_HALVINGS = 60


def make_gd(objective: Objective, options: SolverOptions) -> Solver:
    """Subgradients where the loss has kinks or the schedule is given, proximal steps otherwise."""
    kinked = objective.settings.loss in KINKED
    return (Subgradient if kinked or options.schedule != "auto" else ProximalGradient)(objective, options)


class ProximalGradient(Resumable):
    """State and step of accelerated proximal gradient descent."""

    state_arrays = ("w", "ahead")
    state_numbers = ("momentum", "eta", "value", "first")

    def __init__(self, objective: Objective, options: SolverOptions) -> None:
        self.objective = objective
        self.scale = objective.scale()
        self.prox_p = objective.p if 1 < objective.p < 2 else 0.0  # too steep at zero for a gradient
        if self.prox_p:
            objective.p = 0.0
        self.w = objective.start()
        self.ahead, self.momentum, self.eta = self.w.copy(), 1.0, options.eta0 or 1.0
        self.value = self._total(self.w, objective.evaluate(self.w)[0])
        self.first = 0.0

    def _penalty(self) -> Penalty:
        return Penalty("lp", p=self.prox_p)

    def _total(self, w: Array, smooth: float) -> float:
        if self.prox_p:
            return smooth + self.objective.alpha * self._penalty().value(w[:-1])
        return smooth + self.objective.one_norm(w)

    def _prox(self, w: Array, eta: float) -> Array:
        steps = eta / self.scale[:-1]
        if self.prox_p:
            w[:-1] = self._penalty().prox(w[:-1], self.objective.alpha * steps)
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
        return Step(self.value, share_of(self.mapping, self.first), self.eta / GROW, moved)

    def _descend(self, u: Array) -> tuple[Array, float]:
        smooth, gradient = self.objective.evaluate(u)
        new, total = u, math.inf
        for _ in range(MOST_HALVINGS):
            new = self._prox(u - self.eta * gradient / self.scale, self.eta)
            change = new - u
            length = float(np.vdot(change, self.scale * change))
            value, _ = self.objective.evaluate(new)
            total = self._total(new, value)
            model = smooth + float(np.vdot(gradient, change)) + length / (2.0 * self.eta)
            if value <= model + 1e-13 * abs(smooth):
                break
            self.eta *= 0.5
        self.mapping = math.sqrt(length) / self.eta
        self.first = self.first or self.mapping
        return new, total


class Subgradient(Resumable):
    """State and step of subgradient descent; `w` is the weighted average of the iterates."""

    state_arrays = ("w", "current")
    state_numbers = ("k", "first")

    def __init__(self, objective: Objective, options: SolverOptions) -> None:
        self.objective = objective
        self.scale = np.ones(objective.shape) if objective.l2 else objective.scale()
        self.current = objective.start()
        self.w = self.current.copy()
        self.k = 0
        self.schedule = self._resolve(options)
        self.eta0 = options.eta0
        self.first = 0.0

    def _resolve(self, options: SolverOptions) -> str:
        if options.schedule == "adaptive":
            raise ParameterError("solver='gd' has no schedule='adaptive'; give 'auto', 'constant' or 'invsqrt'")
        if options.schedule != "auto":
            return options.schedule
        return "strong" if self.objective.l2 else "invsqrt"

    def _eta(self) -> float:
        k = self.k
        eta0 = 1.0 if self.eta0 is None else self.eta0
        if self.schedule == "strong":
            # 2 / (l2 (k + 1)), but no longer than a step that is safe at the start
            return min(2.0 / (self.objective.l2 * (k + 1)), 1e3 * eta0)
        if self.schedule == "invsqrt":
            return eta0 / math.sqrt(1.0 + k)
        if self.schedule == "constant":
            return eta0
        return eta0 / (1.0 + eta0 * max(self.objective.l2, 1e-12) * k)

    def step(self) -> Step:
        """One subgradient, one step of the schedule."""
        value, g = self.objective.evaluate(self.current)
        if self.objective.l1:
            g[:-1] += self.objective.l1 * np.sign(self.current[:-1])
        eta = self._eta()
        before = self.w
        self.current = self.current - eta * g / self.scale
        self.k += 1
        share = 2.0 / (self.k + 1.0)
        self.w = (1.0 - share) * self.w + share * self.current
        norm = scaled_norm(g, self.scale)
        self.first = self.first or norm
        if not math.isfinite(value):
            self.current, self.w = self.objective.start(), before
            return Step(value, 1.0, eta, 0.0, "the steps are too long and scores overflowed; lower eta0")
        total = self.objective.evaluate(self.w)[0] + self.objective.one_norm(self.w)
        return Step(total, share_of(norm, self.first), eta, relative_change(self.w, before))
