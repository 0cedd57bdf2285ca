"""Words of a text classifier: their vectors out and in, their neighbours, and what they speak for."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from steepest.data.chunk import Array, DataError
from steepest.data.parameters import whole
from steepest.learners.embedding import EmbeddingLearner
from steepest.model import StreamModel
from steepest.vectors import read_vectors, write_vectors


class WordModel(StreamModel):
    """A model of raw texts whose features have vectors."""

    names: int
    pretrained: Any
    classes_: Array
    _learner: EmbeddingLearner

    @abstractmethod
    def _ordered(self, scores: Array) -> Array:
        """Scores in the order of `classes_`."""

    def vector(self, word: str) -> Array:
        """The mean of the rows of a word and its character n-grams; zeros if none was ever seen."""
        return np.asarray(self._word_vectors([word])[0])

    def _word_vectors(self, words: Sequence[str]) -> Array:
        self._check_fitted()
        column = next((name for name, kind in self.hasher_.columns_ if kind == "text"), None)
        if column is None:
            raise DataError("this model was trained on columns without texts, so it has no words")
        single = len(self.hasher_.columns_) == 1
        chunk = self.hasher_.to_chunk(list(words) if single else [{column: word} for word in words])
        mass = np.add.reduceat(np.append(np.abs(chunk.values), 0.0), chunk.indptr[:-1])
        mass = np.where(np.diff(chunk.indptr) > 0, mass, 0.0)[:, None]
        hidden = self._learner.hidden(chunk) * (1 + mass) - self._learner.weights()[1]
        return np.asarray(np.where(mass > 0, hidden / np.maximum(mass, 1e-30), 0.0), np.float32)

    def words(self) -> list[str]:
        """The words that are known by name, in alphabetical order."""
        self._check_fitted()
        book = getattr(self.hasher_, "names_", None)
        if book is None:
            raise DataError(f"names={self.names} keeps no words by name; train with names=10000, say")
        found = {name for names in book.names_of(book.buckets()) for name in names}
        return sorted(name for name in found if name.isprintable() and not set(name) & set(" '=:#<"))

    def nearest(self, word: str, k: int = 10) -> list[tuple[str, float]]:
        """The k known words whose vectors point most in the same direction, with the cosines."""
        words = [other for other in self.words() if other != word]
        here = self.vector(word).astype(np.float64)
        if not here.any():
            raise DataError(f"the word {word!r} was never seen in training; choose another")
        vectors = self._word_vectors(words).astype(np.float64)
        norms = np.linalg.norm(vectors, axis=1) * np.linalg.norm(here)
        cosines = np.where(norms > 0, vectors @ here / np.where(norms > 0, norms, 1), -1.0)
        best = np.argsort(-cosines, kind="stable")[: whole("k", k, 1)]
        return [(words[n], float(cosines[n])) for n in best]

    def save_vectors(self, path: str | Path, words: Iterable[str] | None = None) -> None:
        """Writes vectors of words (those known by name, if none are given) as a `.vec` text file."""
        chosen = self.words() if words is None else list(words)
        write_vectors(path, chosen, self._word_vectors(chosen))

    def _use_pretrained(self, learner: EmbeddingLearner) -> None:
        if self.pretrained is None:
            return
        words, vectors = read_vectors(self.pretrained, learner.settings.dim)
        places = {word: place for place, word in enumerate(words)}
        rows = {}
        for word, place in places.items():
            try:
                rows[self.hasher_.bucket(word)] = place
            except DataError:  # no word in our sense, a punctuation mark for example
                continue
        buckets = np.array(sorted(rows), np.int32)
        learner.put_rows(buckets, vectors[[rows[bucket] for bucket in buckets.tolist()]])

    def top_features(self, k: int = 20) -> dict[Any, list[tuple[str, float]]]:
        """The k known words that speak most for each label, with the score of a text that holds nothing else."""
        words = self.words()
        scores = self._ordered(self._learner.scores(self.hasher_.to_chunk(words))) if words else np.zeros((0, 1))
        scores = scores - scores.mean(axis=1, keepdims=True)
        found = {}
        for place, label in enumerate(self.classes_.tolist()):
            best = np.argsort(-scores[:, place], kind="stable")[:k].tolist() if words else []
            found[label] = [(words[n], float(scores[n, place])) for n in best]
        return found
