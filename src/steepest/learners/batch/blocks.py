"""Strengths of the penalty for blocks of features, such as the columns of a table, by empirical Bayes.

A penalty ½ l2 ‖w‖² is a normal prior of the weights. Here each block b of features has a variance of its own, the one
under which the rows are most probable (MacKay, "Bayesian interpolation", Neural Computation 4, 1992). With H the
Hessian of the mean loss with its penalty at the minimum w, and n the weight of all rows,

    l2_b = γ_b σ² / (n ‖w_b‖²),    γ_b = Σ (1 - l2_b (H⁻¹)_jj) over the features j of the block,

where γ_b is the number of weights that the rows determine, and σ² the variance of the noise of a regression, else 1. A
useless column gets a strong penalty, and one that decides a weak one.

The equations are solved on the quadratic that the objective is close to at w: the Hessian of the heaviest features as
preconditioner.py forms it, and of every other feature its diagonal alone. Strengths are rounded to powers of four, so
that they are the same for the same rows, and values times their roots are exact.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from steepest.data.chunk import Array
from steepest.learners.batch.objective import Objective
from steepest.learners.batch.preconditioner import Factored, HeavyHessian

LIKELIHOODS = ("log", "squared", "poisson")  # losses that are the negative logarithm of a probability
MOST_BLOCKS = 256
ROUNDS = 10
MOST_CHANGE = 4.0**6  # of a strength
LEAST_DETERMINED = 1e-3  # weights of a block, so that its strength stays finite
SHOWN = 4


@dataclass(frozen=True, slots=True)
class Blocks:
    """The block of every feature."""

    names: tuple[str, ...]
    numbers: Array  # of the blocks of these features
    features: Array | None = None  # in ascending order; None: 0, 1, 2, ...
    rest: int = 0  # the block of features that are not among them

    def of(self, features: Array) -> Array:
        """The numbers of the blocks of some features."""
        if self.features is None:
            return np.asarray(self.numbers[features])
        places = np.minimum(np.searchsorted(self.features, features), len(self.features) - 1)
        return np.where(self.features[places] == features, self.numbers[places], self.rest)


@dataclass(frozen=True, slots=True)
class BlockStrengths:
    """By which factor the penalty of each block is stronger than alpha says."""

    blocks: Blocks
    factors: Array

    @classmethod
    def mean(cls, parts: Iterable[BlockStrengths]) -> BlockStrengths:
        """The geometric mean of what parts of the rows say."""
        found = list(parts)
        return cls(found[0].blocks, _rounded(np.exp(np.mean([np.log(part.factors) for part in found], axis=0))))

    def roots(self, features: Array) -> Array:
        """What values of the features are multiplied by: with w = root u, alpha ‖u‖² is the penalty of w."""
        return np.asarray(self.factors[self.blocks.of(features)] ** -0.5)

    def sentence(self) -> str:
        """The columns with the weakest and the strongest penalty, as factors of alpha."""
        order = np.argsort(self.factors, kind="stable").tolist()
        weaker = [(k, f"1/{1 / self.factors[k]:.0f}") for k in order if self.factors[k] < 1]
        stronger = [(k, f"{self.factors[k]:.0f}") for k in order[::-1] if self.factors[k] > 1]
        said = []
        for what, found in (("weaker", weaker), ("stronger", stronger)):
            shown = ", ".join(f"{self.blocks.names[k]} ({times})" for k, times in found[:SHOWN])
            more = f" and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
            said += [f"{what} for {shown}{more}"] if found else []
        return "; ".join(said)


def most_probable_strengths(objective: Objective, w: Array, blocks: Blocks) -> BlockStrengths:
    """The strengths under which the rows are most probable, close to the minimum w under one strength for all."""
    numbers, n_blocks, alpha = blocks.of(objective.data.seen), len(blocks.names), objective.l2
    objective.evaluate(w, curvature=True)
    diagonal = objective.diagonal()
    data = objective.data
    data.heavy = data.heavy or HeavyHessian(data, objective.n_outputs)
    heavy, is_light = data.heavy.features, np.ones(len(w) - 1, bool)
    is_light[heavy] = False
    light = np.flatnonzero(is_light)
    own, places = np.append(heavy, len(w) - 1), np.arange(len(heavy))
    bend = data.heavy.matrices(objective, diagonal[own].T)  # of the loss alone, as is `light_bend`
    bend[:, places, places] -= alpha
    light_bend = diagonal[light] - alpha
    # The minimum of the quadratic is where (bend + l2) v = pull; under l2 = alpha that is w.
    pull = np.einsum("oij,jo->oi", bend, w[own])
    pull[:, :-1] += alpha * w[heavy].T
    light_pull = (light_bend + alpha) * w[light]

    def by_block(of_heavy: Array, of_light: Array) -> Array:
        return np.bincount(numbers[heavy], of_heavy, n_blocks) + np.bincount(numbers[light], of_light, n_blocks)

    sizes = np.bincount(numbers, minlength=n_blocks) * float(objective.n_outputs)
    n_targets = objective.weight_sum * objective.n_outputs
    factors = np.ones(n_blocks)
    for _ in range(ROUNDS):
        l2 = alpha * factors
        matrices = bend.copy()
        matrices[:, places, places] += l2[numbers[heavy]]
        root = Factored(matrices).inverse_root()
        v = np.einsum("oij,oi->oj", root, np.einsum("oij,oj->oi", root, pull))[:, :-1]
        inverse = np.square(root).sum(axis=(0, 1))[:-1]
        lifted = light_bend + l2[numbers[light], None]
        determined = sizes - l2 * by_block(inverse, (1 / lifted).sum(axis=1))
        determined = np.clip(determined, LEAST_DETERMINED, np.maximum(sizes, LEAST_DETERMINED))
        square = by_block(np.square(v).sum(axis=0), np.square(light_pull / lifted).sum(axis=1))
        noise = 1.0
        if objective.settings.loss == "squared":  # the loss is half of the square
            noise = 2 * objective.plain_loss * objective.weight_sum / max(n_targets - determined.sum(), 0.1 * n_targets)
        strengths = determined * noise / (objective.weight_sum * np.maximum(square, 1e-300))
        factors = np.clip(strengths / alpha, 1 / MOST_CHANGE, MOST_CHANGE)
    return BlockStrengths(blocks, _rounded(factors))


def _rounded(factors: Array) -> Array:
    return np.asarray(4.0 ** np.rint(np.log(factors) / np.log(4.0)))
