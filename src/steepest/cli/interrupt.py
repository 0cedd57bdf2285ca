"""Ctrl-C during training: the first one asks the loop to end after the current chunk, the second one ends at once."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from typing import Any

from steepest.engine.loop import Monitor


class Interrupt:
    """Whether Ctrl-C was pressed."""

    def __init__(self) -> None:
        self.requested = False

    def __call__(self, *_: Any) -> None:
        """What the signal does."""
        if self.requested:
            raise KeyboardInterrupt
        self.requested = True


@contextlib.contextmanager
def interruptible(monitor: Monitor) -> Iterator[Interrupt]:
    """While the block runs, Ctrl-C makes this monitor ask for an end; outside of the main thread nothing changes."""
    interrupt = Interrupt()
    monitor.wants_stop = lambda: interrupt.requested  # type: ignore[method-assign]
    if threading.current_thread() is not threading.main_thread():
        yield interrupt
        return
    before = signal.signal(signal.SIGINT, interrupt)
    try:
        yield interrupt
    finally:
        signal.signal(signal.SIGINT, before)
