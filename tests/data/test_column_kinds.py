"""Samples from all over the data, and columns that change their kind on the way."""

import json
import warnings

import numpy as np
import pytest

import steepest as st
from steepest.data.files import blocks as files
from steepest.data.raw import misfits_of, sample_columns, spread

pa = pytest.importorskip("pyarrow", reason="tables are read by pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch):
    monkeypatch.setattr(files, "BLOCK_BYTES", 4096)


def written(path, rows, format):
    if format == "jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    elif format == "parquet":
        parquet.write_table(pa.Table.from_pylist(rows), path, row_group_size=200)
    else:
        lines = [",".join(rows[0]), *(",".join(map(str, row.values())) for row in rows)]
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return str(path)


@pytest.mark.parametrize("format", ["csv", "jsonl", "parquet"])
def test_a_sample_is_not_only_the_first_rows(tmp_path, format):
    rows = [{"price": float(i), "label": i % 2} for i in range(5000)]
    source = st.scan(written(tmp_path / f"sorted.{format}", rows, format))
    columns, y = sample_columns(source)
    prices = np.asarray(columns.column("price"))
    assert prices.min() == 0
    assert prices.max() > 4700
    assert abs(prices.mean() - 2500) < 400
    np.testing.assert_array_equal(y, prices % 2)
    again, _ = sample_columns(source)
    assert again.equals(columns)
    model = st.LinearClassifier(random_state=0).fit_stream(source)
    assert abs(model.hasher_.columns_[0].centre - 2500) < 400


def test_spread_numbers_have_both_ends():
    assert spread(5, 12) == [0, 1, 2, 3, 4]
    assert spread(1000, 4) == [0, 333, 666, 999]
    assert spread(0, 4) == []


@pytest.mark.parametrize("format", ["csv", "jsonl"])
def test_a_column_that_changes_its_kind_in_mid_file_does_not_stop_training(tmp_path, monkeypatch, format):
    monkeypatch.setattr("steepest.data.tables.table_lines.HEAD_BYTES", 4096)
    monkeypatch.setattr("steepest.data.tables.json_lines.HEAD_BYTES", 4096)
    rows = [{"x": "broken" if i % 100 == 7 and i > 2000 else i % 50, "z": i % 3, "label": i % 2} for i in range(4000)]
    source = st.scan(written(tmp_path / f"mid.{format}", rows, format))
    with pytest.warns(st.ColumnWarning, match="20 values do not fit the type of column 'x' and count as missing"):
        model = st.LinearClassifier(random_state=0).fit_stream(source)
    assert misfits_of(source) == {"x": 20}
    assert model.hasher_.bucket("x=<missing>") in model.hasher_.transform([{"x": None, "z": 1}]).indices
    named = st.scan(source.files, numeric=["x", "z"])
    with pytest.raises(st.DataError, match=r"mid\.\w+, line 20\d\d: .*broken.* in column 'x' is not a number"):
        st.LinearClassifier().fit_stream(named)


def test_nan_in_json_is_missing(tmp_path):
    rows = [{"x": float("nan") if i % 5 == 0 else i * 0.1, "label": i % 2} for i in range(500)]
    source = st.scan(written(tmp_path / "nan.jsonl", rows, "jsonl"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = st.LinearClassifier(random_state=0).fit_stream(source)
    assert model.hasher_.columns_[0].missing == pytest.approx(0.2, abs=0.02)


@pytest.mark.parametrize("format", ["jsonl", "parquet"])
def test_lists_are_columns_of_several_values(tmp_path, format):
    rows = [{"tags": [f"t{i % 3}", "all"], "sizes": [i % 4], "label": int(i % 3 == 0)} for i in range(600)]
    source = st.scan(written(tmp_path / f"lists.{format}", rows, format))
    model = st.LinearClassifier(random_state=0).fit_stream(source)
    assert {column.name: column.kind for column in model.hasher_.columns_} == {"tags": "list", "sizes": "list"}
    assert model.predict([{"tags": ["t0", "all"], "sizes": [1]}, {"tags": ["t1"], "sizes": [2]}]).tolist() == [1, 0]


def test_codes_keep_their_leading_zeros(tmp_path):
    rows = [{"zip": f"{i % 40:05}", "n": i % 9, "label": i % 2} for i in range(400)]
    source = st.scan(written(tmp_path / "zip.csv", rows, "csv"))
    columns, _ = sample_columns(source)
    assert columns.column("zip")[1].as_py() == "00001"
    assert str(columns.column("n").type) == "int64"


def test_a_category_never_seen_and_a_column_all_missing(tmp_path):
    rows = [{"c": "uv"[i % 2], "gone": "", "x": i * 0.1, "label": i % 2} for i in range(400)]
    source = st.scan(written(tmp_path / "a.csv", rows, "csv"))
    model = st.LinearClassifier(random_state=0).fit_stream(source)
    gone = next(column for column in model.hasher_.columns_ if column.name == "gone")
    assert (gone.kind, gone.reason) == ("constant", "has no value at all in the sample")
    assert len(model.predict([{"c": "never", "x": 1.0, "gone": "something"}])) == 1


def test_a_model_reads_new_data_by_the_kinds_that_it_has(tmp_path):
    rows = [{"x": i * 0.5, "c": "uvw"[i % 3], "label": i % 2} for i in range(400)]
    model = st.LinearClassifier(random_state=0).fit_stream(st.scan(written(tmp_path / "a.csv", rows, "csv")))
    model.save(tmp_path / "m")
    new = [{"x": "?" if i == 1 else i, "c": i, "label": i % 2} for i in range(50)]
    loaded = st.load(tmp_path / "m")
    found = np.concatenate(list(loaded.predict_stream(st.scan(written(tmp_path / "b.csv", new, "csv")))))
    assert len(found) == 50
    assert loaded.hasher_.columns_ == model.hasher_.columns_
