"""A map that runs in threads of its own, a few results ahead of whoever consumes them.

Items are taken one at a time, in order, by whichever thread is free; the function runs in all threads at once. Results
come in the order of the items, so threads change nothing but the time. What the items or the function raise is raised
in the place of the result. When the consumer stops, so do the threads: they are stopped at once, and waited for.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterator
from itertools import count
from typing import Generic, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

# A thread that waits for a silent pipe cannot be woken; it is left behind after this time and ends with the pipe.
PATIENCE_SECONDS = 1.0


def map_ahead(
    function: Callable[[Item], Result], items: Iterator[Item], *, threads: int = 1, ahead: int = 2
) -> Generator[Result, None, None]:
    """function(item) for each item, of which up to `ahead` wait finished while `threads` are in the making."""
    pipeline = _Pipeline(function, items, ahead + threads)
    workers = _started(pipeline, threads)
    if not workers:
        yield from map(function, items)
        return
    try:
        yield from pipeline.results()
    finally:
        pipeline.stop()
        for worker in workers:
            worker.join(PATIENCE_SECONDS)


def _started(pipeline: _Pipeline[Item, Result], threads: int) -> list[threading.Thread]:
    """As many workers as the system has threads and memory for, maybe none."""
    workers: list[threading.Thread] = []
    for _ in range(threads):
        worker = threading.Thread(target=pipeline.work, name="steepest-reader", daemon=True)
        try:
            worker.start()
        except (RuntimeError, MemoryError):  # "can't start new thread"
            break
        workers.append(worker)
    return workers


class _Pipeline(Generic[Item, Result]):
    def __init__(self, function: Callable[[Item], Result], items: Iterator[Item], room: int) -> None:
        self._function = function
        self._items = items
        self._room = room
        self._turn = threading.Lock()  # to take an item
        self._changed = threading.Condition()
        self._made: dict[int, Result | _Failure] = {}
        self._n_taken = self._n_given = 0
        self._closed = False  # no more items: they ended, failed, or nobody needs them

    def work(self) -> None:
        """What each thread does."""
        while True:
            with self._turn:
                if not self._wait_for_room():
                    return
                number = self._n_taken
                try:
                    item = next(self._items)
                except StopIteration:
                    self._close()
                    return
                except BaseException as error:  # whatever it is, the consumer must know
                    self._put(number, _Failure(error))
                    return
                self._n_taken += 1
            try:
                made: Result | _Failure = self._function(item)
            except BaseException as error:
                made = _Failure(error)
            self._put(number, made)
            del item, made  # or they would live on while the next item is awaited

    def _wait_for_room(self) -> bool:
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._n_taken - self._n_given < self._room)
            return not self._closed

    def _put(self, number: int, made: Result | _Failure) -> None:
        with self._changed:
            self._made[number] = made
            self._n_taken = max(self._n_taken, number + 1)
            self._closed |= isinstance(made, _Failure)
            self._changed.notify_all()

    def _close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def results(self) -> Iterator[Result]:
        """What was made, in order; ends or raises where the items do."""
        for number in count():
            with self._changed:
                while number not in self._made:
                    if self._closed and number >= self._n_taken:
                        return
                    self._changed.wait()
                made = self._made.pop(number)
                self._n_given = number + 1
                self._changed.notify_all()
            if isinstance(made, _Failure):
                raise made.error
            yield made
            del made

    def stop(self) -> None:
        """No more results are needed."""
        with self._changed:
            self._closed = True
            self._made.clear()
            self._changed.notify_all()


class _Failure:
    def __init__(self, error: BaseException) -> None:
        self.error = error
