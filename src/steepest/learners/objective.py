"""The objective of batch solvers: F(w) = mean loss + alpha R(w) over all rows of a source, with its derivatives.

`w` has one row a feature and a last row for the bias, one column an output; everything is float64. A pass reads every
row once: score, loss, slope and what the row adds to the gradient (or to a product with the Hessian) while it is in
cache. Rows in memory are used as they are; others are read anew in every pass, in constant memory.

Invariant: rows are dealt in blocks to a few lanes that add up in order, and lanes are added in order; the bits of every
sum depend on the rows and their order only, neither on threads nor on chunks. Left out of F and its gradient: the
1-norm, which has kinks; solvers that can deal with it find its strength in `l1`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from steepest import kernels
from steepest.data.chunk import Array, Chunk, DataError
from steepest.data.source import ArraySource, Order, Source
from steepest.learners.linear import LinearLearner
from steepest.learners.linear_state import SOFTMAX, TARGETS
from steepest.learners.penalties import soft_threshold

GRADIENT, PRODUCT, DIAGONAL, HESSIAN = 0, 1, 2, 3  # kinds of passes, as in batch_table.h
TOTALS = 3  # loss, loss without smoothing, gap
BLOCK_ROWS = 512
MOST_LANES = 8
# A lane must be cleared and added up in every pass: worth it if it saves the visit of so many entries a weight.
ENTRIES_PER_LANE_WEIGHT = 2
# A Hessian that costs no more than so many visits of an entry for each, and has no more numbers, is formed. On a9a it
# takes 7 visits, as long as three products; a Newton step took five products and the diagonal.
MOST_PAIRS = 10
MOST_HESSIAN_NUMBERS = 1 << 20
SPARSE_SHARE = 0.1  # of non-zeros, below which data counts as sparse


class BatchData:
    """The rows of a source with coded targets, pass after pass, and what one look at all of them tells."""

    def __init__(self, source: Source, learner: LinearLearner) -> None:
        self.source = source
        self.learner = learner
        self.n_rows = self.n_entries = self.n_pairs = 0
        self.weight_sum = 0.0
        self.least_weight = math.inf
        self._look()
        self.kept = [self._coded(chunk) for chunk in self._read()] if isinstance(source, ArraySource) else None

    def _read(self) -> Iterator[Chunk]:
        yield from self.source.read(Order(), 0)

    def _look(self) -> None:
        """Classes, features and counts; the learner gets to know them all before it codes a target."""
        learner, balanced = self.learner, self.learner.settings.class_weight == "balanced"
        counts: dict[object, float] = {}
        for chunk in self._read():
            self.n_rows += chunk.n_rows
            rows = chunk.row_numbers
            lengths = chunk.indptr[rows + 1] - chunk.indptr[rows]
            self.n_entries += int(lengths.sum())
            self.n_pairs += (int(lengths @ lengths) + int(lengths.sum())) // 2
            learner._grow_features(chunk.n_features)
            learner._announce_labels(chunk)
            if balanced and chunk.y is not None and chunk.y.ndim == 1:
                _count(counts, chunk)
        if balanced and counts:
            total = sum(counts.values())
            factors = {label: total / (len(counts) * max(count, 1e-300)) for label, count in counts.items()}
            learner.settings = replace(learner.settings, class_weight=factors)
        learner.decide_loss()

    def _coded(self, chunk: Chunk) -> Chunk:
        self.learner._coded = None
        return self.learner._code(chunk)[0]

    def passes(self) -> Iterator[tuple[int, Chunk]]:
        """(number of the first row, chunk) with coded targets."""
        start = 0
        for chunk in self.kept if self.kept is not None else map(self._coded, self._read()):
            yield start, chunk
            start += chunk.n_rows

    @property
    def in_memory(self) -> bool:
        """Whether the rows stay in memory, so that numbers kept for each of them cost little."""
        return self.kept is not None


def _count(counts: dict[object, float], chunk: Chunk) -> None:
    assert chunk.y is not None
    y = chunk.visited(chunk.y)
    weight = np.ones(len(y)) if chunk.weight is None else chunk.visited(chunk.weight)
    for label in np.unique(y):
        counts[label.item()] = _add_in_order(counts.get(label.item(), 0.0), weight[y == label])


def _add_in_order(total: float, numbers: Array) -> float:
    """One number after the other, so that chunks do not matter."""
    return float(np.cumsum(np.concatenate([[total], numbers]))[-1])


@dataclass(frozen=True, slots=True)
class SmoothOneNorm:
    """The Moreau envelope of l1 |w| at w + width multiplier: without kinks, and least where l1 |w| is in the end."""

    l1: float
    width: Array  # one a weight: the curvature is 1 / width where the weight is held at zero
    multiplier: Array

    def nearest(self, weights: Array) -> Array:
        """The sparse weights next to these."""
        return soft_threshold(weights + self.width * self.multiplier, self.width * self.l1)

    def slope(self, weights: Array) -> Array:
        """Within -l1 and l1; the next multiplier."""
        return np.asarray(np.clip(self.multiplier + weights / self.width, -self.l1, self.l1))

    def curvature(self, weights: Array) -> Array:
        """1 / width where the nearest weight is zero."""
        return np.where(self.nearest(weights) == 0, 1.0 / self.width, 0.0)

    def value(self, weights: Array) -> float:
        """l1 |s| + |w + width multiplier - s|^2 / (2 width), with s the nearest sparse weights."""
        slope = self.slope(weights)
        return self.l1 * float(np.abs(self.nearest(weights)).sum()) + 0.5 * float(np.vdot(self.width * slope, slope))


class Objective:
    """Value, gradient and products with the Hessian of the smooth part of F."""

    def __init__(self, data: BatchData, n_threads: int = 1, *, most_lanes: int = MOST_LANES) -> None:
        learner = data.learner
        settings = learner.settings
        self.data, self.learner, self.n_threads = data, learner, n_threads
        self.settings = settings
        self.l1, self.l2, self.p, self.alpha = settings.l1, settings.l2, settings.p, settings.alpha
        self.n_features, self.n_outputs = learner.n_features, learner.n_outputs
        self.shape = (self.n_features + 1, self.n_outputs)
        self.fit_intercept = settings.fit_intercept
        self.target_kind = learner._target_kind()
        self.passes = 0
        self.smoothing = 0.0
        self.shifts: list[Array] | None = None
        self.smooth_one_norm: SmoothOneNorm | None = None  # takes the place of the 1-norm while it is set
        self.warm: Array | None = None  # weights from which a solver that can do so starts
        self.plain_loss = self.gap = math.nan  # of the last evaluation: mean loss without smoothing, gap
        self._curvature: list[Array] = []
        self._curvature_at: Array | None = None
        self.n_lanes = max(1, min(most_lanes, data.n_entries // (ENTRIES_PER_LANE_WEIGHT * (self.n_features + 1))))
        self._sums = np.zeros((self.n_lanes, *self.shape))
        self.weight_sum = self._weigh()

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
        self._sums.fill(0.0)
        totals = np.zeros((self.n_lanes, TOTALS))
        kept: list[Array] = []
        for number, (start, chunk) in enumerate(self._pass()):
            at = self._rows_array(chunk) if curvature and self.data.in_memory else None
            if not self._visit(GRADIENT, w, start, chunk, number, totals, self._sums, curvature=at):
                return None
            if at is not None:
                kept.append(at)
        if curvature:
            self._curvature, self._curvature_at = kept, w.copy()
        return np.asarray(totals.sum(axis=0))

    def slopes(self, w: Array) -> list[Array]:
        """The slope of every row's (smoothed) loss, chunk by chunk."""
        totals = np.zeros((self.n_lanes, TOTALS))
        found = []
        for number, (start, chunk) in enumerate(self._pass()):
            out = self._rows_array(chunk)
            self._visit(GRADIENT, w, start, chunk, number, totals, None, slopes=out)
            found.append(out)
        return found

    def product(self, v: Array) -> Array:
        """The Hessian at the last evaluation with curvature, times v."""
        assert self._curvature_at is not None
        self._sums.fill(0.0)
        self._second_order(PRODUCT, v, self._sums)
        out = self._reduced()
        bend = self._penalty_curvature()
        if not isinstance(bend, float) or bend:
            out[:-1] += bend * v[:-1]
        return out

    def diagonal(self) -> Array:
        """The diagonal of that Hessian; one where a weight has no influence."""
        self._sums.fill(0.0)
        self._second_order(DIAGONAL, np.zeros(self.shape), self._sums)
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
        """The Hessian at the last evaluation with curvature, a matrix an output; outputs do not touch each other."""
        width, k = self.n_features + 1, self.n_outputs
        lanes = max(1, min(self.n_lanes, self.data.n_pairs // (ENTRIES_PER_LANE_WEIGHT * width * width)))
        sums = np.zeros((lanes, k, width * (width + 1)))
        self._second_order(HESSIAN, np.zeros(self.shape), sums)
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
        totals = np.zeros((self.n_lanes, TOTALS))
        zero = np.zeros(self.shape)
        self._sums.fill(0.0)
        for number, (start, chunk) in enumerate(self._pass()):
            ones = np.ones((chunk.n_rows, self.n_outputs))
            self._visit(DIAGONAL, zero, start, chunk, number, totals, self._sums, curvature=ones, kind=TARGETS)

    # ----------------------------------------------------------------------------------------------- the penalty

    def smooth_penalty(self, w: Array) -> float:
        """What l2 and lp add."""
        weights = w[:-1]
        if self.p:
            return self.alpha / self.p * float((np.abs(weights) ** self.p).sum())
        smooth = 0.0 if self.smooth_one_norm is None else self.smooth_one_norm.value(weights)
        return smooth + (0.5 * self.l2 * float(np.vdot(weights, weights)) if self.l2 else 0.0)

    def one_norm(self, w: Array) -> float:
        """What l1 adds."""
        return self.l1 * float(np.abs(w[:-1]).sum()) if self.l1 else 0.0

    def penalty_gradient(self, weights: Array) -> Array | float:
        """Of the smooth part."""
        if self.p:
            return np.asarray(self.alpha * np.sign(weights) * np.abs(weights) ** (self.p - 1.0))
        slope = self.l2 * weights if self.l2 else 0.0
        return slope if self.smooth_one_norm is None else slope + self.smooth_one_norm.slope(weights)

    def conjugate_penalty(self, slope: Array) -> float:
        """Largest of slope.w - penalty(w) over all w: what the dual subtracts. Infinite where nothing holds w back."""
        if self.p > 1:
            power = self.p / (self.p - 1.0)
            return float(self.alpha ** (1.0 - power) / power) * float((np.abs(slope) ** power).sum())
        beyond = np.maximum(np.abs(slope) - self.l1, 0.0)
        if self.l2:
            return 0.5 / self.l2 * float(np.vdot(beyond, beyond))
        return math.inf if beyond.any() else 0.0

    def _penalty_curvature(self) -> Array | float:
        if self.p:
            assert self._curvature_at is not None
            return np.asarray(self.alpha * (self.p - 1.0) * np.abs(self._curvature_at[:-1]) ** (self.p - 2.0))
        if self.smooth_one_norm is not None:
            assert self._curvature_at is not None
            return self.l2 + self.smooth_one_norm.curvature(self._curvature_at[:-1])
        return self.l2

    # -------------------------------------------------------------------------------------------------- the passes

    def _pass(self) -> Iterator[tuple[int, Chunk]]:
        self.passes += 1
        return self.data.passes()

    def _rows_array(self, chunk: Chunk) -> Array:
        return np.empty((chunk.n_rows, self.n_outputs))

    def summed(self) -> Array:
        """The lanes added up in order."""
        out: Array = self._sums[0].copy()
        for lane in self._sums[1:]:
            out += lane
        return out

    def _reduced(self) -> Array:
        """The same, per unit of weight."""
        if self.n_lanes == 1:
            out: Array = self._sums[0] / self.weight_sum
        else:
            out = self.summed()
            out /= self.weight_sum
        if not self.fit_intercept:
            out[-1] = 0.0
        return out

    def _second_order(self, kind: int, v: Array, sums: Array) -> None:
        totals = np.zeros((len(sums), TOTALS))
        for number, (start, chunk) in enumerate(self._pass()):
            if self._curvature:
                at = self._curvature[number]
            else:  # not kept: found again from the weights
                assert self._curvature_at is not None
                at = self._rows_array(chunk)
                self._visit(GRADIENT, self._curvature_at, start, chunk, number, totals, None, curvature=at)
            self._visit(kind, v, start, chunk, number, totals, sums, curvature=at)

    def _visit(
        self,
        pass_kind: int,
        w: Array,
        start: int,
        chunk: Chunk,
        number: int,
        totals: Array,
        sums: Array | None,
        curvature: Array | None = None,
        slopes: Array | None = None,
        kind: int | None = None,
    ) -> bool:
        """One chunk through the kernel; False if scores overflow."""
        learner = self.learner
        done = kernels.batch_pass(
            chunk.indptr,
            chunk.indices,
            chunk.values,
            chunk.y,
            chunk.weight,
            chunk.order,
            w,
            self.n_outputs,
            pass_kind,
            learner.loss.code,
            learner.settings.loss_parameter,
            self.target_kind if kind is None else kind,
            self.smoothing,
            None if self.shifts is None else self.shifts[number],
            curvature,
            slopes,
            sums,
            totals,
            start,
            BLOCK_ROWS,
            self.n_threads,
        )
        if done < chunk.n_rows:
            learner._refuse_bad_row(chunk, done)
        return done == chunk.n_rows

    def _weigh(self) -> float:
        """The sum of the rows' weights, class weights included, and the least of them."""
        total = 0.0
        for _, chunk in self.data.passes():
            if chunk.weight is None:
                total += chunk.n_rows
                self.data.least_weight = min(self.data.least_weight, 1.0)
                continue
            weight = chunk.visited(chunk.weight)
            total = _add_in_order(total, weight)
            self.data.least_weight = min(self.data.least_weight, float(weight[weight > 0].min(initial=math.inf)))
        if not total > 0:
            raise DataError("the weights of all rows are zero; nothing can be learned from them")
        return total

    def start(self) -> Array:
        """Where a solver starts: at weights found before, if there are any."""
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
            total[...] = [_add_in_order(t, weight * column) for t, column in zip(total, y.T, strict=True)]
        return total
