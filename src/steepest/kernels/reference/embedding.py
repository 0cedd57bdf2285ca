"""The embedding kernels in NumPy: slow, obvious, in float64; native/embedding/embedding_kernels.cpp has the formulas.

`learn` returns what a pass makes of table and head, and the sum of the losses; the tests compare, and check gradients
by differences. Negative sampling draws by splitmix64 from the number of the row.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from steepest.kernels.reference.factors import splitmix64
from steepest.kernels.reference.linear import Array

_MASK = 0xFFFFFFFFFFFFFFFF


Row = tuple[Array, Array, float]  # features, their values, and the weight of a text
Way = Sequence[tuple[int, float]]  # nodes of the tree and the sides (+1 or -1) that lead to a label


def hidden(row: Row, table: Array) -> tuple[Array, Array, float]:
    """Returns (h, share of each feature in it, share of the end); the last row of the table ends every text."""
    values = row[1].astype(np.float64)
    end = 1 / (1 + float(np.abs(values).sum()))
    return table[-1] * end + (values * end) @ table[row[0]], values * end, end


def binary_losses(
    loss: str, labels: Sequence[int], n_labels: int, ways: Sequence[Way], drawn: Sequence[int]
) -> list[tuple[int, float, float]]:
    """Returns (row of the head, side, share) of each logistic loss that a text has, in order."""
    share = 1 / max(1, len(labels))
    if loss == "ova":
        return [(k, 1.0 if k in labels else -1.0, 1.0) for k in range(n_labels)]
    if loss == "ns":
        own = [(k, 1.0, share) for k in labels]
        return own + [(k, -1.0, 1.0) for k in drawn if k not in labels]
    return [(node, side, share) for label in labels for node, side in ways[label]]


def draw(sample: Array, negatives: int, seed: int, t: int) -> list[int]:
    """Returns labels drawn for row number t."""
    state, found = seed ^ (t * 0xD1342543DE82EF95 & _MASK), []
    for _ in range(negatives):
        found.append(int(sample[splitmix64(state) % len(sample)]))
        state = state + 0x9E3779B97F4A7C15 & _MASK
    return found


def softmax_loss(scores: Array, labels: Sequence[int]) -> tuple[float, Array]:
    """Returns the cross entropy against the mean of the labels, and its gradients."""
    e = np.exp(scores - scores.max())
    gradients = e / e.sum()
    loss = math.log(e.sum()) + scores.max() - np.mean([scores[k] for k in labels])
    for k in labels:
        gradients[k] -= 1 / len(labels)
    return float(loss), gradients


def learn(
    rows: Sequence[Row],
    labels: Sequence[Sequence[int]],
    table: Array,
    head: Array,
    loss: str,
    steps: Sequence[float],
    ways: Sequence[Way] = (),
    drawn: Sequence[Sequence[int]] = (),
) -> tuple[Array, Array, float]:
    """Returns (table, head, sum of losses) after one pass in which row i takes the step steps[i]."""
    table, head, total = table.astype(np.float64), head.astype(np.float64), 0.0
    for i, row in enumerate(rows):
        h, shares, end = hidden(row, table)
        weight, eta = row[2], steps[i] * row[2]
        dh = np.zeros_like(h)
        if loss == "softmax":
            value, gradients = softmax_loss(head @ h, labels[i])
            dh = gradients @ head
            head -= eta * np.outer(gradients, h)
            total += weight * value
        else:
            for k, side, share in binary_losses(loss, labels[i], len(head), ways, drawn[i] if drawn else ()):
                margin = side * float(head[k] @ h)
                gradient = -side * share / (1 + math.exp(margin))
                total += weight * share * math.log1p(math.exp(-margin))
                dh += gradient * head[k]
                head[k] -= eta * gradient * h
        np.add.at(table, row[0], -eta * np.outer(shares, dh))
        table[-1] -= eta * end * dh
    return table, head, total


def learn_apart(
    rows: Sequence[Row],
    labels: Sequence[Sequence[int]],
    table: Array,
    head: Array,
    loss: str,
    steps: Sequence[float],
    n_replicas: int,
    rows_each: int,
    ways: Sequence[Way] = (),
    drawn: Sequence[Sequence[int]] = (),
) -> tuple[Array, Array, float]:
    """Returns (table, head, sum of losses) after rounds in which replicas learn, then add up their changes.

    A replica moves a head of its own from text to text; the table stays that of the start of the round for all.
    """
    table, head, total = table.astype(np.float64), head.astype(np.float64), 0.0
    for start in range(0, len(rows), n_replicas * rows_each):
        table_change, head_change = np.zeros_like(table), np.zeros_like(head)
        for replica in range(n_replicas):
            own = head
            first = start + replica * rows_each
            for i in range(first, first + rows_each):
                text_drawn = [drawn[i]] if drawn else ()
                moved, own, value = learn([rows[i]], [labels[i]], table, own, loss, [steps[i]], ways, text_drawn)
                table_change += moved - table
                total += value
            head_change += own - head
        table, head = table + table_change, head + head_change
    return table, head, total
