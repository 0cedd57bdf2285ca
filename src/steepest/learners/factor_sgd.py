"""Stochastic gradients for factors, block by block (`strata`).

A row's AdaGrad step is taken when a block begins and stays until it ends; each entry adds to the row's sum of squared
slopes. What a block does depends on the rows of its two stripes and its entries only.
"""

from __future__ import annotations

import numpy as np

from steepest import kernels
from steepest.data.chunk import Array, DataError
from steepest.learners.base import Progress
from steepest.learners.factors import OVERFLOW, TAIL, FactorLearner, new_table, rows_of, total_weight
from steepest.learners.strata import choose_d, make_strata


class SgdRun:
    """Epochs of stochastic gradients over all entries, held as strata; `settle` writes back what was learned."""

    def __init__(
        self,
        learner: FactorLearner,
        users: Array,
        items: Array,
        values: Array,
        weights: Array | None,
        n_blocks: int | None,
        n_threads: int,
    ) -> None:
        self.learner = learner
        self.n_threads = n_threads
        self.n_entries = len(users)
        self.weight = total_weight(weights, len(users))
        learner.set_shrinkage()
        row_bytes = learner.users.shape[1] * 4
        d = n_blocks or choose_d(len(learner.users), len(learner.items), row_bytes, len(users))
        d = min(d, len(learner.users), len(learner.items))
        seed = learner.settings.seed
        self.strata = make_strata(users, items, values, weights, len(learner.users), len(learner.items), d, seed)
        self._user_order, self._item_order = inverse(self.strata.user_places), inverse(self.strata.item_places)
        self.resume(learner)
        if learner.settings.loss == "bpr":
            self._liked = rows_of(self.strata.users, self.strata.items, len(self.users))

    def resume(self, learner: FactorLearner) -> None:
        """Goes on from the tables of a learner."""
        self.learner = learner
        self.users = arranged(learner.users, self._user_order)
        self.items = arranged(learner.items, self._item_order)

    @property
    def step_size(self) -> float:
        """The step before rows scale it."""
        return self.learner.eta

    def epoch(self, epoch: int) -> Progress:
        """All blocks once; learning that overflows starts again from the last good state with half the step."""
        events: list[str] = []
        kept = self.users.copy(), self.items.copy()
        schedule = self.strata.schedule(epoch)
        while True:
            losses = np.zeros(len(schedule))
            status = self._learn(schedule, losses, epoch)
            if status != OVERFLOW:
                break
            self.users[:], self.items[:] = kept
            self.learner.eta /= 2
            events.append(f"epoch {epoch + 1} overflowed: went back to its start, step now {self.learner.eta:.3g}")
            if self.learner.eta < 1e-12:
                raise DataError("learning overflows with every step; scale the ratings or lower alpha")
        # Losses are added in the order of blocks, so that the sum does not depend on the schedule either.
        by_block = np.zeros(len(losses))
        by_block[schedule] = losses
        total = float(by_block.sum())
        if not self.learner.settings.adaptive:
            self._drive(total, kept, events)
        return Progress(self.n_entries, self.weight, total, events)

    def _drive(self, loss: float, kept: tuple[Array, Array], events: list[str]) -> None:
        """The bold driver: 5 % faster while the loss falls; back and half as fast when it rises."""
        if loss <= self.learner.best_loss:
            self.learner.best_loss = loss
            self.learner.eta *= 1.05
            return
        self.users[:], self.items[:] = kept
        self.learner.eta *= 0.5
        events.append(f"the loss rose: went back, step now {self.learner.eta:.3g}")

    def _learn(self, schedule: Array, losses: Array, epoch: int) -> int:
        s, tables = self.strata, (self.users, self.items)
        choices = self.learner.choices(self.learner.eta)
        entries = s.users, s.items, s.values, s.weights, s.offsets, schedule
        if self.learner.settings.loss != "bpr" and self.learner.settings.proximal:
            return kernels.factor_sgd(*entries, *tables, choices, losses, self.n_threads)
        if self.learner.settings.loss != "bpr":
            bounds = s.user_bounds, s.item_bounds
            return kernels.factor_sgd_blocks(*entries, *bounds, *tables, choices, losses, self.n_threads)
        seed = (self.learner.settings.seed * 1_000_003 + epoch) & 0xFFFFFFFFFFFF
        return kernels.factor_bpr(*entries, s.item_bounds, *self._liked, seed, *tables, choices, losses, self.n_threads)

    def penalty(self) -> float:
        """What the penalties add to the sum of losses."""
        self.settle()
        return self.learner.penalty()

    def settle(self) -> None:
        """Puts the rows back in the learner's order."""
        self.learner.users[:] = self.users[self.strata.user_places]
        self.learner.items[:] = self.items[self.strata.item_places]


def arranged(table: Array, order: Array) -> Array:
    """The rows of a table in another order, as a table of its own."""
    room = new_table(len(order), table.shape[1] - TAIL)
    np.take(table, order, axis=0, out=room)
    return room


def inverse(places: Array) -> Array:
    """Which row stands at each place."""
    order = np.empty(len(places), np.int64)
    order[places] = np.arange(len(places))
    return order
