"""Vowpal Wabbit's text: rows as a slow reading of its grammar gives them, a sentence for each bad line."""

from __future__ import annotations

import gzip
import io
import pickle
import re
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_matrix

import steepest
from steepest.cli import main
from steepest.data.chunk import concatenate
from steepest.data.files import blocks as text_files
from steepest.data.readers.vw import scan_vw
from steepest.data.scan import scan
from steepest.errors import DataError
from steepest.kernels import parse_vw
from steepest.kernels.reference.text import K3, MASK, hash_bytes, key_of, mix, place


def parse(*texts: bytes, n_bits=22, signed=False, with_labels=True, skip_bad=False, seed=0):
    names = ("indptr", "indices", "values", "y", "weight", "rows", "n_bad", "bad", "names")
    results = parse_vw(list(texts), n_bits=n_bits, signed=signed, with_labels=with_labels, skip_bad=skip_bad, seed=seed)
    return SimpleNamespace(**dict(zip(names, results, strict=True)))


def write(path: Path, data: bytes) -> str:
    path.write_bytes(data)
    return str(path)


def feature(namespace: str, name: str, seed: int = 0) -> int:
    """The hash of a named feature, by its definition."""
    key = key_of("", seed)
    return mix(hash_bytes(namespace.encode(), key), hash_bytes(name.encode(), key))


def bucket(namespace: str, name: str, n_bits: int = 22, seed: int = 0) -> int:
    return place(feature(namespace, name, seed), n_bits)[0]


class BadLineError(Exception):
    pass


def number(text: str) -> float:
    if not re.fullmatch(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?", text, re.ASCII) or not np.isfinite(float(text)):
        raise BadLineError
    return float(text)


def single(text: str) -> np.float32:
    with np.errstate(over="ignore"):
        value = np.float32(number(text))
    if not np.isfinite(value):
        raise BadLineError
    return value


def read_header(header: str, with_labels: bool) -> tuple[float, float]:
    """(label, importance)."""
    words = re.findall(r"[^ \t\r]+", header)
    if words and (not re.search(r"[ \t\r]$", header) or words[-1].startswith("'")):
        words.pop()
    if len(words) > 3 or (with_labels and not words):
        raise BadLineError
    label, importance, _ = [number(word) for word in words] + [0.0, 1.0, 0.0][len(words) :]
    if importance < 0:
        raise BadLineError
    return label, importance


def read_space(space: str, n_bits: int, signed: bool, seed: int) -> list[tuple[int, float]]:
    """(bucket, value) of each feature between two bars."""
    first, *features = re.split(r"[ \t\r]+", space)
    namespace, colon, scale_text = first.partition(":")
    if colon and not namespace:
        raise BadLineError
    scale = single(scale_text) if colon else np.float32(1)
    entries, nameless = [], 0
    for word in filter(None, features):
        name, colon, text = word.partition(":")
        with np.errstate(over="ignore"):
            value = (single(text) if colon else np.float32(1)) * scale
        if not np.isfinite(value):
            raise BadLineError
        hashed = feature(namespace, name, seed)
        if not name:
            hashed = mix(hashed, nameless * K3 & MASK) if nameless else hashed
            nameless += 1
        column, sign = place(hashed, n_bits)
        entries.append((column, float(value) * (sign if signed else 1)))
    return entries


def read_slowly(text: str, n_bits: int, signed: bool, with_labels: bool, seed: int):
    """[(label, importance, entries)] of the good lines, and how many are bad."""
    rows, n_bad = [], 0
    for line in text.split("\n"):
        if not line.strip(" \t\r"):
            continue
        try:
            header, *spaces = line.lstrip(" \t\r").split("|")
            if not spaces or "\0" in line:
                raise BadLineError
            entries = [entry for space in spaces for entry in read_space(space, n_bits, signed, seed)]
            rows.append((*read_header(header, with_labels), entries))
        except BadLineError:
            n_bad += 1
    return rows, n_bad


def test_a_line_is_a_row():
    rows = parse(
        b"1 |f 13:3.9656971e-02 24:-2e1 x\r\n\n \t\r\n"
        b"-1 2.5 'zebra |metric:3 height:1.5 length |says black white|other legs:4\n"
        b"3 0 0.5 tag|f 13 13:2\n"
        b"+.5e1\t | a:.5\t|f"
    )
    assert rows.indptr.tolist() == [0, 3, 8, 10, 11]
    assert rows.indices.tolist() == [
        bucket("f", "13"), bucket("f", "24"), bucket("f", "x"),
        bucket("metric", "height"), bucket("metric", "length"), bucket("says", "black"), bucket("says", "white"),
        bucket("other", "legs"), bucket("f", "13"), bucket("f", "13"), bucket("", "a"),
    ]  # fmt: skip
    assert rows.values.tolist() == [np.float32(3.9656971e-02), -20, 1, 4.5, 3, 1, 1, 4, 1, 2, 0.5]
    assert rows.y.tolist() == [1, -1, 3, 5]
    assert rows.weight.tolist() == [1, 2.5, 0, 1]
    assert (rows.rows, rows.n_bad, rows.bad) == ([4], [0], [])
    assert [a.dtype for a in (rows.indptr, rows.indices, rows.values, rows.y, rows.weight)] == [
        np.int64, np.int32, np.float32, np.float64, np.float64,
    ]  # fmt: skip


# Saved models depend on these numbers.
GOLDEN_BUCKETS = [127237, 84099, 149670, 5670, 197953, 10950]
GOLDEN_BUCKETS_SEED_7 = [888868854, 852772099, 621052942, 1064795771, 268081378, 529607661]
GOLDEN_VALUES_SEED_7 = [-1.0, 2.0, -1.0, 1.0, 1.0, 1.0]


def test_buckets_are_frozen():
    line = b"1 |f 13 price:2 |says a_name_that_is_longer_than_sixteen_bytes | bare |f :1 :1"
    assert parse(line, n_bits=18).indices.tolist() == GOLDEN_BUCKETS
    assert parse(line, n_bits=30, seed=7, signed=True).indices.tolist() == GOLDEN_BUCKETS_SEED_7
    assert parse(line, n_bits=30, seed=7, signed=True).values.tolist() == GOLDEN_VALUES_SEED_7


def test_no_text_is_no_row():
    for rows in (parse(), parse(b""), parse(b"", b"\n")):
        assert rows.indptr.tolist() == [0]
        assert (len(rows.indices), len(rows.y), rows.weight) == (0, 0, None)


def test_texts_follow_each_other():
    rows = parse(b"1 |a b\n2 |a b", b"", b"3 4 |a", b"\n4 |\n")
    assert rows.y.tolist() == [1, 2, 3, 4]
    assert rows.weight.tolist() == [1, 1, 4, 1]
    assert rows.rows == [2, 0, 1, 1]
    assert rows.indptr.tolist() == [0, 1, 2, 2, 2]


@pytest.mark.parametrize(
    ("header", "label", "weight"),
    [
        (b"1 |", 1, None),
        (b"1 2 |", 1, [2]),
        (b"1 2 3 |", 1, [2]),
        (b"1 2|", 1, None),  # what touches the bar is a tag
        (b"1 2 3|", 1, [2]),
        (b"1 2 3 4|", 1, [2]),
        (b"1 'two |", 1, None),
        (b"1 'two|", 1, None),
        (b"1 ' |", 1, None),
        (b"1 2 'x:y'z# |", 1, [2]),
        (b" \t1\t2\t|", 1, [2]),
    ],
)
def test_what_stands_before_the_bar(header, label, weight):
    rows = parse(header + b"f a")
    assert (rows.y.tolist(), rows.bad) == ([label], [])
    assert (None if rows.weight is None else rows.weight.tolist()) == weight
    assert rows.indices.tolist() == [bucket("f", "a")]


@pytest.mark.parametrize("header", [b"|", b" |", b"'tag |", b"tag|", b"1|", b"1 |", b"1 2 'tag |"])
def test_labels_may_be_missing_if_they_are_not_wanted(header):
    rows = parse(header + b"f a", with_labels=False)
    assert (rows.y, rows.rows, rows.bad) == (None, [1], [])
    assert (rows.weight is not None) == (b"2" in header)


def test_a_space_behind_the_bar_means_no_namespace():
    rows = parse(b"1 | f a|f a|| f\ta\n")
    assert rows.indices.tolist() == [
        bucket("", "f"),
        bucket("", "a"),
        bucket("f", "a"),
        bucket("", "f"),
        bucket("", "a"),
    ]


def test_namespaces_tell_features_apart_and_may_come_back():
    first, other, again, swapped = parse(b"1 |a b |b b |a:2 b |b a").indices.tolist()
    assert first == again
    assert len({first, other, swapped}) == 3


def test_features_without_a_name_are_counted():
    a, b, c, d = parse(b"1 |f :1 :2 |g :3 |f :4").indices.tolist()
    assert a == d == bucket("f", "")
    assert len({a, b, c}) == 3


def test_signs_are_half_of_each_and_come_from_the_hash():
    line = b"1 |f " + b" ".join(b"%d:2" % i for i in range(1000))
    plain, signed = parse(line), parse(line, signed=True)
    assert plain.indices.tolist() == signed.indices.tolist()
    assert set(plain.values.tolist()) == {2.0}
    assert signed.values.tolist() == [2.0 * place(feature("f", str(i)), 22)[1] for i in range(1000)]
    assert 400 < (signed.values < 0).sum() < 600


def test_any_buffer_will_do():
    text = b"x1 |f a\ny"
    for buffer in (text[1:-1], bytearray(text[1:-1]), memoryview(text)[1:-1], np.frombuffer(text[1:-1], np.uint8)):
        assert parse(buffer).indices.tolist() == [bucket("f", "a")]
    with pytest.raises(TypeError):
        parse("1 |f a")
    for n_bits in (0, 31):
        with pytest.raises(ValueError, match="n_bits must be a whole number from 1 to 30"):
            parse(b"", n_bits=n_bits)


blanks = st.sampled_from([" ", "  ", "\t", " \t "])
names = st.one_of(
    st.integers(0, 10**6).map(str),
    st.text(st.characters(codec="utf-8", exclude_characters=" \t\r\n:|\0"), min_size=1, max_size=40),
)
numbers = st.one_of(
    st.sampled_from(["0", "1", "-1", "2.5", ".5", "5.", "1e-3", "+7", "1e30", "-0"]),
    st.floats(allow_nan=False, allow_infinity=False, width=32).map(repr),
    st.floats(-1e6, 1e6).map(lambda x: f"{x:.17g}"),
)
wrong = st.sampled_from(["nan", "-inf", "x", "", "1x", "1e39", "1e999", "1:2", "'t", "0x1", "1_0", "--1"])
values = st.one_of(st.just(""), numbers.map(":{}".format), st.one_of(numbers, wrong).map(":{}".format))
spaces = st.builds(
    "|{}{}{}".format,
    st.one_of(st.just(""), names),
    values.filter(lambda text: len(text) < 12),
    st.lists(st.builds("{}{}{}".format, blanks, st.one_of(names, st.just("")), values), max_size=6).map("".join),
)
words = st.lists(st.builds("{}{}".format, st.one_of(numbers, numbers, wrong), blanks), max_size=4).map("".join)
tags = st.one_of(st.just(""), names, st.builds("'{}{}".format, names, blanks))
lines = st.builds(
    "{}{}{}{}".format, words, tags, st.lists(spaces, max_size=4).map("".join), st.sampled_from(["", "\r"])
)
good_lines = st.builds(
    "{} {}{}".format,
    numbers,
    st.one_of(st.just(""), st.builds("{} '{} ".format, st.integers(0, 9), names)),
    st.lists(
        st.builds(
            "|{} {}".format,
            names,
            st.lists(st.builds("{}:{}".format, names, numbers), max_size=6).map(" ".join),
        ),
        min_size=1,
        max_size=3,
    ).map(" ".join),
)


@given(
    st.lists(st.one_of(lines, good_lines), max_size=6),
    st.sampled_from([1, 18, 30]),
    st.booleans(),
    st.booleans(),
    st.sampled_from([0, 1, 2**64 - 1]),
    st.sampled_from(["", "\n", "\n   \n\n\n\n\n\n\n\n\n\n\n\n\n\n"]),
)
def test_rows_are_those_of_the_slow_reader(texts, n_bits, signed, with_labels, seed, ending):
    text = "\n".join(texts) + ending
    expected, n_bad = read_slowly(text, n_bits, signed, with_labels, seed)
    rows = parse(text.encode(), n_bits=n_bits, signed=signed, with_labels=with_labels, skip_bad=True, seed=seed)
    assert (rows.rows, rows.n_bad) == ([len(expected)], [n_bad])
    entries = [entry for *_, row in expected for entry in row]
    assert np.diff(rows.indptr).tolist() == [len(row) for *_, row in expected]
    assert rows.indices.tolist() == [column for column, _ in entries]
    assert rows.values.tobytes() == np.array([value for _, value in entries], np.float32).tobytes()
    assert (rows.y is not None) == with_labels
    if with_labels:
        assert rows.y.tobytes() == np.array([label for label, *_ in expected]).tobytes()
    importances = [importance for _, importance, _ in expected]
    assert (importances if rows.weight is None else rows.weight.tolist()) == importances
    assert rows.weight is not None or set(importances) <= {1.0}


SKIP = ' pass on_bad_line="skip"'
CORRECT = "; correct the line or" + SKIP
TAG = "; if it is a tag, put a ' before it; correct the line or" + SKIP
CATEGORY = "; write name=word for a category, correct the line or" + SKIP
BAD_LINES = {
    b"1 3:1 4:1": "the line has no bar '|' before its features" + CORRECT,
    b"spam": "the line has no bar '|' before its features" + CORRECT,
    b"'tag": "the line has no bar '|' before its features" + CORRECT,
    b"1 1 1 1": "the line has no bar '|' before its features" + CORRECT,
    b"|f a": "there is no label before the bar; put a label and a space there, pass with_labels=False if there are "
    "none, or" + SKIP,
    b"'tag |f a": "there is no label before the bar; put a label and a space there, pass with_labels=False if there "
    "are none, or" + SKIP,
    b"tag|f a": "there is no label before the bar; put a label and a space there, pass with_labels=False if there "
    "are none, or" + SKIP,
    b"-1.5|f a": "'-1.5' touches the bar, which makes it a tag, not a label; put a space before the bar, pass "
    "with_labels=False if there are no labels, or" + SKIP,
    b"spam |f a": "the label 'spam' is not a number" + CORRECT,
    b"1:0.5:2 |f a": "the label '1:0.5:2' is not a number" + CORRECT,
    b"1,2 |f a": "the label '1,2' is not a number" + CORRECT,
    b"\xef\xbf |f a": "the label '\\\\xef\\\\xbf' is not a number" + CORRECT,
    b"nan |f a": "the label 'nan' is not finite" + CORRECT,
    b"1e999 |f a": "the label '1e999' is not finite" + CORRECT,
    b"1 zebra |f a": "the importance 'zebra' is not a number" + TAG,
    b"1 inf |f a": "the importance 'inf' is not finite" + CORRECT,
    b"1 -0.5 |f a": "the importance -0.5 is negative" + CORRECT,
    b"1 1 zebra |f a": "the base 'zebra' is not a number" + TAG,
    b"1 1 -Infinity |f a": "the base '-Infinity' is not finite" + CORRECT,
    b"1 1 1 zebra |f a": "'zebra' follows the label, the importance and the base" + TAG,
    b"'tag 1 |f a": 'the tag "\'tag" is not the last word before the bar' + CORRECT,
    b"1 |:2 a": "':2' follows the bar without the name of a namespace" + CORRECT,
    b"1 |f:x a": "the namespace's scale 'x' is not a number" + CORRECT,
    b"1 |f: a": "the namespace's scale '' is not a number" + CORRECT,
    b"1 |f:1e39 a": "the namespace's scale '1e39' is not a finite float32 number" + CORRECT,
    b"1 |f:nan|g a": "the namespace's scale 'nan' is not a finite float32 number" + CORRECT,
    b"1 |f a:paris": "the value 'paris' is not a number" + CATEGORY,
    b"1 |f a: 2": "the value '' is not a number" + CATEGORY,
    b"1 |f a:1:2": "the value '1:2' is not a number" + CATEGORY,
    b"1 |f a:1x|g b": "the value '1x' is not a number" + CATEGORY,
    b"1 |f a:" + b"y" * 99: f"the value '{'y' * 40}...' is not a number" + CATEGORY,
    b"1 |f a:NaN": "the value 'NaN' is not a finite float32 number" + CORRECT,
    b"1 |f a:-inf|": "the value '-inf' is not a finite float32 number" + CORRECT,
    b"1 |f a:3.5e38": "the value '3.5e38' is not a finite float32 number" + CORRECT,
    b"1 |f:1e20 a:1e20": "the value '1e20' is not a finite float32 number" + CORRECT,
    b"1 |f a\x00b": "the line holds binary data; check that the file is Vowpal Wabbit text or" + SKIP,
    b"1 |f\x00": "the line holds binary data; check that the file is Vowpal Wabbit text or" + SKIP,
}


@pytest.mark.parametrize("line", BAD_LINES, ids=repr)
@pytest.mark.parametrize("ending", [b"", b"\n", b"\r\n", b" \n1 |f a\n"])
def test_a_bad_line_is_named_and_explained(tmp_path, line, ending):
    path = write(tmp_path / "data.vw", b"1 |f a\n\n \n" + line + ending)
    with pytest.raises(DataError) as caught:
        list(scan_vw(path))
    assert str(caught.value) == f"{path}, line 4: {BAD_LINES[line]}"
    skipping = scan_vw(path, on_bad_line="skip")
    assert [chunk.y.tolist() for chunk in skipping] == [[1.0] * (1 + (b"1 |f a" in ending))]
    assert skipping.skipped.n == 1
    assert BAD_LINES[line].startswith(skipping.skipped.examples[0].split("line 4: ")[1])


def test_the_first_three_bad_lines_of_each_text_are_kept():
    rows = parse(b"x\ny |\n1 |a\nz\nw\n2 |\n", b"1 |a b:\n", skip_bad=True)
    assert rows.y.tolist() == [1, 2]
    assert (rows.rows, rows.n_bad) == ([2, 0], [4, 1])
    assert [(text, line, token, length) for text, line, token, length, _ in rows.bad] == [
        (0, 0, 0, 1), (0, 2, 2, 1), (0, 11, 11, 1), (1, 0, 7, 0),
    ]  # fmt: skip


def test_a_bad_line_leaves_no_trace():
    rows = parse(b"1 |f a\n2 3 |f b c:x\n3 |f d\n", skip_bad=True)
    assert (rows.indptr.tolist(), rows.weight) == ([0, 1, 2], None)
    assert rows.indices.tolist() == [bucket("f", "a"), bucket("f", "d")]


pieces = st.sampled_from(
    [b"1", b"-1", b" ", b"|", b" |f a", b"a:2.5", b"\n", b"\r\n", b"\t", b"'", b":", b"nan", b"1e5", b"\0", b"\xff"]
)


@given(st.one_of(st.binary(max_size=200), st.lists(pieces, max_size=40).map(b"".join)), st.booleans(), st.booleans())
def test_any_bytes_parse_or_are_reported(text, signed, with_labels):
    rows = parse(text, n_bits=5, signed=signed, with_labels=with_labels, skip_bad=True)
    n_lines = sum(bool(line.strip(b" \t\r")) for line in text.split(b"\n"))
    assert rows.rows[0] + rows.n_bad[0] == n_lines
    assert rows.indptr[-1] == len(rows.indices) == len(rows.values)
    assert np.isfinite(rows.values).all()
    assert ((rows.indices >= 0) & (rows.indices < 32)).all()
    strict = parse(text, n_bits=5, signed=signed, with_labels=with_labels)
    assert sum(strict.n_bad) == min(1, rows.n_bad[0])


def many_lines(n: int) -> bytes:
    return b"".join(b"%d %d 'row%d |f %d:0.5 word%d |g x\n" % (i % 2, 1 + i % 3, i, i, i % 17) for i in range(n))


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_files_are_read_in_blocks_packed_or_not(tmp_path, monkeypatch, pack):
    monkeypatch.setattr(text_files, "BLOCK_BYTES", 1000)
    text = many_lines(500)
    whole = parse(text)
    chunks = list(scan_vw(write(tmp_path / "data.vw", pack(text))))
    assert len(chunks) > 1
    chunk = concatenate(chunks)
    for name in ("indptr", "indices", "values", "y", "weight"):
        assert np.array_equal(getattr(chunk, name), getattr(whole, name)), name
    assert chunk.n_features == 1 << 22


@pytest.mark.parametrize("block_bytes", [200, 1 << 20])
def test_shards_hold_each_row_once(tmp_path, monkeypatch, block_bytes):
    monkeypatch.setattr(text_files, "BLOCK_BYTES", block_bytes)
    source = scan_vw(write(tmp_path / "data.vw", many_lines(500)), n_bits=30)
    shards = source.shards(3)
    rows = [int(i) for shard in shards for chunk in shard for i in chunk.packed().indices[::3]]
    assert sorted(rows) == sorted(bucket("f", str(i), 30) for i in range(500))
    assert all(any(chunk.n_rows for chunk in shard) for shard in shards)


def test_shuffled_rows_keep_their_labels_and_weights(tmp_path):
    source = scan_vw(write(tmp_path / "data.vw", many_lines(500)), n_bits=30).shuffle("rows", seed=1)
    chunk = concatenate(list(source))
    expected = {bucket("f", str(i), 30): (i % 2, 1 + i % 3) for i in range(500)}
    assert [expected[j] for j in chunk.indices[::3]] == list(zip(chunk.y, chunk.weight, strict=True))
    assert chunk.indices[::3].tolist() != list(expected)


def test_standard_input_is_read_after_its_head_was_looked_at(monkeypatch):
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(many_lines(50))))
    assert sum(chunk.n_rows for chunk in scan("-")) == 50


def test_the_recipe_reads_new_data_alike(tmp_path):
    path = write(tmp_path / "data.vw", many_lines(10))
    source = scan_vw(path, n_bits=12, signed=True, seed=3)
    assert source.recipe == {"format": "vw", "n_bits": 12, "signed": True, "seed": 3}
    again = scan(path, **source.recipe)
    assert concatenate(list(again)).indices.tolist() == concatenate(list(source)).indices.tolist()
    assert source.fingerprint() != scan_vw(path, n_bits=12, signed=True, seed=4).fingerprint()
    assert source.fingerprint() != scan_vw(path, n_bits=12, signed=True, seed=3, with_labels=False).fingerprint()
    assert pickle.loads(pickle.dumps(source)).recipe == source.recipe


@pytest.mark.parametrize(
    ("name", "text", "format"),
    [
        ("a.vw", b"anything", "vw"),
        ("a.vw.gz", b"anything", "vw"),
        ("a", b"1 |f a\n", "vw"),
        ("a", b"\n-1.5 2 0.1 'tag |f a\n", "vw"),
        ("a", b"1 2 tag|f a\n", "vw"),
        ("a", b"| a b\n", "vw"),
        ("a", b"'tag |f a\n", "vw"),
        ("a", b"1 1:1 2:1\n1 |f a\n", "libsvm"),
        ("a", b"name|age\nann|7\n", "csv"),
        ("a.svm", b"1 |f a\n", "libsvm"),
    ],
)
def test_the_format_is_told_by_the_name_or_the_first_line(tmp_path, name, text, format):
    assert scan(write(tmp_path / name, text)).recipe["format"] == format


@pytest.mark.parametrize("text", [b"1|2|3\n", b"some words | and more\n"])
def test_not_every_bar_means_vowpal_wabbit(tmp_path, text):
    with pytest.raises(DataError, match=r"the format cannot be detected .* one of libsvm, vw"):
        scan(write(tmp_path / "a", text))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_bits": 0}, "n_bits=0 must be a whole number from 1 to 30"),
        ({"n_bits": 31}, "n_bits=31 must be a whole number from 1 to 30"),
        ({"n_bits": 2.5}, "n_bits=2.5 must be a whole number from 1 to 30"),
        ({"seed": -1}, "seed=-1 must be a whole number from 0 to 18446744073709551615"),
        ({"on_bad_line": "cry"}, "on_bad_line='cry' is unknown; choose one of error, skip"),
    ],
)
def test_impossible_options_are_refused(tmp_path, options, message):
    with pytest.raises(steepest.ParameterError) as caught:
        scan_vw(write(tmp_path / "data.vw", b"1 |f a\n"), **options)
    assert str(caught.value) == message


def test_a_model_heeds_importance(tmp_path):
    lines = b"1 |f a\n0 %d |f a\n1 |f a\n0 |f b\n"
    new = scan_vw(write(tmp_path / "new.vw", b"|f a\n'tag |f b\n"), n_bits=10, with_labels=False)
    for importance, expected in ((1, 1), (9, 0)):
        source = scan_vw(write(tmp_path / "data.vw", lines % importance * 50), n_bits=10)
        model = steepest.LinearClassifier(random_state=0).fit_stream(source)
        assert model.recipe_ == source.recipe
        assert [y for part in model.predict_stream(new) for y in part] == [expected, 0]


def test_the_command_line_reads_it_by_the_models_recipe(tmp_path, capsys):
    data = write(tmp_path / "data.vw", b"1 |f a\n2 3 'tag |f b\n3 |g a\n" * 50)
    new = write(tmp_path / "new.txt", b"|g a\ntag|f b\n'tag |f a\n")
    model = str(tmp_path / "model.steepest")
    assert main(["train", data, "-m", model, "--quiet"]) == 0
    assert main(["predict", model, new]) == 0
    assert [float(word) for word in capsys.readouterr().out.split()] == [3, 2, 1]


# ----------------------------------------------------------------------------------------------------------- names


def named_rows(path: Path, n_rows: int = 3000) -> str:
    """The word `good` in namespace t tells the label, and so does `size` in u, a little."""
    rng = np.random.default_rng(0)
    lines = []
    for i in range(n_rows):
        good = rng.random() < 0.5
        words = " ".join([f"w{j}" for j in rng.integers(0, 300, 8)] + ["good" if good else "bad^er"])
        lines.append(f"{1 if good else -1} '{i}|t {words} |u size:{1.5 if good else 1.0} | plain\n")
    return write(path, "".join(lines).encode())


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("options", [{}, {"epochs": 1}, {"solver": "lbfgs"}, {"n_jobs": 2, "parallel": "mixing"}])
def test_features_have_their_names_back(tmp_path, signed, options):
    path = named_rows(tmp_path / "a.vw")
    model = steepest.LinearClassifier(random_state=0, **options).fit_stream(scan_vw(path, signed=signed, n_bits=14))
    top = model.top_features(3)
    assert top[1.0][0][0] == "t^good"
    assert top[-1.0][0][0] == "t^bad^er"
    model.save(tmp_path / "m.steepest")
    again = steepest.load(tmp_path / "m.steepest")
    assert again.top_features(3) == top
    parts = again.explain("|t good w1 |u size:2 | plain")[1.0]
    assert "t^good" in [part.name for part in parts][:2]  # a size of 2 may count for more
    assert {part.name for part in parts} == {"t^good", "t^w1", "u^size", "plain"}
    assert again.predict(["|t good", "1 'x |t bad^er"]).tolist() == [1.0, -1.0]
    assert again.collision_report().named_weight == pytest.approx(1, abs=1e-6)
    assert pickle.loads(pickle.dumps(model)).top_features(3) == top


def test_names_come_with_each_block_once_and_do_not_change_the_weights(tmp_path, monkeypatch):
    path = named_rows(tmp_path / "a.vw")
    monkeypatch.setattr(text_files, "BLOCK_BYTES", 5000)
    steady = dict(random_state=0, epochs=3, shuffle="blocks")
    monkeypatch.setattr("steepest.data.store.row_store.MOST_ROWS", 100)  # too many to be kept: each epoch parses anew
    model = steepest.LinearClassifier(**steady).fit_stream(scan_vw(path))
    assert model.vw_names_.names_.n_rows == 3000
    X = concatenate(list(scan_vw(path)))
    assert set(model.vw_names_.names_.buckets()) <= set(X.indices)
    assert model.vw_names_.names_.n_names > 0.9 * len(np.unique(X.indices))  # of a sample of the rows
    monkeypatch.setattr("steepest.models.linear.recording_names", lambda source, listener: source)
    deaf = steepest.LinearClassifier(**steady).fit_stream(scan_vw(path))
    np.testing.assert_array_equal(deaf.coef_, model.coef_)
    assert deaf.top_features(1)[1.0][0][0].startswith("feature ")


def test_names_are_those_of_the_lines_that_a_book_samples():
    lines = "".join(f"1 |a f{i}\n" for i in range(5000)).encode()
    book = steepest.features.names.NameBook(10_000)
    book.table.read(parse_vw([lines], 22, False, True, False, 0, [0])[-1], 5000)
    found = {name for names in book.names_of(book.buckets()) for name in names}
    assert {f"a^f{i}" for i in range(256)} <= found
    assert 256 < len(found) < 3000
    assert found <= {f"a^f{i}" for i in range(5000)}
    unrequested = steepest.features.names.NameBook(10)
    unrequested.table.read(parse_vw([lines], 22, False, True, False, 0, [-1])[-1], 5000)
    assert unrequested.n_names == 0


@pytest.mark.parametrize("line", ["no bar", "|a b:x", ""])
def test_a_line_to_explain_must_be_one_row(tmp_path, line):
    model = steepest.LinearClassifier(epochs=1).fit_stream(scan_vw(named_rows(tmp_path / "a.vw", 100)))
    with pytest.raises(DataError, match="is not a row of Vowpal Wabbit text"):
        model.explain(line)


def test_the_command_line_names_and_explains(tmp_path, capsys):
    model = str(tmp_path / "m.steepest")
    assert main(["train", named_rows(tmp_path / "a.vw"), "-m", model, "--quiet"]) == 0
    assert main(["inspect", model, "--top", "2"]) == 0
    shown = capsys.readouterr().out
    assert "t^good" in shown
    assert "of the weight is named" in shown
    assert main(["explain", model, "|t good w1"]) == 0
    assert capsys.readouterr().out.startswith("for 1")


def test_lines_go_on_teaching_a_model_of_lines(tmp_path):
    """They are read as the file was, and not hashed as plain texts."""
    first, second = tmp_path / "a.vw", tmp_path / "b.vw"
    first.write_text("1 |t good film\n-1 |t dull film\n" * 40)
    lines = [f"|t {word} film #{n % 5}" for n, word in enumerate(["good", "dull", "new"] * 20)]
    labels = [1, -1, 1] * 20
    second.write_text("".join(f"{label} {line}\n" for label, line in zip(labels, lines, strict=True)))
    for penalty in ("l2", "l1"):
        model = steepest.LinearClassifier("log", solver="sgd", penalty=penalty, random_state=0).fit_stream(
            scan_vw(first)
        )
        model.save(tmp_path / "m")
        by_lines, by_rows = steepest.load(tmp_path / "m"), steepest.load(tmp_path / "m")
        by_lines.partial_fit(lines, labels)
        (chunk,) = scan_vw(second)
        by_rows.partial_fit(csr_matrix((chunk.values, chunk.indices, chunk.indptr), (60, chunk.n_features)), labels)
        assert by_lines.predict_proba(lines).tolist() == by_rows.predict_proba(lines).tolist()
        assert by_lines.predict(["|t new"]).tolist() == [1]
        assert "t^new" in {name for name, _ in by_lines.top_features(9)[1]}
    with pytest.raises(DataError, match="X has 2 rows but y has 1"):
        by_lines.partial_fit(lines[:2], [1])
    again = by_lines.fit(["a text", "no line"] * 30, [0, 1] * 30)  # a new fit reads texts as texts
    assert again.predict(["text"]).tolist() == [0]
