"""steepest convert DATA OUT: the same rows in another format, in constant memory.

Sparse rows (libsvm, VW, caches) go to libsvm, VW, Parquet, Arrow and caches. Raw rows (tables, texts) stay raw in CSV,
TSV, JSON lines, Parquet, Arrow and text, and are hashed on their way to libsvm, VW and caches.
"""

from __future__ import annotations

import argparse
import sys
import time
from itertools import chain
from pathlib import Path
from typing import Any

import steepest as st
from steepest.cli import flags
from steepest.cli.data import (
    add_data_arguments,
    check_writable,
    hasher_options,
    open_data,
    refuse_hasher_flags,
    several,
    takes_hasher,
    tell_skipped,
)
from steepest.data import write
from steepest.data.files.packing import COMPRESSED
from steepest.data.raw import RowEncoder, encoded, is_raw, raw_batches, sample_columns, survey
from steepest.data.scan import format_of_name
from steepest.data.source import Source
from steepest.data.store.cache import CachedSource
from steepest.features.words import count_words

FORMATS = (*write.SPARSE_TEXT, *write.RAW_TEXT, *write.TABLES, "cache")

COMMON = (
    "to",
    "labels",
    "label_order",
    "no_labels",
    "quiet",
    "format",
    "label",
    "limit",
    "header",
    "text",
    "n_bits",
    "ngrams",
    "columns",
)
EXAMPLES = (
    "steepest convert train.csv train.parquet",
    "steepest convert train.svm train.vw.gz",
    "steepest convert reviews.csv - --to libsvm --limit 3",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds all flags of the verb."""
    add_data_arguments(parser, labels=False)
    parser.add_argument(
        "out",
        metavar="OUT",
        help="file to write; its extension sets the format, and a second extension .gz, .zst or .bz2 compresses it",
    )
    parser.add_argument("--to", choices=FORMATS, help="format of OUT (default: by its extension)")
    order = "labels in the order of their numbers 0, 1, ..."
    parser.add_argument("--labels", dest="label_order", type=several, metavar="A,B", help=order)
    parser.add_argument("--no-labels", action="store_true", help="do not write labels; also for data without labels")
    parser.add_argument("--quiet", action="store_true", help="print no summary")
    flags.add_estimator_flags(parser, [st.Hasher])


def run(options: argparse.Namespace) -> int:
    """Writes the rows and reports on stderr how many they are."""
    form = options.to or _format_of(options.out)
    _check_output(options, form)
    started = time.perf_counter()
    source = open_data(options, with_labels=False) if options.no_labels else open_data(options)
    raw = is_raw(source)
    if not raw and form in write.RAW_TEXT:
        raise st.DataError(
            f"these rows are sparse, without columns or words, so they cannot become {form}; "
            "write libsvm, vw, parquet, arrow or cache"
        )
    if not takes_hasher(source):
        refuse_hasher_flags(source, hasher_options(options))
    notes: list[str] = []
    if raw and form not in (*write.SPARSE_TEXT, "cache"):
        batches = raw_batches(source)
        first = next(batches)  # decides what the columns and labels are called
        done = write.write_batches(chain([first], batches), options.out, form, _naming(source))
    else:
        naming = _naming(source, _codes(source, options, notes) if form in write.SPARSE_TEXT else None)
        source = _hashed(source, options, to_cache=form == "cache") if raw else source
        done = _write_sparse(source, options.out, form, naming)
    tell_skipped(source)
    if not options.quiet:
        _summarise(done, options.out, time.perf_counter() - started, notes)
    return 0


def _write_sparse(source: Source, out: str, form: str, naming: write.Naming) -> write.Written:
    if form != "cache":
        return write.write_chunks(source.epoch(0), out, form, naming, source.n_features)
    cached = CachedSource(source, out)
    return write.Written(cached.n_rows, cached.open().n_entries)


def _format_of(out: str) -> str:
    form = format_of_name(out)
    if form is None:
        raise st.ParameterError(f"the format of {out} cannot be detected from its name; give --to {'|'.join(FORMATS)}")
    return form


def _check_output(options: argparse.Namespace, form: str) -> None:
    out = options.out
    if out == "-" or out.endswith(COMPRESSED):
        if form in (*write.TABLES, "cache"):
            raise st.ParameterError(f"{form} is binary and read in pieces, so {out} cannot hold it; give a plain file")
        if out == "-":
            return
    check_writable(out, options.data)


def _naming(source: Source, codes: dict[str, int] | None = None) -> write.Naming:
    recipe = source.recipe
    weight = recipe.get("weight") or "weight"
    return write.Naming(recipe.get("label") or "label", weight, codes, source.label_names)


def _codes(source: Source, options: argparse.Namespace, notes: list[str]) -> dict[str, int] | None:
    """Returns numbers for labels that are texts: as named, or by the alphabet after a pass over the data."""
    labels = options.label_order
    if labels is None:
        numbers = source.recipe.get("format") in write.SPARSE_TEXT  # these formats have no other labels
        if options.no_labels or numbers or any(path == "-" for path in options.data):
            return None
        seen = sorted(survey(source).labels, key=str)
        if not seen or not all(isinstance(label, str) for label in seen):
            return None
        labels = seen
        shown = ", ".join(f"{label}={code}" for code, label in enumerate(labels[:20]))
        notes.append(f"labels became numbers: {shown}{' ...' if len(labels) > 20 else ''}; fix them with --labels")
    return {label: code for code, label in enumerate(labels)}


def _hashed(source: Source, options: argparse.Namespace, *, to_cache: bool) -> Source:
    asked: dict[str, Any] = {"names": 10_000, **flags.estimator_arguments(options, st.Hasher)}
    roles = {kind: names for kind in ("text", "categorical", "numeric") if (names := source.recipe.get(kind))}
    if not to_cache:  # a text file cannot hold what tf-idf has learned, so new rows could not be weighed alike
        asked.setdefault("weighting", "count")
    hasher = st.Hasher(**{**asked, **roles})
    if (sample := sample_columns(source)) is not None:
        hasher.survey(sample[0])
    count_words(source, hasher)
    return encoded(source, RowEncoder(hasher, learn=True), hasher.signature(learn=True))


def _summarise(done: write.Written, out: str, seconds: float, notes: list[str]) -> None:
    size = "" if out == "-" else f", {Path(out).stat().st_size:,} bytes"
    entries = f", {done.entries:,} entries" if done.entries else ""
    print(f"{out}: {done.rows:,} rows{entries}{size}, {seconds:.2f} s", file=sys.stderr)
    if done.weights_left_out:
        notes.append("libsvm files cannot store row weights, so they were left out")
    for note in notes:
        print(f"steepest: {note}", file=sys.stderr)
