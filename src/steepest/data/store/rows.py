"""Rows side by side, as one CSR block in columns: how they are recorded chunk by chunk, and how they are read again.

The columns are `indptr`, `indices`, `values`, and where there are any `y`, `weight`, `group` and `time`. A recorder
appends to columns in memory and temporary files (row_store) or in a named file (row_file); both are read as
`StoredRows`.
Entries are never copied in reading: a chunk of shuffled rows has row starts, targets and weights of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np

from steepest.data.chunk import Array, Chunk, RowIds
from steepest.data.skipped import Skipped
from steepest.data.source import BLOCK_ROWS, Order
from steepest.errors import DataError

# Rows of a chunk, and entries, about: calls cost nothing beside so many, and a progress bar still moves.
CHUNK_ROWS = 1 << 15
CHUNK_ENTRIES = 1 << 21


class Columns(Protocol):
    """Named arrays that grow."""

    def append(self, name: str, array: Array, dtype: str) -> None:
        """Appends elements, or rows, to an array; `dtype` is its type in a file."""


class Recorder:
    """Records chunks into growing columns."""

    def __init__(self, columns: Columns) -> None:
        self.n_rows = self.n_entries = self.n_features = 0
        self._columns = columns
        self._targets: str | None = None  # of which kind they are, once that is known
        self._weighted = False
        columns.append("indptr", np.zeros(1, np.int64), "<i8")

    def add(self, chunk: Chunk) -> None:
        """Appends the visited rows of a chunk."""
        if not chunk.n_rows:
            return
        rows = chunk if chunk.order is None else chunk.packed()
        first, last = int(rows.indptr[0]), int(rows.indptr[-1])
        self._columns.append("indices", rows.indices[first:last], "<i4")
        self._columns.append("values", rows.values[first:last], "<f4")
        self._columns.append("indptr", rows.indptr[1:] + (self.n_entries - first), "<i8")
        kind = "none" if rows.y is None else "numbers" if rows.y.dtype.kind in "biuf" else "texts"
        self._targets = self._targets or kind
        if self._targets != kind:
            raise DataError(f"targets change their type after row {self.n_rows}; give all rows numbers, or all texts")
        if rows.y is not None:
            self.add_targets(rows.y)
        self._add_weights(rows.weight, rows.n_rows)
        if rows.group is not None:
            self._columns.append("group", rows.group, "<i8")
        if rows.time is not None:
            self._columns.append("time", rows.time, "<f8")
        self.n_rows += rows.n_rows
        self.n_entries += last - first
        self.n_features = max(self.n_features, rows.n_features)

    def add_targets(self, y: Array) -> None:
        """Appends targets as they are."""
        self._columns.append("y", y, "<f8")

    def _add_weights(self, weight: Array | None, n_rows: int) -> None:
        if weight is not None and not self._weighted:
            self._weighted = True
            for start in range(0, self.n_rows, CHUNK_ROWS):  # the rows before had none
                self._columns.append("weight", np.ones(min(CHUNK_ROWS, self.n_rows - start)), "<f8")
        if self._weighted:
            self._columns.append("weight", np.ones(n_rows) if weight is None else weight, "<f8")


class FileRecorder(Recorder):
    """Records chunks for a file, which holds numbers only: texts are coded, and rows keep their stable numbers."""

    def __init__(self, columns: Columns) -> None:
        for name, dtype in (("indices", "<i4"), ("values", "<f4"), ("run_rows", "<i8"), ("run_ids", "<i8")):
            columns.append(name, np.zeros(0, np.int64), dtype)
        super().__init__(columns)
        self._next_id: int | None = None
        self._labels: dict[str, int] = {}
        self._labels_as_objects = False

    def add(self, chunk: Chunk) -> None:
        """Appends the visited rows of a chunk, with their stable numbers as runs."""
        if chunk.n_rows:
            ids = chunk.row_ids
            breaks = np.flatnonzero(np.diff(ids) != 1) + 1
            if self._next_id is None or ids[0] != self._next_id:
                breaks = np.concatenate([[0], breaks])
            self._columns.append("run_rows", self.n_rows + breaks, "<i8")
            self._columns.append("run_ids", ids[breaks], "<i8")
            self._next_id = int(ids[-1]) + 1
        has_numbered_groups = chunk.group is not None and chunk.group.dtype.kind in "iu"
        super().add(chunk if has_numbered_groups else replace(chunk, group=None))

    def add_targets(self, y: Array) -> None:
        """Appends numbers as they are, and texts as codes in the order of first appearance."""
        if y.dtype.kind in "biuf":
            self._columns.append("y", y, "<f8")
            return
        self._labels_as_objects = y.dtype.kind == "O"
        listed = y.tolist()
        for label in dict.fromkeys(listed):
            if not isinstance(label, str):
                raise DataError(f"the target {label!r} is neither a number nor a text; only these can be cached")
            self._labels.setdefault(label, len(self._labels))
        self._columns.append("y", np.array([self._labels[label] for label in listed], np.int32), "<i4")

    def header(self) -> dict[str, Any]:
        """Plain values for the header: what the columns do not say themselves."""
        labels = list(self._labels) if self._targets == "texts" else None
        return {"n_rows": self.n_rows, "labels": labels, "labels_as_objects": self._labels_as_objects}


@dataclass(frozen=True, slots=True)
class StoredRows:
    """All rows as one block, in memory or mapped."""

    block: Chunk
    labels: Array | None = None  # what the block's y stands for, if it holds codes
    ids: RowIds | None = None
    skipped: Skipped = field(default_factory=Skipped)

    @classmethod
    def of(cls, columns: Mapping[str, Array], n_features: int) -> StoredRows:
        """Recorded columns; groups and times count only if all rows have one."""
        indptr, per_row = columns["indptr"], (columns.get("y"), columns.get("weight"))
        whole = {name: column for name, column in columns.items() if len(column) == len(indptr) - 1}
        more: dict[str, Any] = {name: whole.get(name) for name in ("group", "time")}
        return cls(Chunk(indptr, columns["indices"], columns["values"], n_features, *per_row, **more))

    @classmethod
    def from_file(cls, header: dict[str, Any], columns: dict[str, Array]) -> StoredRows:
        """Builds the rows from what `row_file.read` gave; ValueError, KeyError or TypeError if it is inconsistent."""
        block, labels = cls.of(columns, int(header["n_features"])).block, header["labels"]
        if block.indptr[0] != 0 or not block.indptr[-1] == len(block.indices) == len(block.values):
            raise ValueError
        per_row = [len(column) for column in (block.y, block.weight) if column is not None]
        if any(n != header["n_rows"] for n in [block.n_rows, *per_row]):
            raise ValueError
        return cls(
            block,
            None if labels is None else np.array(labels, object if header["labels_as_objects"] else np.str_),
            RowIds(columns["run_rows"], columns["run_ids"]),
            Skipped(int(header["skipped"]["n"]), list(header["skipped"]["examples"])),
        )

    @property
    def n_rows(self) -> int:
        """The number of rows."""
        return self.block.n_rows

    @property
    def n_entries(self) -> int:
        """The number of stored values."""
        return int(self.block.indptr[-1])

    def first(self, n_rows: int | None) -> StoredRows:
        """The first rows; all rows for None."""
        return self if n_rows is None else replace(self, block=self.block.span(0, min(n_rows, self.n_rows)))

    def without_labels(self) -> StoredRows:
        """The same rows without targets and weights."""
        return replace(self, block=replace(self.block, y=None, weight=None))

    def read(self, order: Order, epoch: int) -> Iterator[Chunk]:
        """Yields views of a few thousand rows, in the same order as `ArraySource`."""
        n_rows, at_once = self.n_rows, self._chunk_rows()
        runs = order.runs(n_rows, epoch)
        if runs is None:
            for start in range(0, n_rows, at_once):
                yield self._span(start, min(start + at_once, n_rows))
            return
        for start, stop in runs.edges:
            if start < stop:
                yield self._span(start, stop)
        n_runs = at_once // runs.length
        for first in range(0, len(runs.starts), n_runs):
            yield self._visit(runs.starts[first : first + n_runs], runs.length)

    def _chunk_rows(self) -> int:
        """The number of rows of a chunk: whole blocks, of about CHUNK_ENTRIES entries."""
        blocks = CHUNK_ENTRIES * max(1, self.n_rows) // (BLOCK_ROWS * max(1, self.n_entries))
        return BLOCK_ROWS * min(max(1, blocks), CHUNK_ROWS // BLOCK_ROWS)

    def _span(self, start: int, stop: int) -> Chunk:
        """A contiguous part of the rows."""
        indptr = self.block.indptr[start : stop + 1]
        entries = slice(int(indptr[0]), int(indptr[-1]))
        rows = replace(self.block, indices=self.block.indices[entries], values=self.block.values[entries])
        return self._chosen(rows, indptr - indptr[0], np.arange(start, stop))

    def _visit(self, starts: Array, length: int) -> Chunk:
        """Yields runs of rows in random order.

        The block holds the runs side by side, each followed by one row that ends it and that is never visited.
        """
        rows = np.add.outer(starts, np.arange(length + 1)).reshape(-1)
        order = np.delete(np.arange(len(rows)), slice(length, None, length + 1))
        places = np.minimum(rows[:-1], self.n_rows - 1)
        return self._chosen(self.block, self.block.indptr[rows], places).visit(order)

    def _chosen(self, block: Chunk, indptr: Array, rows: Array) -> Chunk:
        """A block with row starts of its own, and the targets, weights and groups of some rows."""
        own = block.per_row(rows)
        if own["y"] is not None and self.labels is not None:
            own["y"] = self.labels[own["y"]]
        ids = None if self.ids is None else replace(self.ids, places=rows)
        return replace(block, indptr=indptr, ids=ids, **own)
