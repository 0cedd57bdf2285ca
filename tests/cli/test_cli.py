"""The command line: what it prints, where, with which exit status, and what it leaves alone."""

from __future__ import annotations

import gzip
import inspect
import json
import os
import re
import subprocess
import sys

import numpy as np
import pytest
from sklearn.datasets import dump_svmlight_file

import steepest as st
from conftest import sparse_problem
from steepest.cli import main
from steepest.cli.flags import parse_value
from steepest.data.tables.table_lines import TableSource


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cli")
    X, y = sparse_problem(n_rows=3000, noise=0.0, seed=50)
    dump_svmlight_file(X[:2500], np.where(y[:2500] == 1, 1, -1), str(folder / "train.svm"), zero_based=False)
    dump_svmlight_file(X[2500:], np.where(y[2500:] == 1, 1, -1), str(folder / "test.svm"), zero_based=False)
    target = X @ np.arange(200) / 100
    dump_svmlight_file(X[:2500], target[:2500], str(folder / "real.svm"), zero_based=False)
    assert main(["train", str(folder / "train.svm"), "-m", str(folder / "model.steepest"), "--quiet"]) == 0
    return folder


def run(*arguments, **more):
    command = [sys.executable, "-m", "steepest", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, **more)


def test_quiet_training_is_silent(files):
    done = run("train", files / "train.svm", "-m", files / "silent.steepest", "--quiet")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert st.load(files / "silent.steepest").n_features_in_ == 200


def test_a_summary_follows_training(files):
    done = run("train", files / "train.svm", "-m", files / "told.steepest", "--holdout", "0.2")
    lines = dict(line.split(maxsplit=1) for line in done.stderr.splitlines())
    assert done.stdout == ""
    assert re.fullmatch(r"[\d,]+ for training, [\d,]+ held out", lines["rows"])
    assert lines["classes"] == "2: -1, 1"
    assert re.match(r"\w+: .+", lines["solver"])
    assert "accuracy 0." in lines["held"]
    assert f"told.steepest, {(files / 'told.steepest').stat().st_size:,} bytes" in lines["file"]


def test_train_twice_gives_the_same_file(files, capsys):
    for name in ("a", "b"):
        assert main(["train", str(files / "train.svm"), "-m", str(files / name), "--epochs", "2"]) == 0
    a, b = st.load(files / "a"), st.load(files / "b")
    np.testing.assert_array_equal(a.coef_, b.coef_)


@pytest.mark.parametrize("flags", [[], ["--jobs", "1"], ["--parallel", "auto"]])
def test_train_uses_all_cores_unless_told_otherwise_and_the_model_does_not(files, monkeypatch, flags):
    seen = []
    fit_stream = st.LinearClassifier.fit_stream

    def watch(model, *arguments, **options):
        seen.append(model.n_jobs)
        return fit_stream(model, *arguments, **options)

    monkeypatch.setattr(st.LinearClassifier, "fit_stream", watch)
    assert main(["train", str(files / "train.svm"), "-m", str(files / "cores"), "--epochs", "1", *flags]) == 0
    assert seen == [1 if flags else -1]
    assert st.load(files / "cores").n_jobs == 1


def test_json_is_one_object_a_line(files, capsys):
    arguments = [
        "train",
        str(files / "train.svm"),
        "-m",
        str(files / "m"),
        "--json",
        "--epochs",
        "2",
        "--holdout",
        "0.2",
    ]
    assert main(arguments) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert lines.pop(0)["event"].startswith("solver='auto' chose 'asgd'")
    assert [line["epoch"] for line in lines[:2]] == [1, 2]
    assert {"loss", "holdout_loss", "objective", "eta", "nonzeros", "rows", "rows_per_second", "seconds"} <= set(
        lines[0]
    )
    assert lines[-1]["model"] == str(files / "m")


def test_predictions_are_one_a_line_and_agree_with_python(files, capsys):
    assert main(["predict", str(files / "model.steepest"), str(files / "test.svm")]) == 0
    printed = [int(line) for line in capsys.readouterr().out.splitlines()]
    model = st.load(files / "model.steepest")
    source = st.scan(files / "test.svm", **model.recipe_)
    assert printed == np.concatenate(list(model.predict_stream(source))).tolist()


def test_probabilities_have_a_header_and_sum_to_one(files, capsys):
    assert main(["predict", str(files / "model.steepest"), str(files / "test.svm"), "--proba"]) == 0
    header, *rows = capsys.readouterr().out.splitlines()
    assert header == "-1\t1"
    np.testing.assert_allclose([sum(map(float, row.split("\t"))) for row in rows], 1)


def test_output_file_appears_only_when_complete(files):
    out = files / "predictions.txt"
    assert main(["predict", str(files / "model.steepest"), str(files / "test.svm"), "-o", str(out)]) == 0
    assert len(out.read_text().splitlines()) == 500
    bad = files / "bad.svm"
    bad.write_text("1 1:1\n1 x:1\n")
    kept = out.read_text()
    assert main(["predict", str(files / "model.steepest"), str(bad), "-o", str(out)]) == 2
    assert out.read_text() == kept
    assert not list(files.glob("*.part"))


def test_evaluate_json_has_rows_loss_and_accuracy(files, capsys):
    assert main(["evaluate", str(files / "model.steepest"), str(files / "test.svm"), "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["rows"] == 500
    assert result["accuracy"] > 0.9
    assert 0 < result["loss"] < 0.7


def test_regression_and_its_measures(files, capsys):
    model = str(files / "real.steepest")
    assert main(["train", str(files / "real.svm"), "-m", model, "--task", "regress", "--epochs", "20"]) == 0
    assert main(["evaluate", model, str(files / "real.svm"), "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["rmse"] < 0.2
    assert result["r2"] > 0.9


def test_inspect_tells_what_the_model_is(files, capsys):
    assert main(["inspect", str(files / "model.steepest"), "--top", "2"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("LinearClassifier(random_state=0)")
    assert "top features for 1:" in text
    assert main(["inspect", str(files / "model.steepest"), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["features"] == 200
    assert len(facts["top"]["1"]) == 10


def test_standard_input_and_compressed_files(files, capsys):
    packed = files / "test.svm.gz"
    packed.write_bytes(gzip.compress((files / "test.svm").read_bytes()))
    assert main(["predict", str(files / "model.steepest"), str(packed)]) == 0
    from_gz = capsys.readouterr().out
    with open(files / "test.svm") as stdin:
        piped = run("predict", files / "model.steepest", "-", stdin=stdin)
    assert piped.stdout == from_gz


def test_several_files_and_a_glob(files):
    for part in ("1", "2"):
        (files / f"part-{part}.svm").write_bytes((files / "test.svm").read_bytes())
    assert main(["train", str(files / "part-*.svm"), "-m", str(files / "g"), "--epochs", "1"]) == 0
    assert st.load(files / "g").history_[0]["rows"] == 1000


def test_flags_follow_the_estimators_signature(files, capsys):
    arguments = [
        "--loss",
        "hinge",
        "--penalty",
        "elasticnet",
        "--l1-ratio",
        "0.5",
        "--alpha",
        "1e-3",
        "--no-fit-intercept",
    ]
    more = ["--jobs", "2", "--seed", "7", "--epochs", "1", "--class-weight", "balanced"]
    assert main(["train", str(files / "train.svm"), "-m", str(files / "f"), *arguments, *more]) == 0
    model = st.load(files / "f")
    assert (model.loss, model.alpha, model.fit_intercept) == ("hinge", 1e-3, False)
    assert model.penalty == st.ElasticNet(0.5)
    assert (model.n_jobs, model.random_state, model.class_weight) == (2, 7, "balanced")


@pytest.mark.parametrize(
    ("text", "value"),
    [("3", 3), ("1e-3", 1e-3), ("true", True), ("None", None), ("hinge", "hinge"), ("inf", float("inf"))],
)
def test_flag_values(text, value):
    assert parse_value(text) == value


BAD_FILES = {
    "not-a-number.svm": ("1 1:1\nmaybe 2:1\n", "line 2: the label 'maybe' is not a number"),
    "negative.svm": ("1 1:1\n1 -2:1\n", "line 2"),
    "huge.svm": ("1 99999999999:1\n-1 1:1\n", "line 1"),
    "nan.svm": ("1 1:nan\n-1 1:1\n", "line 1: the value 'nan' is not"),
    "inf.svm": ("1 1:1\n-1 1:1e999\n", "line 2"),
    "half.svm": ("1 1:1\n-1 2:1\n1 3:", "line 3"),
    "empty.svm": ("", "is empty"),
    "binary.svm": ("\x00\x01\x02\x03", "line 1"),
    "one-class.svm": ("1 1:1\n1 2:1\n", "one class only"),
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_bad_input_is_one_sentence_status_two_and_the_old_model_stays(name, tmp_path, capsys):
    text, message = BAD_FILES[name]
    data, model = tmp_path / name, tmp_path / "m.steepest"
    data.write_text(text)
    model.write_bytes(b"the old model")
    assert main(["train", str(data), "-m", str(model), "--format", "libsvm"]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.startswith("steepest: ")
    assert error.count("\n") == 1
    assert "Traceback" not in error
    assert model.read_bytes() == b"the old model"


def test_skipped_lines_are_counted_and_shown(tmp_path, capsys):
    data = tmp_path / "some-bad.svm"
    data.write_text("1 1:1\n-1 2:1\nbad\n1 1:x\n" * 50)
    assert main(["train", str(data), "-m", str(tmp_path / "m"), "--on-bad-line", "skip"]) == 0
    error = capsys.readouterr().err
    assert "100 bad lines skipped" in error
    assert "line 3" in error


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train", "nowhere.svm", "-m", "m"], "nowhere.svm"),
        (["train", "{train}", "-m", "no/such/folder/m"], "does not exist"),
        (["train", "{train}", "-m", "{folder}"], "is a directory"),
        (["train", "{train}", "-m", "m", "--loss", "hinje"], "--loss hinje is unknown"),
        (["train", "{train}", "-m", "m", "--alpha", "-1"], "--alpha -1.0 is not a strength"),
        (["train", "{train}", "-m", "m", "--resume"], "--checkpoint"),
        (
            ["train", "{train}", "-m", "m", "--task", "regress", "--multi-class", "ovr"],
            "no meaning with --task regress",
        ),
        (["train", "{train}", "-m", "m", "--holdout", "2"], "--holdout 2.0 must lie between 0 and 1"),
        (["train", "{train}", "-m", "m", "--format", "xls"], "--format xls is unknown"),
        (["train", "{train}", "-m", "m", "--bits", "12"], "--bits has no meaning for libsvm rows"),
        (["train", "{train}", "-m", "m", "--columns", "a,b"], "--columns has no meaning for the format libsvm"),
        (["predict", "nowhere.steepest", "{train}"], "nowhere.steepest"),
        (["predict", "{train}", "{train}"], "not a steepest model"),
        (["evaluate", "{model}", "{real}"], "never seen in training"),
        (["inspect", "{train}"], "not a steepest model"),
    ],
)
def test_bad_usage_is_one_sentence_and_status_two(arguments, message, files, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    known = dict(train=files / "train.svm", real=files / "real.svm", model=files / "model.steepest", folder=tmp_path)
    assert main([part.format(**known) for part in arguments]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_unknown_verbs_and_flags_exit_with_two(files):
    assert run("trian").returncode == 2
    assert run("train", files / "train.svm", "-m", "m", "--lossy", "hinge").returncode == 2
    assert run("--version").stdout.startswith("steepest ")
    assert "train" in run("--help").stdout


@pytest.mark.parametrize("holdout", [True, False])
def test_a_report_shows_losses_measures_and_weights(files, tmp_path, holdout):
    page = tmp_path / "page.html"
    done = run("train", files / "train.svm", "-m", tmp_path / "<b>", "--report", page, *["--holdout", "0.2"] * holdout)
    assert done.returncode == 0
    text = page.read_text()
    assert "Training of &lt;b&gt;" in text
    assert ("macro F1" in text) == holdout
    assert ("--holdout 0.1" in text) != holdout
    assert (
        text.count("<polyline") == 2 + 6 * holdout
    )  # losses; then one more, ROC, its chance, PR, reliability, its ideal
    assert "Top features for" in text


def test_a_report_on_ratings_names_the_favourites(tmp_path):
    ratings = tmp_path / "ratings.csv"
    ratings.write_text("user,item,rating\n" + "".join(f"u{i % 7},i{i % 5},{i % 5}\n" for i in range(70)))
    page = tmp_path / "page.html"
    assert run("train", ratings, "-m", tmp_path / "m", "--task", "rate", "--report", page).returncode == 0
    assert "Most recommended items" in page.read_text()


def test_a_report_that_cannot_be_written_is_told_before_training(files, tmp_path):
    done = run("train", files / "train.svm", "-m", tmp_path / "m", "--report", tmp_path / "no" / "page.html")
    assert done.returncode == 2
    assert "for page.html does not exist" in done.stderr
    assert not (tmp_path / "m").exists()


def test_help_tells_of_the_parameters_of_the_task():
    classify, rate = (" ".join(run("train", *task, "--help-all").stdout.split()) for task in ([], ["--task", "rate"]))
    assert "--alpha NUMBER|auto strength of the penalty (default: auto)" in classify
    assert "--multi-class {auto,ovr,softmax,hashed} how more than two classes are learned" in classify
    assert "--n-factors" in rate
    assert "--n-factors" not in classify
    assert "--multi-class" not in rate
    assert "--ngrams" not in rate


@pytest.mark.parametrize("task", ["classify", "regress", "rank", "cluster", "rate", "network", "fm", "text"])
def test_help_leaves_no_parameter_without_a_word(task):
    from steepest.cli import flags, train

    shown = train.estimator_of(task)
    about = flags.descriptions([shown, *map(train.estimator_of, train.TASKS)])
    known = [name for name in inspect.signature(shown).parameters if name not in flags.ELSEWHERE]
    assert [name for name in known if not about.get(name)] == []


def test_a_full_disk_keeps_the_old_model(files, tmp_path, capsys, monkeypatch):
    model = tmp_path / "m.steepest"
    assert main(["train", str(files / "train.svm"), "-m", str(model)]) == 0
    before = model.read_bytes()

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    assert main(["train", str(files / "train.svm"), "-m", str(model), "--epochs", "1"]) == 1
    assert "No space left" in capsys.readouterr().err
    assert model.read_bytes() == before


def test_a_reader_that_goes_away_is_no_error(files):
    command = f"{sys.executable} -m steepest predict {files}/model.steepest {files}/train.svm | head -1"
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stderr == ""


def test_debug_shows_the_traceback():
    done = run("train", "nowhere.svm", "-m", "m", "--debug")
    assert "Traceback" in done.stderr


def test_a_person_sees_one_line_that_changes(files):
    import pty

    parent, child = pty.openpty()
    command = [sys.executable, "-m", "steepest", "train", str(files / "train.svm"), "-m", str(files / "tty")]
    command += ["--solver", "sgd"]
    process = subprocess.Popen(command, stderr=child, stdout=subprocess.DEVNULL)
    os.close(child)
    seen = b""
    while True:
        try:
            piece = os.read(parent, 65536)
        except OSError:
            break
        if not piece:
            break
        seen += piece
    assert process.wait() == 0
    drawn = [piece for piece in seen.split(b"\r\x1b[K") if piece.startswith(b"epoch ")]
    assert drawn
    assert all(b"\n" not in piece and re.match(rb"epoch \d of 5  loss ", piece) for piece in drawn)
    assert b"0:00 left" in drawn[-1]
    assert b"non-zero weights" in seen


def test_none_on_the_command_line_is_a_value(files):
    for flags, name, value in (
        (["--penalty", "none"], "penalty", None),
        (["--seed", "none", "--holdout", "0.1"], "random_state", None),
        (["--tol", "none"], "tol", None),
        ([], "penalty", "l2"),
        ([], "random_state", 0),
    ):
        assert main(["train", str(files / "train.svm"), "-m", str(files / "none"), "--epochs", "1", *flags]) == 0
        assert getattr(st.load(files / "none"), name) == value


def test_probabilities_of_a_loss_without_them_are_refused_by_its_name(files, capsys):
    assert main(["train", str(files / "train.svm"), "-m", str(files / "hinge"), "--loss", "hinge"]) == 0
    assert main(["predict", str(files / "hinge"), str(files / "test.svm"), "--proba"]) == 2
    assert "is a LinearClassifier with loss 'hinge'" in capsys.readouterr().err


def test_help_of_train_says_that_linear_models_use_all_cores(capsys):
    for verb, task, default in (("train", "classify", "all"), ("train", "cluster", "1"), ("cv", "classify", "1")):
        assert main([verb, "--task", task, "--help"]) == 0
        told = " ".join(capsys.readouterr().out.split()).partition("--jobs N")[2]
        assert re.search(r"\(default: (\w+)\)", told)[1] == default


def test_training_from_a_table_imports_only_what_it_needs(tmp_path):
    (tmp_path / "rows.csv").write_text("label,colour,size\n" + "a,red,1.5\nb,blue,2\n" * 50)
    code = (
        "import sys; from steepest.cli import main\n"
        "main(['train', sys.argv[1], '-m', sys.argv[2], '--quiet'])\n"
        "slow = ('pandas', 'pyarrow.compute', 'scipy', 'sklearn', 'rich', 'concurrent.futures')\n"
        "slow += ('steepest.models.network', 'steepest.models.factorization')\n"
        "print([name for name in slow if name in sys.modules])"
    )
    command = [sys.executable, "-c", code, tmp_path / "rows.csv", tmp_path / "model"]
    assert subprocess.run(command, check=True, capture_output=True, text=True).stdout == "[]\n"


# -------------------------------------------------------------------------------- how tables and labels are described


SENTENCES = ("a fine day", "a bad day", "fine weather", "bad luck") * 10


def told(capsys, *arguments, status=0):
    assert main(list(map(str, arguments))) == status
    shown = capsys.readouterr()
    return shown.err if status else shown.out


@pytest.mark.parametrize(
    ("delimiter", "flags"),
    [
        (",", ["--columns", "words,verdict", "--label", "verdict", "--text", "words"]),
        (",", ["--no-header", "--label", "1", "--text", "0"]),
        ("~", ["--no-header", "--label", "1", "--text", "0", "--delimiter", "~"]),
        ("\t", ["--no-header", "--label", "1", "--text", "0", "--delimiter", "tab"]),
    ],
)
def test_tables_without_a_header_are_learned_from(delimiter, flags, tmp_path, capsys):
    lines = [f"{text}{delimiter}{'good' if 'fine' in text else 'bad'}" for text in SENTENCES]
    (tmp_path / "rows.csv").write_text("\n".join(lines))
    told(capsys, "train", tmp_path / "rows.csv", "-m", tmp_path / "m", *flags)
    found = json.loads(told(capsys, "evaluate", tmp_path / "m", tmp_path / "rows.csv", "--json"))
    assert (found["rows"], found["accuracy"]) == (40, 1.0)


def test_a_tab_separated_file_may_be_told_to_have_commas(tmp_path, capsys):
    (tmp_path / "rows.tsv").write_text("words,y\n" + "\n".join(f"{text},{'fine' in text}" for text in SENTENCES))
    told(capsys, "train", tmp_path / "rows.tsv", "-m", tmp_path / "m", "--delimiter", ",", "--text", "words")
    assert json.loads(told(capsys, "evaluate", tmp_path / "m", tmp_path / "rows.tsv", "--json"))["accuracy"] == 1.0


def test_a_model_reads_tables_with_other_delimiters(tmp_path, capsys):
    for name, delimiter in (("rows.csv", ","), ("semicolons.csv", ";"), ("rows.tsv", "\t"), ("tabs.csv", "\t")):
        rows = [f"{text}{delimiter}{'fine' in text}" for text in SENTENCES]
        (tmp_path / name).write_text("\n".join([f"words{delimiter}y", *rows]))
    for trained in ("rows.csv", "rows.tsv", "tabs.csv"):
        told(capsys, "train", tmp_path / trained, "-m", tmp_path / "m", "--text", "words")
        for other in ("rows.csv", "semicolons.csv", "rows.tsv", "tabs.csv"):
            found = json.loads(told(capsys, "evaluate", tmp_path / "m", tmp_path / other, "--json"))
            assert (other, found["accuracy"]) == (other, 1.0)


def test_numbers_taken_for_classes_lead_to_regression(tmp_path, capsys):
    prices = [f"{text},{k + 0.5}" for k, text in enumerate(SENTENCES * 50)]
    (tmp_path / "rows.csv").write_text("\n".join(["words,price", *prices]))
    rows = ["train", tmp_path / "rows.csv", "-m", tmp_path / "m", "--text", "words", "--label", "price"]
    assert main(list(map(str, rows))) == 0
    assert "so a regressor is trained (--task classify trains a classifier)" in capsys.readouterr().err
    assert isinstance(st.load(tmp_path / "m"), st.LinearRegressor)
    assert "not classes; give --task regress" in told(capsys, *rows, "--task", "classify", status=2)


def test_the_sample_that_shows_the_task_is_not_read_again(tmp_path, capsys, monkeypatch):
    prices = [f"{text},{k + 0.5}" for k, text in enumerate(SENTENCES * 50)]
    (tmp_path / "rows.csv").write_text("\n".join(["words,price", *prices]))
    read, samples = TableSource.sample_batches, []
    monkeypatch.setattr(TableSource, "sample_batches", lambda self: samples.append(read(self)) or samples[-1])
    told(capsys, "train", tmp_path / "rows.csv", "-m", tmp_path / "m", "--label", "price")
    assert len(samples) == 1


def test_large_losses_of_folds_stay_apart(tmp_path, capsys):
    prices = [f"{text},{1e6 * k}" for k, text in enumerate(SENTENCES)]
    (tmp_path / "rows.csv").write_text("\n".join(["words,price", *prices]))
    rows = [tmp_path / "rows.csv", "--text", "words", "--label", "price", "--task", "regress"]
    table = told(capsys, "cv", *rows, "--folds", "2").splitlines()
    assert [len(line.split()) for line in table] == [5, 5, 5, 4, 4]


def test_several_labels_are_predicted_by_name(tmp_path, capsys):
    marks = {"fine": "__label__good", "bad": "__label__bad", "day": "__label__time"}
    rows = [" ".join([*(marks[word] for word in text.split() if word in marks), text]) for text in SENTENCES]
    (tmp_path / "rows.txt").write_text("\n".join(rows))
    told(capsys, "train", tmp_path / "rows.txt", "-m", tmp_path / "m", "--epochs", "20", "--task", "classify")
    predicted = told(capsys, "predict", tmp_path / "m", tmp_path / "rows.txt", "--limit", "4")
    assert predicted.splitlines() == ["good\ttime", "bad\ttime", "good", "bad"]
    shares = told(capsys, "predict", tmp_path / "m", tmp_path / "rows.txt", "--limit", "4", "--proba")
    assert shares.splitlines()[0] == "bad\tgood\ttime"
    why = told(capsys, "explain", tmp_path / "m", "fine day", "--top", "1").splitlines()
    assert [line.split()[1] for line in why if line.startswith("for ") or line.endswith(("fine", "day"))] == [
        *("good:", "fine", "time:", "day")
    ]
    assert told(capsys, "explain", tmp_path / "m", "unheard of").count("for ") == 1


def test_several_labels_of_a_stream_are_named_beforehand(tmp_path):
    lines = "\n".join(f"__label__a {'__label__b ' if k % 2 else ''}text {k % 2}" for k in range(40))
    stream = ["train", "-", "-m", tmp_path / "m", "--format", "txt"]
    refused = run(*stream, input=lines)
    assert refused.returncode == 2
    assert refused.stderr.endswith("give --labels with commas between\n")
    assert run(*stream, "--labels", "a,b", input=lines).returncode == 0
    assert st.load(tmp_path / "m").classes_.tolist() == ["a", "b"]


VW_LINES = "\n".join(f"{1 if 'fine' in text else -1} | {text}" for text in SENTENCES)


def test_the_reader_of_vw_text_takes_the_flags_it_has(tmp_path, capsys):
    (tmp_path / "rows.vw").write_text(VW_LINES)
    told(capsys, "train", tmp_path / "rows.vw", "-m", tmp_path / "m", "--bits", "12", "--signed")
    model = st.load(tmp_path / "m")
    assert model.n_features_in_ == 1 << 12
    assert model.recipe_["signed"] is True
    assert json.loads(told(capsys, "evaluate", tmp_path / "m", tmp_path / "rows.vw", "--json"))["accuracy"] == 1.0
    told(capsys, "convert", tmp_path / "rows.vw", tmp_path / "rows.svm", "--bits", "10", "--quiet")
    assert max(int(chunk.indices.max()) for chunk in st.scan(tmp_path / "rows.svm")) < 1 << 10


@pytest.mark.parametrize(
    "verb", [["train", "-m", "m"], ["cv"], ["tune", "--trials", "1"], ["race"], ["convert", "o.svm"]]
)
def test_flags_of_a_hasher_are_not_passed_over_where_rows_need_none(verb, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rows.vw").write_text(VW_LINES)
    error = told(capsys, verb[0], "rows.vw", *verb[1:], "--ngrams", "1,2", status=2)
    assert (
        error == "steepest: --ngrams has no meaning for vw rows, whose features are hashed as written; leave it out\n"
    )


def test_a_hasher_is_refused_with_rows_that_have_features(tmp_path):
    (tmp_path / "rows.vw").write_text(VW_LINES)
    with pytest.raises(st.ParameterError, match="these rows have features already"):
        st.LinearClassifier(hasher=st.Hasher()).fit_stream(st.scan(tmp_path / "rows.vw"))
