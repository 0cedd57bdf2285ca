"""Ranked lists from a factor model: the best items for users, and neighbours by cosine.

Scores are products of factors in blocks (native), so that many users cost little more than reading the items. Ties go
to the item seen first in training.
"""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from steepest import kernels
from steepest.data.chunk import Array, places_between
from steepest.data.entries import Entries
from steepest.data.ids import IdBook, as_ids
from steepest.errors import DataError, ParameterError
from steepest.learners.factors.factors import BIAS, FactorLearner
from steepest.metrics import RankingMetrics

Filter = Callable[[Any], bool] | Collection[Any] | None
USERS_AT_ONCE = 256  # whose scores of all items are held in memory
SHOWN = 5  # lists, and items of each, that are printed


@dataclass(frozen=True, repr=False)
class Recommendations:
    """A ranked list for each user; iterating gives (user, [(item, score), ...]).

    Attributes
    ----------
    users : array of the requested ids
    codes : (n, k) codes of items, best first; -1 where there are no more
    scores : (n, k)
    cold : array of bool
        True where the user is unknown, so that the list is the most popular items and the scores are their counts
        (or the items' biases, if the model has any).
    """

    users: Array
    codes: Array
    scores: Array
    cold: Array
    book: IdBook

    def __repr__(self) -> str:
        lists = [self._line(number) for number in range(min(len(self), SHOWN))]
        if len(self) > SHOWN:
            lists.append(f"... and {len(self) - SHOWN:,} more")
        return "\n  ".join([f"<{len(self):,} ranked list{'' if len(self) == 1 else 's'}", *lists]) + ">"

    def _line(self, number: int) -> str:
        """One list in short: the user, the first items with their scores, and how many more there are."""
        n_items = int(np.count_nonzero(self.codes[number] >= 0))
        parts = [f"{reprlib.repr(item)} {score:.4g}" for item, score in self[number][:SHOWN]]
        if n_items > SHOWN:
            parts.append(f"... {n_items - SHOWN} more")
        note = " (cold)" if self.cold[number] else ""
        return f"{reprlib.repr(self.users[number : number + 1].tolist()[0])}{note}: {', '.join(parts) or 'nothing'}"

    def __len__(self) -> int:
        return len(self.users)

    def __getitem__(self, number: int) -> list[tuple[Any, float]]:
        """The list of the n-th user."""
        kept = self.codes[number] >= 0
        ids = self.book.ids[self.codes[number][kept]].tolist()
        return list(zip(ids, self.scores[number][kept].tolist(), strict=True))

    def __iter__(self) -> Iterator[tuple[Any, list[tuple[Any, float]]]]:
        return ((user, self[number]) for number, user in enumerate(self.users.tolist()))

    @property
    def items(self) -> Array:
        """(n, k) ids; None where a list is shorter."""
        found = np.full(self.codes.shape, None, object)
        kept = self.codes >= 0
        found[kept] = self.book.ids[self.codes[kept]].tolist()
        return found


def as_list(ids: Any, what: str) -> Array:
    """One id or a sequence of them."""
    if isinstance(ids, str | bytes) or not hasattr(ids, "__len__") or isinstance(ids, tuple):
        ids = [ids]
    return as_ids(ids, what)


def best_rows(
    queries: Array, rows: Array, bias: Array, k: int, excluded: tuple[Array, Array] | None, n_threads: int
) -> tuple[Array, Array]:
    """(numbers, scores) of each query's k best rows by product plus bias; -1 and -infinity where there are no more."""
    k = max(min(k, len(rows)), 1)
    scores = np.full((len(queries), k), -np.inf, np.float32)
    best = np.full((len(queries), k), -1, np.int32)
    if len(queries) and len(rows):
        kernels.factor_top(queries, rows, bias, excluded, scores, best, n_threads)
    best[np.isneginf(scores)] = -1
    return best, scores


def allowed_bias(bias: Array, book: IdBook, filter: Filter) -> Array:
    """The bias of items, minus infinity where a filter forbids them."""
    if filter is None:
        return bias
    if callable(filter):
        allowed = np.fromiter((bool(filter(value)) for value in book.ids.tolist()), bool, len(book))
    elif isinstance(filter, np.ndarray) and filter.dtype == bool:
        if filter.shape != (len(book),):
            raise ParameterError(
                f"filter has shape {filter.shape}; as a mask it needs one place for each of {len(book)} items"
            )
        allowed = filter
    else:
        allowed = np.zeros(len(book), bool)
        codes = book.codes(as_ids(list(filter), "item"))
        allowed[codes[codes >= 0]] = True
    return np.where(allowed, bias, -np.inf).astype(np.float32)


def unit_rows(factors: Array) -> Array:
    """Rows of length one; zero rows stay zero."""
    norms = np.sqrt(np.einsum("ij,ij->i", factors, factors))
    return np.ascontiguousarray(factors / np.where(norms > 0, norms, 1)[:, None], np.float32)


def seen_rows(indptr: Array, indices: Array, rows: Array) -> tuple[Array, Array]:
    """The CSR rows of these users; empty for those that have none, such as -1."""
    empty = len(indptr) - 1
    known, ends = np.where((rows >= 0) & (rows < empty), rows, empty), np.append(indptr[1:], indptr[-1])
    starts, at = places_between(indptr[known], ends[known])
    return starts, np.ascontiguousarray(indices[at], np.int32)


def measure_lists(
    learner: FactorLearner, pairs: Entries, trained: tuple[Array, Array], k: int, n_threads: int
) -> dict[str, Any]:
    """Ranking metrics of test pairs among all items, without those that a user has in training only.

    The loss of bpr compares each pair with one other item, drawn the same way every time.
    """
    metrics, padded = RankingMetrics(k), learner.padded
    users, owners = np.unique(pairs.users, return_inverse=True)
    order = np.argsort(owners, kind="stable")
    relevant = np.split(pairs.items[order], np.cumsum(np.bincount(owners, minlength=len(users)))[:-1])
    items = np.ascontiguousarray(learner.items[:, :padded])
    bias = np.ascontiguousarray(learner.items[:, padded + BIAS])
    rng, losses = np.random.default_rng(0), 0.0
    for start in range(0, len(users), USERS_AT_ONCE):
        part = users[start : start + USERS_AT_ONCE]
        mine = relevant[start : start + USERS_AT_ONCE]
        indptr, seen = seen_rows(*trained, part)
        left_out = [np.setdiff1d(seen[indptr[n] : indptr[n + 1]], liked) for n, liked in enumerate(mine)]
        starts = np.concatenate([[0], np.cumsum([len(one) for one in left_out])]).astype(np.int64)
        excluded = starts, np.concatenate([*left_out, np.zeros(0)]).astype(np.int32)
        queries = np.ascontiguousarray(learner.users[part, :padded])
        best, _ = best_rows(queries, items, bias, k, excluded, n_threads)
        scores = queries @ items.T + bias
        for number, liked in enumerate(mine):
            row = scores[number].astype(np.float64)
            metrics.add(best[number], liked)
            metrics.add_scores(row, liked, left_out[number])
            if learner.settings.loss == "bpr":
                others = np.setdiff1d(np.arange(len(items)), np.concatenate([liked, left_out[number]]))
                drawn = rng.choice(others, len(liked)) if len(others) else liked
                losses += float(np.logaddexp(0, row[drawn] - row[liked]).sum())
            else:
                losses += float((0.5 * (1 - row[liked]) ** 2).sum())
    return {"loss": losses / max(len(pairs.users), 1), **metrics.result()}


def check_known(codes: Array, ids: Array, what: str) -> None:
    """Raises with the name of the id if it is not known."""
    if (codes < 0).any():
        unknown = ids[int(np.flatnonzero(codes < 0)[0])]
        unknown = unknown.item() if isinstance(unknown, np.generic) else unknown
        raise DataError(f"the {what} {unknown!r} was not seen in training; fold it in, or leave it out")
