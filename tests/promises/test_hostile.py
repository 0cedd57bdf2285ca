"""A sample of the table of hostile rows (hostile.py), and by name what once did not hold."""

from __future__ import annotations

import numpy as np
import pytest

import steepest as st
from conftest import sparse_problem
from promises.hostile import check, spread, table

PAIRS = list(table())
SAMPLE = spread(PAIRS, 5)


def test_the_table_has_thousands_of_pairs_and_the_sample_all_changes():
    assert len(PAIRS) >= 5000
    assert {change for _, change in SAMPLE} == {change for _, change in PAIRS}


@pytest.mark.parametrize("part", range(10))
def test_hostile_rows_give_a_finite_model_or_a_sentence(part, tmp_path):
    for name, change in SAMPLE[part::10]:
        check(name, change, tmp_path)


@pytest.mark.hostile
def test_every_pair_of_the_table_of_hostile_rows(tmp_path):
    for name, change in PAIRS:
        check(name, change, tmp_path)


@pytest.mark.parametrize(("solver", "factor"), [("ftrl", 1e12), ("ftrl", 1e20), ("adagrad", 1e18), ("coin", 1e20)])
@pytest.mark.parametrize("kind", ["LinearClassifier", "LinearRegressor"])
def test_huge_values_leave_no_sum_that_is_not_finite(kind, solver, factor):
    X, y = sparse_problem(n_rows=400, seed=1)
    try:
        model = getattr(st, kind)(solver=solver, random_state=0).fit(X.astype(np.float64) * factor, y)
    except st.DataError as refusal:
        assert "scale the features" in str(refusal)  # noqa: PT017, either of the two is right
        return
    assert np.isfinite(model.coef_).all()
    for name in ("v", "bias", "bias_square", "clock"):
        assert np.isfinite(model.learner_.state[name]).all(), name


def test_weights_beyond_all_measure_are_refused_with_the_way_out():
    X, y = sparse_problem(n_rows=100, seed=1)
    for weight in (1e100, 1e-100):
        with pytest.raises(st.DataError, match="divide all by their mean"):
            st.LinearClassifier().fit(X, y, sample_weight=np.full(100, weight))


def test_targets_beyond_all_measure_are_refused_with_the_way_out():
    X, y = sparse_problem(n_rows=100, seed=1)
    for kind in (st.LinearRegressor, st.NetworkRegressor):
        with pytest.raises(st.DataError, match="scale the targets"):
            kind().fit(X, (y + 1.0) * 1e300)


def test_a_row_whose_gradient_vanishes_beside_its_square_leaves_ftrl_finite():
    X, y = sparse_problem(n_rows=200, seed=1)
    weight = np.ones(200)
    weight[50:] = 1e-40
    model = st.LinearClassifier(solver="ftrl", random_state=0, eta0=0.1).fit(X, y, sample_weight=weight)
    assert np.isfinite(model.coef_).all()


def test_a_model_that_overflowed_is_not_saved(tmp_path):
    X, y = sparse_problem(n_rows=200, seed=1)
    model = st.LinearClassifier(random_state=0).fit(X, y)
    model.learner_.arrays["v"][3] = np.nan
    with pytest.raises(st.DataError, match="overflowed"):
        model.save(tmp_path / "m")
    assert not (tmp_path / "m").exists()


@pytest.mark.parametrize("case", ["fm/log-four-dense", "fm/hinge-balanced-four-dense", "fm/fields-four-dense"])
def test_rows_far_beyond_those_that_were_learned_have_finite_scores(case, tmp_path):
    assert check(case, "values x 1e-40", tmp_path) == ""
