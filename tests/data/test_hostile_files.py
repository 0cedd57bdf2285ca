"""Files that a careless or hostile program wrote: one sentence and status 2 in the shell, never a fault of ours."""

from __future__ import annotations

import csv
import datetime
import os
import random
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import pytest

import steepest as st
from steepest.cli import main
from steepest.data.tables import columnar, table_lines

N = 30
LABELS = pa.array(["yes", "no"] * (N // 2))
NUMBERS = pa.array(np.arange(N) / 3.0)
DAY = pa.array([datetime.date(2020, 1, 1)] * N)
STRUCT = pa.array([{"a": 1}] * N)
BEYOND_CALENDARS = pa.array([2**63 - 1] * N, pa.timestamp("s"))
NO_ZONE = pa.array([0] * N, pa.timestamp("s", "Nowhere/X"))


def refused(capsys, *command):
    """The sentence that refuses a command."""
    assert main([str(part) for part in command]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("steepest: ")
    assert said.err.count("\n") == 1
    assert len(said.err) < 1000
    return said.err


TABLES = {
    "a time beyond calendars": ({"x": BEYOND_CALENDARS, "label": LABELS}, "holds a value that cannot be read"),
    "a zone that does not exist": ({"x": NO_ZONE, "label": LABELS}, "holds a value that cannot be read"),
    "labels of no zone": ({"x": NUMBERS, "label": NO_ZONE}, "cannot be used"),
    "labels that are objects": ({"x": NUMBERS, "label": STRUCT}, "the label in column 'label' holds struct"),
    "labels that are bytes": ({"x": NUMBERS, "label": pa.array([b"\xff"] * N)}, "cannot be used"),
    "weights that are days": ({"x": NUMBERS, "label": LABELS, "w": DAY}, "the weight in column 'w'"),
    "weights that are objects": ({"x": NUMBERS, "label": LABELS, "w": STRUCT}, "the weight in column 'w'"),
    "weights that are words": ({"x": NUMBERS, "label": LABELS, "w": LABELS}, "the weight in column 'w'"),
}


@pytest.mark.parametrize("what", TABLES)
def test_types_that_have_no_use_are_refused_by_a_sentence(what, tmp_path, capsys):
    columns, sentence = TABLES[what]
    path = tmp_path / "rows.arrow"
    pa.feather.write_feather(pa.table(columns), path, compression="uncompressed")
    weight = ["--weight", "w"] if "w" in columns else []
    assert sentence in refused(capsys, "train", path, "-m", tmp_path / "m", *weight)


INDICES = [[0, 1], [2]] * (N // 2)
VALUES = pa.array([[1.0, 2.0], [1.0]] * (N // 2))
SPARSE = {
    "an index beyond the width": (pa.array(INDICES), VALUES, b"2", "from 0 to 1"),
    "an index that wraps around": (pa.array([[2**32, 1], [2]] * (N // 2)), VALUES, None, "from 0 to 2147483646"),
    "an index that is missing": (pa.array([[None, 1], [2]] * (N // 2)), VALUES, None, "whole numbers"),
    "an index below zero": (pa.array([[-1, 1], [2]] * (N // 2)), VALUES, None, "whole numbers"),
    "a width that is a word": (pa.array(INDICES), VALUES, b"x", "marked as a file of sparse rows"),
    "a width below zero": (pa.array(INDICES), VALUES, b"-1", "marked as a file of sparse rows"),
    "a width beyond memory": (pa.array(INDICES), VALUES, b"99999999999999", "marked as a file of sparse rows"),
    "indices that are no lists": (NUMBERS, VALUES, b"9", "marked as a file of sparse rows"),
    "values that are words": (pa.array(INDICES), pa.array([["a", "b"], ["c"]] * (N // 2)), b"9", "marked as a file"),
    "values beyond float32": (pa.array(INDICES), pa.array([[1e300, 2.0], [1.0]] * (N // 2)), b"9", "beyond float32"),
}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("what", SPARSE)
def test_forged_files_of_sparse_rows_are_refused_by_a_sentence(what, tmp_path, capsys):
    indices, values, width, sentence = SPARSE[what]
    mark = {b"steepest.rows": b"sparse"} | ({} if width is None else {b"steepest.n_features": width})
    table = pa.table({"indices": indices, "values": values, "label": LABELS}).replace_schema_metadata(mark)
    path = tmp_path / "rows.parquet"
    pa.parquet.write_table(table, path)
    assert sentence in refused(capsys, "train", path, "-m", tmp_path / "m")


def test_columns_that_have_no_text_are_not_written_as_csv(tmp_path, capsys):
    path = tmp_path / "rows.parquet"
    pa.parquet.write_table(pa.table({"x": pa.array([b"\xff"] * N), "label": LABELS}), path)
    assert "write parquet or arrow" in refused(capsys, "convert", path, tmp_path / "rows.csv")
    assert not (tmp_path / "rows.csv").exists()


@pytest.mark.parametrize("verb", ["train", "evaluate"])
def test_a_json_label_that_is_an_object_is_refused(verb, tmp_path, capsys):
    good, bad = tmp_path / "good.jsonl", tmp_path / "bad.jsonl"
    good.write_text('{"x": 1, "label": "a"}\n{"x": 2, "label": "b"}\n' * 9)
    bad.write_text('{"x": 1, "label": {"a": 1}}\n' + good.read_text())
    st.LinearClassifier(random_state=0).fit_stream(st.scan(good)).save(tmp_path / "m")
    command = (
        ["train", bad, "-m", tmp_path / "n", "--label", "label"] if verb == "train" else [verb, tmp_path / "m", bad]
    )
    assert "the label in column 'label' is an object" in refused(capsys, *command)


def test_a_thread_that_arrow_cannot_start_is_no_fault_of_the_file(tmp_path, monkeypatch, capsys):
    path = tmp_path / "rows.parquet"
    pa.parquet.write_table(pa.table({"x": NUMBERS, "label": LABELS}), path)

    def fail(*_):
        raise pa.ArrowException("Unknown error: Failed to launch worker thread")

    monkeypatch.setattr(columnar.ParquetFiles, "pieces", fail)
    assert main(["train", str(path), "-m", str(tmp_path / "m")]) == 1
    assert "Failed to launch worker thread); raise the limits of this process" in capsys.readouterr().err


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes with names")
def test_a_file_that_becomes_a_pipe_is_not_waited_for(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("x,label\n" + "1,a\n2,b\n" * 9)
    source = st.scan(path)
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(st.DataError, match="it has no rows"):
        st.LinearClassifier().fit_stream(source)


def test_half_of_a_letter_in_json_is_a_bad_line(tmp_path, capsys):
    path = tmp_path / "rows.jsonl"
    good = '{"x": "u", "label": "a"}\n{"x": "\\ud83d\\ude00", "label": "b"}\n' * 9
    path.write_text(good + '{"x": "\\ud800", "label": "a"}\n')
    assert "line 19: the line is not JSON (a \\u escape is half of a letter)" in refused(
        capsys, "train", path, "-m", tmp_path / "m"
    )
    model = st.LinearClassifier(random_state=0).fit_stream(st.scan(path, on_bad_line="skip"))
    assert model.classes_.tolist() == ["a", "b"]


def test_a_first_line_of_any_length_is_read(tmp_path, capsys):
    path = tmp_path / "rows.csv"
    path.write_text("a" * 300_000 + ",label\n" + "1,x\n2,y\n" * 9)
    assert main(["train", str(path), "-m", str(tmp_path / "m"), "--quiet"]) == 0
    path.write_bytes(bytes(1 << 20))
    assert "none is called label" in refused(capsys, "train", path, "-m", tmp_path / "m")


def test_a_quote_that_is_never_closed_is_found_in_a_few_passes(tmp_path, capsys, monkeypatch):
    passes = []

    def reader(*arguments, **options):
        passes.append(arguments)
        return csv.reader(*arguments, **options)

    monkeypatch.setattr(table_lines, "csv", SimpleNamespace(reader=reader, field_size_limit=csv.field_size_limit))
    path = tmp_path / "rows.csv"
    path.write_text('a,label\n"x,1\n' + "b,1\n" * 2000)
    assert "line 2: a quote is opened and never closed" in refused(capsys, "train", path, "-m", tmp_path / "m")
    assert len(passes) < 20  # not one per line


def test_a_label_as_long_as_a_page_is_shortened_in_the_message(tmp_path, capsys):
    path = tmp_path / "rows.csv"
    path.write_text("x,label\n" + "1,a\n2,b\n" * 9)
    assert main(["train", str(path), "-m", str(tmp_path / "m"), "--quiet"]) == 0
    path.write_text("x,label\n1," + "z" * 100_000 + "\n")
    assert "zzz... was never seen" in refused(capsys, "evaluate", tmp_path / "m", path)


def test_arrow_files_with_changed_bytes_are_read_or_refused_by_a_sentence(tmp_path, capsys):
    path, rng = tmp_path / "rows.arrow", random.Random(0)
    table = pa.table({"x": NUMBERS, "s": pa.array(["a", "bb", None] * (N // 3)), "label": LABELS})
    pa.feather.write_feather(table, path, compression="uncompressed")
    whole, ends = path.read_bytes(), {0: 0, 2: 0}
    for _ in range(150):
        damaged = bytearray(whole)
        for _ in range(rng.choice((1, 3))):
            damaged[rng.randrange(len(damaged))] = rng.choice((0, 127, 128, 255))
        path.write_bytes(damaged)
        ends[main(["train", str(path), "-m", str(tmp_path / "m"), "--quiet", "--label", "label"])] += 1
        assert "bug in steepest" not in capsys.readouterr().err
    assert min(ends.values()) > 10
