"""What people hand to `fit`: frames, streams of Arrow, generators, files and paths; and what they get back."""

from __future__ import annotations

import io
import pathlib

import numpy as np
import pytest
from sklearn import set_config
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.model_selection import GridSearchCV, GroupKFold, cross_val_score
from sklearn.pipeline import make_pipeline

import steepest as st

WORDS = ["good", "fine", "bad", "awful"]


def columns(n=120):
    rng = np.random.default_rng(0)
    place = rng.integers(0, 4, n)
    return {
        "text": [f"{WORDS[k]} film number {i % 7}" for i, k in enumerate(place)],
        "town": [["Ghent", "Bruges", "Ypres"][i % 3] for i in range(n)],
        "price": (place + rng.normal(size=n)).round(2).tolist(),
    }, np.where(place < 2, "yes", "no")


def learned(X, y):
    return st.LinearClassifier(random_state=0).fit(X, y)


@pytest.fixture(scope="module")
def reference():
    table, y = columns()
    rows = [dict(zip(table, values, strict=True)) for values in zip(*table.values(), strict=True)]
    return learned(rows, y)


def same(model, reference):
    np.testing.assert_array_equal(model.coef_, reference.coef_)
    assert model.score(columns()[0], columns()[1]) > 0.9


def test_a_polars_frame_eager_or_lazy_is_learned_as_the_same_rows_are(reference):
    polars = pytest.importorskip("polars")
    table, y = columns()
    frame = polars.DataFrame(table)
    same(learned(frame, y), reference)
    same(learned(frame.lazy(), y), reference)
    same(learned(frame, polars.Series(y)), reference)
    assert learned(frame, y).predict(frame.lazy()).tolist() == reference.predict(table).tolist()
    assert learned(frame, y).feature_names_in_.tolist() == ["text", "town", "price"]


@pytest.mark.parametrize("kind", ["array of objects", "array of texts", "pandas", "polars", "Arrow", "views of Arrow"])
def test_a_column_of_texts_is_learned_as_their_list_is(kind):
    texts, y = [f"{WORDS[i % 4]} film {'rare' * (i == 7)}{i % 5}" for i in range(200)], np.arange(200) % 4 < 2
    pyarrow = pytest.importorskip("pyarrow")
    make = {
        "array of objects": lambda: np.array(texts, object),
        "array of texts": lambda: np.array(texts),
        "pandas": lambda: pytest.importorskip("pandas").Series(texts),
        "polars": lambda: pytest.importorskip("polars").Series(texts),
        "Arrow": lambda: pyarrow.chunked_array([texts]),
        "views of Arrow": lambda: pyarrow.chunked_array([pyarrow.array(texts, pyarrow.string_view())]),
    }[kind]
    model, expected = learned(make(), y), learned(texts, y)
    np.testing.assert_array_equal(np.sort(model.coef_, None), np.sort(expected.coef_, None))
    assert (model.predict(make()) == expected.predict(texts)).all()


def test_rare_names_in_a_polars_frame_are_found_after_the_fit():
    polars = pytest.importorskip("polars")
    texts, y = [f"{WORDS[i % 4]} film word{i}" for i in range(2000)], np.arange(2000) % 4 < 2
    frame = polars.DataFrame({"text": texts, "town": ["Ghent", "Bruges"] * 1000})
    assert learned(frame, y).top_features(3)


def test_a_pandas_frame_is_learned_as_the_same_rows_are(reference):
    pandas = pytest.importorskip("pandas")
    table, y = columns()
    frame = pandas.DataFrame(table, index=range(1000, 1120))
    same(learned(frame, pandas.Series(y, index=frame.index)), reference)
    same(learned(frame.astype({"town": "category"}), y), reference)


def test_a_duckdb_relation_is_learned_as_the_same_rows_are(reference):
    duckdb = pytest.importorskip("duckdb")
    pyarrow = pytest.importorskip("pyarrow")
    table, y = columns()
    rows = pyarrow.table(table)
    relation = duckdb.connect().from_arrow(rows)
    same(learned(relation, y), reference)


def test_any_object_with_an_arrow_stream_is_learned(reference):
    pyarrow = pytest.importorskip("pyarrow")
    table, y = columns()

    class Foreign:
        def __arrow_c_stream__(self, requested_schema=None):
            return pyarrow.table(table).__arrow_c_stream__(requested_schema)

    same(learned(Foreign(), y), reference)


def test_a_data_set_of_hugging_face_is_learned(reference):
    datasets = pytest.importorskip("datasets", reason="datasets is heavy, so it is no part of the test extra")
    table, y = columns()
    same(learned(datasets.Dataset.from_dict(table), y), reference)


def test_generators_of_rows_are_learned_as_their_list_is(reference):
    table, y = columns()
    rows = (dict(zip(table, values, strict=True)) for values in zip(*table.values(), strict=True))
    same(learned(rows, y), reference)
    texts = table["text"]
    by_list = learned(texts, y)
    np.testing.assert_array_equal(learned((text for text in texts), list(y)).coef_, by_list.coef_)


def test_generators_of_batches_are_learned_as_one_table(reference):
    pyarrow = pytest.importorskip("pyarrow")
    table, y = columns()
    batches = pyarrow.table(table).to_batches(max_chunksize=50)
    same(learned((batch for batch in batches), y), reference)


def test_batches_that_are_not_tables_are_refused_with_what_to_do():
    with pytest.raises(
        st.DataError, match=r"batch 0 is of type tuple, .*; give tables, or give rows in memory to fit\(X, y\)"
    ):
        st.scan(iter([(["a text"], ["yes"])]))


def test_files_by_name_by_path_and_open_are_learned(tmp_path):
    table, y = columns()
    lines = ["text,town,price,label"]
    lines += [",".join(map(str, values)) for values in zip(*table.values(), y, strict=True)]
    path = pathlib.Path(tmp_path / "rows.csv")
    path.write_text("\n".join(lines) + "\n")
    models = [st.LinearClassifier(random_state=0).fit_stream(st.scan(given)) for given in (str(path), path)]
    np.testing.assert_array_equal(models[0].coef_, models[1].coef_)
    assert models[0].score(table, y) > 0.9
    with path.open("rb") as file:  # these are read once, as standard input is
        opened = st.LinearClassifier(random_state=0).fit_stream(st.scan(file, "csv"))
    in_memory = st.LinearClassifier(random_state=0).fit_stream(st.scan(io.StringIO(path.read_text()), "csv"))
    np.testing.assert_array_equal(opened.coef_, in_memory.coef_)
    assert opened.score(table, y) > 0.9


# ---------------------------------------------------------------------------------------- scikit-learn's ways


def test_names_of_hashed_features_are_kept_by_default_and_change_no_weight():
    table, y = columns()
    model = learned(table["text"], y)
    assert {name for name, _ in model.top_features(2)["no"]} == {"bad", "awful"}
    unnamed = st.LinearClassifier(hasher=st.Hasher(names=0), random_state=0).fit(table["text"], y)
    np.testing.assert_array_equal(model.coef_, unnamed.coef_)
    assert not hasattr(unnamed.hasher_, "names_")
    assert st.Hasher().transform(["no fit is needed"]).nnz == 4


def test_a_hasher_gives_a_frame_with_names_if_asked_to():
    pandas = pytest.importorskip("pandas")
    table, _ = columns()
    frame = pandas.DataFrame(table, index=range(7, 127))
    hasher = st.Hasher(12).set_output(transform="pandas")
    rows = hasher.fit_transform(frame)
    assert rows.shape == (120, 4096)
    assert rows.index.tolist() == frame.index.tolist()
    assert {"bad", "town=Ghent", "price"} <= set(rows.columns)
    assert rows["town=Ghent"].abs().sum() == 40
    assert rows.columns.tolist() == hasher.get_feature_names_out().tolist()
    assert len(set(rows.columns)) == 4096
    assert clone(hasher).fit_transform(frame).equals(rows)
    assert hasher.feature_names_in_.tolist() == ["text", "town", "price"]
    copied = st.Hasher(12, copies=2).fit(frame)
    assert len(set(copied.get_feature_names_out())) == 4096


def test_a_list_of_texts_gives_a_frame_too():
    frame = st.Hasher(10).set_output(transform="pandas").fit_transform(["a text", "another text"])
    assert frame.shape == (2, 1024)


def test_a_frame_that_would_be_too_wide_is_refused_with_the_way_out():
    with pytest.raises(ValueError, match="make it with n_bits=14 or less"):
        st.Hasher().set_output(transform="pandas").fit_transform(["a text"])
    with pytest.raises(ValueError, match="polars has no sparse columns"):
        st.Hasher(12).set_output(transform="polars").fit_transform(["a text"])
    with pytest.raises(ValueError, match="choose 'default', 'pandas' or 'polars'"):
        st.Hasher().set_output(transform="pandsa")


@pytest.mark.parametrize("kind", ["pandas", "polars"])
def test_distances_to_centres_come_as_a_frame_if_asked_to(kind):
    pytest.importorskip(kind)
    X = np.random.default_rng(0).normal(size=(50, 3))
    model = st.KMeans(4, random_state=0).fit(X)
    plain = model.transform(X)
    rows = model.set_output(transform=kind).transform(X)
    assert list(rows.columns) == ["kmeans0", "kmeans1", "kmeans2", "kmeans3"]
    np.testing.assert_array_equal(rows.to_numpy(), plain)
    model.set_output(transform="default")
    try:
        set_config(transform_output=kind)
        assert list(st.KMeans(4, random_state=0).fit(X).transform(X).columns) == list(rows.columns)
    finally:
        set_config(transform_output="default")


def test_raw_frames_go_through_pipelines_searches_and_cross_validation():
    pandas = pytest.importorskip("pandas")
    table, y = columns()
    frame = pandas.DataFrame(table)
    chosen = make_column_transformer((st.Hasher(12), ["text", "town"]), ("passthrough", ["price"]))
    pipeline = make_pipeline(chosen, st.LinearClassifier(random_state=0))
    search = GridSearchCV(pipeline, {"linearclassifier__alpha": [1e-4, 1e-2]}, cv=3).fit(frame, y)
    assert search.best_score_ > 0.9
    alone = GridSearchCV(st.LinearClassifier(random_state=0), {"alpha": [1e-4, 1e-2]}, cv=3).fit(frame, y)
    assert alone.best_estimator_.feature_names_in_.tolist() == list(frame.columns)
    assert np.mean(cross_val_score(clone(alone.best_estimator_), frame, y, cv=3)) > 0.9


def test_weights_and_groups_are_routed_through_a_search():
    table, y = columns()
    X = np.array(table["price"])[:, None]
    weight, groups = np.where(y == "yes", 2.0, 1.0), np.repeat(np.arange(12), 10)
    try:
        set_config(enable_metadata_routing=True)
        model = st.LinearClassifier(random_state=0)
        model.set_fit_request(sample_weight=True).set_score_request(sample_weight=True)
        search = GridSearchCV(make_pipeline(model), {"linearclassifier__alpha": [1e-4, 1e-2]}, cv=GroupKFold(3))
        search.fit(X, y, sample_weight=weight, groups=groups)
        by_hand = st.LinearClassifier(alpha=search.best_params_["linearclassifier__alpha"], random_state=0)
        by_hand.fit(X, y, sample_weight=weight)
        np.testing.assert_array_equal(search.best_estimator_[0].coef_, by_hand.coef_)
        assert not np.array_equal(by_hand.coef_, clone(by_hand).fit(X, y).coef_)

        ranker = st.LinearRanker(random_state=0).set_fit_request(groups=True).set_score_request(groups=True)
        ranks = np.arange(120) % 3
        ranked = GridSearchCV(ranker, {"alpha": [1e-4, 1e-2]}, cv=GroupKFold(3)).fit(X, ranks, groups=groups)
        by_hand = st.LinearRanker(alpha=ranked.best_params_["alpha"], random_state=0).fit(X, ranks, groups=groups)
        np.testing.assert_array_equal(ranked.best_estimator_.coef_, by_hand.coef_)
    finally:
        set_config(enable_metadata_routing=False)


@pytest.mark.parametrize(
    "model",
    [
        st.LinearRegressor("poisson"),
        st.LinearRegressor(),
        st.FMRegressor(2),
        st.NetworkRegressor((3,)),
        st.RBFRegressor(3),
    ],
    ids=repr,
)
@pytest.mark.parametrize("calibrate", [False, True])
def test_a_refused_target_does_not_wait_among_the_rows_to_learn(model, calibrate):
    """Rows wait until there are enough to choose a step; one that can never be learned would spoil all others."""
    X = np.eye(3, dtype=np.float32)
    taught = clone(model).set_params(random_state=0).partial_fit(X, [1.0, 2.0, 3.0])
    expected = taught.predict(X)
    bad = [[1.0, 1e200, 1.0], ["a", "b", "c"], *([[1.0, -1.0, 2.0]] if model.loss == "poisson" else [])]
    for y in bad:
        with pytest.raises(st.DataError, match=r"is too large|is not a number|is negative"):
            taught.partial_fit(X, y, calibrate=calibrate)
        np.testing.assert_array_equal(taught.predict(X), expected)


@pytest.mark.parametrize(
    "labels", [np.array([0.0, 1.0]), np.array([3, 7]), np.array(["no", "yes"])], ids=["float", "int", "text"]
)
def test_labels_that_change_in_place_between_two_calls_are_learned_as_they_are(labels):
    texts = ["cheap pills", "lunch at noon", "cash prize", "team report"] * 25
    for make, rows in (
        (
            lambda: st.LinearClassifier("log", solver="sgd", alpha=1e-4, epochs=1, random_state=0),
            np.eye(4)[[0, 1, 2, 3] * 25],
        ),
        (lambda: st.TextClassifier(8, n_bits=12, epochs=1, parallel="serial", random_state=0), texts),
    ):
        y = labels[[0, 1] * 50]
        model = make().fit(rows, y)
        y[:] = labels[[1, 0] * 50]
        other = make().fit(rows, labels[[0, 1] * 50]).partial_fit(rows, y.copy())
        np.testing.assert_array_equal(model.partial_fit(rows, y).decision_function(rows), other.decision_function(rows))
