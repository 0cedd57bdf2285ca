"""The log by itself: cut or changed anywhere, it gives whole records or a refusal, never something else."""

from __future__ import annotations

import errno
import os

import pytest
from servers import models  # noqa: F401

from steepest.errors import DataError
from steepest.serve.row_log import RowLog

pytestmark = pytest.mark.xdist_group("serve-row_log")

GROUPS = [[b'{"rows":["a"],"labels":[1]}'], [b'{"rows":["b","c"],"labels":[1,2]}', b'{"rows":["d"],"labels":[3]}']]


@pytest.fixture
def whole(tmp_path):
    """(path, bytes, where each frame ends) of a log of two frames."""
    log = RowLog.create(str(tmp_path / "rows"), "me", 7)
    ends = [log.n_bytes]
    row = 7
    for group in GROUPS:
        log.append(row, group)
        row += sum(request.count(b'"') // 2 - 2 for request in group)
        ends.append(log.n_bytes)
    log.close()
    return tmp_path / "rows", (tmp_path / "rows").read_bytes(), ends


def test_what_is_appended_is_read_back(whole):
    path, data, _ = whole
    log, requests, torn = RowLog.open(str(path))
    assert (log.identity, log.n_bytes, torn) == ("me", len(data), 0)
    assert [row for row, _ in requests] == [7, 8, 10]
    assert [value["rows"] for _, value in requests] == [["a"], ["b", "c"], ["d"]]
    log.close()


def test_a_log_cut_anywhere_keeps_its_whole_frames(whole):
    path, data, ends = whole
    for length in range(ends[0], len(data)):
        path.write_bytes(data[:length])
        log, requests, torn = RowLog.open(str(path))
        n_frames = sum(end <= length for end in ends) - 1
        assert len(requests) == (0, 1, 3)[n_frames]
        assert torn == length - ends[n_frames]
        assert path.stat().st_size == ends[n_frames]
        log.append(8, GROUPS[0])  # and goes on behind them
        log.close()
        again, requests, torn = RowLog.open(str(path))
        assert (len(requests), torn) == ((0, 1, 3)[n_frames] + 1, 0)
        again.close()


def test_a_changed_byte_is_noticed(whole):
    path, data, ends = whole
    for place in range(len(data)):
        changed = bytearray(data)
        changed[place] ^= 0x10
        path.write_bytes(changed)
        try:
            log, requests, torn = RowLog.open(str(path))
        except DataError:
            continue
        log.close()
        if place >= ends[0]:  # the header's numbers are compared with the model's by the learner
            assert torn > 0
            assert len(requests) == (0 if place < ends[1] else 1)


def test_blocks_of_zeros_behind_the_last_frame_are_cut_off(whole):
    path, data, _ = whole
    path.write_bytes(data + bytes(5000))
    log, requests, torn = RowLog.open(str(path))
    assert (len(requests), torn) == (3, 5000)
    log.close()


def test_a_write_that_fails_leaves_the_log_as_it_was(whole, monkeypatch):
    path, data, _ = whole
    log, _, _ = RowLog.open(str(path))
    write = os.write

    def half(descriptor, view):
        write(descriptor, bytes(view)[:10])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "write", half)
    with pytest.raises(OSError, match="No space"):
        log.append(11, GROUPS[0])
    monkeypatch.undo()
    assert path.read_bytes() == data

    def fails(descriptor):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fdatasync", fails)
    with pytest.raises(OSError, match="Input/output"):
        log.append(11, GROUPS[0])
    monkeypatch.undo()
    assert path.read_bytes() == data
    log.append(11, GROUPS[0])
    log.close()
    assert len(RowLog.open(str(path))[1]) == 4


def test_other_files_are_not_logs(tmp_path):
    for content in (b"", b"something else", b"steepest rows 1\n", b"steepest rows 1\n{}\n", b"steepest rows 1\n[]\n"):
        (tmp_path / "rows").write_bytes(content)
        with pytest.raises(DataError, match="is not a log of learned rows"):
            RowLog.open(str(tmp_path / "rows"))


def test_a_record_that_could_not_be_cut_off_is_cut_off_before_the_next_one(whole, monkeypatch):
    path, _, _ = whole
    log, _, _ = RowLog.open(str(path))
    refused, truncate = OSError(errno.EIO, "broken"), os.ftruncate
    fails = {"fdatasync": 1, "fsync": 1, "ftruncate": 2}

    def failing(name, call):
        def fail(*arguments):
            fails[name] -= 1
            if fails[name] >= 0:
                raise refused
            return call(*arguments)

        return fail

    for name in fails:
        if hasattr(os, name):
            monkeypatch.setattr(os, name, failing(name, getattr(os, name)))
    for _ in range(2):  # neither the write nor the cut, then still not the cut
        with pytest.raises(OSError, match="broken"):
            log.append(11, GROUPS[0])
    monkeypatch.setattr(os, "ftruncate", truncate)
    log.append(11, [b'{"rows":["e"],"labels":[5]}'])
    log.close()
    log, requests, torn = RowLog.open(str(path))
    assert [value["rows"] for _, value in requests] == [["a"], ["b", "c"], ["d"], ["e"]]
    assert torn == 0
    log.close()
