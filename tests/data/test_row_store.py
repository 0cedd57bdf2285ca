"""Rows stored after the first reading: the same rows, parsed once, mixed as a whole, dropped if they are too many."""

from __future__ import annotations

import numpy as np
import pytest

import steepest as st
from steepest.data.chunk import concatenate
from steepest.data.files import blocks as files
from steepest.data.source import Order
from steepest.data.store import row_store
from steepest.data.store.row_store import StoredSource, store_rows

N_ROWS = 3000


@pytest.fixture
def path(tmp_path):
    """Rows sorted by class, each with its number as a value."""
    path = tmp_path / "sorted.svm"
    path.write_text("".join(f"{i // (N_ROWS // 3)} {i % 50 + 1}:{i + 1} 60:1\n" for i in range(N_ROWS)))
    return path


@pytest.fixture(params=["in memory", "in files"])
def place(request, monkeypatch):
    """Rows stay in memory while they are few; here also where only some of them have room there."""
    if request.param == "in files":
        monkeypatch.setattr(row_store, "IN_MEMORY", 1000)


def numbers(chunks):
    rows = concatenate(list(chunks))
    return rows.values[rows.indptr[:-1]].astype(int).tolist()


def count_parsing(monkeypatch):
    calls = []
    read_block = files.TextFile.read_block
    monkeypatch.setattr(files.TextFile, "read_block", lambda self, i: calls.append(i) or read_block(self, i))
    return calls


@pytest.mark.usefixtures("place")
def test_rows_are_the_parents_in_file_order_and_parsed_once(path, monkeypatch):
    monkeypatch.setattr(files, "BLOCK_BYTES", 4096)
    source = store_rows(st.scan(path))
    expected = concatenate(list(st.scan(path)))
    calls = count_parsing(monkeypatch)
    for _ in range(3):
        got = concatenate(list(source))
        for name in ("indptr", "indices", "values", "y"):
            np.testing.assert_array_equal(getattr(got, name), getattr(expected, name))
    assert len(calls) == source.parent.files[0].n_blocks()


@pytest.mark.usefixtures("place")
def test_a_sorted_file_is_mixed_as_a_whole(path, monkeypatch):
    monkeypatch.setattr(files, "BLOCK_BYTES", 1024)
    source = store_rows(st.scan(path).shuffle("blocks", 3))
    visited = numbers(source.epoch(1))
    assert sorted(visited) == list(range(1, N_ROWS + 1))
    first_classes = (np.array(visited[:300]) - 1) // (N_ROWS // 3)
    assert np.bincount(first_classes, minlength=3).min() > 60
    assert numbers(source.epoch(2)) != visited == numbers(source.epoch(1))


@pytest.mark.parametrize(("name", "most"), [("MOST_ROWS", N_ROWS - 1), ("MOST_ENTRIES", 2 * N_ROWS - 1)])
def test_too_many_rows_are_read_anew_in_every_epoch(path, monkeypatch, name, most):
    monkeypatch.setattr(row_store, name, most)
    monkeypatch.setattr(files, "BLOCK_BYTES", 4096)
    source, plain = store_rows(st.scan(path)), st.scan(path)
    order = Order("blocks", 5)
    for epoch in range(2):
        assert numbers(source.read(order, epoch)) == numbers(plain.read(order, epoch))


def test_a_full_disk_is_no_failure(path, monkeypatch):
    def no_space(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(row_store, "IN_MEMORY", 1000)
    monkeypatch.setattr(row_store, "_write_fully", no_space)
    assert numbers(store_rows(st.scan(path))) == list(range(1, N_ROWS + 1))


def test_weights_texts_as_labels_and_empty_rows_survive(tmp_path):
    path = tmp_path / "rows.vw"
    path.write_text("1 2.0 'a | x:1 y:2\n-1 | \n1 | z\n")
    got, expected = concatenate(list(store_rows(st.scan(path)))), concatenate(list(st.scan(path)))
    np.testing.assert_array_equal(got.weight, expected.weight)
    np.testing.assert_array_equal(got.indptr, expected.indptr)
    np.testing.assert_array_equal(got.y, expected.y)


def test_what_is_in_memory_already_is_not_stored_again(tmp_path, path):
    arrays = st.from_arrays([[1.0]], [1])
    cached = st.scan(path).cache(tmp_path / "c")
    assert store_rows(arrays) is arrays
    assert store_rows(cached) is cached
    assert isinstance(store_rows(st.scan(path)), StoredSource)


def test_standard_input_can_be_learned_in_several_epochs(path, monkeypatch):
    with open(path) as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        model = st.LinearClassifier(epochs=3, random_state=0).fit_stream(st.scan("-", format="libsvm"))
    assert model.n_iter_ == 3
    again = st.LinearClassifier(epochs=3, random_state=0).fit_stream(st.scan(path))
    np.testing.assert_array_equal(model.coef_, again.coef_)


def test_a_text_file_and_the_same_texts_in_memory_give_the_same_model(tmp_path):
    rng = np.random.default_rng(0)
    texts = [" ".join(rng.choice(list("abcdefghij"), 6)) for _ in range(400)]
    labels = ["yes" if "a" in text else "no" for text in texts]
    path = tmp_path / "texts.txt"
    path.write_text("".join(f"{label}\t{text}\n" for label, text in zip(labels, texts, strict=True)))
    hasher = st.Hasher(14, ngrams=(1, 2))
    from_file = st.LinearClassifier(hasher=hasher, random_state=0).fit_stream(st.scan(path))
    from_list = st.LinearClassifier(hasher=hasher, random_state=0).fit(texts, labels)
    np.testing.assert_array_equal(from_file.coef_, from_list.coef_)


def test_a_process_with_little_memory_stores_rows_in_files(path, tmp_path, monkeypatch):
    """The room in memory is an eighth of what is allowed, and every row is there all the same."""
    limit = tmp_path / "memory.max"
    limit.write_text("max\n")
    monkeypatch.setattr(row_store, "CGROUP_LIMIT", str(limit))
    free = row_store.allowed_bytes()
    limit.write_text("64000\n")
    assert row_store.allowed_bytes() == 64_000 < free
    written = []
    write = row_store._write_fully
    monkeypatch.setattr(
        row_store, "_write_fully", lambda file, part: written.append((file, len(part))) or write(file, part)
    )
    monkeypatch.setattr(files, "BLOCK_BYTES", 1024)
    assert numbers(store_rows(st.scan(path))) == list(range(1, N_ROWS + 1))
    assert len({file for file, _ in written}) == 2  # of column numbers and of values
    assert 0 < written[0][1] <= 1000  # what had been in memory
