"""The course: every script makes its one claim true, and draws its one picture."""

from __future__ import annotations

import importlib
import json
from pathlib import Path

import numpy as np
import pytest
from tools import notebooks

CLAIMS = {
    "surrogates": lambda found: max(v for k, v in found.items() if k != "squared") < found["squared"] - 0.03,
    "descent": lambda found: found[1.0][-1] < 1e-4 and found[0.1][-1] > 0.1 and found[2.05][-1] > 2 * found[2.05][0],
    "subgradients": lambda found: found["1 / (alpha t)"][-1] < 0.1 * found["constant"][-1],
    "closed_form": lambda found: max(row[1] for row in found) < 1e-6 and found[-1][2] > found[-1][3],
    "batches": lambda found: found[3] < found[0] < found[-1],
    "steps": lambda found: all(auto < 1.05 * best for auto, best in found.values()),
    "truncation": lambda found: found[0][0] > 150 > 60 > found[-1][0] and found[-1][1] > found[0][1] - 0.02,
    "hash_kernel": lambda found: (
        all(abs(m - 100) < 12 for m, _ in found["random signs"]) and found["no signs"][0][0] > 200
    ),
    "mixing": lambda found: found["8 shards, mixed every epoch"][-1] < found["8 shards, mixed once"][-1],
    "strata": lambda found: found[0] and found[1] < 0.6,
    "clusters": lambda found: (
        found[0] == pytest.approx(found[1], rel=1e-4) and found[0] == pytest.approx(found[2], rel=1e-3)
    ),
    "backprop": lambda found: min(found) < 1e-9 < found[-1],
}


@pytest.mark.parametrize("name", CLAIMS)
def test_a_lesson_shows_what_it_claims(name, tmp_path):
    pytest.importorskip("matplotlib")
    found = importlib.import_module(f"examples.{name}").main(tmp_path)
    assert CLAIMS[name](found), found
    assert (tmp_path / f"{name}.svg").stat().st_size > 1000


def test_every_round_of_strata_has_each_row_and_column_once():
    for stratum in importlib.import_module("examples.strata").strata(5):
        assert sorted(i for i, _ in stratum) == sorted(j for _, j in stratum) == list(range(5))


def test_every_lesson_becomes_a_notebook_whose_code_compiles(tmp_path):
    notebooks.main(str(tmp_path))
    made = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in tmp_path.glob("*.ipynb")}
    assert set(CLAIMS) | {"xor", "parity", "averaging", "permutations"} <= set(made)
    for name, book in made.items():
        cells = [cell["source"] for cell in book["cells"] if cell["cell_type"] == "code"]
        assert all(compile(cell, name, "exec") for cell in cells)
        assert not any("__file__" in cell for cell in cells)  # a notebook has none
        assert len({cell["id"] for cell in book["cells"]}) == len(book["cells"])


@pytest.mark.parametrize("name", ["surrogates", "strata"])
def test_a_notebook_runs_and_shows_its_picture(name, tmp_path):
    nbformat = pytest.importorskip("nbformat", reason="notebooks are run where nbclient and ipykernel are installed")
    nbclient = pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    pytest.importorskip("matplotlib")
    book = nbformat.from_dict(notebooks.notebook(notebooks.EXAMPLES / f"{name}.py"))
    nbformat.validate(book)
    nbclient.NotebookClient(book, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    shown = [output for cell in book.cells for output in cell.get("outputs", []) if "data" in output]
    assert any("image/svg+xml" in output["data"] for output in shown)


def test_every_lesson_is_on_the_page_of_the_course():
    root = Path(__file__).parents[1]
    page = (root / "docs" / "course.md").read_text(encoding="utf-8")
    missing = [
        path.stem
        for path in root.glob("examples/*.py")
        if path.stem not in notebooks.NOT_LESSONS and f"`{path.stem}`" not in page
    ]
    assert missing == []
    assert np.all([(root / "docs" / "img" / f"{name}.svg").is_file() for name in CLAIMS])
