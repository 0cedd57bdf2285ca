"""Words left out by their counts: exact in memory, never too low in a sketch; the same in files, streams and splits."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter

import numpy as np
import pytest

import steepest as st
from steepest import kernels
from steepest.errors import ColumnWarning, DataError, ParameterError
from steepest.features import words
from steepest.features.hasher import Hasher
from steepest.features.names import hash_name
from steepest.kernels.reference.text import KeptReference


def zipf_texts(n=600, seed=0, length=12):
    rng = np.random.default_rng(seed)
    return [" ".join(f"w{min(j, 3000)}" for j in rng.zipf(1.4, length)) for _ in range(n)]


def labels_of(texts):
    return [int("w2" in text.split()) for text in texts]


def rows_with(texts):
    return Counter(word for text in texts for word in set(text.split()))


def kept_words(hasher, vocabulary):
    plain = hasher.transform(sorted(vocabulary))
    return {word for word, n in zip(sorted(vocabulary), np.diff(plain.indptr), strict=True) if n}


@pytest.mark.independent
@pytest.mark.parametrize(("min_count", "max_share"), [(2, 1.0), (5, 1.0), (1, 0.3), (1, 0.05), (3, 0.2)])
def test_words_are_kept_by_the_rows_that_have_them(min_count, max_share):
    texts = zipf_texts()
    counts = rows_with(texts)
    hasher = Hasher(22, min_count=min_count, max_share=max_share).fit(texts)
    expected = {w for w, n in counts.items() if min_count <= n <= max_share * len(texts)}
    assert expected
    assert expected < set(counts)
    assert kept_words(hasher, counts) == expected
    assert hasher.words_.exact
    assert (hasher.words_.n_kept, hasher.words_.n_words, hasher.words_.n_rows) == (len(expected), len(counts), 600)
    unseen = hasher.transform(["neverseen"]).nnz
    assert unseen == (1 if min_count == 1 else 0)


def test_rows_are_those_of_texts_without_the_words():
    texts = zipf_texts()
    counts = rows_with(texts)
    hasher = Hasher(18, ngrams=(1, 2), char_ngrams=(2, 3), min_count=4).fit(texts)
    cut = [" ".join(w for w in text.split() if counts[w] >= 4) for text in texts]
    plain = Hasher(18, ngrams=(1, 2), char_ngrams=(2, 3)).fit(cut)
    assert (hasher.transform(texts) != plain.transform(cut)).nnz == 0
    np.testing.assert_array_equal(hasher.document_counts_, plain.document_counts_)


def test_each_column_counts_its_own_words():
    rows = [{"title": "red fox", "body": f"red {k % 7} hen {k}"} for k in range(60)]
    hasher = Hasher(18, text=["title", "body"], max_share=0.5, norm=None, weighting="count").fit(rows)
    assert hasher.transform([{"title": "red fox new", "body": "red hen 3"}]).nnz == 2  # "new" and "3"


def count(texts, most_words, sketch_bits):
    hasher = Hasher(18)
    hasher.survey(texts)
    counts = kernels.WordCounts(most_words, sketch_bits)
    counts.read(hasher._make_plan().recipe, [texts])
    return counts


@pytest.mark.parametrize("most_words", [1, 50, 400])
def test_a_sketch_equals_its_definition_and_is_never_too_low(most_words):
    texts = zipf_texts(400, seed=3, length=20)
    true = rows_with(texts)
    key = kernels.hash_key("", 0)
    names = {hash_name(word, key): word for word in true}
    counts = count(texts, most_words, 8)
    reference = KeptReference(most_words, 8)
    for text in texts:
        reference.add_row({hash_name(word, key) for word in text.split()})
    hashes, rows, cells = counts.counts()
    assert dict(zip(hashes.tolist(), rows.tolist(), strict=True)) == reference.counts
    np.testing.assert_array_equal(cells, reference.cells.ravel())
    assert {names[h]: n for h, n in reference.counts.items()} == {names[h]: true[names[h]] for h in reference.counts}
    beyond = [h for h in names if h not in reference.counts]
    assert beyond
    over = np.array([reference.estimate(h) - true[names[h]] for h in beyond])
    assert over.min() >= 0
    bound = np.e * counts.n_sketched / (1 << 8)
    assert (over > bound).mean() <= np.exp(-4)


def test_a_filter_from_a_sketch_decides_as_its_counts_do(monkeypatch):
    monkeypatch.setattr(words, "MOST_WORDS", 100)
    monkeypatch.setattr(words, "SKETCH_BITS", 9)
    texts = zipf_texts(800, seed=5)
    true, key = rows_with(texts), kernels.hash_key("", 0)
    reference = KeptReference(100, 9)
    for text in texts:
        reference.add_row({hash_name(word, key) for word in text.split()})
    for min_count, max_share in [(3, 1.0), (1, 0.02), (3, 0.02)]:
        hasher = Hasher(22, min_count=min_count, max_share=max_share).fit(texts)
        assert not hasher.words_.exact
        assert "sketch" in str(hasher.words_)
        expected = {w for w in true if reference.keeps(hash_name(w, key), min_count, max_share * len(texts))}
        assert kept_words(hasher, true) == expected
        if max_share == 1:
            assert expected >= {w for w, n in true.items() if n >= min_count}


@pytest.mark.independent
def test_a_sketch_keeps_every_frequent_word_and_few_rare_ones(monkeypatch):
    monkeypatch.setattr(words, "MOST_WORDS", 50)
    monkeypatch.setattr(words, "SKETCH_BITS", 9)
    texts = zipf_texts(800, seed=5)
    true = rows_with(texts)
    hasher = Hasher(22, min_count=6).fit(texts)
    kept = kept_words(hasher, true)
    assert not hasher.words_.exact
    assert kept >= {word for word, n in true.items() if n >= 6}  # a count is never too low
    far = {word for word, n in true.items() if n + hasher.words_.error < 6}
    assert len(kept & far) <= np.exp(-4) * len(true)  # and seldom too high by more than the error


def test_a_model_file_holds_what_was_decided(tmp_path):
    texts = zipf_texts()
    model = st.LinearClassifier(hasher=Hasher(16, min_count=3, max_share=0.4, stop_words="english"), random_state=0)
    model.fit(texts, labels_of(texts)).save(tmp_path / "m")
    again = st.load(tmp_path / "m")
    np.testing.assert_array_equal(again.decision_function(texts), model.decision_function(texts))
    assert again.hasher_.words_.n_kept == model.hasher_.words_.n_kept
    assert "the" in again.hasher_.stop_words


def test_a_damaged_list_of_words_is_refused():
    state = Hasher(16, min_count=2).fit(zipf_texts()).words_.state()
    for name in state:
        with pytest.raises(DataError, match="damaged"):
            words.KeptWords.from_state({key: value for key, value in state.items() if key != name})
    with pytest.raises(DataError, match="damaged"):
        words.KeptWords.from_state({**state, "enough": np.ones(7, np.uint8)})


def test_a_stream_equals_rows_in_memory(tmp_path):
    texts = zipf_texts()
    path = tmp_path / "t.txt"
    path.write_text("".join(f"__label__{y} {text}\n" for y, text in zip(labels_of(texts), texts, strict=True)))
    hasher = Hasher(16, min_count=4, max_share=0.5)
    streamed = st.LinearClassifier(hasher=hasher, random_state=0).fit_stream(st.scan_text(path))
    kept = Hasher(16, min_count=4, max_share=0.5).fit(texts)
    np.testing.assert_array_equal(streamed.hasher_.words_.listed, kept.words_.listed)
    some = st.LinearClassifier(hasher=hasher, random_state=0).fit_stream(st.scan_text(path).limit(300))
    np.testing.assert_array_equal(some.hasher_.words_.listed, hasher.fit(texts[:300]).words_.listed)


def test_rows_held_out_are_not_counted(tmp_path):
    texts = zipf_texts()
    path = tmp_path / "t.txt"
    path.write_text("".join(f"__label__{y} {text}\n" for y, text in zip(labels_of(texts), texts, strict=True)))
    learned, held = st.scan_text(path).holdout(0.3, 1)
    model = st.LinearClassifier(hasher=Hasher(16, min_count=2), random_state=0).fit_stream(learned, held)
    assert 300 < model.hasher_.words_.n_rows < 500
    arrays = st.LinearClassifier(hasher=Hasher(16, min_count=2), early_stopping=True, random_state=0)
    arrays.fit(texts, labels_of(texts))
    assert arrays.hasher_.words_.n_rows == 540


def test_partial_fit_decides_by_its_first_rows():
    texts = zipf_texts()
    hasher = Hasher(16, min_count=2).partial_fit(texts[:200])
    first = hasher.words_
    hasher.partial_fit(texts[200:])
    assert hasher.words_ is first
    assert first.n_rows == 200


def test_text_classifiers_leave_out_rare_words():
    texts = zipf_texts(300)
    model = st.TextClassifier(4, min_count=5, epochs=2, n_bits=14, ngrams=(1, 1), random_state=0)
    model.fit(texts, labels_of(texts))
    counts = rows_with(texts)
    rare = next(word for word, n in counts.items() if n == 1)
    same = model.predict_proba(["w2 w3", f"w2 {rare} w3"])
    np.testing.assert_array_equal(same[0], same[1])


def test_what_cannot_be_counted_is_refused():
    with pytest.raises(ParameterError, match="max_share=0"):
        Hasher(max_share=0).fit(["a"])
    with pytest.raises(ParameterError, match="min_count=0"):
        Hasher(min_count=0).fit(["a"])
    with pytest.raises(ParameterError, match="english"):
        Hasher(stop_words="klingon").fit(["a"])
    with pytest.raises(Exception, match="call fit or partial_fit first"):
        Hasher(min_count=2).transform(["a"])
    with pytest.warns(ColumnWarning, match="leave none of 3 words"):
        Hasher(min_count=3).fit(["a b", "c"])


def run(*arguments, stdin=None):
    command = [sys.executable, "-m", "steepest", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, input=stdin, check=False)


def test_flags_train_predict_and_show(tmp_path):
    texts = zipf_texts(200)
    data, stop = tmp_path / "t.txt", tmp_path / "stop.txt"
    lines = "".join(f"__label__{y} {text}\n" for y, text in zip(labels_of(texts), texts, strict=True))
    data.write_text(lines)
    stop.write_text("w5\nw6\n")
    options = ("--min-count", 2, "--max-share", 0.9, "--stop-words", stop, "--epochs", 1, "--quiet")
    done = run("train", data, "-m", tmp_path / "m", *options)
    assert done.returncode == 0, done.stderr
    hasher = st.load(tmp_path / "m").hasher_
    assert hasher.stop_words == ["w5", "w6"]
    assert (hasher.min_count, hasher.max_share) == (2, 0.9)
    shown = json.loads(run("inspect", tmp_path / "m", "--json").stdout)
    assert "words kept, by their counts in 200 rows" in shown["words"]
    piped = run("train", "-", "--format", "txt", "-m", tmp_path / "n", *options, stdin=lines)
    assert piped.returncode == 2
    assert "can be read only once" in piped.stderr
    lost = run("train", data, "-m", tmp_path / "n", "--stop-words", tmp_path / "nothing.txt")
    assert lost.returncode == 2
    assert "name a text file of words, or english" in lost.stderr
