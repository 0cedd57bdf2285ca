"""The first step size of a linear learner, tried out on its first rows (Bottou's programs do the same).

From the textbook's step, 1 / (curvature |x|²), the step is doubled or halved as long as the cost after one pass over
the sample falls; the learner starts with the best. Trials see the sample's columns numbered anew, so that they need
small tables only. The bias of a regression starts at the best constant.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from steepest.data.chunk import Array, Chunk
from steepest.learners.linear_settings import ADAPTIVE

if TYPE_CHECKING:
    from steepest.learners.linear import LinearLearner

# Rows on which the first step size is tried out; Bottou's programs use as many.
CALIBRATION_ROWS = 1000
# From the textbook's step size, 1 / (curvature |x|^2), doubled or halved at most so often, each time for some gain.
MOST_TRIALS = 30
LEAST_GAIN = 1e-4


def calibrate(learner: LinearLearner, rows: Chunk) -> None:
    """Tries step sizes on a sample, doubling or halving while the cost falls, and keeps the best."""
    settings = learner.settings
    coded = learner.code_sample(rows)
    indices, n_columns = _renumber(coded.indices, learner.n_features)
    finite = np.where(np.isfinite(coded.values), coded.values, 0)
    sample = replace(coded, indices=indices, n_features=max(1, n_columns), values=finite)
    if settings.fit_intercept:
        _start_bias(learner, sample)
    if settings.rule == "coin":  # bets need no step size
        learner.eta0 = 1.0
        return
    square = float(np.square(finite.astype(np.float64)).sum()) / max(1, sample.n_rows)
    eta = 1.0 / max(1e-12, square * (learner.loss.curvature or 1.0))
    if settings.rule in ADAPTIVE:
        eta = 0.1 * _target_spread(learner, sample) if settings.task == "regress" else 0.1
    learner.eta0 = _descend(learner, sample, 2.0 ** round(math.log2(eta)))


def _descend(learner: LinearLearner, sample: Chunk, eta: float) -> float:
    cost = _trial_cost(learner, sample, eta)
    for factor in (2.0, 0.5):
        moved = False
        for _ in range(MOST_TRIALS):
            next_cost = _trial_cost(learner, sample, eta * factor)
            if not next_cost < cost * (1 - LEAST_GAIN) and math.isfinite(cost):
                break
            eta, cost, moved = eta * factor, next_cost, True
        if moved and math.isfinite(cost):
            break
    return eta


def _trial_cost(learner: LinearLearner, sample: Chunk, eta: float) -> float:
    """Cost on the sample after one pass over it with this step size."""
    settings = replace(learner.settings, eta0=eta, table_bits=_trial_bits(learner, sample))
    trial = learner.trial(settings, sample.n_features)
    if not trial.learn_once(sample):
        return math.inf
    with np.errstate(over="ignore", invalid="ignore"):
        cost = trial.mean_loss(sample) + trial.penalty()
    return cost if math.isfinite(cost) else math.inf


def _trial_bits(learner: LinearLearner, sample: Chunk) -> int:
    """Trials share a table only if the sample's weights have no room without: collisions would blur the comparison."""
    bits = learner.settings.table_bits
    return bits if sample.n_features * learner.n_outputs > 1 << bits else 0


def _start_bias(learner: LinearLearner, sample: Chunk) -> None:
    """The bias starts at the best constant of a regression, and moves by AdaGrad: it is in every row."""
    learner.bias_scale = 1.0
    loss = learner.loss
    if learner.settings.task == "regress":
        assert sample.y is not None
        y = sample.y.reshape(sample.n_rows, -1)
        if loss.name == "quantile":
            start = np.quantile(y, learner.settings.loss_parameter, axis=0)
        elif loss.kind == "count":
            start = np.log(np.maximum(y.mean(axis=0), 1e-3))
        else:
            start = np.median(y, axis=0) if loss.name != "squared" else y.mean(axis=0)
        for name in ("bias", "bias_start", "bias_average"):
            learner.arrays[name][...] = start
        learner.bias_scale = _target_spread(learner, sample)


def _target_spread(learner: LinearLearner, sample: Chunk) -> float:
    if learner.loss.kind == "count" or sample.y is None:
        return 1.0
    return float(sample.y.std()) or 1.0


def _renumber(indices: Array, n_features: int) -> tuple[Array, int]:
    """The columns in use numbered from 0 on, so that trials need small tables only; and how many there are."""
    if n_features <= 16 * len(indices):
        used = np.zeros(n_features, bool)
        used[indices] = True
        numbers = np.cumsum(used, dtype=np.int32) - np.int32(1)
        return numbers[indices], int(used.sum())
    # Column and place in one number: sorting those is several times faster than an argsort of the columns.
    keys = indices.astype(np.int64) << np.int64(32) | np.arange(len(indices))
    keys.sort()
    columns = keys >> np.int64(32)
    new = np.concatenate([[0], columns[1:] != columns[:-1]]) if len(columns) else columns
    numbers = np.empty(len(indices), np.int32)
    numbers[keys & np.int64(0xFFFFFFFF)] = np.cumsum(new, dtype=np.int32)
    return numbers, int(new.sum()) + (len(columns) > 0)
