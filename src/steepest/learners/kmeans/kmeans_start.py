"""Where k-means begins: k rows chosen so that they lie far apart.

k-means++ (Arthur and Vassilvitskii 2007), greedy: each next centre is the best of eight rows or more, drawn with
probability w·d², d² being the squared distance to the nearest centre so far. k-means|| (Bahmani et al. 2012) draws some
2 k rows at once in each of five rounds, weighs them by the rows nearest to them, and thins them to k by k-means++: few
passes where k is large. All work on sparse rows whose columns are numbered anew, so that unused features cost nothing.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from steepest import kernels
from steepest.data.chunk import Array, Chunk
from steepest.learners.kmeans.centres import Centres

STARTS = ("k-means++", "k-means||", "random")
ROUNDS = 5
OVERSAMPLING = 2.0


def weights_of(rows: Chunk) -> Array:
    """The weight of each row visited."""
    return np.ones(rows.n_rows) if rows.weight is None else rows.visited(rows.weight)


def choose_rows(how: str, rows: Chunk, k: int, generator: np.random.Generator, n_threads: int = 1) -> Array:
    """Numbers of k rows of a packed chunk that has at least k."""
    weight = weights_of(rows)
    if how == "random":
        return _random(weight, k, generator)
    if how == "k-means||":
        return _parallel(rows, weight, k, generator, n_threads)
    return _plus_plus(rows, weight, k, generator, n_threads)


def _random(weight: Array, k: int, generator: np.random.Generator) -> Array:
    """Random rows by weight, each at most once; rows of weight 0 only when no others are left."""
    keys = generator.random(len(weight)) ** (1 / np.maximum(weight, 1e-300))  # Efraimidis and Spirakis (2006)
    return np.asarray(np.argsort(-np.where(weight > 0, keys, -1.0), kind="stable")[:k])


def _draw(mass: Array, n: int, generator: np.random.Generator) -> Array:
    """Rows drawn with probability proportional to their mass, or uniformly if all mass is zero."""
    sums = np.cumsum(mass)
    draws = generator.random(n)
    if not sums[-1] > 0:
        return np.asarray((draws * len(mass)).astype(np.int64))
    return np.asarray(np.minimum(np.searchsorted(sums, draws * sums[-1], side="right"), len(mass) - 1))


def _plus_plus(rows: Chunk, weight: Array, k: int, generator: np.random.Generator, n_threads: int) -> Array:
    trials = max(kernels.kmeans_lanes, 2 + int(math.log(k)))  # fewer than fill a vector would cost as much
    picks = [int(_draw(weight, 1, generator)[0])]
    closest = Centres.from_rows(rows, np.array(picks)).squares(rows, n_threads)[:, 0]
    for _ in range(1, k):
        closest[picks[-1]] = 0.0  # exactly, whatever the rounding: no row is chosen twice while another is left
        candidates = _draw(weight * closest, trials, generator)
        squares = Centres.from_rows(rows, candidates).squares(rows, n_threads)
        np.minimum(squares, closest[:, None], out=squares)
        best = int(np.argmin(weight @ squares))
        picks.append(int(candidates[best]))
        closest = np.ascontiguousarray(squares[:, best])
    return np.array(picks)


def _parallel(rows: Chunk, weight: Array, k: int, generator: np.random.Generator, n_threads: int) -> Array:
    chosen = _draw(weight, 1, generator)
    _, closest = Centres.from_rows(rows, chosen).nearest(rows, n_threads)
    for _ in range(ROUNDS):
        closest[chosen] = 0.0
        mass = weight * closest
        if not mass.sum() > 0:
            break
        fresh = np.flatnonzero(generator.random(rows.n_rows) < OVERSAMPLING * k * mass / mass.sum())
        if len(fresh):
            chosen = np.concatenate([chosen, fresh])
            np.minimum(closest, Centres.from_rows(rows, fresh).nearest(rows, n_threads)[1], out=closest)
    if len(chosen) < k:  # too few distinct rows: the rest by chance
        others = np.setdiff1d(np.arange(rows.n_rows), chosen)
        return np.concatenate([chosen, generator.permutation(others)])[:k]
    labels, _ = Centres.from_rows(rows, chosen).nearest(rows, n_threads)
    mass = np.bincount(labels, weight, minlength=len(chosen))
    few = replace(rows.visit(chosen).packed(), weight=mass)
    return np.asarray(chosen[_plus_plus(few, mass, k, generator, n_threads)])
