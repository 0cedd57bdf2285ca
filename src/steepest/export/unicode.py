"""The Unicode tables of the frozen hash, read off the kernel itself, so that an export cannot differ from it."""

from __future__ import annotations

from functools import cache

import numpy as np

from steepest import kernels
from steepest.data.chunk import Array

FIRST, END = 0x80, 0x110000
SURROGATES = range(0xD800, 0xE000)


@cache
def word_edges() -> Array:
    """Returns where runs of other characters and of word characters begin, in turn, from the first character on."""
    codes = np.array([ord(word) for word in _words(lowercase=False)], np.int64)
    is_word = np.zeros(END + 1, bool)
    is_word[codes] = True
    return np.concatenate([[FIRST], 1 + np.flatnonzero(is_word[FIRST:-1] != is_word[FIRST + 1 :]) + FIRST]).astype(
        np.uint32
    )


@cache
def fold_ranges() -> Array:
    """Returns rows of (first, last, stride, difference): how letters become lower case."""
    ranges: list[list[int]] = []
    for letter, folded in zip(_words(lowercase=False), _words(lowercase=True), strict=True):
        code, difference = ord(letter), ord(folded) - ord(letter)
        if not difference:
            continue
        if ranges:
            first, last, stride, same = ranges[-1]
            step = code - last
            if difference == same and (step == stride or (first == last and step <= 2)):
                ranges[-1] = [first, code, step, same]
                continue
        ranges.append([code, code, 1, difference])
    return np.array(ranges, np.int32)


@cache
def _words(lowercase: bool) -> list[str]:
    """Returns all characters that are words, each alone."""
    text = " ".join(chr(code) for code in range(FIRST, END) if code not in SURROGATES)
    return [str(word) for word in kernels.split_words(text, lowercase, 1)]
