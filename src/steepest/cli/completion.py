"""steepest completion bash|zsh|fish: a script that completes verbs, flags, and the values that flags take.

The script is made from the parsers, so it cannot drift from them, and it runs without starting Python.
"""

from __future__ import annotations

import argparse
import re
from dataclasses import dataclass

from steepest.cli.parser import Parser

FILES = re.compile("FILE|DIR|DATA")  # what stands for the name of a file in the help
SHELLS = ("bash", "zsh", "fish")
EXAMPLES = (
    "steepest completion bash > ~/.local/share/bash-completion/completions/steepest",
    'steepest completion zsh > "${fpath[1]}/_steepest"',
    "steepest completion fish > ~/.config/fish/completions/steepest.fish",
)


@dataclass(frozen=True, slots=True)
class Flag:
    """A flag as a shell knows it: its names, the words it may be followed by, and what it does."""

    names: tuple[str, ...]
    values: tuple[str, ...]
    takes_value: bool
    takes_file: bool
    about: str


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds all flags of the verb."""
    parser.add_argument("shell", choices=SHELLS, metavar="SHELL", help="bash, zsh or fish")


def run(options: argparse.Namespace) -> int:
    """Prints the script."""
    from steepest.cli import VERBS, parser_of

    verbs = {verb: flags_of(parser_of(verb, every_flag=True)) for verb in VERBS}
    arguments: dict[str, tuple[str, ...]] = {"completion": SHELLS}
    write = {"bash": _bash, "zsh": _zsh, "fish": _fish}[options.shell]
    print(write(dict(VERBS), verbs, arguments))
    return 0


def flags_of(parser: Parser) -> list[Flag]:
    """Returns the flags of a parser that help shows, those of every task included."""
    found = []
    for action in parser.arguments:
        if not action.option_strings:
            continue
        words = re.fullmatch(r"\{(.*)\}", str(action.metavar or ""))
        values = tuple(map(str, action.choices)) if action.choices else tuple(words[1].split(",")) if words else ()
        about = "" if action.help in (None, argparse.SUPPRESS) else str(action.help).replace("%%", "%")
        names, has_value, file = tuple(action.option_strings), action.nargs != 0, FILES.search(str(action.metavar))
        found.append(Flag(names, values, has_value, file is not None, about.split(" (default")[0]))
    return found


def _bash(about: dict[str, str], verbs: dict[str, list[Flag]], arguments: dict[str, tuple[str, ...]]) -> str:
    lines = [
        "# bash completion for steepest",
        "_steepest() {",
        '  local word="${COMP_WORDS[COMP_CWORD]}" before="${COMP_WORDS[COMP_CWORD-1]}" verb="${COMP_WORDS[1]}"',
        "  COMPREPLY=()",
        '  if [ "$COMP_CWORD" -eq 1 ]; then',
        f"    COMPREPLY=($(compgen -W '{' '.join(about)} --help --version' -- \"$word\"))",
        "    return",
        "  fi",
        '  case "$verb:$before" in',
    ]
    for verb, flags in verbs.items():
        for flag in flags:
            if flag.values:
                cases = "|".join(f"{verb}:{name}" for name in flag.names)
                lines.append(
                    f"    {cases}) COMPREPLY=($(compgen -W '{' '.join(flag.values)}' -- \"$word\")); return ;;"
                )
    lines += ["  esac", '  case "$verb" in']
    for verb, flags in verbs.items():
        names = " ".join(name for flag in flags for name in flag.names)
        words = arguments.get(verb)
        rest = f"compgen -W '{' '.join(words)}'" if words else "compgen -f"
        lines.append(
            f'    {verb}) case "$word" in -*) COMPREPLY=($(compgen -W \'{names}\' -- "$word")) ;; '
            f'*) COMPREPLY=($({rest} -- "$word")) ;; esac ;;'
        )
    return "\n".join([*lines, "  esac", "}", "complete -o filenames -F _steepest steepest"])


def _zsh(about: dict[str, str], verbs: dict[str, list[Flag]], arguments: dict[str, tuple[str, ...]]) -> str:
    lines = ["#compdef steepest", "_steepest() {", "  local -a verbs", "  verbs=("]
    lines += [f"    {_quoted(f'{verb}:{text}')}" for verb, text in about.items()]
    lines += ["  )", "  if (( CURRENT == 2 )); then", "    _describe verb verbs", "    return", "  fi"]
    lines += ["  local verb=$words[2]", "  shift words", "  (( CURRENT-- ))", "  case $verb in"]
    for verb, flags in verbs.items():
        specs = []
        for flag in flags:
            text = flag.about.translate(str.maketrans("[]", "()"))  # brackets end a description
            values = f"({' '.join(flag.values)})" if flag.values else "_files" if flag.takes_file else " "
            tail = f":value:{values}" if flag.takes_value else ""
            specs += [_quoted(f"{name}[{text}]{tail}") for name in flag.names]
        words = arguments.get(verb)
        specs.append(_quoted(f"*:argument:({' '.join(words)})" if words else "*:file:_files"))
        lines.append(f"    {verb}) _arguments " + " ".join(specs) + " ;;")
    lines += [
        "  esac",
        "}",
        "# The first call loads this file and must complete, too; a file that is sourced is only entered.",
    ]
    return "\n".join(
        [*lines, 'if [ "$funcstack[1]" = _steepest ]; then _steepest "$@"; else compdef _steepest steepest; fi']
    )


def _fish(about: dict[str, str], verbs: dict[str, list[Flag]], arguments: dict[str, tuple[str, ...]]) -> str:
    lines = ["# fish completion for steepest"]
    for verb, text in about.items():
        lines.append(f"complete -c steepest -n __fish_use_subcommand -f -a {verb} -d {_quoted(text)}")
    for verb, flags in verbs.items():
        start = f"complete -c steepest -n '__fish_seen_subcommand_from {verb}'"
        if words := arguments.get(verb):
            lines.append(f"{start} -f -a {_quoted(' '.join(words))}")
        for flag in flags:
            names = " ".join(f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}" for name in flag.names)
            values = f" -x -a {_quoted(' '.join(flag.values))}" if flag.values else " -x" if flag.takes_value else ""
            values = " -r" if flag.takes_file else values
            text = f" -d {_quoted(flag.about)}" if flag.about else ""
            lines.append(f"{start} {names}{values}{text}")
    return "\n".join(lines)


def _quoted(text: str) -> str:
    """Quotes one word for a shell; quotes inside are dropped, since fish writes them in another way."""
    return "'" + text.replace("\\", "\\\\").replace("'", "’") + "'"
