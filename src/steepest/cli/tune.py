"""steepest tune DATA: parameters by successive halving, with the flags of train.

A flag that is given is kept as it is; several values with commas between are tried (`--loss log,hinge`).
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from typing import Any

import steepest as st
from steepest.cli import flags
from steepest.cli.data import RATINGS, READING, check_writable, tell_skipped
from steepest.cli.parser import LEARNING
from steepest.cli.train import (
    LINEAR_TASKS,
    about_run,
    add_model_arguments,
    choose_task,
    estimator_of,
    new_estimator,
    open_rows,
)
from steepest.data.raw import is_raw
from steepest.report.choosing import save_trials
from steepest.select.tune import DEFAULT_TRIALS, Trial, default_space, shown

UNSET = ("class_weight", "text", "categorical", "numeric")  # None if the flag was not given
SEVERAL = ("alpha", "loss", "eta0", "penalty", "solver", "schedule", "epochs", "l1_ratio", "batch_size", "average")

COMMON = ("model", "budget", "trials", "holdout", "metric", "json", "quiet", "report", *LEARNING)
EXAMPLES = (
    "steepest tune reviews.csv --label stars --budget 60 -m best.steepest",
    "steepest tune reviews.csv --label stars --loss log,hinge",
    "steepest tune houses.csv --label price --task regress --metric rmse --report tune.html",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds all flags of the verb."""
    parser.add_argument("-m", "--model", metavar="FILE", help="file to save the best model in (default: not saved)")
    parser.add_argument("--budget", type=float, default=60.0, metavar="SECONDS", help="time limit (default: 60)")
    help = f"number of settings to try (default: {DEFAULT_TRIALS})"
    parser.add_argument("--trials", type=int, default=DEFAULT_TRIALS, metavar="N", help=help)
    help = "share of the rows to measure trials on (default: 0.2)"
    parser.add_argument("--holdout", type=float, default=0.2, metavar="SHARE", help=help)
    help = "metric by which trials are compared, such as loss, auc, ece or rmse (default: auto)"
    parser.add_argument("--metric", default="auto", metavar="NAME", help=help)
    parser.add_argument("--report", metavar="FILE.html", help="write an HTML report with all trials and charts")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--quiet", action="store_true", help="print no progress")
    add_model_arguments(parser)


def run(options: argparse.Namespace) -> int:
    """Prints the table of trials and the best command."""
    check_writable(options.report, options.data, options.model)
    choose_task(options)
    if options.task not in LINEAR_TASKS:
        raise st.ParameterError(f"--task {options.task} cannot be tuned; choose one of {', '.join(LINEAR_TASKS)}")
    several = {name: value for name in SEVERAL if isinstance(value := vars(options).get(name), tuple)}
    estimator = new_estimator(options, leave_out=several)
    check_writable(options.model, options.data)
    source = open_rows(estimator, options)
    given = _given(options)
    free = {name: values for name, values in default_space(estimator, is_raw(source)).items() if name not in given}
    result = st.tune(
        estimator,
        source,
        space=free | several,
        budget=options.budget,
        trials=options.trials,
        holdout=options.holdout,
        metric=options.metric,
        random_state=int(estimator.random_state or 0),
        refit=options.model is not None,
        on_trial=None if options.quiet or not sys.stderr.isatty() else _tell,
    )
    if options.model is not None:
        result.best_estimator.save(options.model)
    tell_skipped(source)
    command = best_command(options, result.best.changes)
    if options.report is not None:
        save_trials(options.report, result.as_dict(), command, about_run(options, result.seconds))
    if options.json:
        print(json.dumps({**result.as_dict(), "command": command}))
        return 0
    print(result)
    for note in result.notes:
        print(f"steepest: {note}", file=sys.stderr)
    print(f"\nbest trial: {result.best.number}; to train it on all rows:\n{command}")
    return 0


def _tell(trial: Trial) -> None:
    measured = ", ".join(f"{name} {value:.5f}" for name, value in trial.measured.items())
    print(
        f"trial {trial.number}: {trial.rows:,} rows, {measured or trial.note}, {trial.seconds:.2f} s", file=sys.stderr
    )


def _given(options: argparse.Namespace) -> dict[str, Any]:
    """Returns parameters that flags have set."""
    known = (estimator_of(options.task), st.Hasher)
    return {name: value for kind in known for name, value in flags.estimator_arguments(options, kind).items()}


def best_command(options: argparse.Namespace, best: dict[str, Any]) -> str:
    """Returns the command that trains the best model on all rows."""
    given = _given(options)
    reading = {name: getattr(options, name) for name in ("format", *READING, "cache", "limit")}
    reading |= {f"{role}_column": getattr(options, f"{role}_column") for role in RATINGS}
    if reading["format"] == "auto":
        del reading["format"]
    reading_flags = {name: value for name, value in {**reading, "task": options.task}.items() if value is not None}
    if reading_flags["task"] == "classify":
        del reading_flags["task"]
    given = {name: value for name, value in given.items() if value is not None or name not in UNSET}
    values = {**given, **reading_flags, **best}
    words = ["steepest", "train", *options.data, "-m", options.model or "MODEL"]
    for name, value in values.items():
        words += _flag(name, value)
    return shlex.join(words)


def _flag(name: str, value: Any) -> list[str]:
    flag = flags.flag_of(name)
    if isinstance(value, bool):
        return [flag if value else "--no-" + flag[2:]]
    if name in flags.REPEATED:
        return [word for pair in value for word in (flag, ",".join(pair))]
    return [flag, ",".join(value) if isinstance(value, list) else shown(value)]
