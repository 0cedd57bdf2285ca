"""Learning in parallel: bits that do not depend on threads or chunks, close to serial, and clear refusals."""

from __future__ import annotations

import numpy as np
import pytest

import steepest as st
from conftest import sparse_problem
from steepest.engine import mixing
from steepest.engine.mixing import PARTS, MixingPlan, RoundSchedule
from steepest.engine.parallel import Shape, decide
from steepest.learners.linear.linear_mixing import compress, gains, gather_evidence, mean_gain, shares_by_rows

WAYS = {
    "replicas": dict(parallel=st.Replicas(sync_every=100)),
    "three-replicas-batches": dict(parallel=st.Replicas(n=3, sync_every=50), batch_size=7),
    "replicas-sgd": dict(parallel=st.Replicas(n=4, sync_every=64), solver="sgd", dtype="float64"),
    "replicas-decay": dict(parallel=st.Replicas(sync_every=64), solver="sgd", alpha=0.1),
    "replicas-ftrl": dict(parallel=st.Replicas(sync_every=80), solver="ftrl", penalty="l1", alpha=1e-4),
    "replicas-hashed": dict(parallel=st.Replicas(sync_every=90), multi_class=st.Hashed(bits=14)),
    "mixing": dict(parallel=st.Mixing(n_shards=5)),
    "mixing-once": dict(parallel=st.Mixing(n_shards=7, rounds=1)),
    "mixing-often": dict(parallel=st.Mixing(n_shards=3, rounds=9)),
    "mixing-l1": dict(parallel=st.Mixing(n_shards=3), solver="sgd", penalty="l1", alpha=1e-4),
    "mixing-topk": dict(parallel=st.Mixing(n_shards=4, weights="uniform", send="topk")),
    "mixing-ftrl": dict(parallel=st.Mixing(n_shards=4, send="delta"), solver="ftrl"),
}


def same_bits(a, b):
    np.testing.assert_array_equal(a.coef_, b.coef_)
    np.testing.assert_array_equal(a.intercept_, b.intercept_)


def make(way, **more):
    return st.LinearClassifier(**{"random_state": 0, "epochs": 3, **WAYS[way], **more})


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("way", WAYS)
def test_threads_and_chunks_change_no_bit_and_the_model_is_good(way, n_classes):
    X, y = sparse_problem(n_rows=3000, n_classes=n_classes, seed=1)
    first = make(way).fit(X, y)
    for n_jobs, chunk_rows in ((2, 3000), (5, 333), (1, 17)):
        source = st.from_arrays(X, y, chunk_rows=chunk_rows)
        source.labels = np.unique(y)
        same_bits(first, make(way, n_jobs=n_jobs).fit_stream(source))
    serial = make(way, parallel="serial").fit(X, y)
    lost = 0.3 if way == "mixing-topk" else 0.1  # a tenth of every change arrives in three rounds
    assert first.score(X, y) > serial.score(X, y) - lost


@pytest.mark.parametrize("way", [way for way in WAYS if "replicas" in way])
def test_replicas_in_pieces_and_through_a_file_learn_the_same_bits(way, tmp_path):
    X, y = sparse_problem(n_rows=2500, n_classes=3, seed=2)
    whole = make(way).partial_fit(X, y)
    first = make(way, n_jobs=2).partial_fit(X[:1], y[:1]).partial_fit(X[1:1111], y[1:1111])
    first.save(tmp_path / "m.steepest")
    same_bits(whole, st.load(tmp_path / "m.steepest").partial_fit(X[1111:], y[1111:]))


def test_one_replica_and_one_shard_are_the_serial_learner():
    X, y = sparse_problem(n_rows=3000, seed=3)
    serial = st.LinearClassifier(solver="stochastic", random_state=0).fit(X, y)
    same_bits(serial, st.LinearClassifier(random_state=0, parallel=st.Replicas(n=1)).fit(X, y))
    same_bits(serial, st.LinearClassifier(random_state=0, parallel=st.Mixing(n_shards=1)).fit(X, y))


def test_replicas_of_a_large_table_sum_only_what_was_touched_to_the_same_bits():
    X, y = sparse_problem(n_rows=2000, n_features=200, seed=4)
    wide = X.copy()
    wide.resize(2000, 300_000)
    narrow, large = (make("replicas", n_jobs=2).fit(matrix, y) for matrix in (X, wide))
    np.testing.assert_array_equal(narrow.coef_[0], large.coef_[0, :200])
    assert not large.coef_[0, 200:].any()


def test_a_row_in_trouble_is_refused_by_its_number_and_divergence_rolls_back():
    X, y = sparse_problem(n_rows=2000, seed=5)
    bad = X.copy()
    bad.data[bad.indptr[1500]] = np.nan
    source = st.from_arrays(X, y)
    source.block.values[bad.indptr[1500]] = np.nan
    with pytest.raises(st.DataError, match="row 1500"):
        make("replicas").fit_stream(source)
    X, y = sparse_problem(n_rows=2000, seed=5)
    steep = dict(solver="sgd", average=False, eta0=1e6, parallel=st.Replicas(sync_every=100))
    model = st.LinearClassifier("exponential", **steep, random_state=0).fit(X, y)
    assert any("halved" in event for event in model.history_.events)
    assert np.isfinite(model.coef_).all()


@pytest.mark.parametrize("options", [{}, {"solver": "adagrad"}, {"loss": "exponential", "solver": "sgd", "eta0": 1e6}])
def test_many_classes_are_shared_out_among_threads_without_changing_a_bit(options):
    X, y = sparse_problem(n_rows=2000, n_classes=120, seed=8)
    alone, two, five = (st.LinearClassifier(**options, random_state=0, n_jobs=n).fit(X, y) for n in (1, 2, 5))
    assert any("halved" in event for event in alone.history_.events) == ("eta0" in options)
    for other in (two, five):
        same_bits(alone, other)
        assert other.history_.column("objective") == alone.history_.column("objective")


@pytest.mark.parametrize("solver", ["sgd", "asgd", "adagrad"])
def test_hogwild_learns_as_well_as_serial(solver):
    X, y = sparse_problem(n_rows=6000, n_features=2000, seed=6)
    serial = st.LinearClassifier(solver=solver, random_state=0).fit(X, y)
    model = st.LinearClassifier(solver=solver, parallel="hogwild", n_jobs=2, random_state=0).fit(X, y)
    assert model.objective(X, y) < 1.1 * serial.objective(X, y)
    assert model.history_.column("eta")[0] == serial.history_.column("eta")[0]  # steps are tried by one thread
    alone = st.LinearClassifier(solver=solver, parallel="hogwild", n_jobs=1, random_state=0).fit(X, y)
    same_bits(serial, alone)


def test_heavy_rows_move_the_clock_as_the_kernels_do():
    X, y = sparse_problem(n_rows=1000, seed=7)
    weight = np.random.default_rng(0).choice([0.0, 0.5, 1.0, 3.0], 1000)
    options = dict(random_state=0, eta0=0.5, shuffle="never", epochs=1)
    model = st.LinearClassifier(parallel=st.Replicas(sync_every=500), **options).fit(X, y, sample_weight=weight)
    serial = st.LinearClassifier(**options).fit(X, y, sample_weight=weight)
    for field in ("t", "steps", "scale", "average_scale", "average_weight"):
        assert model.learner_.clock(field) == pytest.approx(serial.learner_.clock(field), rel=1e-12)


def test_bytes_of_every_round_stand_in_the_history():
    X, y = sparse_problem(n_rows=2000, n_features=400, seed=8)
    sent = {}
    for send in ("full", "delta", "topk", "float16"):
        model = make("mixing", parallel=st.Mixing(5, send=send)).fit(X, y)
        assert model.history_.column("round") == [1, 2, 3]
        assert model.history_.column("shards") == [5, 5, 5]
        sent[send] = sum(model.history_.column("bytes_up"))
    assert sent["topk"] < sent["float16"] < sent["full"]
    assert sent["topk"] < sent["delta"]


def test_the_server_sends_back_as_little_as_the_shards_send():
    X, y = sparse_problem(n_rows=600, n_features=3000, density=0.003, seed=8)
    down, up = {}, {}
    for send in ("full", "delta", "topk", "float16"):
        history = make("mixing", parallel=st.Mixing(5, send=send)).fit(X, y).history_
        down[send], up[send] = (sum(history.column(f"bytes_{way}")) for way in ("down", "up"))
    assert down["topk"] < down["delta"] < 0.7 * down["full"]
    assert down["float16"] < 0.7 * down["full"]
    assert all(down[send] < 2 * up[send] for send in down)


@pytest.mark.parametrize("how", ["full", "delta", "topk", "float16"])
@pytest.mark.parametrize("average", [True, False])
def test_what_shards_have_of_the_common_state_follows_it(how, average):
    X, y = sparse_problem(n_rows=3000, seed=5)
    common = st.LinearClassifier(random_state=0, solver="sgd", average=average).fit(X[:1500], y[:1500]).learner_
    common.keep_whole_tables()
    sent, sizes, gaps = None, [], []
    for start in range(1500, 3000, 500):
        base, sent, n_bytes = common.send_back(sent or None, how)
        sizes.append(n_bytes)
        gaps.append(np.abs(base.arrays["v"] - common.arrays["v"]).max() / np.abs(common.arrays["v"]).max())
        assert base.rows_learned == common.rows_learned
        np.testing.assert_array_equal(base.arrays["clock"], common.arrays["clock"])
        np.testing.assert_array_equal(base.arrays["bias"], common.arrays["bias"])
        if how in ("full", "delta"):
            assert base is common
        common.step(next(iter(st.from_arrays(X[start : start + 500], y[start : start + 500]))))
        common.apply_penalty()
    assert max(gaps) <= (1e-3 if how == "float16" else 0.0)
    tables = sum(common.arrays[name].nbytes for name in ("v", "average") if name in common.arrays)
    assert max(sizes) <= tables + 1000
    for _ in range(60):  # nothing more is learned: all that was left out arrives in the end
        base, sent, n_bytes = common.send_back(sent or None, how)
    for name in ("v", "average") if average else ("v",):
        np.testing.assert_allclose(base.arrays[name], common.arrays[name], rtol=1e-4, atol=1e-6)
    if how in ("delta", "topk"):
        assert n_bytes < 2000  # nothing but small arrays


def test_delta_is_dense_where_places_would_cost_more():
    everything, little = np.ones((100, 2)), np.zeros((100, 2))
    little[3, 1] = 1
    assert compress(everything, "delta", 4)[1] == 800
    assert compress(little, "delta", 4)[1] == 8


def test_what_is_not_sent_waits():
    change = np.array([[3.0], [0.0], [-5.0], [0.1], [0.2]])
    sent, n_bytes = compress(change, "topk", 4)
    assert sent.ravel().tolist() == [0, 0, -5, 0, 0]
    assert n_bytes == 8
    half, _ = compress(change, "float16", 4)
    np.testing.assert_allclose(half, change, rtol=1e-3)


def test_evidence_lets_the_shards_that_saw_a_feature_speak():
    shares = shares_by_rows([10, 10], [np.array([5.0, 0.0, 0.0]), np.array([5.0, 2.0, 0.0])])
    assert np.array(shares).T.tolist() == [[0.5, 0.5], [0.0, 1.0], [0.5, 0.5]]


def test_a_rare_feature_moves_by_the_sum_of_changes_and_one_that_all_know_by_their_mean():
    X, y = sparse_problem(n_rows=500, seed=3)
    learner = st.LinearClassifier("log", eta0=0.5, random_state=0).fit(X, y).learner_
    _, pace = learner.shares([0] * 16, [np.array([0.0, 1e-6, 1.0, 1e9])] + [np.zeros(4)] * 15, epochs=16.0)
    assert pace == pytest.approx(1)
    u = 0.25 * learner.step_size
    gain = gains(u * np.array([0.0, 1e-6, 1.0, 1e9]), 16)
    assert gain == pytest.approx([16, 16, gain[2], 1], rel=1e-3)
    assert gain[2] == pytest.approx((1 - np.exp(-16 * u)) / (1 - np.exp(-u)))
    shares, _ = learner.shares([10**13] * 16, [np.zeros(1)] * 16, epochs=1.0)
    assert sum(shares)[0] == pytest.approx(1)  # what the penalty has undone is undone
    assert mean_gain(np.array([16.0, 1.0]), np.array([1.0, 3.0])) == pytest.approx(19 / 4)


def test_evidence_does_not_depend_on_how_rows_are_cut():
    X, y = sparse_problem(n_rows=3000, seed=4)
    weight = np.random.default_rng(0).random(3000)
    chunks = lambda n: st.from_arrays(X, y, weight, chunk_rows=n).epoch(0)
    whole = gather_evidence(chunks(3000), X.shape[1])
    for chunk_rows in (7, 1025):
        np.testing.assert_array_equal(whole, gather_evidence(chunks(chunk_rows), X.shape[1]))
    lengths = np.diff(X.indptr)
    expected = X.multiply(X).T @ (weight * np.sqrt(lengths))
    np.testing.assert_allclose(whole, expected, rtol=1e-6)


@pytest.mark.parametrize(("loss", "alpha"), [("log", 1e-3), ("log", 1e-4), ("hinge", 1e-3)])
def test_sixteen_shards_come_as_far_as_one_learner_in_twice_the_epochs(loss, alpha):
    X, y = sparse_problem(n_rows=20_000, n_features=5000, density=0.005, seed=3)
    serial = st.LinearClassifier(loss, alpha=alpha, epochs=4, random_state=0).fit(X, y)
    options = dict(parallel=st.Mixing(n_shards=16, rounds=32), epochs=8)
    mixed = st.LinearClassifier(loss, alpha=alpha, random_state=0, **options).fit(X, y)
    assert mixed.objective(X, y) < 1.002 * serial.objective(X, y)


def test_the_objective_of_a_mixture_is_that_of_its_weights():
    X, y = sparse_problem(n_rows=2000, seed=13)
    model = make("mixing", loss="hinge", alpha=1e-2).fit(X, y)
    margins = np.where(y == model.classes_[1], 1, -1) * model.decision_function(X)
    expected = np.maximum(0, 1 - margins).mean() + 0.5e-2 * (model.coef_.astype(np.float64) ** 2).sum()
    assert model.objective(X, y) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("vote", [True, "ensemble"])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_shards_vote_also_from_a_file(vote, n_classes, tmp_path):
    X, y = sparse_problem(n_rows=3000, n_classes=n_classes, seed=9)
    model = st.LinearClassifier(parallel=st.Mixing(n_shards=5, rounds=1, vote=vote), random_state=0).fit(X, y)
    votes = np.array([(voter.scores(st.from_arrays(X).block)) for voter in model.voters_])
    assert len(votes) == 5
    if vote is True and n_classes == 2:
        np.testing.assert_array_equal(model.predict(X), ((votes[:, :, 0] > 0).sum(axis=0) >= 3).astype(int))
    model.save(tmp_path / "m.steepest")
    np.testing.assert_array_equal(model.decision_function(X), st.load(tmp_path / "m.steepest").decision_function(X))
    assert model.score(X, y) > 0.6
    with pytest.raises(ValueError, match="fit again"):
        model.partial_fit(X, y)


@pytest.mark.parametrize("send", ["full", "topk"])
def test_a_killed_mixing_run_resumes_after_its_last_round(send, tmp_path, monkeypatch):
    from steepest.engine import checkpoint, mixing

    X, y = sparse_problem(n_rows=2000, seed=10)
    options = dict(parallel=st.Mixing(n_shards=4, send=send), epochs=4, random_state=0)
    whole = st.LinearClassifier(**options).fit(X, y)
    init, rounds, real = checkpoint.Checkpoints.__init__, [], mixing.Rounds.run_round
    monkeypatch.setattr(
        checkpoint.Checkpoints, "__init__", lambda self, *a, **k: init(self, *a, **{**k, "every": "0s"})
    )

    def mortal(*arguments):
        rounds.append(1)
        if len(rounds) == 3:
            raise KeyboardInterrupt
        return real(*arguments)

    monkeypatch.setattr(mixing.Rounds, "run_round", mortal)
    source = st.LinearClassifier().source_of(X, y)
    with pytest.raises(KeyboardInterrupt):
        st.LinearClassifier(**options).fit_stream(source, checkpoint=tmp_path)
    resumed = st.LinearClassifier(**options).fit_stream(source, checkpoint=tmp_path, resume=True)
    assert len(rounds) == 5
    same_bits(whole, resumed)


def test_mixtures_keep_the_step_of_an_adaptive_schedule_when_the_loss_stalls():
    X, y = np.random.default_rng(0).standard_normal((300, 5)), np.random.default_rng(1).integers(0, 2, 300)
    options = dict(schedule="adaptive", eta0=2.0, epochs=12, random_state=0)
    model = st.LinearClassifier(parallel=st.Mixing(n_shards=3), **options).fit(X, y)
    assert set(model.history_.column("eta")) == {2.0}
    assert min(st.LinearClassifier(**options).fit(X, y).history_.column("eta")) < 2.0


def test_rounds_by_seconds_visit_every_row_once_an_epoch():
    rounds = RoundSchedule(2, MixingPlan(4, 2, seconds=1.0))
    seen = []
    for seconds in [0.1, 0.2, 5.0, 1.0, 30.0, *[0.01] * 100]:
        for epoch, start, stop, parts in rounds.passes():
            seen += [epoch * parts + part for part in range(start, stop)]
        if not rounds.passes():
            break
        rounds.advance(seconds, rows=700)
    assert seen == list(range(2 * PARTS))


def test_shards_that_meet_by_the_clock_learn_well_and_say_how_long_they_were_apart():
    X, y = sparse_problem(n_rows=3000, seed=4)
    model = make("mixing", parallel=st.Mixing(5, sync_seconds=1e-3)).fit(X, y)
    rows = model.history_.column("rows")
    assert sum(rows) == 3 * 3000
    assert len(rows) >= 3
    assert 0 not in rows
    assert max(model.history_.column("rows_apart")) < 3000 / 5 + 1
    assert model.score(X, y) > make("mixing", parallel="serial").fit(X, y).score(X, y) - 0.1


@pytest.mark.parametrize("parallel", ["replicas", "mixing", "hogwild", "auto"])
def test_streams_of_text_learn_in_parallel(parallel, tmp_path):
    rng = np.random.default_rng(0)
    with open(tmp_path / "t.tsv", "w") as file:
        for _ in range(1200):
            good = rng.random() < 0.5
            file.write(f"{'yes' if good else 'no'}\t{'fine' if good else 'bad'} word{rng.integers(50)}\n")
    scan = lambda: st.scan_text(tmp_path / "t.tsv")
    ways = {"replicas": st.Replicas(sync_every=64), "mixing": st.Mixing(n_shards=3)}
    options = dict(parallel=ways.get(parallel, parallel), hasher=st.Hasher(12), random_state=0)
    models = [st.LinearClassifier(n_jobs=n_jobs, **options).fit_stream(scan()) for n_jobs in (1, 2)]
    assert models[1].evaluate_stream(scan())["accuracy"] == 1.0
    if parallel != "hogwild":
        same_bits(*models)


def test_auto_says_in_one_sentence_what_it_chose():
    few = Shape(1_000_000, 47_236, 75.0)
    assert decide(few, 2, 4096, seeded=True)[0] == "replicas"
    assert decide(few, 1, 4096, seeded=True)[0] == "serial"
    assert decide(Shape(1_000_000, 1 << 22, 75.0), 2, 4096, seeded=False)[0] == "hogwild"
    assert decide(Shape(1_000_000, 1 << 22, 75.0), 2, 4096, seeded=True)[0] == "serial"
    assert decide(Shape(1000, 47_236, 75.0), 2, 4096, seeded=True)[0] == "serial"
    X, y = sparse_problem(n_rows=300, seed=11)
    model = st.LinearClassifier(parallel="auto", n_jobs=2, random_state=0).fit(X, y)
    assert "parallel='auto' learns serially: 300 rows are too few to share" in model.history_.events
    same_bits(model, st.LinearClassifier(solver="stochastic", random_state=0).fit(X, y))
    X, y = sparse_problem(n_rows=3000, n_classes=120, seed=11)
    model = st.LinearClassifier(parallel="auto", n_jobs=2).fit(X, y)
    assert any("lets threads share out the outputs" in event for event in model.history_.events)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (dict(parallel="cluster"), "parallel"),
        (dict(parallel=st.Mixing(n_shards=0)), "n_shards"),
        (dict(parallel=st.Mixing(rounds=3, sync_seconds=1)), "contradicts"),
        (dict(parallel=st.Mixing(sync_seconds=0)), "sync_seconds"),
        (dict(parallel=st.Mixing(n_shards=101)), "n_shards=101 is more than the 100 rows"),
        (dict(parallel=st.Mixing(rounds=7), epochs=5), "rounds=7"),
        (dict(parallel=st.Mixing(weights="median")), "weights='median'"),
        (dict(parallel=st.Mixing(send="pigeon")), "send"),
        (dict(parallel=st.Mixing(vote="loudly")), "vote"),
        (dict(parallel=st.Replicas(n=0)), "n_replicas"),
        (dict(parallel=st.Replicas(sync_every=0)), "sync_every"),
        (dict(parallel="replicas", solver="lbfgs"), "solver='lbfgs'"),
        (dict(parallel="hogwild", solver="sgd", penalty="l1"), "solver='ftrl'"),
    ],
)
def test_what_cannot_work_is_refused_in_one_sentence(options, message):
    X, y = sparse_problem(n_rows=100, seed=12)
    with pytest.raises(ValueError, match=message) as caught:
        st.LinearClassifier(random_state=0, **options).fit(X, y)
    assert "\n" not in str(caught.value)
    assert ". " not in str(caught.value)


@pytest.mark.parametrize("send", ["full", "delta", "float16", "topk"])
@pytest.mark.parametrize("n_rows", [1600, 4 * 511, 8192])
def test_what_waits_in_a_shard_survives_that_sums_change_their_unit(n_rows, send):
    """Late iterates are counted in larger units from row 511 of a shard on: in a round, at its end, in the first."""
    X, y = sparse_problem(n_rows=n_rows, seed=5)
    model = make("mixing", parallel=st.Mixing(4, send=send), epochs=6).fit(X, y)
    serial = make("mixing", parallel="serial", epochs=6).fit(X, y)
    most = 2.7 if send == "topk" else 1.5  # a tenth of 200 weights a round is little
    assert model.objective(X, y) < most * serial.objective(X, y)


def test_shards_on_both_sides_of_a_change_of_unit_are_mixed_to_their_mean():
    X, y = sparse_problem(n_rows=1100, seed=6)
    common = st.LinearClassifier(random_state=0).fit(X[:20], y[:20]).learner_
    common.prepare(())
    parts = [st.from_arrays(X[20:300], y[20:300]), st.from_arrays(X[300:], y[300:])]
    own, deltas = [], []
    for part in parts:
        learner, _ = mixing.learn_shard(common, [part.epoch(0)])
        own.append(learner.weights()[0])
        deltas.append(learner.delta(common, "full", {})[0])
    times = [int(delta.values["clock"][0]) for delta in deltas]
    assert times[0] < 511 < times[1]
    common.merge(deltas, *common.shares([delta.rows for delta in deltas]))
    # A mean in which each counts by its late iterates: between the two, and not just one of them.
    mixed, low, high = common.weights()[0], np.minimum(*own), np.maximum(*own)
    assert ((low - 1e-5 <= mixed) & (mixed <= high + 1e-5)).all()
    assert np.abs(mixed - own[1]).max() > 1e-3
