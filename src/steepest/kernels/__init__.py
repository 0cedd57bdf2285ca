"""The kernel table: typed Python names for the native inner loops.

`steepest.kernels.reference` holds the slow, obvious NumPy definition of each; the tests compare the two.
"""

from __future__ import annotations

from steepest._native import (
    Choices,
    isa,
    linear_adagrad,
    linear_ftrl,
    linear_scores,
    linear_settle,
    linear_sgd,
    loss_value_slope,
    parse_libsvm,
)

__all__ = [
    "Choices",
    "isa",
    "linear_adagrad",
    "linear_ftrl",
    "linear_scores",
    "linear_settle",
    "linear_sgd",
    "loss_value_slope",
    "parse_libsvm",
]
