"""The slow, obvious definition of the text kernel: characters to words to hashed rows, one Python step at a time.

Written from the comments of `native/text/hash.h`, `words.h` and `text.h`, not from their code; the tests compare the
two. A row is a dict from bucket to value. Unicode is that of the running Python, while the kernel is frozen at 14.0:
they agree on characters that were assigned by then.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

MASK = (1 << 64) - 1
K0, K1, K2, K3 = 0x243F6A8885A308D3, 0x13198A2E03707345, 0xA4093822299F31D1, 0x9E3779B97F4A7C15
CHARACTER_MARK = 0x3C3E
INVISIBLE = "\u00ad\u200c\u200d\u2060\ufeff"
TEXT, CATEGORY, NUMBER = range(3)


def fold(a: int, b: int) -> int:
    """High and low half of the product, one upon the other."""
    product = a * b
    return product >> 64 ^ product & MASK


def word_at(data: bytes, start: int) -> int:
    """Eight bytes, little-endian, zero beyond the end."""
    return int.from_bytes(data[start : start + 8], "little")


def hash_bytes(data: bytes, key: int) -> int:
    """The token hash "steepest-1"."""
    start = 0
    if len(data) > 16:
        while start < len(data) - 16:
            key ^= fold(word_at(data, start) ^ K2, word_at(data, start + 8) ^ K0 ^ key)
            start += 16
        start = len(data) - 16
    product = (word_at(data, start) ^ K0) * (word_at(data, start + 8) ^ K1 ^ key)
    return fold(product & MASK ^ K2 ^ len(data), product >> 64 ^ K3)


def mix(a: int, b: int) -> int:
    """The hash of an ordered pair of hashes."""
    product = (a ^ K1) * (b ^ K2)
    return fold(product & MASK ^ K0, product >> 64 ^ K3)


def key_of(name: str, seed: int) -> int:
    """The key of a text column's words."""
    key = fold(seed ^ K3, K1)
    return hash_bytes(name.encode(), key) if name else key


def place(feature: int, n_bits: int) -> tuple[int, int]:
    """(bucket, sign) of a hash."""
    return feature >> 32 & (1 << n_bits) - 1, -1 if feature >> 63 else 1


def is_ideograph(character: str) -> bool:
    """Han characters, each a word by itself."""
    code = ord(character)
    return (
        0x4E00 <= code <= 0x9FFF or 0x3400 <= code <= 0x4DBF or 0xF900 <= code <= 0xFAFF or 0x20000 <= code <= 0x3FFFF
    )


def is_word(character: str) -> bool:
    """Letters, marks, numbers and the underscore."""
    return character == "_" or unicodedata.category(character)[0] in "LMN"


def lower(character: str) -> str:
    """Simple case folding: one character to one."""
    for folded in (character.casefold(), character.lower()):
        if len(folded) == 1:
            return folded
    return character.lower()[0]


def words_of(document: str | bytes, lowercase: bool = True, min_letters: int = 2) -> list[str]:
    """The words of a document."""
    raw = document.encode("utf-8", "surrogatepass") if isinstance(document, str) else document
    spaced = ""
    for character in raw.decode("utf-8", "replace"):
        if character in INVISIBLE:
            continue
        if is_ideograph(character) and is_word(character):
            spaced += f" {character} "
        elif is_word(character):
            spaced += lower(character) if lowercase else character
        else:
            spaced += " "
    return [word for word in spaced.split(" ") if len(word) >= min_letters or (word and is_ideograph(word[0]))]


def character_grams(word: str, low: int, high: int) -> list[str]:
    """Runs of low..high characters of <word>, shortest first; of a shorter word, the whole."""
    marked = f"<{word}>"
    low = min(low, len(marked))
    grams = [marked[i : i + n] for n in range(low, min(high, len(marked)) + 1) for i in range(len(marked) - n + 1)]
    return [gram for gram in grams if gram not in "<>"]


@dataclass
class Recipe:
    """The options of the kernel."""

    n_bits: int = 20
    ngrams: tuple[int, int] = (1, 1)
    char_ngrams: tuple[int, int] = (0, 0)
    weighting: str = "count"
    copies: int = 1
    min_letters: int = 2
    is_signed: bool = True
    lowercase: bool = True
    normalise: bool = True
    seed: int = 0
    stop_words: Sequence[str] = ()


def text_features(document: str | bytes, name: str, recipe: Recipe) -> list[int]:
    """Hashes of the words' n-grams by rising n, then of the characters' word by word."""
    key = key_of(name, recipe.seed)
    words = [w for w in words_of(document, recipe.lowercase, recipe.min_letters) if w not in recipe.stop_words]
    hashes = [hash_bytes(word.encode(), key) for word in words]
    features = []
    for n in range(max(recipe.ngrams[0], 1), recipe.ngrams[1] + 1):
        for i in range(len(words) - n + 1):
            gram = hashes[i]
            for other in hashes[i + 1 : i + n]:
                gram = mix(gram, other)
            features.append(gram)
    if recipe.char_ngrams[1]:
        for word in words:
            grams = character_grams(word, *recipe.char_ngrams)
            features += [hash_bytes(gram.encode(), key ^ CHARACTER_MARK) for gram in grams]
    return features


Value = str | bytes | float | None


def features_of(kind: int, name: str, value: Value, recipe: Recipe) -> tuple[list[int], float, bool]:
    """(hashes, their common value, whether that is a number) of one column in one row."""
    key, label = key_of("", recipe.seed), f"{name}=" if name else ""
    if value is None or value != value:
        return [hash_bytes(f"{label}<missing>".encode(), key)], 1.0, False
    if kind == NUMBER:
        assert not isinstance(value, str | bytes)
        return ([hash_bytes(name.encode(), key)] if value else []), float(value), True
    assert isinstance(value, str | bytes)
    if kind == TEXT:
        return text_features(value, name, recipe), 1.0, False
    raw = value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value
    return [hash_bytes(label.encode() + raw, key)], 1.0, False


def add(row: dict[int, float], features: Iterable[int], value: float, recipe: Recipe) -> None:
    """Adds features to a row, copy by copy."""
    features = list(features)
    for copy in range(recipe.copies):
        for feature in features:
            bucket, sign = place(mix(feature, copy * K3 & MASK) if copy else feature, recipe.n_bits)
            row[bucket] = row.get(bucket, 0.0) + (sign if recipe.is_signed else 1) * value


def weigh(count: float, weighting: str) -> float:
    """A count becomes a value."""
    if weighting == "binary":
        return math.copysign(1, count) if count else 0.0
    if weighting == "log":
        return math.copysign(1 + math.log(abs(count)), count) if count else 0.0
    return count


def hash_row(
    columns: Sequence[tuple[int, str]], values: Sequence[Value], crosses: Sequence[tuple[int, int]], recipe: Recipe
) -> dict[int, float]:
    """One row of (kind, name) columns."""
    parts = [features_of(kind, name, value, recipe) for (kind, name), value in zip(columns, values, strict=True)]
    parts += [
        ([mix(a, b) for a in parts[i][0] for b in parts[k][0]], parts[i][1] * parts[k][1], parts[i][2] or parts[k][2])
        for i, k in crosses
    ]
    row: dict[int, float] = {}
    for hashes, value, is_number in parts:
        if not is_number:
            add(row, hashes, value, recipe)
    row = {bucket: weigh(count, recipe.weighting) for bucket, count in row.items()}
    length = math.sqrt(sum(x * x for x in row.values())) if recipe.normalise else math.sqrt(recipe.copies)
    row = {bucket: x / (length or 1.0) for bucket, x in row.items()}
    for hashes, value, is_number in parts:
        if is_number:
            add(row, hashes, value / math.sqrt(recipe.copies), recipe)
    return row


def score_row(row: dict[int, float], weights: Sequence[Sequence[float]], bias: Sequence[float]) -> list[float]:
    """w.x + b of a hashed row for each output; weights by bucket, then by output."""
    return [b + sum(x * weights[bucket][k] for bucket, x in row.items()) for k, b in enumerate(bias)]


def number_texts(texts: list[str | None]) -> tuple[list[int], list[int]]:
    """(number of each text in the order in which they first come, -1 for a missing one; the rows in which that is)."""
    firsts: dict[str, int] = {}
    for row, text in enumerate(texts):
        if text is not None:
            firsts.setdefault(text, row)
    numbers = {text: number for number, text in enumerate(firsts)}
    return [-1 if text is None else numbers[text] for text in texts], list(firsts.values())
