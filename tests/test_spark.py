"""Spark: the same bits as in one process, on threads, on a cluster that loses a worker, and over Spark Connect."""

from __future__ import annotations

import os
import shutil
import sys

import numpy as np
import pandas as pd
import pytest

import steepest as st

if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
    pytest.skip("Java is not installed; Spark needs version 17 or later", allow_module_level=True)

pytestmark = pytest.mark.xdist_group("spark")
HERE = os.pathsep.join(path for path in sys.path if path)
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}


@pytest.fixture(scope="module")
def spark():
    from pyspark.sql import SparkSession

    os.environ.update(SPARK_LOCAL_IP="127.0.0.1", PYSPARK_PYTHON=sys.executable, PYTHONPATH=HERE)
    builder = SparkSession.builder.master("local[2]")
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


def sparse_rows(X, y, **more):
    rows = [X.indices[a:b].tolist() for a, b in zip(X.indptr[:-1], X.indptr[1:], strict=True)]
    values = [X.data[a:b].astype(float).tolist() for a, b in zip(X.indptr[:-1], X.indptr[1:], strict=True)]
    return pd.DataFrame({"places": rows, "values": values, "label": y, **more})


SCHEMA = "places array<int>, values array<double>, label bigint"


@pytest.fixture(scope="module")
def frame(spark, binary):
    X, y = binary
    return spark.createDataFrame(sparse_rows(X, y, n=np.arange(len(y))), SCHEMA + ", n bigint")


PAIR = ["places", "values"]


def local(n_shards, **params):
    return st.LinearClassifier(parallel="mixing", n_shards=n_shards, random_state=7, **params)


def same(a, b):
    for name, array in a._learner.state.items():
        np.testing.assert_array_equal(array, b._learner.state[name], err_msg=name)


@pytest.mark.parametrize("n_shards", [1, 3])
def test_ipm_on_spark_and_mixing_in_one_process_give_the_same_bits(frame, binary, n_shards):
    X, y = binary
    here = local(n_shards, epochs=3).fit(X, y)
    there = st.fit_spark(local(n_shards, epochs=3), frame, features=PAIR, label="label", n_features=X.shape[1])
    same(here, there)
    np.testing.assert_array_equal(here.predict_proba(X), there.predict_proba(X))
    assert there.history_[-1]["bytes_up"] > 0
