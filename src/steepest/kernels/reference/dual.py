"""The slow, obvious definition of the loops of dual_cd, saga and cd, in float64 and with dense rows.

dual sweep  for each row in the shuffled order, beta <- argmin of the dual in this variable (or `relax` times as far),
            w += change x, b likewise
saga epoch  for each row of the order: w <- w - eta (1 - 1/n) (g - old g) x, then every weight flows by eta along
            -(mean gradient + l1 sign w), stopping at zero where the 1-norm holds it, and is divided by 1 + eta l2
cd cycle    for each feature of the set, w_j <- argmin of the quadratic model in this weight
Left out: shrinking, everything lazy, and the checks of the input.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from steepest.kernels.reference.factors import Array, splitmix64

Box = tuple[float, float, float, float]  # low, high, quadratic term, width


def shuffled(n: int, seed: int) -> list[int]:
    """Returns 0..n-1 shuffled by Fisher and Yates, with the numbers of splitmix64."""
    order = list(range(n))
    for k in range(n - 1, 0, -1):
        other = ((splitmix64(seed + (n - 1 - k) * 0x9E3779B97F4A7C15) >> 32) * (k + 1)) >> 32
        order[k], order[other] = order[other], order[k]
    return order


def dual_box(loss: str, parameter: float, y: float, cap: float) -> Box:
    """Returns the range of a dual variable of weight `cap`, and what the dual of the loss charges for its value."""
    up, down = (1.0, 0.0) if y > 0 else (0.0, 1.0)
    infinite = np.inf
    return {
        "hinge": (-down * cap, up * cap, 0.0, 0.0),
        "squared_hinge": (-infinite if down else 0.0, infinite if up else 0.0, 0.5 / cap, 0.0),
        "modified_huber": (-4 * down * cap, 4 * up * cap, 0.5 / cap, 0.0),
        "squared": (-infinite, infinite, 1 / cap, 0.0),
        "huber": (-parameter * cap, parameter * cap, 1 / cap, 0.0),
        "epsilon_insensitive": (-cap, cap, 0.0, parameter),
        "quantile": ((parameter - 1) * cap, parameter * cap, 0.0, 0.0),
    }[loss]


def dual_optimum(
    loss: str, parameter: float, beta: float, square: float, y: float, cap: float, score: float, relax: float = 1.0
) -> float:
    """Returns the best dual variable of one row while all others stay, or `relax` times as far, up to a kink."""
    if loss == "log":  # alpha = cap / (1 + exp(margin)), and the margin moves with alpha: by bisection
        low, high = 0.0, cap
        for _ in range(200):
            alpha = 0.5 * (low + high)
            margin = y * score + square * (alpha - y * beta)
            low, high = (alpha, high) if alpha < cap / (1 + np.exp(margin)) else (low, alpha)
        return y * 0.5 * (low + high)
    low, high, diagonal, width = dual_box(loss, parameter, y, cap)
    pull = square * beta - (score - y)
    soft = np.sign(pull) * max(abs(pull) - width, 0.0)
    goal = soft / (square + diagonal)
    relaxed = beta + relax * (goal - beta)
    if width > 0 and relaxed * goal <= 0:
        relaxed = 0.0
    return float(np.clip(relaxed, low, high))


def dual_sweep(
    rows: Array,
    state: Array,
    w: Array,
    bias: Array,
    order: list[int],
    loss: str,
    parameter: float,
    bias_step: float,
    relax: float = 1.0,
) -> None:
    """Visits every row once and updates `state` in place, whose columns are beta, square, y and cap."""
    for i in order:
        beta, square, y, cap = state[i]
        if cap == 0:
            continue
        fresh = dual_optimum(loss, parameter, beta, square, y, cap, float(rows[i] @ w + bias[0]), relax)
        state[i, 0] = fresh
        w += (fresh - beta) * rows[i]
        bias += (fresh - beta) * np.array([bias_step, 1.0])


def flow(w: float, mean: float, l1: float, amount: float) -> float:
    """Returns w after moving by `amount` along -(mean + l1 sign w)."""
    if w != 0:
        speed = mean + l1 * np.sign(w)
        if speed * w <= 0 or abs(speed) * amount < abs(w):
            return float(w - speed * amount)
        amount -= w / speed
    return float(-np.sign(mean) * max(abs(mean) - l1, 0.0) * amount)


def saga_epoch(
    rows: Array,
    y: Array,
    share: Array,
    order: Array,
    gradients: Array,
    w: Array,
    mean: Array,
    bias: Array,
    loss: Any,
    eta: float,
    l1: float,
    l2: float,
) -> None:
    """Visits each row of the order once, in place; `loss` gives the gradient, `bias` holds bias and mean gradient."""
    n = len(rows)
    for i in order:
        gradient = share[i] * float(loss(rows[i] @ w + bias[0], y[i]))
        change, gradients[i] = gradient - gradients[i], gradient
        w -= eta * (1 - 1 / n) * change * rows[i]
        mean += change / n * rows[i]
        w[:] = [flow(w[j], mean[j], l1, eta) / (1 + eta * l2) for j in range(len(w))]
        bias[0] -= eta * (change + bias[1])
        bias[1] += change / n


def cd_cycle(
    rows: Array, gradient: Array, h: Array, w: Array, along: Array, features: Array, l1: float, l2: float
) -> None:
    """Visits each feature once, in place; `along` is the change of the scores so far."""
    for j in features:
        x = rows[:, j]
        curvature = float(h @ x**2) + l2
        g = gradient[j] + float((h * along) @ x) + l2 * w[j]
        target = curvature * w[j] - g
        fresh = np.sign(target) * max(abs(target) - l1, 0.0) / curvature
        along += (fresh - w[j]) * x
        w[j] = fresh
