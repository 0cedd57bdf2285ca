"""The L2 penalty of sparse rows: w = s v, and its rival, a decay of all weights only every k rows with a k-fold step.

Shrinking every weight for every row costs d where the row costs its non-zeros. Both ways avoid that; w = s v, which the
package uses, is exact, the other one is wrong, and by more the less often it decays. By how much is measured here,
against the plain step w <- (w - eta g) / (1 + eta alpha) over all weights for every row.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import steepest as st
from examples.figure import new_figure, save

EVERY = (1, 10, 100, 1000)
N, D, ENTRIES, ALPHA, ETA = 4000, 300, 8, 1e-2, 0.05


def sparse_rows() -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    X = np.zeros((N, D), np.float32)
    for row in X:
        row[rng.choice(D, ENTRIES, replace=False)] = 1.0 / np.float32(np.sqrt(ENTRIES))
    return X, np.where(X @ rng.standard_normal(D) > 0, 1, -1)


def lower_frequency(X: Any, y: Any, every: int) -> Any:
    """Step (1) for every row, step (2) every so many rows, for as many steps at once; every = 1 is the plain step."""
    w, hinge = np.zeros(X.shape[1]), st.losses["hinge"]
    for number, (x, label) in enumerate(zip(X.astype(np.float64), y, strict=True), 1):
        w -= ETA * hinge.gradient(w @ x, label) * x
        if number % every == 0:
            w /= 1 + every * ETA * ALPHA
    return w


def scaled(X: Any, y: Any) -> Any:
    """The package: w = s v."""
    options: dict[str, Any] = dict(solver="sgd", average=False, schedule="constant", eta0=ETA, alpha=ALPHA)
    order: dict[str, Any] = dict(epochs=1, shuffle="never", fit_intercept=False, dtype="float64")
    return st.LinearClassifier("hinge", **options, **order).fit(X, y).coef_[0]


def main(folder: Any = None) -> dict[str, float]:
    X, y = sparse_rows()
    plain = lower_frequency(X, y, 1)
    size = float(np.linalg.norm(plain))
    found = {"w = s v": float(np.linalg.norm(scaled(X, y) - plain)) / size}
    for every in EVERY[1:]:
        found[f"every {every} rows"] = float(np.linalg.norm(lower_frequency(X, y, every) - plain)) / size
    for name, difference in found.items():
        print(f"{name:<18} differs from the plain step by {difference:.1e} of |w|")
    drawn = new_figure()
    if drawn is not None:
        figure, axes = drawn
        axes.bar(list(found), [max(value, 1e-16) for value in found.values()], color="tab:gray")
        axes.set(yscale="log", ylabel="difference, share of |w|", title="Error of rare weight decay")
        axes.tick_params(axis="x", rotation=20)
        save(figure, "decay.svg", folder)
    return found


if __name__ == "__main__":
    main()
