"""Which classes there are, and the codes under which the kernels know them. Classes may appear at any time."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from steepest.data.chunk import Array


def distinct(y: Array) -> Array:
    """The distinct values of y, sorted; two classes, the usual case, are found without sorting."""
    if y.ndim == 1 and len(y) and y.dtype.kind in "biuf":
        other = y != y[0]
        second = y[int(other.argmax())]
        if (~other | (y == second)).all():
            return np.unique(np.array([y[0], second], dtype=y.dtype))
    return np.unique(y)


def by_appearance(y: Array) -> list[Any]:
    """The distinct values of y in the order of their first rows; two classes are found without a set of all."""
    if len(y) and y.dtype.kind in "biuf":
        other = y != y[0]
        second = y[int(other.argmax())]
        if (~other | (y == second)).all():
            return [y[0].item(), second.item()] if other.any() else [y[0].item()]
    return list(dict.fromkeys(y.tolist()))


class LabelBook:
    """Labels in the order in which they got their codes 0, 1, 2, ..."""

    def __init__(self, labels: Iterable[Any] = ()) -> None:
        self.labels: list[Any] = []
        self._codes: dict[Any, int] = {}
        for label in labels:
            self.add(label)

    def __len__(self) -> int:
        return len(self.labels)

    def __contains__(self, label: Any) -> bool:
        return label in self._codes

    def add(self, label: Any) -> None:
        """Gives a label the next code."""
        plain = label.item() if isinstance(label, np.generic) else label
        self._codes[plain] = len(self.labels)
        self.labels.append(plain)

    def codes(self, y: Array) -> Array:
        """The code of every target as float64; -1 for labels that are not in the book."""
        if len(self.labels) == 2 and y.dtype.kind in "biuf" and not isinstance(self.labels[0], str):
            second = y == self.labels[1]
            known = second | (y == self.labels[0])
            return second.astype(np.float64) if known.all() else np.where(known, second, -1.0)
        codes = np.full(len(y), -1.0)
        if len(self.labels) <= 4 and y.dtype.kind in "biuf":
            for code, label in enumerate(self.labels):
                if not isinstance(label, str):
                    codes[y == label] = code
            return codes
        if len(y) <= 256:  # a mini-batch: sorting it would cost more
            return np.array([self._codes.get(value, -1) for value in y.tolist()], dtype=np.float64)
        values, inverse = np.unique(y, return_inverse=True)
        table = np.array([self._codes.get(value, -1) for value in values.tolist()], dtype=np.float64)
        return np.asarray(table[inverse.reshape(-1)])

    def sorted_labels(self) -> tuple[Array, Array]:
        """(labels in sorted order, their codes)."""
        whole = all(isinstance(label, float) and label.is_integer() for label in self.labels)
        labels = np.array([int(label) for label in self.labels] if whole else self.labels)
        order = np.argsort(labels, kind="stable")
        return labels[order], order
