"""steepest race DATA: solvers side by side, as a table, a picture and a page, with the flags of train."""

from __future__ import annotations

import argparse
import json
import sys

import steepest as st
from steepest.cli.data import check_writable, open_data, tell_skipped
from steepest.cli.parser import LEARNING
from steepest.cli.train import about_run, add_model_arguments, choose_task, new_estimator, open_rows
from steepest.report.choosing import save_race
from steepest.report.picture import check_picture
from steepest.select.race import Point

RACED_TASKS = ("classify", "regress")

COMMON = ("solvers", "seconds", "test", "test_data", "png", "report", "json", "quiet", *LEARNING)
EXAMPLES = (
    "steepest race train.svm --alpha 1e-4",
    "steepest race train.svm --solvers sgd,lbfgs --seconds 5",
    "steepest race reviews.csv --label stars --report race.html",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds all flags of the verb."""
    parser.add_argument(
        "--solvers", metavar="NAMES", help="solvers, separated by commas (default: all that minimise this objective)"
    )
    help = "time limit of each solver (default: 10)"
    parser.add_argument("--seconds", type=float, default=10.0, metavar="SECONDS", help=help)
    help = "share of the rows to measure the test error on (default: 0.2)"
    parser.add_argument("--test", type=float, default=0.2, metavar="SHARE", help=help)
    parser.add_argument("--test-data", metavar="FILE", help="other file to measure the test error on")
    parser.add_argument("--png", metavar="FILE", help="write the charts as a picture (also .svg or .pdf)")
    help = "write an HTML report with the charts and the table"
    parser.add_argument("--report", "--html", metavar="FILE.html", help=help)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--quiet", action="store_true", help="print no progress")
    add_model_arguments(parser)


def run(options: argparse.Namespace) -> int:
    """Prints the table."""
    choose_task(options)
    if options.task not in RACED_TASKS:
        raise st.ParameterError(f"--task {options.task} has no solvers to race; choose one of {', '.join(RACED_TASKS)}")
    estimator = new_estimator(options)
    if options.png is not None:
        check_picture(options.png)
    check_writable(options.report, options.data)
    source, test = open_rows(estimator, options), options.test
    if options.test_data is not None:
        other = {"data": [options.test_data], "cache": None, "limit": None}
        test = open_data(argparse.Namespace(**{**vars(options), **other}))
    result = st.race(
        estimator,
        source,
        solvers=None if options.solvers is None else options.solvers.split(","),
        test=test,
        seconds=options.seconds,
        random_state=int(estimator.random_state or 0),
        on_point=None if options.quiet or not sys.stderr.isatty() else _tell,
    )
    tell_skipped(source)
    if options.png is not None:
        result.plot(options.png)
    if options.report is not None:
        save_race(
            options.report,
            result.title,
            result.remarks(),
            result.header,
            result.rows(),
            result.charts(),
            about_run(options),
        )
    print(json.dumps(result.as_dict()) if options.json else result)
    return 0


def _tell(name: str, point: Point) -> None:
    print(
        f"{name}: {point.seconds:.2f} s, objective {point.objective:.6f}, test {point.test_error:.4f}", file=sys.stderr
    )
