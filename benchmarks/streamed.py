"""Batch solvers on a file far larger than the memory they take.

    python -m benchmarks.streamed [--megabytes 2900] [--limit 285] [--iterations 2] [--solvers lbfgs newton_cg]

Writes RCV1-shaped rows (76 of 47,236 features each, planted labels) as libsvm text to a temporary file, a block of
20,000 different rows again and again, and minimises log loss with alpha = 1e-4 in a process of its own for each solver.
The file is beyond what would be kept of it, so that every pass parses it anew. The process may not have more than
`--limit` MB of data (RLIMIT_DATA, which counts what is reserved, touched or not: to ask for more fails). Printed: the
peak of resident memory of the whole process, Python and all libraries included, beside the size of the file.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks import CACHE
from benchmarks.generate import load_rcv1

BLOCK_ROWS = 20_000
CHILD = """
import json, resource, sys, time
resource.setrlimit(resource.RLIMIT_DATA, (int(sys.argv[4]) << 20,) * 2)
import steepest as st
start = time.perf_counter()
options = dict(solver=sys.argv[2], max_iter=int(sys.argv[3]), alpha=1e-4, tol=1e-6, n_jobs=2)
model = st.LinearClassifier(**options).fit_stream(st.scan_libsvm(sys.argv[1]))
seconds = time.perf_counter() - start
peak = int(open("/proc/self/status").read().split("VmHWM:")[1].split()[0]) / 1024
records = list(model.history_)
last = {name: records[-1][name] for name in ("objective", "gradient")}
passes = sum(r["passes"] for r in records)
print(json.dumps({"seconds": seconds, "peak": peak, "passes": passes, "iterations": len(records), **last}))
"""


def write(path: Path, megabytes: int) -> float:
    """The size of the file in MB."""
    X, y = load_rcv1(BLOCK_ROWS)
    lines = []
    for i in range(BLOCK_ROWS):
        part = slice(X.indptr[i], X.indptr[i + 1])
        entries = " ".join(f"{j + 1}:{x:.6g}" for j, x in zip(X.indices[part], X.data[part], strict=True))
        lines.append(f"{int(y[i])} {entries}\n")
    block = "".join(lines).encode()
    with open(path, "wb") as file:
        for _ in range(-(-megabytes * 2**20 // len(block))):
            file.write(block)
    return path.stat().st_size / 2**20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=2900)
    parser.add_argument("--limit", type=int, default=285, help="MB of data that the process may have")
    parser.add_argument("--solvers", nargs="+", default=["lbfgs", "newton_cg"])
    parser.add_argument("--iterations", type=int, default=2)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=CACHE) as folder:
        path = Path(folder) / "rows.svm"
        size = write(path, arguments.megabytes)
        for solver in arguments.solvers:
            command = [sys.executable, "-c", CHILD, str(path), solver, str(arguments.iterations), str(arguments.limit)]
            found = json.loads(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout)
            print(
                f"{solver:10} file {size:,.0f} MB   limit {arguments.limit} MB   peak {found['peak']:.0f} MB "
                f"(file / peak {size / found['peak']:.1f})   "
                f"{found['iterations']} iterations, {found['passes']} passes, {found['seconds']:.1f} s   "
                f"objective {found['objective']:.6f}, gradient {found['gradient']:.1e} of its first length",
                flush=True,
            )


if __name__ == "__main__":
    main()
