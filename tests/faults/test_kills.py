"""A part of the kill matrix, see kills.py; from each checkpoint of a run, training ends with the same bits."""

from __future__ import annotations

import sys

import pytest

from faults.kills import KILLED, learn, rounds
from steepest.engine.checkpoint import FILE_NAME, Checkpoints

linux = pytest.mark.skipif(sys.platform != "linux", reason="needs SIGKILL")
MOST_RESUMED = 6  # checkpoints of a run, the last one among them


@pytest.mark.filterwarnings("ignore::steepest.NotConverged")
@pytest.mark.parametrize("case", KILLED)
def test_a_run_goes_on_from_each_checkpoint_to_the_same_bits(case, tmp_path, monkeypatch):
    found, save = [], Checkpoints.save

    def save_and_copy(checkpoints, *what):
        save(checkpoints, *what)
        found.append(checkpoints.path.read_bytes())

    monkeypatch.setattr(Checkpoints, "save", save_and_copy)
    learn(case, tmp_path)
    monkeypatch.undo()
    expected = (tmp_path / "m").read_bytes()
    assert found
    for checkpoint in found[:: -max(1, len(found) // MOST_RESUMED)]:
        (tmp_path / "c" / FILE_NAME).write_bytes(checkpoint)
        learn(case, tmp_path)
        assert (tmp_path / "m").read_bytes() == expected


@linux
def test_runs_that_are_killed_twice_end_with_the_same_bits():
    _, _, faults = rounds(2, seed=1)
    assert not faults, "\n".join(faults)


@linux
@pytest.mark.kills
def test_two_hundred_runs_that_are_killed_twice_end_with_the_same_bits():
    _, met, faults = rounds(200)
    assert met > 100
    assert not faults, "\n".join(faults)
