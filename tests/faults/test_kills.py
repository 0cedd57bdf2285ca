"""A part of the kill matrix; see kills.py."""

from __future__ import annotations

import sys

import pytest

from faults.kills import rounds

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs SIGKILL")


def test_runs_that_are_killed_twice_end_with_the_same_bits():
    _, _, faults = rounds(2, seed=1)
    assert not faults, "\n".join(faults)


@pytest.mark.kills
def test_two_hundred_runs_that_are_killed_twice_end_with_the_same_bits():
    _, met, faults = rounds(200)
    assert met > 100
    assert not faults, "\n".join(faults)
