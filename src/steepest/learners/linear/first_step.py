"""The first step size of a linear learner, tried out on its first rows (Bottou's programs do the same).

From the textbook's step, 1 / (curvature |x|²), the step is doubled or halved as long as one pass over the sample has a
smaller mean loss, each row judged before it is learned: the cost on rows that were learned already would reward a step
that learns them by heart, which with many rare features is always the largest. Trials see the sample's columns numbered
anew, so that they need small tables only. The bias of a regression starts at the best constant.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from steepest import kernels
from steepest.data.chunk import Chunk
from steepest.learners.linear.linear_settings import ADAPTIVE

if TYPE_CHECKING:
    from steepest.learners.linear.linear import LinearLearner

# From the textbook's step size, 1 / (curvature |x|^2), doubled or halved at most so often, each time for some gain.
MOST_TRIALS = 30
LEAST_GAIN = 1e-4


def find_first_step(learner: LinearLearner, rows: Chunk) -> None:
    """Tries step sizes on a sample, doubling or halving while the loss falls, and keeps the best."""
    settings = learner.settings
    coded = learner.code_sample(rows)
    indices, n_columns = kernels.number_columns(coded.indices)
    finite = np.where(np.isfinite(coded.values), coded.values, 0)
    sample = replace(coded, indices=indices, n_features=max(1, n_columns), values=finite)
    if settings.fit_intercept:
        _start_bias(learner, sample)
    if settings.solver == "coin":  # bets need no step size
        learner.eta0 = 1.0
        return
    square = float(np.square(finite.astype(np.float64)).sum()) / max(1, sample.n_rows)
    eta = 1.0 / max(1e-12, square * (learner.loss.curvature or 1.0))
    if settings.solver in ADAPTIVE:
        eta = 0.1 * _target_spread(learner, sample) if settings.task == "regress" else 0.1
    learner.eta0 = settings.first_step or _best_step(learner, sample, 2.0 ** round(math.log2(eta)))


def _best_step(learner: LinearLearner, sample: Chunk, eta: float) -> float:
    """The step with the least loss before learning; if learning nothing is best, with the least cost afterwards."""
    best, loss = descend(lambda step: _loss_before(learner, sample, step), eta)
    if loss < _loss_before(learner, sample, eta * 0.5**MOST_TRIALS) * (1 - LEAST_GAIN):
        return best
    return descend(lambda step: _cost_after(learner, sample, step), eta)[0]


def descend(cost_of: Callable[[float], float], eta: float) -> tuple[float, float]:
    """The step with the least cost on the way down from eta, and that cost."""
    cost = cost_of(eta)
    for factor in (2.0, 0.5):
        moved = False
        for _ in range(MOST_TRIALS):
            next_cost = cost_of(eta * factor)
            if not next_cost < cost * (1 - LEAST_GAIN) and math.isfinite(cost):
                break
            eta, cost, moved = eta * factor, next_cost, True
        if moved and math.isfinite(cost):
            break
    return eta, cost


def _loss_before(learner: LinearLearner, sample: Chunk, eta: float) -> float:
    """Mean loss of one pass over the sample with this step size, each row before it is learned."""
    loss = _trial(learner, sample, eta).learn_once(sample)
    return loss if math.isfinite(loss) else math.inf


def _cost_after(learner: LinearLearner, sample: Chunk, eta: float) -> float:
    """Cost on the sample after one pass over it with this step size."""
    trial = _trial(learner, sample, eta)
    if not math.isfinite(trial.learn_once(sample)):
        return math.inf
    with np.errstate(over="ignore", invalid="ignore"):
        losses, weight = trial.losses(sample)
        cost = float((losses * weight).sum() / max(weight.sum(), 1e-300)) + trial.penalty()
    return cost if math.isfinite(cost) else math.inf


def _trial(learner: LinearLearner, sample: Chunk, eta: float) -> LinearLearner:
    settings = replace(learner.settings, eta0=eta, table_bits=_trial_bits(learner, sample))
    return learner.trial(settings, sample.n_features)


def _trial_bits(learner: LinearLearner, sample: Chunk) -> int:
    """The size of the shared table for trials; large if possible, since collisions would blur the comparison."""
    bits = learner.settings.table_bits
    return bits if sample.n_features * learner.n_outputs > 1 << bits else 0


def _start_bias(learner: LinearLearner, sample: Chunk) -> None:
    """Starts the bias of a regression at the best constant; it is in every row, so its steps are AdaGrad's."""
    learner.bias_scale = 1.0
    if learner.settings.task == "regress":
        assert sample.y is not None
        y = sample.y.reshape(sample.n_rows, -1)
        start = learner.targets.middle(y)
        if learner.loss.name == "quantile":
            start = np.quantile(y, learner.settings.loss_parameter, axis=0)
        for name in ("bias", "bias_start", "bias_average"):
            learner.arrays[name][...] = start
        learner.bias_scale = _target_spread(learner, sample)


def _target_spread(learner: LinearLearner, sample: Chunk) -> float:
    if learner.loss.kind == "count" or sample.y is None:
        return 1.0
    return float(sample.y.std()) or 1.0
