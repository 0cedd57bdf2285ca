"""Tables of lines through Arrow, block by block: the types of columns are fixed by the first megabyte.

Arrow reads each block strictly. If it, or a label or weight in it, does not fit, the block is read again line by line
in Python, which knows what is wrong and where; that is slow, but only for blocks with bad lines. A number that is
not whole in a column of whole ones is not a fault. A syntax, CSV or JSON, says what types there are, how Arrow reads a
block, and what is wrong with a line. CSV is here: delimiter and types are guessed, values that hold line breaks put
together again, and faults named. The options of a source, as far as they were inferred from the data, are its `recipe`,
with which a saved model opens new data alike; pass with_labels=False where that has no label column.
"""

from __future__ import annotations

import csv
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from steepest.data.files.blocks import Block, Paths, TextFile, open_files
from steepest.data.raw import SAMPLE_PARTS, RawBatch, RawSource, spread
from steepest.data.readers.lines import BadLine, LineSource, Parsed
from steepest.data.skipped import EXAMPLES
from steepest.data.tables.columns import arrow, plain_memory
from steepest.data.tables.roles import Schema, any_fault, labels_in, listed, make_roles, require
from steepest.errors import DataError, ParameterError

# What types and delimiters are inferred from.
HEAD_BYTES = 1 << 20
# Blocks that a sample is taken from where they come one after the other.
SAMPLED_STREAM = 16

Line = tuple[int, int, str]  # where it starts and stops, and what is wrong, or ""


class Syntax(ABC):
    """How lines hold a table; shared by all copies of a source."""

    def __init__(self, schema: Schema) -> None:
        arrow()
        self.schema = schema

    @property
    @abstractmethod
    def recipe(self) -> dict[str, Any]:
        """The format and its options, as far as they are known."""

    @abstractmethod
    def infer(self, head: bytes, file: TextFile) -> None:
        """Infers the columns and their types from the first rows."""

    @abstractmethod
    def parse(self, data: bytes, file: TextFile, whole: bool) -> Any:
        """A block's rows as an Arrow table; raises Arrow's error if one does not fit. Not `whole`: with fractions."""

    @abstractmethod
    def check(self, data: bytes, file: TextFile) -> Iterator[Line]:
        """Checks a block line by line: (start, stop, fault or "") of each."""

    def body(self, block: Block) -> tuple[bytes, int]:
        """A block's rows, without a header, and where they start in it."""
        return bytes(block.text), 0

    def stream(self, file: TextFile) -> Iterator[Block] | None:
        """Blocks that can only be read one after the other; None if each can be read by itself."""
        return None if file.seekable else file.stream()

    def fixed_type(self, name: str, guessed: str) -> str:
        """The type a column is read as, by its role or else by a guess."""
        roles = self.schema.roles
        if name in roles.text or name in roles.categorical:
            return "string"
        if name in roles.numeric or name == self.schema.weight:
            return "double"
        if name == self.schema.label:  # truth values are classes, which are called as they are written
            return {"int64": "double", "bool": "string"}.get(guessed, guessed)
        return guessed

    def arrow_types(self, whole: bool) -> dict[str, Any]:
        """Arrow's types of the columns; without `whole`, numbers may have fractions."""
        pa = arrow()
        known = {"int64": pa.int64() if whole else pa.float64(), "double": pa.float64(), "bool": pa.bool_()}
        known |= {"list<string>": pa.list_(pa.string()), "list<double>": pa.list_(pa.float64())}
        return {name: known.get(kind, pa.string()) for name, kind in self.schema.types.items()}

    @property
    def guessed_numbers(self) -> list[str]:
        """Features that hold numbers or truth values by a guess: what does not fit there is missing, not a fault."""
        fixed = (*self.schema.roles.numeric, self.schema.label, self.schema.weight)
        kinds = ("int64", "double", "bool")
        return [name for name, kind in self.schema.types.items() if kind in kinds and name not in fixed]

    @abstractmethod
    def parse_loosely(self, data: bytes, file: TextFile) -> tuple[Any, dict[str, int]]:
        """Parses a block whose values do not fit guessed types: (table, misfits per column); None if impossible."""

    def number_fault(self, name: str, number: float) -> str:
        """The fault of a number in a column that has a role, or ""."""
        if name == self.schema.label and not math.isfinite(number):
            return f"the label {number} in column {name!r} is not finite"
        if name == self.schema.weight and not (number >= 0 and math.isfinite(number)):
            return f"the weight {number} in column {name!r} is negative or not finite"
        return ""

    def missing_fault(self, name: str) -> str:
        """The fault of a missing value, or ""."""
        if name == self.schema.label:
            return f"the label in column {name!r} is missing"
        return f"the weight in column {name!r} is missing" if name == self.schema.weight else ""


@dataclass(frozen=True, slots=True)
class _Rows:
    """The result of parsing a block: its good rows, (start, fault) of its first bad lines, and how many there are."""

    table: Any
    faults: Sequence[tuple[int, str]] = ()
    n_bad: int = 0


class TableSource(LineSource, RawSource):
    """Tables with one row per line; made by `scan_csv` and `scan_jsonl`."""

    read = RawSource.read  # of raw rows, through an encoder

    def __init__(self, files: list[TextFile], syntax: Syntax, on_bad_line: str) -> None:
        super().__init__(files, on_bad_line, syntax.schema.roles.with_labels)
        self.syntax = syntax
        self.schema = syntax.schema
        self.misfits: dict[int, dict[str, int]] = {}  # by block: how many values of a column are not of its type

    @property
    def label_names(self) -> list[str] | None:
        """The labels of a multi-label source."""
        return self.schema.labels

    @property
    def recipe(self) -> dict[str, Any]:
        """The format and its options, complete after the first read."""
        return self.syntax.recipe

    def fingerprint(self) -> dict[str, Any]:
        """The fingerprint of the files, with the types of columns."""
        own = super().fingerprint()
        return {**own, "types": self.schema.types}

    def stream(self, file: TextFile) -> Iterator[Block] | None:
        """The blocks one after the other where the syntax cannot read them separately, else None."""
        return self.syntax.stream(file)

    def prepare(self) -> None:
        """Infers the schema from the first rows, and collects labels where a row may have several."""
        schema = self.schema
        with schema.turn:
            if not schema.inferred:
                heads = ((file.head(HEAD_BYTES), file) for file in self.files)
                first = next(((head, file) for head, file in heads if head.strip()), None)
                if first is None:
                    raise self.no_rows()
                self.syntax.infer(*first)
                schema.inferred = True
            if schema.needs_labels:
                schema.labels = self.collect_labels(
                    lambda block: labels_in(self._rows(block).table.column(schema.label))
                )

    def sample_batches(self) -> list[RawBatch]:
        """Yields rows of blocks from all over the files, or from the first megabytes of a stream of blocks."""
        self.prepare()
        if self.read_once:
            return super().sample_batches()
        if any(self.stream(file) is not None for file in self.files):
            head = list(islice(self.all_blocks(), SAMPLED_STREAM))
            blocks = [head[place] for place in spread(len(head), SAMPLE_PARTS)]
        else:
            places = [(file, number) for file in self.files for number in range(file.n_blocks())]
            chosen = (places[place] for place in spread(len(places), SAMPLE_PARTS))
            blocks = [file.read_block(number) for file, number in chosen]
        tables = [(block.first_id, self._rows(block).table) for block in blocks if len(block.text)]
        found = [replace(self.schema.batch(table), first_id=first) for first, table in tables if table.num_rows]
        return found or super().sample_batches()

    def parse(self, blocks: list[Block]) -> Parsed:
        """Parses blocks of lines."""
        parts = [self._rows(block) for block in blocks]
        table = arrow().concat_tables([part.table for part in parts], promote_options="permissive")
        return Parsed(
            self.schema.batch(table),
            [part.table.num_rows for part in parts],
            [part.n_bad for part in parts],
            [BadLine(number, *fault) for number, part in enumerate(parts) for fault in part.faults],
        )

    def _rows(self, block: Block) -> _Rows:
        data, offset = self.syntax.body(block)
        if not data.strip(b"\r\n"):
            return _Rows(self._nothing())
        table, _ = self._try(data, block.file)
        table = self._try_loosely(data, block) if table is None else table
        if table is not None:
            return self._usable(table, data, block.file, offset)
        lines = self._unreadable(data, list(self.syntax.check(data, block.file)), block.file)
        faults = [(start + offset, fault) for start, _, fault in lines if fault]
        good = b"".join(data[start:stop] for start, stop, fault in lines if not fault)
        if self.on_bad_line != "skip" or not good.strip(b"\r\n"):
            return _Rows(self._nothing(), faults[:EXAMPLES], len(faults))
        table, reason = self._try(good, block.file)
        if table is None or any_fault(self.schema.faults(table), table).any():
            raise DataError(f"{block.file.name} cannot be read near byte {block.start} ({reason}); correct the rows")
        return _Rows(table, faults[:EXAMPLES], len(faults))

    def _unreadable(self, data: bytes, lines: list[Line], file: TextFile) -> list[Line]:
        """The bad lines, with Arrow's message for those that only Arrow rejects."""
        text = b"".join(data[start:stop] for start, stop, fault in lines if not fault)
        reason = self._try(text, file)[1] if text.strip(b"\r\n") else ""
        if not reason:
            return lines
        if len(lines) == 1:
            return [(lines[0][0], lines[0][1], f"the line cannot be read ({reason})")]
        half = len(lines) // 2
        return self._unreadable(data, lines[:half], file) + self._unreadable(data, lines[half:], file)

    def _try(self, data: bytes, file: TextFile) -> tuple[Any, str]:
        """The rows as a table if all values fit their columns, else the reason why not."""
        reason = ""
        for whole in (True, False):
            try:
                return self.syntax.parse(data, file, whole), ""
            except arrow().ArrowInvalid as error:
                reason = str(error).partition("\n")[0][:200]
        return None, reason

    def _try_loosely(self, data: bytes, block: Block) -> Any:
        """The rows of a block where a column changes its type; values that do not fit are missing, and counted."""
        try:
            table, misfits = self.syntax.parse_loosely(data, block.file)
        except arrow().ArrowInvalid:
            return None
        if table is not None:
            self.misfits[block.first_id] = misfits
        return table

    def _usable(self, table: Any, data: bytes, file: TextFile, offset: int) -> _Rows:
        """The rows without those whose label or weight cannot be used; the text is searched for the first ones only."""
        bad = any_fault(self.schema.faults(table), table)
        if not bad.any():
            return _Rows(table)
        faults = ((start + offset, fault) for start, _, fault in self.syntax.check(data, file) if fault)
        first = list(islice(faults, EXAMPLES)) or [(offset, "a label or weight behind this line cannot be used")]
        return _Rows(table.filter(arrow().array(~bad)), first, int(bad.sum()))

    def _nothing(self) -> Any:
        return arrow().schema(list(self.syntax.arrow_types(whole=True).items())).empty_table()


# What a missing value may be written as.
MISSING = ("", "NA", "N/A", "#N/A", "<NA>", "NaN", "nan", "null", "NULL")
DELIMITERS = ",\t;|"
# A quoted value that goes on for more than this is taken for one that was never closed.
OPEN_LIMIT = 1 << 24
_COMMA = re.compile(rb"[0-9],[0-9]")
_WITH_COMMA = re.compile(r"[-+]?[0-9]*(?:,[0-9]+)?")
ALMOST_ALL = 0.9  # of the values of a column, to take its commas for what is before decimals
_DECIMALS = re.compile(r"[-+]?[0-9]*,(?:[0-9]{1,2}|[0-9]{4,})")  # which no thousands have
_LEADING_ZERO = re.compile(rb"(?:^|[^0-9.])0[0-9]")
_CODE = re.compile(r"0\d+")
_TRUTHS = ("true", "false", "0", "1")
_LONGEST_FIELD = 1 << 30


def scan_csv(
    path: Paths | list[TextFile],
    *,
    label: str | None = None,
    text: str | Iterable[str] | None = None,
    categorical: str | Iterable[str] | None = None,
    numeric: str | Iterable[str] | None = None,
    weight: str | None = None,
    columns: Sequence[str] | None = None,
    delimiter: str = "auto",
    decimal: str = "auto",
    header: bool = True,
    newlines_in_values: bool | str = "auto",
    on_bad_line: str = "error",
    with_labels: bool = True,
) -> TableSource:
    """Opens CSV files as a source of raw rows, which are hashed while they are read.

    Empty values, NA, N/A, NaN and null are missing. The type of a column is detected from the first megabyte.

    Parameters
    ----------
    path : path, pattern, list of them, or "-" for standard input
        Files, plain or compressed by gz, bz2 or zst, which is detected from their content.
    label, weight : name of a column
        Columns of the label and of the row weights. The default label is the only column called label, target, y or
        class.
    text, categorical, numeric : names of columns
        Columns to use as features, by type. If none is named, all other columns are features, and the hasher detects
        their types.
    columns : names, optional
        Names of the columns of files without a header; "0", "1", ... by default. A file with a header must contain at
        least one of them.
    delimiter : one letter, or "auto" for the most frequent of , tab ; | in the first line
    decimal : ".", "," or "auto"
        Decimal point or comma in numbers; "auto" detects it from the first megabyte.
    header : bool
        Whether the first line of each file contains the names of the columns. A column without a name is called
        "unnamed 0", by its position.
    newlines_in_values : bool or "auto"
        Whether quoted values contain line breaks; blocks of a file are then not shuffled. "auto" detects it from the
        first megabyte.
    on_bad_line : "error" or "skip"
        Skipped rows are counted in `source.skipped`.
    with_labels : bool
        False ignores label and weight, which may then be absent.

    Examples
    --------
    >>> import tempfile, os, steepest as st
    >>> path = os.path.join(tempfile.mkdtemp(), "two.csv")
    >>> _ = open(path, "w").write("colour,size,label\\nred,1.5,yes\\nblue,2,no\\n")
    >>> hasher = st.Hasher()
    >>> chunk = next(iter(st.scan_csv(path).with_encoder(lambda batch: hasher.to_chunk(batch.columns))))
    >>> chunk.y.tolist(), [(column.name, column.kind) for column in hasher.columns_]
    (['yes', 'no'], [('colour', 'category'), ('size', 'number')])
    """
    if not isinstance(delimiter, str) or (delimiter != "auto" and len(delimiter.encode()) != 1):
        raise ParameterError(f'delimiter={delimiter!r} must be one letter or "auto"')
    if newlines_in_values not in (True, False, "auto"):
        raise ParameterError(f'newlines_in_values={newlines_in_values!r} is unknown; choose True, False or "auto"')
    if decimal not in (".", ",", "auto"):
        raise ParameterError(f'decimal={decimal!r} is unknown; choose ".", "," or "auto"')
    options = {
        "header": header,
        "columns": None if columns is None else list(map(str, columns)),
        "delimiter": delimiter,
        "decimal": decimal,
        "newlines_in_values": newlines_in_values,
    }
    roles = make_roles(label, text, categorical, numeric, weight, with_labels)
    return TableSource(open_files(path), CsvSyntax(Schema(roles), options), on_bad_line)


class _Header(NamedTuple):
    names: list[str]
    n_bytes: int


class CsvSyntax(Syntax):
    """Parses delimited values, quoted where they contain delimiters."""

    def __init__(self, schema: Schema, options: dict[str, Any]) -> None:
        super().__init__(schema)
        self.options = options
        self._headers: dict[int, _Header] = {}

    @property
    def recipe(self) -> dict[str, Any]:
        """The format and its options."""
        return {"format": "csv", **self.schema.describe(), **self.options}

    def infer(self, head: bytes, file: TextFile) -> None:
        """Infers delimiter, header and types from the first rows."""
        if self.options["delimiter"] == "auto":
            self.options["delimiter"] = _delimiter(head.lstrip(b"\r\n").split(b"\n", 1)[0])
        if self.options["newlines_in_values"] == "auto":
            lines = head.split(b"\n")[: None if len(head) < HEAD_BYTES else -1]
            self.options["newlines_in_values"] = b'"' in head and any(line.count(b'"') % 2 for line in lines)
        names = self._header_of(file).names
        used = self.schema.choose(names, file.name)
        self.options["columns"] = self.options["columns"] or names
        guessed = self._guess(head, file, used)
        if self.options["decimal"] == "auto":
            self.options["decimal"] = "."
            if _COMMA.search(head):
                guessed = self._guess_decimal(head, file, used, guessed)
        self.schema.types = {name: self.fixed_type(name, guessed.get(name, "string")) for name in used}

    def _first_rows(self, head: bytes, file: TextFile) -> bytes:
        """The whole records behind the header."""
        body = head if len(head) < HEAD_BYTES else head[: head.rfind(b"\n") + 1]
        body = body[self._header_of(file).n_bytes :].decode("utf-8", "replace").encode()
        if self._ends_open(body):
            *_, (start, _, _) = self._records(body)
            body = body[:start]
        return body

    def _guess(self, head: bytes, file: TextFile, used: list[str]) -> dict[str, str]:
        body = self._first_rows(head, file)
        if not body.strip():
            return {}
        try:
            table = self._arrow_table(body, file, used, {}, lambda row: "skip")
        except arrow().ArrowInvalid:
            return {}
        plain = ("int64", "double", "bool")
        found = zip(table.schema.names, map(str, table.schema.types), strict=True)
        kinds = {name: kind if kind in plain else "string" for name, kind in found}
        return kinds | dict.fromkeys(self._codes(body, file, kinds), "string")

    def _guess_decimal(self, head: bytes, file: TextFile, used: list[str], guessed: dict[str, str]) -> dict[str, str]:
        """The types, with decimals behind a comma if almost all values of a column are so, not all thousands."""
        texts = [name for name, kind in guessed.items() if kind == "string"]
        if not texts:
            return guessed
        body, types = self._first_rows(head, file), dict.fromkeys(texts, arrow().string())
        table = self._arrow_table(body, file, texts, types, lambda row: "skip")
        for name in texts:
            values = [value for value in table.column(name).unique().to_pylist() if value]
            numbers = sum(_WITH_COMMA.fullmatch(value) is not None for value in values)
            if numbers > ALMOST_ALL * len(values) and any(_DECIMALS.fullmatch(value) for value in values):
                self.options["decimal"] = ","
                return self._guess(head, file, used)
        return guessed

    def _codes(self, body: bytes, file: TextFile, kinds: dict[str, str]) -> list[str]:
        """Columns of whole numbers of which some begin with a zero: these are codes, and the zero belongs to them."""
        whole = [name for name, kind in kinds.items() if kind == "int64"]
        if not whole or not _LEADING_ZERO.search(body):
            return []
        table = self._arrow_table(body, file, whole, dict.fromkeys(whole, arrow().string()), lambda row: "skip")
        texts = {name: table.column(name).unique().to_pylist() for name in whole}
        return [name for name in whole if any(value and _CODE.fullmatch(value) for value in texts[name])]

    def _header_of(self, file: TextFile) -> _Header:
        if file.position not in self._headers:
            found = self._read_header(file)
            if len(set(found.names)) < len(found.names):
                name = next(name for name in found.names if found.names.count(name) > 1)
                raise DataError(f"{file.name} has more than one column {name!r}; rename or drop one")
            if self.schema.inferred:
                require(self.schema.types, found.names, file.name)
            self._headers[file.position] = found
        return self._headers[file.position]

    def _read_header(self, file: TextFile) -> _Header:
        head = file.head(HEAD_BYTES)
        lines = head.splitlines(keepends=True)
        reader = self._values_of(line.decode("utf-8", "replace") for line in lines)
        first: list[str] = next((record for record in reader if record), [])
        named = self.options["columns"]
        if self.options["header"]:
            if named and first and not set(first) & set(named):
                raise DataError(
                    f"{file.name}: the first line, {listed(first, 6)}, has none of the columns {listed(named, 6)}; "
                    f"{self._way_out(lines[0], head)}"
                )
            names = [name or f"unnamed {place}" for place, name in enumerate(first)]  # pandas writes an index so
            return _Header(names, sum(map(len, lines[: reader.line_num])))
        if named and first == named:
            raise DataError(f"{file.name}: the first line has the names of the columns; leave header=False out")
        names = named or [str(place) for place in range(len(first))]
        schema = self.schema
        if len(first) == len(names) - 1 and not schema.roles.with_labels and schema.label_name in names:
            names = [name for name in names if name != schema.label_name]  # rows to predict may come without labels
        if first and len(first) != len(names):
            raise DataError(
                f"{file.name}: the first row has {len(first)} values, but columns= names {len(names)}; name them all"
            )
        return _Header(names, 0)

    def _way_out(self, line: bytes, head: bytes) -> str:
        """What to do about a first line without a known column."""
        if b"\0" in head:
            return "it does not look like text, so check that it is the right file"
        used, other = self.options["delimiter"], _delimiter(line)
        if other != used and other.encode() in line:
            return (
                f"it is separated by {other!r} and not by {used!r}: pass delimiter={other!r}, or write all files alike"
            )
        return "check that it is the right file, and if it has no header, pass header=False"

    def body(self, block: Block) -> tuple[bytes, int]:
        """The rows of a block without the header line."""
        header = self._header_of(block.file)
        offset = header.n_bytes if block.number == 0 else 0
        data = bytes(block.text[offset:])
        if not self.options["newlines_in_values"] and self._ends_open(data):
            raise DataError(
                f"{block.file.name}: a quoted value continues in the next line, near byte {block.start + len(data)}; "
                "pass newlines_in_values=True"
            )
        return data, offset

    def stream(self, file: TextFile) -> Iterator[Block] | None:
        """Values that hold line breaks may cross the borders of blocks."""
        return self._joined(file) if self.options["newlines_in_values"] else super().stream(file)

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
        """Parses a block with Arrow's CSV reader."""
        return self._arrow_table(data, file, list(self.schema.types), self.arrow_types(whole))

    def _arrow_table(self, data: bytes, file: TextFile, used: list[str], types: Any, on_ragged: Any = None) -> Any:
        pa, reader = arrow(), arrow("csv")
        return reader.read_csv(
            pa.BufferReader(data),
            reader.ReadOptions(column_names=self._header_of(file).names, use_threads=False, block_size=len(data) + 1),
            reader.ParseOptions(
                delimiter=self.options["delimiter"], newlines_in_values=True, invalid_row_handler=on_ragged
            ),
            reader.ConvertOptions(
                column_types=types,
                include_columns=used,
                null_values=MISSING,
                strings_can_be_null=True,
                decimal_point="," if self.options["decimal"] == "," else ".",
            ),
            memory_pool=plain_memory(),
        )

    def parse_loosely(self, data: bytes, file: TextFile) -> tuple[Any, dict[str, int]]:
        """Guessed numbers are read as strings, and then value by value."""
        pa, guessed = arrow(), self.guessed_numbers
        types = self.arrow_types(whole=False) | dict.fromkeys(guessed, pa.string())
        table = self._arrow_table(data, file, list(self.schema.types), types)
        misfits: dict[str, int] = {}
        for name in guessed:
            texts = table.column(name).to_pylist()
            numbers = [_loose_number(text and self._with_point(text)) for text in texts]
            odd = sum(number is None and text is not None for number, text in zip(numbers, texts, strict=True))
            misfits |= {name: odd} if odd else {}
            as_truth = self.schema.types[name] == "bool"
            column = pa.array([None if n is None else bool(n) for n in numbers]) if as_truth else None
            column = pa.array(numbers, pa.float64()) if column is None else column.cast(pa.bool_())
            table = table.set_column(table.schema.get_field_index(name), name, column)
        return table, misfits

    def check(self, data: bytes, file: TextFile) -> Iterator[Line]:
        """Checks a block record by record."""
        names = self._header_of(file).names
        places = [(names.index(name), name, kind) for name, kind in self.schema.types.items()]
        for start, stop, record in self._records(data):
            yield start, stop, self._fault(record, len(names), places) if record else ""

    def _records(self, data: bytes) -> Iterator[tuple[int, int, list[str]]]:
        """(start, stop, values) of each record, blank lines included."""
        lines = data.split(b"\n")
        ends = np.minimum(np.cumsum([len(line) + 1 for line in lines]), len(data)).tolist()
        if not lines[-1]:
            lines.pop()
        texts = (line.decode("utf-8", "surrogateescape") + "\n" for line in lines)
        # Arrow takes NUL for a letter like others, csv of older versions does not; nor has it a place for lone returns.
        plain = (text.replace("\0", " ").replace("\r\n", "\n").replace("\r", " ") for text in texts)
        reader = self._values_of(plain)
        start = 0
        for record in reader:
            stop = ends[reader.line_num - 1]
            yield start, stop, record
            start = stop

    def _values_of(self, lines: Iterator[str]) -> Any:
        """Python's reader of records, for values of any length."""
        # For the whole process and not taken back, since other threads may be reading.
        csv.field_size_limit(max(csv.field_size_limit(), _LONGEST_FIELD))
        return csv.reader(lines, delimiter=self.options["delimiter"])

    def _fault(self, record: list[str], n_columns: int, places: list[tuple[int, str, str]]) -> str:
        if len(record) != n_columns:
            return f"the row has {len(record)} value{'s' * (len(record) != 1)} instead of {n_columns}"
        for place, name, kind in places:
            fault = self._value_fault(record[place], name, kind)
            if fault:
                return fault
        return ""

    def _value_fault(self, value: str, name: str, kind: str) -> str:
        if value in MISSING:
            return self.missing_fault(name)
        if not value.isascii() and any("\udc80" <= letter <= "\udcff" for letter in value):
            return f"the value in column {name!r} is not UTF-8 (iconv -f LATIN1 -t UTF-8 FILE > NEW converts a file)"
        shown = value if len(value) <= 40 else value[:40] + "..."
        if kind == "bool" and value.lower() not in _TRUTHS:
            return f"{shown!r} in column {name!r} is neither true nor false"
        if kind in ("int64", "double"):
            try:
                number = float(self._with_point(value))
            except ValueError:
                return f"{shown!r} in column {name!r} is not a number"
            return self.number_fault(name, number)
        return ""

    def _with_point(self, number: str) -> str:
        """Numbers as Python writes them, with a decimal point."""
        return number.replace(",", ".") if self.options["decimal"] == "," and "." not in number else number


def _loose_number(text: str | None) -> float | None:
    """A number or truth value; None for a missing one and for anything else."""
    if text is None or text.lower() in ("true", "false"):
        return None if text is None else float(text.lower() == "true")
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _join(blocks: list[Block]) -> Block:
    first = blocks[0]
    if len(blocks) == 1:
        return first
    return Block(first.file, first.number, first.start, b"".join(b.text for b in blocks), first.lines_before)


def _delimiter(line: bytes) -> str:
    outside = b"".join(line.split(b'"')[::2])
    return max(DELIMITERS, key=lambda letter: outside.count(letter.encode()))
