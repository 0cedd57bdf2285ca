"""Sparse matrices from outside, checked before any library reads them.

SciPy trusts `indptr` and indices and follows them out of bounds: a damaged matrix ends in a crash or in gigabytes of
garbage. Every way by which a matrix enters comes through `checked_csr` or `checked_coo`. The check costs one pass over
the indices, which rows that go straight into a kernel are spared: kernels check them while they are in cache. Of the
values only the type is checked here.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from steepest.data.chunk import Array
from steepest.errors import DataError

REBUILD = "the matrix is damaged; build it again from its cells"


def checked_csr(X: Any, *, columns: bool = True) -> Any:
    """X in CSR form, safe to read; the same object if it is CSR already, with columns unchecked on request."""
    if getattr(X, "format", "csr") == "csr":
        check_sparse(X, columns=columns or np.asarray(X.indices).itemsize > 4)  # longer ones are cut for kernels
        return X
    check_sparse(X)
    found = X.tocsr()
    check_sparse(found)  # lists of lists are only seen whole once they are converted
    return found


def checked_coo(X: Any) -> Any:
    """X as rows, columns and values, safe to read."""
    check_sparse(X)
    found = X.tocoo()
    check_sparse(found)
    return found


def check_sparse(X: Any, *, columns: bool = True) -> None:
    """Refuses a sparse matrix whose arrays do not fit its shape, or each other."""
    if len(X.shape) != 2:
        raise DataError(f"X has {len(X.shape)} dimensions; give a matrix, one row per example")
    kind = getattr(X, "format", "csr")
    values = np.dtype(X.dtype if hasattr(X, "dtype") else X.data.dtype)  # those of a list of lists are lists
    if values.kind == "c":
        raise DataError("Complex data not supported: X holds complex numbers; give real ones")
    if values.kind not in "biuf":
        raise DataError(f"X holds values of type {values}; give numbers")
    if kind in ("csr", "csc", "coo") and np.ndim(X.data) != 1:
        raise DataError(f"X.data has {np.ndim(X.data)} dimensions; {REBUILD}")
    if kind in ("csr", "csc", "bsr"):
        _check_compressed(X, kind, columns)
    elif kind == "coo":
        _check_cells(X)
    elif kind == "dia" and (np.ndim(X.data) != 2 or len(X.offsets) != len(X.data)):
        raise DataError(f"X has {len(X.offsets)} offsets for {len(X.data)} diagonals; {REBUILD}")


def _check_compressed(X: Any, kind: str, columns: bool) -> None:
    shape = tuple(X.shape)
    if kind == "bsr":
        shape = tuple(n // max(size, 1) for n, size in zip(shape, X.data.shape[1:], strict=True))
    if kind == "csc":
        shape = shape[::-1]
    starts, indices, n_values = np.asarray(X.indptr), np.asarray(X.indices), len(X.data)
    if starts.ndim != 1 or indices.ndim != 1 or starts.dtype.kind not in "iu" or indices.dtype.kind not in "iu":
        raise DataError(f"X.indptr or X.indices is not an array of whole numbers; {REBUILD}")
    if len(starts) != shape[0] + 1:
        raise DataError(f"X.indptr has {len(starts)} numbers, but {shape[0] + 1} belong to shape {X.shape}; {REBUILD}")
    if starts[0] != 0:
        raise DataError(f"X.indptr starts at {starts[0]}, not at 0; {REBUILD}")
    if len(bad := np.flatnonzero(starts[1:] < starts[:-1])):
        at = int(bad[0])
        raise DataError(f"X.indptr falls from {starts[at]} to {starts[at + 1]} at place {at + 1}; {REBUILD}")
    if starts[-1] > min(len(indices), n_values):
        raise DataError(
            f"X.indptr ends at {starts[-1]}, but there are {len(indices)} indices and {n_values} values; {REBUILD}"
        )
    if columns:
        _check_range(indices[: int(starts[-1])], shape[1], "row" if kind == "csc" else "column")


def _check_cells(X: Any) -> None:
    rows, columns = np.asarray(X.row), np.asarray(X.col)
    if not len(rows) == len(columns) == len(X.data):
        raise DataError(f"X has {len(rows)} rows, {len(columns)} columns and {len(X.data)} values; {REBUILD}")
    _check_range(rows, X.shape[0], "row")
    _check_range(columns, X.shape[1], "column")


def _check_range(indices: Array, n: int, what: str) -> None:
    """Checks column indices in one pass: as an unsigned number, a negative index is a large one."""
    if not len(indices):
        return
    unsigned = np.ascontiguousarray(indices).view(f"u{indices.dtype.itemsize}")
    if int(unsigned.max()) >= n:
        worst = int(indices[int(unsigned.argmax())])
        raise DataError(f"X has the {what} index {worst}, which is outside 0..{n - 1}; {REBUILD}")
