"""The map from the lectures to the package is true: every page, test, example and public name in it exists."""

from __future__ import annotations

import ast
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


def named_functions():
    """(module's marks and function) of every test function."""
    found = {}
    for path in (ROOT / "tests").rglob("test_*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        marks = [
            ast.unparse(node.value)
            for node in tree.body
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytestmark"
        ]
        found |= {node.name: (marks, node) for node in tree.body if isinstance(node, ast.FunctionDef)}
    return found


def is_independent(marks, function):
    decorators = [*marks, *(ast.unparse(decorator) for decorator in function.decorator_list)]
    return "pytest.mark.independent" in decorators


def test_every_row_names_a_test_with_an_independent_computation():
    tests = named_functions()
    assert len(TOPICS) >= 70
    for row in TOPICS:
        cell = row.split("|")[4]
        named = re.findall(r"`(\w+)`", cell)
        assert named, row
        assert set(named) <= set(tests), row
        if not any(is_independent(*tests[name]) for name in named):
            assert cell.strip().startswith("same bits as"), row  # of a row that has one; the page says why


def test_what_is_called_independent_does_not_use_our_own_definitions():
    for name, (marks, function) in named_functions().items():
        if is_independent(marks, function):
            names = {node.id for node in ast.walk(function) if isinstance(node, ast.Name)}
            assert not names & {"reference", "LOSSES", "KeptReference"}, name


def test_every_example_that_is_named_exists():
    named = set(re.findall(r"examples\.(\w+)", PAGE))
    assert {"permutations", "decay", "xor", "parity"} <= named
    for name in named - {"NAME", "py"}:
        assert (ROOT / "examples" / f"{name}.py").is_file(), name


def test_every_public_name_is_one():
    for name in set(re.findall(r"\bst\.(\w+)", PAGE)):
        assert name in steepest.__all__, name
