"""The losses: l(z, y) of a raw score z and a target y, and the gradient g = +dl/dz.

Binary losses take y = -1 or +1 and depend on the margin m = y z only; the others on the residual r = z - y, except
poisson, whose mean is exp(z). Every function takes and returns NumPy arrays (or scalars), stays finite wherever the
mathematics does, and resolves kinks as the native kernels do (losses.h); the tests compare the two.
References: Bottou, Curtis and Nocedal, "Optimization methods for large-scale machine learning", 2018; Zhang,
"Solving large scale linear prediction problems using stochastic gradient descent algorithms", 2004 (modified_huber).
`losses` shows all of them under their names, with the 0/1 loss that the others stand in for, which no solver minimises.
Left out: the softmax over many scores, which is not a function of a single score; the kernels have it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from steepest.parameters import at_least, inside, unknown

Array = npt.NDArray[np.float64]

Kind = Literal["binary", "real", "count"]
LossFunction = Callable[..., Array]  # (score, y, parameter) -> one number for each score


@dataclass(frozen=True, slots=True)
class Loss:
    """One loss: what it computes, and what is known about it.

    `value(score, y)` and `gradient(score, y)` take a third argument if `parameter` is not None.

    Examples
    --------
    >>> float(get_loss("hinge").value(0.25, 1.0)), float(get_loss("hinge").gradient(0.25, 1.0))
    (0.75, -1.0)
    """

    name: str
    code: int  # the value of the kernels' LossId
    kind: Kind
    value: LossFunction
    gradient: LossFunction
    plot_range: tuple[float, float] = (-3.0, 3.0)  # scores that show its shape
    bounds_zero_one: float | None = None  # c with c * loss >= the 0/1 loss of sign(score)
    curvature: float | None = None  # the largest second derivative
    parameter: Literal["epsilon", "quantile"] | None = None
    default_parameter: float = 0.0
    link: Callable[[Array], Array] | None = None  # score -> P(y = +1)
    inverse_link: Callable[[Array], Array] | None = None  # score -> E(y)

    def probability(self, score: Any) -> Array | None:
        """P(y = +1) under the model the loss belongs to, or None if it belongs to none."""
        return None if self.link is None else self.link(np.asarray(score, np.float64))

    def mean(self, score: Any) -> Array:
        """The prediction in the units of y: exp(score) for poisson, the score itself for the others."""
        score = np.asarray(score, np.float64)
        return score if self.inverse_link is None else self.inverse_link(score)


def sigmoid(score: Array) -> Array:
    """1 / (1 + exp(-score)), stable at both ends."""
    e: Array = np.exp(-np.abs(score))
    return np.where(score < 0, e, 1.0) / (1.0 + e)


def _exp(score: Any) -> Array:
    with np.errstate(over="ignore"):  # beyond 709 the answer is infinity
        power: Array = np.exp(np.asarray(score, np.float64))
    return power


def _margin(score: Any, y: Any) -> Array:
    return np.asarray(y, np.float64) * np.asarray(score, np.float64)


def _residual(score: Any, y: Any) -> Array:
    return np.asarray(score, np.float64) - np.asarray(y, np.float64)


# max(0, 1 - m); the gradient is 0 at m = 1
def _hinge(score: Any, y: Any, _: float = 0.0) -> Array:
    return np.maximum(0.0, 1.0 - _margin(score, y))


def _hinge_gradient(score: Any, y: Any, _: float = 0.0) -> Array:
    return np.where(_margin(score, y) < 1, -np.asarray(y, np.float64), 0.0)


# max(0, 1 - m)^2
def _squared_hinge(score: Any, y: Any, _: float = 0.0) -> Array:
    return _hinge(score, y) ** 2


def _squared_hinge_gradient(score: Any, y: Any, _: float = 0.0) -> Array:
    return -2.0 * np.asarray(y) * _hinge(score, y)


# The minimum is at z = 2 P - 1, but P = (1 + z) / 2 is 0 or 1 beyond the margins, where most rows end. This curve was
# nearest to held-out rows of several data sets (decisions/0021).
def _squared_hinge_probability(score: Array) -> Array:
    return sigmoid(5.0 * score)


# log(1 + exp(-m)), from an exponential that cannot overflow
def _log(score: Any, y: Any, _: float = 0.0) -> Array:
    m = _margin(score, y)
    return np.log1p(np.exp(-np.abs(m))) + np.maximum(0.0, -m)


def _log_gradient(score: Any, y: Any, _: float = 0.0) -> Array:
    return -np.asarray(y) * sigmoid(-_margin(score, y))


# exp(-m)
def _exponential(score: Any, y: Any, _: float = 0.0) -> Array:
    return _exp(-_margin(score, y))


def _exponential_gradient(score: Any, y: Any, _: float = 0.0) -> Array:
    return -np.asarray(y) * _exp(-_margin(score, y))


def _exponential_probability(score: Array) -> Array:
    return sigmoid(2.0 * score)


# max(0, 1 - m)^2 for m >= -1, else -4m
def _modified_huber(score: Any, y: Any, _: float = 0.0) -> Array:
    m = _margin(score, y)
    return np.where(m < -1, -4.0 * m, np.square(np.clip(1.0 - m, 0.0, 2.0)))


def _modified_huber_gradient(score: Any, y: Any, _: float = 0.0) -> Array:
    return -2.0 * np.asarray(y) * np.clip(1.0 - _margin(score, y), 0.0, 2.0)


def _modified_huber_probability(score: Array) -> Array:
    return np.clip((score + 1.0) / 2.0, 0.0, 1.0)


# max(0, -m); the gradient is -y at m = 0, so that learning can start from zero weights
def _perceptron(score: Any, y: Any, _: float = 0.0) -> Array:
    return np.maximum(0.0, -_margin(score, y))


def _perceptron_gradient(score: Any, y: Any, _: float = 0.0) -> Array:
    return np.where(_margin(score, y) <= 0, -np.asarray(y, np.float64), 0.0)


# r^2 / 2
def _squared(score: Any, y: Any, _: float = 0.0) -> Array:
    return 0.5 * _residual(score, y) ** 2


def _squared_gradient(score: Any, y: Any, _: float = 0.0) -> Array:
    return _residual(score, y)


# r^2 / 2 for |r| <= epsilon, else epsilon |r| - epsilon^2 / 2
def _huber(score: Any, y: Any, epsilon: float = 0.1) -> Array:
    size = np.abs(_residual(score, y))
    inside = np.minimum(size, epsilon)
    return inside * (size - 0.5 * inside)


def _huber_gradient(score: Any, y: Any, epsilon: float = 0.1) -> Array:
    return np.clip(_residual(score, y), -epsilon, epsilon)


# max(0, |r| - epsilon); the gradient is 0 at |r| = epsilon
def _epsilon_insensitive(score: Any, y: Any, epsilon: float = 0.1) -> Array:
    return np.maximum(0.0, np.abs(_residual(score, y)) - epsilon)


def _epsilon_insensitive_gradient(score: Any, y: Any, epsilon: float = 0.1) -> Array:
    r = _residual(score, y)
    return np.where(np.abs(r) > epsilon, np.sign(r), 0.0)


# q (y - z) below the target, (1 - q) (z - y) above; the gradient is 0 at z = y
def _quantile(score: Any, y: Any, q: float = 0.5) -> Array:
    r = _residual(score, y)
    return np.where(r < 0, -q * r, (1.0 - q) * r)


def _quantile_gradient(score: Any, y: Any, q: float = 0.5) -> Array:
    r = _residual(score, y)
    return np.where(r < 0, -q, np.where(r > 0, 1.0 - q, 0.0))


# exp(z) - y z + y log y - y: half the deviance, with the logarithm as link; 0 log 0 = 0
def _poisson(score: Any, y: Any, _: float = 0.0) -> Array:
    count: Array = np.asarray(y, np.float64)
    entropy: Array = count * np.log(np.where(count > 0, count, 1.0)) - count
    return _exp(score) - _margin(score, y) + entropy


def _poisson_gradient(score: Any, y: Any, _: float = 0.0) -> Array:
    return _exp(score) - np.asarray(y, np.float64)


# 1 if y z <= 0, else 0: the error itself; flat on both sides of its jump, so its gradient shows no way down
def _zero_one(score: Any, y: Any, _: float = 0.0) -> Array:
    return np.where(_margin(score, y) <= 0, 1.0, 0.0)


def _zero_one_gradient(score: Any, y: Any, _: float = 0.0) -> Array:
    return np.zeros_like(_margin(score, y))


LOSSES: dict[str, Loss] = {
    loss.name: loss
    for loss in (
        Loss("hinge", 0, "binary", _hinge, _hinge_gradient, bounds_zero_one=1.0),
        Loss(
            "squared_hinge",
            1,
            "binary",
            _squared_hinge,
            _squared_hinge_gradient,
            bounds_zero_one=1.0,
            curvature=2.0,
            link=_squared_hinge_probability,
        ),
        Loss(
            "log", 2, "binary", _log, _log_gradient, bounds_zero_one=1.0 / math.log(2.0), curvature=0.25, link=sigmoid
        ),
        Loss(
            "exponential",
            3,
            "binary",
            _exponential,
            _exponential_gradient,
            plot_range=(-2.0, 3.0),
            bounds_zero_one=1.0,
            link=_exponential_probability,
        ),
        Loss(
            "modified_huber",
            4,
            "binary",
            _modified_huber,
            _modified_huber_gradient,
            bounds_zero_one=1.0,
            curvature=2.0,
            link=_modified_huber_probability,
        ),
        Loss("perceptron", 5, "binary", _perceptron, _perceptron_gradient),
        Loss("squared", 6, "real", _squared, _squared_gradient, bounds_zero_one=2.0, curvature=1.0),
        Loss("huber", 7, "real", _huber, _huber_gradient, curvature=1.0, parameter="epsilon", default_parameter=0.1),
        Loss(
            "epsilon_insensitive",
            8,
            "real",
            _epsilon_insensitive,
            _epsilon_insensitive_gradient,
            parameter="epsilon",
            default_parameter=0.1,
        ),
        Loss("quantile", 9, "real", _quantile, _quantile_gradient, parameter="quantile", default_parameter=0.5),
        Loss("poisson", 10, "count", _poisson, _poisson_gradient, plot_range=(-3.0, 2.0), inverse_link=_exp),
    )
}


class LossTable(Mapping[str, Loss]):
    """Losses by name: those that can be learned, and "zero_one", which can only be measured; `steepest.losses`.

    Each has `value(score, y)`, `gradient(score, y)` (by the score, +dl/dz) and `link` (score to P(y = +1), or None),
    for numbers and arrays. Losses of classes take y = -1 or +1. A third argument is the parameter of a loss that has
    one, such as the quantile. `bounds_zero_one` times the loss is nowhere below the 0/1 loss.

    Examples
    --------
    >>> import steepest as st
    >>> hinge = st.losses["hinge"]
    >>> float(hinge.value(0.25, 1)), float(hinge.gradient(0.25, 1)), hinge.link
    (0.75, -1.0, None)
    >>> st.losses["zero_one"].value([0.5, -0.5], [1, 1]).tolist()
    [0.0, 1.0]
    >>> round(float(st.losses["log"].link(2.0)), 3)
    0.881
    """

    def __init__(self, table: Mapping[str, Loss]) -> None:
        self._table = dict(table)

    def __getitem__(self, name: str) -> Loss:
        if name not in self._table:
            raise KeyError(f"the loss {name!r} is unknown; choose one of {', '.join(self._table)}")
        return self._table[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._table)

    def __len__(self) -> int:
        return len(self._table)

    def __repr__(self) -> str:
        return f"losses: {', '.join(self._table)}"


# All losses by name, as `steepest.losses`: those that can be learned, and the 0/1 loss, which can only be measured.
losses = LossTable(
    {**LOSSES, "zero_one": Loss("zero_one", -1, "binary", _zero_one, _zero_one_gradient, bounds_zero_one=1.0)}
)


def loss_for(name: str, n_problems: int) -> str:
    """What loss="auto" stands for: of several problems the squared hinge, which separates rare classes better.

    >>> loss_for("auto", 1), loss_for("auto", 20), loss_for("hinge", 20)
    ('log', 'squared_hinge', 'hinge')
    """
    if name != "auto":
        return name
    return "squared_hinge" if n_problems > 1 else "log"


def get_loss(name: str) -> Loss:
    """The loss of that name.

    >>> get_loss("log").code
    2
    """
    if name not in LOSSES:
        raise unknown("loss", name, LOSSES)
    return LOSSES[name]


def loss_parameter(loss: str, params: Mapping[str, Any]) -> float:
    """The one number of a loss that has one, from flat parameters: the quantile, or epsilon."""
    if loss == "quantile":
        return inside("quantile", params["quantile"], 0.0, 1.0)
    return at_least("epsilon", params["epsilon"], 0.0)
