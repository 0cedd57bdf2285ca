"""Factorization machines as scikit-learn estimators: linear weights, and factors for all pairs of features.

score = b + w·x + Σ_{i<j} <v_i, v_j> x_i x_j, where features that were never seen together share what their factors have
learned from others. With fields, v_i depends on the field of j: <v_i[f_j], v_j[f_i]>. Several classes or targets are a
machine each. `fit(X, y)` is exactly `fit_stream(from_arrays(X, y))`.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from steepest.data.chunk import Array
from steepest.data.raw import rereading_encoder
from steepest.data.source import ArraySource, Source
from steepest.engine.history import History
from steepest.errors import ParameterError
from steepest.learners.fm.fm import FMLearner, FMSettings
from steepest.learners.losses import LOSSES, loss_parameter
from steepest.learners.penalties import check_alpha
from steepest.learners.targets import checked_class_weight
from steepest.models.base import Model
from steepest.models.explain import Contribution, SparseWeights, column_name, entry_name, read_row, top_features
from steepest.models.options import EarlyStopping, EpsilonInsensitive, Huber, Option, Quantile
from steepest.models.supervised import Classifier, Regressor
from steepest.parameters import choice, number, step_size, whole

# Measured on Criteo, Avazu and MovieLens samples (decisions/0037): machines learn by heart within few epochs.
ETA0, ALPHA, EPOCHS = 0.1, 5e-3, 5


class FMModel(Model):
    """The base of the factorization machines for classes and for numbers."""

    learner_type = FMLearner
    settings_type = FMSettings
    n_factors: int
    fields: Any
    loss: Any
    alpha: float
    eta0: float | str
    normalise: bool
    class_weight: Any = None

    # -------------------------------------------------------------------------------------------------- learning

    def settings_for(self, n_rows: int | None) -> FMSettings:
        """The constructor's arguments, checked and resolved."""
        params = self.flat_params()
        loss = choice("loss", params["loss"], self._losses())
        hasher = getattr(self, "hasher_", None)
        return FMSettings(
            task=self.task,
            loss=loss,
            loss_parameter=loss_parameter(loss, {"epsilon": 0.0, "quantile": 0.5, **params}),
            rank=min(whole("n_factors", self.n_factors, 1), 1 << 16),
            fields=self._has_fields(),
            field_bits=0 if hasher is None else hasher.n_bits,
            eta0=ETA0 if self.eta0 == "auto" else step_size("eta0", self.eta0),
            l2=check_alpha(number("alpha", self.alpha)),
            normalise=bool(self.normalise),
            seed=self.seed(),
            class_weight=checked_class_weight(self.class_weight),
        )

    def _losses(self) -> tuple[str, ...]:
        return tuple(name for name, loss in LOSSES.items() if (loss.kind == "binary") == (self.task == "classify"))

    def _has_fields(self) -> bool:
        return self.fields is True or self._given_fields() is not None

    def _given_fields(self) -> Array | None:
        """The field of each feature, where `fields` lists them."""
        if self.fields is None or isinstance(self.fields, bool | np.bool_):
            return None
        given = np.asarray(self.fields)
        if given.ndim != 1 or given.dtype.kind not in "iu" or not len(given):
            raise ParameterError(
                f"fields={str(self.fields)[:80]} is unknown; give True, False or a whole number for each feature"
            )
        if getattr(self, "hasher_", None) is not None:
            raise ParameterError("fields=[...] is for arrays; with a hasher, fields=True makes each column a field")
        return given.astype(np.int64)

    def _hasher_overrides(self, hasher: Any) -> dict[str, Any]:
        """With fields, the features of each column get a range of buckets of their own."""
        return {"by_column": True} if self.fields is True else {}

    def _learner_for(self, settings: FMSettings, source: Source, labels: Any) -> FMLearner:
        given = self._given_fields()
        known = getattr(self, "hasher_", None) is not None or isinstance(source.root, ArraySource)
        if settings.fields and given is None and not known:
            raise ParameterError(
                f"fields=True needs columns, and {source.describe()} has numbered features; read a table, give the "
                "field of each feature as fields=[...], or learn with fields=False"
            )
        return FMLearner(settings, source.n_features or 0, labels, given)

    def _first_learner(self, settings: Any, source: Source) -> FMLearner:
        learner: FMLearner = super()._first_learner(settings, source)
        if (encoder := rereading_encoder(source)) is not None:
            encoder.heaviness = learner.heaviness
        return learner

    def _finish(self, learner: Any, history: History, executor: Any) -> None:
        super()._finish(learner, history, executor)
        learner.keep_good_state()  # goes back if the very last row overflowed

    # --------------------------------------------------------------------------------------------- looking inside

    @property
    def n_fields_(self) -> int:
        """The number of fields; 1 without fields."""
        self._check_fitted()
        return len(self.learner_.table.field_ids)

    @property
    def intercept_(self) -> Array:
        """Biases, one per output."""
        self._check_fitted()
        return self._by_output(self.learner_.used_weights()[2])

    @property
    def n_nonzero_(self) -> int:
        """The number of weights and factors that are not zero."""
        self._check_fitted()
        return int(self.learner_.count_nonzero())

    def _by_output(self, values: Array) -> Array:
        """Values per output, in the order in which this estimator shows them."""
        return values

    def _outputs(self, values: Array) -> list[tuple[Any, Array]]:
        """(output, its row of values)."""
        return list(enumerate(self._by_output(values)))

    def top_features(self, k: int = 20) -> dict[Any, list[tuple[str, float]]]:
        """Returns the k features with the largest linear weights for each class (or for a high target)."""
        self._check_fitted()
        features, weights, _ = self.learner_.used_weights()
        rows = [
            (output, SparseWeights(features, row, self.learner_.n_features))
            for output, row in self._outputs(np.ascontiguousarray(weights.T))
        ]
        return top_features(rows, k, getattr(self, "hasher_", None), getattr(self, "feature_names_in_", None))

    def explain(self, x: Any) -> dict[Any, list[Contribution]]:
        """What each feature of one row adds to the score by its linear weight, and each pair by its factors.

        Largest first; a pair is named "a × b". With the intercept they add up to the score.
        """
        self._check_fitted()
        columns = None if hasattr(self, "hasher_") else getattr(self, "feature_names_in_", None)
        row, own, seen = read_row(x, getattr(self, "hasher_", None), self._chunk, columns)
        sized = self.learner_.sized(row)
        if sized is not row:  # dense rows are centred, so that their zeros count, too
            own = [[column_name(int(j), columns)] for j in sized.indices]
            seen = [[] for _ in own]
        names = [entry_name(int(j), mine) for j, mine in zip(sized.indices, own, strict=True)]
        others = [tuple(name for name in known if name not in mine) for mine, known in zip(own, seen, strict=True)]
        _, linear, pairs = self.learner_.parts_of(sized)
        first, second = np.nonzero(pairs.any(axis=2))
        x_alone, x_both = sized.values.astype(np.float64), sized.values[first] * sized.values[second].astype(np.float64)
        names += [f"{names[i]} × {names[j]}" for i, j in zip(first.tolist(), second.tolist(), strict=True)]
        others += [()] * len(first)
        values = np.concatenate([x_alone, x_both])
        found = {}
        for output, parts in self._outputs(np.concatenate([linear, pairs[first, second]]).T):
            weights = np.divide(parts, values, out=np.zeros_like(parts), where=values != 0)
            numbers = zip(names, values.tolist(), weights.tolist(), parts.tolist(), others, strict=True)
            found[output] = sorted((Contribution(*part) for part in numbers), key=lambda part: -abs(part.contribution))
        return found


class FMClassifier(Classifier, FMModel):
    """Factorization machine for classes: learns b + w·x + Σ (v_i·v_j) x_i x_j by AdaGrad.

    Parameters
    ----------
    n_factors : int
        Length of the factor vector v_i of each feature. More factors can distinguish more pairs, but need more rows; 4
        is usual with fields.
    fields : bool or list of int
        Whether a feature has one vector per field of the other feature (field-aware). A field is a column of the table
        that a hasher reads, or else a column of X. A list sets the field of each feature, which files of numbered
        features need.
    loss : {"log", "hinge", "squared_hinge", "exponential", "modified_huber", "perceptron"}
        Loss function of a score. With more than two classes, each is learned against the rest.
    alpha : float
        Strength of the penalty ½ alpha (w² + |v|²), applied to the features of each row that is learned. Raise it if
        few rows share a feature.
    eta0 : float or "auto"
        Step size of AdaGrad; "auto" is 0.1. Rows are divided by their root mean square length internally, so it rarely
        needs tuning.
    epochs : int
        Passes over the data. Machines with many factors memorise rare features: use `early_stopping`.
    normalise : bool
        Scale each row to length 1. Useful if rows differ in their number of features.
    tol, early_stopping
        As in LinearClassifier.
    class_weight : None, "balanced" or {label: weight}
        Factors for the weights of the rows of each class, as in LinearClassifier.
    shuffle : {"blocks", "rows", "once", "never"}
        Order of the rows in every epoch.
    n_jobs : int
        Number of threads for prediction. Training is serial.
    hasher : Hasher or None
        Turns raw X (texts, dicts, a DataFrame or an Arrow table) into features.
    random_state, verbose
        As in LinearClassifier.

    Attributes
    ----------
    classes_, intercept_, n_fields_, n_iter_, n_features_in_, history_, n_nonzero_

    Examples
    --------
    >>> import steepest as st
    >>> rows = [{"user": u, "item": i} for u in "abcd" for i in "xyz"] * 20
    >>> likes = [(row["user"] in "ab") == (row["item"] in "xy") for row in rows] # a linear model cannot learn this
    >>> model = st.FMClassifier(hasher=st.Hasher(), epochs=20, random_state=0).fit(rows, likes)
    >>> model.predict([{"user": "a", "item": "x"}, {"user": "a", "item": "z"}]).tolist()
    [True, False]
    """

    def __init__(
        self,
        n_factors: int = 8,
        *,
        fields: Any = False,
        loss: str = "log",
        alpha: float = ALPHA,
        eta0: float | str = "auto",
        epochs: int = EPOCHS,
        normalise: bool = False,
        tol: float | None = None,
        early_stopping: bool | EarlyStopping = False,
        class_weight: Any = None,
        shuffle: str = "blocks",
        n_jobs: int = 1,
        hasher: Any = None,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self._store(locals())

    def _loss_name(self) -> str:
        return str(self.learner_.targets.loss.name if hasattr(self, "learner_") else self.loss)

    def _outputs(self, values: Array) -> list[tuple[Any, Array]]:
        rows = self._by_output(values)
        if len(rows) == 1:  # one output speaks for the second class, and negated for the first
            rows = np.concatenate([-rows, rows])
        return list(zip(self.classes_.tolist(), rows, strict=False))


class FMRegressor(Regressor, FMModel):
    """Factorization machine for numbers: learns b + w·x + Σ (v_i·v_j) x_i x_j by AdaGrad.

    The parameters are those of FMClassifier, with the losses "squared", "huber", "epsilon_insensitive", "quantile" and
    "poisson". Targets, except counts, are divided by their spread internally, and alpha applies in these units.

    Examples
    --------
    >>> import numpy as np, steepest as st
    >>> X = np.random.default_rng(0).standard_normal((2000, 4))
    >>> y = 3 * X[:, 0] * X[:, 1] - X[:, 2]
    >>> st.FMRegressor(random_state=0).fit(X[:1500], y[:1500]).score(X[1500:], y[1500:]) > 0.98
    True
    """

    options: ClassVar[tuple[type[Option], ...]] = (EarlyStopping, Huber, EpsilonInsensitive, Quantile)

    def __init__(
        self,
        n_factors: int = 8,
        *,
        fields: Any = False,
        loss: str | Option = "squared",
        alpha: float = ALPHA,
        eta0: float | str = "auto",
        epochs: int = EPOCHS,
        normalise: bool = False,
        tol: float | None = None,
        early_stopping: bool | EarlyStopping = False,
        shuffle: str = "blocks",
        n_jobs: int = 1,
        hasher: Any = None,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self._store(locals())
