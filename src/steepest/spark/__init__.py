"""The Spark driver of the same learners: DataFrames in, the ordinary local estimator out. pyspark lives only here.

`fit_spark` packs the rows once, in a canonical order, into shards on the executors (shards.py); each round is a job
that runs the engine's own steps on them (linear.py). `mixing` with S shards in one process and `fit_spark` with S
shards on the same rows in the same order give the same bits, and one shard those of the serial learner. Imports are
lazy: pyspark is needed when a function is called, not before.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from steepest.data.chunk import DataError
from steepest.data.parameters import ParameterError, choice, whole
from steepest.spark.rows import Columns, columns_of

if TYPE_CHECKING:
    from steepest.spark.journal import Journal

AnyEstimator = TypeVar("AnyEstimator")
SHARDS = 8  # if neither the call nor the estimator tells
PLACE = "_steepest_file"  # the column that tells from which file a row comes


def fit_spark(
    estimator: AnyEstimator,
    df: Any,
    *,
    features: str | Sequence[str] | None = None,
    label: str | None = None,
    method: str | None = None,
    rounds: int | None = None,
    n_shards: int | None = None,
    weight: str | None = None,
    order_by: str | Sequence[str] | None = None,
    n_features: int | None = None,
    barrier: bool = False,
    checkpoint: str | Path | None = None,
    resume: bool = False,
    spark: Any = None,
) -> AnyEstimator:
    """Fits a linear model, KMeans or MatrixFactorization on the rows of a Spark DataFrame; returns it to use as always.

    Parameters
    ----------
    df : DataFrame, or path (or paths) of Parquet or libsvm files
    features : column or columns
        An MLlib vector, an array of numbers, two arrays (places from 0, and values), columns of numbers, or text and
        categorical columns, which the executors hash by the estimator's hasher. None: all columns but the others named.
        MatrixFactorization: the columns of users and items, ids of any type.
    label, weight : column
        The targets, numbers or strings, and the weights of the rows.
    method : {"ipm", "mix", "vote", "batch"}; KMeans: {"lloyd"}; MatrixFactorization: {"dsgd", "als"}
        Iterative parameter mixing, `rounds` times (None: once an epoch); one mixture at the end; a majority vote of the
        shards' models; or a batch solver ("lbfgs", "gd") whose gradients the executors add up, for `rounds` iterations
        (None: up to `max_iter`). "lloyd": k-means by sums over the shards. "dsgd": stochastic gradients by strata, each
        shard holding the ratings of some users while factors of items move; "als": alternating least squares.
        None: "ipm", "lloyd", "dsgd" (or "als", if that is the estimator's solver).
    n_shards : int, optional
        Into how many shards the rows are dealt; a parameter of the result ("als": not of it). None: the estimator's own
        `n_shards`; for MatrixFactorization `n_blocks`.
    order_by : column or columns, optional
        The order of the rows. None: the DataFrame's own if it is the same each time, else by a hash of their content.
    n_features : int, optional
        How many features there are, where places may show fewer.
    barrier : bool
        All rounds inside one job, whose tasks all run at once and get their work from the driver: the same bits without
        the cost of a job a round. If a task is lost, all go on from the last round.
    checkpoint : path, optional
        A folder in which the driver saves every round, so that a fit that was killed can go on to the same bits.
    resume : bool
        Go on from what is in the checkpoint folder, if anything is.
    spark : SparkSession, optional
        The session that reads the files of a path; None: the active one, or a new one.

    Examples
    --------
    >>> import steepest as st
    >>> model = st.fit_spark(st.LinearClassifier(), df, features="features", label="label")  # doctest: +SKIP
    >>> model.save("model.steepest")  # doctest: +SKIP
    """
    from steepest.spark import clusters, factors, linear
    from steepest.spark.gang import refuse_barrier
    from steepest.spark.journal import Journal, fingerprint_of
    from steepest.spark.shards import pack_rows

    if resume and checkpoint is None:
        raise ParameterError("resume=True needs checkpoint=, the folder that the rounds were saved in")
    journal = None
    if checkpoint is not None:
        journal = Journal(checkpoint, fingerprint_of(estimator, method, n_shards, rounds), resume=resume)
    task = getattr(estimator, "_task", None)
    if hasattr(estimator, "n_factors"):
        frame, place = _frame(df, spark)
        if barrier:
            refuse_barrier(frame.sparkSession)
        chosen = factors.Wish(features, label, weight, order_by, n_shards, method, rounds, barrier, journal)
        factors.fit_factors(estimator, frame, chosen, place)
        _complete(journal)
        return estimator
    if task != "cluster" and (task not in ("classify", "regress") or not hasattr(estimator, "_mix_plan")):
        raise ParameterError(
            f"{type(estimator).__name__} cannot learn on Spark; give a LinearClassifier, LinearRegressor, KMeans or "
            "MatrixFactorization"
        )
    clusters_wanted = task == "cluster"
    method = "lloyd" if clusters_wanted and method is None else method or "ipm"
    method = choice("method", method, clusters.METHODS if clusters_wanted else linear.METHODS)
    n = whole("n_shards", getattr(estimator, "n_shards", SHARDS) if n_shards is None else n_shards, 1)
    vars(estimator).pop("hasher_", None)
    frame, columns, place = _open(estimator, df, features, label, weight, n_features, spark)
    if barrier:
        refuse_barrier(frame.sparkSession)
    classify = task == "classify"
    shards = pack_rows(frame, columns, n, classify=classify, order_by=order_by, place=place, barrier=barrier)
    try:
        if journal is not None:
            journal.fingerprint["rows"] = shards.survey.shape
        if clusters_wanted:
            shards.journal = journal
            clusters.fit_kmeans(estimator, shards, method, rounds)
        else:
            linear.fit_linear(estimator, shards, method, rounds, columns, journal)
    finally:
        shards.close()
    _complete(journal)
    estimator.spark_features_ = columns.features  # type: ignore[attr-defined]
    return estimator


def _complete(journal: Journal | None) -> None:
    if journal is not None:
        journal.clear()


def predict_spark(
    estimator: Any,
    df: Any,
    *,
    features: str | Sequence[str] | None = None,
    prediction: str = "prediction",
    probability: str | None = "probability",
) -> Any:
    """The DataFrame with a column of predictions, and one of probabilities (an array) if the loss has them."""
    from steepest.spark.predicting import predicted

    estimator._check_fitted()
    return predicted(estimator, df, _known_features(estimator, features), prediction, probability)


def _known_features(estimator: Any, features: Any) -> Any:
    if features is not None:
        return features
    hasher = getattr(estimator, "hasher_", None)
    if hasher is not None:
        return [name for name, _ in hasher.columns_]
    known = getattr(estimator, "spark_features_", None)
    names = getattr(estimator, "feature_names_in_", None) if known is None else known
    if names is None:
        raise ParameterError(
            "features=None: this model does not know its columns; name them, as in features='features'"
        )
    return list(names)


def _frame(data: Any, spark: Any) -> tuple[Any, str | None]:
    """(the DataFrame, the column that tells the file)."""
    from steepest.spark.sessions import read_paths, session_for

    if isinstance(data, str | list | tuple):
        from pyspark.sql import functions

        frame, lines = read_paths(session_for(spark), [data] if isinstance(data, str) else list(data))
        if lines:
            raise ParameterError("lines of libsvm hold no ratings; give a DataFrame, or Parquet files")
        return frame.withColumn(PLACE, functions.input_file_name()), PLACE
    if not hasattr(data, "mapInArrow"):
        raise ParameterError(f"df is a {type(data).__name__}; give a Spark DataFrame, or the path of Parquet files")
    return data, None


def _open(
    estimator: Any, data: Any, features: Any, label: Any, weight: Any, n_features: int | None, spark: Any
) -> tuple[Any, Columns, str | None]:
    """(the DataFrame, how to read it, the column that tells the file)."""
    from steepest.spark.sessions import read_paths, session_for

    place = None
    if isinstance(data, str | list | tuple):
        session = session_for(spark)
        from pyspark.sql import functions

        paths = [data] if isinstance(data, str) else list(data)
        frame, lines = read_paths(session, paths)
        frame, place = frame.withColumn(PLACE, functions.input_file_name()), PLACE
        if lines:
            return frame, _libsvm_columns(frame, n_features), place
    elif hasattr(data, "mapInArrow"):
        frame = data
    else:
        raise ParameterError(f"df is a {type(data).__name__}; give a Spark DataFrame, or the path of Parquet files")
    types = {name: kind for name, kind in frame.dtypes if name != PLACE}
    if estimator._task == "cluster":
        label = None
    elif label is None:
        label = "label" if "label" in types else None
    if label is None and estimator._task != "cluster":
        raise DataError(f"label=None, and no column is called label; name one of {', '.join(map(repr, types))}")
    hashes = getattr(estimator, "hasher", None) is not None
    columns = columns_of(types, features, label, weight, hashes=hashes, n_features=n_features)
    if columns.kind == "hashed":
        from steepest.spark.hashed import with_hasher

        columns = with_hasher(estimator, frame, columns)
    return frame, columns, place


def _libsvm_columns(frame: Any, n_features: int | None) -> Columns:
    """Lines of libsvm; whether they count from 0 is told by the first of them."""
    from steepest.kernels import parse_libsvm
    from steepest.spark.frames import collect
    from steepest.spark.rows import LINE

    head = collect(frame.sparkSession, frame.select(LINE).limit(1000)).column(LINE).to_pylist()
    text = "\n".join(line or "" for line in head).encode()
    indices = parse_libsvm([text], zero_based=True, with_labels=False, skip_bad=True)[1]
    return Columns("libsvm", (LINE,), n_features=n_features, zero_based=bool((indices == 0).any()))
