"""The command line: one module per verb. Results go to stdout, progress to stderr.

Errors are one sentence: exit status 2 for bad usage or input, 1 for failure, 130 after Ctrl-C, 143 after SIGTERM;
`--debug` shows the traceback. Help has two levels: `--help` has the common flags and examples, `--help-all` every flag.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import importlib
import os
import re
import signal
import sys
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from steepest.cli.parser import Parser, UsageError
from steepest.errors import NotConverged, is_of_the_system

VERBS = {
    "train": "train a model on data and save it",
    "evaluate": "measure the quality of a model on labelled data",
    "predict": "predict the rows of a file, or one text",
    "explain": "show what each feature of a row adds to its score",
    "inspect": "show what a model has learned",
    "recommend": "list the best items for users of a matrix factorization",
    "cv": "measure a model by cross-validation",
    "tune": "search for good parameters within a time limit",
    "race": "compare solvers on your data: objective and test error over time",
    "serve": "answer HTTP requests with a model, and optionally learn from them",
    "export": "write a model as C, Python or ONNX, which predicts without steepest",
    "convert": "write data in another format",
    "demo": "try the commands on the docstrings of this Python installation",
    "completion": "print a completion script for your shell",
}
GROUPS = {
    "start here": ("train", "evaluate", "predict", "explain", "inspect", "recommend"),
    "choose parameters": ("cv", "tune", "race"),
    "deploy and convert": ("serve", "export", "convert"),
    "more": ("demo", "completion"),
}
ALSO_CALLED = {
    **dict.fromkeys(("fit", "learn", "supervised"), "train"),
    **dict.fromkeys(("test", "score", "eval", "validate"), "evaluate"),
    **dict.fromkeys(("infer", "classify", "predict-prob"), "predict"),
    **dict.fromkeys(("show", "info", "describe", "dump"), "inspect"),
    **dict.fromkeys(("-v", "-V", "version"), "--version"),
}
EXAMPLES = (
    "steepest train reviews.csv -m reviews.steepest --label stars --holdout 0.1",
    "steepest evaluate reviews.steepest new.csv",
    'steepest predict reviews.steepest "a film to remember"',
)
FLAG = re.compile(r"--?[A-Za-z]")
HELP = {"-h", "--help", "--help-all"}

IN_THE_SHELL = {
    'pass on_bad_line="skip"': "give --on-bad-line skip",
    "pass zero_based=True": "give --zero-based",
    "pass label= with one of": "give --label with one of",
    "pass labels=[...]": "give --labels with commas between",
    "pass newlines_in_values=True": "give --newlines-in-values",
    "pass header=False": "give --no-header",
    "leave header=False out": "leave --no-header out",
    "pass delimiter=": "give --delimiter ",
    "give groups to fit, or a libsvm": "give a libsvm",
    "the hasher was made for": "the model was trained on",
    "but X has": "but these rows have",
    "give X in the same form as before": "give rows with the columns that the model was trained on",
    "give a file that steepest saved": "give a file that steepest saved; MODEL comes before DATA",
    "(kinds= in Python, --kind ": "(--kind ",
    "=category in the shell)": "=category)",
    ", or with_labels=False": "",
    ", or pass with_labels=False": "",
    "as in cross=[('text', 'user')]": "as in --cross text,user",
    "(low, high), such as (1, 2), with 1 <= low": "LOW,HIGH, such as 1,2, with 1 <= low",
}
# A parameter and its value in a message, as in loss='logit' or ngrams=(2, 1); not inside of quoted data.
PARAMETER = re.compile(r"(?<![\w'\"(])([a-zA-Z]\w*)=('[^']*'|[\w.+-]*\w|\[?\([^()]*\)\]?)?(?![\w(\[{'])")


def main(arguments: Sequence[str] | None = None, ready: Callable[[], object] = lambda: None) -> int:
    """Runs one verb and returns the exit status; calls `ready` when the modules of the verb are imported."""
    _open_streams()
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    if arguments[:1] == ["help"]:
        arguments = [*arguments[1:], "--help"]
    verb = next((a for a in arguments if not a.startswith("-")), None)
    try:
        status = _run(arguments, verb, ready)
        sys.stdout.flush()
        return status
    except BrokenPipeError:  # the reader of our output has gone; that is its right
        _drop_output()
        return 0
    except UsageError as error:
        print(f"steepest: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt as stop:
        return _interrupted(stop)
    except Exception as error:
        if isinstance(error.__cause__, KeyboardInterrupt):  # as Python puts it while a class is made in an import
            return _interrupted(error.__cause__)
        if "--debug" in arguments:
            raise
        if isinstance(error, OSError | ImportError) or is_of_the_system(error):  # also while modules are imported
            print(f"steepest: {_reason(error)}", file=sys.stderr)
            _drop_output()
            return 1
        what = f"{type(error).__name__}: {_one_line(error)}"
        print(f"steepest: {what}; this is a bug in steepest: report it with the output of --debug", file=sys.stderr)
        return 1


def _open_streams() -> None:
    """Replaces streams that were closed before we began: writing to the output fails, messages are lost."""
    if sys.stdout is None:
        sys.stdout = open(os.open(os.devnull, os.O_RDONLY), "w")  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115


def _interrupted(stop: KeyboardInterrupt) -> int:
    clean = "\r\x1b[K" if sys.stderr.isatty() else ""
    print(f"{clean}steepest: interrupted; nothing was overwritten", file=sys.stderr)
    return 128 + (stop.args[0] if stop.args else signal.SIGINT)


def _drop_output() -> None:
    """Drops what is still in a buffer and would fail once more when the process ends."""
    with contextlib.suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _run(arguments: list[str], verb: str | None, ready: Callable[[], object]) -> int:
    if verb is None and (not arguments or not HELP.isdisjoint(arguments)):
        print(overview())
        return 0
    if verb is None and "--version" in arguments:
        print(version())
        return 0
    try:
        options = parse(arguments, verb)
    except SystemExit as done:  # argparse has shown help
        return int(done.code or 0)
    ready()
    return _guarded(options)


def parse(arguments: Sequence[str], verb: str | None) -> argparse.Namespace:
    """Returns the options of a verb; flags that only another task has are known, too, to say so."""
    from steepest.parameters import did_you_mean

    if verb is None:
        other = ALSO_CALLED.get(arguments[0])
        near = f"did you mean {other!r}? " if other else did_you_mean(arguments[0], [*HELP, "--version"])
        raise UsageError(
            f"{arguments[0]} is not a flag of steepest itself; {near}name a command first: steepest train --help"
        )
    if verb not in VERBS:
        other = ALSO_CALLED.get(verb)
        near = f"did you mean {other!r}? " if other else did_you_mean(verb, VERBS)
        raise UsageError(f"{verb!r} is not a command; {near}the commands are {', '.join(VERBS)}")
    rest = list(arguments)
    rest.remove(verb)
    parser = parser_of(verb, rest, every_flag=not HELP.isdisjoint(rest))
    try:
        options, unknown = parser.parse_known_args(rest)
    except UsageError as error:  # a misspelt flag is the likeliest reason why something is missing
        whole = parser_of(verb, rest, every_flag=True)
        flags = {name for action in whole.arguments for name in action.option_strings}
        wrong = [a for a in rest if FLAG.match(a) and a.partition("=")[0] not in flags]
        raise (whole.unknown_argument(wrong[0]) if wrong else error) from None
    if unknown:
        whole = parser_of(verb, rest, every_flag=True)
        options, unknown = whole.parse_known_args(rest)
        if unknown:
            raise whole.unknown_argument(unknown[0])
    parser.refuse_repeated(rest)
    return options


def parser_of(verb: str, arguments: Sequence[str] = (), *, every_flag: bool) -> Parser:
    """Returns the parser of a verb, with the flags of the task in the arguments, or with those of all tasks."""
    module = importlib.import_module(f"steepest.cli.{verb}")
    parser = Parser(verb, VERBS[verb], getattr(module, "EXAMPLES", ()), getattr(module, "COMMON", None))
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
    parser.set_defaults(task_of_help=_task(arguments), every_flag=every_flag, command=["steepest", verb, *arguments])
    module.add_arguments(parser)
    parser.set_defaults(run=module.run)
    return parser


def overview() -> str:
    """Returns what `steepest` alone shows: the verbs in groups, and how to start."""
    width = max(map(len, VERBS)) + 2
    lines = ["steepest: machine learning on tables, texts and large sparse data.", "", "usage: steepest COMMAND ..."]
    for title, verbs in GROUPS.items():
        lines += ["", f"{title}:", *(f"  {verb:<{width}}{VERBS[verb]}" for verb in verbs)]
    lines += ["", "examples:", *(f"  {example}" for example in EXAMPLES)]
    lines += ["", "steepest COMMAND --help shows the common flags of a command, --help-all every flag;"]
    return "\n".join([*lines, "steepest --version shows the version, the build and the processor path."])


def version() -> str:
    """Returns version, build and processor path in one line."""
    import platform

    from steepest import __version__, kernels

    commit = f", commit {kernels.commit}" if kernels.commit else ""
    build = f"built by {kernels.compiler}{commit}"
    system = f"{platform.system()} {platform.machine()}, Python {platform.python_version()}"
    return f"steepest {__version__} ({build}; {kernels.instruction_set} kernels; {system})"


def _task(arguments: Sequence[str]) -> str | None:
    """Returns the task that is named, before anything else is known: help shows its parameters alone."""
    parser = argparse.ArgumentParser(add_help=False, exit_on_error=False, allow_abbrev=False)
    parser.add_argument("--task", nargs="?")
    task: str | None = parser.parse_known_args(list(arguments))[0].task
    return task


def _guarded(options: argparse.Namespace) -> int:
    try:
        with warnings.catch_warnings():
            _say_warnings()
            warnings.simplefilter("ignore", NotConverged)  # the same sentence is a line on stderr already
            return int(options.run(options) or 0)
    except ValueError as error:
        if options.debug:
            raise
        from steepest import DataError, ParameterError

        known = isinstance(error, DataError | ParameterError) and not is_of_the_system(error.__cause__)
        print(f"steepest: {_as_flags(_one_line(error), options)}", file=sys.stderr)
        return 2 if known else 1


def _say_warnings() -> None:
    """Prints warnings about columns as one line each, without a place in the source; others as usual."""
    usual = warnings.showwarning

    def show(message: Any, category: Any, *where: Any, **more: Any) -> None:
        if category.__name__ == "ColumnWarning":
            print(f"steepest: {_one_line(message)}", file=sys.stderr)
        else:
            usual(message, category, *where, **more)

    warnings.showwarning = show


def _reason(error: BaseException) -> str:
    """Why the system failed, in words."""
    said = _one_line(error)
    if isinstance(error, OSError) and error.errno != errno.ENOMEM:
        if error.filename is not None or not error.strerror:
            return said
        what = (
            "a file or the output cannot be read or written"
            if error.errno == errno.EIO
            else "the output cannot be written"
        )
        return f"{what} ({error.strerror})"
    if isinstance(error, ImportError):
        return said
    why = "out of memory" if isinstance(error, MemoryError | OSError) else "out of threads or memory"
    return f"{why}{f' ({said})' if said else ''}; raise the limits of this process, or close other programs"


def _one_line(error: BaseException) -> str:
    """Returns the message on one line, in the shell's words: flags instead of Python's arguments."""
    text = " ".join(str(error).split())
    for python, shell in IN_THE_SHELL.items():
        text = text.replace(python, shell)
    return text


def _as_flags(message: str, options: argparse.Namespace) -> str:
    """Returns parameters and their values as flags: --loss logit for loss='logit'; others stay as they are."""
    parser = parser_of(options.command[1], options.command[2:], every_flag=False)
    switches = {action.dest: action for action in parser.arguments if action.option_strings}

    def as_flag(found: re.Match[str]) -> str:
        action, value = switches.get(found[1]), re.sub(r"[\[\]()' ]|,(?=\))", "", found[2] or "")
        if action is None:
            return found[0]
        names = [name for name in action.option_strings if name.startswith("--") and not name.startswith("--no-")]
        flag = (names or action.option_strings)[-1]
        if action.nargs == 0 and value in ("True", "False"):
            return flag if value == "True" else f"--no-{flag[2:]}"
        return f"{flag} {value.lower() if value in ('True', 'False', 'None') else value}".strip()

    return PARAMETER.sub(as_flag, message)
