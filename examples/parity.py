"""Parity of n bits, deep against shallow: layers of few units beside one layer.

A network can count pairs of bits level by level, so depth log2(n) needs about n units in all; one hidden layer of
threshold units needs at least n of them, each reading all the bits.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import steepest as st
from examples.figure import new_figure, save


def parity(n_bits: int) -> tuple[Any, Any]:
    X = ((np.arange(2**n_bits)[:, None] >> np.arange(n_bits)) & 1) * 2.0 - 1.0
    return X, (X > 0).sum(axis=1) % 2


def best(hidden: tuple[int, ...], n_bits: int, seeds: int = 3) -> tuple[float, int]:
    """(best accuracy of some starts, weights) on all 2^n rows."""
    X, y = parity(n_bits)
    options: dict[str, Any] = dict(epochs=300, eta0=0.05, batch_size=128, alpha=0.0, validation_fraction=0)
    model = st.NetworkClassifier(hidden, restarts=seeds, random_state=0, **options).fit(X, y)
    return model.score(X, y), model.n_nonzero_


def main(folder: Any = None) -> None:
    shapes = {
        "one layer of 4": (4,),
        "one layer of 12": (12,),
        "two layers of 8": (8, 8),
        "three layers of 6": (6, 6, 6),
    }
    bits = (2, 3, 4, 5, 6, 7, 8)
    found = {name: [best(shape, n) for n in bits] for name, shape in shapes.items()}
    print(f"{'bits':<20}{''.join(f'{n:>8}' for n in bits)}")
    for name, results in found.items():
        print(f"{name:<20}{''.join(f'{accuracy:>8.2f}' for accuracy, _ in results)}   ({results[-1][1]} weights)")
    drawn = new_figure()
    if drawn is None:
        return
    figure, axes = drawn
    for name, results in found.items():
        axes.plot(bits, [accuracy for accuracy, _ in results], marker="o", label=name)
    axes.set(xlabel="bits", ylabel="accuracy on all rows", title="Parity", ylim=(0.45, 1.03))
    axes.legend()
    save(figure, "parity.svg", folder)


if __name__ == "__main__":
    main()
