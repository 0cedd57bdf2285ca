"""Radial bases: closed form, fixed votes as nearest neighbours, back-propagation, and widths that do not over-fit."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.kernel_ridge import KernelRidge
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor

import steepest as st

GOLDEN = Path(__file__).parents[1] / "golden"


def moons(n=300, noise=0.15, seed=0):
    rng = np.random.default_rng(seed)
    angle = rng.uniform(0, np.pi, n)
    y = np.arange(n) % 2
    X = np.column_stack([np.cos(angle) + y, np.where(y == 1, 0.4 - np.sin(angle), np.sin(angle))])
    return X + noise * rng.standard_normal((n, 2)), np.where(y == 1, "yes", "no")


def waves(n=200, noise=0.1, seed=0):
    rng = np.random.default_rng(seed)
    x = np.sort(rng.uniform(-3, 3, n))[:, None]
    return x, np.sin(2 * x[:, 0]) + noise * rng.standard_normal(n)


@pytest.mark.independent
def test_one_unit_a_row_with_fixed_votes_is_distance_weighted_nearest_neighbours():
    X, y = moons(120)
    new = moons(80, seed=1)[0]
    weigh = lambda distance: np.exp(-3.0 * distance**2)
    ours = st.RBFClassifier(init="all", votes="fixed", gamma=3.0).fit(X, y)
    neighbours = KNeighborsClassifier(len(X), weights=weigh).fit(X.astype(np.float32), y)
    assert ours.predict(new).tolist() == neighbours.predict(new).tolist()
    share = neighbours.predict_proba(new.astype(np.float32))[:, 1]
    np.testing.assert_allclose(ours.decision_function(new), 2 * share - 1, atol=1e-5)
    x, z = waves()
    real = st.RBFRegressor(init="all", votes="fixed", gamma=5.0).fit(x, z)
    weigh = lambda distance: np.exp(-5.0 * distance**2)
    peer = KNeighborsRegressor(len(x), weights=weigh).fit(x.astype(np.float32), z)
    np.testing.assert_allclose(real.predict(x + 0.01), peer.predict((x + 0.01).astype(np.float32)), atol=1e-4)


def test_rows_far_from_every_centre_take_the_side_of_the_nearest():
    X, y = [[0.0], [1.0]], ["a", "b"]
    model = st.RBFClassifier(init="all", votes="fixed", gamma=10.0).fit(X, y)
    assert model.predict([[-1000.0], [1000.0]]).tolist() == ["a", "b"]


@pytest.mark.independent
def test_closed_form_is_ridge_on_the_bumps():
    x, y = waves(60)
    model = st.RBFRegressor(init="all", gamma=2.0, alpha=0.01).fit(x, y)
    h = np.exp(-2.0 * (x.astype(np.float32) - x.astype(np.float32).T).astype(np.float64) ** 2)
    centred = h - h.mean(axis=0)
    votes = np.linalg.solve(centred.T @ centred / 60 + 0.01 * np.eye(60), centred.T @ (y - y.mean()) / 60)
    np.testing.assert_allclose(model.votes_[:, 0], votes, atol=1e-5)
    peer = KernelRidge(kernel="rbf", gamma=2.0, alpha=0.05).fit(x, y - y.mean())
    assert np.corrcoef(peer.predict(x), model.predict(x))[0, 1] > 0.99


def test_training_error_falls_with_gamma_while_the_chosen_width_does_not_over_fit():
    x, y = waves(80, noise=0.4)
    new, truth = waves(400, noise=0.0, seed=1)
    widths = (1.0, 10.0, 1e5)
    models = [st.RBFRegressor(init="all", gamma=gamma, alpha=1e-8).fit(x, y) for gamma in widths]
    errors = [float(np.mean((model.predict(x) - y) ** 2)) for model in models]
    assert errors[2] < 1e-6 < errors[0]  # by heart
    chosen = st.RBFRegressor(init="all", alpha=1e-3).fit(x, y)
    held_out = lambda model: float(np.mean((model.predict(new) - truth) ** 2))
    assert held_out(chosen) < 0.2 * held_out(models[2])
    fixed = st.RBFRegressor(init="all", votes="fixed").fit(x, y)
    assert fixed.gamma_[0] < fixed.learner_.gammas[-1] or held_out(fixed) < 0.1
    assert held_out(fixed) < 0.5 * held_out(models[2])


def test_learning_every_width_of_every_row_needs_held_out_rows():
    X, y = moons()
    with pytest.raises(st.ParameterError, match="memorised; set early_stopping=True"):
        st.RBFClassifier(init="all", votes="backprop").fit(X, y)
    model = st.RBFClassifier(init="all", votes="backprop", early_stopping=True, epochs=30, random_state=0).fit(X, y)
    assert "holdout_loss" in model.history_[0]
    assert model.score(*moons(seed=5)) > 0.9


@pytest.mark.parametrize("init", ["k-means", "sample"])
@pytest.mark.parametrize("votes", ["closed_form", "backprop"])
def test_moons_are_told_apart(init, votes):
    X, y = moons()
    model = st.RBFClassifier(20, init=init, votes=votes, epochs=60, random_state=0).fit(X, y)
    assert model.score(*moons(seed=5)) > 0.93
    assert model.centers_.shape == (20, 2)
    assert model.votes_.shape == (20, 1)
    assert hasattr(model, "predict_proba") == (votes == "backprop")


def test_back_propagation_moves_centres_and_widths():
    x, y = waves()
    model = st.RBFRegressor(8, init="sample", votes="backprop", epochs=200, eta0=0.02, random_state=0).fit(x, y)
    assert len(set(model.gamma_.tolist())) == 8
    assert not set(model.centers_[:, 0].tolist()) <= set(x.astype(np.float32)[:, 0].tolist())
    assert model.score(x, y) > 0.8


def test_states_merge_exactly_and_classes_may_come_late():
    X, y = moons(600)
    labels = np.where(X[:, 0] > 1.5, "far", y)
    labels[:300] = y[:300]
    whole = st.RBFClassifier(10, init="sample", random_state=0).partial_fit(X[:300], labels[:300])
    parts = [whole.learner_.clone() for _ in range(2)]
    whole.partial_fit(X[300:], labels[300:])
    assert whole.classes_.tolist() == ["far", "no", "yes"]
    assert whole.score(X[300:], labels[300:]) > 0.75
    at_once = st.RBFClassifier(10, init="sample", random_state=0)
    at_once.partial_fit(X[:300], labels[:300], classes=["far", "no", "yes"]).partial_fit(X[300:], labels[300:])
    np.testing.assert_allclose(whole.decision_function(X), at_once.decision_function(X), atol=1e-6)
    merged = parts[0].merge([part.state for part in parts])
    assert merged.rows_learned == 600
    np.testing.assert_allclose(merged.weights()[0], parts[0].weights()[0], atol=1e-6)


def test_a_weight_of_three_is_three_rows():
    X, y = moons(200)
    weight = np.random.default_rng(0).integers(0, 4, 200)
    rows = np.repeat(np.arange(200), weight)
    make = lambda: st.RBFClassifier(10, init="sample", gamma=2.0, random_state=0)
    model = make().fit(X, y)
    twins = [model.learner_.__class__(model.learner_.settings, model.centers_, [2.0], ["no", "yes"]) for _ in range(2)]
    twins[0].step(st.from_arrays(X, y, weight).block)
    twins[1].step(st.from_arrays(X[rows], y[rows]).block)
    np.testing.assert_allclose(twins[0].weights()[0], twins[1].weights()[0], rtol=1e-6, atol=1e-8)


def test_sparse_rows_and_raw_texts():
    X, y = moons(200)
    dense, sparse = (st.RBFClassifier(10, random_state=0).fit(rows, y) for rows in (X, sp.csr_matrix(X)))
    np.testing.assert_array_equal(dense.decision_function(X), sparse.decision_function(X))
    texts = ["cheap pills now", "meeting at noon", "win cash", "lunch at noon"] * 5
    model = st.RBFClassifier(init="all", hasher=st.Hasher(n_bits=10, weighting="count"), random_state=0).fit(
        texts, ["s", "h"] * 10
    )
    assert model.predict(["cheap cash pills", "noon"]).tolist() == ["s", "h"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (dict(n_units=0), "n_units=0 must be at least 1"),
        (dict(init="grid"), "init='grid' is unknown; choose one of k-means, sample, all"),
        (dict(votes="many"), "votes='many' is unknown"),
        (dict(votes="fixed"), "which centres of k-means are not"),
        (dict(gamma=0.0), "gamma=0.0 must be more than 0"),
        (dict(alpha=-1.0), "alpha=-1.0 is not a strength"),
    ],
)
def test_parameters_that_cannot_work_are_named(options, message):
    with pytest.raises(st.ParameterError, match=message):
        st.RBFClassifier(**options).fit([[0.0], [1.0]], [0, 1])


def test_rows_that_cannot_be_learned_are_named():
    X, y = moons(50)
    model = st.RBFClassifier(5, init="sample", random_state=0).fit(X, y)
    bad = sp.csr_matrix(X)
    bad.data[7] = np.nan
    with pytest.raises(st.DataError, match="NaN"):
        model.predict(bad)
    for init in ("sample", "all"):
        with pytest.raises(st.DataError, match="NaN"):
            st.RBFClassifier(50, init=init).fit(bad, y)


def test_golden_radial_model_predicts_the_stored_numbers():
    stored = json.loads((GOLDEN / "radial-1.json").read_text())
    model = st.load(GOLDEN / "radial-1.steepest")
    np.testing.assert_allclose(model.predict(stored["x"]), stored["y"], rtol=1e-5)
    model.partial_fit([[0.5]], [1.0])


if __name__ == "__main__":  # writes the golden file of the current format; run once a format version
    x, y = waves(50)
    golden = st.RBFRegressor(6, init="sample", random_state=0).fit(x, y)
    golden.save(GOLDEN / "radial-1.steepest")
    new = np.linspace(-3, 3, 7)[:, None]
    plain = {"x": new.tolist(), "y": golden.predict(new).tolist()}
    (GOLDEN / "radial-1.json").write_text(json.dumps(plain, indent=1))
