"""The parsers under a sanitizer: compiled here, fed with mutated text, they must neither read nor write astray."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

NATIVE = Path(__file__).parents[2] / "native"
COMPILER = shutil.which(os.environ.get("CXX", "c++")) or shutil.which("g++") or shutil.which("clang++")
FLAGS = ["-std=c++17", "-g1", "-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]


@pytest.mark.build
@pytest.mark.skipif(os.name == "nt" or COMPILER is None, reason="needs a C++ compiler with sanitizers")
@pytest.mark.parametrize("target", sorted(path.stem for path in (NATIVE / "fuzz").glob("*.cpp")))
def test_mutated_text_breaks_no_promise(target, tmp_path):
    program = tmp_path / target
    build = [COMPILER, *FLAGS, f"-I{NATIVE}", str(NATIVE / "fuzz" / f"{target}.cpp"), "-o", str(program)]
    built = subprocess.run(build, capture_output=True, text=True)
    if "cannot find -lasan" in built.stderr or "libclang_rt" in built.stderr:
        pytest.skip("the compiler lacks its sanitizer library")
    assert built.returncode == 0, built.stderr
    run = subprocess.run([program, "20000", "1"], capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stderr
    assert run.stdout == "20000 inputs\n"
