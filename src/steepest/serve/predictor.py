"""One loaded model and the questions it answers: predictions, what made them, recommendations, what it is.

Everything goes through the estimator's public methods; what is added here is their JSON form. A predictor changes
nothing, so several threads may ask it at a time as long as nobody teaches its model.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from steepest.data.chunk import Array
from steepest.data.source import from_arrays
from steepest.errors import DataError
from steepest.learners.batch.solvers import BATCH_SOLVERS
from steepest.learners.linear.linear import refuse_missing_times
from steepest.models.supervised import Classifier
from steepest.serve.rows import BAG, COLUMNS, PAIRS, SPARSE, TEXT, RowReader

MOST_ITEMS = 1_000  # of one list of recommendations
LEARNING_KINDS = ("classifier", "regressor")  # of models that can learn a row with its label; ratings are numbers


class Predictor:
    """Wraps the model for the server: JSON rows in, plain answers out."""

    def __init__(self, model: Any, name: str, identity: str) -> None:
        self.model, self.name, self.identity = model, name, identity
        self.rows = RowReader(model)
        self.kind = str(model.kind or type(model).__name__)
        self.refresh()

    def refresh(self) -> None:
        """Updates the names that follow from the model; learning may add classes."""
        model = self.model
        self.classes: list[Any] = model.classes_.tolist() if hasattr(model, "classes_") else []
        self.class_names = [str(label) for label in self.classes]
        self.places = {label: place for place, label in enumerate(self.classes)}
        self.several = bool(self.classes) and bool(getattr(model.learner_, "several_targets", False))
        self.has_probabilities = bool(self.classes) and hasattr(model, "predict_proba")
        # One look at the row gives both label and probabilities, where the class has not its own way to either.
        self._one_look = isinstance(model, Classifier) and type(model).predict is Classifier.predict

    def warm_up(self) -> None:
        """Predicts a row of nothing, so that what is made at the first use is there before the first caller."""
        empty: dict[str, Any] = {TEXT: "", BAG: {}, COLUMNS: {}, SPARSE: {"indices": [], "values": []}}
        if self.rows.form in empty:
            X = self.rows.read([empty[self.rows.form]])
            self.answer(X)
            self.unseen(X)

    @property
    def explains(self) -> bool:
        """Whether a score is a sum over features."""
        return hasattr(self.model, "explain") and self.rows.form != PAIRS

    @property
    def recommends(self) -> bool:
        """Whether there are users and items."""
        return self.rows.form == PAIRS

    @property
    def learns(self) -> bool:
        """Whether rows can be learned one after the other, with a label for each."""
        solver = getattr(getattr(self.model.learner_, "settings", None), "solver", "")
        if not hasattr(self.model, "partial_fit") or self.kind not in LEARNING_KINDS:
            return False
        goes_on = solver not in BATCH_SOLVERS or self.model.solver == "auto"  # which then goes on row by row
        return not getattr(self.model, "voters_", ()) and goes_on

    def answer(self, X: Any) -> tuple[list[Any], Array | None]:
        """(predictions as plain values, probabilities as an array or None) of rows that were read."""
        model = self.model
        if not self._one_look:
            probabilities = model.predict_proba(X) if self.has_probabilities else None
            return self._plain(model.predict(X)), probabilities
        decisions = model.decision_function(X)
        labels = self._plain(model.labels_of(decisions))
        return labels, model.probabilities_of(decisions) if self.has_probabilities else None

    def _plain(self, predictions: Array) -> list[Any]:
        """Predictions as JSON has them; of several labels, the names of those that a row has."""
        if self.several:
            return [[self.classes[k] for k in np.flatnonzero(row)] for row in predictions]
        values: list[Any] = predictions.tolist()
        return values

    # -------------------------------------------------------------------------------------------------- explanations

    def explain(self, row: Any, top: int | None = None) -> dict[str, Any]:
        """The answer of POST /explain: what each feature adds to the score of what is predicted."""
        if not self.explains:
            raise DataError(
                f"the score of a {type(self.model).__name__} is not a sum over features; serve a linear model"
            )
        X = self.rows.read([row])
        labels, _ = self.answer(X)
        parts = self.model.explain(X if self.rows.form == SPARSE and not isinstance(X, list) else X[0])
        outputs = list(parts)
        explained = self._explained(labels[0], X, outputs)
        bias = self._bias(explained, outputs)
        found = parts[explained]
        total = bias + math.fsum(part.contribution for part in found)
        features = [
            {
                "name": part.name,
                "share": part.contribution,
                "value": part.value,
                "weight": part.weight,
                "others": list(part.others),
            }
            for part in (found if top is None else found[:top])
        ]
        return {"prediction": labels[0], "output": explained, "bias": bias, "total": total, "features": features}

    def _explained(self, label: Any, X: Any, outputs: list[Any]) -> Any:
        """The output whose score is explained: that of the prediction, or the best of several."""
        if not self.several:
            return label if label in outputs else outputs[0]
        return outputs[int(np.argmax(np.asarray(self.model.decision_function(X))[0]))]

    def _bias(self, output: Any, outputs: list[Any]) -> float:
        model, place = self.model, outputs.index(output)
        if hasattr(model, "cluster_centers_"):  # the nearest centre has the largest x·c - |c|²/2
            centre = np.asarray(model.cluster_centers_[place], np.float64)
            return float(-(centre @ centre) / 2)
        biases = np.asarray(model.intercept_, np.float64).reshape(-1)
        if len(biases) == 1 and len(outputs) == 2:  # one score for the second class, and negated for the first
            return float(biases[0] if place else -biases[0])
        return float(biases[place])

    # ----------------------------------------------------------------------------------------------- recommendations

    def recommend(self, users: list[Any], k: int, *, include_seen: bool) -> list[dict[str, Any]]:
        """The answer of POST /recommend: ranked items for each user."""
        known = [self._id(user) for user in users]
        if not known:
            return []
        found = self.model.recommend(known, min(k, MOST_ITEMS), exclude_seen=not include_seen)
        return [
            {
                "user": user,
                "cold": bool(found.cold[number]),
                "items": [{"item": item, "score": score} for item, score in found[number]],
            }
            for number, user in enumerate(users)
        ]

    def _id(self, user: Any) -> Any:
        """An id as the model has it: a number may be sent as a text, as the shell does."""
        return self.model.id_of(str(user), "users")

    # ------------------------------------------------------------------------------------------------------- watching

    def check_times(self, X: Any) -> None:
        """Raises unless rows to learn have the times that a half-life in time needs."""
        if getattr(getattr(self.model.learner_, "settings", None), "in_time", False):
            refuse_missing_times(self.model.hasher_.to_chunk(X))

    def unseen(self, X: Any) -> tuple[int, int] | None:
        """(features of the rows, those that training has not seen); None if this model cannot say."""
        hasher = getattr(self.model, "hasher_", None)
        if hasher is not None:
            features = hasher.all_features(X)
        elif self.rows.form == SPARSE and not isinstance(X, list):
            features = from_arrays(X).block.indices
        else:
            return None
        unseen = self.model.unseen_features(features)
        return None if unseen is None else (len(features), unseen)

    # -------------------------------------------------------------------------------------------------- what it is

    def describe(self) -> dict[str, Any]:
        """The answer of GET /model."""
        reader = self.rows
        columns = [{"name": c.name, "kind": c.kind, "size": c.size} for c in reader.columns]
        return {
            "name": self.name,
            "class": type(self.model).__name__,
            "kind": self.kind,
            "identity": self.identity,
            "row": reader.form,
            "row_is": reader.expected(),
            "columns": columns,
            "features": reader.feature_names[:1000],
            "n_features": int(getattr(self.model, "n_features_in_", 0) or 0),
            "classes": self.classes[:1000],
            "n_classes": len(self.classes),
            "several_labels": self.several,
            "probabilities": self.has_probabilities,
            "explains": self.explains,
            "recommends": self.recommends,
        }


def named(names: list[str], rows: list[list[float]]) -> list[dict[str, float]]:
    """Probabilities by class; two classes, the usual case, in a third of the time."""
    if len(names) == 2:
        first, second = names
        return [{first: p, second: q} for p, q in rows]
    return [dict(zip(names, row, strict=True)) for row in rows]
