"""Probabilities that can be trusted, and intervals and sets that cover what they promise."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn import metrics as sk

import steepest as st
from steepest import kernels
from steepest.metrics import ProbabilityMetrics, RocMetrics
from steepest.models import calibration
from steepest.models.calibration import (
    COVERAGES,
    GAIN,
    MOST_GAIN,
    Calibration,
    Recent,
    calibrate_two,
    fit_sigmoid,
)


def noisy(n_rows, seed, n_features=30, n_classes=2):
    """Labels drawn with probabilities that a linear model can express; its weights are the same for every seed."""
    W = np.random.default_rng(99).standard_normal((n_features, n_classes)) * 0.5
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n_rows, n_features)).astype(np.float32)
    z = X @ W
    p = np.exp(z - z.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    return X, (p.cumsum(axis=1) < rng.random((n_rows, 1))).sum(axis=1)


@pytest.fixture(scope="module")
def overfitted():
    """A model that has learned 150 rows of 30 features by heart, so that it is far too sure."""
    X, y = noisy(150, 0)
    return st.LinearClassifier("log", alpha=1e-7, epochs=200, random_state=0).fit(X, y)


def measured(model, X, y):
    return model.evaluate_stream(st.from_arrays(X, y))


def test_calibration_lowers_the_loss_of_a_model_that_is_too_sure_and_can_be_turned_off(overfitted):
    X, y = noisy(50_000, 1)  # of 5,000, even the true probabilities show an ECE of up to 0.017
    before = measured(overfitted, X, y)
    own = overfitted.predict_proba(X)
    overfitted.calibrate_on(*noisy(2000, 2))
    after = measured(overfitted, X, y)
    assert overfitted.calibration_.kind in ("temperature", "platt")
    assert overfitted.calibration_.slope < 0.8
    assert after["log_loss"] < 0.9 * before["log_loss"]
    assert before["ece"] > 0.05
    assert after["ece"] < 0.02
    assert after["accuracy"] == pytest.approx(before["accuracy"])
    np.testing.assert_array_equal(overfitted.predict_proba(X, calibrated=False), own)


def test_a_model_that_is_right_already_keeps_its_own_probabilities():
    X, y = noisy(20_000, 3)
    model = st.LinearClassifier("log", solver="lbfgs", alpha=1e-6, random_state=0).fit(X, y)
    kinds = []
    for seed in range(5):
        model.calibrate_on(*noisy(1000, 10 + seed))
        kinds.append(model.calibration_.kind)
        assert measured(model, *noisy(5000, 50))["log_loss"] < 0.51
    assert kinds.count("none") >= 3


def test_a_map_that_is_better_by_little_more_than_chance_is_not_used():
    gain = np.random.default_rng(0).standard_normal(1000)
    gain = (gain - gain.mean()) / gain.std()
    before, weight = np.full(1000, 5.0), np.ones(1000)
    kinds = [calibration._choose(before, {"platt": before - gain - k / 1000**0.5}, weight) for k in (1.5, 6.0)]
    assert kinds == ["none", "platt"]


def test_rows_held_out_by_early_stopping_calibrate_and_cover():
    X, y = noisy(4000, 4)
    model = st.LinearClassifier("log", early_stopping=True, epochs=3, random_state=0).fit(X, y)
    assert model.calibration_.rows == pytest.approx(400, abs=80)
    assert model.predict_set(X[:5]).shape == (5, 2)
    assert st.LinearClassifier("log", solver="sgd", random_state=0).fit(X, y).calibration_ is None


def test_hinge_loss_has_probabilities_once_it_is_calibrated():
    X, y = noisy(3000, 5)
    model = st.LinearClassifier("hinge", random_state=0).fit(X, y)
    assert not hasattr(model, "predict_proba")
    model.calibrate_on(*noisy(3000, 6))
    found = measured(model, *noisy(5000, 7))
    assert found["ece"] < 0.03
    assert found["log_loss"] < 0.65


def test_more_classes_share_one_temperature_and_keep_their_order():
    X, y = noisy(200, 8, n_classes=4)
    model = st.LinearClassifier("log", multi_class="softmax", epochs=100, alpha=1e-7, random_state=0).fit(X, y)
    X2, y2 = noisy(4000, 9, n_classes=4)
    before, labels = measured(model, X2, y2), model.predict(X2)
    model.calibrate_on(*noisy(2000, 11, n_classes=4))
    after = measured(model, X2, y2)
    assert after["log_loss"] < before["log_loss"]
    assert after["ece"] < 0.04
    np.testing.assert_array_equal(model.classes_[model.predict_proba(X2).argmax(axis=1)], labels)


@pytest.fixture(scope="module")
def four_classes():
    X, y = noisy(2000, 12, n_classes=4)
    return st.LinearClassifier("log", random_state=0).fit(X, y).calibrate_on(*noisy(20_000, 13, n_classes=4))


@pytest.mark.parametrize("coverage", [0.5, 0.8, 0.9, 0.95])
def test_sets_cover_what_they_promise_within_a_point(four_classes, coverage):
    model = four_classes
    X2, y2 = noisy(40_000, 14, n_classes=4)
    sets = model.predict_set(X2, coverage)
    assert sets[np.arange(len(y2)), y2].mean() == pytest.approx(coverage, abs=0.01)
    labels, same = model.predict(X2[:100], uncertainty=coverage)
    np.testing.assert_array_equal(same, sets[:100])
    np.testing.assert_array_equal(labels, model.predict(X2[:100]))


@pytest.mark.parametrize("coverage", [0.5, 0.8, 0.9, 0.95])
def test_intervals_cover_what_they_promise_within_a_point(coverage):
    rng = np.random.default_rng(15)
    X = rng.standard_normal((62_000, 10)).astype(np.float32)
    y = X @ np.arange(10.0) + rng.standard_t(3, len(X))
    model = st.LinearRegressor(random_state=0).fit(X[:2000], y[:2000]).calibrate_on(X[2000:22_000], y[2000:22_000])
    low, high = model.predict_interval(X[22_000:], coverage).T
    assert ((low <= y[22_000:]) & (y[22_000:] <= high)).mean() == pytest.approx(coverage, abs=0.01)
    middle, both = model.predict(X[:10], uncertainty=True)
    np.testing.assert_array_equal(both, model.predict_interval(X[:10], 0.9))
    np.testing.assert_array_equal(middle, model.predict(X[:10]))


def test_text_classifiers_have_sets_too():
    texts = ["cheap pills now", "lunch at noon", "cheap cash", "see you at lunch"] * 20
    model = st.TextClassifier(n_bits=12, epochs=10, random_state=0).fit(texts, ["spam", "ham"] * 40)
    model.calibrate_on(texts, ["spam", "ham"] * 40)
    assert model.predict_set(["cheap pills now"], 0.9).shape == (1, 2)


def test_calibration_and_residuals_are_in_the_model_file(overfitted, tmp_path):
    overfitted.calibrate_on(*noisy(2000, 2))
    overfitted.save(tmp_path / "m.steepest")
    back = st.load(tmp_path / "m.steepest")
    X, _ = noisy(50, 16)
    assert back.calibration_ == overfitted.calibration_
    np.testing.assert_array_equal(back.predict_proba(X), overfitted.predict_proba(X))
    np.testing.assert_array_equal(back.predict_set(X), overfitted.predict_set(X))
    rng = np.random.default_rng(0)
    numbers = st.LinearRegressor(random_state=0).fit(X, rng.random(50)).calibrate_on(X, rng.random(50))
    numbers.save(tmp_path / "r.steepest")
    np.testing.assert_array_equal(st.load(tmp_path / "r.steepest").predict_interval(X), numbers.predict_interval(X))


def test_a_new_fit_forgets_what_was_held_out_before(overfitted):
    X, y = noisy(500, 17)
    model = st.LinearClassifier("log", solver="sgd", random_state=0).fit(X, y).calibrate_on(*noisy(500, 18))
    assert model.calibration_ is not None
    assert model.fit(X, y).calibration_ is None


def test_a_threshold_gives_the_precision_or_the_recall_that_was_asked_for():
    X, y = noisy(3000, 19)
    model = st.LinearClassifier("log", random_state=0).fit(X, y)
    p = model.predict_proba(X)[:, 1]
    found = model.threshold_for(X, y, precision=0.9)
    chosen = p >= found.value
    assert sk.precision_score(y, chosen) == pytest.approx(found.precision)
    assert sk.recall_score(y, chosen) == pytest.approx(found.recall)
    assert found.precision >= 0.9
    assert model.threshold_for(X, y, recall=0.9, label=0).recall >= 0.9
    hinge = st.LinearClassifier("hinge", random_state=0).fit(X, y)
    assert hinge.threshold_for(X, y, recall=0.5).rows < len(y)
    for options, match in (({}, "give one"), ({"precision": 0.9, "label": 7}, "label=7")):
        with pytest.raises(st.ParameterError, match=match):
            model.threshold_for(X, y, **options)
    with pytest.raises(st.DataError, match="no row has the label"):
        model.threshold_for(X[y == 0], y[y == 0], recall=0.5)


def test_nothing_is_claimed_without_rows_that_were_held_out(overfitted):
    X, y = noisy(300, 20)
    model = st.LinearClassifier(solver="sgd", random_state=0).fit(X, y)
    with pytest.raises(st.DataError, match="calibrate_on"):
        model.predict_set(X)
    with pytest.raises(st.DataError, match="calibrate_on"):
        st.LinearRegressor(solver="sgd", random_state=0).fit(X, y).predict_interval(X)
    overfitted.calibrate_on(X, y)
    for bad in (0.0, 1.0, 2.0):
        with pytest.raises(st.ParameterError, match="coverage"):
            overfitted.predict_set(X, bad)


def test_areas_and_errors_agree_with_scikit_learn():
    rng = np.random.default_rng(21)
    y = rng.integers(0, 2, 4000)
    scores = np.round(rng.standard_normal(4000) + y, 1)  # with ties
    weight = rng.integers(1, 4, 4000).astype(float)
    p = 1 / (1 + np.exp(-scores))
    roc, shares = RocMetrics(), ProbabilityMetrics()
    for part in np.array_split(np.arange(4000), 7):
        roc.add(y[part] == 1, scores[part], weight[part])
        shares.add(y[part], np.column_stack([1 - p, p])[part], weight[part])
    found = {**roc.result(), **shares.result()}
    assert found["auc"] == pytest.approx(sk.roc_auc_score(y, scores, sample_weight=weight))
    assert found["pr_auc"] == pytest.approx(sk.average_precision_score(y, scores, sample_weight=weight))
    assert found["log_loss"] == pytest.approx(sk.log_loss(y, p, sample_weight=weight))
    assert found["brier"] == pytest.approx(sk.brier_score_loss(y, p, sample_weight=weight))


def test_areas_of_many_rows_are_close_in_constant_memory(monkeypatch):
    monkeypatch.setattr(RocMetrics, "EXACT_ROWS", 1000)
    rng = np.random.default_rng(22)
    y = rng.integers(0, 2, 50_000)
    scores = rng.standard_normal(50_000) + y
    roc = RocMetrics()
    for part in np.array_split(np.arange(50_000), 9):
        roc.add(y[part] == 1, scores[part], np.ones(len(part)))
    assert roc.result()["auc"] == pytest.approx(sk.roc_auc_score(y, scores), abs=1e-3)
    assert roc.result()["pr_auc"] == pytest.approx(sk.average_precision_score(y, scores), abs=2e-3)


def test_the_sigmoid_is_that_of_logistic_regression_and_maps_that_do_not_help_are_left():
    rng = np.random.default_rng(23)
    z = 100 * rng.standard_normal(20_000)
    y = (rng.random(20_000) < 1 / (1 + np.exp(-(0.02 * z + 0.5)))).astype(float)
    slope, shift = fit_sigmoid(z, y, np.ones(len(y)), True)
    assert slope == pytest.approx(0.02, rel=0.05)
    assert shift == pytest.approx(0.5, abs=0.05)
    own = 1 / (1 + np.exp(-(0.02 * z + 0.5)))
    assert calibrate_two(z, y > 0, own, np.ones(len(y))).kind == "none"


def test_many_residuals_are_stored_as_few():
    residuals = np.random.default_rng(24).random(100_001)
    kept = Calibration(rows=len(residuals)).with_residuals(residuals).residuals
    assert len(kept) == 400
    assert kept[-1] == pytest.approx(residuals.max(), rel=1e-5)


def test_rows_that_alpha_auto_held_back_calibrate_an_exact_model_and_cover():
    X, y = noisy(3000, 30)
    model = st.LinearClassifier(random_state=0).fit(X, y)
    assert model.learner_.settings.solver == "newton_cg"
    assert model.calibration_.rows == 3000
    test, truth = noisy(20_000, 31)
    held = model.predict_set(test, 0.8)[np.arange(len(truth)), np.searchsorted(model.classes_, truth)]
    assert np.mean(held) == pytest.approx(0.8, abs=0.025)
    numbers = X @ np.arange(X.shape[1]) + np.random.default_rng(0).normal(size=len(X))
    regressor = st.LinearRegressor(random_state=0).fit(X, numbers)
    low, high = regressor.predict_interval(X, 0.9).T
    assert np.mean((low <= numbers) & (numbers <= high)) == pytest.approx(0.9, abs=0.02)


def stream(model, n, seed, **options):
    X, y = noisy(n, seed)
    for at in range(0, n, 100):
        model.partial_fit(X[at : at + 100], y[at : at + 100], **options)
    return model


def test_a_stream_calibrates_itself_by_rows_scored_before_they_were_learned(tmp_path):
    plain = stream(st.LinearClassifier("hinge", solver="asgd", random_state=0), 3000, 40)
    assert not hasattr(plain, "predict_proba")
    model = stream(st.LinearClassifier("hinge", solver="asgd", random_state=0), 3000, 40, calibrate=True)
    X, y = noisy(20_000, 41)
    np.testing.assert_array_equal(model.decision_function(X), plain.decision_function(X))
    assert model.calibration_.kind in ("temperature", "platt")
    assert model.evaluate_stream(st.from_arrays(X, y))["ece"] < 0.03
    model.save(tmp_path / "half")
    back = stream(st.load(tmp_path / "half"), 1000, 42, calibrate=True)
    stream(model, 1000, 42, calibrate=True)
    np.testing.assert_array_equal(back.predict_proba(X), model.predict_proba(X))
    assert back.calibration_ == model.calibration_


@pytest.mark.parametrize("model", [st.LinearClassifier("hinge", alpha=1e-4), st.LinearRegressor(alpha=1e-4)])
def test_a_row_whose_score_overflows_is_not_remembered(tmp_path, model):
    X = np.random.default_rng(0).normal(size=(200, 3)).astype(np.float32)
    y = np.where(X[:, 0] > 0, 9, -9)
    model.fit(X, y).partial_fit(np.float32([[3e38, 0, 0], [1, 0, 0]]), [9, 9], calibrate=True)
    model.save(tmp_path / "m")
    rows = st.load(tmp_path / "m")._recent.rows
    assert np.isfinite(rows).all()
    assert len(rows) == (1 if kernels.isa == "v3" else 2)  # others add up in double precision, with no overflow


def test_the_last_rows_of_a_stream_do_not_depend_on_how_they_are_cut():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=8765), rng.integers(0, 2, 8765), np.ones(8765)
    whole, cut, due = Recent(1), Recent(1), []
    whole.add(*rows)
    for at in range(0, 8765, 77):
        held = cut.add(*(part[at : at + 77] for part in rows))
        due += [] if held is None else [held]
    np.testing.assert_array_equal(whole.rows, cut.rows)
    assert [len(held) for held in due] == [*range(500, 4000, 500), *[4000] * 10]
    np.testing.assert_array_equal(due[-1][:, 0], rows[0][4500:8500])


def test_intervals_of_a_stream_come_from_errors_before_learning():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(6000, 5))
    y = X @ np.arange(5) + rng.normal(size=6000)
    model = st.LinearRegressor(solver="asgd", random_state=0)
    for at in range(0, 4000, 100):
        model.partial_fit(X[at : at + 100], y[at : at + 100], calibrate=True)
    low, high = model.predict_interval(X[4000:], 0.9).T
    assert np.mean((low <= y[4000:]) & (y[4000:] <= high)) == pytest.approx(0.9, abs=0.02)


@pytest.mark.parametrize("n_rows", [1, 40])
@pytest.mark.parametrize("stream", ["wide", "growing", "spiteful"])
def test_levels_cover_as_asked_whatever_the_rows_are(stream, n_rows):
    """Even if each row is chosen by someone who sees the level: then it is missed, as long as it can be."""
    rng = np.random.default_rng(3)
    calibration = Calibration(rows=1000).with_residuals(rng.random(1000))
    recent, covered, n_calls = Recent(1), [], 4000 // n_rows
    for call in range(n_calls):
        now = replace(calibration, levels=recent.levels)
        residuals = {
            "wide": 3 * rng.random(n_rows),
            "growing": rng.random(n_rows) * call / n_calls * 1.5,
            "spiteful": np.full(n_rows, min(now.reach(0.9), 2.0) * (1 + 1e-9) + 1e-9 * (call % 7 > 0)),
        }[stream]
        covered.append([np.mean(residuals <= now.reach(level)) for level in COVERAGES])
        recent.adapt(now, residuals)
    gain = min(GAIN * n_rows, MOST_GAIN)
    off = np.abs(np.mean(covered, axis=0) - COVERAGES).max()
    assert off <= (1 + 2 * gain) / (gain * n_calls)


def test_sets_and_intervals_of_a_stream_that_drifts_cover_as_asked():
    """The noise grows from row to row: errors of the last rows are always those of calmer times."""
    rng = np.random.default_rng(5)
    X = rng.normal(size=(12_000, 4))
    noise = rng.normal(size=12_000) * np.linspace(0.2, 6, 12_000)
    y = X.sum(axis=1) + noise
    classes = np.where(y > 0, "yes", "no")
    model, regression = st.LinearClassifier(random_state=0), st.LinearRegressor(random_state=0)
    model.fit(X[:2000], classes[:2000]), regression.fit(X[:2000], y[:2000])
    in_sets, inside, at_first = [], [], regression.calibration_.reach(0.9)
    for at in range(2000, 12_000, 50):
        rows = slice(at, at + 50)
        true = np.searchsorted(model.classes_, classes[rows])
        in_sets += model.predict_set(X[rows], 0.9)[np.arange(50), true].tolist()
        low, high = regression.predict_interval(X[rows], 0.9).T
        inside += ((low <= y[rows]) & (y[rows] <= high)).tolist()
        model.partial_fit(X[rows], classes[rows], calibrate=True)
        regression.partial_fit(X[rows], y[rows], calibrate=True)
    assert np.mean(in_sets) == pytest.approx(0.9, abs=0.02)
    assert np.mean(inside) == pytest.approx(0.9, abs=0.02)
    assert np.mean(np.abs(noise[2000:]) <= at_first) < 0.6  # which is what the fit alone would cover
    assert 0.8 < np.mean(inside[:2000]) < 1.0


def test_levels_that_moved_are_in_the_model_file(tmp_path):
    X, y = noisy(3000, 50)
    model = st.LinearClassifier(random_state=0).fit(X[:1000], y[:1000]).partial_fit(X[1000:], y[1000:], calibrate=True)
    model.save(tmp_path / "model")
    back = st.load(tmp_path / "model")
    assert back.calibration_.levels == model.calibration_.levels != ()
    for one in (model, back):
        one.partial_fit(X[:100], y[:100], calibrate=True)
    assert back.calibration_ == model.calibration_
    assert model.fit(X, y).calibration_.levels == ()
    with pytest.raises(ValueError, match="levels"):
        Calibration.from_dict({**back.calibration_.as_dict(), "levels": [0.5]})
    with pytest.raises(ValueError, match="levels"):
        Recent.from_dict({**Recent(1).as_dict(), "levels": [float("nan")] * len(COVERAGES)})


def test_held_back_scores_and_final_labels_have_one_order_whichever_class_comes_first():
    X, y = noisy(3000, 50)
    for labels in (y, 1 - y):
        for first in (0, 1):
            rows = np.argsort(labels != first, kind="stable")
            rows[1:] = np.random.default_rng(0).permutation(rows[1:])
            model = st.LinearClassifier(random_state=0).fit_stream(st.from_arrays(X[rows], labels[rows]))
            assert model.calibration_.slope > 0.5  # 0 if the order were wrong


def test_sets_hold_for_rows_like_those_of_a_file_in_order_and_wider_ones_for_later_rows(tmp_path):
    """Each stretch of rows has a level of its own: scattered rows know it from their neighbours, later ones do not."""
    rng = np.random.default_rng(40)
    n, stretches = 20_000, 40
    stretch = np.arange(n) * stretches // n
    X = np.column_stack([rng.normal(size=(n, 3)), np.eye(stretches)[stretch]])
    levels = rng.normal(0, 2, stretches)
    y = X[:, 0] + levels[stretch] + rng.normal(size=n)
    seen = rng.random(n) < 0.8
    model = st.LinearRegressor(random_state=0).fit(X[seen], y[seen])
    model.save(tmp_path / "m.steepest")
    model = st.load(tmp_path / "m.steepest")
    low, high = model.predict_interval(X[~seen], 0.9).T
    assert np.mean((low <= y[~seen]) & (y[~seen] <= high)) == pytest.approx(0.9, abs=0.015)
    later_X = np.column_stack([rng.normal(size=(4000, 3)), np.zeros((4000, stretches))])
    later_y = later_X[:, 0] + np.repeat(rng.normal(0, 2, 400), 10) + rng.normal(size=4000)
    low, high = model.predict_interval(later_X, 0.9, later=True).T
    assert np.mean((low <= later_y) & (later_y <= high)) > 0.8
    low, high = model.predict_interval(later_X, 0.9).T
    assert np.mean((low <= later_y) & (later_y <= high)) < 0.7

    label = np.where(y > 0, "up", "down")
    sets = st.LinearClassifier(random_state=0).fit(X[seen], label[seen])
    true = np.searchsorted(sets.classes_, label[~seen])
    assert np.mean(sets.predict_set(X[~seen], 0.9)[np.arange(len(true)), true]) == pytest.approx(0.9, abs=0.015)
    assert sets.predict_set(X[~seen], 0.9, later=True).sum() > sets.predict_set(X[~seen], 0.9).sum()


def test_sets_for_later_rows_need_stretches_that_were_held_back():
    X, y = noisy(1000, 41)
    model = st.LinearClassifier(random_state=0).fit(X, y)
    with pytest.raises(st.DataError, match="no stretches of rows were held out"):
        model.predict_set(X, 0.9, later=True)
