"""Rows parsed once and stored in a named file: a source whose epochs run at the speed of memory.

The rows of another source are written to one file (see row_file) in file order, as one CSR block, and mapped. Without
a valid file it is built completely before the first row is given out, so a run visits the same rows in the same order
whether or not the cache was there: the order of rows in memory (`ArraySource`). Rows keep the stable numbers that they
had in the parent, so a holdout has the same sides with and without the cache.
Memory: row starts, targets and weights of a chunk, beside what the system keeps of the file; shuffle="rows" and "once"
take eight bytes per row more.
What an encoder learned while the rows were made (names, counts) is in the file too, and is given back to it.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from contextlib import closing
from typing import Any, Self

from steepest.data.chunk import Array, Chunk
from steepest.data.skipped import Skipped
from steepest.data.source import ArraySource, Derived, Order, Source
from steepest.data.store import row_file
from steepest.data.store.row_file import UnusableError
from steepest.data.store.rows import FileRecorder, StoredRows
from steepest.errors import DataError
from steepest.parameters import whole

ENCODER = "encoder."  # marks the arrays of the encoder's state
EncoderState = tuple[dict[str, Any], dict[str, Array]]


class CachedSource(Derived):
    """The rows of another source, parsed once; made by `Source.cache`.

    Attributes
    ----------
    note : str
        Why an older cache was not used and built anew, in one sentence; "" if nothing of that kind happened.
    skipped : Skipped
        Bad lines passed over when the cache was built.
    """

    holds_rows = True

    def __init__(self, parent: Source, path: str | os.PathLike[str]) -> None:
        super().__init__(parent)
        self.file = _Cache(parent, os.fspath(path))
        self.most: int | None = None

    def _rows(self) -> StoredRows:
        return self.file.open().first(self.most)

    @property
    def n_rows(self) -> int:  # type: ignore[override]
        """The number of rows; builds the cache if necessary."""
        return self._rows().n_rows

    @property
    def n_features(self) -> int:  # type: ignore[override]
        """The number of columns; builds the cache if necessary."""
        return self._rows().block.n_features

    @property
    def n_entries(self) -> int:
        """The number of stored values; builds the cache if necessary."""
        return self._rows().n_entries

    @property
    def note(self) -> str:
        """Why an older cache was built again, or ""."""
        return self.file.in_use.note

    @property
    def skipped(self) -> Skipped:  # type: ignore[override]
        """Lines that were skipped when the cache was built; builds it if necessary."""
        return self.file.in_use.open().skipped

    @property
    def path(self) -> str:
        """The path of the cache file."""
        return self.file.path

    def limit(self, n_rows: int) -> Source:
        """The first n rows, in the order of the file."""
        source = self.copy()
        source.most = min(whole("limit", n_rows, 0), n_rows if self.most is None else self.most)
        return source

    def read(self, order: Order, epoch: int) -> Iterator[Chunk]:
        """Yields views of the file; builds the cache if necessary."""
        return self._rows().read(order, epoch)

    def fingerprint(self) -> dict[str, Any]:
        """The parent's fingerprint: the rows are the same."""
        own = self.parent.fingerprint()
        return own if self.most is None else {"limit": self.most, "of": own}

    def open(self) -> Self:
        """Checks the cache file now, or builds it; otherwise the first use does that."""
        self.file.open()
        return self

    def over(self, parent: Source) -> CachedSource:
        """The same cache file for another source; it is checked or built at the first use."""
        source = CachedSource(parent, self.file.path)
        source.order, source.most = self.order, self.most
        self.file.successor = self.file.successor or source.file
        return source


class CacheFile(Source):
    """The rows of a cache file alone, without the data that it was made from; made by `scan_cache`.

    Attributes
    ----------
    encoder_state : (dict, dict of arrays) or None
        What the encoder that made the rows was and had learned; a model takes its hasher from there.
    """

    holds_rows = True

    def __init__(self, path: str, with_labels: bool = True) -> None:
        self.path = path
        self.with_labels = with_labels
        try:
            header, columns = row_file.read(path)
            rows = StoredRows.from_file(header, columns)
            self._recipe: dict[str, Any] = dict(header["recipe"])
            self.encoder_state = _encoder_state(header, columns)
        except FileNotFoundError:
            raise DataError(f"{path} does not exist; check the name") from None
        except UnusableError as reason:
            raise DataError(f"the cache {path} {reason}; build it again") from None
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise DataError(f"the cache {path} is damaged ({type(error).__name__}); build it again") from None
        self._label_names: list[str] | None = header.get("label_names")
        self.most: int | None = None
        self.rows = rows if with_labels else rows.without_labels()
        self.skipped = rows.skipped
        self.n_rows, self.n_features = rows.n_rows, rows.block.n_features

    def limit(self, n_rows: int) -> Source:
        """The first n rows, in the order of the file."""
        source = self.copy()
        source.rows = self.rows.first(whole("limit", n_rows, 0))
        source.n_rows = source.most = source.rows.n_rows
        return source

    def read(self, order: Order, epoch: int) -> Iterator[Chunk]:
        """Yields views of the file."""
        return self.rows.read(order, epoch)

    @property
    def n_entries(self) -> int:
        """The number of stored values."""
        return self.rows.n_entries

    @property
    def label_names(self) -> list[str] | None:
        """The labels of a multi-label target."""
        return self._label_names

    @property
    def recipe(self) -> dict[str, Any]:
        """The recipe of the data that the cache was made from."""
        return self._recipe

    def fingerprint(self) -> dict[str, Any]:
        """The path, size and time of the file itself."""
        status = os.stat(self.path)
        own = {"files": [[self.path, status.st_size, status.st_mtime_ns]], "with_labels": self.with_labels}
        return own if self.most is None else {"limit": self.most, "of": own}


def scan_cache(path: Any, *, with_labels: bool = True) -> CacheFile:
    """Opens a cache file, made by `Source.cache` or `steepest convert`, as a source of parsed rows."""
    names = [getattr(item, "path", item) for item in ([path] if isinstance(path, str | os.PathLike) else list(path))]
    if len(names) != 1:
        raise DataError(f"{len(names)} caches are given; a source has one, so convert all data to one cache")
    return CacheFile(os.fspath(names[0]), with_labels)


class _Cache:
    """The file, opened or built when it is first needed, and shared by all copies of a source."""

    def __init__(self, parent: Source, path: str) -> None:
        self.parent = parent
        self.path = path
        self.note = ""
        self.successor: _Cache | None = None  # the same file, for the same rows encoded
        self._rows: StoredRows | None = None
        self._turn = threading.Lock()
        if isinstance(parent.root, ArraySource):
            raise DataError("these rows do not come from files, so they cannot be cached; they are in memory already")
        parent.fingerprint()  # refuses at once what cannot be known again

    @property
    def in_use(self) -> _Cache:
        """What is really read."""
        return self if self.successor is None else self.successor

    def open(self) -> StoredRows:
        with self._turn:
            if self._rows is None:
                self._rows = self._load()
            return self._rows

    def _load(self) -> StoredRows:
        fingerprint = _fingerprint(self.parent)
        encoder = self.parent.root.encoder
        try:
            rows, state = _read(self.path, fingerprint)
            if state is not None and hasattr(encoder, "restore"):
                encoder.restore(*state)
            return rows
        except FileNotFoundError:
            note = ""
        except UnusableError as reason:
            note = f"the cache {self.path} {reason}: rebuilt"
        _build(self.parent, self.path, fingerprint, encoder)
        self.note = note
        try:
            return _read(self.path, fingerprint)[0]
        except (FileNotFoundError, UnusableError):
            raise DataError(
                f"the cache {self.path} was replaced by another program; give each program a cache of its own"
            ) from None


def _fingerprint(source: Source) -> dict[str, Any]:
    """The parent's fingerprint as it will be read back from JSON."""
    return dict(json.loads(json.dumps({"source": source.fingerprint(), "signature": source.signature})))


def _read(path: str, fingerprint: dict[str, Any]) -> tuple[StoredRows, EncoderState | None]:
    header, columns = row_file.read(path)
    try:
        _check_origin(header["fingerprint"], fingerprint)
        return StoredRows.from_file(header, columns), _encoder_state(header, columns)
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise UnusableError(f"is damaged ({type(error).__name__})") from None


def _encoder_state(header: dict[str, Any], columns: dict[str, Array]) -> EncoderState | None:
    arrays = {name.removeprefix(ENCODER): array for name, array in columns.items() if name.startswith(ENCODER)}
    return None if header["encoder"] is None else (header["encoder"], arrays)


def _check_origin(stored: dict[str, Any], expected: dict[str, Any]) -> None:
    if stored == expected:
        return
    old, new = _files(stored["source"]), _files(expected["source"])
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


def _build(parent: Source, path: str, fingerprint: dict[str, Any], encoder: Any) -> None:
    if any(os.path.exists(path) and os.path.samefile(path, file[0]) for file in _files(fingerprint["source"])):
        raise DataError(f"the cache {path} would overwrite the data; choose another name")
    with row_file.writing(path) as writer, closing(parent.in_file_order()) as chunks:
        recorder = FileRecorder(writer)
        for chunk in chunks:
            recorder.add(chunk)
        if _fingerprint(parent) != fingerprint:
            raise DataError(f"the data changed while the cache {path} was built; do not change it, and start again")
        state, arrays = encoder.state() if hasattr(encoder, "state") else (None, {})
        for name, array in arrays.items():
            writer.append(ENCODER + name, array, array.dtype.str)
        writer.finish(
            {
                **recorder.header(),
                "n_features": max(recorder.n_features, parent.n_features or 0),
                "fingerprint": fingerprint,
                "recipe": parent.recipe,
                "label_names": parent.label_names,
                "encoder": state,
                "skipped": {"n": parent.skipped.n, "examples": parent.skipped.examples},
            }
        )
