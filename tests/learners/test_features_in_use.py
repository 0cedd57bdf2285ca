"""Weight tables are as long as the features in use: the same bits, small files, whatever the index space."""

import os

import numpy as np
import pytest
import scipy.sparse as sp

import steepest as st
from steepest.data.source import from_arrays
from steepest.data.store import row_store
from steepest.learners.linear import linear, slots
from steepest.learners.linear.slots import Slots

WIDTH = 1 << 18
HUGE = 2**31 - 1

CHOICES = [
    {},
    {"loss": "hinge", "solver": "sgd"},
    {"solver": "adagrad"},
    {"solver": "ftrl", "penalty": "l1", "alpha": 1e-3},
    {"solver": "sgd", "penalty": "l1", "alpha": 1e-3},
    {"solver": st.Truncated(every=10), "penalty": "l1", "alpha": 1e-3},
    {"solver": "coin"},
    {"batch_size": 16, "dtype": "float64"},
]


def problem(n=800, d=80, width=WIDTH, seed=0):
    rng = np.random.default_rng(seed)
    columns = np.sort(rng.choice(width, d, replace=False))
    dense = rng.random((n, d)) < 0.1
    y = np.where(dense @ rng.normal(size=d) + 0.3 * rng.normal(size=n) > 0, "yes", "no")
    rows, entries = np.nonzero(dense)
    values = rng.random(len(rows)).astype(np.float32) + 0.5
    return sp.csr_matrix((values, (rows, columns[entries])), shape=(n, width)), y


def model(**options):
    return st.LinearClassifier(random_state=0, **{"solver": "stochastic", **options})


@pytest.mark.parametrize("options", CHOICES, ids=str)
def test_weights_and_scores_have_the_bits_of_whole_tables(options, monkeypatch):
    X, y = problem()
    new, _ = problem(width=WIDTH, seed=1)  # rows with features that were never seen
    compact = model(**options).fit(X, y)
    assert compact.learner_.slots.n == 80
    assert len(compact.learner_.used_arrays()["v"]) == 80
    monkeypatch.setattr(linear, "SLOTTED_FEATURES", WIDTH + 1)
    whole = model(**options).fit(X, y)
    assert whole.learner_.slots is None
    np.testing.assert_array_equal(compact.coef_, whole.coef_)
    np.testing.assert_array_equal(compact.intercept_, whole.intercept_)
    np.testing.assert_array_equal(compact.decision_function(new), whole.decision_function(new))
    assert compact.n_nonzero_ == whole.n_nonzero_
    for ours, theirs in zip(compact.history_.records, whole.history_.records, strict=True):
        assert ours["loss"] == theirs["loss"]
        assert ours["objective"] == pytest.approx(theirs["objective"], rel=1e-12)


@pytest.mark.parametrize("options", CHOICES, ids=str)
def test_saved_models_go_on_to_the_same_bits(options, tmp_path):
    X, y = problem(n=1500)  # more than wait for a step size
    more, z = problem(seed=1)
    whole = model(**options).partial_fit(X, y, classes=["no", "yes"]).partial_fit(more, z)
    first = model(**options).partial_fit(X, y, classes=["no", "yes"])
    first.save(tmp_path / "first")
    again = st.load(tmp_path / "first").partial_fit(more, z)
    np.testing.assert_array_equal(again.coef_, whole.coef_)
    np.testing.assert_array_equal(again.decision_function(X), whole.decision_function(X))
    again.save(tmp_path / "again")
    np.testing.assert_array_equal(st.load(tmp_path / "again").coef_, whole.coef_)


@pytest.mark.parametrize("shuffle", ["never", "blocks", "rows"])
def test_chunks_do_not_matter(shuffle):
    X, y = problem(n=3000, d=1500)
    found = [model(shuffle=shuffle).fit_stream(from_arrays(X, y, chunk_rows=rows)) for rows in (37, 3000)]
    np.testing.assert_array_equal(found[0].coef_, found[1].coef_)
    assert sorted(found[0].learner_.slots.owners) == sorted(found[1].learner_.slots.owners)


def test_blocks_too_large_to_be_numbered_at_once_give_the_same_bits(monkeypatch):
    X, y = problem()
    expected = model().fit(X, y)
    monkeypatch.setattr(slots, "room_for_entries", lambda: 10)
    monkeypatch.setattr(row_store, "IN_MEMORY", 10)
    monkeypatch.setattr(slots, "ENTRIES_AT_ONCE", 100)
    found = model().fit_stream(from_arrays(X, y, chunk_rows=100))
    np.testing.assert_array_equal(found.coef_, expected.coef_)


def test_rows_of_the_last_fit_are_not_held():
    X, y = problem()
    fitted = model().fit(X, y)
    assert len(fitted.learner_.slots._numbered) == 0
    fitted.partial_fit(X, y)
    assert len(fitted.learner_.slots._numbered) == 0


def test_an_index_of_a_billion_costs_what_two_features_cost(tmp_path):
    (tmp_path / "huge.libsvm").write_text("1 1000000000:1\n-1 2:1\n")
    source = st.scan(tmp_path / "huge.libsvm")
    fitted = model().fit_stream(source)
    fitted.save(tmp_path / "model")
    assert os.path.getsize(tmp_path / "model") < 10_000
    loaded = st.load(tmp_path / "model")
    assert loaded.n_features_in_ == 10**9
    X = sp.csr_matrix((np.ones(3, np.float32), ([0, 1, 2], [10**9 - 1, 1, 5])), shape=(3, 10**9))
    assert loaded.predict(X[:2]).tolist() == [1, -1]
    np.testing.assert_allclose(loaded.decision_function(X[2:]), loaded.intercept_)
    with pytest.raises(
        st.DataError, match=r"1,000,000,000 features would take 3.7 GB.*2 features are in use.*sparsify"
    ):
        _ = loaded.coef_
    assert np.sort(loaded.sparsify().coef_.indices).tolist() == [1, 10**9 - 1]
    assert [name for pairs in loaded.top_features(3).values() for name, _ in pairs] == [
        "feature 1",
        "feature 999999999",
    ]


@pytest.mark.parametrize("options", [{}, {"solver": "lbfgs"}, {"solver": "ftrl", "penalty": "l1", "alpha": 1e-3}])
def test_huge_index_spaces_teach_the_same(options):
    X, y = problem()
    huge = sp.csr_matrix((X.data, X.indices * 7919, X.indptr), shape=(X.shape[0], HUGE))
    near, far = model(**options).fit(X, y), model(**options).fit(huge, y)
    assert far.learner_.slots.table is None
    np.testing.assert_array_equal(far.decision_function(huge), near.decision_function(X))
    assert far.explain(huge[0]).keys() == near.explain(X[0]).keys()
    huge.indices[3] = -5
    with pytest.raises(st.DataError, match="has the column index -5"):
        far.predict(huge)
    with pytest.raises(st.DataError, match="has the column index -5"):
        model(**options).fit(huge, y)


def test_slots_of_many_features_are_those_of_few(monkeypatch):
    rng = np.random.default_rng(0)
    X = sp.random(50, 300, 0.05, "csr", np.float32, random_state=0)
    blocks = [from_arrays(X[rng.permutation(50)]).block for _ in range(3)]
    direct = Slots(300)
    monkeypatch.setattr(slots, "MOST_DIRECT", 10)
    listed = Slots(300)
    for block in blocks:
        ours, theirs = listed.take_in(block), direct.take_in(block)
        np.testing.assert_array_equal(ours.indices, theirs.indices)
        np.testing.assert_array_equal(listed.owners, direct.owners)
        np.testing.assert_array_equal(listed.find(block).indices, direct.find(block, keep=True).indices)
    np.testing.assert_array_equal(listed.of(np.arange(300)), direct.of(np.arange(300)))


def size_of(fitted, path):
    fitted.save(path)
    return os.path.getsize(path)


@pytest.mark.parametrize("solver", ["sgd", "lbfgs", "cd"])
def test_files_hold_no_features_that_the_1_norm_has_removed(solver, tmp_path):
    X, y = problem(n=2000, d=6000)
    options = {"average": False, "epochs": 2, "tol": 1e-2, "max_iter": 20}
    sparse = model(solver=solver, penalty="l1", alpha=0.3 if solver == "sgd" else 5e-3, **options).fit(X, y)
    dense = model(solver=solver.replace("cd", "lbfgs"), **options).fit(X, y)
    assert 0 < sparse.n_nonzero_ < dense.n_nonzero_ / 3
    assert size_of(sparse, tmp_path / "sparse") < size_of(dense, tmp_path / "dense")
    loaded = st.load(tmp_path / "sparse")
    assert loaded.learner_.slots.n == sparse.n_nonzero_
    assert (np.diff(loaded.learner_.slots.owners) > 0).all()
    np.testing.assert_array_equal(loaded.coef_, sparse.coef_)
    np.testing.assert_array_equal(loaded.decision_function(X), sparse.decision_function(X))


def test_a_hashed_model_of_few_features_is_a_small_file(tmp_path):
    rng = np.random.default_rng(0)
    words = [f"w{k}" for k in range(200)]
    texts = [" ".join(rng.choice(words, 12)) for _ in range(500)]
    fitted = model(hasher=st.Hasher(names=0)).fit(texts, ["w1" in text.split() for text in texts])
    assert size_of(fitted, tmp_path / "hashed") < 12_000
    np.testing.assert_array_equal(st.load(tmp_path / "hashed").coef_, fitted.coef_)
