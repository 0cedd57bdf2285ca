"""Pages on comparing: folds of a cross-validation, trials of a search, solvers of a race."""

from __future__ import annotations

import os
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from steepest import atomic
from steepest.report.chart import Chart, Line
from steepest.report.page import Section, Table, page

Path = str | os.PathLike[str]


def save_folds(
    path: Path, model: str, folds: Sequence[Mapping[str, Any]], metrics: Sequence[str], about: Mapping[str, str]
) -> None:
    """Every fold of a cross-validation."""
    names = ("fold", "rows", *metrics, "seconds")
    table = Table("", names, [[_cell(fold[name]) for name in names] for fold in folds])
    numbers = [float(fold["fold"]) for fold in folds]
    charts, means = [], {}
    for name in metrics:
        values = [float(f[name]) for f in folds]
        mean, sd = statistics.fmean(values), statistics.stdev(values)
        lines = [Line(name, numbers, values), Line("mean", [numbers[0], numbers[-1]], [mean, mean], reference=True)]
        charts.append(Chart(name, "fold", name, lines, log_x=False, log_y=False, joined=False))
        means[f"mean {name} and standard deviation"] = f"{_cell(mean)} ± {sd:.2g}"
    sections = [Section("Folds", [table]), Section("By fold", charts)]
    text = page("Cross-validation", {"folds": str(len(folds)), **means}, sections, about, [model])
    atomic.write_text(path, text)


def save_trials(path: Path, found: Mapping[str, Any], command: str, about: Mapping[str, str]) -> None:
    """Every trial of a search, and the command that trains with the best parameters."""
    trials: Sequence[Mapping[str, Any]] = found["trials"]
    names = list(dict.fromkeys(name for trial in trials for name in trial["parameters"]))
    rest = [n for n in dict.fromkeys(n for t in trials for n in t) if n not in ("trial", "rows", "parameters", "note")]
    rows = [
        [
            _cell(trial["trial"]),
            _cell(trial["rows"]),
            *(_cell(trial["parameters"].get(name)) for name in names),
            *(_cell(trial.get(name)) for name in rest),
        ]
        for trial in trials
    ]
    metric, charts = found["metric"], []
    for name in names:
        points: list[tuple[Any, Any, int]] = [(t["parameters"].get(name), t.get(metric), t["rows"]) for t in trials]
        sizes = sorted({rows for _, _, rows in points})
        lines = []
        for size in sizes:
            at = sorted((x, y) for x, y, n in points if n == size and _is_number(x) and _is_number(y))
            if len({x for x, _ in at}) > 1:
                lines.append(Line(f"{size:,} rows", [float(x) for x, _ in at], [float(y) for _, y in at]))
        positive = all(x > 0 for line in lines for x in line.x)
        if lines:
            charts.append(Chart(f"{metric} by {name}", name, metric, lines, log_x=positive, log_y=False, joined=False))
    best = found["best"]
    facts = {name: _cell(value) for name, value in best.items() if name not in ("trial", "parameters")}
    sections = [
        Section(
            "Metrics by parameter", charts, "Each point is a trial. The other parameters differ between trials, too."
        ),
        Section(
            "Trials",
            [Table("", ("trial", "rows", *names, *("held-out loss" if n == "loss" else n for n in rest)), rows)],
        ),
    ]
    sentences = [f"Trial {best['trial']} is the best: {command}", *found["notes"]]
    text = page("Parameter search", {"trials": str(len(trials)), **facts}, sections, about, sentences)
    atomic.write_text(path, text)


def save_race(
    path: Path,
    title: str,
    remarks: Sequence[str],
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    charts: Sequence[Chart],
    about: Mapping[str, str],
) -> None:
    """Solvers side by side."""
    sections = [Section("By time", charts), Section("Solvers", [Table("", header, rows)])]
    within = bool(rows) and rows[0][list(header).index("to 1 %")] != "-"
    quickest = {"first within 1 % of the optimum": rows[0][0] if within else "none", "solvers": str(len(rows))}
    atomic.write_text(path, page("Race of solvers", quickest, sections, about, [title, *remarks]))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value == value


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.5g}"
    if isinstance(value, list | tuple):
        return ",".join(map(_cell, value))
    return (
        "" if value is None else f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
    )
