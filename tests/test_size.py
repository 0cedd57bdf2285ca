"""The budget of lines is measured on what git tracks, and one line beyond it is a fault."""

from __future__ import annotations

from collections import Counter

import pytest
from tools import size


def test_beyond_a_budget_there_is_a_fault_that_names_the_directory(capsys):
    lines, budgets = Counter(data=12, root=3), {"total": 20, "data": 12, "root": 3}
    assert size.check("python", lines, budgets) == []
    assert "data            12      12" in capsys.readouterr().out
    assert size.check("python", lines + Counter(data=1), budgets) == ["python/data has 13 lines of at most 12"]
    assert size.check("python", lines, {**budgets, "total": 14}) == ["python has 15 lines of at most 14"]
    assert size.check("python", lines + Counter(new=1), budgets) == ["python/new has no budget"]


@pytest.mark.skipif(not (size.ROOT / ".git").exists(), reason="not a git checkout")
@pytest.mark.parametrize("name", size.TREES)
def test_only_tracked_files_are_counted(name):
    tree, suffixes = size.TREES[name]
    paths = size.tracked(tree, suffixes)
    assert all((size.ROOT / path).is_file() for path in paths)
    assert size.count(tree, suffixes).total() == sum(len((size.ROOT / p).read_bytes().splitlines()) for p in paths)
