"""Columns that alone predict the label almost perfectly: they are often made from it, and not known when one predicts.

Rows of a sample are grouped by the column's value (numbers with many values by rank). Guessing each group's most
frequent label, or its mean, must be right in more than 99 % of the rows, or explain more than 99 % of the variance,
and groups must be large, since a group of one row is always right.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from steepest.data.chunk import Array
from steepest.data.tables.columns import is_boolean, plain_numbers

ALMOST_PERFECT = 0.99
ROWS_PER_GROUP = 10
MOST_GROUPS = 64
FEWEST_ROWS = 100
MOST_CLASSES = 20


def share_explained(codes: Array, y: Array) -> float:
    """The share of labels, or of their variance, that the groups explain; 0 if there is too little to judge by."""
    n_groups = int(codes.max(initial=-1)) + 1
    if len(y) < FEWEST_ROWS or not 2 <= n_groups <= len(y) / ROWS_PER_GROUP or y.ndim != 1:
        return 0.0
    labels, classes = np.unique(y, return_inverse=True)
    if y.dtype.kind == "f" and len(labels) > MOST_CLASSES:
        sizes = np.bincount(codes, minlength=n_groups)
        means = np.bincount(codes, y, minlength=n_groups) / np.maximum(sizes, 1)
        total = float(((y - y.mean()) ** 2).sum())
        return 1 - float(((y - means[codes]) ** 2).sum()) / total if total > 0 else 0.0
    if not 2 <= len(labels) <= max(MOST_CLASSES, len(y) // ROWS_PER_GROUP):
        return 0.0
    table = np.zeros((n_groups, len(labels)), np.int64)
    np.add.at(table, (codes, classes), 1)
    right = table.max(axis=1).sum() / len(y)
    guess = table.sum(axis=0).max() / len(y)
    # Where one label is almost all there is, only what is right beyond that counts.
    return float(right) if 1 - right < 0.2 * (1 - guess) else 0.0


def groups_of(column: Any) -> Array | None:
    """The number of each row's group; None if a column cannot be grouped."""
    numbers = None if is_boolean(column) else plain_numbers(column)
    if numbers is not None:
        filled = np.where(np.isnan(numbers), -np.inf, numbers)
        values, codes = np.unique(filled, return_inverse=True)
        if len(values) <= MOST_GROUPS:
            return np.asarray(codes)
        bounds = np.unique(np.quantile(filled[np.isfinite(filled)], np.linspace(0, 1, MOST_GROUPS + 1)[1:-1]))
        return np.asarray(np.searchsorted(bounds, filled))
    from steepest.features.survey import coded

    texts, codes = coded(column)
    return None if texts is None else np.asarray(codes) + 1
