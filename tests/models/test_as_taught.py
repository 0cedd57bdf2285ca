"""Methods of the lectures, rebuilt by hand in NumPy and compared through the public names."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse
from scipy.optimize import minimize

import steepest as st

EXACT = dict(dtype="float64", shuffle="never")


@pytest.fixture
def rows():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((120, 6)).astype(np.float32).astype(float)
    return X, X @ rng.standard_normal(6) + 0.7 + 0.8 * rng.standard_normal(120)


def all_weights(model):
    return np.append(model.coef_.ravel(), model.intercept_)


def perceptron(w, X, y, epochs):
    """(the last weights, the mean of all)."""
    total = np.zeros_like(w)
    for _ in range(epochs):
        for x, sign in zip(X, y, strict=True):
            if sign * (x @ w) <= 0:
                w = w + sign * x
            total += w
    return w, total / (epochs * len(y))


@pytest.mark.independent
def test_the_perceptron_is_the_textbooks_and_so_is_its_average(rows):
    X, y = rows[0], np.sign(rows[1])
    last, mean = perceptron(np.zeros(7), np.column_stack([X, np.ones(120)]), y, 3)
    options = dict(alpha=0, epochs=3, **EXACT)
    averaged = st.LinearClassifier("perceptron", average=True, **options).fit(X, y)
    np.testing.assert_allclose(all_weights(averaged), mean, atol=1e-10)
    plain = st.LinearClassifier("perceptron", solver="sgd", average=False, **options).fit(X, y)
    np.testing.assert_allclose(all_weights(plain), last, atol=1e-10)


@pytest.mark.independent
@pytest.mark.parametrize(("rounds", "epochs"), [(1, 2), (None, 3)])
def test_perceptrons_are_mixed_once_or_after_every_epoch(rows, rounds, epochs):
    X, y = rows[0], np.sign(rows[1])
    ones = np.column_stack([X, np.ones(120)])
    w = np.zeros(7)
    for _ in range(1 if rounds else epochs):
        shards = [
            perceptron(w, ones[half], y[half], epochs if rounds else 1)[0] for half in (slice(60), slice(60, 120))
        ]
        w = np.mean(shards, axis=0)
    mixing = st.Mixing(n_shards=2, rounds=rounds, weights="uniform")
    options = dict(alpha=0, epochs=epochs, solver="sgd", average=False, parallel=mixing, **EXACT)
    mixed = st.LinearClassifier("perceptron", **options).fit(X, y)
    np.testing.assert_allclose(all_weights(mixed), w, atol=1e-10)


@pytest.mark.independent
def test_rows_that_come_one_by_one_each_make_a_step(rows):
    X, y = rows
    model = st.LinearRegressor(solver="sgd", eta0=0.01, schedule="constant", alpha=0.02, **EXACT)
    w, b = np.zeros(6), 0.0
    for i in range(120):
        model.partial_fit(X[i : i + 1], y[i : i + 1])
        error = X[i] @ w + b - y[i]
        w, b = (w - 0.01 * error * X[i]) / (1 + 0.01 * 0.02), b - 0.01 * error
    np.testing.assert_allclose(all_weights(model), np.append(w, b), atol=1e-10)


def conjugate_gradients(X, y, ridge, steps):
    """The lecture's recursion for the ridge problem, without a matrix: mean objectives after each step."""
    w, right, values = np.zeros(X.shape[1]), X.T @ y, []
    g = -right
    p = right
    for _ in range(steps):
        w = w - (p @ g) / (p @ (ridge * p) + ((X @ p) ** 2).sum()) * p
        new = ridge * w + X.T @ (X @ w) - right
        p = -new + (new @ new) / (g @ g) * p
        g = new
        values.append((0.5 * ((y - X @ w) ** 2).sum() + 0.5 * w @ (ridge * w)) / len(y))
    return w, values


@pytest.mark.independent
@pytest.mark.parametrize("lengths", ["equal", "any"])
def test_conjugate_gradients_are_the_lectures_step_by_step(rows, lengths):
    """In units of the columns' curvature, which change nothing where columns have one length."""
    X, y = rows
    if lengths == "equal":
        X = 10 * X / np.sqrt((X**2).sum(axis=0))
    X = X.astype(np.float32).astype(float)
    units = np.sqrt((X**2).mean(axis=0) + 0.01) if lengths == "any" else np.ones(6)
    values = conjugate_gradients(X / units, y, 120 * 0.01 / units**2, 4)[1]
    options = dict(solver="cg", alpha=0.01, tol=1e-12, fit_intercept=False, dtype="float64")
    model = st.LinearRegressor(**options).fit(X, y)
    np.testing.assert_allclose(model.history_.column("objective")[:4], values, rtol=1e-8)
    exact = conjugate_gradients(X / units, y, 120 * 0.01 / units**2, 6)[0] / units  # d steps: the solution
    np.testing.assert_allclose(model.coef_.ravel(), exact, atol=1e-8)
    np.testing.assert_allclose(exact, np.linalg.solve(X.T @ X + 1.2 * np.eye(6), X.T @ y), atol=1e-8)


@pytest.mark.independent
def test_newtons_method_takes_the_textbooks_steps(rows):
    X, y = rows[0], np.sign(rows[1])
    ones = np.column_stack([X, np.ones(120)])
    ridge = np.diag([0.05] * 6 + [0.0])
    w, values = np.zeros(7), []
    for _ in range(6):
        p = 1 / (1 + np.exp(-ones @ w))
        gradient = ones.T @ (p - (y > 0)) / 120 + ridge @ w
        w = w - np.linalg.solve((ones.T * (p * (1 - p))) @ ones / 120 + ridge, gradient)
        values.append(np.log1p(np.exp(-y * (ones @ w))).mean() + 0.5 * w @ ridge @ w)
    model = st.LinearClassifier("log", alpha=0.05, solver="newton_cg", tol=1e-12, dtype="float64").fit(X, y)
    np.testing.assert_allclose(model.history_.column("objective")[:4], values[:4], atol=1e-5)
    np.testing.assert_allclose(all_weights(model), w, atol=1e-6)


@pytest.mark.independent
@pytest.mark.parametrize("fit_intercept", [False, True])
def test_of_many_exact_solutions_the_closed_form_is_the_shortest(fit_intercept):
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((5, 20)).astype(np.float32).astype(float), rng.standard_normal(5)
    options = dict(solver="closed_form", alpha=0, fit_intercept=fit_intercept, dtype="float64")
    model = st.LinearRegressor(**options).fit(X, y)
    shift = X.mean(axis=0), y.mean()
    centred = (X - shift[0], y - shift[1]) if fit_intercept else (X, y)
    np.testing.assert_allclose(model.coef_.ravel(), np.linalg.lstsq(*centred, rcond=None)[0], atol=1e-8)


@pytest.mark.independent
def test_a_hidden_layer_takes_one_step_of_the_chain_rule(rows):
    X, y = rows
    y = (y - y.mean()) / y.std()
    options = dict(
        hidden=(5,), solver="sgd", eta0=0.1, schedule="constant", alpha=0, batch_size=120, random_state=0, **EXACT
    )
    before, after = (st.NetworkRegressor(epochs=epochs, **options).fit(X, y) for epochs in (1, 2))
    W, c, v, b = (before.weights_[name] for name in ("x>h1", "bias h1", "h1>y", "bias y"))
    h = np.tanh(X @ W + c)
    e = (h @ v)[:, 0] + b[0] - y
    np.testing.assert_allclose(before.predict(X), e + y, atol=1e-9)
    down = e[:, None] * v[:, 0] * (1 - h**2)
    np.testing.assert_allclose(after.weights_["x>h1"], W - 0.1 * X.T @ down / 120, atol=1e-10)
    np.testing.assert_allclose(after.weights_["bias h1"], c - 0.1 * down.mean(axis=0), atol=1e-10)
    np.testing.assert_allclose(after.weights_["h1>y"][:, 0], v[:, 0] - 0.1 * h.T @ e / 120, atol=1e-10)
    np.testing.assert_allclose(after.weights_["bias y"], b - 0.1 * e.mean(), atol=1e-10)


# ---------------------------------------------------------------------------------------- objectives, norms, stopping

VALUES = {
    "hinge": lambda z, y: np.maximum(0, 1 - y * z),
    "log": lambda z, y: np.logaddexp(0, -y * z),
    "exponential": lambda z, y: np.exp(-y * z),
    "squared": lambda z, y: 0.5 * (z - y) ** 2,
}
GRADIENTS = {
    "hinge": lambda z, y: np.where(y * z < 1, -y, 0.0),
    "log": lambda z, y: -y / (1 + np.exp(y * z)),
    "exponential": lambda z, y: -y * np.exp(-y * z),
    "squared": lambda z, y: z - y,
}
PENALTIES = {
    "l2": ("l2", lambda w: 0.5 * w @ w),
    "l1": ("l1", lambda w: np.abs(w).sum()),
    "p": (st.LP(1.5), lambda w: (np.abs(w) ** 1.5).sum() / 1.5),
    "norm2": ("norm2", np.linalg.norm),
    "max": ("max", lambda w: np.abs(w).max()),
}


@pytest.mark.independent
@pytest.mark.parametrize("loss", VALUES)
@pytest.mark.parametrize("penalty", PENALTIES)
def test_the_objective_is_mean_loss_plus_penalty_and_its_minimum_is_scipys(rows, loss, penalty):
    X, y = rows[0], np.sign(rows[1])
    option, size = PENALTIES[penalty]

    def objective(wb):
        return VALUES[loss](X @ wb[:-1] + wb[-1], y).mean() + 0.05 * size(wb[:-1])

    model = st.LinearClassifier(loss, alpha=0.05, penalty=option, tol=1e-9, dtype="float64", random_state=0).fit(X, y)
    found = all_weights(model)
    assert model.objective(X, y) == pytest.approx(objective(found), rel=1e-12)
    best = minimize(objective, found + 0.1, method="Powell", options={"xtol": 1e-10, "ftol": 1e-14, "maxiter": 10**5})
    assert objective(found) <= best.fun + 1e-7
    if loss != "hinge" and penalty == "l2":  # elsewhere Powell's search along axes may end at a kink
        np.testing.assert_allclose(found, best.x, atol=1e-4)


@pytest.mark.independent
def test_the_one_norm_leaves_the_non_zeros_that_scikit_learns_lasso_leaves(rows):
    from sklearn.linear_model import Lasso

    X, y = rows
    exact = Lasso(alpha=0.4, tol=1e-12).fit(X, y)
    model = st.LinearRegressor(penalty="l1", alpha=0.4, solver="cd", tol=1e-10, dtype="float64").fit(X, y)
    assert 0 < np.count_nonzero(exact.coef_) < 6
    assert model.n_nonzero_ == np.count_nonzero(exact.coef_) == model.history_[-1]["nonzeros"]
    np.testing.assert_array_equal(model.coef_.ravel() != 0, exact.coef_ != 0)


@pytest.mark.independent
@pytest.mark.parametrize("on", ["objective", "parameters", "gradient"])
def test_descent_stops_where_a_descent_by_hand_does(rows, on):
    """Twice in a row a change by no more than the tolerance, as a share; or a gradient of that share of its first."""
    X, y = np.column_stack([rows[0], np.ones(120)]), np.sign(rows[1])
    ridge = np.array([0.1] * 6 + [0.0])

    def value_and_gradient(w):
        z = X @ w
        value = VALUES["log"](z, y).mean() + 0.5 * ridge @ w**2
        return value, X.T @ GRADIENTS["log"](z, y) / 120 + ridge * w

    w, small, k = np.zeros(7), 0, 0
    (value, g), first = value_and_gradient(w), None
    while small < 2:
        k += 1
        new = w - 0.5 * g
        moved = np.linalg.norm(new - w) / np.linalg.norm(new)
        w, last = new, value
        value, g = value_and_gradient(w)
        first = first or np.linalg.norm(X.T @ GRADIENTS["log"](np.zeros(120), y) / 120)
        if on == "gradient":
            small = 2 if np.linalg.norm(g) <= 1e-4 * first else 0
        else:
            small = small + 1 if (abs(last - value) / value if on == "objective" else moved) <= 1e-4 else 0
    options = dict(solver="gd", schedule="constant", eta0=0.5, average=False, max_iter=1000, dtype="float64")
    model = st.LinearClassifier("log", alpha=0.1, tol=st.Tolerance(1e-4, on=on), **options).fit(rows[0], y)
    assert model.n_iter_ == k
    np.testing.assert_allclose(all_weights(model), w, atol=1e-10)


@pytest.mark.independent
def test_margin_slacks_and_dual_variables_are_those_of_a_quadratic_program(rows):
    from sklearn.svm import SVC

    X, y = rows[0], np.sign(rows[1])
    model = st.LinearClassifier("hinge", C=0.5, solver="dual_cd", tol=1e-10, dtype="float64").fit(X, y)
    peer = SVC(kernel="linear", C=0.5, tol=1e-10).fit(X, y)
    np.testing.assert_allclose(all_weights(model), np.append(peer.coef_, peer.intercept_), atol=1e-5)
    assert model.margin_ == pytest.approx(1 / np.linalg.norm(peer.coef_), rel=1e-5)
    np.testing.assert_allclose(model.slacks_.ravel(), np.maximum(0, 1 - y * peer.decision_function(X)), atol=1e-4)
    dual = np.zeros(120)
    dual[peer.support_] = np.abs(peer.dual_coef_[0])
    np.testing.assert_allclose(X.T @ (dual * y), model.coef_[0], atol=1e-5)  # w is a sum of rows by their multipliers
    # The value of the dual, max Σa - ½|Σ a y x|², is that of the primal C Σ slacks + ½|w|².
    gain = dual.sum() - 0.5 * np.sum((X.T @ (dual * y)) ** 2)
    assert gain == pytest.approx(0.5 * model.coef_[0] @ model.coef_[0] + 0.5 * model.slacks_.sum(), rel=1e-6)
    assert model.dual_gap_ < 1e-8
    assert (dual >= 0).all()
    assert (dual <= 0.5 + 1e-9).all()


# ------------------------------------------------------------------------------------------- stochastic gradients


def soft(w, amount):
    return np.sign(w) * np.maximum(np.abs(w) - amount, 0)


def descend(loss, X, y, eta, *, l1=0.0, l2=0.0, batch=1, epochs=1, start=None, every=1):
    """Algorithm 33 with a free bias: every (w, b) after a step of `batch` rows, and the eta of each."""
    wb = np.zeros(X.shape[1] + 1) if start is None else start.copy()
    path, etas, t = [], [], 0
    for _ in range(epochs):
        for first in range(0, len(y), batch):
            rows, targets = X[first : first + batch], y[first : first + batch]
            step = eta(t)
            g = GRADIENTS[loss](rows @ wb[:-1] + wb[-1], targets)
            wb = wb - step * np.append(g @ rows, g.sum())
            if l1 and (len(path) + 1) % every == 0:
                wb[:-1] = soft(wb[:-1], every * step * l1)
            wb[:-1] /= 1 + step * l2 * len(targets)
            t += len(targets)
            path.append(wb)
            etas.append(step)
    return np.array(path), np.array(etas)


STEPS = {
    "constant": lambda t: 0.03,
    "invsqrt": lambda t: 0.03 / np.sqrt(1 + t),
    "bottou": lambda t: 0.03 / (1 + 0.03 * 0.02 * t),
}
PLAIN = dict(solver="sgd", average=False, eta0=0.03, alpha=0.02, **EXACT)


@pytest.mark.independent
@pytest.mark.parametrize("loss", VALUES)
@pytest.mark.parametrize("schedule", STEPS)
def test_stochastic_gradients_are_algorithm_33_under_every_schedule(rows, loss, schedule):
    X, y = rows[0], np.sign(rows[1])
    path, _ = descend(loss, X, y, STEPS[schedule], l2=0.02, epochs=2)
    model = st.LinearClassifier(loss, schedule=schedule, epochs=2, **PLAIN).fit(X, y)
    np.testing.assert_allclose(all_weights(model), path[-1], atol=1e-10)


@pytest.mark.independent
def test_optimal_starts_where_a_typical_weight_is_reached_in_one_step(rows):
    """Bottou's t0: eta = 1 / (alpha (t + t0)) with 1 / (alpha t0) = typical weight / max(1, gradient there)."""
    X, y = rows[0], np.sign(rows[1])
    typical = 0.02**-0.25
    eta0 = typical / max(1.0, abs(GRADIENTS["log"](-typical, 1.0)))
    path, _ = descend("log", X, y, lambda t: 1 / (0.02 * (t + 1 / (0.02 * eta0))), l2=0.02)
    options = {**PLAIN, "eta0": "auto"}
    model = st.LinearClassifier("log", schedule="optimal", epochs=1, **options).fit(X, y)
    np.testing.assert_allclose(all_weights(model), path[-1], atol=1e-9)


@pytest.mark.independent
@pytest.mark.parametrize("batch", [1, 7, 40, 120])
def test_a_batch_adds_the_gradients_of_its_rows_at_the_same_weights(rows, batch):
    """A mean over S rows with steps of eta is this with steps of eta / S."""
    X, y = rows[0], np.sign(rows[1])
    path, _ = descend("log", X, y, STEPS["invsqrt"], l2=0.02, batch=batch, epochs=2)
    model = st.LinearClassifier("log", schedule="invsqrt", epochs=2, batch_size=batch, **PLAIN).fit(X, y)
    np.testing.assert_allclose(all_weights(model), path[-1], atol=1e-10)


@pytest.mark.independent
@pytest.mark.parametrize(("penalty", "l1", "l2"), [("l1", 0.02, 0.0), (st.ElasticNet(0.3), 0.006, 0.014)])
def test_lazy_shrinkage_is_the_shrinkage_of_every_weight_in_every_step(rows, penalty, l1, l2):
    X, y = rows[0] * (rows[0] > 0.8), np.sign(rows[1])
    path, _ = descend("hinge", X, y, STEPS["constant"], l1=l1, l2=l2, epochs=2)
    sparse = scipy.sparse.csr_matrix(X)
    model = st.LinearClassifier("hinge", penalty=penalty, schedule="constant", epochs=2, **PLAIN).fit(sparse, y)
    np.testing.assert_allclose(all_weights(model), path[-1], atol=1e-10)


@pytest.mark.independent
@pytest.mark.parametrize("every", [1, 10])
def test_truncated_gradients_shrink_all_weights_every_so_many_steps(rows, every):
    X, y = rows[0] * (rows[0] > 0.8), np.sign(rows[1])
    path, _ = descend("log", X, y, STEPS["constant"], l1=0.02, every=every)
    options = {**PLAIN, "solver": st.Truncated(every=every)}
    model = st.LinearClassifier("log", penalty="l1", schedule="constant", epochs=1, **options).fit(
        scipy.sparse.csr_matrix(X), y
    )
    np.testing.assert_allclose(all_weights(model), path[-1], atol=1e-10)


@pytest.mark.independent
def test_the_average_by_eta_weighs_every_iterate_by_its_step(rows):
    X, y = rows[0], np.sign(rows[1])
    path, etas = descend("log", X, y, STEPS["invsqrt"], l2=0.02, epochs=2)
    model = st.LinearClassifier("log", schedule="invsqrt", epochs=2, **{**PLAIN, "average": "eta"}).fit(X, y)
    np.testing.assert_allclose(all_weights(model), etas @ path / etas.sum(), atol=1e-9)


@pytest.mark.independent
def test_the_first_step_is_the_one_with_the_least_loss_on_a_sample(rows):
    """Powers of two around 1 / (curvature times mean |x|²), while the loss before learning falls by 0.01 %."""
    X, y = rows[0], np.sign(rows[1])

    def loss_before(eta):
        w, total = np.zeros(6), 0.0
        for t, (x, label) in enumerate(zip(X, y, strict=True)):
            step = eta / max(1 + eta * 0.02 * t, np.sqrt(1 + t / 1000))
            total += np.logaddexp(0, -label * (x @ w))
            w = (w - step * GRADIENTS["log"](x @ w, label) * x) / (1 + step * 0.02)
        return total / 120

    start = 2.0 ** round(np.log2(1 / (0.25 * np.square(X).sum() / 120)))
    tried = {k: loss_before(start * 2.0**k) for k in range(-12, 13)}
    k = next(k for k in range(13) if not tried[k + 1] < tried[k] * 0.9999)
    if k == 0:
        k = next(-j for j in range(12) if not tried[-j - 1] < tried[-j] * 0.9999)
    options = {**PLAIN, "eta0": "auto", "fit_intercept": False}
    model = st.LinearClassifier("log", epochs=1, **options).fit(X, y)
    assert model.history_[0]["eta0"] == start * 2.0**k


@pytest.mark.independent
@pytest.mark.parametrize("shuffle", ["never", "once", "rows"])
def test_the_order_of_visits_is_read_from_the_decay_of_weights(shuffle):
    """Row i has feature i alone, so that its weight shows how many steps of decay have come after its visit."""
    n, eta, alpha = 50, 0.1, 0.5
    shrink = 1 / (1 + eta * alpha)
    options = dict(solver="sgd", average=False, schedule="constant", eta0=eta, alpha=alpha, fit_intercept=False)
    options.update(shuffle=shuffle, random_state=3, dtype="float64")

    def weights(epochs):
        return st.LinearRegressor(epochs=epochs, **options).fit(np.eye(n), np.ones(n)).coef_.ravel()

    visits = np.arange(n)  # a row's place in the epoch
    after = np.array([eta * shrink ** (n - place) for place in visits])
    first = np.abs(weights(1)[:, None] - after).argmin(axis=1)
    np.testing.assert_allclose(weights(1), after[first], rtol=1e-12)
    found = weights(2)
    before = after[first][:, None] * shrink**visits  # when the second visit comes, at any place
    again = (before + eta * (1 - before)) * shrink ** (n - visits)
    second = np.abs(found[:, None] - again).argmin(axis=1)
    np.testing.assert_allclose(found, again[np.arange(n), second], rtol=1e-12)
    assert sorted(first) == sorted(second) == visits.tolist()
    assert (list(first) == visits.tolist()) == (shuffle == "never")
    assert (list(first) == list(second)) == (shuffle != "rows")


def first_minimum(losses, patience):
    """(epochs that are learned, the best of them), both from 1, if learning stops after so many without a new best."""
    best = 0
    for k, loss in enumerate(losses):
        best = k if loss < losses[best] else best
        if k - best >= patience:
            return k + 1, best + 1
    return len(losses), best + 1


@pytest.mark.independent
def test_held_out_rows_stop_training_where_they_do_by_hand(rows):
    X, y = rows[0], np.sign(rows[1])
    learned, held = slice(0, 30), slice(30, 120)
    eta = lambda t: 0.4
    path, _ = descend("log", X[learned], y[learned], eta, l2=0.0, epochs=40)
    after = path[29::30]
    losses = [VALUES["log"](X[held] @ wb[:-1] + wb[-1], y[held]).mean() for wb in after]
    last, best = first_minimum(losses, 3)
    options = {**PLAIN, "eta0": 0.4, "alpha": 0.0}
    stopping = st.EarlyStopping(patience=3)
    model = st.LinearClassifier("log", schedule="constant", epochs=40, early_stopping=stopping, **options)
    model.fit_stream(st.from_arrays(X[learned], y[learned]), validation=st.from_arrays(X[held], y[held]))
    np.testing.assert_allclose(model.history_.column("holdout_loss"), losses[:last], atol=1e-9)
    np.testing.assert_allclose(all_weights(model), after[best - 1], atol=1e-9)


@pytest.mark.independent
def test_samples_a_and_b_give_k_by_hand_and_all_rows_are_learned_k_times(rows):
    X, y = rows[0], np.sign(rows[1])
    options = {**PLAIN, "eta0": 0.4, "alpha": 0.0, "random_state": 1}
    stopping = st.EarlyStopping(fraction=0.3, train=0.25)
    model = st.LinearClassifier("log", schedule="constant", epochs=30, early_stopping=stopping, **options).fit(X, y)
    trial = [record for record in model.history_ if "holdout_loss" in record]
    assert trial[0]["rows"] == 30  # a quarter of 120 rows
    k = 1 + int(np.argmin([record["holdout_loss"] for record in trial]))
    path, _ = descend("log", X, y, lambda t: 0.4, epochs=k)
    assert model.n_iter_ == k
    np.testing.assert_allclose(all_weights(model), path[-1], atol=1e-9)


@pytest.mark.independent
def test_softmax_and_one_against_the_rest_are_the_minima_that_scipy_finds(rows):
    X, score = rows
    y = np.digitize(score, [-1.0, 1.0])
    one_hot = np.eye(3)[y]

    def softmax(flat):
        W = flat.reshape(7, 3)
        z = X @ W[:-1] + W[-1]
        top = z.max(axis=1, keepdims=True)
        p = np.exp(z - top)
        p /= p.sum(axis=1, keepdims=True)
        gradient = np.vstack([X.T @ (p - one_hot) / 120 + 0.05 * W[:-1], (p - one_hot).mean(axis=0)])
        return -np.log(p[np.arange(120), y]).mean() + 0.025 * (W[:-1] ** 2).sum(), gradient.ravel()

    options = dict(alpha=0.05, solver="lbfgs", tol=1e-10, dtype="float64")
    model = st.LinearClassifier("log", multi_class="softmax", **options).fit(X, y)
    best = minimize(softmax, np.zeros(21), jac=True, options={"gtol": 1e-10})
    W = best.x.reshape(7, 3)
    np.testing.assert_allclose(model.coef_, W[:-1].T, atol=1e-5)
    np.testing.assert_allclose(model.intercept_ - model.intercept_.mean(), W[-1] - W[-1].mean(), atol=1e-5)
    rest = st.LinearClassifier("log", **options).fit(X, y)
    for c in range(3):
        signs = np.where(y == c, 1.0, -1.0)
        ones = np.column_stack([X, np.ones(120)])

        def alone(wb, signs=signs, ones=ones):
            z = ones @ wb
            gradient = ones.T @ GRADIENTS["log"](z, signs) / 120 + 0.05 * np.append(wb[:-1], 0)
            return VALUES["log"](z, signs).mean() + 0.025 * wb[:-1] @ wb[:-1], gradient

        exact = minimize(alone, np.zeros(7), jac=True, options={"gtol": 1e-10}).x
        np.testing.assert_allclose(np.append(rest.coef_[c], rest.intercept_[c]), exact, atol=1e-5)


@pytest.mark.independent
def test_a_step_that_would_pass_the_least_loss_of_its_row_ends_there(rows):
    """The one limit on a given step, for losses whose gradient has no bound: squared and squared hinge."""
    X, y = rows
    w = np.zeros(6)
    for x, target in zip(X, y, strict=True):
        w -= min(0.3, 1 / (x @ x)) * (x @ w - target) * x
    options = {**PLAIN, "eta0": 0.3, "alpha": 0.0, "fit_intercept": False}
    model = st.LinearRegressor(schedule="constant", epochs=1, **options).fit(X, y)
    assert (0.3 * (X**2).sum(axis=1) > 1).any()
    np.testing.assert_allclose(model.coef_.ravel(), w, atol=1e-10)


@pytest.mark.independent
def test_folds_learn_the_rest_and_measure_themselves(rows):
    X, y = rows[0], np.sign(rows[1])
    groups = np.arange(120) % 4  # of one size, so that each is a fold
    model = st.LinearClassifier("log", alpha=0.05, solver="newton_cg", tol=1e-10)
    result = st.cross_validate(model, X, y, folds=4, groups=groups)
    ones = np.column_stack([X, np.ones(120)])
    by_hand = []
    for held in range(4):
        learned = groups != held

        def objective(wb, learned=learned):
            return VALUES["log"](ones[learned] @ wb, y[learned]).mean() + 0.025 * wb[:-1] @ wb[:-1]

        z = ones[~learned] @ minimize(objective, np.zeros(7), options={"gtol": 1e-8}).x
        by_hand.append((VALUES["log"](z, y[~learned]).mean(), (np.sign(z) == y[~learned]).mean()))
    found = [(fold["loss"], fold["accuracy"]) for fold in result.folds]
    np.testing.assert_allclose(sorted(found), sorted(by_hand), atol=1e-5)
    assert result.mean("loss") == pytest.approx(np.mean([loss for loss, _ in by_hand]), abs=1e-5)
