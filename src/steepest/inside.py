"""Looking inside a linear model: its heaviest features and what made a score, by name even where features were hashed.

A hashed feature has a sign of its own: what speaks for a class is sign times weight. A name is known if the hasher kept
it; a bucket may hold several features, and then all their known names are told.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from steepest.data.chunk import Array, Chunk

if TYPE_CHECKING:
    from steepest.hashing import Hasher
    from steepest.learners.linear import LinearLearner
    from steepest.vw_names import VwNames


@dataclass(frozen=True, slots=True)
class Contribution:
    """What one feature of a row adds to a score: value times weight. `others` share its bucket."""

    name: str
    value: float
    weight: float
    contribution: float
    others: tuple[str, ...] = ()


class ClassWeights:
    """The weights of one output in a table that all share, read where they are asked for.

    Against another output they are half the difference, as the score of two classes is.
    """

    def __init__(self, learner: LinearLearner, output: int, against: int | None = None) -> None:
        self._learner, self._output, self._against = learner, output, against

    def __len__(self) -> int:
        return self._learner.n_features

    def __getitem__(self, features: Any) -> Any:
        chosen = np.asarray(features, np.int64)
        weights = self._learner.output_weights(self._output, chosen.reshape(-1))
        if self._against is not None:
            weights = (weights - self._learner.output_weights(self._against, chosen.reshape(-1))) / 2
        return weights.reshape(chosen.shape)[()]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        return np.asarray(self[np.arange(len(self))], dtype)


def heaviest(weights: Array | ClassWeights, k: int, names: Sequence[str] | None = None) -> list[tuple[str, float]]:
    """The k largest positive weights with the names of their columns."""
    weights = np.asarray(weights)
    chosen = _largest(weights, k)
    return [(_column_name(int(j), names), float(weights[j])) for j in chosen if weights[j] > 0]


def heaviest_named(weights: Array | ClassWeights, k: int, hasher: Hasher | VwNames) -> list[tuple[str, float]]:
    """The k named features that speak most for the output these weights belong to."""
    buckets = hasher.names_.buckets()
    # Half of the heavy buckets speak against; unnamed ones are not among the candidates at all.
    candidates = buckets[_largest(np.abs(weights[buckets]), 4 * k + 16)]
    found = []
    for bucket, names in zip(candidates.tolist(), hasher.names_.names_of(candidates), strict=True):
        for name in names[:1]:
            weight = hasher.sign_in(bucket, name) * float(weights[bucket])
            if weight > 0:
                found.append((name if len(names) == 1 else f"{name} (or {', '.join(names[1:])})", weight))
    return sorted(found, key=lambda pair: -pair[1])[:k]


def explain_row(row: Chunk, weights: Array | ClassWeights, names: Sequence[str] | None = None) -> list[Contribution]:
    """The row's features by the size of what they add to a score."""
    found = [
        Contribution(_column_name(int(j), names), float(x), float(weights[j]), float(x * weights[j]))
        for j, x in zip(row.indices, row.values, strict=True)
    ]
    return sorted(found, key=lambda part: -abs(part.contribution))


def explain_hashed(
    row: Chunk, weights: Array | ClassWeights, own: list[list[str]], seen: list[list[str]]
) -> list[Contribution]:
    """The same for a hashed row: `own` are the names in the row by bucket, `seen` those known from training."""
    found = []
    for j, x, mine, known in zip(row.indices, row.values, own, seen, strict=True):
        name = " + ".join(mine) if mine else f"bucket {int(j)}"
        others = tuple(other for other in known if other not in mine)
        found.append(Contribution(name, float(x), float(weights[j]), float(x * weights[j]), others))
    return sorted(found, key=lambda part: -abs(part.contribution))


def _largest(values: Array, k: int) -> Array:
    k = min(max(k, 0), len(values))
    if k == 0:
        return np.zeros(0, np.int64)
    chosen = np.argpartition(-values, k - 1)[:k]
    return np.asarray(chosen[np.argsort(-values[chosen], kind="stable")])


def _column_name(j: int, names: Sequence[str] | None) -> str:
    return str(names[j]) if names is not None else f"feature {j}"
