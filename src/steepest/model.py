"""What models that learn from sources share: a seed, raw input through a hasher, checked widths and names.

With a hasher, X may be raw (texts, dicts, tables); the hasher that a model owns is a copy of the one given, learns with
the model and travels in its file.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from steepest.data.chunk import Array, Chunk, DataError
from steepest.data.parameters import ParameterError
from steepest.data.source import Source, from_arrays
from steepest.estimator import Estimator

HASHER = "hasher."  # marks the hasher's arrays in a model file
NAMES = 10_000  # kept by the hasher that raw data gets if none is given


class StreamModel(Estimator):
    """Sources in, a learner inside."""

    n_jobs: int
    hasher: Any
    random_state: Any
    verbose: int
    classes_: Array
    _learner: Any

    def __sklearn_is_fitted__(self) -> bool:
        return "_learner" in self.__dict__

    def _refuse_labels(self, source: Source, chunk: Chunk, unknown: Array) -> None:
        """Rows with labels that were never seen in training: the source says what is done with them."""
        assert chunk.y is not None
        labels = chunk.visited(chunk.y)[unknown].tolist()
        faults = [f"the label {label!r} was never seen in training" for label in labels]
        classes = ", ".join(repr(label) for label in self.classes_[:10].tolist())
        remedy = f'the classes are {classes}; correct the label or pass on_bad_line="skip"'
        source.refuse_rows(chunk.row_ids[unknown].tolist(), faults, remedy)

    def _own_hasher(self, roles: Mapping[str, Any] | None = None) -> Any:
        """A copy of the hasher given (or a plain one): what it learns belongs to this model."""
        if not hasattr(self, "hasher_"):
            hasher = self._hasher_wish()
            wishes = {**hasher.get_params(deep=False), **(roles or {}), **self._planned(hasher)}
            self.hasher_ = type(hasher)(**wishes | {"scale_numbers": bool(hasher.scale_numbers)})
        return self.hasher_

    def _hasher_wish(self) -> Any:
        from steepest.hashing import Hasher

        hasher = Hasher(names=NAMES) if self.hasher is None else self.hasher
        if not isinstance(hasher, Hasher):
            raise ParameterError(f"hasher={hasher!r} is no Hasher; give steepest.Hasher(...) or None")
        return hasher

    def _planned(self, hasher: Any) -> dict[str, Any]:
        """Parameters of the hasher that something else decides."""
        return {}

    def _hashed(self, source: Source, *, learn: bool) -> Source:
        """The source itself, or, if its rows are raw, with this model's hasher put in."""
        from steepest.data.raw import encoded, first_columns, is_raw, stored_encoder

        if not is_raw(source):
            if (state := stored_encoder(source)) is not None:
                self._take_hasher(*state, learn=learn)
            elif learn and self.hasher is not None and not hasattr(self, "hasher_"):
                raise ParameterError("hasher= is for raw columns, and these rows have features already; leave it out")
            return source
        from steepest.row_encoder import RowEncoder

        if not learn and getattr(self, "hasher_", None) is None:
            raise DataError(
                "the data holds raw columns, but this model was trained without a hasher; train one with it"
            )
        named = {kind: source.recipe.get(kind) for kind in ("text", "categorical", "numeric")}
        roles = {kind: names for kind, names in named.items() if names}
        hasher = self._own_hasher(roles)
        if learn and not hasattr(hasher, "columns_") and (columns := first_columns(source)) is not None:
            hasher.look(
                columns
            )  # kinds of columns are guessed from the head of the file, whatever the order of reading
        return encoded(source, RowEncoder(hasher, learn), hasher.signature(learn=learn))

    def _take_hasher(self, header: Mapping[str, Any], arrays: Mapping[str, Array], *, learn: bool) -> None:
        """Rows that were hashed into a cache file bring their hasher along; no other one can be used with them."""
        from steepest.hashing import Hasher

        stored = Hasher.from_state(header, arrays)
        own = getattr(self, "hasher_", self.hasher if learn else None)
        if own is not None and not own.makes_the_rows_of(stored):
            raise DataError(f"the cache was made by {stored!r}, which is not the model's {own!r}; make it anew")
        if learn and not hasattr(self, "hasher_"):
            self.hasher_ = stored

    def _note_names(self, X: Any) -> None:
        names = getattr(X, "columns", None)
        if names is not None and all(isinstance(name, str) for name in names):
            self.feature_names_in_ = np.array(list(names), dtype=object)
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_

    def _chunk(self, X: Any) -> Chunk:
        self._check_fitted()
        if getattr(self, "hasher_", None) is not None:
            chunk: Chunk = self.hasher_.to_chunk(X)
            return chunk
        names = getattr(self, "feature_names_in_", None)
        if names is not None and hasattr(X, "columns"):
            _check_names(names, list(X.columns))
        source = from_arrays(X)
        self._check_width(source)
        return source.block

    def _check_width(self, source: Source) -> None:
        known = self._learner.n_features if hasattr(self, "_learner") else source.n_features
        if source.n_features != known:
            raise DataError(
                f"X has {source.n_features} features, but {type(self).__name__} is expecting {known} features as input"
            )

    def _hasher_parts(self) -> tuple[Any, dict[str, Array]]:
        """What a file holds of the hasher."""
        hasher = getattr(self, "hasher_", None)
        header, arrays = (None, {}) if hasher is None else hasher.state()
        return header, {HASHER + name: array for name, array in arrays.items()}

    def _restore_hasher(self, header: Any, arrays: Mapping[str, Array]) -> None:
        """The hasher that `_hasher_parts` took apart."""
        if header is not None:
            from steepest.hashing import Hasher

            parts = {name.removeprefix(HASHER): array for name, array in arrays.items() if name.startswith(HASHER)}
            self.hasher_ = Hasher.from_state(header, parts)
            self.hasher = Hasher(**self.hasher_.get_params(deep=False))


def threads(n_jobs: int | None) -> int:
    """How many threads `n_jobs` asks for."""
    if n_jobs is None:
        return 1
    return int(n_jobs) if n_jobs > 0 else os.cpu_count() or 1


def _check_names(known: Array, given: list[Any]) -> None:
    if list(known) == given:
        return
    missing, new = [n for n in known if n not in given], [n for n in given if n not in set(known)]
    message = "The feature names should match those that were passed during fit.\n"
    if new:
        message += "Feature names unseen at fit time:\n" + "".join(f"- {name}\n" for name in sorted(new)[:5])
    if missing:
        message += "Feature names seen at fit time, yet now missing:\n" + "".join(
            f"- {n}\n" for n in sorted(missing)[:5]
        )
    if not new and not missing:
        message += "Feature names must be in the same order as they were in fit.\n"
    raise DataError(message)
