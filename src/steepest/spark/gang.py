"""Barrier mode: one job for all rounds. Its tasks hold their shards and wait; the driver hands them work over sockets.

A barrier stage starts all its tasks at once. Each opens the shards of its partition, calls the driver, and answers
whatever work comes until the driver hangs up. What a round made is on the driver when the round is done: that is the
checkpoint. If a task is lost, the stage ends, a new gang begins, and only the round that it was in is worked again.

Sockets are closed to everyone who does not know the key, which travels inside the function that Spark ships.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import secrets
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection, answer_challenge, deliver_challenge
from typing import Any

from steepest.data.chunk import Array, DataError
from steepest.data.parameters import ParameterError

SCHEMA = "shard int"  # of the job's answer, which is empty
SECONDS_TO_BEGIN = 60.0  # for all tasks of a gang
SECONDS_TO_RETURN = 10.0  # for executors in place of those that were lost
Answers = list[dict[str, Array]]
Open = Callable[[int, str, Sequence[Any] | None], Any]


class LostError(Exception):
    """A task of the gang is gone; Spark's own error, if it told one."""


class MissingError(Exception):
    """A task runs where its shard's files are not."""


def _line(open_socket: socket.socket) -> Any:
    """A connection of messages, none of which waits for more bytes to fill a packet."""
    open_socket.settimeout(None)
    open_socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return Connection(open_socket.detach())


# --------------------------------------------------------------------------------------------------- in the executors


@dataclass(frozen=True, slots=True)
class Serve:
    """A task of the gang."""

    address: tuple[str, int]
    key: bytes
    labels: Sequence[Any] | None
    open: Open

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Arrow batches of a partition of the anchor; answers go to the driver, none to Spark."""
        lines = [line for batch in batches for line in batch.to_pylist()]
        with _line(socket.create_connection(self.address)) as driver:
            answer_challenge(driver, self.key)
            deliver_challenge(driver, self.key)
            try:
                shards = {line["shard"]: self.open(line["shard"], line["path"], self.labels) for line in lines}
            except FileNotFoundError:
                driver.send(None)
            else:
                driver.send((os.getpid(), sorted(shards)))
                _serve(driver, shards)
        return iter(())


def _serve(driver: Any, shards: Mapping[int, Any]) -> None:
    while True:
        try:
            work, state = pickle.loads(driver.recv_bytes())
        except (EOFError, ConnectionError):  # the driver has hung up
            return
        try:
            answer: Any = {number: dict(work(shard, state)) for number, shard in shards.items()}
        except DataError as error:
            answer = str(error)
        except Exception as error:
            answer = f"a task failed in an executor: {type(error).__name__}: {error}"
        driver.send_bytes(pickle.dumps(answer, protocol=5))


# -------------------------------------------------------------------------------------------------------- in the driver


@dataclass(slots=True)
class Member:
    """A task, as the driver sees it."""

    line: Any
    process: int
    shards: list[int]


class Gang:
    """The tasks of one barrier stage."""

    def __init__(self, session: Any, anchor: Any, n_tasks: int, labels: Sequence[Any] | None, opener: Open) -> None:
        self.context, self.n_tasks = session.sparkContext, n_tasks
        self.name, self.key = f"steepest-{uuid.uuid4().hex[:12]}", secrets.token_bytes(32)
        self.members: list[Member] = []
        self.failure: Exception | None = None
        host, bind = _addresses(self.context)
        with socket.create_server((bind, 0), backlog=n_tasks) as server:
            serve = Serve((host, server.getsockname()[1]), self.key, labels, opener)
            self.thread = threading.Thread(target=self._hold, args=(anchor, serve), daemon=True)
            self.thread.start()
            try:
                self._meet(server)
            except BaseException:
                self.close()
                raise

    def _hold(self, anchor: Any, serve: Serve) -> None:
        """The job, which lasts as long as the gang."""

        def work(batches: Iterator[Any]) -> Iterator[Any]:
            return serve(batches)

        try:
            self.context.setJobGroup(self.name, "steepest: rounds in barrier mode")
            anchor.mapInArrow(work, SCHEMA, barrier=True).collect()
        except Exception as error:
            self.failure = error

    def _meet(self, server: socket.socket) -> None:
        """Waits until all tasks have called."""
        server.settimeout(0.5)
        until = time.monotonic() + SECONDS_TO_BEGIN
        while len(self.members) < self.n_tasks:
            if not self.thread.is_alive():
                raise LostError(self.failure)
            if time.monotonic() > until:
                raise LostError(None)
            with contextlib.suppress(TimeoutError, AuthenticationError, EOFError, ConnectionError):
                self._welcome(server.accept()[0])
                until = time.monotonic() + SECONDS_TO_BEGIN
        self.members.sort(key=lambda member: member.shards)

    def _welcome(self, caller: socket.socket) -> None:
        line = _line(caller)
        deliver_challenge(line, self.key)
        answer_challenge(line, self.key)
        told = line.recv()
        if told is None:
            line.close()
            raise MissingError
        self.members.append(Member(line, *told))

    def run(self, work: Callable[[Any, Any], Mapping[str, Array]], state: Any) -> Answers:
        """What the work answers for each shard, in their order."""
        from pyspark import cloudpickle

        data = cloudpickle.dumps((work, state), protocol=5)  # type: ignore[no-untyped-call]
        answers: dict[int, dict[str, Array]] = {}
        try:
            for member in self.members:
                member.line.send_bytes(data)
            for member in self.members:
                while not member.line.poll(1.0):
                    if not self.thread.is_alive():
                        raise LostError(self.failure)
                answer = pickle.loads(member.line.recv_bytes())
                if isinstance(answer, str):
                    raise DataError(answer)
                answers |= answer
        except (EOFError, ConnectionError) as error:
            raise LostError(self.failure) from error
        return [answers[number] for number in sorted(answers)]

    def close(self) -> None:
        """Hangs up, upon which the job ends."""
        for member in self.members:
            member.line.close()
        self.thread.join(SECONDS_TO_RETURN if self.members else 0)
        if self.thread.is_alive():
            self.context.cancelJobGroup(self.name)
            self.thread.join(SECONDS_TO_RETURN)


def _addresses(context: Any) -> tuple[str, str]:
    """(where executors reach this process, where it listens), as Spark itself does it."""
    host = context.getConf().get("spark.driver.host")
    return host, context.getConf().get("spark.driver.bindAddress", host)


def slots(session: Any) -> int:
    """How many tasks can run at once, as Spark counts it before a barrier stage."""
    inside = session.sparkContext._jsc.sc()
    return int(inside.maxNumConcurrentTasks(inside.resourceProfileManager().defaultResourceProfile()))


def wait_for_slots(session: Any, wanted: int = 1) -> int:
    """How many tasks can run at once; if they are fewer than wanted, after a while in which more may come."""
    since = time.monotonic()
    while (found := slots(session)) < wanted:
        waited = time.monotonic() - since
        if found and waited > SECONDS_TO_RETURN:
            break
        if waited > SECONDS_TO_BEGIN:
            raise DataError(
                f"barrier=True: no executor came within {SECONDS_TO_BEGIN:.0f} seconds; check the cluster, or leave "
                "barrier out, which waits as long as Spark does"
            )
        time.sleep(0.2)
    return found


def refuse_barrier(session: Any) -> None:
    """What barrier mode cannot do."""
    if "connect" in type(session).__module__:
        raise ParameterError(
            "barrier=True needs the driver in this process, and Spark Connect has it elsewhere; leave barrier out"
        )
    if session.sparkContext.getConf().get("spark.dynamicAllocation.enabled", "false").lower() == "true":
        raise ParameterError(
            "barrier=True needs executors that stay, which Spark refuses under spark.dynamicAllocation.enabled; "
            "turn that off, or leave barrier out"
        )
