"""The source under every format with one row a line: a format only says how a block of lines becomes a chunk.

Shuffling. "never": file order. "blocks": each epoch visits the blocks of all files (about 1 MiB each) in a new random
order; four at a time are put side by side, and inside such a group short runs of rows are permuted. "rows", "once":
likewise, with single rows permuted inside a group. So a file is never shuffled as a whole: a sort order that spans many
megabytes is broken up, not removed. Compressed files and pipes are shuffled inside groups of neighbours only.

Lines are parsed in threads of their own, ahead of the learner. Memory: a few groups, whatever the size of the files.
"""

from __future__ import annotations

import copy
import math
import os
from abc import abstractmethod
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from itertools import count, islice
from typing import Any, NamedTuple, Self

import numpy as np

from steepest.data import files as text_files
from steepest.data.ahead import map_ahead
from steepest.data.chunk import Array, Chunk, DataError
from steepest.data.files import Block, Text, TextFile, describe, split_row_id
from steepest.data.parameters import ParameterError
from steepest.data.source import Order, Source

# Blocks that are shuffled together: four megabytes of text, which stay in the last level of cache once parsed.
GROUP_BLOCKS = 4
# Parsing costs several times what learning does, so it may use two cores; chunks come in the same order anyway.
PARSING_THREADS = 2
# Chunks that may wait for the learner.
QUEUE_CHUNKS = 2
# Shards of fewer blocks than this would differ much in size; they share the blocks row by row instead.
SHARD_BLOCKS = 8
# Skipped lines that are kept as examples.
EXAMPLES = 3
# Longer pieces of a bad line are shortened in messages.
TOKEN_CHARACTERS = 40

ON_BAD_LINE = ("error", "skip")
ROWS, _BLOCKS, _FILES = range(3)  # what a random order is drawn for


@dataclass(frozen=True, slots=True)
class BadLine:
    """A line that cannot be read: in which text and where in it, what is wrong, and the way out."""

    text: int
    offset: int
    fault: str
    remedy: str = 'correct the line or pass on_bad_line="skip"'


@dataclass(frozen=True, slots=True)
class Parsed:
    """What a format made of some texts: all good rows, and for each text how many are its own and how many were bad."""

    chunk: Chunk
    rows: Sequence[int]
    n_bad: Sequence[int]
    bad: Sequence[BadLine] = ()
    names: Any = None  # of hashed features, for who listens


@dataclass(frozen=True, slots=True)
class GroupChunk(Chunk):
    """The rows of several blocks side by side; each keeps the stable number that it has in its own block.

    `block_rows` is the group's first row of each block and `block_ids` that row's number; `first_id` counts the rows of
    the group that were cut off in front.
    """

    block_rows: Array = field(default_factory=lambda: np.zeros(1, np.int64))
    block_ids: Array = field(default_factory=lambda: np.zeros(1, np.int64))

    @property
    def row_ids(self) -> Array:
        """The visited rows' stable numbers."""
        rows = self.row_numbers + self.first_id
        block = np.searchsorted(self.block_rows, rows, side="right") - 1
        return np.asarray(rows - self.block_rows[block] + self.block_ids[block])


@dataclass(frozen=True, slots=True)
class _Example:
    """A skipped line. Its number is counted only if someone asks: that may take a pass over the file."""

    file: TextFile
    offset: int
    line: int | None
    fault: str

    @property
    def place(self) -> tuple[int, int]:
        return self.file.position, self.offset

    def __str__(self) -> str:
        line = self.line or self.file.line_number(self.offset)
        where = f"line {line}" if line else f"byte {self.offset}"
        return f"{self.file.name}, {where}: {self.fault}"


BadLines = tuple[int, int, list[_Example]]  # a block's id, how many, the first


class Group(NamedTuple):
    """Blocks to be read and shuffled together."""

    blocks: list[Block]
    place: tuple[int, int]  # in the order of reading


class Skipped:
    """The bad lines that were passed over, each counted once however often the source is read."""

    def __init__(self) -> None:
        self._counts: dict[int, int] = {}  # by block; only blocks with bad lines are in it
        self._first: list[_Example] = []

    @property
    def n(self) -> int:
        """How many lines."""
        return sum(self._counts.values())

    @property
    def examples(self) -> list[str]:
        """The first three of them, in file order, as sentences."""
        return [str(example) for example in self._first]

    def add(self, block_id: int, n: int, examples: list[_Example]) -> None:
        """Counts the bad lines of a block, unless that was done before."""
        if block_id not in self._counts:
            self._counts[block_id] = n
            self._first = sorted(self._first + examples, key=lambda example: example.place)[:EXAMPLES]


class BlockSource(Source):
    """Rows from text files, whose blocks are visited in groups; what a block holds is left to others.

    Attributes
    ----------
    files : list of TextFile
    skipped : Skipped
        Bad lines passed over so far under on_bad_line="skip": their number `n` and three `examples`.
    """

    def __init__(self, files: list[TextFile], on_bad_line: str = "error") -> None:
        if on_bad_line not in ON_BAD_LINE:
            raise ParameterError(f"on_bad_line={on_bad_line!r} is unknown; choose one of {', '.join(ON_BAD_LINE)}")
        self.files = files
        self.on_bad_line = on_bad_line
        self.skipped = Skipped()
        self._parts: tuple[tuple[int, int], ...] = ()  # (shard, of how many), the coarsest first

    def prepare(self) -> None:
        """Called when reading starts, to settle what depends on the data."""

    def fingerprint(self) -> dict[str, Any]:
        """The files and what decides which rows come from them; a format adds what its recipe leaves out."""
        described = [file.fingerprint() for file in self.files]
        self.prepare()
        return {
            "files": described,
            "block_bytes": text_files.BLOCK_BYTES,  # rows are numbered by it
            "recipe": self.recipe,
            "on_bad_line": self.on_bad_line,
            "parts": self._parts,
        }

    def _copy(self) -> Self:
        return copy.copy(self)  # shares the files, and what was skipped in them

    def shards(self, n: int) -> list[Source]:
        """N sources that together hold each line exactly once."""
        if n < 1:
            raise ParameterError(f"shards({n}) needs at least one shard")
        n_blocks = sum(file.n_blocks() for file in self.files) // math.prod(of for _, of in self._parts)
        if n_blocks < SHARD_BLOCKS * n:
            return super().shards(n)
        return [self._part(shard, n) for shard in range(n)]

    def _part(self, shard: int, n: int) -> Self:
        source = self._copy()
        source._parts = (*self._parts, (shard, n))
        return source

    def _no_rows(self) -> DataError:
        if self.skipped.n:
            return DataError(
                f"{describe(self.files)}: none of the {self.skipped.n} lines can be read, "
                f"the first because: {self.skipped.examples[0]}; check the format of the data"
            )
        return DataError(f"{describe(self.files)}: there is no row in it; give a file with data")

    def _groups(self, order: Order, epoch: int) -> Iterator[Group]:
        """Blocks to be parsed and shuffled together."""
        for files in self._passes(order, epoch):
            blocks = self._blocks(files, order, epoch)
            for number in count():
                group = list(islice(blocks, GROUP_BLOCKS))
                if not group:
                    break
                yield Group(group, (files[0].position, number))

    def _passes(self, order: Order, epoch: int) -> list[list[TextFile]]:
        """Files whose blocks are mixed with each other."""
        if order.shuffle == "never":
            return [[file] for file in self.files]
        seekable = [file for file in self.files if file.seekable]
        passes = [seekable] * bool(seekable) + [[file] for file in self.files if not file.seekable]
        return [passes[i] for i in order.generator(epoch, _FILES).permutation(len(passes))]

    def _blocks(self, files: list[TextFile], order: Order, epoch: int) -> Iterator[Block]:
        if not files[0].seekable:
            for block in files[0].stream():
                if self._holds(np.array([block.file.position + block.number])).all():
                    yield block
            return
        counts = [file.n_blocks() for file in files]
        which = np.repeat(np.arange(len(files)), counts)
        numbers = np.concatenate([np.arange(n) for n in counts])
        positions = np.array([file.position for file in files])
        mine = np.flatnonzero(self._holds(positions[which] + numbers))
        if order.shuffle != "never":
            mine = order.generator(epoch, _BLOCKS, files[0].position).permutation(mine)
        for place in mine:
            block = files[which[place]].read_block(int(numbers[place]))
            if len(block.text):
                yield block

    def _holds(self, places: Array) -> Array:
        """Which blocks, by file number + block number, belong to this shard."""
        held = np.ones(len(places), bool)
        for shard, n in self._parts:
            held &= places % n == shard
            places = places // n
        return held

    def _bad_lines(self, group: list[Block], n_bad: Sequence[int], lines: Sequence[BadLine]) -> list[BadLines]:
        examples: list[list[_Example]] = [[] for _ in group]
        for bad in lines:
            block = group[bad.text]
            line = block.line_number(bad.offset)
            examples[bad.text].append(_Example(block.file, block.start + bad.offset, line, bad.fault))
            if self.on_bad_line != "skip":
                raise DataError(f"{examples[bad.text][0]}; {bad.remedy}")
        return [(block.first_id, n, first) for block, n, first in zip(group, n_bad, examples, strict=True) if n]

    @abstractmethod
    def n_rows_of(self, block: Block) -> int:
        """How many good rows a block has."""

    def refuse_rows(self, row_ids: Sequence[int], faults: Sequence[str], remedy: str) -> None:
        """Rows of one chunk that were read well but cannot be used: an error, or counted if bad lines are skipped."""
        first = zip(row_ids[:EXAMPLES], faults[:EXAMPLES], strict=True)
        examples = [self._example(row_id, fault) for row_id, fault in first]
        if self.on_bad_line != "skip":
            raise DataError(f"{examples[0]}; {remedy}")
        self.skipped.add(-1 - row_ids[0], len(row_ids), examples)  # below zero: no block has such a number

    def _example(self, row_id: int, fault: str) -> _Example:
        """The line of a row. Rows do not carry it, so the block is read again, and cut until the row is its last."""
        self.prepare()
        position, number, row = split_row_id(row_id)
        file = next(file for file in self.files if file.position == position)
        if file.once:
            return _Example(file, 0, None, f"{fault} (row {row} of part {number})")
        blocks = [file.read_block(number)] if file.seekable else file.stream()
        block = next(block for block in blocks if block.number == number)
        text = bytes(block.text)
        ends = [*(np.flatnonzero(np.frombuffer(text, np.uint8) == ord("\n")) + 1).tolist(), len(text)]

        def holds_row(line: int) -> bool:
            try:
                return self.n_rows_of(replace(block, text=text[: ends[line]])) > row
            except DataError:  # cut inside a row of several lines
                return False

        line = bisect_left(range(len(ends) - 1), True, key=holds_row)
        offset = ends[line - 1] if line else 0
        return _Example(file, block.start + offset, block.line_number(offset), fault)


class LineSource(BlockSource):
    """Rows that one kernel parses. A format gives `parse` and `recipe`."""

    @abstractmethod
    def parse(self, texts: list[Text]) -> Parsed:
        """The rows of texts of whole lines, the last line of each perhaps without its newline.

        Runs in several threads at once. Unless on_bad_line is "skip", nothing behind a bad line need be parsed.
        """

    def parse_blocks(self, blocks: list[Block]) -> Parsed:
        """The same for blocks that are about to be learned."""
        return self.parse([block.text for block in blocks])

    def hear(self, names: Any) -> None:
        """Is told of names that `parse_blocks` found, when all rows before were learned."""

    def n_rows_of(self, block: Block) -> int:
        """How many good rows a block has."""
        return self.parse([block.text]).chunk.n_rows

    def read(self, order: Order, epoch: int) -> Iterator[Chunk]:
        """One chunk for each group of blocks."""
        self.prepare()
        any_row = False
        chunks = map_ahead(
            lambda group: self._make(group, order, epoch),
            self._groups(order, epoch),
            threads=min(PARSING_THREADS, os.cpu_count() or 1),
            ahead=QUEUE_CHUNKS,
        )
        with closing(chunks):
            for chunk, bad, names in chunks:
                for block_bad in bad:
                    self.skipped.add(*block_bad)
                if names is not None:
                    self.hear(names)
                if chunk.n_rows:
                    any_row = True
                    yield chunk
        if not any_row and not self._parts:
            raise self._no_rows()

    def _make(self, group: Group, order: Order, epoch: int) -> tuple[Chunk, list[BadLines], Any]:
        """A group as a chunk in visiting order, the bad lines in it, and the names."""
        parsed = self.parse_blocks(group.blocks)
        bad = self._bad_lines(group.blocks, parsed.n_bad, parsed.bad)
        chunk = _numbered(parsed, group.blocks)
        rows = order.permute(chunk.n_rows, epoch, ROWS, *group.place)
        return chunk if rows is None else chunk.visit(rows), bad, parsed.names


def shown_token(text: Text, token: int, length: int) -> str:
    """A piece of a bad line as messages show it."""
    shown = bytes(text[token : token + min(length, TOKEN_CHARACTERS)]).decode("utf-8", "backslashreplace")
    return shown + "..." if length > TOKEN_CHARACTERS else shown


def _numbered(parsed: Parsed, group: list[Block]) -> Chunk:
    """The chunk, whose rows know their stable numbers."""
    chunk = parsed.chunk
    if len(group) == 1:
        return replace(chunk, first_id=group[0].first_id)
    return GroupChunk(
        chunk.indptr,
        chunk.indices,
        chunk.values,
        chunk.n_features,
        chunk.y,
        chunk.weight,
        block_rows=np.cumsum([0, *parsed.rows[:-1]]),
        block_ids=np.array([block.first_id for block in group]),
    )
