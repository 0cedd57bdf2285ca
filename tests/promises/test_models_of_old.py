"""Model files of every format version load for ever and predict the numbers they predicted when they were written.

`python tests/test_models_of_old.py` writes the files of the current version; it is run once a format version, never to
make a failing test pass.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import steepest as st

GOLDEN = Path(__file__).parents[1] / "golden"
TEXTS = ["cheap pills, cheap", "meeting at noon", "win cash now", "lunch at noon?", "ÜBER größe", ""]
MODELS = {
    "linear-binary-1": dict(hasher=st.Hasher(n_bits=10, ngrams=(1, 2), names=50), solver="sgd", random_state=0),
    "linear-average-1": dict(hasher=st.Hasher(n_bits=10), solver="asgd", epochs=3, random_state=1),
    "linear-ftrl-1": dict(hasher=st.Hasher(n_bits=10), solver="ftrl", penalty="l1", alpha=1e-3, random_state=2),
    "linear-hashed-1": dict(hasher=st.Hasher(n_bits=10), multi_class=st.Hashed(bits=9), random_state=3),
}


def fit(name):
    three = "average" in name or "hashed" in name
    labels = ["spam", "ham", "spam", "ham", "other", "other"] if three else ["b", "a", "b", "a", "a", "b"]
    return st.LinearClassifier(**MODELS[name]).fit(TEXTS, labels)


@pytest.mark.parametrize("name", MODELS)
def test_golden_models_load_and_predict_the_stored_numbers(name):
    stored = json.loads((GOLDEN / f"{name}.json").read_text())
    model = st.load(GOLDEN / f"{name}.steepest")
    assert model.classes_.tolist() == stored["classes"]
    np.testing.assert_allclose(model.decision_function(TEXTS), stored["scores"], rtol=1e-5, atol=1e-6)
    assert model.predict(TEXTS).tolist() == stored["labels"]
    model.partial_fit(TEXTS[:2], stored["labels"][:2])  # and they can go on learning


if __name__ == "__main__":
    for name in MODELS:
        if (GOLDEN / f"{name}.steepest").exists():
            continue
        model = fit(name)
        model.save(GOLDEN / f"{name}.steepest")
        scores = model.decision_function(TEXTS).tolist()
        plain = {"classes": model.classes_.tolist(), "scores": scores, "labels": model.predict(TEXTS).tolist()}
        (GOLDEN / f"{name}.json").write_text(json.dumps(plain, indent=1))
