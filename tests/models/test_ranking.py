"""LinearRanker: the minimum over pairs, files with qid, and the measures."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st_
from scipy.optimize import minimize
from sklearn.metrics import average_precision_score, ndcg_score

import steepest as st
from steepest.cli import main
from steepest.data.folds import assign_folds, survey_rows
from steepest.data.groups import Pairs, differences, holdout_groups, pairs_of
from steepest.metrics import GroupRankingMetrics, average_precision, ndcg

GOLDEN = Path(__file__).parents[1] / "golden"


def queries(n_groups=40, n_features=8, seed=0, levels=4):
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 12, n_groups)
    groups = np.repeat(np.arange(n_groups), sizes)
    X = (rng.standard_normal((len(groups), n_features)) * (rng.random((len(groups), n_features)) < 0.6)).astype(
        np.float32
    )
    shift = rng.standard_normal(n_groups)[groups] * 3
    quality = X @ np.linspace(-1, 1, n_features) + 0.3 * rng.standard_normal(len(groups))
    y = np.clip(np.round(quality + levels / 2), 0, levels - 1)
    X[:, 0] += shift  # queries differ; only the order inside one means something
    return X, y, groups


def as_libsvm(path, X, y, groups):
    lines = []
    for x, target, group in zip(X, y, groups, strict=True):
        entries = " ".join(f"{j + 1}:{v!r}" for j, v in enumerate(x.tolist()) if v)
        lines.append(f"{target:g} qid:{group} {entries}\n")
    path.write_text("".join(lines))
    return path


def pair_rows(X, y, groups):
    rows = [X[i] - X[j] for i in range(len(y)) for j in range(len(y)) if groups[i] == groups[j] and y[i] > y[j]]
    return np.array(rows, np.float64)


@pytest.mark.independent
@pytest.mark.parametrize("loss", ["log", "squared_hinge", "hinge"])
@pytest.mark.parametrize("solver", ["newton_cg", "dual_cd", "auto"])
def test_all_pairs_reach_the_minimum_that_scipy_finds(loss, solver):
    X, y, groups = queries(n_groups=8, n_features=4)
    D, alpha = pair_rows(X, y, groups), 0.05
    tol = dict(tol=1e-9)
    model = st.LinearRanker(loss, pairs="all", alpha=alpha, solver=solver, dtype="float64", random_state=0, **tol)
    model.fit(X, y, groups)
    if loss == "hinge":  # a linear program with a quadratic term: slack variables
        n, d = D.shape
        result = minimize(
            lambda v: alpha / 2 * v[:d] @ v[:d] + v[d:].mean(),
            np.r_[np.zeros(d), np.ones(n)],
            jac=lambda v: np.r_[alpha * v[:d], np.full(n, 1 / n)],
            bounds=[(None, None)] * d + [(0, None)] * n,
            constraints={
                "type": "ineq",
                "fun": lambda v: D @ v[:d] + v[d:] - 1,
                "jac": lambda v: np.hstack([D, np.eye(n)]),
            },
            method="SLSQP",
            options=dict(ftol=1e-12, maxiter=1000),
        )
    else:
        values = {
            "log": lambda m: np.logaddexp(0, -m).mean(),
            "squared_hinge": lambda m: (np.maximum(0, 1 - m) ** 2).mean(),
        }
        result = minimize(lambda w: values[loss](D @ w) + alpha / 2 * w @ w, np.zeros(D.shape[1]), tol=1e-12)
    assert model.objective(X, y, groups) == pytest.approx(result.fun, rel=1e-6)


def test_stochastic_pairs_come_close_to_the_minimum():
    X, y, groups = queries(n_groups=200)
    exact = st.LinearRanker(pairs="all", alpha=1e-2, tol=1e-8, dtype="float64").fit(X, y, groups)
    model = st.LinearRanker(alpha=1e-2, epochs=10, random_state=0).fit(X, y, groups)
    assert model.objective(X, y, groups) < 1.02 * exact.objective(X, y, groups)
    assert model.score(X, y, groups) > 0.95
    assert model.history_[-1]["rows"] > 0


@given(st_.lists(st_.integers(0, 3), max_size=12), st_.integers(1, 5) | st_.none(), st_.integers(0, 9))
def test_pairs_are_different_in_order_and_drawn_once(y, per_row, seed):
    y = np.array(y, float)
    better, worse = pairs_of(y, per_row, np.random.default_rng(seed))
    assert (y[better] > y[worse]).all()
    assert len(set(zip(better.tolist(), worse.tolist(), strict=True))) == len(better)
    every = int((y[:, None] > y).sum())
    assert len(better) == (every if per_row is None else min(every, per_row * len(y)))


def test_differences_are_those_of_the_dense_rows():
    X = queries(n_groups=5)[0]
    block = st.from_arrays(X).block
    high, low = np.array([0, 3, 5, 2]), np.array([1, 2, 4, 2])
    found = differences(block, high, low)
    dense = np.zeros((4, X.shape[1]), np.float32)
    for i in range(4):
        span = slice(found.indptr[i], found.indptr[i + 1])
        assert len(set(found.indices[span].tolist())) == len(found.indices[span])
        dense[i, found.indices[span]] = found.values[span]
    np.testing.assert_array_equal(dense, X[high] - X[low])


def test_a_file_with_qid_is_learned_like_arrays(tmp_path):
    X, y, groups = queries()
    path = as_libsvm(tmp_path / "q.svm", X, y, groups)
    options = dict(random_state=0, shuffle="never")
    a = st.LinearRanker(**options).fit(X, y, groups)
    b = st.LinearRanker(**options).fit_stream(st.scan(path, n_features=X.shape[1]))
    np.testing.assert_array_equal(a.coef_, b.coef_)
    found = b.evaluate_stream(st.scan(path, n_features=X.shape[1]))
    assert found["ndcg"] == pytest.approx(a.score(X, y, groups))
    assert found["rows"] == len(y)
    np.testing.assert_allclose(np.concatenate(list(b.predict_stream(st.scan(path)))), b.predict(X), rtol=1e-6)


def test_the_order_and_the_names_of_groups_do_not_matter_for_what_all_pairs_teach():
    X, y, groups = queries(n_groups=20)
    mixed = np.random.default_rng(1).permutation(len(y))
    options = dict(pairs="all", alpha=1e-2, tol=1e-9, dtype="float64")
    a = st.LinearRanker(**options).fit(X, y, groups)
    b = st.LinearRanker(**options).fit(X[mixed], y[mixed], np.array([f"q{g}" for g in groups])[mixed])
    np.testing.assert_allclose(a.coef_, b.coef_, rtol=1e-4, atol=1e-5)


def test_held_out_groups_are_whole_and_early_stopping_uses_them():
    X, y, groups = queries(n_groups=100)
    source = st.LinearRanker().grouped(X, y, groups)
    most, held = holdout_groups(source, 0.3, 1)
    sides = [set(np.concatenate([c.visited(c.group) for c in side]).tolist()) for side in (most, held)]
    assert not sides[0] & sides[1]
    assert len(sides[0]) + len(sides[1]) == 100
    assert 15 < len(sides[1]) < 45
    model = st.LinearRanker(early_stopping=True, epochs=30, random_state=0).fit(X, y, groups)
    assert "holdout_loss" in model.history_[0]


def test_raw_texts_can_be_ranked(tmp_path):
    texts = ["cheap flight", "train", "cheap train", "flight", "slow train", "cheap bus"] * 4
    y, groups = [2, 0, 1, 1, 0, 1] * 4, np.repeat(np.arange(8), 3)
    model = st.LinearRanker(hasher=st.Hasher(n_bits=10), random_state=0, epochs=20).fit(texts, y, groups)
    assert model.predict(["cheap flight", "slow train"]).argmax() == 0
    model.save(tmp_path / "m")
    np.testing.assert_array_equal(st.load(tmp_path / "m").predict(texts), model.predict(texts))


# --------------------------------------------------------------------------------------------------------- measures


@given(st_.lists(st_.tuples(st_.integers(0, 4), st_.integers(-3, 3)), min_size=2, max_size=20), st_.integers(1, 25))
def test_ndcg_and_map_agree_with_scikit_learn(rows, k):
    relevance, scores = (np.array(column, float) for column in zip(*rows, strict=True))
    if not relevance.any():
        assert np.isnan(ndcg(relevance, scores))
        return
    gains = 2.0**relevance - 1
    assert ndcg(relevance, scores, k) == pytest.approx(ndcg_score([gains], [scores], k=k), abs=1e-9)
    distinct = scores + np.arange(len(scores)) * 1e-3
    hits = (relevance[np.argsort(-distinct)] > 0).astype(float)
    theirs = average_precision_score(relevance > 0, distinct)
    assert average_precision(hits, int(hits.sum())) == pytest.approx(theirs)


def test_groups_with_nothing_to_find_are_left_out_of_the_mean():
    metrics = GroupRankingMetrics(2)
    metrics.add(np.array([0.0, 1.0]), np.array([0.0, 1.0]), np.array([0.5]))
    metrics.add(np.array([0.0, 0.0]), np.array([0.0, 1.0]), np.array([]))
    assert metrics.result() == {"rows": 4, "groups": 1, "loss": 0.5, "ndcg": 1.0, "ndcg@2": 1.0, "map": 1.0}


# ----------------------------------------------------------------------------------------------- files, bad input


def test_the_command_line_trains_evaluates_and_predicts(tmp_path, capsys):
    X, y, groups = queries()
    path, model = as_libsvm(tmp_path / "q.svm", X, y, groups), str(tmp_path / "m")
    assert main(["train", str(path), "-m", model, "--task", "rank", "--holdout", "0.2", "--quiet"]) == 0
    assert main(["evaluate", model, str(path), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["ndcg"] > 0.9
    assert {"rows", "loss", "map", "ndcg@10"} <= set(found)
    assert main(["predict", model, str(path)]) == 0
    assert len(capsys.readouterr().out.splitlines()) == len(y)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (dict(groups=[1, 2]), "groups has shape"),
        (dict(y=[0.0, 0.0, 0.0]), "no group has two rows of different targets"),
        (dict(pairs=0), "pairs=0"),
        (dict(pairs="some"), "pairs='some' is unknown"),
        (dict(loss="exponential"), "loss='exponential' is unknown"),
    ],
)
def test_bad_input_is_refused(change, message):
    given = dict(X=[[1.0], [2.0], [3.0]], y=[0.0, 1.0, 2.0], groups=[1, 1, 1]) | change
    options = {name: given.pop(name) for name in ("pairs", "loss") if name in given}
    with pytest.raises(ValueError, match=message):
        st.LinearRanker(**options).fit(**given)


def test_rows_without_groups_are_refused(tmp_path):
    path = tmp_path / "plain.svm"
    path.write_text("1 1:1\n0 1:2\n")
    with pytest.raises(st.DataError, match="need groups; give"):
        st.LinearRanker().fit_stream(st.scan(path))


def test_the_golden_ranker_loads_and_predicts_the_stored_numbers():
    X, y, groups = queries(n_groups=20)
    model = st.load(GOLDEN / "ranker-1.steepest")
    stored = json.loads((GOLDEN / "ranker-1.json").read_text())
    np.testing.assert_allclose(model.predict(X), stored["scores"], rtol=1e-5, atol=1e-6)
    model.partial_fit(X, y, groups)


def test_sources_of_pairs_can_be_read_again():
    X, y, groups = queries(n_groups=30)
    pairs = Pairs(st.LinearRanker().grouped(X, y, groups), 2, 5).shuffle("blocks", 3)
    epochs = [np.concatenate([chunk.values for chunk in pairs.epoch(e)]) for e in (0, 0, 1)]
    np.testing.assert_array_equal(epochs[0], epochs[1])
    assert len(epochs[0]) != len(epochs[2]) or (epochs[0] != epochs[2]).any()


if __name__ == "__main__":
    X, y, groups = queries(n_groups=20)
    model = st.LinearRanker(random_state=0).fit(X, y, groups)
    model.save(GOLDEN / "ranker-1.steepest")
    (GOLDEN / "ranker-1.json").write_text(json.dumps({"scores": model.predict(X).tolist()}, indent=1))


# ---------------------------------------------------------------------------------------------------- choosing a ranker


def graded(n_groups=120, seed=0):
    """Rows in groups of several sizes, in any order, with noisy grades."""
    rng = np.random.default_rng(seed)
    groups = np.repeat([f"q{n}" for n in range(n_groups)], rng.integers(2, 12, n_groups))
    X = rng.standard_normal((len(groups), 6)).astype(np.float32)
    y = np.clip(np.round(X @ np.linspace(-1, 1, 6) + rng.standard_normal(len(groups)) + 1), 0, 3)
    order = rng.permutation(len(groups))
    return X[order], y[order], groups[order]


def mean_measures(model, X, y, groups):
    """NDCG and MAP, group by group, as scikit-learn has them."""
    scores, found = model.predict(X), {"ndcg": [], "map": []}
    for name in np.unique(groups):
        mine = groups == name
        if (y[mine] > 0).any():
            gains = 2.0 ** y[mine] - 1
            found["ndcg"].append(1.0 if mine.sum() < 2 else ndcg_score([gains], [scores[mine]]))
            found["map"].append(average_precision_score(y[mine] > 0, scores[mine]))
    return {name: np.mean(values) for name, values in found.items()}


def test_cross_validation_of_a_ranker_holds_out_whole_groups_and_measures_lists():
    X, y, groups = graded()
    result = st.cross_validate(
        st.LinearRanker(epochs=2, random_state=0), X, y, groups=groups, folds=3, metrics=["ndcg", "map"],
        keep_models=True,
    )  # fmt: skip
    assert sum(fold["rows"] for fold in result.folds) == len(y)
    again = st.cross_validate(st.LinearRanker(epochs=2, random_state=0), X, y, groups=groups, folds=3, n_jobs=2)
    assert again.metrics == ("loss", "ndcg", "map", "ndcg@10")
    np.testing.assert_array_equal(again["ndcg"], result["ndcg"])
    source = st.LinearRanker().grouped(X, y, groups)
    folds = assign_folds(survey_rows(source, own_groups=True), 3, 0)
    of_rows = folds.of(np.arange(len(y)))
    for name in np.unique(groups):
        assert len(set(of_rows[groups == name])) == 1
    for number, model in enumerate(result.models):
        mine = of_rows == number
        expected = mean_measures(model, X[mine], y[mine], groups[mine])
        assert result.folds[number]["ndcg"] == pytest.approx(expected["ndcg"], abs=1e-6)
        assert result.folds[number]["map"] == pytest.approx(expected["map"], abs=1e-6)


def test_tuning_of_a_ranker_compares_ndcg_on_whole_groups():
    X, y, groups = graded(400)
    result = st.tune(st.LinearRanker(epochs=1), X, y, groups=groups, trials=4, random_state=1)
    assert result.metric == "ndcg"
    assert result.best.measured["ndcg"] == max(t.measured["ndcg"] for t in result.trials if t.rows == result.best.rows)
    assert result.best_estimator.score(X, y, groups) > 0.8
    by_map = st.tune(
        st.LinearRanker(epochs=1), X, y, groups=groups, trials=2, metric="map", space={"alpha": (1e-6, 1e3)}
    )
    assert by_map.best.score == -by_map.best.measured["map"]
    with pytest.raises(st.ParameterError, match="groups is for LinearRanker"):
        st.tune(st.LinearClassifier(), X, y, groups=groups)


def test_samples_of_groups_are_whole_and_nested():
    X, y, groups = graded()
    source = st.LinearRanker().grouped(X, y, groups)
    found = []
    for share in (0.2, 0.6):
        chunks = [chunk.packed() for chunk in holdout_groups(source, share, 3)[1]]
        found.append({name for chunk in chunks for name in chunk.group.tolist()})
        assert sum(chunk.n_rows for chunk in chunks) == sum((groups == name).sum() for name in found[-1])
    assert found[0] < found[1] < set(groups.tolist())


@pytest.mark.parametrize("call", ["fit", "partial_fit", "score", "objective", "cross_validate", "tune"])
def test_without_groups_the_error_says_what_is_missing(call):
    X, y, groups = graded(20)
    model = st.LinearRanker(epochs=1, random_state=0)
    if not call.endswith("fit"):
        model.fit(X, y, groups)
    ask = partial(getattr(st, call), model) if call in ("cross_validate", "tune") else getattr(model, call)
    with pytest.raises(st.ParameterError, match="groups is missing"):
        ask(X, y)


def test_rankers_are_validated_tuned_and_measured_on_the_command_line(tmp_path, capsys):
    X, y, groups = graded(60)
    order = np.argsort(groups, kind="stable")
    data, model = tmp_path / "q.svm", str(tmp_path / "m")
    numbers = np.unique(groups, return_inverse=True)[1]
    with data.open("w") as file:
        for i in order:
            values = " ".join(f"{j}:{v}" for j, v in enumerate(X[i], 1))
            file.write(f"{y[i]:g} qid:{numbers[i]} {values}\n")
    assert main(["cv", str(data), "--task", "rank", "--folds", "3", "--epochs", "1", "--json"]) == 0
    assert 0.5 < json.loads(capsys.readouterr().out)["ndcg"]["mean"] <= 1
    assert main(["tune", str(data), "--task", "rank", "--trials", "2", "--epochs", "1", "-m", model, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["metric"] == "ndcg"
    assert main(["evaluate", model, str(data), "--k", "3", "--json"]) == 0
    assert "ndcg@3" in json.loads(capsys.readouterr().out)
