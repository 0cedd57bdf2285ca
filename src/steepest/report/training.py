"""A page on one training: what the model is, how its losses fell, how well it does, and what it looks at."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from steepest.report.chart import Chart, Line
from steepest.report.page import Table, save_page

MOST_CLASSES = 20  # shown by their heaviest weights
CURVES = {"loss": "rows before they were learned", "holdout_loss": "rows held out", "objective": "objective"}


def save_training(
    path: str | os.PathLike[str], model: str, facts: Mapping[str, Any], measures: Mapping[str, Any]
) -> None:
    """Writes the page; `facts` are those of `steepest inspect`, `measures` of `steepest evaluate` on rows held out."""
    sentences = [facts["model"], *facts["events"]]
    if not measures:
        sentences.append("No rows were held out; give --holdout 0.1 to see how well the model does on new ones.")
    tables = [_measures(measures), _classes(measures.get("classes", [])), _epochs(facts["history"]), *_top(facts)]
    save_page(path, f"Training of {model}", sentences, [t for t in tables if t.rows], _curves(facts["history"]))


def _measures(measures: Mapping[str, Any]) -> Table:
    plain = [(name, value) for name, value in measures.items() if isinstance(value, int | float)]
    return Table("On rows held out", ("measure", "value"), [(name, _number(value)) for name, value in plain])


def _classes(classes: Sequence[Mapping[str, Any]]) -> Table:
    names = ("class", "rows", "precision", "recall")
    return Table("By class", names, [tuple(_number(row.get(name)) for name in names) for row in classes])


def _epochs(history: Sequence[Mapping[str, Any]]) -> Table:
    names = list(dict.fromkeys(name for record in history for name in record))
    return Table("By epoch", names, [tuple(_number(record.get(name)) for name in names) for record in history])


def _top(facts: Mapping[str, Any]) -> list[Table]:
    top = facts["top"]
    if not isinstance(top, Mapping):
        return [Table("Favourites of all", ("item", "score"), [(str(item), _number(score)) for item, score in top])]
    return [
        Table(f"Heaviest for {output}", ("feature", "weight"), [(name, f"{weight:+.4f}") for name, weight in pairs])
        for output, pairs in list(top.items())[:MOST_CLASSES]
    ]


def _curves(history: Sequence[Mapping[str, Any]]) -> list[Chart]:
    lines = []
    for name, title in CURVES.items():
        points = [(n, record[name]) for n, record in enumerate(history, 1) if isinstance(record.get(name), float)]
        if len(points) > 1:
            lines.append(Line(title, [x for x, _ in points], [y for _, y in points]))
    return [Chart("Losses", "epoch", "mean loss", lines, log_x=False, log_y=False)] if lines else []


def _number(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 10_000 or value.is_integer() else f"{value:.5g}"
    return "" if value is None else f"{value:,}" if isinstance(value, int) else str(value)
