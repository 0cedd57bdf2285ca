"""The shape of a linear model over a table: which numbers bend at knots, and which pairs of columns are crossed.

Both are decided by what a model leaves over on rows that it has not learned. The rows of a sample are shared out to
folds, and the scores of each fold come from a model of the others. With g and h the first and second derivative of a
row's loss by its score, a cell (a value of a column, or a value of one column and one of another) gets the Newton step
v = -Σg / (Σh + ridge) from the rows of other parts, and the column or pair gains -Σ(g v + h v²/2) on the rows of its
own part (Lou, Caruana, Gehrke and Hooker, "Accurate intelligible models with pairwise interactions", KDD 2013, rank
pairs alike). A number bends if its own cells gain on the scores of a model of lines. Pairs are taken one by one, the
best first, on the scores of the model with bends; each moves the scores by its steps, so that a second pair which says
the same gains nothing. All rows are judged, so that little depends on which of them are held back. With few rows, the
model with all pairs must at last be better than the one without.

A number that stays the same over a long stretch of the file, and varies elsewhere, has changed its meaning there: bends
or crosses would learn the stretch, so it stays a line. So does one that rises or falls along the whole file, such as a
date: rows to come lie beyond its last knot, where a bend is flat and a cross has learned nothing. In such a file a
number with one value for each date is a mark of dates, too. Such a file has an order, and rows to come may be other
than these: parts are then also made of neighbours in stretches, and what is taken must gain on the mean of both ways
and may not clearly lose in either. Left out: texts, which have words enough, and models of many classes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Any

import numpy as np

from steepest.data.chunk import Array, Chunk, compact
from steepest.data.source import ArraySource
from steepest.data.tables.columns import NUMBER, TEXT
from steepest.features.columns import Column
from steepest.features.hasher import COUNTED
from steepest.learners.batch.batch_data import BatchData
from steepest.learners.batch.objective import Objective, dot
from steepest.learners.batch.strength import FEW_ROWS, GOLDEN, is_sorted, solve, with_strength
from steepest.learners.linear.linear import LinearLearner
from steepest.learners.linear.linear_settings import LinearSettings
from steepest.learners.targets import distinct

LEAST_ROWS = 200  # of a sample, below which nothing is decided
FOLDS = 4  # of which models are made
PARTS = 16  # of which the steps of cells are made, four to a fold
ALPHA = 1e-4
# With few rows, the model with all pairs taken must beat the one without, each under the best of these strengths: pairs
# may otherwise gain only what a strength that is far from the best has left over.
STRENGTHS = (1e-2, 1e-3, 1e-4, 1e-5, 1e-6)
LONG_STRETCH = 0.1  # of the rows, with one value throughout
ALONG = 0.99  # of the rank correlation with the number of the row that a sorted column would have
FEW_VALUES = 32  # a number with no more is a code: long stretches of one are nothing unusual
ONCE = (
    1.5  # runs of equal neighbours for each value: with no more, most values mark one period, and no other shows more
)
ROWS_PER_VALUE = 5  # of a number whose values mark periods: of one that differs in each row, nothing is known
MOST_PAIRS = 10
MOST_CROSSED = 40  # columns whose pairs are tried
MOST_TRIED_AGAIN = 30  # pairs that are tried again after each one that was taken
MOST_CODES = 64  # values of a column that a pair is tried with; the others count as one
MOST_CLASSES = 12
RIDGES = (1.0, 5.0, 25.0)  # rows that a cell has to outweigh: the best is taken, for few cells or many
LARGEST_STEP = 3.0  # of a cell
LEAST_GAIN = 1e-3  # of a pair, as a share of the loss
# Of a pair's gain, in standard errors. Cells of noise lose, so that few pairs of noise have it: of very many, about one
# in PAIRS_PER_RIVAL is a rival of the true ones, and the largest of so many normal numbers must be beaten.
LEAST_CERTAINTY, PAIRS_PER_RIVAL = 2.0, 20
BEND_CERTAINTY = 0.0  # of a bend: one that is taken in vain costs little
TOLERATED = 0.01  # share of the loss by which one way may be worse where both together are better


@dataclass(slots=True)
class Shape:
    """What `find_shape` decided: columns with knots, pairs to cross, and events that say so."""

    bends: tuple[str, ...] = ()
    pairs: tuple[tuple[str, str], ...] = ()
    events: list[str] = field(default_factory=list)
    mixed: bool = False  # whether no column has a trend along the file: rows to come should be like these


@dataclass(frozen=True, slots=True)
class _Cells:
    """The cell of each row: its value in a column, or its values in two."""

    codes: Array
    n: int

    def by(self, other: _Cells) -> _Cells:
        """The cells of two columns crossed."""
        return _Cells(self.codes * other.n + other.codes, self.n * other.n)


@dataclass(slots=True)
class _Sample:
    """Rows to decide on, and the part of each, in one way or two."""

    hasher: Any
    table: Any
    y: Array  # standardised targets, or the numbers of classes
    task: str
    n_threads: int
    parts: list[Array] = field(default_factory=list)

    def encoded(self, columns: Sequence[Column], pairs: Sequence[tuple[str, str]] = ()) -> Chunk:
        """The rows encoded by these columns and pairs of them alone."""
        params = self.hasher.get_params(deep=False) | COUNTED | {"names": 0, "cross": ()}
        trial = type(self.hasher)(**params)
        trial.columns_, trial.n_features_in_ = tuple(columns), len(columns)
        chunk: Chunk = trial.add_crosses(pairs).to_chunk(self.table)
        return chunk

    def scored(
        self,
        columns: Sequence[Column],
        pairs: Sequence[tuple[str, str]] = (),
        strengths: Sequence[float] = (ALPHA,),
    ) -> _Scores:
        """Scores of all rows by models trained on the other folds, under the strength with least loss."""
        rows, _ = compact(replace(self.encoded(columns, pairs), y=self.y))
        labels = distinct(self.y).tolist() if self.task == "classify" else []
        settings = LinearSettings(
            task=self.task,
            loss="log" if self.task == "classify" else "squared",
            solver="newton_cg",
            alpha=ALPHA,
            l2=ALPHA,
            multi_class="softmax" if len(labels) > 2 else "ovr",
            dtype="float64",
        )
        n_outputs = len(labels) if len(labels) > 2 else 1
        tables = np.zeros((len(strengths), len(self.parts), len(self.y), n_outputs))
        start: LinearLearner | None = None
        for way, parts in enumerate(self.parts):
            folds = parts % FOLDS
            for fold in range(FOLDS):
                learner = LinearLearner(settings, rows.n_features, labels)
                data = BatchData(ArraySource(rows, np.flatnonzero(folds != fold)), learner)
                warm = None if start is None else data.table_of(start)
                held, start = np.flatnonzero(folds == fold), learner if len(strengths) == 1 else None
                for k, alpha in enumerate(strengths):
                    learner.settings = with_strength(settings, alpha)
                    objective = Objective(data, self.n_threads)
                    objective.warm = warm
                    warm = solve(objective, "newton_cg")
                    data.take_weights(warm)
                    tables[k, way, held] = learner.scores(rows.visit(held), self.n_threads)
        losses = np.array([[self.losses(scores).mean() for scores in ways] for ways in tables])
        return _Scores(self, [tables[k, way] for way, k in enumerate(losses.argmin(axis=0))])

    def losses(self, scores: Array) -> Array:
        """The loss of every row."""
        if self.task == "regress":
            return np.asarray(0.5 * np.square(scores[:, 0] - self.y))
        if scores.shape[1] == 1:
            return np.logaddexp(0, np.where(self.y > 0, -scores[:, 0], scores[:, 0]))
        top = scores.max(axis=1)
        own = scores[np.arange(len(scores)), self.y.astype(np.int64)]
        return np.asarray(np.log(np.exp(scores - top[:, None]).sum(axis=1)) + top - own)

    def derivatives(self, scores: Array) -> tuple[Array, Array]:
        """(first, second) derivative of every row's loss by its scores, one row per output."""
        if self.task == "regress":
            return (scores - self.y[:, None]).T, np.ones_like(scores).T
        if scores.shape[1] == 1:
            p = 1 / (1 + np.exp(-np.clip(scores.T, -30, 30)))
            return p - self.y, p * (1 - p)
        e = np.exp(scores.T - scores.max(axis=1))
        p = e / e.sum(axis=0)
        return p - (self.y == np.arange(len(p))[:, None]), p * (1 - p)


class _Scores:
    """Scores of all rows by what was learned from other rows, in each way of making parts."""

    def __init__(self, sample: _Sample, ways: Sequence[Array]) -> None:
        self.sample, self.ways = sample, ways
        self.derivatives = [sample.derivatives(scores) for scores in ways]
        self.losses = np.array([sample.losses(scores) for scores in ways])

    def gain(self, cells: _Cells) -> float:
        """The gain per row of Newton steps in the cells."""
        return float(np.mean([self._steps(cells, way)[0] for way in range(len(self.ways))]))

    def moved(self, cells: _Cells) -> _Scores:
        """The scores after Newton steps in the cells."""
        ways = []
        for way, scores in enumerate(self.ways):
            steps = self._steps(cells, way)[1]
            ways.append(scores + steps[:, cells.codes, self.sample.parts[way]].T)
        return _Scores(self.sample, ways)

    def _steps(self, cells: _Cells, way: int) -> tuple[float, Array]:
        """(gain per row, the step of each cell for each part, by the rows of the others; one table per output)."""
        parts, (g, h) = self.sample.parts[way], self.derivatives[way]
        place, shape = cells.codes * PARTS + parts, (len(g), cells.n, PARTS)
        left, bend = (
            np.array([np.bincount(place, output, cells.n * PARTS) for output in rows]).reshape(shape) for rows in (g, h)
        )
        others, bends = left.sum(axis=2, keepdims=True) - left, bend.sum(axis=2, keepdims=True) - bend
        best = (-math.inf, left)
        for ridge in RIDGES:
            v = np.clip(-others / (bends + ridge), -LARGEST_STEP, LARGEST_STEP)
            gain = -float((v * (left + 0.5 * bend * v)).sum()) / len(parts)
            best = max(best, (gain, v), key=lambda found: found[0])
        return best

    def is_better_than(self, other: _Scores, errors: float, least: float = 0.0) -> bool:
        """Whether the losses are lower by a minimum share and by several standard errors."""
        gains = (other.losses - self.losses).mean(axis=0)
        return bool(gains.mean() > max(least * other.losses.mean(), errors * gains.std() / math.sqrt(len(gains))))

    def is_tolerable_beside(self, other: _Scores) -> bool:
        """Whether the losses are not clearly higher under any split into folds."""
        return bool((self.losses.mean(axis=1) <= (1 + TOLERATED) * other.losses.mean(axis=1)).all())


def find_shape(hasher: Any, table: Any, y: Array, task: str, n_threads: int = 1) -> Shape:
    """Decides on a sample of rows with their targets, as far as the hasher leaves it open."""
    most_pairs = MOST_PAIRS if hasher.pairs == "auto" else int(hasher.pairs)
    columns = [column for column in hasher.columns_ if column.used and column.kind != TEXT]
    classes = distinct(y) if task == "classify" else y
    too_many = task == "classify" and len(classes) > MOST_CLASSES
    if y.ndim != 1 or len(y) < LEAST_ROWS or not columns or too_many or (task == "regress" and y.dtype.kind != "f"):
        return Shape()
    target = np.searchsorted(classes, y) if task == "classify" else (y - y.mean()) / (y.std() or 1.0)
    sample = _Sample(hasher, table, target.astype(np.float64), task, n_threads)
    surveyed = {column.name: _survey(sample, column) for column in columns}
    trends = {name: trend for name, (_, trend) in surveyed.items()}
    if "rises" not in trends.values():
        trends = {name: trend for name, trend in trends.items() if trend != "marks"}
    shape = Shape(mixed=not any(trends.values()))
    sample.parts = _parts(y, mixed=shape.mixed)
    steady = [column for column in columns if hasher.knots is True or not trends.get(column.name)]
    cells = {column.name: surveyed[column.name][0] for column in steady}
    may_bend = hasher.knots is not False and any(len(column.candidates) > 2 for column in steady)
    may_cross = most_pairs > 0 and len(steady) > 1
    if not may_bend and not may_cross:
        return shape
    scores = sample.scored(columns)
    if may_bend:
        bent, scores = _bend(shape, columns, steady, cells, scores)
        columns, known = list(bent), set(steady)
        if odd := [column.name for column in columns if column not in known and trends.get(column.name)]:
            why = "they have one value over a long stretch, or rise or fall along the file"
            shape.events.append(f"kept as straight lines, because {why}: {', '.join(odd)}")
    if may_cross:
        origins = {column.name: column.origin for column in steady}
        _add_pairs(shape, columns, cells, origins, scores, most_pairs)
    return shape


def _parts(y: Array, *, mixed: bool) -> list[Array]:
    """The fold of each row: random, and also contiguous if future rows may differ from these."""
    n_rows = len(y)
    scattered = (np.arange(1, n_rows + 1) * GOLDEN % 1.0 * PARTS).astype(np.int64)
    stretches = np.arange(n_rows) * PARTS // n_rows
    return [scattered] if mixed or is_sorted(y) else [scattered, stretches]


def _survey(sample: _Sample, column: Column) -> tuple[_Cells, str]:
    """(the cells of a column, by categories or the nearest knots, and whether it has a trend along the rows).

    A trend is "rises", or falls; or "marks": each value for a period of its own, which counts where another column
    rises; or "stretch": many values, but one of them over a long stretch; or neither.
    """
    chunk = sample.encoded([column.with_knots()])
    sizes, indices = np.abs(chunk.values), chunk.indices
    n = len(chunk.indptr) - 1
    rows = np.repeat(np.arange(n), np.diff(chunk.indptr))
    trend = ""
    if column.kind == NUMBER:
        line = indices == sample.hasher.bucket(column.name)
        values = np.zeros(n)
        values[rows[line]] = chunk.values[line]
        trend = _trend(values) if column.distinct > 2 else ""
        if len(column.candidates) > 1:
            sizes[line] = -1  # the line takes no part
    order = np.lexsort((-sizes, rows))
    first = np.full(n, -1, np.int64)
    there = np.diff(chunk.indptr) > 0
    first[there] = indices[order[chunk.indptr[:-1][there]]]
    found, codes, counts = np.unique(first, return_inverse=True, return_counts=True)
    if len(found) <= MOST_CODES:
        return _Cells(codes, len(found)), trend
    rank = np.empty(len(counts), np.int64)
    rank[np.argsort(-counts, kind="stable")] = np.arange(len(counts))
    return _Cells(np.minimum(rank, MOST_CODES)[codes], MOST_CODES + 1), trend


def _trend(values: Array) -> str:
    _, codes, counts = np.unique(values, return_inverse=True, return_counts=True)
    ranks = np.cumsum(counts) - (counts - 1) / 2
    rows = np.arange(len(values)) - (len(values) - 1) / 2
    if abs(dot(ranks[codes], rows)) > ALONG * dot(np.repeat(ranks, counts), rows) > 0:
        return "rises"
    starts = np.flatnonzero(np.concatenate([[True], values[1:] != values[:-1], [True]]))
    if 2 < len(counts) <= len(values) / ROWS_PER_VALUE and len(starts) - 1 <= ONCE * len(counts):
        # With few values it rises but for a new start, as months do in a file of a year and a half.
        return "rises" if len(counts) <= FEW_VALUES else "marks"
    long = len(counts) > FEW_VALUES and np.diff(starts).max() > LONG_STRETCH * len(values)
    return "stretch" if long else ""


def _bend(
    shape: Shape, columns: Sequence[Column], steady: Sequence[Column], cells: Mapping[str, _Cells], scores: _Scores
) -> tuple[Sequence[Column], _Scores]:
    """(the columns that get knots because these beat a line on held-out rows, the scores with them)."""
    sample, chosen = scores.sample, {column.name for column in steady if column.candidates}
    if not (forced := sample.hasher.knots is True):
        curved = [column.name for column in steady if len(column.candidates) > 2]
        chosen = {name for name in curved if scores.moved(cells[name]).is_better_than(scores, BEND_CERTAINTY)}
    if not chosen:
        return columns, scores
    bent = [column.with_knots() if column.name in chosen else column for column in columns]
    better = sample.scored(bent)
    if not forced and not (better.is_better_than(scores, BEND_CERTAINTY) and better.is_tolerable_beside(scores)):
        return columns, scores
    shape.bends = tuple(column.name for column in bent if column.knots)
    shown = ", ".join(shape.bends[:8]) + (f" and {len(shape.bends) - 8} more" if len(shape.bends) > 8 else "")
    losses = f"{better.losses.mean():.5g}, {scores.losses.mean():.5g} with straight lines"
    shape.events.append(f"curves for numbers ({shown}): loss on held-out rows {losses}")
    return bent, better


def _add_pairs(
    shape: Shape,
    columns: Sequence[Column],
    cells: Mapping[str, _Cells],
    origins: Mapping[str, str],
    scores: _Scores,
    most: int,
) -> None:
    """Adds the best pairs one by one, as long as the next one surely helps, if then the model with all of them does."""
    if len(cells) > MOST_CROSSED:
        alone = {name: scores.gain(own) for name, own in cells.items()}
        cells = {name: cells[name] for name in sorted(cells, key=lambda name: -alone[name])[:MOST_CROSSED]}
    pairs = [(a, b) for a, b in combinations(cells, 2) if origins[a] != origins[b]]  # not parts of one date
    additive = scores
    taken: list[Any] = []
    least = LEAST_GAIN * float(additive.losses.mean())
    certainty = max(LEAST_CERTAINTY, math.sqrt(2 * math.log(max(1.0, len(pairs) / PAIRS_PER_RIVAL))))
    while pairs and len(taken) < most:
        gains = {(a, b): scores.gain(cells[a].by(cells[b])) for a, b in pairs}
        better = (pair for pair in pairs if gains[pair] > least)
        pairs = sorted(better, key=lambda pair: -gains[pair])[:MOST_TRIED_AGAIN]
        for a, b in pairs:
            moved = scores.moved(cells[a].by(cells[b]))
            if moved.is_better_than(scores, certainty, LEAST_GAIN) and moved.is_tolerable_beside(additive):
                taken.append((a, b))
                pairs, scores = [pair for pair in pairs if pair != (a, b)], moved
                break
        else:
            break
    if taken and len(scores.sample.y) < FEW_ROWS:
        additive, scores = (scores.sample.scored(columns, own, STRENGTHS) for own in ((), taken))
        taken = taken if scores.is_better_than(additive, 0.0) else []  # each pair has surely gained something
    if taken:
        shape.pairs = tuple(taken)
        names = ", ".join(f"{a} x {b}" for a, b in taken)
        losses = f"{scores.losses.mean():.5g}, {additive.losses.mean():.5g} without"
        shape.events.append(f"crossed {names}: loss on held-out rows {losses}")
