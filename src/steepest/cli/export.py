"""steepest export MODEL --to c|python|onnx: a model as one file for places without steepest."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import steepest as st
from steepest.cli.data import add_data_arguments, check_writable, open_data
from steepest.export.pack import PRECISIONS
from steepest.export.write import TARGETS, Exported

SUFFIXES = {"c": ".c", "python": ".py", "onnx": ".onnx"}
COMMON = ("to", "output", "precision", "keep", "name", "data", "format")
EXAMPLES = (
    "steepest export reviews.steepest --to python",
    "steepest export reviews.steepest --to c --precision int8 --keep 10000",
    "steepest export houses.steepest --to onnx --check test.csv",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds all flags of the verb."""
    parser.add_argument("model", metavar="MODEL", help="model file, or an address such as s3://bucket/m.steepest")
    parser.add_argument("--to", choices=TARGETS, required=True, help="format of the file")
    parser.add_argument(
        "-o", "--output", metavar="FILE", help="file to write (default: the name of the model with another extension)"
    )
    parser.add_argument(
        "--precision", choices=PRECISIONS, default="float32", help="type of the stored weights (default: float32)"
    )
    parser.add_argument("--keep", type=int, metavar="N", help="keep only the N features with the largest weights")
    parser.add_argument("--name", default="steepest", help="prefix of the names of C functions (default: steepest)")
    add_data_arguments(parser, flag="--check", help="labelled rows on which to measure what smaller weights cost")


def run(options: argparse.Namespace) -> int:
    """Writes the file, and prints sizes and, with --check, costs to stderr."""
    model = st.load(options.model)
    output = options.output or str(Path(options.model).with_suffix(SUFFIXES[options.to]))
    check_writable(output, options.data or (), options.model)
    source = open_data(options, model.recipe_) if options.data else None
    done = st.export_model(
        model, output, to=options.to, precision=options.precision, keep=options.keep, name=options.name, check=source
    )
    print(as_text(done), file=sys.stderr)
    return 0


def as_text(done: Exported) -> str:
    """Returns what was written, and a table of costs."""
    lines = [f"{done.path}: {done.file_bytes:,} bytes, tables of {done.table_bytes:,} bytes, {done.rows:,} rows"]
    if done.costs:
        measure = "accuracy" if "accuracy" in done.costs[0] else "rmse"
        lines.append(f"{'precision':<10}{'features':>12}{'table bytes':>14}{measure:>12}")
        lines += [_cost(cost, measure) for cost in done.costs]
    return "\n".join(lines)


def _cost(cost: dict[str, Any], measure: str) -> str:
    return f"{cost['precision']:<10}{cost['features']:>12,}{cost['bytes']:>14,}{cost[measure]:>12.5f}"
