"""Predictions of a local model for the rows of a DataFrame, in the executors, through Arrow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from steepest.data.chunk import DataError
from steepest.data.ids import as_ids
from steepest.spark.frames import function_of, ship
from steepest.spark.hashed import bare
from steepest.spark.ratings import plain_ids, rating_columns
from steepest.spark.rows import BadRowError, Columns, columns_of


def predicted(model: Any, frame: Any, features: str | Sequence[str], prediction: str, probability: str | None) -> Any:
    """The DataFrame with the new columns."""
    from pyspark.sql import types

    if hasattr(model, "n_factors"):
        return _rated(model, frame, features, prediction)
    hasher = getattr(model, "hasher_", None)
    columns = columns_of(dict(frame.dtypes), features, None, None, hashes=hasher is not None)
    if columns.kind == "hashed":
        if hasher is None:
            raise DataError(f"features={features!r} holds strings, but this model was trained without a hasher")
        columns = Columns("hashed", columns.features, hasher=bare(hasher))
    else:
        columns = Columns(columns.kind, columns.features, n_features=model._learner.n_features)
    for name in (prediction, probability):
        if name is not None and name in frame.columns:
            raise DataError(f"the DataFrame has a column {name!r} already; give another name, or drop it")
    proba = probability is not None and model._task == "classify" and _has_proba(model)
    words = model._task == "classify" and model.classes_.dtype.kind not in "biuf"
    number = types.IntegerType() if model._task == "cluster" else types.DoubleType()
    fields = [types.StructField(prediction, types.StringType() if words else number)]
    if proba:
        fields.append(types.StructField(str(probability), types.ArrayType(types.DoubleType())))
    schema = types.StructType([*frame.schema.fields, *fields])
    shipped = ship(frame.sparkSession, model)
    work = Predict(shipped, columns, prediction, str(probability) if proba else None, words)
    return frame.mapInArrow(function_of(work), schema)


def _has_proba(model: Any) -> bool:
    return hasattr(model, "predict_proba") and not getattr(model._learner, "several_targets", False)


@dataclass(frozen=True, slots=True)
class Predict:
    """Batches with the new columns behind the others."""

    shipped: Any
    columns: Columns
    prediction: str
    probability: str | None
    words: bool

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Arrow batches of a partition to those of the answer."""
        import pyarrow as pa

        model = self.shipped.value
        for batch in batches:
            try:
                chunk = self.columns.read(batch.select(self.columns.names))
            except BadRowError as error:
                raise DataError(f"a row cannot be predicted ({error.shown}): {error.fault}") from None
            arrays, names = list(batch.columns), list(batch.schema.names)
            if model._task == "cluster":
                arrays.append(pa.array(model._centres().nearest(chunk)[0], pa.int32()))
                yield pa.RecordBatch.from_arrays(arrays, names=[*names, self.prediction])
                continue
            scores = model._scores(chunk)
            if model._task == "classify":
                decisions = model._decisions(scores)
                labels = model._labels_of(decisions)
                plain = labels.tolist() if self.words else labels.astype(np.float64)
                arrays.append(pa.array(plain, pa.string() if self.words else pa.float64()))
                if self.probability is not None:
                    shares = model._probabilities(decisions)
                    offsets = pa.array(np.arange(len(shares) + 1, dtype=np.int32) * shares.shape[1], pa.int32())
                    arrays.append(pa.ListArray.from_arrays(offsets, pa.array(shares.ravel(), pa.float64())))
            else:
                arrays.append(pa.array(np.asarray(model._means(scores), np.float64).ravel(), pa.float64()))
            names += [self.prediction] + ([] if self.probability is None else [self.probability])
            yield pa.RecordBatch.from_arrays(arrays, names=names)


def _rated(model: Any, frame: Any, features: str | Sequence[str], prediction: str) -> Any:
    """The DataFrame with predicted ratings."""
    from pyspark.sql import types

    columns = rating_columns(dict(frame.dtypes), features, None, None)
    if prediction in frame.columns:
        raise DataError(f"the DataFrame has a column {prediction!r} already; give another name, or drop it")
    schema = types.StructType([*frame.schema.fields, types.StructField(prediction, types.DoubleType())])
    work = Rate(ship(frame.sparkSession, model), columns.user, columns.item, prediction)
    return frame.mapInArrow(function_of(work), schema)


@dataclass(frozen=True, slots=True)
class Rate:
    """Batches with the predicted ratings behind the other columns."""

    shipped: Any
    user: str
    item: str
    prediction: str

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Arrow batches of a partition to those of the answer."""
        import pyarrow as pa

        model = self.shipped.value
        for batch in batches:
            if not batch.num_rows:
                continue
            users, items = (as_ids(plain_ids(batch.column(name)), name) for name in (self.user, self.item))
            ratings = np.asarray(model._link(model._scores(users, items)[0]), np.float64)
            names = [*batch.schema.names, self.prediction]
            yield pa.RecordBatch.from_arrays([*batch.columns, pa.array(ratings, pa.float64())], names=names)
