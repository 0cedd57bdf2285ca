"""Labelled text: each line once with its label, whatever the blocks, order, packing and broken bytes."""

from __future__ import annotations

import bz2
import gzip
import io
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from steepest.data.chunk import Chunk
from steepest.data.files import blocks as files
from steepest.data.raw import encoded, is_raw
from steepest.data.readers import lines
from steepest.data.readers.text import TextSource, scan_text
from steepest.data.scan import scan
from steepest.data.source import Order
from steepest.errors import DataError, ParameterError
from steepest.features.hasher import Hasher

WORDS = ["free", "money", "élan", "see you", "日本", "tomorrow at nine"]
ROWS = [(("spam", "ham")[i % 3 == 0], f"{WORDS[i % 6]} number{i}") for i in range(500)]
TAB = "".join(f"{label}\t{text}\n" for label, text in ROWS).encode()


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch):
    monkeypatch.setattr(files, "BLOCK_BYTES", 256)
    monkeypatch.setattr(lines, "SHARD_BLOCKS", 1)


@pytest.fixture(autouse=True)
def _no_thread_is_left():
    yield
    assert not [thread for thread in threading.enumerate() if thread.name == "steepest-reader"]


def write(path: Path, data: bytes) -> str:
    path.write_bytes(data)
    return str(path)


def rows(source: TextSource, order: Order = Order(), epoch: int = 0) -> list[tuple[str, str]]:  # noqa: B008
    return [
        (str(label), text.decode())
        for batch in source.batches(order, epoch)
        for label, text in zip(batch.y, batch.columns, strict=True)
    ]


def hashed(source):
    hasher = Hasher(n_bits=12)
    return source.with_encoder(lambda batch: hasher.to_chunk(batch.columns))


def triples(chunk: Chunk):
    return chunk.indptr.tolist(), chunk.indices.tolist(), chunk.values.tolist()


def test_tab_lines_come_back(tmp_path):
    source = scan_text(write(tmp_path / "a.txt", TAB))
    assert rows(source) == ROWS
    assert source.recipe == {"format": "txt", "style": "tab", "multi_label": False, "labels": None}


def test_chunks_equal_hashing_all_texts_at_once(tmp_path):
    from steepest.data.chunk import concatenate

    chunks = list(hashed(scan_text(write(tmp_path / "a.txt", TAB))))
    assert len(chunks) > 3
    whole = Hasher(n_bits=12).to_chunk([text for _, text in ROWS])
    assert triples(concatenate(chunks)) == triples(whole)
    assert [str(y) for chunk in chunks for y in chunk.y] == [label for label, _ in ROWS]


@pytest.mark.parametrize("block_bytes", [16, 100, 1 << 20])
def test_rows_do_not_depend_on_the_size_of_blocks(tmp_path, monkeypatch, block_bytes):
    monkeypatch.setattr(files, "BLOCK_BYTES", block_bytes)
    assert rows(scan_text(write(tmp_path / "a.txt", TAB))) == ROWS


@pytest.mark.parametrize(
    ("ending", "pack"),
    [(".gz", gzip.compress), (".bz2", bz2.compress), (".zst", lambda data: zstandard.ZstdCompressor().compress(data))],
)
def test_packed_files(tmp_path, ending, pack):
    assert rows(scan(write(tmp_path / f"a.txt{ending}", pack(TAB)))) == ROWS


def test_patterns_and_standard_input(tmp_path, monkeypatch):
    write(tmp_path / "a.txt", TAB[: TAB.index(b"\n", 3000) + 1])
    write(tmp_path / "b.txt", TAB[TAB.index(b"\n", 3000) + 1 :])
    assert rows(scan_text(str(tmp_path / "*.txt"))) == ROWS
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(TAB)))
    assert rows(scan_text("-")) == ROWS


def test_shuffling_visits_blocks_in_another_order_and_keeps_row_numbers(tmp_path):
    source = hashed(scan_text(write(tmp_path / "a.txt", TAB)))

    def numbered(order, epoch):
        return [
            (int(i), str(y)) for c in source.read(order, epoch) for i, y in zip(c.row_ids, c.visited(c.y), strict=True)
        ]

    plain, first, second = numbered(Order(), 0), numbered(Order("rows", 1), 0), numbered(Order("rows", 1), 1)
    assert sorted(first) == sorted(second) == sorted(plain)
    assert len({i for i, _ in plain}) == len(ROWS)
    assert first != second != plain


def test_holdout_shards_and_limit(tmp_path):
    source = hashed(scan_text(write(tmp_path / "a.txt", TAB)))
    train, test = source.holdout(0.3, seed=1)
    assert sum(c.n_rows for c in train) + sum(c.n_rows for c in test) == len(ROWS)
    assert sum(c.n_rows for part in source.shards(3) for c in part) == len(ROWS)
    assert sum(c.n_rows for c in source.limit(7)) == 7


def test_without_an_encoder_the_message_names_the_hasher(tmp_path):
    source = scan_text(write(tmp_path / "a.txt", TAB))
    with pytest.raises(DataError, match=r"a.txt holds raw columns: give the estimator a hasher"):
        next(iter(source))


def test_an_encoder_can_be_put_below_a_split_and_a_cache(tmp_path):
    source = scan_text(write(tmp_path / "a.txt", TAB)).holdout(0.5)[0].cache(tmp_path / "cache").limit(20)
    assert is_raw(source)
    hasher = Hasher(n_bits=12)
    ready = encoded(source, lambda batch: hasher.to_chunk(batch.columns), "n_bits 12")
    assert not is_raw(ready)
    assert ready.signature == "n_bits 12"
    assert sum(chunk.n_rows for chunk in ready) == 20


def test_encoders_see_batches_in_order_and_few_at_a_time(tmp_path):
    seen = []
    hasher = Hasher(n_bits=10)

    def encode(batch):
        seen.append(batch.first_id)
        return hasher.to_chunk(batch.columns)

    chunks = scan_text(write(tmp_path / "a.txt", TAB * 20)).with_encoder(encode).epoch()
    next(chunks)
    threading.Event().wait(0.05)
    assert len(seen) <= 1 + 2 + 2
    assert seen == sorted(seen)
    chunks.close()


FASTTEXT = b"__label__a one two\n\n__label__b\tthree __label__x\r\n__label__a\n"


def test_fasttext_with_one_label_a_line(tmp_path):
    source = scan(write(tmp_path / "data.ft", FASTTEXT))
    assert rows(source) == [("a", "one two"), ("b", "three __label__x"), ("a", "")]
    assert source.recipe["style"] == "fasttext"


def test_several_labels_become_columns(tmp_path):
    path = write(tmp_path / "a.txt", b"__label__b __label__a one\n__label__c two\nno label\n")
    source = scan_text(path)
    (batch,) = source.batches(Order(), 0)
    assert source.label_names == ["a", "b", "c"]
    assert batch.y.tolist() == [[1, 1, 0], [0, 0, 1], [0, 0, 0]]
    assert batch.columns == [b"one", b"two", b"no label"]
    again = scan(path, **source.recipe)
    assert next(again.batches(Order(), 0)).y.tolist() == batch.y.tolist()


def test_a_late_second_label_names_the_way_out(tmp_path, monkeypatch):
    from steepest.data.readers import text

    monkeypatch.setattr(text, "HEAD_BYTES", 20)
    path = write(tmp_path / "a.txt", b"__label__b one two three four\n" * 3 + b"__label__a __label__b five\n")
    with pytest.raises(DataError, match=r"a.txt, line 4: .* has a second label; pass multi_label=True"):
        rows(scan_text(path))
    assert scan_text(path, multi_label=True).with_labels
    assert sum(b.n_rows for b in scan_text(path, multi_label=True).batches(Order(), 0)) == 4


def test_labels_of_standard_input_must_be_given(monkeypatch):
    data = b"__label__b __label__a one\n__label__z two\n"
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
    with pytest.raises(DataError, match=r"read only once, so its labels cannot be collected; pass labels="):
        rows(scan_text("-"))
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
    with pytest.raises(DataError, match=r"line 2: the label 'z' is not among the labels given"):
        rows(scan_text("-", labels=["a", "b"]))


def test_bad_lines_are_named_or_counted(tmp_path):
    path = write(tmp_path / "a.txt", b"a\tone\nno tab here\n\tno label\nb\ttwo\n")
    with pytest.raises(DataError, match=r"a.txt, line 2: the line 'no tab here' has no label before a tab; write"):
        rows(scan_text(path))
    source = scan_text(path, on_bad_line="skip")
    assert rows(source) == [("a", "one"), ("b", "two")]
    assert source.skipped.n == 2
    assert "line 3" in source.skipped.examples[1]


def test_without_labels_each_line_is_a_row(tmp_path):
    plain = scan_text(write(tmp_path / "a.txt", b"one\n\ntwo\tthree\r\n"), with_labels=False)
    assert next(plain.batches(Order(), 0)).columns == [b"one", b"", b"two\tthree"]
    assert next(plain.batches(Order(), 0)).y is None
    tab = scan_text(write(tmp_path / "b.txt", b"a\tone\ntwo\n"), style="tab", with_labels=False)
    assert next(tab.batches(Order(), 0)).columns == [b"one", b"two"]
    fast = scan_text(write(tmp_path / "c.txt", FASTTEXT), with_labels=False)
    assert next(fast.batches(Order(), 0)).columns == [b"one two", b"", b"three __label__x", b""]


def test_no_label_at_all(tmp_path):
    with pytest.raises(DataError, match=r"the first line, 'just text', has no label; write .* with_labels=False"):
        rows(scan_text(write(tmp_path / "a.txt", b"just text\n")))
    with pytest.raises(ParameterError, match="style='plain' has no labels"):
        scan_text(str(tmp_path / "a.txt"), style="plain")


def test_a_txt_file_of_libsvm_lines_is_still_libsvm(tmp_path):
    assert scan(write(tmp_path / "a.txt", b"1 1:2 3:4\n")).recipe["format"] == "libsvm"


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.lists(st.tuples(st.sampled_from([b"a", b"\xff", "ä".encode()]), st.binary(max_size=30)), min_size=1))
def test_any_bytes_pass_through(tmp_path, pairs):
    pairs = [(label, text.replace(b"\n", b" ").rstrip(b"\r")) for label, text in pairs]
    path = write(tmp_path / "a.txt", b"".join(label + b"\t" + text + b"\n" for label, text in pairs))
    batches = list(scan_text(path, style="tab").batches(Order(), 0))
    assert [text for batch in batches for text in batch.columns] == [text for _, text in pairs]
    assert np.concatenate([b.y for b in batches]).tolist() == [
        lab.decode("utf8", "backslashreplace") for lab, _ in pairs
    ]
