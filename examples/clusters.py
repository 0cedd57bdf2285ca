"""k-means is a matrix factorization: X is about Z C, where each row of Z has a single one.

Lloyd's two steps are the two halves of alternating least squares under that condition: Z given C, then C given Z.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import steepest as st
from examples.figure import new_figure, save


def main(folder: Any = None) -> tuple[float, float, float]:
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.standard_normal((100, 2)) * 0.5 + c for c in ([0, 0], [3, 1], [1, 4])]).astype(np.float32)
    model = st.KMeans(3, solver="lloyd", random_state=0).fit(X)
    Z = np.eye(3)[model.predict(X)]
    error = float(((X - Z @ model.cluster_centers_) ** 2).sum())
    inertia = float(((X - model.cluster_centers_[model.predict(X)]) ** 2).sum())
    best = float(((X - Z @ np.linalg.lstsq(Z, X, rcond=None)[0]) ** 2).sum())  # C given Z by least squares
    print(f"|X - Z C|^2 = {error:.3f}; inertia {inertia:.3f}; with C by least squares {best:.3f}")
    drawn = new_figure()
    if drawn is not None:
        figure, axes = drawn
        for k, (mark, colour) in enumerate(zip("os^", ("#0072b2", "#d55e00", "#009e73"), strict=True)):
            axes.plot(*X[Z[:, k] == 1].T, mark, color=colour, ms=4, alpha=0.6, label=f"row {k + 1} of C")
        axes.plot(*model.cluster_centers_.T, "kX", ms=10, label="centres")
        axes.set(xlabel="x₁", ylabel="x₂", title="X ≈ Z C with one 1 per row of Z", aspect="equal")
        axes.legend(fontsize=7, loc="upper right")
        save(figure, "clusters.svg", folder)
    return error, inertia, best


if __name__ == "__main__":
    main()
