"""Work ahead of the consumer: same results in the same order, bounded, and no thread outlives its use."""

from __future__ import annotations

import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steepest.data.files.blocks import map_ahead


def readers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "steepest-reader"]


@pytest.fixture(autouse=True)
def _no_thread_is_left():
    assert not readers()
    yield
    assert not readers()


@given(st.lists(st.integers()), st.integers(1, 4), st.integers(1, 3))
def test_results_are_those_of_map(items, threads, ahead):
    assert list(map_ahead(lambda x: x + 1, iter(items), threads=threads, ahead=ahead)) == [x + 1 for x in items]


def test_a_slow_item_does_not_change_the_order():
    def slow(x: int) -> int:
        time.sleep(0.02 if x % 3 == 0 else 0)
        return x

    assert list(map_ahead(slow, iter(range(30)), threads=3)) == list(range(30))


@pytest.mark.parametrize("threads", [1, 2])
def test_a_failing_function_is_heard_in_its_place(threads):
    def fail_at_5(x: int) -> int:
        if x == 5:
            raise ValueError("five")
        return x

    seen: list[int] = []
    with pytest.raises(ValueError, match="five"):
        seen.extend(map_ahead(fail_at_5, iter(range(100)), threads=threads))
    assert seen == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("threads", [1, 2])
def test_failing_items_are_heard_in_their_place(threads):
    def items():
        yield 1
        yield 2
        raise OSError("gone")

    seen: list[int] = []
    with pytest.raises(OSError, match="gone"):
        seen.extend(map_ahead(lambda x: x, items(), threads=threads))
    assert seen == [1, 2]


@pytest.mark.parametrize("threads", [1, 2])
def test_no_more_is_made_than_there_is_room_for(threads):
    made = []
    results = map_ahead(lambda x: made.append(x), iter(range(1000)), threads=threads, ahead=2)
    next(results)
    deadline = time.monotonic() + 0.2
    while time.monotonic() < deadline:
        assert len(made) <= 1 + 2 + threads
        time.sleep(0.01)
    results.close()


def test_threads_end_when_the_consumer_stops_or_forgets():
    results = map_ahead(lambda x: x, iter(range(1000)), threads=2)
    assert next(results) == 0
    assert readers()
    results.close()
    assert not readers()
    for x in map_ahead(lambda x: x, iter(range(1000)), threads=2):
        if x == 3:
            break
    del x
    assert not readers()
    map_ahead(lambda x: x, iter(range(1000)))  # never started: no thread


def test_a_thread_that_waits_for_a_silent_pipe_does_not_hang_the_consumer(monkeypatch):
    monkeypatch.setattr("steepest.data.files.blocks.PATIENCE_SECONDS", 0.05)
    speak = threading.Event()

    def silent():
        yield 1
        speak.wait()
        yield 2

    results = map_ahead(lambda x: x, silent(), threads=2)
    assert next(results) == 1
    results.close()
    speak.set()
    for thread in readers():
        thread.join()
