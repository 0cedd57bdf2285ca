"""solver="auto" chooses what it says, the hybrid reaches the same minimum sooner, and stopping rules stop."""

from __future__ import annotations

import json

import numpy as np
import pytest
import scipy.sparse as sp

import steepest as st
from conftest import sparse_problem
from steepest.cli import main
from steepest.learners.batch.solvers import BATCH_SOLVERS, refusal
from steepest.learners.linear.auto import Problem, choose
from steepest.learners.losses import LOSSES
from steepest.learners.penalties import PENALTIES


def chosen(model):
    return model.history_.events[0].split("chose ")[1].split(":")[0]


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("penalty", PENALTIES)
@pytest.mark.parametrize("in_memory", [True, False])
@pytest.mark.parametrize("multi_class", ["ovr", "softmax", "hashed"])
def test_auto_never_chooses_a_pair_that_is_refused(loss, penalty, in_memory, multi_class):
    for tol in (None, 1e-2, 1e-8):
        for p in (1.5, 3.0) if penalty == "lp" else (0.0,):
            for shape in ((None, None, None), (50_000, 20, 10**6), (10**5, 10**5, 10**6)):
                problem = Problem(loss, penalty, 1e-4, p, tol, multi_class, "", *shape, in_memory)
                choice = choose(problem)
                assert choice.solver in (*BATCH_SOLVERS, "stochastic")
                if choice.solver in BATCH_SOLVERS and not (loss == "perceptron" and penalty == "lp"):
                    assert refusal(choice.solver, loss, penalty, p) is None
                if choice.solver in ("dual_cd", "cd", "saga"):
                    assert in_memory
                    assert multi_class != "softmax"


@pytest.mark.parametrize(
    ("options", "solver"),
    [
        (dict(), "'newton_cg'"),
        (dict(penalty="l1", alpha=1e-3), "'cd'"),
        (dict(epochs=3), "'asgd'"),
        (dict(epochs=3, penalty="l1", alpha=1e-3), "'ftrl'"),
        (dict(average=False), "'sgd'"),
        (dict(tol=1e-3), "'asgd'"),
        (dict(tol=1e-6, eta0=0.5), "'asgd'"),
        (dict(tol=1e-6, multi_class="hashed"), "'asgd'"),
        (dict(tol=1e-6, alpha=1e-2), "'newton_cg', started from one stochastic pass"),
        (dict(tol=1e-6, alpha=1e-2, loss="squared_hinge"), "'dual_cd'"),
        (dict(tol=1e-6, alpha=1e-2, loss="hinge"), "'dual_cd'"),
        (dict(tol=1e-6, alpha=1e-7), "'newton_cg', started from one stochastic pass"),
        (dict(tol=1e-6, penalty="l1", alpha=1e-3), "'cd'"),
        (dict(tol=1e-6, penalty="l1", alpha=1e-3, loss="hinge"), "'newton_cg'"),
        (dict(tol=1e-6, loss="exponential", alpha=1e-2), "'newton_cg', started from one stochastic pass"),
        (dict(penalty=st.LP(p=3.0), alpha=1e-3), "'newton_cg'"),
        (dict(penalty=st.LP(p=1.5), alpha=1e-3), "'lbfgs'"),
    ],
)
def test_the_history_says_which_solver_auto_chose(binary, options, solver):
    model = st.LinearClassifier(random_state=0, **options).fit(*binary)
    assert chosen(model) == solver
    assert len(model.history_.events[0]) > 60  # the reason


def test_small_least_squares_is_solved_in_closed_form(regression):
    X, y = regression
    assert chosen(st.LinearRegressor(tol=1e-6).fit(X, y)) == "'closed_form'"
    wide = sp.hstack([X] * 6).tocsr()
    assert chosen(st.LinearRegressor(tol=1e-6).fit(sp.vstack([wide] * 2).tocsr(), np.r_[y, y])) == "'cg'"


def test_auto_gives_the_bits_of_the_rule_it_names(binary):
    auto, asgd = (st.LinearClassifier(solver=s, epochs=4, random_state=0).fit(*binary) for s in ("auto", "asgd"))
    np.testing.assert_array_equal(auto.coef_, asgd.coef_)
    assert len(asgd.history_.events) == 0  # nothing was chosen


@pytest.mark.parametrize("n_classes", [2, 4])
@pytest.mark.parametrize("loss", ["log", "squared_hinge"])
def test_the_hybrid_reaches_the_minimum_with_less_work(n_classes, loss):
    X, y = sparse_problem(n_rows=4000, n_classes=n_classes, seed=8)
    options = dict(alpha=2e-5, tol=1e-8, dtype="float64", random_state=0)
    cold = st.LinearClassifier(loss, solver="newton_cg", **options).fit(X, y)
    warm = st.LinearClassifier(loss, **options).fit(X, y)
    assert "one stochastic pass" in chosen(warm)
    assert warm.objective(X, y) == pytest.approx(cold.objective(X, y), rel=1e-9)
    assert warm.history_[0]["objective"] < cold.history_[0]["objective"]
    again = st.LinearClassifier(loss, **options, n_jobs=2).fit(X, y)
    np.testing.assert_array_equal(warm.coef_, again.coef_)


def test_a_warm_start_that_is_worse_is_not_used():
    rng = np.random.default_rng(0)  # features a million times larger than others spoil one stochastic pass
    X = rng.standard_normal((300, 3)).astype(np.float32) * [1e-3, 1.0, 1e3]
    y = rng.poisson(np.exp(X[:, 1]))
    options = dict(alpha=1e-6, tol=1e-8, dtype="float64", random_state=0)
    cold, warm = (st.LinearRegressor("poisson", solver=s, **options).fit(X, y) for s in ("newton_cg", "auto"))
    assert warm.objective(X, y) == pytest.approx(cold.objective(X, y), rel=1e-8)


def test_the_command_line_tells_the_choice_as_an_event(tmp_path, capsys):
    data = tmp_path / "d.svm"
    data.write_text("".join(f"{i % 2} {1 + i % 2}:1 3:{i}\n" for i in range(40)))
    assert main(["train", str(data), "-m", str(tmp_path / "m"), "--json"]) == 0
    first = json.loads(capsys.readouterr().out.splitlines()[0])
    assert first["event"].startswith("solver='auto' chose 'newton_cg'")
    assert main(["train", str(data), "-m", str(tmp_path / "m")]) == 0
    assert "solver    newton_cg: " in capsys.readouterr().err


# ------------------------------------------------------------------------------------------------------- stopping


def test_tol_watches_the_objective(binary):
    X, y = binary
    model = st.LinearClassifier(solver="sgd", alpha=0.1, epochs=200, tol=1e-3, random_state=0).fit(X, y)
    seen = model.history_.column("objective")
    assert model.n_iter_ < 200
    best = min(seen[:-2])
    assert min(seen[-2:]) > best * (1 - 1e-3)


@pytest.mark.parametrize("options", [dict(epochs=40, alpha=1e-7), dict(solver="lbfgs", alpha=1e-7)])
def test_refit_learns_from_all_rows_for_as_long_as_the_held_out_rows_got_better(options):
    X, y = sparse_problem(n_rows=1500, noise=0.3, seed=9)
    options = dict(random_state=0, **options)
    stopped = st.LinearClassifier(early_stopping=st.EarlyStopping(0.3), **options).fit(X, y)
    model = st.LinearClassifier(early_stopping=st.EarlyStopping(0.3, refit=True), **options).fit(X, y)
    best = 1 + int(np.argmin(stopped.history_.column("holdout_loss")))
    assert model.n_iter_ == best < len(stopped.history_)
    limit = dict(epochs=best) if "epochs" in options else dict(max_iter=best)
    plain = st.LinearClassifier(**{**options, **limit}).fit(X, y)
    np.testing.assert_array_equal(model.coef_, plain.coef_)
    assert len(model.history_) == len(stopped.history_) + best
    assert any("from all rows" in event for event in model.history_.events)


def test_refit_after_a_checkpoint_gives_the_same_bits(binary, tmp_path):
    options = dict(early_stopping=st.EarlyStopping(refit=True), epochs=6, random_state=0)
    source = st.from_arrays(*binary)
    plain = st.LinearClassifier(**options).fit_stream(source)
    kept = st.LinearClassifier(**options).fit_stream(source, checkpoint=tmp_path, resume=True)
    np.testing.assert_array_equal(plain.coef_, kept.coef_)


def test_refit_and_a_validation_source_contradict_each_other(binary):
    source = st.from_arrays(*binary)
    with pytest.raises(st.ParameterError, match=r"refit=True.* holds out rows itself"):
        st.LinearClassifier(early_stopping=st.EarlyStopping(refit=True)).fit_stream(source, source)
    with pytest.raises(st.ParameterError, match="early_stopping='often' is unknown"):
        st.LinearClassifier(early_stopping="often").fit_stream(source)


def test_the_command_line_knows_refit(tmp_path):
    data = tmp_path / "d.svm"
    data.write_text("".join(f"{i % 2} {1 + i % 2}:1 3:{i % 7}\n" for i in range(60)))
    assert main(["train", str(data), "-m", str(tmp_path / "m"), "--refit", "--quiet"]) == 0
    assert st.load(tmp_path / "m").early_stopping == st.EarlyStopping(refit=True)


@pytest.mark.parametrize("loss", LOSSES)
def test_few_rows_are_minimised_exactly_unless_the_loss_has_kinks(loss):
    few = Problem(loss, "l2", 1e-6, 0.0, None, "ovr", "", 500, 20, 10_000)
    slow = loss in ("hinge", "perceptron", "epsilon_insensitive", "quantile")  # under a weak penalty
    assert choose(few).solver == ("stochastic" if slow else "newton_cg")
    many = Problem(loss, "l2", 1e-6, 0.0, None, "ovr", "", 10**7, 20, 2 * 10**8)
    assert choose(many).solver == "stochastic"
