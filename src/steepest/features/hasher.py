"""Feature hashing: texts, categories and numbers become sparse rows of a fixed width, with no vocabulary to keep.

A feature with hash h goes to bucket h mod 2^n_bits with sign +1 or -1 by another bit of h, so that inner products are
unbiased: E<phi(x), phi(y)> = <x, y>, with a variance of order 1 / 2^n_bits (Weinberger, Dasgupta, Langford, Smola and
Attenberg, ICML 2009). The hash is frozen under the name `HASH_ID`, and rows have the same bits for any number of
threads. Names of features are kept beside, in fixed memory, so that a model can still say what it learned. A name is
written as its feature is: "word", "column=value", "word#column=value" for a cross, character n-grams in quotes.
"""

from __future__ import annotations

import importlib
import json
import os
import shlex
import uuid
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, reduce
from itertools import islice
from typing import Any, Self

import numpy as np

from steepest import kernels
from steepest.data.chunk import Array, Chunk
from steepest.data.files.checksum import crc32
from steepest.data.raw import (
    SAMPLE_PARTS,
    SAMPLE_ROWS,
    encoded,
    joined_rows,
    rows_of,
    spread,
    taken_rows,
    without_cache,
)
from steepest.data.source import Order, Source, as_targets, as_weights
from steepest.data.tables.columns import (
    BETWEEN_VALUES,
    CATEGORY,
    LIST,
    MISSING_MARKS,
    NUMBER,
    TEXT,
    Table,
    as_names,
    as_texts,
    encode,
    guess_kind,
    is_list_of_texts,
    plain_numbers,
    python_values,
    read_table,
    truth_values,
)
from steepest.errors import ColumnWarning, DataError, ParameterError
from steepest.features import dates, words, written_numbers
from steepest.features.bags import encode_bags, is_bag_column, looks_like_bags, rows_as_bags
from steepest.features.collisions import (
    ALL_ROWS_NAMED,
    PROBE_BITS,
    CollisionReport,
    count_collisions,
    report_collisions,
)
from steepest.features.columns import BAG, ID, IGNORED, KINDS, TIME, USED, Column
from steepest.features.hasher_check import check_buckets, check_columns, check_counts, check_misfits
from steepest.features.names import NAMES, NAMES_IN_A_ROW, NameBook, hash_name, mix
from steepest.features.words import STOP_LISTS
from steepest.features.written import EPOCH
from steepest.parameters import MOST_THREADS, did_you_mean
from steepest.protocol import (
    Estimator,
    check_input_names,
    check_params,
    index_of,
    not_fitted,
    parameter_names,
    set_output,
    store,
)

HASH_ID = kernels.hash_id
COUNTS = ("document_counts_", "n_documents_")
LEARNED = (
    *COUNTS,
    *("columns_", "crosses_", "names_", "misfits_", "n_features_in_", "words_", "feature_names_in_"),
)
MASK = (1 << 64) - 1
# As in the kernel: what distinguishes the character n-gram "abc" from the word, and copies from each other.
CHARACTER_MARK = 0x3C3E
COPY_STEP = 0x9E3779B97F4A7C15

WEIGHTINGS = ("auto", "count", "binary", "log", "tfidf")
NORMS = ("l2", None)
LONGEST_GRAM = 1 << 20
# Values that a survey reads in all, and rows that it reads at least.
MOST_SAMPLED = 4_000_000
FEWEST_SAMPLED = 600
MOST_FRAME_COLUMNS = 1 << 14  # of pandas
SEARCHED_AT_ONCE = 1 << 18  # entries
LEAK = "alone predicts the label almost perfectly"
# Parameters that are whole numbers, with their bounds.
INTEGERS = (
    ("n_bits", 10, 30),
    ("copies", 1, 64),
    ("min_token", 1, 1 << 20),
    ("min_count", 1, 1 << 31),
    ("seed", -(1 << 63), (1 << 64) - 1),
)
MOST_NAMES = 1 << 26
# Parameters of a hasher that need no rows to be counted.
COUNTED: dict[str, Any] = {"weighting": "count", "min_rows": 1}


@dataclass(frozen=True, slots=True)
class _Plan:
    """The kernel's arguments besides the rows, derived from the parameters and the columns."""

    columns: tuple[tuple[Column, str, bool], ...]  # that give features, their origins, and whether they hold bags
    recipe: kernels.HashRecipe
    uses_counts: bool  # of rows with each feature, for tf-idf
    only_text: str | None  # the name of the column, where it is one and a text
    named: dict[str, list[Column]]  # columns by what the names of their features are, or start with
    texts: tuple[Column, ...]  # whose features may have any name


class Hasher(Estimator):
    """Turns texts, dicts or tables into sparse rows of hashed features; a scikit-learn transformer.

    Parameters
    ----------
    n_bits : int, 10 to 30
        Size of the hash table: 2**n_bits buckets, which are the columns of the rows. Raise it if `collision_report`
        shows that many features share a bucket.
    ngrams : (low, high), "auto" or None
        Lengths of word n-grams: (1, 2) gives words and pairs of words. A word is a run of letters, marks, numbers and
        "_"; a Han ideograph is a word by itself. "auto" is (1, 1), but a linear model takes (1, 2) for texts beside
        other columns.
    char_ngrams : (low, high), optional
        Lengths of character n-grams inside words, with marks at both ends, as in `<word>`. (1, L) gives all substrings
        up to length L. Misspelt words then share most features with the correct ones.
    signed : bool
        Give each feature a random sign, so that collisions cancel on average.
    copies : int
        Number of buckets per feature, each with 1/sqrt(copies) of its value. With more, a collision in one bucket
        matters less.
    cross : pairs of column names
        Columns to cross: each pair of their features becomes a feature, such as token#user, with the product of their
        values. Whole numbers in a crossed column are treated as categories; other numbers are crossed by their knots.
    names : int or "auto"
        Number of feature names to record while learning, in fixed memory; 0 records none. "auto" is 10,000, in 5 MB, or
        fewer under the `memory_budget` of a model. Weights are bit-identical with and without names.
    seed : int
        Seed of the hash function; another seed gives other collisions.
    lowercase : bool
        Convert letters of all alphabets to lower case.
    stop_words : collection of str, or "english", optional
        Words to leave out. "english" is a list of function words, which is saved in the model file.
    min_count : int
        Leave out words that occur in fewer rows than this, before n-grams are built. Try 5 for long texts. Rows are
        counted by `fit` (for a file, in a pass before learning) or by the first `partial_fit`, exactly for the first
        1.5 million different words and by a sketch beyond; the decision also holds for later rows.
    min_rows : int or "auto"
        Leave out words and n-grams that occur in fewer rows than this, after n-grams are built. It uses the counts of
        tf-idf: rows are counted by `fit` (for a file, in a pass before learning) or by the first `partial_fit`, and go
        on being counted by further ones. What occurs in one row says nothing about others, so 2 makes models smaller
        and often better. "auto" is 1, or 2 where `ngrams="auto"` has become pairs of words.
    max_share : float, above 0 and at most 1
        Leave out words that occur in more than this share of the rows, counted in the same way.
    weighting : "auto", "count", "binary", "log" or "tfidf"
        Value of a feature in a row: how often it occurs, whether it occurs, 1 + log of how often, or tf-idf. The last
        is the "log" value times log((1 + rows) / (1 + rows with the feature)) + 1, with rows counted by `fit` or
        `partial_fit` for each bucket. "auto" is "tfidf" for a hasher that has learned from rows with texts (by itself
        or in a model), and otherwise "count".
    norm : "l2" or None
        Scale the words of each text column of a row to length 1. Whatever the norm, a category counts 1, and each of
        the n values of a list 1/sqrt(n).
    min_token : int
        Shortest word that is used, in characters; ideographs are always used.
    text, categorical, numeric : names of columns, optional
        Columns to use as texts, categories and numbers. If any is given, no other columns are used. Otherwise all are
        used; `fit`, or the model that the hasher belongs to, detects their types on a sample of rows. A hasher that was
        not fitted uses numbers as they are, strings with spaces as texts, and everything else as categories.
    kinds : dict of column names to kinds, optional
        Types of single columns: "text", "category", "number", "list" or "date"; the others are detected. "time" is the
        column with the times of rows, see `Forgetting`.
    ignore : names of columns, optional
        Columns to leave out.
    knots : bool or "auto"
        Let numbers follow curves, with knots, instead of straight lines. "auto" lets a linear model decide for each
        column, by the loss on held-out rows.
    pairs : int or "auto"
        Largest number of pairs of columns that a linear model may cross by itself; "auto" is 10. It chooses those that
        lower the loss on held-out rows most. Neither `knots` nor `pairs` has an effect without a model.
    bags : bool or "auto"
        Whether dicts are bags of words with their counts, {"free": 2, "cash": 1}, instead of rows of a table. Words
        that a bag lacks give no feature. "auto" decides by the first rows: bags have numbers as values and 32 keys or
        more in all, of which a row has less than a quarter on average.
    n_jobs : int, optional
        Number of threads; all cores by default. Results are bit-identical for any number.
    by_column : bool
        Give the features of each column, and of each cross, 2**n_bits buckets of their own. Field-aware models set it:
        the field of a feature is its number without the last n_bits bits.

    Attributes
    ----------
    columns_ : tuple of Column
        All columns, with their types and encoding, and the reason if a column is left out.
    crosses_ : tuple of pairs
        Crosses added by `add_crosses`.
    names_ : NameBook, if names > 0
    words_ : KeptWords, if min_count > 1 or max_share < 1
        Which words are kept, how many, and how exactly they were counted.
    document_counts_, n_documents_ : rows with each bucket and all rows, if weighting is "tfidf" feature_names_in_ :
    names of the columns, if X had any misfits_ : per column, the number of values that did not fit its type and count
    as missing

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
    ngrams: tuple[int, int] | str | None
    char_ngrams: tuple[int, int] | None
    signed: bool
    copies: int
    cross: Sequence[tuple[str, str]]
    names: int | str
    seed: int
    lowercase: bool
    stop_words: Iterable[str] | str | None
    min_count: int
    max_share: float
    bags: bool | str
    min_rows: int | str
    weighting: str
    norm: str | None
    min_token: int
    text: Sequence[str] | str | None
    categorical: Sequence[str] | str | None
    numeric: Sequence[str] | str | None
    knots: bool | str
    pairs: int | str
    n_jobs: int | None
    kinds: Mapping[str, str] | None
    ignore: Sequence[str] | str | None
    by_column: bool
    columns_: tuple[Column, ...]
    names_: NameBook
    crosses_: tuple[tuple[str, str], ...] = ()
    _plan: _Plan | None = None  # what follows from good parameters: a call for one row must not find it again

    def __init__(
        self,
        n_bits: int = 22,
        *,
        ngrams: tuple[int, int] | str | None = "auto",
        char_ngrams: tuple[int, int] | None = None,
        signed: bool = True,
        copies: int = 1,
        cross: Sequence[tuple[str, str]] = (),
        names: int | str = "auto",
        seed: int = 0,
        lowercase: bool = True,
        stop_words: Iterable[str] | str | None = None,
        min_count: int = 1,
        max_share: float = 1.0,
        weighting: str = "auto",
        norm: str | None = "l2",
        min_token: int = 1,
        text: Sequence[str] | str | None = None,
        categorical: Sequence[str] | str | None = None,
        numeric: Sequence[str] | str | None = None,
        knots: bool | str = "auto",
        pairs: int | str = "auto",
        n_jobs: int | None = None,
        kinds: Mapping[str, str] | None = None,
        ignore: Sequence[str] | str | None = None,
        by_column: bool = False,
        bags: bool | str = "auto",
        min_rows: int | str = "auto",
    ) -> None:
        store(self, locals())

    def __setattr__(self, name: str, value: Any) -> None:
        """Sets a parameter and drops what was derived from its old value."""
        super().__setattr__(name, value)
        if name in SHAPING:
            self.__dict__.pop("_plan", None)

    # ------------------------------------------------------------------------------------------- learning and hashing

    @property
    def n_features(self) -> int:
        """The number of columns of the hashed rows."""
        if not self.by_column or not hasattr(self, "columns_"):
            return 1 << self.n_bits
        n_ranges = len(self.used_columns) + len(self.cross) + len(self.crosses_)
        if n_ranges << self.n_bits > 1 << 31:
            most = 31 - (n_ranges - 1).bit_length()
            raise ParameterError(f"n_bits={self.n_bits} is too many for {n_ranges} columns; give at most {most}")
        return n_ranges << self.n_bits

    @property
    def n_names(self) -> int:
        """The number of names that are kept for certain."""
        return NAMES if isinstance(self.names, str) else self.names

    @property
    def learns(self) -> bool:
        """Whether there is anything to learn from data beside its columns: names, or how many rows have a feature."""
        return self.n_names > 0 or self.counts_rows

    @property
    def counts_rows(self) -> bool:
        """Whether rows are counted for tf-idf; until columns are known, any of them may be a text."""
        if self.weighting != "auto" or not hasattr(self, "columns_"):
            return self.weighting in ("auto", "tfidf")
        return any(column.kind == TEXT for column in self.columns_)

    @property
    def counts_words(self) -> bool:
        """Whether words are left out by the number of rows that have them; unknown columns may all be texts."""
        asked = self.min_count > 1 or self.max_share < 1
        return asked and any(column.kind == TEXT for column in getattr(self, "columns_", (Column("", TEXT),)))

    @property
    def leaves_out_rare(self) -> bool:
        """Whether words and n-grams are left out by the number of rows that have them."""
        return self.least_rows > 1 and self.counts_rows

    @property
    def word_ngrams(self) -> tuple[int, int]:
        """The lengths of word n-grams, (0, 0) for none."""
        return (1, 1) if isinstance(self.ngrams, str) else self.ngrams or (0, 0)

    @property
    def least_rows(self) -> int:
        """The number of rows that a word or n-gram must have."""
        return 1 if isinstance(self.min_rows, str) else self.min_rows

    @property
    def stop_list(self) -> tuple[str, ...]:
        """The stop words as a sorted list."""
        named = () if self.stop_words is None else self.stop_words
        return tuple(sorted(STOP_LISTS[named] if isinstance(named, str) else named))

    @property
    def used_columns(self) -> tuple[Column, ...]:
        """The columns that give features."""
        return tuple(column for column in self.columns_ if column.used)

    @property
    def _uses_counts(self) -> bool:
        return self.weighting == "tfidf" or (self.weighting == "auto" and hasattr(self, "document_counts_"))

    def fit(self, X: Any, y: Any = None) -> Self:
        """Learns columns, names and counts from X, and forgets what was learned before."""
        return self._learn(self._read_anew(X))

    def partial_fit(self, X: Any, y: Any = None) -> Self:
        """Keeps names and counts rows, as far as the parameters ask for it; the first call decides on the columns."""
        return self._learn(self._read(X, learn=True))

    set_output = set_output

    def transform(self, X: Any) -> Any:
        """Returns the hashed rows as a scipy.sparse.csr_matrix; learns nothing."""
        return self._output(self.to_chunk(X), X)

    def fit_transform(self, X: Any, y: Any = None) -> Any:
        """`fit` and `transform` in one pass over X; two passes if the weights are tf-idf."""
        table = self._read_anew(X)
        by_all = self.counts_rows
        if by_all:
            self._learn(table)  # a pass of its own: here a row's weights depend on all rows
        return self._output(self._chunk(table, learn=not by_all), X)

    def _output(self, chunk: Chunk, X: Any) -> Any:
        """The rows as a sparse matrix, or as a pandas DataFrame if `set_output` asked for it."""
        rows = _as_csr(chunk)
        kind = getattr(self, "_sklearn_output_config", {}).get("transform", "default")
        if kind == "default":
            return rows
        if kind == "polars" or self.n_features > MOST_FRAME_COLUMNS:
            why = "polars has no sparse columns" if kind == "polars" else f"{self.n_features:,} columns are too many"
            raise ParameterError(
                f"The transformer outputs a scipy sparse matrix. {why}; make it with n_bits=14 or less and "
                "set_output(transform='pandas'), or leave set_output out"
            )
        pandas: Any = importlib.import_module(kind)
        names = list(self.get_feature_names_out())
        return pandas.DataFrame.sparse.from_spmatrix(rows, index_of(X), names)

    def get_feature_names_out(self, input_features: Any = None) -> Array:
        """A name for each column of the rows: that of its most frequent feature, where it is known, or "hasher17"."""
        if self._needs_fit and not hasattr(self, "columns_"):
            raise not_fitted(self, "names are kept by fit, partial_fit or a training run")
        check_input_names(self, input_features)
        names = np.array([f"hasher{place}" for place in range(self.n_features)], dtype=object)
        if hasattr(self, "names_"):
            buckets = np.sort(self.names_.buckets())
            for bucket, found in zip(buckets.tolist(), self.names_.names_of(buckets), strict=True):
                names[bucket] = found[0] if found else names[bucket]
            if self.copies > 1:  # of which each has the same name
                again = np.setdiff1d(buckets, buckets[np.unique(names[buckets].astype(str), return_index=True)[1]])
                names[again] = [f"{names[bucket]} ({bucket})" for bucket in again.tolist()]
        return names

    def to_chunk(
        self, X: Any, y: Any = None, sample_weight: Any = None, *, learn: bool = False, counted: bool = False
    ) -> Chunk:
        """Hashed rows with targets and weights; with `learn`, X is read as by `partial_fit` in the same pass.

        Under tf-idf each row is then weighted by the rows up to and with it, as in a stream without an end; or by all
        rows, if those of X were `counted` before.
        """
        return self._chunk(self._read(X, learn=learn), y, sample_weight, learn=learn, counted=counted)

    def _chunk(
        self, table: Table, y: Any = None, sample_weight: Any = None, *, learn: bool, counted: bool = False
    ) -> Chunk:
        targets = None if y is None else as_targets(y)
        if targets is not None and len(targets) != table.n_rows:
            raise DataError(f"X has {table.n_rows} rows but y has {len(targets)}; give one target per row")
        weight = None if sample_weight is None else as_weights(sample_weight, table.n_rows)
        if learn and self.leaves_out_rare and not hasattr(self, "document_counts_"):
            self._hash(table, count=True, weigh=False)
            counted = True
        indptr, indices, values = self._hash(table, count=learn and not counted, name=learn)
        return Chunk(indptr, indices, values, self.n_features, targets, weight, time=self._times(table))

    def _times(self, table: Table) -> Array | None:
        """When the rows were, in seconds, NaN where that cannot be read; None if the table does not say."""
        if not self.kinds:
            return None
        names = [name for name, kind in self.kinds.items() if kind == TIME]
        column = next((column for column in self.columns_ if column.name in names), None)
        values = None if column is None else table.columns.get(column.name)
        if column is None or values is None:
            return None
        numbers = plain_numbers(values) if column.format == EPOCH else None
        return dates.parse(python_values(values), column.format) if numbers is None else numbers

    def score_task(self, X: Any) -> tuple[kernels.HashRecipe, list[Any], Array | None, float, int]:
        """The arguments of `kernels.score_rows` for X, for learners that score raw rows in one call."""
        return *self._hash_task(self._read(X)), _threads(self.n_jobs)

    def signature(self, *, learn: bool = False) -> str:
        """A text that changes with everything that shapes the rows; a cache made under another one is not used.

        Counts of rows shape tf-idf weights: those learned along with the rows belong to the cache, those learned before
        are part of the signature, and those still to come from other rows make each signature another one.
        """
        counts = ""
        if self.counts_rows and not learn:
            known = hasattr(self, "document_counts_")
            counts = f" {self.n_documents_} {crc32(self.document_counts_.data)}" if known else f" {uuid.uuid4()}"
        params = {name: value for name, value in self._plain_params().items() if name != "n_jobs"}
        params["names"] = self.n_names
        return f"{HASH_ID} {json.dumps(params)} {json.dumps(self._encodings())}{counts}"

    def _encodings(self) -> Any:
        """The encodings of the columns, if they are known."""
        if not hasattr(self, "columns_"):
            return None
        columns = [column.encoding for column in self.used_columns]
        if not hasattr(self, "words_"):
            return columns, self.crosses_
        return columns, self.crosses_, [crc32(array.data) for array in self.words_.state().values() if array.size]

    def makes_the_rows_of(self, other: Hasher) -> bool:
        """Whether both turn the same data into the same rows; columns that this one does not name are left open."""
        mine, theirs = (
            own._plain_params() | {"ngrams": own.word_ngrams, "min_rows": own.least_rows} for own in (self, other)
        )
        roles = ("text", "categorical", "numeric", "kinds", "ignore")
        for name in ["n_jobs", "names", *(role for role in roles if not mine[role])]:
            mine.pop(name), theirs.pop(name)
        known = self._encodings(), other._encodings()
        return json.dumps(mine) == json.dumps(theirs) and (None in known or known[0] == known[1])

    def _plain_params(self) -> dict[str, Any]:
        params = self.get_params(deep=False)
        if self.stop_words is not None:
            params["stop_words"] = list(self.stop_list)
        if self.kinds is not None:
            params["kinds"] = dict(self.kinds)
        return params

    def count_distinct(self, X: Any) -> int:
        """The number of different features in the rows; learns nothing."""
        plain = COUNTED | {"n_bits": 30, "copies": 1, "names": 0, "by_column": False, "min_count": 1, "max_share": 1.0}
        probe = type(self)(**{**self.get_params(deep=False), **plain})
        return len(np.unique(probe.survey(X).to_chunk(X).indices))

    def survey(self, X: Any, y: Any = None) -> Self:
        """Decides which columns there are, of which kind, and how they are encoded; learns nothing else.

        X should be a sample of rows from all over the data. With their targets y, a column that alone predicts them
        almost perfectly gets a `ColumnWarning`, and so does one that is like an id. Nothing is decided anew if the
        columns are known.
        """
        known = hasattr(self, "columns_")
        table = self._read(X, learn=True)
        if not known:
            self._warn(table, y)
        return self

    def _warn(self, table: Table, y: Any) -> None:
        """Says which columns deserve a second look; what they do is noted with the column, too."""
        found = {column.name: f"{column.reason}, so it was left out" for column in self.columns_ if column.kind == ID}
        found |= dict.fromkeys(self._leaks(table, y), LEAK)
        for name, what in found.items():
            hint = f"to use it, name its kind (kinds= in Python, --kind {shlex.quote(f'{name}=category')} in the shell)"
            if what == LEAK:
                hint = f"if it is not known when you predict, leave it out (ignore=, or --ignore {shlex.quote(name)})"
            warnings.warn(f"column {name!r} {what}: {hint}", ColumnWarning, stacklevel=3)
        leaks = {name for name, what in found.items() if what == LEAK}
        self.columns_ = tuple(replace(c, note=c.note or LEAK) if c.name in leaks else c for c in self.columns_)

    def _leaks(self, table: Table, y: Any) -> list[str]:
        if y is None or len(y) != table.n_rows:
            return []
        from steepest.features.leaks import ALMOST_PERFECT, groups_of, share_explained, share_on_a_line

        used = [column for column in self.used_columns if not column.source and column.kind in (CATEGORY, NUMBER)]
        rows = _sample_rows(table.n_rows, len(table.columns))
        targets = np.concatenate([np.asarray(y)[start:stop] for start, stop in rows])
        names = []
        for column in used:
            values = table.columns.get(column.name)
            values = None if values is None else _taken(values, rows)
            codes = None if values is None else groups_of(values)
            shares = [0.0 if codes is None else share_explained(codes, targets), share_on_a_line(values, targets)]
            if max(shares) > ALMOST_PERFECT:
                names.append(column.name)
        return names

    def use_knots(self, names: Iterable[str]) -> Self:
        """Lets columns of numbers give hats at their candidate knots, beside their line."""
        chosen = set(names)
        known = {column.name: column for column in self.columns_}
        for name in sorted(chosen):
            if name not in known or known[name].kind != NUMBER:
                numbers = ", ".join(repr(column.name) for column in self.columns_ if column.kind == NUMBER)
                raise ParameterError(f"{name!r} is not a column of numbers; choose among {numbers or 'none'}")
        self.columns_ = tuple(c.with_knots() if c.name in chosen else c for c in self.columns_)
        return self

    def add_crosses(self, pairs: Iterable[tuple[str, str]]) -> Self:
        """Crosses more pairs of columns, each once; numbers among them get knots."""
        own = {frozenset(pair) for pair in (*self.cross, *self.crosses_)}
        new = tuple((a, b) for a, b in dict.fromkeys(map(tuple, pairs)) if frozenset((a, b)) not in own)
        self._check_crossed(new)
        numbers = {column.name for column in self.columns_ if column.kind == NUMBER}
        self.use_knots({name for pair in new for name in pair} & numbers)
        self.crosses_ = (*self.crosses_, *new)
        return self

    def _check_crossed(self, pairs: Iterable[tuple[str, str]]) -> None:
        names = [column.name for column in self.used_columns]
        for name in (name for pair in pairs for name in pair):
            if name not in names:
                listed = ", ".join(repr(name) for name in names if name) or "a list of texts, which has none"
                raise ParameterError(f"cross={self.cross!r} names the column {name!r}, but the hasher uses {listed}")
            if any(column.name == name and column.is_bag for column in self.columns_):
                raise ParameterError(f"cross={self.cross!r} names {name!r}, whose dicts of words cannot be crossed")

    def columns_of_features(self, X: Any) -> tuple[tuple[str, ...], Array, Array, int]:
        """(names of columns and crosses, the features of these rows, the column of each, the column of most others).

        Features that X lacks are most likely of the column that has most features which X has once.
        """
        names = [column.name for column in self.used_columns] + [f"{a} x {b}" for a, b in (*self.cross, *self.crosses_)]
        probe = self.like_this(COUNTED | {"names": 0, "by_column": True})
        found, times = np.unique(probe.to_chunk(X).indices, return_counts=True)
        columns, features = found >> self.n_bits, found & ((1 << self.n_bits) - 1)
        rest = int(np.bincount(columns[times == 1], minlength=len(names)).argmax())
        order = np.lexsort((-times, features))
        features, first = np.unique(features[order], return_index=True)
        return tuple(names), features, columns[order[first]], rest

    def forget(self) -> None:
        """Resets to the state after construction."""
        for name in (*LEARNED, "_plan"):
            self.__dict__.pop(name, None)

    def count_words(self, parts: Iterable[Any]) -> Self:
        """Decides which words are kept, by the rows of all parts of the data; nothing else is learned from them."""
        counts = kernels.WordCounts(words.MOST_WORDS, words.SKETCH_BITS)
        for part in parts:
            self._count_words(self._read(part, learn=True), counts)
        return self._keep_words(counts)

    def all_features(self, X: Any) -> Array:
        """The features of all entries of the rows, those that are left out because few rows have them, too."""
        return self._hash(self._read(X), weigh=False)[1]

    def count_rows(self, X: Any) -> int:
        """Counts the rows with each feature, for tf-idf; returns the number of entries. Names are not learned."""
        indptr, *_ = self._hash(self._read(X, learn=True), count=True, weigh=False)
        return int(indptr[-1])

    def forget_counts(self) -> None:
        """Drops the numbers of rows with each feature."""
        for name in (*COUNTS, "_plan"):
            self.__dict__.pop(name, None)

    def _count_words(self, table: Table, counts: kernels.WordCounts) -> None:
        assert self._plan is not None
        counts.read(self._plan.recipe, self._encode(table, self._plan, False))

    def _keep_words(self, counts: kernels.WordCounts) -> Self:
        self.words_ = words.KeptWords.of(counts, self.min_count, self.max_share)
        if self.words_.exact and not self.words_.n_kept and self.words_.n_words:
            warnings.warn(
                f"min_count={self.min_count} and max_share={self.max_share:g} leave none of {self.words_.n_words:,} "
                f"words in {counts.n_rows:,} rows; lower min_count or raise max_share",
                ColumnWarning,
                stacklevel=4,
            )
        return self

    def _learn(self, table: Table) -> Self:
        if self.learns or self.counts_words:
            self._hash(table, count=True, name=True, weigh=False)
        return self

    def _read_anew(self, X: Any) -> Table:
        self.forget()
        table = self._read(X, learn=True)
        if table.n_rows == 0:
            self.forget()
            raise DataError("X has 0 sample(s) while a minimum of 1 is required: give at least one row to fit")
        return table

    def _read(self, X: Any, *, learn: bool = False) -> Table:
        """Reads X into columns; the first call decides their kinds."""
        plan = self._plan
        if plan is not None and plan.only_text is not None and is_list_of_texts(X):
            return Table({plan.only_text: X}, len(X), "list")  # the usual case, a text at a time, and nothing to decide
        self._check()
        only_text = plan is not None and plan.only_text == ""
        table = self._read_bags(X) or read_table(X, tokens=only_text)
        if "columns_" not in self.__dict__:
            self.columns_ = self._choose_columns(table, learn)
            self.n_features_in_ = len(table.columns)
            if table.origin == "table":
                self.feature_names_in_ = np.array(list(table.columns), dtype=object)
        elif table.origin == "list" and len(self.columns_) == 1 and self.columns_[0].kind == TEXT:
            table = Table({self.columns_[0].name: table.columns[""]}, table.n_rows, "list")  # it needs no name
        elif table.origin == "array" and len(table.columns) != self.n_features_in_:
            n_columns = len(table.columns)
            raise DataError(
                f"X has {n_columns} features, but Hasher is expecting {self.n_features_in_} features as input"
            )
        if self._plan is None:
            self._plan = self._make_plan()
        return table

    def _read_bags(self, X: Any) -> Table | None:
        """X as one column of bags of words, or None if its rows are not bags."""
        records = type(X) is list and is_bag_column(X)
        if "columns_" in self.__dict__:
            bags = len(self.columns_) == 1 and self.columns_[0].is_bag and not self.columns_[0].name
        else:
            named = (self.text, self.categorical, self.numeric, self.ignore, self.cross)
            shaped = self.kinds or any(value is not None and len(value) for value in named)
            bags = self.bags is True or (self.bags == "auto" and records and not shaped and looks_like_bags(X))
        if not bags:
            return None
        if not records:
            table = read_table(X)
            if table.origin == "list":
                return table
            X = rows_as_bags(table)
        return Table({"": X}, len(X), "list")

    def _choose_columns(self, table: Table, learn: bool) -> tuple[Column, ...]:
        """Decides the columns; values are surveyed only while learning, never on a few rows to predict for."""
        from steepest.features.survey import survey_column, time_column

        named = [(name, TEXT) for name in as_names(self.text)]
        named += [(name, CATEGORY) for name in as_names(self.categorical)]
        named += [(name, NUMBER) for name in as_names(self.numeric)]
        twice = [name for name, n in Counter(name for name, _ in named).items() if n > 1]
        if twice:
            raise ParameterError(
                f"text, categorical and numeric name the column {twice[0]!r} more than once; name it once"
            )
        ignored = set(as_names(self.ignore))
        given = {**dict(named), **(self.kinds or {})}
        names = [name for name, _ in named] or list(table.columns)
        names += [name for name, kind in given.items() if kind == TIME and name not in names]
        for name in (*(self.kinds or {}), *ignored):
            if name not in table.columns and table.origin != "records":
                listed = ", ".join(map(repr, list(table.columns)[:20]))
                near = did_you_mean(name, table.columns) or "name one of these"
                given_by = "ignore" if name in ignored else "time" if given[name] == TIME else "kinds"
                raise ParameterError(f"{given_by}= names the column {name!r}, but X has {listed}; {near.strip()}")
        crossed = {name for pair in self.cross for name in pair}
        sample = _sample(table, names) if learn else {}
        chosen: list[Column] = []
        for name in names:
            kind = given.get(name, "" if name else TEXT)
            if kind == TIME:
                chosen.append(time_column(name, sample.get(name, table.column(name))))
            elif name in ignored:
                chosen.append(Column(name, IGNORED, reason="as requested"))
            elif kind in ("", TEXT) and is_bag_column(table.column(name)):
                chosen.append(Column(name, TEXT, format=BAG, note="dicts of words and counts", named=bool(kind)))
            elif name and name in sample:  # texts without a name are texts, however many there are
                chosen += survey_column(name, sample[name], crossed=name in crossed, kind=kind)
            else:
                plain = kind or guess_kind(table.column(name), name in crossed)
                chosen.append(Column(name, plain, named=bool(kind)))
        if sample and not any(column.used for column in chosen):  # better all than none
            left = [column.name for column in chosen if column.kind != IGNORED]
            kinds = {name: CATEGORY if plain_numbers(sample[name]) is None else NUMBER for name in left}
            again = {name: survey_column(name, sample[name], kind=kind)[0] for name, kind in kinds.items()}
            chosen = [replace(again.get(column.name, column), named=False) for column in chosen]
        if not any(column.used for column in chosen):
            raise DataError("X has no columns to hash; give rows with at least one key")
        self.columns_ = tuple(chosen)
        self._check_crossed(self.cross)
        return tuple(c.with_knots() if c.kind == NUMBER and c.name in crossed else c for c in chosen)

    def _hash(
        self, table: Table, *, count: bool = False, name: bool = False, weigh: bool = True
    ) -> tuple[Array, Array, Array]:
        """Hashes a table to (indptr, indices, values), counts its rows, and learns the names of its features."""
        if count or name:
            self._make_state(table)
        elif self.counts_words and not hasattr(self, "words_"):
            raise not_fitted(self, "min_count and max_share need the words of all rows: call fit or partial_fit first")
        if self._plan is None:
            self._plan = self._make_plan()
        recipe, columns, counts, n_documents = self._hash_task(table, weigh=weigh, count=count)
        count = count and self.counts_rows
        rows = kernels.hash_rows(
            recipe,
            columns,
            count_documents=self.document_counts_ if count else None,
            document_counts=counts,
            n_documents=n_documents,
            book=self.names_.table if name and self.n_names else None,
            n_threads=_threads(self.n_jobs),
        )
        if count:
            self.n_documents_ += table.n_rows
        return rows

    def _hash_task(
        self, table: Table, *, weigh: bool = True, count: bool = False
    ) -> tuple[kernels.HashRecipe, list[Any], Array | None, float]:
        """The kernels' arguments for a table; with `weigh`, also the number of rows with each feature (for tf-idf)."""
        plan = self._plan
        assert plan is not None  # made when the table was read
        columns = self._encode(table, plan, count)
        if not (plan.uses_counts and weigh):
            return plan.recipe, columns, None, 0.0
        if not hasattr(self, "document_counts_"):
            raise not_fitted(
                self, "weighting='tfidf' needs the number of rows with each feature: call fit or partial_fit first"
            )
        return plan.recipe, columns, self.document_counts_, float(self.n_documents_)

    def _encode(self, table: Table, plan: _Plan, count: bool) -> list[Any]:
        """The columns in the kernel's form; while learning, counts values that do not fit their column."""
        times: dict[str, Array] = {}  # of dates, which several columns are made from
        columns: list[Any] = []
        for column, origin, is_bag in plan.columns:
            values = table.column(origin)
            misfits = 0
            if column.source:
                if column.source not in times:
                    times[column.source] = dates.parse(python_values(values), column.format)
                    misfits = _misfits(values, times[column.source])
                columns.append(dates.part_of(times[column.source], column.part))
            elif is_bag:
                columns.append(encode_bags(python_values(values), column.name))
            elif column.kind == NUMBER and (column.format or not column.named) and plain_numbers(values) is None:
                numbers, misfits = written_numbers.parse(python_values(values))
                if misfits and column.named:
                    raise _not_a_number(python_values(values), numbers, column.name)
                columns.append(numbers)
            elif column.boolean:
                columns.append(encode(truth_values(values), CATEGORY, column.name))
            elif column.kind == TEXT and not column.named and column.name:
                columns.append(as_texts(values, column.name))
            else:
                columns.append(encode(values, column.kind, column.name))
            if misfits and count:
                self.misfits_ = {**getattr(self, "misfits_", {})}
                self.misfits_[origin] = self.misfits_.get(origin, 0) + misfits
        return columns

    def _make_state(self, table: Table) -> None:
        if self.counts_words and not hasattr(self, "words_"):
            counts = kernels.WordCounts(words.MOST_WORDS, words.SKETCH_BITS)
            self._count_words(table, counts)
            self._keep_words(counts)
        if self.n_names and not hasattr(self, "names_"):
            self.names_ = NameBook(self.n_names)
        if self.counts_rows and not hasattr(self, "document_counts_"):
            self.document_counts_ = np.zeros(1 << self.n_bits, np.uint32)
            self.n_documents_ = 0
            self._plan = self._make_plan()  # now by tf-idf

    def _make_plan(self) -> _Plan:
        used = self.used_columns
        places = {column.name: place for place, column in enumerate(used)}
        stop_words = [kernels.split_words(word, self.lowercase, 1) for word in self.stop_list]
        weighting = "log" if self._uses_counts else "count" if self.weighting == "auto" else self.weighting
        options = kernels.HashOptions(
            n_bits=self.n_bits,
            ngrams=self.word_ngrams,
            char_ngrams=self.char_ngrams or (0, 0),
            weighting=("count", "binary", "log").index(weighting),
            copies=self.copies,
            min_letters=self.min_token,
            is_signed=bool(self.signed),
            lowercase=bool(self.lowercase),
            normalise=self.norm == "l2",
            seed=self.seed & MASK,
            by_column=bool(self.by_column) and self.n_features > 0,  # which refuses too many
            min_rows=self.least_rows,
        )
        recipe = kernels.HashRecipe(
            columns=[
                (
                    len(USED) if column.is_bag else USED.index(column.kind),
                    column.name,
                    self._prefix(column.name) if column.kind == TEXT else "",
                    separators_of(column),
                    (column.centre, column.scale),
                    list(column.knots),
                    list(column.knot_names),
                )
                for column in used
            ],
            crosses=[(places[a], places[b]) for a, b in (*self.cross, *self.crosses_)],
            stop_words=[part for parts in stop_words for part in parts],
            options=options,
            filter=self.words_.as_filter() if hasattr(self, "words_") else None,
        )
        plain = [column.kind for column in self.columns_] == [TEXT] and not used[0].is_bag
        only_text = used[0].name if plain else None
        columns = tuple((column, column.origin, column.is_bag) for column in used)
        named: dict[str, list[Column]] = {}
        for column in used:
            for start in dict.fromkeys((column.name, column.label, f"{column.name}:", *column.knot_names)):
                named.setdefault(start, []).append(column)
        texts = tuple(column for column in used if column.kind == TEXT)
        return _Plan(columns, recipe, self._uses_counts, only_text, named, texts)

    def _prefix(self, name: str) -> str:
        """The prefix of a column's words in names: the column's name if there are several text columns."""
        texts = (column for column in getattr(self, "columns_", ()) if column.kind == TEXT)
        return f"{name}:" if len(list(islice(texts, 2))) > 1 else ""

    def _check(self) -> None:
        """Refuses parameters that cannot work, by name and value. Those that a plan was made from are good."""
        if self._plan is not None:
            return
        check_params(self)
        for name, low, high in INTEGERS:
            if not _is_whole(value := getattr(self, name), low, high):
                raise ParameterError(f"{name}={value!r} must be a whole number from {low} to {high}")
        if self.names != "auto" and not _is_whole(self.names, 0, MOST_NAMES):
            raise ParameterError(f"names={self.names!r} must be a whole number from 0 to {MOST_NAMES}, or 'auto'")
        for name, known in (("weighting", WEIGHTINGS), ("norm", NORMS)):
            if (value := getattr(self, name)) not in known:
                raise ParameterError(f"{name}={value!r} is unknown; choose one of {', '.join(map(repr, known))}")
        for name in ("ngrams", "char_ngrams"):
            pair = getattr(self, name)
            plain = pair is None or (name == "ngrams" and isinstance(pair, str) and pair == "auto")
            if not plain and not (_is_pair(pair, int) and 1 <= pair[0] <= pair[1] <= LONGEST_GRAM):
                bounds = f"(low, high), such as (1, 2), with 1 <= low <= high <= {LONGEST_GRAM}"
                raise ParameterError(f"{name}={pair!r} must be {bounds}, or None")
        if isinstance(self.stop_words, str) and self.stop_words not in STOP_LISTS:
            raise ParameterError(
                f"stop_words={self.stop_words!r} is one string, and not 'english'; give a collection of words"
            )
        if self.stop_words is not None and not all(isinstance(word, str) for word in self.stop_words):
            raise ParameterError(f"stop_words={self.stop_words!r} holds something that is not a text")
        if not isinstance(self.max_share, float | int | np.number) or not 0 < self.max_share <= 1:
            raise ParameterError(f"max_share={self.max_share!r} must be a share of rows above 0 and at most 1")
        is_auto = isinstance(self.min_rows, str) and self.min_rows == "auto"
        if not is_auto and not _is_whole(self.min_rows, 1, 1 << 31):
            raise ParameterError(f"min_rows={self.min_rows!r} must be a whole number from 1 to {1 << 31}, or 'auto'")
        if self.least_rows > 1 and self.weighting not in ("auto", "tfidf"):
            raise ParameterError(
                f"min_rows={self.min_rows} needs the counts of tf-idf, and weighting={self.weighting!r} has none; "
                "give weighting='tfidf', or min_count, which counts words"
            )
        if isinstance(self.cross, str) or not all(_is_pair(pair, str) for pair in self.cross):
            raise ParameterError(
                f"cross={self.cross!r} must hold pairs of column names, as in cross=[('text', 'user')]"
            )
        for column, kind in (self.kinds or {}).items():
            if kind not in KINDS:
                near = did_you_mean(kind, KINDS)
                raise ParameterError(
                    f"the kind {kind!r} of column {column!r} is unknown; {near}choose one of {', '.join(KINDS)}"
                )
        for name in ("knots", "bags"):
            if getattr(self, name) != "auto" and not isinstance(getattr(self, name), bool):
                raise ParameterError(f"{name}={getattr(self, name)!r} is unknown; give True, False or 'auto'")
        if self.pairs != "auto" and (not isinstance(self.pairs, int | np.integer) or not 0 <= self.pairs <= 1000):
            raise ParameterError(f"pairs={self.pairs!r} must be a whole number from 0 to 1000, or 'auto'")
        if self.n_jobs is not None and not isinstance(self.n_jobs, int | np.integer):
            raise ParameterError(f"n_jobs={self.n_jobs!r} must be a whole number, or None for all cores")

    # ---------------------------------------------------------------------------------------------------------- names

    def names_of(self, buckets: Any) -> list[list[str]]:
        """For each bucket the names seen in it, the most frequent first; empty if none was kept."""
        if not self.n_names:
            raise DataError("names=0 records no names; create the hasher without it before training")
        if not hasattr(self, "names_"):
            raise not_fitted(self, "names are kept by fit, partial_fit or a training run")
        return self.names_.names_of(buckets)

    def bucket(self, name: str, copy: int = 0) -> int:
        """The column of the feature with this name, written as `names_of` writes it; by_column, within its range."""
        return self._feature_hash(name, copy) >> 32 & (1 << self.n_bits) - 1

    def sign(self, name: str, copy: int = 0) -> int:
        """The sign, +1 or -1, with which the feature of this name is added to its column."""
        return -1 if self.signed and self._feature_hash(name, copy) >> 63 else 1

    def sign_in(self, bucket: int, name: str) -> int:
        """The sign of the copy that is in this bucket. A name that was cut short is taken for positive."""
        for copy in range(self.copies):
            try:
                if self.bucket(name, copy) == bucket & (1 << self.n_bits) - 1:
                    return self.sign(name, copy)
            except DataError:
                break
        return 1

    def find_names(self, X: Any, rows: Chunk, wanted: Array) -> None:
        """Looks up the names of some buckets in the raw rows that were hashed to `rows`: one row is read for each."""
        entries = _first_entries(rows.indices, wanted, self.n_features)
        buckets = rows.indices[entries]
        places = np.unique(np.searchsorted(rows.indptr, entries, side="right") - 1)
        for start in range(0, len(places), ALL_ROWS_NAMED):
            reader = self.like_this({"names": NAMES_IN_A_ROW}, counts=True)
            part = taken_rows(X, places[start : start + ALL_ROWS_NAMED])
            reader._hash(reader._read(part), name=True, weigh=False)
            found = zip(buckets.tolist(), reader.names_of(buckets), strict=True)
            self.names_.add({bucket: names[0] for bucket, names in found if names})

    def name_heaviest(self, X: Any, rows: Chunk, heaviness: Callable[[Array], Array]) -> None:
        """Makes sure that the heaviest features of rows just learned have their names, rare ones, too."""
        if not hasattr(self, "names_"):
            return
        buckets = self._features_in_use(rows)
        if len(wanted := self.names_.unnamed(buckets, heaviness(buckets))):
            self.find_names(X, rows, wanted)

    def rows_with(self, features: Array) -> Array:
        """For each feature, how many rows had its bucket, where rows are counted; columns share the counts."""
        return np.asarray(self.document_counts_[np.asarray(features) & ((1 << self.n_bits) - 1)])

    @property
    def counts_all_features(self) -> bool:
        """Whether rows are counted for every feature: those of texts are, categories, numbers and crosses are not."""
        crosses = (*self.cross, *self.crosses_)
        return hasattr(self, "document_counts_") and not crosses and all(c.kind == TEXT for c in self.used_columns)

    @property
    def counted_features(self) -> Array:
        """The features that counted rows may have had, in ascending order."""
        buckets = np.flatnonzero(self.document_counts_)
        if self.n_features == 1 << self.n_bits:
            return buckets
        return (np.arange(0, self.n_features, 1 << self.n_bits)[:, None] + buckets).ravel()

    def _features_in_use(self, rows: Chunk) -> Array:
        """The features of any row so far, where all of them are counted, else of these."""
        if self.counts_all_features:
            return self.counted_features
        used = np.zeros(self.n_features, bool)
        used[rows.indices] = True
        return np.flatnonzero(used)

    def read_row(self, x: Any) -> tuple[Chunk, list[list[str]], list[list[str]]]:
        """(one hashed row, the names that are in it by bucket, the names known from training by bucket)."""
        if isinstance(x, list):
            raise DataError("x is a list; give one row: a text, or a dict of columns")
        reader = self.like_this({"names": NAMES_IN_A_ROW}, counts=True)
        indptr, indices, values = reader._hash(reader._read([x]), name=True)
        row = Chunk(indptr, indices, values, self.n_features)
        known = self.names_of(indices) if hasattr(self, "names_") else [[] for _ in indices]
        return row, reader.names_of(indices), known

    def _feature_hash(self, name: str, copy: int) -> int:
        self._check()
        # What is written as words could be anything, so other readings come later, and the last one holds.
        readings = [self._hash_in_column(name, column) for column in self._columns_with(name)]
        crosses = (*self.cross, *self.crosses_)
        columns = {column.name: column for column in self.used_columns} if crosses and "#" in name else {}
        is_text = {column.name: column.kind == TEXT for column in columns.values()}
        for a, b in sorted(crosses, key=lambda pair: not any(is_text.get(k) for k in pair)) if columns else ():
            for place in (place for place, letter in enumerate(name) if letter == "#"):
                left = self._hash_in_column(name[:place], columns[a]) if a in columns else None
                right = self._hash_in_column(name[place + 1 :], columns[b]) if b in columns else None
                readings.append(None if left is None or right is None else mix(left, right))
        feature = next((reading for reading in reversed(readings) if reading is not None), None)
        if feature is None:
            forms = "'word', 'column=value', or 'word#column=value' for a cross"
            raise DataError(f"{name!r} is not the name of a feature; write {forms}")
        return mix(feature, copy * COPY_STEP & MASK) if copy else feature

    def _columns_with(self, name: str) -> list[Column]:
        """Columns that a feature of this name may be of, texts first; found by its parts, since tables may be wide."""
        if not hasattr(self, "columns_"):
            return [Column("", TEXT)]
        self._plan = self._plan or self._make_plan()
        named = self._plan.named
        starts = [name, *(name[: place + 1] for place, letter in enumerate(name) if letter in "=:")]
        found = {column.name: column for start in starts for column in named.get(start, ()) if column.kind != TEXT}
        return [*self._plan.texts, *found.values()]

    def _hash_in_column(self, name: str, column: Column) -> int | None:
        """The hash of a feature of one column, or None if the name is not one of that column."""
        seed = self.seed & MASK
        is_value = column.kind in (CATEGORY, LIST) and name.startswith(column.label)
        is_part = column.kind == CATEGORY and column.format and name.startswith(f"{column.name}:")
        is_number = column.kind == NUMBER and (name == column.name or name in column.knot_names)
        if is_value or is_part or is_number or name == f"{column.label}<missing>":
            return hash_name(name, kernels.hash_key("", seed))
        prefix = self._prefix(column.name)
        if column.kind != TEXT or not name.startswith(prefix):
            return None
        key, rest = kernels.hash_key(column.name, seed), name.removeprefix(prefix)
        if column.is_bag:
            return hash_name(rest, key)
        if self.char_ngrams and len(rest) > 2 and rest[0] == rest[-1] == "'":
            return hash_name(rest[1:-1], key ^ CHARACTER_MARK)
        hashes = [hash_name(word, key) for word in kernels.split_words(rest, self.lowercase, 1)]
        return reduce(mix, hashes) if hashes else None

    def collision_report(self, weights: Any = None, data: Any = None) -> CollisionReport:
        """How full the buckets are, and how much of a model's weight lies in buckets that several features share.

        Parameters
        ----------
        weights : array with one axis of length 2**n_bits, optional
            The weights of a model, `coef_` for example.
        data : rows as for `transform`, or a source of raw rows, optional
            Features are counted there, one by one, and the error of the hash kernel is measured; else the report is
            estimated from the buckets that were used while learning.
        """
        if data is not None:
            return count_collisions(
                self.n_bits, bool(self.signed), self._probe_rows(data), weights, getattr(self, "names_", None)
            )
        book = getattr(self, "names_", None)
        if weights is None and (book is None or not book.n_rows):
            raise DataError(
                "a collision report needs weights, or a hasher with names that has read data; give one of them"
            )
        return report_collisions(self.n_bits, weights, book)

    def _probe_rows(self, data: Any) -> Iterable[Chunk]:
        """The rows with features that hardly ever collide; under tf-idf, without the second factor."""
        weighting = "log" if self._uses_counts else self.weighting
        probe = self.like_this({"n_bits": PROBE_BITS, "names": 0, "weighting": weighting, "min_rows": 1})
        if not isinstance(data, Source):
            return [probe.to_chunk(data)]
        return encoded(without_cache(data), lambda batch: probe.to_chunk(batch.columns)).read(Order(), 0)

    def like_this(self, changes: dict[str, Any], *, counts: bool = False) -> Self:
        """A hasher of the same columns and words, and with `counts` of the same rarity, with other parameters."""
        other = type(self)(**self.get_params(deep=False) | changes)
        for name in ("columns_", "crosses_", "n_features_in_", "words_", *(COUNTS if counts else ())):
            if hasattr(self, name):
                setattr(other, name, getattr(self, name))
        return other

    # ---------------------------------------------------------------------------------------------------------- state

    def state(self) -> tuple[dict[str, Any], dict[str, Array]]:
        """The complete state as (plain values, arrays) for a model file."""
        columns = [column.as_dict() for column in self.columns_] if hasattr(self, "columns_") else None
        header = {"hash": HASH_ID, "params": self._plain_params(), "columns": columns, "crosses": self.crosses_}
        header |= {
            "n_inputs": getattr(self, "n_features_in_", None),
            "n_documents": getattr(self, "n_documents_", None),
        }
        header["misfits"] = getattr(self, "misfits_", {})
        names = self.names_.state() if hasattr(self, "names_") else {}
        arrays = {f"names.{key}": array for key, array in names.items()}
        if hasattr(self, "document_counts_"):
            arrays["document_counts"] = self.document_counts_
        if hasattr(self, "words_"):
            arrays |= {f"words.{key}": array for key, array in self.words_.state().items()}
        return header, arrays

    @classmethod
    def from_state(cls, header: Mapping[str, Any], arrays: Mapping[str, Array]) -> Self:
        """Builds the hasher from what `state` gave."""
        if header["hash"] != HASH_ID:
            raise DataError(
                f"the model was made with the hash {header['hash']!r}, this version has {HASH_ID!r}; use the other one"
            )
        params = dict(header["params"])
        for name in {"ngrams", "char_ngrams", "cross"} & params.keys():  # JSON has no tuples
            if isinstance(params[name], list):
                params[name] = tuple(tuple(v) if isinstance(v, list) else v for v in params[name])
        hasher = cls(**params)
        hasher._check()
        return hasher.restore(header, arrays)

    def restore(self, header: Mapping[str, Any], arrays: Mapping[str, Array]) -> Self:
        """Replaces what was learned by the state of a hasher with the same parameters."""
        self.forget()
        if header["columns"] is not None:
            self.columns_ = tuple(map(_stored_column, header["columns"]))
            self.n_features_in_ = header.get("n_inputs") or len(self.columns_)
            check_columns(self.columns_, self.n_features_in_, [*self.cross, *(header.get("crosses") or ())])
            if all(isinstance(column, list | tuple) for column in header["columns"]) and self._is_of_old():
                raise DataError(
                    "the model was made by a version that scaled all columns of a row together; train it again"
                )
            if header.get("crosses"):
                self.crosses_ = tuple((a, b) for a, b in header["crosses"])
            if header.get("misfits"):
                check_misfits(header["misfits"])
                self.misfits_ = dict(header["misfits"])
        if "document_counts" in arrays:
            check_counts(arrays["document_counts"], header["n_documents"], 1 << self.n_bits)
            self.document_counts_ = np.array(arrays["document_counts"], np.uint32)
            self.n_documents_ = int(header["n_documents"])
        kept = {key.removeprefix("words."): array for key, array in arrays.items() if key.startswith("words.")}
        if kept:
            self.words_ = words.KeptWords.from_state(kept)
        names = {key.removeprefix("names."): array for key, array in arrays.items() if key.startswith("names.")}
        if names:
            self.names_ = NameBook.from_state(self.n_names, names)
            check_buckets(self.names_.buckets(), self.n_features)
        return self

    def _is_of_old(self) -> bool:
        """Whether columns stored by a version before 0.2 gave other rows then than they do now."""
        return len(self.columns_) > 1 or self.columns_[0].kind != TEXT

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_plan"}

    def __sklearn_is_fitted__(self) -> bool:
        return not self._needs_fit or hasattr(self, "columns_")

    @property
    def _needs_fit(self) -> bool:
        rare = self.min_count > 1 or self.least_rows > 1 or self.max_share < 1
        return self.names not in (0, "auto") or self.weighting == "tfidf" or rare

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float32"]
        tags.input_tags.sparse = False
        tags.input_tags.string = tags.input_tags.dict = tags.input_tags.categorical = tags.input_tags.allow_nan = True
        tags.requires_fit = self._needs_fit
        return tags


# What a plan follows from.
SHAPING = frozenset((*parameter_names(Hasher), "columns_", "crosses_", "document_counts_", "words_"))


def _sample(table: Table, names: Iterable[str]) -> dict[str, Any]:
    """Rows from all over a table, at most SAMPLE_ROWS, and fewer where there are many columns."""
    columns = {name: table.column(name) for name in names}
    rows = _sample_rows(table.n_rows, len(columns))
    return {name: _taken(column, rows) for name, column in columns.items()}


def _sample_rows(n_rows: int, n_columns: int) -> list[tuple[int, int]]:
    """Runs of neighbouring rows."""
    most = min(max(MOST_SAMPLED // max(n_columns, 1), FEWEST_SAMPLED), SAMPLE_ROWS)
    if n_rows <= most:
        return [(0, n_rows)]
    run = most // SAMPLE_PARTS
    return [(run * place, run * (place + 1)) for place in spread(n_rows // run, SAMPLE_PARTS)]


def _taken(column: Any, rows: list[tuple[int, int]]) -> Any:
    if len(rows) == 1 and rows[0] == (0, len(column)):
        return column
    return joined_rows([rows_of(column, start, stop) for start, stop in rows])


def _stored_column(values: Any) -> Column:
    """A column from the header of a file; versions before 0.2 stored (name, kind)."""
    if isinstance(values, Mapping):
        return Column.from_dict(values)
    name, kind = values
    return Column(str(name), str(kind))


def separators_of(column: Column) -> str:
    """The characters between the values of a list, or the parts of a category."""
    if column.kind == TEXT:
        return ""
    if column.kind == LIST:
        return column.format.replace(BETWEEN_VALUES, "") + BETWEEN_VALUES
    return column.format if column.kind == CATEGORY else ""


def _misfits(values: Any, found: Array) -> int:
    """The number of values that are present but could not be converted."""
    marks = (value is not None and str(value).strip().lower() not in MISSING_MARKS for value in python_values(values))
    return sum(there and bool(np.isnan(number)) for there, number in zip(marks, found, strict=True))


def _not_a_number(values: list[Any], numbers: Array, name: str) -> DataError:
    for row, value in enumerate(values):
        if np.isnan(numbers[row]) and value is not None and str(value).strip().lower() not in MISSING_MARKS:
            return DataError(f"row {row} of column {name!r} is {value!r}, not a number; clean it, or set another type")
    return DataError(f"column {name!r} holds values that are not numbers; clean it, or give the column another type")


def _is_whole(value: Any, low: int, high: int) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and low <= int(value) <= high


def _is_pair(value: Any, kind: type) -> bool:
    return isinstance(value, tuple | list) and len(value) == 2 and all(isinstance(part, kind) for part in value)


def _first_entries(indices: Array, wanted: Array, n_features: int) -> Array:
    """Where each of the wanted columns comes first, in the order of the columns; those that do not come are left out.

    Entries are searched block by block, and no further than need be.
    """
    is_wanted = np.zeros(n_features, bool)
    is_wanted[wanted] = True
    found: list[Array] = []
    n_left = len(wanted)
    for start in range(0, len(indices), SEARCHED_AT_ONCE):
        part = indices[start : start + SEARCHED_AT_ONCE]
        places = np.flatnonzero(is_wanted[part])
        columns, firsts = np.unique(part[places], return_index=True)
        found.append(start + places[firsts])
        is_wanted[columns] = False
        n_left -= len(columns)
        if not n_left:
            break
    entries = np.concatenate([np.empty(0, np.int64), *found])
    return entries[np.argsort(indices[entries])]


def _as_csr(chunk: Chunk) -> Any:
    from scipy.sparse import csr_matrix

    rows = csr_matrix((chunk.values, chunk.indices, chunk.indptr), shape=(chunk.n_rows, chunk.n_features), copy=False)
    rows.has_canonical_format = False  # no bucket comes twice in a row, but they are not sorted
    return rows


@cache
def _threads(n_jobs: int | None) -> int:
    if n_jobs is not None and n_jobs > 0:
        return min(int(n_jobs), MOST_THREADS)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
