"""Parquet and Arrow files (IPC, Feather): pieces of a file, row groups or record batches, are read one at a time.

Shuffled, the pieces of all files come in a new random order in every epoch, and rows are permuted inside batches of
BATCH_ROWS. A Parquet row's stable number is its place in the file, an Arrow row's that in its record batch, so neither
depends on the size of batches. All files must have the columns of the first one, with the same types.

Files of sparse rows hold lists of column numbers (from 0) and of values beside label and weight, and the mark
`steepest.rows = sparse` in their schema, with `steepest.n_features` where that is known. They are read as such,
whatever roles were named for their columns, and need no hasher.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from steepest.data.chunk import Array, Chunk, RowIds
from steepest.data.files.blocks import Paths, TextFile, open_files
from steepest.data.files.remote import open_bytes
from steepest.data.raw import SAMPLE_PARTS, RawBatch, RawSource, spread
from steepest.data.skipped import ON_BAD_LINE, Skipped
from steepest.data.source import Order
from steepest.data.tables.columns import arrow, is_number
from steepest.data.tables.roles import Roles, Schema, any_fault, as_labels, is_list, labels_in, make_roles, require
from steepest.errors import DataError, is_of_the_system
from steepest.parameters import choice

# Rows of a batch: hashing them takes some milliseconds.
BATCH_ROWS = 1 << 14
_FILE_BITS, _PIECE_BITS = 44, 24
_MARK, _WIDTH = b"steepest.rows", b"steepest.n_features"
_SPARSE_COLUMNS = ("indices", "values")
_LARGEST_INDEX = 2**31 - 2
_LARGEST_VALUE = float(np.finfo(np.float32).max)


def scan_parquet(
    path: Paths | list[TextFile],
    *,
    label: str | None = None,
    text: str | Iterable[str] | None = None,
    categorical: str | Iterable[str] | None = None,
    numeric: str | Iterable[str] | None = None,
    weight: str | None = None,
    labels: Iterable[Any] | None = None,
    on_bad_line: str = "error",
    with_labels: bool = True,
) -> ColumnarSource:
    """Opens Parquet files as a source of raw rows, hashed while they are read; parameters as in `scan_jsonl`.

    Files of sparse rows, written by `steepest convert`, are detected and need no hasher.

    Examples
    --------
    >>> import os, tempfile, pyarrow as pa, pyarrow.parquet, steepest as st
    >>> path = os.path.join(tempfile.mkdtemp(), "mails.parquet")
    >>> pa.parquet.write_table(pa.table({"text": ["cheap pills", "lunch at noon"], "label": ["spam", "ham"]}), path)
    >>> st.LinearClassifier(random_state=0).fit_stream(st.scan_parquet(path)).classes_.tolist()
    ['ham', 'spam']
    """
    schema = Schema(make_roles(label, text, categorical, numeric, weight, with_labels), as_labels(labels))
    return ColumnarSource(open_files(path), ParquetFiles(), schema, on_bad_line)


def scan_arrow(
    path: Paths | list[TextFile],
    *,
    label: str | None = None,
    text: str | Iterable[str] | None = None,
    categorical: str | Iterable[str] | None = None,
    numeric: str | Iterable[str] | None = None,
    weight: str | None = None,
    labels: Iterable[Any] | None = None,
    on_bad_line: str = "error",
    with_labels: bool = True,
) -> ColumnarSource:
    """Opens Arrow IPC or Feather files as a source of raw rows, hashed as they are read; parameters as in `scan_jsonl`.

    Examples
    --------
    >>> import os, tempfile, pyarrow as pa, pyarrow.feather, steepest as st
    >>> path = os.path.join(tempfile.mkdtemp(), "mails.feather")
    >>> pa.feather.write_feather(pa.table({"text": ["cheap pills", "lunch at noon"], "label": ["spam", "ham"]}), path)
    >>> st.LinearClassifier(random_state=0).fit_stream(st.scan_arrow(path)).classes_.tolist()
    ['ham', 'spam']
    """
    schema = Schema(make_roles(label, text, categorical, numeric, weight, with_labels), as_labels(labels))
    return ColumnarSource(open_files(path), ArrowFiles(), schema, on_bad_line)


@dataclass(frozen=True, slots=True)
class Piece:
    """A row group or record batch: which one of which file, and the stable number of its first row."""

    file: TextFile
    number: int
    first_id: int


class ParquetFiles:
    """Parquet, in row groups."""

    format = "parquet"

    def open(self, file: TextFile) -> Any:
        """Opens a file with Arrow's reader."""
        return arrow("parquet").ParquetFile(open_bytes(file.path) if file.is_remote else file.path)

    def schema_of(self, reader: Any) -> Any:
        """The columns as an Arrow schema."""
        return reader.schema_arrow

    def pieces(self, file: TextFile, reader: Any) -> list[Piece]:
        """The row groups of a file."""
        metadata = reader.metadata
        counts = [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]
        starts = np.cumsum([0, *counts]).tolist()
        return [Piece(file, group, (file.position << _FILE_BITS) + starts[group]) for group in range(len(counts))]

    def read_piece(self, reader: Any, piece: Piece, columns: list[str]) -> Iterator[Any]:
        """Yields a row group batch by batch as it is decoded."""
        batches = reader.iter_batches(BATCH_ROWS, row_groups=[piece.number], columns=columns, use_threads=False)
        return (batch.select(columns) for batch in batches)

    def row_name(self, piece: Piece, row: int) -> str:
        """The position of a row in words, counted from 0."""
        return f"row {(piece.first_id + row) & ((1 << _FILE_BITS) - 1)}"


class ArrowFiles:
    """Arrow IPC and Feather, in record batches."""

    format = "arrow"

    def open(self, file: TextFile) -> Any:
        """Opens a file with Arrow's reader of files, or else of streams."""
        pa, ipc = arrow(), arrow("ipc")
        try:
            return ipc.open_file(_input(file))
        except pa.ArrowInvalid:
            return ipc.open_stream(_input(file))

    def schema_of(self, reader: Any) -> Any:
        """The columns as an Arrow schema."""
        return reader.schema

    def pieces(self, file: TextFile, reader: Any) -> list[Piece]:
        """The record batches of a file; a stream is one piece."""
        n_pieces = getattr(reader, "num_record_batches", 1)
        first_id = file.position << _FILE_BITS
        return [Piece(file, number, first_id + (number << _PIECE_BITS)) for number in range(n_pieces)]

    def read_piece(self, reader: Any, piece: Piece, columns: list[str]) -> Iterator[Any]:
        """Yields one record batch, or all of a stream."""
        found = [reader.get_batch(piece.number)] if hasattr(reader, "get_batch") else reader
        return (batch.select(columns) for batch in found)

    def row_name(self, piece: Piece, row: int) -> str:
        """The position of a row in words, counted from 0."""
        return f"row {row} of record batch {piece.number}"


def _input(file: TextFile) -> Any:
    """The file as Arrow reads it: mapped, or from elsewhere."""
    return open_bytes(file.path) if file.is_remote else arrow().memory_map(file.path)


class ColumnarSource(RawSource):
    """Rows of files that hold columns; made by `scan_parquet` and `scan_arrow`."""

    def __init__(
        self, files: list[TextFile], kind: ParquetFiles | ArrowFiles, schema: Schema, on_bad_line: str
    ) -> None:
        pa = arrow()
        for file in files:
            if file.once:
                raise DataError(f"{file.name} is not a file; save the {kind.format} data in one, it is read in pieces")
        self.files = files
        self.kind = kind
        self.schema = schema
        self.on_bad_line = choice("on_bad_line", on_bad_line, ON_BAD_LINE)
        self.skipped = Skipped()  # shared by all copies
        try:
            with kind.open(files[0]) as reader:
                self._detect_sparse_rows(kind.schema_of(reader), files[0])
        except (pa.ArrowException, OSError):
            return  # reading will say what is wrong

    def _detect_sparse_rows(self, found: Any, file: TextFile) -> None:
        metadata = found.metadata or {}
        if metadata.get(_MARK) != b"sparse":
            return
        width = metadata.get(_WIDTH, b"1")
        kinds = [found.field(name).type for name in _SPARSE_COLUMNS if name in found.names]
        plain = len(kinds) == len(_SPARSE_COLUMNS) and all(map(_is_list_of_numbers, kinds))
        if not plain or not width.isdigit() or not 0 < int(width[:11]) <= _LARGEST_INDEX + 1:
            raise DataError(
                f"{file.name} is marked as a file of sparse rows, but has no lists of numbers called indices and "
                f"values, or {width[:20]!r} features; write it again with steepest convert"
            )
        label, weight = (name if name in found.names else None for name in ("label", "weight"))
        with_labels = self.schema.roles.with_labels and label is not None
        self.schema = Schema(Roles(label, _SPARSE_COLUMNS, (), (), weight, with_labels), self.schema.labels)
        self.n_features = int(metadata[_WIDTH]) if _WIDTH in metadata else None
        self.encoder = lambda batch: _sparse_rows(batch, self.n_features)

    @property
    def label_names(self) -> list[str] | None:
        """The labels of a multi-label source."""
        return self.schema.labels

    @property
    def recipe(self) -> dict[str, Any]:
        """The format and its options, complete after the first read."""
        return {"format": self.kind.format, **self.schema.describe(), "labels": self.label_names}

    def fingerprint(self) -> dict[str, Any]:
        """The files and what decides which rows come from them."""
        files = [file.fingerprint() for file in self.files]
        self._prepare()
        options = {"on_bad_line": self.on_bad_line, "with_labels": self.schema.roles.with_labels}
        return {"files": files, "recipe": self.recipe, **options}

    def _prepare(self) -> None:
        schema = self.schema
        if not schema.types:
            self._infer(self.files[0])
            for file in self.files[1:]:
                self._check(file)
        if schema.needs_labels:
            found: set[str] = set()
            for piece in self._all_pieces():
                for batch in self._piece(piece, [str(schema.label)]):
                    found |= labels_in(arrow().chunked_array([batch.column(0)]))
            schema.labels = sorted(found)

    def _infer(self, file: TextFile) -> None:
        """The roles and types of columns from those of the first file."""
        is_nested = arrow("types").is_nested
        found = self._schema_of(file)
        kinds = {name: found.field(name).type for name in found.names}
        nested = [name for name, kind in kinds.items() if is_nested(kind) and not _is_plain_list(kind)]
        used = self.schema.choose(list(found.names), file.name, not_features=nested)
        if self.schema.label in nested:
            raise DataError(
                f"{file.name}: the label in column {self.schema.label!r} holds {kinds[self.schema.label]}; "
                "give numbers, strings or lists of them"
            )
        self.schema.types.update({name: found.field(name).type for name in used})

    def _check(self, file: TextFile) -> None:
        """Raises if a file has other columns than the first."""
        found = self._schema_of(file)
        require(self.schema.types, found.names, file.name)
        for name, expected in self.schema.types.items():
            if found.field(name).type != expected:
                raise DataError(
                    f"{file.name}: the column {name!r} holds {found.field(name).type}, but {expected} in "
                    f"{self.files[0].name}; write all files with the same types"
                )

    def _schema_of(self, file: TextFile) -> Any:
        with self._reading(file) as reader:
            return self.kind.schema_of(reader)

    def _reading(self, file: TextFile) -> Any:
        pa = arrow()
        try:
            return self.kind.open(file)
        except FileNotFoundError:
            raise DataError(f"{file.name} does not exist; check the name") from None
        except (pa.ArrowException, OSError) as error:
            raise self._damaged(file, error) from error

    def _damaged(self, file: TextFile, error: Exception) -> DataError:
        reason = str(error).partition("\n")[0][:200]
        remedy = "raise the limits of this process" if is_of_the_system(error) else "check the file and its format"
        return DataError(f"{file.name} cannot be read as {self.kind.format} ({reason}); {remedy}")

    def _all_pieces(self) -> list[Piece]:
        pieces: list[Piece] = []
        for file in self.files:
            with self._reading(file) as reader:
                try:
                    pieces += self.kind.pieces(file, reader)
                except (arrow().ArrowException, OSError) as error:
                    raise self._damaged(file, error) from error
        return pieces

    def _piece(self, piece: Piece, columns: list[str]) -> Iterator[Any]:
        pa = arrow()
        with self._reading(piece.file) as reader:
            batches: Any = None
            while True:
                try:
                    batches = batches or self.kind.read_piece(reader, piece, columns)
                    batch = next(batches, None)
                    if batch is not None:
                        batch.validate(full=True)  # Arrow maps what the file says without a check
                except (pa.ArrowException, OSError) as error:
                    raise self._damaged(piece.file, error) from error
                if batch is None:
                    return
                yield batch

    def batches(self, order: Order, epoch: int) -> Generator[RawBatch, None, None]:
        """Yields the rows of all pieces, up to BATCH_ROWS at a time."""
        self._prepare()
        pieces = self._all_pieces()
        visits = np.arange(len(pieces))
        if order.shuffle != "never":
            visits = order.generator(epoch, 1).permutation(visits)
        any_row = False
        for number in visits.tolist():
            for start, rows in self._cut(pieces[number]):
                made = self._batch(rows, pieces[number], start)
                if made.n_rows:
                    any_row = True
                    yield replace(made, place=(number, start))
        if not any_row:
            because = f"; the first row was skipped because: {self.skipped.examples[0]}" if self.skipped.n else ""
            raise DataError(f"{self.describe()}: it has no rows{because}; give a file with data")

    def _cut(self, piece: Piece) -> Iterator[tuple[int, Any]]:
        """Yields (position of the first row in the piece, rows), up to BATCH_ROWS at a time."""
        start = 0
        for large in self._piece(piece, list(self.schema.types)):
            for first in range(0, large.num_rows, BATCH_ROWS):
                yield start + first, arrow().Table.from_batches([large.slice(first, BATCH_ROWS)])
            start += large.num_rows

    def sample_batches(self) -> list[RawBatch]:
        """Yields the first rows of pieces from all over the files; of few pieces, also later rows."""
        self._prepare()
        pieces = self._all_pieces()
        found = []
        most = max(SAMPLE_PARTS // max(len(pieces), 1), 1)
        for place in spread(len(pieces), SAMPLE_PARTS):
            batches = list(self._cut(pieces[place]))
            for start, table in (batches[number] for number in spread(len(batches), most)):
                with self._refusing_targets(pieces[place].file):
                    bad = any_fault(self.schema.faults(table), table)  # which reading will refuse or count
                    found.append(self._without(bad, table, pieces[place].first_id + start))
        return [made for made in found if made.n_rows] or super().sample_batches()

    def _without(self, bad: Array, table: Any, first_id: int) -> RawBatch:
        """The other rows of a table; each run of neighbours keeps its numbers."""
        if not bad.any():
            return replace(self.schema.batch(table), first_id=first_id)
        good = np.flatnonzero(~bad)
        firsts = np.flatnonzero(np.diff(good, prepend=-2) != 1)
        ids = RowIds(firsts, first_id + good[firsts])
        return replace(self.schema.batch(table.take(good)), first_id=first_id, ids=ids)

    def _batch(self, table: Any, piece: Piece, start: int) -> RawBatch:
        """The usable ones of some rows of a piece."""
        with self._refusing_targets(piece.file):
            return self._without(self._unusable(table, piece, start), table, piece.first_id + start)

    @contextmanager
    def _refusing_targets(self, file: TextFile) -> Iterator[None]:
        """Values that are neither labels nor weights, as a sentence."""
        try:
            yield
        except (arrow().ArrowException, UnicodeDecodeError) as error:
            schema, reason = self.schema, str(error).partition("\n")[0][:200]
            weight = "" if schema.weight is None else f", or the weight in column {schema.weight!r},"
            raise DataError(
                f"{file.name}: the label in column {schema.label!r}{weight} cannot be used ({reason}); "
                "give numbers, UTF-8 strings or lists of them"
            ) from None

    def _unusable(self, table: Any, piece: Piece, start: int) -> Array:
        """Which rows have no usable label or weight; refuses them, or counts them."""
        found = self.schema.faults(table)
        for name, faults in found.items():
            what = "label" if name == self.schema.label else "weight"
            for row in np.flatnonzero(faults).tolist():
                value = table.column(name)[row].as_py()
                fault = "missing" if value is None else f"{value!r}, which cannot be used"
                where = f"{piece.file.name}, {self.kind.row_name(piece, start + row)}"
                sentence = f"{where}: the {what} in column {name!r} is {fault}"
                self._refuse(piece.first_id + start + row, sentence, 'correct the row or pass on_bad_line="skip"')
        return any_fault(found, table)

    def refuse_rows(self, row_ids: Sequence[int], faults: Sequence[str], remedy: str) -> None:
        """Raises for rows that cannot be used, or counts them as skipped lines."""
        for row_id, fault in zip(row_ids, faults, strict=True):
            position, row = divmod(row_id, 1 << _FILE_BITS)
            name = next(file.name for file in self.files if file.position == position)
            self._refuse(row_id, f"{name}, row {row}: {fault}", remedy)

    def _refuse(self, row_id: int, sentence: str, remedy: str) -> None:
        if self.on_bad_line != "skip":
            raise DataError(f"{sentence}; {remedy}")
        self.skipped.add(row_id, 1, [((row_id,), sentence)])


def _is_plain_list(kind: Any) -> bool:
    """Whether a type is one of lists of strings, numbers or truth values: a column of several values."""
    return is_list(str(kind)) and not arrow("types").is_nested(kind.value_type)


# ---------------------------------------------------------------------------------------------------------- sparse rows


def sparse_table(rows: Chunk, columns: dict[str, Any], n_features: int | None) -> Any:
    """The rows of a packed chunk as an Arrow table with the mark, behind other columns."""
    pa = arrow()
    offsets = pa.array(rows.indptr, pa.int32())
    lists = {
        "indices": pa.ListArray.from_arrays(offsets, pa.array(rows.indices, pa.int32())),
        "values": pa.ListArray.from_arrays(offsets, pa.array(rows.values, pa.float32())),
    }
    width = {} if n_features is None else {_WIDTH: str(n_features).encode()}
    return pa.table(columns | lists).replace_schema_metadata({_MARK: b"sparse"} | width)


def _sparse_rows(batch: RawBatch, n_features: int | None) -> Chunk:
    """Columns of lists as a chunk."""
    compute = arrow("compute")
    columns = [batch.columns.column(name) for name in _SPARSE_COLUMNS]
    lengths = [np.asarray(compute.fill_null(compute.list_value_length(column), 0)) for column in columns]
    if not np.array_equal(lengths[0], lengths[1]):
        raise DataError("a row has more indices than values, or fewer; write the file again")
    indptr = np.zeros(batch.n_rows + 1, np.int64)
    np.cumsum(lengths[0], out=indptr[1:])
    indices, values = (compute.list_flatten(column).to_numpy() for column in columns)
    largest = _LARGEST_INDEX if n_features is None else n_features - 1
    if len(indices) and (indices.dtype.kind not in "iu" or indices.min() < 0 or indices.max() > largest):
        raise DataError(
            f"the column indices lie between {indices.min()} and {indices.max()}; they must be whole numbers from 0 to "
            f"{largest}, so write the file again"
        )
    if not (np.abs(values) <= _LARGEST_VALUE).all():
        raise DataError("a value is missing or beyond float32; write the file again")
    width = n_features or int(indices.max(initial=-1)) + 1
    return Chunk(indptr, np.ascontiguousarray(indices, np.int32), np.ascontiguousarray(values, np.float32), width)


def _is_list_of_numbers(kind: Any) -> bool:
    return is_list(str(kind)) and is_number(str(kind.value_type))
