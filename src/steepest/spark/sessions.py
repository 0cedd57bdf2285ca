"""A Spark session, or one sentence with the command that helps; and the rows of files that a session reads."""

from __future__ import annotations

import os
import re
import shutil
import socket
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlparse

from steepest.errors import DataError

INSTALL = "pip install 'steepest[spark]'"
LINE_ENDINGS = (".libsvm", ".svm", ".svmlight", ".txt", ".gz", ".bz2")
SECONDS = 5.0  # that a master may take to answer
_MASTER = re.compile(r"(local($|\[)|local-cluster\[|yarn$|(spark|k8s|sc)://)")


def need_pyspark() -> None:
    """Refuses a Python without pyspark."""
    try:
        import pyspark  # noqa: F401
    except ImportError:
        raise DataError(f"Spark needs pyspark, which is not installed; run {INSTALL}") from None


def session_for(spark: Any = None) -> Any:
    """The session given, the active one, or a new one on all cores of this machine."""
    need_pyspark()
    if spark is not None:
        return spark
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    return active if active is not None else start("local[*]")


def start(master: str, **settings: str) -> Any:
    """A session with this master, or one sentence."""
    need_pyspark()
    from pyspark.sql import SparkSession

    if not _MASTER.match(master):  # which Java would say in a long trace
        raise _no_master(master)
    if master.startswith("sc://"):
        _need_answer(master)
        return SparkSession.builder.remote(master).getOrCreate()
    _need_java()
    if master.startswith("spark://"):
        _need_answer(master)
    builder = SparkSession.builder.master(master).appName("steepest").config("spark.ui.enabled", "false")
    builder = builder.config("spark.ui.showConsoleProgress", "false")
    for name, value in settings.items():
        builder = builder.config(name, value)
    try:
        session = builder.getOrCreate()
        session.sparkContext.setLogLevel("ERROR")
        return session
    except Exception as error:
        if "Master URL" in str(error):
            raise _no_master(master) from None
        raise in_plain_words(error) from None


def _no_master(master: str) -> DataError:
    return DataError(
        f"{master!r} is not an address of a Spark master; give local[*], spark://HOST:7077, yarn or sc://HOST"
    )


def _need_java() -> None:
    home = os.environ.get("JAVA_HOME")
    java = os.path.join(home, "bin", "java") if home else shutil.which("java")
    if java is None or not os.path.exists(java):
        where = f"JAVA_HOME={home} has none" if home else "none is in PATH"
        raise DataError(
            f"Spark needs Java 17 or later, and {where}; install one, as in apt-get install openjdk-17-jre-headless"
        )


def _need_answer(master: str) -> None:
    """Spark itself would try for a minute, in silence."""
    place = urlparse(master)
    port = place.port or (15002 if place.scheme == "sc" else 7077)
    try:
        socket.create_connection((place.hostname or "", port), SECONDS).close()
    except OSError as error:
        why = error.strerror or str(error)
        raise DataError(
            f"no Spark master answers at {master} ({why}); check the address, or start one with "
            "spark-class org.apache.spark.deploy.master.Master"
        ) from None


def read_paths(session: Any, paths: Sequence[str]) -> tuple[Any, bool]:
    """(the rows of the files, whether they are lines of libsvm)."""
    ends = {os.path.splitext(path.rstrip("/"))[1].lower() for path in paths}
    lines = bool(ends) and ends <= set(LINE_ENDINGS)
    if not lines and not ends <= {".parquet", ""}:
        raise DataError(
            f"{paths[0]} is not in a format that Spark reads here; give .parquet or .libsvm files, or a DataFrame"
        )
    try:
        return (session.read.text(list(paths)) if lines else session.read.parquet(*paths)), lines
    except Exception as error:
        raise in_plain_words(error) from None


def in_plain_words(error: Exception) -> Exception:
    """An error of Spark's as a DataError, where its cause is known; else the error itself."""
    text = str(error)
    own = re.findall(r"(?:DataError|ParameterError|BadRowError): (.+)", text)
    if own:
        return DataError(own[-1])
    missing = re.search(r"No module named '(steepest|numpy|pyarrow|safetensors)[.'\w]*", text)
    if missing:
        return DataError(
            f"the executors have no {missing[1]}: install it there ({INSTALL}), or let PYSPARK_PYTHON name a Python "
            "that has it"
        )
    if "maxResultSize" in text:
        return DataError(
            "the answers of all shards are larger than spark.driver.maxResultSize: start the session with a larger "
            "one, as in .config('spark.driver.maxResultSize', '8g'), or use fewer shards or hashed features"
        )
    if "OutOfMemoryError" in text:
        return DataError(
            "Spark's driver ran out of memory: start the session with more, as in .config('spark.driver.memory', "
            "'8g'), or use fewer shards or hashed features"
        )
    for mark, sentence in (("PATH_NOT_FOUND", "does not exist"), ("UNABLE_TO_INFER_SCHEMA", "holds no rows")):
        if mark in text:
            path = re.search(r"((?:file|hdfs|s3a?):[^\s.]*[^\s]*)", text)
            return DataError(f"{path[1].rstrip('.') if path else 'the path'} {sentence}; check the path")
    python = re.search(r"^(\w*(?:Error|Exception)): (.+)$", text.strip().splitlines()[-1]) if text.strip() else None
    traceback = re.findall(r"^(\w+(?:\.\w+)*(?:Error|Exception)): (.+)$", text, re.MULTILINE)
    if python is None and "PythonException" in type(error).__name__ and traceback:
        return DataError(f"a task failed in an executor: {traceback[-1][0]}: {traceback[-1][1]}")
    return error
