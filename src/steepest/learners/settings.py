"""Settings of learners as plain values for a file, and back."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any, Self

from steepest.learners.targets import weights_as_pairs, weights_from_pairs


class PlainSettings:
    """A base of dataclasses whose values can be written to a file."""

    __slots__ = ()

    def as_dict(self) -> dict[str, Any]:
        """Plain values for a file, which holds neither infinity nor keys that are not strings."""
        plain = asdict(self)  # type: ignore[call-overload]  # every subclass is a dataclass
        if "class_weight" in plain:
            plain["class_weight"] = weights_as_pairs(plain["class_weight"])
        return {name: None if value == math.inf else value for name, value in plain.items()}

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Self:
        """The settings that `as_dict` wrote."""
        values = dict(plain)
        if "class_weight" in values:
            values["class_weight"] = weights_from_pairs(values["class_weight"])
        for field in fields(cls):  # type: ignore[arg-type]
            if field.default == math.inf and values.get(field.name) is None:
                values[field.name] = math.inf
        return cls(**values)
