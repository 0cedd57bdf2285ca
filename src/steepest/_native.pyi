"""Types of the native module."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

# ---------------------------------------------------------------------------------------------------------------- text

Texts = list[Any] | tuple[npt.NDArray[np.uint8], npt.NDArray[Any], npt.NDArray[np.uint8] | None]
Field = tuple[int, str, str, Texts | npt.NDArray[np.float64]]

hash_id: str
sampled_buckets: int

class HashOptions:
    def __init__(
        self,
        *,
        n_bits: int,
        ngrams: tuple[int, int],
        char_ngrams: tuple[int, int],
        weighting: int,
        copies: int,
        min_letters: int,
        is_signed: bool,
        lowercase: bool,
        normalise: bool,
        seed: int,
    ) -> None: ...

class NameTable:
    def __init__(self, n_names: int) -> None: ...
    @property
    def n_bytes(self) -> int: ...
    @property
    def n_rows(self) -> int: ...
    def names_of(self, buckets: npt.NDArray[np.int64]) -> list[list[str]]: ...
    def buckets(self) -> npt.NDArray[np.int64]: ...
    def touched(self) -> npt.NDArray[np.uint64]: ...
    def prune(self, importance: npt.NDArray[np.float64]) -> None: ...
    def state(
        self,
    ) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.uint8], npt.NDArray[np.uint64], npt.NDArray[np.uint64], int]: ...
    def restore(
        self,
        numbers: npt.NDArray[np.uint32],
        texts: npt.NDArray[np.uint8],
        seen_once: npt.NDArray[np.uint64],
        touched: npt.NDArray[np.uint64],
        rows: int,
    ) -> None: ...

def hash_rows(
    fields: list[Field],
    crosses: Sequence[tuple[int, int]],
    stop_words: Sequence[str],
    options: HashOptions,
    count_documents: npt.NDArray[np.uint32] | None,
    document_counts: npt.NDArray[np.uint32] | None,
    n_documents: float,
    book: NameTable | None,
    n_threads: int,
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int32], npt.NDArray[np.float32]]: ...
def hash_texts(texts: Texts, key: int) -> npt.NDArray[np.uint64]: ...
def mix_hashes(a: npt.NDArray[np.uint64], b: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]: ...
def hash_key(name: str, seed: int) -> int: ...
def split_words(document: str | bytes, lowercase: bool, min_letters: int) -> list[str]: ...
def first_no_text(texts: list[Any]) -> int: ...
def write_integers(numbers: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]: ...
