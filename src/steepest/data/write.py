"""Writing data: sparse rows as libsvm, VW, Parquet or Arrow; raw ones as CSV, TSV, JSON lines, text, Parquet or Arrow.

Text is packed by the name's ending, .gz, .zst or .bz2. Memory: one chunk. Values are written in the shortest form that
reads back as the same float32, labels as the same float64. libsvm counts columns from 1, in rising order, and has no
place for weights.
"""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import IO, Any

import numpy as np

from steepest import atomic
from steepest.data.chunk import Array, Chunk
from steepest.data.files.packing import packed
from steepest.data.raw import RawBatch
from steepest.data.tables.columnar import sparse_table
from steepest.data.tables.columns import arrow, plain_values
from steepest.errors import DataError

SPARSE_TEXT = ("libsvm", "vw")
RAW_TEXT = ("csv", "tsv", "jsonl", "txt")
TABLES = ("parquet", "arrow")
# Parquet rows are read back group by group: some megabytes each.
GROUP_ROWS = 1 << 16


@dataclass(slots=True)
class Written:
    """What went into a file."""

    rows: int = 0
    entries: int = 0
    weights_left_out: bool = False


@dataclass(frozen=True, slots=True)
class Naming:
    """What columns are called, and what labels become."""

    label: str = "label"
    weight: str = "weight"
    codes: Mapping[str, int] | None = None  # numbers for labels that are texts
    label_names: list[str] | None = None  # of the columns of a multi-label target


def write_chunks(chunks: Iterable[Chunk], path: str, form: str, naming: Naming, n_features: int | None) -> Written:
    """Sparse rows to a file."""
    done = Written()
    if form in TABLES:
        tables = (_counted(done, part, _sparse_table(part, naming, n_features)) for part in map(Chunk.packed, chunks))
        _write_tables(tables, path, form)
        return done
    with writing(path) as out:
        for chunk in chunks:
            part = chunk.packed()
            done.weights_left_out |= form == "libsvm" and part.weight is not None
            out.write(_counted(done, part, sparse_lines(part, form, naming.codes)))
    return done


def write_batches(batches: Iterable[RawBatch], path: str, form: str, naming: Naming) -> Written:
    """Raw rows to a file."""
    done = Written()
    if form in TABLES:
        tables = (_counted(done, batch, _raw_table(batch, naming)) for batch in batches)
        _write_tables(tables, path, form)
        return done
    lines = _text_format(form)
    with writing(path) as out:
        for batch in batches:
            out.write(lines(_raw_table(batch, naming), naming, done.rows == 0))
            done.rows += batch.n_rows
    return done


def _counted(done: Written, part: Any, result: Any) -> Any:
    done.rows += part.n_rows
    done.entries += int(part.indptr[-1]) if isinstance(part, Chunk) else 0
    return result


# ---------------------------------------------------------------------------------------------------------- sparse rows


def sparse_lines(rows: Chunk, form: str, codes: Mapping[str, int] | None = None) -> bytes:
    """A packed chunk as lines of libsvm or VW text."""
    lengths = np.diff(rows.indptr)
    order = np.lexsort((rows.indices, np.repeat(np.arange(rows.n_rows), lengths)))
    distinct, which = np.unique(rows.values[order], return_inverse=True)
    words = [_number(value) for value in distinct]
    first = 1 if form == "libsvm" else 0
    indices, values = (rows.indices[order].astype(np.int64) + first).tolist(), which.tolist()
    entries = [f"{j}:{words[k]}" for j, k in zip(indices, values, strict=True)]
    heads = _heads(rows, form, codes)
    bounds = rows.indptr.tolist()
    lines = [
        " ".join([*head, *entries[start:stop]])
        for head, start, stop in zip(heads, bounds[:-1], bounds[1:], strict=True)
    ]
    return ("\n".join(lines) + "\n").encode() if lines else b""


def _heads(rows: Chunk, form: str, codes: Mapping[str, int] | None) -> list[list[str]]:
    """What comes before the features of each row."""
    labels = [[] for _ in range(rows.n_rows)] if rows.y is None else [[label] for label in _labels(rows.y, codes)]
    if form == "libsvm":
        return labels
    if rows.weight is not None and rows.y is not None:
        labels = [[*label, _number(weight)] for label, weight in zip(labels, rows.weight, strict=True)]
    return [[*label, "|"] for label in labels]


def _labels(y: Array, codes: Mapping[str, int] | None) -> list[str]:
    if y.ndim == 2:
        raise DataError("this format cannot store several labels per row; write parquet, arrow or cache")
    if y.dtype.kind in "biuf":
        return [_number(label) for label in y.astype(np.float64)]
    known = codes or {}
    missing = next((label for label in y.tolist() if label not in known), None)
    if missing is not None:
        raise DataError(f"the label {missing!r} has no number; name all labels in their order with --labels")
    return [str(known[label]) for label in y.tolist()]


def _number(value: Any) -> str:
    """The shortest text that is read back as the same float."""
    if abs(value) < 1e15 and value == int(value):
        return str(int(value))
    return np.format_float_scientific(value, trim="-") if not 1e-4 <= abs(value) < 1e15 else str(value)


def _sparse_table(rows: Chunk, naming: Naming, n_features: int | None) -> Any:
    return sparse_table(rows, _targets(rows.y, rows.weight, Naming(label_names=naming.label_names)), n_features)


# ------------------------------------------------------------------------------------------------------------- raw rows


def _targets(y: Array | None, weight: Array | None, naming: Naming) -> dict[str, Any]:
    """Columns of labels and weights."""
    pa = arrow()
    columns = {}
    if y is not None and y.ndim == 2:
        names = np.array(naming.label_names or [str(k) for k in range(y.shape[1])], object)
        columns[naming.label] = pa.array([names[row > 0].tolist() for row in y], pa.list_(pa.string()))
    elif y is not None:
        columns[naming.label] = pa.array(y.tolist(), pa.float64() if y.dtype.kind in "biuf" else pa.string())
    if weight is not None:
        columns[naming.weight] = pa.array(weight, pa.float64())
    return columns


def _raw_table(batch: RawBatch, naming: Naming) -> Any:
    pa = arrow()
    columns = _targets(batch.y, batch.weight, naming)
    if isinstance(batch.columns, list):
        texts = [text.decode("utf-8", "replace") if isinstance(text, bytes) else text for text in batch.columns]
        return pa.table(columns | {"text": pa.array(texts, pa.string())})
    return pa.table(columns | {name: batch.columns.column(name) for name in batch.columns.schema.names})


def _text_format(form: str) -> Callable[[Any, Naming, bool], bytes]:
    if form == "jsonl":
        return _json_lines
    if form == "txt":
        return _labelled_lines
    delimiter = "," if form == "csv" else "\t"
    return lambda table, naming, is_first: _csv_lines(table, naming, is_first, delimiter)


def _csv_lines(table: Any, naming: Naming, is_first: bool, delimiter: str) -> bytes:
    pa, csv = arrow(), arrow("csv")
    for name, kind in zip(table.schema.names, table.schema.types, strict=True):
        if str(kind).startswith(("list", "large_list", "struct", "map")):
            raise DataError(f"the column {name!r} holds {kind}, which a text table cannot store; write jsonl")
    sink = pa.BufferOutputStream()
    try:
        csv.write_csv(
            _whole_labels(table, naming), sink, csv.WriteOptions(include_header=is_first, delimiter=delimiter)
        )
    except pa.ArrowException as error:  # bytes that are not UTF-8, types without a text
        reason = str(error).partition("\n")[0]
        raise DataError(f"a column cannot be written as text ({reason}); write parquet or arrow") from None
    return bytes(sink.getvalue())


def _json_lines(table: Any, naming: Naming, is_first: bool) -> bytes:
    whole = _whole_labels(table, naming)
    columns = [plain_values(whole.column(name)) for name in whole.schema.names]
    rows = (dict(zip(whole.schema.names, values, strict=True)) for values in zip(*columns, strict=True))
    return "".join(json.dumps(row, ensure_ascii=False, default=str) + "\n" for row in rows).encode()


def _whole_labels(table: Any, naming: Naming) -> Any:
    """Labels 1.0 and 2.0 as 1 and 2."""
    if naming.label in table.schema.names:
        place = table.schema.names.index(naming.label)
        y = table.column(place).to_numpy() if str(table.schema.types[place]) == "double" else None
        if y is not None and (np.abs(y) < 2**53).all() and (y == np.trunc(y)).all():
            return table.set_column(place, naming.label, arrow().array(y.astype(np.int64)))
    return table


def _labelled_lines(table: Any, naming: Naming, is_first: bool) -> bytes:
    names = [name for name in table.schema.names if name not in (naming.label, naming.weight)]
    if len(names) != 1:
        raise DataError(f"a text file holds one text per row, but here are the columns {', '.join(names)}; give --text")
    texts = [" ".join(str("" if text is None else text).split()) for text in plain_values(table.column(names[0]))]
    if naming.label not in table.schema.names:
        return "".join(f"{text}\n" for text in texts).encode()
    labels = _whole_labels(table, naming).column(naming.label).to_pylist()
    if labels and isinstance(labels[0], list):
        marks = [" ".join(f"__label__{'_'.join(label.split())}" for label in row) for row in labels]
        return "".join(f"{row} {text}\n" for row, text in zip(marks, texts, strict=True)).encode()
    words = [" ".join(str(label).split()) for label in labels]
    return "".join(f"{label}\t{text}\n" for label, text in zip(words, texts, strict=True)).encode()


# ---------------------------------------------------------------------------------------------------------------- files


@contextmanager
def writing(path: str) -> Generator[IO[bytes], None, None]:
    """A stream into a file that gets its name at the end, packed by that name; "-" is standard output."""
    if path == "-":
        buffer = getattr(sys.stdout, "buffer", None)
        out = io.BytesIO() if buffer is None else buffer  # someone has put a stream of text in its place
        yield out
        if buffer is None:
            sys.stdout.write(out.getvalue().decode())
        sys.stdout.flush()
        return
    with atomic.writing(path) as raw, packed(raw, path) as out:
        yield out


def _write_tables(tables: Iterable[Any], path: str, form: str) -> None:
    pa = arrow()
    with atomic.writing(path) as file, ExitStack() as stack:
        writer = None
        for table in tables:
            if writer is None:
                schema = table.schema
                opened = arrow("parquet").ParquetWriter if form == "parquet" else arrow("ipc").new_file
                writer = stack.enter_context(opened(file, schema))
            try:
                writer.write_table(table.cast(schema), *((GROUP_ROWS,) if form == "parquet" else ()))
            except (pa.ArrowInvalid, ValueError) as error:
                reason = str(error).partition("\n")[0]
                raise DataError(
                    f"{path}: later rows do not fit the types of the first ones ({reason}); name the column --numeric "
                    "or --categorical"
                ) from None
        if writer is None:
            raise DataError(f"{path}: there are no rows to write; give data that contains rows")
