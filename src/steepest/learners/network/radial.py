"""Radial bases whose votes need no descent: h_k = exp(-gamma |w_k - x|^2) around given centres w_k.

votes="closed_form"  score = v·h + b, where (v, b) minimise the mean of (score - y)^2 / 2 plus alpha |v|^2 / 2. Sums of
h h' and h y are all that is kept of the rows: they add up in any order, so states merge exactly.
votes="fixed"  score = sum v_k h_k / sum h_k, where v_k is the target of the row that became centre k: nearest
neighbours weighed by their distance, if every row is a centre.
Of several gammas the one is used whose leave-one-out error is least: without its own unit for fixed votes;
for solved ones by generalised cross-validation, RSS / n / (1 - tr(hat matrix) / n)^2 (Golub, Heath and Wahba, 1979).
Training error would always choose the narrowest bumps, each row its own. Classes are learned as -1 and +1.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from steepest.data.chunk import Array, Chunk
from steepest.learners.base import Progress, State
from steepest.learners.network.graph import product
from steepest.learners.network.network_input import finite_rows
from steepest.learners.settings import PlainSettings
from steepest.learners.state_check import StateCheck
from steepest.learners.targets import TargetLearner, Targets
from steepest.learners.waiting import WaitingRows

BLOCK_ROWS = 256  # summed at once, from the first row on, so that chunks do not matter


@dataclass(frozen=True, slots=True)
class RadialSettings(PlainSettings):
    """The settings of a radial learner: plain values, as in the model file."""

    task: str = "classify"  # or "regress"
    votes: str = "closed_form"  # or "fixed"
    alpha: float = 1e-6
    class_weight: Any = None


class RadialLearner(TargetLearner):
    """State and step of radial bases around given centres."""

    state_arrays = ("centres", "gammas", "gram", "moment", "error")
    state_numbers = ("rows_learned", "square", "weight")

    def __init__(
        self,
        settings: RadialSettings,
        centres: Array,
        gammas: Array,
        labels: Sequence[Any] = (),
        centre_targets: Array | None = None,
    ) -> None:
        self.settings: RadialSettings = settings
        self.centres = np.array(centres, np.float64, order="C")  # units x features
        self.n_features = self.centres.shape[1]
        self.gammas = np.atleast_1d(np.asarray(gammas, np.float64))
        self.targets = Targets(settings.task, "squared", 0.0, settings.class_weight, labels)
        self.centre_targets = centre_targets  # as they are in the data; fixed votes only
        self.rows_learned = 0
        self.waiting = WaitingRows()
        n, k = len(self.gammas), len(self.centres)
        size = 1 if settings.votes == "fixed" else k + 1
        self.gram = np.zeros((n, size, size))
        self.moment = np.zeros((n, size, 0))
        self.error = np.zeros(n)  # sum of squared leave-one-out errors, fixed votes only
        self.square = 0.0  # sum of y^2
        self.weight = 0.0
        self._solved: tuple[int, Array] | None = None
        self._earlier: tuple[int, Array] | None = None  # a solution of some rows ago, for the progressive loss
        self._earlier_rows = 0

    # ------------------------------------------------------------------------------------------------ the contract

    def step(self, chunk: Chunk) -> Progress:
        """Adds the rows to the sums, a block at a time."""
        progress, self._finished = Progress(), None
        while chunk.n_rows:
            part = chunk.span(0, min(chunk.n_rows, BLOCK_ROWS - self.waiting.n_rows))
            chunk = chunk.span(part.n_rows, chunk.n_rows)
            self.waiting.put_back(part, self.targets.announce)
            if self.waiting.n_rows == BLOCK_ROWS:
                progress.add(self.finish())
        return progress

    def _learn(self, rows: Chunk, progress: Progress) -> None:
        self._solved = None
        coded = self.targets.code(rows)
        y = self._signs(coded)
        weight = self.targets.weigh(rows, coded)
        share = np.ones(len(y)) if weight is None else weight
        self._grow_outputs()
        distances = self.distances_of(rows)
        losses = 0.5 * np.square(self.vote(distances, self._solved_earlier()) - y).sum(axis=1)
        for number, gamma in enumerate(self.gammas):
            self._add(number, np.exp(-gamma * distances), y, share)
        self.square += float((share[:, None] * y**2).sum())
        self.weight += float(share.sum())
        self.rows_learned += rows.n_rows
        self._solved = None
        progress.add(Progress(rows.n_rows, float(share.sum()), float((share * losses).sum())))

    def _solved_earlier(self) -> tuple[int, Array] | None:
        """The last solution; it is recomputed when the rows have doubled, because solving is expensive."""
        if self.weight and (self._earlier is None or self.rows_learned >= 2 * self._earlier_rows):
            self._earlier, self._earlier_rows = self.solve(), self.rows_learned
        return self._earlier

    def _add(self, number: int, h: Array, y: Array, share: Array) -> None:
        if self.settings.votes == "fixed":
            votes = self._fixed_votes()
            total = h.sum(axis=1, keepdims=True) - 1.0  # its own unit, at distance 0, is left out
            mean = (product(h, votes) - y) / np.where(total > 0, total, 1.0)
            self.error[number] += float((share[:, None] * np.where(total > 0, mean - y, y) ** 2).sum())
            return
        design = np.column_stack([h, np.ones(len(h))])
        weighed = np.ascontiguousarray(share[:, None] * design)
        self.gram[number] += product(design, weighed, transposed=True)
        self.moment[number] += product(weighed, np.ascontiguousarray(y), transposed=True)

    def scores(self, chunk: Chunk, n_threads: int = 1) -> Array:
        """Scores, shape (rows, outputs)."""
        learner = self.finished()
        solved = learner.solve() if learner.weight else None
        out = np.zeros((chunk.n_rows, self.n_outputs))
        for start in range(0, chunk.n_rows, BLOCK_ROWS):
            rows = chunk.span(start, min(start + BLOCK_ROWS, chunk.n_rows))
            out[start : start + BLOCK_ROWS] = learner.vote(learner.distances_of(rows), solved)
        return out

    def merge(self, states: Sequence[State]) -> RadialLearner:
        """Adds the sums of learners around the same centres: exactly what one learner would have learned."""
        parts = [RadialLearner.from_state(self.settings, state) for state in states]
        merged = parts[0].finished()
        for part in (part.finished() for part in parts[1:]):
            merged.gram, merged.moment = merged.gram + part.gram, merged.moment + part.moment
            merged.error, merged.square = merged.error + part.error, merged.square + part.square
            merged.weight += part.weight
            merged.rows_learned += part.rows_learned
        return merged

    @property
    def state(self) -> dict[str, Array]:
        """All arrays that were learned or are needed to continue."""
        own = {} if self.centre_targets is None else {"centre_targets": self.centre_targets}
        return super().state | own

    @classmethod
    def check_state(cls, settings: RadialSettings, state: State) -> None:
        """Raises ValueError unless a learner with these settings could have had this state."""
        check = StateCheck.of(state, cls.state_numbers)
        k = check.targets(settings.task)
        sizes = check.arrays({"centres": "f units features", "gammas": "f gammas", "error": "f gammas"})
        if not sizes["gammas"] or (state["gammas"] < 0).any():
            raise ValueError("a width is negative")
        sizes["size"] = 1 if settings.votes == "fixed" else sizes["units"] + 1
        sizes = check.arrays({"gram": "f gammas size size", "moment": "f gammas size outputs"}, **sizes)
        if sizes["outputs"] > k:
            raise ValueError(f"moment has {sizes['outputs']} outputs of {k}")
        if settings.votes == "fixed" and len(np.asarray(state["centre_targets"])) != sizes["units"]:
            raise ValueError("centre_targets has another length")
        check.waiting(sizes["features"])

    @classmethod
    def from_state(cls, settings: RadialSettings, state: State) -> RadialLearner:
        """Builds a learner from its settings and state."""
        own = np.array(state["centre_targets"]) if "centre_targets" in state else None
        learner = cls(settings, state["centres"], state["gammas"], state["labels"].tolist(), own)
        learner.restore(state)
        return learner

    def weights(self) -> tuple[Array, Array]:
        """(votes of shape (units, outputs), bias)."""
        solution = self.finished().solve()[1]
        k = len(self.centres)
        return solution[:k], solution[k:].ravel() if len(solution) > k else np.zeros(self.n_outputs)

    @property
    def gamma(self) -> float:
        """The width in use."""
        return float(self.gammas[self.finished().solve()[0]])

    @property
    def step_size(self) -> float:
        """Returns 0: the weights are solved for, without steps."""
        return 0.0

    def lower_step(self, factor: float) -> None:
        """Does nothing: the weights are solved for, without steps."""

    def count_nonzero(self) -> int:
        """Votes that are not zero."""
        return int(np.count_nonzero(self.weights()[0]))

    def penalty(self) -> float:
        """alpha |v|^2 / 2."""
        return 0.5 * self.settings.alpha * float(np.square(self.weights()[0]).sum())

    def keep_good_state(self) -> None:
        """Does nothing: sums cannot diverge."""

    # -------------------------------------------------------------------------------------------------- the votes

    def _signs(self, coded: Array) -> Array:
        return coded if coded.ndim == 2 else np.where(np.arange(self.n_outputs) == coded[:, None], 1.0, -1.0)

    def _grow_outputs(self) -> None:
        """Adds the sums of a new class, which no row had so far: minus the sums of all rows."""
        width, old = self.n_outputs, self.moment
        if old.shape[2] == width:
            return
        against = -self.gram[:, :, -1:]
        if old.shape[2] == 1 and width > 1 and not self.targets.several:
            old = np.concatenate([-old, old], axis=2)
        self.moment = np.concatenate([old, *[against] * (width - old.shape[2])], axis=2)
        self.square = self.weight * width if self.settings.task == "classify" else self.square
        self._earlier = None

    def distances_of(self, rows: Chunk) -> Array:
        """|x - w_k|^2, shape (rows, units)."""
        dense = finite_rows(rows, rows.n_features)
        own = np.einsum("ij,ij->i", dense, dense)[:, None] + np.einsum("kj,kj->k", self.centres, self.centres)
        known = np.ascontiguousarray(dense[:, : self.n_features])
        if known.shape[1] < self.n_features:
            known = np.ascontiguousarray(np.pad(known, ((0, 0), (0, self.n_features - known.shape[1]))))
        return np.asarray(np.maximum(own - 2 * product(known, np.ascontiguousarray(self.centres.T)), 0))

    def vote(self, distances: Array, solved: tuple[int, Array] | None) -> Array:
        """Scores from the distances of rows to all centres, by the votes of a solution."""
        if solved is None:
            return np.zeros((len(distances), self.n_outputs))
        number, solution = solved
        gamma = self.gammas[number]
        if self.settings.votes == "fixed":  # the nearest unit counts 1, so that far rows have neighbours, too
            h = np.exp(-gamma * (distances - distances.min(axis=1, keepdims=True)))
            return np.asarray(product(h, solution) / h.sum(axis=1, keepdims=True))
        return np.asarray(product(np.exp(-gamma * distances), solution[:-1]) + solution[-1])

    def _fixed_votes(self) -> Array:
        assert self.centre_targets is not None
        empty = np.zeros(len(self.centre_targets) + 1, np.int64)
        rows = Chunk(empty, np.zeros(0, np.int32), np.zeros(0, np.float32), 0, self.centre_targets)
        return np.ascontiguousarray(self._signs(self.targets.code(rows)))

    def solve(self) -> tuple[int, Array]:
        """(which gamma, votes and bias), with the least leave-one-out error."""
        if self._solved is None:
            if self.settings.votes == "fixed":
                self._solved = int(np.argmin(self.error)), self._fixed_votes()
            else:
                trials = [self._solve(number) for number in range(len(self.gammas))]
                best = min(range(len(trials)), key=lambda number: trials[number][0])
                self._solved = best, trials[best][1]
        return self._solved

    def _solve(self, number: int) -> tuple[float, Array]:
        """(generalised cross-validation error, votes and bias) for one gamma."""
        n = max(self.weight, 1e-300)
        gram, moment = self.gram[number] / n, self.moment[number] / n
        ridge = np.full(len(gram), self.settings.alpha)
        ridge[-1] = 0.0
        system = gram + np.diag(ridge + 1e-12 * max(float(np.trace(gram)) / len(gram), 1e-12))
        solution = np.linalg.solve(system, np.column_stack([moment, gram]))
        votes = np.ascontiguousarray(solution[:, : moment.shape[1]])
        degrees = float(np.trace(solution[:, moment.shape[1] :]))
        residual = self.square / n - 2 * float((votes * moment).sum()) + float((votes * (gram @ votes)).sum())
        slack = 1.0 - degrees / n
        error = max(residual, 0.0) / slack**2 if slack > 1e-9 else math.inf
        return error, votes


def median_distance(centres: Array) -> float:
    """The median squared distance between two centres: one over it is a width at which bumps begin to be apart."""
    sample = centres[:: max(1, len(centres) // 256)]
    square = np.einsum("kj,kj->k", sample, sample)
    distances = np.maximum(square[:, None] + square - 2 * sample @ sample.T, 0)
    apart = distances[np.triu_indices(len(sample), 1)]
    apart = apart[apart > 1e-12 * max(1.0, float(square.max(initial=0.0)))]
    return float(np.median(apart)) if len(apart) else 1.0
