"""Dicts of words and counts: the features of a text with those words, sparse, and told apart from rows of tables."""

from __future__ import annotations

import numpy as np
import pytest

import steepest as st
from steepest.errors import DataError, ParameterError
from steepest.features.bags import looks_like_bags
from steepest.features.hasher import Hasher


def bags(n=300, words=2000, seed=0):
    rng = np.random.default_rng(seed)
    picks = [(rng.choice(words, 10, replace=False), rng.integers(1, 4, 10)) for _ in range(n)]
    return [{f"w{j}": int(c) for j, c in zip(js, cs, strict=True)} for js, cs in picks]


def as_text(bag):
    return " ".join(word for word, count in bag.items() for _ in range(count))


@pytest.mark.parametrize("options", [{}, {"weighting": "count", "norm": None}, {"weighting": "binary"}, {"copies": 2}])
def test_a_bag_is_the_text_of_its_words(options):
    rows = bags()
    texts = [as_text(row) for row in rows]
    of_bags, of_texts = Hasher(16, **options).fit(rows), Hasher(16, **options).fit(texts)
    assert abs(of_bags.transform(rows) - of_texts.transform(texts)).max() < 1e-6
    assert of_bags.transform(rows[:1]).nnz <= 10 * options.get("copies", 1)


def test_counts_may_be_any_numbers():
    rows = bags()
    hasher = Hasher(16, weighting="count", norm=None).fit(rows)
    row = hasher.transform([{"w1": 0.25, "w2": -3, "w3": 0, "new york": 2}])
    expected = {"w1": 0.25, "w2": -3.0, "new york": 2.0}
    assert row.nnz == 3
    for word, value in expected.items():
        assert row[0, hasher.bucket(word)] == hasher.sign(word) * value


def test_names_explanations_and_files(tmp_path):
    rows = bags(400)
    y = ["spam" if "w7" in row or "w8" in row or "w9" in row else "ham" for row in rows]
    for row, label in zip(rows, y, strict=True):
        if label == "spam":
            row["cash"] = 2
    model = st.LinearClassifier(hasher=Hasher(16, names=5000), random_state=0).fit(rows, y)
    assert model.top_features(1)["spam"][0][0] == "cash"
    model.save(tmp_path / "m")
    again = st.load(tmp_path / "m")
    assert again.predict([{"cash": 1}, {"w100": 1}]).tolist() == ["spam", "ham"]
    assert again.explain({"cash": 1, "w5": 2})


def test_rows_of_a_table_stay_rows_of_a_table():
    rng = np.random.default_rng(0)
    table = [{f"c{k}": float(rng.normal()) for k in range(50)} for _ in range(100)]
    gaps = [{k: v for k, v in row.items() if rng.random() < 0.6} for row in table]
    texts = [{f"w{k}": "yes" for k in rng.choice(500, 3)} for _ in range(100)]
    assert not looks_like_bags(table)
    assert not looks_like_bags(gaps)
    assert not looks_like_bags(texts)
    assert not looks_like_bags([{"free": 2, "cash": 1}, {"meeting": 1}])
    assert looks_like_bags(bags())


def test_the_rule_can_be_overridden():
    few = [{"free": 2, "cash": 1}, {"meeting": 1}] * 20
    assert Hasher(14, bags=True).fit(few).transform(few[:2]).nnz == 3
    assert not Hasher(14, bags=False).fit(bags()).columns_[0].is_bag
    with pytest.raises(ParameterError, match="bags='maybe'"):
        Hasher(bags="maybe").fit(few)


def test_a_column_of_a_table_may_hold_bags():
    rows = [{"user": f"u{k % 5}", "words": bag} for k, bag in enumerate(bags(60))]
    hasher = Hasher(16).fit(rows)
    kinds = {column.name: (column.kind, column.is_bag) for column in hasher.columns_}
    assert kinds == {"user": ("category", False), "words": ("text", True)}
    assert hasher.transform(rows[:1]).nnz == 11
    with pytest.raises(ParameterError, match="cannot be crossed"):
        Hasher(16, cross=[("user", "words")]).fit(rows)


def test_rare_words_of_bags_are_left_out():
    rows = bags(300, 500)
    hasher = Hasher(18, min_count=4).fit(rows)
    times = {}
    for row in rows:
        for word in row:
            times[word] = times.get(word, 0) + 1
    assert hasher.words_.n_kept == sum(n >= 4 for n in times.values())


def test_what_is_not_a_bag_is_refused():
    hasher = Hasher(16).fit(bags())
    with pytest.raises(DataError, match="row 1 has 'two' as the count of 'w2'"):
        hasher.transform([{"w1": 1}, {"w2": "two"}])
    with pytest.raises(DataError, match="not a dict of words"):
        hasher.transform(["some text"])
    with pytest.raises(DataError, match="inf"):
        hasher.transform([{"w1": float("inf")}])
    assert hasher.transform([{}, None, {"w1": None}]).nnz == 0
