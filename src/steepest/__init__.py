"""Learning from big sparse data: linear models by stochastic gradients, from one text file to a saved model.

Public names only. Each is imported when it is first used, so that a command which needs one room does not open all.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from steepest.cluster import KMeans
    from steepest.data.chunk import Chunk, DataError
    from steepest.data.libsvm import scan_libsvm
    from steepest.data.parameters import ParameterError
    from steepest.data.ratings import from_ratings, scan_ratings
    from steepest.data.scan import scan
    from steepest.data.source import Source, from_arrays
    from steepest.data.table import scan_arrow, scan_csv, scan_jsonl, scan_parquet
    from steepest.data.text import scan_text
    from steepest.data.vw import scan_vw
    from steepest.engine.history import History
    from steepest.estimator import load
    from steepest.factorization import MatrixFactorization
    from steepest.hashing import Hasher
    from steepest.learners.base import Learner, Progress
    from steepest.learners.graph import Graph
    from steepest.linear import LinearClassifier, LinearRegressor
    from steepest.neural import NetworkClassifier, NetworkRegressor
    from steepest.racing import race
    from steepest.radial import RBFClassifier, RBFRegressor
    from steepest.ranking import LinearRanker
    from steepest.selection import cross_validate
    from steepest.spark import fit_spark
    from steepest.sparsity import path
    from steepest.text import TextClassifier
    from steepest.tuning import tune

    __version__: str

__all__ = [
    "Chunk",
    "DataError",
    "Graph",
    "Hasher",
    "History",
    "KMeans",
    "Learner",
    "LinearClassifier",
    "LinearRanker",
    "LinearRegressor",
    "MatrixFactorization",
    "NetworkClassifier",
    "NetworkRegressor",
    "ParameterError",
    "Progress",
    "RBFClassifier",
    "RBFRegressor",
    "Source",
    "TextClassifier",
    "__version__",
    "cross_validate",
    "fit_spark",
    "from_arrays",
    "from_ratings",
    "load",
    "path",
    "race",
    "scan",
    "scan_arrow",
    "scan_csv",
    "scan_jsonl",
    "scan_libsvm",
    "scan_parquet",
    "scan_ratings",
    "scan_text",
    "scan_vw",
    "tune",
]

_HOMES = {
    "Chunk": "data.chunk",
    "DataError": "data.chunk",
    "Graph": "learners.graph",
    "Hasher": "hashing",
    "History": "engine.history",
    "KMeans": "cluster",
    "Learner": "learners.base",
    "LinearClassifier": "linear",
    "LinearRanker": "ranking",
    "LinearRegressor": "linear",
    "MatrixFactorization": "factorization",
    "NetworkClassifier": "neural",
    "NetworkRegressor": "neural",
    "ParameterError": "data.parameters",
    "Progress": "learners.base",
    "RBFClassifier": "radial",
    "RBFRegressor": "radial",
    "Source": "data.source",
    "cross_validate": "selection",
    "fit_spark": "spark",
    "TextClassifier": "text",
    "from_arrays": "data.source",
    "from_ratings": "data.ratings",
    "load": "estimator",
    "path": "sparsity",
    "race": "racing",
    "scan": "data.scan",
    "scan_arrow": "data.table",
    "scan_csv": "data.table",
    "scan_jsonl": "data.table",
    "scan_libsvm": "data.libsvm",
    "scan_parquet": "data.table",
    "scan_ratings": "data.ratings",
    "scan_text": "data.text",
    "scan_vw": "data.vw",
    "tune": "tuning",
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import PackageNotFoundError, version

        try:
            return version("steepest")
        except PackageNotFoundError:  # run from a source tree that was never installed
            return "0+unknown"
    if name not in _HOMES:
        raise AttributeError(f"module 'steepest' has no attribute {name!r}")
    value = getattr(import_module(f"steepest.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
