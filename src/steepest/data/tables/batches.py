"""Tables in memory, or an iterator of them, as a file of Arrow that a source can read again and again.

A batch is a table of any library that speaks Arrow (pyarrow, polars, duckdb), a DataFrame of pandas, a dict of columns
or a list of dicts; an iterator may also give single rows, dicts of plain values. An iterator gives its batches once, so
each is written to a temporary file as it comes, and memory does not grow with their number. The file is removed with
the last source that reads it. All batches have the columns of the first one. Left out: pairs (X, y) of arrays, which
`partial_fit` takes one by one.
"""

from __future__ import annotations

import itertools
import os
import tempfile
import weakref
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any

from steepest.data.files.blocks import TextFile
from steepest.data.tables.columns import as_arrow
from steepest.errors import DataError

GATHERED_ROWS = 4096  # single rows that make a batch


def as_paths(data: Any) -> Any:
    """Names of files and open ones as they are; rows in memory, or what an iterator gives of them, in a file."""
    if hasattr(data, "with_format"):  # of Hugging Face
        if isinstance(data, Mapping):
            raise DataError(f"these are several datasets, {', '.join(map(repr, data))}; give one of them, by its name")
        data = data if hasattr(data, "__len__") else iter(data)
    if isinstance(data, Iterator) and not hasattr(data, "read"):
        first = next(data, None)
        data = itertools.chain(() if first is None else (first,), data)
        return list(data) if first is None or _is_file(first) else [_written(data)]
    is_rows = _is_batch(data) or (isinstance(data, list) and bool(data) and _is_batch(data[0]))
    return [_written(data)] if is_rows and not _is_file(data) else data


def _is_file(item: Any) -> bool:
    return isinstance(item, str | bytes | os.PathLike | TextFile) or hasattr(item, "read")


def _written(data: Any) -> TextFile:
    """A temporary file with all batches."""
    import pyarrow

    handle, path = tempfile.mkstemp(prefix="steepest-", suffix=".arrow")
    try:
        with open(handle, "wb") as out:
            tables = _tables(data)
            first = next(tables, None)
            if first is None:
                raise DataError("there is no batch; give at least one")
            with pyarrow.ipc.new_file(out, first.schema) as writer:
                writer.write_table(first)
                for number, table in enumerate(tables, 1):
                    try:
                        writer.write_table(table.select(first.column_names).cast(first.schema))
                    except (KeyError, pyarrow.ArrowException) as error:
                        said = str(error).partition("\n")[0][:200]
                        raise DataError(
                            f"batch {number} does not fit batch 0 ({said}); give all the same columns"
                        ) from None
        file = TextFile(path)
    except BaseException:
        os.unlink(path)
        raise
    file.name = "the batches"
    weakref.finalize(file, _remove, path)
    return file


def _remove(path: str) -> None:
    with suppress(OSError):
        os.unlink(path)


def _is_batch(data: Any) -> bool:
    return isinstance(data, Mapping) or any(
        hasattr(data, name)
        for name in ("iloc", "__arrow_c_stream__", "__arrow_c_array__", "collect_schema", "with_format")
    )


def _tables(data: Any) -> Iterator[Any]:
    batches: Iterable[Any] = [data] if _is_batch(data) or _is_dicts(data) else data
    for number, batch in enumerate(_gathered(batches)):
        yield _as_table(batch, number)


def _gathered(batches: Iterable[Any]) -> Iterator[Any]:
    """Batches as they come, and single rows in lists."""
    rows: list[Any] = []
    for batch in batches:
        if _is_row(batch):
            rows.append(batch)
            if len(rows) < GATHERED_ROWS:
                continue
        if rows:
            yield rows
            rows = []
        if not _is_row(batch):
            yield batch
    if rows:
        yield rows


def _is_row(item: Any) -> bool:
    """Whether a dict is one row; in a dict of columns, every value has a length and is not a text."""
    return isinstance(item, Mapping) and any(
        isinstance(value, str | bytes) or not hasattr(value, "__len__") for value in item.values()
    )


def _is_dicts(data: Any) -> bool:
    return isinstance(data, list) and bool(data) and all(isinstance(row, dict) for row in data)


def _as_table(batch: Any, number: int) -> Any:
    import pyarrow

    try:
        if hasattr(batch, "iloc"):
            return pyarrow.Table.from_pandas(batch, preserve_index=False)
        if isinstance(batch, pyarrow.RecordBatch):
            return pyarrow.Table.from_batches([batch])
        if _is_dicts(batch):
            return pyarrow.Table.from_pylist(batch)
        table = pyarrow.table(batch) if isinstance(batch, Mapping) else as_arrow(batch)
    except (pyarrow.ArrowException, TypeError, ValueError) as error:
        said = str(error).partition("\n")[0][:200]
        raise DataError(f"batch {number} is not a table of columns ({said}); clean it first") from None
    if table is None:
        raise DataError(
            f"batch {number} is of type {type(batch).__name__}, which is neither a table nor a list of dicts; give "
            "tables, or give rows in memory to fit(X, y) and pairs of arrays, one by one, to partial_fit(X, y)"
        )
    return table
