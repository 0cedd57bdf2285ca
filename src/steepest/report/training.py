"""Pages on a model: how it was trained, how well it does on other rows, and what it has learned."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from steepest import atomic
from steepest.report.chart import Chart, Line
from steepest.report.page import Bars, Matrix, Part, Section, Table, page

MOST_CLASSES = 20  # shown by their heaviest weights
MOST_IN_MATRIX = 25
SHOWN_THRESHOLDS = 12
CURVES = {"loss": "training rows", "holdout_loss": "held-out rows", "objective": "objective"}
COVERED = 0.01  # a line this near to another one, in shares of their range, is not drawn
# Columns of the table of epochs, and their titles.
EPOCHS = {
    "epoch": "epoch",
    "rows": "rows",
    "loss": "loss",
    "holdout_loss": "held-out loss",
    "objective": "objective",
    "gradient": "gradient",
    "eta": "step",
    "nonzeros": "non-zeros",
    "seconds": "seconds",
    "rows_per_second": "rows/s",
}
TITLES = {"auc": "AUC", "pr_auc": "PR AUC", "rmse": "RMSE", "r2": "R²", "ndcg@10": "NDCG@10", "brier": "Brier score"}
TITLES |= {
    "ece": "calibration error",
    "micro_f1": "micro F1",
    "macro_f1": "macro F1",
    "log_loss": "log loss",
    "mae": "MAE",
}
LARGE = ("accuracy", "auc", "pr_auc", "rmse", "r2", "ndcg@10", "loss", "brier", "ece", "micro_f1")
FEW = 6
SHARES = ("precision", "recall")  # of a class
TOP_OF_MANY = 8  # heaviest weights for and against each class, where there are more than a FEW
KINDS = ("name", "kind", "distinct", "missing", "example")


def save_training(
    path: str | os.PathLike[str],
    model: str,
    facts: Mapping[str, Any],
    measures: Mapping[str, Any],
    about: Mapping[str, str],
) -> None:
    """Writes the page on a training; `facts` are those of `steepest inspect`, `measures` of rows held out."""
    sentences = [facts["model"], *facts["events"]]
    if not measures:
        sentences.append("No rows were held out; pass --holdout 0.1 to see how well the model does on new rows.")
    sections = [
        Section("Losses", [*loss_charts(facts["history"]), _epochs(facts["history"])]),
        *measure_sections(measures, "On held-out rows"),
        *_learned(facts),
        _data(facts.get("columns", [])),
    ]
    atomic.write_text(path, page(f"Training of {model}", _large(measures), sections, about, sentences))


def save_evaluation(
    path: str | os.PathLike[str],
    model: str,
    facts: Mapping[str, Any],
    measures: Mapping[str, Any],
    about: Mapping[str, str],
) -> None:
    """Writes the page on a measurement: the same measures on other rows, and what the model has learned."""
    sections = [*measure_sections(measures, "Metrics"), *_learned(facts), _data(facts.get("columns", []))]
    atomic.write_text(path, page(f"Evaluation of {model}", _large(measures), sections, about, [facts["model"]]))


def measure_sections(measures: Mapping[str, Any], title: str) -> list[Section]:
    """Measures, classes, confusion, ROC and precision-recall curves, reliability and thresholds, as far as known."""
    curves = measures.get("curves", {})
    parts: list[Table | Matrix] = [_measures(measures), _classes(measures.get("classes", []))]
    if (confusion := curves.get("confusion")) and len(confusion["classes"]) <= MOST_IN_MATRIX:
        parts.append(Matrix("Confusion matrix", [str(name) for name in confusion["classes"]], confusion["rows"]))
    found = [Section(title, [part for part in parts if part.rows])]
    drawn: list[Part] = []
    if points := curves.get("thresholds"):
        recall = [0.0, *(point["recall"] for point in points)]
        wrong = [0.0, *(point["false_positive_rate"] for point in points)]
        chance = Line("chance", [0.0, 1.0], [0.0, 1.0], reference=True)
        drawn.append(_plain("ROC", "false positive rate", "true positive rate", [Line("model", wrong, recall), chance]))
        precision = [point["precision"] for point in points]
        drawn.append(_plain("Precision and recall", "recall", "precision", [Line("model", recall[1:], precision)]))
    if bins := curves.get("reliability"):
        line = Line("model", [b["claimed"] for b in bins], [b["found"] for b in bins])
        ideal = Line("ideal", [0.0, 1.0], [0.0, 1.0], reference=True)
        drawn.append(_plain("Reliability", "predicted probability", "share that is right", [line, ideal]))
    if drawn:
        found.append(Section("Curves", drawn))
    if points:
        found.append(
            Section("Thresholds", [_thresholds(points)], "Metrics if the second class is predicted from this score on:")
        )
    return found


def loss_charts(history: Sequence[Mapping[str, Any]]) -> list[Chart]:
    """How the losses fell."""
    lines: list[Line] = []
    for name, title in CURVES.items():
        points = [(n, record[name]) for n, record in enumerate(history, 1) if isinstance(record.get(name), float)]
        if len(points) > 1:
            line = Line(title, [x for x, _ in points], [y for _, y in points])
            if name != "objective" or not _is_covered(line, lines):
                lines.append(line)
    unit = _unit(history)
    return [_plain(f"Mean loss by {unit}", unit, "mean loss", lines)] if lines else []


def _is_covered(line: Line, others: Sequence[Line]) -> bool:
    """Whether a line lies on another one, which it would hide in a chart of all."""
    heights = [y for drawn in (line, *others) for y in drawn.y]
    room = COVERED * (max(heights) - min(heights))
    return any(
        list(line.x) == list(other.x) and all(abs(a - b) <= room for a, b in zip(line.y, other.y, strict=True))
        for other in others
    )


def _plain(title: str, x: str, y: str, lines: Sequence[Line]) -> Chart:
    return Chart(title, x, y, lines, log_x=False, log_y=False)


def _large(measures: Mapping[str, Any]) -> dict[str, str]:
    known = [name for name in LARGE if isinstance(measures.get(name), float)][:FEW]
    rows = {"rows measured": f"{measures['rows']:,}"} if isinstance(measures.get("rows"), int) else {}
    return {**rows, **{TITLES.get(name, name): _number(measures[name]) for name in known}}


def _measures(measures: Mapping[str, Any]) -> Table:
    plain = [(name, value) for name, value in measures.items() if isinstance(value, int | float)]
    return Table("", ("metric", "value"), [(TITLES.get(name, name), _number(value)) for name, value in plain])


def _classes(classes: Sequence[Mapping[str, Any]]) -> Table:
    rows = [
        (str(row["class"]), f"{row['rows']:,.0f}", *("" if (x := row[m]) is None else f"{x:.4f}" for m in SHARES))
        for row in classes
    ]
    return Table("By class", ("class", "rows", *SHARES), rows)


def _thresholds(points: Sequence[Mapping[str, float]]) -> Table:
    names = ("score", "precision", "recall", "false_positive_rate")
    step = max(1, len(points) // SHOWN_THRESHOLDS)
    rows = [tuple(f"{point[name]:.4f}" for name in names) for point in points[::step]]
    return Table("", [name.replace("_", " ") for name in names], rows)


def _unit(history: Sequence[Mapping[str, Any]]) -> str:
    """The unit of a record: "iteration" for batch solvers, else "epoch"."""
    return "iteration" if history and "passes" in history[-1] else "epoch"


def _epochs(history: Sequence[Mapping[str, Any]]) -> Table:
    names = [name for name in EPOCHS if any(name in record for record in history)]
    rows = [tuple(_number(record.get(name)) for name in names) for record in history]
    titles = [_unit(history) if name == "epoch" else EPOCHS[name] for name in names]
    return Table(f"By {_unit(history)}", titles, rows)


def _learned(facts: Mapping[str, Any]) -> list[Section]:
    top = facts["top"]
    if not isinstance(top, Mapping):
        pairs = [(str(item), float(score)) for item, score in top]
        return [Section("Most recommended items", [Bars("items by score", pairs)])] if pairs else []
    parts: list[Part] = []
    number = not facts.get("classes") and not facts.get("clusters")
    most = TOP_OF_MANY if len(top) > FEW else None
    for output, pairs in list(top.items())[:MOST_CLASSES]:
        against = facts.get("against", {}).get(output, [])[:most]
        title = "for a high value (blue) and a low one (orange)" if number else f"for {output}"
        if pairs or against:
            parts.append(Bars(f"Top features {title}", [*pairs[:most], *reversed(against)]))
    charts: list[Part] = []
    for output, curves in list(facts.get("shapes", {}).items())[:MOST_CLASSES]:
        for name, points in curves.items():
            added = "added to the value" if number else f"added to the score of {output}"
            charts.append(_plain(name, name, added, [Line(name, [x for x, _ in points], [y for _, y in points])]))
    return [
        Section("Top features", parts),
        Section("Numeric columns", charts, "What a value adds on its own, without interactions with other columns."),
    ]


def _data(columns: Sequence[Mapping[str, Any]]) -> Section:
    rows = []
    for fact in columns:
        cells = [_number(fact.get(name, 0 if name == "distinct" else "")) for name in KINDS]
        cells[3] = f"{fact.get('missing', 0.0):.1%}"
        reason = fact.get("reason", "")
        rows.append((*cells, f"left out: {reason}" if reason else fact.get("note", "")))
    table = Table("", ("column", "kind", "distinct", "missing", "example", "note"), rows, words=(4, 5))
    return Section("Data", [table] if rows else [])


def _number(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 10_000 or value.is_integer() else f"{value:.5g}"
    return "" if value is None else f"{value:,}" if isinstance(value, int) else str(value)
