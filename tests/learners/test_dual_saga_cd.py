"""dual_cd, saga and cd: kernels against their definitions, optima against independent ones, honest certificates."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as some

import steepest as st
from steepest import kernels
from steepest.data.source import from_arrays
from steepest.errors import DataError, ParameterError
from steepest.kernels.reference import dual as reference
from steepest.learners.batch import batch_data
from steepest.learners.batch.batch_data import BatchData
from steepest.learners.batch.cd import transposed
from steepest.learners.batch.cd_faces import QuadraticModel, model_matrix
from steepest.learners.batch.dual_cd import DualCD, DualProblem
from steepest.learners.batch.dual_faces import Face, minimise
from steepest.learners.batch.objective import Objective
from steepest.learners.batch.per_output import OutputData
from steepest.learners.batch.solvers import SolverOptions
from steepest.learners.losses import LOSSES

DUAL = ("hinge", "squared_hinge", "log", "modified_huber", "squared", "huber", "epsilon_insensitive", "quantile")
PARAMETER = {"huber": 0.5, "epsilon_insensitive": 0.1, "quantile": 0.3}
CLASSIFY = ("hinge", "squared_hinge", "log", "modified_huber")


def problem(n=60, d=8, seed=0, loss="log"):
    generator = np.random.default_rng(seed)
    X = sp.random(n, d, 0.5, "csr", np.float32, random_state=generator, data_rvs=generator.standard_normal)
    score = X @ generator.standard_normal(d) + 0.5 + generator.standard_normal(n)
    y = np.sign(score) if LOSSES[loss].kind == "binary" else score
    if LOSSES[loss].kind == "count":
        y = np.floor(np.exp(np.clip(0.3 * score, -2, 2)))
    return X, y


def objective(loss, X, y, w, bias, alpha, weight=None):
    losses = LOSSES[loss].value(X @ w + bias, y, PARAMETER.get(loss, 0.0))
    return float(np.average(losses, weights=weight)) + 0.5 * alpha * float(w @ w)


def solved(loss, X, y, alpha=0.01, tol=1e-9, weight=None, **options):
    rows = from_arrays(X, y, weight).block
    return DualProblem(output_data(loss, rows, y, alpha, **options), np.float64).reach(tol)


def output_data(loss, rows, y, alpha, **options):
    return OutputData(rows, y, LOSSES[loss], PARAMETER.get(loss, 0.0), l2=alpha, **options)


@pytest.mark.parametrize("loss", DUAL)
@pytest.mark.parametrize("bias_step", [0.0, 0.7])
@pytest.mark.parametrize("relax", [1.0, 1.5])
def test_a_native_sweep_is_the_sweep_of_the_definition(loss, bias_step, relax):
    X, y = problem(loss=loss)
    rows, n = from_arrays(X).block, X.shape[0]
    square = np.asarray(X.multiply(X).sum(axis=1), np.float64).ravel() + bias_step + 0.01
    state = np.column_stack([np.zeros(n), square, y, np.linspace(0, 2, n)])
    expected, parameter = state.copy(), PARAMETER.get(loss, 0.0)
    w, bias, wanted_w, wanted_bias = np.zeros(8), np.zeros(2), np.zeros(8), np.zeros(2)
    for seed in (1, 2, 3):
        choices = kernels.DualChoices(
            loss=LOSSES[loss].code, parameter=parameter, bias_step=bias_step, least_gradient=-np.inf,
            most_gradient=np.inf, relax=relax,
        )  # fmt: skip
        kernels.dual_sweep(rows.as_rows(), state, w, bias, np.arange(n), n, choices, seed)
        order = reference.shuffled(n, seed)
        reference.dual_sweep(X.toarray(), expected, wanted_w, wanted_bias, order, loss, parameter, bias_step, relax)
    # The logistic step ends when its error is of second order, so the two agree to that.
    close = 1e-3 if loss == "log" else 1e-9
    np.testing.assert_allclose(state, expected, rtol=close, atol=close)
    np.testing.assert_allclose(w, wanted_w, rtol=close, atol=close)
    np.testing.assert_allclose(bias, wanted_bias, rtol=close, atol=close)


@pytest.mark.parametrize(("l1", "l2"), [(0.0, 0.0), (0.0, 0.1), (0.02, 0.0), (0.02, 0.1)])
def test_a_native_saga_epoch_is_the_epoch_of_the_definition(l1, l2):
    X, y = problem()
    rows, n = from_arrays(X).block, X.shape[0]
    generator = np.random.default_rng(3)
    share, gradients, features, bias = np.linspace(0.5, 1.5, n), np.zeros(n), np.zeros((8, 4)), np.zeros(2)
    wanted = {name: np.zeros(size) for name, size in {"gradients": n, "w": 8, "mean": 8, "bias": 2}.items()}
    for _ in range(3):
        order = generator.integers(0, n, n)
        visits = kernels.Rows(rows.indptr, rows.indices, rows.values, y, order=order)
        choices = kernels.SagaChoices(loss=LOSSES["log"].code, parameter=0.0, eta=0.2, l1=l1, l2=l2, fit_intercept=True)
        assert kernels.saga_epoch(visits, share, gradients, features, bias, choices) == n
        slope = LOSSES["log"].gradient
        reference.saga_epoch(X.toarray(), y, share, order, **wanted, loss=slope, eta=0.2, l1=l1, l2=l2)
    np.testing.assert_allclose(features[:, 0], wanted["w"], atol=1e-9)
    np.testing.assert_allclose(features[:, 1], wanted["mean"], atol=1e-9)
    np.testing.assert_allclose(bias, wanted["bias"], atol=1e-9)


def test_a_native_cycle_is_the_cycle_of_the_definition():
    X, y = problem()
    rows = from_arrays(X).block
    columns = transposed(rows)
    np.testing.assert_array_equal(
        sp.csr_matrix((columns.values, columns.indices, columns.indptr), shape=X.T.shape).toarray(), X.T.toarray()
    )
    dense, h = X.toarray().astype(np.float64), np.linspace(0.1, 1, len(y)).astype(np.float32)
    gradient, chosen = dense.T @ -y / 10, np.array([1, 3, 6])
    diagonal, w, bias = np.zeros(8), np.linspace(-1, 1, 8), np.zeros(1)
    wanted, along = w.copy(), np.zeros(len(y))
    kernels.cd_diagonal(columns.as_rows(), chosen, h, diagonal)
    model = kernels.CdModel(
        gradient=gradient, diagonal=diagonal, w=w, u=np.zeros(len(y), np.float32), h=h, bias=bias,
        bias_gradient=0.0, l1=0.3, l2=0.1, fit_intercept=False,
    )  # fmt: skip
    kernels.cd_cycles(columns.as_rows(), chosen, model, 4, 0.0)
    for _ in range(4):
        reference.cd_cycle(dense, gradient, h.astype(np.float64), wanted, along, chosen, 0.3, 0.1)
    np.testing.assert_allclose(w, wanted, atol=1e-5)


@pytest.mark.parametrize("loss", ["squared_hinge", "log", "modified_huber", "squared", "huber"])
@pytest.mark.parametrize("weighted", [False, True])
def test_dual_cd_reaches_the_optimum_that_scipy_finds(loss, weighted):
    from scipy.optimize import minimize

    X, y = problem(loss=loss)
    X64, weight = X.astype(np.float64), np.linspace(0, 3, len(y)) if weighted else None
    share = np.full(len(y), 1 / len(y)) if weight is None else weight / weight.sum()

    def value_and_gradient(p):
        slope = share * LOSSES[loss].gradient(X64 @ p[:-1] + p[-1], y, PARAMETER.get(loss, 0.0))
        gradient = np.append(X64.T @ slope + 0.01 * p[:-1], slope.sum())
        return objective(loss, X64, y, p[:-1], p[-1], 0.01, weight), gradient

    best = minimize(value_and_gradient, np.zeros(9), jac=True, method="BFGS", options={"gtol": 1e-10}).fun
    found = solved(loss, X, y, weight=weight)
    assert found.objective == pytest.approx(best, rel=1e-7)
    assert objective(loss, X64, y, found.weights, found.bias, 0.01, weight) == pytest.approx(found.objective, rel=1e-9)


@pytest.mark.parametrize("loss", ["hinge", "epsilon_insensitive"])
def test_dual_cd_reaches_the_optimum_of_a_support_vector_machine(loss):
    svm = pytest.importorskip("sklearn.svm")
    X, y = problem(loss=loss)
    C = 1 / (0.01 * len(y))
    peer = svm.SVC(kernel="linear", C=C, tol=1e-10) if loss == "hinge" else svm.SVR(kernel="linear", C=C, tol=1e-10)
    peer.fit(X.toarray().astype(np.float64), y)
    best = objective(loss, X.astype(np.float64), y, peer.coef_.ravel(), float(peer.intercept_[0]), 0.01)
    assert solved(loss, X, y).objective == pytest.approx(best, rel=1e-6)


@settings(max_examples=40, deadline=None)
@given(
    loss=some.sampled_from(DUAL),
    seed=some.integers(0, 10**6),
    alpha=some.sampled_from([1e-4, 1e-2, 1.0, 100.0]),
    sweeps=some.integers(1, 4),
    fit_intercept=some.booleans(),
)
def test_the_certificate_is_honest_however_early_it_is_asked_for(loss, seed, alpha, sweeps, fit_intercept):
    X, y = problem(n=25, d=5, seed=seed, loss=loss)
    early = DualProblem(output_data(loss, from_arrays(X).block, y, alpha, fit_intercept=fit_intercept))
    for _ in range(sweeps):
        early.sweep()
    first = early.certify()
    later = solved(loss, X, y, alpha, 1e-7, fit_intercept=fit_intercept)
    assert first.objective - first.gap <= later.objective * (1 + 1e-9) + 1e-12
    assert first.gap >= 0
    assert later.gap >= 0


@pytest.mark.parametrize("loss", ["hinge", "log"])
def test_a_weight_of_three_is_three_copies(loss):
    X, y = problem(loss=loss)
    weight = np.resize([1.0, 3.0, 0.0], len(y))
    copies = np.repeat(np.arange(len(y)), weight.astype(int))
    one, other = solved(loss, X, y, weight=weight), solved(loss, X[copies], y[copies])
    assert one.objective == pytest.approx(other.objective, rel=1e-8)
    np.testing.assert_allclose(one.weights, other.weights, atol=1e-4)


def test_the_estimator_shows_what_the_dual_found():
    X, y = problem()
    model = st.LinearClassifier("hinge", solver="dual_cd", alpha=0.05, tol=1e-8, dtype="float64", random_state=0)
    model.fit(X, y)
    np.testing.assert_allclose(model.dual_coef_ @ X, model.coef_, atol=1e-6)
    assert abs(model.dual_coef_.sum()) < 1e-6
    scores = y * model.decision_function(X)
    np.testing.assert_allclose(model.slacks_[0], np.maximum(0, 1 - scores), atol=1e-6)
    assert set(np.flatnonzero(scores < 0.999)) <= set(model.support_) <= set(np.flatnonzero(scores < 1.001))
    assert 0 <= model.dual_gap_ <= 1e-8 * model.objective(X, y)
    assert "duality gap" in model.history_.events[-1]
    assert not hasattr(model.set_params(solver="sgd").fit(X, y), "dual_coef_")


@pytest.mark.parametrize(("solver", "penalty"), [("dual_cd", "l2"), ("saga", "l2"), ("saga", "l1"), ("cd", "l1")])
def test_three_classes_are_three_problems_whatever_the_threads(solver, penalty):
    X, _ = problem(n=90)
    y = np.argmax(X[:, :3].toarray(), axis=1)
    options = {"solver": solver, "penalty": penalty, "alpha": 0.01, "dtype": "float64", "random_state": 0}
    one, two = (st.LinearClassifier("log", n_jobs=n, **options).fit(X, y) for n in (1, 2))
    np.testing.assert_array_equal(one.coef_, two.coef_)
    alone = st.LinearClassifier("log", **options).fit(X, (y == 1).astype(int))
    np.testing.assert_allclose(one.coef_[1], alone.coef_[0], atol=2e-3)


@pytest.mark.parametrize("solver", ["saga", "cd"])
def test_sparse_logistic_regression_reaches_the_optimum_of_scikit_learn(solver):
    linear_model = pytest.importorskip("sklearn.linear_model")
    X, y = problem()
    alpha = 0.02
    model = st.LinearClassifier("log", solver=solver, penalty="l1", alpha=alpha, dtype="float64", random_state=0)
    model.set_params(tol=1e-9).fit(X, y)
    peer = linear_model.LogisticRegression(
        C=1 / (alpha * len(y)), l1_ratio=1.0, solver="saga", tol=1e-12, max_iter=100_000, random_state=0
    ).fit(X.astype(np.float64), y)
    losses = LOSSES["log"].value(X @ peer.coef_[0] + peer.intercept_[0], y)
    best = float(losses.mean()) + alpha * float(np.abs(peer.coef_).sum())
    assert model.objective(X, y) == pytest.approx(best, rel=1e-7)
    assert 0 < model.n_nonzero_ < 8


@pytest.mark.parametrize("solver", ["saga", "cd"])
def test_the_elastic_net_reaches_the_optimum_of_scikit_learn(solver):
    linear_model = pytest.importorskip("sklearn.linear_model")
    X, y = problem(loss="squared")
    model = st.LinearRegressor(solver=solver, penalty=st.ElasticNet(l1_ratio=0.5), alpha=0.1, dtype="float64")
    model.set_params(tol=1e-9, random_state=0).fit(X, y)
    peer = linear_model.ElasticNet(alpha=0.1, l1_ratio=0.5, tol=1e-12, max_iter=100_000)
    peer.fit(X.toarray().astype(np.float64), y)
    np.testing.assert_allclose(model.coef_.ravel(), peer.coef_.ravel(), atol=1e-5)


def test_saga_finds_the_optimum_of_counts():
    linear_model = pytest.importorskip("sklearn.linear_model")
    X, y = problem(loss="poisson")
    model = st.LinearRegressor("poisson", solver="saga", alpha=0.05, dtype="float64", tol=1e-8, random_state=0)
    model.fit(X, y)
    peer = linear_model.PoissonRegressor(alpha=0.05, tol=1e-12, max_iter=10_000)
    peer.fit(X.toarray().astype(np.float64), y)
    np.testing.assert_allclose(model.coef_.ravel(), peer.coef_, atol=1e-4)


@pytest.mark.parametrize(("solver", "penalty"), [("dual_cd", "l2"), ("saga", "l2"), ("cd", "l1")])
def test_a_source_of_chunks_gives_the_bits_of_one_block(solver, penalty):
    X, y = problem(n=300)
    options = {"solver": solver, "penalty": penalty, "alpha": 0.01, "dtype": "float64", "random_state": 3}
    whole = st.LinearClassifier("log", **options).fit(X, y)
    pieces = st.LinearClassifier("log", **options).fit_stream(st.from_arrays(X, y, chunk_rows=37).limit(300))
    np.testing.assert_array_equal(whole.coef_, pieces.coef_)


def test_a_dual_run_taken_up_again_goes_on_to_the_same_bits():
    X, y = problem(n=200)
    model = st.LinearClassifier("hinge", solver="dual_cd", alpha=0.01, random_state=0)

    def solver():
        source = model.source_of(X, y)
        data = BatchData(source, model.new_learner(model.settings_for(200), source))
        return DualCD(Objective(data), SolverOptions(tol=1e-8))

    one, other = solver(), solver()
    one.step()
    other.restore({name: np.array(array) for name, array in one.state.items()})
    assert one.step().objective == other.step().objective
    np.testing.assert_array_equal(one.w, other.w)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"solver": "dual_cd", "alpha": 0.0}, "alpha > 0"),
        ({"solver": "dual_cd", "penalty": "l1"}, "quadratic penalty"),
        ({"solver": "dual_cd", "loss": "exponential"}, "newton_cg"),
        ({"solver": "saga", "loss": "hinge"}, "kinks"),
        ({"solver": "cd"}, "sparse weights"),
    ],
)
def test_pairs_that_cannot_work_are_refused_with_the_reason(options, words):
    X, y = problem()
    with pytest.raises(ParameterError, match=words):
        st.LinearClassifier(**options).fit(X, y)


@pytest.mark.parametrize(("solver", "penalty"), [("dual_cd", "l2"), ("saga", "l2"), ("cd", "l1")])
def test_bad_rows_are_named_and_softmax_is_refused(solver, penalty):
    X, y = problem()
    model = st.LinearClassifier("log", solver=solver, penalty=penalty, alpha=0.01)
    broken = X.copy()
    broken.data[broken.indptr[7]] = np.nan
    with pytest.raises(DataError, match="row 7"):
        model.fit(broken, y)
    broken = X.copy()
    broken.indices[broken.indptr[5]] = 99
    with pytest.raises(DataError, match="X has the column index 99"):
        model.fit(broken, y)
    with pytest.raises(ParameterError, match="ovr"):
        model.set_params(multi_class="softmax").fit(X, np.arange(len(y)) % 3)


def test_rows_that_do_not_fit_into_memory_are_refused_in_one_sentence(monkeypatch):
    X, y = problem()
    monkeypatch.setattr(batch_data, "memory_bytes", lambda: 1000)
    with pytest.raises(DataError, match="keeps all rows in memory"):
        st.LinearClassifier(solver="dual_cd", alpha=0.01).fit_stream(st.from_arrays(X, y).limit(50))


@pytest.mark.parametrize(("solver", "penalty"), [("dual_cd", "l2"), ("saga", "l2"), ("saga", "l1"), ("cd", "l1")])
def test_constant_columns_empty_rows_and_one_feature_give_finite_weights(solver, penalty):
    X = np.array([[0.0, 1.0], [0.0, 1.0], [0.0, 1.0], [0.0, 0.0]], np.float32)
    model = st.LinearClassifier("log", solver=solver, penalty=penalty, alpha=0.1, random_state=0, fit_intercept=False)
    model.fit(X, [0, 1, 1, 0])
    assert np.isfinite(model.coef_).all()


# --------------------------------------------------------------------------------------- cd, features that say the same


def one_hot_groups(n=600, groups=6, size=5, seed=0):
    """Each group's columns sum to one, so that one feature after the other hardly gets anywhere."""
    generator = np.random.default_rng(seed)
    columns = np.arange(groups) * size + generator.integers(0, size, (n, groups))
    X = sp.csr_matrix((np.ones(n * groups, np.float32), columns.ravel(), np.arange(0, n * groups + 1, groups)))
    y = np.sign(X @ generator.standard_normal(groups * size) + generator.standard_normal(n))
    return X, y


@given(some.integers(0, 10_000), some.booleans(), some.sampled_from([0.0, 0.01]), some.sampled_from([0.0, 0.02, 0.3]))
@settings(max_examples=60, deadline=None)
def test_the_minimum_of_a_quadratic_model_meets_its_conditions(seed, with_bias, l2, l1):
    generator = np.random.default_rng(seed)
    n, rows = 7, 12
    A = generator.standard_normal((rows, n + 1))
    A[:, -1] = 1.0
    A[:, 1] = A[:, 0]  # two features that say the same
    model = QuadraticModel(A.T @ A / rows, generator.standard_normal(n + 1), l1, l2 or 1e-3, with_bias)
    start, w = generator.standard_normal((2, n + 1)) * (generator.random((2, n + 1)) < 0.6)
    w[-1] = start[-1]
    found = model.minimum(start, w, 1e-8)
    slope = model.gradient + model.matrix @ (found - start)
    slope[:-1] += model.l2 * found[:-1]
    used = found[:-1] != 0
    assert np.abs(slope[:-1] + l1 * np.sign(found[:-1]))[used].sum() < 1e-7
    assert (np.abs(slope[:-1][~used]) <= l1 + 1e-7).all()
    assert abs(slope[-1]) < 1e-7 if with_bias else found[-1] == start[-1]


def test_the_matrix_of_a_model_is_that_of_dense_rows():
    X, _ = problem(40, 9)
    columns = transposed(next(iter(from_arrays(X, np.zeros(40)))))
    h, chosen = np.random.default_rng(0).random(40), np.array([1, 4, 8])
    dense = np.column_stack([X.toarray()[:, chosen], np.ones(40)]).astype(np.float64)
    np.testing.assert_allclose(model_matrix(columns, chosen, h), dense.T @ (h[:, None] * dense), atol=1e-12)


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("loss", ["log", "squared_hinge"])
def test_cd_needs_few_steps_where_features_say_the_same(loss, fit_intercept):
    X, y = one_hot_groups()
    options = dict(penalty="l1", alpha=1e-4, fit_intercept=fit_intercept, dtype="float64", max_iter=5000)
    found = st.LinearClassifier(loss, solver="cd", tol=1e-9, **options).fit(X, y)
    other = st.LinearClassifier(loss, solver="lbfgs", tol=1e-9, **options).fit(X, y)
    assert found.objective(X, y) <= other.objective(X, y) * (1 + 1e-8)
    assert len(found.history_) < 40
    assert found.history_.events[-1].startswith("converged")


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("loss", ["epsilon_insensitive", "quantile", "hinge"])
def test_few_nearly_dependent_rows_need_few_sweeps(loss, fit_intercept):
    """One variable after the other took thousands of sweeps here, and 20,000 were not enough for some."""
    sweeps = []
    for seed in range(12):
        X, y = problem(80, 6, loss=loss, seed=seed)
        data = output_data(loss, from_arrays(X, y).block, y, 1e-3, seed=seed, fit_intercept=fit_intercept)
        dual = DualProblem(data, np.float64)
        assert dual.reach(1e-9).relative_gap <= 1e-9
        sweeps.append(dual.sweeps)
    assert max(sweeps) < 400


@pytest.mark.parametrize("width", [0.0, 0.3])
@pytest.mark.parametrize("with_bias", [True, False])
def test_the_minimum_on_a_face_is_that_of_scipy(with_bias, width):
    from scipy.optimize import minimize

    generator = np.random.default_rng(0)
    for _ in range(10):
        X, y = generator.standard_normal((5, 8)), generator.standard_normal(5)
        beta = generator.uniform(0.1, 0.4, 5) * generator.choice([-1, 1], 5)
        excess = float(beta.sum()) if with_bias else None
        gram, diagonal, sign = X @ X.T, np.full(5, 0.2), np.sign(beta)

        def value(b, gram=gram, y=y, diagonal=diagonal, sign=sign):
            return 0.5 * b @ gram @ b - y @ b + 0.5 * b @ (diagonal * b) + width * (sign @ b)

        face = Face(beta, np.full(5, -50.0), np.full(5, 50.0), gram @ beta - y + diagonal * beta, width, diagonal)
        found, _ = minimise(face, gram, excess)
        sides = [(-50, 0) if s < 0 and width else (0, 50) if s > 0 and width else (-50, 50) for s in sign]
        rule = {"constraints": {"type": "eq", "fun": np.sum}} if with_bias else {}
        best = minimize(value, beta, bounds=sides, method="SLSQP", options={"ftol": 1e-14}, **rule)
        whole = (found != 0).all()  # a variable that met its bound may not leave it within the face
        assert value(found) <= value(beta) + 1e-9 or with_bias
        if whole:
            assert value(found) == pytest.approx(best.fun, abs=1e-7)
            assert not with_bias or abs(found.sum()) < 1e-7
        assert (found * sign >= 0).all() or not width


# ---------------------------------------------------------------------------------------- rows of large norm


def large_rows(n=200, seed=0):
    """Columns of very different sizes that nearly say the same, as raw measurements do."""
    rng = np.random.default_rng(seed)
    size = rng.normal(1, 0.3, n)
    X = np.column_stack([size * scale * (1 + 0.05 * rng.normal(size=n)) for scale in (1000, 300, 20, 1, 0.1)])
    X[:, 3:] += rng.normal(size=(n, 2)) * [0.3, 0.02]
    y = (X[:, 3] - size + 0.1 * rng.normal(size=n) > 0).astype(int)
    return X.astype(np.float32), y


@pytest.mark.parametrize("alpha", [1e-6, 1e-2])
@pytest.mark.parametrize("loss", ["hinge", "squared_hinge", "log"])
def test_rows_of_large_norm_do_not_make_the_dual_diverge(loss, alpha):
    X, y = large_rows()
    model = st.LinearClassifier(loss, solver="dual_cd", alpha=alpha, random_state=0, dtype="float64", tol=1e-5)
    model.fit(X, y)
    exact = st.LinearClassifier(loss, solver="newton_cg", alpha=alpha, tol=1e-9, dtype="float64").fit(X, y)
    objectives = [record["objective"] for record in model.history_.records]
    assert objectives == sorted(objectives, reverse=True)
    assert objectives[-1] == pytest.approx(exact.history_[-1]["objective"], rel=1e-4)
    assert 0 <= model.dual_gap_ <= 1e-5 * objectives[-1]
    assert objectives[-1] - model.dual_gap_ <= exact.history_[-1]["objective"] * (1 + 1e-9)
    assert abs(model.dual_coef_.sum()) < 1e-6 * np.abs(model.dual_coef_).sum()


def test_raw_measurements_reach_the_optimum_with_a_certificate():
    datasets = pytest.importorskip("sklearn.datasets")
    X, y = datasets.load_breast_cancer(return_X_y=True)
    model = st.LinearClassifier("hinge", solver="dual_cd", alpha=1e-6, random_state=0).fit(X, y)
    assert model.history_[-1]["objective"] == pytest.approx(0.0361468, rel=1e-4)  # by the primal, to 2e-7
    assert model.dual_gap_ <= 1e-6 * model.history_[-1]["objective"]


def test_what_newton_took_over_is_resumed_to_the_same_bits():
    X, y = large_rows()
    model = st.LinearClassifier("log", solver="dual_cd", alpha=1e-6, random_state=0)
    source = model.source_of(X, y)

    def solver():
        data = BatchData(source, model.new_learner(model.settings_for(200), source))
        return DualCD(Objective(data), SolverOptions(tol=1e-9))

    whole = solver()
    for _ in range(3):
        whole.step()
    assert whole.primal is not None
    again = solver()
    again.restore({name: array.copy() for name, array in whole.state.items()})
    for _ in range(3):
        assert whole.step() == again.step()
    np.testing.assert_array_equal(again.w, whole.w)


@pytest.mark.parametrize("solver", ["gd", "cg", "lbfgs", "newton_cg", "dual_cd", "saga"])
def test_who_stops_short_warns(solver):
    X, y = large_rows()
    model = st.LinearClassifier("log", solver=solver, alpha=1e-6, max_iter=1, tol=1e-12, random_state=0)
    with pytest.warns(st.NotConverged, match=r"max_iter=1 .*before tol=1e-12.*give a larger max_iter or tol"):
        model.fit(X, y)
    assert any("max_iter=1" in event for event in model.history_.events)
