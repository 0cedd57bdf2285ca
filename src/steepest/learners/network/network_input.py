"""The input layer of a network: rows of features times tables of weights, and back.

A weight moves in those batches only in which its feature occurs, and pays its penalty when it is next seen. Rows with
few zeros are multiplied as dense matrices here; batches of sparse ones are learned by `network_batches`. Threads share
rows, or columns of the tables, and every number is the work of one of them: its bits do not depend on how many there
are.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from steepest import kernels
from steepest.data.chunk import Array, Chunk
from steepest.learners.network.graph import INPUT, Graph, product
from steepest.learners.network.network_settings import NetworkSettings
from steepest.learners.network.network_updates import Arrays, debts, pay_penalty
from steepest.learners.targets import only_known, refuse_bad_row

DENSE_SHARE = 0.25  # above it, a product of dense matrices is faster than sparse rows (measured)
MOST_DENSE_NUMBERS = 1 << 24  # in a batch; more are learned as sparse rows


class InputLayer:
    """What the input sends along its edges, and the gradients of their weights."""

    def __init__(self, settings: NetworkSettings, graph: Graph) -> None:
        self.settings = settings
        self.targets = graph.targets(INPUT)
        self.distances = {name for name in self.targets if graph.nodes[name].kind == "distance"}
        self.n_threads = 1
        self._slot = np.zeros(0, np.int32)

    def room(self, arrays: Mapping[str, Array]) -> int:
        """The number of features that the tables have room for."""
        return len(arrays[f"{INPUT}>{self.targets[0]}"])

    def slot(self, arrays: Arrays) -> Array:
        """A work array: the place of each feature among those of the current batch, or -1."""
        if len(self._slot) != self.room(arrays):
            self._slot = np.full(self.room(arrays), -1, np.int32)
        return self._slot

    def densify(self, arrays: Arrays, rows: Chunk) -> tuple[Array, Array]:
        """(rows as a matrix, the features that occur)."""
        dense, used = dense_rows(rows, self.room(arrays), self.settings.dtype)
        return dense, np.flatnonzero(used).astype(np.int32)

    # ---------------------------------------------------------------------------------------------------- forward

    def learning_pass(self, arrays: Arrays, dense: Array, used: Array) -> dict[str, Array]:
        """What each edge carries; pending penalties of the features that occur are applied first."""
        for target in self.targets:
            pay_penalty(self.settings, arrays, f"{INPUT}>{target}", used)
        return {target: self.dense_products(arrays, dense, target) for target in self.targets}

    def showing_pass(self, arrays: Arrays, rows: Chunk, n_threads: int) -> dict[str, Array]:
        """Like `learning_pass`, but changes nothing; each row is summed on its own."""
        rows = only_known(rows, self.room(arrays))
        carried = {}
        for target in self.targets:
            if target in self.distances:
                carried[target] = self.dense_products(arrays, self.densify(arrays, rows)[0], target)
            else:
                carried[target] = self._sparse_products(arrays, rows, f"{INPUT}>{target}", n_threads)
        return carried

    def dense_products(self, arrays: Arrays, dense: Array, target: str) -> Array:
        """X W, or the squared distances of rows to centres."""
        table = arrays[f"{INPUT}>{target}"]
        products = product(dense, table, n_threads=self.n_threads)
        if target not in self.distances:
            return products
        own = np.einsum("ij,ij->i", dense, dense)[:, None] + np.einsum("jk,jk->k", table, table)
        return np.asarray(np.maximum(own - 2 * products, 0))

    def _sparse_products(self, arrays: Arrays, rows: Chunk, name: str, n_threads: int) -> Array:
        table = arrays[name]
        out = np.empty((rows.n_rows, table.shape[1]), table.dtype)
        done = kernels.network_scores(rows.as_rows(), table, debts(self.settings, arrays, name), out, n_threads)
        refuse_bad_index(rows, done, len(table))
        return out

    # --------------------------------------------------------------------------------------------------- backward

    def gradient(
        self, arrays: Arrays, dense: Array, used: Array, target: str, gradients: Array
    ) -> tuple[Array | None, Array]:
        """(features that occur, or None for all; their rows of the gradient)."""
        gradient = self.dense_gradient(arrays, dense, target, gradients)
        if target in self.distances or len(used) == len(gradient):
            return None, gradient
        return used, gradient[used]

    def dense_gradient(self, arrays: Arrays, dense: Array, target: str, gradients: Array) -> Array:
        """X' gradients, or that of distances: d |x - w|^2 / dw = 2 (w - x)."""
        products = product(dense, gradients, transposed=True, n_threads=self.n_threads)
        if target not in self.distances:
            return products
        return np.asarray(2 * (arrays[f"{INPUT}>{target}"] * gradients.sum(axis=0) - products))


def dense_rows(rows: Chunk, width: int, dtype: str = "float64") -> tuple[Array, Array]:
    """(the rows visited as a matrix, whether each column occurs)."""
    dense, used = np.zeros((rows.n_rows, width), dtype), np.zeros(width, np.uint8)
    refuse_bad_index(rows, kernels.network_densify(rows.as_rows(), dense, used), width)
    return dense, used


def finite_rows(rows: Chunk, width: int) -> Array:
    """The rows visited as a matrix of finite numbers; raises for another one."""
    dense, _ = dense_rows(rows, width)
    if not np.isfinite(dense).all():
        refuse_bad_row(rows, int(np.argmin(np.isfinite(dense).all(axis=1))))
    return dense


def refuse_bad_index(rows: Chunk, done: int, room: int) -> None:
    """Raises if a kernel stopped before the last row."""
    if done < rows.n_rows:
        refuse_bad_row(rows, done, room)
