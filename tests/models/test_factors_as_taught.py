"""Factors, strata, mixing and shared memory as the lectures teach them, rebuilt by hand in NumPy."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

import steepest as st

pytestmark = pytest.mark.independent


@pytest.fixture(scope="module")
def ratings():
    rng = np.random.default_rng(0)
    P, Q = rng.standard_normal((30, 2)), rng.standard_normal((20, 2))
    pairs = np.array([(u, i) for u in range(30) for i in range(20) if rng.random() < 0.5])
    return pairs, (P[pairs[:, 0]] * Q[pairs[:, 1]]).sum(axis=1) + 0.1 * rng.standard_normal(len(pairs))


def in_units(model, y):
    """Factors in the units of learning, in which ratings have a spread of 1."""
    unit = np.sqrt(y.std())
    return model.user_factors_.astype(float) / unit, model.item_factors_.astype(float) / unit


@pytest.mark.parametrize("n_blocks", [1, 4])
def test_an_epoch_is_sgd_over_the_strata_in_their_order(ratings, n_blocks):
    """e = r - p·q, p ← p + eta (e q - alpha p), q likewise with the old p; blocks of a stratum in any order."""
    pairs, y = ratings
    how = dict(schedule="bold", eta0=0.05, alpha=0.02, weighting="count", biases=False, random_state=0)
    before, after = (st.MatrixFactorization(3, epochs=k, n_blocks=n_blocks, **how).fit(pairs, y) for k in (1, 2))
    strata = st.MatrixFactorization(3, epochs=2, n_blocks=n_blocks, **how).strata(pairs, y)
    p, q = in_units(before, y)
    users, items = np.argsort(strata.user_places), np.argsort(strata.item_places)  # the row at each place
    eta, visited = 0.05 * 1.05, []  # the bold driver: 5 % faster, since the loss has fallen
    for stratum in strata.sub_epochs(1):
        seen_users, seen_items = set(), set()
        for block in reversed(stratum):  # the other way round than the package
            mine = range(block.entries.start, block.entries.stop)
            rows = {users[strata.users[k]] for k in mine}, {items[strata.items[k]] for k in mine}
            assert not rows[0] & seen_users
            assert not rows[1] & seen_items
            seen_users |= rows[0]
            seen_items |= rows[1]
            for k in mine:
                u, i = users[strata.users[k]], items[strata.items[k]]
                error = float(strata.values[k]) - p[u] @ q[i]
                p[u], q[i] = p[u] + eta * (error * q[i] - 0.02 * p[u]), q[i] + eta * (error * p[u] - 0.02 * q[i])
                visited.append((before.user_ids_[u], before.item_ids_[i]))
    assert sorted(visited) == sorted(map(tuple, pairs.tolist()))  # every rating once
    for found, by_hand in zip(in_units(after, y), (p, q), strict=True):
        np.testing.assert_allclose(found, by_hand, atol=2e-5)


def test_alternating_least_squares_end_where_every_row_solves_its_own_equations(ratings):
    pairs, y = ratings
    how = dict(solver="als", alpha=0.05, weighting="count", biases=False, random_state=0)
    model = st.MatrixFactorization(3, epochs=400, **how).fit(pairs, y)
    tables, values = in_units(model, y), y / y.std()
    ids = model.user_ids_, model.item_ids_
    factors = [dict(zip(ids[side], tables[side], strict=True)) for side in (0, 1)]
    for side in (0, 1):
        for row, own in factors[side].items():
            mine = pairs[:, side] == row
            A, n = np.array([factors[1 - side][other] for other in pairs[mine, 1 - side]]), mine.sum()
            exact = np.linalg.solve(A.T @ A + 0.05 * n * np.eye(3), A.T @ values[mine])
            np.testing.assert_allclose(own, exact, atol=2e-3)


def test_the_generalised_kl_divergence_is_no_worse_than_that_of_scikit_learns_factors():
    from sklearn.decomposition import NMF

    rng = np.random.default_rng(0)
    V = rng.poisson(rng.gamma(1.0, 1.0, (40, 3)) @ rng.gamma(1.0, 1.0, (3, 25))).astype(float)
    V[V.sum(axis=1) == 0, 0] = 1

    def divergence(W, H):
        fit = np.maximum(W @ H, 1e-12)
        return (np.where(V > 0, V * np.log(np.maximum(V, 1e-300) / fit), 0) - V + fit).sum()

    peer = NMF(3, beta_loss="kullback-leibler", solver="mu", init="nndsvda", max_iter=2000, tol=1e-8, random_state=0)
    theirs = divergence(peer.fit_transform(V), peer.components_)
    model = st.MatrixFactorization(3, loss="kl", alpha=0.0, biases=False, epochs=500, random_state=0)
    model.fit(sp.csr_matrix(V))
    assert (model.user_factors_ >= 0).all()
    assert divergence(model.user_factors_.astype(float), model.item_factors_.astype(float).T) < 1.02 * theirs


# ---------------------------------------------------------------------------------------------- learning in parallel


def perceptron(X, y):
    """One epoch from zero, with a bias."""
    w, ones = np.zeros(X.shape[1] + 1), np.column_stack([X, np.ones(len(X))])
    for x, label in zip(ones, y, strict=True):
        if label * (x @ w) <= 0:
            w = w + label * x
    return w


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(1)
    X = rng.standard_normal((150, 5)).astype(np.float32).astype(float)
    return X, np.sign(X @ rng.standard_normal(5) + rng.standard_normal(150))


OPTIONS = dict(solver="sgd", average=False, alpha=0.0, epochs=1, dtype="float64", shuffle="never")


def test_shards_vote_as_perceptrons_by_hand_do(rows):
    X, y = rows
    shards = [perceptron(X[part], y[part]) for part in np.array_split(np.arange(150), 3)]
    votes = sum(np.sign(X @ w[:-1] + w[-1]) for w in shards)
    model = st.LinearClassifier("perceptron", parallel=st.Mixing(3, rounds=1, vote=True), **OPTIONS).fit(X, y)
    np.testing.assert_array_equal(model.predict(X), np.sign(votes))
    assert 0 < np.mean(np.abs(votes) == 1) < 1  # not always of one mind


@pytest.mark.parametrize("send", ["full", "float16"])
def test_the_bytes_of_a_round_are_counted_by_hand(rows, send):
    """Each shard sends, and is sent, a table of weights and its bias: 8 bytes a weight in float64, 2 as halves."""
    X, y = rows
    history = (
        st.LinearClassifier("log", parallel=st.Mixing(3, send=send), **{**OPTIONS, "epochs": 2}).fit(X, y).history_
    )
    other = st.LinearClassifier("log", parallel=st.Mixing(3, send=send), **{**OPTIONS, "epochs": 2})
    wider = other.fit(np.column_stack([X, np.random.default_rng(0).standard_normal((150, 100))]), y).history_
    per_weight = {"full": 8, "float16": 2}[send]
    for way in ("bytes_up", "bytes_down"):
        grown = wider[-1][way] - history[-1][way]  # 100 weights more for each of 3 shards, whatever else is sent
        assert grown == 3 * 100 * per_weight


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_threads_without_locks_lose_nothing_where_rows_share_nothing(n_jobs):
    """Every row has features of its own, so that any order and any race gives the steps of one thread."""
    n, eta = 3000, 0.3
    values = np.random.default_rng(0).uniform(0.5, 1.5, n).astype(np.float32).astype(float)
    y = np.where(np.arange(n) % 3 == 0, 1.0, -1.0)
    w = np.zeros(n)
    for _ in range(2):
        w -= eta * -y / (1 + np.exp(y * values * w)) * values
    options = {**OPTIONS, "epochs": 2, "schedule": "constant", "eta0": eta, "fit_intercept": False}
    model = st.LinearClassifier("log", parallel="hogwild", n_jobs=n_jobs, **options).fit(sp.diags(values).tocsr(), y)
    np.testing.assert_allclose(model.coef_[0], w, atol=1e-12)


def test_factors_without_locks_lose_nothing_where_ratings_share_nothing():
    n = 2000
    y = np.random.default_rng(0).standard_normal(n)
    pairs = np.column_stack([np.arange(n), np.arange(n)])
    how = dict(schedule="bold", eta0=0.1, alpha=0.02, weighting="count", biases=False, random_state=0)
    how.update(parallel="hogwild", n_jobs=2)
    before, after = (st.MatrixFactorization(3, epochs=k, **how).fit(pairs, y) for k in (1, 2))
    p, q = in_units(before, y)
    error = (y / y.std() - (p * q).sum(axis=1))[:, None]
    eta = 0.1 * 1.05
    p, q = p + eta * (error * q - 0.02 * p), q + eta * (error * p - 0.02 * q)
    for found, by_hand in zip(in_units(after, y), (p, q), strict=True):
        np.testing.assert_allclose(found, by_hand, atol=2e-5)


def test_hashed_classes_learn_what_one_against_the_rest_by_hand_learns(rows):
    """In a table with room to spare no two of the 18 weights meet."""
    X, _ = rows
    y = np.random.default_rng(5).integers(0, 3, 150)
    scores = []
    for c in range(3):
        signs, w, b = np.where(y == c, 1.0, -1.0), np.zeros(5), 0.0
        for x, label in zip(X, signs, strict=True):
            g = -label / (1 + np.exp(label * (x @ w + b)))
            w, b = w - 0.1 * g * x, b - 0.1 * g
        scores.append(X @ w + b)
    options = {**OPTIONS, "schedule": "constant", "eta0": 0.1}
    model = st.LinearClassifier("log", multi_class=st.Hashed(20), **options).fit(X, y)
    np.testing.assert_allclose(model.decision_function(X), np.array(scores).T, atol=1e-9)


def test_a_race_measures_gaps_from_the_minimum_that_scipy_finds(rows):
    from scipy.optimize import minimize

    X, y = rows

    def objective(wb):
        z = X @ wb[:-1] + wb[-1]
        g = -y / (1 + np.exp(y * z)) / 150
        return np.logaddexp(0, -y * z).mean() + 0.005 * wb[:-1] @ wb[:-1], np.append(g @ X + 0.01 * wb[:-1], g.sum())

    least = minimize(objective, np.zeros(6), jac=True, options={"gtol": 1e-12}).fun
    result = st.race(
        st.LinearClassifier("log", alpha=0.01), X, y, solvers=["sgd"], seconds=0.05, test=st.from_arrays(X, y)
    )
    assert result.optimum.objective == pytest.approx(least, abs=1e-10)
    assert result.best == pytest.approx(least, abs=1e-10)
