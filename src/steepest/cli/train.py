"""steepest train DATA -m MODEL: learn a model and save it."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Container
from pathlib import Path
from typing import Any

import steepest as st
from steepest.cli import flags
from steepest.cli.data import add_data_arguments, open_data, tell_skipped
from steepest.cli.progress import choose_monitor
from steepest.data.groups import holdout_groups

Linear = st.LinearClassifier | st.LinearRegressor | st.LinearRanker
Network = st.NetworkClassifier | st.NetworkRegressor | st.TextClassifier
Model = Linear | Network | st.KMeans | st.MatrixFactorization
ROLES = ("text", "categorical", "numeric")  # also flags of reading, which are None if not given
TASKS: dict[str, type[Model]] = {
    "classify": st.LinearClassifier,
    "regress": st.LinearRegressor,
    "rank": st.LinearRanker,
    "cluster": st.KMeans,
    "rate": st.MatrixFactorization,
    "network": st.NetworkClassifier,
    "text": st.TextClassifier,
}
NUMBER_LOSSES = ("squared", "huber", "epsilon_insensitive", "quantile", "poisson")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """All flags of the verb."""
    parser.add_argument("-m", "--model", required=True, help="where the model is saved")
    parser.add_argument("--holdout", type=float, default=0.0, metavar="SHARE", help="share of rows to measure on")
    parser.add_argument("--checkpoint", metavar="DIR", help="save the state there now and then")
    parser.add_argument("--resume", action="store_true", help="go on from the last checkpoint")
    parser.add_argument(
        "--spark", metavar="MASTER", help="learn on Spark: local[*], spark://HOST:7077, sc://HOST, yarn"
    )
    parser.add_argument("--method", choices=("ipm", "mix", "vote", "batch"), help="on Spark: how shards work together")
    parser.add_argument("--json", action="store_true", help="one JSON object an epoch on stdout")
    parser.add_argument("--quiet", action="store_true", help="no progress")
    add_model_arguments(parser)


def add_model_arguments(parser: argparse.ArgumentParser) -> None:
    """The data and the model: the flags that cv, tune and race share with train."""
    add_data_arguments(parser)
    parser.add_argument("--task", choices=tuple(TASKS), default="classify")
    parser.add_argument("--class-weight", choices=("balanced",), default=None)
    flags.add_estimator_flags(parser, [*TASKS.values(), st.Hasher])


def run(options: argparse.Namespace) -> int:
    """Trains, saves, and says where the model is."""
    if options.resume and not options.checkpoint:
        raise st.ParameterError("--resume needs --checkpoint DIR, the folder the state was saved in")
    estimator = new_estimator(options)
    check_writable(options.model)
    started = time.perf_counter()
    if options.spark is not None:
        _fit_on_spark(estimator, options)
        estimator.save(options.model)
        _summarise(estimator, options, time.perf_counter() - started)
        return 0
    if options.method is not None:
        raise st.ParameterError(f"--method {options.method} is for Spark; give --spark MASTER as well")
    source, validation = open_data(options, **reading(options)), None
    if options.holdout:
        hold_out = holdout_groups if options.task == "rank" else type(source).holdout
        source, validation = hold_out(source, options.holdout, int(estimator.random_state or 0))
    monitor = choose_monitor(options.json, options.quiet)
    estimator.fit_stream(source, validation, monitor=monitor, checkpoint=options.checkpoint, resume=options.resume)
    estimator.save(options.model)
    tell_skipped(source)
    _summarise(estimator, options, time.perf_counter() - started)
    return 0


def _fit_on_spark(estimator: Model, options: argparse.Namespace) -> None:
    """The same estimator, fitted by a session that lives as long as the fit."""
    from steepest.spark.rows import PLAIN
    from steepest.spark.sessions import read_paths, start

    for name in ("holdout", "checkpoint", "cache", "limit", "on_bad_line"):
        if getattr(options, name):
            raise st.ParameterError(f"--{name.replace('_', '-')} has no meaning with --spark; leave it out")
    if not isinstance(estimator, st.LinearClassifier | st.LinearRegressor):
        raise st.ParameterError(f"--task {options.task} cannot be learned on Spark; use classify or regress")
    roles = [name for role in ROLES for name in getattr(options, role) or ()]
    session = start(options.spark)
    try:
        frame, lines = read_paths(session, options.data)
        if estimator.hasher is None and not lines and all(kind in PLAIN for _, kind in frame.dtypes):
            estimator.hasher = st.Hasher(names=10_000)  # as for tables that are read here
        st.fit_spark(
            estimator,
            options.data,
            features=roles or None,
            label=options.label,
            weight=options.weight,
            method=options.method or "ipm",
            n_features=options.n_features,
            spark=session,
        )
    finally:
        session.stop()
    if options.json:
        for record in estimator.history_:
            print(json.dumps(record))


def _estimator_class(options: argparse.Namespace) -> type[Model]:
    """What the task asks for; a network learns numbers if its loss is one of numbers."""
    if options.task == "network" and str(vars(options).get("loss")) in NUMBER_LOSSES:
        return st.NetworkRegressor
    return TASKS[options.task]


def new_estimator(options: argparse.Namespace, leave_out: Container[str] = ()) -> Model:
    """The estimator that the flags describe, those named aside."""
    estimator_class = _estimator_class(options)
    foreign = flags.foreign_arguments(options, estimator_class, list(TASKS.values()))
    if foreign:
        raise st.ParameterError(f"--{foreign[0].replace('_', '-')} has no meaning with --task {options.task}")
    given = flags.estimator_arguments(options, estimator_class)
    arguments = {"random_state": 0, **{name: value for name, value in given.items() if name not in leave_out}}
    return _estimator(estimator_class, arguments, options)


def reading(options: argparse.Namespace) -> dict[str, Any]:
    """Clusters need no labels; a label column that is named is left out of the features, and weights are then read."""
    if options.task == "rate":
        return {"format": "ratings"}
    if options.task != "cluster" or options.label is not None:
        return {}
    if options.weight is not None:
        raise st.ParameterError("--weight needs --label COLUMN as well, a column to be left out of the features")
    return {"with_labels": False}


def _estimator(kind: type[Model], arguments: dict[str, Any], options: argparse.Namespace) -> Model:
    if not issubclass(kind, st.MatrixFactorization | st.TextClassifier):
        return kind(**arguments, hasher=_hasher(options))
    why = "ids are not hashed" if options.task == "rate" else "it makes its own features"
    wishes = flags.estimator_arguments(options, st.Hasher)
    for name in wishes:
        if wishes[name] is not None and name not in (*arguments, *ROLES[: 3 * (options.task == "text")]):
            raise st.ParameterError(f"--{name.replace('_', '-')} has no meaning with --task {options.task}: {why}")
    return kind(**arguments)


def _hasher(options: argparse.Namespace) -> st.Hasher | None:
    """The hasher that the flags ask for; None leaves it to the data."""
    wishes = flags.estimator_arguments(options, st.Hasher)
    wishes.pop("n_jobs", None)
    wishes = {name: value for name, value in wishes.items() if value is not None or name not in ROLES}
    if not wishes:
        return None
    if "cross" in wishes:
        wishes["cross"] = (wishes["cross"],)
    return st.Hasher(**{"names": 10_000, **wishes})


def check_writable(model: str) -> None:
    """Better to stumble now than after hours of training."""
    folder = Path(model).absolute().parent
    if not folder.is_dir():
        raise st.DataError(f"the folder {folder} for the model does not exist; make it first")
    if Path(model).is_dir():
        raise st.DataError(f"{model} is a folder; give a file name for the model")


def _summarise(estimator: Model, options: argparse.Namespace, seconds: float) -> None:
    size = Path(options.model).stat().st_size
    if isinstance(estimator, st.MatrixFactorization):
        learned = f"{len(estimator.user_ids_):,} users, {len(estimator.item_ids_):,} items"
    else:
        learned = f"{estimator.n_features_in_:,} features, {estimator.n_nonzero_:,} non-zero weights"
    if options.json:
        print(json.dumps({"model": options.model, "bytes": size, "seconds": seconds}))
    elif sys.stderr.isatty() and not options.quiet:
        print(f"{options.model}: {learned}, {size:,} bytes, {seconds:.2f} s", file=sys.stderr)
