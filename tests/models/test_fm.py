"""Factorization machines: what pairs of features say, with fields and without, for classes and numbers."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

import steepest as st


def shop(n=4000, seed=0):
    """Users like items of their own kind: no linear rule knows this."""
    rng = np.random.default_rng(seed)
    users, items = rng.integers(0, 30, n), rng.integers(0, 20, n)
    frame = pd.DataFrame({"user": [f"u{u}" for u in users], "item": [f"i{i}" for i in items]})
    return frame, np.where((users % 2) == (items % 2), "yes", "no")


@pytest.mark.parametrize("fields", [False, True])
def test_pairs_are_learned_that_no_linear_model_knows(fields):
    X, y = shop()
    model = st.FMClassifier(4, fields=fields, hasher=st.Hasher(), random_state=0).fit(X[:3000], y[:3000])
    linear = st.LinearClassifier(hasher=st.Hasher(pairs=0), random_state=0).fit(X[:3000], y[:3000])
    assert model.score(X[3000:], y[3000:]) > 0.99
    assert linear.score(X[3000:], y[3000:]) < 0.6
    assert model.n_fields_ == (2 if fields else 1)


@pytest.mark.parametrize("rows", ["dense", "sparse"])
@pytest.mark.parametrize("fields", [False, True, [0, 0, 1, 2]])
def test_products_of_columns_are_learned_in_any_units(rows, fields):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((3000, 4)) * (1 if rows == "dense" else rng.random((3000, 4)) < 0.2)
    y = 1e5 * (3 * X[:, 0] * X[:, 1] - X[:, 2] + 7)
    X = X * ([1e4, 1e-3, 1, 50] if rows == "dense" else 30.0)
    given = X if rows == "dense" else sp.csr_matrix(X)
    model = st.FMRegressor(fields=fields, random_state=0, epochs=10).fit(given[:2000], y[:2000])
    assert model.score(given[2000:], y[2000:]) > 0.97


def test_several_classes_are_one_machine_each_and_may_appear_late():
    rng = np.random.default_rng(1)
    X = sp.csr_matrix((rng.random((4000, 12)) < 0.3).astype(np.float32))
    dense = X.toarray()
    y = np.array(["a", "b", "c"])[(dense[:, 0] * dense[:, 1] + 2 * dense[:, 2] * dense[:, 3]).astype(int) % 3]
    late = np.argsort(y == "c", kind="stable")
    model = st.FMClassifier(random_state=0).partial_fit(X[late[:2500]], y[late[:2500]])
    assert model.classes_.tolist() == ["a", "b"]
    before = model.decision_function(X[:50])
    model.partial_fit(X[late[2500:2501]], y[late[2500:2501]])
    model.partial_fit(X[late[-1:]], y[late[-1:]])
    after = model.decision_function(X[:50])
    assert model.classes_.tolist() == ["a", "b", "c"]
    np.testing.assert_allclose(after[:, 1], before, atol=0.5)  # b against the rest is what b against a was
    np.testing.assert_allclose(after[:, 0], -before, atol=0.5)
    whole = st.FMClassifier(random_state=0, epochs=10).fit(X, y)
    assert whole.score(X, y) > 0.97
    np.testing.assert_allclose(whole.predict_proba(X[:9]).sum(axis=1), 1)


def test_what_explains_a_row_adds_up_to_its_score():
    X, y = shop()
    model = st.FMClassifier(4, fields=True, hasher=st.Hasher(names=1000), random_state=0).fit(X, y)
    row = {"user": "u1", "item": "i3"}
    parts = model.explain(row)
    assert list(parts) == ["no", "yes"]
    assert parts["yes"][0].name == "user=u1 × item=i3"
    total = sum(part.contribution for part in parts["yes"]) + float(model.intercept_[0])
    assert total == pytest.approx(float(model.decision_function([row])[0]), rel=1e-5)
    dense = np.random.default_rng(0).standard_normal((1500, 3))
    numbers = st.FMRegressor(random_state=0).fit(dense, dense[:, 0] * dense[:, 1] + dense[:, 2])
    total = sum(part.contribution for part in numbers.explain(dense[0])[0]) + float(numbers.intercept_[0])
    assert total == pytest.approx(float(numbers.predict(dense[:1])[0]), rel=1e-4)
    assert {name for name, _ in numbers.top_features(1)[0]} == {"feature 2"}


def test_fields_with_a_text_column_are_saved_with_their_names(tmp_path):
    """Rows with a word are counted by bucket, which all columns share; features have a range for each column."""
    rng = np.random.default_rng(0)
    liked = rng.random(600) < 0.5
    words = np.where(liked ^ (rng.random(600) < 0.1), "great", "dull")
    X = [{"user": f"u{n % 7}", "note": f"a {word} film"} for n, word in enumerate(words)]
    model = st.FMClassifier(4, fields=True, hasher=st.Hasher(14, kinds={"note": "text"}), random_state=0).fit(X, liked)
    model.save(tmp_path / "m")
    again = st.load(tmp_path / "m")
    assert again.predict(X).tolist() == model.predict(X).tolist()
    assert {"a", "great", "film", "dull"} <= {
        name for names in model.hasher_.names_of(model.hasher_.counted_features) for name in names
    }


def test_features_never_seen_count_for_nothing():
    X, y = shop()
    model = st.FMClassifier(hasher=st.Hasher(), random_state=0).fit(X, y)
    alone = model.decision_function([{"user": "new", "item": "unheard"}])
    np.testing.assert_allclose(alone, model.intercept_)


def test_the_table_is_as_long_as_the_features_in_use(tmp_path):
    X, y = shop()
    model = st.FMClassifier(4, fields=True, hasher=st.Hasher(22), random_state=0).fit(X, y)
    assert model.learner_.n_features == 2 << 22
    assert model.learner_.table.n == 50
    model.save(tmp_path / "m")
    assert (tmp_path / "m").stat().st_size < 60_000


def test_normalised_rows_score_alike_whatever_their_length():
    rng = np.random.default_rng(0)
    X = sp.csr_matrix(rng.random((1500, 10)) * (rng.random((1500, 10)) < 0.2))
    y = X.toarray()[:, 0] > 0
    model = st.FMClassifier(normalise=True, random_state=0).fit(X, y)
    np.testing.assert_allclose(model.decision_function(X * 3), model.decision_function(X), rtol=1e-4, atol=1e-5)


def test_a_row_far_out_of_range_is_left_out_and_said():
    rng = np.random.default_rng(0)
    X = (rng.random((3000, 8)) < 0.2).astype(np.float32)
    y = X[:, 0] * X[:, 1] + X[:, 2]
    X[2000, :3] = 1e25
    model = st.FMRegressor(random_state=0, epochs=1, shuffle="never").fit(sp.csr_matrix(X), y)
    assert any("overflowed" in event for event in model.history_.events)
    assert np.isfinite(model.predict(sp.csr_matrix(X[:5]))).all()


@pytest.mark.parametrize("loss", ["huber", "epsilon_insensitive", "quantile", "poisson", st.Quantile(0.9)])
def test_losses_of_numbers(loss):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((2000, 3))
    y = np.exp(0.3 * X[:, 0] * X[:, 1]) * 20
    model = st.FMRegressor(loss=loss, random_state=0).fit(X, y)
    assert np.corrcoef(model.predict(X), y)[0, 1] > 0.9
    if isinstance(loss, st.Quantile):
        assert (y < model.predict(X)).mean() == pytest.approx(0.9, abs=0.08)


def test_fields_that_make_no_sense_are_refused(tmp_path):
    X, y = np.eye(4), [0, 1, 0, 1]
    with pytest.raises(st.ParameterError, match="a whole number for each feature"):
        st.FMClassifier(fields=["a", "b"]).fit(X, y)
    with pytest.raises(st.DataError, match="fields= has 2 numbers"):
        st.FMClassifier(fields=[0, 1]).fit(X, y)
    with pytest.raises(st.ParameterError, match="fields=True makes each column a field"):
        st.FMClassifier(fields=[0, 1], hasher=st.Hasher()).fit(["a b", "c"], [0, 1])
    (tmp_path / "a.svm").write_text("1 0:1 3:1\n0 1:1\n" * 5)
    with pytest.raises(st.ParameterError, match="has numbered features"):
        st.FMClassifier(fields=True).fit_stream(st.scan(tmp_path / "a.svm"))
    with pytest.raises(st.DataError, match="more than 512 fields"):
        st.FMClassifier(fields=True).fit(sp.eye(600, format="csr"), np.arange(600) % 2)
    model = st.FMClassifier(fields=[0, 0, 1, 1], random_state=0).fit_stream(st.scan(tmp_path / "a.svm"))
    assert model.n_fields_ == 2


def test_columns_of_a_hasher_have_ranges_of_their_own():
    frame = pd.DataFrame({"a": ["x", "y", "x"], "b": ["x", "z", None], "text": ["one two", "two three", "four five"]})
    apart = st.Hasher(12, by_column=True, cross=[("a", "b")], names=50, categorical=["a", "b"], text=["text"])
    together = st.Hasher(12, cross=[("a", "b")], categorical=["a", "b"], text=["text"])
    ours, theirs = apart.fit_transform(frame), together.fit_transform(frame)
    assert ours.shape == (3, 4 << 12)
    assert sorted(set(ours.indices >> 12)) == [0, 1, 2, 3]
    for mine, other in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(np.sort(mine.indices & 4095), np.sort(other.indices))
        np.testing.assert_allclose(np.sort(mine.data), np.sort(other.data))
    names = {name for found in apart.names_of(ours.indices) for name in found}
    assert {"a=x", "b=z", "a=x#b=x", "two"} <= names
    with pytest.raises(st.ParameterError, match="n_bits=30 is too many for 4 columns; give at most 29"):
        st.Hasher(30, by_column=True, cross=[("a", "b")], categorical=["a", "b"], text=["text"]).fit_transform(frame)
