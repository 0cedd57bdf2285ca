"""Batch solvers: who they are, and which losses and penalties each can minimise.

A solver is made from an `Objective` and `SolverOptions`. It holds `w` (features and a last row for the bias, by
outputs) and a `step()` that moves it and tells how far it got; `state` and `restore` carry all it needs to go on to the
same bits. The engine (engine/batch.py) calls step, watches, and stops.

`REFUSED` is the one list of pairs that cannot work, each with its reason; documentation and errors come from it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from steepest.data.chunk import Array
from steepest.learners.losses import LOSSES
from steepest.learners.penalties import PENALTIES

if TYPE_CHECKING:
    from steepest.learners.objective import Objective

BATCH_SOLVERS = ("gd", "closed_form", "cg", "lbfgs", "newton_cg", "dual_cd", "saga", "cd")
# What a solver may find beyond the weights, shown by the estimator until it is fitted anew.
FINDINGS = ("dual_coef_", "dual_gap_", "slacks_", "support_")
KINKED = ("hinge", "epsilon_insensitive", "quantile")
CURVED = tuple(name for name in LOSSES if name not in (*KINKED, "perceptron"))


@dataclass(frozen=True, slots=True)
class SolverOptions:
    """What a solver may ask for beyond the objective."""

    schedule: str = "auto"  # of gd: "auto" searches, the others give the step of every iteration
    eta0: float | None = None
    tol: float = 1e-6
    seed: int = 0  # of the solvers that visit rows at random


@dataclass(slots=True)
class Step:
    """What one iteration did."""

    objective: float
    gradient: float  # how far from a minimum, as a share of where the solver started: scaled gradient norm, or gap
    eta: float = 1.0  # length of the step, 1 for a full one
    moved: float = math.inf  # change of w as a share of its length
    done: str | None = None  # why there is nothing left to do
    measure: str = "the gradient's share of its first length"  # what `gradient` is


class Solver(Protocol):
    """What the engine needs of a solver."""

    w: Array

    def step(self) -> Step:
        """One iteration."""

    @property
    def state(self) -> Mapping[str, Array]:
        """All that is needed to go on."""

    def restore(self, state: Mapping[str, Array]) -> None:
        """Goes on from there."""


MakeSolver = Callable[["Objective", SolverOptions], Solver]


def _closed_form(objective: Objective, options: SolverOptions) -> Solver:
    from steepest.learners.batch_closed_form import ClosedForm

    return ClosedForm(objective)


def _cg(objective: Objective, options: SolverOptions) -> Solver:
    from steepest.learners.batch_cg import LinearCG, NonlinearCG

    quadratic = objective.settings.loss == "squared" and not objective.p
    return LinearCG(objective) if quadratic else NonlinearCG(objective)


def _gd(objective: Objective, options: SolverOptions) -> Solver:
    from steepest.learners.batch_gd import ProximalGradient, Subgradient

    kinked = objective.settings.loss in KINKED
    return (Subgradient if kinked or options.schedule != "auto" else ProximalGradient)(objective, options)


def _lbfgs(objective: Objective, options: SolverOptions) -> Solver:
    from steepest.learners.batch_kinks import Multipliers
    from steepest.learners.batch_lbfgs import Lbfgs

    return Multipliers(objective, Lbfgs, options.tol) if objective.settings.loss in KINKED else Lbfgs(objective)


def _newton_cg(objective: Objective, options: SolverOptions) -> Solver:
    from steepest.learners.batch_kinks import Multipliers
    from steepest.learners.batch_newton import NewtonCG

    return Multipliers(objective, NewtonCG, options.tol) if objective.settings.loss in KINKED else NewtonCG(objective)


def _dual_cd(objective: Objective, options: SolverOptions) -> Solver:
    from steepest.learners.dual_cd import DualCD

    return DualCD(objective, options.tol, options.seed)


def _saga(objective: Objective, options: SolverOptions) -> Solver:
    from steepest.learners.saga import Saga

    return Saga(objective, options.tol, options.seed)


def _cd(objective: Objective, options: SolverOptions) -> Solver:
    from steepest.learners.cd import CoordinateDescent

    return CoordinateDescent(objective)


# The table of solvers; a new one is a line here, and its refusals below.
SOLVERS: dict[str, MakeSolver] = {
    "gd": _gd,
    "closed_form": _closed_form,
    "cg": _cg,
    "lbfgs": _lbfgs,
    "newton_cg": _newton_cg,
    "dual_cd": _dual_cd,
    "saga": _saga,
    "cd": _cd,
}


@dataclass(frozen=True, slots=True)
class Refusal:
    """Losses and penalties that some solvers cannot minimise, and why; None stands for all."""

    solvers: tuple[str, ...]
    losses: tuple[str, ...] | None
    penalties: tuple[str, ...] | None
    reason: str
    p_below: float = math.inf  # of lp: refused below this p only


REFUSED = (
    Refusal(
        BATCH_SOLVERS,
        ("perceptron",),
        None,
        "the perceptron's loss is least at w = 0, so minimising it teaches nothing; use solver='sgd' or loss='hinge'",
    ),
    Refusal(
        ("closed_form",),
        tuple(name for name in LOSSES if name not in ("squared", "perceptron")),
        None,
        "only the squared loss has its minimum in closed form; use solver='lbfgs' or 'newton_cg'",
    ),
    Refusal(
        ("closed_form",),
        ("squared",),
        ("l1", "elasticnet", "lp"),
        "only penalty 'l2' or 'none' leaves a linear system to solve; use solver='lbfgs' or 'gd'",
    ),
    Refusal(
        ("cg",),
        KINKED,
        None,
        "conjugate gradients need a loss without kinks; use solver='newton_cg', 'lbfgs' or 'gd'",
    ),
    Refusal(
        ("cg", "newton_cg"),
        CURVED,
        ("l1", "elasticnet"),
        "the 1-norm has kinks at zero, which this solver cannot cross; use solver='lbfgs' or 'gd'",
    ),
    Refusal(
        ("newton_cg",),
        None,
        ("lp",),
        "|w|^p with p below 2 has no second derivative at zero; use solver='lbfgs', 'cg' or 'gd'",
        p_below=2.0,
    ),
    Refusal(
        ("dual_cd",),
        ("exponential", "poisson"),
        None,
        "its dual steps know the losses whose slope is bounded or linear; use solver='newton_cg' or 'lbfgs'",
    ),
    Refusal(
        ("dual_cd",),
        None,
        ("none", "l1", "elasticnet", "lp"),
        "the dual exists under a quadratic penalty only; give penalty='l2' and alpha > 0, or use solver='lbfgs'",
    ),
    Refusal(
        ("saga", "cd"),
        KINKED,
        None,
        "it needs a loss without kinks; use solver='dual_cd'",
    ),
    Refusal(
        ("cd",),
        CURVED,
        ("none", "l2"),
        "it is made for sparse weights; without a 1-norm use solver='newton_cg', 'dual_cd' or 'lbfgs'",
    ),
    Refusal(
        ("saga", "cd"),
        None,
        ("lp",),
        "its steps along one feature know the 1-norm and the 2-norm only; use solver='lbfgs', 'cg' or 'gd'",
    ),
)


def refusal(solver: str, loss: str, penalty: str, p: float = 0.0) -> str | None:
    """Why this solver cannot minimise this loss under this penalty, or None if it can."""
    for line in REFUSED:
        if (
            solver in line.solvers
            and (line.losses is None or loss in line.losses)
            and (line.penalties is None or penalty in line.penalties)
            and p < line.p_below
        ):
            return f"solver={solver!r} cannot use loss={loss!r} with penalty={penalty!r}: {line.reason}"
    return None


def pairs() -> list[dict[str, Any]]:
    """Every solver, loss and penalty, with the reason where they cannot work together; lp with p = 3."""
    return [
        {"solver": solver, "loss": loss, "penalty": penalty, "refused": refusal(solver, loss, penalty, 3.0)}
        for solver in BATCH_SOLVERS
        for loss in LOSSES
        for penalty in PENALTIES
    ]
