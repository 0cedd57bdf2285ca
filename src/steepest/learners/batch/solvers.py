"""Batch solvers: who they are, and which losses and penalties each can minimise.

A solver is made from an `Objective` and `SolverOptions`. It holds `w` (features and a last row for the bias, by
outputs) and a `step()` that moves it and reports how far it got; `state` and `restore` carry all it needs to go on to
the same bits. The engine (engine/iterations.py) calls step, watches, and stops.

`REFUSED` is the one list of pairs that cannot work, each with its reason; documentation and errors come from it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

from steepest.data.chunk import Array
from steepest.learners.losses import LOSSES
from steepest.learners.penalties import NORMS

if TYPE_CHECKING:
    from steepest.learners.batch.objective import Objective

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
    average: bool = True  # of gd with given steps: whether the answer is an average of the iterates, or the last one


@dataclass(slots=True)
class Step:
    """What one iteration did."""

    objective: float
    gradient: float  # how far from a minimum, as a share of where the solver started: scaled gradient norm, or gap
    eta: float = 1.0  # length of the step, 1 for a full one
    moved: float = math.inf  # change of w as a share of its length
    done: str | None = None  # why there is nothing left to do
    norm: float = math.nan  # the length of the gradient itself, where a solver shows it


def share_of(left: float, first: float) -> float:
    """What is left of the first value, as a share of it; 0 if that was 0."""
    return left / first if first > 0 else 0.0


class Solver(Protocol):
    """What the engine needs of a solver."""

    w: Array

    def step(self) -> Step:
        """Runs one iteration."""

    @property
    def state(self) -> Mapping[str, Array]:
        """All arrays that are needed to continue."""

    def restore(self, state: Mapping[str, Array]) -> None:
        """Restores the solver from a state."""


MakeSolver = Callable[["Objective", SolverOptions], Solver]


def _find(module: str, name: str) -> Any:
    """Imports a solver when it is first used; solvers import the linear learner, which imports this table."""
    return getattr(import_module(f"steepest.learners.batch.{module}"), name)


def _from_module(module: str, name: str) -> MakeSolver:
    return lambda objective, options: _find(module, name)(objective, options)


def _for_smooth_losses(module: str, name: str) -> MakeSolver:
    """The solver itself, or the method of multipliers around it if the loss has kinks."""

    def make(objective: Objective, options: SolverOptions) -> Solver:
        smooth, kinked = _find(module, name), objective.settings.loss in KINKED
        solver: Solver = _find("kinks", "Multipliers")(objective, smooth) if kinked else smooth(objective)
        return solver

    return make


# The table of solvers; a new one is a line here, and its refusals below.
BATCH_SOLVERS: dict[str, MakeSolver] = {
    "gd": _from_module("gd", "make_gd"),
    "closed_form": _from_module("closed_form", "ClosedForm"),
    "cg": _from_module("cg", "make_cg"),
    "lbfgs": _for_smooth_losses("lbfgs", "Lbfgs"),
    "newton_cg": _for_smooth_losses("newton", "NewtonCG"),
    "dual_cd": _from_module("dual_cd", "DualCD"),
    "saga": _from_module("saga", "Saga"),
    "cd": _from_module("cd", "CoordinateDescent"),
}


@dataclass(frozen=True, slots=True)
class Refusal:
    """Losses and penalties that some solvers cannot minimise, and why; None means all."""

    solvers: tuple[str, ...]
    losses: tuple[str, ...] | None
    penalties: tuple[str, ...] | None
    reason: str
    p_below: float = math.inf  # of lp: refused below this p only


REFUSED = (
    Refusal(
        tuple(BATCH_SOLVERS),
        ("perceptron",),
        None,
        "the perceptron's loss is least at w = 0, so minimising it teaches nothing; use solver='sgd' or loss='hinge'",
    ),
    Refusal(
        tuple(name for name in BATCH_SOLVERS if name != "gd"),
        None,
        NORMS,
        "a norm of all weights needs proximal steps; use solver='gd'",
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
        "its dual steps support only losses whose gradient is bounded or linear; use solver='newton_cg' or 'lbfgs'",
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
        "coordinate descent supports only the 1-norm and the 2-norm; use solver='lbfgs', 'cg' or 'gd'",
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
