"""Arrays that are mostly zero as a mask and values: kernels as defined, and snapshots that come back bit for bit."""

from __future__ import annotations

import numpy as np
import pytest

from steepest import kernels
from steepest.kernels.reference import linear as reference
from steepest.learners.snapshot import Packed


def some_bits(n, share, width, seed=0):
    rng = np.random.default_rng(seed)
    return (rng.integers(1, 200, n) * (rng.random(n) < share)).astype(f"u{width}")


@pytest.mark.parametrize("n_threads", [1, 2, 5])
@pytest.mark.parametrize("width", [1, 2, 4, 8])
@pytest.mark.parametrize("n", [0, 1, 7, 8, 9, 1000, 300_001])
@pytest.mark.parametrize("share", [0.0, 0.1, 0.7, 1.0])
def test_masks_and_values_are_those_of_the_definition(n, share, width, n_threads):
    elements = some_bits(n, share, width)
    mask = np.full(-(-n // 8), 255, np.uint8)
    n_set = kernels.mark_nonzeros(elements, mask, n_threads)
    np.testing.assert_array_equal(mask, reference.mark_nonzeros(elements))
    values = np.empty(n_set, elements.dtype)
    kernels.pick_nonzeros(elements, mask, values, n_threads)
    np.testing.assert_array_equal(values, reference.pick_nonzeros(elements, mask))
    for place_type in (np.int32, np.int64):
        places = np.empty(n_set, place_type)
        kernels.list_places(mask, places, n_threads)
        np.testing.assert_array_equal(places, reference.list_places(mask))
    spread = np.full(n, 7, elements.dtype)
    assert kernels.spread_nonzeros(mask, values, spread, n_threads)
    np.testing.assert_array_equal(spread, reference.spread_nonzeros(mask, values, n))
    np.testing.assert_array_equal(spread, elements)


@pytest.mark.parametrize("n_threads", [1, 2])
@pytest.mark.parametrize("n", [0, 1, 9, 300_001])
@pytest.mark.parametrize("step", [2, 3, -1])
def test_columns_of_a_table_need_no_copy(n, step, n_threads):
    column = some_bits(n * abs(step), 0.4, 4)[::step]
    mask = np.empty(-(-n // 8), np.uint8)
    values = np.empty(kernels.mark_nonzeros(column, mask, n_threads), column.dtype)
    kernels.pick_nonzeros(column, mask, values, n_threads)
    np.testing.assert_array_equal(mask, reference.mark_nonzeros(column))
    np.testing.assert_array_equal(values, reference.pick_nonzeros(column, mask))


def test_places_that_do_not_fit_are_refused():
    for places, message in ((np.empty(2, np.int32), "does not fit"), (np.empty(1, np.int16), "4 or 8 bytes")):
        with pytest.raises(ValueError, match=message):
            kernels.list_places(np.array([4], np.uint8), places)


@pytest.mark.parametrize(("n", "mask", "n_values"), [(16, [3, 0], 1), (16, [1, 0], 2), (12, [0, 16], 1)])
def test_a_mask_that_does_not_fit_is_refused(n, mask, n_values):
    mask, values, elements = np.array(mask, np.uint8), np.ones(n_values, np.uint32), np.full(n, 7, np.uint32)
    assert reference.spread_nonzeros(mask, values, n) is None
    assert not kernels.spread_nonzeros(mask, values, elements)
    assert (elements == 7).all()
    with pytest.raises(ValueError, match="the mask"):
        kernels.pick_nonzeros(elements, mask, values)


@pytest.mark.parametrize("mask_size", [1, 3])
def test_a_mask_of_another_length_is_refused(mask_size):
    elements, mask = np.ones(16, np.uint32), np.zeros(mask_size, np.uint8)
    with pytest.raises(ValueError, match="the mask has another size"):
        kernels.mark_nonzeros(elements, mask)
    with pytest.raises(ValueError, match="the mask has another size"):
        kernels.spread_nonzeros(mask, elements[:0], elements)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_packed_tables_come_back_bit_for_bit(dtype):
    rng = np.random.default_rng(0)
    packed = Packed()
    for n_rows, share in ((100, 0.3), (100, 0.9), (100, 0.1), (250, 0.5), (0, 0.5)):  # with room, and without
        table = (rng.normal(size=(n_rows, 7)) * (rng.random((n_rows, 7)) < share)).astype(dtype)
        if n_rows:
            table[3, :3] = -0.0, np.nan, np.inf
        back = packed.take(table).table()
        assert back.shape == table.shape
        assert back.dtype == table.dtype
        assert back.tobytes() == table.tobytes()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("width", [5, 8])  # the outputs, and room for more
def test_norms_of_means_are_those_of_the_definition_for_any_number_of_threads(dtype, width):
    rng = np.random.default_rng(1)
    v, u = (rng.normal(size=(1000, width)).astype(dtype) for _ in range(2))
    v[::3], u[::3] = 0, 0
    expected = reference.mean_norms(v[:, :5], u[:, :5], 3.5, 7.25)
    for n_threads in (1, 3):
        found = kernels.mean_norms(v, u, 5, 3.5, 7.25, 13, n_threads)
        np.testing.assert_allclose(found, expected, rtol=1e-12)
        pairs = np.stack([v, u], axis=1)
        assert kernels.mean_norms(pairs, None, 5, 3.5, 7.25, 13, n_threads) == found
        assert found == kernels.mean_norms(v, u, 5, 3.5, 7.25, 13)
