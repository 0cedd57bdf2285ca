"""The cache: the same rows as without it, the same bits each time, and nothing stale or damaged is ever believed."""

from __future__ import annotations

import errno
import gzip
import os
import subprocess
import sys
import textwrap
import time
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as hs
from sklearn.datasets import dump_svmlight_file

import steepest as st
from conftest import sparse_problem
from steepest.cli import main
from steepest.data.chunk import Chunk, concatenate
from steepest.data.files import blocks as files
from steepest.data.files import checksum
from steepest.data.files.checksum import crc32
from steepest.data.readers import lines
from steepest.data.source import BLOCK_ROWS, SHUFFLES, ArraySource, Order, Source, from_arrays
from steepest.data.store import cache, row_file
from steepest.data.store.cache import CachedSource
from steepest.errors import DataError

N_ROWS = 700
# Row i has label i, and i % 5 entries; columns grow with i, so that chunks differ in their number of features.
TEXT = "".join(f"{i}{''.join(f' {i // 7 + j + 1}:{i}.5' for j in range(i % 5))}\n" for i in range(N_ROWS)).encode()


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch):
    monkeypatch.setattr(files, "BLOCK_BYTES", 256)
    monkeypatch.setattr(lines, "SHARD_BLOCKS", 1)


@pytest.fixture
def data(tmp_path) -> Path:
    path = tmp_path / "rows.svm"
    path.write_bytes(TEXT)
    return path


@pytest.fixture
def place(tmp_path) -> Path:
    folder = tmp_path / "caches"
    folder.mkdir()
    return folder / "rows.cache"


def rows(source: Source, epoch: int = 0) -> list[tuple]:
    """Each visited row as plain values: stable number, target, weight, entries."""
    found = []
    for chunk in source.epoch(epoch):
        packed = chunk.packed()
        for i, number in enumerate(chunk.row_ids.tolist()):
            entries = slice(packed.indptr[i], packed.indptr[i + 1])
            y = None if packed.y is None else packed.y[i : i + 1].tolist()
            weight = None if packed.weight is None else packed.weight[i].item()
            found.append((number, y, weight, packed.indices[entries].tolist(), packed.values[entries].tolist()))
    return found


def new_process() -> None:
    """What was verified by one process is not known to the next."""
    row_file._verified.clear()


class FromChunks(Source):
    """Rows in memory that claim to come from a file."""

    def __init__(self, *chunks: Chunk, name: str = "chunks") -> None:
        self.chunks = chunks
        self.name = name

    def fingerprint(self):
        return {"files": [[self.name, 0, 0]]}

    def read(self, order, epoch):
        yield from self.chunks


def block(n_rows: int, first_id: int = 0, y=None, weight=None, n_features: int = 9) -> Chunk:
    indptr = np.arange(n_rows + 1, dtype=np.int64)
    indices = (np.arange(n_rows) % n_features).astype(np.int32)
    return Chunk(indptr, indices, indptr[1:].astype(np.float32), n_features, y, weight, first_id=first_id)


# ------------------------------------------------------------------------------------------------------ the same rows


@pytest.mark.parametrize("packed", [False, True])
def test_rows_labels_and_numbers_are_those_of_the_file(data, place, packed):
    if packed:
        text = data.read_bytes()
        data = data.with_suffix(".svm.gz")
        data.write_bytes(gzip.compress(text))
    source = st.scan_libsvm(data)
    expected = rows(source)
    assert len(expected) == N_ROWS
    assert rows(source.cache(place)) == expected
    assert rows(source.cache(place)) == expected  # from the file this time


def test_sizes_are_known_and_are_those_of_all_chunks(data, place):
    source = st.scan_libsvm(data)
    widths = {chunk.n_features for chunk in source}
    cached = source.cache(place)
    assert len(widths) > 1
    assert (cached.n_rows, cached.n_features) == (N_ROWS, max(widths))
    assert {chunk.n_features for chunk in cached} == {max(widths)}


def test_recipe_is_how_raw_files_are_read(data, place):
    source = st.scan_libsvm(data)
    assert source.cache(place).open().recipe == {"format": "libsvm", "zero_based": False, "n_features": None}


@pytest.mark.parametrize("how", SHUFFLES)
@pytest.mark.parametrize("epoch", [0, 1])
def test_order_is_that_of_rows_in_memory(data, place, how, epoch):
    cached = st.scan_libsvm(data).cache(place)
    memory = ArraySource(concatenate(list(st.scan_libsvm(data))))
    visited, expected = (rows(source.shuffle(how, 3), epoch) for source in (cached, memory))
    assert [row[1:] for row in visited] == [row[1:] for row in expected]


@given(hs.integers(0, 1000), hs.sampled_from(SHUFFLES), hs.integers(0, 3), hs.integers(0, 99))
def test_runs_are_the_permutation_in_short(n_rows, how, epoch, seed):
    order = Order(how, seed)
    runs, whole = order.runs(n_rows, epoch), order.permute(n_rows, epoch)
    if runs is None:
        assert whole is None
        return
    parts = [range(start, stop) for start, stop in runs.edges] + [range(s, s + runs.length) for s in runs.starts]
    assert [row for part in parts for row in part] == whole.tolist()
    assert sorted(whole.tolist()) == list(range(n_rows))


def test_chunks_of_shuffled_rows_do_not_copy_the_file(place):
    chunks = list(FromChunks(block(5000)).cache(place).shuffle("blocks"))
    whole = max(chunks, key=lambda chunk: chunk.n_rows)
    assert whole.n_rows >= BLOCK_ROWS
    assert not whole.indices.flags.owndata
    assert not whole.indices.flags.writeable


@pytest.mark.parametrize("how", SHUFFLES)
def test_holdout_has_the_same_sides(data, place, how):
    source = st.scan_libsvm(data)
    cached = source.cache(place)
    for plain, through in zip(source.holdout(0.3, 5), cached.holdout(0.3, 5), strict=True):
        kept = rows(plain)
        assert 100 < len(kept) < 600
        assert sorted(rows(through.shuffle(how, 1), 2)) == kept


def test_shards_hold_each_row_once(data, place):
    cached = st.scan_libsvm(data).cache(place)
    parts = [rows(shard) for shard in cached.shards(3)]
    assert all(parts)
    assert sorted(row for part in parts for row in part) == rows(st.scan_libsvm(data))


def test_limit_is_the_first_rows_whatever_the_order(data, place):
    limited = st.scan_libsvm(data).cache(place).limit(150)
    expected = rows(st.scan_libsvm(data))[:150]
    assert limited.n_rows == 150
    assert rows(limited) == expected
    shuffled = rows(limited.shuffle("blocks", 1))
    assert shuffled != expected
    assert sorted(shuffled) == expected
    assert len(rows(limited.limit(200))) == 150
    assert rows(limited.limit(0)) == []


def test_derived_sources_can_be_cached(data, place):
    source = st.scan_libsvm(data)
    for derived in (source.limit(200), *source.holdout(0.2, 1), source.shards(2)[1], source.holdout(0.5)[0].limit(50)):
        cached = derived.cache(place)
        assert rows(cached) == rows(derived)
    assert cached.note == f"the cache {place} was made with other options: rebuilt"


def test_a_cache_of_a_cache(data, place):
    cached = st.scan_libsvm(data).cache(place)
    assert rows(cached.limit(99).cache(place.with_suffix(".two"))) == rows(st.scan_libsvm(data))[:99]


def test_several_files(data, place, tmp_path):
    second = tmp_path / "second.svm"
    second.write_bytes(b"5 9:1\n6 1:2\n")
    source = st.scan_libsvm([data, second])
    assert rows(source.cache(place)) == rows(source)


@pytest.mark.parametrize("dtype", [object, np.str_])
def test_texts_as_targets(place, dtype):
    first, second = (np.array(names, dtype) for names in (["b", "a", "b"], ["longer ☃", "a"]))
    source = FromChunks(block(3, 10, first), block(2, 40, second))
    cached = source.cache(place)
    assert rows(cached) == rows(source)
    (chunk,) = cached
    assert chunk.y.dtype.kind == np.dtype(dtype).kind
    assert sorted(rows(cached.shuffle("rows"))) == rows(source)


def test_a_classifier_learns_texts_from_a_cache(place):
    names = np.array(["no", "yes"])[np.arange(4000) % 2]
    model = st.LinearClassifier(random_state=0).fit_stream(FromChunks(block(4000, y=names, n_features=10)).cache(place))
    assert model.classes_.tolist() == ["no", "yes"]
    assert model.predict(1000 * np.eye(10)).tolist() == ["no", "yes"] * 5  # values run from 1 to 4000


def test_weights_of_some_rows(place):
    source = FromChunks(
        block(3, 0, np.zeros(3)), block(2, 3, np.ones(2), np.array([0.5, 2.0])), block(1, 5, np.ones(1))
    )
    assert [row[2] for row in rows(source.cache(place))] == [1.0, 1.0, 1.0, 0.5, 2.0, 1.0]


def test_several_targets_a_row(place):
    y = np.arange(12.0).reshape(6, 2)
    (chunk,) = FromChunks(block(6, y=y)).cache(place)
    np.testing.assert_array_equal(chunk.y, y)


def test_no_targets(data, place):
    source = st.scan_libsvm(data, with_labels=False)
    assert rows(source.cache(place)) == rows(source)
    assert rows(source)[0][1] is None


def test_no_rows(place):
    cached = FromChunks().cache(place)
    assert (cached.n_rows, rows(cached), rows(cached.shuffle("rows"))) == (0, [], [])


@pytest.mark.parametrize(
    ("chunks", "message"),
    [
        ([block(2, y=np.ones(2)), block(2, y=np.array(["a", "b"]))], "targets change their type after row 2"),
        ([block(2, y=np.ones(2)), block(2)], "targets change their type after row 2"),
        ([block(2, y=np.array([1, None], object))], "the target 1 is neither a number nor a text"),
        ([block(2, y=np.ones((2, 2))), block(2, y=np.ones((2, 3)))], "keep their number"),
    ],
)
def test_targets_that_do_not_fit_together(place, chunks, message):
    with pytest.raises(DataError, match=message):
        FromChunks(*chunks).cache(place).open()
    assert os.listdir(place.parent) == []


def test_skipped_lines_are_told_each_time(data, place):
    data.write_bytes(b"1 1:1\nbad\n" * 20 + TEXT)
    for _ in range(2):
        source = st.scan_libsvm(data, on_bad_line="skip").cache(place)
        rows(source)
        assert source.skipped.n == 20
        assert source.skipped.examples[0] == f"{data}, line 2: the label 'bad' is not a number"


# ----------------------------------------------------------------------------------------------------- the same bits


@pytest.mark.parametrize("how", SHUFFLES)
def test_a_model_has_the_same_bits_whether_the_cache_was_there_or_not(tmp_path, place, how):
    X, y = sparse_problem(n_rows=3000, seed=8)
    dump_svmlight_file(X, y, str(tmp_path / "train.svm"), zero_based=False)
    models = []
    for _ in range(2):
        new_process()
        train, held = st.scan_libsvm(tmp_path / "train.svm").cache(place).holdout(0.1, 0)
        models.append(st.LinearClassifier(epochs=3, shuffle=how, random_state=1).fit_stream(train, held))
    first, second = models
    assert first.coef_.any()
    assert first.coef_.tobytes() == second.coef_.tobytes()
    losses = [[record["holdout_loss"] for record in model.history_.records] for model in models]
    assert losses[0] == losses[1]


def test_a_model_has_the_bits_of_one_from_memory(tmp_path, place):
    X, y = sparse_problem(n_rows=3000, seed=8)
    dump_svmlight_file(X, y, str(tmp_path / "train.svm"), zero_based=False)
    source = st.scan_libsvm(tmp_path / "train.svm")
    memory = ArraySource(concatenate(list(source)))
    models = [st.LinearClassifier(random_state=1).fit_stream(s) for s in (source.cache(place), memory)]
    assert models[0].coef_.tobytes() == models[1].coef_.tobytes()


def test_scores_of_features_never_learned(tmp_path, place):
    """A model narrower than the cache scores shuffled rows as it scores them in file order."""
    model = st.LinearClassifier(random_state=0).fit(np.eye(4), [0, 1, 0, 1])
    source = FromChunks(block(500, y=np.arange(500) % 2.0)).cache(place)
    result = [model.evaluate_stream(s)["accuracy"] for s in (source, source.shuffle("blocks"), source.shuffle("rows"))]
    assert result[0] == result[1] == result[2]


# ------------------------------------------------------------------------------------------- what is never believed


def test_a_valid_cache_is_not_written_again(data, place):
    assert st.scan_libsvm(data).cache(place).open().note == ""
    before = place.stat()
    new_process()
    assert st.scan_libsvm(data).cache(place).open().note == ""
    assert (place.stat().st_ino, place.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_the_cache_is_built_when_it_is_needed(data, place):
    source = st.scan_libsvm(data).cache(place).shuffle("rows")
    assert not place.exists()
    next(iter(source))
    assert place.exists()
    assert os.listdir(place.parent) == [place.name]


def test_a_newer_file_makes_a_new_cache(data, place):
    st.scan_libsvm(data).cache(place).open()
    os.utime(data, ns=(1, 1))
    cached = st.scan_libsvm(data).cache(place).open()
    assert cached.note == f"the cache {place} was made from an older {data}: rebuilt"
    data.write_bytes(TEXT + b"1 1:1\n")
    os.utime(data, ns=(1, 1))
    cached = st.scan_libsvm(data).cache(place)
    assert len(rows(cached)) == N_ROWS + 1
    assert cached.note == f"the cache {place} was made from an older {data}: rebuilt"


def test_other_options_make_a_new_cache(data, place):
    st.scan_libsvm(data).cache(place).open()
    for options in (
        {"zero_based": True},
        {"n_features": 999},
        {"with_labels": False},
        {"on_bad_line": "skip"},
    ):
        source = st.scan_libsvm(data, **options)
        cached = source.cache(place)
        assert [row[1:] for row in rows(cached)] == [row[1:] for row in rows(source)]
        assert cached.note == f"the cache {place} was made with other options: rebuilt"
        assert cached.n_features == 999 or "n_features" not in options


def test_another_signature_makes_a_new_cache(data, place):
    for signature in ("a", "b"):
        source = st.scan_libsvm(data)
        source.signature = signature
        cached = source.cache(place).open()
    assert cached.note == f"the cache {place} was made with other options: rebuilt"
    again = st.scan_libsvm(data)
    again.signature = "b"
    assert again.limit(9).signature == "b"
    assert again.cache(place).open().note == ""


def test_a_cache_of_other_files_is_not_believed(data, place, tmp_path):
    st.scan_libsvm(data).cache(place).open()
    other = tmp_path / "other.svm"
    other.write_bytes(TEXT)
    cached = st.scan_libsvm(other).cache(place)
    cached.open()
    assert cached.note == f"the cache {place} was made from other files: rebuilt"


def test_a_cache_of_another_version_is_not_believed(data, place, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(row_file, "FORMAT_VERSION", 99)
        st.scan_libsvm(data).cache(place).open()
    assert st.scan_libsvm(data).cache(place).open().note.endswith("was written by another version of steepest: rebuilt")


def test_data_that_changes_while_it_is_cached(data, place):
    class Changing(FromChunks):
        def read(self, order, epoch):
            yield block(3)
            self.name = "later"

    with pytest.raises(DataError, match="the data changed while the cache"):
        Changing(name="before").cache(place).open()
    assert os.listdir(place.parent) == []


@pytest.fixture
def small(tmp_path, place, monkeypatch):
    """A source, its rows, and the bytes of its cache, which stand in for building it thousands of times."""
    path = tmp_path / "small.svm"
    path.write_bytes(b"1 1:0.5 3:2\n0 2:1\n1 3:4\n")
    source = st.scan_libsvm(path)
    expected = rows(source.cache(place))
    content = place.read_bytes()
    monkeypatch.setattr(cache, "_build", lambda *_: place.write_bytes(content))
    return source, expected, content


def test_every_changed_byte_is_noticed(small, place):
    source, expected, content = small
    noticed = 0
    for i in range(len(content)):
        damaged = bytearray(content)
        damaged[i] ^= 0xFF if i % 2 else 0x01
        place.write_bytes(damaged)
        new_process()
        cached = source.cache(place)
        assert rows(cached) == expected, i
        noticed += bool(cached.note)
    assert noticed > 0.7 * len(content)  # all but the padding between arrays


def test_every_truncation_is_noticed(small, place):
    source, expected, content = small
    for n_bytes in range(len(content)):
        place.write_bytes(content[:n_bytes])
        new_process()
        cached = source.cache(place)
        assert rows(cached) == expected
        assert cached.note.endswith(": rebuilt"), n_bytes
    place.write_bytes(content + b"x")
    new_process()
    assert source.cache(place).open().note.endswith("was cut short or has grown: rebuilt")


@pytest.mark.parametrize("content", [b"1 1:1\n", b"\0" * 200, b"somebody's work of many years" * 9])
def test_a_file_that_is_no_cache_is_left_alone(data, place, content):
    place.write_bytes(content)
    with pytest.raises(DataError, match="exists and is not a cache; choose another name"):
        st.scan_libsvm(data).cache(place).open()
    assert place.read_bytes() == content


def test_the_data_itself_is_left_alone(data):
    with pytest.raises(DataError, match="is not a cache"):
        st.scan_libsvm(data).cache(data).open()
    assert data.read_bytes() == TEXT


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no pipes with names")
def test_neither_a_folder_nor_a_pipe_can_be_the_cache(data, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "pipe"):
        with pytest.raises(DataError, match="the cache"):
            st.scan_libsvm(data).cache(path).open()


BUILD_SLOWLY = """
    import os, sys, time
    import steepest as st
    from steepest.data.files import blocks as files
    from steepest.data.readers import libsvm
    files.BLOCK_BYTES = 256
    class Slow(libsvm.LibsvmSource):
        def parse(self, blocks):
            if any(b"\\n500 " in bytes(block.text) for block in blocks):
                print("half", flush=True)
                time.sleep(60)
            return super().parse(blocks)
    source = st.scan_libsvm(sys.argv[1])
    source.__class__ = Slow
    source.cache(sys.argv[2]).open()
"""


def start(code: str, *arguments: object, **more) -> subprocess.Popen:
    command = [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **more)


def test_a_killed_builder_leaves_nothing_that_is_believed(tmp_path, place):
    path = tmp_path / "killed.svm"
    path.write_text("".join(f"{i} 1:{i}\n# a comment\n" for i in range(N_ROWS)))
    builder = start(BUILD_SLOWLY, path, place)
    assert builder.stdout.readline() == "half\n"
    time.sleep(0.1)
    (unfinished,) = os.listdir(place.parent)
    assert unfinished.endswith(".part")
    other = st.scan_libsvm(path).cache(place)  # builds beside the one at work, and does not disturb it
    assert len(rows(other)) == N_ROWS
    assert sorted(os.listdir(place.parent)) == sorted([unfinished, place.name])
    place.unlink()
    builder.kill()
    builder.wait()
    assert os.listdir(place.parent) == [unfinished]
    assert rows(st.scan_libsvm(path).cache(place)) == rows(st.scan_libsvm(path))
    assert os.listdir(place.parent) == [place.name]


def test_a_builder_that_fails_leaves_the_old_cache(data, place):
    st.scan_libsvm(data).cache(place).open()
    before = place.read_bytes()
    data.write_bytes(TEXT + b"bad\n")
    with pytest.raises(DataError, match="'bad' is not a number"):
        st.scan_libsvm(data).cache(place).open()
    assert place.read_bytes() == before
    assert os.listdir(place.parent) == [place.name]


# ----------------------------------------------------------------------------------------------- what cannot be done


def test_arrays_need_no_cache(place):
    source = from_arrays(np.eye(3), [0, 1, 0])
    assert source.cache(place) is source
    assert not place.exists()
    with pytest.raises(DataError, match="do not come from files"):
        source.shards(2)[0].cache(place)


def test_pipes_cannot_be_cached(tmp_path, place):
    with pytest.raises(DataError, match="standard input can be read only once, so it cannot be cached; save it"):
        st.scan_libsvm("-").cache(place)


def test_a_missing_folder(data, tmp_path):
    with pytest.raises(DataError, match=r"cannot be written \(No such file or directory\); create its directory first"):
        st.scan_libsvm(data).cache(tmp_path / "no" / "x.cache").open()


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write everywhere")
def test_a_protected_folder(data, place):
    place.parent.chmod(0o500)
    try:
        with pytest.raises(DataError, match=r"cannot be written \(Permission denied\); choose a place"):
            st.scan_libsvm(data).cache(place).open()
    finally:
        place.parent.chmod(0o700)


def test_a_disk_that_only_reads(data, place, monkeypatch):
    def refuse(*_, **__):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(row_file.tempfile, "TemporaryFile", refuse)
    with pytest.raises(DataError, match=r"cannot be written \(Read-only file system\); choose a place"):
        st.scan_libsvm(data).cache(place).open()
    assert os.listdir(place.parent) == []


FULL_DISK = """
    import resource, sys
    import steepest as st
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[3]), int(sys.argv[3])))
    try:
        st.scan_libsvm(sys.argv[1]).cache(sys.argv[2]).open()
    except st.DataError as error:
        print(error)
"""


@pytest.mark.parametrize("n_bytes", [0, 1000, 8000, 20_000])
def test_a_full_disk(data, place, n_bytes):
    pytest.importorskip("resource")
    st.scan_libsvm(data).cache(place).open()
    assert place.stat().st_size > 20_000
    place.unlink()
    said, errors = start(FULL_DISK, data, place, n_bytes).communicate()
    assert (said, errors) == (
        f"the cache {place} cannot be written (File too large); free some space or choose another disk\n",
        "",
    )
    assert os.listdir(place.parent) == []


MEASURE = """
    import sys
    import steepest as st
    def peak():
        return int(next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1]) / 1024
    st.scan_libsvm(sys.argv[1]).limit(1000).cache(sys.argv[2]).open()
    before = peak()
    source = st.scan_libsvm(sys.argv[1]).cache(sys.argv[2]).open()
    print(source.n_rows, before, peak())
"""


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="memory is read from /proc")
def test_memory_does_not_grow_with_the_rows(tmp_path, place):
    entries = " ".join(f"{j}:0.{j}" for j in range(1, 100))
    line = f"1 {entries}\n-1 {entries}\n"
    n_lines = 60_000_000 // len(line)
    (tmp_path / "large.svm").write_text(line * n_lines)
    said, errors = start(MEASURE, tmp_path / "large.svm", place).communicate()
    assert not errors
    n_rows, before, after = map(float, said.split())
    assert n_rows == 2 * n_lines
    assert place.stat().st_size > 50e6
    assert after < 150
    assert after - before < 60


# ------------------------------------------------------------------------------------------------- the command line


def test_the_command_line(tmp_path, place, capsys):
    X, y = sparse_problem(n_rows=2000, seed=9)
    path = tmp_path / "train.svm"
    dump_svmlight_file(X, y, str(path), zero_based=False)
    for name in ("a", "b", "c"):
        new_process()
        if name == "c":
            os.utime(path, ns=(1, 1))
        assert main(["train", str(path), "-m", str(tmp_path / name), "--cache", str(place), "--holdout", "0.2"]) == 0
        note = f"steepest: the cache {place} was made from an older {path}: rebuilt\n" if name == "c" else ""
        said = capsys.readouterr().err.splitlines(keepends=True)
        assert "".join(line for line in said if line.startswith("steepest: ")) == note
    models = [st.load(tmp_path / name) for name in ("a", "b", "c")]
    assert len({model.coef_.tobytes() for model in models}) == 1
    assert models[0].recipe_["format"] == "libsvm"


def test_the_command_line_predicts_and_limits(tmp_path, data, place, capsys):
    X, y = sparse_problem(n_rows=2000, seed=9)
    path = tmp_path / "train.svm"
    dump_svmlight_file(X, y, str(path), zero_based=False)
    model = str(tmp_path / "model")
    assert main(["train", str(path), "-m", model, "--quiet"]) == 0
    said = []
    for more in ([], ["--cache", str(place)], ["--cache", str(place), "--limit", "30"]):
        assert main(["predict", model, str(path), *more]) == 0
        said.append(capsys.readouterr().out.splitlines())
    assert said[0] == said[1]
    assert said[2] == said[0][:30]


def test_the_command_line_refuses_in_one_sentence(data, tmp_path, capsys):
    assert main(["train", str(data), "-m", str(tmp_path / "m"), "--cache", str(tmp_path / "no" / "c")]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_copies_share_the_open_file(data, place):
    source = st.scan_libsvm(data).cache(place)
    assert isinstance(source, CachedSource)
    expected = rows(source)
    shuffled = source.shuffle("rows", 1)
    place.unlink()
    assert sorted(rows(shuffled)) == expected
    assert not place.exists()


def test_checksums_are_those_of_zlib_with_and_without_a_faster_library(monkeypatch):
    pieces = [np.random.default_rng(0).bytes(n) for n in (0, 1, 100_001)]
    found = [crc32(piece, before) for piece in pieces for before in (0, 1 << 31)]
    assert found == [zlib.crc32(piece, before) for piece in pieces for before in (0, 1 << 31)]
    monkeypatch.setattr(checksum, "_fastest", lambda: zlib.crc32)
    assert found == [crc32(piece, before) for piece in pieces for before in (0, 1 << 31)]


def test_without_a_faster_library_zlib_computes_checksums(monkeypatch):
    monkeypatch.setitem(sys.modules, "isal.isal_zlib", None)
    assert checksum._fastest.__wrapped__() is zlib.crc32
