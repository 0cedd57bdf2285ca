"""Non-zero weights at equal test log loss: our `ftrl` beside Vowpal Wabbit's `--l1` and scikit-learn's SGD with l1.

    python -m benchmarks.sparse us-flights debian-packages [--learners ours vw vw-ftrl sklearn]

us-flights: is a flight late, from 8 categories in 2^18 buckets; the last week is the test. debian-packages: the largest
section against all others, words of both descriptions in 2^18 buckets. All learn from the same hashed rows, five
epochs, defaults but for the strength of the 1-norm, which runs over powers of sqrt(10). The second table shows, for
some test losses, the fewest non-zeros with which each learner gets there; it looks at the test rows to compare, not to
choose anything.
"""

from __future__ import annotations

import argparse
import math
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

import steepest as st
from benchmarks import DATA
from benchmarks.defaults import SETS, Split

EPOCHS = 5
STRENGTHS = tuple(10.0 ** (-k / 2) for k in range(6, 15))  # 1e-3 to 1e-7
ABOVE = (0.0, 0.003, 0.01, 0.03, 0.1)  # the best loss of all, by these shares


class Found(NamedTuple):
    strength: float
    nonzeros: int
    loss: float


def load(name: str) -> Split:
    split = SETS[name](DATA)
    if name == "debian-packages":
        sections, counts = np.unique(split.y, return_counts=True)
        largest = sections[counts.argmax()]
        print(f"{name}: {largest!r} against the others, {counts.max() / counts.sum():.1%} of the training rows")
        split = split._replace(y=(split.y == largest) * 1, y_test=(split.y_test == largest) * 1)
    print(f"{name}: {split.X.shape[0]:,} training and {split.X_test.shape[0]:,} test rows")
    return split


def log_loss(scores: np.ndarray, y: np.ndarray) -> float:
    return float(np.logaddexp(0.0, -(2.0 * y - 1) * scores).mean())


def ours(split: Split, folder: Path, strength: float) -> Found:
    model = st.LinearClassifier(solver="ftrl", penalty="l1", alpha=strength, epochs=EPOCHS, random_state=0)
    model.fit(split.X, split.y)
    return Found(strength, np.count_nonzero(model.coef_), log_loss(model.decision_function(split.X_test), split.y_test))


def sklearn(split: Split, folder: Path, strength: float) -> Found:
    from sklearn.linear_model import SGDClassifier

    model = SGDClassifier(loss="log_loss", penalty="l1", alpha=strength, max_iter=EPOCHS, tol=None, random_state=0)
    model.fit(split.X, split.y)
    return Found(strength, np.count_nonzero(model.coef_), log_loss(model.decision_function(split.X_test), split.y_test))


def write_vw(path: Path, X, y) -> None:
    with open(path, "w") as file:
        for i, label in enumerate(y):
            part = slice(X.indptr[i], X.indptr[i + 1])
            words = " ".join(f"{j}:{x:.6g}" for j, x in zip(X.indices[part], X.data[part], strict=True))
            file.write(f"{2 * int(label) - 1} | {words}\n")


def vw(split: Split, folder: Path, strength: float, *extra: str) -> Found:
    if not (folder / "train").exists():
        order = np.random.default_rng(0).permutation(len(split.y))  # ours and scikit-learn's are shuffled as well
        write_vw(folder / "train", split.X[order], split.y[order])
        write_vw(folder / "test", split.X_test, split.y_test)
    command = [sys.executable, "-m", "vowpalwabbit", "--quiet"]
    options = [*extra, "-b", "18", "--loss_function", "logistic", "--l1", f"{strength:g}", "--passes", str(EPOCHS)]
    options += ["--cache_file", "cache", "--holdout_off", "-d", "train", "-f", "model", "--readable_model", "weights"]
    subprocess.run(command + options, check=True, cwd=folder)
    testing = ["--l1", f"{strength:g}", "-d", "test", "-i", "model", "-t", "-r", "scores"]
    subprocess.run(command + testing, check=True, cwd=folder)
    scores = np.array([float(line.split()[0]) for line in (folder / "scores").read_text().splitlines()])
    text = (folder / "weights").read_text()
    owed = [float(pull) for pull in re.findall(r"^l1_state (\S+)", text, re.MULTILINE)]  # not yet taken off the weights
    weights = np.array([float(weight) for weight in re.findall(r"^\d+:(\S+)", text, re.MULTILINE)])
    nonzeros = int((np.abs(weights) > max(owed, default=0.0)).sum())
    return Found(strength, nonzeros, log_loss(scores, split.y_test))


LEARNERS: dict[str, Callable[[Split, Path, float], Found]] = {
    "ours": ours,
    "vw": vw,
    "vw-ftrl": lambda split, folder, strength: vw(split, folder, strength, "--ftrl"),
    "sklearn": sklearn,
}


def show(found: dict[str, list[Found]]) -> None:
    print("fewest non-zeros with a test loss of at most")
    best = min(f.loss for line in found.values() for f in line)
    for share in ABOVE:
        cells = []
        for learner, line in found.items():
            fewest = min((f.nonzeros for f in line if f.loss <= best * (1 + share)), default=math.inf)
            cells.append(f"{learner} {fewest:,}" if math.isfinite(fewest) else f"{learner} -")
        print(f"  {best * (1 + share):.4f} (best + {share:.1%})  " + "   ".join(cells), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="+")
    parser.add_argument("--learners", nargs="+", default=list(LEARNERS), choices=LEARNERS)
    arguments = parser.parse_args()
    for name in arguments.sets:
        split = load(name)
        found: dict[str, list[Found]] = {}
        with tempfile.TemporaryDirectory() as folder:
            for learner in arguments.learners:
                found[learner] = []
                for strength in STRENGTHS:
                    found[learner].append(LEARNERS[learner](split, Path(folder), strength))
                    print(f"{learner:8} l1 {strength:.1e}  {found[learner][-1].nonzeros:8,} non-zeros  "
                          f"log loss {found[learner][-1].loss:.4f}", flush=True)  # fmt: skip
        show(found)


if __name__ == "__main__":
    main()
