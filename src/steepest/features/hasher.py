"""Feature hashing: texts, categories and numbers become sparse rows of a fixed width, with no vocabulary to keep.

A feature with hash h goes to bucket h mod 2^n_bits with sign +1 or -1 by another bit of h, so that inner products are
unbiased: E<phi(x), phi(y)> = <x, y>, with a variance of order 1 / 2^n_bits (Weinberger, Dasgupta, Langford, Smola and
Attenberg, ICML 2009). The hash is frozen under the name `HASH_ID`, and rows have the same bits for any number of
threads. Names of features are kept beside, in fixed memory, so that a model can still say what it learned. A name is
written as its feature is: "word", "column=value", "word#column=value" for a cross, character n-grams in quotes.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, reduce
from typing import Any, Self

import numpy as np

from steepest import kernels
from steepest.data.chunk import Array, Chunk
from steepest.data.files.checksum import crc32
from steepest.data.source import as_targets, as_weights
from steepest.data.tables.columns import (
    CATEGORY,
    KINDS,
    NUMBER,
    TEXT,
    Table,
    as_names,
    encode,
    guess_kind,
    is_list_of_texts,
    read_table,
    scaled,
)
from steepest.errors import DataError, ParameterError
from steepest.features.names import NAMES_IN_A_ROW, CollisionReport, NameBook, hash_name, mix, report_collisions
from steepest.protocol import Estimator, not_fitted, parameter_names, store

HASH_ID = kernels.hash_id
LEARNED = ("columns_", "names_", "document_counts_", "n_documents_", "number_sizes_", "n_features_in_")
MASK = (1 << 64) - 1
# As in the kernel: what distinguishes the character n-gram "abc" from the word, and copies from each other.
CHARACTER_MARK = 0x3C3E
COPY_STEP = 0x9E3779B97F4A7C15

WEIGHTINGS = ("auto", "count", "binary", "log", "tfidf")
NORMS = ("l2", None)
LONGEST_GRAM = 1 << 20
# Parameters that are whole numbers, with their bounds.
INTEGERS = (
    ("n_bits", 10, 30),
    ("copies", 1, 64),
    ("names", 0, 1 << 26),
    ("min_token", 1, 1 << 20),
    ("seed", -(1 << 63), (1 << 64) - 1),
)


@dataclass(frozen=True, slots=True)
class _Plan:
    """What the kernel takes besides rows; it follows from the parameters and the columns."""

    columns: tuple[tuple[str, str], ...]
    recipe: kernels.HashRecipe
    uses_counts: bool  # of rows with each feature, for tf-idf
    only_text: str | None  # the name of the column, where it is one and a text
    scaled: tuple[int, ...]  # places of columns of numbers that are divided by their size


class Hasher(Estimator):
    """Texts, dicts or a table to hashed sparse rows; a scikit-learn transformer.

    Parameters
    ----------
    n_bits : int, 10 to 30
        Rows have 2**n_bits columns.
    ngrams : (low, high) or None
        Word n-grams. A word is a run of letters, marks, numbers and "_"; a Han ideograph is a word by itself.
    char_ngrams : (low, high), optional
        Character n-grams inside words, with marks at both ends: <word>. (1, L) gives all substrings up to length L,
        which forgives misspellings.
    signed : bool
        Add with a random sign, so that collisions cancel on average.
    copies : int
        Hash each feature that many times, x#1, x#2, ..., each worth 1/sqrt(copies): a collision spoils only a part.
    cross : pairs of column names
        For each pair of features of the two columns, their conjunction as a feature too, token#user. Whole numbers in a
        crossed column are taken for ids, that is, categories.
    names : int
        Keep the names of features while learning, in fixed memory, with room for at least this many.
    seed : int
        Another seed, other collisions.
    lowercase : bool
        Fold letters of all alphabets to lower case.
    stop_words : collection of str, optional
        Words to leave out.
    weighting : "auto", "count", "binary", "log" or "tfidf"
        How often a feature occurs in a row, whether it does, 1 + log of how often, or that times
        log((1 + rows) / (1 + rows with it)) + 1, with rows counted by `fit` or `partial_fit` for each bucket. "auto"
        is "tfidf" once a hasher has learned from rows with texts (by itself or in a model), and "count" else.
    norm : "l2" or None
        Scale the words, categories and their crosses of each row to length 1.
    scale_numbers : bool or "auto"
        Divide each column of numbers by its root mean square in the rows learned from so far, so that those in millions
        do not drown the others. "auto" does so as part of a model; a hasher by itself leaves numbers as they are.
    min_token : int
        Shorter words are left out, except ideographs.
    text, categorical, numeric : names of columns, optional
        What to take each for. If any is given, these columns are used and no others. Else all are used, and their kind
        is guessed from the first values seen and then frozen: numbers are numeric, strings with spaces are text,
        all else is categorical.
    n_jobs : int, optional
        Threads; all by default, with the same bits for any number.

    Attributes
    ----------
    columns_ : tuple of (name, kind)
    names_ : NameBook, if names > 0
    document_counts_, n_documents_ : rows with each bucket and all rows, if weighting is "tfidf"
    number_sizes_ : for each column of numbers how many there were and the sum of their squares, if these are scaled

    Examples
    --------
    >>> from steepest.features.hasher import Hasher
    >>> rows = Hasher(n_bits=10, ngrams=(1, 2)).transform(["new york", "York, new"])
    >>> rows.shape, rows.nnz
    ((2, 1024), 6)
    >>> hasher = Hasher(n_bits=18, cross=[("text", "user")], names=100)
    >>> row = hasher.fit_transform([{"text": "free money now", "user": 17}])
    >>> hasher.names_of([hasher.bucket("money#user=17")])
    [['money#user=17']]
    """

    _kind = "transformer"
    n_bits: int
    ngrams: tuple[int, int] | None
    char_ngrams: tuple[int, int] | None
    signed: bool
    copies: int
    cross: Sequence[tuple[str, str]]
    names: int
    seed: int
    lowercase: bool
    stop_words: Iterable[str] | None
    weighting: str
    scale_numbers: bool | str
    norm: str | None
    min_token: int
    text: Sequence[str] | str | None
    categorical: Sequence[str] | str | None
    numeric: Sequence[str] | str | None
    n_jobs: int | None
    columns_: tuple[tuple[str, str], ...]
    names_: NameBook
    number_sizes_: Array
    _plan: _Plan | None = None  # what follows from good parameters: a call for one row must not find it again

    def __init__(
        self,
        n_bits: int = 22,
        *,
        ngrams: tuple[int, int] | None = (1, 1),
        char_ngrams: tuple[int, int] | None = None,
        signed: bool = True,
        copies: int = 1,
        cross: Sequence[tuple[str, str]] = (),
        names: int = 0,
        seed: int = 0,
        lowercase: bool = True,
        stop_words: Iterable[str] | None = None,
        weighting: str = "auto",
        norm: str | None = "l2",
        min_token: int = 1,
        text: Sequence[str] | str | None = None,
        categorical: Sequence[str] | str | None = None,
        numeric: Sequence[str] | str | None = None,
        n_jobs: int | None = None,
        scale_numbers: bool | str = "auto",
    ) -> None:
        store(self, locals())

    def __setattr__(self, name: str, value: Any) -> None:
        """What followed from the old value goes with it."""
        super().__setattr__(name, value)
        if name in SHAPING:
            self.__dict__.pop("_plan", None)

    # ------------------------------------------------------------------------------------------- learning and hashing

    @property
    def n_features(self) -> int:
        """Columns of the rows."""
        return 1 << self.n_bits

    @property
    def learns(self) -> bool:
        """Whether there is anything to learn from data: names, how many rows have a feature, or the size of numbers."""
        return self.names > 0 or self.counts_rows or self._scales

    @property
    def counts_rows(self) -> bool:
        """Whether rows are counted for tf-idf; until columns are known, any of them may be a text."""
        if self.weighting != "auto" or not hasattr(self, "columns_"):
            return self.weighting in ("auto", "tfidf")
        return any(kind == TEXT for _, kind in self.columns_)

    @property
    def _scales(self) -> bool:
        """Whether numbers are scaled; until columns are known, any of them may hold numbers."""
        requested = bool(self.scale_numbers) and self.scale_numbers != "auto"
        return requested and (not hasattr(self, "columns_") or bool(self._number_places()))

    def _number_places(self) -> list[int]:
        return [place for place, (_, kind) in enumerate(self.columns_) if kind == NUMBER]

    @property
    def _uses_counts(self) -> bool:
        return self.weighting == "tfidf" or (self.weighting == "auto" and hasattr(self, "document_counts_"))

    def fit(self, X: Any, y: Any = None) -> Self:
        """Forgets everything, then reads X."""
        return self._learn(self._read_anew(X))

    def partial_fit(self, X: Any, y: Any = None) -> Self:
        """Keeps names and counts rows, as far as the parameters ask for it."""
        return self._learn(self._read(X))

    def transform(self, X: Any) -> Any:
        """Hashed rows as a scipy.sparse.csr_matrix; learns nothing."""
        return _as_csr(self.to_chunk(X))

    def fit_transform(self, X: Any, y: Any = None) -> Any:
        """`fit` and `transform` in one, which saves a pass unless the weights are tf-idf or numbers are scaled."""
        table = self._read_anew(X)
        by_all = self.counts_rows or self._scales
        if by_all:
            self._learn(table)  # a pass of its own: here a row's weights depend on all rows
        return _as_csr(self._chunk(table, learn=not by_all))

    def to_chunk(self, X: Any, y: Any = None, sample_weight: Any = None, *, learn: bool = False) -> Chunk:
        """Hashed rows with targets and weights; with `learn`, X is read as by `partial_fit` in the same pass.

        Under tf-idf each row is then weighted by the rows up to and with it, as in a stream without an end, and so are
        numbers that are scaled.
        """
        return self._chunk(self._read(X), y, sample_weight, learn=learn)

    def _chunk(self, table: Table, y: Any = None, sample_weight: Any = None, *, learn: bool) -> Chunk:
        targets = None if y is None else as_targets(y)
        if targets is not None and len(targets) != table.n_rows:
            raise DataError(f"X has {table.n_rows} rows but y has {len(targets)}; give one target per row")
        weight = None if sample_weight is None else as_weights(sample_weight, table.n_rows)
        indptr, indices, values = self._hash(table, learn=learn)
        return Chunk(indptr, indices, values, self.n_features, targets, weight)

    def score_task(self, X: Any) -> tuple[kernels.HashRecipe, list[Any], Array | None, float, int]:
        """X as `kernels.score_rows` takes it, for learners that go from raw rows to scores at once."""
        return *self._hash_task(self._read(X)), _threads(self.n_jobs)

    def signature(self, *, learn: bool = False) -> str:
        """What shapes the rows, for a cache; a cache also keeps what is learned while it is built.

        Counts of rows shape tf-idf weights: those learned along with the rows belong to the cache, those learned before
        are part of the signature, and those still to come from other rows make each signature another one.
        """
        counts = ""
        if self.counts_rows and not learn:
            known = hasattr(self, "document_counts_")
            counts = f" {self.n_documents_} {crc32(self.document_counts_.data)}" if known else f" {uuid.uuid4()}"
        if self._scales and not learn:
            counts += f" {self.number_sizes_.tolist()}" if hasattr(self, "number_sizes_") else f" {uuid.uuid4()}"
        params = {name: value for name, value in self._plain_params().items() if name != "n_jobs"}
        return f"{HASH_ID} {json.dumps(params)}{counts}"

    def makes_the_rows_of(self, other: Hasher) -> bool:
        """Whether both turn the same data into the same rows; columns that this one does not name are left open."""
        mine, theirs = self._plain_params(), other._plain_params()
        free = ["n_jobs", "names"] + [kind for kind in ("text", "categorical", "numeric") if not mine[kind]]
        free += ["scale_numbers"] * (self.scale_numbers == "auto")
        for name in free:
            mine.pop(name), theirs.pop(name)
        known = getattr(self, "columns_", None), getattr(other, "columns_", None)
        return json.dumps(mine) == json.dumps(theirs) and (None in known or known[0] == known[1])

    def _plain_params(self) -> dict[str, Any]:
        params = self.get_params(deep=False)
        if self.stop_words is not None:
            params["stop_words"] = sorted(self.stop_words)
        return params

    def count_distinct(self, X: Any) -> int:
        """How many different features the rows have; learns nothing."""
        plain = {"n_bits": 30, "copies": 1, "names": 0, "weighting": "count"}
        probe = type(self)(**{**self.get_params(deep=False), **plain})
        return len(np.unique(probe.to_chunk(X).indices))

    def infer_kinds(self, X: Any) -> Self:
        """Decides which columns there are and of which kind, and learns nothing else."""
        self._read(X)
        return self

    def forget(self) -> None:
        """Back to what the constructor made."""
        for name in (*LEARNED, "_plan"):
            self.__dict__.pop(name, None)

    def _learn(self, table: Table) -> Self:
        if self.learns:
            self._hash(table, learn=True, weigh=False)
        return self

    def _read_anew(self, X: Any) -> Table:
        self.forget()
        table = self._read(X)
        if table.n_rows == 0:
            self.forget()
            raise DataError("X has 0 sample(s) while a minimum of 1 is required: give at least one row to fit")
        return table

    def _read(self, X: Any) -> Table:
        """The columns of X; their kinds are decided at the first time."""
        plan = self._plan
        if plan is not None and plan.only_text is not None and is_list_of_texts(X):
            return Table({plan.only_text: X}, len(X), "list")  # the usual case, a text at a time, and nothing to decide
        self._check()
        table = read_table(X)
        if "columns_" not in self.__dict__:
            self.columns_ = self._choose_columns(table)
            self.n_features_in_ = len(table.columns)
        elif table.origin == "list" and len(self.columns_) == 1 and self.columns_[0][1] == TEXT:
            table = Table({self.columns_[0][0]: table.columns[""]}, table.n_rows, "list")  # it needs no name
        elif table.origin == "array" and len(table.columns) != self.n_features_in_:
            n_columns = len(table.columns)
            raise DataError(
                f"X has {n_columns} features, but Hasher is expecting {self.n_features_in_} features as input"
            )
        if self._plan is None:
            self._plan = self._make_plan()
        return table

    def _choose_columns(self, table: Table) -> tuple[tuple[str, str], ...]:
        crossed = {name for pair in self.cross for name in pair}
        chosen = [(name, TEXT) for name in as_names(self.text)]
        chosen += [(name, CATEGORY) for name in as_names(self.categorical)]
        chosen += [(name, NUMBER) for name in as_names(self.numeric)]
        if not chosen:
            items = table.columns.items()
            chosen = [(name, guess_kind(column, name in crossed) if name else TEXT) for name, column in items]
        names = [name for name, _ in chosen]
        for name in names:
            if names.count(name) > 1:
                raise ParameterError(
                    f"text, categorical and numeric name the column {name!r} more than once; name it once"
                )
        for name in crossed.difference(names):
            listed = ", ".join(repr(name) for name in names if name) or "a list of texts, which has none"
            raise ParameterError(f"cross={self.cross!r} names the column {name!r}, but the hasher uses {listed}")
        if not chosen:
            raise DataError("X has no columns to hash; give rows with at least one key")
        return tuple(chosen)

    def _hash(
        self, table: Table, *, learn: bool, only_names: bool = False, weigh: bool = True
    ) -> tuple[Array, Array, Array]:
        """A table as (indptr, indices, values); with `only_names`, nothing but names is learned."""
        if learn:
            self._make_state()
        count = learn and self.counts_rows and not only_names
        recipe, columns, counts, n_documents = self._hash_task(table, weigh=weigh, learn=learn and not only_names)
        rows = kernels.hash_rows(
            recipe,
            columns,
            count_documents=self.document_counts_ if count else None,
            document_counts=counts,
            n_documents=n_documents,
            book=self.names_.table if learn and self.names else None,
            n_threads=_threads(self.n_jobs),
        )
        if count:
            self.n_documents_ += table.n_rows
        return rows

    def _hash_task(
        self, table: Table, *, weigh: bool = True, learn: bool = False
    ) -> tuple[kernels.HashRecipe, list[Any], Array | None, float]:
        """What the kernels take of rows that were read; with `weigh`, also how many rows have each feature."""
        plan = self._plan
        assert plan is not None  # made when the table was read
        columns = [encode(table.column(name), kind, name) for name, kind in plan.columns]
        if plan.scaled and hasattr(self, "number_sizes_"):
            for place, sizes in zip(plan.scaled, self.number_sizes_, strict=True):
                columns[place] = scaled(columns[place], sizes, learn)
        if not (plan.uses_counts and weigh):
            return plan.recipe, columns, None, 0.0
        if not hasattr(self, "document_counts_"):
            raise not_fitted(
                self, "weighting='tfidf' needs the number of rows with each feature: call fit or partial_fit first"
            )
        return plan.recipe, columns, self.document_counts_, float(self.n_documents_)

    def _make_state(self) -> None:
        if self.names and not hasattr(self, "names_"):
            self.names_ = NameBook(self.names)
        if self._scales and not hasattr(self, "number_sizes_"):
            self.number_sizes_ = np.zeros((len(self._number_places()), 2))
        if self.counts_rows and not hasattr(self, "document_counts_"):
            self.document_counts_ = np.zeros(self.n_features, np.uint32)
            self.n_documents_ = 0
            self._plan = self._make_plan()  # now by tf-idf

    def _make_plan(self) -> _Plan:
        places = {name: place for place, (name, _) in enumerate(self.columns_)}
        stop_words = [kernels.split_words(word, self.lowercase, 1) for word in self.stop_words or ()]
        weighting = "log" if self._uses_counts else "count" if self.weighting == "auto" else self.weighting
        options = kernels.HashOptions(
            n_bits=self.n_bits,
            ngrams=self.ngrams or (0, 0),
            char_ngrams=self.char_ngrams or (0, 0),
            weighting=("count", "binary", "log").index(weighting),
            copies=self.copies,
            min_letters=self.min_token,
            is_signed=bool(self.signed),
            lowercase=bool(self.lowercase),
            normalise=self.norm == "l2",
            seed=self.seed & MASK,
        )
        recipe = kernels.HashRecipe(
            columns=[(KINDS.index(kind), name, self._prefix(name)) for name, kind in self.columns_],
            crosses=[(places[a], places[b]) for a, b in self.cross],
            stop_words=[part for parts in stop_words for part in parts],
            options=options,
        )
        only_text = self.columns_[0][0] if [kind for _, kind in self.columns_] == [TEXT] else None
        numbers = tuple(self._number_places()) if self._scales else ()
        return _Plan(self.columns_, recipe, self._uses_counts, only_text, numbers)

    def _prefix(self, name: str) -> str:
        """What a column's words are named with: the column where there is more than one text."""
        columns = getattr(self, "columns_", ())
        return f"{name}:" if sum(kind == TEXT for _, kind in columns) > 1 else ""

    def _check(self) -> None:
        """Refuses parameters that cannot work, by name and value. Those that a plan was made from are good."""
        if self._plan is not None:
            return
        for name, low, high in INTEGERS:
            value = getattr(self, name)
            if not isinstance(value, int | np.integer) or isinstance(value, bool) or not low <= int(value) <= high:
                raise ParameterError(f"{name}={value!r} must be a whole number from {low} to {high}")
        for name, known in (("weighting", WEIGHTINGS), ("norm", NORMS)):
            if (value := getattr(self, name)) not in known:
                raise ParameterError(f"{name}={value!r} is unknown; choose one of {', '.join(map(repr, known))}")
        for name in ("ngrams", "char_ngrams"):
            pair = getattr(self, name)
            if pair is not None and not (_is_pair(pair, int) and 1 <= pair[0] <= pair[1] <= LONGEST_GRAM):
                bounds = f"(low, high) with 1 <= low <= high <= {LONGEST_GRAM}"
                raise ParameterError(f"{name}={pair!r} must be {bounds}, or None")
        if isinstance(self.stop_words, str):
            raise ParameterError(f"stop_words={self.stop_words!r} is one string; give a collection of words")
        if isinstance(self.cross, str) or not all(_is_pair(pair, str) for pair in self.cross):
            raise ParameterError(
                f"cross={self.cross!r} must hold pairs of column names, as in cross=[('text', 'user')]"
            )
        if self.scale_numbers not in (True, False, "auto"):
            raise ParameterError(f"scale_numbers={self.scale_numbers!r} is unknown; give True, False or 'auto'")
        if self.n_jobs is not None and not isinstance(self.n_jobs, int | np.integer):
            raise ParameterError(f"n_jobs={self.n_jobs!r} must be a whole number, or None for all cores")

    # ---------------------------------------------------------------------------------------------------------- names

    def names_of(self, buckets: Any) -> list[list[str]]:
        """For each bucket the names seen in it, the most frequent first; empty if none was kept."""
        if not self.names:
            raise DataError("names=0 keeps no names; make the hasher with names=10000, say, before training")
        if not hasattr(self, "names_"):
            raise not_fitted(self, "names are kept by fit, partial_fit or a training run")
        return self.names_.names_of(buckets)

    def prune_names(self, weights: Any) -> None:
        """Keeps the names of the heaviest weights from now on; a trainer calls it now and then."""
        if hasattr(self, "names_"):
            self.names_.prune(weights)

    def bucket(self, name: str, copy: int = 0) -> int:
        """The column of the feature with this name, written as `names_of` writes it."""
        return self._feature_hash(name, copy) >> 32 & self.n_features - 1

    def sign(self, name: str, copy: int = 0) -> int:
        """+1 or -1: with which sign the feature of this name is added to its column."""
        return -1 if self.signed and self._feature_hash(name, copy) >> 63 else 1

    def sign_in(self, bucket: int, name: str) -> int:
        """The sign of the copy that is in this bucket. A name that was cut short is taken for positive."""
        for copy in range(self.copies):
            try:
                if self.bucket(name, copy) == bucket:
                    return self.sign(name, copy)
            except DataError:
                break
        return 1

    def read_row(self, x: Any) -> tuple[Chunk, list[list[str]], list[list[str]]]:
        """One row: hashed, the names that are in it for each bucket, and those known from training for each."""
        reader = type(self)(**{**self.get_params(deep=False), "names": NAMES_IN_A_ROW})
        for name in LEARNED:
            if name != "names_" and hasattr(self, name):
                setattr(reader, name, getattr(self, name))
        indptr, indices, values = reader._hash(reader._read([x]), learn=True, only_names=True)
        row = Chunk(indptr, indices, values, self.n_features)
        known = self.names_of(indices) if hasattr(self, "names_") else [[] for _ in indices]
        return row, reader.names_of(indices), known

    def _feature_hash(self, name: str, copy: int) -> int:
        self._check()
        columns = dict(getattr(self, "columns_", (("", TEXT),)))
        # What is written as words could be anything, so other readings come later, and the last one holds.
        by_kind = sorted(columns.items(), key=lambda item: item[1] != TEXT)
        readings = [self._hash_in_column(name, column, kind) for column, kind in by_kind]
        for a, b in self.cross:
            for place in (place for place, letter in enumerate(name) if letter == "#"):
                left = self._hash_in_column(name[:place], a, columns.get(a))
                right = self._hash_in_column(name[place + 1 :], b, columns.get(b))
                readings.append(None if left is None or right is None else mix(left, right))
        feature = next((reading for reading in reversed(readings) if reading is not None), None)
        if feature is None:
            forms = "'word', 'column=value', or 'word#column=value' for a cross"
            raise DataError(f"{name!r} is not the name of a feature; write {forms}")
        return mix(feature, copy * COPY_STEP & MASK) if copy else feature

    def _hash_in_column(self, name: str, column: str, kind: str | None) -> int | None:
        """The hash of a feature of one column, or None if the name is not one of that column."""
        seed = self.seed & MASK
        label = f"{column}=" if column else ""
        is_category = kind == CATEGORY and name.startswith(label)
        if is_category or name == f"{label}<missing>" or (kind == NUMBER and name == column):
            return hash_name(name, kernels.hash_key("", seed))
        prefix = self._prefix(column)
        if kind != TEXT or not name.startswith(prefix):
            return None
        key, rest = kernels.hash_key(column, seed), name.removeprefix(prefix)
        if self.char_ngrams and len(rest) > 2 and rest[0] == rest[-1] == "'":
            return hash_name(rest[1:-1], key ^ CHARACTER_MARK)
        words = [hash_name(word, key) for word in kernels.split_words(rest, self.lowercase, 1)]
        return reduce(mix, words) if words else None

    def collision_report(self, weights: Any = None) -> CollisionReport:
        """How full the buckets are, and how much of a model's weight lies in buckets that several features share.

        Parameters
        ----------
        weights : array with one axis of length 2**n_bits, optional
            The weights of a model, `coef_` for example.
        """
        book = getattr(self, "names_", None)
        if weights is None and (book is None or not book.n_rows):
            raise DataError(
                "a collision report needs weights, or a hasher with names that has read data; give one of them"
            )
        return report_collisions(self.n_bits, weights, book)

    # ---------------------------------------------------------------------------------------------------------- state

    def state(self) -> tuple[dict[str, Any], dict[str, Array]]:
        """Everything there is, as plain values and arrays for a model file."""
        header = {"hash": HASH_ID, "params": self._plain_params(), "columns": getattr(self, "columns_", None)}
        header["n_documents"] = getattr(self, "n_documents_", None)
        names = self.names_.state() if hasattr(self, "names_") else {}
        arrays = {f"names.{key}": array for key, array in names.items()}
        if hasattr(self, "document_counts_"):
            arrays["document_counts"] = self.document_counts_
        if hasattr(self, "number_sizes_"):
            arrays["number_sizes"] = self.number_sizes_.copy()
        return header, arrays

    @classmethod
    def from_state(cls, header: Mapping[str, Any], arrays: Mapping[str, Array]) -> Self:
        """The hasher that `state` described."""
        if header["hash"] != HASH_ID:
            raise DataError(
                f"the model was made with the hash {header['hash']!r}, this version has {HASH_ID!r}; use the other one"
            )
        hasher = cls(**header["params"])
        hasher._check()
        return hasher.restore(header, arrays)

    def restore(self, header: Mapping[str, Any], arrays: Mapping[str, Array]) -> Self:
        """Forgets all, and takes over what a hasher with the same parameters had learned when `state` described it."""
        self.forget()
        if header["columns"] is not None:
            self.columns_ = tuple((str(name), str(kind)) for name, kind in header["columns"])
            self.n_features_in_ = len(self.columns_)
        if "document_counts" in arrays:
            self.document_counts_ = np.array(arrays["document_counts"], np.uint32)
            self.n_documents_ = int(header["n_documents"])
        if "number_sizes" in arrays:
            self.number_sizes_ = np.array(arrays["number_sizes"], np.float64).reshape(-1, 2)
        names = {key.removeprefix("names."): array for key, array in arrays.items() if key.startswith("names.")}
        if names:
            self.names_ = NameBook.from_state(self.names, names)
        return self

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_plan"}

    def __sklearn_is_fitted__(self) -> bool:
        return not self._needs_fit or hasattr(self, "columns_")

    @property
    def _needs_fit(self) -> bool:
        return self.names > 0 or self.weighting == "tfidf"

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float32"]
        tags.input_tags.sparse = False
        tags.input_tags.string = tags.input_tags.dict = tags.input_tags.categorical = tags.input_tags.allow_nan = True
        tags.requires_fit = self._needs_fit
        return tags


SHAPING = frozenset((*parameter_names(Hasher), "columns_", "document_counts_"))  # what a plan follows from


def _is_pair(value: Any, kind: type) -> bool:
    return isinstance(value, tuple | list) and len(value) == 2 and all(isinstance(part, kind) for part in value)


def _as_csr(chunk: Chunk) -> Any:
    from scipy.sparse import csr_matrix

    rows = csr_matrix((chunk.values, chunk.indices, chunk.indptr), shape=(chunk.n_rows, chunk.n_features), copy=False)
    rows.has_canonical_format = False  # no bucket comes twice in a row, but they are not sorted
    return rows


@cache
def _threads(n_jobs: int | None) -> int:
    if n_jobs is not None and n_jobs > 0:
        return n_jobs
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
