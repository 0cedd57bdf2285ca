"""A binary tree whose leaves are labels, for the hierarchical soft maximum: a label costs its depth, not their number.

P(label) = product over the way to it of sigmoid(side w_node·h), side +1 to the left and -1 to the right. Huffman's tree
gives frequent labels short ways (Huffman 1952). A label that appears later divides the shallowest leaf, so the tree
stays level whatever the order. Inner nodes are rows of the head, numbered in the order in which they were made.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

import numpy as np

from steepest import kernels
from steepest.data.chunk import Array


class LabelTree:
    """`children[node]` holds two entries: an inner node, or -1 - label."""

    def __init__(self, children: Array | None = None, root: int = 0) -> None:
        self.children = np.zeros((0, 2), np.int32) if children is None else np.ascontiguousarray(children, np.int32)
        self.root = root
        self._find_ways()

    @classmethod
    def huffman(cls, counts: Sequence[float]) -> LabelTree:
        """The tree of least mean depth for labels that are that frequent."""
        heap = [(float(count), number, -1 - number) for number, count in enumerate(counts)]
        heapq.heapify(heap)
        children: list[tuple[int, int]] = []
        while len(heap) > 1:
            a, b = heapq.heappop(heap), heapq.heappop(heap)
            heapq.heappush(heap, (a[0] + b[0], len(counts) + len(children), len(children)))
            children.append((a[2], b[2]))
        return cls(np.array(children, np.int32).reshape(-1, 2), max(0, len(children) - 1))

    def native(self) -> kernels.EmbeddingTree:
        """The tree as the kernels take it."""
        return kernels.EmbeddingTree(self.start, self.node, self.side, self.children, self.top_down)

    def grow(self, n_labels: int) -> None:
        """Makes room for labels up to n_labels; old ones keep their nodes."""
        for label in range(len(self.children) + 1, n_labels):
            node = len(self.children)
            if node == 0:
                self.children = np.array([[-1, -2]], np.int32)
                self._find_ways()
                continue
            shallow = int(np.argmin(np.diff(self.start)))
            place = np.argwhere(self.children == -1 - shallow)[0]
            self.children[place[0], place[1]] = node
            self.children = np.concatenate([self.children, np.array([[-1 - shallow, -1 - label]], np.int32)])
            self._find_ways()

    def _find_ways(self) -> None:
        """The ways to all labels, and the nodes from the root down."""
        ways: list[list[tuple[int, float]]] = [[] for _ in range(len(self.children) + 1)]
        order: list[int] = []
        stack: list[tuple[int, list[tuple[int, float]]]] = [(self.root, [])] if len(self.children) else []
        while stack:
            node, way = stack.pop()
            order.append(node)
            for child, side in zip(self.children[node].tolist(), (1.0, -1.0), strict=True):
                longer = [*way, (node, side)]
                if child >= 0:
                    stack.append((child, longer))
                else:
                    ways[-1 - child] = longer
        if len(order) != len(self.children):
            raise ValueError("the tree of labels has nodes that no way leads to")
        self.start = np.cumsum([0] + [len(way) for way in ways], dtype=np.int64)
        self.node = np.array([node for way in ways for node, _ in way], np.int32)
        self.side = np.array([side for way in ways for _, side in way], np.float32)
        self.top_down = np.array(order, np.int32)


def check_tree(children: Array, root: int, n_labels: int) -> None:
    """Raises ValueError unless every node and every label is the child of exactly one node, and the root of none.

    With n - 1 nodes and n labels this leaves no room for a circle that the root can reach.
    """
    if not len(children):
        return
    nodes = np.sort(children[children >= 0])
    labels = np.sort(-1 - children[children < 0])
    others = np.delete(np.arange(len(children)), root)
    if not np.array_equal(nodes, others) or not np.array_equal(labels, np.arange(n_labels)):
        raise ValueError("the tree of labels has a node or a label twice, or not at all")
