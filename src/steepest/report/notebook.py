"""An estimator as a notebook shows it: its parameters and, once it is fitted, its losses and largest weights."""

from __future__ import annotations

from html import escape
from operator import itemgetter
from typing import Any

from steepest.report.page import as_svg, legend
from steepest.report.training import loss_charts

TOP = 8
MOST_CLASSES = 4
OF = {"classifier": "for", "clusterer": "of cluster"}  # an output of each kind of model
CELL = "padding:1px 10px 1px 0;text-align:left"


def estimator_html(model: Any) -> str:
    """A small piece of HTML without scripts, in the colours of the notebook."""
    parts = [f"<pre>{escape(repr(model))}</pre>", _parameters(model)]
    if model.__sklearn_is_fitted__():
        charts = "".join(
            f'<div style="max-width:30em;color:inherit;fill:currentColor">{as_svg(chart)}'
            f"{legend([line.name for line in chart.lines]) if len(chart.lines) > 1 else ''}</div>"
            for chart in loss_charts(model.history_.records)
        )
        parts += [charts, *_weights(model)]
    style = "<style>.steepest svg.chart{width:100%;height:auto;fill:currentColor}.steepest .grid{stroke:#8884}"
    style += ".steepest .legend span{margin-right:1.2em}</style>"
    return f'<div class="steepest">{style}{"".join(parts)}</div>'


def _parameters(model: Any) -> str:
    rows = "".join(
        f'<tr><td style="{CELL}">{escape(name)}</td><td style="{CELL}">{escape(repr(value))}</td></tr>'
        for name, value in model.get_params(deep=False).items()
    )
    return f"<details><summary>parameters</summary><table>{rows}</table></details>"


def _weights(model: Any) -> list[str]:
    if not hasattr(model, "top_features"):
        return []
    found = []
    for label, pairs in list(filter(itemgetter(1), model.top_features(TOP).items()))[:MOST_CLASSES]:
        rows = "".join(
            f'<tr><td style="{CELL}">{escape(name)}</td><td style="{CELL}">{weight:+,.4g}</td></tr>'
            for name, weight in pairs
        )
        title = f"top features{escape(f' {OF[model.kind]} {label}') if model.kind in OF else ''}"
        found.append(f"<details open><summary>{title}</summary><table>{rows}</table></details>")
    return found
