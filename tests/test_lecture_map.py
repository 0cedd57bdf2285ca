"""The map from the lectures to the package is true: every page, test, example and public name in it exists."""

from __future__ import annotations

import re
from pathlib import Path

import steepest

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "lectures.md").read_text(encoding="utf-8")
ROWS = [
    line for line in PAGE.splitlines() if line.startswith("| ") and line.count("|") == 5 and "| topic |" not in line
]
TOPICS = [row for row in ROWS if "test" in row.split("|")[4]]


def anchors(path):
    """The anchors of a page's headings, outside of its snippets."""
    text = re.sub(r"^```.*?^```", "", path.read_text(encoding="utf-8"), flags=re.M | re.S)
    titles = re.findall(r"^#+ (.+)", text, re.M)
    return {re.sub(r"[\s-]+", "-", re.sub(r"[^\w\s-]", "", title).strip().lower()) for title in titles}


def test_every_row_leads_to_a_place_on_a_page():
    for row in TOPICS:
        links = re.findall(r"\]\(([^)#]*)#([^)]+)\)", row.split("|")[3])
        assert links, row
        for page, anchor in links:
            assert anchor in anchors(ROOT / "docs" / (page or "lectures.md")), f"{page}#{anchor}"


def test_every_row_names_a_test_that_exists():
    tests = {path.relative_to(ROOT / "tests").as_posix() for path in (ROOT / "tests").rglob("test_*.py")}
    functions = set()
    for path in tests:
        functions |= set(re.findall(r"^def (test_\w+)", (ROOT / "tests" / path).read_text(encoding="utf-8"), re.M))
    assert len(TOPICS) >= 70
    for row in TOPICS:
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
