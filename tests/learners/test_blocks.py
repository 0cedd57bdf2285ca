"""Strengths of the penalty for blocks of features: those of MacKay's equations, and what they do for tables."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import steepest as st
from steepest.data.source import from_arrays
from steepest.learners.batch.batch_data import BatchData
from steepest.learners.batch.blocks import MOST_CHANGE, Blocks, BlockStrengths, most_probable_strengths
from steepest.learners.batch.objective import Objective
from steepest.learners.batch.strength import solve
from steepest.learners.linear.linear import LinearLearner
from steepest.learners.linear.linear_settings import LinearSettings
from steepest.models.linear import LinearModel

ALPHA = 0.01


def numbers(n=800, seed=0):
    """Four blocks of three columns: strong, weak, and two that say nothing."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 12)).astype(np.float32)
    w = np.concatenate([[2.0, -1.5, 1.0], [0.1, -0.2, 0.15], np.zeros(6)])
    return X, X @ w + 0.7 * rng.standard_normal(n)


def solved(X, y, task="regress", loss="squared"):
    labels = [] if task == "regress" else np.unique(y).tolist()
    settings = LinearSettings(task=task, loss=loss, solver="newton_cg", alpha=ALPHA, l2=ALPHA, dtype="float64")
    objective = Objective(BatchData(from_arrays(X, y), LinearLearner(settings, X.shape[1], labels)))
    return objective, solve(objective, "newton_cg", 1e-10)


def by_mackay(X, y, block, rounds=10):
    """The fixed point of a Bayesian ridge regression, by the full Hessian: the definition, with nothing left out."""
    n, d = X.shape
    centred, target = X - X.mean(axis=0), y - y.mean()
    factors = np.ones(block.max() + 1)
    first = np.linalg.solve(centred.T @ centred / n + ALPHA * np.eye(d), centred.T @ target / n)
    squares = np.square(target - centred @ first).sum()
    for _ in range(rounds):
        l2 = ALPHA * factors[block]
        inverse = np.linalg.inv(centred.T @ centred / n + np.diag(l2))
        w = inverse @ centred.T @ target / n
        determined = np.bincount(block, 1 - l2 * np.diag(inverse))
        noise = squares / (n - determined.sum())
        factors = np.clip(determined * noise / (n * np.bincount(block, w * w)) / ALPHA, 1 / MOST_CHANGE, MOST_CHANGE)
    return factors


def test_strengths_of_a_regression_are_those_of_mackays_equations():
    X, y = numbers()
    block = np.arange(12) // 3
    objective, w = solved(X, y)
    found = most_probable_strengths(objective, w, Blocks(tuple("abcd"), block))
    expected = by_mackay(X.astype(np.float64), y, block)
    assert np.abs(np.log(found.factors / expected)).max() <= np.log(2) + 1e-3  # rounded to a power of four
    assert found.factors[0] < 0.2
    assert found.factors[0] < found.factors[1] < found.factors[2:].min()


@pytest.mark.parametrize("kind", ["two classes", "three classes", "counts"])
def test_blocks_that_say_nothing_get_the_strongest_penalty(kind):
    X, score = numbers(1500)
    rng = np.random.default_rng(1)
    if kind == "counts":
        objective, w = solved(X, rng.poisson(np.exp(0.3 * score)).astype(float), loss="poisson")
    else:
        cuts = [0.0] if kind == "two classes" else [-1.0, 1.0]
        objective, w = solved(X, np.digitize(score, cuts).astype(float), "classify", "log")
    factors = most_probable_strengths(objective, w, Blocks(tuple("abcd"), np.arange(12) // 3)).factors
    assert factors[0] == factors.min() <= factors[1] < factors[2:].min()


def test_strengths_are_powers_of_four_and_a_mean_over_parts_is_geometric():
    blocks = Blocks(("a", "b"), np.array([0, 1, 1]))
    parts = [BlockStrengths(blocks, np.array([1.0, 256.0])), BlockStrengths(blocks, np.array([16.0, 1.0]))]
    mean = BlockStrengths.mean(parts)
    assert mean.factors.tolist() == [4.0, 16.0]
    assert mean.roots(np.array([2, 0])).tolist() == [0.25, 0.5]
    assert BlockStrengths(blocks, np.array([0.25, 64.0])).sentence() == "weaker for a (1/4); stronger for b (64)"


def test_features_that_a_sample_lacks_belong_to_the_column_with_most_rare_ones():
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"colour": rng.choice(list("rgb"), 300), "street": [f"s{k}" for k in rng.integers(0, 400, 300)]})
    hasher = st.Hasher(n_bits=20, categorical=["colour", "street"]).fit(X)
    blocks = Blocks(*[hasher.columns_of_features(X)[k] for k in (0, 2, 1, 3)])
    assert blocks.names == ("colour", "street")
    known = [hasher.bucket("colour=r"), hasher.bucket(f"street={X['street'][0]}"), hasher.bucket("street=s999")]
    assert blocks.of(np.array(known)).tolist() == [0, 1, 1]


def table(seed, n=3000):
    """A column that decides beside thirty useless ones, some of them with many values."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame({f"number{k}": rng.standard_normal(n) for k in range(15)})
    for k in range(15):
        frame[f"category{k}"] = [f"v{value}" for value in rng.integers(0, 20, n)]
    frame["plan"] = rng.choice(["basic", "world", "none"], n)
    score = 2.0 * (frame["plan"] == "world") - frame["number0"]
    return frame, np.where(rng.random(n) < 1 / (1 + np.exp(-score)), "yes", "no")


def fitted(frame, y, **options):
    return st.LinearClassifier(hasher=st.Hasher(n_bits=16), random_state=0, **options).fit(frame, y)


def loss(model, frame, y):
    return -np.log(model.predict_proba(frame)[np.arange(len(y)), np.searchsorted(model.classes_, y)])


def test_useless_columns_cost_less_with_a_penalty_for_each_column(monkeypatch):
    frame, y = table(0)
    new, labels = table(1)
    model = fitted(frame, y)
    (said,) = [event for event in model.history_.events if event.startswith("a penalty for each column: ")]
    assert "weaker for plan" in said
    monkeypatch.setattr(LinearModel, "_blocks", lambda self, rows: None)
    plain = fitted(frame, y)
    gains = loss(plain, new, labels) - loss(model, new, labels)
    assert gains.mean() > 3 * gains.std() / np.sqrt(len(gains))
    assert gains.mean() > 0.01


def test_one_strength_is_kept_where_all_columns_are_alike():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((1000, 10))
    model = st.LinearRegressor(random_state=0).fit(X, X @ np.ones(10) + rng.standard_normal(1000))
    assert not any("for each column" in event for event in model.history_.events)


def test_the_strengths_do_not_change_what_weights_mean(tmp_path):
    frame, y = table(0)
    model = fitted(frame, y)
    assert any("for each column" in event for event in model.history_.events)
    rows = model.hasher_.transform(frame[:50])
    scores = rows @ model.coef_[0] + model.intercept_[0]
    np.testing.assert_allclose(model.decision_function(frame[:50]), scores, rtol=1e-4, atol=1e-5)
    model.save(tmp_path / "model")
    np.testing.assert_array_equal(
        st.load(tmp_path / "model").predict_proba(frame[:50]), model.predict_proba(frame[:50])
    )
    model.partial_fit(frame[:500], y[:500])
    assert np.mean(model.predict(frame[500:]) == y[500:]) > 0.7


def test_threads_leave_the_bits_and_a_resumed_run_too(tmp_path, monkeypatch):
    X, _ = numbers(2000)
    y = (X[:, 0] + 0.3 * np.random.default_rng(0).standard_normal(2000) > 0).astype(int)
    source = from_arrays(X, y)
    model = st.LinearClassifier(random_state=0).fit_stream(source)
    assert any("for each column" in event for event in model.history_.events)
    two = st.LinearClassifier(random_state=0, n_jobs=2).fit_stream(source)
    np.testing.assert_array_equal(two.coef_, model.coef_)

    class Watch(st.Monitor):
        """Asks once for an end, after two iterations."""

        left, resumed = 2, ""

        def event(self, text):
            self.resumed = self.resumed or text * text.startswith("resumed")

        def wants_stop(self):
            self.left -= 1
            return self.left == 0

    watch = Watch()
    options = {"checkpoint": tmp_path / "c", "monitor": watch}
    st.LinearClassifier(random_state=0).fit_stream(source, **options)
    resumed = st.LinearClassifier(random_state=0).fit_stream(source, **options, resume=True)
    assert watch.resumed.startswith("resumed after iteration 2")
    np.testing.assert_array_equal(resumed.coef_, model.coef_)
