"""k-means: a scikit-learn face on a source, the mini-batch learner and Lloyd's algorithm.

Minimises the inertia Σ w |x - c(x)|² over k centres, c(x) being the one nearest to x. It is matrix factorization
V ≈ W H with the centres as H and rows of W that are all zero but for a single one.
`fit(X)` is `fit_stream(from_arrays(X))`, and labels the rows besides.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Self

import numpy as np

from steepest.data.chunk import Array, Chunk, compact, concatenate
from steepest.data.matrices import checked_csr
from steepest.data.source import ArraySource, Source
from steepest.engine.history import History
from steepest.engine.loop import Monitor
from steepest.engine.stopping import Plan
from steepest.errors import DataError, ParameterError
from steepest.learners.base import State
from steepest.learners.kmeans.centres import Centres
from steepest.learners.kmeans.kmeans_start import STARTS, weights_of
from steepest.learners.kmeans.lloyd import Clustering, Lloyd
from steepest.learners.kmeans.minibatch import KMeansLearner, KMeansSettings, cluster_rows
from steepest.models.base import Model, Run
from steepest.models.explain import Contribution, explain_row, top_features
from steepest.models.options import Option
from steepest.parameters import choice, whole
from steepest.protocol import as_output, check_input_names, not_fitted, set_output

SOLVERS = ("minibatch", "lloyd")
EPOCHS = {"minibatch": 3, "lloyd": 300}


class KMeans(Model):
    """k-means clustering: minimises Σ w |x - c(x)|², where c(x) is the nearest of `n_clusters` centres.

    Parameters
    ----------
    n_clusters : int
        Number of centres.
    init : {"k-means++", "k-means||", "random"} or array of shape (n_clusters, d)
        How the first centres are chosen: rows far apart (greedy k-means++), the same in five passes for hundreds of
        clusters ("k-means||"), random rows, or centres that you give.
    solver : {"minibatch", "lloyd"}
        Algorithm. "minibatch" reads a stream in constant memory: each centre takes steps of one over the weight it has
        seen. "lloyd" holds the rows in memory and iterates until no label changes.
    restarts : int
        Number of random starts; the best result is used.
    epochs : int or "auto"
        Maximum number of passes over the data; "auto" is 3 for "minibatch" and 300 for "lloyd".
    batch_size : int
        Rows that "minibatch" labels before centres move.
    tol : float or None
        Training stops when the loss improves by less than this share ("minibatch": in two epochs).
    init_size : int or "auto"
        Rows among which the first centres are chosen; "auto" is three batches, or 30 rows per cluster if that is more.
        "minibatch" first clusters these rows by "lloyd".
    shuffle : {"blocks", "rows", "once", "never"}
        Order of the rows in every epoch of "minibatch".
    n_jobs : int
        Number of threads; -1 uses all cores. Results do not depend on it.
    hasher : Hasher or None
        Turns raw X (texts, dicts, a DataFrame or an Arrow table) into features.
    random_state : int, generator or None
        Seed: the same number gives bit-identical results.
    verbose : int
        1 prints one line per epoch to stderr.

    Attributes
    ----------
    cluster_centers_ : array of shape (n_clusters, d)
    labels_ : array of n cluster numbers (after `fit`)
    inertia_ : float
        Σ w |x - c(x)|²; after `fit_stream` with "minibatch" the last epoch's mean loss times the number of rows.
    counts_ : array of n_clusters
        Total weight of the rows of each centre.
    n_iter_, n_features_in_, history_

    Examples
    --------
    >>> import steepest as st
    >>> model = st.KMeans(2, random_state=0).fit([[0.0, 1.0], [0.0, 2.0], [9.0, 1.0], [9.0, 2.0]])
    >>> sorted(model.cluster_centers_.tolist())
    [[0.0, 1.5], [9.0, 1.5]]
    >>> round(model.inertia_, 4)
    1.0

    References
    ----------
    Bottou, L. and Bengio, Y. (1995). Convergence properties of the k-means algorithms.
    Sculley, D. (2010). Web-scale k-means clustering.
    """

    learner_type = KMeansLearner
    settings_type = KMeansSettings
    kind = "clusterer"
    task = "cluster"

    options: ClassVar[tuple[type[Option], ...]] = ()
    n_clusters: int
    init: Any
    solver: str
    restarts: int
    epochs: int | str
    batch_size: int
    tol: float | None
    init_size: int | str
    shuffle: str
    _stores_rows = False  # constant memory is worth more here than the parsing of rows

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        init: Any = "k-means++",
        solver: str = "minibatch",
        restarts: int = 1,
        epochs: int | str = "auto",
        batch_size: int = 1024,
        tol: float | None = 1e-5,
        init_size: int | str = "auto",
        shuffle: str = "blocks",
        n_jobs: int = 1,
        hasher: Any = None,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self._store(locals())

    # -------------------------------------------------------------------------------------------------- learning

    def partial_fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Learns these rows once, in order, by mini-batches, from where the model is; y is not used.

        Two calls learn the same as one with all rows. There are centres as soon as n_clusters rows were given.
        """
        source = self.source_of(X, None, sample_weight)
        self._check_width(source)
        vars(self).pop("labels_", None)
        n_iter = getattr(self, "n_iter_", 0)
        self._learn_more(source)
        self.n_iter_ = n_iter + 1
        return self

    def _fit(self, source: Source, validation: Source | None = None, run: Run | None = None) -> Self:
        vars(self).pop("labels_", None)
        if choice("solver", self.solver, SOLVERS) == "lloyd" and (validation is not None or (run and run.checkpoint)):
            raise ParameterError("solver='lloyd' has no checkpoints and no validation; use solver='minibatch'")
        super()._fit(source, validation, run)
        if self.solver == "lloyd":
            return self
        if isinstance(source, ArraySource):
            labels, squares = self._centres().nearest(source.block, self.n_threads)
            self.labels_, self.inertia_ = labels, float(weights_of(source.block) @ squares)
        else:
            # Counts fade from epoch to epoch, so they do not measure how much data there is.
            learner = self.learner_
            self.inertia_ = float(self.history_[-1]["loss"]) * (learner.epoch_rows or learner.rows_learned)
        return self

    def _learn(self, settings: KMeansSettings, source: Source, validation: Source | None, run: Run, seed: int) -> None:
        if self.solver == "minibatch":
            super()._learn(settings, source, validation, run, settings.seed)
            return
        rows, plan = _gather(source), self.plan_epochs()
        found, columns = self._iterate(rows, settings, plan, run.monitor)
        learner = KMeansLearner.from_clustering(settings, found, columns, rows.n_features)
        self.adopt_clustering(learner, found, source)
        self.labels_ = found.labels

    def adopt_clustering(self, learner: KMeansLearner, found: Clustering, source: Source) -> None:
        """Makes a learner built from the result of Lloyd's algorithm the fitted state."""
        history = History([dict(record) for record in found.records])
        if not found.converged:
            history.events.append(f"not converged after {len(found.records)} epochs; increase epochs or tol")
        self.adopt(learner, history, source)
        self.inertia_ = found.inertia

    def _n_epochs(self) -> int:
        return EPOCHS[self.solver] if self.epochs == "auto" else whole("epochs", self.epochs, 1)

    def _finish(self, learner: KMeansLearner, history: History, executor: Any) -> None:
        super()._finish(learner, history, executor)
        learner.finish()

    def _iterate(self, rows: Chunk, settings: KMeansSettings, plan: Plan, monitor: Monitor) -> tuple[Clustering, Array]:
        """Runs Lloyd's algorithm; returns its result and the columns that it used."""
        given, epochs, tol = self.given_centres(rows.n_features), plan.epochs, plan.tol or 0.0
        if given is not None:
            if rows.n_rows < settings.k:
                raise DataError(f"n_samples={rows.n_rows} should be >= n_clusters={settings.k}: ask for fewer clusters")
            run = Lloyd(rows, Centres.from_array(given), n_threads=self.n_threads)
            return run.run(epochs, tol, monitor.epoch_done), np.arange(rows.n_features)
        small, columns = compact(rows)
        return cluster_rows(small, settings, epochs, tol, self.n_threads, report=monitor.epoch_done), columns

    def settings_for(self, n_rows: int | None = None) -> KMeansSettings:
        """The constructor's arguments, checked and resolved."""
        k = whole("n_clusters", self.n_clusters, 1)
        batch = whole("batch_size", self.batch_size, 1)
        start = choice("init", self.init, STARTS) if isinstance(self.init, str) else "given"
        n_starts = whole("restarts", self.restarts, 1)
        if isinstance(self.init_size, str):
            choice("init_size", self.init_size, ("auto",))
            size = max(3 * batch, 30 * k)
        else:
            size = whole("init_size", self.init_size, 1)
            if size < k:
                raise ParameterError(f"init_size={size} must be at least n_clusters={k}")
        return KMeansSettings(k, start, n_starts, size, batch, self.seed())

    def new_learner(self, settings: KMeansSettings, source: Source, classes: Any = None) -> KMeansLearner:
        """An untrained learner for rows of this source."""
        given = self.given_centres(source.n_features)
        if given is not None and source.n_rows is not None and source.n_rows < settings.k:
            raise DataError(f"n_samples={source.n_rows} should be >= n_clusters={settings.k}: ask for fewer clusters")
        return KMeansLearner(settings, source.n_features or 0, given)

    def given_centres(self, n_features: int | None) -> Array | None:
        """The centres that `init` gives, checked; None if it names a way to choose them."""
        if isinstance(self.init, str):
            return None
        if hasattr(self.init, "toarray"):
            given = np.asarray(self.init.toarray(), np.float32)
        else:
            try:
                with np.errstate(over="ignore"):  # infinities are refused below
                    given = np.asarray(self.init, np.float32)
            except (TypeError, ValueError):
                raise ParameterError(f"init={self.init!r} is not an array; give one, or {', '.join(STARTS)}") from None
        k = int(self.n_clusters)
        if given.ndim != 2 or len(given) != k or (n_features is not None and given.shape[1] != n_features):
            needed = f"({k}, {n_features})" if n_features is not None else f"({k}, features)"
            raise ParameterError(f"init has shape {given.shape}, but {needed} is needed: a row for each cluster")
        if not np.isfinite(given).all():
            raise ParameterError("init contains NaN or infinity; give finite centres")
        return given

    def source_of(self, X: Any, y: Any = None, sample_weight: Any = None, *, columns: bool = True) -> ArraySource:
        """Rows in memory as a source, hashed if they are raw."""
        return super().source_of(X if self.hasher is not None else _canonical(X), None, sample_weight, columns=columns)

    # ------------------------------------------------------------------------------------------------- prediction

    def _centres(self) -> Centres:
        self._check_fitted()
        if not self.learner_.can_show:
            raise not_fitted(self, f"n_clusters={self.learner_.settings.k} centres need as many rows; give more")
        shown: Centres = self.learner_.shown()
        return shown

    def predict(self, X: Any) -> Array:
        """Returns the number of the nearest centre for each row."""
        return self._centres().nearest(self._rows(X), self.n_threads)[0]

    def fit_predict(self, X: Any, y: Any = None, sample_weight: Any = None) -> Array:
        """`fit(X)`, then `labels_`."""
        return self.fit(X, y, sample_weight).labels_

    def transform(self, X: Any) -> Any:
        """Distances to all centres, shape (n, n_clusters)."""
        return as_output(self, np.sqrt(self._centres().squares(self._rows(X), self.n_threads)), X)

    set_output = set_output

    def get_feature_names_out(self, input_features: Any = None) -> Array:
        """A name for each column of `transform`: "kmeans0", "kmeans1", ..."""
        self._check_fitted()
        check_input_names(self, input_features)
        return np.array([f"kmeans{place}" for place in range(len(self.cluster_centers_))], dtype=object)

    def fit_transform(self, X: Any, y: Any = None, sample_weight: Any = None) -> Any:
        """`fit(X)`, then `transform(X)`."""
        return self.fit(X, y, sample_weight).transform(X)

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Returns the negative inertia of these rows; larger is better."""
        rows = self._rows(X)
        weight = np.ones(rows.n_rows) if sample_weight is None else np.asarray(sample_weight, np.float64)
        return -float(weight @ self._centres().nearest(rows, self.n_threads)[1])

    def predict_stream(self, source: Source) -> Iterator[Array]:
        """Cluster numbers chunk by chunk."""
        for chunk in self._fitting(source):
            yield self._centres().nearest(chunk, self.n_threads)[0]

    def evaluate_stream(self, source: Source) -> dict[str, Any]:
        """Rows, `loss` (the inertia per row, by weight), `inertia` and how many clusters are used, over a source."""
        rows, weight, inertia = 0, 0.0, 0.0
        sizes = np.zeros(self._centres().k)
        for chunk in self._fitting(source):
            labels, squares = self._centres().nearest(chunk, self.n_threads)
            w = weights_of(chunk)
            rows, weight, inertia = rows + len(w), weight + float(w.sum()), inertia + float(w @ squares)
            sizes += np.bincount(labels, w, minlength=len(sizes))
        if not weight:
            raise DataError("the data holds no rows to evaluate on")
        return {"rows": rows, "loss": inertia / weight, "inertia": inertia, "clusters_used": int((sizes > 0).sum())}

    def _fitting(self, source: Source) -> Iterator[Chunk]:
        """Yields chunks of a source; features unknown to the model are handled as columns where all centres are 0."""
        self._check_fitted()
        for chunk in self.hashed(source, learn=False):
            if chunk.n_features > self.learner_.n_features:
                raise DataError(
                    f"the data has {chunk.n_features} features, but KMeans is expecting {self.learner_.n_features} "
                    "features as input; give the same data format, or --n-features when training"
                )
            yield chunk

    def _rows(self, X: Any) -> Chunk:
        return self._chunk(_canonical(X) if getattr(self, "hasher_", None) is None else X)

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import TransformerTags

        tags = super().__sklearn_tags__()
        tags.transformer_tags = TransformerTags(preserves_dtype=[])
        return tags

    # --------------------------------------------------------------------------------------------- inspection

    def _check_learner(self) -> None:
        super()._check_learner()
        if not self.learner_.can_show:
            raise AttributeError("this KMeans is not fitted yet")

    @property
    def cluster_centers_(self) -> Array:
        """The centres, shape (n_clusters, d)."""
        self._check_learner()
        centres: Array = self.learner_.weights()[0]
        return centres

    @property
    def counts_(self) -> Array:
        """Weight of the rows that each centre is the mean of."""
        self._check_learner()
        counts: Array = self.learner_.finished().count
        return counts

    @property
    def n_nonzero_(self) -> int:
        """Coordinates of centres that are not zero."""
        return int(np.count_nonzero(self.cluster_centers_))

    def top_features(self, k: int = 20) -> dict[int, list[tuple[str, float]]]:
        """Returns the k largest coordinates of each centre, by name where names are known."""
        self._check_fitted()
        names, centres = getattr(self, "feature_names_in_", None), enumerate(self.cluster_centers_)
        return top_features(centres, k, getattr(self, "hasher_", None), names)

    def explain(self, x: Any) -> dict[int, list[Contribution]]:
        """What each feature of one row adds to x·c for every centre c: the nearest has the largest x·c - |c|²/2."""
        self._check_fitted()
        names, centres = getattr(self, "feature_names_in_", None), enumerate(self.cluster_centers_)
        return explain_row(x, centres, getattr(self, "hasher_", None), self._rows, names)

    # ------------------------------------------------------------------------------------------------------ files

    def _file_parts(self) -> tuple[dict[str, Any], dict[str, Array]]:
        header, arrays = super()._file_parts()
        if not isinstance(self.init, str):
            header["params"]["init"] = None
            arrays = {**arrays, "init": np.asarray(self.given_centres(None))}
        return {**header, "inertia": getattr(self, "inertia_", None)}, arrays

    def _take_state(self, settings: Any, state: State) -> None:
        super()._take_state(settings, state)
        if self.init is None:
            self.init = np.array(state["init"])

    def _take_header(self, header: Mapping[str, Any]) -> None:
        if header["inertia"] is not None:
            self.inertia_ = float(header["inertia"])


def _canonical(X: Any) -> Any:
    """A scipy matrix without duplicate entries, since the square of a sum is not the sum of squares."""
    if not hasattr(X, "tocsr"):
        return X
    rows = checked_csr(X)
    if not rows.has_canonical_format:
        rows = rows.copy() if rows is X else rows
        rows.sum_duplicates()
    return rows


def _gather(source: Source) -> Chunk:
    """Reads all rows of a source into memory."""
    if isinstance(source, ArraySource) and source.rows is None:
        return source.block
    chunks = [chunk.packed() for chunk in source]
    if not chunks:
        raise DataError("the data holds no rows; nothing can be learned from it")
    return concatenate(chunks)
