"""The kernels of networks against their obvious definitions, and their manners with bad arrays."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st_

from steepest import kernels
from steepest.kernels.reference import network as reference

TOLERANCE = {np.float32: dict(rtol=2e-4, atol=2e-5), np.float64: dict(rtol=1e-10, atol=1e-12)}
floats = st_.sampled_from([np.float32, np.float64])


def rows_of(X):
    X = sp.csr_matrix(X)
    return kernels.Rows(X.indptr.astype(np.int64), X.indices.astype(np.int32), X.data.astype(np.float32))


def debts(stamp, path, l1, l2):
    return None if stamp is None else (stamp, path, l1, l2)


def problem(seed, n_rows, n_features, n_units, dtype):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n_rows, n_features)) * (rng.random((n_rows, n_features)) < 0.4)
    X = X.astype(np.float32)
    table = rng.standard_normal((n_features, n_units)).astype(dtype)
    return rng, X, table


sizes = dict(
    seed=st_.integers(0, 99),
    n_rows=st_.integers(1, 9),
    n_features=st_.integers(1, 20),
    n_units=st_.sampled_from([1, 3, 8, 17, 32, 70, 129]),
    dtype=floats,
)


@given(**sizes, l1=st_.sampled_from([0.0, 0.1]), l2=st_.sampled_from([0.0, 0.3]), lazy=st_.booleans())
@settings(max_examples=60)
def test_forward_pays_what_is_owed_and_scores_do_not_touch_the_table(
    seed, n_rows, n_features, n_units, dtype, l1, l2, lazy
):
    rng, X, table = problem(seed, n_rows, n_features, n_units, dtype)
    stamp = rng.random(n_features) if lazy else None
    expected, paid = reference.forward(X.astype(np.float64), table.astype(np.float64), stamp, 1.5, l1, l2)
    out = np.empty((n_rows, n_units), dtype)
    before = table.copy()
    done = kernels.network_scores(rows_of(X), table, debts(stamp, 1.5, l1, l2), out)
    assert done == n_rows
    np.testing.assert_allclose(out, expected, **TOLERANCE[dtype])
    np.testing.assert_array_equal(table, before)
    stamps = None if stamp is None else stamp.copy()
    kernels.network_forward(rows_of(X), table, debts(stamps, 1.5, l1, l2), out)
    np.testing.assert_allclose(out, expected, **TOLERANCE[dtype])
    np.testing.assert_allclose(table, paid, **TOLERANCE[dtype])
    if stamp is not None:
        assert (stamps == np.where((X != 0).any(axis=0), 1.5, stamp)).all()


@given(**sizes)
@settings(max_examples=60)
def test_gather_sums_the_gradient_of_the_features_that_occur(seed, n_rows, n_features, n_units, dtype):
    rng, X, _ = problem(seed, n_rows, n_features, n_units, dtype)
    gradients = rng.standard_normal((n_rows, n_units)).astype(dtype)
    slot = np.full(n_features, -1, np.int32)
    features, gradient = np.empty(n_features, np.int32), np.empty((n_features, n_units), dtype)
    n = kernels.network_gather(rows_of(X), gradients, slot, features, gradient)
    expected = reference.gather(X.astype(np.float64), gradients.astype(np.float64))
    assert sorted(features[:n].tolist()) == sorted(expected)
    for q, j in enumerate(features[:n].tolist()):
        np.testing.assert_allclose(gradient[q], expected[j], **TOLERANCE[dtype])
    assert (slot == -1).all()


@given(**sizes)
@settings(max_examples=40)
def test_plain_descent_moves_the_table_against_the_gathered_gradient(seed, n_rows, n_features, n_units, dtype):
    rng, X, table = problem(seed, n_rows, n_features, n_units, dtype)
    gradients = rng.standard_normal((n_rows, n_units)).astype(dtype)
    expected = table.astype(np.float64)
    for j, gradient in reference.gather(X.astype(np.float64), gradients.astype(np.float64)).items():
        expected[j] -= 0.3 * gradient
    assert kernels.network_descend(rows_of(X), gradients, 0.3, table) == n_rows
    np.testing.assert_allclose(table, expected, **TOLERANCE[dtype])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("solver", ["sgd", "momentum", "adagrad", "adam"])
def test_solvers_move_the_rows_named_and_no_others(solver, dtype):
    rng, _, table = problem(3, 1, 9, 12, dtype)
    first, second = np.zeros_like(table), np.zeros_like(table)
    w, f, s = (array.astype(np.float64) for array in (table, first, second))
    features = np.array([7, 2, 4], np.int32)
    for step in (1, 2, 3):
        g = rng.standard_normal((3, 12)).astype(dtype)
        kind = {"sgd": 0, "momentum": 1, "adagrad": 2, "adam": 3}[solver]
        epsilon = {"adagrad": 1e-7, "adam": 1e-8}.get(solver, 0.0)
        choices = kernels.NetworkChoices(kind=kind, keep_first=0.9, keep_second=0.999, epsilon=epsilon)
        kernels.network_update(choices, (0.1, step), features, g, table, first, second)
        w[features], f[features], s[features] = reference.update(
            solver, 0.1, 0.9, step, g.astype(np.float64), w[features], f[features], s[features]
        )
    np.testing.assert_allclose(table, w, **TOLERANCE[dtype])
    np.testing.assert_allclose(first, f, **TOLERANCE[dtype])
    np.testing.assert_allclose(second, s, **TOLERANCE[dtype])


@given(
    seed=st_.integers(0, 99),
    m=st_.integers(1, 20),
    p=st_.sampled_from([1, 2, 7, 255, 256, 300, 600]),
    n=st_.integers(1, 40),
    transposed=st_.booleans(),
    dtype=floats,
)
@settings(max_examples=60)
def test_product_is_right_and_a_row_s_bits_are_its_own(seed, m, p, n, transposed, dtype):
    rng = np.random.default_rng(seed)
    a, b = rng.standard_normal((m, p)).astype(dtype), rng.standard_normal((p, n)).astype(dtype)
    out, one = np.empty((m, n), dtype), np.empty((1, n), dtype)
    given_a = np.ascontiguousarray(a.T) if transposed else a
    kernels.network_multiply(given_a, b, out, transposed)
    np.testing.assert_allclose(out, a.astype(np.float64) @ b.astype(np.float64), rtol=1e-3, atol=1e-3)
    row = int(rng.integers(m))
    kernels.network_multiply(np.ascontiguousarray(a[row : row + 1]), b, one, False)
    np.testing.assert_array_equal(one[0], out[row])


@given(seed=st_.integers(0, 99), n=st_.integers(1, 9), k=st_.integers(1, 20), dtype=floats)
@settings(max_examples=40)
def test_softmax_agrees_with_its_definition(seed, n, k, dtype):
    rng = np.random.default_rng(seed)
    scores, classes = (5 * rng.standard_normal((n, k))).astype(dtype), rng.integers(0, k, n)
    factor, losses, gradients = rng.random(n), np.empty(n), np.empty((n, k), dtype)
    kernels.network_softmax(scores, classes, factor, losses, gradients)
    expected = reference.softmax(scores.astype(np.float64), classes, factor)
    np.testing.assert_allclose(losses, expected[0], rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(gradients, expected[1], **TOLERANCE[dtype])
    with pytest.raises(ValueError, match="out of range"):
        kernels.network_softmax(scores, classes - k, factor, losses, gradients)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_densify_adds_up_repeated_features_and_marks_those_that_occur(dtype):
    indptr, indices = np.array([0, 3, 4]), np.array([1, 1, 0, 3], np.int32)
    rows = kernels.Rows(indptr, indices, np.array([1.0, 2.0, 5.0, 7.0], np.float32), order=np.array([1, 0]))
    out, used = np.zeros((2, 4), dtype), np.zeros(4, np.uint8)
    assert kernels.network_densify(rows, out, used) == 2
    assert out.tolist() == [[0, 0, 0, 7], [5, 3, 0, 0]]
    assert used.tolist() == [1, 1, 0, 1]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("lazy", [False, True])
def test_results_are_bit_identical_for_any_threads(dtype, lazy):
    rng, X, table = problem(5, 37, 90, 70, dtype)
    gradients, stamp = rng.standard_normal((37, 70)).astype(dtype), rng.random(90) if lazy else None
    found = []
    for n_threads in (1, 2, 3, 8):
        w, stamps, out = table.copy(), None if stamp is None else stamp.copy(), np.empty((37, 70), dtype)
        shown, slot = np.empty((37, 70), dtype), np.full(90, -1, np.int32)
        kernels.network_scores(rows_of(X), w, debts(stamps, 1.5, 0.1, 0.2), shown, n_threads)
        assert kernels.network_forward(rows_of(X), w, debts(stamps, 1.5, 0.1, 0.2), out, n_threads) == 37
        features, gradient = np.empty(90, np.int32), np.empty((90, 70), dtype)
        n = kernels.network_gather(rows_of(X), gradients, slot, features, gradient, n_threads)
        assert kernels.network_descend(rows_of(X), gradients, 0.3, w, n_threads) == 37
        found.append((shown, out, w, features[:n], gradient[:n]))
    for others in found[1:]:
        for one, other in zip(found[0], others, strict=True):
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("solver", range(4))
@pytest.mark.parametrize("listed", [False, True])
def test_threads_share_an_update_without_a_trace(solver, listed):
    rng = np.random.default_rng(0)
    start, gradient = rng.standard_normal((2, 700, 64)).astype(np.float32)
    features = rng.permutation(700)[:600].astype(np.int32) if listed else None
    found = []
    for n_threads in (1, 2, 5):
        arrays = start.copy(), np.abs(start), np.abs(start)
        choices = kernels.NetworkChoices(kind=solver, keep_first=0.9, keep_second=0.999, epsilon=1e-8)
        kernels.network_update(choices, (0.1, 5), features, gradient, *arrays, n_threads)
        found.append(arrays)
    for others in found[1:]:
        for one, other in zip(found[0], others, strict=True):
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("transposed", [False, True])
def test_threads_share_the_rows_of_a_product(transposed):
    rng = np.random.default_rng(1)
    a, b = rng.standard_normal((131, 131)).astype(np.float32), rng.standard_normal((131, 50)).astype(np.float32)
    found = [np.empty((131, 50), np.float32) for _ in range(3)]
    for n_threads, out in zip((1, 2, 7), found, strict=True):
        kernels.network_multiply(a, b, out, transposed, n_threads)
    np.testing.assert_allclose(found[0], (a.T if transposed else a) @ b, rtol=1e-3, atol=1e-3)
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_array_equal(found[0], found[2])


def test_a_bad_index_stops_all_threads_at_the_same_row():
    indptr, indices = np.arange(33), np.full(32, 1, np.int32)
    indices[20] = 9
    values, table, out = np.ones(32, np.float32), np.zeros((3, 64), np.float32), np.zeros((32, 64), np.float32)
    for n_threads in (1, 2, 4):
        for stamp in (None, np.zeros(3)):
            rows = kernels.Rows(indptr, indices, values)
            assert kernels.network_forward(rows, table, debts(stamp, 1.0, 0.0, 0.1), out, n_threads) == 20
            assert kernels.network_descend(rows, out, 0.1, table, n_threads) == 20


def test_a_forked_child_has_threads_of_its_own():
    import multiprocessing

    if "fork" not in multiprocessing.get_all_start_methods():
        pytest.skip("this system cannot fork")
    expected = _big_product()
    with multiprocessing.get_context("fork").Pool(1) as pool:
        np.testing.assert_array_equal(pool.apply_async(_big_product).get(timeout=60), expected)


def _big_product():
    a = np.random.default_rng(2).standard_normal((200, 200)).astype(np.float32)
    out = np.empty((200, 200), np.float32)
    kernels.network_multiply(a, a, out, False, 2)
    return out


def test_kernels_refuse_what_would_leave_their_arrays():
    indptr, indices, values = np.array([0, 1]), np.array([5], np.int32), np.array([1.0], np.float32)
    rows = kernels.Rows(indptr, indices, values)
    table, out = np.zeros((3, 2), np.float32), np.zeros((1, 2), np.float32)
    assert kernels.network_forward(rows, table, None, out) == 0
    assert kernels.network_scores(rows, table, None, out) == 0
    slot, features = np.full(3, -1, np.int32), np.zeros(3, np.int32)
    assert kernels.network_gather(rows, out, slot, features, table) == -1
    plain, adam = kernels.NetworkChoices(kind=0), kernels.NetworkChoices(kind=3)
    with pytest.raises(ValueError, match="out of range"):
        kernels.network_update(
            plain, (0.1, 1), np.array([3], np.int32), np.zeros((1, 2), np.float32), table, None, None
        )
    with pytest.raises(ValueError, match="needs another array"):
        kernels.network_update(adam, (0.1, 1), None, table.copy(), table, None, None)
    with pytest.raises(ValueError, match="indptr"):
        kernels.Rows(np.array([0, 9]), indices, values)
    with pytest.raises(ValueError, match="not there"):
        kernels.Rows(indptr, indices, values, order=np.array([4]))
    with pytest.raises(ValueError, match="do not fit"):
        kernels.network_multiply(np.zeros((2, 3)), np.zeros((2, 3)), np.zeros((2, 3)), False)
