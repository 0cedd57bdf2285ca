"""The benchmarks' data has the shape it promises, the harness tells results from troubles, and our runners run."""

from __future__ import annotations

import gzip
import json
from functools import partial

import benchmarks
import numpy as np
import pytest
from benchmarks import compare, generate, kmeans, linear, rcv1, tables
from benchmarks.compare import Job, Settings, Target
from sklearn.datasets import load_svmlight_file
from sklearn.svm import LinearSVC

TINY = Settings(rows=600, text_rows=300, large_rows=500, launches=1)


@pytest.fixture(scope="module")
def sample():
    return generate.rcv1(2000)


@pytest.fixture
def cache(tmp_path, monkeypatch):
    for module in (benchmarks, generate, linear):
        monkeypatch.setattr(module, "CACHE", tmp_path)
    monkeypatch.setattr(linear, "TEST_ROWS", 200)
    return tmp_path


def test_rows_have_the_shape_of_rcv1(sample):
    X, y, flipped = sample
    assert X.shape == (2000, 47_236)
    assert X.dtype == np.float32
    assert X.has_canonical_format
    assert 72 < X.nnz / 2000 < 80
    assert np.diff(X.indptr).std() > 30  # lengths vary as those of documents do
    np.testing.assert_allclose(X.multiply(X).sum(axis=1), 1, atol=1e-5)
    assert abs(flipped.mean() - 0.05) < 0.02  # four standard deviations
    assert abs((y == 1).mean() - 0.473) < 0.05
    assert set(y) == {-1, 1}


def test_words_follow_the_zipf_mandelbrot_law(sample):
    rows_with_word = np.sort(np.asarray((sample[0] > 0).sum(axis=0)).ravel())[::-1]
    law = (np.arange(47_236) + 60.0) ** -1.05
    expected = 2000 * 76 * law / law.sum()
    for rank in (0, 30, 300):
        assert 0.5 < rows_with_word[rank] / expected[rank] < 2
    ids = np.argsort(-np.asarray((sample[0] > 0).sum(axis=0)).ravel())[:100]
    assert ids.min() < 5000 < 40_000 < ids.max()  # frequent words stand anywhere


def test_labels_can_be_learned_but_for_their_noise():
    X, y, _ = generate.rcv1(16_000)
    from sklearn.linear_model import SGDClassifier

    X_test, y_test, flipped = generate.rcv1(2000, part="test")
    right = SGDClassifier(alpha=1e-4, random_state=0).fit(X, y).predict(X_test) == y_test
    assert right[~flipped].mean() > 0.96
    assert right[flipped].mean() < 0.04


def test_fewer_rows_are_the_first_of_more_rows(sample):
    X, y, _ = generate.rcv1(generate.BATCH_ROWS + 5)
    assert (X[:2000] != sample[0]).nnz == 0
    assert (y[:2000] == sample[1]).all()
    assert (X[:5] != X[-5:]).nnz > 0  # the next batch is not the first one again


def test_text_holds_the_numbers_of_the_matrix(sample, tmp_path):
    X, y = sample[0][:300], sample[1][:300]
    generate.write_text(X, y, tmp_path / "a.svm", tmp_path / "a.vw")
    read, labels = load_svmlight_file(str(tmp_path / "a.svm"), dtype=np.float32, n_features=X.shape[1])
    assert (labels == y).all()
    np.testing.assert_array_equal(read.indices, X.indices)
    np.testing.assert_array_equal(read.data, X.data)
    svm, vw = ((tmp_path / name).read_text().splitlines() for name in ("a.svm", "a.vw"))
    assert [line.replace(" | ", " ") for line in vw] == svm


def test_large_tables_are_used_from_end_to_end():
    X, y = generate.large(22, 500)
    assert X.shape == (500, 2**22)
    assert X.has_canonical_format
    assert X.indices.min() < 2**16
    assert X.indices.max() > 2**22 - 2**16
    assert 0.2 < (y == 1).mean() < 0.8


def test_arrays_are_made_once(cache):
    first, labels = generate.load_rcv1(50)
    made = {path.name: path.stat().st_mtime_ns for path in cache.iterdir()}
    again, same = generate.load_rcv1(50)
    assert (first != again).nnz == 0
    assert (labels == same).all()
    assert {path.name: path.stat().st_mtime_ns for path in cache.iterdir()} == made
    assert sorted(made) == ["rcv1-train-50-y.npy", "rcv1-train-50.npz"]


def test_rounds_alternate_and_medians_are_reported(monkeypatch):
    seen, seconds = [], iter([1.0, 10.0, 30.0, 2.0, 9.0, 20.0])

    def measure(module, job, runner, settings):
        seen.append(runner)
        return {"seconds": next(seconds), "peak_mb": 1.0}

    monkeypatch.setattr(compare, "measure_in_child", measure)
    results = compare.measure_job("m", "job", Job({"a": None, "b": None}), TINY, repeat=3)
    assert seen == ["a", "b", "b", "a", "a", "b"]
    assert results["a"]["seconds"] == 2.0
    assert results["b"]["seconds"] == 20.0
    assert "10.00x" in compare.table_lines("job", results)[1]


def test_trouble_is_shown_and_not_tried_again(monkeypatch):
    seen = []

    def measure(module, job, runner, settings):
        seen.append(runner)
        return {"trouble": "not installed"} if runner == "b" else {"seconds": 1.0, "peak_mb": 1.0}

    monkeypatch.setattr(compare, "measure_in_child", measure)
    results = compare.measure_job("m", "job", Job({"a": None, "b": None}), TINY, repeat=3)
    assert seen == ["a", "b", "a", "a"]
    assert compare.table_lines("job", results)[1].split(maxsplit=2)[2] == "not installed"
    target = Target("ratio", lambda r: r["b"]["seconds"], "at least", 4)
    assert target.verdict(results) == "ratio: not measured (at least 4 wanted)"


@pytest.mark.parametrize(("side", "bound", "met"), [("at least", 2, True), ("at most", 2, False), ("at most", 3, True)])
def test_targets_judge(side, bound, met):
    verdict = Target("speed", lambda r: r["a"], side, bound).verdict({"a": 3.0})
    assert verdict == f"speed: 3 ({side} {bound} wanted) {'met' if met else 'MISSED'}"


def test_a_missing_peer_is_not_a_failure(capsys):
    job = Job(
        {"absent": lambda settings: __import__("no_such_peer"), "ours": lambda settings: __import__("steepest.none")}
    )
    compare.measure_here(job, "absent", TINY)
    assert json.loads(capsys.readouterr().out.removeprefix(compare.MARK)) == {"trouble": "not installed"}
    with pytest.raises(ModuleNotFoundError):
        compare.measure_here(job, "ours", TINY)


def test_processes_report_success_failure_and_absence():
    ended = compare.run_python("-c", "x = bytearray(64 << 20); print('done')")
    assert ended.output == "done\n"
    assert ended.peak_mb > 64
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        compare.run_python("-c", "1 / 0")
    with pytest.raises(ModuleNotFoundError, match="no_such_peer"):
        compare.run_python("-m", "no_such_peer")


@pytest.mark.parametrize("loss", ["hinge", "log"])
def test_our_fits_and_kernels_run(cache, loss):
    for result in (
        linear.epoch(TINY, make=linear.steepest_model, loss=loss),
        linear.epoch(TINY, make=linear.steepest_model, loss=loss, bits=22),
        linear.kernel(TINY, bits=22, loss=loss),
        linear.predict(TINY, make=linear.steepest_model),
        linear.predict(TINY, make=linear.steepest_model, method="decision_function", batch=100),
    ):
        assert result["seconds"] > 0


def test_our_objective_comes_near_the_optimum(cache):
    pytest.importorskip("liblinear", reason="LIBLINEAR finds the optimum")
    linear.find_optimum("hinge", TINY)
    gap = partial(linear.estimator_gap, TINY, make=linear.steepest_model, loss="hinge")
    assert -0.01 < gap(epochs=50)["% gap"] < gap(epochs=1)["% gap"]


def test_our_reader_and_command_line_run(cache):
    generate.prepare_text(TINY.rows)
    generate.prepare_text(TINY.text_rows)
    generate.prepare_text(200, "test")
    read = linear.parse(TINY, read=linear.steepest_read)
    assert read["entries"] == generate.load_rcv1(TINY.text_rows)[0].nnz
    streamed = linear.JOBS["stream"].runners["steepest"](TINY)
    assert streamed["% test error"] < 45
    assert streamed["peak_mb"] > 0
    for runner in ("steepest import and fit", "steepest predict, ten rows"):
        assert linear.JOBS["start"].runners[runner](TINY)["seconds"] > 0


def test_every_target_names_runners_of_its_job():
    for name, job in linear.JOBS.items():
        made = {"seconds": 1.0, "peak_mb": 1.0, "MB/s": 1.0, "Mrows/s": 1.0, "ns/nnz": 1.0, "% gap": 1.0, "entries": 1}
        for target in job.targets:
            assert "not measured" not in target.verdict(dict.fromkeys(job.runners, made)), (name, target.text)
        assert all(isinstance(runner, partial) or callable(runner) for runner in job.runners.values())


@pytest.mark.parametrize("name", ["mnist-10", "mnist-100-lloyd"])
def test_k_means_runners_run(shared_data, monkeypatch, name):
    monkeypatch.setenv("STEEPEST_DATA", str(shared_data))
    few = Settings(rows=1200, text_rows=100, large_rows=0, launches=1)
    for runner in kmeans.JOBS[name].runners.values():
        assert runner(few)["inertia"] > 0


def test_every_target_of_k_means_names_runners_of_its_job():
    for job in kmeans.JOBS.values():
        made = {"seconds": 1.0, "inertia": 1.0}
        assert all("not measured" not in t.verdict(dict.fromkeys(job.runners, made)) for t in job.targets)


# ------------------------------------------------------------------------------------------------------ real tables

TABLE = {"label": "kind", "task": "classify", "text": ["a title"], "cat": ["colour"], "num": ["size"],
         "ignored": ["id"], "log": False}  # fmt: skip


def _write_table(folder, classes, n_rows=300):
    rows = [f"{i},{classes[i % len(classes)]},Is it: {'abc'[i % len(classes)]}|?,dark red,{i % 7 or ''}\n"
            for i in range(n_rows)]  # fmt: skip
    for part in ("train", "test"):
        text = "id,kind,a title,colour,size\n" + "".join(rows)
        (folder / f"{part}.csv.gz").write_bytes(gzip.compress(text.encode()))


@pytest.mark.parametrize(("classes", "codes"), [("xy", ["-1", "1"]), ("xyz", ["1", "2", "3"])])
def test_tables_are_written_for_vw_and_learned_by_it(tmp_path, classes, codes):
    pytest.importorskip("vowpalwabbit")
    _write_table(tmp_path, classes)
    tables.write_files(tmp_path, TABLE, tmp_path)
    lines = (tmp_path / "train.vw").read_text().splitlines()
    assert lines[:2] == [
        f"{codes[0]} |t0 is it a |c colour=dark_red |n",
        f"{codes[1]} |t0 is it b |c colour=dark_red |n size:1",
    ]
    found = tables.vw(TABLE, tmp_path)
    assert found["accuracy"] == 1
    assert found["loss"] < 0.5


def test_the_summary_counts_tables_and_shares_of_gaps():
    def table(own, pipeline, boosting):
        return {"steepest": own, "pipeline": pipeline, "boosting": boosting}

    def quality(accuracy, loss):
        return {"accuracy": accuracy, "loss": loss}

    found = {
        "adult": table(quality(0.9, 0.3), quality(0.8, 0.4), quality(0.95, 0.2)),
        "bank": table(quality(0.896, 0.305), quality(0.9, 0.3), quality(0.9, 0.31)),  # boosting is not better
        "bike_hourly": table({"r2": 0.7}, {"r2": 0.8}, {"r2": 0.9}),
        "elsewhere": table(quality(0.7, 0.2), quality(0.9, 0.3), quality(0.9, 0.2)),
    }
    counts, shares = tables.summary(found)
    assert " on 2 of 4 tables, " in counts
    assert counts.endswith(" on 1")
    assert shares.endswith("mean -0.25 of 2 tables, adult 0.50, bike_hourly -1.00")


# ---------------------------------------------------------------------------------------- the lecture's table on RCV1


def _lyrl_files(directory, X, y):
    """Rows in the form in which RCV1 was published: numbers of documents as labels, topics apart."""
    parts = {"lyrl2004_vectors_test_pt0.dat.gz": (0, 300), "lyrl2004_vectors_test_pt1.dat.gz": (300, 500),
             "lyrl2004_vectors_train.dat": (500, 600)}  # fmt: skip
    for name, (start, stop) in parts.items():
        lines = "".join(
            f"{2286 + i}  " + " ".join(f"{j + 1}:{v}" for j, v in zip(X[i].indices, X[i].data, strict=True)) + "\n"
            for i in range(start, stop)
        )
        data = lines.encode()
        (directory / name).write_bytes(gzip.compress(data) if name.endswith("gz") else data)
    topics = "".join(f"{'CCAT' if y[i] > 0 else 'ECAT'} {2286 + i} 1\nGCAT {2286 + i} 1\n" for i in range(600))
    (directory / "rcv1-v2.topics.qrels").write_text(topics)


def test_published_files_of_rcv1_are_found_and_read(tmp_path, sample):
    X, y, _ = sample
    _lyrl_files(tmp_path, X[:600], y[:600])
    rows = rcv1.load(tmp_path, 0)
    np.testing.assert_array_equal(rows.y, y[:500])
    np.testing.assert_array_equal(rows.test_y, y[500:600])
    width = rows.X.shape[1]
    np.testing.assert_allclose(rows.X.toarray(), X[:500, :width].toarray(), rtol=1e-6)
    assert rcv1.load(tmp_path, 200).X.shape[0] == 200


@pytest.mark.independent
def test_the_lectures_table_has_its_three_solvers_and_a_gap_from_the_optimum(tmp_path, sample, capsys):
    X, y, _ = sample
    _lyrl_files(tmp_path, X[:600], y[:600])
    rcv1.main(["--data", str(tmp_path), "--standard-rows", "0", "--json"])
    found = json.loads(capsys.readouterr().out)
    by_name = {row["name"]: row for row in found["table"]}
    assert list(by_name) == ["standard SVM", "fast SVM", "SGD"]
    assert all(row["gap"] > -1e-9 for row in found["table"])
    assert by_name["standard SVM"]["gap"] < 0.01
    assert by_name["fast SVM"]["gap"] < 0.01
    svc = LinearSVC(loss="hinge", C=1 / (1e-4 * 500), tol=1e-6, max_iter=20_000, intercept_scaling=10).fit(
        X[:500], y[:500]
    )
    margins = y[:500] * svc.decision_function(X[:500])
    least = np.maximum(0, 1 - margins).mean() + 0.5e-4 * (svc.coef_**2).sum()
    assert by_name["fast SVM"]["objective"] < 1.01 * least
    assert [c["rows"] for c in found["curves"] if c["solver"] == "cg"] == [500]
    rcv1.main(["--data", str(tmp_path)])
    assert "23,642.0  0.2275" in capsys.readouterr().out


def test_a_directory_without_rcv1_is_one_sentence(tmp_path):
    with pytest.raises(SystemExit, match="holds neither"):
        rcv1.load(tmp_path, 0)
    with pytest.raises(SystemExit, match="is not a directory"):
        rcv1.load(tmp_path / "nothing", 0)
