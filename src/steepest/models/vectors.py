"""Word vectors as `.vec` text files, as fastText writes them: a line `words dim`, then a word and its numbers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from steepest import atomic
from steepest.data.chunk import Array
from steepest.errors import DataError


def write_vectors(path: str | Path, words: Sequence[str], vectors: Array) -> None:
    """Writes words (without spaces) and their vectors to a text file."""
    with atomic.writing(path) as file:
        file.write(f"{len(words)} {vectors.shape[1]}\n".encode())
        for word, vector in zip(words, vectors.tolist(), strict=True):
            file.write((word + " " + " ".join(f"{x:.6g}" for x in vector) + "\n").encode())


def dim_of_vectors(path: str | Path) -> int:
    """The dimension of the vectors in a file."""
    try:
        with open(path, encoding="utf-8", errors="replace", newline="\n") as file:
            return _header(path, file.readline())[1]
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror}); check the path") from None


def read_vectors(path: str | Path, dim: int) -> tuple[list[str], Array]:
    """(words, vectors of shape (words, dim)); a file of another dimension, or one cut short, is refused."""
    try:
        with open(path, encoding="utf-8", errors="replace", newline="\n") as file:
            lines = file.read().split("\n")
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror}); check the path") from None
    n_words, width = _header(path, lines[0])
    if width != dim:
        raise DataError(f"{path} holds vectors of {width} numbers, but dim={dim}; pass dim={width} or another file")
    body = lines[1:] if lines[-1] else lines[1:-1]
    if len(body) != n_words:
        raise DataError(f"{path} holds {len(body)} words of {n_words} that line 1 promises; get a complete copy")
    if 2 * n_words * dim > sum(map(len, body)) + n_words:  # a number takes a digit and a space at least
        raise DataError(f"{path} is too short for {n_words} vectors of {dim} numbers; get a complete copy")
    words = []
    vectors = np.empty((n_words, dim), np.float32)
    for number, line in enumerate(body):
        word, *numbers = line.rstrip(" \r").split(" ")
        try:
            vectors[number] = np.array(numbers, np.float32)
        except ValueError:
            other = len(numbers) != dim
            fault = f"has {len(numbers)} numbers, not {dim}" if other else "holds something that is not a number"
            raise DataError(f"{path}, line {number + 2}: {word!r} {fault}; get a complete copy") from None
        words.append(word)
    wrong = np.flatnonzero(~np.isfinite(vectors).all(axis=1))
    if len(wrong):
        raise DataError(f"{path}, line {int(wrong[0]) + 2}: a number is not finite; remove the line")
    return words, vectors


def _header(path: str | Path, line: str) -> tuple[int, int]:
    parts = line.split()
    if len(parts) != 2 or not all(part.isdecimal() and len(part) < 16 for part in parts):
        raise DataError(f"{path}, line 1: {line[:60]!r} must be two numbers, of words and of their dimension")
    return int(parts[0]), int(parts[1])
