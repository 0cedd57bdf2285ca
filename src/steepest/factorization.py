"""Matrix factorization from raw ids to recommendations: the estimator, and how it learns.

The mathematics stands in `learners.factor_sgd`, `learners.als` and `learners.factor_lbfgs`. All ratings are held in
memory while fitting, 12 bytes each.
"""

from __future__ import annotations

import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import numpy as np

from steepest.data.chunk import Array, DataError
from steepest.data.entries import Entries, from_matrix, gather, has_pairs, two_columns
from steepest.data.ids import IdBook
from steepest.data.parameters import ParameterError, choice, whole
from steepest.data.ratings import as_ratings, from_frame, from_ratings
from steepest.data.source import Source, as_weights
from steepest.engine.checkpoint import Checkpoints
from steepest.engine.factor_loop import FactorRun, train_factors
from steepest.engine.history import History
from steepest.engine.loop import Monitor
from steepest.engine.stopping import Plan
from steepest.learners.als import AlternatingRun
from steepest.learners.base import Progress
from steepest.learners.factor_lbfgs import BatchRun
from steepest.learners.factor_settings import KNOWN_SHARE, FactorSettings, resolve_settings
from steepest.learners.factor_sgd import SgdRun
from steepest.learners.factors import WAIT, FactorLearner
from steepest.learners.fold_in import fold_rows
from steepest.learners.strata import Strata
from steepest.model import threads
from steepest.recommender import Recommender

LARGEST_SEED = 0x7FFFFFFFFFFF


class MatrixFactorization(Recommender):
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
        Strength of the 2-norm. "auto": 0.04 (0.11 by count, 0.1 by none); for implicit 0.002 (0.01 by count or
        none); 0.01 for bpr, 0 for kl.
    l1 : float
        Strength of the 1-norm.
    weighting : {"mixed", "count", "none"}
        The ridge of a row with n entries: alpha (n + 100), alpha n, or alpha times the mean of n. For implicit, with c
        the confidence of a row's known cells and m its cells: alpha (20 c + m), alpha (c + m), or alpha.
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

    n_factors: int
    alpha: float | str
    l1: float
    weighting: str
    biases: bool
    confidence: float | str
    step: str
    eta0: float | str
    epochs: int
    n_blocks: int | str
    early_stopping: bool
    patience: int
    validation_fraction: float
    verbose: int

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

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Learns from pairs X (two columns: user, item) with ratings y, or from a matrix, sparse or dense.

        Of a sparse matrix the stored cells are known, of a dense one all but NaN. A DataFrame with columns called user
        and item may bring its ratings along. A pair that stands twice counts twice; for `implicit` and `kl` its values
        are added up.
        """
        return self.fit_stream(self._source(X, y, sample_weight))

    def fit_stream(
        self,
        source: Source,
        validation: Source | None = None,
        *,
        monitor: Monitor | None = None,
        checkpoint: str | Path | None = None,
        resume: bool = False,
    ) -> Self:
        """Learns from a source of ratings (`scan_ratings`), read once; `validation` is measured after every epoch.

        `checkpoint` names a folder in which the state is saved between epochs, at most once a minute (not by "lbfgs");
        `resume=True` goes on from there, to the same bits as if nothing had happened.
        """
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
        learner, values = self._new_learner(settings, entries, len(users), len(items))
        run = self._run(learner, entries, values)
        measure = None if validation is None else self._measure(validation, users, items)
        plan = Plan(epochs=whole("epochs", self.epochs, 1), patience=whole("patience", self.patience, 1),
                    early_stopping=bool(self.early_stopping))  # fmt: skip
        saved = None if checkpoint is None else self._checkpoints(settings, entries, checkpoint, resume)
        learner, history = train_factors(run, plan, measure, monitor or self._monitor(), saved)
        if settings.solver != self.solver:
            history.events.insert(0, f"loss {self.loss!r} counts every cell, so it was learned by {settings.solver}")
        self._adopt(learner, users, items, entries, history)
        self.recipe_ = source.recipe
        self.n_iter_ = len(history)
        return self

    def _new_learner(
        self, settings: FactorSettings, entries: Entries, n_users: int, n_items: int
    ) -> tuple[FactorLearner, Array]:
        """A learner for these entries, and their targets in its units."""
        learner, values = FactorLearner(settings), self._targets(entries.values)
        learner.start(values, entries.weights)
        learner.grow(n_users, n_items)
        learner.count(entries.users, entries.items)
        return learner, learner.normalised(values)

    def _checkpoints(self, settings: FactorSettings, entries: Entries, folder: str | Path, resume: bool) -> Checkpoints:
        if settings.solver == "lbfgs":
            raise ParameterError("solver='lbfgs' keeps no checkpoints; use solver='sgd' or 'als', or leave it out")
        checksum = 0
        for array in entries.as_arrays().values():
            checksum = zlib.crc32(np.ascontiguousarray(array).tobytes(), checksum)
        fingerprint = {"settings": settings.as_dict(), "entries": checksum, "n_blocks": self.n_blocks}
        return Checkpoints(folder, lambda state: FactorLearner.from_state(settings, state), fingerprint, resume=resume)

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
                             threads(self.n_jobs))  # fmt: skip
        if learner.settings.loss == "kl":
            run.epoch(0)
        else:
            run.solve("users", np.unique(new.users))
            run.solve("items", np.unique(new.items))
        self._rounded(learner)

    def _run(self, learner: FactorLearner, entries: Entries, values: Array) -> FactorRun:
        solver, n_threads = learner.settings.solver, threads(self.n_jobs)
        if solver == "als":
            alternating = AlternatingRun(learner, entries.users, entries.items, values, entries.weights, n_threads)
            alternating.start()
            return alternating
        if solver == "lbfgs":
            return BatchRun(learner, entries.users, entries.items, values, entries.weights)
        n_blocks = None if self.n_blocks == "auto" else whole("n_blocks", self.n_blocks, 1)
        run = SgdRun(learner, entries.users, entries.items, values, entries.weights, n_blocks, n_threads)
        self.n_blocks_ = run.strata.d
        return run

    def strata(self, X: Any, y: Any = None, sample_weight: Any = None) -> Strata:
        """The blocks and the schedule by which `fit` would learn these ratings; for executors of your own."""
        users, items = IdBook(), IdBook()
        entries = gather(self._source(X, y, sample_weight), users, items)
        learner, values = self._new_learner(self._settings(), entries, len(users), len(items))
        n_blocks = None if self.n_blocks == "auto" else whole("n_blocks", self.n_blocks, 1)
        return SgdRun(learner, entries.users, entries.items, values, entries.weights, n_blocks, 1).strata

    def _settings(self) -> FactorSettings:
        return resolve_settings(self.get_params(deep=False), self._seed() & LARGEST_SEED)

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
        learner.count(entries.users, entries.items)
        values = learner.normalised(self._targets(entries.values))
        fold_rows(learner, entries.users, entries.items, values, entries.weights, side, threads(self.n_jobs))
        self._remember(entries)
        self._rounded(learner)
        return self
