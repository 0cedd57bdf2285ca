"""Promise 9: columns times constants, rows in another order and useless columns leave the default model as good.

Noise is the standard error of the mean loss on the test rows: a model that is worse by less could be as good on others.
Columns times constants are held to a fiftieth of that, since nothing about such a table is new.
"""

from __future__ import annotations

import functools

import numpy as np
import pandas as pd
import pytest

import steepest as st
from steepest.learners.batch.solvers import BATCH_SOLVERS

N = 3000  # rows to learn from, and as many to test on
POWERS = (3, -3, 2, -2, 1, -1, 4)
STOCHASTIC = ("sgd", "asgd", "adagrad", "ftrl", "coin", "stochastic")
SEEDS = range(2)


def table(seed, n=2 * N):
    """Curves, two pairs, and two columns that say the same: minutes and what they cost."""
    rng = np.random.default_rng(seed)
    minutes = np.round(rng.gamma(6, 30, n), 1)
    frame = pd.DataFrame(
        {
            "age": rng.integers(18, 80, n),
            "hour": rng.integers(0, 24, n),
            "income": np.round(rng.lognormal(3, 0.6, n), 2),
            "minutes": minutes,
            "charge": np.round(0.17 * minutes, 2),
            "calls": rng.poisson(1.6, n),
            "plan": rng.choice(["basic", "world"], n, p=[0.8, 0.2]),
            "region": rng.choice(list("abcdef"), n),
        }
    )
    score = 0.8 * np.sin(frame["hour"] / 3.8) + np.abs(frame["age"] - 45) / 25 + 0.3 * np.log(frame["income"])
    score += 2.0 * ((minutes > 220) != (frame["calls"] > 2)) + 2.0 * ((frame["plan"] == "world") & (frame["hour"] > 12))
    return frame, score.to_numpy() + rng.standard_normal(n)


def losses(frame, y, task, order=None):
    """Of the test rows, by the default model."""
    rows = np.arange(N) if order is None else order
    kind = st.LinearClassifier if task == "classify" else st.LinearRegressor
    model = kind(hasher=st.Hasher(n_bits=18), random_state=0)
    model.fit(frame.iloc[rows].reset_index(drop=True), y[rows])
    test = frame.iloc[N:].reset_index(drop=True)
    if task == "regress":
        return np.square(model.predict(test) - y[N:])
    place = np.searchsorted(model.classes_, y[N:])
    return -np.log(model.predict_proba(test)[np.arange(N), place])


@functools.cache
def plain(seed, task):
    frame, y = table(seed)
    y = np.where(y > np.quantile(y, 0.7), "yes", "no") if task == "classify" else y
    found = losses(frame, y, task)
    return frame, y, found.mean(), found.std() / np.sqrt(N)


tasks = pytest.mark.parametrize("task", ["regress", "classify"])
seeds = pytest.mark.parametrize("seed", SEEDS)


@tasks
@seeds
def test_columns_times_constants_leave_the_default_model_as_it_was(seed, task):
    frame, y, loss, noise = plain(seed, task)
    numbers = frame.select_dtypes("number").columns
    scaled = frame.assign(**{name: frame[name] * 10.0**power for name, power in zip(numbers, POWERS, strict=False)})
    assert abs(losses(scaled, y, task).mean() - loss) < noise / 50


@tasks
@seeds
def test_rows_in_another_order_leave_the_default_model_as_good(seed, task):
    frame, y, loss, noise = plain(seed, task)
    order = np.random.default_rng(100 + seed).permutation(N)
    assert abs(losses(frame, y, task, order).mean() - loss) < noise


@tasks
@seeds
def test_useless_columns_leave_the_default_model_as_good(seed, task):
    frame, y, loss, noise = plain(seed, task)
    rng = np.random.default_rng(200 + seed)
    useless = {f"number{k}": rng.standard_normal(2 * N) for k in range(4)}
    useless |= {f"category{k}": rng.choice(list("stuvwxyz"), 2 * N) for k in range(2)}
    assert losses(frame.assign(**useless), y, task).mean() - loss < noise


@pytest.mark.parametrize("solver", ["auto", *STOCHASTIC, *sorted({*BATCH_SOLVERS} - {"cd", "closed_form", "dual_cd"})])
def test_dense_rows_are_learned_alike_in_any_unit_and_order_by_every_solver(solver):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((N, 7)) + rng.standard_normal(7)
    y = (X @ rng.standard_normal(7) + rng.standard_normal(N) > 0).astype(int)

    def loss(X, rows=slice(0, 2000)):
        model = st.LinearClassifier(solver=solver, loss="log", random_state=0).fit(X[rows], y[rows])
        return -np.log(np.maximum(model.predict_proba(X[2000:])[np.arange(N - 2000), y[2000:]], 1e-9))

    before = loss(X)
    noise = before.std() / np.sqrt(len(before))
    assert abs(loss(X * 10.0 ** np.array(POWERS)).mean() - before.mean()) < noise / 50
    assert abs(loss(X, rng.permutation(2000)).mean() - before.mean()) < noise
    assert loss(np.hstack([X, rng.standard_normal((N, 1))])).mean() - before.mean() < noise
