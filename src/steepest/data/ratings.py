"""Ratings: rows of (user, item, rating), with ids of any type and perhaps a weight and a time.

Text files have one rating a line, in columns divided by commas, tabs, `::`, semicolons, bars or spaces; the first line
may name the columns. Roles not given are told from the names (user, item, rating, weight, time and their relatives),
else they are the first, second, third and (the time) fourth column. Ids of text files are whole numbers if all in the
first megabyte are, written without leading zeros; else they are texts. Quotation marks around a whole field are taken
off, others are letters. `adjacency` lines, "user item item ...", are ratings of one. A row's number is stable.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np

from steepest.data.chunk import Array, Chunk, DataError
from steepest.data.files import Block, Paths, TextFile, describe, open_files
from steepest.data.ids import as_ids
from steepest.data.lines import EXAMPLES, ON_BAD_LINE
from steepest.data.parameters import ParameterError, choice
from steepest.data.source import Order, Source, as_weights

ROLES = ("user", "item", "rating", "weight", "time")
NAMES = {
    "user": ("user", "userid", "uid", "customer", "customerid", "member", "row"),
    "item": ("item", "itemid", "iid", "movie", "movieid", "product", "productid", "book", "isbn", "artist", "artistid",
             "track", "song", "article", "column"),
    "rating": ("rating", "bookrating", "score", "stars", "value", "count", "plays", "clicks", "y", "label"),
    "weight": ("weight", "sampleweight"),
    "time": ("time", "timestamp", "date", "unixtime"),
}  # fmt: skip
DELIMITERS = ("::", "\t", ",", ";", "|", " ")
_WHOLE = re.compile(rb"(0|-?[1-9][0-9]{0,17})")
_BATCH_ROWS = 1 << 17


@dataclass(frozen=True, slots=True)
class RatingsChunk(Chunk):
    """Rows without features but with two ids; y holds the ratings (None: all are one)."""

    users: Array = field(default_factory=lambda: np.zeros(0, np.int64))
    items: Array = field(default_factory=lambda: np.zeros(0, np.int64))
    time: Array | None = None

    def span(self, start: int, stop: int) -> RatingsChunk:
        """Visits start..stop of this chunk."""
        if self.order is not None:
            return replace(self, order=self.order[start:stop])
        cut = slice(start, stop)
        return replace(
            self,
            indptr=self.indptr[start : stop + 1],
            users=self.users[cut],
            items=self.items[cut],
            y=None if self.y is None else self.y[cut],
            weight=None if self.weight is None else self.weight[cut],
            time=None if self.time is None else self.time[cut],
            first_id=self.first_id + start,
        )

    def packed(self) -> RatingsChunk:
        """A copy that holds just the visited rows, in visiting order."""
        return ratings_chunk(*(None if part is None else self.visited(part) for part in self._parts()))

    def rows(self, numbers: Array) -> RatingsChunk:
        """A copy of the rows with these numbers."""
        return replace(self, order=np.ascontiguousarray(numbers, np.int64)).packed()

    def _parts(self) -> tuple[Array | None, ...]:
        return self.users, self.items, self.y, self.weight, self.time


def ratings_chunk(
    users: Any, items: Any, y: Any = None, weight: Any = None, time: Any = None, *, first_id: int = 0
) -> RatingsChunk:
    """A chunk of ratings whose parts are checked."""
    users, items = as_ids(users, "user"), as_ids(items, "item")
    n_rows = len(users)
    if len(items) != n_rows:
        raise DataError(f"there are {n_rows} users but {len(items)} items; give one of each a row")
    return RatingsChunk(
        indptr=np.zeros(n_rows + 1, np.int64),
        indices=np.zeros(0, np.int32),
        values=np.zeros(0, np.float32),
        n_features=0,
        y=None if y is None else as_ratings(y, n_rows),
        weight=None if weight is None else as_weights(weight, n_rows),
        first_id=first_id,
        users=users,
        items=items,
        time=None if time is None else np.ascontiguousarray(time, np.float64),
    )


def as_ratings(y: Any, n_rows: int) -> Array:
    """Ratings as float64, checked."""
    ratings = np.asarray(y)
    if ratings.ndim == 2 and ratings.shape[1] == 1:
        ratings = ratings.ravel()
    if ratings.shape != (n_rows,):
        raise DataError(f"there are {n_rows} pairs but the ratings have shape {ratings.shape}; give one rating a pair")
    if ratings.dtype.kind not in "biuf":
        ratings = np.array([_number(value, row) for row, value in enumerate(ratings.tolist())], np.float64)
    ratings = np.ascontiguousarray(ratings, np.float64)
    bad = ~np.isfinite(ratings)
    if bad.any():
        row = int(np.flatnonzero(bad)[0])
        raise DataError(f"the rating of row {row} is {ratings[row]}; drop such rows")
    return ratings


def _number(value: Any, row: int) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        raise DataError(f"the rating of row {row} is {value!r}, which is no number; drop or convert it") from None


class RatingsSource(Source):
    """Ratings from memory or from files; chunks are `RatingsChunk`s. A reader gives `batches`."""

    def _copy(self) -> Self:
        return copy.copy(self)

    def batches(self) -> Iterator[RatingsChunk]:
        """All ratings in the order of the data."""
        raise TypeError("a reader must give its batches")

    def read(self, order: Order, epoch: int) -> Iterator[Chunk]:
        """Batches in their order; inside a batch rows are permuted if a shuffle was asked for."""
        for number, chunk in enumerate(self.batches()):
            permuted = order.permute(chunk.n_rows, epoch, number)
            yield chunk if permuted is None else chunk.visit(permuted)


class RatingsInMemory(RatingsSource):
    """Ratings that are arrays already."""

    def __init__(self, chunk: RatingsChunk, chunk_rows: int = 1 << 22) -> None:
        self.chunk = chunk
        self.chunk_rows = chunk_rows
        self.n_rows = chunk.n_rows

    def batches(self) -> Iterator[RatingsChunk]:
        """Views, `chunk_rows` ratings at a time."""
        for start in range(0, self.chunk.n_rows, self.chunk_rows):
            yield self.chunk.span(start, min(start + self.chunk_rows, self.chunk.n_rows))


def from_ratings(
    users: Any, items: Any, ratings: Any = None, weight: Any = None, time: Any = None, *, chunk_rows: int = 1 << 22
) -> RatingsInMemory:
    """A source over parallel arrays of user ids, item ids and ratings (all one if not given)."""
    return RatingsInMemory(ratings_chunk(users, items, ratings, weight, time), chunk_rows)


def scan_ratings(
    path: Paths | list[TextFile] | Any,
    *,
    user: str | int | None = None,
    item: str | int | None = None,
    rating: str | int | None = None,
    weight: str | int | None = None,
    time: str | int | None = None,
    delimiter: str = "auto",
    header: bool | str = "auto",
    ids: str = "auto",
    layout: str = "auto",
    on_bad_line: str = "error",
    with_labels: bool = True,
) -> RatingsSource:
    """Ratings from text files, Parquet files or a DataFrame, read in constant memory.

    Parameters
    ----------
    path : path, pattern, list of them, "-" for standard input, or a DataFrame
        Text plain or packed by gz, bz2 or zst; names that end in .parquet are read by pyarrow.
    user, item, rating, weight, time : column names, or numbers counted from 0
        Told from the columns' names, or their places, if not given.
    delimiter : text, or "auto" for the most telling of `::`, tab, comma, semicolon, bar and space in the first line
    header : bool, or "auto": whether the first line names the columns; it does if its rating is no number
    ids : {"auto", "number", "text"}
    layout : {"auto", "triples", "adjacency"}
        "adjacency" is a line "user item item ..." for each user, without ratings; it must be asked for.
    on_bad_line : "error" or "skip"
    with_labels : bool
        False: the rating may be absent.

    Examples
    --------
    >>> import tempfile, os, steepest as st
    >>> path = os.path.join(tempfile.mkdtemp(), "ratings.dat")
    >>> _ = open(path, "w").write("1::50::4::978300760\\n1::61::2::978300761\\n")
    >>> chunk = next(iter(st.scan_ratings(path)))
    >>> chunk.users.tolist(), chunk.items.tolist(), chunk.y.tolist()
    ([1, 1], [50, 61], [4.0, 2.0])
    """
    wishes = {"user": user, "item": item, "rating": rating, "weight": weight, "time": time}
    choice("on_bad_line", on_bad_line, ON_BAD_LINE)
    choice("ids", ids, ("auto", "number", "text"))
    choice("layout", layout, ("auto", "triples", "adjacency"))
    if hasattr(path, "columns"):
        return from_frame(path, wishes, with_labels)
    files = open_files(path)
    if all(re.search(r"\.(parquet|pq)$", file.path) for file in files):
        return ParquetRatings(files, wishes, with_labels)
    return TextRatings(files, wishes, delimiter, header, ids, layout, on_bad_line, with_labels)


# ---------------------------------------------------------------------------------------------------------------- roles


def _simple(name: Any) -> str:
    return re.sub(r"[^a-z]", "", str(name).lower())


def _place(wish: str | int, names: Sequence[str], where: str) -> int:
    if isinstance(wish, int) or (isinstance(wish, str) and wish.isdigit() and wish not in names):
        if not 0 <= int(wish) < len(names):
            raise ParameterError(f"{where} has {len(names)} columns, so there is no column {wish}")
        return int(wish)
    if wish not in names:
        raise ParameterError(f"{where} has no column {wish!r}; it has {', '.join(map(str, names))}")
    return list(names).index(wish)


def places_of(
    wishes: dict[str, Any], names: Sequence[str], named: bool, where: str, with_labels: bool = True
) -> dict[str, int]:
    """The column number of each role that there is; `named` says that the names mean something."""
    places = {role: _place(wish, names, where) for role, wish in wishes.items() if wish is not None}
    if named:
        for role in ROLES:
            known = [n for n, name in enumerate(names) if _simple(name) in NAMES[role] and n not in places.values()]
            if role not in places and known:
                places[role] = known[0]
    if named and "rating" not in places and "weight" in places and wishes["weight"] is None and with_labels:
        places["rating"] = places.pop("weight")  # the only number there is
    defaults = ("user", "item", "rating") if named else ("user", "item", "rating", "time")
    for number, role in enumerate(defaults):
        if role not in places and number < len(names) and number not in places.values():
            places[role] = number
    for role in ("user", "item"):
        if role not in places:
            raise DataError(f"{where} has no {role} column among {', '.join(map(str, names))}; name it with {role}=")
    return places


def from_frame(frame: Any, wishes: dict[str, Any], with_labels: bool = True) -> RatingsInMemory:
    """A source over a DataFrame's columns."""
    names = [str(name) for name in frame.columns]
    places = places_of(wishes, names, True, "the table", with_labels)
    columns = {role: _column(frame, place) for role, place in places.items() if with_labels or role in ("user", "item")}
    return from_ratings(columns["user"], columns["item"], *(columns.get(role) for role in ("rating", "weight", "time")))


def _column(frame: Any, place: int) -> Any:
    if hasattr(frame, "iloc"):
        return frame.iloc[:, place].to_numpy()
    column = frame[frame.columns[place]] if hasattr(frame, "get_column") else frame.column(place)
    return column.to_numpy()


# -------------------------------------------------------------------------------------------------------------- parquet


class ParquetRatings(RatingsSource):
    """Ratings in Parquet files."""

    def __init__(self, files: list[TextFile], wishes: dict[str, Any], with_labels: bool) -> None:
        from steepest.data.roles import arrow

        arrow()
        self.files, self.wishes, self.with_labels = files, wishes, with_labels

    @property
    def recipe(self) -> dict[str, Any]:
        """The format and its columns."""
        return {"format": "ratings", **{role: wish for role, wish in self.wishes.items() if wish is not None}}

    def batches(self) -> Iterator[RatingsChunk]:
        """Row groups, cut into batches."""
        import pyarrow
        import pyarrow.parquet as parquet

        first_id = 0
        for file in self.files:
            try:
                with parquet.ParquetFile(file.path) as reader:
                    names = reader.schema_arrow.names
                    places = places_of(self.wishes, names, True, file.name, self.with_labels)
                    columns = list(dict.fromkeys(names[place] for place in places.values()))
                    for batch in reader.iter_batches(_BATCH_ROWS, columns=columns):
                        parts = {role: batch.column(names[place]) for role, place in places.items()}
                        yield self._chunk({r: c.to_numpy(zero_copy_only=False) for r, c in parts.items()}, first_id)
                        first_id += batch.num_rows
            except (pyarrow.ArrowException, OSError) as error:
                raise DataError(f"{file.name} cannot be read as Parquet ({error}); check the file") from None

    def _chunk(self, parts: dict[str, Array], first_id: int) -> RatingsChunk:
        rest = [parts.get(role) if self.with_labels else None for role in ("rating", "weight", "time")]
        return ratings_chunk(parts["user"], parts["item"], *rest, first_id=first_id)


# ----------------------------------------------------------------------------------------------------------------- text


class SkippedLines:
    """Lines that were passed over, with the first three as sentences."""

    def __init__(self) -> None:
        self.n = 0
        self.examples: list[str] = []

    def add(self, sentence: str) -> None:
        """Counts one."""
        self.n += 1
        if len(self.examples) < EXAMPLES:
            self.examples.append(sentence)


@dataclass(frozen=True, slots=True)
class Shape:
    """How the lines are laid out: settled by the head of the first file."""

    delimiter: bytes
    header: bool
    names: tuple[str, ...]
    places: dict[str, int]
    whole: dict[str, bool]  # whether ids are whole numbers


class TextRatings(RatingsSource):
    """Ratings in lines of text."""

    def __init__(
        self,
        files: list[TextFile],
        wishes: dict[str, Any],
        delimiter: str,
        header: bool | str,
        ids: str,
        layout: str,
        on_bad_line: str,
        with_labels: bool,
    ) -> None:
        self.files, self.wishes, self.ids, self.layout = files, wishes, ids, layout
        self.delimiter, self.header = delimiter, header
        self.on_bad_line, self.with_labels = on_bad_line, with_labels
        self.skipped = SkippedLines()
        self._shape: Shape | None = None

    @property
    def recipe(self) -> dict[str, Any]:
        """The format and its options."""
        shape = self.shape()
        kinds = set(shape.whole.values())
        ids = "auto" if len(kinds) == 2 else "number" if True in kinds else "text"
        given = {role: wish for role, wish in self.wishes.items() if wish is not None}
        return {"format": "ratings", "ids": ids, "layout": self.layout, **given}

    def shape(self) -> Shape:
        """How lines are read."""
        if self._shape is None:
            self._shape = self._look(self.files[0])
        return self._shape

    def _look(self, file: TextFile) -> Shape:
        head = file.head(1 << 20)
        lines = head.split(b"\n")
        lines = [line.rstrip(b"\r") for line in (lines[:-1] if len(lines) > 1 else lines) if line.strip()]
        if not lines:
            raise DataError(f"{file.name} holds no lines; give a file with ratings")
        delimiter = self.delimiter.encode() if self.delimiter != "auto" else _guess_delimiter(lines[0])
        if self.layout == "adjacency":
            numbers = self.ids != "text" and all(
                _WHOLE.fullmatch(w) for line in lines[:1000] for w in line.split(delimiter)
            )
            return Shape(delimiter, False, (), {"user": 0, "item": 1}, {"user": numbers, "item": numbers})
        first = [_unquoted(word).decode("utf-8", "replace") for word in lines[0].split(delimiter)]
        header = _is_header(first, self.wishes) if self.header == "auto" else bool(self.header)
        names = first if header else [str(n) for n in range(len(first))]
        if len(first) < 2:
            raise DataError(
                f"{file.name}, line 1: {lines[0][:60].decode('utf-8', 'replace')!r} is no rating; a line needs a user "
                "and an item, divided by a comma, tab, `::` or what delimiter= names"
            )
        places = places_of(self.wishes, names, header, file.name, self.with_labels)
        whole = {role: self._are_whole(lines[header:], delimiter, places[role]) for role in ("user", "item")}
        return Shape(delimiter, header, tuple(names), places, whole)

    def _are_whole(self, lines: list[bytes], delimiter: bytes, place: int) -> bool:
        if self.ids != "auto":
            return self.ids == "number"
        words = (line.split(delimiter) for line in lines)
        return all(_WHOLE.fullmatch(_unquoted(row[place]).strip()) for row in words if len(row) > place)

    def batches(self) -> Iterator[RatingsChunk]:
        """A batch for each block of lines."""
        shape = self.shape()
        for file in self.files:
            for block in file.stream():
                chunk = self._adjacency(block, shape) if self.layout == "adjacency" else self._triples(block, shape)
                if chunk.n_rows:
                    yield chunk

    # Each block is split in one go; only if a line has another number of columns are lines looked at one by one.
    def _triples(self, block: Block, shape: Shape) -> RatingsChunk:
        lines = bytes(block.text).split(b"\n")
        first = 1 if shape.header and block.start < 4 else 0
        n_columns = len(shape.names)
        rows, numbers = [], []
        for number, line in enumerate(lines[first:], first):
            if line.endswith(b"\r"):
                line = line[:-1]
            if not line:
                continue
            words = line.split(shape.delimiter)
            if len(words) != n_columns and not self._fits(words, shape):
                self._refuse(block, number, f"the line has {len(words)} columns instead of {n_columns}")
                continue
            rows.append(words)
            numbers.append(number)
        return self._convert(block, shape, rows, numbers)

    def _fits(self, words: list[bytes], shape: Shape) -> bool:
        needed = [place for role, place in shape.places.items() if self.with_labels or role in ("user", "item")]
        return len(words) > max(needed) and (not self.with_labels or len(words) >= len(shape.names))

    def _convert(self, block: Block, shape: Shape, rows: list[list[bytes]], numbers: list[int]) -> RatingsChunk:
        roles = [r for r in ROLES if r in shape.places and (self.with_labels or r in ("user", "item"))]
        kept = np.ones(len(rows), bool)
        columns: dict[str, Array] = {}
        for role in roles:
            words = [_unquoted(row[shape.places[role]]).strip() for row in rows]
            if role in ("user", "item"):
                columns[role] = self._ids(words, shape.whole[role], role, block, numbers, kept)
            else:
                columns[role] = self._numbers(words, role, block, numbers, kept)
        parts = {role: column[kept] for role, column in columns.items()}
        rest = [parts.get(role) for role in ("rating", "weight", "time")]
        return ratings_chunk(parts["user"], parts["item"], *rest, first_id=block.first_id)

    def _ids(self, words: list[bytes], whole: bool, role: str, block: Block, numbers: list[int], kept: Array) -> Array:
        if not whole:
            for row, word in enumerate(words):
                if not word and kept[row]:
                    self._refuse(block, numbers[row], f"the {role} is empty")
                    kept[row] = False
            return np.array([word.decode("utf-8", "backslashreplace") for word in words], np.str_)
        try:
            return np.array(words, "S").astype(np.int64) if words else np.zeros(0, np.int64)
        except (ValueError, OverflowError):
            pass
        ids = np.zeros(len(words), np.int64)
        for row, word in enumerate(words):
            if _WHOLE.fullmatch(word):
                ids[row] = int(word)
            elif kept[row]:
                shown = word.decode("utf-8", "replace")
                self._refuse(
                    block, numbers[row], f'the {role} is {shown!r}, no whole number as before; pass ids="text"'
                )
                kept[row] = False
        return ids

    def _numbers(self, words: list[bytes], role: str, block: Block, numbers: list[int], kept: Array) -> Array:
        try:
            values = np.array(words, "S").astype(np.float64) if words else np.zeros(0)
        except ValueError:
            values = np.array([_float_or_nan(word) for word in words])
        bad = ~np.isfinite(values) | ((role == "weight") & (values < 0))
        for row in np.flatnonzero(bad & kept).tolist():
            shown = words[row].decode("utf-8", "replace")
            self._refuse(block, numbers[row], f"the {role} is {shown!r}, which is no number that can be used")
            kept[row] = False
        return values

    def _adjacency(self, block: Block, shape: Shape) -> RatingsChunk:
        words = [line.split() for line in bytes(block.text).split(b"\n") if line.strip()]
        counts = np.array([len(row) - 1 for row in words], np.int64)
        listed = [[row[0] for row in words], [word for row in words for word in row[1:]]]
        numbers = list(range(max(len(listed[1]), len(words))))
        kept = np.ones(len(numbers), bool)
        users, items = (self._ids(part, shape.whole["user"], "id", block, numbers, kept) for part in listed)
        return ratings_chunk(np.repeat(users, counts), items, first_id=block.first_id)

    def _refuse(self, block: Block, number: int, fault: str) -> None:
        offset = sum(len(line) + 1 for line in bytes(block.text).split(b"\n")[:number])
        line = block.line_number(offset) or block.file.line_number(block.start + offset)
        sentence = f"{block.file.name}, line {line}: {fault}"
        if self.on_bad_line == "error":
            raise DataError(f'{sentence}; correct the line, or pass on_bad_line="skip"')
        self.skipped.add(sentence)

    def fingerprint(self) -> dict[str, Any]:
        """The files and how they are read."""
        return {"files": [file.fingerprint() for file in self.files], "recipe": self.recipe}

    def describe(self) -> str:
        """The files' names."""
        return describe(self.files)


def _unquoted(word: bytes) -> bytes:
    return word[1:-1] if len(word) >= 2 and word[:1] == word[-1:] == b'"' else word


def _float_or_nan(word: bytes) -> float:
    try:
        return float(word)
    except ValueError:
        return np.nan


def _guess_delimiter(line: bytes) -> bytes:
    return next((mark.encode() for mark in DELIMITERS if line.count(mark.encode()) >= 1), b",")


def _is_header(words: list[str], wishes: dict[str, Any]) -> bool:
    """A first line whose rating (the named or the third column) is no number, or whose columns have known names."""
    known = {name for names in NAMES.values() for name in names}
    if sum(_simple(word) in known for word in words) >= 2:
        return True
    if any(isinstance(wish, str) and wish in words for wish in wishes.values()):
        return True
    return len(words) > 2 and bool(np.isnan(_float_or_nan(words[2].strip().encode())))
