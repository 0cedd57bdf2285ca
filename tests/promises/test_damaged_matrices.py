"""A sparse matrix whose arrays lie about themselves: every estimator and method says so in one sentence."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

import steepest as st
from steepest import registry

METHODS = ("fit", "partial_fit", "predict", "predict_proba", "decision_function", "transform", "score", "explain",
           "fold_in", "objective")  # fmt: skip


def matrix() -> sp.csr_matrix:
    rows = sp.random(200, 30, density=0.2, format="csr", dtype=np.float32, random_state=0)
    rows.data[:] = 1 + np.arange(rows.nnz) % 5
    return rows


def _starts(X):
    X.indptr[100] = 2**31 - 1


def _falls(X):
    X.indptr[100] = -7


def _ends(X):
    X.indptr[-1] = X.nnz + 1_000_000


def _first(X):
    X.indptr[0] = 3


def _index(X):
    X.indices[50] = 2**31 - 1


def _negative(X):
    X.indices[50] = -1


def _short(X):
    X.indices = X.indices[:-20]


def _values(X):
    X.data = X.data[:-20]


DAMAGES = {f.__name__.strip("_"): f for f in (_starts, _falls, _ends, _first, _index, _negative, _short, _values)}
TARGETS = np.arange(200) % 2


def fitted(name: str):
    """The estimator after a fit of sound rows, and the arguments that its methods take besides X."""
    kind = getattr(st, name)
    if name == "MatrixFactorization":
        return kind(4, epochs=1, random_state=0).fit(matrix()), ()
    if name == "KMeans":
        return kind(3, epochs=1, random_state=0).fit(matrix()), ()
    if name == "LinearRanker":
        groups = np.repeat(np.arange(20), 10)
        return kind(epochs=1, random_state=0).fit(matrix(), TARGETS, groups), (TARGETS, groups)
    return kind(random_state=0).fit(matrix(), TARGETS), (TARGETS,)


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("name", sorted(registry.MODELS - {"TextClassifier"}))
def test_a_damaged_matrix_is_refused_before_any_library_reads_it(name, damage):
    model, more = fitted(name)
    for form in ("csr", "csc"):
        bad = matrix().asformat(form)
        damaged = DAMAGES[damage]
        if form == "csc" and damage in ("starts", "falls"):
            bad.indptr[10] = 2**31 - 1 if damage == "starts" else -7
        else:
            damaged(bad)
        for method in METHODS:
            if not hasattr(model, method):
                continue
            arguments = more if method in ("fit", "partial_fit", "score", "objective") else ()
            if name == "MatrixFactorization" and method not in ("fit", "partial_fit", "fold_in"):
                continue  # these take pairs
            with pytest.raises(st.DataError, match=r"build it again|one row"):
                getattr(model, method)(bad, *arguments)


@pytest.mark.parametrize("damage", ["index", "negative"])
@pytest.mark.parametrize("solver", ["sgd", "asgd", "adagrad", "ftrl", "truncated", "coin"])
def test_a_kernel_that_gets_rows_as_they_are_refuses_a_damaged_one(solver, damage):
    bad = matrix()
    DAMAGES[damage](bad)
    penalty = "l1" if solver == "truncated" else "l2"
    for options in ({}, {"dtype": "float64"}, {"batch_size": 8}, {"early_stopping": True}, {"eta0": 0.1}):
        model = st.LinearClassifier("log", penalty=penalty, solver=solver, alpha=1e-4, epochs=1, **options)
        with pytest.raises(st.DataError, match="build it again"):
            model.fit(bad, TARGETS)


@pytest.mark.parametrize("make", [st.from_arrays, st.cross_validate], ids=["from_arrays", "cross_validate"])
def test_other_entrances_refuse_damage_too(make):
    bad = matrix()
    bad.indptr[100] = 2**31 - 1
    before = () if make is st.from_arrays else (st.LinearClassifier(),)
    with pytest.raises(st.DataError, match="build it again"):
        make(*before, bad, TARGETS)


def test_hashers_take_no_matrix_at_all():
    bad = matrix()
    bad.indptr[100] = 2**31 - 1
    for method in ("fit", "transform"):
        with pytest.raises(st.DataError, match="sparse matrix already"):
            getattr(st.Hasher(10), method)(bad)


def test_cells_and_diagonals_are_checked_as_well():
    cells = matrix().tocoo()
    cells.row[5] = 10_000
    with pytest.raises(st.DataError, match=r"row index 10000, which is outside 0\.\.199"):
        st.MatrixFactorization(2).fit(cells)
    diagonals = sp.dia_matrix((np.ones((2, 5)), [0, 1]), shape=(5, 5))
    diagonals.offsets = np.array([0, 1, 2])
    with pytest.raises(st.DataError, match="3 offsets for 2 diagonals"):
        st.from_arrays(diagonals)


@pytest.mark.parametrize("form", ["csr", "csc", "coo"])
def test_values_that_are_not_a_row_of_numbers_are_refused_in_every_form(form):
    for change in (lambda data: data.astype(object), lambda data: data.reshape(-1, 1)):
        bad = matrix().asformat(form)
        bad.data = change(bad.data)
        for model in (st.LinearClassifier(), st.KMeans(2), st.MatrixFactorization(2)):
            with pytest.raises(st.DataError, match=r"values of type object|2 dimensions"):
                model.fit(bad, *(() if isinstance(model, st.MatrixFactorization) else (TARGETS,)))


def test_sound_matrices_of_every_form_give_the_same_rows():
    expected = st.from_arrays(matrix()).block
    for form in ("csr", "csc", "coo", "lil", "dok", "bsr", "dia"):
        found = st.from_arrays(matrix().asformat(form)).block.packed()
        dense = sp.csr_matrix((found.values, found.indices, found.indptr), shape=(200, 30)).toarray()
        np.testing.assert_array_equal(dense, matrix().toarray(), err_msg=form)
    assert expected.n_rows == 200
