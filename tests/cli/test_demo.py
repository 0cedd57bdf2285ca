"""The demo learns from this very installation."""

from __future__ import annotations

import re

import pytest

import steepest as st
from steepest.cli import demo, main


@pytest.fixture(scope="module")
def gathered():
    return demo.gather()


def test_the_demo_beats_the_majority_and_leaves_a_model(gathered, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(demo, "gather", lambda: gathered)
    model = tmp_path / "demo.steepest"
    assert main(["demo", "-m", str(model)]) == 0
    shown = capsys.readouterr().out
    accuracy = float(re.search(r"accuracy on held-out modules +([\d.]+)%", shown)[1])
    majority = float(re.search(r"always answering \S+ +([\d.]+)%", shown)[1])
    assert accuracy > majority + 15
    header, first = (tmp_path / "demo.csv").read_text(encoding="utf-8").splitlines()[:2]
    assert header == "package,docstring"
    assert first.count(",") >= 1
    page = (tmp_path / "demo.html").read_text(encoding="utf-8")
    assert "<svg" in page
    assert "accuracy" in page
    loaded = st.load(model)
    assert loaded.predict(["Return the event loop that runs this coroutine"]).shape == (1,)
    assert all(pairs for pairs in loaded.top_features(3).values())


def test_whole_modules_are_held_out(gathered):
    assert {row.held_out for row in gathered} == {True, False}
    assert len({row.package for row in gathered}) >= 5
