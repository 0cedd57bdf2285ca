"""k-means: a scikit-learn face on a source, the mini-batch learner and Lloyd's algorithm.

Minimises the inertia Σ w |x - c(x)|² over k centres, c(x) being the one nearest to x. It is matrix factorization
V ≈ W H with the centres as H and rows of W that are all zero but for a single one.
`fit(X)` is `fit_stream(from_arrays(X))`, and labels the rows besides.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import numpy as np

from steepest.data.chunk import Array, Chunk, DataError, concatenate
from steepest.data.parameters import ParameterError, at_least, choice, whole
from steepest.data.source import SHUFFLES, ArraySource, Source, from_arrays
from steepest.engine.checkpoint import Checkpoints
from steepest.engine.history import History
from steepest.engine.loop import Monitor, train
from steepest.engine.stopping import Plan
from steepest.inside import Contribution, explain_hashed, explain_row, heaviest, heaviest_named
from steepest.learners.base import join_words, split_words
from steepest.learners.centres import Centres
from steepest.learners.kmeans import KMeansLearner, KMeansSettings, cluster_rows
from steepest.learners.kmeans_start import STARTS, compact, weights_of
from steepest.learners.lloyd import Clustering, Lloyd
from steepest.model import StreamModel, threads

SOLVERS = ("minibatch", "lloyd")
EPOCHS = {"minibatch": 3, "lloyd": 300}


class KMeans(StreamModel):
    """k-means: minimises Σ w |x - c(x)|², c(x) being the nearest of `n_clusters` centres.

    Parameters
    ----------
    n_clusters : int
        How many centres.
    init : {"k-means++", "k-means||", "random"} or array of shape (n_clusters, d)
        Where the search begins: rows far apart (greedy k-means++), the same in five passes for large n_clusters
        ("k-means||"), any rows, or centres that you give.
    solver : {"minibatch", "lloyd"}
        "minibatch" learns from a stream in constant memory: stochastic gradients with a step of one over the weight a
        centre has seen. "lloyd" holds the rows in memory and iterates until nothing moves.
    n_init : int
        Starts, of which the best counts.
    epochs : int or "auto"
        Passes over the data, at most: 3 for "minibatch", 300 for "lloyd".
    batch_size : int
        Rows that "minibatch" labels before centres move.
    tol : float or None
        Training stops when the loss improves by less than this share ("minibatch": for two epochs).
    init_size : int or "auto"
        Rows among which the start is sought: by default three batches, or 30 rows a cluster if that is more.
        "minibatch" takes the first ones and clusters them by "lloyd" before it goes on.
    shuffle : {"blocks", "rows", "once", "never"}
        Order of the rows in every epoch of "minibatch".
    n_jobs : int
        Threads; -1 for all. The result does not depend on it.
    hasher : Hasher or None
        With it, X may be raw: texts, dicts, a DataFrame or an Arrow table.
    random_state : int, generator or None
        A number gives the same bits every time.
    verbose : int
        1 prints a line an epoch to stderr.

    Attributes
    ----------
    cluster_centers_ : array of shape (n_clusters, d)
    labels_ : array of n cluster numbers (after `fit`)
    inertia_ : float
        Σ w |x - c(x)|²; after `fit_stream` with "minibatch" the last epoch's mean loss times the number of rows.
    counts_ : array of n_clusters
        Weight of the rows that each centre is the mean of.
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

    _kind = "clusterer"
    _task = "cluster"

    n_clusters: int
    init: Any
    solver: str
    n_init: int
    epochs: int | str
    batch_size: int
    tol: float | None
    init_size: int | str
    shuffle: str

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        init: Any = "k-means++",
        solver: str = "minibatch",
        n_init: int = 1,
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

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Learns from X of shape (n, d), sparse or dense, with optional weights of the rows; y is not used."""
        vars(self).pop("hasher_", None)
        return self._fit(self._source(X, sample_weight))

    def fit_stream(
        self,
        source: Source,
        validation: Source | None = None,
        *,
        monitor: Monitor | None = None,
        checkpoint: str | Path | None = None,
        resume: bool = False,
    ) -> Self:
        """Learns from a source of chunks: in constant memory by "minibatch"; "lloyd" gathers the rows first.

        `validation` is measured after every epoch. `checkpoint` names a folder in which the state is saved now and
        then ("minibatch" only); `resume=True` goes on from there, to the same bits as if nothing had happened.
        """
        vars(self).pop("hasher_", None)
        return self._fit(source, validation, monitor, checkpoint, resume)

    def partial_fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Learns these rows once, in order, by mini-batches, from where the model stands; y is not used.

        Two calls learn the same as one with all rows. There are centres as soon as n_clusters rows were given.
        """
        source = self._source(X, sample_weight)
        self._check_width(source)
        if not hasattr(self, "_learner"):
            self._adopt(self._new_learner(self._settings(), source), History(), source)
        self._learner.n_threads = threads(self.n_jobs)
        for chunk in source:
            self.history_.events += self._learner.step(chunk).events
        self.n_iter_ += 1
        vars(self).pop("labels_", None)
        self._refresh()
        return self

    def _fit(
        self,
        source: Source,
        validation: Source | None = None,
        monitor: Monitor | None = None,
        checkpoint: str | Path | None = None,
        resume: bool = False,
    ) -> Self:
        solver = choice("solver", self.solver, SOLVERS)
        epochs = EPOCHS[solver] if self.epochs == "auto" else whole("epochs", self.epochs, 1)
        tol = None if self.tol is None else at_least("tol", self.tol, 0.0)
        choice("shuffle", self.shuffle, SHUFFLES)
        settings = self._settings()
        monitor = monitor or self._monitor() or Monitor()
        raw, source = source, self._hashed(source, learn=True)
        vars(self).pop("labels_", None)
        if solver == "lloyd":
            if checkpoint is not None or validation is not None:
                raise ParameterError("solver='lloyd' has no checkpoints and no validation; use solver='minibatch'")
            return self._fit_lloyd(settings, source, epochs, tol or 0.0, monitor)
        if validation is not None:
            validation = self._hashed(validation, learn=False)
        source = source.shuffle(self.shuffle, settings.seed)
        learner = self._new_learner(settings, source)
        learner.n_threads = threads(self.n_jobs)
        learner, history = train(
            learner,
            source,
            Plan(epochs=epochs, tol=tol),
            validation=validation,
            monitor=monitor,
            checkpoints=Checkpoints.of(learner, source, self.shuffle, checkpoint, resume=resume),
        )
        if learner.rows_learned == 0:
            raise DataError("the data holds no rows; nothing can be learned from it")
        learner.learn_pending()
        self._adopt(learner, history, source)
        if isinstance(raw, ArraySource):
            self._label(raw)
        else:
            # Counts fade from epoch to epoch, so they are no measure of how much data there is.
            self.inertia_ = float(history[-1]["loss"]) * (learner.epoch_rows or learner.rows_learned)
        return self

    def _fit_lloyd(self, settings: KMeansSettings, source: Source, epochs: int, tol: float, monitor: Monitor) -> Self:
        rows = _gather(source)
        given = self._given(rows.n_features)
        found, columns = self._iterate(rows, given, settings, epochs, tol, monitor)
        learner = KMeansLearner.from_clustering(settings, found, columns, rows.n_features)
        history = History([dict(record) for record in found.records])
        if not found.converged:
            history.events.append(f"not converged after {len(found.records)} epochs; give more or a larger tol")
        self._adopt(learner, history, source)
        self.labels_, self.inertia_ = found.labels, found.inertia
        return self

    def _iterate(
        self,
        rows: Chunk,
        given: Array | None,
        settings: KMeansSettings,
        epochs: int,
        tol: float,
        monitor: Monitor,
    ) -> tuple[Clustering, Array]:
        """What Lloyd's algorithm finds, and the columns that it speaks of."""
        n_threads = threads(self.n_jobs)
        if given is not None:
            if rows.n_rows < settings.k:
                raise DataError(f"n_samples={rows.n_rows} should be >= n_clusters={settings.k}: ask for fewer clusters")
            run = Lloyd(rows, Centres.from_array(given), n_threads=n_threads)
            return run.run(epochs, tol, monitor.epoch_done), np.arange(rows.n_features)
        small, columns = compact(rows)
        return cluster_rows(small, settings, epochs, tol, n_threads, tell=monitor.epoch_done), columns

    def _settings(self) -> KMeansSettings:
        """The constructor's arguments, checked and resolved."""
        k = whole("n_clusters", self.n_clusters, 1)
        batch = whole("batch_size", self.batch_size, 1)
        start = choice("init", self.init, STARTS) if isinstance(self.init, str) else "given"
        n_starts = whole("n_init", self.n_init, 1)
        if isinstance(self.init_size, str):
            choice("init_size", self.init_size, ("auto",))
            size = max(3 * batch, 30 * k)
        else:
            size = whole("init_size", self.init_size, 1)
            if size < k:
                raise ParameterError(f"init_size={size} must be at least n_clusters={k}")
        return KMeansSettings(k, start, n_starts, size, batch, self._seed())

    def _new_learner(self, settings: KMeansSettings, source: Source) -> KMeansLearner:
        given = self._given(source.n_features)
        if given is not None and source.n_rows is not None and source.n_rows < settings.k:
            raise DataError(f"n_samples={source.n_rows} should be >= n_clusters={settings.k}: ask for fewer clusters")
        return KMeansLearner(settings, source.n_features or 0, given)

    def _given(self, n_features: int | None) -> Array | None:
        if isinstance(self.init, str):
            return None
        if hasattr(self.init, "toarray"):
            given = np.asarray(self.init.toarray(), np.float32)
        else:
            try:
                given = np.asarray(self.init, np.float32)
            except (TypeError, ValueError):
                raise ParameterError(f"init={self.init!r} is no array; give one, or {', '.join(STARTS)}") from None
        k = int(self.n_clusters)
        if given.ndim != 2 or len(given) != k or (n_features is not None and given.shape[1] != n_features):
            wanted = f"({k}, {n_features})" if n_features is not None else f"({k}, features)"
            raise ParameterError(f"init has shape {given.shape}, but {wanted} is needed: a row for each cluster")
        if not np.isfinite(given).all():
            raise ParameterError("init contains NaN or infinity; give finite centres")
        return given

    def _source(self, X: Any, sample_weight: Any = None) -> ArraySource:
        if self.hasher is not None:
            return ArraySource(self._own_hasher().to_chunk(X, None, sample_weight, learn=True))
        self._note_names(X)
        source = from_arrays(_canonical(X), sample_weight=sample_weight)
        if source.n_rows == 0:
            raise DataError("Found array with 0 sample(s): X has no rows; at least one is needed")
        if source.n_features == 0:
            raise DataError(f"0 feature(s) (shape=({source.n_rows}, 0)) while a minimum of 1 is required: X is empty")
        return source

    def _adopt(self, learner: KMeansLearner, history: History, source: Source) -> None:
        self._learner = learner
        self.recipe_ = source.recipe
        self.history_ = history
        self.n_iter_ = len(history)
        self._refresh()

    def _refresh(self) -> None:
        hasher = getattr(self, "hasher_", None)
        self.n_features_in_ = self._learner.n_features if hasher is None else hasher.n_features_in_

    def _label(self, source: ArraySource) -> None:
        labels, squares = self._centres().nearest(source.block, threads(self.n_jobs))
        self.labels_, self.inertia_ = labels, float(weights_of(source.block) @ squares)

    # ------------------------------------------------------------------------------------------------- prediction

    def _centres(self) -> Centres:
        self._check_fitted()
        if not self._learner.can_show:
            raise self._not_fitted(f"n_clusters={self._learner.settings.k} centres need as many rows; give more")
        shown: Centres = self._learner.shown()
        return shown

    def predict(self, X: Any) -> Array:
        """The number of the nearest centre for each row."""
        return self._centres().nearest(self._rows(X), threads(self.n_jobs))[0]

    def fit_predict(self, X: Any, y: Any = None, sample_weight: Any = None) -> Array:
        """`fit(X)`, then `labels_`."""
        return self.fit(X, y, sample_weight).labels_

    def transform(self, X: Any) -> Array:
        """Distances to all centres, shape (n, n_clusters)."""
        return np.sqrt(self._centres().squares(self._rows(X), threads(self.n_jobs)))

    def fit_transform(self, X: Any, y: Any = None, sample_weight: Any = None) -> Array:
        """`fit(X)`, then `transform(X)`."""
        return self.fit(X, y, sample_weight).transform(X)

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Minus the inertia of these rows: the larger the better."""
        rows = self._rows(X)
        weight = np.ones(rows.n_rows) if sample_weight is None else np.asarray(sample_weight, np.float64)
        return -float(weight @ self._centres().nearest(rows, threads(self.n_jobs))[1])

    def predict_stream(self, source: Source) -> Iterator[Array]:
        """Cluster numbers chunk by chunk."""
        for chunk in self._fitting(source):
            yield self._centres().nearest(chunk, threads(self.n_jobs))[0]

    def evaluate_stream(self, source: Source) -> dict[str, Any]:
        """Rows, `loss` (the inertia a row, by weight), `inertia` and how many clusters are used, over a source."""
        rows, weight, inertia = 0, 0.0, 0.0
        sizes = np.zeros(self._centres().k)
        for chunk in self._fitting(source):
            labels, squares = self._centres().nearest(chunk, threads(self.n_jobs))
            w = weights_of(chunk)
            rows, weight, inertia = rows + len(w), weight + float(w.sum()), inertia + float(w @ squares)
            sizes += np.bincount(labels, w, minlength=len(sizes))
        if not weight:
            raise DataError("the data holds no rows to evaluate on")
        return {"rows": rows, "loss": inertia / weight, "inertia": inertia, "clusters_used": int((sizes > 0).sum())}

    def _fitting(self, source: Source) -> Iterator[Chunk]:
        """Chunks of a source; features that the model has never seen lie outside all centres."""
        self._check_fitted()
        for chunk in self._hashed(source, learn=False):
            if chunk.n_features > self._learner.n_features:
                raise DataError(
                    f"the data has {chunk.n_features} features, but KMeans is expecting {self._learner.n_features} "
                    "features as input; give the same data format, or --n-features when training"
                )
            yield chunk

    def _rows(self, X: Any) -> Chunk:
        return self._chunk(_canonical(X) if getattr(self, "hasher_", None) is None else X)

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import TransformerTags

        tags = super().__sklearn_tags__()
        tags.estimator_type = "clusterer"
        tags.transformer_tags = TransformerTags(preserves_dtype=[])
        return tags

    # --------------------------------------------------------------------------------------------- looking inside

    @property
    def cluster_centers_(self) -> Array:
        """The centres, shape (n_clusters, d)."""
        if "_learner" not in self.__dict__ or not self._learner.can_show:
            raise AttributeError("this KMeans is not fitted yet")
        centres: Array = self._learner.weights()[0]
        return centres

    @property
    def counts_(self) -> Array:
        """Weight of the rows that each centre is the mean of."""
        if "_learner" not in self.__dict__ or not self._learner.can_show:
            raise AttributeError("this KMeans is not fitted yet")
        counts: Array = self._learner.finished().count
        return counts

    @property
    def n_nonzero_(self) -> int:
        """Coordinates of centres that are not zero."""
        return int(np.count_nonzero(self.cluster_centers_))

    def top_features(self, k: int = 20) -> dict[int, list[tuple[str, float]]]:
        """The k heaviest coordinates of each centre, by name where names are known."""
        self._check_fitted()
        hasher = getattr(self, "hasher_", None)
        if hasher is not None and hasher.names:
            return {c: heaviest_named(centre, k, hasher) for c, centre in enumerate(self.cluster_centers_)}
        names = getattr(self, "feature_names_in_", None)
        return {c: heaviest(centre, k, names) for c, centre in enumerate(self.cluster_centers_)}

    def explain(self, x: Any) -> dict[int, list[Contribution]]:
        """What each feature of one row adds to x·c for every centre c: the nearest has the largest x·c - |c|²/2."""
        self._check_fitted()
        hasher = getattr(self, "hasher_", None)
        if hasher is None:
            row = self._rows(x if getattr(x, "ndim", 2) == 2 or isinstance(x, list) else np.asarray(x)[None, :])
            names = getattr(self, "feature_names_in_", None)
            return {c: explain_row(row, centre, names) for c, centre in enumerate(self.cluster_centers_)}
        row, own, seen = hasher.read_row(x)
        return {c: explain_hashed(row, centre, own, seen) for c, centre in enumerate(self.cluster_centers_)}

    # --------------------------------------------------------------------------------------------------- files

    def _file_parts(self) -> tuple[dict[str, Any], dict[str, Array]]:
        params = {k: v for k, v in self.get_params(deep=False).items() if k not in ("hasher", "random_state", "init")}
        params = {k: (v.item() if isinstance(v, np.generic) else v) for k, v in params.items()}
        params["random_state"] = self.random_state if isinstance(self.random_state, int) else None
        params["init"] = self.init if isinstance(self.init, str) else None
        hasher_header, hasher_arrays = self._hasher_parts()
        words, arrays = split_words(self._learner.state)
        header = {
            "words": words,
            "hasher": hasher_header,
            "params": params,
            "settings": self._learner.settings.as_dict(),
            "history": self.history_.as_dict(),
            "n_iter": self.n_iter_,
            "inertia": getattr(self, "inertia_", None),
            "recipe": self.recipe_,
            "feature_names": getattr(self, "feature_names_in_", np.array([])).tolist(),
        }
        if not isinstance(self.init, str):
            arrays["init"] = np.asarray(self._given(None))
        return header, arrays | hasher_arrays

    @classmethod
    def _from_file_parts(cls, header: dict[str, Any], arrays: dict[str, Array]) -> Self:
        estimator = cls(**header["params"])
        if estimator.init is None:
            estimator.init = np.array(arrays["init"])
        estimator._restore_hasher(header["hasher"], arrays)
        settings = KMeansSettings.from_dict(header["settings"])
        estimator._learner = KMeansLearner.from_state(settings, join_words(header["words"], arrays))
        estimator.recipe_ = header["recipe"]
        estimator.history_ = History.from_dict(header["history"])
        estimator.n_iter_ = int(header["n_iter"])
        if header["inertia"] is not None:
            estimator.inertia_ = float(header["inertia"])
        if header["feature_names"]:
            estimator.feature_names_in_ = np.array(header["feature_names"], dtype=object)
        estimator._refresh()
        return estimator


def _canonical(X: Any) -> Any:
    """A scipy matrix in which no cell is given twice: the square of a sum is not the sum of squares."""
    if hasattr(X, "tocsr") and not (getattr(X, "format", "") == "csr" and X.has_canonical_format):
        X = X.tocsr(copy=True)
        X.sum_duplicates()
    return X


def _gather(source: Source) -> Chunk:
    """All rows of a source, in memory."""
    if isinstance(source, ArraySource) and source.rows is None:
        return source.block
    chunks = [chunk.packed() for chunk in source]
    if not chunks:
        raise DataError("the data holds no rows; nothing can be learned from it")
    return concatenate(chunks)
