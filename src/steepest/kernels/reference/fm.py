"""Factorization machines, entry by entry and pair by pair: what the kernels of `native/fm` compute.

A machine is a dictionary of float64 arrays: `w` (features, outputs), `v` (features, outputs, fields, factors), the sums
of squared gradients `w_square` and `v_square` (features, outputs, fields), `bias` and `bias_square` (outputs), and
`sign` (outputs). `field` is the field of each feature.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np

from steepest.kernels.reference.factors import Array, splitmix64

Machine = Mapping[str, Array]
MOST_REPEATS = 128


def score(machine: Machine, field: Array, indices: Array, x: Array, output: int) -> float:
    """Returns b + sum w_i x_i + sign * sum over i < j of <v_i[f_j], v_j[f_i]> x_i x_j."""
    v = machine["v"][:, output]
    pairs = 0.0
    for a, i in enumerate(indices):
        for b in range(a + 1, len(indices)):
            j = indices[b]
            pairs += float(v[i, field[j]] @ v[j, field[i]]) * float(x[a]) * float(x[b])
    linear = sum(float(machine["w"][i, output]) * float(x[a]) for a, i in enumerate(indices))
    return float(machine["bias"][output]) + linear + float(machine["sign"][output]) * pairs


def score_gradient(machine: Machine, field: Array, indices: Array, x: Array, output: int) -> tuple[Array, Array]:
    """Returns (d score / d w, d score / d v) of one output, for rows without an index twice."""
    w, v = np.zeros(machine["w"].shape[0]), np.zeros(machine["v"][:, output].shape)
    sign = float(machine["sign"][output])
    for a, i in enumerate(indices):
        w[i] += float(x[a])
        for b, j in enumerate(indices):
            if a != b:
                v[i, field[j]] += sign * machine["v"][j, output, field[i]] * float(x[a]) * float(x[b])
    return w, v


def learn_row(
    machine: Machine,
    field: Array,
    row: tuple[Array, Array],
    gradient: Callable[[float, int], float],
    eta: float,
    l2: float,
    start_square: float,
    weight: float = 1.0,
) -> None:
    """Takes one step of AdaGrad in place; `gradient(score, output)` is that of the loss with respect to the score.

    A weight, and a vector as a whole, moves by e = eta / sqrt(start_square + sum of mean squared gradients):
    v <- (v - e g) / (1 + e l2). Vectors that are in no pair of the row stay as they are.
    """
    indices, x = row
    repeats = 1 if weight <= 1 else math.ceil(min(weight, MOST_REPEATS))
    for _ in range(repeats if weight > 0 else 0):
        for k in range(machine["w"].shape[1]):
            g = gradient(score(machine, field, indices, x, k), k) * weight / repeats
            by_w, by_v = score_gradient(machine, field, indices, x, k)
            for i in indices:
                machine["w_square"][i, k] += (g * by_w[i]) ** 2
                e = eta / math.sqrt(start_square + machine["w_square"][i, k])
                machine["w"][i, k] = (machine["w"][i, k] - e * g * by_w[i]) / (1 + e * l2)
                for f in _fields_facing(field, indices, i):
                    machine["v_square"][i, k, f] += float(np.mean((g * by_v[i, f]) ** 2))
                    e = eta / math.sqrt(start_square + machine["v_square"][i, k, f])
                    machine["v"][i, k, f] = (machine["v"][i, k, f] - e * g * by_v[i, f]) / (1 + e * l2)
            machine["bias_square"][k] += g * g
            machine["bias"][k] -= eta * g / math.sqrt(start_square + machine["bias_square"][k])


def _fields_facing(field: Array, indices: Array, i: int) -> set[int]:
    """Returns the fields of the other features of a row."""
    return {int(field[j]) for j in indices if j != i}


def first_factor(seed: int, feature: int, field: int, output: int, place: int, size: float) -> float:
    """Returns a first factor, between -size and size: splitmix64 of the seed and of what the factor belongs to."""
    where = splitmix64(splitmix64(splitmix64(seed + feature) + field) + output)
    return size * (2 * (splitmix64(where + place) >> 11) * 2.0**-53 - 1)
