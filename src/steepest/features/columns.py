"""What is known of a column of a table: its kind, how it is encoded, and what people are shown of it.

A number x gives the feature "column" worth (x - centre) / scale. With knots k_0 < ... < k_m it also gives hats: between
two knots "column~k_i" is worth 1 - t and "column~k_i+1" is worth t, where t runs from 0 to 1; beyond the outermost
knot that one is worth 1. So hats always sum to 1, and a linear model over them is a line that bends at the knots.
Plain values only: columns are part of the header of a model file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from steepest.data.tables.columns import CATEGORY, LIST, NUMBER, TEXT

DATE, CONSTANT, ID, IGNORED = "date", "constant", "id", "ignored"
TIME = "time"  # of the rows; the column is ignored as a feature
USED = (TEXT, CATEGORY, NUMBER, LIST)  # kinds that give features, in the order of the kernel's numbers
KINDS = (*USED, DATE, TIME)  # that a user may name
MARKED = "marked"  # the format of numbers like $1,234.50
BAG = "bag"  # the format of texts that come as dicts of words and counts


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table, or a part of one, such as the month of a date.

    Attributes
    ----------
    name : str
        A derived column is called "source.part".
    kind : "text", "category", "number", "list", "date", "constant", "id" or "ignored"
        A date gives no features by itself, but columns for its parts. Constants, ids and ignored columns give none.
    distinct, missing, example
        In the sample: how many different values, the share of rows without one, and the first value.
    centre, scale : float
        Of a number: mean and standard deviation in the sample, without the outermost 0.1 % on either side.
    knots : tuple of float
        Of a number that gives hats beside its line.
    candidates : tuple of float
        The knots that the column has or could have.
    format : str
        "marked" for numbers such as $1,234.50; the order of the fields of a date, or of the times of rows ("ymd",
        "mdy", "dmy", "compact", "epoch", "epoch_ms"); "bag" for texts that come as dicts of words and counts; the
        separators of a list, or of a category whose parts count, too.
    source, part : str
        The column of the file that a derived column is made from, and which part of it.
    reason : str
        Why the column gives no features.
    note : str
        What else a user should know.
    named : bool
        Whether the user named its kind, so that a value of another kind is refused and not taken for missing.
    boolean : bool
        Whether the values of a category are true and false, which "true", "TRUE", True of Python and Arrow's booleans
        all write.
    """

    name: str
    kind: str
    distinct: int = 0
    missing: float = 0.0
    example: str = ""
    centre: float = 0.0
    scale: float = 1.0
    knots: tuple[float, ...] = ()
    candidates: tuple[float, ...] = ()
    format: str = ""
    source: str = ""
    part: str = ""
    reason: str = ""
    note: str = ""
    named: bool = False
    boolean: bool = False

    @property
    def used(self) -> bool:
        """Whether the column gives features."""
        return self.kind in USED

    @property
    def is_bag(self) -> bool:
        """Whether its texts come as dicts of words and counts."""
        return self.kind == TEXT and self.format == BAG

    @property
    def origin(self) -> str:
        """The column of the file that its values are read from."""
        return self.source or self.name

    @property
    def label(self) -> str:
        """The prefix of the names of this column's features."""
        return f"{self.name}=" if self.name else ""

    @property
    def knot_names(self) -> tuple[str, ...]:
        """The names of the hat features."""
        return tuple(f"{self.name}~{knot:.12g}" for knot in self.knots)

    @property
    def encoding(self) -> tuple[Any, ...]:
        """All fields that decide how values become features."""
        numbers = (self.centre, self.scale, *self.knots)
        found = self.name, self.kind, self.format, self.source, self.part, numbers
        return (*found, "boolean") if self.boolean else found

    def with_knots(self) -> Column:
        """A copy of the column with hat features, if its kind can have them."""
        return replace(self, knots=self.candidates)

    def as_dict(self) -> dict[str, Any]:
        """Plain values for a file; fields with their defaults are left out."""
        own = ((field, getattr(self, field.name)) for field in fields(self))
        given = ((field.name, value) for field, value in own if value != field.default)
        return {name: list(value) if isinstance(value, tuple) else value for name, value in given}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Column:
        """Builds the column from the values that `as_dict` gave."""
        known = {field.name for field in fields(cls)}
        own: dict[str, Any] = {name: value for name, value in values.items() if name in known}
        own |= {name: tuple(value) for name, value in own.items() if isinstance(value, list)}
        return cls(**own)
