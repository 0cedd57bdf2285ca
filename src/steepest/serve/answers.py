"""What a request gets back: a status, a body and its type; and the refusal that becomes one sentence of JSON."""

from __future__ import annotations

from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

import orjson

STATUSES = (200, 400, 401, 403, 404, 405, 408, 413, 429, 431, 500, 503, 507)
REASONS = {status: HTTPStatus(status).phrase for status in STATUSES}
JSON = b"application/json"
HTML = b"text/html; charset=utf-8"
TEXT = b"text/plain; version=0.0.4; charset=utf-8"  # as Prometheus names its text format
LINES = b"application/x-ndjson"
LINE_TYPES = frozenset((LINES, b"application/ndjson", b"application/jsonl", b"application/x-jsonlines"))
# Pages load nothing from elsewhere, are shown in no frame, and send what is typed to this server alone.
PAGE_HEADERS = (
    b"Content-Security-Policy: default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
    b"connect-src 'self'; img-src data:; frame-ancestors 'none'; base-uri 'none'; form-action 'none'\r\n"
    b"X-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\n"
)


class Refusal(Exception):  # noqa: N818 - a refusal is an answer, not a fault of the program
    """A request that cannot be granted: the status, and one sentence with the way out."""

    def __init__(self, status: int, sentence: str, headers: bytes = b"") -> None:
        super().__init__(sentence)
        self.status, self.headers = status, headers

    def answer(self) -> Answer:
        """The refusal as JSON: {"error": sentence}."""
        return Answer(orjson.dumps({"error": str(self)}), self.status, JSON, self.headers)


@dataclass(slots=True)
class Answer:
    """A whole response, except for the headers that belong to the connection."""

    body: bytes
    status: int = 200
    type: bytes = JSON
    headers: bytes = b""

    def head(self, *, close: bool) -> bytes:
        """The status line and headers."""
        return b"HTTP/1.1 %d %b\r\nContent-Type: %b\r\nContent-Length: %d\r\n%b%b\r\n" % (
            self.status,
            REASONS[self.status].encode(),
            self.type,
            len(self.body),
            self.headers,
            b"Connection: close\r\n" if close else b"",
        )


def as_json(value: Any) -> Answer:
    """A value as a JSON answer; NumPy arrays are written as lists."""
    return Answer(orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS))
