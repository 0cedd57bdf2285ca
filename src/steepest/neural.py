"""Networks as scikit-learn estimators: a graph of units and its learner behind the faces that linear models have.

Both minimise the mean loss of the network's output plus alpha R(W) by back-propagation over mini-batches; biases are
never penalised. `fit(X, y)` is exactly `fit_stream(from_arrays(X, y))`, restarts included.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import numpy as np

from steepest.data.chunk import Array, DataError
from steepest.data.parameters import ParameterError, at_least, choice, inside, more_than, number, whole
from steepest.data.source import ArraySource, Source
from steepest.engine.history import History
from steepest.engine.loop import Monitor, mean_loss
from steepest.learners.base import State
from steepest.learners.graph import Graph
from steepest.learners.linear_settings import checked_class_weight
from steepest.learners.losses import LOSSES
from steepest.learners.network import NetworkLearner
from steepest.learners.network_settings import INITS, RULES, SCHEDULES, NetworkSettings
from steepest.learners.penalties import check_alpha, get_penalty
from steepest.model import threads
from steepest.supervised import Classifier, Regressor, balanced, one_class
from steepest.supervised_model import SupervisedModel

# First steps that neither crawl nor jump on standardised features; momentum multiplies its own by ten.
ETA0 = {"sgd": 0.1, "momentum": 0.02, "adagrad": 0.05, "adam": 0.003}
MOST_HIDDEN = 512  # of hidden="auto"
FEWEST_BATCH_ROWS, BATCH_ROWS, MOST_BATCH_ROWS = 4, 32, 128  # of batch_size="auto"; 32 where rows are not counted


class NetworkModel(SupervisedModel):
    """What classifier and regressor share."""

    hidden: Any
    link: str
    loss: str
    penalty: str
    alpha: float
    l1_ratio: float
    solver: str
    eta0: float | str
    momentum: float
    batch_size: int | str
    init: str
    restarts: int
    fit_intercept: bool
    dtype: str
    epsilon: float
    quantile: float
    class_weight: Any = None

    # -------------------------------------------------------------------------------------------------- learning

    def _fit(
        self,
        source: Source,
        validation: Source | None = None,
        monitor: Monitor | None = None,
        checkpoint: str | Path | None = None,
        resume: bool = False,
    ) -> Self:
        """Trains from `restarts` seeds and keeps the best: on held-out rows, or on all where none are held out."""
        restarts = whole("restarts", self.restarts, 1)
        if self.early_stopping:
            inside("validation_fraction", self.validation_fraction, 0.0, 1.0)
        if restarts == 1:
            return super()._fit(source, validation, monitor, checkpoint, resume)
        seed = self._seed()
        if validation is None and at_least("validation_fraction", self.validation_fraction, 0.0) > 0:
            source, validation = source.holdout(self.validation_fraction, seed)
        best: tuple[float, int, NetworkLearner, History] | None = None
        wish, self.random_state = self.random_state, seed
        try:
            for attempt in range(restarts):
                self.random_state = seed + attempt
                folder = None if checkpoint is None else Path(checkpoint) / f"restart-{attempt + 1}"
                super()._fit(source, validation, monitor, folder, resume)
                watched = validation if validation is not None else source
                loss = mean_loss(self._learner, self._hashed(watched, learn=False))
                if best is None or loss < best[0]:
                    best = (loss, attempt, self._learner, self.history_)
        finally:
            self.random_state = wish
        assert best is not None
        loss, attempt, learner, history = best
        where = "held-out rows" if validation is not None else "the rows learned"
        history.events.append(f"kept start {attempt + 1} of {restarts}, with loss {loss:.5g} on {where}")
        self._adopt(learner, history, source)
        return self

    def _check_learned(self, learner: Any) -> None:
        super()._check_learned(learner)
        learner.keep_good_state()  # goes back if the very last step overflowed

    def _settings(self, n_rows: int | None) -> NetworkSettings:
        loss = choice("loss", self.loss, self._losses())
        l1, l2 = self._penalties()
        rule = choice("solver", self.solver, tuple(RULES))
        schedule = choice("schedule", self.schedule, SCHEDULES)
        planned = math.inf if n_rows is None else float(n_rows * whole("epochs", self.epochs, 1))
        if schedule == "linear" and n_rows is None:
            raise ParameterError(
                "schedule='linear' falls over all rows of all epochs, whose number this source does not know; "
                "choose 'constant' or 'invsqrt'"
            )
        if schedule == "auto":
            schedule = "constant" if n_rows is None else "linear"
        graph = self._graph()
        init = choice("init", self.init, INITS)
        if init == "auto":
            init = "he" if any(node.link == "relu" for node in graph.nodes.values()) else "glorot"
        return NetworkSettings(
            graph=graph.as_dict(),
            task=self._task,
            loss=loss,
            loss_parameter=self._loss_parameter(loss),
            rule=rule,
            momentum=_share("momentum", self.momentum),
            schedule=schedule,
            eta0=ETA0[rule] if self.eta0 == "auto" else more_than("eta0", self.eta0, 0.0),
            planned_rows=max(planned, 1.0),
            l1=l1,
            l2=l2,
            batch_size=self._batch_size(n_rows),
            biases=bool(self.fit_intercept),
            init=init,
            seed=self._seed(),
            dtype=choice("dtype", str(np.dtype(self.dtype)), ("float32", "float64")),
            class_weight=checked_class_weight(self.class_weight),
        )

    def _batch_size(self, n_rows: int | None) -> int:
        """A hundred steps an epoch, by default; a batch that is never full would wait for the rows of later epochs."""
        if isinstance(self.batch_size, str):
            choice("batch_size", self.batch_size, ("auto",))
            size = BATCH_ROWS if n_rows is None else max(FEWEST_BATCH_ROWS, min(MOST_BATCH_ROWS, n_rows // 100))
        else:
            size = whole("batch_size", self.batch_size, 1)
        return size if n_rows is None else max(1, min(size, n_rows))

    def _losses(self) -> tuple[str, ...]:
        return tuple(name for name, loss in LOSSES.items() if loss.kind != "binary")

    def _penalties(self) -> tuple[float, float]:
        name = "none" if self.penalty is None else str(self.penalty)
        if name == "lp":
            raise ParameterError("penalty='lp' is one of the linear models; choose one of none, l2, l1, elasticnet")
        penalty = get_penalty(name, l1_ratio=number("l1_ratio", self.l1_ratio))
        return penalty.split(check_alpha(number("alpha", self.alpha)))

    def _loss_parameter(self, loss: str) -> float:
        if loss == "quantile":
            return inside("quantile", self.quantile, 0.0, 1.0)
        return at_least("epsilon", self.epsilon, 0.0)

    def _graph(self) -> Graph:
        """The network that `hidden` describes; sizes by the rule of thumb wait for the data."""
        if isinstance(self.hidden, Graph):
            return self.hidden.check()
        if isinstance(self.hidden, str):
            choice("hidden", self.hidden, ("auto",))
            return Graph.layered([1], self.link)
        sizes = list(self.hidden) if isinstance(self.hidden, Iterable) else [self.hidden]
        if not sizes:
            raise ParameterError("hidden=() leaves a linear model; give at least one size, or use LinearClassifier")
        return Graph.layered([whole("hidden", size, 1) for size in sizes], self.link).check()

    def _learner_for(self, settings: NetworkSettings, source: Source, labels: Any) -> NetworkLearner:
        if isinstance(self.hidden, str):
            size = _rule_of_thumb(source.n_rows, source.n_features)
            settings = replace(settings, graph=Graph.layered([size], self.link).as_dict())
        learner = NetworkLearner(settings, source.n_features or 0, labels)
        learner.n_threads = threads(self.n_jobs)
        return learner

    @classmethod
    def _restore(cls, settings: Any, state: State) -> NetworkLearner:
        known = settings if isinstance(settings, NetworkSettings) else NetworkSettings.from_dict(settings)
        return NetworkLearner.from_state(known, state)

    # --------------------------------------------------------------------------------------------- looking inside

    @property
    def graph_(self) -> Graph:
        """The network that was learned."""
        self._check_fitted()
        graph: Graph = self._learner.graph
        return graph

    @property
    def weights_(self) -> dict[str, Array]:
        """Weights by edge ("x>h1": features x units), biases by node ("bias h1")."""
        self._check_fitted()
        parameters: dict[str, Array] = self._learner.parameters()
        return parameters

    @property
    def n_nonzero_(self) -> int:
        """Weights that are not zero."""
        self._check_fitted()
        return int(self._learner.count_nonzero())

    def objective(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Mean loss on these rows plus alpha R(W)."""
        self._check_fitted()
        return mean_loss(self._learner, self._source(X, y, sample_weight)) + float(self._learner.penalty())

    # ------------------------------------------------------------------------------------------------------ files

    def _file_parts(self) -> tuple[dict[str, Any], dict[str, Array]]:
        header, arrays = super()._file_parts()
        hidden = header["params"].get("hidden")
        if isinstance(hidden, Graph):
            header["params"]["hidden"] = hidden.as_dict()
        elif not isinstance(hidden, str | int | None):
            header["params"]["hidden"] = [int(size) for size in hidden]
        return header, arrays

    @classmethod
    def _from_file_parts(cls, header: dict[str, Any], arrays: dict[str, Array]) -> Self:
        params = dict(header["params"])
        if isinstance(params.get("hidden"), Mapping):
            params["hidden"] = Graph.from_dict(params["hidden"])
        elif isinstance(params.get("hidden"), list):
            params["hidden"] = tuple(params["hidden"])
        model = super()._from_file_parts({**header, "params": params}, arrays)
        model._learner.n_threads = threads(model.n_jobs)
        return model


class NetworkClassifier(Classifier, NetworkModel):
    """A network classifier: minimises (1/n) Σ loss(network(x), y) + alpha R(W) by back-propagation.

    Parameters
    ----------
    hidden : tuple of int, int, "auto" or Graph
        Sizes of the hidden layers, one after the other; "auto" is one layer of n/d units (at least 2, at most 512), a
        rule of thumb that gives each weight about one example; a `Graph` is any directed acyclic graph.
    link : {"tanh", "sigmoid", "relu", "sign", "identity"}
        What a hidden unit does with its sum. "sign" learns with the slope of clip(z, -1, 1), "straight through".
    loss : {"softmax", "log", "hinge", "squared_hinge", "exponential", "modified_huber", "perceptron"}
        "softmax" is one loss over all classes (log for two of them, or for several labels); the others put one class
        against the rest.
    penalty, alpha, l1_ratio
        R(W) and its strength, as in LinearClassifier, for the weights of all edges; applied apart from the gradient, so
        that adaptive rules do not rescale it.
    solver : {"adam", "sgd", "momentum", "adagrad"}
        The update rule; `momentum` is how much of the last step is kept, or of the mean under "adam". A weight of the
        input moves in the batches in which its feature occurs.
    momentum : float
        Share of the last step, or under "adam" of the mean slope, that is kept.
    schedule : {"auto", "constant", "linear", "invsqrt", "adaptive"}
        How the step falls from `eta0`: "linear" to a twentieth over all epochs (the default where the number of rows is
        known), "adaptive" by halves when the loss stalls.
    epochs : int
        Passes over the data.
    batch_size : int or "auto"
        Rows whose mean gradient makes a step, all rows if there are fewer; "auto" is n/100, at least 4, at most 128.
    tol, early_stopping, validation_fraction, patience
        As in LinearClassifier.
    init : {"auto", "glorot", "he", "uniform", "zero"}
        First weights: uniform with a variance by the sizes of the layers, uniform in ±0.1, or zero, from which
        the units of a layer never part. "auto" is "he" for relu, else "glorot"; the input counts as |x|² units.
    restarts : int
        Trains from so many seeds and keeps the one with the least loss on the held-out `validation_fraction`; if that
        is 0, on the rows learned.
    fit_intercept : bool
        Whether units have biases.
    class_weight : None, "balanced" or {label: weight}
    shuffle : {"rows", "blocks", "once", "never"}
    n_jobs : int
        Threads that share the work on a batch; results never depend on it.
    dtype : {"float32", "float64"}
    hasher : Hasher or None
        With it, X may be raw: texts, dicts, a DataFrame or an Arrow table.
    random_state, verbose
        As in LinearClassifier.
    epsilon, quantile
        Parameters of losses of NetworkRegressor; a classifier does not use them.

    Attributes
    ----------
    weights_, graph_, classes_, n_iter_, n_features_in_, history_, n_nonzero_

    Examples
    --------
    >>> import steepest as st
    >>> X, y = [[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]], ["no", "yes", "yes", "no"]
    >>> options = dict(epochs=400, eta0=0.05, restarts=5, validation_fraction=0, random_state=0)
    >>> st.NetworkClassifier(hidden=(4,), **options).fit(X, y).predict(X).tolist()
    ['no', 'yes', 'yes', 'no']

    References
    ----------
    Rumelhart, Hinton and Williams (1986), Learning representations by back-propagating errors. Kingma and Ba (2015),
    Adam. Glorot and Bengio (2010); He et al. (2015).
    """

    def __init__(
        self,
        hidden: Any = (64,),
        *,
        link: str = "tanh",
        loss: str = "softmax",
        penalty: str = "l2",
        alpha: float = 1e-6,
        l1_ratio: float = 0.15,
        solver: str = "adam",
        schedule: str = "auto",
        eta0: float | str = "auto",
        momentum: float = 0.9,
        epochs: int = 30,
        batch_size: int | str = "auto",
        tol: float | None = None,
        early_stopping: bool = False,
        init: str = "auto",
        restarts: int = 1,
        fit_intercept: bool = True,
        class_weight: Any = None,
        shuffle: str = "rows",
        n_jobs: int = 1,
        dtype: str = "float32",
        hasher: Any = None,
        random_state: Any = None,
        verbose: int = 0,
        epsilon: float = 0.1,
        quantile: float = 0.5,
        validation_fraction: float = 0.1,
        patience: int = 2,
    ) -> None:
        self._store(locals())

    def _losses(self) -> tuple[str, ...]:
        return ("softmax", *(name for name, loss in LOSSES.items() if loss.kind == "binary"))

    def _is_softmax(self) -> bool:
        return self.loss == "softmax"

    def _loss_name(self) -> str:
        return "log" if self.loss == "softmax" else self.loss

    def _new_learner(self, settings: NetworkSettings, source: Source, classes: Any = None) -> NetworkLearner:
        labels = source.labels if classes is None else np.unique(np.asarray(classes))
        self._label_dtype = None if labels is None else labels.dtype
        if labels is None:
            return self._learner_for(settings, source, ())
        if len(labels) < 2:
            raise one_class(labels.tolist())
        if settings.class_weight == "balanced" and isinstance(source, ArraySource) and classes is None:
            settings = replace(settings, class_weight=balanced(source, labels))
        return self._learner_for(settings, source, labels.tolist())


class NetworkRegressor(Regressor, NetworkModel):
    """A network regressor: minimises (1/n) Σ loss(network(x), y) + alpha R(W) by back-propagation.

    Losses: "squared" (½ r²), "huber" and "epsilon_insensitive" (with `epsilon`), "quantile" (with `quantile`) and
    "poisson" (counts; predicts exp of the output). Targets are learned in units of their spread over the first thousand
    rows, and so is the penalty. The other parameters are those of NetworkClassifier.

    Examples
    --------
    >>> import numpy as np, steepest as st
    >>> x = np.linspace(-3, 3, 200)[:, None]
    >>> model = st.NetworkRegressor(hidden=(16,), epochs=200, eta0=0.02, random_state=0).fit(x, np.sin(x).ravel())
    >>> bool(np.abs(model.predict([[1.0]]) - np.sin(1.0))[0] < 0.1)
    True
    """

    def __init__(
        self,
        hidden: Any = (64,),
        *,
        link: str = "tanh",
        loss: str = "squared",
        penalty: str = "l2",
        alpha: float = 1e-6,
        l1_ratio: float = 0.15,
        solver: str = "adam",
        schedule: str = "auto",
        eta0: float | str = "auto",
        momentum: float = 0.9,
        epochs: int = 30,
        batch_size: int | str = "auto",
        tol: float | None = None,
        early_stopping: bool = False,
        init: str = "auto",
        restarts: int = 1,
        fit_intercept: bool = True,
        shuffle: str = "rows",
        n_jobs: int = 1,
        dtype: str = "float32",
        hasher: Any = None,
        random_state: Any = None,
        verbose: int = 0,
        epsilon: float = 0.1,
        quantile: float = 0.5,
        validation_fraction: float = 0.1,
        patience: int = 2,
    ) -> None:
        self._store(locals())

    def _new_learner(self, settings: NetworkSettings, source: Source, classes: Any = None) -> NetworkLearner:
        return self._learner_for(settings, source, ())


def _share(name: str, value: Any) -> float:
    """A number in [0, 1)."""
    share = at_least(name, value, 0.0)
    if share >= 1:
        raise ParameterError(f"{name}={value!r} must be below 1")
    return share


def _rule_of_thumb(n_rows: int | None, n_features: int | None) -> int:
    """n/d hidden units: about one example for each weight."""
    if not n_rows or not n_features:
        raise DataError(
            "hidden='auto' needs the numbers of rows and features, which this source does not know; give sizes"
        )
    return max(2, min(MOST_HIDDEN, round(n_rows / n_features)))
