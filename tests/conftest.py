"""Data for the tests: generated here, so that every test that matters runs anywhere."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import settings

# A busy machine is no failure: no test asserts a time, and neither does hypothesis.
settings.register_profile("steepest", deadline=None)
settings.load_profile("steepest")

# `make quick`: these directories and modules without the slow tests named behind them, and the promises of one small
# case per estimator. What it takes in all is about a minute and a half of CPU time.
TESTS = Path(__file__).parent
QUICK = {
    "kernels": ("test_mutated_text_breaks_no_promise", "test_a_long_polynomial_average_forgets_nothing_else"),
    "features": ("test_every_character_is_classed_and_folded_as_unicode_says",),
    "data/test_streaming.py": (
        "test_batch_solvers_take_no_memory_for_the_rows_of_a_file",
        "test_memory_does_not_grow_with_the_number_of_rows",
        "test_rows_that_are_kept_stay_within_the_promise",
    ),
    "data": ("test_features_have_their_names_back", "test_every_changed_byte_is_noticed"),
    "learners/test_losses.py": (),
    "learners/test_penalties.py": (),
    "learners/test_schedules.py": (),
    "models/test_linear.py": (
        "test_every_rule_comes_near_the_optimum_of_every_binary_loss",
        "test_every_rule_comes_near_the_optimum_of_every_regression_loss",
    ),
    "promises/test_models_of_old.py": (),
    "promises/test_golden_predictions.py": (),
    "cli/test_cli.py": (),
    "test_model_file.py": (),
    "test_atomic.py": (),
    "test_size.py": (),
    "test_words.py": (),
}
QUICK_CASES = {
    "linear/sgd-two",
    "linear/mixing-two",
    "linear/lbfgs",
    "linear/numbers",
    "ranker/blocks",
    "network/adam-four",
    "network/numbers",
    "fm/fields-four",
    "fm/numbers",
    "radial/closed-form-RBFClassifier",
    "radial/fixed-RBFRegressor",
    "k-means/minibatch-blobs",
    "text/softmax",
    "factors/sgd",
}


def is_quick(item):
    path = item.path.relative_to(TESTS)
    if path.as_posix() == "promises/test_promises.py":
        case = getattr(item, "callspec", None)
        return case is not None and case.params.get("name") in QUICK_CASES and "killed" not in item.name
    for place, slow in QUICK.items():
        if path.is_relative_to(place):
            return item.originalname not in slow
    return False


ON_DEMAND = ("hostile", "forged", "kills", "faults")


def pytest_collection_modifyitems(config, items):
    for item in filter(is_quick, items):
        item.add_marker("quick")
    for name in ON_DEMAND:
        if name not in config.option.markexpr:
            items[:] = [item for item in items if item.get_closest_marker(name) is None]


def sparse_problem(n_rows=600, n_features=200, n_classes=2, density=0.06, noise=0.05, seed=0):
    """Unit sparse rows, labels from a planted linear rule with some flipped."""
    rng = np.random.default_rng(seed)
    X = sp.random(n_rows, n_features, density=density, format="csr", dtype=np.float32, random_state=rng)
    norms = np.sqrt(np.asarray(X.multiply(X).sum(axis=1)).ravel())
    X = sp.csr_matrix(sp.diags(1 / np.where(norms > 0, norms, 1)) @ X).astype(np.float32)
    W = rng.standard_normal((n_features, n_classes))
    y = np.asarray(X @ W).argmax(axis=1)
    flipped = rng.random(n_rows) < noise
    y[flipped] = rng.integers(0, n_classes, flipped.sum())
    return X, y


@pytest.fixture(scope="session")
def binary():
    return sparse_problem()


@pytest.fixture(scope="session")
def multiclass():
    return sparse_problem(n_classes=4, seed=1)


@pytest.fixture(scope="session")
def regression():
    X, _ = sparse_problem(seed=2)
    rng = np.random.default_rng(3)
    y = X @ rng.standard_normal(X.shape[1]) + 0.1 * rng.standard_normal(X.shape[0]) + 3.0
    return X, y


@pytest.fixture(scope="session")
def spark_env():
    """The environment of every process of Spark's; its Java is told to compile quickly rather than well."""
    here = os.pathsep.join(path for path in sys.path if path)
    quick = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    own = {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": here}
    return {**os.environ, **own, "JDK_JAVA_OPTIONS": quick}


@pytest.fixture(scope="session")
def spark(spark_env):
    """A session on two threads of this machine, for all tests that need one."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.sql.shuffle.partitions", "2").config("spark.driver.host", "127.0.0.1")
    builder = builder.config("spark.driver.bindAddress", "127.0.0.1")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in spark_env.items():
            patch.setenv(name, value)
        session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


@pytest.fixture(scope="session")
def shared_data():
    """The folder of real data sets, which are not part of the project."""
    folder = Path(os.environ.get("STEEPEST_DATA", Path(__file__).parents[2] / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"the real data sets are not at {folder}; set STEEPEST_DATA to where they are")
    return folder


def kill_driver(monkeypatch, in_run):
    """The driver of a Spark fit dies in its n-th run from now on; the list grows by every run."""
    from steepest.spark.shards import Shards

    real, runs = Shards.run_anew, []

    def mortal(shards, *given):
        runs.append(1)
        if len(runs) == in_run:
            raise KeyboardInterrupt
        return real(shards, *given)

    monkeypatch.setattr(Shards, "run_anew", mortal)
    return runs
