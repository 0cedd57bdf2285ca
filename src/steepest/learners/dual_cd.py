"""Dual coordinate descent: the exact optimum of one dual variable after the other, with a certificate.

Minimises mean loss + alpha/2 |w|^2 over w and a free bias b. With C_i = weight_i / (alpha sum of weights) the dual is
    largest of -1/2 |sum beta_i x_i|^2 - sum C_i l*(-beta_i / C_i)  subject to  sum beta_i = 0,    w = sum beta_i x_i,
(Hsieh et al., "A dual coordinate descent method for large-scale linear SVM", 2008; Yu, Huang and Lin, 2011, for the
logistic loss). The constraint belongs to the bias and is met by the method of multipliers: b moves with every variable,
and once more after every sweep by the sum that is left.
Invariant: `gap` bounds the distance of the returned weights from the optimum, whatever happened on the way.
Left out: data that does not fit into memory, penalties other than l2, losses whose dual is neither a box nor logistic.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from steepest import kernels
from steepest.data.chunk import Array, Chunk, DataError
from steepest.learners.losses import LOSSES, Loss

DUAL_LOSSES = (
    "hinge",
    "squared_hinge",
    "log",
    "modified_huber",
    "squared",
    "huber",
    "epsilon_insensitive",
    "quantile",
)
BETA, SQUARE, TARGET, CAP = range(4)  # the columns of a dual row


@dataclass(slots=True)
class DualSolution:
    """Weights, and what the dual knows about them."""

    weights: Array  # of the features
    bias: float
    dual: Array  # beta, one a row: weights = sum of beta x
    objective: float  # mean loss + alpha/2 |w|^2
    gap: float  # the objective is at most this far above the optimum
    sweeps: int
    converged: bool
    slacks: Array  # the loss of each row
    trace: list[dict[str, float]] = field(default_factory=list)

    @property
    def support(self) -> Array:
        """Numbers of the rows that hold the weights."""
        return np.flatnonzero(self.dual)


def solve_dual(
    rows: Chunk,
    y: Array,
    *,
    loss: str,
    alpha: float,
    parameter: float = 0.0,
    weight: Array | None = None,
    fit_intercept: bool = True,
    tol: float = 1e-4,
    most_sweeps: int = 1000,
    seed: int = 0,
    dtype: Any = np.float32,
    bias_square: float | None = None,
    shrink: bool = True,
    timer: Any = None,
) -> DualSolution:
    """Weights whose objective is certified to lie within tol * objective of the optimum (or all sweeps are used)."""
    run = _Dual(rows, y, LOSSES[loss], alpha, parameter, weight, fit_intercept, dtype, seed)
    if bias_square is not None and fit_intercept:
        run.state[:, SQUARE] += bias_square - run.bias_step
        run.bias_step = bias_square
    return run.solve(tol, most_sweeps, shrink, timer)


class _Dual:
    def __init__(
        self,
        rows: Chunk,
        y: Array,
        loss: Loss,
        alpha: float,
        parameter: float,
        weight: Array | None,
        fit_intercept: bool,
        dtype: Any,
        seed: int,
    ) -> None:
        self.rows, self.loss, self.alpha, self.parameter, self.seed = rows, loss, alpha, parameter, seed
        n = rows.n_rows
        share = np.full(n, 1.0 / n) if weight is None else weight / weight.sum()
        self.share, self.y = share, y
        square = row_squares(rows)
        # As much as the mean row weighs: the bias then learns as fast as the other weights together.
        self.bias_step = (float(share @ square) or 1.0) if fit_intercept else 0.0
        self.state = np.column_stack([np.zeros(n), square + self.bias_step, y, share / alpha])
        self.w = np.zeros(rows.n_features, dtype)
        self.bias = np.zeros(2)
        self.active = np.arange(n)
        self.n_active = n

    def solve(self, tol: float, most_sweeps: int, shrink: bool, timer: Any) -> DualSolution:
        bounds = (-math.inf, math.inf)
        scale = self.mean_loss(np.zeros(len(self.y)))
        wanted = tol
        best: DualSolution | None = None
        trace = []
        before = math.inf
        for sweep in range(1, most_sweeps + 1):
            full = self.n_active == len(self.active)
            n_active, status, gap, least, most = kernels.dual_sweep(
                self.rows.indptr, self.rows.indices, self.rows.values, self.state, self.w, self.bias, self.active,
                self.n_active, loss=self.loss.code, parameter=self.parameter, bias_step=self.bias_step,
                least_slope=bounds[0], most_slope=bounds[1], seed=(self.seed << 20) + sweep,
            )
            if status:
                raise DataError("bad")
            self.bias[0] += self.bias_step * self.bias[1]
            estimate = self.alpha * gap
            ahead = 0.5 * estimate if self.n_active * 4 > len(self.active) else 2.0 * estimate
            if self.n_active * 4 > len(self.active):
                ahead = estimate * min(1.0, estimate / before)
            before = estimate
            trace.append((sweep, self.n_active, estimate / scale, self.bias[0], self.bias[1], timer() if timer else 0.0))
            if shrink:
                self.n_active = n_active
                bounds = (least if least < 0 else -math.inf, most if most > 0 else math.inf)
            if ahead <= wanted * scale or sweep == most_sweeps:
                solution = self.certified(sweep)
                solution.trace = trace
                scale = solution.objective
                trace[-1] = trace[-1] + (solution.gap / scale,)
                if best is None or solution.gap < best.gap:
                    best = solution
                if solution.gap <= tol * scale:
                    solution.converged = True
                    return solution
                if full:
                    wanted *= 0.5
                self.n_active = len(self.active)
                bounds = (-math.inf, math.inf)
        best.trace = trace
        return best

    def mean_loss(self, scores: Array) -> float:
        return float(self.share @ self.loss.value(scores, self.y, self.parameter))

    def certified(self, sweeps: int) -> DualSolution:
        beta = self.balanced()
        w = np.zeros(self.rows.n_features)
        kernels.dual_gather(self.rows.indptr, self.rows.indices, self.rows.values, beta, w)
        scores = np.empty((self.rows.n_rows, 1))
        kernels.linear_scores(
            self.rows.indptr, self.rows.indices, self.rows.values, None, w[:, None], self.bias[:1].copy(), scores, 1
        )
        self.state[:, BETA] = beta
        self.w[:] = w
        self.bias[1] = 0.0
        slacks = self.loss.value(scores[:, 0], self.y, self.parameter)
        penalty = 0.5 * self.alpha * float(w @ w)
        objective = float(self.share @ slacks) + penalty
        lower = self.alpha * self.dual_value(beta) - penalty
        return DualSolution(w, float(self.bias[0]), beta, objective, objective - lower, sweeps, False, slacks)

    def balanced(self) -> Array:
        """Dual variables that sum to zero: those of the heavier sign are scaled down, which every box allows."""
        beta = self.state[:, BETA].copy()
        if self.bias_step == 0:
            return beta
        up, down = beta[beta > 0].sum(), -beta[beta < 0].sum()
        beta[beta > 0] *= min(1.0, down / up) if up > 0 else 1.0
        beta[beta < 0] *= min(1.0, up / down) if down > 0 else 1.0
        return beta

    def dual_value(self, beta: Array) -> float:
        """Minus the sum of C l*(-beta / C)."""
        cap, y = self.state[:, CAP], self.y
        name = self.loss.name
        if name == "log":
            p = np.clip(np.divide(y * beta, cap, out=np.zeros_like(cap), where=cap > 0), 0.0, 1.0)
            q = 1.0 - p
            return -float(cap @ (p * np.log(np.where(p > 0, p, 1.0)) + q * np.log(np.where(q > 0, q, 1.0))))
        value = float(beta @ y)
        diagonal = {"squared_hinge": 0.5, "modified_huber": 0.5, "squared": 1.0, "huber": 1.0}.get(name, 0.0)
        if diagonal:
            value -= 0.5 * diagonal * float(np.sum(np.divide(beta**2, cap, out=np.zeros_like(cap), where=cap > 0)))
        if name == "epsilon_insensitive":
            value -= self.parameter * float(np.abs(beta).sum())
        return value


def row_squares(rows: Chunk) -> Array:
    """|x|^2 of every row."""
    squares = np.empty(rows.n_rows)
    kernels.row_squares(rows.indptr, rows.indices, rows.values, squares)
    return squares
