"""The schedules: golden values, positivity, Bottou's formula, and the same numbers in the kernels."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steepest import kernels
from steepest.errors import ParameterError
from steepest.learners import schedules
from steepest.learners.losses import LOSSES, get_loss
from steepest.learners.schedules import SCHEDULES, schedule_code, typical_eta0

# (schedule, t, eta0, alpha, power, eta)
GOLDEN = [
    ("constant", 0, 0.5, 0.1, 1.0, 0.5),
    ("constant", 1e9, 0.5, 0.1, 1.0, 0.5),
    ("adaptive", 1e9, 0.5, 0.1, 1.0, 0.5),
    ("invsqrt", 0, 0.5, 0.1, 1.0, 0.5),
    ("invsqrt", 99, 0.5, 0.1, 1.0, 0.05),
    ("bottou", 0, 0.5, 0.02, 1.0, 0.5),
    ("bottou", 100, 0.5, 0.02, 1.0, 0.25),
    ("bottou", 300, 0.5, 0.02, 0.5, 0.25),
    ("bottou", 1500, 0.5, 0.02, 0.75, 0.0625),
    ("optimal", 100, 0.5, 0.02, 1.0, 0.25),
    ("auto", 100, 0.5, 0.02, 1.0, 0.25),
    ("auto", 0, 0.5, 0.0, 1.0, 0.5),
    ("auto", 3000, 0.5, 0.0, 1.0, 0.25),
    ("auto", 99_000, 0.5, 1e-6, 1.0, 0.05),
    ("auto", 99_000, 0.5, 1e-3, 1.0, 0.5 / 50.5),
]


def step_size(schedule, t, eta0, alpha, power=1.0):
    return schedules.scheduled_step(schedule_code(schedule, alpha), t, eta0, alpha, power)


@pytest.mark.parametrize(("schedule", "t", "eta0", "alpha", "power", "eta"), GOLDEN)
def test_golden_values(schedule, t, eta0, alpha, power, eta):
    assert step_size(schedule, t, eta0, alpha, power) == pytest.approx(eta, rel=1e-15)


@pytest.mark.parametrize("schedule", SCHEDULES)
@given(
    t=st.floats(0, 1e12),
    later=st.floats(0, 1e12),
    eta0=st.floats(1e-6, 1e3),
    alpha=st.floats(1e-9, 10),
    power=st.floats(0.25, 1),
)
def test_steps_are_positive_and_never_grow(schedule, t, later, eta0, alpha, power):
    now, then = step_size(schedule, t, eta0, alpha, power), step_size(schedule, t + later, eta0, alpha, power)
    assert 0 < then <= now <= eta0


@given(t=st.floats(0, 1e9), eta0=st.floats(1e-4, 100), alpha=st.floats(1e-8, 1))
def test_power_one_is_bottous_rate(t, eta0, alpha):
    """1 / (alpha (t0 + t)) with t0 = 1 / (eta0 alpha)."""
    t0 = 1 / (eta0 * alpha)
    for schedule in ("bottou", "optimal"):
        assert step_size(schedule, t, eta0, alpha) == pytest.approx(1 / (alpha * (t0 + t)), rel=1e-12)


@given(t=st.floats(0, 1e9), eta0=st.floats(1e-4, 100), alpha=st.floats(0, 1))
def test_auto_is_the_slower_of_two_rates(t, eta0, alpha):
    """Bottou's, which the penalty sets, and that of the noise, which halves the step after three thousand rows."""
    eta = step_size("auto", t, eta0, alpha)
    assert eta == pytest.approx(min(step_size("bottou", t, eta0, alpha), eta0 / (1 + t / 1000) ** 0.5), rel=1e-12)


@pytest.mark.parametrize(
    ("loss", "alpha", "eta0"),
    [  # typical weight alpha^(-1/4), over max(1, |gradient(-typical, 1)|)
        ("hinge", 1e-4, 10.0),
        ("log", 1e-4, 10.0),
        ("log", 1e-8, 100.0),
        ("perceptron", 1e-8, 100.0),
        ("squared", 1e-4, 10 / 11),
        ("squared_hinge", 1e-4, 10 / 22),
        ("modified_huber", 1e-4, 10 / 4),
        ("exponential", 1e-4, 10 * np.exp(-10)),
        ("huber", 1e-4, 10.0),
        ("epsilon_insensitive", 1e-4, 10.0),
        ("quantile", 1e-4, 10.0),
        ("poisson", 1e-4, 10.0),
        ("squared", 16.0, 1 / 3),
        ("squared", 1.0, 1 / 2),
    ],
)
def test_typical_eta0(loss, alpha, eta0):
    assert typical_eta0(get_loss(loss), alpha) == pytest.approx(eta0, rel=1e-12)


def test_t0_of_optimal():
    eta0 = typical_eta0(get_loss("hinge"), 1e-4)
    assert 1 / (eta0 * 1e-4) == pytest.approx(1000.0)
    assert step_size("optimal", 0, eta0, 1e-4) == pytest.approx(10.0)
    assert step_size("optimal", 9000, eta0, 1e-4) == pytest.approx(1.0)


@pytest.mark.parametrize("loss", LOSSES)
@given(alpha=st.floats(1e-9, 100))
def test_typical_eta0_is_positive(loss, alpha):
    typical = alpha**-0.25
    assert 0 < typical_eta0(get_loss(loss), alpha) <= typical * (1 + 1e-15)


def test_a_loss_too_steep_for_optimal():
    with pytest.raises(ParameterError, match="exponential"):
        typical_eta0(get_loss("exponential"), 1e-12)


def test_alpha_zero():
    with pytest.raises(ParameterError, match=r"schedule='optimal'.*alpha"):
        schedule_code("optimal", 0.0)
    with pytest.raises(ParameterError, match="alpha > 0"):
        typical_eta0(get_loss("log"), 0.0)


def test_unknown_schedule():
    with pytest.raises(ParameterError, match="schedule='fast' is unknown; choose one of auto, constant"):
        step_size("fast", 0, 1, 1, 1)


def test_bad_alpha():
    with pytest.raises(ParameterError, match="alpha=nan"):
        schedule_code("bottou", float("nan"))


def test_codes():
    assert {name: schedule_code(name, 0.1) for name in SCHEDULES} == {
        "auto": 3,
        "constant": 0,
        "invsqrt": 1,
        "bottou": 2,
        "optimal": 2,
        "adaptive": 0,
    }


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("power", [1.0, 0.75])
@pytest.mark.parametrize("t", [0.0, 1.0, 1234.5, 1e8])
def test_the_kernels_take_the_same_steps(schedule, power, t):
    """A row with the perceptron's gradient -1 and value 1 moves a weight by exactly eta."""
    eta0, alpha = 0.3, 1e-3
    v, clock = np.zeros(1), np.array([t, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0])
    choices = kernels.LinearChoices(
        solver=0,
        loss=get_loss("perceptron").code,
        loss_parameter=0.0,
        target_kind=0,
        schedule=schedule_code(schedule, alpha),
        eta0=eta0,
        power=power,
        alpha=alpha,
        l1=0.0,
        l2=0.0,
        truncate_below=np.inf,
        truncate_every=1,
        average=0,
        batch_size=1,
        bias_scale=-1.0,
    )
    row = kernels.Rows(np.array([0, 1]), np.zeros(1, np.int32), np.ones(1, np.float32), np.ones(1))
    kernels.linear_learn(row, kernels.LinearState(v, *np.zeros((3, 1)), clock), choices)
    assert v[0] == pytest.approx(step_size(schedule, t, eta0, alpha, power), rel=1e-15)
