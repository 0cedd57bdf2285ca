"""Folds of a source: every row gets one of k numbers, by its stable number, the seed, and its class or group.

Rows are sorted by (class, random number of the row) and shared out in turn, so that folds differ by at most one row,
and by at most one row of every class. Groups stay together: the largest first, each to the fold with the fewest rows.
One pass over the data finds numbers, classes and groups; they take about ten bytes per row. Left out: classes and
groups both at once, and the classes of targets with several columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from steepest.data.chunk import Array, Chunk
from steepest.data.groups import names_of_groups
from steepest.data.raw import Encoder, RawBatch, encoded, is_raw
from steepest.data.source import Source, mix
from steepest.data.tables.columns import plain_values
from steepest.errors import DataError, ParameterError


@dataclass(frozen=True, slots=True)
class Rows:
    """What one pass over a source finds: the rows' stable numbers, and codes of classes and groups if asked for."""

    ids: Array
    classes: Array | None = None
    labels: Array | None = None  # by code
    groups: Array | None = None


def survey_rows(source: Source, *, classes: bool = False, group: str | None = None, own_groups: bool = False) -> Rows:
    """Reads all rows once, raw ones without hashing them (a cache of raw rows must have its hasher already).

    `group` names a column; `own_groups` takes the groups that the rows have themselves, as those of a ranker.
    """
    refuse_reading_once(source)
    groups, labels = _Codes(), _Codes()
    ids: list[Array] = []
    if is_raw(source):
        source = encoded(source, _taking_down(group, groups) if group else _nothing)
    elif group is not None:
        raise ParameterError(
            f"groups={group!r} names a column, but these rows have none; give an array, one group per row"
        )
    with_classes = classes
    for chunk in source.in_file_order():
        ids.append(chunk.row_ids)
        if own_groups:
            groups.add(chunk.visited(names_of_groups(chunk)))
        with_classes = with_classes and chunk.y is not None and chunk.y.ndim == 1
        if with_classes and chunk.y is not None:
            labels.add(chunk.visited(chunk.y))
    if not ids:
        raise DataError("the data holds no rows; there is nothing to split")
    return Rows(
        np.concatenate(ids),
        labels.codes() if with_classes else None,
        labels.values() if with_classes else None,
        groups.codes() if group or own_groups else None,
    )


def refuse_reading_once(source: Source) -> None:
    """Raises for a pipe, since splits need several passes."""
    if source.read_once:
        raise DataError(
            f"{source.read_once} can be read only once, but this needs several passes; save it in a file first"
        )


def _nothing(batch: RawBatch) -> Chunk:
    """A chunk of rows without features."""
    return Chunk(np.zeros(batch.n_rows + 1, np.int64), np.empty(0, np.int32), np.empty(0, np.float32), 1)


def _taking_down(name: str, codes: _Codes) -> Encoder:
    """Wraps batches so that one of their columns is recorded as they are read."""

    def encode(batch: RawBatch) -> Chunk:
        try:
            column = batch.columns[name]
        except (KeyError, TypeError, IndexError, ValueError):
            raise DataError(
                f"groups={name!r} is not a column that is read; name it among the columns, or give an array"
            ) from None
        codes.add(np.array([str(value) for value in plain_values(column)]))
        return _nothing(batch)

    return encode


class _Codes:
    """Values to numbers, in the order in which they appear."""

    def __init__(self) -> None:
        self._known: dict[Any, int] = {}
        self._parts: list[Array] = []

    def add(self, values: Array) -> None:
        distinct, places = np.unique(values, return_inverse=True)
        codes = [self._known.setdefault(value, len(self._known)) for value in distinct.tolist()]
        self._parts.append(np.array(codes, np.int32)[places])

    def codes(self) -> Array:
        return np.concatenate(self._parts) if self._parts else np.empty(0, np.int32)

    def values(self) -> Array:
        return np.array(sorted(self._known))


class Folds:
    """Which fold a row is in, by its stable number."""

    def __init__(self, ids: Array, fold: Array, n_folds: int) -> None:
        order = np.argsort(ids, kind="stable")
        self.n_folds = n_folds
        self._ids, self._fold = ids[order], fold[order].astype(np.uint16)

    def of(self, ids: Array) -> Array:
        """The folds of some rows."""
        place = np.minimum(np.searchsorted(self._ids, ids), len(self._ids) - 1)
        return np.where(self._ids[place] == ids, self._fold[place].astype(np.int64), -1)

    def split(self, source: Source, fold: int) -> tuple[Source, Source]:
        """(the rows of all other folds to learn from, the rows of this one to measure on)."""
        name = f"fold {fold} of {self.n_folds}"
        return (
            source.select(lambda ids: self._others(ids, fold), f"all but {name}"),
            source.select(lambda ids: self.of(ids) == fold, name),
        )

    def _others(self, ids: Array, fold: int) -> Array:
        found = self.of(ids)
        return np.asarray((found != fold) & (found >= 0))


def assign_folds(rows: Rows, n_folds: int, seed: int = 0) -> Folds:
    """Folds of equal size, stratified by class where classes are known, or with whole groups."""
    n_rows = len(rows.ids)
    if n_folds > n_rows:
        raise ParameterError(f"folds={n_folds} is more than the {n_rows} rows there are; give at most {n_rows}")
    if rows.groups is not None:
        return Folds(rows.ids, _assign_groups(rows, n_folds, seed), n_folds)
    random = mix(rows.ids, seed)
    order = np.argsort(random, kind="stable") if rows.classes is None else np.lexsort((random, rows.classes))
    fold = np.empty(n_rows, np.int64)
    fold[order] = np.arange(n_rows) % n_folds
    return Folds(rows.ids, fold, n_folds)


def _assign_groups(rows: Rows, n_folds: int, seed: int) -> Array:
    assert rows.groups is not None
    sizes = np.bincount(rows.groups)
    if n_folds > len(sizes):
        raise ParameterError(
            f"folds={n_folds} is more than the {len(sizes)} groups there are; give at most {len(sizes)}"
        )
    ties = mix(np.arange(len(sizes)), seed)
    fold_of = np.empty(len(sizes), np.int64)
    filled = [0] * n_folds
    for group in np.lexsort((ties, -sizes)).tolist():
        fold_of[group] = least = filled.index(min(filled))
        filled[least] += int(sizes[group])
    return np.asarray(fold_of[rows.groups])


def with_groups(rows: Rows, groups: Sequence[Any] | Array) -> Rows:
    """The same rows with groups given beside them, one per row in the order of reading."""
    values = np.asarray(groups)
    if values.shape != (len(rows.ids),):
        raise ParameterError(
            f"groups has shape {values.shape} but there are {len(rows.ids)} rows; give one group per row"
        )
    codes = _Codes()
    codes.add(values)
    return Rows(rows.ids, rows.classes, rows.labels, codes.codes())
