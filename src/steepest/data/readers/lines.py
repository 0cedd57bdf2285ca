"""The source under every format with one row per line: a format only says how blocks of lines become rows.

Shuffling. "never": file order. "blocks": each epoch visits the blocks of all files (about 1 MiB each) in a new random
order; four at a time are put side by side, and inside such a group short runs of rows are permuted. "rows", "once":
likewise, with single rows permuted inside a group. So a file is never shuffled as a whole: a sort order that spans many
megabytes is broken up, not removed. Compressed files and pipes are shuffled inside groups of neighbours only.

Lines are parsed in threads of their own, ahead of the learner. Rows are features already (a `Chunk`), or raw columns
that an encoder turns into features (a `RawBatch`). Memory: a few groups, whatever the size of the files.
"""

from __future__ import annotations

import math
import os
from abc import abstractmethod
from bisect import bisect_left
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import count, islice
from typing import Any, NamedTuple

import numpy as np

from steepest.data.chunk import Array, Chunk, RowIds
from steepest.data.files import blocks as text_files
from steepest.data.files.blocks import Block, Text, TextFile, map_ahead, split_row_id
from steepest.data.raw import QUEUE_CHUNKS, RawBatch
from steepest.data.skipped import EXAMPLES, ON_BAD_LINE, Example, Skipped
from steepest.data.source import BLOCKS, FILES, ROWS, Order, Source
from steepest.errors import DataError
from steepest.parameters import choice, whole

# Blocks that are shuffled together: four megabytes of text, which stay in the last level of cache once parsed.
GROUP_BLOCKS = 4
# Parsing costs several times what learning does, so it may use two cores; chunks come in the same order anyway.
PARSING_THREADS = 2
# Shards of fewer blocks than this would differ much in size; they share the blocks row by row instead.
SHARD_BLOCKS = 8
# Longer pieces of a bad line are shortened in messages.
TOKEN_CHARACTERS = 40

SKIP = 'pass on_bad_line="skip"'
Faults = Mapping[str, tuple[str, str]]  # the kernel's word for a fault: what is wrong, with {token}, and the remedy


@dataclass(frozen=True, slots=True)
class BadLine:
    """A line that cannot be read: in which block and where in it, what is wrong, and the remedy."""

    block: int
    offset: int
    fault: str
    remedy: str = f"correct the line or {SKIP}"


@dataclass(frozen=True, slots=True)
class Parsed:
    """The result of parsing blocks: the good rows, and per block how many rows and how many bad lines it has.

    `bad` are the bad lines, or the first of each block's. `names` are those of hashed features, for a recorder of them.
    """

    rows: Any  # a Chunk or a RawBatch
    counts: Sequence[int]
    n_bad: Sequence[int]
    bad: Sequence[BadLine] = ()
    names: Any = None


@dataclass(frozen=True, slots=True)
class _LineFault:
    """A bad line as a sentence. Its number is counted only if someone asks: that may take a pass over the file."""

    file: TextFile
    offset: int
    line: int | None
    fault: str

    def __str__(self) -> str:
        line = self.line or self.file.line_number(self.offset)
        where = f"line {line}" if line else f"byte {self.offset}"
        return f"{self.file.name}, {where}: {self.fault}"


class _Group(NamedTuple):
    """Blocks to be read and shuffled together."""

    blocks: list[Block]
    place: tuple[int, int]  # in the order of reading

    def bad_lines(self, parsed: Parsed, skip: bool) -> list[tuple[int, int, list[Example]]]:
        """What `Skipped.add` takes, of each block with bad lines; raises for the first one unless they are skipped."""
        examples: list[list[Example]] = [[] for _ in self.blocks]
        for bad in parsed.bad:
            block = self.blocks[bad.block]
            offset = block.start + bad.offset
            fault = _LineFault(block.file, offset, block.line_number(bad.offset), bad.fault)
            if not skip:
                raise DataError(f"{fault}; {bad.remedy}")
            examples[bad.block].append(((block.file.position, offset), fault))
        parts = zip(self.blocks, parsed.n_bad, examples, strict=True) if parsed.bad else ()
        return [(block.first_id, n, first) for block, n, first in parts if n]

    def numbered(self, parsed: Parsed, order: Order, epoch: int) -> Any:
        """The rows, which know their stable numbers, in visiting order if they are features already."""
        rows, ids, first_id = parsed.rows, None, self.blocks[0].first_id
        if len(self.blocks) > 1:
            firsts = np.array([block.first_id for block in self.blocks])
            ids = RowIds(np.cumsum([0, *parsed.counts[:-1]]), firsts)
        if isinstance(rows, RawBatch):
            return replace(rows, first_id=first_id, ids=ids, place=self.place)
        rows = replace(rows, first_id=first_id if ids is None else 0, ids=ids)
        permuted = order.permute(rows.n_rows, epoch, ROWS, *self.place)
        return rows if permuted is None else rows.visit(permuted)


class LineSource(Source):
    """Rows from text files, whose blocks are visited in groups. A format gives `parse` and `recipe`.

    Attributes
    ----------
    files : list of TextFile
    """

    def __init__(self, files: list[TextFile], on_bad_line: str = "error", with_labels: bool = True) -> None:
        self.files = files
        self.on_bad_line = choice("on_bad_line", on_bad_line, ON_BAD_LINE)
        self.with_labels = with_labels
        self.skipped = Skipped()  # shared by all copies
        self.parts: tuple[tuple[int, int], ...] = ()  # (shard, of how many), the coarsest first

    @abstractmethod
    def parse(self, blocks: list[Block]) -> Parsed:
        """The rows of some blocks of whole lines, the last line of each perhaps without its newline.

        Runs in several threads at once. Unless on_bad_line is "skip", nothing behind a bad line need be parsed.
        """

    def prepare(self) -> None:
        """Called when reading starts, to resolve what depends on the data."""

    def record_names(self, names: Any) -> None:
        """Hook: records the names that `parse` found, once all earlier rows were learned."""

    def stream(self, file: TextFile) -> Iterator[Block] | None:
        """The blocks of a file one after the other, where they cannot be read in any order; None where they can."""
        return None if file.seekable else file.stream()

    def fingerprint(self) -> dict[str, Any]:
        """The files and what decides which rows come from them; a format adds what its recipe leaves out."""
        described = [file.fingerprint() for file in self.files]
        self.prepare()
        return {
            "files": described,
            "block_bytes": text_files.BLOCK_BYTES,  # rows are numbered by it
            "recipe": self.recipe,
            "on_bad_line": self.on_bad_line,
            "with_labels": self.with_labels,
            "parts": self.parts,
        }

    def shards(self, n: int) -> list[Source]:
        """N sources that together hold each line exactly once."""
        n = whole("shards", n, 1)
        n_blocks = sum(file.n_blocks() for file in self.files) // math.prod(of for _, of in self.parts)
        if n_blocks < SHARD_BLOCKS * n:
            return super().shards(n)
        shards = [self.copy() for _ in range(n)]
        for number, shard in enumerate(shards):
            shard.parts = (*self.parts, (number, n))
        return list(shards)

    def read(self, order: Order, epoch: int) -> Iterator[Chunk]:
        """Yields one chunk per group of blocks."""
        return self.batches(order, epoch)

    def batches(self, order: Order, epoch: int) -> Generator[Any, None, None]:
        """Yields the rows of each group of blocks, parsed or raw, in reading order."""
        self.prepare()
        skip = self.on_bad_line == "skip"

        def make(group: _Group) -> tuple[Any, Any, Any]:
            parsed = self.parse(group.blocks)
            return group.bad_lines(parsed, skip), parsed.names, group.numbered(parsed, order, epoch)

        threads = min(PARSING_THREADS, os.cpu_count() or 1)
        any_row = False
        with closing(map_ahead(make, self._groups(order, epoch), threads=threads, ahead=QUEUE_CHUNKS)) as made:
            for bad, names, rows in made:
                for block_bad in bad:
                    self.skipped.add(*block_bad)
                if names is not None:
                    self.record_names(names)
                if rows.n_rows:
                    any_row = True
                    yield rows
        if not any_row and not self.parts:
            raise self.no_rows()

    def first_batch(self) -> Any:
        """The rows of the first block that has any, for which no other block is read; None if there are none."""
        self.prepare()
        for block in self.all_blocks():
            group = _Group([block], (block.file.position, 0))
            parsed = self.parse(group.blocks)
            group.bad_lines(parsed, self.on_bad_line == "skip")
            if parsed.rows.n_rows:
                return group.numbered(parsed, Order(), 0)
        return None

    def all_blocks(self) -> Iterator[Block]:
        """Yields the blocks of all files, one after the other."""
        for file in self.files:
            yield from self._blocks([file], Order(), 0)

    def collect_labels(self, labels_of: Callable[[Block], set[str]]) -> list[str]:
        """Collects the labels of multi-label data in a pass over the files."""
        if self.read_once:
            raise DataError(
                f"{self.read_once} can be read only once, so its labels cannot be collected; pass labels=[...]"
            )
        return sorted(set[str]().union(*map(labels_of, self.all_blocks())))

    def no_rows(self) -> DataError:
        """The error for files without a row."""
        if self.skipped.n:
            return DataError(
                f"{self.describe()}: none of the {self.skipped.n} lines can be read, "
                f"the first because: {self.skipped.examples[0]}; check the format of the data"
            )
        return DataError(f"{self.describe()}: it has no rows; give a file with data")

    def _groups(self, order: Order, epoch: int) -> Iterator[_Group]:
        """Blocks to be parsed and shuffled together."""
        for files in self._passes(order, epoch):
            blocks = self._blocks(files, order, epoch)
            for number in count():
                group = list(islice(blocks, GROUP_BLOCKS))
                if not group:
                    break
                yield _Group(group, (files[0].position, number))

    def _passes(self, order: Order, epoch: int) -> list[list[TextFile]]:
        """Files whose blocks are mixed with each other."""
        if order.shuffle == "never":
            return [[file] for file in self.files]
        seekable = [file for file in self.files if file.seekable]
        passes = [seekable] * bool(seekable) + [[file] for file in self.files if not file.seekable]
        return [passes[i] for i in order.generator(epoch, FILES).permutation(len(passes))]

    def _blocks(self, files: list[TextFile], order: Order, epoch: int) -> Iterator[Block]:
        streams = [self.stream(file) for file in files]
        if streams[0] is not None:
            for block in (block for stream in streams if stream is not None for block in stream):
                if self._holds(np.array([block.file.position + block.number])).all():
                    yield block
            return
        counts = [file.n_blocks() for file in files]
        which = np.repeat(np.arange(len(files)), counts)
        numbers = np.concatenate([np.arange(n) for n in counts])
        positions = np.array([file.position for file in files])
        mine = np.flatnonzero(self._holds(positions[which] + numbers))
        if order.shuffle != "never":
            mine = order.generator(epoch, BLOCKS, files[0].position).permutation(mine)
        for place in mine:
            block = files[which[place]].read_block(int(numbers[place]))
            if len(block.text):
                yield block

    def _holds(self, places: Array) -> Array:
        """Which blocks, by file number + block number, belong to this shard."""
        held = np.ones(len(places), bool)
        for shard, n in self.parts:
            held &= places % n == shard
            places = places // n
        return held

    def refuse_rows(self, row_ids: Sequence[int], faults: Sequence[str], remedy: str) -> None:
        """Rows of one chunk that were read well but cannot be used: an error, or counted if bad lines are skipped."""
        first = zip(row_ids[:EXAMPLES], faults[:EXAMPLES], strict=True)
        examples = [self._fault_of_row(row_id, fault) for row_id, fault in first]
        if self.on_bad_line != "skip":
            raise DataError(f"{examples[0]}; {remedy}")
        places = [((fault.file.position, fault.offset), fault) for fault in examples]
        self.skipped.add(-1 - row_ids[0], len(row_ids), places)  # below zero: no block has such a number

    def _fault_of_row(self, row_id: int, fault: str) -> _LineFault:
        """The line of a row. Rows do not carry it, so the block is read again, and cut until the row is its last."""
        self.prepare()
        position, number, row = split_row_id(row_id)
        file = next(file for file in self.files if file.position == position)
        if file.once:
            return _LineFault(file, 0, None, f"{fault} (row {row} of part {number})")
        blocks = [file.read_block(number)] if file.seekable else file.stream()
        block = next(block for block in blocks if block.number == number)
        text = bytes(block.text)
        ends = [*(np.flatnonzero(np.frombuffer(text, np.uint8) == ord("\n")) + 1).tolist(), len(text)]

        def holds_row(line: int) -> bool:
            try:
                return bool(self.parse([replace(block, text=text[: ends[line]])]).rows.n_rows > row)
            except DataError:  # cut inside a row of several lines
                return False

        line = bisect_left(range(len(ends) - 1), True, key=holds_row)
        offset = ends[line - 1] if line else 0
        return _LineFault(file, block.start + offset, block.line_number(offset), fault)


def bad_lines(faults: Faults, texts: Sequence[Text], places: Sequence[tuple[Any, ...]], **more: Any) -> list[BadLine]:
    """The bad lines that a kernel found: (text, start of the line, start of the token, its length, fault) each."""
    found = []
    for text, line, token, length, fault in places:
        what, remedy = faults[fault]
        shown = bytes(texts[text][token : token + min(length, TOKEN_CHARACTERS)]).decode("utf-8", "backslashreplace")
        what = what.format(token=shown + "..." if length > TOKEN_CHARACTERS else shown, **more)
        found.append(BadLine(text, line, what, remedy) if remedy else BadLine(text, line, what))
    return found
