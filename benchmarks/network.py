"""Networks beside scikit-learn and PyTorch: one hidden layer on MNIST, and on hashed text, two threads each.

mnist   784 x 128 relu x 10, Adam, batches of 128, ten epochs: seconds of the whole fit and the test error
hashed  2^20 x 32 tanh x classes over the packages of Debian, batches of 32, SGD: seconds of one epoch; PyTorch has an
        EmbeddingBag(sparse=True) as first layer, the same rows and batches, and no shuffling to pay for

Run `python -m benchmarks.network [mnist|hashed] [--rounds 3]` with STEEPEST_DATA naming the folder of the data sets.
Peers take turns in one run, and only the ratios of one run mean anything.
"""

from __future__ import annotations

import argparse
import gzip
import json
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

from benchmarks import DATA

THREADS = 2
EPOCHS = 10
BATCH, TEXT_BATCH = 128, 32
BITS, UNITS = 20, 32

Result = tuple[float, float]  # seconds, test error in percent


def read_idx(name: str, skipped: int) -> Any:
    import numpy as np

    with gzip.open(DATA / "mnist" / name) as file:
        return np.frombuffer(file.read(), np.uint8, offset=skipped)


def load_mnist() -> tuple[Any, Any, Any, Any]:
    import numpy as np

    parts = []
    for part in ("train", "t10k"):
        parts.append(read_idx(f"{part}-images-idx3-ubyte.gz", 16).reshape(-1, 784) / np.float32(255))
        parts.append(read_idx(f"{part}-labels-idx1-ubyte.gz", 8).astype(np.int64))
    return tuple(parts)  # type: ignore[return-value]


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    started = time.perf_counter()
    result = work()
    return time.perf_counter() - started, result


def mnist_steepest(data: tuple[Any, ...]) -> Result:
    import steepest as st

    X, y, new, truth = data
    model = st.NetworkClassifier((128,), link="relu", epochs=EPOCHS, batch_size=BATCH, n_jobs=THREADS, random_state=0)
    seconds, _ = timed(lambda: model.fit(X, y))
    return seconds, 100 * (1 - model.score(new, truth))


def mnist_sklearn(data: tuple[Any, ...]) -> Result:
    import warnings

    from sklearn.neural_network import MLPClassifier

    warnings.simplefilter("ignore")
    X, y, new, truth = data
    model = MLPClassifier((128,), max_iter=EPOCHS, batch_size=BATCH, tol=0.0, random_state=0)
    seconds, _ = timed(lambda: model.fit(X, y))
    return seconds, 100 * (1 - model.score(new, truth))


def mnist_torch(data: tuple[Any, ...]) -> Result:
    import torch

    torch.set_num_threads(THREADS)
    torch.manual_seed(0)
    X, y, new, truth = (torch.from_numpy(part) for part in data)
    model = torch.nn.Sequential(torch.nn.Linear(784, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.003)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.05, EPOCHS)

    def fit() -> None:
        for _ in range(EPOCHS):
            order = torch.randperm(len(X))
            for start in range(0, len(X), BATCH):
                rows = order[start : start + BATCH]
                optimizer.zero_grad()
                torch.nn.functional.cross_entropy(model(X[rows]), y[rows]).backward()
                optimizer.step()
            schedule.step()

    seconds, _ = timed(fit)
    return seconds, 100 * float((model(new).argmax(1) != truth).float().mean())


def load_packages() -> tuple[Any, ...]:
    """(rows, class numbers, test rows, their class numbers, number of classes), hashed by our own hasher."""
    import numpy as np

    import steepest as st

    hasher, parts = st.Hasher(n_bits=BITS, ngrams=(1, 2)), []
    labels: dict[str, int] = {}
    for part in ("train", "test"):
        with gzip.open(DATA / "debian-packages" / f"debian-packages-{part}.jsonl.gz", "rt") as file:
            rows = [json.loads(line) for line in file]
        texts = [f"{row['short']} {row['text']}" for row in rows]
        y = [labels.setdefault(row["section"], len(labels)) for row in rows]
        parts += [hasher.fit_transform(texts).tocsr(), np.array(y)]
    return (*parts, len(labels))


def hashed_steepest(data: tuple[Any, ...]) -> Result:
    import steepest as st

    X, y, new, truth, _ = data
    options: dict[str, Any] = dict(solver="sgd", eta0=1.0, schedule="constant", batch_size=TEXT_BATCH, alpha=0.0)
    options |= dict(epochs=2, shuffle="never", n_jobs=THREADS, random_state=0)
    model = st.NetworkClassifier((UNITS,), **options).fit(X, y)
    return model.history_[1]["seconds"], 100 * (1 - model.score(new, truth))


def hashed_torch(data: tuple[Any, ...]) -> Result:
    import torch

    torch.set_num_threads(THREADS)
    torch.manual_seed(0)
    X, y, new, truth, n_classes = data
    first = torch.nn.EmbeddingBag(1 << BITS, UNITS, mode="sum", sparse=True)
    torch.nn.init.uniform_(first.weight, -0.4, 0.4)
    biases = torch.nn.Parameter(torch.zeros(UNITS))
    rest = torch.nn.Sequential(torch.nn.Tanh(), torch.nn.Linear(UNITS, n_classes))
    optimizer = torch.optim.SGD([*first.parameters(), biases, *rest.parameters()], lr=1.0)
    targets = torch.from_numpy(y)

    def scores(matrix: Any, start: int, stop: int) -> Any:
        span = slice(matrix.indptr[start], matrix.indptr[stop])
        indices, values = torch.from_numpy(matrix.indices[span].astype("int64")), torch.from_numpy(matrix.data[span])
        offsets = torch.from_numpy((matrix.indptr[start:stop] - matrix.indptr[start]).astype("int64"))
        return rest(biases + first(indices, offsets, per_sample_weights=values))

    def epoch() -> None:
        for start in range(0, len(y), TEXT_BATCH):
            stop = min(start + TEXT_BATCH, len(y))
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(scores(X, start, stop), targets[start:stop]).backward()
            optimizer.step()

    epoch()
    seconds, _ = timed(epoch)
    with torch.no_grad():
        wrong = scores(new, 0, new.shape[0]).argmax(1).numpy() != truth
    return seconds, 100 * float(wrong.mean())


JOBS: dict[str, tuple[Callable[[], tuple[Any, ...]], dict[str, Callable[[tuple[Any, ...]], Result]]]] = {
    "mnist": (load_mnist, {"steepest": mnist_steepest, "sklearn": mnist_sklearn, "torch": mnist_torch}),
    "hashed": (load_packages, {"steepest": hashed_steepest, "torch": hashed_torch}),
}


def run(name: str, rounds: int) -> list[str]:
    """The table of one job: medians of interleaved rounds."""
    load, runners = JOBS[name]
    data = load()
    found: dict[str, list[Result]] = {runner: [] for runner in runners}
    for number in range(rounds):
        for runner in list(runners)[:: 1 if number % 2 == 0 else -1]:
            try:
                found[runner].append(runners[runner](data))
            except ImportError as error:
                print(f"{runner} is not installed ({error})", file=sys.stderr)
    ours = statistics.median(seconds for seconds, _ in found["steepest"])
    lines = [f"{name:<10}{'seconds':>10}{'ratio':>8}{'error %':>10}"]
    for runner, results in found.items():
        if results:
            seconds, error = (statistics.median(column) for column in zip(*results, strict=True))
            lines.append(f"{runner:<10}{seconds:>10.2f}{seconds / ours:>8.2f}{error:>10.2f}")
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("jobs", nargs="*", default=list(JOBS), choices=[*JOBS, []])
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    for name in options.jobs:
        print("\n".join(run(name, options.rounds)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
