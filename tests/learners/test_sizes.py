"""Sizes of features: mean and standard deviation as NumPy has them, found once, and folded back into the weights."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

import steepest as st
from steepest.data.source import from_arrays
from steepest.learners.linear.sizes import DENSE_SHARE, MOST_COLUMNS, Sizes

UNITS = np.array([1e-3, 1.0, 1e3, 1e6, 7.0, 1e-2])


def rows(n=500, filled=1.0, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 6)) + rng.uniform(-3, 3, 6)
    X[rng.random((n, 6)) >= filled] = 0
    return (X * UNITS).astype(np.float32)


def sizes_of(X, chunk_rows=1 << 20, centred=True):
    return Sizes.of(from_arrays(X, chunk_rows=chunk_rows), centred=centred)


@pytest.mark.parametrize("filled", [1.0, 0.5])
@pytest.mark.parametrize("as_sparse", [False, True])
def test_sizes_are_mean_and_standard_deviation(filled, as_sparse):
    X = rows(filled=filled)
    found = sizes_of(sp.csr_matrix(X) if as_sparse else X)
    np.testing.assert_allclose(found.centre, X.astype(np.float64).mean(axis=0), rtol=1e-9)
    np.testing.assert_allclose(found.scale, X.astype(np.float64).std(axis=0), rtol=1e-6)


def test_without_a_bias_nothing_is_centred():
    X = rows()
    found = sizes_of(X, centred=False)
    np.testing.assert_array_equal(found.centre, np.zeros(6))
    np.testing.assert_allclose(found.scale, np.sqrt((X.astype(np.float64) ** 2).mean(axis=0)), rtol=1e-9)


@pytest.mark.parametrize("chunk_rows", [1, 7, 64, 499])
def test_cuts_of_chunks_do_not_matter(chunk_rows):
    X = rows()
    whole, cut = sizes_of(X), sizes_of(X, chunk_rows)
    np.testing.assert_allclose(cut.centre, whole.centre, rtol=1e-12)
    np.testing.assert_allclose(cut.scale, whole.scale, rtol=1e-9)


def test_the_same_bits_from_arrays_and_from_any_chunks():
    X = rows(1500)
    y = X[:, 1] + X[:, 2] / 1e3
    for solver in ("sgd", "newton_cg"):
        make = st.LinearRegressor(solver=solver, shuffle="never", random_state=0)
        first = make.fit_stream(from_arrays(X, y)).coef_.copy()
        np.testing.assert_array_equal(make.fit_stream(from_arrays(X, y, chunk_rows=83)).coef_, first)


def test_sparse_rows_have_no_sizes():
    dense, sparse = rows(2000, 0.4), rows(2000, 0.2)
    assert sizes_of(dense) is not None
    assert sizes_of(sp.csr_matrix(sparse)) is None
    assert np.count_nonzero(sparse) < DENSE_SHARE * sparse.size < np.count_nonzero(dense)
    wide = sp.csr_matrix(np.ones((2, MOST_COLUMNS + 1), np.float32))
    assert sizes_of(wide) is None
    assert Sizes.of([], centred=True) is None


def test_rows_in_units_have_mean_0_and_deviation_1():
    X = rows(filled=0.6)
    (chunk,) = from_arrays(X)
    sized = sizes_of(X).applied(chunk)
    cells = sized.values.reshape(X.shape)
    np.testing.assert_allclose(cells.mean(axis=0), 0, atol=1e-5)
    np.testing.assert_allclose(cells.std(axis=0), 1, rtol=1e-5)
    np.testing.assert_array_equal(sized.indices, np.tile(np.arange(6), len(X)))


def test_rows_that_are_visited_keep_their_order():
    X = rows(20)
    (chunk,) = from_arrays(X)
    order = np.array([3, 3, 17, 0])
    found, all_rows = sizes_of(X), sizes_of(X).applied(chunk).values.reshape(X.shape)
    np.testing.assert_array_equal(found.applied(chunk.visit(order)).values.reshape(4, 6), all_rows[order])


def test_folded_weights_give_the_same_scores():
    X, rng = rows(), np.random.default_rng(1)
    u, b = rng.standard_normal((6, 3)), rng.standard_normal(3)
    found = sizes_of(X)
    (chunk,) = from_arrays(X)
    z = found.applied(chunk).values.reshape(X.shape).astype(np.float64)
    w, bias = found.folded(u, b)
    np.testing.assert_allclose(X.astype(np.float64) @ w + bias, z @ u + b, atol=1e-5)


@pytest.mark.parametrize("solver", ["sgd", "asgd", "adagrad", "ftrl", "newton_cg"])
def test_a_model_shows_weights_for_the_data_as_it_is(solver):
    X = rows(400)
    y = (X[:, 1] > X[:, 1].mean()).astype(int)
    model = st.LinearClassifier("log", solver=solver, random_state=0).fit(X, y)
    scores = X.astype(np.float64) @ model.coef_[0] + model.intercept_[0]
    np.testing.assert_allclose(model.decision_function(X), scores, rtol=1e-5, atol=1e-4)
    in_units = model.coef_[0] * X.astype(np.float64).std(axis=0)  # the penalty counts these
    objective = np.logaddexp(0, -scores * (2 * y - 1)).mean() + model.learner_.settings.alpha / 2 * (in_units**2).sum()
    assert model.objective(X, y) == pytest.approx(objective, rel=1e-4)


def test_constant_and_unheard_of_columns_are_left_as_they_are():
    X = np.column_stack([rows(50), np.full(50, 1e5, np.float32), np.zeros(50, np.float32)])
    found = sizes_of(X)
    assert found.scale[6] == found.scale[7] == 1.0
    assert found.centre[6] == 1e5
    later = np.column_stack([X, np.full(50, 4.0, np.float32)])
    (chunk,) = from_arrays(later)
    np.testing.assert_array_equal(found.applied(chunk).values.reshape(later.shape)[:, 8], 4.0)


def test_alpha_given_leaves_rows_as_they_are():
    X = rows()
    model = st.LinearClassifier(alpha=1e-4, random_state=0).fit(X, X[:, 0] > 0)
    assert model.learner_.sizes is None
    assert st.LinearClassifier(random_state=0).fit(X, X[:, 0] > 0).learner_.sizes is not None
