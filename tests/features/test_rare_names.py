"""A rare feature with a heavy weight has its name, from arrays and from streams; what a book keeps is bounded."""

from __future__ import annotations

import numpy as np
import pytest

import steepest as st
from steepest.errors import DataError
from steepest.features.hasher import Hasher
from steepest.features.names import MOST_ADDED, NameBook


def rows_with_rare_words(n=20_000, n_rare=12):
    """Each rare word is in eight rows out of n, and decides their class."""
    rng = np.random.default_rng(0)
    words = np.minimum(rng.zipf(1.2, (n, 8)), 30_000)
    y = rng.integers(2, size=n)
    texts = [
        " ".join(f"w{j}" for j in row) + (" good" if label else " bad") for row, label in zip(words, y, strict=True)
    ]
    rare = [f"zebra{k}" for k in range(n_rare)]
    for k, place in enumerate(rng.choice(np.arange(2000, n), 8 * n_rare, replace=False).tolist()):
        texts[place] = texts[place].replace(" bad", "").replace(" good", "") + f" {rare[k % n_rare]}"
        y[place] = 1
    return texts, y, rare


def named(model, words):
    return [model.hasher_.names_of([model.hasher_.bucket(word)])[0] for word in words]


def test_arrays_name_rare_heavy_words():
    texts, y, rare = rows_with_rare_words()
    model = st.LinearClassifier(hasher=Hasher(20, names=50), random_state=0).fit(texts, y)
    assert named(model, rare) == [[word] for word in rare]
    assert {name for name, _ in model.top_features(13)[1]} >= set(rare)
    assert len(model.hasher_.names_.added) <= MOST_ADDED


def test_streams_name_rare_heavy_words(tmp_path, monkeypatch):
    monkeypatch.setattr("steepest.data.files.blocks.BLOCK_BYTES", 20_000)  # some fifteen batches
    texts, y, rare = rows_with_rare_words()
    path = tmp_path / "a.txt"
    path.write_text("".join(f"__label__{label} {text}\n" for label, text in zip(y, texts, strict=True)))
    model = st.LinearClassifier(
        hasher=Hasher(20, names=50), solver="sgd", eta0=1.0, alpha=1e-6, epochs=1, random_state=0
    )
    model.fit_stream(st.scan_text(path))
    found = sum(bool(names) for names in named(model, rare))
    assert found >= 9  # those that come again after the learner has given them weight
    model.save(tmp_path / "m")
    assert named(st.load(tmp_path / "m"), rare) == named(model, rare)


def test_names_that_were_added_are_part_of_the_state():
    book = NameBook(4)
    book.add({5: "zebra", 7: "lion"})
    again = NameBook.from_state(4, book.state())
    assert again.names_of([5, 6, 7]) == [["zebra"], [], ["lion"]]
    assert sorted(again.buckets().tolist()) == [5, 7]
    book.add({k: str(k) for k in range(100, 100 + 2 * MOST_ADDED)})
    assert len(book.added) == MOST_ADDED
    with pytest.raises(DataError, match="damaged"):
        NameBook.from_state(4, {**book.state(), "added": np.frombuffer(b"[[-1, 2]]", np.uint8)})
