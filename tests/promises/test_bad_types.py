"""Targets, weights and pairs of types that nobody expects: one sentence, whatever the estimator."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

import steepest as st
from promises.estimators import CASES

SUPERVISED = ("linear/sgd-two", "linear/numbers", "fm/numbers", "fm/log-four", "network/adam-four", "network/numbers")
N = 40
TARGETS = {
    "of different lengths": [[1, 2], [1]] * (N // 2),
    "without columns": np.ones((N, 0)),
    "objects": [object()] * N,
}
WEIGHTS = {
    "a word": "abc",
    "a dict": {},
    "complex": np.ones(N, complex),
    "a sparse column": sp.csr_matrix(np.ones((N, 1))),
    "objects": [object()] * N,
    "beyond float64": [10**400] * N,
}


def rows(name):
    data = CASES[name].data.head(N)
    return CASES[name].make(), data.X, data.y


@pytest.mark.parametrize("name", SUPERVISED)
@pytest.mark.parametrize("what", TARGETS)
def test_targets_of_odd_types_are_refused_by_a_sentence(name, what):
    model, X, _ = rows(name)
    with pytest.raises(st.DataError, match=r"^(y |Unknown label type)"):
        model.fit(X, TARGETS[what])


@pytest.mark.parametrize("name", [*SUPERVISED, "factors/als"])
@pytest.mark.parametrize("what", WEIGHTS)
def test_weights_of_odd_types_are_refused_by_a_sentence(name, what):
    model, X, y = rows(name)
    with pytest.raises(st.DataError, match=r"^sample_weight="):
        model.fit(X, y, sample_weight=WEIGHTS[what])


@pytest.mark.parametrize("X", [None, 3, sp.csr_matrix((5, 2))])
def test_what_holds_no_pairs_is_refused_by_a_sentence(X):
    model, pairs, y = rows("factors/als")
    with pytest.raises(st.DataError, match="give pairs of user and item"):
        model.fit(pairs, y).predict(X)


def test_lists_in_a_column_of_numbers_are_missing_values():
    hasher = st.Hasher().fit({"x": np.arange(9) / 3.0})
    odd = hasher.transform({"x": [["a"], {}, "word", 10**400]})
    np.testing.assert_array_equal(odd.toarray(), hasher.transform({"x": [None] * 4}).toarray())
