"""Tables from files, larger than memory, whose columns are hashed while they are read: CSV, JSON lines, Parquet, Arrow.

The columns' roles are named, or else guessed (see roles). Reading is done by pyarrow, `pip install steepest[tables]`.
The options of a source, as far as they were settled by looking at the data, are its `recipe`, with which a saved model
opens new data alike; pass with_labels=False where that has no label column.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from steepest.data.columnar import ArrowSource, ParquetSource
from steepest.data.csv_lines import CsvSource
from steepest.data.files import Paths, TextFile, open_files
from steepest.data.json_lines import JsonSource
from steepest.data.parameters import ParameterError
from steepest.data.roles import make_roles
from steepest.data.sparse_table import read_sparse

Names = str | Iterable[str] | None


def scan_csv(
    path: Paths | list[TextFile],
    *,
    label: str | None = None,
    text: Names = None,
    categorical: Names = None,
    numeric: Names = None,
    weight: str | None = None,
    columns: Sequence[str] | None = None,
    delimiter: str = "auto",
    header: bool = True,
    newlines_in_values: bool | str = "auto",
    on_bad_line: str = "error",
    with_labels: bool = True,
) -> CsvSource:
    """Rows of CSV files, to be hashed while they are read.

    Values that are empty, NA, N/A, NaN or null are missing. A column's type is fixed by the first megabyte.

    Parameters
    ----------
    path : path, pattern, list of them, or "-" for standard input
        Plain or packed by gz, bz2 or zst, as their content tells.
    label, weight : name of a column
        The label is, by default, the only column called label, target, y or class.
    text, categorical, numeric : names of columns
        The features and their kinds. If none is named, all other columns are features, and a hasher guesses.
    columns : names, optional
        The columns of files without a header; "0", "1", ... by default.
    delimiter : one letter, or "auto" for the most frequent of , tab ; | in the first line
    header : bool
        Whether the first line of each file names the columns.
    newlines_in_values : bool or "auto"
        Whether quoted values go over several lines; then blocks of a file are not shuffled. "auto" looks at the first
        megabyte.
    on_bad_line : "error" or "skip"
        Skipped rows are counted in `source.skipped`.
    with_labels : bool
        False: label and weight may be absent and are not kept.

    Examples
    --------
    >>> import tempfile, os, steepest as st
    >>> path = os.path.join(tempfile.mkdtemp(), "two.csv")
    >>> _ = open(path, "w").write("colour,size,label\\nred,1.5,yes\\nblue,2,no\\n")
    >>> hasher = st.Hasher()
    >>> chunk = next(iter(st.scan_csv(path).with_encoder(lambda batch: hasher.to_chunk(batch.columns))))
    >>> chunk.y.tolist(), hasher.columns_
    (['yes', 'no'], (('colour', 'category'), ('size', 'number')))
    """
    if not isinstance(delimiter, str) or (delimiter != "auto" and len(delimiter.encode()) != 1):
        raise ParameterError(f'delimiter={delimiter!r} must be one letter or "auto"')
    if newlines_in_values not in (True, False, "auto"):
        raise ParameterError(f'newlines_in_values={newlines_in_values!r} is unknown; choose True, False or "auto"')
    if header and columns is not None:
        raise ParameterError("columns= names the columns of files without a header; pass header=False too")
    roles = make_roles(label, text, categorical, numeric, weight, with_labels)
    names = None if columns is None else list(map(str, columns))
    return CsvSource(open_files(path), roles, on_bad_line, delimiter, header, names, newlines_in_values)


def scan_jsonl(
    path: Paths | list[TextFile],
    *,
    label: str | None = None,
    text: Names = None,
    categorical: Names = None,
    numeric: Names = None,
    weight: str | None = None,
    labels: Iterable[Any] | None = None,
    on_bad_line: str = "error",
    with_labels: bool = True,
) -> JsonSource:
    """Rows of JSON lines, one object each, to be hashed while they are read.

    Keys that are seen in the first megabyte are columns; a key that a line lacks is missing. Nested objects and lists
    are no features.

    Parameters
    ----------
    path, label, text, categorical, numeric, weight, on_bad_line, with_labels : as in `scan_csv`
    labels : collection of labels, optional
        If the label is a list of several: all there are. Without them a first pass over the data collects them.
    """
    roles = make_roles(label, text, categorical, numeric, weight, with_labels)
    return JsonSource(open_files(path), roles, _labels(labels), on_bad_line)


def scan_parquet(
    path: Paths | list[TextFile],
    *,
    label: str | None = None,
    text: Names = None,
    categorical: Names = None,
    numeric: Names = None,
    weight: str | None = None,
    labels: Iterable[Any] | None = None,
    on_bad_line: str = "error",
    with_labels: bool = True,
) -> ParquetSource:
    """Rows of Parquet files, to be hashed while they are read; parameters as in `scan_jsonl`.

    Files of sparse rows that `steepest convert` wrote are known by a mark in them, and need no hasher.
    """
    roles = make_roles(label, text, categorical, numeric, weight, with_labels)
    return read_sparse(ParquetSource(open_files(path), roles, _labels(labels), on_bad_line))


def scan_arrow(
    path: Paths | list[TextFile],
    *,
    label: str | None = None,
    text: Names = None,
    categorical: Names = None,
    numeric: Names = None,
    weight: str | None = None,
    labels: Iterable[Any] | None = None,
    on_bad_line: str = "error",
    with_labels: bool = True,
) -> ArrowSource:
    """Rows of Arrow IPC or Feather files, to be hashed while they are read; parameters as in `scan_jsonl`."""
    roles = make_roles(label, text, categorical, numeric, weight, with_labels)
    return read_sparse(ArrowSource(open_files(path), roles, _labels(labels), on_bad_line))


def _labels(labels: Iterable[Any] | None) -> list[str] | None:
    return None if labels is None else sorted({str(label) for label in labels})
