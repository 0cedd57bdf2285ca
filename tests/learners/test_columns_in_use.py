"""Batch solvers see the columns in use only: the same optimum whatever the number of columns, whatever the chunks."""

import numpy as np
import pytest
import scipy.sparse as sp

import steepest as st
from steepest.data.source import from_arrays
from steepest.data.store import row_store
from steepest.learners.batch import batch_data
from steepest.learners.batch.batch_data import BatchData
from steepest.learners.batch.closed_form import ClosedForm
from steepest.learners.batch.objective import Objective
from steepest.learners.batch.solvers import BATCH_SOLVERS, SolverOptions
from steepest.learners.linear.slots import MOST_DIRECT

WIDE = 1 << 20
PENALTY = {"cd": "l1"}


def problem(n=120, d=12, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d)).astype(np.float32)
    X[rng.random((n, d)) < 0.3] = 0
    score = X @ rng.standard_normal(d) + rng.standard_normal(n)
    return X, score, np.sort(rng.choice(WIDE, d, replace=False))


def widened(X, columns, width=WIDE):
    rows = sp.csr_matrix(X)
    return sp.csr_matrix((rows.data, columns[rows.indices].astype(np.int32), rows.indptr), shape=(len(X), width))


def regressor(solver, **options):
    return st.LinearRegressor(
        solver=solver,
        penalty=PENALTY.get(solver, "l2"),
        alpha=0.01,
        tol=1e-13,
        dtype="float64",
        random_state=0,
        **options,
    )


@pytest.mark.parametrize("solver", BATCH_SOLVERS)
@pytest.mark.filterwarnings("ignore::steepest.NotConverged")
def test_empty_columns_do_not_change_the_optimum(solver):
    X, y, columns = problem()
    narrow = regressor(solver).fit(X, y)
    wide = regressor(solver).fit(widened(X, columns), y)
    np.testing.assert_allclose(wide.coef_[0, columns], narrow.coef_[0], rtol=0, atol=1e-9)
    assert np.count_nonzero(wide.coef_) == np.count_nonzero(wide.coef_[0, columns])
    assert wide.objective(widened(X, columns), y) == pytest.approx(narrow.objective(X, y), rel=1e-9)
    assert len(wide.learner_.arrays["v"]) == len(columns)


@pytest.mark.parametrize("options", [{"multi_class": "softmax"}, {"multi_class": "ovr"}])
def test_several_outputs_on_the_columns_in_use(options):
    X, score, columns = problem(200)
    y = np.digitize(score, [-1.0, 1.0])
    models = [
        st.LinearClassifier("log", solver="lbfgs", alpha=0.01, tol=1e-12, dtype="float64", **options).fit(rows, y)
        for rows in (X, widened(X, columns))
    ]
    np.testing.assert_allclose(models[1].coef_[:, columns], models[0].coef_, rtol=0, atol=1e-9)
    several = regressor("newton_cg").fit(widened(X, columns), np.column_stack([score, -2 * score]))
    np.testing.assert_allclose(several.coef_[1], -2 * several.coef_[0], atol=1e-9)


@pytest.mark.parametrize("solver", ["lbfgs", "newton_cg", "closed_form", "dual_cd"])
def test_chunks_and_threads_give_the_same_bits(solver, monkeypatch):
    X, y, columns = problem(700)
    rows = widened(X, columns)
    found = []
    in_memory, in_a_file, coded_anew = (1 << 20, 1 << 20), (0, 1 << 20), (0, 0)
    for (room, most), chunk_rows, n_jobs in ((in_memory, 1000, 1), (in_a_file, 64, 2), (coded_anew, 501, 1)):
        monkeypatch.setattr(batch_data, "room_for_entries", lambda room=room: room)
        monkeypatch.setattr(row_store, "MOST_ENTRIES", most)
        source = from_arrays(rows, y, chunk_rows=chunk_rows).limit(650)
        if room == 0:  # rows in passes, in visiting order
            source = st.data.source.Limited(from_arrays(rows, y, chunk_rows=chunk_rows), 650)
        found.append(regressor(solver, n_jobs=n_jobs).fit_stream(source))
    for other in found[1:]:
        np.testing.assert_array_equal(other.coef_, found[0].coef_)
        np.testing.assert_array_equal(other.intercept_, found[0].intercept_)


@pytest.mark.parametrize(("n", "dual"), [(200, False), (8, True)])
def test_closed_form_takes_the_smaller_of_rows_and_columns_in_use(n, dual):
    X, y, columns = problem(n)
    model = regressor("closed_form")
    source = model.source_of(widened(X, columns), y)
    data = BatchData(source, model.new_learner(model.settings_for(n), source))
    assert ClosedForm(Objective(data), SolverOptions()).dual is dual
    np.testing.assert_allclose(
        regressor("closed_form").fit(widened(X, columns), y).coef_[0, columns],
        regressor("closed_form").fit(X, y).coef_[0],
        atol=1e-9,
    )


def test_a_value_that_is_not_a_number_is_named_by_its_own_column():
    X, y, columns = problem()
    rows = widened(X, columns)
    rows.data[5] = np.nan
    row = int(np.searchsorted(rows.indptr, 5, side="right")) - 1
    with pytest.raises(st.DataError, match=f"row {row}, column {rows.indices[5]};"):
        regressor("lbfgs").fit(rows, y)


def test_a_column_out_of_range_is_refused_before_it_is_counted():
    X, y, columns = problem()
    rows = widened(X, columns)
    rows.indices[3] = WIDE + 7
    with pytest.raises(st.DataError, match=f"column index {WIDE + 7}"):
        regressor("lbfgs").fit(rows, y)


def test_weights_found_before_are_a_start_on_the_columns_in_use():
    X, y, columns = problem()
    rows = widened(X, columns)
    first = regressor("lbfgs").fit(rows, y)
    again = regressor("lbfgs").continue_from(first.learner_).fit(rows, y)
    assert again.n_iter_ <= 2
    np.testing.assert_allclose(again.coef_, first.coef_, atol=1e-9)


@pytest.mark.parametrize("width", [50, MOST_DIRECT + 5])
def test_columns_in_use_are_a_set_in_ascending_order(width):
    places = np.array([40, 7, 7, 3, width - 1], np.int32)
    rows = sp.csr_matrix((np.ones(5, np.float32), places, [0, 2, 4, 5]), shape=(3, width))
    model = regressor("lbfgs")
    source = from_arrays(rows, np.arange(3.0), chunk_rows=1)
    data = BatchData(source, model.new_learner(model.settings_for(3), source))
    assert data.columns.owners.tolist() == [3, 7, 40, width - 1]
