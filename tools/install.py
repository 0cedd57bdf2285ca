"""Installs this package as pip does, and says on one line what is being done: fetched, compiled, installed.

python tools/install.py [EXTRA]: into the environment of the Python that runs it. With an extra, only what it needs
besides the package, which is there already and would be compiled once more. pip's output is shown if it fails.
The tools of the build stay in the environment: a wheel that is built there later compiles only what has changed.
"""

from __future__ import annotations

import re
import subprocess
import sys
import time
import tomllib
from collections import deque
from pathlib import Path

BUILD_TOOLS = ("cmake", "ninja")  # which the build would fetch by itself, each time anew
STEPS = (
    (re.compile(r"\[(\d+)/(\d+)\] Building"), "compiling file {0} of {1}"),
    (re.compile(r"Collecting ([\w.-]+)"), "fetching {0}"),
    (re.compile(r"Installing build dependencies"), "fetching the build tools"),
    (re.compile(r"Installing collected packages"), "installing"),
)


def needed_by(extra: str, extras: dict[str, list[str]]) -> list[str]:
    """The requirements of an extra, and of the extras that it names."""
    found: list[str] = []
    for requirement in extras[extra]:
        own = re.fullmatch(r"steepest\[([\w, -]+)\]", requirement)
        named = own[1].split(",") if own else []
        parts = [part for name in named for part in needed_by(name.strip(), extras)] or [requirement]
        found += [part for part in parts if part not in found]
    return found


def main(arguments: list[str]) -> int:
    """Runs pip; returns its status."""
    project = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))
    if arguments:
        calls = [needed_by(arguments[0], project["project"]["optional-dependencies"])]
    else:
        calls = [[*project["build-system"]["requires"], *BUILD_TOOLS], ["--no-build-isolation", "-e", "."]]
    name, started = f"steepest{f'[{arguments[0]}]' if arguments else ''}", time.monotonic()
    for what in calls:
        if status := run_pip(what, name, started):
            return status
    print(("\r\033[K" if sys.stdout.isatty() else "") + f"installed {name} in {time.monotonic() - started:.0f} s")
    return 0


def run_pip(what: list[str], name: str, started: float) -> int:
    """Runs `pip install` and shows its steps; returns its status."""
    command = [sys.executable, "-m", "pip", "install", "-v", "--disable-pip-version-check", *what]
    said, last = "", deque[str](maxlen=60)
    tty = sys.stdout.isatty()
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    ) as pip:
        assert pip.stdout is not None
        for line in pip.stdout:
            last.append(line)
            for pattern, words in STEPS:
                found = pattern.search(line)
                if found and (text := words.format(*found.groups())) != said:
                    said = text
                    show = f"installing {name}: {text}, {time.monotonic() - started:.0f} s"
                    print(f"\r\033[K{show}" if tty else show, end="" if tty else "\n", flush=True)
    if pip.returncode:
        print("\n" + "".join(last), file=sys.stderr)
        seconds = time.monotonic() - started
        print(f"pip failed after {seconds:.0f} s; the lines above are its last ones", file=sys.stderr)
    return pip.returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
