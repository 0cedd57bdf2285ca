"""Roles of a table's columns: which one is the label, which the weight, and which are features of which kind.

The label is the column named, or else the only one called label, target, y or class. If text, categorical or numeric
name columns, these are the features and no others; else all that remain are, and a hasher guesses their kinds.
Labels keep their type: numbers are float64, true and false are 1 and 0, strings are strings, and lists of labels become
one 0/1 column for each label.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from steepest.data.chunk import Array
from steepest.data.raw import RawBatch
from steepest.data.tables.columns import arrow, arrow_codes, arrow_missing, as_names, doubles, is_number
from steepest.errors import DataError, ParameterError
from steepest.parameters import did_you_mean

LONGEST_SHOWN = 60
_NUMBER_OR_DATE = re.compile(r"[-+]?[\d.][-\d.,:/ eE+T]*|[-+]?(inf|nan)", re.IGNORECASE)
LABEL_NAMES = ("label", "target", "y", "class")


@dataclass(frozen=True, slots=True)
class Roles:
    """The columns as the caller named them; the label is looked for later if it is None."""

    label: str | None
    text: tuple[str, ...]
    categorical: tuple[str, ...]
    numeric: tuple[str, ...]
    weight: str | None
    with_labels: bool

    @property
    def features(self) -> tuple[str, ...]:
        """The feature columns that are named, if any are."""
        return self.text + self.categorical + self.numeric

    def find_label(self, names: Sequence[str], file: str) -> str | None:
        """Finds the column of the label."""
        if self.label is not None:
            return self.label
        taken = {*self.features, self.weight}
        found = [name for name in names if name.strip().lower() in LABEL_NAMES and name not in taken]
        if len(found) == 1:
            return found[0]  # not a feature, even where labels are not read
        if not self.with_labels:
            return None
        why = "none is called" if not found else "more than one is called"
        raise DataError(
            f"{file}: which column is the label? {why} {', '.join(LABEL_NAMES)}; pass label= with one of "
            f"{listed(names)}, or with_labels=False{_header_hint(names)}"
        )


def make_roles(label: Any, text: Any, categorical: Any, numeric: Any, weight: Any, with_labels: bool) -> Roles:
    """Checks the columns named by the caller and returns their roles."""
    for name, value in (("label", label), ("weight", weight)):
        if value is not None and not isinstance(value, str):
            raise ParameterError(f"{name}={value!r} must be the name of one column")
    roles = Roles(label, as_names(text), as_names(categorical), as_names(numeric), weight, with_labels)
    named = [name for name in (*roles.features, label, weight) if name is not None]
    for name in named:
        if named.count(name) > 1:
            raise ParameterError(f"the column {name!r} has more than one role; give it one")
    return roles


def listed(names: Iterable[str], most: int = 20) -> str:
    """Names for a message; one of a damaged header may be as long as the file."""
    names = [name if len(name) <= LONGEST_SHOWN else name[:LONGEST_SHOWN] + "..." for name in names]
    return ", ".join(map(repr, names[:most])) + (f" and {len(names) - most} more" if len(names) > most else "")


def require(required: Iterable[str], names: Sequence[str], file: str) -> None:
    """Raises if a file lacks a column."""
    for name in required:
        if name not in names:
            near = did_you_mean(name, names)
            raise DataError(
                f"{file} has no column {name!r}; {near}its columns are {listed(names)}{_header_hint(names)}"
            )


def _header_hint(names: Sequence[str]) -> str:
    """A hint for errors if column names look like data (numbers, dates, gaps, long texts), several names, or bytes."""

    def is_value(name: str) -> bool:
        return not name.strip() or len(name.split()) > 5 or _NUMBER_OR_DATE.fullmatch(name.strip()) is not None

    if any("\0" in name for name in names):
        return "; it does not look like text, so check that it is the right file"
    counted = [str(place) for place in range(len(names))]
    if list(names) == counted:
        return "; columns without a header are called by their numbers, so name one of these or leave header=False out"
    marks = [mark for mark in ",;\t|" if len(names) == 1 and mark in names[0]]
    if marks:
        return f"; this looks like several, so pass delimiter={marks[0]!r}"
    if not any(map(is_value, names)):
        return ""
    return "; they look like values, so if the file has no header, pass header=False"


def as_labels(labels: Iterable[Any] | None) -> list[str] | None:
    """The labels of a multi-label target as the caller named them, sorted."""
    return None if labels is None else sorted({str(label) for label in labels})


@dataclass
class Schema:
    """The columns that are read, with roles and types: inferred from the first rows, shared by copies of a source."""

    roles: Roles
    labels: list[str] | None = None  # the columns of a multi-label target
    types: dict[str, Any] = field(default_factory=dict)  # of the columns that are read
    label_name: str | None = None  # also where labels are not read
    inferred: bool = False
    turn: Any = field(default_factory=threading.RLock)

    def __post_init__(self) -> None:
        self.label_name = self.roles.label

    @property
    def label(self) -> str | None:
        """The label's column, if it is read."""
        return self.label_name if self.roles.with_labels else None

    @property
    def weight(self) -> str | None:
        """The weight's column, if it is read."""
        return self.roles.weight if self.roles.with_labels else None

    @property
    def needs_labels(self) -> bool:
        """Whether a row may have several labels, and it is not known yet which ones there are."""
        return self.labels is None and self.label is not None and is_list(str(self.types.get(self.label, "")))

    def describe(self) -> dict[str, Any]:
        """Plain values for a recipe."""
        kinds = {kind: list(getattr(self.roles, kind)) or None for kind in ("text", "categorical", "numeric")}
        return {"label": self.label_name, **kinds, "weight": self.roles.weight}

    def choose(self, names: Sequence[str], file: str, not_features: Iterable[str] = ()) -> list[str]:
        """Finds the label and returns all columns to read, the features first."""
        self.label_name = self.roles.find_label(names, file)
        left_out = {self.label_name, self.roles.weight, *not_features}
        features = list(self.roles.features) or [name for name in names if name not in left_out]
        used = features + [name for name in (self.label, self.weight) if name is not None]
        if self.label is not None and self.label not in names and not did_you_mean(self.label, names):
            raise DataError(
                f"{file} has no column {self.label!r}, which holds the label; its columns are {listed(names)}"
                f"{_header_hint(names) or '; rows without labels can be predicted, but not learned or measured'}"
            )
        require(used, names, file)
        if not features:
            raise DataError(f"{file} has no columns beside the label; its columns are {listed(names)}")
        return used

    def faults(self, table: Any) -> dict[str, Array]:
        """Which rows cannot be used, by the column that is to blame: no label, no finite one, or no usable weight."""
        found = {}
        if self.label is not None:
            found[self.label] = _label_faults(_plain_labels(table.column(self.label)), self.labels)
        if self.weight is not None:
            weights = doubles(table.column(self.weight))
            found[self.weight] = ~((weights >= 0) & np.isfinite(weights))
        return found

    def batch(self, table: Any) -> RawBatch:
        """The rows of a table without faults."""
        y = None if self.label is None else _targets(_plain_labels(table.column(self.label)), self.labels)
        weight = None if self.weight is None else doubles(table.column(self.weight))
        features = table.drop_columns([name for name in (self.label, self.weight) if name is not None])
        for place, kind in enumerate(features.schema.types):
            if str(kind).startswith("decimal"):
                numbers = features.column(place).cast(arrow().float64(), safe=False)
                features = features.set_column(place, features.schema.names[place], numbers)
        return RawBatch(features, table.num_rows, y, weight)


def any_fault(faults: Mapping[str, Array], table: Any) -> Array:
    """The rows of a table that some column of `Schema.faults` is to blame for."""
    return np.asarray(np.any([np.zeros(table.num_rows, bool), *faults.values()], axis=0))


def _plain_labels(column: Any) -> Any:
    """Lists and numbers as they are, all else as strings: truth values are the classes "false" and "true"."""
    kind = str(column.type)
    if kind.startswith("dictionary"):
        return _plain_labels(column.cast(column.type.value_type))
    if kind.startswith("decimal"):
        return column.cast(arrow().float64(), safe=False)
    plain = is_list(kind) or kind == "string" or (is_number(kind) and kind != "bool")
    return column if plain else column.cast(arrow().string())


def _label_faults(column: Any, labels: list[str] | None) -> Array:
    faults = arrow_missing(column)
    if is_list(str(column.type)):
        if labels is not None:
            rows, codes = _codes(column, labels)
            faults[rows[codes < 0]] = True
    elif is_number(str(column.type)):
        faults |= ~np.isfinite(doubles(column))
    return faults


def _targets(column: Any, labels: list[str] | None) -> Array:
    if is_list(str(column.type)):
        rows, codes = _codes(column, labels or [])
        y = np.zeros((len(column), len(labels or [])))
        y[rows, codes] = 1.0
        return y
    if is_number(str(column.type)):
        return doubles(column)
    coded = arrow_codes(column)
    assert coded is not None, column.type
    words, codes = coded
    return np.asarray(np.array(words or [""], np.str_)[codes])


def labels_in(column: Any) -> set[str]:
    """The labels in a column of lists."""
    return set(_flat(column)[1].unique().to_pylist()) - {None}


def is_list(kind: str) -> bool:
    """Whether an Arrow type is one of lists."""
    return kind.startswith(("list<", "large_list<", "fixed_size_list<"))


def _flat(column: Any) -> tuple[Array, Any]:
    """(row of each element, elements as strings) of a column of lists."""
    compute = arrow("compute")
    rows = np.asarray(compute.list_parent_indices(column))
    return rows, compute.list_flatten(column).cast(arrow().string())


def _codes(column: Any, labels: list[str]) -> tuple[Array, Array]:
    pa, compute = arrow(), arrow("compute")
    rows, values = _flat(column)
    codes = compute.fill_null(compute.index_in(values, value_set=pa.array(labels, pa.string())), -1)
    return rows, np.asarray(codes)
