"""The input layer of a network: rows of features times tables of weights, and back.

A weight moves in those batches only in which its feature occurs, and pays its penalty when it is next seen, so a sparse
row costs O(non-zeros x units). Rows with few zeros are multiplied as dense matrices. Threads share rows, or columns of
the tables, and every number is the work of one of them: its bits do not depend on how many there are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from steepest import kernels
from steepest.data.chunk import Array, Chunk
from steepest.learners.network.graph import INPUT, Graph, product
from steepest.learners.network.network_settings import NetworkSettings
from steepest.learners.network.network_updates import Arrays, debts, pay_penalty
from steepest.learners.targets import refuse_bad_row

DENSE_SHARE = 0.25  # above it, a product of dense matrices is faster than sparse rows (measured)
MOST_DENSE_NUMBERS = 1 << 24  # in a batch


@dataclass(slots=True)
class Batch:
    """Rows in the form in which the first layer takes them."""

    rows: Chunk
    dense: Array | None = None
    used: Array | None = None  # the features that occur, known for dense rows


class InputLayer:
    """What the input sends along its edges, and the gradients of their weights."""

    def __init__(self, settings: NetworkSettings, graph: Graph) -> None:
        self.settings = settings
        self.targets = graph.targets(INPUT)
        self.distances = {name for name in self.targets if graph.nodes[name].kind == "distance"}
        self.n_threads = 1
        self._slot = np.zeros(0, np.int32)

    def room(self, arrays: Mapping[str, Array]) -> int:
        """Features that the tables have room for."""
        return len(arrays[f"{INPUT}>{self.targets[0]}"])

    def batch(self, arrays: Arrays, rows: Chunk, mostly_full: bool) -> Batch:
        """Rows to learn from, as dense ones where that is faster."""
        room = self.room(arrays)
        if mostly_full and (rows.n_rows * room < MOST_DENSE_NUMBERS or self.distances):
            dense, used = self.densify(arrays, rows)
            return Batch(rows, dense, np.flatnonzero(used).astype(np.int32))
        self.slot(arrays)
        return Batch(rows)

    def slot(self, arrays: Arrays) -> Array:
        """Room for the place of each feature among those of a batch; -1 between two batches."""
        if len(self._slot) != self.room(arrays):
            self._slot = np.full(self.room(arrays), -1, np.int32)
        return self._slot

    def densify(self, arrays: Arrays, rows: Chunk) -> tuple[Array, Array]:
        """(rows as a matrix, which features occur)."""
        room = self.room(arrays)
        dense, used = np.zeros((rows.n_rows, room), self.settings.dtype), np.zeros(room, np.uint8)
        done = kernels.network_densify(rows.as_rows(), dense, used)
        refuse_bad_index(rows, done, room)
        return dense, used

    # ---------------------------------------------------------------------------------------------------- forward

    def learning_pass(self, arrays: Arrays, batch: Batch) -> dict[str, Array]:
        """What each edge carries; what its weights owe is paid on the way."""
        carried = {}
        for target in self.targets:
            name = f"{INPUT}>{target}"
            if batch.dense is not None:
                pay_penalty(self.settings, arrays, name, batch.used)
                carried[target] = self.dense_products(arrays, batch.dense, target)
            else:
                carried[target] = self._sparse_products(arrays, batch.rows, name, pay=True, n_threads=self.n_threads)
        return carried

    def showing_pass(self, arrays: Arrays, rows: Chunk, n_threads: int) -> dict[str, Array]:
        """The same, changing nothing; sparse products throughout, so that a row's bits are its own."""
        rows = _known_features(rows, self.room(arrays))
        carried = {}
        for target in self.targets:
            if target in self.distances:
                carried[target] = self.dense_products(arrays, self.densify(arrays, rows)[0], target)
            else:
                name = f"{INPUT}>{target}"
                carried[target] = self._sparse_products(arrays, rows, name, pay=False, n_threads=n_threads)
        return carried

    def dense_products(self, arrays: Arrays, dense: Array, target: str) -> Array:
        """X W, or the squared distances of rows to centres."""
        table = arrays[f"{INPUT}>{target}"]
        products = product(dense, table, n_threads=self.n_threads)
        if target not in self.distances:
            return products
        own = np.einsum("ij,ij->i", dense, dense)[:, None] + np.einsum("jk,jk->k", table, table)
        return np.asarray(np.maximum(own - 2 * products, 0))

    def _sparse_products(self, arrays: Arrays, rows: Chunk, name: str, *, pay: bool, n_threads: int) -> Array:
        table = arrays[name]
        out = np.empty((rows.n_rows, table.shape[1]), table.dtype)
        kernel = kernels.network_forward if pay else kernels.network_scores
        done = kernel(rows.as_rows(), table, debts(self.settings, arrays, name), out, n_threads)
        refuse_bad_index(rows, done, len(table))
        return out

    # --------------------------------------------------------------------------------------------------- backward

    def descend(self, arrays: Arrays, batch: Batch, target: str, gradients: Array, eta: float) -> None:
        """Plain steps of sparse rows need no sums; two threads were no faster (measured): cache lines wander."""
        kernels.network_descend(batch.rows.as_rows(), gradients, eta, arrays[f"{INPUT}>{target}"])

    def gradient(self, arrays: Arrays, batch: Batch, target: str, gradients: Array) -> tuple[Array | None, Array]:
        """(features that occur, or None for all; their rows of the gradient)."""
        if batch.dense is None:
            return self._sparse_gradient(batch.rows, gradients)
        gradient = self.dense_gradient(arrays, batch.dense, target, gradients)
        if target in self.distances or batch.used is None or len(batch.used) == len(gradient):
            return None, gradient
        return batch.used, gradient[batch.used]

    def dense_gradient(self, arrays: Arrays, dense: Array, target: str, gradients: Array) -> Array:
        """X' gradients, or that of distances: d |x - w|^2 / dw = 2 (w - x)."""
        products = product(dense, gradients, transposed=True, n_threads=self.n_threads)
        if target not in self.distances:
            return products
        return np.asarray(2 * (arrays[f"{INPUT}>{target}"] * gradients.sum(axis=0) - products))

    def _sparse_gradient(self, rows: Chunk, gradients: Array) -> tuple[Array, Array]:
        room = min(_n_entries(rows), len(self._slot))
        features, gradient = np.empty(room, np.int32), np.empty((max(room, 1), gradients.shape[1]), gradients.dtype)
        n = kernels.network_gather(rows.as_rows(), gradients, self._slot, features, gradient, self.n_threads)
        return features[:n], gradient


def _known_features(rows: Chunk, room: int) -> Chunk:
    """The rows without features that were never seen in training, which have no weights."""
    if rows.n_features <= room:
        return rows
    rows = rows.packed()
    known = rows.indices < room
    indices, values = np.where(known, rows.indices, 0), np.where(known, rows.values, 0)
    return replace(rows, indices=indices.astype(np.int32), values=values.astype(np.float32))


def _n_entries(rows: Chunk) -> int:
    if rows.order is None:
        return int(rows.indptr[-1] - rows.indptr[0])
    return int((rows.indptr[rows.order + 1] - rows.indptr[rows.order]).sum())


def refuse_bad_index(rows: Chunk, done: int, room: int) -> None:
    """Raises if a kernel stopped before the last row."""
    if done < rows.n_rows:
        refuse_bad_row(rows, done, room)
