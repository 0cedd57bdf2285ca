"""The slow, obvious definition of the text kernel: characters to words to hashed rows, one Python step at a time.

Written from the comments of `native/text/hash.h`, `words.h` and `text.h`, not from their code; the tests compare the
two. A row is a dict from bucket to value. Unicode is that of the running Python, while the kernel is frozen at 14.0:
they agree on characters that were assigned by then.
"""

from __future__ import annotations

import json
import math
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

MASK = (1 << 64) - 1
K0, K1, K2, K3 = 0x243F6A8885A308D3, 0x13198A2E03707345, 0xA4093822299F31D1, 0x9E3779B97F4A7C15
CHARACTER_MARK = 0x3C3E
INVISIBLE = "\u00ad\u200c\u200d\u2060\ufeff"
TEXT, CATEGORY, NUMBER, LIST = range(4)
MARKS = ("", "?", "-", "na", "n/a", "nan", "null", "none", "<na>", "#n/a")


def fold(a: int, b: int) -> int:
    """Returns the high half of the product xor its low half."""
    product = a * b
    return product >> 64 ^ product & MASK


def word_at(data: bytes, start: int) -> int:
    """Returns eight bytes as a number, little-endian, zero beyond the end."""
    return int.from_bytes(data[start : start + 8], "little")


def hash_bytes(data: bytes, key: int) -> int:
    """Returns the token hash "steepest-1"."""
    start = 0
    if len(data) > 16:
        while start < len(data) - 16:
            key ^= fold(word_at(data, start) ^ K2, word_at(data, start + 8) ^ K0 ^ key)
            start += 16
        start = len(data) - 16
    product = (word_at(data, start) ^ K0) * (word_at(data, start + 8) ^ K1 ^ key)
    return fold(product & MASK ^ K2 ^ len(data), product >> 64 ^ K3)


def mix(a: int, b: int) -> int:
    """Returns the hash of an ordered pair of hashes."""
    product = (a ^ K1) * (b ^ K2)
    return fold(product & MASK ^ K0, product >> 64 ^ K3)


def key_of(name: str, seed: int) -> int:
    """Returns the key of a text column's words."""
    key = fold(seed ^ K3, K1)
    return hash_bytes(name.encode(), key) if name else key


def place(feature: int, n_bits: int) -> tuple[int, int]:
    """Returns (bucket, sign) of a hash."""
    return feature >> 32 & (1 << n_bits) - 1, -1 if feature >> 63 else 1


def is_ideograph(character: str) -> bool:
    """Returns whether this is a Han character; each of them is a word by itself."""
    code = ord(character)
    return (
        0x4E00 <= code <= 0x9FFF or 0x3400 <= code <= 0x4DBF or 0xF900 <= code <= 0xFAFF or 0x20000 <= code <= 0x3FFFF
    )


def is_word(character: str) -> bool:
    """Returns whether this is a letter, a mark, a number or the underscore."""
    return character == "_" or unicodedata.category(character)[0] in "LMN"


def lower(character: str) -> str:
    """Returns the character after simple case folding, one to one."""
    for folded in (character.casefold(), character.lower()):
        if len(folded) == 1:
            return folded
    return character.lower()[0]


def words_of(document: str | bytes, lowercase: bool = True, min_letters: int = 2) -> list[str]:
    """Returns the words of a document."""
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
    """Returns runs of low..high characters of <word>, shortest first; of a shorter word, the whole."""
    marked = f"<{word}>"
    low = min(low, len(marked))
    grams = [marked[i : i + n] for n in range(low, min(high, len(marked)) + 1) for i in range(len(marked) - n + 1)]
    return [gram for gram in grams if gram not in "<>"]


@dataclass
class Recipe:
    """Options of the kernel."""

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
    counts: Mapping[int, int] | None = None  # rows with each bucket of a text, for tf-idf
    n_documents: int = 0
    min_rows: int = 1


def text_features(document: str | bytes, name: str, recipe: Recipe) -> list[int]:
    """Returns hashes of the words' n-grams by rising n, then of the characters' word by word."""
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


@dataclass
class Column:
    """One column as the kernel reads it."""

    kind: int
    name: str
    separators: str = ""
    centre: float = 0.0
    scale: float = 1.0
    knots: Sequence[float] = ()
    knot_names: Sequence[str] = ()


def hats(number: float, knots: Sequence[float]) -> list[tuple[int, float]]:
    """Returns (knot, value) of the hat functions that are not zero at a number; their sum is 1."""
    if number <= knots[0]:
        return [(0, 1.0)]
    if number >= knots[-1]:
        return [(len(knots) - 1, 1.0)]
    after = next(place for place, knot in enumerate(knots) if knot > number)
    before = after - 1
    if number == knots[before]:
        return [(before, 1.0)]
    t = (number - knots[before]) / (knots[after] - knots[before])
    return [(before, 1 - t), (after, t)]


def parts_of(value: bytes, separators: str) -> list[bytes]:
    """Returns what is between separators, without spaces at the ends."""
    parts = [b""]
    for letter in value:
        if chr(letter) in separators:
            parts.append(b"")
        else:
            parts[-1] += bytes([letter])
    return [part.strip(b" ") for part in parts if part.strip(b" ")]


Features = list[tuple[int, float]]  # hashes and what they are worth


def features_of(column: Column, value: Value, recipe: Recipe) -> tuple[Features, Features, bool]:
    """Returns (features, those that take part in crosses, whether they are words to be weighed) of a row's column."""
    key, label = key_of("", recipe.seed), (f"{column.name}=" if column.name else "").encode()
    missing = [(hash_bytes(label + b"<missing>", key), 1.0)]
    if value is None or value != value:
        return missing, missing, False
    if column.kind == NUMBER:
        assert not isinstance(value, str | bytes)
        line = (float(value) - column.centre) / column.scale
        lines = [(hash_bytes(column.name.encode(), key), line)] if line else []
        if not column.knots:
            return lines, lines, False
        bent = [(hash_bytes(column.knot_names[k].encode(), key), v) for k, v in hats(float(value), column.knots)]
        return lines + bent, bent, False
    assert isinstance(value, str | bytes)
    raw = value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value
    if column.kind == TEXT:
        words = [(feature, 1.0) for feature in text_features(value, column.name, recipe)]
        return words, words, True
    if raw.decode("latin-1").lower() in MARKS:
        return missing, missing, False
    parts = parts_of(raw, column.separators)
    if column.kind == LIST:
        values = [(hash_bytes(label + part, key), 1 / math.sqrt(len(parts))) for part in parts]
        return values, values, False
    whole = [(hash_bytes(label + raw, key), 1.0)]
    if not column.separators or len(parts) < 2:
        return whole, whole, False
    prefix = f"{column.name}:".encode()
    return whole + [(hash_bytes(prefix + part, key), 1 / math.sqrt(len(parts))) for part in parts], whole, False


def add(row: dict[int, float], features: Iterable[int], value: float, recipe: Recipe) -> None:
    """Adds features to a row, copy by copy."""
    features = list(features)
    for copy in range(recipe.copies):
        for feature in features:
            bucket, sign = place(mix(feature, copy * K3 & MASK) if copy else feature, recipe.n_bits)
            row[bucket] = row.get(bucket, 0.0) + (sign if recipe.is_signed else 1) * value


def weigh(count: float, weighting: str) -> float:
    """Returns the value of a feature from its count."""
    if weighting == "binary":
        return math.copysign(1, count) if count else 0.0
    if weighting == "log":
        return math.copysign(1 + math.log(abs(count)), count) if count else 0.0
    return count


def add_words(row: dict[int, float], words: Iterable[int], factor: float, recipe: Recipe) -> None:
    """Adds a block of words: counted, weighed, without rare ones, scaled to length 1, and times a factor."""
    block: dict[int, float] = {}
    add(block, words, 1.0, recipe)
    block = {bucket: weigh(count, recipe.weighting) for bucket, count in block.items()}
    if recipe.counts is not None:
        rows = {bucket: recipe.counts.get(bucket, 0) for bucket in block}
        rarity = {bucket: 1 + math.log((1 + recipe.n_documents) / (1 + n)) for bucket, n in rows.items()}
        least = recipe.min_rows if recipe.min_rows > 1 else 0
        block = {bucket: x * rarity[bucket] for bucket, x in block.items() if rows[bucket] >= least}
    length = math.sqrt(sum(x * x for x in block.values())) if recipe.normalise else math.sqrt(recipe.copies)
    for bucket, x in block.items():
        row[bucket] = row.get(bucket, 0.0) + factor * x / (length or 1.0)


def hash_row(
    columns: Sequence[Column], values: Sequence[Value], crosses: Sequence[tuple[int, int]], recipe: Recipe
) -> dict[int, float]:
    """Returns one row, made of a block for each column and each cross."""
    found = [features_of(column, value, recipe) for column, value in zip(columns, values, strict=True)]
    row: dict[int, float] = {}

    def add_features(features: Features) -> None:
        for feature, value in features:
            add(row, [feature], value / math.sqrt(recipe.copies), recipe)

    if len(columns) == 1 and columns[0].kind == TEXT and not crosses:  # then also the mark of a missing text is a word
        add_words(row, [feature for feature, _ in found[0][0]], 1.0, recipe)
        return row
    for features, _, is_text in found:
        if is_text:
            add_words(row, [feature for feature, _ in features], 1.0, recipe)
        else:
            add_features(features)
    for i, k in crosses:
        (_, first, first_text), (_, second, second_text) = found[i], found[k]
        if first_text and second_text:
            add_words(row, [mix(a, b) for a, _ in first for b, _ in second], 1.0, recipe)
        elif first_text:
            for b, value in second:
                add_words(row, [mix(a, b) for a, _ in first], value, recipe)
        elif second_text:
            for a, value in first:
                add_words(row, [mix(a, b) for b, _ in second], value, recipe)
        else:
            add_features([(mix(a, b), u * v) for a, u in first for b, v in second])
    return row


def score_row(row: dict[int, float], weights: Sequence[Sequence[float]], bias: Sequence[float]) -> list[float]:
    """Returns w.x + b of a hashed row for each output; weights by bucket, then by output."""
    return [b + sum(x * weights[bucket][k] for bucket, x in row.items()) for k, b in enumerate(bias)]


def number_texts(texts: list[str | None]) -> tuple[list[int], list[int]]:
    """(number of each text in the order in which they first come, -1 for a missing one; the rows in which that is)."""
    firsts: dict[str, int] = {}
    for row, text in enumerate(texts):
        if text is not None:
            firsts.setdefault(text, row)
    numbers = {text: number for number, text in enumerate(firsts)}
    return [-1 if text is None else numbers[text] for text in texts], list(firsts.values())


class KeptReference:
    """Counts rows with each word: a dict up to a size, then a count-min sketch with conservative update."""

    def __init__(self, most_words: int, sketch_bits: int) -> None:
        self.most_words, self.bits = most_words, sketch_bits
        self.counts: dict[int, int] = {}
        self.cells = np.zeros((4, 1 << sketch_bits), np.uint32)

    def places(self, word: int) -> list[int]:
        """Returns the cell of a word in each row of the sketch."""
        return [(word * odd & MASK) >> (64 - self.bits) for odd in (K0, K1, K2, K3)]

    def estimate(self, word: int) -> int:
        """Returns a count that is never below that of a word outside the dict."""
        return min(int(self.cells[row, place]) for row, place in enumerate(self.places(word)))

    def add_row(self, words: Iterable[int]) -> None:
        """Counts one row with these words, taken by rising hash."""
        for word in sorted(words):
            if word in self.counts or len(self.counts) < self.most_words:
                self.counts[word] = self.counts.get(word, 0) + 1
                continue
            least = self.estimate(word) + 1
            for row, place in enumerate(self.places(word)):
                self.cells[row, place] = max(int(self.cells[row, place]), least)

    def keeps(self, word: int, least: int, most: float) -> bool:
        """Returns whether a word has enough rows and not too many; a count that was too low is tried on the sketch."""
        if word in self.counts and (least <= self.counts[word] <= most or least <= 1):
            return self.counts[word] <= most
        return least <= max(self.estimate(word), 1 if least <= 1 else 0) <= most


def crossed(a: Features, b: Features, same: bool) -> Features:
    """Returns conjunctions of the features of two namespaces, or of one with itself: there each pair once."""
    pairs = [(x, y) for i, x in enumerate(a) for y in (b[i + 1 :] if same else b)]
    return [(mix(x, y), float(np.float32(u) * np.float32(v))) for (x, u), (y, v) in pairs]


def json_texts(body: bytes) -> list[bytes] | None:
    """Returns the texts of {"rows": [text, ...]} as UTF-8; None for a body of another form."""
    try:
        (pair,) = json.loads(body.decode(), object_pairs_hook=list)
        return [text.encode() for text in pair[1]] if pair[0] == "rows" and type(pair[1]) is list else None
    except (ValueError, TypeError, AttributeError, IndexError):  # UnicodeError is a ValueError
        return None
