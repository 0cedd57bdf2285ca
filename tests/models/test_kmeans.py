"""k-means: kernels against their NumPy definitions, solvers, and the ways it is used."""

from __future__ import annotations

import gzip
import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st_
from sklearn.cluster import KMeans as ScikitKMeans

import steepest as st
from steepest import cli, kernels
from steepest.data.chunk import compact
from steepest.kernels.reference import kmeans as reference
from steepest.learners.kmeans.centres import Centres
from steepest.learners.kmeans.kmeans_start import choose_rows
from steepest.learners.kmeans.lloyd import Lloyd
from steepest.learners.kmeans.minibatch import KMeansLearner, KMeansSettings, cluster_rows

GOLDEN = Path(__file__).parents[1] / "golden"


def blobs(n=900, d=12, k=5, spread=4.0, seed=0):
    rng = np.random.default_rng(seed)
    centres = spread * rng.standard_normal((k, d))
    y = rng.integers(0, k, n)
    return (centres[y] + rng.standard_normal((n, d))).astype(np.float32), y


def topics(n=1200, d=400, k=6, seed=0):
    """Sparse unit rows, each from one of k topics."""
    rng = np.random.default_rng(seed)
    chances = rng.dirichlet(np.full(d, 0.03), k)
    y = rng.integers(0, k, n)
    X = sp.csr_matrix(np.array([rng.multinomial(20, chances[c]) for c in y], np.float32))
    return sp.csr_matrix(X.multiply(1 / np.sqrt(X.multiply(X).sum(axis=1)))).astype(np.float32), y


def data(kind, **options):
    return blobs(**options)[0] if kind == "dense" else topics(**options)[0]


def as_dense(X):
    return X.toarray() if sp.issparse(X) else X


def same_bits(a, b):
    np.testing.assert_array_equal(a.cluster_centers_, b.cluster_centers_)
    np.testing.assert_array_equal(a.counts_, b.counts_)


# ------------------------------------------------------------------------------------------------------------ kernels


@pytest.mark.parametrize("kind", ["dense", "sparse"])
@pytest.mark.parametrize("k", [1, 3, 8, 10, 17, 24, 33, 41, 50, 57, 64, 100])
@pytest.mark.parametrize("n_threads", [1, 3])
def test_nearest_and_distances_are_those_of_the_definition(kind, k, n_threads):
    X = data(kind)
    dense = as_dense(X)
    centres = dense[np.random.default_rng(1).choice(len(dense), k, replace=False)] * np.float32(0.9)
    chunk = st.from_arrays(X).block.visit(np.random.default_rng(2).permutation(len(dense))[:801])
    labels, squares = Centres.from_array(centres).nearest(chunk, n_threads)
    expected = reference.squares(dense[chunk.order], centres)
    np.testing.assert_allclose(Centres.from_array(centres).squares(chunk, n_threads), expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(squares, expected.min(axis=1), rtol=1e-5, atol=1e-5)
    chosen = expected[np.arange(len(labels)), labels]
    np.testing.assert_allclose(chosen, expected.min(axis=1), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_scaled_sums_are_centres(kind):
    X = data(kind)
    dense = as_dense(X)[:10]
    scale = np.linspace(0.1, 2, 10)
    plain = Centres.from_array((dense * scale[:, None]).astype(np.float32))
    scaled = Centres.from_array(dense)
    scaled = Centres.of(scaled.table, 10, scale)
    chunk = st.from_arrays(X).block
    np.testing.assert_allclose(scaled.squares(chunk), plain.squares(chunk), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("n_threads", [1, 4])
def test_added_rows_are_those_of_the_definition(n_threads):
    X, _ = topics(n=1500)
    rng = np.random.default_rng(0)
    weight, labels = rng.integers(0, 3, 1500).astype(float), rng.integers(0, 9, 1500).astype(np.int32)
    labels[labels == 7] = 6
    chunk = st.from_arrays(X, sample_weight=weight).block
    table = Centres.from_array(rng.standard_normal((9, X.shape[1])).astype(np.float32)).table
    before = table[:, :9].T.copy()
    counts, squares = np.array([0.0, 5, 5, 5, 5, 5, 0, 0, 5]), (before.astype(float) ** 2).sum(axis=1)
    sums, expected = reference.add(as_dense(X), weight, labels, before, counts)
    kernels.kmeans_add(chunk.as_rows(), labels, table, counts, squares, n_threads)
    np.testing.assert_array_equal(counts, expected)
    sums[7] = before[7]  # an unused cluster keeps its start
    np.testing.assert_allclose(table[:, :9].T, sums, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(squares, (table[:, :9].astype(float) ** 2).sum(axis=0), rtol=1e-10)


@pytest.mark.parametrize("kind", ["dense", "sparse"])
@pytest.mark.parametrize("weighted", [False, True])
def test_lloyd_is_that_of_the_definition(kind, weighted):
    X = data(kind)
    dense = as_dense(X)
    weight = np.random.default_rng(3).uniform(0.5, 2, len(dense)) if weighted else np.ones(len(dense))
    start = dense[:5]
    model = st.KMeans(5, init=start, solver="lloyd", tol=None).fit(X, sample_weight=weight if weighted else None)
    centres, labels, inertia = reference.lloyd(dense, weight, start, 300)
    np.testing.assert_array_equal(model.labels_, labels)
    np.testing.assert_allclose(model.cluster_centers_, centres, rtol=1e-5, atol=1e-6)
    assert model.inertia_ == pytest.approx(inertia, rel=1e-5)


@given(st_.integers(0, 10**6), st_.integers(2, 40), st_.booleans(), st_.floats(0.0, 100.0))
def test_bounds_change_no_bit_of_lloyd(seed, k, sparse, offset):
    X = (
        topics(n=400, d=80, seed=seed)[0]
        if sparse
        else blobs(n=400, d=6, spread=1.0, seed=seed)[0] + np.float32(offset)
    )
    rows = st.from_arrays(X).block
    start = Centres.from_rows(rows, np.random.default_rng(seed).choice(400, k, replace=False))
    runs = []
    for use_bounds, n_threads in ((True, 1), (False, 1), (True, 3)):
        own = Centres(start.table.copy(), start.scale, start.norm.copy(), k)
        runs.append(Lloyd(rows, own, use_bounds=use_bounds, n_threads=n_threads).run(100, 0.0))
    for other in runs[1:]:
        np.testing.assert_array_equal(runs[0].labels, other.labels)
        np.testing.assert_array_equal(runs[0].centres.table, other.centres.table)
        assert runs[0].inertia == other.inertia
    assert runs[0].measured <= runs[1].measured


def test_bounds_save_most_of_the_work():
    rows = st.from_arrays(blobs(n=4000, k=20, spread=3.0)[0]).block
    settings = KMeansSettings(20, start="random", init_size=4000)
    found = cluster_rows(rows, settings, 100, 0.0)
    assert found.measured < 0.6 * len(found.records) * rows.n_rows


def test_lloyd_never_gets_worse():
    model = st.KMeans(15, init="random", solver="lloyd", tol=None, random_state=1).fit(blobs(spread=1.0)[0])
    losses = model.history_.column("loss")
    assert len(losses) > 5
    assert all(after <= before * (1 + 1e-7) for before, after in pairwise(losses))
    assert model.inertia_ == pytest.approx(losses[-1] * 900, rel=1e-5)


def test_distances_survive_a_large_offset():
    """Dense rows are compared by differences, so that a common offset costs no digits."""
    X, y = blobs(n=600, d=4, k=3, spread=8.0)
    model = st.KMeans(3, solver="lloyd", random_state=0).fit(X + np.float32(3000))
    assert len({(label, truth) for label, truth in zip(model.labels_, y, strict=True)}) == 3


# ------------------------------------------------------------------------------------------------------------- solvers


@pytest.mark.parametrize("kind", ["dense", "sparse"])
@pytest.mark.parametrize("solver", ["lloyd", "minibatch"])
def test_inertia_is_no_worse_than_scikit_learns(kind, solver):
    X = data(kind, n=4000, k=8)
    ours = min(st.KMeans(8, solver=solver, random_state=seed).fit(X).inertia_ for seed in range(3))
    theirs = min(ScikitKMeans(8, n_init=1, random_state=seed).fit(X).inertia_ for seed in range(3))
    assert ours <= theirs * (1.001 if solver == "lloyd" else 1.01)


@pytest.mark.independent
def test_k_means_is_matrix_factorization_with_indicator_rows():
    """V ≈ W H with one 1 in each row of W: the same objective, and Lloyd's steps are the two least-squares steps."""
    X, _ = blobs(spread=1.0)
    V = X.astype(np.float64)
    model = st.KMeans(6, solver="lloyd", tol=None, random_state=0).fit(X)
    W, H = np.eye(6)[model.labels_], model.cluster_centers_.astype(np.float64)
    assert model.inertia_ == pytest.approx(np.linalg.norm(V - W @ H) ** 2, rel=1e-6)
    # From the same start, alternating: the best indicator W for H, then the best H for W (least squares).
    H = V[:6]
    for _ in range(model.n_iter_ + 50):
        W = np.eye(6)[np.argmin([((V - h) ** 2).sum(axis=1) for h in H], axis=0)]
        H = np.linalg.lstsq(W, V, rcond=None)[0]
    lloyd = st.KMeans(6, init=X[:6], solver="lloyd", tol=None).fit(X)
    np.testing.assert_allclose(lloyd.cluster_centers_, H, rtol=1e-4, atol=1e-5)
    assert lloyd.inertia_ == pytest.approx(np.linalg.norm(V - W @ H) ** 2, rel=1e-6)


@pytest.mark.parametrize("init", ["k-means++", "k-means||", "random"])
def test_starts_are_distinct_rows(init):
    rows, _ = compact(st.from_arrays(topics(n=300)[0]).block)
    picks = choose_rows(init, rows, 40, np.random.default_rng(0))
    assert len(set(picks.tolist())) == 40


def test_k_means_plus_plus_starts_lower_than_chance():
    rows = st.from_arrays(blobs(n=2000, k=30, spread=6.0)[0]).block

    def start(how, seed):
        picks = choose_rows(how, rows, 30, np.random.default_rng(seed))
        return Centres.from_rows(rows, picks).nearest(rows)[1].sum()

    mean = {how: np.mean([start(how, seed) for seed in range(5)]) for how in ("k-means++", "k-means||", "random")}
    assert mean["k-means++"] < 0.5 * mean["random"]
    assert mean["k-means||"] < 0.5 * mean["random"]


def test_rows_without_weight_are_never_a_start():
    X, _ = blobs(n=100)
    weight = np.zeros(100)
    weight[:20] = 1
    rows = st.from_arrays(X, sample_weight=weight).block
    for how in ("k-means++", "k-means||", "random"):
        for seed in range(5):
            assert max(choose_rows(how, rows, 15, np.random.default_rng(seed))) < 20


def test_more_starts_are_no_worse():
    X, _ = blobs(spread=1.5, k=12)
    fits = [st.KMeans(12, init="random", restarts=n, solver="lloyd", random_state=5).fit(X).inertia_ for n in (1, 4, 8)]
    assert fits[0] >= fits[1] >= fits[2]


def test_an_empty_cluster_takes_the_farthest_row():
    X = np.array([[0.0, 1], [0, 2], [0, 3], [9, 1], [9, 2], [40, 1]], np.float32)
    far = np.array([[0, 2], [9, 1], [-500, -500]], np.float32)
    model = st.KMeans(3, init=far, solver="lloyd").fit(X)
    assert sorted(model.cluster_centers_.tolist()) == [[0, 2], [9, 1.5], [40, 1]]


@pytest.mark.parametrize("solver", ["lloyd", "minibatch"])
def test_fewer_distinct_rows_than_clusters_is_no_trouble(solver):
    X = np.repeat(np.eye(3, dtype=np.float32), 20, axis=0)
    model = st.KMeans(7, solver=solver, random_state=0).fit(X)
    assert model.inertia_ < 1e-4
    assert np.isfinite(model.cluster_centers_).all()


def test_an_idle_centre_is_moved_and_that_is_told():
    X, _ = blobs(n=3000, k=3)
    start = np.concatenate([X[:3], np.full((1, 12), 1e4, np.float32)])
    model = st.KMeans(4, init=start, batch_size=100, epochs=2, random_state=0).fit(X)
    assert np.abs(model.cluster_centers_).max() < 100
    assert any("cluster 3 had no rows" in event for event in model.history_.events)


def test_lloyd_on_hashed_rows_needs_no_table_of_unused_features():
    """2^24 features by 50 clusters would be gigabytes; the search works on the columns in use."""
    X, _ = topics(n=300, d=50, k=3)
    columns = np.sort(np.random.default_rng(0).choice(1 << 24, 50, replace=False)).astype(np.int32)
    wide = sp.csr_matrix((X.data, columns[X.indices], X.indptr), (300, 1 << 24))
    rows, used = compact(st.from_arrays(wide).block)
    assert rows.n_features == len(used) <= 50
    narrow = st.KMeans(3, solver="lloyd", random_state=0).fit(X)
    assert cluster_rows(rows, narrow.learner_.settings, 300, 1e-4).inertia == pytest.approx(narrow.inertia_, rel=1e-6)


# -------------------------------------------------------------------------------------------------- states and files


@pytest.mark.parametrize("solver", ["lloyd", "minibatch"])
def test_files_hold_the_given_start(tmp_path, solver):
    X, _ = blobs()
    model = st.KMeans(4, init=X[:4], solver=solver, random_state=0).fit(X)
    model.save(tmp_path / "m.steepest")
    loaded = st.load(tmp_path / "m.steepest")
    assert loaded.inertia_ == model.inertia_
    np.testing.assert_array_equal(loaded.init, X[:4])
    np.testing.assert_array_equal(loaded.predict(X), model.labels_)


@pytest.mark.parametrize("solver", ["lloyd", "minibatch"])
def test_labels_are_predictions_and_inertia_is_the_score(solver):
    X, _ = topics()
    model = st.KMeans(6, solver=solver, random_state=0).fit(X)
    assert model.inertia_ == pytest.approx(-model.score(X))
    np.testing.assert_array_equal(model.labels_, model.predict(X))


def test_a_centre_is_the_mean_of_the_rows_it_was_given():
    X, _ = blobs(n=500)
    model = st.KMeans(4, init=X[:4], epochs=1, shuffle="never", batch_size=50).fit(X)
    centres, labels = X[:4].astype(np.float64), []
    for start in range(0, 500, 50):
        labels += reference.nearest(X[start : start + 50], centres)[0].tolist()
        so_far = np.array(labels)
        centres = reference.means(X[: start + 50], np.ones(start + 50), so_far, centres)
    np.testing.assert_allclose(model.cluster_centers_, centres, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(model.counts_, np.bincount(labels, minlength=4))


def test_states_merge_by_nearest_centres():
    X, y = blobs(n=4000, k=4, spread=10.0)
    halves = [
        st.KMeans(4, random_state=seed, epochs=1).fit(part).learner_ for seed, part in ((0, X[:2000]), (1, X[2000:]))
    ]
    merged = KMeansLearner(halves[0].settings).merge([half.state for half in halves])
    assert merged.count.sum() == 4000
    truth = np.array([X[y == c].mean(axis=0) for c in range(4)])
    assert reference.squares(truth, merged.weights()[0]).min(axis=1).max() < 0.1


# ----------------------------------------------------------------------------------------------------------------- use


def test_transform_predict_and_score_agree():
    X, _ = topics()
    model = st.KMeans(5, random_state=0)
    distances = model.fit_transform(X)
    np.testing.assert_allclose(distances**2, reference.squares(X.toarray(), model.cluster_centers_), atol=1e-5)
    np.testing.assert_array_equal(distances.argmin(axis=1), model.predict(X))
    assert model.score(X) == pytest.approx(-(distances.min(axis=1) ** 2).sum(), rel=1e-6)
    assert model.score(X, sample_weight=np.full(len(distances), 2.0)) == pytest.approx(2 * model.score(X))
    np.testing.assert_array_equal(st.KMeans(5, random_state=0).fit_predict(X), model.labels_)


def test_partial_fit_waits_for_enough_rows():
    X, _ = blobs(n=50)
    model = st.KMeans(5, random_state=0).partial_fit(X[:3])
    with pytest.raises(ValueError, match="5 centres need as many rows"):
        model.predict(X)
    assert not hasattr(model, "cluster_centers_")
    model.partial_fit(X[3:9])
    assert model.predict(X).max() < 5


def test_features_may_appear_at_any_time(tmp_path):
    path = tmp_path / "grow.svm"
    path.write_text("".join(f"0 {1 + i % 5 + i // 50}:1 {60 + i // 10}:1\n" for i in range(600)))
    model = st.KMeans(4, init_size=40, batch_size=16, random_state=0).fit_stream(st.scan(path))
    assert model.cluster_centers_.shape == (4, model.n_features_in_)
    assert model.n_features_in_ >= 119
    exact = model.evaluate_stream(st.scan(path))["inertia"]
    assert model.inertia_ == pytest.approx(exact, rel=0.1)


TEXTS = [f"{a} {b} {c}" for a in ("goal", "match") for b in ("team", "player") for c in ("win", "lose", "draw")]
TEXTS += [f"{a} {b} {c}" for a in ("flour", "sugar") for b in ("oven", "butter") for c in ("bake", "mix", "cool")]


def test_texts_in_words_out(tmp_path):
    model = st.KMeans(2, hasher=st.Hasher(n_bits=12, names=100), random_state=0).fit(TEXTS)
    assert len(set(model.labels_[:12])) == len(set(model.labels_[12:])) == 1
    sport = int(model.predict(["the team lost the match"])[0])
    assert sport == model.labels_[0]
    words = {name for name, _ in model.top_features(4)[sport]}
    assert words <= {"goal", "match", "team", "player", "win", "lose", "draw"}
    assert len(words) == 4
    best = model.explain("team oven")[sport][0]
    assert best.name == "team"
    assert best.contribution > 0
    model.save(tmp_path / "m.steepest")
    assert st.load(tmp_path / "m.steepest").predict(["team win"]).tolist() == [sport]


def test_names_of_columns_and_rows_of_a_frame():
    pd = pytest.importorskip("pandas")
    X, _ = blobs(d=3, k=2)
    frame = pd.DataFrame(np.abs(X), columns=["height", "width", "depth"])
    model = st.KMeans(2, random_state=0).fit(frame)
    assert model.top_features(1)[0][0][0] in frame.columns
    assert {part.name for part in model.explain(frame.iloc[:1])[0]} <= set(frame.columns)
    with pytest.raises(ValueError, match="feature names should match"):
        model.predict(frame[["width", "height", "depth"]])


def test_cells_given_twice_are_added():
    X = sp.csr_matrix((np.ones(4, np.float32), np.array([0, 0, 1, 9]), np.array([0, 2, 4])), (2, 10))
    model = st.KMeans(1, solver="lloyd").fit(X)
    assert model.inertia_ == pytest.approx(((X.toarray() - X.toarray().mean(axis=0)) ** 2).sum())


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (dict(n_clusters=0), "n_clusters=0 must be at least 1"),
        (dict(n_clusters=2.5), "n_clusters=2.5 must be a whole number"),
        (dict(n_clusters=1000), "n_samples=900 should be >= n_clusters=1000"),
        (dict(n_clusters=1000, solver="lloyd"), "n_samples=900 should be >= n_clusters=1000"),
        (dict(solver="elkan"), "solver='elkan' is unknown; choose one of minibatch, lloyd"),
        (dict(init="best"), "init='best' is unknown"),
        (dict(init=np.zeros((3, 12))), r"init has shape \(3, 12\), but \(5, 12\) is needed"),
        (dict(init=np.full((5, 12), np.nan)), "init contains NaN"),
        (dict(init=object()), "is not an array"),
        (dict(restarts=0), "restarts=0"),
        (dict(epochs=0), "epochs=0"),
        (dict(epochs="many"), "epochs='many' is not a number"),
        (dict(batch_size=0), "batch_size=0"),
        (dict(init_size=3), "init_size=3 must be at least n_clusters=5"),
        (dict(tol=-1), "tol=-1"),
        (dict(shuffle="often"), "shuffle='often' is unknown"),
        (dict(random_state="x"), "random_state='x' is not a seed"),
    ],
)
def test_bad_parameters_are_named(change, words):
    with pytest.raises(ValueError, match=words):
        st.KMeans(**{"n_clusters": 5, **change}).fit(blobs()[0])


@pytest.mark.parametrize("solver", ["lloyd", "minibatch"])
def test_bad_data_is_named(solver):
    X, _ = blobs()
    make = lambda: st.KMeans(3, solver=solver, random_state=0)
    with pytest.raises(ValueError, match="sample_weight of row 7 is -1"):
        make().fit(X, sample_weight=np.where(np.arange(900) == 7, -1.0, 1.0))
    with pytest.raises(ValueError, match="contains NaN: row 4, column 2;"):
        make().fit(np.where(np.arange(X.size).reshape(X.shape) == 4 * 12 + 2, np.nan, X))
    sparse = topics(n=100)[0]
    sparse.data[3] = np.nan
    with pytest.raises(ValueError, match="contains NaN: row 0"):
        make().fit(sparse)
    sparse.data[3] = 1e30
    with pytest.raises(ValueError, match="too far from every centre"):
        make().fit(sparse)
    with pytest.raises(ValueError, match="0 sample"):
        make().fit(X[:0])
    with pytest.raises(ValueError, match="X has 3 features, but KMeans is expecting 12 features"):
        make().fit(X).predict(X[:, :3])
    with pytest.raises(ValueError, match="no rows"):
        make().fit_stream(st.from_arrays(X).limit(0))


def test_kernels_refuse_what_does_not_fit():
    rows = st.from_arrays(topics(n=50)[0]).block
    centres = Centres.from_array(np.zeros((3, 5), np.float32))
    with pytest.raises(ValueError, match="column index"):
        centres.nearest(rows)
    with pytest.raises(ValueError, match="column index"):
        centres.squares(rows)
    labels, counts = np.full(50, 9, np.int32), np.zeros(3)
    with pytest.raises(ValueError, match="label is out of range"):
        kernels.kmeans_add(rows.as_rows(), labels, centres.table, counts, counts.copy(), 1)
    with pytest.raises(ValueError, match="multiple of 8"):
        kernels.KMeansCentres(np.zeros((400, 3), np.float32), centres.scale, centres.norm, 3)


# -------------------------------------------------------------------------------------------------------- command line


def run(capsys, *words):
    status = cli.main([str(word) for word in words])
    said = capsys.readouterr()
    return status, said.out, said.err


def test_the_command_line_clusters_predicts_and_evaluates(tmp_path, capsys):
    path, model = tmp_path / "texts.csv", tmp_path / "m.steepest"
    path.write_text("text\n" + "\n".join(TEXTS) + "\n")
    flags = ("--task", "cluster", "--clusters", 2, "--bits", 12, "--text", "text")
    assert run(capsys, "train", path, *flags, "-m", model)[0] == 0
    status, out, _ = run(capsys, "predict", model, path)
    labels = out.split()
    assert status == 0
    assert len(set(labels[:12])) == len(set(labels[12:])) == 1
    assert labels[0] != labels[12]
    measured = json.loads(run(capsys, "evaluate", model, path, "--json")[1])
    assert measured["rows"] == 24
    assert measured["loss"] == pytest.approx(measured["inertia"] / 24)
    assert measured["clusters_used"] == 2
    shown = run(capsys, "inspect", model, "--top", 3)[1]
    assert "2 clusters" in shown
    assert "flour" in shown or "sugar" in shown or "oven" in shown or "butter" in shown
    assert f"for {labels[12]}:" in run(capsys, "explain", model, "butter in the oven")[1]


def test_the_command_line_refuses_what_has_no_meaning(tmp_path, capsys):
    path, model = tmp_path / "a.svm", tmp_path / "m.steepest"
    path.write_text("1 1:1\n0 2:1\n1 3:1\n")
    assert run(capsys, "train", path, "--task", "cluster", "--loss", "hinge", "-m", model)[0] == 2
    status, _, said = run(capsys, "train", path, "--task", "cluster", "--clusters", 9, "-m", model)
    assert (status, said) == (
        2,
        "steepest: n_samples=3 should be >= --clusters 9: give more rows or ask for fewer clusters\n",
    )
    assert run(capsys, "train", path, "--task", "cluster", "--clusters", 2, "-m", model)[0] == 0
    status, _, said = run(capsys, "predict", model, path, "--proba")
    assert status == 2
    assert "is a KMeans" in said


# -------------------------------------------------------------------------------------------------- files and real data

MODELS = {
    "kmeans-minibatch-1": dict(hasher=st.Hasher(n_bits=10, names=50), random_state=0),
    "kmeans-lloyd-1": dict(hasher=st.Hasher(n_bits=10), solver="lloyd", random_state=1),
}


@pytest.mark.parametrize("name", MODELS)
def test_golden_models_load_and_predict_the_stored_numbers(name):
    stored = json.loads((GOLDEN / f"{name}.json").read_text())
    model = st.load(GOLDEN / f"{name}.steepest")
    assert model.predict(TEXTS).tolist() == stored["labels"]
    np.testing.assert_allclose(model.transform(TEXTS), stored["distances"], rtol=1e-5, atol=1e-6)
    model.partial_fit(TEXTS[:2])  # and they can go on learning


def test_digits_fall_into_clusters(shared_data):
    path = shared_data / "mnist" / "t10k-images-idx3-ubyte.gz"
    X = np.frombuffer(gzip.decompress(path.read_bytes()), np.uint8, offset=16).reshape(-1, 784) / np.float32(255)
    model = st.KMeans(10, random_state=0).fit(X)
    assert model.inertia_ / len(X) < 39.8  # Lloyd from k-means++ ends between 38.9 and 39.5
    assert st.KMeans(10, solver="lloyd", random_state=0).fit(X).inertia_ / len(X) < 39.6


if __name__ == "__main__":  # writes the golden files; run once a format version
    for name, options in MODELS.items():
        model = st.KMeans(3, **options).fit(TEXTS)
        model.save(GOLDEN / f"{name}.steepest")
        plain = {"labels": model.predict(TEXTS).tolist(), "distances": model.transform(TEXTS).tolist()}
        (GOLDEN / f"{name}.json").write_text(json.dumps(plain, indent=1))
