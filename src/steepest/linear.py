"""Linear classifiers and regressors: a scikit-learn face on a source, a learner and the training loop.

Both minimise the mean loss of w·x + b plus alpha R(w), with R = ½‖w‖² for "l2" and ‖w‖₁ for "l1"; the bias is never
penalised. `fit(X, y)` is exactly `fit_stream(from_arrays(X, y))`.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, Self

import numpy as np

from steepest.data.chunk import Array, DataError
from steepest.data.parameters import choice
from steepest.data.source import ArraySource, Source, from_arrays
from steepest.engine.loop import mean_loss
from steepest.inside import Contribution, explain_hashed, explain_row, heaviest, heaviest_named
from steepest.learners.base import State
from steepest.learners.linear import LinearLearner
from steepest.learners.linear_settings import LinearSettings, resolve_settings
from steepest.supervised import Classifier, Regressor, balanced, one_class
from steepest.supervised_model import SupervisedModel


class LinearModel(SupervisedModel):
    """What linear classifiers and regressors share: their learner, and a look inside."""

    loss: str
    penalty: str
    alpha: float
    l1_ratio: float
    solver: str
    eta0: float | str
    batch_size: int
    average: bool | str
    fit_intercept: bool
    parallel: str
    dtype: str
    C: float | None
    p: float
    epsilon: float
    quantile: float
    truncate_every: int
    truncate_below: float

    def _settings(self, n_rows: int | None) -> LinearSettings:
        choice("parallel", self.parallel, ("serial",))
        return resolve_settings(self._task, self.get_params(deep=False), n_rows)

    def _new_learner(self, settings: LinearSettings, source: Source, classes: Any = None) -> LinearLearner:
        return LinearLearner(settings, source.n_features or 0)

    @classmethod
    def _restore(cls, settings: Any, state: State) -> LinearLearner:
        known = settings if isinstance(settings, LinearSettings) else LinearSettings.from_dict(settings)
        return LinearLearner.from_state(known, state)

    # --------------------------------------------------------------------------------------------- looking inside

    @property
    def coef_(self) -> Array:
        """Weights, one row an output: shape (1, d) for two classes or one target."""
        shown: Any = vars(self).get("_sparse_coef")
        return self._output_weights()[0] if shown is None else shown

    @property
    def intercept_(self) -> Array:
        """Biases, one an output."""
        return self._output_weights()[1]

    @property
    def n_nonzero_(self) -> int:
        """Weights that are not zero."""
        return int(np.count_nonzero(self._learner.weights()[0]))

    def _output_weights(self) -> tuple[Array, Array]:
        self._check_learner()
        weights, bias = self._learner.weights()
        return np.ascontiguousarray(weights.T), np.array(bias)

    def _check_learner(self) -> None:
        if "_learner" not in self.__dict__:
            raise AttributeError(f"this {type(self).__name__} is not fitted yet")

    def top_features(self, k: int = 20) -> dict[Any, list[tuple[str, float]]]:
        """The k features that speak most for each class (or for a high target), heaviest first, with their weights."""
        self._check_fitted()
        hasher = getattr(self, "hasher_", None)
        if hasher is not None and hasher.names:
            return {label: heaviest_named(weights, k, hasher) for label, weights in self._weights_by_output()}
        names = getattr(self, "feature_names_in_", None)
        return {label: heaviest(weights, k, names) for label, weights in self._weights_by_output()}

    def explain(self, x: Any) -> dict[Any, list[Contribution]]:
        """What each feature of one row adds to the score of each class (or to the target), largest first."""
        self._check_fitted()
        hasher = getattr(self, "hasher_", None)
        if hasher is None:
            row = self._chunk(x if getattr(x, "ndim", 2) == 2 or isinstance(x, list) else np.asarray(x)[None, :])
            names = getattr(self, "feature_names_in_", None)
            return {label: explain_row(row, weights, names) for label, weights in self._weights_by_output()}
        row, own, seen = hasher.read_row(x)
        return {label: explain_hashed(row, weights, own, seen) for label, weights in self._weights_by_output()}

    def collision_report(self) -> Any:
        """How crowded the buckets of the hasher are, and how much of the weight is named or shared."""
        self._check_fitted()
        if getattr(self, "hasher_", None) is None:
            raise DataError("there is no hasher in this model, so no collisions either")
        return self.hasher_.collision_report(self.coef_)

    def _weights_by_output(self) -> list[tuple[Any, Array]]:
        return [(number, weights) for number, weights in enumerate(self._output_weights()[0])]

    def sparsify(self) -> Self:
        """Shows `coef_` as a scipy CSR matrix; prediction is sparse in the input anyway."""
        from scipy.sparse import csr_matrix

        self._check_fitted()
        self._sparse_coef: Any = csr_matrix(self._output_weights()[0])
        return self

    def densify(self) -> Self:
        """Shows `coef_` as an array again."""
        self._sparse_coef = None
        return self

    def objective(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Mean loss on these rows plus alpha R(w): what training minimises."""
        self._check_fitted()
        return mean_loss(self._learner, from_arrays(X, y, sample_weight)) + float(self._learner.penalty())


class LinearClassifier(Classifier, LinearModel):
    """A linear classifier: minimises (1/n) Σ loss(w·x + b, y) + alpha R(w) by stochastic gradients.

    Parameters
    ----------
    loss : {"log", "hinge", "squared_hinge", "exponential", "modified_huber", "perceptron"}
        "hinge" is the support vector machine, "log" logistic regression; "perceptron" with average=True is the
        averaged perceptron.
    penalty : {"l2", "l1", "elasticnet", "lp", "none"}
        R(w). "elasticnet" mixes by `l1_ratio`; "lp" is Σ|w|^p / p, for `p` 1 or 2.
    alpha : float
        Strength of the penalty. `C` may be given instead, the view of support vector machines: alpha = 1 / (n C).
    solver : {"auto", "sgd", "asgd", "adagrad", "ftrl", "truncated"}
        "asgd" averages the iterates; "adagrad" and "ftrl" have a rate per coordinate; "truncated" is the truncated
        gradient, which shrinks weights up to `truncate_below` towards zero every `truncate_every` steps.
    schedule : {"auto", "constant", "invsqrt", "bottou", "optimal", "adaptive"}
        How the step size falls from `eta0`; see the guide. eta0="auto" tries step sizes on the first thousand rows.
    epochs : int
        Passes over the data.
    batch_size : int
        Rows whose slopes are taken at the same weights and added up.
    tol : float or None
        Training stops when the loss improves by less than this share for `patience` epochs.
    early_stopping : bool
        Holds out `validation_fraction` of the rows, stops after `patience` epochs without improvement on them, and
        keeps the best model.
    average : {"auto", False, True, "uniform", "eta", "poly"}
        Average of the iterates: True weighs late ones more ("poly"), "eta" by the step size.
    multi_class : {"ovr", "softmax"}
        More than two classes: one against the rest, or one soft maximum. A y with several 0/1 columns is multi-label.
    fit_intercept : bool
        Whether there is a bias b.
    class_weight : None, "balanced" or {label: weight}
    shuffle : {"blocks", "rows", "once", "never"}
        Order of the rows in every epoch.
    parallel : {"serial"}
    n_jobs : int
        Threads that predict; -1 for all.
    dtype : {"float32", "float64"}
        Type of the weights.
    random_state : int, generator or None
        A number gives the same bits every time.
    verbose : int
        1 prints a line an epoch to stderr.
    hasher
        Not used yet; leave it None.
    epsilon, quantile
        Parameters of losses of LinearRegressor; a classifier does not use them.

    Attributes
    ----------
    coef_, intercept_, classes_, n_iter_, n_features_in_, history_, n_nonzero_
    margin_ : float, 1/‖w‖ (two classes)

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
        early_stopping: bool = False,
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

    def _is_softmax(self) -> bool:
        return self.multi_class == "softmax"

    def _output_weights(self) -> tuple[Array, Array]:
        weights, bias = super()._output_weights()
        if self._learner.several_targets:
            return weights, bias
        if self._learner.n_outputs == 1:
            flip = len(self._label_order) == 2 and self._label_order[0] == 1
            return (-weights, -bias) if flip else (weights, bias)
        return weights[self._label_order], bias[self._label_order]

    def _weights_by_output(self) -> list[tuple[Any, Array]]:
        weights = self._output_weights()[0]
        if len(weights) == 1:  # one column speaks for the second class, and negated for the first
            weights = np.concatenate([-weights, weights])
        return list(zip(self.classes_.tolist(), weights, strict=False))

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
        early_stopping: bool = False,
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
    ) -> None:
        self._store(locals())
