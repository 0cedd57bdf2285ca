"""Mutated bytes, and executions in a process of their own, so that a crash or an endless loop is a finding."""

from __future__ import annotations

import contextlib
import os
import random
import resource
import signal
import time
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import steepest as st

SECONDS_EACH = 60  # of one input; a busy machine is no endless loop
MEMORY = 6 << 30  # of address space
SANITIZED = "san.so" in os.environ.get("LD_PRELOAD", "")
REFUSALS = (st.DataError, st.ParameterError, st.ModelFileError)
ENDINGS = (b"\n", b"\r\n", b"", b"\x00", b"\xff\xfe", b"\xef\xbb\xbf")


@dataclass(frozen=True)
class Target:
    """What reads bytes: the seeds to start from, pieces to insert, and one execution."""

    name: str
    seeds: tuple[bytes, ...]
    pieces: tuple[bytes, ...]
    run: Callable[[bytes, Path], None]


def mutated(target: Target, rng: random.Random) -> bytes:
    text = bytearray(rng.choice(target.seeds))
    for _ in range(rng.randrange(9)):
        place = rng.randrange(len(text) + 1)
        match rng.randrange(8):
            case 0:
                text[place:place] = rng.choice(target.pieces + ENDINGS)
            case 1:
                text[place:place] = bytes([rng.randrange(256)])
            case 2:
                del text[place : place + rng.randrange(1, 9)]
            case 3:
                del text[place:]
            case 4:
                other = rng.randrange(len(text) + 1)
                text[place:place] = text[other : other + rng.randrange(1, 40)]
            case 5 if place < len(text):
                text[place] ^= 1 << rng.randrange(8)
            case 6:
                text += rng.choice(target.seeds)
            case _ if place < len(text):
                text[place : place + 1] = rng.choice(target.pieces)
    return bytes(text)


def execute(target: Target, data: bytes, folder: Path) -> str:
    """One execution: "" if the input was used or refused in a sentence, or what does not hold."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            target.run(data, folder)
    except REFUSALS as refusal:
        if "\n" in str(refusal):
            return f"a refusal of several lines: {refusal}"
    except Exception:
        return traceback.format_exc()
    return ""


def _child(target: Target, seed: int, seconds: float, most: int, folder: Path, pipe: int) -> None:
    """Executes until the time is over; the input at work is in a file, for the parent to find after a crash."""
    if not SANITIZED:  # a sanitizer reserves terabytes, and has a limit of its own
        with contextlib.suppress(ValueError):
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    rng, began, done = random.Random(seed), time.monotonic(), 0
    while done < most and time.monotonic() - began < seconds:
        data = mutated(target, rng)
        (folder / "input").write_bytes(data)
        signal.alarm(SECONDS_EACH)
        fault = execute(target, data, folder)
        done += 1
        if fault:
            (folder / "fault").write_text(fault)
            break
    os.write(pipe, str(done).encode())


def drive(target: Target, seed: int, seconds: float, folder: Path, most: int = 1 << 60) -> tuple[int, list[Any]]:
    """(executions, findings as (what, input))"""
    total, findings, began = 0, [], time.monotonic()
    while time.monotonic() - began < seconds and total < most and len(findings) < 5:
        (folder / "fault").unlink(missing_ok=True)
        read, write = os.pipe()
        left = seconds - (time.monotonic() - began)
        child = os.fork()
        if not child:
            status = 1
            try:
                _child(target, seed, left, most - total, folder, write)
                status = 0
            finally:
                os._exit(status)
        os.close(write)
        with os.fdopen(read) as pipe:
            counted = pipe.read()
        _, status = os.waitpid(child, 0)
        total += int(counted or 1)
        seed += 1
        if status:
            findings.append(
                (f"ended by signal {status & 127} or status {status >> 8}", (folder / "input").read_bytes())
            )
        elif (folder / "fault").exists():
            findings.append(((folder / "fault").read_text(), (folder / "input").read_bytes()))
    return total, findings
