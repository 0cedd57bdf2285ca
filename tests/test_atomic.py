"""The one safe write. What it promises in full is tested with model files and caches, which use it."""

from __future__ import annotations

import os
import stat
import subprocess
import sys

import pytest

from steepest import atomic
from steepest.errors import DataError

KILLED = """
import os, sys
from steepest import atomic
with atomic.writing(sys.argv[1]) as file:
    file.write(b"half")
    os._exit(1)
"""


def test_a_file_appears_when_it_is_complete(tmp_path):
    path = tmp_path / "x"
    with atomic.writing(path) as file:
        file.write(b"new")
        assert not path.exists()
    assert path.read_bytes() == b"new"
    assert os.listdir(tmp_path) == ["x"]


@pytest.mark.parametrize("durable", [True, False])
def test_what_fails_changes_nothing(tmp_path, durable):
    path = tmp_path / "x"
    atomic.write_text(path, "old")
    with pytest.raises(ZeroDivisionError), atomic.writing(path, durable=durable) as file:
        file.write(b"new" * (1 // 0))
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["x"]


def test_what_a_killed_writer_left_is_removed_by_the_next(tmp_path):
    name = "x" * 250  # as long as a name may be, nearly
    for _ in range(2):
        subprocess.run([sys.executable, "-c", KILLED, str(tmp_path / name)], check=False)
        (left,) = os.listdir(tmp_path)
        assert left.endswith(".part")
    atomic.write_text(tmp_path / name, "whole")
    assert os.listdir(tmp_path) == [name]


def test_a_writer_at_work_is_not_disturbed(tmp_path):
    with atomic.writing(tmp_path / "x") as first:
        first.write(b"first")
        atomic.write_text(tmp_path / "x", "second")
    assert (tmp_path / "x").read_bytes() == b"first"


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX permissions and links")
def test_links_and_permissions_stay(tmp_path):
    atomic.write_text(tmp_path / "x", "old")
    (tmp_path / "x").chmod(0o604)
    (tmp_path / "link").symlink_to(tmp_path / "x")
    atomic.write_text(tmp_path / "link", "new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "x").read_text() == "new"
    assert stat.S_IMODE((tmp_path / "x").stat().st_mode) == 0o604


def test_refusals_say_what_and_why(tmp_path):
    refusal = r"^the page .*nowhere.x cannot be written \(No such file.*\); create its dir"
    with pytest.raises(DataError, match=refusal), atomic.writing(tmp_path / "nowhere" / "x", "the page "):
        pass
    with pytest.raises(DataError, match="something that is not a file has this name; choose another"):
        atomic.write_text(tmp_path, "")
    with pytest.raises(DataError, match="a path cannot hold a null byte"):
        atomic.write_text("a\0b", "")
