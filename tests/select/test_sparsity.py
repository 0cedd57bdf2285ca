"""Regularisation paths: they start where all weights are zero, warm starts lead to the same optimum, sooner."""

from __future__ import annotations

import numpy as np
import pytest

import steepest as st
from conftest import sparse_problem
from steepest import regularization_path as follow


@pytest.fixture(scope="module")
def rows():
    return sparse_problem(n_rows=1500, seed=9)


@pytest.mark.parametrize("solver", ["cd", "lbfgs", "saga"])
def test_the_path_starts_where_the_first_weight_appears(rows, solver):
    found = follow(st.LinearClassifier(penalty="l1", tol=1e-8), *rows, solver=solver, n_alphas=8, ratio=0.05)
    assert found.places[0].nonzeros == 0
    assert found.places[1].nonzeros > 0
    assert (np.diff(found.column("train_loss")) < 0).all()
    assert found.places[-1].nonzeros > 50


@pytest.mark.parametrize(
    ("solver", "penalty"), [("cd", "l1"), ("lbfgs", "l1"), ("saga", "l1"), ("newton_cg", "l2"), ("lbfgs", "l2")]
)
def test_warm_starts_lead_to_the_optimum_of_a_cold_start(rows, solver, penalty):
    model = st.LinearClassifier(penalty=penalty, tol=1e-8, dtype="float64")
    found = follow(model, *rows, solver=solver, alphas=[1e-2, 3e-3, 1e-3], test=None)
    cold = st.LinearClassifier(penalty=penalty, alpha=1e-3, solver="lbfgs", tol=1e-10, dtype="float64").fit(*rows)
    assert found.places[-1].objective == pytest.approx(cold.objective(*rows), rel=1e-6)
    np.testing.assert_allclose(found.coef(-1), cold.coef_, atol=2e-3)


@pytest.mark.parametrize("solver", ["cd", "lbfgs"])
def test_warm_starts_save_iterations(rows, solver):
    model = st.LinearClassifier(penalty="l1", tol=1e-6)
    grid = np.geomspace(5e-3, 2e-3, 12)
    warm = follow(model, *rows, solver=solver, alphas=grid, test=None)
    cold = sum(follow(model, *rows, solver=solver, alphas=[a], test=None).places[0].iterations for a in grid)
    assert warm.column("iterations").sum() < cold


def test_stochastic_rules_follow_the_path_too(rows):
    found = follow(st.LinearClassifier(penalty="l1", epochs=5), *rows, solver="ftrl", n_alphas=6, ratio=0.02)
    exact = follow(st.LinearClassifier(penalty="l1"), *rows, alphas=found.alphas)
    assert found.places[-1].nonzeros > found.places[0].nonzeros
    np.testing.assert_allclose(found.column("objective"), exact.column("objective"), rtol=0.12)


def test_a_fit_after_a_path_starts_from_zero(rows):
    model = st.LinearClassifier(penalty="l1", alpha=1e-3, solver="cd")
    before = model.fit(*rows).coef_.copy()
    follow(model, *rows, n_alphas=3)
    np.testing.assert_array_equal(model.fit(*rows).coef_, before)


def test_the_best_place_has_the_least_held_out_loss(rows):
    found = follow(st.LinearClassifier(penalty="l1"), *rows, n_alphas=10)
    assert found.best.held_out_loss == found.column("held_out_loss").min()
    assert str(found).count("*") == 1


def test_regressions_and_several_classes_have_paths(regression, multiclass):
    assert follow(st.LinearRegressor(penalty="l1"), *regression, n_alphas=4).places[0].nonzeros == 0
    found = follow(st.LinearClassifier(penalty="elasticnet"), *multiclass, n_alphas=4)
    assert found.coef(-1).shape == (4, 200)


def test_the_path_is_drawn(rows, tmp_path):
    pytest.importorskip("matplotlib")
    follow(st.LinearClassifier(penalty="l1"), *rows, n_alphas=4).plot(tmp_path / "path.png")
    assert (tmp_path / "path.png").read_bytes()[:4] == b"\x89PNG"


@pytest.mark.parametrize(
    ("wish", "words"),
    [
        (dict(solver="dual_cd"), "solver='dual_cd' is unknown"),
        (dict(solver="newton_cg"), "1-norm has kinks"),
        (dict(alphas=[]), "alphas is empty"),
        (dict(alphas=[0.0]), "alphas=0.0 must be more than 0"),
        (dict(ratio=2.0), "ratio=2.0 must lie between"),
    ],
)
def test_bad_wishes_are_refused(rows, wish, words):
    with pytest.raises(st.ParameterError, match=words):
        follow(st.LinearClassifier(penalty="l1"), *rows, **wish)
