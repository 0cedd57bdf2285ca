"""What of a fitted model has to travel: plain arrays and numbers, the same for every target language.

Everything that an exported program would compute differently is refused here, with a sentence that says what and why.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from steepest import kernels
from steepest.data.chunk import Array
from steepest.data.tables.columns import NUMBER, TEXT
from steepest.errors import DataError
from steepest.features.columns import Column as TableColumn
from steepest.features.hasher import Hasher, separators_of
from steepest.features.names import hash_name
from steepest.learners.waiting import finished
from steepest.models.factorization import MatrixFactorization
from steepest.models.linear import LinearClassifier, LinearRegressor
from steepest.models.text import TextClassifier

WEIGHTINGS = ("count", "binary", "log")
# What the generators know of a hasher. A model whose hasher has another parameter set is refused, not half exported.
_HASHED = """
    n_bits ngrams char_ngrams signed copies cross names seed lowercase stop_words max_share weighting norm min_token
    min_rows text categorical numeric n_jobs
"""
_ON_COLUMNS = ("kinds", "ignore", "knots", "pairs", "bags")  # they only decide on what is described one by one
KNOWN_PARAMETERS = frozenset((*_HASHED.split(), *_ON_COLUMNS))
NEUTRAL = {"min_count": 1}
SIGMOIDS = {"log": 1.0, "squared_hinge": 5.0, "exponential": 2.0}  # P = 1 / (1 + exp(-slope score))


@dataclass(frozen=True, slots=True)
class Column:
    """One column that gives features, and what is known of it before the first row."""

    kind: str
    name: str
    origin: str  # the column of the input; that of a date's part is the date
    key: int  # of words
    label: str  # in front of a value
    missing: int
    number: int
    stop_words: tuple[int, ...] = ()
    separators: str = ""  # of the values of a list, or of the parts of a category
    centre: float = 0.0  # of a number
    scale: float = 1.0
    knots: tuple[float, ...] = ()
    hats: tuple[int, ...] = ()  # what is hashed for each knot
    format: str = ""  # "marked" for numbers such as $1,234.50; the order of a date's fields; "boolean"
    part: str = ""  # of a date
    strict: bool = False  # the user named its kind, so that other values are refused
    example: str = ""


@dataclass(frozen=True, slots=True)
class Hashing:
    """How raw rows become features."""

    n_bits: int
    ngrams: tuple[int, int]
    char_ngrams: tuple[int, int]
    weighting: int
    copies: int
    min_letters: int
    signed: bool
    lowercase: bool
    normalise: bool
    seed_key: int
    columns: tuple[Column, ...]
    crosses: tuple[tuple[int, int], ...]
    uses_counts: bool
    n_documents: float
    min_rows: int  # words and n-grams that fewer rows have are worth 0
    one_text: bool  # and nothing else: then also the mark of a missing text is weighed as a word

    @property
    def inputs(self) -> tuple[Column, ...]:
        """Returns one column for each that the input has; of the parts of a date, the first."""
        return tuple({column.origin: column for column in reversed(self.columns)}.values())[::-1]


@dataclass(frozen=True, slots=True)
class Scores:
    """A model of scores: linear, or linear in the mean of the rows of a text's features."""

    title: str
    features: Array  # ascending numbers of those with a row
    rows: Array  # (features, width) float32
    n_features: int
    n_scores: int
    link: str  # "none", "exp", "sigmoid", "clip" or "softmax"
    slope: float = 1.0
    shift: float = 0.0  # P = sigmoid(slope score + shift)
    power: float = 1.0  # of the shares of one class against the rest, by a calibration
    bias: Array = field(default_factory=lambda: np.zeros(0))
    head: Array | None = None  # (scores, width) of a text classifier
    end: Array | None = None  # the row that ends every text
    classes: tuple[Any, ...] | None = None
    several: bool = False  # several labels per row
    bare: bool = True  # whether a row may be without a label
    hashing: Hashing | None = None
    counts: Array | None = None  # rows with each feature of `features`
    default_count: int = 0  # of all other features

    @property
    def width(self) -> int:
        """Returns the number of columns."""
        return int(self.rows.shape[1])


@dataclass(frozen=True, slots=True)
class FactorPairs:
    """A factor model; rows of users and items have their bias first."""

    title: str
    users: Array
    items: Array
    user_ids: tuple[Any, ...]
    item_ids: tuple[Any, ...]
    offset: float
    scale: float
    mean: float
    low: float
    high: float
    link: str

    @property
    def rank(self) -> int:
        """Returns how many factors a row has."""
        return int(self.users.shape[1]) - 1


Description = Scores | FactorPairs


def describe(model: Any) -> Description:
    """Returns the description of a fitted model."""
    if isinstance(model, MatrixFactorization):
        return _factors(model)
    if not isinstance(model, LinearClassifier | LinearRegressor | TextClassifier):
        known = "LinearClassifier, LinearRegressor, TextClassifier and MatrixFactorization"
        raise DataError(f"a {type(model).__name__} cannot be exported; {known} can")
    if not hasattr(model, "learner_"):
        raise DataError(f"this {type(model).__name__} is not fitted; call fit before exporting it")
    return _text(model) if isinstance(model, TextClassifier) else _linear(model)


def _linear(model: LinearClassifier | LinearRegressor) -> Scores:
    learner = model.learner_
    if learner.shared:
        raise DataError(
            "multi_class='hashed' has one table for all classes, which cannot be exported; train with 'ovr'"
        )
    if model.voters_:
        raise DataError("shards that vote cannot be exported; train with vote=False")
    hashing, counts = hashing_of(getattr(model, "hasher_", None))
    features, rows = _used_weights(learner)
    if counts is not None and hashing is not None and hashing.normalise:  # their rarity decides the length of rows
        others = np.setdiff1d(np.flatnonzero(counts), features)
        order = np.argsort(np.concatenate([features, others]), kind="stable")
        features = np.concatenate([features, others])[order].astype(np.int32)
        rows = np.concatenate([rows, np.zeros((len(others), rows.shape[1]), np.float32)])[order]
    loss, classifier = learner.loss.name, isinstance(model, LinearClassifier)
    link, slope = "none", 1.0
    if classifier and learner.targets.is_softmax and learner.n_outputs > 1:
        link = "softmax"
    elif loss in SIGMOIDS and classifier:
        link, slope = "sigmoid", SIGMOIDS[loss]
    elif loss == "modified_huber":
        link = "clip"
    elif loss == "poisson":
        link = "exp"
    shift, power, map_ = 0.0, 1.0, getattr(model, "calibration_", None)
    if classifier and map_ is not None and map_.kind != "none":
        if rows.shape[1] == 1:
            link, slope, shift = "sigmoid", map_.slope, map_.shift
        elif link == "softmax":
            slope = map_.slope
        else:
            power = map_.slope
    return Scores(
        title=type(model).__name__,
        features=features,
        rows=np.ascontiguousarray(rows),
        n_features=learner.n_features,
        n_scores=rows.shape[1],
        link=link,
        slope=slope,
        shift=shift,
        power=power,
        bias=np.asarray(model.intercept_, np.float64),
        classes=_classes(model) if isinstance(model, LinearClassifier) else None,
        several=learner.several_targets,
        bare=bool(learner.has_bare_rows),
        hashing=hashing,
        counts=None if counts is None else counts[features],
    )


def _used_weights(learner: Any) -> tuple[Array, Array]:
    """Returns (features with a weight, ascending; their weights by score, in the order of the classes)."""
    shown = finished(learner)
    n = learner.n_outputs
    if shown.slots is not None:
        features = np.sort(shown.slots.owners)
        rows = np.column_stack([shown.output_weights(o, features) for o in range(n)])
    else:
        rows = shown.weights()[0].reshape(-1, n)
        features = np.arange(len(rows))
    used = (rows != 0).any(axis=1)
    features, rows = features[used].astype(np.int32), np.asarray(rows[used], np.float32)
    if learner.several_targets or learner.settings.task == "regress":
        return features, rows
    order = learner.book.sorted_labels()[1]
    if n == 1:
        return features, rows if order[0] < order[-1] else -rows
    return features, rows[:, order]


def _text(model: TextClassifier) -> Scores:
    learner = model.learner_
    if learner.settings.loss == "hs":
        raise DataError("loss='hs' has a tree of labels, which cannot be exported; train with loss='softmax'")
    hashing, counts = hashing_of(model.hasher_)
    features, (head, end) = learner.used_rows(), learner.weights()
    several = learner.several_targets
    order = np.arange(len(head)) if several else learner.book.sorted_labels()[1]
    return Scores(
        title="TextClassifier",
        features=features,
        rows=np.ascontiguousarray(learner.table[features, : learner.settings.dim]),
        n_features=learner.n_features,
        n_scores=len(head),
        link="softmax" if learner.settings.loss == "softmax" else "sigmoid",
        slope=1.0 / model.temperature_,
        head=np.ascontiguousarray(head[order]),
        end=np.array(end),
        classes=_classes(model),
        several=several,
        hashing=hashing,
        counts=counts,
    )


def _classes(model: Any) -> tuple[Any, ...]:
    return tuple(model.classes_.tolist())


def hashing_of(hasher: Hasher | None) -> tuple[Hashing | None, Array | None]:
    """Returns (how raw rows become features, rows with each bucket if these are used)."""
    if hasher is None:
        return None, None
    params = hasher.get_params(deep=False)
    for name in params.keys() - KNOWN_PARAMETERS:
        if params[name] not in (None, False, "auto", (), 0) and params[name] != NEUTRAL.get(name):
            raise DataError(f"the hasher has {name}={params[name]!r}, which export does not support; train without it")
    kept = getattr(hasher, "words_", None)
    if kept is not None and (kept.keeps_listed or not kept.exact):
        raise DataError("the hasher leaves out words by their counts, which export does not support")
    if any(getattr(column, "is_bag", False) for column in hasher.columns_):
        raise DataError("the hasher reads dicts of words and counts, which export does not support; train on texts")
    seed = hasher.seed & ((1 << 64) - 1)
    columns = tuple(_column(column, hasher, seed, kept) for column in hasher.used_columns)
    places = {column.name: place for place, column in enumerate(columns)}
    texts = [column for column in columns if column.kind == TEXT]
    uses_counts = bool(texts) and hasattr(hasher, "document_counts_") and hasher.weighting in ("auto", "tfidf")
    weighting = "log" if uses_counts else "count" if hasher.weighting == "auto" else hasher.weighting
    crosses = tuple((places[a], places[b]) for a, b in (*hasher.cross, *hasher.crosses_))
    hashing = Hashing(
        n_bits=hasher.n_bits,
        ngrams=hasher.word_ngrams,
        char_ngrams=_pair(hasher.char_ngrams),
        weighting=WEIGHTINGS.index(weighting),
        copies=hasher.copies,
        min_letters=hasher.min_token,
        signed=bool(hasher.signed),
        lowercase=bool(hasher.lowercase),
        normalise=hasher.norm == "l2",
        seed_key=kernels.hash_key("", seed),
        columns=columns,
        crosses=crosses,
        uses_counts=uses_counts,
        n_documents=float(hasher.n_documents_) if uses_counts else 0.0,
        min_rows=hasher.least_rows if uses_counts and hasher.least_rows > 1 else 0,
        one_text=[column.kind for column in columns] == [TEXT] and not crosses,
    )
    return hashing, hasher.document_counts_ if uses_counts else None


def _column(given: TableColumn, hasher: Hasher, seed: int, kept: Any) -> Column:
    """Returns the description of a column of a hasher."""
    if "\0" in given.name:
        raise DataError(f"the column {given.name!r} has a zero byte in its name; rename it and train again")
    seed_key, key = kernels.hash_key("", seed), kernels.hash_key(given.name, seed)
    stop_words: set[int] = set()
    if given.kind == TEXT:
        words = [part for word in hasher.stop_list for part in kernels.split_words(word, hasher.lowercase, 1)]
        stop_words = {hash_name(word, key) for word in words} | set([] if kept is None else kept.listed.tolist())
    return Column(
        kind=given.kind,
        name=given.name,
        origin=given.origin,
        key=key,
        label=given.label,
        missing=hash_name(f"{given.label}<missing>", seed_key),
        number=hash_name(given.name, seed_key),
        stop_words=tuple(sorted(stop_words)),
        separators=separators_of(given),
        centre=float(given.centre),
        scale=float(given.scale),
        knots=tuple(map(float, given.knots)),
        hats=tuple(hash_name(name, seed_key) for name in given.knot_names),
        format="boolean" if given.boolean else given.format if given.kind == NUMBER else "",
        part=given.part,
        strict=given.named,
        example=given.example,
    )


def _pair(given: Any) -> tuple[int, int]:
    return (0, 0) if given is None else (int(given[0]), int(given[1]))


def _factors(model: MatrixFactorization) -> FactorPairs:
    learner = model.learner_
    if learner.waiting is not None:
        learner = learner.clone()
        learner.finish()
    rank, scale = learner.rank, 1.0
    centred = learner.settings.loss in ("squared", "absolute")
    if centred:
        scale = float(learner.scale)
    tables = []
    for table in (learner.users, learner.items):
        tables.append(np.ascontiguousarray(np.column_stack([table[:, learner.padded], table[:, :rank]]), np.float32))
    clipped = model.clip and centred
    users, items = (tuple(ids.tolist()) for ids in (model.user_ids_, model.item_ids_))
    for side, ids in (("user", users), ("item", items)):
        if not (all(type(i) is int for i in ids) or all(type(i) is str and "\0" not in i for i in ids)):
            raise DataError(f"the {side} ids are neither all whole numbers nor all texts, so they cannot be exported")
    return FactorPairs(
        title="MatrixFactorization",
        users=tables[0],
        items=tables[1],
        user_ids=users,
        item_ids=items,
        offset=float(learner.offset),
        scale=scale,
        mean=float(learner.mean) if centred else 0.0,
        low=float(learner.low) if clipped else -1e308,
        high=float(learner.high) if clipped else 1e308,
        link="sigmoid" if learner.settings.loss == "logistic" else "none",
    )
