"""The slow, obvious NumPy definition of the k-means kernels, on dense float64 arrays.

Used by the tests only. Rows are X of shape (n, d), centres of shape (k, d); ties go to the lower number.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


def squares(X: Array, centres: Array) -> Array:
    """Returns |x - c|² for all pairs."""
    gaps = X[:, None, :].astype(np.float64) - centres[None, :, :]
    return np.asarray((gaps**2).sum(axis=2))


def nearest(X: Array, centres: Array) -> tuple[Array, Array]:
    """Returns (number of the nearest centre, squared distance to it)."""
    all_squares = squares(X, centres)
    labels = all_squares.argmin(axis=1)
    return labels, all_squares[np.arange(len(X)), labels]


def add(X: Array, weight: Array, labels: Array, sums: Array, counts: Array) -> tuple[Array, Array]:
    """Returns sums and counts with these rows added; a cluster that has counted nothing yet starts from zero."""
    sums, counts = np.where(counts[:, None] > 0, sums, 0.0) * 1.0, counts.astype(np.float64)
    hit = np.bincount(labels, weight, minlength=len(counts)) > 0
    for x, w, c in zip(X, weight, labels, strict=True):
        sums[c] += w * x
        counts[c] += w
    return np.asarray(np.where((counts > 0)[:, None] | hit[:, None], sums, 0.0)), counts


def means(X: Array, weight: Array, labels: Array, centres: Array) -> Array:
    """Returns the weighted mean of each cluster's rows; a cluster without any keeps its centre."""
    moved = centres.astype(np.float64)
    for c in range(len(centres)):
        mine = (labels == c) & (weight > 0)
        if mine.any():
            moved[c] = np.average(X[mine].astype(np.float64), axis=0, weights=weight[mine])
    return moved


def lloyd(X: Array, weight: Array, centres: Array, epochs: int) -> tuple[Array, Array, float]:
    """Returns (centres, labels, inertia) after at most `epochs` iterations; only for data with no empty cluster."""
    labels = np.full(len(X), -1)
    for _ in range(epochs):
        before, (labels, _) = labels, nearest(X, centres)
        if np.array_equal(before, labels):
            break
        centres = means(X, weight, labels, centres)
    labels, best = nearest(X, centres)
    return centres, labels, float(weight @ best)
