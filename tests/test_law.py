"""The law of the house that the import linter cannot see: short chains of classes, few files, a short walk of a row."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import re
import sys
import threading
from collections import Counter, defaultdict
from pathlib import Path

import pytest

import steepest
from steepest import registry
from steepest.cli import main
from steepest.data.files import blocks

SOURCE = Path(steepest.__file__).parent
PAGE = SOURCE.parents[1] / "docs" / "how-it-works" / "architecture.md"
MOST_CLASSES = 3
MOST_FILES = 5
NEEDS_MORE = ("steepest.spark.pipeline", "steepest.export.mlflow", "steepest.__main__", "steepest._native")
MOST_MODULES = 15  # of the walk of a row
NAME = re.compile(r"`((?:cli|data|engine|features|learners|models)/[a-z_/]+)`")


def own(cls):
    return [base for base in cls.__bases__ if base.__module__.startswith("steepest.")]


def chain(cls):
    """Our classes in the longest line of inheritance."""
    return 1 + max(map(chain, own(cls)), default=0)


def files_of(cls):
    return {cls.__module__}.union(*map(files_of, own(cls)))


def all_classes():
    for module in pkgutil.walk_packages([str(SOURCE)], "steepest."):
        if module.name not in NEEDS_MORE:
            found = importlib.import_module(module.name)
            yield from (c for c in vars(found).values() if inspect.isclass(c) and c.__module__ == module.name)


def test_at_most_three_of_our_classes_are_in_one_line_of_inheritance():
    long = [f"{cls.__module__}.{cls.__name__}" for cls in all_classes() if chain(cls) > MOST_CLASSES]
    assert not long


@pytest.mark.parametrize("name", sorted(registry.MODELS))
def test_an_estimator_its_bases_and_its_learner_are_in_at_most_five_files(name):
    files = files_of(registry.find(name))
    assert len(files) + 1 <= MOST_FILES, sorted(files)  # and the learner's


def test_type_checkers_see_the_public_names_of_the_registry():
    tree = ast.parse((SOURCE / "__init__.py").read_text(encoding="utf-8"))
    block = next(node for node in tree.body if isinstance(node, ast.If))
    shown = {
        alias.asname or f"{alias.name}, not public": node.module.partition(".")[2]
        for node in block.body
        if isinstance(node, ast.ImportFrom) and node.module != "typing"
        for alias in node.names
    }
    assert shown.pop("plots, not public") == "report"  # a module, public under another name
    assert shown == {name: module for name, module in registry.PUBLIC.items() if name not in registry.MODULES}
    assert set(steepest.__all__) == {*registry.PUBLIC, "__version__"}


def test_the_tree_on_the_page_has_every_directory_and_every_module_of_the_main_rooms():
    tree = PAGE.read_text(encoding="utf-8").partition("## The tree")[2].partition("## The import law")[0]
    rooms = [SOURCE / room for room in ("models", "features", "select", "engine", "learners", "serve")]
    modules = {path for room in (SOURCE, *rooms) for path in room.glob("*.py")} | set((SOURCE / "data").rglob("*.py"))
    native = SOURCE.parents[1] / "native"
    directories = {path for path in (*SOURCE.rglob("*/"), *native.rglob("*/")) if any(path.glob("*.[chp]*"))}
    named = set(re.findall(r"\w+", tree))
    assert {path.stem for path in modules | directories} - {"__init__", "__main__", "__pycache__"} <= named


def test_no_two_modules_of_one_layer_have_the_same_name():
    for layer in (path for path in SOURCE.iterdir() if path.is_dir() and path.name != "__pycache__"):
        names = Counter(path.stem for path in layer.rglob("*.py") if path.stem != "__init__")
        names -= Counter(path.stem for path in (layer / "reference").glob("*.py"))  # named as what they define
        assert [name for name, n in names.items() if n > 1] == []


def test_the_contract_of_learners_fits_on_two_screens():
    assert len((SOURCE / "learners" / "base.py").read_text(encoding="utf-8").splitlines()) <= 180


@pytest.mark.parametrize("place", ["benchmarks", "examples", "tools", "docs"])
def test_scripts_beside_the_package_import_only_names_that_it_has(place):
    for path in (SOURCE.parents[1] / place).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "steepest":
                names = {alias.name for alias in node.names}
                parts = {
                    part.name for part in pkgutil.iter_modules([str(SOURCE.joinpath(*node.module.split(".")[1:]))])
                }
                missing = names - set(dir(importlib.import_module(node.module))) - parts
                assert not missing, f"{path.name}:{node.lineno}: {node.module} has no {missing}"


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 1 << 13)


def calls_of_training(path, n_rows):
    """How often each function of the package runs when a table of so many rows is learned once."""
    words = "the quick brown fox jumps over a lazy dog while it rains"
    lines = (
        f"{'good' if i % 2 else 'bad'},{'red' if i % 3 else 'blue'},{i % 7}.5,{words} {i % 90}" for i in range(n_rows)
    )
    path.write_text("stars,colour,price,text\n" + "\n".join(lines) + "\n")
    calls = Counter()

    def note(frame, event, _):
        if event == "call" and frame.f_code.co_filename.startswith(str(SOURCE)):
            calls[str(Path(frame.f_code.co_filename).relative_to(SOURCE).with_suffix("")), frame.f_code.co_name] += 1

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        # Knots and pairs are chosen on a sample, by solvers whose steps are not those of a row.
        options = ["--label", "stars", "--solver", "stochastic", "--epochs", "1", "--quiet", "--knots", "false"]
        options += ["--pairs", "0"]
        assert main(["train", str(path), "-m", str(path) + ".model", *options]) == 0
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return calls


def test_the_walk_of_a_row_of_csv_text_is_the_one_that_the_page_shows(tmp_path, small_blocks):
    path = tmp_path / "reviews.csv"
    few, many = calls_of_training(path, 2_000), calls_of_training(path, 8_000)
    more_chunks = many["engine/loop", "chunk_done"] - few["engine/loop", "chunk_done"]
    assert more_chunks >= 8
    modules = defaultdict(set)
    for (module, function), n in many.items():
        if n - few[module, function] >= more_chunks:
            modules[module].add(function)
    walk = set(NAME.findall(PAGE.read_text(encoding="utf-8").partition("## The path of one row")[2]))
    assert set(modules) <= walk, {name: modules[name] for name in set(modules) - walk}
    assert len(walk) <= MOST_MODULES
