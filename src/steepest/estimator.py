"""The scikit-learn protocol without scikit-learn: parameters, cloning, tags, saving and loading.

An estimator's constructor only stores its arguments; `fit` checks them; what is learned ends in an underscore.
scikit-learn itself is imported only when it asks for tags, so that the command line and servers start fast.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from steepest import model_file
from steepest.data.chunk import Array, DataError
from steepest.data.parameters import ParameterError

if TYPE_CHECKING:
    from steepest.engine.loop import Monitor

# Which module holds the class that wrote a file; a name that is not here is never imported.
HOMES: dict[str, str] = {
    "LinearClassifier": "linear",
    "LinearRanker": "ranking",
    "LinearRegressor": "linear",
    "NetworkClassifier": "neural",
    "NetworkRegressor": "neural",
    "RBFClassifier": "radial",
    "RBFRegressor": "radial",
    "Hasher": "hashing",
    "KMeans": "cluster",
    "MatrixFactorization": "factorization",
    "TextClassifier": "text",
}


class Estimator:
    """Parameters by introspection, as scikit-learn expects them."""

    random_state: Any
    verbose: int
    _kind: ClassVar[str] = ""  # "classifier", "regressor", "transformer", ...

    @classmethod
    @functools.cache
    def _parameters(cls) -> tuple[str, ...]:
        return tuple(name for name in inspect.signature(cls).parameters if name != "self")

    def _store(self, arguments: dict[str, Any]) -> None:
        """All that a constructor does: each argument becomes the attribute of its name, unchanged."""
        for name, value in arguments.items():
            if name not in ("self", "__class__"):
                setattr(self, name, value)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Constructor arguments by name; with `deep`, also those of estimators among them."""
        params = {name: getattr(self, name) for name in self._parameters()}
        if deep:
            nested = {k: v for k, v in params.items() if hasattr(v, "get_params") and not isinstance(v, type)}
            for name, value in nested.items():
                params.update({f"{name}__{key}": inner for key, inner in value.get_params().items()})
        return params

    def set_params(self, **params: Any) -> Self:
        """Changes constructor arguments; `part__name` reaches into an estimator among them."""
        for name, value in params.items():
            own, _, inner = name.partition("__")
            if own not in self._parameters():
                raise ParameterError(
                    f"{type(self).__name__} has no parameter {own!r}; it has {', '.join(self._parameters())}"
                )
            if inner:
                getattr(self, own).set_params(**{inner: value})
            else:
                setattr(self, own, value)
        return self

    def __repr__(self) -> str:
        defaults = inspect.signature(type(self)).parameters
        params = self.get_params(deep=False)
        changed = [f"{name}={value!r}" for name, value in params.items() if repr(value) != repr(defaults[name].default)]
        return f"{type(self).__name__}({', '.join(changed)})"

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import ClassifierTags, InputTags, RegressorTags, Tags, TargetTags, TransformerTags

        classifier, regressor = self._kind == "classifier", self._kind == "regressor"
        return Tags(
            estimator_type=self._kind if classifier or regressor else None,
            target_tags=TargetTags(required=classifier or regressor, multi_output=regressor),
            classifier_tags=ClassifierTags(multi_label=True) if classifier else None,
            regressor_tags=RegressorTags() if regressor else None,
            transformer_tags=TransformerTags() if self._kind == "transformer" else None,
            input_tags=InputTags(sparse=True),
        )

    def __sklearn_is_fitted__(self) -> bool:
        return any(name.endswith("_") and not name.startswith("_") for name in vars(self))

    def _seed(self) -> int:
        wish = self.random_state
        if wish is None:
            return int.from_bytes(os.urandom(4)) >> 1
        if isinstance(wish, int | np.integer) and wish >= 0:
            return int(wish)
        if isinstance(wish, np.random.RandomState):
            return int(wish.randint(0, 2**31 - 1))
        if isinstance(wish, np.random.Generator):
            return int(wish.integers(0, 2**31 - 1))
        raise ParameterError(f"random_state={wish!r} is not a seed; give an integer, a generator or None")

    def _monitor(self) -> Monitor | None:
        if not self.verbose:
            return None
        from steepest.engine.monitor import PrintMonitor

        return PrintMonitor()

    def _check_fitted(self) -> None:
        if not self.__sklearn_is_fitted__():
            raise self._not_fitted("call fit before using it")

    def _not_fitted(self, way_out: str) -> Exception:
        """An error that callers from scikit-learn know, if it is there."""
        message = f"This {type(self).__name__} is not fitted yet; {way_out}"
        try:
            from sklearn.exceptions import NotFittedError
        except ImportError:
            return ParameterError(message)
        return NotFittedError(message)  # type: ignore[no-any-return]

    def predict_spark(self, df: Any, **options: Any) -> Any:
        """A Spark DataFrame with a column of predictions, and of probabilities if there are any.

        `features` names the columns to read if they are others than in `fit_spark`; `prediction` and `probability`
        name the new columns.
        """
        return importlib.import_module("steepest.spark").predict_spark(self, df, **options)

    # ---------------------------------------------------------------------------------------------------- files

    def _file_parts(self) -> tuple[dict[str, Any], dict[str, Array]]:
        """(plain values, arrays) that make up a fitted estimator."""
        raise TypeError(f"{type(self).__name__} cannot be saved")

    @classmethod
    def _from_file_parts(cls, header: dict[str, Any], arrays: dict[str, Array]) -> Self:
        raise TypeError(f"{cls.__name__} cannot be loaded")

    def save(self, path: str | Path) -> Any:
        """Writes the model to one file: complete, checked and free of code; an old file stays if writing fails."""
        self._check_fitted()
        header, arrays = self._file_parts()
        model_file.write(path, {"kind": "model", "class": type(self).__name__, **header}, arrays)


def load(path: str | Path) -> Any:
    """The estimator that was saved in a file; the file is data only, nothing in it is executed.

    Examples
    --------
    >>> import steepest as st, tempfile, os
    >>> path = os.path.join(tempfile.mkdtemp(), "m.steepest")
    >>> st.LinearRegressor().fit([[0.0], [1.0], [2.0]], [1.0, 3.0, 5.0]).save(path)
    >>> st.load(path)
    LinearRegressor()
    """
    header, arrays = model_file.read(path)
    name = header.get("class")
    if header.get("kind") != "model" or name not in HOMES:
        raise DataError(f"{path} holds no model that this steepest knows (kind {header.get('kind')!r}, class {name!r})")
    home = importlib.import_module(f"steepest.{HOMES[name]}")
    try:
        return getattr(home, name)._from_file_parts(header, arrays)
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise DataError(
            f"{path} is not a complete {name} ({type(error).__name__}: {error}); take a fresh copy"
        ) from None
