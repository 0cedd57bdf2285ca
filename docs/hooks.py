"""What mkdocs does beyond its plugins: one reference page per public name, made from the list in reference/index.md.

The list has one line `::: steepest.module.Name` per name, with options below it. Each becomes a page of its own; on the
index stand a link and the first sentence of its docstring.
"""

from __future__ import annotations

import importlib
import inspect
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

INDEX = "reference/index.md"
ENTRY = re.compile(r"^::: (steepest[\w.]*)\n((?: +\S.*\n)*)", re.MULTILINE)
MARKS = re.compile(r"^```(\w+) [\w -]+$", re.MULTILINE)  # ```python no-run: the mark is for the tests


def page_of(path: str) -> str:
    """The name of a page: as the reader writes it, plot.losses or LinearClassifier."""
    module, _, name = path.rpartition(".")
    return f"{'plot.' if module == 'steepest.report.plots' else ''}{name}"


def sentence_of(path: str) -> str:
    """The first sentence of a docstring, on one line."""
    module, _, name = path.rpartition(".")
    first = (inspect.getdoc(getattr(importlib.import_module(module), name)) or "").split("\n\n")[0]
    return " ".join(first.split())


def on_files(files: Any, config: Any) -> Any:
    """Adds a page for each entry of the index."""
    index = (Path(config.docs_dir) / INDEX).read_text(encoding="utf-8")
    for path, options in ENTRY.findall(index + "\n"):
        text = f"# {page_of(path)}\n\n::: {path}\n{options}"
        page = File.generated(config, f"reference/{page_of(path)}.md", content=text)
        page.inclusion = page.inclusion.NOT_IN_NAV  # reached from the index and by search
        files.append(page)
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Turns entries of the index into links, and takes the tests' marks out of fences."""
    if page.file.src_uri == INDEX:
        markdown = ENTRY.sub(
            lambda entry: f"- [`{page_of(entry[1])}`]({page_of(entry[1])}.md): {sentence_of(entry[1])}\n",
            markdown + "\n",
        )
        markdown = re.sub(r"\n\n(?=- \[`)", "\n", markdown).replace("\n- [`", "\n\n- [`", 1)
        markdown = re.sub(r"^([^-\n].*)\n(?=- )", r"\1\n\n", markdown, flags=re.MULTILINE)
    return MARKS.sub(r"```\1", markdown)
