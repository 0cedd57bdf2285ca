"""steepest explain MODEL ROW: the bias, what each feature of a row adds, the total and the probability."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from typing import Any

import numpy as np

import steepest as st
from steepest.cli.data import add_data_arguments, json_row, open_data, rows_from, written_row
from steepest.data.chunk import Chunk
from steepest.data.raw import RawBatch, is_raw, raw_batches, rows_of
from steepest.data.tables.columns import plain_values
from steepest.report.page import short_numbers

COMMON = ("row", "number", "top", "json", "format", "header", "delimiter")
EXAMPLES = (
    'steepest explain reviews.steepest "a film to remember"',
    """steepest explain houses.steepest --row '{"rooms": 4, "town": "Ghent"}'""",
    "steepest explain houses.steepest new.csv --number 3",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds all flags of the verb."""
    parser.add_argument("model", metavar="MODEL", help="model file, or an address such as s3://bucket/m.steepest")
    help = 'text, JSON object {"column": value}, file, or - for a row on standard input'
    parser.add_argument("example", metavar="ROW", nargs="?", help=help)
    parser.add_argument("--row", metavar="JSON", help='the row as {"column": value}, instead of ROW')
    parser.add_argument(
        "--number", type=int, default=1, metavar="N", help="number of the row in a file, from 1 (default: 1)"
    )
    parser.add_argument("--top", type=int, default=10, metavar="N", help="number of features to list (default: 10)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    add_data_arguments(parser, flag="--data")


def run(options: argparse.Namespace) -> int:
    """Prints the contributions for what is predicted, or for all classes with --json."""
    model = st.load(options.model)
    if isinstance(model, st.MatrixFactorization):
        raise st.DataError(
            f"{options.model} is a MatrixFactorization, which explains a pair and not a row; "
            "use recommend, or in Python model.explain(user, item)"
        )
    if not hasattr(model, "explain"):
        raise st.DataError(
            f"{options.model} is a {type(model).__name__}, whose score is not a sum over features; "
            "train a linear model with --task classify"
        )
    row = _row(model, options)
    parts = model.explain(row)
    if options.json:
        print(json.dumps({str(label): [asdict(part) for part in found] for label, found in parts.items()}))
        return 0
    rows = [row] if getattr(row, "ndim", 2) != 2 or isinstance(row, str | dict) else row
    for label in _predicted(model, rows, list(parts)):
        print("\n".join(_lines(model, rows, label, parts[label], list(parts), options.top)))
    return 0


def _lines(model: Any, rows: Any, label: Any, found: list[Any], labels: list[Any], top: int) -> list[str]:
    """Returns bias, shares, the sum of those not shown, total, and what that means."""
    total = float(sum(part.contribution for part in found))
    bias = _bias(model, label, labels)
    shown = found[:top]
    numbers = [bias, *(part.contribution for part in shown), total + bias]
    digits = 4 if max(map(abs, numbers)) < 1000 else 1
    width = max(10, *(len(f"{number:+,.{digits}f}") for number in numbers))
    lines = ["for the value:" if _is_number(model) else f"for {label}:"]
    if hasattr(model, "intercept_"):
        lines.append(f"{bias:+{width},.{digits}f}  bias")
    for part in shown:
        others = f"   (its bucket also holds {', '.join(part.others)})" if part.others else ""
        lines.append(f"{part.contribution:+{width},.{digits}f}  {short_numbers(part.name)}{others}")
    if len(found) > top:
        rest = float(sum(part.contribution for part in found[top:]))
        lines.append(f"{rest:+{width},.{digits}f}  {len(found) - top:,} other features")
    if hasattr(model, "intercept_"):
        lines.append(f"{total + bias:+{width},.{digits}f}  total{_meaning(model, rows, label)}")
    return lines


def _bias(model: Any, label: Any, labels: list[Any]) -> float:
    """Returns the bias of an output; of two classes the first has that of the second, negated."""
    biases = np.atleast_1d(getattr(model, "intercept_", 0.0))
    place = labels.index(label)
    if len(biases) == 1:
        return float(biases[0] if len(labels) == 1 or place == 1 else -biases[0])
    return float(biases[place])


def _meaning(model: Any, rows: Any, label: Any) -> str:
    """Returns the probability of a class, or the predicted number where a link is between score and number."""
    if hasattr(model, "predict_proba") and hasattr(model, "classes_"):
        place = model.classes_.tolist().index(label)
        mapped = getattr(model, "calibration_", None)
        how = " (calibrated on held-out rows)" if mapped is not None and mapped.kind != "none" else ""
        return f", probability {float(model.predict_proba(rows)[0][place]):.4f}{how}"
    if _is_number(model):
        return f", predicted {float(np.ravel(model.predict(rows))[0]):,.6g}"
    return ""


def _is_number(model: Any) -> bool:
    return not (hasattr(model, "classes_") or hasattr(model, "cluster_centers_"))


def _predicted(model: Any, rows: Any, known: list[Any]) -> list[Any]:
    """Returns the labels or the cluster of a row; the best where it has none, and the first output of a regression."""
    if _is_number(model):
        return known[:1]
    found = model.predict(rows)[0]
    if getattr(found, "ndim", 0) == 0:
        return [found if found in known else known[0]]
    best = [model.decision_function(rows)[0].argmax()]
    return [known[output] for output in found.nonzero()[0].tolist() or best]


def _row(model: Any, options: argparse.Namespace) -> Any:
    """Returns the row to explain, as the model takes it."""
    if options.example is None and options.row is None and not options.data:
        raise st.ParameterError("explain needs a row: a text, --row JSON, or a file with --number N")
    raw = getattr(model, "hasher_", None) is not None
    row: str | dict[str, Any] | None = None
    if options.row is not None:
        row = json_row(options.row)
    elif options.example == "-":
        text = sys.stdin.read().strip("\n")
        row = json_row(text) if text.lstrip().startswith("{") else text
    elif options.example is not None:
        row = written_row(options.example)
    if row is None and raw and options.example is not None and not _is_file(options.example):
        row = options.example  # a text of one word
    if row is not None:
        source = rows_from(model, row)  # refuses what the model cannot read
        return _pick(next(iter(source)), 0) if model.recipe_.get("format") == "libsvm" else row
    options.data = options.data or [options.example]
    return _row_of_file(model, options)


def _is_file(name: str) -> bool:
    from pathlib import Path

    return Path(name).exists() or Path(name).suffix != ""


def _row_of_file(model: Any, options: argparse.Namespace) -> Any:
    """Returns the row of this number, counted from 1, of a file."""
    if options.number < 1:
        raise st.ParameterError(f"--number {options.number} is not a row; they are counted from 1")
    source = open_data(options, model.recipe_, with_labels=False).limit(options.number)
    seen = 0
    batches: Any = raw_batches(source) if is_raw(source) else source
    for batch in batches:
        if seen + batch.n_rows >= options.number:
            return _pick(batch, options.number - seen - 1)
        seen += batch.n_rows
    raise st.DataError(f"{options.data[0]} has {seen:,} rows; --number {options.number} is beyond its end")


def _pick(batch: RawBatch | Chunk, place: int) -> Any:
    """Returns one row of a batch: a dict of its columns, a text, or a sparse row."""
    if isinstance(batch, Chunk):
        from scipy.sparse import csr_matrix

        start, stop = batch.indptr[place], batch.indptr[place + 1]
        entries = batch.values[start:stop], batch.indices[start:stop], np.array([0, stop - start])
        return csr_matrix(entries, shape=(1, batch.n_features))
    row = rows_of(batch.columns, place, place + 1)
    if isinstance(row, list):
        return row[0].decode("utf-8", "replace") if isinstance(row[0], bytes) else row[0]
    return {name: plain_values(row.column(name))[0] for name in row.schema.names}
