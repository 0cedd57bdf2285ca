"""What of a fitted model has to travel: plain arrays and numbers, the same for every target language.

Everything that an exported program would compute differently is refused here, with a sentence that says what and why.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from steepest import kernels
from steepest.data.chunk import Array
from steepest.data.tables.columns import CATEGORY, NUMBER, TEXT
from steepest.errors import DataError
from steepest.features.hasher import Hasher
from steepest.features.names import hash_name
from steepest.learners.waiting import finished
from steepest.models.factorization import MatrixFactorization
from steepest.models.linear import LinearClassifier, LinearRegressor
from steepest.models.text import TextClassifier

WEIGHTINGS = ("count", "binary", "log")
# What the generators know of a hasher. A model whose hasher has another parameter set is refused, not half exported.
KNOWN_PARAMETERS = frozenset(
    [
        "n_bits",
        "ngrams",
        "char_ngrams",
        "signed",
        "copies",
        "cross",
        "names",
        "seed",
        "lowercase",
        "stop_words",
        "max_share",
        "weighting",
        "norm",
        "min_token",
        "text",
        "categorical",
        "numeric",
        "n_jobs",
        "scale_numbers",
    ]
)
NEUTRAL = {"min_count": 1}
SIGMOIDS = {"log": 1.0, "squared_hinge": 5.0, "exponential": 2.0}  # P = 1 / (1 + exp(-slope score))


@dataclass(frozen=True, slots=True)
class Column:
    """One column of raw rows, and what is known of it before the first row."""

    kind: str
    name: str
    key: int  # of words
    label: str  # in front of a category
    missing: int
    number: int
    divisor: float  # of numbers
    stop_words: tuple[int, ...] = ()


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
        """Numbers of a row."""
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
        """Factors of a row."""
        return int(self.users.shape[1]) - 1


Description = Scores | FactorPairs


def describe(model: Any) -> Description:
    """The description of a fitted model."""
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
    shift, map_ = 0.0, getattr(model, "calibration_", None)
    if classifier and map_ is not None and map_.kind != "none":
        if rows.shape[1] == 1:
            link, slope, shift = "sigmoid", map_.slope, map_.shift
        elif link == "softmax":
            slope = map_.slope
        else:  # powers of shares of one against the rest: no generator knows them, and others would mislead
            link = "none"
    return Scores(
        title=type(model).__name__,
        features=features,
        rows=np.ascontiguousarray(rows),
        n_features=learner.n_features,
        n_scores=rows.shape[1],
        link=link,
        slope=slope,
        shift=shift,
        bias=np.asarray(model.intercept_, np.float64),
        classes=_classes(model) if isinstance(model, LinearClassifier) else None,
        several=learner.several_targets,
        bare=bool(learner.has_bare_rows),
        hashing=hashing,
        counts=None if counts is None else counts[features],
    )


def _used_weights(learner: Any) -> tuple[Array, Array]:
    """(features with a weight, ascending; their weights by score, in the order of the classes)."""
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
    """(how raw rows become features, rows with each bucket if these are used)."""
    if hasher is None:
        return None, None
    params = hasher.get_params(deep=False)
    for name in params.keys() - KNOWN_PARAMETERS:
        if params[name] not in (None, False, "auto", (), 0) and params[name] != NEUTRAL.get(name):
            raise DataError(f"the hasher has {name}={params[name]!r}, which an export does not know; train without it")
    kept = getattr(hasher, "words_", None)
    if kept is not None and (kept.keeps_listed or not kept.exact):
        raise DataError("the hasher keeps words by a list or a sketch of counts, which an export does not know")
    if any(getattr(column, "is_bag", False) for column in hasher.columns_):
        raise DataError("the hasher reads dicts of words and counts, which an export does not know; train on texts")
    known = known_columns(hasher)
    seed = hasher.seed & ((1 << 64) - 1)
    seed_key = kernels.hash_key("", seed)
    places = {name: place for place, (name, _) in enumerate(known)}
    uses_counts = hasattr(hasher, "document_counts_") and hasher.weighting in ("auto", "tfidf")
    weighting = "log" if uses_counts else "count" if hasher.weighting == "auto" else hasher.weighting
    sizes = iter(getattr(hasher, "number_sizes_", ()))
    divided = params.get("scale_numbers") not in (None, False, "auto") and hasattr(hasher, "number_sizes_")
    columns = []
    for name, kind in known:
        key, label = kernels.hash_key(name, seed), f"{name}=" if name else ""
        divisor = 1.0
        if kind == NUMBER and divided:
            count, total = next(sizes)
            mean = total / max(count, 1)
            divisor = float(np.sqrt(mean if mean > 0 else 1.0))
        words = [part for word in hasher.stop_list for part in kernels.split_words(word, hasher.lowercase, 1)]
        left_out = {hash_name(word, key) for word in words} | set([] if kept is None else kept.listed.tolist())
        stop = tuple(sorted(left_out)) if kind == TEXT else ()
        missing = hash_name(f"{label}<missing>", seed_key)
        columns.append(Column(kind, name, key, label, missing, hash_name(name, seed_key), divisor, stop))
    hashing = Hashing(
        n_bits=hasher.n_bits,
        ngrams=_pair(hasher.ngrams),
        char_ngrams=_pair(hasher.char_ngrams),
        weighting=WEIGHTINGS.index(weighting),
        copies=hasher.copies,
        min_letters=hasher.min_token,
        signed=bool(hasher.signed),
        lowercase=bool(hasher.lowercase),
        normalise=hasher.norm == "l2",
        seed_key=seed_key,
        columns=tuple(columns),
        crosses=tuple((places[a], places[b]) for a, b in hasher.cross),
        uses_counts=uses_counts,
        n_documents=float(hasher.n_documents_) if uses_counts else 0.0,
    )
    return hashing, hasher.document_counts_ if uses_counts else None


def known_columns(hasher: Any) -> list[tuple[str, str]]:
    """(name, kind) of the columns of a hasher, if the generators compute what it does with them."""
    columns: list[Any] = list(hasher.columns_)
    pairs = all(isinstance(column, tuple | list) for column in columns)
    found = [(c[0], c[1]) if pairs else (str(c.name), str(c.kind)) for c in columns]
    if not pairs:  # described one by one: each is encoded by itself, except for a text alone
        used = [(name, kind) for (name, kind), c in zip(found, columns, strict=True) if c.used]
        if [kind for _, kind in used] != [TEXT]:
            listed = ", ".join(f"{name!r} ({kind})" for name, kind in used[:5])
            raise DataError(f"a table of {listed} is encoded column by column, which an export does not know yet; "
                            "export a model of one text column")  # fmt: skip
        return used
    for name, kind in found:
        if kind not in (TEXT, CATEGORY, NUMBER):
            raise DataError(f"the column {name!r} is of the kind {kind!r}, which an export does not know")
    return found


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
