"""Spark: the same bits as in one process, on threads, on a cluster that loses a worker, and over Spark Connect."""

from __future__ import annotations

import os
import shutil
import sys

import numpy as np
import pandas as pd
import pytest

import steepest as st
from conftest import kill_driver
from steepest.cli import main

if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
    pytest.skip("Java is not installed; Spark needs version 17 or later", allow_module_level=True)

pytestmark = pytest.mark.xdist_group("spark")


def sparse_rows(X, y, **more):
    rows = [X.indices[a:b].tolist() for a, b in zip(X.indptr[:-1], X.indptr[1:], strict=True)]
    values = [X.data[a:b].astype(float).tolist() for a, b in zip(X.indptr[:-1], X.indptr[1:], strict=True)]
    return pd.DataFrame({"places": rows, "values": values, "label": y, **more})


SCHEMA = "places array<int>, values array<double>, label bigint"


@pytest.fixture(scope="module")
def frame(spark, binary):
    X, y = binary
    return spark.createDataFrame(sparse_rows(X, y, n=np.arange(len(y))), SCHEMA + ", n bigint")


PAIR = ["places", "values"]


def local(n_shards, mixing=None, **params):
    return st.LinearClassifier(parallel=st.Mixing(n_shards=n_shards, **(mixing or {})), random_state=7, **params)


def same(a, b):
    for name, array in a.learner_.state.items():
        np.testing.assert_array_equal(array, b.learner_.state[name], err_msg=name)


def fit_pair(model, frame, **options):
    return st.fit_spark(model, frame, features=PAIR, label="label", n_features=200, **options)


@pytest.fixture
def far(monkeypatch):
    """Rows pass through Spark's own shuffle, as they do between machines."""
    from steepest.spark import shards

    monkeypatch.setattr(shards, "on_one_machine", lambda session: False)


@pytest.mark.parametrize(("n_shards", "way"), [(1, "near"), (3, "near"), (3, "far")])
def test_ipm_on_spark_and_mixing_in_one_process_give_the_same_bits(frame, binary, n_shards, way, request):
    X, y = binary
    if way == "far":
        request.getfixturevalue("far")
    here = local(n_shards, epochs=3).fit(X, y)
    there = st.fit_spark(local(n_shards, epochs=3), frame, features=PAIR, label="label", n_features=X.shape[1])
    same(here, there)
    np.testing.assert_array_equal(here.predict_proba(X), there.predict_proba(X))
    assert there.history_[-1]["bytes_up"] > 0


def test_the_order_of_rows_may_be_named_after_a_shuffle(frame, binary):
    X, y = binary
    here = local(2, epochs=2).fit(X, y)
    shuffled = frame.repartition(5)
    there = st.fit_spark(local(2, epochs=2), shuffled, features=PAIR, label="label", n_features=200, order_by="n")
    same(here, there)


def test_shuffled_rows_are_learned_in_the_order_of_their_content(frame, binary):
    from steepest.spark.frames import canonical

    X, y = binary
    first = st.fit_spark(local(2, epochs=2), frame.repartition(5), features=PAIR, label="label", n_features=200)
    ordered, why = canonical(frame.repartition(3), [*PAIR, "label"], 2)
    rows = ordered.select("n").toArrow().column(0).to_numpy()
    assert "content" in why
    same(local(2, epochs=2).fit(X[rows], y[rows]), first)


@pytest.mark.parametrize(
    "params",
    [
        dict(loss="hinge", solver="sgd", penalty="l1", alpha=1e-4, average=False),
        dict(solver="ftrl", penalty="l1", alpha=1e-4, mixing=dict(weights="uniform")),
        dict(solver="adagrad", class_weight="balanced", mixing=dict(rounds=4), epochs=2),
        dict(batch_size=7, mixing=dict(send="delta"), shuffle="rows", dtype="float64"),
    ],
)
def test_the_bits_are_the_same_for_other_rules(frame, binary, params):
    X, y = binary
    params = {"epochs": 2, **params}
    same(
        local(3, **params).fit(X, y),
        st.fit_spark(local(3, **params), frame, features=PAIR, label="label", n_features=200),
    )


def test_dense_and_sparse_vectors_in_one_column_are_the_rows_of_a_matrix(spark):
    from pyspark.ml.linalg import Vectors

    X = np.round(np.random.default_rng(0).standard_normal((60, 4)), 2)
    X[::3, 1] = 0.0
    y = (X[:, 0] > 0).astype(int)
    entries = [{j: x for j, x in enumerate(row) if x} for row in X]
    vectors = [Vectors.dense(row) if n % 2 else Vectors.sparse(4, entries[n]) for n, row in enumerate(X)]
    frame = spark.createDataFrame(list(zip(vectors, y.tolist(), strict=True)), ["features", "label"])
    there = st.fit_spark(local(2, epochs=2), frame, features="features", label="label")
    np.testing.assert_allclose(there.coef_, local(2, epochs=2).fit(X, y).coef_, rtol=1e-4)
    with pytest.raises(st.DataError, match="null"):
        st.fit_spark(local(2), frame.selectExpr("if(label = 1, features, null) as features", "label"))


# -------------------------------------------------------------------------------------------------------- barrier mode


@pytest.mark.parametrize(("n_shards", "way"), [(1, "near"), (3, "near"), (3, "far")])
def test_rounds_inside_one_job_give_the_same_bits(frame, binary, n_shards, way, request):
    """Three shards on two cores: one task has two of them."""
    X, y = binary
    if way == "far":
        request.getfixturevalue("far")
    there = fit_pair(local(n_shards, epochs=3), frame, barrier=True)
    same(local(n_shards, epochs=3).fit(X, y), there)


def test_batch_gradients_inside_one_job_are_added_in_the_same_tree(frame):
    model = lambda: st.LinearClassifier(alpha=1e-2, solver="lbfgs", random_state=0)
    by_jobs, inside = (
        fit_pair(model(), frame, method="batch", n_shards=10, rounds=4, barrier=barrier) for barrier in (False, True)
    )
    same(by_jobs, inside)


@pytest.mark.parametrize("barrier", [False, True])
@pytest.mark.parametrize("method", ["ipm", "batch", "lloyd"])
def test_a_fit_whose_driver_died_goes_on_to_the_same_bits(frame, method, barrier, tmp_path, monkeypatch):
    def fit(**options):
        options |= {"barrier": barrier, "n_shards": 3}
        if method == "lloyd":
            return st.fit_spark(st.KMeans(4, random_state=0), frame, features=PAIR, n_features=200, **options)
        if method == "batch":
            model = st.LinearClassifier(alpha=1e-2, solver="lbfgs", random_state=0)
            return fit_pair(model, frame, method="batch", rounds=4, **options)
        return fit_pair(local(3, epochs=4), frame, **options)

    all_runs = kill_driver(monkeypatch, None)
    whole = fit()
    n_whole = len(all_runs)
    runs = kill_driver(monkeypatch, 4)
    with pytest.raises(KeyboardInterrupt):
        fit(checkpoint=tmp_path)
    assert list(tmp_path.iterdir())
    resumed = fit(checkpoint=tmp_path, resume=True)
    assert not list(tmp_path.iterdir())
    same(whole, resumed)
    assert len(runs) - 4 < n_whole - 1  # rounds were told, not worked


def test_a_checkpoint_of_another_fit_is_refused_in_one_sentence(frame, tmp_path, monkeypatch):
    kill_driver(monkeypatch, 3)
    with pytest.raises(KeyboardInterrupt):
        fit_pair(local(2, epochs=3), frame, checkpoint=tmp_path)
    with pytest.raises(st.DataError, match="other data or parameters"):
        fit_pair(local(2, epochs=3, alpha=1e-3), frame, checkpoint=tmp_path, resume=True)
    with pytest.raises(st.ParameterError, match="checkpoint="):
        fit_pair(local(2), frame, resume=True)
    with pytest.raises(st.ParameterError, match="random_state"):
        fit_pair(st.LinearClassifier(), frame, checkpoint=tmp_path)


def test_a_task_lost_in_a_barrier_stage_costs_its_round_only(frame, binary, monkeypatch):
    import signal

    from steepest.spark import linear

    X, y = binary
    real, rounds = linear.FarShards.learn, []

    def mortal(far, *given):
        rounds.append(far.shards.pool)
        if len(rounds) == 2:
            os.kill(far.shards.pool.workers[0].process, signal.SIGKILL)
        return real(far, *given)

    monkeypatch.setattr(linear.FarShards, "learn", mortal)
    there = fit_pair(local(2, epochs=3), frame, barrier=True)
    same(local(2, epochs=3).fit(X, y), there)
    assert len(rounds) == 3  # none was worked from the start again
    assert rounds[1] is not rounds[2]
    assert any("went on from the last round" in event for event in there.history_.events)


def test_files_lost_between_rounds_are_written_again_for_a_new_barrier_stage(frame, binary, monkeypatch):
    from steepest.spark import linear

    X, y = binary
    real, rounds = linear.FarShards.learn, []

    def forgetful(far, *given):
        rounds.append(1)
        if len(rounds) == 2:
            far.shards.end_stage()
            for row in far.shards.anchor.collect():
                shutil.rmtree(row.path)
        return real(far, *given)

    monkeypatch.setattr(linear.FarShards, "learn", forgetful)
    there = fit_pair(local(2, epochs=3), frame, barrier=True)
    same(local(2, epochs=3).fit(X, y), there)
    assert any("written again" in event for event in there.history_.events)


def _fails(shard, state):
    raise ZeroDivisionError(f"shard {shard.number}")


def test_what_fails_in_a_task_of_a_barrier_stage_is_told(frame, monkeypatch):
    from steepest.spark import linear

    monkeypatch.setattr(linear, "learn", _fails)
    with pytest.raises(st.DataError, match="a task failed in an executor: ZeroDivisionError: shard 0"):
        fit_pair(local(2), frame, barrier=True)


def test_barrier_mode_is_refused_where_spark_cannot_do_it(frame):
    from types import SimpleNamespace

    from steepest.spark.barrier import refuse_barrier

    moving = SimpleNamespace(getConf=lambda: {"spark.dynamicAllocation.enabled": "true"})
    with pytest.raises(st.ParameterError, match="dynamicAllocation"):
        refuse_barrier(SimpleNamespace(sparkContext=moving))


# ---------------------------------------------------------------------------------------------------- what rows may be


@pytest.mark.parametrize("way", ["near", "far"])
def test_words_as_classes_and_weights_of_rows(spark, multiclass, way, request):
    X, y = multiclass
    if way == "far":
        request.getfixturevalue("far")
    words, weight = np.array(["ash", "birch", "cedar", "Douglas fir"])[y], np.arange(len(y)) % 3.0
    rows = spark.createDataFrame(
        sparse_rows(X, words, weight=weight), SCHEMA.replace("label bigint", "label string, weight double")
    )
    here = local(2, epochs=2).fit(X, words, sample_weight=weight)
    there = st.fit_spark(local(2, epochs=2), rows, features=PAIR, label="label", weight="weight", n_features=200)
    assert there.classes_.tolist() == here.classes_.tolist()
    same(here, there)
    got = there.predict_spark(rows).select("prediction").toArrow().column(0).to_pylist()
    assert got == here.predict(X).tolist()


def test_shards_that_vote_and_one_mixture_at_the_end(frame, binary):
    X, y = binary
    there = st.fit_spark(local(3, epochs=2), frame, features=PAIR, label="label", method="vote", n_features=200)
    here = local(3, dict(rounds=1, vote=True), epochs=2).fit(X, y)
    np.testing.assert_array_equal(here.decision_function(X), there.decision_function(X))
    mixed = st.fit_spark(local(3, epochs=2), frame, features=PAIR, label="label", method="mix", n_features=200)
    same(local(3, dict(rounds=1), epochs=2).fit(X, y), mixed)


def test_a_batch_solver_reaches_the_minimum_that_one_process_finds(frame, binary):
    X, y = binary
    model = lambda: st.LinearClassifier(alpha=1e-2, solver="lbfgs", tol=1e-4, random_state=0)
    here = model().fit(X, y)
    there = fit_pair(model(), frame, method="batch", n_shards=10, barrier=True)  # ten are added up in a tree
    np.testing.assert_allclose(there.coef_, here.coef_, atol=1e-4)
    assert there.n_iter_ == here.n_iter_
    assert there.history_[0]["bytes_up"] == there.history_[0]["passes"] * 10 * 8 * 201


def test_features_that_no_row_has_cost_a_batch_solver_nothing(frame, binary):
    X, y = binary
    params = dict(alpha=1e-2, solver="lbfgs", tol=1e-4, random_state=0)
    options = dict(features=PAIR, label="label", method="batch", n_shards=2, barrier=True)
    wide = st.fit_spark(st.LinearClassifier(**params), frame, n_features=1 << 20, **options)
    assert wide.coef_.shape == (1, 1 << 20)
    assert not wide.coef_[:, 200:].any()
    np.testing.assert_allclose(wide.coef_[:, :200], st.LinearClassifier(**params).fit(X, y).coef_, atol=1e-4)
    assert wide.history_[0]["bytes_up"] == wide.history_[0]["passes"] * 2 * 8 * 201


def test_regression_from_columns_of_numbers(spark):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((300, 3)).round(3)
    y = X @ [1.0, -2.0, 0.5] + 3
    table = pd.DataFrame(X, columns=["a", "b", "c"]).assign(y=y)
    frame = spark.createDataFrame(table)
    model = lambda: st.LinearRegressor(parallel=st.Mixing(n_shards=2), epochs=2, random_state=1)
    there = st.fit_spark(model(), frame, features=["a", "b", "c"], label="y")
    same(model().fit(X, y), there)
    by_batch = st.fit_spark(
        st.LinearRegressor(alpha=0, random_state=0), frame, features=["a", "b", "c"], label="y", method="batch",
        n_shards=2, barrier=True,
    )  # fmt: skip
    np.testing.assert_allclose(by_batch.coef_, [[1, -2, 0.5]], atol=1e-3)
    got = there.predict_spark(frame).select("prediction").toArrow().column(0).to_numpy()
    np.testing.assert_array_equal(got, there.predict(X))


def test_vectors_arrays_and_libsvm_lines_give_the_same_bits(spark, binary, tmp_path):
    from pyspark.ml.linalg import Vectors

    X, y = binary[0].sorted_indices(), binary[1]
    dense = X.toarray().astype(float)
    rows = [
        (Vectors.dense(row) if n % 2 else Vectors.sparse(200, np.flatnonzero(row), row[row != 0]), row.tolist(), int(k))
        for n, (row, k) in enumerate(zip(dense, y, strict=True))
    ]
    frame = spark.createDataFrame(rows, ["vector", "array", "label"])
    lines = [
        f"{k} " + " ".join(f"{j + 1}:{v!r}" for j, v in enumerate(row) if v)
        for row, k in zip(dense.tolist(), y, strict=True)
    ]
    (tmp_path / "rows.svm").write_text("# a comment\n" + "\n".join(lines) + "\n")
    here = local(2, epochs=1).fit(X, y)
    for rows, options in (
        (frame, dict(features="vector", label="label")),
        (frame, dict(features="array", label="label")),
        (str(tmp_path / "rows.svm"), dict(n_features=200)),
    ):
        same(here, st.fit_spark(local(2, epochs=1), rows, **options))


@pytest.mark.parametrize("words_of_hasher", [{}, {"ngrams": (1, 2), "min_rows": 6}])
def test_text_is_hashed_in_the_executors_and_the_model_is_an_ordinary_one(spark, tmp_path, words_of_hasher):
    rng = np.random.default_rng(0)
    words = np.array(["free", "money", "now", "meeting", "report", "monday", "cheap", "pills", "agenda", "lunch"])
    texts = [" ".join(rng.choice(words, 5)) for _ in range(400)]
    y = ["spam" if {"free", "cheap", "pills"} & set(text.split()) else "ham" for text in texts]
    table = pd.DataFrame({"text": texts, "user": rng.integers(0, 9, 400).astype(str), "label": y})
    table.to_parquet(tmp_path / "mails.parquet")
    own = st.Hasher(12, names=100, **words_of_hasher)
    model = st.LinearClassifier(hasher=own, parallel=st.Mixing(n_shards=2), random_state=0)
    st.fit_spark(model, str(tmp_path / "mails.parquet"), features=["text", "user"], label="label")
    hasher = st.Hasher(12, **words_of_hasher)
    rows = hasher.fit_transform(table[["text", "user"]])
    same(local(2, epochs=5).set_params(random_state=0).fit(rows, y), model)
    assert {"free", "cheap", "pills"} >= {name for name, _ in model.top_features(2)["spam"]}
    model.save(tmp_path / "m.steepest")
    loaded = st.load(tmp_path / "m.steepest")
    frame = spark.read.parquet(str(tmp_path / "mails.parquet"))
    got = loaded.predict_spark(frame, probability="p").toArrow().to_pydict()
    assert got["prediction"] == loaded.predict(table[["text", "user"]]).tolist()
    np.testing.assert_array_equal(got["p"], loaded.predict_proba(table[["text", "user"]]))


def test_numbers_are_encoded_in_the_executors_as_the_driver_decided(spark):
    rng = np.random.default_rng(0)
    rooms, income, east = rng.integers(200, 9000, 600).astype(float), rng.gamma(4.0, size=600), rng.random(600) < 0.5
    table = pd.DataFrame({"rooms": rooms, "income": income, "side": np.where(east, "e", "w")})
    price = 20 * rooms + 30_000 * income + 40_000 * east
    frame = spark.createDataFrame(table.assign(label=price))
    hasher = st.Hasher(12, numeric=["rooms", "income"], categorical=["side"])
    model = st.LinearRegressor(hasher=hasher, parallel=st.Mixing(n_shards=2), epochs=20, random_state=0)
    st.fit_spark(model, frame, features=list(table), label="label")
    centres = {column.name: column.centre for column in model.hasher_.columns_}
    assert centres["rooms"] == pytest.approx(rooms.mean(), rel=0.01)
    assert centres["income"] == pytest.approx(income.mean(), rel=0.01)
    assert model.score(table, price) > 0.9
    got = model.predict_spark(frame).toArrow().to_pydict()["prediction"]
    np.testing.assert_array_equal(got, model.predict(table))


def test_a_stage_of_a_pipeline_under_cross_validation(spark, binary):
    from pyspark.ml import Pipeline
    from pyspark.ml.evaluation import MulticlassClassificationEvaluator
    from pyspark.ml.feature import VectorAssembler
    from pyspark.ml.tuning import CrossValidator, ParamGridBuilder

    from steepest.spark.pipeline import SparkEstimator

    rng = np.random.default_rng(0)
    X = rng.standard_normal((200, 2))
    table = pd.DataFrame(X, columns=["a", "b"]).assign(label=(X[:, 0] > X[:, 1]).astype(float))
    frame = spark.createDataFrame(table)
    stage = SparkEstimator(st.LinearClassifier(random_state=0, epochs=1), options=dict(n_shards=2))
    pipeline = Pipeline(stages=[VectorAssembler(inputCols=["a", "b"], outputCol="features"), stage])
    grid = ParamGridBuilder().addGrid(stage.alpha, [1e-4, 1e3]).build()
    evaluator = MulticlassClassificationEvaluator(metricName="accuracy")
    found = CrossValidator(estimator=pipeline, estimatorParamMaps=grid, evaluator=evaluator, numFolds=2, seed=1).fit(
        frame
    )
    assert found.avgMetrics[0] > 0.9
    assert found.bestModel.stages[1].estimator.alpha == 1e-4
    assert evaluator.evaluate(found.transform(frame)) > 0.9


def test_a_large_table_of_hashed_weights(spark):
    rng = np.random.default_rng(0)
    places = rng.integers(0, 1 << 24, (400, 8))
    table = pd.DataFrame({"places": places.tolist(), "values": [[1.0] * 8] * 400, "label": np.arange(400) % 2})
    frame = spark.createDataFrame(table, SCHEMA)
    params = dict(parallel=st.Mixing(n_shards=2, weights="uniform"), epochs=1, random_state=0)
    model = st.fit_spark(st.LinearClassifier(**params), frame, features=PAIR, label="label", n_features=1 << 24)
    assert model.coef_.shape == (1, 1 << 24)
    assert 0 < model.n_nonzero_ <= 3200
    assert model.history_[0]["bytes_up"] < 1 << 20  # what did not move is not sent


# ------------------------------------------------------------------------------------------------------------ bad input


def fit(frame, **options):
    return st.fit_spark(st.LinearClassifier(), frame, **{"features": PAIR, "label": "label", "n_shards": 2, **options})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            dict(features="nowhere"),
            "features='nowhere' is not a column; the DataFrame has 'places', 'values', 'label', 'n'",
        ),
        (dict(label="nowhere"), "label='nowhere' is not a column"),
        (dict(features=["values", "places"]), "swap them"),
        (dict(features="places", label="values"), "the label column 'values' is of type array<double>"),
        (dict(n_shards=601), "n_shards=601 is more than the 600 rows"),
        (dict(order_by="nowhere"), "order_by='nowhere' is not a column"),
        (dict(method="magic"), "method='magic' is unknown; choose one of ipm, mix, vote, batch"),
        (dict(n_features=10), "lies beyond n_features=10"),
    ],
)
def test_a_wrong_call_is_refused_in_one_sentence(frame, options, message):
    with pytest.raises(ValueError, match=r"(?s).") as error:
        fit(frame, **options)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (([1], [1.0], None), "the column 'label' is null; drop such rows, as in df.dropna(subset=['label'])"),
        (([1], None, 1), "the column 'values' is null"),
        (([1, 2], [1.0], 1), "'places' has 2 places, but 'values' has 1 values"),
        (([1], [float("nan")], 1), "the value nan is not a finite float32 number"),
        (([-4], [1.0], 1), "the place -4 is not in"),
    ],
)
def test_a_bad_row_is_shown_with_its_place(spark, row, message):
    good = [([1], [1.0], 0), ([2], [1.0], 1)]
    frame = spark.createDataFrame([*good, row], SCHEMA).coalesce(1)
    with pytest.raises(st.DataError, match="row 2 of partition 0") as error:
        fit(frame)
    assert message in str(error.value)
    assert f"places={row[0]!r}" in str(error.value)


def test_a_bad_line_is_shown_with_its_file(spark, tmp_path):
    (tmp_path / "bad.svm").write_text("1 1:1\n-1 2:x\n")
    with pytest.raises(st.DataError, match=r"bad\.svm, row 1 of partition 0.*-1 2:x.*the value 'x' is not a number"):
        st.fit_spark(st.LinearClassifier(), str(tmp_path / "bad.svm"), n_shards=1)
    with pytest.raises(st.DataError, match="does not exist; check the path"):
        st.fit_spark(st.LinearClassifier(), str(tmp_path / "none.parquet"), n_shards=1)
    with pytest.raises(st.DataError, match="is not in a format that Spark reads here"):
        st.fit_spark(st.LinearClassifier(), str(tmp_path / "rows.csv"), n_shards=1)


@pytest.mark.parametrize(
    ("model", "options", "message"),
    [
        (st.LinearClassifier(early_stopping=True), {}, "early_stopping holds out rows on one machine only"),
        (st.LinearClassifier(solver="lbfgs"), {}, "give method='batch'"),
        (st.LinearClassifier(solver="dual_cd"), dict(method="batch"), "takes solver='lbfgs' or 'gd'"),
        (st.LinearClassifier(parallel=st.Mixing(send="topk")), {}, "a lost executor would forget"),
        (st.LinearRegressor(), dict(method="vote"), "method='vote' is for classifiers"),
        (st.NetworkClassifier(), {}, "NetworkClassifier cannot learn on Spark"),
    ],
)
def test_what_a_cluster_cannot_do_is_said(frame, model, options, message):
    with pytest.raises(ValueError, match=message):
        st.fit_spark(model, frame, features=PAIR, label="label", n_shards=2, **options)


def test_a_driver_too_small_for_the_weights_is_told_before_training(frame, monkeypatch):
    from steepest.spark import linear

    monkeypatch.setattr(linear, "free_memory", lambda: 4 * 2.0**30)
    with pytest.raises(st.DataError, match=r"has 4\.0 GB of free memory, but 268,435,456 features .* n_bits="):
        fit(frame, n_features=1 << 28)


def test_no_java_no_pyspark_and_a_wrong_master_are_named(monkeypatch):
    from steepest.spark import sessions

    with pytest.raises(st.DataError, match=r"no Spark master answers at spark://127\.0\.0\.1:9"):
        sessions.start("spark://127.0.0.1:9")
    with monkeypatch.context() as patch:
        patch.setenv("JAVA_HOME", "/nowhere")
        with pytest.raises(st.DataError, match="Java 17 or later, and JAVA_HOME=/nowhere has none; install one"):
            sessions.start("local[1]")
    monkeypatch.setitem(sys.modules, "pyspark", None)
    with pytest.raises(st.DataError, match=r"pip install 'steepest\[spark\]'"):
        sessions.start("local[1]")
    with pytest.raises(st.DataError, match=r"pip install 'steepest\[spark\]'"):
        st.fit_spark(st.LinearClassifier(), "rows.parquet")


@pytest.mark.parametrize("way", ["near", "far"])
def test_files_that_were_lost_are_written_again(frame, binary, monkeypatch, way, request):
    from pathlib import Path

    from steepest.spark import linear

    X, y = binary
    if way == "far":
        request.getfixturevalue("far")
    real, lost = linear.FarShards.learn, []

    def forgetful(far, *given):
        if not lost:
            lost.append(1)
            for row in far.shards.anchor.collect():
                shutil.rmtree(Path(row.path).parent, ignore_errors=True)  # near: with the blocks they were made of
        return real(far, *given)

    monkeypatch.setattr(linear.FarShards, "learn", forgetful)
    there = fit_pair(local(2, epochs=2), frame)
    assert any("written again" in event for event in there.history_.events)
    same(there, local(2, epochs=2).fit(X, y))


# ------------------------------------------------------------------------------------------------------ a real cluster

in_processes_of_their_own = pytest.mark.xdist_group("spark processes")  # so not where the session's tests run

CLUSTER_SCRIPT = """
import os, signal, sys, time
import numpy as np, pandas as pd
import steepest as st
from pyspark.sql import SparkSession
from steepest.spark import barrier as barrier_mode, linear

master, out, workers = sys.argv[1], sys.argv[2], [int(number) for number in sys.argv[3:]]
builder = SparkSession.builder.master(master).config("spark.ui.enabled", "false")
for name, value in {"spark.executor.memory": "512m", "spark.driver.host": "127.0.0.1", "spark.cores.max": "2",
                    "spark.executor.cores": "1",
                    "spark.shuffle.io.maxRetries": "1", "spark.shuffle.io.retryWait": "200ms"}.items():
    builder = builder.config(name, value)
session = builder.getOrCreate()
session.sparkContext.setLogLevel("OFF")
with np.load(out + ".npz") as rows:
    table = pd.DataFrame({"x": rows["X"].tolist(), "label": rows["y"]})
frame = session.createDataFrame(table)
real, rounds = linear.FarShards.learn, []
barrier_mode.SECONDS_TO_RETURN = 3.0

def kill_a_worker_with_an_executor():
    for worker in workers:
        executors = os.popen(f"ps -o pid= --ppid {worker}").read().split()
        if executors:
            workers.remove(worker)
            for process in (worker, *map(int, executors)):
                os.kill(process, signal.SIGKILL)
            return
    raise AssertionError("no worker has an executor")

def mortal(far, *given):
    rounds.append(1)
    if len(rounds) == 2:
        kill_a_worker_with_an_executor()
        time.sleep(2.5)  # a Python worker outlives its executor for a moment, in which it could go on
    return real(far, *given)

linear.FarShards.learn = mortal
for barrier in (False, True):
    rounds.clear()
    while barrier_mode.slots(session) < 2:  # a third worker takes the place of the one that was lost
        time.sleep(0.1)
    model = st.LinearClassifier(parallel=st.Mixing(n_shards=2), epochs=3, random_state=7)
    st.fit_spark(model, frame, features="x", label="label", barrier=barrier)
    model.save(f"{out}-{barrier}")
    print(barrier, len(rounds), model.history_.events)
session.stop()
"""


@pytest.fixture
def cluster(tmp_path, spark_env):
    """A master and three workers of one core each, on loopback; (address, processes of the workers)."""
    import socket
    import subprocess
    import time

    import pyspark

    script = os.path.join(os.path.dirname(pyspark.__file__), "bin", "spark-class")
    env = {**spark_env, "SPARK_WORKER_DIR": str(tmp_path / "work")}
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    log = open(tmp_path / "cluster.log", "wb")  # noqa: SIM115, closed below

    def start(*words):
        return subprocess.Popen([script, *words], env=env, stdout=log, stderr=log)

    name = "org.apache.spark.deploy"
    master = start(f"{name}.master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", "0")
    processes = [master]
    try:
        for _ in range(300):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.2)
        address = f"spark://127.0.0.1:{port}"
        workers = [
            start(f"{name}.worker.Worker", "--cores", "1", "--memory", "1g", "--webui-port", "0", address)
            for _ in range(3)
        ]
        processes += workers
        yield address, workers, env
    finally:
        for process in processes:
            process.kill()
        for process in processes:
            process.wait()
        log.close()


@in_processes_of_their_own
def test_a_cluster_that_loses_a_worker_in_mid_training_gives_the_same_bits(cluster, binary, tmp_path):
    """Once with a job a round; then, with another worker lost, in barrier mode, which goes on from the last round."""
    import subprocess

    address, workers, env = cluster
    X, y = binary
    out = str(tmp_path / "m")
    np.savez(out + ".npz", X=X.toarray().astype(float), y=y)
    script = tmp_path / "train.py"
    script.write_text(CLUSTER_SCRIPT)
    words = [sys.executable, str(script), address, out, *(str(worker.pid) for worker in workers)]
    done = subprocess.run(words, env=env, capture_output=True, timeout=300)
    assert done.returncode == 0, done.stderr.decode()[-3000:]
    assert sum(worker.poll() is not None for worker in workers) == 2
    here = local(2, epochs=3).fit(X.toarray(), y)
    same(here, st.load(f"{out}-False"))
    same(here, st.load(f"{out}-True"))
    by_jobs, inside = done.stdout.decode().strip().splitlines()
    assert by_jobs.startswith("False 3")
    assert inside.startswith("True 3")
    assert "went on from the last round" in inside


@pytest.fixture
def table(tmp_path):
    rng = np.random.default_rng(0)
    found = pd.DataFrame({"a": rng.standard_normal(300), "b": rng.standard_normal(300)})
    found.assign(label=(found.a > found.b).astype(int)).to_parquet(tmp_path / "rows.parquet")
    return found


@in_processes_of_their_own
def test_the_command_line_trains_on_spark(table, tmp_path, spark_env):
    """In a process of its own, with a session of its own."""
    import subprocess

    rows, model = str(tmp_path / "rows.parquet"), str(tmp_path / "m.steepest")
    words = [sys.executable, "-m", "steepest", "train", "--spark", "local[2]", rows, "-m", model, "--n-shards", "2"]
    done = subprocess.run(words, env=spark_env, capture_output=True, timeout=200)
    assert done.returncode == 0, done.stderr.decode()[-3000:]
    assert st.load(model).score(table[["a", "b"]], (table.a > table.b).astype(int)) > 0.95
    assert main(["evaluate", model, rows]) == 0


def test_the_command_line_clusters_and_rates_on_spark(spark, table, tmp_path, monkeypatch):
    """On the session of the tests, which goes on."""
    from steepest.spark import sessions

    monkeypatch.setattr(sessions, "start", lambda master: spark)
    monkeypatch.setattr(spark, "stop", lambda: None)
    rng = np.random.default_rng(0)
    pairs = pd.DataFrame({"Movie": rng.integers(0, 9, 400), "userId": rng.integers(0, 20, 400)})
    pairs = pairs.assign(stars=pairs.Movie % 3 + 1.0)
    pairs.to_parquet(tmp_path / "stars.parquet")
    on_spark, clusters, rates = ["train", "--spark", "local[2]", "--barrier"], *(str(tmp_path / name) for name in "cr")
    words = ["--task", "cluster", "--n-clusters", "2", "--label", "label"]
    assert main([*on_spark, str(tmp_path / "rows.parquet"), "-m", clusters, *words]) == 0
    assert len(np.unique(st.load(clusters).predict(table[["a", "b"]]))) == 2  # the label is no feature
    words = ["--rating-column", "stars", "--n-factors", "2", "--n-blocks", "2", "--epochs", "3"]
    assert main([*on_spark, str(tmp_path / "stars.parquet"), "-m", rates, "--task", "rate", *words]) == 0
    model = st.MatrixFactorization(2, n_blocks=2, epochs=3, random_state=0)
    here = model.fit(pairs[["userId", "Movie"]], pairs.stars)
    asked = pairs[["userId", "Movie"]].to_numpy()
    np.testing.assert_array_equal(st.load(rates).predict(asked), here.predict(asked))


def test_the_command_line_says_that_no_master_answers(tmp_path, capsys):
    words = ["train", "--spark", "spark://127.0.0.1:9", "rows.parquet", "-m", str(tmp_path / "m.steepest")]
    assert main(words) == 2
    assert "no Spark master answers at spark://127.0.0.1:9" in capsys.readouterr().err
    assert main([*words, "--holdout", "0.1"]) == 2
    assert "--holdout has no meaning with --spark" in capsys.readouterr().err
    assert main(["train", "rows.parquet", "-m", "m", "--barrier"]) == 2
    assert "--barrier is for Spark; give --spark MASTER as well" in capsys.readouterr().err
    assert main([*words, "--task", "text"]) == 2
    assert "use classify, regress, rate or cluster" in capsys.readouterr().err
    assert not (tmp_path / "m.steepest").exists()


@in_processes_of_their_own
def test_the_same_over_spark_connect(tmp_path, binary, spark_env):
    """In a process of its own: a process speaks either to a JVM of its own or to a server."""
    import subprocess

    X, y = binary
    np.savez(tmp_path / "rows.npz", X=X.toarray().astype(float), y=y)
    script = tmp_path / "connect.py"
    script.write_text(
        "import sys, numpy as np, pandas as pd, steepest as st\n"
        "from pyspark.sql import SparkSession\n"
        "session = SparkSession.builder.remote('local[2]').getOrCreate()\n"
        "rows = np.load(sys.argv[1])\n"
        "frame = session.createDataFrame(pd.DataFrame({'x': rows['X'].tolist(), 'label': rows['y']}))\n"
        "model = st.LinearClassifier(parallel=st.Mixing(n_shards=2), epochs=2, random_state=7)\n"
        "st.fit_spark(model, frame, features='x', label='label').save(sys.argv[2])\n"
        "try:\n"
        "    st.fit_spark(model, frame, features='x', label='label', barrier=True)\n"
        "except st.ParameterError as error:\n"
        "    assert 'Spark Connect' in str(error)\n"
        "else:\n"
        "    raise AssertionError('barrier mode over Spark Connect')\n"
        "assert model.predict_spark(frame).where('prediction = label').count() > 300\n"
        "session.stop()\n"
    )
    model = str(tmp_path / "m.steepest")
    words = [sys.executable, str(script), str(tmp_path / "rows.npz"), model]
    done = subprocess.run(words, env=spark_env, capture_output=True, timeout=300)
    assert done.returncode == 0, done.stderr.decode()[-3000:]
    same(local(2, epochs=2).fit(X.toarray(), y), st.load(model))
