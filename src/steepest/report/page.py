"""One HTML page that needs nothing else: sections of tables, sentences and charts as SVG, no scripts, no other files.

Light or dark as the reader's system is, and as narrow as a phone: charts shrink, and wide tables scroll by themselves.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

from steepest.report.chart import Chart, style

LONG_NUMBER = re.compile(r"(?<![\w.])-?\d+\.\d{5,}(?:e-?\d+)?(?![\w.])")
WIDTH, HEIGHT = 620, 400
LEFT, RIGHT, TOP, BOTTOM = 88, 18, 34, 48
FEW_CLASSES = 6  # of a confusion matrix, beyond which their names above it are upright
# Colours that would be dim on a dark page: black is drawn in the colour of the text, blue and orange in lighter ones.
DIM = {"#000000": "currentColor", "#0072b2": "var(--good, #0072b2)", "#d55e00": "var(--bad, #d55e00)"}
STYLE = """
:root { color-scheme: light dark; --text: #1b1f24; --soft: #57606a; --page: #ffffff; --card: #f6f8fa; --line: #d0d7de;
  --good: #0072b2; --bad: #c44e00; --shade: 0, 114, 178 }
@media (prefers-color-scheme: dark) { :root { --text: #e6edf3; --soft: #9aa4af; --page: #0d1117; --card: #161b22;
  --line: #30363d; --good: #3b9ddd; --bad: #f0883e; --shade: 86, 180, 233 } }
* { box-sizing: border-box }
body { font: 15px/1.5 system-ui, sans-serif; margin: 0 auto; max-width: 78em; padding: 1.5em 1em 4em;
  color: var(--text); background: var(--page) }
h1 { font-size: 1.6em; margin: 0 0 .3em; overflow-wrap: anywhere } h2 { font-size: 1.15em; margin: 2em 0 .6em }
p { margin: .4em 0; overflow-wrap: anywhere }
section > div.parts { display: flex; flex-wrap: wrap; gap: 1em; align-items: flex-start }
figure, .table { margin: 0; background: var(--card); border: 1px solid var(--line); border-radius: 8px; padding: .8em;
  max-width: 100% }
figure { flex: 1 1 26em; max-width: 40em; align-self: stretch } .table { overflow-x: auto }
svg.chart { width: 100%; height: auto; display: block; fill: var(--text); font-size: 13px }
svg .grid { stroke: var(--line) }
table { border-collapse: collapse; font-variant-numeric: tabular-nums }
caption { text-align: left; font-weight: 600; padding-bottom: .4em }
td, th { padding: .2em .7em; text-align: right; white-space: nowrap }
td:first-child, th:first-child { text-align: left }
td.words { text-align: left; white-space: normal; min-width: 12em } th.words { text-align: left }
th { color: var(--soft); font-weight: 600 }
tr + tr td { border-top: 1px solid var(--line) }
.many tr:first-child th { padding: .2em .4em; vertical-align: bottom }
.many th span { writing-mode: vertical-rl; transform: rotate(180deg) } .many td { padding: .2em .5em; min-width: 2.4em }
.matrix td { border: 1px solid var(--line) }
.facts { display: flex; flex-wrap: wrap; gap: .8em }
.facts div { background: var(--card); border: 1px solid var(--line);
  border-radius: 8px; padding: .5em .9em }
.facts b { display: block; font-size: 1.25em } .facts span { color: var(--soft) }
svg .reference { stroke: var(--soft); stroke-dasharray: 4 4 }
.legend span { margin-right: 1.2em; white-space: nowrap } pre { background: var(--card); border: 1px solid var(--line);
  border-radius: 8px; padding: .7em; white-space: pre-wrap; overflow-wrap: anywhere } .soft { color: var(--soft) }
.bar { display: inline-block; height: .7em; border-radius: 2px; background: var(--good) }
.bar.low { background: var(--bad) }
@media (max-width: 600px) { svg.chart { font-size: 17px } }
td.bars { text-align: left; min-width: 5em } td.name { white-space: normal; overflow-wrap: anywhere; min-width: 9em }
"""


@dataclass(frozen=True, slots=True)
class Table:
    """Cells as text, under a title; `words` are numbers of columns that hold text."""

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    words: Sequence[int] = ()


@dataclass(frozen=True, slots=True)
class Matrix:
    """Counts by true and predicted class, the darker the larger the share of the row."""

    title: str
    names: Sequence[str]
    rows: Sequence[Sequence[float]]


@dataclass(frozen=True, slots=True)
class Bars:
    """Names with numbers, drawn as bars to compare them by."""

    title: str
    pairs: Sequence[tuple[str, float]]


Part = Table | Matrix | Bars | Chart


@dataclass(frozen=True, slots=True)
class Section:
    """Parts under a heading, with a sentence on how to read them."""

    title: str
    parts: Sequence[Part]
    note: str = ""


def page(
    title: str,
    facts: Mapping[str, str],
    sections: Sequence[Section],
    about: Mapping[str, str],
    sentences: Sequence[str] = (),
    *,
    refresh: int | None = None,
) -> str:
    """A page of sections; `facts` are shown large at the top, `about` (command, date, versions) at the end."""
    large = "".join(f"<div><b>{escape(value)}</b><span>{escape(name)}</span></div>" for name, value in facts.items())
    body = [f"<div class=facts>{large}</div>", *(f"<p>{escape(sentence)}</p>" for sentence in sentences)]
    for section in sections:
        if section.parts:
            note = f"<p class=soft>{escape(section.note)}</p>" if section.note else ""
            parts = "".join(map(_part, section.parts))
            body.append(f"<section><h2>{escape(section.title)}</h2>{note}<div class=parts>{parts}</div></section>")
    command = about.get("command")
    rest = [f"{name}: {value}" for name, value in about.items() if name != "command"]
    if command:
        body.append(f"<h2>How this page was made</h2><pre>{escape(command)}</pre>")
    body += [f"<p class=soft>{escape(line)}</p>" for line in rest]
    return document(title, "\n".join(body), refresh)


def document(title: str, body: str, refresh: int | None = None) -> str:
    """The frame of every page."""
    again = f"<meta http-equiv=refresh content={refresh}>" if refresh else ""
    head = f"<meta charset=utf-8><meta name=viewport content='width=device-width, initial-scale=1'>{again}"
    head += f"<title>{escape(title)}</title><style>{STYLE}</style>"
    return f"<!doctype html>\n<html lang=en><head>{head}</head><body><h1>{escape(title)}</h1>\n{body}\n</body></html>\n"


def _part(part: Part) -> str:
    if isinstance(part, Chart):
        names = [line.name for line in part.lines if not line.reference]
        below = legend(names) if len(names) > 1 else ""
        return f"<figure>{as_svg(part)}{below}</figure>"
    if isinstance(part, Matrix):
        return _matrix(part)
    return _bars(part) if isinstance(part, Bars) else _table(part)


def _table(table: Table) -> str:
    head = "".join(
        f"<th{' class=words' if k in table.words else ''}>{escape(c)}</th>" for k, c in enumerate(table.header)
    )
    body = "".join(
        "<tr>"
        + "".join(f"<td{' class=words' if k in table.words else ''}>{escape(c)}</td>" for k, c in enumerate(row))
        + "</tr>"
        for row in table.rows
    )
    caption = f"<caption>{escape(table.title)}</caption>" if table.title else ""
    return f"<div class=table><table>{caption}<tr>{head}</tr>{body}</table></div>"


def _matrix(matrix: Matrix) -> str:
    head = "<th>true \\ predicted</th>" + "".join(f"<th><span>{escape(name)}</span></th>" for name in matrix.names)
    rows = []
    for name, row in zip(matrix.names, matrix.rows, strict=True):
        total = sum(row) or 1.0
        cells = "".join(
            f'<td style="background: rgba(var(--shade), {0.55 * n / total:.2f})">{n:,.0f}</td>' if n else "<td></td>"
            for n in row
        )
        rows.append(f"<tr><th>{escape(name)}</th>{cells}</tr>")
    caption = f"<caption>{escape(matrix.title)}</caption>"
    shape = "matrix many" if len(matrix.names) > FEW_CLASSES else "matrix"
    return f"<div class=table><table class='{shape}'>{caption}<tr>{head}</tr>{''.join(rows)}</table></div>"


def _bars(bars: Bars) -> str:
    largest = max((abs(value) for _, value in bars.pairs), default=0.0) or 1.0
    rows = []
    for name, value in bars.pairs:
        width = f"{5 * abs(value) / largest:.2f}em"
        bar = f'<span class="bar{" low" if value < 0 else ""}" style="width: {width}"></span>'
        shown = f"{value:+,.4f}" if abs(value) < 1000 else f"{value:+,.0f}"
        rows.append(
            f"<tr><td class=name>{escape(short_numbers(name))}</td><td>{shown}</td><td class=bars>{bar}</td></tr>"
        )
    return f"<div class=table><table><caption>{escape(bars.title)}</caption>{''.join(rows)}</table></div>"


def legend(names: Sequence[str]) -> str:
    """Which line is whose."""
    marks = []
    for number, name in enumerate(names):
        colour, dashes, _ = style(number)
        stroke = f'stroke="{_colour(colour)}" stroke-width=2.5 stroke-dasharray="{_dashes(dashes)}"'
        mark = f"<svg width=30 height=12 aria-hidden=true><line x1=0 y1=6 x2=28 y2=6 {stroke}/></svg>"
        marks.append(f"<span>{mark} {escape(name)}</span>")
    return f"<p class=legend>{''.join(marks)}</p>" if marks else ""


def _colour(colour: str) -> str:
    return DIM.get(colour, colour)


def short_numbers(name: str) -> str:
    """The name of a feature with its long numbers, such as knots, cut to four digits."""
    return LONG_NUMBER.sub(lambda found: f"{float(found[0]):.4g}", name)


def _dashes(dashes: Sequence[int]) -> str:
    return " ".join(map(str, dashes)) or "none"


def as_svg(chart: Chart) -> str:
    """A chart as SVG."""
    points = {line.name: chart.points(line) for line in chart.lines}
    xs = _Axis([x for pairs in points.values() for x, _ in pairs], chart.log_x, LEFT, WIDTH - RIGHT)
    ys = _Axis([y for pairs in points.values() for _, y in pairs], chart.log_y, HEIGHT - BOTTOM, TOP)
    title = escape(chart.title)
    parts = [f'<svg class=chart viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{title}">']
    parts.append(f'<text x="{WIDTH / 2}" y="18" text-anchor="middle" font-weight="bold">{title}</text>')
    whole = chart.x_label in ("epoch", "round", "iteration")
    for value, text in xs.ticks(whole=whole):
        x = xs.place(value)
        parts.append(f'<line class="grid" x1="{x:.1f}" y1="{TOP}" x2="{x:.1f}" y2="{HEIGHT - BOTTOM}"/>')
        parts.append(f'<text x="{x:.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{text}</text>')
    for value, text in ys.ticks():
        y = ys.place(value)
        parts.append(f'<line class="grid" x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{text}</text>')
    parts.append(f'<text x="{WIDTH / 2}" y="{HEIGHT - 8}" text-anchor="middle">{escape(chart.x_label)}</text>')
    middle = f'transform="translate(19 {HEIGHT / 2}) rotate(-90)" text-anchor="middle"'
    parts.append(f"<text {middle}>{escape(chart.y_label)}</text>")
    references = {line.name for line in chart.lines if line.reference}
    for number, (name, pairs) in enumerate(points.items()):
        colour, dashes, _ = style(number)
        path = " ".join(f"{xs.place(x):.1f},{ys.place(y):.1f}" for x, y in pairs)
        if name in references:
            parts.append(
                f'<polyline class=reference points="{path}" fill="none"><title>{escape(name)}</title></polyline>'
            )
            continue
        stroke = f'stroke="{_colour(colour)}" stroke-width="2" stroke-dasharray="{_dashes(dashes)}"'
        if chart.joined:
            parts.append(f'<polyline points="{path}" fill="none" {stroke}><title>{escape(name)}</title></polyline>')
        fill = f'r="3" fill="{_colour(colour)}"'
        dots = pairs if len(pairs) < 40 or not chart.joined else ()
        parts += [f'<circle cx="{xs.place(x):.1f}" cy="{ys.place(y):.1f}" {fill}/>' for x, y in dots]
    return "".join(parts) + "</svg>"


class _Axis:
    """Values to places on the paper."""

    def __init__(self, values: Sequence[float], log: bool, start: float, end: float) -> None:
        self.log, self.start, self.end = log, start, end
        low, high = (min(values), max(values)) if values else (1.0, 10.0)
        self.low, self.high = self._scaled(low), self._scaled(high)
        if self.high - self.low < 1e-12 * max(abs(self.high), 1.0):
            room = 0.5 if self.log else 0.05 * max(abs(self.high), 1.0)
            self.low, self.high = self.low - room, self.high + room
        margin = 0.04 * (self.high - self.low)
        self.low, self.high = self.low - margin, self.high + margin

    def _scaled(self, value: float) -> float:
        return math.log10(value) if self.log else value

    def place(self, value: float) -> float:
        return self.start + (self._scaled(value) - self.low) / (self.high - self.low) * (self.end - self.start)

    def ticks(self, *, whole: bool = False) -> list[tuple[float, str]]:
        """Powers of ten where there are at least two of them, else round numbers, or whole ones."""
        if self.log:
            powers = range(math.ceil(self.low), math.floor(self.high) + 1)
            if len(powers) >= 2:
                return [(10.0**k, f"{10.0**k:g}") for k in powers[:: 1 + len(powers) // 10]]
            low, high = 10**self.low, 10**self.high
        else:
            low, high = self.low, self.high
        step = 10 ** math.floor(math.log10((high - low) / 3))
        step *= next(factor for factor in (1, 2, 5, 10) if (high - low) / (factor * step) <= 7)
        step = max(step, 1.0) if whole else step
        first = math.ceil(low / step)
        marks = [step * k for k in range(first, math.floor(high / step) + 1)]
        return [(mark, _tick(mark)) for mark in marks if mark > 0 or not self.log]


def _tick(mark: float) -> str:
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(mark) >= size:
            return f"{mark / (1e3 if letter == 'k' else size):.6g}{letter}"
    return f"{mark:.6g}"
