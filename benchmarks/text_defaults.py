"""What "auto" chooses for TextClassifier, on held-out rows of training parts; test parts are not looked at.

`python -m benchmarks.text_defaults [data set ...]`: P@1 on a fifth of the training rows (at most 5,000) with fixed
settings for all data (dim 16, eta0 0.5, 5 epochs) and with those that "auto" chooses. Two seeds each.
"""

from __future__ import annotations

import argparse
import gzip
import json

import numpy as np

import steepest as st
from benchmarks.text_classifier import DATA, SETTINGS, load, precision

FIXED = {"dim": 16, "eta0": 0.5, "epochs": 5}
MORE = ("goemotions", "reuters-21578", "20newsgroups", "sms-spam", "enron-spam")


def training_part(name: str):
    """(texts, lists of labels)."""
    if name in SETTINGS:
        return load(name)[0]
    files = {"reuters-21578": "reuters-21578", "20newsgroups": "20news-bydate-train", "enron-spam": "enron-spam"}
    if name in files:
        with gzip.open(DATA / name / f"{files[name]}.jsonl.gz", "rt", encoding="utf-8") as file:
            rows = [json.loads(line) for line in file]
        if name == "reuters-21578":
            rows = [row for row in rows if row["modapte"] == "train" and row["topics"]]
            return [f"{row['title']} {row['text']}" for row in rows], [row["topics"] for row in rows]
        rows = [row for row in rows if row.get("folder") != 6]
        return [f"{row.get('subject', '')} {row['text']}" for row in rows], [[row["label"]] for row in rows]
    place = "sms-spam/SMSSpamCollection.tsv.gz" if name == "sms-spam" else f"{name}/train.tsv.gz"
    with gzip.open(DATA / place, "rt", encoding="utf-8") as file:
        cells = [line.rstrip("\n").split("\t") for line in file]
    if name == "sms-spam":
        return [row[1] for row in cells], [[row[0]] for row in cells]
    return [row[0] for row in cells], [row[1].split(",") for row in cells]


def compare(name: str) -> str:
    texts, labels = training_part(name)
    options = SETTINGS[name][2] if name in SETTINGS else {}
    told = []
    for seed in (0, 1):
        order = np.random.default_rng(seed).permutation(len(texts)).tolist()
        n_held = min(len(order) // 5, 5000)
        held, learned = order[:n_held], order[n_held:]
        truth = [labels[row] for row in held]
        several = any(len(names) != 1 for names in labels)
        y = [labels[row] if several else labels[row][0] for row in learned]
        for settings in (FIXED, {}):
            model = st.TextClassifier(names=0, n_jobs=2, random_state=seed, **options, **settings)
            model.fit([texts[row] for row in learned], y)
            told.append(precision(model.predict_top([texts[row] for row in held], 1)[0][:, 0], truth))
    chosen = model.learner_.settings
    return (
        f"{name:<22}{len(y):>7,} texts {len(model.classes_):>4} labels  fixed {told[0]:.4f} {told[2]:.4f}  "
        f"auto {told[1]:.4f} {told[3]:.4f}  (dim {chosen.dim}, eta0 {chosen.eta0:g}, {model.n_iter_} epochs)"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("names", nargs="*", choices=[*SETTINGS, *MORE, []])
    for name in parser.parse_args().names or [*SETTINGS, *MORE]:
        print(compare(name), flush=True)


if __name__ == "__main__":
    main()
