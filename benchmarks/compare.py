"""The harness: named runners side by side, each measurement in a fresh process, printed as one table with ratios.

A runner is a function from the settings to a dict with at least "seconds". The first runner of a job is ours, and the
ratio of another is its seconds over ours. Rounds alternate in direction (A B C, C B A, ...), so that a drift of the
machine hits all alike; medians are reported. This process imports nothing heavy: on Linux the peak memory of a child
counts what its parent held when it was started. BLAS and OpenMP are held to one thread.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import ROOT

Result = dict[str, Any]
MARK = "@@result "
TIMEOUT_SECONDS = 600.0
ONE_THREAD = {f"{name}_NUM_THREADS": "1" for name in ("OMP", "OPENBLAS", "MKL", "NUMEXPR", "VECLIB")}


def environment() -> dict[str, str]:
    """For the processes that are measured: one thread in libraries, and compiled modules kept, as installations do."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"} | ONE_THREAD


@dataclass(frozen=True)
class Settings:
    """Sizes shared by all runners."""

    rows: int
    text_rows: int
    large_rows: int
    launches: int


class Target(NamedTuple):
    """What we want of a job: a number computed from its results, and a bound ("at least" or "at most")."""

    text: str
    measure: Callable[[dict[str, Result]], float]
    side: str
    bound: float

    def verdict(self, results: dict[str, Result]) -> str:
        wanted = f"({self.side} {self.bound:g} wanted)"
        try:
            value = self.measure(results)
        except KeyError:
            return f"{self.text}: not measured {wanted}"
        met = value >= self.bound if self.side == "at least" else value <= self.bound
        return f"{self.text}: {value:.3g} {wanted} {'met' if met else 'MISSED'}"


class Job(NamedTuple):
    """Runners that do the same work, ours first."""

    runners: dict[str, Callable[[Settings], Result]]
    targets: Sequence[Target] = ()
    once: bool = False  # for results that do not depend on the clock


class Ended(NamedTuple):
    """A process that has come to its end; the peak is its own, or that of its largest child."""

    code: int
    output: str
    seconds: float
    cpu_seconds: float
    peak_mb: float


def run_process(command: Sequence[Any]) -> Ended:
    """Runs a command to its end."""
    os.sync()  # or this process might have to wait until what the one before has written is on the disk
    with tempfile.TemporaryFile() as output:
        start = time.perf_counter()
        process = subprocess.Popen(
            [*map(str, command)], stdout=output, stderr=subprocess.STDOUT, cwd=ROOT, env=environment()
        )
        watchdog = threading.Timer(TIMEOUT_SECONDS, process.kill)
        watchdog.start()
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - start
        watchdog.cancel()
        process.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        text = output.read().decode(errors="replace")
    unit = 2**20 if sys.platform == "darwin" else 2**10  # ru_maxrss is in bytes there, in kilobytes elsewhere
    cpu_seconds = usage.ru_utime + usage.ru_stime
    return Ended(process.returncode, text, seconds, cpu_seconds, usage.ru_maxrss / unit)


def run_python(*arguments: Any) -> Ended:
    """Runs this interpreter, which must succeed; a module that is missing is told from one that fails."""
    ended = run_process([sys.executable, *arguments])
    if missing := re.search(r"No module named '?([\w.]+)", ended.output) if ended.code else None:
        raise ModuleNotFoundError(missing[0], name=missing[1])
    if ended.code != 0:
        raise RuntimeError(f"python {arguments[0]} {arguments[1]} failed: {' '.join(ended.output.split())[-200:]}")
    return ended


def measure_here(job: Job, runner: str, settings: Settings) -> None:
    """In the child: runs one runner and prints its result for the parent."""
    try:
        result = job.runners[runner](settings)
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] in ("steepest", "benchmarks"):
            raise
        result = {"trouble": "not installed"}
    print(MARK + json.dumps(result))


def measure_in_child(module: str, job: str, runner: str, settings: Settings) -> Result:
    """In the parent: one measurement in a fresh process."""
    ended = run_process([sys.executable, "-m", module, "--one", job, runner, json.dumps(asdict(settings))])
    lines = ended.output.strip().splitlines() or ["no output"]
    if ended.code != 0 or not lines[-1].startswith(MARK):
        return {"trouble": f"failed: {lines[-1][:110]}"}
    return {"peak_mb": ended.peak_mb, **json.loads(lines[-1].removeprefix(MARK))}


def median_of(rounds: list[Result]) -> Result:
    """The median of each number over the rounds, or the trouble in which they ended."""
    if "trouble" in rounds[-1]:
        return rounds[-1]
    return {key: statistics.median(result[key] for result in rounds) for key in rounds[0]}


def measure_job(module: str, name: str, job: Job, settings: Settings, repeat: int) -> dict[str, Result]:
    """All rounds of a job; a runner in trouble is not tried again."""
    rounds: dict[str, list[Result]] = {runner: [] for runner in job.runners}
    for number in range(1 if job.once else repeat):
        for runner in list(rounds)[:: -1 if number % 2 else 1]:
            if not rounds[runner] or "trouble" not in rounds[runner][-1]:
                rounds[runner].append(measure_in_child(module, name, runner, settings))
    return {runner: median_of(results) for runner, results in rounds.items()}


def table_lines(name: str, results: dict[str, Result]) -> list[str]:
    """A line for each runner: seconds, ratio to ours, peak memory, and whatever else it reports."""
    ours = next(iter(results.values())).get("seconds")
    lines = []
    for runner, result in results.items():
        line = f"{name:15}{runner:33}"
        if "trouble" in result:
            lines.append(line + result["trouble"])
            continue
        ratio = f"{result['seconds'] / ours:.2f}x" if ours else "-"
        more = [f"{value:.4g} {key}" for key, value in result.items() if key not in ("seconds", "peak_mb")]
        lines.append(f"{line}{result['seconds']:9.4f}{ratio:>9}{result['peak_mb']:9.0f}  {', '.join(more)}")
    return lines


def main(module: str, jobs: dict[str, Job], prepare: Callable[[Settings, list[str]], None], **sizes: Settings) -> int:
    """The command line of a module of jobs; sizes are `full` and `quick`."""
    parser = argparse.ArgumentParser(prog=f"python -m {module}", description=sys.modules["__main__"].__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("jobs", nargs="*", metavar="JOB", help=f"some of {', '.join(jobs)} (default: all)")
    parser.add_argument("--all", action="store_true", help="all jobs")
    parser.add_argument("--quick", action="store_true", help="small data, one round: does everything work?")
    parser.add_argument("--rows", type=int, help="rows in memory and in the file to stream")
    parser.add_argument("--repeat", type=int, default=3, help="rounds (default 3)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the medians here as well")
    parser.add_argument("--one", nargs=3, metavar=("JOB", "RUNNER", "SETTINGS"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        job, runner, settings = arguments.one
        measure_here(jobs[job], runner, Settings(**json.loads(settings)))
        return 0
    if unknown := set(arguments.jobs) - set(jobs):
        parser.error(f"no job is called {', '.join(sorted(unknown))}; there are {', '.join(jobs)}")
    chosen = list(jobs) if arguments.all or not arguments.jobs else arguments.jobs
    settings = sizes["quick" if arguments.quick else "full"]
    settings = replace(settings, rows=arguments.rows or settings.rows)
    prepare(settings, chosen)
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; {settings}")
    print(f"{'job':15}{'runner':33}{'seconds':>9}{'to ours':>9}{'peak MB':>9}", flush=True)
    results, verdicts = {}, []
    for name in chosen:
        results[name] = measure_job(module, name, jobs[name], settings, 1 if arguments.quick else arguments.repeat)
        print("\n".join(table_lines(name, results[name])), flush=True)
        verdicts += [f"{name:15}{target.verdict(results[name])}" for target in jobs[name].targets]
    if not arguments.quick:  # the targets are about the full sizes
        print("\n".join(["", *verdicts]))
    if arguments.json:
        arguments.json.write_text(json.dumps({"settings": asdict(settings), "results": results}, indent=1) + "\n")
    return 0
