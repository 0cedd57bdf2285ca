"""Sparse rows in Parquet and Arrow files: lists of column numbers (from 0) and of values, beside label and weight.

The schema carries the mark `steepest.rows = sparse`, and `steepest.n_features` where that is known. A file with the
mark is read as sparse rows, whatever roles were named for its columns.
"""

from __future__ import annotations

import copy
from typing import Any, TypeVar

import numpy as np

from steepest.data.chunk import Chunk, DataError
from steepest.data.columnar import ColumnarSource
from steepest.data.raw import RawBatch
from steepest.data.roles import Roles, arrow

MARK, WIDTH = b"steepest.rows", b"steepest.n_features"
COLUMNS = ("indices", "values")
AnySource = TypeVar("AnySource", bound=ColumnarSource)


def mark(n_features: int | None) -> dict[bytes, bytes]:
    """What a file of sparse rows says of itself."""
    return {MARK: b"sparse"} | ({} if n_features is None else {WIDTH: str(n_features).encode()})


def to_columns(chunk: Chunk) -> dict[str, Any]:
    """The rows of a chunk that is packed, as columns of lists."""
    pa = arrow()
    offsets = pa.array(chunk.indptr, pa.int32())
    return {
        "indices": pa.ListArray.from_arrays(offsets, pa.array(chunk.indices, pa.int32())),
        "values": pa.ListArray.from_arrays(offsets, pa.array(chunk.values, pa.float32())),
    }


def read_sparse(source: AnySource) -> AnySource:
    """The source itself, or one of sparse rows if its first file is marked so."""
    try:
        with source.open(source.files[0]) as reader:
            schema = source.schema_of(reader)
    except (arrow().ArrowException, OSError):
        return source  # reading will tell
    metadata = schema.metadata or {}
    if metadata.get(MARK) != b"sparse":
        return source
    sparse = copy.copy(source)
    label = "label" if "label" in schema.names else None
    weight = "weight" if "weight" in schema.names else None
    sparse.roles = Roles(label, COLUMNS, (), (), weight, source.roles.with_labels and label is not None)
    sparse._settled = {**source._settled, "label": label}
    sparse.n_features = int(metadata[WIDTH]) if WIDTH in metadata else None
    sparse.encoder = _Rows(sparse.n_features)
    return sparse


class _Rows:
    """Columns of lists to chunks."""

    def __init__(self, n_features: int | None) -> None:
        self.n_features = n_features

    def __call__(self, batch: RawBatch) -> Chunk:
        compute = arrow("compute")
        columns = [batch.columns.column(name) for name in COLUMNS]
        lengths = [np.asarray(compute.fill_null(compute.list_value_length(column), 0)) for column in columns]
        if not np.array_equal(lengths[0], lengths[1]):
            raise DataError("a row has not as many indices as values; write the file anew")
        indptr = np.zeros(batch.n_rows + 1, np.int64)
        np.cumsum(lengths[0], out=indptr[1:])
        indices, values = (compute.list_flatten(column).to_numpy() for column in columns)
        if len(indices) and (indices.min() < 0 or indices.dtype.kind != "i"):
            raise DataError(f"the column index {indices.min()} is negative or no whole number; write the file anew")
        if not np.isfinite(values).all():
            raise DataError("a value is missing or not finite; write the file anew")
        n_features = self.n_features or int(indices.max(initial=-1)) + 1
        return Chunk(
            indptr,
            np.ascontiguousarray(indices, np.int32),
            np.ascontiguousarray(values, np.float32),
            n_features,
        )
