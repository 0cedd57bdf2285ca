"""The choices that make a factorization machine: plain values that are in the model file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from steepest.learners.settings import PlainSettings

MOST_FIELD_BITS = 31


@dataclass(frozen=True, slots=True)
class FMSettings(PlainSettings):
    """The choices that make the learner of a factorization machine."""

    task: str = "classify"  # or "regress"
    loss: str = "log"
    loss_parameter: float = 0.0
    rank: int = 8  # factors per feature, or per feature and field
    fields: bool = False  # field-aware
    field_bits: int = 0  # the field of a feature is its number without the last bits, unless fields are given
    eta0: float = 0.1
    l2: float = 0.0
    normalise: bool = False  # each row to length 1
    seed: int = 0
    class_weight: Any = None
