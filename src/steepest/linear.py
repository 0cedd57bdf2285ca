"""Linear classifiers and regressors: a scikit-learn face on a source, a learner and the training loop.

Both minimise the mean loss of w·x + b plus alpha R(w), with R = ½‖w‖² for "l2" and ‖w‖₁ for "l1"; the bias is never
penalised. `fit(X, y)` is exactly `fit_stream(from_arrays(X, y))`.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from steepest.data.chunk import Array
from steepest.data.source import ArraySource, Source
from steepest.engine.history import History
from steepest.inside import ClassWeights
from steepest.learners.linear import LinearLearner
from steepest.learners.linear_settings import LinearSettings
from steepest.learners.losses import loss_for
from steepest.linear_model import LinearModel
from steepest.supervised import Classifier, Regressor, balanced, one_class


class LinearClassifier(Classifier, LinearModel):
    """A linear classifier: minimises (1/n) Σ loss(w·x + b, y) + alpha R(w) by stochastic gradients.

    Parameters
    ----------
    loss : {"auto", "log", "hinge", "squared_hinge", "exponential", "modified_huber", "perceptron"}
        "hinge" is the support vector machine, "log" logistic regression; "perceptron" with average=True is the
        averaged perceptron. "auto" is "log" for two classes and for multi_class="softmax", and "squared_hinge"
        for more classes or several labels, where it is more often right; `history_.events` says so.
    penalty : {"l2", "l1", "elasticnet", "lp", "none"}
        R(w). "elasticnet" mixes by `l1_ratio`; "lp" is Σ|w|^p / p, for `p` 1 or 2, or any p >= 1 in batch.
    alpha : float
        Strength of the penalty.
    C : float, optional
        The view of support vector machines, instead of alpha: alpha = 1 / (n C).
    l1_ratio : float
        Share of the 1-norm in the elastic net.
    p : float
        Exponent of penalty="lp".
    solver : {"auto", "sgd", "asgd", "adagrad", "ftrl", "coin", "truncated", "gd", "closed_form", "cg", "lbfgs", ...}
        How to minimise; "auto" chooses. "asgd" averages the iterates; "adagrad" and "ftrl" have a rate per coordinate;
        "truncated" is the truncated gradient; "coin" needs no step size. "gd", "closed_form", "cg", "lbfgs",
        "newton_cg", "dual_cd", "saga" and "cd" minimise over all rows at once. "auto" is stochastic unless `tol` is
        below 1e-4, and says in `history_.events` what it chose and why; see the page on solvers.
    schedule : {"auto", "constant", "invsqrt", "bottou", "optimal", "adaptive"}
        How the step size falls from `eta0`; see the guide.
    eta0 : float or "auto"
        First step size; "auto" tries some on the first thousand rows.
    truncate_every, truncate_below : int, float
        solver="truncated" shrinks weights up to the second towards zero, every so many steps.
    epochs : int
        Passes over the data.
    batch_size : int
        Rows whose slopes are taken at the same weights and added up.
    tol : float or None
        Training stops when the objective improves by less than this share for `patience` epochs; a batch solver when
        what `tol_on` names falls to it, 1e-6 if None.
    tol_on : {"auto", "gradient", "objective", "parameters"}
        What `tol` is compared with in batch solvers: norms and changes relative to their first values.
    max_iter : int
        Most iterations of a batch solver.
    early_stopping : bool or "refit"
        Holds out `validation_fraction` of the rows, stops after `patience` epochs without improvement on them, and
        keeps the best model. "refit" then learns from all rows for as many epochs as were best.
    validation_fraction : float
        Share of the rows that early stopping holds out.
    patience : int
        Epochs without improvement after which training stops.
    average : {"auto", False, True, "uniform", "eta", "poly"}
        Average of the iterates: True weighs late ones more ("poly"), "eta" by the step size.
    multi_class : {"ovr", "softmax", "hashed"}
        More than two classes: one against the rest, or one soft maximum. "hashed" is one against the rest in one
        table of 2^`table_bits` weights that all classes share, however many there are. A y with several 0/1 columns is
        multi-label; if no row to learn from was without a label, none is predicted without one.
    table_bits : int or "auto"
        Size of the table of multi_class="hashed"; "auto" takes the bits of the hasher, or 22.
    fit_intercept : bool
        Whether there is a bias b.
    class_weight : None, "balanced" or {label: weight}
    shuffle : {"blocks", "rows", "once", "never"}
        Order of the rows in every epoch.
    parallel : {"serial", "replicas", "hogwild", "mixing", "auto"}
        Who learns: one, replicas that add up what they have learned, threads that share the weights without locks (for
        large tables; not the same bits every time), or shards that are averaged. "auto" chooses, and says so in
        `history_.events`.
    n_replicas, sync_every : int
        parallel="replicas": how many learn so many rows each before they add up.
    n_shards : int
        parallel="mixing": how many learn apart.
    rounds : int, optional
        How often shards are averaged in all; None: once an epoch.
    sync_seconds : float, optional
        Instead of rounds: shards are averaged about every so many seconds. Not the same bits every time.
    mix : {"evidence", "uniform"}
        Whether a feature moves by more than the shards' mean change, the more the less of it is in their rows.
    send : {"full", "delta", "topk", "float16"}
        What shards send: all weights, changes, the largest tenth of them, or all in half precision.
    vote : bool or "ensemble"
        Keeps the shards' models, for a majority vote (True) or the mean of their probabilities.
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
        Of losses of LinearRegressor; a classifier does not use them.

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

    multi_class: str
    table_bits: int | str

    def __init__(
        self,
        loss: str = "auto",
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
        sync_seconds: float | None = None,
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
            raise one_class(labels.tolist())
        if settings.class_weight == "balanced" and isinstance(source, ArraySource) and classes is None:
            settings = replace(settings, class_weight=balanced(source, labels))
        return LinearLearner(settings, source.n_features or 0, labels.tolist())

    def _adopt(self, learner: LinearLearner, history: History, source: Source) -> None:
        super()._adopt(learner, history, source)
        if self.loss == "auto" and learner.loss.name != "log":
            sentence = f"loss='auto' is {learner.loss.name!r} for {learner.n_outputs} outputs; 'log' gives log odds"
            if sentence not in history.events:
                history.events.append(sentence)

    def _loss_name(self) -> str:
        return self._learner.loss.name if hasattr(self, "_learner") else loss_for(self.loss, 1)

    def _is_softmax(self) -> bool:
        return self.multi_class == "softmax"

    def _by_output(self, values: Array) -> Array:
        if self._learner.shared and not self._learner.several_targets and len(self._label_order) <= 2:
            first, last = self._label_order[:1], self._label_order[-1:]
            return np.asarray((values[last] - values[first]) / 2)  # two classes have a column each there
        return super()._by_output(values)

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

    @property
    def margin_(self) -> float:
        """Half the width of the band between the classes, 1/‖w‖ (two classes)."""
        self._check_learner()
        if self._learner.n_outputs != 1:
            raise AttributeError("margin_ is defined for two classes")
        norm = float(np.linalg.norm(self._learner.weights()[0].astype(np.float64)))
        return 1 / norm if norm else math.inf


class LinearRegressor(Regressor, LinearModel):
    """A linear regressor: minimises (1/n) Σ loss(w·x + b, y) + alpha R(w) by stochastic gradients.

    Parameters that are not listed are those of LinearClassifier.

    Parameters
    ----------
    loss : {"squared", "huber", "epsilon_insensitive", "quantile", "poisson"}
        Of the residual r: ½ r², ½ r² up to `epsilon` and straight beyond, |r| beyond `epsilon`, the loss whose minimum
        is a `quantile`; "poisson" is for counts, and predicts exp(w·x + b).
    epsilon : float
        Where huber changes from a square to a line; width of the band in which epsilon_insensitive forgives.
    quantile : float
        Which one, between 0 and 1.

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
        sync_seconds: float | None = None,
        mix: str = "evidence",
        send: str = "full",
        vote: bool | str = False,
    ) -> None:
        self._store(locals())
