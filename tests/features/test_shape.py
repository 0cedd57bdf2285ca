"""The shape of a model over a table: what is planted is found, noise is not, and all of it can be switched off."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import steepest as st
from steepest.data.raw import sample_columns
from steepest.features import shape
from steepest.features.shape import LEAST_ROWS, Shape, find_shape

N = 3000


def table(n=N, seed=0):
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "x": rng.uniform(-2, 2, n),
            "z": rng.standard_normal(n),
            "a": rng.choice(["p", "q", "r"], n),
            "b": rng.choice(["u", "v"], n),
            "c": rng.choice(["k", "l", "m"], n),
        }
    )


def bent(frame, seed=1):
    return frame["x"].to_numpy() ** 2 + 0.3 * np.random.default_rng(seed).standard_normal(len(frame))


def crossed(frame, seed=1):
    """Neither column tells anything alone."""
    together = (frame["a"] == "p") == (frame["b"] == "u")
    return 2.0 * together.to_numpy() + 0.5 * np.random.default_rng(seed).standard_normal(len(frame))


def shape_of(frame, y, task="regress", **options):
    hasher = st.Hasher(n_bits=14, **options).survey(frame)
    return find_shape(hasher, frame, y, task)


def test_a_planted_bend_is_found():
    frame = table()
    found = shape_of(frame, bent(frame))
    assert "x" in found.bends
    assert any(event.startswith("curves for numbers (x") for event in found.events)


def test_a_planted_pair_is_found_and_pairs_of_noise_are_not():
    frame = table()
    found = shape_of(frame, crossed(frame))
    assert [set(pair) for pair in found.pairs] == [{"a", "b"}]
    assert any(event.startswith("crossed a x b: loss on held-out rows") for event in found.events)


def test_a_planted_pair_is_found_for_classes_too():
    frame = table()
    found = shape_of(frame, (crossed(frame) > 1).astype(float), "classify")
    assert {"a", "b"} in [set(pair) for pair in found.pairs]


@pytest.mark.parametrize("seed", range(3))
def test_noise_has_no_pairs(seed):
    frame = table(seed=seed)
    y = np.random.default_rng(100 + seed).standard_normal(N)
    assert shape_of(frame, y).pairs == ()


@pytest.mark.parametrize("seed", [1, 2])
def test_pairs_that_only_make_up_for_a_strong_penalty_are_not_taken(seed, monkeypatch):
    """A category decides, of whose 160 values each has few rows; what differs between these tells them apart, too."""
    rng = np.random.default_rng(seed)
    farm = rng.integers(0, 160, 800)
    numbers = {f"x{k}": 0.05 * rng.standard_normal(800) + rng.standard_normal(160)[farm] for k in range(6)}
    frame = pd.DataFrame({**numbers, "farm": [f"f{k}" for k in farm]})
    assert not shape_of(frame, farm % 6, "classify").pairs
    monkeypatch.setattr(shape, "FEW_ROWS", 0)
    assert shape_of(frame, farm % 6, "classify").pairs


def test_among_very_many_pairs_of_noise_hardly_any_is_found():
    """780 pairs in each table; at two standard errors, all but one of these tables have some, 16 in all."""
    n_found = []
    for seed in range(6):
        rng = np.random.default_rng(seed)
        X = rng.standard_normal((2000, 40))
        y = np.sign(X[:, :12].sum(axis=1) + 2 * rng.standard_normal(2000))
        n_found.append(len(shape_of(pd.DataFrame(X).add_prefix("c"), y, "classify").pairs))
    assert sum(n_found) <= 5
    assert n_found.count(0) >= 3


def test_a_number_with_one_value_over_a_long_stretch_stays_a_line():
    frame = table()
    frame.loc[: N // 4, "x"] = 0.5
    found = shape_of(frame, bent(frame))
    assert "x" not in found.bends
    assert not any("x" in pair for pair in found.pairs)
    assert any("long stretch" in event and event.endswith(": x") for event in found.events)


def test_knots_and_pairs_can_be_switched_off_and_on():
    frame = table()
    assert shape_of(frame, bent(frame), knots=False).bends == ()
    assert shape_of(frame, crossed(frame), pairs=0).pairs == ()
    neither = shape_of(frame, bent(frame), knots=False, pairs=0)
    assert (neither.bends, neither.pairs, neither.events) == ((), (), [])
    straight = frame["x"].to_numpy()
    assert set(shape_of(frame, straight, knots=True).bends) == {"x", "z"}


def test_too_few_rows_and_too_many_classes_decide_nothing():
    few = table(LEAST_ROWS - 1)
    assert shape_of(few, bent(few)) == Shape()
    frame = table()
    assert shape_of(frame, np.arange(N) % 20.0, "classify") == Shape()


def test_a_table_is_shaped_whether_or_not_a_hasher_is_given():
    frame = table()
    y = bent(frame) + crossed(frame)
    models = [st.LinearRegressor(**options).fit(frame, y) for options in ({}, {"hasher": st.Hasher()})]
    assert any(event.startswith("curves for numbers (x") for event in models[0].history_.events)
    np.testing.assert_array_equal(models[0].predict(frame), models[1].predict(frame))


def test_a_second_fit_says_nothing_of_the_first():
    frame = table()
    model = st.LinearRegressor().fit(frame, bent(frame))
    assert any("curves" in event for event in model.history_.events)
    model.fit(frame[["x", "z"]], bent(frame))
    assert not any(event.startswith("curves") for event in model.history_.events)
    assert "hasher=st.Hasher() makes it a table" in model.history_.events[0]


def test_a_missing_number_of_a_table_is_named_by_its_column():
    frame = table()[["x", "z"]]
    frame.loc[7, "z"] = np.nan
    with pytest.raises(st.DataError, match=r"NaN: row 7, column 'z'; .* give hasher=st\.Hasher"):
        st.LinearRegressor().fit(frame, bent(frame))
    model = st.LinearRegressor(hasher=st.Hasher()).fit(frame, bent(frame))
    assert model.score(frame, bent(frame)) > 0.9


def test_a_model_uses_the_shape_and_says_so(tmp_path):
    frame, new = table(), table(seed=9)
    y = bent(frame) + crossed(frame)
    model = st.LinearRegressor(hasher=st.Hasher(n_bits=14)).fit(frame, y)
    plain = st.LinearRegressor(hasher=st.Hasher(n_bits=14, knots=False, pairs=0)).fit(frame, y)
    truth = bent(new, 2) + crossed(new, 3)
    assert plain.score(new, truth) < 0.1
    assert model.score(new, truth) > 0.8
    assert any("curves for numbers" in event for event in model.history_.events)
    assert not any("curves for numbers" in event for event in plain.history_.events)
    model.save(tmp_path / "m.steepest")
    np.testing.assert_array_equal(st.load(tmp_path / "m.steepest").predict(new), model.predict(new))


def test_a_number_that_rises_along_the_file_stays_a_line():
    frame = table()
    frame["day"] = np.arange(N) // 100
    frame["hour"] = np.arange(N) % 24
    y = bent(frame) + np.sin(frame["day"].to_numpy()) + np.sin(frame["hour"].to_numpy())
    found = shape_of(frame, y)
    assert set(found.bends) == {"x", "hour"}
    assert not any("day" in pair for pair in found.pairs)
    assert any("rise or fall along the file" in event and event.endswith(": day") for event in found.events)


def test_bends_are_found_in_a_file_that_is_sorted_by_its_targets():
    frame = table()
    y = bent(frame)
    order = np.argsort(y)
    assert "x" in shape_of(frame.iloc[order].reset_index(drop=True), y[order]).bends
    labels = np.where(y > 1.3, "far", "near")
    order = np.argsort(labels, kind="stable")
    assert "x" in shape_of(frame.iloc[order].reset_index(drop=True), labels[order], "classify").bends


def test_a_number_that_starts_anew_once_stays_a_line():
    """Months of a year and a half: most of them mark one period, so a bend would learn the period."""
    frame = table()
    y = bent(frame)
    period = np.arange(N) * 18 // N
    y += np.random.default_rng(2).standard_normal(18)[period]
    assert "month" not in shape_of(frame.assign(month=period % 12 + 1.0), y).bends
    found = shape_of(frame.assign(month=np.arange(N) * 60 // N % 12 + 1.0), y + 2 * np.sin(np.arange(N) * 60 // N % 12))
    assert "month" in found.bends


def test_a_number_with_a_value_for_each_day_of_a_file_in_the_order_of_days_stays_a_line():
    """The price level of a day: its bends would learn the days, which do not come again."""
    frame = table()
    day = np.arange(N) // 20
    frame["level"] = np.random.default_rng(3).uniform(-2, 2, N // 20)[day]
    y = frame["level"].to_numpy() ** 2 + frame["x"].to_numpy()
    assert "level" in shape_of(frame, y).bends  # groups of rows, such as those of one shop
    found = shape_of(frame.assign(day=day), y)
    assert "level" not in found.bends
    assert not any("level" in pair for pair in found.pairs)


def test_rows_that_are_held_out_do_not_decide(tmp_path):
    frame = table().assign(y=0.0)
    path = tmp_path / "rows.csv"
    frame.to_csv(path, index=False)
    source = st.scan_csv(path, label="y")
    learned, held = source.holdout(0.5, 3)
    seen = np.concatenate([np.asarray(sample_columns(part)[0].column("x")) for part in (learned, held)])
    assert sorted(seen.tolist()) == sorted(frame["x"].tolist())
    assert 0.4 * N < len(sample_columns(held)[1]) < 0.6 * N


@pytest.mark.parametrize("knots", [0, 1, "no"])
def test_a_number_for_knots_is_refused_and_not_ignored(knots):
    with pytest.raises(st.ParameterError, match="give True, False or 'auto'"):
        st.Hasher(knots=knots).fit([{"x": 1.0}])
