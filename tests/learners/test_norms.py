"""Norms of all weights as penalties: values, proximal maps, and minima against conditions and solvers of others."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.optimize as so

import steepest as st
from steepest.learners.losses import LOSSES
from steepest.learners.penalties import NORMS, Penalty, norm_contour

SMOOTH = ("squared_hinge", "log", "exponential", "modified_huber", "squared", "huber", "poisson")
norms = pytest.mark.parametrize("name", NORMS)


def problem(loss, n=90, d=6, seed=0):
    rng = np.random.default_rng(seed)
    X = (rng.standard_normal((n, d)) * [1, 3, 1, 0.3, 1, 1]).astype(np.float32)
    score = X @ rng.standard_normal(d) * 0.4 + 0.5 + 0.5 * rng.standard_normal(n)
    if LOSSES[loss].kind == "binary":
        return X, np.where(score > 0, 1.0, -1.0)
    return X, rng.poisson(np.exp(np.minimum(score, 2))).astype(float) if loss == "poisson" else score


def fitted(loss, X, y, **options):
    kind = st.LinearClassifier if LOSSES[loss].kind == "binary" else st.LinearRegressor
    return kind(loss, dtype="float64", random_state=0, **options).fit(X, y)


@norms
def test_values_are_those_of_numpy(name):
    order = 2 if name == "norm2" else np.inf
    w = np.random.default_rng(0).standard_normal((5, 3))
    assert Penalty(name).value(w[:, 0]) == pytest.approx(np.linalg.norm(w[:, 0], order), rel=1e-14)
    assert Penalty(name).value(w) == pytest.approx(sum(np.linalg.norm(w[:, k], order) for k in range(3)), rel=1e-14)
    assert Penalty(name).dual_norm(w[:, 0]) == pytest.approx(np.linalg.norm(w[:, 0], 2 if name == "norm2" else 1))
    assert Penalty(name).value(w * 1e200) < math.inf


@norms
@pytest.mark.parametrize("even", [True, False])
@pytest.mark.parametrize("seed", range(6))
def test_the_proximal_map_is_the_minimum_of_its_definition(name, even, seed):
    rng = np.random.default_rng(seed)
    w, step = rng.standard_normal(5) * 2, rng.uniform(0.05, 3.0, 5)
    step = np.full(5, step[0]) if even else step
    order = 2 if name == "norm2" else np.inf
    found = Penalty(name).prox(w, step)

    def cost(x):
        return 0.5 * np.sum((x - w) ** 2 / step) + np.linalg.norm(x, order)

    # x is best if the pull towards w is a subgradient of the norm: in its dual ball, and on its edge along x.
    pull = (w - found) / step
    assert np.linalg.norm(pull, 2 if name == "norm2" else 1) <= 1 + 1e-12
    assert pull @ found == pytest.approx(np.linalg.norm(found, order), abs=1e-12)
    assert all(cost(found) <= cost(found + 1e-3 * rng.standard_normal(5)) for _ in range(50))


@norms
def test_a_long_step_ends_at_zero_and_a_step_of_zero_changes_nothing(name):
    w = np.array([1.0, -2.0, 0.5])
    np.testing.assert_array_equal(Penalty(name).prox(w, 10.0), 0.0)
    np.testing.assert_array_equal(Penalty(name).prox(w, 0.0), w)
    both = Penalty(name).prox(np.stack([w, 100 * w], axis=1), 10.0)  # each output by itself
    np.testing.assert_array_equal(both[:, 0], 0.0)
    assert np.all(both[:, 1] != 0)


@norms
@pytest.mark.parametrize("loss", SMOOTH)
def test_gd_ends_where_the_conditions_of_a_minimum_hold(name, loss):
    X, y = problem(loss)
    alpha = 0.05
    model = fitted(loss, X, y, penalty=name, alpha=alpha, tol=1e-8, solver="gd")
    w, b = model.coef_[0], model.intercept_[0]
    g = LOSSES[loss].gradient(X @ w + b, y, 0.1) / len(y)
    pull, order = -(g @ X.astype(np.float64)), 2 if name == "norm2" else np.inf
    assert abs(g.sum()) < 1e-7  # the bias is free
    assert np.linalg.norm(pull, 2 if name == "norm2" else 1) == pytest.approx(alpha, rel=1e-5)
    assert pull @ w == pytest.approx(alpha * np.linalg.norm(w, order), rel=1e-6)
    value = LOSSES[loss].value(X @ w + b, y, 0.1).mean() + alpha * np.linalg.norm(w, order)
    assert model.objective(X, y) == pytest.approx(value, rel=1e-12)
    assert model.history_[-1]["objective"] == pytest.approx(value, rel=1e-9)
    assert model.history_[-1]["loss"] == pytest.approx(value - alpha * np.linalg.norm(w, order), rel=1e-9)


@pytest.mark.independent
def test_hinge_under_the_max_norm_is_the_linear_program():
    X, y = problem("hinge")
    n, d = X.shape
    cost = np.concatenate([np.zeros(d + 1), [0.05], np.full(n, 1 / n)])  # w, b, t, slacks
    rows = np.hstack([-y[:, None] * X, -y[:, None], np.zeros((n, 1)), -np.eye(n)])
    above = np.hstack([np.eye(d), np.zeros((d, 1)), -np.ones((d, 1)), np.zeros((d, n))])
    below = np.hstack([-np.eye(d), np.zeros((d, 1)), -np.ones((d, 1)), np.zeros((d, n))])
    bounds = [(None, None)] * (d + 1) + [(0, None)] * (n + 1)
    exact = so.linprog(
        cost, np.vstack([rows, above, below]), np.concatenate([-np.ones(n), np.zeros(2 * d)]), bounds=bounds
    )
    model = fitted("hinge", X, y, penalty="max", alpha=0.05, tol=1e-7)
    assert "solver='auto' chose 'gd'" in model.history_.events[0]
    assert model.objective(X, y) == pytest.approx(exact.fun, rel=1e-6)


def test_hinge_under_the_plain_2_norm_is_half_its_square_at_another_strength():
    X, y = problem("hinge")
    model = fitted("hinge", X, y, penalty="norm2", alpha=0.05, tol=1e-8, solver="gd")
    other = fitted("hinge", X, y, penalty="l2", alpha=0.05 / np.linalg.norm(model.coef_), tol=1e-10, solver="newton_cg")
    np.testing.assert_allclose(model.coef_, other.coef_, atol=1e-4)


@norms
def test_a_strong_norm_holds_all_weights_at_zero_and_leaves_the_bias_alone(name):
    X, y = problem("log")
    model = fitted("log", X, y, penalty=name, alpha=100.0)
    share = (y > 0).mean()
    assert model.n_nonzero_ == 0
    assert model.intercept_[0] == pytest.approx(np.log(share / (1 - share)), abs=1e-4)


@norms
def test_a_model_under_a_norm_is_saved_and_loaded(name, tmp_path):
    X, y = problem("log")
    model = fitted("log", X, y, penalty=name, alpha=0.05)
    model.save(tmp_path / "m")
    again = st.load(tmp_path / "m")
    assert again.objective(X, y) == model.objective(X, y)
    assert again.penalty == name


@pytest.mark.independent
@pytest.mark.parametrize("p", [0.3, 0.5, 1.0, 1.5, 2.0, 7.0, 300.0, math.inf])
def test_contours_have_the_norm_they_are_drawn_for(p):
    points = norm_contour(p, 2.0, 60)
    size = np.abs(points)
    found = size.max(axis=1) if math.isinf(p) else (size**p).sum(axis=1) ** (1 / p)
    np.testing.assert_allclose(found, 2.0, rtol=1e-9)


def test_below_1_a_point_between_two_of_the_same_norm_has_a_larger_one():
    a, b = np.array([1.0, 0.0]), np.array([0.0, 1.0])
    assert (np.abs((a + b) / 2) ** 0.5).sum() ** 2 > 1.5  # the reason why p below 1 is refused


# The bias is never penalised, however strong the penalty: the log odds of the classes are left.
BIAS_SOLVERS = ["saga", "lbfgs", "newton_cg", "cg", "gd", "dual_cd"]


@pytest.mark.independent
@pytest.mark.parametrize("solver", BIAS_SOLVERS)
@pytest.mark.parametrize("alpha", [10.0, 1e6])
def test_the_bias_is_free_under_any_strength(solver, alpha):
    rng = np.random.default_rng(3)
    X = rng.standard_normal((400, 3)).astype(np.float32)
    y = np.where(rng.random(400) < 0.89, 1, -1)
    odds = (y > 0).mean() / (y < 0).mean()
    model = st.LinearClassifier("log", alpha=alpha, solver=solver, tol=1e-8, random_state=0).fit(X, y)
    assert model.intercept_[0] == pytest.approx(np.log(odds), abs=1e-3)
    assert np.abs(model.coef_).max() < 1.0 / alpha
