"""A linear model shows what it learned: weights, features by name, what made a score, how crowded the buckets are."""

from __future__ import annotations

from typing import Any, Self

import numpy as np

from steepest.data.chunk import Array, Chunk, DataError
from steepest.data.source import Source, from_arrays
from steepest.data.vw import VwSource, listened_to
from steepest.engine.loop import mean_loss
from steepest.inside import Contribution, explain_hashed, explain_row, heaviest, heaviest_named
from steepest.learners.linear import LinearLearner
from steepest.model import NAMES
from steepest.supervised_model import SupervisedModel
from steepest.vw_names import VwNames


class LinearInside(SupervisedModel):
    """The part of a linear model that is looked at after training."""

    _learner: LinearLearner
    vw_names_: VwNames | None = None  # of the features of Vowpal Wabbit text

    def _namer(self) -> Any:
        """Who knows the names of hashed features: the hasher, or what listened to a text of named features."""
        return getattr(self, "hasher_", None) or self.vw_names_

    def _named(self, source: Source) -> Source:
        """The source; if it is parsed from named features, this model will know their names."""

        def listener(found: VwSource) -> VwNames:
            self.vw_names_ = VwNames.of(found, NAMES)
            return self.vw_names_

        self.vw_names_ = None
        return listened_to(source, listener)

    def _keep_names(self) -> None:
        """Names of the heaviest weights stay, whatever is read from now on."""
        book = getattr(self._namer(), "names_", None)
        if book is not None:
            book.keep_heaviest(self._learner.heaviness)

    def _chunk(self, X: Any) -> Chunk:
        if self.vw_names_ is not None and isinstance(X, list) and X and isinstance(X[0], str):
            return self.vw_names_.to_chunk(X)
        return super()._chunk(X)

    @property
    def coef_(self) -> Array:
        """Weights, one row an output: shape (1, d) for two classes or one target.

        multi_class="hashed" has no such matrix: it is read from the shared table now, where a feature that was never
        seen shows what it would find there.
        """
        shown: Any = vars(self).get("_sparse_coef")
        return self._output_weights() if shown is None else shown

    @property
    def intercept_(self) -> Array:
        """Biases, one an output."""
        self._check_learner()
        return self._by_output(np.array(self._learner.weights()[1]))

    @property
    def n_nonzero_(self) -> int:
        """Weights that are not zero."""
        return self._learner.count_nonzero()

    def _output_weights(self) -> Array:
        """One row an output."""
        self._check_learner()
        return self._by_output(self._learner.weight_matrix())

    def _by_output(self, values: Array) -> Array:
        """Weights or biases of the learner's outputs as this estimator shows them."""
        return values

    def _check_learner(self) -> None:
        if "_learner" not in self.__dict__:
            raise AttributeError(f"this {type(self).__name__} is not fitted yet")

    def top_features(self, k: int = 20) -> dict[Any, list[tuple[str, float]]]:
        """The k features that speak most for each class (or for a high target), heaviest first, with their weights."""
        self._check_fitted()
        hasher = self._namer()
        if hasher is not None and hasattr(hasher, "names_"):
            return {label: heaviest_named(weights, k, hasher) for label, weights in self._weights_by_output()}
        names = getattr(self, "feature_names_in_", None)
        return {label: heaviest(weights, k, names) for label, weights in self._weights_by_output()}

    def explain(self, x: Any) -> dict[Any, list[Contribution]]:
        """What each feature of one row adds to the score of each class (or to the target), largest first."""
        self._check_fitted()
        hasher = self._namer()
        if hasher is None or (hasher is self.vw_names_ and not isinstance(x, str)):
            row = self._chunk(x if getattr(x, "ndim", 2) == 2 or isinstance(x, list) else np.asarray(x)[None, :])
            names = getattr(self, "feature_names_in_", None)
            return {label: explain_row(row, weights, names) for label, weights in self._weights_by_output()}
        row, own, seen = hasher.read_row(x)
        return {label: explain_hashed(row, weights, own, seen) for label, weights in self._weights_by_output()}

    def collision_report(self) -> Any:
        """How crowded the buckets of the hasher are, and how much of the weight is named or shared."""
        self._check_fitted()
        hasher = self._namer()
        if hasher is None:
            raise DataError("there is no hasher in this model, so no collisions either")
        return hasher.collision_report(self._learner.total_weights() if self._learner.shared else self.coef_)

    def _weights_by_output(self) -> list[tuple[Any, Any]]:
        """(output, its weights by feature); those in a shared table are read where they are asked for."""
        return list(enumerate(self._output_weights()))

    def sparsify(self) -> Self:
        """Shows `coef_` as a scipy CSR matrix; prediction is sparse in the input anyway."""
        from scipy.sparse import csr_matrix

        self._check_fitted()
        self._sparse_coef: Any = csr_matrix(self._output_weights())
        return self

    def densify(self) -> Self:
        """Shows `coef_` as an array again."""
        self._sparse_coef = None
        return self

    def objective(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Mean loss on these rows plus alpha R(w): what training minimises."""
        self._check_fitted()
        return mean_loss(self._learner, from_arrays(X, y, sample_weight)) + self._learner.penalty()
