"""Wrong commands: each is answered by one sentence that holds the way out, with status 2, and never by a traceback."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest
from pyarrow import ArrowException

from steepest.cli import main

ROWS = "colour,size,label\n" + "red,1.5,yes\nblue,2.5,no\n" * 30


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wrong")
    (folder / "rows.csv").write_text(ROWS)
    (folder / "headerless.csv").write_text(ROWS.partition("\n")[2])
    lines = "".join(f"a\tfine day {i}\nb\tbad day {i}\n" for i in range(30))
    (folder / "texts.fasttext").write_text("".join(f"__label__{'ab'[k % 2]} day {k}\n" for k in range(30)))
    (folder / "texts.tsv").write_text("label\ttext\n" + lines)
    (folder / "measured.csv").write_text("colour,label\n" + "".join(f"red,{i + 0.5}\n" for i in range(150)))
    (folder / "unlabelled.csv").write_text("colour,size\nred,1.5\n")
    (folder / "empty.csv").write_text("")
    (folder / "header.csv").write_text("colour,size,label\n")
    (folder / "broken.csv").write_text(ROWS + "red\n")
    (folder / "gap.csv").write_text(ROWS + "red,2.0,\n")
    (folder / "one.csv").write_text("colour,label\n" + "red,yes\nblue,yes\n" * 9)
    (folder / "picture").write_bytes(b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\x02\0")
    (folder / "bytes.csv").write_bytes(bytes(range(256)))
    (folder / "book.csv").write_bytes(b"PK\x03\x04\x14\0\x06\0")
    (folder / "other.csv").write_text(ROWS.replace(",", ";"))
    (folder / "words.csv").write_text("one,two\nthree,four\n" * 9)
    (folder / "notes").write_text("just some words\nand no labels at all\n")
    (folder / "rows.svm").write_text("1 1:1\n-1 2:1\n" * 30)
    (folder / "bad.svm").write_text("1 1:1\nmaybe 2:1\n")
    (folder / "book.xlsx").write_bytes(b"PK\x03\x04\x14\0\x06\0")
    (folder / "wide.csv").write_bytes("colour,label\nred,yes\n".encode("utf-16"))
    (folder / "cut.csv.gz").write_bytes(b"\x1f\x8b\x08\0\0\0\0\0\0\x03abc")
    for data, model in (("rows.csv", "rows.steepest"), ("texts.tsv", "texts.steepest"), ("rows.svm", "svm.steepest")):
        assert main(["train", str(folder / data), "-m", str(folder / model), "--quiet"]) == 0
    return folder


WRONG = [
    ("trian rows.csv -m m", "did you mean 'train'?"),
    ("fit rows.csv -m m", "did you mean 'train'?"),
    ("supervised rows.csv", "did you mean 'train'?"),
    ("test rows.steepest rows.csv", "did you mean 'evaluate'?"),
    ("-V", "did you mean '--version'?"),
    ("train rows.csv -m", "-m/--model needs a value: -m FILE"),
    ("train rows.csv -m m --epochs", "--epochs needs a value"),
    ("train rows.csv -m ''", "the name of the output is empty; give the name of a file"),
    ("train rows.csv -m m --verbose", "a terminal shows progress"),
    ("tune rows.csv --seconds 5", "here it is --budget SECONDS"),
    ("train rows.csv -m m --holdout 1e-6", "hold out a larger share, such as 0.1"),
    ("train rows.csv -m m --report m", "m is the model itself; choose another name"),
    ("predict rows.steepest rows.csv -o rows.steepest", "rows.steepest is the model itself; choose another name"),
    ("predict rows.steepest rows.csv -o ./rows.steepest", "is the model itself; choose another name"),
    ("evaluate rows.steepest rows.csv --report rows.steepest", "rows.steepest is the model itself"),
    ("tune rows.csv -m m --report m", "m is the model itself; choose another name"),
    ("predict rows.steepest picture", "does not look like text, so check that it is the right file"),
    ("train texts.fasttext -m m --no-header --task classify", "--no-header has no meaning for the format txt"),
    ("explain rows.steepest --row '{\"color\": 1}'", "did you mean 'colour'?"),
    ("predict svm.steepest 'hello there'", "the row, line 1: the label 'hello' is not a number"),
    ("eval rows.steepest rows.csv", "did you mean 'evaluate'?"),
    ("--speed", "name a command first"),
    ("--verison", "did you mean '--version'?"),
    ("version", "did you mean '--version'?"),
    ("train --hlep", "did you mean '--help'?"),
    ("train rows.csv -m rows.csv", "rows.csv is the data itself; choose another name"),
    ("train rows.csv -m m --report rows.csv", "rows.csv is the data itself; choose another name"),
    ("predict rows.steepest rows.csv -o rows.csv", "rows.csv is the data itself; choose another name"),
    ("train book.xlsx -m m", "save it as CSV"),
    ("train wide.csv -m m", "save it as UTF-8"),
    ("train https://example.org/rows.csv -m m", "download the file first"),
    ("train rows.csv -m m --labels label", "did you mean 'label'?"),
    ("train rows.csv -m m --ignore colur", "did you mean 'colour'?"),
    ("train rows.csv -m m --jobs two", "--jobs two is not a number"),
    ("train rows.csv -m m --holdout 10%", "'10%' is not a number"),
    ("train rows.csv -m m --jobs 0", "--jobs 0 leaves no thread to work; give 1 or more"),
    ("train rows.csv -m m --label label --label colour", "--label is given 2 times, as label and colour; give it once"),
    ("train rows.csv -m m --label=label --label colour", "give it once"),
    ("train rows.csv -m m --loss log_loss", "--loss log_loss is unknown; did you mean 'log'?"),
    ("train rows.csv -m m --ngrams two", "--ngrams two must be LOW,HIGH, such as 1,2"),
    ("train rows.csv -m m --kind size=numbr", "did you mean 'number'?"),
    ("train rows.csv -m m --kind szie=number", "--kind names the column 'szie'"),
    ("train rows.csv -m m --penalty l1 --average true", "set --average false or --solver ftrl"),
    ("train measured.csv -m m --task classify", "give --task regress"),
    ("train rows.steepest -m m", "rows.steepest is a model file, not data"),
    ("train rows.svm -m m --label label", "--label has no meaning for the format libsvm; leave it out"),
    ("evaluate rows.steepest unlabelled.csv", "rows without labels can be predicted, but not learned or measured"),
    ("train rows.csv -m m --task regress", "choose another label, or classify"),
    ("evaluate rows.csv rows.steepest", "MODEL comes before DATA"),
    ("explain rows.steepest 'red and large'", "write the row as JSON"),
    ("train rows.csv", "train needs -m FILE"),
    ("train -m m", "train needs DATA"),
    ("train rows.csv -m m --lable label", "did you mean '--label'?"),
    ("train rows.csv -m m --epoch 3", "here it is --epochs N"),
    ("train rows.csv -m m --task clasify", "did you mean 'classify'?"),
    ("train rows.csv -m m --format cvs", "did you mean 'csv'?"),
    ("train rows.csv -m m --loss hinje", "did you mean 'hinge'?"),
    ("train rows.csv -m m --penalty l3", "choose one of none, l2, l1"),
    ("train rows.csv -m m --label lable", "did you mean 'label'?"),
    ("train rows.csv -m m --label colour --text szie", "did you mean 'size'?"),
    ("train row.csv -m m", "did you mean 'rows.csv'?"),
    ("train nowhere/rows.csv -m m", "there is no directory 'nowhere'"),
    ("train *.xyz -m m", "check the pattern"),
    ("train . -m m", "is a directory; name its files"),
    ("train empty.csv -m m", "give a file with data"),
    ("train header.csv -m m", "it has no rows"),
    ("train picture -m m", "--format"),
    ("train notes -m m", "--format"),
    ("train headerless.csv -m m", "give --no-header"),
    ("train broken.csv -m m", "give --on-bad-line skip"),
    ("train gap.csv -m m", "the label in column 'label' is missing"),
    ("train one.csv -m m", "give rows of another class as well, or choose another label"),
    ("train rows.csv other.csv -m m", "it is separated by ';' and not by ','"),
    ("train rows.csv -m m --delimiter ; --label label", "so give --delimiter ','"),
    ("train rows.csv -m m --no-header --label label", "leave --no-header out"),
    ("train bytes.csv -m m", "it does not look like text, so check that it is the right file"),
    ("train book.csv -m m", "save it as CSV"),
    ("train wide.csv -m m --format csv", "save it as UTF-8"),
    ("train rows.csv -m m --task rank", "give a libsvm file with qid:N after each label"),
    ("train rows.csv -m m --ngrams 2,1", "--ngrams 2,1 must be LOW,HIGH"),
    ("train rows.csv -m m --cross colour,szie", "--cross colour,szie names the column 'szie'"),
    ("train rows.csv -m m --checkpoint rows.csv", "rows.csv is a file; name another directory"),
    ("train rows.csv -m m --hidden 4", "leave it out, or give another task"),
    ("predict rows.steepest rows.csv --label typo", "the model has the label 'label'; leave it out"),
    ("predict rows.steepest rows.csv --weight typo", "--weight typo is not read here"),
    ("predict rows.steepest rows.csv --no-header", "the first line has the names of the columns"),
    ("predict rows.steepest rows.csv --delimiter ;", "give --delimiter ','"),
    ("predict rows.steepest words.csv", "check that it is the right file"),
    ("predict rows.steepest svm.steepest", "svm.steepest is a model file, not data"),
    ("predict rows.steepest nowhere/rows.csv", "there is no directory 'nowhere'; check the name"),
    ("predict texts.steepest hello", "echo hello | "),
    ("inspect svm.steepest --column size", "it has none, so leave --column out"),
    ("train bad.svm -m m", "the label 'maybe' is not a number"),
    ("train cut.csv.gz -m m", "fetch or write the file again"),
    ("train rows.csv -m nowhere/m", "make it first"),
    ("train rows.csv -m .", "give the name of a file"),
    ("train rows.csv -m m --report nowhere/page.html", "make it first"),
    ("train rows.csv -m m --holdout 2", "must lie between 0 and 1"),
    ("train rows.csv -m m --epochs many", "--epochs many is not a number"),
    ("train rows.csv -m m --char-ngrams 3", "write --char-ngrams 1,3 or --char-ngrams 3,3"),
    ("train rows.csv -m m --resume", "--resume needs --checkpoint DIR"),
    ("train rows.svm -m m --ngrams 2", "leave it out"),
    ("predict rows.csv rows.csv", "not a steepest model"),
    ("predict rows.steepset rows.csv", "did you mean 'rows.steepest'?"),
    ("predict rows.steepest headerless.csv", "give --no-header"),
    ("predict rows.steepest texts.tsv", "give rows with the columns that the model was trained on"),
    ("predict rows.steepest 'red and large'", "write the row as JSON"),
    ("predict rows.steepest '{\"color\": 1}'", "did you mean 'colour'?"),
    ("predict rows.steepest '{colour: 1}'", "quote it for the shell"),
    ("predict svm.steepest rows.csv", "rows.csv holds raw columns, but this model was trained without a hasher"),
    ("evaluate rows.steepest rows.csv --k 5", "omit it"),
    ("explain rows.steepest", "explain needs a row"),
    ("explain rows.steepest rows.csv --number 999", "beyond its end"),
    ("inspect rows.steepest --class maybe", "it has 'no', 'yes'"),
    ("inspect rows.steepest --column color", "did you mean 'colour'?"),
    (f"train rows.csv -m {'a' * 300}", "File name too long"),
    ("recommend rows.steepest --user 1", "recommend needs a MatrixFactorization"),
    ("completion powershell", "choose one of bash, zsh, fish"),
    ("export rows.steepest --to java", "choose one of"),
]


@pytest.mark.parametrize(("command", "way_out"), WRONG, ids=[command for command, _ in WRONG])
def test_a_wrong_command_is_answered_by_a_sentence_with_the_fix(command, way_out, place, monkeypatch, capsys):
    import shlex

    monkeypatch.chdir(place)
    before = sorted(file.name for file in place.iterdir())
    assert main(shlex.split(command)) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert way_out in told.err
    assert told.err.startswith("steepest: ")
    assert told.err.count("\n") == 1
    assert sorted(file.name for file in place.iterdir()) == before


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_directory_that_may_not_be_written_is_told_before_training(place, tmp_path, capsys):
    tmp_path.chmod(0o500)
    assert main(["train", str(place / "rows.csv"), "-m", str(tmp_path / "m")]) == 2
    assert "permission" in capsys.readouterr().err.lower()


@pytest.mark.parametrize("keep", [[], ["--on-interrupt", "save"]])
def test_ctrl_c_says_what_was_saved(place, tmp_path, keep):
    model = tmp_path / "m"
    command = [sys.executable, "-m", "steepest", "train", place / "rows.svm", "-m", model]
    command += ["--solver", "sgd", "--epochs", "100000000", "--json", *keep]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    process.stdout.readline()
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in said
    assert said.splitlines()[-1].startswith("steepest: interrupted; ")
    assert ("nothing was saved" in said) == (not keep)
    assert model.exists() == bool(keep)


def test_steepest_alone_and_help_show_the_verbs(capsys):
    for arguments in ([], ["--help"], ["-h"]):
        assert main(arguments) == 0
        told = capsys.readouterr()
        assert "train" in told.out
        assert "completion" in told.out
        assert told.err == ""
    assert main(["help", "predict"]) == 0
    assert capsys.readouterr().out.startswith("usage: steepest predict MODEL DATA [flags]")


@pytest.mark.parametrize("verb", ["train", "predict", "evaluate", "cv", "tune", "race", "convert", "export"])
def test_help_is_short_and_help_all_is_not(verb, capsys):
    assert main([verb, "--help"]) == 0
    short = capsys.readouterr().out
    assert main([verb, "--help-all"]) == 0
    whole = capsys.readouterr().out
    assert len(short.splitlines()) < 80
    assert len(short.partition("\nexamples:\n")[2].partition("\n\n")[0].splitlines()) == 3  # examples
    assert len(whole.splitlines()) > len(short.splitlines())
    assert " VALUE" not in short
    for odd in ("--parameter ", "--choice ", "--flat ", "--early-stopping-refit"):
        assert odd not in whole


def test_every_example_of_the_help_parses():
    import shlex

    from steepest.cli import EXAMPLES, VERBS, parser_of
    from steepest.cli.parser import UsageError

    examples = list(EXAMPLES)
    for verb in VERBS:
        examples += parser_of(verb, every_flag=False).examples
    for example in examples:
        words = shlex.split(example.split(" > ")[0].split(" | ")[-1])[1:]
        try:
            _, rest = parser_of(words[0], words[1:], every_flag=True).parse_known_args(words[1:])
        except UsageError as error:
            raise AssertionError(f"{example}: {error}") from None
        assert rest == [], example


def test_version_names_build_and_processor_path(capsys):
    assert main(["--version"]) == 0
    told = capsys.readouterr().out
    assert told.startswith("steepest ")
    assert any(f"; {path} kernels;" in told for path in ("avx2", "baseline", "neon"))
    assert "built by" in told


def test_help_of_all_verbs_starts_without_numpy():
    code = "import sys; from steepest.cli import main; main(['--help']); print('numpy' in sys.modules, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr == "False\n"


MORE = "raise the limits of this process, or close other programs"


@pytest.mark.parametrize(
    ("failure", "status", "sentence"),
    [
        (MemoryError(), 1, f"steepest: out of memory; {MORE}\n"),
        (MemoryError("no 9 GiB"), 1, f"steepest: out of memory (no 9 GiB); {MORE}\n"),
        (OSError(12, "no page"), 1, f"steepest: out of memory ([Errno 12] no page); {MORE}\n"),
        (ArrowException("no thread"), 1, f"steepest: out of threads or memory (no thread); {MORE}\n"),
        (ImportError("x.so: cannot allocate\nmemory"), 1, "steepest: x.so: cannot allocate memory\n"),
        (KeyboardInterrupt(), 130, "steepest: interrupted; nothing was overwritten\n"),
    ],
)
def test_what_fails_while_modules_are_imported_is_a_sentence_too(monkeypatch, capsys, failure, status, sentence):
    def fail(name):
        raise failure

    monkeypatch.setattr("importlib.import_module", fail)
    assert main(["train", "rows.svm", "-m", "m"]) == status
    assert capsys.readouterr().err == sentence
    if status == 1:
        with pytest.raises(type(failure)):
            main(["train", "rows.svm", "-m", "m", "--debug"])


def test_memory_that_a_model_lacks_is_a_failure_and_not_a_wrong_file(place, monkeypatch, capsys):
    def fail(path):
        raise MemoryError

    assert main(["train", str(place / "rows.csv"), "-m", str(place / "m"), "--quiet"]) == 0
    monkeypatch.setattr("steepest.model_file._map", fail)
    assert main(["inspect", str(place / "m")]) == 1
    assert "too large for this machine's memory" in capsys.readouterr().err


INTERRUPTED = """
import builtins, os, signal, sys
usual, (at, action), sys.argv = builtins.__import__, sys.argv[1:], ["steepest", "train", "missing.csv", "-m", "m"]
signal.signal(signal.SIGINT, getattr(signal, action))
def imported(name, *arguments):
    if name == at:
        os.kill(os.getpid(), signal.SIGINT)
    return usual(name, *arguments)
builtins.__import__ = imported
from steepest.__main__ import main
sys.exit(main())
"""


@pytest.mark.skipif(sys.platform == "win32", reason="needs signals of Unix")
@pytest.mark.parametrize("at", ["argparse", "numpy", "steepest.cli.data"])
def test_ctrl_c_while_modules_are_imported_ends_in_one_line(at, tmp_path):
    command = [sys.executable, "-c", INTERRUPTED, at]
    done = subprocess.run([*command, "default_int_handler"], cwd=tmp_path, capture_output=True, text=True, timeout=100)
    assert (done.returncode, done.stderr) == (130, "steepest: interrupted; nothing was overwritten\n")
    ignored = subprocess.run([*command, "SIG_IGN"], cwd=tmp_path, capture_output=True, text=True, timeout=100)
    assert ignored.returncode == 2
    assert "missing.csv does not exist" in ignored.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="needs a shell of Unix")
@pytest.mark.parametrize(
    "command", ["predict rows.steepest rows.csv", "inspect rows.steepest", "--help", "train --help"]
)
@pytest.mark.parametrize(("stream", "status"), [(">&-", 1), ("<&- >&- 2>&-", 1), ("2>&-", 0), ("| true", 0)])
def test_streams_that_are_closed_are_no_fault(command, stream, status, place):
    shell = f"set -o pipefail; {sys.executable} -m steepest {command} {stream}"
    done = subprocess.run(["bash", "-c", shell], cwd=place, capture_output=True, text=True, timeout=100)
    assert done.returncode == status
    said = "steepest: the output cannot be written (Bad file descriptor)\n"
    assert done.stderr == (said if stream == ">&-" else "")


@pytest.mark.skipif(sys.platform != "linux", reason="needs a directory that can go")
def test_a_directory_that_has_gone_is_refused_before_training(place, tmp_path):
    gone = tmp_path / "gone"
    gone.mkdir()
    shell = f"cd {gone}; rmdir {gone}; {sys.executable} -m steepest train {place / 'rows.csv'} -m m"
    done = subprocess.run(["bash", "-c", shell], capture_output=True, text=True, timeout=100)
    assert done.returncode == 2
    assert "m cannot be written" in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_pair_is_not_explained_like_a_row(place, tmp_path, capsys):
    ratings = tmp_path / "ratings.tsv"
    ratings.write_text("".join(f"u{i % 5}\ti{i % 7}\t{i % 3}\n" for i in range(40)))
    command = ["train", ratings, "-m", tmp_path / "m", "--task", "rate", "--format", "ratings", "--quiet"]
    assert main([str(part) for part in command]) == 0
    capsys.readouterr()
    assert main(["explain", str(tmp_path / "m"), str(ratings)]) == 2
    assert "explains a pair and not a row" in capsys.readouterr().err
