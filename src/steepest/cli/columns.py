"""The columns of a table as a small table: kind, distinct values, share of missing ones, an example, and notes."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

HEAD = ("column", "kind", "distinct", "missing", "example", "note")
RIGHT = (2, 3)  # columns of numbers
MOST_SHOWN = 40
LONGEST_NAME = 32


def facts_of(hasher: Any) -> list[dict[str, Any]]:
    """Returns the columns of a hasher as plain values; nothing if there is one text and nothing else."""
    columns: tuple[Any, ...] = getattr(hasher, "columns_", ())
    if len(columns) == 1 and columns[0].kind == "text":
        return []
    misfits = getattr(hasher, "misfits_", {})
    return [
        column.as_dict() | ({"misfits": misfits[column.name]} if column.name in misfits else {}) for column in columns
    ]


def crosses_of(model: Any) -> list[tuple[str, str]]:
    """Pairs of columns whose features are crossed."""
    hasher = getattr(model, "hasher_", None)
    if hasher is None:
        return list(getattr(getattr(model, "vw_names_", None), "crosses", ()))
    return [*getattr(hasher, "cross", ()), *getattr(hasher, "crosses_", ())]


def rows_of(facts: Sequence[Mapping[str, Any]]) -> list[Sequence[str]]:
    """Returns one row of words per column of the table."""
    return [
        (
            _cut(fact["name"]),
            fact["kind"],
            f"{fact.get('distinct', 0):,}",
            f"{fact.get('missing', 0.0):.1%}" if fact.get("missing") else "0%",
            fact.get("example", ""),
            _note(fact),
        )
        for fact in facts[:MOST_SHOWN]
    ]


def as_lines(facts: Sequence[Mapping[str, Any]]) -> list[str]:
    """Formats a table as aligned lines."""
    if not facts:
        return []
    rows: list[Sequence[str]] = [HEAD, *rows_of(facts)]
    widths = [max(len(row[k]) for row in rows) for k in range(len(HEAD))]
    lines = [
        "  ".join(cell.rjust(widths[k]) if k in RIGHT else cell.ljust(widths[k]) for k, cell in enumerate(row)).rstrip()
        for row in rows
    ]
    return lines + _more(facts)


def show(facts: Sequence[Mapping[str, Any]]) -> None:
    """Prints the table on stderr, with colours if a terminal is watching."""
    if not facts:
        return
    if not sys.stderr.isatty():
        print("\n".join(as_lines(facts)), file=sys.stderr)
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, 2, 0, 0))
    for k, name in enumerate(HEAD):
        table.add_column(name, justify="right" if k in RIGHT else "left", no_wrap=k < len(HEAD) - 1)
    for fact, row in zip(facts, rows_of(facts), strict=False):
        table.add_row(*(Text(cell) for cell in row), style="dim" if fact.get("reason") else None)
    console = Console(stderr=True)
    console.print(table)
    for line in _more(facts):
        console.print(line)


def _more(facts: Sequence[Mapping[str, Any]]) -> list[str]:
    hidden = len(facts) - MOST_SHOWN
    return [f"... and {hidden:,} more columns; steepest inspect --json shows all"] if hidden > 0 else []


def _cut(name: str) -> str:
    return name if len(name) <= LONGEST_NAME else name[: LONGEST_NAME - 3] + "..."


def _note(fact: Mapping[str, Any]) -> str:
    notes = []
    if fact.get("reason"):
        notes.append(f"left out: {fact['reason']}")
    if fact["kind"] == "date":
        notes.append("split into its parts")
    if fact.get("source"):
        notes.append(f"part of {_cut(fact['source'])}")
    if fact.get("knots"):
        notes.append(f"{len(fact['knots'])} knots")
    if fact["kind"] == "category" and fact.get("format"):
        notes.append("parts count, too")
    if fact.get("note"):
        notes.append(fact["note"])
    if fact.get("misfits"):
        notes.append(f"{fact['misfits']:,} values did not fit this type and count as missing")
    return "; ".join(notes)
