"""`fit_spark` beside Spark's own MLlib: one session, the same Parquet files, from DataFrame to model.

    python -m benchmarks.spark prepare --rows 200000 [--bits 22]   writes the files, once
    python -m benchmarks.spark tune                                settings of both, by the validation rows
    python -m benchmarks.spark linear | svm [--rows --bits]        ipm against LogisticRegression and LinearSVC
    python -m benchmarks.spark batch | text | factors | kmeans
    python -m benchmarks.spark round                               what a round costs over its kernel

Rows have RCV1's shape, their words hashed to 2^18 places (a vector column that both read). Every way is a list of runs,
one a setting; each prints seconds (wall clock, from DataFrame to model) and its loss on validation rows, by which all
settings were chosen; the loss on other rows stands beside it. A ratio compares the fastest run of ours that is at least
as good as the peer's best with the peer's fastest run that is at most 0.1 % worse than its best: time to the same loss.
The session is warm: a small fit of each came before.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks import CACHE, ROOT

BITS = 18
HELD_OUT = 20_000
FILE_BATCHES = 4  # of the generator, in a file
SLACK = 1.001


class Run(NamedTuple):
    """One fit: what was set, how long it took, what came out (less is better), and what else is worth telling."""

    setting: str
    seconds: float
    loss: float
    note: str = ""


# ------------------------------------------------------------------------------------------------------------- the data


def folder(name: str) -> Path:
    return CACHE / "spark" / name


def rows_of(n: int, part: str, bits: int = BITS, first_batch: int = 0) -> tuple[Any, np.ndarray]:
    """CSR rows over 2^bits places, and labels 0 and 1."""
    from benchmarks.generate import rcv1

    X, y, _ = rcv1(n, part=part, first_batch=first_batch)
    places = (X.indices.astype(np.int64) * 40_503 + 11) & (2**bits - 1)  # odd: no two words share a place
    X.indices, X._shape = places.astype(np.int32), (n, 2**bits)
    X.has_sorted_indices = False
    X.sort_indices()
    return X, (y > 0).astype(np.int64)


class Held(NamedTuple):
    """Rows not learned: to choose settings by, and to tell what came of it."""

    validation: tuple[Any, np.ndarray]
    test: tuple[Any, np.ndarray]


def held_out(bits: int = BITS) -> Held:
    X, y = rows_of(2 * HELD_OUT, "test", bits)
    return Held((X[HELD_OUT:], y[HELD_OUT:]), (X[:HELD_OUT], y[:HELD_OUT]))


def write_vectors(path: Path, X: Any, y: np.ndarray) -> None:
    """A Parquet file whose column `features` Spark takes for MLlib vectors."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    inner = [("type", "byte", False), ("size", "integer", True)]
    fields = [{"name": n, "type": t, "nullable": null, "metadata": {}} for n, t, null in inner]
    for name, kind in (("indices", "integer"), ("values", "double")):
        array = {"type": "array", "elementType": kind, "containsNull": False}
        fields.append({"name": name, "type": array, "nullable": True, "metadata": {}})
    udt = {
        "type": "udt",
        "class": "org.apache.spark.ml.linalg.VectorUDT",
        "pyClass": "pyspark.ml.linalg.VectorUDT",
        "sqlType": {"type": "struct", "fields": fields},
    }
    columns = [("features", udt), ("label", "double")]
    schema = {"type": "struct", "fields": [dict(name=n, type=t, nullable=True, metadata={}) for n, t in columns]}
    offsets = pa.array(X.indptr.astype(np.int32))
    dense = X.nnz == X.shape[0] * X.shape[1]
    places = pa.ListArray.from_arrays(offsets, pa.array(X.indices.astype(np.int32)))
    vectors = pa.StructArray.from_arrays(
        [
            pa.array(np.full(len(y), int(dense), np.int8)),
            pa.array([None if dense else X.shape[1]] * len(y), pa.int32()),
            pa.nulls(len(y), places.type) if dense else places,
            pa.ListArray.from_arrays(offsets, pa.array(X.data.astype(np.float64))),
        ],
        names=["type", "size", "indices", "values"],
    )
    table = pa.table({"features": vectors, "label": pa.array(y.astype(np.float64))})
    key = b"org.apache.spark.sql.parquet.row.metadata"
    pq.write_table(table.replace_schema_metadata({key: json.dumps(schema).encode()}), path)


def write_texts(path: Path, X: Any, y: np.ndarray) -> None:
    """The same rows as texts: a word for each place."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.table({"text": texts_of(X), "label": y.astype(np.float64)})
    pq.write_table(table, path)


def texts_of(X: Any) -> list[str]:
    words = np.array([f"w{j:x}" for j in range(X.shape[1])])[X.indices]
    return [" ".join(words[a:b]) for a, b in itertools.pairwise(X.indptr)]


def prepare(n: int, bits: int) -> None:
    """Writes the files that are not there yet, one after the other, so that it can be stopped."""
    from benchmarks.generate import BATCH_ROWS

    rows = FILE_BATCHES * BATCH_ROWS
    for name, write in (("vectors", write_vectors), ("texts", write_texts)):
        if name == "texts" and (n > 200_000 or bits != BITS):
            continue
        path = named(name, n, bits)
        path.mkdir(parents=True, exist_ok=True)
        for number, start in enumerate(range(0, n, rows)):
            file = path / f"{number:03}.parquet"
            if not file.exists():
                write(path / "unfinished", *rows_of(min(rows, n - start), "train", bits, number * FILE_BATCHES))
                os.replace(path / "unfinished", file)


def named(name: str, n: int, bits: int = BITS) -> Path:
    return folder(f"{name}-{n}" if bits == BITS else f"{name}{bits}-{n}")


def files_of(name: str, n: int, bits: int = BITS) -> list[str]:
    return sorted(map(str, named(name, n, bits).glob("*.parquet")))


# --------------------------------------------------------------------------------------------------------- the session


def session(memory: str = "8g") -> Any:
    from pyspark.sql import SparkSession

    here = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    os.environ.update(SPARK_LOCAL_IP="127.0.0.1", PYSPARK_PYTHON=sys.executable, PYTHONPATH=here)
    os.environ.update({f"{name}_NUM_THREADS": "1" for name in ("OMP", "OPENBLAS", "MKL")})
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.driver.memory", memory).config("spark.sql.shuffle.partitions", "2")
    builder = builder.config("spark.driver.maxResultSize", "4g").config("spark.driver.host", "127.0.0.1")
    builder = builder.config("spark.ui.showConsoleProgress", "false")
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    return spark


def timed(fit: Callable[[], Any]) -> tuple[float, Any]:
    start = time.perf_counter()
    model = fit()
    return time.perf_counter() - start, model


def table(title: str, ways: dict[str, Iterable[Run]]) -> None:
    """The runs of each way, and at the end how much faster the first ones are to the same loss as the last one."""
    print(f"\n{title}")
    found: dict[str, list[Run]] = {}
    for name, runs in ways.items():
        found[name] = []
        for run in runs:
            found[name].append(run)
            print(f"  {name:22} {run.setting:28} {run.seconds:8.2f} s   {run.loss:.5f}  {run.note}", flush=True)
    peer = list(found)[-1]
    best = min(run.loss for run in found[peer])
    theirs = min(run.seconds for run in found[peer] if run.loss <= SLACK * best)
    for name in list(found)[:-1]:
        good = [run.seconds for run in found[name] if run.loss <= SLACK * best]
        said = f"{theirs / min(good):.2f}x faster" if good else "not reached"
        print(f"  {name} to {peer}'s {best:.5f}: {said}", flush=True)


# -------------------------------------------------------------------------------------------------------------- linear


def log_loss(scores: np.ndarray, y: np.ndarray) -> float:
    return float(np.logaddexp(0, np.where(y > 0, -scores, scores)).mean())


def judged(decide: Callable[[Any], np.ndarray], held: Held, log: bool) -> tuple[float, float]:
    """(on the validation rows, on the test rows): the log loss, or the share of errors."""
    found = []
    for X, y in held:
        scores = decide(X)
        found.append(log_loss(scores, y) if log else float(((scores > 0) != y).mean()))
    return found[0], found[1]


def our_linear(frame: Any, held: Held, loss: str, settings: list[dict[str, Any]], **options: Any) -> Iterable[Run]:
    import steepest as st

    for params in settings:
        model = st.LinearClassifier(loss, random_state=0, parallel=st.Mixing(n_shards=2), **params)
        seconds, model = timed(lambda m=model: st.fit_spark(m, frame, label="label", **options))
        value, test = judged(model.decision_function, held, loss == "log")
        rounds = sum(model.history_.column("seconds"))
        yield Run(_said(params), seconds, value, f"test {test:.5f}, rounds alone {rounds:.2f} s")


def their_linear(frame: Any, held: Held, kind: str, settings: list[dict[str, Any]]) -> Iterable[Run]:
    from pyspark.ml import classification

    for params in settings:
        seconds, model = timed(lambda p=params: getattr(classification, kind)(**p).fit(frame))
        w, bias = np.asarray(model.coefficients), float(model.intercept)
        value, test = judged(lambda X, w=w, bias=bias: X @ w + bias, held, kind == "LogisticRegression")
        done = f", {model.summary.totalIterations} iterations" if kind == "LogisticRegression" else ""
        yield Run(_said(params), seconds, value, f"test {test:.5f}{done}")


def _said(params: dict[str, Any]) -> str:
    return " ".join(f"{name}={value}" for name, value in params.items()) or "defaults"


def warm_up(spark: Any) -> Any:
    from pyspark.ml.classification import LogisticRegression

    import steepest as st

    small = spark.read.parquet(files_of("vectors", 200_000)[0]).limit(500)
    LogisticRegression(maxIter=2).fit(small)
    for barrier in (False, True):
        model = st.LinearClassifier(parallel=st.Mixing(n_shards=2), epochs=2)
        st.fit_spark(model, small, features="features", label="label", barrier=barrier)
    return spark


REGULARISED = dict(regParam=1e-5, standardization=False)  # the best of `tune`
OURS = dict(alpha=1e-5)


def tune(n: int, kind: str) -> None:
    """Grids of both."""
    spark = warm_up(session())
    frame, held = spark.read.parquet(*files_of("vectors", n)), held_out()
    log = kind == "log"
    mine = [dict(epochs=e, alpha=a) for a in (3e-6, 1e-5, 3e-5) for e in (1, 4)]
    plain = [dict(maxIter=20, regParam=r, standardization=False) for r in (0.0, 1e-6, 1e-5, 1e-4)]
    more = [dict(maxIter=20, regParam=1e-5, standardization=True), dict(maxIter=10, **REGULARISED)]
    peer = "LogisticRegression" if log else "LinearSVC"
    ours = our_linear(frame, held, kind if log else "hinge", mine, features="features", barrier=True)
    table(f"tuning, {n:,} rows: validation", {"ipm": ours, peer: their_linear(frame, held, peer, plain + more)})
    spark.stop()


def linear(n: int, bits: int, kind: str, epochs: list[int], iterations: list[int]) -> None:
    spark = warm_up(session())
    frame, held = spark.read.parquet(*files_of("vectors", n, bits)), held_out(bits)
    log = kind == "log"
    mine = [dict(epochs=e, **OURS) for e in epochs]
    peer = "LogisticRegression" if log else "LinearSVC"
    ways = {
        "ipm, barrier": our_linear(frame, held, kind, mine, features="features", barrier=True),
        "ipm": our_linear(frame, held, kind, mine, features="features"),
        peer: their_linear(frame, held, peer, [dict(maxIter=m, **REGULARISED) for m in iterations]),
    }
    what = "log loss" if log else "errors"
    table(f"{n:,} rows, 2^{bits} places: {what} on {HELD_OUT:,} validation rows", ways)
    spark.stop()


def batch(n: int) -> None:
    """Seconds an evaluation of loss and gradient."""
    from pyspark.ml.classification import LogisticRegression

    import steepest as st

    spark = warm_up(session())
    frame = spark.read.parquet(*files_of("vectors", n))
    spent = {}
    for iterations in (5, 25):
        lr = LogisticRegression(maxIter=iterations, regParam=1e-5, tol=0.0, standardization=False)
        spent[iterations], model = timed(lambda lr=lr: lr.fit(frame))
        print(f"  LogisticRegression {model.summary.totalIterations} iterations: {spent[iterations]:.2f} s", flush=True)
    print(f"  LogisticRegression, an iteration: {(spent[25] - spent[5]) / 20:.3f} s")
    for barrier in (False, True):
        model = st.LinearClassifier(alpha=1e-5, solver="lbfgs", tol=1e-9, random_state=0)
        options = dict(features="features", label="label", method="batch", rounds=25, n_shards=2, barrier=barrier)
        seconds, model = timed(lambda m=model, o=options: st.fit_spark(m, frame, **o))
        passes, inside = (sum(model.history_.column(name)) for name in ("passes", "seconds"))
        name = "batch, barrier" if barrier else "batch"
        print(f"  {name}: {seconds:.2f} s in all, {passes} evaluations, {inside / passes:.3f} s each", flush=True)
    spark.stop()


def text(n: int) -> None:
    from pyspark.ml import Pipeline
    from pyspark.ml.classification import LogisticRegression
    from pyspark.ml.feature import HashingTF, Tokenizer

    import steepest as st

    spark = warm_up(session())
    frame = spark.read.parquet(*files_of("texts", n))
    X, y = held_out().validation
    held = texts_of(X)
    held_frame = spark.createDataFrame([(t,) for t in held], "text string").coalesce(2)

    def ours() -> Iterable[Run]:
        for epochs in (1, 2, 4):
            model = st.LinearClassifier(hasher=st.Hasher(BITS), alpha=1e-5, epochs=epochs, random_state=0)
            options = dict(features="text", label="label", n_shards=2, barrier=True)
            seconds, model = timed(lambda m=model, o=options: st.fit_spark(m, frame, **o))
            rounds = sum(model.history_.column("seconds"))
            loss = log_loss(model.decision_function(held), y)
            yield Run(f"epochs={epochs}", seconds, loss, f"rounds alone {rounds:.2f} s")

    def theirs() -> Iterable[Run]:
        for iterations, strength in ((5, 1e-3), (10, 1e-3), (10, 1e-2), (20, 1e-2)):
            stages = [
                Tokenizer(inputCol="text", outputCol="words"),
                HashingTF(inputCol="words", outputCol="features", numFeatures=2**BITS),
                LogisticRegression(maxIter=iterations, regParam=strength),
            ]
            seconds, model = timed(lambda s=stages: Pipeline(stages=s).fit(frame))
            rows = model.transform(held_frame).select("rawPrediction").collect()
            loss = log_loss(np.array([row[0][1] for row in rows]), y)
            yield Run(f"maxIter={iterations} regParam={strength}", seconds, loss)

    table(f"{n:,} texts: log loss of {HELD_OUT:,} validation rows", {"ipm, barrier": ours(), "HashingTF, LR": theirs()})
    spark.stop()


# ------------------------------------------------------------------------------------------------ factors and clusters


def factors(n: int, ways: list[str]) -> None:
    import pandas as pd

    import steepest as st
    from benchmarks.factors import planted, rmse

    spark = session()
    path = folder(f"ratings-{n}")
    train, test = planted(n)
    names = ["user", "item", "rating"]
    if not path.exists():
        path.mkdir(parents=True)
        for number, rows in enumerate(np.array_split(np.arange(len(train[0])), 4)):
            part = pd.DataFrame({name: array[rows] for name, array in zip(names, train, strict=True)})
            part.to_parquet(path / f"{number}.parquet")
    frame = spark.read.parquet(str(path))
    pairs = np.column_stack(test[:2])
    st.fit_spark(st.MatrixFactorization(2, epochs=1), frame.limit(1000), label="rating", n_shards=2)

    def ours(method: str, epochs: list[int]) -> Iterable[Run]:
        for number in epochs:
            model = st.MatrixFactorization(16, epochs=number, random_state=0)
            options = dict(label="rating", method=method.split(",")[0], n_shards=2, barrier="barrier" in method)
            seconds, model = timed(lambda m=model, o=options: st.fit_spark(m, frame, **o))
            inside = sum(model.history_.column("seconds"))
            yield Run(f"epochs={number}", seconds, rmse(model.predict(pairs), test[2]), f"rounds alone {inside:.2f} s")

    def theirs() -> Iterable[Run]:
        from pyspark.ml.recommendation import ALS

        mean = float(train[2].mean())
        centred = frame.selectExpr("user", "item", f"rating - {mean} as rating")
        codes = spark.createDataFrame(pd.DataFrame({"user": test[0], "item": test[1], "n": np.arange(len(test[0]))}))
        ALS(rank=2, maxIter=1, userCol="user", itemCol="item").fit(centred.limit(1000))
        for iterations, strength in ((5, 0.02), (5, 0.05), (5, 0.1), (10, 0.05)):
            als = ALS(rank=16, maxIter=iterations, regParam=strength, userCol="user", itemCol="item",
                      coldStartStrategy="nan", seed=0)  # fmt: skip
            seconds, model = timed(lambda a=als: a.fit(centred))
            got = model.transform(codes).toPandas().sort_values("n")["prediction"].to_numpy()
            yield Run(f"maxIter={iterations} regParam={strength}", seconds, rmse(mean + np.nan_to_num(got), test[2]))

    offers = {
        "dsgd": lambda: ours("dsgd", [3, 5, 10]),
        "dsgd, barrier": lambda: ours("dsgd, barrier", [3, 5, 10, 20]),
        "als": lambda: ours("als", [2, 4]),
        "ALS": theirs,
    }
    table(f"{n:,} ratings, rank 16: test RMSE", {name: offers[name]() for name in ways})
    spark.stop()


def kmeans(n: int) -> None:
    import steepest as st

    spark = session()
    rng = np.random.default_rng(0)
    centres = rng.standard_normal((50, 32)) * 2
    rows = (centres[rng.integers(0, 50, n)] + rng.standard_normal((n, 32))).astype(np.float32)
    path = folder(f"blobs-{n}")
    if not path.exists():
        import scipy.sparse as sp

        path.mkdir(parents=True)
        for number, part in enumerate(np.array_split(rows, 4)):
            write_vectors(path / f"{number}.parquet", sp.csr_matrix(part), np.zeros(len(part), np.int64))
    frame = spark.read.parquet(*files_of("blobs", n))
    for barrier in (False, True):
        st.fit_spark(st.KMeans(2), frame.limit(500), features="features", n_shards=2, barrier=barrier)
    from pyspark.ml.clustering import KMeans

    KMeans(k=2).fit(frame.limit(500))

    def ours(barrier: bool) -> Iterable[Run]:
        for seed in (1, 2, 3):
            model = st.KMeans(50, random_state=seed)
            options = dict(features="features", n_shards=2, barrier=barrier)
            seconds, model = timed(lambda m=model, o=options: st.fit_spark(m, frame, **o))
            inside = sum(model.history_.column("seconds"))
            note = f"{model.n_iter_} iterations, rounds alone {inside:.2f} s"
            yield Run(f"seed={seed}", seconds, model.inertia_ / n, note)

    def theirs() -> Iterable[Run]:
        for seed in (1, 2, 3):
            seconds, model = timed(lambda s=seed: KMeans(k=50, seed=s).fit(frame))
            yield Run(f"seed={seed}", seconds, model.summary.trainingCost / n, f"{model.summary.numIter} iterations")

    ways = {"lloyd, barrier": ours(True), "lloyd": ours(False), "KMeans": theirs()}
    table(f"{n:,} x 32, 50 clusters: inertia a row", ways)
    spark.stop()


def round_cost(n: int) -> None:
    """Seconds of a round, of its jobs without work, and of the kernel alone."""
    import steepest as st
    from steepest.spark import linear as far

    spark = warm_up(session())
    frame = spark.read.parquet(*files_of("vectors", n))
    model = st.LinearClassifier(random_state=0, parallel=st.Mixing(n_shards=2), epochs=8, alpha=1e-5)
    empty: list[float] = []
    real = far.FarShards.prepare

    def prepare(shards: Any, learner: Any) -> None:
        real(shards, learner)
        empty.extend(timed(lambda: shards.shards.run(nothing, None))[0] for _ in range(5))

    far.FarShards.prepare = prepare  # type: ignore[method-assign]
    seconds, model = timed(lambda: st.fit_spark(model, frame, features="features", label="label"))
    rounds = model.history_.column("seconds")
    inside = st.LinearClassifier(random_state=0, parallel=st.Mixing(n_shards=2), epochs=8, alpha=1e-5)
    far.FarShards.prepare = real  # type: ignore[method-assign]
    st.fit_spark(inside, frame, features="features", label="label", barrier=True)
    short = inside.history_.column("seconds")
    X, y = rows_of(n, "train")
    local = st.LinearClassifier(random_state=0, epochs=8, alpha=1e-5, parallel=st.Mixing(n_shards=2), n_jobs=2).fit(
        X, y
    )
    alone = local.history_.column("seconds")
    print(f"{n:,} rows, 2^{BITS} places, 2 shards: {seconds:.2f} s in all")
    print(f"  a round {np.median(rounds[1:]):.3f} s; on two threads of one process {np.median(alone[1:]):.3f} s")
    print(f"  a job without work {np.median(empty):.3f} s; a round in barrier mode {np.median(short[1:]):.3f} s")
    spark.stop()


def nothing(shard: Any, state: Any) -> dict[str, np.ndarray]:
    return {"nothing": np.zeros(1)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "job",
        choices=["prepare", "linear", "svm", "tune", "tune-svm", "batch", "text", "factors", "kmeans", "round"],
    )
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--bits", type=int, default=BITS, help="of prepare, linear and svm")
    parser.add_argument("--epochs", type=int, nargs="*", default=[1, 2, 4], help="of our linear models")
    parser.add_argument("--iterations", type=int, nargs="*", default=[10, 20], help="of MLlib's linear models")
    ways = ["dsgd", "dsgd, barrier", "als", "ALS"]
    parser.add_argument("--ways", nargs="*", default=ways, help="of factors")
    arguments = parser.parse_args()
    n, bits, epochs, iterations = arguments.rows, arguments.bits, arguments.epochs, arguments.iterations
    jobs: dict[str, Callable[[], None]] = {
        "prepare": lambda: prepare(n, bits),
        "linear": lambda: linear(n, bits, "log", epochs, iterations),
        "svm": lambda: linear(n, bits, "hinge", epochs, iterations),
        "tune": lambda: tune(n, "log"),
        "tune-svm": lambda: tune(n, "hinge"),
        "batch": lambda: batch(n),
        "text": lambda: text(n),
        "factors": lambda: factors(n, arguments.ways),
        "kmeans": lambda: kmeans(n),
        "round": lambda: round_cost(n),
    }
    jobs[arguments.job]()


if __name__ == "__main__":
    main()
