"""One table of all formats, and `scan`, which detects a format from names and first bytes and calls its reader.

To add a format: write a reader that takes open files and keyword options, and give it a line in FORMATS.
"""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

from steepest.data.files.blocks import TextFile, open_files
from steepest.data.files.packing import COMPRESSED
from steepest.data.source import Source
from steepest.data.store.row_file import is_row_file
from steepest.errors import DataError, ParameterError
from steepest.parameters import did_you_mean, unknown


@dataclass(frozen=True, slots=True)
class Format:
    """How a format is detected and which function reads it."""

    reader: str  # module in this package and function, imported when it is needed
    endings: tuple[str, ...] = ()  # of names
    first_bytes: re.Pattern[bytes] | None = None  # of files whose names say nothing
    weak_endings: tuple[str, ...] = ()  # of names that count only if no format fits the first bytes
    options: Mapping[str, Any] = field(default_factory=dict)  # of the reader, unless others are given
    is_table: bool = False  # has columns with roles, which another table may have, too

    def load(self) -> Callable[..., Source]:
        """Imports and returns the reader."""
        module, _, name = self.reader.rpartition(".")
        reader: Callable[..., Source] = getattr(import_module(f"steepest.data.{module}"), name)
        return reader


LIBSVM_LINE = re.compile(rb"\s*[-+]?[\d.eE+-]+(\s+(qid:\d+\s+)?\d+:|\s*$)")
# Numbers and a tag before the bar, or a tag in quotes, or nothing; not just any bar, which tables have too.
VW_LINE = re.compile(rb"\s*(([-+\d.][-+\d.eE]*[ \t]+){1,3}('[^\s|]*[ \t]*|[^\s|]*)|('[^\s|]*[ \t]*)?)\|")
FASTTEXT_LINE = re.compile(rb"__label__")
JSON_LINE = re.compile(rb'\s*\{\s*("|\})')

FORMATS = {
    "libsvm": Format("readers.libsvm.scan_libsvm", (".svm", ".libsvm", ".svmlight"), LIBSVM_LINE),
    "vw": Format("readers.vw.scan_vw", (".vw",), VW_LINE),
    "csv": Format("tables.table_lines.scan_csv", (".csv",), is_table=True),
    "tsv": Format("tables.table_lines.scan_csv", (".tsv",), options={"delimiter": "\t"}, is_table=True),
    "jsonl": Format("tables.json_lines.scan_jsonl", (".jsonl", ".ndjson", ".json"), JSON_LINE, is_table=True),
    "parquet": Format("tables.columnar.scan_parquet", (".parquet", ".pq"), is_table=True),
    "arrow": Format("tables.columnar.scan_arrow", (".arrow", ".feather", ".ipc"), is_table=True),
    "txt": Format("readers.text.scan_text", (), FASTTEXT_LINE, weak_endings=(".txt",)),
    "cache": Format("store.cache.scan_cache", (".cache",)),
    "ratings": Format("readers.ratings.scan_ratings"),
}
ENDINGS = {ending: name for name, known in FORMATS.items() for ending in known.endings}
WEAK_ENDINGS = {ending: name for name, known in FORMATS.items() for ending in known.weak_endings}
HEAD_BYTES = 4096
# Files of other programs, by their first bytes.
FOREIGN = {
    b"PK\x03\x04": "a spreadsheet or a zip archive; save it as CSV, or unpack it, first",
    b"%PDF": "a PDF document; write its rows to a CSV file first",
    b"\xff\xfe": "written in UTF-16; save it as UTF-8: iconv -f UTF-16 -t UTF-8 FILE > NEW",
    b"\xfe\xff": "written in UTF-16; save it as UTF-8: iconv -f UTF-16 -t UTF-8 FILE > NEW",
}
ROLES = ("label", "text", "categorical", "numeric", "weight", "with_labels", "on_bad_line")


def scan(path: Any, format: str = "auto", **options: Any) -> Source:
    """Opens files of any known format as a lazy source; globs, lists of paths and "-" for standard input are accepted.

    Parameters
    ----------
    path : path, glob, open file, list of them, "-", or tables
        Data to read. An open file, of bytes or text, is read once, from its current position, like standard input
        ("-"). A table in memory (Arrow, pandas, polars), a list of dicts, or an iterator of these is written to a
        temporary Arrow file.
    format : {"auto", "libsvm", "vw", "csv", "tsv", "jsonl", "parquet", "arrow", "txt", "ratings", "cache"}
        Format of the data. "auto" detects it from the file name extension, then from the first line. A cache is always
        detected by its first bytes, so the recipe of a model opens raw data and caches of it.
    options
        Options of the reader of this format, such as those of `scan_csv`.

    Examples
    --------
    >>> import os, tempfile, steepest as st
    >>> path = os.path.join(tempfile.mkdtemp(), "two.svm")
    >>> _ = open(path, "w").write("+1 1:0.5 3:2\\n-1 2:1\\n")
    >>> source = st.scan(path)
    >>> source.recipe["format"], [chunk.n_rows for chunk in source]
    ('libsvm', [2])
    """
    if not isinstance(path, str | os.PathLike):
        path = import_module("steepest.data.tables.batches").as_paths(path)
    files = open_files(path)
    requested, format = format, format_of(files[0], format)
    if not files[0].once and format not in ("parquet", "arrow", "cache"):
        _refuse_foreign(files[0])
    if format == "cache" and requested not in ("auto", "cache"):
        options = {name: value for name, value in options.items() if name == "with_labels"}
    if format not in FORMATS:
        raise unknown("format", format, ("auto", *FORMATS))
    reader = FORMATS[format].load()
    known = inspect.signature(reader).parameters
    for option in options:
        if option not in known:
            near = did_you_mean(option, known.keys() - {"path", "with_labels"})
            given = f"{option}=" if options[option] is not False else f"{option}=False"
            raise ParameterError(f"{given} has no meaning for the format {format}; {near or 'leave it out'}".rstrip())
    return reader(files, **{**FORMATS[format].options, **options})


def reader_options() -> dict[str, list[str]]:
    """Every option that any reader takes, and the formats that take it."""
    found: dict[str, list[str]] = {}
    for name, known in FORMATS.items():
        for parameter in list(inspect.signature(known.load()).parameters)[1:]:
            found.setdefault(parameter, []).append(name)
    return found


def adapt_recipe(file: TextFile, recipe: Mapping[str, Any], requested: str = "auto") -> dict[str, Any]:
    """The options to read another file with like known rows: same columns; format of the file or as requested."""
    known = recipe.get("format")
    format = ENDINGS.get(_ending(file.path)) if requested == "auto" else requested
    if known == "csv" and format is None and _is_text(file) and file.head(1) == b"{":
        format = "jsonl"  # where lines of a table were expected, from standard input, say
    if known == "csv" and format in (None, "csv", "tsv"):
        first_line = file.head(4096).lstrip(b"\r\n").split(b"\n", 1)[0] if _is_text(file) else b""
        same = not _is_text(file) or recipe["delimiter"].encode() in first_line
        return {**recipe, "delimiter": recipe["delimiter"] if same else "auto"}
    tables = [name for name, other in FORMATS.items() if other.is_table]
    lines = FORMATS[known].first_bytes if known in ("libsvm", "vw") else None
    if lines is not None and format in tables and not (_is_text(file) and lines.match(file.head(HEAD_BYTES))):
        return {"format": format, **{name: value for name, value in recipe.items() if name in ROLES}}
    if known not in tables or format not in tables or format == known:
        return {**recipe, "format": recipe.get("format", "auto") if requested == "auto" else requested}
    return {"format": format, **{name: value for name, value in recipe.items() if name in ROLES}}


def _is_text(file: TextFile) -> bool:
    return file.once or not is_row_file(file.path)


def format_of(file: TextFile, requested: str = "auto") -> str:
    """The format in which a file is read: a cache is one whatever is requested."""
    if not _is_text(file):
        return "cache"
    return guess_format(file) if requested == "auto" else requested


def format_of_name(path: str) -> str | None:
    """The format that a name alone says, behind endings of packed files."""
    ending = _ending(path)
    return ENDINGS.get(ending) or WEAK_ENDINGS.get(ending)


def _ending(path: str) -> str:
    for packed in COMPRESSED:
        path = path.removesuffix(packed)
    return Path(path).suffix.lower()


def _kind_of_table(start: bytes) -> str | None:
    """csv, tsv or txt, if the first whole lines have the same number of delimiters; a label and a tab are txt."""
    lines = start.split(b"\n")[: -1 if len(start) == HEAD_BYTES else None]
    lines = [line.rstrip(b"\r") for line in lines if line.strip()][:20]
    if not lines or b"\0" in start:
        return None
    for delimiter in "\t,;|":
        counts = {line.count(delimiter.encode()) for line in lines}
        names = [name.strip(' "').lower() for name in lines[0].decode("utf-8", "replace").split(delimiter)]
        has_label = any(name in ("label", "target", "y", "class") for name in names)
        if counts == {1} and delimiter == "\t" and not has_label:
            return "txt"
        alike = len(counts) == 1 and counts != {0} and (len(lines) > 1 or has_label)
        if alike or (b'"' in start and min(counts) > 0 and has_label):  # delimiters inside quotes do not count alike
            return "tsv" if delimiter == "\t" else "csv"
    return None


def guess_format(file: TextFile) -> str:
    """The format's name, from a file's ending or its first line."""
    ending = _ending(file.path)
    if ending in ENDINGS:
        return ENDINGS[ending]
    start = file.head(HEAD_BYTES)
    fitting = [name for name, known in FORMATS.items() if known.first_bytes and known.first_bytes.match(start)]
    if fitting or ending in WEAK_ENDINGS:
        return fitting[0] if fitting else WEAK_ENDINGS[ending]
    if table := _kind_of_table(start):
        return table
    if not start.strip():
        raise DataError(f"{file.name} is empty; give a file with data")
    _refuse_foreign(file)
    if b"\0" in start:
        raise DataError(
            f"{file.name} does not look like text, so check that it is the right file, or name its format with "
            f"format=, one of {', '.join(FORMATS)}"
        )
    first = start.split(b"\n", 1)[0][:60].decode("utf-8", "backslashreplace")
    raise DataError(
        f"{file.name}: the format cannot be detected from the name or from the first line, {first!r}; "
        f"name it with format=, one of {', '.join(FORMATS)}"
    )


def _refuse_foreign(file: TextFile) -> None:
    """Raises for a file that some other program reads, whatever its name says."""
    start = file.head(HEAD_BYTES)
    if start[8:].startswith(b'{"__metadata__":'):
        raise DataError(f"{file.name} is a model file, not data; name the file that holds the rows")
    for opening, way_out in FOREIGN.items():
        if start.startswith(opening):
            raise DataError(f"{file.name} is {way_out}")
