"""steepest convert: rows survive every way between formats; files appear complete or not at all."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some

import steepest as st
from steepest.cli import main
from steepest.data.chunk import Chunk, concatenate
from steepest.data.write import sparse_lines

FLOATS = some.floats(width=32, allow_nan=False, allow_infinity=False)


def rows_of(path, **options):
    chunk = concatenate(list(st.scan(path, **options)))
    order = np.lexsort((chunk.indices, np.repeat(np.arange(chunk.n_rows), np.diff(chunk.indptr))))
    weight = None if chunk.weight is None else chunk.weight.tolist()
    return chunk.indptr.tolist(), chunk.indices[order].tolist(), chunk.values[order].tolist(), chunk.y.tolist(), weight


@pytest.fixture
def svm(tmp_path):
    rng = np.random.default_rng(0)
    path = tmp_path / "rows.svm"
    with open(path, "w") as out:
        for _ in range(3000):
            columns = np.sort(rng.choice(500, rng.integers(0, 12), replace=False)) + 1
            entries = " ".join(
                f"{j}:{np.float32(x)}" for j, x in zip(columns, rng.normal(size=len(columns)), strict=True)
            )
            out.write(f"{rng.choice([-1, 1, 2.5, 1e-7])} {entries}\n")
    return path


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "mails.jsonl"
    rows = [
        {
            "kind": "spam" if k % 3 else "ham",
            "text": f"wörd{k % 7} and\tmore {k}",
            "user": k % 5,
            "size": k / 4,
            "w": 0.5 + k,
        }
        for k in range(2000)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def convert(*arguments):
    assert main(["convert", *map(str, arguments)]) == 0


@pytest.mark.parametrize("way", ["b.parquet", "b.arrow", "b.cache", "b.svm.gz", "b.svm.zst", "b.svm.bz2"])
def test_sparse_rows_come_back_the_same(svm, tmp_path, way, capsys):
    convert(svm, tmp_path / way)
    assert "3,000 rows, " in capsys.readouterr().err
    assert rows_of(tmp_path / way) == rows_of(svm)
    convert(tmp_path / way, tmp_path / "back.svm")
    assert rows_of(tmp_path / "back.svm") == rows_of(svm)


@pytest.mark.parametrize("way", ["b.parquet", "b.arrow"])
def test_a_model_of_lines_predicts_the_rows_converted_to_columns(svm, tmp_path, way, capsys):
    convert(svm, tmp_path / way, "--quiet")
    assert main(["train", str(svm), "-m", str(tmp_path / "m"), "--quiet"]) == 0
    predicted = []
    for data in (svm, tmp_path / way):
        capsys.readouterr()
        assert main(["predict", str(tmp_path / "m"), str(data)]) == 0
        predicted.append(capsys.readouterr().out)
    assert predicted[0] == predicted[1]
    assert predicted[0].count("\n") == 3000


def test_vw_keeps_labels_weights_and_values(svm, tmp_path):
    vw = tmp_path / "a.vw"
    vw.write_text("1 2.5 | a:0.5 b\n-1 | b:3\n0.25 1 | c\n")
    convert(vw, tmp_path / "b.vw", "--quiet")
    before, after = rows_of(vw), rows_of(tmp_path / "b.vw")
    assert (before[0], before[3], before[4]) == (after[0], after[3], after[4])
    assert sorted(before[2]) == sorted(after[2])
    convert(vw, tmp_path / "b.parquet", "--quiet")
    assert rows_of(tmp_path / "b.parquet") == before


def test_weights_that_libsvm_cannot_hold_are_told(tmp_path, capsys):
    (tmp_path / "a.vw").write_text("1 2.5 | a\n")
    convert(tmp_path / "a.vw", tmp_path / "a.svm")
    assert "libsvm files cannot store row weights, so they were left out" in capsys.readouterr().err


@given(rows=some.lists(some.tuples(FLOATS, some.dictionaries(some.integers(0, 2**30), FLOATS, max_size=5)), max_size=8))
def test_every_number_is_written_so_that_it_reads_back(tmp_path_factory, rows):
    path = tmp_path_factory.mktemp("numbers") / "a.svm"
    indptr = np.cumsum([0, *(len(row) for _, row in rows)])
    indices = np.array([j for _, row in rows for j in row], np.int32)
    values = np.array([x for _, row in rows for x in row.values()], np.float32)
    y = np.array([label for label, _ in rows], np.float64)
    text = sparse_lines(Chunk(indptr, indices, values, 2**30 + 1, y), "libsvm")
    assert text.count(b"\n") == len(rows)
    if not rows:
        return
    path.write_bytes(text)
    expected = [sorted((j, float(np.float32(x))) for j, x in row.items()) for _, row in rows]
    found = rows_of(path, zero_based=False)
    pairs = list(zip(found[1], found[2], strict=True))
    assert [pairs[a:b] for a, b in zip(found[0][:-1], found[0][1:], strict=True)] == expected
    assert found[3] == y.tolist()


@pytest.mark.parametrize("way", ["b.csv", "b.tsv.gz", "b.jsonl.bz2", "b.parquet", "b.arrow"])
def test_raw_rows_stay_raw_and_come_back_the_same(table, tmp_path, way):
    roles = {"label": "kind", "weight": "w"}
    flags = ["--label", "kind", "--weight", "w", "--quiet"]
    convert(table, tmp_path / way, *flags)

    def hashed(path):
        hasher = st.Hasher(n_bits=16)
        source = st.scan(path, **roles).with_encoder(lambda batch: hasher.to_chunk(batch.columns))
        chunk = concatenate(list(source))
        return [chunk.indptr, chunk.indices, chunk.values, chunk.y, chunk.weight], {
            column.name: column.kind for column in hasher.columns_
        }

    (before, kinds), (after, other_kinds) = hashed(table), hashed(tmp_path / way)
    assert kinds == other_kinds
    for a, b in zip(before, after, strict=True):
        np.testing.assert_array_equal(a, b)


def test_texts_go_through_every_raw_format(tmp_path):
    start = tmp_path / "a.txt"
    start.write_text('ham\tsee you, "friend"\nspam\tfree money\n' * 300, encoding="utf-8")
    path = start
    for name in ("b.csv", "c.tsv", "d.jsonl", "e.parquet", "f.arrow", "g.txt"):
        convert(path, tmp_path / name, "--quiet")
        path = tmp_path / name
    assert path.read_bytes() == start.read_bytes()


def test_several_labels_stay_several(tmp_path):
    start = tmp_path / "a.txt"
    start.write_text("__label__x __label__y one two\n__label__y three\n" * 50)
    convert(start, tmp_path / "b.jsonl", "--quiet")
    assert json.loads((tmp_path / "b.jsonl").read_text().splitlines()[0]) == {"label": ["x", "y"], "text": "one two"}
    convert(tmp_path / "b.jsonl", tmp_path / "c.txt", "--quiet")
    assert (tmp_path / "c.txt").read_text() == start.read_text()


def test_raw_rows_are_hashed_on_their_way_to_libsvm(table, tmp_path, capsys):
    convert(table, tmp_path / "a.svm", "--label", "kind", "--text", "text", "--bits", "14", "--ngrams", "1,2")
    assert "labels became numbers: ham=0, spam=1; fix them with --labels" in capsys.readouterr().err
    source = st.scan(table, label="kind", text="text")
    hasher = st.Hasher(14, ngrams=(1, 2), text="text")
    expected = concatenate(list(source.with_encoder(lambda batch: hasher.to_chunk(batch.columns))))
    found = concatenate(list(st.scan(tmp_path / "a.svm", zero_based=False, n_features=1 << 14)))
    np.testing.assert_array_equal(found.indptr, expected.indptr)
    assert sorted(zip(found.indices, found.values, strict=True)) == sorted(
        zip(expected.indices, expected.values, strict=True)
    )
    assert found.y.tolist() == [float(label == "spam") for label in expected.y]
    convert(table, tmp_path / "b.svm", "--label", "kind", "--text", "text", "--labels", "spam,ham", "--quiet")
    assert next(iter(st.scan(tmp_path / "b.svm"))).y[:2].tolist() == [1.0, 0.0]


def test_a_model_from_a_converted_cache_is_that_from_the_raw_file(table, tmp_path):
    flags = ["--label", "kind", "--text", "text", "--ngrams", "1,2", "--bits", "15"]
    convert(table, tmp_path / "a.cache", *flags, "--quiet")
    assert main(["train", str(tmp_path / "a.cache"), "-m", str(tmp_path / "m")]) == 0
    assert main(["train", str(table), "-m", str(tmp_path / "n"), *flags, "--cache", str(tmp_path / "b.cache")]) == 0
    a, b = st.load(tmp_path / "m"), st.load(tmp_path / "n")
    np.testing.assert_array_equal(a.coef_, b.coef_)
    assert a.predict(["wörd1 and more"]) == b.predict(["wörd1 and more"])
    assert a.top_features(3) == b.top_features(3)
    assert main(["evaluate", str(tmp_path / "m"), str(table)]) == 0
    assert main(["evaluate", str(tmp_path / "m"), str(tmp_path / "a.cache")]) == 0


def test_a_cache_is_known_by_its_first_bytes(svm, tmp_path):
    convert(svm, tmp_path / "a.cache", "--quiet")
    (tmp_path / "a.cache").rename(tmp_path / "renamed.csv")
    expected = rows_of(svm)
    assert rows_of(tmp_path / "renamed.csv") == expected
    assert rows_of(tmp_path / "renamed.csv", format="cache") == expected
    assert rows_of(tmp_path / "renamed.csv", format="libsvm", zero_based=True) == expected
    assert next(iter(st.scan(tmp_path / "renamed.csv", with_labels=False))).y is None
    assert sum(chunk.n_rows for chunk in st.scan(tmp_path / "renamed.csv").limit(7)) == 7
    svm.unlink()  # it stands by itself
    assert rows_of(tmp_path / "renamed.csv") == expected


def test_a_damaged_cache_file_is_refused(svm, tmp_path):
    convert(svm, tmp_path / "a.cache", "--quiet")
    content = bytearray((tmp_path / "a.cache").read_bytes())
    content[100] ^= 1
    (tmp_path / "b.cache").write_bytes(content)
    with pytest.raises(st.DataError, match=r"b.cache is damaged .*; build it again"):
        st.scan(tmp_path / "b.cache")
    with pytest.raises(st.DataError, match="2 caches are given"):
        st.scan([tmp_path / "a.cache", tmp_path / "b.cache"])


def test_a_hasher_with_other_parameters_is_refused(table, tmp_path):
    convert(table, tmp_path / "a.cache", "--label", "kind", "--text", "text", "--bits", "15", "--quiet")
    with pytest.raises(st.DataError, match="the cache was made by Hasher"):
        st.LinearClassifier(hasher=st.Hasher(n_bits=16)).fit_stream(st.scan(tmp_path / "a.cache"))


def test_limit_standard_output_and_no_labels(table, svm, tmp_path, capfdbinary):
    convert(svm, "-", "--to", "libsvm", "--limit", "2", "--quiet")
    assert capfdbinary.readouterr().out.count(b"\n") == 2
    convert(table, tmp_path / "a.csv", "--label", "kind", "--text", "text", "--limit", "1", "--no-labels", "--quiet")
    assert (tmp_path / "a.csv").read_text() == '"text"\n"wörd0 and\tmore 0"\n'


def test_standard_input_is_converted_as_it_comes(svm, tmp_path):
    def piped(text, *arguments):
        command = [sys.executable, "-m", "steepest", "convert", "-", *map(str, arguments)]
        return subprocess.run(command, input=text, capture_output=True, check=False)

    done = piped(svm.read_bytes(), "-", "--to", "libsvm", "--quiet")
    assert done.stderr == b""
    (tmp_path / "b.svm").write_bytes(done.stdout)
    assert rows_of(tmp_path / "b.svm") == rows_of(svm)
    texts = b"ham\tsee you\nspam\tfree money\n"
    assert (
        b"the label 'ham' has no number; name all labels" in piped(texts, "-", "--to", "vw", "--format", "txt").stderr
    )
    done = piped(texts, "-", "--to", "vw", "--format", "txt", "--labels", "ham,spam", "--quiet")
    assert [line.split()[0] for line in done.stdout.splitlines()] == [b"0", b"1"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["rows.svm", "out.csv"], "these rows are sparse, without columns or words, so they cannot become csv"),
        (["rows.svm", "out.xyz"], "the format of out.xyz cannot be detected from its name; give --to libsvm|"),
        (["rows.svm", "out.parquet.gz"], "parquet is binary and read in pieces, so out.parquet.gz cannot hold it"),
        (["rows.svm", "rows.svm"], "rows.svm is the data itself; choose another name"),
        (["rows.svm", "nowhere/out.vw"], "does not exist; make it first"),
        (["mails.jsonl", "out.txt", "--label", "kind"], "holds one text per row, but here are the columns"),
        (["mails.jsonl", "out.svm", "--label", "kind", "--labels", "ham"], "the label 'spam' has no number"),
        (["missing.svm", "out.vw"], "missing.svm does not exist"),
    ],
)
def test_refusals_are_one_sentence_and_leave_nothing(svm, table, tmp_path, monkeypatch, capsys, arguments, message):
    monkeypatch.chdir(tmp_path)
    before = {name: os.path.getsize(name) for name in os.listdir()}
    assert main(["convert", *arguments]) == 2
    said = capsys.readouterr().err
    assert message in said
    assert said.count("\n") == 1
    assert {name: os.path.getsize(name) for name in os.listdir()} == before


def test_a_fault_in_the_middle_leaves_the_old_file(tmp_path):
    (tmp_path / "bad.svm").write_text("1 1:1\n" * 300_000 + "1 1:x\n")
    (tmp_path / "out.vw").write_text("mine")
    assert main(["convert", str(tmp_path / "bad.svm"), str(tmp_path / "out.vw")]) == 2
    assert (tmp_path / "out.vw").read_text() == "mine"
    assert sorted(os.listdir(tmp_path)) == ["bad.svm", "out.vw"]


def test_packed_output_is_the_same_bytes_each_time(svm, tmp_path):
    for name in ("a.vw.gz", "b.vw.gz"):
        convert(svm, tmp_path / name, "--quiet")
    assert (tmp_path / "a.vw.gz").read_bytes() == (tmp_path / "b.vw.gz").read_bytes()
    assert gzip.decompress((tmp_path / "a.vw.gz").read_bytes()).count(b"\n") == 3000


MEASURE = """
import sys
from steepest.cli import main
assert main(["convert", *sys.argv[1:], "--quiet"]) == 0
print(open("/proc/self/status").read().split("VmHWM:")[1].split()[0])
"""


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="memory is read from /proc")
@pytest.mark.parametrize("out", ["out.vw", "out.parquet"])
def test_memory_does_not_grow_with_the_rows(tmp_path, out):
    def peak(n_rows):
        path = tmp_path / f"{n_rows}.svm"
        path.write_text("1 " + " ".join(f"{j}:0.5" for j in range(1, 30)) + "\n")
        path.write_text(path.read_text() * n_rows)
        done = subprocess.run(
            [sys.executable, "-c", MEASURE, str(path), str(tmp_path / out)], capture_output=True, text=True, check=True
        )
        return int(done.stdout)

    few, many = peak(80_000), peak(400_000)
    assert many < 1.25 * few
