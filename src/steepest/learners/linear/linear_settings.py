"""What makes a linear learner: the parameters of an estimator, checked and resolved to plain values.

Everything that "auto" stands for is decided here, and everything that cannot work together is refused here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from steepest import kernels
from steepest.errors import DataError, ParameterError
from steepest.learners.batch.solvers import BATCH_SOLVERS, refusal
from steepest.learners.losses import LOSSES, loss_for, loss_parameter
from steepest.learners.penalties import NORMS, Penalty, check_alpha
from steepest.learners.schedules import schedule_code, typical_eta0
from steepest.learners.settings import PlainSettings
from steepest.learners.targets import checked_class_weight
from steepest.parameters import choice, float_type, more_than, number, seconds, step_size, whole

FORGETFUL = ("sgd", "asgd", "adagrad")  # solvers that can forget old rows
STOCHASTIC_SOLVERS = ("sgd", "asgd", "adagrad", "ftrl", "truncated", "coin")
# Solvers with several numbers per weight, and how many.
ACCUMULATORS = {"adagrad": 2, "ftrl": 2, "coin": 4}
ADAPTIVE = tuple(ACCUMULATORS)
DEFAULT_ALPHA = 1e-6  # of stochastic solvers, unless rows held back say otherwise
TABLE_BITS, LEAST_TABLE_BITS, MOST_TABLE_BITS = 22, 6, 30
AVERAGES = {"no": 0, "uniform": 1, "eta": 2, "poly": 3}
# Of a learner's state: the tables with a column per output, and the scalars of its clock.
WIDE = ("v", "average")
CLOCK = ("t", "steps", "scale", "shrink", "shrink_debt", "average_scale", "average_weight")


@dataclass(frozen=True, slots=True)
class LinearSettings(PlainSettings):
    """The settings of a linear learner: plain values, as in the model file."""

    task: str = "classify"  # or "regress"
    loss: str = "log"  # or "auto": the learner decides by its first rows
    loss_parameter: float = 0.0
    solver: str = "sgd"
    schedule: int = 2
    eta0: float | None = None  # None: calibrate
    first_step: float | None = None  # what calibration would find, where it is known already
    power: float = 1.0
    alpha: float = 1e-6
    l1: float = 0.0
    l2: float = 1e-6
    truncate_below: float = math.inf
    truncate_every: int = 1
    average: str = "no"
    batch_size: int = 1
    fit_intercept: bool = True
    multi_class: str = "ovr"
    dtype: str = "float32"
    class_weight: Any = None  # None, "balanced" (running), or {label: weight}
    table_bits: int = 0  # multi_class "hashed": all classes share a table of 2^this weights
    class_hash: str = ""  # the hash that finds a weight in it
    p: float = 0.0  # of an lp penalty that is neither l1 nor l2, for batch solvers only
    n_replicas: int = 1  # that learn apart, each `sync_every` rows, before what they have learned is summed
    sync_every: int = 2048
    hogwild: bool = False  # threads share the weights without locks
    norm: str = ""  # a penalty that is a norm of all weights, "norm2" or "max", for solver "gd" only
    standardise: bool = False  # dense rows are learned in units of their features; see sizes.py
    half_life: float = math.inf  # after so many rows, counted by weight, a row counts half; or seconds, see in_time
    in_time: bool = False  # whether rows age by their times

    def __post_init__(self) -> None:
        if self.class_hash not in ("", kernels.class_hash_id):
            raise DataError(
                f"the classes of this model were hashed by {self.class_hash!r}, and this steepest knows "
                f"{kernels.class_hash_id!r} only; use a newer one"
            )

    @property
    def is_adaptive(self) -> bool:
        """Whether the solver stores several numbers per weight, from which each weight's step follows."""
        return self.solver in ADAPTIVE

    @property
    def forgets(self) -> bool:
        """Whether old rows count less than new ones."""
        return self.half_life < math.inf

    @property
    def shrinks_lazily(self) -> bool:
        """Whether the 1-norm is applied to a weight only when its feature is seen, by a clock per feature."""
        return self.l1 > 0 and not self.is_adaptive


def resolve_settings(task: str, params: Mapping[str, Any], n_rows: int | None) -> LinearSettings:
    """The settings for an estimator's parameters; `n_rows` is needed for C only."""
    kinds = ("binary",) if task == "classify" else ("real", "count")
    known = tuple(name for name, loss in LOSSES.items() if loss.kind in kinds)
    # Least squares on -1 and +1 are a loss of classes, too.
    loss = choice("loss", params["loss"], ("auto", *known, "squared") if task == "classify" else known)
    if params.get("multi_class", "ovr") == "softmax" or params["schedule"] == "optimal":
        loss = loss_for(loss, 1)  # it belongs to a soft maximum, or the first step follows from it; else rows decide
    alpha = _alpha(params, n_rows)
    l1, l2, p = _strengths(params, alpha)
    norm = _norm(params, alpha)
    if params["solver"] in BATCH_SOLVERS:
        reason = refusal(params["solver"], loss_for(loss, 1), norm or _kind(l1, l2, p), p)
        if reason is not None:
            raise ParameterError(reason)
    half_life, in_time = _half_life(params)
    solver = _solver(params, l1, l2, forgets=half_life < math.inf)
    average = _average(params, solver, l1, loss)
    if solver == "sgd" and average != "no":
        solver = "asgd"
    multi_class = _multi_class(params, loss, solver, l1)
    schedule = str(params["schedule"])
    if schedule == "auto" and loss == "perceptron":
        schedule = "constant"  # its step only scales the weights
    truncated, below = solver == "truncated", params["truncate_below"]
    return LinearSettings(
        task=task,
        loss=loss,
        loss_parameter=loss_parameter(loss, params),
        solver=solver,
        schedule=schedule_code(schedule, alpha),
        eta0=_eta0(params, schedule, loss, alpha),
        alpha=alpha,
        l1=l1,
        l2=l2,
        truncate_below=more_than("truncate_below", below, 0.0) if truncated and below != math.inf else math.inf,
        truncate_every=whole("truncate_every", params["truncate_every"], 1) if truncated else 1,
        average=average,
        batch_size=whole("batch_size", params["batch_size"], 1),
        fit_intercept=bool(params["fit_intercept"]),
        multi_class=multi_class,
        dtype=float_type(params["dtype"]),
        class_weight=checked_class_weight(params.get("class_weight")),
        table_bits=_table_bits(params) if multi_class == "hashed" else 0,
        class_hash=kernels.class_hash_id if multi_class == "hashed" else "",
        p=p,
        norm=norm,
        standardise=bool(params.get("standardise", params["alpha"] == "auto" and params["C"] is None)),
        half_life=half_life,
        in_time=in_time,
    )


def _alpha(params: Mapping[str, Any], n_rows: int | None) -> float:
    c = params["C"]
    if c is None and isinstance(params["alpha"], str):
        if params["alpha"] != "auto":
            raise ParameterError(f"alpha={params['alpha']!r} is not a number; give one, or 'auto'")
        return DEFAULT_ALPHA
    if c is None:
        return check_alpha(number("alpha", params["alpha"]))
    if n_rows is None:
        raise ParameterError(f"C={c} needs the number of rows, which this source does not know; give alpha")
    return 1.0 / (max(1, n_rows) * more_than("C", c, 0.0))


def _strengths(params: Mapping[str, Any], alpha: float) -> tuple[float, float, float]:
    """(l1, l2, p): batch solvers take any p >= 1, the stochastic ones 1 and 2."""
    name = "none" if params["penalty"] is None else str(params["penalty"])
    penalty = Penalty(name, l1_ratio=number("l1_ratio", params["l1_ratio"]), p=number("p", params["p"]))
    if penalty.name == "lp" and penalty.p not in (1, 2) and params["solver"] in BATCH_SOLVERS:
        return 0.0, 0.0, penalty.p if alpha > 0 else 0.0
    if penalty.name in NORMS and params["solver"] in BATCH_SOLVERS:
        return 0.0, 0.0, 0.0
    return (*penalty.split(alpha), 0.0)


def penalty_kind(params: Mapping[str, Any], n_rows: int | None) -> tuple[str, float, float]:
    """(kind, alpha, p) of the penalty as it acts: "none" without strength, "lp" only if p is neither 1 nor 2."""
    alpha = _alpha(params, n_rows)
    l1, l2, p = _strengths({**params, "solver": "lbfgs"}, alpha)
    return _norm(params, alpha) or _kind(l1, l2, p), alpha, p


def _norm(params: Mapping[str, Any], alpha: float) -> str:
    """The name of a penalty that is a norm of all weights ("norm2", "max"), or ""."""
    return str(params["penalty"]) if params["penalty"] in NORMS and alpha > 0 else ""


def _kind(l1: float, l2: float, p: float) -> str:
    return "lp" if p else "l1" if l1 > 0 and l2 == 0 else "elasticnet" if l1 > 0 else "l2" if l2 > 0 else "none"


def _half_life(params: Mapping[str, Any]) -> tuple[float, bool]:
    """(rows after which a row counts half, infinite without forgetting, or seconds; whether it is the latter)."""
    given, column = params.get("half_life", math.inf), params.get("time")
    if given == math.inf and column is None:
        return math.inf, False
    in_time = isinstance(given, str)
    half_life = seconds("half_life", given) if in_time else number("half_life", given)
    if in_time and column is None:
        raise ParameterError(
            f"half_life={given!r} is in time; name the column that holds the times of the rows with time="
        )
    if column is not None and not in_time:
        raise ParameterError(
            f"time={column!r} names the times of rows; give half_life in time as well, such as '7 days' or '90 s'"
        )
    if not in_time and not half_life >= 1:
        raise ParameterError(f"half_life={given} is less than one row; give the rows after which a row counts half")
    if params["solver"] not in ("auto", "stochastic", *FORGETFUL):
        raise ParameterError(
            f"solver={params['solver']!r} cannot forget old rows; with half_life={given!r} choose 'sgd', 'asgd' or "
            "'adagrad'"
        )
    return half_life, in_time


def _solver(params: Mapping[str, Any], l1: float, l2: float, *, forgets: bool) -> str:
    """The solver for "stochastic": averaging would fill in the zeros of a 1-norm, so FTRL is used there."""
    solver = choice("solver", params["solver"], ("auto", "stochastic", *STOCHASTIC_SOLVERS, *BATCH_SOLVERS))
    if solver in ("auto", "stochastic"):
        if params["average"] is False:
            return "sgd"
        sparse = "adagrad" if forgets else "ftrl"
        return sparse if l1 > 0 and params["average"] == "auto" else "asgd"
    if solver == "coin" and l1 > 0:
        penalty = params["penalty"]
        raise ParameterError(f"solver='coin' makes no zeros, so penalty={penalty!r} has no meaning; use solver='ftrl'")
    if solver == "truncated" and l2 > 0:
        penalty = params["penalty"]
        raise ParameterError(f"solver='truncated' shrinks by the 1-norm only; give penalty='l1', not {penalty!r}")
    return solver


def _average(params: Mapping[str, Any], solver: str, l1: float, loss: str) -> str:
    option = params["average"]
    if option == "auto":
        option = solver == "asgd"
    if isinstance(option, bool | np.bool_):
        late = "uniform" if loss == "perceptron" else "poly"  # the averaged perceptron is the plain mean
        option = late if option else "no"
    kind = choice("average", option, tuple(AVERAGES))
    if kind == "no" and solver == "asgd":
        raise ParameterError("solver='asgd' averages; average=False contradicts it, use solver='sgd'")
    if kind != "no" and solver not in ("sgd", "asgd"):
        raise ParameterError(f"average={params['average']!r} works with solver='sgd' or 'asgd', not {solver!r}")
    if kind != "no" and l1 > 0:
        penalty = params["penalty"]
        raise ParameterError(f"averaging fills in the zeros of penalty={penalty!r}; set average=False or solver='ftrl'")
    return kind


def _eta0(params: Mapping[str, Any], schedule: str, loss: str, alpha: float) -> float | None:
    eta0 = params["eta0"]
    if not isinstance(eta0, str):
        return step_size("eta0", eta0)
    choice("eta0", eta0, ("auto",))
    if loss == "perceptron":
        return 1.0  # without a penalty its step size only scales the weights
    return typical_eta0(LOSSES[loss], alpha) if schedule == "optimal" else None


def _multi_class(params: Mapping[str, Any], loss: str, solver: str, l1: float) -> str:
    kind = choice("multi_class", params.get("multi_class", "ovr"), ("auto", "ovr", "softmax", "hashed"))
    if kind == "auto":  # rows that are few may have chosen "softmax" before
        return "ovr"
    if kind == "softmax" and loss != "log":
        raise ParameterError(f"multi_class='softmax' is a form of loss='log'; loss={loss!r} needs 'ovr'")
    if kind == "hashed" and solver in BATCH_SOLVERS:
        raise ParameterError(f"multi_class='hashed' learns row by row; solver={solver!r} needs 'ovr' or 'softmax'")
    if kind == "hashed" and solver == "coin":
        raise ParameterError(
            "multi_class='hashed' has two numbers per weight, and solver='coin' needs four; use 'ftrl'"
        )
    if kind == "hashed" and l1 > 0 and solver not in ADAPTIVE:
        raise ParameterError(
            f"multi_class='hashed' has no room for the clocks with which solver={solver!r} shrinks weights; "
            "use solver='ftrl' or penalty='l2'"
        )
    return kind


def _table_bits(params: Mapping[str, Any]) -> int:
    """The size of the shared table: that of the hasher's features, or a default for streams of unknown width."""
    option = params["table_bits"]
    if isinstance(option, str):
        choice("table_bits", option, ("auto",))
        option = getattr(params["hasher"], "n_bits", TABLE_BITS)
    bits = whole("table_bits", option, LEAST_TABLE_BITS)
    if bits > MOST_TABLE_BITS:
        raise ParameterError(f"table_bits={bits} is too large; give at most {MOST_TABLE_BITS}")
    return bits
