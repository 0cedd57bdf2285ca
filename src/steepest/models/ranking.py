"""A linear ranker: scores w·x that put the rows of each group (query) in the order of their targets.

Minimises the mean over pairs of loss(w·(x_i - x_j), +1), y_i > y_j, both of one group, plus alpha R(w): a classifier of
differences without a bias (Herbrich, Graepel and Obermayer, 2000; Joachims, 2002, for the hinge). Pairs are drawn
anew in every epoch, at most `pairs` for each row, or all of them. Left out: losses over whole lists.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, ClassVar, Self

import numpy as np

from steepest.data.chunk import Array
from steepest.data.groups import Pairs, groups_of, pairs_of
from steepest.data.source import ArraySource, Source
from steepest.data.store.row_store import store_rows
from steepest.engine.history import History
from steepest.engine.loop import Monitor
from steepest.errors import DataError, ParameterError
from steepest.learners.linear.linear import LinearLearner
from steepest.learners.linear.linear_settings import LinearSettings
from steepest.learners.losses import LOSSES
from steepest.metrics import GroupRankingMetrics, ndcg
from steepest.models.base import Run
from steepest.models.linear import LinearModel
from steepest.models.options import EarlyStopping, Tolerance
from steepest.parameters import choice, whole


class LinearRanker(LinearModel):
    """Linear ranker: minimises the mean of loss(w·(x_i - x_j)) over pairs of a group with y_i > y_j, plus alpha R(w).

    The other parameters are those of LinearClassifier. There is no bias, because it cancels in differences.

    Parameters
    ----------
    loss : {"log", "hinge", "squared_hinge"}
        Loss function of the difference of two scores: "hinge" is the ranking support vector machine, "log" is RankNet's
        loss.
    pairs : int or "all"
        Number of random pairs per row and epoch; "all" learns from every pair of different targets.

    Attributes
    ----------
    coef_, n_iter_, n_features_in_, history_, n_nonzero_

    Examples
    --------
    >>> import steepest as st
    >>> X, y = [[1.0, 3.0], [2.0, 1.0], [3.0, 5.0], [1.0, 0.0], [2.0, 4.0]], [0, 1, 2, 0, 1]
    >>> model = st.LinearRanker(random_state=0).fit(X, y, groups=["a", "a", "a", "b", "b"])
    >>> model.predict([[0.0, 0.0], [9.0, 0.0]]).argmax().item()
    1
    >>> model.score(X, y, groups=["a", "a", "a", "b", "b"])
    1.0

    References
    ----------
    Joachims, T. (2002). Optimizing search engines using clickthrough data.
    """

    kind = "ranker"
    task = "classify"
    _fixed: ClassVar[Mapping[str, Any]] = {
        "fit_intercept": False,
        "C": None,
        "epsilon": 0.0,
        "quantile": 0.5,
        "multi_class": "ovr",
        "memory_budget": None,
    }
    memory_budget = None
    pairs: int | str

    def __init__(
        self,
        loss: str = "log",
        *,
        pairs: int | str = 10,
        penalty: Any = "l2",
        alpha: float = 1e-6,
        solver: Any = "auto",
        schedule: str = "auto",
        eta0: float | str = "auto",
        epochs: int = 5,
        batch_size: int = 1,
        tol: float | Tolerance | None = None,
        early_stopping: bool | EarlyStopping = False,
        average: bool | str = "auto",
        shuffle: str = "blocks",
        parallel: Any = "serial",
        n_jobs: int = 1,
        dtype: str = "float32",
        hasher: Any = None,
        random_state: Any = None,
        verbose: int = 0,
        max_iter: int = 1000,
    ) -> None:
        self._store(locals())

    # -------------------------------------------------------------------------------------------------- learning

    def fit(self, X: Any, y: Any = None, groups: Any = None, *, monitor: Monitor | None = None) -> Self:
        """Learns from rows X with targets y (higher is better), in groups: one name or number per row, in any order."""
        vars(self).pop("hasher_", None)
        return self._fit(self.grouped(X, y, groups), None, None if monitor is None else Run(monitor))

    def partial_fit(self, X: Any, y: Any = None, groups: Any = None) -> Self:
        """Learns the pairs of these rows once; two calls learn the same as one if no group is in both."""
        source = self.grouped(X, y, groups)
        self._check_width(source)
        seed = self.random_state if isinstance(self.random_state, int) else 0
        return self._learn_more(self._training_rows(source, seed))

    def grouped(self, X: Any, y: Any, groups: Any) -> ArraySource:
        """Rows in memory with their groups, which become neighbours."""
        names = self._names_of(groups)
        source = self.source_of(X, y)
        if names.shape != (source.block.n_rows,):
            raise DataError(f"groups has shape {names.shape} but X has {source.block.n_rows} rows; name one per row")
        if source.block.y is None or source.block.y.ndim != 1 or source.block.y.dtype.kind != "f":
            raise DataError("y must hold one number per row, higher for what should come first")
        _, first, codes = np.unique(names, return_index=True, return_inverse=True)
        order = np.argsort(first[codes], kind="stable")  # groups in the order in which they appear
        return ArraySource(replace(source.block, group=names), order)

    def _names_of(self, groups: Any) -> Array:
        if groups is None:
            raise ParameterError(
                f"{type(self).__name__} ranks rows within groups, and groups is missing; name the group of each row, "
                "such as its query: fit(X, y, groups)"
            )
        return np.asarray(groups)

    def _training_rows(self, source: Source, seed: int) -> Source:
        return Pairs(store_rows(source), choice_of_pairs(self.pairs), seed)

    def settings_for(self, n_rows: int | None, chosen: str | None = None) -> LinearSettings:
        """The constructor's arguments, checked and resolved."""
        choice("loss", self.loss, ("log", "hinge", "squared_hinge"))
        return super().settings_for(n_rows, chosen)

    def new_learner(self, settings: LinearSettings, source: Source, classes: Any = None) -> LinearLearner:
        """An untrained learner for rows of this source."""
        return LinearLearner(settings, source.n_features or 0, [-1.0, 1.0])

    def _finish(self, learner: LinearLearner, history: History, executor: Any) -> None:
        if learner.rows_learned == 0:
            raise DataError("no group has two rows of different targets; nothing can be learned about their order")
        super()._finish(learner, history, executor)

    # ------------------------------------------------------------------------------------------------- prediction

    def decision_function(self, X: Any) -> Array:
        """Returns scores w·x, of which only the order within a group matters."""
        return self._scores_of(X)[:, 0]

    predict = decision_function

    def predict_stream(self, source: Source) -> Iterator[Array]:
        """Scores chunk by chunk."""
        for _, scores in self._stream_scores(source):
            yield scores[:, 0]

    def score(self, X: Any, y: Any, groups: Any = None, k: int | None = None) -> float:
        """NDCG (at k), averaged over the groups that have a relevant row."""
        names = self._names_of(groups)
        scores, y = self.predict(X), np.asarray(y, np.float64)
        _, codes = np.unique(names, return_inverse=True)
        found = [ndcg(y[codes == g], scores[codes == g], k) for g in range(codes.max(initial=-1) + 1)]
        return float(np.nanmean(found)) if not np.isnan(found).all() else math.nan

    def evaluate_stream(self, source: Source, k: int = 10) -> dict[str, Any]:
        """Computes rows, groups, pairwise loss, NDCG, NDCG at k and MAP over a source with targets and groups."""
        self._check_fitted()
        metrics = GroupRankingMetrics(k)
        per_row, generator = choice_of_pairs(self.pairs), np.random.default_rng(0)
        for group in groups_of(self.hashed(source, learn=False)):
            if group.y is None:
                raise DataError("the data holds no targets to evaluate on")
            scores = self._scores(group)[:, 0]
            better, worse = pairs_of(group.y, per_row, generator)
            losses = LOSSES[self.loss].value(scores[better] - scores[worse], np.ones(len(better)), 0.0)
            metrics.add(group.y, scores, np.asarray(losses))
        if metrics.rows == 0:
            raise DataError("the data holds no rows to evaluate on")
        return metrics.result()

    def objective(self, X: Any, y: Any, groups: Any = None) -> float:
        """Mean loss over all pairs of these rows plus alpha R(w): what training minimises."""
        self._check_fitted()
        names, y = self._names_of(groups), np.asarray(y, np.float64)
        scores, total, n_pairs = self.predict(X), 0.0, 0
        for name in np.unique(names):
            mine = names == name
            better, worse = pairs_of(y[mine], None, np.random.default_rng(0))
            margins = scores[mine][better] - scores[mine][worse]
            total += float(LOSSES[self.loss].value(margins, np.ones(len(margins)), 0.0).sum())
            n_pairs += len(margins)
        return total / max(1, n_pairs) + self.learner_.penalty()


def choice_of_pairs(pairs: int | str) -> int | None:
    """The parameter `pairs`, checked: pairs per row, or None for all."""
    if isinstance(pairs, str):
        choice("pairs", pairs, ("all",))
        return None
    return whole("pairs", pairs, 1)
