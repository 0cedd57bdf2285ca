"""SAGA: stochastic steps whose noise vanishes, because every row's last gradient is stored and averaged.

w <- flow(w - eta (g - old g) x), where flow takes the mean of the stored gradients and the penalty into account
(Defazio, Bach and Lacoste-Julien, "SAGA: a fast incremental gradient method", 2014; native/batch says how sparse rows
are visited at the cost of their non-zeros). The step is 1 / (3 L) with L the largest curvature of a row, so nothing
needs tuning; where the loss has no such bound, L is taken at the start and doubled if the objective rises.
Invariant: the weights shown are the best seen. Left out: the softmax, losses with kinks, and rows that do not fit.
"""

from __future__ import annotations

import math

import numpy as np

from steepest import kernels
from steepest.data.chunk import Array
from steepest.learners.batch.objective import Objective
from steepest.learners.batch.per_output import OutputData, PerOutputSolver
from steepest.learners.batch.solvers import SolverOptions, Step, share_of
from steepest.learners.resumable import Resumable

V, MEAN = range(2)  # the first columns of a feature, as in batch_table.h
FEATURE_COLUMNS = 4
EPOCHS_PER_STEP = 4  # between two evaluations of the objective, each of which costs a pass
MOST_HALVINGS = 40


class SagaProblem(Resumable):
    """Rows with targets for one output, and what SAGA stores of them."""

    state_arrays = ("gradients", "features", "bias")
    state_numbers = ("eta", "epochs")

    def __init__(self, data: OutputData) -> None:
        n, weight = data.rows.n_rows, data.rows.weight
        self.data, self.epochs = data, 0
        self.shares = np.ones(n) if weight is None else weight * (n / weight.sum())
        self.squares = kernels.row_squares(data.rows.as_rows())
        self.gradients = np.zeros(n)
        self.features = np.zeros((data.rows.n_features, FEATURE_COLUMNS))
        self.bias = np.zeros(2)  # the bias, and the mean gradient
        self.eta = math.nan

    def start_from(self, w: Array, bias: float) -> None:
        """Stores the gradients at these weights."""
        data, rows, n = self.data, self.data.rows, self.data.rows.n_rows
        scores = np.empty((n, 1))
        table = np.ascontiguousarray(w[:, None])
        kernels.linear_scores(rows.as_rows(), table, 1.0, np.array([bias]), scores, 1)
        self.gradients[:] = self.shares * data.loss.gradient(scores[:, 0], data.y, data.parameter)
        mean = np.zeros(rows.n_features)
        kernels.add_rows(rows.as_rows(), self.gradients, mean)
        self.features[:, V], self.features[:, MEAN] = w, mean / n
        self.bias[:] = bias, float(self.gradients.mean()) if data.fit_intercept else 0.0
        if math.isnan(self.eta):
            self.eta = 1.0 / (3.0 * self._largest_curvature(scores[:, 0]))

    def _largest_curvature(self, scores: Array) -> float:
        """The largest curvature of a row's loss and the penalty, which counts no more than the loss.

        Steps are implicit in the penalty, so that any strength of it is stable; a step as short as a strong one asks
        for would leave the bias, which is not penalised, far from its place.
        """
        data = self.data
        if data.loss.curvature is None:  # of an exponential: its second derivative at the start
            curvature = 2.0 * (np.exp(scores) if data.loss.name == "poisson" else np.exp(-data.y * scores))
        else:
            curvature = np.full(len(scores), data.loss.curvature)
        of_loss = float((self.shares * curvature * (self.squares + data.fit_intercept)).max())
        return of_loss + min(data.l2, of_loss) or 1.0

    def epoch(self) -> bool:
        """Visits as many rows as there are, drawn at random; False if the scores overflow."""
        data, rows, n = self.data, self.data.rows, self.data.rows.n_rows
        order = np.random.default_rng([data.seed, self.epochs]).integers(0, n, n)
        self.epochs += 1
        choices = kernels.SagaChoices(
            loss=data.loss.code,
            parameter=data.parameter,
            eta=self.eta,
            l1=data.l1,
            l2=data.l2,
            fit_intercept=data.fit_intercept,
        )
        visits = kernels.Rows(rows.indptr, rows.indices, rows.values, data.y, order=order)
        return kernels.saga_epoch(visits, self.shares, self.gradients, self.features, self.bias, choices) == n

    def few_epochs(self) -> bool:
        """Runs as many epochs as make an evaluation of the objective worth a pass; False if the scores overflow."""
        return all(self.epoch() for _ in range(EPOCHS_PER_STEP))


class Saga(PerOutputSolver[SagaProblem]):
    """The solver: steps of a few epochs, each of which must lower the objective."""

    name = "saga"
    state_numbers = ("value", "first", "halvings")

    def __init__(self, objective: Objective, options: SolverOptions) -> None:
        super().__init__(objective, options)
        self.halvings = 0
        self.problems = [SagaProblem(data) for data in self.outputs]
        self._restart()
        self.value, self.first = self._evaluate(self.w)
        if objective.warm is not None:  # progress is counted from the cold start all the same
            self.first = max(self.first, self._evaluate(objective.cold_start())[1])

    def step(self) -> Step:
        """A few epochs and an evaluation; if the objective rose, back to where it was with half the step."""
        before = self.w
        fine = all(self.each(SagaProblem.few_epochs, self.problems))
        w = self.joined((problem.features[:, V], problem.bias[0]) for problem in self.problems)
        value, left = self._evaluate(w) if fine else (math.inf, math.inf)
        self.objective.passes += EPOCHS_PER_STEP
        if not value <= self.value * (1 + 1e-12):
            return self._retreat(value)
        self.w, self.value = w, value
        moved = float(np.linalg.norm(w - before) / max(float(np.linalg.norm(w)), 1e-300))
        done = "the gradient is zero" if left == 0 else None
        return Step(value, share_of(left, self.first), self.problems[0].eta, moved, done)

    def _retreat(self, value: float) -> Step:
        """Returns to the last state with half the step; ends if only rounding has raised the objective."""
        self.halvings += 1
        if value <= self.value * (1 + 1e-9) or self.halvings > MOST_HALVINGS:
            return Step(self.value, 1.0, 0.0, 0.0, "no step lowers the objective any more")
        for problem in self.problems:
            problem.eta /= 2
        self._restart()
        return Step(self.value, 1.0, self.problems[0].eta, 0.0)

    def _restart(self) -> None:
        for output, problem in enumerate(self.problems):
            problem.start_from(self.w[:-1, output], float(self.w[-1, output]))

    def _evaluate(self, w: Array) -> tuple[float, float]:
        """The objective, and the length of its least subgradient."""
        value, gradient = self.objective.evaluate(w)
        g = self.objective.least_subgradient(w, gradient)[:-1]
        length = math.sqrt(float(np.vdot(g, g)) + float(np.vdot(gradient[-1], gradient[-1])))
        return value + self.objective.one_norm(w), length
