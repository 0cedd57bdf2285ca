"""Words and n-grams that too few rows have are left out by tf-idf's counts, and models do so where that is of use."""

from __future__ import annotations

import math
import subprocess
import sys
from collections import Counter

import numpy as np
import pandas as pd
import pytest

import steepest as st
from steepest import kernels
from steepest.errors import ParameterError
from steepest.features.hasher import Hasher
from steepest.kernels.reference import text as reference
from steepest.models import linear


def texts(n=400, seed=0, length=12, words=2000):
    rng = np.random.default_rng(seed)
    return [" ".join(f"w{min(j, words)}" for j in rng.zipf(1.4, length)) for _ in range(n)]


def labels_of(rows):
    return ["yes" if "w2" in row.split() else "no" for row in rows]


def write(path, rows):
    path.write_text("".join(f"__label__{y} {text}\n" for y, text in zip(labels_of(rows), rows, strict=True)))
    return path


@pytest.mark.independent
@pytest.mark.parametrize("min_rows", [1, 2, 4])
@pytest.mark.parametrize("copies", [1, 2])
def test_rows_equal_their_definition(min_rows, copies):
    rows, more = texts(150), [*texts(30, seed=1), "", "neverseen w1"]
    columns = [reference.Column(reference.TEXT, "")]
    recipe = reference.Recipe(16, (1, 2), weighting="log", copies=copies, min_letters=1)
    counts = Counter(bucket for row in rows for bucket in reference.hash_row(columns, [row], [], recipe))
    recipe.counts, recipe.n_documents, recipe.min_rows = counts, len(rows), min_rows
    hasher = Hasher(16, ngrams=(1, 2), copies=copies, min_rows=min_rows).fit(rows)
    found = hasher.transform(more)
    for k, row in enumerate(more):
        expected = reference.hash_row(columns, [row], [], recipe)
        own = found[k]
        assert set(own.indices.tolist()) == set(expected)
        for bucket, value in zip(own.indices.tolist(), own.data.tolist(), strict=True):
            assert math.isclose(value, expected[bucket], rel_tol=2e-6, abs_tol=1e-7)


def test_what_one_row_has_is_left_out_before_lengths_are_taken():
    rows = ["red fox runs", "red fox sleeps", "red hen"]
    hasher = Hasher(18, ngrams=(1, 2), min_rows=2).fit(rows)
    assert hasher.transform(rows).getnnz(axis=1).tolist() == [3, 3, 1]  # red, fox, "red fox"
    np.testing.assert_allclose(np.sqrt(hasher.transform(rows).power(2).sum(axis=1)).ravel(), 1, rtol=1e-6)
    assert hasher.transform(["zebra"]).nnz == 0


def test_columns_other_than_texts_keep_what_is_rare():
    rows = [{"text": f"same words {k}", "colour": f"c{k}", "size": k / 7} for k in range(50)]
    hasher = Hasher(18, min_rows=2, kinds={"colour": "category", "size": "number"}).fit(rows)
    lengths = set(hasher.transform(rows).getnnz(axis=1).tolist())
    assert lengths <= {3, 4}  # same, words, colour, and size unless it is at its centre


def test_rows_that_come_later_count_too():
    hasher = Hasher(18, min_rows=2).partial_fit(["red fox", "red hen"])
    assert hasher.transform(["fox"]).nnz == 0
    assert hasher.to_chunk(["fox"], learn=True).indices.size == 1  # the second row with it
    assert hasher.transform(["fox", "hen"]).getnnz(axis=1).tolist() == [1, 0]
    assert Hasher.from_state(*hasher.state()).transform(["fox", "hen"]).getnnz(axis=1).tolist() == [1, 0]


def test_in_a_stream_rows_are_the_same_for_any_number_of_threads_and_rows_at_once():
    rows = [" ".join(texts(40, seed=k)) for k in range(60)]  # long enough for two threads

    def made(n_jobs, n):
        hasher = Hasher(16, ngrams=(1, 2), min_rows=3, n_jobs=n_jobs).partial_fit(rows[:1])
        parts = [hasher.to_chunk(rows[k : k + n], learn=True) for k in range(1, len(rows), n)]
        return [np.concatenate([getattr(part, name) for part in parts]) for name in ("indices", "values")]

    first = made(1, 1)
    for other in (made(2, 59), made(1, 59), made(2, 7)):
        for own, expected in zip(other, first, strict=True):
            np.testing.assert_array_equal(own, expected)


def test_a_file_is_counted_before_it_is_learned_and_equals_rows_in_memory(tmp_path):
    rows = texts()
    path = write(tmp_path / "t.txt", rows)
    hasher = Hasher(16, ngrams=(1, 2), min_rows=3)
    streamed = st.LinearClassifier(hasher=hasher, random_state=0).fit_stream(st.scan_text(path))
    in_memory = st.LinearClassifier(hasher=hasher, random_state=0).fit(rows, labels_of(rows))
    counts = hasher.fit(rows).document_counts_
    for model in (streamed, in_memory):
        np.testing.assert_array_equal(model.hasher_.document_counts_, counts)
        assert model.hasher_.n_documents_ == len(rows)
    np.testing.assert_allclose(streamed.predict_proba(rows), in_memory.predict_proba(rows), atol=1e-6)
    again = st.LinearClassifier(hasher=hasher, random_state=0).fit_stream(st.scan_text(path).limit(200))
    np.testing.assert_array_equal(again.hasher_.document_counts_, hasher.fit(rows[:200]).document_counts_)


class Stop(st.Monitor):
    """Ends the run after an epoch, as Ctrl-C would."""

    def epoch_done(self, record):
        raise KeyboardInterrupt


def test_a_run_that_was_cut_off_goes_on_to_the_same_bits(tmp_path):
    path = write(tmp_path / "t.txt", texts())

    def model():
        hasher = Hasher(16, ngrams=(1, 2), min_rows=2)
        return st.LinearClassifier(hasher=hasher, solver="asgd", epochs=4, random_state=0)

    whole = model().fit_stream(st.scan_text(path))
    with pytest.raises(KeyboardInterrupt):
        model().fit_stream(st.scan_text(path), monitor=Stop(), checkpoint=tmp_path / "c", checkpoint_every="100-rows")
    resumed = model().fit_stream(st.scan_text(path), checkpoint=tmp_path / "c", resume=True)
    np.testing.assert_array_equal(resumed.hasher_.document_counts_, whole.hasher_.document_counts_)
    np.testing.assert_array_equal(
        resumed.decision_function(texts(50, seed=9)), whole.decision_function(texts(50, seed=9))
    )


def test_rows_held_out_are_not_counted(tmp_path):
    path = write(tmp_path / "t.txt", texts())
    learned, held = st.scan_text(path).holdout(0.3, 1)
    model = st.LinearClassifier(hasher=Hasher(16, min_rows=2), random_state=0).fit_stream(learned, held)
    assert 200 < model.hasher_.n_documents_ < 340


def test_a_pipe_cannot_be_counted_before(tmp_path):
    command = [sys.executable, "-m", "steepest", "train", "-", "--format", "txt", "-m", str(tmp_path / "m")]
    lines = write(tmp_path / "t.txt", texts(50)).read_text()
    done = subprocess.run([*command, "--min-rows", "2"], capture_output=True, text=True, input=lines, check=False)
    assert done.returncode == 2
    assert "can be read only once, but min_rows needs a pass" in done.stderr


def test_without_counts_rare_features_cannot_be_left_out():
    with pytest.raises(ParameterError, match=r"min_rows=2 needs the counts of tf-idf.*weighting='count'"):
        Hasher(min_rows=2, weighting="count").fit(["a b"])
    with pytest.raises(ParameterError, match="min_rows=0"):
        Hasher(min_rows=0).fit(["a"])
    with pytest.raises(Exception, match="call fit or partial_fit first"):
        Hasher(min_rows=2, weighting="tfidf").transform(["a"])


def table(n=600, seed=0):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame({"note": texts(n, seed), "size": rng.standard_normal(n)})
    return frame, np.where(frame["note"].str.split().map(lambda words: "w2" in words), "yes", "no")


def test_texts_of_a_table_become_words_and_pairs_that_several_rows_have(tmp_path):
    frame, y = table()
    model = st.LinearClassifier(random_state=0).fit(frame, y)
    assert (model.hasher_.ngrams, model.hasher_.min_rows) == ((1, 2), 2)
    assert model.history_.events[0] == "texts became words and pairs of words, without those that only one row has"
    frame.assign(y=y).to_csv(tmp_path / "t.csv", index=False)
    streamed = st.LinearClassifier(random_state=0).fit_stream(st.scan_csv(tmp_path / "t.csv", label="y"))
    assert (streamed.hasher_.ngrams, streamed.hasher_.min_rows) == ((1, 2), 2)
    np.testing.assert_array_equal(streamed.hasher_.document_counts_, model.hasher_.document_counts_)
    features, *_ = model.learner_.used_weights()
    shared = np.flatnonzero(model.hasher_.document_counts_ == 1)
    assert len(np.intersect1d(features, shared)) < 0.01 * len(shared)  # but for a number or category in their bucket


def test_few_texts_alone_get_pairs_of_words_and_few_rows_or_long_texts_do_not():
    some = texts(300)
    few, short = texts(100), [" ".join(text.split()[:3]) for text in texts(300)]
    long = [" ".join(texts(400, seed=k % 5)) for k in range(300)]
    chosen = {}
    for name, rows in {"some": some, "few": few, "short": short, "long": long}.items():
        hasher = st.LinearClassifier(random_state=0).fit(rows, [k % 2 for k in range(len(rows))]).hasher_
        chosen[name] = hasher.ngrams, hasher.min_rows
    pairs, words = ((1, 2), 2), ("auto", "auto")  # which means single words
    assert chosen == {"some": pairs, "few": words, "short": pairs, "long": words}


def test_the_choice_of_pairs_does_not_hang_on_other_parameters_and_is_made_by_nobody_else():
    rows, (frame, y) = texts(300), table()

    def chosen(**options):
        own = st.LinearClassifier(hasher=Hasher(16, **options), random_state=0).fit(frame, y).hasher_
        return own.ngrams, own.min_rows

    assert chosen() == chosen(kinds={"size": "number"}) == chosen(pairs=0) == ((1, 2), 2)
    assert chosen(ngrams=(1, 1)) == ((1, 1), "auto")
    assert chosen(min_rows=1) == ((1, 2), 1)
    assert chosen(weighting="count") == ("auto", "auto")
    own = st.LinearClassifier(hasher=Hasher(14), random_state=0).fit(rows, labels_of(rows)).hasher_
    assert (own.ngrams, own.min_rows) == ("auto", "auto")  # texts alone, with a size that the caller chose
    plain, words = Hasher(12).fit(rows), Hasher(12, ngrams=(1, 1), min_rows=1).fit(rows)
    assert (plain.transform(rows) != words.transform(rows)).nnz == 0
    assert plain.makes_the_rows_of(words)


def test_of_too_many_entries_nothing_is_left_out(tmp_path, monkeypatch):
    frame, y = table()
    frame.assign(y=y).to_csv(tmp_path / "t.csv", index=False)
    monkeypatch.setattr(linear, "FEW_TABLE_ENTRIES", 1000)
    model = st.LinearClassifier(random_state=0).fit_stream(st.scan_csv(tmp_path / "t.csv", label="y"))
    assert (model.hasher_.ngrams, model.hasher_.min_rows) == ((1, 2), 1)
    assert model.hasher_.n_documents_ == len(frame)
    assert model.history_.events[0] == "texts became words and pairs of words"


def test_leaving_out_what_one_row_has_helps_on_rows_not_learned():
    rng = np.random.default_rng(3)
    topics = rng.integers(0, 2, 900)
    rows = [" ".join(f"t{topic}{k}" for k in rng.integers(0, 40, 3)) for topic in topics]
    rows = [row + " " + " ".join(f"noise{k}" for k in rng.integers(0, 10**6, 9)) for row in rows]
    loss = {}
    for min_rows in (1, 2):
        model = st.LinearClassifier(hasher=Hasher(20, ngrams=(1, 2), min_rows=min_rows)).fit(rows[:300], topics[:300])
        chance = model.predict_proba(rows[300:])[np.arange(600), topics[300:]]
        loss[min_rows] = -np.log(chance).mean()
    assert loss[2] < 0.7 * loss[1]


def test_the_kernel_refuses_nothing_and_keeps_all_where_rows_are_not_counted():
    options = kernels.HashOptions(
        n_bits=12, ngrams=(1, 1), char_ngrams=(0, 0), weighting=0, copies=1, min_letters=1,
        is_signed=True, lowercase=True, normalise=True, seed=0, min_rows=5,
    )  # fmt: skip
    recipe = kernels.HashRecipe([(0, "", "", "", (0.0, 1.0), [], [])], [], [], options)
    indptr, *_ = kernels.hash_rows(recipe, [["a b c"]], None, None, 0.0, None, 1)
    assert indptr.tolist() == [0, 3]
