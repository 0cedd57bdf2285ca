"""Chunks: rows packed by runs are those that were visited, one by one."""

from __future__ import annotations

import numpy as np
import pytest

from steepest.data.chunk import Chunk, concatenate


def rows_with(lengths, seed=0):
    rng = np.random.default_rng(seed)
    indptr = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    indices = rng.integers(0, 50, indptr[-1]).astype(np.int32)
    values = rng.standard_normal(indptr[-1]).astype(np.float32)
    return Chunk(indptr, indices, values, 50, np.arange(len(lengths)) * 1.0, rng.random(len(lengths)))


def one_by_one(chunk):
    places = [(chunk.indptr[i], chunk.indptr[i + 1]) for i in chunk.row_numbers]
    return [(chunk.indices[a:b].tolist(), chunk.values[a:b].tolist()) for a, b in places]


ORDERS = {
    "all": None,
    "none": np.zeros(0, np.int64),
    "runs": np.flatnonzero(np.arange(3000) // 128 % 3 == 1),
    "shuffled": np.random.default_rng(1).permutation(3000),
    "twice": np.repeat(np.arange(1000, 1400), 2),
}


@pytest.mark.parametrize("name", list(ORDERS))
@pytest.mark.parametrize("longest", [1, 3, 90])
def test_packed_rows_are_those_visited(name, longest):
    lengths = np.random.default_rng(2).integers(0, longest, 3000)
    chunk = rows_with(lengths)
    visited = chunk if ORDERS[name] is None else chunk.visit(ORDERS[name])
    packed = visited.packed()
    assert packed.order is None
    assert one_by_one(packed) == one_by_one(visited)
    np.testing.assert_array_equal(packed.y, visited.visited(chunk.y))
    np.testing.assert_array_equal(packed.weight, visited.visited(chunk.weight))


def test_a_span_packs_into_arrays_of_its_own():
    chunk = rows_with(np.full(500, 80))
    packed = chunk.span(100, 300).packed()
    assert one_by_one(packed) == one_by_one(chunk)[100:300]
    packed.values[:] = 0
    assert chunk.values.all()
    joined = concatenate([chunk.span(0, 100), chunk.span(100, 500)])
    assert one_by_one(joined) == one_by_one(chunk)


def test_a_span_of_all_rows_is_the_chunk_itself():
    chunk = rows_with(np.full(5, 3))
    assert chunk.span(0, 5) is chunk
    assert chunk.span(1, 5).n_rows == 4
