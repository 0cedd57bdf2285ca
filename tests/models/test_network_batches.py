"""Batches learned by one call of the kernels against the same batches by the definitions of graph and losses."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st_
from test_network import SOLVERS, graphs

import steepest as st
from steepest.errors import DataError
from steepest.learners.base import Progress
from steepest.learners.losses import LOSSES
from steepest.learners.network.graph import LINKS
from steepest.learners.network.network import NetworkLearner
from steepest.learners.network.network_settings import NetworkSettings

TOLERANCE = {"float32": dict(rtol=1e-3, atol=2e-4), "float64": dict(rtol=1e-9, atol=1e-11)}


def twins(graph, y, *, n_features=30, seed=0, weight=None, **options):
    """(learner by the kernels, learner by the definitions, rows), before the first batch of ten rows."""
    rng = np.random.default_rng(seed)
    X = sp.random(len(y), n_features, 0.2, "csr", np.float32, rng)
    rows = st.from_arrays(X, y, weight).block
    options = dict(batch_size=10, dtype="float64", eta0=0.05, seed=seed) | options
    learners = []
    for _ in range(2):
        learner = NetworkLearner(NetworkSettings(graph.as_dict(), **options), n_features)
        learner.targets.announce(rows)
        learner.survey(rows)
        learner.dense = False
        learners.append(learner)
    learners[1].dense, learners[1].batches = True, None
    return *learners, rows


def check_twins(native, plain, rows):
    progress = [Progress(), Progress()]
    native._learn(rows, progress[0])
    plain._learn(rows, progress[1])
    tolerance = TOLERANCE[native.settings.dtype]
    assert native.batches is not None
    assert native.arrays.keys() == plain.arrays.keys()
    for name, array in plain.arrays.items():
        np.testing.assert_allclose(native.arrays[name], array, err_msg=name, **tolerance)
    assert progress[0].mean_loss == pytest.approx(
        progress[1].mean_loss, rel=1e-4 if native.settings.dtype == "float32" else 1e-9
    )
    assert (progress[0].rows, progress[0].weight) == (progress[1].rows, progress[1].weight)


@given(
    graph=graphs(),
    seed=st_.integers(0, 99),
    solver=st_.sampled_from(SOLVERS),
    n_classes=st_.integers(2, 4),
    penalties=st_.sampled_from([(0.0, 0.0), (0.01, 0.0), (0.0, 0.1), (0.01, 0.1)]),
)
@settings(max_examples=60)
def test_batches_through_random_graphs_follow_the_definitions(graph, seed, solver, n_classes, penalties):
    l1, l2 = penalties
    check_twins(*twins(graph, np.arange(47) % n_classes, seed=seed, solver=solver, l1=l1, l2=l2))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("link", LINKS)
def test_every_link_follows_its_definition(link, dtype):
    check_twins(*twins(st.Graph.layered([9, 5], link), np.arange(60) % 3, dtype=dtype, solver="sgd", eta0=0.5))


@pytest.mark.parametrize("n_outputs", [1, 3])
@pytest.mark.parametrize("loss", sorted(LOSSES))
def test_every_loss_follows_its_definition(loss, n_outputs):
    rng, kind = np.random.default_rng(1), LOSSES[loss].kind
    if kind == "binary":
        y = rng.integers(0, 4 if n_outputs == 3 else 2, 50)
    else:
        y = rng.poisson(3.0, (50, n_outputs)) if kind == "count" else 5 + 9 * rng.standard_normal((50, n_outputs))
    task = "classify" if kind == "binary" else "regress"
    weight = rng.integers(1, 4, 50).astype(float)
    check_twins(*twins(st.Graph.layered([6]), y, loss=loss, task=task, loss_parameter=0.3, weight=weight, solver="sgd"))


@pytest.mark.parametrize("class_weight", ["balanced", {0: 2.0, 1: 0.5}])
def test_weights_of_classes_and_labels_in_columns_follow_the_definitions(class_weight):
    rng = np.random.default_rng(2)
    check_twins(
        *twins(st.Graph.layered([6]), (rng.random(60) < 0.2).astype(int), loss="log", class_weight=class_weight)
    )
    check_twins(*twins(st.Graph.layered([6]), rng.integers(0, 2, (60, 3)), loss="log"))


def test_a_step_of_the_kernels_goes_down_the_numerical_gradient():
    native, _, rows = twins(st.Graph.layered([4, 3]), np.arange(10) % 3, solver="sgd", eta0=1.0)
    before = {name: array.copy() for name, array in native.arrays.items() if name != "clock"}
    slopes = {}
    for name, array in before.items():
        for place in list(np.ndindex(array.shape))[:15]:
            found = []
            for step in (1e-6, -1e-6):
                native.arrays[name][place] = array[place] + step
                found.append(float(np.mean(native.losses(native.code_for_scoring(rows))[0])))
            native.arrays[name][place] = array[place]
            slopes[name, place] = (found[0] - found[1]) / 2e-6
    native._learn(rows, Progress())
    assert native.arrays["clock"][0] == 1
    for (name, place), slope in slopes.items():
        assert before[name][place] - native.arrays[name][place] == pytest.approx(slope, rel=1e-4, abs=1e-8), name


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("l2", [0.0, 0.01])
def test_threads_and_cuts_change_no_bit(solver, l2):
    y = np.random.default_rng(3).integers(0, 5, 200)
    graph = st.Graph.layered([33, 17]).connect("x", "y")
    whole, cut, rows = twins(graph, y, solver=solver, l2=l2, n_features=90, dtype="float32", batch_size=20)
    cut.dense, cut.batches = False, whole.batches
    cut.n_threads = 3
    whole._learn(rows, Progress())
    for start in range(0, 200, 40):
        cut._learn(rows.span(start, start + 40), Progress())
    for name, array in whole.arrays.items():
        np.testing.assert_array_equal(array, cut.arrays[name], err_msg=name)


def test_a_batch_that_overflows_is_rolled_back_and_learning_goes_on():
    y = np.random.default_rng(4).poisson(2.0, 60)
    native, plain, rows = twins(st.Graph.layered([4], "identity"), y, task="regress", loss="poisson")
    values = rows.values.copy()
    values[rows.indptr[20] : rows.indptr[30]] = 3e38  # numbers, but exp() of such scores is none
    for learner in (native, plain):
        progress = Progress()
        learner._learn(replace(rows, values=values), progress)
        assert learner.good.rollbacks == len(progress.events) == 1
        assert learner.rows_learned == 60
        assert progress.rows == 50
        assert learner.arrays["clock"][0] == 3  # batches behind the one that overflowed; it went back to the start
    for name, array in plain.arrays.items():
        np.testing.assert_allclose(native.arrays[name], array, rtol=1e-9, err_msg=name)


def test_a_bad_index_is_named_and_the_batches_before_it_stay_learned():
    native, _, rows = twins(st.Graph.layered([4]), np.arange(40) % 3)
    indices = rows.indices.copy()
    row = next(i for i in range(25, 40) if rows.indptr[i] < rows.indptr[i + 1])
    indices[rows.indptr[row]] = 4000
    bad = replace(rows, indices=indices)
    with pytest.raises(DataError, match=rf"row {row} has the column index 4000"):
        native._learn(bad, Progress())
    assert native.rows_learned == row // 10 * 10
    assert native.arrays["clock"][0] == row // 10
