"""steepest cv DATA: k-fold cross-validation, with the flags of train."""

from __future__ import annotations

import argparse
import json

import steepest as st
from steepest.cli.data import check_writable, open_data, tell_skipped
from steepest.cli.parser import LEARNING
from steepest.cli.train import about_run, add_model_arguments, choose_task, new_estimator, open_rows
from steepest.data.folds import survey_rows
from steepest.report.choosing import save_folds

COMMON = ("folds", "groups", "stratified", "metrics", "json", "report", *LEARNING)
EXAMPLES = (
    "steepest cv reviews.csv --label stars",
    "steepest cv reviews.csv --label stars --folds 10 --alpha 1e-4",
    "steepest cv visits.csv --label sold --groups customer --report cv.html",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds all flags of the verb."""
    parser.add_argument("--folds", type=int, default=5, metavar="N", help="number of folds (default: 5)")
    parser.add_argument("--groups", metavar="COLUMN", help="column of groups; all rows of a group are in the same fold")
    parser.add_argument(
        "--stratified",
        action=argparse.BooleanOptionalAction,
        default="auto",
        help="give each fold the same share of every class (default: for classes, without groups)",
    )
    parser.add_argument(
        "--metrics", metavar="NAMES", help="metrics, separated by commas (default: loss, and accuracy, rmse or ndcg)"
    )
    parser.add_argument("--report", metavar="FILE.html", help="write an HTML report with the metrics of every fold")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    add_model_arguments(parser)


def run(options: argparse.Namespace) -> int:
    """Prints a line per fold, the means and the standard deviations; runs --jobs folds at once."""
    check_writable(options.report, options.data)
    choose_task(options)
    estimator = new_estimator(options)
    source = open_rows(estimator, options)
    jobs, estimator.n_jobs = estimator.n_jobs, 1
    result = st.cross_validate(
        estimator,
        source,
        folds=options.folds,
        stratified=options.stratified,
        groups=None if options.groups is None else _group_column(options),
        metrics=None if options.metrics is None else options.metrics.split(","),
        n_jobs=1 if jobs is None else jobs,
        random_state=int(estimator.random_state or 0),
    )
    tell_skipped(source)
    if options.report is not None:
        save_folds(options.report, repr(estimator), result.folds, result.metrics, about_run(options))
    print(json.dumps(result.as_dict()) if options.json else result)
    return 0


def _group_column(options: argparse.Namespace) -> object:
    """Reads the column by itself, since it need not be a feature."""
    roles = {"text": None, "categorical": [options.groups], "numeric": None, "cache": None}
    table = open_data(argparse.Namespace(**{**vars(options), **roles}))
    groups = survey_rows(table, group=options.groups).groups
    assert groups is not None
    return groups
