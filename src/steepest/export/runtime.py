"""An exported model in plain Python: features/written.py and this file are copied in front of the model's data.

It needs nothing but Python, and follows native/text step by step: values, words, frozen hash, sums by bucket, weights
and length of texts, scores.
Values of a row are rounded to 32 bits where the kernels round them; sums of scores have 64 bits. It is meant for places
where nothing can be installed, and as the definition that the exported C is tested against; it is not fast.
"""

from __future__ import annotations

import base64
import bisect
import json
import math
import re
import struct
import sys
import zlib
from array import array
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from steepest.features.written import read_number, seconds_of

MASK = (1 << 64) - 1
K0, K1, K2, K3 = 0x243F6A8885A308D3, 0x13198A2E03707345, 0xA4093822299F31D1, 0x9E3779B97F4A7C15
CHARACTER_MARK = 0x3C3E
INVISIBLE = (0xAD, 0x200C, 0x200D, 0x2060, 0xFEFF)
TRUTH_VALUES = ("true", "false", "TRUE", "FALSE")
MARKS = (b"", b"?", b"-", b"na", b"n/a", b"nan", b"null", b"none", b"<na>", b"#n/a")  # of a missing category
NO_NUMBER = (*(mark.decode() for mark in MARKS), "unknown")
LARGEST = 3.4028234663852886e38  # of 32 bits
TINY = 1e-15  # the least share of a class
FLOAT = struct.Struct("<f")


def single(x: float) -> float:
    """The nearest 32-bit number."""
    return float(FLOAT.unpack(FLOAT.pack(x))[0])


def fold(a: int, b: int) -> int:
    """High ^ low half of the product."""
    product = a * b
    return (product >> 64) ^ (product & MASK)


def scramble(a: int, b: int, p: int, q: int) -> int:
    """The second round of a hash."""
    product = a * b
    return fold((product & MASK) ^ p, (product >> 64) ^ q)


def hash_bytes(text: bytes, key: int) -> int:
    """The frozen hash "steepest-1"."""
    size, end = len(text), text
    if size > 16:
        for start in range(0, size - 16, 16):
            a, b = struct.unpack_from("<QQ", text, start)
            key ^= fold(a ^ K2, b ^ K0 ^ key)
        end = text[-16:]
    a, b = struct.unpack("<QQ", end.ljust(16, b"\0"))
    return scramble(a ^ K0, b ^ K1 ^ key, K2 ^ size, K3)


def mix(a: int, b: int) -> int:
    """The hash of a pair of hashes."""
    return scramble(a ^ K1, b ^ K2, K0, K3)


def is_ideograph(code: int) -> bool:
    """Han characters are words by themselves."""
    return (
        0x4E00 <= code <= 0x9FFF or 0x3400 <= code <= 0x4DBF or 0xF900 <= code <= 0xFAFF or 0x20000 <= code <= 0x3FFFF
    )


def unpack(kind: str, text: str) -> Any:
    """An array of the data; `kind` is its letter in the module array."""
    values = array(kind, zlib.decompress(base64.b85decode(text)))
    if sys.byteorder == "big":
        values.byteswap()
    return values


class Words:
    """Texts to words: runs of letters, marks, numbers and "_", folded to lower case."""

    def __init__(self, edges: Any, folds: Any, lowercase: bool, min_letters: int) -> None:
        self.edges = edges  # where runs of other characters and of word characters begin, in turn
        self.folds = [tuple(folds[k : k + 4]) for k in range(0, len(folds), 4)]  # first, last, stride, difference
        self.firsts = [first for first, *_ in self.folds]
        self.lowercase, self.min_letters = lowercase, min_letters

    def is_word(self, code: int) -> bool:
        """Whether a character belongs to words."""
        if code < 0x80:
            return chr(code).isalnum() or code == 0x5F
        return bisect.bisect_right(self.edges, code) % 2 == 0

    def folded(self, code: int) -> int:
        """A character of a word in lower case."""
        if code < 0x80:
            return code | 0x20 if 0x41 <= code <= 0x5A else code
        place = bisect.bisect_right(self.firsts, code) - 1
        if place >= 0:
            first, last, stride, difference = self.folds[place]
            if code <= last and (code - first) % stride == 0:
                return code + int(difference)
        return code

    def split(self, text: str | bytes) -> list[bytes]:
        """The words of a text in UTF-8."""
        # Each byte that is not UTF-8 separates words: it is decoded to a lone surrogate, which no word holds.
        letters = text.decode("utf-8", "surrogateescape") if isinstance(text, bytes) else text
        found: list[bytes] = []
        word: list[str] = []

        def end() -> None:
            if len(word) >= self.min_letters:
                found.append("".join(word).encode("utf-8", "surrogatepass"))
            word.clear()

        for letter in letters:
            code = ord(letter)
            if is_ideograph(code):
                end()
                if self.is_word(code):  # some of them are not assigned
                    found.append(chr(self.folded(code) if self.lowercase else code).encode())
            elif code in INVISIBLE:
                continue
            elif self.is_word(code):
                word.append(chr(self.folded(code)) if self.lowercase else letter)
            else:
                end()
        end()
        return found


def read_value(column: Mapping[str, Any], value: Any) -> Any:
    """A value as people give it: None if it is missing; a text for texts, categories and lists; else a number.

    Dates become seconds since 1970.
    """
    if getattr(value, "ndim", None) == 0:  # a number of NumPy
        value = value.item()
    missing = value is None or type(value).__name__ in ("NAType", "NaTType")
    if missing or (isinstance(value, float) and value != value):
        return None
    if column["part"]:
        found = seconds_of(value, column["format"])
        return found if math.isfinite(found) else None
    if column["kind"] == "number":
        return _number(column, value)
    if column["kind"] == "list" and not isinstance(value, str | bytes) and isinstance(value, Iterable):
        return "\x1f".join(decoded(text) for part in value if (text := written(part)) is not None)
    text = written(value)
    return text.capitalize() if column["format"] == "boolean" and text in TRUTH_VALUES else text


def _number(column: Mapping[str, Any], value: Any) -> float | None:
    """As the package reads it: what does not fit is missing, unless the user named the kind."""
    marked = isinstance(value, str | bytes) and (column["format"] or not column["strict"])
    try:
        number = read_number(decoded(value))[0] if marked else float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if math.isnan(number) and column["strict"] and not (marked and decoded(value).strip().lower() in NO_NUMBER):
        raise ValueError(f"column {column['origin']!r} is {value!r}, not a number; clean it")
    if not marked and abs(number) > LARGEST:
        raise ValueError(f"column {column['origin']!r} is {value!r}; clip infinity or large values")
    return number if math.isfinite(number) else None


def decoded(text: str | bytes) -> str:
    """A text as str."""
    return text.decode("utf-8", "replace") if isinstance(text, bytes) else text


def written(value: Any) -> str | bytes | None:
    """A category as text: 17, 17.0 and "17" are one; None if it is missing."""
    if getattr(value, "ndim", None) == 0:
        value = value.item()
    if value is None or isinstance(value, str | bytes):
        return value
    if isinstance(value, float):
        if value != value:
            return None
        return str(int(value)) if abs(value) < 2.0**53 and value == int(value) else repr(value)
    return str(value)


def date_part(seconds: float, part: str) -> float:
    """One part of a time; days count from 1970-01-01, weekdays from Monday."""
    days = math.floor(seconds / 86400)
    if part == "days":
        return seconds / 86400
    if part == "weekday":
        return float((days + 3) % 7)
    if part == "hour":
        return float(math.floor(seconds % 86400 / 3600))
    # Years begin with March here, so that the day that may be missing is their last; 400 of them have 146097 days.
    era, rest = divmod(days + 719468, 146097)
    year = (rest - rest // 1460 + rest // 36524 - rest // 146096) // 365
    rest -= 365 * year + year // 4 - year // 100
    month = (5 * rest + 2) // 153
    if part == "day":
        return float(rest - (153 * month + 2) // 5 + 1)
    late = month >= 10  # January and February
    return float(month - 9 if late else month + 3) if part == "month" else float(400 * era + year + late)


class Hasher:
    """Raw rows to sums by bucket."""

    def __init__(self, plan: Mapping[str, Any], counts: Mapping[int, int]) -> None:
        self.plan, self.counts = plan, counts
        self.default_count = plan["default_count"]
        self.log_rows = 1 + math.log1p(plan["n_documents"])
        self.columns = plan["columns"]
        tables = plan["tables"]
        self.words = Words(unpack("I", tables[0]), unpack("i", tables[1]), plan["lowercase"], plan["min_letters"])
        self.stop_words = [set(column["stop_words"]) for column in self.columns]
        self.copy_value = single(1 / math.sqrt(plan["copies"]))

    def row(self, given: Any) -> dict[int, float]:
        """One row: a text where the model has one column, else a dict of columns."""
        if not isinstance(given, Mapping):
            if len(self.columns) > 1:
                names = dict.fromkeys(repr(column["origin"]) for column in self.columns)
                raise ValueError(f"give a dict of the columns {', '.join(names)}")
            given = {self.columns[0]["origin"]: given}
        sums: dict[int, float] = {}
        found = []
        for place, column in enumerate(self.columns):
            value = read_value(column, given.get(column["origin"]))
            features = self._features(place, value)
            is_text = column["kind"] == "text" and (value is not None or self.plan["one_text"])
            found.append((features, is_text))
            self._add(sums, [(code, worth) for code, worth, _ in features], is_text, 1.0)
        for a, b in self.plan["crosses"]:
            self._cross(sums, *found[a], *found[b])
        return sums

    def _features(self, place: int, value: Any) -> list[tuple[int, float, bool]]:
        """(hash, what it is worth, whether it takes part in crosses) of one column."""
        column = self.columns[place]
        if value is None:
            return [(column["missing"], 1.0, True)]
        if column["kind"] == "number":
            return self._number_features(column, date_part(value, column["part"]) if column["part"] else value)
        if column["kind"] == "text":
            return [(code, 1.0, True) for code in self._text_features(place, value)]
        text = value if isinstance(value, bytes) else value.encode("utf-8", "surrogatepass")
        if text.lower() in MARKS:
            return [(column["missing"], 1.0, True)]
        between = column["separators"].encode()
        cut = re.split(b"[" + re.escape(between) + b"]", text) if between else [text]
        parts = [part.strip(b" ") for part in cut if part.strip(b" ")]
        share = single(1 / math.sqrt(len(parts))) if parts else 0.0
        if column["kind"] == "list":
            return [(self._labelled(column["label"], part), share, True) for part in parts]
        whole = [(self._labelled(column["label"], text), 1.0, True)]
        if len(parts) < 2:
            return whole
        return whole + [(self._labelled(f"{column['name']}:", part), share, False) for part in parts]

    def _labelled(self, label: str, value: bytes) -> int:
        return hash_bytes(label.encode() + value, self.plan["seed_key"])

    def _number_features(self, column: Mapping[str, Any], number: float) -> list[tuple[int, float, bool]]:
        """The line, and the hats where there are knots; only these take part in crosses then."""
        knots, hats = column["knots"], column["hats"]
        line = single((number - column["centre"]) / column["scale"])
        found = [(column["number"], line, not knots)] if line else []
        if not knots:
            return found
        after = bisect.bisect_right(knots, number)
        if after in (0, len(knots)) or number == knots[after - 1]:
            return [*found, (hats[max(after - 1, 0)], 1.0, True)]
        t = (number - knots[after - 1]) / (knots[after] - knots[after - 1])
        return [*found, (hats[after - 1], single(1 - t), True), (hats[after], single(t), True)]

    def _text_features(self, place: int, text: str | bytes) -> Iterator[int]:
        key = self.columns[place]["key"]
        words = [(word, hash_bytes(word, key)) for word in self.words.split(text)]
        words = [(word, code) for word, code in words if code not in self.stop_words[place]]
        low, high = self.plan["ngrams"]
        grams = hashes = [code for _, code in words]
        for n in range(1, high + 1):
            if n > 1:
                grams = [mix(gram, last) for gram, last in zip(grams, hashes[n - 1 :], strict=False)]
            if n >= low:
                yield from grams
        low, high = self.plan["char_ngrams"]
        for word, _ in words if high else ():
            letters = f"<{word.decode('utf-8', 'surrogatepass')}>"
            for n in range(min(low, len(letters)), min(high, len(letters)) + 1):
                for k in range(n == 1, len(letters) - n + (n != 1)):
                    yield hash_bytes(letters[k : k + n].encode("utf-8", "surrogatepass"), key ^ CHARACTER_MARK)

    def _cross(self, sums: dict[int, float], left: Any, left_text: bool, right: Any, right_text: bool) -> None:
        """Pairs of features, worth the product; words with each feature of another column are a text by themselves."""
        first, second = ([(code, worth) for code, worth, crossed in side if crossed] for side in (left, right))
        if left_text and right_text:
            self._add(sums, [(mix(a, b), 1.0) for a, _ in first for b, _ in second], True, 1.0)
        elif right_text:
            for a, worth in first:
                self._add(sums, [(mix(a, b), 1.0) for b, _ in second], True, worth)
        elif left_text:
            for b, worth in second:
                self._add(sums, [(mix(a, b), 1.0) for a, _ in first], True, worth)
        else:
            pairs = [(mix(a, b), single(u * v)) for b, v in second for a, u in first]
            self._add(sums, pairs, False, 1.0)

    def _add(self, sums: dict[int, float], features: list[tuple[int, float]], is_text: bool, factor: float) -> None:
        """Words are added up and weighed by themselves first; all else counts as it is."""
        into: dict[int, float] = {} if is_text else sums
        mask, signed = (1 << self.plan["n_bits"]) - 1, self.plan["signed"]
        for code, worth in features:
            value = worth if is_text else single(worth * self.copy_value)
            for copy in range(self.plan["copies"]):
                own = mix(code, copy * K3 & MASK) if copy else code
                bucket = own >> 32 & mask
                into[bucket] = single(into.get(bucket, 0.0) + (-value if signed and own >> 63 else value))
        if is_text:
            self._weigh(into)
            for bucket, x in into.items():
                sums[bucket] = single(sums.get(bucket, 0.0) + single(x * factor))

    def _weigh(self, sums: dict[int, float]) -> None:
        weighting, use_counts = self.plan["weighting"], self.plan["uses_counts"]
        blocked = list(sums.items())
        sums.clear()
        for bucket, x in blocked:
            if weighting == 1:
                x = float((x > 0) - (x < 0))
            elif weighting == 2 and x and abs(x) != 1:
                x = math.copysign(single(1 + single(math.log(abs(x)))), x)
            if use_counts:
                count = self.counts.get(bucket, self.default_count)
                if count < self.plan["min_rows"]:
                    continue
                x = single(x * (self.log_rows - math.log1p(count)))
            sums[bucket] = x
        factor = 1 / math.sqrt(self.plan["copies"])
        if self.plan["normalise"]:
            squares, values = [0.0] * 4, list(sums.values())
            whole = len(values) - len(values) % 4
            for k, x in enumerate(values):
                squares[k % 4 if k < whole else 0] += x * x
            square = (squares[0] + squares[1]) + (squares[2] + squares[3])
            factor = 1 / math.sqrt(square) if square > 0 else 1.0
        if (short := single(factor)) != 1:
            for bucket, x in sums.items():
                sums[bucket] = single(x * short)


class Scorer:
    """Scores, probabilities and predictions of rows."""

    def __init__(self, data: Mapping[str, Any]) -> None:
        self.data = data
        self.classes: list[Any] | None = data["classes"]
        self.width = data["width"]
        features = unpack("i", data["features"])
        self.place = dict(zip(features, range(len(features)), strict=True))
        self.rows, self.bias = unpack("f", data["rows"]), unpack("d", data["bias"])
        self.head, self.end = unpack("f", data["head"]), unpack("f", data["end"])
        counts = unpack("I", data["counts"])
        self.hasher = Hasher(data["hashing"], dict(zip(features, counts, strict=False))) if data["hashing"] else None

    def row(self, given: Any) -> Mapping[int, float]:
        """{feature: value}: of raw columns if the model has a hasher, else of pairs or of a list of numbers."""
        if self.hasher is not None:
            return self.hasher.row(given)
        pairs = given.items() if isinstance(given, Mapping) else enumerate(given)
        return {int(j): single(float(x)) for j, x in pairs if x}

    def scores(self, given: Any) -> list[float]:
        """Raw scores: one for two classes or one target, else one per class."""
        row, width, rows = self.row(given), self.width, self.rows
        sums = [0.0] * width
        for j, x in row.items():
            place = self.place.get(j)
            if place is not None:
                for k in range(width):
                    sums[k] += rows[place * width + k] * x
        if not len(self.head):
            return [total + b for total, b in zip(sums, self.bias, strict=True)]
        mass = 1.0
        for x in row.values():
            mass += abs(x)
        hidden = [(total + end) / mass for total, end in zip(sums, self.end, strict=True)]
        n = len(self.head) // width
        found = [0.0] * n
        for o in range(n):
            for k in range(width):
                found[o] += self.head[o * width + k] * hidden[k]
        return found

    def size(self, given: Any) -> float:
        """The sum of the sizes of what is added up to a score, the largest of all scores."""
        sizes = [0.0] * self.width
        for j, x in self.row(given).items():
            place = self.place.get(j, -1)
            for k in range(self.width if place >= 0 else 0):
                sizes[k] += abs(self.rows[place * self.width + k] * x)
        return max(sizes, default=0.0)

    def probabilities(self, given: Any) -> list[float]:
        """One per class, in the order of `classes`."""
        return self.probabilities_of(self.scores(given))

    def probabilities_of(self, scores: list[float]) -> list[float]:
        """Probabilities of the classes from their scores."""
        link, slope = self.data["link"], self.data["slope"]
        if link not in ("softmax", "sigmoid", "clip"):
            raise ValueError("this model gives no probabilities")
        if link == "softmax":
            top = max(scores)
            powers = [math.exp((s - top) * slope) for s in scores]
            return [p / sum(powers) for p in powers]
        each = [_probability(link, slope * s + self.data["shift"]) for s in scores]
        if len(each) == 1 and not self.data["several"]:
            return [1 - each[0], each[0]]
        total = sum(each)
        if self.data["several"]:
            return each
        shares = [p / total if total > 0 else 1 / len(each) for p in each]
        if self.data["power"] == 1:
            return shares
        top = max(shares)
        powers = [(max(p, TINY) / top) ** self.data["power"] for p in shares]
        return [p / sum(powers) for p in powers]

    def predict(self, given: Any) -> Any:
        """The class, the list of labels, or the number."""
        scores = self.scores(given)
        if self.classes is None:
            found = [math.exp(s) for s in scores] if self.data["link"] == "exp" else scores
            return found[0] if len(found) == 1 else found
        if self.data["several"]:
            labels = [label for label, s in zip(self.classes, scores, strict=True) if s > 0]
            return labels or ([] if self.data["bare"] else [self.classes[scores.index(max(scores))]])
        if len(scores) == 1:
            return self.classes[int(scores[0] > 0)]
        return self.classes[scores.index(max(scores))]


def _probability(link: str, z: float) -> float:
    if link == "clip":
        return min(1.0, max(0.0, (z + 1) / 2))
    e = math.exp(-abs(z))
    return (e if z < 0 else 1.0) / (1.0 + e)


class Factors:
    """Predicted ratings of pairs, and the best items of a user."""

    def __init__(self, data: Mapping[str, Any]) -> None:
        self.data, self.rank = data, data["rank"]
        self.users, self.items = ({name: k for k, name in enumerate(data[side])} for side in ("user_ids", "item_ids"))
        self.user_rows, self.item_rows = unpack("f", data["users"]), unpack("f", data["items"])  # bias first

    def score(self, user: Any, item: Any) -> float:
        """The raw score; an unknown user or item counts with nothing."""
        u, i, n = self.users.get(user), self.items.get(item), self.rank + 1
        total = self.data["offset"]
        if u is not None:
            total += self.user_rows[u * n]
        if i is not None:
            total += self.item_rows[i * n]
        if u is not None and i is not None:
            for k in range(1, n):
                total += self.user_rows[u * n + k] * self.item_rows[i * n + k]
        return float(total * self.data["scale"] + self.data["mean"])

    def predict(self, user: Any, item: Any) -> float:
        """The rating, within the range of those seen; or the probability."""
        score = self.score(user, item)
        if self.data["link"] == "sigmoid":
            return _probability("sigmoid", score)
        return float(min(self.data["high"], max(self.data["low"], score)))

    def recommend(self, user: Any, k: int = 10) -> list[tuple[Any, float]]:
        """The k items of the highest score, whether the user knows them or not."""
        scored = [(item, self.score(user, item)) for item in self.items]
        return sorted(scored, key=lambda pair: -pair[1])[:k]


def load(text: str) -> Any:
    """The model of a JSON text."""
    data = json.loads(text)
    return Factors(data) if data["family"] == "factors" else Scorer(data)


def answer(model: Any, line: str) -> Any:
    """The prediction for one line: a text, a JSON object of columns or pairs, or [user, item]."""
    if isinstance(model, Factors):
        return model.predict(*json.loads(line))
    if model.hasher is not None and len(model.hasher.columns) == 1 and not line.startswith("{"):
        return model.predict(line)
    return model.predict(json.loads(line))
