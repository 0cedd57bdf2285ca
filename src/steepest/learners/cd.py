"""Coordinate descent for sparse models: Newton's model of the objective, minimised feature by feature.

Each step makes the quadratic model of the mean loss at the current weights, adds l1 |w|_1 + l2/2 |w|^2, and descends
along one feature after the other, with soft thresholds; then it searches along the line to the model's minimum (Yuan,
Ho and Lin, "An improved GLMNET for L1-regularized logistic regression", 2012). Only features that are in use or that
most want to be are visited (as in Massias, Gramfort and Salmon, "Celer", 2018): the working set.
Invariant: the objective never rises. Left out: losses with kinks, the softmax, rows that do not fit into memory.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from steepest import kernels
from steepest.data.chunk import Array, Chunk
from steepest.data.parameters import ParameterError
from steepest.learners.batch import Step
from steepest.learners.cd_faces import MOST_FEATURES, QuadraticModel, model_matrix
from steepest.learners.linear_state import SOFTMAX
from steepest.learners.losses import Loss
from steepest.learners.objective import Objective
from steepest.learners.rows_in_memory import all_rows, for_each, targets_of

LEAST_SET = 512  # features in the first working set
GROWTH = 2  # times the features in use, later
MOST_CYCLES = 200
CYCLES_OF_FEW = 20  # before so few features that their model fits into a matrix are solved for as a whole
INNER_SHARE = 0.03  # of the violation of the optimality conditions that the model's solution may leave
DECREASE, MOST_BACKTRACKS = 0.01, 40
LIFT = 1e-12  # added to second derivatives, so that a loss that is flat somewhere has a model all the same


class CdProblem:
    """Rows with targets for one output, their scores, and the weights found so far."""

    def __init__(
        self,
        rows: Chunk,
        columns: Chunk,
        y: Array,
        loss: Loss,
        l1: float,
        l2: float,
        *,
        parameter: float = 0.0,
        fit_intercept: bool = True,
        bias: float = 0.0,
    ) -> None:
        n = rows.n_rows
        self.rows, self.columns, self.y, self.loss, self.parameter = rows, columns, y, loss, parameter
        self.l1, self.l2, self.fit_intercept = l1, l2, fit_intercept
        self.share = np.full(n, 1.0 / n) if rows.weight is None else rows.weight / rows.weight.sum()
        self.w, self.bias = np.zeros(rows.n_features), bias
        self.scores = np.full(n, bias)
        self.value, self.slopes = self._judge(self.scores, self.w)
        self.left = math.inf  # the violation of the optimality conditions
        self.moved = math.inf
        self.stuck = False
        self._look()

    def start_from(self, w: Array, bias: float) -> None:
        """Goes on from these weights."""
        self.w, self.bias, self.scores = w.copy(), bias, np.full(len(self.scores), bias)
        columns = self.columns
        kernels.dual_gather(columns.indptr, columns.indices, columns.values, self.w, self.scores)
        self.value, self.slopes = self._judge(self.scores, self.w)
        self._look()

    def step(self) -> None:
        """One model, its minimum, and the best point on the way there."""
        chosen = self._working_set()
        h = (self.share * (self._curvature() + LIFT)).astype(np.float32)
        diagonal, w, bias = np.zeros(len(self.w)), self.w.copy(), np.array([self.bias])
        arrays = (self.columns.indptr, self.columns.indices, self.columns.values)
        kernels.cd_diagonal(*arrays, chosen, h, diagonal)
        enough = INNER_SHARE * float(self.violations[chosen].sum() + abs(self.bias_slope))
        few = len(chosen) <= MOST_FEATURES
        left = kernels.cd_cycles(
            *arrays,
            chosen,
            self.gradient,
            diagonal,
            w,
            np.zeros(len(h), np.float32),
            h,
            bias,
            bias_slope=self.bias_slope,
            l1=self.l1,
            l2=self.l2,
            fit_intercept=self.fit_intercept,
            cycles=CYCLES_OF_FEW if few else MOST_CYCLES,
            enough=enough,
        )
        if few and left > enough:
            self._minimise_exactly(chosen, h, w, bias, enough)
        self._search(w - self.w, float(bias[0]) - self.bias)

    def _minimise_exactly(self, chosen: Array, h: Array, w: Array, bias: Array, enough: float) -> None:
        """Features that say nearly the same take cycles without end; of few, the model is solved as a whole."""
        matrix = model_matrix(self.columns, chosen, h.astype(np.float64))
        slope = np.append(self.gradient[chosen], self.bias_slope)
        model = QuadraticModel(matrix, slope, self.l1, self.l2, self.fit_intercept)
        found = model.minimum(np.append(self.w[chosen], self.bias), np.append(w[chosen], bias), enough)
        w[chosen], bias[0] = found[:-1], found[-1]

    def _working_set(self) -> Array:
        """Features in use, and those that most want to be."""
        used = self.w != 0
        wanted = np.flatnonzero((self.violations > 0) & ~used)
        most = max(LEAST_SET, GROWTH * int(used.sum()))
        if len(wanted) > most:
            wanted = wanted[np.argpartition(self.violations[wanted], -most)[-most:]]
        return np.sort(np.concatenate([np.flatnonzero(used), wanted]))

    def _search(self, change: Array, bias_change: float) -> None:
        along = np.full(len(self.scores), bias_change)
        columns = self.columns
        kernels.dual_gather(columns.indptr, columns.indices, columns.values, change, along)
        slope = float((self.gradient + self.l2 * self.w) @ change) + self.bias_slope * bias_change
        slope += self.l1 * float(np.abs(self.w + change).sum() - np.abs(self.w).sum())
        t = 1.0
        for _ in range(MOST_BACKTRACKS if slope < 0 else 0):
            scores, w = self.scores + t * along, self.w + t * change
            value, slopes = self._judge(scores, w)
            if value <= self.value + DECREASE * t * slope:
                self.moved = t * math.sqrt(float(change @ change) / max(float(w @ w), 1e-300))
                self.w, self.bias, self.scores = w, self.bias + t * bias_change, scores
                self.value, self.slopes = value, slopes
                self._look()
                return
            t *= 0.5
        self.stuck, self.moved = True, 0.0

    def _look(self) -> None:
        """The gradient, and how far each feature is from its optimality condition."""
        rows, slopes, self.gradient = self.rows, self.slopes, np.zeros(len(self.w))
        kernels.dual_gather(rows.indptr, rows.indices, rows.values, slopes, self.gradient)
        self.bias_slope = float(slopes.sum()) if self.fit_intercept else 0.0
        slope = self.gradient + self.l2 * self.w
        self.violations = np.where(
            self.w != 0, np.abs(slope + self.l1 * np.sign(self.w)), np.maximum(np.abs(slope) - self.l1, 0.0)
        )
        self.left = float(self.violations.sum()) + abs(self.bias_slope)

    def _judge(self, scores: Array, w: Array) -> tuple[float, Array]:
        """The objective, and the slope of every row's part of it."""
        losses, slopes = kernels.loss_value_slope(self.loss.code, self.parameter, scores, self.y)
        penalty = self.l1 * float(np.abs(w).sum()) + 0.5 * self.l2 * float(w @ w)
        return float(self.share @ losses) + penalty, self.share * slopes

    def _curvature(self) -> Array:
        return second_derivative(self.loss.name, self.scores, self.y, self.parameter)


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
    n_entries = int(rows.indptr[-1] - rows.indptr[0])
    columns = Chunk(
        np.empty(rows.n_features + 1, np.int64),
        np.empty(n_entries, np.int32),
        np.empty(n_entries, np.float32),
        rows.n_rows,
    )
    kernels.transpose(rows.indptr, rows.indices, rows.values, columns.indptr, columns.indices, columns.values)
    return columns


class CoordinateDescent:
    """The solver: one problem an output, side by side on `n_threads` threads."""

    def __init__(self, objective: Objective) -> None:
        if objective.target_kind == SOFTMAX:
            raise ParameterError("solver='cd' learns one class against the rest; give multi_class='ovr'")
        settings = objective.settings
        self.objective = objective
        self.w = objective.start()
        rows = all_rows(objective.data)
        columns = transposed(rows)
        self.problems = [
            CdProblem(
                rows,
                columns,
                targets_of(objective, rows, output),
                objective.learner.loss,
                objective.l1,
                objective.l2,
                parameter=settings.loss_parameter,
                fit_intercept=settings.fit_intercept,
                bias=float(self.w[-1, output]),
            )
            for output in range(objective.n_outputs)
        ]
        self.first = sum(problem.left for problem in self.problems)
        if objective.warm is not None:
            for output, problem in enumerate(self.problems):
                problem.start_from(self.w[:-1, output], float(self.w[-1, output]))

    def step(self) -> Step:
        """One step of every output that can still be improved."""
        for_each(CdProblem.step, [p for p in self.problems if not p.stuck], self.objective.n_threads)
        for output, problem in enumerate(self.problems):
            self.w[:-1, output], self.w[-1, output] = problem.w, problem.bias
        self.objective.passes += 1
        value, left = sum(p.value for p in self.problems), sum(p.left for p in self.problems)
        done = "no step lowers the objective any more" if all(p.stuck for p in self.problems) else None
        share = left / self.first if self.first > 0 else 0.0
        return Step(value, share, 1.0, max(p.moved for p in self.problems), done)

    @property
    def state(self) -> Mapping[str, Array]:
        """The weights and scores, and where it started."""
        return {
            "w": self.w,
            "scores": np.array([p.scores for p in self.problems]),
            "first": np.array([self.first]),
        }

    def restore(self, state: Mapping[str, Array]) -> None:
        """Goes on from there."""
        self.w, self.first = np.array(state["w"]), float(state["first"][0])
        for output, problem in enumerate(self.problems):
            problem.w, problem.bias = self.w[:-1, output].copy(), float(self.w[-1, output])
            problem.scores = np.array(state["scores"][output])
            problem.value, problem.slopes = problem._judge(problem.scores, problem.w)
            problem._look()
