"""Flags made from the estimators' signatures, so that Python and the shell cannot drift apart."""

from __future__ import annotations

import argparse
import inspect
from typing import Any

from steepest.estimator import Estimator

# Long-known short names for a few parameters.
ALIASES = {
    "n_jobs": "--jobs",
    "random_state": "--seed",
    "n_bits": "--bits",
    "memory_budget": "--memory",
    "n_clusters": "--clusters",
}
# Switches that have values beyond true and false, each with a flag of its own.
MORE_THAN_TRUE = {"early_stopping": ("refit",)}
# Parameters that have no meaning on the command line, or a flag of their own.
ELSEWHERE = ("hasher", "verbose", "class_weight", "seed", "text", "categorical", "numeric", "stop_words")


def add_estimator_flags(parser: argparse.ArgumentParser, estimators: list[type[Estimator]]) -> None:
    """One flag for every constructor parameter that any of the estimators has; no default means the estimator's own."""
    group = parser.add_argument_group("parameters of the model (as in Python)")
    seen: set[str] = set()
    for estimator in estimators:
        for name, parameter in inspect.signature(estimator).parameters.items():
            if name in seen or name in ELSEWHERE:
                continue
            seen.add(name)
            _add_flag(group, name, parameter.default)


def _add_flag(group: Any, name: str, default: Any) -> None:
    flag = "--" + name.replace("_", "-")
    names = [flag, ALIASES[name]] if name in ALIASES else [flag]
    help_text = f"default: {default}"
    unset = argparse.SUPPRESS  # a flag that is not given leaves no trace; None is a value (--penalty none)
    if isinstance(default, bool):
        group.add_argument(*names, dest=name, action=argparse.BooleanOptionalAction, default=unset, help=help_text)
        for value in MORE_THAN_TRUE.get(name, ()):
            group.add_argument(f"{flag}-{value}", dest=name, action="store_const", const=value, default=unset)
    else:
        group.add_argument(*names, dest=name, type=parse_value, default=unset, metavar="VALUE", help=help_text)


def parse_value(text: str) -> Any:
    """A whole number, a number, true, false, none, several of these with commas between, or else the text itself."""
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


def estimator_arguments(options: argparse.Namespace, estimator: type[Estimator]) -> dict[str, Any]:
    """Those constructor arguments that were given as flags."""
    given = vars(options)
    known = inspect.signature(estimator).parameters
    return {name: given[name] for name in known if name in given}


def foreign_arguments(options: argparse.Namespace, estimator: type[Estimator], others: list[type[Any]]) -> list[str]:
    """Flags that were given but belong to another estimator."""
    known = set(inspect.signature(estimator).parameters)
    if "hasher" in known:
        from steepest.hashing import Hasher

        known |= set(inspect.signature(Hasher).parameters)
    foreign = {name for other in others for name in inspect.signature(other).parameters} - known
    return sorted(name for name in foreign if vars(options).get(name) is not None)
