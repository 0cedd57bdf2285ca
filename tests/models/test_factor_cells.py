"""Factor models over cells: zeros that count, weights as copies, empty rows, threads without locks, ranked lists."""

from __future__ import annotations

import sys

import numpy as np
import pytest
import scipy.sparse as sp

import steepest as st
from steepest import kernels
from steepest.data.entries import Entries, gather
from steepest.data.ids import IdBook
from steepest.kernels.reference import factors as reference
from steepest.learners.factors.sampled_zeros import SampledZeros
from steepest.learners.losses import get_loss


def sparse_matrix(n=120, m=80, seed=0) -> np.ndarray:
    """Few cells above zero, of low rank but for the cut; row 7 and column 9 are empty."""
    rng = np.random.default_rng(seed)
    sides = [rng.gamma(0.5, 1, (size, 4)) * (rng.random((size, 4)) < 0.5) for size in (n, m)]
    dense = sides[0] @ sides[1].T
    dense[dense < 0.7] = 0
    dense[7] = dense[:, 9] = 0
    return dense


def ratings(n=3000, seed=3):
    rng = np.random.default_rng(seed)
    users, items = rng.integers(0, 90, n), rng.integers(0, 60, n)
    score = (rng.standard_normal((90, 3))[users] * rng.standard_normal((60, 3))[items]).sum(axis=1)
    return np.column_stack([users, items]), np.clip(np.round(3 + score), 1, 5)


# ------------------------------------------------------------------------------------ zeros that count


def ridges(model, n, m) -> tuple[float, float]:
    """The ridges of users and of items, in the units of learning."""
    more = {"mixed": 100, "count": 0, "none": 0}[model.weighting]
    return model.alpha_ * (m + more), model.alpha_ * (n + more)


def objective(model, dense: np.ndarray) -> float:
    """Half the squares of all cells and the penalties, computed from the factors alone."""
    n, m = dense.shape
    scale = np.sqrt((dense**2).mean())
    p, q = (f.astype(float) / np.sqrt(scale) for f in (model.user_factors_, model.item_factors_))
    of_users, of_items = ridges(model, n, m)
    squares = ((dense / scale - p @ q.T) ** 2).sum()
    return 0.5 * (squares + of_users * (p**2).sum() + of_items * (q**2).sum())


def least_objective(model, dense: np.ndarray) -> float:
    """The minimum, by the singular values: each one shrinks by the geometric mean of the ridges."""
    n, m = dense.shape
    shrink = np.sqrt(np.prod(ridges(model, n, m)))
    values = np.linalg.svd(dense / np.sqrt((dense**2).mean()), compute_uv=False)
    kept = np.maximum(values[: model.n_factors] - shrink, 0)
    left = values.copy()
    left[: model.n_factors] -= kept
    return 0.5 * (left**2).sum() + shrink * kept.sum()


@pytest.mark.independent
@pytest.mark.parametrize("weighting", ["mixed", "count", "none"])
@pytest.mark.parametrize("n_factors", [3, 30])
def test_als_over_all_cells_reaches_the_minimum_that_singular_values_give(weighting, n_factors):
    dense = sparse_matrix()
    model = st.MatrixFactorization(
        n_factors, loss="full", solver="als", weighting=weighting, epochs=200, random_state=0
    ).fit(sp.csr_matrix(dense))
    assert objective(model, dense) == pytest.approx(least_objective(model, dense), rel=2e-4)
    mean_loss = 0.5 * ((dense - model.user_factors_ @ model.item_factors_.T) ** 2).mean() / (dense**2).mean()
    assert model.history_.column("loss")[-1] == pytest.approx(mean_loss, rel=1e-3)


def test_sgd_over_all_cells_comes_near_the_minimum_for_any_number_of_threads():
    dense = sparse_matrix()
    fits = [
        st.MatrixFactorization(6, loss="full", epochs=150, random_state=0, n_jobs=jobs).fit(sp.csr_matrix(dense))
        for jobs in (1, 2)
    ]
    assert objective(fits[0], dense) < 1.1 * least_objective(fits[0], dense)
    np.testing.assert_array_equal(fits[0].user_factors_, fits[1].user_factors_)


def test_sampled_zeros_have_the_gradient_of_all_cells_on_average():
    dense = sparse_matrix(30, 20)
    cells = sp.coo_matrix(dense)
    entries = Entries(cells.row, cells.col, cells.data, None)
    sampler = SampledZeros(entries, 30, 20, seed=5)
    p = np.random.default_rng(1).standard_normal((30, 3))
    q = np.random.default_rng(2).standard_normal((20, 3))
    expected = (p @ q.T - dense) @ q
    total, rounds = np.zeros_like(expected), 400
    visits = np.zeros(30)
    for epoch in range(rounds):
        e = sampler.epoch(epoch)
        g = e.weights * ((p[e.users] * q[e.items]).sum(axis=1) - e.values)
        np.add.at(total, e.users, g[:, None] * q[e.items])
        visits += np.bincount(e.users, minlength=30)
    assert sampler.n_drawn < sampler.n_zeros  # else all zeros are visited
    assert np.abs(total / rounds - expected).max() < 0.05 * np.abs(expected).max()
    np.testing.assert_allclose(visits / rounds, sampler.visits()[0], rtol=0.05)
    zeros = e.values == 0
    assert (dense[e.users[zeros], e.items[zeros]] == 0).all()


def test_the_kernel_with_zeros_is_the_reference_over_all_cells():
    dense = sparse_matrix(40, 30).astype(np.float32)
    side, other = sp.csr_matrix(dense), np.zeros((30, 8), np.float32)
    other[:, :5] = np.random.default_rng(0).standard_normal((30, 5))
    ridge = np.full(40, 2.5, np.float32)
    solved, gram = np.zeros((40, 8), np.float32), np.empty((8, 8), np.float32)
    kernels.factor_gram(other, gram, 1)
    rows = kernels.FactorSide(
        side.indptr.astype(np.int64), side.indices.astype(np.int32), side.data, None, other, solved
    )
    for choices in (dict(), dict(cg_steps=20)):
        solved[:] = 0
        assert kernels.factor_als(rows, ridge, gram, kernels.AlsChoices(rank=5, zeros=True, **choices), 2) == 40
        cells = np.indices(dense.shape).reshape(2, -1)
        expected = reference.factor_als(
            np.arange(41) * 30, cells[1], dense.ravel(), None, other[:, :5].astype(float), ridge, -1, 0.0, False
        )
        np.testing.assert_allclose(solved[:, :5], expected, rtol=2e-4, atol=2e-4)


def test_full_loss_learns_more_folds_in_and_explains():
    dense = sparse_matrix()
    model = st.MatrixFactorization(5, loss="full", solver="als", epochs=60, random_state=0).fit(sp.csr_matrix(dense))
    seen = np.flatnonzero(dense[3])
    shares = dict(model.explain(3, int(seen[0]), k=100))
    assert sum(shares.values()) == pytest.approx(model.predict([(3, int(seen[0]))])[0], rel=0.02)
    pairs = [("new", int(item)) for item in seen]
    model.fold_in(pairs, dense[3, seen])
    np.testing.assert_allclose(model.user_factors_[-1], model.user_factors_[3], atol=0.02)
    model.partial_fit([("newer", int(item)) for item in seen], dense[3, seen])
    assert model.user_ids_.tolist()[-1] == "newer" or "newer" in model.user_ids_.tolist()
    by_sgd = st.MatrixFactorization(5, loss="full", epochs=3, random_state=0).fit(sp.csr_matrix(dense))
    assert by_sgd.partial_fit([(200, 3)], [1.0]).n_iter_ == 4


# ---------------------------------------------------------------------------------- weights are copies

EXACT = {
    "als": dict(solver="als"),
    "als-count": dict(solver="als", weighting="count"),
    "als-none": dict(solver="als", weighting="none"),
    "als-gradients": dict(solver="als", n_factors=48),
    "als-nonnegative": dict(solver="als", nonnegative=True),
    "implicit": dict(loss="implicit"),
    "kl": dict(loss="kl"),
    "full": dict(loss="full", solver="als"),
    "lbfgs": dict(solver="lbfgs", weighting="count"),
}


@pytest.mark.parametrize("name", EXACT)
@pytest.mark.parametrize("weights", ["copies", "zeros", "threes"])
def test_a_rating_of_weight_two_is_two_copies_and_of_zero_none(name, weights):
    pairs, y = ratings()
    weight = {
        "copies": np.random.default_rng(0).integers(0, 4, len(y)),
        "zeros": (np.arange(len(y)) % 3 > 0).astype(int),
        "threes": np.full(len(y), 3),
    }[weights]
    rows = np.repeat(np.arange(len(y)), weight)
    params = dict(n_factors=6, epochs=6, random_state=0) | EXACT[name]
    weighted = st.MatrixFactorization(**params).fit(pairs, y, sample_weight=weight)
    copies = st.MatrixFactorization(**params).fit(pairs[rows], y[rows])
    assert weighted.user_ids_.tolist() == copies.user_ids_.tolist()
    assert weighted.item_ids_.tolist() == copies.item_ids_.tolist()
    np.testing.assert_allclose(weighted.predict(pairs), copies.predict(pairs), rtol=2e-3, atol=2e-3)
    assert weighted.history_.column("loss")[-1] == pytest.approx(copies.history_.column("loss")[-1], rel=2e-3)
    np.testing.assert_array_equal(weighted.learner_.user_counts, copies.learner_.user_counts)
    assert [i for i, _ in weighted.recommend(pairs[0, 0], 5)[0]] == [i for i, _ in copies.recommend(pairs[0, 0], 5)[0]]


@pytest.mark.parametrize("loss", ["squared", "absolute", "bpr", "full"])
def test_weight_zero_is_absence_to_the_last_bit_under_sgd_too(loss):
    pairs, y = ratings()
    there = np.arange(len(y)) % 3 > 0
    weighted = st.MatrixFactorization(4, loss=loss, epochs=3, random_state=0).fit(pairs, y, sample_weight=there)
    without = st.MatrixFactorization(4, loss=loss, epochs=3, random_state=0).fit(pairs[there], y[there])
    np.testing.assert_array_equal(weighted.user_factors_, without.user_factors_)


# ------------------------------------------------------------------------------ rows keep their places


@pytest.mark.parametrize("loss", ["squared", "full", "implicit", "kl", "bpr"])
def test_empty_rows_and_columns_of_a_matrix_keep_their_places(loss, tmp_path):
    dense = sparse_matrix()
    for solver in ("sgd", "als") if loss in ("squared", "full") else ("sgd",):
        model = st.MatrixFactorization(4, loss=loss, solver=solver, epochs=5, random_state=0).fit(sp.csr_matrix(dense))
        assert (model.user_factors_ @ model.item_factors_.T).shape == dense.shape
        assert model.user_ids_.tolist() == list(range(120))
        assert model.item_ids_.tolist() == list(range(80))
        assert np.isfinite(model.user_factors_).all()
        assert np.abs(model.user_factors_[7]).max() < 0.1
        listed = model.recommend([7, 3], 5)
        assert listed.cold.tolist() == [True, False]  # nothing is known of an empty row
        model.save(tmp_path / "model")
        again = st.load(tmp_path / "model")
        assert again.recommend([7], 5).codes.tolist() == listed.codes[:1].tolist()


def test_early_stopping_on_a_matrix_keeps_places_too():
    model = st.MatrixFactorization(3, early_stopping=True, epochs=4, random_state=0).fit(sp.csr_matrix(sparse_matrix()))
    assert len(model.user_ids_) == 120
    assert len(model.item_ids_) == 80


# --------------------------------------------------------------------------------------------- hogwild


def test_hogwild_with_one_thread_is_plain_sgd_as_the_reference_has_it():
    pairs, y = ratings(700)
    model = st.MatrixFactorization(5, parallel="hogwild", epochs=2, random_state=4)
    strata = model.strata(pairs, y)  # one block, shuffled
    assert strata.d == 1
    model.fit(pairs, y)
    learner = model.learner_
    fresh = st.MatrixFactorization(5, parallel="hogwild", epochs=2, random_state=4)
    start = type(learner)(fresh.settings_for(None))
    users, items = IdBook(), IdBook()
    start.prepare(gather(fresh.source_of(pairs, y), users, items), len(users), len(items))
    start.set_shrinkage()
    tables = [table.astype(np.float64) for table in (start.users, start.items)]
    choices = dict(
        loss=get_loss("squared"), mean=0.0, eta=start.eta, l2=start.settings.alpha, l2_bias=start.settings.alpha,
        l1=0.0, rank=5, adaptive=True, biases=True, nonnegative=False,
    )  # fmt: skip
    codes = [np.argsort(places)[rows] for places, rows in
             ((strata.user_places, strata.users), (strata.item_places, strata.items))]  # fmt: skip
    for _ in range(2):  # 700 entries are one piece
        reference.factor_sgd(*codes, strata.values, None, tuple(tables), choices)
    np.testing.assert_allclose(learner.users[:, :5], tables[0][:, :5], rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(learner.items[:, 8], tables[1][:, 8], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("loss", ["squared", "bpr", "full"])
def test_hogwild_by_threads_learns_as_well_as_strata(loss):
    pairs, y = ratings(12_000)
    how = dict(n_factors=4, loss=loss, epochs=8, random_state=0)
    strata = st.MatrixFactorization(**how).fit(pairs, y)
    hogwild = st.MatrixFactorization(parallel="hogwild", n_jobs=2, **how).fit(pairs, y)
    alone = [st.MatrixFactorization(parallel="hogwild", **how).fit(pairs, y).user_factors_ for _ in range(2)]
    np.testing.assert_array_equal(*alone)
    last = [model.history_.column("loss")[-1] for model in (strata, hogwild)]
    assert last[1] < 1.15 * last[0]


def test_hogwild_is_refused_where_nothing_is_sampled():
    with pytest.raises(st.ParameterError, match=r"hogwild.*solver='als'"):
        st.MatrixFactorization(parallel="hogwild", solver="als").fit(*ratings())


# -------------------------------------------------------------------------------------------- clipping


@pytest.mark.parametrize("biases", [True, False])
def test_scores_of_recommendations_stay_in_the_range_of_the_ratings(biases):
    pairs, y = ratings()
    how = dict(n_factors=8, alpha=1e-4, biases=biases, epochs=20, random_state=0)
    raw = st.MatrixFactorization(clip=False, **how).fit(pairs, y).recommend(range(90), 5)
    clipped = st.MatrixFactorization(**how).fit(pairs, y).recommend(range(90), 5)
    assert raw.scores.max() > 5
    assert clipped.scores.max() == 5
    np.testing.assert_array_equal(clipped.codes, raw.codes)
    np.testing.assert_array_equal(clipped.scores, np.clip(raw.scores, 1, 5))


# ---------------------------------------------------------------------------------------- ranked lists


@pytest.mark.parametrize("loss", ["implicit", "bpr"])
def test_evaluation_of_ranking_losses_gives_ranking_measures(loss):
    pairs, _ = ratings()
    pairs = np.unique(pairs, axis=0)
    held = np.random.default_rng(0).random(len(pairs)) < 0.2
    model = st.MatrixFactorization(6, loss=loss, epochs=5, random_state=0).fit(pairs[~held])
    found = model.evaluate_stream(st.from_ratings(*pairs[held].T), k=7)
    assert "rmse" not in found
    assert "r2" not in found
    scores = model.user_factors_ @ model.item_factors_.T + model.item_biases_
    user_at = {user: row for row, user in enumerate(model.user_ids_.tolist())}
    item_at = {item: row for row, item in enumerate(model.item_ids_.tolist())}
    precision, recall, gains, auc = [], [], [], []
    for user in np.unique(pairs[held][:, 0]):
        relevant = [item_at[i] for i in pairs[held & (pairs[:, 0] == user), 1]]
        trained = [item_at[i] for i in pairs[~held & (pairs[:, 0] == user), 1]]
        row = scores[user_at[user]].astype(float).copy()
        row[trained] = -np.inf
        best = np.argsort(-row, kind="stable")[:7]
        hits = np.isin(best, relevant)
        precision.append(hits.mean())
        recall.append(hits.sum() / len(relevant))
        places = 1 / np.log2(np.arange(2, 9))
        gains.append((hits * places).sum() / places[: len(relevant)].sum())
        others = [j for j in range(len(row)) if j not in trained and j not in relevant]
        auc.append(np.mean([[row[i] > row[j] for j in others] for i in relevant]))
    for name, values in {"precision@7": precision, "recall@7": recall, "ndcg@7": gains, "auc": auc}.items():
        assert found[name] == pytest.approx(np.mean(values), abs=1e-6), name
    assert found["rows"] == held.sum()
    assert found["cold"] == 0
    assert found["auc"] > 0.4
    assert np.isfinite(found["loss"])


def test_pairs_of_training_can_be_measured_as_well():
    pairs = np.unique(ratings()[0], axis=0)
    model = st.MatrixFactorization(8, loss="bpr", epochs=20, random_state=0).fit(pairs)
    found = model.evaluate_stream(st.from_ratings(*pairs.T))
    assert found["users"] == 90
    assert found["auc"] > 0.6
    cold = model.evaluate_stream(st.from_ratings([1, 1000], [pairs[0, 1], 2000]))
    assert cold["cold"] == 1


# ---------------------------------------------------------------------------------------- interruption


def test_a_fit_that_is_interrupted_anywhere_leaves_a_model_or_a_clear_error():
    from sklearn.exceptions import NotFittedError

    pairs, y = ratings(300)
    at, done = 1, False
    while not done:
        model, lines = st.MatrixFactorization(3, epochs=1, random_state=0), 0

        def trace(frame, event, argument, at=at):
            nonlocal lines
            if event == "line" and frame.f_code.co_filename.endswith("factorization.py"):
                lines += 1
                if lines == at:
                    raise KeyboardInterrupt
            return trace

        sys.settrace(trace)
        try:
            model.fit(pairs, y)
            done = True
        except KeyboardInterrupt:
            pass
        finally:
            sys.settrace(None)
        try:
            assert np.isfinite(model.predict(pairs[:5])).all()
            assert model.history_ is not None
        except NotFittedError as error:
            assert "call fit before using it" in str(error)  # noqa: PT017
        at += 1
    assert at > 30
