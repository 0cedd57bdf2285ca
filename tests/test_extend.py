"""The pages on extending the package cannot lie: each is followed to the letter, in a copy of the tree.

A block below a line that ends with the name of a file and a colon belongs to that file: ```diff changes it (the lines
that are there are found, whatever their number), other languages are the whole of a new file. What is left is run in
the changed copy, and the outputs shown are compared as on all pages: ```python, and `$ steepest` lines of ```console.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

import steepest._native
from test_docs import ROOT, blocks_of, check_output, commands_of

PAGES = sorted((ROOT / "docs" / "extend").glob("*.md"))
# How many files of src/ and native/ each page touches, beside tests and docs: the design promises no more.
MOST_FILES = {"add-a-loss": 2, "add-a-solver": 4, "add-a-format": 2, "add-a-model": 3}
FILE_LINE = re.compile(r"`([\w./-]+\.(?:py|h|cpp))`[^`\n]*:$")

every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)

# The copy is imported whatever is installed, and how: editable installs put a finder before sys.path.
DRIVER = """
import contextlib, io, json, shlex, sys
sys.meta_path[:] = [finder for finder in sys.meta_path if "Redirecting" not in type(finder).__name__]
sys.path.insert(0, {source!r})
from steepest.cli import main
names, shown = {{"__name__": "__main__"}}, []
for language, text in {blocks!r}:
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        if language == "python":
            exec(text, names)
        else:
            main(shlex.split(text)[1:])
    shown.append(out.getvalue())
print("SHOWN" + __import__("json").dumps(shown))
"""


class Step(NamedTuple):
    language: str
    text: str
    file: str | None  # that the block belongs to
    line: int


def steps_of(page: Path) -> list[Step]:
    """The blocks of a page, each with the file it belongs to."""
    text = page.read_text(encoding="utf-8")
    lines = text.splitlines()
    found = []
    for block in blocks_of(text):
        before = next((line for line in reversed(lines[: block.line - 1]) if line.strip()), "")
        file = FILE_LINE.search(before)
        found.append(Step(block.language, block.text, file and file[1], block.line))
    return found


def changed(text: str, diff: str) -> str:
    """The text after a diff without line numbers; `...` alone on a line leaves out what is between two places."""
    for hunk in re.split(r"^\s*\.\.\.\n", diff, flags=re.MULTILINE):
        lines = [line if line.strip() else " " for line in hunk.splitlines()]
        old, new = ("".join(f"{line[1:]}\n" for line in lines if line[0] in kinds) for kinds in (" -", " +"))
        assert text.count(old) == 1, f"these lines are there {text.count(old)} times:\n{old}"
        text = text.replace(old, new)
    return text


def follow(page: Path, folder: Path) -> list[Step]:
    """Makes all changes of a page in a copy of the tree; returns what is left to run."""
    for tree in ("src", "native"):
        shutil.copytree(ROOT / tree, folder / tree, ignore=shutil.ignore_patterns("__pycache__", "*.so", "*.pyd"))
    native = Path(steepest._native.__file__)
    shutil.copy(native, folder / "src" / "steepest" / native.name)
    rest = []
    for step in steps_of(page):
        if step.file is None:
            rest.append(step)
            continue
        path = folder / step.file
        if step.language == "diff":
            path.write_text(changed(path.read_text(encoding="utf-8"), step.text), encoding="utf-8")
        else:
            assert not path.exists(), f"{step.file} is there already"
            path.write_text(step.text, encoding="utf-8")
    return rest


def run(folder: Path, blocks: list[tuple[str, str]]) -> list[str]:
    """What blocks of code and commands print in the changed tree."""
    script = DRIVER.format(source=str(folder / "src"), blocks=blocks)
    done = subprocess.run([sys.executable, "-c", script], cwd=folder, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.partition("SHOWN")[2])


@every_page
def test_a_page_on_extending_is_followed_to_the_letter(page, tmp_path):
    blocks, expected = [], []
    for step in follow(page, tmp_path):
        where = f"{page.name}, line {step.line}"
        if step.language == "python":
            blocks.append(("python", step.text))
            expected.append((None, where))
        elif step.language == "text":
            expected[-1] = (step.text, where)
        elif step.language == "console":
            for command, shown in commands_of(step):
                blocks.append(("console", command))
                expected.append((shown or None, f"{where}: {command}"))
    assert blocks, "the page adds something and never uses it"
    for real, (shown, where) in zip(run(tmp_path, blocks), expected, strict=True):
        if shown is not None:
            check_output(shown, real, where)


@every_page
def test_little_is_touched(page):
    touched = {step.file for step in steps_of(page) if step.file is not None}
    assert 0 < len(touched) <= MOST_FILES[page.stem]


def test_all_four_are_explained():
    assert {page.stem for page in PAGES} == MOST_FILES.keys()


PROGRAM = """
#define STEEPEST_ISA baseline
#include "linear/losses.h"
#include <stdio.h>
int main() {
  for (double y = -1; y <= 1; y += 2)
    for (double z = -4; z <= 4; z += 0.125) {
      const auto found = steepest::baseline::evaluate_loss(%d, 0.0, z, y);
      printf("%%.17g %%.17g\\n", found.value, found.%s);
    }
}
"""


@pytest.mark.build
def test_the_loss_of_the_page_is_the_same_in_both_languages(tmp_path):
    compiler = shutil.which("c++") or pytest.skip("there is no C++ compiler")
    follow(next(page for page in PAGES if page.stem == "add-a-loss"), tmp_path)
    code = """
import numpy as np
from steepest.learners.losses import LOSSES
loss = list(LOSSES.values())[-1]
z = np.arange(-4, 4.125, 0.125)
rows = [np.column_stack([loss.value(z, y), loss.gradient(z, y)]).tolist() for y in (-1.0, 1.0)]
print(loss.code, rows[0] + rows[1])
"""
    number, rows = run(tmp_path, [("python", code)])[0].split(" ", 1)
    field = re.search(r"double (slope|gradient);", (tmp_path / "native/linear/losses.h").read_text())[1]
    (tmp_path / "loss.cpp").write_text(PROGRAM % (int(number), field))
    build = [compiler, "-std=c++17", "-I", str(tmp_path / "native"), str(tmp_path / "loss.cpp"), "-o", "loss"]
    subprocess.run(build, cwd=tmp_path, check=True, timeout=120)
    printed = subprocess.run([str(tmp_path / "loss")], capture_output=True, text=True, check=True).stdout
    found = np.array([line.split() for line in printed.splitlines()], np.float64)
    np.testing.assert_allclose(found, np.array(json.loads(rows)), rtol=1e-12, atol=1e-15)


def test_lines_that_are_not_there_or_there_twice_are_refused():
    assert changed("a\nb\nc\n", " a\n-b\n+d\n") == "a\nd\nc\n"
    assert changed("a\nb\nc\n", " a\n+1\n...\n c\n+2\n") == "a\n1\nb\nc\n2\n"
    with pytest.raises(AssertionError, match="there 0 times"):
        changed("a\n", " b\n+c\n")
    with pytest.raises(AssertionError, match="there 2 times"):
        changed("a\na\n", " a\n+c\n")
