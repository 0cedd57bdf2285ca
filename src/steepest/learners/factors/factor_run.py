"""What every solver of factor models has: epochs over entries that are held in memory."""

from __future__ import annotations

from abc import abstractmethod

import numpy as np

from steepest.data.entries import Entries
from steepest.learners.base import Progress
from steepest.learners.factors.factors import FactorLearner, total_weight


class FactorRun:
    """Epochs over a fixed set of entries, whose targets are in the units of learning."""

    def __init__(self, learner: FactorLearner, entries: Entries, n_threads: int = 1) -> None:
        self.learner = learner
        self.n_threads = n_threads
        self.n_entries = len(entries.users)
        self.weight = total_weight(entries.weights, self.n_entries)
        self.set_shrinkage(entries)

    def set_shrinkage(self, entries: Entries) -> None:
        """Spreads ridges over the visits of an epoch: one per entry, whatever its weight."""
        learner = self.learner
        if entries.weights is None:
            learner.set_shrinkage()
            return
        users = np.bincount(entries.users, minlength=len(learner.users))
        learner.set_shrinkage(users, np.bincount(entries.items, minlength=len(learner.items)))

    @property
    def step_size(self) -> float:
        """The step size of the next epoch; 1 for methods that solve a problem per epoch."""
        return 1.0

    @abstractmethod
    def epoch(self, epoch: int) -> Progress:
        """Learns all entries once."""

    def penalty(self) -> float:
        """The penalties that are added to the sum of losses."""
        self.write_back()
        return self.learner.penalty()

    def write_back(self) -> None:
        """Writes the factors into the learner, if the run keeps them elsewhere."""

    def resume(self, learner: FactorLearner) -> None:
        """Continues from a learner that was saved earlier."""
        self.learner = learner
