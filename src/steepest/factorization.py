"""Matrix factorization from raw ids to recommendations: the estimator.

What is learned and how stands in `learners.factors` (SGD), `learners.als` and `learners.factor_lbfgs`; this face codes
ids, keeps what users have seen, and answers in ids again. All ratings are held in memory while fitting, 12 bytes each.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Self

import numpy as np

from steepest.data.chunk import Array, DataError
from steepest.data.entries import Entries, from_matrix, gather, has_pairs, ratings_of, two_columns
from steepest.data.ids import IdBook, as_ids
from steepest.data.parameters import ParameterError, choice, whole
from steepest.data.ratings import RatingsChunk, as_ratings, from_frame, from_ratings
from steepest.data.source import Source, as_weights
from steepest.engine.factor_loop import FactorRun, train_factors
from steepest.engine.history import History
from steepest.engine.loop import Monitor
from steepest.engine.stopping import Plan
from steepest.estimator import Estimator
from steepest.learners.als import AlternatingRun, contributions, solve_rows
from steepest.learners.base import Progress
from steepest.learners.factor_lbfgs import BatchRun
from steepest.learners.factor_settings import CENTRED, KNOWN_SHARE, WHOLE, FactorSettings, resolve_settings
from steepest.learners.factors import BIAS, TAIL, WAIT, FactorLearner, SgdRun, csr_of, new_table, with_settings
from steepest.learners.strata import Strata
from steepest.metrics import RegressionMetrics
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

FOLD_EPOCHS = 30


class MatrixFactorization(Estimator):
    """Factors of users and items: score(u, i) = mean + b_u + b_i + p_u·q_i.

    Minimises, over the known entries (or all cells for `implicit` and `kl`), the sum of the losses plus
    ½ Σ ridge |p|² over the rows of both sides. Ratings are measured in units of their standard deviation, so that
    `alpha` and `eta0` need no tuning to their scale.

    Parameters
    ----------
    n_factors : int
        Numbers that describe each user and each item.
    loss : {"squared", "absolute", "logistic", "hinge", "bpr", "implicit", "kl"}
        `squared` and `absolute` fit ratings; `logistic` and `hinge` two kinds of entries (0 or -1, and 1); `bpr` ranks
        known pairs above others; `implicit` takes every missing cell for a weak zero; `kl` is for counts, non-negative.
    solver : {"sgd", "als", "lbfgs"}
        Losses over all cells cannot be sampled entry by entry: for `implicit` and `kl`, "sgd" means "als", and
        `solver_` says so.
    alpha : float or "auto"
        Strength of the 2-norm. "auto": 0.045 (0.11 by count, 0.1 by none); 0.01 for implicit, 0.01 for bpr, 0 for kl.
    l1 : float
        Strength of the 1-norm.
    weighting : {"mixed", "count", "none"}
        The ridge of a row with n entries: alpha (n + 100), alpha n, or alpha times the mean of n. For implicit: alpha
        times the row's confidence and cells, or alpha alone ("none").
    biases : bool
        Learn biases of users and items around the global mean; False leaves out both. Never with implicit, kl or
        nonnegative.
    nonnegative : bool
        Factors are not below zero.
    confidence : float or "auto"
        implicit: a known cell weighs 1 + confidence · value, the others 1. "auto": such that known cells add 6 % to the
        weight of all cells.
    step : {"adagrad", "bold"}
        A step for each row that falls with its slopes; or one for all, raised while the loss falls and halved when it
        rises.
    eta0 : float or "auto"
    epochs : int
    n_blocks : int or "auto"
        The matrix is learned in n_blocks x n_blocks blocks; part of the model, unlike `n_jobs`.
    early_stopping, patience, validation_fraction
        Hold out a share, stop after `patience` epochs without progress on it, and keep the best.
    clip : bool
        Keep predictions of squared and absolute loss inside the range of the ratings.
    n_jobs : int
        Threads; they never change the result.
    dtype : {"float32", "float16"}
        How factors are stored in files; float16 rounds them when training ends.
    random_state : int or None
    verbose : int

    Attributes
    ----------
    user_factors_, item_factors_ : arrays (rows by `user_ids_`, `item_ids_`)
    user_ids_, item_ids_ : arrays of ids
    user_biases_, item_biases_, mean_ : in the ratings' units
    solver_, alpha_, n_iter_, history_

    Examples
    --------
    >>> import steepest as st
    >>> pairs = [("ann", "tea"), ("ann", "rum"), ("bob", "tea"), ("bob", "gin"), ("eve", "rum"), ("eve", "gin")]
    >>> model = st.MatrixFactorization(4, random_state=0).fit(pairs, [5, 1, 4, 2, 1, 3])
    >>> model.recommend("eve", k=3)[0][0][0]
    'tea'
    """

    _kind = "regressor"

    n_factors: int
    loss: str
    solver: str
    alpha: float | str
    l1: float
    weighting: str
    biases: bool
    nonnegative: bool
    confidence: float | str
    step: str
    eta0: float | str
    epochs: int
    n_blocks: int | str
    early_stopping: bool
    patience: int
    validation_fraction: float
    clip: bool
    n_jobs: int | None
    dtype: str
    random_state: Any
    verbose: int
    _learner: FactorLearner
    _users: IdBook
    _items: IdBook
    _waiting: Entries | None
    _ready: FactorLearner | None
    _new: list[Entries]
    _seen_indptr: Array
    _seen_items: Array
    _seen_values: Array | None
    _seen_weights: Array | None
    history_: History
    recipe_: dict[str, Any]
    n_iter_: int
    n_blocks_: int

    def __init__(
        self,
        n_factors: int = 32,
        *,
        loss: str = "squared",
        solver: str = "sgd",
        alpha: float | str = "auto",
        l1: float = 0.0,
        weighting: str = "mixed",
        biases: bool = True,
        nonnegative: bool = False,
        confidence: float | str = "auto",
        step: str = "adagrad",
        eta0: float | str = "auto",
        epochs: int = 20,
        n_blocks: int | str = "auto",
        early_stopping: bool = False,
        patience: int = 2,
        validation_fraction: float = 0.1,
        clip: bool = True,
        n_jobs: int | None = 1,
        dtype: str = "float32",
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self._store(locals())

    # -------------------------------------------------------------------------------------------------- learning

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Learns from pairs X (two columns: user, item) with ratings y, or from a matrix, sparse or dense.

        Of a sparse matrix the stored cells are known, of a dense one all but NaN. A DataFrame with columns called user
        and item may bring its ratings along. A pair that stands twice counts twice; for `implicit` and `kl` its values
        are added up.
        """
        return self.fit_stream(self._source(X, y, sample_weight))

    def fit_stream(
        self, source: Source, validation: Source | None = None, *, monitor: Monitor | None = None, **unused: Any
    ) -> Self:
        """Learns from a source of ratings (`scan_ratings`), read once; `validation` is measured after every epoch."""
        if unused.get("checkpoint") is not None:
            raise ParameterError("matrix factorization keeps no checkpoints; leave checkpoint out")
        settings = self._settings()
        if validation is None and self.early_stopping:
            source, validation = source.holdout(float(self.validation_fraction), settings.seed)
        users, items = IdBook(), IdBook()
        entries = gather(source, users, items)
        if len(entries.users) == 0:
            raise DataError("the data holds no ratings; nothing can be learned from it")
        self._check_targets(entries.values)
        if not settings.confidence:
            cells = float(len(users)) * len(items)
            settings = replace(settings, confidence=KNOWN_SHARE * cells / max(float(entries.values.sum()), 1e-300))
        learner = FactorLearner(settings)
        values = self._targets(entries.values)
        learner.start(values, entries.weights)
        learner.grow(len(users), len(items))
        learner.count(entries.users, entries.items)
        run = self._run(learner, entries, learner.normalised(values))
        measure = None if validation is None else self._measure(validation, users, items)
        plan = Plan(epochs=whole("epochs", self.epochs, 1), patience=whole("patience", self.patience, 1),
                    early_stopping=bool(self.early_stopping))  # fmt: skip
        learner, history = train_factors(run, plan, measure, monitor or self._monitor())
        if settings.solver != self.solver:
            history.events.insert(0, f"loss {self.loss!r} counts every cell, so it was learned by {settings.solver}")
        self._adopt(learner, users, items, entries, history)
        self.recipe_ = source.recipe
        self.n_iter_ = len(history)
        return self

    def partial_fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """One more pass over new ratings, in the order given; users and items may be new.

        With SGD the passes of several calls are one long pass, whatever the cuts: the first 1,000 ratings wait until
        all are there, to fix mean and spread. With als the rows that are touched are solved anew, users first.
        """
        source = self._source(X, y, sample_weight)
        if not hasattr(self, "_learner"):
            if self._settings().solver != "sgd":
                return self.fit_stream(source)
            learner = FactorLearner(self._settings())
            self._adopt(learner, IdBook(), IdBook(), Entries.none(), History())
            self.recipe_, self.n_iter_ = source.recipe, 0
        self._own_arrays()
        entries = gather(source, self._users, self._items)
        if len(entries.users) == 0:
            return self
        self._check_targets(entries.values)
        if self._learner.settings.solver == "sgd":
            self._learn_online(entries)
        else:
            self._solve_anew(entries)
        self.n_iter_ += 1
        return self

    def _learn_online(self, new: Entries) -> None:
        learner = self._learner
        entries = Entries.joined(self._waiting, new) if self._waiting is not None else new
        if not learner.started and len(entries.users) < WAIT:
            self._waiting = entries
        else:
            values = self._targets(entries.values)
            if not learner.started:
                learner.start(values[:WAIT], None if entries.weights is None else entries.weights[:WAIT])
            learner.low, learner.high = min(learner.low, values.min()), max(learner.high, values.max())
            self._waiting = None
            self._learn_entries(learner, entries, values)
        self._remember(new)
        self._ready = None

    def _learn_entries(self, learner: FactorLearner, entries: Entries, values: Array) -> None:
        progress: Progress = learner.step(entries.users, entries.items, learner.normalised(values), entries.weights)
        self.history_.events += progress.events
        self._rounded(learner)

    def _solve_anew(self, new: Entries) -> None:
        learner = self._learner
        self._remember(new)
        if learner.settings.solver == "lbfgs":
            raise ParameterError("solver='lbfgs' learns in one batch only; use solver='sgd' or 'als' with partial_fit")
        learner.grow(len(self._users), len(self._items))
        learner.count(new.users, new.items)
        known = self._all_entries()
        run = AlternatingRun(learner, known.users, known.items, learner.normalised(known.values), known.weights,
                             _threads(self.n_jobs))  # fmt: skip
        if learner.settings.loss == "kl":
            run.epoch(0)
        else:
            run.solve("users", np.unique(new.users))
            run.solve("items", np.unique(new.items))
        self._rounded(learner)

    def _run(self, learner: FactorLearner, entries: Entries, values: Array) -> FactorRun:
        solver, threads = learner.settings.solver, _threads(self.n_jobs)
        if solver == "als":
            return AlternatingRun(learner, entries.users, entries.items, values, entries.weights, threads)
        if solver == "lbfgs":
            return BatchRun(learner, entries.users, entries.items, values, entries.weights)
        n_blocks = None if self.n_blocks == "auto" else whole("n_blocks", self.n_blocks, 1)
        run = SgdRun(learner, entries.users, entries.items, values, entries.weights, n_blocks, threads)
        self.n_blocks_ = run.strata.d
        return run

    def strata(self, X: Any, y: Any = None, sample_weight: Any = None) -> Strata:
        """The blocks and the schedule by which `fit` would learn these ratings; for executors of your own."""
        users, items = IdBook(), IdBook()
        entries = gather(self._source(X, y, sample_weight), users, items)
        learner = FactorLearner(self._settings())
        learner.start(self._targets(entries.values), entries.weights)
        learner.grow(len(users), len(items))
        learner.count(entries.users, entries.items)
        n_blocks = None if self.n_blocks == "auto" else whole("n_blocks", self.n_blocks, 1)
        values = learner.normalised(self._targets(entries.values))
        return SgdRun(learner, entries.users, entries.items, values, entries.weights, n_blocks, 1).strata

    # ---------------------------------------------------------------------------------------------------- settings

    def _settings(self) -> FactorSettings:
        return resolve_settings(self.get_params(deep=False), self._seed())

    def _seed(self) -> int:
        wish = self.random_state
        if wish is None:
            return int.from_bytes(os.urandom(4)) >> 1
        if isinstance(wish, int | np.integer) and wish >= 0:
            return int(wish) & 0x7FFFFFFFFFFF
        if isinstance(wish, np.random.RandomState):
            return int(wish.randint(0, 2**31 - 1))
        if isinstance(wish, np.random.Generator):
            return int(wish.integers(0, 2**31 - 1))
        raise ParameterError(f"random_state={wish!r} is not a seed; give an integer, a generator or None")

    def _monitor(self) -> Monitor | None:
        if not self.verbose:
            return None
        from steepest.engine.monitor import PrintMonitor

        return PrintMonitor()

    def _source(self, X: Any, y: Any = None, sample_weight: Any = None) -> Source:
        """Pairs or a matrix as a source of ratings."""
        if isinstance(X, Source):
            return X
        if hasattr(X, "columns") and has_pairs(X, y):
            wishes = dict.fromkeys(("user", "item", "rating", "weight", "time"))
            frame = from_frame(X, wishes, with_labels=y is None)
            if y is None and sample_weight is None:
                return frame
            chunk = frame.chunk
            return from_ratings(chunk.users, chunk.items, chunk.y if y is None else y, sample_weight)
        if y is None and self._is_matrix(X):
            if sample_weight is not None:
                raise ParameterError("sample_weight needs pairs; give X as (user, item) with ratings y")
            return from_matrix(X)
        users, items = two_columns(X)
        if y is not None:
            y = as_ratings(y, len(users))
        weight = None if sample_weight is None else as_weights(sample_weight, len(users))
        return from_ratings(users, items, y, weight)

    def _is_matrix(self, X: Any) -> bool:
        if hasattr(X, "tocoo"):
            return True
        if self.loss in ("bpr", "implicit", "kl"):  # pairs need no ratings there
            array = np.asarray(X)
            return array.ndim == 2 and array.shape[1] != 2
        return True

    def _targets(self, values: Array) -> Array:
        """Ratings as the loss wants them."""
        if self.loss in ("logistic", "hinge"):
            return np.where(values > 0, 1.0, -1.0)
        return values

    def _check_targets(self, values: Array) -> None:
        if self.loss in WHOLE and (values < 0).any():
            bad = float(values[values < 0][0])
            raise DataError(f"loss={self.loss!r} is for counts, but a value is {bad:g}; give values from 0 on")
        if self.loss == "kl" and not values.any():
            raise DataError("loss='kl' needs a value above 0, but all are 0")
        if self.nonnegative and self.loss == "squared" and (values < 0).any():
            bad = float(values[values < 0][0])
            raise DataError(f"nonnegative=True cannot reach a value of {bad:g}; shift the values, or leave it out")
        if self.loss in ("logistic", "hinge"):
            distinct = np.unique(values[:100_000])
            if len(distinct) > 2 or not set(distinct.tolist()) <= {-1.0, 0.0, 1.0}:
                raise DataError(f"loss={self.loss!r} needs ratings 0 and 1, or -1 and 1, but there is {distinct[-1]:g}")

    # ------------------------------------------------------------------------------------------------------- state

    def _adopt(self, learner: FactorLearner, users: IdBook, items: IdBook, entries: Entries, history: History) -> None:
        self._learner, self._users, self._items = learner, users, items
        self.history_ = history
        self._waiting = None
        self._ready = None
        self._new = []
        self._seen_indptr, self._seen_items = np.zeros(1, np.int64), np.zeros(0, np.int32)
        self._seen_values = None if learner.settings.solver == "sgd" else np.zeros(0, np.float32)
        self._seen_weights = None
        if len(entries.users):
            self._remember(entries)
        self._rounded(learner)

    def _rounded(self, learner: FactorLearner) -> None:
        if self.dtype == "float16":
            for table in (learner.users, learner.items):
                table[:, : learner.padded] = table[:, : learner.padded].astype(np.float16)

    def _own_arrays(self) -> None:
        """Arrays mapped from a file are copied before they change."""
        for name in ("users", "items"):
            table = getattr(self._learner, name)
            if not table.flags.writeable or table.ctypes.data % 4:
                room = new_table(len(table), self._learner.rank)
                room[:] = table
                setattr(self._learner, name, room)

    def _remember(self, entries: Entries) -> None:
        """What users have seen; put in order when it is next needed."""
        self._new.append(entries)

    def _settle_seen(self) -> None:
        if not self._new:
            return
        old = self._known_entries()
        entries = Entries.joined(old, *self._new)
        self._new = []
        self._seen_indptr, self._seen_items, order = csr_of(entries.users, entries.items, len(self._users))
        if self._seen_values is not None:
            self._seen_values = np.ascontiguousarray(entries.values[order], np.float32)
            self._seen_weights = None if entries.weights is None else entries.weights[order]

    def _known_entries(self) -> Entries:
        users = np.repeat(np.arange(len(self._seen_indptr) - 1, dtype=np.int32), np.diff(self._seen_indptr))
        values = np.ones(len(users)) if self._seen_values is None else self._seen_values.astype(np.float64)
        return Entries(users, self._seen_items, values, self._seen_weights)

    def _all_entries(self) -> Entries:
        self._settle_seen()
        return self._known_entries()

    def _model(self) -> FactorLearner:
        """The learner to answer with; ratings that wait are learned in a copy, as if no others were to come."""
        self._check_fitted()
        if self._waiting is None:
            return self._learner
        if self._ready is None:
            twin = self._learner.clone()
            values = self._targets(self._waiting.values)
            twin.start(values, self._waiting.weights)
            twin.step(self._waiting.users, self._waiting.items, twin.normalised(values), self._waiting.weights)
            self._ready = twin
        return self._ready

    @property
    def user_ids_(self) -> Array:
        """Ids of the users, in the order of `user_factors_`."""
        return np.asarray(self._part("_users").ids)

    @property
    def item_ids_(self) -> Array:
        """Ids of the items, in the order of `item_factors_`."""
        return np.asarray(self._part("_items").ids)

    @property
    def user_factors_(self) -> Array:
        """Factors of the users in the ratings' units: mean + biases + user_factors_ @ item_factors_.T is the score."""
        return self._factors("users")

    @property
    def item_factors_(self) -> Array:
        """Factors of the items."""
        return self._factors("items")

    @property
    def user_biases_(self) -> Array:
        """Biases of the users."""
        return self._biases("users")

    @property
    def item_biases_(self) -> Array:
        """Biases of the items."""
        return self._biases("items")

    @property
    def mean_(self) -> float:
        """The global mean (0 without biases)."""
        self._part("_learner")
        return float(self._model().mean)

    @property
    def solver_(self) -> str:
        """The solver that was used."""
        return str(self._part("_learner").settings.solver)

    @property
    def alpha_(self) -> float:
        """The strength of the penalty that was used."""
        return float(self._part("_learner").settings.alpha)

    def _part(self, name: str) -> Any:
        if name not in vars(self):
            raise AttributeError(f"this {type(self).__name__} is not fitted yet")
        return vars(self)[name]

    def _factors(self, side: str) -> Array:
        self._part("_learner")
        learner = self._model()
        scale = math.sqrt(learner.scale) if learner.settings.loss in CENTRED else 1.0
        return np.asarray(getattr(learner, side)[:, : learner.rank] * np.float32(scale))

    def _biases(self, side: str) -> Array:
        self._part("_learner")
        learner = self._model()
        scale = learner.scale if learner.settings.loss in CENTRED else 1.0
        return np.asarray(getattr(learner, side)[:, learner.padded + BIAS] * np.float32(scale))

    # -------------------------------------------------------------------------------------------------- prediction

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
        scores[known] = learner.scores(rows[known], columns[known], _threads(self.n_jobs))
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

    def _measure(self, validation: Source, users: IdBook, items: IdBook) -> Any:
        """Mean loss on held-out ratings; ids that training has not seen are left out."""
        entries = gather(validation, users.copy(), items.copy())
        n_users, n_items = len(users), len(items)
        known = (entries.users < n_users) & (entries.items < n_items)
        if not known.any():
            raise DataError("no held-out rating has a user and an item of the training data; hold out other ratings")
        rows, columns, values = entries.users[known], entries.items[known], self._targets(entries.values[known])

        def mean_loss(learner: FactorLearner) -> float:
            return float(learner.losses(learner.scores(rows, columns), values).mean())

        return mean_loss

    # ------------------------------------------------------------------------------------------------------ use

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
        best, scores = best_rows(queries, items, allowed, k, excluded, _threads(self.n_jobs))
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

    def id_of(self, text: str, side: str = "users") -> Any:
        """The id that a word stands for: a number if the model's ids are numbers."""
        self._check_fitted()
        return (self._users if choice("side", side, ("users", "items")) == "users" else self._items).id_of(text)

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
        best, scores = best_rows(rows[codes], rows, bias, k, own, _threads(self.n_jobs))
        return Recommendations(ids, best, scores.astype(np.float64), np.zeros(len(ids), bool), book)

    def fold_in(self, X: Any, y: Any = None, sample_weight: Any = None, *, side: str = "users") -> Self:
        """Takes in new users (or items) from their ratings of known items (or by known users), without retraining.

        Their rows are solved with the other side fixed: by least squares, or by short SGD where the loss asks for it.
        A row that is known already is solved anew from the ratings given.
        """
        self._check_fitted()
        choice("side", side, ("users", "items"))
        self._settle_waiting()
        self._own_arrays()
        learner = self._learner
        books = self._users.copy(), self._items.copy()
        entries = gather(self._source(X, y, sample_weight), *books)
        self._check_targets(entries.values)
        mine, other, own_book, other_book = (
            (entries.users, entries.items, books[0], self._items)
            if side == "users"
            else (entries.items, entries.users, books[1], self._users)
        )
        known = other < len(other_book)
        if not known.any():
            raise DataError(f"none of the ratings is {'of a known item' if side == 'users' else 'by a known user'}; "
                            "nothing can be folded in")  # fmt: skip
        entries = entries.only(known)
        mine, other = mine[known], other[known]
        if side == "users":
            self._users = own_book
        else:
            self._items = own_book
        learner.grow(len(self._users), len(self._items))
        learner.count(entries.users, entries.items)
        self._fold(entries, mine, other, side)
        self._remember(entries)
        self._rounded(learner)
        return self

    def _fold(self, entries: Entries, mine: Array, other: Array, side: str) -> None:
        learner = self._learner
        values = learner.normalised(self._targets(entries.values))
        loss = learner.settings.loss
        if loss in ("squared", "implicit"):
            rows = np.unique(mine)
            tables = (learner.users, learner.items) if side == "users" else (learner.items, learner.users)
            twin = with_settings(learner, solver="als")
            pairs = (entries.users, entries.items)
            run = AlternatingRun(twin, *pairs, values, entries.weights, _threads(self.n_jobs))
            by = run.by_user if side == "users" else run.by_item
            ridge = run.ridge(by, len(tables[1]))
            solve_rows(learner, tables[0], tables[1], by.only(rows), ridge[rows], rows, _threads(self.n_jobs))
            return
        fixed = learner.items if side == "users" else learner.users
        kept = fixed.copy()
        for _ in range(FOLD_EPOCHS):
            counts = learner.user_counts, learner.item_counts
            if loss == "kl":
                twin = with_settings(learner)
                pairs = (entries.users, entries.items)
                run = AlternatingRun(twin, *pairs, values, entries.weights, _threads(self.n_jobs))
                by, tables = (
                    (run.by_user, (twin.users, twin.items))
                    if side == "users"
                    else (run.by_item, (twin.items, twin.users))
                )
                run._kl_side(*tables, by, False)
                rows = np.unique(mine)
                (learner.users if side == "users" else learner.items)[rows] = tables[0][rows]
            else:
                learner.step(entries.users, entries.items, values, entries.weights)
                learner.user_counts, learner.item_counts = counts
            fixed[:] = kept

    def _settle_waiting(self) -> None:
        if self._waiting is not None:
            self._learner, self._waiting, self._ready = self._model(), None, None

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

    # ---------------------------------------------------------------------------------------------------- files

    def _file_parts(self) -> tuple[dict[str, Any], dict[str, Array]]:
        self._settle_seen()
        learner = self._learner
        params = {name: _plain(value) for name, value in self.get_params(deep=False).items()}
        params["random_state"] = self.random_state if isinstance(self.random_state, int) else None
        header: dict[str, Any] = {
            "params": params,
            "settings": learner.settings.as_dict(),
            "numbers": learner.numbers,
            "history": self.history_.as_dict(),
            "n_iter": self.n_iter_,
            "recipe": self.recipe_,
            "n_blocks": getattr(self, "n_blocks_", None),
        }
        arrays = {"user_counts": learner.user_counts, "item_counts": learner.item_counts,
                  "seen.indptr": self._seen_indptr, "seen.items": self._seen_items}  # fmt: skip
        for name, values in (("seen.values", self._seen_values), ("seen.weights", self._seen_weights)):
            if values is not None:
                arrays[name] = values
        for side, book, table in (("users", self._users, learner.users), ("items", self._items, learner.items)):
            header[side], parts = book.as_arrays()
            arrays |= {f"{side}.{name}": array for name, array in parts.items()}
            if self.dtype == "float16":
                arrays[f"{side}.factors"] = table[:, : learner.padded].astype(np.float16)
                arrays[f"{side}.tail"] = table[:, learner.padded :]
            else:
                arrays[f"{side}.table"] = table
        if self._waiting is not None:
            arrays |= {f"waiting.{name}": array for name, array in self._waiting.as_arrays().items()}
        return header, arrays

    @classmethod
    def _from_file_parts(cls, header: dict[str, Any], arrays: dict[str, Array]) -> Self:
        estimator = cls(**header["params"])
        learner = FactorLearner(FactorSettings(**header["settings"]))
        learner.restore_numbers(header["numbers"])
        books = {}
        for side in ("users", "items"):
            parts = {n.removeprefix(f"{side}."): a for n, a in arrays.items() if n.startswith(f"{side}.")}
            books[side] = IdBook.from_arrays(header[side], parts)
            table = parts["table"] if "table" in parts else np.concatenate(
                [parts["factors"].astype(np.float32), parts["tail"]], axis=1
            )  # fmt: skip
            if table.ndim != 2 or table.shape[1] != learner.padded + TAIL:
                raise ValueError(f"{side} have rows of another length")
            setattr(learner, side, table)
        learner.user_counts, learner.item_counts = arrays["user_counts"], arrays["item_counts"]
        estimator._adopt(learner, books["users"], books["items"], Entries.none(), History.from_dict(header["history"]))
        estimator._seen_indptr, estimator._seen_items = arrays["seen.indptr"], arrays["seen.items"]
        estimator._seen_values, estimator._seen_weights = arrays.get("seen.values"), arrays.get("seen.weights")
        waiting = {n.removeprefix("waiting."): a for n, a in arrays.items() if n.startswith("waiting.")}
        estimator._waiting = Entries.from_arrays(waiting) if waiting else None
        estimator.n_iter_, estimator.recipe_ = int(header["n_iter"]), header["recipe"]
        if header["n_blocks"] is not None:
            estimator.n_blocks_ = header["n_blocks"]
        return estimator


def _threads(n_jobs: int | None) -> int:
    if n_jobs is None:
        return 1
    return int(n_jobs) if n_jobs > 0 else os.cpu_count() or 1


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value
