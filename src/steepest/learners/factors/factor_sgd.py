"""Stochastic gradients for factors, block by block (`strata`) or by threads that share all rows (`hogwild`).

A row's AdaGrad step is taken when a block begins and stays until it ends; each entry adds to the row's sum of squared
gradients. What a block does depends on the rows of its two stripes and its entries only.
Under parallel="hogwild" there is one block, shuffled once; threads take pieces of it in an order that is drawn for each
epoch, and read and write the tables without locks, with steps of each visit (Niu, Recht, Re and Wright 2011). With one
thread this is plain SGD, with several the result differs from run to run.
"""

from __future__ import annotations

import numpy as np

from steepest.data.chunk import Array
from steepest.data.entries import Entries
from steepest.errors import DataError
from steepest.learners.base import Progress
from steepest.learners.factors.factor_run import FactorRun
from steepest.learners.factors.factors import OVERFLOW, SMALLEST_STEP, TAIL, FactorLearner, csr_of, new_table
from steepest.learners.factors.sampled_zeros import SampledZeros
from steepest.learners.factors.strata import Strata, choose_d, fill_strata, make_strata, plan_strata

PIECE = 1024  # entries that a thread takes at once under hogwild


class SgdRun(FactorRun):
    """Epochs of stochastic gradients over all entries, held as strata, in tables in the order of the strata."""

    def __init__(
        self, learner: FactorLearner, entries: Entries, n_threads: int = 1, n_blocks: int | None = None
    ) -> None:
        n_users, n_items = len(learner.users), len(learner.items)
        self.zeros: SampledZeros | None = None
        if learner.settings.loss == "full":
            self.zeros = SampledZeros(entries, n_users, n_items, learner.settings.seed)
        super().__init__(learner, entries, n_threads)
        self.hogwild = learner.settings.parallel == "hogwild"
        d = n_blocks or choose_d(n_users, n_items, learner.users.shape[1] * 4, self.n_entries)
        self.strata = self.make_strata(entries, 1 if self.hogwild else min(d, n_users, n_items))
        if self.zeros is not None:
            self.weight = float(n_users) * n_items
        self._user_order, self._item_order = _inverse(self.strata.user_places), _inverse(self.strata.item_places)
        self.resume(learner)
        self._liked = None
        if learner.settings.loss == "bpr":
            self._liked = csr_of(self.strata.users, self.strata.items, len(self.users))[:2]

    def set_shrinkage(self, entries: Entries) -> None:
        """Spreads ridges over the visits of an epoch, drawn zeros included."""
        if self.zeros is None:
            super().set_shrinkage(entries)
        else:
            self.learner.set_shrinkage(*self.zeros.visits())

    def make_strata(self, entries: Entries, d: int) -> Strata:
        """The entries in d x d blocks; where zeros are drawn, the blocks are filled anew for every epoch."""
        learner = self.learner
        if self.zeros is not None:
            return plan_strata(entries, len(learner.users), len(learner.items), d, learner.settings.seed)
        return make_strata(entries, len(learner.users), len(learner.items), d, learner.settings.seed)

    def resume(self, learner: FactorLearner) -> None:
        """Continues from the tables of a learner that was saved earlier."""
        self.learner = learner
        self.users = arranged(learner.users, self._user_order)
        self.items = arranged(learner.items, self._item_order)

    @property
    def step_size(self) -> float:
        """The step before rows scale it."""
        return self.learner.eta

    def epoch(self, epoch: int) -> Progress:
        """Learns all blocks once; after an overflow, the last good state is learned again with half the step."""
        events: list[str] = []
        before = self.users.copy(), self.items.copy()
        if self.zeros is not None:
            self.strata = fill_strata(self.strata, self.zeros.epoch(epoch))
        schedule = self.schedule(epoch)
        while True:
            losses = np.zeros(len(schedule))
            if self.learn_blocks(schedule, losses, epoch) != OVERFLOW:
                break
            self.users[:], self.items[:] = before
            self.learner.eta /= 2
            events.append(
                f"epoch {epoch + 1} overflowed: rolled back to its start, step size now {self.learner.eta:.3g}"
            )
            if self.learner.eta < SMALLEST_STEP:
                raise DataError("learning overflows with every step; scale the ratings or lower alpha")
        # Losses are added in the order of blocks, so that the sum does not depend on the schedule either.
        by_block = np.zeros(len(losses))
        by_block[schedule] = losses
        total = float(by_block.sum())
        if not self.learner.settings.adaptive:
            self._drive(total, before, events)
        return Progress(self.n_entries, self.weight, total, events)

    def schedule(self, epoch: int) -> Array:
        """The order of the blocks of an epoch, or of the pieces of the one block that threads share."""
        if not self.hogwild:
            return self.strata.schedule(epoch)
        n_pieces = -(-len(self.strata.users) // PIECE)
        return np.random.default_rng([self.strata.seed, 2, epoch]).permutation(n_pieces).astype(np.int32)

    def _drive(self, loss: float, before: tuple[Array, Array], events: list[str]) -> None:
        """Adapts the step size ("bold driver"): grows 5 % while the loss falls; a rise is rolled back and halves it."""
        if loss <= self.learner.best_loss:
            self.learner.best_loss = loss
            self.learner.eta *= 1.05
            return
        self.users[:], self.items[:] = before
        self.learner.eta *= 0.5
        events.append(f"the loss rose: rolled back to the previous epoch, step size now {self.learner.eta:.3g}")

    def learn_blocks(self, schedule: Array, losses: Array, epoch: int) -> int:
        """Visits the blocks in this order and sets the loss of each; OVERFLOW if a score did so."""
        seed = (self.learner.settings.seed * 1_000_003 + epoch) & 0xFFFFFFFFFFFF
        tables = self.users, self.items
        pieces = PIECE if self.hogwild else 0
        given = (self.strata, tables, schedule, losses, seed, self._liked, self.n_threads)
        return self.learner.visit(*given, pieces=pieces)

    def write_back(self) -> None:
        """Puts the rows back in the learner's order."""
        self.learner.users[:] = self.users[self.strata.user_places]
        self.learner.items[:] = self.items[self.strata.item_places]


def arranged(table: Array, order: Array) -> Array:
    """A copy of a table with its rows in another order."""
    room = new_table(len(order), table.shape[1] - TAIL)
    np.take(table, order, axis=0, out=room)
    return room


def _inverse(places: Array) -> Array:
    """The inverse of a permutation."""
    order = np.empty(len(places), np.int64)
    order[places] = np.arange(len(places))
    return order
