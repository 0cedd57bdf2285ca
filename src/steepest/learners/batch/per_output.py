"""What dual_cd, saga and cd share: all rows in memory, one problem per output, side by side on threads.

Outputs do not share anything, so results are bit-identical for any number of threads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import ClassVar, Generic, TypeVar

import numpy as np

from steepest.data.chunk import Array, Chunk
from steepest.errors import ParameterError
from steepest.learners.batch.objective import Objective
from steepest.learners.batch.solvers import SolverOptions
from steepest.learners.losses import Loss
from steepest.learners.resumable import Resumable
from steepest.learners.targets import SOFTMAX, TARGETS

PROBLEMS = "problems."  # marks what belongs to the problems in a state


@dataclass(frozen=True, slots=True)
class OutputData:
    """Rows with the targets of one output, and the objective over them: mean loss + l1 |w|_1 + l2/2 |w|^2."""

    rows: Chunk
    y: Array
    loss: Loss
    parameter: float = 0.0  # of the loss
    l1: float = 0.0
    l2: float = 0.0
    fit_intercept: bool = True
    seed: int = 0
    bias: float = 0.0  # where the bias starts

    @property
    def shares(self) -> Array:
        """The weight of each row as a share of all."""
        n, weight = self.rows.n_rows, self.rows.weight
        return np.full(n, 1.0 / n) if weight is None else np.asarray(weight / weight.sum())


Problem = TypeVar("Problem", bound=Resumable)
Answer = TypeVar("Answer")


class PerOutputSolver(Resumable, Generic[Problem]):
    """The part of a solver that does not depend on how the problem of one output is solved."""

    name: ClassVar[str]
    problems: list[Problem]

    def __init__(self, objective: Objective, options: SolverOptions) -> None:
        if objective.target_kind == SOFTMAX:
            raise ParameterError(f"solver={self.name!r} learns one class against the rest; give multi_class='ovr'")
        self.objective, self.tol = objective, options.tol
        self.w = objective.start()
        settings, rows = objective.settings, objective.data.all_rows()
        self.outputs = [
            OutputData(
                rows,
                _targets(rows, output, objective.target_kind),
                objective.learner.loss,
                settings.loss_parameter,
                objective.l1,
                objective.l2,
                settings.fit_intercept,
                options.seed,
                float(self.w[-1, output]),
            )
            for output in range(objective.n_outputs)
        ]

    def each(self, run: Callable[[Problem], Answer], problems: Sequence[Problem]) -> list[Answer]:
        """The answers of all problems, in order."""
        n_threads = min(self.objective.n_threads, len(problems))
        if n_threads <= 1:
            return [run(problem) for problem in problems]
        with ThreadPoolExecutor(n_threads) as pool:
            return list(pool.map(run, problems))

    def joined(self, found: Iterable[tuple[Array, float]]) -> Array:
        """One table of the weights and the bias of each output."""
        w = np.empty_like(self.w)
        for output, (weights, bias) in enumerate(found):
            w[:-1, output], w[-1, output] = weights, bias
        return w

    @property
    def state(self) -> dict[str, Array]:
        """The weights and the solver's own numbers, and the states of the problems."""
        states = [problem.state for problem in self.problems]
        return super().state | {PROBLEMS + name: np.array([state[name] for state in states]) for name in states[0]}

    def restore(self, state: Mapping[str, Array]) -> None:
        """Restores the solver from a state."""
        super().restore(state)
        for output, problem in enumerate(self.problems):
            problem.restore({name: state[PROBLEMS + name][output] for name in problem.state})


def _targets(rows: Chunk, output: int, kind: int) -> Array:
    """The targets of one output: +1 and -1 for a class against the rest, or a column of y."""
    assert rows.y is not None
    if kind == TARGETS:
        return np.ascontiguousarray(rows.y.reshape(rows.n_rows, -1)[:, output], np.float64)
    return np.where(rows.y == output, 1.0, -1.0)
