"""Every loss, in NumPy and in kernels: gradient, convexity, tails, kinks, minimum, and the bound on the 0/1 loss."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steepest import kernels
from steepest.errors import ParameterError
from steepest.learners.losses import LOSSES, get_loss, loss_parameter

NAMES = tuple(LOSSES)
BINARY = tuple(name for name in NAMES if LOSSES[name].kind == "binary")
PARAMETERS = {"epsilon": (0.1, 0.7), "quantile": (0.5, 0.9)}
CASES = [(name, q) for name in NAMES for q in PARAMETERS.get(LOSSES[name].parameter or "", (0.0,))]
every_case = pytest.mark.parametrize(("name", "parameter"), CASES)

# Scores at which a gradient jumps, with the gradient chosen there: (loss, parameter, score, y, gradient).
KINKS = [
    ("hinge", 0.0, 1.0, 1.0, 0.0),
    ("hinge", 0.0, -1.0, -1.0, 0.0),
    ("perceptron", 0.0, 0.0, 1.0, -1.0),
    ("perceptron", 0.0, 0.0, -1.0, 1.0),
    ("epsilon_insensitive", 0.5, 2.5, 2.0, 0.0),
    ("epsilon_insensitive", 0.5, 1.5, 2.0, 0.0),
    ("quantile", 0.9, 2.0, 2.0, 0.0),
]


def numpy_loss(name, parameter, scores, y):
    loss = get_loss(name)
    return loss.value(scores, y, parameter), loss.gradient(scores, y, parameter)


def native_loss(name, parameter, scores, y):
    return kernels.loss_value_gradient(get_loss(name).code, parameter, *np.broadcast_arrays(scores, y))


both = pytest.mark.parametrize("evaluate", [numpy_loss, native_loss], ids=["numpy", "native"])


def targets(name):
    return {"binary": (-1.0, 1.0), "real": (-1.5, 0.0, 2.0), "count": (0.0, 1.0, 5.0)}[LOSSES[name].kind]


def kink_scores(name, parameter, y):
    """Where the first or second derivative jumps: a difference quotient across is not a derivative."""
    if LOSSES[name].kind == "binary":
        return np.array([-1.0, 0.0, 1.0])
    return np.array([y - parameter, y, y + parameter])


@both
@every_case
def test_gradient_is_the_derivative(name, parameter, evaluate):
    step = 1e-6
    for y in targets(name):
        scores = np.linspace(-4, 4, 401) + 1e-3
        kinks = kink_scores(name, parameter, y)
        scores = scores[np.min(np.abs(scores[:, None] - kinks), axis=1) > 10 * step]
        above, _ = evaluate(name, parameter, scores + step, y)
        below, _ = evaluate(name, parameter, scores - step, y)
        _, gradient = evaluate(name, parameter, scores, y)
        np.testing.assert_allclose((above - below) / (2 * step), gradient, rtol=1e-7, atol=1e-7)


@every_case
def test_native_equals_numpy(name, parameter):
    scores = np.concatenate([np.linspace(-30, 30, 601), kink_scores(name, parameter, 1.0), [-700.0, 700.0, -1e6, 1e6]])
    for y in targets(name):
        for ours, theirs in zip(
            numpy_loss(name, parameter, scores, y), native_loss(name, parameter, scores, y), strict=True
        ):
            # The kernels' log(1 + e) is good to 1e-12, see losses.h; all else is the same arithmetic. But on some
            # processors NumPy's exp has another last bit, which counts where the rest nearly cancels it.
            room = 1e-15 * np.exp(np.minimum(scores, 700.0)) if name == "poisson" else 0.0
            bound = (2e-12 if name == "log" else 1e-14) * np.abs(theirs) + room + 1e-300
            with np.errstate(invalid="ignore"):
                assert ((ours == theirs) | (np.abs(ours - theirs) <= bound)).all()


@both
@every_case
def test_convex(name, parameter, evaluate):
    scores = np.linspace(-20, 20, 2001)
    for y in targets(name):
        values, gradients = evaluate(name, parameter, scores, y)
        assert np.all(np.diff(gradients) >= 0)
        # Every tangent lies below the curve.
        tangents = values[:, None] + gradients[:, None] * (scores[None, :] - scores[:, None])
        assert np.all(tangents <= values[None, :] * (1 + 1e-12) + 1e-9)


@both
@every_case
@pytest.mark.parametrize("score", [-1e6, -50.0, 50.0, 1e6])
def test_tails_are_finite(name, parameter, evaluate, score):
    for y in targets(name):
        values, gradients = evaluate(name, parameter, np.array([score]), y)
        grows_like_exp = (name == "exponential" and y * score == -1e6) or (name == "poisson" and score == 1e6)
        if grows_like_exp:  # exp(1e6) is no number of float64
            assert np.isposinf(values[0])
            assert np.isinf(gradients[0])
        else:
            assert np.isfinite(values[0])
            assert np.isfinite(gradients[0])
            assert values[0] >= -1e-12


@both
def test_log_keeps_its_small_values(evaluate):
    values, gradients = evaluate("log", 0.0, np.array([40.0, 700.0, -700.0]), 1.0)
    np.testing.assert_allclose(values, [np.exp(-40.0), np.exp(-700.0), 700.0], rtol=1e-15)
    np.testing.assert_allclose(gradients, [-np.exp(-40.0), -np.exp(-700.0), -1.0], rtol=1e-15)


@both
@pytest.mark.parametrize(("name", "parameter", "score", "y", "gradient"), KINKS)
def test_kinks(name, parameter, score, y, gradient, evaluate):
    assert evaluate(name, parameter, np.array([score]), y)[1][0] == gradient


@both
@pytest.mark.parametrize(
    ("name", "parameter", "score", "y", "value", "gradient"),
    [
        ("hinge", 0.0, 0.25, 1.0, 0.75, -1.0),
        ("squared_hinge", 0.0, 0.5, -1.0, 2.25, 3.0),
        ("log", 0.0, 0.0, -1.0, np.log(2), 0.5),
        ("exponential", 0.0, 1.0, 1.0, np.exp(-1), -np.exp(-1)),
        ("modified_huber", 0.0, -3.0, 1.0, 12.0, -4.0),
        ("modified_huber", 0.0, -1.0, 1.0, 4.0, -4.0),
        ("modified_huber", 0.0, 0.5, 1.0, 0.25, -1.0),
        ("perceptron", 0.0, -2.0, 1.0, 2.0, -1.0),
        ("squared", 0.0, 3.0, 1.0, 2.0, 2.0),
        ("huber", 0.5, 3.0, 1.0, 0.875, 0.5),
        ("huber", 0.5, 1.25, 1.0, 0.03125, 0.25),
        ("epsilon_insensitive", 0.5, -1.0, 1.0, 1.5, -1.0),
        ("quantile", 0.9, 0.0, 2.0, 1.8, -0.9),
        ("quantile", 0.75, 4.0, 2.0, 0.5, 0.25),
        ("poisson", 0.0, 0.0, 3.0, 3 * np.log(3) - 2, -2.0),
        ("poisson", 0.0, np.log(2), 0.0, 2.0, 2.0),
    ],
)
def test_values_by_hand(name, parameter, score, y, value, gradient, evaluate):
    values, gradients = evaluate(name, parameter, np.array([score]), y)
    np.testing.assert_allclose([values[0], gradients[0]], [value, gradient], rtol=1e-15, atol=1e-15)


@both
@every_case
def test_minimum(name, parameter, evaluate):
    scores = np.linspace(-40, 40, 8001)
    for y in targets(name):
        values, _ = evaluate(name, parameter, scores, y)
        if LOSSES[name].kind == "binary":  # least where the row is right by far, and falling all the way
            assert values[-1 if y > 0 else 0] == pytest.approx(0, abs=1e-17)
            assert np.all(np.diff(values if y > 0 else values[::-1]) <= 0)
            continue
        best = y if name != "poisson" else np.log(y) if y > 0 else -40.0
        value, gradient = evaluate(name, parameter, np.array([best]), y)
        assert value[0] == pytest.approx(0, abs=1e-15)
        assert gradient[0] == pytest.approx(0, abs=1e-15)
        assert np.all(values >= value[0] - 1e-14)


@both
def test_the_quantile_loss_finds_the_quantile(evaluate):
    y = np.random.default_rng(0).exponential(size=1001)
    costs = [evaluate("quantile", 0.9, np.full(1001, z), y)[0].sum() for z in np.sort(y)]
    assert np.sort(y)[np.argmin(costs)] == np.quantile(y, 0.9, method="inverted_cdf")


@both
@pytest.mark.parametrize("name", NAMES)
def test_bound_on_the_zero_one_loss(name, evaluate):
    factor = get_loss(name).bounds_zero_one
    scores = np.linspace(-5, 5, 1001)
    for y in (-1.0, 1.0):
        wrong = (y * scores <= 0).astype(float)
        if factor is not None:
            assert np.all(factor * evaluate(name, 0.0, scores, y)[0] >= wrong - 1e-15)
            # No smaller factor would do.
            assert not np.all(0.999 * factor * evaluate(name, 0.0, scores, y)[0] >= wrong)


def test_which_losses_bound_the_zero_one_loss():
    bounds = {name: loss.bounds_zero_one for name, loss in LOSSES.items() if loss.bounds_zero_one}
    assert bounds == {
        "hinge": 1.0,
        "squared_hinge": 1.0,
        "log": pytest.approx(1 / np.log(2)),
        "exponential": 1.0,
        "modified_huber": 1.0,
        "squared": 2.0,
    }


@every_case
def test_curvature_is_the_largest_second_derivative(name, parameter):
    loss, step = get_loss(name), 1e-3
    scores = np.linspace(-6, 6, 12001)
    second = max(np.max(np.diff(loss.gradient(scores, y, parameter)) / step) for y in targets(name))
    if loss.curvature is not None:
        assert second == pytest.approx(loss.curvature, rel=1e-6)
    else:  # a jump of the gradient, or growth without end
        assert second > 10


def test_probabilities():
    scores = np.array([-800.0, -2.0, -0.5, 0.0, 0.5, 2.0, 800.0])
    sigmoid = np.array([0.0, 0.11920292202211755, 0.3775406687981454, 0.5, 0.6224593312018546, 0.8807970779778823, 1.0])
    np.testing.assert_allclose(get_loss("log").probability(scores), sigmoid, atol=1e-300)
    np.testing.assert_array_equal(get_loss("modified_huber").probability(scores), [0, 0, 0.25, 0.5, 0.75, 1, 1])
    np.testing.assert_allclose(get_loss("exponential").probability(scores / 2), sigmoid, atol=1e-300)
    np.testing.assert_allclose(get_loss("squared_hinge").probability(scores / 5), sigmoid, atol=1e-300)
    assert {name for name in NAMES if get_loss(name).probability(0.0) is None} == set(NAMES) - {
        "log",
        "modified_huber",
        "exponential",
        "squared_hinge",
    }


@pytest.mark.parametrize("name", ["log", "exponential", "modified_huber"])
@given(score=st.floats(-0.999, 0.999))
def test_the_best_score_gives_back_the_probability(name, score):
    """At the score that minimises the expected loss, the link returns the probability of the target."""
    loss = get_loss(name)
    p = float(loss.probability(score))
    assert p * loss.gradient(score, 1.0) + (1 - p) * loss.gradient(score, -1.0) == pytest.approx(0, abs=1e-12)


def test_means():
    scores = np.array([-1.0, 0.0, 2.0])
    np.testing.assert_array_equal(get_loss("poisson").mean(scores), np.exp(scores))
    for name in set(NAMES) - {"poisson"}:
        np.testing.assert_array_equal(get_loss(name).mean(scores), scores)


def test_names_codes_and_kinds():
    assert NAMES == (
        "hinge",
        "squared_hinge",
        "log",
        "exponential",
        "modified_huber",
        "perceptron",
        "squared",
        "huber",
        "epsilon_insensitive",
        "quantile",
        "poisson",
    )
    assert [loss.code for loss in LOSSES.values()] == list(range(11))
    assert NAMES[:6] == BINARY
    assert {name: loss.parameter for name, loss in LOSSES.items() if loss.parameter} == {
        "huber": "epsilon",
        "epsilon_insensitive": "epsilon",
        "quantile": "quantile",
    }


@pytest.mark.parametrize("name", NAMES)
def test_a_loss_survives_pickling_and_plotting(name):
    loss = pickle.loads(pickle.dumps(get_loss(name)))
    scores = np.linspace(*loss.plot_range, 50)
    values = loss.value(scores, 1.0, loss.default_parameter)
    assert values.shape == scores.shape
    assert 0.3 < np.ptp(values) < 50
    assert loss == get_loss(name)


def test_unknown_loss():
    with pytest.raises(
        ParameterError, match=r"loss='logit' is unknown; did you mean 'log'\? choose one of hinge, .*, poisson"
    ):
        get_loss("logit")


@pytest.mark.parametrize("value", [0.0, 1.0, -0.1, np.nan])
def test_bad_quantile(value):
    with pytest.raises(ParameterError, match="quantile="):
        loss_parameter("quantile", {"quantile": value})


@pytest.mark.parametrize("value", [-0.1, np.inf, np.nan])
def test_bad_epsilon(value):
    with pytest.raises(ParameterError, match="epsilon="):
        loss_parameter("huber", {"epsilon": value})


def test_good_parameters():
    params = {"quantile": 0.25, "epsilon": 0}
    assert [loss_parameter(name, params) for name in ("quantile", "huber", "log")] == [0.25, 0.0, 0.0]


def test_native_refuses_arrays_of_different_length():
    with pytest.raises(ValueError, match="differ in length"):
        kernels.loss_value_gradient(0, 0.0, np.zeros(3), np.zeros(2))
