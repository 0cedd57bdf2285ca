"""What a factor model learns and how: the constructor's arguments, checked and resolved to plain values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from steepest.data.entries import Entries
from steepest.errors import ParameterError
from steepest.learners.losses import get_loss
from steepest.learners.penalties import check_alpha
from steepest.learners.settings import PlainSettings
from steepest.parameters import at_least, choice, more_than, number, step_size, whole

# The kernels' name of each loss on single entries; `None` has kernels of its own.
LOSSES = {
    "squared": "squared",
    "absolute": "epsilon_insensitive",
    "logistic": "log",
    "hinge": "hinge",
    "bpr": "log",
    "implicit": None,
    "kl": None,
    "full": "squared",
}
CENTRED = ("squared", "absolute")  # losses whose targets are ratings, learned around their middle
SCALED = (*CENTRED, "full")  # those learned in units of the targets' spread
SMOOTH = ("squared", "logistic")  # those that L-BFGS can learn
SOLVERS = ("sgd", "als", "lbfgs")
WEIGHTINGS = ("mixed", "count", "none")
WHOLE = ("implicit", "kl", "full")  # every cell of the matrix counts
COUNTS = ("implicit", "kl")  # those for counts: values are not negative, and a visit of single entries says nothing
RANKS = ("bpr", "implicit")  # those that are for ranked lists
PARALLEL = ("strata", "hogwild")
ALPHA = {"kl": 0.0, "bpr": 0.01, "full": 0.01}
IMPLICIT_ALPHA = {"mixed": 0.002, "count": 0.01, "none": 0.01}
# In units of the ratings' spread; chosen on held-out parts of MovieLens, Book-Crossing and planted factors.
EXPLICIT_ALPHA = {"mixed": 0.04, "count": 0.11, "none": 0.1}
KNOWN_SHARE = 0.06  # of the weight of all cells that known cells have in addition, if confidence is "auto"
ETA = 0.08  # in units of the spread: within 1 % of the best on four data sets after 20 epochs
FULL_ETA = 0.2  # where zeros count
CONSTANT_ETA = 0.01


@dataclass(frozen=True, slots=True)
class FactorSettings(PlainSettings):
    """What is learned and how; fixed once learning starts."""

    rank: int
    loss: str
    solver: str
    alpha: float
    l1: float
    weighting: str
    biases: bool
    nonnegative: bool
    confidence: float  # 0: to be chosen when the data is known
    adaptive: bool
    eta: float
    seed: int
    parallel: str = "strata"

    @property
    def loss_code(self) -> int:
        """The kernels' number of the loss on single entries."""
        return get_loss(LOSSES[self.loss] or "squared").code

    @property
    def proximal(self) -> bool:
        """Whether factors are cut at each step: towards zero, or at zero."""
        return self.l1 > 0 or self.nonnegative


def resolve_settings(p: dict[str, Any], seed: int) -> FactorSettings:
    """The constructor's arguments, checked and resolved."""
    loss = choice("loss", p["loss"], tuple(LOSSES))
    solver = choice("solver", p["solver"], SOLVERS)
    step = choice("schedule", p["schedule"], ("adagrad", "bold"))
    choice("dtype", p["dtype"], ("float32", "float16"))
    parallel = choice("parallel", p["parallel"], PARALLEL)
    if loss in COUNTS and solver == "sgd":
        solver = "als"
    if (solver == "als" and loss not in ("squared", *WHOLE)) or (solver == "lbfgs" and loss not in SMOOTH):
        raise ParameterError(f"solver={solver!r} cannot learn loss={loss!r}; choose solver='sgd'")
    if parallel == "hogwild" and solver != "sgd":
        raise ParameterError(f"parallel='hogwild' is for stochastic steps, not for solver={solver!r}; leave it out")
    nonnegative = bool(p["nonnegative"]) or loss == "kl"
    l1 = at_least("l1", p["l1"], 0)
    if l1 and not (solver == "sgd" or loss == "kl"):
        raise ParameterError(f"l1={p['l1']!r} needs solver='sgd' or loss='kl'")
    if solver == "lbfgs" and nonnegative:
        raise ParameterError("solver='lbfgs' does not support nonnegative=True; use solver='sgd' or 'als'")
    weighting = choice("weighting", p["weighting"], WEIGHTINGS)
    usual = ALPHA.get(loss, (IMPLICIT_ALPHA if loss == "implicit" else EXPLICIT_ALPHA)[weighting])
    alpha = usual if p["alpha"] == "auto" else check_alpha(number("alpha", p["alpha"]))
    if loss == "kl" and alpha:
        raise ParameterError(f"alpha={p['alpha']!r} has no meaning for loss='kl'; use l1, or alpha=0")
    first = CONSTANT_ETA if step != "adagrad" else FULL_ETA if loss == "full" else ETA
    eta = first if p["eta0"] == "auto" else step_size("eta0", p["eta0"])
    return FactorSettings(
        rank=whole("n_factors", p["n_factors"], 1),
        loss=loss,
        solver=solver,
        alpha=float(alpha),
        l1=float(l1),
        weighting=weighting,
        biases=bool(p["biases"]) and not nonnegative and loss not in WHOLE,
        nonnegative=nonnegative,
        confidence=0.0 if p["confidence"] == "auto" else more_than("confidence", p["confidence"], 0),
        adaptive=step == "adagrad",
        eta=float(eta),
        seed=seed,
        parallel=parallel,
    )


def auto_confidence(entries: Entries, n_users: int, n_items: int) -> float:
    """Such that known cells add KNOWN_SHARE to the weight of all cells."""
    values = entries.values if entries.weights is None else entries.values * entries.weights
    return KNOWN_SHARE * (float(n_users) * n_items) / max(float(values.sum()), 1e-300)
