"""Tables in memory and iterators of batches as a source: the rows of a file with the same content."""

from __future__ import annotations

import gc
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import steepest as st
from steepest.errors import DataError

N = 3000


def table():
    rng = np.random.default_rng(0)
    colour, size = rng.choice(["red", "blue", "green"], N), rng.normal(size=N).round(3)
    label = np.where((colour == "red") ^ (size > 0.5), "yes", "no")
    return pa.table({"colour": colour, "size": size, "label": label})


def predicted(source):
    model = st.LinearClassifier(random_state=0).fit_stream(source)
    return model.predict_proba(table().drop_columns("label"))


def batches(kind):
    parts = [table().slice(start, 500) for start in range(0, N, 500)]
    convert = {"arrow": lambda t: t, "record batches": lambda t: t.to_batches()[0], "dicts": pa.Table.to_pylist}
    return (convert.get(kind, lambda t: t.to_pandas())(part) for part in parts)


@pytest.fixture(scope="module")
def of_a_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("batches") / "rows.arrow"
    with pa.ipc.new_file(path, table().schema) as writer:
        for start in range(0, N, 500):
            writer.write_table(table().slice(start, 500))
    return predicted(st.scan(path, label="label"))


@pytest.mark.parametrize("kind", ["arrow", "record batches", "dicts", "pandas"])
def test_an_iterator_of_batches_is_learned_like_a_file_of_them(kind, of_a_file):
    if kind == "pandas":
        pytest.importorskip("pandas")
    np.testing.assert_array_equal(predicted(st.scan(batches(kind), label="label")), of_a_file)


def test_a_list_of_tables_is_learned_like_a_file_of_them(of_a_file):
    np.testing.assert_array_equal(predicted(st.scan(list(batches("arrow")), label="label")), of_a_file)


def test_one_table_and_a_list_of_rows_can_be_scanned():
    for whole in (table(), table().to_pylist(), table().to_pydict()):
        source = st.scan(whole, label="label")
        assert st.LinearClassifier(random_state=0).fit_stream(source).score(table(), table()["label"].to_pylist()) > 0.7


def test_an_iterator_of_paths_is_still_one_of_paths(tmp_path):
    for name in ("a.svm", "b.svm"):
        (tmp_path / name).write_text("1 1:1\n-1 2:1\n")
    assert sum(chunk.n_rows for chunk in st.scan(tmp_path / name for name in ("a.svm", "b.svm"))) == 4


def test_the_temporary_file_goes_with_its_source():
    source = st.scan(batches("arrow"), label="label")
    path = Path(source.files[0].path)
    assert path.exists()
    del source
    gc.collect()
    assert not path.exists()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (iter([pa.table({"a": [1]}), pa.table({"b": [1]})]), "batch 1 does not fit batch 0"),
        (iter([pa.table({"a": [1]}), pa.table({"a": ["x"]})]), "batch 1 does not fit batch 0"),
        (iter([(np.ones((2, 2)), [0, 1])]), "partial_fit"),
        (iter([{"a": [1, 2], "b": [1]}]), "batch 0 is not a table of columns"),
    ],
)
def test_what_is_not_a_batch_is_refused_in_a_sentence(given, said):
    with pytest.raises(DataError, match=said):
        st.scan(given)


def test_an_iterator_of_single_rows_is_learned_like_a_file_of_them(of_a_file):
    rows = (row for batch in batches("dicts") for row in batch)
    np.testing.assert_array_equal(predicted(st.scan(rows, label="label")), of_a_file)


def test_targets_and_texts_may_be_iterators_and_tuples():
    texts, y = ("good day", "bad day") * 30, [1, 0] * 30
    expected = st.LinearClassifier(random_state=0).fit(list(texts), y).predict_proba(["good day"])
    for X, targets in ((texts, iter(y)), (iter(texts), tuple(y)), (texts, (label for label in y))):
        model = st.LinearClassifier(random_state=0).fit(X, targets)
        np.testing.assert_array_equal(model.predict_proba(("good day",)), expected)
