"""The factorization kernels against their slow definition, and what must not matter to them."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as hs

from steepest import kernels
from steepest.data.entries import Entries
from steepest.kernels.reference import factors as reference
from steepest.learners.factors.factors import BIAS_SHRINK, SHRINK, new_table
from steepest.learners.factors.strata import make_strata
from steepest.learners.losses import get_loss

CHOICES = dict(
    loss="squared", mean=0.2, eta=0.1, l2=0.05, l2_bias=0.03, l1=0.0, rank=5, adaptive=True, block_steps=False,
    biases=True, nonnegative=False,
)  # fmt: skip


def native(choices):
    return kernels.FactorChoices(**{**choices, "loss": get_loss(choices["loss"]).code})


def make_table(n, rank, seed):
    table = new_table(n, rank)
    padded = table.shape[1] - 8
    kernels.factor_init(table, 0, rank, seed, 0.3)
    rng = np.random.default_rng(seed)
    table[:, padded] = rng.standard_normal(n) * 0.1
    table[:, padded + SHRINK] = rng.uniform(0.5, 2, n)
    table[:, padded + BIAS_SHRINK] = rng.uniform(0.5, 2, n)
    return table


def entries(n, n_users, n_items, seed=0):
    rng = np.random.default_rng(seed)
    return (
        rng.integers(0, n_users, n).astype(np.int32),
        rng.integers(0, n_items, n).astype(np.int32),
        rng.standard_normal(n).astype(np.float32),
    )


def learn(users, items, values, weights, tables, choices, liked=None):
    loss = np.zeros(1)
    bounds = [np.array([0, len(table)]) for table in tables]
    blocks = kernels.FactorBlocks(users, items, values, weights, np.array([0, len(users)]), *bounds)
    status = kernels.factor_learn(blocks, np.zeros(1, np.int32), *tables, native(choices), loss, 1, liked)
    return status, loss[0]


VARIANTS = [
    {},
    {"adaptive": False},
    {"biases": False},
    {"l1": 0.1},
    {"nonnegative": True},
    {"l1": 0.05, "nonnegative": True, "adaptive": False},
    {"loss": "log"},
    {"loss": "hinge"},
    {"loss": "epsilon_insensitive"},
    {"rank": 32},
    {"rank": 100},
    {"rank": 140},
]


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_sgd_is_its_definition(variant, weighted):
    choices = {**CHOICES, **variant}
    users, items, values = entries(300, 11, 7)
    if choices["loss"] in ("log", "hinge"):
        values = np.sign(values)
    weights = np.random.default_rng(1).uniform(0, 2, 300).astype(np.float32) if weighted else None
    tables = make_table(11, choices["rank"], 1), make_table(7, choices["rank"], 2)
    slow = tuple(table.astype(np.float64) for table in tables)
    status, loss = learn(users, items, values, weights, tables, choices)
    expected = reference.factor_sgd(users, items, values, weights, slow, {**choices, "loss": get_loss(choices["loss"])})
    assert status == 0
    assert loss == pytest.approx(expected, rel=1e-4)
    for fast, right in zip(tables, slow, strict=True):
        np.testing.assert_allclose(fast, right, rtol=2e-3, atol=2e-4)


def learn_block(users, items, values, weights, tables, choices):
    return learn(users, items, values, weights, tables, {**choices, "block_steps": True})


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(
    "variant", [v for v in VARIANTS if not v.get("l1") and not v.get("nonnegative")] + [{"rank": 136}], ids=str
)
def test_sgd_in_blocks_is_its_definition(variant, weighted):
    choices = {**CHOICES, "eta": 0.02, **variant}
    users, items, values = entries(300, 11, 7)
    if choices["loss"] in ("log", "hinge"):
        values = np.sign(values)
    weights = np.random.default_rng(1).uniform(0, 2, 300).astype(np.float32) if weighted else None
    tables = make_table(11, choices["rank"], 1), make_table(7, choices["rank"], 2)
    slow = tuple(table.astype(np.float64) for table in tables)
    status, loss = learn_block(users, items, values, weights, tables, choices)
    expected = reference.factor_sgd_block(
        users, items, values, weights, slow, {**choices, "loss": get_loss(choices["loss"])}
    )
    assert status == 0
    assert loss == pytest.approx(expected, rel=1e-4)
    for fast, right in zip(tables, slow, strict=True):
        np.testing.assert_allclose(fast[:, :-3], right[:, :-3], rtol=2e-3, atol=2e-4)


def test_sgd_in_blocks_refuses_rows_outside_its_tables_and_a_floor():
    users, items, values = entries(10, 4, 3)
    tables = make_table(4, 5, 1), make_table(3, 5, 2)
    assert learn_block(users + 1, items, values, None, tables, CHOICES)[0] == 1 or users.max() < 3
    values[0] = 1e30
    assert learn_block(users, items, values, None, tables, CHOICES)[0] == 2
    with pytest.raises(ValueError, match="floor"):
        learn_block(users, items, values, None, tables, {**CHOICES, "nonnegative": True})


@pytest.mark.parametrize("loss", ["squared", "log"])
def test_the_step_follows_the_gradient_of_the_objective(loss):
    choices = {**CHOICES, "loss": loss, "adaptive": False, "eta": 1e-3, "rank": 6}
    tables = make_table(1, 6, 3), make_table(1, 6, 4)
    one = np.zeros(1, np.int32)
    value = np.ones(1, np.float32)

    def objective(p, q):
        score = np.array([choices["mean"] + p[8] + q[8] + p[:8] @ q[:8]])
        total = float(get_loss(loss).value(score, np.ones(1), 0.0)[0])
        for row in (p, q):
            total += 0.5 * choices["l2"] * row[8 + SHRINK] * row[:8] @ row[:8]
            total += 0.5 * choices["l2_bias"] * row[8 + BIAS_SHRINK] * row[8] ** 2
        return total

    rows = [table[0].astype(np.float64) for table in tables]
    numeric = []
    for side in range(2):
        for j in [*range(6), 8]:
            ends = []
            for change in (1e-5, -1e-5):
                moved = [row.copy() for row in rows]
                moved[side][j] += change
                ends.append(objective(*moved))
            numeric.append((ends[0] - ends[1]) / 2e-5)
    learn(one, one, value, None, tables, choices)
    steps = np.concatenate([(old - table[0])[[*range(6), 8]] for old, table in zip(rows, tables, strict=True)])
    np.testing.assert_allclose(steps / 1e-3, numeric, rtol=2e-2, atol=2e-3)


def test_bpr_is_its_definition():
    choices = {**CHOICES, "loss": "log"}
    users, items, _ = entries(200, 9, 30, seed=5)
    liked = [set(items[users == u].tolist()) for u in range(9)]
    indptr = np.cumsum([0] + [len(s) for s in liked])
    indices = np.array([i for s in liked for i in sorted(s)], np.int32)
    tables = make_table(9, 5, 1), make_table(30, 5, 2)
    slow = tuple(table.astype(np.float64) for table in tables)
    _, loss = learn(users, items, np.ones(200, np.float32), None, tables, choices, (indptr, indices, 77))
    expected = reference.factor_bpr(users, items, liked, 77, slow, choices)
    assert loss == pytest.approx(expected, rel=1e-4)
    for fast, right in zip(tables, slow, strict=True):
        np.testing.assert_allclose(fast, right, rtol=2e-3, atol=2e-4)


def test_rows_start_from_numbers_of_their_own():
    table = new_table(40, 12)
    kernels.factor_init(table, 0, 12, 9, 0.5)
    np.testing.assert_allclose(table[:, :12], reference.factor_init(40, 12, 9, 0.5), rtol=1e-5)
    assert not table[:, 12:16].any()
    assert table[:, :12].std() == pytest.approx(0.5, rel=0.1)
    later = new_table(40, 12)
    kernels.factor_init(later, 25, 12, 9, 0.5)
    assert (later[25:] == table[25:]).all()


@settings(max_examples=30)
@given(hs.integers(1, 6), hs.integers(0, 400), hs.booleans(), hs.integers(0, 5))
def test_strata_hold_every_entry_once_and_in_its_block(d, n, weighted, seed):
    users, items, values = entries(n, 20, 13, seed)
    weights = np.abs(values) if weighted else None
    strata = make_strata(Entries(users, items, values, weights), 20, 13, d, seed)
    before = sorted(zip(strata.user_places[users], strata.item_places[items], values, strict=True))
    assert before == sorted(zip(strata.users, strata.items, strata.values, strict=True))
    for a in range(d):
        for b in range(d):
            cut = strata.block(a, b).entries
            assert (
                (strata.users[cut] >= strata.user_bounds[a]) & (strata.users[cut] < strata.user_bounds[a + 1])
            ).all()
            assert (
                (strata.items[cut] >= strata.item_bounds[b]) & (strata.items[cut] < strata.item_bounds[b + 1])
            ).all()
    if weighted:
        assert (np.abs(strata.values) == strata.weights).all()


def test_the_blocks_of_a_stratum_share_nothing_and_an_epoch_has_all():
    strata = make_strata(Entries(*entries(100, 20, 20), None), 20, 20, 5, 3)
    epoch = list(strata.sub_epochs(2))
    for stratum in epoch:
        assert len({block.users for block in stratum}) == len({block.items for block in stratum}) == 5
    assert sorted(strata.schedule(2).tolist()) == list(range(25))
    assert strata.schedule(2).tolist() != strata.schedule(3).tolist()
    assert [(b.users, b.items) for s in epoch for b in s] == [divmod(n, 5) for n in strata.schedule(2).tolist()]


@settings(max_examples=20)
@given(hs.integers(2, 8), hs.integers(2, 7), hs.integers(0, 3))
def test_results_are_bit_identical_for_any_threads_and_order_inside_a_stratum(threads, d, seed):
    strata = make_strata(Entries(*entries(2000, 60, 50, seed), None), 60, 50, d, seed)
    results = []
    for n_threads, shuffled in ((1, False), (threads, False), (1, True)):
        tables = make_table(60, 8, 1), make_table(50, 8, 2)
        schedule = strata.schedule(0)
        if shuffled:  # strata keep their order, blocks inside one do not
            rng = np.random.default_rng(seed)
            schedule = np.concatenate([rng.permutation(part) for part in schedule.reshape(d, d)]).astype(np.int32)
        loss = np.zeros(d * d)
        blocks = kernels.FactorBlocks(
            strata.users, strata.items, strata.values, None, strata.offsets, strata.user_bounds, strata.item_bounds
        )
        kernels.factor_learn(blocks, schedule, *tables, native({**CHOICES, "rank": 8}), loss, n_threads)
        results.append(np.concatenate([t.ravel() for t in tables]).tobytes())
    assert len(set(results)) == 1


@pytest.mark.parametrize("mode", ["explicit", "weighted", "bias", "implicit"])
def test_least_squares_are_exact_and_gradients_come_close(mode):
    rng = np.random.default_rng(0)
    rank, n_rows, n_other = 11, 30, 40
    lengths = rng.integers(0, 25, n_rows)
    indptr = np.concatenate([[0], np.cumsum(lengths)])
    indices = np.concatenate([rng.choice(n_other, m, replace=False) for m in lengths]).astype(np.int32)
    values = rng.uniform(0.1, 2, len(indices)).astype(np.float32)
    weights = rng.uniform(0.1, 2, len(indices)).astype(np.float32) if mode == "weighted" else None
    other = np.zeros((n_other, 16), np.float32)
    other[:, :rank] = rng.standard_normal((n_other, rank))
    ridge = rng.uniform(0.5, 2, n_rows).astype(np.float32)
    bias_at, implicit = (10 if mode == "bias" else -1), mode == "implicit"
    gram = None
    if implicit:
        gram = np.empty((16, 16), np.float32)
        kernels.factor_gram(other, gram, 2)
        np.testing.assert_allclose(gram, other.T @ other, rtol=1e-4, atol=1e-4)
    right = reference.factor_als(
        indptr, indices, values, weights, other[:, :rank].astype(np.float64), ridge, bias_at, 3.0, implicit
    )
    for steps, tolerance in ((0, 1e-3), (60, 1e-2)):
        solved = np.zeros((n_rows, 16), np.float32)
        side = kernels.FactorSide(indptr, indices, values, weights, other, solved)
        choices = kernels.AlsChoices(rank=rank, cg_steps=steps, bias_at=bias_at, bias_ridge=3.0)
        assert kernels.factor_als(side, ridge, gram, choices, 2) == n_rows
        np.testing.assert_allclose(solved[:, :rank], right, rtol=tolerance, atol=tolerance)


def test_least_squares_above_zero_fulfil_the_conditions_of_the_optimum():
    rng = np.random.default_rng(2)
    other = rng.standard_normal((50, 8)).astype(np.float32)
    indices = np.arange(50, dtype=np.int32)
    values = rng.standard_normal(50).astype(np.float32)
    solved = np.zeros((1, 8), np.float32)
    for _ in range(30):
        side = kernels.FactorSide(np.array([0, 50]), indices, values, None, other, solved)
        kernels.factor_als(side, np.ones(1, np.float32), None, kernels.AlsChoices(rank=8, nonnegative=True), 1)
    gradient = other.T @ (other @ solved[0] - values) + solved[0]
    assert (solved >= 0).all()
    assert (np.abs(gradient[solved[0] > 0]) < 1e-3).all()
    assert (gradient[solved[0] == 0] > -1e-3).all()


def test_multiplicative_steps_are_their_definition():
    rng = np.random.default_rng(3)
    indptr = np.array([0, 3, 3, 8])
    indices = np.array([0, 2, 5, 1, 2, 3, 4, 5], np.int32)
    values = rng.uniform(0.1, 3, 8).astype(np.float32)
    other, start = rng.uniform(0.1, 1, (6, 8)).astype(np.float32), rng.uniform(0.1, 1, (3, 8)).astype(np.float32)
    sums = other.sum(axis=0)
    right = reference.factor_kl(
        indptr, indices, values, other.astype(float), sums.astype(float), 3, start.astype(float)
    )
    solved = start.copy()
    bad, _ = kernels.factor_kl(kernels.FactorSide(indptr, indices, values, None, other, solved), sums, 3, True, 2)
    assert bad == 3
    np.testing.assert_allclose(solved, right, rtol=1e-4, atol=1e-6)


@settings(max_examples=40)
@given(hs.integers(1, 20), hs.integers(1, 70), hs.integers(1, 12), hs.booleans(), hs.integers(1, 3), hs.integers(0, 99))
def test_the_best_items_are_the_best(n_users, n_items, k, exclude, threads, seed):
    rng = np.random.default_rng(seed)
    # Small whole numbers: products are exact, and ties are many.
    users = rng.integers(-2, 3, (n_users, 8)).astype(np.float32)
    items = rng.integers(-2, 3, (n_items, 8)).astype(np.float32)
    bias = np.where(rng.random(n_items) < 0.2, -np.inf, rng.integers(-2, 3, n_items)).astype(np.float32)
    excluded = [set(rng.choice(n_items, rng.integers(0, n_items), replace=False).tolist()) for _ in range(n_users)]
    if not exclude:
        excluded = [set() for _ in range(n_users)]
    indptr = np.cumsum([0] + [len(s) for s in excluded])
    indices = np.array([i for s in excluded for i in sorted(s)], np.int32)
    scores, best = np.empty((n_users, k), np.float32), np.empty((n_users, k), np.int32)
    kernels.factor_top(users, items, bias, (indptr, indices) if exclude else None, scores, best, threads)
    best[np.isneginf(scores)] = -1
    right, right_scores = reference.factor_top(
        users.astype(float), items.astype(float), bias.astype(float), excluded, k
    )
    assert (best == right).all()
    assert (scores == right_scores).all()


def test_rows_out_of_range_are_refused_before_memory_is_touched():
    tables = make_table(3, 8, 1), make_table(3, 8, 2)
    for users, items in (([3], [0]), ([0], [-1]), ([2**31 - 1], [0])):
        users, items = np.array(users, np.int32), np.array(items, np.int32)
        status, _ = learn(users, items, np.ones(1, np.float32), None, tables, {**CHOICES, "rank": 8})
        assert status == 1
        assert kernels.factor_pairs(users, items, *tables, 0.0, np.zeros(1, np.float32), 1) == 0
    with pytest.raises(ValueError, match="not there"):
        make_strata(Entries(np.array([5], np.int32), np.zeros(1, np.int32), np.ones(1, np.float32), None), 3, 3, 1, 0)


def test_overflow_is_reported():
    tables = make_table(2, 8, 1), make_table(2, 8, 2)
    users, items = np.zeros(200, np.int32), np.zeros(200, np.int32)
    choices = {**CHOICES, "rank": 8, "eta": 1e10, "adaptive": False}
    assert learn(users, items, np.ones(200, np.float32), None, tables, choices)[0] == 2


def test_the_baseline_processor_learns_the_same():
    code = (
        "import numpy as np, steepest as st; rng = np.random.default_rng(0);"
        "X = rng.integers(0, 50, (5000, 2)); y = rng.random(5000);"
        "m = st.MatrixFactorization(20, random_state=0, epochs=3).fit(X, y);"
        "print(repr(m.predict(X[:50]).tolist()), [[i for i, _ in l] for _, l in m.recommend([1, 2], 3)])"
    )
    outputs = []
    for isa in ("", "baseline"):
        environment = {**os.environ, "STEEPEST_ISA": isa, "PYTHONPATH": os.pathsep.join(sys.path)}
        ran = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
        outputs.append(ran.stdout)
    numbers = [np.array(eval(out[: out.index("]") + 1])) for out in outputs]
    np.testing.assert_allclose(numbers[0], numbers[1], rtol=1e-4)
