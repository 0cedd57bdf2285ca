"""What a hasher's parameters may be."""

from __future__ import annotations

from typing import Any

import numpy as np

from steepest.data.chunk import DataError

WEIGHTINGS = ("auto", "count", "binary", "log", "tfidf")
NORMS = ("l2", None)
LONGEST_GRAM = 1 << 20
# Parameters that are whole numbers, with their bounds.
INTEGERS = (
    ("n_bits", 10, 30),
    ("copies", 1, 64),
    ("names", 0, 1 << 26),
    ("min_token", 1, 1 << 20),
    ("seed", -(1 << 63), (1 << 64) - 1),
)


def check_parameters(hasher: Any) -> None:
    """Refuses those that cannot work, by name and value."""
    for name, low, high in INTEGERS:
        value = getattr(hasher, name)
        if not isinstance(value, int | np.integer) or isinstance(value, bool) or not low <= int(value) <= high:
            raise DataError(f"{name}={value!r} must be a whole number from {low} to {high}")
    for name, known in (("weighting", WEIGHTINGS), ("norm", NORMS)):
        if getattr(hasher, name) not in known:
            raise DataError(f"{name}={getattr(hasher, name)!r} is unknown; choose one of {', '.join(map(repr, known))}")
    for name in ("ngrams", "char_ngrams"):
        bounds = getattr(hasher, name)
        if bounds is not None and not (_is_pair(bounds, int) and 1 <= bounds[0] <= bounds[1] <= LONGEST_GRAM):
            raise DataError(f"{name}={bounds!r} must be (low, high) with 1 <= low <= high <= {LONGEST_GRAM}, or None")
    if isinstance(hasher.stop_words, str):
        raise DataError(f"stop_words={hasher.stop_words!r} is one string; give a collection of words")
    if isinstance(hasher.cross, str) or not all(_is_pair(pair, str) for pair in hasher.cross):
        raise DataError(f"cross={hasher.cross!r} must hold pairs of column names, as in cross=[('text', 'user')]")
    if hasher.scale_numbers not in (True, False, "auto"):
        raise DataError(f"scale_numbers={hasher.scale_numbers!r} is unknown; give True, False or 'auto'")
    if hasher.n_jobs is not None and not isinstance(hasher.n_jobs, int | np.integer):
        raise DataError(f"n_jobs={hasher.n_jobs!r} must be a whole number, or None for all cores")


def _is_pair(value: Any, kind: type) -> bool:
    return isinstance(value, tuple | list) and len(value) == 2 and all(isinstance(part, kind) for part in value)
