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
    module = importlib.import_module("examples.parity")
    assert module.best((4,), 3)[0] == 1.0


def test_digits_stand_in_for_mnist_where_it_is_absent(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("STEEPEST_DATA", str(tmp_path / "nowhere"))
    assert run("mnist", tmp_path, monkeypatch) == {"digits.png"}
    out = capsys.readouterr().out
    assert "MNIST is not there" in out
    assert float(out.split("test error ")[1].split()[0]) < 12.0
    assert np.isfinite(float(out.split("%, ")[1].split()[0]))
