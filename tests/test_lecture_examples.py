"""The examples of the page on the lectures: each claim is measured anew, and its picture is drawn."""

from __future__ import annotations

import importlib

import numpy as np
import pytest


@pytest.fixture(autouse=True)
def _needs_pictures():
    pytest.importorskip("matplotlib")


def run(name, folder):
    return importlib.import_module(f"examples.{name}").main(folder)


def test_sorted_rows_need_a_permutation_and_do_best_with_many(tmp_path, monkeypatch):
    module = importlib.import_module("examples.permutations")
    monkeypatch.setattr(module, "EPOCHS", (1, 8))
    found = run("permutations", tmp_path)
    assert found["as sorted"][-1] > 100 * found["permuted once"][-1]
    assert found["permuted every epoch"][-1] < found["permuted once"][-1]
    assert found["permuted every epoch"][0] == found["permuted once"][0]  # the first epoch is the same one
    assert (tmp_path / "permutations.svg").stat().st_size > 1000


def test_scaled_weights_are_exact_and_rare_decay_is_not(tmp_path):
    found = run("decay", tmp_path)
    assert found["w = s v"] < 1e-12
    rare = [found[f"every {k} rows"] for k in (10, 100, 1000)]
    assert 1e-3 < rare[0] < rare[1] / 5 < rare[2] / 25
    assert (tmp_path / "decay.svg").stat().st_size > 1000


def test_the_average_by_eta_keeps_to_its_bound(tmp_path, monkeypatch):
    module = importlib.import_module("examples.averaging")
    monkeypatch.setattr(module, "LENGTHS", (100, 1000, 4000))
    found = np.array(run("averaging", tmp_path))
    average, _, bound = found.T
    assert np.all(average < bound)
    assert np.all(np.diff(average) < 0)
    assert np.all(np.diff(bound) < 0)
    assert (tmp_path / "averaging.svg").stat().st_size > 1000


@pytest.mark.independent
def test_the_bound_is_the_lectures_formula():
    bound = importlib.import_module("examples.averaging").bound
    assert bound(2.0, 3.0, np.array([0.5, 0.25])) == pytest.approx((4 + 9 * (0.25 + 0.0625)) / 1.5)
