"""One door to every file format: `scan` looks at names and first bytes and hands over to the reader that fits."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from steepest.data.cache import is_cache
from steepest.data.chunk import DataError
from steepest.data.files import Paths, TextFile, open_files
from steepest.data.parameters import ParameterError
from steepest.data.source import Source

# The reader of each format, imported when it is needed.
READERS = {
    "libsvm": "libsvm.scan_libsvm",
    "vw": "vw.scan_vw",
    "csv": "table.scan_csv",
    "tsv": "table.scan_csv",
    "jsonl": "table.scan_jsonl",
    "parquet": "table.scan_parquet",
    "arrow": "table.scan_arrow",
    "txt": "text.scan_text",
    "cache": "cache.scan_cache",
    "ratings": "ratings.scan_ratings",
}
SUFFIXES = {
    ".svm": "libsvm",
    ".libsvm": "libsvm",
    ".svmlight": "libsvm",
    ".vw": "vw",
    ".csv": "csv",
    ".tsv": "tsv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".arrow": "arrow",
    ".feather": "arrow",
    ".ipc": "arrow",
    ".cache": "cache",
}
PRESETS = {"tsv": {"delimiter": "\t"}}
TABLES = ("csv", "tsv", "jsonl", "parquet", "arrow")
ROLES = ("label", "text", "categorical", "numeric", "weight", "with_labels", "on_bad_line")
PREFIX = b"__label__"  # fastText's lines start with it
COMPRESSED = (".gz", ".zst", ".bz2")
LIBSVM_LINE = re.compile(rb"\s*[-+]?[\d.eE+-]+(\s+(qid:\d+\s+)?\d+:|\s*$)")
# Numbers and a tag before the bar, or a tag in quotes, or nothing; not just any bar, which tables have too.
VW_LINE = re.compile(rb"\s*(([-+\d.][-+\d.eE]*[ \t]+){1,3}('[^\s|]*[ \t]*|[^\s|]*)|('[^\s|]*[ \t]*)?)\|")


def scan(path: Paths | list[TextFile], format: str = "auto", **options: Any) -> Source:
    """A lazy source over files of any known format; globs, lists of paths and "-" for standard input are accepted.

    Parameters
    ----------
    path : path, glob, list of them, or "-"
    format : {"auto", "libsvm", "vw", "csv", "tsv", "jsonl", "parquet", "arrow", "txt", "ratings", "cache"}
        "auto" goes by the name's ending, then by the first line. A cache is known by its first bytes, whatever its name
        and `format`, and then read as what it is: a model's recipe opens raw data and caches of it alike.
    options
        Passed to the reader of the format.
    """
    files = open_files(path)
    wish, format = format, format_of(files[0], format)
    if format == "cache" and wish not in ("auto", "cache"):
        options = {name: value for name, value in options.items() if name == "with_labels"}
    if format not in READERS:
        raise ParameterError(f"format={format!r} is unknown; choose one of auto, {', '.join(READERS)}")
    module, _, name = READERS[format].partition(".")
    reader = getattr(import_module(f"steepest.data.{module}"), name)
    known = inspect.signature(reader).parameters
    for option in options:
        if option not in known:
            raise ParameterError(f"{option}= has no meaning for the format {format}; it takes {', '.join(known)}")
    source: Source = reader(files, **{**PRESETS.get(format, {}), **options})
    return source


def adapt_recipe(file: TextFile, recipe: Mapping[str, Any], wish: str = "auto") -> dict[str, Any]:
    """How a table was read, for another file: what its columns mean stays, its format is the file's or the wish."""
    known = recipe.get("format")
    format = (SUFFIXES.get(_suffix(file)) or _table_in(file, known)) if wish == "auto" else wish
    if known == "csv" and format in (None, "csv", "tsv"):
        return {**recipe, "delimiter": _delimiter_in(file, recipe["delimiter"])}
    if known not in TABLES or format not in TABLES or format == known:
        return {**recipe, "format": recipe.get("format", "auto") if wish == "auto" else wish}
    return {"format": format, **{name: value for name, value in recipe.items() if name in ROLES}}


def _delimiter_in(file: TextFile, known: str) -> str:
    """The one that is known, if the first line has it."""
    readable = file.once or not is_cache(file.path)
    return known if not readable or known.encode() in file.head(4096).lstrip(b"\r\n").split(b"\n", 1)[0] else "auto"


def _table_in(file: TextFile, known: str | None) -> str | None:
    """JSON where lines of a table were expected, from standard input, say; else nothing is known."""
    may_be = known == "csv" and (file.once or not is_cache(file.path))
    return "jsonl" if may_be and file.head(1) == b"{" else None


def _suffix(file: TextFile) -> str:
    name = file.path
    for ending in COMPRESSED:
        name = name.removesuffix(ending)
    return Path(name).suffix.lower()


def format_of(file: TextFile, wish: str = "auto") -> str:
    """The format in which a file is read: a cache is one whatever is wished."""
    if not file.once and is_cache(file.path):
        return "cache"
    return guess_format(file) if wish == "auto" else wish


def guess_format(file: TextFile) -> str:
    """The format's name, from a file's ending or its first line."""
    suffix = _suffix(file)
    if suffix in SUFFIXES:
        return SUFFIXES[suffix]
    start = file.head(4096)
    if LIBSVM_LINE.match(start):
        return "libsvm"
    if VW_LINE.match(start):
        return "vw"
    if suffix == ".txt" or start.startswith(PREFIX):
        return "txt"
    first = start.split(b"\n", 1)[0][:60].decode("utf-8", "backslashreplace")
    raise DataError(
        f"{file.name}: the format cannot be told from the name or from the first line, {first!r}; "
        f"say which it is with format= or --format ({', '.join(READERS)})"
    )
