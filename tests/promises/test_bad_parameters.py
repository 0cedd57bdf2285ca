"""A value of the wrong type is a ParameterError that names the parameter: every parameter of every estimator."""

from __future__ import annotations

import inspect
from dataclasses import fields

import numpy as np
import pytest

import steepest as st
from steepest import registry
from steepest.models.options import OPTIONS

RNG = np.random.default_rng(0)
X = RNG.normal(size=(40, 3))
NUMBERS = X[:, 0] + 1
CLASSES = X[:, 0] > 0
WRONG = {
    "object": object(),
    "complex": 1j,
    "nan": float("nan"),
    "word": "no such word",
    "bytes": b"\1",
    "function": len,
    "set": {1, 2},
    "array": np.array([1.0, 2.0]),
    "vast": 10**40,
}
# Values that are of the right type after all, or that only the data can tell to be wrong.
FINE = {
    ("class_weight", "word"),
    ("fields", "array"),
    ("fields", "set"),
    ("hidden", "array"),
    ("hidden", "set"),
    ("sizes", "array"),
    ("sizes", "set"),
    ("pretrained", "word"),
}
ANY_NUMBER = {  # any finite number is allowed, or as many epochs as anybody likes
    *("C", "alpha", "confidence", "eta0", "gamma", "l1", "tol"),
    *("epsilon", "half_life", "p", "sync_seconds", "below"),
    *("init_size", "max_iter", "memory_budget", "n_blocks", "n_units", "verbose"),
}


def fit(model):
    name = type(model).__name__
    if name == "MatrixFactorization":
        return model.fit(np.stack([np.arange(40) % 7, np.arange(40) % 9], axis=1), NUMBERS)
    if name == "TextClassifier":
        return model.fit(["good day", "bad night"] * 20, ["a", "b"] * 20)
    if name == "LinearRanker":
        return model.fit(X, NUMBERS, groups=np.arange(40) // 4)
    return model.fit(X, NUMBERS if "Regressor" in name else CLASSES)


def refuses(make, names, label):
    if (names[0], label) in FINE or (label == "vast" and not ANY_NUMBER.isdisjoint(names)):
        return
    with pytest.raises(st.ParameterError) as refusal:
        fit(make())
    assert any(name in str(refusal.value) for name in names), refusal.value


@pytest.mark.parametrize("label", WRONG)
@pytest.mark.parametrize("name", sorted(registry.MODELS))
def test_every_parameter_of_an_estimator_refuses_a_value_of_the_wrong_type(name, label):
    estimator = registry.find(name)
    for parameter in list(inspect.signature(estimator).parameters):
        short = {"epochs": 1} if "epochs" in inspect.signature(estimator).parameters and parameter != "epochs" else {}
        refuses(lambda given=parameter, more=short: estimator(**{given: WRONG[label]}, **more), (parameter,), label)


USERS = {
    "parallel": lambda option: st.LinearClassifier(parallel=option, epochs=1),
    "penalty": lambda option: st.LinearClassifier(penalty=option, alpha=0.01, solver="gd", max_iter=2),
    "loss": lambda option: st.LinearRegressor(option, epochs=1),
    "schedule": lambda option: st.LinearClassifier(schedule=option, epochs=1),
    "early_stopping": lambda option: st.LinearClassifier(early_stopping=option, epochs=1),
    "restarts": lambda option: st.NetworkClassifier((2,), restarts=option, epochs=1),
    "tol": lambda option: st.LinearClassifier(tol=option, solver="lbfgs", max_iter=2),
    "multi_class": lambda option: st.LinearClassifier(multi_class=option, epochs=1),
    "hidden": lambda option: st.NetworkClassifier(option, epochs=1),
    "solver": lambda option: st.NetworkClassifier((2,), solver=option, epochs=1),
}


@pytest.mark.parametrize("label", WRONG)
@pytest.mark.parametrize("name", sorted(OPTIONS))
def test_every_field_of_a_value_object_refuses_a_value_of_the_wrong_type(name, label):
    option = OPTIONS[name]
    user = USERS[option.parameter]
    if name == "Truncated":
        user = lambda given: st.LinearClassifier(solver=given, penalty="l1", alpha=0.01, epochs=1)
    for field in fields(option):
        names = (field.name, *(flat for flat, own in option.flat_names().items() if own == field.name))
        refuses(lambda given=field.name: user(option(**{given: WRONG[label]})), names, label)


COLUMNS = ("text", "categorical", "numeric", "ignore")  # names that only the data can tell to be wrong


@pytest.mark.parametrize("label", WRONG)
def test_every_parameter_of_a_hasher_refuses_a_value_of_the_wrong_type(label):
    for parameter in inspect.signature(st.Hasher).parameters:
        if parameter in COLUMNS and label in ("word", "set", "array"):
            continue
        if (parameter, label) == ("n_jobs", "vast"):  # all the threads that there may be
            continue
        with pytest.raises(st.ParameterError, match=parameter):
            st.Hasher(**{parameter: WRONG[label]}).fit_transform(["good day", "bad night"])


def test_numpys_numbers_and_flags_are_as_good_as_pythons():
    model = st.LinearClassifier(epochs=np.int64(2), fit_intercept=np.bool_(True), alpha=np.float32(1e-4), n_jobs=None)
    assert model.fit(X, CLASSES).n_iter_ == 2
