"""Ratings: rows of (user, item, rating), with ids of any type and perhaps a weight and a time.

Text files have one rating per line, in columns divided by commas, tabs, `::`, semicolons, bars or spaces; the first
line may name the columns. Roles not given are detected from the names (user, item, rating, weight, time and the like),
else they are the first, second, third and (the time) fourth column. Ids of text files are whole numbers if all in the
first megabyte are, written without leading zeros; else they are texts. Quotation marks around a whole field are taken
off, others are letters. `adjacency` lines, "user item item ...", are ratings of one. A row's number is stable.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

import numpy as np

from steepest.data.chunk import Array, Chunk
from steepest.data.files.blocks import Block, Paths, TextFile, open_files
from steepest.data.files.remote import open_bytes
from steepest.data.ids import as_ids
from steepest.data.readers.lines import BadLine, LineSource, Parsed
from steepest.data.skipped import EXAMPLES, ON_BAD_LINE
from steepest.data.source import Order, Source, as_weights, target_array
from steepest.errors import DataError, ParameterError
from steepest.parameters import choice, shown

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
    row_fields: ClassVar[tuple[str, ...]] = ("y", "weight", "users", "items", "time")

    def packed(self) -> Self:
        """Just the visited rows, in visiting order; they have no entries to copy."""
        if self.order is None:
            return self
        return replace(self, indptr=np.zeros(self.n_rows + 1, np.int64), order=None, **self.per_row(self.order))


def ratings_chunk(
    users: Any, items: Any, y: Any = None, weight: Any = None, time: Any = None, *, first_id: int = 0
) -> RatingsChunk:
    """A chunk of ratings whose parts are checked."""
    users, items = as_ids(users, "user"), as_ids(items, "item")
    n_rows = len(users)
    if len(items) != n_rows:
        raise DataError(f"there are {n_rows} users but {len(items)} items; give one of each per row")
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
    ratings = target_array(y)
    if ratings.ndim == 2 and ratings.shape[1] == 1:
        ratings = ratings.ravel()
    if ratings.shape != (n_rows,):
        raise DataError(
            f"there are {n_rows} pairs but the ratings have shape {ratings.shape}; give one rating per pair"
        )
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
    except (TypeError, ValueError, OverflowError):
        raise DataError(
            f"the rating of row {row} is {shown(value)}, which is not a number; drop or convert it"
        ) from None


class RatingsSource(Source):
    """Ratings from memory or from Parquet files; chunks are `RatingsChunk`s. A reader gives `batches`."""

    @abstractmethod
    def batches(self) -> Iterator[RatingsChunk]:
        """Yields all ratings in the order of the data."""

    def read(self, order: Order, epoch: int) -> Iterator[Chunk]:
        """Batches in their order; inside a batch rows are permuted if a shuffle was asked for."""
        for number, chunk in enumerate(self.batches()):
            permuted = order.permute(chunk.n_rows, epoch, number)
            yield chunk if permuted is None else chunk.visit(permuted)


class RatingsInMemory(RatingsSource):
    """Ratings that are arrays already."""

    def __init__(self, chunk: RatingsChunk, chunk_rows: int = 1 << 22, shape: tuple[int, int] | None = None) -> None:
        self.chunk = chunk
        self.chunk_rows = chunk_rows
        self.shape = shape  # of the matrix whose known cells these are
        self.n_rows = chunk.n_rows

    def batches(self) -> Iterator[RatingsChunk]:
        """Yields views of `chunk_rows` ratings."""
        for start in range(0, self.chunk.n_rows, self.chunk_rows):
            yield self.chunk.span(start, min(start + self.chunk_rows, self.chunk.n_rows))


def from_ratings(
    users: Any, items: Any, ratings: Any = None, weight: Any = None, time: Any = None, *, chunk_rows: int = 1 << 22
) -> RatingsInMemory:
    """Makes a source of parallel arrays of user ids, item ids and ratings (1 if not given).

    Examples
    --------
    >>> import steepest as st
    >>> source = st.from_ratings(["ann", "bob"], ["tea", "milk"], [5, 3])
    >>> st.MatrixFactorization(2, random_state=0).fit_stream(source).user_ids_.tolist()
    ['ann', 'bob']
    """
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
) -> Source:
    """Opens text files, Parquet files or a DataFrame as a source of ratings, read in constant memory.

    Parameters
    ----------
    path : path, pattern, list of them, "-" for standard input, or a DataFrame
        Text files, plain or compressed by gz, bz2 or zst, or Parquet files.
    user, item, rating, weight, time : column names, or numbers counted from 0
        Column of each role. By default, they are detected from their names or positions.
    delimiter : text, or "auto" for the first of `::`, tab, comma, semicolon, bar and space in the first line
    header : bool, or "auto": whether the first line names the columns; it does if its rating is not a number
    ids : {"auto", "number", "text"}
    layout : {"auto", "triples", "adjacency"}
        "adjacency" is a line "user item item ..." for each user, without ratings; it is never detected.
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
    requested = {"user": user, "item": item, "rating": rating, "weight": weight, "time": time}
    choice("on_bad_line", on_bad_line, ON_BAD_LINE)
    choice("ids", ids, ("auto", "number", "text"))
    choice("layout", layout, ("auto", "triples", "adjacency"))
    if hasattr(path, "columns"):
        return from_frame(path, requested, with_labels)
    files = open_files(path)
    if all(re.search(r"\.(parquet|pq)$", file.path) for file in files):
        return ParquetRatings(files, requested, with_labels)
    options = {"delimiter": delimiter, "header": header, "ids": ids, "layout": layout}
    return TextRatings(files, requested, options, on_bad_line, with_labels)


# ---------------------------------------------------------------------------------------------------------------- roles


def _simple(name: Any) -> str:
    return re.sub(r"[^a-z]", "", str(name).lower())


def _place(column: str | int, names: Sequence[str], where: str) -> int:
    if isinstance(column, int) or (isinstance(column, str) and column.isdigit() and column not in names):
        if not 0 <= int(column) < len(names):
            raise ParameterError(f"{where} has {len(names)} columns, so there is no column {column}")
        return int(column)
    if column not in names:
        raise ParameterError(f"{where} has no column {column!r}; it has {', '.join(map(str, names))}")
    return list(names).index(column)


def places_of(
    requested: dict[str, Any], names: Sequence[str], named: bool, where: str, with_labels: bool = True
) -> dict[str, int]:
    """The column number of each role that there is; `named` says that the names mean something."""
    places = {role: _place(column, names, where) for role, column in requested.items() if column is not None}
    if named:
        for role in ROLES:
            known = [n for n, name in enumerate(names) if _simple(name) in NAMES[role] and n not in places.values()]
            if role not in places and known:
                places[role] = known[0]
    if named and "rating" not in places and "weight" in places and requested["weight"] is None and with_labels:
        places["rating"] = places.pop("weight")  # the only number there is
    defaults = ("user", "item", "rating") if named else ("user", "item", "rating", "time")
    for number, role in enumerate(defaults):
        if role not in places and number < len(names) and number not in places.values():
            places[role] = number
    for role in ("user", "item"):
        if role not in places:
            raise DataError(f"{where} has no {role} column among {', '.join(map(str, names))}; name it with {role}=")
    return places


def from_frame(frame: Any, requested: dict[str, Any], with_labels: bool = True) -> RatingsInMemory:
    """A source over a DataFrame's columns."""
    names = [str(name) for name in frame.columns]
    places = places_of(requested, names, True, "the table", with_labels)
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

    def __init__(self, files: list[TextFile], requested: dict[str, Any], with_labels: bool) -> None:
        from steepest.data.tables.columns import arrow

        arrow()
        self.files, self.requested, self.with_labels = files, requested, with_labels

    @property
    def recipe(self) -> dict[str, Any]:
        """The format and its columns."""
        return {"format": "ratings", **_given(self.requested)}

    def batches(self) -> Iterator[RatingsChunk]:
        """Yields row groups, cut into batches."""
        import pyarrow
        import pyarrow.parquet as parquet

        first_id = 0
        for file in self.files:
            try:
                with parquet.ParquetFile(open_bytes(file.path) if file.is_remote else file.path) as reader:
                    names = reader.schema_arrow.names
                    places = places_of(self.requested, names, True, file.name, self.with_labels)
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


@dataclass(frozen=True, slots=True)
class Shape:
    """The layout of the lines, inferred from the head of the first file."""

    delimiter: bytes
    header: bool
    names: tuple[str, ...]
    places: dict[str, int]
    whole: dict[str, bool]  # whether ids are whole numbers


class TextRatings(LineSource):
    """Ratings in lines of text; chunks are `RatingsChunk`s."""

    def __init__(
        self,
        files: list[TextFile],
        requested: dict[str, Any],
        options: dict[str, Any],
        on_bad_line: str,
        with_labels: bool,
    ) -> None:
        super().__init__(files, on_bad_line, with_labels)
        self.requested = requested
        self.options = options
        self._shape: Shape | None = None

    @property
    def recipe(self) -> dict[str, Any]:
        """The format and its options."""
        kinds = set(self.shape().whole.values())
        ids = "auto" if len(kinds) == 2 else "number" if True in kinds else "text"
        return {"format": "ratings", "ids": ids, "layout": self.options["layout"], **_given(self.requested)}

    def prepare(self) -> None:
        """Infers how lines are laid out."""
        self.shape()

    def shape(self) -> Shape:
        """The layout of the lines."""
        if self._shape is None:
            self._shape = self._infer_shape(self.files[0])
        return self._shape

    def _infer_shape(self, file: TextFile) -> Shape:
        head = file.head(1 << 20)
        lines = head.split(b"\n")
        lines = [line.rstrip(b"\r") for line in (lines[:-1] if len(lines) > 1 else lines) if line.strip()]
        if not lines:
            raise DataError(f"{file.name} holds no lines; give a file with ratings")
        delimiter, ids = self.options["delimiter"], self.options["ids"]
        delimiter = delimiter.encode() if delimiter != "auto" else _guess_delimiter(lines[0])
        if self.options["layout"] == "adjacency":
            numbers = ids != "text" and all(_WHOLE.fullmatch(w) for line in lines[:1000] for w in line.split(delimiter))
            return Shape(delimiter, False, (), {"user": 0, "item": 1}, {"user": numbers, "item": numbers})
        first = [_unquoted(word).decode("utf-8", "replace") for word in lines[0].split(delimiter)]
        header = self.options["header"]
        header = _is_header(first, self.requested) if header == "auto" else bool(header)
        names = first if header else [str(n) for n in range(len(first))]
        if len(first) < 2:
            raise DataError(
                f"{file.name}, line 1: {lines[0][:60].decode('utf-8', 'replace')!r} is not a rating; a line needs a "
                "user and an item, divided by a comma, tab, `::` or what delimiter= names"
            )
        places = places_of(self.requested, names, header, file.name, self.with_labels)
        rows = [line.split(delimiter) for line in lines[header:]] if ids == "auto" else []
        whole = {
            role: ids == "number" or (ids == "auto" and _are_whole(rows, places[role])) for role in ("user", "item")
        }
        return Shape(delimiter, header, tuple(names), places, whole)

    def parse(self, blocks: list[Block]) -> Parsed:
        """Parses blocks of lines."""
        parts: list[dict[str, Array]] = []
        bad: list[BadLine] = []
        n_bad: list[int] = []
        for number, block in enumerate(blocks):
            lines = bytes(block.text).split(b"\n")
            faults: dict[int, str] = {}  # by line of the block
            adjacency = self.options["layout"] == "adjacency"
            parts.append(self._adjacency(lines, faults) if adjacency else self._triples(block, lines, faults))
            for line in sorted(faults)[:EXAMPLES]:
                bad.append(BadLine(number, sum(len(part) + 1 for part in lines[:line]), faults[line]))
            n_bad.append(len(faults))
        columns = {role: np.concatenate([part[role] for part in parts]) for role in parts[0]}
        counts = [len(part["user"]) for part in parts]
        return Parsed(ratings_chunk(*(columns.get(role) for role in ROLES)), counts, n_bad, bad)

    def _triples(self, block: Block, lines: list[bytes], faults: dict[int, str]) -> dict[str, Array]:
        """The good lines' columns by role."""
        shape = self.shape()
        roles = [role for role in ROLES if role in shape.places and (self.with_labels or role in ("user", "item"))]
        last, n_columns = max(shape.places[role] for role in roles), len(shape.names)
        rows: list[list[bytes]] = []
        numbers: list[int] = []
        first = 1 if shape.header and block.start < 4 else 0  # a mark of the byte order may be before it
        for number, line in enumerate(lines[first:], first):
            words = line.removesuffix(b"\r").split(shape.delimiter)
            if words == [b""]:
                continue
            if len(words) == n_columns or (len(words) > last and not (self.with_labels and len(words) < n_columns)):
                rows.append(words)
                numbers.append(number)
            else:
                faults[number] = f"the line has {len(words)} columns instead of {n_columns}"
        columns = {}
        for role in roles:
            words = [_unquoted(row[shape.places[role]]).strip() for row in rows]
            whole = shape.whole.get(role)
            columns[role] = (
                _numbers(words, role, numbers, faults) if whole is None else _ids(words, whole, role, numbers, faults)
            )
        if not faults:
            return columns
        good = ~np.isin(numbers, list(faults))
        return {role: column[good] for role, column in columns.items()}

    def _adjacency(self, lines: list[bytes], faults: dict[int, str]) -> dict[str, Array]:
        """The ids of the good lines."""
        rows = {number: line.split() for number, line in enumerate(lines) if line.strip()}
        counts = np.array([len(words) - 1 for words in rows.values()], np.int64)
        owners = np.repeat(np.array(list(rows), np.int64), counts)
        whole = self.shape().whole["user"]
        users = _ids([words[0] for words in rows.values()], whole, "id", list(rows), faults)
        items = _ids([word for words in rows.values() for word in words[1:]], whole, "id", owners.tolist(), faults)
        good = ~np.isin(owners, list(faults))
        return {"user": np.repeat(users, counts)[good], "item": items[good]}


def _given(requested: dict[str, Any]) -> dict[str, Any]:
    return {role: column for role, column in requested.items() if column is not None}


def _are_whole(rows: list[list[bytes]], place: int) -> bool:
    return all(_WHOLE.fullmatch(_unquoted(row[place]).strip()) for row in rows if len(row) > place)


def _ids(words: list[bytes], whole: bool, role: str, numbers: list[int], faults: dict[int, str]) -> Array:
    """Ids as numbers or texts; those that cannot be read are added to the faults of their lines."""
    if not whole:
        for number in (number for number, word in zip(numbers, words, strict=True) if not word):
            faults.setdefault(number, f"the {role} is empty")
        return np.array([word.decode("utf-8", "backslashreplace") for word in words], np.str_)
    try:
        return np.array(words, "S").astype(np.int64) if words else np.zeros(0, np.int64)
    except (ValueError, OverflowError):
        pass
    for number, word in zip(numbers, words, strict=True):
        if not _WHOLE.fullmatch(word):
            shown = word.decode("utf-8", "replace")
            faults.setdefault(number, f'the {role} is {shown!r}, not a whole number as before; pass ids="text"')
    return np.array([int(word) if _WHOLE.fullmatch(word) else 0 for word in words], np.int64)


def _numbers(words: list[bytes], role: str, numbers: list[int], faults: dict[int, str]) -> Array:
    """Ratings, weights or times; those that cannot be used are added to the faults of their lines."""
    try:
        values = np.array(words, "S").astype(np.float64) if words else np.zeros(0)
    except ValueError:
        values = np.array([_float_or_nan(word) for word in words])
    bad = ~np.isfinite(values) | ((role == "weight") & (values < 0))
    for row in np.flatnonzero(bad).tolist():
        shown = words[row].decode("utf-8", "replace")
        faults.setdefault(numbers[row], f"the {role} is {shown!r}, which is not a number that can be used")
    return values


def _unquoted(word: bytes) -> bytes:
    return word[1:-1] if len(word) >= 2 and word[:1] == word[-1:] == b'"' else word


def _float_or_nan(word: bytes) -> float:
    try:
        return float(word)
    except ValueError:
        return np.nan


def _guess_delimiter(line: bytes) -> bytes:
    return next((mark.encode() for mark in DELIMITERS if line.count(mark.encode()) >= 1), b",")


def _is_header(words: list[str], requested: dict[str, Any]) -> bool:
    """A first line whose rating (the named or the third column) is not a number, or whose columns have known names."""
    known = {name for names in NAMES.values() for name in names}
    if sum(_simple(word) in known for word in words) >= 2:
        return True
    if any(isinstance(column, str) and column in words for column in requested.values()):
        return True
    return len(words) > 2 and bool(np.isnan(_float_or_nan(words[2].strip().encode())))
