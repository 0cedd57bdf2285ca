"""Learning in parallel against serial: seconds and objective of replicas, hogwild and mixing on RCV1-shaped rows.

Runs alternate in direction, and the best of each is taken, in one process. Run as
`python -m benchmarks.parallel [--rows N] [--jobs ceiling text threads large shards]`. `ceiling` is what two threads can
gain at most: two serial learners that share nothing but the machine, against one alone. `text` streams libsvm text.
"""

from __future__ import annotations

import argparse
import os
import threading
import time
from typing import Any

import numpy as np
import scipy.sparse as sp

import steepest as st
from benchmarks import text_path
from benchmarks.generate import load_large, load_rcv1

ROUNDS = 5
THREADS = {
    "serial": {},
    "replicas, 1 thread": {"parallel": "replicas"},
    "replicas, 2 threads": {"parallel": "replicas", "n_jobs": 2},
    "4 replicas, 2 threads": {"parallel": st.Replicas(4), "n_jobs": 2},
    "hogwild, 2 threads": {"parallel": "hogwild", "n_jobs": 2},
}
LARGE = {name: THREADS[name] for name in ("serial", "replicas, 2 threads", "hogwild, 2 threads")}
SHARDS = {
    "serial, 4 epochs": {"epochs": 4},
    "one-shot": {"parallel": st.Mixing(16, rounds=1), "n_jobs": 2, "epochs": 4},
    "one-shot, uniform": {"parallel": st.Mixing(16, rounds=1, weights="uniform"), "n_jobs": 2, "epochs": 4},
    "vote": {"parallel": st.Mixing(16, rounds=1, vote=True), "n_jobs": 2, "epochs": 4},
    "8 rounds": {"parallel": st.Mixing(16), "n_jobs": 2, "epochs": 8},
    "8 rounds, uniform": {"parallel": st.Mixing(16, weights="uniform"), "n_jobs": 2, "epochs": 8},
    "8 rounds, topk": {"parallel": st.Mixing(16, send="topk"), "n_jobs": 2, "epochs": 8},
    "8 rounds, float16": {"parallel": st.Mixing(16, send="float16"), "n_jobs": 2, "epochs": 8},
    "32 rounds": {"parallel": st.Mixing(16, rounds=32), "n_jobs": 2, "epochs": 8},
    "32 rounds, uniform": {"parallel": st.Mixing(16, rounds=32, weights="uniform"), "n_jobs": 2, "epochs": 8},
}


def learning_seconds(model: Any) -> float:
    """Seconds of the epochs themselves, but for the first, which also finds the step size."""
    return float(sum(model.history_.column("seconds")[1:]))


def compare(title: str, X: sp.csr_matrix, y: np.ndarray, ways: dict[str, dict[str, Any]], loss: str, n: int) -> None:
    """One table: the best seconds of n interleaved runs, their ratio to the first way, and the objective."""
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    found: dict[str, Any] = {}
    for number in range(n):
        for name in list(ways) if number % 2 else list(ways)[::-1]:
            options = {"epochs": 3, **ways[name]}
            start = time.perf_counter()
            found[name] = st.LinearClassifier(loss, random_state=0, **options).fit(X, y)
            elapsed = time.perf_counter() - start
            seconds[name].append(learning_seconds(found[name]) if n > 1 else elapsed)
    first = next(iter(ways))
    print(f"{title}, {loss}")
    base = found[first].objective(X, y)
    for name, model in found.items():
        objective, sent = model.objective(X, y), sum(b or 0 for b in model.history_.column("bytes_up"))
        print(
            f"  {name:24} {min(seconds[name]):7.3f} s {min(seconds[first]) / min(seconds[name]):5.2f}x  "
            f"objective {objective:.5f} ({100 * (objective / base - 1):+.2f} %)  accuracy {model.score(X, y):.4f}"
            + (f"  {sent / 1e6:.0f} MB sent" if sent else ""),
            flush=True,
        )


def ceiling(X: sp.csr_matrix, y: np.ndarray, loss: str) -> None:
    """Rows a second of two independent serial learners at once, against one."""

    def learn(found: list[float]) -> None:
        found.append(learning_seconds(st.LinearClassifier(loss, random_state=0, epochs=6).fit(X, y)))

    alone: list[float] = []
    together: list[float] = []
    for _ in range(ROUNDS):
        learn(alone)
        found: list[float] = []
        threads = [threading.Thread(target=learn, args=(found,)) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        together.append(max(found))
    print(f"two learners that share nothing, {loss}: {2 * min(alone) / min(together):.2f}x", flush=True)


def text(n_rows: int, loss: str) -> None:
    """One epoch from libsvm text, parsed and learned by threads of their own, on one core and on two."""
    path, cores = text_path(n_rows, "svm"), sorted(os.sched_getaffinity(0))
    seconds: dict[int, list[float]] = {1: [], 2: []}
    for number in range(ROUNDS):
        for n in (1, 2) if number % 2 else (2, 1):
            os.sched_setaffinity(0, cores[:n])
            start = time.perf_counter()
            st.LinearClassifier(loss, random_state=0, epochs=1, n_jobs=n).fit_stream(st.scan(str(path)))
            seconds[n].append(time.perf_counter() - start)
    os.sched_setaffinity(0, cores)
    best = {n: min(found) for n, found in seconds.items()}
    print(f"text, {loss}: {best[1]:.2f} s on one core, {best[2]:.2f} s on two: {best[1] / best[2]:.2f}x", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--jobs", nargs="*", default=["threads", "large", "shards"])
    parser.add_argument("--losses", nargs="*", default=["log", "hinge"])
    arguments = parser.parse_args()
    for loss in arguments.losses:
        if "ceiling" in arguments.jobs:
            ceiling(*load_rcv1(arguments.rows), loss)
        if "text" in arguments.jobs:
            text(arguments.rows, loss)
        if "threads" in arguments.jobs:
            compare("2^15.5 weights", *load_rcv1(arguments.rows), THREADS, loss, ROUNDS)
        if "large" in arguments.jobs:
            for bits in (22, 24):
                compare(f"2^{bits} weights", *load_large(bits, arguments.rows), LARGE, loss, 3)
        if "shards" in arguments.jobs:
            compare("16 shards", *load_rcv1(arguments.rows), SHARDS, loss, 1)


if __name__ == "__main__":
    main()
