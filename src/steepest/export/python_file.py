"""One Python file without dependencies: the runtime's own source, and the model as text."""

from __future__ import annotations

import base64
import dataclasses
import json
import re
import zlib
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from steepest.data.chunk import Array
from steepest.export import runtime
from steepest.export.describe import Description, FactorPairs, Hashing, Scores
from steepest.export.unicode import fold_ranges, word_edges
from steepest.features import written

LINE = 110
FUTURE = "from __future__ import annotations\n"  # the first line of code in every module
TAIL = """

MODEL = load("".join(DATA))

if __name__ == "__main__":  # one row per line: a text, a JSON object, or [user, item]
    for line in sys.stdin:
        print(answer(MODEL, line.rstrip("\\n")))
"""


def python_source(model: Description, heading: str) -> str:
    """Returns the text of the file."""
    code = FUTURE + "".join(map(_code_of, (written, runtime)))
    text = json.dumps(plain(model), ensure_ascii=True, separators=(",", ":"))
    lines = [f"    {text[k : k + LINE]!r}," for k in range(0, len(text), LINE)]
    return f'"""{heading}\n\nfrom this file: MODEL.predict(row), MODEL.scores(row)."""\n\n{code}\n\nDATA = (\n' + (
        "\n".join(lines) + "\n)" + TAIL
    )


def _code_of(module: ModuleType) -> str:
    """Returns the code of a module, without its docstring and what it imports from this package."""
    _, _, code = Path(str(module.__file__)).read_text(encoding="utf-8").partition(FUTURE)
    return re.sub(r"^from steepest.*\n\n", "", code, flags=re.MULTILINE)


def plain(model: Description) -> dict[str, Any]:
    """Returns the model as values that JSON can hold."""
    if isinstance(model, FactorPairs):
        return _plain_factors(model)
    head = np.zeros(0, np.float32) if model.head is None else model.head
    return {
        "family": "embedding" if model.head is not None else "linear",
        "classes": None if model.classes is None else list(model.classes),
        "width": model.width,
        "several": model.several,
        "bare": model.bare,
        "link": model.link,
        "slope": model.slope,
        "shift": model.shift,
        "power": model.power,
        "features": packed(model.features, "<i4"),
        "rows": packed(model.rows, "<f4"),
        "bias": packed(model.bias, "<f8"),
        "head": packed(head, "<f4"),
        "end": packed(np.zeros(0) if model.end is None else model.end, "<f4"),
        "counts": packed(np.zeros(0) if model.counts is None else model.counts, "<u4"),
        "hashing": None if model.hashing is None else _plain_hashing(model.hashing, model),
    }


def _plain_hashing(hashing: Hashing, model: Scores) -> dict[str, Any]:
    tables = [packed(word_edges(), "<u4"), packed(fold_ranges().ravel(), "<i4")]
    own = dataclasses.asdict(hashing)
    return {**own, "tables": tables, "default_count": model.default_count}


def _plain_factors(model: FactorPairs) -> dict[str, Any]:
    named = ("offset", "scale", "mean", "low", "high", "link", "rank")
    return {
        "family": "factors",
        "user_ids": list(model.user_ids),
        "item_ids": list(model.item_ids),
        "users": packed(model.users, "<f4"),
        "items": packed(model.items, "<f4"),
        **{name: getattr(model, name) for name in named},
    }


def packed(values: Array, kind: str) -> str:
    """Returns an array as text."""
    return base64.b85encode(zlib.compress(np.ascontiguousarray(values).astype(kind).tobytes(), 9)).decode()
