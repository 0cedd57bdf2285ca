"""Handwritten digits by one hidden layer of 128 units, ten epochs; scikit-learn's small digits where MNIST is absent.

STEEPEST_DATA names a folder with the four original files in its subfolder mnist.
"""

from __future__ import annotations

import gzip
import os
from pathlib import Path
from typing import Any

import numpy as np

import steepest as st
from examples.figure import IMAGES, new_figure, save

Data = tuple[Any, Any, Any, Any]


def read_mnist(folder: Path) -> Data:
    parts = []
    for part in ("train", "t10k"):
        with gzip.open(folder / f"{part}-images-idx3-ubyte.gz") as file:
            parts.append(np.frombuffer(file.read(), np.uint8, offset=16).reshape(-1, 784) / np.float32(255))
        with gzip.open(folder / f"{part}-labels-idx1-ubyte.gz") as file:
            parts.append(np.frombuffer(file.read(), np.uint8, offset=8).astype(np.int64))
    return parts[0], parts[1], parts[2], parts[3]


def small_digits() -> Data | None:
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        return None
    X, y = load_digits(return_X_y=True)
    X = X / 16.0
    return X[:1400], y[:1400], X[1400:], y[1400:]


def load() -> tuple[str, Data] | None:
    folder = Path(os.environ.get("STEEPEST_DATA", IMAGES.parents[2] / "shared" / "data")) / "mnist"
    if folder.is_dir():
        return "MNIST", read_mnist(folder)
    print("MNIST is not there: set STEEPEST_DATA to the folder that holds mnist/; the small digits must do")
    digits = small_digits()
    if digits is None:
        print("neither is scikit-learn, whose small digits would do: nothing to learn from")
        return None
    return "digits", digits


def main(folder: Any = None) -> None:
    found = load()
    if found is None:
        return
    name, (X, y, new, truth) = found
    model = st.NetworkClassifier((128,), link="relu", epochs=10, random_state=0).fit(X, y)
    seconds = sum(model.history_.column("seconds"))
    print(f"{name}: {len(X):,} rows, test error {100 * (1 - model.score(new, truth)):.2f} %, {seconds:.1f} s")
    drawn = new_figure(2)
    if drawn is None:
        return
    figure, (curve, picture) = drawn
    curve.plot(model.history_.column("epoch"), model.history_.column("loss"), marker="o")
    curve.set(xlabel="epoch", ylabel="progressive loss", title=f"{name}, 128 hidden units")
    side = int(np.sqrt(X.shape[1]))
    units = np.full((6, 6, side + 2, side + 2), np.nan)  # with a gap between them
    units[:, :, 1:-1, 1:-1] = model.weights_["x>h1"].T[:36].reshape(6, 6, side, side)
    limit = float(np.nanquantile(np.abs(units), 0.995))
    picture.imshow(np.block([list(row) for row in units]), cmap="RdBu", vmin=-limit, vmax=limit)
    picture.set(title="weights of 36 of the units", xticks=[], yticks=[])
    save(figure, f"{name.lower()}.png", folder)


if __name__ == "__main__":
    main()
