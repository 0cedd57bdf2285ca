"""The map from the lectures to the package is true: every test, example and public name in it exists."""

from __future__ import annotations

import re
from pathlib import Path

import steepest

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "lectures.md").read_text(encoding="utf-8")
ROWS = [
    line for line in PAGE.splitlines() if line.startswith("| ") and line.count("|") == 5 and "| topic |" not in line
]


def test_every_row_names_a_test_that_exists():
    tests = {path.relative_to(ROOT / "tests").as_posix() for path in (ROOT / "tests").rglob("test_*.py")}
    functions = set()
    for path in tests:
        functions |= set(re.findall(r"^def (test_\w+)", (ROOT / "tests" / path).read_text(encoding="utf-8"), re.M))
    rows = [row for row in ROWS if not row.startswith("| epochs") and "`shuffle=" not in row.split("|")[1]]
    rows = [row for row in rows if "test" in row.split("|")[4]]
    assert len(rows) >= 50
    for row in rows:
        named = re.findall(r"`([\w/]+(?:\.py)?)`", row.split("|")[4])
        assert named, row
        for name in named:
            assert name in tests or name in functions, f"{name} of {row}"


def test_every_example_that_is_named_exists():
    named = set(re.findall(r"examples\.(\w+)", PAGE))
    assert {"permutations", "decay", "xor", "parity"} <= named
    for name in named - {"NAME", "py"}:
        assert (ROOT / "examples" / f"{name}.py").is_file(), name


def test_every_public_name_is_one():
    for name in set(re.findall(r"\bst\.(\w+)", PAGE)):
        assert name in steepest.__all__, name
