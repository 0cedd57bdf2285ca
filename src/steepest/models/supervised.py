"""The bases of classifiers and regressors: scikit-learn's methods on top of a learner's scores.

They turn scores into labels, probabilities or numbers, whatever the learner is. It must have `book`, `several_targets`
and `n_outputs` beside the methods of every learner.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from steepest.data.chunk import Array, Chunk
from steepest.data.source import ArraySource, Source, as_targets, target_array
from steepest.engine.history import History
from steepest.errors import DataError, ParameterError
from steepest.learners.losses import LOSSES
from steepest.learners.targets import balanced_weights, distinct
from steepest.metrics import ClassificationMetrics, MultiLabelMetrics, ProbabilityMetrics, RegressionMetrics, RocMetrics
from steepest.models.base import Model, in_memory
from steepest.models.calibration import (
    LEAST_ROWS,
    Recent,
    calibrate_many,
    calibrate_two,
)
from steepest.parameters import did_you_mean, shown

COVERAGE = 0.9  # of uncertainty=True


@dataclass(frozen=True, slots=True)
class Threshold:
    """The probability (or score, for a model without probabilities) from which a class is predicted, and the result."""

    value: float
    precision: float
    recall: float
    rows: int  # that reach it


class Classifier(Model):
    """The base of classifiers: turns the learner's scores into classes and probabilities."""

    kind = "classifier"
    task = "classify"
    loss: Any
    class_weight: Any
    classes_: Array

    def _is_softmax(self) -> bool:
        """Whether the scores of several classes belong to one soft maximum."""
        return False

    def _finish(self, learner: Any, history: History, executor: Any) -> None:
        super()._finish(learner, history, executor)
        if len(learner.book) < 2 and not learner.several_targets:
            raise one_class(learner.book.labels)
        given, known = getattr(self, "class_weight", None), list(learner.book.labels)
        if isinstance(given, dict) and (others := [label for label in given if label not in known]):
            near = did_you_mean(others[0], known)
            raise ParameterError(
                f"class_weight names {others[0]!r}, which is not a class; {near}give one of {known[:10]}"
            )

    def source_of(self, X: Any, y: Any = None, sample_weight: Any = None, *, columns: bool = True) -> ArraySource:
        """Rows in memory as a source, hashed if they are raw; `columns`: check the indices of sparse matrices here."""
        source, targets = self._rows_and_targets(X, y, sample_weight, columns=columns)
        if targets.ndim == 1:
            source.labels = distinct(targets)
        return source

    def _rows_and_targets(
        self, X: Any, y: Any, sample_weight: Any, *, columns: bool = True
    ) -> tuple[ArraySource, Array]:
        if y is None:
            raise no_targets(self)
        targets = class_targets(y)
        return super().source_of(X, targets, sample_weight, columns=columns), targets

    def _class_labels(self, settings: Any, source: Source, classes: Any) -> tuple[Any, list[Any]]:
        """(settings with class weights resolved, labels that are known before learning)."""
        labels = source.labels if classes is None else np.unique(np.asarray(classes))
        self._label_dtype = None if labels is None else labels.dtype
        if labels is None:
            return settings, []
        if len(labels) < 2:
            raise one_class(labels.tolist())
        if settings.class_weight == "balanced" and isinstance(source, ArraySource) and classes is None:
            settings = replace(settings, class_weight=balanced(source, labels))
        return settings, labels.tolist()

    def new_learner(self, settings: Any, source: Source, classes: Any = None) -> Any:
        """An untrained learner for rows of this source; `classes` are labels known beforehand."""
        settings, labels = self._class_labels(settings, source, classes)
        return self._learner_for(settings, source, labels)

    def partial_fit(
        self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None, *, calibrate: bool = False
    ) -> Self:
        """Continues training: learns each of these rows once, in order.

        You may pass all classes in the first call, or let new ones appear at any time. Two calls give the same model
        as one call with all rows.
        `calibrate=True` scores the rows of the call before it learns them; the last 4,000 such rows calibrate
        `predict_proba` and `predict_set`, which then depend on how a stream is split into calls, while scores do not.
        Changes of the loss, calibration, labels and unseen features are reported in `history_.events`.
        """
        if not hasattr(self, "learner_"):
            self._plan_for_arrays(X, y, classes, more_to_come=True)
        X = in_memory(X) if calibrate else X
        source, _ = self._rows_and_targets(X, y, sample_weight)
        self._check_width(source)
        if calibrate and hasattr(self, "classes_"):
            self._add_recent(source, X)
        return self._learn_more(source, classes)

    def _add_recent(self, source: ArraySource, X: Any) -> None:
        """Scores rows before they are learned and calibrates by them; skips unknown classes and infinite scores."""
        chunk = source.block
        if self.learner_.several_targets or len(self.classes_) < 2 or chunk.y is None or chunk.y.ndim > 1:
            return
        known = self.learner_.book.codes(chunk.y) >= 0
        if not known.any():
            return
        rows = chunk if known.all() else chunk.visit(np.flatnonzero(known))
        decisions = self._decisions(self._scores(rows))
        finite = np.isfinite(decisions.reshape(len(decisions), -1)).all(axis=1)
        decisions, (true, weight) = decisions[finite], (values[finite] for values in self._truth(rows))
        self._watch_rows(chunk, X, decisions, true)
        self._recent = self._recent or Recent(1 if decisions.ndim == 1 else decisions.shape[1])
        if self._has_link() or self._is_mapped():
            residuals = 1 - self.probabilities_of(decisions)[np.arange(len(true)), true]
            self._recent.adapt(self.calibration_, residuals)
        held = self._recent.add(decisions, true, weight)
        if held is not None:
            scores = held[:, 0] if decisions.ndim == 1 else held[:, :-2]
            self._fit_map(scores, held[:, -2].astype(np.int64), held[:, -1])
        self._use_levels()

    def _watch_rows(self, chunk: Chunk, X: Any, decisions: Array, true: Array) -> None:
        """Adds events to the history if the loss, calibration, labels or features of a stream have changed."""
        labels = self.labels_of(decisions)
        wrong = labels != self.classes_[true]
        surprises: list[float] = []
        losses = wrong.astype(np.float64)
        if self._has_link() or self._is_mapped():
            p = self.probabilities_of(decisions)
            losses, best = 1 - p[np.arange(len(true)), true], p.max(axis=1)
            surprises = ((1 + ~wrong - best) / 2).tolist()
        truths, known = self.classes_[true].tolist(), self.classes_.tolist()
        events = self._stream_watch().add(losses.tolist(), surprises, truths, known, self._unseen_share(chunk, X))
        self.history_.events += events

    def _refresh(self) -> None:
        super()._refresh()
        learner = self.learner_
        if learner.several_targets:
            names = getattr(self, "_target_names", None)
            self.classes_ = np.arange(learner.n_outputs) if names is None else np.array(names)
            return
        labels, self._label_order = learner.book.sorted_labels()
        self._in_order = bool((self._label_order[:-1] < self._label_order[1:]).all())
        dtype = getattr(self, "_label_dtype", None)
        self.classes_ = labels if dtype is None or dtype.kind in "US" else labels.astype(dtype)

    def adopt(self, learner: Any, history: History, source: Source) -> None:
        """Makes a trained learner the fitted state; `classes_` gets the dtype of the labels given."""
        if source.labels is not None:
            self._label_dtype = source.labels.dtype
        super().adopt(learner, history, source)

    def _by_output(self, values: Array) -> Array:
        """Values per output, rearranged to the order of `classes_`; one row for two classes."""
        if self.learner_.several_targets or self._in_order:
            return values
        return -values if self.learner_.n_outputs == 1 else values[self._label_order]

    def _decisions(self, scores: Array) -> Array:
        """Scores in the order of `classes_`; one column for two classes."""
        decisions = self._by_output(scores.T).T
        return decisions[:, 0] if decisions.shape[1] == 1 and not self.learner_.several_targets else decisions

    def _best(self, scores: Array) -> Array:
        """The indices in `classes_` of the highest scores."""
        decisions = self._decisions(scores)
        return (decisions > 0).astype(np.int64) if decisions.ndim == 1 else decisions.argmax(axis=1)

    def decision_function(self, X: Any) -> Array:
        """Raw scores w·x + b: shape (n,) for two classes, else (n, classes)."""
        return self._decisions(self._scores_of(X))

    def decisions_of(self, chunk: Chunk) -> Array:
        """The decision function for the rows of a chunk."""
        return self._decisions(self._scores(chunk))

    def labels_of(self, decisions: Array) -> Array:
        """Predicted classes from the values of the decision function."""
        if self.learner_.several_targets:
            return self._sets_of(decisions).astype(np.int64)
        if decisions.ndim == 1:
            if len(decisions) == 1 and len(self.classes_) > 1:  # alone, a row is answered at half the price
                place = int(decisions.item() > 0)
                return self.classes_[place : place + 1].copy()
            second = decisions > 0 if len(self.classes_) > 1 else np.zeros(len(decisions), bool)
            return np.asarray(self.classes_.take(second))
        return np.asarray(self.classes_.take(decisions.argmax(axis=1)))

    def _sets_of(self, decisions: Array) -> Array:
        """0/1 per label: score above zero; the best label alone if training had no row without a label."""
        found = decisions > 0
        if not getattr(self.learner_, "has_bare_rows", True):
            bare = np.flatnonzero(~found.any(axis=1))
            found[bare, decisions[bare].argmax(axis=1)] = True
        return found

    def predict(self, X: Any, *, uncertainty: bool | float = False) -> Any:
        """Predicts the most likely class of every row, or 0/1 columns for multi-label.

        With `uncertainty` (a coverage; True is 0.9) returns (classes, sets), where a set contains the true class with
        this probability; see `predict_set`.
        """
        if uncertainty is not False:
            return self.predict(X), self.predict_set(X, COVERAGE if uncertainty is True else uncertainty)
        return self.labels_of(self.decision_function(X))

    @property
    def predict_proba(self) -> Callable[..., Array]:
        """Probabilities of the classes, shape (n, classes); available only if the loss or calibration gives any.

        They are calibrated if rows were held out (by alpha="auto" of an exact solver, early stopping, a validation
        source, `calibrate_on`, or `partial_fit(..., calibrate=True)`) and calibration lowered the loss on them;
        `calibrated=False` returns the model's own. A calibrated hinge loss has probabilities, too.
        """
        if not self._has_link() and not self._is_mapped():
            raise AttributeError(f"loss={self.loss!r} gives no probabilities; use 'log' or 'squared_hinge'")
        return lambda X, *, calibrated=True: self.probabilities_of(self.decision_function(X), calibrated=calibrated)

    def _has_link(self) -> bool:
        """Whether the loss turns scores into probabilities without calibration."""
        return self._loss_name() not in LOSSES or LOSSES[self._loss_name()].link is not None

    def _is_mapped(self) -> bool:
        return self.calibration_ is not None and self.calibration_.kind != "none"

    @property
    def predict_log_proba(self) -> Callable[[Any], Array]:
        """Logarithms of the probabilities."""
        probabilities = self.predict_proba

        def logarithms(X: Any) -> Array:
            with np.errstate(divide="ignore"):
                return np.asarray(np.log(probabilities(X)))

        return logarithms

    def calibrate_on(self, X: Any, y: Any = None) -> Self:
        """Calibrates probabilities and sets on rows that the model was not trained on.

        X and y are as for `fit`, or X is a source of labelled rows. `predict_proba` is calibrated from then on if that
        lowers the log loss by more than noise, and `predict_set` can be used. Both are saved with the model.
        """
        self._calibrate_by(self._unlearned_rows(X, y, class_targets))
        return self

    def _calibrate_by(self, rows: Source) -> None:
        if self.learner_.several_targets or len(self.classes_) < 2:
            return
        parts = [(self._decisions(scores), *self._truth(chunk)) for chunk, scores in self._known_rows(rows)]
        if not parts or sum(len(true) for _, true, _ in parts) < LEAST_ROWS:
            return
        self._fit_map(*(np.concatenate(values) for values in zip(*parts, strict=True)))

    def _calibrate_by_held_back(self, held: Any, later: Any) -> None:
        """Calibrates by scores of rows that the search for alpha held out: random rows, and contiguous ones."""
        if self.learner_.several_targets or len(held.y) < LEAST_ROWS:
            return
        parts = []
        for rows in (held, later):
            if rows is not None:  # scores are by labels in their own order, as `classes_`
                true = np.argsort(self._label_order)[self.learner_.book.codes(rows.y).astype(np.int64)]
                parts.append((rows.scores[:, 0] if rows.scores.shape[1] == 1 else rows.scores, true, rows.weight))
        self._fit_map(*parts[0], later=parts[1][:2] if len(parts) > 1 else None)

    def _fit_map(
        self, decisions: Array, true: Array, weight: Array, *, later: tuple[Array, Array] | None = None
    ) -> None:
        """Fits the calibration map and its residuals to decision values, true classes and weights."""
        if not weight.sum() > 0:
            return
        own = self.probabilities_of(decisions, calibrated=False) if self._has_link() else None
        if decisions.ndim == 1:
            self.calibration_ = calibrate_two(decisions, true == 1, None if own is None else own[:, 1], weight)
        elif own is not None:
            self.calibration_ = calibrate_many(own, true, weight)
        else:
            return

        def residuals(decisions: Array, true: Array) -> Array:
            return np.asarray(1 - self.probabilities_of(decisions)[np.arange(len(true)), true])

        far = None if later is None else residuals(*later)
        self.calibration_ = self.calibration_.with_residuals(residuals(decisions, true), far)

    def _truth(self, chunk: Chunk) -> tuple[Array, Array]:
        """(indices in `classes_` of the labels, weights) of the rows visited."""
        coded = self.learner_.code_for_scoring(chunk)
        assert coded.y is not None
        codes = coded.visited(coded.y).astype(np.int64)
        codes = (codes + 1) // 2 if self.learner_.n_outputs == 1 else codes
        weight = np.ones(len(codes)) if chunk.weight is None else chunk.visited(chunk.weight)
        return np.argsort(self._label_order)[codes], np.asarray(weight, np.float64)

    def predict_set(self, X: Any, coverage: float = COVERAGE, *, later: bool = False) -> Array:
        """Returns a set of classes per row that contains the true one with this probability, shape (n, classes).

        Split conformal sets from held-out rows (`calibrate_on`, early stopping, a validation source or alpha="auto"):
        all classes whose probability is at least a threshold, which the true classes of the share `coverage` of these
        rows reach. A set may be empty, or contain several classes if the model cannot decide. Pass `later=True` if the
        rows come later than those of the training file: errors are then measured on held-out stretches of that file.
        """
        reach = self._reach(coverage, later)
        return np.asarray(1 - self.predict_proba(X) <= reach)

    def threshold_for(
        self, X: Any, y: Any, *, precision: float | None = None, recall: float | None = None, label: Any = None
    ) -> Threshold:
        """Returns the probability from which to predict `label` (default: the last class) for a precision or recall.

        Of all thresholds with this precision on these rows it is the one with the highest recall, and of all with this
        recall the one with the highest precision. For models without probabilities it is a threshold of the score.
        """
        if (precision is None) == (recall is None):
            raise ParameterError(f"precision={precision!r} and recall={recall!r}: give one of them")
        classes = self.classes_.tolist()
        label = classes[-1] if label is None else label
        if label not in classes:
            raise ParameterError(f"label={label!r} is not a class; the classes are {classes[:10]}")
        place = classes.index(label)
        if hasattr(self, "predict_proba"):
            scores = self.predict_proba(X)[:, place]
        else:
            decisions = self.decision_function(X)
            scores = decisions[:, place] if decisions.ndim == 2 else decisions if place else -decisions
        return best_threshold(scores, np.asarray(y) == label, precision, recall)

    def probabilities_of(self, decisions: Array, *, calibrated: bool = True) -> Array:
        """Probabilities of the classes from the values of the decision function."""
        if calibrated and self._is_mapped():
            assert self.calibration_ is not None
            if decisions.ndim == 2:
                return self.calibration_.powers(self.probabilities_of(decisions, calibrated=False))
            second = self.calibration_.sigmoid(decisions)
            return np.column_stack([1 - second, second])
        if decisions.ndim == 2 and not self.learner_.several_targets and self._is_softmax():
            e = np.exp(decisions - decisions.max(axis=1, keepdims=True))
            return np.asarray(e / e.sum(axis=1, keepdims=True))
        positive = LOSSES[self._loss_name()].probability(decisions)
        assert positive is not None
        if self.learner_.several_targets:
            return np.asarray(positive)
        if decisions.ndim == 1:
            if len(self.classes_) == 1:
                return np.ones((len(positive), 1))
            both = np.empty((len(positive), 2))  # filled by hand: column_stack takes as long as the text
            both[:, 0], both[:, 1] = 1 - positive, positive
            return both
        total = positive.sum(axis=1, keepdims=True)
        return np.asarray(np.where(total > 0, positive / np.where(total > 0, total, 1), 1 / decisions.shape[1]))

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Accuracy on these rows."""
        found, truth = self.predict(X), np.asarray(y)
        _check_lengths(found, truth)
        right = np.asarray(found == truth)
        if right.ndim == 2:
            right = np.asarray(right.all(axis=1))
        return float(np.average(right, weights=sample_weight))

    def predict_stream(self, source: Source, *, proba: bool = False) -> Iterator[Array]:
        """Yields predictions (or probabilities) chunk by chunk."""
        for _, scores in self._stream_scores(source):
            decisions = self._decisions(scores)
            yield self.probabilities_of(decisions) if proba else self.labels_of(decisions)

    def evaluate_stream(self, source: Source, *, curves: bool = False) -> dict[str, Any]:
        """Computes loss, accuracy and other metrics over a source of labelled rows.

        `curves` adds what a chart needs: the confusion matrix, bins of probabilities, and metrics per threshold.
        """
        if getattr(self, "learner_", None) is not None and self.learner_.several_targets:
            return self._evaluate_labels(source)
        metrics, shares, ranks = None, ProbabilityMetrics(), RocMetrics()
        for chunk, scores in self._known_rows(source):
            metrics = metrics or ClassificationMetrics(self.classes_)
            coded = self.learner_.code_for_scoring(chunk)
            losses, weight = self._row_losses(coded, scores)
            true = self._truth(chunk)[0]
            decisions = self._decisions(scores)
            metrics.add(true, self._best(scores), losses, weight)
            if hasattr(self, "predict_proba"):
                shares.add(true, self.probabilities_of(decisions), weight)
            if len(self.classes_) == 2:
                ranks.add(true == 1, decisions if decisions.ndim == 1 else decisions[:, 1] - decisions[:, 0], weight)
        if metrics is None:
            raise DataError("the data holds no rows to evaluate on")
        found = metrics.result()
        classes = found.pop("classes")
        drawn = {**metrics.curves(), **shares.curves(), **ranks.curves()}
        more = {"curves": drawn} if curves else {}
        return {**found, **shares.result(), **ranks.result(), "classes": classes, **more}

    def _known_rows(self, source: Source) -> Iterator[tuple[Chunk, Array]]:
        """Yields chunks and scores of rows with known labels; others raise, or are counted as skipped lines."""
        for chunk, scores in self._stream_scores(source):
            if chunk.y is None:
                raise DataError("the data holds no labels to evaluate on; name their column")
            known = chunk.visited(self.learner_.book.codes(chunk.y)) >= 0
            if not known.all():
                self._refuse_labels(source, chunk, ~known)
                chunk, scores = chunk.visit(chunk.row_numbers[known]), scores[known]
            if chunk.n_rows:
                yield chunk, scores

    def _refuse_labels(self, source: Source, chunk: Chunk, unknown: Array) -> None:
        """Raises for rows with labels that training has not seen, or counts them if bad lines are skipped."""
        assert chunk.y is not None
        labels = chunk.visited(chunk.y)[unknown].tolist()
        faults = [f"the label {shown(label)} was never seen in training" for label in labels]
        classes = ", ".join(shown(label) for label in self.classes_[:10].tolist())
        remedy = f'the classes are {classes}; correct the label or pass on_bad_line="skip"'
        source.refuse_rows(chunk.row_ids[unknown].tolist(), faults, remedy)

    def _evaluate_labels(self, source: Source) -> dict[str, Any]:
        metrics = MultiLabelMetrics()
        for chunk, scores in self._stream_scores(source):
            coded = self.learner_.code_for_scoring(chunk)
            losses, weight = self._row_losses(coded, scores)
            assert coded.y is not None
            metrics.add(coded.visited(coded.y) > 0, self._sets_of(scores), losses, weight)
        return metrics.result()


class Regressor(Model):
    """The base of regressors: turns the learner's scores into predicted targets."""

    kind = "regressor"
    task = "regress"
    loss: Any

    def source_of(self, X: Any, y: Any = None, sample_weight: Any = None, *, columns: bool = True) -> ArraySource:
        """Rows in memory as a source, hashed if they are raw; `columns`: check the indices of sparse matrices here."""
        if y is None:
            raise no_targets(self)
        return super().source_of(X, _real_targets(y), sample_weight, columns=columns)

    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None, *, calibrate: bool = False) -> Self:
        """Continues training: learns each of these rows once, in order. Two calls give the same model as one.

        `calibrate=True` predicts the rows of the call before it learns them; the last 4,000 errors set the intervals.
        """
        if not hasattr(self, "learner_"):
            self._plan_for_arrays(X, y, more_to_come=True)
        X = in_memory(X) if calibrate else X
        source = self.source_of(X, y, sample_weight)
        self._check_width(source)
        if calibrate and hasattr(self, "n_features_in_"):
            self._add_recent(source, X)
        return self._learn_more(source)

    def _means(self, scores: Array) -> Array:
        values = np.asarray(LOSSES[self._loss_name()].mean(scores))
        return values if self.learner_.several_targets else values[:, 0]

    def predict(self, X: Any, *, uncertainty: bool | float = False) -> Any:
        """Predicts the target of every row.

        With `uncertainty` (a coverage; True is 0.9) returns (predictions, intervals), where an interval contains the
        true target with this probability; see `predict_interval`.
        """
        if uncertainty is not False:
            return self.predict(X), self.predict_interval(X, COVERAGE if uncertainty is True else uncertainty)
        return self._means(self._scores_of(X))

    def calibrate_on(self, X: Any, y: Any = None) -> Self:
        """Measures errors on rows that the model was not trained on, for `predict_interval`.

        X and y as for `fit`, or a source of rows with targets. What is learned is saved with the model.
        """
        self._calibrate_by(self._unlearned_rows(X, y, _real_targets))
        return self

    def _calibrate_by(self, rows: Source) -> None:
        if self.learner_.several_targets:
            return
        parts = [
            np.abs(self._means(scores) - chunk.visited(chunk.y))
            for chunk, scores in self._stream_scores(rows)
            if chunk.y is not None
        ]
        self._store_residuals(np.concatenate(parts) if parts else np.zeros(0))

    def _add_recent(self, source: ArraySource, X: Any) -> None:
        """Predicts rows before they are learned and stores the errors for intervals and drift events."""
        chunk = source.block
        if self.learner_.several_targets or chunk.y is None or chunk.y.ndim > 1:
            return
        self.learner_.targets.announce(chunk)  # which refuses bad ones
        self._recent = self._recent or Recent(1)
        means, y = self._means(self._scores(chunk)), chunk.visited(chunk.y)
        finite = np.isfinite(means)
        means, y = means[finite], y[finite]
        watch = self._stream_watch()
        losses = watch.bounded(np.abs(means - y).tolist())
        self.history_.events += watch.add(losses, unseen=self._unseen_share(chunk, X))
        self._recent.adapt(self.calibration_, np.abs(means - y))
        held = self._recent.add(means, y, np.ones(len(y)))
        if held is not None:
            self._store_residuals(np.abs(held[:, 0] - held[:, 1]))
        self._use_levels()

    def _calibrate_by_held_back(self, held: Any, later: Any) -> None:
        """Stores the errors on rows that the search for alpha held out: random rows, and contiguous ones."""
        if not self.learner_.several_targets:
            parts = [rows for rows in (held, later) if rows is not None]
            self._store_residuals(*(np.abs(self._means(rows.scores) - rows.y.reshape(-1)) for rows in parts))

    def predict_interval(self, X: Any, coverage: float = COVERAGE, *, later: bool = False) -> Array:
        """Returns an interval per row that contains the true target with this probability, shape (n, 2).

        Split conformal intervals from held-out rows (`calibrate_on`, early stopping, a validation source or
        alpha="auto"): the prediction plus and minus the quantile `coverage` of their absolute residuals; infinite if
        there were too few rows. Pass `later=True` if the rows come later than those of training, as in `predict_set`.
        """
        reach, middle = self._reach(coverage, later), self.predict(X)
        return np.column_stack([middle - reach, middle + reach])

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """R² on these rows."""
        found, truth = self.predict(X), np.asarray(y, np.float64)
        _check_lengths(found, truth)
        weight = np.ones(len(truth)) if sample_weight is None else np.asarray(sample_weight, np.float64)
        share = weight.reshape(-1, *([1] * (truth.ndim - 1)))
        residual = (share * (truth - found) ** 2).sum(axis=0)
        spread = (share * (truth - np.average(truth, axis=0, weights=weight)) ** 2).sum(axis=0)
        return float(np.mean(1 - residual / np.where(spread > 0, spread, 1)))

    def predict_stream(self, source: Source) -> Iterator[Array]:
        """Yields predicted targets chunk by chunk."""
        for _, scores in self._stream_scores(source):
            yield self._means(scores)

    def evaluate_stream(self, source: Source) -> dict[str, Any]:
        """Computes loss, rmse, mae and R² over a source of labelled rows."""
        metrics = RegressionMetrics()
        for chunk, scores in self._stream_scores(source):
            coded = self.learner_.code_for_scoring(chunk)
            losses, weight = self._row_losses(coded, scores)
            assert coded.y is not None
            metrics.add(coded.visited(coded.y), self._means(scores), losses, weight)
        if metrics.rows == 0:
            raise DataError("the data holds no rows to evaluate on")
        return metrics.result()


def best_threshold(scores: Array, true: Array, precision: float | None, recall: float | None) -> Threshold:
    """The threshold that reaches the given precision (or recall) with the highest recall (or precision)."""
    if not true.any():
        raise DataError("no row has the label, so no threshold can be found; give rows with it")
    order = np.argsort(-scores, kind="stable")
    hits = np.cumsum(true[order])
    reached = np.arange(1, len(order) + 1)
    last = np.append(scores[order][1:] != scores[order][:-1], True)  # rows of one score go together
    precisions, recalls = hits / reached, hits / hits[-1]
    good = last & (precisions >= precision if precision is not None else recalls >= recall)
    if not good.any():
        best = float(precisions[last].max())
        raise DataError(f"precision={precision} is not reached on these rows; the highest is {best:.4f}")
    places = np.flatnonzero(good)
    place = int(places[np.argmax((recalls if precision is not None else precisions)[places])])
    return Threshold(float(scores[order[place]]), float(precisions[place]), float(recalls[place]), place + 1)


def class_targets(y: Any) -> Array:
    """Targets of a classifier, checked like scikit-learn does; a column vector is flattened with a warning."""
    targets = target_array(y)
    if targets.ndim == 2 and targets.shape[1] == 1:
        _warn_column()
        targets = targets.ravel()
    if targets.dtype.kind == "f" and targets.ndim == 1 and np.isfinite(targets).all() and (targets % 1 != 0).any():
        raise DataError(
            "Unknown label type: continuous. y holds fractions; a classifier needs classes, a regressor takes numbers"
        )
    if targets.dtype.kind == "O" and targets.ndim == 1 and not all(isinstance(label, str) for label in targets):
        kinds = {type(label).__name__ for label in targets}
        raise DataError(f"Unknown label type: y holds objects ({', '.join(sorted(kinds))}); give strings or numbers")
    if targets.dtype.kind == "f" or targets.ndim > 2:  # whole numbers and texts are all labels
        as_targets(targets)
    return targets


def _real_targets(y: Any) -> Array:
    targets = target_array(y)
    if targets.ndim == 2 and targets.shape[1] == 1:
        _warn_column()
    if targets.dtype.kind == "O":
        try:
            targets = targets.astype(np.float64)
        except (TypeError, ValueError, OverflowError) as error:
            raise DataError(f"y holds something that is not a number ({error}); give one number per row") from None
    return as_targets(targets)


def _warn_column() -> None:
    try:
        from sklearn.exceptions import DataConversionWarning as Category
    except ImportError:
        Category = UserWarning
    warnings.warn("A column-vector y was passed when a 1d array was expected; it was flattened", Category, stacklevel=4)


def no_targets(model: Model) -> DataError:
    """The error for a fit without y."""
    return DataError(f"{type(model).__name__} requires y to be passed, but the target y is None")


def one_class(labels: list[Any]) -> DataError:
    """The error for a y with a single class."""
    only = repr(labels[0]) if labels else "none at all"
    return DataError(f"y holds one class only, {only}; give rows of another class as well, or choose another label")


def balanced(source: ArraySource, labels: Array) -> dict[Any, float]:
    """Class weights n / (classes * weight of the class), counted over all rows."""
    y = source.block.y
    assert y is not None
    weight = np.ones(len(y)) if source.block.weight is None else source.block.weight
    return balanced_weights({label: float(weight[y == label].sum()) for label in labels.tolist()})


def _check_lengths(predicted: Array, truth: Array) -> None:
    """Refuses targets that NumPy would stretch over the rows, or could not compare with them."""
    if truth.shape[:1] != predicted.shape[:1]:
        raise DataError(f"X has {len(predicted)} rows but y has shape {truth.shape}; give one target per row")
