"""MatrixFactorization: what it learns, recommends, and what it says about bad input."""

from __future__ import annotations

import gzip
import json

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from benchmarks.factors import planted
from sklearn.base import clone

import steepest as st
from steepest import cli
from steepest.data.splits import gather, leave_k_out, split_by_time
from steepest.metrics import RankingMetrics


@pytest.fixture(scope="module")
def ratings():
    train, test = planted(40_000)
    return np.column_stack(train[:2]), train[2], np.column_stack(test[:2]), test[2]


@pytest.fixture(scope="module")
def small():
    train, test = planted(4_000)
    return np.column_stack(train[:2]), train[2], np.column_stack(test[:2]), test[2]


def rmse(model, X, y):
    return float(np.sqrt(np.mean((model.predict(X) - y) ** 2)))


def bits(model):
    return model.learner_.users.tobytes(), model.learner_.items.tobytes(), model.learner_.numbers


# ------------------------------------------------------------------------------------------------------------ learning


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"schedule": "bold", "epochs": 40},
        {"solver": "als"},
        {"solver": "als", "n_factors": 50, "epochs": 10},
        {"loss": "absolute"},
        {"weighting": "count"},
        {"weighting": "none"},
        {"biases": False},
        {"nonnegative": True},
        {"solver": "als", "nonnegative": True},
        {"l1": 0.002},
        {"n_factors": 150, "epochs": 10},
    ],
    ids=str,
)
def test_every_way_to_fit_ratings_beats_the_means(ratings, options):
    X, y, X_test, y_test = ratings
    model = st.MatrixFactorization(**{"n_factors": 16, "random_state": 0, **options}).fit(X, y)
    spread = float(y_test.std())
    assert rmse(model, X_test, y_test) < 0.96 * spread
    assert model.score(X_test, y_test) > 0.05
    losses = model.history_.column("loss")
    assert losses[-1] < losses[0]
    if options.get("nonnegative"):
        assert model.item_factors_.min() >= 0
        assert model.user_factors_.min() >= 0


def test_a_1_norm_leaves_some_factors_zero_and_not_all():
    rng = np.random.default_rng(0)
    users, items = np.divmod(rng.permutation(6000)[:4000], 60)
    product = (rng.standard_normal((100, 3))[users] * rng.standard_normal((60, 3))[items]).sum(axis=1)
    X, y = np.column_stack([users, items]), np.clip(np.rint(3 + product), 1, 5)
    model = st.MatrixFactorization(8, l1=0.005, random_state=0).fit(X[:3500], y[:3500])
    assert 0.05 < (model.user_factors_ == 0).mean() < 0.6
    assert np.sqrt(np.mean((model.predict(X[3500:]) - y[3500:]) ** 2)) < 0.6 * y.std()


def test_the_scale_of_ratings_does_not_matter(ratings):
    X, y, X_test, _y_test = ratings
    stars = st.MatrixFactorization(8, random_state=0).fit(X, y)
    percent = st.MatrixFactorization(8, random_state=0).fit(X, 20 * y + 7)
    np.testing.assert_allclose(percent.predict(X_test), 20 * stars.predict(X_test) + 7, rtol=1e-3)


def test_factors_and_biases_are_in_the_ratings_units(ratings):
    X, y, _X_test, _ = ratings
    model = st.MatrixFactorization(8, random_state=0, clip=False).fit(X, y)
    user, item = X[0]
    u, i = np.flatnonzero(model.user_ids_ == user)[0], np.flatnonzero(model.item_ids_ == item)[0]
    score = (
        model.mean_ + model.user_biases_[u] + model.item_biases_[i] + model.user_factors_[u] @ model.item_factors_[i]
    )
    assert model.predict([[user, item]])[0] == pytest.approx(score, rel=1e-4)


def test_als_and_lbfgs_reach_the_same_optimum(small):
    X, y, _, _ = small
    als = st.MatrixFactorization(3, solver="als", epochs=200, random_state=1).fit(X, y)
    batch = st.MatrixFactorization(3, solver="lbfgs", epochs=100, random_state=1).fit(X, y)
    assert als.history_[-1]["objective"] == pytest.approx(batch.history_[-1]["objective"], rel=3e-3)
    for model in (als, batch):  # never upwards
        objective = np.array(model.history_.column("objective"))
        assert (np.diff(objective) < 1e-6).all()


def test_the_gradient_of_the_batch_objective(small):
    from steepest.data.entries import Entries
    from steepest.learners.factors.factor_lbfgs import LbfgsRun
    from steepest.learners.factors.factor_settings import resolve_settings
    from steepest.learners.factors.factors import FactorLearner

    for loss in ("squared", "logistic"):
        params = st.MatrixFactorization(2, loss=loss).get_params()
        learner = FactorLearner(resolve_settings(params, 0))
        users, items = np.array([0, 1, 2, 0], np.int32), np.array([0, 0, 1, 1], np.int32)
        values = np.array([1.0, -1.0, 1.0, -1.0])
        run = LbfgsRun(learner, learner.prepare(Entries(users, items, values, None), 3, 2))
        _, gradient = run.objective(run.x)
        for j in range(len(run.x)):
            ends = [run.objective(run.x + change * np.eye(len(run.x))[j])[0] for change in (1e-6, -1e-6)]
            assert gradient[j] == pytest.approx((ends[0] - ends[1]) / 2e-6, rel=1e-4, abs=1e-7)


@pytest.mark.parametrize("loss", ["logistic", "hinge"])
def test_two_kinds_of_entries(ratings, loss):
    X, y, X_test, y_test = ratings
    model = st.MatrixFactorization(8, loss=loss, random_state=0).fit(X, y >= 4)
    majority = max(np.mean(y_test >= 4), np.mean(y_test < 4))
    assert model.score(X_test, y_test >= 4) > majority + 0.03
    if loss == "logistic":
        predicted = model.predict(X_test)
        assert predicted.min() >= 0
        assert predicted.max() <= 1
        assert predicted.mean() == pytest.approx(np.mean(y_test >= 4), abs=0.05)


def planted_clicks(n_users=300, n_items=200, seed=0):
    """Users of five groups click in their group's items nine times of ten."""
    rng = np.random.default_rng(seed)
    users = np.repeat(np.arange(n_users), 12)
    own = users % 5 + 5 * rng.integers(0, n_items // 5, len(users))
    items = np.where(rng.random(len(users)) < 0.9, own, rng.integers(0, n_items, len(users)))
    return np.unique(np.column_stack([users, items]), axis=0)


@pytest.mark.parametrize(
    "options", [{"loss": "implicit"}, {"loss": "implicit", "n_factors": 48}, {"loss": "bpr"}], ids=str
)
def test_clicks_lead_to_items_of_the_same_kind(options):
    X = planted_clicks()
    model = st.MatrixFactorization(**{"n_factors": 8, "random_state": 0, "epochs": 30, **options}).fit(X)
    found = model.recommend(np.arange(300), 5)
    share = np.mean([item % 5 == user % 5 for user, pairs in found for item, _ in pairs])
    assert share > 0.8
    seen = set(map(tuple, X.tolist()))
    assert not any((user, item) in seen for user, pairs in found for item, _ in pairs)


def test_implicit_objective_never_rises_with_exact_solutions():
    model = st.MatrixFactorization(8, loss="implicit", epochs=15, random_state=0).fit(planted_clicks())
    objective = np.array(model.history_.column("objective"))
    assert (np.diff(objective) < 1e-7).all()
    assert model.solver_ == "als"
    assert "counts every cell" in model.history_.events[0]


@pytest.mark.parametrize(
    ("weighting", "alpha", "ridge"),
    [("mixed", 0.002, lambda c, m: 20 * c + m), ("count", 0.01, lambda c, m: c + m), ("none", 0.01, lambda c, m: 1)],
)
def test_rows_of_clicks_are_shrunk_by_their_confidence_and_cells(weighting, alpha, ridge):
    clicks, counts = planted_clicks(), 1.0 + np.arange(len(planted_clicks())) % 3
    options = {"loss": "implicit", "weighting": weighting, "confidence": 2.0, "random_state": 0}
    model = st.MatrixFactorization(4, **options).fit(clicks, counts)
    assert model.alpha_ == alpha
    q, known = model.item_factors_.astype(np.float64), np.flatnonzero(clicks[:, 0] == model.user_ids_[0])
    places = {item: at for at, item in enumerate(model.item_ids_.tolist())}
    rows, extra = q[[places[item] for item in clicks[known, 1].tolist()]], 2.0 * counts[known]
    matrix = q.T @ q + (rows * extra[:, None]).T @ rows + alpha * ridge(extra.sum(), len(q)) * np.eye(4)
    row = np.linalg.solve(matrix, rows.T @ (1 + extra))
    model.fold_in(clicks[known], counts[known])
    np.testing.assert_allclose(model.user_factors_[0], row, rtol=1e-3, atol=1e-4)


def test_kl_objective_never_rises_and_comes_to_the_optimum_of_scikit_learn():
    from sklearn.decomposition import NMF

    rng = np.random.default_rng(0)
    V = rng.poisson(rng.gamma(0.5, 1, (60, 4)) @ rng.gamma(0.5, 1, (4, 50))).astype(np.float64)
    V = V[V.sum(axis=1) > 0][:, V.sum(axis=0) > 0]
    model = st.MatrixFactorization(4, loss="kl", epochs=150, random_state=0).fit(sp.csr_matrix(V))
    losses = np.array(model.history_.column("loss")) * V.size
    assert (np.diff(losses) < 1e-4 * losses[0]).all()
    peer = NMF(4, beta_loss="kullback-leibler", solver="mu", init="random", max_iter=600, tol=1e-6, random_state=0).fit(
        V
    )
    assert losses[-1] < 1.05 * peer.reconstruction_err_**2 / 2
    users, items = np.argsort(model.user_ids_), np.argsort(model.item_ids_)
    product = model.user_factors_[users] @ model.item_factors_[items].T
    assert product.sum() == pytest.approx(V.sum(), rel=1e-3)


def counts_of_topics(n_rows, n_columns, n_topics, seed):
    """Documents of few topics each, as counts of words."""
    rng = np.random.default_rng(seed)
    topics, shares = rng.dirichlet(np.full(n_columns, 0.05), n_topics), rng.dirichlet(np.full(n_topics, 0.1), n_rows)
    V = rng.poisson(100 * shares @ topics).astype(np.float64)
    return V[:, V.sum(axis=0) > 0]


@pytest.mark.parametrize("seed", range(3))
def test_kl_from_groups_of_rows_ends_within_one_percent_of_scikit_learn(seed):
    from sklearn.decomposition import NMF

    V = counts_of_topics(400, 300, 8, seed)
    model = st.MatrixFactorization(8, loss="kl", epochs=40, random_state=seed).fit(sp.csr_matrix(V))
    losses = np.array(model.history_.column("loss")) * V.size
    peer = NMF(8, beta_loss="kullback-leibler", solver="mu", init="nndsvda", max_iter=80, tol=0, random_state=0).fit(V)
    assert losses[-1] < 1.01 * peer.reconstruction_err_**2 / 2


def test_kl_begins_with_the_rows_totals_and_leans_on_their_groups():
    from steepest.data.chunk import Chunk
    from steepest.learners.factors.kl_start import group_rows, lean_on_groups

    V = np.zeros((12, 9))
    for group in range(3):  # three kinds of rows that share no column
        V[4 * group : 4 * group + 4, 3 * group : 3 * group + 3] = np.random.default_rng(group).integers(3, 9, (4, 3))
    matrix = sp.csr_matrix(V)
    rows = Chunk(matrix.indptr.astype(np.int64), matrix.indices.astype(np.int32), matrix.data.astype(np.float32), 9)
    groups = group_rows(rows, 3, 0, 1)
    assert [len(set(groups[4 * g : 4 * g + 4])) for g in range(3)] == [1, 1, 1]
    assert len(set(groups)) == 3
    users, items = np.ones((12, 3), np.float32), np.ones((9, 3), np.float32)
    lean_on_groups(rows, groups, users, items)
    np.testing.assert_allclose((users @ items.T).sum(axis=1), V.sum(axis=1), rtol=1e-5)
    assert users.mean() == pytest.approx(items.mean(), rel=1e-5)
    assert (users.argmax(axis=1) == groups).all()
    assert (items.argmax(axis=1) == groups[::4].repeat(3)).all()


@pytest.mark.parametrize("kind", ["fewer rows than factors", "equal rows", "a row and a column of zeros"])
def test_kl_starts_from_any_counts(kind):
    V = counts_of_topics(30, 20, 3, 0)
    if kind == "fewer rows than factors":
        V = V[:4]
    elif kind == "equal rows":
        V = np.repeat(V[:2], 10, axis=0)
    else:
        V[3], V[:, 4] = 0, 0
    cells = np.argwhere(np.ones_like(V))
    model = st.MatrixFactorization(6, loss="kl", epochs=100, random_state=0).fit(cells, V.ravel())
    losses = np.array(model.history_.column("loss"))
    assert np.isfinite(model.user_factors_).all()
    assert np.isfinite(model.item_factors_).all()
    assert (np.diff(losses) < 1e-4 * losses[0]).all()
    if kind != "a row and a column of zeros":  # as many factors as kinds of rows: the fit is exact
        assert np.abs(model.user_factors_ @ model.item_factors_.T - V).max() < 0.05 * V.max()


def test_matrices_sparse_and_dense():
    rng = np.random.default_rng(0)
    V = rng.random((40, 3)) @ rng.random((3, 30))
    V[rng.random(V.shape) < 0.2] = np.nan
    dense = st.MatrixFactorization(3, biases=False, alpha=1e-4, epochs=200, random_state=0).fit(V)
    known = ~np.isnan(V)
    pairs = np.argwhere(known)
    assert rmse(dense, pairs, V[known]) < 0.05
    sparse = st.MatrixFactorization(3, biases=False, alpha=1e-4, epochs=200, random_state=0)
    sparse.fit(sp.csr_matrix((V[known], (pairs[:, 0], pairs[:, 1]))))
    assert bits(sparse) == bits(dense)


def test_row_weights_count(small):
    X, y, _, _ = small
    weight = np.where(np.arange(len(y)) % 2 == 0, 1.0, 0.0)
    half = weight > 0
    for options in ({"solver": "als"}, {}):
        model = st.MatrixFactorization(4, random_state=0, **options).fit(X, y, sample_weight=weight)
        assert rmse(model, X[half], y[half]) < rmse(model, X[~half], y[~half])


# ------------------------------------------------------------------------------------------------------------ files


@pytest.mark.parametrize("options", [{}, {"loss": "implicit"}, {"dtype": "float16"}, {"solver": "lbfgs"}], ids=str)
def test_a_loaded_model_knows_its_ids_and_recommends_alike(small, tmp_path, options):
    X, y, _X_test, _ = small
    names = np.array([f"u{n}" for n in range(X[:, 0].max() + 1)])[X[:, 0]]
    pairs = list(zip(names.tolist(), X[:, 1].tolist(), strict=True))
    model = st.MatrixFactorization(**{"n_factors": 6, "epochs": 2, "random_state": 0, **options}).fit(pairs, y)
    model.save(tmp_path / "m.steepest")
    twin = st.load(tmp_path / "m.steepest")
    assert (twin.predict(pairs[:50]) == model.predict(pairs[:50])).all()
    assert list(twin.recommend(["u1", "new"], 4)) == list(model.recommend(["u1", "new"], 4))
    if options.get("solver") != "lbfgs":
        more = [("u1", 3), ("new", 4), ("new", 10**9)]
        for one in (model, twin):
            one.partial_fit(more, [5, 1, 2])
        assert bits(twin) == bits(model)
        assert "new" in twin.user_ids_


def test_half_precision_halves_the_factors(ratings, tmp_path):
    X, y, X_test, y_test = ratings
    sizes, errors = [], []
    for dtype in ("float32", "float16"):
        model = st.MatrixFactorization(128, dtype=dtype, epochs=3, random_state=0).fit(X, y)
        model.save(tmp_path / dtype)
        sizes.append((tmp_path / dtype).stat().st_size)
        errors.append(rmse(st.load(tmp_path / dtype), X_test, y_test))
    assert sizes[1] < 0.75 * sizes[0]
    assert errors[1] == pytest.approx(errors[0], abs=1e-3)


def test_overflow_goes_back_with_a_smaller_step(small):
    X, y, _, _ = small
    model = st.MatrixFactorization(8, schedule="bold", eta0=1e4, epochs=3, random_state=0).fit(X, y)
    assert any("overflowed" in event for event in model.history_.events)
    assert np.isfinite(model.predict(X)).all()


def test_early_stopping_keeps_the_best(small):
    X, y, _, _ = small
    model = st.MatrixFactorization(32, alpha=0.0, epochs=60, early_stopping=True, random_state=0).fit(X, y)
    losses = model.history_.column("holdout_loss")
    assert model.n_iter_ < 60
    assert min(losses) < losses[-1]


def test_clone_and_parameters():
    model = st.MatrixFactorization(5, loss="kl", epochs=2)
    assert clone(model).get_params() == model.get_params()
    assert repr(model) == "MatrixFactorization(n_factors=5, loss='kl', epochs=2)"
    with pytest.raises(ValueError, match="not fitted"):
        model.predict([(1, 2)])
    assert not hasattr(model, "user_factors_")


# ----------------------------------------------------------------------------------------------------------------- use


def test_unknown_ids_fall_back_to_means_and_are_told(small):
    X, y, _, _ = small
    model = st.MatrixFactorization(4, random_state=0, clip=False).fit(X, y)
    user, item = X[0]
    predicted, cold = model.predict([(user, item), (user, -1), (-1, item), (-1, -1)], return_cold=True)
    assert cold.tolist() == [False, True, True, True]
    u, i = np.flatnonzero(model.user_ids_ == user)[0], np.flatnonzero(model.item_ids_ == item)[0]
    expected = [model.mean_ + model.user_biases_[u], model.mean_ + model.item_biases_[i], model.mean_]
    np.testing.assert_allclose(predicted[1:], expected, rtol=1e-5)
    found = model.recommend([user, "nobody"], 3)
    assert found.cold.tolist() == [False, True]
    best = model.item_ids_[np.argsort(-model.item_biases_, kind="stable")[:3]]
    assert [item for item, _ in found[1]] == best.tolist()


def test_printed_recommendations_show_users_and_items_in_short(small):
    X, y, _, _ = small
    model = st.MatrixFactorization(4, random_state=0, epochs=2).fit(X, y)
    found = model.recommend([int(X[0, 0]), "stranger"], 7)
    lines = repr(found).splitlines()
    assert lines[0] == "<2 ranked lists"
    item, score = found[0][0]
    assert lines[1].startswith(f"  {X[0, 0]}: {item} {score:.4g}, ")
    assert lines[1].endswith(", ... 2 more")
    assert lines[2].startswith("  'stranger' (cold): ")
    many = repr(model.recommend(np.arange(20), 2))
    assert many.endswith("\n  ... and 15 more>")
    assert len(many.splitlines()) == 7
    assert repr(model.recommend([int(X[0, 0])], filter=[])).endswith(": nothing>")
    long = st.MatrixFactorization(2, epochs=1).fit([("u" * 200, "i"), ("v", "j")], [1, 2]).recommend("u" * 200)
    assert len(repr(long)) < 100


def test_recommendations_are_the_best_unseen_items(small):
    X, y, _, _ = small
    model = st.MatrixFactorization(4, random_state=0, clip=False).fit(X, y)
    user = int(X[0, 0])
    seen = set(X[X[:, 0] == user, 1].tolist())
    scores = {int(item): model.predict([(user, item)])[0] for item in model.item_ids_}
    unseen = sorted((item for item in scores if item not in seen), key=lambda item: -scores[item])
    found = model.recommend(user, 5)[0]
    assert [item for item, _ in found] == unseen[:5]
    np.testing.assert_allclose([score for _, score in found], [scores[item] for item in unseen[:5]], rtol=1e-4)
    everything = model.recommend(user, 10**6, exclude_seen=False)[0]
    assert len(everything) == len(model.item_ids_)
    assert len(model.recommend(user, 10**6)[0]) == len(unseen)
    allowed = unseen[3:9]
    for wish in (allowed, lambda item: item in allowed, np.isin(model.item_ids_, allowed)):
        assert [item for item, _ in model.recommend(user, 10, filter=wish)[0]] == allowed
    assert model.recommend([user], 3).items.tolist() == [unseen[:3]]


def test_neighbours_point_in_the_same_direction():
    model = st.MatrixFactorization(8, loss="implicit", random_state=0).fit(planted_clicks())
    for item, pairs in model.similar_items([7, 8], 5):
        assert np.mean([other % 5 == item % 5 for other, _ in pairs]) >= 0.8
        assert item not in [other for other, _ in pairs]
        assert all(-1.0001 <= cosine <= 1.0001 for _, cosine in pairs)
    assert np.mean([other % 5 == 3 for other, _ in model.similar_users(3, 10)[0]]) >= 0.8
    with pytest.raises(st.DataError, match=r"the item 999 was not seen in training"):
        model.similar_items(999)


@pytest.mark.parametrize("options", [{"loss": "implicit"}, {"loss": "bpr"}, {"loss": "kl"}], ids=str)
def test_a_new_user_is_folded_in_without_changing_the_items(options):
    X = planted_clicks()
    model = st.MatrixFactorization(8, random_state=0, **options).fit(X, np.ones(len(X)))
    before = model.item_factors_.copy()
    model.fold_in([("me", item) for item in (3, 8, 13, 18, 23, 28)], np.ones(6))
    assert (model.item_factors_ == before).all()
    found = [item for item, _ in model.recommend("me", 10)[0]]
    assert np.mean([item % 5 == 3 for item in found]) >= 0.7
    assert not {3, 8, 13} & set(found)


def test_folding_in_ratings_is_the_least_squares_row(small):
    X, y, _, _ = small
    model = st.MatrixFactorization(4, solver="als", epochs=50, random_state=0).fit(X, y)
    user = int(X[0, 0])
    mine = X[:, 0] == user
    model.fold_in([("twin", int(item)) for item in X[mine, 1]], y[mine])
    pairs = [(user, int(item)) for item in model.item_ids_[:50]]
    twins = [("twin", item) for _, item in pairs]
    np.testing.assert_allclose(model.predict(twins), model.predict(pairs), atol=0.02)
    model.fold_in([(int(u), "new item") for u in X[:9, 0]], np.full(9, 5.0), side="items")
    assert model.predict([(user, "new item")])[0] > model.mean_


def test_explanations_add_up():
    X = planted_clicks()
    implicit = st.MatrixFactorization(8, loss="implicit", epochs=40, random_state=0).fit(X)
    item, score = implicit.recommend(4, 1)[0][0]
    parts = implicit.explain(4, item, k=1000)
    # The items moved a little after the last user step.
    assert sum(share for _, share in parts) == pytest.approx(score, abs=0.02)
    assert parts[0][0] % 5 == 4
    with pytest.raises(st.ParameterError, match="needs least squares"):
        st.MatrixFactorization(4, random_state=0).fit(X, np.ones(len(X))).explain(4, item)


def test_strata_can_be_run_by_others(ratings):
    X, y, _, _ = ratings
    model = st.MatrixFactorization(8, n_blocks=3, random_state=0)
    strata = model.strata(X, y)
    assert strata.d == 3
    assert sum(len(range(*b.entries.indices(len(y)))) for s in strata.sub_epochs(0) for b in s) == len(y)


# --------------------------------------------------------------------------------------------------- metrics and splits


def test_ranking_metrics_by_hand():
    metrics = RankingMetrics(4)
    metrics.add(np.array([1, 2, 3, -1]), np.array([1, 3, 9]))
    metrics.add(np.array([5, 6, 7, 8]), np.array([], np.int64))  # nothing to find: left out
    result = metrics.result()
    ideal = 1 + 1 / np.log2(3) + 1 / 2
    assert result["users"] == 1
    assert result["precision@4"] == 0.5
    assert result["recall@4"] == pytest.approx(2 / 3)
    assert result["ndcg@4"] == pytest.approx((1 + 1 / 2) / ideal)
    assert result["map@4"] == pytest.approx((1 + 2 / 3) / 3)
    metrics.add_scores(np.array([0.9, 0.1, 0.5, 0.5]), np.array([0, 2]), excluded=None)
    assert metrics.result()["auc"] == pytest.approx((2 + 1.5) / 4)


def test_leave_k_out_keeps_pairs_apart_and_time_splits_look_forward_only():
    rng = np.random.default_rng(0)
    users, items, time = rng.integers(0, 30, 900), rng.integers(0, 40, 900), rng.random(900)
    source = st.from_ratings(users, items, np.ones(900), time=time)
    train, test = (next(iter(part)) for part in leave_k_out(source, 2))
    assert not set(zip(train.users, train.items, strict=True)) & set(zip(test.users, test.items, strict=True))
    for user in range(30):
        assert len(set(test.items[test.users == user])) == 2
    assert train.n_rows + test.n_rows == 900
    train, test = (next(iter(part)) for part in leave_k_out(source, 1, latest=True))
    for user in range(30):
        assert test.time[test.users == user].max() >= train.time[train.users == user].max()
    train, test = (next(iter(part)) for part in split_by_time(source, 0.2))
    assert train.time.max() < test.time.min()
    assert test.n_rows == pytest.approx(180, abs=3)
    with pytest.raises(st.DataError, match="test part empty"):
        leave_k_out(source, 500)
    with pytest.raises(st.DataError, match="have none"):
        split_by_time(st.from_ratings(users, items), 0.2)


# ----------------------------------------------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("X", "y", "message"),
    [
        ([("a", 1), (None, 2)], [1, 2], "user of row 1 is None"),
        ([("a", 1), ("b", float("nan"))], [1, 2], "item of row 1 is nan"),
        (np.array([[1.0, np.nan]]), [1], "item of row 0 is nan"),
        ([("a", 1)], ["good"], "rating of row 0 is 'good'"),
        ([("a", 1)], [np.inf], "rating of row 0 is inf"),
        ([("a", 1)], [1, 2], "one rating per pair"),
        ([("a", 1, 2)], [1], "pairs of user and item"),
        (["ab"], [1], "pairs of user and item"),
        (np.zeros((3, 4)), [1, 2, 3], "two columns"),
        ([("a", [1])], [1], "cannot be an id"),
        (np.zeros((0, 2)), [], "no ratings"),
    ],
)
def test_bad_pairs_are_told_in_one_sentence(X, y, message):
    with pytest.raises(st.DataError, match=message) as error:
        st.MatrixFactorization(2, random_state=0).fit(X, y)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"loss": "squered"}, "loss='squered' is unknown"),
        ({"n_factors": 0}, "n_factors=0"),
        ({"alpha": -1}, "alpha=-1"),
        ({"solver": "als", "loss": "bpr"}, "cannot learn loss='bpr'"),
        ({"solver": "lbfgs", "nonnegative": True}, "does not support nonnegative"),
        ({"loss": "kl", "alpha": 0.1}, "no meaning for loss='kl'"),
        ({"l1": 1.0, "solver": "als"}, "l1=1.0 needs"),
        ({"epochs": 0}, "epochs=0"),
        ({"dtype": "int8"}, "dtype='int8'"),
        ({"random_state": "x"}, "not a seed"),
    ],
)
def test_bad_parameters_are_told(options, message):
    with pytest.raises(st.ParameterError, match=message):
        st.MatrixFactorization(**{"random_state": 0, **options}).fit([(1, 2), (2, 1)], [1, 2])


def test_bad_values_are_told():
    X = [(1, 2), (2, 1)]
    for loss in ("kl", "implicit"):
        with pytest.raises(st.DataError, match="is for counts, but a value is -1"):
            st.MatrixFactorization(2, loss=loss).fit(X, [1, -1])
    with pytest.raises(st.DataError, match="needs ratings 0 and 1"):
        st.MatrixFactorization(2, loss="logistic").fit(X, [1, 5])
    with pytest.raises(st.DataError, match="cannot reach a value of -1"):
        st.MatrixFactorization(2, nonnegative=True).fit(X, [1, -1])
    with pytest.raises(st.ParameterError, match="k=0"):
        st.MatrixFactorization(2).fit(X, [1, 2]).recommend(1, 0)


def test_one_rating_and_equal_ratings_are_learned():
    assert st.MatrixFactorization(2, random_state=0).fit([("a", "b")], [4]).predict([("a", "b")])[0] == pytest.approx(4)
    X = [(u, i) for u in range(5) for i in range(5)]
    assert st.MatrixFactorization(2, random_state=0).fit(X, [3] * 25).predict(X) == pytest.approx(3)


def test_duplicates_count_twice_and_add_up_for_counts():
    X = [(0, 0), (0, 1), (1, 0), (1, 1), (0, 0)]
    twice = st.MatrixFactorization(2, loss="implicit", confidence=2.0, random_state=0).fit(X, [1, 1, 1, 1, 1])
    merged = st.MatrixFactorization(2, loss="implicit", confidence=2.0, random_state=0).fit(X[:4], [2, 1, 1, 1])
    np.testing.assert_allclose(twice.predict(X[:4]), merged.predict(X[:4]), rtol=1e-5)
    assert np.isfinite(st.MatrixFactorization(2, random_state=0).fit(X, [1, 2, 3, 4, 5]).predict(X)).all()


# ----------------------------------------------------------------------------------------------------------------- cli


def test_the_command_line_from_ratings_to_recommendations(small, tmp_path, capsys):
    X, y, X_test, y_test = small
    data, test, pairs = tmp_path / "r.csv", tmp_path / "test.csv", tmp_path / "pairs.tsv"
    rows = [f"{u},{i},{r}" for (u, i), r in zip(X, y, strict=True)]
    data.write_text("user,item,rating\n" + "\n".join(rows) + "\n")
    test.write_text("user,item,rating\n" + "\n".join(f"{u},{i},{r}" for (u, i), r in zip(X_test, y_test, strict=True)))
    pairs.write_text("".join(f"{u}\t{i}\n" for u, i in X_test[:5]))
    model = str(tmp_path / "m.steepest")
    assert cli.main(["train", str(data), "-m", model, "--task", "rate", "--n-factors", "4", "--epochs", "3"]) == 0
    capsys.readouterr()
    same = st.MatrixFactorization(4, epochs=3, random_state=0).fit(X, y)
    assert cli.main(["predict", model, str(pairs)]) == 0
    printed = [float(line) for line in capsys.readouterr().out.split()]
    assert printed == same.predict(X_test[:5]).tolist()
    assert cli.main(["evaluate", model, str(test), "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["rmse"] == pytest.approx(rmse(same, X_test, y_test))
    assert {"rows", "loss", "mae", "cold"} <= set(result)
    user = str(X[0, 0])
    assert cli.main(["recommend", model, "--user", user, "--user", "stranger", "-k", "2"]) == 0
    out = capsys.readouterr()
    expected = same.recommend(int(user), 2)[0]
    assert out.out.splitlines()[:2] == [f"{user}\t{item}\t{score:.5f}" for item, score in expected]
    assert "'stranger' was not seen" in out.err
    assert cli.main(["inspect", model]) == 0
    assert "4 factors by sgd" in capsys.readouterr().out
    checkpointed = ["--checkpoint", str(tmp_path / "c"), "--resume", "--n-factors", "4", "--epochs", "3"]
    again = str(tmp_path / "again.steepest")
    assert cli.main(["train", str(data), "-m", again, "--task", "rate", *checkpointed]) == 0
    assert bits(st.load(again)) == bits(st.load(model))
    assert cli.main(["recommend", model]) == 2
    assert cli.main(["train", str(data), "-m", model, "--task", "rate", "--bits", "4"]) == 2
    assert cli.main(["train", str(data), "-m", model, "--task", "rate", "--penalty", "l1"]) == 2


# ----------------------------------------------------------------------------------------------------------- real data


def test_defaults_reach_the_known_error_on_movielens(shared_data):
    chunk = gather(st.scan_ratings(shared_data / "movielens-100k" / "u.data.gz"))
    X, y = np.column_stack([chunk.users, chunk.items]), chunk.y
    assert len(y) == 100_000
    order = np.random.default_rng(0).permutation(len(y))
    errors = []
    for fold in range(5):
        test = order[fold::5]
        train = np.setdiff1d(order, test)
        model = st.MatrixFactorization(random_state=0).fit(X[train], y[train])
        errors.append(rmse(model, X[test], y[test]))
    assert np.mean(errors) <= 0.91
    train, test = order[:90_000], order[90_000:]
    assert rmse(st.MatrixFactorization(random_state=0).fit(X[train], y[train]), X[test], y[test]) <= 0.905


def test_text_ids_with_quotes_and_leading_zeros(shared_data):
    with gzip.open(shared_data / "book-crossing" / "BX-Book-Ratings.tsv.gz", "rt") as lines:
        n_lines = sum(1 for _ in lines) - 1
    source = st.scan_ratings(shared_data / "book-crossing" / "BX-Book-Ratings.tsv.gz")
    chunks = list(source)
    assert sum(chunk.n_rows for chunk in chunks) == n_lines
    assert chunks[0].items.dtype.kind == "U"
    assert chunks[0].users.dtype.kind == "i"


def test_frames_and_lists_are_read_alike(small):
    X, y, _, _ = small
    frame = pd.DataFrame({"movieId": X[:, 1], "userId": X[:, 0], "rating": y})
    plain = st.MatrixFactorization(4, epochs=2, random_state=0).fit(X, y)
    for model in (
        st.MatrixFactorization(4, epochs=2, random_state=0).fit(frame),
        st.MatrixFactorization(4, epochs=2, random_state=0).fit(frame[["userId", "movieId"]], y),
        st.MatrixFactorization(4, epochs=2, random_state=0).fit(X.tolist(), y.tolist()),
        st.MatrixFactorization(4, epochs=2, random_state=0).fit_stream(st.scan_ratings(frame)),
    ):
        assert bits(model) == bits(plain)
    assert (plain.predict(frame[["userId", "movieId"]]) == plain.predict(X)).all()


def test_a_rating_beyond_all_measure_is_refused_and_leaves_no_trace(small):
    X, y, _, _ = small
    model = st.MatrixFactorization(8, random_state=0).fit(X, y)
    before, n_users, eta = model.predict(X), len(model.user_ids_), model.learner_.eta
    with pytest.raises(st.DataError, match=r"1e\+29 is more than"):
        model.partial_fit([(X[0][0], X[0][1]), (10**9, 10**9)], [3.0, 1e29])
    np.testing.assert_array_equal(model.predict(X), before)
    assert (len(model.user_ids_), model.learner_.eta) == (n_users, eta)
