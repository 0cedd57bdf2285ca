"""Progress for whoever watches: one line for a person, JSON lines for a program, events alone for a script; Ctrl-C."""

from __future__ import annotations

import json
import shutil
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO

from steepest.engine.history import Record
from steepest.engine.loop import Monitor
from steepest.learners.base import Progress

CLEAR = "\r\x1b[K"
REDRAW_SECONDS = 0.1


def choose_monitor(as_json: bool, quiet: bool) -> ShellMonitor:
    """Returns a monitor that prints JSON lines if asked for, one changing line on a terminal, else events alone."""
    if as_json:
        return JsonMonitor()
    if quiet or not sys.stderr.isatty():
        return ShellMonitor()
    return LineMonitor()


@contextmanager
def interruptible(monitor: ShellMonitor) -> Iterator[None]:
    """While the block runs, the first Ctrl-C or SIGTERM lets the monitor ask for an end after the current chunk, the
    second one ends at once; outside of the main thread nothing changes."""

    def interrupt(number: int, _: Any) -> None:
        if monitor.stopping:
            raise KeyboardInterrupt(number)
        monitor.stopping, monitor.signal = True, number

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, interrupt) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class ShellMonitor(Monitor):
    """Prints only events that need attention to stderr; `also` is a second monitor."""

    also: Monitor | None = None
    signal = 0  # that asked for the end

    def clear(self) -> None:
        """Clears what is not meant to stay; here there is nothing."""

    def begins(self, unit: str, rounds: int) -> None:
        """Passes the call on to `also`."""
        if self.also is not None:
            self.also.begins(unit, rounds)

    def epoch_done(self, record: Record) -> None:
        """Passes the record on to `also`."""
        if self.also is not None:
            self.also.epoch_done(record)

    def event(self, text: str) -> None:
        """Prints the event, and passes it on."""
        print(f"steepest: {text}", file=sys.stderr)
        if self.also is not None:
            self.also.event(text)

    def choice(self, text: str) -> None:
        """Passes the choice on to `also`."""
        if self.also is not None:
            self.also.event(text)


class JsonMonitor(ShellMonitor):
    """Prints one JSON object per epoch and per event to stdout."""

    def epoch_done(self, record: Record) -> None:
        """Prints the record."""
        print(json.dumps(record), flush=True)
        super().epoch_done(record)

    def event(self, text: str) -> None:
        """Prints the event."""
        print(json.dumps({"event": text}), flush=True)
        super().choice(text)

    choice = event


class LineMonitor(ShellMonitor):
    """Prints one line that changes: round k of n, loss, rows held out, rows per second, and the time left.

    Where the terminal is narrow it has fewer of these, in a very narrow one it is cut; it is gone when training ends.
    """

    def __init__(self, out: TextIO | None = None) -> None:
        self._out = sys.stderr if out is None else out
        self._unit, self._rounds = "epoch", 0
        self._done: Record = {}
        self._seconds = 0.0  # of all rounds that are over
        self._number = 0
        self._drawn = -REDRAW_SECONDS

    def begins(self, unit: str, rounds: int) -> None:
        """Starts a new line at the start of a run or of its second part."""
        self._unit, self._rounds, self._done, self._seconds, self._number = unit, rounds, {}, 0.0, 0
        super().begins(unit, rounds)

    def chunk_done(self, epoch: int, so_far: Progress, seconds: float, n_rows: int | None) -> None:
        """Redraws the line now and then."""
        now = time.monotonic()
        if now - self._drawn < REDRAW_SECONDS:
            return
        self._drawn = now
        rate = so_far.rows / seconds if seconds > 0 else 0.0
        total = n_rows or self._done.get("rows")
        left = ""
        if total and rate > 0:
            share = min(so_far.rows / total, 1.0)
            left = f"{_clock((self._rounds - epoch - share) * total / rate)} left"
        self._draw(epoch + 1, so_far.mean_loss, rate, left)

    def epoch_done(self, record: Record) -> None:
        """Redraws the line with what is known now."""
        self._done = record
        self._number += 1
        self._seconds += float(record.get("seconds") or 0.0)
        left = self._seconds / self._number * max(self._rounds - self._number, 0)
        shown = f"{_clock(left)} left" if self._unit == "epoch" else ""
        self._draw(int(record["epoch"]), float(record["loss"] or 0.0), float(record["rows_per_second"] or 0.0), shown)
        super().epoch_done(record)

    def event(self, text: str) -> None:
        """Prints the event in place of the line, which comes back below."""
        self.clear()
        super().event(text)

    choice = event

    def clear(self) -> None:
        """Clears the line."""
        self._out.write(CLEAR)
        self._out.flush()

    def _draw(self, number: int, loss: float, rate: float, left: str) -> None:
        held = self._done.get("holdout_loss")
        parts = [
            f"{self._unit} {number} of {self._rounds}" if self._unit == "epoch" else f"{self._unit} {number}",
            f"loss {loss:.5g}",
            "" if held is None else f"held out {held:.5g}",
            f"{rate:,.0f} rows/s" if rate else "",
            left,
        ]
        width = max(shutil.get_terminal_size().columns - 1, 1)
        for least in (3, 2, 4):  # the first to go where the terminal is narrow: rows per second, held out, time left
            if len("  ".join(filter(None, parts))) > width:
                parts[least] = ""
        self._out.write(CLEAR + "  ".join(filter(None, parts))[:width])
        self._out.flush()


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(max(seconds, 0.0)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
