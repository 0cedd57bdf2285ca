"""The numbers of a factorization machine: a row for every feature seen, as `fm_table.h` describes it.

A row has, for every output, w and the sum of its squared gradients, such a sum for the factors of each field, and the
factors of each field. First factors depend on the seed, the feature, the field's own number and the output alone.
"""

from __future__ import annotations

import numpy as np

from steepest import kernels
from steepest.data.chunk import Array
from steepest.errors import DataError

LANES = 8  # numbers that a kernel handles at once, as in fm_table.h
START_SIZE = 0.1  # of the first factors, times one over the root of their number
MOST_FIELDS = 512
LARGEST_BYTES = 1 << 33
FIRST_ROOM = 1024  # rows


class FactorTable:
    """Rows of numbers, and which field each row's feature belongs to."""

    def __init__(self, rank: int, seed: int, n_outputs: int, field_ids: Array) -> None:
        self.rank = rank
        self.seed = seed
        self.field_ids = field_ids  # own numbers of the fields, in order of appearance
        self.field = np.zeros(0, np.int32)  # of each row
        self.n = 0  # rows in use
        self.numbers = np.zeros((0, n_outputs, stride(len(field_ids), rank)), np.float32)  # with room for more

    @classmethod
    def restored(cls, rank: int, seed: int, numbers: Array, field_ids: Array, own_fields: Array) -> FactorTable:
        """The table with these rows, whose features have these fields."""
        table = cls(rank, seed, numbers.shape[1], np.array(field_ids))
        table.numbers, table.n = np.array(numbers), len(numbers)
        table.field = table._places(own_fields)
        return table

    @property
    def used(self) -> Array:
        """The rows in use."""
        return self.numbers[: self.n]

    @property
    def n_outputs(self) -> int:
        """Machines side by side."""
        return self.numbers.shape[1]

    def parts(self, numbers: Array) -> tuple[Array, Array, Array]:
        """(w and its sum of squares, sums of squares by field, factors by field), as views."""
        n_fields, width = len(self.field_ids), _padded(self.rank)
        factors = numbers[..., _head(n_fields) :].reshape(*numbers.shape[:2], n_fields, width)
        return numbers[..., :2], numbers[..., 2 : 2 + n_fields], factors

    def take_in(self, owners: Array, own_fields: Array) -> None:
        """Makes rows for all owners of which there are none yet; new fields get room in all rows."""
        self._take_fields(owners, own_fields[self.n :])
        before, self.n = self.n, len(owners)
        if self.n > len(self.numbers):
            old, room = self.used[:before], max(self.n, 2 * len(self.numbers), FIRST_ROOM)
            self.numbers = self._empty(room, self.n_outputs)
            self.numbers[:before] = old
        self.field = self._places(own_fields)
        self._start(owners, first_row=before)

    def _take_fields(self, owners: Array, own_fields: Array) -> None:
        known, new = len(self.field_ids), dict.fromkeys(own_fields.tolist())
        added = [field for field in new if field not in set(self.field_ids.tolist())]
        if not added:
            return
        if known + len(added) > MOST_FIELDS:
            raise DataError(
                f"the rows have more than {MOST_FIELDS} fields; give a field for each feature, fields=[...], or learn "
                "without, fields=False"
            )
        old = self.parts(self.used)
        self.field_ids = np.append(self.field_ids, np.array(added, np.int64))
        self.numbers = self._empty(len(self.numbers), self.n_outputs)
        w, squares, factors = self.parts(self.used)
        w[...], squares[..., :known], factors[..., :known, :] = old
        self._start(owners, first_field=known)

    def match_outputs(self, n: int, owners: Array, *, negated: bool) -> None:
        """Makes room for n outputs; `negated` makes the first the negative of the one that there was."""
        before, old = self.n_outputs, self.numbers
        self.numbers = self._empty(len(old), n)
        self.numbers[:, :before] = old
        if negated:
            self.numbers[:, 1] = old[:, 0]
            self.numbers[:, 0, 0] *= -1
        self._start(owners, first_output=before + negated)

    def refill(self, numbers: Array, owners: Array) -> None:
        """Restores these rows; all rows behind them are initialised again."""
        self.numbers[: len(numbers)] = numbers
        self.numbers[len(numbers) :] = 0
        self._start(owners, first_row=len(numbers))

    def arrays(self, bias: Array, outputs: Array) -> kernels.FmArrays:
        """The table as kernels take it."""
        field = None if len(self.field_ids) == 1 else self.field
        return kernels.FmArrays(self.used, len(self.field_ids), self.rank, field, bias, outputs)

    def _start(self, owners: Array, first_row: int = 0, first_field: int = 0, first_output: int = 0) -> None:
        if not self.n:
            return
        arrays = self.arrays(np.zeros(2 * self.n_outputs), np.zeros(6 * self.n_outputs))
        size = START_SIZE / np.sqrt(self.rank)
        places = first_row, first_field, first_output
        kernels.fm_start(arrays, owners[: self.n], self.field_ids, self.seed, size, *places)

    def _empty(self, n_rows: int, n_outputs: int) -> Array:
        shape = (n_rows, n_outputs, stride(len(self.field_ids), self.rank))
        n_bytes = 4 * shape[0] * shape[1] * shape[2]
        if n_bytes > LARGEST_BYTES:
            raise DataError(
                f"the factors would take {n_bytes / 2**30:.1f} GB for {n_rows:,} features, {len(self.field_ids)} fields"
                f" and {n_outputs} outputs; take fewer factors (n_factors), hash to fewer features (n_bits), or learn "
                "without fields"
            )
        return np.zeros(shape, np.float32)

    def _places(self, own_fields: Array) -> Array:
        """The places of fields in the table."""
        order = np.argsort(self.field_ids)
        return order[np.searchsorted(self.field_ids[order], own_fields)].astype(np.int32)


def stride(n_fields: int, rank: int) -> int:
    """Numbers per feature and output."""
    return _head(n_fields) + n_fields * _padded(rank)


def _head(n_fields: int) -> int:
    return _padded(2 + n_fields)


def _padded(n: int) -> int:
    return -(-n // LANES) * LANES
