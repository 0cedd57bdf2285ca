"""Predictions of a local model for the rows of a DataFrame, in the executors, through Arrow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from steepest.data.readers.ratings import ratings_chunk
from steepest.data.source import ArraySource
from steepest.errors import DataError
from steepest.spark.frames import mapped, ship
from steepest.spark.hashed import bare
from steepest.spark.ratings import RatingColumns, ids_of, rating_columns
from steepest.spark.rows import BadRowError, Columns, columns_of


def predicted(model: Any, frame: Any, features: str | Sequence[str], prediction: str, probability: str | None) -> Any:
    """The DataFrame with the new columns."""
    from pyspark.sql import types

    rates, classifies = model.task == "rate", model.kind == "classifier"
    columns = rating_columns(dict(frame.dtypes), features) if rates else _row_columns(model, frame, features)
    words = classifies and model.classes_.dtype.kind not in "biuf"
    number = types.IntegerType() if model.task == "cluster" else types.DoubleType()
    fields = [types.StructField(prediction, types.StringType() if words else number)]
    if probability is not None and classifies and _has_proba(model):
        fields.append(types.StructField(probability, types.ArrayType(types.DoubleType())))
    names = [field.name for field in fields]
    for name in names:
        if name in frame.columns:
            raise DataError(f"the DataFrame has a column {name!r} already; give another name, or drop it")
    schema = types.StructType([*frame.schema.fields, *fields])
    return mapped(frame, Predict(ship(frame.sparkSession, model), columns, names, words), schema)


def _row_columns(model: Any, frame: Any, features: str | Sequence[str]) -> Columns:
    hasher = getattr(model, "hasher_", None)
    columns = columns_of(dict(frame.dtypes), features, None, None, hashes=hasher is not None)
    if columns.kind != "hashed":
        return Columns(columns.kind, columns.features, n_features=model.learner_.n_features)
    if hasher is None:
        raise DataError(f"features={features!r} holds strings, but this model was trained without a hasher")
    return Columns("hashed", columns.features, hasher=bare(hasher))


def _has_proba(model: Any) -> bool:
    return hasattr(model, "predict_proba") and not getattr(model.learner_, "several_targets", False)


@dataclass(frozen=True, slots=True)
class Predict:
    """Batches with the new columns behind the others."""

    shipped: Any
    columns: Columns | RatingColumns
    names: Sequence[str]  # of the prediction, and of the probabilities if there are any
    words: bool  # whether classes are words

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Arrow batches of a partition to those of the answer."""
        import pyarrow as pa

        for batch in batches:
            if batch.num_rows:
                arrays = [*batch.columns, *self._answers(batch)]
                yield pa.RecordBatch.from_arrays(arrays, names=[*batch.schema.names, *self.names])

    def _answers(self, batch: Any) -> list[Any]:
        """The new columns."""
        import pyarrow as pa

        model = self.shipped.value
        if isinstance(self.columns, RatingColumns):
            users, items = (ids_of(batch.column(name), name) for name in (self.columns.user, self.columns.item))
            return [pa.array(np.asarray(model.predict(ratings_chunk(users, items)), np.float64))]
        try:
            chunk = self.columns.read(batch.select(self.columns.names))
        except BadRowError as error:
            raise DataError(f"a row cannot be predicted ({error.shown}): {error.fault}") from None
        if model.kind != "classifier":
            answers = np.concatenate(list(model.predict_stream(ArraySource(chunk))))
            return [pa.array(answers if model.task == "cluster" else np.asarray(answers, np.float64).ravel())]
        decisions = model.decisions_of(chunk)
        labels = model.labels_of(decisions)
        found = [pa.array(labels.tolist(), pa.string()) if self.words else pa.array(labels.astype(np.float64))]
        if len(self.names) > 1:
            shares = model.probabilities_of(decisions)
            offsets = pa.array(np.arange(len(shares) + 1, dtype=np.int32) * shares.shape[1])
            found.append(pa.ListArray.from_arrays(offsets, pa.array(shares.ravel(), pa.float64())))
        return found
