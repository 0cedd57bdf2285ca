"""JSON lines in, JSON lines out, as they come: one row and one answer per line, in memory for one block of lines.

A line that is not a row gets {"error": sentence} in its place, so that line n of the answer belongs to line n of the
question whatever happens.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

from steepest.errors import DataError
from steepest.serve.answers import LINES, Answer

if TYPE_CHECKING:
    from steepest.serve.app import App

BLOCK = 256  # lines that are predicted in one call


class LineStream:
    """The answer to one stream of rows."""

    def __init__(self, app: App, *, chunked: bool) -> None:
        self._app, self.chunked = app, chunked
        self._rest = b""
        self._n_lines = 0
        self._head = b"HTTP/1.1 200 OK\r\nContent-Type: %b\r\n%b\r\n" % (
            LINES,
            b"Transfer-Encoding: chunked\r\n" if chunked else b"Connection: close\r\n",
        )

    def feed(self, data: bytes) -> bytes:
        """Adds bytes; returns the answers to all lines that are complete."""
        lines = (self._rest + data).split(b"\n")
        self._rest = lines.pop()
        if len(self._rest) > self._app.options.max_body:
            self._rest = b""
            lines.append(b"(a line longer than --max-body)")
        return self._take_head() + self._framed(self._answers(lines))

    def end(self) -> bytes:
        """The answer to a last line without a newline."""
        lines = [self._rest] if self._rest.strip() else []
        return self._take_head() + self._framed(self._answers(lines)) + (b"0\r\n\r\n" if self.chunked else b"")

    def answer(self, body: bytes) -> Answer:
        """All answers at once, for a request that waited behind another one of its connection."""
        return Answer(self._answers(body.split(b"\n")), type=LINES)

    def _take_head(self) -> bytes:
        head, self._head = self._head, b""
        return head

    def _framed(self, body: bytes) -> bytes:
        return b"%x\r\n%b\r\n" % (len(body), body) if self.chunked and body else body

    def _answers(self, lines: list[bytes]) -> bytes:
        return b"".join(self._block(lines[at : at + BLOCK]) for at in range(0, len(lines), BLOCK))

    def _block(self, lines: list[bytes]) -> bytes:
        rows: list[Any] = []
        places: list[int] = []
        answers: list[Any] = [None] * len(lines)
        for place, line in enumerate(lines):
            if not line.strip():
                continue
            try:
                rows.append(orjson.loads(line))
                places.append(place)
            except ValueError as error:
                answers[place] = {"error": f"line {self._n_lines + place + 1} is not JSON ({error})"}
        try:
            found = self._app.predict_rows(rows)
        except DataError:
            found = [self._alone(row, self._n_lines + place + 1) for row, place in zip(rows, places, strict=True)]
        for place, answer in zip(places, found, strict=True):
            answers[place] = answer
        self._n_lines += len(lines)
        return b"".join(orjson.dumps(answer) + b"\n" for answer in answers if answer is not None)

    def _alone(self, row: Any, line: int) -> dict[str, Any]:
        """Answers rows one by one, after a row of their block was refused; a row is named by its line."""
        try:
            return self._app.predict_rows([row])[0]
        except DataError as error:
            return {"error": str(error).replace("row 0", f"line {line}", 1)}
