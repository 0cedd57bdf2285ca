"""What a server is asked to be: its address, who may call it, whether it learns, and its limits."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass

from steepest.errors import ParameterError

LOCAL_NAMES = ("localhost", "localhost.localdomain", "ip6-localhost")


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """The flags of `steepest serve`, checked by `check`.

    Attributes
    ----------
    model : path of the model file
    host, port : where to listen; port 0 lets the system choose
    token : what a caller must send as `Authorization: Bearer TOKEN`
    learn, log : whether POST /learn is open, and the directory of its log and snapshots
    workers : processes that share one model; learning needs exactly one
    max_body : bytes of one request body
    max_rows : rows of one request
    timeout : seconds for a request to arrive, for a batch to be computed, and for an answer to be taken
    keep_alive : seconds that an idle connection stays open
    max_connections : open connections; beyond, the longest idle or slowest one is closed
    max_jobs : batches and learning requests that may wait at a time; beyond, the answer is 429
    snapshot_rows : rows after which the log is replaced by a snapshot of the model
    """

    model: str
    host: str = "127.0.0.1"
    port: int = 8000
    token: str | None = None
    learn: bool = False
    log: str | None = None
    workers: int = 1
    max_body: int = 16 << 20
    max_rows: int = 10_000
    timeout: float = 30.0
    keep_alive: float = 75.0
    max_connections: int = 1_000
    max_jobs: int = 256
    snapshot_rows: int = 100_000

    @property
    def is_local(self) -> bool:
        """Whether only programs on this machine can connect."""
        if self.host in LOCAL_NAMES:
            return True
        try:
            return ipaddress.ip_address(self.host.strip("[]")).is_loopback
        except ValueError:
            return False

    @property
    def guards_everything(self) -> bool:
        """Whether every route needs the token; a local server that learns asks for it on /learn alone."""
        return self.token is not None and not (self.is_local and self.learn)

    def check(self) -> None:
        """Refuses what cannot work or would be unsafe."""
        for name, low, high in (
            ("port", 0, 65535),
            ("workers", 1, 1024),
            ("max_body", 1024, 1 << 40),
            ("max_rows", 1, 1 << 30),
            ("max_connections", 1, 1 << 20),
            ("max_jobs", 1, 1 << 20),
            ("snapshot_rows", 1, 1 << 60),
        ):
            value = getattr(self, name)
            if not low <= value <= high:
                raise ParameterError(f"{flag(name)} {value} must be a whole number from {low} to {high}")
        for name in ("timeout", "keep_alive"):
            if not 0 < getattr(self, name) <= 86_400:
                raise ParameterError(f"{flag(name)} {getattr(self, name)} must be seconds above 0, at most a day")
        if self.token is not None and (not self.token.isascii() or not self.token.strip() or " " in self.token):
            raise ParameterError("--token must be ASCII letters without spaces, as it is sent in a header")
        if self.token is None and not self.is_local:
            raise ParameterError(
                f"--host {self.host} can be reached by other machines, so a token is required; give --token SECRET or "
                "set STEEPEST_TOKEN, or leave --host out"
            )
        if self.learn and self.log is None:
            raise ParameterError("--learn needs --log DIR, the directory in which learned rows are kept")
        if self.log is not None and not self.learn:
            raise ParameterError("--log is the directory of learned rows; give --learn with it")
        if self.learn and self.workers > 1:
            raise ParameterError(f"--workers {self.workers} cannot learn into one model; leave it out with --learn")


def flag(name: str) -> str:
    """An option as the shell writes it."""
    return "--" + name.replace("_", "-")
