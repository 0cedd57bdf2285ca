"""Text and categorical columns on Spark: the estimator's hasher, put to work in the executors.

Kinds of columns and the size of numbers are told, and names of features learned, from the first rows, in the driver.
Where tf-idf is asked for, one job counts the rows with each bucket first; all rows are then weighted by the counts of
all, as `Hasher.fit` and `transform` do (a stream in one process weighs each row by the rows before it).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from steepest.data.chunk import DataError
from steepest.hashing import Hasher
from steepest.spark.blocks import ANSWER, answer_of, array_of
from steepest.spark.frames import collect, function_of
from steepest.spark.rows import Columns, raw_columns

FIRST_ROWS = 1 << 13  # that the driver looks at


def with_hasher(estimator: Any, frame: Any, columns: Columns) -> Columns:
    """The columns with a hasher that has learned what there is to learn; the estimator owns one with names, too."""
    own: Hasher = estimator._own_hasher()
    session = frame.sparkSession
    first = collect(session, frame.select(*columns.features).limit(FIRST_ROWS), blobs=False)
    if first.num_rows == 0:
        raise DataError("the DataFrame holds no rows; nothing can be learned from it")
    own.look(raw_columns(first, columns.features))
    if own.learns:
        own.partial_fit(raw_columns(first, columns.features))
    if own.counts_rows:
        _count(session, frame, columns, own)
    return replace(columns, hasher=bare(own))


def bare(hasher: Hasher) -> Hasher:
    """The same rows from one thread and without names: what an executor needs."""
    copy = Hasher(**{**hasher.get_params(deep=False), "names": 0, "n_jobs": 1})
    for name in ("columns_", "n_features_in_", "document_counts_", "n_documents_", "number_sizes_"):
        if hasattr(hasher, name):
            setattr(copy, name, getattr(hasher, name))
    return copy


def _count(session: Any, frame: Any, columns: Columns, own: Hasher) -> None:
    fresh = bare(own)
    for name in ("document_counts_", "n_documents_"):
        vars(fresh).pop(name, None)
    counting = frame.select(*columns.features).mapInArrow(function_of(Count(fresh, columns)), ANSWER)
    counts, n_rows = np.zeros(own.n_features, np.uint32), 0
    found: dict[int, dict[str, Any]] = {}
    for line in collect(session, counting, blobs=False).to_pylist():
        found.setdefault(line["shard"], {})[line["name"]] = array_of(line)
    for answer in found.values():
        counts[answer["buckets"]] += answer["counts"]
        n_rows += int(answer["rows"][0])
    own.document_counts_, own.n_documents_ = counts, n_rows


@dataclass(frozen=True, slots=True)
class Count:
    """A partition's rows with each bucket."""

    hasher: Hasher
    columns: Columns

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Arrow batches of a partition to those of the answer."""
        from pyspark import TaskContext

        context = TaskContext.get()
        part = context.partitionId() if context is not None else 0
        for batch in batches:
            self.hasher.partial_fit(raw_columns(batch, self.columns.features))
        if not hasattr(self.hasher, "document_counts_"):
            return
        buckets = np.flatnonzero(self.hasher.document_counts_)
        yield answer_of(part, "buckets", buckets)
        yield answer_of(part, "counts", self.hasher.document_counts_[buckets])
        yield answer_of(part, "rows", np.array([self.hasher.n_documents_]))
