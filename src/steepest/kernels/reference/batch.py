"""The batch kernel in plain NumPy: what one pass adds up, without lanes, chunks or threads. Tests compare the two.

With scores z = X w + b and weights c of the rows: loss sum(c l(z)), gradient X'(c l'(z)), product X'(c l''(z) (X v)),
diagonal (X^2)'(c l''(z)), and Hessian X'(c l''(z) X). The losses are given as functions, so that this file knows
nothing of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from steepest.kernels.reference.linear import Array

RowFunction = Callable[[Array, Array], Array]


def with_ones(X: Array) -> Array:
    """Returns the rows with a column of ones for the bias."""
    return np.column_stack([np.asarray(X, np.float64), np.ones(len(X))])


def gradient(
    X: Array, y: Array, c: Array, w: Array, value: RowFunction, gradient_of: RowFunction
) -> tuple[float, Array]:
    """Returns (sum of the losses, gradient), one column per output."""
    rows = with_ones(X)
    z = rows @ w
    return float((c[:, None] * value(z, y)).sum()), rows.T @ (c[:, None] * gradient_of(z, y))


def product(X: Array, c: Array, curvature: Array, v: Array) -> Array:
    """Returns the Hessian times v, from second derivatives per row and output."""
    rows = with_ones(X)
    return np.asarray(rows.T @ (c[:, None] * curvature * (rows @ v)))


def diagonal(X: Array, c: Array, curvature: Array) -> Array:
    """Returns the diagonal of the Hessian."""
    return np.asarray((with_ones(X) ** 2).T @ (c[:, None] * curvature))


def hessian(X: Array, c: Array, curvature: Array) -> Array:
    """Returns the Hessian, a matrix per output."""
    rows = with_ones(X)
    return np.array([rows.T @ (c[:, None] * bend[:, None] * rows) for bend in curvature.T])


def envelope(loss: Callable[[Any], Array], a: float, mu: float, width: float = 8.0) -> float:
    """Returns min over s of loss(s) + (a - s)^2 / (2 mu), found on a fine grid of s."""
    s = a + np.linspace(-width * mu, width * mu, 200_001)
    return float((loss(s) + (a - s) ** 2 / (2 * mu)).min())
