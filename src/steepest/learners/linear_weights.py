"""The weights that a linear learner's arrays stand for: settled, averaged if so chosen, waiting rows included."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import Self

import numpy as np

from steepest import kernels
from steepest.data.chunk import Array
from steepest.learners.base import Progress
from steepest.learners.linear_settings import ADAPTIVE
from steepest.learners.linear_state import LinearState, kernel_tables
from steepest.learners.slots import Slots

BLOCK = 1 << 16  # weights that are added up at once
LEAST_POT = 10.0  # of coin betting: how small the first bets are, as in linear_kernels.cpp


class LinearWeights(LinearState):
    """What is shown of the state."""

    @abstractmethod
    def learn_pending(self) -> Progress:
        """Learns the rows that wait, as if no others were to come."""

    def weights(self) -> tuple[Array, Array]:
        """(weights, bias): settled, averaged if so chosen, pending rows included.

        The weights have the shape (features, outputs), or are the table that all share; see `output_weights`.
        """
        table, bias, slots = self._shown_weights()
        return (table if slots is None else slots.spread(table, self.n_features)), bias

    def _shown_weights(self) -> tuple[Array, Array, Slots | None]:
        """The same, with rows by slot where there are slots; rows that wait may have brought some of them."""
        if self._shown is None:
            finished = self._finished()
            self._shown = (*finished._plain_weights(), finished.slots)
        return self._shown

    def output_weights(self, output: int, features: Array | None = None) -> Array:
        """The weights of these features (or of all) for one output."""
        table, _, slots = self._shown_weights()
        if slots is not None:
            column = slots.spread(table[:, output], self.n_features)
            return column if features is None else column[features]
        if not self.shared:
            return table[:, output] if features is None else table[features, output]
        wanted = np.arange(self.n_features) if features is None else np.asarray(features, np.int64)
        return kernels.class_weights(table, np.ascontiguousarray(wanted), output, self.settings.table_bits)

    def weight_matrix(self) -> Array:
        """The weights, one row an output."""
        table, _, slots = self._shown_weights()
        if not self.shared and slots is None:
            return np.ascontiguousarray(table.T)
        self._refuse_huge_table(self.n_features * self.n_outputs)
        matrix = np.empty((self.n_outputs, self.n_features), self.settings.dtype)
        for output in range(self.n_outputs):
            matrix[output] = self.output_weights(output)
        return matrix

    def total_weights(self) -> Array:
        """The sum of |weight| over all outputs, for each feature."""
        total = np.zeros(self.n_features)
        for output in range(self.n_outputs):
            total += np.abs(self.output_weights(output))
        return total

    def _plain_weights(self) -> tuple[Array, Array]:
        v = self._live(self.arrays["v"])
        if self.settings.rule == "coin":
            w = np.empty((len(v), v.shape[-1]), v.dtype)
            for block in self._blocks(len(w)):
                w[block] = bets(v[block].astype(np.float64), 1.0 if self.eta0 is None else self.eta0)
            return w, self.arrays["bias"]
        if self.settings.rule in ADAPTIVE:
            z, square = (v[0], v[1]) if self.shared else (v[:, 0], v[:, 1])
            w = np.empty(z.shape, v.dtype)
            t, eta0 = self._clock("t"), 1.0 if self.eta0 is None else self.eta0
            for block in self._blocks(len(w)):
                soft = z[block].astype(np.float64)
                soft = np.sign(soft) * np.maximum(np.abs(soft) - t * self.settings.l1, 0)
                w[block] = -soft / ((1 + np.sqrt(square[block].astype(np.float64))) / eta0 + t * self.settings.l2)
            return w, self.arrays["bias"]
        if self.settings.average != "no" and self._clock("average_weight") > 0:
            mean = np.empty(v.shape, v.dtype)
            for block, part in self._average_parts():
                mean[block] = part
            return mean, self.arrays["bias_average"]
        if self.settings.l1 == 0:  # nothing is owed: one multiplication is all, and large tables are copied once
            return v * v.dtype.type(self._clock("scale")), self.arrays["bias"]
        settled = self.clone()
        settled._settle()
        return settled._live(settled.arrays["v"]), self.arrays["bias"]

    def _average_parts(self) -> Iterator[tuple[slice, Array]]:
        """The average of the weights, some rows of the table at a time."""
        s, c = self._clock("average_scale"), self._clock("average_weight")
        v, average = kernel_tables(self._used_arrays())
        for block in self._blocks(len(self._live(self.arrays["v"]))):
            part = np.empty_like(self.arrays["v"][block], order="C")
            kernels.mean_weights(v[block], None if average is None else average[block], s, c, part)
            yield block, part if self.shared else np.ascontiguousarray(part[:, : self.n_outputs])

    def _blocks(self, n: int) -> Iterator[slice]:
        """Parts of a table that fit in the cache: a large one needs no copy in float64."""
        rows = self._rows_a_block()
        return (slice(first, min(n, first + rows)) for first in range(0, n, rows))

    def _rows_a_block(self) -> int:
        return BLOCK if self.shared else max(1, BLOCK // self.n_outputs)

    def heaviness(self, columns: Array) -> Array:
        """How heavy the weights of some columns are, the heaviest of all outputs each, up to a common factor."""
        heavy = np.zeros(len(columns))
        if self.shared:
            known = np.flatnonzero(columns < self.n_features)
            for output in range(self.n_outputs if len(known) else 0):
                heavy[known] = np.maximum(heavy[known], np.abs(self.output_weights(output, columns[known])))
            return heavy
        if self.slots is not None:
            rows = np.where(columns < self.n_features, self.slots.of(np.minimum(columns, self.n_features - 1)), -1)
            known = np.flatnonzero(rows >= 0)
            v = np.abs(self.arrays["v"][rows[known]])
        else:
            known = np.flatnonzero(columns < len(self.arrays["v"]))
            v = np.abs(self.arrays["v"][columns[known]])
        if self.settings.rule in ADAPTIVE:
            v = v[:, 0] / (1 + np.sqrt(v[:, 1]))
        heavy[known] = v.max(axis=1, initial=0)
        return heavy

    def _finished(self) -> Self:
        """This learner if nothing waits, else a copy that has learned the waiting rows."""
        if self.pending is None:
            return self
        copy = self.clone()
        copy.learn_pending()
        return copy

    def _settle(self) -> None:
        """Pays all shrinkage owed and folds the scale into the weights."""
        if self.settings.rule not in ADAPTIVE:
            arrays = self._used_arrays()
            weights, average = kernel_tables(arrays)
            kernels.linear_settle(
                weights,
                arrays.get("shrunk"),
                arrays["clock"],
                1 if self.shared else weights.shape[-1],
                self._choices(),
                average,
            )

    def count_nonzero(self) -> int:
        """Weights that are not zero."""
        return self._table_norms()[2]

    def penalty(self) -> float:
        """alpha R(w) at the current weights."""
        s = self.settings
        if s.p:
            return s.alpha / s.p * float((np.abs(self.weights()[0].astype(np.float64)) ** s.p).sum())
        absolute, square, _ = self._table_norms()
        return s.l1 * absolute + 0.5 * s.l2 * square

    def _table_norms(self) -> tuple[float, float, int]:
        """(sum |w|, sum w^2, how many are not zero). Where w is P v and nothing else, it need not be written out."""
        if self._norms is None:
            adaptive, l1 = self.settings.rule in ADAPTIVE, self.settings.l1
            averaged = self.settings.average != "no" and self._clock("average_weight") > 0 and not adaptive
            scale = self._clock("scale") if not (adaptive or l1 or averaged) else 1.0
            if self.pending is not None or adaptive or (l1 and not averaged):
                scale = 1.0
                absolute, square, nonzeros = kernels.table_norms(np.ascontiguousarray(self._shown_weights()[0]))
            elif averaged:
                absolute, square, nonzeros = self._average_norms()
            else:
                absolute, square, nonzeros = kernels.table_norms(self._used_arrays()["v"])
            self._norms = scale * absolute, scale**2 * square, nonzeros
        return self._norms

    def _average_norms(self) -> tuple[float, float, int]:
        """The same of the average, without writing it out."""
        v, average = kernel_tables(self._used_arrays())
        if self.shared:
            v, average = v.reshape(-1, 1), None if average is None else average.reshape(-1, 1)
        n_rows, k = len(self._live(self.arrays["v"])), 1 if self.shared else self.n_outputs
        s, c = self._clock("average_scale"), self._clock("average_weight")
        average = None if average is None else average[:n_rows]
        return kernels.mean_norms(v[:n_rows], average, k, s, c, self._rows_a_block(), self.n_threads)


def bets(coins: Array, eta0: float) -> Array:
    """The weights of solver="coin", from the four numbers of each, in the second axis from the left."""
    total, size, largest, reward = np.moveaxis(coins, 1, 0)
    pot = largest * np.maximum(size + largest, LEAST_POT * largest)
    return np.asarray(np.where(largest > 0, total * (largest * eta0 + reward) / np.where(pot > 0, pot, 1.0), 0.0))
