"""Reading ratings: formats, ids, roles, and what is said about bad lines."""

from __future__ import annotations

import gzip
import itertools

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as hs

import steepest as st
from steepest.data.files import blocks as files
from steepest.data.ids import IdBook, as_ids
from steepest.data.splits import gather


def write(folder, text, name="r.csv"):
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


@pytest.mark.parametrize(
    "text",
    [
        "1,50,4,100\n2,61,2.5,101\n",
        "1\t50\t4\t100\r\n2\t61\t2.5\t101\r\n",
        "1::50::4::100\n2::61::2.5::101",
        "1;50;4;100\n\n2;61;2.5;101\n",
        "1 50 4 100\n2 61 2.5 101\n",
        "user,item,rating,timestamp\n1,50,4,100\n2,61,2.5,101\n",
        "rating,movieId,userId,time\n4,50,1,100\n2.5,61,2,101\n",
        '"user-id","Item","Rating","Time"\n"1","50","4","100"\n"2","61","2.5","101"\n',
    ],
)
def test_all_layouts_give_the_same_rows(tmp_path, text):
    chunk = gather(st.scan_ratings(write(tmp_path, text)))
    assert chunk.users.tolist() == [1, 2]
    assert chunk.items.tolist() == [50, 61]
    assert chunk.y.tolist() == [4, 2.5]
    assert chunk.time.tolist() == [100, 101]


def test_packed_files_parquet_and_frames(tmp_path):
    frame = pd.DataFrame({"user": ["a", "b"], "item": [1, 2], "rating": [3.0, 4.0], "weight": [1.0, 2.0]})
    frame.to_parquet(tmp_path / "r.parquet")
    packed = tmp_path / "r.csv.gz"
    packed.write_bytes(gzip.compress(b"user,item,rating,weight\na,1,3,1\nb,2,4,2\n"))
    for source in (st.scan_ratings(frame), st.scan_ratings(tmp_path / "r.parquet"), st.scan_ratings(packed),
                   st.scan(packed, format="ratings")):  # fmt: skip
        chunk = gather(source)
        assert chunk.users.tolist() == ["a", "b"]
        assert chunk.items.tolist() == [1, 2]
        assert chunk.y.tolist() == [3, 4]
        assert chunk.weight.tolist() == [1, 2]


def test_adjacency_and_named_columns(tmp_path):
    chunk = gather(st.scan_ratings(write(tmp_path, "0 5 6\n3 7\n"), layout="adjacency"))
    assert list(zip(chunk.users, chunk.items, strict=True)) == [(0, 5), (0, 6), (3, 7)]
    path = write(tmp_path, "who,what,how,when\nx,007,3,5\ny,8,4,6\n", "named.csv")
    chunk = gather(st.scan_ratings(path, user="who", item="what", rating="how", time=3))
    assert chunk.items.tolist() == ["007", "8"]
    assert chunk.time.tolist() == [5, 6]
    with pytest.raises(ValueError, match="no column 'whom'"):
        gather(st.scan_ratings(path, user="whom"))


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("3,4,good", "line 3: the rating is 'good'"),
        ("3,4,nan", "line 3: the rating is 'nan'"),
        ("3,4", "line 3: the line has 2 columns instead of 3"),
        ("x,4,1", "line 3: the user is 'x', not a whole number"),
        (",4,1", "line 3: the user is ''"),
    ],
)
def test_a_bad_line_is_named_or_skipped(tmp_path, line, fault):
    path = write(tmp_path, f"1,2,3\n2,2,3\n{line}\n4,4,4\n")
    number = line.startswith((",", "x"))
    options = {"ids": "number"} if number else {}
    with pytest.raises(st.DataError, match=fault):
        gather(st.scan_ratings(path, **options))
    source = st.scan_ratings(path, on_bad_line="skip", **options)
    assert gather(source).users.tolist() == [1, 2, 4]
    assert source.skipped.n == 1


def test_quotes_inside_a_field_are_letters(tmp_path):
    chunk = gather(st.scan_ratings(write(tmp_path, '1,"a,3\n2,b"c,4\n')))
    assert chunk.items.tolist() == ['"a', 'b"c']


def test_empty_and_foreign_files(tmp_path):
    with pytest.raises(st.DataError, match="is empty"):
        st.scan_ratings(write(tmp_path, ""))
    with pytest.raises(st.DataError, match="is not a rating"):
        gather(st.scan_ratings(write(tmp_path, "hello\nworld\n")))
    with pytest.raises(st.DataError, match="does not exist"):
        st.scan_ratings(tmp_path / "nothing.csv")


def test_holdout_and_limit_keep_rows_whole():
    source = st.from_ratings(np.arange(1000), np.arange(1000) + 5, np.arange(1000.0), chunk_rows=77)
    train, test = (gather(part) for part in source.holdout(0.2, seed=1))
    assert sorted([*train.users.tolist(), *test.users.tolist()]) == list(range(1000))
    for part in (train, test, gather(source.limit(100)), gather(source.shuffle("rows", 3))):
        assert (part.items == part.users + 5).all()
        assert (part.y == part.users).all()
    assert 150 < test.n_rows < 250


ids = hs.one_of(hs.integers(-(2**62), 2**62), hs.text(max_size=4), hs.integers(0, 20), hs.floats(0, 1), hs.booleans())


@given(hs.lists(ids, max_size=40), hs.integers(0, 40), hs.integers(0, 40))
def test_codes_are_the_order_of_first_sight_whatever_the_cuts(values, a, b):
    values = [v for v in values if not isinstance(v, str) or "\0" not in v]
    book = IdBook()
    cuts = sorted({0, min(a, len(values)), min(b, len(values)), len(values)})
    codes = [c for s, e in itertools.pairwise(cuts) for c in book.codes(as_ids(values[s:e]), learn=True)]
    expected: dict[object, int] = {}
    for value in values:
        expected.setdefault(value, len(expected))
    assert codes == [expected[value] for value in values]
    assert book.ids.tolist() == list(expected)
    unknown = book.codes(as_ids(["\x01 never"]))
    assert unknown.tolist() == [-1]
    assert book.codes(as_ids(values)).tolist() == codes
    header, arrays = book.as_arrays()
    again = IdBook.from_arrays(header, arrays)
    assert again.codes(as_ids(values)).tolist() == codes


def test_skipped_lines_are_counted_once_and_the_first_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "BLOCK_BYTES", 64)
    text = "".join(f"{i},{i},{'x' if i % 10 == 7 else i}\n" for i in range(1000))
    source = st.scan_ratings(write(tmp_path, text), on_bad_line="skip")
    for _ in range(2):
        assert gather(source).users.tolist() == [i for i in range(1000) if i % 10 != 7]
    assert source.skipped.n == 100
    assert source.skipped.examples[0].endswith("line 8: the rating is 'x', which is not a number that can be used")
    with pytest.raises(st.DataError, match="line 8: the rating is 'x'"):
        gather(st.scan_ratings(tmp_path / "r.csv"))


def test_a_bad_line_of_an_adjacency_list_is_left_out_as_a_whole(tmp_path):
    path = write(tmp_path, "0 5 6\n" * 1000 + "1 x 8\n\n3 7\n")
    source = st.scan_ratings(path, layout="adjacency", on_bad_line="skip")
    chunk = gather(source)
    assert list(zip(chunk.users, chunk.items, strict=True))[-3:] == [(0, 5), (0, 6), (3, 7)]
    assert "line 1001: the id is 'x'" in source.skipped.examples[0]
