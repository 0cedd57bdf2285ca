"""The step size eta as a function of t, the rows seen so far counted by their weight, and of nothing else.

constant  eta0                                adaptive  eta0, which the training loop lowers when the loss stalls
invsqrt   eta0 / sqrt(1 + t)                  bottou    eta0 / (1 + eta0 alpha t)^power
optimal   bottou with power 1 and the eta0 of `typical_eta0`, which is 1 / (alpha (t0 + t)) with t0 = 1 / (eta0 alpha)
auto      eta0 / max(1 + eta0 alpha t, sqrt(1 + t / 1000)): eta0 is the best step for a thousand rows, and the best one
          for n rows falls like 1 / sqrt(n), until the penalty sets a faster pace; see decisions/0018
Reference: Bottou, "Stochastic gradient descent tricks", 2012; power 3/4 is his choice for averaged weights.
The kernels compute the same numbers from the codes given here (schedules.h); the tests compare the two.
"""

from __future__ import annotations

import math

from steepest.errors import ParameterError
from steepest.learners.losses import Loss
from steepest.learners.penalties import check_alpha
from steepest.parameters import unknown

SCHEDULES = ("auto", "constant", "invsqrt", "bottou", "optimal", "adaptive")

# Rows that show what must be known first, and on which a first step is tried; as in Bottou's programs. Kernels know it.
FIRST_ROWS = 1000
UNIT_BITS = 40  # kUnitBits of the kernels
LN2 = math.log(2.0)

_CODES = {"constant": 0, "adaptive": 0, "invsqrt": 1, "bottou": 2, "optimal": 2, "auto": 3}  # the kernels' ScheduleId


def schedule_code(schedule: str, alpha: float) -> int:
    """The number that kernels use for the schedule."""
    if schedule not in SCHEDULES:
        raise unknown("schedule", schedule, SCHEDULES)
    if not 0 <= alpha < math.inf:
        raise ParameterError(f"alpha={alpha} is not a strength of a penalty; give a finite number that is not negative")
    if schedule == "optimal" and alpha == 0:
        raise ParameterError("schedule='optimal' depends on alpha, which is 0; give alpha > 0 or choose invsqrt")
    return _CODES[schedule]


def scheduled_step(code: int, t: float, eta0: float, alpha: float, power: float = 1.0) -> float:
    """The step after t rows, by the schedule of this number.

    >>> scheduled_step(schedule_code("bottou", alpha=0.02), t=100, eta0=0.5, alpha=0.02)
    0.25
    """
    if code == _CODES["invsqrt"]:
        return eta0 / math.sqrt(1.0 + t)
    if code == _CODES["bottou"]:
        return float(eta0 * (1.0 + eta0 * alpha * t) ** -power)
    if code == _CODES["auto"]:
        return eta0 / max(1.0 + eta0 * alpha * t, math.sqrt(1.0 + t / FIRST_ROWS))
    return eta0


def rows_in_effect(t: float, half_life: float) -> float:
    """The total weight of t rows if a row counts half after `half_life` more; at most half_life / ln 2 + 1.

    >>> rows_in_effect(100, math.inf), round(rows_in_effect(2, 1), 3), round(rows_in_effect(1e9, 1000))
    (100, 1.5, 1443)
    """
    return t if half_life == math.inf else math.expm1(-LN2 * t / half_life) / math.expm1(-LN2 / half_life)


def growth(t: float, half_life: float) -> float:
    """The factor by which sums over rows under a half-life are stored too large; it is reset now and then."""
    age = t / half_life
    return float(2.0 ** (age - UNIT_BITS * math.floor(age / UNIT_BITS)))


def typical_eta0(loss: Loss, alpha: float) -> float:
    """The first step of `optimal`: it moves a weight about as far as weights are expected to be large.

    Under the penalty alpha/2 w^2 a typical weight is w = sqrt(1 / sqrt(alpha)), and at the score -w a row of target +1
    pulls with |gradient(-w, 1)|; eta0 = w / max(1, |gradient|).
    """
    if not check_alpha(alpha) > 0:
        raise ParameterError(
            "the first step of schedule='optimal' depends on alpha, which is 0; give alpha > 0 or eta0"
        )
    typical_weight = math.sqrt(1.0 / math.sqrt(alpha))
    pull = abs(float(loss.gradient(-typical_weight, 1.0, loss.default_parameter)))
    if math.isinf(pull):
        raise ParameterError(f"loss={loss.name!r} is too steep for schedule='optimal' at alpha={alpha}; choose bottou")
    return typical_weight / max(1.0, pull)
