"""Settings of learners as plain values for a file, and back."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any, Self

from steepest.learners.targets import weights_as_pairs, weights_from_pairs


class PlainSettings:
    """A base of settings dataclasses that can be written to a model file."""

    __slots__ = ()

    def as_dict(self) -> dict[str, Any]:
        """Plain values for a file, which holds neither infinity nor keys that are not strings."""
        plain = asdict(self)  # type: ignore[call-overload]  # every subclass is a dataclass
        if "class_weight" in plain:
            plain["class_weight"] = weights_as_pairs(plain["class_weight"])
        return {name: None if value == math.inf else value for name, value in plain.items()}

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Self:
        """Builds the settings from the values that `as_dict` gave."""
        values = dict(plain)
        if "class_weight" in values:
            values["class_weight"] = weights_from_pairs(values["class_weight"])
        for field in fields(cls):  # type: ignore[arg-type]
            if field.default == math.inf and values.get(field.name) is None:
                values[field.name] = math.inf
            elif field.name in values:
                _check_value(field.name, str(field.type), values[field.name])
        return cls(**values)


AT_LEAST_ONE = ("batch_size", "n_replicas", "sync_every", "truncate_every", "k", "n_starts", "init_size", "dim", "rank")
WORDS = {
    "task": ("classify", "regress"),
    "dtype": ("float32", "float64"),
    "votes": ("closed_form", "fixed"),
    "average": ("no", "uniform", "eta", "poly"),
    "multi_class": ("ovr", "softmax", "hashed"),
}
MOST = {"table_bits": 30, "n_replicas": 1 << 12, "dim": 1 << 16, "rank": 1 << 16, "negatives": 1 << 20, "seed": 1 << 64}


def _check_value(name: str, kind: str, value: Any) -> None:
    """Raises ValueError unless a value of a file has the type of its field and lies in its range."""
    if value is None and ("None" in kind or kind == "Any"):
        return
    if kind.startswith("int"):
        fits = type(value) is int and (name in AT_LEAST_ONE) <= value <= MOST.get(name, (1 << 31) - 1)
    elif kind.startswith("float"):
        fits = type(value) in (int, float) and abs(value) <= sys.float_info.max
    elif kind == "bool":
        fits = type(value) is bool
    elif kind == "str":
        fits = isinstance(value, str) and value in WORDS.get(name, (value,))
    elif name == "class_weight":
        fits = value == "balanced" or (
            isinstance(value, Mapping) and all(type(v) in (int, float) and 0 <= v <= 1e300 for v in value.values())
        )
    else:
        fits = isinstance(value, Mapping)
    if not fits:
        raise ValueError(f"the setting {name} is {value!r}"[:200])
