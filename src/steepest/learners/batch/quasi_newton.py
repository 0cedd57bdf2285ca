"""The two loops of L-BFGS: an approximate inverse Hessian from the last steps, times a gradient.

H is the identity over `scale`, corrected by pairs (s, y) of changes in w and gradient (Nocedal and Wright, 2006,
algorithm 7.4).
"""

from __future__ import annotations

import numpy as np

from steepest.data.chunk import Array

Pairs = list[tuple[Array, Array]]


def times_inverse_hessian(gradient: Array, pairs: Pairs, scale: Array | float = 1.0) -> Array:
    """H times the gradient, which without pairs is the gradient over the scale."""
    q = gradient.copy()
    shares = []
    for s, y in reversed(pairs):
        share = float(np.vdot(s, q)) / float(np.vdot(s, y))
        q -= share * y
        shares.append(share)
    q /= scale
    if pairs:
        s, y = pairs[-1]
        q *= float(np.vdot(s, y)) / float(np.vdot(y, y / scale))
    for (s, y), share in zip(pairs, reversed(shares), strict=True):
        q += (share - float(np.vdot(y, q)) / float(np.vdot(s, y))) * s
    return q
