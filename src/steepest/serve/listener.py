"""All connections of one worker: who is idle, who is sending, who has waited too long, and who makes room for others.

Connections that are idle and those in the middle of a request are kept in the order in which they became so. A sweep
looks at the front of both once a second, so it costs nothing with ten thousand slow clients. When there is no room, the
front of a queue goes: a client that sends a byte a second cannot keep others out.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

from steepest.serve.app import App
from steepest.serve.connection import Connection

SWEEP = 0.5  # seconds
LINGER = 1.0  # seconds that a refused client may go on sending


class Listener:
    """Makes connections and ends them."""

    def __init__(self, app: App, loop: asyncio.AbstractEventLoop) -> None:
        self.app, self._loop = app, loop
        self.stopping = False
        self._open: set[Connection] = set()
        self._idle: dict[Connection, float] = {}
        self._reading: dict[Connection, float] = {}
        self._lingering: set[Connection] = set()
        self._emptied: asyncio.Future[None] | None = None

    def __call__(self) -> Connection:
        """Makes the protocol object of the next client."""
        return Connection(self.app, self)

    def opened(self, connection: Connection) -> None:
        """Called when a client connects; an idle one is closed if there is no room."""
        if len(self._open) >= self.app.options.max_connections:
            queue = self._idle or self._reading
            if queue:
                self.app.counters.add("connections_evicted")
                next(iter(queue)).expire(idle=queue is self._idle)
        self._open.add(connection)
        self.app.counters.set("connections", len(self._open))
        if len(self._open) > self.app.options.max_connections + len(self._lingering) + 1:
            connection.close()  # all others are being answered at this very moment
            return
        self.idle(connection)

    def lost(self, connection: Connection) -> None:
        """Called when a connection is gone."""
        self._open.discard(connection)
        self._idle.pop(connection, None)
        self._reading.pop(connection, None)
        self._lingering.discard(connection)
        self.app.counters.set("connections", len(self._open))
        if self._emptied is not None and not self._open and not self._emptied.done():
            self._emptied.set_result(None)

    def idle(self, connection: Connection) -> None:
        """Called when a connection waits for a request."""
        self._reading.pop(connection, None)
        self._idle.pop(connection, None)
        self._idle[connection] = self._loop.time()

    def reading(self, connection: Connection) -> None:
        """Called when part of a request has arrived, or an answer is not being read."""
        self._idle.pop(connection, None)
        self._reading.pop(connection, None)
        self._reading[connection] = self._loop.time()

    def working(self, connection: Connection) -> None:
        """Called while an answer is being made."""
        self._idle.pop(connection, None)
        self._reading.pop(connection, None)

    def linger(self, connection: Connection) -> None:
        """Closes the connection a moment later, so that the client can read why."""
        self._lingering.add(connection)
        self._loop.call_later(LINGER, connection.close)

    def sweep(self) -> None:
        """Ends what has waited too long."""
        now, options = self._loop.time(), self.app.options
        for queue, most in ((self._idle, options.keep_alive), (self._reading, options.timeout)):
            while queue:
                connection, since = next(iter(queue.items()))
                if now - since < most:
                    break
                queue.pop(connection)
                connection.expire(idle=queue is self._idle)

    def close_idle(self) -> None:
        """Closes whoever has sent nothing yet."""
        for connection in list(self._idle):
            connection.close()

    async def stop(self, grace: float, *, close_idle: bool) -> None:
        """Lets answers that are being made go out, and ends.

        Without `close_idle`, whoever is connected may send one more request, whose answer says that it is the last: a
        client that sends just now would otherwise find its connection closed.
        """
        self.stopping = True
        if close_idle:
            self.close_idle()
        if self._open:
            self._emptied = self._loop.create_future()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._emptied, grace)
        for connection in list(self._open):
            connection.close()


def every(loop: asyncio.AbstractEventLoop, seconds: float, act: Callable[[], Any]) -> None:
    """Calls a function again and again while the loop runs."""

    def again() -> None:
        act()
        loop.call_later(seconds, again)

    loop.call_later(seconds, again)
