"""The demo learns from this very installation."""

from __future__ import annotations

import re

import steepest as st
from steepest.cli import main
from steepest.cli.demo import gather


def test_the_demo_beats_the_majority_and_leaves_a_model(tmp_path, capsys):
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


def test_whole_modules_are_held_out():
    rows = gather()
    assert {row.held_out for row in rows} == {True, False}
    assert len({row.package for row in rows}) >= 5
