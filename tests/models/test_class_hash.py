"""multi_class="hashed": kernels against their definition, the hash against chance, and the estimator's promises."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st_

import steepest as st
from conftest import sparse_problem
from steepest import kernels
from steepest.kernels.reference import linear as reference
from steepest.learners.losses import get_loss

SOLVERS = {"sgd": 0, "adagrad": 1, "ftrl": 2}
FROZEN = [-1953199, -131384, -131447, 1676655, -242306]  # places and signs, of saved models, too
KINDS = {"targets": 0, "one_vs_rest": 1, "softmax": 2}


def random_rows(seed, n=30, n_features=7, n_outputs=3, kind="one_vs_rest"):
    rng = np.random.default_rng(seed)
    dense = (rng.normal(size=(n, n_features)) * (rng.random((n, n_features)) < 0.5)).astype(np.float32)
    X = sp.csr_matrix(dense)
    y = rng.integers(0, n_outputs, n).astype(float)
    if kind == "targets":
        y = np.where(rng.random((n, n_outputs)) < 0.3, 1.0, -1.0)
    return X, dense.astype(float), y, rng.choice([0.0, 0.5, 1.0, 3.0], n)


def enough_bits(rule, n_features, n_outputs):
    """So many that a row changes a weight once an output; once at all for ftrl, where the order matters."""
    for bits in range(6, 20):
        places = reference.class_places(n_features, n_outputs, bits)[0]
        groups = [places.ravel()] if rule == "ftrl" else places.T
        if all(len(set(group)) == group.size for group in groups):
            return bits
    raise AssertionError("no table is large enough")


def run_both(rule, X, dense, y, weight, n_outputs, bits, *, kind, loss, l1, l2, average, batch_size, dtype=np.float64):
    entries = (1 << bits) + kernels.class_window - 1
    v = np.zeros(entries if rule == "sgd" else (2, entries), dtype)
    u = np.zeros(entries, dtype) if average else None
    bias, clock = np.zeros((3, n_outputs)), np.zeros(7)
    clock[2] = 1
    choices = kernels.LinearChoices(
        solver=SOLVERS[rule], loss=get_loss(loss).code, loss_parameter=0.0, target_kind=KINDS[kind], schedule=0,
        eta0=0.2, power=1.0, alpha=0.0, l1=l1, l2=l2, truncate_below=np.inf, truncate_every=1,
        average=1 if average else 0, batch_size=batch_size, bias_scale=0.1,
    )  # fmt: skip
    rows = kernels.Rows(X.indptr.astype(np.int64), X.indices.astype(np.int32), X.data, y, weight)
    learned = kernels.LinearState(v, *bias, clock, None, u, bits, X.shape[1])
    outcome = kernels.linear_learn(rows, learned, choices)
    assert outcome[:2] == (X.shape[0], 0)
    state = reference.State.zeros(entries, n_outputs, shared=True)
    function = get_loss(loss)
    slow = reference.Choices(
        loss=lambda z, y: (function.value(z, y, 0.0), function.gradient(z, y, 0.0)),
        solver=rule, eta0=0.2, target_kind=kind, l1=l1, l2=l2, average="uniform" if average else "none",
        batch_size=batch_size, bias_scale=0.1,
    )  # fmt: skip
    reference.linear_learn(reference.hashed_rows(dense, n_outputs, bits), y, weight, state, slow)
    t = clock[0]
    if rule == "sgd":
        w = v * clock[2]
    else:
        w = -np.sign(v[0]) * np.maximum(np.abs(v[0]) - t * l1, 0) / ((1 + np.sqrt(v[1])) / 0.2 + t * l2)
    mean = (clock[5] * v - u) / clock[6] if average else None
    return w, bias, mean, outcome, state


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("batch_size", [1, 4])
@pytest.mark.parametrize(
    ("n_outputs", "kind", "loss"),
    [(2, "one_vs_rest", "log"), (3, "one_vs_rest", "hinge"), (1, "targets", "log"), (5, "targets", "log"),
     (9, "one_vs_rest", "log"), (63, "one_vs_rest", "hinge"), (70, "one_vs_rest", "log"), (130, "softmax", "log")],
)  # fmt: skip
@pytest.mark.parametrize(
    ("rule", "l1", "average"), [("sgd", 0, 0), ("sgd", 0, 1), ("adagrad", 0.01, 0), ("ftrl", 0.01, 0)]
)
def test_kernels_equal_their_definition(rule, l1, average, n_outputs, kind, loss, batch_size, dtype):
    n_features, n = (3, 12) if rule == "ftrl" else (7, 30)
    bits = enough_bits(rule, n_features, n_outputs)
    X, dense, y, weight = random_rows(n_outputs, n, n_features, n_outputs, kind)
    w, bias, mean, outcome, state = run_both(
        rule, X, dense, y, weight, n_outputs, bits,
        kind=kind, loss=loss, l1=l1, l2=0.02, average=average, batch_size=batch_size, dtype=dtype,
    )  # fmt: skip
    near = dict(rtol=1e-10, atol=1e-11) if dtype is np.float64 else dict(rtol=1e-4, atol=2e-5)
    np.testing.assert_allclose(w, state.w[:, 0], **near)
    np.testing.assert_allclose(bias[0], state.bias, **near)
    np.testing.assert_allclose(outcome[2:], [state.loss_sum, state.weight_sum], rtol=1e-5)
    if average:
        np.testing.assert_allclose(mean, state.mean_weights()[:, 0], **near)


@given(seed=st_.integers(0, 10**6), n_outputs=st_.integers(2, 70), bits=st_.integers(6, 9))
@settings(max_examples=30, deadline=None)
def test_crowded_tables_follow_the_definition_of_sgd(seed, n_outputs, bits):
    X, dense, y, weight = random_rows(seed, n=10, n_outputs=n_outputs)
    options = dict(kind="one_vs_rest", loss="log", l1=0, l2=0.1, average=1, batch_size=1)
    w, _, mean, _, state = run_both("sgd", X, dense, y, weight, n_outputs, bits, **options)
    np.testing.assert_allclose(w, state.w[:, 0], rtol=1e-9, atol=1e-10)
    if state.total_weight:
        np.testing.assert_allclose(mean, state.mean_weights()[:, 0], rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n_outputs", [1, 4, 64, 65, 200])
def test_scores_and_single_weights_are_read_from_the_right_places(n_outputs, dtype):
    bits = 7
    X, dense, _, _ = random_rows(3, n_outputs=n_outputs)
    table = np.random.default_rng(0).normal(size=(1 << bits) + 63).astype(dtype)
    bias, scores = np.arange(n_outputs) / 7, np.empty((30, n_outputs))
    rows = kernels.Rows(X.indptr.astype(np.int64), X.indices.astype(np.int32), X.data)
    assert kernels.linear_scores(rows, table, 1.0, bias, scores, 1, bits, 7) == (30, 30)
    expected = reference.linear_scores(
        reference.hashed_rows(dense, n_outputs, bits), table[:, None].astype(float), bias
    )
    np.testing.assert_allclose(scores, expected, rtol=1e-4, atol=1e-5)
    places, signs = reference.class_places(7, n_outputs, bits)
    for output in range(n_outputs):
        found = kernels.class_weights(table, np.arange(7), output, bits)
        np.testing.assert_array_equal(found, table[places[:, output]] * signs[:, output])


def test_the_hash_is_frozen():
    places, signs = reference.class_places(2**16, 130, 22)
    picked = [(0, 0), (1, 0), (1, 63), (1, 64), (65535, 129)]
    assert kernels.class_hash_id == "classes-1"
    assert [int(places[p] * signs[p]) for p in picked] == FROZEN


def test_weights_spread_over_the_table_as_by_chance():
    bits, n_features, n_outputs = 16, 4096, 16
    places, signs = reference.class_places(n_features, n_outputs, bits)
    load = n_features * n_outputs / 2**bits
    used = len(np.unique(places)) / 2**bits
    assert used == pytest.approx(1 - np.exp(-load), abs=0.02)
    assert abs(signs[:, 0].mean()) < 4 / np.sqrt(n_features)
    windows = reference.class_places(n_features, 128, bits)[0]
    same = (windows[:, 0] == windows[:, 64]).mean()
    assert same < 1e-3  # another window of classes, another place


def test_wrong_tables_and_rows_are_refused():
    X, _, _, _ = random_rows(0)
    table, bias = np.zeros((1 << 8) + 63, np.float32), np.zeros(3)
    rows = kernels.Rows(X.indptr.astype(np.int64), X.indices.astype(np.int32), X.data)
    out = np.empty((30, 3))
    first_bad, _ = kernels.linear_scores(rows, table, 1.0, bias, out, 1, 8, 3)
    assert first_bad < 30  # rows name columns beyond the third
    for bits, what in ((9, "another size"), (5, "6 to 30"), (31, "6 to 30"), (-1, "6 to 30")):
        with pytest.raises(ValueError, match=what):
            kernels.linear_scores(rows, table, 1.0, bias, out, 1, bits, 7)
    with pytest.raises(ValueError, match="out of range"):
        kernels.class_weights(table, np.array([-1]), 0, 8)
    with pytest.raises(ValueError, match="out of range"):
        kernels.class_weights(table, np.array([0]), -1, 8)


def test_both_instruction_sets_learn_alike():
    script = (
        "import sys; sys.path.insert(0, sys.argv[1]); import numpy as np, steepest as st; from conftest import *;"
        "X, y = sparse_problem(n_rows=800, n_classes=70, seed=2);"
        "m = st.LinearClassifier(multi_class=st.Hashed(14), random_state=0, eta0=0.5).fit(X, y);"
        "np.save(sys.argv[2], m.decision_function(X))"
    )
    found = []
    for isa in ("baseline", "v3"):
        out = os.path.join(os.environ.get("TMPDIR", "/tmp"), f"steepest-class-{os.getpid()}-{isa}.npy")
        subprocess.run(
            [sys.executable, "-c", script, os.path.dirname(os.path.dirname(__file__)), out],
            check=True,
            env={**os.environ, "STEEPEST_ISA": isa},
        )
        found.append(np.load(out))
        os.unlink(out)
    np.testing.assert_allclose(found[0], found[1], rtol=1e-3, atol=1e-3)


# ------------------------------------------------------------------------------------------------- the estimator


@pytest.mark.parametrize("solver", ["sgd", "asgd", "adagrad", "ftrl"])
@pytest.mark.parametrize("n_classes", [2, 5])
def test_a_roomy_table_learns_what_ovr_learns(solver, n_classes):
    X, y = sparse_problem(n_rows=1500, n_classes=n_classes, seed=3)
    options = dict(solver=solver, random_state=0, dtype="float64")
    ovr = st.LinearClassifier(**options).fit(X, y)
    hashed = st.LinearClassifier(**{"multi_class": "hashed", **options}).fit(X, y)
    np.testing.assert_allclose(hashed.coef_, ovr.coef_, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(hashed.intercept_, ovr.intercept_, rtol=1e-6)
    np.testing.assert_allclose(hashed.decision_function(X), ovr.decision_function(X), rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(hashed.predict_proba(X), ovr.predict_proba(X), rtol=1e-6, atol=1e-9)
    assert hashed.coef_.shape == ovr.coef_.shape


def many_classes(n_classes=1500, n_rows=6000, seed=0):
    """Every class has three words of its own among noise."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, n_classes, n_rows)
    own = 3 * y[:, None] + rng.integers(0, 3, (n_rows, 4))
    noise = 3 * n_classes + rng.integers(0, 500, (n_rows, 4))
    columns = np.concatenate([own, noise], axis=1)
    X = sp.csr_matrix(
        (np.ones(columns.size), columns.ravel(), np.arange(0, columns.size + 1, 8)), (n_rows, 3 * n_classes + 500)
    )
    X.sum_duplicates()
    return X, y


def test_thousands_of_classes_fit_into_a_fixed_table():
    X, y = many_classes()
    model = st.LinearClassifier("hinge", multi_class=st.Hashed(bits=18), random_state=0).fit(X, y)
    assert model.learner_.arrays["v"].size == 2**18 + 63  # 5000 features x 1500 classes would be 7.5 million
    assert model.score(X, y) > 0.9


def test_classes_grow_without_moving_a_weight():
    X, y = sparse_problem(n_rows=3000, n_classes=6, noise=0.0, seed=4)
    order = np.argsort(y, kind="stable")
    labels = np.array(["ant", "bee", "cat", "dog", "elk", "fox"])[y]
    model = st.LinearClassifier(multi_class=st.Hashed(bits=14), solver="sgd", eta0=1.0)
    seen = []
    for rows in np.array_split(order, 12):
        model.partial_fit(X[rows], labels[rows])
        seen.append(len(model.classes_))
        assert model.learner_.arrays["v"].shape == (2**14 + 63,)
        assert model.decision_function(X[:5]).shape == ((5,) if seen[-1] <= 2 else (5, seen[-1]))
        assert set(model.predict(X[:50])) <= set(model.classes_)
    assert seen[0] == 1
    assert seen[-1] == 6
    for _ in range(6):
        model.partial_fit(X, labels)
    assert model.score(X, labels) > 0.75


def test_several_labels_a_row_share_the_table_too():
    X, y = sparse_problem(n_rows=1200, n_classes=4, seed=5)
    Y = np.eye(4, dtype=int)[y] | np.eye(4, dtype=int)[(y + 1) % 4]
    ovr = st.LinearClassifier(random_state=0, dtype="float64").fit(X, Y)
    hashed = st.LinearClassifier(multi_class="hashed", random_state=0, dtype="float64").fit(X, Y)
    np.testing.assert_allclose(hashed.decision_function(X), ovr.decision_function(X), rtol=1e-6, atol=1e-8)
    assert hashed.top_features(3).keys() == ovr.top_features(3).keys()


def test_names_and_explanations_speak_of_the_right_class():
    texts = ["ball goal team", "vote law party", "cake flour oven", "goal ball", "law vote", "oven cake"] * 30
    labels = ["sport", "politics", "food", "sport", "politics", "food"] * 30
    model = st.LinearClassifier(multi_class="hashed", hasher=st.Hasher(n_bits=16, names=100), random_state=0)
    model.fit(texts, labels)
    assert model.learner_.settings.table_bits == 16  # as many as the hasher has
    tops = {label: {name for name, _ in pairs} for label, pairs in model.top_features(2).items()}
    assert tops["sport"] <= {"ball", "goal", "team"}
    assert tops["politics"] <= {"vote", "law", "party"}
    parts = model.explain("ball vote")
    for k, label in enumerate(model.classes_):
        total = sum(part.contribution for part in parts[label]) + model.intercept_[k]
        assert total == pytest.approx(model.decision_function(["ball vote"])[0, k], rel=1e-4, abs=1e-5)
    assert 0 < model.collision_report().named_weight <= 1


@pytest.mark.parametrize("y_classes", [2, 3])
def test_explanations_without_names_add_up(y_classes):
    X, y = sparse_problem(n_rows=500, n_classes=y_classes, seed=6)
    model = st.LinearClassifier(multi_class=st.Hashed(bits=10), random_state=0).fit(X, y)
    decision = np.atleast_1d(model.decision_function(X[:1])[0])[-1]
    total = sum(part.contribution for part in model.explain(X[:1])[y_classes - 1]) + model.intercept_[-1]
    assert total == pytest.approx(decision, rel=1e-4, abs=1e-5)
    assert len(model.top_features(5)) == y_classes


@pytest.mark.parametrize(
    ("options", "what"),
    [
        (dict(penalty="l1", solver="sgd"), "solver='sgd' shrinks"),
        (dict(penalty="l1", solver="truncated"), "solver='truncated' shrinks"),
        (dict(penalty="elasticnet", solver="sgd"), "use solver='ftrl'"),
        (dict(multi_class=st.Hashed(5)), "table_bits"),
        (dict(multi_class=st.Hashed(31)), "at most 30"),
        (dict(multi_class=st.Hashed("many")), "table_bits"),
    ],
)
def test_what_cannot_work_is_refused_with_the_way_out(options, what):
    X, y = sparse_problem(n_rows=100, n_classes=3, seed=7)
    with pytest.raises(ValueError, match=what):
        st.LinearClassifier(**{"multi_class": "hashed", **options}).fit(X, y)


def test_weights_of_rows_count_and_a_new_column_weighs_nothing(tmp_path):
    X, y = sparse_problem(n_rows=400, n_classes=3, seed=8)
    weight = np.random.default_rng(0).integers(0, 4, 400)
    options = dict(multi_class=st.Hashed(bits=12), eta0=0.5, shuffle="never", solver="sgd", random_state=0)
    weighted = st.LinearClassifier(**options).fit(X, y, sample_weight=weight)
    rows = np.repeat(np.arange(400), weight)
    copies = st.LinearClassifier(**options).fit(X[rows], y[rows])
    np.testing.assert_array_equal(weighted.coef_, copies.coef_)
    wider = sp.csr_matrix(sp.hstack([X, sp.csr_matrix(np.ones((400, 1)))]))
    np.testing.assert_array_equal(
        weighted.learner_.scores(st.from_arrays(wider).block), weighted.learner_.scores(st.from_arrays(X).block)
    )


def test_an_unknown_class_hash_is_refused(tmp_path):
    from steepest.learners.linear.linear_settings import LinearSettings

    X, y = sparse_problem(n_rows=100, n_classes=3, seed=9)
    plain = st.LinearClassifier(multi_class=st.Hashed(bits=8)).fit(X, y).learner_.settings.as_dict()
    assert plain["class_hash"] == "classes-1"
    with pytest.raises(st.DataError, match="'classes-9'"):
        LinearSettings.from_dict({**plain, "class_hash": "classes-9"})


def test_learning_that_overflows_goes_back_though_classes_were_added():
    X, y = sparse_problem(n_rows=3000, n_classes=4, seed=10)
    model = st.LinearClassifier("squared_hinge", multi_class=st.Hashed(bits=12), solver="sgd", eta0=0.1, alpha=0.0)
    model.partial_fit(X[y < 2], y[y < 2])
    model.learner_.keep_good_state()
    model.partial_fit(X, y)
    model.learner_.eta0 = 1e6
    model.partial_fit(X, y)
    assert model.learner_.good.rollbacks > 0
    assert np.isfinite(model.decision_function(X)).all()
    assert model.decision_function(X).shape == (3000, 4)
