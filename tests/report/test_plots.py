"""The pictures of losses and norms show what the functions say, and need matplotlib only when they are drawn."""

from __future__ import annotations

import builtins
import math
import subprocess
import sys

import numpy as np
import pytest

import steepest as st

pytest.importorskip("matplotlib")


def lines(axes):
    return {line.get_label(): line.get_xydata() for line in axes.get_lines() if not line.get_label().startswith("_")}


def test_all_losses_are_drawn_with_the_values_they_have():
    classes, numbers = st.plot.losses().axes
    drawn = lines(classes)
    assert {"zero_one", "hinge", "log", "exponential", "squared", "perceptron"} <= set(drawn)
    for name, points in drawn.items():
        np.testing.assert_allclose(points[:, 1], st.losses[name].value(points[:, 0], 1.0))
    assert {"squared", "huber (0.5)", "quantile (0.8)", "poisson, y = 2"} <= set(lines(numbers))


def test_scaled_losses_lie_above_the_zero_one_loss_everywhere():
    drawn = lines(st.plot.losses(scaled=True).axes[0])
    assert "perceptron" not in drawn
    for points in drawn.values():
        assert np.all(points[:, 1] >= st.losses["zero_one"].value(points[:, 0], 1.0) - 1e-12)
    assert drawn["log"][:, 1][np.argmin(np.abs(drawn["log"][:, 0]))] == pytest.approx(1.0)  # log(2) / log(2)


def test_norms_are_drawn_also_where_they_are_not_convex():
    drawn = lines(st.plot.norms().axes[0])
    assert {"p = 0.5 (not convex)", "p = 1", "p = 2", "p = ∞"} <= set(drawn)
    np.testing.assert_allclose(np.hypot(*drawn["p = 2"].T), 1.0)
    np.testing.assert_allclose(np.sqrt(np.abs(drawn["p = 0.5 (not convex)"])).sum(axis=1), 1.0)
    np.testing.assert_allclose(np.abs(drawn["p = ∞"]).max(axis=1), 1.0)
    with pytest.raises(st.ParameterError, match="p=-1 is not an exponent"):
        st.plot.norms([-1, math.inf])


def test_a_picture_is_written(tmp_path):
    st.plot.norms().savefig(tmp_path / "norms.svg")
    assert (tmp_path / "norms.svg").read_text().count("<path") > 5


def test_without_matplotlib_one_sentence_names_the_extra(monkeypatch):
    real = builtins.__import__

    def without(name, *rest, **more):
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(st.ParameterError, match=r"pip install 'steepest\[plots\]'"):
        st.plot.losses()


def test_the_module_does_not_import_matplotlib():
    check = "import sys, steepest as st; st.plot.losses, st.losses; assert 'matplotlib' not in sys.modules"
    subprocess.run([sys.executable, "-c", check], check=True)


def test_the_history_is_drawn_over_whole_epochs(binary):
    model = st.LinearClassifier("log", solver="sgd", epochs=4, random_state=0).fit(*binary)
    axes = st.plot.history(model).axes[0]
    np.testing.assert_allclose(lines(axes)["loss"][:, 1], model.history_.column("loss"))
    assert all(float(tick).is_integer() for tick in axes.get_xticks())
    with pytest.raises(st.ParameterError, match="none of speed; its records have epoch"):
        st.plot.history(model, ["speed"])


def test_a_path_and_a_race_are_drawn_as_they_are(binary):
    found = st.regularization_path(st.LinearClassifier("log", penalty="l1"), *binary, n_alphas=3)
    np.testing.assert_allclose(lines(st.plot.path(found).axes[1])["train"][:, 1], found.column("train_loss"))
    raced = st.race(st.LinearClassifier("log"), *binary, solvers=["lbfgs", "sgd"])
    for points in lines(st.plot.race(raced).axes[0]).values():
        assert (np.diff(points[:, 0]) >= 0).all()  # never backwards in time


def test_perfect_probabilities_are_on_the_diagonal():
    rng = np.random.default_rng(0)
    p = rng.random(20_000)
    drawn = lines(st.plot.calibration(rng.random(20_000) < p, p).axes[0])["rows"]
    np.testing.assert_allclose(drawn[:, 0], drawn[:, 1], atol=0.04)
    with pytest.raises(st.ParameterError, match="y must be 0 or 1"):
        st.plot.calibration([1, 2], [0.5, 0.5])


def test_signs_keep_the_error_of_collisions_small():
    rng = np.random.default_rng(0)
    texts = [" ".join(f"w{j}" for j in rng.integers(0, 50_000, 300)) for _ in range(40)]
    drawn = lines(st.plot.collisions(texts, bits=(10, 14)).axes[0])
    assert drawn["random signs"][1, 1] < drawn["random signs"][0, 1] / 2
    assert drawn["random signs"][0, 1] < drawn["no signs"][0, 1]
