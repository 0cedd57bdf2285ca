"""Text files as blocks of whole lines: every line in exactly one block, whatever the grid, the packing and the pipe."""

from __future__ import annotations

import bz2
import gzip
import io
import os
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from steepest.data.files import blocks as files
from steepest.data.files import packing
from steepest.data.files.blocks import TextFile, open_files
from steepest.errors import DataError

TEXT = b"".join(b"%d 1:%d\n" % (i, i * i) for i in range(1000))
PACK = {
    "plain": lambda data: data,
    "gz": gzip.compress,
    "bz2": bz2.compress,
    "zst": zstandard.ZstdCompressor().compress,
}
texts = st.lists(st.sampled_from([b"a", b"bc", b"\n", b"\n\n", b"long line without end", b"\r\n"])).map(b"".join)


@pytest.fixture
def small_blocks(monkeypatch):
    def shrink(n_bytes: int) -> None:
        monkeypatch.setattr(files, "BLOCK_BYTES", n_bytes)
        monkeypatch.setattr(files, "_SPARE_BYTES", 3)
        monkeypatch.setattr(packing, "_PIECE_BYTES", 7)

    return shrink


def write(path: Path, data: bytes) -> str:
    path.write_bytes(data)
    return str(path)


def pipe_in(monkeypatch, data: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(data)))


def by_seeking(file: TextFile) -> list[tuple[int, int, bytes]]:
    blocks = [file.read_block(number) for number in range(file.n_blocks())]
    return [(b.number, b.start, bytes(b.text)) for b in blocks if len(b.text)]


def by_streaming(file: TextFile) -> list[tuple[int, int, bytes]]:
    return [(b.number, b.start, bytes(b.text)) for b in file.stream()]


@given(texts, st.integers(1, 40), st.integers(1, 9), st.integers(1, 9))
def test_blocks_are_the_lines_that_start_in_them(tmp_path_factory, text, block_bytes, spare_bytes, piece_bytes):
    path = write(tmp_path_factory.mktemp("blocks") / "text", text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "BLOCK_BYTES", block_bytes)
        patch.setattr(files, "_SPARE_BYTES", spare_bytes)
        patch.setattr(packing, "_PIECE_BYTES", piece_bytes)
        file = TextFile(path)
        blocks = by_seeking(file)
        assert by_streaming(file) == blocks
    assert b"".join(data for _, _, data in blocks) == text
    for number, start, data in blocks:
        assert text[start : start + len(data)] == data
        assert start == 0 or text[start - 1 : start] == b"\n"
        last_line = start + data[:-1].rfind(b"\n") + 1
        assert number * block_bytes <= start <= last_line < (number + 1) * block_bytes


@pytest.mark.parametrize("packing", ["gz", "bz2", "zst"])
def test_a_packed_file_has_the_blocks_of_the_plain_one(tmp_path, small_blocks, packing):
    small_blocks(100)
    plain = TextFile(write(tmp_path / "text", TEXT))
    packed = TextFile(write(tmp_path / "no_suffix", PACK[packing](TEXT)))
    assert (packed.packing, packed.seekable) == (packing, False)
    assert by_streaming(packed) == by_seeking(plain)


@pytest.mark.parametrize("packing", ["gz", "bz2", "zst"])
def test_packed_parts_in_a_row_are_one_text(tmp_path, packing):
    data = PACK[packing](TEXT[:5000]) + PACK[packing](TEXT[5000:])
    assert b"".join(t for _, _, t in by_streaming(TextFile(write(tmp_path / "two", data)))) == TEXT


def test_content_decides_what_is_packed_not_the_name(tmp_path):
    assert TextFile(write(tmp_path / "plain.gz", TEXT)).packing == ""
    assert TextFile(write(tmp_path / "BZh.txt", b"BZh9 is no bzip2 file\n")).packing == ""


def test_a_byte_order_mark_is_no_text(tmp_path):
    file = TextFile(write(tmp_path / "marked", b"\xef\xbb\xbf1 1:1\n2 1:1\n"))
    assert by_seeking(file) == by_streaming(file) == [(0, 3, b"1 1:1\n2 1:1\n")]
    assert file.head(5) == b"1 "


@pytest.mark.parametrize("packing", PACK)
def test_standard_input_is_read_like_a_file_but_once(monkeypatch, packing):
    pipe_in(monkeypatch, PACK[packing](TEXT))
    file = TextFile("-")
    assert file.head(50) == file.head(20) + TEXT[20:50]
    assert b"".join(t for _, _, t in by_streaming(file)) == TEXT
    with pytest.raises(DataError, match="standard input can be read only once; save it in a file"):
        list(file.stream())


def test_a_closed_standard_input_is_explained(monkeypatch):
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(DataError, match="standard input is closed; name a file"):
        TextFile("-").head(1)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_named_pipe_is_read_once_and_in_full(tmp_path):
    path = str(tmp_path / "pipe")
    os.mkfifo(path)
    file = TextFile(path)
    writer = threading.Thread(target=Path(path).write_bytes, args=(TEXT,))
    writer.start()
    assert file.head(10) == TEXT[:10]
    assert b"".join(t for _, _, t in by_streaming(file)) == TEXT
    writer.join()
    with pytest.raises(DataError, match="can be read only once"):
        file.head(10)


def test_patterns_and_lists_name_files_in_order(tmp_path):
    for name in ("b.svm", "a.svm", "c.txt"):
        write(tmp_path / name, TEXT)
    assert [Path(f.path).name for f in open_files(str(tmp_path / "*.svm"))] == ["a.svm", "b.svm"]
    listed = open_files([tmp_path / "c.txt", str(tmp_path / "a*")])
    assert [(Path(f.path).name, f.position) for f in listed] == [("c.txt", 0), ("a.svm", 1)]
    assert open_files(listed) is not None
    literal = write(tmp_path / "odd[1].svm", TEXT)
    assert [f.path for f in open_files(literal)] == [literal]


def test_stable_numbers_tell_files_blocks_and_rows_apart(tmp_path, small_blocks):
    small_blocks(100)
    write(tmp_path / "a", TEXT)
    write(tmp_path / "b", TEXT)
    first, second = open_files(str(tmp_path / "*"))
    ids = [file.read_block(number).first_id for file in (first, second) for number in range(3)]
    assert ids == [0, 1 << 24, 2 << 24, 1 << 44, (1 << 44) + (1 << 24), (1 << 44) + (2 << 24)]
    first.position = 1 << 30
    assert 0 <= first.read_block(7).first_id < 2**63


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("none.svm", "none.svm does not exist; check the name"),
        ("none*.svm", "no file matches .*none.*; check the pattern"),
        ("", "is a directory; name its files, for example"),
        ("empty.svm", "empty.svm is empty; give a file with data"),
    ],
)
def test_a_wrong_path_is_explained_at_once(tmp_path, name, message):
    write(tmp_path / "empty.svm", b"")
    with pytest.raises(DataError, match=message):
        open_files(str(tmp_path / name))


def test_no_path_at_all_is_explained():
    with pytest.raises(DataError, match="no file is given; name at least one"):
        open_files([])


def test_an_empty_file_among_others_is_no_error(tmp_path):
    write(tmp_path / "a", b"")
    write(tmp_path / "b", TEXT)
    assert [by_seeking(f)[:1] == [] for f in open_files(str(tmp_path / "*"))] == [True, False]


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="needs a file that this user may not read")
def test_a_file_without_permission_is_explained(tmp_path):
    path = write(tmp_path / "secret.svm", TEXT)
    os.chmod(path, 0)
    with pytest.raises(DataError, match=r"secret.svm cannot be read \(Permission denied\)"):
        open_files(path)


def test_a_file_that_vanishes_or_shrinks_is_explained(tmp_path, small_blocks):
    small_blocks(100)
    path = write(tmp_path / "shy.svm", TEXT)
    file = TextFile(path)
    write(tmp_path / "shy.svm", TEXT[:150])
    with pytest.raises(DataError, match=r"shy.svm became shorter while it was read"):
        file.read_block(5)
    os.remove(path)
    for read in (file.n_blocks, lambda: file.read_block(0), lambda: list(file.stream()), lambda: file.head(1)):
        with pytest.raises(DataError, match=r"shy.svm does not exist; check the name"):
            read()
    assert file.line_number(100) is None


@pytest.mark.parametrize("packing", ["gz", "bz2", "zst"])
def test_a_packed_file_that_is_cut_short_is_explained(tmp_path, packing):
    data = PACK[packing](TEXT)
    file = TextFile(write(tmp_path / "cut", data[: len(data) - 20]))
    with pytest.raises(DataError, match=r"cut is cut short after about line \d+; fetch or write the file again"):
        list(file.stream())


def test_the_line_of_the_cut_is_about_right(tmp_path):
    data = gzip.compress(TEXT, 0)
    file = TextFile(write(tmp_path / "cut.gz", data[: len(data) // 2]))
    with pytest.raises(DataError, match=r"cut short after about line (4[5-9]|5[0-9])[0-9];"):
        list(file.stream())


@pytest.mark.parametrize("packing", ["gz", "bz2", "zst"])
def test_a_damaged_packed_file_is_explained(tmp_path, packing):
    data = bytearray(PACK[packing](TEXT))
    data[20:60] = bytes(40)
    with pytest.raises(DataError, match=r"hurt (is damaged|is cut short) after about line"):
        list(TextFile(write(tmp_path / "hurt", bytes(data))).stream())


def unpacked(path: str) -> bytes | str:
    """The text, or what is wrong with the file; how far it could be read depends on the library."""
    try:
        return b"".join(bytes(block.text) for block in TextFile(path).stream())
    except DataError as error:
        return str(error).split(" after about line")[0].replace("is cut short", "is damaged")


CUTS = {
    "whole": lambda data: data,
    "two parts": lambda data: data + data,
    "filled up": lambda data: data + bytes(200_000),
    "cut": lambda data: data[: len(data) // 2],
    "cut in the checksum": lambda data: data[:-3],
    "another checksum": lambda data: data[:-8] + bytes(8),
    "something behind": lambda data: data + b"more",
    "head alone": lambda data: data[:3],
}


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("level", [0, 9])
def test_both_libraries_unpack_gzip_alike_and_find_the_same_faults(tmp_path, monkeypatch, cut, level):
    pytest.importorskip("isal")
    path = write(tmp_path / "packed.gz", CUTS[cut](gzip.compress(30 * TEXT, level)))
    by_isal = unpacked(path)
    monkeypatch.setattr(packing, "_isal", lambda: None)
    assert unpacked(path) == by_isal
    assert isinstance(by_isal, bytes) == (cut in ("whole", "two parts", "filled up"))


def test_zstd_needs_no_package_beyond_the_base_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "zstandard", None)
    file = TextFile(write(tmp_path / "x.zst", PACK["zst"](TEXT)))
    assert b"".join(text for _, _, text in by_streaming(file)) == TEXT


@pytest.mark.parametrize("packing", ["plain", "gz"])
def test_an_endless_line_is_refused_by_number(tmp_path, small_blocks, monkeypatch, packing):
    small_blocks(100)
    monkeypatch.setattr(files, "LINE_LIMIT", 500)
    text = b"1 1:1\n" * 40 + b"x" * 601 + b"\n" + b"1 1:1\n" * 40
    file = TextFile(write(tmp_path / "long", PACK[packing](text)))
    read = by_seeking if packing == "plain" else by_streaming
    with pytest.raises(DataError, match="long, line 41: the line is longer than 500 bytes; check that this is a text"):
        read(file)
    allowed = TextFile(write(tmp_path / "fine", PACK[packing](text.replace(b"x" * 601, b"x" * 400))))
    assert len(b"".join(t for _, _, t in read(allowed))) == len(text) - 201


@given(texts, st.data())
def test_line_numbers_count_the_newlines_before(tmp_path_factory, text, data):
    file = TextFile(write(tmp_path_factory.mktemp("lines") / "text", text))
    offset = data.draw(st.integers(0, len(text)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "BLOCK_BYTES", 5)
        assert file.line_number(offset) == text[:offset].count(b"\n") + 1
        for block in file.stream():
            for place in range(len(block.text)):
                assert block.line_number(place) == text[: block.start + place].count(b"\n") + 1
