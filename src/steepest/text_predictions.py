"""What a text classifier says of texts: scores, probabilities and their calibration, labels, and how good they are."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Self

import numpy as np

from steepest.data.chunk import Array, Chunk, DataError
from steepest.data.parameters import whole
from steepest.data.source import ArraySource, Source
from steepest.learners.temperature import best_sharpness
from steepest.metrics import ClassificationMetrics
from steepest.model import threads
from steepest.text_labels import text_targets
from steepest.text_words import WordModel

SHARE_OF_BEST = 0.5  # several labels under "softmax" and "hs": told if at least this share as likely as the best


class TextPredictions(WordModel):
    """A model that tells labels of texts by an embedding learner."""

    n_jobs: int
    temperature_: float
    _target_names: list[Any] | None
    _label_order: Array  # outputs in the order of classes_
    _places: Array  # where in classes_ each output stands

    # ------------------------------------------------------------------------------------------------ probabilities

    def calibrate_on(self, X: Any, y: Any) -> Self:
        """Divides scores by the temperature under which the labels of these texts, not learned, are most likely."""
        self._check_fitted()
        targets, _ = text_targets(y, self._target_names)
        self._calibrate(ArraySource(replace(self._chunk(X), y=targets)))
        return self

    def _calibrate(self, source: Source) -> None:
        chunks = [self._learner.code_for_scoring(chunk) for chunk in source]
        scores = [self._learner.scores(chunk).astype(np.float64) for chunk in chunks]
        wanted = [self._learner._indicators(chunk.visited(chunk.y)) for chunk in chunks if chunk.y is not None]
        if not scores:
            raise DataError("there are no rows to calibrate on; give some that were not learned")
        z, shares = np.concatenate(scores), np.concatenate(wanted)
        self.temperature_ = 1.0 / best_sharpness(z, shares, self._is_softmax)

    @property
    def _is_softmax(self) -> bool:
        return self._learner.settings.loss in ("softmax", "hs")

    def _probabilities(self, scores: Array) -> Array:
        if self._is_softmax:
            e = self._exponentials(scores)
            return np.asarray(e / e.sum(axis=1, keepdims=True, dtype=np.float64))
        p = 0.5 * (1 + np.tanh(scores.astype(np.float64) / (2 * self.temperature_)))
        if self._learner.several_targets:
            return np.asarray(p)
        total = p.sum(axis=1, keepdims=True)
        return np.asarray(np.where(total > 0, p / np.where(total > 0, total, 1), 1 / p.shape[1]))

    def _exponentials(self, scores: Array) -> Array:
        """What probabilities are proportional to; that of the best label is one."""
        best = scores.max(axis=1, keepdims=True)
        return np.asarray(np.exp((scores - best) * np.float32(1 / self.temperature_)))

    # ------------------------------------------------------------------------------------------------- prediction

    def _ordered(self, scores: Array) -> Array:
        """Scores in the order of `classes_`."""
        return scores if self._learner.several_targets else scores[:, self._label_order]

    def _raw_scores(self, X: Any) -> Array:
        self._check_fitted()
        return self._learner.scores(self._chunk(X), threads(self.n_jobs))

    def decision_function(self, X: Any) -> Array:
        """Scores W h before any link: shape (n, classes), or (n,) for two; under "hs" logarithms of probabilities."""
        scores = self._ordered(self._raw_scores(X))
        if scores.shape[1] == 2 and not self._learner.several_targets:
            return np.asarray(scores[:, 1] - scores[:, 0])
        return scores

    def predict_proba(self, X: Any) -> Array:
        """Probabilities of the classes, shape (n, classes)."""
        return self._probabilities(self._ordered(self._raw_scores(X)))

    def predict_log_proba(self, X: Any) -> Array:
        """Logarithms of the probabilities."""
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(self.predict_proba(X)))

    def predict(self, X: Any) -> Array:
        """The most likely label of every text, or 0/1 columns for several labels."""
        return self._labels_of(self._raw_scores(X))

    def _labels_of(self, scores: Array) -> Array:
        if not self._learner.several_targets:
            return np.asarray(self.classes_.take(self._places[scores.argmax(axis=1)]))
        if not self._is_softmax:
            return (scores >= 0).astype(np.int64)
        behind = -self.temperature_ * math.log(SHARE_OF_BEST)
        return np.asarray(scores >= scores.max(axis=1, keepdims=True) - behind, np.int64)

    def predict_top(self, X: Any, k: int = 5) -> tuple[Array, Array]:
        """(labels, probabilities) of the k most likely labels of each text, best first."""
        k = min(whole("k", k, 1), len(self.classes_)) if hasattr(self, "classes_") else 1
        scores = self._raw_scores(X)
        if k == 1 and self._is_softmax:  # the usual question needs no order, and one probability a text
            best, p = self._places[scores.argmax(axis=1)], 1.0 / self._exponentials(scores).sum(axis=1)
            return np.asarray(self.classes_.take(best[:, None])), np.asarray(p[:, None], np.float64)
        z = self._ordered(scores)
        best = np.argpartition(-z, k - 1, axis=1)[:, :k] if k < z.shape[1] else np.tile(np.arange(k), (len(z), 1))
        order = np.argsort(-np.take_along_axis(z, best, axis=1), axis=1, kind="stable")
        best = np.take_along_axis(best, order, axis=1)
        p = np.take_along_axis(self._probabilities(z), best, axis=1)
        return np.asarray(self.classes_.take(best)), p

    def embed(self, X: Any) -> Array:
        """The texts as points, shape (n, dim): the mean of the rows of their n-grams."""
        self._check_fitted()
        return self._learner.hidden(self._chunk(X), threads(self.n_jobs))

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Accuracy; with several labels a text, the share of texts whose first label is one of theirs (P@1)."""
        targets, _ = text_targets(y, getattr(self, "_target_names", None))
        if targets.ndim == 1:
            return float(np.average(self.predict(X) == targets, weights=sample_weight))
        first = self._raw_scores(X).argmax(axis=1)
        return float(np.average(targets[np.arange(len(first)), first] > 0, weights=sample_weight))

    def _stream_scores(self, source: Source) -> Iterator[tuple[Chunk, Array]]:
        self._check_fitted()
        for chunk in self._hashed(source, learn=False):
            yield chunk, self._learner.scores(chunk, threads(self.n_jobs))

    def predict_stream(self, source: Source, *, proba: bool = False) -> Iterator[Array]:
        """The most likely label of every text (or all probabilities), chunk by chunk."""
        for _, scores in self._stream_scores(source):
            if proba:
                yield self._probabilities(self._ordered(scores))
            else:
                yield np.asarray(self.classes_.take(self._places[scores.argmax(axis=1)]))

    def evaluate_stream(self, source: Source) -> dict[str, Any]:
        """Rows, loss, accuracy and more over a source of labelled texts; P@1 and R@1 with several labels."""
        self._check_fitted()
        if self._learner.several_targets:
            return self._evaluate_labels(source)
        metrics = ClassificationMetrics(self.classes_)
        for chunk, scores in self._stream_scores(source):
            rows, kept = self._known_rows(source, chunk)
            losses, weight = self._learner.losses(rows)
            assert rows.y is not None
            codes = rows.visited(rows.y).astype(np.int64)
            metrics.add(self._places[codes], self._places[scores[kept].argmax(axis=1)], losses, weight)
        if metrics.rows == 0:
            raise DataError("the data holds no rows to evaluate on")
        return metrics.result()

    def _known_rows(self, source: Source, chunk: Chunk) -> tuple[Chunk, Array]:
        """The coded rows whose labels were seen in training, and which they are; the source says what of the others."""
        coded = self._learner.code_for_scoring(chunk)
        assert coded.y is not None
        known = coded.visited(coded.y) >= 0
        if not known.all():
            self._refuse_labels(source, chunk, ~known)
            coded = coded.visit(chunk.row_numbers[known])
        return coded, known

    def _evaluate_labels(self, source: Source) -> dict[str, Any]:
        rows, weight_sum, loss, hits, labels = 0, 0.0, 0.0, 0.0, 0.0
        for chunk, scores in self._stream_scores(source):
            losses, weight = self._learner.losses(self._learner.code_for_scoring(chunk))
            assert chunk.y is not None
            truth = chunk.visited(chunk.y) > 0
            rows, weight_sum, loss = rows + len(truth), weight_sum + float(weight.sum()), loss + float(weight @ losses)
            hits += float(weight @ truth[np.arange(len(truth)), scores.argmax(axis=1)])
            labels += float(weight @ truth.sum(axis=1))
        if not weight_sum:
            raise DataError("the data holds no rows to evaluate on")
        precision = hits / weight_sum
        found = {"rows": rows, "loss": loss / weight_sum, "accuracy": precision}
        return {**found, "precision_at_1": precision, "recall_at_1": hits / labels if labels else 0.0}
