"""Exported models of tables answer as the model does: every kind of column, in C and in plain Python."""

import ctypes
import json
import os
import shutil
import subprocess
import sys
from dataclasses import asdict

import numpy as np
import pytest

import steepest as st
from steepest.cli import main
from steepest.export.describe import describe
from steepest.export.python_file import plain
from steepest.export.runtime import Scorer, date_part, read_value
from steepest.features import dates

CC = os.environ.get("CC") or shutil.which("cc")
STRICT = ["-Wall", "-Wextra", "-pedantic", "-std=c99", "-Werror"]
needs_compiler = pytest.mark.skipif(CC is None, reason="no C compiler: set CC or install one")
WORDS = ["alpha", "Beta", "gamma", "délta", "ÜBER", "Привет", "漢字", "red_x", "42", "good", "bad", "fine"]
ROOM = 1 << 19


def table(n, seed):
    """Rows with every kind of column, and missing values of each."""
    rng = np.random.default_rng(seed)
    rows = []
    for k in range(n):
        day = np.datetime64("2023-01-01T00:00:00") + np.timedelta64(int(rng.integers(0, 5 * 10**7)), "s")
        row = {
            "price in €": None if k % 9 == 0 else float(np.round(100 * rng.normal() + 500, 2)),
            "hour": int(rng.integers(24)),
            "cost": f"${rng.integers(1, 9)},{rng.integers(100, 999)}.50" if k % 8 else "unknown",
            "colour": ["red", "green", "blue", None, "N/A"][rng.integers(5)],
            "car": f"{rng.choice(['Audi', 'BMW', 'Fiat'])}_{rng.choice(['A4', 'X3'])}_{rng.integers(40)}",
            "new": bool(rng.integers(2)),
            "tags": "|".join(rng.choice(["a", "b", " c d", "e"], rng.integers(0, 4))),
            "title": " ".join(rng.choice(WORDS, rng.integers(2, 5))),
            "body": None if k % 11 == 0 else " ".join(rng.choice(WORDS, rng.integers(3, 14))),
            "when": str(day) if k % 10 else None,
        }
        rows.append(row)
    return rows


ROWS = table(700, 0)
VALUE = np.array(
    [(row["price in €"] or 400) / 100 + (row["hour"] - 12) ** 2 / 30 + 3 * ("good" in row["title"]) for row in ROWS]
)
TWO = np.where(VALUE > 7, "dear", "cheap")
THREE = np.digitize(VALUE, [6, 9])
# Held out: with unseen categories, values of other types, values that do not fit, and columns that are not there.
STRANGE = [
    {},
    {"colour": "mauve", "car": "Škoda-X 3/4_", "tags": "zz||a |", "title": "", "when": "1999-12-31 23:59"},
    {"colour": 17.0, "car": 3, "tags": ["a", 3, None, " e "], "title": 5, "body": "漢字 漢字", "hour": "12", "cost": 3},
    {"price in €": "12%", "hour": -50, "cost": "(1,200)", "tags": "nan", "new": "yes", "when": "3/4/1969 2:05 pm"},
    {"price in €": 0, "hour": 23, "cost": "cheap", "colour": "NONE", "new": True, "tags": [], "when": "never"},
    {"new": "true", "colour": "true"},
    {"new": "FALSE", "colour": "FALSE"},
]
NEW = [*table(40, 1), *STRANGE]
CROSSES = [
    *[("title", "colour"), ("title", "body"), ("hour", "body"), ("tags", "colour")],
    *[("price in €", "new"), ("tags", "title"), ("when.hour", "car"), ("hour", "when.days")],
]


def classifier(y, hasher=None, rows=ROWS, loss="auto", **options):
    return st.LinearClassifier(loss, hasher=hasher, random_state=0, **options).fit(rows, y)


def calibrated(model, y):
    """With a map for labels of which most are drawn by lot, so that the model is too sure."""
    rng = np.random.default_rng(5)
    return model.calibrate_on(ROWS, np.where(rng.random(len(y)) < 0.8, rng.permutation(y), y))


def some(*names):
    return [{name: row[name] for name in names} for row in ROWS]


MODELS = {
    "regression": lambda: st.LinearRegressor(random_state=0).fit(ROWS, VALUE),
    "poisson": lambda: st.LinearRegressor("poisson", hasher=st.Hasher(14), random_state=0).fit(ROWS, np.rint(VALUE)),
    "binary": lambda: calibrated(classifier(TWO), TWO),
    "softmax": lambda: calibrated(classifier(THREE, multi_class="softmax"), THREE),
    "one against the rest": lambda: calibrated(classifier(THREE, loss="log", multi_class="ovr"), THREE),
    "hats and crosses": lambda: classifier(TWO, st.Hasher(15, ngrams=(1, 2), cross=CROSSES[:6], stop_words=["bad"])),
    "rare": lambda: classifier(THREE, st.Hasher(15, ngrams=(1, 2), cross=CROSSES[:4], min_rows=3)),
    "copies": lambda: classifier(
        THREE, st.Hasher(14, copies=3, weighting="binary", norm=None, signed=False, cross=CROSSES[:4])
    ),
    "characters": lambda: classifier(TWO, st.Hasher(14, ngrams=None, char_ngrams=(2, 3)), some("title", "body")),
    "numbers": lambda: classifier(TWO, None, some("price in €", "hour", "cost")),
    "categories": lambda: classifier(TWO, st.Hasher(12, cross=[("car", "new")]), some("colour", "car", "new")),
    "one text crossed with itself": lambda: classifier(TWO, st.Hasher(12, cross=[("title", "title")]), some("title")),
}


@pytest.fixture(scope="module")
def models():
    return {name: make() for name, make in MODELS.items()}


def scores_of(model, rows):
    if isinstance(model, st.LinearRegressor):
        found = model.predict(rows)
        return (np.log(found) if describe(model).link == "exp" else found).reshape(len(rows), -1)
    return np.asarray(model.decision_function(rows)).reshape(len(rows), -1)


def runtime_of(model):
    return Scorer(json.loads(json.dumps(plain(describe(model)))))


@pytest.mark.parametrize("name", MODELS)
def test_plain_python_makes_the_features_of_the_hasher(models, name):
    model = models[name]
    scorer, rows = runtime_of(model), model.hasher_.to_chunk(NEW)
    for k, given in enumerate(NEW):
        found, cut = scorer.row(given), slice(rows.indptr[k], rows.indptr[k + 1])
        expected = dict(zip(rows.indices[cut].tolist(), rows.values[cut].tolist(), strict=True))
        if name == "copies":  # of a batch of words, all first copies come first, so that sums have another order
            assert found.keys() == expected.keys()
            np.testing.assert_allclose([found[j] for j in expected], list(expected.values()), rtol=1e-6)
        else:
            assert list(found.items()) == list(expected.items())


@pytest.mark.parametrize("name", MODELS)
def test_plain_python_gives_the_scores_and_calibrated_probabilities_of_the_model(models, name):
    model = models[name]
    scorer = runtime_of(model)
    np.testing.assert_allclose([scorer.scores(row) for row in NEW], scores_of(model, NEW), rtol=1e-5, atol=1e-5)
    if hasattr(model, "predict_proba"):
        found = [scorer.probabilities(row) for row in NEW]
        np.testing.assert_allclose(found, model.predict_proba(NEW), atol=1e-5)


def test_among_these_models_are_all_kinds_of_columns_and_of_calibrations(models):
    columns = describe(models["hats and crosses"]).hashing.columns
    assert {column.kind for column in columns} == {"number", "category", "list", "text"}
    assert any(column.part for column in columns)
    assert any(column.knots for column in columns)
    assert any(column.separators for column in columns if column.kind == "category")
    assert describe(models["softmax"]).slope != 1
    assert describe(models["one against the rest"]).power != 1
    assert describe(models["binary"]).slope != 1


@pytest.mark.parametrize("name", ["regression", "binary", "softmax"])
def test_the_python_file_predicts_rows_of_a_table_without_any_package(models, tmp_path, name):
    model, path = models[name], tmp_path / "model.py"
    st.export_model(model, path, to="python")
    lines = "".join(json.dumps(row) + "\n" for row in NEW)
    bare = [sys.executable, "-I", "-S", str(path)]
    done = subprocess.run(bare, input=lines, capture_output=True, text=True, encoding="utf-8")
    assert done.returncode == 0, done.stderr
    expected = model.predict(NEW)
    if name == "regression":
        np.testing.assert_allclose([float(line) for line in done.stdout.splitlines()], expected, rtol=1e-5)
    else:
        assert done.stdout.splitlines() == [str(label) for label in expected]


class Text(ctypes.Structure):
    _fields_ = (("data", ctypes.c_char_p), ("size", ctypes.c_size_t))


def c_input(hashing, given):
    """A row as the struct of the C file."""
    kinds = [ctypes.c_double if column.kind == "number" else Text for column in hashing.inputs]
    shape = type("Input", (ctypes.Structure,), {"_fields_": [(f"m{k}", kind) for k, kind in enumerate(kinds)]})
    members = []
    for column, kind in zip(hashing.inputs, kinds, strict=True):
        value = read_value(asdict(column), given.get(column.origin))
        coded = value.encode() if isinstance(value, str) else value
        if kind is Text:
            members.append(Text(coded, len(coded or b"")))
        else:
            members.append(float("nan") if value is None else value)
    return shape(*members)


@needs_compiler
@pytest.mark.build
@pytest.mark.parametrize("name", MODELS)
def test_c_compiles_without_a_warning_passes_its_test_and_scores_new_rows_as_the_model(models, tmp_path, name):
    model, source, library = models[name], tmp_path / "model.c", tmp_path / "model.so"
    st.export_model(model, source)
    program = tmp_path / "test"
    subprocess.run([CC, *STRICT, "-O1", "-DSTEEPEST_TEST", source, "-o", program, "-lm"], check=True)
    printed = subprocess.run([program], capture_output=True, text=True, check=True).stdout
    assert "largest difference 0," in printed
    subprocess.run([CC, *STRICT, "-O1", "-shared", "-fPIC", source, "-o", library, "-lm"], check=True)
    functions = ctypes.CDLL(str(library))
    description = describe(model)
    room = ctypes.create_string_buffer(ROOM)
    scores = (ctypes.c_double * description.n_scores)()
    found, shares = [], []
    for given in NEW:
        row = c_input(description.hashing, given)
        assert functions.steepest_scores(ctypes.byref(row), room, scores) == 0
        found.append(list(scores))
        if hasattr(model, "predict_proba"):
            p = (ctypes.c_double * len(model.classes_))()
            functions.steepest_probabilities(scores, p)
            shares.append(list(p))
    np.testing.assert_allclose(found, scores_of(model, NEW), rtol=1e-5, atol=1e-5)
    scorer = runtime_of(model)
    assert found == [scorer.scores(row) for row in NEW]
    if shares:
        np.testing.assert_allclose(shares, model.predict_proba(NEW), atol=1e-5)


@needs_compiler
@pytest.mark.build
def test_smaller_numbers_of_a_table_decode_in_c_to_the_same_bits(models, tmp_path):
    st.export_model(models["hats and crosses"], tmp_path / "model.c", precision="int8", keep=300)
    subprocess.run([CC, *STRICT, "-DSTEEPEST_TEST", tmp_path / "model.c", "-o", tmp_path / "test", "-lm"], check=True)
    printed = subprocess.run([tmp_path / "test"], capture_output=True, text=True, check=True).stdout
    assert "largest difference 0," in printed


def test_the_c_file_says_what_each_member_of_the_input_holds(models, tmp_path):
    st.export_model(models["regression"], tmp_path / "model.c")
    text = (tmp_path / "model.c").read_text(encoding="utf-8")
    for line in (
        "double price_in__; /* price in €: number; NAN, infinite or beyond 32 bits: missing */",
        "double cost; /* cost: number, without currency and unit; NAN, infinite or beyond 32 bits: missing */",
        "steepest_text tags; /* tags: list, with '|' or byte 31 between its values */",
        "double when; /* when: date, as seconds since 1970-01-01 00:00 by its own clock; NAN: missing */",
    ):
        assert line in text
    assert "steepest_text new; /* new: category, such as '" in text


def test_parts_of_dates_are_those_of_the_package():
    rng = np.random.default_rng(2)
    seconds = np.concatenate([rng.integers(-(10**11), 10**11, 500), [0, -1, 951_782_400, 951_868_799]]).astype(float)
    for part in dates.PARTS:
        assert [date_part(s, part) for s in seconds.tolist()] == dates.part_of(seconds, part).tolist()


def test_the_python_file_refuses_what_the_model_refuses(models):
    hasher = st.Hasher(12, numeric=["hour"], categorical=["colour"])
    model = classifier(TWO, hasher)
    scorer = runtime_of(model)
    for value in ("noon", float("inf"), 1e39):
        with pytest.raises(st.DataError):
            model.predict([{"hour": value, "colour": "red"}])
        with pytest.raises(ValueError, match="column 'hour' is"):
            scorer.predict({"hour": value, "colour": "red"})
    with pytest.raises(ValueError, match="give a dict of the columns 'colour', 'hour'"):
        scorer.predict("noon")


@pytest.mark.parametrize(
    ("hasher", "rows", "why"),
    [
        (st.Hasher(12, by_column=True), some("colour", "new"), "by_column=True"),
        (st.Hasher(12, min_count=2), some("title", "hour"), "min_count=2"),
        (st.Hasher(12, bags=True), [dict.fromkeys(row["title"].split(), 1) for row in ROWS], "words and counts"),
    ],
)
def test_hashers_that_an_export_does_not_know_are_refused_in_one_sentence(hasher, rows, why):
    with pytest.raises(st.DataError, match=why):
        describe(classifier(TWO, hasher, rows))


def test_the_shell_exports_a_table_with_rows_of_the_file_in_the_test(tmp_path, capsys):
    data, model = tmp_path / "rows.csv", tmp_path / "model.steepest"
    lines = [",".join("" if value is None else str(value).replace(",", "") for value in row.values()) for row in ROWS]
    head = ",".join([*ROWS[0], "label"])
    data.write_text("\n".join([head, *(f"{a},{b}" for a, b in zip(lines, TWO, strict=True))]), encoding="utf-8")
    assert main(["train", str(data), "--label", "label", "-m", str(model), "--random-state", "0"]) == 0
    capsys.readouterr()
    assert main(["export", str(model), "--to", "python", "-o", str(tmp_path / "m.py"), "--check", str(data)]) == 0
    assert {"float32", "float16", "int8"} <= {line.split()[0] for line in capsys.readouterr().err.splitlines()[2:]}
    given = "".join(json.dumps(row) + "\n" for row in ROWS[:20])
    bare = [sys.executable, "-I", "-S", str(tmp_path / "m.py")]
    done = subprocess.run(bare, input=given, capture_output=True, text=True, encoding="utf-8", check=True)
    assert done.stdout.splitlines() == st.load(model).predict(ROWS[:20]).tolist()


@needs_compiler
@pytest.mark.build
def test_columns_may_be_called_as_macros_keywords_and_the_names_of_the_file_are(tmp_path):
    names = ["K1", "COPIES", "NAN", "int", "steepest_x", "8", "a b", "a_b"]
    rows = [{name: ["p", "q", "r"][(k + i) % (2 + i % 2)] for i, name in enumerate(names)} for k in range(60)]
    model = classifier(["yes" if row["K1"] == "p" else "steepest_no" for row in rows], st.Hasher(12), rows)
    st.export_model(model, tmp_path / "model.c", name="spam")
    source, program = tmp_path / "model.c", tmp_path / "test"
    subprocess.run([CC, *STRICT, "-DSTEEPEST_TEST", source, "-o", program, "-lm"], check=True)
    printed = subprocess.run([program], capture_output=True, text=True, check=True).stdout
    assert "largest difference 0," in printed


@needs_compiler
@pytest.mark.build
@pytest.mark.parametrize("names", [["tags"], ["when"], ["colour"], ["title", "hour"], ["when", "body"]], ids=str)
def test_c_of_few_columns_holds_nothing_that_it_does_not_use(tmp_path, names):
    model = classifier(TWO, st.Hasher(12, char_ngrams=(2, 3)), some(*names))
    st.export_model(model, tmp_path / "model.c")
    source, program = tmp_path / "model.c", tmp_path / "test"
    subprocess.run([CC, *STRICT, "-DSTEEPEST_TEST", source, "-o", program, "-lm"], check=True)
    assert "largest difference 0," in subprocess.run([program], capture_output=True, text=True, check=True).stdout
