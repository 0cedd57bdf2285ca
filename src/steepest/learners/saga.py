"""SAGA: stochastic steps whose noise vanishes, because every row's last slope is remembered and averaged.

w <- flow(w - eta (g - old g) x), where flow takes the mean of the remembered gradients and the penalty into account
(Defazio, Bach and Lacoste-Julien, "SAGA: a fast incremental gradient method", 2014; native/saga_kernels.cpp says how
sparse rows are visited at the cost of their non-zeros). The step is 1 / (3 L) with L the largest curvature of a row,
so nothing needs tuning; where the loss has no such bound, L is taken at the start and doubled if the objective rises.
Invariant: the weights shown are the best seen. Left out: the softmax, losses with kinks, and rows that do not fit.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from steepest import kernels
from steepest.data.chunk import Array, Chunk
from steepest.data.parameters import ParameterError
from steepest.learners.batch import Step
from steepest.learners.linear_state import SOFTMAX
from steepest.learners.losses import Loss
from steepest.learners.objective import Objective
from steepest.learners.penalties import soft_threshold
from steepest.learners.rows_in_memory import all_rows, for_each, row_squares, targets_of

V, MEAN, PAID = range(3)  # the columns of a feature, as in dual_table.h
FEATURE_COLUMNS = 4
EPOCHS_PER_STEP = 4  # between two looks at the objective, each of which costs a pass
MOST_HALVINGS = 40


class SagaProblem:
    """Rows with targets for one output, and what SAGA remembers of them."""

    def __init__(
        self,
        rows: Chunk,
        y: Array,
        loss: Loss,
        l1: float,
        l2: float,
        *,
        parameter: float,
        fit_intercept: bool,
        seed: int,
    ) -> None:
        n = rows.n_rows
        self.rows, self.y, self.loss, self.l1, self.l2, self.parameter = rows, y, loss, l1, l2, parameter
        self.fit_intercept, self.seed, self.epochs = fit_intercept, seed, 0
        self.share = np.ones(n) if rows.weight is None else rows.weight * (n / rows.weight.sum())
        self.squares = row_squares(rows)
        self.slopes = np.zeros(n)
        self.features = np.zeros((rows.n_features, FEATURE_COLUMNS))
        self.bias = np.zeros(2)  # the bias, and the mean slope
        self.eta = math.nan

    def start_from(self, w: Array, bias: float) -> None:
        """Remembers the slopes at these weights."""
        rows, n = self.rows, self.rows.n_rows
        scores = np.empty((n, 1))
        table = np.ascontiguousarray(w[:, None])
        kernels.linear_scores(rows.indptr, rows.indices, rows.values, None, table, 1.0, np.array([bias]), scores, 1)
        self.slopes[:] = self.share * self.loss.slope(scores[:, 0], self.y, self.parameter)
        mean = np.zeros(rows.n_features)
        kernels.dual_gather(rows.indptr, rows.indices, rows.values, self.slopes, mean)
        self.features[:, V], self.features[:, MEAN] = w, mean / n
        self.bias[:] = bias, float(self.slopes.mean()) if self.fit_intercept else 0.0
        if math.isnan(self.eta):
            self.eta = 1.0 / (3.0 * self._largest_curvature(scores[:, 0]))

    def _largest_curvature(self, scores: Array) -> float:
        """Of the loss of a row as a function of the weights."""
        if self.loss.curvature is None:  # of an exponential: its second derivative at the start
            curvature = 2.0 * (np.exp(scores) if self.loss.name == "poisson" else np.exp(-self.y * scores))
        else:
            curvature = np.full(len(scores), self.loss.curvature)
        return float((self.share * curvature * (self.squares + self.fit_intercept)).max()) + self.l2 or 1.0

    def epoch(self) -> bool:
        """As many visits as there are rows, drawn at random; False if the scores overflow."""
        rows, n = self.rows, self.rows.n_rows
        order = np.random.default_rng([self.seed, self.epochs]).integers(0, n, n)
        self.epochs += 1
        done = kernels.saga_epoch(
            rows.indptr,
            rows.indices,
            rows.values,
            self.y,
            self.share,
            order,
            self.slopes,
            self.features,
            self.bias,
            loss=self.loss.code,
            parameter=self.parameter,
            eta=self.eta,
            l1=self.l1,
            l2=self.l2,
            fit_intercept=self.fit_intercept,
        )
        return done == n


def _few_epochs(problem: SagaProblem) -> bool:
    return all(problem.epoch() for _ in range(EPOCHS_PER_STEP))


class Saga:
    """The solver: one problem an output, side by side on `n_threads` threads."""

    def __init__(self, objective: Objective, tol: float, seed: int = 0) -> None:
        if objective.target_kind == SOFTMAX:
            raise ParameterError("solver='saga' learns one class against the rest; give multi_class='ovr'")
        settings = objective.settings
        self.objective, self.halvings = objective, 0
        self.w = objective.start()
        rows = all_rows(objective.data)
        self.problems = [
            SagaProblem(
                rows,
                targets_of(objective, rows, output),
                objective.learner.loss,
                objective.l1,
                objective.l2,
                parameter=settings.loss_parameter,
                fit_intercept=settings.fit_intercept,
                seed=seed,
            )
            for output in range(objective.n_outputs)
        ]
        self._remember()
        self.value, self.first = self._look(self.w)
        if objective.warm is not None:  # progress is counted from the cold start all the same
            self.first = max(self.first, self._look(objective.cold_start())[1])

    def step(self) -> Step:
        """A few epochs and a look at the objective; if it rose, back to where it was with half the step."""
        before = self.w
        fine = all(for_each(_few_epochs, self.problems, self.objective.n_threads))
        w = np.empty_like(self.w)
        for output, problem in enumerate(self.problems):
            w[:-1, output], w[-1, output] = problem.features[:, V], problem.bias[0]
        value, left = self._look(w) if fine else (math.inf, math.inf)
        self.objective.passes += EPOCHS_PER_STEP
        share = left / self.first if self.first > 0 else 0.0
        if not value <= self.value * (1 + 1e-12):
            return self._retreat(value)
        self.w, self.value = w, value
        moved = float(np.linalg.norm(w - before) / max(float(np.linalg.norm(w)), 1e-300))
        return Step(value, share, self.problems[0].eta, moved, "the gradient is zero" if left == 0 else None)

    def _retreat(self, value: float) -> Step:
        """Near the optimum rounding alone may raise the objective: then the work is done."""
        self.halvings += 1
        if value <= self.value * (1 + 1e-9) or self.halvings > MOST_HALVINGS:
            return Step(self.value, 1.0, 0.0, 0.0, "no step lowers the objective any more")
        for problem in self.problems:
            problem.eta /= 2
        self._remember()
        return Step(self.value, 1.0, self.problems[0].eta, 0.0)

    def _remember(self) -> None:
        for output, problem in enumerate(self.problems):
            problem.start_from(self.w[:-1, output], float(self.w[-1, output]))

    def _look(self, w: Array) -> tuple[float, float]:
        """The objective, and the length of its least subgradient."""
        value, gradient = self.objective.evaluate(w)
        weights, slope = w[:-1], gradient[:-1]
        if self.objective.l1:
            at_zero = soft_threshold(slope, self.objective.l1)
            slope = np.where(weights == 0, at_zero, slope + self.objective.l1 * np.sign(weights))
        length = math.sqrt(float(np.vdot(slope, slope)) + float(np.vdot(gradient[-1], gradient[-1])))
        return value + self.objective.one_norm(w), length

    @property
    def state(self) -> Mapping[str, Array]:
        """What is remembered, output by output, and the weights."""
        return {
            "slopes": np.array([p.slopes for p in self.problems]),
            "features": np.array([p.features for p in self.problems]),
            "bias": np.array([p.bias for p in self.problems]),
            "progress": np.array([[p.eta, float(p.epochs)] for p in self.problems]),
            "looks": np.array([self.value, self.first, float(self.halvings)]),
            "w": self.w,
        }

    def restore(self, state: Mapping[str, Array]) -> None:
        """Goes on from there."""
        self.w = np.array(state["w"])
        self.value, self.first, halvings = (float(number) for number in state["looks"])
        self.halvings = int(halvings)
        for number, problem in enumerate(self.problems):
            problem.slopes[:], problem.features[:] = state["slopes"][number], state["features"][number]
            problem.bias[:] = state["bias"][number]
            problem.eta, problem.epochs = float(state["progress"][number][0]), int(state["progress"][number][1])
