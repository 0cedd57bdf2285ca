"""A chart as plain data: lines with names over one pair of axes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

# Distinguished by people who see few colours as well (Okabe and Ito), and by their dashes.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#000000", "#e69f00", "#56b4e9", "#8a6d00", "#7f7f7f")
DASHES: tuple[tuple[int, ...], ...] = ((), (6, 2), (2, 2), (8, 2, 2, 2))
MARKERS = "osD^vPX*<>"


@dataclass(frozen=True, slots=True)
class Line:
    """Points that belong together; a reference is a grey line to compare the others with."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    reference: bool = False


@dataclass(frozen=True, slots=True)
class Chart:
    """Lines, the titles of the axes, and whether these are logarithmic."""

    title: str
    x_label: str
    y_label: str
    lines: Sequence[Line]
    log_x: bool = True
    log_y: bool = True
    floor: float | None = None  # smaller values are drawn there: zero has no logarithm
    joined: bool = True  # whether a line joins the points
    ceiling: float = math.inf  # larger values are not drawn, so that the others can be distinguished

    def points(self, line: Line) -> list[tuple[float, float]]:
        """The points of a line that can be drawn."""
        pairs = [(x, y if self.floor is None else max(y, self.floor)) for x, y in zip(line.x, line.y, strict=True)]
        return [
            (x, y)
            for x, y in pairs
            if math.isfinite(x) and math.isfinite(y) and y <= self.ceiling
            if (x > 0 or not self.log_x) and (y > 0 or not self.log_y)
        ]


def style(number: int) -> tuple[str, tuple[int, ...], str]:
    """Colour, dashes and marker of a line by its number."""
    dashes = DASHES[number // len(COLOURS) % len(DASHES)]
    return COLOURS[number % len(COLOURS)], dashes, MARKERS[number % len(MARKERS)]
