"""Value objects: the details of a choice, each behind the plain string of the same choice.

`parallel="mixing"` is `parallel=Mixing()`; `Mixing(n_shards=4)` says more. They have `get_params` and `set_params`, so
that `parallel__n_shards` works in a search, and compare by value. Inside the package a choice is flat again
(`flat_params`): the string, and its details under the names that the shell's flags have.
"""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from types import MappingProxyType
from typing import Any, ClassVar

from steepest.errors import ParameterError
from steepest.protocol import Estimator, parameter_names

OPTIONS: dict[str, type[Option]] = {}  # by name: all classes below


class Option(Estimator):
    """The base of value objects: a choice and its details, which are dataclass fields; all are listed in OPTIONS."""

    parameter: ClassVar[str]  # of the estimator
    choice: ClassVar[Any]  # the plain value it stands for; None if there is none
    flat: ClassVar[Mapping[str, str]]  # flat names of fields that are called otherwise

    def __init_subclass__(cls, *, parameter: str, choice: Any = None, flat: Mapping[str, str] | None = None) -> None:
        cls.parameter, cls.choice, cls.flat = parameter, choice, flat or {}
        OPTIONS[cls.__name__] = cls

    @classmethod
    def fits(cls, params: Mapping[str, Any]) -> bool:
        """Whether flat parameters make this choice."""
        return cls.choice is None or params.get(cls.parameter) == cls.choice

    @classmethod
    @functools.cache
    def flat_names(cls) -> Mapping[str, str]:
        """The field behind each flat name."""
        known: Any = cls
        return MappingProxyType({cls.flat.get(field.name, field.name): field.name for field in fields(known)})


@dataclass(repr=False)
class Mixing(Option, parameter="parallel", choice="mixing", flat={"weights": "mix"}):
    """parallel="mixing": shards learn separately, and their weights are averaged.

    Parameters
    ----------
    n_shards : int
        Number of shards that learn separately.
    rounds : int, optional
        Number of times that the shards are averaged; none: once per epoch.
    weights : {"evidence", "uniform"}
        How the changes of the shards are combined: by their mean ("uniform"), or by more than the mean for features
        that few shards have seen ("evidence").
    send : {"full", "delta", "topk", "float16"}
        What shards send: all weights, the changed ones, the tenth that changed most, or all in half precision.
    vote : bool or "ensemble"
        Keep the models of the shards and predict by majority vote (True), or by the mean of their probabilities
        ("ensemble").
    sync_seconds : float, optional
        Seconds between two averages, instead of `rounds`. Results then differ from run to run.

    Examples
    --------
    >>> import steepest as st
    >>> st.LinearClassifier(parallel=st.Mixing(n_shards=4))
    LinearClassifier(parallel=Mixing(n_shards=4))
    """

    n_shards: int = 8
    rounds: int | None = None
    weights: str = "evidence"
    send: str = "full"
    vote: bool | str = False
    sync_seconds: float | None = None


@dataclass(repr=False)
class Replicas(Option, parameter="parallel", choice="replicas", flat={"n": "n_replicas"}):
    """parallel="replicas": `n` learners learn `sync_every` rows each, then their changes are added up.

    Parameters
    ----------
    n : int
        Number of replicas that learn side by side. The result depends on it, unlike on `n_jobs`.
    sync_every : int or "auto"
        Rows that each replica learns before changes are added up. "auto" is for text classifiers, and takes fewer rows
        if texts are long.

    Examples
    --------
    >>> import steepest as st
    >>> st.LinearClassifier(parallel=st.Replicas(n=4)).get_params()["parallel__n"]
    4
    """

    n: int = 2
    sync_every: int | str = 2048


@dataclass(repr=False)
class ElasticNet(Option, parameter="penalty", choice="elasticnet"):
    """penalty="elasticnet": l1_ratio ‖w‖₁ + (1 - l1_ratio) ½‖w‖².

    Parameters
    ----------
    l1_ratio : float
        Share of the 1-norm in the penalty "elasticnet".

    Examples
    --------
    >>> import steepest as st
    >>> st.LinearRegressor(penalty=st.ElasticNet(l1_ratio=0.5), alpha=1e-3)
    LinearRegressor(penalty=ElasticNet(l1_ratio=0.5), alpha=0.001)
    """

    l1_ratio: float = 0.15


@dataclass(repr=False)
class LP(Option, parameter="penalty", choice="lp"):
    """penalty="lp": Σ|w|^p / p, for p 1 or 2, or any p >= 1 in batch solvers.

    Parameters
    ----------
    p : float
        Exponent of the penalty "lp".

    Examples
    --------
    >>> import steepest as st
    >>> st.LinearClassifier(penalty=st.LP(p=1.5), solver="lbfgs")
    LinearClassifier(penalty=LP(p=1.5), solver='lbfgs')
    """

    p: float = 1.0


@dataclass(repr=False)
class Quantile(Option, parameter="loss", choice="quantile"):
    """loss="quantile": predicts a quantile of the targets.

    Parameters
    ----------
    quantile : float
        Quantile that the loss "quantile" predicts, between 0 and 1.

    Examples
    --------
    >>> import steepest as st
    >>> st.LinearRegressor(st.Quantile(0.9))
    LinearRegressor(loss=Quantile(quantile=0.9))
    """

    quantile: float = 0.5


@dataclass(repr=False)
class Huber(Option, parameter="loss", choice="huber"):
    """loss="huber": ½ r² for residuals up to `epsilon`, linear beyond.

    Parameters
    ----------
    epsilon : float
        Residual beyond which the loss is linear ("huber"), or up to which it is zero ("epsilon_insensitive").

    Examples
    --------
    >>> import steepest as st
    >>> st.LinearRegressor(st.Huber(epsilon=1.0))
    LinearRegressor(loss=Huber(epsilon=1.0))
    """

    epsilon: float = 0.1


@dataclass(repr=False)
class EpsilonInsensitive(Option, parameter="loss", choice="epsilon_insensitive"):
    """loss="epsilon_insensitive": zero for residuals up to `epsilon`, linear beyond.

    Parameters
    ----------
    epsilon : float
        Residual up to which the loss is zero.

    Examples
    --------
    >>> import steepest as st
    >>> st.LinearRegressor(st.EpsilonInsensitive(epsilon=0.5), solver="dual_cd")
    LinearRegressor(loss=EpsilonInsensitive(epsilon=0.5), solver='dual_cd')
    """

    epsilon: float = 0.1


@dataclass(repr=False)
class Truncated(
    Option, parameter="solver", choice="truncated", flat={"every": "truncate_every", "below": "truncate_below"}
):
    """solver="truncated": truncated gradient, which shrinks small weights every few steps, often to zero.

    Parameters
    ----------
    every : int
        Steps between two truncations.
    below : float
        Largest weight that is shrunk.

    Examples
    --------
    >>> import steepest as st
    >>> st.LinearClassifier(penalty="l1", solver=st.Truncated(every=100))
    LinearClassifier(penalty='l1', solver=Truncated(every=100))
    """

    every: int = 10
    below: float = math.inf


@dataclass(repr=False)
class Forgetting(Option, parameter="schedule", flat={"steps": "schedule"}):
    """schedule=Forgetting(half_life=10_000): gives old rows less weight, so that a model follows a changing stream.

    After T rows, counted by their weights, row t has the weight 2^(-(T - t) / half_life) in the mean loss. Step sizes
    fall until half_life / ln 2 rows are in effect and then stay constant; averages forget old iterates, and the sums of
    solver="adagrad" forget old gradients. Rows are learned in their order.

    `Forgetting("7 days", time="when")` measures the age of a row by a column of times instead: its weight is 2^(-age /
    half_life), where the age is the time until the latest row so far.

    Parameters
    ----------
    half_life : float or str
        Rows after which a row has half its weight, at least 1; infinite forgets nothing. With `time`, a length of time
        with its unit (s, min, h, days, weeks), such as "7 days".
    steps : {"auto", "constant", "invsqrt", "bottou", "optimal", "adaptive"}
        How the step size falls: the `schedule` itself.
    time : name of a column, optional
        Column with the times of the rows: dates, or seconds since 1970. It is not used as a feature.

    Examples
    --------
    >>> import steepest as st
    >>> model = st.LinearClassifier(solver="sgd", schedule=st.Forgetting(half_life=20), random_state=0)
    >>> for label in ("calm", "loud"):  # what a 1 means changes
    ...     other = {"calm": "loud", "loud": "calm"}[label]
    ...     model = model.partial_fit([[1.0], [-1.0]] * 200, [label, other] * 200, classes=["calm", "loud"])
    >>> model.predict([[1.0]]).tolist()
    ['loud']
    """

    half_life: float | str = math.inf
    steps: str = "auto"
    time: str | None = None


@dataclass(repr=False)
class Momentum(Option, parameter="solver", choice="momentum"):
    """solver="momentum" of networks: adds a share of the last step to each step.

    Parameters
    ----------
    momentum : float
        Share of the last step (or, with "adam", of the mean gradient) that is kept, in [0, 1).

    Examples
    --------
    >>> import steepest as st
    >>> st.NetworkClassifier(solver=st.Momentum(0.8))
    NetworkClassifier(solver=Momentum(momentum=0.8))
    """

    momentum: float = 0.9


@dataclass(repr=False)
class Adam(Option, parameter="solver", choice="adam"):
    """solver="adam" of networks: steps from running means of gradients and their squares (Kingma and Ba, 2015).

    Parameters
    ----------
    momentum : float
        Share of the mean gradient that is kept, in [0, 1).

    Examples
    --------
    >>> import steepest as st
    >>> st.NetworkRegressor(solver=st.Adam(momentum=0.95))
    NetworkRegressor(solver=Adam(momentum=0.95))
    """

    momentum: float = 0.9


@dataclass(repr=False)
class EarlyStopping(
    Option,
    parameter="early_stopping",
    choice=True,
    flat={"fraction": "validation_fraction", "train": "training_fraction"},
):
    """early_stopping=True: holds out rows, and stops training when the loss on them no longer improves.

    With `train`, the best number of epochs is found on two disjoint samples: the model is trained on one of them until
    the loss on the other no longer improves. Then it is trained on all rows for that many epochs.

    Parameters
    ----------
    fraction : float
        Share of the rows to hold out.
    patience : int
        Epochs without improvement before training stops. The best model is kept.
    refit : bool
        Afterwards train on all rows, for the best number of epochs.
    train : float, optional
        Share of the rows to train on until the best number of epochs is known; implies refit=True. None: all rows that
        are not held out.

    Examples
    --------
    >>> import steepest as st
    >>> st.LinearClassifier(early_stopping=st.EarlyStopping(fraction=0.2, refit=True), epochs=50)
    LinearClassifier(epochs=50, early_stopping=EarlyStopping(fraction=0.2, refit=True))
    >>> st.LinearClassifier(early_stopping=st.EarlyStopping(fraction=0.1, train=0.2), epochs=50)
    LinearClassifier(epochs=50, early_stopping=EarlyStopping(train=0.2))
    """

    fraction: float = 0.1
    patience: int = 2
    refit: bool = False
    train: float | None = None

    @property
    def refits(self) -> bool:
        """Whether all rows are learned in the end."""
        return self.refit or self.train is not None


@dataclass(repr=False)
class Restarts(Option, parameter="restarts", flat={"n": "restarts", "fraction": "validation_fraction"}):
    """restarts=5: trains a network from several seeds and keeps the best.

    Parameters
    ----------
    n : int
        Number of seeds.
    fraction : float
        Share of the rows to hold out for choosing the best seed; the final model is trained on all rows. With 0, or
        with fewer than 1000 rows, the training loss decides.

    Examples
    --------
    >>> import steepest as st
    >>> st.NetworkClassifier(restarts=st.Restarts(10, fraction=0))
    NetworkClassifier(restarts=Restarts(n=10, fraction=0))
    """

    n: int = 1
    fraction: float = 0.1

    @classmethod
    def fits(cls, params: Mapping[str, Any]) -> bool:
        """Whether there are restarts."""
        return "restarts" in params


@dataclass(repr=False)
class Tolerance(Option, parameter="tol", flat={"on": "tol_on"}):
    """tol=1e-6 with the quantity that batch solvers compare with it.

    Parameters
    ----------
    tol : float
        Norms and changes relative to their first values.
    on : {"auto", "gradient", "objective", "parameters"}
        Quantity that must fall to `tol` before a batch solver stops.

    Examples
    --------
    >>> import steepest as st
    >>> st.LinearClassifier(solver="lbfgs", tol=st.Tolerance(1e-8, on="objective"))
    LinearClassifier(solver='lbfgs', tol=Tolerance(tol=1e-08, on='objective'))
    """

    tol: float | None = None
    on: str = "auto"


@dataclass(repr=False)
class Hashed(Option, parameter="multi_class", choice="hashed", flat={"bits": "table_bits"}):
    """multi_class="hashed": each class against the rest, in one table of weights that all classes share.

    Parameters
    ----------
    bits : int or "auto"
        Size of the table that classes share under "hashed": 2^bits weights. "auto" uses the bits of the hasher, or 22.

    Examples
    --------
    >>> import steepest as st
    >>> st.LinearClassifier(multi_class=st.Hashed(bits=18))
    LinearClassifier(multi_class=Hashed(bits=18))
    """

    bits: int | str = "auto"


@dataclass(repr=False)
class Layers(Option, parameter="hidden", flat={"sizes": "hidden", "biases": "fit_intercept"}):
    """hidden=(64,) with details of the layers of a network.

    Parameters
    ----------
    sizes : tuple of int, int or "auto"
        Number of units in each hidden layer. "auto" is one layer of n/d units for n rows of d features (2 to 512).
    init : {"auto", "glorot", "he", "uniform", "zero"}
        First weights: uniform with a variance that depends on the sizes of the layers ("glorot", "he"), uniform in
        ±0.1, or zero, from which all units of a layer stay equal. "auto" is "he" for relu and otherwise "glorot"; the
        input counts as |x|² units.
    biases : bool
        Give units a bias.

    Examples
    --------
    >>> import steepest as st
    >>> st.NetworkClassifier(st.Layers((32, 16), init="he"), link="relu")
    NetworkClassifier(hidden=Layers(sizes=(32, 16), init='he'), link='relu')
    """

    sizes: Any = (64,)
    init: str = "auto"
    biases: bool = True


def flat_params(params: Mapping[str, Any]) -> dict[str, Any]:
    """All parameters with each choice as its plain value and the details of choices under their flat names."""
    flat = {**params, **_default_details(tuple(params))}
    given = {name: value for name, value in params.items() if isinstance(value, Option)}
    for name, value in given.items():
        if value.parameter != name:
            raise ParameterError(f"{name}={value!r} is an option of {value.parameter}=; give it there")
        flat[name] = value.choice
    for kind in OPTIONS.values() if given else ():
        if isinstance(own := given.get(kind.parameter), kind):
            flat |= {flat_name: getattr(own, field) for flat_name, field in kind.flat_names().items()}
    return flat


@functools.cache
def _default_details(names: tuple[str, ...]) -> Mapping[str, Any]:
    """The details of all choices of these parameters under their flat names, where they are not parameters."""
    found: dict[str, Any] = {}
    for kind in OPTIONS.values():
        for flat_name, field in kind.flat_names().items() if kind.parameter in names else ():
            if flat_name not in names:
                found.setdefault(flat_name, getattr(kind(), field))
    return MappingProxyType(found)


def flat_signature(estimator: type) -> dict[str, Any]:
    """Constructor arguments and details of choices with defaults; the shell makes its flags from them."""
    found = {name: parameter.default for name, parameter in inspect.signature(estimator).parameters.items()}
    for kind in options_of(estimator):
        for flat_name, field in kind.flat_names().items():
            found.setdefault(flat_name, getattr(kind(), field))
    return found


def options_of(estimator: type) -> list[type[Option]]:
    """The value objects that an estimator's parameters accept."""
    names = parameter_names(estimator)
    return [kind for kind in getattr(estimator, "options", ()) if kind.parameter in names]


def from_flat(estimator: type, flat: Mapping[str, Any]) -> dict[str, Any]:
    """Constructor arguments from flat ones, as the shell has them; details become value objects."""
    names = parameter_names(estimator)
    params = {name: value for name, value in flat.items() if name in names}
    details = {name: value for name, value in flat.items() if name not in names}
    if details.get("refit") or details.get("training_fraction"):
        params.setdefault("early_stopping", True)  # which is what they are details of
    used: set[str] = set()
    for kind in options_of(estimator):
        own = {field: details[name] for name, field in kind.flat_names().items() if name in details}
        if not own or not kind.fits(params):
            continue
        used |= {name for name in kind.flat_names() if name in details}
        if kind.parameter in kind.flat_names() and kind.parameter in params:
            own[kind.flat_names()[kind.parameter]] = params[kind.parameter]
        params[kind.parameter] = kind(**own)
    for name in details:
        if name not in used:
            owners = [kind for kind in options_of(estimator) if name in kind.flat_names()]
            if not owners:
                raise ParameterError(f"{estimator.__name__} has no parameter {name!r}; it has {', '.join(names)}")
            choices = " or ".join(f"{kind.parameter}={kind.choice!r}" for kind in owners if kind.choice is not None)
            raise ParameterError(f"{name}={details[name]!r} has no effect here; it belongs to {choices}")
    return params
