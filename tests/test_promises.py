"""The promises of the design: same bits however the rows are cut, through files, and after a kill."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
from itertools import pairwise

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st_

import steepest as st
from conftest import sparse_problem

VARIANTS = {
    "sgd": dict(solver="sgd"),
    "asgd": dict(solver="asgd"),
    "asgd-eta": dict(solver="asgd", average="eta"),
    "adagrad": dict(solver="adagrad"),
    "coin": dict(solver="coin"),
    "ftrl-l1": dict(solver="ftrl", penalty="l1", alpha=1e-4),
    "sgd-l1": dict(solver="sgd", penalty="l1", alpha=1e-3),
    "sgd-elasticnet": dict(solver="sgd", penalty="elasticnet", alpha=1e-3),
    "truncated": dict(solver="truncated", penalty="l1", alpha=1e-3, truncate_every=7),
    "batches": dict(solver="sgd", batch_size=7),
    "given-step": dict(solver="sgd", eta0=0.5),
    "float64": dict(solver="sgd", dtype="float64"),
    "balanced": dict(solver="sgd", class_weight="balanced"),
    "hinge": dict(loss="hinge", solver="sgd", alpha=1e-3),
    "softmax": dict(multi_class="softmax", solver="sgd"),
    "hashed": dict(multi_class="hashed", table_bits=12),
    "hashed-sgd": dict(multi_class="hashed", table_bits=8, solver="sgd", loss="hinge", dtype="float64"),
    "hashed-ftrl": dict(multi_class="hashed", table_bits=12, solver="ftrl", penalty="l1", alpha=1e-4),
    "hashed-adagrad": dict(multi_class="hashed", table_bits=10, solver="adagrad", batch_size=5),
}


def same_bits(a, b):
    assert a.coef_.dtype == b.coef_.dtype
    np.testing.assert_array_equal(a.coef_, b.coef_)
    np.testing.assert_array_equal(a.intercept_, b.intercept_)
    np.testing.assert_array_equal(a.classes_, b.classes_)


def make(name, **more):
    return st.LinearClassifier(**{"random_state": 0, "epochs": 1, **VARIANTS[name], **more})


@pytest.mark.parametrize("name", VARIANTS)
@pytest.mark.parametrize("n_classes", [2, 4])
def test_partial_fit_in_pieces_learns_the_same_bits_as_at_once(name, n_classes):
    X, y = sparse_problem(n_rows=2500, n_classes=n_classes, seed=5)
    whole = make(name).partial_fit(X, y)
    pieces = make(name)
    for start, stop in ((0, 1), (1, 400), (400, 1003), (1003, 2500)):
        pieces.partial_fit(X[start:stop], y[start:stop])
    same_bits(whole, pieces)


@pytest.mark.parametrize("name", VARIANTS)
def test_save_and_load_between_pieces_change_no_bit(name, tmp_path):
    X, y = sparse_problem(n_rows=2300, n_classes=3, seed=6)
    labels = np.array(["red", "green", "blue"])[y]
    whole = make(name).partial_fit(X, labels)
    first = make(name).partial_fit(X[:777], labels[:777])
    first.save(tmp_path / "m.steepest")
    loaded = st.load(tmp_path / "m.steepest").partial_fit(X[777:], labels[777:])
    same_bits(whole, loaded)


@pytest.mark.parametrize("name", ["sgd", "asgd", "ftrl-l1", "batches"])
def test_one_stream_equals_partial_fit_then_partial_fit(name, tmp_path):
    X, y = sparse_problem(n_rows=2000, seed=7)
    stream = make(name, shuffle="never").fit_stream(st.from_arrays(X, y))
    parts = make(name).partial_fit(X[:900], y[:900])
    parts.save(tmp_path / "m.steepest")
    parts = st.load(tmp_path / "m.steepest").partial_fit(X[900:], y[900:])
    same_bits(stream, parts)


@given(cuts=st_.lists(st_.integers(1, 1499), max_size=6), name=st_.sampled_from(sorted(VARIANTS)))
@settings(max_examples=40, deadline=None)
def test_any_cuts_give_the_same_bits(cuts, name):
    X, y = sparse_problem(n_rows=1500, n_features=60, n_classes=3, density=0.1, seed=8)
    edges = [0, *sorted(set(cuts)), 1500]
    pieces = make(name)
    for start, stop in pairwise(edges):
        pieces.partial_fit(X[start:stop], y[start:stop])
    same_bits(make(name).partial_fit(X, y), pieces)


@pytest.mark.parametrize("shuffle", ["never", "once", "blocks", "rows"])
def test_chunk_size_changes_no_bit(shuffle):
    X, y = sparse_problem(n_rows=3000, seed=9)
    models = [
        st.LinearClassifier(epochs=3, shuffle=shuffle, random_state=4).fit_stream(
            st.from_arrays(X, y, chunk_rows=chunk_rows)
        )
        for chunk_rows in (3000, 1000, 17)
    ]
    same_bits(models[0], models[1])
    same_bits(models[0], models[2])


def test_same_seed_same_bits_other_seed_other_order():
    X, y = sparse_problem(n_rows=3000, seed=9)
    fit = lambda seed: st.LinearClassifier(epochs=2, random_state=seed).fit(X, y)
    same_bits(fit(1), fit(1))
    assert not np.array_equal(fit(1).coef_, fit(2).coef_)


def test_fit_is_fit_stream_from_arrays():
    X, y = sparse_problem(n_rows=1500, n_classes=3, seed=10)
    a = st.LinearClassifier(random_state=0).fit(X, y)
    b = st.LinearClassifier(random_state=0).fit_stream(st.from_arrays(X, y))
    np.testing.assert_array_equal(a.predict(X), b.predict(X))
    assert a.score(X, y) == b.score(X, y)


def test_weight_three_equals_three_copies():
    X, y = sparse_problem(n_rows=400, seed=11)
    weight = np.random.default_rng(0).integers(0, 4, 400)
    options = dict(solver="sgd", eta0=0.5, shuffle="never", epochs=2, random_state=0)
    weighted = st.LinearClassifier(**options).fit(X, y, sample_weight=weight)
    rows = np.repeat(np.arange(400), weight)
    same_bits(weighted, st.LinearClassifier(**options).fit(X[rows], y[rows]))


def test_weight_zero_is_as_if_the_row_were_absent():
    X, y = sparse_problem(n_rows=400, seed=12)
    weight = (np.arange(400) % 3 > 0).astype(float)
    options = dict(solver="asgd", eta0=0.5, shuffle="never", epochs=1, random_state=0)
    with_zeros = st.LinearClassifier(**options).fit(X, y, sample_weight=weight)
    same_bits(with_zeros, st.LinearClassifier(**options).fit(X[weight > 0], y[weight > 0]))


def test_pickle_keeps_every_bit_and_goes_on_alike():
    X, y = sparse_problem(n_rows=1500, seed=13)
    a = st.LinearClassifier(random_state=0).partial_fit(X[:700], y[:700])
    b = pickle.loads(pickle.dumps(a))
    same_bits(a.partial_fit(X[700:], y[700:]), b.partial_fit(X[700:], y[700:]))


def test_classes_may_appear_at_any_time_and_labels_may_be_strings():
    X, y = sparse_problem(n_rows=4000, n_classes=4, noise=0.0, seed=14)
    order = np.argsort(y, kind="stable")  # all of class 0 first, then 1, ...
    labels = np.array(["ant", "bee", "cat", "dog"])[y]
    model = st.LinearClassifier(solver="sgd", random_state=0)
    model.partial_fit(X[order[:1500]], labels[order[:1500]])
    assert set(model.classes_) < {"ant", "bee", "cat", "dog"}
    for _ in range(3):
        model.partial_fit(X, labels)
    assert model.classes_.tolist() == ["ant", "bee", "cat", "dog"]
    assert model.coef_.shape == (4, 200)
    assert model.score(X, labels) > 0.85


KILLED_RUN = """
import os, signal, sys
import steepest as st
from steepest.data.source import ArraySource
from steepest.engine import checkpoint
sys.path.insert(0, {tests!r})
from conftest import sparse_problem
X, y = sparse_problem(n_rows=4000, n_classes=3, seed=20)
left = [{chunks}]
class Mortal(ArraySource):
    def _copy(self):
        return Mortal(self.block, self.rows, self.chunk_rows)
    def _pick(self, rows):
        return Mortal(self.block, rows, self.chunk_rows)
    def read(self, order, epoch):
        for chunk in super().read(order, epoch):
            left[0] -= 1
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            yield chunk
source = Mortal(st.from_arrays(X, y).block, None, 200)
init = checkpoint.Checkpoints.__init__
checkpoint.Checkpoints.__init__ = lambda self, *a, **k: init(self, *a, **{{**k, "seconds": 0.0}})
model = st.LinearClassifier({options}, random_state=3)
model.fit_stream(source, checkpoint={folder!r}, resume={resume})
model.save({out!r})
"""
RUNS = [
    "epochs=4",
    "epochs=4, solver='ftrl', penalty='l1', alpha=1e-4, batch_size=9",
    "epochs=4, multi_class='hashed', table_bits=11",
    "epochs=6, early_stopping=True, patience=3, solver='sgd', eta0=50.0, schedule='adaptive'",
]


@pytest.mark.parametrize("chunks", [3, 31, 50])
@pytest.mark.parametrize("options", RUNS)
def test_a_killed_run_resumes_to_the_same_bits(tmp_path, options, chunks):
    def run(folder, out, chunks, resume):
        values = dict(folder=str(folder), out=str(out), chunks=chunks, resume=resume, options=options)
        script = KILLED_RUN.format(tests=os.path.dirname(__file__), **values)
        return subprocess.run([sys.executable, "-c", script], check=False, timeout=120).returncode

    whole, resumed = tmp_path / "whole.steepest", tmp_path / "resumed.steepest"
    assert run(tmp_path / "a", whole, 0, False) == 0
    assert run(tmp_path / "b", resumed, chunks, False) == -signal.SIGKILL
    assert not resumed.exists()
    assert (tmp_path / "b" / "checkpoint.steepest").exists()
    assert run(tmp_path / "b", resumed, 0, True) == 0
    same_bits(st.load(whole), st.load(resumed))
    assert st.load(whole).history_.column("loss") == pytest.approx(st.load(resumed).history_.column("loss"), rel=1e-12)
    assert not (tmp_path / "b" / "checkpoint.steepest").exists()


@pytest.mark.parametrize("kept", [True, False], ids=["rows kept", "rows read anew"])
@pytest.mark.parametrize("last_chunk", [1, 12, 17])
def test_a_killed_run_over_raw_texts_resumes_to_the_same_bits(tmp_path, monkeypatch, kept, last_chunk):
    from steepest.data import files
    from steepest.data import kept as shelves
    from steepest.engine.checkpoint import Checkpoints
    from steepest.engine.loop import Monitor

    rng = np.random.default_rng(3)
    lines = [f"{'ab'[i % 2]}\t{' '.join(f'w{j}' for j in rng.zipf(1.4, 12) + i % 2)}\n" for i in range(6000)]
    path = tmp_path / "texts.txt"
    path.write_text("".join(lines))
    monkeypatch.setattr(files, "BLOCK_BYTES", 1 << 13)
    monkeypatch.setattr(shelves, "CHUNK_ENTRIES", 1 << 13)
    monkeypatch.setattr(shelves, "KEPT_ROWS", 1 << 20 if kept else 1000)
    monkeypatch.setattr(Checkpoints, "maybe_save", Checkpoints.save)

    class Killed(Monitor):
        chunks = 0

        def chunk_done(self, *_):
            self.chunks += 1
            if self.chunks > last_chunk:
                raise KeyboardInterrupt

    def model():
        return st.LinearClassifier(hasher=st.Hasher(n_bits=14), epochs=3, random_state=0)

    whole = model().fit_stream(st.scan_text(path))
    with pytest.raises(KeyboardInterrupt):
        model().fit_stream(st.scan_text(path), monitor=Killed(), checkpoint=tmp_path / "c")
    resumed = model().fit_stream(st.scan_text(path), checkpoint=tmp_path / "c", resume=True)
    np.testing.assert_array_equal(whole.coef_, resumed.coef_)
    np.testing.assert_array_equal(whole.hasher_.document_counts_, resumed.hasher_.document_counts_)


def test_resume_refuses_a_checkpoint_of_another_run(tmp_path):
    X, y = sparse_problem(n_rows=1200, seed=21)
    from steepest.engine.checkpoint import Checkpoints, Place
    from steepest.engine.stopping import Watch

    model = st.LinearClassifier(random_state=0).fit(X, y)
    saved = Checkpoints(tmp_path, lambda state: state, {"another": "run"}, source=st.from_arrays(X, y))
    saved.save(model._learner, model.history_, Place(0, 1, 10), Watch())
    with pytest.raises(st.DataError, match="other data or parameters"):
        st.LinearClassifier(random_state=0).fit_stream(st.from_arrays(X, y), checkpoint=tmp_path, resume=True)


def test_scipy_csr_is_used_without_a_copy():
    X, y = sparse_problem(n_rows=500, seed=22)
    block = st.from_arrays(X, y).block
    assert np.shares_memory(block.values, X.data)
    assert np.shares_memory(block.indices, X.indices)


def test_int64_indices_and_float64_values_are_accepted():
    X, y = sparse_problem(n_rows=500, seed=23)
    wide = sp.csr_matrix((X.data.astype(np.float64), X.indices.astype(np.int64), X.indptr.astype(np.int64)), X.shape)
    wide.indices, wide.indptr = wide.indices.astype(np.int64), wide.indptr.astype(np.int64)
    same_bits(st.LinearClassifier(random_state=0).fit(X, y), st.LinearClassifier(random_state=0).fit(wide, y))
