"""The base of all estimators: parameters, fitting (`Model._fit` is the one way to a fitted learner), and model files.

`fit(X, y)` is exactly `fit_stream(from_arrays(X, y))`. A subclass names its learner (`learner_type`, `settings_type`)
and turns its parameters into the learner's settings (`settings_for`); methods that are marked as hooks may do more.
With a hasher, X may be raw (texts, dicts, tables); a model owns a copy of the hasher given, which learns with the model
and is saved in its file.
"""

from __future__ import annotations

import functools
import importlib
import math
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Self, TypeVar, cast

import numpy as np

from steepest import model_file, protocol, registry
from steepest.data.chunk import Array, Chunk
from steepest.data.raw import (
    RowEncoder,
    cache_of,
    encoded,
    is_raw,
    joined_rows,
    sample_columns,
    stored_encoder,
    taken_rows,
)
from steepest.data.source import SHUFFLES, ArraySource, Lenient, Source, check_source, csr_arrays, from_arrays
from steepest.data.store.row_store import store_rows
from steepest.data.tables.columns import as_arrow, is_raw_rows, refuse_one_row, without_views
from steepest.engine.checkpoint import EVERY, Checkpoints
from steepest.engine.history import History
from steepest.engine.loop import Epochs, Executor, Monitor, train
from steepest.engine.monitor import PrintMonitor
from steepest.engine.stopping import Plan
from steepest.engine.stream_watch import StreamWatch
from steepest.errors import DataError, ModelFileError, ParameterError
from steepest.learners.base import State, join_words, split_words
from steepest.learners.losses import LOSSES
from steepest.learners.targets import TargetLearner, refuse_bad_row
from steepest.learners.waiting import finished
from steepest.models.calibration import LEAST_ROWS, Calibration, Recent
from steepest.models.options import OPTIONS, EarlyStopping, Option, flat_params
from steepest.parameters import MOST_THREADS, at_least, choice, inside, integer, shown, whole

HASHER = "hasher."  # marks the hasher's arrays in a model file
PATIENCE = 2  # epochs without improvement before `tol` ends training


@dataclass(frozen=True, slots=True)
class Run:
    """How one fit runs: the monitor that follows it, where checkpoints are saved, and how many epochs it takes."""

    monitor: Monitor
    checkpoint: str | Path | None = None
    resume: bool = False
    every: str = EVERY
    rounds: int | None = None  # exactly so many epochs, whatever else says when to stop
    keep: str = "best"  # of the epochs, if rows are held out: "best" or "last"

    def __post_init__(self) -> None:
        if not isinstance(self.monitor, Monitor):
            raise ParameterError(f"monitor={shown(self.monitor)} is not a Monitor; derive a class from st.Monitor")

    def plan(self, plan: Plan, validation: Any) -> Plan:
        """The plan, which keeps the learner of the best epoch if rows are held out and `keep` is "best"."""
        return replace(plan, keep_best=validation is not None and self.keep == "best" and not plan.early_stopping)

    def part(self, name: str) -> Run:
        """The run of one part of a fit, whose checkpoints go to a subdirectory of that name."""
        return replace(self, checkpoint=None if self.checkpoint is None else Path(self.checkpoint) / name)


Fit = TypeVar("Fit", bound=Callable[..., Any])
_learning: dict[int, int] = {}  # by the estimator that is being fitted, the thread that does it


def _guard(fit: Fit) -> Fit:
    """Wraps a method that learns or saves: raises if another thread does; types of parameters are checked to learn."""
    goes_on, saves = fit.__name__ == "partial_fit", fit.__name__ == "save"

    @functools.wraps(fit)
    def guarded(self: Any, *args: Any, **options: Any) -> Any:
        own = threading.get_ident()
        outermost = id(self) not in _learning
        if _learning.setdefault(id(self), own) != own:  # one step: of two threads one finds the other
            raise ParameterError(
                f"another thread is fitting or saving this {type(self).__name__}; give every thread an estimator of "
                "its own, for example sklearn.base.clone(estimator), and save between two calls of fit"
            )
        try:
            # a row of a stream costs microseconds
            if outermost and not saves and not (goes_on and self.__sklearn_is_fitted__()):
                protocol.check_params(self)
            return fit(self, *args, **options)
        finally:
            if outermost:
                _learning.pop(id(self), None)

    return cast("Fit", guarded)


class Model:
    """The base of all estimators: parameters, fitting, prediction, saving and loading."""

    kind: ClassVar[str] = ""  # "classifier", "regressor", "clusterer", ...
    task: ClassVar[str] = ""
    options: ClassVar[tuple[type[Option], ...]] = (EarlyStopping,)  # value objects that its parameters take
    learner_type: ClassVar[Any]
    settings_type: ClassVar[Any]  # of the learner

    n_jobs: int
    hasher: Any = None
    random_state: Any
    verbose: int
    shuffle: str
    schedule: str
    epochs: Any
    tol: Any = None
    early_stopping: bool | EarlyStopping = False
    history_: History
    recipe_: dict[str, Any]
    n_iter_: int
    learner_: Any
    _n_rows: int | None = None  # of the source that is learned from
    calibration_: Calibration | None = None  # what rows that were held out have shown
    _recent: Recent | None = None  # rows of a stream, scored before they were learned
    _watch: StreamWatch | None = None  # what has changed in it
    _target_names: list[Any] | None = None

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        for name in ("fit", "partial_fit", "save"):
            if name in vars(cls):
                setattr(cls, name, _guard(vars(cls)[name]))

    # ------------------------------------------------------------------------------------------------- parameters

    _store = protocol.store
    get_params = protocol.get_params
    __repr__ = protocol.describe

    def set_params(self, **params: Any) -> Self:
        """Sets parameters; `part__name` sets a parameter of the object that is the parameter `part`."""
        protocol.set_params(self, **params)
        return self

    def flat_params(self) -> dict[str, Any]:
        """Constructor arguments with every choice as its plain value and its details under their flat names."""
        return flat_params(self.get_params(deep=False))

    def __sklearn_tags__(self) -> Any:
        return protocol.tags(self.kind)

    def _repr_html_(self) -> str:
        """What a notebook shows: the parameters and, of a fitted model, losses and heaviest weights."""
        html: str = importlib.import_module("steepest.report.notebook").estimator_html(self)
        return html

    # scikit-learn's routing of metadata: which of `sample_weight` and `groups` a search or a pipeline passes on.

    get_metadata_routing = protocol.metadata_request
    set_fit_request = protocol.request_setter("fit")
    set_partial_fit_request = protocol.request_setter("partial_fit")
    set_score_request = protocol.request_setter("score")

    def __sklearn_is_fitted__(self) -> bool:
        return "learner_" in self.__dict__

    def _check_fitted(self) -> None:
        if not self.__sklearn_is_fitted__():
            raise protocol.not_fitted(self, "call fit before using it")

    def _check_learner(self) -> None:
        """Raises AttributeError before the first fit, so that `hasattr` is False for fitted attributes."""
        if not self.__sklearn_is_fitted__():
            raise AttributeError(f"this {type(self).__name__} is not fitted yet")

    def seed(self) -> int:
        """A seed for one fit: `random_state` if it is a number, else drawn from it or from the system."""
        state = self.random_state
        if state is None:
            return int.from_bytes(os.urandom(4)) >> 1
        if isinstance(state, int | np.integer) and 0 <= state < 1 << 63:
            return int(state)
        if isinstance(state, np.random.RandomState):
            return int(state.randint(0, 2**31 - 1))
        if isinstance(state, np.random.Generator):
            return int(state.integers(0, 2**31 - 1))
        raise ParameterError(
            f"random_state={state!r} is not a seed; give an integer from 0 to 2**63 - 1, a generator or None"
        )

    def monitor(self) -> Monitor:
        """The monitor of a fit that was given none: it prints if `verbose` is set, else stays silent."""
        return PrintMonitor() if self.verbose else Monitor()

    @property
    def n_threads(self) -> int:
        """The number of threads that `n_jobs` stands for."""
        return threads(self.n_jobs)

    def _early_stopping(self) -> EarlyStopping | None:
        """The parameter `early_stopping`, checked, as a value object; None if it is off."""
        given = self.early_stopping
        if given is False or given is None:
            return None
        if given is not True and not isinstance(given, EarlyStopping):
            raise ParameterError(f"early_stopping={given!r} is unknown; give True, False or EarlyStopping(...)")
        stopping = EarlyStopping() if given is True else given
        inside("fraction", stopping.fraction, 0.0, 1.0)
        if stopping.train is not None and stopping.fraction + inside("train", stopping.train, 0.0, 1.0) > 1 + 1e-9:
            raise ParameterError(
                f"train={stopping.train} and fraction={stopping.fraction} are two samples that share no row, so they "
                "cannot add up to more than 1"
            )
        whole("patience", stopping.patience, 1)
        return stopping

    # -------------------------------------------------------------------------------------------------- learning

    @_guard
    def fit(self, X: Any, y: Any = None, sample_weight: Any = None, *, monitor: Monitor | None = None) -> Self:
        """Fits the model to arrays: X of shape (n, d), sparse or dense, targets y, and optional weights of the rows.

        X may also be raw: texts, dicts, or a table (pandas, polars, Arrow, a dataset of Hugging Face) with columns that
        are not numbers. It is then hashed by `hasher`, or by `Hasher()` if there is none. The methods of `monitor`, a
        `Monitor`, are called during the fit.
        """
        vars(self).pop("hasher_", None)
        X = in_memory(X)
        self._plan_for_arrays(X, y)
        source, validation = self._sources_of(X, y, sample_weight)
        self._fit(source, validation, None if monitor is None else Run(monitor))
        hasher = getattr(self, "hasher_", None)
        if hasher is not None and validation is None and hasattr(self.learner_, "heaviness"):
            hasher.name_heaviest(X, source.block, self.learner_.heaviness)
        return self

    def _sources_of(self, X: Any, y: Any, sample_weight: Any) -> tuple[ArraySource, Source | None]:
        """(rows to learn, rows held out or None), apart before they are hashed if the hasher counts rows or words:
        what is held out must not shape the features of what is learned."""
        stopping = self._early_stopping()
        if y is None or stopping is None or stopping.refits or self.hasher is None:
            return self.source_of(X, y, sample_weight, columns=not self._kernels_check_columns()), None
        given = self.given_hasher()
        if not (given.counts_rows or given.counts_words) or len(y) < 2:
            return self.source_of(X, y, sample_weight), None
        sides = from_arrays(np.zeros((len(y), 1))).holdout(stopping.fraction, self.seed())
        learned, held = (side.rows for side in sides if isinstance(side, ArraySource))
        assert learned is not None
        assert held is not None
        targets, weight = np.asarray(y), None if sample_weight is None else np.asarray(sample_weight)
        source = self.source_of(taken_rows(X, learned), targets[learned], None if weight is None else weight[learned])
        chunk = self.hasher_.to_chunk(taken_rows(X, held), targets[held], None if weight is None else weight[held])
        if source.labels is not None:
            source.labels = np.union1d(source.labels, np.unique(targets[held]))
        return source, ArraySource(chunk)

    @_guard
    def fit_stream(
        self,
        source: Source,
        validation: Source | None = None,
        *,
        monitor: Monitor | None = None,
        checkpoint: str | Path | None = None,
        resume: bool = False,
        checkpoint_every: str = EVERY,
        keep: str = "best",
    ) -> Self:
        """Fits the model to a source of chunks, in `epochs` passes over it.

        `validation` is measured after every epoch, and the model of the epoch with the lowest loss on it is kept;
        `keep="last"` keeps that of the last epoch. Validation rows with a label that no training row has are left out.
        `checkpoint` is a directory in which the state is saved, as often as `checkpoint_every` says ("30s" or
        "100000-rows"); `resume=True` continues from there; the result is bit-identical to that of an uninterrupted run.
        If the newest checkpoint is damaged, the one before it is used.
        """
        vars(self).pop("hasher_", None)
        check_source(source)
        if validation is not None:
            check_source(validation)
        self._plan_for_stream(source)
        keep = choice("keep", keep, ("best", "last"))
        run = Run(monitor or self.monitor(), checkpoint, resume, checkpoint_every, keep=keep)
        return self._fit(source, validation, run)

    def _fit(self, source: Source, validation: Source | None = None, run: Run | None = None) -> Self:
        """THE way from an estimator to a fitted learner: rows are hashed, held out, ordered, stored and learned."""
        run, seed, stopping = run or Run(self.monitor()), self.seed(), self._early_stopping()
        if stopping is not None and stopping.refits and validation is not None:
            raise ParameterError(
                "early_stopping=EarlyStopping(refit=True) holds out rows itself, to learn from them in the end; "
                "leave the validation source out, or give early_stopping=True"
            )
        shared = validation is not None and _share_a_cache(source, validation)
        source = self._training_rows(self._record_names(self.hashed(source, learn=True)), seed)
        settings = self._resolve(source, run)
        if validation is not None:
            validation = self._training_rows(self.hashed(validation, learn=shared), seed)
        if stopping is not None and stopping.refits:
            self._learn_twice(settings, source, run, seed, stopping)
            return self
        if stopping is not None and validation is None:
            source, validation = source.holdout(stopping.fraction, seed)
        self._learn(settings, source, validation, run, seed)
        if validation is not None and validation.read_once is None:
            self._calibrate_by(Lenient(validation))
        return self

    def _calibrate_by(self, rows: Source) -> None:
        """Measures the fitted model on rows that it did not learn; nothing for models without calibration."""

    def _store_residuals(self, residuals: Array, later: Array | None = None) -> None:
        """Stores absolute errors on held-out rows for intervals; `later`: those of held-out stretches of rows."""
        if len(residuals) >= LEAST_ROWS and np.isfinite(residuals).all():
            self.calibration_ = Calibration(rows=len(residuals)).with_residuals(residuals, later)

    def _reach(self, coverage: float, later: bool) -> float:
        """The residual that a share `coverage` of new rows does not exceed; raises if no rows were held out."""
        self._check_fitted()
        return (self.calibration_ or Calibration()).reach(coverage, later)

    def _use_levels(self) -> None:
        """Lets sets and intervals take the levels that cover the stream as often as asked."""
        if self.calibration_ is not None and self._recent is not None:
            self.calibration_ = replace(self.calibration_, levels=self._recent.levels)

    def _stream_watch(self) -> StreamWatch:
        """The drift detectors of `partial_fit(calibrate=True)`, made at the first call."""
        self._watch = self._watch or StreamWatch()
        return self._watch

    def unseen_features(self, features: Array, *, counted: bool = False) -> int | None:
        """How many of these features training has not seen; None if this model cannot say.

        `counted`: the hasher has already counted the rows that they are of.
        """
        hasher: Any = getattr(self, "hasher_", None)
        has_weights = hasattr(self.learner_, "output_weights")
        if not has_weights and not (hasher is not None and hasher.counts_all_features):
            return None
        unseen = np.ones(len(features), bool)
        if hasattr(hasher, "document_counts_"):
            _, places, own = np.unique(features, return_inverse=True, return_counts=True)
            unseen = hasher.rows_with(features) <= (own[places] if counted else 0)
        if has_weights and unseen.any() and not (hasher is not None and hasher.counts_all_features):
            outputs = range(min(self.learner_.n_outputs, 4))
            unseen[unseen] = ~np.any([self.learner_.output_weights(k, features[unseen]) for k in outputs], axis=0)
        return int(np.count_nonzero(unseen))

    def _unseen_share(self, chunk: Chunk, X: Any) -> float | None:
        """The share of the features of these rows, hashed to a chunk, that training has not seen."""
        hasher: Any = getattr(self, "hasher_", None)
        leaves_out = hasher is not None and hasher.leaves_out_rare
        features = hasher.all_features(X) if leaves_out else chunk.packed().indices
        unseen = self.unseen_features(features, counted=True) if len(features) else None
        return None if unseen is None else unseen / len(features)

    def _unlearned_rows(self, X: Any, y: Any, as_targets: Callable[[Any], Array]) -> Source:
        """Rows for `calibrate_on`, from a source or from arrays, encoded as the fitted model needs them."""
        self._check_fitted()
        if isinstance(X, Source):
            return self.hashed(X, learn=False)
        return ArraySource(replace(self._chunk(X), y=as_targets(y)))

    def _learn_twice(self, settings: Any, source: Source, run: Run, seed: int, stopping: EarlyStopping) -> None:
        """Early stopping with refit: learns part A until part B gets no better, then all rows for as many epochs."""
        source = store_rows(source)
        part, held_out = self._two_samples(source, stopping, seed)
        self._learn(settings, part, held_out, run.part("part"), seed)
        first = self.history_
        losses = first.column("holdout_loss")
        rounds = 1 + losses.index(min(losses, key=lambda loss: math.inf if math.isnan(loss) else loss))
        event = f"the held-out loss was lowest after {rounds} of {len(first)}: once more {rounds} from all rows"
        run.monitor.event(event)
        self._learn(settings, source, None, replace(run.part("all"), rounds=rounds), seed)
        self.history_ = History([*first.records, *self.history_.records], [*first.events, event, *self.history_.events])
        self.n_iter_ = rounds

    @staticmethod
    def _two_samples(source: Source, stopping: EarlyStopping, seed: int) -> tuple[Source, Source]:
        """(A, B): rows to learn and rows to stop by; no row is in both."""
        rest, held_out = source.holdout(stopping.fraction, seed)
        if stopping.train is None or stopping.train >= 1 - stopping.fraction:
            return rest, held_out
        return rest.holdout(stopping.train / (1 - stopping.fraction), seed + 1)[1], held_out

    def _row_order(self) -> str:
        return choice("shuffle", self.shuffle, SHUFFLES)

    def _learn(self, settings: Any, source: Source, validation: Source | None, run: Run, seed: int) -> None:
        """Runs the training loop on prepared rows, with checkpoints if requested, and adopts the learner."""
        source = source.shuffle(self._row_order(), seed)
        plan = run.plan(self.plan_epochs(run.rounds), validation)
        if plan.epochs > 1 and self._stores_rows:
            source = store_rows(source)
            validation = None if validation is None else store_rows(validation)
        learner = self._first_learner(settings, source)
        executor = self._executor(learner, source, plan)
        checkpoints = None
        if run.checkpoint is not None:
            fingerprint = {
                "settings": learner.settings.as_dict(),
                "seed": seed,
                "data": source.fingerprint(),
                **self._fingerprint(plan),
            }
            restore = self._restorer(learner)
            checkpoints = Checkpoints(
                run.checkpoint, restore, fingerprint, source=source, resume=run.resume, every=run.every
            )
        learner, history = train(executor, plan, validation=validation, monitor=run.monitor, checkpoints=checkpoints)
        self._finish(learner, history, executor)
        self.adopt(learner, history, source)

    _stores_rows: ClassVar[bool] = True  # whether rows are parsed once if there are several epochs

    def plan_epochs(self, rounds: int | None = None) -> Plan:
        """The number of epochs and the stopping rule from the parameters; exactly `rounds` epochs, if given."""
        stopping = self._early_stopping()
        return Plan(
            epochs=self._n_epochs() if rounds is None else rounds,
            tol=None if self._tol() is None or rounds else at_least("tol", self._tol(), 0.0),
            patience=PATIENCE if stopping is None else stopping.patience,
            early_stopping=stopping is not None and rounds is None,
            lower_step_on_stall=getattr(self, "schedule", "") == "adaptive",
        )

    def _tol(self) -> float | None:
        tol: float | None = self.tol.tol if isinstance(self.tol, Option) else self.tol  # type: ignore[attr-defined]
        return tol

    def _n_epochs(self) -> int:
        return whole("epochs", self.epochs, 1)

    # What a kind of model says of itself.

    def _plan_for_arrays(self, X: Any, y: Any, classes: Any = None, *, more_to_come: bool = False) -> None:
        """Hook of `fit`, called before rows in memory are hashed; linear models plan their memory here."""

    def _plan_for_stream(self, source: Source) -> None:
        """Hook of `fit_stream`, called before the source is read; linear models plan their memory here."""

    def _record_names(self, source: Source) -> Source:
        """Hook: the source, changed so that feature names are recorded while it is read, if the model keeps them."""
        return source

    def _training_rows(self, source: Source, seed: int) -> Source:
        """Hook: the source from which the learner learns; some models read, group or pair its rows first."""
        return source

    def _resolve(self, source: Source, run: Run) -> Any:
        """The settings of the learner for these rows; reports to the monitor what "auto" chose."""
        self._n_rows = source.n_rows
        return self.settings_for(source.n_rows)

    def settings_for(self, n_rows: int | None) -> Any:
        """The settings of the learner: the constructor's arguments, checked, with "auto" resolved."""
        raise TypeError(f"{type(self).__name__} has no settings")

    def new_learner(self, settings: Any, source: Source, classes: Any = None) -> Any:
        """An untrained learner for rows of this source; `classes` are labels known beforehand."""
        return self._learner_for(settings, source, ())

    def _learner_for(self, settings: Any, source: Source, labels: Any) -> Any:
        """An untrained learner, given the labels that are known before learning (or none)."""
        return self.learner_type(settings, source.n_features or 0, labels)

    def _first_learner(self, settings: Any, source: Source) -> Any:
        """The learner that a fit starts with; linear models may continue from an earlier one."""
        learner = self.new_learner(settings, source)
        learner.n_threads = self._threads_for(learner)
        return learner

    def _threads_for(self, learner: Any) -> int:
        """Hook: the number of threads that may learn."""
        return self.n_threads

    @classmethod
    def _restore(cls, settings: Any, state: State) -> Any:
        """The learner that had this state; settings may be the plain values of a file."""
        known = settings if isinstance(settings, cls.settings_type) else cls.settings_type.from_dict(settings)
        cls.learner_type.check_state(known, state)
        return cls.learner_type.from_state(known, state)

    def _restorer(self, learner: Any) -> Any:
        """A function that makes a learner from the arrays of a checkpoint."""

        def restore(state: State) -> Any:
            found = self._restore(learner.settings, state)
            found.n_threads = learner.n_threads
            return found

        return restore

    def _executor(self, learner: Any, source: Source, plan: Plan) -> Executor:
        """The executor that runs the rounds of training for this learner and source."""
        return Epochs(learner, source)

    def _fingerprint(self, plan: Plan) -> dict[str, Any]:
        """More values that a checkpoint must have in common with the run that resumes it."""
        return {}

    def _finish(self, learner: Any, history: History, executor: Any) -> None:
        """Checks a trained learner before it is adopted; subclasses add events to the history."""
        if learner.rows_learned == 0:
            raise DataError("the data holds no rows; nothing can be learned from it")

    def _refuse_overflow(self, learner: Any) -> None:
        """Raises if any number that would be shown or saved is not finite, after learning the pending rows."""
        learner.refuse_overflow()
        if isinstance(learner, TargetLearner) and learner.waiting.rows is not None:
            shown: Any = learner
            finished(shown).refuse_overflow()

    def _learn_more(self, source: Source, classes: Any = None) -> Self:
        """Learns one pass over the source in its given order; `partial_fit` of all models ends here."""
        if not hasattr(self, "learner_"):
            self.adopt(self.new_learner(self.settings_for(None), source, classes), History(), source)
        learner = self.learner_
        learner.n_threads, before = self._threads_for(learner), learner.rows_learned
        for chunk in source.epoch(0):
            self.history_.events += learner.step(chunk).events
        self._refresh()
        self.n_iter_ += 1 if learner.rows_learned > before else 0
        return self

    def adopt(self, learner: Any, history: History, source: Source) -> None:
        """Makes a trained learner and its history the fitted state of this estimator."""
        self._refuse_overflow(learner)
        self.learner_, self.calibration_, self._recent, self._watch = learner, None, None, None
        self.recipe_ = source.recipe
        self._target_names = self._names_of_targets(source)
        self.history_ = history
        self.n_iter_ = len(history)
        self._refresh()

    def _loss_name(self) -> str:
        """The name of the loss whose link turns scores into probabilities or means."""
        loss = getattr(self, "loss", "")
        return str(loss.choice if isinstance(loss, Option) else loss)

    def _names_of_targets(self, source: Source) -> list[Any] | None:
        """The names of the columns of a multi-label target as texts, or None."""
        return None if source.label_names is None else [str(name) for name in source.label_names]

    def _refresh(self) -> None:
        """Sets the fitted attributes that follow from the learner, such as `n_features_in_`."""
        hasher = getattr(self, "hasher_", None)
        self.n_features_in_ = self.learner_.n_features if hasher is None else hasher.n_features_in_
        if (names := getattr(hasher, "feature_names_in_", None)) is not None:
            self.feature_names_in_ = names

    # ------------------------------------------------------------------------------------------------------- rows

    def _kernels_check_columns(self) -> bool:
        """Hook: whether a kernel checks the column indices of rows in memory before anything else reads them."""
        return False

    def source_of(self, X: Any, y: Any = None, sample_weight: Any = None, *, columns: bool = True) -> ArraySource:
        """Rows in memory, hashed if they are raw; `columns`: check the column indices of sparse matrices here."""
        X, y = in_memory(X), list(y) if isinstance(y, Iterator) else y
        takes_hasher = "hasher" in protocol.parameter_names(type(self))
        raw = self.hasher is not None or (takes_hasher and self._is_raw(X))
        if raw or (takes_hasher and getattr(self, "hasher_", None) is not None):
            hasher = self.own_hasher()
            if not hasattr(hasher, "columns_"):
                hasher.survey(X, None if y is None else np.asarray(y))
            return ArraySource(hasher.to_chunk(X, y, sample_weight, learn=True))
        self._note_names(X)
        source = from_arrays(X, y, sample_weight, columns=columns)
        if source.n_rows == 0:
            raise DataError("Found array with 0 sample(s): X has no rows; at least one is needed")
        if source.n_features == 0:
            raise DataError(f"0 feature(s) (shape=({source.n_rows}, 0)) while a minimum of 1 is required: X is empty")
        return source

    def _is_raw(self, X: Any) -> bool:
        """Hook: whether rows in memory need a hasher, though none was given."""
        return is_raw_rows(X)

    def own_hasher(self, roles: Mapping[str, Any] | None = None) -> Any:
        """This model's copy of the given hasher (or of a default one); it learns with the model."""
        if not hasattr(self, "hasher_"):
            hasher = self.given_hasher()
            params = {**hasher.get_params(deep=False), **(roles or {}), **self._hasher_overrides(hasher)}
            self.hasher_ = type(hasher)(**params)
        return self.hasher_

    def given_hasher(self) -> Any:
        """The `hasher` parameter, or the default hasher for raw rows."""
        from steepest.features.hasher import Hasher

        hasher = Hasher() if self.hasher is None else self.hasher
        if not isinstance(hasher, Hasher):
            raise ParameterError(f"hasher={hasher!r} is not a Hasher; give steepest.Hasher(...) or None")
        return hasher

    def _hasher_overrides(self, hasher: Any) -> dict[str, Any]:
        """Hook: parameters of the hasher that the model sets itself, such as those of a memory plan."""
        return {}

    def hashed(self, source: Source, *, learn: bool) -> Source:
        """The source, with this model's hasher as its encoder if its rows are raw."""
        check_source(source)
        if not is_raw(source):
            if (state := stored_encoder(source)) is not None:
                self._take_hasher(*state, learn=learn)
            elif learn and self.hasher is not None and not hasattr(self, "hasher_"):
                raise ParameterError("hasher= is for raw columns, and these rows have features already; leave it out")
            return source
        from steepest.features.words import count_rows, count_words

        if not learn and getattr(self, "hasher_", None) is None:
            raise DataError(
                f"{source.describe()} holds raw columns, but this model was trained without a hasher, on numbered "
                "features; give rows of that form, or train a model on columns"
            )
        named = {kind: source.recipe.get(kind) for kind in ("text", "categorical", "numeric")}
        hasher = self.own_hasher({kind: names for kind, names in named.items() if names})
        if learn and not hasattr(hasher, "columns_") and (sample := sample_columns(source)) is not None:
            hasher.survey(*sample)  # on rows from all over the data, whatever the order of reading
            self.choose_encoding(hasher, *sample)
        counted = False
        if learn:
            count_words(source, hasher)
            counted = count_rows(source, hasher, self._most_counted())
        return encoded(source, RowEncoder(hasher, learn, counted), hasher.signature(learn=learn))

    def _most_counted(self) -> float:
        """Hook: of how many entries at most rare words and n-grams are counted before learning."""
        return math.inf

    def choose_encoding(self, hasher: Any, columns: Any, y: Array | None) -> None:
        """Chooses knots and crosses from a sample of rows and their targets; called once, before rows are encoded."""

    def _take_hasher(self, header: Mapping[str, Any], arrays: Mapping[str, Array], *, learn: bool) -> None:
        """Adopts the hasher stored in a cache file of hashed rows; raises if the model has a different one."""
        from steepest.features.hasher import Hasher

        stored = Hasher.from_state(header, arrays)
        own = getattr(self, "hasher_", self.hasher if learn else None)
        if own is not None and not own.makes_the_rows_of(stored):
            raise DataError(f"the cache was made by {stored!r}, which is not the model's {own!r}; build it again")
        if learn and not hasattr(self, "hasher_"):
            self.hasher_ = stored

    def _note_names(self, X: Any) -> None:
        names = getattr(X, "column_names", None) or getattr(X, "columns", None)  # Arrow has the first one
        if names is not None and all(isinstance(name, str) for name in names):
            self.feature_names_in_ = np.array(list(names), dtype=object)
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_

    def _chunk(self, X: Any, *, columns: bool = True) -> Chunk:
        """Rows in memory as a chunk to predict for; `columns`: check the column indices of sparse matrices here."""
        self._check_fitted()
        X = in_memory(X)
        if getattr(self, "hasher_", None) is not None:
            chunk: Chunk = self.hasher_.to_chunk(X)
            return chunk
        names = getattr(self, "feature_names_in_", None)
        given = getattr(X, "column_names", None) or getattr(X, "columns", None)
        if names is not None and given is not None:
            _check_names(names, list(given))
        rows = Chunk(*csr_arrays(X, columns=columns))
        self._check_width(rows)
        return rows

    def _check_width(self, source: Source | Chunk) -> None:
        known = self.learner_.n_features if hasattr(self, "learner_") else source.n_features
        if source.n_features != known:
            raise DataError(
                f"X has {source.n_features} features, but {type(self).__name__} is expecting {known} features as input"
            )

    def _scores(self, chunk: Chunk) -> Array:
        scores: Array = self.learner_.scores(chunk, self.n_threads)
        if not np.isfinite(scores).all():
            refuse_bad_row(chunk, int(np.flatnonzero(~np.isfinite(scores).all(axis=1))[0]))
        return scores

    def _scores_of(self, X: Any) -> Array:
        """Scores of rows in memory."""
        return self._scores(self._chunk(X, columns=False))

    def _stream_scores(self, source: Source) -> Iterator[tuple[Chunk, Array]]:
        self._check_fitted()
        for chunk in self.hashed(source, learn=False):
            yield chunk, self._scores(chunk)

    def _row_losses(self, coded: Chunk, scores: Array) -> tuple[Array, Array]:
        """(loss, weight) of each row, given its scores."""
        found: tuple[Array, Array] = self.learner_.losses(coded, scores)
        return found

    def predict_spark(self, df: Any, **options: Any) -> Any:
        """Returns the Spark DataFrame with a column of predictions, and of probabilities if the model has them.

        `features` are the columns to read, by default those of `fit_spark`; `prediction` and `probability` are the
        names of the new columns.
        """
        return importlib.import_module("steepest.spark").predict_spark(self, df, **options)

    # ------------------------------------------------------------------------------------------------------ files

    @_guard
    def save(self, path: str | Path) -> Any:
        """Writes the model to one file, which contains no code. If writing fails, an old file stays as it was."""
        self._check_fitted()
        self._refuse_overflow(self.learner_)
        header, arrays = self._file_parts()
        model_file.write(path, {"kind": "model", "class": type(self).__name__, **header}, arrays)

    def _file_parts(self) -> tuple[dict[str, Any], dict[str, Array]]:
        """(header, arrays) of the model file."""
        hasher = getattr(self, "hasher_", None)
        hasher_header, hasher_arrays = (None, {}) if hasher is None else hasher.state()
        words, arrays = split_words(self._whole_state())
        header = {
            **self._file_header(),
            "words": words,
            "hasher": hasher_header,
            "target_names": self._target_names,
            "feature_names": getattr(self, "feature_names_in_", np.array([])).tolist(),
        }
        if self.calibration_ is not None:
            header["calibration"] = self.calibration_.as_dict()
        if self._recent is not None:
            header["recent"] = self._recent.as_dict()
        if self._watch is not None:
            header["watch"] = self._watch.as_dict()
        return header, arrays | {HASHER + name: array for name, array in hasher_arrays.items()}

    def _file_header(self) -> dict[str, Any]:
        """The parameters, settings and history that the header of every model file holds."""
        params = {k: v for k, v in self.get_params(deep=False).items() if k not in ("hasher", "random_state")}
        params["random_state"] = self.random_state if isinstance(self.random_state, int) else None
        return {
            "params": {name: to_plain(value) for name, value in params.items()},
            "settings": self.learner_.settings.as_dict(),
            "history": self.history_.as_dict(),
            "n_iter": self.n_iter_,
            "recipe": self.recipe_,
        }

    @classmethod
    def from_file_parts(cls, header: dict[str, Any], arrays: dict[str, Array]) -> Self:
        """Builds a fitted model from the header and the arrays of a model file."""
        model = cls(**{name: from_plain(value) for name, value in header["params"].items()})
        if header["hasher"] is not None:
            from steepest.features.hasher import Hasher

            parts = {name.removeprefix(HASHER): array for name, array in arrays.items() if name.startswith(HASHER)}
            model.hasher_ = Hasher.from_state(header["hasher"], parts)
            if "hasher" in protocol.parameter_names(cls):
                model.hasher = Hasher(**model.hasher_.get_params(deep=False))
        model._take_state(header["settings"], join_words(header["words"], arrays))
        model.recipe_ = header["recipe"]
        model._target_names = header["target_names"]
        model.history_ = History.from_dict(header["history"])
        model.n_iter_ = int(header["n_iter"])
        if header["feature_names"]:
            model.feature_names_in_ = np.array(header["feature_names"], dtype=object)
        if header.get("calibration") is not None:
            model.calibration_ = Calibration.from_dict(header["calibration"])
        if header.get("recent") is not None:
            model._recent = Recent.from_dict(header["recent"])
        if header.get("watch") is not None:
            model._watch = StreamWatch.from_dict(header["watch"])
        model._take_header(header)
        model._refresh()
        if model.kind == "regressor" and model._loss_name() not in LOSSES:
            raise ValueError(f"the loss is {model._loss_name()!r}"[:200])
        return model

    def _whole_state(self) -> State:
        """All arrays of the model file: what prediction and further learning need."""
        state: State = self.learner_.state
        return state

    def _take_state(self, settings: Any, state: State) -> None:
        """Restores the learner from the arrays that `_whole_state` gave."""
        self.learner_ = self._restore(settings, state)

    def _take_header(self, header: Mapping[str, Any]) -> None:
        """Hook: restores what a kind of model adds to the header of its file."""


def load(path: str | Path) -> Any:
    """Loads the estimator that was saved in a file. The file is data: nothing in it is executed.

    Examples
    --------
    >>> import steepest as st, tempfile, os
    >>> path = os.path.join(tempfile.mkdtemp(), "m.steepest")
    >>> st.LinearRegressor().fit([[0.0], [1.0], [2.0]], [1.0, 3.0, 5.0]).save(path)
    >>> st.load(path)
    LinearRegressor()
    """
    header, arrays = model_file.read(path)
    kind, name = header.get("kind"), header.get("class")
    if kind != "model" or not isinstance(name, str) or name not in registry.MODELS:
        known = f"(kind {kind!r}, class {name!r})"[:200]
        raise ModelFileError(f"{path} holds no model that this version of steepest knows {known}")
    try:
        _check_header(header)
        return registry.find(name).from_file_parts(header, arrays)
    except MemoryError as error:
        raise ModelFileError(f"{path} needs more memory than there is; load it on a larger machine") from error
    except Exception as error:  # whatever a forged file brings about: checks come first, this is the net below them
        said = " ".join(f"{type(error).__name__}: {error}".split())[:300]
        raise ModelFileError(f"{path} is not a complete {name} ({said}); get a fresh copy") from None


def _check_header(header: Mapping[str, Any]) -> None:
    """Raises ValueError unless the header of a model file has the types that `save` writes."""
    for part in ("params", "settings", "history", "recipe"):
        if not isinstance(header[part], dict):
            raise ValueError(f"{part} is not an object")
    if type(header["n_iter"]) is not int or not 0 <= header["n_iter"] < 1 << 53:
        raise ValueError(f"n_iter is {header['n_iter']!r}")
    if not isinstance(header.get("hasher"), dict | None):
        raise ValueError("hasher is not an object")
    if type(header["params"].get("n_jobs")) not in (int, type(None)):
        raise ValueError("n_jobs is not a number")
    stop_words = ((header.get("hasher") or {}).get("params") or {}).get("stop_words")
    if isinstance(stop_words, list) and not all(isinstance(word, str) for word in stop_words):
        raise ValueError("a stop word is not a text")
    if not isinstance(stop_words, list | str | None):
        raise ValueError("stop words are not texts")
    words = header.get("words", {})
    if not isinstance(words, dict) or not all(isinstance(value, list) for value in words.values()):
        raise ValueError("words are not lists")
    if not all(isinstance(word, str | int | float) for value in words.values() for word in value):
        raise ValueError("a word is not a text")


def to_plain(value: Any) -> Any:
    """Converts a parameter to JSON values for the header of a file; JSON has no infinities or tuples."""
    if isinstance(value, Option):
        return {"option": type(value).__name__, "values": to_plain(value.get_params(deep=False))}
    if isinstance(value, tuple):
        return {"tuple": [to_plain(item) for item in value]}
    if isinstance(value, Mapping):
        return {"pairs": [[to_plain(key), to_plain(item)] for key, item in value.items()]}
    if isinstance(value, np.generic):
        return to_plain(value.item())
    if isinstance(value, float) and not math.isfinite(value):
        return {"number": repr(value)}
    if isinstance(value, type | np.dtype):
        return str(np.dtype(value))
    return value


def from_plain(value: Any) -> Any:
    """Converts a parameter back from the JSON values that `to_plain` gave."""
    if not isinstance(value, Mapping):
        return value
    if "option" in value:
        return OPTIONS[value["option"]](**from_plain(value["values"]))
    if "tuple" in value:
        return tuple(from_plain(item) for item in value["tuple"])
    if "number" in value:
        return float(value["number"])
    return {from_plain(key): from_plain(item) for key, item in value["pairs"]}


def threads(n_jobs: int | None) -> int:
    """The number of threads that `n_jobs` stands for: one for None, all cores for -1."""
    n = 1 if n_jobs is None else integer("n_jobs", n_jobs)
    if n == 0:
        raise ParameterError("n_jobs=0 leaves no thread to work; give 1 or more, or -1 for all cores")
    return min(n, MOST_THREADS) if n > 0 else os.cpu_count() or 1


def in_memory(X: Any) -> Any:
    """X, with iterators read into lists and tables of other libraries converted to Arrow."""
    if isinstance(X, Iterator):
        parts = list(X)
        return joined_rows([in_memory(part) for part in parts]) if parts and _is_batch(parts[0]) else parts
    if isinstance(X, list | np.ndarray) or hasattr(X, "iloc") or hasattr(X, "tocsr"):
        return X
    refuse_one_row(X)
    if isinstance(X, Sequence) and not isinstance(X, str | bytes):  # a tuple, or a column of Hugging Face
        return list(X)
    column = X.to_arrow() if hasattr(X, "to_arrow") and hasattr(X, "dtype") else X  # a column of polars
    if hasattr(column, "type") and hasattr(column, "cast"):
        return without_views(column)
    table = as_arrow(X)
    return X if table is None else table


def _is_batch(part: Any) -> bool:
    """Whether an element of an iterator holds several rows."""
    if isinstance(part, list):
        return bool(part) and isinstance(part[0], str | bytes | dict | list)
    return hasattr(part, "iloc") or hasattr(part, "schema") or (isinstance(part, np.ndarray) and part.ndim == 2)


def _share_a_cache(a: Source, b: Source) -> bool:
    """Whether both sources read the same cache file, whose rows are hashed in one pass."""
    return cache_of(a) is not None and cache_of(a) == cache_of(b)


def _check_names(known: Array, given: list[Any]) -> None:
    if list(known) == given:
        return
    missing, new = [n for n in known if n not in given], [n for n in given if n not in set(known)]
    message = "The feature names should match those that were passed during fit.\n"
    for sentence, names in (("unseen at fit time", new), ("seen at fit time, yet now missing", missing)):
        if names:
            message += f"Feature names {sentence}:\n" + "".join(f"- {name}\n" for name in sorted(names)[:5])
    if not new and not missing:
        message += "Feature names must be in the same order as they were in fit.\n"
    raise DataError(message)
