"""The life of a server: bind, load, answer, take over new model files, and stop without dropping anyone.

One worker runs in this process. Several are forked from a parent that has loaded the model, so its memory is shared;
they accept from one socket. A new model file is loaded and checked beside the old one: a single worker changes over
between two requests, and the parent of several forks new workers before the old ones stop accepting. A file that is
damaged, or holds another kind of model, is refused with a sentence, and the old model stays.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gc
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from steepest.data.files.remote import is_remote
from steepest.errors import DataError, ParameterError
from steepest.serve.app import App
from steepest.serve.counters import Counters
from steepest.serve.learning import OnlineLearner
from steepest.serve.listener import SWEEP, Listener, every
from steepest.serve.loading import LoadedModel, Stamp, load_model
from steepest.serve.options import ServeOptions
from steepest.serve.predictor import LEARNING_KINDS, Predictor

WATCH = 0.5  # seconds between looks at the model file
GRACE = 10.0  # seconds that answers in the making have when the server stops
BACKLOG = 1024
RETIRE = getattr(signal, "SIGUSR2", signal.SIGTERM)  # from the parent: another worker has taken over


def run(options: ServeOptions) -> int:
    """Serves until a signal says stop; returns the exit status."""
    options.check()
    raise_file_limit()
    if options.workers > 1 and not hasattr(os, "fork"):
        raise ParameterError(f"--workers {options.workers} needs a system that can fork; leave it out here")
    listening = bind(options)
    try:
        stamp = Stamp.of(options.model)
        loaded = load_model(options.model)
        if options.workers > 1:
            return Parent(options, listening, loaded, stamp).run()
        return Worker(options, listening, loaded, stamp).run()
    finally:
        listening.close()


def bind(options: ServeOptions) -> socket.socket:
    """A listening socket."""
    try:
        family, _, _, _, address = socket.getaddrinfo(
            options.host.strip("[]"), options.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        found = socket.socket(family, socket.SOCK_STREAM)
    except OSError as error:
        raise foreign_host(options, error) from None
    try:
        if os.name == "posix":
            found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind(address)
        found.listen(BACKLOG)
        found.setblocking(False)
    except OSError as error:
        found.close()
        if error.errno == errno.EADDRNOTAVAIL:
            raise foreign_host(options, error) from None
        raise DataError(
            f"port {options.port} of {options.host} cannot be used ({error.strerror}); stop the other program, or give "
            "another --port (0 takes a free one)"
        ) from None
    return found


def foreign_host(options: ServeOptions, error: OSError) -> DataError:
    """The error for an address that no network card of this machine has."""
    return DataError(f"--host {options.host} is not an address of this machine ({error.strerror}); leave it out")


def announce(options: ServeOptions, listening: socket.socket) -> None:
    """The line that scripts wait for, and a warning where learning is open to all local programs."""
    host, port = listening.getsockname()[:2]
    if options.learn and options.token is None:
        say("warning: every program on this machine may teach the model; give --token SECRET to prevent that")
    print(f"listening on http://{f'[{host}]' if ':' in host else host}:{port}", file=sys.stderr, flush=True)


def say(sentence: str) -> None:
    """Prints one line to stderr."""
    print(f"steepest: {sentence}", file=sys.stderr, flush=True)


def raise_file_limit() -> None:
    """Raises the limit of open files as far as the system allows without privileges."""
    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource

        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def predictor_of(options: ServeOptions, loaded: LoadedModel) -> Predictor:
    """The model under the name of its file."""
    place = options.model.partition("?")[0] if is_remote(options.model) else options.model
    found = Predictor(loaded.model, Path(place).stem or "model", loaded.identity)
    found.warm_up()
    return found


@dataclass(slots=True)
class Watcher:
    """Notices a new model file and loads it, if it can take the old one's place."""

    options: ServeOptions
    stamp: Stamp | None
    identity: str
    counters: Counters
    _unsteady: Stamp | None = None

    def look(self) -> bool:
        """Whether there is another file, which has not changed since the last look: copying it takes a while."""
        now = Stamp.of(self.options.model)
        if now is None or now == self.stamp:
            return False
        if now != self._unsteady:
            self._unsteady = now
            return False
        return True

    def load(self, old: Predictor) -> Predictor | None:
        """The new model; None, and a sentence, if it cannot be used."""
        self.stamp = self._unsteady
        try:
            loaded = load_model(self.options.model)
            if loaded.identity == self.identity:
                return None
            fresh = predictor_of(self.options, loaded)
            if (fresh.kind, fresh.rows.form) != (old.kind, old.rows.form):
                raise DataError(
                    f"{self.options.model} now holds a {type(fresh.model).__name__} for rows of the form "
                    f"{fresh.rows.form!r}, but this server has a {type(old.model).__name__} for {old.rows.form!r}"
                )
        except (DataError, ParameterError, MemoryError) as error:
            self.counters.add("reloads_refused")
            say(f"the new model file is not used, the old model stays: {error}")
            return None
        self.identity = loaded.identity
        self.counters.add("reloads")
        say(f"{self.options.model} was replaced; the new model answers from now on")
        return fresh


class Worker:
    """One process that answers."""

    def __init__(
        self,
        options: ServeOptions,
        listening: socket.socket,
        loaded: LoadedModel,
        stamp: Stamp | None,
        counters: Counters | None = None,
    ) -> None:
        self.options, self._socket = options, listening
        self.counters = counters or Counters()
        self._watcher = None if counters else Watcher(options, stamp, loaded.identity, self.counters)
        self.parent = 0  # the process that forked this one, if one did
        self.learner: OnlineLearner | None = None
        lock: Any = None
        predictor = predictor_of(options, loaded)
        if options.learn:
            if not predictor.learns:
                way_out = "serve a classifier, a regressor or a matrix factorization, or leave --learn out"
                if predictor.kind in LEARNING_KINDS:
                    way_out = "train one whose solver is stochastic, for example --solver sgd, and without --vote"
                raise ParameterError(f"--learn: this {type(loaded.model).__name__} cannot learn row by row; {way_out}")
            lock = threading.RLock()
            loaded.model.n_jobs = 1
            self.learner = OnlineLearner(loaded, options, self.counters, lock, say)
            self.learner.model.n_jobs = 1  # threads change the bits of some ways to learn
            predictor = predictor_of(options, LoadedModel(self.learner.model, loaded.identity))
            self.learner.start(predictor)
        self.app = App(predictor, options, self.counters, self.learner, lock)

    def run(self) -> int:
        """Answers until a signal says stop."""
        gc.freeze()  # the model and all modules stay: no need to look through them again and again
        with new_runner() as runner:
            runner.run(self._serve())
        if self.learner is not None:
            self.learner.stop()
        self.app.close()
        gc.unfreeze()
        return 0

    async def _serve(self) -> None:
        loop = asyncio.get_running_loop()
        stopped, retired = asyncio.Event(), asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            with contextlib.suppress(NotImplementedError):
                loop.add_signal_handler(number, stopped.set)
        if self._watcher is None:

            def retire() -> None:
                retired.set()
                stopped.set()

            loop.add_signal_handler(RETIRE, retire)
            # A parent that was killed cannot say so: its workers notice that they have another one.
            every(loop, SWEEP, lambda: stopped.set() if os.getppid() != self.parent else None)
        listener = Listener(self.app, loop)
        server = await loop.create_server(listener, sock=self._socket, backlog=BACKLOG)
        every(loop, SWEEP, listener.sweep)
        if self._watcher is not None:
            watching = asyncio.create_task(self._watch(self._watcher))
            announce(self.options, self._socket)
        await stopped.wait()
        self.app.ready = False
        if self._watcher is not None:
            watching.cancel()
        server.close()
        if retired.is_set():
            for number in (signal.SIGINT, signal.SIGTERM):  # now all of the server stops
                loop.add_signal_handler(number, listener.close_idle)
            await listener.stop(self.options.keep_alive, close_idle=False)
        else:
            await listener.stop(GRACE, close_idle=True)

    async def _watch(self, watcher: Watcher) -> None:
        """Looks for a new model file, and loads it in a thread while the old model answers."""
        while True:
            await asyncio.sleep(WATCH)
            if not watcher.look():
                continue
            if self.learner is not None:
                watcher.stamp = Stamp.of(self.options.model)
                self.counters.add("reloads_refused")
                say("the new model file is not used: the rows that this server learns belong to the old one")
                continue
            fresh = await asyncio.to_thread(watcher.load, self.app.predictor)
            if fresh is not None:
                self.app.take(fresh)


class Parent:
    """The process that loads models and forks the workers that share them."""

    def __init__(
        self, options: ServeOptions, listening: socket.socket, loaded: LoadedModel, stamp: Stamp | None
    ) -> None:
        self.options, self._socket, self._loaded = options, listening, loaded
        # Two lines per worker: a new one begins while the old one still answers.
        self.counters = Counters(2 * options.workers + 1)
        self.counters.use(2 * options.workers)
        self._predictor = predictor_of(options, loaded)
        self._watcher = Watcher(options, stamp, loaded.identity, self.counters)
        self._children: dict[int, int] = {}  # process: line
        self._retired: set[int] = set()
        self._stopping = False

    def run(self) -> int:
        """Keeps the workers alive until a signal says stop."""
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._stop)
        generation = 0
        self._fork_all(generation)
        announce(self.options, self._socket)
        failures = 0
        while not self._stopping:
            time.sleep(WATCH)
            failures = failures + self._revive(generation) if self._revive_needed() else 0
            if failures > 10 * self.options.workers:
                self._end()
                raise DataError("workers end as soon as they start; the messages above say why")
            if self._watcher.look() and (fresh := self._watcher.load(self._predictor)) is not None:
                if fresh.classes != self._predictor.classes:
                    self.counters.forget_labels()
                self._predictor = fresh
                self._loaded = LoadedModel(fresh.model, fresh.identity)
                generation += 1
                old = list(self._children)
                self._fork_all(generation)
                self._retired.update(old)
                _signal_all(old, RETIRE)
        self._end()
        return 0

    def _stop(self, *_: object) -> None:
        self._stopping = True

    def _fork_all(self, generation: int) -> None:
        for place in range(self.options.workers):
            self._fork(2 * place + generation % 2)

    def _fork(self, line: int) -> None:
        parent = os.getpid()
        process = os.fork()
        if process:
            self._children[process] = line
            return
        status = 1
        try:
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, signal.SIG_DFL)
            self.counters.use(line)
            worker = Worker(self.options, self._socket, self._loaded, None, self.counters)
            worker.parent = parent
            status = worker.run()
        finally:
            os._exit(status)

    def _revive_needed(self) -> bool:
        """Takes note of workers that have ended; whether one of them should not have."""
        lost = False
        while True:
            try:
                process, _ = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                process = 0
            if not process:
                return lost
            self._children.pop(process, None)
            lost |= process not in self._retired
            self._retired.discard(process)

    def _revive(self, generation: int) -> int:
        """Forks a worker for each one that is missing."""
        lines = {2 * place + generation % 2 for place in range(self.options.workers)}
        missing = lines - {line for process, line in self._children.items() if process not in self._retired}
        for line in missing:
            say("a worker ended unexpectedly; another takes its place")
            self._fork(line)
        return len(missing)

    def _end(self) -> None:
        _signal_all(list(self._children))
        end = time.monotonic() + GRACE + 2
        while self._children and time.monotonic() < end:
            self._retired.update(self._children)
            self._revive_needed()
            time.sleep(0.02)
        _signal_all(list(self._children), signal.SIGKILL)


def _signal_all(processes: list[int], number: int = signal.SIGTERM) -> None:
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, number)


def new_runner() -> asyncio.Runner:
    """An event loop, the faster one where it is installed."""
    factory: Callable[[], asyncio.AbstractEventLoop] | None = None
    with contextlib.suppress(ImportError):
        import uvloop

        factory = uvloop.new_event_loop
    return asyncio.Runner(loop_factory=factory)
