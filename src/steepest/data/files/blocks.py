"""Text files as blocks of whole lines, read in any order, in constant memory.

A text is laid out on a grid of BLOCK_BYTES: block i holds the lines that start in bytes [i*B, (i+1)*B). Every line is
in exactly one block, and a block can be read without the others, so files can be sharded and shuffled. Text that
cannot be sought (gz, bz2, zst, pipes, standard input) is cut on the same grid while it streams by: a file and its
compressed copy have the same blocks. A row's number, (file, block, row in the block), is stable whatever the order.

`map_ahead` works on blocks in threads of its own, a few results ahead of whoever consumes them. Items are taken one at
a time, in order, by whichever thread is free; the function runs in all threads at once. Results come in the order of
the items, so threads change nothing but the time. What the items or the function raise is raised in the place of the
result. When the consumer stops, so do the threads: they are stopped at once, and waited for.
"""

from __future__ import annotations

import glob
import gzip
import itertools
import os
import stat
import sys
import threading
import zlib
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from itertools import count
from typing import IO, Any, Generic, TypeVar

import numpy as np

from steepest.data.files.packing import LONGEST_MARK, packing_of, unpacked
from steepest.data.files.remote import NO_WAIT, Status, is_remote, matching, open_bytes, status
from steepest.errors import DataError
from steepest.parameters import did_you_mean

# Large enough that seeking and calling cost nothing, small enough that shuffled blocks mix and stay in cache.
BLOCK_BYTES = 1 << 20
# A line that goes on for more than this behind its block is not a line: the file is binary, or lost its newlines.
LINE_LIMIT = 256 << 20
# Read beyond a block in the hope that its last line ends there.
_SPARE_BYTES = 1 << 14
_BLOCK_BITS, _ROW_BITS = 20, 24
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"

Text = bytes | memoryview
Paths = str | os.PathLike[str] | IO[Any] | Iterable[str | os.PathLike[str] | IO[Any]]


@dataclass(frozen=True, slots=True)
class Block:
    """Whole lines of one file, from byte `start` of its text on. Streams know how many lines came before."""

    file: TextFile
    number: int
    start: int
    text: Text
    lines_before: int | None = None

    @property
    def first_id(self) -> int:
        """The stable number of the block's first row."""
        return (((self.file.position << _BLOCK_BITS) + self.number) << _ROW_BITS) & 0x7FFF_FFFF_FFFF_FFFF

    def line_number(self, offset: int) -> int | None:
        """The line, counted from 1, at a byte of the block; None if that takes another pass over the file."""
        if self.lines_before is None:
            return None
        return self.lines_before + _count_lines(self.text[:offset]) + 1


def split_row_id(row_id: int) -> tuple[int, int, int]:
    """(position of the file, number of the block, number in the block) of a row."""
    block, row = divmod(row_id, 1 << _ROW_BITS)
    return block >> _BLOCK_BITS, block & ((1 << _BLOCK_BITS) - 1), row


class TextFile:
    """One file, pipe or standard input ("-"), the `position`-th of its source."""

    def __init__(self, path: str, position: int = 0, stream: IO[Any] | None = None) -> None:
        """`stream` is an open file object, of bytes or of text, that is read once."""
        self.path = path
        self.position = position
        self.name = "standard input" if path == "-" else path
        self.is_remote = is_remote(path)
        self._stream = stream
        self.size: int | None = None
        self.packing = ""
        self.once = True
        self._opened = False
        self._waiting: Iterator[bytes] | None = None
        if path != "-" and stream is None:
            self._inspect()

    @property
    def seekable(self) -> bool:
        """Whether blocks can be read in any order."""
        return not self.once and not self.packing

    def n_blocks(self) -> int:
        """How many blocks the file has now (it may have grown); of a packed one at least so many, of a pipe 0."""
        return 0 if self.once else -(-self._status().st_size // BLOCK_BYTES)

    def fingerprint(self) -> list[str | int]:
        """Path, size and time of the last change, by which the same content is known again."""
        if self.once:
            raise DataError(f"{self.name} can be read only once, so it cannot be cached; save it in a file first")
        found = self._status()
        return [self.path, found.st_size, found.st_mtime_ns]

    def read_block(self, number: int) -> Block:
        """One block of a seekable file; its text is empty if no line starts in it."""
        start = number * BLOCK_BYTES
        lead = 1 if number else 0  # the byte before shows whether a line starts at the first byte
        try:
            with self._bytes() as raw:
                raw.seek(start - lead)
                data = _read_fully(raw, lead + BLOCK_BYTES + _SPARE_BYTES)
                first = data.find(b"\n", 0, lead + BLOCK_BYTES) + 1 if lead else _mark_length(data)
                if not data:
                    raise DataError(f"{self.name} became shorter while it was read; do not change it during training")
                if lead and first in (0, lead + BLOCK_BYTES):
                    return Block(self, number, start, b"")
                data, stop = self._gather(_growing_pieces(raw), data, lead + BLOCK_BYTES - 1, None, start - lead)
        except OSError as error:
            raise self._explain(error) from error
        return Block(self, number, start - lead + first, memoryview(data)[first:stop])

    def stream(self) -> Generator[Block, None, None]:
        """Yields all blocks, one after the other."""
        start = lines = 0
        text: bytes = b""
        pieces = self.pieces()
        while True:
            number = start // BLOCK_BYTES
            text, stop = self._gather(pieces, text, (number + 1) * BLOCK_BYTES - start - 1, lines)
            if not text:
                return
            skip = 0 if start else _mark_length(text)
            block = memoryview(text)[skip:stop]
            if len(block):
                yield Block(self, number, start + skip, block, lines)
            lines += _count_lines(block)
            start += stop
            text = text[stop:]

    def pieces(self) -> Iterator[bytes]:
        """The unpacked bytes in pieces of any size."""
        waiting, self._waiting = self._waiting, None
        return waiting if waiting is not None else self._open()

    def head(self, n_bytes: int) -> bytes:
        """The first bytes, unpacked. A pipe gives them again when it is read."""
        pieces = self.pieces()
        taken: list[bytes] = []
        while sum(map(len, taken)) < n_bytes and (piece := self._next(pieces, taken, 0)):
            taken.append(piece)
        if self.once:
            self._waiting = itertools.chain(taken, pieces)
        elif isinstance(pieces, Generator):
            pieces.close()
        head = b"".join(taken)
        return head[_mark_length(head) : n_bytes]

    def line_number(self, offset: int) -> int | None:
        """The line, counted from 1, at a byte of a seekable file; None if the file is gone."""
        lines = 1
        try:
            with self._bytes() as raw:
                while offset > 0 and (data := raw.read(min(offset, BLOCK_BYTES))):
                    lines += data.count(b"\n")
                    offset -= len(data)
        except OSError:
            return None
        return lines

    def _status(self) -> Status | os.stat_result:
        try:
            return status(self.path)
        except OSError as error:
            raise self._explain(error) from error

    def _inspect(self) -> None:
        found = self._status()
        if stat.S_ISDIR(found.st_mode):
            raise DataError(f"{self.name} is a directory; name its files, for example {os.path.join(self.name, '*')!r}")
        self.once = not stat.S_ISREG(found.st_mode)
        if not self.once:
            self.size = found.st_size
            try:
                with self._bytes() as raw:
                    self.packing = packing_of(raw.read(LONGEST_MARK))
            except OSError as error:
                raise self._explain(error) from error

    def _open(self) -> Generator[bytes, None, None]:
        if self.once and self._opened:
            raise DataError(
                f"{self.name} can be read only once; save it in a file to read it in several epochs or parts"
            )
        self._opened = True
        with self._opening() as raw:
            start = _read_fully(raw, LONGEST_MARK)
            yield from unpacked(_Resumed(start, raw), packing_of(start))

    def _opening(self) -> Any:
        if self._stream is not None:
            return nullcontext(_Bytes(self._stream))
        return _standard_input() if self.path == "-" else self._bytes()

    def _bytes(self) -> IO[bytes]:
        if self.is_remote:
            return open_bytes(self.path)
        extra = 0 if self.once else NO_WAIT  # a pipe may have taken the name of a file
        return open(self.path, "rb", buffering=0, opener=lambda name, flags: os.open(name, flags | extra))

    def _gather(
        self, pieces: Iterator[bytes], text: bytes, last: int, lines: int | None, offset: int = 0
    ) -> tuple[bytes, int]:
        """The text and more, and where in it the line that holds byte `last` ends: there, or with the stream.

        For messages: how many lines came before, or None if they are to be counted up to a byte of the file.
        """
        stop = text.find(b"\n", last) + 1
        parts, size = [text], len(text)
        while True:
            if (stop or size) - last > LINE_LIMIT:
                before = (self.line_number(offset) or 1) - 1 if lines is None else lines
                line = before + b"".join(parts).count(b"\n", 0, last) + 1
                fault = f"the line is longer than {LINE_LIMIT} bytes; check that this is a text file"
                raise DataError(f"{self.name}, line {line}: {fault}")
            piece = b"" if stop else self._next(pieces, parts, lines or 0)
            if not piece:
                return b"".join(parts), stop or size
            end = piece.find(b"\n", max(0, last - size)) + 1
            stop = size + end if end else 0
            parts.append(piece)
            size += len(piece)

    def _next(self, pieces: Iterator[bytes], before: list[bytes], lines: int) -> bytes:
        try:
            return next(pieces, b"")
        except (OSError, EOFError, zlib.error) as error:
            raise self._explain(error, lines + sum(map(_count_lines, before))) from error

    def _explain(self, error: Exception, lines: int = 0) -> DataError:
        if isinstance(error, EOFError):
            return DataError(f"{self.name} is cut short after about line {lines}; fetch or write the file again")
        if isinstance(error, FileNotFoundError):
            return DataError(f"{self.name or 'the file with an empty name'} does not exist; {near_file(self.name)}")
        if isinstance(error, gzip.BadGzipFile | zlib.error) or not isinstance(error, OSError) or error.errno is None:
            return DataError(
                f"{self.name} is damaged after about line {lines} ({error}); fetch or write the file again"
            )
        return DataError(f"{self.name} cannot be read ({error.strerror}); check the file and its permissions")


def near_file(path: str) -> str:
    """What to do about a file that does not exist, with a file beside it that has almost this name."""
    if path.startswith(("http://", "https://")):
        return "web addresses are not read, so download the file first"
    if is_remote(path):
        return "check the name"
    directory = os.path.dirname(path)
    try:
        names = [entry.name for entry in itertools.islice(os.scandir(directory or "."), 10_000)]
    except OSError:
        return f"there is no directory {directory!r}; check the name"
    return did_you_mean(os.path.basename(path), names, 0.8) + "check the name"


def open_files(paths: Paths | list[TextFile]) -> list[TextFile]:
    """The files that a path, a pattern, a list of them, or "-" names; they exist, and not all are empty.

    Files that were opened before (to read the head of a pipe, say) are taken as they are.
    """
    one = isinstance(paths, str | os.PathLike | TextFile) or hasattr(paths, "read") or not isinstance(paths, Iterable)
    listed: list[Any] = [paths] if one else list(paths)  # type: ignore[arg-type]
    if listed and all(isinstance(item, TextFile) for item in listed):
        return listed
    found: list[tuple[str, Any]] = []
    for item in listed:
        if hasattr(item, "read"):
            found.append((str(getattr(item, "name", "the file object")), item))
        elif isinstance(item, str | os.PathLike):
            found += [(name, None) for name in _expand(os.fspath(item))]
        else:
            raise DataError(
                f"{type(item).__name__} is not a path or an open file; give rows in memory to fit(X, y), and batches "
                "of them, one by one, to partial_fit(X, y)"
            )
    if not found:
        raise DataError("no file is given; name at least one")
    files = [TextFile(name, position, stream) for position, (name, stream) in enumerate(found)]
    if all(file.size == 0 for file in files):
        raise DataError(f"{describe(files)} {'is' if len(files) == 1 else 'are'} empty; give a file with data")
    return files


def describe(files: Sequence[TextFile]) -> str:
    """The files' names, in short."""
    if len(files) == 1:
        return files[0].name
    return f"{files[0].name} and {len(files) - 1} other file{'s' if len(files) > 2 else ''}"


def _expand(path: str) -> list[str]:
    if is_remote(path):
        try:
            found = matching(path)
        except OSError as error:
            raise DataError(f"{path} cannot be listed ({error.strerror}); check the address and the access") from None
    elif path == "-" or not glob.has_magic(path) or os.path.exists(path):
        return [path]
    else:
        found = sorted(name for name in glob.glob(path, recursive=True) if not os.path.isdir(name))
    if not found:
        raise DataError(f"no file matches {path!r}; check the pattern")
    return found


def _count_lines(text: Text) -> int:
    return int(np.count_nonzero(np.frombuffer(text, np.uint8) == ord("\n")))


def _mark_length(data: bytes) -> int:
    return len(_BYTE_ORDER_MARK) if data.startswith(_BYTE_ORDER_MARK) else 0


def _read_fully(raw: IO[bytes], n_bytes: int) -> bytes:
    """Reads as many bytes as requested, unless the file ends; a pipe may need several calls."""
    pieces: list[bytes] = []
    while n_bytes > 0 and (data := raw.read(n_bytes)):
        pieces.append(data)
        n_bytes -= len(data)
    return b"".join(pieces)  # one piece is given back as it is, without a copy


def _growing_pieces(raw: IO[bytes]) -> Iterator[bytes]:
    """Yields the following bytes in growing pieces, until the caller finds the end of its line."""
    n_bytes = 2 * _SPARE_BYTES
    while piece := _read_fully(raw, n_bytes):
        yield piece
        n_bytes *= 2


class _Bytes:
    """A file object of text, read as UTF-8 bytes."""

    def __init__(self, stream: IO[Any]) -> None:
        self._stream = stream

    def read(self, n_bytes: int = -1) -> bytes:
        data = self._stream.read(n_bytes)
        return data.encode() if isinstance(data, str) else bytes(data)


class _Resumed:
    """A stream from which some bytes were already taken, as if they had not been."""

    def __init__(self, start: bytes, raw: IO[bytes]) -> None:
        self.start = start
        self.raw = raw

    def read(self, n_bytes: int = -1) -> bytes:
        if not self.start:
            return self.raw.read(n_bytes) or b""
        taken = self.start if n_bytes < 0 else self.start[:n_bytes]
        self.start = self.start[len(taken) :]
        return taken


@contextmanager
def _standard_input() -> Iterator[IO[bytes]]:
    """Opens stdin without Python's buffer, whose lock a waiting thread would hold until the process ends."""
    if sys.stdin is None:
        raise DataError("standard input is closed; name a file")
    buffer: Any = sys.stdin.buffer
    yield getattr(buffer, "raw", buffer)


Item = TypeVar("Item")
Result = TypeVar("Result")

# A thread that waits for a silent pipe cannot be woken; it is left behind after this time and ends with the pipe.
PATIENCE_SECONDS = 1.0


def map_ahead(
    function: Callable[[Item], Result],
    items: Iterator[Item],
    *,
    threads: int = 1,
    ahead: int = 2,
    patience: float | None = PATIENCE_SECONDS,
) -> Generator[Result, None, None]:
    """function(item) for each item, of which up to `ahead` wait finished while `threads` are in the making.

    A consumer that stops waits `patience` seconds for each thread; None: until what it makes is done.
    """
    pipeline = _Pipeline(function, items, ahead + threads)
    workers = _started(pipeline, threads)
    if not workers:
        yield from map(function, items)
        return
    try:
        yield from pipeline.results()
    finally:
        pipeline.stop()
        for worker in workers:
            worker.join(patience)


def _started(pipeline: _Pipeline[Item, Result], threads: int) -> list[threading.Thread]:
    """Starts as many worker threads as memory and the system allow, maybe none."""
    workers: list[threading.Thread] = []
    for _ in range(threads):
        worker = threading.Thread(target=pipeline.work, name="steepest-reader", daemon=True)
        try:
            worker.start()
        except (RuntimeError, MemoryError):  # "can't start new thread"
            break
        workers.append(worker)
    return workers


class _Pipeline(Generic[Item, Result]):
    def __init__(self, function: Callable[[Item], Result], items: Iterator[Item], room: int) -> None:
        self._function = function
        self._items = items
        self._room = room
        self._turn = threading.Lock()  # to take an item
        self._changed = threading.Condition()
        self._made: dict[int, Result | _Failure] = {}
        self._n_taken = self._n_given = 0
        self._closed = False  # no more items: they ended, failed, or nobody needs them

    def work(self) -> None:
        """The loop of each thread."""
        while True:
            with self._turn:
                if not self._wait_for_room():
                    return
                number = self._n_taken
                try:
                    item = next(self._items)
                except StopIteration:
                    self._close()
                    return
                except BaseException as error:  # whatever it is, the consumer must know
                    self._put(number, _Failure(error))
                    return
                self._n_taken += 1
            try:
                made: Result | _Failure = self._function(item)
            except BaseException as error:
                made = _Failure(error)
            self._put(number, made)
            del item, made  # or they would live on while the next item is awaited

    def _wait_for_room(self) -> bool:
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._n_taken - self._n_given < self._room)
            return not self._closed

    def _put(self, number: int, made: Result | _Failure) -> None:
        with self._changed:
            self._made[number] = made
            self._n_taken = max(self._n_taken, number + 1)
            self._closed |= isinstance(made, _Failure)
            self._changed.notify_all()

    def _close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def results(self) -> Iterator[Result]:
        """Yields the results in order; ends or raises where the items do."""
        for number in count():
            with self._changed:
                while number not in self._made:
                    if self._closed and number >= self._n_taken:
                        return
                    self._changed.wait()
                made = self._made.pop(number)
                self._n_given = number + 1
                self._changed.notify_all()
            if isinstance(made, _Failure):
                raise made.error
            yield made
            del made

    def stop(self) -> None:
        """Tells the threads that no more results are needed."""
        with self._changed:
            self._closed = True
            self._made.clear()
            self._changed.notify_all()


class _Failure:
    def __init__(self, error: BaseException) -> None:
        self.error = error
