"""Tables of lines through Arrow, block by block: the types of columns are fixed by the first megabyte.

Arrow reads each block strictly. If it, or a label or weight in it, does not fit, the block is read again line by line
in Python, which knows what is wrong and where; that is slow, but only for blocks with bad lines. A number that is
not whole in a column of whole ones is no fault.
"""

from __future__ import annotations

import math
import threading
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np

from steepest.data import arrow_arrays
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

Fault = tuple[int, str]  # the byte where a bad line starts, and what is wrong
Line = tuple[int, int, str]  # where it starts and stops, and what is wrong, or ""


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
class Rows:
    """A block's good rows, the first of its bad lines, and how many of these there are."""

    table: Any
    faults: Sequence[Fault] = ()
    n_bad: int = 0


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
    def check(self, data: bytes, file: TextFile) -> Iterator[Line]:
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
        weight = None if schema.weight is None else arrow_arrays.numbers(table.column(schema.weight))
        features = table.drop_columns([name for name in (schema.label, schema.weight) if name is not None])
        rows, n_bad = [part.table.num_rows for part in parts], [part.n_bad for part in parts]
        return RawRows(features, rows, y, weight, bad, n_bad)

    def body(self, block: Block) -> tuple[bytes, int]:
        """A block's rows, without a header, and where they start in it."""
        return bytes(block.text), 0

    def _rows(self, block: Block) -> Rows:
        data, offset = self.body(block)
        if not data.strip(b"\r\n"):
            return Rows(self._nothing())
        table, _ = self._try(data, block.file)
        if table is not None:
            return self._usable(table, data, block.file, offset)
        lines = self._unreadable(data, list(self.check(data, block.file)), block.file)
        faults = [(start + offset, fault) for start, _, fault in lines if fault]
        kept = b"".join(data[start:stop] for start, stop, fault in lines if not fault)
        if self.on_bad_line != "skip" or not kept.strip(b"\r\n"):
            return Rows(self._nothing(), faults[:EXAMPLES], len(faults))
        table, reason = self._try(kept, block.file)
        if table is None or self._unusable(table).any():
            raise DataError(f"{block.file.name} cannot be read near byte {block.start} ({reason}); correct the rows")
        return Rows(table, faults[:EXAMPLES], len(faults))

    def _unreadable(self, data: bytes, lines: list[Line], file: TextFile) -> list[Line]:
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
            except arrow().ArrowInvalid as error:
                reason = str(error).partition("\n")[0][:200]
        return None, reason

    def _usable(self, table: Any, data: bytes, file: TextFile, offset: int) -> Rows:
        """Without the rows whose label or weight cannot be used; only the first of them are looked for in the text."""
        bad = self._unusable(table)
        if not bad.any():
            return Rows(table)
        faults = ((start + offset, fault) for start, _, fault in self.check(data, file) if fault)
        first = list(islice(faults, EXAMPLES)) or [(offset, "a label or weight behind this line cannot be used")]
        return Rows(table.filter(arrow().array(~bad)), first, int(bad.sum()))

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
