"""Kill matrix: runs that are killed at random moments, twice, also while they save and while they resume.

Every kind of estimator and solver trains in a process of its own with a checkpoint after every few rows. The process
is killed (SIGKILL) after a random share of the time that it takes, the next one resumes and is killed as well, and the
third one resumes to its end: the model file must hold the same bits as that of a run that nobody disturbed.
`python tests/faults/kills.py [ROUNDS]` (200 unless given) prints what does not hold.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

TESTS = Path(__file__).parents[1]
CASES = (
    "linear/asgd-two", "linear/sgd-l1-four", "linear/ftrl-l1-four", "linear/adagrad-two", "linear/coin-two",
    "linear/hashed-four", "linear/replicas-two", "linear/mixing-two", "linear/lbfgs", "linear/newton", "linear/gd",
    "linear/cg", "linear/saga", "linear/cd", "linear/numbers", "ranker/blocks", "fm/fields-four",
    "network/adam-four", "radial/backprop-RBFClassifier",
    "k-means/minibatch-blobs", "text/softmax", "factors/sgd", "factors/als",
)  # fmt: skip
# The process under test: it says when learning starts, so that kills do not fall into its imports.
PROGRAM = """
import sys, warnings
warnings.simplefilter("ignore")
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from promises.estimators import CASES
case, folder = CASES[sys.argv[2]], Path(sys.argv[3])
if case.data.kind == "texts":
    import steepest as st
    source = st.scan_text(case.data.text_file(folder / "texts.txt"))
else:
    source = case.data.source(100)
print("ready", flush=True)
model = case.make(max_iter=6).fit_stream(
    source, checkpoint=folder / "c", resume=True, checkpoint_every="1-rows")
model.history_.records.clear()  # seconds differ
model.save(folder / "m")
"""


def start(case: str, folder: Path) -> subprocess.Popen[str]:
    """A run, once it has begun to learn."""
    command = [sys.executable, "-c", PROGRAM, str(TESTS), case, str(folder)]
    run = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert run.stdout is not None
    run.stdout.readline()
    return run


def undisturbed(case: str, folder: Path) -> tuple[bytes, float]:
    """The bytes of the model, and the seconds that learning took."""
    run = start(case, folder)
    began = time.monotonic()
    assert run.wait() == 0
    return (folder / "m").read_bytes(), time.monotonic() - began


def killed_twice(case: str, folder: Path, seconds: float, rng: random.Random) -> tuple[bytes, int]:
    """The bytes of the model after two kills, and how many of them met a living process."""
    met = 0
    for _ in range(2):
        run = start(case, folder)
        time.sleep(rng.random() * seconds)
        met += run.poll() is None
        with contextlib.suppress(ProcessLookupError):  # it may just have ended
            os.kill(run.pid, signal.SIGKILL)
        run.wait()
    assert start(case, folder).wait() == 0
    return (folder / "m").read_bytes(), met


def rounds(n: int, seed: int = 0) -> tuple[int, int, list[str]]:
    """(rounds, kills that met a living process, what does not hold)"""
    rng, met, faults = random.Random(seed), 0, []
    expected: dict[str, tuple[bytes, float]] = {}
    cases = [CASES[number % len(CASES)] for number in range(n)]
    for case in cases:
        with tempfile.TemporaryDirectory() as folder:
            place = Path(folder)
            if case not in expected:
                (place / "whole").mkdir()
                expected[case] = undisturbed(case, place / "whole")
            (place / "killed").mkdir()
            found, kills = killed_twice(case, place / "killed", expected[case][1], rng)
            met += kills
            if found != expected[case][0]:
                faults.append(f"{case}: other bits")
            if left := [path.name for path in (place / "killed").rglob("*.part")]:
                faults.append(f"{case}: left {left}")
    return n, met, faults


if __name__ == "__main__":
    total, alive, wrong = rounds(int(sys.argv[1]) if len(sys.argv) > 1 else 200)
    print(*wrong, sep="\n")
    print(f"{total} rounds, {alive} kills of running processes, {len(wrong)} that do not hold")
    sys.exit(1 if wrong else 0)
