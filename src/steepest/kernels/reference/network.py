"""The kernels of networks, slow and obvious: what each must compute, for the tests to compare with.

Rows come as a dense matrix X here; `present` says which features occur in the batch, as in the sparse rows.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


def pay(w: Array, length: float, l1: float, l2: float) -> Array:
    """Returns w after following w' = -l2 w - l1 sign(w) over a length; the flow stops at zero."""
    factor = math.exp(-l2 * length)
    less = l1 / l2 * (1 - factor) if l2 > 0 else l1 * length
    return np.asarray(np.sign(w) * np.maximum(np.abs(w) * factor - less, 0))


def forward(X: Array, table: Array, stamp: Array | None, path: float, l1: float, l2: float) -> tuple[Array, Array]:
    """Returns (X times the table up to date, that table): rows of features that occur are shrunk, others wait."""
    paid = table.copy()
    if stamp is not None:
        for j in np.flatnonzero((X != 0).any(axis=0)):
            paid[j] = pay(table[j], path - stamp[j], l1, l2)
    return X @ paid, paid


def gather(X: Array, gradients: Array) -> dict[int, Array]:
    """Returns the rows of X' gradients of the features that occur."""
    sums = X.T @ gradients
    return {int(j): sums[j] for j in np.flatnonzero((X != 0).any(axis=0))}


def update(
    solver: str, eta: float, momentum: float, step: int, g: Array, w: Array, first: Array, second: Array
) -> tuple[Array, Array, Array]:
    """Returns (weights, mean, square) after one step of a solver."""
    if solver == "sgd":
        return w - eta * g, first, second
    if solver == "momentum":
        first = momentum * first + g
        return w - eta * first, first, second
    if solver == "adagrad":
        second = second + g**2
        return w - eta * g / (np.sqrt(second) + 1e-7), first, second
    first = momentum * first + (1 - momentum) * g
    second = 0.999 * second + 0.001 * g**2
    mean, square = first / (1 - momentum**step), second / (1 - 0.999**step)
    return w - eta * mean / (np.sqrt(square) + 1e-8), first, second


def softmax(scores: Array, classes: Array, factor: Array) -> tuple[Array, Array]:
    """Returns (loss of each row, its gradients times the row's factor)."""
    e = np.exp(scores - scores.max(axis=1, keepdims=True))
    p = e / e.sum(axis=1, keepdims=True)
    targets = np.eye(scores.shape[1])[classes]
    return -np.log((p * targets).sum(axis=1)), (p - targets) * factor[:, None]
