"""Radial basis networks as scikit-learn estimators: h_k = exp(-gamma_k |w_k - x|^2), and a vote of every unit.

Centres come from k-means, from a sample of the rows, or are all rows. Votes are solved in closed form, learned together
with centres and widths by back-propagation, or fixed to the targets of the centres' own rows.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, Self

import numpy as np

from steepest.data.chunk import Array, Chunk
from steepest.data.source import Source, mix
from steepest.errors import DataError, ParameterError
from steepest.learners.base import State
from steepest.learners.network.graph import Graph
from steepest.learners.network.network import NetworkLearner
from steepest.learners.network.network_input import finite_rows
from steepest.learners.network.network_settings import SCHEDULES, SOLVERS, NetworkSettings
from steepest.learners.network.radial import RadialLearner, RadialSettings, median_distance
from steepest.learners.penalties import check_alpha
from steepest.learners.targets import checked_class_weight
from steepest.models.base import Model, Run
from steepest.models.options import EarlyStopping
from steepest.models.supervised import Classifier, Regressor
from steepest.parameters import choice, more_than, number, step_size, whole

INITS = ("k-means", "sample", "all")
VOTES = ("closed_form", "backprop", "fixed")
# Widths that gamma="auto" tries, times one over the median squared distance of two centres.
TRIED = (0.25, 1.0, 4.0, 16.0, 64.0)
LARGEST_BYTES = 1 << 32  # of centres and sums
# n_units="auto": one unit for so many rows, within bounds, and so few that sums over all pairs of units stay small.
ROWS_PER_UNIT, FEWEST_UNITS, MOST_UNITS, MOST_PRODUCTS = 5, 32, 500, 4_000_000_000
BATCH_ROWS = 32
# epochs="auto". Of 100 to 800 rows of a noisy wave, 20 epochs left a share of 0.13 to 0.96 explained on new rows, a
# thousand steps 0.25 to 0.98, more in each of 16 fits.
EPOCHS, STEPS = 20, 1000

Learner = NetworkLearner | RadialLearner


class RBFModel(Model):
    """The base of the radial basis classifier and regressor."""

    n_units: int | str
    init: str
    votes: str
    gamma: float | str
    alpha: float
    solver: Any
    eta0: float | str
    batch_size: int
    class_weight: Any = None
    loss = "squared"

    def _fit(self, source: Source, validation: Source | None = None, run: Run | None = None) -> Self:
        if self.votes == "backprop" and self.init == "all" and validation is None and not self.early_stopping:
            raise ParameterError(
                "init='all' with votes='backprop' would narrow the bump of every row until the rows are memorised; "
                "set early_stopping=True, so that held-out rows end it, or votes='closed_form'"
            )
        return super()._fit(source, validation, run)

    def _n_epochs(self) -> int:
        return self._epochs_for(self._n_rows) if self.votes == "backprop" else 1

    def _epochs_for(self, n_rows: int | None) -> int:
        """Twenty epochs by default, and more on few rows, so that there are a thousand steps."""
        if not isinstance(self.epochs, str):
            return whole("epochs", self.epochs, 1)
        choice("epochs", self.epochs, ("auto",))
        size = whole("batch_size", self.batch_size, 1)
        return max(EPOCHS, math.ceil(STEPS / math.ceil(n_rows / size))) if n_rows else EPOCHS

    def settings_for(self, n_rows: int | None) -> Any:
        """The constructor's arguments, checked and resolved."""
        votes = choice("votes", self.votes, VOTES)
        init = choice("init", self.init, INITS)
        if votes == "fixed" and init == "k-means":
            raise ParameterError("votes='fixed' are targets of rows, which centres of k-means are not; use init='all'")
        alpha, weight = check_alpha(number("alpha", self.alpha)), checked_class_weight(self.class_weight)
        solver = choice("solver", self.solver, tuple(SOLVERS))
        epochs, size = self._epochs_for(n_rows), whole("batch_size", self.batch_size, 1)
        rows = None if n_rows is None else float(n_rows * epochs)
        schedule = choice("schedule", self.schedule, SCHEDULES)
        eta0 = 0.01 if self.eta0 == "auto" else step_size("eta0", self.eta0)
        if votes != "backprop":
            return RadialSettings(self.task, votes, alpha, weight)
        return NetworkSettings(
            graph=Graph.radial(1).as_dict(),
            task=self.task,
            loss="softmax" if self.task == "classify" else "squared",
            solver=solver,
            schedule=("constant" if rows is None else "linear") if schedule == "auto" else schedule,
            eta0=eta0,
            planned_rows=math.inf if rows is None else max(rows, 1.0),
            l2=alpha,
            batch_size=size if n_rows is None else max(1, min(size, n_rows)),
            seed=self.seed(),
            dtype="float64",
            class_weight=weight,
        )

    def _learner_for(self, settings: Any, source: Source, labels: Any) -> Learner:
        """An untrained learner around centres, which are chosen here in a pass over the rows."""
        centres, targets = self._centres(source)
        gammas = self._gammas(centres)
        if isinstance(settings, RadialSettings):
            own = targets if settings.votes == "fixed" else None
            rows = 1 if own is not None else len(centres) + 1
            _refuse_huge(len(gammas) * rows * rows * 8, f"the sums over {len(centres):,} units")
            return RadialLearner(settings, centres, gammas, labels, own)
        settings = replace(settings, graph=Graph.radial(len(centres)).as_dict())
        width = float(gammas[len(gammas) // 2])
        start = {"x>h1": np.ascontiguousarray(centres.T), "gamma h1": np.full(len(centres), math.log(width))}
        return NetworkLearner(settings, centres.shape[1], labels, start)

    def _centres(self, source: Source) -> tuple[Array, Array | None]:
        """(centres, their targets where they are rows)."""
        if self.init == "k-means":
            from steepest.models.kmeans import KMeans

            found = KMeans(self._count_units(source), random_state=self.seed()).fit_stream(source)
            return np.asarray(found.cluster_centers_, np.float64), None
        rows = (
            [chunk.packed() for chunk in source.in_file_order()]
            if self.init == "all"
            else _sample(source, self._count_units(source), self.seed())
        )
        if not rows:
            raise DataError("the data holds no rows; nothing can be learned from it")
        width = max(part.n_features for part in rows)
        _refuse_huge(sum(part.n_rows for part in rows) * width * 8, "the centres")
        return np.concatenate([finite_rows(part, width) for part in rows]), np.concatenate(
            [_targets(part) for part in rows]
        )

    def _count_units(self, source: Source) -> int:
        """The number of units: at most that of rows; "auto" depends on the rows, or is 32 where centres are trained."""
        if isinstance(self.n_units, str):
            choice("n_units", self.n_units, ("auto",))
            if self.votes == "backprop":
                return FEWEST_UNITS if source.n_rows is None else min(FEWEST_UNITS, source.n_rows)
            n_rows = sum(chunk.n_rows for chunk in source.in_file_order()) if source.n_rows is None else source.n_rows
            return min(n_rows, units_for(n_rows))
        size = whole("n_units", self.n_units, 1)
        return size if source.n_rows is None else min(size, source.n_rows)

    def _gammas(self, centres: Array) -> Array:
        if isinstance(self.gamma, str):
            choice("gamma", self.gamma, ("auto",))
            return np.array(TRIED) / median_distance(centres)
        return np.array([more_than("gamma", self.gamma, 0.0)])

    @classmethod
    def _restore(cls, settings: Any, state: State) -> Learner:
        plain = settings.as_dict() if not isinstance(settings, dict) else settings
        kinds: Any = (NetworkSettings, NetworkLearner) if "graph" in plain else (RadialSettings, RadialLearner)
        known = kinds[0].from_dict(plain)
        kinds[1].check_state(known, state)
        restored: Learner = kinds[1].from_state(known, state)
        return restored

    # --------------------------------------------------------------------------------------------- inspection

    @property
    def centers_(self) -> Array:
        """Centres, one row per unit."""
        self._check_fitted()
        if isinstance(self.learner_, RadialLearner):
            return self.learner_.centres
        return np.asarray(self.learner_.parameters()["x>h1"].T)

    @property
    def gamma_(self) -> Array:
        """The width of every unit: exp(-gamma |w - x|^2)."""
        self._check_fitted()
        if isinstance(self.learner_, RadialLearner):
            return np.full(len(self.learner_.centres), self.learner_.gamma)
        return np.asarray(np.exp(self.learner_.parameters()["gamma h1"]))

    @property
    def votes_(self) -> Array:
        """The weight of each unit for each output, shape (units, outputs)."""
        self._check_fitted()
        if isinstance(self.learner_, RadialLearner):
            return np.asarray(self.learner_.weights()[0])
        return np.asarray(self.learner_.parameters()["h1>y"])

    @property
    def n_nonzero_(self) -> int:
        """The number of votes that are not zero."""
        return int(np.count_nonzero(self.votes_))


class RBFClassifier(Classifier, RBFModel):
    """Radial basis classifier: adds up votes of units that respond near a centre, h_k = exp(-gamma_k |w_k - x|²).

    Parameters
    ----------
    n_units : int or "auto"
        Number of units, unless init="all". "auto" is a fifth of the rows, at least 32 and at most 500; fewer from
        16,000 rows on, so that solving stays affordable; and 32 with votes="backprop".
    init : {"k-means", "sample", "all"}
        Centres of the units: those of clusters, random rows, or every row.
    votes : {"closed_form", "backprop", "fixed"}
        How the votes v are learned. "closed_form" solves least squares on classes as -1 and +1, with the ridge `alpha`.
        "backprop" learns votes, centres and widths with the softmax loss, and has probabilities. With "fixed", the row
        of each centre votes for its own class, Σ v h / Σ h; with init="all" these are nearest neighbours weighted by
        distance.
    gamma : float or "auto"
        Width of all units: h = exp(-gamma |w - x|²). "auto" chooses by the leave-one-out error among values around one
        over the median squared distance between two centres; "backprop" starts from the middle one.
    alpha : float
        Strength of the penalty ½ alpha |v|² on the votes.
    solver, schedule, eta0, epochs, batch_size, tol, early_stopping, shuffle
        Training with votes="backprop", as in NetworkClassifier; the other options need one pass. init="all" requires
        early stopping. epochs="auto" is 20, and more for few rows, up to 1000 steps.
    class_weight, n_jobs, hasher, random_state, verbose
        As in NetworkClassifier.

    Attributes
    ----------
    centers_, gamma_, votes_, classes_, n_iter_, n_features_in_, history_, n_nonzero_

    Examples
    --------
    >>> import steepest as st
    >>> X, y = [[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]], ["no", "yes", "yes", "no"]
    >>> st.RBFClassifier(init="all", gamma=2.0, random_state=0).fit(X, y).predict(X).tolist()
    ['no', 'yes', 'yes', 'no']
    """

    def __init__(
        self,
        n_units: int | str = "auto",
        *,
        init: str = "k-means",
        votes: str = "closed_form",
        gamma: float | str = "auto",
        alpha: float = 1e-6,
        solver: str = "adam",
        schedule: str = "auto",
        eta0: float | str = "auto",
        epochs: int | str = "auto",
        batch_size: int = BATCH_ROWS,
        tol: float | None = None,
        early_stopping: bool | EarlyStopping = False,
        class_weight: Any = None,
        shuffle: str = "rows",
        n_jobs: int = 1,
        hasher: Any = None,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self._store(locals())

    def _is_softmax(self) -> bool:
        return self.votes == "backprop"

    def _loss_name(self) -> str:
        return "log" if self.votes == "backprop" else "squared"


class RBFRegressor(Regressor, RBFModel):
    """Radial basis regressor: Σ v_k exp(-gamma_k |w_k - x|²) + b, by least squares.

    The parameters are those of RBFClassifier. votes="fixed" is the mean of the targets of the centres, weighted by h:
    the kernel regression of Nadaraya and Watson.

    Examples
    --------
    >>> import numpy as np, steepest as st
    >>> x = np.linspace(-3, 3, 50)[:, None]
    >>> model = st.RBFRegressor(12, random_state=0).fit(x, np.sin(x).ravel())
    >>> bool(np.abs(model.predict([[1.0]]) - np.sin(1.0))[0] < 0.05)
    True
    """

    def __init__(
        self,
        n_units: int | str = "auto",
        *,
        init: str = "k-means",
        votes: str = "closed_form",
        gamma: float | str = "auto",
        alpha: float = 1e-6,
        solver: str = "adam",
        schedule: str = "auto",
        eta0: float | str = "auto",
        epochs: int | str = "auto",
        batch_size: int = BATCH_ROWS,
        tol: float | None = None,
        early_stopping: bool | EarlyStopping = False,
        shuffle: str = "rows",
        n_jobs: int = 1,
        hasher: Any = None,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self._store(locals())


def units_for(n_rows: int) -> int:
    """The number of units that n_units="auto" resolves to.

    >>> [units_for(n) for n in (20, 300, 1500, 10_000, 100_000, 10_000_000)]
    [32, 60, 300, 500, 200, 32]
    """
    affordable = math.isqrt(MOST_PRODUCTS // max(1, n_rows))
    return max(FEWEST_UNITS, min(MOST_UNITS, n_rows // ROWS_PER_UNIT, affordable))


def _refuse_huge(n_bytes: int, what: str) -> None:
    if n_bytes > LARGEST_BYTES:
        raise DataError(
            f"{what} would take {n_bytes / 2**30:.1f} GB; take fewer units (init='sample') or hash to fewer features"
        )


def _sample(source: Source, size: int, seed: int) -> list[Chunk]:
    """A sample of rows by hashes of their stable numbers, so that it does not depend on chunks."""
    kept: list[tuple[int, int, Chunk]] = []
    for chunk in source.in_file_order():
        ids = chunk.row_ids
        keys = mix(ids, seed)
        for visit in np.argsort(keys, kind="stable")[:size]:
            kept.append((int(keys[visit]), int(ids[visit]), chunk.span(int(visit), int(visit) + 1).packed()))
        kept = sorted(kept, key=lambda row: row[:2])[:size]
    return [row for _, _, row in kept]


def _targets(rows: Chunk) -> Array:
    if rows.y is None:
        raise DataError("the data has no targets to learn from; give y or read a file with labels")
    return rows.visited(rows.y)
