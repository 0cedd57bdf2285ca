"""steepest demo: guess the package from a docstring.

Every Python installation holds real text: the docstrings of the standard library and of the installed packages. They
are read from the source files without importing anything. Whole modules are held out, so that no file is on both sides.
"""

from __future__ import annotations

import argparse
import ast
import sys
import sysconfig
import time
import warnings
import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import steepest as st

LEAST_DOCSTRINGS = 60  # packages with fewer are left out
MOST_PACKAGES = 20
MOST_BYTES = 800_000  # of one package's source, so that none takes the seconds of all the others
LEAST_CHARACTERS = 40
FOREIGN = {"_vendor", "_distutils", "test", "tests", "idle_test"}  # copies of other packages, and tests
HELD_OUT = 5  # one module in so many


@dataclass(frozen=True, slots=True)
class Docstring:
    """One text, the package it is from, and whether its module is held out."""

    text: str
    package: str
    held_out: bool


EXAMPLES = (
    "steepest demo",
    "steepest demo -m words.steepest",
    "steepest inspect words.steepest --top 5",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """All flags of the verb."""
    parser.add_argument("-m", "--model", default="demo.steepest", help="where the model is saved")


def run(options: argparse.Namespace) -> int:
    """Reads, trains, measures and shows."""
    say = sys.stdout.write
    started = time.perf_counter()
    rows = gather()
    train, test = [row for row in rows if not row.held_out], [row for row in rows if row.held_out]
    if not train or not test:
        raise st.DataError("this Python installation has no source files with docstrings; try the demo elsewhere")
    counts = Counter(row.package for row in rows)
    say(f"{len(rows):,} docstrings of {len(counts)} packages, read in {time.perf_counter() - started:.1f} s\n")
    say(f"learning from {len(train):,} of them; {len(test):,} in other modules are held out\n\n")

    model = st.LinearClassifier(hasher=st.Hasher(n_bits=17, ngrams=(1, 2), names=20_000), random_state=0)
    started = time.perf_counter()
    model.fit([row.text for row in train], [row.package for row in train])
    seconds = time.perf_counter() - started
    texts, truth = [row.text for row in test], [row.package for row in test]
    accuracy = model.score(texts, truth)
    majority = Counter(truth).most_common(1)[0]
    model.save(options.model)

    say(f"accuracy on held-out modules  {accuracy:6.1%}\n")
    say(f"always answering {majority[0]:<12} {majority[1] / len(truth):6.1%}\n\n")
    say(_table(model, counts))
    megabytes = sum(len(row.text) for row in train) / 1e6
    rate = len(train) * model.n_iter_ / seconds
    say(f"\nraw text to model in {seconds:.2f} s: {megabytes:.1f} MB, {model.n_iter_} epochs, {rate:,.0f} rows/s\n")
    say(f"the model is {options.model} ({Path(options.model).stat().st_size:,} bytes); look inside it with\n")
    say(f"  steepest inspect {options.model} --top 5\n")
    return 0


def gather() -> list[Docstring]:
    """Docstrings of the packages that have most of them."""
    packages = {name: {file: file.stat().st_size for file in files} for name, files in _packages().items()}
    largest = sorted(packages, key=lambda name: (-sum(packages[name].values()), name))[:MOST_PACKAGES]
    found = []
    for name in sorted(largest):
        rows = [row for file in _sample(packages[name]) for row in _docstrings(name, file)]
        if len(rows) >= LEAST_DOCSTRINGS and {row.held_out for row in rows} == {False, True}:
            found += rows
    return found


def _sample(sizes: dict[Path, int]) -> Iterator[Path]:
    """Files of a package in a fixed but mixed order, until there is enough."""
    left = MOST_BYTES
    for file in sorted(sizes, key=lambda file: zlib.crc32(str(file).encode())):
        if left > 0:
            left -= sizes[file]
            yield file


def _packages() -> dict[str, list[Path]]:
    """Source files by package: folders of the standard library and of the installed packages."""
    paths = sysconfig.get_paths()
    homes = dict.fromkeys(Path(paths[name]) for name in ("stdlib", "purelib", "platlib"))
    packages: dict[str, list[Path]] = {}
    for home in homes:
        for folder in sorted(home.iterdir()) if home.is_dir() else ():
            if (folder / "__init__.py").is_file() and folder.name.isidentifier() and folder.name != "test":
                files = folder.rglob("*.py")
                packages[folder.name] = [file for file in files if not FOREIGN.intersection(file.parts)]
    return packages


def _docstrings(package: str, file: Path) -> Iterator[Docstring]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # old escapes in other people's strings
            tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError):
        return
    held_out = zlib.crc32(f"{package}/{file.stem}".encode()) % HELD_OUT == 0
    nodes: list[ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef] = [tree]
    while nodes:
        node = nodes.pop()
        nodes += [n for n in node.body if isinstance(n, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)]
        text = ast.get_docstring(node)
        if text and len(text) >= LEAST_CHARACTERS:
            yield Docstring(text, package, held_out)


def _table(model: st.LinearClassifier, counts: Counter[str]) -> str:
    lines = [f"{'package':<18}{'docstrings':>10}   the most telling words\n"]
    for package, pairs in model.top_features(5).items():
        words = ", ".join(name.partition(" (or ")[0] for name, _ in pairs)
        lines.append(f"{package:<18}{counts[package]:>10,}   {words}\n")
    return "".join(lines)
