"""The order of rows: a file that is sorted by class, read as it is, shuffled once, or shuffled for every epoch.

Rows as they come teach the last class last and forget the first. One permutation converges, and so does a new
one for every epoch, which is nearer here after 8 epochs but not in every setting. The gap is the
objective above its minimum after so many epochs of plain SGD, the mean of twelve seeds.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import steepest as st
from examples.figure import new_figure, save

ORDERS = {"as sorted": "never", "permuted once": "once", "permuted every epoch": "rows"}
EPOCHS = (1, 2, 4, 8)
SEEDS, ALPHA = 12, 1e-2


def sorted_rows(n: int = 2000, d: int = 20) -> tuple[Any, Any]:
    """All rows of one class, then all of the other."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, d)).astype(np.float32) / np.float32(np.sqrt(d))
    y = np.where(X @ rng.standard_normal(d) + 0.5 * rng.standard_normal(n) > 0, 1, -1)
    order = np.argsort(y, kind="stable")
    return X[order], y[order]


def gaps(shuffle: str) -> Any:
    """The gap after so many epochs, for each number of them."""
    X, y = sorted_rows()
    least = st.LinearClassifier("log", alpha=ALPHA, solver="newton_cg", tol=1e-10, dtype="float64").fit(X, y)
    found = np.zeros((SEEDS, len(EPOCHS)))
    for seed in range(SEEDS):
        for place, epochs in enumerate(EPOCHS):
            options: dict[str, Any] = dict(alpha=ALPHA, solver="sgd", average=False, schedule="bottou", eta0=1.0)
            model = st.LinearClassifier("log", shuffle=shuffle, epochs=epochs, random_state=seed, **options).fit(X, y)
            found[seed, place] = model.objective(X, y) - least.objective(X, y)
    return found.mean(axis=0)


def main(folder: Any = None) -> dict[str, Any]:
    found = {name: gaps(shuffle) for name, shuffle in ORDERS.items()}
    print(f"{'gap after epoch':<24}{''.join(f'{k:>9}' for k in EPOCHS)}")
    for name, gap in found.items():
        print(f"{name:<24}{''.join(f'{value:>9.5f}' for value in gap)}")
    drawn = new_figure()
    if drawn is not None:
        figure, axes = drawn
        for name, gap in found.items():
            axes.loglog(EPOCHS, gap, marker="o", label=name)
        axes.set(xlabel="epochs", ylabel="objective above its minimum", title="Rows sorted by class")
        axes.set_xticks(EPOCHS, [str(epochs) for epochs in EPOCHS])
        axes.minorticks_off()
        axes.legend()
        save(figure, "permutations.svg", folder)
    return found


if __name__ == "__main__":
    main()
