"""Linear models that forget: a stream that changes, what goes together, and what is refused."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.sparse import csr_matrix

import steepest as st
from steepest.cli import main

WAYS = {
    "sgd": dict(solver="sgd"),
    "asgd": dict(solver="asgd"),
    "adagrad": dict(solver="adagrad"),
    "sgd-l1": dict(solver="sgd", penalty="l1", alpha=0.01),
    "adagrad-l1": dict(solver="adagrad", penalty="l1", alpha=0.01),
    "hashed": dict(solver="asgd", multi_class=st.Hashed(10)),
}


def turning_stream(n=20_000, n_features=20, seed=0):
    """Rows whose labels are turned around half way."""
    rng = np.random.default_rng(seed)
    X, truth = rng.normal(size=(n, n_features)), rng.normal(size=n_features)
    y = np.where(X @ truth > 0, "up", "down")
    half = n // 2
    y[half:] = np.where(y[half:] == "up", "down", "up")
    return X, y


def learned(X, y, chunk=1000, **params):
    model = st.LinearClassifier(alpha=params.pop("alpha", 1e-6), random_state=0, **params)
    for start in range(0, len(y), chunk):
        model.partial_fit(X[start : start + chunk], y[start : start + chunk], classes=["up", "down"])
    return model


@pytest.mark.parametrize("way", WAYS)
def test_a_model_that_forgets_follows_a_stream_that_turns(way):
    X, y = turning_stream(40_000)
    end = 20_500  # five hundred rows after the turn
    params = {"alpha": 0.01, **WAYS[way]}
    forgetful = learned(X[:end], y[:end], schedule=st.Forgetting(half_life=100, steps="bottou"), **params)
    faithful = learned(X[:end], y[:end], schedule="bottou", **params)
    assert forgetful.score(X[end:], y[end:]) > 0.85
    assert faithful.score(X[end:], y[end:]) < 0.6


@pytest.mark.parametrize("way", WAYS)
def test_a_half_life_beyond_all_rows_changes_next_to_nothing(way):
    X, y = turning_stream(4000)
    forgetful = learned(X, y, schedule=st.Forgetting(half_life=1e12), **WAYS[way])
    faithful = learned(X, y, **WAYS[way])
    np.testing.assert_allclose(forgetful.coef_, faithful.coef_, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("way", WAYS)
def test_chunks_and_files_change_no_bit(way, tmp_path):
    X, y = turning_stream(6000)  # the unit of the sums changes three times
    whole = learned(X, y, chunk=6000, schedule=st.Forgetting(half_life=50), **WAYS[way])
    model = learned(X[:2345], y[:2345], chunk=97, schedule=st.Forgetting(half_life=50), **WAYS[way])
    model.save(tmp_path / "model.steepest")
    again = st.load(tmp_path / "model.steepest").partial_fit(X[2345:], y[2345:])
    assert again.schedule == st.Forgetting(half_life=50)
    np.testing.assert_array_equal(again.coef_, whole.coef_)
    np.testing.assert_array_equal(again.intercept_, whole.intercept_)


def test_predictions_between_rows_change_no_bit():
    """Scores of a few rows are computed without a table, and are those of the table."""
    X, y = turning_stream(3000, n_features=2000)
    model = learned(X[:, :2000], y, schedule=st.Forgetting(half_life=30), solver="adagrad")
    few = model.decision_function(csr_matrix(X[:1]))
    assert model.coef_.any()  # which writes the table
    np.testing.assert_array_equal(model.decision_function(csr_matrix(X[:1])), few)


def test_weights_of_rows_count_as_copies():
    X, y = turning_stream(1000)
    weight = np.random.default_rng(1).integers(1, 4, 1000)
    params = dict(schedule=st.Forgetting(half_life=100), solver="asgd", eta0=0.1, alpha=1e-6, random_state=0)
    heavy = st.LinearClassifier(**params).partial_fit(X, y, sample_weight=weight.astype(float))
    copies = st.LinearClassifier(**params).partial_fit(X.repeat(weight, axis=0), y.repeat(weight))
    np.testing.assert_array_equal(heavy.coef_, copies.coef_)


def test_ages_in_time_are_weights_of_rows():
    """In a fit, 2^(-age / h) is exact; in a stream, the time since the row before makes the half-life one of time."""
    X, y = turning_stream(10_000)
    days = np.sort(np.random.default_rng(1).uniform(0, 1, 10_000) ** 2 * 100)
    weight = 0.5 ** ((days[-1] - days) / 5)
    number = X @ np.ones(20) * np.where(np.arange(10_000) < 5000, 1, -1)
    fitted = st.LinearRegressor(alpha=0.01, penalty="l2", solver="closed_form").fit(X, number, sample_weight=weight)
    rows = np.column_stack([X, np.ones(10_000)])
    ridge = weight.sum() * 0.01 * np.diag([*np.ones(20), 0])
    exact = np.linalg.solve(rows.T @ (weight[:, None] * rows) + ridge, rows.T @ (weight * number))
    np.testing.assert_allclose(fitted.coef_.ravel(), exact[:-1], rtol=1e-4, atol=1e-5)
    gap = np.diff(days, prepend=0) / 0.01  # in the usual time between rows
    for solver, penalty in (("asgd", "l2"), ("adagrad", "l1")):
        schedule = st.Forgetting(half_life=5 / 0.01)
        model = st.LinearClassifier(solver=solver, penalty=penalty, alpha=1e-4, schedule=schedule, random_state=0)
        for start in range(0, 9000, 500):
            part = slice(start, start + 500)
            model.partial_fit(X[part], y[part], sample_weight=gap[part], classes=["up", "down"])
        assert days[9000] - days[5000] > 30  # six half-lives after the turn
        assert model.score(X[9000:], y[9000:]) > 0.85


def test_fit_learns_rows_in_their_order_and_says_so():
    X, y = turning_stream(6000)
    model = st.LinearClassifier(schedule=st.Forgetting(half_life=300), random_state=0).fit(X, y)
    assert model.score(X[-1000:], y[-1000:]) > 0.95
    assert any("shuffle='blocks' is left out" in event for event in model.history_.events)
    assert model.learner_.settings.solver in ("asgd", "adagrad")
    calm = st.LinearClassifier(schedule=st.Forgetting(half_life=300), shuffle="never", random_state=0).fit(X, y)
    np.testing.assert_array_equal(calm.coef_, model.coef_)
    assert not any("shuffle" in event for event in calm.history_.events)


def test_the_step_stays_where_the_rows_in_effect_stay():
    X, y = turning_stream(8000)
    schedule = st.Forgetting(half_life=100, steps="invsqrt")
    model = learned(X, y, solver="sgd", eta0=1.0, schedule=schedule)
    assert model.learner_.step_size == pytest.approx(1 / math.sqrt(1 + 1 / (1 - 2 ** (-1 / 100))))


def test_a_regression_follows_too():
    rng = np.random.default_rng(0)
    X, truth = rng.normal(size=(8000, 5)), rng.normal(size=5)
    y = X @ truth * np.where(np.arange(8000) < 4000, 1.0, -1.0)
    model = st.LinearRegressor(schedule=st.Forgetting(half_life=200), solver="asgd", random_state=0).fit(X, y)
    np.testing.assert_allclose(model.coef_.ravel(), -truth, atol=0.05)


@pytest.mark.parametrize("solver", ["ftrl", "coin", "truncated", "lbfgs", "dual_cd"])
def test_solvers_that_cannot_forget_are_refused(solver):
    model = st.LinearClassifier(
        "hinge", solver=solver, penalty="l1" if solver == "truncated" else "l2", schedule=st.Forgetting(half_life=10)
    )
    with pytest.raises(st.ParameterError, match=f"solver='{solver}' cannot forget.*'adagrad'"):
        model.fit([[0.0], [1.0]], ["a", "b"])


@pytest.mark.parametrize("parallel", ["replicas", "hogwild", "mixing"])
def test_learning_apart_is_refused(parallel):
    model = st.LinearClassifier(solver="sgd", parallel=parallel, schedule=st.Forgetting(half_life=10))
    with pytest.raises(st.ParameterError, match=f"leave parallel='{parallel}' out"):
        model.fit([[0.0], [1.0]], ["a", "b"])


@pytest.mark.parametrize("half_life", [0.5, 0, -3, math.nan])
def test_less_than_a_row_is_refused(half_life):
    with pytest.raises(st.ParameterError, match="half_life"):
        st.LinearClassifier(schedule=st.Forgetting(half_life)).fit([[0.0], [1.0]], ["a", "b"])


@pytest.mark.parametrize("estimator", [st.NetworkClassifier, st.TextClassifier])
def test_models_of_other_kinds_refuse_it(estimator):
    X = ["a", "b"] if estimator is st.TextClassifier else [[0.0], [1.0]]
    with pytest.raises(st.ParameterError, match="schedule"):
        estimator(schedule=st.Forgetting(10)).fit(X, ["a", "b"])


def test_the_1_norm_by_default_forgets_by_adagrad():
    X, y = turning_stream(3000)
    model = st.LinearClassifier(penalty="l1", alpha=0.02, schedule=st.Forgetting(half_life=300)).fit(X, y)
    assert model.learner_.settings.solver == "adagrad"
    assert 0 < model.n_nonzero_ < 20


def test_the_shell_has_a_flag(tmp_path):
    X, y = turning_stream(3000, n_features=4)
    rows = tmp_path / "rows.svm"
    rows.write_text(
        "".join(
            f"{1 if label == 'up' else -1} " + " ".join(f"{j + 1}:{v:.4f}" for j, v in enumerate(x)) + "\n"
            for x, label in zip(X, y, strict=True)
        )
    )
    saved = str(tmp_path / "model.steepest")
    assert main(["train", str(rows), "--model", saved, "--half-life", "200", "--quiet"]) == 0
    model = st.load(saved)
    assert model.learner_.settings.half_life == 200
    assert model.schedule == st.Forgetting(half_life=200)


# ------------------------------------------------------------------------------------------------------ ages in time

DAY = 86_400


def stream_in_time(n=6000, n_features=5, seed=0):
    """(columns by name, labels, numbers, ages in days): the truth turns around on day 30 of 60; rows come in bursts."""
    rng = np.random.default_rng(seed)
    X, truth = rng.normal(size=(n, n_features)), rng.normal(size=n_features)
    days = np.sort(rng.uniform(0, 1, n) ** 2 * 60)
    score = X @ truth * np.where(days < 30, 1, -1)
    columns = {f"x{j}": X[:, j] for j in range(n_features)} | {"when": 1.7e9 + days * DAY}
    return columns, np.where(score > 0, "up", "down"), score, days[-1] - days


def part(columns, start, stop):
    return {name: column[start:stop] for name, column in columns.items()}


@pytest.mark.parametrize("way", ["sgd", "asgd", "adagrad", "sgd-l1", "adagrad-l1"])
def test_a_half_life_in_days_follows_a_stream_that_turns(way):
    columns, y, _, age = stream_in_time()
    end = int(np.flatnonzero(age > 20)[-1])  # ten days after the turn
    scores = []
    for schedule in (st.Forgetting("2 days", steps="bottou", time="when"), "bottou"):
        model = st.LinearClassifier(schedule=schedule, random_state=0, **{"alpha": 0.01, **WAYS[way]})
        for start in range(0, end, 500):
            stop = min(start + 500, end)
            model.partial_fit(part(columns, start, stop), y[start:stop], classes=["up", "down"])
        scores.append(model.score(part(columns, end, end + 300), y[end : end + 300]))
    assert scores[0] > 0.85 > 0.6 > scores[1]


@pytest.mark.parametrize(("solver", "epochs", "off"), [("asgd", 60, 0.03), ("adagrad", 300, 0.1)])
def test_a_half_life_in_days_is_that_of_row_weights(solver, epochs, off):
    """The minimum is that of rows weighted by 2^(-age / half-life), which an exact solver finds."""
    columns, _, number, age = stream_in_time()
    X = np.column_stack([columns[f"x{j}"] for j in range(5)])
    exact = st.LinearRegressor(alpha=0.05, penalty="l2", solver="closed_form")
    exact.fit(X, number, sample_weight=0.5 ** (age / 20))  # of which the older ones pull the other way
    schedule = st.Forgetting("20 days", time="when")
    model = st.LinearRegressor(solver=solver, alpha=0.05, schedule=schedule, epochs=epochs, random_state=0)
    model.fit(columns, number)
    rows = part(columns, 0, 500)
    np.testing.assert_allclose(model.predict(rows), exact.predict(X[:500]), atol=off * np.std(number))


@pytest.mark.parametrize("way", ["sgd", "asgd", "adagrad", "sgd-l1"])
def test_calls_and_files_change_no_bit_of_a_half_life_in_time(way, tmp_path):
    columns, y, _, _ = stream_in_time(3000)
    make = lambda: st.LinearClassifier(schedule=st.Forgetting("6 h", time="when"), random_state=0, **WAYS[way])
    whole, model = make().partial_fit(part(columns, 0, 700), y[:700]), make()  # which scale the columns
    whole.partial_fit(part(columns, 700, 3000), y[700:])
    for start, stop in ((0, 700), (700, 850), (850, 2345)):  # the first thousand rows wait for a step size
        model.partial_fit(part(columns, start, stop), y[start:stop])
        model.save(tmp_path / "model.steepest")
        model = st.load(tmp_path / "model.steepest")
    model.partial_fit(part(columns, 2345, 3000), y[2345:])
    assert model.schedule == st.Forgetting("6 h", time="when")
    np.testing.assert_array_equal(
        model.learner_.scores(chunk_of(model, columns)), whole.learner_.scores(chunk_of(whole, columns))
    )


def chunk_of(model, columns):
    return model.hasher_.to_chunk(columns)


def test_the_column_of_times_gives_no_features_and_is_not_needed_to_predict():
    columns, y, _, _ = stream_in_time(2000)
    model = st.LinearClassifier(schedule=st.Forgetting("5 days", time="when"), random_state=0).fit(columns, y)
    assert not any("when" in column.name for column in model.hasher_.used_columns)
    alone = {name: column for name, column in columns.items() if name != "when"}
    np.testing.assert_array_equal(model.predict(alone), model.predict(columns))
    with pytest.raises(st.DataError, match=r"no times.*time="):
        model.partial_fit(alone, y)


def test_dates_are_times_and_a_row_without_one_is_refused():
    columns, y, _, _ = stream_in_time(2000)
    written = [str(np.datetime64(int(second), "s")) for second in columns["when"]]
    schedule = st.Forgetting("5 days", time="when")
    numbers = st.LinearClassifier(schedule=schedule, random_state=0).fit({**columns, "when": columns["when"] // 1}, y)
    dates = st.LinearClassifier(schedule=schedule, random_state=0).fit({**columns, "when": written}, y)
    np.testing.assert_allclose(dates.decision_function(columns), numbers.decision_function(columns), rtol=1e-3)
    written[7] = "someday"
    with pytest.raises(st.DataError, match="row 8 has no time that can be read"):
        st.LinearClassifier(schedule=schedule).fit({**columns, "when": written}, y)


@pytest.mark.parametrize(
    ("forgetting", "sentence"),
    [
        (st.Forgetting("7 days"), "half_life='7 days' is in time; name the column that"),
        (st.Forgetting(100, time="when"), "give half_life in time as well"),
        (st.Forgetting("7 moons", time="when"), "half_life='7 moons' is not a length of time"),
        (st.Forgetting("0 s", time="when"), "half_life='0 s' is not a length of time"),
        (st.Forgetting("7 days", time="then"), "time= names the column 'then'"),
    ],
)
def test_half_lives_in_time_that_cannot_be_are_refused(forgetting, sentence):
    columns, y, _, _ = stream_in_time(50)
    with pytest.raises((st.ParameterError, st.DataError), match=sentence):
        st.LinearClassifier(schedule=forgetting).fit(columns, y)


@pytest.mark.parametrize("roles", [[], ["--numeric", "x0,x1,x2,x3,x4"]])
@pytest.mark.parametrize("epochs", ["1", "3"])
def test_the_shell_takes_ages_from_a_column(tmp_path, roles, epochs):
    columns, y, _, _ = stream_in_time(2000)
    rows, saved = tmp_path / "rows.csv", str(tmp_path / "model.steepest")
    names = [*columns, "label"]
    lines = [",".join(map(str, row)) for row in zip(*columns.values(), y, strict=True)]
    rows.write_text("\n".join([",".join(names), *lines]))
    flags = ["--half-life", "3 days", "--time", "when", "--epochs", epochs, "--quiet", *roles]
    assert main(["train", str(rows), "--model", saved, *flags]) == 0
    model = st.load(saved)
    assert (model.learner_.settings.half_life, model.learner_.settings.in_time) == (3 * DAY, True)
    assert model.score(part(columns, 1700, 2000), y[1700:]) > 0.9
