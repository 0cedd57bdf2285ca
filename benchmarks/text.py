"""From a raw file of texts to a model and its accuracy, beside HashingVectorizer + SGDClassifier, fastText and VW.

imdb, debian-packages, 20newsgroups: seconds are time on the wall from the packed JSON lines to the saved model, in a
new process, with all imports; peers get Python's reader and, for their own text formats, a temporary file, since that
is what their users have to do. Then the accuracy on the test file, whose reading and prediction `tested` adds to the
seconds. All take words and pairs of words; peers with their
documented settings, two threads where they have them.

The data is not part of the project: STEEPEST_DATA names the folder that holds it. Without it nothing is measured.
"""

from __future__ import annotations

import gzip
import json
import math
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import DATA
from benchmarks.compare import Job, Result, Settings, Target, main

FULL = Settings(rows=0, text_rows=0, large_rows=0, launches=1)


class TextData(NamedTuple):
    """Two files of JSON lines, and the names of the label and of the columns of text."""

    folder: str
    name: str
    label: str
    columns: tuple[str, ...] = ("text",)

    def path(self, part: str) -> Path:
        return DATA / self.folder / f"{self.name}-{part}.jsonl.gz"

    def read(self, part: str) -> tuple[list[str], list[str]]:
        with gzip.open(self.path(part), "rt", encoding="utf-8") as file:
            rows = [json.loads(line) for line in file]
        return ["\n".join(row[name] for name in self.columns) for row in rows], [str(row[self.label]) for row in rows]


SETS = {
    "imdb": TextData("imdb", "imdb", "label"),
    "debian-packages": TextData("debian-packages", "debian-packages", "section", ("short", "text")),
    "20newsgroups": TextData("20newsgroups", "20news-bydate", "label"),
}


def share_right(predicted: Any, labels: list[str]) -> float:
    return sum(a == b for a, b in zip(predicted, labels, strict=True)) / len(labels)


def from_start(data: TextData, train: Callable[[Path], Callable[[list[str]], Any]]) -> Result:
    """Trains in this process, which has imported nothing yet, then predicts the test file."""
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        predict = train(Path(folder))
        seconds = time.perf_counter() - start
        texts, labels = data.read("test")
        accuracy, tested = share_right(predict(texts), labels), time.perf_counter() - start
        return {"seconds": seconds, "accuracy": accuracy, "MB": _megabytes(Path(folder)), "s tested": tested}


def _megabytes(folder: Path) -> float:
    return sum(path.stat().st_size for path in folder.glob("model*")) / 1e6


def steepest(settings: Settings, data: TextData, *options: str) -> Result:
    """The command line, as a user calls it."""
    with tempfile.TemporaryDirectory() as folder:
        model = str(Path(folder) / "model")
        start = time.perf_counter()
        _steepest("train", data.path("train"), "-m", model, "--label", data.label, *_columns(data), *options, "--quiet")
        seconds = time.perf_counter() - start
        found = json.loads(_steepest("evaluate", model, data.path("test"), "--json", "--on-bad-line", "skip"))
        tested = time.perf_counter() - start
        # Rows with a label that is in the test file only are skipped; they count as errors, as they do for the peers.
        accuracy = found["accuracy"] * found["rows"] / len(data.read("test")[1])
        return {"seconds": seconds, "accuracy": accuracy, "MB": _megabytes(Path(folder)), "s tested": tested}


def _columns(data: TextData) -> Iterator[str]:
    yield "--text"
    yield ",".join(data.columns)


def _steepest(*arguments: Any) -> str:
    command = [sys.executable, "-m", "steepest", *map(str, arguments)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def sklearn(settings: Settings, data: TextData) -> Result:
    def train(folder: Path) -> Callable[[list[str]], Any]:
        import pickle

        from sklearn.feature_extraction.text import HashingVectorizer
        from sklearn.linear_model import SGDClassifier
        from sklearn.pipeline import make_pipeline

        texts, labels = data.read("train")
        vectorizer = HashingVectorizer(ngram_range=(1, 2), n_features=2**20, alternate_sign=False)
        classifier = SGDClassifier(loss="hinge", alpha=1e-5, max_iter=5, tol=None, n_jobs=2, random_state=0)
        model = make_pipeline(vectorizer, classifier).fit(texts, labels)
        (folder / "model").write_bytes(pickle.dumps(model))
        return model.predict  # type: ignore[no-any-return]

    return from_start(data, train)


def sklearn_tfidf(settings: Settings, data: TextData) -> Result:
    def train(folder: Path) -> Callable[[list[str]], Any]:
        from sklearn.feature_extraction.text import TfidfVectorizer
        from sklearn.linear_model import SGDClassifier
        from sklearn.pipeline import make_pipeline

        texts, labels = data.read("train")
        classifier = SGDClassifier(random_state=0, n_jobs=2)
        return make_pipeline(TfidfVectorizer(ngram_range=(1, 2)), classifier).fit(texts, labels).predict  # type: ignore[no-any-return]

    return from_start(data, train)


def fasttext(settings: Settings, data: TextData) -> Result:
    def train(folder: Path) -> Callable[[list[str]], Any]:
        import fasttext

        fasttext.FastText.eprint = lambda *_: None
        texts, labels = data.read("train")
        with open(folder / "train.txt", "w", encoding="utf-8") as file:
            file.writelines(f"__label__{y} {_words(text)}\n" for y, text in zip(labels, texts, strict=True))
        choices = {"dim": 10, "lr": 0.25, "wordNgrams": 2, "minCount": 1, "bucket": 10_000_000, "epoch": 5, "thread": 2}
        model = fasttext.train_supervised(str(folder / "train.txt"), verbose=0, **choices)
        model.save_model(str(folder / "model.bin"))
        prefix = len("__label__")
        return lambda texts: [found[0][prefix:] for found in model.predict([_words(text) for text in texts])[0]]

    return from_start(data, train)


def _words(text: str) -> str:
    """As in fastText's own script: marks stand apart, letters are small."""
    for mark in "'.,()!?":
        text = text.replace(mark, f" {mark} ")
    return " ".join(text.lower().split())


def vw(settings: Settings, data: TextData) -> Result:
    def train(folder: Path) -> Callable[[list[str]], Any]:
        texts, labels = data.read("train")
        names = sorted(set(labels))
        codes = {name: str(i + 1) for i, name in enumerate(names)}
        with open(folder / "train.vw", "w", encoding="utf-8") as file:
            file.writelines(f"{codes[y]} |t {_plain(text)}\n" for y, text in zip(labels, texts, strict=True))
        model = folder / "model"
        _vw("-d", folder / "train.vw", "-f", model, "--oaa", len(names), "--ngram", 2, "-b", 22, "--passes", 3, "-k",
            "--cache_file", folder / "cache", "--holdout_off", "--loss_function", "logistic")  # fmt: skip

        def predict(texts: list[str]) -> list[str]:
            with open(folder / "test.vw", "w", encoding="utf-8") as file:
                file.writelines(f"|t {_plain(text)}\n" for text in texts)
            _vw("-d", folder / "test.vw", "-i", model, "-t", "-p", folder / "found")
            return [names[int(float(code)) - 1] for code in (folder / "found").read_text().split()]

        return predict

    return from_start(data, train)


def _plain(text: str) -> str:
    return " ".join(text.replace(":", " ").replace("|", " ").lower().split())


def _vw(*arguments: Any) -> None:
    subprocess.run([sys.executable, "-m", "vowpalwabbit", "--quiet", *map(str, arguments)], check=True)


PEERS = {"scikit-learn hashed": sklearn, "scikit-learn tf-idf": sklearn_tfidf, "fastText": fasttext, "vw": vw}


def text_job(data: TextData) -> Job:
    ours, small = "steepest --ngrams 1,2", "steepest, --bits 16 too"
    runners: dict[str, Callable[[Settings], Result]] = {
        ours: lambda settings: steepest(settings, data, "--ngrams", "1,2"),
        small: lambda settings: steepest(settings, data, "--ngrams", "1,2", "--bits", "16"),
    }
    runners |= {name: partial(peer, data=data) for name, peer in PEERS.items()}

    def ratio(results: dict[str, Result], peer: str, time: str) -> float:
        return float(results[peer][time] / results[ours][time])

    def ahead(results: dict[str, Result]) -> float:
        return float(results[ours]["accuracy"] - max(results[peer]["accuracy"] for peer in PEERS))

    def size(results: dict[str, Result]) -> float:
        theirs = results["fastText"]
        as_good = [results[name] for name in (ours, small) if results[name]["accuracy"] >= theirs["accuracy"]]
        return float(min((result["MB"] for result in as_good), default=math.inf) / theirs["MB"])

    targets = [
        Target(f"times faster than {peer}, {end}", partial(ratio, peer=peer, time=time), "at least", bound)
        for time, end in (("seconds", "to the model"), ("s tested", "to the test accuracy"))
        for peer, bound in (("scikit-learn hashed", 10), ("fastText", 10), ("vw", 2))
    ]
    targets.append(Target("accuracy above the best peer's", ahead, "at least", 0))
    return Job(runners, [*targets, Target("of fastText's file, at its accuracy or a higher one", size, "at most", 0.1)])


JOBS = {name: text_job(data) for name, data in SETS.items()}


def prepare(settings: Settings, jobs: list[str]) -> None:
    """Nothing is generated; the data must be there."""
    if not DATA.is_dir():
        sys.exit("no data: set STEEPEST_DATA to the folder that holds imdb, debian-packages and 20newsgroups")


if __name__ == "__main__":
    sys.exit(main("benchmarks.text", JOBS, prepare, full=FULL, quick=FULL))
