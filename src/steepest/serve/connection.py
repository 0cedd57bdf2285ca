"""HTTP/1.1 on one connection: bytes in, requests to the application, answers out, within limits.

The parser is llhttp through httptools. A request that can be answered at once is answered inside the call that brought
its last byte: no task, no queue. Others give a future; requests that were pipelined behind wait for it in order.
Invariants: memory per connection is bounded by the limits on head and body; a client that is slow to send or to take
its answer is closed after `timeout`; after a request that was refused before its end, the connection is closed.
Left out: TLS and HTTP/2, which belong to the proxy in front.
"""

from __future__ import annotations

import asyncio
from collections import deque
from time import perf_counter
from typing import TYPE_CHECKING, Any

import httptools

from steepest.serve.answers import LINE_TYPES, Answer, Refusal
from steepest.serve.counters import ROUTES

if TYPE_CHECKING:
    from steepest.serve.app import App
    from steepest.serve.line_stream import LineStream
    from steepest.serve.listener import Listener

OTHER_ROUTE = ROUTES.index("other")
MOST_HEAD = 1 << 16  # bytes of request line and headers
MOST_PIPELINED = 32  # requests that may wait behind one that is being answered
# The only headers that anything here depends on; all others are passed over.
KNOWN = frozenset((b"content-type", b"authorization", b"content-length", b"expect", b"host", b"origin"))


class Request:
    """What the application needs to know about a request."""

    __slots__ = ("body", "has_lines", "headers", "keep_alive", "method", "path", "route", "start", "stream")

    def __init__(self) -> None:
        self.method = ""
        self.path = ""
        self.headers: dict[bytes, bytes] = {}
        self.body = b""
        self.has_lines = False  # a body of JSON lines
        self.keep_alive = True
        self.start = 0.0
        self.route = OTHER_ROUTE
        self.stream: LineStream | None = None


class Connection(asyncio.Protocol):
    """The HTTP connection of one client."""

    def __init__(self, app: App, listener: Listener) -> None:
        self._app, self._listener = app, listener
        self._transport: Any = None
        self._parser: Any = None
        self._request: Request | None = None  # of which bytes are arriving
        self._url = b""
        self._head_bytes = 0  # received while the head is not whole, and of names and values that are
        self._named = 0
        self._in_head = True
        self._parts: list[bytes] = []
        self._n_body = 0
        self._waiting: deque[Request] = deque()
        self._busy: asyncio.Future[Answer] | None = None
        self._closing = False
        self._writing_paused = False
        self._ended = False  # the client has closed its side

    # ------------------------------------------------------------------------------------------- from the event loop

    def connection_made(self, transport: Any) -> None:
        """Called when a client connects."""
        self._transport = transport
        self._parser = httptools.HttpRequestParser(self)
        self._listener.opened(self)

    def connection_lost(self, error: Exception | None) -> None:
        """Called when the client has gone; a batch that is being computed for it ends by itself."""
        self._closing = True
        self._waiting.clear()
        self._listener.lost(self)

    def data_received(self, data: bytes) -> None:
        """Called with bytes from the client; passes them to the parser."""
        if self._closing:
            return
        if self._request is None:
            self._listener.reading(self)
        if self._in_head:
            self._head_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._refuse(Refusal(400, "this server speaks HTTP/1.1 alone; leave the Upgrade header out"))
            return
        except httptools.HttpParserError as error:
            cause = error.__context__
            broken = Refusal(400, "the bytes sent are not an HTTP/1.1 request")
            self._refuse(cause if isinstance(cause, Refusal) else broken)
            return
        if self._in_head and self._head_bytes > MOST_HEAD:
            self._refuse(_head_too_large())

    def eof_received(self) -> bool:
        """Called when the client sends no more; a body that is incomplete is answered as cut off."""
        self._ended = True
        if self._request is not None and not self._closing:
            self._refuse(Refusal(400, "the body was cut off before its announced end; send it whole"))
        return self._busy is not None or bool(self._waiting)  # stay open for answers that are still to come

    def pause_writing(self) -> None:
        """Called when the client does not read its answers: nothing more is read from it."""
        self._writing_paused = True
        self._transport.pause_reading()
        self._listener.reading(self)

    def resume_writing(self) -> None:
        """Called when the client reads again."""
        self._writing_paused = False
        if not self._closing and len(self._waiting) < MOST_PIPELINED:
            self._transport.resume_reading()

    # ----------------------------------------------------------------------------------------------- from the parser

    def on_message_begin(self) -> None:
        """Called by the parser when a request begins."""
        self._request = Request()
        self._url = b""
        self._parts, self._n_body = [], 0
        self._in_head, self._named = True, 0

    def on_url(self, url: bytes) -> None:
        """Called by the parser with a part of the address."""
        self._url += url
        self._named += len(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Called by the parser with one header."""
        self._named += len(name) + len(value)
        if self._named > MOST_HEAD:
            raise _head_too_large()
        key = name.lower()
        if key in KNOWN:
            assert self._request is not None
            self._request.headers[key] = value

    def on_headers_complete(self) -> None:
        """Called after the headers: refuses what can be refused before the body is read."""
        request = self._request
        assert request is not None
        self._in_head, self._head_bytes = False, 0
        request.method = self._parser.get_method().decode("latin-1")
        path = self._url.partition(b"?")[0]
        if path[:7].lower() == b"http://":  # as requests to a proxy have it, which any server must take
            path = b"/" + path[7:].partition(b"/")[2]
        request.path = path.decode("latin-1")
        request.keep_alive = self._parser.should_keep_alive()
        length = request.headers.get(b"content-length")
        kind = request.headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
        request.has_lines = kind in LINE_TYPES and request.path == "/predict"
        if length is not None and not request.has_lines and int(length) > self._app.options.max_body:
            raise self._too_large()
        if request.has_lines and request.method == "POST" and self._busy is None and not self._waiting:
            request.stream = self._app.open_stream(request, chunked=self._parser.get_http_version() == "1.1")
        if request.headers.get(b"expect", b"").lower() == b"100-continue":
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, body: bytes) -> None:
        """Called by the parser with a part of the body."""
        request = self._request
        assert request is not None
        if request.stream is not None:
            self._transport.write(request.stream.feed(body))
            self._listener.reading(self)  # each part that arrives has the time of a whole request
            return
        self._n_body += len(body)
        if self._n_body > self._app.options.max_body:
            raise self._too_large()
        self._parts.append(body)

    def on_message_complete(self) -> None:
        """Called with a whole request, which is answered at once if no other is before it."""
        request = self._request
        assert request is not None
        self._request, self._in_head = None, True
        if request.stream is not None:
            self._transport.write(request.stream.end())
            self._finish(request.keep_alive and request.stream.chunked)
            return
        parts = self._parts
        request.body = parts[0] if len(parts) == 1 else b"".join(parts)
        request.start = perf_counter()
        if self._busy is None and not self._waiting:
            self._answer(request)
            return
        self._waiting.append(request)
        if len(self._waiting) >= MOST_PIPELINED:
            self._transport.pause_reading()

    # ----------------------------------------------------------------------------------------------------- answering

    def _answer(self, request: Request) -> None:
        found = self._app.handle(request)
        if isinstance(found, Answer):
            self._send(request, found)
            return
        self._listener.working(self)
        self._busy = found
        found.add_done_callback(lambda done: self._answer_later(request, done))

    def _answer_later(self, request: Request, done: asyncio.Future[Answer]) -> None:
        self._busy = None
        if self._transport.is_closing():
            return
        self._send(request, self._app.outcome(done))
        while self._waiting and self._busy is None and not self._closing:
            self._answer(self._waiting.popleft())
        if not self._closing and not self._writing_paused and len(self._waiting) < MOST_PIPELINED:
            self._transport.resume_reading()

    def _send(self, request: Request, answer: Answer) -> None:
        keep = request.keep_alive and not self._listener.stopping and not (self._ended and not self._waiting)
        head = answer.head(close=not keep)
        body = b"" if request.method == "HEAD" else answer.body
        self._transport.write(head + body if len(body) < 1 << 16 else head)
        if len(body) >= 1 << 16:
            self._transport.write(body)
        self._app.counted(request, answer.status)
        self._finish(keep)

    def _finish(self, keep: bool) -> None:
        if keep:
            self._listener.idle(self)
            return
        self._closing = True
        self._transport.close()

    def _too_large(self) -> Refusal:
        most = self._app.options.max_body
        return Refusal(413, f"the body is larger than {most} bytes; send fewer rows, or start with a larger --max-body")

    def _refuse(self, refusal: Refusal) -> None:
        """Answers and closes: what comes behind a broken request cannot be trusted."""
        if self._closing:
            return
        self._closing = True
        if self._busy is None and not (self._request is not None and self._request.stream is not None):
            answer = refusal.answer()
            self._transport.write(answer.head(close=True) + answer.body)
            self._app.refused(answer.status)
        self._listener.working(self)
        if refusal.status in (413, 431) and not self._transport.is_closing():
            self._listener.linger(self)  # a client that is still sending would see a reset instead of the answer
        else:
            self._transport.close()

    # --------------------------------------------------------------------------------------------- from the listener

    def expire(self, idle: bool) -> None:
        """Called when the client took too long to send a request or to read an answer."""
        if idle or self._writing_paused or (self._request is None and self._head_bytes == 0):
            self.close()
        else:
            self._refuse(Refusal(408, "the request took too long to arrive; send it faster, or in parts"))

    def close(self) -> None:
        """Closes without a word; what was written is still sent if the client takes it."""
        self._closing = True
        if self._writing_paused:
            self._transport.abort()
        else:
            self._transport.close()


def _head_too_large() -> Refusal:
    return Refusal(431, f"the headers are larger than {MOST_HEAD} bytes; send fewer")
