"""steepest evaluate MODEL DATA: loss, accuracy and more on labelled rows."""

from __future__ import annotations

import argparse
import json
from typing import Any

import steepest as st
from steepest.cli.data import add_data_arguments, open_data, tell_skipped

COMMON = ("format", "label", "on_bad_line", "limit", "header", "weight", "json", "report", "k", "jobs")
EXAMPLES = (
    "steepest evaluate reviews.steepest test.csv",
    "steepest evaluate reviews.steepest test.csv --report test.html",
    "steepest evaluate reviews.steepest test.csv --json",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """All flags of the verb."""
    parser.add_argument("model", metavar="MODEL")
    add_data_arguments(parser)
    parser.add_argument("--json", action="store_true", help="one JSON object")
    parser.add_argument("--k", type=int, metavar="N", help="length of ranked lists that are measured; default: 10")
    parser.add_argument("--jobs", type=int, default=1, help="threads")


def run(options: argparse.Namespace) -> int:
    """Prints the measures."""
    model = st.load(options.model)
    model.n_jobs = options.jobs
    clusters = isinstance(model, st.KMeans)
    source = open_data(options, model.recipe_, **({"with_labels": False} if clusters and not options.weight else {}))
    result = _measured(model, source, options.k)
    tell_skipped(source)
    print(json.dumps(result) if options.json else as_text(result))
    return 0


def _measured(model: Any, source: st.Source, k: int | None) -> dict[str, Any]:
    """What the model measures; lists of k are ranked by rankers and factor models only."""
    if k is None:
        return dict(model.evaluate_stream(source))
    if not isinstance(model, st.LinearRanker | st.MatrixFactorization):
        raise st.ParameterError(
            f"--k {k} is the length of ranked lists, and {type(model).__name__} ranks none; omit it"
        )
    return model.evaluate_stream(source, k)


def as_text(result: dict[str, Any]) -> str:
    """Aligned lines for a person; a table of classes if they are few."""
    lines = []
    for name, value in result.items():
        if name != "classes":
            lines.append(f"{name:<16}{value:>14,.5f}" if isinstance(value, float) else f"{name:<16}{value:>14,}")
    classes = result.get("classes", [])
    if classes:
        lines.append("")
        lines.append(f"{'class':<24}{'rows':>10}{'precision':>12}{'recall':>10}")
    for row in classes[:50]:
        precision, recall = (("-" if row[k] is None else f"{row[k]:.4f}") for k in ("precision", "recall"))
        lines.append(f"{row['class']!s:<24}{row['rows']:>10,.0f}{precision:>12}{recall:>10}")
    if len(classes) > 50:
        lines.append(f"... and {len(classes) - 50} more classes (all with --json)")
    return "\n".join(lines)
