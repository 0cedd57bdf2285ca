"""Wrong calls in Python: each is answered by an error of ours whose sentence holds the way out."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import steepest as st

X = np.random.default_rng(0).standard_normal((40, 3))
Y = (X[:, 0] > 0).astype(int)
TEXTS, LABELS = ["cheap pills now", "meeting at noon"] * 20, ["spam", "ham"] * 20


@pytest.fixture(scope="module")
def numbers():
    return st.LinearClassifier(random_state=0).fit(X, Y)


@pytest.fixture(scope="module")
def texts():
    return st.LinearClassifier(random_state=0).fit(TEXTS, LABELS)


def new(**options):
    return st.LinearClassifier(**options)


WRONG = [
    (lambda n, t: new().fit("rows.csv", Y), "give a list of texts, even for one; st.scan reads a file"),
    (lambda n, t: new().fit(Path("rows.csv"), Y), "read a file by fit_stream"),
    (lambda n, t: new().fit({"a": 1, "b": "x"}, [1]), "X is a single row; give a list of dicts, even for one"),
    (lambda n, t: t.predict({"text": "cash now"}), "give a list of dicts, even for one"),
    (lambda n, t: new().fit(X, "label"), "y='label' is a single value; give one target per row"),
    (lambda n, t: new(class_weight={"spma": 2.0}).fit(TEXTS, LABELS), "did you mean 'spam'?"),
    (lambda n, t: new().fit(X, Y, monitor=print), "derive a class from st.Monitor"),
    (lambda n, t: new().fit_stream("rows.csv"), "'rows.csv' is not a source; give st.scan(path)"),
    (lambda n, t: new().fit_stream(X), "st.from_arrays(X, y) for arrays"),
    (lambda n, t: new().fit_stream(st.from_arrays(X, Y), validation=0.1), "0.1 is not a source"),
    (lambda n, t: list(n.predict_stream("rows.csv")), "is not a source; give st.scan(path)"),
    (lambda n, t: n.evaluate_stream(X), "is not a source"),
    (lambda n, t: st.scan(5), "int is not a path or an open file"),
    (lambda n, t: st.cross_validate(st.LinearClassifier, X, Y), "give one that has fit_stream"),
    (lambda n, t: n.score(X, Y[:3]), "X has 40 rows but y has shape (3,); give one target per row"),
    (lambda n, t: n.score(X, 1), "give one target per row"),
    (lambda n, t: st.LinearRegressor().fit(X, Y).score(X, Y[:1]), "give one target per row"),
    (lambda n, t: n.explain(X), "x has 40 rows; give one, such as X[:1]"),
    (lambda n, t: t.explain(TEXTS), "x is a list; give one row"),
    (lambda n, t: n.top_features("spam"), "k='spam' is not a number"),
    (lambda n, t: n.top_features(-1), "k=-1 must be at least 0"),
    (lambda n, t: st.plot.losses(["hinje"]), "did you mean 'hinge'?"),
    (lambda n, t: st.plot.history(new()), "give a fitted model, or its history_"),
]


@pytest.mark.parametrize(("call", "way_out"), WRONG, ids=[way_out for _, way_out in WRONG])
def test_a_wrong_call_is_answered_by_a_sentence_with_the_fix(call, way_out, numbers, texts):
    with pytest.raises((st.DataError, st.ParameterError)) as raised:
        call(numbers, texts)
    assert way_out in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_misspelt_name_of_the_package_leads_to_the_right_one():
    with pytest.raises(AttributeError) as raised:
        st.LinearClasifier  # noqa: B018
    assert (raised.value.name, raised.value.obj) == ("LinearClasifier", st)  # from which Python proposes the nearest


def test_parameters_are_checked_before_rows_are_read(tmp_path):
    (tmp_path / "rows.csv").write_text("a,label\n" + "1,x\n2,y\n" * 20)
    source = st.scan(tmp_path / "rows.csv")
    source.batches = None  # nothing may ask for them
    for wrong in ({"loss": "mse"}, {"solver": "adam"}, {"alpha": -1.0}, {"epochs": 0}):
        with pytest.raises(st.ParameterError, match=next(iter(wrong))):
            new(**wrong).fit_stream(source)


def test_one_loss_may_be_named_alone():
    assert [line.get_label() for line in st.plot.losses("hinge").axes[0].get_lines()] == ["hinge"]
