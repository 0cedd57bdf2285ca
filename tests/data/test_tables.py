"""Tables from files: the rows a hasher would see in memory, whatever the format, blocks, packing and bad lines."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import re
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from steepest.data.chunk import Chunk, concatenate
from steepest.data.files import blocks as files
from steepest.data.readers import lines
from steepest.data.scan import scan
from steepest.data.source import Order
from steepest.data.tables import columnar, json_lines, table_lines
from steepest.data.tables.columnar import scan_arrow, scan_parquet
from steepest.data.tables.json_lines import scan_jsonl
from steepest.data.tables.table_lines import scan_csv
from steepest.errors import DataError, ParameterError
from steepest.features.hasher import Hasher

pa = pytest.importorskip("pyarrow", reason="tables are read by pyarrow")
import pyarrow.csv  # noqa: E402
import pyarrow.feather  # noqa: E402
import pyarrow.parquet  # noqa: E402

N = 400
TABLE = pa.table(
    {
        "review": [f"good thing number{i} é" if i % 7 else None for i in range(N)],
        "shop": [("nord", "süd", "ost")[i % 3] for i in range(N)],
        "price": [i / 4 if i % 5 else None for i in range(N)],
        "stock": list(range(N)),
        "label": [("no", "yes")[i % 2] for i in range(N)],
        "w": [1.0 + i % 3 for i in range(N)],
    }
)
FEATURES = TABLE.drop_columns(["label", "w"])
ORDER = Order()


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch):
    monkeypatch.setattr(files, "BLOCK_BYTES", 512)
    monkeypatch.setattr(lines, "SHARD_BLOCKS", 1)
    monkeypatch.setattr(columnar, "BATCH_ROWS", 64)


@pytest.fixture(autouse=True)
def _no_thread_is_left():
    yield
    assert not [thread for thread in threading.enumerate() if thread.name == "steepest-reader"]


def csv_bytes(table=TABLE, delimiter=",") -> bytes:
    out = io.BytesIO()
    pyarrow.csv.write_csv(table, out, pyarrow.csv.WriteOptions(delimiter=delimiter, quoting_style="needed"))
    return out.getvalue()


def jsonl_bytes(table=TABLE) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in table.to_pylist())


def write(path: Path, data: bytes) -> str:
    path.write_bytes(data)
    return str(path)


def make(folder: Path, format: str, table=TABLE) -> str:
    path = folder / f"rows.{format}"
    if format == "parquet":
        pyarrow.parquet.write_table(table, path, row_group_size=150)
    elif format == "arrow":
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table, max_chunksize=150)
    elif format == "feather":
        pyarrow.feather.write_feather(table, path, chunksize=150)
    else:
        path.write_bytes(
            jsonl_bytes(table) if format == "jsonl" else csv_bytes(table, "\t" if format == "tsv" else ",")
        )
    return str(path)


FORMATS = ["csv", "tsv", "jsonl", "parquet", "arrow", "feather"]


def hashed(source, sample=None, **options):
    hasher = Hasher(n_bits=14, **options)
    if sample is not None:
        hasher.survey(sample)
    return source.with_encoder(lambda batch: hasher.to_chunk(batch.columns, learn=hasher.learns))


def triples(chunk: Chunk):
    return chunk.indptr.tolist(), chunk.indices.tolist(), chunk.values.tolist()


def targets(source) -> list:
    return [y for batch in source.batches(ORDER, 0) for y in batch.y.tolist()]


def column(source, name) -> list:
    return [value for batch in source.batches(ORDER, 0) for value in batch.columns.column(name).to_pylist()]


@pytest.mark.parametrize("format", FORMATS)
def test_chunks_equal_hashing_the_whole_table(tmp_path, format):
    chunks = list(hashed(scan(make(tmp_path, format), weight="w"), FEATURES))
    assert len(chunks) > 3
    joined, whole = concatenate(chunks), Hasher(n_bits=14).to_chunk(FEATURES, learn=True)
    assert triples(joined) == triples(whole)
    assert joined.y.tolist() == TABLE["label"].to_pylist()
    assert joined.weight.tolist() == TABLE["w"].to_pylist()


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("size", [40, 3000, 1 << 20])
def test_rows_do_not_depend_on_the_size_of_blocks(tmp_path, monkeypatch, format, size):
    monkeypatch.setattr(files, "BLOCK_BYTES", size)
    monkeypatch.setattr(columnar, "BATCH_ROWS", max(20, size // 40))
    source = hashed(scan(make(tmp_path, format), weight="w"), FEATURES)
    assert triples(concatenate(list(source))) == triples(Hasher(n_bits=14).to_chunk(FEATURES, learn=True))


@pytest.mark.parametrize("format", FORMATS)
def test_order_splits_and_row_numbers(tmp_path, format):
    source = hashed(scan(make(tmp_path, format), label="stock"))

    def numbered(order, epoch):
        return [
            (int(y), int(i)) for c in source.read(order, epoch) for y, i in zip(c.visited(c.y), c.row_ids, strict=True)
        ]

    plain, first, second = numbered(ORDER, 0), numbered(Order("rows", 1), 0), numbered(Order("rows", 1), 1)
    assert [y for y, _ in plain] == list(range(N))
    assert sorted(first) == sorted(second) == plain
    assert first != second
    assert len({i for _, i in plain}) == N
    assert sum(c.n_rows for part in source.shards(3) for c in part) == N
    assert sum(c.n_rows for part in source.holdout(0.25) for c in part) == N
    assert [y for c in source.limit(9) for y in c.y.tolist()] == list(range(9))


@pytest.mark.parametrize("format", FORMATS)
def test_a_recipe_opens_data_without_labels(tmp_path, format):
    source = scan(make(tmp_path, format), weight="w")
    list(source.batches(ORDER, 0))
    recipe = json.loads(json.dumps(source.recipe))
    assert recipe["label"] == "label"
    assert sum(b.n_rows for b in scan(source.files, **recipe).batches(ORDER, 0)) == N
    (tmp_path / "new").mkdir()
    new = scan(make(tmp_path / "new", format, FEATURES), **recipe, with_labels=False)
    batches = list(new.batches(ORDER, 0))
    assert all(batch.y is None and batch.weight is None for batch in batches)
    assert batches[0].columns.column_names == FEATURES.column_names
    same = scan(source.files, **recipe, with_labels=False)
    assert next(same.batches(ORDER, 0)).columns.column_names == FEATURES.column_names


@pytest.mark.parametrize("format", FORMATS)
def test_roles_restrict_and_type_columns(tmp_path, format):
    source = scan(make(tmp_path, format), text="review", categorical=["stock"], label="label")
    assert next(source.batches(ORDER, 0)).columns.column_names == ["review", "stock"]
    with pytest.raises(DataError, match=r"rows\.\w+ has no column 'colour'; its columns are 'review', 'shop'"):
        targets(scan(make(tmp_path, format), categorical="colour"))
    with pytest.raises(
        DataError, match=r"which column is the label\? none is called .*'review'.* or with_labels=False"
    ):
        targets(scan(make(tmp_path, format, FEATURES)))
    with pytest.raises(ParameterError, match="the column 'shop' has more than one role"):
        scan(make(tmp_path, format), text="shop", categorical="shop")


def test_categorical_columns_keep_their_zeros(tmp_path):
    source = scan_csv(write(tmp_path / "a.csv", b"zip,y\n00123,1\n4567,0\n"), categorical="zip")
    assert column(source, "zip") == ["00123", "4567"]
    assert targets(source) == [1.0, 0.0]


def test_labels_keep_their_type(tmp_path):
    for values, wanted in [("TRUE FALSE", ["TRUE", "FALSE"]), ("3 4.5", [3, 4.5]), ("a 7b", ["a", "7b"])]:
        first, second = values.split()
        path = write(tmp_path / "a.csv", f"x,class\n1,{first}\n2,{second}\n".encode())
        assert targets(scan_csv(path)) == wanted
    table = pa.table({"x": [1, 2], "label": pa.array(["a", "b"]).dictionary_encode()})
    assert targets(scan_parquet(make(tmp_path, "parquet", table))) == ["a", "b"]


@pytest.mark.parametrize("format", ["csv", "jsonl", "parquet"])
def test_truth_values_are_classes_named_as_they_are_written(tmp_path, format):
    truths, path = [True, False, False, True], tmp_path / f"rows.{format}"
    if format == "csv":
        path.write_text("x,churned\n" + "".join(f"{i},{truth}\n" for i, truth in enumerate(truths)))
    elif format == "jsonl":
        path.write_text("".join(json.dumps({"x": i, "churned": truth}) + "\n" for i, truth in enumerate(truths)))
    else:
        pa.parquet.write_table(pa.table({"x": range(4), "churned": truths}), path)
    names = ["False", "True"] if format == "csv" else ["false", "true"]
    assert targets(scan(path, label="churned")) == [names[truth] for truth in truths]


@pytest.mark.parametrize("format", ["csv", "jsonl"])
def test_packed_files_patterns_and_standard_input(tmp_path, monkeypatch, format):
    import zstandard

    data = Path(make(tmp_path, format)).read_bytes()
    plain = targets(scan(str(tmp_path / f"rows.{format}")))
    packers = {"gz": gzip.compress, "bz2": bz2.compress, "zst": zstandard.ZstdCompressor().compress}
    for ending, pack in packers.items():
        assert targets(scan(write(tmp_path / f"packed.{format}.{ending}", pack(data)))) == plain
    assert targets(scan(str(tmp_path / f"*.{format}*"))) == plain * 4
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
    assert targets(scan("-", format)) == plain
    cut = write(tmp_path / f"cut.{format}.gz", gzip.compress(data)[:-200])
    with pytest.raises(DataError, match=r"cut\.\w+\.gz is cut short after about line"):
        targets(scan(cut))


def test_a_column_may_change_from_whole_to_fractions(tmp_path):
    path = write(tmp_path / "a.csv", b"x,y\n" + b"1,0\n" * 300 + b"2.5,1\n")
    assert column(scan_csv(path), "x")[-2:] == [1.0, 2.5]
    rows = b'{"x": 1, "y": 0}\n' * 300 + b'{"x": 2.5, "y": 1}\n'
    assert column(scan_jsonl(write(tmp_path / "a.jsonl", rows)), "x")[-2:] == [1.0, 2.5]


CSV = b"name,x,w,y\n" + b"ann,1,1,0\n" * 200
BAD_CSV = [
    (b"bob,many,1,1\n", "'many' in column 'x' is not a number"),
    (b"bob,1_0,1,1\n", r"the line cannot be read \(In CSV column .*\)"),
    (b"bob,2,1\n", "the row has 3 values instead of 4"),
    (b"bob,2,1,1,5\n", "the row has 5 values instead of 4"),
    (b"b\xffb,2,1,1\n", r"the value in column 'name' is not UTF-8 \(iconv .* converts a file\)"),
    (b"bob,2,1,\n", "the label in column 'y' is missing"),
    (b"bob,2,1,inf\n", "the label inf in column 'y' is not finite"),
    (b"bob,2,-1,1\n", "the weight -1.0 in column 'w' is negative or not finite"),
]


@pytest.mark.parametrize(("line", "fault"), BAD_CSV)
def test_bad_csv_lines(tmp_path, monkeypatch, line, fault):
    for module in (table_lines, json_lines):
        monkeypatch.setattr(module, "HEAD_BYTES", 1000)
    path = write(tmp_path / "a.csv", CSV + line + b"cid,3,1,1\n")
    with pytest.raises(DataError, match=rf"a.csv, line 202: {fault}; correct the line or pass on_bad_line"):
        targets(scan_csv(path, weight="w", categorical="name", numeric="x"))
    source = scan_csv(path, weight="w", categorical="name", numeric="x", on_bad_line="skip")
    assert len(targets(source)) == 201
    assert column(source, "name")[-2:] == ["ann", "cid"]
    assert source.skipped.n == 1
    assert re.search(f"a.csv, line 202: {fault}$", source.skipped.examples[0])


JSON = b'{"name": "ann", "x": 1, "w": 1, "y": 0}\n' * 200
BAD_JSON = [
    (b'{"name": "bob", "x": "many", "w": 1, "y": 1}\n', "'many' in column 'x' is not a number"),
    (b'{"name": "bob", "x": 1, "w": 1\n', r"the line is not JSON \(.*\)"),
    (b'{"name": 5, "x": 1, "w": 1, "y": 1}\n', "5 in column 'name' is not a string"),
    (b'{"name": "b\xff", "x": 1, "w": 1, "y": 1}\n', "the line is not UTF-8"),
    (b'{"name": "bob", "x": 1, "w": 1}\n', "the label in column 'y' is missing"),
    (b'{"name": "bob", "x": 1, "y": 1}\n', "the weight in column 'w' is missing"),
    (b"[1, 2]\n", "the line holds an array instead of an object"),
]


@pytest.mark.parametrize(("line", "fault"), BAD_JSON)
def test_bad_json_lines(tmp_path, monkeypatch, line, fault):
    for module in (table_lines, json_lines):
        monkeypatch.setattr(module, "HEAD_BYTES", 1000)
    path = write(tmp_path / "a.jsonl", JSON + line + JSON[:40].replace(b"ann", b"cid"))
    with pytest.raises(DataError, match=rf"a.jsonl, line 201: {fault}; correct the line or pass on_bad_line"):
        targets(scan_jsonl(path, weight="w", categorical="name", numeric="x"))
    source = scan_jsonl(path, weight="w", categorical="name", numeric="x", on_bad_line="skip")
    assert column(source, "name")[-2:] == ["ann", "cid"]
    assert len(targets(source)) == 201
    assert source.skipped.n == 1
    assert "line 201" in source.skipped.examples[0]


@pytest.mark.parametrize("format", ["parquet", "arrow"])
def test_bad_rows_of_columnar_files(tmp_path, format):
    y = [0.0] * 300
    y[170] = None
    y[299] = float("inf")
    path = make(tmp_path, format, pa.table({"x": list(range(300)), "y": y}))
    where = "row 170" if format == "parquet" else "row 20 of record batch 1"
    with pytest.raises(DataError, match=rf"{where}: the label in column 'y' is missing; correct the row or pass"):
        targets(scan(path))
    source = hashed(scan(path, on_bad_line="skip"))
    ids = [int(i) for chunk in source for i in chunk.row_ids]
    whole = hashed(scan(path, with_labels=False, numeric="x"))
    assert ids == [i for n, i in enumerate(int(i) for chunk in whole for i in chunk.row_ids) if n not in (170, 299)]
    assert source.skipped.n == 2


def test_files_must_agree(tmp_path):
    for number, x in enumerate([[1, 2], [3, 4], ["five", "six"]]):
        pyarrow.parquet.write_table(pa.table({"x": x, "y": [0, 1]}), tmp_path / f"{number}.parquet")
        write(tmp_path / f"{number}.csv", b"%s,y\n1,0\n" % (b"x" if number < 2 else b"z"))
    with pytest.raises(DataError, match=r"2\.parquet: the column 'x' holds string, but int64 in .*0\.parquet"):
        targets(scan_parquet(str(tmp_path / "*.parquet")))
    with pytest.raises(DataError, match=r"2\.csv has no column 'x'; its columns are 'z', 'y'"):
        targets(scan_csv(str(tmp_path / "*.csv")))
    write(tmp_path / "2.csv", b"y,x\n7,5\n")
    assert targets(scan_csv(str(tmp_path / "*.csv"))) == [0, 0, 7]


def test_damaged_columnar_files(tmp_path):
    path = make(tmp_path, "parquet")
    data = Path(path).read_bytes()
    with pytest.raises(DataError, match=r"cut.parquet cannot be read as parquet \(.*\); check the file"):
        targets(scan(write(tmp_path / "cut.parquet", data[:-100])))
    with pytest.raises(DataError, match=r"no.arrow cannot be read as arrow"):
        targets(scan(write(tmp_path / "no.arrow", b"not arrow at all")))
    with pytest.raises(DataError, match="standard input is not a file; save the parquet data in one"):
        scan("-", "parquet")


def test_arrow_streams(tmp_path):
    path = tmp_path / "a.ipc"
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, TABLE.schema) as writer:
        writer.write_table(TABLE, max_chunksize=100)
    assert targets(scan_arrow(str(path))) == TABLE["label"].to_pylist()


TAGS = pa.table({"x": [1, 2, 3], "label": [["b", "a"], [], ["c"]]})


@pytest.mark.parametrize("format", ["jsonl", "parquet", "arrow"])
def test_lists_of_labels_become_columns(tmp_path, format):
    source = scan(make(tmp_path, format, TAGS))
    assert targets(source) == [[1, 1, 0], [0, 0, 0], [0, 0, 1]]
    assert source.label_names == ["a", "b", "c"]
    assert targets(scan(source.files, labels=["a", "b", "c", "d"]))[2] == [0, 0, 1, 0]
    with pytest.raises(DataError, match=r"(line 3|row 2.*): the label .*'c'"):
        targets(scan(source.files, labels=["a", "b"]))


def test_quoted_values_over_several_lines(tmp_path):
    texts = [f'line one {i}\nline "two", {"long " * (i % 40)}' for i in range(100)]
    table = pa.table({"text": texts, "y": [float(i) for i in range(100)]})
    path = write(tmp_path / "a.csv", csv_bytes(table))
    source = scan_csv(path)
    assert column(source, "text") == texts
    assert source.recipe["newlines_in_values"] is True
    assert sorted(y for c in hashed(source).read(Order("blocks", 3), 1) for y in c.y) == list(range(100))
    with pytest.raises(DataError, match=r"a quoted value continues in the next line, .* pass newlines_in_values=True"):
        column(scan_csv(path, newlines_in_values=False), "text")


def test_a_lone_quote_is_a_letter(tmp_path):
    path = write(tmp_path / "a.csv", b"size,y\n" + b'5" nail,1\nplain,0\n' * 101)
    assert column(scan_csv(path), "size") == ['5" nail', "plain"] * 101


def test_delimiters_headers_and_names(tmp_path):
    for delimiter in ",;|\t":
        path = write(tmp_path / "a.csv", f'"a,;|b"{delimiter}y\n1{delimiter}2\n'.encode())
        assert column(scan_csv(path), "a,;|b") == [1]
    path = write(tmp_path / "b.csv", b"\xef\xbb\xbf1,2,3\r\n4,5,6\r\n")
    assert targets(scan_csv(path, header=False, label="2")) == [3, 6]
    assert column(scan_csv(path, header=False, columns=["a", "b", "y"]), "a") == [1, 4]
    with pytest.raises(DataError, match="the first row has 3 values, but columns= names 2"):
        targets(scan_csv(path, header=False, columns=["a", "y"]))
    with pytest.raises(DataError, match=r"has none of the columns 'a'; .*if it has no header, pass header=False"):
        targets(scan_csv(path, columns=["a"]))
    assert column(scan_csv(path, header=False, columns=["a", "b", "c", "y"], label="y", with_labels=False), "c") == [
        3,
        6,
    ]
    with pytest.raises(DataError, match="has more than one column 'a'"):
        targets(scan_csv(write(tmp_path / "c.csv", b"a,a,y\n1,2,3\n")))
    with pytest.raises(ParameterError, match="delimiter"):
        scan_csv(path, delimiter="ab")


def test_nothing_but_a_header(tmp_path):
    for header in (b"x,y\n", b"y,price,5,6"):  # a comma between digits might be that of decimals
        with pytest.raises(DataError, match="it has no rows"):
            targets(scan_csv(write(tmp_path / "a.csv", header)))
    with pytest.raises(DataError, match="is one JSON array; write one object per line"):
        targets(scan(write(tmp_path / "a.json", b'[{"x": 1}]')))
    with pytest.raises(DataError, match="is not a JSON object"):
        targets(scan_jsonl(write(tmp_path / "b.json", b"hello\n")))


def test_only_a_few_batches_wait(tmp_path):
    made = []
    source = scan_parquet(make(tmp_path, "parquet", pa.table({"x": list(range(5000)), "y": [0] * 5000})))
    hasher = Hasher(n_bits=10)

    def encode(batch):
        made.append(batch.first_id)
        return hasher.to_chunk(batch.columns)

    chunks = source.with_encoder(encode).epoch()
    next(chunks)
    threading.Event().wait(0.05)
    chunks.close()
    assert len(made) <= 5
    assert made == sorted(made)


def test_kinds_of_columns_are_guessed(tmp_path):
    hasher = Hasher(n_bits=10)
    source = scan(make(tmp_path, "csv"), weight="w").with_encoder(lambda batch: hasher.to_chunk(batch.columns))
    next(iter(source))
    assert {c.name: c.kind for c in hasher.columns_} == {
        "review": "text",
        "shop": "category",
        "price": "number",
        "stock": "number",
    }


def test_a_cache_over_a_hashed_table(tmp_path):
    source = hashed(scan(make(tmp_path, "csv"), weight="w"), weighting="log")
    cached = source.cache(tmp_path / "rows.cache")
    assert triples(concatenate(list(cached))) == triples(concatenate(list(source)))


def test_without_pyarrow_the_message_names_the_extra(tmp_path):
    path = make(tmp_path, "csv")
    program = (
        "import sys; sys.modules['pyarrow'] = None\n"
        "import steepest as st\n"
        f"try: st.scan({path!r})\n"
        "except st.DataError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "pip install pyarrow" in done.stdout


CELLS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0\r"), min_size=1, max_size=12)


@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.lists(st.tuples(CELLS, st.floats(-1e6, 1e6)), min_size=1, max_size=60))
def test_any_text_survives_csv_and_json(tmp_path, rows):
    table = pa.table({"t": [f"<{text}>" for text, _ in rows], "y": [y for _, y in rows]})
    for format in ("csv", "jsonl"):
        source = scan(make(tmp_path, format, table), text="t")
        assert column(source, "t") == table["t"].to_pylist()
        assert np.array_equal(targets(source), table["y"].to_pylist())


def test_roles_in_json_follow_the_values(tmp_path):
    rows = (
        b'{"zip": 7, "n": null, "s": "1.5", "tags": ["a"], "o": {"k": 1}, "y": true}\n{"zip": 8, "n": 2, "y": false}\n'
    )
    path = write(tmp_path / "a.jsonl", rows)
    assert column(scan_jsonl(path, categorical="zip", numeric="n"), "zip") == [7, 8]
    assert column(scan_jsonl(path, categorical="zip", numeric="n"), "n") == [None, 2.0]
    plain = scan_jsonl(path)
    assert next(plain.batches(ORDER, 0)).columns.column_names == ["zip", "n", "s", "tags"]
    assert targets(plain) == ["true", "false"]


def test_many_missing_labels_are_skipped_by_number(tmp_path):
    lines_ = [b"%d,%s\n" % (i, b"" if i % 3 == 0 else b"1") for i in range(600)]
    source = scan_csv(write(tmp_path / "a.csv", b"x,y\n" + b"".join(lines_)), on_bad_line="skip")
    assert column(source, "x") == [i for i in range(600) if i % 3]
    assert source.skipped.n == 200
    assert [text.split(", ")[1].split(":")[0] for text in source.skipped.examples] == ["line 2", "line 5", "line 8"]


def test_memory_stays_bounded(tmp_path):
    """A pipe that never ends is read only as far as someone asks."""
    import os

    pipe = tmp_path / "pipe.csv"
    os.mkfifo(pipe)
    written = []
    stop = threading.Event()

    def feed():
        try:
            with open(pipe, "wb", buffering=0) as sink:
                sink.write(b"x,y\n")
                while not stop.is_set() and sum(written) < 1 << 24:
                    written.append(sink.write(b"1,0\n" * 256))
        except BrokenPipeError:
            pass

    feeder = threading.Thread(target=feed, daemon=True)
    feeder.start()
    batches = scan(str(pipe), "csv", delimiter=",", newlines_in_values=False).batches(ORDER, 0)
    next(batches)
    threading.Event().wait(0.1)
    assert sum(written) < 1 << 22
    stop.set()
    batches.close()
    for _ in range(100):
        feeder.join(0.05)
        if not feeder.is_alive():
            break


def test_a_quote_that_is_never_closed(tmp_path, monkeypatch):
    data = b"x,y\n" + b'"a\nb",1\n' * 100 + b'"open,1\n' + b"c,1\n" * 1000
    path = write(tmp_path / "a.csv", data)
    for limit in (1 << 24, 1000):
        monkeypatch.setattr(table_lines, "OPEN_LIMIT", limit)
        with pytest.raises(DataError, match=r"a.csv, line 202: a quote is opened and never closed; correct the line"):
            targets(scan_csv(path))


def test_decimals_are_numbers_and_labels_must_be_utf8(tmp_path):
    from decimal import Decimal

    table = pa.table({"x": [Decimal("1.5"), None], "y": [b"a", b"b"]})
    assert column(scan(make(tmp_path, "parquet", table)), "x") == [1.5, None]
    table = pa.table({"x": [1, 2], "y": [b"a", b"\xff"]})
    with pytest.raises(DataError, match=r"rows.parquet: the label in column 'y' cannot be used"):
        targets(scan(make(tmp_path, "parquet", table)))
