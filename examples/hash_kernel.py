"""Hashing and its kernel: random signs make inner products of hashed rows right on average.

E[<h(x), h(z)>] = <x, z> over hash functions, and the variance falls as 1 / m for m buckets (Weinberger et al., 2009).
Without signs every collision adds, and products are too large.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import steepest as st
from examples.figure import new_figure, save

BITS = (10, 11, 12, 13, 14)
SEEDS = 30


def products(texts: list[str], n_bits: int, signed: bool) -> Any:
    """<h(x), h(z)> of the first text and the second, one per hash function."""
    options: dict[str, Any] = dict(n_bits=n_bits, signed=signed, norm=None, weighting="count")
    rows = [st.Hasher(seed=seed, **options).transform(texts) for seed in range(SEEDS)]
    return np.array([float(row[0].multiply(row[1]).sum()) for row in rows])


def main(folder: Any = None) -> dict[str, list[tuple[float, float]]]:
    rng = np.random.default_rng(0)
    words = [f"word{j}" for j in rng.permutation(1000)]
    texts = [" ".join(words[:500]), " ".join(words[400:900])]  # 100 words in common
    found: dict[str, list[tuple[float, float]]] = {"random signs": [], "no signs": []}
    for name, signed in (("random signs", True), ("no signs", False)):
        for n_bits in BITS:
            sample = products(texts, n_bits, signed)
            found[name].append((float(sample.mean()), float(sample.std())))
        print(
            f"{name:<14}" + ", ".join(f"2^{b}: {m:.0f} ± {s:.0f}" for b, (m, s) in zip(BITS, found[name], strict=True))
        )
    drawn = new_figure()
    if drawn is not None:
        figure, axes = drawn
        for number, (name, values) in enumerate(found.items()):
            places = np.array(BITS) + 0.08 * number
            axes.errorbar(
                places, [m for m, _ in values], [s for _, s in values], marker="os"[number], capsize=3, label=name
            )
        axes.axhline(100, color="grey", linewidth=0.8, linestyle=":", label="exact")
        axes.set(xlabel="bits of the table", ylabel="inner product, mean and deviation", xticks=BITS)
        axes.set_title(f"Two texts, 100 common words, {SEEDS} hashes")
        axes.legend()
        save(figure, "hash_kernel.svg", folder)
    return found


if __name__ == "__main__":
    main()
