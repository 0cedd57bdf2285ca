"""steepest explain MODEL TEXT: what each feature of a text adds to the scores."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from typing import Any

import steepest as st

EXAMPLES = (
    'steepest explain reviews.steepest "a film to remember"',
    'steepest explain houses.steepest --row \'{"rooms": 4, "town": "Ghent"}\'',
    "steepest explain houses.steepest new.csv --number 3",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """All flags of the verb."""
    parser.add_argument("model", metavar="MODEL")
    parser.add_argument("text", metavar="TEXT", help='the text, a JSON object {"column": value}, or - for stdin')
    parser.add_argument("--top", type=int, default=10, help="how many features")
    parser.add_argument("--json", action="store_true", help="one JSON object")


def run(options: argparse.Namespace) -> int:
    """Prints the contributions for what is predicted, or for all classes with --json."""
    model = st.load(options.model)
    if getattr(model, "hasher_", None) is None and getattr(model, "vw_names_", None) is None:
        raise st.DataError(
            f"{options.model} was trained on numbered features; explain needs a model of raw text or columns"
        )
    if not hasattr(model, "explain"):
        raise st.DataError(
            f"{options.model} is a {type(model).__name__}, whose score is not a sum over features; take a linear model"
        )
    row = _row(sys.stdin.read() if options.text == "-" else options.text)
    parts = model.explain(row)
    if options.json:
        print(json.dumps({str(label): [asdict(part) for part in found] for label, found in parts.items()}))
        return 0
    for label in _predicted(model, row, list(parts)):
        print(f"for {label}:")
        for part in parts[label][: options.top]:
            others = f"   (its bucket also holds {', '.join(part.others)})" if part.others else ""
            print(f"{part.contribution:+10.4f}  {part.name}{others}")
    return 0


def _predicted(model: Any, row: Any, known: list[Any]) -> list[Any]:
    """The label or cluster of a row, or several; the best where it has none, and the first output of a regression."""
    if not (hasattr(model, "classes_") or hasattr(model, "cluster_centers_")):
        return known[:1]
    found = model.predict([row])[0]
    if getattr(found, "ndim", 0) == 0:
        return [found if found in known else known[0]]
    best = [model.decision_function([row])[0].argmax()]
    return [known[output] for output in found.nonzero()[0].tolist() or best]


def _row(text: str) -> str | dict[str, object]:
    if not text.lstrip().startswith("{"):
        return text
    try:
        row = json.loads(text)
    except ValueError as error:
        raise st.DataError(f"TEXT starts like a JSON object but is none ({error}); quote it for the shell") from None
    return dict(row)
