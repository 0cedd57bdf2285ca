"""Rows of a request as the model takes them: texts, bags of words, columns, sparse pairs, or a user and item.

Which form a model takes follows from what it was trained on. Every other form, an unknown column or a value that is
not a plain one is refused with a sentence that names the row.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from steepest.data.chunk import Array
from steepest.data.tables.columns import KINDS, MISSING_MARKS, TRUTH_VALUES
from steepest.errors import DataError
from steepest.features import dates
from steepest.features.columns import TIME
from steepest.features.hasher import Hasher
from steepest.features.written import read_number
from steepest.kernels import json_texts
from steepest.learners.targets import LARGEST_TARGET

TEXT, BAG, COLUMNS, SPARSE, PAIRS = "text", "bag", "columns", "sparse", "pairs"
GIVEN = (*KINDS, BAG, "date", TIME)  # kinds of columns that a row is asked for
PLAIN = (str, int, float, bool, type(None))
SHOWN = 12  # columns that a sentence names


@dataclass(frozen=True, slots=True)
class Column:
    """One column that a row may have: its name and kind, such as "text", "number", "bag", "date" or "time"."""

    name: str
    kind: str
    size: float | None = None  # root mean square of a column of numbers, where the hasher keeps it
    format: str = ""  # of a date: the order of its fields
    derived: bool = False  # made from another column, such as the month of a date


@dataclass(slots=True)
class SparseRows:
    """CSR arrays under the names that scikit-learn's users know, so that no library is needed to hand them over."""

    indptr: Array
    indices: Array
    data: Array
    shape: tuple[int, int]

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, part: slice) -> SparseRows:
        start, stop, _ = part.indices(len(self))
        indptr = self.indptr[start : stop + 1]
        cut = slice(int(indptr[0]), int(indptr[-1]))
        return SparseRows(indptr - indptr[0], self.indices[cut], self.data[cut], (stop - start, self.shape[1]))


def columns_of(hasher: Hasher) -> list[Column]:
    """The columns of a hasher, with the sizes of its numbers."""
    times = [name for name, kind in (getattr(hasher, "kinds", None) or {}).items() if kind == TIME]
    found = [
        Column(column.name, kind, None, column.format, bool(column.source))
        for column in getattr(hasher, "columns_", ())
        for kind in [BAG if column.is_bag else TIME if column.name in times else column.kind]
    ]
    sizes = getattr(hasher, "number_sizes_", None)
    places = [place for place, column in enumerate(found) if column.kind == "number"]
    if sizes is not None and len(sizes) == len(places):
        for place, (n, squares) in zip(places, np.asarray(sizes).tolist(), strict=True):
            if n > 0:
                found[place] = replace(found[place], size=math.sqrt(squares / n))
    return found


class RowReader:
    """Reads the rows that one model takes."""

    def __init__(self, model: Any) -> None:
        hasher = getattr(model, "hasher_", None)
        known = [] if hasher is None else [column for column in columns_of(hasher) if not column.derived]
        self.columns = [column for column in known if column.kind in GIVEN]
        recipe = getattr(model, "recipe_", None) or {}
        roles = (recipe.get("label"), recipe.get("weight"))
        self._ignored = {role for role in roles if isinstance(role, str)}  # a row of the training file may be sent
        names = getattr(model, "feature_names_in_", None) if hasher is None else None
        self.feature_names: list[str] = [] if names is None else [str(name) for name in names]
        self.n_features = 0
        self.takes_lines = getattr(model, "vw_names_", None) is not None  # lines of Vowpal Wabbit text, with names
        if hasattr(model, "recommend"):
            self.form, self._id_of = PAIRS, model.id_of
        elif len(known) == 1 and known[0].kind == TEXT:
            self.form = TEXT
        elif len(known) == 1 and known[0].kind == BAG and not known[0].name:
            self.form = BAG
        elif known:
            self.form = COLUMNS
        else:
            self.form = SPARSE
            self.n_features = int(model.n_features_in_)
        self._kinds = {column.name: column.kind for column in known} | dict.fromkeys(self._ignored, "ignored")
        self._formats = {column.name: column.format for column in known}
        self._places = {name: place for place, name in enumerate(self.feature_names)}

    def texts_of(self, body: bytes) -> Any:
        """The texts of {"rows": [text, ...]} as an Arrow array; None if the body has to be read as JSON."""
        found = json_texts(body) if self.form == TEXT else None
        if found is None:
            return None
        data, offsets = map(pa.py_buffer, found)
        return pa.StringArray.from_buffers(len(found[1]) - 1, offsets, data)

    def read(self, rows: Any) -> Any:
        """X for the model's own methods."""
        if self.form == TEXT:
            if type(rows) is not list:
                return rows
            if all(type(row) is str for row in rows):
                return rows
            if self.columns[0].name and all(type(row) is dict for row in rows):
                return self._records(rows)
            raise self._wrong_form(rows, str)
        if self.form in (COLUMNS, BAG):
            if all(type(row) is dict for row in rows):
                return self._records(rows) if self.form == COLUMNS else rows
            raise self._wrong_form(rows, dict)
        return self._pairs(rows) if self.form == PAIRS else self._sparse(rows)

    def expected(self) -> str:
        """What a row looks like, for messages and documentation."""
        if self.form == TEXT:
            name = self.columns[0].name
            return "a text" + (f' or an object {{"{name}": text}}' if name else "")
        if self.form == PAIRS:
            return 'an object {"user": id, "item": id}'
        if self.form == BAG:
            return 'an object of words with their counts, {"word": 2}'
        if self.form == SPARSE:
            lines = "a line of Vowpal Wabbit text, or " if self.takes_lines else ""
            return (
                f'{lines}an object {{"indices": [...], "values": [...]}} with indices from 0 to {self.n_features - 1}'
            )
        names = [column.name for column in self.columns]
        more = f", ... ({len(names)} in all)" if len(names) > SHOWN else ""
        return f"an object of the columns {', '.join(map(repr, names[:SHOWN]))}{more}"

    def _wrong_form(self, rows: list[Any], right: type) -> DataError:
        number = next((n for n, row in enumerate(rows) if type(row) is not right), 0)
        return DataError(f"row {number} is {_kind(rows[number])}; this model takes {self.expected()}")

    def _records(self, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        rows = rows.copy()
        for number, row in enumerate(rows):
            for name, value in row.items():
                kind = self._kinds.get(name)
                if kind is None:
                    raise DataError(f"row {number} has the unknown column {name!r}; this model takes {self.expected()}")
                plain = isinstance(value, PLAIN) or (kind == "list" and _is_plain_list(value))
                if not plain and not (kind == BAG and type(value) is dict):
                    right = "an object of words with their counts" if kind == BAG else "a text, number"
                    raise DataError(f"row {number}, column {name!r} holds {_kind(value)}; give {right} or null")
                if kind == "date" or (kind == "number" and type(value) is str):
                    rows[number] = {**rows[number], name: self._read_value(number, name, kind, value)}
        if not any(rows):  # nothing but missing values: the hasher still needs to see a column
            return [{next(iter(self._kinds)): None} for _ in rows]
        return rows

    def _read_value(self, number: int, name: str, kind: str, value: Any) -> Any:
        """A number or date as a table writes it, or null; what training would take for missing is refused by name."""
        if value is None or str(value).strip().lower() in MISSING_MARKS:
            return None
        if kind == "date":
            found, right = dates.parse([value], self._formats[name])[0], "a date as in the training data"
        else:
            found, right = read_number(value)[0], "a number"
        if math.isnan(found):
            raise DataError(f"row {number}, column {name!r} holds {str(value)[:50]!r}; give {right}, or null")
        return value if kind == "date" else found

    def _pairs(self, rows: list[Any]) -> Array:
        pairs = np.empty((len(rows), 2), object)
        for number, row in enumerate(rows):
            pair = [row.get("user"), row.get("item")] if type(row) is dict else row
            good = type(pair) is list and len(pair) == 2 and all(type(part) in (str, int) for part in pair)
            if not good or (type(row) is dict and len(row) > 2):
                raise DataError(f"row {number} is not a pair of ids; this model takes {self.expected()}")
            pairs[number] = self._id_of(str(pair[0]), "users"), self._id_of(str(pair[1]), "items")
        return pairs

    def _sparse(self, rows: list[Any]) -> Any:
        if self.takes_lines and rows and all(type(row) is str for row in rows):
            return rows
        indptr = np.zeros(len(rows) + 1, np.int64)
        all_indices: list[int] = []
        all_values: list[float] = []
        for number, row in enumerate(rows):
            indices, values = self._entries(number, row)
            all_indices += indices
            all_values += values
            indptr[number + 1] = len(all_indices)
        with np.errstate(over="ignore"):
            data = np.array(all_values, np.float64).astype(np.float32)
        if not np.isfinite(data).all():
            place = int(np.flatnonzero(~np.isfinite(data))[0])
            number = int(np.searchsorted(indptr, place, side="right")) - 1
            raise DataError(f"row {number} holds the value {all_values[place]!r}, beyond float32; scale it down")
        return SparseRows(indptr, np.array(all_indices, np.int32), data, (len(rows), self.n_features))

    def _entries(self, number: int, row: Any) -> tuple[list[int], list[float]]:
        """The indices and values of one row, checked."""
        if type(row) is list:  # a dense row
            row = {"indices": list(range(len(row))), "values": row}
            if len(row["values"]) != self.n_features:
                n = len(row["values"])
                raise DataError(f"row {number} has {n} numbers, but the model has {self.n_features} features")
        elif type(row) is dict and self._places and "indices" not in row:
            row = self._by_name(number, row)
        if type(row) is not dict or row.keys() != {"indices", "values"}:
            raise DataError(f"row {number} is {_kind(row)}; this model takes {self.expected()}")
        indices, values = row["indices"], row["values"]
        if type(indices) is not list or type(values) is not list or len(indices) != len(values):
            raise DataError(f"row {number} needs lists of the same length as indices and values")
        for index in indices:
            if type(index) is not int or not 0 <= index < self.n_features:
                raise DataError(
                    f"row {number} has the index {index!r}; use whole numbers from 0 to {self.n_features - 1}"
                )
        if len(set(indices)) < len(indices):
            raise DataError(f"row {number} has an index twice; add up its values first")
        for value in values:
            if type(value) not in (int, float):
                raise DataError(f"row {number} has the value {value!r}; give numbers")
        return indices, values

    def _by_name(self, number: int, row: dict[str, Any]) -> dict[str, Any]:
        unknown = next((name for name in row if name not in self._places), None)
        if unknown is not None:
            names = ", ".join(map(repr, self.feature_names[:SHOWN]))
            raise DataError(f"row {number} has the unknown column {unknown!r}; the model knows {names}")
        return {"indices": [self._places[name] for name in row], "values": list(row.values())}


def _is_plain_list(value: Any) -> bool:
    return type(value) is list and all(isinstance(part, PLAIN) for part in value)


def _kind(value: Any) -> str:
    """What a JSON value is, in words."""
    names = {str: "a text", dict: "an object", list: "a list", bool: "true or false", type(None): "null"}
    if type(value) is dict and value:
        return f"an object with {', '.join(map(repr, list(value)[:SHOWN]))}"
    return names.get(type(value), "a number")


class LabelReader:
    """Reads the labels of rows to learn, as the kind of values that the model was trained on."""

    def __init__(self, model: Any) -> None:
        self._is_classifier = hasattr(model, "classes_")
        self._several = self._is_classifier and bool(getattr(model.learner_, "several_targets", False))
        # The answers name classes by texts: a class that is a number may be called by its name.
        self._named = {str(label): label for label in model.classes_.tolist()} if self._is_classifier else {}
        self._truths = {TRUTH_VALUES[text] == "True": text for text in self._named if text in TRUTH_VALUES}
        self._texts = self._is_classifier and model.classes_.dtype.kind not in "biuf"
        self._classes = model.classes_.tolist() if self._several else []
        self._whole = self._is_classifier and model.classes_.dtype.kind in "biu"
        several = not self._is_classifier and getattr(model.learner_, "several_targets", False)
        self.n_targets = int(model.learner_.targets.n_outputs) if several else 0

    def read(self, labels: list[Any]) -> Any:
        """Targets for `partial_fit`."""
        if self._several:
            return np.array([self._set(number, label) for number, label in enumerate(labels)], np.int64)
        if self._texts:
            return np.array([self._text(number, label) for number, label in enumerate(labels)])
        if self.n_targets:
            return np.array([self._numbers(number, label) for number, label in enumerate(labels)])
        numbers = [self._number(number, label) for number, label in enumerate(labels)]
        return np.array(numbers, np.int64 if self._whole else np.float64)

    def _text(self, number: int, label: Any) -> str:
        label = self._truths.get(label, label) if type(label) is bool else label
        if type(label) not in (str, int) or label == "":
            raise DataError(f"label {number} is {label!r}; the model's classes are texts, so give a text")
        return str(label)

    def _number(self, number: int, label: Any) -> float | int:
        label = self._named.get(label, label) if type(label) is str else label
        if type(label) not in (int, float, bool) or not abs(label) <= LARGEST_TARGET:
            raise DataError(f"label {number} is {label!r}; give a number of at most {LARGEST_TARGET:g} in size")
        if self._is_classifier and label != int(label):
            raise DataError(f"label {number} is {label!r}; the model's classes are whole numbers")
        if self._whole and abs(label) > 2**53:
            raise DataError(f"label {number} is {label!r}; whole numbers beyond 2^53 are not exact")
        return int(label) if self._whole else float(label)

    def _numbers(self, number: int, label: Any) -> list[float]:
        """The targets of a row that has several."""
        if type(label) is not list or len(label) != self.n_targets:
            raise DataError(f"label {number} is {label!r}; give a list of {self.n_targets} numbers, one per target")
        return [self._number(number, part) for part in label]

    def _set(self, number: int, label: Any) -> list[int]:
        """A 0/1 column for each class, from a list of class names."""
        if type(label) is not list:
            raise DataError(f"label {number} is {label!r}; a row may have several labels here, so give a list")
        unknown = [part for part in label if type(part) not in (str, int) or part not in self._classes]
        if unknown:
            raise DataError(f"label {number} names {unknown[0]!r}, which the model was not trained for")
        return [int(name in label) for name in self._classes]
