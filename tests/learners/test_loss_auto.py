"""loss="auto": the log loss for two classes, the squared hinge for more; and labels of rows without a good one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import steepest as st

N, D, K = 2400, 12, 4


@pytest.fixture(scope="module")
def rows() -> tuple[Any, Any]:
    """Points around K centres, far enough apart to be learned and near enough for errors."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, K, N)
    X = rng.standard_normal((N, D)) + 1.2 * np.eye(K, D)[y]
    return X.astype(np.float32), np.array(["a", "b", "c", "d"])[y]


def same(a: Any, b: Any) -> bool:
    return bool((a.coef_ == b.coef_).all() and (a.intercept_ == b.intercept_).all())


@pytest.mark.parametrize(
    "options",
    [
        {"solver": "stochastic"},
        {"solver": "adagrad"},
        {"parallel": st.Mixing(n_shards=3)},
        {"solver": "lbfgs"},
        {"eta0": 0.1},
        {"multi_class": "hashed"},
    ],
    ids=str,
)
def test_several_classes_are_learned_by_the_squared_hinge_and_two_by_the_log_loss(
    rows: tuple[Any, Any], options: dict[str, Any]
) -> None:
    X, y = rows
    auto = st.LinearClassifier(random_state=0, **options).fit(X, y)
    assert same(auto, st.LinearClassifier("squared_hinge", random_state=0, **options).fit(X, y))
    assert any("squared_hinge" in event for event in auto.history_.events)
    two = np.isin(y, ["a", "b"])
    auto = st.LinearClassifier(random_state=0, **options).fit(X[two], y[two])
    assert same(auto, st.LinearClassifier("log", random_state=0, **options).fit(X[two], y[two]))
    assert not any("loss='auto'" in event for event in auto.history_.events)


@pytest.mark.parametrize("options", [{"multi_class": "softmax"}, {"schedule": "optimal"}], ids=str)
def test_a_soft_maximum_and_a_step_that_follows_from_the_loss_keep_the_log_loss(
    rows: tuple[Any, Any], options: dict[str, Any]
) -> None:
    auto, log = (st.LinearClassifier(loss, random_state=0, **options).fit(*rows) for loss in ("auto", "log"))
    assert same(auto, log)


@pytest.mark.parametrize("eta0", ["auto", 0.1])
@pytest.mark.parametrize("late", [300, 1500])
def test_a_late_class_and_the_cut_into_chunks_do_not_matter(rows: tuple[Any, Any], late: int, eta0: Any) -> None:
    X, y = rows[0], rows[1].copy()
    y[:late][np.isin(y[:late], ["c", "d"])] = "a"
    whole = st.LinearClassifier(eta0=eta0, random_state=0).partial_fit(X, y)
    parts = st.LinearClassifier(eta0=eta0, random_state=0)
    for start in range(0, N, 171):
        parts.partial_fit(X[start : start + 171], y[start : start + 171])
    assert same(whole, parts)
    loss = "squared_hinge" if late < 1000 else "log"
    if eta0 == "auto":  # with a step that is given, rows of a loss that is given do not wait for the third class
        assert same(whole, st.LinearClassifier(loss, random_state=0).partial_fit(X, y))
    assert whole._loss_name() == loss


@pytest.mark.parametrize("first", [200, 1400])
def test_a_file_remembers_the_loss_also_while_it_is_open(rows: tuple[Any, Any], first: int, tmp_path: Path) -> None:
    X, y = rows
    model = st.LinearClassifier(random_state=0).partial_fit(X[:first], y[:first])
    model.save(tmp_path / "model")
    loaded = st.load(tmp_path / "model")
    assert loaded.loss == "auto"
    assert (loaded.predict_proba(X) == model.predict_proba(X)).all()
    assert same(loaded.partial_fit(X[first:], y[first:]), st.LinearClassifier(random_state=0).partial_fit(X, y))


def test_probabilities_of_the_squared_hinge_add_up_and_follow_the_scores(rows: tuple[Any, Any]) -> None:
    X, y = rows
    model = st.LinearClassifier(random_state=0).fit(X[:1600], y[:1600])
    p = model.predict_proba(X[1600:])
    np.testing.assert_allclose(p.sum(axis=1), 1)
    assert (p.argmax(axis=1) == model.decision_function(X[1600:]).argmax(axis=1)).all()
    found = p[np.arange(len(p)), np.searchsorted(model.classes_, y[1600:])]
    log = st.LinearClassifier("log", random_state=0).fit(X[:1600], y[:1600]).predict_proba(X[1600:])
    of_log = log[np.arange(len(p)), np.searchsorted(model.classes_, y[1600:])]
    assert -np.log(found).mean() < 1.15 * -np.log(of_log).mean()


# ------------------------------------------------------------------------------------------------ several labels


@pytest.fixture(scope="module")
def sets() -> tuple[Any, Any]:
    """Rows of one to three labels out of six, hard to tell."""
    rng = np.random.default_rng(1)
    Y = np.zeros((N, 6), np.int64)
    for row in Y:
        row[rng.choice(6, rng.integers(1, 4), replace=False)] = 1
    X = Y @ rng.standard_normal((6, D)) + 2.5 * rng.standard_normal((N, D))
    return X.astype(np.float32), Y


def test_no_row_is_left_without_a_label_if_none_was_in_training(sets: tuple[Any, Any]) -> None:
    X, Y = sets
    model = st.LinearClassifier(random_state=0).fit(X, Y)
    scores, found = model.decision_function(X), model.predict(X)
    bare = ~(scores > 0).any(axis=1)
    assert bare.any()
    assert (found[~bare] == (scores[~bare] > 0)).all()
    assert (found[bare].sum(axis=1) == 1).all()
    assert (found[bare].argmax(axis=1) == scores[bare].argmax(axis=1)).all()


def test_rows_may_be_without_a_label_if_some_were_in_training(sets: tuple[Any, Any], tmp_path: Path) -> None:
    X, Y = sets[0], sets[1].copy()
    Y[1500] = 0
    model = st.LinearClassifier(random_state=0)
    for start in range(0, N, 500):
        model.partial_fit(X[start : start + 500], Y[start : start + 500])
        model.save(tmp_path / "model")
        loaded = st.load(tmp_path / "model")
        found = loaded.predict(X)
        assert (found == model.predict(X)).all()
        assert (found.sum(axis=1).min() == 0) == (start + 500 > 1500)


def test_evaluation_counts_the_labels_that_predict_gives(sets: tuple[Any, Any]) -> None:
    X, Y = sets
    model = st.LinearClassifier(random_state=0).fit(X[:1600], Y[:1600])
    predicted = model.predict(X[1600:])
    found = model.evaluate_stream(st.from_arrays(X[1600:], Y[1600:]))
    f1 = 2 * (predicted * Y[1600:]).sum() / (predicted.sum() + Y[1600:].sum())
    assert found["micro_f1"] == pytest.approx(f1)


def test_mixed_shards_agree_on_rows_without_labels(sets: tuple[Any, Any]) -> None:
    X, Y = sets[0], sets[1].copy()
    for bare in (False, True):
        Y[-1] = 0 if bare else sets[1][-1]
        model = st.LinearClassifier(parallel=st.Mixing(n_shards=4), random_state=0).fit(X, Y)
        assert (model.predict(X).sum(axis=1).min() == 0) == bare
