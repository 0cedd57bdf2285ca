"""The command line: one function a verb. Results go to stdout, progress to stderr.

Errors are one sentence: exit status 2 for bad usage or input, 1 for failure; `--debug` shows the traceback.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import warnings
from collections.abc import Sequence
from typing import Any

from steepest.errors import NotConverged

VERBS = {
    "train": "learn a model from data and save it",
    "predict": "predict the rows of a file",
    "evaluate": "measure a model on labelled data",
    "inspect": "look inside a model",
    "recommend": "the best items for users of a matrix factorization",
    "cv": "measure parameters by cross-validation",
    "tune": "find good parameters within a number of seconds",
    "race": "compare solvers on your data: objective and test error against seconds",
    "explain": "say what each feature of a text adds to its score",
    "serve": "answer HTTP requests with a model, and learn from them",
    "convert": "write data in another format",
    "demo": "train on the docstrings of this very Python installation",
}


IN_THE_SHELL = {
    'pass on_bad_line="skip"': "give --on-bad-line skip",
    "pass zero_based=True": "give --zero-based",
    "pass label= with one of": "give --label with one of",
    "pass labels=[...]": "give --labels with commas between",
    "pass newlines_in_values=True": "give --newlines-in-values",
    ", or with_labels=False": "",
    ", or pass with_labels=False": "",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one verb and returns the exit status."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    helps = not {"-h", "--help"}.isdisjoint(arguments)
    options, unknown = _parser(arguments, every_flag=helps).parse_known_args(arguments)
    if unknown:  # flags of another task, to say so, or mistakes
        options = _parser(arguments, every_flag=True).parse_args(arguments)
    return _guarded(options)


def _parser(arguments: Sequence[str], every_flag: bool) -> argparse.ArgumentParser:
    """The parser of the verb that is asked for, with the flags of its task, or with those of all tasks."""
    parser = argparse.ArgumentParser(
        prog="steepest", description="Learn from big sparse data.", epilog="steepest VERB --help explains a verb."
    )
    parser.add_argument("--version", action=_Version)
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    wanted = next((a for a in arguments if not a.startswith("-")), None)
    for verb, help_text in VERBS.items():
        sub = verbs.add_parser(verb, help=help_text, description=help_text[0].upper() + help_text[1:] + ".")
        sub.add_argument("--debug", action="store_true", help="show the traceback of an error")
        if verb == wanted:  # the others' modules need not be imported
            module = importlib.import_module(f"steepest.cli.{verb}")
            sub.set_defaults(task_of_help=_task(arguments), every_flag=every_flag)
            module.add_arguments(sub)
            sub.set_defaults(run=module.run)
    return parser


def _task(arguments: Sequence[str]) -> str | None:
    """The task asked for, before anything else is known: help tells of its parameters alone."""
    parser = argparse.ArgumentParser(add_help=False, exit_on_error=False)
    parser.add_argument("--task", nargs="?")
    task: str | None = parser.parse_known_args(arguments)[0].task
    return task


def _guarded(options: argparse.Namespace) -> int:
    try:
        with warnings.catch_warnings():
            _say_warnings()
            warnings.simplefilter("ignore", NotConverged)  # the same sentence is a line on stderr already
            status = options.run(options)
        sys.stdout.flush()
        return int(status or 0)
    except BrokenPipeError:  # the reader of our output has gone; that is its right
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        print("steepest: interrupted; nothing was overwritten", file=sys.stderr)
        return 130
    except ValueError as error:
        if options.debug:
            raise
        from steepest import DataError, ParameterError

        known = isinstance(error, DataError | ParameterError)
        print(f"steepest: {_one_line(error)}", file=sys.stderr)
        return 2 if known else 1
    except (OSError, MemoryError) as error:
        if options.debug:
            raise
        print(f"steepest: {_one_line(error) or 'out of memory'}", file=sys.stderr)
        return 1


def _say_warnings() -> None:
    """Warnings about columns as one line each, without a place in the source; others as ever."""
    usual = warnings.showwarning

    def show(message: Any, category: Any, *where: Any, **more: Any) -> None:
        if category.__name__ == "ColumnWarning":
            print(f"steepest: {_one_line(message)}", file=sys.stderr)
        else:
            usual(message, category, *where, **more)

    warnings.showwarning = show


def _one_line(error: BaseException) -> str:
    """The message on one line, in the shell's words: flags instead of Python's arguments."""
    text = " ".join(str(error).split())
    for python, shell in IN_THE_SHELL.items():
        text = text.replace(python, shell)
    return text


class _Version(argparse.Action):
    """Prints the version, which is looked up only when it is asked for."""

    def __init__(self, option_strings: Sequence[str], dest: str) -> None:
        super().__init__(option_strings, dest, nargs=0, help="show the version and exit")

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from steepest import __version__

        print(f"steepest {__version__}")
        parser.exit()
