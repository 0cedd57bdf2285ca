"""What solver="auto" stands for: a solver for the problem, and the sentence that says why.

Rows that are few enough to minimise exactly within seconds are minimised exactly: nothing depends on a seed or a step.
Big data is learned in few passes: without `tol`, or with one that a few epochs meet, stochastic gradients learn.
A smaller `tol` requests the exact minimum, which a solver over all rows finds: the one that was measured to be fastest
for the loss, the penalty and the shape of the data. `newton_cg` and `lbfgs` then start from the weights of one
stochastic pass (`warm`), since a pass costs little and leaves less to do; see decisions/0015.
Invariant: the choice depends on parameters and on counts of rows and columns only, and never falls on a refused pair.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from steepest.data.chunk import Chunk
from steepest.learners.batch.solvers import KINKED, refusal
from steepest.learners.linear.first_step import descend
from steepest.learners.linear.linear import LinearLearner
from steepest.learners.linear.linear_settings import LinearSettings
from steepest.learners.penalties import NORMS

ACCURATE = 1e-4  # a tol below asks for more digits than stochastic gradients have
SMALL_SIDE = 1000  # rows or columns up to which a linear system is solved by Cholesky in well under a second
# The dual takes ever more sweeps as C = 1 / (n alpha) grows, and is at its best on sparse rows.
MOST_C = 10.0
SPARSE_SHARE = 0.1
# Non-zeros times outputs up to which the exact minimum is found within seconds. Stochastic gradients come close to it
# where all features are alike (texts alone, sparse arrays), and are then faster; tables gain from the minimum itself.
FEW_ENTRIES, FEW_TABLE_ENTRIES = 1 << 20, 1 << 24


@dataclass(frozen=True, slots=True)
class Problem:
    """The properties of data and parameters from which a solver is chosen; None where not known before reading."""

    loss: str
    penalty: str  # "none", "l2", "l1", "elasticnet", "lp", "norm2", "max"
    alpha: float = 0.0
    p: float = 0.0  # of "lp", else 0
    tol: float | None = None
    multi_class: str = "ovr"
    stochastic_option: str = ""  # a parameter that only stochastic gradients have, if one was set
    n_rows: int | None = None
    n_features: int | None = None
    n_entries: int | None = None
    in_memory: bool = True
    n_outputs: int = 1
    several_targets: bool = False
    is_table: bool = False  # columns of several kinds, or dense rows

    @property
    def is_small(self) -> bool:
        """Whether the exact minimum takes a few seconds at most."""
        if not self.in_memory or self.n_entries is None or self.several_targets:
            return False
        return self.n_entries * self.n_outputs <= (FEW_TABLE_ENTRIES if self.is_table else FEW_ENTRIES)

    @property
    def sparse(self) -> bool:
        """Whether most values are zero, as far as is known."""
        if self.n_rows is None or self.n_features is None or self.n_entries is None:
            return not self.in_memory
        return self.n_entries < SPARSE_SHARE * self.n_rows * max(1, self.n_features)


@dataclass(frozen=True, slots=True)
class Choice:
    """The chosen solver and the reason; "stochastic" leaves the rest to the penalty and to `average`."""

    solver: str
    because: str
    warm: bool = False
    first_step: float | None = None  # of a stochastic solver, if rows have shown it

    def sentence(self, solver: str) -> str:
        """The choice and its reason as a sentence for `history_.events`."""
        start = ", started from one stochastic pass" if self.warm else ""
        return f"solver='auto' chose {solver!r}{start}: {self.because}"


RACE_ROWS = 1 << 13  # on which stochastic solvers race, where features may differ in size
# By which share of its loss the first candidate must be beaten where features may be alike: it gains more in later
# epochs. In tables of several kinds of columns it does not.
CLEARLY = 0.03


def race(rows: Chunk, candidates: Sequence[LinearSettings], labels: Sequence[Any], margin: float = CLEARLY) -> Choice:
    """The stochastic solver with the least progressive loss in one pass over a sample of rows.

    Averaging with one step for all is best where features are alike, a step for each where they are not: a text beside
    categories and numbers, or counts of words in long and short rows. Neither is best everywhere (decisions/0035), so
    both try. The first step of the winner is halved or doubled while that lowers this loss, too: so it depends on more
    rows, and on no seed.
    """
    losses, tried = {}, {}
    for settings in candidates:
        losses[settings.solver], step = _progressive(settings, rows, labels)
        tried[settings.solver] = replace(settings, first_step=step)
    first, *others = losses
    bar = math.inf if math.isnan(losses[first]) else (1 - margin) * losses[first]
    best = min((name for name in others if losses[name] < bar), key=losses.__getitem__, default=first)
    shown = ", ".join(f"{name} {loss:.5g}" for name, loss in losses.items())
    clearly = "clearly " if margin else ""
    why = f"it has {clearly}less loss" if best != first else f"no other has {clearly}less loss"
    said, winner = f"{why} on the next of {rows.n_rows:,} rows ({shown})", tried[best]
    if winner.first_step is None or math.isnan(losses[best]):
        return Choice(best, said)
    step, _ = descend(lambda step: _progressive(replace(winner, first_step=step), rows, labels)[0], winner.first_step)
    return Choice(best, said, first_step=step)


def _progressive(settings: LinearSettings, rows: Chunk, labels: Sequence[Any]) -> tuple[float, float | None]:
    """(the mean loss of later rows before they are learned, the first step) in one pass over the rows."""
    learner = LinearLearner(settings, rows.n_features, labels)
    half = rows.n_rows // 2
    learner.step(rows.span(0, half))
    return learner.step(rows.span(half, rows.n_rows)).mean_loss, learner.eta0


def choose(problem: Problem) -> Choice:
    """Chooses the solver for a problem."""
    if problem.penalty == "lp":
        return _for_lp(problem)
    if problem.penalty in NORMS and problem.loss != "perceptron":
        return Choice("gd", f"penalty={problem.penalty!r} couples all weights, which only proximal steps support")
    if problem.tol is None and problem.is_small and not problem.stochastic_option and _is_cheap(problem):
        return _exact(problem)
    if problem.tol is None:
        return Choice("stochastic", "tol is not set, and a few passes over the rows come close to the minimum")
    if problem.tol >= ACCURATE:
        return Choice("stochastic", f"a few passes over the rows come as close as tol={problem.tol:g} asks")
    if problem.stochastic_option:
        return Choice("stochastic", f"{problem.stochastic_option} was given, which belongs to stochastic gradients")
    if not _has_minimum(problem):
        what = "loss='perceptron'" if problem.loss == "perceptron" else "multi_class='hashed'"
        return Choice("stochastic", f"{what} is learned row by row only")
    return _accurate(problem)


def _has_minimum(problem: Problem) -> bool:
    return problem.loss != "perceptron" and problem.multi_class != "hashed"


def _is_cheap(problem: Problem) -> bool:
    """Whether an exact solver takes a few seconds at most; kinks under a weak penalty take minutes."""
    return _has_minimum(problem) and problem.loss not in KINKED


def _exact(problem: Problem) -> Choice:
    """The exact solver for few rows; where alpha must still be chosen, one that can start from the last solution."""
    few = f"{problem.n_entries:,} non-zeros are few, so the exact minimum is computed"
    if problem.penalty in ("l1", "elasticnet"):
        return Choice("lbfgs" if problem.multi_class == "softmax" else "cd", few)
    return Choice("newton_cg", few)


def _for_lp(problem: Problem) -> Choice:
    if refusal("newton_cg", problem.loss, "lp", problem.p) is None:
        return Choice("newton_cg", f"penalty='lp' with p={problem.p:g} is smooth, and needs all rows at once")
    return Choice("lbfgs", f"penalty='lp' with p={problem.p:g} needs all rows at once")


def _accurate(problem: Problem) -> Choice:
    asked = f"tol={problem.tol:g} requests the exact minimum"
    if problem.penalty in ("l1", "elasticnet"):
        if problem.loss in KINKED:
            return Choice("newton_cg", f"{asked}, and the method of multipliers handles the kinks of loss and penalty")
        if problem.multi_class == "softmax" or not problem.in_memory:
            return Choice("lbfgs", f"{asked}, and L-BFGS takes any loss with a 1-norm, also from files")
        return Choice("cd", f"{asked}, and coordinate descent visits only the weights that are not zero")
    if problem.loss == "squared":
        return _least_squares(problem, asked)
    if _dual_is_best(problem):
        return Choice("dual_cd", f"{asked}, and the dual certifies it, fast for sparse rows and alpha >= 1/(10 n)")
    if problem.loss in KINKED:
        return Choice("newton_cg", f"{asked}, and multipliers make loss={problem.loss!r} smooth without an error")
    return Choice("newton_cg", f"{asked}, and Newton's method needs the fewest passes", warm=True)


def _least_squares(problem: Problem, asked: str) -> Choice:
    sides = [n for n in (problem.n_rows, problem.n_features) if n is not None]
    if sides and min(sides) <= SMALL_SIDE and problem.in_memory:
        return Choice("closed_form", f"{asked}, and a system of {min(sides):,} equations has it in closed form")
    return Choice("cg", f"{asked}, and conjugate gradients solve least squares without a matrix of all columns")


def _dual_is_best(problem: Problem) -> bool:
    if problem.penalty != "l2" or not problem.in_memory or problem.multi_class == "softmax":
        return False
    if refusal("dual_cd", problem.loss, "l2") is not None or problem.n_rows is None:
        return False
    mild = problem.n_rows * problem.alpha * MOST_C >= 1
    return mild and (problem.loss in KINKED or (problem.sparse and problem.loss != "log"))
