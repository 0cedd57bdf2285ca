"""One door to every file format: `scan` looks at names and first bytes and hands over to the reader that fits."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from steepest.data.chunk import DataError
from steepest.data.files import Paths, TextFile, open_files
from steepest.data.libsvm import scan_libsvm
from steepest.data.source import Source
from steepest.data.table import scan_arrow, scan_csv, scan_jsonl, scan_parquet
from steepest.data.text import PREFIX, scan_text

READERS: dict[str, Callable[..., Source]] = {
    "libsvm": scan_libsvm,
    "csv": scan_csv,
    "tsv": partial(scan_csv, delimiter="\t"),
    "jsonl": scan_jsonl,
    "parquet": scan_parquet,
    "arrow": scan_arrow,
    "text": scan_text,
}
SUFFIXES = {
    ".svm": "libsvm",
    ".libsvm": "libsvm",
    ".svmlight": "libsvm",
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
}
COMPRESSED = (".gz", ".zst", ".bz2")
LIBSVM_LINE = re.compile(rb"\s*[-+]?[\d.eE+-]+(\s+(qid:\d+\s+)?\d+:|\s*$)")


def scan(path: Paths, format: str = "auto", **options: Any) -> Source:
    """A lazy source over files of any known format; globs, lists of paths and "-" for standard input are accepted.

    Parameters
    ----------
    path : path, glob, list of them, or "-"
    format : {"auto", "libsvm", "csv", "tsv", "jsonl", "parquet", "arrow", "text"}
        "auto" goes by the name's ending, then by the first line.
    options
        Passed to the reader of the format.
    """
    files = open_files(path)
    if format == "auto":
        format = guess_format(files[0])
    if format not in READERS:
        raise DataError(f"format={format!r} is unknown; choose one of auto, {', '.join(READERS)}")
    return READERS[format](files, **options)


def guess_format(file: TextFile) -> str:
    """The format's name, from a file's ending or its first line."""
    name = file.path
    for ending in COMPRESSED:
        name = name.removesuffix(ending)
    suffix = Path(name).suffix.lower()
    if suffix in SUFFIXES:
        return SUFFIXES[suffix]
    start = file.head(4096)
    if LIBSVM_LINE.match(start):
        return "libsvm"
    if suffix == ".txt" or start.startswith(PREFIX):
        return "text"
    first = start.split(b"\n", 1)[0][:60].decode("utf-8", "backslashreplace")
    raise DataError(
        f"{file.name}: the format cannot be told from the name or from the first line, {first!r}; "
        f"say which it is with format= or --format ({', '.join(READERS)})"
    )
