"""Hidden units against over-fitting: training error falls with every unit, the test error turns around."""

from __future__ import annotations

from typing import Any

import numpy as np

import steepest as st
from examples.figure import new_figure, save

SIZES = (1, 2, 4, 8, 16, 32, 64, 128)


def noisy_wave(n: int, seed: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    x = rng.uniform(-3, 3, (n, 1))
    return x, np.sin(2 * x[:, 0]) + 0.4 * rng.standard_normal(n)


def errors(size: int, **more: Any) -> tuple[float, float]:
    """Root mean squared errors on the rows learned and on new ones."""
    x, y = noisy_wave(40, 0)
    new, truth = noisy_wave(2000, 1)
    options: dict[str, Any] = dict(epochs=1500, eta0=0.02, batch_size=40, alpha=0.0) | more
    model = st.NetworkRegressor((size, size), random_state=0, **options).fit(x, y)
    return tuple(float(np.sqrt(np.mean((model.predict(a) - b) ** 2))) for a, b in ((x, y), (new, truth)))


def main(folder: Any = None) -> None:
    found = {size: errors(size) for size in SIZES}
    stopped = errors(SIZES[-1], early_stopping=st.EarlyStopping(fraction=0.25, patience=100))
    print(f"{'units a layer':<16}{'training':>10}{'test':>10}")
    for size, (training, test) in found.items():
        print(f"{size:<16}{training:>10.3f}{test:>10.3f}")
    print(f"{SIZES[-1]}, stopped early{'':<2}{stopped[0]:>7.3f}{stopped[1]:>10.3f}   (the noise alone is 0.400)")
    drawn = new_figure()
    if drawn is None:
        return
    figure, axes = drawn
    axes.semilogx(SIZES, [pair[0] for pair in found.values()], marker="o", label="training")
    axes.semilogx(SIZES, [pair[1] for pair in found.values()], marker="o", label="test")
    axes.axhline(0.4, color="gray", linestyle=":", label="noise")
    axes.set(xlabel="units in each of two layers", ylabel="root mean squared error", title="40 rows")
    axes.set_xticks(list(SIZES), [str(size) for size in SIZES])
    axes.minorticks_off()
    axes.legend()
    save(figure, "overfitting.svg", folder)


if __name__ == "__main__":
    main()
