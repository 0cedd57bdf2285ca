"""Text classifiers that learn their words: a scikit-learn face on a source, the embedding learner and the loop.

Words, word n-grams and character n-grams are hashed to rows of `dim` numbers, a text is the mean of its rows, and a
linear head gives its labels: P = softmax(W h), or one of the other losses for many labels or several of them.
`fit(X, y)` is exactly `fit_stream` over the same rows. Vectors of words come out, and in from `.vec` files.

What "auto" means follows from the data, each with a sentence that says why. The limits were chosen on held-out parts of
the training rows of nine data sets, see docs/models/text.md. None depends on the number of threads, so neither do the
bits.
"""

from __future__ import annotations

import math
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

from steepest import model_file
from steepest.data.chunk import Array, Chunk
from steepest.data.source import SHUFFLES, ArraySource, Source
from steepest.data.store.row_store import store_rows
from steepest.engine.history import History
from steepest.errors import DataError, ParameterError
from steepest.features.hasher import Hasher
from steepest.features.names import NAMES
from steepest.learners.base import State
from steepest.learners.embedding.embedding import LOSSES, EmbeddingLearner, EmbeddingSettings
from steepest.learners.embedding.quantized import bytes_of_rows, pack_rows, rows_by_weight, unpack_rows
from steepest.models.base import HASHER, Run, load
from steepest.models.calibration import Recent, fit_temperature
from steepest.models.memory import parse_bytes, shown
from steepest.models.options import Option, Replicas
from steepest.models.supervised import Classifier, class_targets
from steepest.models.vectors import dim_of_vectors, read_vectors, write_vectors
from steepest.parameters import at_least, choice, inside, number, whole

LONGEST_ROW = 4096
PARALLEL = ("auto", "serial", "replicas", "hogwild")
SCHEDULES = ("auto", "linear", "invsqrt")
SHARE_OF_BEST = 0.5  # several labels under "softmax" and "hs": given if at least this share as likely as the best
TEXTS_TO_LEARN = 250_000  # in all epochs together
FEWEST_EPOCHS, MOST_EPOCHS = 5, 50
MANY_LABELS, VERY_MANY_LABELS = 32, 256
LEAST_TEXTS = 10_000  # below, replicas do not pay
ROUND_FEATURES = 1536  # of a replica: their rows stay in the cache, and little is learned from old ones
FEWEST_TEXTS_EACH, MOST_TEXTS_EACH = 2, 16


class LabelSurvey:
    """What one pass over the labels has found before learning."""

    def __init__(self, source: Source | None = None) -> None:
        self.n_rows = 0
        self.n_entries = 0  # features of all rows
        self.n_columns = 0  # of a target with a 0/1 column for each label
        self.column_counts: Array = np.zeros(0)
        self.label_counts: dict[Any, float] = {}
        for chunk in source.in_file_order() if source is not None else ():
            if chunk.y is None:
                raise DataError("the data holds no labels to learn; name their column")
            self._add(chunk.visited(chunk.y))
            self.n_entries += int(chunk.visited(np.diff(chunk.indptr)).sum())

    def _add(self, y: Array) -> None:
        self.n_rows += len(y)
        if y.ndim == 2:
            self.n_columns = y.shape[1]
            self.column_counts = (self.column_counts if len(self.column_counts) else 0.0) + (y > 0).sum(axis=0)
            return
        values, counts = np.unique(y, return_counts=True)
        for value, count in zip(values.tolist(), counts.tolist(), strict=True):
            self.label_counts[value] = self.label_counts.get(value, 0.0) + count

    @property
    def n_labels(self) -> int:
        """The number of labels."""
        return self.n_columns or len(self.label_counts)

    @property
    def labels(self) -> list[Any]:
        """All labels, sorted; empty for 0/1 columns."""
        return sorted(self.label_counts)

    @property
    def counts(self) -> list[float]:
        """How often each label, or 0/1 column, occurs."""
        if self.n_columns:
            return [float(count) for count in self.column_counts]
        return [self.label_counts[label] for label in self.labels]


class TextClassifier(Classifier):
    """Text classifier with learned vectors: P = softmax(W h), where h is the mean of the vectors of a text's n-grams.

    Parameters
    ----------
    dim : int or "auto"
        Length of the vectors. "auto" is 16, 32 from 32 labels on, and 64 from 256 labels on.
    ngrams : (low, high) or None
        Lengths of word n-grams: (1, 2) gives words and pairs of words.
    char_ngrams : (low, high), optional
        Lengths of character n-grams inside words. (2, 4) helps to distinguish languages and to tolerate misspellings.
    loss : {"softmax", "ova", "ns", "hs"}
        Loss function: one softmax over all labels ("softmax"), or one logistic loss per label ("ova"), for several
        labels per text. "ns" is "ova" with `negatives` random labels per text, "hs" a hierarchical softmax over a
        Huffman tree of the labels; both stay fast with thousands of labels.
    n_bits : int
        Size of the table: 2**n_bits vectors. Vectors that are never used take no space in files.
    epochs : int or "auto"
        Passes over the data. "auto" is 250,000 / number of texts, at least 5 and at most 50, and 1 for a pipe.
    eta0 : float or "auto"
        First step size. "auto" is 0.5, and 1 from 32 labels on.
    schedule : {"auto", "linear", "invsqrt"}
        How the step size falls: linearly to zero at the end of training, or by "invsqrt", which needs no end. "auto" is
        "linear" if the number of rows can be known.
    negatives : int
        Number of random labels per text, with loss="ns".
    calibrate : float
        Share of the rows to hold out for calibrating the probabilities after training.
    pretrained : path, optional
        File of word vectors (`.vec`) to start from.
    lowercase : bool
        Convert letters of all alphabets to lower case.
    min_count : int
        Leave out words that occur in fewer texts than this.
    names : int
        Number of words to store by name, for `nearest` and `save_vectors`.
    shuffle : {"rows", "blocks", "once", "never"}
        Order of the rows in every epoch.
    parallel : {"auto", "serial", "replicas", "hogwild"}
        How several learners share the texts. "replicas" learn some texts each and then add up their changes, with
        bit-identical results for any `n_jobs`; `Replicas(n=2, sync_every="auto")` sets the details. Under "hogwild"
        `n_jobs` threads write without locks, and results differ from run to run. "auto" is "replicas" from 10,000 texts
        on. `partial_fit` is serial.
    n_jobs : int
        Number of threads; -1 uses all cores. Results do not depend on it, except under "hogwild".
    random_state : int, generator or None
        Seed: the same number gives bit-identical results.
    verbose : int
        1 prints one line per epoch to stderr.

    Attributes
    ----------
    classes_ : array of labels
    temperature_ : float
        Number by which scores are divided before they become probabilities.
    n_iter_, n_features_in_, history_

    Examples
    --------
    >>> import steepest as st
    >>> texts = ["cheap pills", "lunch at noon", "cheap cash", "see you at lunch"] * 5
    >>> model = st.TextClassifier(n_bits=12, epochs=20, random_state=0).fit(texts, ["spam", "ham"] * 10)
    >>> model.predict(["pills for cash", "noon?"]).tolist()
    ['spam', 'ham']

    References
    ----------
    Joulin, A., Grave, E., Bojanowski, P. and Mikolov, T. (2016). Bag of tricks for efficient text classification.
    """

    learner_type = EmbeddingLearner
    settings_type = EmbeddingSettings
    task = "text"

    options: ClassVar[tuple[type[Option], ...]] = (Replicas,)
    hasher = None  # it follows from the parameters below
    dim: int | str
    ngrams: tuple[int, int] | None
    char_ngrams: tuple[int, int] | None
    loss: str
    n_bits: int
    epochs: int | str
    eta0: float | str
    schedule: str
    negatives: int
    calibrate: float
    pretrained: Any
    lowercase: bool
    min_count: int
    names: int
    shuffle: str
    parallel: Any
    class_weight = None
    temperature_: float
    learner_: EmbeddingLearner
    _places: Array  # where in classes_ each output is
    _survey: LabelSurvey | None = None  # of the rows of the last fit
    _array_names: list[Any] | None = None  # of the columns of a target given as lists of labels

    def __init__(
        self,
        dim: int | str = "auto",
        *,
        ngrams: tuple[int, int] | None = (1, 2),
        char_ngrams: tuple[int, int] | None = None,
        loss: str = "softmax",
        n_bits: int = 21,
        epochs: int | str = "auto",
        eta0: float | str = "auto",
        schedule: str = "auto",
        negatives: int = 5,
        calibrate: float = 0.0,
        pretrained: Any = None,
        lowercase: bool = True,
        min_count: int = 1,
        names: int = NAMES,
        shuffle: str = "rows",
        parallel: Any = "auto",
        n_jobs: int = 1,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self._store(locals())

    # -------------------------------------------------------------------------------------------------- learning

    def partial_fit(
        self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None, *, calibrate: bool = False
    ) -> Self:
        """Continues training: learns each of these texts once, in order.

        You may pass all classes in the first call, or let new ones appear at any time. Two calls give the same model as
        one call with all rows. `calibrate=True` predicts the texts of the call before it learns them: the last 4,000
        give `predict_set`.
        """
        source = self.source_of(X, y, sample_weight)
        if not hasattr(self, "learner_"):
            targets = source.block.y
            assert targets is not None
            labels = [] if classes is None else np.unique(np.asarray(classes)).tolist()
            if targets.ndim == 2:
                labels = self._array_names or list(range(targets.shape[1]))
            settings, events = self._choose_by_labels(self.settings_for(None), len(labels))
            learner = EmbeddingLearner(settings, source.n_features or 0, labels, several_targets=targets.ndim == 2)
            self._use_pretrained(learner)
            self.adopt(learner, History(events=events), source)
        elif calibrate:
            self._add_recent(source, X)
        self.learner_.go_on()
        return self._learn_more(source)

    def source_of(self, X: Any, y: Any = None, sample_weight: Any = None, *, columns: bool = True) -> ArraySource:
        """Rows in memory as a source, hashed if they are raw."""
        self.settings_for(None)
        known = self._target_names if hasattr(self, "learner_") and hasattr(self, "hasher_") else None
        targets, self._array_names = text_targets(y, known)
        chunk = self.own_hasher().to_chunk(X, targets, sample_weight, learn=True)
        if chunk.n_rows == 0:
            raise DataError("Found array with 0 sample(s): X has no rows; at least one is needed")
        self._label_dtype = targets.dtype if targets.dtype.kind in "biuf" else None
        return ArraySource(chunk)

    def _plan_for_stream(self, source: Source) -> None:
        self.settings_for(None)
        self._array_names = None

    def _training_rows(self, source: Source, seed: int) -> Source:
        return store_rows(source) if source.read_once is None else source

    def _learn(
        self, settings: EmbeddingSettings, source: Source, validation: Source | None, run: Run, seed: int
    ) -> None:
        once, held = source.read_once is not None, None
        if self.schedule == "linear" and once:
            raise ParameterError("schedule='linear' needs data that can be read twice; choose 'invsqrt' for a stream")
        if self.calibrate:
            source, held = source.holdout(self.calibrate, settings.seed)
        self._survey = None if once else LabelSurvey(source)
        settings, epochs, events = self._choose(settings, self._survey)
        for event in events:
            run.monitor.choice(event)
        super()._learn(settings, source, validation, replace(run, rounds=epochs), settings.seed)
        self.history_.events[:0] = events
        if held is not None:
            self._calibrate(held)

    def _finish(self, learner: EmbeddingLearner, history: History, executor: Any) -> None:
        history.events += learner.finish().events
        super()._finish(learner, history, executor)

    def _choose(
        self, settings: EmbeddingSettings, seen: LabelSurvey | None
    ) -> tuple[EmbeddingSettings, int, list[str]]:
        """(settings, epochs, events) resolved from a survey of the labels; None: rows can be read only once."""
        settings, events = self._choose_by_labels(settings, 0 if seen is None else seen.n_labels)
        n_rows = None if seen is None else seen.n_rows
        epochs, why = choose_epochs(n_rows)
        if self.epochs == "auto":
            events.append(why)
        else:
            epochs = whole("epochs", self.epochs, 1)
        parallel, why = choose_parallel(n_rows)
        if self.parallel == "auto":
            events.append(why)
        else:
            parallel = self.flat_params()["parallel"]
        if parallel == "replicas":
            length = None if seen is None else seen.n_entries / max(1, seen.n_rows)
            replicas = self._replicas()
            each = choose_sync_every(length) if replicas.sync_every == "auto" else int(replicas.sync_every)
            settings = replace(settings, n_replicas=replicas.n, sync_every=each)
        if self.schedule != "invsqrt" and n_rows is not None:
            settings = replace(settings, total=float(epochs * n_rows))
        return settings, epochs, events

    def _choose_by_labels(self, settings: EmbeddingSettings, n_labels: int) -> tuple[EmbeddingSettings, list[str]]:
        """(settings, events) for this many labels; given vectors fix the dimension."""
        events = []
        if self.dim == "auto" and self.pretrained is not None:
            settings = replace(settings, dim=dim_of_vectors(self.pretrained))
        elif self.dim == "auto":
            dim, why = choose_dim(n_labels)
            settings = replace(settings, dim=dim)
            events.append(why)
        if self.eta0 == "auto":
            eta0, why = choose_eta0(n_labels)
            settings = replace(settings, eta0=eta0)
            events.append(why)
        return settings, events

    def _replicas(self) -> Replicas:
        return self.parallel if isinstance(self.parallel, Replicas) else Replicas(sync_every="auto")

    def new_learner(self, settings: EmbeddingSettings, source: Source, classes: Any = None) -> EmbeddingLearner:
        """An untrained learner for texts of this source."""
        seen = self._survey or LabelSurvey()
        several = seen.n_columns > 0
        labels = (self._names_of_targets(source) or list(range(seen.n_columns))) if several else seen.labels
        counts = seen.counts if len(labels) else None
        n_features = source.n_features or 1 << self.n_bits
        learner = EmbeddingLearner(settings, n_features, labels, counts, several_targets=several)
        self._use_pretrained(learner)
        return learner

    def _threads_for(self, learner: EmbeddingLearner) -> int:
        most = super()._threads_for(learner)
        return 1 if learner.settings.n_replicas == 1 and self.parallel != "hogwild" else most

    def settings_for(self, n_rows: int | None) -> EmbeddingSettings:
        """The constructor's arguments, checked."""
        choice("parallel", self.flat_params()["parallel"], PARALLEL)
        choice("schedule", self.schedule, SCHEDULES)
        choice("shuffle", self.shuffle, SHUFFLES)
        if number("calibrate", self.calibrate):
            inside("calibrate", self.calibrate, 0.0, 1.0)
        if not isinstance(self.pretrained, str | os.PathLike | None):
            raise ParameterError(
                f"pretrained={self.pretrained!r} is not the path of a file of vectors; give it as a text"
            )
        replicas = self._replicas()
        for name, value in (("epochs", self.epochs), ("sync_every", replicas.sync_every), ("n_replicas", replicas.n)):
            if value != "auto":
                whole(name, value, 1)
        dim = 1 if self.dim == "auto" else whole("dim", self.dim, 1)
        if dim > LONGEST_ROW:
            raise ParameterError(f"dim={dim} is too large; {LONGEST_ROW} is the most, and 16 to 100 is usual")
        eta0 = 0.0 if self.eta0 == "auto" else at_least("eta0", self.eta0, 0.0)
        negatives = whole("negatives", self.negatives, 1)
        loss = choice("loss", self.loss, LOSSES)
        return EmbeddingSettings(dim, loss, eta0, negatives=negatives, seed=self.seed())

    def given_hasher(self) -> Hasher:
        """The hasher that the parameters describe."""
        return Hasher(
            self.n_bits,
            ngrams=self.ngrams,
            char_ngrams=self.char_ngrams,
            signed=False,
            weighting="count",
            norm=None,
            lowercase=self.lowercase,
            min_count=self.min_count,
            names=self.names,
        )

    def _names_of_targets(self, source: Source) -> list[Any] | None:
        return self._array_names or super()._names_of_targets(source)

    def adopt(self, learner: EmbeddingLearner, history: History, source: Source) -> None:
        """Makes a trained learner the fitted state."""
        self.temperature_ = 1.0
        super().adopt(learner, history, source)

    def _refresh(self) -> None:
        super()._refresh()
        if self.learner_.several_targets:
            self._label_order = np.arange(len(self.classes_))
        self._places = np.argsort(self._label_order)

    # ------------------------------------------------------------------------------------------------ probabilities

    def calibrate_on(self, X: Any, y: Any = None) -> Self:
        """Calibrates probabilities on texts not used in training: scores are divided by the best temperature."""
        source = self._unlearned_rows(X, y, lambda labels: text_targets(labels, self._target_names)[0])
        self._calibrate(source)
        self._calibrate_by(source)
        return self

    def _calibrate_by(self, rows: Source) -> None:
        """Stores the errors on held-out texts, for `predict_set`."""
        if not self.learner_.several_targets:
            parts = [self._doubts(chunk, scores) for chunk, scores in self._known_rows(rows)]
            self._store_residuals(np.concatenate(parts) if parts else np.zeros(0))

    def _add_recent(self, source: ArraySource, X: Any) -> None:
        """Scores texts before they are learned and stores 1 - P of their labels."""
        chunk = source.block
        if self.learner_.several_targets or chunk.y is None or len(self.classes_) < 2:
            return
        rows = chunk.visit(np.flatnonzero(self.learner_.book.codes(chunk.y) >= 0))
        self._recent = self._recent or Recent(1)
        doubts = self._doubts(rows, self._scores(rows)) if rows.n_rows else np.zeros(0)
        labels = self.classes_[self._true_places(rows)].tolist()
        self.history_.events += self._stream_watch().add(doubts.tolist(), (), labels, self.classes_.tolist())
        self._recent.adapt(self.calibration_, doubts)
        if (held := self._recent.add(doubts, np.zeros(len(doubts)), np.ones(len(doubts)))) is not None:
            self._store_residuals(held[:, 0])
        self._use_levels()

    def _doubts(self, chunk: Chunk, scores: Array) -> Array:
        """1 - P of the true label of each row."""
        place = self._true_places(chunk)
        return np.asarray(1 - self.probabilities_of(self._decisions(scores))[np.arange(len(place)), place])

    def _true_places(self, chunk: Chunk) -> Array:
        assert chunk.y is not None
        return np.asarray(self._places[self.learner_.book.codes(chunk.visited(chunk.y)).astype(np.int64)])

    def _calibrate(self, source: Source) -> None:
        chunks = [self.learner_.code_for_scoring(chunk) for chunk in source]
        scores = [self.learner_.scores(chunk).astype(np.float64) for chunk in chunks]
        indicators = [self.learner_.indicators(chunk.visited(chunk.y)) for chunk in chunks if chunk.y is not None]
        if not scores:
            raise DataError("there are no rows to calibrate on; give some that were not learned")
        z, shares = np.concatenate(scores), np.concatenate(indicators)
        self.temperature_ = fit_temperature(z, shares, self._is_softmax())

    def _is_softmax(self) -> bool:
        return self.learner_.settings.loss in ("softmax", "hs")

    def probabilities_of(self, scores: Array, *, calibrated: bool = True) -> Array:
        """Probabilities of the labels from their scores; the temperature is part of the model."""
        if self._is_softmax():
            e = self._exponentials(scores)
            return np.asarray(e / e.sum(axis=1, keepdims=True, dtype=np.float64))
        p = 0.5 * (1 + np.tanh(scores.astype(np.float64) / (2 * self.temperature_)))
        if self.learner_.several_targets:
            return np.asarray(p)
        total = p.sum(axis=1, keepdims=True)
        return np.asarray(np.where(total > 0, p / np.where(total > 0, total, 1), 1 / p.shape[1]))

    def _exponentials(self, scores: Array) -> Array:
        """Unnormalised probabilities; that of the best label is 1."""
        best = scores.max(axis=1, keepdims=True)
        return np.asarray(np.exp((scores - best) * np.float32(1 / self.temperature_)))

    # ------------------------------------------------------------------------------------------------- prediction

    def _decisions(self, scores: Array) -> Array:
        """Scores in the order of `classes_`, one column for each."""
        return scores if self.learner_.several_targets else scores[:, self._label_order]

    def decision_function(self, X: Any) -> Array:
        """Returns scores W h: shape (n, classes), or (n,) for two classes; for "hs", logarithms of probabilities."""
        scores = self._decisions(self._scores_of(X))
        if scores.shape[1] == 2 and not self.learner_.several_targets:
            return np.asarray(scores[:, 1] - scores[:, 0])
        return scores

    def predict_proba(self, X: Any) -> Array:
        """Probabilities of the classes, shape (n, classes)."""
        return self.probabilities_of(self._decisions(self._scores_of(X)))

    def predict(self, X: Any, *, uncertainty: bool | float = False) -> Any:
        """The most likely label of every text, or 0/1 columns for several labels; `uncertainty` adds `predict_set`."""
        if uncertainty is not False:
            return super().predict(X, uncertainty=uncertainty)
        scores = self._scores_of(X)
        return self.labels_of(scores) if self.learner_.several_targets else self.classes_.take(self._best(scores))

    def _sets_of(self, decisions: Array) -> Array:
        """0/1 per label: probability above one half, or not much below that of the best label."""
        if not self._is_softmax():
            return np.asarray(decisions >= 0)
        behind = -self.temperature_ * math.log(SHARE_OF_BEST)
        return np.asarray(decisions >= decisions.max(axis=1, keepdims=True) - behind)

    def predict_top(self, X: Any, k: int = 5) -> tuple[Array, Array]:
        """(labels, probabilities) of the k most likely labels of each text, best first."""
        k = min(whole("k", k, 1), len(self.classes_)) if hasattr(self, "classes_") else 1
        scores = self._scores_of(X)
        if k == 1 and self._is_softmax():  # the usual question needs no order, and one probability per text
            best, p = self._best(scores), 1.0 / self._exponentials(scores).sum(axis=1)
            return np.asarray(self.classes_.take(best[:, None])), np.asarray(p[:, None], np.float64)
        z = self._decisions(scores)
        best = np.argpartition(-z, k - 1, axis=1)[:, :k] if k < z.shape[1] else np.tile(np.arange(k), (len(z), 1))
        order = np.argsort(-np.take_along_axis(z, best, axis=1), axis=1, kind="stable")
        best = np.take_along_axis(best, order, axis=1)
        p = np.take_along_axis(self.probabilities_of(z), best, axis=1)
        return np.asarray(self.classes_.take(best)), p

    def embed(self, X: Any) -> Array:
        """Returns a vector per text, shape (n, dim): the mean of the vectors of its n-grams."""
        self._check_fitted()
        return self.learner_.hidden(self._chunk(X), self.n_threads)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Accuracy; with several labels per text, the share of texts whose first label is one of theirs (P@1)."""
        targets, _ = text_targets(y, getattr(self, "_target_names", None))
        if targets.ndim == 1:
            return float(np.average(self.predict(X) == targets, weights=sample_weight))
        first = self._scores_of(X).argmax(axis=1)
        return float(np.average(targets[np.arange(len(first)), first] > 0, weights=sample_weight))

    def predict_stream(self, source: Source, *, proba: bool = False) -> Iterator[Array]:
        """Yields the most likely labels (or all probabilities) chunk by chunk."""
        for _, scores in self._stream_scores(source):
            if proba:
                yield self.probabilities_of(self._decisions(scores))
            else:
                yield np.asarray(self.classes_.take(self._best(scores)))

    def _best(self, scores: Array) -> Array:
        return np.asarray(self._places[scores.argmax(axis=1)])

    def _row_losses(self, coded: Chunk, scores: Array) -> tuple[Array, Array]:
        return self.learner_.losses(coded)

    def _evaluate_labels(self, source: Source) -> dict[str, Any]:
        rows, weight_sum, loss, hits, labels = 0, 0.0, 0.0, 0.0, 0.0
        for chunk, scores in self._stream_scores(source):
            losses, weight = self.learner_.losses(self.learner_.code_for_scoring(chunk))
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

    # ------------------------------------------------------------------------------------------------------ words

    @property
    def n_nonzero_(self) -> int:
        """Number of weights that were learned."""
        return self.learner_.count_nonzero()

    def vector(self, word: str) -> Array:
        """Returns the mean of the vectors of a word and its character n-grams; zeros if none was ever seen."""
        return np.asarray(self._word_vectors([word])[0])

    def _word_vectors(self, words: Sequence[str]) -> Array:
        self._check_fitted()
        column = next((c.name for c in self.hasher_.columns_ if c.kind == "text"), None)
        if column is None:
            raise DataError("this model was trained on columns without texts, so it has no words")
        single = len(self.hasher_.columns_) == 1
        chunk = self.hasher_.to_chunk(list(words) if single else [{column: word} for word in words])
        mass = np.add.reduceat(np.append(np.abs(chunk.values), 0.0), chunk.indptr[:-1])
        mass = np.where(np.diff(chunk.indptr) > 0, mass, 0.0)[:, None]
        hidden = self.learner_.hidden(chunk) * (1 + mass) - self.learner_.weights()[1]
        return np.asarray(np.where(mass > 0, hidden / np.maximum(mass, 1e-30), 0.0), np.float32)

    def words(self) -> list[str]:
        """The words that are known by name, in alphabetical order."""
        self._check_fitted()
        book = getattr(self.hasher_, "names_", None)
        if book is None:
            raise DataError(f"names={self.names} stores no words by name; train with names=10000, for example")
        found = {name for names in book.names_of(book.buckets()) for name in names}
        return sorted(name for name in found if name.isprintable() and not set(name) & set(" '=:#<"))

    def nearest(self, word: str, k: int = 10) -> list[tuple[str, float]]:
        """Returns the k known words with the most similar vectors, and their cosines."""
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
        """Returns the k known words with the highest score for each label, each as a text of its own."""
        words = self.words()
        scores = self._decisions(self.learner_.scores(self.hasher_.to_chunk(words))) if words else np.zeros((0, 1))
        scores = scores - scores.mean(axis=1, keepdims=True)
        found = {}
        for place, label in enumerate(self.classes_.tolist()):
            best = np.argsort(-scores[:, place], kind="stable")[:k].tolist() if words else []
            found[label] = [(words[n], float(scores[n, place])) for n in best]
        return found

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = False
        tags.input_tags.string = tags.input_tags.dict = tags.input_tags.categorical = tags.input_tags.allow_nan = True
        return tags

    # --------------------------------------------------------------------------------------------------- files

    def save(
        self, path: str | Path, *, quantize: bool = False, size: int | str | None = None, check: Any = None
    ) -> dict[str, Any]:
        """Writes the model to one file and returns its `bytes` and `rows`.

        `quantize` stores the vectors as 8-bit numbers; such a file predicts and learns like any other. `size`, such as
        "5MB", also drops the vectors that change scores least, until the file fits. `check`, a source or (X, y),
        measures what that costs: `accuracy` and `accuracy_before` are returned, too, and printed if `verbose` is set.
        """
        self._check_fitted()
        self._refuse_overflow(self.learner_)
        header, arrays = self._file_parts()
        if quantize or size is not None:
            arrays = _smaller(header, arrays, size)
        head = {"kind": "model", "class": type(self).__name__, **header}
        report: dict[str, Any] = {"bytes": model_file.write(path, head, arrays), "rows": len(arrays["rows"])}
        if check is not None:
            for name, model in (("accuracy_before", self), ("accuracy", load(path))):
                of_source = isinstance(check, Source)
                report[name] = model.evaluate_stream(check)["accuracy"] if of_source else model.score(*check)
            if self.verbose:
                before, after = report["accuracy_before"], report["accuracy"]
                print(f"{path}: {shown(report['bytes'])}, accuracy {before:.4f} became {after:.4f}", file=sys.stderr)
        return report

    def _file_parts(self) -> tuple[dict[str, Any], dict[str, Array]]:
        header, arrays = super()._file_parts()
        header["params"]["pretrained"] = None  # it is in the rows now
        kind = getattr(getattr(self, "_label_dtype", None), "str", None)
        return {**header, "temperature": self.temperature_, "label_kind": kind}, arrays

    def _take_state(self, settings: Any, state: State) -> None:
        super()._take_state(settings, {**state, "table": unpack_rows(dict(state))} if "codes" in state else state)

    def _take_header(self, header: Mapping[str, Any]) -> None:
        super()._take_header(header)
        self.pretrained = None  # a path in a file is never opened
        self.temperature_ = float(header["temperature"])
        if not 1e-6 <= self.temperature_ <= 1e6:
            raise ValueError(f"the temperature is {self.temperature_}")
        if header["label_kind"] is not None:
            if not re.fullmatch("[<>|=]?[biufU][0-9]{1,6}", str(header["label_kind"])):
                raise ValueError(f"labels are of type {header['label_kind']!r}"[:200])
            self._label_dtype = np.dtype(header["label_kind"])


def _header_bytes(header: dict[str, Any]) -> int:
    """The approximate length of a header, rounded, since timings in it vary in digits."""
    return -(-len(str(header)) // 4096) * 4096


def _smaller(header: dict[str, Any], arrays: dict[str, Array], size: int | str | None) -> dict[str, Array]:
    """Arrays of a file with rows as 8-bit numbers and as many as fit; names left out go from the header, too."""
    arrays = dict(arrays)
    rows, table = arrays.pop("rows"), arrays.pop("table")
    if size is not None:
        names = sum(a.nbytes for name, a in arrays.items() if name.startswith(HASHER))
        fixed = 4096 + sum(a.nbytes for a in arrays.values()) + _header_bytes(header)
        budget = parse_bytes(size, "size")
        if names > budget // 4:  # names of words are the first to go
            arrays = {name: a for name, a in arrays.items() if not name.startswith(HASHER + "names")}
            header["hasher"]["params"]["names"] = 0
            header["params"]["names"] = 0
            fixed = 4096 + sum(a.nbytes for a in arrays.values()) + _header_bytes(header)
        n = (budget - fixed) // bytes_of_rows(1, table.shape[1])
        if n < 1:
            raise ParameterError(
                f"size={size!r} is too small: all but the rows takes {shown(fixed, up=True)}; give more"
            )
        kept = rows_by_weight(table, arrays["head"], int(n))
        rows, table = rows[kept], table[kept]
    return arrays | {"rows": rows, **pack_rows(table)}


def text_targets(y: Any, names: list[Any] | None = None) -> tuple[Array, list[Any] | None]:
    """(labels or 0/1 columns, what the columns stand for); y may be a list of lists of labels."""
    if y is None:
        raise DataError("TextClassifier requires y to be passed, but the target y is None")
    if not isinstance(y, list | tuple) or not y or not all(isinstance(row, list | tuple | set) for row in y):
        return class_targets(y), None
    if not all(isinstance(label, str) for row in y for label in row):
        return class_targets(y), None
    known = sorted({label for row in y for label in row}) if names is None else names
    columns = {label: column for column, label in enumerate(known)}
    matrix = np.zeros((len(y), len(known)))
    for row_number, row in enumerate(y):
        for label in row:
            if label not in columns:
                raise DataError(
                    f"row {row_number}: the label {label!r} was never seen in training; this model cannot add labels"
                )
            matrix[row_number, columns[label]] = 1.0
    return matrix, known


def choose_epochs(n_texts: int | None) -> tuple[int, str]:
    """The number of epochs, larger for small data; None: rows can be read only once."""
    if n_texts is None:
        return 1, "epochs='auto' chose 1: the data can be read only once"
    epochs = min(MOST_EPOCHS, max(FEWEST_EPOCHS, round(TEXTS_TO_LEARN / max(1, n_texts))))
    return epochs, f"epochs='auto' chose {epochs} for {n_texts:,} texts"


def choose_dim(n_labels: int) -> tuple[int, str]:
    """The dimension, larger for more labels."""
    dim = 16 if n_labels < MANY_LABELS else 32 if n_labels < VERY_MANY_LABELS else 64
    return dim, f"dim='auto' chose {dim} for {n_labels:,} labels"


def choose_eta0(n_labels: int) -> tuple[float, str]:
    """The first step size, larger for more labels, whose gradients are smaller."""
    eta0 = 0.5 if n_labels < MANY_LABELS else 1.0
    return eta0, f"eta0='auto' chose {eta0} for {n_labels:,} labels"


def choose_parallel(n_texts: int | None) -> tuple[str, str]:
    """ "replicas" if there is enough work to share, else "serial"."""
    if n_texts is not None and n_texts < LEAST_TEXTS:
        return "serial", f"parallel='auto' learns serially: {n_texts:,} texts are too few to share"
    return "replicas", "parallel='auto' chose replicas: the bits do not depend on n_jobs"


def choose_sync_every(length: float | None) -> int:
    """Texts per round of a replica, fewer if texts are long, so that no round goes too far."""
    texts = MOST_TEXTS_EACH if not length else int(ROUND_FEATURES / length)
    return min(MOST_TEXTS_EACH, max(FEWEST_TEXTS_EACH, texts))
