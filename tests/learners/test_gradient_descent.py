"""Gradient descent as taught: the iterates of the textbook, what the history shows, and steps that are too long."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from scipy.optimize import minimize

import steepest as st
from steepest.learners.losses import LOSSES

K = 60


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((80, 4)).astype(np.float32)
    return X, np.where(X @ rng.standard_normal(4) + 0.5 * rng.standard_normal(80) > 0.3, 1.0, -1.0)


GRADIENTS = {
    "log": lambda z, y: -y / (1 + np.exp(y * z)),
    "hinge": lambda z, y: np.where(y * z < 1, -y, 0),
    "squared": lambda z, y: z - y,
    "exponential": lambda z, y: -y * np.exp(-y * z),
    "squared_hinge": lambda z, y: -2 * y * np.maximum(0, 1 - y * z),
    "modified_huber": lambda z, y: np.where(y * z < -1, -4 * y, -2 * y * np.maximum(0, 1 - y * z)),
}


def as_taught(loss, X, y, eta, alpha, steps=K, penalty="l2"):
    """Algorithm 22: (w, b) after each step, from zero."""
    z, path = np.zeros(X.shape[1] + 1), []
    X1 = np.hstack([X.astype(np.float64), np.ones((len(X), 1))])
    for k in range(1, steps + 1):
        g = GRADIENTS[loss](X1 @ z, y) @ X1 / len(y)
        g[:-1] += alpha * (z[:-1] if penalty == "l2" else np.sign(z[:-1]))
        z = z - eta(k) * g
        path.append(z)
    return np.array(path)


def learned(loss, X, y, kind=st.LinearClassifier, **options):
    model = kind(loss, solver="gd", average=False, max_iter=K, dtype="float64", **options).fit(X, y)
    return model, np.append(model.coef_[0], model.intercept_[0])


@pytest.mark.independent
@pytest.mark.parametrize("loss", ["log", "hinge", "squared", "exponential", "squared_hinge", "modified_huber"])
@pytest.mark.parametrize("schedule", ["constant", "invsqrt"])
@pytest.mark.parametrize("penalty", ["l2", "l1"])
def test_the_last_iterate_is_the_textbooks(loss, schedule, penalty, rows):
    X, y = rows
    steps = {"constant": lambda k: 0.3, "invsqrt": lambda k: 0.3 / np.sqrt(k)}[schedule]
    model, found = learned(loss, X, y, schedule=schedule, eta0=0.3, alpha=0.05, penalty=penalty)
    np.testing.assert_allclose(found, as_taught(loss, X, y, steps, 0.05, penalty=penalty)[-1], atol=1e-10)
    assert model.n_iter_ == K


def test_a_regression_starts_at_zero_as_well(rows):
    X, _ = rows
    y = X @ [1.0, -2.0, 0.5, 3.0] + 7.0
    _, found = learned("squared", X, y, st.LinearRegressor, eta0=0.2, alpha=0.01)  # a given step is a constant one
    np.testing.assert_allclose(found, as_taught("squared", X, y, lambda k: 0.2, 0.01)[-1], atol=1e-10)


@pytest.mark.independent
def test_hinge_by_sums_is_algorithm_23(rows):
    """The textbook adds up where we take means: its step is n times as short, its lambda n times as large."""
    X, y = rows
    n, lam, eta = len(y), 4.0, 0.3 / len(y)
    w, b = np.zeros(4), 0.0
    for _ in range(K):
        g, gb = np.zeros(4), 0.0
        for x, label in zip(X.astype(np.float64), y, strict=True):
            if label * (w @ x + b) <= 1:
                g, gb = g + label * x, gb + label
        g -= lam * w
        w, b = w + eta * g, b + eta * gb
    _, found = learned("hinge", X, y, schedule="constant", eta0=eta * n, alpha=lam / n)
    np.testing.assert_allclose(found, np.append(w, b), atol=1e-8)


def test_the_history_has_objective_gradient_norm_and_step_of_every_iterate(rows):
    X, y = rows
    model, _ = learned("log", X, y, schedule="invsqrt", eta0=0.5, alpha=0.05)
    path = as_taught("log", X, y, lambda k: 0.5 / np.sqrt(k), 0.05)
    X1 = np.hstack([X.astype(np.float64), np.ones((len(X), 1))])
    for z, k, record in zip(path, range(1, K + 1), model.history_, strict=True):
        objective = LOSSES["log"].value(X1 @ z, y).mean() + 0.025 * z[:-1] @ z[:-1]
        g = LOSSES["log"].gradient(X1 @ z, y) @ X1 / len(y) + 0.05 * np.append(z[:-1], 0.0)
        assert record["objective"] == pytest.approx(objective, rel=1e-12)
        assert record["gradient_norm"] == pytest.approx(np.linalg.norm(g), rel=1e-9)
        assert record["eta"] == pytest.approx(0.5 / np.sqrt(k))


@pytest.mark.independent
def test_the_gap_stays_below_the_bound_of_one_over_k(rows):
    X, y = rows
    X1 = np.hstack([X.astype(np.float64), np.ones((len(X), 1))])
    step = 1.0 / (0.25 * np.linalg.norm(X1, 2) ** 2 / len(y) + 0.01)  # one over the largest curvature
    model, _ = learned("log", X, y, schedule="constant", eta0=step, alpha=0.01)
    objective = lambda w: np.logaddexp(0, -y * (X1 @ w)).mean() + 0.005 * w[:-1] @ w[:-1]
    exact = minimize(objective, np.zeros(5), options={"gtol": 1e-9})
    gaps, distance = np.array(model.history_.column("objective")) - exact.fun, exact.x @ exact.x
    assert np.all(gaps <= 2 * distance / (step * np.arange(1, K + 1)))
    assert np.all(np.diff(gaps) < 0)


@pytest.mark.independent
def test_too_long_a_step_diverges_for_all_to_see(rows):
    X, y = rows
    with pytest.warns(st.NotConverged, match=r"the objective rose from 0\.5 to .* lower eta0"):
        model, _ = learned("squared", X, y, schedule="constant", eta0=2.5, alpha=0.01)
    objectives = model.history_.column("objective")
    path = as_taught("squared", X, y, lambda k: 2.5, 0.01)
    by_hand = [0.5 * ((X @ z[:-1] + z[-1] - y) ** 2).mean() + 0.005 * z[:-1] @ z[:-1] for z in path]
    np.testing.assert_allclose(objectives, by_hand[: len(objectives)], rtol=1e-6)
    assert objectives[-1] > 100 * objectives[0] > 50
    assert np.isfinite(model.coef_).all()
    assert "lower eta0" in model.history_.events[-1]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_before_numbers_overflow_it_stops_with_the_last_finite_weights(rows, dtype):
    X, y = rows
    options = dict(solver="gd", average=False, schedule="constant", eta0=100.0, max_iter=1000, dtype=dtype)
    with pytest.warns(st.NotConverged, match="gradient descent diverged"):
        model = st.LinearClassifier("squared", **options).fit(X, y)
    assert model.n_iter_ < 100
    assert np.isfinite(model.coef_).all()
    assert np.isfinite(model.history_.column("objective")).all()


def test_the_same_step_shorter_warns_of_nothing(rows):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        learned("squared", *rows, schedule="constant", eta0=0.3)


def test_without_average_false_given_steps_are_averaged_as_before(rows):
    X, y = rows
    options = dict(solver="gd", schedule="constant", eta0=0.3, alpha=0.05, max_iter=K, tol=0.0, dtype="float64")
    path = as_taught("hinge", X, y, lambda k: 0.3, 0.05)
    share = np.arange(1, K + 1) / np.arange(1, K + 1).sum()
    model = st.LinearClassifier("hinge", **options).fit(X, y)
    np.testing.assert_allclose(np.append(model.coef_[0], model.intercept_[0]), share @ path, atol=1e-10)


def test_a_run_that_was_cut_goes_on_to_the_same_bits(rows, tmp_path):
    X, y = rows
    options = dict(solver="gd", average=False, schedule="constant", eta0=0.3, alpha=0.01, dtype="float64", max_iter=40)

    class CutError(Exception):
        pass

    class Cut(st.Monitor):
        def epoch_done(self, record):
            if record["epoch"] == 25:
                raise CutError

    whole = st.LinearClassifier("log", **options).fit(X, y)
    with pytest.raises(CutError):
        st.LinearClassifier("log", **options).fit_stream(st.from_arrays(X, y), checkpoint=tmp_path / "c", monitor=Cut())
    again = st.LinearClassifier("log", **options).fit_stream(
        st.from_arrays(X, y), checkpoint=tmp_path / "c", resume=True
    )
    np.testing.assert_array_equal(again.coef_, whole.coef_)


# -------------------------------------------------------------------------------------- the step that was calibrated


@pytest.mark.parametrize("solver", ["sgd", "asgd", "adagrad", "ftrl"])
@pytest.mark.parametrize("parallel", ["serial", "mixing"])
def test_the_history_shows_the_calibrated_first_step(solver, parallel, rows):
    model = st.LinearClassifier(solver=solver, parallel=parallel, random_state=0).fit(*rows)
    assert model.history_.column("eta0") == [model.learner_.eta0] * 5
    assert model.learner_.eta0 > 0


def test_the_history_shows_a_given_first_step(rows):
    assert st.LinearClassifier(solver="sgd", eta0=0.25).fit(*rows).history_[0]["eta0"] == 0.25
