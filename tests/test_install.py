"""The installer of the Makefile says what pip is doing, and shows pip's last lines if it fails."""

from __future__ import annotations

import os
import sys

import pytest
from tools import install

pytestmark = pytest.mark.skipif(os.name == "nt", reason="a shell script plays pip; Windows has no make")


@pytest.fixture
def pip(tmp_path, monkeypatch):
    def play(*lines: str, status: int = 0) -> None:
        script = tmp_path / "python"
        script.write_text("#!/bin/sh\n" + "".join(f"echo '{line}'\n" for line in lines) + f"exit {status}\n")
        script.chmod(0o755)
        monkeypatch.setattr(sys, "executable", str(script))

    return play


def test_steps_are_shown_while_pip_works(pip, capsys):
    pip("Collecting numpy>=1.26", "noise", "  [2/31] Building CXX object a.o", "Installing collected packages: x")
    assert install.main(["test"]) == 0
    lines = capsys.readouterr().out.splitlines()
    said = ["fetching numpy", "compiling file 2 of 31", "installing,", "installed steepest[test]"]
    assert all(words in line for words, line in zip(said, lines, strict=True))


def test_a_failure_shows_the_last_lines_of_pip(pip, capsys):
    pip("error: no compiler was found", status=3)
    assert install.main([]) == 3
    shown = capsys.readouterr().err
    assert "error: no compiler was found" in shown
    assert "pip failed after" in shown


def test_an_extra_brings_what_the_extras_it_names_need():
    extras = {"a": ["x>=1", "steepest[b, c]"], "b": ["y"], "c": ["x>=1", "z"]}
    assert install.needed_by("a", extras) == ["x>=1", "y", "z"]
