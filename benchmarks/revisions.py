"""Two builds of steepest side by side: is a job slower after a change than before it?

    python -m benchmarks.revisions BEFORE/.venv/bin/python AFTER/.venv/bin/python --rounds 7

Each argument is an interpreter with one build installed. The jobs name every choice (solver, alpha, eta0), so that new
defaults do not count, and use only calls that both builds have. One process per measurement, the two builds in turns
with the order reversed every round; seconds are processor time of all threads, and a ratio is the median over rounds of
after / before in the same round.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
from pathlib import Path

from benchmarks import DATA, ROOT

PREPARE = """
import sys, time
import numpy as np
from benchmarks.generate import load_rcv1
import steepest as st

def seconds(work, times=3):
    work()
    found = []
    for _ in range(times):
        start = time.process_time()
        work()
        found.append(time.process_time() - start)
    return sorted(found)[times // 2]
"""
LINEAR = PREPARE + "X, y = load_rcv1(200_000)\nX = X.astype('float32')\n"
FACTORS = (
    PREPARE
    + """
rng = np.random.default_rng(0)
pairs = np.column_stack([rng.integers(0, 20_000, 500_000), rng.integers(0, 5_000, 500_000)])
ratings = rng.integers(1, 6, 500_000).astype('float64')
def factors(**choices):
    return st.MatrixFactorization(32, epochs=2, random_state=0, **choices).fit(pairs, ratings)
"""
)
TEXT = (
    PREPARE
    + """
import gzip, json
rows = [json.loads(line) for line in gzip.open(sys.argv[1] + '/imdb/imdb-train.jsonl.gz')][:8000]
texts, labels = [r['text'] for r in rows], [r['label'] for r in rows]
"""
)
LINEAR_FIT = "st.LinearClassifier({!r}, alpha=1e-4, eta0=0.1, solver={!r}, epochs=3, random_state=0).fit(X, y)"
JOBS = {
    "linear hinge sgd": LINEAR + f"print(seconds(lambda: {LINEAR_FIT.format('hinge', 'sgd')}))",
    "linear log sgd": LINEAR + f"print(seconds(lambda: {LINEAR_FIT.format('log', 'sgd')}))",
    "linear log asgd": LINEAR + f"print(seconds(lambda: {LINEAR_FIT.format('log', 'asgd')}))",
    "linear log adagrad": LINEAR + f"print(seconds(lambda: {LINEAR_FIT.format('log', 'adagrad')}))",
    "linear predict": LINEAR
    + "m = st.LinearClassifier('hinge', alpha=1e-4, eta0=0.1, solver='sgd', epochs=1).fit(X, y)\n"
    + "print(seconds(lambda: m.predict(X)))",
    "text hashing": TEXT + "print(seconds(lambda: st.Hasher(n_bits=20, ngrams=(1, 2)).transform(texts)))",
    "text fit": TEXT
    + "print(seconds(lambda: st.LinearClassifier('log', alpha=1e-6, eta0=1.0, solver='asgd', epochs=5, random_state=0,"
    + " hasher=st.Hasher(n_bits=20)).fit(texts, labels)))",
    "text embedding": TEXT
    + "print(seconds(lambda: st.TextClassifier(16, epochs=3, eta0=0.2, random_state=0).fit(texts, labels), 1))",
    "factors sgd": FACTORS + "print(seconds(lambda: factors(solver='sgd')))",
    "factors als": FACTORS + "print(seconds(lambda: factors(solver='als'), 1))",
}


def run(python: str, job: str) -> float:
    """Processor seconds of one job in a new process."""
    one_thread = {f"{name}_NUM_THREADS": "1" for name in ("OMP", "OPENBLAS", "MKL")}
    env = {**os.environ, **one_thread, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([python, "-c", JOBS[job], str(DATA)], env=env, cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{job} failed under {python}: {done.stderr.strip().splitlines()[-1]}")
    return float(done.stdout.split()[-1])


def main() -> None:
    """Prints one line per job: medians of both builds and of their ratio."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("before", type=Path, help="interpreter with the build before the change")
    parser.add_argument("after", type=Path, help="interpreter with the build after it")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--jobs", nargs="*", choices=list(JOBS), default=list(JOBS))
    options = parser.parse_args()
    print(f"{'job':<20} {'before s':>9} {'after s':>9} {'after / before':>15}")
    for job in options.jobs:
        found: dict[str, list[float]] = {"before": [], "after": []}
        for turn in range(options.rounds):
            for side in ("before", "after") if turn % 2 == 0 else ("after", "before"):
                found[side].append(run(str(getattr(options, side)), job))
        ratio = statistics.median(a / b for a, b in zip(found["after"], found["before"], strict=True))
        before, after = (statistics.median(found[side]) for side in ("before", "after"))
        print(f"{job:<20} {before:>9.3f} {after:>9.3f} {ratio:>15.3f}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
