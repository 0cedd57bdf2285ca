"""alpha="auto" of exact solvers: the alpha that scikit-learn finds best on the same split, and what is said of it."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.linear_model import LogisticRegression, Ridge

import steepest as st
from conftest import sparse_problem
from steepest.data.source import from_arrays
from steepest.learners.batch import strength
from steepest.learners.batch.strength import STRENGTHS, choose_strength, held_out_parts
from steepest.learners.linear.linear import LinearLearner
from steepest.learners.linear.linear_settings import LinearSettings


def classes(n=600, d=40, seed=0):
    """Sparse rows, so that both sides see the same values; many columns say nothing."""
    rng = np.random.default_rng(seed)
    X = sp.random(n, d, density=0.2, format="csr", random_state=rng, data_rvs=rng.standard_normal)
    w = np.where(np.arange(d) < 6, 1.5, 0.0)
    return X.astype(np.float32), (X @ w + 0.8 * rng.standard_normal(n) > 0).astype(int)


def log_loss_on_grid(X, y):
    """Mean loss on held-out rows, for every strength, by scikit-learn."""
    sums = np.zeros(len(STRENGTHS))
    for held in held_out_parts(X.shape[0]):
        for k, alpha in enumerate(STRENGTHS):
            C = 1 / (alpha * (~held).sum())
            scores = LogisticRegression(C=C, tol=1e-8, max_iter=2000).fit(X[~held], y[~held]).decision_function(X[held])
            sums[k] += np.logaddexp(0, -scores * (2 * y[held] - 1)).sum()
    return sums / X.shape[0]


def squared_loss_on_grid(X, y):
    sums = np.zeros(len(STRENGTHS))
    for held in held_out_parts(X.shape[0]):
        for k, alpha in enumerate(STRENGTHS):
            model = Ridge(alpha=alpha * (~held).sum()).fit(X[~held].toarray(), y[~held])
            sums[k] += 0.5 * ((model.predict(X[held].toarray()) - y[held]) ** 2).sum()
    return sums / X.shape[0]


def tried(model):
    (sentence,) = [event for event in model.history_.events if event.startswith("alpha='auto'")]
    pairs = re.findall(r"([\d.e+-]+): ([\d.e+-]+)", sentence.split("(", 1)[1])
    return [(float(alpha), float(loss)) for alpha, loss in pairs]


@pytest.mark.parametrize("task", ["classes", "numbers"])
def test_alpha_is_the_one_that_scikit_learn_finds_best(task):
    X, y = classes()
    if task == "classes":
        model, losses = st.LinearClassifier("log"), log_loss_on_grid(X, y)
    else:
        y = X @ np.linspace(0, 1, 40) + np.random.default_rng(1).standard_normal(600)
        model, losses = st.LinearRegressor(), squared_loss_on_grid(X, y)
    model.fit(X, y)
    share = 0.8  # of the rows, that alpha was chosen on
    found = model.learner_.settings.alpha / share
    nearest = int(np.argmin(np.abs(np.log(found / np.array(STRENGTHS)))))
    assert found == pytest.approx(STRENGTHS[nearest])
    assert losses[nearest] <= losses.min() * (1 + 2 * strength.LEAST_GAIN)
    ours = np.array([loss for _, loss in tried(model)])
    np.testing.assert_allclose(ours, losses[: len(ours)], rtol=2e-3)


def test_the_sentence_says_what_was_tried():
    X, y = classes(300)
    model = st.LinearClassifier().fit(X, y)
    (sentence,) = [event for event in model.history_.events if event.startswith("alpha='auto'")]
    assert sentence.startswith(f"alpha='auto' chose {model.learner_.settings.alpha:.2e} by the loss on held-out rows (")
    alphas, losses = zip(*tried(model), strict=True)
    assert list(alphas) == sorted(alphas, reverse=True)
    assert len(alphas) >= 3
    chosen = alphas[int(np.argmin(np.abs(np.log(np.array(alphas) / model.learner_.settings.alpha))))]
    assert losses[alphas.index(chosen)] <= min(losses) * (1 + 2 * strength.LEAST_GAIN)
    assert all(later > min(losses) for later in losses[losses.index(min(losses)) + 1 :])


def test_noise_gets_a_strong_penalty_and_a_clear_rule_a_weak_one():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((400, 30))
    noise = st.LinearClassifier().fit(X, rng.integers(0, 2, 400)).learner_.settings.alpha
    clear = st.LinearClassifier().fit(X, X[:, 0] + X[:, 1] > 0).learner_.settings.alpha
    assert noise > 0.05
    assert clear < 1e-3


def test_few_rows_are_split_five_times_and_many_once():
    few = list(held_out_parts(100))
    assert len(few) == 5
    np.testing.assert_array_equal(np.sum(few, axis=0), 1)  # every row once
    (many,) = held_out_parts(10_000)
    assert 0.2 < many.mean() < 0.3
    assert many[-625:].all()  # the last stretch among them
    assert 0.1 < many[:625].mean() < 0.15  # single rows elsewhere
    assert len(list(held_out_parts(3))) == 3


def test_stretches_to_hold_out_have_equal_weight():
    weight = 0.5 ** (np.arange(20_000)[::-1] / 400)
    (held,) = held_out_parts(20_000, None, weight)
    assert 0.2 < weight[held].sum() / weight.sum() < 0.35
    assert held[-30:].all()
    same = zip(held_out_parts(20_000), held_out_parts(20_000, None, np.zeros(20_000)), strict=True)
    assert all((one == other).all() for one, other in same)


def test_the_choice_does_not_depend_on_threads_or_on_the_seed():
    X, y = sparse_problem(n_rows=500, n_classes=3)
    first = st.LinearClassifier(random_state=0).fit(X, y)
    for other in (st.LinearClassifier(random_state=5), st.LinearClassifier(n_jobs=2)):
        np.testing.assert_array_equal(other.fit(X, y).coef_, first.coef_)


def test_of_many_entries_a_part_is_tried(monkeypatch):
    X, y = classes(2000)
    settings = LinearSettings(loss="log", solver="newton_cg", dtype="float64")

    def new_learner(part):
        return LinearLearner(settings, part.n_features, [0, 1])

    all_rows = choose_strength(from_arrays(X, y), "newton_cg", new_learner, 1)
    monkeypatch.setattr(strength, "MOST_ENTRIES", X.nnz // 3)
    some = choose_strength(from_arrays(X, y), "newton_cg", new_learner, 1)
    assert some.tried[0][0] < all_rows.tried[0][0] / 2  # it counts for all rows, and was tried on fewer
    assert some.alpha == pytest.approx(all_rows.alpha, rel=9)


def test_nothing_is_held_back_where_alpha_is_given():
    X, y = classes(200)
    for options in (dict(alpha=1e-3), dict(C=1.0), dict(penalty="none"), dict(solver="stochastic"), dict(epochs=3)):
        events = st.LinearClassifier(random_state=0, **options).fit(X, y).history_.events
        assert not any(event.startswith("alpha=") for event in events), options


def test_rows_that_no_part_can_learn_from_keep_the_usual_alpha():
    model = st.LinearClassifier().fit([[0.0], [1.0]], [0, 1])
    assert model.predict([[0.0], [1.0]]).tolist() == [0, 1]


@pytest.mark.parametrize("class_weight", ["balanced", {0: 1.0, 1: 9.0}])
def test_rows_held_back_weigh_as_rows_that_are_learned(class_weight):
    X, y = classes(500)
    y = np.where(np.arange(500) % 3 == 0, y, 0)  # a rare class
    share = np.bincount(y) / 500
    factors = 1 / (2 * share) if class_weight == "balanced" else np.array([1.0, 9.0])
    weighted = st.LinearClassifier("log", class_weight=class_weight).fit(X, y)
    rows = st.LinearClassifier("log").fit(X, y, sample_weight=factors[y])
    for (alpha, loss), (same_alpha, same_loss) in zip(tried(weighted), tried(rows), strict=False):
        assert alpha == same_alpha
        assert loss == pytest.approx(same_loss, rel=0.02)  # "balanced" counts the rows that are learned


@pytest.mark.parametrize("names", [["a", "b"], ["b", "a"], ["c", "a", "b"], ["b", "c", "a"]])
def test_the_last_fit_starts_from_the_trial_whatever_class_comes_first(tmp_path, names):
    rng = np.random.default_rng(3)
    X = rng.standard_normal((5000, 4))
    y = np.array(names)[(X @ rng.standard_normal((4, len(names))) + rng.gumbel(size=(5000, len(names)))).argmax(axis=1)]
    first = int(np.flatnonzero(y == names[0])[0])
    order = np.r_[first, np.delete(np.arange(5000), first)]
    path = tmp_path / "rows.csv"
    pd.DataFrame(X, columns=list("pqrs")).assign(label=y).iloc[order].to_csv(path, index=False)
    model = st.LinearClassifier().fit_stream(st.scan_csv(path, label="label"))
    assert model.history_[0]["loss"] < 1.05 * model.history_[-1]["loss"]
    assert model.score(pd.DataFrame(X, columns=list("pqrs")), y) > 0.6


@pytest.mark.parametrize("labels", [["no", "yes"], ["a", "b", "c"]])
def test_columns_far_apart_are_chosen_for_as_if_they_were_neighbours(labels):
    X, numbers = sparse_problem(n_rows=5000, n_classes=len(labels))
    y = np.array(labels)[numbers % len(labels)]
    own = np.unique(X.indices)
    near, far = sp.csr_matrix(X[:, own]), 1000 * np.arange(len(own)) + 7
    wide = sp.csr_matrix((near.data, far[near.indices].astype(np.int32), near.indptr), (X.shape[0], 1 << 22))
    settings = LinearSettings(loss="log", solver="newton_cg", multi_class="ovr" if len(labels) == 2 else "softmax")

    def chosen(rows):
        return choose_strength(from_arrays(rows, y), "newton_cg", lambda s: LinearLearner(settings, s.n_features), 1)

    close, spread = chosen(near), chosen(wide)
    assert (spread.alpha, spread.tried) == (close.alpha, close.tried)
    assert spread.start.n_features == 1 << 22
    features, weights, bias = spread.start.used_weights()
    np.testing.assert_array_equal(features, far)
    np.testing.assert_array_equal(weights, close.start.used_weights()[1])
    np.testing.assert_array_equal(bias, close.start.used_weights()[2])
    np.testing.assert_array_equal(spread.held.scores, close.held.scores)
