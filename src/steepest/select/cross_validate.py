"""Cross-validation: how well an estimator does on rows that it has not seen, measured k times.

Rows are put in k folds by their stable numbers (see data/folds.py); each fold is measured by a model that learned
from the others. Folds run side by side in threads, each on its own, so the result does not depend on `n_jobs`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from steepest.data.chunk import Array
from steepest.data.files.blocks import map_ahead
from steepest.data.folds import Folds, Rows, assign_folds, survey_rows, with_groups
from steepest.data.raw import cache_of, is_raw
from steepest.data.readers.raw_arrays import RawArrays
from steepest.data.source import Lenient, Source, from_arrays
from steepest.errors import DataError, ParameterError
from steepest.models.base import Model, threads
from steepest.parameters import choice, whole

USUAL = ("loss", "accuracy", "rmse")
RANKING = ("ndcg", "map", "ndcg@10", "auc")  # shown where there is neither accuracy nor rmse
PROBABILITIES = ("log_loss", "brier", "ece", "auc", "pr_auc")  # of classifiers, as far as they have them


@dataclass(frozen=True, slots=True)
class CrossValidation:
    """Measures of every fold, and their means.

    Attributes
    ----------
    folds : list of dict
        For each fold `fold`, `rows` (measured on), `seconds` (of learning) and the metrics.
    metrics : tuple of str
    models : list
        The model of every fold, if they were to be kept.
    more : tuple of str
        Measures of probabilities, which are printed as means only.
    """

    folds: list[dict[str, Any]]
    metrics: tuple[str, ...]
    models: list[Any] = field(default_factory=list, repr=False)
    more: tuple[str, ...] = ()

    def __getitem__(self, metric: str) -> Array:
        """The values of one metric, fold by fold."""
        return np.array([fold[metric] for fold in self.folds])

    def mean(self, metric: str) -> float:
        """The mean over the folds."""
        return float(self[metric].mean())

    def sd(self, metric: str) -> float:
        """The standard deviation over the folds (with k - 1)."""
        return float(self[metric].std(ddof=1))

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        names = (*self.metrics, *self.more, "seconds")
        return {"folds": self.folds, **{name: {"mean": self.mean(name), "sd": self.sd(name)} for name in names}}

    def __str__(self) -> str:
        names = ("rows", *self.metrics, "seconds")
        lines = [f"{'fold':<6}" + "".join(f"{name:>12}" for name in names)]
        for fold in self.folds:
            cells = (f"{fold[n]:>12,}" if n == "rows" else _cell(fold[n]) for n in names[:-1])
            lines.append(f"{fold['fold']:<6}" + "".join(cells) + f"{fold['seconds']:>12.2f}")
        for name, summary in (("mean", self.mean), ("sd", self.sd)):
            cells = (_cell(summary(metric)) for metric in self.metrics)
            lines.append(f"{name:<6}{'':>12}" + "".join(cells) + f"{summary('seconds'):>12.2f}")
        if self.more:
            lines.append("means: " + ", ".join(f"{name} {self.mean(name):.5f}" for name in self.more))
        return "\n".join(lines)


def _cell(value: float) -> str:
    """Twelve letters, of which the first is a space: large numbers are written in powers of ten."""
    plain = f"{value:>12.5f}"
    return plain if plain.startswith(" ") and len(plain) == 12 else f"{value:>12.5g}"


def cross_validate(
    estimator: Any,
    source_or_X: Any,
    y: Any = None,
    *,
    folds: int = 5,
    stratified: bool | str = "auto",
    groups: Any = None,
    sample_weight: Any = None,
    metrics: Sequence[str] | None = None,
    n_jobs: int = 1,
    random_state: int = 0,
    keep_models: bool = False,
) -> CrossValidation:
    """Measures an estimator by k-fold cross-validation over any source, or over arrays X and y.

    Parameters
    ----------
    estimator : any steepest estimator
        It is copied for every fold, and is not changed itself. Without a random_state of its own, it gets the one
        passed here.
    source_or_X, y : Source, or arrays as for `fit`
    folds : int
        Number of folds, at least 2.
    stratified : bool or "auto"
        Whether each fold holds its share of every class; "auto" does so for classifiers, unless there are groups.
    groups : array or name of a column, optional
        Groups whose rows stay in the same fold. An array has one group per row, in the order of reading. A ranker needs
        groups in addition to X and y; the rows of a source have them already.
    metrics : names, optional
        Names of metrics of `evaluate_stream`; by default loss, and accuracy (with those of probabilities in `more`),
        rmse, or ranking metrics.
    n_jobs : int
        Number of folds that run at the same time; -1 uses all cores. Results do not depend on it.
    random_state : int
        Seed of the assignment of rows to folds.
    keep_models : bool
        Whether the fitted models are kept in `models`.

    Returns
    -------
    CrossValidation

    Examples
    --------
    >>> import steepest as st
    >>> X, y = [[float(i % 2), 1.0] for i in range(40)], [i % 2 for i in range(40)]
    >>> result = st.cross_validate(st.LinearClassifier(alpha=1e-3), X, y, folds=4)
    >>> result.mean("accuracy"), [fold["rows"] for fold in result.folds]
    (1.0, [10, 10, 10, 10])
    """
    n_folds = whole("folds", folds, 2)
    source = as_source(estimator, source_or_X, y, sample_weight, groups)
    rows = _survey(estimator, source, _stratify(estimator, stratified, groups), groups)
    folds_of_rows = assign_folds(rows, n_folds, int(random_state))
    copies = [copy_of(estimator, random_state) for _ in range(n_folds)]

    def run(fold: int) -> dict[str, Any]:
        return _run_fold(copies[fold], source, folds_of_rows, fold, rows.labels)

    n_threads = min(threads(n_jobs), n_folds)
    found = list(map_ahead(run, iter(range(n_folds)), threads=n_threads, patience=None))
    names = choose_metrics(metrics, found[0])
    usual = metrics is None and estimator.kind == "classifier"
    more = tuple(name for name in PROBABILITIES if usual and all(name in fold for fold in found))
    kept = [{name: fold[name] for name in ("fold", "rows", *names, *more, "seconds")} for fold in found]
    return CrossValidation(kept, names, copies if keep_models else [], more)


def as_source(estimator: Any, source_or_X: Any, y: Any = None, sample_weight: Any = None, groups: Any = None) -> Source:
    """The source itself, or the one that the estimator would make of these arrays; `groups` are a ranker's."""
    if isinstance(estimator, type) or not (isinstance(estimator, Model) or hasattr(estimator, "evaluate_stream")):
        raise ParameterError(
            f"{estimator!r} is not an estimator of steepest that can be measured; give one that has fit_stream"
        )
    if isinstance(source_or_X, Source):
        if y is not None or sample_weight is not None:
            raise ParameterError("a source has its targets and weights in it; leave y and sample_weight out")
        if estimator.kind == "ranker" and groups is not None:
            raise ParameterError("a ranker's source has its groups in it, as qid:N of libsvm does; leave groups out")
        return source_or_X
    if estimator.kind == "ranker":
        if sample_weight is not None:
            raise ParameterError("a ranker takes no weights of rows; leave sample_weight out")
        ranked: Source = copy_of(estimator).grouped(source_or_X, y, groups)
        return ranked
    if getattr(estimator, "hasher", None) is not None:
        return RawArrays(source_or_X, y, sample_weight)
    if estimator.kind in ("classifier", "regressor") and hasattr(estimator, "source_of"):
        source: Source = estimator.source_of(source_or_X, y, sample_weight)
        return source
    if isinstance(estimator, Model):
        return from_arrays(source_or_X, None, sample_weight)
    raise ParameterError(f"{type(estimator).__name__} is measured on a source here; give scan_ratings or from_ratings")


def copy_of(estimator: Any, random_state: Any = None, **changes: Any) -> Any:
    """A new estimator with the same parameters and this seed."""
    copied = type(estimator)(**{**estimator.get_params(deep=False), **changes})
    if copied.random_state is None:
        copied.random_state = random_state
    elif not isinstance(copied.random_state, int | np.integer):
        copied.random_state = copied.seed()
    return copied


def choose_metrics(requested: Sequence[str] | None, found: dict[str, Any]) -> tuple[str, ...]:
    """The requested metrics, checked; by default the usual ones of the task."""
    if requested is None:
        shown = USUAL if found.keys() & {*USUAL[1:]} else (*USUAL, *RANKING)
        return tuple(name for name in shown if name in found)
    known = [name for name, value in found.items() if isinstance(value, float) and name != "seconds"]
    names = (requested,) if isinstance(requested, str) else tuple(requested)
    return tuple(choice("metrics", name, known) for name in names)


def _stratify(estimator: Any, requested: bool | str, groups: Any) -> bool:
    if isinstance(requested, str):
        choice("stratified", requested, ("auto",))
        return groups is None and estimator.kind == "classifier"
    if requested and groups is not None:
        raise ParameterError("stratified=True and groups cannot both decide where a row goes; give one of them")
    return bool(requested)


def _survey(estimator: Any, source: Source, stratify: bool, groups: Any) -> Rows:
    if estimator.kind == "ranker":
        return survey_rows(source, own_groups=True)
    column = groups if isinstance(groups, str) else None
    if is_raw(source) and cache_of(source) is not None:  # makes the cache now, once for all folds
        source = copy_of(estimator).hashed(source, learn=True)
    rows = survey_rows(source, classes=stratify or estimator.kind == "classifier", group=column)
    if not stratify:
        rows = Rows(rows.ids, None, rows.labels, rows.groups)
    return rows if groups is None or column is not None else with_groups(rows, groups)


def _run_fold(model: Any, source: Source, folds: Folds, fold: int, labels: Array | None) -> dict[str, Any]:
    train, test = folds.split(source, fold)
    if labels is not None:  # a class whose rows are all in this fold is known all the same
        train.labels = labels
    started = time.perf_counter()
    model.fit_stream(train)
    seconds = time.perf_counter() - started
    measured: dict[str, Any] = model.evaluate_stream(Lenient(test))
    if not math.isfinite(measured.get("loss", 0.0)):
        raise DataError(f"the loss of fold {fold} is {measured['loss']}; give a larger alpha or a smaller eta0")
    return {"fold": fold, **measured, "seconds": seconds}
