"""CSV and JSON lines through Arrow, block by block: the types of columns are fixed by the first megabyte.

Arrow reads each block strictly. If it, or a label or weight in it, does not fit, the block is read again line by line
in Python, which knows what is wrong and where; that is slow, but only for blocks with bad lines. A number that is
not whole in a column of whole ones is no fault.
"""

from __future__ import annotations

import codecs
import csv
import json
import math
import threading
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np

from steepest.data.chunk import Array, DataError
from steepest.data.files import Block, TextFile
from steepest.data.lines import EXAMPLES, BadLine
from steepest.data.raw import RawLines, RawRows
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

# What types and delimiters are told from.
LOOK_BYTES = 1 << 20
# What stands for a missing value in CSV.
MISSING = ("", "NA", "N/A", "#N/A", "<NA>", "NaN", "nan", "null", "NULL")
DELIMITERS = ",\t;|"
# A quoted value that goes on for more than this is taken for one that was never closed.
OPEN_LIMIT = 1 << 24
_TRUTHS = ("true", "false", "0", "1")
_LONGEST_FIELD = 1 << 30

Fault = tuple[int, str]  # the byte where a bad line starts, and what is wrong
_Line = tuple[int, int, str]  # where it starts and stops, and what is wrong, or ""


@dataclass
class Schema:
    """What the first look at the data settles; shared by all copies of a source."""

    types: dict[str, str] = field(default_factory=dict)  # of the columns that are read, in Arrow's words
    label: str | None = None  # the columns that are read as such
    weight: str | None = None
    label_name: str | None = None  # also where it is not read
    labels: list[str] | None = None  # the columns of a multi-label target
    settled: bool = False
    turn: Any = field(default_factory=threading.RLock)

    @property
    def many(self) -> bool:
        """Whether a row may have several labels."""
        return self.label is not None and is_list(self.types.get(self.label, ""))

    def arrow_types(self, whole: bool) -> dict[str, Any]:
        """Arrow's types; without `whole`, numbers may have fractions."""
        pa = arrow()
        known = {"int64": pa.int64() if whole else pa.float64(), "double": pa.float64(), "bool": pa.bool_()}
        known |= {"list<string>": pa.list_(pa.string()), "list<double>": pa.list_(pa.float64())}
        return {name: known.get(kind, pa.string()) for name, kind in self.types.items()}


@dataclass(frozen=True, slots=True)
class _Rows:
    """A block's good rows, the first of its bad lines, and how many of these there are."""

    table: Any
    faults: Sequence[Fault] = ()
    n_bad: int = 0


_JSON_NAMES = {
    list: "an array",
    str: "a string",
    int: "a number",
    float: "a number",
    bool: "a truth value",
    type(None): "null",
}


class TableLines(RawLines):
    """Tables with one row a line.

    Attributes
    ----------
    label_names : list of str or None
        What the columns of a multi-label target stand for, once it is known.
    """

    def __init__(self, files: list[TextFile], roles: Roles, labels: list[str] | None, on_bad_line: str) -> None:
        super().__init__(files, on_bad_line)
        arrow()
        self.roles = roles
        self._schema = Schema(label_name=roles.label, labels=labels)

    @property
    def label_names(self) -> list[str] | None:
        """The labels of a multi-label source."""
        return self._schema.labels

    @abstractmethod
    def look(self) -> None:
        """Settles the schema by the first rows."""

    @abstractmethod
    def parse(self, data: bytes, file: TextFile, whole: bool) -> Any:
        """A block's rows as an Arrow table; raises Arrow's error if one does not fit."""

    @abstractmethod
    def check(self, data: bytes, file: TextFile) -> Iterator[_Line]:
        """(start, stop, what is wrong or "") of each line."""

    def fingerprint(self) -> dict[str, Any]:
        """With labels or without, and which types."""
        own = super().fingerprint()
        return {**own, "with_labels": self.roles.with_labels, "types": self._schema.types}

    def prepare(self) -> None:
        """Looks at the first rows, and collects labels where a row may have several."""
        schema = self._schema
        with schema.turn:
            if not schema.settled:
                self.look()
                schema.settled = True
            if schema.many and schema.labels is None:
                self._collect_labels()

    def _collect_labels(self) -> None:
        once = [file.name for file in self.files if file.once]
        if once:
            raise DataError(f"{once[0]} can be read only once, so its labels cannot be collected; pass labels=[...]")
        found: set[str] = set()
        for file in self.files:
            for block in self._blocks([file], Order(), 0):
                found |= labels_in(self._rows(block).table.column(self._schema.label))
        self._schema.labels = sorted(found)

    def settle(self, names: list[str], file: str) -> list[str]:
        """Finds the label and weight and returns all columns that are to be read."""
        schema = self._schema
        label = self.roles.find_label(names, file)
        schema.label = label if self.roles.with_labels else None
        schema.weight = self.roles.weight if self.roles.with_labels else None
        schema.label_name = label
        used = self.roles.choose(names, label)
        used += [name for name in (schema.label, schema.weight) if name is not None]
        require(used, names, file)
        if not self.roles.choose(names, label):
            raise DataError(f"{file} has no columns beside the label; its columns are {listed(names)}")
        return used

    def fixed_type(self, name: str, guessed: str) -> str:
        """The type a column is read as, by its role or else by a guess."""
        if name in self.roles.text or name in self.roles.categorical:
            return "string"
        if name in self.roles.numeric or name == self._schema.weight:
            return "double"
        if name == self._schema.label and guessed == "int64":
            return "double"
        return guessed

    def split(self, blocks: list[Block]) -> RawRows:
        """Blocks of lines."""
        parts = [self._rows(block) for block in blocks]
        bad = [BadLine(number, *fault) for number, part in enumerate(parts) for fault in part.faults]
        schema, pa = self._schema, arrow()
        table = pa.concat_tables([part.table for part in parts], promote_options="permissive")
        y = None if schema.label is None else targets_of(table.column(schema.label), schema.labels)
        weight = None if schema.weight is None else np.ascontiguousarray(table.column(schema.weight).to_numpy())
        features = table.drop_columns([name for name in (schema.label, schema.weight) if name is not None])
        rows, n_bad = [part.table.num_rows for part in parts], [part.n_bad for part in parts]
        return RawRows(features, rows, y, weight, bad, n_bad)

    def body(self, block: Block) -> tuple[bytes, int]:
        """A block's rows, without a header, and where they start in it."""
        return bytes(block.text), 0

    def _rows(self, block: Block) -> _Rows:
        data, offset = self.body(block)
        if not data.strip(b"\r\n"):
            return _Rows(self._nothing())
        table, _ = self._try(data, block.file)
        if table is not None:
            return self._usable(table, data, block.file, offset)
        lines = self._unreadable(data, list(self.check(data, block.file)), block.file)
        faults = [(start + offset, fault) for start, _, fault in lines if fault]
        kept = b"".join(data[start:stop] for start, stop, fault in lines if not fault)
        if self.on_bad_line != "skip" or not kept.strip(b"\r\n"):
            return _Rows(self._nothing(), faults[:EXAMPLES], len(faults))
        table, reason = self._try(kept, block.file)
        if table is None or self._unusable(table).any():
            raise DataError(f"{block.file.name} cannot be read near byte {block.start} ({reason}); correct the rows")
        return _Rows(table, faults[:EXAMPLES], len(faults))

    def _unreadable(self, data: bytes, lines: list[_Line], file: TextFile) -> list[_Line]:
        """The lines, with Arrow's word on those that only Arrow finds fault with."""
        good = [line for line in lines if not line[2]]
        text = b"".join(data[start:stop] for start, stop, _ in good)
        reason = self._try(text, file)[1] if text.strip(b"\r\n") else ""
        if not reason:
            return lines
        if len(lines) == 1:
            return [(lines[0][0], lines[0][1], f"the line cannot be read ({reason})")]
        half = len(lines) // 2
        return self._unreadable(data, lines[:half], file) + self._unreadable(data, lines[half:], file)

    def _try(self, data: bytes, file: TextFile) -> tuple[Any, str]:
        """The rows as a table if all values fit their columns, or else a reason why not."""
        reason = ""
        for whole in (True, False):
            try:
                return self.parse(data, file, whole), ""
            except (arrow().ArrowInvalid, UnicodeDecodeError) as error:
                reason = str(error).partition("\n")[0][:200]
        return None, reason

    def _usable(self, table: Any, data: bytes, file: TextFile, offset: int) -> _Rows:
        """Without the rows whose label or weight cannot be used; only the first of them are looked for in the text."""
        bad = self._unusable(table)
        if not bad.any():
            return _Rows(table)
        faults = ((start + offset, fault) for start, _, fault in self.check(data, file) if fault)
        first = list(islice(faults, EXAMPLES)) or [(offset, "a label or weight behind this line cannot be used")]
        return _Rows(table.filter(arrow().array(~bad)), first, int(bad.sum()))

    def _unusable(self, table: Any) -> Array:
        schema = self._schema
        bad = np.zeros(table.num_rows, bool)
        if schema.label is not None:
            bad |= label_faults(table.column(schema.label), schema.labels)
        if schema.weight is not None:
            bad |= weight_faults(table.column(schema.weight))
        return bad

    def _nothing(self) -> Any:
        pa = arrow()
        return pa.schema(list(self._schema.arrow_types(whole=True).items())).empty_table()

    def _number_fault(self, name: str, number: float) -> str:
        """What is wrong with a number in a column that has a role, if anything is."""
        if name == self._schema.label and not math.isfinite(number):
            return f"the label {number} in column {name!r} is not finite"
        if name == self._schema.weight and not (number >= 0 and math.isfinite(number)):
            return f"the weight {number} in column {name!r} is negative or not finite"
        return ""

    def _missing_fault(self, name: str) -> str:
        if name == self._schema.label:
            return f"the label in column {name!r} is missing"
        return f"the weight in column {name!r} is missing" if name == self._schema.weight else ""


# ----------------------------------------------------------------------------------------------------------------- CSV


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
            self._options["newlines_in_values"] = any(line.count(b'"') % 2 for line in lines)
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
        )

    def check(self, data: bytes, file: TextFile) -> Iterator[_Line]:
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


# ---------------------------------------------------------------------------------------------------------- JSON lines

_JSON_TYPES = {"int64": int | float, "double": int | float, "string": str, "bool": bool}


class JsonSource(TableLines):
    """Rows of JSON lines; made by `scan_jsonl`."""

    @property
    def recipe(self) -> dict[str, Any]:
        """The format and its options, settled by the first read."""
        return {"format": "jsonl", **self.roles.describe(self._schema.label_name), "labels": self._schema.labels}

    def look(self) -> None:
        """Keys and types."""
        heads = ((file, file.head(LOOK_BYTES)) for file in self.files)
        file, head = next(((file, head) for file, head in heads if head.strip()), (self.files[0], b""))
        if head.lstrip().startswith(b"["):
            raise DataError(f"{file.name} is one JSON array; write one object a line")
        lines = head.split(b"\n") if len(head) < LOOK_BYTES else head.split(b"\n")[:-1] or [head]
        types: dict[str, str] = {}
        for line in lines:
            for name, value in (_json_object(line) or {}).items():
                types[name] = _widened(types.get(name, ""), value)
        if not types:
            if not head.strip():
                raise DataError(f"{file.name}: there is no row in it; give a file with data")
            shown = lines[0][:60].decode("utf-8", "backslashreplace")
            raise DataError(f"{file.name}: the first line, {shown!r}, is no JSON object; write one object a line")
        names = [name for name, kind in types.items() if kind != "nested" or name == self.roles.label]
        used = self.settle(names, file.name)
        if not self.roles.features:  # lists are no features
            used = [name for name in used if name == self._schema.label or not is_list(types[name])]
        self._schema.types = {name: self.fixed_type(name, types[name].replace("<>", "<string>")) for name in used}

    def fixed_type(self, name: str, guessed: str) -> str:
        """As the values are written, since they have types; a role decides only what null leaves open."""
        if guessed and name != self._schema.weight:
            return "double" if guessed == "int64" and name in (*self.roles.numeric, self._schema.label) else guessed
        return super().fixed_type(name, guessed or "string")

    def parse(self, data: bytes, file: TextFile, whole: bool) -> Any:
        """By Arrow."""
        pa, reader = arrow(), arrow("json")
        codecs.utf_8_decode(data, "strict", True)  # Arrow does not look
        schema = pa.schema(list(self._schema.arrow_types(whole).items()))
        return reader.read_json(
            pa.BufferReader(data),
            reader.ReadOptions(use_threads=False, block_size=len(data) + 1),
            reader.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore"),
        )

    def check(self, data: bytes, file: TextFile) -> Iterator[_Line]:
        """Line by line."""
        start = 0
        while start < len(data):
            stop = data.find(b"\n", start) + 1 or len(data)
            line = data[start:stop]
            yield start, stop, self._fault(line) if line.strip() else ""
            start = stop

    def _fault(self, line: bytes) -> str:
        try:
            row = json.loads(line.decode())
        except UnicodeDecodeError:
            return "the line is not UTF-8"
        except (ValueError, RecursionError) as error:
            return f"the line is no JSON ({error})"
        if not isinstance(row, dict):
            return f"the line holds {_JSON_NAMES[type(row)]} instead of an object"
        faults = (self._value_fault(row.get(name), name, kind) for name, kind in self._schema.types.items())
        return next(filter(None, faults), "")

    def _value_fault(self, value: Any, name: str, kind: str) -> str:
        if value is None:
            return self._missing_fault(name)
        shown = repr(value) if len(repr(value)) <= 40 else repr(value)[:40] + "..."
        if is_list(kind):
            return self._list_fault(value, shown, name, kind)
        wrong = not isinstance(value, _JSON_TYPES[kind]) or (isinstance(value, bool) and kind != "bool")
        if wrong:
            wanted = {"string": "a string", "bool": "true or false"}.get(kind, "a number")
            return f"{shown} in column {name!r} is not {wanted}"
        return self._number_fault(name, float(value)) if kind in ("int64", "double") else ""

    def _list_fault(self, value: Any, shown: str, name: str, kind: str) -> str:
        element = kind.removeprefix("list<").removesuffix(">")
        if not isinstance(value, list) or any(not isinstance(part, _JSON_TYPES[element]) for part in value):
            return f"{shown} in column {name!r} is not a list of {element}s"
        if name == self._schema.label and self._schema.labels is not None and element == "string":
            unknown = [part for part in value if part not in self._schema.labels]
            return f"the label {unknown[0]!r} is not among the labels given" if unknown else ""
        return ""


def _json_object(line: bytes) -> dict[str, Any] | None:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return row if isinstance(row, dict) else None


def _widened(kind: str, value: Any) -> str:
    """The type of a column that had this type so far, with one more value; the first kind of value decides."""
    if value is None or kind == "nested":
        return kind
    found = _json_type(value)
    if not kind or (kind, found) in (("int64", "double"), ("list<>", "list<string>"), ("list<>", "list<double>")):
        return found
    return kind


def _json_type(value: Any) -> str:
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int):
        return "int64" if abs(value) < 1 << 62 else "double"
    if isinstance(value, list):
        found = {_json_type(part) for part in value}
        if found <= {"string"}:
            return "list<string>" if value else "list<>"
        return "list<double>" if found <= {"int64", "double"} else "nested"
    return "double" if isinstance(value, float) else "string" if isinstance(value, str) else "nested"
