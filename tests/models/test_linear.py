"""What the linear estimators learn, and what they say when they cannot."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import minimize
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits, load_iris
from sklearn.preprocessing import StandardScaler

import steepest as st
from conftest import sparse_problem
from steepest.learners.losses import LOSSES
from steepest.learners.targets import by_appearance

BINARY = [name for name, loss in LOSSES.items() if loss.kind == "binary"]
REAL = [name for name, loss in LOSSES.items() if loss.kind == "real"]


def best_objective(loss, X, y, alpha, parameter=0.1):
    """The optimum of mean loss + alpha/2 ‖w‖² with a free bias, by a batch method on a smoothed start."""
    X = np.asarray(X.todense() if sp.issparse(X) else X, np.float64)

    def cost(v):
        z = X @ v[:-1] + v[-1]
        value = np.mean(LOSSES[loss].value(z, y, parameter)) + alpha / 2 * v[:-1] @ v[:-1]
        g = LOSSES[loss].gradient(z, y, parameter) / len(y)
        return value, np.append(X.T @ g + alpha * v[:-1], g.sum())

    start = np.append(np.zeros(X.shape[1]), np.median(y) if loss in REAL else 0.0)
    best = minimize(cost, start, jac=True, method="L-BFGS-B", options={"maxiter": 5000, "maxfun": 20000}).fun
    return min(best, minimize(lambda v: cost(v)[0], start, method="Powell", options={"maxiter": 3}).fun)


@pytest.mark.parametrize("loss", [name for name in BINARY if name != "perceptron"])
@pytest.mark.parametrize("solver", ["sgd", "asgd", "adagrad", "ftrl"])
def test_every_rule_comes_near_the_optimum_of_every_binary_loss(loss, solver, binary):
    X, y = binary
    model = st.LinearClassifier(loss, alpha=1e-2, solver=solver, epochs=60, random_state=0).fit(X, y)
    best = best_objective(loss, X, np.where(y == 1, 1.0, -1.0), 1e-2)
    assert best <= model.objective(X, y) * (1 + 1e-6)
    assert model.objective(X, y) <= best * 1.01


@pytest.mark.parametrize("loss", REAL)
@pytest.mark.parametrize("solver", ["sgd", "asgd", "adagrad", "ftrl"])
def test_every_rule_comes_near_the_optimum_of_every_regression_loss(loss, solver, regression):
    X, y = regression
    options = dict(alpha=1e-2, epochs=100, random_state=0)
    chosen = st.Quantile(0.3) if loss == "quantile" else loss
    model = st.LinearRegressor(chosen, solver=solver, **options).fit(X, y)
    best = best_objective(loss, X, y, 1e-2, 0.3 if loss == "quantile" else 0.1)
    assert model.objective(X, y) <= best * 1.02


def test_poisson_regression_agrees_with_scikit_learn():
    from sklearn.linear_model import PoissonRegressor

    rng = np.random.default_rng(0)
    X = rng.standard_normal((2000, 5)).astype(np.float32)
    y = rng.poisson(np.exp(0.3 * X[:, 0] - 0.2 * X[:, 1] + 0.5))
    ours = st.LinearRegressor("poisson", alpha=1e-3, epochs=60, random_state=0).fit(X, y)
    theirs = PoissonRegressor(alpha=1e-3, tol=1e-8).fit(X, y)
    np.testing.assert_allclose(ours.coef_[0], theirs.coef_, atol=0.02)
    np.testing.assert_allclose(ours.predict(X[:5]), theirs.predict(X[:5]), rtol=0.05)


def test_one_epoch_of_sgd_is_near_the_optimum_and_five_are_nearer():
    X, y = sparse_problem(n_rows=60_000, n_features=500, density=0.02, seed=30)
    best = st.LinearClassifier("hinge", alpha=1e-3, solver="sgd", epochs=60, random_state=1).fit(X, y).objective(X, y)
    one = st.LinearClassifier("hinge", alpha=1e-3, solver="sgd", epochs=1, random_state=0).fit(X, y).objective(X, y)
    five = st.LinearClassifier("hinge", alpha=1e-3, solver="sgd", epochs=5, random_state=0).fit(X, y).objective(X, y)
    assert one <= best * 1.01
    assert five <= best * 1.0015
    assert five < one


@pytest.mark.parametrize(("solver", "zeros"), [("sgd", 5), ("truncated", 5), ("ftrl", 100), ("adagrad", 100)])
def test_the_one_norm_makes_exact_zeros_and_they_are_counted(solver, zeros):
    X, y = sparse_problem(n_rows=5000, seed=31)
    model = st.LinearClassifier(penalty="l1", alpha=2e-3, solver=solver, epochs=10, random_state=0).fit(X, y)
    assert zeros <= int((model.coef_ == 0).sum()) < 200
    assert model.n_nonzero_ == int((model.coef_ != 0).sum()) == model.history_[-1]["nonzeros"]
    assert model.score(X, y) > 0.75


def test_truncation_leaves_large_weights_alone():
    X, y = sparse_problem(n_rows=4000, seed=32)
    options = dict(penalty="l1", alpha=2e-3, epochs=5, random_state=0, eta0=2.0)
    everywhere = st.LinearClassifier(solver="truncated", **options).fit(X, y)
    below = st.LinearClassifier(solver=st.Truncated(below=0.5), **options).fit(X, y)
    assert np.abs(below.coef_).max() > 1.5 * np.abs(everywhere.coef_).max()
    assert (below.coef_ == 0).any()


def test_averaged_perceptron_is_the_plain_mean_of_its_iterates():
    X, y = sparse_problem(n_rows=300, n_features=40, density=0.2, seed=33)
    sign = np.where(y == 1, 1.0, -1.0)
    options = dict(alpha=0, shuffle="never", epochs=2, dtype="float64")
    model = st.LinearClassifier("perceptron", average=True, **options).fit(X, y)
    dense, w, b, total, bias = X.toarray().astype(np.float64), np.zeros(40), 0.0, np.zeros(40), 0.0
    for _ in range(2):
        for x, target in zip(dense, sign, strict=True):
            if target * (w @ x + b) <= 0:
                w, b = w + target * x, b + target
            total, bias = total + w, bias + b
    np.testing.assert_allclose(model.coef_[0], total / 600, atol=1e-12)
    np.testing.assert_allclose(model.intercept_[0], bias / 600, atol=1e-12)


@pytest.mark.parametrize("multi_class", ["ovr", "softmax"])
@pytest.mark.parametrize("solver", ["sgd", "asgd", "adagrad", "ftrl"])
def test_many_classes(multi_class, solver):
    X, y = load_digits(return_X_y=True)
    X = X / 16
    model = st.LinearClassifier(multi_class=multi_class, solver=solver, epochs=20, random_state=0).fit(X, y)
    assert model.coef_.shape == (10, 64)
    assert model.score(X, y) > 0.94
    probabilities = model.predict_proba(X)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, atol=1e-9)
    assert (probabilities.argmax(axis=1) == model.decision_function(X).argmax(axis=1)).all()


def test_softmax_minimises_the_cross_entropy():
    from sklearn.linear_model import LogisticRegression

    X, y = load_iris(return_X_y=True)
    X = StandardScaler().fit_transform(X).astype(np.float32)
    ours = st.LinearClassifier(multi_class="softmax", alpha=1e-2, epochs=300, random_state=0).fit(X, y)
    theirs = LogisticRegression(C=1 / (1e-2 * len(y)), tol=1e-8, max_iter=1000).fit(X, y)
    np.testing.assert_allclose(ours.predict_proba(X), theirs.predict_proba(X), atol=0.03)


def test_multi_label_targets():
    X, _ = sparse_problem(n_rows=3000, n_classes=4, seed=34)
    rng = np.random.default_rng(0)
    W = rng.standard_normal((200, 3))
    Y = (X @ W > 0).astype(int)
    model = st.LinearClassifier(random_state=0).fit(X, Y)
    assert model.predict(X).shape == (3000, 3)
    assert model.predict_proba(X).shape == (3000, 3)
    assert (model.predict(X) == Y).mean() > 0.93
    assert model.evaluate_stream(st.from_arrays(X, Y))["micro_f1"] > 0.9


def test_several_targets_of_a_regression():
    X, y = load_diabetes(return_X_y=True)
    Y = np.column_stack([y, -2 * y])
    model = st.LinearRegressor(epochs=100, random_state=0).fit(X, Y)
    assert model.predict(X).shape == Y.shape
    assert model.score(X, Y) > 0.45


def test_class_weights_move_the_decision():
    X, y = sparse_problem(n_rows=3000, noise=0.2, seed=35)
    rare = np.where((y == 1) & (np.arange(3000) % 10 == 0), 1, 0)
    options = dict(solver="stochastic", random_state=0)
    plain = st.LinearClassifier(**options).fit(X, rare)
    balanced = st.LinearClassifier(class_weight="balanced", **options).fit(X, rare)
    given = st.LinearClassifier(class_weight={1: 10.0}, **options).fit(X, rare)
    assert balanced.predict(X).sum() > plain.predict(X).sum()
    assert given.predict(X).sum() > plain.predict(X).sum()


def test_c_is_the_support_vector_machines_view_of_alpha():
    X, y = sparse_problem(seed=36)
    a = st.LinearClassifier("hinge", C=2.0, random_state=0).fit(X, y)
    b = st.LinearClassifier("hinge", alpha=1 / (600 * 2.0), random_state=0).fit(X, y)
    np.testing.assert_array_equal(a.coef_, b.coef_)
    assert a.margin_ == pytest.approx(1 / np.linalg.norm(a.coef_), rel=1e-6)


def test_dense_and_sparse_input_learn_the_same():
    X, y = load_breast_cancer(return_X_y=True)
    X = StandardScaler().fit_transform(X)
    dense = st.LinearClassifier(random_state=0).fit(X, y)
    sparse = st.LinearClassifier(random_state=0).fit(sp.csc_matrix(X), y)
    np.testing.assert_array_equal(dense.coef_, sparse.coef_)
    assert dense.score(X, y) > 0.97


def test_sparsify_shows_csr_and_predicts_alike(binary):
    X, y = binary
    model = st.LinearClassifier(penalty="l1", alpha=1e-2, random_state=0).fit(X, y)
    before = model.decision_function(X)
    assert sp.issparse(model.sparsify().coef_)
    np.testing.assert_array_equal(model.decision_function(X), before)
    assert isinstance(model.densify().coef_, np.ndarray)


def test_scores_are_weights_times_rows_plus_bias(multiclass):
    X, y = multiclass
    for options in (dict(), dict(solver="sgd"), dict(solver="ftrl"), dict(penalty="l1", alpha=1e-3)):
        model = st.LinearClassifier(random_state=0, **options).fit(X, y)
        np.testing.assert_allclose(
            model.decision_function(X), X @ model.coef_.T.astype(float) + model.intercept_, atol=2e-5
        )


def test_threads_score_the_same_bits():
    X, y = sparse_problem(n_rows=5000, seed=37)
    one = st.LinearClassifier(random_state=0, n_jobs=1).fit(X, y)
    two = st.LinearClassifier(random_state=0, n_jobs=4).fit(X, y)
    np.testing.assert_array_equal(one.decision_function(X), two.decision_function(X))


def test_history_tells_what_happened(binary):
    X, y = binary
    train, test = st.from_arrays(X, y).holdout(0.2)
    model = st.LinearClassifier(epochs=3, random_state=0).fit_stream(train, test)
    assert model.n_iter_ == len(model.history_) == 3
    for record in model.history_:
        assert record["rows"] == 480
        assert record["seconds"] > 0
        assert record["eta"] > 0
        assert record["objective"] >= record["holdout_loss"] > 0
    assert model.history_[-1]["holdout_loss"] < np.log(2)


def test_progressive_loss_scores_each_row_before_learning_it():
    X, y = sparse_problem(n_rows=50, seed=38)
    model = st.LinearClassifier(solver="sgd", eta0=0.5, epochs=1, shuffle="never", alpha=0.0)
    model.fit(X, y)
    online, total = st.LinearClassifier(solver="sgd", eta0=0.5, alpha=0.0), 0.0
    online.partial_fit(X[:1], y[:1], classes=[0, 1])
    total += np.log(2)
    for i in range(1, 50):
        z = online.decision_function(X[i])[0] * (1 if y[i] == 1 else -1)
        total += np.log1p(np.exp(-z))
        online.partial_fit(X[i], y[i : i + 1])
    assert model.history_[0]["loss"] == pytest.approx(total / 50, rel=1e-5)


def test_early_stopping_keeps_the_best_epoch():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((150, 300)).astype(np.float32)  # more features than rows, random labels
    y = rng.integers(0, 2, 150)
    model = st.LinearClassifier(epochs=50, early_stopping=True, random_state=0, solver="sgd").fit(X, y)
    assert len(model.history_) < 50
    assert any("stopped" in event for event in model.history_.events)


def test_tolerance_stops_when_the_loss_no_longer_falls(binary):
    X, y = binary
    model = st.LinearClassifier(epochs=500, tol=1e-3, random_state=0).fit(X, y)
    assert len(model.history_) < 500


def test_adaptive_schedule_lowers_the_step_when_the_loss_stalls():
    X, y = sparse_problem(noise=0.3, seed=39)
    model = st.LinearClassifier(schedule="adaptive", solver="sgd", eta0=20.0, epochs=40, random_state=0).fit(X, y)
    steps = model.history_.column("eta")
    assert steps[-1] < steps[0]


@pytest.mark.parametrize("schedule", ["constant", "invsqrt", "bottou", "optimal", "adaptive"])
def test_every_schedule_learns(schedule, binary):
    X, y = binary
    model = st.LinearClassifier(schedule=schedule, alpha=1e-3, epochs=20, random_state=0).fit(X, y)
    assert model.objective(X, y) < 0.46


def test_overflow_rolls_back_halves_the_step_and_says_so(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((500, 20)) * 1e2
    y = rng.poisson(3.0, 500)
    options = dict(eta0=1.0, schedule="constant", solver="sgd", epochs=20, random_state=0)
    model = st.LinearRegressor("poisson", **options).fit(X, y)
    assert np.isfinite(model.coef_).all()
    assert any("halved the step size" in event for event in model.history_.events)
    model.save(tmp_path / "m")  # whatever the losses were on the way
    assert model.learner_.eta0 < 1.0


def test_a_few_rows_far_longer_than_the_others_do_not_throw_a_regression_out_of_range():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((3000, 8))
    X[2000::100] *= 100.0  # none among the rows that the step size is tried on
    y = X @ np.arange(8.0) + rng.standard_normal(3000)
    for solver in ("sgd", "asgd"):
        model = st.LinearRegressor(solver=solver, random_state=0, shuffle="never").fit(X, y)
        assert model.score(X[:2000], y[:2000]) > 0.9


def test_the_step_size_is_calibrated_to_the_scale_of_the_data():
    X, y = sparse_problem(n_rows=3000, seed=40)
    small = st.LinearClassifier(random_state=0, alpha=0).fit(X * 1e-3, y)
    large = st.LinearClassifier(random_state=0, alpha=0).fit(X * 1e3, y)
    assert small.score(X * 1e-3, y) > 0.9
    assert large.score(X * 1e3, y) > 0.9


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (dict(loss="hinje"), "loss='hinje' is unknown; did you mean 'hinge'? choose one of auto, hinge"),
        (dict(loss="huber"), "loss='huber' is unknown"),
        (dict(loss="zero_one"), "loss='zero_one' is unknown"),
        (dict(penalty="max", solver="sgd"), "penalty='max' couples all weights"),
        (dict(penalty="norm2", solver="lbfgs"), "use solver='gd'"),
        (dict(penalty="l3"), "penalty='l3' is unknown"),
        (dict(alpha=-1), "alpha=-1.0 is not a strength"),
        (dict(alpha="big"), "alpha='big' is not a number"),
        (dict(alpha=float("nan")), "alpha=nan is not a number"),
        (dict(epochs=0), "epochs=0 must be at least 1"),
        (dict(epochs=1.5), "epochs=1.5 must be a whole number"),
        (dict(batch_size=0), "batch_size=0"),
        (dict(eta0=0), "eta0=0 must be more than 0"),
        (dict(eta0="fast"), "eta0='fast' is unknown"),
        (dict(solver="newton"), "solver='newton' is unknown"),
        (dict(schedule="fast"), "schedule='fast'"),
        (dict(schedule="optimal", alpha=0), "give alpha > 0"),
        (dict(penalty=st.LP(p=1.5), solver="sgd"), "p=1 and p=2 only"),
        (dict(penalty=st.LP(p=0.5)), "at least 1"),
        (dict(penalty="l1", average=True), "zeros"),
        (dict(solver="asgd", average=False), "contradicts"),
        (dict(solver="truncated"), "penalty='l1'"),
        (dict(solver="ftrl", average=True), "average=True works with"),
        (dict(multi_class="softmax", loss="hinge"), "softmax"),
        (dict(class_weight="heavy"), "class_weight='heavy'"),
        (dict(shuffle="maybe"), "shuffle='maybe'"),
        (dict(dtype="float16"), "dtype='float16'"),
        (dict(C=0), "C=0 must be more than 0"),
        (dict(penalty=st.ElasticNet(l1_ratio=2)), "l1_ratio=2.0 lies outside"),
        (dict(random_state="x"), "random_state='x'"),
    ],
)
def test_a_parameter_that_cannot_work_is_named_with_the_way_out(options, message, binary):
    with pytest.raises(st.ParameterError) as caught:
        st.LinearClassifier(**options).fit(*binary)
    assert message in str(caught.value)


def bad_matrix(value):
    X, y = sparse_problem(n_rows=3000, seed=41)
    X = X.copy()
    X.data[len(X.data) * 3 // 4] = value
    return X, y


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("solver", ["sgd", "asgd", "ftrl"])
def test_a_value_that_is_not_finite_is_refused_with_its_row(value, solver):
    X, y = bad_matrix(value)
    row = int(np.searchsorted(X.indptr, len(X.data) * 3 // 4, side="right") - 1)
    with pytest.raises(st.DataError, match=f"row {row}, column"):
        st.LinearClassifier(solver=solver, random_state=0).fit(X, y)


@pytest.mark.parametrize("index", [-1, 200, 2**31 - 1])
def test_a_column_index_out_of_range_is_refused(index, binary):
    X, y = binary
    X = X.copy()
    X.indices[1000] = index
    with pytest.raises(st.DataError, match=f"column index {index}"):
        st.LinearClassifier(random_state=0).fit(X, y)


def test_bad_shapes_and_targets():
    X, y = sparse_problem(n_rows=50)
    model = st.LinearClassifier(random_state=0)
    with pytest.raises(st.DataError, match="50 rows but y has 49"):
        model.fit(X, y[:49])
    with pytest.raises(st.DataError, match="one class only"):
        model.fit(X, np.zeros(50))
    with pytest.raises(st.DataError, match="NaN or infinity, first in row 3"):
        st.LinearRegressor().fit(X, np.where(np.arange(50) == 3, np.nan, 1.0))
    with pytest.raises(st.DataError, match="negative"):
        st.LinearRegressor("poisson").fit(X, -np.ones(50))
    with pytest.raises(st.DataError, match="sample_weight of row 2"):
        model.fit(X, y, sample_weight=np.where(np.arange(50) == 2, -1.0, 1.0))
    with pytest.raises(st.DataError, match="expecting 200 features"):
        model.fit(X, y).predict(np.ones((1, 3)))
    with pytest.raises(ValueError, match="not fitted"):
        st.LinearClassifier().predict(X)
    with pytest.raises(AttributeError, match="no probabilities"):
        st.LinearClassifier("hinge").fit(X, y).predict_proba(X)


def test_a_table_that_cannot_fit_in_memory_is_refused():
    X = sp.csr_matrix((np.ones(1, np.float32), ([0], [2**31 - 2])), shape=(2, 2**31 - 1))
    with pytest.raises(st.DataError, match="the weights would take 16"):  # replicas have a row for every feature
        st.LinearClassifier(solver="ftrl", parallel=st.Replicas(n=2, sync_every=1)).fit(X, [0, 1])


def test_real_data_reaches_the_known_accuracy(shared_data):
    train = st.scan_libsvm(shared_data / "a9a" / "a9a.libsvm.gz", n_features=123)
    test = st.scan_libsvm(shared_data / "a9a" / "a9a.t.libsvm.gz", n_features=123)
    model = st.LinearClassifier(random_state=0).fit_stream(train)
    assert model.evaluate_stream(test)["accuracy"] > 0.845  # LinearSVC: 0.8498


@pytest.mark.parametrize("batch_size", [1, 64])
def test_rows_that_wait_already_show_their_classes(batch_size):
    X = np.eye(6, dtype=np.float32)[np.arange(90) % 6]
    y = np.array(["ham", "spam", "eggs"])[np.arange(90) % 3]
    model = st.LinearClassifier(random_state=0, batch_size=batch_size, eta0="auto" if batch_size == 1 else 0.5)
    for stop in (30, 60, 90):  # all three classes, of rows too few to be learned yet
        model.partial_fit(X[stop - 30 : stop], y[stop - 30 : stop])
        assert model.classes_.tolist() == ["eggs", "ham", "spam"]
        assert model.coef_.shape == (3, 6)
        assert model.score(X, y) == 1
    late = st.LinearClassifier(random_state=0).partial_fit(X[:9], y[:9], classes=["ham", "spam"])
    assert late.classes_.tolist() == ["eggs", "ham", "spam"]
    assert late.decision_function(X).shape == (90, 3)


def test_rows_that_wait_already_show_their_labels_and_targets():
    X = np.eye(4, dtype=np.float32)[np.arange(40) % 4]
    Y = np.stack([X[:, 0], X[:, 1] + X[:, 0]], axis=1)
    assert (st.LinearClassifier(random_state=0).partial_fit(X, Y).predict(X) == Y).all()
    assert st.LinearRegressor(random_state=0).partial_fit(X, Y).predict(X).shape == (40, 2)


@pytest.mark.parametrize(("n_features", "kept"), [(100, True), (1 << 22, False)])
def test_a_table_that_outweighs_the_rows_is_not_copied_for_a_roll_back(n_features, kept):
    n = (1 << 16) + 1000
    columns = np.random.default_rng(0).integers(0, 100, n)
    X = sp.csr_matrix((np.ones(n, np.float32), columns, np.arange(n + 1)), (n, n_features))
    model = st.LinearClassifier(solver="sgd", epochs=1, random_state=0).fit(X, columns > 50)
    assert model.learner_.good.exists == kept


@pytest.mark.parametrize(
    "y",
    [
        [1, 0, 1],
        [0, 0],
        [2.5, -1.0, 2.5],
        [3, 1, 2, 1],
        [True, False],
        ["b", "a", "b"],
        [],
        [np.nan, 1.0],
        [1.0, np.nan],
    ],
)
def test_classes_are_found_in_the_order_of_their_first_rows(y):
    y = np.array(y)
    found = by_appearance(y)
    assert [str(label) for label in found] == [str(label) for label in dict.fromkeys(y.tolist())]
    assert all(type(a) is type(b) for a, b in zip(found, y.tolist(), strict=False))


def test_classes_that_a_caller_overwrites_are_shown_again_after_more_rows():
    X = np.eye(4)
    model = st.LinearClassifier(solver="sgd", random_state=0).partial_fit(X, [3, 7, 3, 7])
    model.classes_[:] = 0
    assert model.partial_fit(X, [3, 7, 3, 7]).classes_.tolist() == [3, 7]
    assert model.partial_fit(X, [5, 7, 3, 7]).classes_.tolist() == [3, 5, 7]


@pytest.mark.parametrize("library", ["polars", "pyarrow"])
def test_frames_of_numbers_are_learned_and_predicted_and_their_names_checked(library):
    table = pytest.importorskip(library).DataFrame if library == "polars" else pytest.importorskip(library).table
    X = np.random.default_rng(0).standard_normal((60, 2))
    model = st.LinearClassifier(random_state=0).fit(table({"a": X[:, 0], "b": X[:, 1]}), X[:, 0] > 0)
    np.testing.assert_array_equal(model.predict(table({"a": X[:, 0], "b": X[:, 1]})), X[:, 0] > 0)
    with pytest.raises(st.DataError, match="b"):
        model.predict(table({"a": X[:, 0], "c": X[:, 1]}))


@pytest.mark.parametrize("form", ["dok", "lil", "coo", "dia", "bsr", "csc"])
def test_every_sparse_format_gives_what_csr_gives(form):
    X = sp.random(40, 5, density=0.5, format="csr", random_state=0)
    y = np.arange(40) % 2
    models = [st.LinearClassifier(random_state=0).fit(rows, y) for rows in (X, X.asformat(form))]
    np.testing.assert_array_equal(models[0].coef_, models[1].coef_)
    np.testing.assert_array_equal(models[0].predict(X), models[1].predict(X.asformat(form)))
