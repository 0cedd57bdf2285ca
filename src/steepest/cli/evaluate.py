"""steepest evaluate MODEL DATA: loss, accuracy and more on labelled rows."""

from __future__ import annotations

import argparse
import inspect
import json
import shutil
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import steepest as st
from steepest.cli.data import add_data_arguments, check_writable, open_data, tell_skipped
from steepest.cli.inspect import describe_model
from steepest.cli.train import about_run
from steepest.data.chunk import Chunk
from steepest.data.files.blocks import open_files
from steepest.data.source import Derived, Order
from steepest.report.training import MOST_IN_MATRIX, save_evaluation

CORNER = "true \\ predicted"
MOST_SHOWN = 12  # classes of a confusion matrix in a terminal, or kinds of mistakes

COMMON = ("format", "label", "on_bad_line", "limit", "header", "weight", "json", "report", "k", "jobs")
EXAMPLES = (
    "steepest evaluate reviews.steepest test.csv",
    "steepest evaluate reviews.steepest test.csv --report test.html",
    "steepest evaluate reviews.steepest test.csv --json",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds all flags of the verb."""
    parser.add_argument("model", metavar="MODEL", help="model file, or an address such as s3://bucket/m.steepest")
    add_data_arguments(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument(
        "--report", metavar="FILE.html", help="write an HTML report with the metrics, curves and largest weights"
    )
    parser.add_argument("--k", type=int, metavar="N", help="length of the ranked lists to measure (default: 10)")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="number of threads (default: 1)")


def run(options: argparse.Namespace) -> int:
    """Prints the measures."""
    check_writable(options.report, options.data, options.model)
    model = st.load(options.model)
    model.n_jobs = options.jobs
    clusters = isinstance(model, st.KMeans)
    extra = {"with_labels": False} if clusters and not options.weight else {}
    source = _with_known_labels(options, model.recipe_) or open_data(options, model.recipe_, **extra)
    result = _measured(model, source, options.k)
    tell_skipped(source)
    if options.report is not None:
        facts = describe_model(model, options.model, 20)
        save_evaluation(options.report, Path(options.model).name, facts, result, about_run(options))
    curves = result.pop("curves", {})
    if "confusion" in curves and len(curves["confusion"]["classes"]) <= MOST_IN_MATRIX:
        result["confusion"] = curves["confusion"]
    print(json.dumps(result) if options.json else as_text(result))
    return 0


class _KnownLabels(Derived):
    """Rows that may have several labels each, with the columns that a model has learned."""

    is_part = True

    def __init__(self, parent: st.Source, labels: list[str]) -> None:
        super().__init__(parent)
        own = {label: place for place, label in enumerate(parent.label_names or ())}
        self._places = [own.get(label, len(own)) for label in labels]

    def read(self, order: Order, epoch: int) -> Iterator[Chunk]:
        """Yields the parent's chunks with the labels that the model knows."""
        for chunk in self.parent.read(order, epoch):
            assert chunk.y is not None
            yield replace(chunk, y=np.pad(chunk.y, ((0, 0), (0, 1)))[:, self._places])


def _with_known_labels(options: argparse.Namespace, recipe: dict[str, Any]) -> st.Source | None:
    """Returns rows without the labels that the model never saw, which it names, as fastText does.

    None if there are none, if labels are given, or if the rows come by only once.
    """
    labels = recipe.get("labels")
    if not labels or options.labels is not None or open_files(options.data)[0].once:
        return None
    source = open_data(options, {**recipe, "labels": None})
    if hasattr(source.root, "prepare"):
        source.root.prepare()  # collects the labels there are
    unknown = [label for label in source.label_names or () if label not in set(labels)]
    if not unknown:
        return None
    shown = ", ".join(unknown[:5]) + (", ..." if len(unknown) > 5 else "")
    print(f"steepest: labels that were never seen in training are not measured: {shown}", file=sys.stderr)
    return _KnownLabels(source, labels)


def _measured(model: Any, source: st.Source, k: int | None) -> dict[str, Any]:
    """Computes the metrics; lists of k items are ranked by rankers and factor models only."""
    if k is None:
        curves = {"curves": True} if "curves" in inspect.signature(model.evaluate_stream).parameters else {}
        return dict(model.evaluate_stream(source, **curves))
    if not isinstance(model, st.LinearRanker | st.MatrixFactorization):
        raise st.ParameterError(
            f"--k {k} is the length of ranked lists, and {type(model).__name__} ranks none; omit it"
        )
    return model.evaluate_stream(source, k)


def as_text(result: dict[str, Any]) -> str:
    """Returns aligned lines for a person, with a table of classes if they are few."""
    plain = {name: value for name, value in result.items() if name not in ("classes", "confusion")}
    shown = {name: _number(value) for name, value in plain.items()}
    width = max((len(text) for text in shown.values()), default=0)
    lines = [f"{name:<16}{text:>{max(width, 14)}}" for name, text in shown.items()]
    classes = result.get("classes", [])
    if classes:
        lines.append("")
        lines.append(f"{'class':<24}{'rows':>10}{'precision':>12}{'recall':>10}")
    for row in classes[:50]:
        precision, recall = (("-" if row[k] is None else f"{row[k]:.4f}") for k in ("precision", "recall"))
        lines.append(f"{row['class']!s:<24}{row['rows']:>10,.0f}{precision:>12}{recall:>10}")
    if len(classes) > 50:
        lines.append(f"... and {len(classes) - 50} more classes (all with --json)")
    return "\n".join([*lines, *_matrix(result.get("confusion"))])


def _number(value: Any) -> str:
    """Returns five decimals where they say something, and none behind large numbers."""
    if not isinstance(value, float):
        return f"{value:,}"
    return f"{value:,.5f}" if abs(value) < 1000 else f"{value:,.1f}"


def _matrix(confusion: dict[str, Any] | None) -> list[str]:
    """Returns the confusion matrix of a few classes, true ones down, predicted ones across; of many the mistakes."""
    if confusion is None or len(confusion["classes"]) < 2:
        return []
    if len(confusion["classes"]) > MOST_SHOWN:
        return _mistakes(confusion)
    names = [str(name)[:12] for name in confusion["classes"]]
    cells = [[f"{n:,.0f}" for n in row] for row in confusion["rows"]]
    width = max(6, *(len(text) for row in (names, *cells) for text in row)) + 2
    if 24 + width * len(names) > shutil.get_terminal_size((100, 24)).columns:
        return _mistakes(confusion)
    lines = ["", f"{CORNER:<24}" + "".join(f"{name:>{width}}" for name in names)]
    return lines + [
        f"{name:<24}" + "".join(f"{n:>{width}}" for n in row) for name, row in zip(names, cells, strict=True)
    ]


def _mistakes(confusion: dict[str, Any]) -> list[str]:
    """Returns the most frequent pairs of a true class and another one that was predicted."""
    names = confusion["classes"]
    pairs = [
        (n, f"{str(names[i])[:23]:<24}{str(names[j])[:23]:<24}{n:>10,.0f}")
        for i, row in enumerate(confusion["rows"])
        for j, n in enumerate(row)
        if n and i != j
    ]
    pairs = sorted(pairs, key=lambda pair: -pair[0])[:MOST_SHOWN]
    head = ["", "most frequent mistakes:", f"{'true':<24}{'predicted':<24}{'rows':>10}"]
    return [*head, *(line for _, line in pairs)] if pairs else []
