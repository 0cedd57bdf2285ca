"""Choices of a linear model compared on texts of many classes or labels, on training rows held out.

No test part is looked at.

    python -m benchmarks.classes [--sets cooking reuters] [--options "" "loss='hinge'" "epochs=15"] [--peer]

A fifth of the training part is held out, and the hasher counts words in the rest. Options are written as the
arguments of `LinearClassifier`. Shown: percent of rows whose first label is right (accuracy where rows have one label),
micro F1 in percent where they have several, and the step that was calibrated. With --peer, scikit-learn's
TfidfVectorizer + SGDClassifier, as they come, on the same rows.
"""

from __future__ import annotations

import argparse
import ast
from typing import Any, NamedTuple

import numpy as np

import steepest as st
from benchmarks import raw, text

MOST_ROWS = 16_000
SHARE = 0.2


class Split(NamedTuple):
    """Texts and labels (one a row, or a column of 0/1 each) to learn from and to judge by."""

    texts: list[str]
    y: np.ndarray
    held_texts: list[str]
    held_y: np.ndarray


def load(name: str) -> Split:
    if name in raw.READERS:
        rows, _ = raw.READERS[name]()
        texts, y = rows.texts, rows.matrix(sorted({label for labels in rows.labels for label in labels}))
    else:
        texts, labels = text.SETS[name].read("train")
        y = np.array(labels)
    rng = np.random.default_rng(1)
    order = rng.permutation(len(texts))[:MOST_ROWS] if len(texts) > MOST_ROWS and y.ndim == 1 else np.arange(len(texts))
    held = rng.random(len(order)) < SHARE
    kept, judged = order[~held], order[held]
    if y.ndim == 2:  # a label without a row to learn from cannot be told by anyone
        y = y[:, y[kept].any(axis=0)]
    return Split([texts[i] for i in kept], y[kept], [texts[i] for i in judged], y[judged])


def quality(scores: np.ndarray, y: np.ndarray, classes: Any) -> str:
    if y.ndim == 1:
        return f"{100 * np.mean(np.asarray(classes)[scores.argmax(axis=1)] == y):6.2f} {'':6}"
    first = y[range(len(y)), scores.argmax(axis=1)].mean()
    told = scores > 0
    return f"{100 * first:6.2f} {200 * (told * y).sum() / (told.sum() + y.sum()):6.2f}"


def ours(split: Split, options: dict[str, Any]) -> str:
    model = st.LinearClassifier(hasher=st.Hasher(), random_state=0, **options).fit(split.texts, split.y)
    shown = quality(model.decision_function(split.held_texts), split.held_y, getattr(model, "classes_", None))
    return f"{shown}  step {model.learner_.eta0:g}"


def peer(split: Split) -> str:
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import SGDClassifier
    from sklearn.multiclass import OneVsRestClassifier
    from sklearn.pipeline import make_pipeline

    one = SGDClassifier(random_state=0)
    model = make_pipeline(TfidfVectorizer(), OneVsRestClassifier(one) if split.y.ndim == 2 else one)
    model.fit(split.texts, split.y)
    return quality(model.decision_function(split.held_texts), split.held_y, model.classes_)


def arguments_of(options: str) -> dict[str, Any]:
    """Names and plain values written as the arguments of a call."""
    call = ast.parse(f"dict({options})", mode="eval").body
    assert isinstance(call, ast.Call)
    return {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in call.keywords}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    sets = [*raw.READERS, "20newsgroups", "debian-packages"]
    parser.add_argument("--sets", nargs="+", default=sets, choices=sets)
    parser.add_argument("--options", nargs="+", default=["", "loss='hinge'", "loss='squared_hinge'", "epochs=15"])
    parser.add_argument("--peer", action="store_true")
    arguments = parser.parse_args()
    for name in arguments.sets:
        split = load(name)
        for options in arguments.options:
            found = ours(split, arguments_of(options))
            print(f"{name:<16}{options or 'defaults':<40}{found}", flush=True)
        if arguments.peer:
            print(f"{name:<16}{'scikit-learn tf-idf':<40}{peer(split)}", flush=True)


if __name__ == "__main__":
    main()
