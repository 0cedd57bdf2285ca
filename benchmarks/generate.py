"""Sparse data to measure with, made from a fixed seed and kept in benchmarks/cache.

rcv1   781,265 x 47,236, about 76 non-zeros a row, rows of length one. The rank r of a word has probability
       ~ (r + 60)^-1.05 (Zipf-Mandelbrot), ids are permuted. A tenth of the words lean towards one class; the label is
       the class a row was drawn from, flipped for 5 % of the rows. Values are log-tf-idf with 7 decimals, so that the
       text files hold the very numbers of the matrix.
large  100,000 rows over 2^22 or 2^24 columns of the same law, for weight tables beyond the caches.

Rows are drawn in batches with a seed each: the first n rows are the same whatever number is asked for.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from benchmarks import CACHE, TEST_ROWS, text_path

ROWS, COLUMNS, LARGE_ROWS = 781_265, 47_236, 100_000
NONZEROS, NOISE, POSITIVE = 76.0, 0.05, 0.47
SHIFT, POWER = 60.0, 1.05  # of the Zipf-Mandelbrot law
LEANING, STRENGTH = 0.1, 1.15  # the share of words that tell the classes apart, and how strongly
BATCH_ROWS = 1 << 14
TEXT_SCALE = 10**7


class Vocabulary:
    """How often each word occurs in each class, and what an occurrence weighs."""

    def __init__(self, seed: int) -> None:
        generator = np.random.default_rng([seed, 0])
        frequency = (generator.permutation(COLUMNS) + SHIFT) ** -POWER
        frequency /= frequency.sum()
        leaning = generator.choice(COLUMNS, int(LEANING * COLUMNS), replace=False)
        lean = np.zeros(COLUMNS)
        lean[leaning] = STRENGTH * generator.standard_normal(len(leaning))
        self.cumulated = [np.cumsum(frequency * np.exp(sign * lean)) for sign in (-1, 1)]
        self.rarity = np.maximum(0.3, -np.log(np.minimum(1.0, frequency * NONZEROS)))

    def draw(self, positive: np.ndarray, generator: np.random.Generator) -> np.ndarray:
        """One word for each entry of `positive`, the class of the row it belongs to."""
        words = np.empty(len(positive), np.int64)
        for side, cumulated in enumerate(self.cumulated):
            mine = positive == bool(side)
            words[mine] = np.searchsorted(cumulated, generator.random(mine.sum()) * cumulated[-1], side="right")
        return np.minimum(words, COLUMNS - 1)


def row_lengths(n_rows: int, generator: np.random.Generator) -> np.ndarray:
    """Words a row, log-normal; a few more than the non-zeros wanted, because some words are drawn twice."""
    spread = 0.55
    lengths = generator.lognormal(np.log(1.04 * NONZEROS) - spread**2 / 2, spread, n_rows)
    return np.clip(lengths, 4, 1000).astype(np.int64)


def rcv1_batch(words: Vocabulary, path: list[int]) -> tuple[sp.csr_matrix, np.ndarray, np.ndarray]:
    generator = np.random.default_rng(path)
    lengths = row_lengths(BATCH_ROWS, generator)
    positive = generator.random(BATCH_ROWS) < POSITIVE
    rows = np.repeat(np.arange(BATCH_ROWS), lengths)
    keys, counts = np.unique(rows * COLUMNS + words.draw(np.repeat(positive, lengths), generator), return_counts=True)
    rows, columns = np.divmod(keys, COLUMNS)
    values = (1 + np.log(counts)) * words.rarity[columns]
    values /= np.sqrt(np.bincount(rows, values**2, BATCH_ROWS))[rows]
    values = np.minimum(np.rint(values * TEXT_SCALE), TEXT_SCALE - 1) / TEXT_SCALE
    indptr = np.searchsorted(rows, np.arange(BATCH_ROWS + 1)).astype(np.int32)
    X = sp.csr_matrix(
        (values.astype(np.float32), columns.astype(np.int32), indptr), shape=(BATCH_ROWS, COLUMNS), copy=False
    )
    flipped = generator.random(BATCH_ROWS) < NOISE
    return X, np.where(positive ^ flipped, 1, -1).astype(np.int8), flipped


def rcv1(
    n_rows: int, *, part: str = "train", seed: int = 0, first_batch: int = 0
) -> tuple[sp.csr_matrix, np.ndarray, np.ndarray]:
    """n rows of a part, from a batch on: matrix, labels -1 and 1, and which labels are noise."""
    words, stream = Vocabulary(seed), ("train", "test").index(part) + 1
    numbers = range(first_batch, first_batch - (-n_rows // BATCH_ROWS))
    batches = [rcv1_batch(words, [seed, stream, batch]) for batch in numbers]
    X, y, flipped = zip(*batches, strict=True)
    return sp.vstack(X, "csr")[:n_rows], np.concatenate(y)[:n_rows], np.concatenate(flipped)[:n_rows]


def large(bits: int, n_rows: int, *, seed: int = 0) -> tuple[sp.csr_matrix, np.ndarray]:
    """Rows over 2^bits columns; ranks come from the inverse of the continuous law, so no table of 2^bits is needed."""
    generator = np.random.default_rng([seed, 3, bits])
    lengths = row_lengths(n_rows, generator)
    indptr = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    most, least = SHIFT ** (1 - POWER), (2.0**bits + SHIFT) ** (1 - POWER)
    ranks = (most - generator.random(indptr[-1]) * (most - least)) ** (1 / (1 - POWER)) - SHIFT
    # An odd factor permutes the ids modulo a power of two.
    columns = ((ranks.astype(np.int64) * 2_654_435_761) & (2**bits - 1)).astype(np.int32)
    values = np.repeat(lengths**-0.5, lengths).astype(np.float32)
    X = sp.csr_matrix((values, columns, indptr), shape=(n_rows, 2**bits), copy=False)
    X.sum_duplicates()
    score = X @ (generator.standard_normal(2**bits) * (generator.random(2**bits) < LEANING))
    flipped = generator.random(n_rows) < NOISE
    return X, np.where((score > 0) ^ flipped, 1, -1).astype(np.int8)


def byte_table(texts: list[str], width: int) -> np.ndarray:
    """Short texts as rows of bytes, padded with zeros, which never reach the file."""
    return np.array([text.encode() for text in texts], f"S{width}").view(np.uint8).reshape(len(texts), width)


def write_text(X: sp.csr_matrix, y: np.ndarray, svm: Path, vw: Path) -> None:
    """The rows as libsvm and as Vowpal Wabbit text, ids from 1. Numbers become bytes by table look-up, a batch at once:
    a formatting call for each of 60 million numbers would take minutes."""
    names = byte_table([f" {j}:" for j in range(1, X.shape[1] + 1)], 7)
    thousand = byte_table([f"{i:03}" for i in range(1000)], 3)
    ten_thousand = byte_table([f"{i:04}" for i in range(10_000)], 4)
    with open(svm, "wb") as svm_file, open(vw, "wb") as vw_file:
        for start in range(0, X.shape[0], BATCH_ROWS):
            rows, labels = X[start : start + BATCH_ROWS], y[start : start + BATCH_ROWS]
            cells = np.zeros((rows.nnz + len(labels), 16), np.uint8)  # one a number, and one for each row's label
            head = rows.indptr[:-1] + np.arange(len(labels))
            body = np.delete(np.arange(len(cells)), head)
            digits = np.rint(rows.data.astype(np.float64) * TEXT_SCALE).astype(np.int64)
            cells[body] = np.hstack(
                [
                    names[rows.indices],
                    np.broadcast_to(byte_table(["0."], 2), (rows.nnz, 2)),
                    thousand[digits // 10_000],
                    ten_thousand[digits % 10_000],
                ]
            )
            for file, negative, positive in ((svm_file, "\n-1", "\n1"), (vw_file, "\n-1 |", "\n1 |")):
                cells[head] = byte_table([negative, positive], 16)[(labels > 0).astype(np.int64)]
                file.write(cells.tobytes().translate(None, b"\0")[1:] + b"\n")


def publish(path: Path, write) -> None:
    """Writes under another name first, so that an interrupted run leaves no half file in the cache."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f"{os.getpid()}-{path.name}")
    write(unfinished)
    unfinished.replace(path)


def cached_arrays(name: str, make) -> tuple[sp.csr_matrix, np.ndarray]:
    matrix, labels = CACHE / f"{name}.npz", CACHE / f"{name}-y.npy"
    if not (matrix.exists() and labels.exists()):
        X, y = make()
        publish(matrix, lambda path: sp.save_npz(path, X, compressed=False))
        publish(labels, lambda path: np.save(path, y))
        return X, y
    return sp.load_npz(matrix), np.load(labels)


def load_rcv1(n_rows: int, part: str = "train") -> tuple[sp.csr_matrix, np.ndarray]:
    """Matrix and labels, from the cache if they are there."""
    return cached_arrays(f"rcv1-{part}-{n_rows}", lambda: rcv1(n_rows, part=part)[:2])


def load_large(bits: int, n_rows: int = LARGE_ROWS) -> tuple[sp.csr_matrix, np.ndarray]:
    """Matrix and labels over 2^bits columns, from the cache if they are there."""
    return cached_arrays(f"large-{bits}-{n_rows}", lambda: large(bits, n_rows))


def prepare_text(n_rows: int, part: str = "train") -> None:
    """Writes the text files of n rows unless they are there."""
    svm, vw = text_path(n_rows, "svm", part), text_path(n_rows, "vw", part)
    if not (svm.exists() and vw.exists()):
        X, y = load_rcv1(n_rows, part)
        publish(svm, lambda path: publish(vw, lambda other: write_text(X, y, path, other)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--text", type=int, nargs="*", default=[], metavar="ROWS", help="also as text, this many rows")
    parser.add_argument("--bits", type=int, nargs="*", default=[], help="also rows over 2^BITS columns")
    parser.add_argument("--large-rows", type=int, default=LARGE_ROWS)
    arguments = parser.parse_args()
    start = time.perf_counter()
    X, _ = load_rcv1(arguments.rows)
    prepare_text(TEST_ROWS, "test")
    print(f"rcv1: {X.shape[0]} x {X.shape[1]}, {X.nnz / X.shape[0]:.1f} non-zeros a row", end="", flush=True)
    for n_rows in arguments.text:
        prepare_text(n_rows)
    for bits in arguments.bits:
        load_large(bits, arguments.large_rows)
    print(f" ({time.perf_counter() - start:.1f} s)")


if __name__ == "__main__":
    main()
