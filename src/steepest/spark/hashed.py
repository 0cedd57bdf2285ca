"""Text and categorical columns on Spark: the estimator's hasher, put to work in the executors.

The first rows, in the driver, show the kinds of columns, their encoding and the names of features. Where tf-idf
is asked for, one job counts the rows with each bucket first; all rows are then weighted by the counts of all, as
`Hasher.fit` and `transform` do (a stream in one process weighs each row by the rows before it).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from steepest.errors import DataError, ParameterError
from steepest.features.hasher import Hasher
from steepest.spark.frames import collect, mapped
from steepest.spark.messages import ANSWER, Answer, answer_rows, lines_of, partition_number, read_answers
from steepest.spark.rows import Columns

FIRST_ROWS = 1 << 13  # that the driver reads
IN_AN_EXECUTOR = {"names": 0, "n_jobs": 1}


def with_hasher(estimator: Any, frame: Any, columns: Columns) -> Columns:
    """The columns with a hasher that has learned from the data; the estimator gets one with names as well."""
    own: Hasher = estimator.own_hasher()
    if own.counts_words:
        raise ParameterError(
            "min_count and max_share are not counted on Spark; train without them, or name words by stop_words"
        )
    session, rows = frame.sparkSession, frame.select(*columns.features)
    first = collect(session, rows.limit(FIRST_ROWS), blobs=False)
    if first.num_rows == 0:
        raise DataError("the DataFrame holds no rows; nothing can be learned from it")
    own.survey(first)
    if own.learns:
        own.partial_fit(first)
    if own.counts_rows:
        _count(session, rows, own)
    return replace(columns, hasher=bare(own))


def bare(hasher: Hasher) -> Hasher:
    """A copy of the columns for executors: hashing in one thread, without names."""
    return hasher.like_this(IN_AN_EXECUTOR, counts=True)


def _count(session: Any, rows: Any, own: Hasher) -> None:
    fresh = own.like_this(IN_AN_EXECUTOR)
    table = collect(session, mapped(rows, partial(count_rows, fresh), ANSWER), blobs=False)
    counts, n_rows = np.zeros(own.n_features, np.uint32), 0
    for answer in read_answers(lines_of(table.to_batches())).values():
        counts[answer["buckets"]] += answer["counts"]
        n_rows += int(answer["rows"][0])
    own.document_counts_, own.n_documents_ = counts, n_rows


def count_rows(hasher: Hasher, batches: Iterator[Any]) -> Iterator[Any]:
    """Counts the rows of a partition that have each bucket."""
    for batch in batches:
        hasher.partial_fit(batch)
    if hasattr(hasher, "document_counts_"):
        found, n_rows = hasher.document_counts_, np.array([hasher.n_documents_])
        buckets = np.flatnonzero(found)
        answer: Answer = {"buckets": buckets, "counts": found[buckets], "rows": n_rows}
        yield from answer_rows(partition_number(), answer)
