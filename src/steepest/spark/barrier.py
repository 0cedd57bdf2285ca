"""Barrier mode: one job for all rounds. Its tasks hold their shards and wait; the driver sends them work over sockets.

A barrier stage starts all its tasks at once. Each opens the shards of its partition, connects to the driver, and
answers all work that comes until the driver closes the connection. What a round made is on the driver when the round is
done: that is the checkpoint. If a task is lost, the stage ends, a new pool of workers starts, and only the round that
it was in is worked again.

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
from functools import partial
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection, answer_challenge, deliver_challenge
from typing import Any

from steepest.data.chunk import Array
from steepest.errors import DataError, ParameterError
from steepest.spark.blocks import Shard
from steepest.spark.frames import is_connect, mapped
from steepest.spark.messages import Answer, FilesMissingError, lines_of

SCHEMA = "shard int"  # of the job's result, which is empty
SECONDS_TO_BEGIN = 60.0  # for all tasks of a pool
SECONDS_TO_RETURN = 10.0  # for executors in place of those that were lost


class WorkerLostError(Exception):
    """A task of the barrier stage is gone; holds Spark's own error, if there was one."""


def _connection(open_socket: socket.socket) -> Any:
    """A connection of messages, none of which waits for more bytes to fill a packet."""
    open_socket.settimeout(None)
    open_socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return Connection(open_socket.detach())


# --------------------------------------------------------------------------------------------------- in the executors


def run_task(
    address: tuple[str, int], key: bytes, labels: Sequence[Any] | None, batches: Iterator[Any]
) -> Iterator[Any]:
    """A task of the barrier stage, whose batches are those of the anchor; answers go to the driver, none to Spark."""
    lines = list(lines_of(batches))
    with _connection(socket.create_connection(address)) as driver:
        answer_challenge(driver, key)
        deliver_challenge(driver, key)
        try:
            shards = {line["shard"]: Shard.opened(line["shard"], line["path"], labels) for line in lines}
        except FileNotFoundError:
            driver.send(None)
        else:
            driver.send((os.getpid(), sorted(shards)))
            _serve(driver, shards)
    return iter(())


def _serve(driver: Any, shards: Mapping[int, Shard]) -> None:
    while True:
        try:
            work, state = pickle.loads(driver.recv_bytes())
        except (EOFError, ConnectionError):  # the driver has closed the connection
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
class Worker:
    """A task, as the driver sees it."""

    connection: Any
    process: int
    shards: list[int]


class BarrierPool:
    """The workers of one barrier stage."""

    def __init__(self, session: Any, anchor: Any, n_tasks: int, labels: Sequence[Any] | None) -> None:
        self.context, self.n_tasks = session.sparkContext, n_tasks
        self.name, self.key = f"steepest-{uuid.uuid4().hex[:12]}", secrets.token_bytes(32)
        self.workers: list[Worker] = []
        self.failure: Exception | None = None
        host, bind = _addresses(self.context)
        with socket.create_server((bind, 0), backlog=n_tasks) as server:
            task = partial(run_task, (host, server.getsockname()[1]), self.key, labels)
            self.thread = threading.Thread(target=self._run_stage, args=(anchor, task), daemon=True)
            self.thread.start()
            try:
                self._wait_for_tasks(server)
            except BaseException:
                self.close()
                raise

    def _run_stage(self, anchor: Any, task: Any) -> None:
        """Runs the barrier stage, whose job lasts as long as the pool."""
        try:
            self.context.setJobGroup(self.name, "steepest: rounds in barrier mode")
            mapped(anchor, task, SCHEMA, barrier=True).collect()
        except Exception as error:
            self.failure = error

    def _wait_for_tasks(self, server: socket.socket) -> None:
        """Waits until all tasks have connected."""
        server.settimeout(0.5)
        until = time.monotonic() + SECONDS_TO_BEGIN
        while len(self.workers) < self.n_tasks:
            if not self.thread.is_alive():
                raise WorkerLostError(self.failure)
            if time.monotonic() > until:
                raise WorkerLostError(None)
            with contextlib.suppress(TimeoutError, AuthenticationError, EOFError, ConnectionError):
                self._accept(server.accept()[0])
                until = time.monotonic() + SECONDS_TO_BEGIN
        self.workers.sort(key=lambda worker: worker.shards)

    def _accept(self, caller: socket.socket) -> None:
        connection = _connection(caller)
        deliver_challenge(connection, self.key)
        answer_challenge(connection, self.key)
        opened = connection.recv()
        if opened is None:
            connection.close()
            raise FilesMissingError
        self.workers.append(Worker(connection, *opened))

    def run(self, work: Callable[[Any, Any], Mapping[str, Array]], state: Any) -> list[Answer]:
        """Runs work on each shard; returns the answers in the order of shards."""
        from pyspark import cloudpickle

        data = cloudpickle.dumps((work, state), protocol=5)  # type: ignore[no-untyped-call]
        answers: dict[int, Answer] = {}
        try:
            for worker in self.workers:
                worker.connection.send_bytes(data)
            for worker in self.workers:
                while not worker.connection.poll(1.0):
                    if not self.thread.is_alive():
                        raise WorkerLostError(self.failure)
                answer = pickle.loads(worker.connection.recv_bytes())
                if isinstance(answer, str):
                    raise DataError(answer)
                answers |= answer
        except (EOFError, ConnectionError) as error:
            raise WorkerLostError(self.failure) from error
        return [answers[number] for number in sorted(answers)]

    def close(self) -> None:
        """Closes the connections, upon which the job ends."""
        for worker in self.workers:
            worker.connection.close()
        self.thread.join(SECONDS_TO_RETURN if self.workers else 0)
        if self.thread.is_alive():
            self.context.cancelJobGroup(self.name)
            self.thread.join(SECONDS_TO_RETURN)


def _addresses(context: Any) -> tuple[str, str]:
    """(where executors reach this process, where it listens), as Spark itself does it."""
    host = context.getConf().get("spark.driver.host")
    return host, context.getConf().get("spark.driver.bindAddress", host)


def slots(session: Any) -> int:
    """How many tasks can run at once, as Spark counts it before a barrier stage."""
    java = session.sparkContext._jsc.sc()  # noqa: SLF001, pyspark has no public way there
    return int(java.maxNumConcurrentTasks(java.resourceProfileManager().defaultResourceProfile()))


def wait_for_slots(session: Any, needed: int = 1) -> int:
    """How many tasks can run at once; if they are fewer than needed, after a while in which more may come."""
    since = time.monotonic()
    while (found := slots(session)) < needed:
        waited = time.monotonic() - since
        if found and waited > SECONDS_TO_RETURN:
            break
        if waited > SECONDS_TO_BEGIN:
            raise DataError(
                f"barrier=True: no executor connected within {SECONDS_TO_BEGIN:.0f} seconds; check the cluster, or "
                "leave barrier out, which waits as long as Spark does"
            )
        time.sleep(0.2)
    return found


def refuse_barrier(session: Any) -> None:
    """Raises for options that barrier mode does not support."""
    if is_connect(session):
        raise ParameterError(
            "barrier=True needs the driver in this process, and Spark Connect has it elsewhere; leave barrier out"
        )
    if session.sparkContext.getConf().get("spark.dynamicAllocation.enabled", "false").lower() == "true":
        raise ParameterError(
            "barrier=True needs executors that stay, which Spark refuses under spark.dynamicAllocation.enabled; "
            "turn that off, or leave barrier out"
        )
