"""Coordinate descent for sparse models: Newton's model of the objective, minimised feature by feature.

Each step makes the quadratic model of the mean loss at the current weights, adds l1 |w|_1 + l2/2 |w|^2, and descends
along one feature after the other, with soft thresholds; then it searches along the line to the model's minimum (Yuan,
Ho and Lin, "An improved GLMNET for L1-regularized logistic regression", 2012). Only features that are in use or that
most want to be are visited (as in Massias, Gramfort and Salmon, "Celer", 2018): the working set.
Invariant: the objective never rises. Left out: losses with kinks, the softmax, rows that do not fit into memory.
"""

from __future__ import annotations

import math

import numpy as np

from steepest import kernels
from steepest.data.chunk import Array, Chunk
from steepest.learners.batch.cd_faces import MOST_FEATURES, QuadraticModel, model_matrix
from steepest.learners.batch.objective import Objective
from steepest.learners.batch.per_output import OutputData, PerOutputSolver
from steepest.learners.batch.solvers import SolverOptions, Step, share_of
from steepest.learners.resumable import Resumable

LEAST_SET = 512  # features in the first working set
GROWTH = 2  # times the features in use, later
MOST_CYCLES = 200
CYCLES_OF_FEW = 20  # before so few features that their model fits into a matrix are solved for as a whole
INNER_SHARE = 0.03  # of the violation of the optimality conditions that the model's solution may leave
DECREASE, MOST_BACKTRACKS = 0.01, 40
LIFT = 1e-12  # added to second derivatives, so that a loss that is flat somewhere has a model all the same


class CdProblem(Resumable):
    """Rows with targets for one output, their scores, and the weights found so far."""

    state_arrays = ("w", "scores")
    state_numbers = ("bias",)

    def __init__(self, data: OutputData, columns: Chunk) -> None:
        n = data.rows.n_rows
        self.data, self.columns, self.shares = data, columns, data.shares
        self.native_columns = columns.as_rows()
        self.left = math.inf  # the violation of the optimality conditions
        self.moved = math.inf
        self.stuck = False
        self.start_from(np.zeros(data.rows.n_features), data.bias, np.full(n, data.bias))

    def start_from(self, w: Array, bias: float, scores: Array | None = None) -> None:
        """Goes on from these weights, and computes their scores unless they are given."""
        if scores is None:
            scores = self._scores(w, bias)
        self._move(w, bias, scores, *self._evaluate(scores, w))

    def _scores(self, w: Array, bias: float) -> Array:
        """w.x + bias of every row."""
        scores = np.full(self.data.rows.n_rows, bias)
        kernels.add_rows(self.native_columns, w, scores)
        return scores

    def step(self) -> None:
        """Minimises one quadratic model and moves to the best point on the way to its minimum."""
        chosen = self._working_set()
        data = self.data
        bend = second_derivative(data.loss.name, self.scores, data.y, data.parameter)
        h = (self.shares * (bend + LIFT)).astype(np.float32)
        diagonal, w, bias = np.zeros(len(self.w)), self.w.copy(), np.array([self.bias])
        kernels.cd_diagonal(self.native_columns, chosen, h, diagonal)
        enough = INNER_SHARE * float(self.violations[chosen].sum() + abs(self.bias_gradient))
        few = len(chosen) <= MOST_FEATURES
        model = kernels.CdModel(
            gradient=self.gradient,
            diagonal=diagonal,
            w=w,
            u=np.zeros(len(h), np.float32),
            h=h,
            bias=bias,
            bias_gradient=self.bias_gradient,
            l1=data.l1,
            l2=data.l2,
            fit_intercept=data.fit_intercept,
        )
        left = kernels.cd_cycles(self.native_columns, chosen, model, CYCLES_OF_FEW if few else MOST_CYCLES, enough)
        if few and left > enough:
            self._minimise_exactly(chosen, h, w, bias, enough)
        self._search(w - self.w, float(bias[0]) - self.bias)

    def _minimise_exactly(self, chosen: Array, h: Array, w: Array, bias: Array, enough: float) -> None:
        """Features that say nearly the same take cycles without end; of few, the model is solved as a whole."""
        matrix = model_matrix(self.columns, chosen, h.astype(np.float64))
        gradient = np.append(self.gradient[chosen], self.bias_gradient)
        model = QuadraticModel(matrix, gradient, self.data.l1, self.data.l2, self.data.fit_intercept)
        found = model.minimum(np.append(self.w[chosen], self.bias), np.append(w[chosen], bias), enough)
        w[chosen], bias[0] = found[:-1], found[-1]

    def _working_set(self) -> Array:
        """Features in use, and those that most want to be."""
        used = self.w != 0
        candidates = np.flatnonzero((self.violations > 0) & ~used)
        most = max(LEAST_SET, GROWTH * int(used.sum()))
        if len(candidates) > most:
            candidates = candidates[np.argpartition(self.violations[candidates], -most)[-most:]]
        return np.sort(np.concatenate([np.flatnonzero(used), candidates]))

    def _search(self, change: Array, bias_change: float) -> None:
        data = self.data
        along = self._scores(change, bias_change)
        derivative = float((self.gradient + data.l2 * self.w) @ change) + self.bias_gradient * bias_change
        derivative += data.l1 * float(np.abs(self.w + change).sum() - np.abs(self.w).sum())
        t = 1.0
        for _ in range(MOST_BACKTRACKS if derivative < 0 else 0):
            scores, w = self.scores + t * along, self.w + t * change
            value, gradients = self._evaluate(scores, w)
            if value <= self.value + DECREASE * t * derivative:
                self.moved = t * math.sqrt(float(change @ change) / max(float(w @ w), 1e-300))
                self._move(w, self.bias + t * bias_change, scores, value, gradients)
                return
            t *= 0.5
        self.stuck, self.moved = True, 0.0

    def _move(self, w: Array, bias: float, scores: Array, value: float, gradients: Array) -> None:
        """Sets the weights; computes their gradient and each feature's violation of its optimality condition."""
        data, rows = self.data, self.data.rows
        self.w, self.bias, self.scores, self.value = w, bias, scores, value
        self.gradient = np.zeros(len(w))
        kernels.add_rows(rows.as_rows(), gradients, self.gradient)
        self.bias_gradient = float(gradients.sum()) if data.fit_intercept else 0.0
        g = self.gradient + data.l2 * w
        self.violations = np.where(w != 0, np.abs(g + data.l1 * np.sign(w)), np.maximum(np.abs(g) - data.l1, 0.0))
        self.left = float(self.violations.sum()) + abs(self.bias_gradient)

    def _evaluate(self, scores: Array, w: Array) -> tuple[float, Array]:
        """The objective, and the gradient of every row's part of it by its score."""
        data = self.data
        losses, gradients = kernels.loss_value_gradient(data.loss.code, data.parameter, scores, data.y)
        penalty = data.l1 * float(np.abs(w).sum()) + 0.5 * data.l2 * float(w @ w)
        return float(self.shares @ losses) + penalty, self.shares * gradients

    def restored(self) -> None:
        """Recomputes value and gradient from the scores, whose bits depend on the way to the weights."""
        self.start_from(self.w, self.bias, self.scores)


def second_derivative(loss: str, z: Array, y: Array, parameter: float) -> Array:
    """d^2 loss / dz^2, where there is one; the one from within at the edges."""
    if loss == "log":
        e = np.exp(-np.abs(z))
        return np.asarray(e / np.square(1.0 + e))
    if loss == "poisson":
        return np.asarray(np.exp(z))
    if loss == "exponential":
        return np.asarray(np.exp(-y * z))
    if loss == "huber":
        return np.where(np.abs(z - y) <= parameter, 1.0, 0.0)
    if loss == "squared":
        return np.ones(len(z))
    inside = y * z < 1
    return np.where(inside & (y * z >= -1) if loss == "modified_huber" else inside, 2.0, 0.0)


def transposed(rows: Chunk) -> Chunk:
    """The columns of a block, as rows of another."""
    return Chunk(*kernels.transpose(rows.as_rows(), rows.n_features), rows.n_rows)


class CoordinateDescent(PerOutputSolver[CdProblem]):
    """The batch solver "cd": each step takes one step of every output's problem."""

    name = "cd"
    state_numbers = ("first",)

    def __init__(self, objective: Objective, options: SolverOptions) -> None:
        super().__init__(objective, options)
        columns = transposed(self.outputs[0].rows)
        self.problems = [CdProblem(data, columns) for data in self.outputs]
        self.first = sum(problem.left for problem in self.problems)
        if objective.warm is not None:
            for output, problem in enumerate(self.problems):
                problem.start_from(self.w[:-1, output].copy(), float(self.w[-1, output]))

    def step(self) -> Step:
        """One step of every output that can still be improved."""
        self.each(CdProblem.step, [p for p in self.problems if not p.stuck])
        self.w = self.joined((p.w, p.bias) for p in self.problems)
        self.objective.passes += 1
        value, left = sum(p.value for p in self.problems), sum(p.left for p in self.problems)
        done = "no step lowers the objective any more" if all(p.stuck for p in self.problems) else None
        return Step(value, share_of(left, self.first), 1.0, max(p.moved for p in self.problems), done)
