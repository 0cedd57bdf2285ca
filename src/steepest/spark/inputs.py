"""From the DataFrame or the paths that `fit_spark` was given to the shards of their rows."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from steepest.errors import DataError, ParameterError
from steepest.kernels import parse_libsvm
from steepest.parameters import whole
from steepest.spark.barrier import refuse_barrier
from steepest.spark.frames import FitOptions, Input, collect
from steepest.spark.hashed import with_hasher
from steepest.spark.rows import LINE, Columns, columns_of
from steepest.spark.sessions import read_paths, session_for
from steepest.spark.shards import Shards, pack_rows

SHARDS = 8  # if neither the call nor the estimator says how many
PLACE = "_steepest_file"  # the column that names the file of a row


def open_input(data: Any, spark: Any, *, barrier: bool = False) -> Input:
    """The rows of a DataFrame, or of files."""
    given = Input(data)
    if isinstance(data, str | list | tuple):
        session = session_for(spark)
        from pyspark.sql import functions

        frame, lines = read_paths(session, [data] if isinstance(data, str) else list(data))
        given = Input(frame.withColumn(PLACE, functions.input_file_name()), PLACE, lines)
    elif not hasattr(data, "mapInArrow"):
        raise ParameterError(f"df is a {type(data).__name__}; give a Spark DataFrame, or the path of Parquet files")
    if barrier:
        refuse_barrier(given.frame.sparkSession)
    return given


@contextlib.contextmanager
def shards_of(estimator: Any, given: Input, options: FitOptions) -> Iterator[tuple[Shards, Columns]]:
    """The rows in shards, which are removed in the end, and how they are read."""
    n_shards = estimator.flat_params().get("n_shards", SHARDS) if options.n_shards is None else options.n_shards
    n_shards = whole("n_shards", n_shards, 1)
    vars(estimator).pop("hasher_", None)
    columns = _libsvm_columns(given.frame, options.n_features) if given.lines else _columns(estimator, given, options)
    shards = pack_rows(given, columns, n_shards, options, classify=estimator.task == "classify")
    try:
        if options.checkpoints is not None:
            options.checkpoints.fingerprint["rows"] = shards.survey.shape
        yield shards, columns
    finally:
        shards.close()
    estimator.spark_features_ = columns.features


def _columns(estimator: Any, given: Input, options: FitOptions) -> Columns:
    types = {name: kind for name, kind in given.frame.dtypes if name != PLACE}
    label = options.label
    if estimator.task == "cluster":
        label = None
    elif label is None:
        if "label" not in types:
            raise DataError(f"label=None, and no column is called label; name one of {', '.join(map(repr, types))}")
        label = "label"
    hashes = estimator.hasher is not None
    columns = columns_of(types, options.features, label, options.weight, hashes=hashes, n_features=options.n_features)
    return with_hasher(estimator, given.frame, columns) if columns.kind == "hashed" else columns


def _libsvm_columns(frame: Any, n_features: int | None) -> Columns:
    """Lines of libsvm; the first of them show whether they count from 0."""
    head = collect(frame.sparkSession, frame.select(LINE).limit(1000)).column(LINE).to_pylist()
    text = "\n".join(line or "" for line in head).encode()
    indices = parse_libsvm([text], zero_based=True, with_labels=False, skip_bad=True)[1]
    return Columns("libsvm", (LINE,), n_features=n_features, zero_based=bool((indices == 0).any()))
