"""Sources of lines: each row once, with a stable number, whatever the blocks, shards, order, packing and threads."""

from __future__ import annotations

import gzip
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from steepest.data import source as order
from steepest.data.files import blocks as files
from steepest.data.readers import lines
from steepest.data.readers.libsvm import LibsvmSource, scan_libsvm
from steepest.data.source import SHUFFLES, Order, Source
from steepest.data.store.row_store import store_rows
from steepest.errors import DataError

N_ROWS = 700
# Row i has label i, and i % 5 entries, so that lines differ in length.
TEXT = "".join(f"{i}{''.join(f' {j + 1}:{i}.5' for j in range(i % 5))}\n" for i in range(N_ROWS)).encode()


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch):
    monkeypatch.setattr(files, "BLOCK_BYTES", 256)
    monkeypatch.setattr(lines, "SHARD_BLOCKS", 1)


@pytest.fixture(autouse=True)
def _no_thread_is_left():
    yield
    assert not [thread for thread in threading.enumerate() if thread.name == "steepest-reader"]


@pytest.fixture
def path(tmp_path) -> str:
    return write(tmp_path / "rows.svm", TEXT)


def write(path: Path, data: bytes) -> str:
    path.write_bytes(data)
    return str(path)


def labels(source: Source, epoch: int = 0) -> list[int]:
    return [int(y) for chunk in source.epoch(epoch) for y in chunk.visited(chunk.y)]


def ids(source: Source, epoch: int = 0) -> dict[int, int]:
    """Label to stable number."""
    pairs = [(int(y), int(i)) for c in source.epoch(epoch) for y, i in zip(c.visited(c.y), c.row_ids, strict=True)]
    assert len(dict(pairs)) == len(pairs)
    return dict(pairs)


def test_file_order_is_kept(path):
    chunks = list(scan_libsvm(path))
    assert len(chunks) > 5
    assert labels(scan_libsvm(path)) == list(range(N_ROWS))
    for chunk in chunks:
        assert chunk.order is None
        for i, label in enumerate(chunk.y):
            entries = slice(chunk.indptr[i], chunk.indptr[i + 1])
            assert chunk.indices[entries].tolist() == list(range(int(label) % 5))
            assert (chunk.values[entries] == np.float32(label + 0.5)).all()


@pytest.mark.parametrize("how", SHUFFLES)
def test_every_order_visits_each_row_once_under_its_own_number(path, how):
    plain = ids(scan_libsvm(path))
    assert len(set(plain.values())) == N_ROWS
    for epoch in range(3):
        assert ids(scan_libsvm(path).shuffle(how, seed=3), epoch) == plain


@pytest.mark.parametrize("how", SHUFFLES)
def test_an_order_is_a_function_of_seed_and_epoch(path, how, monkeypatch):
    source = scan_libsvm(path).shuffle(how, seed=1)
    first, second = labels(source, 0), labels(source, 1)
    assert labels(source, 0) == first
    assert (first == second) == (how in ("never", "once"))
    assert (labels(source.shuffle(how, seed=2)) == first) == (how == "never")
    monkeypatch.setattr(lines, "PARSING_THREADS", 1)
    assert labels(source, 0) == first


def test_shuffled_blocks_come_from_all_over_the_file(path):
    groups = [chunk.y for chunk in scan_libsvm(path).shuffle("blocks").epoch(0)]
    assert max(group.max() - group.min() for group in groups) > N_ROWS / 2
    assert max(len(group) for group in groups) < N_ROWS / 4


def test_runs_of_rows_stay_together_under_blocks_only(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "BLOCK_BYTES", 1 << 20)
    path = write(tmp_path / "one_block", TEXT)

    def neighbours(how: str) -> int:
        visited = np.array(labels(scan_libsvm(path).shuffle(how)))
        return int((np.diff(visited) == 1).sum())

    assert neighbours("never") == N_ROWS - 1
    monkeypatch.setattr(order, "LEAST_RUNS", 10)
    assert N_ROWS * 0.95 < neighbours("blocks") < N_ROWS - 1
    monkeypatch.setattr(order, "LEAST_RUNS", 1024)  # few rows are mixed one by one
    assert neighbours("blocks") < N_ROWS * 0.05
    assert neighbours("rows") < N_ROWS * 0.05


def test_a_packed_stream_is_shuffled_inside_its_window_only(tmp_path):
    path = write(tmp_path / "rows.gz", gzip.compress(TEXT))
    source = scan_libsvm(path).shuffle("rows")
    firsts = [chunk.y.min() for chunk in source.epoch(0)]
    assert firsts == sorted(firsts)
    visited = labels(source)
    assert visited != sorted(visited) == list(range(N_ROWS))


def test_packed_and_plain_files_give_the_same_numbers(tmp_path, path):
    packed = write(tmp_path / "rows.gz", gzip.compress(TEXT))
    assert ids(scan_libsvm(packed)) == ids(scan_libsvm(path))
    assert ids(scan_libsvm(packed).shuffle()) == ids(scan_libsvm(path))


def test_several_files_are_one_source(tmp_path):
    parts = TEXT.splitlines(keepends=True)
    first = write(tmp_path / "a", b"".join(parts[:300]))
    second = write(tmp_path / "b", gzip.compress(b"".join(parts[300:500])))
    third = write(tmp_path / "c", b"".join(parts[500:]).rstrip())
    source = scan_libsvm([first, second, third])
    assert labels(source) == list(range(N_ROWS))
    plain = ids(source)
    assert len(set(plain.values())) == N_ROWS
    for how in SHUFFLES:
        assert ids(source.shuffle(how), 1) == plain
    mixed = scan_libsvm([first, third]).shuffle("blocks")
    assert any(chunk.y.min() < 300 and chunk.y.max() >= 500 for chunk in mixed.epoch(0))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=40)
@given(st.integers(1, 20), st.sampled_from([1, 7, 64, 300, 5000, 1 << 20]), st.booleans(), st.sampled_from(SHUFFLES))
def test_shards_hold_each_line_exactly_once(tmp_path_factory, n, block_bytes, packed, how):
    path = write(tmp_path_factory.mktemp("shards") / "rows", gzip.compress(TEXT) if packed else TEXT)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "BLOCK_BYTES", block_bytes)
        shards = scan_libsvm(path).shuffle(how).shards(n)
        seen = [labels(shard, 1) for shard in shards]
    assert sorted(label for shard in seen for label in shard) == list(range(N_ROWS))


def test_shards_go_by_blocks_if_there_are_enough_and_by_rows_if_not(path, monkeypatch):
    by_block = scan_libsvm(path).shards(3)
    assert all(isinstance(shard, LibsvmSource) for shard in by_block)
    sizes = [len(labels(shard)) for shard in by_block]
    assert min(sizes) > 0.7 * N_ROWS / 3
    nested = [labels(part) for shard in by_block for part in shard.shards(2)]
    assert sorted(label for part in nested for label in part) == list(range(N_ROWS))
    assert all(nested)
    monkeypatch.setattr(lines, "SHARD_BLOCKS", 1000)
    by_row = scan_libsvm(path).shards(3)
    assert not any(isinstance(shard, LibsvmSource) for shard in by_row)
    assert sorted(label for shard in by_row for label in labels(shard)) == list(range(N_ROWS))


def test_many_small_files_are_spread_over_the_shards(tmp_path):
    parts = TEXT.splitlines(keepends=True)
    for i in range(16):
        write(tmp_path / f"part{i:02}", b"".join(parts[i * 4 : i * 4 + 4]))
    shards = scan_libsvm(str(tmp_path / "part*")).shards(4)
    assert [len(labels(shard)) for shard in shards] == [16, 16, 16, 16]


def test_a_split_is_the_same_in_every_order(path):
    source = scan_libsvm(path)
    train, held = source.holdout(0.3, seed=5)
    expected = set(labels(held))
    assert 0.2 * N_ROWS < len(expected) < 0.4 * N_ROWS
    assert expected | set(labels(train)) == set(range(N_ROWS))
    for how in SHUFFLES:
        shuffled_train, shuffled_held = source.shuffle(how, seed=9).holdout(0.3, seed=5)
        assert set(labels(shuffled_held, 2)) == expected
        assert not expected & set(labels(shuffled_train, 2))


def test_limit_takes_the_first_rows_and_reads_no_further(path):
    assert labels(scan_libsvm(path).limit(10)) == list(range(10))
    assert sorted(labels(scan_libsvm(path).limit(100).shuffle("rows"))) == list(range(100))
    _, held = scan_libsvm(path).limit(100).holdout(0.5)
    whole = ids(scan_libsvm(path))
    assert ids(held).items() <= whole.items()


def test_reading_ahead_is_bounded(path, monkeypatch):
    parsed = []
    parse = LibsvmSource.parse
    monkeypatch.setattr(LibsvmSource, "parse", lambda self, blocks: parsed.append(1) or parse(self, blocks))
    reading = scan_libsvm(path).epoch(0)
    next(reading)
    time.sleep(0.1)
    assert len(parsed) <= 1 + lines.QUEUE_CHUNKS + lines.PARSING_THREADS
    reading.close()


def bad_text(*places: int) -> bytes:
    parts = TEXT.splitlines(keepends=True)
    for place in places:
        parts[place] = b"7 1:abc\n"
    return b"".join(parts)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("how", SHUFFLES)
def test_a_bad_line_stops_reading_and_is_named(tmp_path, packed, how):
    path = write(tmp_path / "bad.svm", gzip.compress(bad_text(400)) if packed else bad_text(400))
    message = f"{path}, line 401: the value 'abc' is not a number; correct the line or pass on_bad_line=\"skip\""
    with pytest.raises(DataError) as caught:
        labels(scan_libsvm(path).shuffle(how))
    assert str(caught.value) == message


def test_rows_before_a_bad_group_are_still_given(tmp_path):
    reading = iter(scan_libsvm(write(tmp_path / "bad.svm", bad_text(400))))
    seen: list[int] = []
    with pytest.raises(DataError, match="line 401"):
        seen.extend(int(y) for chunk in reading for y in chunk.y)
    assert seen == list(range(len(seen)))
    assert 300 < len(seen) < 400


@pytest.mark.parametrize("packed", [False, True])
def test_skipped_lines_are_counted_once_and_the_first_three_shown(tmp_path, packed):
    places = [650, 100, 101, 400, 401, 3]
    path = write(tmp_path / "bad.svm", gzip.compress(bad_text(*places)) if packed else bad_text(*places))
    source = scan_libsvm(path, on_bad_line="skip")
    shuffled = source.shuffle("blocks", seed=4)
    assert (source.skipped.n, source.skipped.examples) == (0, [])
    for epoch in range(2):
        assert sorted(labels(shuffled, epoch)) == sorted(set(range(N_ROWS)) - set(places))
    train, held = source.holdout(0.5)
    assert len(labels(train)) + len(labels(held)) == N_ROWS - 6
    for shard in source.shards(3):
        labels(shard)
    assert source.skipped.n == 6
    assert source.skipped.examples == [
        f"{path}, line {line}: the value 'abc' is not a number" for line in (4, 101, 102)
    ]


def test_examples_survive_the_file(tmp_path):
    path = write(tmp_path / "bad.svm", bad_text(0, 2))
    source = scan_libsvm(path, on_bad_line="skip")
    labels(source)
    Path(path).unlink()
    assert source.skipped.examples[1].endswith("bad.svm, byte 16: the value 'abc' is not a number")


def test_lines_not_reached_are_not_counted(tmp_path):
    source = scan_libsvm(write(tmp_path / "bad.svm", bad_text(1, 690)), on_bad_line="skip")
    assert labels(source.limit(10)) == [0, *range(2, 11)]
    assert source.skipped.n == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"\n\n# nothing\n", "it has no rows; give a file with data"),
        (b"x\ny\n", "none of the 2 lines can be read, the first because: .*, line 1: the label 'x' is not a number"),
    ],
)
def test_a_file_without_rows_is_an_error(tmp_path, text, message):
    with pytest.raises(DataError, match=message):
        labels(scan_libsvm(write(tmp_path / "none.svm", text), on_bad_line="skip"))


def test_an_empty_packed_file_is_an_error(tmp_path):
    with pytest.raises(DataError, match="it has no rows"):
        labels(scan_libsvm(write(tmp_path / "none.gz", gzip.compress(b""))))


def test_a_file_that_vanishes_between_epochs_is_explained(path):
    source = scan_libsvm(path)
    labels(source)
    Path(path).unlink()
    with pytest.raises(DataError, match=r"rows.svm does not exist; check the name"):
        labels(source, 1)


def test_an_unknown_rule_for_bad_lines_is_refused(path):
    with pytest.raises(ValueError, match="on_bad_line='drop' is unknown; choose one of error, skip"):
        scan_libsvm(path, on_bad_line="drop")


def test_spans_of_a_group_keep_the_numbers_of_their_rows(path):
    chunk = next(iter(scan_libsvm(path)))
    assert chunk.ids is not None
    everything = chunk.row_ids
    assert chunk.span(5, 60).span(3, 20).row_ids.tolist() == everything[8:25].tolist()
    order = Order("rows", 1).permute(chunk.n_rows, 0)
    assert chunk.visit(order).span(4, 9).row_ids.tolist() == everything[order][4:9].tolist()


def test_groups_survive_blocks_that_are_read_together_and_stores_of_rows(tmp_path):
    path = write(tmp_path / "ranked.svm", "".join(f"{i % 3} qid:{i // 4} 1:{i}\n" for i in range(N_ROWS)).encode())
    source = scan_libsvm(path)
    assert next(iter(source)).ids is not None  # several blocks
    for same in (source, source.cache(tmp_path / "cache"), store_rows(source)):
        groups = np.concatenate([chunk.visited(chunk.group) for chunk in same])
        assert groups.tolist() == [i // 4 for i in range(N_ROWS)]


def test_the_root_is_under_all_derived_sources(path, tmp_path):
    source = scan_libsvm(path, on_bad_line="skip")
    derived = store_rows(source.limit(50).holdout(0.5)[0].cache(tmp_path / "cache").sample(9))
    assert derived.root is source
    assert next(derived.lineage) is derived
    assert derived.describe() == path
    assert derived.read_once is None
    assert scan_libsvm("-").limit(3).read_once == "standard input"
