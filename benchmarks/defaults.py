"""What the defaults lose to the best of a grid: 20 step sizes, then 20 strengths of the penalty, on every data set.

    python -m benchmarks.defaults DATA_FOLDER [--sets a9a imdb] [--epochs 5] [--solvers auto coin | --seeds 10]

A grid point changes one parameter of the default model; the best is picked on the test rows, which flatters the grid.
Step sizes are 2^-10 to 2^9 times the one that the default calibrated to, alphas 20 powers from 1e-9 to 1e-2.
Accuracy is in points (the defaults should lose at most 0.3), regression in percent of the squared error (at most 1);
the last column is what is lost of the mean loss, in percent, to the grid point that has least of it. Goemotions and
Reuters have several labels a row: their accuracy is that of all labels together, as micro-averaged F1. Raw columns
are hashed to 2^18 features, numbers of regressions standardised. With --solvers, other update rules are measured
with their defaults instead: accuracy and loss on the test rows after 1 and after 5 epochs. With --seeds N, the
default model is fitted with random_state 0 to N - 1 instead: the spread of its accuracy, or of the percent of the
variance that a regression leaves.
"""

from __future__ import annotations

import argparse
import gzip
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

import steepest as st
from steepest.data.chunk import concatenate

STEPS = 2.0 ** np.arange(-10, 10)
ALPHAS = np.logspace(-9, -2, 20)


class Split(NamedTuple):
    """Training and test rows."""

    X: sp.csr_matrix
    y: np.ndarray
    X_test: sp.csr_matrix
    y_test: np.ndarray


def matrix(source: st.Source, n_features: int) -> tuple[sp.csr_matrix, np.ndarray]:
    rows = concatenate(list(source))
    return sp.csr_matrix((rows.values, rows.indices, rows.indptr), shape=(rows.n_rows, n_features)), rows.y


def halves(X: sp.csr_matrix, y: np.ndarray, share: float = 0.2) -> Split:
    """A random test part."""
    held = np.random.default_rng(0).random(len(y)) < share
    return Split(X[~held], y[~held], X[held], y[held])


def a9a(folder: Path) -> Split:
    parts = [matrix(st.scan(folder / f"a9a/{name}.libsvm.gz", n_features=123), 123) for name in ("a9a", "a9a.t")]
    return Split(*parts[0], *parts[1])


def rcv1_sample(folder: Path) -> Split:
    parts = [st.scan(folder / f"rcv1-sample/rcv1-sample-{part}.vw.gz") for part in ("train", "test")]
    return Split(*matrix(parts[0], parts[0].n_features), *matrix(parts[1], parts[0].n_features))


def news20(folder: Path) -> Split:
    return halves(*matrix(st.scan(folder / "news20-multiclass/news20.libsvm.gz", n_features=62_061), 62_061))


def texts(name: str, files: tuple[str, ...], columns: list[str], label: str) -> Callable[[Path], Split]:
    """JSON lines with texts, in two files or to be split."""

    def load(folder: Path) -> Split:
        import pandas as pd

        parts = []
        for file in files:
            frame = pd.read_json(folder / name / file, lines=True, compression="gzip", dtype=False)
            X = st.Hasher(n_bits=18, text=columns).fit_transform(frame[columns].astype(str))
            parts.append((sp.csr_matrix(X), frame[label].astype(str).to_numpy()))
        return halves(*parts[0]) if len(parts) == 1 else Split(*parts[0], *parts[1])

    return load


def sms(folder: Path) -> Split:
    import csv

    import pandas as pd

    frame = pd.read_csv(
        folder / "sms-spam/SMSSpamCollection.tsv.gz",
        sep="\t",
        header=None,
        names=["label", "text"],
        quoting=csv.QUOTE_NONE,
    )
    return halves(
        sp.csr_matrix(st.Hasher(n_bits=18).fit_transform(frame["text"].tolist())), frame["label"].to_numpy(str)
    )


def goemotions(folder: Path) -> Split:
    import csv

    import pandas as pd

    parts = []
    for part in ("train", "test"):
        frame = pd.read_csv(
            folder / f"goemotions/{part}.tsv.gz", sep="\t", header=None, dtype=str, quoting=csv.QUOTE_NONE
        )
        labels = [[int(number) for number in row.split(",")] for row in frame[1]]
        parts.append((sp.csr_matrix(st.Hasher(n_bits=18).fit_transform(frame[0].tolist())), indicators(labels, 28)))
    return Split(*parts[0], *parts[1])


def reuters(folder: Path) -> Split:
    """The split called ModApte, rows with a topic, and the topics that occur in both parts."""
    import pandas as pd

    frame = pd.read_json(folder / "reuters-21578/reuters-21578.jsonl.gz", lines=True)
    frame = frame[(frame["modapte"] != "unused") & (frame["topics"].map(len) > 0)]
    train = (frame["modapte"] == "train").to_numpy()
    in_both = sorted(set(frame["topics"][train].sum()) & set(frame["topics"][~train].sum()))
    numbers = {topic: number for number, topic in enumerate(in_both)}
    y = indicators([[numbers[t] for t in row if t in numbers] for row in frame["topics"]], len(numbers))
    X = sp.csr_matrix(st.Hasher(n_bits=18, text=["title", "text"]).fit_transform(frame[["title", "text"]].astype(str)))
    return Split(X[train], y[train], X[~train], y[~train])


def indicators(labels: list[list[int]], n_labels: int) -> np.ndarray:
    y = np.zeros((len(labels), n_labels), int)
    for row, numbers in enumerate(labels):
        y[row, numbers] = 1
    return y


def avazu(folder: Path) -> Split:
    import pandas as pd

    parts = []
    for part in ("train", "test"):
        frame = pd.read_csv(folder / f"ctr-samples/avazu-{part}.csv.gz", dtype=str, header=None)
        frame = frame[frame[0] != "id"]  # only the training part has a header
        frame.columns = [f"c{i}" for i in range(frame.shape[1])]
        columns = list(frame.columns[2:])
        X = st.Hasher(n_bits=18, categorical=columns).fit_transform(frame[columns].fillna(""))
        parts.append((sp.csr_matrix(X), frame["c1"].to_numpy(str)))
    return Split(*parts[0], *parts[1])


def us_flights_mixed(folder: Path) -> Split:
    """The same flights, a random fifth of them for the test, instead of the last week."""
    split = us_flights(folder)
    return halves(sp.csr_matrix(sp.vstack([split.X, split.X_test])), np.concatenate([split.y, split.y_test]))


def us_flights(folder: Path) -> Split:
    import pandas as pd

    frame = pd.read_csv(folder / "us-flights-2024-01/flights.csv.gz")
    frame = frame[frame["arr_del15"].notna()]
    frame["hour"] = frame["crs_dep"] // 100
    columns = ["weekday", "marketing_carrier", "carrier", "tail", "flight", "origin", "dest", "hour"]
    X = sp.csr_matrix(st.Hasher(n_bits=18, categorical=columns).fit_transform(frame[columns].astype(str)))
    y, train = frame["arr_del15"].astype(int).to_numpy(), (frame["day"] <= 24).to_numpy()
    return Split(X[train], y[train], X[~train], y[~train])


def criteo(folder: Path) -> Split:
    import pandas as pd

    parts = []
    for part in ("train", "test"):
        frame = pd.read_csv(folder / f"ctr-samples/criteo-{part}.tsv.gz", sep="\t", header=None, dtype=str)
        frame.columns = [f"c{i}" for i in range(frame.shape[1])]
        X = st.Hasher(n_bits=18, categorical=list(frame.columns[1:])).fit_transform(frame[frame.columns[1:]].fillna(""))
        parts.append((sp.csr_matrix(X), frame["c0"].to_numpy(str)))
    return Split(*parts[0], *parts[1])


def mnist(folder: Path) -> Split:
    def read(name: str, skip: int) -> np.ndarray:
        return np.frombuffer(gzip.open(folder / "mnist" / name).read(), np.uint8)[skip:]

    parts = []
    for part in ("train", "t10k"):
        images = read(f"{part}-images-idx3-ubyte.gz", 16).reshape(-1, 784)
        parts.append((sp.csr_matrix(images.astype(np.float32) / 255), read(f"{part}-labels-idx1-ubyte.gz", 8)))
    return Split(*parts[0], *parts[1])


def standardised(X: np.ndarray, y: np.ndarray) -> Split:
    return halves(sp.csr_matrix(((X - X.mean(axis=0)) / X.std(axis=0)).astype(np.float32)), (y - y.mean()) / y.std())


def housing(folder: Path) -> Split:
    import pandas as pd

    frame = pd.read_csv(folder / "california-housing/housing.csv.gz").dropna()
    wide = pd.get_dummies(frame.drop(columns="median_house_value")).to_numpy(np.float64)
    return standardised(wide, frame["median_house_value"].to_numpy(np.float64))


def protein(folder: Path) -> Split:
    table = np.loadtxt(folder / "casp-protein/protein.csv.gz", delimiter=",")
    return standardised(table[:, :-1], table[:, -1])


def nyc_flights(folder: Path) -> Split:
    import pandas as pd

    frame = pd.read_csv(folder / "nycflights13/flights.csv.gz").dropna(subset=["arr_delay"])
    columns = ["month", "carrier", "origin", "dest", "hour", "tailnum"]
    X = sp.csr_matrix(st.Hasher(n_bits=18, categorical=columns).fit_transform(frame[columns].astype(str)))
    y = frame["arr_delay"].to_numpy(np.float64)
    return halves(X, (y - y.mean()) / y.std())


SETS: dict[str, Callable[[Path], Split]] = {
    "a9a": a9a,
    "rcv1-sample": rcv1_sample,
    "news20": news20,
    "20newsgroups": texts(
        "20newsgroups", ("20news-bydate-train.jsonl.gz", "20news-bydate-test.jsonl.gz"), ["text"], "label"
    ),
    "imdb": texts("imdb", ("imdb-train.jsonl.gz", "imdb-test.jsonl.gz"), ["text"], "label"),
    "enron-spam": texts("enron-spam", ("enron-spam.jsonl.gz",), ["subject", "text"], "label"),
    "sms-spam": sms,
    "debian-packages": texts(
        "debian-packages",
        ("debian-packages-train.jsonl.gz", "debian-packages-test.jsonl.gz"),
        ["short", "text"],
        "section",
    ),
    "debian-langid": texts(
        "debian-langid", ("debian-langid-train.jsonl.gz", "debian-langid-test.jsonl.gz"), ["text"], "lang"
    ),
    "goemotions": goemotions,
    "reuters": reuters,
    "us-flights": us_flights,
    "us-flights, mixed": us_flights_mixed,
    "criteo": criteo,
    "avazu": avazu,
    "mnist": mnist,
    "california-housing": housing,
    "casp-protein": protein,
    "nycflights13": nyc_flights,
}
REGRESSIONS = ("california-housing", "casp-protein", "nycflights13")


def fit(name: str, split: Split, **options: object) -> st.LinearClassifier | st.LinearRegressor:
    kind = st.LinearRegressor if name in REGRESSIONS else st.LinearClassifier
    return kind(**{"random_state": 0, **options}).fit(split.X, split.y)


def measure(name: str, split: Split, model: st.LinearClassifier | st.LinearRegressor) -> tuple[float, float]:
    """(accuracy in points, mean loss), or (percent of the variance left, the same) for a regression."""
    if name in REGRESSIONS:
        left = 100 * float(np.mean((model.predict(split.X_test) - split.y_test) ** 2))
        return -left, left
    if split.y_test.ndim == 2:
        right = 2 * (model.predict(split.X_test) * split.y_test).sum()
        found = model.evaluate_stream(st.from_arrays(split.X_test, split.y_test))
        return 100 * float(right / (model.predict(split.X_test).sum() + split.y_test.sum())), found["loss"]
    known = np.isin(split.y_test, model.classes_)
    found = model.evaluate_stream(st.from_arrays(split.X_test[known], split.y_test[known]))
    return 100 * model.score(split.X_test, split.y_test), found["loss"]


def compare_grid(name: str, split: Split, epochs: int) -> str:
    model = fit(name, split, epochs=epochs)
    own, own_loss = measure(name, split, model)
    stochastic = model if model.learner_.eta0 is not None else fit(name, split, epochs=epochs, solver="stochastic")
    eta = float(stochastic.learner_.eta0)  # of the solver that has steps, where the default finds the minimum itself
    cells, losses = [], []
    for parameter, values in (("eta0", eta * STEPS), ("alpha", ALPHAS)):
        scores = []
        for value in values:
            try:
                found = measure(name, split, fit(name, split, epochs=epochs, **{parameter: float(value)}))
            except st.DataError:  # such a step diverges, whatever is done
                found = (-np.inf, np.inf)
            scores.append(found[0])
            losses.append(found[1])
        best = int(np.argmax(scores))
        lost = scores[best] - own
        lost = 100 * lost / -scores[best] if name in REGRESSIONS else lost
        shown = f"{values[best] / eta:.3g} x" if parameter == "eta0" else f"{values[best]:.0e}"
        cells.append(f"{abs(scores[best]):9.2f} {shown:>10} {max(lost, 0.0):6.2f}")
    lost_loss = max(0.0, 100 * (own_loss / min(losses) - 1))
    return f"{name:<20}{abs(own):8.2f} |" + " |".join(cells) + f" |{lost_loss:6.1f}"


def compare_rules(name: str, split: Split, solvers: list[str]) -> str:
    cells = []
    for solver in solvers:
        for epochs in (1, 5):
            quality, loss = measure(name, split, fit(name, split, solver=solver, epochs=epochs))
            cells.append(f"{abs(quality):7.2f} {loss:7.4f}")
    return f"{name:<20}" + " |".join(cells)


def compare_seeds(name: str, split: Split, epochs: int, seeds: int) -> str:
    models = (fit(name, split, epochs=epochs, random_state=seed) for seed in range(seeds))
    found = np.abs([measure(name, split, model)[0] for model in models])
    deviation = found.std(ddof=1) if seeds > 1 else np.nan
    cells = "".join(f"{value:9.3f}" for value in (found.mean(), deviation, found.min(), found.max()))
    return f"{name:<20}{cells}{len(split.y_test):10}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--sets", nargs="+", default=list(SETS), choices=list(SETS))
    parser.add_argument("--epochs", type=int, default=5)
    instead = parser.add_mutually_exclusive_group()
    instead.add_argument("--solvers", nargs="+", default=[])
    instead.add_argument("--seeds", type=int, default=0, metavar="N")
    arguments = parser.parse_args()
    if arguments.seeds:
        print(f"{'':20}{'mean':>9}{'std':>9}{'least':>9}{'greatest':>9}{'test rows':>10}")
    elif arguments.solvers:
        print(f"{'':20}" + " |".join(f"{f'{s}, {e} ep.':>15}" for s in arguments.solvers for e in (1, 5)))
    else:
        grids = " |".join(f"{f'best {name}':>9} {'at':>9} {'lost':>6}" for name in ("eta0", "alpha"))
        print(f"{'':20}{'default':>8} |{grids} |{'loss %':>7}")
    for name in arguments.sets:
        split = SETS[name](arguments.folder)
        if arguments.seeds:
            row = compare_seeds(name, split, arguments.epochs, arguments.seeds)
        elif arguments.solvers:
            row = compare_rules(name, split, arguments.solvers)
        else:
            row = compare_grid(name, split, arguments.epochs)
        print(row, flush=True)


if __name__ == "__main__":
    main()
