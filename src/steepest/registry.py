"""One table: which module holds a public name, which classes a model file may name, which class a task trains.

Strings only: a module is imported when a name is first used, so that a command that needs one room does not open all.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

PUBLIC: dict[str, str] = {
    "Adam": "models.options",
    "Chunk": "data.chunk",
    "DataError": "errors",
    "EarlyStopping": "models.options",
    "ElasticNet": "models.options",
    "EpsilonInsensitive": "models.options",
    "FMClassifier": "models.fm",
    "FMRegressor": "models.fm",
    "Forgetting": "models.options",
    "Graph": "learners.network.graph",
    "Hashed": "models.options",
    "Hasher": "features.hasher",
    "History": "engine.history",
    "Huber": "models.options",
    "KMeans": "models.kmeans",
    "LP": "models.options",
    "Layers": "models.options",
    "Learner": "learners.base",
    "LinearClassifier": "models.linear",
    "LinearRanker": "models.ranking",
    "LinearRegressor": "models.linear",
    "MatrixFactorization": "models.factorization",
    "Mixing": "models.options",
    "ModelFileError": "errors",
    "Momentum": "models.options",
    "Monitor": "engine.loop",
    "NetworkClassifier": "models.network",
    "NetworkRegressor": "models.network",
    "NotConverged": "errors",
    "ColumnWarning": "errors",
    "ParameterError": "errors",
    "Progress": "learners.base",
    "Quantile": "models.options",
    "RBFClassifier": "models.radial",
    "RBFRegressor": "models.radial",
    "Replicas": "models.options",
    "Restarts": "models.options",
    "Source": "data.source",
    "TextClassifier": "models.text",
    "Tolerance": "models.options",
    "Truncated": "models.options",
    "cross_validate": "select.cross_validate",
    "export_model": "export.write",
    "fit_spark": "spark",
    "from_arrays": "data.source",
    "from_fasttext": "export.peers",
    "from_liblinear": "export.peers",
    "from_ratings": "data.readers.ratings",
    "from_sklearn": "export.peers",
    "leave_k_out": "data.splits",
    "load": "models.base",
    "losses": "learners.losses",
    "plot": "report.plots",
    "race": "select.race",
    "regularization_path": "select.path",
    "scan": "data.scan",
    "scan_arrow": "data.tables.columnar",
    "scan_csv": "data.tables.table_lines",
    "scan_jsonl": "data.tables.json_lines",
    "scan_libsvm": "data.readers.libsvm",
    "scan_parquet": "data.tables.columnar",
    "scan_ratings": "data.readers.ratings",
    "scan_text": "data.readers.text",
    "scan_vw": "data.readers.vw",
    "split_by_time": "data.splits",
    "tune": "select.tune",
}

# Public names that are whole modules.
MODULES = frozenset({"plot"})

# The classes that a model file may name; no other name in a file is ever imported.
MODELS = frozenset(
    {
        "FMClassifier",
        "FMRegressor",
        "KMeans",
        "LinearClassifier",
        "LinearRanker",
        "LinearRegressor",
        "MatrixFactorization",
        "NetworkClassifier",
        "NetworkRegressor",
        "RBFClassifier",
        "RBFRegressor",
        "TextClassifier",
    }
)


def find(name: str) -> Any:
    """The public object of this name."""
    module = import_module(f"steepest.{PUBLIC[name]}")
    return module if name in MODULES else getattr(module, name)
