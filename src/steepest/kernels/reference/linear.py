"""The slow, obvious definition of every linear solver, in float64 and with dense rows: what the kernels compute.

sgd      w <- prox(w - eta sum(g x)), eagerly for every weight at every step:
         prox divides by 1 + eta l2 mass, then moves |w| down by eta l1 mass / (1 + eta l2 mass) and not below zero
         A row's gradient is first scaled down so that its step does not pass the least loss of the row (`curvature`).
adagrad  w = -soft(sum g, t l1) / ((1 + sqrt(sum g^2)) / eta0 + t l2)      (Duchi, Hazan and Singer 2011; Xiao 2010)
ftrl     the same, with (sqrt(new sum g^2) - sqrt(old)) / eta0 times w taken from sum g at every change, so that the
         pull is towards the weights used and not towards zero             (McMahan et al. 2013)
A step serves a batch of rows, all scored with the same weights; `mass` is the sum of their weights and t the mass seen.
Rows are n x features, or n x outputs x table where all outputs share one table (`hashed_rows`); then w has one column.
A loss here is any function (scores, targets) -> (values, gradients): names and codes belong to steepest.learners.
coin     w = S / (L max(A + L, 10 L)) (L eta0 + R), with S the sum of -g, A of |g|, L the largest |g|, R what the bets
         -g w have won so far, not below zero; g includes l2 w             (Orabona and Tommasi 2017, without sigmoids)
Where rows have times, in half-lives, the rows learned so far fade while time passes, and a row that is older than the
latest one counts as much as if it had come in time.
Left out: every trick that makes it fast, and the checks of the input.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Update = Callable[["State", "Choices", Array, Array, float], None]

WINDOW = 64  # outputs that are neighbours in a shared table
LEAST_POT = 10.0  # of coin betting: how small the first bets are
MOST_REPEATS = 128  # a heavy row is learned in at most this many steps


@dataclass(frozen=True)
class Choices:
    """Choices that stay the same during a run; the names are those of the native LinearChoices."""

    loss: Callable[[Array, Array], tuple[Array, Array]]
    solver: Literal["sgd", "adagrad", "ftrl", "coin"] = "sgd"
    eta0: float = 0.1
    step_size: Callable[[float], float] | None = None  # None: eta0 at every step
    target_kind: Literal["targets", "one_vs_rest", "softmax"] = "targets"
    l1: float = 0.0
    l2: float = 0.0
    truncate_below: float = math.inf
    truncate_every: int = 1
    average: Literal["none", "uniform", "by_step", "polynomial"] = "none"
    batch_size: int = 1
    bias_scale: float = 0.0
    curvature: float = 0.0  # of a loss whose gradient grows without bound, else 0
    half_life: float = math.inf  # a row counts half after so many others; infinite where rows have times

    def eta(self, in_effect: float) -> float:
        """The step while so many rows are in effect."""
        return self.eta0 if self.step_size is None else self.step_size(in_effect)

    def kept(self, mass: float) -> float:
        """Returns what is left of a row's weight after so many more rows."""
        return float(2.0 ** (-mass / self.half_life))

    def in_effect(self, t: float) -> float:
        """Returns the weights of t rows together, 1 + 2^(-1/h) + 2^(-2/h) + ..."""
        return t if self.half_life == math.inf else (1 - self.kept(t)) / (1 - self.kept(1))


@dataclass
class State:
    """Arrays and clocks that change with every step."""

    w: Array  # n_features x n_outputs
    bias: Array
    bias_square: Array
    gradient_sum: Array  # adagrad and ftrl
    gradient_square: Array  # of coin: the sum of |g|
    largest: Array  # coin
    reward: Array
    total: Array  # sum of the iterates, each times its weight in the average
    total_bias: Array
    total_weight: float = 0.0
    t: float = 0.0
    steps: int = 0
    shrink_debt: float = 0.0  # truncated gradient: what the next truncation will take
    loss_sum: float = 0.0
    weight_sum: float = 0.0
    now: float | None = None  # the latest time so far, of rows that have times
    effect: float = 0.0  # the weights of the rows at that time

    @classmethod
    def zeros(cls, n_features: int, n_outputs: int, *, shared: bool = False) -> State:
        """Returns the state before the first row; a shared table has one column, and as many biases as outputs."""
        tables, rows = np.zeros((6, n_features, 1 if shared else n_outputs)), np.zeros((3, n_outputs))
        return cls(
            w=tables[0],
            bias=rows[0],
            bias_square=rows[1],
            gradient_sum=tables[1],
            gradient_square=tables[2],
            largest=tables[4],
            reward=tables[5],
            total=tables[3],
            total_bias=rows[2],
        )

    def mean_weights(self) -> Array:
        """Returns the weighted mean of the iterates."""
        return self.total / self.total_weight

    def mean_bias(self) -> Array:
        """Returns the weighted mean of the biases."""
        return self.total_bias / self.total_weight

    def fade(self, kept: float) -> None:
        """Lets all sums over rows keep this share."""
        self.bias_square = self.bias_square * kept
        self.gradient_sum, self.gradient_square = self.gradient_sum * kept, self.gradient_square * kept
        self.total, self.total_bias = self.total * kept, self.total_bias * kept
        self.total_weight *= kept

    def pass_time(self, time: float) -> None:
        """Moves to a time, in half-lives, if it is later than now."""
        if self.now is None or time > self.now:
            kept = 1.0 if self.now is None else float(2.0 ** (self.now - time))
            self.fade(kept)
            self.effect *= kept
            self.now = time

    def in_effect(self, choices: Choices) -> float:
        """The weights of the rows together."""
        return choices.in_effect(self.t) if self.now is None else self.effect

    def count(self, mass: float) -> None:
        """A step was made."""
        self.t += mass
        self.effect += mass
        self.steps += 1


def dense_rows(indptr: Array, indices: Array, values: Array, n_features: int) -> Array:
    """Returns the rows of a CSR block, with their zeros."""
    rows = np.zeros((len(indptr) - 1, n_features))
    for i in range(len(rows)):
        entries = slice(indptr[i], indptr[i + 1])
        np.add.at(rows[i], indices[entries], values[entries])
    return rows


def class_places(n_features: int, n_outputs: int, table_bits: int) -> tuple[Array, Array]:
    """Returns (places, signs), n_features x n_outputs: where the weight of a feature is in a shared table."""
    feature, window = np.meshgrid(np.arange(n_features), np.arange(n_outputs) // WINDOW, indexing="ij")
    z = (feature.astype(np.uint64) << np.uint64(32) | window.astype(np.uint64)) + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ z >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ z >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    z = z ^ z >> np.uint64(31)
    places = (z & np.uint64((1 << table_bits) - 1)).astype(np.int64) + np.arange(n_outputs) % WINDOW
    return places, np.where(z >> np.uint64(63), -1.0, 1.0)


def hashed_rows(rows: Array, n_outputs: int, table_bits: int) -> Array:
    """Returns each row as each output sees it in a shared table: n x n_outputs x table."""
    places, signs = class_places(rows.shape[1], n_outputs, table_bits)
    seen = np.zeros((len(rows), n_outputs, (1 << table_bits) + WINDOW - 1))
    for k in range(n_outputs):
        for j in range(rows.shape[1]):
            seen[:, k, places[j, k]] += signs[j, k] * rows[:, j]
    return seen


def linear_scores(rows: Array, w: Array, bias: Array) -> Array:
    """Returns n x n_outputs raw scores."""
    return (rows @ w[:, 0] if rows.ndim == 3 else rows @ w) + bias


def _gradients(x: Array, gradients: Array) -> Iterator[Array]:
    """Yields what the row x adds to the gradient, as steps of which each changes a weight once."""
    if x.ndim == 1:
        yield np.outer(x, gradients)
        return
    for seen, gradient in zip(x, gradients, strict=True):
        yield gradient * seen[:, None]


def linear_learn(
    rows: Array, y: Array, weight: Array | None, state: State, choices: Choices, time: Array | None = None
) -> None:
    """One pass of a solver over the rows."""
    update = UPDATES[choices.solver]
    weight = np.ones(len(rows)) if weight is None else weight
    for batch, share, first in _steps(weight, choices.batch_size):
        if time is not None:
            state.pass_time(float(time[batch].max()))
            by_age = 2.0 ** (time[batch] - state.now)
            share = share * by_age
            if choices.solver == "adagrad":
                state.w = _adaptive_weights(state, choices, state.effect)
        scores = linear_scores(rows[batch], state.w, state.bias)
        losses, gradients = _losses(scores, y[batch], choices)
        if choices.solver == "sgd" and rows.ndim == 2:
            gradients = (
                gradients * _safe_shares(rows[batch], share, choices, choices.eta(state.in_effect(choices)))[:, None]
            )
        if first:
            counted = weight[batch] if time is None else weight[batch] * by_age
            state.loss_sum += float(counted @ losses)
            state.weight_sum += float(counted.sum())
        mass = float(share.sum())
        if mass > 0:
            update(state, choices, rows[batch], gradients * share[:, None], mass)


def _steps(weight: Array, batch_size: int) -> Iterator[tuple[slice, Array, bool]]:
    """Yields for every step its rows, the weight each has in it, and whether the rows are new.

    A row of weight 3 makes three steps of weight 1, as three copies of it would; in a batch it just counts more.
    """
    for start in range(0, len(weight), batch_size):
        batch = slice(start, min(start + batch_size, len(weight)))
        heavy = batch_size == 1 and weight[start] > 1
        repeats = math.ceil(min(weight[start], MOST_REPEATS)) if heavy else 1
        for repeat in range(repeats):
            yield batch, weight[batch] / repeats, repeat == 0


def _losses(scores: Array, y: Array, choices: Choices) -> tuple[Array, Array]:
    """Returns the loss of every row, summed over its outputs, and the gradients."""
    n_outputs = scores.shape[1]
    if choices.target_kind == "softmax":
        shifted = scores - scores.max(axis=1, keepdims=True)
        log_sum = np.log(np.exp(shifted).sum(axis=1, keepdims=True))
        label = np.eye(n_outputs)[y.astype(int)]
        return ((log_sum - shifted) * label).sum(axis=1), np.exp(shifted - log_sum) - label
    if choices.target_kind == "one_vs_rest":
        targets = np.where(np.arange(n_outputs) == y[:, None], 1.0, -1.0)
    else:
        targets = y.reshape(scores.shape)
    values, gradients = choices.loss(scores, targets)
    return values.sum(axis=1), gradients


def _safe_shares(rows: Array, share: Array, choices: Choices, eta: float) -> Array:
    """How much of its step keeps each row from passing its own least loss."""
    reach = eta * choices.curvature * len(rows) * share * (rows**2).sum(axis=1)
    return np.asarray(1 / np.maximum(1.0, reach))


def _soft_threshold(w: Array, amount: float) -> Array:
    return np.sign(w) * np.maximum(np.abs(w) - amount, 0.0)


def _sgd_update(state: State, choices: Choices, rows: Array, gradients: Array, mass: float) -> None:
    eta = choices.eta(state.in_effect(choices))
    for x, gradient in zip(rows, gradients, strict=True):
        state.w = state.w - eta * sum(_gradients(x, gradient))
    _move_bias(state, choices, gradients, eta)

    kept = 1.0 / (1.0 + eta * choices.l2 * mass)
    state.w = state.w * kept
    state.shrink_debt = kept * (state.shrink_debt + eta * choices.l1 * mass)
    state.count(mass)
    state.bias_square = state.bias_square * choices.kept(mass)
    if state.steps % choices.truncate_every == 0:
        within = np.abs(state.w) <= choices.truncate_below
        state.w = np.where(within, _soft_threshold(state.w, state.shrink_debt), state.w)
        state.shrink_debt = 0.0
    _add_to_average(state, choices, mass, eta)


def _add_to_average(state: State, choices: Choices, mass: float, eta: float) -> None:
    if choices.average == "none":
        return
    late = 1.0 + state.in_effect(choices)
    weight = mass * {"uniform": 1.0, "by_step": eta, "polynomial": late**3}[choices.average]
    kept = choices.kept(mass)
    state.total = kept * state.total + weight * state.w
    state.total_bias = kept * state.total_bias + weight * state.bias
    state.total_weight = kept * state.total_weight + weight


def _move_bias(state: State, choices: Choices, gradients: Array, eta: float) -> None:
    """Moves the bias: bias_scale 0 is the common step, positive AdaGrad of that size row by row, negative no bias."""
    if choices.bias_scale < 0:
        return
    for gradient in gradients:
        if choices.bias_scale == 0:
            state.bias = state.bias - eta * gradient
            continue
        state.bias_square = state.bias_square + gradient**2
        size = np.sqrt(np.where(state.bias_square > 0, state.bias_square, 1.0))
        state.bias = state.bias - choices.bias_scale * gradient / size


def _adaptive_weights(state: State, choices: Choices, t: float) -> Array:
    curvature = (1.0 + np.sqrt(state.gradient_square)) / choices.eta0 + t * choices.l2
    return -_soft_threshold(state.gradient_sum, t * choices.l1) / curvature


def _adagrad_update(state: State, choices: Choices, rows: Array, gradients: Array, mass: float) -> None:
    for x, gradient in zip(rows, gradients, strict=True):
        for g in _gradients(x, gradient):
            state.gradient_sum = state.gradient_sum + g / choices.kept(1)  # which counts 1 when a row has passed
            state.gradient_square = state.gradient_square + g**2 / choices.kept(1)
    state.gradient_sum = state.gradient_sum * choices.kept(mass)
    state.gradient_square = state.gradient_square * choices.kept(mass)
    _finish_adaptive_step(state, choices, gradients, mass)


def _ftrl_update(state: State, choices: Choices, rows: Array, gradients: Array, mass: float) -> None:
    for x, gradient in zip(rows, gradients, strict=True):
        for g in _gradients(x, gradient):
            grown = state.gradient_square + g**2
            sigma = (np.sqrt(grown) - np.sqrt(state.gradient_square)) / choices.eta0
            # In a batch the rows are added one after the other, each pulling towards the weights of that moment.
            state.gradient_sum = state.gradient_sum + g - sigma * _adaptive_weights(state, choices, state.t)
            state.gradient_square = grown
    _finish_adaptive_step(state, choices, gradients, mass)


def _coin_update(state: State, choices: Choices, rows: Array, gradients: Array, mass: float) -> None:
    for x, gradient in zip(rows, gradients, strict=True):
        for g in _gradients(x, gradient):
            g = np.where(g != 0, g + choices.l2 * state.w, 0.0)
            state.gradient_sum = state.gradient_sum - g
            state.gradient_square = state.gradient_square + np.abs(g)
            state.largest = np.maximum(state.largest, np.abs(g))
            state.reward = np.maximum(state.reward - state.w * g, 0.0)
            pot = state.largest * np.maximum(state.gradient_square + state.largest, LEAST_POT * state.largest)
            wealth = state.largest * choices.eta0 + state.reward
            state.w = np.where(pot > 0, state.gradient_sum * wealth / np.where(pot > 0, pot, 1.0), 0.0)
    _move_bias(state, choices, gradients, choices.eta0)
    state.count(mass)


def _finish_adaptive_step(state: State, choices: Choices, gradients: Array, mass: float) -> None:
    _move_bias(state, choices, gradients, choices.eta0)
    state.count(mass)
    state.bias_square = state.bias_square * choices.kept(mass)
    state.w = _adaptive_weights(state, choices, state.in_effect(choices))


UPDATES: dict[str, Update] = {
    "sgd": _sgd_update,
    "adagrad": _adagrad_update,
    "ftrl": _ftrl_update,
    "coin": _coin_update,
}


def number_features(indices: Array, slots: Array, owners: Array, n_slots: int) -> tuple[Array, int]:
    """Returns the slot of each index: slots[j] is that of feature j plus one; 0 stands for a new feature."""
    placed = np.full(len(indices), -1, np.int32)
    for k, j in enumerate(indices.tolist()):
        if not 0 <= j < len(slots):
            continue
        if slots[j] == 0:
            owners[n_slots] = j
            n_slots += 1
            slots[j] = n_slots
        placed[k] = slots[j] - 1
    return placed, n_slots


def place_features(
    indptr: Array, indices: Array, values: Array, order: Array | None, slots: Array, keep: bool = False
) -> tuple[Array, Array, Array]:
    """Returns rows numbered by slots; a feature without one is left out, or has the value 0 if `keep`."""
    starts, numbers, placed = [0], [], []
    for row in range(len(indptr) - 1) if order is None else order:
        entries = range(indptr[row], indptr[row + 1])
        if any(not 0 <= indices[e] < len(slots) for e in entries):
            break
        for e in entries:
            known = slots[indices[e]] or not np.isfinite(values[e])
            if known or keep:
                numbers.append(max(0, slots[indices[e]] - 1))
                placed.append(values[e] if known else 0)
        starts.append(len(numbers))
    return np.array(starts), np.array(numbers, np.int32), np.array(placed, np.float32)


def number_columns(indices: Array) -> tuple[Array, int]:
    """Returns the number of each index among the distinct ones, in their order of appearance, and their number."""
    numbers: dict[int, int] = {}
    found = [numbers.setdefault(index, len(numbers)) for index in indices.tolist()]
    return np.array(found, np.int32), len(numbers)


def mark_nonzeros(elements: Array) -> Array:
    """Returns a bit for each element, from the lowest of the first byte on: whether it is not zero."""
    return np.packbits(elements != 0, bitorder="little")


def pick_nonzeros(elements: Array, mask: Array) -> Array:
    """Returns the elements whose bit is set."""
    picked: Array = elements[np.unpackbits(mask, count=len(elements), bitorder="little") == 1]
    return picked


def list_places(mask: Array) -> Array:
    """Returns the places of the bits that are set."""
    return np.flatnonzero(np.unpackbits(mask, bitorder="little"))


def spread_nonzeros(mask: Array, values: Array, n: int) -> Array | None:
    """Returns n elements, those whose bit is set from the values; None if values and bits differ in number."""
    bits = np.unpackbits(mask, bitorder="little") == 1
    if bits.sum() != len(values) or bits[n:].any():
        return None
    elements = np.zeros(n, values.dtype)
    elements[bits[:n]] = values
    return elements


def mean_norms(v: Array, u: Array, sum_of_scales: float, total: float) -> tuple[float, float, int]:
    """Returns (sum |w|, sum w^2, how many are not zero) of the mean weights w = (S v - u) / C."""
    w = ((sum_of_scales * v.astype(np.float64) - u) / total).astype(v.dtype).astype(np.float64)
    return float(np.abs(w).sum()), float((w * w).sum()), int(np.count_nonzero(w))
