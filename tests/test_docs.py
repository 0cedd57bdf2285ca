"""The pages cannot lie: every snippet runs, every output shown is what comes out, every public name is explained.

A page's blocks run in order, in an empty folder, with one namespace. ```python runs unless marked `no-run`; in
```console and ```sh, lines that start with `$ steepest ` run. Output that a page shows (a ```text block behind a
```python one, or lines below a command) is compared word by word: `...` stands for a word or a part of it, alone on a
line for any number of lines, and numbers may differ by two percent, because processors round differently. In a block
marked `loose`, whose numbers depend on the machine or whose command prints more than is shown, each line shown must
start with the word that a line of the output starts with.
"""

from __future__ import annotations

import contextlib
import doctest
import importlib
import inspect
import io
import os
import pkgutil
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

import steepest
from steepest import cli

ROOT = Path(__file__).parents[1]
EXTENDING = ROOT / "docs" / "extend"  # followed in a copy of the tree, by test_extend.py
PAGES = sorted([*ROOT.glob("README.md"), *(ROOT / "docs").rglob("*.md")])
PAGES = [page for page in PAGES if not page.is_relative_to(EXTENDING)]
FENCE = re.compile(r"^```([^\n`]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NUMBER = re.compile(r"[-+]?\d[\d,]*\.?\d*(?:e[-+]?\d+)?")
MODULES = sorted(
    module.name
    for module in pkgutil.walk_packages(steepest.__path__, "steepest.")
    if not module.name.endswith(("__main__", "_native"))
)

every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())


class Block(NamedTuple):
    language: str
    marks: list[str]
    text: str
    line: int


def blocks_of(page: str) -> list[Block]:
    """The fenced blocks of a page, in order."""
    found = []
    for match in FENCE.finditer(page):
        language, *marks = match[1].split() or [""]
        found.append(Block(language, marks, match[2], page.count("\n", 0, match.start()) + 1))
    return found


def commands_of(block: Block) -> list[tuple[str, str]]:
    """(command, output shown below it) of a console block."""
    parts = re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]
    return [(command, shown) for command, _, shown in (part.partition("\n") for part in parts)]


def captured(action) -> tuple[str, object]:
    """What an action prints, on stdout or stderr, and what it returns."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        result = action()
    return out.getvalue(), result


def same_word(shown: str, real: str) -> bool:
    if "..." in shown:
        return re.fullmatch(".+".join(map(re.escape, shown.split("..."))), real) is not None
    if NUMBER.sub("#", shown) != NUMBER.sub("#", real):
        return False
    pairs = zip(NUMBER.findall(shown), NUMBER.findall(real), strict=True)
    return all(float(a.replace(",", "")) == pytest.approx(float(b.replace(",", "")), rel=0.02) for a, b in pairs)


def same_lines(shown: list[str], real: list[str]) -> bool:
    if not shown:
        return not real
    if shown[0].strip() == "...":
        return any(same_lines(shown[1:], real[k:]) for k in range(len(real) + 1))
    if not real:
        return False
    words, others = shown[0].split(), real[0].split()
    same = len(words) == len(others) and all(map(same_word, words, others))
    return same and same_lines(shown[1:], real[1:])


def check_output(shown: str, real: str, where: str) -> None:
    shown_lines, real_lines = ([line for line in text.splitlines() if line.strip()] for text in (shown, real))
    assert same_lines(shown_lines, real_lines), f"{where} shows\n{shown}\nbut there came\n{real}"


def check_first_words(shown: str, real: str, where: str) -> None:
    first = [{"number" if NUMBER.fullmatch(w) else w for w in line.split()[:1]} for line in real.splitlines()]
    for line in shown.splitlines():
        word = next(iter(line.split()), "...")
        word = "number" if NUMBER.fullmatch(word) else word
        assert word == "..." or {word} in first, f"{where} shows\n{line}\nbut there came\n{real}"


def run_console(block: Block, where: str) -> None:
    commands = commands_of(block)
    for number, (command, shown) in enumerate(commands):
        if not command.startswith("steepest "):
            continue
        following, status_shown = commands[number + 1] if number + 1 < len(commands) else ("", "")
        expected = int(status_shown) if following == "echo $?" else 0
        words = shlex.split(command, comments=True)[1:]
        real, status = captured(lambda words=words: cli.main(words))
        assert status == expected, f"{where}: {command}\n{real}"
        if shown.strip():
            check = check_first_words if "loose" in block.marks else check_output
            check(shown, real, f"{where}: {command}")


@every_page
def test_every_snippet_of_a_page_runs_and_prints_what_is_shown(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {"__name__": "__main__"}
    printed = None
    for block in blocks_of(page.read_text(encoding="utf-8")):
        where = f"{page.relative_to(ROOT)}, line {block.line}"
        if block.language == "python" and "no-run" not in block.marks:
            code = compile("\n" * block.line + block.text, page.name, "exec")
            printed, _ = captured(lambda code=code: exec(code, namespace))
            continue
        if block.language == "text" and printed is not None:
            check_output(block.text, printed, where)
        elif block.language in ("console", "sh"):
            run_console(block, where)
        printed = None


@pytest.mark.parametrize(
    ("shown", "real", "same"),
    [
        ("loss 0.500, 12 rows", "loss 0.505, 12 rows", True),
        ("loss 0.500", "loss 0.52", False),
        ("1,000 rows/s", "1,001 rows/s", True),
        ("... rows/s", "77 rows/s", True),
        ('{"seconds": ...}', '{"seconds": 0.12}', True),
        ('{"seconds": ...}', '{"seconds": 0.12', False),
        ("a\n...\nz", "a\nb\nc\nz", True),
        ("a\n...\nz", "a\nb", False),
        ("a", "a\nb", False),
        ("spam", "ham", False),
    ],
)
def test_outputs_are_compared_by_words(shown, real, same):
    assert same_lines(shown.splitlines(), real.splitlines()) is same


@every_page
def test_every_picture_of_a_page_is_there_and_has_a_text_for_those_who_cannot_see_it(page):
    for text, target in re.findall(r"!\[([^\]]*)\]\(([^)]+)\)", page.read_text(encoding="utf-8")):
        assert len(text) > 10, f"{page.name}: the picture {target} has no text"
        assert (page.parent / target).is_file(), f"{page.name}: {target} is not there"


@pytest.mark.parametrize("page", [ROOT / "README.md", ROOT / "CONTRIBUTING.md"], ids=lambda page: page.name)
def test_links_of_pages_outside_the_site_lead_somewhere(page):
    """mkdocs checks those of the site, and stops at a broken one."""
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
        assert (ROOT / target).exists(), f"{page.name}: {target} is not there"


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The built site: a strict build fails at a broken link, a missing anchor, or a page outside the nav."""
    pytest.importorskip("material")
    place = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(place)]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return place


@pytest.mark.build
@pytest.mark.xdist_group("site")
def test_no_page_of_the_site_asks_another_host_for_anything(site):
    asks = re.compile(r"<(?:script|img|iframe|link|source)[^>]*(?:src|href)=[\"']?(?:https?:)?//", re.IGNORECASE)
    pages = list(site.rglob("*.html"))
    assert len(pages) > 60
    assert [page.name for page in pages if asks.search(page.read_text(encoding="utf-8"))] == []
    styles = "".join(file.read_text(encoding="utf-8") for file in site.rglob("*.css"))
    assert not re.search(r"url\([\"']?(?:https?:)?//", styles)


@pytest.mark.build
@pytest.mark.xdist_group("site")
def test_every_picture_of_the_site_has_a_text(site):
    for page in site.rglob("*.html"):
        for picture in re.findall(r"<img[^>]*>", page.read_text(encoding="utf-8")):
            assert re.search(r"alt=[\"'][^\"']", picture), f"{page.name}: {picture}"


@pytest.mark.build
@pytest.mark.xdist_group("site")
def test_no_text_of_the_site_is_taken_for_a_tag(site):
    """A docstring's <word> or <v_i, v_j> outside of backticks would vanish from its page, and so would a bare >>>."""
    lost = re.compile(r"<[a-z]+[_,]|<word|<blockquote")
    pages = [page for page in site.rglob("*.html") if lost.search(page.read_text(encoding="utf-8"))]
    assert [page.name for page in pages] == []


@pytest.mark.build
@pytest.mark.xdist_group("site")
def test_every_public_class_has_a_page_of_its_own(site):
    classes = [name for name in steepest.__all__ if inspect.isclass(getattr(steepest, name))]
    assert [name for name in classes if not (site / "reference" / f"{name}.html").is_file()] == []


REFERENCE = (ROOT / "docs" / "reference" / "index.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("path", re.findall(r"^::: steepest\.(\S+)", REFERENCE, re.MULTILINE))
def test_every_entry_of_the_reference_is_there(path):
    module, _, name = f"steepest.{path}".rpartition(".")
    assert hasattr(importlib.import_module(module), name)


@pytest.mark.parametrize("name", steepest.__all__)
def test_every_public_name_is_explained(name):
    entry = rf"(^::: steepest\.[\w.]*\b|`){name}(`|$)"
    assert re.search(entry, REFERENCE, re.MULTILINE), f"{name} is not in the reference"
    value = getattr(steepest, name)
    if inspect.isclass(value) or callable(value):
        assert (inspect.getdoc(value) or "").strip(), f"{name} has no docstring"
        # A dataclass without a docstring of its own shows its signature.
        assert not (inspect.getdoc(value) or "").startswith(f"{name}(")


@pytest.mark.parametrize("name", [name for name in steepest.__all__ if name != "__version__"])
def test_every_public_name_has_an_example_that_runs(name):
    value = getattr(steepest, name)
    examples = doctest.DocTestFinder(recurse=False).find(value, name, globs={})
    assert examples, f"{name} has no docstring"
    assert examples[0].examples, f"{name} has no example in its docstring: write one behind >>>"
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    assert runner.run(examples[0]).failed == 0


def test_every_parameter_of_the_classifier_is_explained():
    text = inspect.getdoc(steepest.LinearClassifier)
    names = inspect.signature(steepest.LinearClassifier).parameters
    missing = [name for name in names if not re.search(rf"\b{name}\b", text)]
    assert missing == []


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings(name):
    failed, _ = doctest.testmod(importlib.import_module(name), optionflags=doctest.ELLIPSIS)
    assert failed == 0


@pytest.mark.parametrize("name", steepest.__all__)
def test_only_parameters_that_exist_are_described(name):
    public = getattr(steepest, name)
    _, _, section = (inspect.getdoc(public) or "").partition("Parameters\n----------\n")
    section = re.split(r"\n\n\w+\n---", section)[0]
    described = {part for names in re.findall(r"^(\w[\w, ]*)(?: :.*)?$", section, re.M) for part in names.split(", ")}
    if described:
        assert described <= set(inspect.signature(public).parameters)
