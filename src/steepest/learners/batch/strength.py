"""alpha="auto" of exact solvers: the strength of the penalty with the least loss on held-out rows.

From strong to weak, each problem is solved from the solution before, on a part of the rows; the rest are scored. Half
of these are neighbours in stretches of the file, as in data that comes later, and half are scattered, as in data that
is like all of it: files in the order of time mislead by the latter, files sorted by a category by the former. All are
scattered if no column of a table has a trend along the file. With few rows that is done for five parts in turn. The
path ends when the loss has risen twice. Alpha counts for a mean over rows: what is best for a part of them is scaled to
all of them by the numbers of rows.

Scores of rows held back under the best strength are kept: they show how far the model can be trusted on rows that
it has not learned. Stretches speak for rows that come later. For rows like those of the file, one more model is
learned from all rows but a scattered eighth: those tried have seen fewer rows, and of a large file only some stretches.

Invariant: what is chosen depends on the rows and their order only.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from steepest.data.chunk import Array
from steepest.data.source import ArraySource
from steepest.learners.batch.batch_data import BatchData
from steepest.learners.batch.objective import Objective
from steepest.learners.batch.solvers import BATCH_SOLVERS, SolverOptions
from steepest.learners.linear.linear import LinearLearner
from steepest.learners.linear.linear_settings import LinearSettings

STRENGTHS = tuple(10.0 ** (-k / 2) for k in range(2, 13))  # 1e-1 ... 1e-6
FOLDS, FEW_ROWS = 5, 4000  # fewer rows are split so many times, since one part would say too little
# Else one of eight stretches of the file is held back, the last among them, and as many rows scattered over it.
STRETCHES, HELD_OF = 16, 8
GOLDEN = 0.6180339887498949  # multiples of it fill [0, 1) evenly
IN_ORDER = 0.05  # of the steps back that a random order has: fewer, and rows are sorted
RISES = 2  # in a row that end the path
MOST_ENTRIES = 1 << 20  # to try on: of more, only every second, third, ... stretch of the rows
MOST_STEPS = 40
TOL = 1e-3
ROUGH_TOL = 1e-2  # of the one model more, unless its loss is squared: 1e-2 left diamonds a coverage of 0.946
LEAST_GAIN = 1e-4  # by which a weaker penalty must be better

NewLearner = Callable[[ArraySource], LinearLearner]


@dataclass(frozen=True, slots=True)
class HeldBack:
    """Rows that were held out: raw scores, targets as given, weights."""

    scores: Array
    y: Array
    weight: Array

    @classmethod
    def joined(cls, parts: Sequence[HeldBack]) -> HeldBack:
        """All held-out rows of several parts."""
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in cls.__slots__))

    def only(self, rows: Array) -> HeldBack | None:
        """Some of the rows; None if there are none."""
        return HeldBack(self.scores[rows], self.y[rows], self.weight[rows]) if rows.any() else None


@dataclass(frozen=True, slots=True)
class Strength:
    """The strengths that were tried, and the best one."""

    alpha: float
    tried: tuple[tuple[float, float], ...]  # alpha for all rows, mean loss on held-out rows
    held: HeldBack | None  # under the best alpha: scattered rows, until the model has taken them in
    later: HeldBack | None = None  # stretches of rows, if the rows are not mixed

    def sentence(self) -> str:
        """The choice as a sentence for `history_.events`."""
        losses = ", ".join(f"{alpha:.1e}: {loss:.5g}" for alpha, loss in self.tried)
        return f"alpha='auto' chose {self.alpha:.2e} by the loss on held-out rows ({losses})"


def is_sorted(y: Array) -> bool:
    """Whether rows are in the order of their targets, or all rows of a label are neighbours."""
    if y.ndim != 1 or len(y) < 2:
        return False
    _, codes, counts = np.unique(y, return_inverse=True, return_counts=True)
    usual = 0.5 * (len(y) - 1) * (1 - float(np.square(counts / len(y)).sum()))  # rises, and falls, in a random order
    steps = np.diff(codes)
    return bool(min(int((steps > 0).sum()), int((steps < 0).sum())) < IN_ORDER * usual)


def held_out_parts(n_rows: int, y: Array | None = None, *, mixed: bool = False) -> Iterator[Array]:
    """Masks of the rows to hold back; single rows alone if rows are mixed, or sorted by their targets."""
    if n_rows < FEW_ROWS:
        folds = min(FOLDS, n_rows)
        for fold in range(folds):
            yield np.arange(n_rows) % folds == fold
        return
    if mixed or (y is not None and is_sorted(y)):
        yield _scattered(n_rows, 2)
    else:
        yield _scattered(n_rows, 1) | (np.arange(n_rows) * STRETCHES // n_rows % HELD_OF == HELD_OF - 1)


def _scattered(n_rows: int, eighths: int) -> Array:
    """Random rows to hold out; those of fewer eighths are among those of more."""
    return np.asarray(np.arange(1, n_rows + 1) * GOLDEN % 1.0 * HELD_OF < eighths)


def choose_strength(
    source: ArraySource, solver: str, new_learner: NewLearner, n_threads: int, *, mixed: bool = False
) -> Strength | None:
    """The best alpha for these rows, `mixed` if nothing shows an order; None if no part can be learned from."""
    whole, source = source, _some_stretches(source)
    all_rows = whole.n_rows or 0
    n_rows = source.n_rows or 0
    sums = np.zeros(len(STRENGTHS))
    n_held, n_learned, tried = 0, 0, len(STRENGTHS)
    folds: list[list[HeldBack]] = []
    numbers = np.arange(n_rows) if source.rows is None else source.rows
    y = None if source.block.y is None else source.block.y[numbers]
    for rows in held_out_parts(n_rows, y, mixed=mixed):
        learn, score = _apart(source, rows)
        if not learn.n_rows or not score.n_rows:
            continue
        losses, held_back = zip(*_path(learn, score, solver, new_learner, n_threads), strict=True)
        folds.append(list(held_back))
        tried = min(tried, len(losses))
        sums[: len(losses)] += np.array(losses) * score.n_rows
        n_held, n_learned = n_held + score.n_rows, max(n_learned, learn.n_rows)
    if not n_held or not tried:
        return None
    means, share = sums[:tried] / n_held, n_learned / all_rows
    if not np.isfinite(means).any():
        return None
    least = np.nanmin(np.where(np.isfinite(means), means, np.nan))
    best = int(np.flatnonzero(means <= least + LEAST_GAIN * abs(least))[0])
    pairs = zip((alpha * share for alpha in STRENGTHS), means.tolist(), strict=False)
    alpha, held = STRENGTHS[best] * share, HeldBack.joined([fold[best] for fold in folds])
    if all_rows < FEW_ROWS:
        return Strength(alpha, tuple(pairs), held)
    later = held.only(~_scattered(n_rows, 2)[rows]) if len(folds) == 1 else None
    learn, score = _apart(whole, _scattered(all_rows, 1))
    strength = alpha * all_rows / (learn.n_rows or 1)
    ((_, held),) = _path(learn, score, solver, new_learner, n_threads, (strength,))
    return Strength(alpha, tuple(pairs), held, later)


def _apart(source: ArraySource, held: Array) -> tuple[ArraySource, ArraySource]:
    """(rows to learn, rows held out)."""
    numbers = np.arange(source.block.n_rows) if source.rows is None else source.rows
    learn, score = source.copy(), source.copy()
    learn.rows, score.rows = numbers[~held], numbers[held]
    learn.n_rows, score.n_rows = len(learn.rows), len(score.rows)
    return learn, score


def _some_stretches(source: ArraySource) -> ArraySource:
    """The source, or a contiguous part of it that is small enough to try on."""
    numbers = np.arange(source.block.n_rows) if source.rows is None else source.rows
    lengths = source.block.indptr[numbers + 1] - source.block.indptr[numbers]
    every = math.ceil(int(lengths.sum()) / MOST_ENTRIES)
    if every <= 1:
        return source
    part = source.copy()
    part.rows = numbers[np.arange(len(numbers)) * STRETCHES * HELD_OF * every // len(numbers) % every == 0]
    part.n_rows = len(part.rows)
    return part


def _path(
    learn: ArraySource,
    score: ArraySource,
    solver: str,
    new_learner: NewLearner,
    n_threads: int,
    strengths: Sequence[float] = STRENGTHS,
) -> Iterator[tuple[float, HeldBack]]:
    """Mean losses and scores on the held-out rows, from strong to weak penalties."""
    learner = new_learner(learn)
    learner.measure_sizes(learn)
    data = BatchData(learn, learner)
    code = learner.code_for_scoring if learner.targets.class_weight is None else learner.code  # as rows are learned
    warm: Array | None = None
    best, rises = math.inf, 0
    for alpha in strengths:
        learner.settings = with_strength(learner.settings, alpha)
        objective = Objective(data, n_threads)
        objective.warm = warm
        exact = len(strengths) > 1 or learner.settings.loss == "squared"
        warm = solve(objective, solver, TOL if exact else ROUGH_TOL)
        data.take_weights(warm)
        losses, weights, held = [], [], []
        for rows in score:
            coded = code(rows)
            z = learner.scores(coded)
            part, counted = learner.losses(coded, z)
            losses.append(part)
            weights.append(counted)
            assert rows.y is not None
            weight = np.ones(len(z)) if rows.weight is None else np.asarray(rows.visited(rows.weight), np.float64)
            held.append(HeldBack(z, rows.visited(rows.y), weight))
        weight = np.concatenate(weights)
        loss = float((np.concatenate(losses) * weight).sum() / max(weight.sum(), 1e-300))
        yield loss, HeldBack.joined(held)
        rises = 0 if loss < best else rises + 1
        best = min(best, loss)
        if rises >= RISES:
            return


def with_strength(settings: LinearSettings, alpha: float) -> LinearSettings:
    """The settings with another alpha."""
    share = alpha / settings.alpha
    return replace(settings, alpha=alpha, l1=settings.l1 * share, l2=settings.l2 * share)


def solve(objective: Objective, solver: str, tol: float = TOL) -> Array:
    """The weights that a solver ends with, close to the minimum."""
    steps = BATCH_SOLVERS[solver](objective, SolverOptions(tol=tol))
    for _ in range(MOST_STEPS):
        step = steps.step()
        if step.done is not None or step.gradient <= tol:
            break
    return steps.w.copy()
