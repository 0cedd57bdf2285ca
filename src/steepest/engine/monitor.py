"""A monitor that prints: one line per epoch to stderr."""

from __future__ import annotations

import sys

from steepest.engine.history import Record
from steepest.engine.loop import Monitor


def describe(record: Record) -> str:
    """One line of text for the record of an epoch."""
    unit = "iteration" if "passes" in record else "epoch"
    parts = [f"{unit} {record['epoch']}", f"{record['rows']:,} rows", f"loss {_shown(record['loss'])}"]
    if "holdout_loss" in record:
        parts.append(f"holdout {_shown(record['holdout_loss'])}")
    parts += [
        f"objective {_shown(record['objective'])}",
        f"step {record['eta']:.3g}",
        f"{record['nonzeros']:,} non-zeros",
        f"{record['rows_per_second']:,.0f} rows/s",
    ]
    return ", ".join(parts)


def _shown(value: float) -> str:
    return f"{value:.5f}" if abs(value) < 1e5 else f"{value:.6g}"


class PrintMonitor(Monitor):
    """A monitor that prints one line per epoch to stderr."""

    def epoch_done(self, record: Record) -> None:
        """Prints the record."""
        print(describe(record), file=sys.stderr, flush=True)

    def event(self, text: str) -> None:
        """Prints the event."""
        print(text, file=sys.stderr, flush=True)

    choice = event
