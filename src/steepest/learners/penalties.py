"""The penalties R(w) of the objective mean loss + alpha R(w); the bias is never penalised.

none 0; l2 (1/2) sum w^2; l1 sum |w|; elasticnet l1_ratio l1 + (1 - l1_ratio) l2; lp (1/p) sum |w|^p for p >= 1;
norm2 ||w||, the root of sum w^2; max the largest |w|. The two norms couple all weights of an output, so a table of
weights with a column per output counts the sum of its columns' norms.
prox(w, step) is the x that minimises (1/2) ||x - w||^2 + step R(x), the heart of the proximal methods (Parikh and
Boyd, "Proximal algorithms", 2014). Closed form for all but lp, where x + step x^(p-1) = |w| is solved by Newton's
method, and norm2 under steps that differ, where the length of x is. The stochastic kernels know a penalty as two
numbers (l1, l2), which `split` gives; an lp penalty has such numbers for p = 1 and p = 2 only, a norm has none.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from steepest.errors import ParameterError
from steepest.parameters import unknown

Array = npt.NDArray[np.float64]

PENALTIES = ("none", "l2", "l1", "elasticnet", "lp", "norm2", "max")
NORMS = ("norm2", "max")  # of all weights at once: by proximal steps of solver="gd" only


def soft_threshold(w: Any, amount: float | Array) -> Array:
    """Every entry moved towards zero by `amount`, and no further than zero."""
    x: Array = np.asarray(w, np.float64)
    return np.copysign(np.maximum(np.abs(x) - amount, 0.0), x)


SMALLEST_ALPHA, LARGEST_ALPHA = 1e-100, 1e30


def check_alpha(alpha: float) -> float:
    """The strength of a penalty, checked to be a finite number >= 0."""
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
            raise unknown("penalty", self.name, PENALTIES)
        if self.name == "elasticnet" and not 0 <= self.l1_ratio <= 1:
            raise ParameterError(f"l1_ratio={self.l1_ratio} lies outside [0, 1]; 0 is l2 and 1 is l1")
        if self.name == "lp" and self.p == math.inf:
            raise ParameterError("p=inf is the max norm; give penalty='max'")
        if self.name == "lp" and not self.p >= 1:
            raise ParameterError(
                f"p={self.p} gives no convex penalty, so training could end in a local minimum; "
                "give p of at least 1 (p=1 gives the most zeros)"
            )

    def value(self, w: Any) -> float:
        """R(w)."""
        size = np.abs(np.asarray(w, np.float64))
        a, b = self.mixture()
        if self.name == "lp":
            return float(np.sum(size**self.p)) / self.p
        if self.name in NORMS:
            return float(np.sum(self.lengths(size)))
        return a * float(np.sum(size)) + b * 0.5 * float(np.sum(size**2))

    def gradient(self, w: Any) -> Array:
        """The gradient of R, with 0 for the derivative of |w| at w = 0; all the largest weights share that of max."""
        x: Array = np.asarray(w, np.float64)
        sign: Array = np.sign(x)
        a, b = self.mixture()
        if self.name == "lp":
            return sign * np.abs(x) ** (self.p - 1.0)
        if self.name in NORMS:
            length = self.lengths(np.abs(x))
            if self.name == "norm2":
                return x / np.where(length > 0, length, 1.0)
            largest = np.where((np.abs(x) == length) & (length > 0), sign, 0.0)
            return np.asarray(largest / np.maximum(np.abs(largest).sum(axis=0), 1.0))
        return a * sign + b * x

    def dual_norm(self, g: Any) -> float:
        """The largest of g.w over all w of norm 1, of the output where that is largest: 2-norm, or 1-norm for max."""
        size = np.abs(np.asarray(g, np.float64))
        each = size.sum(axis=0) if self.name == "max" else Penalty("norm2").lengths(size)
        return float(np.max(each, initial=0.0))

    def prox(self, w: Any, step: float | Array) -> Array:
        """The minimiser of (1/2) ||x - w||^2 + step R(x); the step may differ from weight to weight."""
        if not (np.all(np.greater_equal(step, 0)) and np.all(np.isfinite(step))):
            raise ParameterError(
                f"step={step} is not a step of a proximal map; give a finite number that is not negative"
            )
        if self.name in NORMS:
            return _prox_norm(np.asarray(w, np.float64), step, self.name)
        simple = self if self.name != "lp" or self.p not in (1, 2) else self.for_stochastic()
        if simple.name == "lp":
            return _prox_lp(np.asarray(w, np.float64), step, self.p)
        a, b = simple.mixture()
        return soft_threshold(w, step * a) / (1.0 + step * b)

    def split(self, alpha: float) -> tuple[float, float]:
        """(l1, l2) with alpha R(w) = l1 sum |w| + l2 (1/2) sum w^2.

        >>> Penalty("elasticnet", l1_ratio=0.25).split(0.1)
        (0.025, 0.07500000000000001)
        """
        alpha = check_alpha(alpha)
        a, b = self.for_stochastic().mixture()
        return alpha * a, alpha * b

    def for_stochastic(self) -> Penalty:
        """The penalty for stochastic solvers; lp becomes l1 or l2 if p is 1 or 2, else it raises."""
        if self.name in NORMS:
            raise ParameterError(
                f"penalty={self.name!r} couples all weights, so it cannot be applied row by row; use solver='gd' "
                "(or 'auto' in fit), or penalty='l2'"
            )
        if self.name != "lp":
            return self
        if self.p not in (1, 2):
            raise ParameterError(
                f"p={self.p}: a stochastic solver applies penalty 'lp' lazily to weights it has not seen for a while, "
                "which is possible for p=1 and p=2 only; choose one of these or a batch solver (gd, cg, lbfgs)"
            )
        return Penalty("l1" if self.p == 1 else "l2")

    def lengths(self, size: Array) -> Array:
        """The norm of every output's weights, given their absolute values."""
        largest = np.asarray(np.max(size, axis=0, initial=0.0))
        if self.name == "max":
            return largest
        unit = np.where(largest > 0, largest, 1.0)  # against overflow of squares
        return np.asarray(unit * np.sqrt(np.sum((size / unit) ** 2, axis=0)))

    def mixture(self) -> tuple[float, float]:
        """(a, b) with R = a sum |w| + b (1/2) sum w^2."""
        if self.name == "elasticnet":
            return self.l1_ratio, 1.0 - self.l1_ratio
        return float(self.name == "l1"), float(self.name == "l2")


def norm_contour(p: float, level: float = 1.0, n: int = 200) -> Array:
    """n points (w_1, w_2) with ||w||_p = level, once around; any p above 0, also those that are no penalty here.

    >>> norm_contour(0.5, n=4).round(12).tolist()
    [[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0], [0.0, -1.0]]
    """
    if not p > 0:
        raise ParameterError(f"p={p} is not an exponent of a norm; give a number above 0")
    angle = np.linspace(0.0, 2.0 * np.pi, n, endpoint=False)
    direction: Array = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    direction[np.abs(direction) < 1e-15] = 0.0  # on an axis: a small power would make much of what rounding leaves
    size: Array = np.abs(direction)
    largest: Array = np.max(size, axis=1)  # taken out, so that high powers do not vanish
    length = largest if math.isinf(p) else largest * np.sum((size / largest[:, None]) ** p, axis=1) ** (1.0 / p)
    return direction * (level / length)[:, None]


def _prox_norm(w: Array, step: float | Array, name: str) -> Array:
    """Column by column; a step of zero leaves its weight free, one of several values belongs to a scaled metric."""
    steps = np.broadcast_to(np.asarray(step, np.float64), w.shape)
    solve = _prox_max if name == "max" else _prox_two_norm
    if w.ndim == 1:
        return solve(w, steps)
    return np.stack([solve(w[:, k], steps[:, k]) for k in range(w.shape[1])], axis=1) if w.size else w.copy()


def _prox_two_norm(w: Array, d: Array) -> Array:
    """x = w r / (r + d), where r = |x| solves sum w^2 / (r + d)^2 = 1; zero if that sum is at most 1 at r = 0.

    1 / sqrt(sum) is concave in r and a line where all d are equal: Newton's method climbs to the root from below, then
    in one step (the secular equation of trust regions; More and Sorensen, 1983).
    """
    if not d.all():
        if not d.any():
            return w.copy()
        raise ParameterError("the steps of a proximal map of a norm are all zero or all above zero")
    if not np.linalg.norm(w / d) > 1:
        return np.zeros_like(w)
    r = 0.0
    for _ in range(100):
        share = w / (r + d)
        length = math.sqrt(float(share @ share))
        climb = (1.0 - 1.0 / length) * length**3 / float(share @ (share / (r + d)))
        if not r + climb > r:
            break
        r += climb
    return w * (r / (r + d))


def _prox_max(w: Array, d: Array) -> Array:
    """Every entry cut off at t, where what is cut off, each part over its step, adds up to 1: found by sorting."""
    if not d.any():
        return w.copy()
    size = np.abs(w)
    order = np.argsort(-size, kind="stable")
    falling, weight = size[order], 1.0 / d[order]
    total, mass = np.cumsum(weight * falling), np.cumsum(weight)
    if total[-1] <= 1:
        return np.zeros_like(w)
    levels = (total - 1.0) / mass  # the cut if the first k are cut; the right one is the largest
    return np.copysign(np.minimum(size, max(0.0, float(levels.max()))), w)


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
