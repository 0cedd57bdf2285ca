"""The factorization kernels in plain NumPy: slow, obvious, and what the native ones are compared with.

Tables are float64 copies of the native ones: padded factors, then bias, squares, squares of the bias, and the two
shrinkages. Random numbers are those of splitmix64, as in the native code.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
BIAS, SQUARES, BIAS_SQUARES, SHRINK, BIAS_SHRINK = range(5)
TAIL = 8
_MASK = 0xFFFFFFFFFFFFFFFF


def splitmix64(z: int) -> int:
    """Returns a number that depends on z alone, as the native code computes it."""
    z = (z + 0x9E3779B97F4A7C15) & _MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return z ^ (z >> 31)


def factor_init(n_rows: int, rank: int, seed: int, scale: float) -> Array:
    """Returns the numbers that rows start from."""
    table = np.zeros((n_rows, rank))
    for i in range(n_rows):
        for j in range(rank):
            z = splitmix64(seed ^ splitmix64(i * rank + j))
            total = sum(z >> shift & 0xFFFF for shift in (0, 16, 32, 48)) - 131070
            table[i, j] = scale * np.sqrt(3) / 65536 * total
    return table


def _soft(value: Array, amount: float, nonnegative: bool) -> Array:
    shrunk = np.sign(value) * np.maximum(np.abs(value) - amount, 0)
    return np.maximum(shrunk, 0) if nonnegative else shrunk


def _move(row: Array, padded: int, gradient: Array, bias_gradient: float | None, c: dict[str, Any]) -> None:
    """Takes one step of one row in place: the factors by `gradient`, the bias by its own."""
    tail = row[padded:]
    step = c["eta"] / np.sqrt(tail[SQUARES]) if c["adaptive"] else c["eta"]
    bias_step = c["eta"] / np.sqrt(tail[BIAS_SQUARES]) if c["adaptive"] else c["eta"]
    gradient = gradient + c["l2"] * tail[SHRINK] * row[:padded]
    row[:padded] -= step * gradient
    if c["l1"] > 0 or c["nonnegative"]:
        row[:padded] = _soft(row[:padded], step * c["l1"] * tail[SHRINK], c["nonnegative"])
    tail[SQUARES] += (gradient**2).sum() / c["rank"]
    if bias_gradient is not None and c["biases"]:
        bias_gradient += c["l2_bias"] * tail[BIAS_SHRINK] * tail[BIAS]
        tail[BIAS] -= bias_step * bias_gradient
        tail[BIAS_SQUARES] += bias_gradient**2


def factor_pairs(users: Array, items: Array, user_table: Array, item_table: Array, mean: float) -> Array:
    """Returns the scores of pairs."""
    padded = user_table.shape[1] - TAIL
    p, q = user_table[users], item_table[items]
    return np.asarray(mean + p[:, padded] + q[:, padded] + (p[:, :padded] * q[:, :padded]).sum(axis=1))


def factor_sgd(
    users: Array, items: Array, values: Array, weights: Array | None, tables: tuple[Array, Array], c: dict[str, Any]
) -> float:
    """Visits each entry once, in place; returns the sum of losses before learning."""
    padded, total = tables[0].shape[1] - TAIL, 0.0
    loss = c["loss"]  # with `value` and `gradient`, as in learners.losses
    for t in range(len(users)):
        p, q = tables[0][users[t]], tables[1][items[t]]
        weight = 1.0 if weights is None else weights[t]
        score = np.array([c["mean"] + p[padded] + q[padded] + p[:padded] @ q[:padded]])
        target = np.array([float(values[t])])
        total += weight * float(loss.value(score, target, 0.0)[0])
        g = weight * float(loss.gradient(score, target, 0.0)[0])
        old_p, old_q = p[:padded].copy(), q[:padded].copy()
        _move(p, padded, g * old_q, g, c)
        _move(q, padded, g * old_p, g, c)
    return total


def factor_sgd_block(
    users: Array, items: Array, values: Array, weights: Array | None, tables: tuple[Array, Array], c: dict[str, Any]
) -> float:
    """Does what `factor_sgd` does, with the step sizes and mean squares from the start of the block."""
    padded, total = tables[0].shape[1] - TAIL, 0.0
    steps, mean_squares = [], []
    for table in tables:
        sums = table[:, padded + SQUARES : padded + BIAS_SQUARES + 1]
        steps.append(c["eta"] / np.sqrt(sums) if c["adaptive"] else np.full(sums.shape, c["eta"]))
        mean_squares.append((table[:, :padded] ** 2).sum(axis=1) / c["rank"])
    for t, pair in enumerate(zip(users, items, strict=True)):
        rows = [table[row] for table, row in zip(tables, pair, strict=True)]
        score = np.array([c["mean"] + sum(row[padded] for row in rows) + rows[0][:padded] @ rows[1][:padded]])
        target, weight = np.array([float(values[t])]), 1.0 if weights is None else float(weights[t])
        total += weight * float(c["loss"].value(score, target, 0.0)[0])
        g = weight * float(c["loss"].gradient(score, target, 0.0)[0])
        old = [row[:padded].copy() for row in rows]
        for side, row in enumerate(rows):
            step, tail = steps[side][pair[side]], row[padded:]
            row[:padded] -= step[0] * (g * old[1 - side] + c["l2"] * tail[SHRINK] * old[side])
            tail[SQUARES] += g**2 * mean_squares[1 - side][pair[1 - side]]
            if c["biases"]:
                tail[BIAS] -= step[1] * (g + c["l2_bias"] * tail[BIAS_SHRINK] * tail[BIAS])
                tail[BIAS_SQUARES] += g**2
    return total


def negative_of(liked: set[int], first: int, last: int, seed: int, moment: int) -> int:
    """Returns an item of the stripe that is not liked, or -1 after eight tries."""
    for tries in range(8):
        random = splitmix64(seed ^ splitmix64(moment * 8 + tries)) >> 32
        item = first + (random * (last - first) >> 32)
        if item not in liked:
            return item
    return -1


def factor_bpr(
    users: Array, items: Array, liked: list[set[int]], seed: int, tables: tuple[Array, Array], c: dict[str, Any]
) -> float:
    """Visits each entry against a random item that the user is not known to like; returns the sum of losses."""
    padded, total = tables[0].shape[1] - TAIL, 0.0
    block_seed = splitmix64(seed ^ splitmix64(0))
    for t in range(len(users)):
        other = negative_of(liked[users[t]], 0, len(tables[1]), block_seed, t)
        if other < 0:
            continue
        p, i, j = tables[0][users[t]], tables[1][items[t]], tables[1][other]
        margin = i[padded] - j[padded] + p[:padded] @ (i[:padded] - j[:padded])
        total += float(np.logaddexp(0, -margin))
        g = -1 / (1 + np.exp(margin))
        old = p[:padded].copy(), i[:padded].copy(), j[:padded].copy()
        _move(p, padded, g * (old[1] - old[2]), None, c)
        _move(i, padded, g * old[0], g, c)
        _move(j, padded, -g * old[0], -g, c)
    return total


def factor_als(
    indptr: Array,
    indices: Array,
    values: Array,
    weights: Array | None,
    other: Array,
    ridge: Array,
    bias_at: int,
    bias_ridge: float,
    implicit: bool,
) -> Array:
    """Returns the exact least squares solution of each row."""
    rank = other.shape[1]
    solved = np.zeros((len(indptr) - 1, rank))
    for i in range(len(solved)):
        at = slice(indptr[i], indptr[i + 1])
        x, v = other[indices[at]], values[at]
        w = np.ones(len(v)) if weights is None else weights[at]
        penalty = np.full(rank, ridge[i])
        if bias_at >= 0:
            penalty[bias_at] = bias_ridge
        if implicit:
            matrix, right = other.T @ other + (x * v[:, None]).T @ x, ((1 + v)[:, None] * x).sum(axis=0)
        else:
            matrix, right = (x * w[:, None]).T @ x, ((w * v)[:, None] * x).sum(axis=0)
        solved[i] = np.linalg.solve(matrix + np.diag(penalty), right)
    return solved


def factor_kl(
    indptr: Array, indices: Array, values: Array, other: Array, sums: Array, steps: int, start: Array
) -> Array:
    """Returns each row after its multiplicative steps."""
    solved = start.copy()
    for i in range(len(solved)):
        at = slice(indptr[i], indptr[i + 1])
        y = other[indices[at]]
        for _ in range(steps):
            solved[i] *= (values[at] / (y @ solved[i])) @ y / sums
    return solved


def factor_top(users: Array, items: Array, bias: Array, excluded: list[set[int]], k: int) -> tuple[Array, Array]:
    """Returns (numbers, scores) of the k best items, -1 where there are no more; the earlier of equals first."""
    best, scores = np.full((len(users), k), -1), np.full((len(users), k), -np.inf)
    for u in range(len(users)):
        values = items @ users[u] + bias
        values[list(excluded[u])] = -np.inf
        order = np.lexsort((np.arange(len(values)), -values))[:k]
        order = order[values[order] > -np.inf]
        best[u, : len(order)], scores[u, : len(order)] = order, values[order]
    return best, scores
