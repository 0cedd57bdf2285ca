"""Kinds of columns, decided on a sample, and how they become features."""

import json
import math
import warnings
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

import steepest as st
from steepest.features import dates, written
from steepest.features.columns import Column
from steepest.features.survey import knots_of, survey_column
from steepest.kernels.reference import text as reference

N = 300


def survey(values, name="c", **more):
    return survey_column(name, values, **more)


def kind(values, name="c"):
    return survey(values, name)[0].kind


@pytest.fixture
def table():
    rng = np.random.default_rng(0)
    return [
        {
            "text": f"some words {'good' if i % 2 else 'bad'} number{i}",
            "size": float(rng.normal(100, 20)),
            "hour": i % 24,
            "colour": ("red", "green", "blue")[i % 3],
            "tags": ("a|b", "b|c|d", "d")[i % 3],
            "when": f"2024-{i % 12 + 1:02}-{i % 27 + 1:02}",
        }
        for i in range(N)
    ]


# ---------------------------------------------------------------------------------------------------------------- kinds


@pytest.mark.parametrize(
    ("name", "values", "expected"),
    [
        ("size", [i * 0.37 for i in range(N)], "number"),
        ("hour", [i % 24 for i in range(N)], "number"),
        ("flag", [bool(i % 2) for i in range(N)], "category"),
        ("answer", ["yes" if i % 3 else "no" for i in range(N)], "category"),
        ("zip", [10_000 + i * 37 % 90 for i in range(N)], "category"),
        ("customerId", list(range(N)), "id"),
        ("row", list(range(5000, 5000 + N)), "id"),
        ("row", [(i * 7919) % 1009 for i in range(N)], "id"),
        ("salary", [(i * 7919 * 7919) % 10_000_019 for i in range(N)], "number"),
        ("token", [f"{i * 2654435761 % 2**32:08x}" for i in range(N)], "id"),
        ("review", [f"word{i} and more words" for i in range(N)], "text"),
        ("room", ["Private room" if i % 2 else "Shared room" for i in range(N)], "category"),
        ("url", [f"example.org/shop/item-{i}/some-long-name" for i in range(N)], "text"),
        ("one", ["same"] * N, "constant"),
        ("none", [None] * N, "constant"),
        ("belt", ["belted", "none"] * (N // 2), "category"),
        ("flag", [1.0, float("nan")] * (N // 2), "number"),
        ("ordinal_date", [736389 + i for i in range(N)], "number"),
        ("counter", [736389 + i for i in range(N)], "id"),
        ("none", [float("nan")] * N, "constant"),
        ("price", [f"${i},{i % 10}00.50" for i in range(1, N)], "number"),
        ("share", [f"{i % 100}%" for i in range(N)], "number"),
        ("way", [f"{i},000km" for i in range(1, N)], "number"),
        ("dose", [("10k", "3M", "5k")[i % 3] for i in range(N)], "category"),
        ("code", [f"{i % 50:05}" for i in range(N)], "category"),
        ("digits", [str(i % 50) for i in range(N)], "category"),
        ("nuclei", ["?" if i % 20 == 0 else str(i % 10) for i in range(N)], "number"),
        ("genre", [("Action|Drama", "War|Science Fiction", "Drama")[i % 3] for i in range(N)], "list"),
        ("tags", [["a", "b"] if i % 2 else ["c"] for i in range(N)], "list"),
        ("when", [f"2024-01-{i % 28 + 1:02}T10:00:00" for i in range(N)], "date"),
        ("when", [f"{i % 12 + 1:02}/{i % 28 + 1:02}/2024" for i in range(N)], "date"),
        ("when", [f"{i % 28 + 1}.{i % 12 + 1}.2024" for i in range(N)], "date"),
        ("date", [20_240_101 + i % 28 for i in range(N)], "date"),
        ("amount", [20_240_101 + i % 28 for i in range(N)], "number"),
        ("time", [1_700_000_000 + 86_400 * i for i in range(N)], "date"),
        ("seen", [1_700_000_000 + 86_400 * (i % 90) for i in range(N)], "number"),
    ],
)
def test_rules(name, values, expected):
    assert kind(values, name) == expected


def test_dates_in_three_formats_in_one_column():
    values = [("2024-03-01", "03/15/2024", "31.12.2024")[i % 3] for i in range(N)]
    columns = survey(values, "d")
    assert columns[0].kind == "date"
    seconds = dates.parse(values[:3], columns[0].format)
    assert dates.part_of(seconds, "month").tolist() == [3, 3, 12]
    assert dates.part_of(seconds, "day").tolist() == [1, 15, 31]


def test_dates_with_names_of_months():
    values = [("1 Mar 2024", "December 31st, 2023 11:05 pm", "Sat 02-Mar-24")[i % 3] for i in range(N)]
    columns = survey(values, "d")
    assert columns[0].kind == "date"
    seconds = dates.parse([*values[:3], "Mar-2024", "Mar-24", "Mar 32, 2024", "Market 2024"], columns[0].format)
    assert dates.part_of(seconds, "month")[:4].tolist() == [3, 12, 3, 3]
    assert dates.part_of(seconds, "day")[:4].tolist() == [1, 31, 2, 1]
    assert dates.part_of(seconds, "hour")[:3].tolist() == [0, 23, 0]
    assert np.isnan(seconds[4:]).all()  # a year or a day, no such day, a word like a month


def test_numbers_that_become_words_in_the_middle_of_a_file_are_noted():
    (column,) = survey([f"{i}.5" if i < N // 2 else ("low", "high")[i % 2] for i in range(N)])
    assert (column.kind, column.note[:33]) == ("category", "50% of the values are numbers, th")
    assert survey([f"A{i % 60}" for i in range(N)])[0].note == ""


def test_a_date_gives_the_parts_that_vary():
    columns = survey([f"2024-01-{i % 28 + 1:02} {i % 24:02}:30" for i in range(N)], "d")
    assert [column.part for column in columns[1:]] == ["days", "day", "weekday", "hour"]
    assert {column.source for column in columns[1:]} == {"d"}
    hour = next(column for column in columns if column.part == "hour")
    assert hour.candidates == tuple(range(24))


def test_parts_of_a_date_are_those_of_the_calendar():
    seconds = dates.parse(["2024-02-29 23:59:59", "1969-12-31", None, "2024-02-30", "5:00"], written.YMD)
    assert np.isnan(seconds[2:]).all()
    parts = {part: dates.part_of(seconds, part)[:2].tolist() for part in dates.PARTS[1:]}
    assert parts == {"year": [2024, 1969], "month": [2, 12], "day": [29, 31], "weekday": [3, 2], "hour": [23, 0]}


@pytest.mark.parametrize(
    ("text", "order", "moment"),
    [
        ("2024/3/1T14:05", written.YMD, "2024-03-01T14:05"),
        ("03/01/2024 2:05 pm", written.MDY, "2024-03-01T14:05"),
        ("03/01/2024", written.DMY, "2024-01-03"),
        ("1.3.24", written.MDY, "2024-03-01"),
        ("1/13/70 12:00 am", written.MDY, "1970-01-13"),
        ("2024-03-01 10:00:60Z", written.YMD, "2024-03-01T10:01"),
        (20240301.0, written.COMPACT, "2024-03-01"),
        (b"20240301", written.COMPACT, "2024-03-01"),
        (1.7e12, written.EPOCH_MS, "2023-11-14T22:13:20"),
        ("Fri, 1 Mar 2024 10:30:00 UTC", written.MDY, "2024-03-01T10:30"),
        ("March 1st, 2024", written.MDY, "2024-03-01"),
        ("01-mar-24", written.MDY, "2024-03-01"),
        ("Mar-2024", written.DMY, "2024-03-01"),
        ("Mar-24", written.MDY, "NaT"),
        ("1 Mar 5 2024", written.MDY, "NaT"),
        ("31.2.2024", written.DMY, "NaT"),
        ("2024-03-01 24:00", written.YMD, "NaT"),
        ("1/2/345", written.MDY, "NaT"),
        (float("inf"), written.COMPACT, "NaT"),
        ("x", written.EPOCH, "NaT"),
    ],
)
def test_written_dates(text, order, moment):
    expected = np.datetime64(moment, "s")
    np.testing.assert_equal(written.seconds_of(text, order), np.nan if np.isnat(expected) else expected.astype(float))


@pytest.mark.parametrize(
    ("text", "number"),
    [("1,234.50", 1234.5), ("$120", 120), ("97%", 97), ("150,000km", 150_000), ("-3", -3), ("(12)", -12), (".5", 0.5)],
)
def test_written_numbers(text, number):
    assert written.read_number(text)[0] == number
    assert math.isnan(written.read_number(text + " or so words")[0])


def test_values_that_are_not_numbers_are_said():
    column = survey(["abc" if i % 50 == 0 else f"${i}" for i in range(N)])[0]
    assert column.kind == "number"
    assert "6 of 300 sampled values are not numbers" in column.note
    assert column.missing == pytest.approx(6 / N)


def test_words_joined_by_underscores_count_joined_and_split():
    cars = [f"{brand}_{model}_{body}" for brand in "ABCD" for model in "xyz" for body in ("van", "coupe", "estate")]
    hasher = st.Hasher(20, names=1000).fit([{"car": cars[i % len(cars)], "x": i * 0.1} for i in range(N)])
    assert hasher.columns_[0].kind == "category"
    row, names, _ = hasher.read_row({"car": "A_x_van", "x": hasher.columns_[1].centre})
    values = {name[0]: abs(value) for name, value in zip(names, row.values.tolist(), strict=True)}
    third = pytest.approx(1 / math.sqrt(3))
    assert values == {"car=A_x_van": 1.0, "car:A": third, "car:x": third, "car:van": third}
    assert [hasher.bucket(name[0]) for name in names] == row.indices.tolist()


def test_an_id_is_left_out_and_named(table):
    hasher = st.Hasher(20)
    with pytest.warns(st.ColumnWarning, match="column 'key' differs in almost every row, so it was left out"):
        hasher.survey([{**row, "key": i} for i, row in enumerate(table)])
    assert hasher.columns_[-1].kind == "id"


def test_few_rows_leave_no_column_out():
    hasher = st.Hasher(20).fit([{"a": "x", "id": 1}])
    assert all(column.used for column in hasher.columns_)


def test_a_table_of_nothing_but_ids_keeps_them():
    hasher = st.Hasher(20).survey([{"id": i} for i in range(N)])
    assert [column.kind for column in hasher.columns_] == ["number"]


def test_kinds_are_overridden_one_by_one_and_columns_ignored(table):
    hasher = st.Hasher(20, kinds={"hour": "category", "colour": "text"}, ignore="when").fit(table)
    kinds = {column.name: column.kind for column in hasher.columns_}
    expected = ["text", "number", "category", "text", "list", "ignored"]
    assert kinds == dict(zip(["text", "size", "hour", "colour", "tags", "when"], expected, strict=True))
    with pytest.raises(st.ParameterError, match="the kind 'words' of column 'colour' is unknown"):
        st.Hasher(kinds={"colour": "words"}).fit(table)
    with pytest.raises(st.DataError, match=r"row 0 of column 'colour' is 'red', not a number"):
        st.Hasher(kinds={"colour": "number"}).fit_transform(table)


# ------------------------------------------------------------------------------------------------------------- encoding


@given(
    some.lists(some.floats(-1e6, 1e6, width=32), min_size=2, max_size=20, unique=True).map(sorted),
    some.floats(-2e6, 2e6, width=32),
)
def test_hats_sum_to_one_and_lie_at_the_number(knots, number):
    hats = reference.hats(number, knots)
    assert sum(value for _, value in hats) == pytest.approx(1)
    assert all(0 <= value <= 1 for _, value in hats)
    inside = min(max(number, knots[0]), knots[-1])
    assert sum(knots[k] * value for k, value in hats) == pytest.approx(inside, abs=1e-6 * max(map(abs, knots)) + 1e-9)


@given(some.lists(some.floats(-1e30, 1e30), min_size=1, max_size=200))
def test_knots_increase_and_are_few(numbers):
    knots = knots_of(np.array(numbers))
    assert len(knots) <= 32
    assert all(a < b for a, b in pairwise(knots))
    assert len({f"{knot:.12g}" for knot in knots}) == len(knots) or len(set(numbers)) <= 32


def test_numbers_give_a_line_and_hats_once_knots_are_used(table):
    hasher = st.Hasher(20, names=1000).fit(table).use_knots(["hour"])
    row, names, _ = hasher.read_row({"hour": 7, "size": None})
    values = {name[0]: value for name, value in zip(names, row.values.tolist(), strict=True)}
    hour = next(column for column in hasher.columns_ if column.name == "hour")
    assert abs(values["hour"]) == pytest.approx(abs(7 - hour.centre) / hour.scale)
    assert abs(values["hour~7"]) == 1
    assert "size=<missing>" in values
    assert not any(name.startswith("size~") for name in values)
    with pytest.raises(st.ParameterError, match="'colour' is not a column of numbers"):
        hasher.use_knots(["colour"])


def test_crosses_are_products_of_hats_and_categories(table):
    hasher = st.Hasher(22, names=1000).fit(table).add_crosses([("size", "colour"), ("hour", "when.month")])
    size = next(column for column in hasher.columns_ if column.name == "size")
    assert size.knots == size.candidates != ()
    middle = (size.knots[3] + size.knots[4]) / 2
    row, names, _ = hasher.read_row({"size": middle, "colour": "red", "hour": 3, "when": "2024-05-01"})
    values = {name[0]: abs(value) for name, value in zip(names, row.values.tolist(), strict=True)}
    assert values[f"size~{size.knots[3]:.12g}#colour=red"] == pytest.approx(0.5)
    assert values[f"size~{size.knots[4]:.12g}#colour=red"] == pytest.approx(0.5)
    assert values["hour~3#when.month~5"] == 1
    assert [hasher.bucket(name[0]) for name in names] == row.indices.tolist()


def test_each_text_has_length_one_whatever_stands_beside_it():
    rows = [{"a": f"one two three{i}", "b": f"four five{i}", "c": "xyz"[i % 3]} for i in range(N)]
    hasher = st.Hasher(22, names=2000).fit(rows)
    row, names, _ = hasher.read_row(rows[5])
    values = {name[0]: value for name, value in zip(names, row.values.tolist(), strict=True)}
    for prefix in ("a:", "b:"):
        block = [value for name, value in values.items() if name.startswith(prefix)]
        assert sum(value**2 for value in block) == pytest.approx(1, rel=1e-5)
    assert abs(values["c=z"]) == 1


def test_values_of_a_list_share_the_length_of_a_category():
    rows = [{"tags": ["a", "b", "c", "d"] if i % 2 else ["e"], "x": i % 5} for i in range(N)]
    hasher = st.Hasher(20, names=100).fit(rows)
    row, names, _ = hasher.read_row({"tags": ["a", "b", "c", "never seen"], "x": None})
    values = {name[0]: abs(value) for name, value in zip(names, row.values.tolist(), strict=True)}
    expected = dict.fromkeys(["tags=a", "tags=b", "tags=c", "tags=never seen"], 0.5)
    assert values == {**expected, "x=<missing>": 1.0}


def test_truth_values_are_one_category_however_they_are_written(tmp_path):
    """A CSV reader makes booleans of them, rows of csv.DictReader and of a server hold the text of the file."""
    path = tmp_path / "a.csv"
    path.write_text("open,size,label\n" + "true,1,a\nfalse,2,b\nTRUE,2,a\n,3,b\n" * 50)
    model = st.LinearClassifier(random_state=0).fit_stream(st.scan(path, label="label"))
    model.save(tmp_path / "m")
    hasher = st.load(tmp_path / "m").hasher_
    for texts, value in ((("true", "True", "TRUE"), True), (("false", "False", "FALSE"), False)):
        rows = hasher.transform([{"open": value}, *({"open": text} for text in texts)]).toarray()
        assert (rows == rows[0]).all()
    asked, written = [{"open": "false"}, {"open": "yes"}], hasher.transform([{"open": "False"}, {"open": "yes"}])
    np.testing.assert_array_equal(hasher.transform(asked).toarray(), written.toarray())
    texts = [{"open": "true", "size": k % 7} for k in range(200)] + [
        {"open": "false", "size": k % 5} for k in range(200)
    ]
    learned = st.Hasher(12).fit(texts)  # from texts alone, such as lines of JSON
    assert [c.boolean for c in learned.columns_] == [True, False]
    np.testing.assert_array_equal(
        learned.transform([{"open": True}]).toarray(), learned.transform([{"open": "true"}]).toarray()
    )


@pytest.mark.parametrize("mark", [None, "", "NA", "n/a", "NaN", "null", "None", "?", "-"])
def test_marks_of_missing_categories_are_one_feature(mark):
    hasher = st.Hasher(20, categorical="c")
    assert hasher.transform([{"c": mark}]).indices.tolist() == [hasher.bucket("c=<missing>")]
    assert hasher.transform([{"c": "unknown"}]).indices.tolist() == [hasher.bucket("c=unknown")]


@settings(max_examples=20, deadline=None)
@given(some.lists(some.integers(1, N - 1), max_size=5))
def test_rows_do_not_depend_on_the_cuts_into_batches(cuts):
    rows = [{"text": f"a b{i % 9}", "x": i * 0.5, "c": "uvw"[i % 3], "d": f"2024-01-{i % 28 + 1:02}"} for i in range(N)]
    bounds = [0, *sorted(set(cuts)), N]
    whole, parts = (st.Hasher(16, names=0).survey(rows).use_knots(["x"]) for _ in range(2))
    at_once = whole.to_chunk(rows, learn=True)
    pieces = [parts.to_chunk(rows[a:b], learn=True) for a, b in pairwise(bounds)]
    np.testing.assert_array_equal(np.concatenate([piece.values for piece in pieces]), at_once.values)
    np.testing.assert_array_equal(np.concatenate([piece.indices for piece in pieces]), at_once.indices)


def test_columns_and_crosses_survive_saving(table):
    hasher = st.Hasher(18, kinds={"hour": "category"}).fit(table).use_knots(["size"]).add_crosses([("size", "hour")])
    header, arrays = hasher.state()
    again = st.Hasher.from_state(json.loads(json.dumps(header)), arrays)
    assert again.columns_ == hasher.columns_
    assert again.crosses_ == hasher.crosses_
    assert (again.transform(table) != hasher.transform(table)).nnz == 0
    assert all(Column.from_dict(column.as_dict()) == column for column in hasher.columns_)


def test_values_of_another_kind_count_as_missing_and_are_counted(table):
    hasher = st.Hasher(18).fit(table)
    hasher.partial_fit([{**table[0], "size": "large", "when": "yesterday"}, {**table[1], "size": "$12"}])
    assert hasher.misfits_ == {"size": 1, "when": 1}
    row = hasher.transform([{"size": "large"}])
    assert hasher.bucket("size=<missing>") in row.indices


def test_models_of_several_columns_from_before_are_refused():
    header, arrays = st.Hasher(10).fit([{"a": "x y", "b": 1}, {"a": "z u", "b": 2}]).state()
    header["columns"] = [["a", "text"], ["b", "number"]]
    with pytest.raises(st.DataError, match="scaled all columns of a row together; train it again"):
        st.Hasher.from_state(header, arrays)


# ------------------------------------------------------------------------------------------------------------- warnings


def test_a_column_that_gives_the_label_away_is_named():
    rng = np.random.default_rng(1)
    y = rng.integers(0, 2, N)
    rows = [{"x": float(rng.normal()), "paid": f"p{label}"} for label in y]
    with pytest.warns(st.ColumnWarning, match="column 'paid' alone predicts the label almost perfectly"):
        st.Hasher(12).survey(rows, y)
    prices = rng.normal(size=N) * 100
    rows = [{"copy": 2 * price + 1, "x": float(rng.normal())} for price in prices]
    with pytest.warns(st.ColumnWarning, match="column 'copy' alone predicts"):
        st.Hasher(12).survey(rows, prices)


def test_an_honest_column_and_a_rare_label_give_no_warning():
    rng = np.random.default_rng(2)
    y = (rng.random(2000) < 0.005).astype(int)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        st.Hasher(12).survey([{"x": float(rng.normal()), "c": "abc"[i % 3]} for i in range(2000)], y)


def test_ten_thousand_columns():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 10_000))
    rows = st.Hasher(20).fit_transform(X)
    assert rows.shape[0] == 60
    assert rows.nnz > 590_000
