"""Solvers of other libraries that minimise the same objective, for races: scikit-learn, LIBLINEAR and LIBSVM.

Each takes the rows in its own form, an effort (iterations, or a tolerance for LIBLINEAR, which has no other dial), and
gives back weights. Their C is 1 / (alpha n). A library that is not installed, or that cannot minimise the objective in
question, is left out. LIBLINEAR penalises a bias in its dual solvers; those race without one only.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import numpy as np

from steepest.data.chunk import Array, Chunk

SGD_LOSSES = {
    "log": "log_loss",
    "hinge": "hinge",
    "squared_hinge": "squared_hinge",
    "modified_huber": "modified_huber",
}
TOLERANCES = (1.0, 0.3, 0.1, 0.03, 0.01, 3e-3, 1e-3, 1e-4, 1e-5, 1e-6)
DOUBLING = tuple(2**k for k in range(14))


@dataclass(frozen=True, slots=True)
class Problem:
    """The objective and the rows to minimise it on."""

    loss: str
    penalty: str
    alpha: float
    fit_intercept: bool
    seed: int
    rows: Chunk

    @property
    def C(self) -> float:  # noqa: N802, the name that all of them use
        """The strength of the penalty as support vector machines count it."""
        return 1.0 / (self.alpha * self.rows.n_rows)

    def matrix(self) -> Any:
        """The rows as scipy holds them."""
        from scipy.sparse import csr_matrix

        rows = self.rows
        return csr_matrix((rows.values, rows.indices, rows.indptr), shape=(rows.n_rows, rows.n_features))


Fit = Callable[[float], tuple[Array, Array, bool]]  # effort to (weights, features by outputs; bias; no more is to come)


@dataclass(frozen=True, slots=True)
class Peer:
    """A solver elsewhere: where it can be used, and how it is made ready; efforts go from little to much."""

    name: str
    module: str
    suits: Callable[[Problem], bool]
    prepare: Callable[[Problem], Fit]
    efforts: Sequence[float] = DOUBLING
    unit: str = "iterations"


def peers_for(problem: Problem) -> dict[str, Peer]:
    """The peers that are installed and minimise this objective."""
    found = [peer for peer in (*SKLEARN, *LIBLINEAR) if peer.suits(problem)]
    return {peer.name: peer for peer in found if find_spec(peer.module) is not None}


def _sklearn(make: Callable[[Problem, float], Any]) -> Callable[[Problem], Fit]:
    def prepare(problem: Problem) -> Fit:
        X, y = problem.matrix(), problem.rows.y

        def fit(effort: float) -> tuple[Array, Array, bool]:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # that it did not converge is the point
                model = make(problem, effort).fit(X, y)
            coef = model.coef_.toarray() if hasattr(model.coef_, "toarray") else np.asarray(model.coef_)
            coef = coef.reshape(-1, X.shape[1])
            used = getattr(model, "n_iter_", None)
            finished = used is not None and int(np.max(used)) < effort
            return coef.T, np.broadcast_to(np.ravel(model.intercept_), len(coef)), finished

        return fit

    return prepare


def _sgd(problem: Problem, effort: float) -> Any:
    from sklearn.linear_model import SGDClassifier, SGDRegressor

    same = {
        "penalty": problem.penalty,
        "alpha": problem.alpha,
        "fit_intercept": problem.fit_intercept,
        "max_iter": int(effort),
        "tol": None,
        "random_state": problem.seed,
    }
    if problem.loss == "squared":
        return SGDRegressor(loss="squared_error", **same)
    return SGDClassifier(loss=SGD_LOSSES[problem.loss], **same)


def _logistic(solver: str) -> Callable[[Problem, float], Any]:
    def make(problem: Problem, effort: float) -> Any:
        from sklearn.linear_model import LogisticRegression

        sparse = {"penalty": "elasticnet", "l1_ratio": 1.0} if problem.penalty == "l1" else {}
        same = {"C": problem.C, "fit_intercept": problem.fit_intercept, "random_state": problem.seed}
        return LogisticRegression(solver=solver, max_iter=int(effort), tol=1e-12, **same, **sparse)

    return make


def _ridge(solver: str) -> Callable[[Problem, float], Any]:
    def make(problem: Problem, effort: float) -> Any:
        from sklearn.linear_model import Ridge

        alpha = problem.alpha * problem.rows.n_rows
        same = {"alpha": alpha, "fit_intercept": problem.fit_intercept, "random_state": problem.seed}
        return Ridge(solver=solver, max_iter=int(effort), tol=1e-12, **same)

    return make


def _lasso(problem: Problem, effort: float) -> Any:
    from sklearn.linear_model import Lasso

    return Lasso(alpha=problem.alpha, fit_intercept=problem.fit_intercept, max_iter=int(effort), tol=1e-12)


def _svc(problem: Problem, effort: float) -> Any:
    from sklearn.svm import SVC

    return SVC(kernel="linear", C=problem.C, max_iter=int(effort), tol=1e-3, cache_size=500)


def _two_classes(problem: Problem) -> bool:
    return problem.rows.y is not None and len(np.unique(problem.rows.y[:10_000])) == 2


def _of(losses: Sequence[str], penalties: Sequence[str] = ("l2",)) -> Callable[[Problem], bool]:
    return lambda problem: problem.loss in losses and problem.penalty in penalties and problem.alpha > 0


def _of_two(losses: Sequence[str], penalties: Sequence[str] = ("l2",)) -> Callable[[Problem], bool]:
    """A test for problems of two classes with these losses and penalties; with more classes, peers minimise others."""
    able = _of(losses, penalties)
    return lambda problem: able(problem) and _two_classes(problem)


SKLEARN = (
    Peer("sklearn:sgd", "sklearn", _of((*SGD_LOSSES, "squared"), ("l2", "l1")), _sklearn(_sgd), unit="epochs"),
    *(Peer(f"sklearn:{s}", "sklearn", _of_two(("log",)), _sklearn(_logistic(s))) for s in ("lbfgs", "newton-cg")),
    Peer("sklearn:saga", "sklearn", _of_two(("log",), ("l2", "l1")), _sklearn(_logistic("saga")), unit="epochs"),
    *(Peer(f"sklearn:ridge-{s}", "sklearn", _of(("squared",)), _sklearn(_ridge(s))) for s in ("sparse_cg", "sag")),
    Peer("sklearn:lasso", "sklearn", _of(("squared",), ("l1",)), _sklearn(_lasso)),
    Peer(
        "libsvm",
        "sklearn",
        lambda problem: _of_two(("hinge",))(problem) and problem.fit_intercept,
        _sklearn(_svc),
        tuple(1000 * 4**k for k in range(9)),
    ),
)


def _liblinear(solver: int) -> Callable[[Problem], Fit]:
    def prepare(problem: Problem) -> Fit:
        from liblinear.liblinearutil import parameter, train
        from liblinear.liblinearutil import problem as make_problem

        assert problem.rows.y is not None
        labels = np.unique(problem.rows.y)
        codes = np.where(problem.rows.y == labels[1], 1.0, -1.0)
        bias = 1 if problem.fit_intercept else -1
        data = make_problem(codes, problem.matrix().astype(np.float64), bias)
        d = problem.rows.n_features

        def fit(tolerance: float) -> tuple[Array, Array, bool]:
            free = " -R" if problem.fit_intercept else ""
            model = train(data, parameter(f"-s {solver} -c {problem.C} -e {tolerance} -B {bias} -q{free}"))
            w = np.zeros(d + 1)
            n = model.nr_feature + (bias > 0)
            w[:n] = np.ctypeslib.as_array(model.w, (n,))
            w = w if model.label[0] > 0 else -w
            return w[:d, None], w[d:] if bias > 0 else np.zeros(1), False

        return fit

    return prepare


def _liblinear_suits(losses: Sequence[str], penalties: Sequence[str], bias: bool) -> Callable[[Problem], bool]:
    able = _of_two(losses, penalties)
    return lambda problem: able(problem) and (bias or not problem.fit_intercept)


LIBLINEAR = tuple(
    Peer(
        f"liblinear:{solver}",
        "liblinear",
        _liblinear_suits((loss,), (penalty,), bias),
        _liblinear(solver),
        TOLERANCES,
        "tolerance",
    )
    for solver, loss, penalty, bias in (
        (0, "log", "l2", True),
        (7, "log", "l2", False),
        (2, "squared_hinge", "l2", True),
        (1, "squared_hinge", "l2", False),
        (3, "hinge", "l2", False),
        (6, "log", "l1", True),
        (5, "squared_hinge", "l1", True),
    )
)
