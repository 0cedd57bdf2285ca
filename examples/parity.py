"""Parity of n bits, deep against shallow: what networks can do by construction, and what they learn.

By construction. Deep: a tree of exclusive ors, two threshold units for each pair of values, so 2 (n - 1) units that
read two or four numbers each. Shallow: one layer of n units that all read all bits and count: unit k asks whether more
than k are set. Both are exact; weights grow as 8 n against n².

Learned. Networks trained from end to end on all 2^n rows, the best of three starts: parity has no slope towards the
answer, so more bits soon need more units than the construction, and depth alone does not help. What does is to learn in
the order of the tree: an exclusive or of two bits is learned once (two hidden units, nine weights and biases), and
applied to pairs, pairs of pairs and so on, a network of depth log2(n) whose levels share their weights.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import steepest as st
from examples.figure import new_figure, save

LEARNED_BITS: tuple[int, ...] = (2, 3, 4, 5, 6, 7, 8)
LONG_BITS: tuple[int, ...] = (2, 4, 8, 16, 32, 64, 128, 256)
SHAPES = {"one layer of 4": (4,), "one layer of 12": (12,), "two layers of 8": (8, 8), "three layers of 6": (6, 6, 6)}


def all_rows(n_bits: int) -> tuple[Any, Any]:
    X = ((np.arange(2**n_bits)[:, None] >> np.arange(n_bits)) & 1) * 2.0 - 1.0
    return X, (X > 0).sum(axis=1) % 2


def rows(n_bits: int, most: int = 2000) -> tuple[Any, Any]:
    """All rows of n bits, or some drawn by chance."""
    if 2**n_bits <= most:
        return all_rows(n_bits)
    X = np.random.default_rng(n_bits).choice([-1.0, 1.0], (most, n_bits))
    return X, (X > 0).sum(axis=1) % 2


# ------------------------------------------------------------------------------------------------------ constructed


def sign(z: Any) -> Any:
    return np.where(z >= 0, 1.0, -1.0)


def tree_of_units(X: Any) -> tuple[Any, int]:
    """(parity as -1 or 1, weights and biases): "both" and "neither" of every pair, whose sum tells "one of two"."""
    values, n_weights, reads = X, 0, 1  # how many units a value is the sum of
    while values.shape[1] > 1:
        left, right = values[:, 0::2], values[:, 1::2]
        both, neither = sign(left + right - 1), sign(-left - right - 1)
        n_weights += 2 * left.shape[1] * (2 * reads + 1)
        values, reads = -both - neither - 1, 2
    return values[:, 0], n_weights + 3


def one_layer(X: Any) -> tuple[Any, int]:
    """The same by n units that count: odd ones vote for, even ones against."""
    n = X.shape[1]
    counted = sign(X.sum(axis=1)[:, None] + n - 2 * np.arange(n) - 1)  # unit k: at least k + 1 bits are set
    votes = np.where(np.arange(n) % 2 == 0, 1.0, -1.0)
    return sign(counted @ votes + n % 2 - 1), n * (n + 1) + n + 1


# ---------------------------------------------------------------------------------------------------------- learned


def best(hidden: tuple[int, ...], n_bits: int, seeds: int = 3) -> tuple[float, int]:
    """(best accuracy of some starts, weights) on all 2^n rows."""
    X, y = all_rows(n_bits)
    options: dict[str, Any] = dict(epochs=300, eta0=0.05, batch_size=128, alpha=0.0)
    model = st.NetworkClassifier(hidden, restarts=st.Restarts(seeds, fraction=0), random_state=0, **options).fit(X, y)
    return model.score(X, y), model.n_nonzero_


def learned_pair() -> Any:
    """The exclusive or of two bits."""
    X, y = all_rows(2)
    options: dict[str, Any] = dict(epochs=300, eta0=0.05, alpha=0.0)
    return st.NetworkClassifier((2,), restarts=st.Restarts(4, fraction=0), random_state=0, **options).fit(X, y)


def learned_tree(pair: Any, X: Any) -> Any:
    """What was learned for two bits, level by level."""
    while X.shape[1] > 1:
        levels = X.reshape(-1, 2)
        X = (2.0 * pair.predict(levels) - 1.0).reshape(len(X), -1)
    return (X[:, 0] > 0).astype(np.int64)


def main(folder: Any = None) -> None:
    sizes = []
    for n in LONG_BITS:
        X, y = rows(n)
        (deep, deep_weights), (shallow, shallow_weights) = tree_of_units(X), one_layer(X)
        exact = bool(((deep > 0) == y).all() and ((shallow > 0) == y).all())
        sizes.append((deep_weights, shallow_weights))
        print(f"{n:>4} bits: tree {deep_weights:>6} weights, one layer {shallow_weights:>6}, both exact: {exact}")
    found = {name: [best(shape, n) for n in LEARNED_BITS] for name, shape in SHAPES.items()}
    pair = learned_pair()
    tree = [float((learned_tree(pair, X) == y).mean()) for X, y in map(rows, LONG_BITS)]
    print(f"{'learned, bits':<20}{''.join(f'{n:>8}' for n in LEARNED_BITS)}")
    for name, results in found.items():
        print(f"{name:<20}{''.join(f'{accuracy:>8.2f}' for accuracy, _ in results)}   ({results[-1][1]} weights)")
    print("tree of a learned pair, " + ", ".join(f"{n}: {a:.2f}" for n, a in zip(LONG_BITS, tree, strict=True)))
    draw(sizes, found, tree, folder)


def draw(sizes: list[tuple[int, int]], found: dict[str, Any], tree: list[float], folder: Any) -> None:
    drawn = new_figure(2)
    if drawn is None:
        return
    figure, (left, right) = drawn
    left.plot(LONG_BITS, [deep for deep, _ in sizes], marker="o", label="tree, depth log2(n)")
    left.plot(LONG_BITS, [shallow for _, shallow in sizes], marker="s", label="one layer")
    left.set(xscale="log", yscale="log", xlabel="bits", ylabel="weights and biases", title="Constructed, exact")
    left.set_xticks(LONG_BITS, [str(n) for n in LONG_BITS])
    left.minorticks_off()
    left.legend()
    for name, results in found.items():
        right.plot(LEARNED_BITS, [accuracy for accuracy, _ in results], marker="o", label=name)
    right.plot(LONG_BITS, tree, marker="*", color="black", label="tree of a learned pair")
    right.set(xscale="log", xlabel="bits", ylabel="accuracy", title="Learned", ylim=(0.45, 1.03))
    right.set_xticks(LONG_BITS, [str(n) for n in LONG_BITS])
    right.minorticks_off()
    right.legend(loc="center right")
    figure.tight_layout()
    save(figure, "parity.svg", folder)


if __name__ == "__main__":
    main()
