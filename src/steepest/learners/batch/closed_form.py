"""Ridge regression in closed form: the normal equations by Cholesky, in the smaller of two shapes.

Primal, d x d: (X'CX / W + l2 I) w = X'Cy / W with a column of ones for the bias. Dual, n x n, for rows scaled by the
root of their weight and centred if there is a bias: w = X' (XX' + W l2 I)^-1 y (Saunders, Gammerman, Vovk, 1998). The
cheaper one is chosen. A singular system without a penalty gets the shortest of its solutions.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from steepest.data.chunk import Array, Chunk, concatenate
from steepest.errors import DataError
from steepest.learners.batch.objective import Objective
from steepest.learners.batch.solvers import SolverOptions, Step
from steepest.learners.resumable import Resumable
from steepest.learners.targets import ONE_VS_REST, refuse_bad_rows

LARGEST_SIDE = 20_000  # of the matrix: 3 GB
BLOCK_ROWS = 4096  # of which products are added up: a fixed number, so that chunks do not matter
BLOCK_COLUMNS = 2048  # of a matrix that are factored at once
DENSE_SHARE = 0.1  # non-zeros from which a dense product is faster
SMALLEST_EIGENVALUE = 1e-12  # as a share of the largest; below, a direction counts as empty


class ClosedForm(Resumable):
    """Solves the least-squares system in one step."""

    def __init__(self, objective: Objective, options: SolverOptions) -> None:
        self.objective = objective
        self.w = np.zeros(objective.shape)
        self.note = ""
        n, d = objective.data.n_rows, objective.n_features
        self.dual = n < d
        side = min(n, d)
        if side > LARGEST_SIDE:
            raise DataError(
                f"solver='closed_form' needs a matrix of {side:,} x {side:,} numbers for {n:,} rows, {d:,} features; "
                "use solver='cg'"
            )

    def step(self) -> Step:
        """Builds the system and solves it."""
        self.w = self._dual() if self.dual else self._primal()
        value, gradient = self.objective.evaluate(self.w)
        if not np.isfinite(self.w).all():
            raise DataError("the normal equations overflow; scale the features to about one")
        return Step(value, float(np.abs(gradient).max(initial=0.0)), 1.0, 1.0, f"solved in closed form{self.note}")

    def _primal(self) -> Array:
        o = self.objective
        side = o.n_features + 1
        gram, right = np.zeros((side, side)), np.zeros(o.shape)
        for chunk in self._blocks():
            X, y, weight = self._matrix(chunk), self._targets(chunk), self._weights(chunk)
            right += np.asarray(X.T @ (weight[:, None] * y))
            gram += _gram(X, weight)
        gram /= o.weight_sum
        right /= o.weight_sum
        gram[np.arange(side - 1), np.arange(side - 1)] += o.l2
        if o.fit_intercept:
            return self._solve(gram, right)
        w = np.zeros(o.shape)
        w[:-1] = self._solve(gram[:-1, :-1], right[:-1])
        return w

    def _dual(self) -> Array:
        o = self.objective
        chunk = concatenate([chunk for _, chunk in o.data.passes()])
        X, y, weight = self._matrix(chunk)[:, :-1], self._targets(chunk), self._weights(chunk)
        kernel = np.asarray((X @ X.T).todense())
        mean, centre = np.zeros(o.n_outputs), np.zeros(o.n_features)
        if o.fit_intercept:
            share = weight / weight.sum()
            mean, centre = share @ y, np.asarray(share @ X).ravel()
            along = np.asarray(X @ centre)
            kernel += float(centre @ centre) - along[:, None] - along[None, :]
        root = np.sqrt(weight)
        kernel *= root[:, None] * root[None, :]
        kernel[np.arange(len(y)), np.arange(len(y))] += o.l2 * o.weight_sum
        a = root[:, None] * self._solve(kernel, root[:, None] * (y - mean))
        w = np.zeros(o.shape)
        w[:-1] = np.asarray(X.T @ a) - centre[:, None] * a.sum(axis=0)
        w[-1] = mean - centre @ w[:-1] if o.fit_intercept else 0.0
        return w

    def _solve(self, matrix: Array, right: Array) -> Array:
        from scipy.linalg import solve_triangular

        try:
            factor = cholesky(matrix.copy())
            diagonal = np.abs(np.diag(factor))
            if diagonal.min() ** 2 > SMALLEST_EIGENVALUE * diagonal.max() ** 2:
                return np.asarray(solve_triangular(factor.T, solve_triangular(factor, right, lower=True)))
        except np.linalg.LinAlgError:
            pass
        if self.objective.l2 == 0:
            self.note = "; the system is singular without a penalty, so the shortest of its solutions was taken"
        values, vectors = np.linalg.eigh(matrix)
        large = values > SMALLEST_EIGENVALUE * max(values.max(initial=0.0), 0.0)
        kept = vectors[:, large]
        return np.asarray(kept @ ((kept.T @ right) / values[large][:, None]))

    def _blocks(self) -> Iterator[Chunk]:
        """The rows in blocks of a fixed size, whatever the chunks."""
        waiting: list[Chunk] = []
        size = 0
        for _, chunk in self.objective.data.passes():
            start = 0
            while start < chunk.n_rows:
                taken = min(chunk.n_rows - start, BLOCK_ROWS - size)
                waiting.append(chunk.span(start, start + taken))
                start, size = start + taken, size + taken
                if size == BLOCK_ROWS:
                    yield concatenate(waiting)
                    waiting, size = [], 0
        if waiting:
            yield concatenate(waiting)

    def _matrix(self, chunk: Chunk) -> Any:
        """The rows with a column of ones, in float64."""
        from scipy.sparse import csr_matrix

        n, d = chunk.n_rows, self.objective.n_features
        refuse_bad_rows(chunk, d)
        stops = chunk.indptr[1:]
        values = np.insert(chunk.values.astype(np.float64), stops, 1.0)
        indices = np.insert(chunk.indices, stops, d)
        return csr_matrix((values, indices, chunk.indptr + np.arange(n + 1)), shape=(n, d + 1))

    def _targets(self, chunk: Chunk) -> Array:
        assert chunk.y is not None
        if self.objective.target_kind == ONE_VS_REST:
            return np.where(np.arange(self.objective.n_outputs) == chunk.y[:, None], 1.0, -1.0)
        return chunk.y.reshape(chunk.n_rows, -1)

    def _weights(self, chunk: Chunk) -> Array:
        return np.ones(chunk.n_rows) if chunk.weight is None else chunk.weight


def _gram(X: Any, weight: Array) -> Array:
    if X.nnz > DENSE_SHARE * X.shape[0] * X.shape[1]:
        dense = X.toarray()
        return np.asarray(dense.T @ (weight[:, None] * dense))
    return np.asarray((X.T @ X.multiply(weight[:, None]).tocsr()).toarray())


def cholesky(matrix: Array) -> Array:
    """The lower triangular factor of a positive definite matrix, in the place of its lower half.

    A block of columns at a time: OpenBLAS on two threads ends the process with a segmentation fault if it is given all
    of more than 15,000 columns.
    """
    from scipy.linalg import solve_triangular

    n = len(matrix)
    for start in range(0, n, BLOCK_COLUMNS):
        stop = min(n, start + BLOCK_COLUMNS)
        own = np.linalg.cholesky(matrix[start:stop, start:stop])
        matrix[start:stop, start:stop] = own
        below = solve_triangular(own, matrix[stop:, start:stop].T, lower=True).T
        matrix[stop:, start:stop] = below
        for first in range(stop, n, BLOCK_COLUMNS):
            rows = slice(first - stop, first - stop + BLOCK_COLUMNS)
            matrix[first:, first : first + BLOCK_COLUMNS] -= below[first - stop :] @ below[rows].T
    return matrix
