"""A second of every fuzz target, from a fixed seed; `make fuzz SECONDS=3600` goes on for longer."""

from __future__ import annotations

import os
import random

import numpy as np
import pytest

import steepest as st
from fuzz import bindings, readers
from fuzz.mutation import drive, execute
from steepest import _native
from steepest.models.vectors import read_vectors

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
TARGETS = {target.name: target for target in [*readers.targets(), bindings.TARGET]}


@pytest.mark.parametrize("name", TARGETS)
def test_the_seeds_are_read(name, tmp_path):
    for seed in TARGETS[name].seeds[:1]:
        assert execute(TARGETS[name], seed, tmp_path) == ""


@pytest.mark.parametrize("name", TARGETS)
def test_mutated_files_are_read_or_refused_in_a_sentence(name, tmp_path):
    done, findings = drive(TARGETS[name], seed=1, seconds=20, folder=tmp_path, most=40)
    assert not findings, findings[0]
    assert done > 0


def test_a_crash_an_endless_loop_and_a_raw_error_are_findings(tmp_path):
    def crash(data, folder):
        os.abort()

    def fail(data, folder):
        raise KeyError("raw")

    for run in (crash, fail):
        target = readers.Target("bad", (b"x",), (b"y",), run)
        assert len(drive(target, 1, 20, tmp_path, most=1)[1]) == 1


def test_every_native_function_has_a_signature_to_make_arguments_from():
    for name, method in bindings.ENTRIES.values():
        thing = getattr(_native, name)
        described = getattr(thing, method) if method else thing.__init__ if isinstance(thing, type) else thing
        assert bindings.signatures(described) or name == "NameLog", (name, method)


def test_weights_without_columns_have_no_means():
    with pytest.raises(ValueError, match="no columns"):
        _native.mean_weights(np.array(1.0), np.array(1.0), 1.0, 1.0, np.zeros(1))


def test_numbering_does_not_write_behind_the_owners():
    slots, owners = np.zeros(8, np.int32), np.zeros(8, np.int32)
    placed, n = _native.number_features(np.arange(8, dtype=np.int32), slots, owners, 6)
    assert n == 8
    assert placed.tolist() == [6, 7, -1, -1, -1, -1, -1, -1]


def test_a_slot_below_zero_places_nothing():
    slots = np.array([-(2**31), -1, 2], np.int32)
    placed, n = _native.number_features(np.arange(3, dtype=np.int32), slots, np.zeros(3, np.int32), 3)
    assert (placed.tolist(), n) == ([-1, -1, 1], 3)


def test_squares_of_rows_in_an_order_are_refused():
    indptr = np.array([0, 1], np.int64)
    order = np.zeros(500, np.int64)
    rows = _native.Rows(indptr, np.zeros(1, np.int32), np.ones(1, np.float32), None, None, order)
    with pytest.raises(ValueError, match="have no order"):
        _native.row_squares(rows)


def test_columns_are_not_more_than_indices_can_name():
    rows = _native.Rows(np.array([0], np.int64), np.zeros(0, np.int32), np.zeros(0, np.float32))
    with pytest.raises(ValueError, match="2 billion"):
        _native.transpose(rows, 2**62)


def test_vectors_that_a_file_is_too_short_for_are_refused_before_memory_is_taken(tmp_path):
    (tmp_path / "v").write_text("3 21474836482\na 1\nb 2\nc 3\n")
    with pytest.raises(st.DataError, match="too short"):
        read_vectors(tmp_path / "v", 21474836482)


def test_random_calls_are_the_same_for_the_same_seed():
    assert bindings.Maker(random.Random(5)).make("int") == bindings.Maker(random.Random(5)).make("int")
