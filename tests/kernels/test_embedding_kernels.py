"""The embedding kernels against their NumPy definition, their gradients against differences, and the tree of labels."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from steepest.data.chunk import Chunk
from steepest.kernels.reference import embedding as reference
from steepest.learners.embedding.embedding import LOSSES, EmbeddingLearner, EmbeddingSettings
from steepest.learners.embedding.label_tree import LabelTree

N_FEATURES, N_LABELS = 50, 19


def make_rows(seed, n=12, several=False, weighted=False):
    generator = np.random.default_rng(seed)
    lengths = generator.integers(0, 30, n)
    indptr = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    indices = np.concatenate([generator.choice(N_FEATURES, k, replace=False) for k in lengths]).astype(np.int32)
    values = generator.normal(1, 0.7, len(indices)).astype(np.float32)
    if several:
        y = (generator.random((n, N_LABELS)) < 0.15).astype(np.float64)
        y[np.arange(n), generator.integers(0, N_LABELS, n)] = 1.0
    else:
        y = generator.integers(0, N_LABELS, n).astype(np.float64)
    weight = generator.choice([0.5, 1.0, 2.0], n) if weighted else None
    return Chunk(indptr, indices, values, N_FEATURES, y, weight)


def make_learner(loss, dim, several=False, total=100.0, **replicas):
    counts = np.arange(1, N_LABELS + 1)
    options = EmbeddingSettings(dim, loss, eta0=0.7, total=total, negatives=4, seed=3, **replicas)
    learner = EmbeddingLearner(options, N_FEATURES, range(N_LABELS), counts, several_targets=several)
    learner.put_rows(np.arange(N_FEATURES), np.random.default_rng(0).normal(0, 0.5, (N_FEATURES, dim)))
    return learner


def plain(rows):
    """Rows as the reference takes them."""
    weight = np.ones(rows.n_rows) if rows.weight is None else rows.visited(rows.weight)
    parts = [slice(rows.indptr[i], rows.indptr[i + 1]) for i in rows.row_numbers]
    return [(rows.indices[part], rows.values[part], float(w)) for part, w in zip(parts, weight, strict=True)]


def ways_of(tree):
    """The way to each label."""
    spans = [slice(a, b) for a, b in zip(tree.start[:-1], tree.start[1:], strict=True)]
    return [list(zip(tree.node[s].tolist(), tree.side[s].tolist(), strict=True)) for s in spans]


def labels_of(rows, several):
    y = rows.visited(rows.y)
    return [np.flatnonzero(row).tolist() for row in y] if several else [[int(k)] for k in y]


@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize("dim", [3, 8, 16, 20, 32, 100])
@pytest.mark.parametrize("loss", LOSSES)
def test_learning_agrees_with_the_reference(loss, dim, several):
    learner = make_learner(loss, dim, several)
    rows = make_rows(dim, several=several, weighted=True).visit(np.random.default_rng(1).permutation(12))
    steps = [0.7 * (1 - t / 100.0) for t in range(rows.n_rows)]
    drawn = [reference.draw(learner._negatives(), 4, 3, t) if loss == "ns" else [] for t in range(rows.n_rows)]
    table, head, total = reference.learn(
        plain(rows),
        labels_of(rows, several),
        learner.table[:, :dim],
        learner.head[: learner.n_outputs, :dim],
        loss,
        steps,
        ways_of(learner.tree),
        drawn,
    )
    progress = learner.step(rows)
    np.testing.assert_allclose(learner.table[:, :dim], table, rtol=2e-4, atol=2e-5)
    np.testing.assert_allclose(learner.head[: learner.n_outputs, :dim], head, rtol=2e-4, atol=2e-5)
    assert progress.loss_sum == pytest.approx(total, rel=1e-4)
    assert not learner.table[:, dim:].any()  # padding stays empty


@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize("dim", [8, 16, 20])
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize(("n_replicas", "rows_each"), [(2, 3), (3, 2)])
def test_replicas_agree_with_the_reference(loss, dim, several, n_replicas, rows_each):
    learner = make_learner(loss, dim, several, n_replicas=n_replicas, sync_every=rows_each)
    rows = make_rows(dim, several=several, weighted=True).visit(np.random.default_rng(1).permutation(12))
    drawn = [reference.draw(learner._negatives(), 4, 3, t) if loss == "ns" else [] for t in range(rows.n_rows)]
    table, head, total = reference.learn_apart(
        plain(rows),
        labels_of(rows, several),
        learner.table[:, :dim],
        learner.head[: learner.n_outputs, :dim],
        loss,
        [0.7 * (1 - t / 100.0) for t in range(rows.n_rows)],
        n_replicas,
        rows_each,
        ways_of(learner.tree),
        drawn,
    )
    learner.n_threads = 2
    progress = learner.step(rows)
    np.testing.assert_allclose(learner.table[:, :dim], table, rtol=2e-4, atol=2e-5)
    np.testing.assert_allclose(learner.head[: learner.n_outputs, :dim], head, rtol=2e-4, atol=2e-5)
    assert progress.loss_sum == pytest.approx(total, rel=1e-4)


@pytest.mark.parametrize("loss", LOSSES)
def test_replicas_have_the_same_bits_for_any_number_of_threads_and_any_cuts(loss):
    rows = make_rows(4, n=500, weighted=True)
    one, *others = [make_learner(loss, 16, n_replicas=3, sync_every=5) for _ in range(4)]
    one.step(rows)
    for n_threads, learner in enumerate(others, 2):
        learner.n_threads = n_threads
        for start in range(0, 500, 123 * n_threads):
            learner.step(rows.span(start, min(500, start + 123 * n_threads)))
        for each in (one, learner):
            each.finish()
        np.testing.assert_array_equal(one.table, learner.table)
        np.testing.assert_array_equal(one.head, learner.head)
        np.testing.assert_array_equal(one.used_rows(), learner.used_rows())


@pytest.mark.parametrize("loss", ["softmax", "ns"])
def test_texts_that_wait_are_part_of_the_state(loss):
    rows = make_rows(6, n=50, several=True)
    whole, half = [make_learner(loss, 8, several=True, n_replicas=2, sync_every=8) for _ in range(2)]
    whole.step(rows)
    half.step(rows.span(0, 21))
    assert half.waiting.rows is not None
    resumed = EmbeddingLearner.from_state(half.settings, half.state)
    resumed.step(rows.span(21, 50))
    np.testing.assert_array_equal(whole.table, resumed.table)
    np.testing.assert_array_equal(whole.waiting.rows.indices, resumed.waiting.rows.indices)


def test_labels_that_appear_in_a_round_give_identical_bits_for_any_cuts():
    rows = make_rows(7, n=90)
    options = EmbeddingSettings(8, "softmax", eta0=0.5, n_replicas=2, sync_every=4)
    learners = [EmbeddingLearner(options, N_FEATURES) for _ in range(2)]
    learners[0].step(rows)
    for start in range(0, 90, 7):
        learners[1].step(rows.span(start, min(90, start + 7)))
    assert len(learners[0].book) == len(set(rows.y[:88]))
    np.testing.assert_array_equal(learners[0].book.labels, learners[1].book.labels)
    np.testing.assert_array_equal(learners[0].table, learners[1].table)


def test_a_round_that_overflows_is_learned_in_turn_after_going_back():
    learner = make_learner("softmax", 8, n_replicas=2, sync_every=4)
    learner.eta0 = 1e12
    progress = learner.step(make_rows(8, n=64))
    assert any("halved" in event for event in progress.events)
    assert progress.rows == learner.rows_learned == 64
    assert np.isfinite(learner.table).all()


@pytest.mark.parametrize("loss", ["softmax", "ova", "hs"])
def test_gradients_of_the_reference_agree_with_differences(loss):
    learner = make_learner(loss, 4)
    row = make_rows(5).span(2, 3)
    table, head = learner.table[:, :4].astype(np.float64), learner.head[: learner.n_outputs, :4].astype(np.float64)

    def run(table, head, step):
        return reference.learn(plain(row), labels_of(row, False), table, head, loss, [step], ways_of(learner.tree))

    moved_table, moved_head, _ = run(table, head, 1.0)
    for array, moved in ((table, moved_table), (head, moved_head)):
        for place in [(0, 0), (3, 1), (len(array) - 1, 2), (7, 3)]:
            before = array[place]
            array[place] = before + 1e-6
            high = run(table, head, 0.0)[2]
            array[place] = before - 1e-6
            low = run(table, head, 0.0)[2]
            array[place] = before
            assert before - moved[place] == pytest.approx((high - low) / 2e-6, abs=1e-6)


@pytest.mark.parametrize("loss", LOSSES)
def test_losses_are_those_that_learning_reports(loss):
    learner = make_learner(loss, 16, total=0.0)
    rows = make_rows(1)
    losses, _ = learner.losses(learner.code_for_scoring(rows.span(0, 1)))
    progress = learner.clone().step(rows.span(0, 1))
    if loss != "ns":  # which learns from some labels only
        assert progress.loss_sum == pytest.approx(losses[0], rel=1e-4)
    assert losses[0] > 0


def test_scores_of_a_tree_are_logarithms_of_probabilities():
    scores = make_learner("hs", 16).scores(make_rows(2))
    np.testing.assert_allclose(np.exp(scores).sum(axis=1), 1.0, rtol=1e-5)


@pytest.mark.parametrize("loss", LOSSES)
def test_scores_have_the_same_bits_for_any_number_of_threads(loss):
    learner, rows = make_learner(loss, 16), make_rows(3, n=500)
    np.testing.assert_array_equal(learner.scores(rows, 1), learner.scores(rows, 4))
    np.testing.assert_array_equal(learner.scores(rows, 1)[7:9], learner.scores(rows.span(7, 9), 1))


def test_fresh_rows_are_those_that_were_learned():
    options = EmbeddingSettings(8, "softmax", eta0=0.5)
    learner = EmbeddingLearner(options, N_FEATURES, [0.0, 1.0])
    rows = Chunk(
        np.array([0, 2, 3]), np.array([5, 9, 5], np.int32), np.ones(3, np.float32), N_FEATURES, np.array([0.0, 1.0])
    )
    learner.step(rows)
    assert learner.used_rows().tolist() == [5, 9]
    assert np.flatnonzero(learner.table[:-1].any(axis=1)).tolist() == [5, 9]


def test_an_index_out_of_range_is_reported():
    learner = make_learner("softmax", 8)
    rows = make_rows(0)
    rows.indices[3] = N_FEATURES
    with pytest.raises(ValueError, match="column index 50"):
        learner.step(rows)
    with pytest.raises(ValueError, match="column index 50"):
        make_learner("softmax", 8, n_replicas=2, sync_every=3).step(rows)


@given(some.lists(some.integers(1, 1000), min_size=2, max_size=60))
@settings(max_examples=50, deadline=None)
def test_huffman_is_no_deeper_than_any_level_tree(counts):
    tree = LabelTree.huffman(counts)
    depth = np.diff(tree.start)
    assert sum(0.5**d for d in depth) == pytest.approx(1.0)  # Kraft: complete and free of prefixes
    level = np.ceil(np.log2(len(counts)))
    assert np.dot(depth, counts) <= level * sum(counts)


@given(some.integers(2, 70), some.integers(2, 20))
@settings(max_examples=30, deadline=None)
def test_a_growing_tree_stays_complete_and_level(n, start):
    tree = LabelTree.huffman(np.ones(start))
    tree.grow(max(n, start))
    depth = np.diff(tree.start)
    assert len(depth) == max(n, start)
    assert sum(0.5**d for d in depth) == pytest.approx(1.0)
    assert depth.max() - depth.min() <= 2
