"""Methods of the lectures, rebuilt by hand in NumPy and compared through the public names."""

from __future__ import annotations

import numpy as np
import pytest

import steepest as st

EXACT = dict(dtype="float64", shuffle="never")


@pytest.fixture
def rows():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((120, 6)).astype(np.float32).astype(float)
    return X, X @ rng.standard_normal(6) + 0.7 + 0.8 * rng.standard_normal(120)


def all_weights(model):
    return np.append(model.coef_.ravel(), model.intercept_)


def perceptron(w, X, y, epochs):
    """(the last weights, the mean of all)."""
    total = np.zeros_like(w)
    for _ in range(epochs):
        for x, sign in zip(X, y, strict=True):
            if sign * (x @ w) <= 0:
                w = w + sign * x
            total += w
    return w, total / (epochs * len(y))


def test_the_perceptron_is_the_textbooks_and_so_is_its_average(rows):
    X, y = rows[0], np.sign(rows[1])
    last, mean = perceptron(np.zeros(7), np.column_stack([X, np.ones(120)]), y, 3)
    options = dict(alpha=0, epochs=3, **EXACT)
    averaged = st.LinearClassifier("perceptron", average=True, **options).fit(X, y)
    np.testing.assert_allclose(all_weights(averaged), mean, atol=1e-10)
    plain = st.LinearClassifier("perceptron", solver="sgd", average=False, **options).fit(X, y)
    np.testing.assert_allclose(all_weights(plain), last, atol=1e-10)


@pytest.mark.parametrize(("rounds", "epochs"), [(1, 2), (None, 3)])
def test_perceptrons_are_mixed_once_or_after_every_epoch(rows, rounds, epochs):
    X, y = rows[0], np.sign(rows[1])
    ones = np.column_stack([X, np.ones(120)])
    w = np.zeros(7)
    for _ in range(1 if rounds else epochs):
        shards = [
            perceptron(w, ones[half], y[half], epochs if rounds else 1)[0] for half in (slice(60), slice(60, 120))
        ]
        w = np.mean(shards, axis=0)
    mixing = st.Mixing(n_shards=2, rounds=rounds, weights="uniform")
    options = dict(alpha=0, epochs=epochs, solver="sgd", average=False, parallel=mixing, **EXACT)
    mixed = st.LinearClassifier("perceptron", **options).fit(X, y)
    np.testing.assert_allclose(all_weights(mixed), w, atol=1e-10)


def test_rows_that_come_one_by_one_each_make_a_step(rows):
    X, y = rows
    model = st.LinearRegressor(solver="sgd", eta0=0.01, schedule="constant", alpha=0.02, **EXACT)
    w, b = np.zeros(6), 0.0
    for i in range(120):
        model.partial_fit(X[i : i + 1], y[i : i + 1])
        error = X[i] @ w + b - y[i]
        w, b = (w - 0.01 * error * X[i]) / (1 + 0.01 * 0.02), b - 0.01 * error
    np.testing.assert_allclose(all_weights(model), np.append(w, b), atol=1e-10)


def test_conjugate_gradients_on_columns_of_one_length_are_the_lectures_step_by_step(rows):
    X, y = rows
    X = (10 * X / np.sqrt((X**2).sum(axis=0))).astype(np.float32).astype(float)
    ridge, w, right, values = 1.2, np.zeros(6), X.T @ y, []
    g = -right
    p = right
    for _ in range(4):
        w = w - (p @ g) / (ridge * p @ p + ((X @ p) ** 2).sum()) * p
        new = ridge * w + X.T @ (X @ w) - right
        p = -new + (new @ new) / (g @ g) * p
        g = new
        values.append((0.5 * ((y - X @ w) ** 2).sum() + 0.5 * ridge * w @ w) / 120)
    options = dict(solver="cg", alpha=ridge / 120, tol=1e-12, fit_intercept=False, dtype="float64")
    model = st.LinearRegressor(**options).fit(X, y)
    np.testing.assert_allclose(model.history_.column("objective")[:4], values, rtol=1e-8)


def test_newtons_method_takes_the_textbooks_steps(rows):
    X, y = rows[0], np.sign(rows[1])
    ones = np.column_stack([X, np.ones(120)])
    ridge = np.diag([0.05] * 6 + [0.0])
    w, values = np.zeros(7), []
    for _ in range(6):
        p = 1 / (1 + np.exp(-ones @ w))
        gradient = ones.T @ (p - (y > 0)) / 120 + ridge @ w
        w = w - np.linalg.solve((ones.T * (p * (1 - p))) @ ones / 120 + ridge, gradient)
        values.append(np.log1p(np.exp(-y * (ones @ w))).mean() + 0.5 * w @ ridge @ w)
    model = st.LinearClassifier("log", alpha=0.05, solver="newton_cg", tol=1e-12, dtype="float64").fit(X, y)
    np.testing.assert_allclose(model.history_.column("objective")[:4], values[:4], atol=1e-5)
    np.testing.assert_allclose(all_weights(model), w, atol=1e-6)


@pytest.mark.parametrize("fit_intercept", [False, True])
def test_of_many_exact_solutions_the_closed_form_is_the_shortest(fit_intercept):
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((5, 20)).astype(np.float32).astype(float), rng.standard_normal(5)
    options = dict(solver="closed_form", alpha=0, fit_intercept=fit_intercept, dtype="float64")
    model = st.LinearRegressor(**options).fit(X, y)
    shift = X.mean(axis=0), y.mean()
    centred = (X - shift[0], y - shift[1]) if fit_intercept else (X, y)
    np.testing.assert_allclose(model.coef_.ravel(), np.linalg.lstsq(*centred, rcond=None)[0], atol=1e-8)


def test_a_hidden_layer_takes_one_step_of_the_chain_rule(rows):
    X, y = rows
    y = (y - y.mean()) / y.std()
    options = dict(
        hidden=(5,), solver="sgd", eta0=0.1, schedule="constant", alpha=0, batch_size=120, random_state=0, **EXACT
    )
    before, after = (st.NetworkRegressor(epochs=epochs, **options).fit(X, y) for epochs in (1, 2))
    W, c, v, b = (before.weights_[name] for name in ("x>h1", "bias h1", "h1>y", "bias y"))
    h = np.tanh(X @ W + c)
    e = (h @ v)[:, 0] + b[0] - y
    np.testing.assert_allclose(before.predict(X), e + y, atol=1e-9)
    down = e[:, None] * v[:, 0] * (1 - h**2)
    np.testing.assert_allclose(after.weights_["x>h1"], W - 0.1 * X.T @ down / 120, atol=1e-10)
    np.testing.assert_allclose(after.weights_["bias h1"], c - 0.1 * down.mean(axis=0), atol=1e-10)
    np.testing.assert_allclose(after.weights_["h1>y"][:, 0], v[:, 0] - 0.1 * h.T @ e / 120, atol=1e-10)
    np.testing.assert_allclose(after.weights_["bias y"], b - 0.1 * e.mean(), atol=1e-10)
