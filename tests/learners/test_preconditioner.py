"""The preconditioner of newton_cg: factors solve, it is the inverse of the Hessian where that fits, it saves passes."""

from __future__ import annotations

import numpy as np
import pytest

import steepest as st
from steepest.data.source import from_arrays
from steepest.learners.batch import newton
from steepest.learners.batch.batch_data import BatchData
from steepest.learners.batch.objective import Objective
from steepest.learners.batch.preconditioner import Factored, HeavyHessian
from steepest.learners.linear.linear import LinearLearner
from steepest.learners.linear.linear_settings import LinearSettings

RNG = np.random.default_rng(0)


@pytest.mark.parametrize(("outputs", "size"), [(1, 1), (1, 32), (2, 33), (3, 150)])
def test_factors_solve_what_numpy_solves(outputs, size):
    rows = RNG.standard_normal((outputs, 3 * size + 1, size))
    matrices = np.einsum("oij,oik->ojk", rows, rows)
    right = RNG.standard_normal((size, outputs))
    expected = np.linalg.solve(matrices, right.T[:, :, None])[:, :, 0].T
    np.testing.assert_allclose(Factored(matrices.copy()).solve(right), expected, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize(("outputs", "size"), [(1, 1), (2, 33), (1, 100)])
def test_the_inverse_root_times_itself_is_the_inverse(outputs, size):
    rows = RNG.standard_normal((outputs, 3 * size + 1, size))
    matrices = np.einsum("oij,oik->ojk", rows, rows)
    root = Factored(matrices.copy()).inverse_root()
    np.testing.assert_allclose(np.einsum("oki,okj->oij", root, root), np.linalg.inv(matrices), rtol=1e-6, atol=1e-9)


def test_a_matrix_that_is_not_positive_definite_is_refused():
    with pytest.raises(np.linalg.LinAlgError):
        Factored(-np.eye(40)[None])


def hats(n=3000, columns=4, knots=12, seed=0):
    """Columns that say almost the same, each as hats that sum to one: far from a diagonal Hessian."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(n)[:, None] + 0.02 * rng.standard_normal((n, columns))
    places = np.linspace(-2, 2, knots)
    t = np.clip(1 - np.abs(x[:, :, None] - places) / (places[1] - places[0]), 0, 1)
    return t.reshape(n, -1).astype(np.float32), x[:, 0]


def objective_of(X, y, labels, **more):
    settings = LinearSettings(task="classify", loss="log", solver="newton_cg", dtype="float64", **more)
    learner = LinearLearner(settings, X.shape[1], labels)
    return Objective(BatchData(from_arrays(X, y), learner))


def test_on_all_rows_and_features_it_is_the_inverse_of_the_hessian():
    X, x = hats()
    objective = objective_of(X, (x > 0.3).astype(float), [0.0, 1.0], alpha=1e-4, l2=1e-4)
    objective.evaluate(0.1 * RNG.standard_normal(objective.shape), curvature=True)
    invert = HeavyHessian(objective.data, 1).preconditioner(objective)
    v = RNG.standard_normal(objective.shape)
    np.testing.assert_allclose(invert(objective.product(v)), v, rtol=1e-5, atol=1e-6)


def test_scores_that_move_together_bend_by_the_penalty_alone():
    X, x = hats()
    objective = objective_of(
        X, np.digitize(x, [-0.5, 0.5]).astype(float), [0.0, 1.0, 2.0], alpha=1e-4, l2=1e-4, multi_class="softmax"
    )
    objective.evaluate(np.zeros(objective.shape), curvature=True)
    invert = HeavyHessian(objective.data, 3).preconditioner(objective)
    v = np.repeat(RNG.standard_normal((objective.shape[0], 1)), 3, axis=1)
    v[-1] = 0
    np.testing.assert_allclose(invert(objective.product(v)), v, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize(("n_classes", "columns", "knots"), [(2, 21, 12), (3, 8, 12)])
def test_columns_that_say_alike_things_cost_few_passes(n_classes, columns, knots, monkeypatch):
    X, x = hats(columns=columns, knots=knots)
    noisy = x + 0.3 * RNG.standard_normal(len(x))
    y = np.digitize(noisy, [0.3] if n_classes == 2 else [-0.5, 0.5])
    model = st.LinearClassifier("log", alpha=1e-6, solver="newton_cg", multi_class="softmax", dtype="float64")
    with_it = model.fit(X, y)
    passes, objective = sum(record["passes"] for record in with_it.history_), with_it.history_[-1]["objective"]
    monkeypatch.setattr(newton.NewtonCG, "_preconditioner", lambda self: None)
    without = model.fit(X, y)
    assert objective == pytest.approx(without.history_[-1]["objective"], rel=1e-4)
    assert passes < 0.6 * sum(record["passes"] for record in without.history_)


@pytest.mark.filterwarnings("ignore::steepest.NotConverged")  # six iterations show enough
def test_chunks_do_not_matter():
    X, x = hats()
    y = np.digitize(x, [-0.5, 0.5])
    model = st.LinearClassifier("log", alpha=1e-6, solver="newton_cg", multi_class="softmax", max_iter=6)
    found = [model.fit_stream(from_arrays(X, y, chunk_rows=rows)).coef_.copy() for rows in (100, 1700, 5000)]
    assert (found[0] == found[1]).all()
    assert (found[0] == found[2]).all()
