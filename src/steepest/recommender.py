"""Questions to a factor model: ratings of pairs, ranked lists, neighbours, and why."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from steepest.data.chunk import Array, DataError
from steepest.data.entries import ratings_of, two_columns
from steepest.data.ids import IdBook, as_ids
from steepest.data.parameters import ParameterError, whole
from steepest.data.ratings import RatingsChunk, as_ratings
from steepest.data.source import Source
from steepest.factor_model import FactorModel
from steepest.learners.als import contributions
from steepest.learners.factor_settings import CENTRED
from steepest.learners.factors import BIAS, FactorLearner
from steepest.metrics import RegressionMetrics
from steepest.model import threads
from steepest.recommendations import (
    Filter,
    Recommendations,
    allowed_bias,
    as_list,
    best_rows,
    check_known,
    seen_rows,
    unit_rows,
)


class Recommender(FactorModel):
    """Predictions and recommendations of a factor model."""

    def predict(self, X: Any, *, return_cold: bool = False) -> Any:
        """The predicted rating of each pair of X; logistic: the probability of 1.

        An unknown user or item counts with factors and bias of zero, so that the mean and the other's bias remain;
        `return_cold=True` also gives an array that is True for such pairs.
        """
        self._check_fitted()
        users, items = two_columns(X) if not isinstance(X, RatingsChunk) else (X.users, X.items)
        scores, cold = self._scores(as_ids(users, "user"), as_ids(items, "item"))
        predictions = self._link(scores)
        return (predictions, cold) if return_cold else predictions

    def decision_function(self, X: Any) -> Array:
        """Raw scores of pairs."""
        self._check_fitted()
        users, items = two_columns(X)
        return self._scores(as_ids(users, "user"), as_ids(items, "item"))[0]

    def _link(self, scores: Array) -> Array:
        learner = self._model()
        if learner.settings.loss == "logistic":
            return np.asarray(1 / (1 + np.exp(-np.clip(scores, -500, 500))))
        if self.clip and learner.settings.loss in CENTRED:
            return np.clip(scores, learner.low, learner.high)
        return scores

    def _scores(self, users: Array, items: Array) -> tuple[Array, Array]:
        learner = self._model()
        rows, columns = self._users.codes(users), self._items.codes(items)
        known = (rows >= 0) & (columns >= 0) & (rows < len(learner.users)) & (columns < len(learner.items))
        scores = np.full(len(rows), learner.in_units(np.array([learner.offset]))[0])
        scores[known] = learner.scores(rows[known], columns[known], threads(self.n_jobs))
        for table, codes, others in ((learner.users, rows, columns), (learner.items, columns, rows)):
            half = ~known & (codes >= 0) & (codes < len(table)) & ~((others >= 0) & known)
            bias = table[np.where(half, codes, 0), learner.padded + BIAS] if len(table) else np.zeros(len(codes))
            scale = learner.scale if learner.settings.loss in CENTRED else 1.0
            scores[half] += bias[half].astype(np.float64) * scale
        return scores, ~known

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """R² of the predictions; accuracy for logistic and hinge."""
        weight = None if sample_weight is None else np.asarray(sample_weight, np.float64)
        y = as_ratings(y, len(self.predict(X)))
        if self.loss in ("logistic", "hinge"):
            return float(np.average((self.decision_function(X) > 0) == (y > 0), weights=weight))
        predicted = self.predict(X)
        spread = np.average((y - np.average(y, weights=weight)) ** 2, weights=weight)
        return float(1 - np.average((predicted - y) ** 2, weights=weight) / spread) if spread > 0 else 0.0

    def predict_stream(self, source: Source) -> Iterator[Array]:
        """Predictions of a source's pairs, chunk by chunk."""
        for chunk in source:
            yield self.predict(ratings_of(chunk).packed())

    def evaluate_stream(self, source: Source) -> dict[str, Any]:
        """Rows, loss, rmse, mae and r2 on a source of ratings, and how many pairs were cold."""
        self._check_fitted()
        metrics, cold_rows = RegressionMetrics(), 0
        for part in source:
            chunk = ratings_of(part).packed()
            true = np.ones(chunk.n_rows) if chunk.y is None else np.asarray(chunk.y, np.float64)
            predicted, cold = self.predict(chunk, return_cold=True)
            scores, _ = self._scores(chunk.users, chunk.items)
            weight = np.ones(chunk.n_rows) if chunk.weight is None else chunk.weight
            metrics.add(true, predicted, self._model().losses(scores, self._targets(true)), weight)
            cold_rows += int(cold.sum())
        if metrics.rows == 0:
            raise DataError("the data holds no ratings; there is nothing to measure")
        return {**metrics.result(), "cold": cold_rows}

    def recommend(
        self, users: Any, k: int = 10, *, exclude_seen: bool = True, filter: Filter = None
    ) -> Recommendations:
        """The k best items for each user (one id, or a list of them), best first.

        `filter` allows only some items: a collection of ids, a function of an id, or a mask over `item_ids_`. Lists are
        shorter than k where there are not enough items. Unknown users get the most popular items and are marked in
        `cold`.
        """
        learner, k = self._model(), whole("k", k, 1)
        ids = as_list(users, "user")
        codes = self._users.codes(ids)
        codes = np.where(codes < len(learner.users), codes, -1)
        cold = codes < 0
        padded = learner.padded
        bias = np.ascontiguousarray(learner.items[:, padded + BIAS])
        queries = np.zeros((len(ids), padded), np.float32)
        queries[~cold] = learner.users[codes[~cold], :padded]
        items = np.ascontiguousarray(learner.items[:, :padded])
        excluded = None
        if exclude_seen:
            self._settle_seen()
            excluded = seen_rows(self._seen_indptr, self._seen_items, codes)
        allowed = allowed_bias(bias, self._items, filter)
        best, scores = best_rows(queries, items, allowed, k, excluded, threads(self.n_jobs))
        if cold.any():
            best[cold], scores[cold] = self._popular(learner, best.shape[1], filter)
        raw = scores.astype(np.float64)
        raw[~cold] = self._ranked_scores(learner, scores[~cold], learner.users[codes[~cold], padded + BIAS])
        return Recommendations(ids, best, np.where(best >= 0, raw, -np.inf), cold, self._items)

    def _ranked_scores(self, learner: FactorLearner, scores: Array, user_bias: Array) -> Array:
        return learner.in_units(scores + user_bias[:, None] + np.float32(learner.offset))

    def _popular(self, learner: FactorLearner, k: int, wish: Filter) -> tuple[Array, Array]:
        """(codes, scores) of the best items for nobody in particular: by bias, else by how often they were seen."""
        counts = learner.item_counts.astype(np.float32)
        worth = self._biases("items") + np.float32(self.mean_) if learner.settings.biases else counts
        worth = allowed_bias(np.asarray(worth, np.float32), self._items, wish)
        order = np.lexsort((np.arange(len(worth)), -worth))[:k]
        return np.where(np.isneginf(worth[order]), -1, order).astype(np.int32), worth[order]

    def similar_items(self, items: Any, k: int = 10, *, filter: Filter = None) -> Recommendations:
        """The k items whose factors point most in the same direction, with their cosines."""
        learner = self._model()
        return self._similar(items, self._items, learner.items, k, filter, "item")

    def similar_users(self, users: Any, k: int = 10, *, filter: Filter = None) -> Recommendations:
        """The k users whose factors point most in the same direction, with their cosines."""
        learner = self._model()
        return self._similar(users, self._users, learner.users, k, filter, "user")

    def _similar(self, asked: Any, book: IdBook, table: Array, k: int, wish: Filter, what: str) -> Recommendations:
        k = whole("k", k, 1)
        ids = as_list(asked, what)
        codes = book.codes(ids)
        check_known(codes, ids, what)
        rows = unit_rows(np.ascontiguousarray(table[:, : self._learner.padded]))
        own = np.arange(len(ids) + 1, dtype=np.int64), codes
        bias = allowed_bias(np.zeros(len(rows), np.float32), book, wish)
        best, scores = best_rows(rows[codes], rows, bias, k, own, threads(self.n_jobs))
        return Recommendations(ids, best, scores.astype(np.float64), np.zeros(len(ids), bool), book)

    def explain(self, user: Any, item: Any, k: int = 10) -> list[tuple[Any, float]]:
        """What each item that the user has rated adds to the score of another item, largest first (solver "als").

        The row of a user is linear in their ratings, p = A⁻¹ Σ w r q, so the score splits exactly (Hu et al. 2008).
        Contributions add up to the score without mean, biases and the item's own bias.
        """
        learner = self._model()
        if learner.settings.solver != "als" or learner.settings.loss == "kl":
            raise ParameterError(
                f"explain needs least squares: solver='als' with loss squared or implicit, not {self.solver!r}"
            )
        users, items = as_list(user, "user")[:1], as_list(item, "item")[:1]
        u, i = self._users.codes(users), self._items.codes(items)
        check_known(u, users, "user")
        check_known(i, items, "item")
        self._settle_seen()
        cut = slice(int(self._seen_indptr[u[0]]), int(self._seen_indptr[u[0] + 1]))
        seen = self._seen_items[cut]
        assert self._seen_values is not None
        weights = None if self._seen_weights is None else self._seen_weights[cut]
        shares = contributions(learner, int(u[0]), int(i[0]), seen, self._seen_values[cut], weights)
        order = np.argsort(-np.abs(shares), kind="stable")[: whole("k", k, 1)]
        return list(zip(self._items.ids[seen[order]].tolist(), shares[order].tolist(), strict=True))
