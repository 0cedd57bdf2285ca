"""The penalties R(w) of the objective mean loss + alpha R(w); the bias is never penalised.

none 0; l2 (1/2) sum w^2; l1 sum |w|; elasticnet l1_ratio l1 + (1 - l1_ratio) l2; lp (1/p) sum |w|^p for p >= 1.
prox(w, step) is the x that minimises (1/2) ||x - w||^2 + step R(x), the heart of the proximal methods (Parikh and
Boyd, "Proximal algorithms", 2014). Closed form for all but lp, where x + step x^(p-1) = |w| is solved by Newton's
method. The stochastic kernels know a penalty as two numbers (l1, l2), which `split` gives; an lp penalty has such
numbers for p = 1 and p = 2 only.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from steepest.errors import ParameterError

Array = npt.NDArray[np.float64]

PENALTIES = ("none", "l2", "l1", "elasticnet", "lp")


def soft_threshold(w: Any, amount: float | Array) -> Array:
    """Every entry moved towards zero by `amount`, and no further than zero."""
    x: Array = np.asarray(w, np.float64)
    return np.copysign(np.maximum(np.abs(x) - amount, 0.0), x)


SMALLEST_ALPHA, LARGEST_ALPHA = 1e-100, 1e30


def check_alpha(alpha: float) -> float:
    """The strength of a penalty, if it is one."""
    alpha = float(alpha)
    if not 0 <= alpha < math.inf:
        raise ParameterError(f"alpha={alpha} is not a strength of a penalty; give a finite number that is not negative")
    if alpha > LARGEST_ALPHA or 0 < alpha < SMALLEST_ALPHA:
        raise ParameterError(
            f"alpha={alpha} must be 0 or lie between {SMALLEST_ALPHA:g} and {LARGEST_ALPHA:g}; else sums overflow"
        )
    return alpha


@dataclass(frozen=True, slots=True)
class Penalty:
    """One penalty R(w); `l1_ratio` is read by elasticnet and `p` by lp.

    >>> float(Penalty("elasticnet", l1_ratio=0.5).value([3.0, -1.0]))
    4.5
    >>> Penalty("l1").prox([3.0, -0.5], step=1.0).tolist()
    [2.0, -0.0]
    """

    name: str
    l1_ratio: float = 0.15
    p: float = 2.0

    def __post_init__(self) -> None:
        if self.name not in PENALTIES:
            raise ParameterError(f"penalty={self.name!r} is unknown; choose one of {', '.join(PENALTIES)}")
        if self.name == "elasticnet" and not 0 <= self.l1_ratio <= 1:
            raise ParameterError(f"l1_ratio={self.l1_ratio} lies outside [0, 1]; 0 is l2 and 1 is l1")
        if self.name == "lp" and not 1 <= self.p < math.inf:
            raise ParameterError(f"p={self.p} gives no convex penalty lp; give a finite number that is at least 1")

    def value(self, w: Any) -> float:
        """R(w)."""
        size = np.abs(np.asarray(w, np.float64))
        a, b = self._mixture()
        if self.name == "lp":
            return float(np.sum(size**self.p)) / self.p
        return a * float(np.sum(size)) + b * 0.5 * float(np.sum(size**2))

    def gradient(self, w: Any) -> Array:
        """The gradient of R, with 0 for the derivative of |w| at w = 0."""
        x: Array = np.asarray(w, np.float64)
        sign: Array = np.sign(x)
        a, b = self._mixture()
        if self.name == "lp":
            return sign * np.abs(x) ** (self.p - 1.0)
        return a * sign + b * x

    def prox(self, w: Any, step: float | Array) -> Array:
        """The minimiser of (1/2) ||x - w||^2 + step R(x); the step may differ from weight to weight."""
        if not (np.all(np.greater_equal(step, 0)) and np.all(np.isfinite(step))):
            raise ParameterError(
                f"step={step} is not a step of a proximal map; give a finite number that is not negative"
            )
        simple = self if self.name != "lp" or self.p not in (1, 2) else self.for_stochastic()
        if simple.name == "lp":
            return _prox_lp(np.asarray(w, np.float64), step, self.p)
        a, b = simple._mixture()
        return soft_threshold(w, step * a) / (1.0 + step * b)

    def contour(self, level: float = 1.0, n: int = 200) -> Array:
        """n points (w_1, w_2) with R(w) = level, once around; n x 2, and none at all if R is zero everywhere.

        The corners on the axes are among them if n is a multiple of 4.
        """
        if self.name == "none":
            return np.zeros((0, 2))
        angle = np.linspace(0.0, 2.0 * np.pi, n, endpoint=False)
        direction: Array = np.stack([np.cos(angle), np.sin(angle)], axis=1)
        size: Array = np.abs(direction)
        radius: Array
        if self.name == "lp":
            radius = (level * self.p / np.sum(size**self.p, axis=1)) ** (1.0 / self.p)
        else:  # a r |d|_1 + b r^2 / 2 = level, by the form of the quadratic formula that also holds for b = 0
            a, b = self._mixture()
            linear = a * np.sum(size, axis=1)
            radius = 2.0 * level / (linear + np.sqrt(linear**2 + 2.0 * b * level))
        return direction * radius[:, None]

    def split(self, alpha: float, l1_ratio: float | None = None) -> tuple[float, float]:
        """(l1, l2) with alpha R(w) = l1 sum |w| + l2 (1/2) sum w^2; `l1_ratio` may replace the penalty's own.

        >>> Penalty("elasticnet").split(0.1, l1_ratio=0.25)
        (0.025, 0.07500000000000001)
        """
        alpha = check_alpha(alpha)
        if l1_ratio is not None:
            return Penalty(self.name, l1_ratio, self.p).split(alpha)
        a, b = self.for_stochastic()._mixture()
        return alpha * a, alpha * b

    def for_stochastic(self) -> Penalty:
        """The same penalty in a form that stochastic solvers can use; lp becomes l1 or l2, or is refused."""
        if self.name != "lp":
            return self
        if self.p not in (1, 2):
            raise ParameterError(
                f"p={self.p}: a stochastic solver applies penalty 'lp' lazily to weights it has not seen for a while, "
                "which is possible for p=1 and p=2 only; choose one of these or a batch solver (gd, cg, lbfgs)"
            )
        return Penalty("l1" if self.p == 1 else "l2")

    def _mixture(self) -> tuple[float, float]:
        """(a, b) with R = a sum |w| + b (1/2) sum w^2."""
        if self.name == "elasticnet":
            return self.l1_ratio, 1.0 - self.l1_ratio
        return float(self.name == "l1"), float(self.name == "l2")


def _prox_lp(w: Array, step: float | Array, p: float) -> Array:
    """Solves x + step x^(p-1) = |w| for every entry, p > 1.

    With x itself (p > 2) or z = x^(p-1) (p < 2) as unknown, the equation reads A z^q + B z = |w| with q > 1: convex and
    increasing, so that Newton's method falls monotonically to the root from any point above it.
    """
    size = np.abs(w)
    if not np.all(step):
        some = np.broadcast_to(step, w.shape) > 0
        out = w.copy()
        out[some] = _prox_lp(w[some], np.broadcast_to(step, w.shape)[some], p) if some.any() else w[some]
        return out
    if p > 2:
        return np.sign(w) * _convex_root(step, p - 1.0, 1.0, size)
    q = 1.0 / (p - 1.0)
    z = _convex_root(1.0, q, step, size)
    small = z**q
    # Of the two expressions for x, each loses digits where the other one does not.
    return np.sign(w) * np.where(small > 0.5 * size, size - step * z, small)


@np.errstate(over="ignore")  # an infinite derivative makes an empty step, which is right: the start is the root then
def _convex_root(A: float | Array, q: float, B: float | Array, target: Array) -> Array:
    """The z >= 0 with A z^q + B z = target, for q > 1 and positive A, B."""
    z: Array = np.minimum(
        target ** (1.0 / q) * A ** (-1.0 / q), target / B
    )  # either term alone fills the target: above
    for _ in range(100):  # measured: 13 are enough for p from 1.001 to 10,000
        power = A * z ** (q - 1.0)
        below = z - (power * z + B * z - target) / (q * power + B)
        below = np.clip(below, 0.0, z)  # safeguard: rounding must not send it up again
        if np.array_equal(below, z, equal_nan=True):
            break
        z = below
    return z
