"""steepest demo: guess the package from a docstring, by the commands that a user would run.

Every Python installation holds real text: the docstrings of the standard library and of the installed packages. They
are read from the source files without importing anything. Whole modules are held out, so that no file is on both sides.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import csv
import io
import json
import shlex
import sys
import sysconfig
import time
import warnings
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import steepest as st
from steepest import atomic

LEAST_DOCSTRINGS = 60  # packages with fewer are left out
MOST_PACKAGES = 20
MOST_BYTES = 800_000  # of one package's source, so that none takes the seconds of all the others
LEAST_CHARACTERS = 40
FOREIGN = {"_vendor", "_distutils", "test", "tests", "idle_test"}  # copies of other packages, and tests
HELD_OUT = 5  # one module in so many
LABEL = "package"
QUESTION = "Return the event loop that runs this coroutine"


@dataclass(frozen=True, slots=True)
class Docstring:
    """One text, the package it is from, and whether its module is held out."""

    text: str
    package: str
    held_out: bool


EXAMPLES = ("steepest demo", "steepest demo -m words.steepest", "steepest inspect words.steepest --top 5")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds all flags of the verb."""
    parser.add_argument(
        "-m",
        "--model",
        default="demo.steepest",
        metavar="FILE",
        help="model file; two CSV files and a report are written next to it (default: demo.steepest)",
    )


def run(options: argparse.Namespace) -> int:
    """Writes two CSV files, then runs the commands that a user would run on them, and shows what they print."""
    model = Path(options.model)
    train, test, page = model.with_suffix(".csv"), model.with_name(f"{model.stem}-test.csv"), model.with_suffix(".html")
    _say("Which package is a docstring from? Reading the docstrings of this Python installation ...\n")
    started = time.perf_counter()
    rows = gather()
    parts = {train: [row for row in rows if not row.held_out], test: [row for row in rows if row.held_out]}
    if not parts[train] or not parts[test]:
        raise st.DataError("this Python installation has no source files with docstrings; use another installation")
    counts = Counter(row.package for row in rows)
    _say(f"{len(rows):,} docstrings of {len(counts)} packages, read in {time.perf_counter() - started:.1f} s\n")
    for file, part in parts.items():
        write_rows(file, part)
    _say(f"{train}: {len(parts[train]):,} rows to train on; {test}: {len(parts[test]):,} rows from other modules\n\n")

    _command("train", str(train), "-m", str(model), "--label", LABEL, "--holdout", "0.1", "--report", str(page))
    measures = json.loads(_command("evaluate", str(model), str(test), "--json", show=False))
    majority = Counter(row.package for row in parts[test]).most_common(1)[0]
    always = f"always answering {majority[0]}"
    _say(f"{'accuracy on held-out modules':<32}{measures['accuracy']:6.1%}\n")
    _say(f"{always:<32}{majority[1] / len(parts[test]):6.1%}\n\n")
    _command("explain", str(model), QUESTION)
    _say(_table(st.load(model), counts))
    _say(f"\nOpen {page} in a browser: it shows the learning curve, the metrics and the most important words.\n")
    _say(f"Next: steepest serve {model}     or train on a CSV of your own, as {train} was.\n")
    return 0


def write_rows(file: Path, rows: Sequence[Docstring]) -> None:
    """Writes a CSV file with a header, one row per docstring."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([LABEL, "docstring"])
    writer.writerows((row.package, " ".join(row.text.split())) for row in rows)
    atomic.write_text(file, text.getvalue())


def _say(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def _command(*words: str, show: bool = True) -> str:
    """Runs a command of this program as the shell would; returns what it prints, and shows it."""
    from steepest.cli import main  # which imports this module

    _say(f"$ steepest {shlex.join(words)}\n")
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        status = main(words)
    if status:
        raise st.DataError(f"steepest {words[0]} ended with status {status}")
    if show:
        _say(out.getvalue() + "\n")
    return out.getvalue()


def gather() -> list[Docstring]:
    """Returns docstrings of the packages that have most of them."""
    packages = {name: {file: file.stat().st_size for file in files} for name, files in _packages().items()}
    largest = sorted(packages, key=lambda name: (-sum(packages[name].values()), name))[:MOST_PACKAGES]
    found = []
    for name in sorted(largest):
        rows = [row for file in _sample(packages[name]) for row in _docstrings(name, file)]
        if len(rows) >= LEAST_DOCSTRINGS and {row.held_out for row in rows} == {False, True}:
            found += rows
    return found


def _sample(sizes: dict[Path, int]) -> Iterator[Path]:
    """Yields files of a package in a fixed but mixed order, until there is enough."""
    left = MOST_BYTES
    for file in sorted(sizes, key=lambda file: zlib.crc32(str(file).encode())):
        if left > 0:
            left -= sizes[file]
            yield file


def _packages() -> dict[str, list[Path]]:
    """Returns source files by package: directories of the standard library and of the installed packages."""
    paths = sysconfig.get_paths()
    homes = dict.fromkeys(Path(paths[name]) for name in ("stdlib", "purelib", "platlib"))
    packages: dict[str, list[Path]] = {}
    for home in homes:
        for directory in sorted(home.iterdir()) if home.is_dir() else ():
            if (directory / "__init__.py").is_file() and directory.name.isidentifier() and directory.name != "test":
                files = directory.rglob("*.py")
                packages[directory.name] = [file for file in files if not FOREIGN.intersection(file.parts)]
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


def _table(model: Any, counts: Counter[str]) -> str:
    lines = [f"{'package':<18}{'docstrings':>10}   the top words\n"]
    for package, pairs in model.top_features(5).items():
        words = ", ".join(name.partition(" (or ")[0] for name, _ in pairs)
        lines.append(f"{package:<18}{counts[package]:>10,}   {words}\n")
    return "".join(lines)
