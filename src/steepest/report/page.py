"""One HTML page that needs nothing else: tables, sentences and charts as SVG, without scripts or other files."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from steepest import atomic
from steepest.report.chart import Chart, style

WIDTH, HEIGHT = 620, 400
LEFT, RIGHT, TOP, BOTTOM = 70, 14, 30, 46
STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2em auto; max-width: 70em; padding: 0 1em; color: #1a1a1a }
table { border-collapse: collapse; margin: 1em 2em 1em 0; display: inline-table; vertical-align: top }
caption { text-align: left; font-weight: bold } td, th { padding: .25em .8em; text-align: right }
th { border-bottom: 2px solid #444 } td { border-bottom: 1px solid #ddd }
td:first-child, th:first-child { text-align: left }
figure { display: inline-block; margin: 0 1em 1em 0 } svg { max-width: 100%; height: auto }
.legend span { margin-right: 1.4em; white-space: nowrap } pre { background: #f4f4f4; padding: .6em }
"""


@dataclass(frozen=True, slots=True)
class Table:
    """Cells as text, under a title."""

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]


def save_page(
    path: str | os.PathLike[str],
    title: str,
    sentences: Sequence[str],
    tables: Sequence[Table],
    charts: Sequence[Chart],
) -> None:
    """Writes the page."""
    names = list(dict.fromkeys(line.name for chart in charts for line in chart.lines))
    parts = [f"<!doctype html><html lang=en><meta charset=utf-8><title>{escape(title)}</title><style>{STYLE}</style>"]
    parts.append(f"<h1>{escape(title)}</h1>")
    parts += [f"<p>{escape(sentence)}</p>" for sentence in sentences]
    parts.append(_legend(names))
    parts += [f"<figure>{as_svg(chart, names)}</figure>" for chart in charts]
    parts += [_table(table) for table in tables]
    atomic.write_text(path, "\n".join(parts) + "</html>\n")


def _table(table: Table) -> str:
    head = "".join(f"<th>{escape(cell)}</th>" for cell in table.header)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in table.rows)
    return f"<table><caption>{escape(table.title)}</caption><tr>{head}</tr>{body}</table>"


def _legend(names: Sequence[str]) -> str:
    marks = []
    for number, name in enumerate(names):
        colour, dashes, _ = style(number)
        line = f'<line x1=0 y1=6 x2=28 y2=6 stroke="{colour}" stroke-width=2.5 stroke-dasharray="{_dashes(dashes)}"/>'
        marks.append(f"<span><svg width=30 height=12>{line}</svg> {escape(name)}</span>")
    return f"<p class=legend>{''.join(marks)}</p>"


def _dashes(dashes: Sequence[int]) -> str:
    return " ".join(map(str, dashes)) or "none"


def as_svg(chart: Chart, names: Sequence[str] | None = None) -> str:
    """A chart as SVG; `names` fixes the colours of the lines."""
    names = [line.name for line in chart.lines] if names is None else names
    points = {line.name: chart.points(line) for line in chart.lines}
    xs = _Axis([x for pairs in points.values() for x, _ in pairs], chart.log_x, LEFT, WIDTH - RIGHT)
    ys = _Axis([y for pairs in points.values() for _, y in pairs], chart.log_y, HEIGHT - BOTTOM, TOP)
    parts = [f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" role="img" font-size="12" fill="#1a1a1a">']
    parts.append(f'<text x="{WIDTH / 2}" y="18" text-anchor="middle" font-weight="bold">{escape(chart.title)}</text>')
    for value, text in xs.ticks():
        x = xs.place(value)
        parts.append(f'<line x1="{x:.1f}" y1="{TOP}" x2="{x:.1f}" y2="{HEIGHT - BOTTOM}" stroke="#ddd"/>')
        parts.append(f'<text x="{x:.1f}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle">{text}</text>')
    for value, text in ys.ticks():
        y = ys.place(value)
        parts.append(f'<line x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}" stroke="#ddd"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{text}</text>')
    parts.append(f'<text x="{WIDTH / 2}" y="{HEIGHT - 10}" text-anchor="middle">{escape(chart.x_label)}</text>')
    middle = f'transform="translate(14 {HEIGHT / 2}) rotate(-90)" text-anchor="middle"'
    parts.append(f"<text {middle}>{escape(chart.y_label)}</text>")
    for name, pairs in points.items():
        colour, dashes, _ = style(list(names).index(name))
        path = " ".join(f"{xs.place(x):.1f},{ys.place(y):.1f}" for x, y in pairs)
        stroke = f'stroke="{colour}" stroke-width="2" stroke-dasharray="{_dashes(dashes)}"'
        parts.append(f'<polyline points="{path}" fill="none" {stroke}><title>{escape(name)}</title></polyline>')
        dots = pairs if len(pairs) < 40 else ()
        parts += [f'<circle cx="{xs.place(x):.1f}" cy="{ys.place(y):.1f}" r="3" fill="{colour}"/>' for x, y in dots]
    return "".join(parts) + "</svg>"


class _Axis:
    """Values to places on the paper."""

    def __init__(self, values: Sequence[float], log: bool, start: float, end: float) -> None:
        self.log, self.start, self.end = log, start, end
        low, high = (min(values), max(values)) if values else (1.0, 10.0)
        self.low, self.high = self._scaled(low), self._scaled(high)
        if self.high - self.low < 1e-12:
            self.low, self.high = self.low - 0.5, self.high + 0.5
        margin = 0.04 * (self.high - self.low)
        self.low, self.high = self.low - margin, self.high + margin

    def _scaled(self, value: float) -> float:
        return math.log10(value) if self.log else value

    def place(self, value: float) -> float:
        return self.start + (self._scaled(value) - self.low) / (self.high - self.low) * (self.end - self.start)

    def ticks(self) -> list[tuple[float, str]]:
        """Powers of ten where there are at least two of them, else round numbers."""
        if self.log:
            powers = range(math.ceil(self.low), math.floor(self.high) + 1)
            if len(powers) >= 2:
                return [(10.0**k, f"{10.0**k:g}") for k in powers[:: 1 + len(powers) // 10]]
            low, high = 10**self.low, 10**self.high
        else:
            low, high = self.low, self.high
        step = 10 ** math.floor(math.log10((high - low) / 3))
        step *= next(factor for factor in (1, 2, 5, 10) if (high - low) / (factor * step) <= 7)
        first = math.ceil(low / step)
        marks = [step * k for k in range(first, math.floor(high / step) + 1)]
        return [(mark, f"{mark:.6g}") for mark in marks if mark > 0 or not self.log]
