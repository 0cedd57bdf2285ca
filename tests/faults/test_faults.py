"""Every call of the system fails once; see inject.py and shim.c."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
compiler = shutil.which("cc")
pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or compiler is None, reason="needs Linux and a C compiler for the LD_PRELOAD library"
)


def inject(tmp_path, most):
    library = tmp_path / "shim.so"
    subprocess.run([compiler, "-O1", "-shared", "-fPIC", "-o", library, HERE / "shim.c", "-ldl"], check=True)
    command = [sys.executable, str(HERE / "inject.py"), str(library), str(most)]
    run = subprocess.run(
        command, env={**os.environ, "LD_PRELOAD": str(library)}, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stdout + run.stderr[-2000:]


def test_a_failing_call_ends_in_a_sentence_and_spoils_no_file(tmp_path):
    inject(tmp_path, 6)


@pytest.mark.faults
def test_every_failing_call_ends_in_a_sentence_and_spoils_no_file(tmp_path):
    inject(tmp_path, 100_000)
