"""Ctrl-C, full disks, no more threads, leftovers of killed runs, two threads on one estimator."""

from __future__ import annotations

import gzip
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from typing import ClassVar

import numpy as np
import pytest

import steepest as st
from conftest import sparse_problem
from steepest import atomic
from steepest.data.files import blocks
from steepest.data.files.blocks import map_ahead
from steepest.data.store import row_file
from steepest.engine.checkpoint import EARLIER_NAME, FILE_NAME, parse_every

linux = pytest.mark.skipif(sys.platform != "linux", reason="needs Linux")


def shell(*arguments, **options):
    command = [sys.executable, "-m", "steepest", *map(str, arguments)]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True, **options)


def rows_file(path, n=4000):
    rng = np.random.default_rng(0)
    lines = (f"{i % 2} {1 + i % 2}:1 {rng.integers(3, 100)}:1\n" for i in range(n))
    path.write_text("".join(lines))
    return path


def interrupted(tmp_path, *flags, by=signal.SIGINT):
    """Training without an end, and a signal after the first epoch: (exit status, what it said)."""
    data = rows_file(tmp_path / "data.svm")
    run = shell("train", data, "-m", tmp_path / "m", "--epochs", 10**8, "--json", *flags, stdout=subprocess.PIPE)
    run.stdout.readline()  # an epoch is done
    run.send_signal(by)
    _, said = run.communicate(timeout=60)
    return run.returncode, said


@linux
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_with_checkpoints_saves_what_it_learned(tmp_path, number):
    status, said = interrupted(tmp_path, "--checkpoint", tmp_path / "c", by=number)
    assert status == 128 + number
    assert said.splitlines()[-1].startswith(f"steepest: interrupted; {tmp_path / 'm'} holds what was learned")
    assert "Traceback" not in said
    assert st.load(tmp_path / "m").learner_.rows_learned > 0
    assert (tmp_path / "c" / FILE_NAME).exists()


@linux
def test_an_interrupted_run_without_checkpoints_overwrites_nothing_unless_asked(tmp_path):
    (tmp_path / "m").write_text("old")
    status, said = interrupted(tmp_path)
    assert (status, (tmp_path / "m").read_text()) == (130, "old")
    assert "nothing was overwritten" in said
    status, said = interrupted(tmp_path, "--on-interrupt", "save")
    assert status == 130
    assert st.load(tmp_path / "m").predict_proba([[0.0] * 99]).shape == (1, 2)


@linux
def test_a_mapped_file_that_is_cut_off_ends_the_run_in_a_sentence(tmp_path):
    st.scan(rows_file(tmp_path / "data.svm", 40_000)).cache(cache := tmp_path / "rows.cache").open()
    run = shell("train", cache, "-m", tmp_path / "m", "--epochs", 10**8, "--json", stdout=subprocess.PIPE)
    run.stdout.readline()  # an epoch is done
    os.truncate(cache, 1000)
    _, said = run.communicate(timeout=60)
    assert (run.returncode, said.count("\n")) == (1, 1)
    assert said.startswith("steepest: a file that is mapped into memory cannot be read any more")
    assert not (tmp_path / "m").exists()


class StopAfter(st.Monitor):
    """Asks for an end after some chunks."""

    def __init__(self, n):
        self.left = n

    def wants_stop(self):
        self.left -= 1
        return self.left < 0


@pytest.mark.parametrize("solver", ["asgd", "ftrl", "lbfgs", "saga", "newton_cg"])
def test_a_run_that_was_stopped_and_goes_on_has_the_bits_of_one_that_was_not(tmp_path, solver):
    X, y = sparse_problem(n_rows=2000, seed=3)

    def fit(**options):
        model = st.LinearClassifier(solver=solver, loss="log", epochs=3, max_iter=6, random_state=0)
        return model.fit_stream(st.from_arrays(X, y, chunk_rows=300), **options)

    for n in (0, 2, 4):
        stopped = fit(monitor=StopAfter(n), checkpoint=tmp_path / "c")
        assert any("stopped as requested" in event for event in stopped.history_.events)
        again = fit(checkpoint=tmp_path / "c", resume=True)
        np.testing.assert_array_equal(again.coef_, fit().coef_)
        assert not list((tmp_path / "c").iterdir())


@pytest.mark.parametrize("solver", ["sgd", "lbfgs", "gd", "cg", "newton_cg", "saga", "cd"])
def test_checkpoints_by_rows_are_taken_by_every_kind_of_solver(tmp_path, solver):
    X, y = sparse_problem(n_rows=1000, seed=3)
    penalty = "l1" if solver == "cd" else "l2"
    seen = []

    class Look(st.Monitor):
        def epoch_done(self, record):
            seen.append(sorted(path.name for path in (tmp_path / "c").iterdir()))

    model = st.LinearClassifier(solver=solver, loss="log", penalty=penalty, epochs=4, max_iter=4, tol=1e-12, alpha=1e-3)
    rows = st.from_arrays(X, y, chunk_rows=250)
    model.fit_stream(rows, checkpoint=tmp_path / "c", checkpoint_every="1000-rows", monitor=Look())
    assert FILE_NAME in seen[1]
    assert seen[2] == [EARLIER_NAME, FILE_NAME]


@pytest.mark.parametrize("stop_after", [4, 10**9])
def test_a_checkpoint_that_cannot_be_written_loses_nothing_that_was_learned(tmp_path, stop_after):
    X, y = sparse_problem(n_rows=1000, seed=3)
    place = tmp_path / "c"

    class Spoil(StopAfter):
        said: ClassVar[list[str]] = []

        def chunk_done(self, *_):
            if place.is_dir():
                shutil.rmtree(place)
                place.write_text("a file")

        def event(self, text):
            self.said.append(text)

    def fit(**options):
        rows = st.from_arrays(X, y, chunk_rows=250)
        return st.LinearClassifier(epochs=2, random_state=0).fit_stream(rows, **options)

    spoil = Spoil(stop_after)
    found = fit(monitor=spoil, checkpoint=place, checkpoint_every="500-rows")
    np.testing.assert_array_equal(found.coef_, fit(monitor=StopAfter(stop_after)).coef_)
    assert (
        spoil.said[0]
        == f"no checkpoint: the checkpoint directory {place} is a file; name another directory; training continues"
    )


def test_a_checkpoint_directory_that_was_removed_is_made_again(tmp_path):
    X, y = sparse_problem(n_rows=1000, seed=3)
    seen = []

    class Remove(st.Monitor):
        def epoch_done(self, record):
            seen.append((tmp_path / "c" / FILE_NAME).exists())
            shutil.rmtree(tmp_path / "c")

    rows = st.from_arrays(X, y, chunk_rows=250)
    st.LinearClassifier(epochs=3).fit_stream(
        rows, checkpoint=tmp_path / "c", checkpoint_every="1-rows", monitor=Remove()
    )
    assert seen == [True, True, True]


def test_a_checkpoint_that_cannot_be_written_is_found_before_training(tmp_path):
    (tmp_path / FILE_NAME).mkdir()
    with pytest.raises(st.DataError, match="not a file"):
        st.LinearClassifier().fit_stream(st.from_arrays(*sparse_problem(n_rows=99, seed=3)), checkpoint=tmp_path)


def test_a_damaged_checkpoint_falls_back_to_the_one_before(tmp_path):
    X, y = sparse_problem(n_rows=2000, seed=3)

    def fit(**options):
        model = st.LinearClassifier(epochs=3, random_state=0)
        return model.fit_stream(st.from_arrays(X, y, chunk_rows=300), **options)

    fit(monitor=StopAfter(9), checkpoint=tmp_path / "c", checkpoint_every="300-rows")
    newest = tmp_path / "c" / FILE_NAME
    for damage in (lambda: newest.write_bytes(newest.read_bytes()[:-7]), newest.unlink):
        damage()
        (tmp_path / "d").mkdir(exist_ok=True)
        for path in (tmp_path / "c").iterdir():
            (tmp_path / "d" / path.name).write_bytes(path.read_bytes())
        again = fit(checkpoint=tmp_path / "d", resume=True)
        np.testing.assert_array_equal(again.coef_, fit().coef_)


@pytest.mark.parametrize(
    ("text", "found"), [("30s", (30.0, np.inf)), ("100000-rows", (np.inf, 1e5)), ("1e6 rows", (np.inf, 1e6))]
)
def test_checkpoints_are_taken_by_seconds_or_rows(text, found):
    assert parse_every(text) == found
    for bad in ("", "30", "rows", "30m", "-1s"):
        with pytest.raises(st.ParameterError, match="30s"):
            parse_every(bad)


def test_an_output_that_cannot_be_written_is_found_before_training(tmp_path):
    data = rows_file(tmp_path / "data.svm", 10)
    model = tmp_path / "m"
    model.write_text("old")
    model.chmod(0o444)
    if os.access(model, os.W_OK):
        pytest.skip("this user may write everywhere")
    run = shell("train", data, "-m", model, "--epochs", 10**9)
    _, said = run.communicate(timeout=60)
    assert run.returncode == 2
    assert "cannot be written" in said


@linux
@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full")
def test_a_full_disk_is_a_failure_and_not_bad_input(tmp_path, monkeypatch, capsys):
    from steepest.cli import main

    data = rows_file(tmp_path / "data.svm", 100)

    def full(*_):
        raise OSError(28, "No space left on device")

    (tmp_path / "m").write_text("old")
    monkeypatch.setattr(atomic.os, "fsync", full)
    assert main(["train", str(data), "-m", str(tmp_path / "m"), "--quiet"]) == 1
    assert "free some space" in capsys.readouterr().err
    assert (tmp_path / "m").read_text() == "old"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data.svm", "m"]


def test_a_full_disk_does_not_lose_what_was_learned(tmp_path, monkeypatch, capsys):
    from steepest.cli import main

    data, replace = rows_file(tmp_path / "data.svm", 100), os.replace

    def full(source, target):
        if str(target).startswith(str(tmp_path / "full")):
            raise OSError(28, "No space left on device")
        replace(source, target)

    (tmp_path / "full").mkdir()
    (tmp_path / "spare").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "spare"))
    monkeypatch.setattr(atomic.os, "replace", full)
    assert main(["train", str(data), "-m", str(tmp_path / "full" / "m"), "--quiet"]) == 1
    (spare,) = (tmp_path / "spare").iterdir()
    assert f"what was learned is in {spare}" in capsys.readouterr().err
    assert st.load(spare).predict([[0.0] * 99]).shape == (1,)
    assert not list((tmp_path / "full").iterdir())


def test_a_disk_that_cannot_be_read_is_a_failure_and_not_bad_input(tmp_path, monkeypatch, capsys):
    from steepest.cli import main

    def broken(_):
        raise OSError(5, "Input/output error")

    data = rows_file(tmp_path / "data.svm", 100)
    monkeypatch.setattr(blocks.TextFile, "_bytes", broken)
    assert main(["train", str(data), "-m", str(tmp_path / "m"), "--quiet"]) == 1
    assert "data.svm cannot be read (Input/output error)" in capsys.readouterr().err


@pytest.mark.parametrize("left", [0, 1])
def test_fewer_threads_read_ahead_if_the_system_has_no_more(monkeypatch, left):
    start = threading.Thread.start
    allowed = [left]

    def limited(thread):
        if allowed[0] == 0:
            raise RuntimeError("can't start new thread")
        allowed[0] -= 1
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", limited)
    assert list(map_ahead(lambda x: x * x, iter(range(50)), threads=3)) == [x * x for x in range(50)]


def test_caches_mixtures_and_folds_need_no_threads_of_their_own(tmp_path, monkeypatch):
    X, y = sparse_problem(n_rows=300, seed=3)
    st.scan(rows_file(tmp_path / "data.svm", 300)).cache(cache := tmp_path / "rows.cache").open()
    row_file._verified.clear()

    def fit():
        st.LinearClassifier(epochs=1).fit_stream(st.scan(cache))
        mixed = st.LinearClassifier(parallel=st.Mixing(n_shards=3), n_jobs=2, epochs=2, random_state=0).fit(X, y)
        folds = st.cross_validate(st.LinearClassifier(epochs=1), X, y, folds=2, n_jobs=2)
        return mixed.coef_, folds.mean("loss")

    expected = fit()
    row_file._verified.clear()

    def refused(_):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refused)
    for found, should_be in zip(fit(), expected, strict=True):
        np.testing.assert_array_equal(found, should_be)


@linux
def test_a_fit_in_little_memory_ends_well_or_in_a_sentence(tmp_path):
    data = rows_file(tmp_path / "data.svm", 2000)
    for megabytes in (60, 120, 250):
        limit = f"ulimit -d {megabytes * 1024}; exec {sys.executable} -m steepest train {data} -m {tmp_path / 'm'}"
        run = subprocess.run(["bash", "-c", limit], stderr=subprocess.PIPE, text=True, check=False)
        assert run.returncode in (0, 1), run.stderr
        assert "Traceback" not in run.stderr or "site-packages" not in run.stderr, run.stderr


@pytest.mark.parametrize(
    ("raised", "status", "said"),
    [("MemoryError()", 1, "steepest: out of memory"), ("KeyboardInterrupt(15)", 143, "steepest: interrupted")],
)
def test_a_library_or_thread_that_crashes_at_the_end_does_not_hide_what_happened(raised, status, said):
    code = (
        "import atexit, os, sys; atexit.register(os.abort); sys.argv[1:] = ['train', 'x', '-m', 'y']; "
        f"from steepest import __main__, cli; cli._run = lambda *_: (_ for _ in ()).throw({raised}); "
        "sys.exit(__main__.main())"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (run.returncode, run.stderr.count("\n")) == (status, 1)
    assert run.stderr.startswith(said)


def test_bytes_behind_gzip_are_called_what_they_are(tmp_path):
    path = tmp_path / "rows.svm.gz"
    path.write_bytes(gzip.compress(b"1 1:1\n-1 2:1\n") + b"garbage")
    with pytest.raises(st.DataError, match="damaged") as refusal:
        st.LinearClassifier().fit_stream(st.scan(path))
    assert "cut short" not in str(refusal.value)


def test_unfinished_files_of_killed_writers_are_swept_at_the_next_write_to_the_directory(tmp_path):
    old, young = tmp_path / f".other.{'a' * 16}.part", tmp_path / f".third.{'b' * 16}.part"
    same = tmp_path / f".m.{'c' * 16}.part"
    for path in (old, young, same):
        path.write_text("unfinished")
    os.utime(old, (time.time() - 3600,) * 2)
    kept = tmp_path / ".part"
    kept.write_text("mine")
    atomic.write_text(tmp_path / "m", "new")
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(["m", ".part", young.name])


@linux
def test_writers_of_one_file_do_not_remove_each_others_unfinished_files(tmp_path, monkeypatch):
    lock, swept = atomic.fcntl.flock, []

    def swept_before(descriptor, how):  # another writer comes between the creation of the file and its lock
        if how & atomic.fcntl.LOCK_NB == 0 and not swept:
            swept.append(atomic.remove_leftovers(tmp_path / "m"))
        lock(descriptor, how)

    monkeypatch.setattr(atomic.fcntl, "flock", swept_before)
    atomic.write_text(tmp_path / "m", "new")
    assert swept
    assert [path.name for path in tmp_path.iterdir()] == ["m"]


def test_two_threads_that_fit_one_estimator_are_told_apart(tmp_path):
    X, y = sparse_problem(n_rows=300, seed=3)
    model, entered, go_on, errors = st.LinearClassifier(epochs=2), threading.Event(), threading.Event(), []

    class Wait(st.Monitor):
        def epoch_done(self, record):
            entered.set()
            go_on.wait(30)

    first = threading.Thread(target=lambda: model.fit_stream(st.from_arrays(X, y), monitor=Wait()))
    first.start()
    entered.wait(30)
    for learn in (model.fit, model.partial_fit):
        with pytest.raises(st.ParameterError, match="another thread is fitting"):
            learn(X, y)
    with pytest.raises(st.ParameterError, match="another thread is fitting"):
        model.save(tmp_path / "m")  # half of one state and half of the next
    go_on.set()
    first.join()
    assert not errors
    model.fit(X, y)


def test_a_factorization_that_was_interrupted_says_that_it_is_not_fitted():
    model = st.MatrixFactorization(2, random_state=0)

    class Stop(st.Monitor):
        def epoch_done(self, record):
            raise KeyboardInterrupt

    pairs, y = np.array([[0, 0], [0, 1], [1, 0]]), np.array([1.0, 2.0, 3.0])
    with pytest.raises(KeyboardInterrupt):
        model.fit_stream(st.from_ratings(pairs[:, 0], pairs[:, 1], y), monitor=Stop())
    with pytest.raises(ValueError, match="not fitted"):
        model.predict(pairs)
    model.fit(pairs, y)
    assert np.isfinite(model.predict(pairs)).all()


@linux
def test_a_finished_run_leaves_no_unfinished_checkpoint_of_a_killed_one(tmp_path):
    X, y = sparse_problem(n_rows=300, seed=3)
    left = tmp_path / "c" / f".{FILE_NAME}.{'0' * 16}.part"
    left.parent.mkdir()
    left.write_text("cut short")
    st.LinearClassifier(solver="sgd", epochs=1).fit_stream(st.from_arrays(X, y), checkpoint=tmp_path / "c")
    assert not list((tmp_path / "c").iterdir())
