"""One table: which module holds a public name, which classes a model file may name, which class a task trains.

Strings only: a module is imported when a name is first used, so that a command that needs one room does not open all.
"""

from __future__ import annotations

from importlib import import_module

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

NAMES: dict[str, tuple[str, ...]] = {  # by module
    "data.chunk": ("Chunk",),
    "data.readers.libsvm": ("scan_libsvm",),
    "data.readers.ratings": ("from_ratings", "scan_ratings"),
    "data.readers.text": ("scan_text",),
    "data.readers.vw": ("scan_vw",),
    "data.scan": ("scan",),
    "data.source": ("Source", "from_arrays"),
    "data.splits": ("leave_k_out", "split_by_time"),
    "data.tables.columnar": ("scan_arrow", "scan_parquet"),
    "data.tables.json_lines": ("scan_jsonl",),
    "data.tables.table_lines": ("scan_csv",),
    "engine.history": ("History",),
    "engine.loop": ("Monitor",),
    "errors": ("ColumnWarning", "DataError", "ModelFileError", "NotConverged", "ParameterError"),
    "export.peers": ("from_fasttext", "from_liblinear", "from_sklearn"),
    "export.write": ("export_model",),
    "features.hasher": ("Hasher",),
    "learners.base": ("Learner", "Progress"),
    "learners.losses": ("losses",),
    "learners.network.graph": ("Graph",),
    "models.base": ("load",),
    "models.factorization": ("MatrixFactorization",),
    "models.fm": ("FMClassifier", "FMRegressor"),
    "models.kmeans": ("KMeans",),
    "models.linear": ("LinearClassifier", "LinearRegressor"),
    "models.network": ("NetworkClassifier", "NetworkRegressor"),
    "models.options": (
        "Adam",
        "EarlyStopping",
        "ElasticNet",
        "EpsilonInsensitive",
        "Forgetting",
        "Hashed",
        "Huber",
        "LP",
        "Layers",
        "Mixing",
        "Momentum",
        "Quantile",
        "Replicas",
        "Restarts",
        "Tolerance",
        "Truncated",
    ),
    "models.radial": ("RBFClassifier", "RBFRegressor"),
    "models.ranking": ("LinearRanker",),
    "models.text": ("TextClassifier",),
    "report.plots": ("plot",),
    "select.cross_validate": ("cross_validate",),
    "select.path": ("regularization_path",),
    "select.race": ("race",),
    "select.tune": ("tune",),
    "spark": ("fit_spark",),
}
PUBLIC = {name: module for module, names in NAMES.items() for name in names}

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
