"""Dual coordinate descent: the exact optimum of one dual variable after the other, with a certificate.

Minimises mean loss + alpha/2 |w|^2 over w and a free bias b. With C_i = weight_i / (alpha sum of weights) the dual is
    largest of -1/2 |sum beta_i x_i|^2 - sum C_i l*(-beta_i / C_i)  subject to  sum beta_i = 0,    w = sum beta_i x_i
(Hsieh et al., "A dual coordinate descent method for large-scale linear SVM", 2008; Yu, Huang and Lin, 2011, for the
logistic loss). The constraint belongs to the bias and is met by the method of multipliers: b moves with every variable,
and once more after every sweep by the sum that is left.

Rows of large norm that are nearly parallel (raw measurements beside each other) make the dual so ill conditioned that
sweeps stall, though each step is exact. The primal has one variable per feature, and Newton's method does not mind
units: when a step of a thousand sweeps has not halved the gap, it takes over, and the gradients of the rows' losses at
its weights are the dual variables.
Invariants: the weights shown are the best seen, so the objective never rises; the gap is their distance from the best
bound seen, so it bounds their distance from the optimum, whatever happened on the way.
Left out: data that does not fit into memory, penalties other than l2, losses whose dual is neither a box nor logistic.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from steepest import kernels
from steepest.data.chunk import Array, Chunk
from steepest.errors import DataError
from steepest.learners.batch.dual_faces import Face, minimise
from steepest.learners.batch.kinks import Multipliers
from steepest.learners.batch.newton import NewtonCG
from steepest.learners.batch.objective import Objective
from steepest.learners.batch.per_output import OutputData, PerOutputSolver
from steepest.learners.batch.solvers import KINKED, SolverOptions, Step, share_of
from steepest.learners.resumable import Resumable

BETA, SQUARE = 0, 1  # columns of a dual row; the others are the target and the cap, as in batch_table.h
MOST_SWEEPS = 1000  # in one step
STEP_GAIN = 1e-6  # a step ends when the gap is this share of what it was, or small enough: a certificate costs sweeps
FLOAT32_TOL = 1e-7  # below, rounding of float32 weights between two certificates would be felt
# A step goes further than to its optimum, which the box allows below twice as far, while the gap falls by less than to
# this share in a sweep. Chosen by visits to 1e-5 on 32 problems: 10 % fewer in the mean, from 20 % more to 65 % fewer.
RELAXED, SLOW_FALL = 1.5, 0.6
FACE_ROWS, FACE_PATIENCE = 128, 4  # so few rows left are solved as a whole after so many slow sweeps
MOST_FACE_NUMBERS = 1 << 22
SLOW, PATIENCE = 0.8, 4  # the bias is far off if the sum of beta stays above this share of itself for so many sweeps
MOST_BIAS_GAIN = 1 << 10  # the bias's step may grow so much: beyond, it outweighs every row, and no variable can move
STALLED = 0.5  # a step that leaves more of the gap than this share hands over to Newton's method on the primal
PRIMAL = "primal."  # marks what belongs to that in a state
# The quadratic term of each loss's dual, in units of 1 / C.
DIAGONAL = {"squared_hinge": 0.5, "modified_huber": 0.5, "squared": 1.0, "huber": 1.0}


@dataclass(frozen=True, slots=True)
class Certificate:
    """Weights, and how far they are from the optimum at most."""

    weights: Array
    bias: float
    beta: Array  # one per row: weights = sum of beta x
    objective: float
    gap: float
    slacks: Array  # the loss of each row

    @property
    def relative_gap(self) -> float:
        """The gap as a share of the objective."""
        return self.gap / self.objective if self.objective > 0 else 0.0


class DualProblem(Resumable):
    """Rows with targets for one output, their dual variables, and the weights that follow from them."""

    state_arrays = ("table", "bias", "best_w", "best_beta")
    state_numbers = ("sweeps", "bias_step", "last_sum", "slow_sweeps", "best_bias", "bound")

    def __init__(self, data: OutputData, dtype: Any = np.float32) -> None:
        n, rows = data.rows.n_rows, data.rows
        self.rows, self.loss, self.parameter = rows, data.loss, data.parameter
        self.native_rows = rows.as_rows()
        self.alpha, self.seed = data.l2, data.seed
        self.y = np.ascontiguousarray(data.y, np.float64)
        self.shares = data.shares
        squares = kernels.row_squares(self.native_rows)
        # As much as the mean row weighs: the bias then learns as fast as the other weights together. Under a strong
        # penalty all variables together reach 1 / alpha only, and still must be able to move it by about one.
        self.bias_step = max(float(self.shares @ squares), self.alpha) if data.fit_intercept else 0.0
        self.last_sum, self.slow_sweeps = 0.0, 0
        self.most_bias_step = MOST_BIAS_GAIN * self.bias_step
        self.cap = self.shares / self.alpha
        self.table = np.column_stack([np.zeros(n), squares + self.bias_step, self.y, self.cap])
        self.w = np.zeros(rows.n_features, dtype)
        self.bias = np.array([data.bias, 0.0])  # the bias, and the sum of all beta
        self.active = np.arange(n)
        self.n_active = n
        self.gradient_range = (-math.inf, math.inf)
        self.sweeps = 0
        self.relax = 1.0
        self.scale = float(self.shares @ self.loss.value(np.zeros(n), data.y, self.parameter)) or 1.0
        self.bound = -math.inf  # no weights have a smaller objective
        self.best_w, self.best_beta, self.best_bias = np.zeros(rows.n_features), np.zeros(n), data.bias
        self.certificate: Certificate | None = None

    # ------------------------------------------------------------------------------------------------ optimisation

    def reach(self, target_gap: float) -> Certificate:
        """Sweeps until the gap seems to be `target_gap` times the objective, and finds out whether it is."""
        target, before, found, slow = target_gap, math.inf, None, 0
        self.active = np.arange(len(self.active))  # so that a run taken up again draws the same orders
        self.visit_all()
        self.relax = 1.0
        for _ in range(MOST_SWEEPS):
            few, all_visited = 4 * self.n_active < len(self.active), self.n_active == len(self.active)
            estimate = self.sweep()
            # The estimate is from before the sweep. If few rows were visited, to know for certain costs far more than
            # another sweep; otherwise it is worth a certificate as soon as this sweep may have been enough.
            falling = min(1.0, estimate / max(before, 1e-300)) if math.isfinite(before) else 1.0
            expected = 4.0 * estimate if few else estimate * falling
            before = estimate
            self.relax = RELAXED if falling > SLOW_FALL else 1.0
            slow = slow + 1 if falling > SLOW_FALL and self.n_active <= FACE_ROWS else 0
            if slow >= FACE_PATIENCE:
                self.descend_face()
                slow = 0
            if expected > target * self.scale:
                continue
            found = self.certify()
            if found.relative_gap <= target_gap:
                return found
            if all_visited:
                target *= 0.5
            self.visit_all()
        return self.certify() if found is None or found.relative_gap > target_gap else found

    def sweep(self) -> float:
        """One visit of each active row, in random order; returns an estimate of the gap before it."""
        self.sweeps += 1
        choices = kernels.DualChoices(
            loss=self.loss.code,
            parameter=self.parameter,
            bias_step=self.bias_step,
            least_gradient=self.gradient_range[0],
            most_gradient=self.gradient_range[1],
            relax=self.relax,
        )
        state, seed = (self.table, self.w, self.bias), (self.seed << 24) + self.sweeps
        n_active, status, gap, least, most = kernels.dual_sweep(
            self.native_rows, *state, self.active, self.n_active, choices, seed
        )
        if status:
            raise DataError("the scores overflow; scale the features to about one, or give a larger alpha")
        self.n_active = n_active
        self.gradient_range = (least if least < 0 else -math.inf, most if most > 0 else math.inf)
        self._move_bias()
        return self.alpha * gap

    def _move_bias(self) -> None:
        """The step of the method of multipliers; it grows if the sum hardly falls for several sweeps."""
        total = float(self.bias[1])
        self.bias[0] += self.bias_step * total
        slow = total * self.last_sum > 0 and abs(total) > SLOW * abs(self.last_sum)
        self.slow_sweeps, self.last_sum = self.slow_sweeps + 1 if slow else 0, total
        if self.slow_sweeps >= PATIENCE and self.bias_step < self.most_bias_step:
            self.table[:, SQUARE] += self.bias_step
            self.bias_step *= 2.0
            self.slow_sweeps = 0

    def descend_face(self) -> None:
        """The minimum over the variables between their bounds, found at once."""
        if self.loss.name == "log":
            return
        at = np.sort(self.active[: self.n_active])
        at = at[self.cap[at] > 0]
        entries = int((self.rows.indptr[at + 1] - self.rows.indptr[at]).sum())
        if not 0 < len(at) * entries <= MOST_FACE_NUMBERS:
            return
        X, columns = _dense(self.rows, at)
        beta, cap = self.table[at, BETA], self.cap[at]
        low, high = box(self.loss.name, self.parameter, self.y[at], cap)
        diagonal = DIAGONAL.get(self.loss.name, 0.0) / cap
        gradient = X @ self.w[columns].astype(np.float64) + self.bias[0] - self.y[at] + diagonal * beta
        width = self.parameter if self.loss.name == "epsilon_insensitive" else 0.0
        face = Face(beta, low, high, gradient, width, diagonal)
        found, shift = minimise(face, X @ X.T, float(self.bias[1]) if self.bias_step > 0 else None)
        self.table[at, BETA] = found
        self.w[columns] += (X.T @ (found - beta)).astype(self.w.dtype)
        self.bias += [shift, float((found - beta).sum())] if self.bias_step > 0 else 0.0

    def visit_all(self) -> None:
        """Ends the shrinking: every row is visited again."""
        self.n_active = len(self.active)
        self.gradient_range = (-math.inf, math.inf)

    # -------------------------------------------------------------------------------------------------- certificate

    def certify(self, beta: Array | None = None) -> Certificate:
        """The best weights so far, those that follow from the dual variables now included, and a bound on their gap."""
        beta = self.balanced(self.table[:, BETA]) if beta is None else beta
        found = self._evaluate(beta, float(self.bias[0]))
        # What rounding has done to the running weights ends here.
        self.table[:, BETA], self.w[:], self.bias[1] = beta, found.weights, 0.0
        self.scale = found.objective or 1.0
        return self._keep_best(found)

    def certify_primal(self, w: Array, bias: float, gradients: Array) -> Certificate:
        """Like `certify`, for given weights; the gradients of the rows' losses there are the dual variables."""
        beta = self.balanced(-self.cap * gradients)
        dual = self._evaluate(beta, bias)
        objective, slacks = self._objective(w, bias)
        self.bound = max(self.bound, dual.objective - dual.gap)
        return self._keep_best(Certificate(w, bias, beta, objective, objective - self.bound, slacks))

    def _keep_best(self, found: Certificate) -> Certificate:
        self.bound = max(self.bound, found.objective - found.gap)
        best = self.certificate
        if best is None or found.objective < best.objective:
            best, self.best_w, self.best_beta, self.best_bias = found, found.weights, found.beta, found.bias
        self.certificate = replace(best, gap=max(0.0, best.objective - self.bound))
        return self.certificate

    def _evaluate(self, beta: Array, bias: float) -> Certificate:
        """Weights built anew from dual variables, their objective, and a bound from below by the dual."""
        w = np.zeros(self.rows.n_features)
        kernels.add_rows(self.native_rows, beta, w)
        objective, slacks = self._objective(w, bias)
        penalty = 0.5 * self.alpha * float(w @ w)
        gap = max(0.0, objective + penalty - self.alpha * self.dual_value(beta))
        return Certificate(w, bias, beta, objective, gap, slacks)

    def _objective(self, w: Array, bias: float) -> tuple[float, Array]:
        """(objective, loss of each row)."""
        scores = np.empty((self.rows.n_rows, 1))
        kernels.linear_scores(self.native_rows, np.ascontiguousarray(w)[:, None], 1.0, np.array([bias]), scores, 1)
        slacks = np.asarray(self.loss.value(scores[:, 0], self.y, self.parameter))
        return float(self.shares @ slacks) + 0.5 * self.alpha * float(w @ w), slacks

    def balanced(self, beta: Array) -> Array:
        """Dual variables that sum to zero: those of the heavier sign are scaled down, which every box allows."""
        beta = beta.copy()
        if self.bias_step == 0:
            return beta
        up, down = float(beta[beta > 0].sum()), -float(beta[beta < 0].sum())
        beta[beta > 0] *= min(1.0, down / up) if up > 0 else 1.0
        beta[beta < 0] *= min(1.0, up / down) if down > 0 else 1.0
        return beta

    def dual_value(self, beta: Array) -> float:
        """-sum C l*(-beta / C)."""
        cap = self.cap
        part = beta / np.where(cap > 0, cap, 1.0)  # beta / C
        if self.loss.name == "log":
            p = np.clip(self.y * part, 0.0, 1.0)
            q = 1.0 - p
            return -float(cap @ (p * np.log(np.where(p > 0, p, 1.0)) + q * np.log(np.where(q > 0, q, 1.0))))
        value = float(beta @ self.y) - 0.5 * DIAGONAL.get(self.loss.name, 0.0) * float(beta @ part)
        if self.loss.name == "epsilon_insensitive":
            value -= self.parameter * float(np.abs(beta).sum())
        return value

    def restored(self) -> None:
        """The weights follow from the dual variables, which were balanced when they were saved."""
        objective, slacks = self._objective(self.best_w, self.best_bias)
        gap = objective - self.bound
        best = Certificate(self.best_w, self.best_bias, self.best_beta, objective, gap, slacks)
        self.certificate = best if math.isfinite(self.bound) else None
        self.certify(self.table[:, BETA].copy())


def box(loss: str, parameter: float, y: Array, cap: Array) -> tuple[Array, Array]:
    """The bounds of the dual variables of a loss."""
    up, none = np.where(y > 0, cap, 0.0), np.full(len(y), math.inf)
    return {
        "hinge": (up - cap, up),
        "squared_hinge": (np.where(y > 0, 0.0, -none), np.where(y > 0, none, 0.0)),
        "modified_huber": (4 * (up - cap), 4 * up),
        "squared": (-none, none),
        "huber": (-parameter * cap, parameter * cap),
        "epsilon_insensitive": (-cap, cap),
        "quantile": ((parameter - 1) * cap, parameter * cap),
    }[loss]


def _dense(rows: Chunk, at: Array) -> tuple[Array, Array]:
    """(these rows over the columns that they have, those columns)."""
    spans = [slice(rows.indptr[i], rows.indptr[i + 1]) for i in at]
    indices = np.concatenate([rows.indices[span] for span in spans])
    columns, places = np.unique(indices, return_inverse=True)
    numbers = np.repeat(np.arange(len(at)), [span.stop - span.start for span in spans])
    X = np.zeros((len(at), len(columns)))
    np.add.at(X, (numbers, places), np.concatenate([rows.values[span] for span in spans]))
    return X, columns


class DualCD(PerOutputSolver[DualProblem]):
    """The solver: sweeps of every output until its gap is small enough."""

    name = "dual_cd"
    measure = "the duality gap's share of the objective"
    state_numbers = ("target_gap",)

    def __init__(self, objective: Objective, options: SolverOptions) -> None:
        super().__init__(objective, options)
        self.target_gap = 1.0
        self.primal: Multipliers | NewtonCG | None = None  # takes over when sweeps stall
        dtype = np.float32 if options.tol >= FLOAT32_TOL else np.float64
        self.problems = [DualProblem(data, dtype) for data in self.outputs]

    def step(self) -> Step:
        """Sweeps until the gap of every output is within the tolerance, or a millionth of what it was."""
        self.target_gap = max(self.tol, STEP_GAIN * self.target_gap)
        before, sweeps, gap_before = self.w, sum(problem.sweeps for problem in self.problems), self._relative_gap()
        if self.primal is not None:
            found = self._primal_step()
        else:
            found = self.each(self._reach, self.problems)
            self.objective.passes += sum(problem.sweeps for problem in self.problems) - sweeps
        self.w = self.joined((certificate.weights, certificate.bias) for certificate in found)
        value, left = sum(c.objective for c in found), self._relative_gap()
        done = f"the duality gap is {left:.1e} of the objective" if left <= self.tol else None
        if done is None and self.primal is None and left > STALLED * gap_before:
            self.primal = self._make_primal()
        moved = float(np.linalg.norm(self.w - before) / max(float(np.linalg.norm(self.w)), 1e-300))
        return Step(value, left, 1.0, moved, done)

    def _relative_gap(self) -> float:
        """The sum of all gaps as a share of the sum of the objectives; 1 before there is one."""
        found = [p.certificate for p in self.problems if p.certificate is not None]
        return share_of(sum(c.gap for c in found), sum(c.objective for c in found)) if found else 1.0

    def _reach(self, problem: DualProblem) -> Certificate:
        done = problem.certificate
        return done if done is not None and done.relative_gap <= self.target_gap else problem.reach(self.target_gap)

    def _make_primal(self) -> Multipliers | NewtonCG:
        cold = self.objective.cold_start()
        # Far out, where a loss is flat, Newton's method would be lost.
        self.objective.warm = min(self.w, cold, key=lambda w: self.objective.evaluate(w)[0])
        kinked = self.objective.settings.loss in KINKED
        return Multipliers(self.objective, NewtonCG) if kinked else NewtonCG(self.objective)

    def _primal_step(self) -> list[Certificate]:
        """One round of Newton's method, whose rows' gradients are dual variables."""
        assert self.primal is not None
        self.primal.step()
        w = self.primal.w
        primal = self.primal
        parts = primal.multipliers if isinstance(primal, Multipliers) else self.objective.row_gradients(w)
        gradients = np.concatenate(parts)
        return [
            problem.certify_primal(w[:-1, k].copy(), float(w[-1, k]), gradients[:, k])
            for k, problem in enumerate(self.problems)
        ]

    @property
    def state(self) -> dict[str, Array]:
        """The states of the problems, and that of Newton's method if it took over."""
        primal = {} if self.primal is None else self.primal.state
        return super().state | {PRIMAL + name: array for name, array in primal.items()}

    def restore(self, state: Mapping[str, Array]) -> None:
        """Restores the solver from a state."""
        super().restore(state)
        primal = {name.removeprefix(PRIMAL): array for name, array in state.items() if name.startswith(PRIMAL)}
        if primal:
            self.primal = self._make_primal()
            self.primal.restore(primal)

    @property
    def findings(self) -> dict[str, Any]:
        """What the dual shows beyond the weights, under the names of the estimator's attributes."""
        found = [p.certificate for p in self.problems if p.certificate is not None]
        duals = np.array([c.beta for c in found])
        return {
            "dual_gap_": float(sum(c.gap for c in found)),
            "dual_coef_": duals,
            "slacks_": np.array([c.slacks for c in found]),
            "support_": np.flatnonzero((duals != 0).any(axis=0)),
        }
