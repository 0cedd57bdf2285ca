"""Scores of a few rows right after learning have the bits of a table that is written out."""

from __future__ import annotations

import numpy as np
import pytest

import steepest as st


@pytest.mark.parametrize("solver", ["asgd", "adagrad", "ftrl", "sgd", "coin"])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_few_rows_have_the_scores_of_the_whole_table(solver, n_classes):
    rng = np.random.default_rng(0)
    words = np.array([f"w{k}" for k in range(50)])
    texts = [" ".join(rng.choice(words, 6)) for _ in range(300)]
    labels = rng.integers(0, n_classes, 300)
    hasher = st.Hasher(n_bits=16)
    model = st.LinearClassifier("log", solver=solver, hasher=hasher, random_state=0).fit(texts, labels)
    for n in range(5):
        model.partial_fit(texts[n : n + 1], labels[n : n + 1])
        few = model.decision_function([*texts[:3], "words never seen", ""])
        model.learner_._shown_weights()  # from now on the table is there
        whole = model.decision_function([*texts[:3], "words never seen", ""])
        np.testing.assert_array_equal(few, whole)
    model.partial_fit(texts[:1], labels[:1])
    for _ in range(5000):  # many rows without learning in between: the table is written after all
        model.predict(texts[:3])
        if model.learner_._shown is not None:
            break
    assert (model.learner_._shown is not None) == (solver not in ("sgd",))
