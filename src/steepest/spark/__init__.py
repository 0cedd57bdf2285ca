"""The Spark driver of the same learners: DataFrames in, the ordinary local estimator out. pyspark is only used here.

`fit_spark` packs the rows once, in a canonical order, into shards on the executors (shards.py); each round is a job
that runs the engine's own steps on them (linear.py). `mixing` with S shards in one process and `fit_spark` with S
shards on the same rows in the same order give the same bits, and one shard those of the serial learner. Imports are
lazy: pyspark is needed when a function is called, not before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from steepest.errors import ParameterError
from steepest.protocol import not_fitted

AnyEstimator = TypeVar("AnyEstimator")


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
    """Fits a linear model, KMeans or MatrixFactorization on the rows of a Spark DataFrame, and returns it.

    Parameters
    ----------
    df : DataFrame, or path (or paths) of Parquet or libsvm files
    features : column or columns
        An MLlib vector, an array of numbers, two arrays (indices from 0, and values), columns of numbers, or text and
        categorical columns, which the executors hash by the estimator's hasher. None: all columns but the others named.
        MatrixFactorization: the columns of users and items, ids of any type.
    label, weight : column
        The targets, numbers or strings, and the weights of the rows.
    method : {"ipm", "mix", "vote", "batch"}; KMeans: {"lloyd"}; MatrixFactorization: {"dsgd", "als"}
        Iterative parameter mixing, `rounds` times (None: once per epoch); one mixture at the end; a majority vote of
        the shards' models; or a batch solver ("lbfgs", "gd") whose gradients the executors add up, for `rounds`
        iterations (None: up to `max_iter`). "lloyd": k-means by sums over the shards. "dsgd": stochastic gradients by
        strata, each shard holding the ratings of some users while factors of items move; "als": alternating least
        squares. None: "ipm", "lloyd", "dsgd" (or "als", if that is the estimator's solver).
    n_shards : int, optional
        Number of shards. The result depends on it (except for "als"). None: that of the estimator's
        `parallel=Mixing(n_shards=...)`, or 8; for MatrixFactorization `n_blocks`.
    order_by : column or columns, optional
        Order of the rows. None: that of the DataFrame if it is stable, otherwise by a hash of their content.
    n_features : int, optional
        Number of features, if the rows may not contain the last one.
    barrier : bool
        Run all rounds inside one job, whose tasks run at the same time and get their work from the driver. The result
        is bit-identical, without the cost of a job per round. If a task is lost, all continue from the last round.
    checkpoint : path, optional
        Directory in which the driver saves every round, so that an interrupted fit can continue to a bit-identical
        result.
    resume : bool
        Continue from the checkpoint directory, if it holds a checkpoint.
    spark : SparkSession, optional
        Session that reads the files of a path. None: the active one, or a new one.

    Examples
    --------
    >>> import steepest as st
    >>> model = st.fit_spark(st.LinearClassifier(), df, features="features", label="label")  # doctest: +SKIP
    >>> model.save("model.steepest")  # doctest: +SKIP
    """
    from steepest.spark.checkpoints import RoundCheckpoints, fingerprint_of
    from steepest.spark.frames import FitOptions
    from steepest.spark.inputs import open_input

    if resume and checkpoint is None:
        raise ParameterError("resume=True needs checkpoint=, the directory that the rounds were saved in")
    checkpoints = None
    if checkpoint is not None:
        checkpoints = RoundCheckpoints(checkpoint, fingerprint_of(estimator, method, n_shards, rounds), resume=resume)
    options = FitOptions(features, label, weight, order_by, n_features, n_shards, method, rounds, barrier, checkpoints)
    _driver_of(estimator)(estimator, open_input(df, spark, barrier=barrier), options)
    if checkpoints is not None:
        checkpoints.clear()
    return estimator


def _driver_of(estimator: Any) -> Callable[[Any, Any, Any], None]:
    """The function that fits estimators of this kind."""
    from steepest.models.factorization import MatrixFactorization
    from steepest.models.kmeans import KMeans
    from steepest.models.linear import LinearClassifier, LinearRegressor
    from steepest.spark.clusters import fit_kmeans
    from steepest.spark.factors import fit_factors
    from steepest.spark.linear import fit_linear

    drivers: dict[type, Callable[[Any, Any, Any], None]] = {
        LinearClassifier: fit_linear,
        LinearRegressor: fit_linear,
        KMeans: fit_kmeans,
        MatrixFactorization: fit_factors,
    }
    for kind, driver in drivers.items():
        if isinstance(estimator, kind):
            return driver
    names = ", ".join(kind.__name__ for kind in drivers)
    raise ParameterError(f"{type(estimator).__name__} cannot learn on Spark; give one of {names}")


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

    if not estimator.__sklearn_is_fitted__():
        raise not_fitted(estimator, "call fit before using it")
    return predicted(estimator, df, _known_features(estimator, features), prediction, probability)


def _known_features(estimator: Any, features: Any) -> Any:
    if features is not None:
        return features
    hasher = getattr(estimator, "hasher_", None)
    if hasher is not None:
        return list(dict.fromkeys(column.origin for column in hasher.used_columns))
    known = getattr(estimator, "spark_features_", None)
    names = getattr(estimator, "feature_names_in_", None) if known is None else known
    if names is None:
        raise ParameterError(
            "features=None: this model does not know its columns; name them, as in features='features'"
        )
    return list(names)
