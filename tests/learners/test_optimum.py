"""On real rows every solver reaches, for every loss and penalty it takes, a minimum that scipy has found.

Losses without kinks: L-BFGS-B on (positive part, negative part, bias). Losses with kinks: a linear program, with
tangents where the penalty is not linear, or, for many columns, the dual, whose variables are the slopes of the rows'
losses; any value of either is a bound from below; 500 rows, since scipy is slow at it. Left out: `gd` for the
exponential loss without a penalty, 2e-6 above the minimum after 5,000 iterations; subgradients (`gd` on losses with
kinks), whose error falls like 1/k only, see test_batch.py; rows of RCV1 without a penalty, where the least loss may be
zero or infinitely far away; `saga` for the logistic loss of a9a without a penalty, still 5e-6 above the minimum after
5,000 iterations, and for the exponential loss, which was not tried.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
import scipy.optimize as so
import scipy.sparse as sp

import steepest as st
from conftest import solver_pairs
from steepest.learners.batch.solvers import KINKED
from steepest.learners.losses import LOSSES
from steepest.learners.penalties import NORMS

CLOSE = 1e-6
MOST_COLUMNS = 100  # of programs with tangents, which take minutes for RCV1's
ALPHA, L1_RATIO = 1e-3, 0.3
PARAMETER = {"huber": 0.5, "epsilon_insensitive": 0.2, "quantile": 0.3}
CLASSES, NUMBERS = ("a9a", "rcv1-sample"), ("california-housing",)


def matrix_of(source):
    chunks = [chunk.packed() for chunk in source]
    d = max(chunk.n_features for chunk in chunks)
    X = sp.vstack([sp.csr_matrix((c.values, c.indices, c.indptr), shape=(c.n_rows, d)) for c in chunks], "csr")
    return X, np.concatenate([chunk.y for chunk in chunks])


@cache
def rows_of(folder, name, most=2000):
    """At most so many rows, with the features that occur in at least twenty of them."""
    if name == "california-housing":
        import pandas as pd

        table = pd.read_csv(folder / name / "housing.csv.gz").select_dtypes("number").dropna().iloc[::10][:most]
        X = table.drop(columns="median_house_value").to_numpy(np.float64)
        y = table["median_house_value"].to_numpy(np.float64) / 1e5
        return sp.csr_matrix(((X - X.mean(axis=0)) / X.std(axis=0)).astype(np.float32)), y
    file = {"a9a": "a9a.libsvm.gz", "rcv1-sample": "rcv1-sample-train.vw.gz"}[name]
    X, y = matrix_of(st.scan(str(folder / name / file)))
    X, y = X[:most], (y[:most] > 0).astype(int)
    often = np.flatnonzero(np.diff(X.tocsc().indptr) >= 20)
    return sp.csr_matrix(X[:, often]), y


def rows_for(loss):
    return 500 if loss in KINKED else 2000


def targets_of(loss, y):
    """What the loss is measured against: signs, counts, or numbers around zero, since some models have no bias."""
    if LOSSES[loss].kind == "binary":
        return 2.0 * y - 1
    return np.round(2 * y) if loss == "poisson" else y - np.median(y)


def strengths(penalty):
    """Of the 1-norm and the 2-norm."""
    return {"none": (0, 0), "l2": (0, 1), "l1": (1, 0), "elasticnet": (L1_RATIO, 1 - L1_RATIO)}[penalty]


# ------------------------------------------------------------------------------------------------- minima by scipy


def smooth_minimum(loss, X, t, penalty, p):
    n, d = X.shape
    q = PARAMETER.get(loss, 0.1)
    split = penalty in ("l1", "elasticnet")

    def penalised(u, v):
        w = u - v
        if penalty == "lp":
            return ALPHA / p * (np.abs(w) ** p).sum(), ALPHA * np.sign(w) * np.abs(w) ** (p - 1), 0.0
        l1, l2 = strengths(penalty)
        return ALPHA * (l1 * (u + v).sum() + 0.5 * l2 * w @ w), ALPHA * l2 * w, ALPHA * l1

    def total(theta):
        u, v = theta[:d], theta[d:-1] if split else 0.0
        z = X @ (u - v) + theta[-1]
        value, smooth, l1 = penalised(u, v)
        g = LOSSES[loss].gradient(z, t, q) / n
        back = X.T @ g + smooth
        parts = [back + l1, -back + l1, [g.sum()]] if split else [back, [g.sum()]]
        return value + LOSSES[loss].value(z, t, q).mean(), np.concatenate(parts)

    bounds = [(0, None)] * (2 * d) + [(None, None)] if split else None
    found = np.zeros(2 * d + 1 if split else d + 1)
    least = np.inf
    for _ in range(2):  # a new start forgets what the curvature was elsewhere
        options = {"ftol": 1e-16, "gtol": 1e-12, "maxiter": 3000, "maxfun": 6000, "maxcor": 30}
        result = so.minimize(total, found, jac=True, method="L-BFGS-B", bounds=bounds, options=options)
        least, found = min(least, result.fun), result.x
    return least


def linear_program(loss, X, t, penalty, p=0.0):
    """Least mean of xi + penalty over w = up - down, where xi is above the lines that make up the loss.

    The part of the penalty that is not linear, sum of h(w_j), is replaced by q_j above tangents of h: every such
    program has a minimum below the one wanted, and its w a value above. Tangents are added at w until both agree.
    """
    n, d = X.shape
    q = PARAMETER.get(loss, 0.1)
    lines = {
        "hinge": [(-t, -np.ones(n))],
        "epsilon_insensitive": [(np.ones(n), t + q), (-np.ones(n), -t + q)],
        "quantile": [((1 - q) * np.ones(n), (1 - q) * t), (-q * np.ones(n), -q * t)],
    }[loss]  # slope z - offset <= xi
    lines = [(sp.hstack([sp.diags(a) @ X, -sp.diags(a) @ X, -sp.eye(n), sp.csr_matrix((n, d))]), b) for a, b in lines]
    l1, l2, power = (0, 1, p) if penalty == "lp" else (*strengths(penalty), 2.0)
    cost = np.concatenate([np.full(2 * d, ALPHA * l1), np.full(n, 1 / n), np.full(d, ALPHA * l2)])
    tangents = [tangent(np.full(d, a), power, n) for a in (-1.0, -0.3, -0.1, 0.1, 0.3, 1.0)] if l2 else []
    for _ in range(60):
        A = sp.vstack([a for a, _ in lines + tangents], "csr")
        b = np.concatenate([offset for _, offset in lines + tangents])
        found = so.linprog(cost, A, b, bounds=(0, None), method="highs")
        w = found.x[:d] - found.x[d : 2 * d]
        missing = ALPHA * l2 * ((np.abs(w) ** power).sum() / power - found.x[2 * d + n :].sum())
        if missing <= 1e-8 * found.fun:
            return found.fun
        tangents.append(tangent(w, power, n))
    raise AssertionError(f"the bounds still differ by {missing:.1e}")


def tangent(at, power, n):
    """Of |w|^power / power at these points: slope (up - down) - q <= slope at - value."""
    d = len(at)
    slope, value = np.sign(at) * np.abs(at) ** (power - 1), np.abs(at) ** power / power
    return sp.hstack([sp.diags(slope), -sp.diags(slope), sp.csr_matrix((d, n)), -sp.eye(d)]), slope * at - value


def dual_maximum(loss, X, t, penalty, p):
    """Largest -mean l*(s) - alpha R*(-X's / (n alpha)) over slopes s = up - down, where R* has a slope everywhere."""
    n = X.shape[0]
    q = PARAMETER.get(loss, 0.1)
    up, down = {"hinge": (t < 0, t > 0), "epsilon_insensitive": (1, 1), "quantile": (1 - q, q)}[loss]
    width = q if loss == "epsilon_insensitive" else 0.0

    def conjugate(u):
        if penalty == "lp":
            power = p / (p - 1)
            return (np.abs(u) ** power).sum() / power, np.sign(u) * np.abs(u) ** (power - 1)
        l1, l2 = strengths(penalty)
        beyond = np.sign(u) * np.maximum(np.abs(u) - l1, 0) / l2
        return 0.5 * l2 * beyond @ beyond, beyond

    def loss_of(theta):
        s = theta[:n] - theta[n:]
        value, w = conjugate(-(X.T @ s) / (n * ALPHA))
        slope = (t - X @ w) / n
        parts = np.concatenate([slope + width / n, -slope + width / n])
        return (s @ t + width * theta.sum()) / n + ALPHA * value, parts

    top = np.concatenate([np.broadcast_to(np.asarray(side, float), n) for side in (up, down)])
    found, most = np.zeros(2 * n), -np.inf
    for _ in range(2):
        options = {"ftol": 1e-16, "gtol": 1e-12, "maxiter": 3000, "maxfun": 6000, "maxcor": 50}
        bounds = list(zip(np.zeros(2 * n), top, strict=True))
        result = so.minimize(loss_of, found, jac=True, method="L-BFGS-B", bounds=bounds, options=options)
        most, found = max(most, -result.fun), result.x
    return most


@pytest.fixture(scope="module")
def minima(shared_data):
    """Found once for all solvers."""

    @cache
    def minimum(name, loss, penalty, p):
        X, y = rows_of(shared_data, name, rows_for(loss))
        X, t = X.astype(np.float64), targets_of(loss, y)
        if loss not in KINKED:
            return smooth_minimum(loss, X, t, penalty, p)
        by_tangents = penalty in ("none", "l1") or X.shape[1] <= MOST_COLUMNS
        return linear_program(loss, X, t, penalty, p) if by_tangents else dual_maximum(loss, X, t, penalty, p)

    return minimum


# -------------------------------------------------------------------------------------------------------- the test


def cases():
    for case in solver_pairs():
        if case["penalty"] in NORMS:
            continue  # test_norms.py has an optimum of its own for these
        solver, loss, penalty = case["solver"], case["loss"], case["penalty"]
        if case["refused"] or (solver == "gd" and loss in KINKED):
            continue
        if solver == "gd" and loss == "exponential" and penalty == "none":
            continue
        for name in CLASSES if LOSSES[loss].kind == "binary" else NUMBERS:
            far_away = penalty == "none" and (name == "rcv1-sample" or (name == "a9a" and solver == "saga"))
            if not (far_away and (name == "rcv1-sample" or loss in ("log", "exponential"))):
                every_time = name in NUMBERS or penalty == "none" or name == usual_classes(loss, penalty)
                together = pytest.mark.xdist_group(f"minimum {name} {loss} {penalty}")  # which is found once
                marks = (together,) if every_time else (together, pytest.mark.thorough)
                yield pytest.param(name, solver, loss, penalty, marks=marks)


def usual_classes(loss, penalty):
    """The rows on which all solvers of this minimum are compared every time: scipy takes longer for it than they do."""
    return CLASSES[(list(LOSSES).index(loss) + ("l2", "l1", "elasticnet", "lp").index(penalty)) % 2]


@pytest.mark.parametrize(("name", "solver", "loss", "penalty"), list(cases()))
def test_every_solver_reaches_the_minimum_on_real_rows(name, solver, loss, penalty, shared_data, minima):
    if not (shared_data / name).is_dir():
        pytest.skip(f"{shared_data / name} is not there")
    X, y = rows_of(shared_data, name, rows_for(loss))
    p = 3.0 if solver == "newton_cg" else 1.5
    options = dict(
        solver=solver, alpha=ALPHA,
        penalty={"lp": st.LP(p), "elasticnet": st.ElasticNet(L1_RATIO)}.get(penalty, penalty),
        fit_intercept=loss not in KINKED,
        dtype="float64", tol=5e-7 if loss in KINKED else 1e-7, max_iter=5000, random_state=0,
    )  # fmt: skip
    if LOSSES[loss].kind == "binary":
        model = st.LinearClassifier(loss, **options)
    else:
        y = targets_of(loss, y)
        own = {"quantile": st.Quantile(0.3), "huber": st.Huber(0.5), "epsilon_insensitive": st.EpsilonInsensitive(0.2)}
        model = st.LinearRegressor(own.get(loss, loss), **options)
    expected = minima(name, loss, penalty, p if penalty == "lp" else 0.0)
    found = model.fit(X, y).objective(X, y)
    assert found == pytest.approx(expected, rel=CLOSE)
