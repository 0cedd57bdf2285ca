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

    real, runs = Shards._run, []

    def mortal(shards, *given):
        runs.append(1)
        if len(runs) == in_run:
            raise KeyboardInterrupt
        return real(shards, *given)

    monkeypatch.setattr(Shards, "_run", mortal)
    return runs
