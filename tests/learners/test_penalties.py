"""The penalties: values, gradients, proximal maps, and the two numbers the kernels take."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steepest.errors import ParameterError
from steepest.learners.penalties import (
    Penalty,
    check_alpha,
    soft_threshold,
)

ALL = [
    Penalty("none"),
    Penalty("l2"),
    Penalty("l1"),
    Penalty("elasticnet", l1_ratio=0.15),
    Penalty("elasticnet", l1_ratio=0.0),
    Penalty("elasticnet", l1_ratio=1.0),
    *(Penalty("lp", p=p) for p in (1.0, 1.001, 1.1, 1.5, 2.0, 2.5, 3.0, 10.0)),
]
every_penalty = pytest.mark.parametrize("penalty", ALL, ids=str)
weights = st.floats(-100, 100, allow_subnormal=False)
steps = st.floats(0, 50, allow_subnormal=False)


def test_values_by_hand():
    w = np.array([3.0, -1.0, 0.0])
    assert Penalty("none").value(w) == 0
    assert Penalty("l2").value(w) == 5.0
    assert Penalty("l1").value(w) == 4.0
    assert Penalty("elasticnet", l1_ratio=0.25).value(w) == 0.25 * 4 + 0.75 * 5
    assert Penalty("lp", p=3).value(w) == pytest.approx(28 / 3)
    assert Penalty("lp", p=1).value(w) == 4.0
    assert Penalty("lp", p=2).value(w) == 5.0


@every_penalty
def test_gradient_is_the_derivative(penalty):
    w, step = np.array([-2.0, -0.3, 0.4, 1.7]), 1e-6
    quotients = [(penalty.value([x + step]) - penalty.value([x - step])) / (2 * step) for x in w]
    np.testing.assert_allclose(penalty.gradient(w), quotients, rtol=1e-6, atol=1e-8)


@every_penalty
def test_gradient_at_zero_is_a_subgradient(penalty):
    np.testing.assert_array_equal(penalty.gradient(np.zeros(2)), np.zeros(2))


@every_penalty
@given(w=weights, step=steps)
def test_prox_beats_every_grid_point(penalty, w, step):
    def cost(x):
        return 0.5 * (x - w) ** 2 + step * penalty.value([x])

    x = float(penalty.prox([w], step)[0])
    candidates = [*np.linspace(-abs(w), abs(w), 41), 0.0, *(x + np.array([-1, 1, -1e-3, 1e-3, -1e-6, 1e-6]))]
    assert all(cost(x) <= cost(c) * (1 + 1e-12) + 1e-13 for c in candidates)


@pytest.mark.parametrize("p", [1.001, 1.01, 1.3, 1.5, 1.9, 2.2, 3.0, 4.0, 7.5, 50.0])
@given(w=weights, step=st.floats(1e-8, 1e4))
def test_prox_of_lp_solves_its_equation(p, w, step):
    """x + step x^(p-1) = |w|; the distance to the root is the residual over the slope, and stays below 1e-12."""
    x = float(abs(Penalty("lp", p=p).prox([w], step)[0]))
    if x < 1e-250:  # the true root may lie below the smallest number
        assert step * (1e-250) ** (p - 1) + 1e-250 >= abs(w) * (1 - 1e-9)
        return
    residual = x + step * x ** (p - 1) - abs(w)
    slope = 1 + step * (p - 1) * x ** (p - 2)
    assert abs(residual) / slope <= 1e-12 * max(1.0, abs(w))


@pytest.mark.parametrize(
    ("p", "step", "w", "x"),
    [  # roots of x + step x^(p-1) = w, found by hand: x^2 + x = 2, x + x^(1/2) = 2, x^3 + x = 10, x + 2 x^(1/4) = 20
        (3.0, 1.0, 2.0, 1.0),
        (1.5, 1.0, 2.0, 1.0),
        (4.0, 1.0, 10.0, 2.0),
        (1.25, 2.0, 20.0, 16.0),
        (3.0, 0.5, -4.0, -2.0),
        (3.0, 7.0, 0.0, 0.0),
    ],
)
def test_prox_of_lp_by_hand(p, step, w, x):
    assert Penalty("lp", p=p).prox([w], step)[0] == pytest.approx(x, rel=1e-14, abs=0)


@pytest.mark.parametrize(("p", "name"), [(1, "l1"), (2, "l2")])
@given(w=st.lists(weights, max_size=5), step=steps)
def test_lp_contains_l1_and_l2(p, name, w, step):
    np.testing.assert_array_equal(Penalty("lp", p=p).prox(w, step), Penalty(name).prox(w, step))


@every_penalty
@given(w=st.lists(weights, min_size=1, max_size=6), step=steps)
def test_prox_keeps_signs_and_order(penalty, w, step):
    x = penalty.prox(w, step)
    assert np.all(x * np.asarray(w) >= 0)
    assert np.all(np.abs(x) <= np.abs(w) + 1e-300)
    order = np.argsort(w)
    assert np.all(np.diff(x[order]) >= -1e-12 * np.max(np.abs(w)))


@every_penalty
def test_prox_with_step_zero_changes_nothing(penalty):
    w = np.array([-3.0, 0.0, 2.5])
    np.testing.assert_array_equal(penalty.prox(w, 0.0), w)


def test_prox_does_not_touch_its_argument():
    w = np.array([-3.0, 0.5])
    for penalty in ALL:
        penalty.prox(w, 1.0)[:] = 7
        penalty.prox(w, 0.0)[:] = 7
    np.testing.assert_array_equal(w, [-3.0, 0.5])


def test_prox_of_elasticnet_is_the_two_after_each_other():
    w = np.random.default_rng(0).normal(size=50)
    step, ratio = 0.7, 0.3
    expected = Penalty("l2").prox(Penalty("l1").prox(w, step * ratio), step * (1 - ratio))
    np.testing.assert_allclose(Penalty("elasticnet", l1_ratio=ratio).prox(w, step), expected, rtol=1e-14)


@pytest.mark.parametrize("step", [-1.0, np.nan, np.inf])
def test_bad_step(step):
    with pytest.raises(ParameterError, match="step="):
        Penalty("l1").prox([1.0], step)


def test_split():
    assert Penalty("none").split(0.5) == (0.0, 0.0)
    assert Penalty("l2").split(0.5) == (0.0, 0.5)
    assert Penalty("l1").split(0.5) == (0.5, 0.0)
    assert Penalty("elasticnet", l1_ratio=0.25).split(2.0) == (0.5, 1.5)
    assert Penalty("elasticnet", l1_ratio=0.75).split(2.0) == (1.5, 0.5)
    assert Penalty("lp", p=1).split(0.5) == (0.5, 0.0)
    assert Penalty("lp", p=2).split(0.5) == (0.0, 0.5)


@pytest.mark.parametrize("penalty", [p for p in ALL if p.name != "lp" or p.p in (1, 2)], ids=str)
def test_split_is_the_same_penalty(penalty):
    w, alpha = np.array([0.5, -2.0, 0.0]), 0.3
    l1, l2 = penalty.split(alpha)
    assert l1 * np.abs(w).sum() + l2 * 0.5 * (w**2).sum() == pytest.approx(alpha * penalty.value(w), rel=1e-15)


@pytest.mark.parametrize("alpha", [np.nan, -1e-9, np.inf])
def test_bad_alpha(alpha):
    with pytest.raises(ParameterError, match=r"alpha=.* not negative"):
        Penalty("l2").split(alpha)
    with pytest.raises(ParameterError, match="alpha="):
        check_alpha(alpha)


@pytest.mark.parametrize("p", [0.999, 0.0, -2.0, np.nan])
def test_a_p_below_1_is_refused_because_it_is_not_convex(p):
    with pytest.raises(ParameterError, match=r"p=.* no convex penalty.* at least 1"):
        Penalty("lp", p=p)


def test_an_infinite_p_is_the_max_norm():
    with pytest.raises(ParameterError, match="p=inf is the max norm; give penalty='max'"):
        Penalty("lp", p=np.inf)


@pytest.mark.parametrize("ratio", [-0.01, 1.01, np.nan])
def test_bad_l1_ratio(ratio):
    with pytest.raises(ParameterError, match=r"l1_ratio=.* outside \[0, 1\]"):
        Penalty("elasticnet", l1_ratio=ratio)


def test_unknown_penalty():
    with pytest.raises(ParameterError, match="penalty='ridge' is unknown; choose one of none, l2, l1, elasticnet, lp"):
        Penalty("ridge")


def test_stochastic_solvers_refuse_lp_in_general():
    with pytest.raises(ParameterError, match=r"p=1.5: .* p=1 and p=2 only; choose"):
        Penalty("lp", p=1.5).for_stochastic()
    with pytest.raises(ParameterError, match="p=3"):
        Penalty("lp", p=3.0).split(1.0)
    assert Penalty("lp", p=1).for_stochastic().name == "l1"
    assert Penalty("lp", p=2).for_stochastic().name == "l2"
    assert Penalty("l1").for_stochastic() == Penalty("l1")


def test_soft_threshold():
    np.testing.assert_array_equal(soft_threshold([3.0, -3.0, 0.5, 1.0], 1.0), [2.0, -2.0, 0.0, 0.0])
