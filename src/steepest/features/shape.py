"""The shape of a linear model over a table: which numbers bend at knots, and which pairs of columns are crossed.

Both are decided on rows held back from a sample. An additive model (every column by itself) is fitted with lines and
with bends; the better one stays. Then each pair of columns is tried on what the additive model leaves over: with g and
h the first and second derivative of a row's loss by its score, a cell of the pair (a value of one column and one of the
other) gets the Newton step v = -Σg / (Σh + ridge) from the rows learned, and the pair gains -Σ(g v + h v²/2) on the
rows held back (Lou, Caruana, Gehrke and Hooker, "Accurate intelligible models with pairwise interactions", KDD 2013,
rank pairs alike). The best pairs are taken if the whole model with them is better on the rows held back.

A number that stays the same over a long stretch of the file, and varies elsewhere, has changed its meaning there: bends
or crosses would learn the stretch, so it stays a line. So does one that rises or falls along the whole file, such as a
date: rows to come lie beyond its last knot, where a bend is flat and a cross has learned nothing. Half of the rows held
back are neighbours in stretches, half are scattered; what is taken must not be worse on either. Left out: texts,
which have words enough, and models of many classes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Any

import numpy as np

from steepest.data.chunk import Array, Chunk
from steepest.data.source import ArraySource
from steepest.data.tables.columns import NUMBER, TEXT
from steepest.features.columns import Column
from steepest.learners.batch.batch_data import BatchData
from steepest.learners.batch.objective import Objective
from steepest.learners.batch.strength import FEW_ROWS, HeldOut, solve
from steepest.learners.linear.linear import LinearLearner
from steepest.learners.linear.linear_settings import LinearSettings
from steepest.learners.targets import distinct

LEAST_ROWS = 200  # of a sample, below which nothing is decided
PARTS_OF_FEW = 4  # models that are fitted to decide on few rows, with other rows held back each
ALPHA = 1e-4
LONG_STRETCH = 0.1  # of the rows, with one value throughout
ALONG = 0.99  # of the rank correlation with the number of the row that a sorted column would have
FEW_VALUES = 32  # a number with no more is a code: long stretches of one are nothing unusual
MOST_PAIRS = 10
MOST_CROSSED = 40  # columns whose pairs are tried
MOST_CODES = 64  # values of a column that a pair is tried with; the others count as one
MOST_CLASSES = 12
RIDGE = 5.0
LEAST_GAIN = 1e-3  # of a pair, as a share of the loss
LEAST_CERTAINTY = 2.5  # of a pair's gain, in standard errors; more where the best of many pairs would have it by chance
TOLERATED = 0.01  # share of the loss by which rows in stretches, or scattered ones, may be worse where all are better
LEAST_BETTER = 5e-4  # of the whole model with pairs, as a share of the loss


@dataclass(slots=True)
class Shape:
    """What was decided."""

    bends: tuple[str, ...] = ()
    pairs: tuple[tuple[str, str], ...] = ()
    events: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Losses:
    """Of the rows held back, and which of them are in stretches and which are scattered."""

    rows: Array
    stretches: Array
    scattered: Array

    @property
    def mean(self) -> float:
        """Over all of them."""
        return float(self.rows.mean())

    def better_than(self, other: _Losses, least: float = 0.0) -> bool:
        """Whether they are less by a share and half a standard error, and not clearly more on either kind."""
        gains = (1 - least) * other.rows - self.rows
        certain = gains.mean() > 0.5 * gains.std() / np.sqrt(len(gains))
        least_gain = -TOLERATED * other.mean
        return bool(certain and min(gains[self.stretches].mean(), gains[self.scattered].mean()) > least_gain)


@dataclass(slots=True)
class _Sample:
    """Rows to decide on, and which of them are held back."""

    hasher: Any
    table: Any
    y: Array
    task: str
    parts: Sequence[HeldOut]  # of which each is held back by itself
    n_threads: int

    @property
    def held(self) -> Array:
        """Rows that are held back from the first model."""
        return self.parts[0].rows

    def encoded(self, columns: Sequence[Column], pairs: Sequence[tuple[str, str]] = ()) -> Chunk:
        """The rows by these columns alone."""
        params = self.hasher.get_params(deep=False) | {"names": 0, "weighting": "count", "cross": ()}
        trial = type(self.hasher)(**params)
        trial.columns_, trial.n_features_in_ = tuple(columns), len(columns)
        if pairs:
            trial.add_crosses(pairs)
        chunk: Chunk = trial.to_chunk(self.table)
        return chunk

    def fitted(self, chunk: Chunk) -> tuple[LinearLearner, _Losses]:
        """(the model of the rows not held back in the first part, the losses on those that are, of all parts)."""
        rows = replace(chunk, y=self.y)
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
        learners, losses = [], []
        for part in self.parts:
            learner = LinearLearner(settings, chunk.n_features, labels)
            data = BatchData(ArraySource(rows, np.flatnonzero(~part.rows)), learner)
            data.take_weights(solve(Objective(data, self.n_threads), "newton_cg"))
            learners.append(learner)
            losses.append(learner.losses(learner.code_for_scoring(rows.visit(np.flatnonzero(part.rows))))[0])
        stretches = np.concatenate([part.stretches[part.rows] for part in self.parts])
        scattered = np.concatenate([part.scattered[part.rows] for part in self.parts])
        return learners[0], _Losses(np.concatenate(losses), stretches, scattered)

    def derivatives(self, learner: LinearLearner, chunk: Chunk) -> tuple[Array, Array]:
        """(first, second) derivative of every row's loss by its scores, one column per output."""
        scores = learner.scores(chunk, self.n_threads)
        if self.task == "regress":
            return scores - self.y[:, None], np.ones_like(scores)
        codes = learner.book.codes(self.y)
        if scores.shape[1] == 1:
            p = 1 / (1 + np.exp(-np.clip(scores, -30, 30)))
            return p - (codes[:, None] > 0), p * (1 - p)
        e = np.exp(scores - scores.max(axis=1, keepdims=True))
        p = e / e.sum(axis=1, keepdims=True)
        return p - (codes[:, None] == np.arange(p.shape[1])), p * (1 - p)


def find_shape(hasher: Any, table: Any, y: Array, task: str, n_threads: int = 1) -> Shape:
    """Decides on a sample of rows with their targets, as far as the hasher leaves it open."""
    most_pairs = MOST_PAIRS if hasher.pairs == "auto" else int(hasher.pairs)
    columns = [column for column in hasher.columns_ if column.used and column.kind != TEXT]
    too_many = task == "classify" and len(distinct(y)) > MOST_CLASSES
    if y.ndim != 1 or len(y) < LEAST_ROWS or not columns or too_many or (task == "regress" and y.dtype.kind != "f"):
        return Shape()
    target = (y - y.mean()) / (y.std() or 1.0) if task == "regress" else y
    sample = _Sample(hasher, table, target, task, [], n_threads)
    trends = {column.name: _trend(sample, column) for column in columns}
    mixed = "rises" not in trends.values()  # nothing shows that rows to come would be other than these
    splits = range(PARTS_OF_FEW if len(y) < FEW_ROWS else 1)
    sample.parts = [HeldOut.part(y, len(y), number, mixed=mixed) for number in splits]
    if task == "classify":  # a class that is held back entirely cannot be judged
        sample.parts = [part for part in sample.parts if len(distinct(y[~part.rows])) == len(distinct(y))]
    if not sample.parts:
        return Shape()
    shape = Shape()
    steady = [column for column in columns if hasher.knots is True or not trends[column.name]]
    chunk = sample.encoded(columns)
    learner, loss = sample.fitted(chunk)
    if hasher.knots is not False and any(len(column.candidates) > 2 for column in steady):
        bent = [column.with_knots() if column in steady else column for column in columns]
        bent_chunk = sample.encoded(bent)
        bent_learner, bent_loss = sample.fitted(bent_chunk)
        if bent_loss.better_than(loss) or hasher.knots is True:
            shape.bends = tuple(c.name for c in bent if c.knots)
            shape.events.append(_about_bends(shape.bends, loss.mean, bent_loss.mean))
            columns, chunk, learner, loss = bent, bent_chunk, bent_learner, bent_loss
        names = {column.name for column in steady}
        if odd := [column.name for column in columns if column.name not in names]:
            why = "they have one value over a long stretch, or rise or fall along the file"
            shape.events.append(f"kept as lines, since {why}: {', '.join(odd)}")
    if most_pairs and len(steady) > 1:
        _add_pairs(shape, sample, columns, {column.name for column in steady}, (chunk, learner, loss), most_pairs)
    return shape


def _about_bends(names: Sequence[str], line: float, bent: float) -> str:
    shown = ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
    return f"numbers bend at knots ({shown}): loss on rows held back {bent:.5g}, {line:.5g} with lines"


def _trend(sample: _Sample, column: Column) -> str:
    """ "rises" along the rows, or falls; "stretch": many values, but one of them over a long stretch; or neither."""
    if column.kind != NUMBER or column.distinct <= 2:
        return ""
    line = sample.encoded([replace(column, knots=())])
    lengths = np.diff(line.indptr)
    values = np.zeros(len(lengths))
    values[lengths > 0] = line.values[line.indptr[:-1][lengths > 0]]
    _, codes, counts = np.unique(values, return_inverse=True, return_counts=True)
    ranks = np.cumsum(counts) - (counts - 1) / 2
    rows = np.arange(len(values)) - (len(values) - 1) / 2
    if abs(ranks[codes] @ rows) > ALONG * (np.repeat(ranks, counts) @ rows) > 0:
        return "rises"
    starts = np.flatnonzero(np.concatenate([[True], values[1:] != values[:-1], [True]]))
    long = column.distinct > FEW_VALUES and np.diff(starts).max() > LONG_STRETCH * len(values)
    return "stretch" if long else ""


def _add_pairs(
    shape: Shape,
    sample: _Sample,
    columns: Sequence[Column],
    steady: set[str],
    additive: tuple[Chunk, LinearLearner, _Losses],
    most: int,
) -> None:
    """The best pairs, if the model with all of them, or with the best three, is better."""
    chunk, learner, loss = additive
    g, h = sample.derivatives(learner, chunk)
    codes = {column.name: _codes(sample, column) for column in columns if column.name in steady}
    if len(codes) > MOST_CROSSED:
        alone = {name: _gain([code], g, h, sample.held)[0] for name, code in codes.items()}
        codes = {name: codes[name] for name in sorted(codes, key=lambda name: -alone[name])[:MOST_CROSSED]}
    origins = {column.name: column.origin for column in columns}
    found = []
    certainty = max(LEAST_CERTAINTY, _largest_of(len(codes) * (len(codes) - 1) // 2))
    for a, b in combinations(codes, 2):
        if origins[a] == origins[b]:
            continue  # parts of one date
        gain, error = _gain([codes[a], codes[b]], g, h, sample.held)
        if gain > LEAST_GAIN * loss.mean and gain > certainty * error:
            found.append((gain, (a, b)))
    best = [pair for _, pair in sorted(found, key=lambda item: -item[0])[:most]]
    for some in (best, best[:3]):
        if not some:
            return
        _, crossed = sample.fitted(sample.encoded(columns, some))
        if crossed.better_than(loss, LEAST_BETTER):
            shape.pairs = tuple(some)
            names = ", ".join(f"{a} x {b}" for a, b in some)
            shape.events.append(f"crossed {names}: loss on rows held back {crossed.mean:.5g}, {loss.mean:.5g} without")
            return


def _largest_of(n: int) -> float:
    """About the largest of n standard normal numbers, as chance alone would bring it."""
    if n < 3:
        return 0.0
    root = math.sqrt(2 * math.log(n))
    return root - (math.log(math.log(n)) + math.log(4 * math.pi)) / (2 * root)


def _codes(sample: _Sample, column: Column) -> tuple[Array, int]:
    """(a whole number for each row's value, how many there are): categories, or the nearest knot."""
    chunk = sample.encoded([column.with_knots()])
    values, indices = chunk.values.copy(), chunk.indices
    if column.kind == NUMBER:
        values[indices == sample.hasher.bucket(column.name)] = -np.inf  # the line takes no part
    n = len(chunk.indptr) - 1
    rows = np.repeat(np.arange(n), np.diff(chunk.indptr))
    order = np.lexsort((-values, rows))
    first = np.full(n, -1, np.int64)
    there = np.diff(chunk.indptr) > 0
    first[there] = indices[order[chunk.indptr[:-1][there]]]
    values_found, codes, counts = np.unique(first, return_inverse=True, return_counts=True)
    if len(values_found) <= MOST_CODES:
        return codes, len(values_found)
    rank = np.empty(len(counts), np.int64)
    rank[np.argsort(-counts, kind="stable")] = np.arange(len(counts))
    return np.minimum(rank, MOST_CODES)[codes], MOST_CODES + 1


def _gain(codes: Sequence[tuple[Array, int]], g: Array, h: Array, held: Array) -> tuple[float, float]:
    """(mean gain on the rows held back of a Newton step in every cell, its standard error)."""
    cell, n_cells = codes[0]
    for code, n in codes[1:]:
        cell, n_cells = cell * n + code, n_cells * n
    total = np.zeros(int(held.sum()))
    for output in range(g.shape[1]):
        left, bend = g[:, output], h[:, output]
        v = -np.bincount(cell[~held], left[~held], n_cells) / (np.bincount(cell[~held], bend[~held], n_cells) + RIDGE)
        step = v[cell[held]]
        total -= left[held] * step + 0.5 * bend[held] * step * step
    return float(total.mean()), float(total.std() / np.sqrt(len(total)))
