"""Losses as things: `st.losses`, the 0/1 loss among them, and least squares as a loss of classes."""

from __future__ import annotations

import numpy as np
import pytest

import steepest as st
from steepest.learners.losses import LOSSES

SCORES = np.linspace(-4, 4, 161)

# The formulas of the textbook, for y = -1 or +1; the constants that differ from ours are bounds_zero_one.
TAUGHT = {
    "zero_one": lambda z, y: (y * z <= 0).astype(float),
    "hinge": lambda z, y: np.maximum(0, 1 - y * z),
    "log": lambda z, y: np.log(1 + np.exp(-y * z)) / np.log(2),
    "exponential": lambda z, y: np.exp(-y * z),
    "squared": lambda z, y: (y - z) ** 2,
}


def test_every_loss_is_there_under_its_name():
    assert set(st.losses) == {*LOSSES, "zero_one"}
    assert len(st.losses) == 12
    assert all(st.losses[name].name == name for name in st.losses)
    assert "hinge" in st.losses
    assert st.losses.get("hing") is None
    with pytest.raises(KeyError, match="'hing' is unknown; choose one of hinge, squared_hinge"):
        st.losses["hing"]
    with pytest.raises(TypeError):
        st.losses["hinge"] = None


@pytest.mark.independent
@pytest.mark.parametrize("y", [-1.0, 1.0])
@pytest.mark.parametrize("name", TAUGHT)
def test_values_are_the_textbooks(name, y):
    loss = st.losses[name]
    np.testing.assert_allclose(loss.bounds_zero_one * loss.value(SCORES, y), TAUGHT[name](SCORES, y), rtol=1e-12)
    assert float(loss.bounds_zero_one * loss.value(0.5, y)) == pytest.approx(float(TAUGHT[name](np.array(0.5), y)))


def test_the_gradient_of_the_zero_one_loss_shows_no_way_down():
    assert not st.losses["zero_one"].gradient(SCORES, 1.0).any()


@pytest.mark.parametrize("name", ["log", "exponential", "squared_hinge", "modified_huber"])
def test_links_are_probabilities_that_grow_with_the_score(name):
    p = st.losses[name].link(SCORES)
    assert np.all((p >= 0) & (p <= 1))
    assert np.all(np.diff(p) >= 0)
    assert float(st.losses[name].link(np.array(0.0))) == 0.5
    assert st.losses["hinge"].link is None


def test_the_link_of_log_is_where_its_expected_loss_is_least():
    loss = st.losses["log"]
    for z in (-1.5, 0.3, 2.0):
        p = float(loss.link(np.array(z)))
        assert p * loss.gradient(z, 1.0) + (1 - p) * loss.gradient(z, -1.0) == pytest.approx(0.0, abs=1e-12)


# ------------------------------------------------------------------------------------- least squares as a classifier

SOLVERS = ("closed_form", "cg", "lbfgs", "newton_cg", "dual_cd", "saga", "gd", "auto")


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((150, 5)).astype(np.float32)
    score = X @ rng.standard_normal(5) + rng.standard_normal(150)
    return X, score


def ridge(X, targets, alpha):
    """Least squares with a free bias, by numpy alone."""
    X1 = np.hstack([X.astype(np.float64), np.ones((len(X), 1))])
    penalty = alpha * len(X) * np.diag([1.0] * X.shape[1] + [0.0])
    return np.linalg.solve(X1.T @ X1 + penalty, X1.T @ targets)


@pytest.mark.independent
@pytest.mark.parametrize("solver", SOLVERS)
def test_least_squares_on_two_classes(solver, rows):
    X, score = rows
    y = np.where(score > 0.4, "yes", "no")
    exact = ridge(X, np.where(score > 0.4, 1.0, -1.0), 0.1)
    options = dict(alpha=0.1, solver=solver, tol=1e-12, dtype="float64", random_state=0)
    model = st.LinearClassifier("squared", **options).fit(X, y)
    np.testing.assert_allclose(np.append(model.coef_[0], model.intercept_[0]), exact, atol=1e-6)
    np.testing.assert_array_equal(model.predict(X) == "yes", X @ exact[:-1] + exact[-1] > 0)
    assert not hasattr(model, "predict_proba")


@pytest.mark.parametrize("solver", SOLVERS)
def test_least_squares_on_three_classes_and_on_several_labels(solver, rows):
    X, score = rows
    y = np.digitize(score, [-1.0, 1.0])
    signs = np.where(y[:, None] == np.arange(3), 1.0, -1.0)
    options = dict(alpha=0.1, solver=solver, tol=1e-12, dtype="float64", random_state=0)
    for targets in (y, (signs > 0).astype(int)):
        model = st.LinearClassifier("squared", **options).fit(X, targets)
        found = np.vstack([model.coef_.T, model.intercept_])
        np.testing.assert_allclose(found, ridge(X, signs, 0.1), atol=1e-6)


@pytest.mark.parametrize("solver", ["cd", "lbfgs", "gd"])
def test_least_squares_on_two_classes_under_the_1_norm(solver, rows):
    from sklearn.linear_model import Lasso

    X, score = rows
    y = np.where(score > 0.4, 1, -1)
    exact = Lasso(alpha=0.1, tol=1e-12).fit(X.astype(np.float64), y)
    options = dict(penalty="l1", alpha=0.1, solver=solver, tol=1e-10, dtype="float64")
    model = st.LinearClassifier("squared", **options).fit(X, y)
    np.testing.assert_allclose(model.coef_[0], exact.coef_, atol=1e-5)


@pytest.mark.parametrize("solver", ["sgd", "asgd", "adagrad", "ftrl", "coin"])
def test_stochastic_solvers_come_close_to_least_squares(solver, rows):
    X, score = rows
    y = np.where(score > 0.4, 1, -1)
    model = st.LinearClassifier("squared", alpha=0.1, solver=solver, epochs=60, random_state=0).fit(X, y)
    exact = st.LinearClassifier("squared", alpha=0.1, solver="closed_form").fit(X, y)
    assert model.objective(X, y) < 1.05 * exact.objective(X, y)


@pytest.mark.independent
def test_the_error_is_the_mean_zero_one_loss(rows):
    X, score = rows
    y = np.where(score > 0.4, 1, -1)
    weight = np.random.default_rng(1).uniform(0.5, 2.0, len(y))
    model = st.LinearClassifier("squared", alpha=0.1, random_state=0).fit(X, y)
    found = model.evaluate_stream(st.from_arrays(X, y, weight))
    by_hand = np.average(np.where(model.decision_function(X) > 0, 1, -1) != y, weights=weight)
    assert found["error"] == pytest.approx(by_hand, abs=1e-12)
    assert found["error"] + found["accuracy"] == pytest.approx(1.0)
