"""Flags made from the estimators' signatures, so that Python and the shell cannot drift apart."""

from __future__ import annotations

import argparse
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from steepest.cli.parser import UsageError
from steepest.errors import ParameterError
from steepest.models.options import flat_signature, options_of

# Long-known short names for a few parameters.
ALIASES = {
    "n_jobs": "--jobs",
    "random_state": "--seed",
    "n_bits": "--bits",
    "memory_budget": "--memory",
    "n_clusters": "--clusters",
}
# Flags that may be repeated, with the form of each value.
REPEATED = {"cross": "A,B"}
# Pairs of whole numbers: what a single number n means, as (low, high), or None where it could mean several things.
PAIRS = {"ngrams": lambda n: (1, n), "char_ngrams": None}
# What stands for a value in the help, by the first word of a parameter's type in its docstring.
VALUES = {"int": "N", "float": "NUMBER", "bool": "true|false", "str": "TEXT", "(low,": "LOW,HIGH", "pairs": "A,B"}
VALUES["path"] = "FILE"
# In a docstring's list of parameters: names, what values they take, and the text below.
ENTRY = re.compile(r"^(\w[\w, ]*?)(?: : (.*))?\n((?: +.*\n?)*)", re.MULTILINE)
NO_DEFAULTS: Mapping[str, Any] = {}
# Parameters that have no meaning on the command line, or a flag of their own.
ELSEWHERE = (
    *("hasher", "verbose", "class_weight", "seed", "text", "categorical", "numeric", "by_column"),
    *("kinds", "ignore"),
)


def add_estimator_flags(
    parser: argparse.ArgumentParser,
    shown: Sequence[type[Any]],
    others: Sequence[type[Any]] = (),
    defaults: Mapping[str, Any] = NO_DEFAULTS,
    *,
    with_help: bool = True,
) -> None:
    """Adds one flag for every constructor parameter and every detail of a choice of any estimator.

    A flag that is not given leaves the estimator's own default.

    The help covers those shown, with defaults that are not Python's where the shell has its own; the flags of others
    are taken, too, to say what is wrong with them, and their docstrings fill gaps, since a name means the same in all.
    To read docstrings takes longer than all else here, so it is left out where nobody asks for help.
    """
    seen = set(ELSEWHERE)
    for estimator in (*shown, *others):
        about = descriptions([estimator, *others]) if with_help and estimator in shown else None
        group: Any = parser
        if about is not None:
            title = {"Hasher": "features of raw columns"}.get(estimator.__name__, "model")
            group = parser.add_argument_group(f"{title} (parameters of {estimator.__name__})")
        for name, default in flat_signature(estimator).items():
            if name not in seen:
                seen.add(name)
                _add_flag(group, name, default, about, defaults)


def flag_of(name: str) -> str:
    """Returns a parameter's flag, the short one if there is one."""
    return ALIASES.get(name, "--" + name.replace("_", "-"))


def descriptions(estimators: Sequence[type[Any]]) -> dict[str, tuple[str, str]]:
    """Returns (what stands for its value, first sentence) on each parameter, from the first docstring that has it."""
    found: dict[str, tuple[str, str]] = {}
    options = dict.fromkeys(kind for estimator in estimators for kind in options_of(estimator))
    for described in (*estimators, *options):
        flat = {field: name for name, field in described.flat_names().items()} if described in options else {}
        _, _, section = (inspect.getdoc(described) or "").partition("Parameters\n----------\n")
        section = re.split(r"\n\n\w+\n---", section)[0]
        for names, values, text in ENTRY.findall(section + "\n"):
            sentence = re.split(r"(?<=[\w)\"'`])\.(?:\s|$)|; see ", " ".join(text.split()))[0]
            known = [flat.get(name, name) for name in names.split(", ")]
            if sentence[1:2].islower():
                sentence = sentence[0].lower() + sentence[1:]
            sentence = re.sub(r"\((\w), (\w)\)", r"\1,\2", sentence)  # (1, 2) is 1,2 in the shell
            about = (_metavar(values, text), sentence.replace("`", "").replace('"', "'"))
            found |= {name: about for name in known if sentence and name not in found}
    return found


def _metavar(values: str, text: str) -> str:
    """What stands for a value: the words it may be, the rest of which the text names, or what kind of value it is."""
    words = list(dict.fromkeys(re.findall(r'"([^"]+)"', values + (text if "..." in values else ""))))
    first = values.split(",")[0].split(" ")[0]
    kind = VALUES.get(first) or VALUES.get(first + ",") or ("" if words else "VALUE")
    if len(words) > 1 or values.startswith("{"):
        return "{" + ",".join(words) + "}"
    return "|".join(part for part in (kind, *words) if part)


def _add_flag(
    group: Any, name: str, default: Any, about: dict[str, tuple[str, str]] | None, defaults: Mapping[str, Any]
) -> None:
    flag = "--" + name.replace("_", "-")
    names = [flag, ALIASES[name]] if name in ALIASES else [flag]
    help_text, metavar = argparse.SUPPRESS, "VALUE"
    if about is not None:
        metavar, sentence = about.get(name, ("VALUE", ""))
        usual = _written(defaults.get(name, default))
        off = f"; --no-{flag[2:]} turns it off" if default is True else ""
        help_text = f"{sentence} (default: {usual}{off})".strip().replace("%", "%%")
    unset = argparse.SUPPRESS  # a flag that is not given leaves no trace; None is a value (--penalty none)
    if isinstance(default, bool):
        group.add_argument(*names, dest=name, action=argparse.BooleanOptionalAction, default=unset, help=help_text)
    elif name in REPEATED:
        group.add_argument(
            *names, dest=name, action="append", type=_columns, default=unset, metavar=REPEATED[name], help=help_text
        )
    else:
        parse = _pair(flag, PAIRS[name]) if name in PAIRS else parse_value
        group.add_argument(*names, dest=name, type=parse, default=unset, metavar=metavar, help=help_text)


def _written(default: Any) -> str:
    """Returns a default as it is written on the command line."""
    if isinstance(default, tuple):
        return ",".join(map(_written, default)) or "none"
    plain = {None: "none", True: "on", False: "off"}
    return plain[default] if default is None or isinstance(default, bool) else str(default)


def _pair(flag: str, single: Callable[[int], tuple[int, int]] | None) -> Callable[[str], Any]:
    """Returns a parser of LOW,HIGH, or of one number where that has one meaning."""

    def parse(text: str) -> Any:
        value = parse_value(text)
        if isinstance(value, int) and not isinstance(value, bool):
            if single is None:
                raise UsageError(f"{flag} {text} could mean two things; write {flag} 1,{text} or {flag} {text},{text}")
            return single(value)
        return value

    return parse


def parse_value(text: str) -> Any:
    """Parses a whole number, a number, true, false, none, several of these with commas between, or else a text."""
    words = {"true": True, "false": False, "none": None}
    if text.lower() in words:
        return words[text.lower()]
    if "," in text:
        return tuple(parse_value(part) for part in text.split(","))
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _columns(text: str) -> tuple[str, ...]:
    return tuple(text.split(","))


def stop_words_of(value: Any) -> Any:
    """Parses --stop-words: a known list by its name, words with commas between them, or else a file of words."""
    from steepest.features.words import STOP_LISTS

    if value is None or value in STOP_LISTS:
        return value
    if isinstance(value, tuple):
        return [str(word) for word in value]
    try:
        return Path(str(value)).read_text(encoding="utf-8").split()
    except (OSError, UnicodeDecodeError) as error:
        known = ", ".join(STOP_LISTS)
        raise ParameterError(f"--stop-words {value}: {error}; name a text file of words, or {known}") from None


def estimator_arguments(options: argparse.Namespace, estimator: type[Any]) -> dict[str, Any]:
    """Returns those constructor arguments that were given as flags."""
    given = vars(options)
    found = {name: given[name] for name in flat_signature(estimator) if name in given}
    if "stop_words" in found:
        found["stop_words"] = stop_words_of(found["stop_words"])
    return found


def foreign_arguments(options: argparse.Namespace, estimator: type[Any], others: list[type[Any]]) -> list[str]:
    """Returns flags that were given but belong to another estimator."""
    known = set(flat_signature(estimator))
    if "hasher" in known:
        from steepest.features.hasher import Hasher

        known |= set(flat_signature(Hasher))
    foreign = {name for other in others for name in flat_signature(other)} - known
    return sorted(name for name in foreign if vars(options).get(name) is not None)
