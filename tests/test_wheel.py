"""A wheel of this tree works where there is no compiler: installed into an empty environment, it trains on a CSV."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def run(*command: object, **options: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(word) for word in command], capture_output=True, text=True, **options)


@pytest.mark.build
@pytest.mark.skipif(os.name == "nt", reason="the release workflow tests the wheels of Windows")
def test_a_wheel_needs_no_compiler(tmp_path):
    here = all(importlib.util.find_spec(name) for name in ("scikit_build_core", "nanobind"))
    tools = ["--no-build-isolation"] if here else []  # the build tools of this environment, if it has them
    built = run(sys.executable, "-m", "pip", "wheel", "--no-deps", *tools, "-w", tmp_path, ROOT)
    assert built.returncode == 0, built.stderr[-2000:]
    (wheel,) = tmp_path.glob("steepest-*.whl")

    home = tmp_path / "empty"
    venv.create(home, with_pip=True)
    bare = {"PATH": str(home / "bin"), "HOME": os.environ.get("HOME", str(tmp_path))}  # nothing else is found
    bare |= {name: value for name, value in os.environ.items() if name.startswith(("PIP_", "SSL_", "HTTP", "http"))}
    assert run("/bin/sh", "-c", "command -v cc c++ gcc g++ clang cmake ninja", env=bare).stdout == ""
    installed = run(home / "bin" / "pip", "install", "--only-binary", ":all:", wheel, env=bare)
    if "Failed to establish a new connection" in installed.stderr or "No matching distribution" in installed.stderr:
        pytest.skip("no package index to fetch numpy and pyarrow from")
    assert installed.returncode == 0, installed.stderr[-2000:]

    rows = "".join(f"{'good' if k % 2 else 'bad'},{'warm soft' if k % 2 else 'cold torn'} thing\n" for k in range(200))
    (tmp_path / "reviews.csv").write_text("verdict,text\n" + rows)
    steepest = home / "bin" / "steepest"
    trained = run(steepest, "train", "reviews.csv", "-m", "m.steepest", "--label", "verdict", cwd=tmp_path, env=bare)
    assert trained.returncode == 0, trained.stderr
    predicted = run(steepest, "predict", "m.steepest", "reviews.csv", "--limit", "2", cwd=tmp_path, env=bare)
    assert predicted.stdout.split() == ["bad", "good"], predicted.stderr
