"""Spark: k-means by sums over shards, and matrix factorization by strata and by alternating least squares."""

from __future__ import annotations

import json
import os
import shutil

import numpy as np
import pandas as pd
import pytest

import steepest as st
from conftest import kill_driver
from steepest.cli import main

if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
    pytest.skip("Java is not installed; Spark needs version 17 or later", allow_module_level=True)

pytestmark = pytest.mark.xdist_group("spark")


# ------------------------------------------------------------------------------------------------------------- k-means


@pytest.fixture(scope="module")
def blobs():
    rng = np.random.default_rng(0)
    centres = rng.standard_normal((5, 4)) * 4
    return (centres[rng.integers(0, 5, 900)] + rng.standard_normal((900, 4))).astype(np.float32)


@pytest.fixture(scope="module")
def blob_frame(spark, blobs):
    return spark.createDataFrame(pd.DataFrame({"x": blobs.astype(float).tolist(), "w": np.arange(900) % 3.0}))


def test_one_shard_gives_the_bits_of_lloyd_in_one_process(blob_frame, blobs):
    model = lambda: st.KMeans(5, solver="lloyd", random_state=3)
    here = model().fit(blobs)
    there = st.fit_spark(model(), blob_frame, features="x", n_shards=1)
    np.testing.assert_array_equal(there.cluster_centers_, here.cluster_centers_)
    assert there.inertia_ == here.inertia_
    assert there.n_iter_ == here.n_iter_


@pytest.mark.parametrize(("n_shards", "barrier"), [(3, False), (10, True)])
def test_several_shards_agree_with_one_process_to_rounding(blob_frame, blobs, n_shards, barrier):
    params = dict(solver="lloyd", random_state=3, init_size=300, tol=0.0)
    here = st.KMeans(5, **params).fit(blobs, sample_weight=np.arange(900) % 3.0)
    options = dict(features="x", weight="w", n_shards=n_shards, barrier=barrier)
    there = st.fit_spark(st.KMeans(5, **params), blob_frame, **options)
    np.testing.assert_allclose(there.cluster_centers_, here.cluster_centers_, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(there.counts_, here.counts_)
    assert there.inertia_ == pytest.approx(here.inertia_, rel=1e-6)
    assert there.n_iter_ == here.n_iter_
    assert there.history_[-1]["measured"] < there.history_[0]["measured"]  # bounds are kept from job to job


def test_a_start_is_improved_on_a_sample_unless_lloyd_is_asked_for(blob_frame, blobs):
    there = st.fit_spark(st.KMeans(5, random_state=0), blob_frame, features="x", n_shards=2)
    best = min(st.KMeans(5, solver="lloyd", restarts=5, random_state=0).fit(blobs).inertia_, np.inf)
    assert there.inertia_ <= 1.01 * best
    assert there.n_iter_ <= 4
    labels = there.predict_spark(blob_frame).select("prediction").toArrow().column(0).to_numpy()
    np.testing.assert_array_equal(labels, there.predict(blobs))


def test_centres_that_are_given_and_a_cluster_that_gets_no_row(blob_frame, blobs):
    start = np.vstack([blobs[:4], np.full((1, 4), 1e4, np.float32)])
    here = st.KMeans(5, init=start, solver="lloyd").fit(blobs)
    model = st.KMeans(5, init=start, solver="lloyd")
    there = st.fit_spark(model, blob_frame, features="x", n_shards=2, barrier=True)
    np.testing.assert_allclose(there.cluster_centers_, here.cluster_centers_, rtol=1e-4, atol=1e-4)


def test_texts_are_clustered(spark, tmp_path):
    words = [["red", "blue", "green"], ["cat", "dog", "cow"]]
    rng = np.random.default_rng(0)
    texts = [" ".join(rng.choice(words[n % 2], 6)) for n in range(200)]
    frame = spark.createDataFrame(pd.DataFrame({"text": texts}))
    model = st.fit_spark(st.KMeans(2, hasher=st.Hasher(10), random_state=0), frame, features="text", n_shards=2)
    model.save(tmp_path / "m.steepest")
    labels = st.load(tmp_path / "m.steepest").predict(texts)
    assert (labels[::2] == labels[0]).all()
    assert (labels[1::2] == 1 - labels[0]).all()


@pytest.mark.parametrize(
    ("model", "options", "message"),
    [
        (st.KMeans(1000), {}, "n_samples=900 should be >= n_clusters=1000"),
        (st.KMeans(2), dict(method="ipm"), "method='ipm' is unknown; choose one of lloyd, batch"),
        (st.KMeans(2, init=np.zeros((2, 3))), {}, r"init has shape \(2, 3\)"),
    ],
)
def test_what_cannot_be_clustered_is_said(blob_frame, model, options, message):
    with pytest.raises(ValueError, match=message):
        st.fit_spark(model, blob_frame, features="x", n_shards=2, **options)


# ------------------------------------------------------------------------------------------------- matrix factorization


@pytest.fixture(scope="module")
def ratings():
    rng = np.random.default_rng(1)
    users, items = rng.integers(0, 60, 3000), rng.integers(0, 40, 3000)
    p, q = rng.standard_normal((60, 3)), rng.standard_normal((40, 3))
    stars = np.clip(3 + np.einsum("ij,ij->i", p[users], q[items]) + 0.3 * rng.standard_normal(3000), 1, 5).round(1)
    return pd.DataFrame(
        {"user": [f"u{n}" for n in users], "item": items * 1000, "rating": stars, "weight": 1.0 + np.arange(3000) % 2}
    )


@pytest.fixture(scope="module")
def rating_frame(spark, ratings):
    return spark.createDataFrame(ratings)


PAIR = ["user", "item"]


def same(here, there):
    assert there.user_ids_.tolist() == here.user_ids_.tolist()
    assert there.item_ids_.tolist() == here.item_ids_.tolist()
    np.testing.assert_array_equal(there.learner_.users, here.learner_.users)
    np.testing.assert_array_equal(there.learner_.items, here.learner_.items)


@pytest.mark.parametrize(
    ("params", "n_shards", "barrier"),
    [
        (dict(), 1, False),
        (dict(), 3, False),
        (dict(), 3, True),
        (dict(loss="absolute", schedule="bold", l1=1e-3), 3, True),
        (dict(biases=False, nonnegative=True), 3, True),
    ],
)
def test_strata_on_spark_and_in_one_process_give_the_same_bits(rating_frame, ratings, params, n_shards, barrier):
    model = lambda: st.MatrixFactorization(5, epochs=2, n_blocks=n_shards, random_state=4, **params)
    here = model().fit(ratings[PAIR], ratings["rating"])
    there = st.fit_spark(model(), rating_frame, features=PAIR, label="rating", method="dsgd", barrier=barrier)
    same(here, there)
    assert there.history_.column("loss") == here.history_.column("loss")
    assert there.recommend("u3", k=4)[0] == here.recommend("u3", k=4)[0]


@pytest.mark.parametrize(
    "params",
    [dict(), dict(weighting="none", biases=False), dict(loss="implicit"), dict(n_factors=48)],
)
def test_alternating_solvers_give_the_same_bits_on_any_number_of_shards(rating_frame, ratings, params):
    model = lambda: st.MatrixFactorization(**{"n_factors": 5, **params}, solver="als", epochs=2, random_state=4)
    here = model().fit(ratings[PAIR], ratings["rating"])
    there = st.fit_spark(model(), rating_frame, features=PAIR, label="rating", n_shards=3)
    same(here, there)
    np.testing.assert_allclose(there.history_.column("objective"), here.history_.column("objective"), rtol=1e-6)
    if params.get("loss") != "implicit":
        assert there.explain("u3", 1000) == here.explain("u3", 1000)


@pytest.mark.parametrize(("method", "barrier"), [("dsgd", False), ("dsgd", True), ("als", False)])
def test_a_fit_whose_driver_died_goes_on_to_the_same_factors(rating_frame, method, barrier, tmp_path, monkeypatch):
    def fit(**options):
        model = st.MatrixFactorization(4, epochs=3, random_state=0)
        return st.fit_spark(model, rating_frame, label="rating", method=method, n_shards=2, barrier=barrier, **options)

    whole = fit()
    runs = kill_driver(monkeypatch, 4)
    with pytest.raises(KeyboardInterrupt):
        fit(checkpoint=tmp_path)
    same(whole, fit(checkpoint=tmp_path, resume=True))
    assert len(runs) == 4 + 3  # six rounds in all, of which three were told
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("method", ["dsgd", "als"])
def test_weights_of_ratings_and_a_shuffled_frame(rating_frame, ratings, method, tmp_path):
    model = lambda: st.MatrixFactorization(4, epochs=2, n_blocks=2, solver="als" if method == "als" else "sgd",
                                           random_state=0)  # fmt: skip
    there = st.fit_spark(
        model(), rating_frame.repartition(5), features=PAIR, label="rating", weight="weight", method=method,
        order_by=["user", "item", "rating", "weight"],
    )  # fmt: skip
    rows = ratings.sort_values(["user", "item", "rating", "weight"], kind="stable")
    here = model().fit(rows[PAIR], rows["rating"], sample_weight=rows["weight"])
    same(here, there)
    there.save(tmp_path / "m.steepest")
    loaded = st.load(tmp_path / "m.steepest")
    got = loaded.predict_spark(rating_frame, features=PAIR).select("prediction").toArrow().column(0).to_numpy()
    np.testing.assert_array_equal(got, here.predict(ratings[PAIR]))


def test_a_stripe_packed_alone_is_as_it_is_among_all():
    from steepest.data.entries import Entries
    from steepest.learners.factors.factor_settings import resolve_settings
    from steepest.learners.factors.factors import FactorLearner
    from steepest.learners.factors.strata import make_strata
    from steepest.spark.factors import arrange

    rng = np.random.default_rng(0)
    users, items = (rng.integers(0, n, 2000).astype(np.int32) for n in (50, 30))
    values = rng.random(2000).astype(np.float32)
    settings = resolve_settings(st.MatrixFactorization(4).get_params(), 9)
    all_of_it = make_strata(Entries(users, items, values, None), 50, 30, 3, settings.seed)
    stripe = FactorLearner(settings), all_of_it, all_of_it.offsets[:-1:3]
    owner = np.searchsorted(all_of_it.user_bounds[1:-1], all_of_it.user_places, side="right")[users]
    for a in range(3):
        own = owner == a
        alone = arrange(*stripe, a, Entries(users[own], items[own], values[own].astype(np.float64), None).as_arrays())
        for b in range(3):
            there, here = all_of_it.block(a, b), slice(*alone["offsets"][b : b + 2])
            np.testing.assert_array_equal(
                alone["users"][here] + all_of_it.user_bounds[a], all_of_it.users[there.entries]
            )
            np.testing.assert_array_equal(
                alone["items"][here] + all_of_it.item_bounds[b], all_of_it.items[there.entries]
            )
            np.testing.assert_array_equal(alone["values"][here], all_of_it.values[there.entries])


def test_a_user_with_nearly_all_ratings_leaves_stripes_empty(spark):
    rows = pd.DataFrame({"user": [1] * 300 + [2, 3, 4], "item": [*range(300), 0, 1, 2], "rating": 1.0})
    rows["rating"] = rows["item"] % 5.0
    model = lambda: st.MatrixFactorization(2, epochs=2, n_blocks=4, random_state=0)
    frame = spark.createDataFrame(rows)
    there = st.fit_spark(model(), frame, features=PAIR, label="rating", barrier=True)
    same(model().fit(rows[PAIR], rows["rating"]), there)
    als = lambda: st.MatrixFactorization(2, epochs=1, solver="als", random_state=0)
    there = st.fit_spark(als(), frame, features=PAIR, label="rating", n_shards=4)
    same(als().fit(rows[PAIR], rows["rating"]), there)


def test_files_of_ratings_that_were_lost_are_written_again(rating_frame, ratings, monkeypatch):
    from steepest.spark import factors

    real, lost = factors.FarSgdRun.learn_blocks, []

    def forgetful(run, *given):
        if len(lost) == 1:
            for row in run.shards[0].anchor.collect():
                shutil.rmtree(row.path)
        lost.append(1)
        return real(run, *given)

    monkeypatch.setattr(factors.FarSgdRun, "learn_blocks", forgetful)
    model = lambda: st.MatrixFactorization(5, epochs=2, n_blocks=2, random_state=4)
    there = st.fit_spark(model(), rating_frame, features=PAIR, label="rating")
    same(model().fit(ratings[PAIR], ratings["rating"]), there)


@pytest.mark.parametrize(
    ("params", "options", "message"),
    [
        (dict(loss="implicit"), dict(method="dsgd"), "counts every cell, so it cannot be learned by strata"),
        (dict(loss="bpr"), {}, "loss='bpr' is not learned on Spark"),
        (dict(early_stopping=True), {}, "early_stopping holds out ratings on one machine only"),
        (dict(solver="als", weighting="count"), {}, "give weighting='mixed'"),
        (dict(), dict(features="user"), "ratings have two columns"),
        (dict(), dict(features=["user", "film"]), "features='film' is not a column; the DataFrame has 'user'"),
        (dict(), dict(label="user"), "the column 'user' is of type string; ratings and weights are numbers"),
        (dict(), dict(method="ipm"), "method='ipm' is unknown; choose one of dsgd, als"),
        (dict(solver="als"), dict(barrier=True), "method='als' needs two; leave barrier out"),
    ],
)
def test_what_a_cluster_cannot_factor_is_said(rating_frame, params, options, message):
    with pytest.raises(ValueError, match=message):
        st.fit_spark(
            st.MatrixFactorization(2, **params), rating_frame, **{"features": PAIR, "label": "rating", **options}
        )


def test_a_rating_without_an_item_is_shown_with_its_place(spark):
    rows = [("ann", "tea", 5.0), ("bob", None, 3.0)]
    frame = spark.createDataFrame(rows, "user string, item string, rating double").coalesce(1)
    with pytest.raises(st.DataError, match=r"row 1 of partition 0 \(user='bob', item=None.*the column 'item' is null"):
        st.fit_spark(st.MatrixFactorization(2), frame)


def test_zeros_count_on_spark_as_in_one_process_and_weight_zero_is_absence(rating_frame, ratings):
    model = lambda: st.MatrixFactorization(4, loss="full", solver="als", epochs=3, random_state=0)
    pairs, y = ratings[["user", "item"]], ratings["rating"]
    here = model().fit(pairs, y, sample_weight=(ratings["weight"] - 1).to_numpy())
    frame = rating_frame.withColumn("weight", rating_frame["weight"] - 1)
    there = st.fit_spark(model(), frame, features=["user", "item"], label="rating", weight="weight", n_shards=2)
    assert there.user_ids_.tolist() == here.user_ids_.tolist()
    np.testing.assert_array_equal(there.user_factors_, here.user_factors_)
    assert there.history_.column("loss") == pytest.approx(here.history_.column("loss"), rel=1e-6)


def test_a_model_from_spark_knows_that_its_data_are_ratings(rating_frame, ratings, tmp_path, capsys):
    st.fit_spark(st.MatrixFactorization(2, epochs=1), rating_frame, n_shards=2).save(tmp_path / "m.steepest")
    ratings.drop(columns="weight").to_csv(tmp_path / "ratings.csv", index=False)
    assert main(["evaluate", str(tmp_path / "m.steepest"), str(tmp_path / "ratings.csv"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["rows"] == 3000


def test_threads_without_locks_are_refused_on_spark(rating_frame):
    with pytest.raises(st.ParameterError, match="needs threads that share memory"):
        st.fit_spark(st.MatrixFactorization(2, parallel="hogwild"), rating_frame, n_shards=2)
