"""The objective of batch solvers: F(w) = mean loss + alpha R(w) over all rows of a source, with its derivatives.

`w` has one row per feature in use (see batch_data) and a last row for the bias, one column per output; everything is
float64. A pass reads every row once: score, loss, gradient by the score, and what the row adds to the gradient by the
weights (or to a product with the Hessian) while it is in cache. Rows in memory are used as they are; others are read
anew in every pass.

Invariant: rows are shared out in blocks to a few lanes that add up in order, and lanes are added in order; the bits of
every sum depend on the rows and their order only, neither on threads nor on chunks. Left out of F and its gradient:
what has kinks, the 1-norm and norms of all weights; solvers that can deal with them find them in `l1` and `kinked`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from steepest import kernels
from steepest.data.chunk import Array, Chunk
from steepest.errors import DataError
from steepest.learners.batch.batch_data import BatchData, add_in_order
from steepest.learners.penalties import Penalty, soft_threshold
from steepest.learners.targets import SOFTMAX, TARGETS

if TYPE_CHECKING:
    from steepest.learners.batch.kinks import SmoothOneNorm

GRADIENT, PRODUCT, DIAGONAL, HESSIAN = 0, 1, 2, 3  # kinds of passes, as in batch_table.h
TOTALS = 3  # loss, loss without smoothing, gap
BLOCK_ROWS = 512
MOST_LANES = 8
# A lane must be cleared and added up in every pass: worth it if it saves the visit of so many entries per weight.
ENTRIES_PER_LANE_WEIGHT = 2
# A Hessian that costs no more than so many visits of an entry for each, and has no more numbers, is formed. On a9a it
# takes 7 visits, as long as three products; a Newton step took five products and the diagonal.
MOST_PAIRS = 10
MOST_HESSIAN_NUMBERS = 1 << 20
SPARSE_SHARE = 0.1  # of non-zeros, below which data counts as sparse


def dot(a: Array, b: Array) -> float:
    """The sum of all products, in one thread: BLAS shares even short sums out, and then waits for busy cores."""
    return float(np.einsum("i,i->", a.ravel(), b.ravel()))


@dataclass(slots=True)
class Pass:
    """What one pass computes from every row, at which weights, and where it is added up."""

    kind: int
    w: Array
    target_kind: int
    totals: Array  # per lane: loss, loss without smoothing, gap
    sums: Array | None  # per lane: gradients, products or squares; None: they are not needed


class Objective:
    """Value, gradient and products with the Hessian of the smooth part of F."""

    def __init__(self, data: BatchData, n_threads: int = 1, *, most_lanes: int = MOST_LANES) -> None:
        learner = data.learner
        settings = learner.settings
        self.data, self.learner, self.n_threads = data, learner, n_threads
        self.settings = settings
        self.l1, self.l2, self.p, self.alpha = settings.l1, settings.l2, settings.p, settings.alpha
        self.kinked = Penalty(settings.norm) if settings.norm else None  # a penalty that only proximal steps know
        self.n_features, self.n_outputs = data.n_features, learner.n_outputs
        self.shape = (self.n_features + 1, self.n_outputs)
        self.fit_intercept = settings.fit_intercept
        self.target_kind = learner.targets.kind
        self.passes = 0
        self.smoothing = 0.0
        self.shifts: list[Array] | None = None
        self.smooth_one_norm: SmoothOneNorm | None = None  # takes the place of the 1-norm while it is set
        self.warm: Array | None = None  # weights from which a solver that can do so starts
        self.plain_loss = self.gap = math.nan  # of the last evaluation: mean loss without smoothing, gap
        self._curvature: list[Array] = []
        self.curvature_at: Array | None = None
        n_lanes = max(1, min(most_lanes, data.n_entries // (ENTRIES_PER_LANE_WEIGHT * (self.n_features + 1))))
        self.sums = np.zeros((n_lanes, *self.shape))  # what the last pass added up, lane by lane
        self.weight_sum = self.weigh()
        if not self.weight_sum > 0:
            raise DataError("the weights of all rows are zero; nothing can be learned from them")

    # ------------------------------------------------------------------------------------------------- the value

    def evaluate(self, w: Array, *, curvature: bool = False) -> tuple[float, Array]:
        """F(w) without the 1-norm, and its gradient; infinity where scores overflow.

        With `curvature`, products with the Hessian at this w can follow.
        """
        totals = self.add_gradients(w, curvature=curvature)
        if totals is None:
            return math.inf, np.zeros(self.shape)
        total = totals / self.weight_sum
        self.plain_loss, self.gap = float(total[1]), float(total[2])
        gradient = self._reduced()
        with np.errstate(over="ignore", invalid="ignore"):
            gradient[:-1] += self.penalty_gradient(w[:-1])
            value = float(total[0]) + self.smooth_penalty(w)
        return (value if math.isfinite(value) and np.isfinite(gradient).all() else math.inf), gradient

    def add_gradients(self, w: Array, *, curvature: bool = False) -> Array | None:
        """One pass: gradients into the lanes, and the sums of the losses; None where scores overflow."""
        this = self._new_pass(GRADIENT, w)
        stored: list[Array] = []
        for number, (start, chunk) in enumerate(self._chunks()):
            at = self._per_row(chunk) if curvature and self.data.in_memory else None
            if not self._visit(this, number, start, chunk, curvature=at):
                return None
            if at is not None:
                stored.append(at)
        if curvature:
            self._curvature, self.curvature_at = stored, w.copy()
        return np.asarray(this.totals.sum(axis=0))

    def row_gradients(self, w: Array) -> list[Array]:
        """The gradient of every row's (smoothed) loss with respect to its scores, chunk by chunk."""
        this = self._new_pass(GRADIENT, w, adds=False)
        found = []
        for number, (start, chunk) in enumerate(self._chunks()):
            found.append(self._per_row(chunk))
            self._visit(this, number, start, chunk, gradients=found[-1])
        return found

    def product(self, v: Array) -> Array:
        """The Hessian at the last evaluation with curvature, times v."""
        self._second_order(self._new_pass(PRODUCT, v))
        out = self._reduced()
        bend = self._penalty_curvature()
        if not isinstance(bend, float) or bend:
            out[:-1] += bend * v[:-1]
        return out

    def diagonal(self) -> Array:
        """The diagonal of that Hessian; one where a weight has no influence."""
        self._second_order(self._new_pass(DIAGONAL, np.zeros(self.shape)))
        out = self._reduced()
        out[:-1] += self._penalty_curvature()
        return np.where(out > 0, out, 1.0)

    @property
    def forms_hessian(self) -> bool:
        """Whether a Hessian costs little more than a few products with it: few features, short rows."""
        width = self.n_features + 1
        numbers, entries = self.n_outputs * width * (width + 1), self.data.n_entries
        few = numbers <= min(MOST_HESSIAN_NUMBERS, self.n_outputs * entries)
        return few and self.target_kind != SOFTMAX and self.data.n_pairs <= MOST_PAIRS * entries

    def hessian(self) -> Array:
        """The Hessian at the last evaluation with curvature, one matrix per output; outputs do not touch each other."""
        width, k = self.n_features + 1, self.n_outputs
        lanes = max(1, min(len(self.sums), self.data.n_pairs // (ENTRIES_PER_LANE_WEIGHT * width * width)))
        sums = np.zeros((lanes, k, width * (width + 1)))
        totals = np.zeros((lanes, TOTALS))
        self._second_order(Pass(HESSIAN, np.zeros(self.shape), self.target_kind, totals, sums))
        total = sums[0]
        for lane in sums[1:]:
            total += lane
        total /= self.weight_sum
        pairs = total[:, : width * width].reshape(k, width, width)
        out: Array = pairs + pairs.transpose(0, 2, 1)
        places = np.arange(width)
        out[:, places, places] += total[:, width * width :]
        if not self.fit_intercept:
            out[:, -1], out[:, :, -1] = 0.0, 0.0
        out[:, places[:-1], places[:-1]] += np.broadcast_to(self._penalty_curvature(), (self.n_features, k)).T
        return out

    @property
    def sparse(self) -> bool:
        """Whether few of the values are not zero."""
        return self.data.n_entries < SPARSE_SHARE * self.data.n_rows * self.n_features

    def scale(self, power: float = 0.5) -> Array:
        """A positive scale for each weight: the curvature that it would see alone, which makes units irrelevant.

        Of sparse data a power of that. The root was chosen by passes to a gap of 1e-6 on 50,000 RCV1-shaped generated
        rows: L-BFGS needed 13 to 74, with the curvature itself 16 to 90, without a scale 18 to 121. Other data was not
        tried.
        """
        self.add_squares()
        scale = self._reduced() * (self.learner.loss.curvature or 1.0)
        scale[:-1] += self.l2
        scale = np.where(scale > 0, scale, 1.0)
        if not self.sparse:
            return np.asarray(scale)
        return np.asarray(np.sqrt(scale) if power == 0.5 else scale**power)

    def inverse_spread(self) -> Array:
        """One over the root of each feature's mean square: what moves the scores by about one; 0 where all are zero."""
        self.add_squares()
        squares = self._reduced()
        return np.asarray(np.where(squares > 0, 1.0 / np.sqrt(np.where(squares > 0, squares, 1.0)), 0.0))

    def add_squares(self) -> None:
        """One pass: the squares of all values into the lanes."""
        this = self._new_pass(DIAGONAL, np.zeros(self.shape))
        this.target_kind = TARGETS
        for number, (start, chunk) in enumerate(self._chunks()):
            self._visit(this, number, start, chunk, curvature=np.ones((chunk.n_rows, self.n_outputs)))

    # ----------------------------------------------------------------------------------------------- the penalty

    def smooth_penalty(self, w: Array) -> float:
        """The penalty terms that are differentiable: l2 and lp."""
        weights = w[:-1]
        if self.p:
            return self.alpha / self.p * float((np.abs(weights) ** self.p).sum())
        smooth = 0.0 if self.smooth_one_norm is None else self.smooth_one_norm.value(weights)
        return smooth + (0.5 * self.l2 * dot(weights, weights) if self.l2 else 0.0)

    def one_norm(self, w: Array) -> float:
        """The penalty terms that are not differentiable: the 1-norm, or a norm of all weights."""
        if self.kinked is not None:
            return self.alpha * self.kinked.value(w[:-1])
        return self.l1 * float(np.abs(w[:-1]).sum()) if self.l1 else 0.0

    def penalty_gradient(self, weights: Array) -> Array | float:
        """The gradient of the differentiable penalty terms."""
        if self.p:
            return np.asarray(self.alpha * np.sign(weights) * np.abs(weights) ** (self.p - 1.0))
        gradient = self.l2 * weights if self.l2 else 0.0
        return gradient if self.smooth_one_norm is None else gradient + self.smooth_one_norm.gradient(weights)

    def least_subgradient(self, w: Array, gradient: Array) -> Array:
        """The shortest subgradient of F plus the 1-norm, from the gradient of F."""
        if not self.l1:
            return gradient
        out, weights = gradient.copy(), w[:-1]
        at_zero = soft_threshold(gradient[:-1], self.l1)
        out[:-1] = np.where(weights != 0, gradient[:-1] + self.l1 * np.sign(weights), at_zero)
        return out

    def conjugate_penalty(self, g: Array) -> float:
        """Largest of g.w - penalty(w) over all w: what the dual subtracts. Infinite where nothing holds w back."""
        if self.p > 1:
            power = self.p / (self.p - 1.0)
            return float(self.alpha ** (1.0 - power) / power) * float((np.abs(g) ** power).sum())
        beyond = np.maximum(np.abs(g) - self.l1, 0.0)
        if self.l2:
            return 0.5 / self.l2 * dot(beyond, beyond)
        return math.inf if beyond.any() else 0.0

    def _penalty_curvature(self) -> Array | float:
        at = self.curvature_at
        if self.p:
            assert at is not None
            return np.asarray(self.alpha * (self.p - 1.0) * np.abs(at[:-1]) ** (self.p - 2.0))
        if self.smooth_one_norm is not None:
            assert at is not None
            return self.l2 + self.smooth_one_norm.curvature(at[:-1])
        return self.l2

    # -------------------------------------------------------------------------------------------------- the passes

    def _chunks(self) -> Iterator[tuple[int, Chunk]]:
        self.passes += 1
        return self.data.passes()

    def _new_pass(self, kind: int, w: Array, *, adds: bool = True) -> Pass:
        """A pass that adds up in the objective's own lanes, or only computes numbers per row."""
        if adds:
            self.sums.fill(0.0)
        totals = np.zeros((len(self.sums), TOTALS))
        return Pass(kind, w, self.target_kind, totals, self.sums if adds else None)

    def _per_row(self, chunk: Chunk) -> Array:
        return np.empty((chunk.n_rows, self.n_outputs))

    def summed(self) -> Array:
        """The lanes added up in order."""
        out: Array = self.sums[0].copy()
        for lane in self.sums[1:]:
            out += lane
        return out

    def _reduced(self) -> Array:
        """The lanes added up in order, divided by the total weight of the rows."""
        if len(self.sums) == 1:
            out: Array = self.sums[0] / self.weight_sum
        else:
            out = self.summed()
            out /= self.weight_sum
        if not self.fit_intercept:
            out[-1] = 0.0
        return out

    def _second_order(self, this: Pass) -> None:
        """A pass that needs the curvature of every row's loss; it is recomputed where it is not stored."""
        assert self.curvature_at is not None
        again = Pass(GRADIENT, self.curvature_at, self.target_kind, np.zeros_like(this.totals), None)
        for number, (start, chunk) in enumerate(self._chunks()):
            if self._curvature:
                at = self._curvature[number]
            else:
                at = self._per_row(chunk)
                self._visit(again, number, start, chunk, curvature=at)
            self._visit(this, number, start, chunk, curvature=at)

    def _visit(
        self,
        this: Pass,
        number: int,
        start: int,
        chunk: Chunk,
        *,
        curvature: Array | None = None,
        gradients: Array | None = None,
    ) -> bool:
        """One chunk through the kernel; False if scores overflow."""
        learner = self.learner
        rows = kernels.Rows(chunk.indptr, chunk.indices, chunk.values, chunk.y, chunk.weight, chunk.order)
        native = kernels.BatchPass(
            kind=this.kind,
            weights=this.w,
            n_outputs=self.n_outputs,
            loss=learner.loss.code,
            parameter=learner.settings.loss_parameter,
            target_kind=this.target_kind,
            smoothing=self.smoothing,
            block_rows=BLOCK_ROWS,
            totals=this.totals,
            sums=this.sums,
        )
        shift = None if self.shifts is None else self.shifts[number]
        done = kernels.batch_pass(rows, native, start, shift, curvature, gradients, self.n_threads)
        if done < chunk.n_rows:
            self.data.refuse_bad_row(chunk, done)
        return done == chunk.n_rows

    def weigh(self) -> float:
        """The sum of the rows' weights, class weights included."""
        return self.data.weigh()

    def start(self) -> Array:
        """The starting point of a solver: weights found before, if there are any."""
        return self.cold_start() if self.warm is None else self.warm.copy()

    def cold_start(self) -> Array:
        """Zero weights; the bias of a regression starts at the mean target, or its logarithm for counts."""
        w = np.zeros(self.shape)
        if self.settings.task != "regress" or not self.fit_intercept:
            return w
        mean = self.add_targets() / self.weight_sum
        w[-1] = np.log(np.maximum(mean, 1e-3)) if self.learner.loss.kind == "count" else mean
        return w

    def add_targets(self) -> Array:
        """The weighted sum of the targets of each output."""
        total = np.zeros(self.n_outputs)
        for _, chunk in self.data.passes():
            assert chunk.y is not None
            y = chunk.visited(chunk.y).reshape(chunk.n_rows, -1)
            weight = np.ones(len(y)) if chunk.weight is None else chunk.visited(chunk.weight)
            total[...] = [add_in_order(t, weight * column) for t, column in zip(total, y.T, strict=True)]
        return total
