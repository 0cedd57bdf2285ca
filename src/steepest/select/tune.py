"""Tuning by successive halving: many settings on a small sample, the better third of them on three times the rows, ...

The first trial is the estimator as it is, and goes on to the end, so that the best is no worse on the held-out rows.
Setting number t is drawn from (seed, t) alone, and samples grow by adding rows, so the table of trials depends on the
data, the seed and the number of trials only. A budget of seconds can end it early: what was found until then is then
the answer. All trials are measured on the same held-out rows.
Reference: Jamieson and Talwalkar, "Non-stochastic best arm identification and hyperparameter optimization", 2016.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from steepest.data.folds import survey_rows
from steepest.data.groups import holdout_groups
from steepest.data.raw import is_raw
from steepest.data.source import Lenient, Source
from steepest.data.store.cache import CachedSource
from steepest.errors import DataError, ParameterError
from steepest.learners.batch.solvers import BATCH_SOLVERS
from steepest.models.linear import LinearModel
from steepest.parameters import choice, inside, more_than, whole
from steepest.select.cross_validate import PROBABILITIES, as_source, copy_of

KEEP = 3  # one setting in so many goes on, to a sample so many times as large
LEAST_ROWS = 500  # of the smallest sample
MOST_RUNGS = 4
LOSSES = {
    "classifier": ("log", "hinge", "squared_hinge", "modified_huber"),
    "regressor": ("squared", "huber", "epsilon_insensitive"),
    "ranker": ("log", "hinge", "squared_hinge"),
}
QUALITIES = {"classifier": ("accuracy", *PROBABILITIES), "regressor": ("rmse",), "ranker": ("ndcg", "map")}
HIGHER_IS_BETTER = ("accuracy", "auc", "pr_auc", "ndcg", "map")
HASHING = {"n_bits": (18, 20, 22), "ngrams": ((1, 1), (1, 2), (1, 3))}
DEFAULT_TRIALS = 27


@dataclass(frozen=True, slots=True)
class Range:
    """Numbers from low to high, drawn evenly on the logarithmic scale."""

    low: float
    high: float

    def draw(self, generator: np.random.Generator) -> float:
        """A random value of the range, rounded to two digits."""
        drawn = math.exp(generator.uniform(math.log(self.low), math.log(self.high)))
        return float(f"{drawn:.1e}")


Space = Mapping[str, Range | Sequence[Any]]


@dataclass(slots=True)
class Trial:
    """One setting on one sample."""

    number: int
    changes: dict[str, Any]  # of the estimator, by name; n_bits and ngrams are the hasher's
    rows: int
    measured: dict[str, float]
    seconds: float
    score: float  # the smaller, the better
    note: str = ""


@dataclass(slots=True)
class Tuning:
    """All trials, and the best of those on the largest sample.

    Attributes
    ----------
    trials : list of Trial, in the order in which they ran
    metric : what the trials were compared by
    best : Trial
    best_estimator : the estimator with the best setting, fitted on all rows (if refit)
    seconds : float
    notes : what a reader should know, such as that the budget ended
    """

    trials: list[Trial]
    metric: str
    best: Trial
    best_estimator: Any
    seconds: float
    notes: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        trials = [
            {
                "trial": t.number,
                "rows": t.rows,
                "parameters": t.changes,
                **t.measured,
                "seconds": t.seconds,
                "note": t.note,
            }
            for t in self.trials
        ]
        best = {"trial": self.best.number, "parameters": self.best.changes, **self.best.measured}
        return {"metric": self.metric, "best": best, "trials": trials, "seconds": self.seconds, "notes": self.notes}

    def __str__(self) -> str:
        names = list(dict.fromkeys(name for trial in self.trials for name in trial.changes))
        measured = dict.fromkeys(name for trial in self.trials for name in trial.measured)
        measures = [name for name in measured if name not in PROBABILITIES or name == self.metric]
        head = f"{'trial':>5}{'rows':>12}" + "".join(f"{name:>16}" for name in names)
        lines = [head + "".join(f"{name:>12}" for name in measures) + f"{'seconds':>10}"]
        for trial in self.trials:
            cells = "".join(f"{shown(trial.changes.get(name, '-')):>16}" for name in names)
            numbers = "".join(f"{trial.measured.get(name, math.nan):>12.5g}" for name in measures)
            mark = " *" if trial is self.best else ""
            lines.append(f"{trial.number:>5}{trial.rows:>12,}{cells}{numbers}{trial.seconds:>10.2f}{mark}")
        rest = [f"{name} {value:.5f}" for name, value in self.best.measured.items() if name not in measures]
        return "\n".join([*lines, *(["* " + ", ".join(rest)] if rest else [])])


def shown(value: Any) -> str:
    """A value as the command line takes it."""
    if isinstance(value, tuple):
        return ",".join(map(shown, value))
    if isinstance(value, float):
        return f"{value:g}"
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)


def tune(
    estimator: Any,
    source_or_X: Any,
    y: Any = None,
    *,
    space: Space | None = None,
    budget: float | None = None,
    trials: int = DEFAULT_TRIALS,
    holdout: float = 0.2,
    metric: str = "auto",
    groups: Any = None,
    random_state: int = 0,
    refit: bool = True,
    on_trial: Callable[[Trial], None] | None = None,
) -> Tuning:
    """Finds good parameters of a linear model by successive halving, within numbers of trials and seconds.

    Parameters
    ----------
    estimator : LinearClassifier, LinearRegressor or LinearRanker
        The first trial; parameters that are not in `space` stay as they are.
    source_or_X, y : Source, or arrays as for `fit`
    space : dict, optional
        Parameters to try: a sequence of values, or `Range(low, high)`. By default alpha, loss and eta0, and for raw
        data the hasher's n_bits and ngrams.
    budget : float, optional
        Time limit in seconds, including an estimate of the last fit; at least one trial is run. The result depends on
        the machine if the budget ends the search.
    trials : int
        Settings that are tried on the smallest sample.
    holdout : float
        Share of the rows to measure on.
    metric : "auto", "loss", "accuracy", "log_loss", "brier", "ece", "auc", "pr_auc", "rmse", "ndcg" or "map"
        "auto" is the loss if only one loss is tried, and otherwise accuracy, rmse, or the NDCG of a ranker.
    groups : array, optional
        For a ranker, the group of each row of X. Samples and held-out rows are whole groups.
    random_state : int
    refit : bool
        Whether the best setting is fitted on all rows at the end.
    on_trial : function, optional
        Called after every trial.

    Returns
    -------
    Tuning

    Examples
    --------
    >>> import steepest as st
    >>> X, y = [[float(i % 2), float(i % 3)] for i in range(300)], [i % 2 for i in range(300)]
    >>> result = st.tune(st.LinearClassifier(), X, y, space={"alpha": (1e-6, 1e-3)}, trials=2)
    >>> len(result.trials), result.best_estimator.score(X, y)
    (2, 1.0)
    """
    if not isinstance(estimator, LinearModel):
        raise ParameterError(
            f"tune supports LinearClassifier, LinearRegressor and LinearRanker, not {type(estimator).__name__}"
        )
    if groups is not None and estimator.kind != "ranker":
        raise ParameterError("groups is for LinearRanker; leave it out")
    n_trials = whole("trials", trials, 1)
    seconds = math.inf if budget is None else more_than("budget", budget, 0.0)
    share = inside("holdout", holdout, 0.0, 1.0)
    source = as_source(estimator, source_or_X, y, groups=groups)
    search = _Search(estimator, source, share, space, metric, int(random_state), seconds, on_trial)
    return search.run(n_trials, refit)


class _Search:
    def __init__(
        self,
        estimator: Any,
        source: Source,
        holdout: float,
        space: Space | None,
        metric: str,
        seed: int,
        budget: float,
        on_trial: Callable[[Trial], None] | None,
    ) -> None:
        self.started = time.perf_counter()
        self.estimator, self.source, self.seed, self.budget = estimator, source, seed, budget
        raw = is_raw(source)
        bare = source.parent if raw and isinstance(source, CachedSource) else source  # a cache would be made every time
        rows = survey_rows(bare, classes=estimator.kind == "classifier")
        self.n_all = len(rows.ids)
        if self.n_all < 2:
            raise DataError(
                f"the data holds {self.n_all} row, but tuning needs some to learn from and some to measure on"
            )
        self.ranks = estimator.kind == "ranker"
        self.train, self.test = (holdout_groups if self.ranks else type(bare).holdout)(bare, holdout, seed)
        held = (
            sum(chunk.n_rows for chunk in self.test.in_file_order()) if self.ranks else len(survey_rows(self.test).ids)
        )
        self.n_train = self.n_all - held
        if self.ranks and not 0 < held < self.n_all:
            raise DataError(f"holdout={holdout:g} leaves no group on one side; give more groups, or another share")
        if rows.labels is not None:
            self.train.labels = rows.labels
        self.space = check_space(default_space(estimator, raw) if space is None else space, estimator)
        n_losses = len(list(self.space["loss"])) if "loss" in self.space else 1
        self.qualities = QUALITIES[estimator.kind]
        choice("metric", metric, ("auto", "loss", *self.qualities))
        self.metric = ("loss" if n_losses == 1 else self.qualities[0]) if metric == "auto" else metric
        self.on_trial = on_trial or (lambda trial: None)
        self.trials: list[Trial] = []

    def run(self, n_trials: int, refit: bool) -> Tuning:
        notes: list[str] = []
        settings = [self._draw(number) for number in range(n_trials)]
        going = list(range(n_trials))
        last: list[Trial] = []
        for n_rows in self._samples(n_trials):
            done = self._rung(going, settings, n_rows)
            last = done or last
            if len(done) < len(going):
                notes.append(f"the budget of {self.budget:g} s ended the search after {len(self.trials)} trials")
                break
            ranked = sorted(done, key=lambda trial: (trial.score, trial.number))
            going = sorted({0, *(trial.number for trial in ranked[: max(1, len(ranked) // KEEP)])})
        best = min(last, key=lambda trial: (trial.score, trial.number))
        if not math.isfinite(best.score):
            raise ParameterError(
                f"no trial gave a usable model; the first said: {last[0].note or 'the loss is not a number'}"
            )
        model = self._model(best.changes)
        if refit:
            model.fit_stream(self.source)
        return Tuning(self.trials, self.metric, best, model, time.perf_counter() - self.started, notes)

    def _samples(self, n_trials: int) -> list[int]:
        """The samples of rows, one per rung; the last is all rows."""
        rungs = 1
        while rungs < MOST_RUNGS and n_trials >= KEEP**rungs and self.n_train >= LEAST_ROWS * KEEP**rungs:
            rungs += 1
        return [max(1, self.n_train // KEEP ** (rungs - 1 - rung)) for rung in range(rungs)]

    def _draw(self, number: int) -> dict[str, Any]:
        """Setting number t; number 0 changes nothing."""
        if number == 0:
            return {name: self._present(name) for name in self.space}
        generator = np.random.default_rng([self.seed, number])
        drawn = {}
        for name in sorted(self.space):
            values = self.space[name]
            if isinstance(values, Range):
                drawn[name] = values.draw(generator)
            else:
                value = values[int(generator.integers(len(values)))]
                drawn[name] = value.draw(generator) if isinstance(value, Range) else value
        return {name: drawn[name] for name in self.space}

    def _present(self, name: str) -> Any:
        owner = self.estimator if name in self.estimator.get_params(deep=False) else self.estimator.given_hasher()
        return getattr(owner, name)

    def _model(self, changes: Mapping[str, Any]) -> Any:
        own = self.estimator.get_params(deep=False)
        mine = {name: value for name, value in changes.items() if name in own}
        inner = {name: value for name, value in changes.items() if name not in own}
        if inner:
            hasher = self.estimator.given_hasher()
            mine["hasher"] = type(hasher)(**{**hasher.get_params(deep=False), **inner})
        return copy_of(self.estimator, self.seed, **mine)

    def _rung(self, numbers: list[int], settings: list[dict[str, Any]], n_rows: int) -> list[Trial]:
        """Trials on a sample of this size; fewer than asked for if the budget ends."""
        sample = self._sample(n_rows)
        sample.labels = self.train.labels
        done: list[Trial] = []
        for number in numbers:
            if self.trials and self._would_exceed(n_rows):
                break
            trial = self._trial(number, settings[number], sample, n_rows)
            done.append(trial)
            self.trials.append(trial)
            self.on_trial(trial)
        return done

    def _sample(self, n_rows: int) -> Source:
        if n_rows >= self.n_train:
            return self.train
        # Another seed than that of the held-out groups, which are the first by the other.
        return (
            holdout_groups(self.train, n_rows / self.n_train, self.seed + 1)[1]
            if self.ranks
            else self.train.sample(n_rows, self.seed)
        )

    def _would_exceed(self, n_rows: int) -> bool:
        """Whether one more trial and the last fit would take longer than allowed, by what trials took until now."""
        by_row = sum(t.seconds for t in self.trials) / sum(t.rows for t in self.trials)
        return time.perf_counter() - self.started + by_row * (n_rows + self.n_all) > self.budget

    def _trial(self, number: int, changes: dict[str, Any], sample: Source, n_rows: int) -> Trial:
        model = self._model(changes)
        started = time.perf_counter()
        try:
            model.fit_stream(sample)
            found = model.evaluate_stream(Lenient(self.test))
        except ParameterError as error:  # parameters that do not go together: a bad trial, but no reason to stop
            return Trial(number, changes, n_rows, {}, time.perf_counter() - started, math.inf, str(error))
        seconds = time.perf_counter() - started
        measured = {name: float(found[name]) for name in ("loss", *self.qualities) if name in found}
        value = measured.get(self.metric, math.nan)
        score = -value if self.metric in HIGHER_IS_BETTER else value
        note = "" if self.metric in measured else f"this model has no {self.metric}"
        return Trial(number, changes, n_rows, measured, seconds, score if math.isfinite(score) else math.inf, note)


def default_space(estimator: Any, raw: bool) -> dict[str, Any]:
    """The parameters that are searched unless a space is given."""
    space: dict[str, Any] = {"loss": LOSSES[estimator.kind]}
    if getattr(estimator, "C", None) is None and estimator.penalty not in ("none", None):
        space["alpha"] = Range(1e-8, 1e-2)
    if estimator.solver not in BATCH_SOLVERS:
        space["eta0"] = ("auto", Range(1e-2, 10.0))
    return space | (HASHING if raw else {})


def check_space(space: Space, estimator: Any) -> dict[str, Any]:
    """Known names, and something to draw from each."""
    known = (*estimator.get_params(deep=False), *estimator.given_hasher().get_params(deep=False))
    checked: dict[str, Any] = {}
    for name, values in space.items():
        choice("space", name, known)
        if isinstance(values, Range):
            more_than(f"space[{name!r}].low", values.low, 0.0)
            more_than(f"space[{name!r}].high", values.high, values.low)
        elif isinstance(values, str) or not isinstance(values, Sequence) or not len(values):
            raise ParameterError(
                f"space[{name!r}]={values!r} is nothing to choose from; give values or Range(low, high)"
            )
        checked[name] = values
    return checked
