"""How the verbs open data: the same flags everywhere."""

from __future__ import annotations

import argparse
import sys
from typing import Any

import steepest as st
from steepest.data.cache import CachedSource
from steepest.data.files import open_files
from steepest.data.raw import is_raw
from steepest.data.scan import adapt_recipe
from steepest.data.source import Source

READING = ("label", "weight", "text", "categorical", "numeric", "zero_based", "n_features", "on_bad_line")
RATINGS = ("user", "item", "rating", "time")


def add_data_arguments(parser: argparse.ArgumentParser) -> None:
    """DATA and how to read it."""
    parser.add_argument("data", nargs="+", metavar="DATA", help="files, globs, or - for standard input")
    parser.add_argument("--format", default="auto", help="default: told from the name or the first line")
    roles = parser.add_argument_group("columns of a table")
    roles.add_argument("--label", metavar="COLUMN", help="default: the one called label, target, y or class")
    roles.add_argument("--weight", metavar="COLUMN", help="weights of the rows")
    for kind in ("text", "categorical", "numeric"):
        roles.add_argument(f"--{kind}", metavar="COLUMNS", type=_several, help="names with commas between")
    ratings = parser.add_argument_group("columns of ratings")
    for role in RATINGS:
        ratings.add_argument(
            f"--{role}-column", dest=role + "_column", metavar="COLUMN", help="name, or number from 0; default: told"
        )
    parser.add_argument("--on-bad-line", choices=("error", "skip"), help="what a bad line means")
    parser.add_argument("--cache", metavar="FILE", help="parse once, keep the rows there, and read them from there")
    parser.add_argument(
        "--zero-based", action=argparse.BooleanOptionalAction, default=None, help="libsvm: count from 0"
    )
    parser.add_argument("--n-features", type=int, default=None, help="libsvm: how many columns there are")
    parser.add_argument("--limit", type=int, default=None, metavar="ROWS", help="read the first rows only")


def _several(names: str) -> list[str]:
    return names.split(",")


def open_data(options: argparse.Namespace, recipe: dict[str, Any] | None = None, **extra: Any) -> Source:
    """The source that the flags describe; a model's recipe says how its training data was read."""
    files = open_files(options.data[0] if len(options.data) == 1 else options.data)
    reading = {**adapt_recipe(files[0], recipe or {}, options.format), **extra}
    given = {name: getattr(options, name) for name in READING}
    given |= {role: getattr(options, role + "_column") for role in RATINGS}
    reading |= {name: value for name, value in given.items() if value is not None}
    source = st.scan(files, **reading)
    if options.cache is not None:
        source = open_cache(source, options.cache)
    return source if options.limit is None else source.limit(options.limit)


def open_cache(source: Source, path: str) -> Source:
    """The source through its cache, which is made ready now; a cache that could not be used is never hidden."""
    cached = source.cache(path)
    if isinstance(cached, CachedSource) and not is_raw(source) and cached.open().note:
        print(f"steepest: {cached.note}", file=sys.stderr)
    return cached


def _note(source: Source) -> str:
    while not isinstance(source, CachedSource) and hasattr(source, "parent"):
        source = source.parent
    return source.note if isinstance(source, CachedSource) else ""


def tell_skipped(source: Source) -> None:
    """Bad lines that were left out are never passed over in silence; nor is a cache that was of no use."""
    if is_raw(source) and (note := _note(source)):  # its cache was made ready only when a hasher was known
        print(f"steepest: {note}", file=sys.stderr)
    skipped = getattr(source, "skipped", None)
    while skipped is None and hasattr(source, "parent"):
        source = source.parent
        skipped = getattr(source, "skipped", None)
    if skipped is not None and skipped.n:
        lines = "line" if skipped.n == 1 else "lines"
        print(f"steepest: {skipped.n:,} bad {lines} skipped, the first:", file=sys.stderr)
        for example in skipped.examples:
            print(f"  {example}", file=sys.stderr)
