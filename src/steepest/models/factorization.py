"""Matrix factorization from raw ids to recommendations: the estimator, and how it learns.

The mathematics is in `learners/factors`. All ratings are held in
memory while fitting, 12 bytes each.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any, Self

import numpy as np

from steepest.data.chunk import Array
from steepest.data.entries import Entries, from_matrix, gather, has_pairs, ratings_of, two_columns
from steepest.data.ids import IdBook, as_ids
from steepest.data.readers.ratings import RatingsChunk, as_ratings, from_frame, from_ratings
from steepest.data.source import Source
from steepest.engine.checkpoint import Checkpoints
from steepest.engine.history import History
from steepest.engine.loop import EntryEpochs, Monitor, train
from steepest.errors import DataError, ParameterError
from steepest.learners.factors.als import AlternatingRun, contributions, fold_rows
from steepest.learners.factors.factor_lbfgs import LbfgsRun
from steepest.learners.factors.factor_run import FactorRun
from steepest.learners.factors.factor_settings import (
    CENTRED,
    COUNTS,
    RANKS,
    SCALED,
    FactorSettings,
    auto_confidence,
    resolve_settings,
)
from steepest.learners.factors.factor_sgd import SgdRun
from steepest.learners.factors.factors import BIAS, TAIL, FactorLearner, csr_of, new_table
from steepest.learners.factors.strata import Strata
from steepest.metrics import RegressionMetrics
from steepest.models.base import Model, Run, from_plain
from steepest.models.options import EarlyStopping
from steepest.models.recommend import (
    Filter,
    Recommendations,
    allowed_bias,
    as_list,
    best_rows,
    check_known,
    measure_lists,
    seen_rows,
    unit_rows,
)
from steepest.parameters import choice, whole

LARGEST_SEED = 0x7FFFFFFFFFFF

# Of the values of a matrix: beyond these float32 overflows; losses that take them as they are divide by them, too.
SMALLEST_VALUE, LARGEST_VALUE = 1e-30, 1e30


class MatrixFactorization(Model):
    """Matrix factorization: learns vectors of users and items with score(u, i) = mean + b_u + b_i + p_u·q_i.

    Minimises the sum of the losses over the known entries (or over all cells for `implicit`, `kl` and `full`) plus
    ½ Σ ridge |p|² over the vectors of both sides. Ratings are divided by their standard deviation internally, so that
    `alpha` and `eta0` do not depend on their scale.

    Parameters
    ----------
    n_factors : int
        Length of the vector of each user and item.
    loss : {"squared", "absolute", "logistic", "hinge", "bpr", "implicit", "kl", "full"}
        Loss function. "squared" and "absolute" fit ratings; "logistic" and "hinge" fit binary entries (0 or -1, and 1);
        "bpr" ranks known pairs above others; "implicit" treats every missing cell as a weak zero; "kl" is for counts
        and non-negative factors; "full" is the squared loss over all cells of a sparse matrix, missing ones as 0.
    solver : {"sgd", "als", "lbfgs"}
        Algorithm: stochastic gradients, alternating least squares, or L-BFGS for small problems. For "implicit" and
        "kl", "sgd" means "als", and `solver_` shows it; for "full" it visits known cells and random zeros.
    alpha : float or "auto"
        Strength of the 2-norm. "auto" is 0.04 (0.11 with weighting="count", 0.1 with "none"); for implicit 0.002 (0.01
        with "count" or "none"); 0.01 for bpr and full, 0 for kl.
    l1 : float
        Strength of the 1-norm.
    weighting : {"mixed", "count", "none"}
        How the penalty of a row grows with its number n of entries: alpha (n + 100), alpha n, or alpha times the mean
        of n. For implicit, with c the confidence of a row's known cells and m its cells: alpha (20 c + m), alpha (c +
        m), or alpha.
    biases : bool
        Learn biases of users and items around the global mean. They are not used with implicit, kl, full or
        nonnegative.
    nonnegative : bool
        Keep factors at or above zero.
    confidence : float or "auto"
        Weight of known cells, with loss="implicit": 1 + confidence · value, where others weigh 1. "auto" lets known
        cells add 6 % to the weight of all cells.
    schedule : {"adagrad", "bold"}
        Step sizes: one per row that falls with its gradients ("adagrad"), or one for all, which rises while the loss
        falls and is halved when it rises ("bold").
    eta0 : float or "auto"
        First step size.
    epochs : int
        Passes over the entries.
    n_blocks : int or "auto"
        Number of blocks per side: the matrix is learned in n_blocks x n_blocks blocks. The result depends on it, unlike
        on `n_jobs`.
    early_stopping : bool or EarlyStopping
        Hold out a tenth of the entries, stop after two epochs without improvement on them, and keep the best model.
    clip : bool
        Clip predictions and recommendations of squared and absolute loss to the range of the ratings.
    parallel : {"strata", "hogwild"}
        How threads share the work of "sgd": blocks that share no row, with bit-identical results for any `n_jobs`, or
        all rows without locks, with results that differ from run to run.
    n_jobs : int
        Number of threads. Results do not depend on it, except under "hogwild".
    dtype : {"float32", "float16"}
        How factors are stored in files; "float16" rounds them when training ends.
    random_state : int or None
        Seed: the same number gives bit-identical results.
    verbose : int
        1 prints one line per epoch to stderr.

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

    kind = "regressor"
    task = "rate"

    n_factors: int
    alpha: float | str
    l1: float
    weighting: str
    biases: bool
    confidence: float | str
    eta0: float | str
    epochs: int
    n_blocks: int | str
    loss: str
    solver: str
    nonnegative: bool
    clip: bool
    dtype: str
    n_blocks_: int
    learner_: FactorLearner
    _users: IdBook
    _items: IdBook
    _ready: FactorLearner | None
    _new: list[Entries]  # that users have seen since their rows were last put in order
    _seen_indptr: Array
    _seen_items: Array
    _seen_values: Array | None
    _seen_weights: Array | None

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
        schedule: str = "adagrad",
        eta0: float | str = "auto",
        epochs: int = 20,
        n_blocks: int | str = "auto",
        early_stopping: bool | EarlyStopping = False,
        clip: bool = True,
        parallel: str = "strata",
        n_jobs: int = 1,
        dtype: str = "float32",
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self._store(locals())

    # ----------------------------------------------------------------------------------------------------- learning

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None, *, monitor: Monitor | None = None) -> Self:
        """Fits the model to pairs X (two columns: user, item) with ratings y, or to a matrix, sparse or dense.

        In a sparse matrix the stored cells are known, in a dense one all cells except NaN; rows and columns keep their
        positions in `user_factors_` and `item_factors_`, also empty ones. A DataFrame with columns called user and item
        may contain the ratings, too. A pair that occurs twice counts twice; for `implicit`, `kl` and `full` its values
        are added. A rating of weight 0 is ignored; with `als` and `lbfgs`, a rating of weight 2 equals two copies of
        it.
        """
        return self._fit(self.source_of(X, y, sample_weight), None, None if monitor is None else Run(monitor))

    def _fit(self, source: Source, validation: Source | None = None, run: Run | None = None) -> Self:
        """Gathers the entries in memory and runs the training loop over them."""
        settings, run, stopping = self.settings_for(None), run or Run(self.monitor()), self._early_stopping()
        if validation is None and stopping is not None:
            source, validation = source.holdout(stopping.fraction, settings.seed)
        users, items = IdBook(), IdBook()
        entries = gather(source, users, items)
        if len(entries.users) == 0:
            raise DataError("the data holds no ratings; nothing can be learned from it")
        self.check_targets(entries.values)
        if not settings.confidence:
            settings = replace(settings, confidence=auto_confidence(entries, len(users), len(items)))
        learner = FactorLearner(settings)
        coded = learner.prepare(entries, len(users), len(items))
        measure = None if validation is None else self._measure(validation, users, items)
        executor = EntryEpochs(self._run(learner, coded), measure)
        checkpoints = None if run.checkpoint is None else self._checkpoints(settings, entries, run)
        plan = run.plan(self.plan_epochs(), validation)
        learner, history = train(executor, plan, validation=validation, monitor=run.monitor, checkpoints=checkpoints)
        if settings.solver != self.solver:
            history.events.insert(0, f"loss {self.loss!r} counts every cell, so it was learned by {settings.solver}")
        self.adopt_factors(learner, users, items, entries, history)
        self.recipe_ = source.recipe
        self.n_iter_ = len(history)
        return self

    def _checkpoints(self, settings: FactorSettings, entries: Entries, run: Run) -> Checkpoints:
        if settings.solver == "lbfgs":
            raise ParameterError("solver='lbfgs' keeps no checkpoints; use solver='sgd' or 'als', or leave it out")
        checksum = 0
        for array in entries.as_arrays().values():
            checksum = zlib.crc32(np.ascontiguousarray(array).tobytes(), checksum)
        fingerprint = {"settings": settings.as_dict(), "entries": checksum, "n_blocks": self.n_blocks}
        assert run.checkpoint is not None
        restore = partial(FactorLearner.from_state, settings)
        return Checkpoints(run.checkpoint, restore, fingerprint, resume=run.resume, every=run.every)

    def partial_fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Continues training with one pass over new ratings, in the given order; users and items may be new.

        With SGD, several calls equal one call with all ratings; the first 1,000 ratings are stored until all are there,
        to determine mean and spread. With als, the vectors of these users and items are computed again, users first.
        """
        source = self.source_of(X, y, sample_weight)
        if not hasattr(self, "learner_"):
            if not self._learns_online(self.settings_for(None)):
                return self.fit_stream(source)
            learner = FactorLearner(self.settings_for(None))
            self.adopt_factors(learner, IdBook(), IdBook(), Entries.none(), History())
            self.recipe_, self.n_iter_ = source.recipe, 0
        self._own_arrays()
        known = self._users.ids, self._items.ids
        try:
            self._learn_entries(gather(source, self._users, self._items))
        except DataError:  # ids of rows that were not learned must not stay
            self._users, self._items = map(IdBook, known)
            raise
        return self

    def _learn_entries(self, entries: Entries) -> None:
        if len(entries.users) == 0:
            return
        self.check_targets(entries.values)
        if self._learns_online(self.learner_.settings):
            self.history_.events += self.learner_.step(entries).events
            self._rounded(self.learner_)
            self._new.append(entries)
            self._ready = None
        else:
            self._solve_anew(entries)
        self.n_iter_ += 1

    def _solve_anew(self, new: Entries) -> None:
        learner = self.learner_
        self._new.append(new)
        if learner.settings.solver == "lbfgs":
            raise ParameterError("solver='lbfgs' learns in one batch only; use solver='sgd' or 'als' with partial_fit")
        learner.grow(len(self._users), len(self._items))
        learner.count(new)
        run = AlternatingRun(learner, learner.code(self._all_entries()), self.n_threads)
        if learner.settings.loss == "kl":
            run.epoch(0)
        else:
            run.solve("users", np.unique(new.users))
            run.solve("items", np.unique(new.items))
        self._rounded(learner)

    def _run(self, learner: FactorLearner, coded: Entries) -> FactorRun:
        solver, n_threads = learner.settings.solver, self.n_threads
        if solver == "als":
            alternating = AlternatingRun(learner, coded, n_threads)
            alternating.start()
            return alternating
        if solver == "lbfgs":
            return LbfgsRun(learner, coded, n_threads)
        n_blocks = None if self.n_blocks == "auto" else whole("n_blocks", self.n_blocks, 1)
        run = SgdRun(learner, coded, n_threads, n_blocks)
        self.n_blocks_ = run.strata.d
        return run

    def strata(self, X: Any, y: Any = None, sample_weight: Any = None) -> Strata:
        """Returns the blocks and the schedule by which `fit` would learn these ratings, for your own executors."""
        users, items = IdBook(), IdBook()
        entries = gather(self.source_of(X, y, sample_weight), users, items)
        learner = FactorLearner(self.settings_for(None))
        n_blocks = None if self.n_blocks == "auto" else whole("n_blocks", self.n_blocks, 1)
        return SgdRun(learner, learner.prepare(entries, len(users), len(items)), 1, n_blocks).strata

    def settings_for(self, n_rows: int | None) -> FactorSettings:
        """The constructor's arguments, checked and resolved."""
        return resolve_settings(self.get_params(deep=False), self.seed() & LARGEST_SEED)

    def source_of(self, X: Any, y: Any = None, sample_weight: Any = None) -> Source:  # type: ignore[override]
        """Pairs or a matrix as a source of ratings."""
        if isinstance(X, Source):
            return X
        if hasattr(X, "columns") and has_pairs(X, y):
            roles = dict.fromkeys(("user", "item", "rating", "weight", "time"))
            frame = from_frame(X, roles, with_labels=y is None)
            if y is None and sample_weight is None:
                return frame
            chunk = frame.chunk
            return from_ratings(chunk.users, chunk.items, chunk.y if y is None else y, sample_weight)
        if y is None and self._is_matrix(X):
            if sample_weight is not None:
                raise ParameterError("sample_weight needs pairs; give X as (user, item) with ratings y")
            return from_matrix(X)
        return from_ratings(*two_columns(X), y, sample_weight)

    def _is_matrix(self, X: Any) -> bool:
        if hasattr(X, "tocoo"):
            return True
        if self.loss in ("bpr", "implicit", "kl"):  # pairs need no ratings there
            array = np.asarray(X)
            return array.ndim == 2 and array.shape[1] != 2
        return True

    def _measure(self, validation: Source, users: IdBook, items: IdBook) -> Any:
        """Mean loss on held-out ratings; ids that training has not seen are left out."""
        entries = gather(validation, users.copy(), items.copy())
        n_users, n_items = len(users), len(items)
        known = (entries.users < n_users) & (entries.items < n_items)
        if not known.any():
            raise DataError("no held-out rating has a user and an item of the training data; hold out other ratings")
        rows, columns, values = entries.users[known], entries.items[known], entries.values[known]

        def mean_loss(learner: FactorLearner) -> float:
            return float(learner.losses(learner.scores(rows, columns), values).mean())

        return mean_loss

    def fold_in(self, X: Any, y: Any = None, sample_weight: Any = None, *, side: str = "users") -> Self:
        """Adds new users (or items) from their ratings of known items (or by known users), without retraining.

        Their vectors are computed with the other side fixed: by least squares, or by a short SGD for losses that need
        it. The vector of a user or item that is already known is computed again from these ratings.
        """
        self._check_fitted()
        choice("side", side, ("users", "items"))
        self._learn_waiting()
        self._own_arrays()
        learner = self.learner_
        books = self._users.copy(), self._items.copy()
        entries = gather(self.source_of(X, y, sample_weight), *books)
        self.check_targets(entries.values)
        other, own_book, other_book = (
            (entries.items, books[0], self._items) if side == "users" else (entries.users, books[1], self._users)
        )
        known = other < len(other_book)
        if not known.any():
            raise DataError(f"none of the ratings is {'of a known item' if side == 'users' else 'by a known user'}; "
                            "nothing can be folded in")  # fmt: skip
        entries = entries.only(known)
        if side == "users":
            self._users = own_book
        else:
            self._items = own_book
        learner.grow(len(self._users), len(self._items))
        learner.count(entries)
        fold_rows(learner, learner.code(entries), side, self.n_threads)
        self._new.append(entries)
        self._rounded(learner)
        return self

    # --------------------------------------------------------------------------------------------- what was learned

    def adopt_factors(
        self, learner: FactorLearner, users: IdBook, items: IdBook, entries: Entries, history: History
    ) -> None:
        """Makes a trained learner the fitted state, with the ids of its rows and the entries users have seen.

        The learner comes last: a model whose fit was interrupted here is not fitted, rather than half of it.
        """
        vars(self).pop("learner_", None)
        self._rounded(learner)
        self._refuse_overflow(learner)
        self._users, self._items = users, items
        self.history_ = history
        self._ready = None
        self._new = []
        self._seen_indptr, self._seen_items = np.zeros(1, np.int64), np.zeros(0, np.int32)
        self._seen_values = None if self._learns_online(learner.settings) else np.zeros(0, np.float32)
        self._seen_weights = None
        if len(entries.users):
            self._new.append(entries)
        self.recipe_, self.n_iter_ = {}, len(history)
        self.learner_ = learner

    def _learns_online(self, settings: FactorSettings) -> bool:
        """Whether `partial_fit` learns entry by entry, so that old values need not be kept."""
        return settings.solver == "sgd" and settings.loss != "full"

    def _rounded(self, learner: FactorLearner) -> None:
        if self.dtype == "float16":
            with np.errstate(over="ignore"):  # what does not fit is refused with all that is not finite
                for table in (learner.users, learner.items):
                    table[:, : learner.padded] = table[:, : learner.padded].astype(np.float16)

    def _own_arrays(self) -> None:
        """Copies arrays that are mapped from a file, before they change."""
        for name in ("users", "items"):
            table = getattr(self.learner_, name)
            if not table.flags.writeable or table.ctypes.data % 4:
                room = new_table(len(table), self.learner_.rank)
                room[:] = table
                setattr(self.learner_, name, room)

    def _order_seen(self) -> None:
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
        self._order_seen()
        return self._known_entries()

    def _model(self) -> FactorLearner:
        """The learner for predictions, with the waiting ratings learned."""
        self._check_fitted()
        if self.learner_.waiting is None:
            return self.learner_
        if self._ready is None:
            self._ready = self.learner_.clone()
            self._ready.finish()
        return self._ready

    def _learn_waiting(self) -> None:
        self.learner_.finish()
        self._ready = None

    def check_targets(self, values: Array) -> None:
        """Raises for ratings that the loss cannot learn."""
        largest = float(np.abs(values).max(initial=0.0))
        if largest > LARGEST_VALUE or (self.loss not in CENTRED and 0 < largest < SMALLEST_VALUE):
            raise DataError(f"the largest value to learn is {largest:g}, where float32 fails; scale the values")
        if self.loss in COUNTS and (values < 0).any():
            bad = float(values[values < 0][0])
            raise DataError(f"loss={self.loss!r} is for counts, but a value is {bad:g}; give values from 0 on")
        if self.loss == "kl" and not values.any():
            raise DataError("loss='kl' needs a value above 0, but all are 0")
        if self.nonnegative and self.loss in ("squared", "full") and (values < 0).any():
            bad = float(values[values < 0][0])
            raise DataError(f"nonnegative=True cannot reach a value of {bad:g}; shift the values, or leave it out")
        if self.loss in ("logistic", "hinge"):
            distinct = np.unique(values[:100_000])
            if len(distinct) > 2 or not set(distinct.tolist()) <= {-1.0, 0.0, 1.0}:
                raise DataError(f"loss={self.loss!r} needs ratings 0 and 1, or -1 and 1, but there is {distinct[-1]:g}")

    @property
    def user_ids_(self) -> Array:
        """Ids of the users, in the order of `user_factors_`."""
        self._check_learner()
        return np.asarray(self._users.ids)

    @property
    def item_ids_(self) -> Array:
        """Ids of the items, in the order of `item_factors_`."""
        self._check_learner()
        return np.asarray(self._items.ids)

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
        self._check_learner()
        return float(self._model().mean)

    @property
    def solver_(self) -> str:
        """The solver that was used."""
        self._check_learner()
        return self.learner_.settings.solver

    @property
    def alpha_(self) -> float:
        """The strength of the penalty that was used."""
        self._check_learner()
        return float(self.learner_.settings.alpha)

    def _factors(self, side: str) -> Array:
        self._check_learner()
        learner = self._model()
        scale = math.sqrt(learner.scale) if learner.settings.loss in SCALED else 1.0
        return np.asarray(getattr(learner, side)[:, : learner.rank] * np.float32(scale))

    def _biases(self, side: str) -> Array:
        self._check_learner()
        learner = self._model()
        scale = learner.scale if learner.settings.loss in SCALED else 1.0
        return np.asarray(getattr(learner, side)[:, learner.padded + BIAS] * np.float32(scale))

    def id_of(self, text: str, side: str = "users") -> Any:
        """The id for a word of the command line: a number if the model's ids are numbers."""
        self._check_fitted()
        return (self._users if choice("side", side, ("users", "items")) == "users" else self._items).id_of(text)

    # ---------------------------------------------------------------------------------------------------- questions

    def predict(self, X: Any, *, return_cold: bool = False) -> Any:
        """Returns the predicted rating of each pair of X; for the logistic loss, the probability of 1.

        The factors and the bias of an unknown user or item are zero, so that the mean and the other bias remain.
        `return_cold=True` also returns an array that is True for such pairs.
        """
        self._check_fitted()
        users, items = two_columns(X) if not isinstance(X, RatingsChunk) else (X.users, X.items)
        scores, cold = self._pair_scores(as_ids(users, "user"), as_ids(items, "item"))
        predictions = self._link(scores)
        return (predictions, cold) if return_cold else predictions

    def decision_function(self, X: Any) -> Array:
        """Raw scores of pairs."""
        self._check_fitted()
        users, items = two_columns(X)
        return self._pair_scores(as_ids(users, "user"), as_ids(items, "item"))[0]

    def _link(self, scores: Array) -> Array:
        learner = self._model()
        if learner.settings.loss == "logistic":
            return np.asarray(1 / (1 + np.exp(-np.clip(scores, -500, 500))))
        if self.clip and learner.settings.loss in CENTRED:
            return np.clip(scores, learner.low, learner.high)
        return scores

    def _pair_scores(self, users: Array, items: Array) -> tuple[Array, Array]:
        learner = self._model()
        rows, columns = self._users.codes(users), self._items.codes(items)
        known = _seen(rows, learner.user_counts) & _seen(columns, learner.item_counts)
        scores = np.full(len(rows), learner.in_units(np.array([learner.offset]))[0])
        scores[known] = learner.scores(rows[known], columns[known], self.n_threads)
        for table, codes in ((learner.users, rows), (learner.items, columns)):
            half = ~known & (codes >= 0) & (codes < len(table))
            bias = table[np.where(half, codes, 0), learner.padded + BIAS] if len(table) else np.zeros(len(codes))
            scale = learner.scale if learner.settings.loss in SCALED else 1.0
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

    def evaluate_stream(self, source: Source, k: int = 10) -> dict[str, Any]:
        """Computes rows, loss, rmse, mae and r2 on a source of ratings, and the number of cold pairs.

        For `bpr` and `implicit`, which rank items, these are precision, recall, NDCG and MAP at k, and AUC of the
        source's pairs among all items, averaged over the users known from training. Items that the user had in training
        are left out, unless they are in the source as well. The loss is that of each pair: for `bpr` against a random
        item, for `implicit` ½ (1 - score)².
        """
        self._check_fitted()
        if self._model().settings.loss in RANKS:
            return self._evaluate_lists(source, whole("k", k, 1))
        metrics, cold_rows = RegressionMetrics(), 0
        for part in source:
            chunk = ratings_of(part).packed()
            true = np.ones(chunk.n_rows) if chunk.y is None else np.asarray(chunk.y, np.float64)
            predicted, cold = self.predict(chunk, return_cold=True)
            scores, _ = self._pair_scores(chunk.users, chunk.items)
            weight = np.ones(chunk.n_rows) if chunk.weight is None else chunk.weight
            metrics.add(true, predicted, self._model().losses(scores, true), weight)
            cold_rows += int(cold.sum())
        if metrics.rows == 0:
            raise DataError("the data holds no ratings; there is nothing to measure")
        return {**metrics.result(), "cold": cold_rows}

    def _evaluate_lists(self, source: Source, k: int) -> dict[str, Any]:
        learner = self._model()
        pairs = gather(source, self._users.copy(), self._items.copy())
        if not len(pairs.users):
            raise DataError("the data holds no pairs; there is nothing to measure")
        known = _seen(pairs.users, learner.user_counts) & _seen(pairs.items, learner.item_counts)
        self._order_seen()
        trained = self._seen_indptr, self._seen_items
        measured = measure_lists(learner, pairs.only(known), trained, k, self.n_threads)
        return {"rows": len(pairs.users), **measured, "cold": int((~known).sum())}

    def recommend(
        self, users: Any, k: int = 10, *, exclude_seen: bool = True, filter: Filter = None
    ) -> Recommendations:
        """Returns the k best items for each user (one id, or a list of them), best first.

        Scores of squared and absolute loss are clipped to the range of the ratings if `clip` is on; their order is that
        of the raw scores. `filter` allows only some items: a collection of ids, a function of an id, or a mask over
        `item_ids_`. Lists are shorter than k if there are not enough items. Unknown users get the most popular items
        and are marked in `cold`.
        """
        learner, k = self._model(), whole("k", k, 1)
        ids = as_list(users, "user")
        codes = self._users.codes(ids)
        codes = np.where(_seen(codes, learner.user_counts), codes, -1)
        cold = codes < 0
        padded = learner.padded
        bias = np.ascontiguousarray(learner.items[:, padded + BIAS])
        queries = np.zeros((len(ids), padded), np.float32)
        queries[~cold] = learner.users[codes[~cold], :padded]
        items = np.ascontiguousarray(learner.items[:, :padded])
        excluded = None
        if exclude_seen:
            self._order_seen()
            excluded = seen_rows(self._seen_indptr, self._seen_items, codes)
        allowed = allowed_bias(bias, self._items, filter)
        best, scores = best_rows(queries, items, allowed, k, excluded, self.n_threads)
        if cold.any():
            best[cold], scores[cold] = self._popular(learner, best.shape[1], filter)
        raw = scores.astype(np.float64)
        raw[~cold] = self._ranked_scores(learner, scores[~cold], learner.users[codes[~cold], padded + BIAS])
        if self.clip and learner.settings.loss in CENTRED:  # without biases, scores of cold users are counts
            rated = ~cold | learner.settings.biases
            raw[rated] = np.clip(raw[rated], learner.low, learner.high)
        return Recommendations(ids, best, np.where(best >= 0, raw, -np.inf), cold, self._items)

    def _ranked_scores(self, learner: FactorLearner, scores: Array, user_bias: Array) -> Array:
        return learner.in_units(scores + user_bias[:, None] + np.float32(learner.offset))

    def _popular(self, learner: FactorLearner, k: int, filter: Filter) -> tuple[Array, Array]:
        """(codes, scores) of the most popular items: by bias, or else by how often they were seen."""
        counts = learner.item_counts.astype(np.float32)
        worth = self._biases("items") + np.float32(self.mean_) if learner.settings.biases else counts
        worth = allowed_bias(np.asarray(worth, np.float32), self._items, filter)
        order = np.lexsort((np.arange(len(worth)), -worth))[:k]
        return np.where(np.isneginf(worth[order]), -1, order).astype(np.int32), worth[order]

    def similar_items(self, items: Any, k: int = 10, *, filter: Filter = None) -> Recommendations:
        """Returns the k items whose factors have the largest cosine with the item's, with the cosines."""
        learner = self._model()
        return self._similar(items, self._items, learner.items, k, filter, "item")

    def similar_users(self, users: Any, k: int = 10, *, filter: Filter = None) -> Recommendations:
        """Returns the k users whose factors have the largest cosine with the user's, with the cosines."""
        learner = self._model()
        return self._similar(users, self._users, learner.users, k, filter, "user")

    def _similar(self, asked: Any, book: IdBook, table: Array, k: int, filter: Filter, what: str) -> Recommendations:
        k = whole("k", k, 1)
        ids = as_list(asked, what)
        codes = book.codes(ids)
        check_known(codes, ids, what)
        rows = unit_rows(np.ascontiguousarray(table[:, : self.learner_.padded]))
        own = np.arange(len(ids) + 1, dtype=np.int64), codes
        bias = allowed_bias(np.zeros(len(rows), np.float32), book, filter)
        best, scores = best_rows(rows[codes], rows, bias, k, own, self.n_threads)
        return Recommendations(ids, best, scores.astype(np.float64), np.zeros(len(ids), bool), book)

    def explain(self, user: Any, item: Any, k: int = 10) -> list[tuple[Any, float]]:
        """Returns what each item that the user has rated adds to the score of an item, largest first (with "als").

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
        self._order_seen()
        cut = slice(int(self._seen_indptr[u[0]]), int(self._seen_indptr[u[0] + 1]))
        seen = self._seen_items[cut]
        assert self._seen_values is not None
        weights = None if self._seen_weights is None else self._seen_weights[cut]
        shares = contributions(learner, int(u[0]), int(i[0]), seen, self._seen_values[cut], weights)
        order = np.argsort(-np.abs(shares), kind="stable")[: whole("k", k, 1)]
        return list(zip(self._items.ids[seen[order]].tolist(), shares[order].tolist(), strict=True))

    # -------------------------------------------------------------------------------------------------------- files

    def _file_parts(self) -> tuple[dict[str, Any], dict[str, Array]]:
        self._order_seen()
        learner = self.learner_
        header = {**self._file_header(), "n_blocks": getattr(self, "n_blocks_", None)}
        arrays = {
            "user_counts": learner.user_counts,
            "item_counts": learner.item_counts,
            "numbers": np.array(learner.numbers),
            "seen.indptr": self._seen_indptr,
            "seen.items": self._seen_items,
        }
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
        if learner.waiting is not None:
            arrays |= {f"waiting.{name}": array for name, array in learner.waiting.as_arrays().items()}
        return header, arrays

    @classmethod
    def from_file_parts(cls, header: dict[str, Any], arrays: dict[str, Array]) -> Self:
        """Builds a fitted model from the header and the arrays of a model file."""
        estimator = cls(**{name: from_plain(value) for name, value in header["params"].items()})
        settings = FactorSettings.from_dict(header["settings"])
        FactorLearner.check_file(settings, arrays)
        arrays = {name: np.array(array) for name, array in arrays.items()}  # from now on the file may change
        learner = FactorLearner(settings)
        learner.restore_numbers(arrays["numbers"].tolist())
        books = {}
        for side in ("users", "items"):
            parts = {n.removeprefix(f"{side}."): a for n, a in arrays.items() if n.startswith(f"{side}.")}
            books[side] = IdBook.from_arrays(header[side], parts)
            table = parts["table"] if "table" in parts else np.concatenate(
                [parts["factors"].astype(np.float32), parts["tail"]], axis=1
            )  # fmt: skip
            if table.ndim != 2 or table.shape[1] != learner.padded + TAIL or len(table) > len(books[side]):
                raise ValueError(f"{side} have rows of another length")
            if table.dtype != np.float32:
                raise ValueError(f"{side} are of type {table.dtype}")
            setattr(learner, side, table)
        FactorLearner.check_seen(arrays, len(books["users"]), len(books["items"]))
        learner.user_counts, learner.item_counts = arrays["user_counts"], arrays["item_counts"]
        history = History.from_dict(header["history"])
        estimator.adopt_factors(learner, books["users"], books["items"], Entries.none(), history)
        estimator._seen_indptr, estimator._seen_items = arrays["seen.indptr"], arrays["seen.items"]
        estimator._seen_values, estimator._seen_weights = arrays.get("seen.values"), arrays.get("seen.weights")
        waiting = {n.removeprefix("waiting."): a for n, a in arrays.items() if n.startswith("waiting.")}
        learner.waiting = Entries.from_arrays(waiting) if waiting else None
        estimator.n_iter_, estimator.recipe_ = int(header["n_iter"]), header["recipe"]
        if header["n_blocks"] is not None:
            estimator.n_blocks_ = header["n_blocks"]
        return estimator


def _seen(codes: Array, counts: Array) -> Array:
    """Whether training had entries of these rows."""
    inside = (codes >= 0) & (codes < len(counts))
    return inside & (np.append(counts, 0)[np.where(inside, codes, -1)] > 0)
