"""Who is who in a table: which column is the label, which the weight, and which ones are features of which kind.

The label is the column named, or else the only one called label, target, y or class. If text, categorical or numeric
name columns, these are the features and no others; else all that remain are, and a hasher guesses their kinds.
Labels keep their type: numbers are float64, true and false are 1 and 0, strings are strings, and lists of labels become
one 0/1 column for each label.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np

from steepest.data import arrow_arrays
from steepest.data.chunk import Array, DataError
from steepest.data.columns import as_names
from steepest.data.parameters import ParameterError

LONGEST_SHOWN = 60
LABEL_NAMES = ("label", "target", "y", "class")


def arrow(part: str = "") -> ModuleType:
    """Pyarrow, or a part of it."""
    from importlib import import_module

    try:
        return import_module(f"pyarrow.{part}" if part else "pyarrow")
    except ImportError:
        raise DataError("reading tables needs one more module, pyarrow; pip install steepest[tables]") from None


def plain_memory() -> Any:
    """Memory of the system for Arrow: its own allocator takes large pages for each size, some 40 MB more in all."""
    return arrow().system_memory_pool()


@dataclass(frozen=True, slots=True)
class Roles:
    """The columns as the caller named them; the label is settled later if it is None."""

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
        """The label's column."""
        if self.label is not None:
            return self.label
        taken = {*self.features, self.weight}
        found = [name for name in names if name.lower() in LABEL_NAMES and name not in taken]
        if len(found) == 1:
            return found[0]  # not a feature, even where labels are not kept
        if not self.with_labels:
            return None
        why = "none is called" if not found else "more than one is called"
        raise DataError(
            f"{file}: which column is the label? {why} {', '.join(LABEL_NAMES)}; pass label= with one of "
            f"{listed(names)}, or with_labels=False"
        )

    def choose(self, names: Sequence[str], label: str | None) -> list[str]:
        """The feature columns."""
        return list(self.features) or [name for name in names if name not in (label, self.weight)]

    def describe(self, label: str | None) -> dict[str, Any]:
        """Plain values for a recipe."""
        roles = {kind: list(getattr(self, kind)) or None for kind in ("text", "categorical", "numeric")}
        return {"label": label, **roles, "weight": self.weight}


def make_roles(label: Any, text: Any, categorical: Any, numeric: Any, weight: Any, with_labels: bool) -> Roles:
    """Roles, checked."""
    for name, value in (("label", label), ("weight", weight)):
        if value is not None and not isinstance(value, str):
            raise ParameterError(f"{name}={value!r} must be the name of one column")
    roles = Roles(label, as_names(text), as_names(categorical), as_names(numeric), weight, with_labels)
    named = [name for name in (*roles.features, label, weight) if name is not None]
    for name in named:
        if named.count(name) > 1:
            raise ParameterError(f"the column {name!r} has more than one role; give it one")
    return roles


def listed(names: Iterable[str]) -> str:
    """Names for a message; one of a damaged header may be as long as the file."""
    names = [name if len(name) <= LONGEST_SHOWN else name[:LONGEST_SHOWN] + "..." for name in names]
    return ", ".join(map(repr, names[:20])) + (f" and {len(names) - 20} more" if len(names) > 20 else "")


def require(wanted: Iterable[str], names: Sequence[str], file: str) -> None:
    """Refuses a file that lacks a column."""
    for name in wanted:
        if name not in names:
            raise DataError(f"{file} has no column {name!r}; its columns are {listed(names)}")


# ------------------------------------------------------------------------------------------------- targets and weights


def label_faults(column: Any, labels: list[str] | None) -> Array:
    """Which rows have a label that cannot be used: none, no finite number, or one that is not known."""
    faults = arrow_arrays.missing(column)
    kind = str(column.type)
    if is_list(kind):
        return faults if labels is None else faults | ~_all_known(column, labels)
    if kind == "double":
        faults |= ~np.isfinite(_numbers(column))
    return np.asarray(faults)


def weight_faults(column: Any) -> Array:
    """Which rows have a weight that is missing, negative or infinite."""
    weights = _numbers(column)
    return np.asarray(~((weights >= 0) & np.isfinite(weights)))


def targets_of(column: Any, labels: list[str] | None) -> Array:
    """A label column without faults as targets."""
    kind = str(column.type)
    if is_list(kind):
        rows, codes = _codes(column, labels or [])
        y = np.zeros((len(column), len(labels or [])))
        y[rows, codes] = 1.0
        return y
    if kind in ("double", "bool"):
        return np.ascontiguousarray(_numbers(column), np.float64)
    coded = arrow_arrays.coded(column)
    assert coded is not None, kind
    words, codes = coded
    return np.asarray(np.array(words or [""], np.str_)[codes])


def _numbers(column: Any) -> Array:
    found = arrow_arrays.numbers(column)
    assert found is not None, column.type
    return found


def labels_in(column: Any) -> set[str]:
    """The labels in a column of lists."""
    values = _flat(column)[1]
    return set(values.unique().to_pylist()) - {None}


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


def _all_known(column: Any, labels: list[str]) -> Array:
    rows, codes = _codes(column, labels)
    known = np.ones(len(column), bool)
    known[rows[codes < 0]] = False
    return known
