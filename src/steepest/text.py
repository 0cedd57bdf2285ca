"""Text classifiers that learn their words: a scikit-learn face on a source, the embedding learner and the loop.

Words, word n-grams and character n-grams are hashed to rows of `dim` numbers, a text is the mean of its rows, and a
linear head tells its labels: P = softmax(W h), or one of the other losses for many labels or several of them.
`fit(X, y)` is exactly `fit_stream` over the same rows. Vectors of words come out, and in from `.vec` files.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import numpy as np

from steepest import model_file
from steepest.budget import shown
from steepest.data.chunk import Array, DataError
from steepest.data.kept import keep_rows
from steepest.data.parameters import ParameterError, at_least, choice, inside, whole
from steepest.data.raw import root_of
from steepest.data.source import SHUFFLES, ArraySource, Source
from steepest.engine.checkpoint import Checkpoints
from steepest.engine.history import History
from steepest.engine.loop import Monitor, train
from steepest.engine.stopping import Plan
from steepest.hashing import Hasher
from steepest.learners.base import join_words, split_words
from steepest.learners.embedding import LOSSES, EmbeddingLearner, EmbeddingSettings
from steepest.learners.quantized import unpack_rows
from steepest.model import NAMES, threads
from steepest.supervised_model import target_names
from steepest.text_choices import choose_dim, choose_epochs, choose_eta0, choose_parallel, choose_sync_every
from steepest.text_file import smaller
from steepest.text_labels import Seen, look, text_targets
from steepest.text_predictions import TextPredictions
from steepest.vectors import dim_of_vectors

LONGEST_ROW = 4096
PARALLEL = ("auto", "serial", "replicas", "hogwild")
SCHEDULES = ("auto", "linear", "invsqrt")


class TextClassifier(TextPredictions):
    """A text classifier with learned embeddings: P = softmax(W h), h the mean of the rows of a text's n-grams.

    Parameters
    ----------
    dim : int or "auto"
        Numbers in a row; "auto" takes 16, with 32 labels or more 32, with 256 or more 64.
    ngrams : (low, high) or None
        Word n-grams.
    char_ngrams : (low, high), optional
        Character n-grams inside words; (2, 4) tells languages apart and forgives misspellings.
    loss : {"softmax", "ova", "ns", "hs"}
        One soft maximum; one against all, for several labels a text; the same with `negatives` labels drawn by chance;
        or a soft maximum along Huffman's tree of the labels. The last two do not slow down with thousands of labels.
    n_bits : int
        The table has 2**n_bits rows; those never seen take no room in files.
    epochs : int or "auto"
        Passes over the data; "auto" learns 250,000 texts in all, in 5 to 50 passes, and a pipe once.
    eta0 : float or "auto"
        Step size at the start; "auto" takes 0.5, with 32 labels or more 1.
    schedule : {"auto", "linear", "invsqrt"}
        "linear" falls to zero at the end of the data; "invsqrt" needs no end. "auto" is linear where the number of rows
        can be known.
    negatives : int
        Labels drawn for each text under loss="ns".
    calibrate : float
        Share of the rows to hold out; after training, probabilities are softened or sharpened to fit them.
    pretrained : path, optional
        A `.vec` file of word vectors to start from.
    lowercase : bool
        Fold letters of all alphabets to lower case.
    names : int
        Words to keep by name, for `nearest` and `save_vectors`.
    shuffle : {"rows", "blocks", "once", "never"}
        Order of the rows in every epoch.
    parallel : {"auto", "serial", "replicas", "hogwild"}
        "replicas" learn some texts each and then add up what they have learned, with the same bits for any `n_jobs`;
        "hogwild" lets `n_jobs` threads write without locks, never twice the same. "auto" takes replicas from 10,000
        texts on. `partial_fit` learns serially.
    n_replicas : int
        Learners under "replicas".
    sync_every : int or "auto"
        Texts that a replica learns by itself; "auto" takes fewer of long ones.
    n_jobs : int
        Threads; -1 for all. The result does not depend on it, except under "hogwild".
    random_state : int, generator or None
        A number gives the same bits every time.
    verbose : int
        1 prints a line an epoch to stderr.

    Attributes
    ----------
    classes_ : array of labels
    temperature_ : float
        What scores are divided by before they become probabilities.
    n_iter_, n_features_in_, history_

    Examples
    --------
    >>> import steepest as st
    >>> texts = ["cheap pills", "lunch at noon", "cheap cash", "see you at lunch"] * 5
    >>> model = st.TextClassifier(n_bits=12, epochs=20, random_state=0).fit(texts, ["spam", "ham"] * 10)
    >>> model.predict(["pills for cash", "noon?"]).tolist()
    ['spam', 'ham']

    References
    ----------
    Joulin, A., Grave, E., Bojanowski, P. and Mikolov, T. (2016). Bag of tricks for efficient text classification.
    """

    _kind = "classifier"
    _task = "text"

    hasher = None  # it follows from the parameters below
    dim: int | str
    ngrams: tuple[int, int] | None
    char_ngrams: tuple[int, int] | None
    loss: str
    n_bits: int
    epochs: int | str
    eta0: float | str
    schedule: str
    negatives: int
    calibrate: float
    pretrained: Any
    lowercase: bool
    names: int
    shuffle: str
    parallel: str
    n_replicas: int
    sync_every: int | str
    _learner: EmbeddingLearner

    def __init__(
        self,
        dim: int | str = "auto",
        *,
        ngrams: tuple[int, int] | None = (1, 2),
        char_ngrams: tuple[int, int] | None = None,
        loss: str = "softmax",
        n_bits: int = 21,
        epochs: int | str = "auto",
        eta0: float | str = "auto",
        schedule: str = "auto",
        negatives: int = 5,
        calibrate: float = 0.0,
        pretrained: Any = None,
        lowercase: bool = True,
        names: int = NAMES,
        shuffle: str = "rows",
        parallel: str = "auto",
        n_replicas: int = 2,
        sync_every: int | str = "auto",
        n_jobs: int = 1,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self._store(locals())

    # -------------------------------------------------------------------------------------------------- learning

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Learns from texts (or dicts, a DataFrame, an Arrow table); y: a label each, several each, or 0/1 columns."""
        self._settings()
        vars(self).pop("hasher_", None)
        targets, names = text_targets(y)
        return self._fit(self._array_source(X, targets, sample_weight), names=names)

    def fit_stream(
        self,
        source: Source,
        validation: Source | None = None,
        *,
        monitor: Monitor | None = None,
        checkpoint: str | Path | None = None,
        resume: bool = False,
    ) -> Self:
        """Learns from a source of raw rows, `epochs` times over it.

        `validation` is measured after every epoch. `checkpoint` names a folder in which the state is saved now and
        then; `resume=True` goes on from there, to the same bits as if nothing had happened.
        """
        self._settings()
        vars(self).pop("hasher_", None)
        return self._fit(source, validation, monitor, checkpoint, resume)

    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> Self:
        """Learns these texts once, in order, from where the model stands.

        Classes may be given with the first call, or appear at any time. Two calls learn the same as one with all rows.
        """
        targets, names = text_targets(y, getattr(self, "_target_names", None))
        source = self._array_source(X, targets, sample_weight)
        if not hasattr(self, "_learner"):
            labels = [] if classes is None else np.unique(np.asarray(classes)).tolist()
            if targets.ndim == 2:
                labels = list(range(targets.shape[1])) if names is None else names
            settings, events = self._choose_by_labels(self._settings(), len(labels))
            n_features = source.n_features or 0
            learner = EmbeddingLearner(settings, n_features, labels, several_targets=targets.ndim == 2)
            self._use_pretrained(learner)
            self._adopt(learner, History(events=events), source, names)
        self._learner.go_on()
        self._learner.n_threads = threads(self.n_jobs) if self.parallel == "hogwild" else 1
        for chunk in source:
            self.history_.events += self._learner.step(chunk).events
        self.n_iter_ += 1
        self._refresh()
        return self

    def _fit(
        self,
        source: Source,
        validation: Source | None = None,
        monitor: Monitor | None = None,
        checkpoint: str | Path | None = None,
        resume: bool = False,
        names: list[Any] | None = None,
    ) -> Self:
        settings = self._settings()
        once = any(file.once for file in getattr(root_of(source), "files", ()))
        if self.schedule == "linear" and once:
            raise ParameterError("schedule='linear' needs data that can be read twice; choose 'invsqrt' for a stream")
        source = self._hashed(source, learn=True)
        source = source if once else keep_rows(source)
        held = None
        if self.calibrate:
            source, held = source.holdout(self.calibrate, settings.seed)
        if validation is not None:
            validation = keep_rows(self._hashed(validation, learn=False))
        seen = None if once else look(source)
        names = names or target_names(source)
        settings, epochs, events = self._choose(settings, seen)
        learner = self._new_learner(settings, source, seen or Seen(), names)
        monitor = monitor or self._monitor() or Monitor()
        for event in events:
            monitor.choice(event)
        learner, history = train(
            learner,
            source.shuffle(self.shuffle, settings.seed),
            Plan(epochs=epochs),
            validation=validation,
            monitor=monitor,
            checkpoints=Checkpoints.of(learner, source, self.shuffle, checkpoint, resume=resume),
        )
        history.events = [*events, *history.events, *learner.learn_pending().events]
        if learner.rows_learned == 0:
            raise DataError("the data holds no rows; nothing can be learned from it")
        if len(learner.book) < 2 and not learner.several_targets:
            raise DataError(f"y holds one class only, {learner.book.labels}; a classifier needs at least two classes")
        self._adopt(learner, history, source, names)
        if held is not None:
            self._calibrate(held)
        return self

    def _choose(self, settings: EmbeddingSettings, seen: Seen | None) -> tuple[EmbeddingSettings, int, list[str]]:
        """(settings, epochs, what "auto" chose) for data of which this was seen; None: they can be read only once."""
        settings, events = self._choose_by_labels(settings, 0 if seen is None else seen.n_labels)
        n_rows = None if seen is None else seen.n_rows
        epochs, why = choose_epochs(n_rows)
        if self.epochs == "auto":
            events.append(why)
        else:
            epochs = whole("epochs", self.epochs, 1)
        parallel, why = choose_parallel(n_rows)
        if self.parallel == "auto":
            events.append(why)
        else:
            parallel = self.parallel
        if parallel == "replicas":
            length = None if seen is None else seen.n_entries / max(1, seen.n_rows)
            each = choose_sync_every(length) if self.sync_every == "auto" else whole("sync_every", self.sync_every, 1)
            settings = replace(settings, n_replicas=whole("n_replicas", self.n_replicas, 1), sync_every=each)
        if self.schedule != "invsqrt" and n_rows is not None:
            settings = replace(settings, total=float(epochs * n_rows))
        return settings, epochs, events

    def _choose_by_labels(self, settings: EmbeddingSettings, n_labels: int) -> tuple[EmbeddingSettings, list[str]]:
        """(settings, what "auto" chose) for so many labels; vectors to start from have their own dimension."""
        events = []
        if self.dim == "auto" and self.pretrained is not None:
            settings = replace(settings, dim=dim_of_vectors(self.pretrained))
        elif self.dim == "auto":
            dim, why = choose_dim(n_labels)
            settings = replace(settings, dim=dim)
            events.append(why)
        if self.eta0 == "auto":
            eta0, why = choose_eta0(n_labels)
            settings = replace(settings, eta0=eta0)
            events.append(why)
        return settings, events

    def _new_learner(
        self, settings: EmbeddingSettings, source: Source, seen: Seen, names: list[Any] | None
    ) -> EmbeddingLearner:
        several = seen.n_columns > 0
        labels = (names or list(range(seen.n_columns))) if several else seen.labels
        counts = seen.counts if len(labels) else None
        n_features = source.n_features or 1 << self.n_bits
        learner = EmbeddingLearner(settings, n_features, labels, counts, several_targets=several)
        learner.n_threads = threads(self.n_jobs) if settings.n_replicas > 1 or self.parallel == "hogwild" else 1
        self._use_pretrained(learner)
        return learner

    def _settings(self) -> EmbeddingSettings:
        """The constructor's arguments, checked."""
        choice("parallel", self.parallel, PARALLEL)
        choice("schedule", self.schedule, SCHEDULES)
        choice("shuffle", self.shuffle, SHUFFLES)
        if self.calibrate:
            inside("calibrate", self.calibrate, 0.0, 1.0)
        for name in ("epochs", "sync_every"):
            if getattr(self, name) != "auto":
                whole(name, getattr(self, name), 1)
        whole("n_replicas", self.n_replicas, 1)
        dim = 1 if self.dim == "auto" else whole("dim", self.dim, 1)
        if dim > LONGEST_ROW:
            raise ParameterError(f"dim={dim} is too large; {LONGEST_ROW} is the most, and 16 to 100 is usual")
        eta0 = 0.0 if self.eta0 == "auto" else at_least("eta0", self.eta0, 0.0)
        negatives = whole("negatives", self.negatives, 1)
        loss = choice("loss", self.loss, LOSSES)
        return EmbeddingSettings(dim, loss, eta0, negatives=negatives, seed=self._seed())

    def _hasher_wish(self) -> Hasher:
        return Hasher(
            self.n_bits,
            ngrams=self.ngrams,
            char_ngrams=self.char_ngrams,
            signed=False,
            weighting="count",
            norm=None,
            lowercase=self.lowercase,
            names=self.names,
        )

    def _array_source(self, X: Any, targets: Array, sample_weight: Any) -> ArraySource:
        chunk = self._own_hasher().to_chunk(X, targets, sample_weight, learn=True)
        if chunk.n_rows == 0:
            raise DataError("Found array with 0 sample(s): X has no rows; at least one is needed")
        self._label_dtype = targets.dtype
        return ArraySource(chunk)

    def _adopt(self, learner: EmbeddingLearner, history: History, source: Source, names: list[Any] | None) -> None:
        self._learner = learner
        self.recipe_ = source.recipe
        self._target_names = names
        self.history_ = history
        self.n_iter_ = len(history)
        self.temperature_ = 1.0
        self._refresh()

    def _refresh(self) -> None:
        self.n_features_in_ = self.hasher_.n_features_in_
        if self._learner.several_targets:
            self.classes_ = np.array(self._learner.book.labels)
            self._label_order = self._places = np.arange(len(self.classes_))
            return
        labels, self._label_order = self._learner.book.sorted_labels()
        self._places = np.argsort(self._label_order)  # where in classes_ each output stands
        dtype = getattr(self, "_label_dtype", None)
        self.classes_ = labels if dtype is None or dtype.kind not in "biuf" else labels.astype(dtype)

    # --------------------------------------------------------------------------------------------- looking inside

    @property
    def n_nonzero_(self) -> int:
        """Numbers that were learned."""
        return self._learner.count_nonzero()

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = False
        tags.input_tags.string = tags.input_tags.dict = tags.input_tags.categorical = tags.input_tags.allow_nan = True
        return tags

    # --------------------------------------------------------------------------------------------------- files

    def save(
        self, path: str | Path, *, quantize: bool = False, size: int | str | None = None, check: Any = None
    ) -> dict[str, Any]:
        """Writes the model to one file and tells its `bytes` and `rows`.

        `quantize` stores each row in 8-bit numbers with a scale; such a file predicts and goes on learning as any
        other. `size`, "5MB" for example, keeps the rows that weigh most within so many bytes, as 8-bit numbers.
        `check`, a source or (X, y): rows to measure the cost on; `accuracy` and `accuracy_before` are then told as
        well, and printed if `verbose` is set.
        """
        self._check_fitted()
        header, arrays = self._file_parts()
        if quantize or size is not None:
            arrays = smaller(header, arrays, size)
        head = {"kind": "model", "class": type(self).__name__, **header}
        told: dict[str, Any] = {"bytes": model_file.write(path, head, arrays), "rows": len(arrays["rows"])}
        if check is not None:
            from steepest.estimator import load

            for name, model in (("accuracy_before", self), ("accuracy", load(path))):
                of_source = isinstance(check, Source)
                told[name] = model.evaluate_stream(check)["accuracy"] if of_source else model.score(*check)
            if self.verbose:
                before, after = told["accuracy_before"], told["accuracy"]
                print(f"{path}: {shown(told['bytes'])}, accuracy {before:.4f} became {after:.4f}", file=sys.stderr)
        return told

    def _file_parts(self) -> tuple[dict[str, Any], dict[str, Array]]:
        params = self.get_params(deep=False)
        params = {k: (v.item() if isinstance(v, np.generic) else v) for k, v in params.items()}
        params["random_state"] = self.random_state if isinstance(self.random_state, int) else None
        params["pretrained"] = None  # it is in the rows now
        hasher_header, hasher_arrays = self._hasher_parts()
        words, arrays = split_words(self._learner.state)
        header = {
            "words": words,
            "hasher": hasher_header,
            "params": params,
            "settings": self._learner.settings.as_dict(),
            "history": self.history_.as_dict(),
            "n_iter": self.n_iter_,
            "temperature": self.temperature_,
            "recipe": self.recipe_,
            "target_names": self._target_names,
            "label_kind": getattr(getattr(self, "_label_dtype", None), "str", None),
        }
        return header, arrays | hasher_arrays

    @classmethod
    def _from_file_parts(cls, header: dict[str, Any], arrays: dict[str, Array]) -> Self:
        params = header["params"]
        for name in ("ngrams", "char_ngrams"):
            params[name] = None if params[name] is None else tuple(params[name])
        estimator = cls(**params)
        estimator._restore_hasher(header["hasher"], arrays)
        vars(estimator).pop("hasher", None)
        settings = EmbeddingSettings.from_dict(header["settings"])
        if "codes" in arrays:
            arrays = arrays | {"table": unpack_rows(arrays)}
        estimator._learner = EmbeddingLearner.from_state(settings, join_words(header["words"], arrays))
        estimator.recipe_ = header["recipe"]
        estimator._target_names = header["target_names"]
        estimator.history_ = History.from_dict(header["history"])
        estimator.n_iter_ = int(header["n_iter"])
        estimator.temperature_ = float(header["temperature"])
        if header["label_kind"] is not None:
            estimator._label_dtype = np.dtype(header["label_kind"])
        estimator._refresh()
        return estimator
