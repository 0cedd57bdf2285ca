"""The loops of factorization machines against their slow definition, and that against finite differences."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from steepest import kernels
from steepest.kernels.reference import fm
from steepest.learners.fm.factor_table import FactorTable
from steepest.learners.losses import LOSSES

SEED, N, RANK = 5, 12, 3


def machine(n_fields, n_outputs, rng):
    """(table as the kernels have it, the same as float64 arrays, fields of features)."""
    table = FactorTable(RANK, SEED, n_outputs, np.arange(n_fields))
    field = rng.integers(0, n_fields, N)
    table.take_in(np.arange(N, dtype=np.int32), field.astype(np.int64))
    w, squares, v = table.parts(table.used)
    w[..., 0] = rng.normal(size=w[..., 0].shape)
    w[..., 1], squares[...] = rng.random((N, n_outputs)), rng.random((N, n_outputs, n_fields))
    v[..., :RANK] = rng.normal(size=v[..., :RANK].shape) / 2
    outputs = np.array([np.resize([1.0, -1.0], n_outputs), *[np.zeros(n_outputs)], *[np.ones(n_outputs)] * 2])
    return (
        table,
        field,
        np.vstack([outputs, np.zeros(n_outputs), np.ones(n_outputs)]),
        rng.normal(size=(2, n_outputs)) ** 2,
    )


def slow(table, outputs, bias):
    w, squares, v = (part.astype(np.float64) for part in table.parts(table.used))
    return {
        "w": w[..., 0].copy(),
        "w_square": w[..., 1].copy(),
        "v": v[..., :RANK].copy(),
        "v_square": squares.copy(),
        "bias": bias[0].copy(),
        "bias_square": bias[1].copy(),
        "sign": outputs[0],
    }


def rows_of(rng, n, y):
    """Rows with up to six entries, some without any."""
    lengths = rng.integers(0, 7, n)
    indices = np.concatenate([rng.permutation(N)[:length] for length in lengths]).astype(np.int32)
    values = rng.normal(size=len(indices)).astype(np.float32)
    indptr = np.concatenate([[0], np.cumsum(lengths)])
    weight = rng.choice([0.0, 0.5, 1.0, 2.0, 2.5], n)
    return (
        kernels.Rows(indptr, indices, values, y, weight),
        [(indices[a:b], values[a:b].astype(np.float64)) for a, b in itertools.pairwise(indptr)],
        weight,
    )


def choices(**more):
    usual = dict(loss=LOSSES["log"].code, target_kind=0, eta=0.1, l2=0.05, start_square=1e-2, unit=1.0)
    return kernels.FmChoices(**usual | more)


@pytest.mark.parametrize("n_fields", [1, 4])
@pytest.mark.parametrize("n_outputs", [1, 3])
def test_scores_are_those_of_the_definition(n_fields, n_outputs):
    rng = np.random.default_rng(0)
    table, field, outputs, bias = machine(n_fields, n_outputs, rng)
    rows, slow_rows, _ = rows_of(rng, 200, None)
    for unit in (0.5, 0.0):
        found = np.empty((200, n_outputs))
        assert kernels.fm_scores(rows, table.arrays(bias, outputs), choices(unit=unit), found, 2) == 200
        expected = np.zeros_like(found)
        for r, (indices, x) in enumerate(slow_rows):
            length = np.sqrt(x @ x)
            x = x * unit if unit else x / (length or 1.0)
            expected[r] = [fm.score(slow(table, outputs, bias), field, indices, x, k) for k in range(n_outputs)]
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=3e-6)


def test_the_gradient_of_the_score_is_that_of_finite_differences():
    rng = np.random.default_rng(1)
    table, field, outputs, bias = machine(3, 2, rng)
    plain = slow(table, outputs, bias)
    indices, x = np.array([1, 4, 5, 9, 10]), rng.normal(size=5)
    for k in range(2):
        by_w, by_v = fm.score_gradient(plain, field, indices, x, k)
        for name, gradient in (("w", by_w), ("v", by_v)):
            array = plain[name][:, k]
            for place in np.ndindex(array.shape):
                before, h = array[place], 1e-5
                array[place] = before + h
                above = fm.score(plain, field, indices, x, k)
                array[place] = before - h
                below = fm.score(plain, field, indices, x, k)
                array[place] = before
                assert gradient[place] == pytest.approx((above - below) / (2 * h), abs=1e-7)


@pytest.mark.parametrize("n_fields", [1, 4])
@pytest.mark.parametrize("n_outputs", [1, 3])
def test_a_pass_learns_what_the_definition_learns(n_fields, n_outputs):
    rng = np.random.default_rng(2)
    table, field, outputs, bias = machine(n_fields, n_outputs, rng)
    plain = slow(table, outputs, bias)
    y = rng.integers(0, n_outputs, 40).astype(np.float64) if n_outputs > 1 else rng.choice([-1.0, 1.0], 40)
    rows, slow_rows, weight = rows_of(rng, 40, y)
    log, losses = LOSSES["log"], 0.0
    for r, row in enumerate(slow_rows):
        signs = np.where(np.arange(n_outputs) == y[r], 1.0, -1.0) if n_outputs > 1 else y[r : r + 1]
        scores = [fm.score(plain, field, *row, k) for k in range(n_outputs)]
        losses += weight[r] * float(np.sum(log.value(scores[0], signs[0]))) * (n_outputs == 1)
        fm.learn_row(
            plain, field, row, lambda z, k, s=signs: float(log.gradient(z, s[k])), 0.1, 0.05, 1e-2, float(weight[r])
        )
    done, status, loss_sum, weight_sum = kernels.fm_learn(
        rows, table.arrays(bias, outputs), choices(target_kind=int(n_outputs > 1))
    )
    assert (done, status) == (40, 0)
    assert weight_sum == pytest.approx(weight.sum())
    if n_outputs == 1:
        assert loss_sum == pytest.approx(losses, rel=1e-5)
    after = slow(table, outputs, bias)
    for name in plain:
        np.testing.assert_allclose(after[name], plain[name], rtol=2e-5, atol=2e-6, err_msg=name)


def test_first_factors_depend_on_what_they_belong_to_alone():
    owners, ids = np.array([7, 2**30, 3], np.int32), np.array([40, 11])
    table = FactorTable(RANK, SEED, 2, ids)
    table.take_in(owners, np.array([40, 11, 40]))
    factors = table.parts(table.used)[2]
    size = 0.1 / np.sqrt(RANK)
    for row, f, k, c in np.ndindex(3, 2, 2, RANK):
        expected = fm.first_factor(SEED, int(owners[row]), int(ids[f]), k, c, size)
        assert factors[row, k, f, c] == np.float32(expected)
    assert not factors[..., RANK:].any()


def test_an_index_out_of_range_ends_the_pass_there():
    rng = np.random.default_rng(3)
    table, _, outputs, bias = machine(2, 1, rng)
    rows = kernels.Rows(np.array([0, 1, 2]), np.array([3, N], np.int32), np.ones(2, np.float32), np.ones(2))
    assert kernels.fm_learn(rows, table.arrays(bias, outputs), choices())[:2] == (1, 1)
    assert kernels.fm_scores(rows, table.arrays(bias, outputs), choices(), np.empty((2, 1))) == 1


def test_values_that_are_not_finite_are_reported():
    rng = np.random.default_rng(4)
    table, _, outputs, bias = machine(1, 1, rng)
    rows = kernels.Rows(np.array([0, 1]), np.array([3], np.int32), np.full(1, np.inf, np.float32), np.ones(1))
    assert kernels.fm_learn(rows, table.arrays(bias, outputs), choices())[:2] == (0, 2)


@pytest.mark.parametrize("field", [None, np.array([0] * (N - 1) + [7], np.int32), np.zeros(3, np.int32)])
def test_fields_that_do_not_fit_are_refused(field):
    table, _, outputs, bias = machine(2, 1, np.random.default_rng(5))
    arrays = kernels.FmArrays(table.used, 2, RANK, field, bias, outputs)
    rows = kernels.Rows(np.array([0, 1]), np.array([3], np.int32), np.ones(1, np.float32))
    with pytest.raises(ValueError, match="field"):
        kernels.fm_scores(rows, arrays, choices(), np.empty((1, 1)))
