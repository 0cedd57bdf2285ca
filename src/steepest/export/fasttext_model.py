"""A supervised model of fastText, read from its `.bin` file, with fastText's own words, hashes and probabilities.

The file: magic and version, twelve integers and a double of arguments, the dictionary, and two dense float32 matrices.
A text is the mean of the rows of its words, their character n-grams and its word n-grams, all of which end with "</s>".
Bojanowski, Grave, Joulin and Mikolov (2017), and the file's writer (fasttext.cc, dictionary.cc, version 12). Left out:
quantized models (`.ftz`) and unsupervised ones.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable
from typing import Any

import numpy as np

from steepest.data.chunk import Array

MAGIC, VERSIONS = 793712314, (11, 12)
END, SPACES = b"</s>", b" \n\r\t\v\f\0"
SUPERVISED = 3
LOSSES = {1: "hs", 2: "ns", 3: "softmax", 4: "ova"}
WORD, LABEL = 0, 1
ARGUMENTS = ("dim", "ws", "epoch", "min_count", "neg", "ngrams", "loss", "model", "bucket", "minn", "maxn", "rate")
MASK = (1 << 64) - 1


class FastTextModel:
    """Predicts labels and probabilities of texts; `classes_` in fastText's order, the most frequent label first."""

    def __init__(self, arguments: dict[str, int], words: list[bytes], labels: list[bytes], counts: list[int]) -> None:
        self.arguments = arguments
        self.loss = LOSSES[arguments["loss"]]
        self.words = {word: place for place, word in enumerate(words)}
        self.classes_ = np.array([label.decode("utf-8", "replace") for label in labels])
        self.rows = self.head = np.zeros((0, 0), np.float32)
        self.tree = _tree(counts) if self.loss == "hs" else []

    @classmethod
    def from_bytes(cls, content: bytes) -> FastTextModel:
        """Builds the model from a file's content."""
        reader = _Reader(content)
        magic, version = reader.take("ii")
        if magic != MAGIC or version not in VERSIONS:
            raise ValueError("it does not begin as such a file does")
        arguments = dict(zip(ARGUMENTS, reader.take("12i"), strict=True))
        reader.take("d")
        if arguments["model"] != SUPERVISED:
            raise ValueError("it was trained without labels")
        if arguments["loss"] not in LOSSES:
            raise ValueError(f"its loss has the number {arguments['loss']}")
        if version == 11:  # supervised models of that version had no character n-grams
            arguments["maxn"] = 0
        size, n_words, n_labels = reader.take("iii")
        _, pruned = reader.take("qq")
        if size != n_words + n_labels or n_labels < 1:
            raise ValueError("its dictionary has impossible sizes")
        if pruned > 0:
            raise ValueError("it is pruned, which only quantized models are")
        entries = [(reader.text(), *reader.take("qb")) for _ in range(size)]
        labels = [(text, count) for text, count, kind in entries if kind == LABEL]
        model = cls(
            arguments,
            [text for text, _, kind in entries if kind == WORD],
            [text for text, _ in labels],
            [count for _, count in labels],
        )
        model.rows, model.head = reader.matrix(), reader.matrix()
        n_rows = len(model.words) + arguments["bucket"]
        if model.rows.shape not in ((n_rows, arguments["dim"]), (len(model.words), arguments["dim"])):
            raise ValueError(f"its rows have the shape {model.rows.shape}")
        if model.head.shape != (len(labels), arguments["dim"]):
            raise ValueError(f"its labels have the shape {model.head.shape}")
        return model

    def features(self, text: str) -> list[int]:
        """Returns the rows of a text's words, character n-grams and word n-grams."""
        found: list[int] = []
        hashes: list[int] = []
        table = bytes.maketrans(SPACES, b" " * len(SPACES))
        for word in [*text.encode("utf-8", "surrogatepass").translate(table).split(b" "), END]:
            if not word or (word not in self.words and word.startswith(b"__label__")):
                continue
            place = self.words.get(word, -1)
            if place >= 0:
                found.append(place)
            if self.arguments["maxn"] > 0 and word != END:
                found += self._grams(b"<" + word + b">")
            hashes.append(_hash(word))
            if word == END:
                break
        signed = [code - (1 << 32) if code >> 31 else code for code in hashes]
        for i, first in enumerate(signed):
            code = first & MASK
            for other in signed[i + 1 : i + self.arguments["ngrams"]]:
                code = (code * 116049371 + other) & MASK
                found.append(len(self.words) + code % self.arguments["bucket"])
        return found

    def _grams(self, word: bytes) -> Iterable[int]:
        starts = [k for k, byte in enumerate(word) if byte & 0xC0 != 0x80] + [len(word)]
        for i in range(len(starts) - 1):
            for n in range(1, self.arguments["maxn"] + 1):
                if i + n >= len(starts):
                    break
                at_edge = n == 1 and (i == 0 or i + n == len(starts) - 1)
                if n >= self.arguments["minn"] and not at_edge:
                    code = _hash(word[starts[i] : starts[i + n]])
                    yield len(self.words) + code % self.arguments["bucket"]

    def embed(self, X: Iterable[str]) -> Array:
        """Returns the vectors of texts: the means of their rows."""
        texts = list(X)
        points = np.zeros((len(texts), self.arguments["dim"]), np.float32)
        for number, text in enumerate(texts):
            features = self.features(text)
            if features:
                points[number] = self.rows[features].sum(axis=0, dtype=np.float32) / np.float32(len(features))
        return points

    def predict_proba(self, X: Iterable[str]) -> Array:
        """Returns probabilities of the labels (of each by itself under "ova" and "ns"), shape (n, classes)."""
        scores = self.embed(X).astype(np.float64) @ self.head.T.astype(np.float64)
        if self.loss == "softmax":
            e = np.exp(scores - scores.max(axis=1, keepdims=True))
            return np.asarray(e / e.sum(axis=1, keepdims=True))
        if self.loss == "hs":
            return self._leaves(1 / (1 + np.exp(-np.clip(scores, -500, 500))))
        return _table_sigmoid(scores)

    def _leaves(self, p: Array) -> Array:
        """Returns the products along the tree: p of node k to the right, 1 - p to the left."""
        n = len(self.classes_)
        found = np.ones((len(p), 2 * n - 1))
        for node in range(2 * n - 2, n - 1, -1):
            left, right = self.tree[node - n]
            found[:, left] = found[:, node] * (1 - p[:, node - n])
            found[:, right] = found[:, node] * p[:, node - n]
        return found[:, :n]

    def predict(self, X: Iterable[str]) -> Array:
        """Returns the most likely label of every text."""
        return np.asarray(self.classes_[self.predict_proba(X).argmax(axis=1)])

    def score(self, X: Iterable[str], y: Any) -> float:
        """Returns the share of texts whose most likely label is theirs."""
        return float(np.mean(self.predict(X) == np.asarray(y)))


class _Reader:
    """Reads numbers, texts and matrices of a file, one behind the other."""

    def __init__(self, content: bytes) -> None:
        self.content, self.place = content, 0

    def take(self, kinds: str) -> tuple[Any, ...]:
        form = struct.Struct("<" + kinds)
        found = form.unpack_from(self.content, self.place)
        self.place += form.size
        return found

    def text(self) -> bytes:
        end = self.content.index(b"\0", self.place)
        found = self.content[self.place : end]
        self.place = end + 1
        return found

    def matrix(self) -> Array:
        (quantized,) = self.take("?")
        if quantized:
            raise ValueError("it is quantized; give the .bin file from before")
        n_rows, n_columns = self.take("qq")
        size = n_rows * n_columns
        if n_rows < 0 or n_columns < 0 or 4 * size > len(self.content) - self.place:
            raise ValueError("it is cut short")
        found = np.frombuffer(self.content, "<f4", size, self.place).reshape(n_rows, n_columns)
        self.place += 4 * size
        return found


def _table_sigmoid(scores: Array) -> Array:
    """Returns fastText's own sigmoid: a table of 512 steps from -8 to 8, 0 and 1 beyond."""
    step = ((np.clip(scores, -8, 8) + 8) * 32).astype(np.int64)
    inside = 1 / (1 + np.exp(-(step / 32 - 8)))
    return np.asarray(np.where(scores < -8, 0.0, np.where(scores > 8, 1.0, inside)))


def _hash(word: bytes) -> int:
    """Returns FNV-1a of 32 bits, with bytes as signed numbers as fastText takes them."""
    code = 2166136261
    for byte in word:
        code = (code ^ (byte if byte < 128 else byte | 0xFFFFFF00)) * 16777619 & 0xFFFFFFFF
    return code


def _tree(counts: list[int]) -> list[tuple[int, int]]:
    """Returns (left, right) of every inner node of fastText's Huffman tree; counts fall."""
    n = len(counts)
    weights = [float(count) for count in counts] + [math.inf] * (n - 1)
    children = []
    leaf, node = n - 1, n
    for inner in range(n, 2 * n - 1):
        pair = []
        for _ in range(2):
            if leaf >= 0 and weights[leaf] < weights[node]:
                pair.append(leaf)
                leaf -= 1
            else:
                pair.append(node)
                node += 1
        weights[inner] = weights[pair[0]] + weights[pair[1]]
        children.append((pair[0], pair[1]))
    return children
