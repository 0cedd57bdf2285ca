"""Tables of many outputs with rows for the features seen only: the same bits as with a row for each feature."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

import steepest as st
from steepest import kernels
from steepest.errors import DataError
from steepest.kernels.reference import linear as reference
from steepest.learners.base import Progress
from steepest.learners.linear import linear

N_FEATURES = 1 << 12


@pytest.fixture
def slotted(monkeypatch):
    """Tables are large from the first weight on."""
    monkeypatch.setattr(linear, "SLOTTED_WEIGHTS", 1)


@pytest.fixture
def data():
    return problem()


def problem(n=1500, n_classes=5, seed=0):
    """Few of many features, so that most of the table stays empty."""
    rng = np.random.default_rng(seed)
    columns = rng.choice(N_FEATURES, 300, replace=False)
    dense = rng.random((n, 300)) < 0.04
    y = (dense @ rng.normal(size=(300, n_classes)) + 0.3 * rng.normal(size=(n, n_classes))).argmax(axis=1)
    rows, entries = np.nonzero(dense)
    values = rng.random(len(rows)).astype(np.float32) + 0.5
    return sp.csr_matrix((values, (rows, columns[entries])), shape=(n, N_FEATURES)), y


def both(monkeypatch, learn):
    """The model without and with slots."""
    plain = learn()
    monkeypatch.setattr(linear, "SLOTTED_WEIGHTS", 1)
    model = learn()
    assert plain.learner_.slots is None
    assert 0 < model.learner_.slots.n <= 300
    return plain, model


CHOICES = [
    {},
    {"loss": "hinge", "solver": "sgd"},
    {"solver": "adagrad"},
    {"solver": "ftrl", "penalty": "l1", "alpha": 1e-4},
    {"solver": "sgd", "penalty": "l1", "alpha": 1e-4},
    {"solver": "coin"},
    {"multi_class": "softmax", "batch_size": 8},
    {"alpha": 0.1, "dtype": "float64"},  # the scale falls fast: tables are settled while learning
]


@pytest.mark.parametrize("choice", CHOICES, ids=str)
def test_slots_change_no_bit(monkeypatch, data, choice):
    X, y = data
    plain, model = both(
        monkeypatch, lambda: st.LinearClassifier(random_state=0, **{"solver": "stochastic", **choice}).fit(X, y)
    )
    np.testing.assert_array_equal(model.coef_, plain.coef_)
    np.testing.assert_array_equal(model.intercept_, plain.intercept_)
    np.testing.assert_array_equal(model.decision_function(X), plain.decision_function(X))
    assert model.n_nonzero_ == plain.n_nonzero_
    assert model.top_features(3) == plain.top_features(3)
    np.testing.assert_allclose(
        model.history_.column("objective"), plain.history_.column("objective"), rtol=1e-9
    )  # norms are added up in another order


def test_several_targets_have_slots_too(monkeypatch, data):
    X, y = data
    targets = np.stack([y == 0, y > 2, y % 2 == 0], axis=1).astype(float)
    plain, model = both(monkeypatch, lambda: st.LinearClassifier(random_state=0).fit(X, targets))
    np.testing.assert_array_equal(model.coef_, plain.coef_)


@pytest.mark.usefixtures("slotted")
@pytest.mark.parametrize("parts", [2, 7])
def test_parts_with_files_between_them_learn_the_same(data, tmp_path, parts):
    X, y = data
    y = np.where(np.arange(len(y)) < 400, y % 2, y)  # two classes at first: the others come later
    whole = st.LinearClassifier(random_state=0).partial_fit(X, y)
    model = st.LinearClassifier(random_state=0)
    for some in np.array_split(np.arange(len(y)), parts):
        model.partial_fit(X[some], y[some]).save(tmp_path / "m")
        model = st.load(tmp_path / "m")
        np.testing.assert_array_equal(model.predict(X[:5]).shape, (5,))
    np.testing.assert_array_equal(model.coef_, whole.coef_)
    assert sorted(model.learner_.slots.owners) == sorted(whole.learner_.slots.owners)


@pytest.mark.usefixtures("slotted")
def test_a_file_holds_the_rows_in_use_only(data, tmp_path):
    X, y = data
    size = st.LinearClassifier(random_state=0).fit(X, y).save(tmp_path / "m") or (tmp_path / "m").stat().st_size
    assert size < 2 * 300 * 5 * 4 + 20_000 < N_FEATURES * 5 * 4


@pytest.mark.usefixtures("slotted")
def test_features_never_seen_have_no_weight(data):
    X, y = data
    model = st.LinearClassifier(random_state=0).fit(X, y)
    unseen = np.setdiff1d(np.arange(N_FEATURES), X.indices)[:3]
    row = sp.csr_matrix((np.ones(3, np.float32), ([0, 0, 0], unseen)), shape=(1, N_FEATURES))
    np.testing.assert_array_equal(model.decision_function(row)[0], model.intercept_)
    assert not model.coef_[:, unseen].any()


@pytest.mark.usefixtures("slotted")
def test_a_value_that_is_no_number_is_refused_with_its_own_column(data):
    X, y = data
    model = st.LinearClassifier(solver="stochastic", random_state=0).fit(X, y)
    unseen = int(np.setdiff1d(np.arange(N_FEATURES), X.indices)[0])
    for column in (unseen, int(X.indices[0])):
        row = sp.csr_matrix((np.array([np.nan], np.float32), ([0], [column])), shape=(1, N_FEATURES))
        with pytest.raises(DataError, match=f"column {column}"):
            model.decision_function(row)
        with pytest.raises(DataError, match=f"column {column}"):
            model.partial_fit(row, [0])


def test_divergence_goes_back_to_the_same_state(monkeypatch, data):
    X, y = data
    X = X.copy()
    X.data[X.indptr[700] : X.indptr[701]] = 3e38
    plain, model = both(
        monkeypatch, lambda: st.LinearClassifier("hinge", solver="stochastic", random_state=0).fit(X, y)
    )
    assert model.learner_.good.rollbacks == plain.learner_.good.rollbacks > 0
    np.testing.assert_array_equal(model.coef_, plain.coef_)


@pytest.mark.usefixtures("slotted")
@pytest.mark.parametrize("average", [True, False])
def test_the_last_good_state_is_kept_bit_for_bit(data, average):
    X, y = data
    learner = st.LinearClassifier(random_state=0, average=average).fit(X, y).learner_
    learner.good.forget()
    learner.keep_good_state()
    before = {name: np.array(array) for name, array in learner.used_arrays().items()}
    for array in learner.arrays.values():
        array[...] = np.nan
    learner.roll_back(Progress())
    for name, array in learner.used_arrays().items():
        np.testing.assert_array_equal(array, before[name])


@pytest.mark.usefixtures("slotted")
def test_room_grows_with_the_features_seen(monkeypatch, data):
    """A table that no memory could hold whole is no trouble while few of its features are seen."""
    X, y = data
    expected = st.LinearClassifier(random_state=0).fit(X, y).coef_
    monkeypatch.setattr(linear, "ROOM_BYTES", 5 * 4 * 7)
    monkeypatch.setattr(linear, "LARGEST_TABLE_BYTES", 2 * 300 * 5 * 4)
    model = st.LinearClassifier(random_state=0).fit(X, y)
    assert len(model.learner_.arrays["v"]) < 600
    for output, weights in enumerate(expected):
        np.testing.assert_array_equal(model.learner_.output_weights(output), weights)


@pytest.mark.usefixtures("slotted")
def test_shards_keep_whole_tables(data):
    X, y = data
    model = st.LinearClassifier(parallel=st.Mixing(n_shards=2), random_state=0).fit(X, y)
    assert model.learner_.slots is None
    assert model.score(X, y) > 0.6


@pytest.mark.usefixtures("slotted")
def test_names_of_the_heaviest_are_kept(tmp_path):
    rng = np.random.default_rng(0)
    words = [f"w{i}" for i in range(60)]
    texts = [" ".join(rng.choice(words, 8)) for _ in range(900)]
    labels = ["abc"[int(text.split()[0][1:]) % 3] for text in texts]
    model = st.LinearClassifier(hasher=st.Hasher(14, names=100), random_state=0).fit(texts, labels)
    named = [name for pairs in model.top_features(5).values() for name, _ in pairs]
    assert all(name in words for name in named)
    assert model.collision_report() is not None


def place_natively(indptr, indices, values, order, *slots):
    return kernels.place_features(kernels.Rows(indptr, indices, values, order=order), *slots)


@pytest.mark.parametrize("keep", [True, False])
@pytest.mark.parametrize("ordered", [True, False])
def test_places_are_those_of_the_definition(keep, ordered):
    rng = np.random.default_rng(1)
    X = sp.random(40, 30, 0.2, "csr", np.float32, random_state=1)
    X.data[::17] = np.inf
    indptr, indices = X.indptr.astype(np.int64), X.indices.astype(np.int32)
    indices[indptr[33]] = 30  # no feature
    order = rng.permutation(40) if ordered else None
    slots = np.zeros(30, np.int32)
    slots[rng.choice(30, 12, replace=False)] = np.arange(1, 13)
    found = [place(indptr, indices, X.data, order, slots, keep) for place in (place_natively, reference.place_features)]
    for ours, definition in zip(*found, strict=True):
        np.testing.assert_array_equal(ours, definition)


@pytest.mark.parametrize("n", [0, 1, 15, 16, 17, 500])
def test_new_features_take_the_next_slots(n):
    indices = np.random.default_rng(n).integers(-2, 62, n).astype(np.int32)  # some out of range
    found = []
    for number in (kernels.number_features, reference.number_features):
        slots, owners = np.zeros(60, np.int32), np.zeros(60, np.int32)
        slots[[3, 7]], owners[:2] = [1, 2], [3, 7]
        found.append((*number(indices, slots, owners, 2), slots, owners))
    for ours, definition in zip(*found, strict=True):
        np.testing.assert_array_equal(ours, definition)


@pytest.mark.parametrize(("n", "n_features"), [(0, 1), (1, 1), (5, 3), (2000, 1 << 22), (2000, 300), (3000, 1 << 31)])
def test_columns_are_numbered_as_they_come(n, n_features):
    indices = np.random.default_rng(n).integers(0, n_features, n).astype(np.int32) & ~np.int32(63 if n > 5 else 0)
    numbers, n_columns = kernels.number_columns(indices)
    expected, n_expected = reference.number_columns(indices)
    assert n_columns == n_expected == len(np.unique(indices))
    np.testing.assert_array_equal(numbers, expected)
