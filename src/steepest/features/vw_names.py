"""Names of the features of Vowpal Wabbit text, collected while a model learns: no second pass, and fixed memory.

A feature is called namespace^name, as VW's own audit has it, or by its name alone if the namespace has none; a cross is
called a^x#b^y.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from steepest import kernels
from steepest.data.chunk import Array, Chunk
from steepest.data.readers.vw import VwSource, with_bits
from steepest.data.source import Order, Source
from steepest.errors import DataError
from steepest.features.collisions import PROBE_BITS, CollisionReport, count_collisions, report_collisions
from steepest.features.names import NAMES_IN_A_ROW, NameBook, hash_name, mix


class VwNames:
    """Names of features of Vowpal Wabbit text: a book filled by a source, and the source's hash settings."""

    def __init__(
        self, size: int, n_bits: int, signed: bool, seed: int, crosses: Sequence[tuple[str, str]] = ()
    ) -> None:
        self.names_ = NameBook(size)
        self.n_bits, self.signed, self.seed = n_bits, signed, seed
        self.crosses = tuple((str(a), str(b)) for a, b in crosses)
        self.heaviness: Callable[[Array], Array] | None = None  # of a learner's weights, by bucket
        self._seen_blocks: set[int] = set()
        self._n_times = 0

    @classmethod
    def of(cls, source: VwSource, size: int) -> VwNames:
        """An empty book for the features of this source."""
        source.prepare()
        return cls(size, source.n_bits, bool(source.signed), source.seed, source.crosses)

    # -------------------------------------------------------------------------------------------- while rows are read

    def is_new(self, block_id: int) -> bool:
        """Whether nothing of the block was recorded yet."""
        return block_id not in self._seen_blocks

    def record(self, block_ids: list[int], log: kernels.NameLog, n_rows: int) -> None:
        """Records names; now and then the names of the heaviest weights are secured first."""
        self._seen_blocks.update(block_ids)
        self._n_times += 1
        if self.heaviness is not None and self._n_times & (self._n_times - 1) == 0:
            self.names_.keep_heaviest(self.heaviness)
        self.names_.table.read(log, n_rows)

    def __getstate__(self) -> dict[str, Any]:
        """The state without the learner and the record of blocks, which a copy does not need."""
        return {**self.__dict__, "heaviness": None, "_seen_blocks": set()}

    def start_over(self) -> None:
        """Forgets all names."""
        self.names_ = NameBook(self.names_.size)
        self._seen_blocks.clear()
        self._n_times = 0

    # ------------------------------------------------------------------------------------------------------- rows

    def to_chunk(self, lines: Sequence[str]) -> Chunk:
        """Hashes lines of text, with or without labels."""
        return self._parse(lines)[0]

    def read_row(self, line: str) -> tuple[Chunk, list[list[str]], list[list[str]]]:
        """One row: hashed, the names that are in it for each bucket, and those known from training for each."""
        chunk, log = self._parse([line])
        own = NameBook(NAMES_IN_A_ROW)
        own.table.read(log, 1)
        return chunk, own.names_of(chunk.indices), self.names_.names_of(chunk.indices)

    def _parse(self, lines: Sequence[str]) -> tuple[Chunk, kernels.NameLog]:
        indptr, indices, values, _, _, rows, _, _, log = kernels.parse_vw(
            [line.replace("\n", " ").encode() for line in lines],
            n_bits=self.n_bits,
            signed=self.signed,
            with_labels=False,
            skip_bad=True,
            seed=self.seed,
            log_from=[0] * len(lines),
            crosses=self.crosses,
        )
        for line, n_rows in zip(lines, rows, strict=True):
            if n_rows != 1:
                raise DataError(f"{line[:60]!r} is not a row of Vowpal Wabbit text; write '|namespace name:value ...'")
        return Chunk(indptr, indices, values, 1 << self.n_bits), log

    # ------------------------------------------------------------------------------------------------------ names

    def sign_in(self, bucket: int, name: str) -> int:
        """+1 or -1: how the feature is added to its bucket. A name that was cut short is taken for positive."""
        if not self.signed:
            return 1
        readings = self._hashes(name)
        for place in (place for place, letter in enumerate(name) if self.crosses and letter == "#"):
            right = self._hashes(name[place + 1 :])
            readings += [mix(a, b) for a in self._hashes(name[:place]) for b in right]
        for feature in readings:
            if feature >> 32 & (1 << self.n_bits) - 1 == bucket:
                return -1 if feature >> 63 else 1
        return 1

    def _hashes(self, name: str) -> list[int]:
        """The possible hashes of the name "namespace^feature", since both parts may contain a ^."""
        key = kernels.hash_key("", self.seed)
        places = [place for place, letter in enumerate(name) if letter == "^"]
        parts = [("", name), *((name[:place], name[place + 1 :]) for place in places)]
        return [mix(hash_name(space, key), hash_name(rest, key)) for space, rest in parts]

    def collision_report(self, weights: Any, data: Any = None) -> CollisionReport:
        """How full the buckets are, and how much of the weight is named or shared; counted on lines or a source."""
        if data is None:
            return report_collisions(self.n_bits, weights, self.names_)
        if isinstance(data, Source):
            rows: Iterable[Chunk] = with_bits(data, PROBE_BITS).read(Order(), 0)
        else:
            rows = [VwNames(1, PROBE_BITS, self.signed, self.seed, self.crosses).to_chunk(data)]
        return count_collisions(self.n_bits, self.signed, rows, weights, self.names_)

    # ------------------------------------------------------------------------------------------------------- state

    def state(self) -> dict[str, Array]:
        """The complete state as arrays for a model file."""
        own = np.array([self.names_.size, self.n_bits, self.signed, self.seed], np.uint64)
        crosses = {"crosses": np.frombuffer(json.dumps(self.crosses).encode(), np.uint8)} if self.crosses else {}
        return {"hash": own, **crosses, **self.names_.state()}

    @classmethod
    def from_state(cls, state: Mapping[str, Array]) -> VwNames:
        """Builds the names from the arrays that `state` gave."""
        size, n_bits, signed, seed = map(int, state["hash"])
        crosses = json.loads(state["crosses"].tobytes()) if "crosses" in state else ()
        found = cls(size, n_bits, bool(signed), seed, crosses)
        book = {name: array for name, array in state.items() if name not in ("hash", "crosses")}
        found.names_ = NameBook.from_state(size, book)
        return found
