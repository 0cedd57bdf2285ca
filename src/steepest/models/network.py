"""Networks as scikit-learn estimators: a graph of units and its learner behind the faces that linear models have.

Both minimise the mean loss of the network's output plus alpha R(W) by back-propagation over mini-batches; biases are
never penalised. `fit(X, y)` is exactly `fit_stream(from_arrays(X, y))`, restarts included.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, ClassVar, Self

from steepest.data.chunk import Array
from steepest.data.source import Source
from steepest.engine.history import History
from steepest.engine.loop import mean_loss
from steepest.errors import DataError, ParameterError
from steepest.learners.losses import LOSSES, loss_parameter
from steepest.learners.network.graph import Graph
from steepest.learners.network.network import NetworkLearner
from steepest.learners.network.network_settings import INITS, SCHEDULES, SOLVERS, NetworkSettings
from steepest.learners.penalties import NORMS, Penalty, check_alpha
from steepest.learners.targets import checked_class_weight
from steepest.models.base import Model, Run, to_plain
from steepest.models.options import (
    Adam,
    EarlyStopping,
    ElasticNet,
    EpsilonInsensitive,
    Huber,
    Layers,
    Momentum,
    Option,
    Quantile,
    Restarts,
)
from steepest.models.supervised import Classifier, Regressor
from steepest.parameters import at_least, choice, float_type, inside, number, step_size, whole

# First steps that neither crawl nor jump on standardised features; momentum multiplies its own by ten.
ETA0 = {"sgd": 0.1, "momentum": 0.02, "adagrad": 0.05, "adam": 0.003}
MOST_HIDDEN = 512  # of hidden="auto"
FEWEST_BATCH_ROWS, BATCH_ROWS, MOST_BATCH_ROWS = 4, 32, 128  # of batch_size="auto"; 32 where rows are not counted
EPOCHS = 30  # of epochs="auto"
# So few rows are learned by steps over all of them, and by more than thirty: an epoch is one step then. Measured on
# all 2^n rows of parities, 4 seeds each: 1000 steps of 0.02 solve 2 to 5 bits, 0.003 in batches of 4 only 2 bits.
TINY_ROWS, TINY_STEPS, TINY_ETA0 = 64, 1000, 0.02
FEW_ROWS = 1000  # below, a tenth of the rows is too few to choose a start by


class NetworkModel(Model):
    """The base of the network classifier and regressor."""

    learner_type = NetworkLearner
    settings_type = NetworkSettings
    options: ClassVar[tuple[type[Option], ...]] = (ElasticNet, Momentum, Adam, EarlyStopping, Restarts, Layers)
    hidden: Any
    link: str
    loss: Any
    penalty: Any
    alpha: float
    solver: Any
    eta0: float | str
    batch_size: int | str
    restarts: int | Restarts
    dtype: str
    class_weight: Any = None

    # -------------------------------------------------------------------------------------------------- learning

    def _fit(self, source: Source, validation: Source | None = None, run: Run | None = None) -> Self:
        """Trains from `restarts` seeds and keeps the best: on held-out rows, which it learns in the end, or on all.

        The first start is the one that restarts=1 has, so that the loss chosen by is never worse than without them.
        """
        given = self.restarts if isinstance(self.restarts, Restarts) else Restarts(self.restarts)
        restarts, run, seed = whole("restarts", given.n, 1), run or Run(self.monitor()), self.seed()
        fraction = at_least("fraction", given.fraction, 0.0) and inside("fraction", given.fraction, 0.0, 1.0)
        if restarts == 1:
            return super()._fit(source, validation, run)
        all_rows, stopping = source, self._early_stopping()
        few = source.n_rows is not None and source.n_rows < FEW_ROWS
        held_out = validation is None and fraction > 0 and not few
        if held_out and not (stopping is not None and stopping.refits):
            source, validation = source.holdout(fraction, seed)
        gives_back = source is not all_rows and stopping is None
        best: tuple[float, int, NetworkLearner, History] | None = None
        state = self.random_state
        try:
            for attempt in range(restarts):
                self.random_state = seed + attempt
                super()._fit(source, validation, run.part(f"restart-{attempt + 1}"))
                watched = validation if validation is not None else source
                loss = mean_loss(self.learner_, self.hashed(watched, learn=False))
                if best is None or loss < best[0]:
                    best = (loss, attempt, self.learner_, self.history_)
            assert best is not None
            loss, attempt, learner, history = best
            where = "held-out rows" if validation is not None else "the rows learned"
            event = f"kept start {attempt + 1} of {restarts}, with loss {loss:.5g} on {where}"
            if gives_back:
                self.random_state = seed + attempt
                super()._fit(all_rows, None, run.part("all"))
                learner, history, event = self.learner_, self.history_, f"{event}, and learned from all rows"
        finally:
            self.random_state = state
        history.events.append(event)
        self.adopt(learner, history, source)
        return self

    def _n_epochs(self) -> int:
        return self._epochs_for(self._n_rows)

    def _epochs_for(self, n_rows: int | None) -> int:
        """Thirty epochs by default, and more on few rows, so that there are a thousand steps."""
        if not isinstance(self.epochs, str):
            return whole("epochs", self.epochs, 1)
        choice("epochs", self.epochs, ("auto",))
        if n_rows is None or not self._is_tiny(n_rows):
            return EPOCHS
        return max(EPOCHS, math.ceil(TINY_STEPS / math.ceil(n_rows / self._batch_size(n_rows))))

    def _is_tiny(self, n_rows: int | None) -> bool:
        """Whether there are so few rows that the default counts steps instead of epochs."""
        return n_rows is not None and 0 < n_rows <= TINY_ROWS and self.epochs == "auto"

    def _first_step(self, solver: str, n_rows: int | None) -> float:
        if self.eta0 != "auto":
            return step_size("eta0", self.eta0)
        return TINY_ETA0 if solver == "adam" and self._is_tiny(n_rows) else ETA0[solver]

    def _finish(self, learner: Any, history: History, executor: Any) -> None:
        super()._finish(learner, history, executor)
        learner.keep_good_state()  # goes back if the very last step overflowed

    def settings_for(self, n_rows: int | None) -> NetworkSettings:
        """The constructor's arguments, checked and resolved."""
        params = self.flat_params()
        loss = choice("loss", params["loss"], self._losses())
        l1, l2 = self._penalties(params)
        solver = choice("solver", params["solver"], tuple(SOLVERS))
        schedule = choice("schedule", self.schedule, SCHEDULES)
        planned = math.inf if n_rows is None else float(n_rows * self._epochs_for(n_rows))
        if schedule == "linear" and n_rows is None:
            raise ParameterError(
                "schedule='linear' falls over all rows of all epochs, whose number this source does not know; "
                "choose 'constant' or 'invsqrt'"
            )
        if schedule == "auto":
            schedule = "constant" if n_rows is None else "linear"
        graph = self._graph()
        init = choice("init", params["init"], INITS)
        if init == "auto":
            init = "he" if any(node.link == "relu" for node in graph.nodes.values()) else "glorot"
        return NetworkSettings(
            graph=graph.as_dict(),
            task=self.task,
            loss=loss,
            loss_parameter=loss_parameter(loss, params),
            solver=solver,
            momentum=_share("momentum", params["momentum"]),
            schedule=schedule,
            eta0=self._first_step(solver, n_rows),
            planned_rows=max(planned, 1.0),
            l1=l1,
            l2=l2,
            batch_size=self._batch_size(n_rows),
            biases=bool(params["fit_intercept"]),
            init=init,
            seed=self.seed(),
            dtype=float_type(self.dtype),
            class_weight=checked_class_weight(self.class_weight),
        )

    def _batch_size(self, n_rows: int | None) -> int:
        """A hundred steps per epoch, by default, or one over few rows; a batch that is never full would wait for the
        rows of later epochs."""
        if isinstance(self.batch_size, str):
            choice("batch_size", self.batch_size, ("auto",))
            if n_rows is not None and self._is_tiny(n_rows):
                return n_rows
            size = BATCH_ROWS if n_rows is None else max(FEWEST_BATCH_ROWS, min(MOST_BATCH_ROWS, n_rows // 100))
        else:
            size = whole("batch_size", self.batch_size, 1)
        return size if n_rows is None else max(1, min(size, n_rows))

    def _losses(self) -> tuple[str, ...]:
        return tuple(name for name, loss in LOSSES.items() if loss.kind != "binary")

    def _penalties(self, params: Mapping[str, Any]) -> tuple[float, float]:
        name = "none" if params["penalty"] is None else str(params["penalty"])
        if name in ("lp", *NORMS):
            raise ParameterError(f"penalty={name!r} is for linear models; choose one of none, l2, l1, elasticnet")
        penalty = Penalty(name, l1_ratio=number("l1_ratio", params["l1_ratio"]))
        return penalty.split(check_alpha(number("alpha", params["alpha"])))

    def _graph(self) -> Graph:
        """The network that `hidden` describes; sizes by rule of thumb are set once the data is known."""
        hidden = self._sizes()
        if isinstance(hidden, Graph):
            return hidden.check()
        if isinstance(hidden, str | bytes):
            choice("hidden", hidden, ("auto",))
            return Graph.layered([1], self.link)
        sizes = list(hidden) if isinstance(hidden, Iterable) else [hidden]
        if not sizes:
            raise ParameterError("hidden=() leaves a linear model; give at least one size, or use LinearClassifier")
        return Graph.layered([whole("hidden", size, 1) for size in sizes], self.link).check()

    def _sizes(self) -> Any:
        return self.hidden.sizes if isinstance(self.hidden, Layers) else self.hidden

    def _learner_for(self, settings: NetworkSettings, source: Source, labels: Any) -> NetworkLearner:
        if isinstance(self._sizes(), str):
            size = _rule_of_thumb(source.n_rows, source.n_features)
            settings = replace(settings, graph=Graph.layered([size], self.link).as_dict())
        return NetworkLearner(settings, source.n_features or 0, labels)

    # --------------------------------------------------------------------------------------------- inspection

    @property
    def graph_(self) -> Graph:
        """The network that was learned."""
        self._check_fitted()
        graph: Graph = self.learner_.graph
        return graph

    @property
    def weights_(self) -> dict[str, Array]:
        """Weights by edge ("x>h1": features x units), biases by node ("bias h1")."""
        self._check_fitted()
        parameters: dict[str, Array] = self.learner_.parameters()
        return parameters

    @property
    def n_nonzero_(self) -> int:
        """Weights that are not zero."""
        self._check_fitted()
        return int(self.learner_.count_nonzero())

    def objective(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Mean loss on these rows plus alpha R(W)."""
        self._check_fitted()
        source = self.source_of(X, y, sample_weight)
        self.learner_.targets.code(source.block)  # refuses classes that were never seen
        return mean_loss(self.learner_, source) + float(self.learner_.penalty())

    # ------------------------------------------------------------------------------------------------------ files

    def _file_parts(self) -> tuple[dict[str, Any], dict[str, Array]]:
        header, arrays = super()._file_parts()
        hidden = self._sizes()
        if isinstance(hidden, Graph):
            header["params"]["hidden"] = {"graph": hidden.as_dict()}
        elif not isinstance(hidden, str | int) and not isinstance(self.hidden, Layers):
            header["params"]["hidden"] = to_plain(tuple(int(size) for size in hidden))
        return header, arrays

    @classmethod
    def from_file_parts(cls, header: dict[str, Any], arrays: dict[str, Array]) -> Self:
        """Builds a fitted model from the header and the arrays of a model file."""
        plain = header["params"]["hidden"]
        if isinstance(plain, Mapping) and "graph" in plain:
            header = {**header, "params": {**header["params"], "hidden": Graph.from_dict(plain["graph"])}}
        model = super().from_file_parts(header, arrays)
        model.learner_.n_threads = model.n_threads
        return model


class NetworkClassifier(Classifier, NetworkModel):
    """Network classifier: minimises (1/n) Σ loss(network(x), y) + alpha R(W) by back-propagation.

    Parameters
    ----------
    hidden : tuple of int, int, "auto", Layers or Graph
        Sizes of the hidden layers: (64, 32) is two layers. "auto" is one layer of n/d units (at least 2, at most 512)
        for n rows of d features, which is about one row per weight. `Layers(sizes, init="auto", biases=True)` sets
        details; a `Graph` is any directed acyclic graph.
    link : {"tanh", "sigmoid", "relu", "sign", "identity"}
        Activation function of the hidden units. "sign" is trained with the gradient of clip(z, -1, 1), "straight
        through".
    loss : {"softmax", "log", "hinge", "squared_hinge", "exponential", "modified_huber", "perceptron"}
        Loss function. "softmax" is one loss over all classes (the log loss for two classes, or for several labels per
        row); the others learn each class against the rest.
    penalty, alpha
        Penalty R(W) on the weights of all edges and its strength, as in LinearClassifier. It is applied separately from
        the gradient, so that adaptive solvers do not rescale it (decoupled weight decay).
    solver : {"adam", "sgd", "momentum", "adagrad"}
        Update rule; `Momentum(0.9)` and `Adam(momentum=0.9)` set the share of the last step, or of the mean gradient,
        that is kept. A weight of the input layer changes only in batches in which its feature occurs.
    schedule : {"auto", "constant", "linear", "invsqrt", "adaptive"}
        How the step size falls from `eta0`. "linear" falls to a twentieth over all epochs (the default if the number of
        rows is known); "adaptive" halves it when the loss no longer improves.
    epochs : int or "auto"
        Passes over the data. "auto" is 30; for 64 rows or fewer it is 1000, with steps over all rows.
    batch_size : int or "auto"
        Rows per step, whose gradients are averaged. "auto" is n/100, at least 4 and at most 128, and all rows if there
        are 64 or fewer.
    tol, early_stopping
        As in LinearClassifier.
    restarts : int or Restarts
        Number of seeds to train from; the best result is kept. The loss on a held-out tenth of the rows decides, and
        the best seed is then trained on all rows; with fewer than 1000 rows, or with `Restarts(5, fraction=0)`, the
        training loss decides. The first seed is that of a single start.
    class_weight : None, "balanced" or {label: weight}
        Factors for the weights of the rows of each class, as in LinearClassifier.
    shuffle : {"rows", "blocks", "once", "never"}
        Order of the rows in every epoch.
    n_jobs : int
        Number of threads that share the work on a batch. Results do not depend on it.
    dtype : {"float32", "float64"}
        Type of the weights.
    hasher : Hasher or None
        Turns raw X (texts, dicts, a DataFrame or an Arrow table) into features.
    random_state, verbose
        As in LinearClassifier.

    Attributes
    ----------
    weights_, graph_, classes_, n_iter_, n_features_in_, history_, n_nonzero_

    Examples
    --------
    >>> import steepest as st
    >>> X, y = [[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]], ["no", "yes", "yes", "no"]
    >>> st.NetworkClassifier(random_state=0).fit(X, y).predict(X).tolist()
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
        penalty: Any = "l2",
        alpha: float = 1e-6,
        solver: Any = "adam",
        schedule: str = "auto",
        eta0: float | str = "auto",
        epochs: int | str = "auto",
        batch_size: int | str = "auto",
        tol: float | None = None,
        early_stopping: bool | EarlyStopping = False,
        restarts: int | Restarts = 1,
        class_weight: Any = None,
        shuffle: str = "rows",
        n_jobs: int = 1,
        dtype: str = "float32",
        hasher: Any = None,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self._store(locals())

    def _losses(self) -> tuple[str, ...]:
        return ("softmax", *(name for name, loss in LOSSES.items() if loss.kind == "binary"))

    def _is_softmax(self) -> bool:
        return bool(self.loss == "softmax")

    def _loss_name(self) -> str:
        return "log" if self.loss == "softmax" else choice("loss", self.loss, self._losses())


class NetworkRegressor(Regressor, NetworkModel):
    """Network regressor: minimises (1/n) Σ loss(network(x), y) + alpha R(W) by back-propagation.

    Losses are "squared" (½ r²), "huber", "epsilon_insensitive", "quantile" (or their objects, which set details) and
    "poisson" (for counts; predicts exp of the output). Targets are divided by their spread over the first thousand rows
    internally, and the penalty applies in these units. The other parameters are those of NetworkClassifier.

    Examples
    --------
    >>> import numpy as np, steepest as st
    >>> x = np.linspace(-3, 3, 200)[:, None]
    >>> model = st.NetworkRegressor(hidden=(16,), epochs=200, eta0=0.02, random_state=0).fit(x, np.sin(x).ravel())
    >>> bool(np.abs(model.predict([[1.0]]) - np.sin(1.0))[0] < 0.1)
    True
    """

    options: ClassVar[tuple[type[Option], ...]] = (*NetworkModel.options, Huber, EpsilonInsensitive, Quantile)

    def __init__(
        self,
        hidden: Any = (64,),
        *,
        link: str = "tanh",
        loss: Any = "squared",
        penalty: Any = "l2",
        alpha: float = 1e-6,
        solver: Any = "adam",
        schedule: str = "auto",
        eta0: float | str = "auto",
        epochs: int | str = "auto",
        batch_size: int | str = "auto",
        tol: float | None = None,
        early_stopping: bool | EarlyStopping = False,
        restarts: int | Restarts = 1,
        shuffle: str = "rows",
        n_jobs: int = 1,
        dtype: str = "float32",
        hasher: Any = None,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self._store(locals())


def _share(name: str, value: Any) -> float:
    """Checks a number in [0, 1)."""
    share = at_least(name, value, 0.0)
    if share >= 1:
        raise ParameterError(f"{name}={value!r} must be below 1")
    return share


def _rule_of_thumb(n_rows: int | None, n_features: int | None) -> int:
    """n/d hidden units: about one row for each weight."""
    if not n_rows or not n_features:
        raise DataError(
            "hidden='auto' needs the numbers of rows and features, which this source does not know; give sizes"
        )
    return max(2, min(MOST_HIDDEN, round(n_rows / n_features)))
