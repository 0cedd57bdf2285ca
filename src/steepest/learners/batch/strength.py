"""alpha="auto" of exact solvers: the strength of the penalty with the least loss on held-out rows.

From strong to weak, each problem is solved from the solution before, on a part of the rows; the rest are scored. Half
of these are neighbours in stretches of the file, as in data that comes later, and half are scattered, as in data that
is like all of it: files in the order of time mislead by the latter, files sorted by a category by the former. All are
scattered if no column of a table has a trend along the file. With few rows that is done for five parts in turn. The
path ends when the loss has risen twice. Alpha counts for a mean over rows: what is best for a part of them is scaled to
all of them by the numbers of rows.

Where features come in blocks, such as the columns of a table, each block may get a strength of its own (blocks.py): if
these lose less on the same held-out rows, by more than the noise of the difference.

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

from steepest.data.chunk import Array, compact
from steepest.data.source import ArraySource
from steepest.learners.batch.batch_data import BatchData
from steepest.learners.batch.blocks import LIKELIHOODS, Blocks, BlockStrengths, most_probable_strengths
from steepest.learners.batch.objective import Objective
from steepest.learners.batch.solvers import BATCH_SOLVERS, SolverOptions
from steepest.learners.linear.linear import LinearLearner
from steepest.learners.linear.linear_settings import LinearSettings
from steepest.learners.linear.sizes import MOST_COLUMNS
from steepest.learners.targets import refuse_bad_rows

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
CERTAINTY = 2.0  # standard errors by which strengths of blocks must be better than one for all

NewLearner = Callable[[ArraySource], LinearLearner]


@dataclass(frozen=True, slots=True)
class HeldBack:
    """Rows that were held out: raw scores, targets as given, weights, losses, weights with those of classes."""

    scores: Array
    y: Array
    weight: Array
    losses: Array
    counted: Array

    @classmethod
    def joined(cls, parts: Sequence[HeldBack]) -> HeldBack:
        """All held-out rows of several parts."""
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in cls.__slots__))

    def only(self, rows: Array) -> HeldBack | None:
        """Some of the rows; None if there are none."""
        return HeldBack(*(getattr(self, name)[rows] for name in self.__slots__)) if rows.any() else None

    def mean_loss(self) -> float:
        """The mean loss of the rows."""
        return float((self.losses * self.counted).sum() / max(self.counted.sum(), 1e-300))

    def is_better_than(self, other: HeldBack) -> bool:
        """Whether the losses of these rows are lower by more than the noise of the difference."""
        gains = (other.losses - self.losses) * self.counted
        return bool(gains.sum() > CERTAINTY * math.sqrt(float(np.square(gains - gains.mean()).sum())))


@dataclass(frozen=True, slots=True)
class Solved:
    """The minimum under one strength: scores of held-out rows, the learner, and its weights as solvers hold them."""

    held: HeldBack
    learner: LinearLearner
    w: Array


@dataclass(frozen=True, slots=True)
class Strength:
    """The strengths that were tried, and the best one."""

    alpha: float
    tried: tuple[tuple[float, float], ...]  # alpha for all rows, mean loss on held-out rows
    held: HeldBack | None  # under the best alpha: scattered rows, until the model has taken them in
    later: HeldBack | None = None  # stretches of rows, if the rows are not mixed
    start: LinearLearner | None = None  # of almost all rows, under the best alpha: where the model may start
    by_block: BlockStrengths | None = None
    block_loss: float = math.nan  # mean loss on held-out rows with strengths by blocks

    def sentences(self) -> list[str]:
        """The choices as sentences for `history_.events`."""
        losses = ", ".join(f"{alpha:.1e}: {loss:.5g}" for alpha, loss in self.tried)
        said = [f"alpha='auto' chose {self.alpha:.2e} by the loss on held-out rows ({losses})"]
        if self.by_block is not None:
            losses = f"{self.block_loss:.5g}, {min(loss for _, loss in self.tried):.5g} with one for all"
            said.append(f"a penalty for each column: {self.by_block.sentence()}: loss on held-out rows {losses}")
        return said


def is_sorted(y: Array) -> bool:
    """Whether rows are in the order of their targets, or all rows of a label are neighbours."""
    if y.ndim != 1 or len(y) < 2:
        return False
    _, codes, counts = np.unique(y, return_inverse=True, return_counts=True)
    usual = 0.5 * (len(y) - 1) * (1 - float(np.square(counts / len(y)).sum()))  # rises, and falls, in a random order
    steps = np.diff(codes)
    return bool(min(int((steps > 0).sum()), int((steps < 0).sum())) < IN_ORDER * usual)


def held_out_parts(
    n_rows: int, y: Array | None = None, weight: Array | None = None, *, mixed: bool = False
) -> Iterator[Array]:
    """Masks of the rows to hold back; single rows alone if rows are mixed, or sorted by their targets.

    Stretches have equal weight, so that rows whose weights fall with their age are not all held back.
    """
    if n_rows < FEW_ROWS:
        folds = min(FOLDS, n_rows)
        for fold in range(folds):
            yield np.arange(n_rows) % folds == fold
        return
    if mixed or (y is not None and is_sorted(y)):
        yield _scattered(n_rows, 2)
    else:
        own = np.ones(n_rows) if weight is None or not weight.any() else weight
        before = np.cumsum(own) - own
        yield _scattered(n_rows, 1) | (before * STRETCHES // own.sum() % HELD_OF == HELD_OF - 1)


def _scattered(n_rows: int, eighths: int) -> Array:
    """Random rows to hold out; those of fewer eighths are among those of more."""
    return np.asarray(np.arange(1, n_rows + 1) * GOLDEN % 1.0 * HELD_OF < eighths)


@dataclass(frozen=True, slots=True)
class _Trials:
    """How the minimum under each strength is found."""

    solver: str
    new_learner: NewLearner
    n_threads: int
    has_sizes: bool = True

    def path(
        self,
        learn: ArraySource,
        score: ArraySource,
        strengths: Sequence[float] = STRENGTHS,
        *,
        by_block: BlockStrengths | None = None,
        start: Array | None = None,
    ) -> Iterator[Solved]:
        """The minimum under each strength, from strong to weak penalties; all have one learner, which goes on."""
        learner = self._learner(learn)
        data = BatchData(learn, learner, roots=None if by_block is None else by_block.roots)
        code = learner.code_for_scoring if learner.targets.class_weight is None else learner.code  # as rows are learned
        warm = start
        best, rises = math.inf, 0
        for alpha in strengths:
            learner.settings = with_strength(learner.settings, alpha)
            objective = Objective(data, self.n_threads)
            objective.warm = warm
            exact = len(strengths) > 1 or learner.settings.loss == "squared"
            warm = solve(objective, self.solver, TOL if exact else ROUGH_TOL)
            data.take_weights(warm)
            held = []
            for rows in score:
                coded = code(rows)
                z = learner.scores(coded)
                assert rows.y is not None
                weight = np.ones(len(z)) if rows.weight is None else np.asarray(rows.visited(rows.weight), np.float64)
                held.append(HeldBack(z, rows.visited(rows.y), weight, *learner.losses(coded, z)))
            joined = HeldBack.joined(held)
            yield Solved(joined, learner, warm)
            loss = joined.mean_loss()
            rises = 0 if loss < best else rises + 1
            best = min(best, loss)
            if rises >= RISES:
                return

    def by_block(
        self, learn: ArraySource, score: ArraySource, alpha: float, w: Array, blocks: Blocks
    ) -> tuple[BlockStrengths, Solved]:
        """Strengths of blocks, from the minimum w under one strength, and the minimum under them."""
        learner = self._learner(learn)
        learner.settings = with_strength(learner.settings, alpha)
        data = BatchData(learn, learner)
        strengths = most_probable_strengths(Objective(data, self.n_threads), w, blocks)
        start = w.copy()
        start[:-1] /= strengths.roots(data.seen)[:, None]
        (solved,) = self.path(learn, score, (alpha,), by_block=strengths, start=start)
        return strengths, solved

    def _learner(self, learn: ArraySource) -> LinearLearner:
        learner = self.new_learner(learn)
        learner.sizes_open &= self.has_sizes
        learner.measure_sizes(learn)
        return learner


def choose_strength(
    source: ArraySource,
    solver: str,
    new_learner: NewLearner,
    n_threads: int,
    *,
    mixed: bool = False,
    blocks: Blocks | None = None,
) -> Strength | None:
    """The best alpha for these rows, `mixed` if nothing shows an order; None if no part can be learned from."""
    trials = _Trials(solver, new_learner, n_threads)
    n_features = source.n_features or 0
    if n_features <= MOST_COLUMNS:
        return _choose(source, trials, mixed, blocks)
    refuse_bad_rows(source.block, check_values=False)
    block, columns = compact(source.block)
    if not len(columns):
        return _choose(source, trials, mixed, blocks)
    trials = replace(trials, has_sizes=False)  # few columns in use do not make a dense table of hashed rows
    in_use = None if blocks is None else Blocks(blocks.names, blocks.of(columns))
    found = _choose(ArraySource(block, source.rows, source.chunk_rows), trials, mixed, in_use)
    if found is None:
        return None
    if found.start is not None:
        found.start.renumber(columns, n_features)
    by_block = found.by_block
    return found if by_block is None or blocks is None else replace(found, by_block=replace(by_block, blocks=blocks))


def _choose(source: ArraySource, trials: _Trials, mixed: bool, blocks: Blocks | None) -> Strength | None:
    whole, source = source, _some_stretches(source)
    all_rows = whole.n_rows or 0
    n_rows = source.n_rows or 0
    sums = np.zeros(len(STRENGTHS))
    n_held, n_learned, tried = 0, 0, len(STRENGTHS)
    folds: list[tuple[ArraySource, ArraySource, list[Solved]]] = []
    numbers = source.row_numbers
    y, weight = (None if values is None else values[numbers] for values in (source.block.y, source.block.weight))
    for rows in held_out_parts(n_rows, y, weight, mixed=mixed):
        learn, score = _apart(source, rows)
        if not learn.n_rows or not score.n_rows:
            continue
        path = list(trials.path(learn, score))
        losses = [solved.held.mean_loss() for solved in path]
        folds.append((learn, score, path))
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
    alpha, held = STRENGTHS[best] * share, HeldBack.joined([path[best].held for _, _, path in folds])
    by_block, block_loss = None, math.nan
    if blocks is not None and folds[0][2][best].learner.loss.name in LIKELIHOODS:
        apart = [trials.by_block(learn, score, STRENGTHS[best], path[best].w, blocks) for learn, score, path in folds]
        held_by_block = HeldBack.joined([solved.held for _, solved in apart])
        if held_by_block.is_better_than(held):
            held, by_block = held_by_block, BlockStrengths.mean(strengths for strengths, _ in apart)
            block_loss = held.mean_loss()
    if all_rows < FEW_ROWS:
        return Strength(alpha, tuple(pairs), held, by_block=by_block, block_loss=block_loss)
    later = held.only(~_scattered(n_rows, 2)[rows]) if len(folds) == 1 else None
    learn, score = _apart(whole, _scattered(all_rows, 1))
    strength = alpha * all_rows / (learn.n_rows or 1)
    (solved,) = trials.path(learn, score, (strength,), by_block=by_block)
    return Strength(alpha, tuple(pairs), solved.held, later, solved.learner, by_block, block_loss)


def may_differ_by_block(settings: LinearSettings) -> bool:
    """Whether the penalty is that of a normal prior, whose variance can be found for each block."""
    return settings.l2 > 0 and not (settings.l1 or settings.p or settings.norm or settings.class_weight)


def _apart(source: ArraySource, held: Array) -> tuple[ArraySource, ArraySource]:
    """(rows to learn, rows held out)."""
    numbers = source.row_numbers
    return source.pick(numbers[~held]), source.pick(numbers[held])


def _some_stretches(source: ArraySource) -> ArraySource:
    """The source, or a contiguous part of it that is small enough to try on."""
    every, numbers = math.ceil(source.count_entries() / MOST_ENTRIES), source.row_numbers
    if every <= 1:
        return source
    return source.pick(numbers[np.arange(len(numbers)) * STRETCHES * HELD_OF * every // len(numbers) % every == 0])


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
