"""A parser for one verb: help in two levels, and mistakes answered by one sentence with the way out."""

from __future__ import annotations

import argparse
import re
import shutil
from collections.abc import Collection, Sequence
from typing import Any, NoReturn

from steepest.parameters import did_you_mean

WIDEST_HELP = 100
# Flags that the short help shows for every verb that learns to compare.
LEARNING = (
    *("format", "limit", "task", "label", "text", "categorical", "numeric", "ignore", "header"),
    *("loss", "alpha", "epochs", "class_weight", "ngrams", "n_jobs", "random_state"),
)
# Flags of Vowpal Wabbit, fastText, scikit-learn and others, without hyphens, and what to write instead.
PEERS = {
    **dict.fromkeys(("d", "data", "input", "i"), "no flag: write the file alone, as in steepest train DATA -m MODEL"),
    **dict.fromkeys(("f", "finalregressor", "output", "o"), "-m FILE, where the model is saved"),
    **dict.fromkeys(("l", "lr", "learningrate", "eta", "stepsize"), "--eta0 NUMBER (default: calibrated on the data)"),
    **dict.fromkeys(("passes", "epoch", "maxiter", "niter", "iterations"), "--epochs N"),
    **dict.fromkeys(("q", "quadratic", "interactions", "cubic"), "--cross A,B for two columns or namespaces"),
    **dict.fromkeys(("b", "bitprecision", "bucket", "buckets"), "--bits N, for 2**N buckets"),
    **dict.fromkeys(("lossfunction", "objective"), "--loss hinge, log, squared, ..."),
    **dict.fromkeys(("l2", "lambda", "regparam", "c"), "--alpha NUMBER (with --penalty l2, the default)"),
    "l1": "--penalty l1 --alpha NUMBER",
    **dict.fromkeys(("ngram", "wordngrams", "ngramrange"), "--ngrams 1,2"),
    **dict.fromkeys(("minn", "maxn"), "--char-ngrams LOW,HIGH"),
    **dict.fromkeys(("thread", "threads", "nthreads", "j"), "--jobs N"),
    **dict.fromkeys(("t", "testonly", "test"), "a command of its own: steepest evaluate MODEL DATA"),
    **dict.fromkeys(("p", "predictions"), "a command of its own: steepest predict MODEL DATA -o FILE"),
    **dict.fromkeys(("invhash", "inverthash", "readablemodel"), "a command of its own: steepest inspect MODEL"),
    **dict.fromkeys(("sep", "delim"), "--delimiter LETTER"),
    **dict.fromkeys(("target", "labelcolumn", "targetcolumn"), "--label COLUMN"),
    **dict.fromkeys(("testsize", "validationsplit", "valid"), "--holdout SHARE"),
    **dict.fromkeys(("oaa", "ect", "csoaa"), "not needed: classes are found in the labels"),
    **dict.fromkeys(("seconds", "timeout"), "--budget SECONDS"),
    **dict.fromkeys(("verbose", "progress", "v"), "not needed: a terminal shows progress (--json prints every epoch)"),
    **dict.fromkeys(("autotunevalidation", "autotune", "autotuneduration"), "a command of its own: steepest tune DATA"),
}
SHOWN_OFF = ("header",)  # switches of which people need the --no- form
CLAUSES = re.compile(r"[;.] ")
INVALID = re.compile(r": invalid (\w+) value: (.*)")
NEEDED = re.compile(r"the following arguments are required: (.*)")


class UsageError(Exception):
    """The command is not well formed; the message says how it should be."""


class Parser(argparse.ArgumentParser):
    """The flags of one verb; `common` names those that the short help shows, None shows all of them."""

    def __init__(
        self, verb: str, about: str, examples: Sequence[str] = (), common: Collection[str] | None = None
    ) -> None:
        super().__init__(
            prog=f"steepest {verb}",
            description=about[0].upper() + about[1:] + ".",
            formatter_class=_Formatter,
            allow_abbrev=False,
            add_help=False,
        )
        self.verb, self.examples, self.common = verb, examples, common
        self.add_argument("-h", "--help", action="help", help="show the common flags and examples")
        self.add_argument("--help-all", action=_HelpAll, help="show every flag")

    @property
    def arguments(self) -> list[argparse.Action]:
        """Returns all arguments and flags."""
        return list(self._actions)

    def format_help(self) -> str:
        """Returns the short help."""
        return self._help(self.common)

    def help_all(self) -> str:
        """Returns help on every flag."""
        return self._help(None)

    def _help(self, common: Collection[str] | None) -> str:
        positional = [action for action in self._actions if not action.option_strings]
        needed = [action for action in self._actions if action.option_strings and action.required]
        formatter = self._get_formatter()
        usage = [formatter.short(action) for action in (*positional, *needed)]
        lines = [f"usage: {' '.join((self.prog, *usage, '[flags]'))}", "", str(self.description)]
        for group in self._action_groups:
            actions = group._group_actions  # noqa: SLF001, argparse has no other way to them
            shown = [a for a in actions if a.help != argparse.SUPPRESS and _is_shown(a, common)]
            if shown:
                formatter = _Formatter(self.prog, brief=common is not None)
                title = {"positional arguments": "arguments", "options": "flags"}.get(group.title or "", group.title)
                formatter.start_section(title)
                formatter.add_arguments(shown)
                formatter.end_section()
                lines += ["", formatter.format_help().strip("\n")]
        if self.examples:
            lines += ["", "examples:", *(f"  {example}" for example in self.examples)]
        hidden = any(a.help != argparse.SUPPRESS and not _is_shown(a, common) for a in self._actions)
        if hidden:
            lines += ["", f"{self.prog} --help-all shows every flag."]
        if self.epilog:
            lines += ["", self.epilog]
        return "\n".join(lines) + "\n"

    def error(self, message: str) -> NoReturn:
        """Raises with one sentence, without the usage that argparse prints."""
        missing = NEEDED.match(message)
        if missing:
            formatter, names = self._get_formatter(), missing[1].split(", ")
            called = {"/".join(a.option_strings) or str(a.metavar or a.dest): a for a in self._actions}
            shown = [formatter.short(called[name]) if name in called else name for name in names]
            example = f"; for example: {self.examples[0]}" if self.examples else ""
            raise UsageError(f"{self.verb} needs {' and '.join(shown)}{example}")
        if message.endswith(": expected one argument"):
            flag = message.removeprefix("argument ").partition(":")[0]
            action = next(a for a in self._actions if "/".join(a.option_strings) == flag)
            value = self._get_formatter().short(action)
            raise UsageError(f"{flag} needs a value: {value}; steepest {self.verb} --help explains it")
        message = INVALID.sub(r": \2 is not a \1", message.removeprefix("argument "))
        raise UsageError(
            f"{message.replace(' a int', ' a whole number').replace(' a float', ' a number')}; "
            f"see steepest {self.verb} --help"
        )

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            choices = list(map(str, action.choices))
            near = did_you_mean(value, choices)
            flag = action.option_strings[-1] if action.option_strings else str(action.metavar or action.dest)
            raise UsageError(f"{flag} {value} is unknown; {near}choose one of {', '.join(choices)}")

    def refuse_repeated(self, words: Sequence[str]) -> None:
        """Refuses a flag that is given twice with different values, of which only the last would count."""
        for action in self._actions:
            if not action.option_strings or action.nargs or type(action) is not argparse._StoreAction:  # noqa: SLF001
                continue
            values = []
            for place, word in enumerate(words):
                name, equals, value = word.partition("=")
                if name in action.option_strings:
                    values.append(value if equals else words[place + 1])
            if len(set(values)) > 1:
                flag = action.option_strings[-1]
                raise UsageError(f"{flag} is given {len(values)} times, as {' and '.join(values)}; give it once")

    def unknown_argument(self, argument: str) -> UsageError:
        """Returns the error for a flag that this verb does not have."""
        if not argument.startswith("-"):
            return UsageError(f"{argument!r} is one argument too many; quote names and texts with spaces")
        flag = argument.partition("=")[0]
        peer = PEERS.get(flag.lstrip("-").replace("-", "").replace("_", "").lower())
        if peer is not None:
            return UsageError(f"{flag} is not a flag of {self.verb}; here it is {peer}")
        near = did_you_mean(flag, [name for a in self._actions for name in a.option_strings])
        return UsageError(
            f"{flag} is not a flag of {self.verb}; {near}steepest {self.verb} --help-all shows every flag"
        )

    def _get_formatter(self) -> _Formatter:
        return _Formatter(self.prog)


class _HelpAll(argparse.Action):
    """Prints every flag."""

    def __init__(self, option_strings: Sequence[str], dest: str, help: str) -> None:
        super().__init__(option_strings, argparse.SUPPRESS, nargs=0, help=help, default=argparse.SUPPRESS)

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        assert isinstance(parser, Parser)
        print(parser.help_all(), end="")
        parser.exit()


class _Formatter(argparse.HelpFormatter):
    """Flags on the left, what they do on the right, as wide as the terminal up to a point."""

    def __init__(self, prog: str, *, brief: bool = False) -> None:
        width = min(shutil.get_terminal_size((WIDEST_HELP, 24)).columns, WIDEST_HELP)
        super().__init__(prog, max_help_position=30, width=width)
        self.brief = brief

    def _expand_help(self, action: argparse.Action) -> str:
        """Returns what a flag does; in the short help its first clause, and the default."""
        text = super()._expand_help(action)
        does, default, value = text.partition(" (default")
        return CLAUSES.split(does)[0] + default + value if self.brief else text

    def short(self, action: argparse.Action) -> str:
        """Returns an argument as it is written in a command."""
        value = self._format_args(action, str(action.metavar or action.dest.upper()))
        return f"{action.option_strings[0]} {value}".strip() if action.option_strings else value.split(" [")[0]

    def _format_action_invocation(self, action: argparse.Action) -> str:
        """Returns -m, --model FILE instead of -m FILE, --model FILE; a switch by one of its two forms."""
        if not action.option_strings:
            return super()._format_action_invocation(action)
        off = action.dest in SHOWN_OFF or len(action.option_strings) == 1
        names = [name for name in action.option_strings if off or not name.startswith("--no-")]
        names = names[-1:] if action.dest in SHOWN_OFF else names
        value = self._format_args(action, str(action.metavar or action.dest.upper())) if action.nargs != 0 else ""
        return f"{', '.join(names)} {value}".strip()


def _is_shown(action: argparse.Action, common: Collection[str] | None) -> bool:
    return common is None or not action.option_strings or action.dest in common or "--help-all" in action.option_strings
