"""The first weights of a network, from its shape and the spread of its input."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from steepest.data.chunk import Array
from steepest.errors import DataError
from steepest.learners.network.graph import INPUT, OUTPUT, Graph
from steepest.learners.network.network_settings import NetworkSettings

LARGEST_TABLE_BYTES = 1 << 33


@dataclass(frozen=True, slots=True)
class Start:
    """The number of units per node and the initial weights."""

    settings: NetworkSettings
    graph: Graph
    n_features: int
    n_outputs: int
    spread: float  # mean of |x|^2

    def size(self, name: str) -> int:
        """The number of units of a node."""
        if name == INPUT:
            return self.n_features
        return self.n_outputs if name == OUTPUT else int(self.graph.nodes[name].size or 0)

    def weights(self, source: str, target: str, start: int, stop: int) -> Array:
        """Rows start..stop of an edge's first weights; a row's numbers do not depend on which others are drawn."""
        width, dtype = self.size(target), self.settings.dtype
        size = (stop - start) * width * np.dtype(dtype).itemsize
        if size > LARGEST_TABLE_BYTES:
            raise DataError(
                f"the weights would take {size / 2**30:.1f} GB for {self.n_features:,} features and {width} units; "
                "check the largest feature index, hash the features to fewer, or take fewer units"
            )
        bound = self._bound(target)
        if bound == 0 or self.graph.nodes[target].kind == "distance":
            return np.zeros((stop - start, width), dtype)
        edge = self.graph.edges.index((source, target))
        bits = np.random.PCG64(np.random.SeedSequence([self.settings.seed, edge]))
        bits.advance(start * width)
        uniform = np.random.Generator(bits).random((stop - start, width))
        uniform -= 0.5
        uniform *= 2 * bound
        return uniform.astype(dtype)

    def biases(self, name: str) -> Array:
        """Initial biases of hidden units; they differ, since odd functions fail on problems such as two spirals."""
        fan_in = max(1.0, self._fan_in(name))
        bound = {"uniform": 0.1, "zero": 0.0}.get(self.settings.init, 1.0 / math.sqrt(fan_in))
        place = len(self.graph.edges) + list(self.graph.nodes).index(name)
        uniform = np.random.default_rng([self.settings.seed, place]).uniform(-1.0, 1.0, self.size(name))
        return np.asarray((0.0 if name == OUTPUT else bound) * uniform, self.settings.dtype)

    def _fan_in(self, name: str) -> float:
        """The input counts as |x|^2 units, which is d for standard features."""
        return float(sum(self.spread if a == INPUT else self.size(a) for a in self.graph.sources(name)))

    def _bound(self, target: str) -> float:
        """First weights lie between -bound and bound."""
        init = self.settings.init
        if init in ("uniform", "zero"):
            return 0.1 if init == "uniform" else 0.0
        fan_out = self.size(target) if init == "glorot" else 0.0
        return math.sqrt(6.0 / (self._fan_in(target) + fan_out))
