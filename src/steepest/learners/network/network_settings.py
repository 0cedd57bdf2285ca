"""The choices that make a network: plain values that are in the model file."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from steepest.learners.settings import PlainSettings

SOLVERS = {"sgd": 0, "momentum": 1, "adagrad": 2, "adam": 3}
INITS = ("auto", "uniform", "glorot", "he", "zero")
SCHEDULES = ("auto", "constant", "linear", "invsqrt", "adaptive")


@dataclass(frozen=True, slots=True)
class NetworkSettings(PlainSettings):
    """The settings of a network learner: plain values, as in the model file."""

    graph: Mapping[str, Any]
    task: str = "classify"  # or "regress"
    loss: str = "softmax"
    loss_parameter: float = 0.0
    solver: str = "adam"
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
