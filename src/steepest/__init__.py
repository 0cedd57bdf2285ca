"""Learning from big sparse data: linear models by stochastic gradients, from one text file to a saved model.

Public names only. Each is imported when it is first used, so that a command which needs one room does not open all.
They are listed in `registry`, and below for type checkers and editors, to which "X as X" means that X is public.
"""
# ruff: noqa: I001, several names from one module in one line

from __future__ import annotations

import sys

from steepest import registry

TYPE_CHECKING = False  # that of `typing`, whose import would be the longest of a command that fails at once
if TYPE_CHECKING:
    from typing import Any

    from steepest.data.chunk import Chunk as Chunk
    from steepest.data.readers.libsvm import scan_libsvm as scan_libsvm
    from steepest.data.readers.ratings import from_ratings as from_ratings, scan_ratings as scan_ratings
    from steepest.data.readers.text import scan_text as scan_text
    from steepest.data.readers.vw import scan_vw as scan_vw
    from steepest.data.scan import scan as scan
    from steepest.data.source import Source as Source, from_arrays as from_arrays
    from steepest.data.splits import leave_k_out as leave_k_out, split_by_time as split_by_time
    from steepest.data.tables.columnar import scan_arrow as scan_arrow, scan_parquet as scan_parquet
    from steepest.data.tables.json_lines import scan_jsonl as scan_jsonl
    from steepest.data.tables.table_lines import scan_csv as scan_csv
    from steepest.engine.history import History as History
    from steepest.engine.loop import Monitor as Monitor
    from steepest.errors import (
        ColumnWarning as ColumnWarning,
        DataError as DataError,
        ModelFileError as ModelFileError,
        NotConverged as NotConverged,
        ParameterError as ParameterError,
    )
    from steepest.export.peers import (
        from_fasttext as from_fasttext,
        from_liblinear as from_liblinear,
        from_sklearn as from_sklearn,
    )
    from steepest.export.write import export_model as export_model
    from steepest.features.hasher import Hasher as Hasher
    from steepest.learners.base import Learner as Learner, Progress as Progress
    from steepest.learners.losses import losses as losses
    from steepest.learners.network.graph import Graph as Graph
    from steepest.models.base import load as load
    from steepest.models.factorization import MatrixFactorization as MatrixFactorization
    from steepest.models.fm import FMClassifier as FMClassifier, FMRegressor as FMRegressor
    from steepest.models.kmeans import KMeans as KMeans
    from steepest.models.linear import LinearClassifier as LinearClassifier, LinearRegressor as LinearRegressor
    from steepest.models.network import NetworkClassifier as NetworkClassifier, NetworkRegressor as NetworkRegressor
    from steepest.models.options import (
        LP as LP,
        Adam as Adam,
        EarlyStopping as EarlyStopping,
        ElasticNet as ElasticNet,
        EpsilonInsensitive as EpsilonInsensitive,
        Forgetting as Forgetting,
        Hashed as Hashed,
        Huber as Huber,
        Layers as Layers,
        Mixing as Mixing,
        Momentum as Momentum,
        Quantile as Quantile,
        Replicas as Replicas,
        Restarts as Restarts,
        Tolerance as Tolerance,
        Truncated as Truncated,
    )
    from steepest.models.radial import RBFClassifier as RBFClassifier, RBFRegressor as RBFRegressor
    from steepest.models.ranking import LinearRanker as LinearRanker
    from steepest.models.text import TextClassifier as TextClassifier
    from steepest.report import plots
    from steepest.select.cross_validate import cross_validate as cross_validate
    from steepest.select.path import regularization_path as regularization_path
    from steepest.select.race import race as race
    from steepest.select.tune import tune as tune
    from steepest.spark import fit_spark as fit_spark

    plot = plots
    __version__: str


def __getattr__(name: str) -> Any:
    if name == "__all__":
        return __dir__()
    if name == "__version__":
        from importlib.metadata import PackageNotFoundError, version

        try:
            return version("steepest")
        except PackageNotFoundError:  # run from a source tree that was never installed
            return "0+unknown"
    if name not in registry.PUBLIC:
        raise AttributeError(f"module 'steepest' has no attribute {name!r}", name=name, obj=sys.modules[__name__])
    value = globals()[name] = registry.find(name)
    return value


def __dir__() -> list[str]:
    return sorted(["__version__", *registry.PUBLIC])
