"""An Estimator and a Model in the sense of pyspark.ml, so that linear models sit in a Pipeline and a CrossValidator.

Every constructor argument of the estimator inside is a Param of the same name; a grid over `alpha` is
`ParamGridBuilder().addGrid(stage.alpha, [1e-6, 1e-5])`.
"""

from __future__ import annotations

from typing import Any

from pyspark.ml import Estimator, Model
from pyspark.ml.param import Param
from pyspark.ml.param.shared import HasFeaturesCol, HasLabelCol, HasPredictionCol, HasProbabilityCol, HasWeightCol

from steepest.spark import fit_spark, predict_spark

COLUMNS = ("featuresCol", "labelCol", "predictionCol", "probabilityCol", "weightCol")


class _Shared(HasFeaturesCol, HasLabelCol, HasPredictionCol, HasProbabilityCol, HasWeightCol):
    """The columns."""

    def _set_columns(self, columns: dict[str, Any]) -> None:
        unknown = columns.keys() - set(COLUMNS)
        if unknown:
            raise TypeError(f"{sorted(unknown)[0]!r} is unknown; choose from {', '.join(COLUMNS)}")
        self._set(**columns)


class SparkEstimator(Estimator["SparkModel"], _Shared):
    """A linear estimator as a stage: `fit` is `fit_spark`, with the options given.

    Parameters
    ----------
    estimator : LinearClassifier or LinearRegressor
        Copied at each fit, and left as it is.
    options : dict
        What `fit_spark` takes beside the columns: method, rounds, n_shards, order_by, n_features.
    features : names of columns, optional
        Where one featuresCol is not enough: two arrays, or several columns of text and numbers.
    """

    def __init__(
        self, estimator: Any, *, options: dict[str, Any] | None = None, features: Any = None, **columns: Any
    ) -> None:
        super().__init__()
        self.estimator, self.options, self.features = estimator, dict(options or {}), features
        for name in estimator.get_params(deep=False):
            setattr(self, name, Param(self, name, f"{name} of {type(estimator).__name__}"))
        self._params = None  # Params looks them up anew
        self._set_columns(columns)

    def _local(self) -> Any:
        """A fresh estimator with the parameters of the grid."""
        params = self.estimator.get_params(deep=False)
        chosen = {name: self.getOrDefault(name) for name in params if self.isSet(getattr(self, name))}
        return type(self.estimator)(**{**params, **chosen})

    def _fit(self, dataset: Any) -> SparkModel:
        weight = self.getWeightCol() if self.isSet(self.weightCol) else None
        features = self.getFeaturesCol() if self.features is None else self.features
        fitted = fit_spark(
            self._local(), dataset, features=features, label=self.getLabelCol(), weight=weight, **self.options
        )
        return self._copyValues(SparkModel(fitted, features))


class SparkModel(Model, _Shared):
    """A fitted stage: `transform` is `predict_spark`; `estimator` is the ordinary local one, to save and serve."""

    def __init__(self, estimator: Any = None, features: Any = None) -> None:
        super().__init__()
        self.estimator, self.features = estimator, features

    def copy(self, extra: Any = None) -> SparkModel:
        """A copy with the same estimator and other columns."""
        return self._copyValues(SparkModel(self.estimator, self.features), extra)

    def _transform(self, dataset: Any) -> Any:
        return predict_spark(
            self.estimator,
            dataset,
            features=self.features,
            prediction=self.getPredictionCol(),
            probability=self.getProbabilityCol(),
        )
