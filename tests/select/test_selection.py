"""Cross-validation: folds are fair and stable, groups stay whole, and the result does not depend on threads."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as s
from sklearn.datasets import dump_svmlight_file

import steepest as st
from conftest import sparse_problem
from steepest.cli import main
from steepest.data.folds import Rows, assign_folds, survey_rows
from steepest.data.readers.raw_arrays import RawArrays


@given(s.lists(s.integers(0, 3), min_size=5, max_size=80), s.integers(2, 5), s.integers(0, 9))
def test_folds_hold_equal_shares_of_rows_and_of_every_class(classes, n_folds, seed):
    codes = np.array(classes)
    folds = assign_folds(Rows(np.arange(len(codes)) * 7 + 3, codes), n_folds, seed)
    fold = folds.of(np.arange(len(codes)) * 7 + 3)
    assert np.ptp(np.bincount(fold, minlength=n_folds)) <= 1
    for code in set(classes):
        assert np.ptp(np.bincount(fold[codes == code], minlength=n_folds)) <= 1


@given(s.lists(s.integers(0, 9), min_size=6, max_size=60).filter(lambda g: len(set(g)) >= 3), s.integers(0, 5))
def test_a_group_is_never_on_both_sides(groups, seed):
    codes = np.unique(groups, return_inverse=True)[1]
    fold = assign_folds(Rows(np.arange(len(codes)), groups=codes), 3, seed).of(np.arange(len(codes)))
    assert all(len(set(fold[codes == g])) == 1 for g in set(codes.tolist()))
    assert set(fold) == {0, 1, 2}


def test_folds_are_the_same_for_any_number_of_jobs(multiclass):
    X, y = multiclass
    one, two = (st.cross_validate(st.LinearClassifier(alpha=1e-3), X, y, n_jobs=n) for n in (1, 2))
    assert one.metrics == ("loss", "accuracy")
    np.testing.assert_array_equal(one["loss"], two["loss"])
    np.testing.assert_array_equal(one["accuracy"], two["accuracy"])


def test_a_fold_is_what_fitting_on_the_others_gives(binary):
    X, y = binary
    source = st.from_arrays(X, y)
    result = st.cross_validate(st.LinearClassifier(solver="lbfgs", alpha=1e-3), X, y, folds=3)
    fold = assign_folds(survey_rows(source, classes=True), 3, 0).of(np.arange(len(y)))
    model = st.LinearClassifier(solver="lbfgs", alpha=1e-3).fit(X[fold != 1], y[fold != 1])
    assert result["accuracy"][1] == pytest.approx(model.score(X[fold == 1], y[fold == 1]))
    assert result.mean("accuracy") == pytest.approx(result["accuracy"].mean())
    assert result.sd("accuracy") == pytest.approx(np.std(result["accuracy"], ddof=1))


def test_folds_of_a_classifier_also_measure_its_probabilities(binary):
    result = st.cross_validate(st.LinearClassifier("log", alpha=1e-3), *binary, folds=3)
    assert result.more == ("log_loss", "brier", "ece", "auc", "pr_auc")
    assert str(result).splitlines()[-1] == "means: " + ", ".join(f"{n} {result.mean(n):.5f}" for n in result.more)
    assert result.as_dict()["auc"]["mean"] == result.mean("auc") > 0.5
    assert st.cross_validate(st.LinearClassifier("hinge", alpha=1e-3), *binary, folds=3).more == ("auc", "pr_auc")
    assert st.cross_validate(st.LinearClassifier(alpha=1e-3), *binary, metrics=["ece"]).more == ()


def test_the_estimator_stays_as_it_was(binary):
    model = st.LinearClassifier()
    st.cross_validate(model, *binary, folds=2)
    assert not hasattr(model, "coef_")
    assert model.random_state is None


def test_a_class_with_one_row_is_no_obstacle():
    X, y = sparse_problem(100)
    y = y.copy()
    y[7] = 5
    assert st.cross_validate(st.LinearClassifier(), X, y, folds=4)["loss"].shape == (4,)


def test_regressions_clusters_and_ratings_are_measured_too(regression):
    X, y = regression
    assert st.cross_validate(st.LinearRegressor(alpha=1e-4), X, y).metrics == ("loss", "rmse")
    assert st.cross_validate(st.KMeans(3), X, folds=2).metrics == ("loss",)
    rng = np.random.default_rng(0)
    ratings = st.from_ratings(rng.integers(0, 9, 200), rng.integers(0, 9, 200), rng.random(200))
    assert "rmse" in st.cross_validate(st.MatrixFactorization(2), ratings, folds=2).metrics


def test_raw_texts_are_hashed_in_every_fold():
    texts = [f"word{i % 7} and more" for i in range(210)]
    labels = ["small" if i % 7 < 3 else "large" for i in range(210)]
    model = st.LinearClassifier(hasher=st.Hasher(n_bits=10))
    result = st.cross_validate(model, texts, labels, folds=3, keep_models=True)
    assert result.mean("accuracy") == 1.0
    assert result.models[0].predict(["word1"]).tolist() == ["small"]


def test_raw_arrays_are_read_in_slices(monkeypatch):
    monkeypatch.setattr("steepest.data.readers.raw_arrays.BATCH_ROWS", 16)
    source = RawArrays([f"w{i}" for i in range(50)], np.arange(50) % 2)
    np.testing.assert_array_equal(survey_rows(source).ids, np.arange(50))


def test_samples_grow_by_adding_rows(binary, tmp_path):
    X, y = binary
    dump_svmlight_file(X, y, str(tmp_path / "rows.svm"), zero_based=False)
    for source in (st.from_arrays(X, y), st.scan(tmp_path / "rows.svm")):
        small, large = (set(survey_rows(source.sample(n, 3)).ids.tolist()) for n in (50, 200))
        assert (len(small), len(large)) == (50, 200)
        assert small < large
        assert small == set(survey_rows(source.sample(50, 3).shuffle("rows", 1)).ids.tolist())
        assert survey_rows(source.sample(50, 4)).ids.tolist() != sorted(small)


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    path = tmp_path_factory.mktemp("cv") / "rows.csv"
    lines = [f"{'yes' if i % 4 < 2 else 'no'},word{i % 4} word{i % 5},user{i % 6}" for i in range(240)]
    path.write_text("label,words,user\n" + "\n".join(lines) + "\n")
    return path


def test_cv_prints_a_line_a_fold(table, capsys):
    assert main(["cv", str(table), "--text", "words", "--bits", "10", "--folds", "3", "--jobs", "2"]) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[0].split() == ["fold", "rows", "loss", "accuracy", "seconds"]
    assert [line.split()[0] for line in out[1:]] == ["0", "1", "2", "mean", "sd", "means:"]


def test_cv_gives_json_and_groups_by_a_column_that_is_no_feature(table, capsys):
    command = ["cv", str(table), "--text", "words", "--bits", "10", "--folds", "3", "--groups", "user", "--json"]
    assert main(command) == 0
    found = json.loads(capsys.readouterr().out)
    assert [fold["rows"] for fold in found["folds"]] == [80, 80, 80]
    assert set(found) == {"folds", "loss", "accuracy", "log_loss", "brier", "ece", "auc", "pr_auc", "seconds"}


def test_cv_through_a_cache_gives_the_folds_of_the_cache(table, tmp_path, capsys):
    command = ["cv", str(table), "--text", "words", "--bits", "10", "--folds", "2", "--json"]
    assert main([*command, "--cache", str(tmp_path / "rows.cache")]) == 0
    first = json.loads(capsys.readouterr().out)
    assert main([*command, "--cache", str(tmp_path / "rows.cache")]) == 0
    again = json.loads(capsys.readouterr().out)
    assert [f["loss"] for f in first["folds"]] == [f["loss"] for f in again["folds"]]


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--folds", "1"], "--folds 1 must be at least 2"),
        (["--folds", "300"], "--folds 300 is more than the 240 rows"),
        (["--folds", "7", "--groups", "user"], "--folds 7 is more than the 6 groups"),
        (["--groups", "nobody"], "nobody"),
        (["--groups", "user", "--stratified"], "give one of them"),
        (["--metrics", "beauty"], "--metrics beauty is unknown"),
    ],
)
def test_cv_refuses_bad_wishes_in_one_sentence(table, capsys, flags, words):
    assert main(["cv", str(table), "--text", "words", "--bits", "10", *flags]) == 2
    err = capsys.readouterr().err
    assert words in err
    assert err.count("\n") == 1


def test_cv_refuses_empty_data(tmp_path, capsys):
    (tmp_path / "empty.svm").write_text("")
    assert main(["cv", str(tmp_path / "empty.svm")]) == 2
    assert "empty.svm is empty" in capsys.readouterr().err


def test_groups_must_fit_the_rows(binary):
    with pytest.raises(st.ParameterError, match="one group per row"):
        st.cross_validate(st.LinearClassifier(), *binary, groups=[1, 2, 3])
    with pytest.raises(st.ParameterError, match="names a column"):
        st.cross_validate(st.LinearClassifier(), *binary, groups="user")
