"""Installs this package as pip does, and says on one line what is being done: fetched, compiled, installed.

python tools/install.py [EXTRA]: into the environment of the Python that runs it. pip's output is shown if it fails.
"""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections import deque

STEPS = (
    (re.compile(r"\[(\d+)/(\d+)\] Building"), "compiling file {0} of {1}"),
    (re.compile(r"Collecting ([\w.-]+)"), "fetching {0}"),
    (re.compile(r"Installing build dependencies"), "fetching the build tools"),
    (re.compile(r"Installing collected packages"), "installing"),
)


def main(arguments: list[str]) -> int:
    """Runs pip; returns its status."""
    extra = f"[{arguments[0]}]" if arguments else ""
    command = [sys.executable, "-m", "pip", "install", "-v", "--disable-pip-version-check", "-e", f".{extra}"]
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
