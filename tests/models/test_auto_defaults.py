"""fit(X, y) and nothing else: as good as scaled scikit-learn on raw data, in any units and order of rows."""

from __future__ import annotations

import functools
from dataclasses import replace

import numpy as np
import pytest
from scipy import sparse
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris, load_wine
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import KFold, StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import steepest as st
from steepest.data.source import from_arrays
from steepest.learners.linear.auto import race

STOCHASTIC = ("sgd", "asgd", "adagrad", "ftrl", "coin")
RAW = {
    "wine": load_wine,
    "breast_cancer": load_breast_cancer,
    "iris": load_iris,
    "diabetes": lambda return_X_y: load_diabetes(return_X_y=return_X_y, scaled=False),
}


def hits_of(model, X, y, folds):
    """Per row: whether it was classified correctly, by a model that had not seen it."""
    hits = np.zeros(len(y))
    for learn, test in folds.split(X, y):
        hits[test] = model.fit(X[learn], y[learn]).predict(X[test]) == y[test]
    return hits


@pytest.mark.parametrize("name", ["wine", "breast_cancer", "iris"])
def test_raw_classes_are_learned_as_well_as_scaled_ones(name):
    X, y = RAW[name](return_X_y=True)
    folds = StratifiedKFold(5, shuffle=True, random_state=0)
    ours = hits_of(st.LinearClassifier(), X, y, folds).mean()
    theirs = hits_of(make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)), X, y, folds).mean()
    assert ours >= theirs - np.sqrt(theirs * (1 - theirs) / len(y))


def test_raw_numbers_are_learned_as_well_as_scaled_ones():
    X, y = RAW["diabetes"](return_X_y=True)

    def r2(model):
        parts = KFold(5, shuffle=True, random_state=0).split(X)
        return np.array([model.fit(X[learn], y[learn]).score(X[test], y[test]) for learn, test in parts])

    ours, theirs = r2(st.LinearRegressor()), r2(make_pipeline(StandardScaler(), Ridge()))
    assert ours.mean() >= theirs.mean() - theirs.std() / np.sqrt(5)


# ------------------------------------------------------------------------------- promise 9: units, order, idle columns

N, N_TEST = 1500, 2500


def problem():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((N + N_TEST, 12)) + rng.uniform(-2, 2, 12)
    score = (X - X.mean(axis=0)) @ rng.standard_normal(12)
    return X, score + rng.standard_normal(len(X)) * 2


def in_other_units(X):
    return X * 10.0 ** np.random.default_rng(1).uniform(-3, 3, X.shape[1])


def with_idle_column(X):
    return np.column_stack([X, 100 * np.random.default_rng(2).standard_normal(len(X))])


CHANGES = {
    "units": lambda X: (in_other_units(X), np.arange(N)),
    "order": lambda X: (X, np.random.default_rng(3).permutation(N)),
    "idle column": lambda X: (with_idle_column(X), np.arange(N)),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("solver", ["auto", "stochastic", *STOCHASTIC])
def test_neither_units_nor_order_nor_idle_columns_change_accuracy(solver, change):
    X, score = problem()
    y = score > 0
    changed, order = CHANGES[change](X)
    before = st.LinearClassifier(solver=solver, random_state=0).fit(X[:N], y[:N]).score(X[N:], y[N:])
    after = st.LinearClassifier(solver=solver, random_state=0).fit(changed[:N][order], y[:N][order])
    noise = np.sqrt(before * (1 - before) / N_TEST)
    assert before > 0.8
    assert abs(after.score(changed[N:], y[N:]) - before) < noise


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("solver", ["auto", "stochastic", *STOCHASTIC])
def test_neither_units_nor_order_nor_idle_columns_change_r2(solver, change):
    X, y = problem()
    changed, order = CHANGES[change](X)
    before, spread = r2_by_seed(solver)
    after = st.LinearRegressor(solver=solver, random_state=0).fit(changed[:N][order], y[:N][order])
    error = 2 * np.sqrt(before) * (1 - before) / np.sqrt(N_TEST)  # of R2 on so many rows
    assert before > 0.6
    assert after.score(changed[N:], y[N:]) == pytest.approx(before, abs=error / 4 + 3 * spread)


@functools.cache
def r2_by_seed(solver):
    """(R2, its standard deviation over seeds): the last iterate of a solver that does not average depends on them."""
    X, y = problem()
    fitted = (st.LinearRegressor(solver=solver, random_state=seed).fit(X[:N], y[:N]) for seed in range(5))
    found = [model.score(X[N:], y[N:]) for model in fitted]
    return found[0], np.std(found)


def test_in_other_units_the_predictions_are_the_same():
    X, score = problem()
    y = score > 0
    plain, other = (st.LinearClassifier().fit(rows[:N], y[:N]) for rows in (X, in_other_units(X)))
    np.testing.assert_allclose(
        other.decision_function(in_other_units(X)[N:]), plain.decision_function(X[N:]), rtol=1e-2, atol=1e-2
    )


# ------------------------------------------------------------------------------------------------- the same afterwards


def test_partial_fit_goes_on_from_an_exact_fit():
    X, score = problem()
    y = score > 0
    model = st.LinearClassifier(random_state=0).fit(X[:N], y[:N])
    before, scores = model.score(X[N:], y[N:]), model.decision_function(X[N:])
    model.partial_fit(X[N:], y[N:])
    assert model.learner_.rows_learned == N + N_TEST
    assert model.learner_.sizes is not None
    assert not np.array_equal(model.decision_function(X[N:]), scores)
    assert model.score(X[N:], y[N:]) >= before - 0.01


def test_partial_fit_after_an_exact_fit_follows_a_change():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((4000, 3)) * [1.0, 50.0, 1e-2]
    model = st.LinearRegressor(random_state=0).fit(X[:1000], X[:1000, 0])
    for start in range(1000, 4000, 500):
        model.partial_fit(X[start : start + 500], X[start : start + 500, 0] + 0.5)
    assert 0.1 < model.predict(np.zeros((1, 3)))[0] < 0.6


@pytest.mark.parametrize("solver", ["auto", "asgd"])
def test_files_keep_the_sizes(tmp_path, solver):
    X, score = problem()
    y = score > 0
    X = in_other_units(X)
    model = st.LinearClassifier(solver=solver, random_state=0).fit(X[:N], y[:N])
    model.save(tmp_path / "m.steepest")
    again = st.load(tmp_path / "m.steepest")
    for name in ("centre", "scale"):
        np.testing.assert_array_equal(getattr(again.learner_.sizes, name), getattr(model.learner_.sizes, name))
    np.testing.assert_array_equal(again.decision_function(X), model.decision_function(X))
    for learner in (model, again):
        learner.partial_fit(X[N:], y[N:])
    np.testing.assert_array_equal(again.decision_function(X), model.decision_function(X))


@pytest.mark.parametrize("name", RAW)
def test_the_same_bits_for_any_number_of_threads_and_every_time(name):
    X, y = RAW[name](return_X_y=True)
    kind = st.LinearRegressor if name == "diabetes" else st.LinearClassifier
    first = kind().fit(X, y)
    for other in (first, kind(), kind(n_jobs=2), kind(random_state=7)):
        np.testing.assert_array_equal(other.fit(X, y).coef_, kind().fit(X, y).coef_)


@pytest.mark.parametrize(
    ("options", "solver"),
    [(dict(), "asgd"), (dict(average=False), "sgd"), (dict(penalty="l1", alpha=1e-3), "ftrl")],
)
@pytest.mark.parametrize("task", ["classes", "numbers"])
def test_stochastic_is_the_solver_that_it_resolves_to(task, options, solver):
    X, score = problem()
    kind, y = (st.LinearClassifier, score > 0) if task == "classes" else (st.LinearRegressor, score)
    left_open = kind(solver="stochastic", random_state=0, **options).fit(X, y)
    named = kind(solver=solver, random_state=0, **options).fit(X, y)
    assert left_open.learner_.settings.solver == solver
    np.testing.assert_array_equal(left_open.coef_, named.coef_)
    np.testing.assert_array_equal(left_open.intercept_, named.intercept_)


def test_the_history_says_what_the_defaults_led_to():
    X, y = load_wine(return_X_y=True)
    first, second, *_ = st.LinearClassifier().fit(X, y).history_.events
    assert first == "solver='auto' chose 'newton_cg': 2,314 non-zeros are few, so the exact minimum is computed"
    assert second.startswith("alpha='auto' chose ")


# ------------------------------------------------------------------------------------------- many sparse rows: a race


def documents(unit):
    """Counts of words in documents of very different lengths; the class depends on the rare ones."""
    rng = np.random.default_rng(0)
    share = 1 / np.arange(1, 1501)
    lengths = rng.geometric(1 / 400, 12_000) + 5
    X = sparse.csr_matrix(np.array([rng.multinomial(n, share / share.sum()) for n in lengths], np.float32))
    rows = X.multiply(1 / np.sqrt(X.multiply(X).sum(axis=1))).tocsr().astype(np.float32)
    score = rows @ (rng.standard_normal(1500) * np.log(np.arange(2, 1502)))
    return (rows if unit else X), (score > np.median(score)).astype(int)


@pytest.mark.parametrize("unit", [True, False])
def test_many_sparse_rows_are_learned_by_the_solver_that_wins_on_some_of_them(unit):
    X, y = documents(unit)
    learn, test = slice(0, 9000), slice(9000, None)
    scores = {}
    for solver in ("auto", "asgd", "adagrad"):
        model = st.LinearClassifier(solver=solver, random_state=0).fit(X[learn], y[learn])
        scores[solver] = model.score(X[test], y[test])
        if solver == "auto":
            assert any("on the next of 8,192 rows (asgd" in event for event in model.history_.events)
    assert scores["auto"] >= max(scores["asgd"], scores["adagrad"]) - 0.03


def test_the_first_step_of_rows_that_race_depends_on_no_seed():
    """Where targets are noisy, the first thousand rows of another order ask for another step."""
    rng = np.random.default_rng(0)
    rare = rng.integers(0, 40_000, (20_000, 60)).astype(np.int32).ravel()
    noise = sparse.csr_matrix((np.ones(len(rare), np.float32), rare, np.arange(0, len(rare) + 1, 60)), (20_000, 40_000))
    signal = sparse.csr_matrix((rng.random((20_000, 30)) < 0.3).astype(np.float32))
    X, y = sparse.csr_matrix(sparse.hstack([signal, noise])), signal @ rng.standard_normal(30)
    y = y + 6 * rng.standard_t(2.1, 20_000)
    steps = {
        solver: {st.LinearRegressor(solver=solver, random_state=k).fit(X, y).learner_.eta0 for k in range(4)}
        for solver in ("asgd", "auto")
    }
    assert len(steps["asgd"]) > 1
    assert len(steps["auto"]) == 1


def test_in_tables_the_least_loss_wins_the_race_and_elsewhere_only_a_clear_win():
    X, y = documents(unit=False)
    rows = replace(from_arrays(X, y.astype(float)).block, y=2.0 * y - 1)
    settings = [st.LinearClassifier(random_state=0).settings_for(rows.n_rows, s) for s in ("asgd", "adagrad")]
    found = [race(rows, settings, [0.0, 1.0], margin) for margin in (0.0, 1.0)]
    assert "adagrad" in found[0].because
    assert [choice.solver for choice in found] == ["adagrad", "asgd"]
    assert "clearly" not in found[0].because
    assert "no other has clearly less loss" in found[1].because
