"""Networks on few rows: defaults that solve exclusive or and small parities, and restarts that never harm."""

from __future__ import annotations

import numpy as np
import pytest

import steepest as st
from steepest.models.radial import units_for


def parity(n_bits, signs=False):
    X = ((np.arange(2**n_bits)[:, None] >> np.arange(n_bits)) & 1).astype(float)
    y = X.sum(axis=1).astype(int) % 2
    return (2 * X - 1 if signs else X), y


@pytest.mark.parametrize("signs", [False, True], ids=["01", "-11"])
@pytest.mark.parametrize(("n_bits", "seeds"), [(2, 2), (3, 1), (4, 1)])
def test_defaults_solve_small_parities(n_bits, seeds, signs):
    X, y = parity(n_bits, signs)
    for seed in range(seeds):
        model = st.NetworkClassifier(random_state=seed).fit(X, y)
        assert model.score(X, y) == 1.0
        assert model.n_iter_ == 1000  # one step each: all rows are one batch


def test_a_regressor_learns_the_exclusive_or_by_default():
    X, y = parity(2)
    np.testing.assert_allclose(st.NetworkRegressor(random_state=0).fit(X, y).predict(X), y, atol=0.05)


def test_epochs_that_are_given_and_rows_that_are_many_are_as_before():
    X, y = parity(4)
    assert st.NetworkClassifier(epochs=7, random_state=0).fit(X, y).n_iter_ == 7
    settings = st.NetworkClassifier(epochs=30).settings_for(16)
    assert (settings.eta0, settings.batch_size, settings.planned_rows) == (0.003, 4, 480)
    settings = st.NetworkClassifier().settings_for(65)
    assert (settings.eta0, settings.batch_size, settings.planned_rows) == (0.003, 4, 1950)
    assert st.NetworkClassifier().settings_for(None).batch_size == 32
    with pytest.raises(st.ParameterError, match="epochs='some' is unknown"):
        st.NetworkClassifier(epochs="some").fit(X, y)


# ------------------------------------------------------------------------------------------------------- restarts


@pytest.mark.parametrize("seed", range(4))
def test_restarts_are_never_worse_than_one_start_where_rows_are_few(seed):
    X, y = parity(2)
    options = dict(hidden=(2,), epochs=60, eta0=0.05, random_state=seed)
    one, five = (st.NetworkClassifier(restarts=n, **options).fit(X, y) for n in (1, 5))
    assert five.objective(X, y) <= one.objective(X, y)
    assert five.history_[-1]["rows"] == 4  # none are held out
    assert "on the rows learned" in five.history_.events[-1]


def test_exclusive_or_with_restarts_is_solved():
    X, y = parity(2)
    assert st.NetworkClassifier((4,), epochs=200, eta0=0.05, restarts=5, random_state=0).fit(X, y).score(X, y) == 1.0


def test_rows_held_out_to_choose_by_are_given_back():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((1200, 3))
    y = (X[:, 0] * X[:, 1] > 0).astype(int)
    options = dict(hidden=(3,), epochs=2)
    model = st.NetworkClassifier(restarts=3, random_state=5, **options).fit(X, y)
    event = model.history_.events[-1]
    assert "on held-out rows, and learned from all rows" in event
    assert model.history_[-1]["rows"] == 1200
    start = int(event.split("kept start ")[1].split()[0]) - 1
    alone = st.NetworkClassifier(random_state=5 + start, **options).fit(X, y)  # that start, as if it were the only one
    np.testing.assert_array_equal(model.decision_function(X), alone.decision_function(X))
    learned, held = st.NetworkClassifier().source_of(X, y).holdout(0.1, 5)
    losses = [
        st.NetworkClassifier(random_state=5 + k, **options).fit_stream(learned).evaluate_stream(held)["loss"]
        for k in range(3)
    ]
    assert start == int(np.argmin(losses))


def test_restarts_go_with_early_stopping_and_with_two_samples():
    X = np.random.default_rng(0).standard_normal((1200, 3))
    y = (X[:, 0] > 0).astype(int)
    for stopping in (True, st.EarlyStopping(refit=True), st.EarlyStopping(train=0.4)):
        model = st.NetworkClassifier((3,), restarts=2, early_stopping=stopping, epochs=3, random_state=0).fit(X, y)
        assert "kept start" in model.history_.events[-1]


# -------------------------------------------------------------------------------------------------- radial units


@pytest.mark.parametrize("seed", range(3))
def test_radial_units_that_learn_solve_the_exclusive_or_by_default(seed):
    X, y = parity(2)
    assert st.RBFClassifier(4, votes="backprop", random_state=seed).fit(X, y).score(X, y) == 1.0
    x = np.linspace(-3, 3, 40)[:, None]
    model = st.RBFRegressor(6, votes="backprop", random_state=seed).fit(x, np.sin(2 * x[:, 0]))
    assert model.score(x, np.sin(2 * x[:, 0])) > 0.95
    assert model.n_iter_ == 500  # of two batches each


def test_radial_epochs_that_are_given_and_rows_that_are_many_are_as_before():
    assert st.RBFClassifier(votes="backprop", epochs=20).settings_for(100).planned_rows == 2000
    assert st.RBFClassifier(votes="backprop").settings_for(5000).planned_rows == 100_000
    assert st.RBFClassifier(votes="backprop").settings_for(100).planned_rows == 25_000
    with pytest.raises(st.ParameterError, match="epochs='some' is unknown"):
        st.RBFClassifier(votes="backprop", epochs="some").fit(*parity(2))


def test_the_number_of_radial_units_follows_from_the_rows():
    sizes = [units_for(n) for n in (1, 100, 500, 2500, 16_000, 10**5, 10**8)]
    assert sizes == [32, 32, 100, 500, 500, 200, 32]
    X = np.random.default_rng(0).standard_normal((400, 2))
    y = (X[:, 0] * X[:, 1] > 0).astype(int)
    assert len(st.RBFClassifier(random_state=0).fit(X, y).centers_) == 80
    assert len(st.RBFClassifier(random_state=0).fit(X[:20], y[:20]).centers_) == 20
    assert len(st.RBFClassifier(votes="backprop", epochs=1, random_state=0).fit(X, y).centers_) == 32
    unknown = st.Source.select(st.from_arrays(X, y), lambda ids: ids < 300, "some")
    assert len(st.RBFRegressor(random_state=0).fit_stream(unknown).centers_) == 60


def test_radial_defaults_read_digits():
    from sklearn.datasets import load_digits

    X, y = load_digits(return_X_y=True)
    model = st.RBFClassifier(random_state=0).fit(X[:1300], y[:1300])
    assert model.score(X[1300:], y[1300:]) > 0.95  # 0.90 by 32 units; the writers of these rows are new
