"""A monitor that prints: one line per epoch to stderr."""

from __future__ import annotations

import sys

from steepest.engine.history import Record
from steepest.engine.loop import Monitor


def describe(record: Record) -> str:
    """One epoch in a line."""
    parts = [f"epoch {record['epoch']}", f"{record['rows']:,} rows", f"loss {record['loss']:.5f}"]
    if "holdout_loss" in record:
        parts.append(f"holdout {record['holdout_loss']:.5f}")
    parts += [
        f"objective {record['objective']:.5f}",
        f"step {record['eta']:.3g}",
        f"{record['nonzeros']:,} non-zeros",
        f"{record['rows_per_second']:,.0f} rows/s",
    ]
    return ", ".join(parts)


class PrintMonitor(Monitor):
    """One line per epoch on stderr."""

    def epoch_done(self, record: Record) -> None:
        """Prints the record."""
        print(describe(record), file=sys.stderr, flush=True)

    def event(self, text: str) -> None:
        """Prints the event."""
        print(text, file=sys.stderr, flush=True)

    choice = event
