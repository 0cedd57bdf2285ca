"""CSV: the delimiter and the types guessed, values that hold line breaks put together again, and faults named."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from steepest.data.chunk import DataError
from steepest.data.files import Block, TextFile
from steepest.data.roles import (
    Roles,
    arrow,
    plain_memory,
    require,
)
from steepest.data.source import Order
from steepest.data.table_lines import LOOK_BYTES, Line, TableLines

# What stands for a missing value in CSV.
MISSING = ("", "NA", "N/A", "#N/A", "<NA>", "NaN", "nan", "null", "NULL")
DELIMITERS = ",\t;|"
# A quoted value that goes on for more than this is taken for one that was never closed.
OPEN_LIMIT = 1 << 24
_TRUTHS = ("true", "false", "0", "1")
_LONGEST_FIELD = 1 << 30


@dataclass(frozen=True, slots=True)
class _Header:
    names: list[str]
    n_bytes: int


class CsvSource(TableLines):
    """Rows of CSV files; made by `scan_csv`."""

    def __init__(
        self,
        files: list[TextFile],
        roles: Roles,
        on_bad_line: str,
        delimiter: str,
        header: bool,
        columns: list[str] | None,
        newlines_in_values: bool | str,
    ) -> None:
        super().__init__(files, roles, None, on_bad_line)
        self.header = header
        self.columns = columns
        self._options: dict[str, Any] = {"delimiter": delimiter, "newlines_in_values": newlines_in_values}
        self._headers: dict[int, _Header] = {}

    @property
    def recipe(self) -> dict[str, Any]:
        """The format and its options, settled by the first read."""
        roles = self.roles.describe(self._schema.label_name)
        return {"format": "csv", **roles, "header": self.header, "columns": self.columns, **self._options}

    def look(self) -> None:
        """Delimiter, header and types."""
        heads = ((file, file.head(LOOK_BYTES)) for file in self.files)
        file, head = next(((file, head) for file, head in heads if head.strip()), (self.files[0], b""))
        if not head.strip():
            raise self._no_rows()
        if self._options["delimiter"] == "auto":
            self._options["delimiter"] = _delimiter(head.lstrip(b"\r\n").split(b"\n", 1)[0])
        if self._options["newlines_in_values"] == "auto":
            lines = head.split(b"\n")[: None if len(head) < LOOK_BYTES else -1]
            quoted = b'"' in head
            self._options["newlines_in_values"] = quoted and any(line.count(b'"') % 2 for line in lines)
        names = self._header_of(file).names
        used = self.settle(names, file.name)
        guessed = self._guess(head, file, used)
        self._schema.types = {name: self.fixed_type(name, guessed.get(name, "string")) for name in used}

    def _guess(self, head: bytes, file: TextFile, used: list[str]) -> dict[str, str]:
        body = head if len(head) < LOOK_BYTES else head[: head.rfind(b"\n") + 1]
        body = body[self._header_of(file).n_bytes :].decode("utf-8", "replace").encode()
        if not body.strip():
            return {}
        while self._ends_open(body) and b"\n" in body[:-1]:
            body = body[: body.rfind(b"\n", 0, -1) + 1]
        try:
            table = self._arrow_table(body, file, used, {}, lambda row: "skip")
        except arrow().ArrowInvalid:
            return {}
        plain = ("int64", "double", "bool")
        return {name: str(kind) if str(kind) in plain else "string" for name, kind in _fields(table.schema)}

    def _header_of(self, file: TextFile) -> _Header:
        if file.position not in self._headers:
            found = self._read_header(file)
            for name in found.names:
                if found.names.count(name) > 1:
                    raise DataError(f"{file.name} has more than one column {name!r}; rename or drop one")
            if self._schema.settled:
                require(self._schema.types, found.names, file.name)
            self._headers[file.position] = found
        return self._headers[file.position]

    def _read_header(self, file: TextFile) -> _Header:
        head = file.head(LOOK_BYTES)
        lines = head.splitlines(keepends=True)
        reader = csv.reader((line.decode("utf-8", "replace") for line in lines), delimiter=self._options["delimiter"])
        first = next((record for record in reader if record), [])
        if self.header:
            return _Header(first, sum(map(len, lines[: reader.line_num])))
        names = self.columns or [str(place) for place in range(len(first))]
        if first and len(first) != len(names):
            raise DataError(
                f"{file.name}: the first row has {len(first)} values, but columns= names {len(names)}; name them all"
            )
        return _Header(names, 0)

    def body(self, block: Block) -> tuple[bytes, int]:
        """Without the header line."""
        header = self._header_of(block.file)
        offset = header.n_bytes if block.number == 0 else 0
        data = bytes(block.text[offset:])
        if not self._options["newlines_in_values"] and self._ends_open(data):
            raise DataError(
                f"{block.file.name}: a quoted value goes on in the next line, near byte {block.start + len(data)}; "
                "pass newlines_in_values=True"
            )
        return data, offset

    def _blocks(self, files: list[TextFile], order: Order, epoch: int) -> Iterator[Block]:
        if not self._options["newlines_in_values"]:
            yield from super()._blocks(files, order, epoch)
            return
        for file in files:
            for block in self._joined(file):
                if self._holds(np.array([file.position + block.number])).all():
                    yield block

    def _joined(self, file: TextFile) -> Iterator[Block]:
        """Blocks that end outside of quotes."""
        waiting: list[Block] = []
        for block in file.stream():
            waiting.append(block)
            if len(waiting) > 1 and b'"' not in bytes(block.text):
                is_open = True
            else:
                is_open = self._ends_open(b"".join(bytes(part.text) for part in waiting))
            if is_open and block.start - waiting[0].start > OPEN_LIMIT:
                break
            if not is_open:
                yield _join(waiting)
                waiting = []
        if waiting:
            joined = _join(waiting)
            *_, (start, _, _) = self._records(bytes(joined.text))
            raise DataError(
                f"{file.name}, line {joined.line_number(start)}: a quote is opened and never closed; correct the line"
            )

    def _ends_open(self, data: bytes) -> bool:
        """Whether the text stops inside a quoted value; quotes inside unquoted values do not count."""
        if data.count(b'"') % 2 == 0:
            return False
        *_, (_, _, record) = self._records(data)
        return bool(record) and record[-1].endswith("\n")

    def parse(self, data: bytes, file: TextFile, whole: bool) -> Any:
        """By Arrow."""
        return self._arrow_table(data, file, list(self._schema.types), self._schema.arrow_types(whole))

    def _arrow_table(self, data: bytes, file: TextFile, used: list[str], types: Any, on_ragged: Any = None) -> Any:
        pa, reader = arrow(), arrow("csv")
        return reader.read_csv(
            pa.BufferReader(data),
            reader.ReadOptions(column_names=self._header_of(file).names, use_threads=False, block_size=len(data) + 1),
            reader.ParseOptions(
                delimiter=self._options["delimiter"], newlines_in_values=True, invalid_row_handler=on_ragged
            ),
            reader.ConvertOptions(
                column_types=types, include_columns=used, null_values=MISSING, strings_can_be_null=True
            ),
            memory_pool=plain_memory(),
        )

    def check(self, data: bytes, file: TextFile) -> Iterator[Line]:
        """Record by record."""
        names = self._header_of(file).names
        places = [(names.index(name), name, kind) for name, kind in self._schema.types.items()]
        for start, stop, record in self._records(data):
            yield start, stop, self._fault(record, len(names), places) if record else ""

    def _records(self, data: bytes) -> Iterator[tuple[int, int, list[str]]]:
        """(start, stop, values) of each record, blank lines included."""
        lines = data.split(b"\n")
        ends = np.minimum(np.cumsum([len(line) + 1 for line in lines]), len(data)).tolist()
        if not lines[-1]:
            lines.pop()
        # For the whole process and not taken back, since other threads may be reading.
        csv.field_size_limit(max(csv.field_size_limit(), _LONGEST_FIELD))
        texts = (line.decode("utf-8", "surrogateescape") + "\n" for line in lines)
        # Arrow takes NUL for a letter like others, csv of older versions does not; nor has it a place for lone returns.
        plain = (text.replace("\0", " ").replace("\r\n", "\n").replace("\r", " ") for text in texts)
        reader = csv.reader(plain, delimiter=self._options["delimiter"])
        start = 0
        for record in reader:
            stop = ends[reader.line_num - 1]
            yield start, stop, record
            start = stop

    def _fault(self, record: list[str], n_columns: int, places: list[tuple[int, str, str]]) -> str:
        if len(record) != n_columns:
            return f"the row has {len(record)} values instead of {n_columns}"
        for place, name, kind in places:
            fault = self._value_fault(record[place], name, kind)
            if fault:
                return fault
        return ""

    def _value_fault(self, value: str, name: str, kind: str) -> str:
        if value in MISSING:
            return self._missing_fault(name)
        if not value.isascii() and any("\udc80" <= letter <= "\udcff" for letter in value):
            return f"the value in column {name!r} is not UTF-8"
        shown = value if len(value) <= 40 else value[:40] + "..."
        if kind == "bool" and value.lower() not in _TRUTHS:
            return f"{shown!r} in column {name!r} is neither true nor false"
        if kind in ("int64", "double"):
            try:
                number = float(value)
            except ValueError:
                return f"{shown!r} in column {name!r} is not a number"
            return self._number_fault(name, number)
        return ""


def _join(blocks: list[Block]) -> Block:
    first = blocks[0]
    if len(blocks) == 1:
        return first
    return Block(first.file, first.number, first.start, b"".join(b.text for b in blocks), first.lines_before)


def _delimiter(line: bytes) -> str:
    outside = b"".join(line.split(b'"')[::2])
    return max(DELIMITERS, key=lambda letter: outside.count(letter.encode()))


def _fields(schema: Any) -> Iterator[tuple[str, Any]]:
    return zip(schema.names, schema.types, strict=True)
