"""The types of the native module; every array is C-contiguous and on the processor.

Arrays of state are changed in place, so they must have the right type and layout already: nothing is converted.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Indices = npt.NDArray[np.int32]
Values = npt.NDArray[np.float32]
Floats = npt.NDArray[np.float64]
Table = npt.NDArray[Any]  # float32 or float64

isa: str

class Choices:
    def __init__(
        self,
        *,
        loss: int,
        loss_parameter: float,
        target_kind: int,
        schedule: int,
        eta0: float,
        power: float,
        decay: float,
        l1: float,
        l2: float,
        threshold: float,
        shrink_period: int,
        average: int,
        batch_size: int,
        bias_scale: float,
    ) -> None: ...

def linear_sgd(
    indptr: Ints,
    indices: Indices,
    values: Values,
    y: Floats,
    weight: Floats | None,
    order: Ints | None,
    v: Table,
    shrunk: Floats | None,
    average: Table | None,
    bias: Floats,
    bias_square: Floats,
    bias_average: Floats,
    clock: Floats,
    choices: Choices,
) -> tuple[int, int, float, float]: ...
def linear_adagrad(
    indptr: Ints,
    indices: Indices,
    values: Values,
    y: Floats,
    weight: Floats | None,
    order: Ints | None,
    v: Table,
    shrunk: Floats | None,
    average: Table | None,
    bias: Floats,
    bias_square: Floats,
    bias_average: Floats,
    clock: Floats,
    choices: Choices,
) -> tuple[int, int, float, float]: ...
def linear_ftrl(
    indptr: Ints,
    indices: Indices,
    values: Values,
    y: Floats,
    weight: Floats | None,
    order: Ints | None,
    v: Table,
    shrunk: Floats | None,
    average: Table | None,
    bias: Floats,
    bias_square: Floats,
    bias_average: Floats,
    clock: Floats,
    choices: Choices,
) -> tuple[int, int, float, float]: ...
def linear_scores(
    indptr: Ints,
    indices: Indices,
    values: Values,
    order: Ints | None,
    weights: Table,
    bias: Floats,
    scores: Floats,
    n_threads: int,
) -> int: ...
def linear_settle(
    v: Table,
    shrunk: Floats | None,
    clock: Floats,
    n_outputs: int,
    choices: Choices,
    average: Table | None = None,
) -> None: ...
def loss_value_slope(loss: int, parameter: float, scores: Floats, y: Floats) -> tuple[Floats, Floats]: ...
def parse_libsvm(
    buffers: list[Any],
    zero_based: bool,
    with_labels: bool,
    skip_bad: bool,
    n_features: int = ...,
) -> tuple[
    Ints, Indices, Values, Floats | None, Ints | None, int, list[int], list[int], list[tuple[int, int, int, int, str]]
]: ...
