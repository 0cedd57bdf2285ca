"""Defaults on real tables, beside a tuned linear pipeline and gradient boosting of scikit-learn, and Vowpal Wabbit.

    python -m benchmarks.tables [NAME ...]

Every table is a directory with train.csv.gz, test.csv.gz and meta.json (label, task, kinds of columns, columns to
ignore, whether the label is taken as log1p); STEEPEST_DATA names the folder whose `tables` holds them. The data is not
part of the project: without it nothing is measured. Each contender gets the training file and the test file:

- steepest: `steepest train FILE --label L` (and `--task regress`), then `predict`, each a process of its own, no flags;
- pipeline: tf-idf of words and pairs per text, one-hot categories, imputed and standardised numbers, then
  LogisticRegression or Ridge, whose strength was chosen on a quarter of the training rows; kinds of columns are given;
- boosting: HistGradientBoosting with its defaults, kinds given, texts left out;
- vw: at most 20 passes, which end by the tenth of the rows that it holds out by default, over the rows in its own
  format: words and pairs of words per text, column=value per category, column:value per number; kinds are given.

Printed: accuracy and log loss, or R², on the test rows; seconds of training; and peak memory. Each contender runs in
processes of its own, in turn, with its default number of threads; BLAS is held to one. Seconds of steepest and vw are
from the start of the process to the saved model; writing vw's format is not counted. Those of the pipeline and of
boosting are one encoding and fit, without reading the file and without choosing a strength. Peak memory is that of
training and prediction; the pipeline and boosting do both, and the choice of the strength, in one process.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import DATA
from benchmarks.compare import Result, run_python

TABLES = DATA / "tables"
STRENGTHS = {"classify": (0.1, 0.3, 1, 3, 10, 30), "regress": (0.1, 1, 10, 100, 1000)}
# The tables whose gap between pipeline and boosting is reported, where boosting is the better one.
WITH_GAP = ("adult", "bank", "credit_default", "hotel_bookings", "bike_hourly", "diamonds")


def prepare(folder: Path, meta: dict[str, Any], place: Path) -> dict[str, Any]:
    """The two parts as CSV files without the columns to ignore, and as frames."""
    import numpy as np
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


def typed(frame: Any, meta: dict[str, Any]) -> Any:
    import pandas as pd

    found = frame.drop(columns=meta["label"]).copy()
    for name in meta["num"]:
        found[name] = pd.to_numeric(found[name], errors="coerce")
    return found


def labels(meta: dict[str, Any], path: Path) -> list[str]:
    """Read without pandas, whose memory would count in the peak of a process that is started afterwards."""
    with open(path, encoding="utf-8", newline="") as file:
        return [row[meta["label"]] for row in csv.DictReader(file)]


def measured(meta: dict[str, Any], truth: Any, answers: Any, classes: list[str] | None) -> dict[str, float]:
    import numpy as np

    if meta["task"] == "regress":
        y = np.array(list(truth), float)
        return {"r2": 1 - float(((y - answers) ** 2).sum() / ((y - y.mean()) ** 2).sum())}
    assert classes is not None
    place = np.array([classes.index(label) for label in truth])
    probability = np.clip(answers[np.arange(len(place)), place], 1e-9, 1)
    return {"accuracy": float((answers.argmax(axis=1) == place).mean()), "loss": float(-np.log(probability).mean())}


# ------------------------------------------------------------------------------------------------------ contenders


def steepest(meta: dict[str, Any], place: Path) -> Result:
    task = ["--task", "regress"] if meta["task"] == "regress" else []
    model, answers = place / "model", place / "answers"
    command = ("-m", "steepest")
    trained = run_python(
        *command, "train", place / "train.csv", "-m", model, "--label", meta["label"], "--quiet", *task
    )
    proba = ["--proba"] if meta["task"] == "classify" else []
    tested = run_python(*command, "predict", model, place / "test.csv", "-o", answers, *proba)
    import numpy as np  # after the processes that are measured, whose peak would count it

    lines = answers.read_text(encoding="utf-8").splitlines()
    classes = lines.pop(0).split("\t") if proba else None
    table = np.array([line.split("\t") for line in lines], float)
    found = measured(meta, labels(meta, place / "test.csv"), table if classes else table[:, 0], classes)
    return {**found, "seconds": trained.seconds, "peak_mb": max(trained.peak_mb, tested.peak_mb)}


def vw(meta: dict[str, Any], place: Path) -> Result:
    classify = meta["task"] == "classify"
    classes = sorted(set(labels(meta, place / "train.csv"))) if classify else []
    options: list[Any] = ["-b", 22, "--passes", 20, "-k", "--cache_file", place / "cache"]
    options += ["--loss_function", "logistic" if classify else "squared"]
    options += ["--oaa", len(classes)] * (len(classes) > 2) + ["--ngram", "t2"] * bool(meta["text"])
    command = ("-m", "vowpalwabbit", "--quiet")
    model, answers = place / "model.vw", place / "answers.vw"
    trained = run_python(*command, "-d", place / "train.vw", "-f", model, *options)
    scores = "-r" if classify else "-p"  # probabilities are printed with six digits
    tested = run_python(*command, "-d", place / "test.vw", "-i", model, "-t", scores, answers)
    import numpy as np

    lines = answers.read_text(encoding="utf-8").splitlines()
    table = np.array([[word.split(":")[-1] for word in line.split()] for line in lines], float)
    if len(classes) == 2:
        table = np.hstack([-table, table])
    if classify:  # as --probabilities does
        table = 1 / (1 + np.exp(-table))
        table /= table.sum(axis=1, keepdims=True)
    found = measured(meta, labels(meta, place / "test.csv"), table if classify else table[:, 0], classes)
    return {**found, "seconds": trained.seconds, "peak_mb": max(trained.peak_mb, tested.peak_mb)}


def vw_rows(frame: Any, meta: dict[str, Any], classes: list[str]) -> Iterator[str]:
    """Lines of vw's format: a namespace per text (all begin with t), one of categories, and one of numbers."""
    codes = {name: f"{2 * i - 1 if len(classes) == 2 else i + 1}" for i, name in enumerate(classes)}

    def joined(text: str) -> str:
        return re.sub(r"[\s:|]+", "_", text)

    for y, row in zip(frame[meta["label"]], typed(frame, meta).to_dict("records"), strict=True):
        texts = [f"|t{i} " + " ".join(re.findall(r"\w+", row[name].lower())) for i, name in enumerate(meta["text"])]
        categories = [f"{joined(name)}={joined(row[name])}" for name in meta["cat"]]
        numbers = [f"{joined(name)}:{row[name]:.9g}" for name in meta["num"] if row[name] == row[name]]
        yield " ".join([codes.get(y, y), *texts, "|c", *categories, "|n", *numbers]) + "\n"


def write_files(folder: Path, meta: dict[str, Any], place: Path) -> None:
    frames = prepare(folder, meta, place)
    classes = sorted(set(frames["train"][meta["label"]])) if meta["task"] == "classify" else []
    for part, frame in frames.items():
        with open(place / f"{part}.vw", "w", encoding="utf-8") as file:
            file.writelines(vw_rows(frame, meta, classes))


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


def peer(meta: dict[str, Any], place: Path, boosting: bool) -> Result:
    os.environ.pop("OMP_NUM_THREADS", None)  # boosting takes all cores by default, as steepest does
    import pandas as pd
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
    from sklearn.linear_model import LogisticRegression, Ridge
    from sklearn.metrics import log_loss
    from sklearn.model_selection import train_test_split

    classify = meta["task"] == "classify"
    frame = pd.read_csv(place / "train.csv", dtype=str, keep_default_na=False)
    X, y = typed(frame, meta), frame[meta["label"]]
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
    test = pd.read_csv(place / "test.csv", dtype=str, keep_default_na=False)
    encoded = features.transform(typed(test, meta))
    answers = model.predict_proba(encoded) if classify else model.predict(encoded)
    names = [str(name) for name in model.classes_] if classify else None
    return {**measured(meta, test[meta["label"]], answers, names), "seconds": seconds}


CONTENDERS: dict[str, Callable[[dict[str, Any], Path], Result]] = {
    "steepest": steepest,
    "pipeline": partial(peer, boosting=False),
    "boosting": partial(peer, boosting=True),
    "vw": vw,
}


# ---------------------------------------------------------------------------------------------------------- report


def compare(name: str) -> dict[str, Result]:
    """Results of all contenders. This process stays small: the peak of a child counts what its parent holds."""
    command = ("-m", "benchmarks.tables", "--contender")
    found = {}
    with tempfile.TemporaryDirectory() as place:
        run_python(*command, "files", name, place)
        for contender in CONTENDERS:
            ended = run_python(*command, contender, name, place)
            found[contender] = {"peak_mb": ended.peak_mb, **json.loads(ended.output.splitlines()[-1])}
    return found


def shown(found: Result) -> str:
    return f"{found['r2']:.4f}" if "r2" in found else f"{found['accuracy']:.4f} / {found['loss']:.4f}"


def error(found: Result) -> float:
    return float(1 - found["r2"] if "r2" in found else found["loss"])


def near(own: Result, other: Result) -> bool:
    if "r2" in own:
        return bool(own["r2"] >= other["r2"] - 0.01)
    return bool(own["accuracy"] >= other["accuracy"] - 0.005 and own["loss"] <= 1.02 * other["loss"])


def better(own: Result, other: Result) -> bool:
    return error(own) < error(other) and own.get("accuracy", 1) > other.get("accuracy", 0)


def summary(results: dict[str, dict[str, Result]]) -> Iterator[str]:
    """Two lines: how often the defaults reach the pipeline, and how far they come from it to boosting."""
    pairs = [(found["steepest"], found["pipeline"]) for found in results.values()]
    yield (
        f"within 0.5 points and 2 % of log loss (R²: 0.01) of the pipeline on {sum(near(*pair) for pair in pairs)} of "
        f"{len(pairs)} tables, better in accuracy and log loss (R²) on {sum(better(*pair) for pair in pairs)}"
    )
    shares = {}
    for name in (name for name in WITH_GAP if name in results):
        own, pipeline, boosting = (error(results[name][who]) for who in ("steepest", "pipeline", "boosting"))
        if boosting < pipeline:
            shares[name] = (pipeline - own) / (pipeline - boosting)
    mean = f"mean {sum(shares.values()) / len(shares):.2f} of {len(shares)} tables" if shares else "no table with a gap"
    each = "".join(f", {name} {share:.2f}" for name, share in shares.items())
    yield f"share of the gap from the pipeline to boosting, in log loss or 1 - R², that is closed: {mean}{each}"


def main() -> None:
    """Prints one row per table, then the summary."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="tables (default: all)")
    parser.add_argument("--contender", nargs=3, metavar=("CONTENDER", "NAME", "PLACE"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if not TABLES.is_dir():
        sys.exit(f"{TABLES} is not there; STEEPEST_DATA names the folder that holds the directory tables")
    if arguments.contender:
        contender, name, place = arguments.contender
        meta = json.loads((TABLES / name / "meta.json").read_text(encoding="utf-8"))
        if contender == "files":
            write_files(TABLES / name, meta, Path(place))
        else:
            print(json.dumps(CONTENDERS[contender](meta, Path(place))))
        return
    each = ", ".join(CONTENDERS)
    print(f"| table | steepest, defaults | pipeline, tuned | boosting | vw | seconds: {each} | peak MB: {each} |")
    print("|---|---|---|---|---|---|---|")
    results = {}
    for name in sorted(path.parent.name for path in TABLES.glob("*/meta.json")):
        if arguments.names and name not in arguments.names:
            continue
        found = results[name] = compare(name)
        qualities = " | ".join(shown(result) for result in found.values())
        times = ", ".join(f"{result['seconds']:.2f}" for result in found.values())
        memory = ", ".join(f"{result['peak_mb']:.0f}" for result in found.values())
        print(f"| {name} | {qualities} | {times} | {memory} |", flush=True)
    print("", *summary(results), sep="\n")


if __name__ == "__main__":
    main()
