"""The first step size: it does not learn noise by heart, it learns rare classes, and it suits more rows than it saw."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

import steepest as st


def rare_columns(n: int, n_columns: int, seed: int) -> sp.csr_matrix:
    """Five columns per row, most of which hardly any other row has."""
    rng = np.random.default_rng(seed)
    columns = rng.integers(0, n_columns, (n, 5))
    return sp.csr_matrix((np.ones(5 * n, np.float32), columns.ravel(), np.arange(0, 5 * n + 1, 5)), (n, n_columns))


def test_noise_among_rare_columns_is_not_learned_by_heart():
    """One column has information; the others invite to remember every row."""
    n = 6000
    rng = np.random.default_rng(0)
    signal = rng.random(2 * n) < 0.5
    y = np.where(rng.random(2 * n) < 0.75, signal, ~signal).astype(int)
    X = sp.csr_matrix(sp.hstack([signal[:, None].astype(np.float32), rare_columns(2 * n, 50_000, 1)]))
    model = st.LinearClassifier(random_state=0).fit(X[:n], y[:n])
    assert model.score(X[n:], y[n:]) > 0.73  # 0.75 is all there is to know


def test_noise_in_a_regression_leaves_no_more_than_the_mean_does():
    rng = np.random.default_rng(0)
    X, y = rare_columns(40_000, 3000, 2), rng.standard_t(3, 40_000)
    model = st.LinearRegressor(random_state=0).fit(X[:20_000], y[:20_000])
    left = np.mean((model.predict(X[20_000:]) - y[20_000:]) ** 2)
    assert left < 1.2 * y[20_000:].var()


@pytest.mark.parametrize("loss", ["hinge", "log"])
def test_classes_too_rare_to_judge_steps_by_are_learned_all_the_same(loss):
    """Of a thousand rows hardly two share a class, so that before learning no step is better than none."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 800, 4000)
    columns = np.column_stack([y, 800 + rng.integers(0, 800, 4000)]).astype(np.int32)
    X = sp.csr_matrix((np.ones(8000, np.float32), columns.ravel(), np.arange(0, 8001, 2)), (4000, 1600))
    model = st.LinearClassifier(loss, random_state=0).fit(X, y)
    assert model.score(X, y) > 0.9


def test_the_step_is_the_same_for_rows_of_any_scale():
    """Rows ten times as long get steps about a hundred times as small."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((2000, 20)).astype(np.float32)
    y = X @ rng.standard_normal(20) + rng.standard_normal(2000) > 0
    short, long = (
        st.LinearClassifier(solver="stochastic", alpha=1e-6, random_state=0).fit(scale * X, y) for scale in (1.0, 10.0)
    )
    assert short.learner_.eta0 / long.learner_.eta0 == pytest.approx(100, rel=0.5)
    assert (short.predict(X) == long.predict(10 * X)).mean() > 0.99
