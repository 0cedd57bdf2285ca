"""Explaining a linear model: its heaviest features and what made a score, by name even where features were hashed.

A hashed feature has a sign of its own: what speaks for a class is sign times weight. A name is known if the hasher kept
it; a bucket may hold several features, and then all their known names are shown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from steepest.data.chunk import Array, Chunk
from steepest.errors import DataError
from steepest.parameters import whole

if TYPE_CHECKING:
    from steepest.features.hasher import Hasher
    from steepest.features.vw_names import VwNames
    from steepest.learners.linear.linear import LinearLearner


@dataclass(frozen=True, slots=True)
class Contribution:
    """What one feature of a row adds to a score: value times weight. `others` are names in the same bucket."""

    name: str
    value: float
    weight: float
    contribution: float
    others: tuple[str, ...] = ()


class ClassWeights:
    """The weights of one output in a shared table, looked up on demand.

    Against another output they are half the difference, as the score of two classes is.
    """

    def __init__(self, learner: LinearLearner, output: int, against: int | None = None, sign: int = 1) -> None:
        self.learner_, self._output, self._against, self._sign = learner, output, against, sign

    def __len__(self) -> int:
        return self.learner_.n_features

    def __neg__(self) -> ClassWeights:
        return ClassWeights(self.learner_, self._output, self._against, -self._sign)

    def __getitem__(self, features: Any) -> Any:
        chosen = np.asarray(features, np.int64)
        weights = self.learner_.output_weights(self._output, chosen.reshape(-1))
        if self._against is not None:
            weights = (weights - self.learner_.output_weights(self._against, chosen.reshape(-1))) / 2
        return self._sign * weights.reshape(chosen.shape)[()]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        return np.asarray(self[np.arange(len(self))], dtype)


class SparseWeights:
    """The weights of one output for the features in use, which are in ascending order; all others are zero."""

    def __init__(self, features: Array, weights: Array, n_features: int) -> None:
        self.features, self.weights, self._n = features, weights, n_features

    def __len__(self) -> int:
        return self._n

    def __neg__(self) -> SparseWeights:
        return SparseWeights(self.features, -self.weights, self._n)

    def __getitem__(self, features: Any) -> Any:
        chosen = np.asarray(features)
        if not len(self.features):
            return np.zeros(chosen.shape, self.weights.dtype)[()]
        at = np.minimum(np.searchsorted(self.features, chosen), len(self.features) - 1)
        return np.where(self.features[at] == chosen, self.weights[at], self.weights.dtype.type(0))[()]


OutputWeights = Array | ClassWeights | SparseWeights


def top_features(
    weights_by_output: Iterable[tuple[Any, OutputWeights]],
    k: int,
    hasher: Hasher | VwNames | None = None,
    names: Sequence[str] | None = None,
    *,
    against: bool = False,
) -> dict[Any, list[tuple[str, float]]]:
    """The k features with the largest weights for each output (or the lowest, `against` it), with names if known."""
    k = whole("k", k, 0)
    if against:
        found = top_features([(label, -weights) for label, weights in weights_by_output], k, hasher, names)
        return {label: [(name, -weight) for name, weight in pairs] for label, pairs in found.items()}
    if hasher is not None and hasattr(hasher, "names_"):
        return {label: _heaviest_named(weights, k, hasher) for label, weights in weights_by_output}
    return {label: _heaviest(weights, k, None if hasher is not None else names) for label, weights in weights_by_output}


def _heaviest(weights: OutputWeights, k: int, names: Sequence[str] | None) -> list[tuple[str, float]]:
    if isinstance(weights, SparseWeights):
        chosen = weights.features[_largest(weights.weights, k)]
    else:
        weights = np.asarray(weights)
        chosen = _largest(weights, k)
    return [(column_name(int(j), names), float(weights[j])) for j in chosen if weights[j] > 0]


def _heaviest_named(weights: OutputWeights, k: int, hasher: Hasher | VwNames) -> list[tuple[str, float]]:
    buckets = hasher.names_.buckets()
    sizes = np.abs(weights[buckets])
    order = buckets[_largest(sizes, int(np.count_nonzero(sizes)))]
    found: list[tuple[str, float]] = []
    block = 4 * k + 16  # most often enough, as about half of the heavy buckets speak against
    for start in range(0, len(order), block):
        if len(found) >= k:
            break
        candidates = order[start : start + block]
        for bucket, names in zip(candidates.tolist(), hasher.names_.names_of(candidates), strict=True):
            for name in names[:1]:
                weight = hasher.sign_in(bucket, name) * float(weights[bucket])
                if weight > 0:
                    found.append((name if len(names) == 1 else f"{name} (or {', '.join(names[1:])})", weight))
    return found[:k]


def explain_row(
    x: Any,
    weights_by_output: Iterable[tuple[Any, OutputWeights]],
    hasher: Hasher | VwNames | None,
    chunk_of: Callable[[Any], Chunk],
    names: Sequence[str] | None = None,
) -> dict[Any, list[Contribution]]:
    """What each feature of one row adds to the score of each output, by the size of what it adds."""
    row, own, seen = read_row(x, hasher, chunk_of, names)
    return {label: _contributions(row, weights, own, seen) for label, weights in weights_by_output}


def read_row(
    x: Any, hasher: Hasher | VwNames | None, chunk_of: Callable[[Any], Chunk], names: Sequence[str] | None = None
) -> tuple[Chunk, list[list[str]], list[list[str]]]:
    """(one row, the names in it for each of its entries, those known from training for each)."""
    if hasher is not None:
        return hasher.read_row(x)
    row = chunk_of(x if getattr(x, "ndim", 2) == 2 or isinstance(x, list) else np.asarray(x)[None, :])
    if row.n_rows != 1:
        raise DataError(f"x has {row.n_rows} rows; give one, such as X[:1]")
    own = [[column_name(int(j), names)] for j in row.indices]
    return row, own, [[] for _ in own]


def entry_name(j: int, own: list[str]) -> str:
    """The name of an entry: all names that its bucket has in the row."""
    return " + ".join(own) if own else f"bucket {j}"


def _contributions(
    row: Chunk, weights: OutputWeights, own: list[list[str]], seen: list[list[str]]
) -> list[Contribution]:
    found = []
    for j, x, mine, known in zip(row.indices, row.values, own, seen, strict=True):
        name = entry_name(int(j), mine)
        others = tuple(other for other in known if other not in mine)
        found.append(Contribution(name, float(x), float(weights[j]), float(x * weights[j]), others))
    return sorted(found, key=lambda part: -abs(part.contribution))


def _largest(values: Array, k: int) -> Array:
    k = min(max(k, 0), len(values))
    if k == 0:
        return np.zeros(0, np.int64)
    chosen = np.argpartition(-values, k - 1)[:k]
    return np.asarray(chosen[np.argsort(-values[chosen], kind="stable")])


def column_name(j: int, names: Sequence[str] | None) -> str:
    """The name of a column, or its number."""
    return str(names[j]) if names is not None else f"feature {j}"
