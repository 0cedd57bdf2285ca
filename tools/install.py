"""Installs this package as pip does, and says on one line what is being done: fetched, compiled, installed.

python tools/install.py [EXTRA]: into the environment of the Python that runs it. With an extra, only what it needs
besides the package, which is there already and would be compiled once more. pip's output is shown if it fails.
"""

from __future__ import annotations

import re
import subprocess
import sys
import time
import tomllib
from collections import deque
from pathlib import Path

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
    extra = f"[{arguments[0]}]" if arguments else ""
    what = ["-e", "."]
    if arguments:
        project = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))["project"]
        what = needed_by(arguments[0], project["optional-dependencies"])
    command = [sys.executable, "-m", "pip", "install", "-v", "--disable-pip-version-check", *what]
    started, said, last = time.monotonic(), "", deque[str](maxlen=60)
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
                    show = f"installing steepest{extra}: {text}, {time.monotonic() - started:.0f} s"
                    print(f"\r\033[K{show}" if tty else show, end="" if tty else "\n", flush=True)
    seconds = time.monotonic() - started
    if pip.returncode:
        print("\n" + "".join(last), file=sys.stderr)
        print(f"pip failed after {seconds:.0f} s; the lines above are its last ones", file=sys.stderr)
    else:
        print(("\r\033[K" if tty else "") + f"installed steepest{extra} in {seconds:.0f} s")
    return pip.returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
