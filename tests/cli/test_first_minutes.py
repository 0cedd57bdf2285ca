"""The first minutes of people who come from other tools, or with an awkward file: what they type just works."""

from __future__ import annotations

import csv
import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

import steepest as st
from steepest.cli import main

COOKING = Path(__file__).parents[3] / "shared/data/cooking-stackexchange/cooking.stackexchange.txt.gz"


def awkward(
    path, *, encoding="utf-8", delimiter=";", names=("text", "preis", "datum", "label"), quoting=0, blank=False
):
    random.seed(1)
    with open(path, "w", encoding=encoding, newline="") as file:
        writer = csv.writer(file, delimiter=delimiter, quoting=quoting)
        if names:
            writer.writerow(names)
        for i in range(200):
            good = random.random() < 0.5
            price = f"{random.gauss(3 if good else 1, 0.6):.2f}".replace(".", ",")
            day = random.choice(["2024-03-%02d", "%02d.03.2024", "03/%02d/2024"]) % random.randint(1, 28)
            text = f"{random.choice(['schön', 'öde', 'groß'])}; Nummer {i % 9}"
            writer.writerow([text, price, day, "" if blank and i == 7 else "ja" if good else "nein"])
    return str(path)


def trained(data, model, *flags):
    assert main(["train", data, "-m", str(model), "--quiet", *flags]) == 0
    return st.load(model)


def kinds(model):
    return {column.name: column.kind for column in model.hasher_.columns_ if not column.source}


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"encoding": "utf-8-sig"},
        {"delimiter": ",", "quoting": csv.QUOTE_ALL},
        {"delimiter": "\t"},
        {"names": ("text", "preis", "datum", " label ")},
    ],
    ids=["semicolons", "byte order mark", "quotes", "tabs", "spaces in names"],
)
def test_decimal_commas_marks_quotes_and_spaces_are_read_without_flags(options, tmp_path):
    data = awkward(tmp_path / "rows.csv", **options)
    model = trained(data, tmp_path / "m")
    assert kinds(model)["preis"] == "number"
    assert model.recipe_["decimal"] == ","
    assert main(["predict", str(tmp_path / "m"), data, "-o", str(tmp_path / "out")]) == 0
    told = [line.split(";")[-1].strip('\r\n" ') for line in Path(data).read_text("utf-8").splitlines()[1:]]
    if options.get("delimiter") is None:
        found = (tmp_path / "out").read_text().split()
        assert sum(a == b for a, b in zip(found, told, strict=True)) > 0.85 * len(told)


def test_thousands_and_lists_are_no_decimal_commas(tmp_path):
    lines = ["price;tags;label"] + [f"{i % 9 + 1},{i % 1000:03};a,b;{'xy'[i % 2]}" for i in range(60)]
    (tmp_path / "rows.csv").write_text("\n".join(lines) + "\n")
    model = trained(str(tmp_path / "rows.csv"), tmp_path / "m")
    assert model.recipe_["decimal"] == "."
    asked = trained(str(tmp_path / "rows.csv"), tmp_path / "m", "--decimal", ",")
    assert asked.recipe_["decimal"] == ","
    assert kinds(asked)["price"] == "number"


def test_a_value_that_is_no_number_is_reported_with_decimal_commas_too(tmp_path, capsys):
    data = Path(awkward(tmp_path / "rows.csv"))
    data.write_text(data.read_text() + "schön;1,5;2024-03-01;ja\n" * 3)
    assert main(["train", str(data), "-m", str(tmp_path / "m"), "--quiet", "--numeric", "preis", "--text", "text"]) == 0
    data.write_text(data.read_text() + "schön;viel;2024-03-01;ja\n")
    assert main(["train", str(data), "-m", str(tmp_path / "m"), "--quiet", "--numeric", "preis", "--text", "text"]) == 2
    assert "'viel' in column 'preis' is not a number" in capsys.readouterr().err


def test_the_index_that_pandas_writes_is_left_out_and_has_a_name(tmp_path):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"a": [i % 2 for i in range(60)], "label": ["xy"[i % 2] for i in range(60)]})
    frame.to_csv(tmp_path / "rows.csv")
    model = trained(str(tmp_path / "rows.csv"), tmp_path / "m")
    assert kinds(model) == {"unnamed 0": "id", "a": "number"}


@pytest.mark.parametrize(
    ("options", "way_out"),
    [
        ({"encoding": "latin-1"}, "iconv -f LATIN1 -t UTF-8 FILE > NEW"),
        ({"names": ()}, "they look like values, so if the file has no header, give --no-header"),
        ({"names": ("text", "x", "x", "label")}, "more than one column 'x'; rename or drop one"),
        ({"blank": True}, "the label in column 'label' is missing; correct the line or give --on-bad-line skip"),
    ],
    ids=["latin-1", "no header", "two columns of one name", "a label is missing"],
)
def test_what_cannot_be_read_is_answered_by_the_way_out(options, way_out, tmp_path, capsys):
    data = awkward(tmp_path / "rows.csv", **options)
    assert main(["train", data, "-m", str(tmp_path / "m")]) == 2
    assert way_out in capsys.readouterr().err


def test_the_cost_of_wide_tables_grows_as_their_columns_do(tmp_path):
    def cost(n_columns):
        random.seed(0)
        with open(tmp_path / "wide.csv", "w") as file:
            file.write(",".join(f"c{i}" for i in range(n_columns)) + ",label\n")
            for i in range(60):
                numbers = [str(random.randint(0, 9) + 3 * (j == 5) * (i % 2)) for j in range(n_columns)]
                file.write(",".join([*numbers, "ab"[i % 2]]) + "\n")
        started = time.process_time()
        trained(str(tmp_path / "wide.csv"), tmp_path / "m")
        return time.process_time() - started

    cost(20)  # which imports what is needed
    assert cost(800) < 16 * cost(200)  # it was 64 times as much


@pytest.mark.skipif(not COOKING.exists(), reason="the file of fastText's tutorial is not beside the project")
def test_the_file_of_fasttexts_tutorial_trains_and_is_measured_without_flags(tmp_path, capsys):
    import gzip

    lines = gzip.decompress(COOKING.read_bytes()).decode().splitlines(keepends=True)
    (tmp_path / "cooking.train").write_text("".join(lines[:2000]))
    (tmp_path / "cooking.valid").write_text("".join(lines[-500:]))
    model = str(tmp_path / "cooking.steepest")
    assert main(["train", str(tmp_path / "cooking.train"), "-m", model]) == 0
    assert "so a text classifier is trained" in capsys.readouterr().err
    assert main(["evaluate", model, str(tmp_path / "cooking.valid"), "--json"]) == 0
    told = capsys.readouterr()
    assert "labels that were never seen in training are not measured" in told.err
    assert json.loads(told.out)["rows"] == 500
    assert main(["predict", model, "Which baking dish is best to bake a banana bread ?"]) == 0
    assert capsys.readouterr().out == "baking\n"


def test_labels_that_a_model_never_saw_are_named_and_not_measured(tmp_path, capsys):
    (tmp_path / "rows.txt").write_text(
        "__label__a __label__b sweet cake\n__label__b hot soup\n__label__a cold cake\n" * 9
    )
    (tmp_path / "more.txt").write_text("__label__a sweet cake\n__label__new __label__b hot soup\n__label__new tea\n")
    model = str(tmp_path / "m")
    assert main(["train", str(tmp_path / "rows.txt"), "-m", model, "--quiet"]) == 0
    capsys.readouterr()
    assert main(["evaluate", model, str(tmp_path / "more.txt"), "--json"]) == 0
    told = capsys.readouterr()
    assert told.err == "steepest: labels that were never seen in training are not measured: new\n"
    assert json.loads(told.out)["rows"] == 3


@pytest.mark.parametrize("kind", ["csv", "txt"])
def test_a_label_that_only_held_out_rows_have_is_left_out_of_the_measures(kind, tmp_path, capsys):
    data, model = tmp_path / f"rows.{kind}", str(tmp_path / "m")
    line = {"csv": "{},{} day\n", "txt": "__label__{} {} day\n"}[kind]
    rare = {f"rare{i}": "odd" for i in range(20)}  # some of them are held out, whatever the seed
    rows = [("a", "fine"), ("b", "bad")] * 60 + list(rare.items())
    data.write_text("label,text\n" * (kind == "csv") + "".join(line.format(*row) for row in rows))
    assert main(["train", str(data), "-m", model, "--holdout", "0.3", "--epochs", "3"]) == 0
    said = capsys.readouterr().err
    assert "not measured: the label 'rare" in said
    assert "held out  accuracy" in said
    assert main(["cv", str(data), "--folds", "3"]) == 0
    assert "mean" in capsys.readouterr().out


def test_validation_rows_with_labels_that_training_rows_lack_weigh_nothing():
    known = st.from_arrays([[0.0], [1.0], [0.0], [1.0]] * 9, ["a", "b", "a", "b"] * 9)
    fit = [
        st.LinearClassifier(solver="sgd", random_state=0).fit_stream(known, st.from_arrays(X, y)).history_
        for X, y in (([[0.0], [1.0]], ["a", "b"]), ([[0.0], [1.0], [9.0]], ["a", "b", "new"]))
    ]
    assert fit[0].column("holdout_loss") == fit[1].column("holdout_loss")
    model = st.LinearClassifier(random_state=0).fit([[0.0], [1.0]], [0, 1])
    with pytest.raises(st.DataError, match="never seen in training"):
        model.objective([[0.0]], [2])


PEERS = {
    "-d rows.csv -f m": "here it is no flag: write the file alone, as in steepest train DATA -m MODEL",
    "rows.csv -m m --passes 3": "here it is --epochs N",
    "rows.csv -m m --loss_function hinge": "here it is --loss hinge",
    "rows.csv -m m -q ab": "here it is --cross A,B",
    "rows.csv -m m -b 20": "here it is --bits N",
    "rows.csv -m m --learning_rate 0.5": "here it is --eta0 NUMBER",
    "rows.csv -m m -lr 0.5": "here it is --eta0 NUMBER",
    "rows.csv -m m -wordNgrams 2": "here it is --ngrams 1,2",
    "rows.csv -m m --max_iter 100": "here it is --epochs N",
    "rows.csv -m m --target price": "here it is --label COLUMN",
    "rows.csv -m m --class_weight balanced": "did you mean '--class-weight'?",
}


@pytest.mark.parametrize("command", PEERS)
def test_a_flag_of_another_tool_is_answered_by_ours(command, capsys):
    assert main(["train", *command.split()]) == 2
    assert PEERS[command] in capsys.readouterr().err


def test_a_wide_confusion_matrix_becomes_a_list_of_mistakes(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    rows = [(f"class-{i % 9}", f"word{i % 9}") for i in range(90)]
    (tmp_path / "rows.csv").write_text("label,text\n" + "".join(f"{a},{b}\n" for a, b in rows))
    trained(str(tmp_path / "rows.csv"), tmp_path / "m")
    (tmp_path / "new.csv").write_text("label,text\nclass-1,word2\nclass-1,word2\nclass-3,word3\n")
    assert main(["evaluate", str(tmp_path / "m"), str(tmp_path / "new.csv")]) == 0
    shown = capsys.readouterr().out
    assert max(map(len, shown.splitlines())) <= 80
    assert [line.split() for line in shown.splitlines()[-2:]] == [
        ["true", "predicted", "rows"],
        ["class-1", "class-2", "2"],
    ]


def test_a_loaded_model_shows_the_parameters_it_was_given(tmp_path):
    hasher = st.Hasher(ngrams=(1, 2), cross=[("a", "b")])
    rows = [{"a": "x", "b": "y"}, {"a": "z", "b": "y"}] * 9
    st.LinearClassifier(hasher=hasher, random_state=0).fit(rows, [0, 1] * 9).save(tmp_path / "m")
    assert repr(st.load(tmp_path / "m").hasher) == "Hasher(ngrams=(1, 2), cross=(('a', 'b'),))"


def test_many_classes_are_not_all_listed(tmp_path, capsys):
    (tmp_path / "rows.csv").write_text("text,label\n" + "".join(f"word{i % 40},c{i % 40}\n" for i in range(200)))
    trained(str(tmp_path / "rows.csv"), tmp_path / "m")
    assert main(["inspect", str(tmp_path / "m")]) == 0
    shown = capsys.readouterr().out
    assert shown.count("top features for ") == 20
    assert "... and 20 more classes (--class NAME shows one, --json all)" in shown
    assert main(["inspect", str(tmp_path / "m"), "--class", "c39"]) == 0
    assert "top features for c39" in capsys.readouterr().out


def test_a_fault_of_ours_is_one_line_too(tmp_path, monkeypatch, capsys):
    from steepest.cli import inspect

    monkeypatch.setattr(inspect, "run", lambda options: {}["gone"])
    assert main(["inspect", str(tmp_path / "m")]) == 1
    assert capsys.readouterr().err == (
        "steepest: KeyError: 'gone'; this is a bug in steepest: report it with the output of --debug\n"
    )
    with pytest.raises(KeyError):
        main(["inspect", str(tmp_path / "m"), "--debug"])


def test_the_short_help_has_whole_sentences_and_about_twenty_flags(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    assert main(["train", "--help"]) == 0
    shown = capsys.readouterr().out
    flags = [line for line in shown.splitlines() if line.startswith("  -")]
    assert 18 <= len(flags) <= 26
    assert shown.count("(") == shown.count(")")
    assert "EarlyStopping(" not in shown


def test_output_piped_to_head_ends_quietly(tmp_path):
    import subprocess
    import sys

    (tmp_path / "rows.csv").write_text("a,label\n" + "1,x\n2,y\n" * 20_000)
    trained(str(tmp_path / "rows.csv"), tmp_path / "m")
    command = f"{sys.executable} -m steepest predict m rows.csv --proba | head -2"
    done = subprocess.run(command, shell=True, cwd=tmp_path, capture_output=True, text=True, env={**os.environ})
    assert done.returncode == 0
    assert done.stderr == ""
    assert done.stdout.splitlines()[0] == "x\ty"


def test_a_table_from_a_pipe_says_what_could_not_be_tried(tmp_path):
    rows = "".join(f"{k % 7},{k % 3},{'yes' if k % 7 > 3 else 'no'}\n" for k in range(300))
    command = [sys.executable, "-m", "steepest", "train", "-", "--label", "sold", "-m", str(tmp_path / "m")]
    said = subprocess.run(command, input=f"size,day,sold\n{rows}", capture_output=True, text=True, check=True).stderr
    assert "note      standard input can be read only once" in said
    assert "train on a file to have them" in said
    texts = "".join(f"__label__{k % 2} word{k % 2} noon\n" for k in range(50))
    said = subprocess.run([*command[:5], "-m", command[-1]], input=texts, capture_output=True, text=True, check=True)
    assert "only once" not in said.stderr
