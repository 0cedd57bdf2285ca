"""Targets as the kernels want them: classes by number, new ones when they appear, weights of classes; and refusals."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from steepest.data.chunk import Array, Chunk, DataError
from steepest.learners.labels import by_appearance
from steepest.learners.linear_weights import LinearWeights


class TargetCoder(LinearWeights):
    """Knows the classes."""

    def _code(self, rows: Chunk) -> tuple[Chunk, int]:
        """Rows with targets as the kernels want them, and how many rows that covers before a new class appears."""
        if rows.y is None:
            raise DataError("the data has no targets to learn from; give y or read a file with labels")
        if self._coded is not None and self._coded[0] is rows.y and self._coded[1] is rows.weight:
            return rows.with_targets(self._coded[2], self._coded[3]), rows.n_rows
        if self.settings.task == "regress" or rows.y.ndim == 2:
            self._look_for_bare_rows(rows)
            return self._code_targets(rows), rows.n_rows
        codes = self.book.codes(rows.y)
        if codes.min(initial=0) < 0 and len(unknown := np.flatnonzero(rows.visited(codes) < 0)):
            unit = self.unit
            first = int(unknown[0]) - int(unknown[0]) % unit
            if first > 0:
                return self._code(rows.span(0, first).packed())[0], first
            self._add_classes(dict.fromkeys(rows.visited(rows.y)[unknown[unknown < unit]].tolist()))
            return self._code(rows)
        weight = self._class_weights(rows, codes)
        np.maximum(codes, 0, out=codes)  # rows of the block that are not visited
        y = 2.0 * codes - 1.0 if self.n_outputs == 1 else codes
        if rows.order is not None and self.settings.class_weight != "balanced":
            self._coded = (rows.y, rows.weight, y, weight)
        return rows.with_targets(y, weight), rows.n_rows

    def _code_targets(self, rows: Chunk) -> Chunk:
        assert rows.y is not None
        if rows.y.dtype.kind not in "biuf":
            raise DataError(
                f"the target {rows.y.ravel()[:1].tolist()[0]!r} is not a number; a regression needs numbers"
            )
        y = rows.y.astype(np.float64, copy=False)
        if self.loss.kind == "count" and len(y) and y.min() < 0:
            raise DataError(f"the target {y.min():g} is negative; loss={self.loss.name!r} needs counts")
        if y.ndim == 2 and not self.several_targets:
            self._open_targets(y.shape[1])
        if (y.shape[1] if y.ndim == 2 else 1) != self.n_outputs:
            raise DataError(f"y has {y.shape[1:]} columns where {self.n_outputs} were learned; keep their number")
        if self.settings.task == "classify":
            y = np.where(y > 0, 1.0, -1.0)
        coded = rows.with_targets(np.ascontiguousarray(y), rows.weight)
        if rows.order is not None:
            self._coded = (rows.y, rows.weight, coded.y if coded.y is not None else y, rows.weight)
        return coded

    def _open_targets(self, n_outputs: int) -> None:
        if self.rows_learned:
            raise DataError("y changed from one column to several; keep its shape")
        self.several_targets = True
        self.n_outputs = n_outputs
        self.arrays = self._new_arrays(len(self.arrays["v"]))
        if self._wants_slots():
            self._open_slots()

    def _add_classes(self, labels: Iterable[Any]) -> None:
        """Classes never seen before: two classes share one column, more have one each."""
        for label in labels:
            self.book.add(label)
        n = len(self.book)
        self.class_counts = np.pad(self.class_counts, (0, max(0, n - len(self.class_counts))))
        self._coded = None
        if self.shared:
            self.n_outputs = self._count_outputs()
            self._grow_biases()
        elif n > 2:
            self._grow_outputs(n)

    def _class_weights(self, rows: Chunk, codes: Array) -> Array | None:
        wish = self.settings.class_weight
        if wish is None:
            return rows.weight
        if wish == "balanced":
            factors = self._running_balance(rows, codes)
        else:
            table = np.array([float(wish.get(label, 1.0)) for label in self.book.labels])
            factors = table[codes.astype(np.int64)]
        return factors if rows.weight is None else factors * rows.weight

    def _running_balance(self, rows: Chunk, codes: Array) -> Array:
        """n / (classes * count of the row's class), counted up to and including the row."""
        visits = rows.row_numbers
        visited = codes[visits].astype(np.int64)
        seen = np.empty(len(visits))
        for k in range(len(self.book)):
            mine = visited == k
            seen[mine] = self.class_counts[k] + np.arange(1, int(mine.sum()) + 1)
        total = self.class_counts.sum() + np.arange(1, len(visits) + 1)
        self.class_counts += np.bincount(visited, minlength=len(self.class_counts))
        factors = np.ones(len(codes))
        factors[visits] = total / (max(2, len(self.book)) * seen)
        return factors

    def code_sample(self, rows: Chunk) -> Chunk:
        """Rows to try step sizes on, coded as they will be learned; they are still to be learned."""
        self._grow_features(rows.n_features)
        self._announce_labels(rows)
        counts = self.class_counts.copy()
        coded, _ = self._code(rows)
        self.class_counts = counts
        self._coded = None
        self._refuse_bad_indices(coded)
        return coded

    def _announce_labels(self, rows: Chunk) -> None:
        """Rows that wait show their classes at once, in the order in which they would be learned."""
        self._look_for_bare_rows(rows)
        if rows.y is not None and rows.y.ndim == 2 and not self.several_targets:
            self._open_targets(rows.y.shape[1])
        if self.settings.task == "classify" and rows.y is not None and rows.y.ndim == 1:
            known = set(self.book.labels)
            labels = by_appearance(rows.visited(rows.y))
            self._add_classes([label for label in labels if label not in known])

    def _look_for_bare_rows(self, rows: Chunk) -> None:
        if self.settings.task == "classify" and rows.y is not None and rows.y.ndim == 2 and not self.has_bare_rows:
            self.has_bare_rows = not (rows.y > 0).any(axis=1).all()

    def code_for_scoring(self, rows: Chunk) -> Chunk:
        """Rows with coded targets, for measuring only: unknown classes are refused, class weights not applied."""
        if self.settings.task == "regress" or (rows.y is not None and rows.y.ndim == 2):
            self._coded = None
            return self._code_targets(rows)
        assert rows.y is not None
        codes = self.book.codes(rows.y)
        if (rows.visited(codes) < 0).any():
            label = rows.visited(rows.y)[np.flatnonzero(rows.visited(codes) < 0)[0]].item()
            raise DataError(f"the label {label!r} was never seen in training; the classes are {self.book.labels[:10]}")
        return rows.with_targets(2.0 * codes - 1.0 if self.n_outputs == 1 else codes, rows.weight)

    def _refuse_bad_row(self, rows: Chunk, visit: int) -> None:
        """Raises if the row itself is at fault, and returns if the weights are."""
        row = int(rows.row_numbers[visit])
        span = slice(int(rows.indptr[row]), int(rows.indptr[row + 1]))
        indices, values = rows.indices[span], rows.values[span]
        name = f"row {row + rows.first_id}"
        wrong = (indices < 0) | (indices >= min(self._most_columns(), rows.n_features))
        if wrong.any():
            raise DataError(
                f"{name} has the column index {int(indices[wrong][0])}, but columns run from 0 "
                f"to {rows.n_features - 1}; check how the matrix was built"
            )
        wrong = ~np.isfinite(values)
        if wrong.any():
            kind = "NaN" if np.isnan(values[wrong][0]) else "infinity"
            raise DataError(
                f"Input X contains {kind}: {name}, column {int(indices[wrong][0])}; drop the row or fill the value"
            )

    def _refuse_bad_indices(self, rows: Chunk) -> None:
        """Raises if any column index is out of range (packed rows; the kernels check the others one by one)."""
        wrong = np.flatnonzero((rows.indices < 0) | (rows.indices >= self.n_features))
        if len(wrong):
            self._refuse_bad_row(rows, int(np.searchsorted(rows.indptr, wrong[0], side="right")) - 1)
