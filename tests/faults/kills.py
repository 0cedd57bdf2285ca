"""Kill matrix: runs that are killed at random moments, twice, also while they save and while they resume.

Every kind of estimator and solver trains in a process of its own with a checkpoint after every few rows. The process
is killed (SIGKILL) after a random share of the time that it takes, the next one resumes and is killed as well, and the
third one resumes to its end: the model file must hold the same bits as that of a run that nobody disturbed.
`python tests/faults/kills.py [ROUNDS]` (200 unless given) prints what does not hold.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import tempfile
import time
import traceback
import warnings
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

import steepest as st
from promises.estimators import CASES

KILLED = (
    "linear/asgd-two", "linear/sgd-l1-four", "linear/ftrl-l1-four", "linear/adagrad-two", "linear/coin-two",
    "linear/hashed-four", "linear/replicas-two", "linear/mixing-two", "linear/lbfgs", "linear/newton", "linear/gd",
    "linear/cg", "linear/saga", "linear/cd", "linear/numbers", "ranker/blocks", "fm/fields-four",
    "network/adam-four", "radial/backprop-RBFClassifier",
    "k-means/minibatch-blobs", "text/softmax", "factors/sgd", "factors/als",
)  # fmt: skip


def learn(case: str, folder: Path) -> None:
    """What the process under test does."""
    found = CASES[case]
    if found.data.kind == "texts":
        texts = folder / "texts.txt"
        if not texts.exists():  # once: a file that is written anew is other data, which a checkpoint refuses
            found.data.text_file(folder / "new.txt").rename(texts)
        source = st.scan_text(texts)
    else:
        source = found.data.source(100)
    model = found.make(max_iter=6).fit_stream(source, checkpoint=folder / "c", resume=True, checkpoint_every="1-rows")
    model.history_.records.clear()  # seconds differ
    model.save(folder / "m")


class Run:
    """A process of its own, forked from this one, so that kills do not fall into its imports."""

    def __init__(self, case: str, folder: Path) -> None:
        self.pid = os.fork()
        if self.pid == 0:
            status = 1
            try:
                learn(case, folder)
                status = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(status)

    def kill(self) -> bool:
        """Kills the process; whether it was still alive."""
        os.kill(self.pid, signal.SIGKILL)  # until it was waited for, its number is not given to another
        return os.WIFSIGNALED(os.waitpid(self.pid, 0)[1])

    def wait(self) -> int:
        """The exit status."""
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def undisturbed(case: str, folder: Path) -> tuple[bytes, float]:
    """The bytes of the model, and the seconds that learning took, once all modules were imported here."""
    learn(case, folder)
    expected = (folder / "m").read_bytes()
    began = time.monotonic()
    assert Run(case, folder).wait() == 0
    seconds = time.monotonic() - began
    assert (folder / "m").read_bytes() == expected
    return expected, seconds


def killed_twice(case: str, folder: Path, seconds: float, rng: random.Random) -> tuple[bytes, int]:
    """The bytes of the model after two kills, and how many of them met a living process."""
    met = 0
    for _ in range(2):
        run = Run(case, folder)
        time.sleep(rng.random() * seconds)
        met += run.kill()
    assert Run(case, folder).wait() == 0
    return (folder / "m").read_bytes(), met


def rounds(n: int, seed: int = 0) -> tuple[int, int, list[str]]:
    """(rounds, kills that met a living process, what does not hold)"""
    warnings.simplefilter("ignore")
    rng, met, faults = random.Random(seed), 0, []
    expected: dict[str, tuple[bytes, float]] = {}
    cases = [KILLED[number % len(KILLED)] for number in range(n)]
    for number, case in enumerate(cases):
        if number and number % 20 == 0:
            print(f"{number} rounds, {met} kills of running processes, {len(faults)} that do not hold", flush=True)
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
                print(faults[-1], flush=True)
            if left := [path.name for path in (place / "killed").rglob("*.part")]:
                faults.append(f"{case}: left {left}")
    return n, met, faults


if __name__ == "__main__":
    total, alive, wrong = rounds(int(sys.argv[1]) if len(sys.argv) > 1 else 200)
    print(*wrong, sep="\n")
    print(f"{total} rounds, {alive} kills of running processes, {len(wrong)} that do not hold")
    sys.exit(1 if wrong else 0)
