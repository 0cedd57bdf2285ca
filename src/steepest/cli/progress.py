"""Progress for whoever watches: a bar for a person, JSON lines for a program, silence for a script."""

from __future__ import annotations

import json
import sys
from typing import Any

from steepest.engine.history import Record
from steepest.engine.loop import Monitor
from steepest.engine.monitor import describe
from steepest.learners.base import Progress


def choose_monitor(as_json: bool, quiet: bool) -> Monitor:
    """JSON lines if asked for, a bar on a terminal, else nothing."""
    if as_json:
        return JsonMonitor()
    if quiet or not sys.stderr.isatty():
        return EventMonitor()
    return BarMonitor()


class EventMonitor(Monitor):
    """Only what must not be missed, on stderr."""

    def event(self, text: str) -> None:
        """Says it."""
        print(f"steepest: {text}", file=sys.stderr)


class JsonMonitor(Monitor):
    """One JSON object an epoch, and one an event, on stdout."""

    def epoch_done(self, record: Record) -> None:
        """Prints the record."""
        print(json.dumps(record), flush=True)

    def event(self, text: str) -> None:
        """Prints the event."""
        print(json.dumps({"event": text}), flush=True)

    choice = event


class BarMonitor(Monitor):
    """A bar with rows per second and the time left, then a line per epoch."""

    def __init__(self) -> None:
        self._bar: Any = None
        self.task: Any = None
        self._epoch = -1

    def _open(self, epoch: int, n_rows: int | None) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

        columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[rate]}"))
        times = (TimeElapsedColumn(), TimeRemainingColumn())
        self._bar = Progress(*columns, *times, console=Console(stderr=True), transient=True)
        self._bar.start()
        self.task = self._bar.add_task(f"epoch {epoch + 1}", total=n_rows, rate="")
        self._epoch = epoch

    def chunk_done(self, epoch: int, so_far: Progress, seconds: float, n_rows: int | None) -> None:
        """Moves the bar."""
        if self._bar is None:
            self._open(epoch, n_rows)
        rate = so_far.rows / seconds if seconds > 0 else 0.0
        text = f"{so_far.rows:,} rows, {rate:,.0f} rows/s, loss {so_far.mean_loss:.4f}"
        self._bar.update(self.task, completed=so_far.rows, rate=text)

    def epoch_done(self, record: Record) -> None:
        """Ends the bar and leaves a line."""
        self._close()
        print(describe(record), file=sys.stderr)

    def event(self, text: str) -> None:
        """Says it above the bar."""
        self._close()
        print(f"steepest: {text}", file=sys.stderr)

    choice = event

    def _close(self) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None
