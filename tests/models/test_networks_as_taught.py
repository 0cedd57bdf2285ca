"""Networks of the lectures, rebuilt by hand in NumPy from the weights that the public names show."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import steepest as st

pytestmark = pytest.mark.independent


def bits(n):
    X = np.array(list(itertools.product([0, 1], repeat=n)))
    return X.astype(float), np.bitwise_xor.reduce(X, axis=1)


def forward(weights, X, layers):
    """Scores of a layered tanh network, a matrix product per layer."""
    h = X
    for k in range(1, layers + 1):
        below = "x" if k == 1 else f"h{k - 1}"
        h = np.tanh(h @ weights[f"{below}>h{k}"] + weights[f"bias h{k}"])
    score = h @ weights[f"h{layers}>y"] + weights["bias y"]
    return score if score.shape[1] == 1 else score[:, 1:] - score[:, :1]  # of a stream, classes have a score each


def log_loss(score, y):
    """Of two classes by one score."""
    return np.logaddexp(0, -np.where(y == 1, 1, -1) * score).mean()


@pytest.mark.parametrize(("n", "hidden"), [(2, (64,)), (3, (64,)), (3, (8, 8))])
def test_the_weights_learned_compute_the_parity_of_bits(n, hidden):
    X, y = bits(n)
    model = st.NetworkClassifier(hidden, random_state=0).fit(X, y)
    score = forward(model.weights_, X, len(hidden))[:, 0]
    np.testing.assert_array_equal(score > 0, y == 1)
    np.testing.assert_allclose(model.decision_function(X), score, atol=1e-4)


def test_restarts_keep_the_start_with_the_least_loss():
    X, y = bits(2)
    options = dict(hidden=(2,), epochs=60, eta0=0.05, dtype="float64")
    starts = [st.NetworkClassifier(random_state=seed, **options).fit(X, y) for seed in range(3, 8)]
    losses = [log_loss(forward(start.weights_, X, 1)[:, 0], y) for start in starts]
    best = int(np.argmin(losses))
    model = st.NetworkClassifier(restarts=5, random_state=3, **options).fit(X, y)
    assert len(set(np.round(losses, 6))) > 1
    assert f"kept start {best + 1} of 5, with loss {losses[best]:.5g}" in model.history_.events[-1]
    for name, weights in starts[best].weights_.items():
        np.testing.assert_array_equal(model.weights_[name], weights)


def test_held_out_rows_keep_the_epoch_with_the_least_loss_before_over_fitting():
    rng = np.random.default_rng(0)
    x = rng.uniform(-2, 2, (60, 1))
    y = np.sign(np.sin(3 * x[:, 0]) + 0.9 * rng.standard_normal(60))
    y[:2] = -1, 1  # classes of a stream are numbered as they come
    learned, held = slice(0, 25), slice(25, 60)
    options = dict(hidden=(16,), solver="adam", schedule="constant", eta0=0.1, batch_size=25, alpha=0.0)
    options.update(random_state=0, dtype="float64", shuffle="never")
    losses, trained = [], []
    for epochs in range(1, 121):
        model = st.NetworkClassifier(epochs=epochs, **options).fit_stream(st.from_arrays(x[learned], y[learned]))
        losses.append(log_loss(forward(model.weights_, x[held], 1)[:, 0], y[held]))
        trained.append(log_loss(forward(model.weights_, x[learned], 1)[:, 0], y[learned]))
    best = int(np.argmin(losses))
    assert best < 119
    assert trained[-1] < trained[best]  # more epochs fit the rows learned better, and the others worse
    stopping = st.EarlyStopping(patience=120)
    stopped = st.NetworkClassifier(epochs=120, early_stopping=stopping, **options)
    stopped.fit_stream(st.from_arrays(x[learned], y[learned]), validation=st.from_arrays(x[held], y[held]))
    np.testing.assert_allclose(stopped.history_.column("holdout_loss"), losses, atol=1e-8)
    found = log_loss(forward(stopped.weights_, x[held], 1)[:, 0], y[held])
    assert found == pytest.approx(losses[best], abs=1e-9)


def test_centres_widths_and_votes_take_one_step_of_the_chain_rule():
    """h = exp(-γ |x - c|²), score = Σ v h + b, squared loss in units of the targets' spread."""
    rng = np.random.default_rng(0)
    x = rng.uniform(-2, 2, (50, 2)).astype(np.float32).astype(float)
    y = np.sin(2 * x[:, 0]) * x[:, 1]
    target = (y - y.mean()) / y.std()
    options = dict(votes="backprop", solver="sgd", schedule="constant", eta0=0.05, batch_size=50, alpha=0.0)
    before, after = (
        st.RBFRegressor(5, epochs=epochs, random_state=0, shuffle="never", **options).fit(x, target)
        for epochs in (1, 2)
    )
    c, gamma, v = before.centers_, np.asarray(before.gamma_), before.votes_[:, 0]
    away = x[:, None, :] - c
    h = np.exp(-gamma * (away**2).sum(axis=2))
    score = before.predict(x)
    b = float(np.mean(score - h @ v))
    np.testing.assert_allclose(score, h @ v + b, atol=1e-5)
    error = (score - target) / 50
    down = error[:, None] * v * h  # of each row and unit, by the exponent
    np.testing.assert_allclose(after.votes_[:, 0], v - 0.05 * h.T @ error, atol=1e-5)
    towards = 2 * gamma[:, None] * np.einsum("ik,ikd->kd", down, away)
    np.testing.assert_allclose(after.centers_, c - 0.05 * towards, atol=1e-5)
    by_log = -gamma * (down * (away**2).sum(axis=2)).sum(axis=0)  # log γ is learned, so that γ stays positive
    np.testing.assert_allclose(after.gamma_, gamma * np.exp(-0.05 * by_log), atol=1e-5)
