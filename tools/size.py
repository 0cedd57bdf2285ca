"""Prints the lines of every directory of src/steepest and native beside their budgets; exits with 1 beyond one.

The budgets are in pyproject.toml, [tool.steepest.size]. Only files that git tracks are counted, so that generated ones
are not. A new capability says in its decision note what it adds, and raises the budgets that it needs.
"""

from __future__ import annotations

import subprocess
import sys
import tomllib
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[1]
TREES = {"python": ("src/steepest", (".py", ".pyi")), "native": ("native", (".h", ".cpp"))}
ROOT_FILES = "root"  # files that are in no directory of their tree


def tracked(tree: str, suffixes: tuple[str, ...]) -> list[Path]:
    """The files of a tree that git knows and that are there."""
    listed = subprocess.run(["git", "ls-files", "-z", tree], cwd=ROOT, capture_output=True, check=True, text=True)
    paths = [Path(name) for name in listed.stdout.split("\0") if name.endswith(suffixes)]
    return [path for path in paths if (ROOT / path).is_file()]


def count(tree: str, suffixes: tuple[str, ...]) -> Counter[str]:
    """Lines per top-level directory of a tree."""
    lines: Counter[str] = Counter()
    for path in tracked(tree, suffixes):
        inside = path.relative_to(tree).parts
        lines[inside[0] if len(inside) > 1 else ROOT_FILES] += (ROOT / path).read_bytes().count(b"\n")
    return lines


def check(name: str, lines: Counter[str], budgets: dict[str, int]) -> list[str]:
    """Prints one table; returns what is beyond its budget."""
    faults = []
    print(f"{name:<12} {'lines':>7} {'budget':>7}")
    for part in sorted({*lines, *budgets} - {"total"}):
        n, most = lines[part], budgets.get(part)
        print(f"  {part:<10} {n:>7,} {'-' if most is None else format(most, ','):>7}")
        if most is None:
            faults.append(f"{name}/{part} has no budget")
        elif n > most:
            faults.append(f"{name}/{part} has {n:,} lines of at most {most:,}")
    total = lines.total()
    print(f"  {'total':<10} {total:>7,} {budgets['total']:>7,}")
    if total > budgets["total"]:
        faults.append(f"{name} has {total:,} lines of at most {budgets['total']:,}")
    return faults


def main() -> int:
    """Checks both trees."""
    budgets = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["steepest"]["size"]
    faults = [fault for name, tree in TREES.items() for fault in check(name, count(*tree), budgets[name])]
    for fault in faults:
        print(f"{fault}: merge what is written twice, or raise the budget in pyproject.toml with a decision note")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
