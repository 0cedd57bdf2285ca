"""Fuzz target: random arrays, shapes, types and numbers into every function and class of the native module.

Signatures are read from the module, so that a new function is tried without a line here. Each call must return or raise
a Python error. The bytes of an input are the seed of the calls that it makes.
"""

from __future__ import annotations

import random
import re
from pathlib import Path
from typing import Any

import numpy as np

from fuzz.mutation import SANITIZED, Target
from steepest import _native

LENGTHS = (0, 1, 2, 3, 7, 8, 9, 64, 65, 257)
INTEGERS = (0, 1, 2, 3, 7, 8, 64, -1, -2, 255, 2**31 - 1, 2**31, -(2**31), 2**63 - 1, -(2**63), 2**64 - 1)
if SANITIZED:  # which ends the process where an allocation of gigabytes fails, while new raises MemoryError
    INTEGERS = (0, 1, 2, 3, 7, 8, 64, -1, -2, 255, -(2**31), -(2**63))
FLOATS = (0.0, 1.0, 0.5, -1.0, 1e-300, 1e300, float("nan"), float("inf"), -float("inf"))
EXPECTED = (ValueError, TypeError, IndexError, OverflowError, RuntimeError, MemoryError, KeyError, BufferError)


def _split(text: str) -> list[str]:
    """The parts between commas that are in no bracket or quotes."""
    parts, depth, start = [], 0, 0
    for place, letter in enumerate(text):
        depth += letter in "[(" or -(letter in "])")
        if letter == "," and depth == 0:
            parts.append(text[start:place].strip())
            start = place + 1
    return [part for part in (*parts, text[start:].strip()) if part]


def signatures(function: Any) -> list[list[tuple[str, str, bool]]]:
    """For each overload its parameters as (name, type, keyword only)."""
    found = []
    for text, *_ in getattr(function, "__nb_signature__", ()):
        inner = text[text.index("(") + 1 : text.rindex(") ->")]
        parameters, keyword = [], False
        for part in _split(inner):
            if part in ("*", "/", "self"):
                keyword = keyword or part == "*"
                continue
            name, _, kind = part.partition(": ")
            parameters.append((name, re.sub(r" = \\\d+$", "", kind), keyword))
        found.append(parameters)
    return found


class Maker:
    """Arguments by the name of their type, mostly such that some checks pass."""

    def __init__(self, rng: random.Random) -> None:
        self.rng, self.n = rng, rng.choice(LENGTHS)
        self.numbers = np.random.default_rng(rng.getrandbits(64))

    def make(self, kind: str, depth: int = 0) -> Any:
        rng = self.rng
        if rng.random() < 0.02:
            return rng.choice((None, "x", -1, 2.5, b"bytes", [], {}, np.zeros(3, object), np.ma.masked_array([1, 2])))
        options = _union(kind)
        if len(options) > 1:
            kind = rng.choice(options)
        if kind.startswith("ndarray"):
            return self.array(kind)
        if kind.startswith("tuple["):
            return tuple(self.make(part, depth) for part in _split(kind[6:-1]))
        if kind.startswith("steepest._native."):
            return self.instance(kind.rpartition(".")[2], depth)
        if kind.startswith(("collections.abc.Sequence", "list")):
            inner = kind[kind.index("[") + 1 : -1] if "[" in kind else "object"
            return [self.make(inner, depth) for _ in range(rng.choice((0, 1, 2, 3)))]
        plain = {
            "int": lambda: rng.choice((self.n, rng.randrange(12), rng.choice(INTEGERS))),
            "float": lambda: rng.choice((rng.random(), rng.choice(FLOATS))),
            "bool": lambda: rng.random() < 0.5,
            "str": lambda: rng.choice(("", "a", "free cash", "\ud800", "é漢" * 40)),
            "bytes": lambda: rng.choice((b"", b"1 1:1\n", b"1 |a b\n", b"\xff\xfe")),
            "None": lambda: None,
        }
        return plain.get(kind, lambda: rng.choice((b"1 1:1\n", "a", ["a", None], self.n, np.arange(self.n))))()

    def array(self, kind: str) -> np.ndarray:
        rng = self.rng
        typed = re.search(r"dtype=(\w+)", kind)
        dtype = (
            np.dtype(typed.group(1))
            if typed
            else np.dtype(rng.choice(("u1", "u2", "u4", "u8", "f4", "f8", "i4", "i8")))
        )
        if rng.random() < 0.03:
            dtype = np.dtype(rng.choice(("f2", "f4", "f8", "i4", "i8", "u1", ">f8", "?", "c16")))
        shaped = re.search(r"shape=\(([^)]*)\)", kind)
        n_dims = shaped.group(1).count("*") if shaped else rng.choice((1, 1, 1, 1, 1, 2, 0))
        shape = [rng.choice((self.n, self.n, self.n + 1, rng.choice(LENGTHS))) for _ in range(n_dims)]
        array: np.ndarray
        match rng.randrange(5):
            case 0:
                array = np.zeros(shape)
            case 1 if n_dims == 1:
                array = np.linspace(0, self.n, shape[0])
            case 2:
                array = self.numbers.integers(0, max(self.n, 1), shape)
            case 3:
                array = self.numbers.choice(np.array(INTEGERS[:12] if dtype.kind in "iu" else FLOATS, float), shape)
            case _:
                array = self.numbers.normal(size=shape) * 3
        with np.errstate(all="ignore"):
            made = np.asarray(array).astype(dtype)
        if rng.random() < 0.05:
            made = np.asfortranarray(made) if made.ndim > 1 else made[::-1]
        if rng.random() < 0.05:
            made.flags.writeable = False
        return made

    def instance(self, name: str, depth: int) -> Any:
        if depth > 3:
            raise ValueError("too deep")
        kind = getattr(_native, name)
        for _ in range(6):
            try:
                if name == "Rows" and self.rng.random() < 0.7:
                    return self.good_rows()
                return self.call(kind, kind.__init__, depth + 1)
            except EXPECTED:
                continue
        raise ValueError(f"no {name}")

    def good_rows(self) -> Any:
        lengths = self.numbers.integers(0, 4, self.n)
        indptr = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        indices = self.numbers.integers(0, self.rng.choice((1, 3, self.n + 1)), indptr[-1]).astype(np.int32)
        y = self.numbers.integers(-1, 3, self.n).astype(np.float64)
        weight = None if self.rng.random() < 0.5 else np.ones(self.n)
        return _native.Rows(indptr, indices, self.numbers.normal(size=len(indices)).astype(np.float32), y, weight)

    def call(self, function: Any, described: Any, depth: int = 0) -> Any:
        overloads = signatures(described)
        if not overloads:
            raise ValueError("no signature")
        given = [(name, self.make(kind, depth), keyword) for name, kind, keyword in self.rng.choice(overloads)]
        places = [value for _, value, keyword in given if not keyword]
        return function(*places, **{name: value for name, value, keyword in given if keyword})


def _union(kind: str) -> list[str]:
    parts, depth, start = [], 0, 0
    for place, letter in enumerate(kind):
        depth += letter in "[(" or -(letter in "])")
        if depth == 0 and kind.startswith(" | ", place):
            parts.append(kind[start:place])
            start = place + 3
    return [*parts, kind[start:]]


def entries() -> dict[str, tuple[str, str | None]]:
    """Every function, constructor and method of the module: (name, method)."""
    found: dict[str, tuple[str, str | None]] = {}
    for name in dir(_native):
        thing = getattr(_native, name)
        if isinstance(thing, type):
            found[name] = name, None
            for method in (m for m in vars(thing) if not m.startswith("_") and callable(getattr(thing, m))):
                found[f"{name}.{method}"] = name, method
        elif callable(thing):
            found[name] = name, None
    return found


ENTRIES = entries()


def run_one(entry: str, seed: int) -> str:
    """One call; "returned" or the name of what it raised."""
    maker, (name, method) = Maker(random.Random(seed)), ENTRIES[entry]
    thing = getattr(_native, name)
    try:
        if method is not None:
            one = maker.instance(name, 0)
            maker.call(getattr(one, method), getattr(thing, method))
        elif isinstance(thing, type):
            maker.instance(name, 0)
        else:
            maker.call(thing, thing)
    except EXPECTED as error:
        return type(error).__name__
    return "returned"


def _run(data: bytes, folder: Path) -> None:
    rng = random.Random(data)
    calls = [(rng.choice(tuple(ENTRIES)), rng.getrandbits(64)) for _ in range(50)]
    for entry, seed in calls:
        (folder / "call").write_text(f"{entry} {seed}")
        run_one(entry, seed)


TARGET = Target("bindings", (b"bindings",), tuple(bytes([i]) for i in range(256)), _run)
CALLS_EACH = 50
