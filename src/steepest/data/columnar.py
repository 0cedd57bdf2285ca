"""Parquet and Arrow files (IPC, Feather): pieces of a file, row groups or record batches, are read one at a time.

Shuffled, the pieces of all files come in a new random order in every epoch, and rows are permuted inside batches of
BATCH_ROWS. A Parquet row's stable number is its place in the file, an Arrow row's that in its record batch, so neither
depends on the size of batches. All files must have the columns of the first one, with the same types.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from steepest.data.chunk import Array, DataError
from steepest.data.files import TextFile, describe
from steepest.data.lines import EXAMPLES, ON_BAD_LINE
from steepest.data.parameters import choice
from steepest.data.raw import RawBatch, RawSource
from steepest.data.roles import (
    Roles,
    arrow,
    is_list,
    label_faults,
    labels_in,
    listed,
    require,
    targets_of,
    weight_faults,
)
from steepest.data.source import Order

# Rows of a batch: hashing them takes some milliseconds.
BATCH_ROWS = 1 << 14
_FILE_BITS, _PIECE_BITS = 44, 24
_NUMBERS = ("int", "uint", "float", "halffloat", "double", "decimal")


@dataclass(frozen=True, slots=True)
class Piece:
    """A row group or record batch: which one of which file, and the stable number of its first row."""

    file: TextFile
    number: int
    first_id: int


class SkippedRows:
    """Rows that were passed over because their label or weight cannot be used, each counted once."""

    def __init__(self) -> None:
        self._seen: dict[int, str] = {}

    @property
    def n(self) -> int:
        """How many rows."""
        return len(self._seen)

    @property
    def examples(self) -> list[str]:
        """The first three, in file order, as sentences."""
        return [self._seen[row] for row in sorted(self._seen)[:EXAMPLES]]

    def add(self, row_id: int, fault: str) -> None:
        """Counts a row, unless that was done before."""
        self._seen.setdefault(row_id, fault)


class ColumnarSource(RawSource):
    """Rows of files that hold columns. A format gives `open`, `pieces`, `read_piece` and `recipe`.

    Attributes
    ----------
    skipped : SkippedRows
        Rows passed over so far under on_bad_line="skip".
    label_names : list of str or None
        What the columns of a multi-label target stand for, once it is known.
    """

    format = ""

    def __init__(self, files: list[TextFile], roles: Roles, labels: list[str] | None, on_bad_line: str) -> None:
        arrow()
        for file in files:
            if file.once:
                raise DataError(f"{file.name} is no file; save the {self.format} data in a file, it is read in pieces")
        self.files = files
        self.roles = roles
        self.on_bad_line = choice("on_bad_line", on_bad_line, ON_BAD_LINE)
        self.skipped = SkippedRows()
        self._types: dict[str, Any] = {}  # of the columns that are read, shared by all copies
        self._settled: dict[str, Any] = {"label": roles.label, "labels": labels}

    @abstractmethod
    def open(self, file: TextFile) -> Any:
        """A reader, which closes as a context."""

    @abstractmethod
    def schema_of(self, reader: Any) -> Any:
        """The columns and their types."""

    @abstractmethod
    def pieces(self, file: TextFile, reader: Any) -> list[Piece]:
        """What can be read alone."""

    @abstractmethod
    def read_piece(self, reader: Any, piece: Piece, columns: list[str]) -> Iterator[Any]:
        """The piece as record batches, in order."""

    def describe(self) -> str:
        """The files' names."""
        return describe(self.files)

    @property
    def label_names(self) -> list[str] | None:
        """The labels of a multi-label source."""
        labels: list[str] | None = self._settled["labels"]
        return labels

    @property
    def recipe(self) -> dict[str, Any]:
        """The format and its options, settled by the first read."""
        return {"format": self.format, **self.roles.describe(self._settled["label"]), "labels": self.label_names}

    def fingerprint(self) -> dict[str, Any]:
        """The files and what decides which rows come from them."""
        files = [file.fingerprint() for file in self.files]
        self._prepare()
        options = {"on_bad_line": self.on_bad_line, "with_labels": self.roles.with_labels}
        return {"files": files, "recipe": self.recipe, **options}

    @property
    def _label(self) -> str | None:
        return self._settled["label"] if self.roles.with_labels else None

    @property
    def _weight(self) -> str | None:
        return self.roles.weight if self.roles.with_labels else None

    def _prepare(self) -> None:
        if not self._types:
            self._settle(self.files[0])
            for file in self.files[1:]:
                self._check(file)
        if self._label and self.label_names is None and is_list(str(self._types[self._label])):
            self._settled["labels"] = self._collect_labels()

    def _settle(self, file: TextFile) -> None:
        with self._reading(file) as reader:
            schema = self.schema_of(reader)
        names = list(schema.names)
        label = self._settled["label"] = self.roles.find_label(names, file.name)
        features = self.roles.choose(names, label)
        if not self.roles.features:
            features = [name for name in features if not _is_nested(schema.field(name).type)]
        used = [*features, *(name for name in (self._label, self._weight) if name)]
        require(used, names, file.name)
        if not features:
            raise DataError(f"{file.name} has no columns beside the label; its columns are {listed(names)}")
        self._types.update({name: schema.field(name).type for name in used})

    def _check(self, file: TextFile) -> None:
        """Refuses a file with other columns than the first."""
        with self._reading(file) as reader:
            schema = self.schema_of(reader)
        require(self._types, schema.names, file.name)
        for name, kind in self._types.items():
            found = schema.field(name).type
            if found != kind:
                raise DataError(
                    f"{file.name}: the column {name!r} holds {found}, but {kind} in {self.files[0].name}; "
                    "write all files with the same types"
                )

    def _reading(self, file: TextFile) -> Any:
        pa = arrow()
        try:
            return self.open(file)
        except FileNotFoundError:
            raise DataError(f"{file.name} does not exist; check the name") from None
        except (pa.ArrowException, OSError) as error:
            raise self._damaged(file, error) from None

    def _damaged(self, file: TextFile, error: Exception) -> DataError:
        reason = str(error).partition("\n")[0][:200]
        return DataError(f"{file.name} cannot be read as {self.format} ({reason}); check the file and its format")

    def _collect_labels(self) -> list[str]:
        found: set[str] = set()
        for piece in self._all_pieces():
            for batch in self._piece(piece, [str(self._label)]):
                found |= labels_in(arrow().chunked_array([batch.column(0)]))
        return sorted(found)

    def _all_pieces(self) -> list[Piece]:
        pieces: list[Piece] = []
        for file in self.files:
            with self._reading(file) as reader:
                pieces += self.pieces(file, reader)
        return pieces

    def _piece(self, piece: Piece, columns: list[str]) -> Iterator[Any]:
        pa = arrow()
        with self._reading(piece.file) as reader:
            batches = self.read_piece(reader, piece, columns)
            while True:
                try:
                    batch = next(batches, None)
                except (pa.ArrowException, OSError) as error:
                    raise self._damaged(piece.file, error) from None
                if batch is None:
                    return
                yield batch

    def batches(self, order: Order, epoch: int) -> Generator[RawBatch, None, None]:
        """The pieces' rows, up to BATCH_ROWS at a time."""
        self._prepare()
        pieces = self._all_pieces()
        visits = np.arange(len(pieces))
        if order.shuffle != "never":
            visits = order.generator(epoch, 1).permutation(visits)
        any_row = False
        for number in visits.tolist():
            start = 0
            for large in self._piece(pieces[number], list(self._types)):
                for first in range(0, large.num_rows, BATCH_ROWS):
                    batch = large.slice(first, BATCH_ROWS)
                    made = self._checked(batch, pieces[number], start + first, (number, start + first))
                    if made.n_rows:
                        any_row = True
                        yield made
                start += large.num_rows
        if not any_row:
            because = f"; the first row was skipped because: {self.skipped.examples[0]}" if self.skipped.n else ""
            raise DataError(f"{self.describe()}: there is no row in it{because}; give a file with data")

    def _checked(self, batch: Any, piece: Piece, start: int, place: tuple[int, int]) -> RawBatch:
        try:
            return self._make(batch, piece, start, place)
        except arrow().ArrowInvalid as error:
            raise DataError(
                f"{piece.file.name}: the label in column {self._label!r} cannot be used ({error}); "
                "give numbers, UTF-8 strings or lists of them"
            ) from None

    def _make(self, batch: Any, piece: Piece, start: int, place: tuple[int, int]) -> RawBatch:
        table = arrow().Table.from_batches([batch])
        first_id = piece.first_id + start
        bad = self._faults(table, piece, start)
        block_rows: Array | None = None
        block_ids: Array | None = None
        if bad.any():
            good = np.flatnonzero(~bad)
            table = table.take(good)
            # Each run of neighbours keeps its numbers.
            block_rows = np.flatnonzero(np.diff(good, prepend=-2) != 1)
            block_ids = first_id + good[block_rows]
        y = None if self._label is None else targets_of(_target_column(table.column(self._label)), self.label_names)
        weight = None if self._weight is None else _numbers(table.column(self._weight)).to_numpy().copy()
        features = table.drop_columns([name for name in (self._label, self._weight) if name])
        return RawBatch(_without_decimals(features), table.num_rows, y, weight, first_id, block_rows, block_ids, place)

    def _faults(self, table: Any, piece: Piece, start: int) -> Array:
        """Which rows have no usable label or weight; refuses them, or counts them."""
        bad = np.zeros(table.num_rows, bool)
        for what, name in (("label", self._label), ("weight", self._weight)):
            if name is None:
                continue
            column = table.column(name)
            faults = (
                label_faults(_target_column(column), self.label_names)
                if what == "label"
                else weight_faults(_numbers(column))
            )
            for row in np.flatnonzero(faults).tolist():
                self._report(what, name, column[row].as_py(), piece, start + row)
            bad |= faults
        return bad

    def _report(self, what: str, name: str, value: Any, piece: Piece, row: int) -> None:
        where = f"{piece.file.name}, {self._row_name(piece, row)}"
        fault = f"the {what} in column {name!r} is {'missing' if value is None else f'{value!r}, which cannot be used'}"
        if self.on_bad_line != "skip":
            raise DataError(f'{where}: {fault}; correct the row or pass on_bad_line="skip"')
        self.skipped.add(piece.first_id + row, f"{where}: {fault}")

    def refuse_rows(self, row_ids: Sequence[int], faults: Sequence[str], remedy: str) -> None:
        """Rows that were read well but cannot be used: an error, or counted if bad lines are skipped."""
        for row_id, fault in zip(row_ids, faults, strict=True):
            position, row = divmod(row_id, 1 << _FILE_BITS)
            name = next(file.name for file in self.files if file.position == position)
            where = f"{name}, row {row}"
            if self.on_bad_line != "skip":
                raise DataError(f"{where}: {fault}; {remedy}")
            self.skipped.add(row_id, f"{where}: {fault}")

    def _row_name(self, piece: Piece, row: int) -> str:
        """A row's place in words, counted from 0."""
        return f"row {(piece.first_id + row) & ((1 << _FILE_BITS) - 1)}"


def _is_nested(kind: Any) -> bool:
    return bool(arrow("types").is_nested(kind))


def _numbers(column: Any) -> Any:
    return column.cast(arrow().float64(), safe=False)


def _without_decimals(table: Any) -> Any:
    """Decimal numbers as doubles."""
    for place, kind in enumerate(table.schema.types):
        if str(kind).startswith("decimal"):
            table = table.set_column(place, table.schema.names[place], _numbers(table.column(place)))
    return table


def _target_column(column: Any) -> Any:
    """Numbers as doubles, texts as strings; lists and booleans as they are."""
    kind = str(column.type)
    if kind.startswith("dictionary"):
        return _target_column(column.cast(column.type.value_type))
    if is_list(kind) or kind == "bool":
        return column
    return _numbers(column) if kind.startswith(_NUMBERS) else column.cast(arrow().string())


class ParquetSource(ColumnarSource):
    """Rows of Parquet files; made by `scan_parquet`."""

    format = "parquet"

    def open(self, file: TextFile) -> Any:
        """Arrow's reader."""
        return arrow("parquet").ParquetFile(file.path)

    def schema_of(self, reader: Any) -> Any:
        """In Arrow's types."""
        return reader.schema_arrow

    def pieces(self, file: TextFile, reader: Any) -> list[Piece]:
        """Row groups."""
        metadata = reader.metadata
        counts = [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]
        starts = np.cumsum([0, *counts]).tolist()
        return [Piece(file, group, (file.position << _FILE_BITS) + starts[group]) for group in range(len(counts))]

    def read_piece(self, reader: Any, piece: Piece, columns: list[str]) -> Iterator[Any]:
        """Decodes as it goes on."""
        batches = reader.iter_batches(BATCH_ROWS, row_groups=[piece.number], columns=columns, use_threads=False)
        return (batch.select(columns) for batch in batches)


class ArrowSource(ColumnarSource):
    """Rows of Arrow IPC and Feather files; made by `scan_arrow`."""

    format = "arrow"

    def open(self, file: TextFile) -> Any:
        """Arrow's reader of files, or else of streams."""
        pa, ipc = arrow(), arrow("ipc")
        try:
            return ipc.open_file(pa.memory_map(file.path))
        except pa.ArrowInvalid:
            return ipc.open_stream(pa.memory_map(file.path))

    def schema_of(self, reader: Any) -> Any:
        """The columns."""
        return reader.schema

    def pieces(self, file: TextFile, reader: Any) -> list[Piece]:
        """Record batches; a stream is one piece."""
        n_pieces = getattr(reader, "num_record_batches", 1)
        first_id = file.position << _FILE_BITS
        return [Piece(file, number, first_id + (number << _PIECE_BITS)) for number in range(n_pieces)]

    def read_piece(self, reader: Any, piece: Piece, columns: list[str]) -> Iterator[Any]:
        """One batch, or all of a stream."""
        found = [reader.get_batch(piece.number)] if hasattr(reader, "get_batch") else reader
        return (batch.select(columns) for batch in found)

    def _row_name(self, piece: Piece, row: int) -> str:
        return f"row {row} of record batch {piece.number}"
