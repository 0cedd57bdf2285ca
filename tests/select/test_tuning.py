"""Tuning: the same trials for the same seed, never worse than the defaults, and a command that trains the best."""

from __future__ import annotations

import json
import shlex

import numpy as np
import pytest
from sklearn.datasets import dump_svmlight_file

import steepest as st
from conftest import sparse_problem
from steepest.cli import main
from steepest.select.tune import Range


@pytest.fixture(scope="module")
def rows():
    return sparse_problem(n_rows=4000, seed=5)


def summary(result):
    return [(t.number, t.rows, t.changes, t.measured) for t in result.trials]


def test_the_same_seed_gives_the_same_trials(rows):
    first, again = (st.tune(st.LinearClassifier(), *rows, trials=9, refit=False) for _ in range(2))
    assert summary(first) == summary(again)
    other = st.tune(st.LinearClassifier(), *rows, trials=9, random_state=1, refit=False)
    assert summary(first) != summary(other)


def test_a_third_of_the_settings_goes_on_to_three_times_the_rows(rows):
    result = st.tune(st.LinearClassifier(), *rows, trials=9, refit=False)
    sizes = [t.rows for t in result.trials]
    assert sizes[:9] == [1066] * 9
    assert set(sizes[9:]) == {3200}
    assert 3 <= len(sizes) - 9 <= 4
    assert result.best.rows == 3200


def test_the_best_is_no_worse_than_the_estimator_as_given(rows):
    result = st.tune(st.LinearClassifier(), *rows, trials=9, refit=False)
    given = next(t for t in result.trials if t.number == 0 and t.rows == result.best.rows)
    assert given.changes["alpha"] == "auto"
    assert result.best.score <= given.score


def test_more_trials_begin_with_those_of_fewer(rows):
    few, many = (st.tune(st.LinearClassifier(), *rows, trials=n, refit=False) for n in (3, 5))
    assert [t.changes for t in few.trials[:3]] == [t.changes for t in many.trials[:3]]


def test_a_budget_ends_the_search_but_one_trial_always_runs(rows):
    result = st.tune(st.LinearClassifier(), *rows, trials=27, budget=1e-6)
    assert len(result.trials) == 1
    assert "the budget of 1e-06 s ended the search" in result.notes[0]
    assert result.best_estimator.coef_.shape == (1, 200)


def test_parameters_that_do_not_go_together_are_a_bad_trial_only(rows):
    space = {"penalty": ["l1", "l2"], "solver": ["newton_cg"]}
    result = st.tune(st.LinearClassifier(solver="newton_cg", alpha=1e-3), *rows, space=space, trials=6, refit=False)
    assert any("newton_cg" in t.note for t in result.trials)
    assert result.best.changes["penalty"] == "l2"


def test_a_regression_is_tuned_by_rmse(regression):
    result = st.tune(st.LinearRegressor(), *regression, trials=4, refit=False)
    assert result.metric == "rmse"
    assert result.best.measured["rmse"] == min(t.measured["rmse"] for t in result.trials)


def test_probabilities_are_measured_and_may_decide(rows):
    space = {"loss": ["log", "hinge"], "alpha": [1e-4, 1e-2]}
    result = st.tune(st.LinearClassifier("log"), *rows, space=space, trials=6, metric="log_loss", refit=False)
    best = result.best.measured
    assert best.keys() == {"loss", "accuracy", "log_loss", "brier", "ece", "auc", "pr_auc"}
    assert best["log_loss"] == min(t.measured.get("log_loss", 9.0) for t in result.trials if t.rows == result.best.rows)
    assert "this model has no log_loss" in {t.note for t in result.trials if t.changes["loss"] == "hinge"}
    assert str(result).splitlines()[-1].startswith(f"* brier {best['brier']:.5f}, ece ")


def test_numbers_are_drawn_between_the_bounds():
    drawn = [Range(1e-4, 1e-2).draw(np.random.default_rng(k)) for k in range(200)]
    assert min(drawn) >= 1e-4
    assert max(drawn) <= 1e-2
    assert 0.3 < np.mean(np.array(drawn) < 1e-3) < 0.7


@pytest.mark.parametrize(
    ("wish", "words"),
    [
        (dict(budget=0), "budget=0 must be more than 0"),
        (dict(trials=0), "trials=0 must be at least 1"),
        (dict(space={"alfa": [1]}), "space='alfa' is unknown"),
        (dict(space={"alpha": []}), "nothing to choose from"),
        (dict(space={"alpha": Range(1.0, 0.1)}), "must be more than 1"),
        (dict(holdout=1.5), "holdout=1.5 must lie between"),
        (dict(metric="rmse"), "metric='rmse' is unknown"),
    ],
)
def test_bad_wishes_are_refused(rows, wish, words):
    with pytest.raises(st.ParameterError, match=words):
        st.tune(st.LinearClassifier(), *rows, **wish)


def test_only_linear_models_are_tuned(rows):
    with pytest.raises(st.ParameterError, match="not KMeans"):
        st.tune(st.KMeans(), rows[0])


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tune")
    X, y = sparse_problem(n_rows=1500, seed=6)
    dump_svmlight_file(X, y, str(folder / "rows.svm"), zero_based=False)
    lines = [f"{'yes' if i % 4 < 2 else 'no'},word{i % 4} word{i % 5}" for i in range(240)]
    (folder / "rows.csv").write_text("label,words\n" + "\n".join(lines) + "\n")
    return folder


@pytest.mark.parametrize(
    "data",
    [
        ["rows.svm", "--loss", "log,hinge", "--epochs", "3"],
        ["rows.csv", "--text", "words", "--bits", "12", "--cross", "words,words"],
    ],
)
def test_the_command_that_is_printed_trains_the_model_that_was_saved(files, data, capsys, monkeypatch):
    monkeypatch.chdir(files)
    assert main(["tune", *data, "--trials", "4", "-m", "best.steepest", "--seed", "2"]) == 0
    command = capsys.readouterr().out.splitlines()[-1]
    saved = st.load("best.steepest")
    words = shlex.split(command)
    assert words[:2] == ["steepest", "train"]
    assert main(words[1:]) == 0
    np.testing.assert_array_equal(st.load("best.steepest").coef_, saved.coef_)


def test_flags_that_are_given_are_kept(files, capsys, monkeypatch):
    monkeypatch.chdir(files)
    assert main(["tune", "rows.svm", "--trials", "5", "--alpha", "1e-4", "--loss", "hinge", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert all(set(trial["parameters"]) == {"eta0"} for trial in found["trials"])
    assert found["metric"] == "loss"
    assert "--alpha 0.0001" in found["command"]
    assert "--loss hinge" in found["command"]


def test_raw_data_is_tuned_with_its_hasher(files, capsys, monkeypatch):
    monkeypatch.chdir(files)
    assert main(["tune", "rows.csv", "--text", "words", "--trials", "3", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {"n_bits", "ngrams"} <= set(found["trials"][0]["parameters"])


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--budget", "0"], "--budget 0.0 must be more than 0"),
        (["--trials", "0"], "--trials 0"),
        (["--task", "cluster"], "cannot be tuned"),
    ],
)
def test_tune_refuses_in_one_sentence(files, capsys, monkeypatch, flags, words):
    monkeypatch.chdir(files)
    assert main(["tune", "rows.svm", *flags]) == 2
    err = capsys.readouterr().err
    assert words in err
    assert err.count("\n") == 1
