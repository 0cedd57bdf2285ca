"""Closed form or iterations: both find the same ridge solution; the work of the closed form grows with the cube of d.

Counted are multiplications: n d^2 + d^3 / 3 for the normal equations, 2 n d per iteration for conjugate gradients.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import steepest as st
from examples.figure import new_figure, save

SIZES = (10, 30, 100, 300)
ROWS = 400


def main(folder: Any = None) -> list[tuple[int, float, float, float]]:
    rng = np.random.default_rng(0)
    found = []
    for d in SIZES:
        X = rng.standard_normal((ROWS, d))
        y = X @ rng.standard_normal(d) + rng.standard_normal(ROWS)
        options: dict[str, Any] = dict(alpha=0.1, fit_intercept=False, dtype="float64")
        exact = st.LinearRegressor(solver="closed_form", **options).fit(X, y)
        iterated = st.LinearRegressor(solver="cg", tol=1e-8, **options).fit(X, y)
        difference = float(np.abs(exact.coef_ - iterated.coef_).max())
        iterations = len(iterated.history_)
        found.append((d, difference, ROWS * d**2 + d**3 / 3, 2.0 * ROWS * d * iterations))
        print(f"d = {d:<5}{iterations:>3} iterations; weights differ by at most {difference:.1e}")
    drawn = new_figure()
    if drawn is not None:
        figure, axes = drawn
        axes.loglog(SIZES, [row[2] for row in found], "o-", label="closed form")
        axes.loglog(SIZES, [row[3] for row in found], "s--", label="conjugate gradients to 1e-8")
        axes.set(xlabel="features", ylabel="multiplications", title=f"Ridge regression, {ROWS} rows")
        axes.set_xticks(SIZES, [str(d) for d in SIZES])
        axes.legend()
        save(figure, "closed_form.svg", folder)
    return found


if __name__ == "__main__":
    main()
