"""Bad lines and rows that were passed over, each counted once however often the source is read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

# Skipped rows that are remembered as examples.
EXAMPLES = 3
ON_BAD_LINE = ("error", "skip")

Example = tuple[tuple[int, ...], Any]  # a place in the data, and what becomes a sentence when someone asks for it


class Skipped:
    """Counts the lines or rows that were skipped, and keeps the faults of the first of them."""

    def __init__(self, n: int = 0, examples: Sequence[str] = ()) -> None:
        self._counts: dict[int, int] = {0: n} if n else {}  # by block or row; only those with bad ones are in it
        self._first: list[Example] = [((place,), example) for place, example in enumerate(examples)]

    @property
    def n(self) -> int:
        """The number of skipped lines or rows."""
        return sum(self._counts.values())

    @property
    def examples(self) -> list[str]:
        """The first three of them in the order of the data, as sentences."""
        return [str(sentence) for _, sentence in self._first]

    def add(self, part: int, n: int, examples: Sequence[Example]) -> None:
        """Counts the bad ones of a part of the data, a block or a row by its number, unless that was done before."""
        if part not in self._counts:
            self._counts[part] = n
            self._first = sorted([*self._first, *examples], key=lambda example: example[0])[:EXAMPLES]
