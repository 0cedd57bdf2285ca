"""One door to every file format: `scan` looks at names and first bytes and hands over to the reader that fits."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from steepest.data.chunk import DataError
from steepest.data.files import Paths, TextFile, open_files
from steepest.data.libsvm import scan_libsvm
from steepest.data.source import Source
from steepest.data.vw import scan_vw

READERS: dict[str, Callable[..., Source]] = {"libsvm": scan_libsvm, "vw": scan_vw}
SUFFIXES = {".svm": "libsvm", ".libsvm": "libsvm", ".svmlight": "libsvm", ".vw": "vw"}
COMPRESSED = (".gz", ".zst", ".bz2")
LIBSVM_LINE = re.compile(rb"\s*[-+]?[\d.eE+-]+(\s+(qid:\d+\s+)?\d+:|\s*$)")
# Numbers and a tag before the bar, or a tag in quotes, or nothing; not just any bar, which tables have too.
VW_LINE = re.compile(rb"\s*(([-+\d.][-+\d.eE]*[ \t]+){1,3}('[^\s|]*[ \t]*|[^\s|]*)|('[^\s|]*[ \t]*)?)\|")


def scan(path: Paths, format: str = "auto", **options: Any) -> Source:
    """A lazy source over files of any known format; globs, lists of paths and "-" for standard input are accepted.

    Parameters
    ----------
    path : path, glob, list of them, or "-"
    format : {"auto", "libsvm", "vw"}
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
    by_name = SUFFIXES.get(Path(name).suffix.lower())
    if by_name:
        return by_name
    start = file.head(4096)
    if LIBSVM_LINE.match(start):
        return "libsvm"
    if VW_LINE.match(start):
        return "vw"
    first = start.split(b"\n", 1)[0][:60].decode("utf-8", "backslashreplace")
    raise DataError(
        f"{file.name}: the format cannot be told from the name or from the first line, {first!r}; "
        f"say which it is with format= or --format ({', '.join(READERS)})"
    )
