"""The minimum of the dual on a face: few variables between their bounds, found by linear systems.

Low-dimensional rows leave about as many variables free as there are features, and these rows are nearly dependent:
visits one after the other then take thousands of sweeps for what one system of that size gives at once. From where the
variables are, Newton's step on the free ones is taken as far as the bounds allow; those that meet theirs stay there,
and the rest goes on. What has to leave a bound again is left to the next sweep.
Invariant: bounds and signs are kept, and the variables sum to zero afterwards if a whole step was possible.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from steepest.data.chunk import Array

LIFT = 1e-12  # of the mean diagonal, against rows that depend on each other


class Face(NamedTuple):
    """The variables that take part, one number each."""

    beta: Array
    low: Array
    high: Array
    gradient: Array  # of the dual at beta, with the width's part left out
    width: float  # e of e |beta|
    diagonal: Array  # the quadratic term of each loss's dual


def minimise(face: Face, gram: Array, excess: float | None) -> tuple[Array, float]:
    """(variables at the minimum of the face, how far the bias moves).

    `gram` holds the products of the rows, `excess` the sum of all variables; None: there is no bias.
    """
    beta, gradient, bias = face.beta.copy(), face.gradient.copy(), 0.0
    held = (beta <= face.low) | (beta >= face.high) | ((beta == 0) & (face.width > 0))
    sign = np.sign(beta) if face.width > 0 else np.zeros_like(beta)
    low = np.where(sign > 0, 0.0, face.low)
    high = np.where(sign < 0, 0.0, face.high)
    for _ in range(len(beta)):
        free = np.flatnonzero(~held)
        if not len(free):
            break
        change, shift = _newton(gram, face.diagonal, gradient + face.width * sign, free, excess)
        room = np.where(change > 0, high[free] - beta[free], low[free] - beta[free])
        share = np.divide(room, change, out=np.full(len(free), np.inf), where=change != 0)
        step = min(1.0, float(share.min()))
        beta[free] += step * change
        gradient += step * (gram[:, free] @ change + shift)
        gradient[free] += step * face.diagonal[free] * change
        bias += step * shift
        excess = None if excess is None else excess + step * float(change.sum())
        if step == 1.0:
            break
        met = free[share <= step]
        beta[met] = np.where(share[share <= step] * change[share <= step] > 0, high[met], low[met])
        held[met] = True
    return np.clip(beta, face.low, face.high), bias


def _newton(gram: Array, diagonal: Array, gradient: Array, free: Array, excess: float | None) -> tuple[Array, float]:
    n = len(free)
    system = np.zeros((n + 1, n + 1))
    system[:n, :n] = gram[np.ix_(free, free)]
    places = np.arange(n)
    system[places, places] += diagonal[free] + LIFT * float(np.trace(system)) / n
    right = np.append(-gradient[free], 0.0)
    if excess is None:
        system[n, n] = 1.0
    else:
        system[n, :n], system[:n, n], right[n] = 1.0, 1.0, -excess
    try:
        found = np.linalg.solve(system, right)
    except np.linalg.LinAlgError:  # rows without an entry
        found = np.linalg.lstsq(system, right, rcond=None)[0]
    return found[:n], float(found[n])
