"""What all models share that learn targets from a stream: sources in, a learner, the training loop, predictions, files.

A kind of model says which learner it is (`_settings`, `_new_learner`, `_restore`); all else is the same for all.
`fit(X, y)` is exactly `fit_stream(from_arrays(X, y))`; with a hasher, X may be raw, and its features keep their names.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

from steepest.data.cache import CachedSource
from steepest.data.chunk import Array, Chunk, DataError
from steepest.data.kept import keep_rows
from steepest.data.parameters import at_least, choice, whole
from steepest.data.source import SHUFFLES, ArraySource, Derived, Source, from_arrays
from steepest.engine.checkpoint import Checkpoints
from steepest.engine.history import History
from steepest.engine.loop import Monitor, train
from steepest.engine.stopping import Plan
from steepest.learners.base import State, join_words, split_words, weights_as_pairs, weights_from_pairs
from steepest.model import StreamModel, threads


class SupervisedModel(StreamModel):
    """A learner, and all that is done around it."""

    _task: ClassVar[str]

    epochs: int
    tol: float | None
    early_stopping: bool | str
    schedule: str
    shuffle: str
    validation_fraction: float
    patience: int

    # -------------------------------------------------------------------------------------------------- learning

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Learns from arrays: X of shape (n, d), sparse or dense, targets y, and optional weights of the rows.

        With a hasher, X may be raw: texts, dicts, a DataFrame or an Arrow table.
        """
        vars(self).pop("hasher_", None)
        self._plan_for_arrays(X, y)
        source = self._source(X, y, sample_weight)
        return self._fit(source)

    def fit_stream(
        self,
        source: Source,
        validation: Source | None = None,
        *,
        monitor: Monitor | None = None,
        checkpoint: str | Path | None = None,
        resume: bool = False,
    ) -> Self:
        """Learns from a source of chunks, `epochs` times over it.

        `validation` is measured after every epoch. `checkpoint` names a folder in which the state is saved now and
        then; `resume=True` goes on from there, to the same bits as if nothing had happened.
        """
        vars(self).pop("hasher_", None)
        self._plan_for_stream(source)
        return self._fit(source, validation, monitor, checkpoint, resume)

    def _fit(
        self,
        source: Source,
        validation: Source | None = None,
        monitor: Monitor | None = None,
        checkpoint: str | Path | None = None,
        resume: bool = False,
    ) -> Self:
        settings = self._settings(source.n_rows)
        seed = self._seed()
        if validation is None and self.early_stopping:
            source, validation = source.holdout(self.validation_fraction, seed)
        source = self._hashed(source, learn=True)
        validation = None if validation is None else self._hashed(validation, learn=False)
        source = source.shuffle(choice("shuffle", self.shuffle, SHUFFLES), seed)
        if self._n_epochs() > 1:
            source = keep_rows(source)
            validation = None if validation is None else keep_rows(validation)
        learner = self._new_learner(settings, source)
        plan = Plan(
            epochs=self._n_epochs(),
            tol=None if self.tol is None else at_least("tol", self.tol, 0.0),
            patience=whole("patience", self.patience, 1),
            early_stopping=bool(self.early_stopping),
            lower_step_on_stall=self.schedule == "adaptive",
        )
        checkpoints = None
        if checkpoint is not None:
            fingerprint = {"settings": learner.settings.as_dict(), "seed": seed, "data": source.fingerprint()}

            def restore(state: State) -> Any:
                return self._restore(learner.settings, state)

            checkpoints = Checkpoints(checkpoint, restore, fingerprint, source=source, resume=resume)
        learner, history = train(
            learner, source, plan, validation=validation, monitor=monitor or self._monitor(), checkpoints=checkpoints
        )
        self._check_learned(learner)
        self._adopt(learner, history, source)
        return self

    def _plan_for_arrays(self, X: Any, y: Any, classes: Any = None, *, more_to_come: bool = False) -> None:
        """What must be known of rows in memory before they are hashed."""

    def _plan_for_stream(self, source: Source) -> None:
        """The same of rows that are still in their files."""

    def _n_epochs(self) -> int:
        return whole("epochs", self.epochs, 1)

    def _check_learned(self, learner: Any) -> None:
        if learner.rows_learned == 0:
            raise DataError("the data holds no rows; nothing can be learned from it")

    def _learn_more(self, source: Source, classes: Any = None) -> Self:
        """One pass in the order given, from where the learner stands."""
        if not hasattr(self, "_learner"):
            self._begin(source, classes)
        learner, history = self._learner, self.history_
        before = learner.rows_learned
        for chunk in source.epoch(0):
            progress = learner.step(chunk)
            history.events += progress.events
        self._refresh()
        self.n_iter_ += 1 if learner.rows_learned > before else 0
        return self

    def _begin(self, source: Source, classes: Any) -> None:
        """Takes a learner that has seen nothing yet."""
        self._adopt(self._new_learner(self._settings(None), source, classes), History(), source)

    def _settings(self, n_rows: int | None) -> Any:
        """The constructor's arguments, checked and resolved."""
        raise TypeError(f"{type(self).__name__} has no settings")

    def _new_learner(self, settings: Any, source: Source, classes: Any = None) -> Any:
        """A learner that has seen nothing yet."""
        raise TypeError(f"{type(self).__name__} has no learner")

    @classmethod
    def _restore(cls, settings: Any, state: State) -> Any:
        """The learner that had this state; settings may be the plain values of a file."""
        raise TypeError(f"{cls.__name__} has no learner")

    def _adopt(self, learner: Any, history: History, source: Source) -> None:
        self._learner = learner
        self.recipe_ = source.recipe
        self._target_names = target_names(source)
        self.history_ = history
        self.n_iter_ = len(history)
        self._refresh()

    def _refresh(self) -> None:
        """Names that follow from the learner's state."""
        hasher = getattr(self, "hasher_", None)
        self.n_features_in_ = self._learner.n_features if hasher is None else hasher.n_features_in_

    def _source(self, X: Any, y: Any = None, sample_weight: Any = None) -> ArraySource:
        if y is None:
            raise DataError(f"{type(self).__name__} requires y to be passed, but the target y is None")
        if self.hasher is not None:
            return ArraySource(self._own_hasher().to_chunk(X, y, sample_weight, learn=True))
        self._note_names(X)
        source = from_arrays(X, y, sample_weight)
        if source.n_rows == 0:
            raise DataError("Found array with 0 sample(s): X has no rows; at least one is needed")
        if source.n_features == 0:
            raise DataError(f"0 feature(s) (shape=({source.n_rows}, 0)) while a minimum of 1 is required: X is empty")
        return source

    # ------------------------------------------------------------------------------------------------- prediction

    def _scores(self, chunk: Chunk) -> Array:
        scores: Array = self._learner.scores(chunk, threads(self.n_jobs))
        if not np.isfinite(scores).all():
            row = int(np.flatnonzero(~np.isfinite(scores).all(axis=1))[0])
            self._learner._refuse_bad_row(chunk, row)
        return scores

    def _scores_of(self, X: Any) -> Array:
        """Scores of rows in memory."""
        return self._scores(self._chunk(X))

    def _stream_scores(self, source: Source) -> Iterator[tuple[Chunk, Array]]:
        self._check_fitted()
        for chunk in self._hashed(source, learn=False):
            yield chunk, self._scores(chunk)

    def _row_losses(self, coded: Chunk, scores: Array) -> tuple[Array, Array]:
        """(loss, weight) of each row, whose scores are these."""
        found: tuple[Array, Array] = self._learner.losses(coded, scores)
        return found

    # --------------------------------------------------------------------------------------------------- files

    def _file_parts(self) -> tuple[dict[str, Any], dict[str, Array]]:
        params = {k: v for k, v in self.get_params(deep=False).items() if k not in ("hasher", "random_state")}
        hasher_header, hasher_arrays = self._hasher_parts()
        params["random_state"] = self.random_state if isinstance(self.random_state, int) else None
        words, arrays = split_words(self._whole_state())
        header = {
            "words": words,
            "hasher": hasher_header,
            "params": _plain_params(params),
            "settings": self._learner.settings.as_dict(),
            "history": self.history_.as_dict(),
            "n_iter": self.n_iter_,
            "recipe": self.recipe_,
            "target_names": self._target_names,
            "feature_names": getattr(self, "feature_names_in_", np.array([])).tolist(),
        }
        return header, arrays | hasher_arrays

    def _whole_state(self) -> State:
        """All arrays that prediction and further learning need."""
        state: State = self._learner.state
        return state

    def _take_state(self, settings: Any, state: State) -> None:
        """The opposite of `_whole_state`."""
        self._learner = self._restore(settings, state)

    @classmethod
    def _from_file_parts(cls, header: dict[str, Any], arrays: dict[str, Array]) -> Self:
        estimator = cls(**_params_from_plain(header["params"]))
        estimator._restore_hasher(header["hasher"], arrays)
        estimator._take_state(header["settings"], join_words(header["words"], arrays))
        estimator.recipe_ = header["recipe"]
        estimator._target_names = header["target_names"]
        estimator.history_ = History.from_dict(header["history"])
        estimator.n_iter_ = int(header["n_iter"])
        if header["feature_names"]:
            estimator.feature_names_in_ = np.array(header["feature_names"], dtype=object)
        estimator._refresh()
        return estimator


def target_names(source: Source) -> list[str] | None:
    """What the columns of a multi-label target stand for, where the source knows."""
    while isinstance(source, Derived | CachedSource):
        source = source.parent
    names = getattr(source, "label_names", None)
    return None if names is None else [str(name) for name in names]


def _plain_params(params: dict[str, Any]) -> dict[str, Any]:
    plain = {k: (v.item() if isinstance(v, np.generic) else v) for k, v in params.items()}
    plain = {k: (None if isinstance(v, float) and math.isinf(v) else v) for k, v in plain.items()}
    if "dtype" in plain:
        plain["dtype"] = str(np.dtype(plain["dtype"]))
    if "class_weight" in plain:
        plain["class_weight"] = weights_as_pairs(plain["class_weight"])
    return plain


def _params_from_plain(plain: dict[str, Any]) -> dict[str, Any]:
    params = dict(plain)
    if params.get("truncate_below", 0) is None:
        params["truncate_below"] = math.inf
    if "class_weight" in params:
        params["class_weight"] = weights_from_pairs(params["class_weight"])
    return params
