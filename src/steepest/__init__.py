"""Learning from big sparse data: linear models by stochastic gradients, from one text file to a saved model."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

from steepest.data.chunk import Chunk, DataError
from steepest.data.source import Source, from_arrays
from steepest.engine.history import History
from steepest.estimator import ParameterError, load
from steepest.learners.base import Progress
from steepest.linear import LinearClassifier, LinearRegressor

try:
    __version__ = version("steepest")
except PackageNotFoundError:  # run from a source tree that was never installed
    __version__ = "0+unknown"

__all__ = [
    "Chunk",
    "DataError",
    "History",
    "LinearClassifier",
    "LinearRegressor",
    "ParameterError",
    "Progress",
    "Source",
    "__version__",
    "from_arrays",
    "load",
]
