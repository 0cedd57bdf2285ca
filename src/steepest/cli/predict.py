"""steepest predict MODEL DATA: one prediction per line."""

from __future__ import annotations

import argparse
import io
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any

import steepest as st
from steepest import atomic
from steepest.cli.data import add_data_arguments, check_writable, open_for, tell_skipped
from steepest.data.chunk import Array

COMMON = ("format", "on_bad_line", "limit", "header", "proba", "output", "jobs")
EXAMPLES = (
    "steepest predict reviews.steepest new.csv --proba -o predictions.tsv",
    'steepest predict reviews.steepest "a film to remember"',
    "cat new.jsonl | steepest predict reviews.steepest -",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds all flags of the verb."""
    parser.add_argument("model", metavar="MODEL", help="model file, or an address such as s3://bucket/m.steepest")
    add_data_arguments(parser, help='files, patterns, - for standard input, or one row: "some text" or {"column": 1}')
    parser.add_argument("--proba", action="store_true", help="print the probabilities of all classes, below a header")
    parser.add_argument("-o", "--output", metavar="FILE", help="write to this file instead of stdout")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="number of threads (default: 1)")


def run(options: argparse.Namespace) -> int:
    """Streams predictions in the order of the rows."""
    model = st.load(options.model)
    model.n_jobs = options.jobs
    if options.proba and not hasattr(model, "predict_proba"):
        loss = f" with loss {model.loss!r}" if hasattr(model, "loss") else ""
        known = f"{options.model} is a {type(model).__name__}{loss}"
        raise st.ParameterError(
            f"--proba needs a classifier with loss 'log' or 'squared_hinge', and {known}; leave --proba out"
        )
    check_writable(options.output, options.data, options.model)
    source = open_for(model, options, with_labels=False)
    with open_output(options.output) as out:
        if options.proba:
            print("\t".join(map(str, model.classes_)), file=out)
        parts = model.predict_stream(source, proba=True) if options.proba else model.predict_stream(source)
        names = None if options.proba else names_of_sets(model)
        for part in parts:
            out.write(as_lines(part) if names is None else as_names(part, names))
    tell_skipped(source)
    return 0


def as_lines(predictions: Array) -> str:
    """Returns a line per row, columns separated by tabs; numbers in the shortest form that reads back the same."""
    if predictions.ndim == 1:
        return "".join(f"{value}\n" for value in predictions.tolist())
    return "".join("\t".join(map(repr, row)) + "\n" for row in predictions.tolist())


def names_of_sets(model: Any) -> list[str] | None:
    """Returns what the columns of predictions stand for if a row may have several labels and these have names."""
    classes = getattr(model, "classes_", None)
    return None if classes is None or classes.dtype.kind != "U" else classes.tolist()


def as_names(predictions: Array, names: list[str]) -> str:
    """Returns a line per row: its label, or several with tabs between, or none."""
    if predictions.ndim == 1:
        return as_lines(predictions)
    return "".join("\t".join(names[k] for k in row.nonzero()[0]) + "\n" for row in predictions)


@contextmanager
def open_output(path: str | None) -> Iterator[IO[str]]:
    """Opens stdout, or a file that appears only when it is complete."""
    if path is None:
        yield sys.stdout
        return
    with atomic.writing(path) as file:
        out = io.TextIOWrapper(file, encoding="utf-8", newline="\n")
        yield out
        out.detach()
