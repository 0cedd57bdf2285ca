"""The choices that make a network: plain values that stand in the model file."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from steepest.learners.base import weights_as_pairs, weights_from_pairs

RULES = {"sgd": 0, "momentum": 1, "adagrad": 2, "adam": 3}
INITS = ("auto", "uniform", "glorot", "he", "zero")
SCHEDULES = ("auto", "constant", "linear", "invsqrt", "adaptive")


@dataclass(frozen=True, slots=True)
class NetworkSettings:
    """The choices that make a network learner; plain values that stand in the model file."""

    graph: Mapping[str, Any]
    task: str = "classify"  # or "regress"
    loss: str = "softmax"
    loss_parameter: float = 0.0
    rule: str = "adam"
    momentum: float = 0.9
    schedule: str = "constant"
    eta0: float = 0.003
    planned_rows: float = math.inf  # over which schedule="linear" falls
    l1: float = 0.0
    l2: float = 0.0
    batch_size: int = 32
    biases: bool = True
    init: str = "glorot"
    seed: int = 0
    dtype: str = "float32"
    class_weight: Any = None

    def as_dict(self) -> dict[str, Any]:
        """Plain values for a file."""
        plain = asdict(self) | {"planned_rows": None if math.isinf(self.planned_rows) else self.planned_rows}
        plain["class_weight"] = weights_as_pairs(self.class_weight)
        return plain

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> NetworkSettings:
        """The settings that `as_dict` wrote."""
        values = dict(plain)
        values["planned_rows"] = math.inf if values["planned_rows"] is None else values["planned_rows"]
        values["class_weight"] = weights_from_pairs(values["class_weight"])
        return cls(**values)
