"""The libsvm format: numbers as strtod reads them, rows as scikit-learn reads them, a sentence for each bad line."""

from __future__ import annotations

import gzip
import io
import itertools
import os
import pickle
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from sklearn.datasets import dump_svmlight_file, load_svmlight_file

from steepest.data.chunk import concatenate
from steepest.data.readers.libsvm import HEAD_BYTES, scan_libsvm
from steepest.errors import DataError
from steepest.kernels import parse_libsvm

SHARED = Path(os.environ.get("STEEPEST_DATA", Path(__file__).parents[3] / "shared" / "data"))


def parse(*texts: bytes, zero_based=False, with_labels=True, skip_bad=False, **options):
    names = ("indptr", "indices", "values", "y", "qid", "n_features", "rows", "n_bad", "bad")
    results = parse_libsvm(list(texts), zero_based=zero_based, with_labels=with_labels, skip_bad=skip_bad, **options)
    return SimpleNamespace(**dict(zip(names, results, strict=True)))


def write(path: Path, data: bytes) -> str:
    path.write_bytes(data)
    return str(path)


def matrix(chunk, n_features=None):
    shape = (len(chunk.indptr) - 1, n_features or chunk.n_features)
    return sp.csr_matrix((chunk.values, chunk.indices, chunk.indptr), shape)


def test_a_line_is_a_row():
    rows = parse(b"+1 1:0.5 3:-2e1 # 7:8\r\n\n  \t\n# comment\n-1\tqid:4\t2:.5\t\n0 \n1.5e0 1:1#x")
    assert rows.indptr.tolist() == [0, 2, 3, 3, 4]
    assert rows.indices.tolist() == [0, 2, 1, 0]
    assert rows.values.tolist() == [0.5, -20, 0.5, 1]
    assert rows.y.tolist() == [1, -1, 0, 1.5]
    assert rows.qid.tolist() == [-1, 4, -1, -1]
    assert (rows.n_features, rows.rows, rows.n_bad, rows.bad) == (3, [4], [0], [])
    assert [a.dtype for a in (rows.indptr, rows.indices, rows.values, rows.y, rows.qid)] == [
        np.int64, np.int32, np.float32, np.float64, np.int64,
    ]  # fmt: skip


def test_no_text_is_no_row():
    for rows in (parse(), parse(b""), parse(b"", b"\n")):
        assert rows.indptr.tolist() == [0]
        assert (len(rows.indices), len(rows.y), rows.qid, rows.n_features) == (0, 0, None, 0)


def test_texts_follow_each_other():
    rows = parse(b"1 1:1\n2 1:2", b"", b"3 5:3 # no newline", b"\n4\n")
    assert rows.y.tolist() == [1, 2, 3, 4]
    assert rows.rows == [2, 0, 1, 1]
    assert rows.n_features == 5


def test_labels_may_be_missing_if_they_are_not_wanted():
    rows = parse(b"1:2 3:4\nqid:4 1:1\n5 1:1\n-3\n", with_labels=False)
    assert rows.y is None
    assert rows.indptr.tolist() == [0, 2, 3, 4, 4]
    assert rows.qid.tolist() == [-1, 4, -1, -1]


def test_any_buffer_will_do():
    text = b"x1 2:3\ny"
    for buffer in (text[1:-1], bytearray(text[1:-1]), memoryview(text)[1:-1], np.frombuffer(text[1:-1], np.uint8)):
        assert parse(buffer).indices.tolist() == [1]
    with pytest.raises(TypeError):
        parse("1 2:3")


digits = st.text("0123456789", max_size=25)
exponents = st.one_of(st.just(""), st.builds("{}{}{}".format, st.sampled_from("eE"), st.sampled_from(["", "+", "-"]),
                                             st.integers(0, 400)))  # fmt: skip
decimals = st.builds(
    "{}{}{}{}{}".format, st.sampled_from(["", "+", "-"]), digits, st.sampled_from(["", "."]), digits, exponents
).filter(lambda text: any(c.isdigit() for c in text.lower().split("e")[0]))
# Numbers close to the middle between two floats, where rounding twice goes wrong most easily.
middles = st.builds(
    lambda x, ulps: repr(float(np.float64(np.float32(x)) * (1 + 2.0**-24) + ulps * np.spacing(np.float64(x)))),
    st.floats(1e-30, 1e30),
    st.integers(-3, 3),
)
numbers = st.one_of(
    decimals,
    middles,
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.floats(width=32, allow_nan=False, allow_infinity=False).map(lambda x: f"{x:.9g}"),
    st.floats(-1e6, 1e6).map(lambda x: f"{x:.16g}"),
    st.floats(-1, 1).map(lambda x: f"{x:.18f}"),
    st.integers(-(10**25), 10**25).map(str),
)


@given(st.lists(numbers, min_size=1, max_size=5))
def test_values_are_those_of_strtod_rounded_to_float32(texts):
    with np.errstate(over="ignore"):
        expected = np.array([float(text) for text in texts]).astype(np.float32)
    line = "1 " + " ".join(f"{j + 1}:{text}" for j, text in enumerate(texts))
    for ending in ("", "\n", "   # room to look ahead\n"):
        rows = parse((line + ending).encode())
        if np.isfinite(expected).all():
            assert rows.values.tobytes() == expected.tobytes()
        else:
            assert rows.bad[0][-1] == "value_not_finite"


@given(numbers)
def test_labels_are_those_of_strtod(text):
    for ending in ("", " 1:1 # room to look ahead\n"):
        rows = parse((text + ending).encode())
        if np.isfinite(float(text)):
            assert rows.y.tobytes() == np.array([float(text)]).tobytes()
        else:
            assert rows.bad[0][-1] == "label_not_finite"


@given(st.lists(st.tuples(st.integers(0, 2**31 - 2), st.integers(0, 12)), max_size=8), st.booleans())
def test_indices_are_read_in_any_length_and_order(entries, zero_based):
    line = "1 " + " ".join(f"{'0' * min(zeros, 9)}{j + (not zero_based)}:1" for j, zeros in entries)
    rows = parse(line.encode(), zero_based=zero_based)
    assert rows.indices.tolist() == [j for j, _ in entries]
    assert rows.n_features == max((j + 1 for j, _ in entries), default=0)


@pytest.mark.parametrize("zero_based", [True, False])
@pytest.mark.parametrize("with_qid", [True, False])
def test_what_scikit_learn_writes_is_read_as_scikit_learn_reads_it(tmp_path, zero_based, with_qid):
    random = np.random.default_rng(0)
    X = sp.random(200, 50, 0.2, "lil", random_state=1, data_rvs=lambda n: random.lognormal(0, 5, n))
    X[0, 0] = 1.0  # so that zero-based files show it
    X = X.tocsr()
    y = random.normal(size=200)
    path = str(tmp_path / "dumped.svm")
    qid = np.arange(200) // 3 if with_qid else None
    dump_svmlight_file(X, y, path, zero_based=zero_based, query_id=qid, comment="made by a test")
    expected = load_svmlight_file(path, n_features=50, dtype=np.float32, query_id=with_qid, zero_based=zero_based)
    source = scan_libsvm(path, n_features=50)
    chunk = concatenate(list(source))
    assert source.recipe["zero_based"] is zero_based
    found = matrix(chunk)
    assert (found != expected[0]).nnz == 0
    assert found.data.tobytes() == expected[0].data.tobytes()
    assert np.array_equal(chunk.y, load_svmlight_file(path)[1])
    if qid is not None:
        assert np.array_equal(parse(Path(path).read_bytes(), zero_based=zero_based).qid, qid)


@pytest.mark.skipif(not SHARED.is_dir(), reason="the shared data sets are not beside the repository")
@pytest.mark.parametrize("name", ["a9a/a9a.libsvm.gz", "news20-multiclass/news20.libsvm.gz"])
def test_real_files_are_read_as_scikit_learn_reads_them(name):
    expected, y = load_svmlight_file(str(SHARED / name), dtype=np.float32)
    chunk = concatenate(list(scan_libsvm(SHARED / name)))
    found = matrix(chunk, expected.shape[1])
    assert found.indices.tobytes() == expected.indices.astype(np.int32).tobytes()
    assert found.data.tobytes() == expected.data.tobytes()
    assert np.array_equal(found.indptr, expected.indptr)
    assert np.array_equal(chunk.y, y)


SKIP = ' pass on_bad_line="skip"'
CORRECT = "; correct the line or" + SKIP
BAD_LINES = {
    b"3:1 4:1": "the line starts with '3:1' instead of a label; put a label first, pass with_labels=False if there are "
    "none, or" + SKIP,
    b"spam 1:1": "the label 'spam' is not a number" + CORRECT,
    b"1e 1:1": "the label '1e' is not a number" + CORRECT,
    b"\xef\xbf 1:1": "the label '\\\\xef\\\\xbf' is not a number" + CORRECT,
    b"nan 1:1": "the label 'nan' is not finite" + CORRECT,
    b"-Infinity 1:1": "the label '-Infinity' is not finite" + CORRECT,
    b"1e999 1:1": "the label '1e999' is not finite" + CORRECT,
    b"1,3,5 1:1": "the line has several labels '1,3,5'; keep one label per line or" + SKIP,
    b"1 qid:x 1:1": "the qid 'x' is not a whole number" + CORRECT,
    b"1 qid:-1 1:1": "the qid '-1' is not a whole number" + CORRECT,
    b"1 a:1": "the index 'a' is not a whole number" + CORRECT,
    b"1 1.5:1": "the index '1.5' is not a whole number" + CORRECT,
    b"1 +1:1": "the index '+1' is not a whole number" + CORRECT,
    b"1 :1": "the index '' is not a whole number" + CORRECT,
    b"1 2:1 qid:3": "the index 'qid' is not a whole number" + CORRECT,
    b"1 -3:1": "the index -3 is negative" + CORRECT,
    b"1 0:1": "the index 0 is in a file that counts from 1; pass zero_based=True if it counts from 0",
    b"1 2147483648:1": "the index 2147483648 is too large; hash to fewer than 2^31 features or" + SKIP,
    b"1 99999999999999999999999:1": "the index 99999999999999999999999 is too large; hash to fewer than 2^31 features "
    "or" + SKIP,
    b"1 7": "the index '7' has no value; write index:value or" + SKIP,
    b"1 7#8:1": "the index '7' has no value; write index:value or" + SKIP,
    b"1 1:abc": "the value 'abc' is not a number" + CORRECT,
    b"1 1:": "the value '' is not a number" + CORRECT,
    b"1 1: 2": "the value '' is not a number" + CORRECT,
    b"1 1:2:3": "the value '2:3' is not a number" + CORRECT,
    b"1 1:0x1p3": "the value '0x1p3' is not a number" + CORRECT,
    b"1 1:1_000": "the value '1_000' is not a number" + CORRECT,
    b"1 1:1,5": "the value '1,5' is not a number" + CORRECT,
    b"1 1:" + b"y" * 99: f"the value '{'y' * 40}...' is not a number" + CORRECT,
    b"1 1:NaN": "the value 'NaN' is not a finite float32 number" + CORRECT,
    b"1 1:-inf": "the value '-inf' is not a finite float32 number" + CORRECT,
    b"1 1:3.5e38": "the value '3.5e38' is not a finite float32 number" + CORRECT,
    b"1 1:1\x00": "the line holds binary data; check that the file is libsvm text or" + SKIP,
}


@pytest.mark.parametrize("line", BAD_LINES, ids=repr)
@pytest.mark.parametrize("ending", [b"", b"\n", b"\r\n", b" 9:9 # more\n1 1:1\n"])
def test_a_bad_line_is_named_and_explained(tmp_path, line, ending):
    path = write(tmp_path / "data.svm", b"1 1:1\n\n# comment\n" + line + ending)
    with pytest.raises(DataError) as caught:
        list(scan_libsvm(path, zero_based=False))
    assert str(caught.value) == f"{path}, line 4: {BAD_LINES[line]}"
    skipping = scan_libsvm(path, zero_based=False, on_bad_line="skip")
    assert [chunk.y.tolist() for chunk in skipping] == [[1.0] * (1 + (b"1 1:1" in ending))]
    assert skipping.skipped.n == 1
    assert BAD_LINES[line].startswith(skipping.skipped.examples[0].split("line 4: ")[1])


def test_the_first_three_bad_lines_of_each_text_are_kept():
    rows = parse(b"x\ny\n1 1:1\nz\nw\n2\n", b"1 1:\n", skip_bad=True)
    assert rows.y.tolist() == [1, 2]
    assert (rows.rows, rows.n_bad) == ([2, 0], [4, 1])
    assert [(text, line, token, length) for text, line, token, length, _ in rows.bad] == [
        (0, 0, 0, 1), (0, 2, 2, 1), (0, 10, 10, 1), (1, 0, 4, 0),
    ]  # fmt: skip


def test_a_bad_line_leaves_no_trace():
    rows = parse(b"1 1:1\n2 50:1 qid\n3 qid:1 2:2\n", skip_bad=True)
    assert (rows.indptr.tolist(), rows.indices.tolist(), rows.n_features) == ([0, 1, 2], [0, 1], 2)
    assert rows.qid.tolist() == [-1, 1]


pieces = st.sampled_from(
    [b"1", b"-1", b" ", b"1:1", b" 1:2.5", b"\n", b"\r\n", b"\t", b"#", b"qid:3", b":", b"nan", b"1e5", b"\0", b"\xff"]
)


@given(st.one_of(st.binary(max_size=200), st.lists(pieces, max_size=40).map(b"".join)), st.booleans(), st.booleans())
def test_any_bytes_parse_or_are_reported(text, zero_based, with_labels):
    rows = parse(text, zero_based=zero_based, with_labels=with_labels, skip_bad=True)
    n_lines = sum(bool(line.split(b"#")[0].strip(b" \t\r")) for line in text.split(b"\n"))
    assert rows.rows[0] + rows.n_bad[0] == n_lines
    assert rows.indptr[-1] == len(rows.indices) == len(rows.values)
    assert np.isfinite(rows.values).all()
    assert (rows.indices >= 0).all()
    strict = parse(text, zero_based=zero_based, with_labels=with_labels)
    assert sum(strict.n_bad) == min(1, rows.n_bad[0])


def test_counting_is_found_out_from_the_head(tmp_path):
    for text, zero_based in ((b"1 1:1 2:1\n2 3:1\n", False), (b"1 1:1\n2 0:1\n", True), (b"1\n", False)):
        source = scan_libsvm(write(tmp_path / "data.svm", text))
        assert source.recipe == {"format": "libsvm", "zero_based": "auto", "n_features": None}
        assert scan_libsvm(tmp_path / "data.svm", zero_based=True).recipe["zero_based"] is True
        chunks = list(source.shuffle("rows"))
        assert source.recipe["zero_based"] is zero_based
        assert min((int(c.indices.min()) for c in chunks if len(c.indices)), default=0) == 0


def test_an_empty_first_file_says_nothing_about_counting(tmp_path):
    source = scan_libsvm([write(tmp_path / "a", b""), write(tmp_path / "b", b"1 0:1\n")])
    assert [chunk.indices.tolist() for chunk in source] == [[0]]


def test_a_source_can_be_sent_to_another_process(tmp_path):
    source = pickle.loads(pickle.dumps(scan_libsvm(write(tmp_path / "data.svm", b"1 1:1\n")).shuffle("rows")))
    assert [chunk.y.tolist() for chunk in source] == [[1.0]]


def test_an_index_0_behind_the_head_says_what_to_pass(tmp_path):
    head = b"1 1:1 2:1\n" * (HEAD_BYTES // 10 + 1)
    path = write(tmp_path / "late.svm", head + b"1 0:1\n")
    line = head.count(b"\n") + 1
    message = rf"late.svm, line {line}: the index 0 is in a file that counts from 1; pass zero_based=True if"
    with pytest.raises(DataError, match=message):
        list(scan_libsvm(path))
    assert sum(chunk.n_rows for chunk in scan_libsvm(path, zero_based=True)) == line


def test_a_head_cut_in_a_long_first_line_is_no_trouble(tmp_path):
    line = b"1 " + b" ".join(b"%d:1" % j for j in range(10, HEAD_BYTES // 6))
    path = write(tmp_path / "long.svm", line)
    source = scan_libsvm(path)
    assert len(line) > HEAD_BYTES
    assert sum(len(chunk.indices) for chunk in source) == line.count(b":")
    assert source.recipe["zero_based"] is False


def test_n_features_is_what_a_chunk_shows_or_what_is_given(tmp_path):
    path = write(tmp_path / "data.svm", b"1 1:1 7:1\n")
    assert [chunk.n_features for chunk in scan_libsvm(path)] == [7]
    source = scan_libsvm(path, n_features=10)
    assert (source.n_features, source.recipe["n_features"]) == (10, 10)
    assert [chunk.n_features for chunk in source] == [10]
    message = r"data.svm, line 1: the index 7 lies beyond n_features=6; pass a larger n_features or pass on_bad_line"
    with pytest.raises(DataError, match=message):
        list(scan_libsvm(path, n_features=6))
    assert [chunk.n_features for chunk in scan_libsvm(path, n_features=8, zero_based=True)] == [8]
    with pytest.raises(DataError, match="lies beyond n_features=7"):
        list(scan_libsvm(path, n_features=7, zero_based=True))


@pytest.mark.parametrize("n_features", [0, -1, 2**31])
def test_impossible_numbers_of_features_are_refused(tmp_path, n_features):
    with pytest.raises(ValueError, match=f"n_features={n_features} must lie between 1 and 2147483647"):
        scan_libsvm(write(tmp_path / "data.svm", b"1\n"), n_features=n_features)


def test_an_unknown_way_of_counting_is_refused(tmp_path):
    with pytest.raises(ValueError, match="zero_based='yes' is unknown; choose True, False or \"auto\""):
        scan_libsvm(write(tmp_path / "data.svm", b"1\n"), zero_based="yes")


def test_a_missing_file_is_an_error_before_anything_is_read(tmp_path):
    with pytest.raises(DataError, match=r"none.svm does not exist"):
        scan_libsvm(tmp_path / "none.svm")


def test_without_labels_there_are_no_targets(tmp_path):
    path = write(tmp_path / "new.svm", b"1:1 2:1\n5 2:1\n")
    (chunk,) = scan_libsvm(path, with_labels=False)
    assert (chunk.y, chunk.n_rows, chunk.indices.tolist()) == (None, 2, [0, 1, 1])


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_standard_input_is_read_once_after_its_head_was_looked_at(monkeypatch, pack):
    text = b"".join(b"%d 0:1 3:2\n" % i for i in range(500))
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(pack(text))))
    source = scan_libsvm("-")
    chunk = concatenate(list(source.shuffle("blocks")))
    assert source.recipe["zero_based"] is True
    assert sorted(chunk.y.tolist()) == list(range(500))
    with pytest.raises(DataError, match="standard input can be read only once"):
        list(source)


def test_a_bad_line_of_standard_input_has_its_number(monkeypatch):
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(b"1 1:1\n" * 10 + b"1 1:x\n")))
    with pytest.raises(DataError, match="standard input, line 11: the value 'x' is not a number"):
        list(scan_libsvm("-"))


@pytest.mark.parametrize("index", [1, 99, 1_234_567, 12_345_678, 123_456_789])
@pytest.mark.parametrize("end", ["\n", " \n", "\t2:1\n", "\r\n", " # no more\n", "e1\n"])
def test_numbers_of_any_length_are_the_nearest_floats(index, end):
    for whole, n_digits in itertools.product(["0", "7", "10", ""], range(1, 12)):
        number = f"{whole}.{'9182736455463728'[:n_digits]}"
        text = f"1 {index}:{number}{end}1 {index}:{number} {'3:0.5 ' * 9}\n".encode()  # with room behind, and without
        rows = parse(text)
        exact = np.float32(float(number + end.strip() if end.startswith("e") else number))
        assert rows.indices[rows.indptr[0]] == rows.indices[rows.indptr[1]] == index - 1, number
        assert rows.values[rows.indptr[0]] == exact, number
        assert rows.values[rows.indptr[1]] == np.float32(float(number)), number


@pytest.mark.parametrize("entry", ["1:.", "1:0.5x", "1 :0.5", "x:0.5", "1:0.5:1", "0:0.25", "99:0.25"])
def test_a_bad_entry_among_plain_ones_is_found(entry):
    rows = parse(f"1 2:0.5 {entry} 3:0.5 4:0.5 5:0.5 6:0.5 7:0.5\n1 1:0.5\n".encode(), n_features=50, skip_bad=True)
    assert (rows.n_bad, rows.values.tolist()) == ([1], [0.5])


def test_rows_that_are_held_are_not_written_over():
    generator = np.random.default_rng(0)

    def text(n_rows):
        values = generator.integers(1, 10_000, (n_rows, 40)) / 10_000
        return "".join("1 " + " ".join(f"{j + 1}:{x}" for j, x in enumerate(row)) + "\n" for row in values).encode()

    first = text(2000)
    held = parse(first)
    copies = held.indices.copy(), held.values.copy()
    for n_rows in (2000, 1800, 1500, 2000):
        parse(text(n_rows))
    assert (held.indices == copies[0]).all()
    assert (held.values == copies[1]).all()
    assert (parse(first).values == copies[1]).all()
