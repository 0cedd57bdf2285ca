"""Batch solvers: the kernel is its NumPy definition, and every solver reaches minima that others have found."""

from __future__ import annotations

import math
import os
from pathlib import Path

import numpy as np
import pytest
import scipy.optimize as so
import scipy.sparse as sp

import steepest as st
from conftest import solver_pairs
from steepest import kernels
from steepest.data.source import from_arrays
from steepest.errors import DataError, ParameterError
from steepest.kernels.reference import batch as reference_batch
from steepest.learners.batch.batch_data import BatchData
from steepest.learners.batch.closed_form import cholesky
from steepest.learners.batch.kinks import SmoothOneNorm
from steepest.learners.batch.objective import Objective
from steepest.learners.batch.solvers import BATCH_SOLVERS, KINKED, REFUSED, refusal
from steepest.learners.losses import LOSSES
from steepest.learners.penalties import NORMS

DATA = Path(os.environ.get("STEEPEST_DATA", Path(__file__).parents[3] / "shared" / "data"))
BINARY = [name for name, loss in LOSSES.items() if loss.kind == "binary" and name != "perceptron"]
REAL = [name for name, loss in LOSSES.items() if loss.kind != "binary"]
PARAMETER = {"huber": 0.5, "epsilon_insensitive": 0.2, "quantile": 0.3}
CLOSE = 1e-6


def needs(name):
    path = DATA / name
    return pytest.mark.skipif(not path.exists(), reason=f"{path} is not there")


def problem(loss, n=80, d=6, seed=0):
    rng = np.random.default_rng(seed)
    X = (rng.standard_normal((n, d)) * rng.uniform(0.5, 2, d)).astype(np.float32)
    X[rng.random((n, d)) < 0.3] = 0
    score = X @ rng.standard_normal(d) + 1.5 * rng.standard_normal(n) + 0.5
    if loss in BINARY:
        return X, (score > 0).astype(int)
    return X, rng.poisson(np.exp(0.3 * score)).astype(float) if loss == "poisson" else score


def model(loss, **options):
    if loss in BINARY or loss == "perceptron":
        return st.LinearClassifier(loss, dtype="float64", **options)
    own = {"quantile": st.Quantile(0.3), "huber": st.Huber(0.5), "epsilon_insensitive": st.EpsilonInsensitive(0.2)}
    return st.LinearRegressor(own.get(loss, loss), dtype="float64", **options)


def objective_of(estimator, source, n_threads=1):
    learner = estimator.new_learner(estimator.settings_for(source.n_rows), source)
    return Objective(BatchData(source, learner), n_threads)


# ------------------------------------------------------------------------------------------------- the kernel


@pytest.mark.parametrize("loss", [*BINARY, *REAL])
def test_the_kernel_adds_up_what_its_definition_says(loss):
    X, y = problem(loss)
    rng = np.random.default_rng(1)
    c = rng.uniform(0.5, 2, len(X))
    estimator = model(loss, solver="lbfgs", penalty="none")
    source = estimator.source_of(X, y, c)
    objective = objective_of(estimator, source)
    w = 0.3 * rng.standard_normal(objective.shape)
    value, gradient = objective.evaluate(w, curvature=True)
    targets = (2.0 * y - 1 if loss in BINARY else y)[:, None]
    q = PARAMETER.get(loss, 0.1)
    expected, slopes = reference_batch.gradient(
        X, targets, c, w, lambda z, t: LOSSES[loss].value(z, t, q), lambda z, t: LOSSES[loss].gradient(z, t, q)
    )
    np.testing.assert_allclose(value, expected / c.sum(), rtol=1e-12)
    np.testing.assert_allclose(gradient, slopes / c.sum(), rtol=1e-10, atol=1e-14)
    z, h = reference_batch.with_ones(X) @ w, 1e-6
    bend = (LOSSES[loss].gradient(z + h, targets, q) - LOSSES[loss].gradient(z - h, targets, q)) / (2 * h)
    v = rng.standard_normal(objective.shape)
    product = reference_batch.product(X, c, bend, v) / c.sum()
    np.testing.assert_allclose(objective.product(v), product, rtol=1e-6, atol=1e-7)
    diagonal = reference_batch.diagonal(X, c, bend) / c.sum()
    np.testing.assert_allclose(objective.diagonal(), np.where(diagonal > 0, diagonal, 1.0), rtol=1e-6, atol=1e-7)
    hessian = reference_batch.hessian(X, c, bend) / c.sum()
    np.testing.assert_allclose(objective.hessian(), hessian, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("fit_intercept", [True, False])
def test_a_hessian_that_is_formed_gives_its_products(fit_intercept):
    """Entries in any order and named twice, several outputs, weights, threads and a penalty."""
    rng = np.random.default_rng(0)
    n, per_row, d = 2000, 5, 9
    columns = rng.integers(0, d, n * per_row).astype(np.int32)
    X = sp.csr_matrix(
        (rng.standard_normal(n * per_row).astype(np.float32), columns, np.arange(0, n * 5 + 1, 5)), (n, d)
    )
    y, weight = rng.integers(0, 3, n), rng.uniform(1, 2, n)
    found = []
    for n_threads in (1, 2):
        estimator = st.LinearClassifier(
            "log", solver="newton_cg", multi_class="ovr", alpha=0.1, fit_intercept=fit_intercept
        )
        objective = objective_of(estimator, estimator.source_of(X, y, weight), n_threads)
        v = np.random.default_rng(1).standard_normal(objective.shape)
        v[-1] *= fit_intercept
        objective.evaluate(0.1 * v, curvature=True)
        assert objective.forms_hessian
        hessian = objective.hessian()
        products = np.column_stack([hessian[o] @ v[:, o] for o in range(3)])
        np.testing.assert_allclose(products, objective.product(v), rtol=1e-9, atol=1e-12)
        found.append(hessian)
    np.testing.assert_array_equal(found[0], found[1])


def test_newton_finds_the_same_minimum_with_and_without_a_formed_hessian(monkeypatch):
    X, y = problem("log", n=400)
    kept = [model("log", solver="newton_cg", alpha=1e-3, tol=1e-9).fit(X, y)]
    monkeypatch.setattr(Objective, "forms_hessian", False)
    kept.append(model("log", solver="newton_cg", alpha=1e-3, tol=1e-9).fit(X, y))
    np.testing.assert_allclose(kept[0].coef_, kept[1].coef_, rtol=1e-6)
    passes = [sum(kept[i].history_.column("passes")) for i in (0, 1)]
    assert passes[0] < passes[1]


def test_long_rows_and_many_features_do_not_get_a_hessian():
    rng = np.random.default_rng(0)
    for X in (rng.standard_normal((100, 40)), sp.random(100, 5000, 0.001, "csr", random_state=0)):
        estimator = st.LinearClassifier(solver="newton_cg")
        assert not objective_of(estimator, estimator.source_of(X, rng.integers(0, 2, 100))).forms_hessian


@pytest.mark.parametrize("multi_class", ["ovr", "softmax"])
def test_gradients_and_products_of_many_classes_are_those_of_differences(multi_class, multiclass):
    X, y = multiclass
    estimator = st.LinearClassifier(solver="newton_cg", multi_class=multi_class, alpha=0.01, penalty="l2")
    objective = objective_of(estimator, estimator.source_of(X, y))
    rng = np.random.default_rng(0)
    w, v, h = rng.standard_normal(objective.shape), rng.standard_normal(objective.shape), 1e-5
    _, gradient = objective.evaluate(w, curvature=True)
    product, diagonal = objective.product(v), objective.diagonal()
    up, down = objective.evaluate(w + h * v), objective.evaluate(w - h * v)
    np.testing.assert_allclose(np.vdot(gradient, v), (up[0] - down[0]) / (2 * h), rtol=1e-6)
    np.testing.assert_allclose(product, (up[1] - down[1]) / (2 * h), rtol=1e-4, atol=1e-9)
    unit = np.zeros(objective.shape)
    unit[7, 2] = 1
    objective.evaluate(w, curvature=True)
    np.testing.assert_allclose(diagonal[7, 2], objective.product(unit)[7, 2], rtol=1e-10)


def test_the_smoothed_1_norm_is_the_least_of_norm_and_distance():
    from scipy.optimize import minimize_scalar

    w, u, width, l1 = np.linspace(-2, 2, 9)[:, None], np.linspace(0.2, -0.25, 9)[:, None], np.full((9, 1), 1.5), 0.3
    smooth = SmoothOneNorm(l1, width, u)
    total = 0.0
    for i in range(9):

        def of(s, i=i):
            return l1 * abs(s) + (w[i, 0] + 1.5 * u[i, 0] - s) ** 2 / 3.0

        least = minimize_scalar(of, bounds=(-4, 4), method="bounded", options={"xatol": 1e-12})
        total += min(float(least.fun), of(0.0))
        assert of(smooth.nearest(w)[i, 0]) <= least.fun + 1e-12
    assert smooth.value(w) == pytest.approx(total, rel=1e-9)
    up, down = smooth.gradient(w + 1e-6), smooth.gradient(w - 1e-6)
    ahead = [SmoothOneNorm(l1, width, u).value(np.where(np.arange(9)[:, None] == i, w + 1e-6, w)) for i in range(9)]
    np.testing.assert_allclose((np.array(ahead) - smooth.value(w)) / 1e-6, smooth.gradient(w)[:, 0], atol=1e-5)
    np.testing.assert_allclose((up - down) / 2e-6, smooth.curvature(w), atol=1e-6)


@pytest.mark.parametrize("loss", KINKED)
def test_the_smoothed_loss_is_the_envelope_and_the_gap_is_that_of_fenchel_and_young(loss):
    estimator = model(loss, solver="newton_cg", penalty="none", fit_intercept=False)
    y = np.array([0, 1] * 20) if loss in BINARY else np.linspace(-2, 2, 40)
    source = estimator.source_of(np.linspace(-3, 3, 40)[:, None].astype(np.float32), y)
    objective = objective_of(estimator, source)
    q, mu = PARAMETER.get(loss, 0.1), 0.4
    objective.smoothing = mu
    objective.shifts = [np.linspace(-0.3, 0.5, 40)[:, None]]
    w = np.array([[0.7], [0.0]])
    value, _ = objective.evaluate(w)
    gap = objective.gap
    slopes = objective.row_gradients(w)[0][:, 0]
    z = source.block.values.astype(float) * 0.7 if len(source.block.values) == 40 else None
    assert z is not None
    targets = 2.0 * y - 1 if loss in BINARY else y
    shifted = z + objective.shifts[0][:, 0]

    def plain(i):
        return lambda s: LOSSES[loss].value(s, targets[i], q)

    expected = np.mean([reference_batch.envelope(plain(i), shifted[i], mu) for i in range(40)])
    assert value == pytest.approx(expected, abs=1e-5)
    s = shifted - mu * slopes
    young = [plain(i)(z[i]) - plain(i)(s[i]) - slopes[i] * (z[i] - s[i]) for i in range(40)]
    assert gap == pytest.approx(np.mean(young))
    assert gap >= 0


def test_the_kernel_refuses_arrays_that_do_not_fit():
    block = dict(
        indptr=np.array([0, 1]), indices=np.array([0], np.int32), values=np.ones(1, np.float32), y=np.ones(1),
        weight=None, order=None,
    )  # fmt: skip
    computed = dict(
        kind=0, weights=np.zeros(2), n_outputs=1, loss=2, parameter=0.0, target_kind=0, smoothing=0.0, block_rows=8,
        totals=np.zeros(3), sums=np.zeros(2),
    )  # fmt: skip
    visits = dict(first_visit=0, shift=None, curvature=None, gradients=None, n_threads=1)

    def run(**changes):
        given = [{name: changes.get(name, value) for name, value in part.items()} for part in (block, computed, visits)]
        return kernels.batch_pass(kernels.Rows(**given[0]), kernels.BatchPass(**given[1]), **given[2])

    assert run() == 1
    wrong = [
        dict(indptr=np.array([0, 2])), dict(indptr=np.array([1, 0])), dict(y=np.ones(2)), dict(y=None),
        dict(weight=np.ones(2)), dict(order=np.array([1])), dict(order=np.array([-1])), dict(n_outputs=0),
        dict(n_outputs=3), dict(kind=4), dict(kind=3), dict(kind=1), dict(kind=3, curvature=np.ones(1)),
        dict(kind=3, curvature=np.ones(1), sums=None), dict(shift=np.ones(2)), dict(curvature=np.ones(2)),
        dict(gradients=np.ones(2)), dict(sums=np.zeros(3)), dict(totals=np.zeros(2)), dict(block_rows=0),
        dict(first_visit=-1), dict(target_kind=1, n_outputs=2, y=np.array([2.0]), weights=np.zeros(4), sums=None),
    ]  # fmt: skip
    for change in wrong:
        with pytest.raises(ValueError, match=r"."):
            run(**change)
    for index in (1, -1, 2**31 - 1):
        assert run(indices=np.array([index], np.int32)) == 0


# -------------------------------------------------------------------------------------- minima found by others


def kinked_minimum(loss, X, t, q, penalised, linear):
    """A slack xi >= 0 a row that is at least each line of its loss; a linear program unless the penalty is curved."""
    n, d = X.shape
    lines = {"epsilon_insensitive": [(1.0, -q), (-1.0, -q)], "quantile": [(1 - q, 0.0), (-q, 0.0)]}.get(loss, [])
    ones = np.column_stack([X, -X, np.ones(n)])
    if loss == "hinge":
        A, b = np.column_stack([t[:, None] * ones, np.eye(n)]), np.ones(n)
    else:
        A = np.vstack([np.column_stack([-slope * ones, np.eye(n)]) for slope, _ in lines])
        b = np.concatenate([-slope * t + offset for slope, offset in lines])
    bounds = [(0, None)] * (2 * d) + [(None, None)] + [(0, None)] * n

    def full(theta):
        u, v, xi = theta[:d], theta[d : 2 * d], theta[2 * d + 1 :]
        value, smooth, l1 = penalised(u, v)
        return value + xi.mean(), np.concatenate([smooth + l1, -smooth + l1, [0.0], np.full(n, 1 / n)])

    if linear:
        return so.linprog(full(np.zeros(2 * d + 1 + n))[1], -A, -b, bounds=bounds, method="highs").fun
    start = so.linprog(full(np.zeros(2 * d + 1 + n))[1] + 1e-3, -A, -b, bounds=bounds, method="highs").x
    found = so.minimize(
        full, start, jac=True, method="SLSQP", bounds=bounds, options={"ftol": 1e-13, "maxiter": 2000},
        constraints={"type": "ineq", "fun": lambda x: A @ x - b, "jac": lambda x: A},
    )  # fmt: skip
    assert found.success, found.message
    return found.fun


def reference_minimum(loss, X, y, penalty, alpha, p=1.0, l1_ratio=0.15):
    """By scipy: L-BFGS-B on (positive part, negative part, bias), or SLSQP with a slack a row for kinked losses."""
    n, d = X.shape
    X = X.astype(np.float64)
    t = 2.0 * y - 1 if loss in BINARY else np.asarray(y, float)
    q = PARAMETER.get(loss, 0.1)

    def penalised(u, v):
        w = u - v
        norm, square = (u + v).sum(), 0.5 * w @ w
        if penalty == "lp":
            return alpha / p * (np.abs(w) ** p).sum(), alpha * np.sign(w) * np.abs(w) ** (p - 1), 0.0
        l1, l2 = {"none": (0, 0), "l2": (0, 1), "l1": (1, 0), "elasticnet": (l1_ratio, 1 - l1_ratio)}[penalty]
        return alpha * (l1 * norm + l2 * square), alpha * l2 * w, alpha * l1

    if loss in KINKED:
        return kinked_minimum(loss, X, t, q, penalised, linear=penalty in ("none", "l1"))

    def smooth_total(theta):
        u, v = theta[:d], theta[d : 2 * d]
        z = X @ (u - v) + theta[-1]
        value, smooth, l1 = penalised(u, v)
        g = LOSSES[loss].gradient(z, t, q) / n
        back = X.T @ g + smooth
        return value + LOSSES[loss].value(z, t, q).mean(), np.concatenate([back + l1, -back + l1, [g.sum()]])

    best = math.inf
    start = np.full(2 * d + 1, 0.1)
    for _ in range(3):
        found = so.minimize(
            smooth_total, start, jac=True, method="L-BFGS-B", bounds=[(0, None)] * (2 * d) + [(None, None)],
            options={"ftol": 1e-16, "gtol": 1e-12, "maxiter": 50_000, "maxfun": 100_000},
        )  # fmt: skip
        best, start = min(best, found.fun), found.x
    return best


@pytest.fixture(scope="module")
def minima():
    return {}


# Norms of all weights have a file of their own, test_norms.py.
CAN = [
    (c["solver"], c["loss"], c["penalty"]) for c in solver_pairs() if c["refused"] is None and c["penalty"] not in NORMS
]


@pytest.mark.parametrize(("solver", "loss", "penalty"), CAN, ids=str)
def test_every_solver_reaches_the_minimum_of_every_loss_and_penalty_that_it_takes(solver, loss, penalty, minima):
    X, y = problem(loss)
    p = 3.0 if solver == "newton_cg" else 1.5
    options = dict(penalty={"lp": st.LP(p), "elasticnet": st.ElasticNet(0.3)}.get(penalty, penalty), alpha=0.03)
    key = (loss, penalty, p if penalty == "lp" else 0)
    if key not in minima:
        minima[key] = reference_minimum(loss, X, y, penalty, 0.03, p, 0.3)
    subgradient = solver == "gd" and loss in KINKED
    found = model(loss, solver=solver, max_iter=3000, **options).fit(X, y)
    gap = found.objective(X, y) / minima[key] - 1
    assert -1e-7 < gap < (1e-2 if subgradient else CLOSE)
    if subgradient:  # falls like 1/k: ten times the steps leave less than a third of the gap
        early = model(loss, solver=solver, max_iter=300, **options).fit(X, y)
        assert gap < (early.objective(X, y) / minima[key] - 1) / 3 or gap < 1e-4


@pytest.mark.parametrize(
    "case", [c for c in solver_pairs() if c["refused"]], ids=lambda c: f"{c['solver']}-{c['loss']}-{c['penalty']}"
)
def test_every_other_pair_is_refused_with_its_reason(case):
    X, y = problem(case["loss"]) if case["loss"] != "perceptron" else problem("hinge")
    penalty = st.LP(3.0) if case["penalty"] == "lp" else case["penalty"]
    estimator = model(case["loss"], solver=case["solver"], penalty=penalty, alpha=0.1)
    with pytest.raises(ParameterError) as refused:
        estimator.fit(X, y)
    assert str(refused.value) == case["refused"]
    assert "\n" not in str(refused.value)
    assert "use solver=" in str(refused.value)


def test_newton_refuses_a_power_below_two_only():
    assert "second derivative" in refusal("newton_cg", "log", "lp", 1.5)
    assert refusal("newton_cg", "log", "lp", 2.5) is None
    assert {solver for line in REFUSED for solver in line.solvers} <= set(BATCH_SOLVERS)


# ----------------------------------------------------------------------------------------- results of scikit-learn


@pytest.mark.parametrize("solver", ["lbfgs", "newton_cg", "cg", "gd"])
def test_poisson_as_in_scikit_learn(solver):
    from sklearn.linear_model import PoissonRegressor

    X, y = problem("poisson", n=300)
    theirs = PoissonRegressor(alpha=0.1, tol=1e-12, max_iter=10_000).fit(X.astype(float), y)
    ours = model("poisson", solver=solver, alpha=0.1, tol=1e-9).fit(X, y)
    np.testing.assert_allclose(ours.coef_[0], theirs.coef_, atol=1e-5)
    np.testing.assert_allclose(ours.intercept_, theirs.intercept_, atol=1e-5)


@pytest.mark.parametrize("quantile", [0.1, 0.5, 0.8])
@pytest.mark.parametrize(("solver", "alpha"), [("newton_cg", 0.0), ("lbfgs", 0.0), ("lbfgs", 0.02)])
def test_quantiles_as_in_scikit_learn(solver, alpha, quantile):
    from sklearn.linear_model import QuantileRegressor

    X, y = problem("quantile", n=150)
    theirs = QuantileRegressor(quantile=quantile, alpha=alpha).fit(X.astype(float), y)
    residual = y - theirs.predict(X.astype(float))
    value = np.maximum(quantile * residual, (quantile - 1) * residual).mean() + alpha * np.abs(theirs.coef_).sum()
    ours = st.LinearRegressor(
        st.Quantile(quantile=quantile), penalty="l1" if alpha else "none", alpha=alpha, solver=solver, dtype="float64"
    ).fit(X, y)
    assert ours.objective(X, y) == pytest.approx(value, rel=CLOSE)
    assert abs(np.mean(y < ours.predict(X)) - quantile) < 0.05


def test_huber_as_in_scikit_learn_at_the_scale_it_found():
    from sklearn.linear_model import HuberRegressor

    X, y = problem("huber", n=200)
    y[::17] += 30
    theirs = HuberRegressor(epsilon=1.35, alpha=0.5, tol=1e-10, max_iter=10_000).fit(X.astype(float), y)
    # sigma H(r / sigma) + alpha |w|^2 is 2 / sigma times our loss with epsilon sigma and alpha sigma / n
    options = dict(alpha=0.5 * theirs.scale_ / len(y), dtype="float64", tol=1e-9)
    ours = st.LinearRegressor(st.Huber(1.35 * theirs.scale_), solver="newton_cg", **options).fit(X, y)
    np.testing.assert_allclose(ours.coef_[0], theirs.coef_, atol=1e-4)
    np.testing.assert_allclose(ours.intercept_, theirs.intercept_, atol=1e-4)


@pytest.mark.parametrize("solver", ["lbfgs", "newton_cg"])
def test_epsilon_insensitive_as_linear_svr(solver):
    from sklearn.svm import LinearSVR

    X, y = problem("epsilon_insensitive", n=120)
    theirs = LinearSVR(epsilon=0.2, C=0.3, fit_intercept=False, tol=1e-10, max_iter=1_000_000, random_state=0)
    w = theirs.fit(X.astype(float), y).coef_
    options = dict(alpha=1 / (0.3 * len(y)), fit_intercept=False, solver=solver, dtype="float64", tol=1e-8)
    ours = st.LinearRegressor(st.EpsilonInsensitive(0.2), **options).fit(X, y)
    np.testing.assert_allclose(ours.coef_[0], w, atol=2e-3)
    value = np.maximum(0, np.abs(X @ w - y) - 0.2).mean() + 0.5 * w @ w / (0.3 * len(y))
    assert ours.objective(X, y) == pytest.approx(value, rel=CLOSE)


@pytest.mark.independent
@pytest.mark.parametrize("solver", ["closed_form", "cg"])
@pytest.mark.parametrize(("n", "d"), [(100, 8), (20, 60)])
@pytest.mark.parametrize("weighted", [False, True])
def test_ridge_as_in_scikit_learn_in_both_shapes(solver, n, d, weighted):
    from sklearn.linear_model import Ridge

    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((n, d)).astype(np.float32), rng.standard_normal((n, 2))
    weight = rng.uniform(0.2, 3, n) if weighted else np.ones(n)
    theirs = Ridge(0.1 * weight.sum(), solver="svd").fit(X.astype(float), y, weight)
    ours = st.LinearRegressor(solver=solver, alpha=0.1, dtype="float64", tol=1e-10).fit(X, y, weight)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=1e-7)
    np.testing.assert_allclose(ours.intercept_, theirs.intercept_, atol=1e-7)


@pytest.mark.parametrize("solver", ["lbfgs", "newton_cg", "cg", "gd"])
def test_softmax_as_in_scikit_learn(solver, multiclass):
    from sklearn.linear_model import LogisticRegression

    X, y = multiclass
    alpha = 1e-3
    theirs = LogisticRegression(C=1 / (alpha * len(y)), tol=1e-10, max_iter=10_000).fit(X.astype(float), y)
    options = dict(multi_class="softmax", alpha=alpha, solver=solver, dtype="float64", tol=1e-8, max_iter=5000)
    ours = st.LinearClassifier(**options).fit(X, y)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=2e-4)
    np.testing.assert_allclose(ours.predict_proba(X), theirs.predict_proba(X.astype(float)), atol=1e-5)


@pytest.mark.parametrize("solver", ["lbfgs", "newton_cg"])
def test_one_against_the_rest_is_a_problem_a_class_and_labels_a_problem_each(solver, multiclass):
    X, y = multiclass
    options = dict(loss="log", alpha=1e-3, solver=solver, dtype="float64", tol=1e-8)
    together = st.LinearClassifier(**options).fit(X, y)
    columns = (y[:, None] == np.arange(4)).astype(int)
    labels = st.LinearClassifier(**options).fit(X, columns)
    np.testing.assert_array_equal(labels.coef_, together.coef_)
    for k in range(4):
        alone = st.LinearClassifier(**options).fit(X, columns[:, k])
        np.testing.assert_allclose(together.coef_[k], alone.coef_[0], atol=1e-4)


@pytest.mark.parametrize("solver", ["lbfgs", "newton_cg", "gd", "cg"])
def test_weights_of_rows_and_classes_are_copies(solver, binary):
    X, y = binary
    weight = np.random.default_rng(0).integers(0, 4, len(y))
    options = dict(alpha=1e-2, solver=solver, dtype="float64", tol=1e-9, max_iter=3000)
    weighted = st.LinearClassifier(**options).fit(X, y, weight)
    copied = st.LinearClassifier(**options).fit(X[np.repeat(np.arange(len(y)), weight)], np.repeat(y, weight))
    np.testing.assert_allclose(weighted.coef_, copied.coef_, atol=1e-6)
    by_class = st.LinearClassifier(**options, class_weight={0: 3.0}).fit(X, y)
    by_row = st.LinearClassifier(**options).fit(X, y, np.where(y == 0, 3.0, 1.0))
    np.testing.assert_array_equal(by_class.coef_, by_row.coef_)
    balanced = st.LinearClassifier(**options, class_weight="balanced")
    counts = np.bincount(y)
    by_count = st.LinearClassifier(**options).fit(X, y, (len(y) / (2 * counts))[y])
    np.testing.assert_allclose(balanced.fit(X, y).coef_, by_count.coef_, atol=1e-7)


# ------------------------------------------------------------------------------------------------- real data


def liblinear(kind, X, y, alpha):
    from liblinear.liblinear import parameter, problem
    from liblinear.liblinearutil import train

    data = problem(y.astype(float), sp.csr_matrix(X).astype(np.float64))
    found = train(data, parameter(f"-s {kind} -c {1 / (len(y) * alpha)} -e 1e-9 -q"))
    return (1 if y[0] > 0 else -1) * np.array(found.get_decfun()[0])


def value_at(loss, X, y, w, l2=0.0, l1=0.0):
    losses = LOSSES[loss].value(X.astype(np.float64) @ w, y.astype(float))
    return losses.mean() + 0.5 * l2 * w @ w + l1 * np.abs(w).sum()


def arrays_of(source):
    chunks = [chunk.packed() for chunk in source]
    d = max(chunk.n_features for chunk in chunks)
    X = sp.vstack([sp.csr_matrix((c.values, c.indices, c.indptr), shape=(c.n_rows, d)) for c in chunks], "csr")
    return X, np.concatenate([chunk.y for chunk in chunks])


@pytest.mark.parametrize(
    ("name", "file"), [
        pytest.param("a9a", "a9a.libsvm.gz", marks=needs("a9a")),
        pytest.param("rcv1-sample", "rcv1-sample-train.vw.gz", marks=needs("rcv1-sample")),
    ],
)  # fmt: skip
@pytest.mark.parametrize(("loss", "kind"), [("log", 0), ("squared_hinge", 2), ("hinge", 3), ("log", 6)])
def test_real_classes_as_liblinear(name, file, loss, kind):
    pytest.importorskip("liblinear")
    X, y = arrays_of(st.scan(str(DATA / name / file)))
    X, y = X[:8000], np.where(y[:8000] > 0, 1, -1)
    alpha = 1e-4
    used = np.flatnonzero(np.diff(X.tocsc().indptr))
    X = sp.csr_matrix(X[:, used])
    l1 = kind == 6
    w = liblinear(kind, X, y, alpha)
    expected = value_at(loss, X, y, w, **({"l1": alpha} if l1 else {"l2": alpha}))
    for solver in ["lbfgs"] if l1 else ["lbfgs", "newton_cg"]:
        options = dict(solver=solver, alpha=alpha, fit_intercept=False, dtype="float64", tol=1e-7, max_iter=3000)
        found = st.LinearClassifier(loss, penalty="l1" if l1 else "l2", **options).fit(X, y)
        assert found.objective(X, y) <= expected * (1 + CLOSE)


@needs("california-housing")
def test_house_prices_as_the_normal_equations_and_scikit_learn():
    import pandas as pd
    from sklearn.linear_model import QuantileRegressor

    table = pd.read_csv(DATA / "california-housing" / "housing.csv.gz").select_dtypes("number").dropna()
    y = table.iloc[:, -1].to_numpy() / table.iloc[:, -1].std()
    X = table.iloc[:, :-1].to_numpy(np.float32)
    exact = st.LinearRegressor(solver="closed_form", alpha=1e-6, dtype="float64").fit(X, y).objective(X, y)
    wide = np.column_stack([X.astype(np.float64), np.ones(len(X))])
    free = 0.5 * np.mean((wide @ np.linalg.lstsq(wide, y, rcond=None)[0] - y) ** 2)
    assert free <= exact <= free * 1.01
    for solver in ("cg", "lbfgs", "newton_cg", "gd"):
        found = st.LinearRegressor(solver=solver, alpha=1e-6, dtype="float64", tol=1e-8, max_iter=20_000).fit(X, y)
        assert found.objective(X, y) <= exact * (1 + CLOSE), solver
    X = ((X - X.mean(axis=0)) / X.std(axis=0))[:3000]
    theirs = QuantileRegressor(quantile=0.5, alpha=0.0).fit(X.astype(float), y[:3000])
    value = 0.5 * np.abs(y[:3000] - theirs.predict(X.astype(float))).mean()
    for solver in ("newton_cg", "lbfgs"):
        found = st.LinearRegressor("quantile", solver=solver, penalty="none", dtype="float64", tol=1e-7)
        assert found.fit(X, y[:3000]).objective(X, y[:3000]) == pytest.approx(value, rel=CLOSE), solver


@pytest.mark.parametrize("solver", ["newton_cg", "lbfgs"])
@pytest.mark.parametrize("seed", range(3))
def test_the_gap_is_honest_where_free_weights_are_large(solver, seed):
    """Weights and bias far beyond one unit of the targets' spread, and nothing that holds them back."""
    from scipy.optimize import linprog

    rng = np.random.default_rng(seed)
    X = (rng.standard_normal((200, 3)) * [1.0, 0.01, 100.0]).astype(np.float32)
    y = X @ [1.0, 300.0, 0.05] + 40.0 + rng.standard_exponential(200)
    wide = np.column_stack([X, np.ones(200)]).astype(np.float64)
    cost = np.concatenate([np.zeros(4), np.full(200, 0.5 / 200), np.full(200, 0.5 / 200)])
    free = [(None, None)] * 4 + [(0, None)] * 400
    least = linprog(cost, A_eq=np.hstack([wide, np.eye(200), -np.eye(200)]), b_eq=y, bounds=free).fun
    model = st.LinearRegressor("quantile", solver=solver, penalty="none", dtype="float64", tol=1e-7, max_iter=500)
    found = model.fit(X, y).objective(X, y)
    assert "converged" in model.history_.events[-1]
    assert least <= found * (1 + 1e-9)
    assert found - least <= 2e-7 * found


# ------------------------------------------------------------------------------------- streams, threads, bits


@pytest.fixture
def libsvm_file(tmp_path, binary):
    from sklearn.datasets import dump_svmlight_file

    X, y = binary
    path = tmp_path / "rows.svm"
    dump_svmlight_file(X, y, str(path), zero_based=True)
    return path


@pytest.mark.parametrize("solver", ["lbfgs", "newton_cg"])
@pytest.mark.parametrize("penalty", ["l1", "elasticnet", "l2"])
@pytest.mark.parametrize("most_inner", [3, 1000])
def test_the_gap_of_kinked_losses_is_a_bound_however_badly_the_smooth_problems_are_solved(
    solver, penalty, most_inner, binary, monkeypatch
):
    X, y = binary
    options = dict(penalty=penalty, alpha=1e-2, dtype="float64", fit_intercept=False)
    least = st.LinearClassifier("hinge", solver="newton_cg", tol=1e-10, **options).fit(X, y).objective(X, y)
    monkeypatch.setattr("steepest.learners.batch.kinks.MOST_INNER", most_inner)
    found = st.LinearClassifier("hinge", solver=solver, tol=1e-6, max_iter=15, **options).fit(X, y)
    for record in found.history_:
        assert record["objective"] * (1 - record["gradient"]) <= least * (1 + 1e-9)
    assert not found.history_.events[-1].startswith("converged") or found.objective(X, y) <= least * (1 + 1e-6)


@pytest.mark.parametrize("seed", range(5))
def test_hinge_with_the_1_norm_ends_at_the_minimum_of_a_linear_program(seed):
    from scipy.optimize import linprog

    rng = np.random.default_rng(seed)
    n, d, alpha = 80, 12, 0.01
    X = rng.standard_normal((n, d)).astype(np.float32).astype(np.float64)
    t = np.sign(X @ rng.standard_normal(d) + rng.standard_normal(n))
    A = np.hstack([-t[:, None] * X, t[:, None] * X, -np.eye(n)])
    cost = np.concatenate([np.full(2 * d, alpha), np.full(n, 1 / n)])
    least = linprog(cost, A, -np.ones(n), bounds=(0, None), method="highs").fun
    for solver in ("lbfgs", "newton_cg"):
        model = st.LinearClassifier(
            "hinge", solver=solver, penalty="l1", alpha=alpha, fit_intercept=False, dtype="float64", tol=1e-6
        ).fit(X, t)
        assert model.history_.events[-1].startswith("converged")
        assert model.objective(X, t) == pytest.approx(least, rel=CLOSE)


@pytest.mark.parametrize("solver", ["lbfgs", "newton_cg", "cg"])
def test_a_file_teaches_the_same_bits_as_its_rows_in_memory(solver, libsvm_file):
    options = dict(solver=solver, alpha=1e-3, max_iter=8)
    streamed = st.LinearClassifier(**options).fit_stream(st.scan_libsvm(libsvm_file))
    X, y = arrays_of(st.scan_libsvm(libsvm_file))
    np.testing.assert_array_equal(streamed.coef_, st.LinearClassifier(**options).fit(X, y).coef_)


# ---------------------------------------------------------------------------------------------------- stopping


def test_history_tells_of_every_iteration(binary):
    X, y = binary
    found = st.LinearClassifier(solver="lbfgs", alpha=1e-3).fit(X, y)
    history = found.history_
    assert found.n_iter_ == len(history) > 3
    assert all(a >= b for a, b in zip(history.column("objective"), history.column("objective")[1:], strict=False))
    assert history[-1]["gradient"] <= 1e-6
    assert history[-1]["objective"] == pytest.approx(found.objective(X, y), rel=1e-6)
    for name in ("eta", "seconds", "passes", "nonzeros", "rows_per_second"):
        assert history[-1][name] > 0
    assert "converged" in history.events[-1]


@pytest.mark.parametrize("tol_on", ["objective", "parameters", "gradient"])
def test_a_tighter_tolerance_takes_longer_and_comes_nearer(tol_on, binary):
    X, y = binary
    loose, tight = (
        st.LinearClassifier(solver="lbfgs", alpha=1e-4, tol=st.Tolerance(tol, on=tol_on), dtype="float64").fit(X, y)
        for tol in (1e-2, 1e-7)
    )
    assert loose.n_iter_ < tight.n_iter_
    assert loose.objective(X, y) > tight.objective(X, y)
    assert "converged" in loose.history_.events[-1]


def test_the_limit_of_iterations_is_told(binary):
    found = st.LinearClassifier(solver="lbfgs", max_iter=2).fit(*binary)
    assert found.n_iter_ == 2
    assert "max_iter=2" in found.history_.events[-1]


def test_early_stopping_keeps_the_best_on_held_out_rows(binary):
    X, y = binary
    found = st.LinearClassifier(solver="lbfgs", alpha=0.0, early_stopping=True, random_state=0).fit(X, y)
    losses = found.history_.column("holdout_loss")
    assert len(losses) < 30
    best = st.LinearClassifier(solver="lbfgs", alpha=0.0, max_iter=int(np.argmin(losses)) + 1, random_state=0)
    train, _ = from_arrays(X, y).holdout(0.1, 0)
    train.labels = np.array([0, 1])
    np.testing.assert_array_equal(found.coef_, best.fit_stream(train).coef_)


def test_partial_fit_is_refused_in_a_sentence(binary):
    with pytest.raises(ParameterError, match=r"solver='lbfgs' needs all rows at once.*fit_stream"):
        st.LinearClassifier(solver="lbfgs").partial_fit(*binary)


# --------------------------------------------------------------------------------------------------- bad input

SMOOTH = ["gd", "cg", "lbfgs", "newton_cg"]


@pytest.mark.parametrize("solver", [*SMOOTH, "closed_form"])
@pytest.mark.parametrize("alpha", [0.0, 0.1])
def test_singular_systems_and_constant_columns_have_an_answer(solver, alpha):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((50, 3)).astype(np.float32)
    X = np.column_stack([x, x[:, 0], np.full(50, 3.0), np.zeros(50)]).astype(np.float32)
    y = x @ [1.0, 2.0, 3.0] + 1
    found = st.LinearRegressor(solver=solver, alpha=alpha, dtype="float64", tol=1e-9).fit(X, y)
    assert np.isfinite(found.coef_).all()
    assert np.abs(found.coef_).max() < 10
    if alpha == 0:
        np.testing.assert_allclose(found.predict(X), y, atol=1e-4)


@pytest.mark.parametrize("solver", SMOOTH)
@pytest.mark.parametrize("loss", ["log", "exponential", "squared_hinge", "modified_huber"])
def test_separable_classes_without_a_penalty_end_and_say_so(solver, loss):
    X = np.array([[0.0, 1.0], [1.0, 0.0], [0.0, 2.0], [2.0, 0.0]], np.float32)
    found = st.LinearClassifier(loss, solver=solver, alpha=0.0).fit(X, [0, 1, 0, 1])
    assert np.isfinite(found.coef_).all()
    assert found.score(X, [0, 1, 0, 1]) == 1
    if loss in ("log", "exponential"):
        assert "grow for ever; give alpha > 0" in found.history_.events[-1]
        assert np.abs(found.coef_).max() < 100


@pytest.mark.parametrize("solver", [*SMOOTH, "closed_form"])
def test_one_row(solver):
    found = st.LinearRegressor(solver=solver).fit([[1.0, 2.0]], [3.0])
    assert found.predict([[1.0, 2.0]])[0] == pytest.approx(3.0, abs=1e-4)
    with pytest.raises(DataError, match="one class only"):
        st.LinearClassifier(solver="lbfgs").fit([[1.0, 2.0]], [1])


@pytest.mark.parametrize("solver", SMOOTH)
@pytest.mark.parametrize("multi_class", ["ovr", "softmax"])
def test_as_many_classes_as_rows(solver, multi_class):
    X = np.eye(4, dtype=np.float32)
    found = st.LinearClassifier(solver=solver, multi_class=multi_class, alpha=1e-3).fit(X, ["a", "b", "c", "d"])
    assert found.predict(X).tolist() == ["a", "b", "c", "d"]


@pytest.mark.parametrize("solver", BATCH_SOLVERS)
def test_parameters_that_cannot_work_are_refused(solver):
    X, y = problem("squared")
    for options, words in [
        (dict(alpha=-1.0), "alpha=-1.0"), (dict(penalty=st.LP(p=0.5)), "p=0.5 gives no convex penalty"),
        (dict(max_iter=0), "max_iter=0"), (dict(tol=-1), "tol=-1"),
        (dict(tol=st.Tolerance(on="loss")), "tol_on='loss' is unknown"),
        (dict(average=True), "average=True works with"),
    ]:  # fmt: skip
        with pytest.raises(ParameterError, match=words):
            st.LinearRegressor(solver=solver, **{"penalty": "l1" if solver == "cd" else "l2", **options}).fit(X, y)


@pytest.mark.parametrize("loss", ["hinge", "log"])
def test_values_that_are_not_finite_are_refused_with_their_row(loss):
    X = sp.csr_matrix(np.eye(5, dtype=np.float32))
    X.data[3] = np.nan
    with pytest.raises(DataError, match=r"NaN.*row 3"):
        st.LinearClassifier(loss, solver="lbfgs").fit(X, [0, 1, 0, 1, 0])
    X = sp.csr_matrix(np.eye(5, dtype=np.float32))
    X.indices[2] = 77
    with pytest.raises(DataError, match="column index 77"):
        st.LinearClassifier(loss, solver="newton_cg").fit(X, [0, 1, 0, 1, 0])


@pytest.mark.parametrize("solver", SMOOTH)
def test_huge_features_do_not_overflow(solver):
    X, y = problem("poisson")
    found = st.LinearRegressor("poisson", solver=solver, alpha=1e-3, dtype="float64").fit(X * 1e4, y)
    assert np.isfinite(found.coef_).all()
    assert found.objective(X * 1e4, y) < LOSSES["poisson"].value(np.log(y.mean()), y).mean()


@pytest.mark.parametrize("n", [1, 7, 8, 9, 40])
def test_the_factor_by_blocks_is_that_of_the_definition(n, monkeypatch):
    monkeypatch.setattr("steepest.learners.batch.closed_form.BLOCK_COLUMNS", 8)
    half = np.random.default_rng(n).normal(size=(n, n + 3))
    gram = half @ half.T
    lower = np.tril(cholesky(gram.copy()))
    np.testing.assert_allclose(lower @ lower.T, gram, atol=1e-10)
    np.testing.assert_allclose(lower, np.linalg.cholesky(gram), atol=1e-10)
    gram[-1, -1] = -1.0
    with pytest.raises(np.linalg.LinAlgError):
        cholesky(gram)


def test_closed_form_says_when_the_matrix_is_too_large(monkeypatch, regression):
    monkeypatch.setattr("steepest.learners.batch.closed_form.LARGEST_SIDE", 10)
    with pytest.raises(DataError, match=r"solver='closed_form' needs a matrix.*use solver='cg'"):
        st.LinearRegressor(solver="closed_form").fit(*regression)


def test_the_page_on_solvers_shows_the_table_of_refusals():
    page = (Path(__file__).parents[2] / "docs" / "how-it-works" / "solvers.md").read_text()
    possible = set(CAN)
    penalties = ("none", "l2", "l1", "elasticnet", "lp")
    for loss in LOSSES:
        cells = []
        for solver in BATCH_SOLVERS:
            able = [penalty for penalty in penalties if (solver, loss, penalty) in possible]
            cells.append("all" if len(able) == len(penalties) else ", ".join(able) or "-")
        assert f"| `{loss}` | " + " | ".join(cells) + " |" in page
