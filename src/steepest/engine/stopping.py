"""When to stop: the loss is watched from epoch to epoch, and early stopping returns to the best learner."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Plan:
    """How long to train, and when to stop earlier."""

    epochs: int = 5
    tol: float | None = None  # an improvement by less than this share counts as none
    patience: int = 2  # epochs without improvement before stopping
    early_stopping: bool = False
    lower_step_on_stall: bool = False

    @property
    def may_stop(self) -> bool:
        """Whether training can end before its last epoch."""
        return self.early_stopping or self.tol is not None


@dataclass(slots=True)
class Watch:
    """The best loss so far, for how many epochs it was not beaten, and the learner that reached it."""

    best: float = math.inf
    stalled: int = 0
    best_learner: Any = None

    def see(self, loss: float, learner: Any, plan: Plan) -> None:
        """Takes in the loss of one more epoch."""
        enough = (plan.tol or 0.0) * abs(self.best) if math.isfinite(self.best) else 0.0
        self.stalled = 0 if loss < self.best - enough else self.stalled + 1
        if loss < self.best:
            self.best = loss
            self.best_learner = learner.clone() if plan.early_stopping else None

    def as_dict(self) -> dict[str, Any]:
        """Plain values for a checkpoint; the best learner goes beside them."""
        return {"best": self.best if math.isfinite(self.best) else None, "stalled": self.stalled}

    @classmethod
    def from_dict(cls, plain: dict[str, Any], best_learner: Any) -> Watch:
        """The watch that `as_dict` described."""
        return cls(math.inf if plain["best"] is None else plain["best"], plain["stalled"], best_learner)
