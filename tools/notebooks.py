"""Makes a notebook of every example: python tools/notebooks.py DIRECTORY.

An example is a script; its docstring becomes the text above, the rest one cell, and a call of `main` the last one. The
notebooks are written, not kept: the scripts are what is read, tested and changed.
"""

from __future__ import annotations

import ast
import json
import sys
import zlib
from pathlib import Path
from typing import Any

EXAMPLES = Path(__file__).parents[1] / "examples"
NOT_LESSONS = {"__init__", "figure", "spark_submit"}


def notebook(script: Path) -> dict[str, Any]:
    """The notebook of a script, in nbformat 4."""
    source = script.read_text(encoding="utf-8")
    tree = ast.parse(source)
    docstring = ast.get_docstring(tree) or script.stem
    start, end = tree.body[1].lineno - 1, tree.body[-1].lineno - 1  # behind the docstring, up to `if __name__`
    code = "\n".join(source.splitlines()[start:end]).strip()
    path = f"import sys\n\nsys.path.insert(0, {str(EXAMPLES.parent)!r})"
    show = "import pathlib\nimport tempfile\n\nfrom IPython.display import SVG, Image, display\n\n"
    show += "folder = pathlib.Path(tempfile.mkdtemp())\nmain(folder)\nfor picture in sorted(folder.iterdir()):\n"
    show += "    display(SVG(picture) if picture.suffix == '.svg' else Image(picture))"
    if script.stem == "personal_spam":  # takes the flags of a command
        show = "main(['--mails', '3000', '--users', '600', '--test', '200', '--bits', '18'])"
    cells = [_text(f"# {docstring}"), _code(path), _code(code), _code(show)]
    return {"nbformat": 4, "nbformat_minor": 5, "metadata": {"language_info": {"name": "python"}}, "cells": cells}


def _text(text: str) -> dict[str, Any]:
    return {"cell_type": "markdown", "id": "text", "metadata": {}, "source": text}


def _code(text: str) -> dict[str, Any]:
    cell: dict[str, Any] = {
        "cell_type": "code",
        "id": f"c{zlib.crc32(text.encode()):08x}",
        "metadata": {},
        "source": text,
    }
    return cell | {"outputs": [], "execution_count": None}


def main(directory: str) -> None:
    """Writes all of them."""
    place = Path(directory)
    place.mkdir(parents=True, exist_ok=True)
    for script in sorted(EXAMPLES.glob("*.py")):
        if script.stem not in NOT_LESSONS:
            (place / f"{script.stem}.ipynb").write_text(json.dumps(notebook(script), indent=1), encoding="utf-8")
            print(place / f"{script.stem}.ipynb")


if __name__ == "__main__":
    main(sys.argv[1])
