"""What every estimator shares: scikit-learn's protocol, spoken without importing scikit-learn.

The parameters are exactly the arguments of the constructor, stored unchanged under their names; whatever is learned
ends in an underscore. That is all that `clone`, pipelines and searches ask for.
"""

from __future__ import annotations

import inspect
import sys
from typing import Any, Self


class Estimator:
    """Parameters in, parameters out."""

    @classmethod
    def _defaults(cls) -> dict[str, Any]:
        parameters = inspect.signature(cls).parameters.values()
        return {parameter.name: parameter.default for parameter in parameters}

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """All parameters; those of nested estimators under `outer__inner`."""
        params: dict[str, Any] = {}
        for name in self._defaults():
            value = params[name] = getattr(self, name)
            if deep and hasattr(value, "get_params") and not isinstance(value, type):
                params |= {f"{name}__{inner}": its for inner, its in value.get_params().items()}
        return params

    def set_params(self, **params: Any) -> Self:
        """Sets parameters; those of nested estimators as `outer__inner`."""
        known = self._defaults()
        for name, value in params.items():
            outer, _, inner = name.partition("__")
            if outer not in known:
                raise ValueError(f"{type(self).__name__} has no parameter {outer!r}; it has {', '.join(sorted(known))}")
            if inner:
                getattr(self, outer).set_params(**{inner: value})
            else:
                setattr(self, name, value)
        return self

    def __repr__(self) -> str:
        defaults = self._defaults()
        changed = {name: value for name, value in self.get_params(deep=False).items() if differs(value, defaults[name])}
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in changed.items())})"

    def __sklearn_is_fitted__(self) -> bool:
        return any(name.endswith("_") and not name.startswith("_") for name in vars(self))

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import Tags, TargetTags

        return Tags(estimator_type=None, target_tags=TargetTags(required=False))

    def _not_fitted(self, way_out: str) -> Exception:
        message = f"This {type(self).__name__} instance is not fitted yet; {way_out}"
        if "sklearn" not in sys.modules:
            return ValueError(message)
        from sklearn.exceptions import NotFittedError

        return NotFittedError(message)  # type: ignore[no-any-return]


def differs(value: Any, default: Any) -> bool:
    """Whether a parameter is worth showing; arrays and the like always are."""
    return type(value) is not type(default) or bool(repr(value) != repr(default))
