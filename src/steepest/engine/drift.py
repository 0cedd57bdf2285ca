"""Noticing that a stream has changed: an adaptive window that drops its old part when old and new means differ.

ADWIN (Bifet and Gavaldà, SDM 2007): the window is kept as an exponential histogram, at most five buckets of 1, 2, 4 and
so on values, so its memory grows with the logarithm of its length. An old part of n0 values with mean m0 and a new part
of n1 with mean m1 are taken for different if |m0 - m1| > sqrt(2/m · v · ln(2/d')) + 2/(3m) · ln(2/d'), with 1/m = 1/n0
+ 1/n1, v the variance of the window and d' = delta / ln(n). Values must lie in [0, 1]; callers bound them.
Invariant: without a change the chance of a false alarm at any one check is about delta.
Left out: which direction the change has; a gauge of the mean shows it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

PER_SIZE = 5  # buckets of one size before two are joined
EVERY = 32  # values between checks, which cost a few microseconds
LEAST = 8  # values that each part of a cut needs


class Drift:
    """Change detection for one number: `add` takes values in [0, 1] and returns whether their mean has changed."""

    def __init__(self, delta: float = 1e-5) -> None:
        self.delta = delta
        self._levels: list[list[tuple[float, float]]] = [[]]  # by size 2^level: (sum, sum of squares), the newest last
        self.n = 0
        self.total = 0.0
        self.squares = 0.0
        self._unchecked = 0

    @property
    def mean(self) -> float:
        """The mean of the values in the window."""
        return self.total / self.n if self.n else math.nan

    def add(self, value: float) -> bool:
        """Adds one value; returns whether an old part of the window differed from the rest and was dropped."""
        value = min(max(value, 0.0), 1.0)
        self._levels[0].append((value, value * value))
        self.n += 1
        self.total += value
        self.squares += value * value
        self._join()
        self._unchecked += 1
        if self._unchecked < EVERY:
            return False
        self._unchecked = 0
        changed = False
        while self._differs():
            self._drop_oldest()
            changed = True
        return changed

    def _join(self) -> None:
        level = 0
        while len(self._levels[level]) > PER_SIZE:
            if level + 1 == len(self._levels):
                self._levels.append([])
            (a, aa), (b, bb), *rest = self._levels[level]
            self._levels[level] = rest
            level += 1
            self._levels[level].append((a + b, aa + bb))

    def _differs(self) -> bool:
        """Whether the window can be cut so that the means of the old and the new part differ."""
        n, total = self.n, self.total
        if n < 2 * LEAST:
            return False
        variance = max(self.squares / n - (total / n) ** 2, 0.0)
        log = math.log(2 * math.log(n) / self.delta)
        n0, sum0 = 0, 0.0
        for level in range(len(self._levels) - 1, -1, -1):
            for part, _ in self._levels[level]:
                n0 += 1 << level
                sum0 += part
                n1 = n - n0
                if n1 < LEAST:
                    return False
                if n0 >= LEAST:
                    inverse = 1 / n0 + 1 / n1
                    bound = math.sqrt(2 * inverse * variance * log) + 2 / 3 * inverse * log
                    if abs(sum0 / n0 - (total - sum0) / n1) > bound:
                        return True
        return False

    def _drop_oldest(self) -> None:
        level = len(self._levels) - 1
        part, squares = self._levels[level].pop(0)
        self.n -= 1 << level
        self.total -= part
        self.squares -= squares
        while len(self._levels) > 1 and not self._levels[-1]:
            self._levels.pop()

    def as_list(self) -> list[Any]:
        """Plain values for a model file."""
        return [self._levels, self.total, self.squares, self._unchecked]

    @classmethod
    def from_list(cls, values: Sequence[Any]) -> Drift:
        """Builds the detector from the values that `as_list` gave."""
        levels, total, squares, unchecked = values
        found = cls()
        found._levels = [[(float(a), float(b)) for a, b in level] for level in levels]
        found.n = sum(len(level) << place for place, level in enumerate(found._levels))
        found.total, found.squares, found._unchecked = float(total), float(squares), int(unchecked)
        numbers = [
            found.total,
            found.squares,
            *(number for level in found._levels for pair in level for number in pair),
        ]
        if not 1 <= len(levels) <= 64 or not all(map(math.isfinite, numbers)) or found._unchecked not in range(EVERY):
            raise ValueError("the window of a drift detector is not valid")
        return found
