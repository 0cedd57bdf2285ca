"""The worked experiments run, print what they measured and draw their pictures."""

from __future__ import annotations

import importlib

import numpy as np
import pytest


def run(name, tmp_path, monkeypatch, **smaller):
    module = importlib.import_module(f"examples.{name}")
    for key, value in smaller.items():
        monkeypatch.setattr(module, key, value)
    module.main(tmp_path)
    return {path.name for path in tmp_path.iterdir()}


@pytest.fixture(autouse=True)
def _needs_pictures(monkeypatch):
    pytest.importorskip("matplotlib")


def test_xor(tmp_path, monkeypatch, capsys):
    assert run("xor", tmp_path, monkeypatch) == {"xor.svg"}
    assert "accuracy 1.00" in capsys.readouterr().out


def test_initialisation(tmp_path, monkeypatch, capsys):
    assert run("initialisation", tmp_path, monkeypatch, EPOCHS=4) == {"initialisation.svg"}
    assert "kept start" in capsys.readouterr().out


def test_bumps(tmp_path, monkeypatch, capsys):
    assert run("bumps", tmp_path, monkeypatch) == {"bumps.svg"}
    rows = [line.split() for line in capsys.readouterr().out.splitlines() if line.startswith(("8", "every"))]
    clusters, chosen, narrow = (float(row[-1]) for row in rows)
    assert max(clusters, chosen) < 0.5 * narrow


def test_overfitting(tmp_path, monkeypatch):
    assert run("overfitting", tmp_path, monkeypatch, SIZES=(1, 8)) == {"overfitting.svg"}


def test_parity(tmp_path, monkeypatch, capsys):
    smaller = dict(LEARNED_BITS=(2, 3), LONG_BITS=(2, 4, 8, 64), SHAPES={"one layer of 4": (4,)})
    assert run("parity", tmp_path, monkeypatch, **smaller) == {"parity.svg"}
    lines = capsys.readouterr().out.splitlines()
    assert sum("both exact: True" in line for line in lines) == 4
    assert any(line.split()[:6] == ["one", "layer", "of", "4", "1.00", "1.00"] for line in lines)
    assert "2: 1.00, 4: 1.00, 8: 1.00, 64: 1.00" in lines[-2]


def test_odd_numbers_of_bits_are_counted_by_one_layer():
    module = importlib.import_module("examples.parity")
    for n_bits in (1, 3, 5):
        X, y = module.all_rows(n_bits)
        np.testing.assert_array_equal(module.one_layer(X)[0] > 0, y)


def test_digits_stand_in_for_mnist_where_it_is_absent(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("STEEPEST_DATA", str(tmp_path / "nowhere"))
    assert run("mnist", tmp_path, monkeypatch) == {"digits.png"}
    out = capsys.readouterr().out
    assert "MNIST is not there" in out
    assert float(out.split("test error ")[1].split()[0]) < 12.0
    assert np.isfinite(float(out.split("%, ")[1].split()[0]))
