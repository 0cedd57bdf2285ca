"""What a factor model holds between fits: the learner, ids, what users have seen; its attributes and its file.

Learning stands in `factorization`, answers to questions in `recommender`.
"""

from __future__ import annotations

import math
from typing import Any, Self

import numpy as np

from steepest.data.chunk import Array, DataError
from steepest.data.entries import Entries
from steepest.data.ids import IdBook
from steepest.data.parameters import choice
from steepest.engine.history import History
from steepest.estimator import Estimator
from steepest.learners.factor_settings import CENTRED, WHOLE, FactorSettings
from steepest.learners.factors import BIAS, TAIL, FactorLearner, csr_of, new_table


class FactorModel(Estimator):
    """State, attributes and file of a factor model."""

    _kind = "regressor"

    loss: str
    solver: str
    nonnegative: bool
    clip: bool
    n_jobs: int | None
    dtype: str
    random_state: Any
    _learner: FactorLearner
    _users: IdBook
    _items: IdBook
    _waiting: Entries | None
    _ready: FactorLearner | None
    _new: list[Entries]
    _seen_indptr: Array
    _seen_items: Array
    _seen_values: Array | None
    _seen_weights: Array | None
    history_: History
    recipe_: dict[str, Any]
    n_iter_: int
    n_blocks_: int

    def _adopt(self, learner: FactorLearner, users: IdBook, items: IdBook, entries: Entries, history: History) -> None:
        self._learner, self._users, self._items = learner, users, items
        self.history_ = history
        self._waiting = None
        self._ready = None
        self._new = []
        self._seen_indptr, self._seen_items = np.zeros(1, np.int64), np.zeros(0, np.int32)
        self._seen_values = None if learner.settings.solver == "sgd" else np.zeros(0, np.float32)
        self._seen_weights = None
        if len(entries.users):
            self._remember(entries)
        self._rounded(learner)

    def _rounded(self, learner: FactorLearner) -> None:
        if self.dtype == "float16":
            for table in (learner.users, learner.items):
                table[:, : learner.padded] = table[:, : learner.padded].astype(np.float16)

    def _own_arrays(self) -> None:
        """Arrays mapped from a file are copied before they change."""
        for name in ("users", "items"):
            table = getattr(self._learner, name)
            if not table.flags.writeable or table.ctypes.data % 4:
                room = new_table(len(table), self._learner.rank)
                room[:] = table
                setattr(self._learner, name, room)

    def _remember(self, entries: Entries) -> None:
        """What users have seen; put in order when it is next needed."""
        self._new.append(entries)

    def _settle_seen(self) -> None:
        if not self._new:
            return
        old = self._known_entries()
        entries = Entries.joined(old, *self._new)
        self._new = []
        self._seen_indptr, self._seen_items, order = csr_of(entries.users, entries.items, len(self._users))
        if self._seen_values is not None:
            self._seen_values = np.ascontiguousarray(entries.values[order], np.float32)
            self._seen_weights = None if entries.weights is None else entries.weights[order]

    def _known_entries(self) -> Entries:
        users = np.repeat(np.arange(len(self._seen_indptr) - 1, dtype=np.int32), np.diff(self._seen_indptr))
        values = np.ones(len(users)) if self._seen_values is None else self._seen_values.astype(np.float64)
        return Entries(users, self._seen_items, values, self._seen_weights)

    def _all_entries(self) -> Entries:
        self._settle_seen()
        return self._known_entries()

    def _model(self) -> FactorLearner:
        """The learner to answer with; ratings that wait are learned in a copy, as if no others were to come."""
        self._check_fitted()
        if self._waiting is None:
            return self._learner
        if self._ready is None:
            twin = self._learner.clone()
            values = self._targets(self._waiting.values)
            twin.start(values, self._waiting.weights)
            twin.step(self._waiting.users, self._waiting.items, twin.normalised(values), self._waiting.weights)
            self._ready = twin
        return self._ready

    def _settle_waiting(self) -> None:
        if self._waiting is not None:
            self._learner, self._waiting, self._ready = self._model(), None, None

    def _targets(self, values: Array) -> Array:
        """Ratings as the loss wants them."""
        if self.loss in ("logistic", "hinge"):
            return np.where(values > 0, 1.0, -1.0)
        return values

    def _check_targets(self, values: Array) -> None:
        if self.loss in WHOLE and (values < 0).any():
            bad = float(values[values < 0][0])
            raise DataError(f"loss={self.loss!r} is for counts, but a value is {bad:g}; give values from 0 on")
        if self.loss == "kl" and not values.any():
            raise DataError("loss='kl' needs a value above 0, but all are 0")
        if self.nonnegative and self.loss == "squared" and (values < 0).any():
            bad = float(values[values < 0][0])
            raise DataError(f"nonnegative=True cannot reach a value of {bad:g}; shift the values, or leave it out")
        if self.loss in ("logistic", "hinge"):
            distinct = np.unique(values[:100_000])
            if len(distinct) > 2 or not set(distinct.tolist()) <= {-1.0, 0.0, 1.0}:
                raise DataError(f"loss={self.loss!r} needs ratings 0 and 1, or -1 and 1, but there is {distinct[-1]:g}")

    @property
    def user_ids_(self) -> Array:
        """Ids of the users, in the order of `user_factors_`."""
        return np.asarray(self._part("_users").ids)

    @property
    def item_ids_(self) -> Array:
        """Ids of the items, in the order of `item_factors_`."""
        return np.asarray(self._part("_items").ids)

    @property
    def user_factors_(self) -> Array:
        """Factors of the users in the ratings' units: mean + biases + user_factors_ @ item_factors_.T is the score."""
        return self._factors("users")

    @property
    def item_factors_(self) -> Array:
        """Factors of the items."""
        return self._factors("items")

    @property
    def user_biases_(self) -> Array:
        """Biases of the users."""
        return self._biases("users")

    @property
    def item_biases_(self) -> Array:
        """Biases of the items."""
        return self._biases("items")

    @property
    def mean_(self) -> float:
        """The global mean (0 without biases)."""
        self._part("_learner")
        return float(self._model().mean)

    @property
    def solver_(self) -> str:
        """The solver that was used."""
        return str(self._part("_learner").settings.solver)

    @property
    def alpha_(self) -> float:
        """The strength of the penalty that was used."""
        return float(self._part("_learner").settings.alpha)

    def _part(self, name: str) -> Any:
        if name not in vars(self):
            raise AttributeError(f"this {type(self).__name__} is not fitted yet")
        return vars(self)[name]

    def _factors(self, side: str) -> Array:
        self._part("_learner")
        learner = self._model()
        scale = math.sqrt(learner.scale) if learner.settings.loss in CENTRED else 1.0
        return np.asarray(getattr(learner, side)[:, : learner.rank] * np.float32(scale))

    def _biases(self, side: str) -> Array:
        self._part("_learner")
        learner = self._model()
        scale = learner.scale if learner.settings.loss in CENTRED else 1.0
        return np.asarray(getattr(learner, side)[:, learner.padded + BIAS] * np.float32(scale))

    def id_of(self, text: str, side: str = "users") -> Any:
        """The id that a word stands for: a number if the model's ids are numbers."""
        self._check_fitted()
        return (self._users if choice("side", side, ("users", "items")) == "users" else self._items).id_of(text)

    def _file_parts(self) -> tuple[dict[str, Any], dict[str, Array]]:
        self._settle_seen()
        learner = self._learner
        params = {name: _plain(value) for name, value in self.get_params(deep=False).items()}
        params["random_state"] = self.random_state if isinstance(self.random_state, int) else None
        header: dict[str, Any] = {
            "params": params,
            "settings": learner.settings.as_dict(),
            "numbers": learner.numbers,
            "history": self.history_.as_dict(),
            "n_iter": self.n_iter_,
            "recipe": self.recipe_,
            "n_blocks": getattr(self, "n_blocks_", None),
        }
        arrays = {"user_counts": learner.user_counts, "item_counts": learner.item_counts,
                  "seen.indptr": self._seen_indptr, "seen.items": self._seen_items}  # fmt: skip
        for name, values in (("seen.values", self._seen_values), ("seen.weights", self._seen_weights)):
            if values is not None:
                arrays[name] = values
        for side, book, table in (("users", self._users, learner.users), ("items", self._items, learner.items)):
            header[side], parts = book.as_arrays()
            arrays |= {f"{side}.{name}": array for name, array in parts.items()}
            if self.dtype == "float16":
                arrays[f"{side}.factors"] = table[:, : learner.padded].astype(np.float16)
                arrays[f"{side}.tail"] = table[:, learner.padded :]
            else:
                arrays[f"{side}.table"] = table
        if self._waiting is not None:
            arrays |= {f"waiting.{name}": array for name, array in self._waiting.as_arrays().items()}
        return header, arrays

    @classmethod
    def _from_file_parts(cls, header: dict[str, Any], arrays: dict[str, Array]) -> Self:
        estimator = cls(**header["params"])
        learner = FactorLearner(FactorSettings(**header["settings"]))
        learner.restore_numbers(header["numbers"])
        books = {}
        for side in ("users", "items"):
            parts = {n.removeprefix(f"{side}."): a for n, a in arrays.items() if n.startswith(f"{side}.")}
            books[side] = IdBook.from_arrays(header[side], parts)
            table = parts["table"] if "table" in parts else np.concatenate(
                [parts["factors"].astype(np.float32), parts["tail"]], axis=1
            )  # fmt: skip
            if table.ndim != 2 or table.shape[1] != learner.padded + TAIL:
                raise ValueError(f"{side} have rows of another length")
            setattr(learner, side, table)
        learner.user_counts, learner.item_counts = arrays["user_counts"], arrays["item_counts"]
        estimator._adopt(learner, books["users"], books["items"], Entries.none(), History.from_dict(header["history"]))
        estimator._seen_indptr, estimator._seen_items = arrays["seen.indptr"], arrays["seen.items"]
        estimator._seen_values, estimator._seen_weights = arrays.get("seen.values"), arrays.get("seen.weights")
        waiting = {n.removeprefix("waiting."): a for n, a in arrays.items() if n.startswith("waiting.")}
        estimator._waiting = Entries.from_arrays(waiting) if waiting else None
        estimator.n_iter_, estimator.recipe_ = int(header["n_iter"]), header["recipe"]
        if header["n_blocks"] is not None:
            estimator.n_blocks_ = header["n_blocks"]
        return estimator


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value
