"""Linear classifiers and regressors: a scikit-learn face on a source, a learner and the training loop.

Both minimise the mean loss of w·x + b plus alpha R(w), with R = ½‖w‖² for "l2" and ‖w‖₁ for "l1"; the bias is never
penalised. `fit(X, y)` is exactly `fit_stream(from_arrays(X, y))`.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Self

import numpy as np

from steepest.data.chunk import Array, Chunk, DataError
from steepest.data.source import ArraySource, Source, as_targets
from steepest.inside import ClassWeights
from steepest.learners.labels import distinct
from steepest.learners.linear import LinearLearner
from steepest.learners.linear_settings import LinearSettings
from steepest.learners.losses import LOSSES
from steepest.linear_model import LinearModel
from steepest.metrics import ClassificationMetrics, MultiLabelMetrics, RegressionMetrics


class LinearClassifier(LinearModel):
    """A linear classifier: minimises (1/n) Σ loss(w·x + b, y) + alpha R(w) by stochastic gradients.

    Parameters
    ----------
    loss : {"log", "hinge", "squared_hinge", "exponential", "modified_huber", "perceptron"}
        "hinge" is the support vector machine, "log" logistic regression; "perceptron" with average=True is the
        averaged perceptron.
    penalty : {"l2", "l1", "elasticnet", "lp", "none"}
        R(w). "elasticnet" mixes by `l1_ratio`; "lp" is Σ|w|^p / p, for `p` 1 or 2, or any p >= 1 in batch.
    alpha : float
        Strength of the penalty. `C` may be given instead, the view of support vector machines: alpha = 1 / (n C).
    solver : {"auto", "sgd", "asgd", "adagrad", "ftrl", "coin", "truncated", or a batch solver}
        "asgd" averages the iterates; "adagrad" and "ftrl" have a rate per coordinate; "truncated" is the truncated
        gradient, which shrinks weights up to `truncate_below` towards zero every `truncate_every` steps; "coin" needs
        no step size. "gd", "closed_form", "cg", "lbfgs", "newton_cg", "dual_cd", "saga" and "cd" minimise over all
        rows at once, for up to `max_iter` iterations. "auto" is stochastic unless `tol` is below 1e-4, and says in
        `history_.events` what it chose and why; see the page on solvers.
    schedule : {"auto", "constant", "invsqrt", "bottou", "optimal", "adaptive"}
        How the step size falls from `eta0`; see the guide. eta0="auto" tries step sizes on the first thousand rows.
    epochs : int
        Passes over the data.
    batch_size : int
        Rows whose slopes are taken at the same weights and added up.
    tol : float or None
        Training stops when the objective improves by less than this share for `patience` epochs; a batch solver when
        what `tol_on` names ("gradient", "objective" or "parameters") falls to it, 1e-6 if None.
    early_stopping : bool or "refit"
        Holds out `validation_fraction` of the rows, stops after `patience` epochs without improvement on them, and
        keeps the best model. "refit" then learns from all rows for as many epochs as were best.
    average : {"auto", False, True, "uniform", "eta", "poly"}
        Average of the iterates: True weighs late ones more ("poly"), "eta" by the step size.
    multi_class : {"ovr", "softmax", "hashed"}
        More than two classes: one against the rest, or one soft maximum. "hashed" is one against the rest in one
        table of 2^`table_bits` weights that all classes share, however many there are. A y with several 0/1 columns is
        multi-label.
    table_bits : int or "auto"
        Size of the table of multi_class="hashed"; "auto" takes the bits of the hasher, or 22.
    fit_intercept : bool
        Whether there is a bias b.
    class_weight : None, "balanced" or {label: weight}
    shuffle : {"blocks", "rows", "once", "never"}
        Order of the rows in every epoch.
    parallel : {"serial", "replicas", "hogwild", "mixing", "auto"}
        "replicas": `n_replicas` learn `sync_every` rows each and add up what they have learned, again and again.
        "hogwild": threads share the weights without locks, for large tables; not the same bits every time. "mixing":
        `n_shards` learn apart and are averaged in `rounds` rounds (None: one an epoch), by `mix` ("evidence" or
        "uniform") of what they `send` ("full", "delta", "topk", "float16"); `vote` keeps their models, for a majority
        vote (True) or the mean of their probabilities ("ensemble"). "auto" chooses, and says so in `history_.events`.
    n_jobs : int
        Threads that predict, learn in parallel, and of batch solvers; -1 for all. Changes no bit, except by hogwild.
    dtype : {"float32", "float64"}
        Type of the weights.
    random_state : int, generator or None
        A number gives the same bits every time.
    verbose : int
        1 prints a line an epoch to stderr.
    hasher : Hasher, optional
        X may then be raw: texts, dicts, a DataFrame or an Arrow table; it travels in the model file.
    memory_budget : int or str, optional
        Bytes, or "512MB": chooses the hasher's bits, the width of weights and whether they are averaged, so that all
        that training holds fits, and says why in `history_.events`. An n_bits that is not the default, and copies,
        averages and names that were asked for, are kept.
    epsilon, quantile
        Parameters of losses of LinearRegressor; a classifier does not use them.

    Attributes
    ----------
    coef_, intercept_, classes_, n_iter_, n_features_in_, history_, n_nonzero_
    margin_ : float, 1/‖w‖ (two classes)
    dual_coef_, dual_gap_, slacks_, support_ : with solver="dual_cd" only: the dual variables, a bound on the distance
        of the objective from its optimum, the loss of each row, and the rows that hold the weights

    Examples
    --------
    >>> import steepest as st
    >>> X, y = [[0.0, 1.0], [1.0, 0.0], [0.0, 2.0], [2.0, 0.0]], ["no", "yes", "no", "yes"]
    >>> model = st.LinearClassifier("hinge", alpha=1e-3, random_state=0).fit(X, y)
    >>> model.predict([[0.0, 3.0], [3.0, 0.0]]).tolist()
    ['no', 'yes']

    References
    ----------
    Bottou, L. (2010). Large-scale machine learning with stochastic gradient descent.
    """

    _kind = "classifier"
    _task = "classify"
    multi_class: str
    class_weight: Any
    table_bits: int | str

    def __init__(
        self,
        loss: str = "log",
        *,
        penalty: str = "l2",
        alpha: float = 1e-6,
        l1_ratio: float = 0.15,
        solver: str = "auto",
        schedule: str = "auto",
        eta0: float | str = "auto",
        epochs: int = 5,
        batch_size: int = 1,
        tol: float | None = None,
        early_stopping: bool | str = False,
        average: bool | str = "auto",
        fit_intercept: bool = True,
        multi_class: str = "ovr",
        class_weight: Any = None,
        shuffle: str = "blocks",
        parallel: str = "serial",
        n_jobs: int = 1,
        dtype: str = "float32",
        hasher: Any = None,
        random_state: Any = None,
        verbose: int = 0,
        C: float | None = None,
        p: float = 1.0,
        epsilon: float = 0.1,
        quantile: float = 0.5,
        truncate_every: int = 10,
        truncate_below: float = math.inf,
        validation_fraction: float = 0.1,
        patience: int = 2,
        table_bits: int | str = "auto",
        memory_budget: int | str | None = None,
        max_iter: int = 1000,
        tol_on: str = "auto",
        n_replicas: int = 2,
        sync_every: int = 2048,
        n_shards: int = 8,
        rounds: int | None = None,
        mix: str = "evidence",
        send: str = "full",
        vote: bool | str = False,
    ) -> None:
        self._store(locals())

    def _new_learner(self, settings: LinearSettings, source: Source, classes: Any = None) -> LinearLearner:
        labels = source.labels if classes is None else np.unique(np.asarray(classes))
        self._label_dtype = None if labels is None else labels.dtype
        if labels is None:
            return LinearLearner(settings, source.n_features or 0)
        if len(labels) < 2:
            raise _one_class(labels.tolist())
        if settings.class_weight == "balanced" and isinstance(source, ArraySource) and classes is None:
            settings = replace(settings, class_weight=_balanced(source, labels))
        return LinearLearner(settings, source.n_features or 0, labels.tolist())

    def _check_learned(self, learner: LinearLearner) -> None:
        super()._check_learned(learner)
        if len(learner.book) < 2 and not learner.several_targets:
            raise _one_class(learner.book.labels)

    def _source(self, X: Any, y: Any = None, sample_weight: Any = None) -> ArraySource:
        targets = None if y is None else class_targets(y)
        source = super()._source(X, targets, sample_weight)
        if targets is not None and targets.ndim == 1:
            source.labels = distinct(targets)
        return source

    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> Self:
        """Learns these rows once, in order, from where the model stands.

        Classes may be given with the first call, or appear at any time. Two calls learn the same as one with all rows.
        """
        if self.memory_budget is not None and not hasattr(self, "_learner"):
            self._plan_for_arrays(X, y, classes, more_to_come=True)
        source = self._source(X, y, sample_weight)
        source.labels = None
        self._check_width(source)
        return self._learn_more(source, classes)

    def _refresh(self) -> None:
        super()._refresh()
        learner = self._learner
        if learner.several_targets:
            names = getattr(self, "_target_names", None)
            self.classes_ = np.arange(learner.n_outputs) if names is None else np.array(names)
            return
        labels, self._label_order = learner.book.sorted_labels()
        self._in_order = bool((self._label_order[:-1] < self._label_order[1:]).all())
        dtype = getattr(self, "_label_dtype", None)
        self.classes_ = labels if dtype is None or dtype.kind in "US" else labels.astype(dtype)

    def _by_output(self, values: Array) -> Array:
        if self._learner.several_targets:
            return values
        order = self._label_order
        if self._learner.n_outputs == 1:
            return values if self._in_order else -values
        if len(order) <= 2:  # in a shared table two classes have a column each
            return np.asarray((values[order[-1:]] - values[order[:1]]) / 2)
        return values if self._in_order else values[order]

    def _weights_by_output(self) -> list[tuple[Any, Any]]:
        if self._learner.shared:
            return self._shared_weights()
        weights = self._output_weights()
        if len(weights) == 1:  # one column speaks for the second class, and negated for the first
            weights = np.concatenate([-weights, weights])
        return list(zip(self.classes_.tolist(), weights, strict=False))

    def _shared_weights(self) -> list[tuple[Any, Any]]:
        learner, labels = self._learner, self.classes_.tolist()
        if learner.several_targets:
            return [(label, ClassWeights(learner, output)) for output, label in enumerate(labels)]
        order = self._label_order.tolist()
        if len(order) == 2:
            return [(labels[k], ClassWeights(learner, order[k], order[1 - k])) for k in (0, 1)]
        return [(label, ClassWeights(learner, output)) for label, output in zip(labels, order, strict=True)]

    def _decisions(self, scores: Array) -> Array:
        """Scores in the order of `classes_`; one column for two classes."""
        decisions = self._by_output(scores.T).T
        return decisions[:, 0] if decisions.shape[1] == 1 and not self._learner.several_targets else decisions

    def decision_function(self, X: Any) -> Array:
        """Raw scores w·x + b: shape (n,) for two classes, else (n, classes)."""
        return self._decisions(self._scores(self._chunk(X)))

    def _labels_of(self, decisions: Array) -> Array:
        if self._learner.several_targets:
            return (decisions > 0).astype(np.int64)
        if decisions.ndim == 1:
            second = decisions > 0 if len(self.classes_) > 1 else np.zeros(len(decisions), bool)
            return np.asarray(self.classes_.take(second))
        return np.asarray(self.classes_.take(decisions.argmax(axis=1)))

    def predict(self, X: Any) -> Array:
        """The most likely class of every row, or 0/1 columns for multi-label."""
        return self._labels_of(self.decision_function(X))

    @property
    def predict_proba(self) -> Callable[[Any], Array]:
        """Probabilities of the classes, shape (n, classes); only losses that have them have this method."""
        if self.loss in LOSSES and LOSSES[self.loss].link is None:
            raise AttributeError(f"loss={self.loss!r} gives no probabilities; use 'log' or 'modified_huber'")
        return lambda X: self._probabilities(self.decision_function(X))

    @property
    def predict_log_proba(self) -> Callable[[Any], Array]:
        """Logarithms of the probabilities."""
        probabilities = self.predict_proba

        def logarithms(X: Any) -> Array:
            with np.errstate(divide="ignore"):
                return np.asarray(np.log(probabilities(X)))

        return logarithms

    def _probabilities(self, decisions: Array) -> Array:
        if decisions.ndim == 2 and not self._learner.several_targets and self.multi_class == "softmax":
            e = np.exp(decisions - decisions.max(axis=1, keepdims=True))
            return np.asarray(e / e.sum(axis=1, keepdims=True))
        positive = LOSSES[self.loss].probability(decisions)
        assert positive is not None
        if self._learner.several_targets:
            return np.asarray(positive)
        if decisions.ndim == 1:
            return np.column_stack([1 - positive, positive] if len(self.classes_) > 1 else [np.ones(len(positive))])
        total = positive.sum(axis=1, keepdims=True)
        return np.asarray(np.where(total > 0, positive / np.where(total > 0, total, 1), 1 / decisions.shape[1]))

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Accuracy on these rows."""
        right = np.asarray(self.predict(X) == np.asarray(y))
        if right.ndim == 2:
            right = np.asarray(right.all(axis=1))
        return float(np.average(right, weights=sample_weight))

    def predict_stream(self, source: Source, *, proba: bool = False) -> Iterator[Array]:
        """Predictions (or probabilities) chunk by chunk."""
        for _, scores in self._stream_scores(source):
            decisions = self._decisions(scores)
            yield self._probabilities(decisions) if proba else self._labels_of(decisions)

    def evaluate_stream(self, source: Source) -> dict[str, Any]:
        """Rows, loss, accuracy and more over a source of labelled rows."""
        if getattr(self, "_learner", None) is not None and self._learner.several_targets:
            return self._evaluate_labels(source)
        metrics = None
        for chunk, scores in self._known_rows(source):
            metrics = metrics or ClassificationMetrics(self.classes_)
            coded = self._learner.code_for_scoring(chunk)
            losses, weight = self._learner.losses(coded)
            assert coded.y is not None
            codes = coded.visited(coded.y).astype(np.int64)
            codes = (codes + 1) // 2 if self._learner.n_outputs == 1 else codes
            place = np.argsort(self._label_order)
            decisions = self._decisions(scores)
            predicted = (decisions > 0).astype(np.int64) if decisions.ndim == 1 else decisions.argmax(axis=1)
            metrics.add(place[codes], predicted, losses, weight)
        if metrics is None:
            raise DataError("the data holds no rows to evaluate on")
        return metrics.result()

    def _known_rows(self, source: Source) -> Iterator[tuple[Chunk, Array]]:
        """Chunks and scores without the rows whose labels were never seen in training; the source says what is done."""
        for chunk, scores in self._stream_scores(source):
            if chunk.y is None:
                raise DataError("the data holds no labels to evaluate on; name their column")
            known = chunk.visited(self._learner.book.codes(chunk.y)) >= 0
            if not known.all():
                labels = chunk.visited(chunk.y)[~known].tolist()
                faults = [f"the label {label!r} was never seen in training" for label in labels]
                classes = ", ".join(repr(label) for label in self.classes_[:10].tolist())
                remedy = f'the classes are {classes}; correct the label or pass on_bad_line="skip"'
                source.refuse_rows(chunk.row_ids[~known].tolist(), faults, remedy)
                chunk, scores = chunk.visit(chunk.row_numbers[known]), scores[known]
            if chunk.n_rows:
                yield chunk, scores

    def _evaluate_labels(self, source: Source) -> dict[str, Any]:
        metrics = MultiLabelMetrics()
        for chunk, scores in self._stream_scores(source):
            coded = self._learner.code_for_scoring(chunk)
            losses, weight = self._learner.losses(coded)
            assert coded.y is not None
            metrics.add(coded.visited(coded.y) > 0, scores > 0, losses, weight)
        return metrics.result()

    @property
    def margin_(self) -> float:
        """Half the width of the band between the classes, 1/‖w‖ (two classes)."""
        self._check_learner()
        if self._learner.n_outputs != 1:
            raise AttributeError("margin_ is defined for two classes")
        norm = float(np.linalg.norm(self._learner.weights()[0].astype(np.float64)))
        return 1 / norm if norm else math.inf


class LinearRegressor(LinearModel):
    """A linear regressor: minimises (1/n) Σ loss(w·x + b, y) + alpha R(w) by stochastic gradients.

    Losses: "squared" (½ r²), "huber" and "epsilon_insensitive" (with `epsilon`), "quantile" (with `quantile`) and
    "poisson" (counts; predicts exp(w·x + b)). The other parameters are those of LinearClassifier.

    Examples
    --------
    >>> import steepest as st
    >>> model = st.LinearRegressor(epochs=50, random_state=0).fit([[0.0], [1.0], [2.0], [3.0]], [1.0, 3.0, 5.0, 7.0])
    >>> bool(abs(model.predict([[4.0]])[0] - 9) < 0.5)
    True

    References
    ----------
    Bottou, L. (2010). Large-scale machine learning with stochastic gradient descent.
    """

    _kind = "regressor"
    _task = "regress"

    def __init__(
        self,
        loss: str = "squared",
        *,
        penalty: str = "l2",
        alpha: float = 1e-6,
        l1_ratio: float = 0.15,
        solver: str = "auto",
        schedule: str = "auto",
        eta0: float | str = "auto",
        epochs: int = 5,
        batch_size: int = 1,
        tol: float | None = None,
        early_stopping: bool | str = False,
        average: bool | str = "auto",
        fit_intercept: bool = True,
        shuffle: str = "blocks",
        parallel: str = "serial",
        n_jobs: int = 1,
        dtype: str = "float32",
        hasher: Any = None,
        random_state: Any = None,
        verbose: int = 0,
        C: float | None = None,
        p: float = 1.0,
        epsilon: float = 0.1,
        quantile: float = 0.5,
        truncate_every: int = 10,
        truncate_below: float = math.inf,
        validation_fraction: float = 0.1,
        patience: int = 2,
        memory_budget: int | str | None = None,
        max_iter: int = 1000,
        tol_on: str = "auto",
        n_replicas: int = 2,
        sync_every: int = 2048,
        n_shards: int = 8,
        rounds: int | None = None,
        mix: str = "evidence",
        send: str = "full",
        vote: bool | str = False,
    ) -> None:
        self._store(locals())

    def _source(self, X: Any, y: Any = None, sample_weight: Any = None) -> ArraySource:
        return super()._source(X, None if y is None else _real_targets(y), sample_weight)

    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Learns these rows once, in order, from where the model stands; two calls learn the same as one."""
        if self.memory_budget is not None and not hasattr(self, "_learner"):
            self._plan_for_arrays(X, y, more_to_come=True)
        source = self._source(X, y, sample_weight)
        self._check_width(source)
        return self._learn_more(source)

    def _means(self, scores: Array) -> Array:
        values = np.asarray(LOSSES[self.loss].mean(scores))
        return values if self._learner.several_targets else values[:, 0]

    def predict(self, X: Any) -> Array:
        """Predicted targets."""
        return self._means(self._scores(self._chunk(X)))

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """R² on these rows."""
        truth = np.asarray(y, np.float64)
        weight = np.ones(len(truth)) if sample_weight is None else np.asarray(sample_weight, np.float64)
        share = weight.reshape(-1, *([1] * (truth.ndim - 1)))
        residual = (share * (truth - self.predict(X)) ** 2).sum(axis=0)
        spread = (share * (truth - np.average(truth, axis=0, weights=weight)) ** 2).sum(axis=0)
        return float(np.mean(1 - residual / np.where(spread > 0, spread, 1)))

    def predict_stream(self, source: Source) -> Iterator[Array]:
        """Predicted targets chunk by chunk."""
        for _, scores in self._stream_scores(source):
            yield self._means(scores)

    def evaluate_stream(self, source: Source) -> dict[str, Any]:
        """Rows, loss, rmse, mae and R² over a source of labelled rows."""
        metrics = RegressionMetrics()
        for chunk, scores in self._stream_scores(source):
            coded = self._learner.code_for_scoring(chunk)
            losses, weight = self._learner.losses(coded)
            assert coded.y is not None
            metrics.add(coded.visited(coded.y), self._means(scores), losses, weight)
        if metrics.rows == 0:
            raise DataError("the data holds no rows to evaluate on")
        return metrics.result()


def class_targets(y: Any) -> Array:
    """Targets of a classifier, checked as scikit-learn checks them; a column is warned about and flattened."""
    targets = np.asarray(y)
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
    if targets.dtype.kind in "biufOUS":
        as_targets(targets)
    return targets


def _real_targets(y: Any) -> Array:
    targets = np.asarray(y)
    if targets.ndim == 2 and targets.shape[1] == 1:
        _warn_column()
    return as_targets(targets.astype(np.float64) if targets.dtype.kind == "O" else targets)


def _warn_column() -> None:
    try:
        from sklearn.exceptions import DataConversionWarning as Category
    except ImportError:
        Category = UserWarning
    warnings.warn("A column-vector y was passed when a 1d array was expected; it was flattened", Category, stacklevel=4)


def _one_class(labels: list[Any]) -> DataError:
    return DataError(f"y holds one class only, {labels[:1]}; a classifier needs at least two classes to tell apart")


def _balanced(source: ArraySource, labels: Array) -> dict[Any, float]:
    """n / (classes * weight of the class), from all rows."""
    y = source.block.y
    assert y is not None
    weight = np.ones(len(y)) if source.block.weight is None else source.block.weight
    sums = [float(weight[y == label].sum()) for label in labels]
    return {label: sum(sums) / (len(labels) * max(s, 1e-300)) for label, s in zip(labels.tolist(), sums, strict=True)}
