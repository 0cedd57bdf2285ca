"""Learning from big sparse data: linear models by stochastic gradients, from one text file to a saved model.

Public names only. Each is imported when it is first used, so that a command which needs one room does not open all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from steepest import registry

if TYPE_CHECKING:
    from steepest.data.chunk import Chunk
    from steepest.data.readers.libsvm import scan_libsvm
    from steepest.data.readers.ratings import from_ratings, scan_ratings
    from steepest.data.readers.text import scan_text
    from steepest.data.readers.vw import scan_vw
    from steepest.data.scan import scan
    from steepest.data.source import Source, from_arrays
    from steepest.data.splits import leave_k_out, split_by_time
    from steepest.data.tables.columnar import scan_arrow, scan_parquet
    from steepest.data.tables.json_lines import scan_jsonl
    from steepest.data.tables.table_lines import scan_csv
    from steepest.engine.history import History
    from steepest.engine.loop import Monitor
    from steepest.errors import ColumnWarning, DataError, ModelFileError, NotConverged, ParameterError
    from steepest.export.peers import from_fasttext, from_liblinear, from_sklearn
    from steepest.export.write import export_model
    from steepest.features.hasher import Hasher
    from steepest.learners.base import Learner, Progress
    from steepest.learners.losses import losses
    from steepest.learners.network.graph import Graph
    from steepest.models.base import load
    from steepest.models.factorization import MatrixFactorization
    from steepest.models.fm import FMClassifier, FMRegressor
    from steepest.models.kmeans import KMeans
    from steepest.models.linear import LinearClassifier, LinearRegressor
    from steepest.models.network import NetworkClassifier, NetworkRegressor
    from steepest.models.options import (
        LP,
        Adam,
        EarlyStopping,
        ElasticNet,
        EpsilonInsensitive,
        Forgetting,
        Hashed,
        Huber,
        Layers,
        Mixing,
        Momentum,
        Quantile,
        Replicas,
        Restarts,
        Tolerance,
        Truncated,
    )
    from steepest.models.radial import RBFClassifier, RBFRegressor
    from steepest.models.ranking import LinearRanker
    from steepest.models.text import TextClassifier
    from steepest.report import plots as plot
    from steepest.select.cross_validate import cross_validate
    from steepest.select.path import regularization_path
    from steepest.select.race import race
    from steepest.select.tune import tune
    from steepest.spark import fit_spark

    __version__: str

__all__ = [
    "LP",
    "Adam",
    "Chunk",
    "ColumnWarning",
    "DataError",
    "EarlyStopping",
    "ElasticNet",
    "EpsilonInsensitive",
    "FMClassifier",
    "FMRegressor",
    "Forgetting",
    "Graph",
    "Hashed",
    "Hasher",
    "History",
    "Huber",
    "KMeans",
    "Layers",
    "Learner",
    "LinearClassifier",
    "LinearRanker",
    "LinearRegressor",
    "MatrixFactorization",
    "Mixing",
    "ModelFileError",
    "Momentum",
    "Monitor",
    "NetworkClassifier",
    "NetworkRegressor",
    "NotConverged",
    "ParameterError",
    "Progress",
    "Quantile",
    "RBFClassifier",
    "RBFRegressor",
    "Replicas",
    "Restarts",
    "Source",
    "TextClassifier",
    "Tolerance",
    "Truncated",
    "__version__",
    "cross_validate",
    "export_model",
    "fit_spark",
    "from_arrays",
    "from_fasttext",
    "from_liblinear",
    "from_ratings",
    "from_sklearn",
    "leave_k_out",
    "load",
    "losses",
    "plot",
    "race",
    "regularization_path",
    "scan",
    "scan_arrow",
    "scan_csv",
    "scan_jsonl",
    "scan_libsvm",
    "scan_parquet",
    "scan_ratings",
    "scan_text",
    "scan_vw",
    "split_by_time",
    "tune",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import PackageNotFoundError, version

        try:
            return version("steepest")
        except PackageNotFoundError:  # run from a source tree that was never installed
            return "0+unknown"
    if name not in registry.PUBLIC:
        raise AttributeError(f"module 'steepest' has no attribute {name!r}")
    value = globals()[name] = registry.find(name)
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
