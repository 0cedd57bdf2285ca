"""Tables of lines through Arrow, block by block: the types of columns are fixed by the first megabyte.

Arrow reads each block strictly. If it, or a label or weight in it, does not fit, the block is read again line by line
in Python, which knows what is wrong and where; that is slow, but only for blocks with bad lines. A number that is
not whole in a column of whole ones is not a fault. A syntax, CSV or JSON, says what types there are, how Arrow reads a
block, and what is wrong with a line.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import numpy as np

from steepest.data.chunk import Array
from steepest.data.files.blocks import Block, TextFile
from steepest.data.raw import SAMPLE_PARTS, RawBatch, RawSource, spread
from steepest.data.readers.lines import BadLine, LineSource, Parsed
from steepest.data.skipped import EXAMPLES
from steepest.data.tables.arrow_arrays import arrow
from steepest.data.tables.roles import Schema, labels_in
from steepest.errors import DataError

# What types and delimiters are inferred from.
HEAD_BYTES = 1 << 20
# Blocks that a sample is taken from where they come one after the other.
SAMPLED_STREAM = 16

Line = tuple[int, int, str]  # where it starts and stops, and what is wrong, or ""


class Syntax(ABC):
    """How lines hold a table; one object for all copies of a source."""

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
        """(start, stop, what is wrong or "") of each line."""

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
        if name == self.schema.label and guessed == "int64":
            return "double"
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
        """The same where values do not fit columns whose type was guessed: (table, how many for each); None if not."""

    def number_fault(self, name: str, number: float) -> str:
        """What is wrong with a number in a column that has a role, if anything is."""
        if name == self.schema.label and not math.isfinite(number):
            return f"the label {number} in column {name!r} is not finite"
        if name == self.schema.weight and not (number >= 0 and math.isfinite(number)):
            return f"the weight {number} in column {name!r} is negative or not finite"
        return ""

    def missing_fault(self, name: str) -> str:
        """What is wrong with a value that is missing, if anything is."""
        if name == self.schema.label:
            return f"the label in column {name!r} is missing"
        return f"the weight in column {name!r} is missing" if name == self.schema.weight else ""


@dataclass(frozen=True, slots=True)
class _Rows:
    """A block's good rows, the first of its bad lines as (start, fault), and how many of these there are."""

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
        """With the types of columns."""
        own = super().fingerprint()
        return {**own, "types": self.schema.types}

    def stream(self, file: TextFile) -> Iterator[Block] | None:
        """As the syntax needs it."""
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
        """The rows of blocks from all over the files, or from the first megabytes where blocks come in a stream."""
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
        """Blocks of lines."""
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
        if table is None or self._unusable(table).any():
            raise DataError(f"{block.file.name} cannot be read near byte {block.start} ({reason}); correct the rows")
        return _Rows(table, faults[:EXAMPLES], len(faults))

    def _unreadable(self, data: bytes, lines: list[Line], file: TextFile) -> list[Line]:
        """The lines, with Arrow's word on those that only Arrow finds fault with."""
        text = b"".join(data[start:stop] for start, stop, fault in lines if not fault)
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
                return self.syntax.parse(data, file, whole), ""
            except arrow().ArrowInvalid as error:
                reason = str(error).partition("\n")[0][:200]
        return None, reason

    def _try_loosely(self, data: bytes, block: Block) -> Any:
        """The rows of a block in which a column changes its kind; what does not fit is missing, and is counted."""
        try:
            table, misfits = self.syntax.parse_loosely(data, block.file)
        except arrow().ArrowInvalid:
            return None
        if table is not None:
            self.misfits[block.first_id] = misfits
        return table

    def _usable(self, table: Any, data: bytes, file: TextFile, offset: int) -> _Rows:
        """Without the rows whose label or weight cannot be used; only the first of them are looked for in the text."""
        bad = self._unusable(table)
        if not bad.any():
            return _Rows(table)
        faults = ((start + offset, fault) for start, _, fault in self.syntax.check(data, file) if fault)
        first = list(islice(faults, EXAMPLES)) or [(offset, "a label or weight behind this line cannot be used")]
        return _Rows(table.filter(arrow().array(~bad)), first, int(bad.sum()))

    def _unusable(self, table: Any) -> Array:
        return np.asarray(np.any([np.zeros(table.num_rows, bool), *self.schema.faults(table).values()], axis=0))

    def _nothing(self) -> Any:
        return arrow().schema(list(self.syntax.arrow_types(whole=True).items())).empty_table()
