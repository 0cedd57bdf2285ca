"""Memory budgets: how many buckets, with or without averages, and which float width, fit into so many bytes.

Training holds, for each bucket and output, the solver's tables (a weight; a sum of squares beside it for adagrad and
ftrl; an average), a copy of them to return to if learning diverges, and the weights as they are shown:
    bytes = buckets (outputs * width * (2 tables + 1) + 16 if the 1-norm is paid lazily + 4 for tf-idf) + names
Left out: the rows that are being learned (a few megabytes), and what a caller copies out of the model.
The choices follow accuracies measured on imdb and 20newsgroups, see docs/memory.md; a feature gets one copy unless more
are asked for, because a second one gained nothing for sure and costs as much time again.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from steepest.errors import ParameterError
from steepest.learners.linear.linear_settings import ACCUMULATORS, ADAPTIVE, LinearSettings

LEAST_BITS, MOST_BITS = 10, 30
# Unknown data gets no more: larger tables are slow to visit, and few data fill them.
MOST_BITS_UNSEEN = 26
# Features a bucket: more room than ROOMY gains nothing, and from OVERFULL on room gains more than averaging does.
ROOMY, OVERFULL = 0.5, 32.0
NAMES_SHARE = 8  # names that nobody asked for take at most one part in so many
_UNITS = {"": 1, "b": 1}
_UNITS |= {f"{letter}{end}": 1000**power for power, letter in enumerate("kmgt", 1) for end in ("", "b")}
_UNITS |= {f"{letter}ib": 1024**power for power, letter in enumerate("kmgt", 1)}
_SIZE = re.compile(r"\s*(\d+\.?\d*(?:e\d+)?|\.\d+)\s*([a-z]*)\s*", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Need:
    """What must fit into the budget: settings, outputs, and the bytes of each bucket and of names beside the tables."""

    settings: LinearSettings
    n_outputs: int
    names_bytes: int = 0
    counts: bool = False  # rows with each bucket, for tf-idf

    def bucket_bytes(self) -> int:
        """The bytes that training holds for each bucket."""
        s = self.settings
        tables = ACCUMULATORS.get(s.solver, 1) + (s.average != "no")
        lazy = s.l1 > 0 and s.solver not in ADAPTIVE
        columns = 1 if s.multi_class == "hashed" else self.n_outputs
        return columns * np.dtype(s.dtype).itemsize * (2 * tables + 1) + 16 * lazy + 4 * self.counts

    def total_bytes(self, n_buckets: int) -> int:
        """The bytes for this many buckets."""
        return n_buckets * self.bucket_bytes() + self.names_bytes

    def largest_bits(self, budget: int) -> int:
        """The largest number of bits whose buckets fit; below LEAST_BITS if none do."""
        room = max(0, budget - self.names_bytes) // self.bucket_bytes()
        return min(MOST_BITS, room.bit_length() - 1)


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """What was chosen to fit the budget, and the reason as a sentence."""

    n_bits: int
    settings: LinearSettings
    n_outputs: int
    n_bytes: int
    reason: str


def parse_bytes(value: Any, name: str = "memory_budget") -> int:
    """Bytes from a number, or from a text such as 512MB, 1.5 GiB or 2e9; KB is 1000 bytes, KiB is 1024."""
    if isinstance(value, int | float | np.number) and not isinstance(value, bool) and math.isfinite(value):
        size = float(value)
    else:
        match = _SIZE.fullmatch(value) if isinstance(value, str) else None
        if match is None or match[2].lower() not in _UNITS:
            raise ParameterError(f"{name}={value!r} is not a size; give bytes, or a text such as '512MB' or '1.5GiB'")
        size = float(match[1]) * _UNITS[match[2].lower()]
    if size < 1:
        raise ParameterError(f"{name}={value!r} is not a size; give at least some kilobytes, such as '64KB'")
    return int(size)


def plan_hashing(
    budget: int,
    need: Need,
    *,
    n_bits: int | None,
    n_distinct: float | None,
    may_drop_average: bool,
) -> MemoryPlan:
    """Chooses the number of bits and all else that fits the budget, for hashed features.

    `n_bits` is what was requested, or None; `n_distinct` is how many different features the data has at most, or None
    if it cannot be seen; `may_drop_average` says that nobody asked for averaging.
    """
    choices = [need]
    if may_drop_average and need.settings.average != "no":
        choices.append(replace(need, settings=replace(need.settings, solver="sgd", average="no")))
    if need.settings.dtype == "float64":
        choices += [replace(n, settings=replace(n.settings, dtype="float32")) for n in choices]
    if n_bits is not None:
        chosen = _with_bits(budget, choices, n_bits)
        bits, why = n_bits, "as requested"
    else:
        chosen, bits, why = _choose_bits(budget, choices, n_distinct)
    return _plan(budget, chosen, need, bits, why)


def check_columns(budget: int, need: Need, n_features: int) -> MemoryPlan:
    """The plan for unhashed features, whose number is given; raises if they do not fit."""
    needed = need.total_bytes(n_features)
    if needed > budget:
        raise ParameterError(
            f"memory_budget={shown(budget)} is too small for {n_features:,} columns and {_outputs(need)}, which need "
            f"{shown(needed, up=True)}; raise it, or hash the features to fewer"
        )
    reason = f"memory_budget={shown(budget)}: {n_features:,} columns and {_outputs(need)} take {shown(needed)}"
    return MemoryPlan(0, need.settings, need.n_outputs, needed, reason)


def _with_bits(budget: int, choices: list[Need], n_bits: int) -> Need:
    for need in choices:
        if need.total_bytes(1 << n_bits) <= budget:
            return need
    least = choices[-1]
    fits = least.largest_bits(budget)
    most = f"n_bits={fits} at most fits" if fits >= LEAST_BITS else "no table fits"
    raise ParameterError(
        f"n_bits={n_bits} with {_outputs(least)} needs {shown(least.total_bytes(1 << n_bits), up=True)}, but "
        f"memory_budget={shown(budget)}, into which {most}; change one of the two"
    )


def _choose_bits(budget: int, choices: list[Need], n_distinct: float | None) -> tuple[Need, int, str]:
    enough_bits = MOST_BITS_UNSEEN
    if n_distinct is not None:
        enough_bits = min(max(LEAST_BITS, math.ceil(math.log2(max(n_distinct, 1) / ROOMY))), MOST_BITS)
    for need in choices:  # the more precise ones first, if they have room
        bits = need.largest_bits(budget)
        enough = bits >= LEAST_BITS and (n_distinct is None or n_distinct <= OVERFULL * (1 << bits))
        if need.settings.dtype == "float64":
            enough = bits >= enough_bits
        if bits >= enough_bits:
            if n_distinct is None:
                return need, enough_bits, "more are slow to visit"
            return need, enough_bits, f"enough for the {n_distinct:,.0f} distinct features at most that the data has"
        if enough:
            return need, bits, "the most that fit"
    need = choices[-1]
    bits = need.largest_bits(budget)
    if bits < LEAST_BITS:
        raise ParameterError(
            f"memory_budget={shown(budget)} is too small: the smallest table, n_bits={LEAST_BITS}, with "
            f"{_outputs(need)} needs {shown(need.total_bytes(1 << LEAST_BITS), up=True)}; give at least that"
        )
    return need, bits, "the most that fit"


def _plan(budget: int, chosen: Need, requested: Need, n_bits: int, why: str) -> MemoryPlan:
    s = chosen.settings
    n_bytes = chosen.total_bytes(1 << n_bits)
    changes = []
    if s.average != requested.settings.average:
        changes.append("without averaging, which would halve the buckets")
    if s.dtype != requested.settings.dtype:
        changes.append(f"instead of {requested.settings.dtype}, which would halve the buckets")
    reason = (
        f"memory_budget={shown(budget)}: n_bits={n_bits}, {1 << n_bits:,} buckets, {why}; with {_outputs(chosen)} in "
        f"{s.dtype}{''.join(f', {change}' for change in changes)}, training holds {shown(n_bytes)}"
    )
    return MemoryPlan(n_bits, s, chosen.n_outputs, n_bytes, reason)


def _outputs(need: Need) -> str:
    return f"{need.n_outputs:,} output{'s' if need.n_outputs > 1 else ''}"


def shown(n_bytes: int, *, up: bool = False) -> str:
    """A size for a message, with three digits; rounded up if it says what is needed."""
    for unit, size in (("GB", 10**9), ("MB", 10**6), ("KB", 10**3)):
        if n_bytes >= size:
            step = 10 ** max(0, 3 - len(str(n_bytes // size)))
            scaled = n_bytes * step / size
            return f"{(math.ceil(scaled) if up else round(scaled)) / step:g} {unit}"
    return f"{n_bytes} bytes"
