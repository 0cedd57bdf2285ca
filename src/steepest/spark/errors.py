"""What may go wrong around Spark, each in one sentence with the command that helps."""

from __future__ import annotations

import re

from steepest.data.chunk import DataError

INSTALL = "pip install 'steepest[spark]'"


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
