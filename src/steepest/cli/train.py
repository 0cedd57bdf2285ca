"""steepest train DATA -m MODEL: learn a model and save it."""

from __future__ import annotations

import argparse
import contextlib
import inspect
import json
import os
import shlex
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Container, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import steepest as st
from steepest.cli import columns, flags
from steepest.cli.data import (
    KINDS,
    RATINGS,
    add_data_arguments,
    check_writable,
    hasher_options,
    open_data,
    refuse_hasher_flags,
    takes_hasher,
    tell_skipped,
)
from steepest.cli.progress import choose_monitor, interruptible
from steepest.data.files.blocks import open_files
from steepest.data.groups import holdout_groups
from steepest.data.raw import cache_of, is_raw, sample_columns
from steepest.data.readers.text import PREFIX
from steepest.data.scan import format_of
from steepest.data.source import Lenient, Source
from steepest.engine.checkpoint import FILE_NAME
from steepest.errors import is_of_the_system
from steepest.models.options import from_flat

if TYPE_CHECKING:
    Linear = st.LinearClassifier | st.LinearRegressor | st.LinearRanker
    Network = st.NetworkClassifier | st.NetworkRegressor | st.TextClassifier
    Model = Linear | Network | st.KMeans | st.MatrixFactorization | st.FMClassifier | st.FMRegressor
# Estimators by name: only the one that is asked for need be imported.
TASKS = {
    "classify": "LinearClassifier",
    "regress": "LinearRegressor",
    "rank": "LinearRanker",
    "cluster": "KMeans",
    "rate": "MatrixFactorization",
    "network": "NetworkClassifier",
    "fm": "FMClassifier",
    "text": "TextClassifier",
}
# What the short help shows.
COMMON = (
    *("model", "task", "holdout", "report", "watch", "quiet", "json", "format", "label", "text", "categorical"),
    *("numeric", "ignore", "header", "loss", "alpha", "epochs", "early_stopping", "class_weight", "ngrams", "n_jobs"),
    *("random_state", "n_factors", "n_clusters", "hidden", "dim"),
)
EXAMPLES = (
    "steepest train reviews.csv -m reviews.steepest --label stars --holdout 0.1",
    "steepest train houses.csv -m houses.steepest --label price --task regress --report houses.html",
    "steepest train cooking.stackexchange.txt -m cooking.steepest",
)
MOST_CLASSES = 100  # different whole numbers beyond which a label is taken for a number to predict
LONGEST_LABEL = 40  # letters of a class in the summary
LINEAR_TASKS = ("classify", "regress", "rank")
DEFAULTS = {"random_state": 0}  # that differ from Python's: a command gives the same each time
METHODS = ("ipm", "mix", "vote", "batch", "lloyd", "dsgd", "als")  # of fit_spark
NOTHING_MORE: Mapping[str, float] = {}
SHOWN_MEASURES = ("accuracy", "auc", "micro_f1", "rmse", "r2", "ndcg@10", "loss", "brier", "ece")
NUMBER_LOSSES = ("squared", "huber", "epsilon_insensitive", "quantile", "poisson")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds all flags of the verb."""
    parser.add_argument("-m", "--model", required=True, metavar="FILE", help="file to save the model in")
    help = "share of the rows to set aside and measure the model on, such as 0.1 (default: 0)"
    parser.add_argument("--holdout", type=float, default=0.0, metavar="SHARE", help=help)
    help = "with --holdout: save the model of the best epoch or of the last one (default: best)"
    parser.add_argument("--keep", choices=("best", "last"), default="best", help=help)
    help = "write an HTML report with the data, learning curve, metrics and largest weights"
    parser.add_argument("--report", metavar="FILE.html", help=help)
    help = "serve the report while training runs, and print its address"
    parser.add_argument("--watch", action="store_true", help=help)
    parser.add_argument("--json", action="store_true", help="print one JSON object per epoch on stdout")
    parser.add_argument("--quiet", action="store_true", help="print neither progress nor summary")
    parser.add_argument(
        "--checkpoint", metavar="DIR", help="save the state in this directory, so that --resume can continue"
    )
    parser.add_argument("--resume", action="store_true", help="continue from the last checkpoint, if there is one")
    parser.add_argument(
        "--checkpoint-every",
        metavar="30s|100000-rows",
        default="60s",
        help="how often to save the state (default: 60s)",
    )
    parser.add_argument(
        "--on-interrupt",
        choices=("save", "discard"),
        help="after Ctrl-C: save what was learned so far (the default with --checkpoint), or discard it",
    )
    parser.add_argument(
        "--spark", metavar="MASTER", help="train on Spark: local[*], spark://HOST:7077, sc://HOST, yarn"
    )
    parser.add_argument(
        "--method", choices=METHODS, help="on Spark: how the shards are combined (default: depends on the task)"
    )
    parser.add_argument("--barrier", action="store_true", help="on Spark: run all rounds inside one job")
    parser.add_argument(
        "--quantize", action="store_true", help="with --task text: store vectors as 8-bit numbers, for a smaller file"
    )
    parser.add_argument("--size", metavar="BYTES", help="with --task text: maximum size of the file, such as 5MB")
    linear = (parser.get_default("task_of_help") or "classify") in LINEAR_TASKS
    add_model_arguments(parser, {**DEFAULTS, "n_jobs": "all"} if linear else DEFAULTS)


def add_model_arguments(parser: argparse.ArgumentParser, defaults: Mapping[str, Any] = DEFAULTS) -> None:
    """Adds the data and the model: the flags that cv, tune and race share with train."""
    add_data_arguments(parser)
    help = "type of model (default: auto: text for fastText files, regress for labels with fractions, else classify)"
    parser.add_argument("--task", choices=("auto", *TASKS), default="auto", help=help)
    help = "balanced: give all classes the same weight, however rare (default: all rows weigh the same)"
    parser.add_argument("--class-weight", choices=("balanced",), default=None, help=help)
    shown = [estimator_of(parser.get_default("task_of_help"))]
    if "hasher" in inspect.signature(shown[0]).parameters:
        shown.append(st.Hasher)
    every_flag = bool(parser.get_default("every_flag"))
    others = [*map(estimator_of, TASKS), st.Hasher] if every_flag else []
    task = parser.get_default("task_of_help")
    if task in (None, "auto"):
        parser.epilog = "The model flags are those of --task classify; add another --task to see its flags."
    flags.add_estimator_flags(parser, shown, others, defaults, with_help=every_flag)


def estimator_of(task: str | None) -> type[Any]:
    """Returns the class of a task."""
    kind: type[Any] = getattr(st, TASKS.get(task or "", "LinearClassifier"))
    return kind


def run(options: argparse.Namespace) -> int:
    """Trains, saves, and reports where the model is."""
    if options.resume and not options.checkpoint:
        raise st.ParameterError("--resume needs --checkpoint DIR, the directory the state was saved in")
    if options.spark is None and (options.method is not None or options.barrier):
        flag = "--barrier" if options.barrier else f"--method {options.method}"
        raise st.ParameterError(f"{flag} is for Spark; give --spark MASTER as well")
    _refuse_small_files(options)
    _read_times(options)
    choose_task(options)
    _refuse_small_files(options)
    estimator = new_estimator(options)
    check_writable(options.model, options.data)
    check_writable(options.report, options.data, options.model)
    started = time.perf_counter()
    if options.spark is not None:
        _fit_on_spark(estimator, options)
        _write(estimator, options)
        if options.report is not None:
            _report(estimator, options, {}, time.perf_counter() - started)
        _summarise(estimator, options, time.perf_counter() - started)
        return 0
    source, validation = open_rows(estimator, options), None
    if options.holdout:
        hold_out = holdout_groups if options.task == "rank" else type(source).holdout
        source, validation = hold_out(source, options.holdout, int(estimator.random_state or 0))
    monitor = choose_monitor(options.json, options.quiet)
    with _all_cores(estimator, options), watched(monitor, options), interruptible(monitor):
        estimator.fit_stream(
            source,
            validation,
            monitor=monitor,
            checkpoint=options.checkpoint,
            resume=options.resume,
            checkpoint_every=options.checkpoint_every,
            keep=options.keep,
        )
    monitor.clear()
    if monitor.stopping:
        _end_interrupted(estimator, options)
        return 128 + monitor.signal
    cost = _save(estimator, options, source, validation)
    seconds = time.perf_counter() - started
    measures = {} if validation is None or (options.json and not options.report) else measured(estimator, validation)
    if options.report is not None:
        _report(estimator, options, measures, seconds)
    tell_skipped(source)
    _summarise(estimator, options, seconds, cost, measures)
    return 0


def _read_times(options: argparse.Namespace) -> None:
    """Reads the column of times, too, where the other columns are named."""
    column = vars(options).get("time")
    if column is not None and any(getattr(options, role) for role in KINDS):
        options.categorical = [*(options.categorical or []), str(column)]


def choose_task(options: argparse.Namespace) -> None:
    """Resolves --task auto from the data, and says why unless the answer is the usual one."""
    if options.task == "classify" and vars(options).get("spark") is None:
        _refuse_fractions(options)
    if options.task != "auto":
        return
    options.task = "classify"
    why = "" if vars(options).get("spark") is not None else _other_task(options)
    if why and not vars(options).get("quiet") and not options.json:
        print(f"steepest: {why}", file=sys.stderr)


def _other_task(options: argparse.Namespace) -> str:
    """Sets the task that the first rows show, if it is not to classify; returns why."""
    files = open_files(options.data)
    if files[0].once:  # a pipe comes by only once
        return ""
    if format_of(files[0], options.format) == "txt" and files[0].head(len(PREFIX)) == PREFIX:
        if flags.foreign_arguments(options, st.TextClassifier, [st.LinearClassifier, st.Hasher]):
            return ""
        options.task = "text"
        return "the lines start with __label__, so a text classifier is trained (--task classify: a linear one)"
    n, fractions = _numbers_of(options)
    if not fractions and n <= MOST_CLASSES:
        return ""
    options.task = "regress"
    if foreign := flags.foreign_arguments(options, st.LinearRegressor, [st.LinearClassifier]):
        options.task = "classify"
        return (
            f"the label holds numbers, but {flags.flag_of(foreign[0])} is for classes (--task regress: predict numbers)"
        )
    return f"the label has {n:,} different numbers, so a regressor is trained (--task classify trains a classifier)"


def _numbers_of(options: argparse.Namespace) -> tuple[int, bool]:
    """Returns (how many different numbers a sample of the labels holds, whether some are fractions); 0 for texts."""
    source = open_data(options)
    if not is_raw(source):
        return 0, False
    options.opened = source
    if (sample := sample_columns(source, keep=True)) is None or sample[1] is None:
        return 0, False
    y = sample[1]
    if y.dtype.kind != "f" or y.ndim != 1 or not len(y):
        return 0, False
    return len(np.unique(y)), bool((y % 1).any())


def _refuse_small_files(options: argparse.Namespace) -> None:
    """Refuses the flags that make the file of a text model small, if the task is known to be another one."""
    if options.task not in ("auto", "text") and (options.quantize or options.size):
        flag = "--quantize" if options.quantize else "--size"
        raise st.ParameterError(f"{flag} has no meaning with --task {options.task}; it is for --task text")


def _refuse_fractions(options: argparse.Namespace) -> None:
    """Refuses to take hundreds of different fractions for classes."""
    if open_files(options.data)[0].once:
        return
    n, fractions = _numbers_of(options)
    if fractions and n > MOST_CLASSES:
        raise st.DataError(f"the label holds {n:,} different numbers with fractions, not classes; give --task regress")


def measured(estimator: Any, rows: Source) -> dict[str, Any]:
    """Returns what `evaluate` measures on held-out rows, with curves where the model can give them."""
    if rows.read_once is not None or (is_raw(rows) and cache_of(rows) is not None):
        return {}  # the cache holds rows as they were while learning; reading them for another use would rebuild it
    curves = {"curves": True} if "curves" in inspect.signature(estimator.evaluate_stream).parameters else {}
    known = Lenient(rows)
    found = dict(estimator.evaluate_stream(known, **curves))
    if known.faults:
        n = len(known.faults)
        print(
            f"steepest: {n:,} held-out row{'' if n == 1 else 's'} not measured: {known.faults[0]}"
            f"{', and others' if len(set(known.faults)) > 1 else ''}",
            file=sys.stderr,
        )
    return found


@contextlib.contextmanager
def watched(monitor: Any, options: argparse.Namespace) -> Iterator[None]:
    """Serves the page of the run so far on this machine until training ends, if --watch is given."""
    if not options.watch:
        yield
        return
    from steepest.report.live import serve_live

    with serve_live(Path(options.model).name, shlex.join(options.command)) as live:
        monitor.also = live
        print(f"steepest: live report at {live.address}", file=sys.stderr)
        yield


def _end_interrupted(estimator: Any, options: argparse.Namespace) -> None:
    """Saves or discards what was learned before Ctrl-C or SIGTERM, and reports which."""
    kept = options.checkpoint and any(Path(options.checkpoint).rglob(FILE_NAME))
    resume = f"; {options.checkpoint} holds the state: continue with --resume" if kept else ""
    if (options.on_interrupt or ("save" if options.checkpoint else "discard")) == "discard":
        way_out = resume or "; --on-interrupt save keeps what was learned, --checkpoint DIR lets you continue"
        print(f"steepest: interrupted; nothing was saved, nothing was overwritten{way_out}", file=sys.stderr)
        return
    _write(estimator, options)
    print(f"steepest: interrupted; {options.model} holds what was learned until then{resume}", file=sys.stderr)


@contextlib.contextmanager
def _all_cores(estimator: Any, options: argparse.Namespace) -> Iterator[None]:
    """Uses all cores while a linear model learns bit-identically, unless a flag says; the model keeps its n_jobs."""
    given = vars(options)
    if options.task not in LINEAR_TASKS or "n_jobs" in given or given.get("parallel", "serial") != "serial":
        yield
        return
    usual, estimator.n_jobs = estimator.n_jobs, -1
    try:
        yield
    finally:
        estimator.n_jobs = usual


def _write(estimator: Any, options: argparse.Namespace, **how: Any) -> Any:
    """Saves the model; if the disk is full or broken, in the directory of temporary files."""
    try:
        return estimator.save(options.model, **how)
    except st.DataError as error:
        if not is_of_the_system(error.__cause__):
            raise
        handle, spare = tempfile.mkstemp("-" + Path(options.model).name, "steepest-")
        os.close(handle)
        try:
            estimator.save(spare, **how)
        except st.DataError:
            os.unlink(spare)
            raise error from error.__cause__
        raise st.DataError(f"{error}; what was learned is in {spare}") from error.__cause__


def _save(estimator: Model, options: argparse.Namespace, source: Source, validation: Source | None) -> dict[str, float]:
    """Saves the model; for a small file, reports the loss of accuracy on held-out rows, or else on those learned."""
    if not (options.quantize or options.size):
        _write(estimator, options)
        return {}
    assert isinstance(estimator, st.TextClassifier)  # as was made sure of
    once = validation is None and source.read_once is not None
    check = None if once else validation or source
    measures = _write(estimator, options, quantize=options.quantize, size=options.size, check=check)
    cost = "its cost in accuracy was not measured, since the data can be read only once; give --holdout 0.1"
    if not once:
        rows = "the training rows" if validation is None else "held-out rows"
        cost = f"accuracy on {rows}: {measures['accuracy_before']:.4f} before, {measures['accuracy']:.4f} from the file"
    if not options.quiet and not options.json:
        print(f"{options.model}: {measures['bytes']:,} bytes with 8-bit rows; {cost}", file=sys.stderr)
    return {name: measures[name] for name in ("accuracy_before", "accuracy") if name in measures}


def _fit_on_spark(estimator: Model, options: argparse.Namespace) -> None:
    """Fits the estimator on Spark, with a session that lives as long as the fit."""
    from steepest.spark.sessions import read_paths, start

    for name in ("holdout", "cache", "limit", "on_bad_line"):
        if getattr(options, name):
            raise st.ParameterError(f"--{name.replace('_', '-')} has no meaning with --spark; leave it out")
    if not isinstance(estimator, st.LinearClassifier | st.LinearRegressor | st.KMeans | st.MatrixFactorization):
        raise st.ParameterError(
            f"--task {options.task} cannot be learned on Spark; use classify, regress, rate or cluster"
        )
    session = start(options.spark)
    try:
        frame, lines = read_paths(session, options.data)
        roles_of = _ratings_on_spark if options.task == "rate" else _columns_on_spark
        st.fit_spark(
            estimator,
            options.data,
            **roles_of(estimator, dict(frame.dtypes), lines, options),
            method=options.method,
            barrier=options.barrier,
            checkpoint=options.checkpoint,
            resume=options.resume,
            spark=session,
        )
    finally:
        session.stop()
    if options.json:
        for record in estimator.history_:
            print(json.dumps(record))


def _columns_on_spark(
    estimator: Any, types: dict[str, str], lines: bool, options: argparse.Namespace
) -> dict[str, Any]:
    """Returns which columns hold what, and a hasher for them, as for tables that are read here."""
    from steepest.spark.rows import PLAIN

    features: list[str] | None = [name for role in KINDS for name in getattr(options, role) or ()] or None
    if options.task == "cluster" and features is None and not lines:
        features = [name for name in types if name not in (options.label, options.weight)]
    if estimator.hasher is None and not lines and all(types.get(name) in PLAIN for name in features or types):
        estimator.hasher = st.Hasher()
    return {"features": features, "label": options.label, "weight": options.weight, "n_features": options.n_features}


def _ratings_on_spark(
    estimator: Any, types: dict[str, str], lines: bool, options: argparse.Namespace
) -> dict[str, Any]:
    """Returns roles inferred from the columns' names or places, as in files that are read here."""
    from steepest.data.readers.ratings import places_of

    if lines:
        raise st.DataError(f"{options.data[0]} has no columns; ratings are read on Spark from Parquet files")
    given = {role: getattr(options, role + "_column") for role in RATINGS}
    names = list(types)
    places = places_of({**given, "weight": options.weight}, names, True, options.data[0])
    found = {role: names[place] for role, place in places.items()}
    return {"features": [found["user"], found["item"]], "label": found.get("rating"), "weight": found.get("weight")}


def _estimator_class(options: argparse.Namespace) -> type[Model]:
    """Returns what the task asks for; a network or a factorization machine learns numbers if its loss does."""
    if options.task in ("network", "fm") and str(vars(options).get("loss")) in NUMBER_LOSSES:
        return st.NetworkRegressor if options.task == "network" else st.FMRegressor
    return estimator_of(options.task)


def new_estimator(options: argparse.Namespace, leave_out: Container[str] = ()) -> Model:
    """Returns the estimator that the flags describe, without those in `leave_out`."""
    estimator_class = _estimator_class(options)
    given_for = TASKS if options.every_flag else (options.task,)  # tasks whose flags could have been given
    foreign = flags.foreign_arguments(options, estimator_class, list(map(estimator_of, given_for)))
    if foreign:
        raise st.ParameterError(
            f"{flags.flag_of(foreign[0])} has no meaning with --task {options.task}; leave it out, or give another task"
        )
    given = flags.estimator_arguments(options, estimator_class)
    given = {name: value for name, value in given.items() if name not in leave_out}
    if vars(options).get("spark") is not None and given.keys() & st.Mixing.flat_names().keys():
        given.setdefault("parallel", "mixing")  # which is what shards of Spark do
    estimator: Model = _estimator(estimator_class, {"random_state": DEFAULTS["random_state"], **given}, options)
    return estimator


def open_rows(estimator: Model, options: argparse.Namespace) -> Source:
    """Returns the data to learn from; rows that are not raw columns need no hasher."""
    opened = getattr(options, "opened", None)  # to find the task: it is not surveyed twice
    source = open_data(options, **_reading(options)) if opened is None else opened
    if getattr(estimator, "hasher", None) is not None and not takes_hasher(source):
        refuse_hasher_flags(source, hasher_options(options))
        estimator.set_params(hasher=None)
    return source


def _reading(options: argparse.Namespace) -> dict[str, Any]:
    """Returns the options of reading: clusters need no labels, and a named label column is not a feature."""
    if options.task == "rate":
        return {"format": "ratings"}
    if options.task != "cluster" or options.label is not None:
        return {}
    if options.weight is not None:
        raise st.ParameterError("--weight needs --label COLUMN as well, a column to be left out of the features")
    return {"with_labels": False}


def _estimator(kind: type[Any], arguments: dict[str, Any], options: argparse.Namespace) -> Any:
    if options.task not in ("rate", "text"):
        hasher = hasher_options(options)  # none: what to do is left to the data
        return kind(**from_flat(kind, arguments), hasher=st.Hasher(**hasher) if hasher else None)
    why = "ids are not hashed" if options.task == "rate" else "it makes its own features"
    asked = flags.estimator_arguments(options, st.Hasher)
    for name in asked:
        if asked[name] is not None and name not in (*arguments, *KINDS[: 3 * (options.task == "text")]):
            raise st.ParameterError(f"{flags.flag_of(name)} has no meaning with --task {options.task}: {why}")
    return kind(**from_flat(kind, arguments))


def _report(estimator: Model, options: argparse.Namespace, measures: Mapping[str, Any], seconds: float) -> None:
    from steepest.cli.inspect import describe_model
    from steepest.report.training import save_training

    facts = describe_model(estimator, options.model, 20)
    save_training(options.report, Path(options.model).name, facts, measures, about_run(options, seconds))


def about_run(options: argparse.Namespace, seconds: float | None = None) -> dict[str, str]:
    """Returns the command, the versions and the date, for a page."""
    import datetime
    import platform

    now = datetime.datetime.now().astimezone()
    took = {} if seconds is None else {"time": f"{seconds:.1f} s"}
    return {
        "command": shlex.join(options.command),
        "date": now.strftime("%Y-%m-%d %H:%M %Z"),
        **took,
        "versions": f"steepest {st.__version__}, Python {platform.python_version()}, NumPy {np.__version__}",
    }


def _summarise(
    estimator: Model,
    options: argparse.Namespace,
    seconds: float,
    cost: Mapping[str, float] = NOTHING_MORE,
    measures: Mapping[str, Any] = NOTHING_MORE,
) -> None:
    size = Path(options.model).stat().st_size
    if options.json:
        print(json.dumps({"model": options.model, "bytes": size, "seconds": seconds, **cost}))
    elif not options.quiet:
        facts = columns.facts_of(getattr(estimator, "hasher_", None))
        columns.show(facts)
        if facts:
            print(file=sys.stderr)
        report = f"; report in {options.report}" if options.report else ""
        lines = summary(estimator, facts, measures, options.label)
        lines["file"] = f"{options.model}, {size:,} bytes, {seconds:.1f} s{report}"
        print("\n".join(f"{name:<10}{text}" for name, text in lines.items() if text), file=sys.stderr)


def summary(
    estimator: Any, facts: list[dict[str, Any]], measures: Mapping[str, Any], label: str | None
) -> dict[str, str]:
    """Returns what was learned from what, in a few lines; `label` is the column that a flag named."""
    records, events = estimator.history_.records, estimator.history_.events
    lines = {"rows": f"{records[0]['rows']:,} for training" if records else ""}
    if measures.get("rows"):
        lines["rows"] += f", {measures['rows']:,} held out"
    if facts:
        kinds = Counter(fact["kind"] for fact in facts if not fact.get("source") and not fact.get("reason"))
        lines["columns"] = ", ".join(f"{n} {kind}" for kind, n in kinds.items())
        lines["left out"] = ", ".join(f"{fact['name']} ({fact['reason']})" for fact in facts if fact.get("reason"))
    lines["crossed"] = ", ".join(" x ".join(pair) for pair in columns.crosses_of(estimator))
    classes = getattr(estimator, "classes_", [])
    if len(classes):
        shown = ", ".join(str(label)[:LONGEST_LABEL] for label in classes[:8])
        rare = records and records[0]["rows"] < 2 * len(classes) and len(classes) > MOST_CLASSES
        doubt = "; most have a single row, so check the label" if rare else ""
        lines["classes"] = f"{len(classes):,}: {shown}{', ...' if len(classes) > 8 else ''}{doubt}"
    if label is not None or (found := estimator.recipe_.get("label")) is not None:
        lines["label"] = label or f"{found}, chosen by its name (--label COLUMN chooses another)"
    lines["model"] = f"{type(estimator).__name__}, {_learned(estimator)}"
    lines["note"] = next((event for event in events if "can be read only once" in event), "")
    chosen = next((event for event in events if event.startswith("solver='auto' chose ")), "")
    lines["solver"] = chosen.removeprefix("solver='auto' chose ").replace("'", "", 2)
    if len(records) > 1 and records[0].get("loss") is not None:
        unit = "iterations" if "passes" in records[-1] else "epochs"
        lines["loss"] = f"{records[0]['loss']:.5g} at first, {records[-1]['loss']:.5g} after {len(records)} {unit}"
    held = [name for name in SHOWN_MEASURES if isinstance(measures.get(name), float)]
    lines["held out"] = ", ".join(f"{name} {measures[name]:.5g}" for name in held)
    if not held and records and records[-1].get("holdout_loss") is not None:
        lines["held out"] = f"loss {records[-1]['holdout_loss']:.5g}"
    return lines


def _learned(estimator: Model) -> str:
    if isinstance(estimator, st.MatrixFactorization):
        return f"{len(estimator.user_ids_):,} users, {len(estimator.item_ids_):,} items"
    what = "column" if getattr(estimator, "hasher_", None) is not None else "feature"
    n = estimator.n_features_in_
    return f"{n:,} {what}{'' if n == 1 else 's'}, {estimator.n_nonzero_:,} non-zero weights"
