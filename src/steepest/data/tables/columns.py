"""Anything that looks like a table becomes named columns of text, categories and numbers for the hashing kernel.

Accepted: a list, array or Series of texts (one column without a name); a list of dicts; a dict of columns; a pandas,
polars or other DataFrame; Arrow tables, batches and arrays; a two-dimensional array (columns "0", "1", ...). Texts stay
where they are: a column is handed on as a list of str, bytes and None, or as Arrow's (data, offsets, valid). A category
is written out: 17, 17.0 and "17" are one value. None, NaN and NA are missing; so is a key that a dict lacks.
Arrow's columns become NumPy arrays by reading their buffers.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import import_module
from itertools import filterfalse, islice
from types import ModuleType
from typing import Any

import numpy as np

from steepest.data.chunk import Array
from steepest.errors import DataError
from steepest.kernels import first_no_text, first_too_large, number_texts, write_integers
from steepest.parameters import shown

TEXT, CATEGORY, NUMBER, LIST = KINDS = ("text", "category", "number", "list")
BETWEEN_VALUES = "\x1f"  # of a list that is handed to the kernel as one text
# How people write that a value is missing, in lower case; categories may be "unknown", which is a value then.
MISSING_MARKS = frozenset(("", "?", "-", "na", "n/a", "nan", "null", "none", "<na>", "#n/a", "unknown"))
# How files write truth values; Arrow reads a column of them as booleans, whose texts are Python's.
TRUTH_VALUES = {text: found for found in ("True", "False") for text in (found, found.lower(), found.upper())}
GUESS_VALUES = 1000
# A column of strings is prose, not labels, if its values have a space on average.
TEXT_SPACES = 1.0
# Whole numbers beyond are not exact in float64.
EXACT_INTEGERS = 2.0**53
RECORDS = (dict, Mapping)  # the first is found at once
_WIDTHS = {"string": np.int32, "binary": np.int32, "large_string": np.int64, "large_binary": np.int64}
_NUMBERS = {f"{sign}int{bits}": np.dtype(f"{sign}int{bits}") for sign in ("", "u") for bits in (8, 16, 32, 64)}
_NUMBERS |= {"halffloat": np.dtype(np.float16), "float": np.dtype(np.float32), "double": np.dtype(np.float64)}

Buffers = tuple[Array, Array, Array | None]  # bytes, where each text starts and the last one ends, which are there

VIEWS = {"string_view": "large_string", "binary_view": "large_binary"}  # types of Arrow, and their plain forms


@dataclass(slots=True)  # not frozen, which costs a microsecond for every text that is scored alone
class Table:
    """Columns as they came; the one column of a list of texts has an empty name."""

    columns: Mapping[str, Any]
    n_rows: int
    origin: str = "table"  # or "list", "records", "array"

    def column(self, name: str) -> Any:
        """One column: a list, a NumPy array or an Arrow array."""
        if name in self.columns:
            return self.columns[name]
        if self.origin == "records" and name:
            return [None] * self.n_rows
        expected = f"the column {name!r}" if name else "a list of texts"
        has = "no columns but one text per row" if self.origin == "list" else f"{', '.join(map(repr, self.columns))}"
        raise DataError(f"the hasher was made for {expected}, but X has {has}; give X in the same form as before")


def read_table(X: Any, *, tokens: bool = False) -> Table:
    """The columns of X, not yet converted; a table that was read already is itself.

    With `tokens` lists of strings are texts, also where all have one length.
    """
    if type(X) is list:
        return _from_list(X, tokens)
    if isinstance(X, Table):
        return X
    refuse_one_row(X)
    if hasattr(X, "tocsr"):
        raise DataError("X is a sparse matrix already; hashing takes texts, dicts or a table")
    if isinstance(X, Mapping):
        return _from_columns({str(name): _plain(column) for name, column in X.items()})
    if _is_arrow(X):
        return _from_arrow(X)
    if hasattr(X, "iloc") and hasattr(X, "columns"):
        return _from_pandas(X)
    if (table := as_arrow(X)) is not None:
        return _from_arrow(table)
    if isinstance(X, np.ndarray) or hasattr(X, "__array__"):
        return _from_array(X)
    return _from_list(list(X))


def refuse_one_row(X: Any) -> None:
    """Refuses what is not rows: one text, one row, a number, or a file."""
    if isinstance(X, str | bytes):
        raise DataError(f"X is a single {type(X).__name__}; give a list of texts, even for one; st.scan reads a file")
    is_columns = isinstance(X, Mapping) and not hasattr(X, "tocsr")  # a sparse matrix may be a dict, too
    if is_columns and any(not hasattr(v, "__len__") or isinstance(v, str | bytes) for v in X.values()):
        raise DataError("X is a single row; give a list of dicts, even for one")
    if isinstance(X, int | float | os.PathLike) or hasattr(X, "read"):
        raise DataError(f"X is {shown(X)} and not rows; read a file by fit_stream(st.scan(path, label=...))")


def as_arrow(X: Any) -> Any:
    """An Arrow table of a frame of another library: polars, eager or lazy, a dataset of Hugging Face, or whatever else
    gives a stream of Arrow's C interface; None if X is none of these."""
    if hasattr(X, "collect") and hasattr(X, "collect_schema"):  # a lazy frame of polars
        X = X.collect()
    if hasattr(X, "column_names") and hasattr(X, "with_format"):  # a dataset of Hugging Face
        return X.with_format("arrow")[:]
    is_column = hasattr(X, "dtype") or (hasattr(X, "type") and not hasattr(X, "columns"))  # duckdb has both
    if not hasattr(X, "__arrow_c_stream__") or is_column:
        return None
    import pyarrow

    table = pyarrow.table(X)
    for place, name in enumerate(table.column_names):
        if str(table.schema.types[place]) in VIEWS:
            table = table.set_column(place, name, without_views(table.column(place)))
    return table


def without_views(column: Any) -> Any:
    """An Arrow column in a type that all of Arrow's functions know: frames of polars hold views of strings."""
    return column.cast(VIEWS[str(column.type)]) if str(column.type) in VIEWS else column


def is_raw_rows(X: Any) -> bool:
    """Whether X holds texts, dicts or a table with columns that are not numbers, so that only a hasher can take it."""
    if type(X) is list:
        return bool(X) and isinstance(X[0], str | bytes | dict)
    if isinstance(X, np.ndarray):
        first = next(filterfalse(is_missing, X), None) if X.ndim == 1 and X.dtype.kind == "O" else None
        return (X.ndim == 1 and X.dtype.kind in "UT") or isinstance(first, str | bytes | dict)
    if isinstance(X, Mapping):
        return not hasattr(X, "tocsr")  # a dictionary of keys is a sparse matrix
    if hasattr(X, "iloc") and hasattr(X, "dtypes"):
        kinds = np.atleast_1d(np.asarray(X.dtypes, object))
        return any(getattr(kind, "kind", "O") not in "biuf" for kind in kinds)
    if _is_arrow(X) or (X := as_arrow(X)) is not None:
        types = X.schema.types if hasattr(X, "schema") else [X.type]
        return any(not is_number(str(kind)) for kind in types)
    return False


def _is_arrow(X: Any) -> bool:
    return not isinstance(X, list) and type(X).__module__.partition(".")[0] == "pyarrow"


def _from_columns(columns: dict[str, Any]) -> Table:
    lengths = {len(column) for column in columns.values()}
    if len(lengths) > 1:
        raise DataError(f"the columns of X have different lengths, {sorted(lengths)}; give one value per row")
    return Table(columns, lengths.pop() if lengths else 0)


def _from_arrow(X: Any) -> Table:
    if not hasattr(X, "column_names") and not hasattr(X, "schema"):
        return Table({"": without_views(X)}, len(X), "list")
    return _from_columns({name: without_views(X.column(name)) for name in _unique(X.schema.names)})


def _from_pandas(X: Any) -> Table:
    names = _unique([str(name) for name in X.columns])
    return _from_columns({name: _plain(X.iloc[:, place]) for place, name in enumerate(names)})


def _from_array(X: Any) -> Table:
    array = X if hasattr(X, "iloc") else np.asarray(X)
    if array.ndim == 1:
        return _from_list(plain_values(_plain(array)))
    if array.dtype.kind == "c":
        raise DataError("Complex data not supported: X holds complex numbers; give real ones")
    if array.ndim != 2:
        raise DataError(
            f"X has {array.ndim} dimensions; give a list of texts, or a table with one row per example "
            "(Reshape your data, X.reshape(1, -1) for one row)"
        )
    if array.shape[1] == 0:
        raise DataError(
            f"0 feature(s) (shape={array.shape}) while a minimum of 1 is required: X has no columns to hash"
        )
    return Table({str(place): _plain(array[:, place]) for place in range(array.shape[1])}, len(array), "array")


def is_list_of_texts(X: Any) -> bool:
    """Whether a list begins with a text, and thus is a column without a name; its other values are still to be read."""
    return type(X) is list and bool(X) and type(X[0]) is str


def _from_list(rows: list[Any], tokens: bool = False) -> Table:
    first = next(filterfalse(is_missing, rows), None)
    if first is None or isinstance(first, str | bytes):
        return Table({"": rows}, len(rows), "list")
    if isinstance(first, RECORDS):
        return _from_records(rows)
    if isinstance(first, list | tuple) and _are_tokens(rows, tokens):
        return Table({"": [None if row is None else " ".join(row) for row in rows]}, len(rows), "list")
    if isinstance(first, list | tuple | np.ndarray):
        return _from_array(np.array([list(row) for row in rows], object))
    raise DataError(
        f"Expected 2D array, got 1D array instead: X holds {type(first).__name__} values; give texts, dicts or a table "
        "(Reshape your data either using X.reshape(-1, 1) or X.reshape(1, -1))"
    )


def _are_tokens(rows: list[Any], expected: bool) -> bool:
    """Whether rows are texts cut into tokens: lists of strings. Those of one length are a table, unless texts are
    expected."""
    there = [row for row in rows if row is not None]
    lists = all(isinstance(row, list | tuple) and all(isinstance(token, str) for token in row) for row in there)
    return lists and (expected or len({len(row) for row in there}) > 1)


def _from_records(rows: list[Any]) -> Table:
    for number, row in enumerate(rows):
        if not isinstance(row, RECORDS):
            raise DataError(f"row {number} of X is a {type(row).__name__} among dicts; give a dict for each row")
    names = dict.fromkeys(name for row in rows for name in row)
    return Table({str(name): [row.get(name) for row in rows] for name in names}, len(rows), "records")


def _unique(names: list[str]) -> list[str]:
    if len(set(names)) < len(names):
        name = next(name for name in names if names.count(name) > 1)
        raise DataError(f"X has more than one column {name!r}; rename or drop one")
    return names


def _plain(column: Any) -> Any:
    """A column as a list, a NumPy array or an Arrow array."""
    if _is_arrow(column) or isinstance(column, list):
        return column
    if hasattr(column, "isna") and not isinstance(getattr(column, "dtype", None), np.dtype):
        return _without_na(column)
    if hasattr(column, "to_arrow"):
        return column.to_arrow()
    array = np.asarray(column)
    if array.dtype.kind in "biuf":
        return array
    if array.dtype.kind in "mM":
        return [None if gone else text for gone, text in zip(np.isnat(array), array.astype(str).tolist(), strict=True)]
    return array.tolist()


def _without_na(series: Any) -> list[Any]:
    values: list[Any] = series.astype(object).tolist()
    for place in np.flatnonzero(np.asarray(series.isna(), bool)):
        values[place] = None
    return values


def plain_values(column: Any) -> list[Any]:
    """A column as a list of Python objects."""
    if isinstance(column, list):
        return column
    if not _is_arrow(column):
        return list(column.tolist())
    try:
        return list(column.to_pylist())
    except (arrow().ArrowException, ImportError, LookupError, OverflowError) as error:  # times of no calendar or zone
        reason = " ".join(str(error).split())[:200]
        raise DataError(
            f"a column of type {column.type} holds a value that cannot be read ({reason}); leave the column out, or "
            "write it as text"
        ) from None


def is_missing(value: Any) -> bool:
    """Whether a value is None, NaN, NaT or pandas' NA."""
    if isinstance(value, str):
        return False
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(value, float | np.floating) and bool(value != value)


def guess_kind(column: Any, crossed: bool) -> str:
    """Text, category or number, by the first values; whole numbers that are to be crossed are ids, thus categories."""
    if isinstance(column, np.ndarray):
        return CATEGORY if column.dtype.kind == "b" or (crossed and column.dtype.kind in "iu") else NUMBER
    sample = (
        column[: 10 * GUESS_VALUES] if isinstance(column, list) else plain_values(column.slice(0, 10 * GUESS_VALUES))
    )
    values = list(islice((value for value in sample if not is_missing(value)), GUESS_VALUES))
    if not values or any(isinstance(value, bool | np.bool_) for value in values):
        return CATEGORY
    if all(isinstance(value, int | np.integer) for value in values):
        return CATEGORY if crossed else NUMBER
    if all(isinstance(value, int | float | np.number) for value in values):
        return NUMBER
    if all(isinstance(value, str | bytes) for value in values):
        spaces = sum(value.count(" " if isinstance(value, str) else b" ") for value in values)
        return TEXT if spaces >= TEXT_SPACES * len(values) else CATEGORY
    return CATEGORY


def encode(column: Any, kind: str, name: str) -> Any:
    """A column as the kernel takes it."""
    if kind == NUMBER:
        return _numbers(column, name)
    if kind == LIST:
        return joined_lists(column)
    return _texts(column, name) if kind == TEXT else _categories(column)


def joined_lists(column: Any) -> Any:
    """Each list as one text with a mark between the values; texts stay as they are."""
    if _is_arrow(column) and (found := arrow_texts(column)) is not None:
        return found
    return [_joined(value) for value in plain_values(column)]


def _joined(value: Any) -> str | bytes | None:
    if isinstance(value, str | bytes) or is_missing(value):
        return None if is_missing(value) else value
    if not isinstance(value, Iterable):
        return category_text(value)
    parts = (category_text(part) for part in value)
    texts = (part.decode("utf-8", "replace") if isinstance(part, bytes) else part for part in parts if part is not None)
    return BETWEEN_VALUES.join(texts)


def as_texts(column: Any, name: str) -> Any:
    """A column of texts in which values of other types are written out."""
    if (type(column) is list and first_no_text(column) < 0) or (_is_arrow(column) and arrow_texts(column) is not None):
        return _texts(column, name)
    return [category_text(value) for value in plain_values(column)]


def plain_numbers(column: Any) -> Array | None:
    """A column that holds numbers as float64, with NaN for missing ones; None if it holds anything else."""
    if _is_arrow(column):
        column = arrow_numbers(column)
    if isinstance(column, np.ndarray) and column.dtype.kind in "biuf":
        return np.ascontiguousarray(column, np.float64)
    if type(column) is list and all(map(_is_number_type, set(map(type, column)))):
        return np.array(column, np.float64)
    return None


def _is_number_type(kind: type) -> bool:
    return kind in (int, float, type(None)) or issubclass(kind, np.integer | np.floating)


def python_values(column: Any) -> list[Any]:
    """A column as a list of Python objects, None for what is missing."""
    return [None if is_missing(value) else value for value in plain_values(column)]


def is_boolean(column: Any) -> bool:
    """Whether a column holds truth values by its type."""
    if _is_arrow(column):
        return str(column.type) == "bool"
    return isinstance(column, np.ndarray) and column.dtype.kind == "b"


def truth_values(column: Any) -> Any:
    """A column of booleans in which a text such as "true" is the boolean that a reader of files makes of it."""
    if is_boolean(column):
        return column
    return [TRUTH_VALUES.get(text, text) if type(text) is str else text for text in plain_values(column)]


def _texts(column: Any, name: str) -> Any:
    if type(column) is list and first_no_text(column) < 0:
        return column
    if _is_arrow(column) and (found := arrow_texts(column)) is not None:
        return found
    values = [None if is_missing(value) else value for value in plain_values(column)]
    row = first_no_text(values)
    if row >= 0:
        place = f"row {row} of column {name!r}" if name else f"row {row} of X"
        raise DataError(f"{place} is {values[row]!r}; give str, bytes or None, or give the column another type")
    return values


def _categories(column: Any) -> Any:
    if _is_arrow(column):
        if str(column.type).startswith("dictionary"):
            column = column.cast(column.type.value_type)
        if (found := arrow_texts(column)) is not None:
            return found
        if column.null_count == 0 and str(column.type).lstrip("u").startswith("int"):
            column = arrow_numbers(column)
    if isinstance(column, np.ndarray):
        whole = _whole_numbers(column)
        if whole is not None:
            numbers, valid = whole
            return *write_integers(numbers), valid
    values = plain_values(column)
    if first_no_text(values) < 0:
        return values
    if set(map(type, values)) == {int}:
        array = np.array(values)
        if array.dtype.kind == "i":
            return *write_integers(array), None
    return [category_text(value) for value in values]


def _whole_numbers(column: Array) -> tuple[Array, Array | None] | None:
    """(int64, valid), if the column holds nothing but whole numbers and NaN."""
    if column.dtype.kind in "iu":
        return (np.ascontiguousarray(column, np.int64), None) if column.dtype != np.uint64 else None
    if column.dtype.kind != "f":
        return None
    missing = np.isnan(column)
    filled = np.where(missing, 0, column)
    if not (np.abs(filled) < EXACT_INTEGERS).all() or (filled != np.trunc(filled)).any():
        return None
    return filled.astype(np.int64), np.ascontiguousarray(~missing, np.uint8)


def category_text(value: Any) -> str | bytes | None:
    """A category as text; None if it is missing."""
    if is_missing(value):
        return None
    if isinstance(value, str | bytes):
        return value
    if isinstance(value, np.generic):
        return category_text(value.item())
    if isinstance(value, float):
        return str(int(value)) if abs(value) < EXACT_INTEGERS and value == int(value) else repr(value)
    return str(value)


def _numbers(column: Any, name: str) -> Array:
    if _is_arrow(column):
        found = arrow_numbers(column)
        column = column if found is None else found
    if isinstance(column, np.ndarray) and column.dtype.kind in "biuf":
        numbers = np.ascontiguousarray(column, np.float64)
    else:
        values = plain_values(column)
        if not set(map(type, values)) <= {int, float, bool, type(None)}:
            values = [_number(value, row, name) for row, value in enumerate(values)]
        numbers = np.array(values, np.float64)  # None becomes NaN
    row = first_too_large(numbers)  # also infinity; NaN is missing
    if row >= 0:
        raise DataError(
            f"row {row} of column {name!r} is {numbers[row]}; clip infinity or large values, or scale the column"
        )
    return numbers


def _number(value: Any, row: int, name: str) -> float:
    if is_missing(value):
        return float("nan")
    try:
        return float(value)
    except (TypeError, ValueError):
        raise DataError(
            f"row {row} of column {name!r} is {value!r}, which is not a number; clean it, or name it categorical"
        ) from None


def as_names(names: Iterable[str] | str | None) -> tuple[str, ...]:
    """Column names given as one or several."""
    if names is None:
        return ()
    return (names,) if isinstance(names, str) else tuple(map(str, names))


# ---------------------------------------------------------------------------------------------------- Arrow's buffers
# Arrow's own ways import pandas where it is installed, or a module that wraps each of its compute functions in Python:
# a fifth of a second and a twentieth, which is long beside a file of some megabytes. Left out: nested types.


def arrow(part: str = "") -> ModuleType:
    """Imports pyarrow, or a module of it."""
    try:
        return import_module(f"pyarrow.{part}" if part else "pyarrow")
    except ModuleNotFoundError:
        raise DataError("reading tables needs one more module, pyarrow; pip install pyarrow") from None


def plain_memory() -> Any:
    """Memory of the system for Arrow: its own allocator takes large pages for each size, some 40 MB more in all."""
    return arrow().system_memory_pool()


def is_number(kind: str) -> bool:
    """Whether a type is one of numbers or truth values that `arrow_numbers` reads."""
    return kind == "bool" or kind in _NUMBERS


def arrow_numbers(column: Any) -> Array | None:
    """A column of numbers or truth values, float64 with NaN if some are missing; None if it is of another type."""
    kind = str(column.type)
    if not is_number(kind):
        return None
    parts = [_chunk_numbers(chunk, _NUMBERS.get(kind)) for chunk in _chunks(column)]
    return parts[0] if len(parts) == 1 else np.concatenate([np.empty(0, parts[0].dtype if parts else float), *parts])


def doubles(column: Any) -> Array:
    """A column of numbers of any kind as float64, with NaN for those that are missing."""
    found = arrow_numbers(column)
    if found is None:
        found = arrow_numbers(column.cast(arrow().float64(), safe=False))
    assert found is not None
    return np.ascontiguousarray(found, np.float64)


def arrow_texts(column: Any) -> Buffers | None:
    """A column of texts, in one piece; None if it is of another type."""
    kind = str(column.type)
    if kind.endswith("_view"):
        column = column.cast(kind := "large_" + kind.removesuffix("_view"))
    width = _WIDTHS.get(kind)
    if width is None:
        return None
    parts = [_chunk_texts(chunk, np.dtype(width)) for chunk in _chunks(column) if len(chunk)]
    if not parts:
        return np.zeros(0, np.uint8), np.zeros(1, np.int64), None
    return parts[0] if len(parts) == 1 else _joined_buffers(parts)


def arrow_codes(column: Any) -> tuple[list[str], Array] | None:
    """The different texts of a column in the order in which they come, and the number of each row's; -1 for none."""
    found = arrow_texts(column)
    if found is None:
        return None
    data, bounds, _ = found
    codes, firsts = number_texts(found)
    return [data[bounds[row] : bounds[row + 1]].tobytes().decode() for row in firsts.tolist()], codes


def arrow_missing(column: Any) -> Array:
    """Which rows have no value."""
    parts = [~_valid(chunk) if chunk.null_count else np.zeros(len(chunk), bool) for chunk in _chunks(column)]
    return np.concatenate([np.empty(0, bool), *parts])


def _chunks(column: Any) -> list[Any]:
    return list(column.chunks) if hasattr(column, "chunks") else [column]


def _bits(buffer: Any, chunk: Any) -> Array:
    last = chunk.offset + len(chunk)
    return np.unpackbits(np.frombuffer(buffer, np.uint8), count=last, bitorder="little")[chunk.offset :].view(bool)


def _valid(chunk: Any) -> Array:
    return _bits(chunk.buffers()[0], chunk)


def _chunk_numbers(chunk: Any, dtype: np.dtype[Any] | None) -> Array:
    if not len(chunk):
        return np.empty(0, dtype or bool)
    data = chunk.buffers()[1]
    found = _bits(data, chunk) if dtype is None else np.frombuffer(data, dtype)[chunk.offset :][: len(chunk)]
    return np.where(_valid(chunk), found, np.nan).astype(np.float64) if chunk.null_count else found


def _chunk_texts(chunk: Any, width: np.dtype[Any]) -> Buffers:
    _, offsets, data = chunk.buffers()
    bounds = np.frombuffer(offsets, width)[chunk.offset : chunk.offset + len(chunk) + 1]
    bytes_ = np.frombuffer(data, np.uint8) if data and data.size else np.zeros(0, np.uint8)
    return bytes_, bounds, _valid(chunk).view(np.uint8) if chunk.null_count else None


def _joined_buffers(parts: list[Buffers]) -> Buffers:
    """The values of several buffers in one; offsets are 64-bit, since together they may exceed 2 GiB."""
    data = np.concatenate([data[bounds[0] : bounds[-1]] for data, bounds, _ in parts])
    bounds, end = [np.zeros(1, np.int64)], 0
    for _, own, _ in parts:
        bounds.append(own[1:].astype(np.int64) + (end - int(own[0])))
        end = int(bounds[-1][-1])
    valid = [np.ones(len(own) - 1, np.uint8) if flags is None else flags for _, own, flags in parts]
    whole = all(flags is None for _, _, flags in parts)
    return data, np.concatenate(bounds), None if whole else np.concatenate(valid)
