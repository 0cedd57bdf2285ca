"""The temperature of probabilities: what scores are divided by so that held-out labels are most likely."""

from __future__ import annotations

import numpy as np

from steepest.data.chunk import Array


def best_sharpness(z: Array, shares: Array, is_softmax: bool) -> float:
    """One over the temperature of least loss: the loss is convex in it, so a bracket is narrowed until it is tight."""
    shares = shares / np.maximum(shares.sum(axis=1, keepdims=True), 1) if is_softmax else shares

    def loss(log_sharpness: float) -> float:
        s = z * np.exp(log_sharpness)
        if not is_softmax:
            return float(np.logaddexp(0, np.where(shares > 0, -s, s)).sum())
        most = s.max(axis=1, keepdims=True)
        totals = most[:, 0] + np.log(np.exp(s - most).sum(axis=1))
        return float((shares.sum(axis=1) * totals - (shares * s).sum(axis=1)).sum())

    low, high, golden = -4.0, 4.0, (5**0.5 - 1) / 2
    while high - low > 1e-4:
        a, b = high - golden * (high - low), low + golden * (high - low)
        low, high = (low, b) if loss(a) < loss(b) else (a, high)
    return float(np.exp((low + high) / 2))
