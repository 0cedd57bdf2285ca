"""Mini-batches of sparse rows through a graph of dot products, in one call of the kernels for many of them.

What is computed is defined by `graph.forward`, `graph.backward`, a loss between them, and the rules of `network_rules`;
`NetworkLearner._learn_batch` puts these together, for dense rows and radial bases, and for the tests, which compare.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from steepest import kernels
from steepest.data.chunk import Array, Chunk
from steepest.learners.graph import INPUT, LINKS, Station
from steepest.learners.network_rules import EPSILON, KEEP_SECOND, MOMENTS, Arrays
from steepest.learners.network_settings import RULES, NetworkSettings
from steepest.learners.targets import Targets

SOFTMAX = -1  # as a loss


class Learned(NamedTuple):
    """How far the kernels came: whole batches, and the row whose index is out of range (-1: none)."""

    batches: int
    bad_row: int
    totals: Array  # weighted loss of each batch before it was learned; the first one that is no number ends the work


class Batches:
    """The graph in the form in which the kernels take it; made once."""

    def __init__(self, settings: NetworkSettings, stations: Sequence[Station]) -> None:
        self.settings = settings
        self.links = [LINKS.index(station.node.link) for station in stations]
        names = [station.node.name for station in stations]
        edges = [(source, station.node.name) for station in stations for source in station.sources]
        place = {INPUT: -1} | {name: number for number, name in enumerate(names)}
        self.wires = np.array([(place[source], place[target]) for source, target in edges], np.int64)
        self.edges = [f"{source}>{target}" for source, target in edges]
        self.into = [self.edges.index(f"{station.sources[0]}>{station.node.name}") for station in stations]
        self.parameters = self.edges + ([f"bias {name}" for name in names] if settings.biases else [])

    @staticmethod
    def can_take(stations: Sequence[Station]) -> bool:
        """Whether the kernels know every node of the graph."""
        return all(station.node.kind == "dot" for station in stations)

    def learn(
        self, arrays: Arrays, slot: Array, rows: Chunk, targets: Targets, coded: Array, weight: Array | None,
        steps: Sequence[float], n_threads: int,
    ) -> Learned:  # fmt: skip
        """Forward, loss, backward and one step down the gradient for each batch, in place."""
        s, totals = self.settings, np.zeros(len(steps))
        moments: dict[str, list[Array]] = {"first": [], "second": []} | {
            moment: [arrays[f"{moment} {name}"] for name in self.parameters] for moment in MOMENTS[s.rule]
        }
        stamps = [arrays[f"stamp {name}"] for name in self.edges if f"stamp {name}" in arrays]
        loss, units, classes, y = _answers(targets, coded)
        batches, bad_row = kernels.network_learn(
            rows.indptr, rows.indices, rows.values, rows.order,
            self._stations(arrays), self.wires, [arrays[name] for name in self.parameters],
            moments["first"], moments["second"], stamps, slot, arrays["clock"],
            (RULES[s.rule], s.momentum, KEEP_SECOND, EPSILON.get(s.rule, 0.0)), (s.l1, s.l2),
            np.asarray(steps, np.float64), s.batch_size,
            loss, units, classes, y, None if weight is None else np.ascontiguousarray(weight, np.float64),
            totals, n_threads,
        )  # fmt: skip
        return Learned(batches, bad_row, totals)

    def _stations(self, arrays: Arrays) -> Array:
        """(size, link) of each station; the output's size may grow."""
        sizes = [arrays[self.edges[edge]].shape[1] for edge in self.into]
        return np.array(list(zip(sizes, self.links, strict=True)), np.int64)


def _answers(targets: Targets, coded: Array) -> tuple[tuple[int, float, bool], Array, Array | None, Array | None]:
    """(loss, units of the outputs, classes, targets that are no classes)."""
    t = targets
    is_real = t.loss.kind == "real"
    units = np.stack([t.shift, t.scale, np.broadcast_to(t.slope_parameter, t.shift.shape)])
    loss = (SOFTMAX if t.is_softmax else t.loss.code, t.parameter, is_real)
    if t.has_codes:
        return loss, units, coded.astype(np.int64, copy=False), None
    return loss, units, None, np.ascontiguousarray(coded, np.float64)
