"""When to stop, and which learner to keep: losses are watched from epoch to epoch."""

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
    keep_best: bool = False  # the learner with the least loss on held-out rows, though all epochs are learned

    @property
    def may_stop(self) -> bool:
        """Whether training can end before its last epoch."""
        return self.early_stopping or self.tol is not None


@dataclass(slots=True)
class Watch:
    """Tracks the best loss, for how many epochs it was not improved, and the learner to return to."""

    best: float = math.inf
    stalled: int = 0
    best_learner: Any = None
    kept: float = math.inf

    def see(self, loss: float, held_out: float, learner: Any, plan: Plan) -> None:
        """Adds the losses of an epoch: `loss` decides when to stop, `held_out` which learner to keep."""
        enough = (plan.tol or 0.0) * abs(self.best) if math.isfinite(self.best) else 0.0
        self.stalled = 0 if loss < self.best - enough else self.stalled + 1
        self.best = min(self.best, loss) if not math.isnan(loss) else self.best
        if held_out < self.kept and (plan.early_stopping or plan.keep_best):
            self.kept, self.best_learner = held_out, learner.clone()

    def as_dict(self) -> dict[str, Any]:
        """Plain values for a checkpoint, which stores the best learner separately."""
        best, kept = (loss if math.isfinite(loss) else None for loss in (self.best, self.kept))
        return {"best": best, "stalled": self.stalled, "kept": kept}

    @classmethod
    def from_dict(cls, plain: dict[str, Any], best_learner: Any) -> Watch:
        """Builds the watch from the values that `as_dict` gave."""
        best, kept = (math.inf if plain.get(name) is None else plain[name] for name in ("best", "kept"))
        return cls(best, plain["stalled"], best_learner, kept)
