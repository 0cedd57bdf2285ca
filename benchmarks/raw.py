"""Raw rows beside the peers: quality with defaults on texts of many labels, a categorical table, and what it costs.

Texts: cooking-stackexchange (precision of the first label), goemotions and reuters-21578 (micro F1), beside tf-idf +
SGDClassifier (one against the rest) and fastText (loss "ova"; F1 of its best label or of all above one half, whichever
is better on the test rows). The peers have their defaults, ours has its own. us-flights: log loss on the last week,
beside VW's defaults. `hashing`: texts in memory to sparse rows. `document`: one text, one call. `memory`: two passes
over 1, 10 and 100 times the rows. `passes`: one pass over VW's own format, and over a cache of it, processes started
and models saved.

The data is not part of the project: STEEPEST_DATA names the folder that holds it. Without it nothing is measured.
"""

from __future__ import annotations

import csv
import gzip
import json
import math
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.compare import Job, Result, Settings, Target, main
from benchmarks.text import DATA, FULL, SETS, prepare

TRAINING_LINES = 12_404  # of cooking-stackexchange, as in fastText's tutorial
LAST_TRAINING_DAY = 24
KNOWN_AFTERWARDS = ("cancelled", "diverted", "dep_delay", "arr_delay", "arr_del15")


class Labelled(NamedTuple):
    """Texts and the labels of each."""

    texts: list[str]
    labels: list[list[str]]

    def matrix(self, names: list[str]) -> Any:
        """One 0/1 column a name; other labels are left out."""
        import numpy as np

        column = {name: k for k, name in enumerate(names)}
        y = np.zeros((len(self.texts), len(names)))
        for row, labels in enumerate(self.labels):
            y[row, [column[label] for label in labels if label in column]] = 1
        return y


def read_cooking() -> tuple[Labelled, Labelled]:
    with gzip.open(DATA / "cooking-stackexchange" / "cooking.stackexchange.txt.gz", "rt", encoding="utf-8") as file:
        words = [line.split() for line in file]
    mark = "__label__"
    labels = [[word[len(mark) :] for word in row if word.startswith(mark)] for row in words]
    texts = [" ".join(word for word in row if not word.startswith(mark)) for row in words]
    cut = TRAINING_LINES
    return Labelled(texts[:cut], labels[:cut]), Labelled(texts[cut:], labels[cut:])


def read_goemotions() -> tuple[Labelled, Labelled]:
    parts = []
    for part in ("train", "test"):
        with gzip.open(DATA / "goemotions" / f"{part}.tsv.gz", "rt", encoding="utf-8") as file:
            rows = [line.rstrip("\n").split("\t") for line in file]
        parts.append(Labelled([row[0] for row in rows], [row[1].split(",") for row in rows]))
    return parts[0], parts[1]


def read_reuters() -> tuple[Labelled, Labelled]:
    """The ModApte split: rows of each part that have a topic of the 90 in both."""
    with gzip.open(DATA / "reuters-21578" / "reuters-21578.jsonl.gz", "rt", encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    topics = [{t for row in rows if row["modapte"] == part for t in row["topics"]} for part in ("train", "test")]
    both, parts = topics[0] & topics[1], []
    for part in ("train", "test"):
        own = [(row, sorted(both.intersection(row["topics"]))) for row in rows if row["modapte"] == part]
        own = [(row, labels) for row, labels in own if labels]
        parts.append(Labelled([f"{row['title']}\n{row['text']}" for row, _ in own], [labels for _, labels in own]))
    return parts[0], parts[1]


READERS = {"cooking": read_cooking, "goemotions": read_goemotions, "reuters": read_reuters}


def measured(name: str, train: Callable[[Labelled, list[str]], Callable[[list[str]], tuple[Any, list[Any]]]]) -> Result:
    """Seconds of learning from texts in memory; `train` gives scores, and ways to tell the labels of the test rows."""
    rows, test = READERS[name]()
    names = sorted({label for labels in rows.labels for label in labels})
    start = time.perf_counter()
    predict = train(rows, names)
    seconds = time.perf_counter() - start
    (scores, answers), truth = predict(test.texts), test.matrix(names)
    best = float(truth[range(len(truth)), scores.argmax(axis=1)].mean())
    f1 = max(2 * float((told * truth).sum()) / float(told.sum() + truth.sum()) for told in answers)
    return {"seconds": seconds, "P@1": best, "micro F1": f1}


def ours(settings: Settings, name: str) -> Result:
    def train(rows: Labelled, names: list[str]) -> Callable[[list[str]], tuple[Any, list[Any]]]:
        import steepest as st

        model = st.LinearClassifier(hasher=st.Hasher(), random_state=0).fit(rows.texts, rows.matrix(names))
        return lambda texts: (model.decision_function(texts), [model.predict(texts)])

    return measured(name, train)


def sklearn(settings: Settings, name: str) -> Result:
    def train(rows: Labelled, names: list[str]) -> Callable[[list[str]], tuple[Any, list[Any]]]:
        from sklearn.feature_extraction.text import TfidfVectorizer
        from sklearn.linear_model import SGDClassifier
        from sklearn.multiclass import OneVsRestClassifier
        from sklearn.pipeline import make_pipeline

        model = make_pipeline(TfidfVectorizer(), OneVsRestClassifier(SGDClassifier(random_state=0), n_jobs=2))
        model.fit(rows.texts, rows.matrix(names))
        return lambda texts: (model.decision_function(texts), [model.predict(texts)])

    return measured(name, train)


def fasttext(settings: Settings, name: str, **choices: Any) -> Result:
    def train(rows: Labelled, names: list[str]) -> Callable[[list[str]], tuple[Any, list[Any]]]:
        import fasttext
        import numpy as np

        from benchmarks.text import _words

        fasttext.FastText.eprint = lambda *_: None
        with tempfile.NamedTemporaryFile("w", suffix=".txt", encoding="utf-8") as file:
            for text, labels in zip(rows.texts, rows.labels, strict=True):
                file.write(" ".join(f"__label__{label}" for label in labels) + f" {_words(text)}\n")
            file.flush()
            model = fasttext.train_supervised(file.name, loss="ova", thread=2, verbose=0, **choices)
        column = {f"__label__{label}": k for k, label in enumerate(names)}

        def predict(texts: list[str]) -> tuple[Any, list[Any]]:
            table = np.full((len(texts), len(names)), -1.0)
            for row, text in enumerate(texts):
                for label, p in zip(*model.predict(_words(text), k=-1), strict=True):
                    table[row, column[label]] = p - 0.5
            best = np.arange(len(names)) == table.argmax(axis=1)[:, None]
            return table, [table > 0, best]

        return predict

    return measured(name, train)


def quality_job(name: str, measure: str) -> Job:
    runners: dict[str, Callable[[Settings], Result]] = {
        "steepest": partial(ours, name=name),
        "scikit-learn tf-idf": partial(sklearn, name=name),
        "fastText": partial(fasttext, name=name),
        # The settings at which fastText's tutorial ends.
        "fastText, tutorial": partial(fasttext, name=name, lr=0.5, epoch=25, wordNgrams=2, bucket=200_000, dim=50),
    }

    def ahead(results: dict[str, Result]) -> float:
        peers = [result[measure] for runner, result in results.items() if runner != "steepest"]
        return float(results["steepest"][measure] - max(peers))

    return Job(runners, [Target(f"{measure} above the best peer's", ahead, "at least", 0)], once=True)


# ------------------------------------------------------------------------------------------------------- us-flights


def flights(folder: Path, write: Callable[[Any, dict[str, str]], None]) -> tuple[Path, Path]:
    """Two files, days 1 to 24 and the rest, of the flights that arrived; each row written by `write`."""
    paths = folder / "train", folder / "test"
    source = DATA / "us-flights-2024-01" / "flights.csv.gz"
    with gzip.open(source, "rt", encoding="utf-8") as file, open(paths[0], "w") as train, open(paths[1], "w") as test:
        for row in csv.DictReader(file):
            if row["arr_del15"]:
                write(train if int(row["day"]) <= LAST_TRAINING_DAY else test, row)
    return paths


def inputs(row: dict[str, str]) -> dict[str, str]:
    """All columns but those known afterwards; times of day as hours."""
    found = {name: value for name, value in row.items() if name not in KNOWN_AFTERWARDS and name != "day"}
    return {**found, "crs_dep": row["crs_dep"][:-2], "crs_arr": row["crs_arr"][:-2]}


def _csv_row(file: Any, row: dict[str, str]) -> None:
    if file.tell() == 0:
        file.write(",".join(["late", *inputs(row)]) + "\n")
    file.write(",".join([row["arr_del15"], *inputs(row).values()]) + "\n")


def _vw_row(file: Any, row: dict[str, str]) -> None:
    words = " ".join(
        f"{key}:{value}" if key in ("crs_minutes", "miles") else f"{key}={value}" for key, value in inputs(row).items()
    )
    file.write(f"{2 * int(row['arr_del15']) - 1} |f {words}\n")


CATEGORIES = "weekday,marketing_carrier,carrier,tail,flight,origin,dest,crs_dep,crs_arr"
CSV_COLUMNS = ["--label", "late", "--numeric", "crs_minutes,miles", "--categorical", CATEGORIES]


def ours_flights(settings: Settings, form: str, *more: str) -> Result:
    with tempfile.TemporaryDirectory() as name:
        train, test = flights(Path(name), _csv_row if form == "csv" else _vw_row)
        model, options = str(Path(name) / "model"), ["--format", form]
        columns = CSV_COLUMNS if form == "csv" else []
        start = time.perf_counter()
        _steepest("train", train, "-m", model, *options, *columns, *more, "--quiet")
        seconds = time.perf_counter() - start
        found = json.loads(_steepest("evaluate", model, test, *options, "--json"))
        n_rows = len(train.read_text().splitlines()) - (form == "csv")
    return {"seconds": seconds, "log loss": found["loss"], "rows/s": n_rows / seconds}


def vw_flights(settings: Settings) -> Result:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        train, test = flights(folder, _vw_row)
        start = time.perf_counter()
        _vw("-d", train, "-f", folder / "model", "--loss_function", "logistic")
        seconds = time.perf_counter() - start
        _vw("-d", test, "-i", folder / "model", "-t", "-r", folder / "scores")
        scores = [float(line.split()[0]) for line in (folder / "scores").read_text().splitlines()]
        signs = [float(line.split(" ", 1)[0]) for line in test.read_text().splitlines()]
        loss = sum(math.log1p(math.exp(-y * s)) for y, s in zip(signs, scores, strict=True)) / len(signs)
        n_rows = len(train.read_text().splitlines())
    return {"seconds": seconds, "log loss": loss, "rows/s": n_rows / seconds}


def flights_job() -> Job:
    def loss(results: dict[str, Result], runner: str) -> float:
        return float(results[runner]["log loss"] - results["vw"]["log loss"])

    def speed(results: dict[str, Result], runner: str) -> float:
        return float(results["vw"]["seconds"] / results[runner]["seconds"])

    ours: dict[str, Callable[[Settings], Result]] = {
        "steepest": lambda settings: ours_flights(settings, "csv"),
        "steepest, one epoch": lambda settings: ours_flights(settings, "csv", "--epochs", "1"),
        "steepest, vw's file": lambda settings: ours_flights(settings, "vw"),
        "steepest, vw's file and one epoch": lambda settings: ours_flights(settings, "vw", "--epochs", "1"),  # as vw
    }
    targets = []
    for runner in ours:
        targets.append(Target(f"log loss beyond vw's, {runner}", partial(loss, runner=runner), "at most", 0))
        targets.append(Target(f"times faster than vw, {runner}", partial(speed, runner=runner), "at least", 1))
    return Job({**ours, "vw": vw_flights}, targets)


def _steepest(*arguments: Any) -> str:
    command = [sys.executable, "-m", "steepest", *map(str, arguments)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def _vw(*arguments: Any) -> None:
    subprocess.run([sys.executable, "-m", "vowpalwabbit", "--quiet", *map(str, arguments)], check=True)


# --------------------------------------------------------------------------------------------------- texts to rows


def hash_texts(settings: Settings, n_jobs: int) -> Result:
    import steepest as st

    texts, _ = SETS["imdb"].read("train")
    hasher = st.Hasher(ngrams=(1, 2), n_jobs=n_jobs)
    return _speed(texts, _best_of_seven(lambda: hasher.to_chunk(texts)))


def vectorize_texts(settings: Settings) -> Result:
    from sklearn.feature_extraction.text import HashingVectorizer

    texts = SETS["imdb"].read("train")[0][:5000]
    vectorizer = HashingVectorizer(ngram_range=(1, 2), n_features=2**22)
    return _speed(texts, _best_of_seven(lambda: vectorizer.transform(texts)))


def _best_of_seven(work: Callable[[], Any]) -> float:
    seconds = []
    for _ in range(7):  # memory that the machine has not used yet makes the first ones slow
        start = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def _speed(texts: list[str], seconds: float) -> Result:
    return {"seconds": seconds, "MB/s": sum(len(text.encode()) for text in texts) / 1e6 / seconds}


def hashing_job() -> Job:
    def ratio(results: dict[str, Result], runner: str) -> float:
        return float(results[runner]["MB/s"] / results["HashingVectorizer"]["MB/s"])

    def speed(results: dict[str, Result], runner: str) -> float:
        return float(results[runner]["MB/s"])

    runners: dict[str, Callable[[Settings], Result]] = {
        "one thread": partial(hash_texts, n_jobs=1),
        "two threads": partial(hash_texts, n_jobs=2),
        "HashingVectorizer": vectorize_texts,
    }
    targets = []
    for runner, times, megabytes in (("one thread", 30, 200), ("two threads", 50, 330)):
        targets.append(Target(f"times HashingVectorizer, {runner}", partial(ratio, runner=runner), "at least", times))
        targets.append(Target(f"MB/s, {runner}", partial(speed, runner=runner), "at least", megabytes))
    return Job(runners, targets)


# ----------------------------------------------------------------------------------------------- one text, and memory


def one_document(settings: Settings) -> Result:
    import statistics

    import steepest as st

    texts, labels = SETS["imdb"].read("train")
    some = st.LinearClassifier(hasher=st.Hasher(ngrams=(1, 2)), epochs=1, random_state=0)
    some.fit(texts[::10], labels[::10])
    with tempfile.TemporaryDirectory() as folder:
        some.save(Path(folder) / "model")
        model = st.load(Path(folder) / "model")
        short = [" ".join(text.split()[:20]) for text in texts[:1000]]
        times = {"seconds": texts[:1000], "short": short}
        medians = {}
        for name, documents in times.items():
            taken = []
            for document in documents:
                start = time.perf_counter()
                model.predict([document])
                taken.append(time.perf_counter() - start)
            medians[name] = statistics.median(taken)
    return {"seconds": medians["seconds"], "us": 1e6 * medians["seconds"], "us for 20 words": 1e6 * medians["short"]}


def document_job() -> Job:
    def microseconds(results: dict[str, Result]) -> float:
        return float(results["steepest"]["us"])

    return Job({"steepest": one_document}, [Target("us a document", microseconds, "at most", 25)])


def stream_copies(settings: Settings, copies: int) -> Result:
    """One pass over so many copies of 2,500 reviews, as lines of label and text."""
    with tempfile.TemporaryDirectory() as folder:
        texts, labels = SETS["imdb"].read("train")
        path = Path(folder) / "texts.txt"
        lines = "".join(f"{y}\t{' '.join(t.split())}\n" for t, y in zip(texts[::10], labels[::10], strict=True))
        with open(path, "w") as file:
            for _ in range(copies):
                file.write(lines)
        del texts, labels, lines
        code = (
            "import sys, steepest as st\n"
            "hasher = st.Hasher(18, ngrams=(1, 2))\n"
            "st.LinearClassifier(hasher=hasher, epochs=2, random_state=0).fit_stream(st.scan(sys.argv[1]))\n"
            "print(open('/proc/self/status').read().split('VmHWM:')[1].split()[0])"
        )
        start = time.perf_counter()
        found = subprocess.run([sys.executable, "-c", code, str(path)], check=True, capture_output=True, text=True)
        seconds = time.perf_counter() - start
    return {"seconds": seconds, "resident MB": int(found.stdout) / 1024, "rows/s": 2 * 2500 * copies / seconds}


def memory_job() -> Job:
    def most(results: dict[str, Result]) -> float:
        return float(max(result["resident MB"] for result in results.values()))

    runners: dict[str, Callable[[Settings], Result]] = {
        f"{copies} x 2,500 rows": partial(stream_copies, copies=copies) for copies in (1, 10, 100)
    }
    return Job(runners, [Target("MB at most, with 2 MB of weights", most, "at most", 252)], once=True)


def write_vw(path: Path, copies: int = 20) -> int:
    """Reviews as lines of VW's format, each so often; how many lines there are."""
    texts, labels = SETS["imdb"].read("train")
    words = ["".join(c if c.isalnum() else " " for c in text.lower()) for text in texts]
    signs = [1 if label == max(labels) else -1 for label in labels]
    with open(path, "w") as file:
        for _ in range(copies):
            file.writelines(f"{y} | {' '.join(w.split())}\n" for y, w in zip(signs, words, strict=True))
    return copies * len(texts)


def one_pass(settings: Settings, runner: str, cached: bool) -> Result:
    """One pass over a file of VW's format, or over the cache that was made of it before the clock runs."""
    with tempfile.TemporaryDirectory() as name:
        rows, cache, model = (Path(name) / part for part in ("rows.vw", "rows.cache", "model"))
        n_rows = write_vw(rows)
        if runner == "vw":
            learn = ["-d", rows, "-f", model, "--loss_function", "logistic", *["--cache_file", cache] * cached]
        else:
            learn = ["train", rows, "-m", model, "--epochs", "1", "--quiet", *["--cache", cache] * cached]
        work = _vw if runner == "vw" else _steepest
        if cached:
            work(*learn)
        start = time.perf_counter()
        work(*learn)
        seconds = time.perf_counter() - start
    return {"seconds": seconds, "rows/s": n_rows / seconds}


def passes_job() -> Job:
    runners: dict[str, Callable[[Settings], Result]] = {
        f"{runner}, from {'cache' if cached else 'text'}": partial(one_pass, runner=runner, cached=cached)
        for cached in (False, True)
        for runner in ("steepest", "vw")
    }

    def times_faster(kind: str) -> Callable[[dict[str, Result]], float]:
        return lambda found: float(found[f"vw, from {kind}"]["seconds"] / found[f"steepest, from {kind}"]["seconds"])

    kinds = ("text", "cache")
    return Job(runners, [Target(f"times faster than vw, from {k}", times_faster(k), "at least", 2) for k in kinds])


JOBS = {
    "cooking": quality_job("cooking", "P@1"),
    "goemotions": quality_job("goemotions", "micro F1"),
    "reuters": quality_job("reuters", "micro F1"),
    "flights": flights_job(),
    "hashing": hashing_job(),
    "document": document_job(),
    "memory": memory_job(),
    "passes": passes_job(),
}


if __name__ == "__main__":
    sys.exit(main("benchmarks.raw", JOBS, prepare, full=FULL, quick=FULL))
