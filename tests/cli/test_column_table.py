"""The table of columns that train and inspect show, and the flags that change kinds."""

import json

import pytest

import steepest as st
from steepest.cli import main


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "shop.csv"
    lines = ["id,colour,price,when,note,label"]
    for i in range(400):
        note = f"word{i % 17} and some more"
        lines.append(f"{i},{'red' if i % 3 else 'blue'},${i % 90}.50,2024-{i % 12 + 1:02}-03,{note},{i % 2}")
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return str(path)


def test_columns_are_shown_after_training_and_by_inspect(table, tmp_path, capsys):
    model = str(tmp_path / "m")
    assert main(["train", table, "-m", model]) == 0
    shown = capsys.readouterr().err
    assert "steepest: column 'id' differs in almost every row, so it was left out" in shown
    table, _, summary = shown.partition("\n\n")
    assert "left out  id (differs in almost every row)" in summary
    assert "label     label, chosen by its name (--label COLUMN chooses another)" in summary
    rows = {line.split()[0]: line for line in table.splitlines() if not line.startswith("steepest")}
    assert rows["column"].split() == ["column", "kind", "distinct", "missing", "example", "note"]
    assert rows["id"].split()[1] == "id"
    assert rows["price"].split()[1] == "number"
    assert "read as numbers, such as '$0.50'" in rows["price"]
    assert rows["when.month"].split()[1] == "number"
    assert main(["inspect", model]) == 0
    assert rows["price"] in capsys.readouterr().out
    assert main(["inspect", model, "--json"]) == 0
    columns = {column["name"]: column for column in json.loads(capsys.readouterr().out)["columns"]}
    assert columns["when.month"]["source"] == "when"
    assert columns["id"]["reason"] == "differs in almost every row"


def test_quiet_shows_no_columns(table, tmp_path, capsys):
    assert main(["train", table, "-m", str(tmp_path / "m"), "--quiet", "--ignore", "id"]) == 0
    assert capsys.readouterr().err == ""


def test_kinds_and_ignored_columns_by_flags(table, tmp_path):
    model = str(tmp_path / "m")
    assert (
        main(["train", table, "-m", model, "--kind", "id=number", "--kind", "colour=text", "--ignore", "note,when"])
        == 0
    )
    kinds = {column.name: column.kind for column in st.load(model).hasher_.columns_}
    assert kinds == {"id": "number", "colour": "text", "price": "number", "when": "ignored", "note": "ignored"}


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--kind", "colour=words"], "the kind 'words' of column 'colour' is unknown"),
        (["--kind", "size=number"], "names the column 'size', but these rows have 'id', 'colour'"),
        (["--ignore", "size"], "names the column 'size'"),
    ],
)
def test_flags_that_cannot_work_are_refused_in_one_sentence(table, tmp_path, capsys, flags, message):
    assert main(["train", table, "-m", str(tmp_path / "m"), *flags]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
