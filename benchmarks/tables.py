"""Defaults on real tables, beside a tuned linear pipeline and gradient boosting of scikit-learn.

    python -m benchmarks.tables [NAME ...]

Every table is a directory with train.csv.gz, test.csv.gz and meta.json (label, task, kinds of columns, columns to
ignore, whether the label is taken as log1p); STEEPEST_DATA names the folder whose `tables` holds them. The data is not
part of the project: without it nothing is measured. Each contender gets the training file and the test file:

- steepest: `steepest train FILE --label L` (and `--task regress`), then `predict`, each a process of its own, no flags;
- pipeline: tf-idf of words and pairs per text, one-hot categories, imputed and standardised numbers, then
  LogisticRegression or Ridge, whose strength was chosen on a quarter of the training rows; kinds of columns are given;
- boosting: HistGradientBoosting with its defaults, kinds given, texts left out.

Printed: accuracy and log loss, or R², on the test rows; seconds of training (ours from the start of the process to the
saved model; peers without reading the file and without choosing a strength), contenders in turn, and our peak memory.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[1]
TABLES = Path(os.environ.get("STEEPEST_DATA", ROOT.parent / "shared" / "data")) / "tables"
STRENGTHS = {"classify": (0.1, 0.3, 1, 3, 10, 30), "regress": (0.1, 1, 10, 100, 1000)}


def prepare(folder: Path, meta: dict[str, Any], place: Path) -> dict[str, Any]:
    """The two parts as CSV files without the columns to ignore, and as frames."""
    import pandas as pd

    frames = {}
    for part in ("train", "test"):
        frame = pd.read_csv(folder / f"{part}.csv.gz", dtype=str, keep_default_na=False)
        frame = frame.drop(columns=meta["ignored"], errors="ignore")
        if meta["log"]:
            frame[meta["label"]] = np.log1p(frame[meta["label"]].astype(float)).round(6).astype(str)
        frame.to_csv(place / f"{part}.csv", index=False)
        frames[part] = frame
    return frames


def run(arguments: list[str]) -> tuple[str, float, float]:
    """(standard output, seconds, peak memory of all children so far in MB) of a command of ours."""
    started = time.perf_counter()
    done = subprocess.run([sys.executable, "-m", "steepest", *arguments], capture_output=True, text=True, check=True)
    return done.stdout, time.perf_counter() - started, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024


def ours(meta: dict[str, Any], place: Path, truth: Any) -> tuple[dict[str, float], float, float]:
    task = ["--task", "regress"] if meta["task"] == "regress" else []
    model, train, test = (str(place / name) for name in ("model", "train.csv", "test.csv"))
    _, seconds, memory = run(["train", train, "-m", model, "--label", meta["label"], "--quiet", *task])
    answers, *_ = run(["predict", model, test, *(["--proba"] if meta["task"] == "classify" else [])])
    lines = answers.splitlines()
    if meta["task"] == "regress":
        return measured(meta, truth, np.array(lines, float), None), seconds, memory
    table = np.array([line.split("\t") for line in lines[1:]], float)
    return measured(meta, truth, table, lines[0].split("\t")), seconds, memory


def measured(meta: dict[str, Any], truth: Any, answers: Any, classes: list[str] | None) -> dict[str, float]:
    if meta["task"] == "regress":
        y = truth.astype(float).to_numpy()
        return {"r2": 1 - float(((y - answers) ** 2).sum() / ((y - y.mean()) ** 2).sum())}
    assert classes is not None
    place = np.array([classes.index(label) for label in truth])
    probability = np.clip(answers[np.arange(len(place)), place], 1e-9, 1)
    return {"accuracy": float((answers.argmax(axis=1) == place).mean()), "loss": float(-np.log(probability).mean())}


def encoder(meta: dict[str, Any], *, texts: bool) -> Any:
    from sklearn.compose import ColumnTransformer
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.impute import SimpleImputer
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder, StandardScaler

    if not texts:
        codes = OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1, max_categories=250)
        return ColumnTransformer([("cat", codes, meta["cat"]), ("num", "passthrough", meta["num"])])
    words = [(name, TfidfVectorizer(ngram_range=(1, 2), min_df=2, sublinear_tf=True), name) for name in meta["text"]]
    return ColumnTransformer(
        [
            *words,
            ("cat", OneHotEncoder(handle_unknown="ignore", min_frequency=2), meta["cat"]),
            ("num", make_pipeline(SimpleImputer(strategy="median"), StandardScaler()), meta["num"]),
        ]
    )


def typed(frame: Any, meta: dict[str, Any]) -> Any:
    import pandas as pd

    found = frame.drop(columns=meta["label"]).copy()
    for name in meta["num"]:
        found[name] = pd.to_numeric(found[name], errors="coerce")
    return found


def peer(meta: dict[str, Any], frames: dict[str, Any], boosting: bool) -> tuple[dict[str, float], float]:
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
    from sklearn.linear_model import LogisticRegression, Ridge
    from sklearn.metrics import log_loss
    from sklearn.model_selection import train_test_split

    classify = meta["task"] == "classify"
    X, test = typed(frames["train"], meta), typed(frames["test"], meta)
    y = frames["train"][meta["label"]]
    y = y if classify else y.astype(float)
    features = encoder(meta, texts=not boosting)
    started = time.perf_counter()
    rows = features.fit_transform(X)
    encoding = time.perf_counter() - started
    if boosting:
        kind = HistGradientBoostingClassifier if classify else HistGradientBoostingRegressor
        model = kind(categorical_features=list(range(len(meta["cat"]))), random_state=0)
    else:

        def make(strength: float) -> Any:
            return LogisticRegression(C=strength, max_iter=1000) if classify else Ridge(alpha=strength)

        learn, held, y_learn, y_held = train_test_split(rows, y, test_size=0.25, random_state=0)
        scores = {}
        for strength in STRENGTHS[meta["task"]]:
            tried = make(strength).fit(learn, y_learn)
            scores[strength] = log_loss(y_held, tried.predict_proba(held)) if classify else -tried.score(held, y_held)
        model = make(min(scores, key=lambda strength: scores[strength]))
    started = time.perf_counter()
    model.fit(rows, y)
    seconds = encoding + time.perf_counter() - started
    encoded = features.transform(test)
    answers = model.predict_proba(encoded) if classify else model.predict(encoded)
    names = [str(name) for name in model.classes_] if classify else None
    return measured(meta, frames["test"][meta["label"]], answers, names), seconds


def shown(found: dict[str, float]) -> str:
    return f"{found['r2']:.4f}" if "r2" in found else f"{found['accuracy']:.4f} / {found['loss']:.4f}"


def main(names: list[str]) -> None:
    """Prints one row per table."""
    if not TABLES.is_dir():
        sys.exit(f"{TABLES} is not there; STEEPEST_DATA names the folder that holds the directory tables")
    print(
        "| table | steepest, defaults | pipeline, tuned | boosting | seconds: ours, pipeline, boosting | our memory |"
    )
    print("|---|---|---|---|---|---|")
    for folder in sorted(path for path in TABLES.iterdir() if (path / "meta.json").exists()):
        if names and folder.name not in names:
            continue
        meta = json.loads((folder / "meta.json").read_text(encoding="utf-8"))
        with tempfile.TemporaryDirectory() as place:
            frames = prepare(folder, meta, Path(place))
            own, own_seconds, memory = ours(meta, Path(place), frames["test"][meta["label"]])
            linear, linear_seconds = peer(meta, frames, boosting=False)
            boosted, boosted_seconds = peer(meta, frames, boosting=True)
        times = f"{own_seconds:.2f}, {linear_seconds:.2f}, {boosted_seconds:.2f}"
        print(
            f"| {folder.name} | {shown(own)} | {shown(linear)} | {shown(boosted)} | {times} | {memory:.0f} MB |",
            flush=True,
        )


if __name__ == "__main__":
    main(sys.argv[1:])
