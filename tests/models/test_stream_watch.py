"""What a model notices of a stream that it learns row by row."""

from __future__ import annotations

import numpy as np
import pytest

import steepest as st
from steepest.engine.stream_watch import StreamWatch


def drifts(model):
    return [event for event in model.history_.events if event.startswith("drift after")]


def learned(model, X, y, size=100, **options):
    for at in range(0, len(y), size):
        model.partial_fit(X[at : at + size], y[at : at + size], calibrate=True, **options)
    return model


def stream(n, seed, flip=None):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 5))
    score = X @ np.array([2.0, -1, 0.5, 0, 0]) + rng.normal(size=n) / 2
    if flip is not None:
        score[flip:] *= -1
    return X, np.where(score > 0, "yes", "no")


def test_a_steady_stream_is_quiet_and_a_turn_is_reported_at_its_row():
    model = st.LinearClassifier("log", solver="sgd", random_state=0)
    learned(model, *stream(1000, 0), classes=["no", "yes"])  # while it learns, its loss falls, which is a change too
    before = len(drifts(model))
    learned(model, *stream(4000, 1))
    assert len(drifts(model)) <= before + 1
    before = len(drifts(model))
    learned(model, *stream(1000, 2, flip=0))
    found = drifts(model)[before:]
    assert any("loss went from" in event for event in found)
    row = int(found[0].split()[2].replace(",", ""))
    assert 4900 <= row <= 5600  # the first call is learned without being watched


def test_shares_of_labels_and_of_unseen_features_are_watched():
    rng = np.random.default_rng(3)
    words = np.array([f"w{i}" for i in range(40)])
    texts = [" ".join(rng.choice(words, 8)) for _ in range(4000)]
    label = np.where(rng.random(4000) < 0.5, "a", "b")
    hasher = st.Hasher(n_bits=14)
    model = st.LinearClassifier("log", solver="sgd", hasher=hasher, random_state=0)
    learned(model, texts, label, 20, classes=["a", "b"])
    before = len(drifts(model))
    strange = [" ".join(f"new{rng.integers(1 << 30)}" for _ in range(8)) for _ in range(1500)]
    learned(model, strange, np.where(rng.random(1500) < 0.95, "a", "b"), 20)
    found = " ".join(drifts(model)[before:])
    assert "the share of label 'a' went from" in found
    assert "the share of unseen features went from" in found


def test_new_words_are_watched_where_rare_ones_are_left_out():
    rng = np.random.default_rng(3)
    words = np.array([f"w{i}" for i in range(40)])
    texts = [" ".join(rng.choice(words, 8)) for _ in range(4000)]
    label = np.where(rng.random(4000) < 0.5, "a", "b")
    model = st.LinearClassifier("log", solver="sgd", hasher=st.Hasher(14, min_rows=2), random_state=0)
    model.fit(texts[:2000], label[:2000])
    learned(model, texts[2000:], label[2000:], 20)
    before = len(drifts(model))
    strange = [" ".join(f"new{rng.integers(1 << 30)}" for _ in range(8)) for _ in range(1500)]
    learned(model, strange, label[:1500], 20)
    assert "the share of unseen features went from" in " ".join(drifts(model)[before:])


def test_of_a_table_with_texts_only_new_words_and_categories_count_as_unseen():
    """Rows are counted for words alone; of other columns the weights show what was learned."""
    rng = np.random.default_rng(4)
    words = np.array([f"w{i}" for i in range(40)])
    rows = [{"town": f"t{n % 9}", "size": float(n % 11), "note": " ".join(rng.choice(words, 8))} for n in range(1500)]
    hasher = st.Hasher(n_bits=16, kinds={"note": "text", "town": "category", "size": "number"})
    for solver in ("auto", "asgd"):
        model = st.LinearClassifier("log", solver=solver, hasher=hasher, random_state=0)
        model.fit(rows, [int(row["size"] > 4) ^ (n % 10 == 0) for n, row in enumerate(rows)])
        known, new = rows[0], {"town": "nowhere", "size": 3.0, "note": "w1 w2 strange"}
        assert [model.unseen_features(model.hasher_.all_features([row])) for row in (known, new)] == [0, 3]


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e6])
def test_errors_of_numbers_are_watched_on_any_scale(scale):
    rng = np.random.default_rng(5)
    X = rng.normal(size=(4000, 4))
    y = scale * (X @ np.array([1.0, 2, 3, 4]) + rng.normal(size=4000))
    model = st.LinearRegressor(solver="sgd", random_state=0)
    learned(model, X[:3000], y[:3000])
    before = len(drifts(model))
    learned(model, X[3000:], -y[3000:])
    assert any("loss went from" in event for event in drifts(model)[before:])


def test_saved_and_loaded_the_watch_goes_on_to_the_same_events(tmp_path):
    X, y = stream(3000, 6, flip=2000)
    whole = learned(st.LinearClassifier("log", solver="sgd", random_state=0), X, y, classes=["no", "yes"])
    half = learned(st.LinearClassifier("log", solver="sgd", random_state=0), X[:2100], y[:2100], classes=["no", "yes"])
    half.save(tmp_path / "m.steepest")
    half = learned(st.load(tmp_path / "m.steepest"), X[2100:], y[2100:])
    assert drifts(whole)
    assert half.history_.events == whole.history_.events


def test_a_text_classifier_watches_its_stream_too():
    rng = np.random.default_rng(7)
    label = np.where(rng.random(2400) < 0.5, "good", "bad")
    texts = [f"{'great' if each == 'good' else 'awful'} film {rng.integers(30)}" for each in label]
    label[1200:] = np.where(label[1200:] == "good", "bad", "good")
    model = st.TextClassifier(8, random_state=0)
    learned(model, texts, label, 50, classes=["bad", "good"])
    assert any("loss went from" in event for event in drifts(model))


def test_what_is_not_a_watch_is_refused():
    watch = StreamWatch()
    watch.add([0.1, 0.2], unseen=0.5)
    good = watch.as_dict()
    assert StreamWatch.from_dict(good).as_dict() == good
    for broken in (
        {**good, "rows": -1},
        {**good, "errors": [0, float("inf")]},
        {**good, "drifts": {"loss": [[], 0, 0, 99]}},
    ):
        with pytest.raises(ValueError, match="not valid"):
            StreamWatch.from_dict(broken)
