"""Splits of ratings that do not leak: k entries of each user, or all that came after a moment.

A pair is never on both sides: duplicates of a pair go together. Users with no more than k different items stay
whole in the training part, so that nobody is tested on nothing.
"""

from __future__ import annotations

import numpy as np

from steepest.data.chunk import Array, concatenate
from steepest.data.ids import IdBook
from steepest.data.readers.ratings import RatingsChunk, RatingsInMemory
from steepest.data.source import Source, mix
from steepest.errors import DataError
from steepest.parameters import inside, whole


def leave_k_out(source: Source, k: int = 1, *, seed: int = 0, latest: bool = False) -> tuple[Source, Source]:
    """Splits ratings into (training, test): k random items of each user are held out, or with `latest` the last k.

    Examples
    --------
    >>> import steepest as st
    >>> ratings = st.from_ratings(["ann", "ann", "bob", "bob"], ["tea", "milk", "tea", "cake"])
    >>> [part.n_rows for part in st.leave_k_out(ratings, 1)]
    [2, 2]
    """
    k = whole("k", k, 1)
    rows = gather(source)
    users, items = (IdBook().codes(ids, learn=True) for ids in (rows.users, rows.items))
    pairs, inverse = np.unique(users.astype(np.int64) * (int(items.max(initial=0)) + 1) + items, return_inverse=True)
    if latest:
        if rows.time is None:
            raise DataError("latest=True needs times, but the ratings have none; name their column with time=")
        rank = np.full(len(pairs), -np.inf)
        np.maximum.at(rank, inverse, rows.time)
    else:
        rank = mix(pairs, seed).astype(np.float64)
    owners = pairs // (int(items.max(initial=0)) + 1)
    order = np.lexsort((rank, owners))
    counts = np.bincount(owners.astype(np.int64))
    behind = np.cumsum(counts)[owners[order].astype(np.int64)] - np.arange(len(order))
    held = np.zeros(len(pairs), bool)
    held[order] = (behind <= k) & (counts[owners[order].astype(np.int64)] > k)
    return _parts(rows, held[inverse])


def split_by_time(source: Source, share: float = 0.1) -> tuple[Source, Source]:
    """Splits ratings by time into (training, test): about the last `share` of them are held out.

    Examples
    --------
    >>> import steepest as st
    >>> ratings = st.from_ratings([1, 2, 1, 2], [1, 1, 2, 2], [5, 4, 3, 5], time=[10, 30, 20, 40])
    >>> [next(iter(part)).time.tolist() for part in st.split_by_time(ratings, 0.25)]
    [[10.0, 20.0], [30.0, 40.0]]
    """
    share = inside("share", share, 0.0, 1.0)
    rows = gather(source)
    if rows.time is None:
        raise DataError("a split by time needs times, but the ratings have none; name their column with time=")
    moment = np.quantile(rows.time, 1 - share, method="lower")
    held = rows.time >= moment if (rows.time < moment).any() else rows.time > moment
    return _parts(rows, held)


def gather(source: Source) -> RatingsChunk:
    """Reads all ratings of a source into memory."""
    parts = [chunk for chunk in source if isinstance(chunk, RatingsChunk)]
    if not parts:
        raise DataError("the source holds no ratings to split; open the file with scan_ratings")
    return concatenate(parts)


def _parts(rows: RatingsChunk, held: Array) -> tuple[Source, Source]:
    if not held.any() or held.all():
        side = "test" if not held.any() else "training"
        raise DataError(f"the split leaves the {side} part empty; hold out another number or share of ratings")
    numbers = np.arange(rows.n_rows)
    training, test = (rows.visit(numbers[side]).packed() for side in (~held, held))
    return RatingsInMemory(training), RatingsInMemory(test)
