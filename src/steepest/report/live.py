"""The page of a training that is still running, served on the loopback address by the standard library."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from steepest.engine.history import Record
from steepest.engine.loop import Monitor
from steepest.report.page import Section, page
from steepest.report.training import loss_charts

REFRESH_SECONDS = 1


class LivePage(Monitor):
    """Follows a run and keeps the page of what happened so far."""

    def __init__(self, model: str, command: str) -> None:
        self.address = ""
        self._model, self._about = model, {"command": command}
        self._records: list[Record] = []
        self._events: list[str] = []
        self._unit, self._rounds = "epoch", 0

    def begins(self, unit: str, rounds: int) -> None:
        """Stores the number of rounds."""
        self._unit, self._rounds = unit, rounds

    def epoch_done(self, record: Record) -> None:
        """Adds a point to the curves."""
        self._records.append(dict(record))

    def event(self, text: str) -> None:
        """Adds a sentence to the page."""
        self._events.append(text)

    def html(self) -> str:
        """The page as it is now; it loads itself anew every second."""
        records = list(self._records)
        done = f"{len(records)} of {self._rounds}" if self._unit == "epoch" else f"{len(records)}"
        facts = {f"{self._unit}s done": done}
        if records:
            last = records[-1]
            shown = {"loss": "loss", "held-out loss": "holdout_loss", "objective": "objective"}
            facts |= {name: f"{last[key]:.5g}" for name, key in shown.items() if isinstance(last.get(key), float)}
            facts["rows per second"] = f"{last.get('rows_per_second') or 0:,.0f}"
        sections = [Section("Losses", loss_charts(records))]
        title = f"Training of {self._model}, now"
        return page(title, facts, sections, self._about, list(self._events), refresh=REFRESH_SECONDS)


@contextmanager
def serve_live(model: str, command: str) -> Iterator[LivePage]:
    """A live page at a free port of 127.0.0.1, until the block ends; nothing but GET / of this machine is answered."""
    live = LivePage(model, command)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            known = self.path == "/" and self.headers.get("Host", "").split(":")[0] in ("127.0.0.1", "localhost")
            body = (live.html() if known else "not here").encode()
            self.send_response(200 if known else 404)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Cache-Control", "no-store")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *values: Any) -> None:
            """Requests are not reported."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    live.address = f"http://127.0.0.1:{server.server_address[1]}/"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True)
    thread.start()
    try:
        yield live
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
