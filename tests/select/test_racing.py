"""Races: everyone minimises the same objective, and the pictures need nothing else."""

from __future__ import annotations

import importlib.util
import json
import re
import sys

import numpy as np
import pytest
from scipy.optimize import minimize
from sklearn.datasets import dump_svmlight_file

import steepest as st
from conftest import sparse_problem
from steepest.cli import main
from steepest.report.chart import Chart, Line
from steepest.report.page import as_svg
from steepest.select import race
from steepest.select.optimum import lower_bound


@pytest.fixture(scope="module")
def rows():
    return sparse_problem(n_rows=1200, seed=8)


@pytest.mark.parametrize(
    "wish",
    [
        dict(loss="log", alpha=1e-3),
        dict(loss="squared_hinge", alpha=1e-3, fit_intercept=False),
        dict(loss="log", penalty="l1", alpha=2e-3),
    ],
)
def test_all_batch_solvers_and_peers_reach_one_optimum(rows, wish, monkeypatch):
    monkeypatch.setattr(race, "USUAL", [name for name in race.USUAL if name not in race.STOCHASTIC])
    result = st.race(st.LinearClassifier(**wish), *rows, seconds=5)
    exact = [r for r in result.racers if r.name != "sklearn:sgd"]
    assert len(exact) >= 5
    if wish["loss"] == "log" or importlib.util.find_spec("liblinear"):  # scikit-learn has no squared hinge of its own
        assert any(":" in r.name for r in exact)
    for racer in exact:
        assert min(map(result.gap, racer.points)) < 1e-3, racer.name


def test_a_hinge_race_has_the_quadratic_solver_in_it(rows):
    result = st.race(st.LinearClassifier("hinge", alpha=1e-3), *rows, solvers=["dual_cd", "libsvm"], seconds=5)
    assert result.seconds_to("libsvm", 1e-3) is not None
    assert result.seconds_to("dual_cd", 1e-3) is not None


def test_regressions_race_too(regression):
    result = st.race(st.LinearRegressor(alpha=1e-3), *regression, seconds=0.3)
    assert result.header[-1] == "test rmse"
    for name in ("closed_form", "cg", "sklearn:ridge-sparse_cg"):
        assert result.seconds_to(name, 1e-4) is not None


def test_more_than_two_classes_leave_out_peers_with_another_objective(multiclass):
    result = st.race(st.LinearClassifier(alpha=1e-3), *multiclass, seconds=0.2)
    names = [racer.name for racer in result.racers]
    assert "sklearn:lbfgs" not in names
    assert "lbfgs" in names


def test_the_table_is_sorted_by_time_to_one_percent(rows):
    result = st.race(st.LinearClassifier(alpha=1e-3), *rows, solvers=["gd", "sgd", "lbfgs"], seconds=0.5)
    times = [result.seconds_to(row[0], 0.01) or float("inf") for row in result.rows()]
    assert times == sorted(times)
    with pytest.raises(st.ParameterError, match="took no part"):
        result.seconds_to("cg", 0.01)


def test_stochastic_solvers_show_parts_of_the_first_epoch(rows):
    result = st.race(st.LinearClassifier(alpha=1e-3), *rows, solvers=["sgd"], seconds=2)
    assert [point.effort for point in result.racers[0].points[:4]] == [1 / 16, 1 / 4, 1, 2]


def test_the_page_needs_no_other_file(rows, tmp_path):
    result = st.race(st.LinearClassifier(alpha=1e-3), *rows, solvers=["sgd", "lbfgs"], seconds=0.2)
    result.html(tmp_path / "race.html")
    page = (tmp_path / "race.html").read_text()
    assert not re.search(r"https?://|<script|<link|src=", page)
    assert page.count("<svg class=chart") == 2
    assert "lbfgs" in page


def test_the_picture_is_a_png(rows, tmp_path):
    pytest.importorskip("matplotlib")
    result = st.race(st.LinearClassifier(alpha=1e-3), *rows, solvers=["sgd", "lbfgs"], seconds=0.2)
    result.plot(tmp_path / "race.png")
    assert (tmp_path / "race.png").read_bytes()[:4] == b"\x89PNG"


def test_a_chart_draws_only_what_its_axes_can_show():
    chart = Chart("t", "x", "y", [Line("a", [0.0, 1.0, 10.0], [1.0, 0.0, float("nan")])])
    assert chart.points(chart.lines[0]) == []
    lifted = Chart("t", "x", "y", [Line("a & b", [1.0, 10.0], [1.0, 0.0])], floor=1e-3)
    assert lifted.points(lifted.lines[0]) == [(1.0, 1.0), (10.0, 1e-3)]
    assert "a &amp; b" in as_svg(lifted)


@pytest.fixture(scope="module")
def file(tmp_path_factory, rows):
    path = tmp_path_factory.mktemp("race") / "rows.svm"
    dump_svmlight_file(*rows, str(path), zero_based=False)
    return path


def test_race_prints_a_table_and_writes_a_page(file, tmp_path, capsys):
    command = ["race", str(file), "--solvers", "sgd,cg", "--seconds", "0.2", "--alpha", "1e-3"]
    assert main([*command, "--html", str(tmp_path / "r.html")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("log loss, l2 penalty with alpha 0.001: 960 rows")
    assert {line.split()[0] for line in lines[2:4]} == {"sgd", "cg"}
    assert re.search(r"the optimum is .*, found by dual_cd, certified within \d", lines[4])
    assert (tmp_path / "r.html").exists()
    assert main([*command, "--json"]) == 0
    assert {racer["solver"] for racer in json.loads(capsys.readouterr().out)["racers"]} == {"sgd", "cg"}


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--solvers", "sgd,magic"], "solver 'magic' is unknown"),
        (["--solvers", "closed_form"], "only the squared loss"),
        (["--seconds", "0"], "--seconds 0.0 must be more than 0"),
        (["--task", "cluster"], "has no solvers to race"),
        (["--png", "race.txt"], "no extension of a picture"),
        (["--png", "nowhere/race.png"], "does not exist"),
        (["--test", "1"], "--test 1.0 must lie between"),
    ],
)
def test_race_refuses_in_one_sentence(file, capsys, flags, words):
    assert main(["race", str(file), *flags]) == 2
    err = capsys.readouterr().err
    assert words in err
    assert err.count("\n") == 1


def test_a_missing_matplotlib_is_one_clear_sentence(file, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert main(["race", str(file), "--png", "race.png", "--solvers", "sgd"]) == 2
    assert "needs matplotlib, which is not installed; pip install matplotlib" in capsys.readouterr().err


def test_race_refuses_empty_data(tmp_path, capsys):
    (tmp_path / "empty.svm").write_text("")
    assert main(["race", str(tmp_path / "empty.svm")]) == 2
    assert "empty.svm is empty" in capsys.readouterr().err


# --------------------------------------------------------------------------------------------- the certified optimum


@pytest.mark.parametrize(
    ("model", "certified"),
    [
        (st.LinearClassifier("log", alpha=1e-3), True),
        (st.LinearClassifier("hinge", alpha=1e-3), True),
        (st.LinearClassifier("squared_hinge", alpha=1e-3, fit_intercept=False), True),
        (st.LinearClassifier("log", penalty="l1", alpha=2e-3), True),
        (st.LinearClassifier("log", penalty=st.ElasticNet(0.4), alpha=2e-3), True),
        (st.LinearClassifier("modified_huber", alpha=1e-3), True),
        (st.LinearRegressor("squared", alpha=1e-2), True),
        (st.LinearRegressor("squared", penalty="l1", alpha=1e-2), True),
        (st.LinearRegressor("huber", alpha=1e-2), True),
    ],
    ids=str,
)
def test_gaps_are_measured_from_a_certified_optimum(rows, regression, model, certified):
    data = regression if isinstance(model, st.LinearRegressor) else rows
    result = st.race(model, *data, solvers=["sgd"], seconds=0.05)
    found = result.optimum
    assert found.bound <= found.objective
    assert found.gap < 1e-8
    assert result.best == pytest.approx(found.objective, rel=1e-9)
    assert min(result.gap(point) for point in result.racers[0].points) > 1e-9  # the only racer is not its own measure
    # The bound, from weights of our own that are not optimal, stays below the optimum all the same.
    early = type(model)(**{**model.get_params(deep=False), "solver": "sgd", "epochs": 2, "random_state": 0})
    early.fit(*data)
    whole = st.race(model, *data, solvers=["sgd"], seconds=0.05, test=st.from_arrays(*data)).optimum
    assert lower_bound(early.learner_, st.from_arrays(*data).block) <= whole.objective + 1e-12


def test_the_optimum_is_that_of_scipy(rows):
    X, y = rows
    signs = np.where(y == np.unique(y)[1], 1.0, -1.0)

    def objective(w):
        margins = signs * (X @ w[:-1] + w[-1])
        loss = np.logaddexp(0, -margins).mean() + 0.5e-3 * w[:-1] @ w[:-1]
        slope = -signs / (1 + np.exp(margins)) / len(y)
        return loss, np.append(X.T @ slope + 1e-3 * w[:-1], slope.sum())

    least = minimize(objective, np.zeros(X.shape[1] + 1), jac=True, method="L-BFGS-B",
                     options=dict(maxiter=5000, ftol=1e-15, gtol=1e-10))  # fmt: skip
    model = st.LinearClassifier("log", alpha=1e-3)
    found = st.race(model, X, y, solvers=["sgd"], seconds=0.05, test=st.from_arrays(X, y)).optimum
    assert found.objective == pytest.approx(least.fun, rel=1e-8)


def test_lines_never_run_back_in_time(rows):
    points = [race.Point(2.0**k, seconds, 1.0, 1.0, 0.1) for k, seconds in enumerate((0.3, 0.5, 0.2, 0.4, 0.9))]
    assert [p.seconds for p in race.forward_in_time(points)] == [0.2, 0.2, 0.2, 0.4, 0.9]
    result = st.race(st.LinearClassifier(alpha=1e-3), *rows, solvers=["sgd", "lbfgs"], seconds=0.3)
    for line in (line for chart in result.charts() for line in chart.lines):
        assert list(line.x) == sorted(line.x)


def test_objectives_without_a_dual_say_that_nothing_is_certified(multiclass):
    model = st.LinearClassifier("log", alpha=1e-3, multi_class="softmax")
    result = st.race(model, *multiclass, solvers=["lbfgs"], seconds=0.1)
    assert "not certified" in str(result)
    assert result.as_dict()["optimum"]["bound"] is None
    json.dumps(result.as_dict(), allow_nan=False)
