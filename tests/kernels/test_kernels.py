"""The kernels against their slow definition, and the promises about bits, weights, order and trouble."""

from __future__ import annotations

import copy
import dataclasses
import itertools
import json
import os
import subprocess
import sys
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steepest import kernels
from steepest.kernels.reference import linear as reference
from steepest.learners.linear.linear import bets
from steepest.learners.losses import get_loss
from steepest.learners.schedules import growth, rows_in_effect, schedule_code, scheduled_step

SOLVERS = {"sgd": 0, "adagrad": 1, "ftrl": 2, "coin": 3}
ENTRIES = {"sgd": 1, "adagrad": 2, "ftrl": 2, "coin": 4}  # numbers per weight
UNBOUNDED = {"squared": 1.0, "squared_hinge": 2.0}  # losses whose steps are kept from overshooting
TARGET_KINDS = {"targets": 0, "one_vs_rest": 1, "softmax": 2}
AVERAGES = {"none": 0, "uniform": 1, "by_step": 2, "polynomial": 3}
T, STEPS, SCALE, SHRINK, SHRINK_DEBT, AVERAGE_SCALE, AVERAGE_WEIGHT = range(7)
NO_ROWS = np.zeros(1, np.int64), np.zeros(0, np.int32), np.zeros(0, np.float32)


@dataclass(frozen=True)
class Setup:
    """One way to learn; the defaults are the plainest."""

    solver: str = "sgd"
    loss: str = "log"
    parameter: float = 0.0
    target_kind: str = "targets"
    schedule: str = "constant"
    eta0: float = 0.3
    power: float = 1.0
    alpha: float = 0.01  # the decay of the schedule
    l1: float = 0.0
    l2: float = 0.0
    truncate_below: float = np.inf
    truncate_every: int = 1
    average: str = "none"
    batch_size: int = 1
    bias_scale: float = 0.0
    half_life: float = np.inf
    in_time: bool = False  # rows have times, in half-lives

    def native(self) -> kernels.LinearChoices:
        return kernels.LinearChoices(
            solver=SOLVERS[self.solver],
            loss=get_loss(self.loss).code,
            loss_parameter=self.parameter,
            target_kind=TARGET_KINDS[self.target_kind],
            schedule=schedule_code(self.schedule, self.alpha),
            eta0=self.eta0,
            power=self.power,
            alpha=self.alpha,
            l1=self.l1,
            l2=self.l2,
            truncate_below=self.truncate_below,
            truncate_every=self.truncate_every,
            average=AVERAGES[self.average],
            batch_size=self.batch_size,
            bias_scale=self.bias_scale,
            half_life=1.0 if self.in_time else self.half_life,
        )

    def reference(self) -> reference.Choices:
        loss = get_loss(self.loss)
        return reference.Choices(
            loss=lambda scores, y: (loss.value(scores, y, self.parameter), loss.gradient(scores, y, self.parameter)),
            eta0=self.eta0,
            solver=self.solver,
            step_size=lambda t: scheduled_step(
                schedule_code(self.schedule, self.alpha), t, self.eta0, self.alpha, self.power
            ),
            target_kind=self.target_kind,
            l1=self.l1,
            l2=self.l2,
            truncate_below=self.truncate_below,
            truncate_every=self.truncate_every,
            average=self.average,
            batch_size=self.batch_size,
            bias_scale=self.bias_scale,
            curvature=UNBOUNDED.get(self.loss, 0.0),
            half_life=self.half_life,
        )


@dataclass
class Rows:
    """A CSR block with targets."""

    indptr: np.ndarray
    indices: np.ndarray
    values: np.ndarray
    y: np.ndarray
    weight: np.ndarray | None
    n_features: int
    n_outputs: int
    time: np.ndarray | None = None

    def pick(self, rows) -> Rows:
        """These rows, physically."""
        rows = np.asarray(rows, int)
        entries = [np.arange(self.indptr[i], self.indptr[i + 1]) for i in rows]
        at = np.concatenate(entries).astype(int) if entries else np.zeros(0, int)
        indptr = np.cumsum([0, *map(len, entries)])
        weight, time = (None if part is None else part[rows] for part in (self.weight, self.time))
        own = self.indices[at], self.values[at], self.y[rows], weight
        return Rows(indptr, *own, self.n_features, self.n_outputs, time)

    def with_weight(self, weight) -> Rows:
        weight = None if weight is None else np.asarray(weight, float)
        return Rows(self.indptr, self.indices, self.values, self.y, weight, self.n_features, self.n_outputs)

    def native(self, order=None) -> kernels.Rows:
        return kernels.Rows(self.indptr, self.indices, self.values, self.y, self.weight, order, self.time)

    def dense(self) -> np.ndarray:
        return reference.dense_rows(self.indptr, self.indices, self.values, self.n_features)


@dataclass
class Learned:
    """The state of a kernel, as Python holds it."""

    v: np.ndarray
    shrunk: np.ndarray | None
    average: np.ndarray | None
    bias: np.ndarray
    bias_square: np.ndarray
    bias_average: np.ndarray
    clock: np.ndarray
    ages: np.ndarray | None = None  # the latest time, and the rows in effect then
    outcomes: list = field(default_factory=list)

    @classmethod
    def zeros(cls, setup: Setup, n_features: int, n_outputs: int, dtype=np.float64) -> Learned:
        shape = (n_features, n_outputs) if setup.solver == "sgd" else (n_features, ENTRIES[setup.solver], n_outputs)
        shrunk = np.zeros(n_features) if setup.solver == "sgd" and setup.l1 > 0 else None
        average = np.zeros(shape, dtype) if setup.average != "none" else None
        clock = np.zeros(7)
        clock[SCALE] = 1
        ages = np.zeros(2) if setup.in_time else None
        return cls(np.zeros(shape, dtype), shrunk, average, *np.zeros((3, n_outputs)), clock, ages)

    def learn(self, setup: Setup, rows: Rows, order=None) -> Learned:
        self.outcomes.append(kernels.linear_learn(rows.native(order), self.native(), setup.native()))
        return self

    def native(self) -> kernels.LinearState:
        return kernels.LinearState(**{name: value for name, value in vars(self).items() if name != "outcomes"})

    def weights(self, setup: Setup) -> np.ndarray:
        """n_features x n_outputs weights, all debts paid."""
        if setup.solver == "coin":
            return bets(self.v.astype(float), setup.eta0)
        if setup.solver != "sgd":
            sums, squares = self.v[:, 0].astype(float), self.v[:, 1].astype(float)
            t, grown = (f(self.clock[T], setup.half_life) for f in (rows_in_effect, growth))
            if setup.in_time:
                t, grown = self.ages[1], growth(self.ages[0], 1.0)
            sums, squares = sums / grown, squares / grown
            shrunk = np.sign(sums) * np.maximum(np.abs(sums) - t * setup.l1, 0)
            return -shrunk / ((1 + np.sqrt(squares)) / setup.eta0 + t * setup.l2)
        paid = copy.deepcopy(self)
        kernels.linear_apply_penalty(paid.native(), setup.native())
        assert paid.clock[SCALE] == 1
        return paid.v.astype(float)

    def mean_weights(self) -> np.ndarray:
        """(S v - u) / C: the weighted mean of the iterates."""
        v, u = self.v.astype(float), self.average.astype(float)
        return (self.clock[AVERAGE_SCALE] * v - u) / self.clock[AVERAGE_WEIGHT]

    def bits(self) -> list:
        """Everything that was learned, to be compared exactly."""
        arrays = (
            self.v,
            self.shrunk,
            self.average,
            self.bias,
            self.bias_square,
            self.bias_average,
            self.clock,
            self.ages,
        )
        return [None if a is None else a.tobytes() for a in arrays]


def make_rows(seed=0, n=60, n_features=12, n_outputs=1, kind="targets", loss="log", weight=None) -> Rows:
    """Random sparse rows: some empty, some with a stored zero, one with every column; no column twice."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(0, min(n_features, 6) + 1, n)
    lengths[rng.integers(0, n, max(1, n // 10))] = 0
    lengths[rng.integers(0, n)] = n_features
    indices = [np.sort(rng.choice(n_features, size, replace=False)) for size in lengths]
    values = rng.normal(size=lengths.sum()).astype(np.float32)
    values[rng.random(len(values)) < 0.05] = 0
    if kind != "targets":
        y = rng.integers(0, n_outputs, n).astype(float)
    else:
        y = rng.normal(size=(n, n_outputs))
        y = {"binary": np.where(y > 0, 1.0, -1.0), "real": y, "count": np.floor(np.abs(2 * y))}[get_loss(loss).kind]
        y = y[:, 0] if n_outputs == 1 else y
    indptr = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    indices = np.concatenate(indices).astype(np.int32)
    weights = {
        None: None,
        "mixed": rng.choice([0.0, 0.3, 1.0, 2.5, 3.0], n),
        "heavy": rng.choice([0.0, 1.0, 127.5, 400.0], n),
    }
    return Rows(indptr, indices, values, y, weights[weight], n_features, n_outputs)


def learn(setup: Setup, rows: Rows, dtype=np.float64, order=None) -> Learned:
    learned = Learned.zeros(setup, rows.n_features, rows.n_outputs, dtype)
    return learned.learn(setup, rows, order)


def learn_slowly(setup: Setup, rows: Rows) -> reference.State:
    state = reference.State.zeros(rows.n_features, rows.n_outputs)
    reference.linear_learn(rows.dense(), rows.y, rows.weight, state, setup.reference(), rows.time)
    return state


def assert_close(actual, expected, relative):
    """Relative to the largest entry: a weight that is small by cancellation has the error of its parts."""
    scale = max(float(np.max(np.abs(expected), initial=0.0)), 1e-3)
    np.testing.assert_allclose(actual, expected, rtol=relative, atol=relative * scale)


def assert_same(setup: Setup, rows: Rows, dtype=np.float64, relative=1e-12):
    learned, state = learn(setup, rows, dtype), learn_slowly(setup, rows)
    n, status, loss_sum, weight_sum = learned.outcomes[0]
    assert (n, status) == (len(rows.indptr) - 1, 0)
    assert_close([loss_sum, weight_sum], [state.loss_sum, state.weight_sum], relative)
    assert_close(learned.weights(setup), state.w, relative)
    assert_close(learned.bias, state.bias, relative)
    assert learned.clock[T] == pytest.approx(state.t, rel=1e-12)
    assert learned.clock[STEPS] == state.steps
    if setup.bias_scale > 0:
        assert_close(learned.bias_square, state.bias_square, relative)
    if setup.average != "none":
        assert_close(learned.mean_weights(), state.mean_weights(), relative)
        assert_close(learned.bias_average, state.mean_bias(), relative)


# ------------------------------------------------------------------------------- layouts and threads change no bit


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("average", ["uniform", "by_step", "polynomial"])
@pytest.mark.parametrize(("n_outputs", "kind"), [(1, "targets"), (3, "one_vs_rest"), (17, "softmax")])
@pytest.mark.parametrize("l2", [1e-3, 5.0])  # the larger one folds the scale again and again
def test_averages_behind_the_weights_are_learned_to_the_same_bits(n_outputs, kind, average, l2, dtype):
    setup = Setup(target_kind=kind, average=average, l2=l2, batch_size=2)
    rows = make_rows(5, n=700, n_features=40, n_outputs=n_outputs, kind=kind, weight="mixed")  # past a change of unit
    apart, beside = (Learned.zeros(setup, 40, n_outputs, dtype) for _ in range(2))
    beside.v, beside.average = np.zeros((40, 2, n_outputs), dtype), None
    for learned in (apart, beside):
        learned.learn(setup, rows)
    for name in ("bias", "bias_average", "clock", "outcomes"):
        np.testing.assert_array_equal(getattr(apart, name), getattr(beside, name))
    for settled in (False, True):
        np.testing.assert_array_equal(beside.v[:, 0], apart.v)
        np.testing.assert_array_equal(beside.v[:, 1], apart.average)
        for learned in () if settled else (apart, beside):
            kernels.linear_apply_penalty(learned.native(), setup.native())


def share_out(setup, rows, n_threads, dtype=np.float32) -> Learned:
    learned = Learned.zeros(setup, rows.n_features, rows.n_outputs, dtype)
    parallel = kernels.LinearParallel(n_threads)
    learned.outcomes.append(kernels.linear_learn(rows.native(), learned.native(), setup.native(), parallel))
    return learned


def assert_same_bits(a: Learned, b: Learned):
    for name in ("v", "average", "bias", "bias_square", "bias_average", "clock", "ages", "outcomes"):
        np.testing.assert_array_equal(getattr(a, name), getattr(b, name), err_msg=name)


@pytest.mark.parametrize("solver", ["sgd", "averaged", "adagrad", "ftrl"])
@pytest.mark.parametrize(("kind", "loss"), [("one_vs_rest", "log"), ("one_vs_rest", "hinge"), ("targets", "squared")])
@pytest.mark.parametrize("l2", [1e-3, 2.0])
def test_threads_that_share_out_the_outputs_change_no_bit(solver, kind, loss, l2):
    l1 = 0.01 if solver == "ftrl" else 0.0
    solver, average = ("sgd", "polynomial") if solver == "averaged" else (solver, "none")
    setup = Setup(solver, loss, target_kind=kind, eta0=0.1, l1=l1, l2=l2, average=average, bias_scale=0.2)
    rows = make_rows(6, n=600, n_features=30, n_outputs=203, kind=kind, loss=loss, weight="mixed")
    alone = share_out(setup, rows, 1)
    assert alone.outcomes[0][:2] == (600, 0)
    for n_threads in (2, 3, 9):
        assert_same_bits(share_out(setup, rows, n_threads), alone)


@pytest.mark.parametrize("loss", ["squared_hinge", "log"])  # few outputs of a row move, and all
def test_threads_that_share_out_few_outputs_of_a_large_table_change_no_bit(loss):
    setup = Setup(loss=loss, target_kind="one_vs_rest", eta0=0.1, l2=1e-3, average="polynomial", bias_scale=0.2)
    rows = make_rows(8, n=600, n_features=80_000, n_outputs=53, kind="one_vs_rest", loss=loss)
    assert rows.n_features * rows.n_outputs > 1 << 22
    assert_same_bits(share_out(setup, rows, 2), share_out(setup, rows, 1))


@pytest.mark.parametrize("what", ["an index too large", "a negative index", "a value that is no number"])
def test_no_output_is_learned_beyond_a_row_that_is_refused(what):
    setup = Setup(target_kind="one_vs_rest", average="uniform")
    rows = make_rows(7, n=300, n_features=30, n_outputs=203, kind="one_vs_rest")
    bad = int(np.flatnonzero(np.diff(rows.indptr[200:]))[0]) + 200
    if what == "a value that is no number":
        rows.values[rows.indptr[bad]] = np.nan
    else:
        rows.indices[rows.indptr[bad]] = -1 if "negative" in what else 30
    alone, shared = share_out(setup, rows, 1), share_out(setup, rows, 2)
    assert alone.outcomes[0][0] == bad
    assert alone.outcomes[0][1] != 0
    assert_same_bits(shared, alone)


# ------------------------------------------------------------------------------------------- rows that are forgotten


@pytest.mark.parametrize("half_life", [1.0, 7.3, 1e4])  # the unit of the sums changes many times, twice, and never
@pytest.mark.parametrize("weight", [None, "mixed"])
@pytest.mark.parametrize("batch_size", [1, 4])
@pytest.mark.parametrize(("l1", "l2"), [(0.0, 0.0), (0.002, 0.05)])
@pytest.mark.parametrize(("n_outputs", "kind", "loss"), [(1, "targets", "log"), (3, "softmax", "log")])
@pytest.mark.parametrize(
    ("solver", "average"),
    [("sgd", "none"), ("sgd", "uniform"), ("sgd", "by_step"), ("sgd", "polynomial"), ("adagrad", "none")],
)
def test_kernels_forget_as_their_definition_says(
    solver, average, n_outputs, kind, loss, l1, l2, batch_size, weight, half_life
):
    l1 = 0.0 if average != "none" else l1
    setup = Setup(solver, loss, target_kind=kind, schedule="invsqrt", l1=l1, l2=l2, average=average)
    setup = dataclasses.replace(setup, batch_size=batch_size, bias_scale=0.2, half_life=half_life)
    assert_same(setup, make_rows(11, 500, n_outputs=n_outputs, kind=kind, loss=loss, weight=weight), relative=1e-9)


@pytest.mark.parametrize(("solver", "average"), [("sgd", "none"), ("sgd", "polynomial"), ("adagrad", "none")])
def test_float32_forgets_alike(solver, average):
    setup = Setup(solver, schedule="auto", l2=0.01, average=average, bias_scale=0.2, half_life=50.0)
    assert_same(setup, make_rows(12, 3000), np.float32, relative=1e-3)


@pytest.mark.parametrize(("solver", "average"), [("sgd", "none"), ("sgd", "polynomial"), ("adagrad", "none")])
def test_chunks_and_threads_change_no_bit_of_what_is_forgotten(solver, average):
    setup = Setup(solver, target_kind="one_vs_rest", l2=0.01, average=average, bias_scale=0.2, half_life=5.0)
    rows = make_rows(13, 300, n_features=30, n_outputs=203, kind="one_vs_rest", weight="mixed")
    alone, pieces = share_out(setup, rows, 1), Learned.zeros(setup, 30, 203, np.float32)
    for start in range(0, 300, 77):
        pieces.learn(setup, rows.pick(range(start, min(300, start + 77))))
    assert pieces.bits() == alone.bits()
    assert_same_bits(share_out(setup, rows, 3), alone)


def with_times(rows: Rows, per_half_life: float, seed=0) -> Rows:
    """Times with bursts, pauses, and rows that come late."""
    gaps = np.random.default_rng(seed).choice([0.0, 0.01, 1.0, 12.0], len(rows.y), p=[0.3, 0.4, 0.28, 0.02])
    late = np.random.default_rng(seed + 1).choice([0.0, 3.0], len(rows.y), p=[0.9, 0.1])
    return dataclasses.replace(rows, time=1e6 + (np.cumsum(gaps) - late) / per_half_life)


@pytest.mark.parametrize("per_half_life", [0.5, 20.0, 1e4])  # the unit of the sums changes many times, twice, and never
@pytest.mark.parametrize("weight", [None, "mixed"])
@pytest.mark.parametrize("batch_size", [1, 4])
@pytest.mark.parametrize(("l1", "l2"), [(0.0, 0.0), (0.002, 0.05)])
@pytest.mark.parametrize(("n_outputs", "kind", "loss"), [(1, "targets", "log"), (3, "softmax", "log")])
@pytest.mark.parametrize(
    ("solver", "average"),
    [("sgd", "none"), ("sgd", "uniform"), ("sgd", "by_step"), ("sgd", "polynomial"), ("adagrad", "none")],
)
def test_rows_fade_with_time_as_the_definition_says(
    solver, average, n_outputs, kind, loss, l1, l2, batch_size, weight, per_half_life
):
    l1 = 0.0 if average != "none" else l1
    setup = Setup(solver, loss, target_kind=kind, schedule="invsqrt", l1=l1, l2=l2, average=average, in_time=True)
    setup = dataclasses.replace(setup, batch_size=batch_size, bias_scale=0.2)
    rows = make_rows(11, 500, n_outputs=n_outputs, kind=kind, loss=loss, weight=weight)
    assert_same(setup, with_times(rows, per_half_life), relative=1e-9)


@pytest.mark.parametrize(("solver", "average"), [("sgd", "none"), ("sgd", "polynomial"), ("adagrad", "none")])
def test_chunks_and_threads_change_no_bit_of_what_fades_with_time(solver, average):
    setup = Setup(solver, target_kind="one_vs_rest", l2=0.01, average=average, bias_scale=0.2, in_time=True)
    rows = with_times(make_rows(13, 300, n_features=30, n_outputs=203, kind="one_vs_rest", weight="mixed"), 1.0)
    alone, pieces = share_out(setup, rows, 1), Learned.zeros(setup, 30, 203, np.float32)
    for start in range(0, 300, 77):
        pieces.learn(setup, rows.pick(range(start, min(300, start + 77))))
    assert pieces.bits() == alone.bits()
    assert_same_bits(share_out(setup, rows, 3), alone)


def test_dual_averaging_minimises_over_rows_by_their_age_in_time():
    """As if all gradients had come at the last time with the weights of their ages, late ones too."""
    setup = Setup("adagrad", "squared", l2=0.05, bias_scale=-1.0, eta0=0.5, in_time=True)
    rows = with_times(make_rows(14, 200, loss="squared"), 5.0)
    learned, dense, gradients = Learned.zeros(setup, 12, 1), rows.dense(), []
    for i in range(200):
        now = rows.time[: i + 1].max()  # the weights that a row is scored with are those of its own time
        by_age = 2.0 ** (rows.time[:i] - now)
        own = 2.0 ** (rows.time[:i] - np.maximum.accumulate(rows.time[:i])) if i else by_age
        w = -(by_age @ np.array(gradients).reshape(i, 12)) if i else np.zeros(12)
        squares = (by_age * own) @ np.array(gradients).reshape(i, 12) ** 2 if i else 0
        w = w / ((1 + np.sqrt(squares)) / 0.5 + by_age.sum() * 0.05)
        gradients.append((dense[i] @ w - rows.y[i]) * dense[i])
        learned.learn(setup, rows.pick([i]))
    by_age = 2.0 ** (rows.time - rows.time.max())
    squares = (by_age * 2.0 ** (rows.time - np.maximum.accumulate(rows.time))) @ np.array(gradients) ** 2
    expected = -(by_age @ np.array(gradients)) / ((1 + np.sqrt(squares)) / 0.5 + by_age.sum() * 0.05)
    assert_close(learned.weights(setup)[:, 0], expected, 1e-9)


def test_times_and_ages_belong_together():
    rows, timed = make_rows(), Setup(in_time=True)
    for setup, block in ((timed, rows), (Setup(half_life=5.0), with_times(rows, 1.0))):
        learned = Learned.zeros(setup, 12, 1)
        learned.ages = np.zeros(2)
        with pytest.raises(ValueError, match="ages need"):
            learned.learn(setup, block)
    with pytest.raises(ValueError, match="time must be finite"):
        dataclasses.replace(rows, time=np.full(len(rows.y), np.nan)).native()


def test_dual_averaging_that_forgets_minimises_over_rows_by_their_age():
    """Its weights are the minimum of gradients by age, penalties of the rows in effect, and a proximal term."""
    setup = Setup("adagrad", "squared", l2=0.05, bias_scale=-1.0, half_life=20.0, eta0=0.5)
    rows = make_rows(14, 200, loss="squared")
    learned, dense, gradients = Learned.zeros(setup, 12, 1), rows.dense(), []
    for i in range(200):
        score = dense[i] @ learned.weights(setup)[:, 0]
        gradients.append((score - rows.y[i]) * dense[i])
        learned.learn(setup, rows.pick([i]))
    ages = 2.0 ** (-(200 - 1 - np.arange(200)) / 20.0)
    pull, squares = ages @ np.array(gradients), ages @ np.array(gradients) ** 2
    expected = -pull / ((1 + np.sqrt(squares)) / 0.5 + ages.sum() * 0.05)
    assert_close(learned.weights(setup)[:, 0], expected, 1e-9)


@pytest.mark.parametrize(("solver", "n_replicas"), [("ftrl", 1), ("coin", 1), ("sgd", 0), ("sgd", 2)])
def test_what_cannot_forget_is_refused(solver, n_replicas):
    setup = Setup(solver, half_life=10.0)
    learned, parallel = Learned.zeros(setup, 12, 1), kernels.LinearParallel(2, n_replicas, rows_each=8)
    with pytest.raises(ValueError, match=r"half-life|forget"):
        kernels.linear_learn(make_rows().native(), learned.native(), setup.native(), parallel)


# --------------------------------------------------------------------------------------- the definition, as a table

OUTPUTS = [
    (1, "targets", "log"),
    (3, "one_vs_rest", "hinge"),
    (3, "softmax", "log"),
    (2, "targets", "squared"),
    (17, "one_vs_rest", "log"),  # one more than a block of dot_many
    (20, "softmax", "log"),
]
PENALTIES = [(0.0, 0.0), (0.0, 0.05), (0.02, 0.0), (0.02, 0.05)]
output_shapes = pytest.mark.parametrize(("n_outputs", "kind", "loss"), OUTPUTS)
penalties = pytest.mark.parametrize(("l1", "l2"), PENALTIES)


@penalties
@output_shapes
@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("batch_size", [1, 4, 1000])
@pytest.mark.parametrize("weight", [None, "mixed"])
@pytest.mark.parametrize("bias_scale", [-1.0, 0.0, 0.2])
def test_kernels_equal_their_definition(solver, n_outputs, kind, loss, l1, l2, batch_size, weight, bias_scale):
    eta0 = 0.3 if batch_size < 10 else 0.03  # a batch adds its gradients up
    setup = Setup(solver, loss, target_kind=kind, eta0=eta0, l1=l1, l2=l2, batch_size=batch_size, bias_scale=bias_scale)
    rows = make_rows(1, n_outputs=n_outputs, kind=kind, loss=loss, weight=weight)
    assert_same(setup, rows)


@output_shapes
@pytest.mark.parametrize("l2", [0.0, 0.05])
@pytest.mark.parametrize("average", ["uniform", "by_step", "polynomial"])
@pytest.mark.parametrize("batch_size", [1, 4])
@pytest.mark.parametrize("weight", [None, "mixed"])
@pytest.mark.parametrize("bias_scale", [-1.0, 0.0, 0.2])
def test_averages_equal_their_definition(n_outputs, kind, loss, l2, average, batch_size, weight, bias_scale):
    setup = Setup(
        loss=loss,
        target_kind=kind,
        schedule="bottou",
        power=0.75,
        l2=l2,
        average=average,
        batch_size=batch_size,
        bias_scale=bias_scale,
    )
    rows = make_rows(2, n_outputs=n_outputs, kind=kind, loss=loss, weight=weight)
    # The mean is a difference of two sums that are larger than itself.
    assert_same(setup, rows, relative=1e-11)


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("schedule", ["constant", "invsqrt", "bottou"])
@pytest.mark.parametrize("power", [1.0, 0.75])
def test_schedules(solver, schedule, power):
    setup = Setup(solver, schedule=schedule, power=power, l1=0.01, l2=0.05)
    assert_same(setup, make_rows(3, weight="mixed"))


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize(
    ("loss", "parameter"),
    [
        ("hinge", 0.0),
        ("squared_hinge", 0.0),
        ("log", 0.0),
        ("exponential", 0.0),
        ("modified_huber", 0.0),
        ("perceptron", 0.0),
        ("squared", 0.0),
        ("huber", 0.5),
        ("epsilon_insensitive", 0.2),
        ("quantile", 0.8),
        ("poisson", 0.0),
    ],
)
@pytest.mark.parametrize("n_outputs", [1, 3])
def test_losses(solver, loss, parameter, n_outputs):
    setup = Setup(solver, loss, parameter, eta0=0.05, l1=0.01, l2=0.05)
    assert_same(setup, make_rows(4, loss=loss, n_outputs=n_outputs))


@pytest.mark.parametrize("truncate_below", [np.inf, 0.2, 0.0])
@pytest.mark.parametrize("truncate_every", [1, 3, 7])
@pytest.mark.parametrize("n_outputs", [1, 3])
def test_truncated_gradient(truncate_below, truncate_every, n_outputs):
    setup = Setup(l1=0.1, truncate_below=truncate_below, truncate_every=truncate_every)
    rows = make_rows(5, n=200, n_outputs=n_outputs)
    assert_same(setup, rows)
    if truncate_below == np.inf:
        assert np.any(learn(setup, rows).weights(setup) == 0)


@pytest.mark.parametrize("truncate_every", [3, 7])
def test_truncation_with_l2(truncate_every):
    assert_same(Setup(l1=0.1, l2=0.05, truncate_every=truncate_every), make_rows(5, n=200))


@pytest.mark.parametrize("solver", SOLVERS)
def test_heavy_rows(solver):
    """Beyond 128 the weight is spread over 128 steps."""
    # Thousands of steps: their rounding adds up.
    assert_same(Setup(solver, eta0=0.05, l1=0.001, l2=0.01), make_rows(6, weight="heavy"), relative=1e-10)


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize(("n_outputs", "kind"), [(1, "targets"), (20, "softmax")])
def test_long_rows(solver, n_outputs, kind):
    setup = Setup(solver, target_kind=kind, eta0=0.01, l1=0.001, l2=0.01)
    rows = make_rows(7, n=30, n_features=700, n_outputs=n_outputs, kind=kind)
    full = rows.pick(np.argsort(-np.diff(rows.indptr))[:10])
    assert np.diff(full.indptr).max() == 700
    assert_same(setup, full, relative=1e-10)  # sums of 700 terms, added in another order


# The largest error of a float32 run, relative to the largest weight, measured over the table below: 4e-7.
FLOAT32_BAND = 3e-6


SOLVERS_AND_AVERAGES = [(solver, "none", *p) for solver in SOLVERS for p in PENALTIES] + [
    ("sgd", average, *p) for average in ("uniform", "by_step", "polynomial") for p in PENALTIES[:2]
]


@output_shapes
@pytest.mark.parametrize(("solver", "average", "l1", "l2"), SOLVERS_AND_AVERAGES)
def test_float32_stays_near(solver, n_outputs, kind, loss, l1, l2, average):
    setup = Setup(solver, loss, target_kind=kind, l1=l1, l2=l2, average=average)
    rows = make_rows(8, n_outputs=n_outputs, kind=kind, loss=loss, weight="mixed")
    assert_same(setup, rows, np.float32, relative=FLOAT32_BAND)


# ------------------------------------------------------------------------------------------------ properties


@st.composite
def setups(draw):
    """Any way to learn that is allowed, with any penalty, average, batch and bias."""
    solver = draw(st.sampled_from(sorted(SOLVERS)))
    n_outputs, kind, loss = draw(st.sampled_from([*OUTPUTS, (1, "targets", "hinge"), (1, "targets", "squared")]))
    l1 = draw(st.sampled_from([0.0, 1e-3, 0.05]))
    average = draw(st.sampled_from(sorted(AVERAGES))) if solver == "sgd" and l1 == 0 else "none"
    setup = Setup(
        solver,
        loss,
        target_kind=kind,
        schedule=draw(st.sampled_from(["constant", "invsqrt", "bottou"])),
        eta0=draw(st.floats(1e-3, 0.3)),
        power=draw(st.sampled_from([1.0, 0.75])),
        alpha=draw(st.floats(0, 1)),
        l1=l1,
        l2=draw(st.sampled_from([0.0, 1e-3, 0.05, 5.0])),
        truncate_every=draw(st.integers(1, 5)),
        average=average,
        batch_size=draw(st.sampled_from([1, 1, 2, 7])),
        bias_scale=draw(st.sampled_from([-1.0, 0.0, 0.1])),
    )
    rows = make_rows(
        draw(st.integers(0, 10**6)),
        n=draw(st.integers(1, 40)),
        n_features=draw(st.integers(1, 20)),
        n_outputs=n_outputs,
        kind=kind,
        loss=loss,
        weight=draw(st.sampled_from([None, "mixed"])),
    )
    return setup, rows


@settings(max_examples=300, deadline=None)
@given(setups())
def test_lazy_equals_eager(case):
    setup, rows = case
    rows = rows.with_weight(None if rows.weight is None else rows.weight + (rows.weight.sum() == 0))
    assert_same(setup, rows, relative=1e-10)  # the squared loss with wide steps magnifies rounding


@settings(max_examples=100, deadline=None)
@given(setups(), st.lists(st.integers(0, 40), max_size=4), st.sampled_from([np.float32, np.float64]))
def test_pieces_give_the_same_bits(case, cuts, dtype):
    setup, rows = case
    setup = Setup(**{**vars(setup), "batch_size": 1})  # a batch ends where the call does
    n = len(rows.indptr) - 1
    pieces = Learned.zeros(setup, rows.n_features, rows.n_outputs, dtype)
    for start, stop in itertools.pairwise([0, *sorted(min(cut, n) for cut in cuts), n]):
        pieces.learn(setup, rows.pick(np.arange(start, stop)))
    assert pieces.bits() == learn(setup, rows, dtype).bits()


@settings(max_examples=100, deadline=None)
@given(setups(), st.integers(0, 1000), st.sampled_from([np.float32, np.float64]))
def test_order_equals_permuted_rows(case, seed, dtype):
    setup, rows = case
    n = len(rows.indptr) - 1
    order = np.random.default_rng(seed).integers(0, n, n + 3)  # with repetitions, and some rows never
    assert learn(setup, rows, dtype, order).bits() == learn(setup, rows.pick(order), dtype).bits()


@settings(max_examples=100, deadline=None)
@given(setups(), st.integers(0, 1000), st.sampled_from([np.float32, np.float64]))
def test_weight_three_equals_three_copies(case, seed, dtype):
    setup, rows = case
    setup = Setup(**{**vars(setup), "batch_size": 1})
    copies = np.random.default_rng(seed).integers(0, 4, len(rows.indptr) - 1)
    copied = rows.with_weight(None).pick(np.repeat(np.arange(len(copies)), copies))
    weighted = learn(setup, rows.with_weight(copies), dtype)
    assert weighted.bits() == learn(setup, copied, dtype).bits()
    assert weighted.outcomes[0][3] == copies.sum()


@settings(max_examples=100, deadline=None)
@given(setups(), st.sampled_from([np.float32, np.float64]))
def test_weight_zero_equals_an_absent_row(case, dtype):
    setup, rows = case
    weight = np.where(np.arange(len(rows.indptr) - 1) % 3 == 1, 0.0, 0.7)
    setup = Setup(**{**vars(setup), "batch_size": 1})
    present = rows.with_weight(weight)
    assert learn(setup, present, dtype).bits() == learn(setup, present.pick(np.flatnonzero(weight)), dtype).bits()


def test_a_weight_in_a_batch_multiplies_the_gradient():
    """In a batch a row of weight 3 and three copies of it give the same sum, up to rounding."""
    rows = make_rows(9, n=4)
    heavy = rows.with_weight([1, 3, 1, 0])
    copies = rows.pick([0, 1, 1, 1, 2])
    one, other = learn(Setup(batch_size=8, l2=0.1), heavy), learn(Setup(batch_size=8, l2=0.1), copies)
    assert_close(one.weights(Setup()), other.weights(Setup()), 1e-14)
    assert one.clock[T] == other.clock[T] == 5
    assert one.clock[STEPS] == other.clock[STEPS] == 1


# --------------------------------------------------------------------------------- the scale, and keeping in range


@pytest.mark.parametrize("eta0", [0.01, 0.5, 4.0])
@pytest.mark.parametrize("l2", [1e-6, 1e-3, 0.1])
def test_the_scale_has_a_closed_form(eta0, l2):
    """With Bottou's rate, P after t rows is t0 / (t0 + t), t0 = 1 / (eta0 l2)."""
    setup = Setup(schedule="bottou", eta0=eta0, alpha=l2, l2=l2)
    learned = Learned.zeros(setup, 12, 1)
    t0, rows = 1 / (eta0 * l2), make_rows(10, n=500)
    for _ in range(4):
        learned.learn(setup, rows)
        t = learned.clock[T]
        assert learned.clock[SCALE] == pytest.approx(t0 / (t0 + t), rel=1e-12)
    assert t == 2000


@pytest.mark.parametrize("average", ["none", "uniform", "by_step", "polynomial"])
@pytest.mark.parametrize(("n_outputs", "kind"), [(1, "targets"), (3, "softmax")])
@pytest.mark.parametrize("eta_l2", [0.02, 0.5, 100.0])
def test_folding_the_scale_changes_nothing(average, n_outputs, kind, eta_l2):
    setup = Setup(target_kind=kind, l2=eta_l2 / 0.3, average=average)
    rows = make_rows(11, n=2000, n_outputs=n_outputs, kind=kind)
    assert (1 + eta_l2) ** -2000.0 < 1e-15  # so that P alone would have left every range
    assert 1e-6 <= learn(setup, rows).clock[SCALE] <= 1
    assert_same(setup, rows, relative=1e-10)  # thousands of steps, and sums that cancel


@pytest.mark.parametrize("l1", [1e-4, 0.01])
@pytest.mark.parametrize("truncate_every", [1, 5])
def test_folding_the_scale_keeps_what_is_owed(l1, truncate_every):
    setup = Setup(l1=l1, l2=1.0, truncate_every=truncate_every)
    rows = make_rows(12, n=700, n_features=40)
    assert_same(setup, rows, relative=1e-10)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("l2", [0.0, 1e-3])
@pytest.mark.parametrize("bias_scale", [0.0, 0.1])
def test_a_long_polynomial_average_forgets_nothing_else(dtype, l2, bias_scale):
    """The sum of (1 + t)^3 passes 10^12 after 1,400 rows; the mean must not notice."""
    setup = Setup(schedule="invsqrt", l2=l2, average="polynomial", bias_scale=bias_scale)
    rows = make_rows(13, n=5000)
    assert_same(setup, rows, dtype, relative=1e-10 if dtype == np.float64 else 1e-4)


@pytest.mark.parametrize("average", ["uniform", "by_step", "polynomial"])
@pytest.mark.parametrize("start", [1e5, 1e9, 1e15])
def test_averaging_may_start_late(average, start):
    setup, rows = Setup(l2=0.01, average=average), make_rows(14, n=300)
    learned, state = Learned.zeros(setup, 12, 1), reference.State.zeros(12, 1)
    learned.clock[T] = state.t = start
    learned.learn(setup, rows)
    reference.linear_learn(rows.dense(), rows.y, None, state, setup.reference())
    assert_close(learned.mean_weights(), state.mean_weights(), 1e-11)
    assert np.all(np.isfinite(learned.average))
    assert learned.clock[AVERAGE_WEIGHT] < 1e12


@pytest.mark.parametrize("average", ["uniform", "polynomial"])
@pytest.mark.parametrize("l2", [0.0, 0.01, 0.1, 1.0])
def test_averages_of_float32_weights_keep_their_digits(average, l2):
    """A strong penalty makes P small and v = w / P large, but the mean is a mean of w."""
    setup, rows = Setup(l2=l2, average=average), make_rows(15, n=20000)
    exact, rounded = learn(setup, rows), learn(setup, rows, np.float32)
    assert_close(rounded.mean_weights(), exact.mean_weights(), 1e-4)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_settling_in_the_middle_changes_nothing(dtype):
    """Settling in place folds the scale; the weights, the debts and the mean stay what they were."""
    for setup in (Setup(l1=0.01, l2=0.05), Setup(l2=0.05, average="polynomial"), Setup(l1=0.01, truncate_every=9)):
        rows = make_rows(16, n=400)
        learned = Learned.zeros(setup, 12, 1, dtype)
        for start in range(0, 400, 100):
            learned.learn(setup, rows.pick(np.arange(start, start + 100)))
            kernels.linear_apply_penalty(learned.native(), setup.native())
            assert learned.clock[SCALE] == 1
            assert learned.clock[SHRINK] == 0
        state = learn_slowly(setup, rows)
        relative = 1e-11 if dtype == np.float64 else 1e-4
        assert_close(learned.weights(setup), state.w, relative)
        if learned.average is not None:
            assert_close(learned.mean_weights(), state.mean_weights(), relative)


# ------------------------------------------------------------------------------------------------------- trouble

every_solver = pytest.mark.parametrize(
    ("solver", "n_outputs", "l1"), [(solver, k, l1) for solver in SOLVERS for k in (1, 3) for l1 in (0.0, 0.01)]
)


@every_solver
@pytest.mark.parametrize("index", [12, -1, 2**31 - 1, -(2**31)])
@pytest.mark.parametrize("entry", [0, 5, 11])  # in the vector part of the check, and behind it
@pytest.mark.parametrize("dtype", [np.float32, np.float64])  # floats are checked while they are added up
def test_a_bad_index_stops_at_its_row(solver, n_outputs, l1, index, entry, dtype):
    setup, rows = Setup(solver, l1=l1, l2=0.1), make_rows(17, n_outputs=n_outputs)
    bad = int(np.flatnonzero(np.diff(rows.indptr) == 12)[0])
    rows.indices[rows.indptr[bad] + entry] = index
    learned = learn(setup, rows, dtype)
    assert learned.outcomes[0][:2] == (bad, 1)
    assert learned.bits() == learn(setup, rows.pick(np.arange(bad)), dtype).bits()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n_features", [0, 50])
def test_an_index_outside_is_seen_at_every_place_of_a_row(dtype, n_features):
    weights, bias, out = np.ones((n_features, 1), dtype), np.zeros(1), np.zeros(1)
    for length in range(1, 41):
        for place in range(length):
            for index in (n_features, -1, 2**31 - 1, -(2**31)):
                indices = np.arange(length, dtype=np.int32)
                indices[place] = index
                rows = kernels.Rows(np.array([0, length]), indices, np.ones(length, np.float32))
                assert kernels.linear_scores(rows, weights, 1.0, bias, out)[0] == 0, (length, place, index)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("solver", ["adagrad", "ftrl"])
def test_adaptive_solvers_see_an_index_outside_at_every_place_of_a_row(solver, dtype):
    setup = Setup(solver)
    for length in range(1, 20):
        for place in range(length):
            for index in (20, -1, 2**31 - 1, -(2**31)):
                indices = np.arange(length, dtype=np.int32)
                indices[place] = index
                values, y = np.ones(length, np.float32), np.ones(1)
                rows = Rows(np.array([0, length]), indices, values, y, None, n_features=20, n_outputs=1)
                learned = learn(setup, rows, dtype)
                assert learned.outcomes[0][:2] == (0, 1), (length, place, index)
                assert not learned.v.any()


@pytest.mark.parametrize("solver", ["adagrad", "ftrl"])
@pytest.mark.parametrize("half_life", [np.inf, 1e6])
def test_a_sum_of_squares_that_overflows_is_seen_at_every_place_of_a_row(solver, half_life):
    setup = Setup(solver, half_life=half_life if solver == "adagrad" else np.inf)
    for length in range(1, 10):
        for place in range(length):
            values = np.ones(length, np.float32)
            values[place] = 1.5e19  # its gradient squared is 5.6e37, and float32 ends at 3.4e38
            rows = Rows(np.array([0, length]), np.arange(length, dtype=np.int32), values, np.ones(1), None, 9, 1)
            learned = Learned.zeros(setup, 9, 1, np.float32)
            learned.v[place, 1] = 2e38
            assert learned.learn(setup, rows).outcomes[-1][:2] == (1, 0), (length, place)
            learned = Learned.zeros(setup, 9, 1, np.float32)
            learned.v[place, 1] = 3.3e38
            assert learned.learn(setup, rows).outcomes[-1][:2] == (0, 2), (length, place)


def test_a_bad_index_of_a_row_without_weight_stops_there_too():
    rows = make_rows(17)
    rows.weight = np.ones(60)
    rows.weight[7] = 0
    rows.indices[rows.indptr[7]] = 12
    assert learn(Setup("sgd"), rows, np.float32).outcomes[0][:2] == (7, 1)


@every_solver
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_value_that_is_no_number_stops_at_its_row(solver, n_outputs, l1, value):
    setup, rows = Setup(solver, l1=l1, l2=0.1), make_rows(18, n_outputs=n_outputs)
    bad = 40 + int(np.argmax(np.diff(rows.indptr)[40:]))
    rows.values[rows.indptr[bad]] = value
    learned = learn(setup, rows)
    assert learned.outcomes[0][:2] == (bad, 2)
    # Debts may have been paid on the way: compare the weights, not the bits.
    good = learn(setup, rows.pick(np.arange(bad)))
    np.testing.assert_array_equal(learned.weights(setup), good.weights(setup))
    np.testing.assert_array_equal(learned.bias, good.bias)
    assert learned.clock[T] == bad


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("n_outputs", [1, 2])
@pytest.mark.parametrize(("loss", "score"), [("exponential", -800.0), ("poisson", 800.0), ("squared", 1e200)])
def test_a_loss_that_overflows_stops_at_its_row(solver, n_outputs, loss, score):
    """The score is a number, but neither the loss nor the step it asks for is."""
    setup, rows = Setup(solver, loss), make_rows(19, loss=loss, n_outputs=n_outputs)
    rows.y[:] = 1
    learned = Learned.zeros(setup, 12, n_outputs)
    learned.bias[-1] = score
    before = learned.bits()
    learned.learn(setup, rows)
    assert learned.outcomes[0] == (0, 2, 0.0, 0.0)
    assert learned.bits() == before


def test_trouble_in_a_batch_learns_nothing_from_the_batch():
    setup, rows = Setup(batch_size=8, l2=0.1), make_rows(19)
    bad = 17 + int(np.argmax(np.diff(rows.indptr)[17:24] > 0))
    rows.indices[rows.indptr[bad]] = 99
    learned = learn(setup, rows)
    assert learned.outcomes[0][:2] == (bad, 1)  # names the row
    assert learned.bits() == learn(setup, rows.pick(np.arange(16))).bits()


def test_divergence_is_reported():
    setup, rows = Setup(loss="poisson", eta0=100.0), make_rows(20, n=3000, loss="poisson")
    n, status, *_ = learn(setup, rows, np.float32).outcomes[0]
    assert status == 2
    assert 0 < n < 3000


@pytest.mark.parametrize("loss", UNBOUNDED)
def test_no_step_overshoots_the_row_it_learns(loss):
    setup, rows = Setup(loss=loss, eta0=100.0, bias_scale=-1.0), make_rows(20, n=3000, loss=loss)
    learned = learn(setup, rows, np.float32)
    assert learned.outcomes[0][:2] == (3000, 0)
    last = int(np.flatnonzero(np.diff(rows.indptr))[-1])
    score = float((rows.dense()[last] @ learned.weights(setup))[0])
    if loss == "squared":
        assert score == pytest.approx(rows.y[last], abs=1e-4)  # the step ends exactly at its own minimum
    assert np.abs(learned.weights(setup)).max() < 1e3


@pytest.mark.parametrize("batch_size", [2**40, 2**62, 2**63 - 1])
def test_a_huge_batch_is_one_batch(batch_size):
    rows = make_rows(21, weight="mixed")
    assert learn(Setup(batch_size=batch_size), rows).bits() == learn(Setup(batch_size=60), rows).bits()
    one = rows.pick([int(np.argmax(rows.weight))])
    assert learn(Setup(batch_size=batch_size), one).bits() == learn(Setup(batch_size=2), one).bits()


@pytest.mark.parametrize("solver", SOLVERS)
def test_tables_beyond_two_to_the_thirty(solver):
    """An index times two outgrows 32 bits. The pages that are never touched cost nothing."""
    n_features = 2**30 + 10
    try:
        v = np.zeros((n_features, ENTRIES[solver]), np.float32)
    except MemoryError:
        pytest.skip("no address space for 8 GB")
    last = n_features - 1
    state = kernels.LinearState(v, *np.zeros((3, 1)), np.array([0.0, 0, 1, 0, 0, 0, 0]))
    row = kernels.Rows(np.array([0, 1]), np.array([last], np.int32), np.ones(1, np.float32), np.ones(1))
    assert kernels.linear_learn(row, state, Setup(solver).native())[:2] == (1, 0)
    assert v[last, 0] != 0


# ----------------------------------------------------------------------------------- what the bindings refuse


def refused(message, *, setup=None, rows=None, dtype=np.float64, error=ValueError, **arrays):
    setup = Setup() if setup is None else setup
    rows = make_rows(22) if rows is None else rows
    learned = Learned.zeros(setup, rows.n_features, rows.n_outputs, dtype)
    block = {name: getattr(rows, name) for name in ("indptr", "indices", "values", "y", "weight")} | {"order": None}
    state = {name: value for name, value in vars(learned).items() if name != "outcomes"}
    with pytest.raises(error, match=message):
        kernels.linear_learn(
            kernels.Rows(**{name: arrays.get(name, value) for name, value in block.items()}),
            kernels.LinearState(**{name: arrays.get(name, value) for name, value in state.items()}),
            setup.native(),
        )


def test_arrays_that_do_not_fit_are_refused():
    rows = make_rows(22)
    refused("indptr must not decrease", indptr=rows.indptr[::-1].copy() - rows.indptr[0] + 0 * rows.indptr)
    refused("indptr does not fit", indptr=rows.indptr + 1)
    refused("indptr does not fit", indptr=rows.indptr - 1)
    refused("indptr does not fit", indptr=np.zeros(0, np.int64))
    refused("y does not fit", y=np.zeros(59))
    refused("weight does not fit", weight=np.ones(59))
    refused("order", order=np.array([60]))
    refused("order", order=np.array([-1]))
    refused("weights do not fit the bias", bias=np.zeros(5))
    refused("biases differ", bias_square=np.zeros(2))
    refused("clock", clock=np.zeros(6))
    refused("float32 or float64", v=np.zeros((12, 1), np.int64))
    refused("averaging needs its array", average=np.zeros((12, 1)))
    refused("averaging needs its array", setup=Setup(average="uniform"), average=None)
    refused("average does not fit", setup=Setup(average="uniform"), average=np.zeros((12, 1), np.float32))
    refused("l1 needs its clocks", setup=Setup(l1=0.1), shrunk=None)
    refused("shrunk does not fit", setup=Setup(l1=0.1), shrunk=np.zeros(11))
    refused("batch_size", setup=Setup(batch_size=0))


@pytest.mark.parametrize("weight", [np.nan, np.inf, -1.0])
def test_weights_must_be_numbers(weight):
    refused("weight must be finite and not negative", weight=np.where(np.arange(60) == 30, weight, 1.0))


def test_only_visited_rows_are_looked_at():
    rows = make_rows(22)
    rows.indptr[31:] = 10**9
    order = np.arange(30)
    assert learn(Setup(), rows, order=order).bits() == learn(Setup(), rows.pick(order)).bits()
    refused("indptr does not fit", rows=rows, order=np.array([30]))


@pytest.mark.parametrize("code", [3.0, -1.0, np.nan])
def test_class_codes_must_be_classes(code):
    rows = make_rows(23, n_outputs=3, kind="softmax")
    rows.y[7] = code
    refused("class code", setup=Setup(target_kind="softmax"), rows=rows)


def test_class_codes_need_two_outputs():
    refused("class codes need", setup=Setup(target_kind="one_vs_rest"), y=np.zeros(60))


def test_a_threshold_refuses_l2():
    """Shrinkage paid late cannot know when a decaying weight fell below the threshold."""
    refused("truncate_below", setup=Setup(l1=0.1, l2=0.1, truncate_below=1.0))


@pytest.mark.parametrize("name", ["v", "shrunk", "bias", "bias_square", "bias_average", "clock"])
def test_state_is_never_copied(name):
    """A copy would be learned into and thrown away."""
    setup, rows = Setup(l1=0.1), make_rows(22, n_outputs=3)
    array = getattr(Learned.zeros(setup, 12, 3), name)
    frozen = array.copy()
    frozen.flags.writeable = False
    copies = [np.repeat(array.ravel(), 2)[::2], frozen]
    if name != "v":  # either float type is right for v
        copies.append(array.astype(np.float32))
    for other in copies:
        refused("incompatible function arguments", setup=setup, rows=rows, error=TypeError, **{name: other})


# --------------------------------------------------------------------------------------------------------- scores


def score(rows: Rows, weights, bias, n_threads=1, order=None, scale=1.0):
    n = len(rows.indptr) - 1 if order is None else len(order)
    scores = np.full((n, rows.n_outputs), np.nan)
    done, finite = kernels.linear_scores(rows.native(order), weights, scale, bias, scores, n_threads)
    assert finite == n
    return done, scores


@pytest.mark.parametrize("n_outputs", [1, 2, 3, 16, 17, 20, 33])
@pytest.mark.parametrize(("dtype", "relative"), [(np.float64, 1e-13), (np.float32, 1e-6)])
def test_scores_equal_their_definition(n_outputs, dtype, relative):
    rows = make_rows(24, n=100, n_features=50, n_outputs=n_outputs)
    rng = np.random.default_rng(0)
    weights, bias = rng.normal(size=(50, n_outputs)).astype(dtype), rng.normal(size=n_outputs)
    done, scores = score(rows, weights, bias)
    assert done == 100
    assert_close(scores, reference.linear_scores(rows.dense(), weights.astype(float), bias), relative)
    order = rng.permutation(100)[:70]
    np.testing.assert_array_equal(score(rows, weights, bias, order=order)[1], scores[order])
    without_bias = score(rows, weights, 0 * bias)[1]
    np.testing.assert_array_equal(score(rows, weights, bias, scale=0.3)[1], 0.3 * without_bias + bias)


@pytest.mark.parametrize("n_threads", [1, 4])
@pytest.mark.parametrize("n_outputs", [1, 3])
def test_scores_tell_the_first_that_is_no_number(n_threads, n_outputs):
    rows = make_rows(29, n=9000, n_outputs=n_outputs)
    filled = np.flatnonzero(np.diff(rows.indptr))
    for row, value in ((filled[-1], np.nan), (filled[5000], np.inf)):
        rows.values[rows.indptr[row]] = value
        scores = np.zeros((9000, n_outputs))
        found = kernels.linear_scores(
            rows.native(), np.ones((12, n_outputs)), 1.0, np.zeros(n_outputs), scores, n_threads
        )
        assert found == (9000, row)


@pytest.mark.parametrize("n_outputs", [1, 5])
@pytest.mark.parametrize("n_threads", [2, 3, 7, -1, 10**6])
def test_threads_give_the_same_bits(n_outputs, n_threads):
    rows = make_rows(25, n=9000, n_outputs=n_outputs)
    rng = np.random.default_rng(0)
    weights, bias = rng.normal(size=(12, n_outputs)).astype(np.float32), rng.normal(size=n_outputs)
    order = rng.permutation(9000)
    for visit in (None, order):
        alone, together = score(rows, weights, bias, 1, visit), score(rows, weights, bias, n_threads, visit)
        assert alone[0] == together[0] == 9000
        assert alone[1].tobytes() == together[1].tobytes()


@pytest.mark.parametrize("n_threads", [1, 4])
@pytest.mark.parametrize("n_outputs", [1, 3])
def test_scores_stop_at_the_first_bad_index(n_threads, n_outputs):
    rows = make_rows(26, n=9000, n_outputs=n_outputs)
    rows.indices[rows.indptr[[4321, 8000]]] = 12
    first = int(np.searchsorted(rows.indptr, rows.indptr[4321], side="right")) - 1
    done, scores = score(rows, np.ones((12, n_outputs)), np.zeros(n_outputs), n_threads)
    assert done == first
    assert not np.any(np.isnan(scores[:first]))


def test_read_only_weights_can_be_scored():
    """A model that is mapped from its file."""
    rows, weights = make_rows(27), np.ones((12, 1), np.float32)
    weights.flags.writeable = False
    assert score(rows, weights, np.zeros(1))[0] == 60


# ----------------------------------------------------------------------------------------------- instruction sets

ISA_PROGRAM = """
import json, sys
import numpy as np
sys.path.insert(0, sys.argv[1])
import test_kernels as tests
print(json.dumps([tests.kernels.isa, *tests.isa_sample()]))
"""


def isa_sample() -> list[list[float]]:
    """Weights and scores of several runs, float32 first."""
    samples = []
    for dtype in (np.float32, np.float64):
        numbers: list[float] = []
        for solver, (n_outputs, kind, loss) in itertools.product(SOLVERS, OUTPUTS):
            setup = Setup(solver, loss, target_kind=kind, l1=0.001, l2=0.01)
            rows = make_rows(28, n=100, n_features=80, n_outputs=n_outputs, kind=kind, loss=loss)
            weights = learn(setup, rows, dtype).weights(setup)
            scores = score(rows, weights.astype(dtype), np.zeros(n_outputs))[1]
            numbers += [*weights.ravel(), *scores.ravel()]
        samples.append([float(number) for number in numbers])
    return samples


def test_instruction_sets_agree():
    here = os.path.dirname(os.path.abspath(__file__))
    environment = {**os.environ, "STEEPEST_ISA": "baseline", "PYTHONPATH": os.pathsep.join(sys.path)}
    program = subprocess.run(
        [sys.executable, "-c", ISA_PROGRAM, here], env=environment, capture_output=True, text=True, check=True
    )
    isa, *baseline = json.loads(program.stdout)
    assert isa == "baseline"
    singles, doubles = isa_sample()
    np.testing.assert_allclose(singles, baseline[0], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(doubles, baseline[1], rtol=1e-12, atol=1e-12)


def test_nothing_to_learn():
    for solver in SOLVERS:
        learned = Learned.zeros(Setup(solver), 0, 1)
        empty = Rows(*NO_ROWS, np.zeros(0), None, 0, 1)
        assert learned.learn(Setup(solver), empty).outcomes[0] == (0, 0, 0.0, 0.0)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("shape", [(7, 1), (5, 3), (9,), (0, 2)])
def test_mean_weights_are_as_defined(shape, dtype):
    v, u = np.random.default_rng(3).normal(size=(2, *shape)).astype(dtype)
    expected = ((2.5 * v.astype(np.float64) - u) / 0.7).astype(dtype)
    pairs = [(v, u)] if v.ndim == 1 else [(v, u), (np.stack([v, u], axis=1), None)]
    for first, second in pairs:
        out = np.empty_like(v)
        kernels.mean_weights(first, second, 2.5, 0.7, out)
        np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", [(0,), (3, 1), (70_001,), (401, 77)])
def test_norms_of_a_table_are_those_of_numpy(dtype, shape):
    table = np.random.default_rng(0).normal(size=shape).astype(dtype)
    table[np.abs(table) < 0.5] = 0
    absolute, square, nonzeros = kernels.table_norms(table)
    exact = table.astype(np.float64)
    assert absolute == pytest.approx(np.abs(exact).sum(), rel=1e-12)
    assert square == pytest.approx((exact**2).sum(), rel=1e-12)
    assert nonzeros == np.count_nonzero(table)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_norms_have_the_same_bits_on_every_machine(dtype):
    table = np.random.default_rng(1).normal(size=50_003).astype(dtype)
    code = (
        "import numpy as np; from steepest import kernels; "
        f"print(kernels.table_norms(np.random.default_rng(1).normal(size=50_003).astype(np.{np.dtype(dtype).name})))"
    )
    environment = {**os.environ, "STEEPEST_ISA": "baseline", "PYTHONPATH": os.pathsep.join(sys.path)}
    other = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert other.stdout.strip() == str(kernels.table_norms(table))
