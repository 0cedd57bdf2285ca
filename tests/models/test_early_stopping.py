"""Early stopping by two samples: A and B of any size, k epochs, then all rows; and what tf-idf may count."""

from __future__ import annotations

import numpy as np
import pytest

import steepest as st
from conftest import sparse_problem


@pytest.fixture(scope="module")
def rows():
    return sparse_problem(n_rows=3000, seed=5)


def test_two_samples_give_k_and_all_rows_are_learned_k_times(rows):
    X, y = rows
    options = dict(solver="sgd", epochs=12, alpha=1e-5, random_state=0)
    stopping = st.EarlyStopping(fraction=0.1, train=0.3)
    model = st.LinearClassifier(early_stopping=stopping, **options).fit(X, y)
    first = [record for record in model.history_ if "holdout_loss" in record]
    losses = [record["holdout_loss"] for record in first]
    k = 1 + int(np.argmin(losses))
    assert {record["rows"] for record in first} == {900}
    assert [record["rows"] for record in list(model.history_)[len(first) :]] == [3000] * k
    assert model.n_iter_ == k
    by_hand = st.LinearClassifier(**{**options, "epochs": k}).fit(X, y)
    np.testing.assert_array_equal(model.coef_, by_hand.coef_)


def test_the_two_samples_are_disjoint_and_have_their_sizes(rows):
    X, y = rows
    seen = []

    class Watched(st.LinearClassifier):
        def _learn(self, settings, source, validation, run, seed):
            ids = [np.concatenate([c.row_ids for c in s]) for s in (source, validation) if s is not None]
            seen.append(ids)
            super()._learn(settings, source, validation, run, seed)

    for source, slack in ((st.from_arrays(X, y), 1), (stream(X, y), 150)):
        seen.clear()
        Watched(early_stopping=st.EarlyStopping(fraction=0.2, train=0.25), epochs=2, random_state=0).fit_stream(source)
        (a, b), (everything,) = seen
        assert not set(a.tolist()) & set(b.tolist())
        assert abs(len(a) - 750) <= slack
        assert abs(len(b) - 600) <= slack
        assert len(everything) == 3000


def stream(X, y):
    """The same rows in chunks that are drawn by their numbers, as from a file."""
    return st.Source.select(st.from_arrays(X, y), lambda ids: ids >= 0, "all")


def test_samples_that_overlap_are_refused(rows):
    with pytest.raises(st.ParameterError, match=r"train=0\.8 and fraction=0\.5 .* cannot add up to more than 1"):
        st.LinearClassifier(early_stopping=st.EarlyStopping(fraction=0.5, train=0.8)).fit(*rows)
    with pytest.raises(st.ParameterError, match="train"):
        st.LinearClassifier(early_stopping=st.EarlyStopping(train=0.0)).fit(*rows)


def test_shares_that_add_up_to_one_leave_nothing_out(rows):
    X, y = rows
    given = st.EarlyStopping(fraction=0.25, train=0.75)
    two = st.LinearClassifier(early_stopping=given, random_state=0).fit(X, y)
    rest = st.LinearClassifier(early_stopping=st.EarlyStopping(fraction=0.25, refit=True), random_state=0).fit(X, y)
    np.testing.assert_array_equal(two.coef_, rest.coef_)


def test_a_saved_model_remembers_its_samples(rows, tmp_path):
    model = st.LinearClassifier(early_stopping=st.EarlyStopping(train=0.5), random_state=0).fit(*rows)
    model.save(tmp_path / "m")
    assert st.load(tmp_path / "m").early_stopping.train == 0.5


# ----------------------------------------------------------------------------------------------------- tf-idf

WORDS = np.array(["cheap", "pills", "cash", "win", "lunch", "noon", "meeting", "report", "agenda", "budget"])


@pytest.fixture(scope="module")
def texts():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 2000)
    return [" ".join(rng.choice(WORDS[:6] if label else WORDS[4:], 5)) for label in y], y


def forms(texts):
    import pandas as pd
    import pyarrow as pa

    return {
        "list": texts,
        "array": np.array(texts),
        "frame": pd.DataFrame({"text": texts}, index=np.arange(len(texts)) + 7),
        "columns": {"text": texts},
        "arrow": pa.table({"text": texts}),
        "rows": [{"text": text} for text in texts],
    }


@pytest.mark.parametrize("form", ["list", "array", "frame", "columns", "arrow", "rows"])
def test_rows_held_out_are_not_counted(texts, form):
    X, y = forms(texts[0])[form], texts[1]
    hasher = st.Hasher(n_bits=12, weighting="tfidf")
    model = st.LinearClassifier(hasher=hasher, early_stopping=True, epochs=3, random_state=0).fit(X, y)
    assert model.history_[0]["rows"] == 1800
    assert model.hasher_.n_documents_ == 1800
    held = st.from_arrays(np.zeros((2000, 1))).holdout(0.1, 0)[1].rows
    texts_of_a = [text for row, text in enumerate(texts[0]) if row not in set(held.tolist())]
    by_hand = np.array([sum(word in text.split() for text in texts_of_a) for word in WORDS])
    assert sorted(model.hasher_.document_counts_[model.hasher_.document_counts_ > 0].tolist()) == sorted(by_hand)
    assert np.isfinite(model.history_[0]["holdout_loss"])
    assert model.score(X, y) > 0.9


def test_a_class_that_only_held_out_rows_have_is_known(texts):
    X, y = texts[0][:40], texts[1][:40].astype(str)
    y[int(st.from_arrays(np.zeros((40, 1))).holdout(0.1, 0)[1].rows[0])] = "rare"
    model = st.LinearClassifier(hasher=st.Hasher(n_bits=12), early_stopping=True, random_state=0).fit(X, y)
    assert model.classes_.tolist() == ["0", "1", "rare"]


def test_all_rows_are_counted_where_all_are_learned(texts):
    stopping = st.EarlyStopping(refit=True)
    model = st.LinearClassifier(hasher=st.Hasher(n_bits=12, weighting="tfidf"), early_stopping=stopping, random_state=0)
    assert model.fit(*texts).hasher_.n_documents_ == 2000


def noise(n_rows, seed):
    rng = np.random.default_rng(seed)
    return st.from_arrays(rng.normal(size=(n_rows, 80)), rng.integers(0, 2, n_rows))


@pytest.mark.parametrize("options", [{}, {"parallel": "mixing"}], ids=["epochs", "rounds"])
def test_the_best_epoch_on_held_out_rows_is_kept_and_a_rise_is_reported(options):
    settings = dict(solver="asgd", alpha=0.0, random_state=0, **options)
    with pytest.warns(st.NotConverged, match="rose from"):
        kept = st.LinearClassifier(epochs=6, **settings).fit_stream(noise(60, 0), noise(40, 1))
    losses = kept.history_.column("holdout_loss")
    assert losses[-1] > 1.1 * min(losses)
    held_out = next(iter(noise(40, 1)))
    found, _ = kept.learner_.losses(kept.learner_.code_for_scoring(held_out))
    assert float(found.mean()) == pytest.approx(min(losses))
    assert any("rose from" in event for event in kept.history_.events)


def test_the_last_epoch_is_kept_if_asked_for(recwarn):
    settings = dict(solver="asgd", alpha=0.0, random_state=0, epochs=6)
    last = st.LinearClassifier(**settings).fit_stream(noise(60, 0), noise(40, 1), keep="last")
    alone = st.LinearClassifier(**settings).fit_stream(noise(60, 0))
    np.testing.assert_array_equal(last.coef_, alone.coef_)
    assert not [warning for warning in recwarn if warning.category is st.NotConverged]
    with pytest.raises(st.ParameterError, match="keep"):
        st.LinearClassifier(**settings).fit_stream(noise(60, 0), noise(40, 1), keep="first")
