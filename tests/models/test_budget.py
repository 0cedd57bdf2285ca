"""Memory budgets: what is chosen fits, is used well, is explained, and contradictions are one sentence."""

from __future__ import annotations

import json
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some

import steepest as st
from steepest.cli import main
from steepest.learners.linear.linear_settings import LinearSettings
from steepest.models.memory import Need, parse_bytes, plan_hashing


@pytest.mark.parametrize(
    ("given", "n_bytes"),
    [
        (1000, 1000),
        (2e9, 2_000_000_000),
        ("512MB", 512_000_000),
        ("512 mb", 512_000_000),
        ("1.5GiB", 3 << 29),
        ("64k", 64_000),
        ("16KiB", 1 << 14),
        ("1e6", 1_000_000),
        (np.int64(77), 77),
    ],
)
def test_sizes_are_numbers_or_words(given, n_bytes):
    assert parse_bytes(given) == n_bytes


@pytest.mark.parametrize("given", ["", "much", "-1MB", "5XB", "MB", 0, -3, None, True, float("nan"), float("inf")])
def test_what_is_no_size_is_refused(given):
    with pytest.raises(st.ParameterError, match=r"memory_budget=.* is not a size; give"):
        parse_bytes(given)


def texts(n_rows, n_classes, n_words=3000, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, n_classes, n_rows)
    words = rng.integers(0, n_words, (n_rows, 8))
    return [f"class{k} " + " ".join(f"w{j}" for j in row) for k, row in zip(y, words, strict=True)], y


def held(model):
    """Bytes of all that a trained model holds on to."""
    learner = model.learner_
    arrays = [*learner.arrays.values(), learner.weights()[0]]
    arrays += learner.good.arrays.values()
    hasher = model.hasher_
    arrays += [hasher.document_counts_] if hasher.weighting == "tfidf" else []
    return sum(array.nbytes for array in arrays) + hasher.names_.n_bytes


@pytest.mark.parametrize("n_classes", [2, 7])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"solver": "sgd"},
        {"solver": "asgd"},
        {"solver": "adagrad"},
        {"solver": "ftrl", "penalty": "l1"},
        {"solver": "sgd", "penalty": "l1"},
        {"dtype": "float64"},
        {"weighting": "tfidf"},
    ],
    ids=lambda options: " ".join(map(str, options.values())) or "default",
)
def test_what_training_holds_fits_the_budget_and_fills_it(options, n_classes):
    options = dict(options)
    X, y = texts(1500, n_classes, n_words=20_000)
    hasher = st.Hasher(names=50, weighting=options.pop("weighting", "count"))
    budget = 300_000
    model = st.LinearClassifier(hasher=hasher, memory_budget=budget, epochs=2, random_state=0, **options).fit(X, y)
    assert budget / 3 < held(model) <= budget + 2000  # biases, clocks and the like are not counted
    assert model.score(X, y) > 0.9
    reason = model.history_.events[0]
    assert reason.startswith(f"memory_budget=300 KB: n_bits={model.hasher_.n_bits}, ")


@pytest.mark.parametrize("solver", ["sgd", "asgd", "adagrad", "ftrl"])
def test_no_passing_copy_breaks_the_budget(solver):
    X, y = texts(3000, 5, n_words=100_000)

    def peak(n_bits, budget):
        hasher = st.Hasher(n_bits=n_bits, names=1, weighting="count")
        model = st.LinearClassifier(hasher=hasher, solver=solver, epochs=2, random_state=0, memory_budget=budget)
        tracemalloc.start()
        model.fit(X, y)
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return most

    rows = peak(10, None)
    budget = 5 * (2 * (1 + (solver != "sgd")) + 1) * 4 << 20
    assert peak(20, budget + 10_000) - rows < 1.05 * budget  # float64 for a part at a time


def test_a_stream_is_looked_at_first(tmp_path):
    X, y = texts(4000, 6)
    path = tmp_path / "sorted.txt"  # the last class comes late
    path.write_text("".join(f"{k}\t{text}\n" for k, text in sorted(zip(y, X, strict=True), key=lambda row: row[0])))
    model = st.LinearClassifier(memory_budget="1MB", random_state=0, shuffle="rows").fit_stream(st.scan(path))
    assert "with 6 outputs in float32" in model.history_.events[0]
    assert held(model) <= 1_000_000 + 2000
    assert st.load(_saved(model, tmp_path)).history_.events == model.history_.events


def _saved(model, folder):
    model.save(folder / "m.steepest")
    return folder / "m.steepest"


def test_more_room_than_features_is_left_alone():
    X, y = texts(500, 2, n_words=100)
    model = st.LinearClassifier(hasher=st.Hasher(), memory_budget="1GB", random_state=0).fit(X, y)
    assert model.hasher_.n_bits == 10
    assert "enough for the" in model.history_.events[0]


def test_crowded_buckets_give_up_the_average():
    X, y = texts(3000, 2, n_words=1_000_000)
    model = st.LinearClassifier(hasher=st.Hasher(ngrams=(1, 3)), memory_budget="30KB", random_state=0).fit(X, y)
    assert model.learner_.settings.solver == "sgd"
    assert "without averaging, which would halve the buckets" in model.history_.events[0]
    wish = st.LinearClassifier(hasher=st.Hasher(ngrams=(1, 3)), memory_budget="50KB", solver="asgd", random_state=0)
    assert wish.fit(X, y).learner_.settings.solver == "asgd"


def test_what_was_asked_for_is_kept():
    X, y = texts(300, 2)
    hasher = st.Hasher(n_bits=14, copies=3, names=77)
    model = st.LinearClassifier(hasher=hasher, memory_budget="10MB", random_state=0).fit(X, y)
    assert (model.hasher_.n_bits, model.hasher_.copies, model.hasher_.names) == (14, 3, 77)
    assert "as requested" in model.history_.events[0]
    assert st.LinearClassifier(hasher=hasher, random_state=0).fit(X, y).history_.events[0].startswith("solver=")


def test_partial_fit_plans_once_and_tells_of_more_classes():
    X, y = texts(600, 3)
    model = st.LinearClassifier(hasher=st.Hasher(), memory_budget="2MB", random_state=0)
    model.partial_fit(X[:300], y[:300], classes=[0, 1, 2])
    n_bits = model.hasher_.n_bits
    model.partial_fit([*X[300:], "class3"], [*y[300:], 3])
    assert model.hasher_.n_bits == n_bits
    assert model.history_.events[1:] == ["4 outputs, but memory_budget was planned for 3"]


def test_columns_that_are_as_many_as_they_are():
    X = np.eye(1000, dtype=np.float32)
    model = st.LinearRegressor(memory_budget="1MB", random_state=0).fit(X, np.arange(1000.0))
    assert model.history_.events[0] == "memory_budget=1 MB: 1,000 columns and 1 output take 20 KB"
    with pytest.raises(st.ParameterError, match="too small for 1,000 columns and 1 output, which need 20 KB; raise it"):
        st.LinearRegressor(memory_budget="5KB").fit(X, np.arange(1000.0))


def test_contradictions_are_one_sentence():
    X, y = texts(300, 4)
    with pytest.raises(st.ParameterError, match=r"n_bits=20 with 4 outputs needs .* MB, but memory_budget=1 MB, into"):
        st.LinearClassifier(hasher=st.Hasher(n_bits=20), memory_budget="1MB").fit(X, y)
    with pytest.raises(st.ParameterError, match="too small: the smallest table, n_bits=10, with 4 outputs needs"):
        st.LinearClassifier(hasher=st.Hasher(), memory_budget="20KB").fit(X, y)


@given(
    budget=some.integers(10_000, 10**10),
    outputs=some.integers(1, 50),
    solver=some.sampled_from(["sgd", "asgd", "adagrad", "ftrl"]),
    l1=some.sampled_from([0.0, 1e-6]),
    dtype=some.sampled_from(["float32", "float64"]),
    n_distinct=some.none() | some.floats(1, 1e12),
)
def test_every_plan_fits(budget, outputs, solver, l1, dtype, n_distinct):
    settings = LinearSettings(solver=solver, l1=l1, dtype=dtype, average="poly" if solver == "asgd" else "no")
    wishes = {"n_bits": None, "n_distinct": n_distinct, "may_drop_average": True}
    if budget < 5000 + outputs * 1024 * 40:  # may be too small
        return
    plan = plan_hashing(budget, Need(settings, outputs, 5000), **wishes)
    assert plan.n_bytes <= budget
    assert Need(plan.settings, outputs, 5000).total_bytes(1 << plan.n_bits) == plan.n_bytes
    if n_distinct is not None and n_distinct > 2 << plan.n_bits and plan.n_bits < 30:
        assert 2 * plan.n_bytes > budget - 5000  # no room for another bit


def test_the_command_line_says_why(tmp_path, capsys):
    X, y = texts(400, 2)
    path = tmp_path / "a.txt"
    path.write_text("".join(f"{k}\t{text}\n" for k, text in zip(y, X, strict=True)))
    arguments = ["train", str(path), "-m", str(tmp_path / "m"), "--memory", "2MB"]
    assert main(arguments) == 0
    said = capsys.readouterr().err
    assert said.startswith("steepest: memory_budget=2 MB: n_bits=")
    assert main([*arguments, "--json"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[0])["event"].startswith("memory_budget=2 MB: n_bits=")
    assert main([*arguments, "--bits", "24"]) == 2
    assert "but --memory 2 MB, into which" in capsys.readouterr().err
