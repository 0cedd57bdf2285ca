"""Promise 9 on real tables: the default model when columns are scaled, rows reordered, and useless columns added.

    python -m benchmarks.invariance [NAME ...]

Tables are those of `benchmarks.tables`, california-housing and casp-protein (STEEPEST_DATA names their folder), and
scikit-learn's breast_cancer and diabetes; a quarter of the rows is the test where no test file exists. Printed for each
way of changing a table: the log loss, or 1 - R², of `steepest train FILE --label L`, and the spread of the row.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.tables import TABLES, measured, prepare
from steepest.cli import main as steepest

POWERS = (3, -3, 2, -2, 1, -1, 4)
SINGLE = {"california-housing/housing.csv.gz": "median_house_value", "casp-protein/protein.csv.gz": ""}


def tables(names: list[str]) -> Iterator[tuple[str, dict[str, Any], Any, Any]]:
    """(name, label and task, rows to learn from, rows to test on), all values as text."""
    import pandas as pd
    from sklearn import datasets

    for folder in sorted(path for path in TABLES.glob("*") if (path / "meta.json").exists()):
        if not names or folder.name in names:
            meta = json.loads((folder / "meta.json").read_text(encoding="utf-8"))
            with tempfile.TemporaryDirectory() as place:
                frames = prepare(folder, meta, Path(place))
            yield folder.name, meta, frames["train"], frames["test"]
    found = {}
    for path, label in SINGLE.items():
        if (TABLES.parent / path).exists():
            frame = pd.read_csv(TABLES.parent / path, header="infer" if label else None).rename(columns=str)
            found[path.split("/")[0]] = (frame, label or frame.columns[-1], "regress")
    found["breast_cancer"] = (datasets.load_breast_cancer(as_frame=True).frame, "target", "classify")
    found["diabetes"] = (datasets.load_diabetes(as_frame=True, scaled=False).frame, "target", "regress")
    for name, (frame, label, task) in found.items():
        if not names or name in names:
            test = np.zeros(len(frame), bool)
            test[np.random.default_rng(0).choice(len(frame), len(frame) // 4, replace=False)] = True
            text = frame.astype(str).replace("nan", "")
            yield name, {"label": label, "task": task}, text[~test], text[test]


def scaled(frame: Any, label: str) -> Any:
    """Columns of numbers times powers of ten."""
    import pandas as pd

    found, number = frame.copy(), 0
    for name in frame.columns.drop(label):
        values = pd.to_numeric(frame[name], errors="coerce")
        if values.nunique() > 2 and (values.notna() | (frame[name] == "")).all():
            factor = 10.0 ** POWERS[number % len(POWERS)]
            found[name] = ["" if x != x else f"{x * factor:.12g}" for x in values]
            number += 1
    return found


def with_useless(frame: Any, label: str, n: int) -> Any:
    """More columns, half of them numbers and half categories, that say nothing."""
    rng = np.random.default_rng(len(frame))
    more = {
        f"useless{k}": rng.choice(list("abcdefgh")[: 2 + k % 7], len(frame))
        if k % 2
        else rng.standard_normal(len(frame)).round(4).astype(str)
        for k in range(n)
    }
    return frame.assign(**more)


CHANGES: dict[str, Callable[[Any, str], Any]] = {
    "plain": lambda frame, label: frame,
    "scaled": scaled,
    "reordered": lambda frame, label: frame.sample(frac=1, random_state=1),
    "reordered again": lambda frame, label: frame.sample(frac=1, random_state=2),
    "5 useless": lambda frame, label: with_useless(frame, label, 5),
    "20 useless": lambda frame, label: with_useless(frame, label, 20),
}


def loss(meta: dict[str, Any], train: Any, test: Any, place: str) -> float:
    """Of the test rows by the default model."""

    def said(*arguments: str) -> list[str]:
        with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as error:
            if steepest(list(arguments)):
                sys.exit(error.getvalue())
        return out.getvalue().splitlines()

    train.to_csv(f"{place}/train.csv", index=False)
    test.to_csv(f"{place}/test.csv", index=False)
    task, model = ["--task", meta["task"]], f"{place}/model"
    said("train", f"{place}/train.csv", "-m", model, "--label", meta["label"], "--quiet", *task)
    if meta["task"] == "regress":
        lines = said("predict", model, f"{place}/test.csv")
        return 1 - measured(meta, test[meta["label"]], np.array(lines, float), None)["r2"]
    head, *lines = said("predict", model, f"{place}/test.csv", "--proba")
    answers = np.array([line.split("\t") for line in lines], float)
    return measured(meta, test[meta["label"]], answers, head.split("\t"))["loss"]


def main(names: list[str]) -> None:
    """Prints one row per table."""
    print("| table |", " | ".join(CHANGES), "| spread |")
    print("|---" * (len(CHANGES) + 2) + "|")
    for name, meta, train, test in tables(names):
        with tempfile.TemporaryDirectory() as place:
            label = meta["label"]
            losses = [loss(meta, change(train, label), change(test, label), place) for change in CHANGES.values()]
        spread = max(losses) / min(losses) - 1
        print(f"| {name} |", " | ".join(f"{found:.4f}" for found in losses), f"| {spread:.1%} |", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
