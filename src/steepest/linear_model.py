"""What linear classifiers and regressors share: sources in, a learner, the training loop, and a look inside.

`fit(X, y)` is exactly `fit_stream(from_arrays(X, y))`; with a hasher, X may be raw, and its features keep their names.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

from steepest.budget import NAMES_SHARE, MemoryPlan, Need, check_columns, parse_bytes, plan_hashing
from steepest.data.chunk import Array, Chunk
from steepest.data.kept import keep_rows
from steepest.data.parameters import ParameterError, at_least, choice, whole
from steepest.data.raw import Survey, encoder_of, survey
from steepest.data.source import SHUFFLES, ArraySource, Source, from_arrays
from steepest.engine.batch import TOLERANCES, BatchCheckpoints, BatchPlan, minimise
from steepest.engine.checkpoint import Checkpoints
from steepest.engine.history import History
from steepest.engine.loop import Monitor, mean_loss, train
from steepest.engine.mixing import Common, local_team, mix_rounds, vote_scores
from steepest.engine.stopping import Plan
from steepest.learners.auto import Choice, Problem, choose
from steepest.learners.base import State
from steepest.learners.batch import BATCH_SOLVERS, FINDINGS, SOLVERS, SolverOptions
from steepest.learners.linear import LinearLearner
from steepest.learners.linear_settings import LinearSettings, penalty_kind, resolve_settings
from steepest.learners.losses import loss_for
from steepest.linear_inside import LinearInside
from steepest.linear_parallel import ParallelWishes
from steepest.model import NAMES, threads
from steepest.names import NameBook
from steepest.vw_names import VwNames

SURVEY_ROWS = 1 << 14  # looked at to see how many features there are
DEFAULT_TOL = 1e-6  # of the batch solvers
VOTER = "voter."  # marks the arrays of a shard's model in a model file
VW_NAMES = "vw_names."  # marks those of a book of names
# Parameters that only stochastic gradients have, and their defaults.
STOCHASTIC = {"schedule": "auto", "eta0": "auto", "batch_size": 1, "average": "auto", "memory_budget": None}


@dataclass(frozen=True, slots=True)
class _Run:
    """Who is told of a fit, and where its state is kept."""

    monitor: Monitor | None
    checkpoint: str | Path | None
    resume: bool

    def phase(self, name: str) -> _Run:
        """The same for a part of the fit that keeps its state by itself."""
        return replace(self, checkpoint=None if self.checkpoint is None else Path(self.checkpoint) / name)


class LinearModel(LinearInside, ParallelWishes):
    """What classifier and regressor share."""

    _task: ClassVar[str]
    _fixed: ClassVar[Mapping[str, Any]] = {}  # parameters that users of a kind of model cannot choose
    _learner: LinearLearner
    history_: History

    loss: str
    penalty: str
    alpha: float
    l1_ratio: float
    solver: str
    schedule: str
    eta0: float | str
    epochs: int
    batch_size: int
    tol: float | None
    early_stopping: bool | str
    average: bool | str
    fit_intercept: bool
    shuffle: str
    dtype: str
    C: float | None
    p: float
    epsilon: float
    quantile: float
    truncate_every: int
    truncate_below: float
    validation_fraction: float
    patience: int
    memory_budget: int | str | None
    max_iter: int
    tol_on: str

    _plan: MemoryPlan | None = None  # what the memory budget led to
    _warm: LinearLearner | None = None  # where the next fit starts
    _choice: Choice | None = None  # what solver="auto" led to

    # -------------------------------------------------------------------------------------------------- learning

    def _fit(
        self,
        source: Source,
        validation: Source | None = None,
        monitor: Monitor | None = None,
        checkpoint: str | Path | None = None,
        resume: bool = False,
    ) -> Self:
        seed = self._seed()
        if self.early_stopping not in (False, True, "refit"):
            raise ParameterError(f"early_stopping={self.early_stopping!r} is unknown; give True, False or 'refit'")
        if self.early_stopping == "refit" and validation is not None:
            raise ParameterError(
                "early_stopping='refit' holds out rows itself, to learn from them in the end; leave the validation "
                "source out, or give early_stopping=True"
            )
        if validation is not None:
            shared = _share_a_cache(source, validation)
        source = self._training_rows(self._named(self._hashed(source, learn=True)), seed)
        self._choice = self._choose(source) if self.solver == "auto" else None
        settings = self._settings(source.n_rows)
        if validation is not None:
            validation = self._training_rows(self._hashed(validation, learn=shared), seed)
        run = _Run(monitor or self._monitor(), checkpoint, resume)
        if self._plan is not None and run.monitor is not None:
            run.monitor.event(self._plan.reason)
        if self._choice is not None and run.monitor is not None:
            run.monitor.choice(self._choice.sentence(settings.rule))
        learn = self._fit_batch if settings.rule in SOLVERS else self._fit_stochastic
        if self.early_stopping == "refit":
            self._fit_twice(learn, settings, source, run, seed)
        else:
            if validation is None and self.early_stopping:
                source, validation = source.holdout(self.validation_fraction, seed)
            learn(settings, source, validation, run, seed)
        if self._choice is not None:
            place = 0 if self._plan is None else 1  # behind the reason of the memory plan
            self.history_.events.insert(place, self._choice.sentence(settings.rule))
        return self

    def _training_rows(self, source: Source, seed: int) -> Source:
        """What the learner sees of the rows."""
        return source

    def _fit_twice(self, learn: Any, settings: LinearSettings, source: Source, run: _Run, seed: int) -> None:
        """The rule of two samples: learns from A until B gets no better, then as often from all rows."""
        source = keep_rows(source)
        part, held_out = source.holdout(self.validation_fraction, seed)
        learn(settings, part, held_out, run.phase("part"), seed)
        first = self.history_
        losses = first.column("holdout_loss")
        rounds = 1 + losses.index(min(losses, key=lambda loss: math.inf if math.isnan(loss) else loss))
        event = f"held-out rows were best after {rounds} of {len(first)}: once more {rounds} from all rows"
        if run.monitor is not None:
            run.monitor.event(event)
        learn(settings, source, None, run.phase("all"), seed, rounds)
        self.history_ = History([*first.records, *self.history_.records], [*first.events, event, *self.history_.events])
        self.n_iter_ = rounds

    def _choose(self, source: Source) -> Choice:
        """The solver that "auto" stands for here."""
        params = {**self._fixed, **self.get_params(deep=False)}
        wishes = [name for name, default in STOCHASTIC.items() if params[name] != default]
        n_entries = len(source.block.indices) if isinstance(source, ArraySource) else None
        kind, alpha, p = penalty_kind(params, source.n_rows)
        return choose(
            Problem(
                loss=loss_for(str(self.loss), 1 if source.labels is None else len(source.labels) - 1),
                penalty=kind,
                alpha=alpha,
                p=p,
                tol=None if self.tol is None else at_least("tol", self.tol, 0.0),
                multi_class=str(params.get("multi_class", "ovr")),
                stochastic_wish=f"{wishes[0]}={params[wishes[0]]!r}" if wishes else "",
                n_rows=source.n_rows,
                n_features=source.n_features,
                n_entries=n_entries,
                in_memory=isinstance(source, ArraySource),
            )
        )

    def _fit_stochastic(
        self,
        settings: LinearSettings,
        source: Source,
        validation: Source | None,
        run: _Run,
        seed: int,
        rounds: int | None = None,
    ) -> None:
        """Epoch after epoch by the update rule; `rounds` of them and no rule to stop, if given."""
        source = source.shuffle(choice("shuffle", self.shuffle, SHUFFLES), seed)
        epochs = whole("epochs", self.epochs, 1) if rounds is None else rounds
        if epochs > 1:
            source = keep_rows(source)
            validation = None if validation is None else keep_rows(validation)
        parallel, why = self._parallel(settings, source)
        learner = self._new_learner(self._in_parallel(settings, parallel), source)
        if self._warm is not None:
            learner = self._warm.continued(learner.settings)
        learner.n_threads = threads(self.n_jobs)
        listeners: list[Any] = [encoder_of(source), self.vw_names_]
        for listener in listeners:
            if hasattr(listener, "heaviness"):
                listener.heaviness = learner.heaviness
        plan = Plan(
            epochs=epochs,
            tol=None if self.tol is None or rounds else at_least("tol", self.tol, 0.0),
            patience=whole("patience", self.patience, 1),
            early_stopping=bool(self.early_stopping) and rounds is None,
            lower_step_on_stall=self.schedule == "adaptive",
        )
        checkpoints = None
        if run.checkpoint is not None:
            fingerprint = {"settings": learner.settings.as_dict(), "seed": seed, "data": source.fingerprint()}
            if parallel == "mixing":
                fingerprint |= {"mixing": [self.n_shards, self.rounds, self.sync_seconds, self.mix, self.send, epochs]}
            restorer = self._restorer(learner, parallel)
            checkpoints = Checkpoints(run.checkpoint, restorer, fingerprint, source=source, resume=run.resume)
        watching: dict[str, Any] = {"validation": validation, "monitor": run.monitor, "checkpoints": checkpoints}
        voters: list[LinearLearner] = []
        if parallel == "mixing":
            mixing = self._mix_plan(epochs)
            vote = self.vote is not False
            team = local_team(learner, source, mixing)
            learner, history, voters = mix_rounds(learner, team, plan, mixing, keep_voters=vote, **watching)
        else:
            learner, history = train(learner, source, plan, **watching)
        if self._plan is not None and self._plan.reason not in history.events:
            history.events.insert(0, self._plan.reason)
        if why is not None and why not in history.events:
            history.events.append(why)
        self._check_learned(learner)
        self._adopt(learner, history, source)
        self._voters = voters
        self._keep_names()

    def _restorer(self, learner: LinearLearner, parallel: str) -> Callable[[Mapping[str, Array]], Any]:
        """Makes what a checkpoint has saved out of its arrays."""

        def restore(state: Mapping[str, Array]) -> Any:
            found = LinearLearner.from_state(learner.settings, state)
            found.n_threads = learner.n_threads
            return found if parallel != "mixing" else Common.restored(found, state, self.n_shards)

        return restore

    def _fit_batch(
        self,
        settings: LinearSettings,
        source: Source,
        validation: Source | None,
        run: _Run,
        seed: int,
        rounds: int | None = None,
    ) -> None:
        """Minimises over all rows at once by the solver of the table; `rounds` limits the iterations, if given."""
        from steepest.learners.objective import BatchData, Objective

        source = keep_rows(source)
        tol = DEFAULT_TOL if self.tol is None else at_least("tol", self.tol, 0.0)
        plan = BatchPlan(
            max_iter=whole("max_iter", self.max_iter, 1) if rounds is None else rounds,
            tol=tol,
            tol_on=choice("tol_on", self.tol_on, TOLERANCES),
            early_stopping=bool(self.early_stopping) and rounds is None,
            patience=whole("patience", self.patience, 1),
        )
        learner = self._new_learner(settings, source)
        data = BatchData(source, learner)
        learner.rows_learned = data.n_rows
        self._check_learned(learner)
        objective = Objective(data, threads(self.n_jobs))
        if self._choice is not None and self._choice.warm:
            objective.warm = self._one_pass(learner, source, seed)
        if self._warm is not None:
            weights, bias = self._warm.weights()
            objective.warm = np.vstack([weights, bias]).astype(np.float64)
        solver = SOLVERS[settings.rule](objective, SolverOptions(str(self.schedule), settings.eta0, tol, seed))
        checkpoints = None
        if run.checkpoint is not None:
            fingerprint = {"settings": learner.settings.as_dict(), "plan": asdict(plan), "data": source.fingerprint()}
            checkpoints = BatchCheckpoints(run.checkpoint, fingerprint, resume=run.resume)

        def validate(w: Array) -> float:
            assert validation is not None
            learner.take_weights(w[:-1], w[-1])
            return mean_loss(learner, validation)

        w, history = minimise(
            solver,
            objective,
            plan,
            validate=None if validation is None else validate,
            monitor=run.monitor,
            checkpoints=checkpoints,
        )
        learner.take_weights(w[:-1], w[-1])
        self._adopt(learner, history, source)
        vars(self).update(getattr(solver, "findings", {}))

    def _one_pass(self, learner: LinearLearner, source: Source, seed: int) -> Array:
        """Weights, with a last row for the bias, after one stochastic pass over the rows."""
        settings = self._settings(source.n_rows, "stochastic")
        settings = replace(settings, class_weight=learner.settings.class_weight)
        pupil = LinearLearner(settings, learner.n_features, learner.book.labels)
        for chunk in source.shuffle(choice("shuffle", self.shuffle, SHUFFLES), seed).epoch(0):
            pupil.step(chunk)
        pupil.learn_pending()
        weights, bias = pupil.weights()
        return np.concatenate([weights, bias[None]]).astype(np.float64)

    def _learn_more(self, source: Source, classes: Any = None) -> Self:
        """One pass in the order given, from where the learner stands."""
        rule = self._learner.settings.rule if hasattr(self, "_learner") else self.solver
        if rule in BATCH_SOLVERS:
            raise ParameterError(
                f"solver={rule!r} needs all rows at once, so partial_fit cannot work with it; call fit or fit_stream, "
                "or choose solver='sgd'"
            )
        if getattr(self, "_voters", None):
            raise ParameterError("shards that vote cannot learn more; fit anew, or mix them with vote=False")
        if not hasattr(self, "_learner"):
            self._begin(source, classes)
        learner = self._learner
        learner.n_threads = threads(self.n_jobs)
        before = learner.rows_learned
        super()._learn_more(source, classes)
        if self._plan is not None and learner.n_outputs > self._plan.n_outputs:
            self.history_.events.append(
                f"{learner.n_outputs} outputs where the memory was planned for {self._plan.n_outputs}"
            )
            self._plan = replace(self._plan, n_outputs=learner.n_outputs)
        if learner.rows_learned.bit_length() > before.bit_length():  # the rows have doubled
            self._keep_names()
        return self

    def _begin(self, source: Source, classes: Any) -> None:
        self._choice = None
        parallel = self.parallel if self.parallel in ("replicas", "hogwild") else "serial"
        learner = self._new_learner(self._in_parallel(self._settings(None), parallel), source, classes)
        self._adopt(learner, History(events=[self._plan.reason] if self._plan else []), source)

    def _new_learner(self, settings: LinearSettings, source: Source, classes: Any = None) -> LinearLearner:
        return LinearLearner(settings, source.n_features or 0)

    def _adopt(self, learner: LinearLearner, history: History, source: Source) -> None:
        for name in FINDINGS:
            vars(self).pop(name, None)
        super()._adopt(learner, history, source)

    def _planned(self, hasher: Any) -> dict[str, Any]:
        if self._plan is None:
            return {}
        return {"n_bits": self._plan.n_bits, "names": self._planned_names(hasher, parse_bytes(self.memory_budget))}

    # ----------------------------------------------------------------------------------------------------- memory

    def _plan_for_arrays(self, X: Any, y: Any, classes: Any = None, *, more_to_come: bool = False) -> None:
        """Chooses what fits the memory budget, if there is one, by rows in memory."""
        self._plan = None
        if self.memory_budget is None or y is None:
            return
        targets = np.asarray(y)
        n_rows, n_targets = len(targets), targets.shape[1] if targets.ndim == 2 else 0
        known = targets.ravel() if classes is None else np.asarray(classes)
        labels = frozenset(() if n_targets else np.unique(known).tolist())
        if self.hasher is None:
            self._make_plan(Survey(n_rows, labels, n_targets, from_arrays(X).n_features or 0))
            return
        some, n_some = X, n_rows
        if n_rows > SURVEY_ROWS and not isinstance(X, Mapping):
            some, n_some = X[:SURVEY_ROWS], SURVEY_ROWS
        self._make_plan(Survey(n_rows, labels, n_targets, 0, some, 0 if more_to_come else n_some))

    def _plan_for_stream(self, source: Source) -> None:
        """The same by a look at a source, which is read once for it."""
        self._plan = None
        if self.memory_budget is not None:
            parse_bytes(self.memory_budget)
            self._make_plan(survey(source))

    def _make_plan(self, seen: Survey) -> None:
        budget = parse_bytes(self.memory_budget)
        n_outputs = seen.n_targets or 1
        if self._task == "classify" and not seen.n_targets and len(seen.labels) > 2:
            n_outputs = len(seen.labels)
        need = Need(self._settings(seen.n_rows), n_outputs)
        if seen.columns is None:
            self._plan = check_columns(budget, need, seen.n_features)
            return
        hasher = self._hasher_wish()
        names = self._planned_names(hasher, budget)
        n_distinct = None
        if seen.first_rows:
            n_distinct = hasher.count_distinct(seen.columns) * seen.n_rows / seen.first_rows
        self._plan = plan_hashing(
            budget,
            replace(need, names_bytes=NameBook(names).n_bytes if names else 0, counts=hasher.counts_rows),
            n_bits=None if hasher.n_bits == type(hasher)().n_bits else hasher.n_bits,
            n_distinct=n_distinct,
            may_drop_average=self.solver == "auto" and self.average == "auto",
        )

    def _planned_names(self, hasher: Any, budget: int) -> int:
        """Names that were asked for stay; the usual number of them shrinks with the budget."""
        if hasher.names != NAMES:
            return int(hasher.names)
        return max(1, min(NAMES, NAMES * budget // (NAMES_SHARE * NameBook(NAMES).n_bytes)))

    def _settings(self, n_rows: int | None, chosen: str | None = None) -> LinearSettings:
        """The constructor's arguments, checked and resolved; what "auto" chose takes the place of the solver."""
        params = {**self._fixed, **self.get_params(deep=False)}
        chosen = chosen or ("stochastic" if self._choice is None else self._choice.solver)
        if self.solver == "auto" and chosen != "stochastic":
            params["solver"] = chosen
        if self._plan is not None:
            params["dtype"] = self._plan.settings.dtype
            params["average"] = params["average"] if self._plan.settings.average != "no" else False
        settings = resolve_settings(self._task, params, n_rows)
        self._refuse_parallel(settings)
        return settings

    # ------------------------------------------------------------------------------------------------- prediction

    def _scores(self, chunk: Chunk) -> Array:
        if getattr(self, "_voters", None):
            return self._voted(chunk, threads(self.n_jobs))
        return self._learner.scores(chunk, threads(self.n_jobs))

    def _scores_of(self, X: Any) -> Array:
        """Raw rows go to scores in one call of a kernel, which halves what a text alone costs."""
        hasher = getattr(self, "hasher_", None)
        plain = self.vw_names_ is None and not getattr(self, "_voters", None)
        if hasher is not None and plain and hasattr(self, "_learner"):
            scores = self._learner.scores_of_raw(hasher.score_task(X), threads(self.n_jobs))
            if scores is not None:
                return scores
        return super()._scores_of(X)

    def _row_losses(self, coded: Chunk, scores: Array) -> tuple[Array, Array]:
        """Votes are no scores: the loss is then that of the mixture."""
        return self._learner.losses(coded, None if getattr(self, "_voters", None) else scores)

    def _voted(self, chunk: Chunk, n_threads: int) -> Array:
        loss, vote = self._learner.loss, self.vote == "ensemble"
        link = (lambda scores: np.asarray(loss.probability(scores))) if vote and loss.link is not None else None
        voters = [lambda rows, voter=voter: voter.scores(rows, n_threads) for voter in self._voters]
        return vote_scores(voters, chunk, link)

    # --------------------------------------------------------------------------------------------------- files

    def _whole_state(self) -> State:
        state = dict(super()._whole_state())
        for number, voter in enumerate(getattr(self, "_voters", None) or ()):
            state |= {f"{VOTER}{number}.{name}": array for name, array in voter.state.items() if name != "labels"}
        if self.vw_names_ is not None:
            state |= {VW_NAMES + name: array for name, array in self.vw_names_.state().items()}
        return state

    def _take_state(self, settings: Any, state: State) -> None:
        super()._take_state(settings, state)
        self._voters = _voters_from(self._learner.settings, state)
        names = {name.removeprefix(VW_NAMES): array for name, array in state.items() if name.startswith(VW_NAMES)}
        self.vw_names_ = VwNames.from_state(names) if names else None

    @classmethod
    def _restore(cls, settings: Any, state: State) -> LinearLearner:
        known = settings if isinstance(settings, LinearSettings) else LinearSettings.from_dict(settings)
        return LinearLearner.from_state(known, state)


def _voters_from(settings: LinearSettings, state: Mapping[str, Array]) -> list[LinearLearner]:
    """The shards' models that vote, from the arrays of a file."""
    voters: list[LinearLearner] = []
    while f"{VOTER}{len(voters)}.counters" in state:
        mark = f"{VOTER}{len(voters)}."
        own = {name.removeprefix(mark): array for name, array in state.items() if name.startswith(mark)}
        voters.append(LinearLearner.from_state(settings, {**own, "labels": state["labels"]}))
    return voters


def _share_a_cache(a: Source, b: Source) -> bool:
    """Rows of one cache are hashed in one pass, whichever of them are held out."""
    from steepest.data.raw import cache_of

    return cache_of(a) is not None and cache_of(a) == cache_of(b)
