"""Networks: their gradients, graphs, and what they can learn."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st_
from sklearn.datasets import dump_svmlight_file

import steepest as st
from conftest import sparse_problem
from steepest.learners.losses import LOSSES
from steepest.learners.network.graph import INPUT, OUTPUT, backward, forward
from steepest.learners.network.network import NetworkLearner
from steepest.learners.network.network_settings import NetworkSettings
from steepest.learners.network.network_start import Start

GOLDEN = Path(__file__).parents[1] / "golden"
SMOOTH = ("tanh", "sigmoid", "identity")
SOLVERS = ("sgd", "momentum", "adagrad", "adam")


def same_bits(a, b):
    ours, others = a.weights_, b.weights_
    assert ours.keys() == others.keys()
    for name in ours:
        np.testing.assert_array_equal(ours[name], others[name], err_msg=name)


# -------------------------------------------------------------------------------------------------------- gradients


@st_.composite
def graphs(draw):
    """Random directed acyclic graphs: every node reads some earlier ones, and all ends lead to the output."""
    graph = st.Graph()
    names = ["x"]
    for number in range(draw(st_.integers(1, 5))):
        inputs = draw(st_.lists(st_.sampled_from(names), min_size=1, max_size=3, unique=True))
        graph.add(f"n{number}", draw(st_.integers(1, 4)), draw(st_.sampled_from(SMOOTH)), inputs=inputs)
        names.append(f"n{number}")
    for name in names:
        if not graph.targets(name) or draw(st_.booleans()):
            graph.connect(name, "y")
    return graph.check()


def learner_for(graph, loss, X, y, task="classify", init="glorot", **more):
    learner = NetworkLearner(
        NetworkSettings(graph.as_dict(), task=task, loss=loss, loss_parameter=0.3, init=init, dtype="float64", **more),
        X.shape[1],
    )
    rows = st.from_arrays(X, y).block
    learner.targets.announce(rows)
    learner.survey(rows)
    for name, array in learner.arrays.items():  # biases start at zero, where a wrong gradient might hide
        if name.startswith("bias"):
            array += np.random.default_rng(len(name)).standard_normal(array.shape)
    return learner, rows


def loss_and_gradients(learner, rows):
    """Mean loss of some rows, in the units of the outputs, and its gradient by every parameter; nothing changes."""
    t, layer, arrays = learner.targets, learner.input, learner.arrays
    coded, dense = t.code(rows), layer.densify(arrays, rows)[0]
    carried = {target: layer.dense_products(arrays, dense, target) for target in layer.targets}
    passed = forward(learner.stations, arrays, carried)
    output = passed.h[OUTPUT]
    of_nodes = backward(learner.stations, arrays, passed, t.gradients(output, coded) / rows.n_rows)
    gradients = learner._gradients(passed, of_nodes)
    for target in layer.targets:
        gradients[f"{INPUT}>{target}"] = layer.dense_gradient(arrays, dense, target, of_nodes[target])
    if t.loss.kind == "real":
        losses = t.loss.value(output, (coded - t.shift) / t.scale, t.parameter_of_outputs)
    else:
        losses = t.losses(t.scores(output), coded)
    return float(losses.sum()) / rows.n_rows, gradients


def check_gradients(learner, rows):
    loss, gradients = loss_and_gradients(learner, rows)
    assert np.isfinite(loss)
    for name, gradient in gradients.items():
        array = learner.arrays[name]
        assert gradient.shape == array.shape
        for place in np.ndindex(array.shape):
            before, step = array[place], 1e-6
            array[place] = before + step
            above = loss_and_gradients(learner, rows)[0]
            array[place] = before - step
            below = loss_and_gradients(learner, rows)[0]
            array[place] = before
            assert gradient[place] == pytest.approx((above - below) / (2 * step), rel=1e-4, abs=1e-7), name


@pytest.mark.independent
@given(graph=graphs(), seed=st_.integers(0, 1000), n_classes=st_.integers(2, 4))
@settings(max_examples=40)
def test_gradients_of_random_graphs_are_the_slopes_of_the_loss(graph, seed, n_classes):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((6, 3))
    check_gradients(*learner_for(graph, "softmax", X, np.arange(6) % n_classes, seed=seed))


@pytest.mark.parametrize("loss", sorted(LOSSES))
def test_gradients_of_every_loss(loss):
    rng = np.random.default_rng(1)
    X = rng.standard_normal((7, 4))
    kind = LOSSES[loss].kind
    y = np.arange(7) % 3 if kind == "binary" else rng.poisson(3.0, 7) if kind == "count" else rng.standard_normal(7) * 9
    graph = st.Graph.layered([3, 2])
    check_gradients(*learner_for(graph, loss, X, y, "classify" if kind == "binary" else "regress"))


def test_gradients_of_relu_and_of_radial_units():
    rng = np.random.default_rng(2)
    X, y = rng.standard_normal((8, 3)), rng.standard_normal((8, 2))
    check_gradients(*learner_for(st.Graph.layered([5, 4], "relu"), "squared", X, y, "regress"))
    learner, rows = learner_for(st.Graph.radial(4), "squared", X, y, "regress")
    learner.arrays["x>h1"][...] = rng.standard_normal((3, 4))
    learner.arrays["gamma h1"][...] = rng.standard_normal(4)
    check_gradients(learner, rows)


def test_sign_learns_straight_through_its_clipped_identity():
    rng = np.random.default_rng(3)
    X = rng.standard_normal((400, 2))
    y = (X[:, 0] * X[:, 1] > 0).astype(int)
    model = st.NetworkClassifier(hidden=(64,), link="sign", epochs=100, eta0=0.02, random_state=0).fit(X, y)
    assert model.score(X, y) > 0.85
    hidden = np.sign(X.astype(np.float32) @ model.weights_["x>h1"] + model.weights_["bias h1"])
    scores = hidden @ model.weights_["h1>y"] + model.weights_["bias y"]
    np.testing.assert_allclose(model.decision_function(X), scores[:, 0], rtol=1e-4, atol=1e-4)


# ---------------------------------------------------------------------------------------------------------- graphs


@pytest.mark.independent
def test_a_layered_network_is_the_chain_of_its_products():
    X, y = sparse_problem(n_rows=300, n_features=30, n_classes=3, density=0.3, seed=30)
    model = st.NetworkClassifier(hidden=(7, 5), epochs=3, random_state=0).fit(X, y)
    w, h = model.weights_, X.toarray()
    for name, below in (("h1", "x"), ("h2", "h1")):
        h = np.tanh(h @ w[f"{below}>{name}"] + w[f"bias {name}"])
    np.testing.assert_allclose(model.decision_function(X), h @ w["h2>y"] + w["bias y"], rtol=1e-4, atol=1e-5)


def test_a_skip_connection_holds_the_linear_model():
    X, y = sparse_problem(n_rows=2000, n_features=50, density=0.2, noise=0.0, seed=31)
    graph = st.Graph().add("h", 1, "sigmoid", inputs="x").connect("h", "y").connect("x", "y")
    model = st.NetworkClassifier(hidden=graph, epochs=40, eta0=0.02, random_state=0).fit(X, y)
    assert model.score(X, y) > 0.95
    assert model.weights_["x>y"].shape == (50, 1)


def test_describe_and_svg_show_every_node_and_edge():
    graph = st.Graph().add("a", 3, "tanh", inputs="x").add("b<", 2, "relu", inputs=["x", "a"])
    graph.connect("b<", "y").connect("a", "y")
    assert graph.describe().splitlines() == [
        "x   input",
        "a   3 x tanh      <- x",
        "b<  2 x relu      <- x, a",
        "y   output        <- b<, a",
    ]
    drawing = graph.svg()
    assert drawing.count("<rect") == 4
    assert drawing.count("<path") == 5
    assert "b&lt;" in drawing
    import xml.etree.ElementTree as ElementTree

    assert ElementTree.fromstring(drawing).tag.endswith("svg")
    assert repr(graph) == "Graph(x>a, x>b<, a>b<, b<>y, a>y)"


def test_graphs_that_cannot_work_are_refused_with_a_sentence():
    cyclic = st.Graph().add("a", 2, inputs="x").add("b", 2, inputs="a").connect("b", "a").connect("b", "y")
    with pytest.raises(st.ParameterError, match="the graph has a cycle through b, a; remove one of its edges"):
        st.NetworkClassifier(hidden=cyclic).fit([[0.0], [1.0]], [0, 1])
    with pytest.raises(st.ParameterError, match="nothing reads the node 'a'"):
        st.Graph().add("a", 2, inputs="x").connect("x", "y").check()
    with pytest.raises(st.ParameterError, match="the node 'a' reads nothing"):
        st.Graph().add("a", 2).connect("a", "y").connect("x", "y").check()
    with pytest.raises(st.ParameterError, match="there is no node 'b'"):
        st.Graph().connect("x", "b")
    with pytest.raises(st.ParameterError, match="is taken"):
        st.Graph().add("x", 2)
    with pytest.raises(st.ParameterError, match="link='swish' is unknown; choose one of tanh"):
        st.Graph().add("a", 2, "swish")
    with pytest.raises(st.ParameterError, match="size of node 'a'"):
        st.Graph().add("a", 0)
    with pytest.raises(st.ParameterError, match="nothing may lead into the input"):
        st.Graph().add("a", 2, inputs="x").connect("a", "y").connect("y", "x").check()


# --------------------------------------------------------------------------------------------- what they can learn


def parity(n_bits):
    X = ((np.arange(2**n_bits)[:, None] >> np.arange(n_bits)) & 1) * 2.0 - 1.0
    return X, (X > 0).sum(axis=1) % 2


def spirals(n=80):
    angle = np.linspace(0.5, 3 * np.pi, n)
    arm = np.column_stack([angle * np.cos(angle), angle * np.sin(angle)]) / 5
    return np.concatenate([arm, -arm]), np.repeat([0, 1], n)


FREE = dict(alpha=0.0)


@pytest.mark.parametrize("seed", range(20))
def test_xor_by_two_hidden_units_from_every_seed(seed):
    X, y = parity(2)
    model = st.NetworkClassifier(
        hidden=(2,), epochs=300, eta0=0.05, restarts=st.Restarts(4, fraction=0), random_state=seed, **FREE
    )
    assert model.fit(X, y).score(X, y) == 1.0


@pytest.mark.parametrize("seed", range(20))
def test_parity_of_eight_bits_from_every_seed(seed):
    X, y = parity(8)
    model = st.NetworkClassifier(
        hidden=(24,),
        epochs=400,
        eta0=0.05,
        batch_size=128,
        restarts=st.Restarts(2, fraction=0),
        random_state=seed,
        **FREE,
    )
    assert model.fit(X, y).score(X, y) == 1.0


@pytest.mark.parametrize("seed", range(20))
def test_two_spirals_from_every_seed(seed):
    X, y = spirals()
    model = st.NetworkClassifier(
        hidden=(24, 24),
        epochs=100,
        eta0=0.02,
        batch_size=8,
        restarts=st.Restarts(2, fraction=0),
        random_state=seed,
        **FREE,
    )
    assert model.fit(X, y).score(X, y) == 1.0


def test_units_that_start_at_zero_never_part():
    X, y = sparse_problem(n_rows=500, n_features=20, density=0.5, seed=32)
    trapped = st.NetworkClassifier(hidden=st.Layers((8,), init="zero"), epochs=5, random_state=0).fit(X, y)
    w = trapped.weights_["x>h1"]
    np.testing.assert_array_equal(w, np.repeat(w[:, :1], 8, axis=1))
    free = st.NetworkClassifier(hidden=st.Layers((8,), init="uniform"), epochs=5, random_state=0).fit(X, y)
    assert np.linalg.matrix_rank(free.weights_["x>h1"]) == 8


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("sparse", [True, False])
def test_every_solver_learns_sparse_and_dense_rows(solver, sparse):
    X, y = sparse_problem(n_rows=2000, n_features=60, n_classes=3, density=0.1 if sparse else 0.7, noise=0.0, seed=33)
    model = st.NetworkClassifier(hidden=(16,), solver=solver, epochs=40, random_state=0).fit(X, y)
    assert model.learner_.dense is not sparse
    assert model.score(X, y) > 0.9
    assert model.history_[-1]["loss"] < model.history_[0]["loss"]


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("penalty", ["none", "l2", "l1", "elasticnet"])
def test_dense_and_sparse_rows_follow_the_same_rule(solver, penalty):
    X, y = sparse_problem(n_rows=400, n_features=30, density=0.3, seed=34)
    options = dict(hidden=(5,), solver=solver, penalty=penalty, alpha=1e-3, epochs=2, dtype="float64", random_state=0)
    models = [st.NetworkClassifier(**options) for _ in range(2)]
    for model, dense in zip(models, (False, True), strict=True):
        model.partial_fit(X[:1], y[:1], classes=[0, 1])
        learner = model.learner_
        learner.waiting.take()
        rows = st.from_arrays(X, y).block
        learner.survey(rows)
        learner.dense = dense
        for start in range(0, 400, 20):
            learner.step(rows.span(start, start + 20))
    for name, array in models[0].weights_.items():
        np.testing.assert_allclose(array, models[1].weights_[name], rtol=1e-7, atol=1e-9, err_msg=name)


def test_l1_leaves_zeros_and_l2_keeps_weights_small():
    X, y = sparse_problem(n_rows=1500, n_features=100, seed=35)
    fit = lambda **more: st.NetworkClassifier(hidden=(8,), solver="sgd", epochs=10, random_state=0, **more).fit(X, y)
    free, l1, l2 = fit(alpha=0.0), fit(penalty="l1", alpha=0.01), fit(alpha=0.05)
    assert l1.n_nonzero_ < 0.8 * free.n_nonzero_
    norm = lambda model: sum(float(np.square(w).sum()) for name, w in model.weights_.items() if ">" in name)
    assert norm(l2) < 0.7 * norm(free)
    assert l1.history_[-1]["nonzeros"] == l1.n_nonzero_


def test_the_penalty_finds_the_minimum_of_the_objective():
    rng = np.random.default_rng(5)
    X = rng.standard_normal((500, 4))
    y = X @ [1.0, -2.0, 0.5, 0.0] + 0.1 * rng.standard_normal(500)
    y = (y - y.mean()) / y.std()
    graph = st.Graph().connect("x", "y")
    options = dict(hidden=graph, solver="sgd", alpha=0.5, epochs=200, eta0=0.05, batch_size=50, dtype="float64")
    model = st.NetworkRegressor(**options, random_state=0).fit(X, y)
    centred = X - X.mean(axis=0)
    ridge = np.linalg.solve(centred.T @ centred / 500 + 0.5 * np.eye(4), centred.T @ y / 500)
    np.testing.assert_allclose(model.weights_["x>y"][:, 0], ridge, atol=0.01)


@pytest.mark.parametrize("loss", ["squared", "huber", "epsilon_insensitive", "quantile", "poisson"])
def test_regression_losses_learn_targets_of_any_size(loss):
    rng = np.random.default_rng(6)
    X = rng.uniform(-2, 2, (1500, 1))
    y = rng.poisson(np.exp(1 + np.sin(2 * X[:, 0]))) if loss == "poisson" else 1e4 * (5 + np.sin(2 * X[:, 0]))
    model = st.NetworkRegressor(
        hidden=(32,), loss=st.Huber(1.0) if loss == "huber" else loss, epochs=60, eta0=0.02, random_state=0
    ).fit(X, y)
    truth = np.exp(1 + np.sin(2 * X[:, 0])) if loss == "poisson" else y
    assert np.corrcoef(model.predict(X), truth)[0, 1] > 0.97
    assert model.predict(X).mean() == pytest.approx(truth.mean(), rel=0.1)


@pytest.mark.parametrize("loss", ["softmax", *(name for name, loss in LOSSES.items() if loss.kind == "binary")])
def test_classification_losses_learn_and_only_some_have_probabilities(loss):
    X, y = sparse_problem(n_rows=1500, n_features=40, n_classes=3, density=0.2, noise=0.0, seed=36)
    eta0 = 0.003 if loss == "exponential" else 0.01
    model = st.NetworkClassifier(hidden=(16,), loss=loss, epochs=30, eta0=eta0, random_state=0).fit(X, y)
    assert model.score(X, y) > 0.85
    assert hasattr(model, "predict_proba") == (loss not in ("hinge", "perceptron"))
    if hasattr(model, "predict_proba"):
        np.testing.assert_allclose(model.predict_proba(X).sum(axis=1), 1.0)


def test_several_labels_and_several_numbers():
    X, _ = sparse_problem(n_rows=800, n_features=40, density=0.2, seed=37)
    Y = (X @ np.random.default_rng(0).standard_normal((40, 3)) > 0).astype(int)
    model = st.NetworkClassifier(hidden=(16,), epochs=40, random_state=0).fit(X, Y)
    assert (model.predict(X) == Y).mean() > 0.9
    assert model.predict_proba(X).shape == (800, 3)
    assert model.evaluate_stream(st.from_arrays(X, Y))["micro_f1"] > 0.9
    real = st.NetworkRegressor(hidden=(16,), epochs=40, random_state=0).fit(X, Y * 100.0)
    assert real.score(X, Y * 100.0) > 0.5


def test_early_stopping_keeps_the_best_epoch():
    X, y = sparse_problem(n_rows=600, n_features=100, noise=0.3, seed=38)
    model = st.NetworkClassifier(hidden=(64,), epochs=60, eta0=0.02, early_stopping=True, random_state=0).fit(X, y)
    held_out = model.history_.column("holdout_loss")
    assert len(held_out) < 60
    assert min(held_out) < held_out[-1]
    assert "no improvement" in model.history_.events[-1]


def test_restarts_keep_the_start_that_is_best_on_held_out_rows():
    X, y = sparse_problem(n_rows=600, n_features=60, noise=0.1, seed=39)
    source, validation = st.from_arrays(X, y).holdout(0.3, 1)
    single = [
        st.NetworkClassifier(hidden=(4,), epochs=3, random_state=seed).fit_stream(source, validation)
        for seed in range(7, 10)
    ]
    losses = [model.history_[-1]["holdout_loss"] for model in single]
    best = st.NetworkClassifier(hidden=(4,), epochs=3, restarts=3, random_state=7).fit_stream(source, validation)
    same_bits(best, single[int(np.argmin(losses))])
    assert f"kept start {int(np.argmin(losses)) + 1} of 3" in best.history_.events[-1]
    assert best.random_state == 7


def test_hidden_auto_is_rows_over_features():
    X, y = sparse_problem(n_rows=1000, n_features=100, seed=40)
    assert st.NetworkClassifier("auto", epochs=1).fit(X, y).weights_["x>h1"].shape == (100, 10)
    assert st.NetworkClassifier("auto", epochs=1).fit(X[:50], y[:50]).weights_["x>h1"].shape == (100, 2)


def test_class_weights_move_the_border():
    X, y = sparse_problem(n_rows=1000, n_features=40, density=0.2, noise=0.2, seed=41)
    fit = lambda weight: st.NetworkClassifier(hidden=(4,), epochs=10, class_weight=weight, random_state=0).fit(X, y)
    assert (fit({1: 20.0}).predict(X) == 1).mean() > (fit(None).predict(X) == 1).mean() + 0.1
    rare = np.where(np.arange(1000) % 10 == 0, y, 0)
    assert (fit("balanced").fit(X, rare).predict(X) == 1).mean() > (fit(None).fit(X, rare).predict(X) == 1).mean()


# -------------------------------------------------------------------------------------------------------- states


def make(**more):
    return st.NetworkClassifier(**{"hidden": (6,), "epochs": 1, "batch_size": 16, "random_state": 0, **more})


def test_merge_is_the_mean_by_rows():
    X, y = sparse_problem(n_rows=900, seed=48)
    parts = [make().partial_fit(X[a:b], y[a:b], classes=[0, 1]) for a, b in ((0, 600), (600, 900))]
    merged = parts[0].learner_.merge([part.learner_.state for part in parts])
    for name, array in merged.parameters().items():
        expected = (2 * parts[0].weights_[name] + parts[1].weights_[name]) / 3
        np.testing.assert_allclose(array, expected, rtol=1e-5, atol=1e-6)
    assert merged.rows_learned == 900


def test_features_may_appear_at_any_time():
    X, y = sparse_problem(n_rows=2000, n_features=64, seed=49)
    learner = make().partial_fit(X, y).learner_
    grown = NetworkLearner(learner.settings, 0, [])
    early = st.from_arrays(X[:, :40].tocsr(), y).block
    for start in range(0, 1008, 16):
        grown.step(early.span(start, start + 16))
    assert grown.n_features == 40
    grown.step(st.from_arrays(X, y).block.span(1008, 2000))
    assert grown.parameters()["x>h1"].shape == (64, 6)
    # a feature's first weights do not depend on when it was first seen
    fresh = NetworkLearner(learner.settings, 64, [0, 1])
    start = Start(fresh.settings, fresh.graph, 64, 1, grown.spread)
    np.testing.assert_array_equal(start.weights("x", "h1", 0, 64)[50:60], start.weights("x", "h1", 50, 60))


# ------------------------------------------------------------------------------------------------ sources and texts


def test_raw_texts_files_and_streams(tmp_path):
    texts = ["cheap pills now", "meeting at noon", "win cash", "lunch at noon"] * 50
    labels = ["spam", "ham", "spam", "ham"] * 50
    model = st.NetworkClassifier(hidden=(4,), epochs=20, hasher=st.Hasher(n_bits=10), random_state=0).fit(texts, labels)
    model.save(tmp_path / "m.steepest")
    assert st.load(tmp_path / "m.steepest").predict(["cash pills", "noon meeting"]).tolist() == ["spam", "ham"]
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(json.dumps({"text": t, "label": y}) + "\n" for t, y in zip(texts, labels, strict=True)))
    streamed = st.NetworkClassifier(hidden=(4,), epochs=20, hasher=st.Hasher(n_bits=10), random_state=0)
    source = st.scan(file, text="text")  # so few different texts would count as categories
    streamed.fit_stream(source)
    assert streamed.evaluate_stream(source)["accuracy"] == 1.0
    assert streamed.classes_.tolist() == ["ham", "spam"]


def test_new_features_at_prediction_are_passed_over():
    X, y = sparse_problem(n_rows=300, n_features=30, seed=51)
    model = make(epochs=2).fit(X, y)
    wide = sp.hstack([X, sp.csr_matrix(np.ones((300, 2), np.float32))]).tocsr()
    scores = np.concatenate([model._scores(chunk) for chunk in st.from_arrays(wide, y)])
    np.testing.assert_array_equal(scores[:, 0], model.decision_function(X))


def test_golden_network_loads_and_predicts_the_stored_numbers():
    stored = json.loads((GOLDEN / "network-1.json").read_text())
    model = st.load(GOLDEN / "network-1.steepest")
    np.testing.assert_allclose(model.decision_function(stored["texts"]), stored["scores"], rtol=1e-4, atol=1e-5)
    assert model.predict(stored["texts"]).tolist() == stored["labels"]
    assert model.graph_.describe() == stored["graph"]
    model.partial_fit(stored["texts"][:2], stored["labels"][:2])  # and it can go on learning


# -------------------------------------------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (dict(hidden=0), "hidden=0 must be at least 1"),
        (dict(hidden=(4, 0)), "hidden=0 must be at least 1"),
        (dict(hidden=()), "leaves a linear model"),
        (dict(hidden="large"), "hidden='large' is unknown; choose one of auto"),
        (dict(link="swish"), "link='swish' is unknown; choose one of tanh, sigmoid"),
        (dict(loss="squared"), "loss='squared' is unknown; did you mean 'squared_hinge'. choose one of softmax"),
        (dict(solver="ftrl"), "solver='ftrl' is unknown; choose one of sgd, momentum"),
        (dict(hidden=st.Layers(init="ones")), "init='ones' is unknown"),
        (dict(solver=st.Adam(momentum=1.0)), "momentum=1.0 must be below 1"),
        (dict(batch_size=0), "batch_size=0 must be at least 1"),
        (dict(restarts=0), "restarts=0 must be at least 1"),
        (dict(penalty="lp"), "penalty='lp' is for linear models"),
        (dict(eta0=-1.0), "eta0=-1.0 must be more than 0"),
        (dict(early_stopping=st.EarlyStopping(fraction=0)), "fraction=0 must lie between 0 and 1"),
    ],
)
def test_parameters_that_cannot_work_are_named(options, message):
    with pytest.raises(st.ParameterError, match=message.replace("(", r"\(")):
        st.NetworkClassifier(**options).fit([[0.0], [1.0]], [0, 1])


def test_rows_that_cannot_be_learned_are_named():
    with pytest.raises(st.DataError, match="NaN"):
        st.NetworkClassifier().fit([[0.0], [np.nan]], [0, 1])
    X, y = sparse_problem(n_rows=100, seed=52)
    X.data[50] = np.inf
    with pytest.raises(st.DataError, match=r"Input X contains infinity: row \d+, column \d+"):
        make().fit(X, y)
    X.data[50] = 1.0
    model = make().fit(X, y)
    X.data[50] = np.nan
    with pytest.raises(st.DataError, match="Input X contains NaN"):
        model.predict(X)
    X.data[50] = 1.0
    X.indices[50] = 200
    with pytest.raises(st.DataError, match="has the column index 200"):
        make().fit(X, y)
    with pytest.raises(st.DataError, match="one class only"):
        make().fit(X[:4], [1, 1, 1, 1])
    with pytest.raises(st.DataError, match="was never seen in training"):
        model.evaluate_stream(st.from_arrays(sparse_problem(n_rows=3)[0], [0, 1, 7]))
    with pytest.raises(st.DataError, match="is negative"):
        st.NetworkRegressor(loss="poisson").fit([[0.0], [1.0]], [1.0, -1.0])
    with pytest.raises(st.ParameterError, match="number this source does not know"):
        st.NetworkClassifier(schedule="linear").partial_fit([[0.0], [1.0]], [0, 1])


def test_exploding_scores_go_back_and_say_so():
    rng = np.random.default_rng(8)
    X = 100 * rng.standard_normal((3000, 5))
    y = X[:, 0]
    model = st.NetworkRegressor(
        hidden=(8, 8), link="relu", solver="sgd", eta0=1e6, schedule="constant", epochs=2, random_state=0
    ).fit(X, y)
    assert any(
        "returned to the last good state and halved the step size from 1e+06" in e for e in model.history_.events
    )
    assert np.isfinite(model.predict(X)).all()
    assert all(np.isfinite(w).all() for w in model.weights_.values())


# -------------------------------------------------------------------------------------------------- the command line


def test_the_command_line_trains_predicts_evaluates_and_inspects(tmp_path, capsys):
    from steepest.cli import main

    X, y = sparse_problem(n_rows=1500, n_features=40, density=0.2, noise=0.0, seed=53)
    data, model = str(tmp_path / "rows.svm"), str(tmp_path / "m.steepest")
    dump_svmlight_file(X, y, data, zero_based=False)
    assert main(["train", data, "-m", model, "--task", "network", "--hidden", "8,4", "--epochs", "30", "--quiet"]) == 0
    assert main(["evaluate", model, data, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["accuracy"] > 0.9
    assert main(["predict", model, data, "--proba"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 1501
    assert main(["inspect", model]) == 0
    shown = capsys.readouterr().out
    assert "h2  4 x tanh      <- h1" in shown
    assert "40 features" in shown
    assert main(["inspect", model, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["graph"].startswith("x ")
    assert main(["train", data, "-m", model, "--task", "network", "--hidden", "0"]) == 2
    assert "--hidden 0 must be at least 1" in capsys.readouterr().err
    assert main(["train", data, "-m", model, "--task", "classify", "--hidden", "4"]) == 2
    assert "--hidden has no meaning with --task classify" in capsys.readouterr().err


def test_the_command_line_learns_numbers_where_the_loss_says_so(tmp_path, capsys):
    from steepest.cli import main

    X, _ = sparse_problem(n_rows=800, n_features=20, density=0.4, seed=54)
    data, model = str(tmp_path / "rows.svm"), str(tmp_path / "m.steepest")
    dump_svmlight_file(X, X @ np.arange(20) / 10, data, zero_based=False)
    arguments = ["train", data, "-m", model, "--task", "network", "--loss", "squared", "--hidden", "16", "--quiet"]
    assert main(arguments) == 0
    assert isinstance(st.load(model), st.NetworkRegressor)
    assert main(["evaluate", model, data, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["r2"] > 0.5


if __name__ == "__main__":  # writes the golden file of the current format; run once a format version
    texts = ["cheap pills, cheap", "meeting at noon", "win cash now", "lunch at noon?", "ÜBER größe", ""]
    labels = ["spam", "ham", "spam", "ham", "other", "other"]
    graph = st.Graph().add("a", 3, "tanh", inputs="x").add("b", 2, "relu", inputs=["a", "x"])
    graph.connect("b", "y").connect("a", "y")
    golden = st.NetworkClassifier(graph, hasher=st.Hasher(n_bits=10), epochs=30, eta0=0.02, alpha=1e-3, random_state=0)
    golden.fit(texts, labels).save(GOLDEN / "network-1.steepest")
    plain = {"texts": texts, "scores": golden.decision_function(texts).tolist()}
    plain |= {"labels": golden.predict(texts).tolist(), "graph": golden.graph_.describe()}
    (GOLDEN / "network-1.json").write_text(json.dumps(plain, indent=1))
