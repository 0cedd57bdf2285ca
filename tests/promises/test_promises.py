"""The promises of the design over all estimators: one test per promise, one row of `estimators.CASES` per case."""

from __future__ import annotations

import contextlib
import itertools
import os
import pickle
import re
import signal
import subprocess
import sys
import time
import warnings
import zlib
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from estimators import (
    BATCH,
    BROKEN,
    CASES,
    COPIES,
    NO_CHECKPOINT,
    NO_COPIES,
    PROMISES,
    REFUSED,
    bits,
    giving,
    said,
    shown,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st_
from sklearn.base import clone

import steepest as st
from conftest import sparse_problem
from steepest import model_file, registry


def every(promise):
    broken = pytest.mark.xfail(reason="broken: see estimators.BROKEN")
    marks = {name: [broken] if name in BROKEN.get(promise, ()) else [] for name in giving(promise)}
    return pytest.mark.parametrize("name", [pytest.param(name, marks=marks[name]) for name in marks])


def same(a, b, folder):
    """The same bits learned, and the same said."""
    ours, others = bits(a, folder), bits(b, folder)
    assert ours.keys() == others.keys()
    assert [name for name in ours if ours[name] != others[name]] == []


def same_answers(a, b, X):
    ours, others = said(a, X), said(b, X)
    assert ours.keys() == others.keys()
    for name, array in ours.items():
        np.testing.assert_array_equal(array, others[name], err_msg=name)


def same_shown(a, b, X):
    """The same weights and predictions; the last rows of one may still wait for others to fill their batch."""
    ours, others = shown(a), shown(b)
    assert ours.keys() - others.keys() <= {"labels_"}  # of the rows that fit was given
    for name in ours.keys() & others.keys():
        np.testing.assert_array_equal(ours[name], others[name], err_msg=name)
    np.testing.assert_array_equal(a.predict(X), b.predict(X))


def test_the_table_has_every_estimator_and_a_reason_for_every_promise_that_one_does_not_give():
    assert {case.estimator for case in CASES.values()} == registry.MODELS - {"Hasher"}
    for case in CASES.values():
        assert case.without.keys() <= PROMISES.keys()
        assert all(len(reason.split()) > 3 for reason in case.without.values())


# ---------------------------------------------------------------------------------------- same data, same bits


@every("seed")
def test_a_seed_is_a_seed(name, tmp_path):
    case = CASES[name]
    same(case.make().fit(*case.data.all), case.make().fit(*case.data.all), tmp_path)


@pytest.mark.parametrize(
    "name",
    ["linear/sgd-two", "linear/mixing-two", "network/adam-four", "k-means/minibatch-blobs", "text/softmax",
     "factors/sgd", "ranker/blocks", "radial/closed-form-RBFClassifier", "fm/log-two"],
)  # fmt: skip
def test_another_seed_is_another_model(name, tmp_path):
    case = CASES[name]
    one, other = (bits(case.make(random_state=seed).fit(*case.data.all), tmp_path) for seed in (1, 2))
    assert one != other


@pytest.fixture
def small_blocks(monkeypatch):
    """Sums over the whole data are added in many blocks, and files read in many, although the data are few."""
    monkeypatch.setattr("steepest.learners.batch.objective.BLOCK_ROWS", 16)
    monkeypatch.setattr("steepest.learners.batch.closed_form.BLOCK_ROWS", 64)


def source_of(data, chunk_rows, folder, monkeypatch, *, announced=False):
    if data.kind != "texts":
        return data.source(chunk_rows, announced=announced)
    monkeypatch.setattr("steepest.data.files.blocks.BLOCK_BYTES", 1 << 20 if chunk_rows is None else 50 * chunk_rows)
    monkeypatch.setattr(
        "steepest.data.store.row_store.CHUNK_ENTRIES", 1 << 17 if chunk_rows is None else 5 * chunk_rows
    )
    path = folder / f"texts-{data.n_rows}.txt"
    return st.scan_text(path if path.exists() else data.text_file(path))


@every("chunks")
def test_neither_chunks_nor_threads_change_a_bit(name, tmp_path, monkeypatch, small_blocks):
    case = CASES[name]

    def fit(chunk_rows, n_jobs):
        return case.make(n_jobs=n_jobs).fit_stream(source_of(case.data, chunk_rows, tmp_path, monkeypatch))

    one = fit(None, 1)
    for chunk_rows, n_jobs in ((None, 3), (17, 2)):
        other = fit(chunk_rows, n_jobs)
        same(one, other, tmp_path)
        assert one.history_.column("loss") == pytest.approx(other.history_.column("loss"), rel=1e-9, nan_ok=True)
    same_answers(one, other, case.data.probe)


@every("arrays")
def test_fit_is_fit_stream_of_the_same_rows(name, tmp_path, monkeypatch):
    case = CASES[name]
    arrays = case.make().fit(*case.data.all)
    stream = case.make().fit_stream(source_of(case.data, None, tmp_path, monkeypatch, announced=True))
    same(arrays, stream, tmp_path)


# ------------------------------------------------------------------------------------------------- pieces and files


def through(model, way, folder):
    """The model after a detour."""
    if way == "file":
        model.save(folder / "between.steepest")
        return st.load(folder / "between.steepest")
    return pickle.loads(pickle.dumps(model)) if way == "pickle" else model


def in_pieces(case, cuts, way, folder):
    model = case.make()
    for start, stop in pairwise([0, *sorted(set(cuts)), case.data.n_rows]):
        model = through(model.partial_fit(*case.data.part(start, stop)), way, folder)
        with contextlib.suppress(ValueError):  # too few rows for an answer; looking changes nothing
            model.predict(case.data.probe)
    return model


@every("pieces")
def test_pieces_through_files_learn_what_all_rows_at_once_do(name, tmp_path):
    case = CASES[name]
    whole = case.make().partial_fit(*case.data.all)
    same(whole, in_pieces(case, case.data.cuts, "none", tmp_path), tmp_path)
    pieces = in_pieces(case, case.data.cuts, "file", tmp_path)
    same(whole, pieces, tmp_path)
    same_answers(whole, pieces, case.data.probe)


@pytest.mark.parametrize("estimator", sorted({CASES[name].estimator for name in giving("pieces")} - {"LinearRanker"}))
@given(choice=st_.data())
@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_cuts_give_the_same_bits(estimator, choice, tmp_path):
    sound = [name for name in giving("pieces") if name not in BROKEN.get("pieces", ())]
    case = CASES[choice.draw(st_.sampled_from([name for name in sound if CASES[name].estimator == estimator]))]
    cuts = choice.draw(st_.lists(st_.integers(1, case.data.n_rows - 1), max_size=6))
    way = choice.draw(st_.sampled_from(["none", "file", "pickle"]))
    same(case.make().partial_fit(*case.data.all), in_pieces(case, cuts, way, tmp_path), tmp_path)


@every("one_stream")
def test_one_stream_is_its_first_rows_then_a_file_then_the_others(name, tmp_path, monkeypatch):
    case = CASES[name]
    once = dict(epochs=1, shuffle="never", early_stopping=False) | case.once
    stream = case.make(**once).fit_stream(source_of(case.data, None, tmp_path, monkeypatch))
    for cut in case.data.cuts:
        first = through(case.make(**once).partial_fit(*case.data.part(0, cut)), "file", tmp_path)
        same_shown(stream, first.partial_fit(*case.data.part(cut)), case.data.probe)


# ------------------------------------------------------------------------------------------------- kill and resume


def die_at_checkpoint(patch, number, how):
    """Every step is followed by a checkpoint; the one of this number is not written any more, under 0 none is."""
    write, saved = model_file.write, []

    def mortal(path, *given, **named):
        saved.append(path)
        if len(saved) == number:
            how()
        return write(path, *given, **named) if number else None

    patch.setattr(model_file, "write", mortal)
    patch.setattr(time, "monotonic", itertools.count(0.0, 100.0).__next__)  # a minute has passed at every look
    return saved


def interrupt():
    raise KeyboardInterrupt


def cut_off(number, fit, *arguments):
    """A run that ends before its checkpoint of this number."""
    with pytest.MonkeyPatch.context() as patch:
        die_at_checkpoint(patch, number, interrupt)
        with pytest.raises(KeyboardInterrupt):
            fit(*arguments)


def kill_self():
    os.kill(os.getpid(), signal.SIGKILL)


def fit_with_checkpoints(case, folder, monkeypatch, **options):
    source = source_of(case.data, 200, folder, monkeypatch)
    return case.make().fit_stream(source, checkpoint=folder / "saved", **options)


def resumed(case, folder, monkeypatch):
    """The end of a run that goes on from its checkpoint, which is removed then."""
    assert list((folder / "saved").iterdir())
    model = fit_with_checkpoints(case, folder, monkeypatch, resume=True)
    assert not list((folder / "saved").rglob("*.steepest"))
    return model


@every("resume")
def test_a_run_that_was_cut_off_goes_on_to_the_same_bits(name, tmp_path, monkeypatch):
    case = CASES[name]
    with pytest.MonkeyPatch.context() as patch:
        saved = die_at_checkpoint(patch, 0, interrupt)
        whole = fit_with_checkpoints(case, tmp_path, monkeypatch)
    assert len(saved) > 1
    somewhere = 2 + zlib.crc32(name.encode()) % (len(saved) - 1)
    for number in sorted({2, somewhere}):
        cut_off(number, fit_with_checkpoints, case, tmp_path, monkeypatch)
        model = resumed(case, tmp_path, monkeypatch)
        same(whole, model, tmp_path)
        for column in () if "history" in case.without else ("loss", "objective", "holdout_loss"):
            ours, others = ([x for x in m.history_.column(column) if x is not None] for m in (whole, model))
            assert ours == pytest.approx(others, rel=1e-12, nan_ok=True)


KILLED = {
    "linear/ftrl-l1-batches-four": 30,
    "linear/hashed-four": 3,
    "linear/adaptive-two": 45,
    "linear/mixing-two": 2,
    "linear/lbfgs-hinge": 4,
    "ranker/blocks": 3,
    "network/shuffle-blocks": 25,
    "radial/backprop-RBFRegressor": 7,
    "fm/fields-four": 20,
    "k-means/minibatch-topics": 14,
    "text/replicas-softmax": 3,
    "factors/sgd": 3,
}


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    """A directory per run of which the process was killed. All are children of one process: starting each by itself,
    with all imports, takes longer than they run."""
    folder = tmp_path_factory.mktemp("killed")
    paths = [path for path in sys.path if "tests" in path]
    script = f"import sys; sys.path[:0] = {paths!r}; import test_promises as t; t.be_killed({str(folder)!r})"
    subprocess.run([sys.executable, "-c", script], check=True, timeout=600)
    return folder


def be_killed(folder):
    """Run by a process of its own."""
    for name in KILLED:
        own = killed_folder(folder, name)
        own.mkdir()
        if (child := os.fork()) == 0:
            die_at_checkpoint(pytest.MonkeyPatch(), KILLED[name], kill_self)
            fit_with_checkpoints(CASES[name], own, pytest.MonkeyPatch())
            os._exit(0)
        assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL, name


def killed_folder(folder, name):
    return Path(folder) / name.replace("/", "-")


@pytest.mark.xdist_group("killed")
@pytest.mark.parametrize("name", KILLED)
def test_a_process_that_was_killed_goes_on_to_the_same_bits(name, killed, monkeypatch):
    case, folder = CASES[name], killed_folder(killed, name)
    whole = case.make().fit_stream(source_of(case.data, 200, folder, monkeypatch))
    same(whole, resumed(case, folder, monkeypatch), folder)


@pytest.mark.parametrize("name", KILLED)
def test_a_checkpoint_of_another_run_is_refused(name, tmp_path, monkeypatch):
    case = CASES[name]
    cut_off(2, fit_with_checkpoints, case, tmp_path, monkeypatch)
    other_model, other_rows = case.make(random_state=7, alpha=0.5, eta0=0.123), case.data.head(case.data.n_rows - 1)
    for model, data in ((other_model, case.data), (case.make(), other_rows)):
        source = source_of(data, 200, tmp_path, monkeypatch)
        with pytest.raises(st.DataError, match="other data or parameters"):
            model.fit_stream(source, checkpoint=tmp_path / "saved", resume=True)


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.without.get("resume") == NO_CHECKPOINT])
def test_who_keeps_no_checkpoints_says_so(name, tmp_path):
    case = CASES[name]
    with pytest.raises(st.ParameterError, match="no checkpoints"):
        case.make().fit_stream(case.data.source(), checkpoint=tmp_path)


# ------------------------------------------------------------------------------------- files, pickles, copies, rows


@every("files")
def test_a_loaded_and_an_unpickled_model_say_and_learn_the_same(name, tmp_path):
    case = CASES[name]
    model = case.make().fit(*case.data.all)
    twins = [through(model, way, tmp_path) for way in ("file", "pickle")]
    for twin in twins:
        assert type(twin) is type(model)
        assert repr(twin.get_params()) == repr(model.get_params())
        assert twin.history_.as_dict() == model.history_.as_dict()
        same(model, twin, tmp_path)
        same_answers(model, twin, case.data.probe)
        if hasattr(model, "objective"):
            assert twin.objective(*case.data.all) == model.objective(*case.data.all)
    if name in goes_on:
        for one in (model, *twins):
            one.partial_fit(*case.data.part(7, 400))
        for twin in twins:
            same(model, twin, tmp_path)


goes_on = [name for name, case in CASES.items() if case.without.get("pieces") not in REFUSED]


@pytest.mark.parametrize("name", [name for name in CASES if name not in goes_on])
def test_who_cannot_learn_in_pieces_says_so(name):
    case = CASES[name]
    with pytest.raises(st.ParameterError, match="fit"):
        case.make().partial_fit(*case.data.all).partial_fit(*case.data.all)


@pytest.mark.parametrize("name", CASES)
def test_a_clone_has_the_parameters_and_nothing_that_was_learned(name):
    case = CASES[name]
    model = case.make()
    for original in (model, model.partial_fit(*case.data.all) if name in goes_on else model):
        twin = clone(original)
        assert repr(twin.get_params()) == repr(original.get_params())
        with pytest.raises(ValueError, match="not fitted"):
            twin.predict(case.data.probe)


@every("alone")
def test_the_score_of_a_row_does_not_depend_on_the_rows_beside_it(name):
    case = CASES[name]
    model = case.make().fit(*case.data.all)
    together = said(model, case.data.probe)
    for row in (0, 7, 59):
        for method, expected in together.items():
            found = getattr(model, method)(case.data.probe[row : row + 1])
            np.testing.assert_array_equal(np.asarray(found)[0], expected[row], err_msg=method)


# ------------------------------------------------------------------------------------------------- finite, whatever


def finite_or_refused(case, data, folder, **options):
    """Fits, or refuses in a sentence that says what to change; whatever comes out is finite, from a file too."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", st.NotConverged)
        try:
            model = case.make(**options).fit(*data.all)
        except st.DataError as refusal:
            if re.search("scale|too far", str(refusal)):
                return
            raise
    for one in (model, through(model, "file", folder)):
        for name, array in {**shown(one), **said(one, data.probe)}.items():
            assert array.dtype.kind not in "fc" or np.isfinite(array).all(), name


@every("finite")
def test_every_number_is_finite_whatever_the_units(name, tmp_path):
    case = CASES[name]
    for data in case.data.scaled().values():
        finite_or_refused(case, data, tmp_path, max_iter=1)


@every("steps")
def test_every_number_is_finite_whatever_the_step(name, tmp_path):
    case = CASES[name]
    if not case.takes("eta0") or (case.without.get("pieces") == BATCH["pieces"] and case.params.get("solver") != "gd"):
        pytest.skip("it has no step size")
    for eta0 in (1e6, 1e20):
        finite_or_refused(case, case.data, tmp_path, eta0=eta0)


# ------------------------------------------------------------------------------------------------ weights are copies


def test_every_estimator_says_whether_weights_are_copies():
    named = {case.estimator for case, _ in COPIES.values()}
    assert named | NO_COPIES.keys() == registry.MODELS - {"Hasher"}
    assert not named & NO_COPIES.keys()


@pytest.mark.parametrize("name", COPIES)
@pytest.mark.parametrize("weights", ["copies", "zeros", "threes"])
def test_a_weight_of_three_is_three_copies_and_none_is_no_row(name, weights):
    case, tolerance = COPIES[name]
    n = case.data.n_rows
    weight = {
        "copies": np.random.default_rng(0).integers(0, 4, n),
        "zeros": (np.arange(n) % 3 > 0).astype(int),
        "threes": np.full(n, 3),
    }[weights]
    rows = np.repeat(np.arange(n), weight)
    weighted = case.make().fit(*case.data.all, sample_weight=weight)
    copies = case.make().fit(*(column[rows] for column in case.data.all))
    ours, others = shown(weighted), shown(copies)
    for array in ours.keys() & others.keys() - {"labels_", "dual_coef_", "slacks_", "support_"}:
        if ours[array].dtype.kind == "f":
            np.testing.assert_allclose(ours[array], others[array], rtol=tolerance, atol=tolerance, err_msg=array)
        else:
            np.testing.assert_array_equal(ours[array], others[array], err_msg=array)
    if case.estimator == "KMeans":
        np.testing.assert_array_equal(weighted.labels_[rows], copies.labels_)
        assert weighted.inertia_ == pytest.approx(copies.inertia_, rel=1e-6)


# ---------------------------------------------------------------------------------------------------- one by one


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


@pytest.mark.parametrize("kept", [True, False], ids=["rows kept", "rows read anew"])
@pytest.mark.parametrize("last_chunk", [1, 12, 17])
def test_a_killed_run_over_raw_texts_resumes_to_the_same_bits(tmp_path, monkeypatch, kept, last_chunk):
    from steepest.data.files import blocks as files
    from steepest.data.store import row_store

    rng = np.random.default_rng(3)
    lines = [f"{'ab'[i % 2]}\t{' '.join(f'w{j}' for j in rng.zipf(1.4, 12) + i % 2)}\n" for i in range(6000)]
    path = tmp_path / "texts.txt"
    path.write_text("".join(lines))
    monkeypatch.setattr(files, "BLOCK_BYTES", 1 << 13)
    monkeypatch.setattr(row_store, "CHUNK_ENTRIES", 1 << 13)
    monkeypatch.setattr(row_store, "MOST_ROWS", 1 << 20 if kept else 1000)

    def fit(**options):
        model = st.LinearClassifier(hasher=st.Hasher(n_bits=14), epochs=3, random_state=0)
        return model.fit_stream(st.scan_text(path), **options)

    whole = fit()
    cut_off(last_chunk + 1, lambda: fit(checkpoint=tmp_path / "c"))
    resumed = fit(checkpoint=tmp_path / "c", resume=True)
    np.testing.assert_array_equal(whole.coef_, resumed.coef_)
    np.testing.assert_array_equal(whole.hasher_.document_counts_, resumed.hasher_.document_counts_)


def test_scipy_csr_is_used_without_a_copy():
    X, y = sparse_problem(n_rows=500, seed=22)
    block = st.from_arrays(X, y).block
    assert np.shares_memory(block.values, X.data)
    assert np.shares_memory(block.indices, X.indices)


def test_int64_indices_and_float64_values_are_accepted():
    X, y = sparse_problem(n_rows=500, seed=23)
    wide = sp.csr_matrix((X.data.astype(np.float64), X.indices.astype(np.int64), X.indptr.astype(np.int64)), X.shape)
    wide.indices, wide.indptr = wide.indices.astype(np.int64), wide.indptr.astype(np.int64)
    narrow, same_rows = (st.LinearClassifier(random_state=0).fit(rows, y) for rows in (X, wide))
    np.testing.assert_array_equal(narrow.coef_, same_rows.coef_)
