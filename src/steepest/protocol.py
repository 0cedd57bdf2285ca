"""The scikit-learn protocol without scikit-learn: parameters by introspection, cloning, tags, and what is not fitted.

A constructor only stores its arguments; `fit` checks them; what is learned ends in an underscore. scikit-learn is
imported only when it asks for tags, so that the command line and servers start fast. The functions here are methods of
`Model` (models/base.py) and of `Estimator`, the small base of hashers and value objects.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar, Self

from steepest.errors import ParameterError
from steepest.parameters import integer

# Parameters that may hold several values.
COLLECTIONS = frozenset({"char_ngrams", "class_weight", "fields", "hidden", "init", "ngrams", "sizes"})


def parameter_names(cls: type) -> tuple[str, ...]:
    """Names of the constructor's arguments."""
    return _names(cls)


@functools.cache
def _names(cls: Any) -> tuple[str, ...]:
    return tuple(name for name in inspect.signature(cls).parameters if name != "self")


def store(self: Any, arguments: dict[str, Any]) -> None:
    """All that a constructor does: each argument becomes the attribute of its name, unchanged."""
    for name, value in arguments.items():
        if name not in ("self", "__class__"):
            setattr(self, name, value)


def get_params(self: Any, deep: bool = True) -> dict[str, Any]:
    """Constructor arguments by name; with `deep`, also those of the objects among them, as `name__inner`."""
    params = {name: getattr(self, name) for name in parameter_names(type(self))}
    if deep:
        nested = {k: v for k, v in params.items() if hasattr(v, "get_params") and not isinstance(v, type)}
        for name, value in nested.items():
            params.update({f"{name}__{key}": inner for key, inner in value.get_params().items()})
    return params


def set_params(self: Any, **params: Any) -> Any:
    """Changes constructor arguments; `part__name` reaches into an object among them."""
    known = parameter_names(type(self))
    for name, value in params.items():
        own, _, inner = name.partition("__")
        if own not in known:
            raise ParameterError(f"{type(self).__name__} has no parameter {own!r}; it has {', '.join(known)}")
        if inner:
            part = getattr(self, own)
            if not hasattr(part, "set_params"):
                raise ParameterError(f"{own}={part!r} has no parameter {inner!r}; give an object that has it")
            part.set_params(**{inner: value})
        else:
            setattr(self, own, value)
    return self


@functools.cache
def _annotations(cls: Any) -> tuple[tuple[str, str], ...]:
    return tuple((name, str(parameter.annotation)) for name, parameter in inspect.signature(cls).parameters.items())


def check_params(self: Any) -> None:
    """Raises for arguments of a type that is always wrong: several values for one, no flag, or no whole number.

    Types follow from the constructor's annotations; ranges and combinations are checked where a value is used.
    """
    cls: Any = type(self)
    for name, kind in _annotations(cls):
        value: Any = getattr(self, name)
        if kind.startswith(("Sequence", "Iterable")):
            absent = value is None and "None" in kind
            if not (absent or isinstance(value, Iterable)) or isinstance(value, bytes):
                raise ParameterError(f"{name}={value!r} is not a collection; give a list")
        elif kind.startswith("Mapping"):
            if not isinstance(value, Mapping | None):
                raise ParameterError(f"{name}={value!r} is not a dictionary")
        elif name not in COLLECTIONS and (isinstance(value, list | dict | set) or getattr(value, "shape", None)):
            raise ParameterError(f"{name}={value!r} holds several values; give one")
        if kind == "bool" and not (type(value).__name__ in ("bool", "bool_", "int") and value in (0, 1)):
            raise ParameterError(f"{name}={value!r} must be True or False")
        if kind == "int" and not isinstance(value, int) and not (name == "n_jobs" and value is None):
            integer(name, value)
        if hasattr(value, "get_params") and name != "hasher":
            check_params(value)


def describe(self: Any) -> str:
    """The call that makes this object: its class and the arguments that differ from their defaults."""
    defaults = inspect.signature(type(self)).parameters
    params = get_params(self, deep=False)
    changed = [f"{name}={value!r}" for name, value in params.items() if repr(value) != repr(defaults[name].default)]
    return f"{type(self).__name__}({', '.join(changed)})"


def tags(kind: str) -> Any:
    """scikit-learn's tags of a classifier, regressor, transformer, ..."""
    from sklearn.utils import ClassifierTags, InputTags, RegressorTags, Tags, TargetTags, TransformerTags

    classifier, regressor = kind == "classifier", kind == "regressor"
    return Tags(
        estimator_type=kind if classifier or regressor or kind == "clusterer" else None,
        target_tags=TargetTags(required=classifier or regressor, multi_output=regressor),
        classifier_tags=ClassifierTags(multi_label=True) if classifier else None,
        regressor_tags=RegressorTags() if regressor else None,
        transformer_tags=TransformerTags() if kind == "transformer" else None,
        input_tags=InputTags(sparse=True),
    )


def metadata_request(self: Any) -> Any:
    """What scikit-learn may route to the methods of an estimator: weights of rows, and groups of rows to rank."""
    known = getattr(self, "_metadata_request", None)
    if known is not None:
        return known
    from sklearn.utils.metadata_routing import MetadataRequest

    found = MetadataRequest(owner=self)
    for method in ("fit", "partial_fit", "score"):
        names = inspect.signature(getattr(self, method)).parameters if hasattr(self, method) else ()
        for name in ("sample_weight", "groups"):
            if name in names:
                getattr(found, method).add_request(param=name, alias=None)
    return found


def request_setter(method: str) -> Callable[..., Any]:
    """A method of estimators that notes what another one requests; scikit-learn's `clone` keeps it."""

    def set_request(self: Any, **requests: bool | str | None) -> Any:
        """Sets whether scikit-learn's meta-estimators pass `sample_weight` (or `groups`) to this method."""
        found = metadata_request(self)
        known = getattr(found, method).requests
        for name, value in requests.items():
            if name not in known:
                other = f"it may request {', '.join(known)}"
                raise TypeError(f"{method} of {type(self).__name__} takes no {name!r}; {other}")
            getattr(found, method).add_request(param=name, alias=value)
        self._metadata_request = found
        return self

    return set_request


def set_output(self: Any, *, transform: str | None = None) -> Any:
    """What `transform` gives: "default" for arrays, or a data frame of "pandas" or "polars"; None changes nothing."""
    if transform not in (None, "default", "pandas", "polars"):
        raise ParameterError(f"transform={transform!r} is unknown; choose 'default', 'pandas' or 'polars'")
    if transform is not None:
        self._sklearn_output_config = {"transform": transform}  # the name under which scikit-learn's `clone` keeps it
    return self


def output_of(self: Any) -> str:
    """What `set_output` asked for; else what scikit-learn's configuration says, if scikit-learn is in use."""
    own = getattr(self, "_sklearn_output_config", {}).get("transform")
    if own is None and (sklearn := sys.modules.get("sklearn")) is not None:
        own = sklearn.get_config()["transform_output"]
    return str(own or "default")


def as_output(self: Any, rows: Any, X: Any) -> Any:
    """Dense rows, or a data frame of them with the index of X."""
    if (kind := output_of(self)) == "default":
        return rows
    frames: Any = importlib.import_module(kind)
    names = list(self.get_feature_names_out())
    if kind == "polars":
        return frames.DataFrame(rows, schema=names, orient="row")
    return frames.DataFrame(rows, columns=names, index=index_of(X), copy=False)


def index_of(X: Any) -> Any:
    """The index of a frame of pandas; a list has a method of this name."""
    index = getattr(X, "index", None)
    return None if callable(index) else index


def check_input_names(self: Any, names: Any) -> None:
    """Refuses names of input columns that are not those of `fit`, with the words that scikit-learn has for it."""
    if names is None:
        return
    if (known := getattr(self, "feature_names_in_", None)) is not None and list(names) != list(known):
        raise ParameterError(f"input_features is not equal to feature_names_in_, {list(known)[:5]}; leave it out")
    if len(names) != self.n_features_in_:
        raise ParameterError(
            f"input_features should have length equal to number of features ({self.n_features_in_}), got {len(names)}"
        )


def not_fitted(self: Any, way_out: str) -> Exception:
    """An error that callers from scikit-learn know, if it is installed."""
    message = f"This {type(self).__name__} is not fitted yet; {way_out}"
    try:
        from sklearn.exceptions import NotFittedError
    except ImportError:
        return ParameterError(message)
    return NotFittedError(message)  # type: ignore[no-any-return]


class Estimator:
    """Parameters by introspection, as scikit-learn expects them."""

    _kind: ClassVar[str] = ""  # "transformer", ...
    _store = store
    get_params = get_params
    __repr__ = describe
    _not_fitted = not_fitted

    def __sklearn_tags__(self) -> Any:
        return tags(self._kind)

    def set_params(self, **params: Any) -> Self:
        """Changes constructor arguments; `part__name` reaches into an object among them."""
        set_params(self, **params)
        return self
