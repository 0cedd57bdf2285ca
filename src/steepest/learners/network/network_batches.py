"""Mini-batches of sparse rows through a graph of dot products, in one call of the kernels for many of them.

What is computed is defined by `graph.forward`, `graph.backward`, a loss between them, and `network_updates`;
`NetworkLearner` puts these together in Python as well, for dense rows and radial bases, and the tests compare.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from steepest import kernels
from steepest.data.chunk import Array, Chunk
from steepest.learners.network.graph import INPUT, LINKS, Station
from steepest.learners.network.network_settings import NetworkSettings
from steepest.learners.network.network_updates import MOMENTS, Arrays, choices
from steepest.learners.targets import Targets

SOFTMAX = -1  # as a loss


class Learned(NamedTuple):
    """How far the kernels came: whole batches, and the row whose index is out of range (-1: none)."""

    batches: int
    bad_row: int
    totals: Array  # weighted loss of each batch before it was learned; the first one that is not a number ends the work


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
            moment: [arrays[f"{moment} {name}"] for name in self.parameters] for moment in MOMENTS[s.solver]
        }
        stamps = [arrays[f"stamp {name}"] for name in self.edges if f"stamp {name}" in arrays]
        tables = [arrays[name] for name in self.parameters]
        batches, bad_row = kernels.network_learn(
            rows.as_rows(),
            _targets(targets, coded, weight),
            (self._stations(arrays), self.wires),
            (tables, moments["first"], moments["second"], stamps, slot, arrays["clock"]),
            choices(s),
            np.asarray(steps, np.float64),
            totals,
            n_threads,
        )
        return Learned(batches, bad_row, totals)

    def _stations(self, arrays: Arrays) -> Array:
        """(size, link) of each station; the output's size may grow."""
        sizes = [arrays[self.edges[edge]].shape[1] for edge in self.into]
        return np.array(list(zip(sizes, self.links, strict=True)), np.int64)


def _targets(t: Targets, coded: Array, weight: Array | None) -> kernels.NetworkTargets:
    """Loss, units of the outputs, and what each row should score, as the kernels take them."""
    return kernels.NetworkTargets(
        SOFTMAX if t.is_softmax else t.loss.code,
        t.parameter,
        t.loss.kind == "real",
        np.stack([t.shift, t.scale, np.broadcast_to(t.parameter_of_outputs, t.shift.shape)]),
        np.ascontiguousarray(coded, np.int64) if t.has_codes else None,
        None if t.has_codes else np.ascontiguousarray(coded, np.float64),
        None if weight is None else np.ascontiguousarray(weight, np.float64),
    )
