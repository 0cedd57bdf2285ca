"""A preconditioner for conjugate gradients inside Newton's method: the inverse of the Hessian of the heaviest features.

Hats of a number always sum to one, and columns of a table say alike things, so a Hessian over a table is far from its
diagonal: conjugate gradients with the diagonal took up to 250 products for a direction. Here the Hessian of the
features with the largest squares in the data, and of the bias, is formed over some of the rows, brought to the diagonal
of all rows, and factored, a matrix for each output. Every other feature has its diagonal alone. A preconditioner does
not change the minimum, only the way there.

Of a soft maximum, scores of all classes may move together: then only the penalty bends. That direction is taken apart.

Invariant: which rows and features these are depends on the data only, not on chunks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from steepest import kernels
from steepest.data.chunk import Array, Chunk, concatenate
from steepest.learners.batch.batch_data import BatchData
from steepest.learners.batch.objective import BLOCK_ROWS, HESSIAN, TOTALS, Objective
from steepest.learners.targets import SOFTMAX, TARGETS

MOST_HEAVY = 255  # features, and the bias; fewer where there are more outputs
SAMPLE_ROWS = 8192
ROWS_PER_FEATURE = 4
MOST_PAIRS = 5  # visits for each entry of the data that forming may take, as long as two or three products
BLOCK = 32  # columns that are factored at once


class HeavyHessian:
    """The heaviest features of some rows, from which the Hessian at any weights can be formed."""

    def __init__(self, data: BatchData, n_outputs: int) -> None:
        pairs = data.n_pairs // (MOST_PAIRS * max(1, data.n_entries))
        self.every = max(1, data.n_rows // SAMPLE_ROWS, pairs)
        parts = [chunk.visit(chunk.row_numbers[self._visits(start, chunk)]) for start, chunk in data.passes()]
        rows = concatenate([part.packed() for part in parts])
        squares = np.bincount(rows.indices, np.square(rows.values, dtype=np.float64), data.n_features)
        most = int(min(MOST_HEAVY / max(1.0, n_outputs / 2) ** (1 / 3), rows.n_rows / ROWS_PER_FEATURE))
        heaviest = np.argsort(-squares, kind="stable")[:most]
        self.features = np.sort(heaviest[squares[heaviest] > 0])
        self.rows = _only(rows, self.features)
        self.n_outputs = n_outputs

    def _visits(self, start: int, chunk: Chunk) -> Array:
        """Every so many rows of all, whatever the chunks."""
        return np.arange(-start % self.every, chunk.n_rows, self.every)

    def preconditioner(self, objective: Objective) -> Callable[[Array], Array] | None:
        """Makes a residual a step, at the weights of the last evaluation; None if rounding left a matrix indefinite."""
        diagonal = objective.diagonal()
        heavy = np.append(self.features, len(diagonal) - 1)
        try:
            factored = Factored(self.matrices(objective, diagonal[heavy].T))
        except np.linalg.LinAlgError:
            return None

        def apart(r: Array) -> Array:
            z = r / diagonal
            z[heavy] = factored.solve(r[heavy])
            return z

        def together(r: Array) -> Array:
            mean = r.mean(axis=1, keepdims=True)
            z = apart(r - mean)
            z -= z.mean(axis=1, keepdims=True)
            if objective.l2:
                z[:-1] += mean[:-1] / objective.l2
            return z

        return together if objective.target_kind == SOFTMAX else apart

    def matrices(self, objective: Objective, diagonal: Array) -> Array:
        """The Hessian of each output, with this diagonal."""
        size, k = len(self.features) + 1, self.n_outputs
        bend = np.concatenate([at[self._visits(start, chunk)] for start, chunk, at in objective.stored_curvature()])
        if objective.target_kind == SOFTMAX:
            bend = bend * (1 - bend)
        sums = np.zeros((1, k, size * (size + 1)))
        native = kernels.BatchPass(
            kind=HESSIAN,
            weights=np.zeros((size, k)),
            n_outputs=k,
            loss=objective.learner.loss.code,
            parameter=objective.settings.loss_parameter,
            target_kind=TARGETS,
            smoothing=0.0,
            block_rows=BLOCK_ROWS,
            totals=np.zeros((1, TOTALS)),
            sums=sums,
        )
        kernels.batch_pass(self.rows.as_rows(), native, 0, None, np.ascontiguousarray(bend), None, 1)
        pairs = sums[0, :, : size * size].reshape(k, size, size)
        matrices: Array = pairs + pairs.transpose(0, 2, 1)
        squares, penalty = sums[0, :, size * size :], np.append(np.full(size - 1, objective.l2), 0.0)
        there = squares > 0
        ratio = np.sqrt(np.where(there, np.maximum(diagonal - penalty, 0.0) / np.where(there, squares, 1.0), 0.0))
        if not objective.fit_intercept:
            ratio[:, -1] = 0.0
        matrices *= ratio[:, :, None] * ratio[:, None, :]
        places = np.arange(size)
        matrices[:, places, places] = diagonal
        return matrices


class Factored:
    """Cholesky factors of positive definite matrices, block by block.

    Sums of products are einsum's: BLAS shares them out to threads, which wait for busy cores, and add in another order.
    """

    def __init__(self, matrices: Array) -> None:
        size = matrices.shape[1]
        self.lower, self.inverses = matrices, []
        self.blocks = [slice(start, min(start + BLOCK, size)) for start in range(0, size, BLOCK)]
        for block in self.blocks:
            inverse = np.linalg.inv(np.linalg.cholesky(matrices[:, block, block]))
            below = np.einsum("oij,okj->oik", matrices[:, block.stop :, block], inverse)
            matrices[:, block.stop :, block] = below
            matrices[:, block.stop :, block.stop :] -= np.einsum("oij,okj->oik", below, below)
            self.inverses.append(inverse)

    def inverse_root(self) -> Array:
        """The inverses of the lower factors: R with RᵀR the inverse of a matrix."""
        root = np.zeros_like(self.lower)
        for block, inverse in zip(self.blocks, self.inverses, strict=True):
            above = np.einsum("oij,ojk->oik", self.lower[:, block, : block.start], root[:, : block.start, : block.stop])
            root[:, block, : block.stop] = -np.einsum("oij,ojk->oik", inverse, above)
            root[:, block, block] = inverse
        return root

    def solve(self, right: Array) -> Array:
        """The solutions, for one right side per matrix: the columns of `right`."""
        x = right.T.copy()
        steps = list(zip(self.blocks, self.inverses, strict=True))
        for block, inverse in steps:
            rest = x[:, block] - np.einsum("oij,oj->oi", self.lower[:, block, : block.start], x[:, : block.start])
            x[:, block] = np.einsum("oij,oj->oi", inverse, rest)
        for block, inverse in steps[::-1]:
            rest = x[:, block] - np.einsum("oji,oj->oi", self.lower[:, block.stop :, block], x[:, block.stop :])
            x[:, block] = np.einsum("oji,oj->oi", inverse, rest)
        return x.T


def _only(rows: Chunk, features: Array) -> Chunk:
    """The entries of these features, numbered anew."""
    numbers = np.full(rows.n_features, -1, np.int32)
    numbers[features] = np.arange(len(features), dtype=np.int32)
    found = numbers[rows.indices]
    taken = found >= 0
    ends = np.concatenate([[0], np.cumsum(taken)])[rows.indptr]
    return replace(rows, indptr=ends, indices=found[taken], values=rows.values[taken], n_features=len(features))
