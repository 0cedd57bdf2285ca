"""What happened during training: one record per epoch, and the events worth reporting."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

Record = dict[str, Any]


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


@dataclass(slots=True)
class History:
    """The records of the epochs, in order, and the events as sentences.

    A record holds `epoch`, `rows`, `loss` (progressive: each row scored before it was learned), `holdout_loss` (if
    there is a holdout), `objective` (that loss, holdout first, plus alpha R(w)), `eta`, `nonzeros`, `seconds` and
    `rows_per_second`. Linear models by stochastic gradients add `eta0`, the first step, given or calibrated. Batch
    solvers have one record per iteration, with `gradient` (the length of the gradient relative to the first iteration),
    `moved` and `passes`; solver="gd" adds `gradient_norm`.

    Examples
    --------
    >>> import steepest as st
    >>> model = st.LinearRegressor(epochs=3, random_state=0).fit([[0.0], [1.0], [2.0], [3.0]], [1.0, 3.0, 5.0, 7.0])
    >>> model.history_.column("epoch"), model.history_[-1]["rows"]
    ([1, 2, 3], 4)
    """

    records: list[Record] = field(default_factory=list)
    events: list[str] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.records)

    def __iter__(self) -> Iterator[Record]:
        return iter(self.records)

    def __getitem__(self, number: int) -> Record:
        return self.records[number]

    def column(self, name: str) -> list[Any]:
        """The values of one quantity, epoch by epoch."""
        return [record.get(name) for record in self.records]

    def as_dict(self) -> dict[str, Any]:
        """Plain values for the model file, which holds neither NaN nor infinity."""
        plain = [{name: _finite(value) for name, value in record.items()} for record in self.records]
        return {"records": plain, "events": self.events}

    @classmethod
    def from_dict(cls, plain: dict[str, Any]) -> History:
        """Builds the history from the values that `as_dict` gave."""
        return cls(list(plain.get("records", [])), list(plain.get("events", [])))
