"""Linear classifiers and regressors: the scikit-learn interface to a source, a learner and the training loop.

Both minimise the mean loss of w·x + b plus alpha R(w), with R = ½‖w‖² for "l2" and ‖w‖₁ for "l1"; the bias is never
penalised. `fit(X, y)` is exactly `fit_stream(from_arrays(X, y))`.
"""

from __future__ import annotations

import contextlib
import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Self

import numpy as np

from steepest import kernels
from steepest.data.chunk import Array, Chunk, concatenate
from steepest.data.raw import SAMPLE_ROWS, Survey, sample_columns, survey
from steepest.data.readers.raw_arrays import RawArrays
from steepest.data.readers.vw import VwSource, recording_names
from steepest.data.source import SHUFFLES, ArraySource, Source, as_targets, as_weights, from_arrays
from steepest.data.store.row_store import StoredSource, load_rows, store_rows
from steepest.data.tables.columns import Table, is_list_of_texts, python_values, read_table
from steepest.engine.checkpoint import Checkpoints
from steepest.engine.history import History
from steepest.engine.iterations import TOLERANCES, Iterations, Weights
from steepest.engine.loop import Executor, mean_loss, train
from steepest.engine.mixing import MIXES, SENDS, LocalShards, MixedState, MixingPlan, Rounds, vote_scores
from steepest.engine.parallel import KINDS, Shape, decide
from steepest.engine.stopping import Plan
from steepest.errors import DataError, NotConverged, ParameterError
from steepest.features.columns import TIME
from steepest.features.names import NAMES, NameBook
from steepest.features.vw_names import VwNames
from steepest.learners.base import State
from steepest.learners.batch.solvers import BATCH_SOLVERS, FINDINGS, SolverOptions
from steepest.learners.linear.auto import (
    CLEARLY,
    FEW_ENTRIES,
    FEW_TABLE_ENTRIES,
    RACE_ROWS,
    Choice,
    Problem,
    choose,
    race,
)
from steepest.learners.linear.linear import LinearLearner
from steepest.learners.linear.linear_settings import (
    ADAPTIVE,
    STOCHASTIC_SOLVERS,
    LinearSettings,
    penalty_kind,
    resolve_settings,
)
from steepest.learners.linear.sizes import DENSE_SHARE
from steepest.learners.losses import loss_for
from steepest.learners.targets import distinct
from steepest.models.base import Model, Run
from steepest.models.explain import ClassWeights, Contribution, SparseWeights, explain_row, top_features
from steepest.models.memory import NAMES_SHARE, MemoryPlan, Need, check_columns, parse_bytes, plan_hashing
from steepest.models.options import (
    LP,
    EarlyStopping,
    ElasticNet,
    EpsilonInsensitive,
    Forgetting,
    Hashed,
    Huber,
    Mixing,
    Option,
    Quantile,
    Replicas,
    Tolerance,
    Truncated,
)
from steepest.models.supervised import Classifier, Regressor
from steepest.parameters import at_least, choice, inside, whole

MIXING = ("n_shards", "rounds", "sync_seconds", "mix", "send")  # what a resumed mixture must share with its checkpoint
SURVEY_ROWS = 1 << 14  # counted to see how many features there are
DEFAULT_TOL = 1e-6  # of the batch solvers
CHOSEN_TOL = 1e-4  # of those that "auto" has chosen: predictions change no more
PAIRS_OF_WORDS = (1, 2)  # words and pairs of words
PAIR_ROWS = 2  # which have a word or a pair: what one row has alone says nothing about others
LEAST_TEXTS = 200  # of which rare words are left out: of few texts, most words are rare
CHARACTERS_PER_PAIR = 3  # a word of six gives itself and a pair
FULL_TABLE = 16  # entries per feature in arrays from which on most features are in use, and need not be numbered
VOTER = "voter."  # marks the arrays of a shard's model in a model file
VW_NAMES = "vw_names."  # marks those of a book of names
# Parameters that only stochastic gradients have, and their defaults.
STOCHASTIC = {
    "schedule": "auto",
    "eta0": "auto",
    "epochs": 5,
    "batch_size": 1,
    "average": "auto",
    "early_stopping": False,
    "parallel": "serial",
    "memory_budget": None,
    "half_life": math.inf,
    "time": None,
}


class LinearModel(Model):
    """The base of the linear classifier, regressor and ranker."""

    learner_type = LinearLearner
    settings_type = LinearSettings
    options: ClassVar[tuple[type[Option], ...]] = (
        Mixing,
        Replicas,
        ElasticNet,
        LP,
        Truncated,
        Forgetting,
        EarlyStopping,
        Tolerance,
    )
    _fixed: ClassVar[Mapping[str, Any]] = {}  # parameters that users of a kind of model cannot choose
    learner_: LinearLearner
    vw_names_: VwNames | None = None  # of the features of Vowpal Wabbit text

    loss: Any
    solver: Any
    average: bool | str
    parallel: Any
    alpha: float | str
    memory_budget: int | str | None
    max_iter: int

    _memory: MemoryPlan | None = None  # what the memory budget led to
    _warm: LinearLearner | None = None  # where the next fit starts
    _choice: Choice | None = None  # what solver="auto" led to
    _strength: Any = None  # what alpha="auto" led to: a learners.batch.strength.Strength
    _sample: Any = None  # raw rows on which the encoding was chosen, until the strength of the penalty is
    _shape: Any = None  # a features.shape.Shape
    calibration_: Any = None  # what rows held back show; see `models.calibration`
    _softmax: bool = False  # whether multi_class="auto" led to it
    _parallel: tuple[str, str | None] = ("serial", None)  # how the last fit learned in parallel, and why
    voters_: Sequence[LinearLearner] = ()  # the shards' own learners, if they vote

    # --------------------------------------------------------------------------------------------------- settings

    def flat_params(self) -> dict[str, Any]:
        """Constructor arguments with every choice as its plain value and its details under their flat names."""
        return {**self._fixed, **super().flat_params()}

    def settings_for(self, n_rows: int | None, chosen: str | None = None) -> LinearSettings:
        """The constructor's arguments, checked and resolved; what "auto" chose takes the place of the solver."""
        params = self.flat_params()
        chosen = chosen or ("stochastic" if self._choice is None else self._choice.solver)
        if params["solver"] == "auto" and chosen != "stochastic":
            params["solver"] = chosen
        if params["alpha"] == "auto" and self._strength is not None:
            params |= {"alpha": self._strength.alpha, "standardise": True}
        if params.get("multi_class") == "auto" and self._softmax:
            params["multi_class"] = "softmax"
        if self._memory is not None:
            params["dtype"] = self._memory.settings.dtype
            params["average"] = params["average"] if self._memory.settings.average != "no" else False
        settings = resolve_settings(self.task, params, n_rows)
        self._refuse_parallel(settings)
        return settings

    def _check_settings(self) -> None:
        """Refuses, before any row is read, parameters with which neither kind of solver could learn."""
        self.plan_epochs()
        try:
            self.settings_for(1, "stochastic")
        except ParameterError:
            if self.solver == "auto":
                with contextlib.suppress(ParameterError):
                    self.settings_for(1, "lbfgs")
                    return
            raise

    def _resolve(self, source: Source, run: Run) -> LinearSettings:
        self._choice = self._strength = None
        self._softmax = False
        if self.solver == "auto":
            rows = _in_memory(source)
            problem = self._problem(source, rows)
            self._choice = choose(problem)
            if self._choice.solver == "stochastic" and self._differ_in_size(problem, rows):
                self._choice = self._race(source, rows) or self._choice
            if rows is not None and self._choice.solver in BATCH_SOLVERS and problem.tol is None:
                self._softmax = problem.multi_class == "softmax"
                self._strength = self._find_strength(rows, source.labels)
        self._sample = None
        settings = self.settings_for(source.n_rows)
        if self._choice is not None and settings.eta0 is None:
            settings = replace(settings, first_step=self._choice.first_step)
        if self._memory is not None:
            run.monitor.event(self._memory.reason)
        for sentence in self._choices_made(settings.solver):
            run.monitor.choice(sentence)
        return settings

    def _untried(self, source: Source) -> list[str]:
        """What was not tried on the columns of a pipe, or of a table of numbers, as a sentence."""
        columns = getattr(getattr(self, "hasher_", None), "used_columns", ())
        if not columns and hasattr(self, "feature_names_in_") and self.solver == "auto":
            said = "X has numbers only, so it is learned as an array, with one weight for each column"
            return [f"{said}; hasher=st.Hasher() makes it a table, with curves and pairs of columns"]
        if source.read_once is None or all(column.kind == "text" for column in columns):
            return []
        said = f"{source.read_once} can be read only once, so the kinds of its columns follow from its first rows"
        return [f"{said}, and no curves or pairs of columns were tried; train on a file to have them"]

    def _choices_made(self, solver: str) -> list[str]:
        """Sentences that say what "auto" chose."""
        hasher = getattr(self, "hasher_", None)
        made = []
        if hasher is not None and hasher.ngrams != self.given_hasher().ngrams:
            rare = "" if hasher.least_rows < PAIR_ROWS else ", without those that only one row has"
            made = [f"texts became words and pairs of words{rare}"]
        made += [] if self._shape is None else self._shape.events
        made += [] if self._choice is None else [self._choice.sentence(solver)]
        if self._row_order() != self.shuffle:
            made.append(f"half_life: rows are learned in their order, so shuffle={self.shuffle!r} is left out")
        return made if self._strength is None else [*made, *self._strength.sentences()]

    def _training_rows(self, source: Source, seed: int) -> Source:
        """The source; its rows are loaded first if they may be few enough for an exact solver."""
        open_choice = self.solver == "auto" and self._tol() is None and not self._stochastic_option()
        return load_rows(source, FEW_TABLE_ENTRIES) if open_choice else source

    def _row_order(self) -> str:
        """The shuffle mode; with a half-life rows keep their order, since the last ones must be the newest."""
        forgets = getattr(self.schedule, "half_life", math.inf) != math.inf
        return "never" if forgets else super()._row_order()

    def _stochastic_option(self) -> str:
        """The first parameter set by the user that only stochastic solvers have, as "name=value", or ""."""
        params = self.flat_params()
        given = [name for name, default in STOCHASTIC.items() if name in params and params[name] != default]
        return f"{given[0]}={params[given[0]]!r}" if given else ""

    def choose_encoding(self, hasher: Any, columns: Any, y: Array | None) -> None:
        """Chooses numeric columns to encode with knots and pairs of columns to cross, on a sample of rows."""
        self._shape = None
        if y is None or self.kind not in ("classifier", "regressor"):
            return
        from steepest.features.shape import find_shape

        table = read_table(columns)
        if hasher.ngrams == "auto" and self._takes_pairs_of_words(hasher, table, y):
            hasher.ngrams = PAIRS_OF_WORDS
            if hasher.min_rows == "auto" and table.n_rows >= LEAST_TEXTS:
                hasher.min_rows = PAIR_ROWS
        self._sample = columns
        self._shape = find_shape(hasher, table, y, self.task, self.n_threads)
        hasher.use_knots(self._shape.bends)
        hasher.add_crosses(self._shape.pairs)

    def _most_counted(self) -> float:
        """Rare words are left out of small data only, if nobody asked for it: rows are read once more to count them."""
        return FEW_TABLE_ENTRIES if self.given_hasher().min_rows == "auto" else math.inf

    def _takes_pairs_of_words(self, hasher: Any, table: Table, y: Array) -> bool:
        """Whether there are texts, beside other columns or so few that the exact minimum can be found with pairs."""
        texts = [column.name for column in hasher.used_columns if column.kind == "text" and not column.is_bag]
        if hasher.weighting not in ("auto", "tfidf"):
            return False
        if len(texts) < len(hasher.used_columns):
            return bool(texts)
        if not LEAST_TEXTS <= table.n_rows < SAMPLE_ROWS or y.ndim > 1 or self.hasher is not None:
            return False
        n_outputs = len(distinct(y)) if self.task == "classify" else 1
        n_characters = sum(len(text or "") for name in texts for text in python_values(table.column(name)))
        return n_characters * n_outputs <= CHARACTERS_PER_PAIR * FEW_ENTRIES

    def _problem(self, source: Source, rows: ArraySource | None) -> Problem:
        """The properties of the data and the parameters from which a solver is chosen."""
        params = self.flat_params()
        kind, alpha, p = penalty_kind(params, source.n_rows)
        y = None if rows is None else rows.block.y
        several = y is not None and y.ndim == 2
        n_outputs = 1
        if self.task == "classify" and y is not None and not several:
            n_outputs = max(1, len(distinct(y)) - 1)
        loss = loss_for(str(params["loss"]), 1 if source.labels is None else len(source.labels) - 1)
        multi_class = str(params.get("multi_class", "ovr"))
        if multi_class == "auto":
            multi_class = "softmax" if n_outputs > 1 and params["loss"] in ("auto", "log") else "ovr"
        if n_outputs > 1:
            n_outputs += 1
        n_entries = None if rows is None else rows.count_entries()
        return Problem(
            loss="log" if multi_class == "softmax" else loss,
            penalty=kind,
            alpha=alpha,
            p=p,
            tol=None if self._tol() is None else at_least("tol", self._tol(), 0.0),
            multi_class=multi_class,
            stochastic_option=self._stochastic_option(),
            n_rows=source.n_rows,
            n_features=source.n_features,
            n_entries=n_entries,
            in_memory=rows is not None,
            n_outputs=n_outputs,
            several_targets=several,
            is_table=rows is not None and self._is_table(rows, n_entries or 0),
        )

    def _differ_in_size(self, problem: Problem, rows: ArraySource | None) -> bool:
        """Whether features may differ in scale: columns of several kinds, or arrays of unknown origin."""
        if problem.stochastic_option or problem.penalty != "l2" or problem.multi_class == "hashed":
            return False
        hasher = getattr(self, "hasher_", None)
        if hasher is None:
            return rows is not None and not problem.is_small and not problem.several_targets
        return any(column.kind != "text" for column in hasher.used_columns)

    def _race(self, source: Source, rows: ArraySource | None) -> Choice | None:
        """Compares stochastic solvers on a sample of rows; None if there are none. A pipe gets "adagrad" untested."""
        if rows is None and source.root.read_once is not None:
            return Choice("adagrad", "columns are of several kinds, so each feature has a step of its own")
        some = source.limit(RACE_ROWS) if rows is None else rows.sample(RACE_ROWS)
        chunks = list(some.shuffle("rows").epoch(0))
        if not chunks or chunks[0].y is None:
            return None
        sample = concatenate(chunks)
        assert sample.y is not None
        labels = distinct(sample.y).tolist() if self.task == "classify" and sample.y.ndim == 1 else []
        candidates = [self.settings_for(source.n_rows, solver) for solver in ("asgd", "adagrad")]
        return race(sample, candidates, labels, CLEARLY if getattr(self, "hasher_", None) is None else 0.0)

    def _is_table(self, rows: ArraySource, n_entries: int) -> bool:
        """Whether rows are dense or have columns of several kinds."""
        hasher = getattr(self, "hasher_", None)
        if hasher is not None:
            return any(column.kind != "text" for column in hasher.used_columns)
        return n_entries >= DENSE_SHARE * (rows.n_rows or 0) * (rows.n_features or 0)

    def _find_strength(self, rows: ArraySource, known: Array | None) -> Any:
        """The alpha that alpha="auto" resolves to, by held-out rows; None if it was given or cannot be tried."""
        from steepest.learners.batch.strength import choose_strength, may_differ_by_block

        params = self.flat_params()
        if params["alpha"] != "auto" or params["C"] is not None or params["penalty"] in (None, "none"):
            return None
        settings = self.settings_for(rows.n_rows)
        labels: list[Any] = []
        if self.task == "classify" and rows.block.y is not None:
            labels = distinct(rows.block.y).tolist()
            if len(labels) < 2:
                return None
            labels = labels if known is None else sorted(known.tolist())

        def new_learner(part: ArraySource) -> LinearLearner:
            return LinearLearner(settings, part.n_features or 0, labels)

        mixed = self._shape is not None and self._shape.mixed
        blocks = self._blocks(rows) if may_differ_by_block(settings) else None
        return choose_strength(rows, settings.solver, new_learner, self.n_threads, mixed=mixed, blocks=blocks)

    def _blocks(self, rows: ArraySource) -> Any:
        """The columns of a table as blocks of features that may need a penalty of their own; None for other rows."""
        from steepest.learners.batch.blocks import MOST_BLOCKS, Blocks

        n_features = rows.n_features or 0
        if getattr(self, "hasher_", None) is not None:
            if self._sample is None or not 1 < len(self.hasher_.used_columns) <= MOST_BLOCKS:
                return None
            names, features, numbers, rest = self.hasher_.columns_of_features(self._sample)
            blocks = Blocks(names, numbers, features, rest)
        elif 1 < n_features <= MOST_BLOCKS and self._is_table(rows, rows.count_entries()):
            shown = getattr(self, "feature_names_in_", [f"column {j}" for j in range(n_features)])
            blocks = Blocks(tuple(shown), np.arange(n_features))
        else:
            return None
        return blocks

    # -------------------------------------------------------------------------------------------------- learning

    def _fit(self, source: Source, validation: Source | None = None, run: Run | None = None) -> Self:
        super()._fit(source, validation, run)
        place = 0 if self._memory is None else 1  # behind the reason of the memory plan
        made = self._choices_made(self.learner_.settings.solver)
        self.history_.events[place:place] = self._untried(source) + made
        if self._strength is not None:
            if self.calibration_ is None:
                self._calibrate_by_held_back(self._strength.held, self._strength.later)
            self._strength = replace(self._strength, held=None, later=None, start=None)  # not needed again
        return self

    def _calibrate_by_held_back(self, held: Any, later: Any) -> None:
        """Hook: calibrates by scores of rows that the search for alpha held out (two `HeldBack`)."""

    def _record_names(self, source: Source) -> Source:
        """The source; names of features in Vowpal Wabbit text are recorded while it is read."""

        def listener(found: VwSource) -> VwNames:
            self.vw_names_ = VwNames.of(found, NAMES)
            return self.vw_names_

        self.vw_names_ = None
        return recording_names(source, listener)

    def _learn(self, settings: LinearSettings, source: Source, validation: Source | None, run: Run, seed: int) -> None:
        if settings.solver in BATCH_SOLVERS:
            self._minimise(settings, source, validation, run, seed)
            return
        super()._learn(settings, source, validation, run, seed)
        self.keep_names()

    def _first_learner(self, settings: LinearSettings, source: Source) -> LinearLearner:
        self._parallel = self._kind_of_parallel(settings, source)
        learner: LinearLearner = self.new_learner(self._in_parallel(settings, self._parallel[0]), source)
        if self._warm is not None:
            learner = self._warm.continued(learner.settings)
        elif isinstance(source, ArraySource) and len(source.block.indices) >= FULL_TABLE * max(1, learner.n_features):
            learner.keep_whole_tables()
        learner.n_threads = self.n_threads
        listeners: list[Any] = [source.root.encoder, self.vw_names_]
        for listener in listeners:
            if hasattr(listener, "heaviness"):
                listener.heaviness = learner.heaviness
        return learner

    def _executor(self, learner: LinearLearner, source: Source, plan: Plan) -> Executor:
        if self._parallel[0] != "mixing":
            return super()._executor(learner, source, plan)
        mixing = self.mixing_plan(plan.epochs)
        vote = self.flat_params()["vote"] is not False
        return Rounds(learner, LocalShards.of(learner, source, mixing), mixing, keep_voters=vote)

    def _fingerprint(self, plan: Plan) -> dict[str, Any]:
        if self._parallel[0] != "mixing":
            return {}
        params = self.flat_params()
        return {"mixing": [*(params[name] for name in MIXING), plan.epochs]}

    def _restorer(self, learner: LinearLearner) -> Any:
        restore = super()._restorer(learner)
        if self._parallel[0] != "mixing":
            return restore
        n_shards = self.flat_params()["n_shards"]
        return lambda state: MixedState.restored(restore(state), state, n_shards)

    def _finish(self, learner: LinearLearner, history: History, executor: Any) -> None:
        reason = self._parallel[1]
        if self._memory is not None and self._memory.reason not in history.events:
            history.events.insert(0, self._memory.reason)
        if reason is not None and reason not in history.events:
            history.events.append(reason)
        self._show_first_step(learner, history)
        learner.forget_rows()
        super()._finish(learner, history, executor)
        self.voters_ = getattr(executor, "voters", ())

    def _show_first_step(self, learner: LinearLearner, history: History) -> None:
        """Adds the first step size to every record of the history that lacks it."""
        for record in history if learner.first_step is not None else ():
            record.setdefault("eta0", learner.first_step)

    def _minimise(
        self, settings: LinearSettings, source: Source, validation: Source | None, run: Run, seed: int
    ) -> None:
        """Minimises over all rows by a batch solver; `run.rounds` limits the iterations, if given."""
        from steepest.learners.batch.batch_data import BatchData
        from steepest.learners.batch.objective import Objective

        choice("shuffle", self.shuffle, SHUFFLES)  # it is checked, though the order of rows has no meaning here
        source = store_rows(source)
        usual = DEFAULT_TOL if self._choice is None else CHOSEN_TOL
        tol = usual if self._tol() is None else at_least("tol", self._tol(), 0.0)
        tol_on = choice("tol_on", self.flat_params()["tol_on"], TOLERANCES)
        most = run.rounds or whole("max_iter", self.max_iter, 1)
        plan = replace(self.plan_epochs(run.rounds), epochs=most, tol=None)
        learner = self.new_learner(settings, source)
        learner.measure_sizes(source)
        by_block = None if self._strength is None else self._strength.by_block
        data = BatchData(source, learner, roots=None if by_block is None else by_block.roots)
        learner.rows_learned = data.n_rows
        self._parallel = ("serial", None)
        self._finish(learner, History(), None)
        objective = Objective(data, self.n_threads)
        if self._choice is not None and self._choice.warm:
            objective.warm = data.table_of(self._one_pass(learner, source, seed))
        start = self._warm or (None if self._strength is None else self._strength.start)
        if start is not None and set(start.book.labels) == set(learner.book.labels):
            objective.warm = data.table_of(start)
        schedule = self.flat_params()["schedule"]
        options = SolverOptions(str(schedule), settings.eta0, tol, seed, average=self.average is not False)
        solver = BATCH_SOLVERS[settings.solver](objective, options)
        all_steps = self._tol() is None and getattr(solver, "takes_all_steps", False)

        def measure(w: Array, held_out: Source) -> float:
            data.take_weights(w)
            return mean_loss(learner, held_out)

        executor = Iterations(solver, objective, tol=tol, tol_on=tol_on, measure=measure, all_steps=all_steps)
        checkpoints = None
        if run.checkpoint is not None:
            fingerprint = {
                "settings": learner.settings.as_dict(),
                "plan": [plan.epochs, tol, tol_on],
                "data": source.fingerprint(),
                "columns": data.n_features,
            }
            checkpoints = Checkpoints(run.checkpoint, Weights.restored, fingerprint, resume=run.resume, every=run.every)
        found, history = train(executor, plan, validation=validation, monitor=run.monitor, checkpoints=checkpoints)
        data.take_weights(found.w)
        self.adopt(learner, history, source)
        vars(self).update(getattr(solver, "findings", {}))
        if (complaint := getattr(solver, "complaint", None)) is not None:
            if not any(complaint in event for event in history.events):
                history.events.append(complaint)
            warnings.warn(complaint, NotConverged, stacklevel=4)

    def _one_pass(self, learner: LinearLearner, source: Source, seed: int) -> LinearLearner:
        """A learner after one stochastic pass over the rows."""
        settings = self.settings_for(source.n_rows, "stochastic")
        settings = replace(settings, class_weight=learner.settings.class_weight)
        first = LinearLearner(settings, learner.n_features, learner.book.labels)
        for chunk in source.shuffle(choice("shuffle", self.shuffle, SHUFFLES), seed).epoch(0):
            first.step(chunk)
        first.finish()
        return first

    def _learn_more(self, source: Source, classes: Any = None) -> Self:
        """Learns one pass over the source in its given order, for `partial_fit`."""
        if self.solver == "auto" and hasattr(self, "learner_") and self.learner_.settings.solver in BATCH_SOLVERS:
            self.learner_ = self.learner_.going_on(self.settings_for(None, "stochastic"))
        solver = self.learner_.settings.solver if hasattr(self, "learner_") else self.flat_params()["solver"]
        if solver in BATCH_SOLVERS:
            raise ParameterError(
                f"solver={solver!r} needs all rows at once, so partial_fit cannot work with it; call fit or "
                "fit_stream, or choose solver='sgd'"
            )
        if self.voters_:
            raise ParameterError("shards that vote cannot continue training; fit again, or set vote=False")
        if not hasattr(self, "learner_"):
            self._choice = None
            parallel = self.flat_params()["parallel"]
            kind = parallel if parallel in ("replicas", "hogwild") else "serial"
            learner = self.new_learner(self._in_parallel(self.settings_for(None), kind), source, classes)
            self.adopt(learner, History(events=[self._memory.reason] if self._memory else []), source)
        learner = self.learner_
        before = learner.rows_learned
        super()._learn_more(source, classes)
        learner.forget_rows()
        if self._memory is not None and learner.n_outputs > self._memory.n_outputs:
            self.history_.events.append(
                f"{learner.n_outputs} outputs, but memory_budget was planned for {self._memory.n_outputs}"
            )
            self._memory = replace(self._memory, n_outputs=learner.n_outputs)
        if learner.rows_learned.bit_length() > before.bit_length():  # the rows have doubled
            self.keep_names()
        return self

    def adopt(self, learner: LinearLearner, history: History, source: Source) -> None:
        """Makes a trained learner the fitted state; attributes of the last solver are removed."""
        for name in FINDINGS:
            vars(self).pop(name, None)
        super().adopt(learner, history, source)

    def continue_from(self, learner: LinearLearner | None) -> Self:
        """Starts the next fit at the weights of this learner; None for a fresh start."""
        self._warm = learner
        return self

    # --------------------------------------------------------------------------------------------------- parallel

    def _kind_of_parallel(self, settings: LinearSettings, source: Source | None) -> tuple[str, str | None]:
        """(mode of parallel learning, the reason if "auto" chose it)."""
        params = self.flat_params()
        kind = choice("parallel", params["parallel"], KINDS)
        if kind == "auto" and settings.forgets:
            return "serial", "parallel='auto' learns serially: old rows are forgotten one by one"
        if kind != "auto":
            return "serial" if kind == "mixing" and params["n_shards"] == 1 else kind, None
        shared_out = _independent_outputs(settings, source) // kernels.outputs_per_thread
        if min(self.n_threads, shared_out) > 1:
            return "serial", "parallel='auto' lets threads share out the outputs: the bits are those of one thread"
        n_weights = row_length = None
        if settings.table_bits:
            n_weights = 1 << settings.table_bits
        elif source is not None and source.n_features is not None:
            classes = 1 if source.labels is None or len(source.labels) < 3 else len(source.labels)
            n_weights = source.n_features * classes
        if isinstance(source, ArraySource):
            row_length = len(source.block.indices) / max(1, source.block.n_rows)
        shape = Shape(None if source is None else source.n_rows, n_weights, row_length)
        n_round = self._in_parallel(settings, "replicas")
        if n_round.l1 > 0 and n_round.solver not in ADAPTIVE:
            return (
                "serial",
                f"parallel='auto' learns serially: the 1-norm of solver={settings.solver!r} cannot be shared",
            )
        seeded = self.random_state is not None
        return decide(shape, self.n_threads, n_round.n_replicas * n_round.sync_every, seeded=seeded)

    def _in_parallel(self, settings: LinearSettings, kind: str) -> LinearSettings:
        """The settings, changed for this mode of parallel learning."""
        if kind == "hogwild":
            return replace(settings, hogwild=True)
        if kind != "replicas":
            return settings
        params = self.flat_params()
        n_replicas = whole("n_replicas", params["n_replicas"], 1)
        return replace(settings, n_replicas=n_replicas, sync_every=whole("sync_every", params["sync_every"], 1))

    def _refuse_parallel(self, settings: LinearSettings) -> None:
        kind = choice("parallel", self.flat_params()["parallel"], KINDS)
        if settings.solver in BATCH_SOLVERS and kind not in ("serial", "auto"):
            raise ParameterError(
                f"solver={settings.solver!r} works on all rows at once and takes its threads from n_jobs; "
                f"leave parallel={kind!r} out, or choose solver='sgd'"
            )
        if kind in ("replicas", "hogwild") and settings.l1 > 0 and settings.solver not in ADAPTIVE:
            raise ParameterError(
                f"parallel={kind!r} cannot share the clocks by which solver={settings.solver!r} shrinks weights; "
                "use solver='ftrl' or parallel='mixing'"
            )
        if kind not in ("serial", "auto") and settings.solver == "coin":
            raise ParameterError(
                f"solver='coin' bets row after row; parallel={kind!r} needs another solver, such as 'sgd'"
            )
        if kind not in ("serial", "auto") and settings.forgets:
            half_life = self.flat_params()["half_life"]
            raise ParameterError(f"half_life={half_life!r} forgets row after row; leave parallel={kind!r} out")
        if kind == "mixing":
            self.mixing_plan(whole("epochs", self.epochs, 1))

    def mixing_plan(self, epochs: int) -> MixingPlan:
        """The plan for parallel="mixing" over this many epochs, checked."""
        params = self.flat_params()
        rounds = epochs if params["rounds"] is None else whole("rounds", params["rounds"], 1)
        if rounds > epochs and rounds % epochs:
            raise ParameterError(
                f"rounds={rounds} is not a multiple of epochs={epochs}; an epoch is cut in equal rounds"
            )
        vote, seconds = params["vote"], params["sync_seconds"]
        if vote not in (False, True, "ensemble"):
            raise ParameterError(f"vote={vote!r} is unknown; give True, False or 'ensemble'")
        if vote and self.task != "classify":
            raise ParameterError(f"vote={vote!r} is for classifiers; numbers are averaged by mixing itself")
        if seconds is not None and params["rounds"] is not None:
            raise ParameterError(f"sync_seconds={seconds} contradicts rounds={params['rounds']}; give one of them")
        return MixingPlan(
            n_shards=whole("n_shards", params["n_shards"], 1),
            rounds=rounds,
            mix=choice("weights", params["mix"], MIXES),
            send=choice("send", params["send"], SENDS),
            n_threads=self.n_threads,
            seconds=None if seconds is None else inside("sync_seconds", seconds, 0.0, math.inf),
        )

    # ----------------------------------------------------------------------------------------------------- memory

    def _is_raw(self, X: Any) -> bool:
        return self.flat_params()["time"] is not None or super()._is_raw(X)  # which is a column by its name

    def _hasher_overrides(self, hasher: Any) -> dict[str, Any]:
        column = self.flat_params()["time"]
        given = {} if column is None else {"kinds": {**(hasher.kinds or {}), str(column): TIME}}
        if self._memory is None:
            return given
        names = self._planned_names(hasher, parse_bytes(self.memory_budget))
        return given | {"n_bits": self._memory.n_bits, "names": names}

    def _plan_for_arrays(self, X: Any, y: Any, classes: Any = None, *, more_to_come: bool = False) -> None:
        """Plans the memory for rows in memory if there is a budget, and surveys raw columns; nothing is learned yet."""
        self.vw_names_ = None
        self._memory = self._shape = None
        if self.memory_budget is None or y is None:
            if y is not None and not more_to_come and (self.hasher is not None or self._is_raw(X)):
                self._survey_arrays(X, y)
            return
        targets = np.asarray(y)
        n_rows, n_targets = len(targets), targets.shape[1] if targets.ndim == 2 else 0
        known = targets.ravel() if classes is None else np.asarray(classes)
        labels = frozenset(() if n_targets else np.unique(known).tolist())
        if self.hasher is None:
            self._plan_memory(Survey(n_rows, labels, n_targets, from_arrays(X).n_features or 0))
            return
        some, n_some = X, n_rows
        if n_rows > SURVEY_ROWS and not isinstance(X, Mapping):
            some, n_some = X[:SURVEY_ROWS], SURVEY_ROWS
        self._plan_memory(Survey(n_rows, labels, n_targets, 0, some, 0 if more_to_come else n_some))

    def _survey_arrays(self, X: Any, y: Any) -> None:
        """Decides the kinds of columns and their encoding on a sample from all over X, as for files."""
        hasher = self.own_hasher()
        if isinstance(X, list) and is_list_of_texts(X) and not LEAST_TEXTS <= len(X) < SAMPLE_ROWS:
            return
        if (sample := sample_columns(RawArrays(X, y))) is not None:
            self.choose_encoding(hasher.survey(sample[0]), *sample)

    def _plan_for_stream(self, source: Source) -> None:
        """Checks the parameters, and plans the memory if there is a budget; the source is read once for it."""
        self._memory = self._shape = None
        self._check_settings()
        if self.memory_budget is not None:
            parse_bytes(self.memory_budget)
            self._plan_memory(survey(source))

    def _plan_memory(self, seen: Survey) -> None:
        budget = parse_bytes(self.memory_budget)
        n_outputs = seen.n_targets or 1
        if self.task == "classify" and not seen.n_targets and len(seen.labels) > 2:
            n_outputs = len(seen.labels)
        need = Need(self.settings_for(seen.n_rows), n_outputs)
        if seen.columns is None:
            self._memory = check_columns(budget, need, seen.n_features)
            return
        hasher = self.given_hasher()
        names = self._planned_names(hasher, budget)
        n_distinct = None
        if seen.first_rows:
            n_distinct = hasher.count_distinct(seen.columns) * seen.n_rows / seen.first_rows
        self._memory = plan_hashing(
            budget,
            replace(need, names_bytes=NameBook(names).n_bytes if names else 0, counts=hasher.counts_rows),
            n_bits=None if hasher.n_bits == type(hasher)().n_bits else hasher.n_bits,
            n_distinct=n_distinct,
            may_drop_average=self.solver == "auto" and self.average == "auto",
        )

    def _planned_names(self, hasher: Any, budget: int) -> int:
        """How many feature names to keep: as requested, or the default reduced to fit the budget."""
        if hasher.names != "auto":
            return int(hasher.names)
        return max(1, min(NAMES, NAMES * budget // (NAMES_SHARE * NameBook(NAMES).n_bytes)))

    # ------------------------------------------------------------------------------------------------- prediction

    def _chunk(self, X: Any, *, columns: bool = True) -> Chunk:
        if self.vw_names_ is not None and is_list_of_texts(X):
            return self.vw_names_.to_chunk(X)
        return super()._chunk(X, columns=columns)

    def _kernels_check_columns(self) -> bool:
        """Those of one stochastic learner do, unless rows are read before, to choose a solver, scales or shards."""
        alone = self.parallel == "serial" and self.solver in STOCHASTIC_SOLVERS
        return alone and self.kind != "ranker" and not isinstance(self.alpha, str)

    def source_of(self, X: Any, y: Any = None, sample_weight: Any = None, *, columns: bool = True) -> ArraySource:
        """Rows in memory; lines of Vowpal Wabbit text are read as those that the model has learned from."""
        if self.vw_names_ is None or not is_list_of_texts(X):
            return super().source_of(X, y, sample_weight, columns=columns)
        rows, targets = self.vw_names_.to_chunk(X, learn=True), as_targets(y)
        if len(targets) != rows.n_rows:
            raise DataError(f"X has {rows.n_rows} rows but y has {len(targets)}; give one target per row")
        weight = None if sample_weight is None else as_weights(sample_weight, rows.n_rows)
        return ArraySource(replace(rows, y=targets, weight=weight))

    def _scores(self, chunk: Chunk) -> Array:
        if not self.voters_:
            return self.learner_.scores(chunk, self.n_threads)
        loss, ensemble = self.learner_.loss, self.flat_params()["vote"] == "ensemble"
        link = (lambda scores: np.asarray(loss.probability(scores))) if ensemble and loss.link is not None else None
        voters = [lambda rows, voter=voter: voter.scores(rows, self.n_threads) for voter in self.voters_]
        return vote_scores(voters, chunk, link)

    def _scores_of(self, X: Any) -> Array:
        """Scores of rows in memory; raw rows are hashed and scored in one kernel call, twice as fast for one text."""
        hasher = getattr(self, "hasher_", None)
        if hasher is not None and self.vw_names_ is None and not self.voters_ and hasattr(self, "learner_"):
            scores = self.learner_.scores_of_raw(hasher.score_task(X), self.n_threads)
            if scores is not None:
                return scores
        return super()._scores_of(X)

    def _row_losses(self, coded: Chunk, scores: Array) -> tuple[Array, Array]:
        """(loss, weight) of each row; where shards vote, the loss is that of the averaged model."""
        return self.learner_.losses(coded, None if self.voters_ else scores)

    # ------------------------------------------------------------------------------------------- what was learned

    def _names_source(self) -> Any:
        """The object that maps buckets to names: the hasher, or the names recorded from Vowpal Wabbit text."""
        return getattr(self, "hasher_", None) or self.vw_names_

    def keep_names(self) -> None:
        """Keeps the names of the heaviest weights, whatever is read from now on."""
        book = getattr(self._names_source(), "names_", None)
        if book is not None:
            book.keep_heaviest(self.learner_.heaviness)

    @property
    def coef_(self) -> Array:
        """Weights, one row per output: shape (1, d) for two classes or one target.

        With multi_class="hashed", the matrix is read from the shared table; a feature that was never seen shows the
        weight that it would use.
        """
        shown: Any = vars(self).get("_sparse_coef")
        return self._output_weights() if shown is None else shown

    @property
    def intercept_(self) -> Array:
        """Biases, one per output."""
        self._check_learner()
        return self._by_output(np.array(self.learner_.used_weights()[2]))

    @property
    def n_nonzero_(self) -> int:
        """Number of weights that are not zero."""
        return self.learner_.count_nonzero()

    def _output_weights(self) -> Array:
        """The weights, one row per output."""
        self._check_learner()
        return self._by_output(self.learner_.weight_matrix())

    def _by_output(self, values: Array) -> Array:
        """Values per output, in the order in which this estimator shows them."""
        return values

    def _weights_by_output(self) -> list[tuple[Any, Any]]:
        """(output, its weights by feature) pairs; weights in a shared table are read on demand."""
        return list(enumerate(self._rows_of_weights()))

    def _rows_of_weights(self) -> list[Any]:
        """The weights of each output, as an array or as those of the features in use."""
        features, table, _ = self.learner_.used_weights()
        if self.learner_.shared or features is None:
            return list(self._output_weights())
        rows = self._by_output(np.ascontiguousarray(table.T))
        return [SparseWeights(features, row, self.learner_.n_features) for row in rows]

    def top_features(self, k: int = 20, *, against: bool = False) -> dict[Any, list[tuple[str, float]]]:
        """The k features with the largest weights for each class (or for a high target), or `against` it."""
        self._check_fitted()
        names = getattr(self, "feature_names_in_", None)
        return top_features(self._weights_by_output(), k, self._names_source(), names, against=against)

    def explain(self, x: Any) -> dict[Any, list[Contribution]]:
        """Returns what each feature of one row adds to the score of each class (or to the target), largest first."""
        self._check_fitted()
        hasher = self._names_source()
        if hasher is self.vw_names_ and not isinstance(x, str):
            hasher = None
        names = getattr(self, "feature_names_in_", None)
        return explain_row(x, self._weights_by_output(), hasher, self._chunk, names)

    def collision_report(self, data: Any = None) -> Any:
        """Returns how many features share a bucket of the hasher, and how much of the weight is named or shared.

        With data (raw rows, or a source of them), features are counted one by one, and the error of the hash kernel is
        measured for several numbers of bits; without, the report is estimated from the buckets in use.
        """
        self._check_fitted()
        hasher = self._names_source()
        if hasher is None:
            raise DataError("there is no hasher in this model, so no collisions either")
        return hasher.collision_report(self.learner_.total_weights() if self.learner_.shared else self.coef_, data)

    def sparsify(self) -> Self:
        """Makes `coef_` a scipy CSR matrix, which saves memory if most weights are zero."""
        from scipy.sparse import csr_matrix

        self._check_fitted()
        features, table, _ = self.learner_.used_weights()
        if self.learner_.shared or features is None:
            self._sparse_coef: Any = csr_matrix(self._output_weights())
            return self
        used = csr_matrix(self._by_output(np.ascontiguousarray(table.T)))
        shape = (used.shape[0], self.learner_.n_features)
        self._sparse_coef = csr_matrix((used.data, features[used.indices], used.indptr), shape=shape)
        return self

    def densify(self) -> Self:
        """Makes `coef_` an array again."""
        self._sparse_coef = None
        return self

    def objective(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Returns the mean loss on these rows plus alpha R(w): what training minimises."""
        self._check_fitted()
        source = from_arrays(X, y, sample_weight)
        self.learner_.targets.code(source.block)  # refuses classes that were never seen
        return mean_loss(self.learner_, source) + self.learner_.penalty()

    # ------------------------------------------------------------------------------------------------------ files

    def _whole_state(self) -> State:
        state = self.learner_.compact_state()
        for number, voter in enumerate(self.voters_):
            state |= {f"{VOTER}{number}.{name}": array for name, array in voter.state.items() if name != "labels"}
        if self.vw_names_ is not None:
            state |= {VW_NAMES + name: array for name, array in self.vw_names_.state().items()}
        return state

    def _take_state(self, settings: Any, state: State) -> None:
        super()._take_state(settings, state)
        voters: list[LinearLearner] = []
        while (mark := f"{VOTER}{len(voters)}.") + "counters" in state:
            own = {name.removeprefix(mark): array for name, array in state.items() if name.startswith(mark)}
            voters.append(self._restore(self.learner_.settings, {**own, "labels": state["labels"]}))
        self.voters_ = voters
        names = {name.removeprefix(VW_NAMES): array for name, array in state.items() if name.startswith(VW_NAMES)}
        self.vw_names_ = VwNames.from_state(names) if names else None


def _in_memory(source: Source) -> ArraySource | None:
    """The rows of a source as arrays if they are in memory or can be stored there, else None."""
    if isinstance(source, StoredSource):
        return source.rows()
    return source if isinstance(source, ArraySource) else None


def _independent_outputs(settings: LinearSettings, source: Source | None) -> int:
    """The number of outputs that can be learned independently of each other; 1 if unknown."""
    apart = settings.multi_class == "ovr" and not settings.table_bits
    if source is None or source.labels is None or not apart or (settings.l1 > 0 and settings.solver not in ADAPTIVE):
        return 1
    return len(source.labels)


class LinearClassifier(Classifier, LinearModel):
    """Linear classifier: minimises the mean loss plus a penalty, (1/n) Σ loss(w·x + b, y) + alpha R(w).

    Parameters
    ----------
    loss : {"auto", "log", "hinge", "squared_hinge", "exponential", "modified_huber", "perceptron", "squared"}
        Loss function: "log" is logistic regression, "hinge" the support vector machine. "perceptron" with average=True
        is the averaged perceptron; "squared" is least squares on -1 and +1. "auto" is "log" for two classes and for
        multi_class="softmax", and "squared_hinge" for more classes or several labels per row, where it is more
        accurate; `history_.events` reports the choice. Set "log" if you need probabilities for many classes.
    penalty : {"l2", "l1", "elasticnet", "lp", "norm2", "max", "none"}
        Penalty R(w) on the weights: "l2" is ½‖w‖², "l1" is ‖w‖₁ and sets useless weights to zero. "norm2" is ‖w‖ and
        "max" the largest |w|, both with solver="gd" only. `ElasticNet(l1_ratio=0.15)` and `LP(p=1.5)` set details.
    alpha : float or "auto"
        Strength of the penalty. "auto" chooses it by the loss on held-out rows if the solver is exact, and is 1e-6 for
        stochastic gradients; `history_.events` lists what was tried. With "auto", dense columns are standardised
        internally (centred, divided by their standard deviation); with a number, rows are used as they are. Raise it if
        the model overfits.
    C : float, optional
        Inverse strength of the penalty, instead of alpha: alpha = 1 / (C n) for n rows, as in support vector machines.
    solver : {"auto", "sgd", "asgd", "adagrad", "ftrl", "coin", "truncated", "gd", "closed_form", "cg", "lbfgs", ...}
        Algorithm that minimises the objective. One row at a time: "sgd", "asgd" (which averages the iterates),
        "adagrad" and "ftrl" (one step size per feature), "truncated" (the truncated gradient) and "coin" (no step
        size). Over all rows at once: "gd", "closed_form", "cg", "lbfgs", "newton_cg", "dual_cd", "saga" and "cd".
        "auto" computes the exact minimum if the rows are few and the loss is smooth, or if `tol` is below 1e-4;
        otherwise it is stochastic, as "stochastic" always is. `history_.events` reports the choice and the reason.
        `Truncated(every=10)` sets the details of "truncated".
    schedule : {"auto", "constant", "invsqrt", "bottou", "optimal", "adaptive"}
        How the step size falls from `eta0`. `Forgetting(half_life=10_000)` also gives old rows less weight, for streams
        that change.
    eta0 : float or "auto"
        First step size; "auto" calibrates it on the first thousand rows.
    epochs : int
        Passes over the data.
    batch_size : int
        Rows per step. Their gradients are computed at the same weights and added.
    tol : float, Tolerance or None
        Improvement below which training stops. Stochastic solvers stop if the objective improves by less than this
        share in two epochs; batch solvers when the gradient has fallen to this share of its first length, 1e-6 if None.
        `Tolerance(1e-8, on="objective")` compares another quantity.
    max_iter : int
        Maximum number of iterations of a batch solver.
    early_stopping : bool or EarlyStopping
        Hold out a tenth of the rows, stop after two epochs without improvement on them, and keep the best model.
        `EarlyStopping(fraction=0.1, patience=2, refit=True)` changes these numbers, and with refit=True trains on all
        rows afterwards, for the best number of epochs.
    average : {"auto", False, True, "uniform", "eta", "poly"}
        Average of the iterates that is returned. "uniform" weights all equally, "poly" or True late ones more, "eta" by
        their step size; False returns the last iterate. "auto" averages with solver="asgd" only. With solver="gd" and a
        given `eta0` or `schedule`, False is textbook gradient descent: `max_iter` plain steps, and the last iterate.
    multi_class : {"auto", "ovr", "softmax", "hashed"}
        How more than two classes are learned: each against the rest ("ovr"), or all together ("softmax"). "hashed" is
        "ovr" in one table of weights that all classes share, for thousands of classes; `Hashed(bits=22)` sets its size.
        "auto" is "softmax" if few rows are minimised exactly under the log loss, and otherwise "ovr". A y with several
        0/1 columns is multi-label; if every training row has at least one label, so has every prediction.
    fit_intercept : bool
        Learn a bias b.
    class_weight : None, "balanced" or {label: weight}
        Factors for the weights of the rows of each class. "balanced" gives all classes the same total weight; set it if
        rare classes matter as much as frequent ones.
    shuffle : {"blocks", "rows", "once", "never"}
        Order of the rows in every epoch. "blocks" shuffles runs of up to 128 rows, "rows" single rows, "once" single
        rows in the same order in all epochs; "never" keeps the order of the data.
    parallel : {"serial", "replicas", "hogwild", "mixing", "auto"}
        How several learners share the rows. "serial" is one learner; "replicas" add up what they have learned; under
        "hogwild" threads write to the same weights without locks (for large tables; results differ from run to run);
        "mixing" averages shards that learn separately. "auto" chooses, and reports the choice in `history_.events`.
        `Replicas(n=2, sync_every=2048)` and `Mixing(n_shards=8, ...)` set the details.
    n_jobs : int
        Number of threads; -1 uses all cores. Results are bit-identical for any number, except under "hogwild".
    dtype : {"float32", "float64"}
        Type of the weights.
    random_state : int, generator or None
        Seed: the same number gives bit-identical results.
    verbose : int
        1 prints one line per epoch to stderr.
    hasher : Hasher, optional
        Turns raw X (texts, dicts, a DataFrame or an Arrow table) into features, and is saved in the model file. Without
        one, raw X gets `Hasher()`.
    memory_budget : int or str, optional
        Limit of the memory for training, such as "512MB". The hasher's bits, the width of the weights and averaging are
        chosen to fit, and `history_.events` says why. Values that you set yourself are kept: copies, averages, names,
        and an n_bits other than the default.

    Attributes
    ----------
    coef_, intercept_, classes_, n_iter_, n_features_in_, history_, n_nonzero_
    margin_ : float
        1/‖w‖, half the width of the band between two classes.
    dual_coef_, dual_gap_, slacks_, support_ : with solver="dual_cd" only
        The dual variables, a bound on the distance of the objective from its optimum, the hinge loss of each row, and
        the support vectors: the rows whose dual variables are not zero.

    Examples
    --------
    >>> import steepest as st
    >>> X, y = [[0.0, 1.0], [1.0, 0.0], [0.0, 2.0], [2.0, 0.0]], ["no", "yes", "no", "yes"]
    >>> model = st.LinearClassifier("hinge", alpha=1e-3, random_state=0).fit(X, y)
    >>> model.predict([[0.0, 3.0], [3.0, 0.0]]).tolist()
    ['no', 'yes']

    References
    ----------
    Bottou, L. (2010). Large-scale machine learning with stochastic gradient descent.
    """

    options: ClassVar[tuple[type[Option], ...]] = (*LinearModel.options, Hashed)
    multi_class: Any

    def __init__(
        self,
        loss: Any = "auto",
        *,
        penalty: Any = "l2",
        alpha: float | str = "auto",
        solver: Any = "auto",
        schedule: str | Forgetting = "auto",
        eta0: float | str = "auto",
        epochs: int = 5,
        batch_size: int = 1,
        tol: float | Tolerance | None = None,
        early_stopping: bool | EarlyStopping = False,
        average: bool | str = "auto",
        fit_intercept: bool = True,
        multi_class: Any = "auto",
        class_weight: Any = None,
        shuffle: str = "blocks",
        parallel: Any = "serial",
        n_jobs: int = 1,
        dtype: str = "float32",
        hasher: Any = None,
        random_state: Any = None,
        verbose: int = 0,
        C: float | None = None,
        memory_budget: int | str | None = None,
        max_iter: int = 1000,
    ) -> None:
        self._store(locals())

    def adopt(self, learner: LinearLearner, history: History, source: Source) -> None:
        """Makes a trained learner the fitted state, and notes the loss that "auto" chose."""
        super().adopt(learner, history, source)
        if self.loss == "auto" and learner.loss.name != "log":
            name, outputs = learner.loss.name, learner.n_outputs
            sentence = f"loss='auto' chose {name!r} for {outputs} outputs; loss='log' gives better probabilities"
            if sentence not in history.events:
                history.events.append(sentence)

    def _loss_name(self) -> str:
        return self.learner_.loss.name if hasattr(self, "learner_") else loss_for(self.loss, 1)

    def _is_softmax(self) -> bool:
        return bool(self.learner_.settings.multi_class == "softmax")

    def _by_output(self, values: Array) -> Array:
        if self.learner_.shared and not self.learner_.several_targets and len(self._label_order) <= 2:
            first, last = self._label_order[:1], self._label_order[-1:]
            return np.asarray((values[last] - values[first]) / 2)  # two classes have a column each there
        return super()._by_output(values)

    def _weights_by_output(self) -> list[tuple[Any, Any]]:
        if self.learner_.shared:
            return self._shared_weights()
        weights = self._rows_of_weights()
        if len(weights) == 1:  # one column speaks for the second class, and negated for the first
            weights = [-weights[0], weights[0]]
        return list(zip(self.classes_.tolist(), weights, strict=False))

    def _shared_weights(self) -> list[tuple[Any, Any]]:
        learner, labels = self.learner_, self.classes_.tolist()
        if learner.several_targets:
            return [(label, ClassWeights(learner, output)) for output, label in enumerate(labels)]
        order = self._label_order.tolist()
        if len(order) == 2:
            return [(labels[k], ClassWeights(learner, order[k], order[1 - k])) for k in (0, 1)]
        return [(label, ClassWeights(learner, output)) for label, output in zip(labels, order, strict=True)]

    @property
    def margin_(self) -> float:
        """Half the width of the band between two classes, 1/‖w‖."""
        self._check_learner()
        if self.learner_.n_outputs != 1:
            raise AttributeError("margin_ is defined for two classes")
        norm = float(np.linalg.norm(self.learner_.used_weights()[1].astype(np.float64)))
        return 1 / norm if norm else math.inf


class LinearRegressor(Regressor, LinearModel):
    """Linear regressor: minimises the mean loss plus a penalty, (1/n) Σ loss(w·x + b, y) + alpha R(w).

    The other parameters are those of LinearClassifier.

    Parameters
    ----------
    loss : {"squared", "huber", "epsilon_insensitive", "quantile", "poisson"}
        Loss function of the residual r. "squared" is ½ r² and predicts the mean; "huber" is ½ r² up to epsilon and
        linear beyond, for targets with outliers; "epsilon_insensitive" is |r| beyond epsilon; "quantile" predicts a
        quantile; "poisson" is for counts and predicts exp(w·x + b). `Huber(epsilon=0.1)`,
        `EpsilonInsensitive(epsilon=0.1)` and `Quantile(0.9)` set the details.

    Examples
    --------
    >>> import steepest as st
    >>> model = st.LinearRegressor(epochs=50, random_state=0).fit([[0.0], [1.0], [2.0], [3.0]], [1.0, 3.0, 5.0, 7.0])
    >>> bool(abs(model.predict([[4.0]])[0] - 9) < 0.5)
    True

    References
    ----------
    Bottou, L. (2010). Large-scale machine learning with stochastic gradient descent.
    """

    options: ClassVar[tuple[type[Option], ...]] = (*LinearModel.options, Huber, EpsilonInsensitive, Quantile)

    def __init__(
        self,
        loss: Any = "squared",
        *,
        penalty: Any = "l2",
        alpha: float | str = "auto",
        solver: Any = "auto",
        schedule: str | Forgetting = "auto",
        eta0: float | str = "auto",
        epochs: int = 5,
        batch_size: int = 1,
        tol: float | Tolerance | None = None,
        early_stopping: bool | EarlyStopping = False,
        average: bool | str = "auto",
        fit_intercept: bool = True,
        shuffle: str = "blocks",
        parallel: Any = "serial",
        n_jobs: int = 1,
        dtype: str = "float32",
        hasher: Any = None,
        random_state: Any = None,
        verbose: int = 0,
        C: float | None = None,
        memory_budget: int | str | None = None,
        max_iter: int = 1000,
    ) -> None:
        self._store(locals())
