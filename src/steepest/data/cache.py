"""Rows parsed once and kept on disk: a source whose epochs run at the speed of memory.

The rows of another source are written to one file (see cache_file) in file order, as one CSR block, and mapped. Without
a valid file it is built completely before the first row is given out, so a run visits the same rows in the same order
whether or not the cache was there: the order of rows in memory (`ArraySource`). Rows keep the stable numbers that they
had in the parent, so a holdout has the same sides with and without the cache.
Entries are never copied: a chunk of shuffled rows has row starts, targets and weights of its own, over the mapped file.
Memory: those, beside what the system keeps of the file; shuffle="rows" and "once" take eight bytes a row more.
What an encoder learned while the rows were made (names, counts) stands in the file too, and is given back to it.
"""

from __future__ import annotations

import copy
import json
import os
import threading
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np

from steepest.data import cache_file
from steepest.data.cache_file import UnusableError, Writer
from steepest.data.chunk import Array, Chunk, DataError
from steepest.data.parameters import whole
from steepest.data.source import BLOCK_ROWS, ArraySource, Derived, Order, Source

# Rows of a chunk, and entries, about: calls cost nothing beside so many, and a bar still moves.
CHUNK_ROWS = 1 << 15
CHUNK_ENTRIES = 1 << 21
ENCODER = "encoder."  # marks the arrays of the encoder's state


@dataclass(frozen=True, slots=True)
class RowIds:
    """The stable numbers of all rows, as runs of consecutive numbers."""

    rows: Array = field(default_factory=lambda: np.zeros(1, np.int64))
    ids: Array = field(default_factory=lambda: np.zeros(1, np.int64))

    def of(self, rows: Array) -> Array:
        """The numbers of some rows."""
        run = np.searchsorted(self.rows, rows, side="right") - 1
        return np.asarray(rows - self.rows[run] + self.ids[run])


@dataclass(frozen=True, slots=True)
class CachedChunk(Chunk):
    """Rows from anywhere in the cache; `places` are the block's rows' places in it. `first_id` counts rows cut off."""

    places: Array = field(default_factory=lambda: np.zeros(0, np.int64))
    ids: RowIds = field(default_factory=RowIds)

    @property
    def row_ids(self) -> Array:
        """The visited rows' stable numbers."""
        return self.ids.of(self.places[self.row_numbers + self.first_id])


@dataclass(frozen=True, slots=True)
class SkippedBefore:
    """The bad lines that were passed over when the cache was built."""

    n: int
    examples: list[str]


@dataclass(frozen=True, slots=True)
class _Rows:
    """All rows, mapped."""

    n_features: int
    indptr: Array
    indices: Array
    values: Array
    y: Array | None
    labels: Array | None  # what y stands for, if it holds codes
    weight: Array | None
    ids: RowIds
    skipped: SkippedBefore

    @property
    def n_rows(self) -> int:
        return len(self.indptr) - 1

    def chunk_rows(self) -> int:
        """Rows of a chunk: whole blocks, of about CHUNK_ENTRIES."""
        blocks = CHUNK_ENTRIES * max(1, self.n_rows) // (BLOCK_ROWS * max(1, len(self.indices)))
        return BLOCK_ROWS * min(max(1, blocks), CHUNK_ROWS // BLOCK_ROWS)

    def span(self, start: int, stop: int) -> Chunk:
        """Neighbouring rows, without a copy of their entries."""
        indptr = self.indptr[start : stop + 1]
        first, last = int(indptr[0]), int(indptr[-1])
        return self._chunk(indptr - first, self.indices[first:last], self.values[first:last], np.arange(start, stop))

    def visit(self, starts: Array, length: int) -> Chunk:
        """Runs of rows from all over the file, without a copy of their entries.

        The block holds the runs side by side, each followed by one row that ends it and that is never visited.
        """
        rows = np.add.outer(starts, np.arange(length + 1)).reshape(-1)
        order = np.delete(np.arange(len(rows)), slice(length, None, length + 1))
        indptr = self.indptr[rows]
        places = np.minimum(rows[:-1], self.n_rows - 1)
        return self._chunk(indptr, self.indices, self.values, places).visit(order)

    def _chunk(self, indptr: Array, indices: Array, values: Array, rows: Array) -> Chunk:
        y = None if self.y is None else self.y[rows]
        if y is not None and self.labels is not None:
            y = self.labels[y]
        weight = None if self.weight is None else self.weight[rows]
        return CachedChunk(indptr, indices, values, self.n_features, y, weight, places=rows, ids=self.ids)


class MappedSource(Source):
    """Rows in a cache file, which is opened when it is first needed."""

    _most: int | None = None

    @abstractmethod
    def _open(self) -> _Rows: ...

    @property
    def n_rows(self) -> int:  # type: ignore[override]
        """How many rows there are; makes the cache ready."""
        n_rows = self._open().n_rows
        return n_rows if self._most is None else min(self._most, n_rows)

    @property
    def n_features(self) -> int:  # type: ignore[override]
        """How many columns there are; makes the cache ready."""
        return self._open().n_features

    @property
    def n_entries(self) -> int:
        """How many values all rows of the file have; makes the cache ready."""
        return len(self._open().indices)

    @property
    def skipped(self) -> SkippedBefore:
        """Bad lines passed over when the cache was built; makes the cache ready."""
        return self._open().skipped

    def _copy(self) -> Self:
        return copy.copy(self)  # shares the open file

    def limit(self, n_rows: int) -> Source:
        """The first n rows, in the order of the file."""
        source = self._copy()
        source._most = whole("limit", n_rows, 0) if self._most is None else min(self._most, whole("limit", n_rows, 0))
        return source

    def read(self, order: Order, epoch: int) -> Iterator[Chunk]:
        """Views of the file, some thousands of rows at a time."""
        rows, n_rows = self._open(), self.n_rows
        at_once = rows.chunk_rows()
        runs = order.runs(n_rows, epoch)
        if runs is None:
            for start in range(0, n_rows, at_once):
                yield rows.span(start, min(start + at_once, n_rows))
            return
        for start, stop in runs.edges:
            if start < stop:
                yield rows.span(start, stop)
        n_runs = at_once // runs.length
        for first in range(0, len(runs.starts), n_runs):
            yield rows.visit(runs.starts[first : first + n_runs], runs.length)


class CachedSource(MappedSource):
    """The rows of another source, parsed once; made by `Source.cache`.

    Attributes
    ----------
    note : str
        Why an older cache was not used and built anew, in one sentence; "" if nothing of that kind happened.
    skipped : SkippedBefore
        Bad lines passed over when the cache was built.
    """

    def __init__(self, parent: Source, path: str | os.PathLike[str]) -> None:
        self.parent = parent
        self.labels = parent.labels
        self.order = parent.order
        self.signature = parent.signature
        self._cache = _Cache(parent, os.fspath(path))

    def _open(self) -> _Rows:
        return self._cache.open()

    def refuse_rows(self, row_ids: Sequence[int], faults: Sequence[str], remedy: str) -> None:
        """As the parent does, whose rows have the same numbers."""
        self.parent.refuse_rows(row_ids, faults, remedy)

    @property
    def recipe(self) -> dict[str, Any]:
        """The parent's: how new raw data is to be read."""
        return self.parent.recipe

    @property
    def note(self) -> str:
        """Why an older cache was built anew, if it was."""
        return self._cache.in_use.note

    @property
    def skipped(self) -> SkippedBefore:
        """Bad lines passed over when the cache was built; makes the cache ready."""
        return self._cache.in_use.open().skipped

    @property
    def path(self) -> str:
        """Where the cache is, or will be."""
        return self._cache.path

    def fingerprint(self) -> dict[str, Any]:
        """The parent's: these are its rows."""
        own = self.parent.fingerprint()
        return own if self._most is None else {"limit": self._most, "of": own}

    def open(self) -> Self:
        """Makes the cache ready now: checks the file, or builds it. Otherwise the first use does that."""
        self._cache.open()
        return self

    def over(self, parent: Source) -> CachedSource:
        """The same cache file for another source, which is checked or built when it is first needed."""
        source = CachedSource(parent, self._cache.path)
        source.order, source._most = self.order, self._most
        self._cache.successor = self._cache.successor or source._cache
        return source


class CacheFile(MappedSource):
    """The rows of a cache file by itself, whatever became of the data it was made from; made by `scan_cache`.

    Attributes
    ----------
    encoder_state : (dict, dict of arrays) or None
        What the encoder that made the rows was and had learned; a model takes its hasher from there.
    """

    def __init__(self, path: str, with_labels: bool = True) -> None:
        self.path = path
        self.with_labels = with_labels
        try:
            header, arrays = cache_file.read(path)
            _check_shapes(rows := _as_rows(header, arrays), int(header["n_rows"]))
            self._recipe: dict[str, Any] = dict(header["recipe"])
            state = header["encoder"]
        except FileNotFoundError:
            raise DataError(f"{path} does not exist; check the name") from None
        except UnusableError as reason:
            raise DataError(f"the cache {path} {reason}; make it anew") from None
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise DataError(f"the cache {path} is damaged ({type(error).__name__}); make it anew") from None
        self._rows = rows if with_labels else replace(rows, y=None, weight=None)
        self.encoder_state = None if state is None else (state, _encoder_arrays(arrays))
        self.label_names = header.get("label_names")

    def _open(self) -> _Rows:
        return self._rows

    @property
    def recipe(self) -> dict[str, Any]:
        """How the data that the cache was made from was read."""
        return self._recipe

    def fingerprint(self) -> dict[str, Any]:
        """The file itself."""
        status = os.stat(self.path)
        own = {"files": [[self.path, status.st_size, status.st_mtime_ns]], "with_labels": self.with_labels}
        return own if self._most is None else {"limit": self._most, "of": own}


def scan_cache(path: Any, *, with_labels: bool = True) -> CacheFile:
    """Rows of a cache file, made by `Source.cache` or `steepest convert`, mapped and ready to learn from."""
    names = [getattr(item, "path", item) for item in ([path] if isinstance(path, str | os.PathLike) else list(path))]
    if len(names) != 1:
        raise DataError(f"{len(names)} caches are given; a source has one, so convert all data to one cache")
    return CacheFile(os.fspath(names[0]), with_labels)


def is_cache(path: str) -> bool:
    """Whether a file begins like a cache."""
    try:
        with open(path, "rb") as file:
            return file.read(len(cache_file.MAGIC)) == cache_file.MAGIC
    except OSError:
        return False


class _Cache:
    """The file, opened or built when it is first needed, and shared by all copies of a source."""

    def __init__(self, parent: Source, path: str) -> None:
        self.parent = parent
        self.path = path
        self.note = ""
        self.successor: _Cache | None = None  # the same file, for the same rows encoded
        self._rows: _Rows | None = None
        self._turn = threading.Lock()
        root = parent
        while isinstance(root, Derived | CachedSource):
            root = root.parent
        self._encoder: Any = getattr(root, "encoder", None)
        if isinstance(root, ArraySource):
            raise DataError("these rows do not come from files, so they cannot be cached; they are in memory already")
        parent.fingerprint()  # refuses at once what cannot be known again

    @property
    def in_use(self) -> _Cache:
        """What is read in truth."""
        return self if self.successor is None else self.successor

    def open(self) -> _Rows:
        with self._turn:
            if self._rows is None:
                self._rows = self._load()
            return self._rows

    def _load(self) -> _Rows:
        fingerprint = _fingerprint(self.parent)
        try:
            rows, state = _read(self.path, fingerprint)
            if state is not None and hasattr(self._encoder, "restore"):
                self._encoder.restore(*state)
            return rows
        except FileNotFoundError:
            note = ""
        except UnusableError as reason:
            note = f"the cache {self.path} {reason}: rebuilt"
        _build(self.parent, self.path, fingerprint, self._encoder)
        self.note = note
        try:
            return _read(self.path, fingerprint)[0]
        except (FileNotFoundError, UnusableError):
            raise DataError(
                f"the cache {self.path} was replaced by another program; give each program a cache of its own"
            ) from None


def _fingerprint(source: Source) -> dict[str, Any]:
    """As it comes back from a file."""
    return dict(json.loads(json.dumps({"source": source.fingerprint(), "signature": source.signature})))


EncoderState = tuple[dict[str, Any], dict[str, Array]]


def _read(path: str, fingerprint: dict[str, Any]) -> tuple[_Rows, EncoderState | None]:
    header, arrays = cache_file.read(path)
    try:
        _check_origin(header["fingerprint"], fingerprint)
        rows = _as_rows(header, arrays)
        _check_shapes(rows, header["n_rows"])
        state = header["encoder"]
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise UnusableError(f"is damaged ({type(error).__name__})") from None
    return rows, None if state is None else (state, _encoder_arrays(arrays))


def _check_shapes(rows: _Rows, n_rows: int) -> None:
    if rows.indptr[0] != 0 or not rows.indptr[-1] == len(rows.indices) == len(rows.values):
        raise ValueError
    per_row = [len(column) for column in (rows.y, rows.weight) if column is not None]
    if any(n != n_rows for n in [rows.n_rows, *per_row]):
        raise ValueError


def _encoder_arrays(arrays: dict[str, Array]) -> dict[str, Array]:
    return {name.removeprefix(ENCODER): array for name, array in arrays.items() if name.startswith(ENCODER)}


def _as_rows(header: dict[str, Any], arrays: dict[str, Array]) -> _Rows:
    labels = header["labels"]
    return _Rows(
        n_features=int(header["n_features"]),
        indptr=arrays["indptr"],
        indices=arrays["indices"],
        values=arrays["values"],
        y=arrays.get("y"),
        labels=None if labels is None else np.array(labels, object if header["labels_as_objects"] else np.str_),
        weight=arrays.get("weight"),
        ids=RowIds(arrays["run_rows"], arrays["run_ids"]),
        skipped=SkippedBefore(int(header["skipped"]["n"]), list(header["skipped"]["examples"])),
    )


def _check_origin(stored: dict[str, Any], wanted: dict[str, Any]) -> None:
    if stored == wanted:
        return
    old, new = _files(stored["source"]), _files(wanted["source"])
    if [file[0] for file in old] != [file[0] for file in new]:
        raise UnusableError("was made from other files")
    changed = [file[0] for file, before in zip(new, old, strict=True) if file != before]
    if changed:
        raise UnusableError(f"was made from an older {changed[0]}")
    raise UnusableError("was made with other options")


def _files(source: dict[str, Any]) -> list[list[Any]]:
    while "of" in source:
        source = source["of"]
    return list(source["files"])


# -------------------------------------------------------------------------------------------------------- building


def _build(parent: Source, path: str, fingerprint: dict[str, Any], encoder: Any) -> None:
    if any(os.path.exists(path) and os.path.samefile(path, file[0]) for file in _files(fingerprint["source"])):
        raise DataError(f"the cache {path} would overwrite the data; choose another name")
    with cache_file.writing(path) as writer, closing(_chunks(parent)) as chunks:
        recorder = _Recorder(writer)
        for chunk in chunks:
            recorder.add(chunk)
        if _fingerprint(parent) != fingerprint:
            raise DataError(f"the data changed while the cache {path} was built; leave it alone and start again")
        state, arrays = encoder.state() if hasattr(encoder, "state") else (None, {})
        for name, array in arrays.items():
            writer.append(ENCODER + name, array, array.dtype.str)
        writer.finish(
            {
                **recorder.header(),
                "n_features": max(recorder.n_features, parent.n_features or 0),
                "fingerprint": fingerprint,
                "recipe": parent.recipe,
                "label_names": _label_names(parent),
                "encoder": state,
                "skipped": _skipped(parent),
            }
        )


def _chunks(source: Source) -> Any:
    yield from source.read(Order(), 0)


def _skipped(source: Source) -> dict[str, Any]:
    while not hasattr(source, "skipped") and hasattr(source, "parent"):
        source = source.parent
    skipped = getattr(source, "skipped", None)
    return {"n": 0, "examples": []} if skipped is None else {"n": skipped.n, "examples": skipped.examples}


def _label_names(source: Source) -> list[str] | None:
    while not hasattr(source, "label_names") and hasattr(source, "parent"):
        source = source.parent
    return getattr(source, "label_names", None)


class _Recorder:
    """Chunks, written one after the other."""

    def __init__(self, writer: Writer) -> None:
        self.n_features = 0
        self._writer = writer
        self._n_rows = self._n_entries = 0
        self._next_id: int | None = None
        self._labels: dict[str, int] | None = None
        self._labels_as_objects = False
        self._has_y: bool | None = None
        self._weighted = False
        for name, dtype in (("indices", "<i4"), ("values", "<f4")):
            writer.append(name, np.zeros(0), dtype)
        writer.append("indptr", np.zeros(1, np.int64), "<i8")
        for name in ("run_rows", "run_ids"):
            writer.append(name, np.zeros(0, np.int64), "<i8")

    def add(self, chunk: Chunk) -> None:
        """The visited rows of a chunk."""
        if not chunk.n_rows:
            return
        self._add_ids(chunk.row_ids)
        rows = chunk if chunk.order is None else chunk.packed()
        first, last = int(rows.indptr[0]), int(rows.indptr[-1])
        self._writer.append("indices", rows.indices[first:last], "<i4")
        self._writer.append("values", rows.values[first:last], "<f4")
        self._writer.append("indptr", rows.indptr[1:] + (self._n_entries - first), "<i8")
        self._add_targets(rows.y)
        self._add_weights(rows.weight, rows.n_rows)
        self._n_rows += rows.n_rows
        self._n_entries += last - first
        self.n_features = max(self.n_features, rows.n_features)

    def header(self) -> dict[str, Any]:
        """What the arrays do not say themselves."""
        labels = None if self._labels is None else list(self._labels)
        return {"n_rows": self._n_rows, "labels": labels, "labels_as_objects": self._labels_as_objects}

    def _add_ids(self, ids: Array) -> None:
        breaks = np.flatnonzero(np.diff(ids) != 1) + 1
        if self._next_id is None or ids[0] != self._next_id:
            breaks = np.concatenate([[0], breaks])
        self._writer.append("run_rows", self._n_rows + breaks, "<i8")
        self._writer.append("run_ids", ids[breaks], "<i8")
        self._next_id = int(ids[-1]) + 1

    def _add_targets(self, y: Array | None) -> None:
        textual = y is not None and y.dtype.kind not in "biuf"
        if self._has_y is None:
            self._has_y = y is not None
            self._labels = {} if textual else None
        if self._has_y != (y is not None) or (self._labels is not None) != textual:
            raise DataError(f"targets change their kind behind row {self._n_rows}; give all rows numbers, or all texts")
        if y is None:
            return
        if self._labels is None:
            self._writer.append("y", y, "<f8")
            return
        self._labels_as_objects = y.dtype.kind == "O"
        self._writer.append("y", _coded(self._labels, y.tolist()), "<i4")

    def _add_weights(self, weight: Array | None, n_rows: int) -> None:
        if weight is not None and not self._weighted:
            self._weighted = True
            for start in range(0, self._n_rows, CHUNK_ROWS):  # the rows before had none
                self._writer.append("weight", np.ones(min(CHUNK_ROWS, self._n_rows - start)), "<f8")
        if self._weighted:
            self._writer.append("weight", np.ones(n_rows) if weight is None else weight, "<f8")


def _coded(labels: dict[str, int], y: Sequence[Any]) -> Array:
    """Texts as numbers, new ones in the order in which they come."""
    for label in dict.fromkeys(y):
        if not isinstance(label, str):
            raise DataError(f"the target {label!r} is neither a number nor a text; only these can be cached")
        labels.setdefault(label, len(labels))
    return np.array([labels[label] for label in y], np.int32)
