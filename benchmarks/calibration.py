"""Calibration and coverage on real data with two classes: probabilities as the scores give them, and calibrated.

    python -m benchmarks.calibration [--sets imdb a9a ...] [--models default stochastic stream hinge-stream]
    python -m benchmarks.calibration --regressions        # intervals
    python -m benchmarks.calibration --progressive        # the test rows as a stream: predicted, then learned

Every set has a training and a test part of at least 2,000 rows. Models: `default`, LinearClassifier() as it is;
`stochastic`, the same with solver="asgd"; `stream`, LinearClassifier("log", solver="asgd") by one `partial_fit` of 100
rows after the other, as `/learn` of a server; `hinge-stream`, the same with hinge loss, which has no probabilities of
its own. Printed per set and model: accuracy, expected calibration error (15 bins) and log loss of the test rows before
and after calibration, the share of them whose true class is in a set of coverage 0.9, which map was chosen and from
how many rows. With --regressions: the share of test rows inside intervals of coverage 0.9. Rows of us-flights-by-time,
elec2 and hotel_bookings are later in time than those learned. With --progressive, the test rows come in the order of
their file, 100 at a time, to the default model: measured as they are predicted, with what `partial_fit(calibrate=True)`
has learned from those before, and without. The data is not part of the project.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

import steepest as st
from benchmarks import DATA
from steepest.data.raw import raw_batches, rows_of
from steepest.metrics import ProbabilityMetrics

TABLES = ("adult", "bank", "credit_default", "elec2", "hotel_bookings", "womens_clothing")
REGRESSIONS = ("airbnb_nyc", "bike_hourly", "diamonds")
SETS = ("imdb", "enron-spam", "a9a", "us-flights", "us-flights-by-time", *TABLES)
BATCH = 100  # rows of a call in a stream
Parts = tuple[st.Source, st.Source]


def table(name: str, place: Path) -> Parts:
    """The two files of a table, without the columns to ignore."""
    import pandas as pd

    meta = json.loads((DATA / "tables" / name / "meta.json").read_text())
    paths = []
    for part in ("train", "test"):
        frame = pd.read_csv(DATA / "tables" / name / f"{part}.csv.gz", dtype=str, keep_default_na=False)
        frame = frame.drop(columns=meta["ignored"], errors="ignore")
        if meta["log"]:
            frame[meta["label"]] = np.log1p(frame[meta["label"]].astype(float)).round(6).astype(str)
        paths.append(place / f"{part}.csv")
        frame.to_csv(paths[-1], index=False)
    return st.scan(paths[0], label=meta["label"]), st.scan(paths[1], label=meta["label"])


def flights(place: Path, *, by_time: bool) -> Parts:
    """Late arrivals: a random fifth for the test, or the last week, whose weather nobody knew."""
    import pandas as pd

    frame = pd.read_csv(DATA / "us-flights-2024-01" / "flights.csv.gz", dtype=str, keep_default_na=False)
    frame = frame[frame["arr_del15"] != ""]
    test = frame["day"].astype(int) > 24 if by_time else np.random.default_rng(0).random(len(frame)) < 0.2
    frame = frame.drop(columns=["cancelled", "diverted", "dep_delay", "arr_delay"])
    for part, rows in (("train", frame[~test]), ("test", frame[test])):
        rows.sample(frac=1, random_state=0).to_csv(place / f"{part}.csv", index=False)
    return st.scan(place / "train.csv", label="arr_del15"), st.scan(place / "test.csv", label="arr_del15")


def texts(name: str, place: Path) -> Parts:
    """Reviews in two files, or mails of which a random fifth is the test."""
    import pandas as pd

    if name == "imdb":
        frames = [pd.read_json(DATA / name / f"imdb-{part}.jsonl.gz", lines=True) for part in ("train", "test")]
        frames = [frame[["label", "text"]] for frame in frames]
    else:
        frame = pd.read_json(DATA / name / "enron-spam.jsonl.gz", lines=True)[["label", "subject", "text"]]
        test = np.random.default_rng(0).random(len(frame)) < 0.2
        frames = [frame[~test], frame[test]]
    for part, rows in zip(("train", "test"), frames, strict=True):
        rows.to_json(place / f"{part}.jsonl", orient="records", lines=True)
    return st.scan(place / "train.jsonl", label="label"), st.scan(place / "test.jsonl", label="label")


def load(name: str, place: Path) -> Parts:
    """(training rows, test rows) of a set."""
    if name == "a9a":
        paths = [DATA / "a9a" / f"{part}.libsvm.gz" for part in ("a9a", "a9a.t")]
        return st.scan(paths[0], n_features=123), st.scan(paths[1], n_features=123)
    if name.startswith("us-flights"):
        return flights(place, by_time=name.endswith("time"))
    return table(name, place) if name in (*TABLES, *REGRESSIONS) else texts(name, place)


def fitted(kind: str, train: st.Source) -> Any:
    """A model of one of the kinds above."""
    loss = "hinge" if kind.startswith("hinge") else "log"
    if kind == "default":
        return st.LinearClassifier(random_state=0).fit_stream(train)
    if kind == "stochastic":
        return st.LinearClassifier(solver="asgd", random_state=0).fit_stream(train)
    model = st.LinearClassifier(loss, solver="asgd", random_state=0)
    encoder = st.LinearClassifier("log", solver="asgd", epochs=1, random_state=0).fit_stream(train)  # for its columns
    for chunk in encoder.hashed(train, learn=False).shuffle("rows", 0).epoch(0):
        rows = chunk.packed()
        X = sp.csr_matrix((rows.values, rows.indices, rows.indptr), shape=(rows.n_rows, rows.n_features))
        for at in range(0, rows.n_rows, BATCH):
            model.partial_fit(X[at : at + BATCH], rows.y[at : at + BATCH], calibrate=True)
    if hasattr(encoder, "hasher_"):
        model.hasher_ = encoder.hasher_
    return model


def measures(model: Any, test: st.Source, *, calibrated: bool) -> tuple[dict[str, float], float, float]:
    """(log loss, Brier score and ECE; accuracy; coverage of sets of 0.9) on the test rows."""
    metrics, right, covered, n_rows = ProbabilityMetrics(), 0, 0, 0
    calibration = getattr(model, "calibration_", None)
    reach = calibration.reach(0.9) if calibration is not None and calibration.residuals else np.nan
    for chunk in model.hashed(test, learn=False):
        decisions = model.decisions_of(chunk)
        true = np.searchsorted(model.classes_, chunk.visited(chunk.y))
        p = model.probabilities_of(decisions, calibrated=calibrated)
        metrics.add(true, p, np.ones(len(true)))
        right += int((model.labels_of(decisions) == model.classes_[true]).sum())
        covered += int((1 - p[np.arange(len(true)), true] <= reach).sum())
        n_rows += len(true)
    return metrics.result(), right / n_rows, covered / n_rows if np.isfinite(reach) else np.nan


def line(name: str, kind: str, model: Any, test: st.Source) -> str:
    calibration = getattr(model, "calibration_", None)
    chosen = "-" if calibration is None else f"{calibration.kind} ({calibration.rows:,})"
    nothing = {"ece": np.nan, "log_loss": np.nan}
    before = measures(model, test, calibrated=False)[0] if model._has_link() else nothing
    after, accuracy, coverage = (
        measures(model, test, calibrated=True) if hasattr(model, "predict_proba") else (nothing, np.nan, np.nan)
    )
    solver = model.learner_.settings.solver
    return (
        f"{name:<19} {kind:<10} {solver:<9} {accuracy:8.4f} {before['ece']:10.4f} {after['ece']:10.4f} "
        f"{before['log_loss']:10.5f} {after['log_loss']:10.5f} {coverage:9.3f}  {chosen}"
    )


def intervals(name: str, place: Path) -> str:
    """Coverage of intervals of 0.9, and their half width in standard deviations of the target."""
    train, test = load(name, place)
    model = st.LinearRegressor(random_state=0).fit_stream(train)
    if model.calibration_ is None:
        learn, held = train.holdout(0.1, 0)
        model = st.LinearRegressor(random_state=0).fit_stream(learn).calibrate_on(held)
    reach = model.calibration_.reach(0.9)
    errors = np.concatenate(
        [model._means(model._scores(chunk)) - chunk.visited(chunk.y) for chunk in model.hashed(test, learn=False)]
    )
    return f"{name:<19} intervals of 0.9 hold {np.mean(np.abs(errors) <= reach):.3f} of {len(errors):,} test rows"


def progressive(name: str, place: Path, learns: bool) -> str:
    """Coverage and calibration of later rows, as a server with `/learn` has them."""
    train, test = load(name, place)
    numbers = name in REGRESSIONS
    model = (st.LinearRegressor if numbers else st.LinearClassifier)(random_state=0).fit_stream(train)
    metrics, covered = ProbabilityMetrics(), {level: [] for level in (0.8, 0.9, 0.95)}
    for batch in raw_batches(test):
        for at in range(0, batch.n_rows, BATCH):
            X, y = rows_of(batch.columns, at, min(at + BATCH, batch.n_rows)), batch.y[at : at + BATCH]
            if not numbers:
                true = np.searchsorted(model.classes_, y)
                metrics.add(true, model.predict_proba(X), np.ones(len(y)))
            for level, found in covered.items():
                if numbers:
                    low, high = model.predict_interval(X, level).T
                    found += ((low <= y) & (y <= high)).tolist()
                else:
                    found += model.predict_set(X, level)[np.arange(len(y)), true].tolist()
            if learns:
                model.partial_fit(X, y, calibrate=True)
    quality = "" if numbers else "ECE {ece:.3f}, log loss {log_loss:.4f}, ".format(**metrics.result())
    shares = ", ".join(f"{np.mean(found):.3f} of {level:g}" for level, found in covered.items())
    return f"{name:<19} {'learns' if learns else 'stays'}: {quality}coverage {shares}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="*", help="all, or with --progressive the tables, unless they are named")
    parser.add_argument("--models", nargs="*", default=("default", "stochastic", "stream", "hinge-stream"))
    parser.add_argument("--regressions", action="store_true", help="coverage of intervals on tables of numbers")
    parser.add_argument("--progressive", action="store_true", help="test rows as a stream, with and without learning")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    sets = arguments.sets or (TABLES if arguments.progressive else SETS)
    if arguments.progressive:
        for name in (*sets, *REGRESSIONS):
            for learns in (False, True):
                with tempfile.TemporaryDirectory() as place:
                    print(progressive(name, Path(place), learns), flush=True)
        return
    heads = ("ECE before", "ECE after", "log before", "log after")
    print(
        f"{'set':<19} {'model':<10} {'solver':<9} {'accuracy':>8} "
        + " ".join(f"{h:>10}" for h in heads)
        + "  coverage  map"
    )
    for name in REGRESSIONS if arguments.regressions else sets:
        with tempfile.TemporaryDirectory() as place:
            if arguments.regressions:
                print(intervals(name, Path(place)), flush=True)
                continue
            train, test = load(name, Path(place))
            for kind in arguments.models:
                print(line(name, kind, fitted(kind, train), test), flush=True)


if __name__ == "__main__":
    main()
