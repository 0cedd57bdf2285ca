"""Labels of texts: what y may be, and what one look at all of them tells."""

from __future__ import annotations

from typing import Any

import numpy as np

from steepest.data.chunk import Array, DataError
from steepest.data.source import Order, Source
from steepest.supervised import class_targets


class Seen:
    """What one pass over the labels tells before learning."""

    def __init__(self) -> None:
        self.n_rows = 0
        self.n_entries = 0  # features of all rows
        self.n_columns = 0  # of a target with a 0/1 column for each label
        self.column_counts: Array = np.zeros(0)
        self.label_counts: dict[Any, float] = {}

    def add(self, y: Array) -> None:
        """Counts the labels of some rows."""
        self.n_rows += len(y)
        if y.ndim == 2:
            self.n_columns = y.shape[1]
            self.column_counts = (self.column_counts if len(self.column_counts) else 0.0) + (y > 0).sum(axis=0)
            return
        values, counts = np.unique(y, return_counts=True)
        for value, count in zip(values.tolist(), counts.tolist(), strict=True):
            self.label_counts[value] = self.label_counts.get(value, 0.0) + count

    @property
    def n_labels(self) -> int:
        """How many labels there are."""
        return self.n_columns or len(self.label_counts)

    @property
    def labels(self) -> list[Any]:
        """All labels, sorted; none for columns."""
        return sorted(self.label_counts)

    @property
    def counts(self) -> list[float]:
        """How often each label, or column, was seen."""
        if self.n_columns:
            return [float(count) for count in self.column_counts]
        return [self.label_counts[label] for label in self.labels]


def look(source: Source) -> Seen:
    """One pass over the labels of a source."""
    seen = Seen()
    for chunk in source.read(Order(), 0):
        if chunk.y is None:
            raise DataError("the data holds no labels to learn; name their column")
        seen.add(chunk.visited(chunk.y))
        seen.n_entries += int(chunk.visited(np.diff(chunk.indptr)).sum())
    return seen


def text_targets(y: Any, names: list[Any] | None = None) -> tuple[Array, list[Any] | None]:
    """(labels or 0/1 columns, what the columns stand for); y may be a list of lists of labels."""
    if y is None:
        raise DataError("TextClassifier requires y to be passed, but the target y is None")
    if not isinstance(y, list | tuple) or not y or not all(isinstance(row, list | tuple | set) for row in y):
        return class_targets(y), None
    if not all(isinstance(label, str) for row in y for label in row):
        return class_targets(y), None
    known = sorted({label for row in y for label in row}) if names is None else names
    columns = {label: place for place, label in enumerate(known)}
    matrix = np.zeros((len(y), len(known)))
    for number, row in enumerate(y):
        for label in row:
            if label not in columns:
                raise DataError(f"row {number}: the label {label!r} was never seen in training; the labels are fixed")
            matrix[number, columns[label]] = 1.0
    return matrix, known
