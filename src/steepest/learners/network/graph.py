"""Networks as directed acyclic graphs: nodes are groups of units, edges are tables of weights between them.

A node computes h = link(z) from z = bias + sum over its edges of h_source W; a "distance" node computes
z_k = |h_source - w_k|^2 and h_k = exp(-gamma_k z_k), a radial basis. `forward` visits the nodes in a topological order,
`backward` in the reverse one, where the gradient of a node is the sum of what its targets send back (the chain rule).
Reference: Daume, "A course in machine learning", chapter 10. Layered networks are `Graph.layered`, nothing else.
Left out: shared weights and recurrence; a graph with a cycle is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, NamedTuple

import numpy as np

from steepest import kernels
from steepest.data.chunk import Array
from steepest.errors import ParameterError
from steepest.parameters import choice, whole

LINKS = ("tanh", "sigmoid", "relu", "sign", "identity")
INPUT, OUTPUT = "x", "y"

Edge = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Node:
    """A group of units that are wired alike. A size of None is given by the data (input and output)."""

    name: str
    size: int | None
    link: str = "identity"
    kind: str = "dot"  # or "distance"


class Graph:
    """A feed-forward network of any shape from the input "x" to the output "y", built by `add` and `connect`.

    Several nodes may read the same source, and an edge may skip any number of nodes. Pass it as
    `NetworkClassifier(hidden=graph)` or `NetworkRegressor(hidden=graph)`.

    Examples
    --------
    >>> import steepest as st
    >>> graph = st.Graph().add("h", 4, "tanh", inputs="x").add("k", 2, "relu", inputs=["x", "h"])
    >>> print(graph.connect("k", "y").connect("x", "y").describe())
    x  input
    h  4 x tanh      <- x
    k  2 x relu      <- x, h
    y  output        <- k, x
    """

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {INPUT: Node(INPUT, None), OUTPUT: Node(OUTPUT, None)}
        self.edges: list[Edge] = []

    @classmethod
    def layered(cls, sizes: Sequence[int], link: str = "tanh") -> Graph:
        """Hidden layers of these sizes in a row: the usual network."""
        graph, below = cls(), INPUT
        for number, size in enumerate(sizes, 1):
            graph.add(f"h{number}", size, link, inputs=below)
            below = f"h{number}"
        return graph.connect(below, OUTPUT)

    @classmethod
    def radial(cls, size: int) -> Graph:
        """One layer of radial bases."""
        graph = cls()
        graph.nodes["h1"] = Node("h1", whole("n_units", size, 1), "identity", "distance")
        return graph.connect(INPUT, "h1").connect("h1", OUTPUT)

    def add(self, name: str, size: int, link: str = "tanh", inputs: str | Iterable[str] = ()) -> Graph:
        """Adds a node of `size` units that reads the nodes named by `inputs`; returns the graph."""
        if not isinstance(name, str) or not name or name in self.nodes or ">" in name:
            raise ParameterError(f"the node name {name!r} is taken or not a name; choose another one without '>'")
        node = Node(name, whole(f"the size of node {name!r},", size, 1), choice("link", link, LINKS))
        self.nodes[name] = node
        for source in [inputs] if isinstance(inputs, str) else inputs:
            self.connect(source, name)
        return self

    def connect(self, source: str, target: str) -> Graph:
        """Adds an edge from `source` to `target`; returns the graph."""
        for name in (source, target):
            if name not in self.nodes:
                raise ParameterError(f"there is no node {name!r} to connect; there are {', '.join(self.nodes)}")
        if (source, target) not in self.edges:
            self.edges.append((source, target))
        return self

    def sources(self, name: str) -> list[str]:
        """The nodes that a node reads."""
        return [source for source, target in self.edges if target == name]

    def targets(self, name: str) -> list[str]:
        """The nodes that read a node."""
        return [target for source, target in self.edges if source == name]

    def order(self) -> list[str]:
        """Returns all nodes, each after those it reads, otherwise as they were added; the output is last."""
        left = [INPUT, *(name for name in self.nodes if name not in (INPUT, OUTPUT)), OUTPUT]
        done: list[str] = []
        while left:
            ready = next((name for name in left if all(source in done for source in self.sources(name))), None)
            if ready is None:
                raise ParameterError(
                    f"the graph has a cycle through {', '.join(self._cycle(left))}; remove one of its edges"
                )
            left.remove(ready)
            done.append(ready)
        return done

    def _cycle(self, left: list[str]) -> list[str]:
        """The nodes of a cycle, found by walking back among nodes that could not be ordered."""
        path = [left[0]]
        while True:
            before = next(source for source in self.sources(path[-1]) if source in left)
            if before in path:
                return path[path.index(before) :][::-1]
            path.append(before)

    def check(self) -> Graph:
        """Returns the graph if it can be trained; otherwise raises an error that says why not."""
        if self.sources(INPUT) or self.targets(OUTPUT):
            raise ParameterError("nothing may lead into the input 'x' or out of the output 'y'; remove that edge")
        self.order()
        for name in self.nodes:
            if name != INPUT and not self.sources(name):
                raise ParameterError(f"the node {name!r} reads nothing; connect something to it")
            if name != OUTPUT and not self.targets(name):
                raise ParameterError(f"nothing reads the node {name!r}; connect it to another node or to 'y'")
        return self

    # ------------------------------------------------------------------------------------------------ showing it

    def describe(self) -> str:
        """Returns a description: the nodes in the order of computation, and what each of them reads."""
        return "\n".join(self._line(name) for name in self.order())

    def _line(self, name: str) -> str:
        node, width = self.nodes[name], max(map(len, self.nodes))
        if name == INPUT:
            return f"{name:<{width}}  input"
        what = {"dot": node.link, "distance": "radial"}[node.kind]
        what = "output" if name == OUTPUT else f"{node.size} x {what}"
        return f"{name:<{width}}  {what:<12}  <- {', '.join(self.sources(name))}"

    def svg(self) -> str:
        """Returns a drawing, in which every node is one column to the right of the last node it reads."""
        order, column = self.order(), dict.fromkeys(self.nodes, 0)
        for name in order:
            column[name] = 1 + max((column[source] for source in self.sources(name)), default=-1)
        rows: dict[int, list[str]] = {}
        for name in order:
            rows.setdefault(column[name], []).append(name)
        height = 70 * max(map(len, rows.values()))
        place = {
            name: (150 * at + 75, round(height * (row + 0.5) / len(names)))
            for at, names in rows.items()
            for row, name in enumerate(names)
        }
        parts = [_svg_edge(place[source], place[target]) for source, target in self.edges]
        parts += [_svg_node(place[name], name, self._line(name).split("  ")[1].strip()) for name in order]
        width = 150 * (1 + max(column.values()))
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
        )
        return "\n".join([f'{head} font-family="sans-serif" font-size="12" text-anchor="middle">', *parts, "</svg>"])

    def __repr__(self) -> str:
        return f"Graph({', '.join(f'{source}>{target}' for source, target in self.edges)})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Graph) and (self.nodes, self.edges) == (other.nodes, other.edges)

    __hash__ = None  # type: ignore[assignment]  # it can change

    def as_dict(self) -> dict[str, Any]:
        """Plain values for a file."""
        nodes = [[node.name, node.size, node.link, node.kind] for node in self.nodes.values()]
        return {"nodes": nodes, "edges": [list(edge) for edge in self.edges]}

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Graph:
        """The graph that `as_dict` described."""
        graph = cls()
        graph.nodes = {str(node[0]): Node(*node) for node in plain["nodes"]}
        graph.edges = [(str(source), str(target)) for source, target in plain["edges"]]
        graph._refuse_forged()
        return graph

    def _refuse_forged(self) -> None:
        """Raises ValueError unless all names are known, all sizes possible, and no edge leads back."""
        kinds = {("dot", link) for link in LINKS} | {("distance", "identity")}
        for name, node in self.nodes.items():
            free = name in (INPUT, OUTPUT)
            sized = node.size is None if free else type(node.size) is int and 0 < node.size < 1 << 24
            if not sized or (node.kind, node.link) not in kinds or node.name != name:
                raise ValueError(f"the node {name!r} of the network is {node}")
        if (
            not {INPUT, OUTPUT} <= self.nodes.keys()
            or not {name for e in self.edges for name in e} <= self.nodes.keys()
        ):
            raise ValueError("an edge of the network leads to a node that is not there")
        left, edges = set(self.nodes), set(self.edges)
        while free_nodes := {name for name in left if not any(target == name for _, target in edges)}:
            left -= free_nodes
            edges = {edge for edge in edges if edge[0] not in free_nodes}
        if left or len(set(self.edges)) != len(self.edges):
            raise ValueError("the network has a circle, or an edge twice")


def _svg_node(place: tuple[int, int], name: str, what: str) -> str:
    x, y = place
    box = f'<rect x="{x - 50}" y="{y - 22}" width="100" height="44" rx="8" fill="white" stroke="black"/>'
    label = f'<text x="{x}" y="{y - 3}">{escape(name)}</text><text x="{x}" y="{y + 13}">{escape(what)}</text>'
    return box + label


def _svg_edge(start: tuple[int, int], end: tuple[int, int]) -> str:
    """A line that bows upwards if it passes a column."""
    bow = 0 if end[0] - start[0] <= 150 else -40
    middle = (start[0] + end[0]) // 2
    control = (start[1] + end[1]) // 2 + bow
    return f'<path d="M {start[0]} {start[1]} Q {middle} {control} {end[0]} {end[1]}" fill="none" stroke="gray"/>'


# ------------------------------------------------------------------------------------------ forward and backward


def product(a: Array, b: Array, *, transposed: bool = False, n_threads: int = 1) -> Array:
    """`a @ b`, or `a.T @ b`, with bits that depend on nothing but the entries."""
    out = np.empty((a.shape[1] if transposed else a.shape[0], b.shape[1]), a.dtype)
    if out.size:
        kernels.network_multiply(a, b, out, transposed, n_threads)
    return out


def apply_link(link: str, z: Array) -> Array:
    """h = link(z)."""
    if link == "tanh":
        return np.asarray(np.tanh(z))
    if link == "relu":
        return np.asarray(np.maximum(z, z.dtype.type(0)))
    if link == "sigmoid":
        return np.asarray(0.5 * (1 + np.tanh(0.5 * z)), z.dtype)
    return np.where(z < 0, -1, 1).astype(z.dtype) if link == "sign" else z


def link_gradient(link: str, z: Array, h: Array) -> Array | None:
    """dh/dz, or None for one. The sign has no useful gradient: it takes that of clip(z, -1, 1), "straight through"."""
    if link == "tanh":
        return np.asarray(1 - h * h)
    if link == "relu":
        return np.asarray(h > 0, h.dtype)
    if link == "sigmoid":
        return np.asarray(h * (1 - h))
    return np.asarray(np.abs(z) <= 1, z.dtype) if link == "sign" else None


class Station(NamedTuple):
    """A node with the nodes that it reads and those that read it."""

    node: Node
    sources: tuple[str, ...]
    targets: tuple[str, ...]


def wiring(graph: Graph) -> tuple[Station, ...]:
    """All nodes but the input, in the order of computation; made once and used for every batch."""
    names = graph.order()[1:]
    return tuple(Station(graph.nodes[name], tuple(graph.sources(name)), tuple(graph.targets(name))) for name in names)


class Passed(NamedTuple):
    """The result of a forward pass: z and h of every node but the input."""

    z: dict[str, Array]
    h: dict[str, Array]


def forward(
    stations: Sequence[Station],
    parameters: Mapping[str, Array],
    from_input: Mapping[str, Array],
    n_threads: int = 1,
) -> Passed:
    """One pass; `from_input` holds what the input sends along each of its edges, X W or distances."""
    z: dict[str, Array] = {}
    h: dict[str, Array] = {}
    for node, sources, _ in stations:
        name, total = node.name, None
        for source in sources:
            if source == INPUT:
                part = from_input[name]
            else:
                part = product(h[source], parameters[f"{source}>{name}"], n_threads=n_threads)
            total = part if total is None else total + part
        assert total is not None
        if node.kind == "distance":
            h[name] = np.exp(-np.exp(parameters[f"gamma {name}"]) * total)
        else:
            if f"bias {name}" in parameters:
                total = total + parameters[f"bias {name}"]
            h[name] = apply_link(node.link, total)
        z[name] = total
    return Passed(z, h)


def backward(
    stations: Sequence[Station],
    parameters: Mapping[str, Array],
    passed: Passed,
    gradient: Array,
    n_threads: int = 1,
) -> dict[str, Array]:
    """dloss/dz of every node but the input, from that of the output; and dloss/dh of distance nodes, as "h name"."""
    gradients = {OUTPUT: gradient}
    for node, _, targets in reversed(stations[:-1]):
        name, total = node.name, None
        for target in targets:
            transposed = np.ascontiguousarray(parameters[f"{name}>{target}"].T)
            part = product(gradients[target], transposed, n_threads=n_threads)
            total = part if total is None else total + part
        assert total is not None
        if node.kind == "distance":
            gradients[f"h {name}"] = total
            gradients[name] = -np.exp(parameters[f"gamma {name}"]) * passed.h[name] * total
            continue
        factor = link_gradient(node.link, passed.z[name], passed.h[name])
        gradients[name] = total if factor is None else total * factor
    return gradients
