"""Model files with a valid checksum that no model has written: refused in a sentence, or harmless."""

from __future__ import annotations

import numpy as np
import pytest

import steepest as st
from forged import run
from promises.estimators import CASES, said
from steepest import model_file


def forged(tmp_path, name, header=None, arrays=None):
    """A saved model of this case with some values changed; `header` maps ways, such as "settings.k", to values."""
    case = CASES[name]
    path = tmp_path / "m"
    case.make().fit(*case.data.head(200).all).save(path)
    head, stored = model_file.read(path)
    for way, value in (header or {}).items():
        *outer, last = way.split(".")
        spot = head
        for key in outer:
            spot = spot[key]
        spot[last] = value
    model_file.write(path, head, {**stored, **{k: v(np.array(stored[k])) for k, v in (arrays or {}).items()}})
    return path


@pytest.mark.parametrize("name", ["linear/lbfgs", "linear/sgd-two"])
def test_what_is_not_known_yet_is_a_number(tmp_path, name):
    path = forged(tmp_path, name)
    assert all(np.isfinite(array).all() for array in model_file.read(path)[1].values() if array.dtype.kind == "f")
    model = st.load(path)
    few = CASES[name].make().partial_fit(*CASES[name].data.part(0, 3)) if "sgd" in name else model
    few.save(tmp_path / "few")  # too few rows to know the loss or the step size
    assert all(np.isfinite(a).all() for a in model_file.read(tmp_path / "few")[1].values() if a.dtype.kind == "f")


def set_to(place, value):
    def change(array):
        array.reshape(-1)[place] = value
        return array

    return change


@pytest.mark.parametrize(
    ("name", "header", "arrays"),
    [
        ("text/hs", {}, {"children": set_to(0, 1)}),  # the root is its own child
        ("linear/batches-two", {"settings.batch_size": -1}, {}),
        ("linear/sgd-two", {}, {"counters": set_to(3, np.inf)}),
        ("linear/sgd-two", {}, {"counters": set_to(0, np.nan)}),
        ("linear/sgd-two", {}, {"v": set_to(5, np.nan)}),
        ("k-means/minibatch-blobs", {"settings.k": 2**31}, {}),
        ("k-means/minibatch-blobs", {"settings.k": 2**20}, {}),
        ("linear/sgd-two", {"class": [1, 2, 3]}, {}),
        ("linear/sgd-two", {"class": "Hasher"}, {}),
        ("linear/sgd-two", {}, {"targets": set_to(4, 12345.0)}),
        ("network/adam-four", {"settings.graph": {"nodes": [["x", None], ["y", None]], "edges": [["y", "y"]]}}, {}),
        ("network/adam-four", {}, {"learned x>h1": lambda array: array[:3]}),
        ("network/adam-four", {}, {"learned stamp x>h1": lambda array: array.astype(np.int64)}),
        ("network/adam-four", {}, {"learned stamp x>h1": lambda array: array[:3]}),
        ("radial/backprop-RBFRegressor", {"settings.planned_rows": 0.0}, {}),
        ("text/softmax", {"settings.loss": "../../x"}, {}),
        ("linear/hashed-four", {"settings.table_bits": 30}, {}),
        ("factors/sgd", {}, {"seen.items": set_to(0, 10**6)}),
        ("factors/sgd", {}, {"seen.indptr": set_to(1, 2**40)}),
        ("factors/sgd", {"settings.rank": 2**15}, {}),
        ("fm/fields-two", {}, {"labels": lambda array: array[:0]}),
        ("network/adam-four", {"words.labels": []}, {}),
        ("factors/sgd", {"settings.loss": "sgd"}, {}),
        ("factors/float16", {}, {"items.tail": lambda array: array.astype(np.float64)}),
        ("k-means/lloyd-blobs", {}, {"counters": set_to(3, 0.5)}),
        ("k-means/minibatch-blobs", {}, {"counters": set_to(4, 2.0)}),
    ],
)
def test_a_forged_file_is_refused_in_a_sentence(tmp_path, name, header, arrays):
    with pytest.raises(st.ModelFileError) as refusal:
        st.load(forged(tmp_path, name, header, arrays))
    assert "\n" not in str(refusal.value)


def test_no_path_in_a_model_file_is_ever_opened(tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("password 1 2 3 4 5 6 7 8\n")
    model = st.load(forged(tmp_path, "text/softmax", {"params.pretrained": str(secret)}))
    assert model.pretrained is None
    data = CASES["text/softmax"].data
    model.fit(*data.head(50).all)  # used to read the file, and to show its first word


def test_some_hundred_forged_files_are_refused_or_harmless(tmp_path):
    counts, faults = run(400, tmp_path, seed=1)
    assert not faults, "\n".join(faults)
    assert counts["refused"] > 100


@pytest.mark.forged
def test_ten_thousand_forged_files_are_refused_or_harmless(tmp_path):
    _, faults = run(10_000, tmp_path)
    assert not faults, "\n".join(faults)


def test_a_forged_number_of_threads_is_not_taken_literally(tmp_path):
    name, probe = "text/replicas-softmax", CASES["text/replicas-softmax"].data.head(5).X
    plain = st.load(forged(tmp_path, name)).predict(probe)
    many = st.load(forged(tmp_path, name, {"hasher.params.n_jobs": 10**30})).predict(probe)
    np.testing.assert_array_equal(many, plain)


@pytest.mark.parametrize(
    "name",
    ["linear/sgd-two", "linear/hashed-four", "network/adam-four", "fm/log-four", "radial/closed-form-RBFClassifier",
     "k-means/minibatch-topics", "text/softmax", "factors/sgd", "factors/als"],
)  # fmt: skip
def test_a_loaded_model_does_not_depend_on_its_file_any_more(tmp_path, name):
    path, data = forged(tmp_path, name), CASES[name].data
    model, expected = st.load(path), said(st.load(path), data.X[:9])
    with open(path, "r+b") as file:  # in place, as programs do that do not write safely
        file.write(bytes(path.stat().st_size))
    for method, found in said(model, data.X[:9]).items():
        np.testing.assert_array_equal(found, expected[method])
    model.partial_fit(*data.part(0, 20))
    assert all(np.isfinite(found).all() for found in said(model, data.X[:9]).values() if found.dtype.kind == "f")
