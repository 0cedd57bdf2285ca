"""TextClassifier beside fastText on real texts: accuracy, training time, file size, documents a second, one document.

`python benchmarks/text_classifier.py [data set ...] [--runs 2]`: two lines a data set. fastText gets its documented
settings: those of its tutorial for cooking-stackexchange, of its language identification for debian-langid, and of its
classification results for the others; texts are prepared as the tutorial says. "same" is ours with the same dimension,
epochs, first step, n-grams and loss; "own" is ours as it comes, with the n-grams of that data set only. Runs take
turns, and ratios are ours over fastText's (documents a second: how many times as many), two threads for both. Files:
8-bit rows within a twelfth of the .bin.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import re
import tempfile
import time
from pathlib import Path
from statistics import median

import numpy as np

import steepest as st
from benchmarks import DATA

RESULTS = {"lr": 0.5, "dim": 10, "wordNgrams": 2, "minCount": 1, "bucket": 10_000_000, "epoch": 5}
SETTINGS = {
    "imdb": (RESULTS, {"dim": 10, "eta0": 0.5, "epochs": 5}, {}),
    "debian-packages": (RESULTS, {"dim": 10, "eta0": 0.5, "epochs": 5}, {}),
    "debian-langid": (
        {"dim": 16, "minn": 2, "maxn": 4, "loss": "hs"},
        {"dim": 16, "eta0": 0.1, "epochs": 5, "ngrams": (1, 1), "char_ngrams": (2, 4), "loss": "hs"},
        {"ngrams": (1, 1), "char_ngrams": (2, 4)},
    ),
    "cooking-stackexchange": (
        {"lr": 1.0, "epoch": 25, "wordNgrams": 2},
        {"dim": 100, "eta0": 1.0, "epochs": 25},
        {},
    ),
}
COLUMNS = {
    "imdb": ("label", "text"),
    "debian-packages": ("section", "short", "text"),
    "debian-langid": ("lang", "text"),
}
ONE_BY_ONE = 1000


def load(name: str):
    """((texts, labels), (texts, labels)) to train and to test on; labels are lists."""
    if name == "cooking-stackexchange":
        with gzip.open(DATA / name / "cooking.stackexchange.txt.gz", "rt", encoding="utf-8") as file:
            rows = [line.split() for line in file]
        texts = [" ".join(word for word in row if not word.startswith("__label__")) for row in rows]
        labels = [[word[9:] for word in row if word.startswith("__label__")] for row in rows]
        return (texts[:12404], labels[:12404]), (texts[12404:], labels[12404:])
    return tuple(_read_json(DATA / name / f"{name}-{part}.jsonl.gz", *COLUMNS[name]) for part in ("train", "test"))


def _read_json(path: Path, label: str, *columns: str):
    with gzip.open(path, "rt", encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    return [" ".join(" ".join(row[c] for c in columns).split()) for row in rows], [[row[label]] for row in rows]


def tutorial(text: str) -> str:
    """As the tutorial prepares texts."""
    return re.sub(r"([.!?,'/()])", r" \1 ", text).lower()


def write_lines(path: str, texts, labels, prepare) -> None:
    with open(path, "w", encoding="utf-8") as file:
        for text, names in zip(texts, labels, strict=True):
            file.write(" ".join(f"__label__{name}" for name in names) + f" {prepare(text)}\n")


def precision(predicted, labels) -> float:
    return float(np.mean([label in names for label, names in zip(predicted, labels, strict=True)]))


def timed(work):
    started = time.perf_counter()
    result = work()
    return result, time.perf_counter() - started


def one_by_one(predict, texts) -> float:
    """Microseconds of the median document, the best of three rounds."""
    some = texts[:ONE_BY_ONE]
    return 1e6 * min(median(timed(lambda text=text: predict(text))[1] for text in some) for _ in range(3))


def compare(name: str, folder: str, runs: int) -> dict[str, dict[str, float]]:
    """Numbers of "same" and "own", each beside fastText."""
    import fasttext

    (texts, labels), (test, truth) = load(name)
    theirs, same, own = SETTINGS[name]
    prepared, plain, model_file = (os.path.join(folder, part) for part in ("prepared.txt", "plain.txt", "model"))
    write_lines(prepared, texts, labels, tutorial)
    write_lines(plain, texts, labels, str)
    test_lines = [tutorial(text) for text in test]

    def learn(options):
        return st.TextClassifier(random_state=0, n_jobs=2, **options).fit_stream(st.scan_text(plain))

    work = {
        "fasttext": lambda: fasttext.train_supervised(prepared, thread=2, verbose=0, **theirs),
        "same": lambda: learn(same),
        "own": lambda: learn(own),
    }
    seconds, models = {key: [] for key in work}, {}
    for run in range(runs):
        for key in list(work)[:: 1 if run % 2 == 0 else -1]:
            models[key], spent = timed(work[key])
            seconds[key].append(spent)
    fast = models["fasttext"]
    top = {"fasttext": lambda: [found[0][9:] for found in fast.predict(test_lines)[0]]}
    top |= {key: lambda key=key: models[key].predict_top(test, 1)[0][:, 0] for key in ("same", "own")}
    found, batch = {}, {key: [] for key in top}
    for _ in range(max(2, runs)):
        for key, predict in top.items():
            found[key], spent = timed(predict)
            batch[key].append(spent)
    fast.save_model(model_file)
    their_bytes = os.path.getsize(model_file)
    results = {}
    for key in ("same", "own"):
        told = models[key].save(model_file, size=their_bytes // 12)
        small = st.load(model_file)
        results[key] = {
            "P@1 fastText": precision(found["fasttext"], truth),
            "P@1": precision(found[key], truth),
            "P@1 small file": precision(small.predict_top(test, 1)[0][:, 0], truth),
            "seconds": min(seconds[key]),
            "seconds ratio": min(seconds[key]) / min(seconds["fasttext"]),
            "bytes ratio": told["bytes"] / their_bytes,
            "docs/s ratio": min(batch["fasttext"]) / min(batch[key]),
            "one doc us": one_by_one(lambda text, model=models[key]: model.predict([text]), test),
            "fastText us": one_by_one(fast.predict, test_lines),
        }
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("names", nargs="*", choices=[*SETTINGS, []])
    parser.add_argument("--runs", type=int, default=2)
    options = parser.parse_args()
    for name in options.names or list(SETTINGS):
        with tempfile.TemporaryDirectory() as folder:
            results = compare(name, folder, options.runs)
        for key, row in results.items():
            shown = "  ".join(f"{title} {value:.4g}" for title, value in row.items())
            print(f"{name:<22}{key:<6}{shown}", flush=True)


if __name__ == "__main__":
    main()
