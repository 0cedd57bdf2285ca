"""JSON lines: one object per line, types from the first lines, and what is wrong with a line that does not fit."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

from steepest.data.files.blocks import Paths, TextFile, open_files
from steepest.data.tables.columns import arrow, plain_memory
from steepest.data.tables.roles import Schema, as_labels, is_list, make_roles
from steepest.data.tables.table_lines import HEAD_BYTES, Line, Syntax, TableSource
from steepest.errors import DataError
from steepest.kernels import is_utf8
from steepest.parameters import shown

_JSON_NAMES = {
    list: "an array",
    str: "a string",
    int: "a number",
    float: "a number",
    bool: "a truth value",
    type(None): "null",
}
_HALF_LETTER = re.compile("[\ud800-\udfff]")  # which no text in UTF-8 can hold
_JSON_TYPES = {"int64": int | float, "double": int | float, "string": str, "bool": bool}


def scan_jsonl(
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
) -> TableSource:
    """Opens files of JSON lines, one object per line, as a source of raw rows, which are hashed while they are read.

    The keys in the first megabyte are the columns. A key that is missing in a line is a missing value, and so is NaN.
    Lists of strings or numbers are columns of type list; nested objects are not used.

    Parameters
    ----------
    path, label, text, categorical, numeric, weight, on_bad_line, with_labels : as in `scan_csv`
    labels : collection of labels, optional
        All labels, if rows have lists of labels. Without them a first pass over the data collects them.

    Examples
    --------
    >>> import os, tempfile, steepest as st
    >>> path = os.path.join(tempfile.mkdtemp(), "mails.jsonl")
    >>> _ = open(path, "w").write('{"text": "cheap pills", "label": "spam"}\\n{"text": "lunch", "label": "ham"}\\n')
    >>> st.LinearClassifier(random_state=0).fit_stream(st.scan_jsonl(path)).classes_.tolist()
    ['ham', 'spam']
    """
    roles = make_roles(label, text, categorical, numeric, weight, with_labels)
    return TableSource(open_files(path), JsonSyntax(Schema(roles, as_labels(labels))), on_bad_line)


class JsonSyntax(Syntax):
    """Parses JSON lines, one object per row."""

    @property
    def recipe(self) -> dict[str, Any]:
        """The format and its options."""
        return {"format": "jsonl", **self.schema.describe(), "labels": self.schema.labels}

    def infer(self, head: bytes, file: TextFile) -> None:
        """Infers keys and types from the first rows."""
        if head.lstrip().startswith(b"["):
            raise DataError(f"{file.name} is one JSON array; write one object per line")
        lines = head.split(b"\n") if len(head) < HEAD_BYTES else head.split(b"\n")[:-1] or [head]
        types: dict[str, str] = {}
        for line in lines:
            for name, value in (_json_object(line) or {}).items():
                types[name] = _widened(types.get(name, ""), value)
        if not types:
            shown = lines[0][:60].decode("utf-8", "backslashreplace")
            raise DataError(f"{file.name}: the first line, {shown!r}, is not a JSON object; write one object per line")
        names = [name for name, kind in types.items() if kind != "nested" or name == self.schema.roles.label]
        used = self.schema.choose(names, file.name)
        label = self.schema.label
        if label is not None and types[label] == "nested":
            raise DataError(f"{file.name}: the label in column {label!r} is an object; give a text, a number or a list")
        self.schema.types = {name: self.fixed_type(name, types[name].replace("<>", "<string>")) for name in used}

    def fixed_type(self, name: str, guessed: str) -> str:
        """The type as written, since JSON values have types; a role decides only where the first rows hold null."""
        if guessed and name != self.schema.weight:
            return (
                "double" if guessed == "int64" and name in (*self.schema.roles.numeric, self.schema.label) else guessed
            )
        return super().fixed_type(name, guessed or "string")

    def parse(self, data: bytes, file: TextFile, whole: bool) -> Any:
        """Parses a block with Arrow's JSON reader."""
        pa, reader = arrow(), arrow("json")
        if not is_utf8(data):  # which Arrow does not check
            raise pa.ArrowInvalid("a line is not UTF-8")
        schema = pa.schema(list(self.arrow_types(whole).items()))
        return reader.read_json(
            pa.BufferReader(data),
            reader.ReadOptions(use_threads=False, block_size=len(data) + 1),
            reader.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore"),
            memory_pool=plain_memory(),
        )

    def parse_loosely(self, data: bytes, file: TextFile) -> tuple[Any, dict[str, int]]:
        """Parses a block in Python, which also reads NaN; values of another type than a guessed one are missing."""
        pa, guessed = arrow(), set(self.guessed_numbers)
        rows = [_json_object(line) for line in data.split(b"\n") if line.strip()]
        if any(row is None for row in rows):
            return None, {}
        misfits: dict[str, int] = {}
        columns = {}
        for name, kind in self.schema.types.items():
            values = [row.get(name) for row in rows if row is not None]
            faults = [
                bool(value is not None and not _is_nan(value) and self._value_fault(value, name, kind))
                for value in values
            ]
            if any(faults) and name not in guessed:
                return None, {}
            misfits |= {name: sum(faults)} if any(faults) else {}
            gone = (fault or _is_nan(value) for value, fault in zip(values, faults, strict=True))
            columns[name] = [None if lost else value for value, lost in zip(values, gone, strict=True)]
        types = self.arrow_types(whole=False)
        return pa.table({name: pa.array(values, types[name]) for name, values in columns.items()}), misfits

    def check(self, data: bytes, file: TextFile) -> Iterator[Line]:
        """Checks a block line by line."""
        start = 0
        while start < len(data):
            stop = data.find(b"\n", start) + 1 or len(data)
            line = data[start:stop]
            yield start, stop, self._fault(line) if line.strip() else ""
            start = stop

    def _fault(self, line: bytes) -> str:
        try:
            row = _loaded(line)
        except UnicodeDecodeError:
            return "the line is not UTF-8"
        except (ValueError, RecursionError) as error:
            return f"the line is not JSON ({error})"
        if not isinstance(row, dict):
            return f"the line holds {_JSON_NAMES[type(row)]} instead of an object"
        faults = (self._value_fault(row.get(name), name, kind) for name, kind in self.schema.types.items())
        return next(filter(None, faults), "")

    def _value_fault(self, value: Any, name: str, kind: str) -> str:
        if value is None:
            return self.missing_fault(name)
        if is_list(kind):
            return self._list_fault(value, name, kind)
        wrong = not isinstance(value, _JSON_TYPES[kind]) or (isinstance(value, bool) and kind != "bool")
        if wrong:
            expected = {"string": "a string", "bool": "true or false"}.get(kind, "a number")
            return f"{shown(value)} in column {name!r} is not {expected}"
        return self.number_fault(name, float(value)) if kind in ("int64", "double") else ""

    def _list_fault(self, value: Any, name: str, kind: str) -> str:
        element = kind.removeprefix("list<").removesuffix(">")
        if not isinstance(value, list) or any(not isinstance(part, _JSON_TYPES[element]) for part in value):
            return f"{shown(value)} in column {name!r} is not a list of {element}s"
        if name == self.schema.label and self.schema.labels is not None and element == "string":
            unknown = [part for part in value if part not in self.schema.labels]
            return f"the label {unknown[0]!r} is not among the labels given" if unknown else ""
        return ""


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and value != value


def _json_object(line: bytes) -> dict[str, Any] | None:
    try:
        row = _loaded(line)
    except (ValueError, RecursionError):
        return None
    return row if isinstance(row, dict) else None


def _loaded(line: bytes) -> Any:
    value = json.loads(line.decode())
    if b"\\u" in line and _HALF_LETTER.search(json.dumps(value, ensure_ascii=False)):
        raise ValueError("a \\u escape is half of a letter")
    return value


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
